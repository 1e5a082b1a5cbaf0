"""A few seeds of the swarm, and proof that it sees broken lists."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from gossamer.lab.skiplist.config import Setup
from gossamer.lab.skiplist.swarm import Flown, draw_setup, skiplist
from gossamer.overlay.skiplist.core import SkipList
from gossamer.overlay.skiplist.messages import Beat, Leave
from gossamer.sim.config import from_toml, to_toml
from gossamer.sim.scenario import fly
from gossamer.sim.swarm import swarm

# All of it together takes seconds.
pytestmark = pytest.mark.slow

PAST = tomllib.loads((Path(__file__).parent.parent / "seeds.toml").read_text("utf-8"))["skiplist"]


@pytest.mark.parametrize("seed", range(12))
def test_seeds_fly(seed: int) -> None:
    flight = fly(skiplist(seed))
    assert flight.good, (flight.replay, flight.violations)


@pytest.mark.parametrize("past", PAST, ids=lambda past: str(past["seed"]))
def test_past_failures_stay_fixed(past: dict[str, str]) -> None:
    flight = fly(Flown(from_toml(past["scenario"], "seeds.toml", Setup).config))
    assert flight.good, "\n".join([past["why"], *flight.violations, past["scenario"]])


class Chatty(SkipList):
    """Answers every beat with gossip, at once: a storm."""

    def receive(self, sender, message, now):  # type: ignore[no-untyped-def]
        effects = super().receive(sender, message, now)
        if isinstance(message, Beat):
            for entry in self.entries.values():
                self._level0.probe(entry, now)
        return effects + self.effects(now)


def test_a_storm_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossamer.lab.skiplist.swarm.STEPS_MAX", 50_000)
    flight = fly(Flown(draw_setup(3), Chatty))
    assert any("a storm of messages" in text for text in flight.violations)


def test_a_seed_flies_the_same_way_twice() -> None:
    assert fly(skiplist(3)) == fly(skiplist(3))


def test_configurations_are_written_and_read() -> None:
    for seed in range(30):
        setup = draw_setup(seed)
        assert from_toml(to_toml(setup), "here", Setup).config == setup


@pytest.mark.slow
def test_faults_are_drawn_and_fire() -> None:
    fired: dict[str, int] = {}
    for flight in swarm(skiplist, 0, 12):
        for name, count in flight.fired.items():
            fired[name] = fired.get(name, 0) + count
    for name in ("crash", "leave", "loss", "delay", "breaks", "partition", "restart"):
        assert fired.get(name), (name, fired)


class Deaf(SkipList):
    """Takes no notice of links that break, nor of silence."""

    def link(self, peer, state, now):  # type: ignore[no-untyped-def]
        return super().link(peer, state, now) if state.name == "UP" else self.effects(now)

    def _tend(self, entry, now):  # type: ignore[no-untyped-def]
        for link in (entry.rights[0], entry.lefts[0]):
            if link is not None:
                link.heard = now
        super()._tend(entry, now)


class Forgetful(SkipList):
    """Hands every copy over."""

    def receive(self, sender, message, now):  # type: ignore[no-untyped-def]
        for life in self.engine.lives._lives.values():
            for wave in life.batches.values():
                wave.is_handed = False
        return super().receive(sender, message, now)


class Rude(SkipList):
    """Does not hear farewells, and answers for entries that it no longer has."""

    def receive(self, sender, message, now):  # type: ignore[no-untyped-def]
        return (
            self.effects(now)
            if isinstance(message, Leave)
            else super().receive(sender, message, now)
        )


@pytest.mark.parametrize("kind", [Deaf, Forgetful])
def test_the_swarm_sees_what_is_broken(kind: type[SkipList]) -> None:
    assert any(not fly(Flown(draw_setup(seed), kind)).good for seed in range(12))


def test_the_swarm_survives_rude_neighbours() -> None:
    """A farewell is a courtesy: without it, silence is noticed."""
    assert all(fly(Flown(draw_setup(seed), Rude)).good for seed in (2, 5))
