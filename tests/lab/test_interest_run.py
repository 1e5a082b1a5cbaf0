"""Whole fabrics of the interest plane, small ones: figures, experiments, swarm, and broken machines
that are found out.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gossamer.lab.interest import swarm as interest_swarm
from gossamer.lab.interest.checkers import NEWS
from gossamer.lab.interest.config import Setup
from gossamer.lab.interest.experiments import EXPERIMENTS, Options, experiment
from gossamer.lab.interest.measure import cold_start, measure, settle
from gossamer.lab.interest.names import Names, named_size
from gossamer.lab.interest.run import InterestRun, make_interest
from gossamer.machine import Deliver, Effect, LinkState, Micros, Peer
from gossamer.node.wire import encode
from gossamer.overlay.interest.core import Interest
from gossamer.overlay.interest.messages import Beat, Diff, Flip, Flips, Greet, Lone, News, verdict
from gossamer.overlay.interest.record import Record, ViewChange
from gossamer.sim.config import ConfigError, from_toml, to_toml
from gossamer.sim.scenario import fly

# All tests together take seconds.
pytestmark = pytest.mark.slow

SMALL = Setup(nodes=12, topics=40, subscriptions=6, k=4, seed=3, changes=5, rate=50)
PAST = tomllib.loads((Path(__file__).parent.parent / "seeds.toml").read_text("utf-8")).get(
    "interest", []
)


def of(kind: type[Interest]) -> Any:
    return lambda node, setup, pool: make_interest(node, setup, pool, kind)


def test_a_small_fabric_is_measured() -> None:
    found = measure(SMALL)
    assert found.good, found.violations
    assert found.vertex_connectivity >= 4
    assert 4 <= found.degree_max <= 8
    assert found.diameter <= 3
    assert 1 <= found.hops_p50 <= found.hops_p99 <= 12
    assert 1.0 <= found.ms_p50 <= found.ms_p99 < 100
    assert 1 <= found.copies_per_node <= 4
    assert found.bytes_per_change < found.bytes_per_change_names < found.bytes_per_change_whole
    assert found.bytes_amortised > 0
    assert 10 < found.idle_bytes_per_s < 1_000
    assert 1.0 <= found.cold_start_s < 10
    # 12 bytes a pair, in units of 2**20.
    assert 11 < found.memory_mb_per_million_pairs < 64
    assert found.digest == measure(SMALL).digest


def test_a_cold_start_ends_with_the_truth_and_exactly_the_wanted_links() -> None:
    run = InterestRun(SMALL)
    assert cold_start(run) is not None
    assert settle(run)
    assert run.is_woven()
    snapshot = run.snapshot()
    assert all(sorted(others) == sorted(set(others)) for others in snapshot.adjacency.values())
    machine: Any = run.world.nodes[0].machine
    assert sorted(snapshot.adjacency[0]) == sorted(
        run.world.switchboard.by_peer(peer) for peer in machine.neighbours
    )
    assert {len(member.record.topics) for _, member in snapshot.members} == {6 * 8}


class Deaf(Interest):
    """Takes no news."""

    def receive(self, sender: Peer, message: Any, now: Micros) -> list[Effect]:
        return [] if isinstance(message, NEWS) else super().receive(sender, message, now)


class Chatty(Interest):
    """Says everything twice."""

    def wake(self, now: Micros) -> list[Effect]:
        return [effect for effect in super().wake(now) for _ in range(2)]


class Lonely(Interest):
    """Does not hear that links came up."""

    def link(self, peer: Peer, state: LinkState, now: Micros) -> list[Effect]:
        return [] if state is LinkState.UP else super().link(peer, state, now)


@pytest.mark.parametrize(
    ("kind", "says"), [(Deaf, "agreement:"), (Chatty, "news:"), (Lonely, "agreement:")]
)
def test_a_broken_machine_is_found_out(kind: type[Interest], says: str) -> None:
    setup = msgspec.structs.replace(SMALL, nodes=8, seconds_max=5.0, changes=3)
    found = measure(setup, make=of(kind))
    assert not found.good
    assert any(violation.startswith(says) for violation in found.violations)


class Raises(Interest):
    def receive(self, sender: Peer, message: Any, now: Micros) -> list[Effect]:
        if isinstance(message, Beat):
            raise ValueError("made up")
        return super().receive(sender, message, now)


def test_a_machine_that_raises_is_a_breach() -> None:
    found = measure(msgspec.structs.replace(SMALL, changes=1), make=of(Raises))
    assert found.violations[0].startswith("contract: node")
    verdict = experiment("dead", SMALL, make=of(Raises))
    assert verdict.reasons[0].startswith("contract: node")


# ------------------------------------------------------------------- experiments


@pytest.mark.slow
@pytest.mark.parametrize("name", [*EXPERIMENTS, "flips"])
def test_experiments_are_met(name: str) -> None:
    lasts = {"partition": 30.0, "churn": 120.0}.get(name, 0.0)
    setup = Setup(nodes=24, topics=60, subscriptions=8, k=4, seed=5)
    verdict = experiment(name, setup, Options(lasts=lasts, flips=20_000))
    assert verdict.good, [verdict.figures, *verdict.reasons]


class Hasty(Interest):
    """Takes somebody for dead, for no reason, once things go on for long."""

    def wake(self, now: Micros) -> list[Effect]:
        effects = super().wake(now)
        other = next((peer for peer in self.view.members if peer != self.me), None)
        if now > 12_000_000 and other is not None and len(self.view.members) == 8:
            change = self.view.remove(verdict(self.view.members[other]), now)
            effects.append(Deliver(0, (change,)))
        return effects


def test_a_hasty_machine_fails_the_experiment_with_loss() -> None:
    verdict = experiment(
        "loss", msgspec.structs.replace(SMALL, nodes=8), Options(lasts=20.0), make=of(Hasty)
    )
    assert not verdict.good
    assert verdict.figures["false_removals"]


class Trusting(Interest):
    """Takes nobody for dead."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.view.remove = lambda *_, **__: None  # type: ignore[method-assign]


def test_a_fabric_without_verdicts_fails_the_experiment_with_death() -> None:
    verdict = experiment("dead", msgspec.structs.replace(SMALL, nodes=6), make=of(Trusting))
    assert any(reason.startswith("reset_s is None") for reason in verdict.reasons)


# ------------------------------------------------------------------------- swarm


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(25))
def test_swarm(seed: int) -> None:
    flight = fly(interest_swarm.interest(seed))
    assert flight.good, "\n".join([*flight.violations, flight.toml, flight.replay])


@pytest.mark.slow
@pytest.mark.parametrize("past", PAST, ids=lambda past: str(past["seed"]))
def test_past_failures_stay_fixed(past: dict[str, str]) -> None:
    flight = fly(interest_swarm.Flown(from_toml(past["scenario"], "seeds.toml", Setup).config))
    assert flight.good, "\n".join([past["why"], *flight.violations, past["scenario"]])


def test_the_draws_cover_the_ground() -> None:
    drawn = [interest_swarm.draw_setup(seed) for seed in range(400)]
    kinds: dict[str, int] = {}
    for setup in drawn:
        assert from_toml(to_toml(setup), "drawn", Setup).config == setup
        for fault in setup.faults:
            kinds[type(fault).__name__] = kinds.get(type(fault).__name__, 0) + 1
    assert (
        min(
            kinds[name]
            for name in ("Partition", "Crash", "Pause", "Leave", "Clogging", "Swizzle", "FullDisk")
        )
        > 30
    )
    assert {setup.nodes for setup in drawn} >= set(range(2, 41))
    assert {setup.k for setup in drawn} == set(range(1, 9))
    crashes = [
        fault for setup in drawn for fault in setup.faults if type(fault).__name__ == "Crash"
    ]
    for name in ("silent", "wipe"):
        assert {getattr(fault, name) for fault in crashes} == {True, False}
    assert {(s.threshold > 0, s.coalesce != "0s", s.period != "0s") for s in drawn} >= {
        (True, True, True), (True, False, True), (False, True, False), (False, False, True)
    }  # fmt: skip
    for name in ("loss", "delay", "breaks", "durable"):
        assert 0.2 < sum(bool(getattr(setup, name)) for setup in drawn) / len(drawn) < 0.6, name


class Blind(ViewChange, frozen=True):
    """Compares topics only: does not see that one was left and came back."""

    @property
    def returned(self) -> tuple[bytes, ...]:
        return ()


class Forgetful(Interest):
    def receive(self, sender: Peer, message: Any, now: Micros) -> list[Effect]:
        effects = super().receive(sender, message, now)
        for place, effect in enumerate(effects):
            if isinstance(effect, Deliver):
                blind = tuple(
                    Blind(change.peer, change.before, change.after, change.reason)
                    for change in effect.events
                )
                effects[place] = Deliver(0, blind)
        return effects


def test_a_swarm_finds_a_machine_that_hides_leaves() -> None:
    calm = Setup(
        nodes=5,
        topics=3,
        subscriptions=3,
        k=2,
        seed=1,
        changes=40,
        interval="5ms",
        stop="1s",
        seconds_max=10.0,
    )
    assert fly(interest_swarm.Flown(calm)).good
    flight = fly(interest_swarm.Flown(calm, of(Forgetful)))
    assert any(violation.startswith("hidden:") for violation in flight.violations)


# ---------------------------------------------------------------- configuration


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"nodes": 0}, "nodes is 0"),
        ({"topics": 3, "subscriptions": 4}, "cannot want 4 topics"),
        ({"spread": "even"}, "one of zipf, uniform"),
        ({"k": 0}, "k is 0"),
        ({"latency": "warp"}, "unknown latency"),
        ({"coalesce": "soon"}, "coalesce: 'soon' is no duration"),
        ({"threshold": 0, "coalesce": "0s", "period": "0s"}, "no gossip round would ever start"),
    ],
)
def test_a_setup_that_cannot_run_says_why(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Setup(**fields)


def test_names_weigh_more_than_hashes() -> None:
    names = Names(50)
    hash, name = names.hashes[7], names.names[7]
    topic, size = int.from_bytes(hash, "big"), len(name)
    flip = Flip(2**63, 256, 2, topic, 4)
    # The header of a short string has 1 byte, and that of a 64-bit integer, too.
    assert named_size(flip, names.by_hash) - len(encode(flip)) == size + 1 - 9
    # A field of bytes has a header of 2 bytes, and an array of up to 15 items has 1 byte.
    record = Record(2**63, 256, 3, "node-1", hash, bytes(4))
    for message, more in (
        (Flips((Lone(2**63, 256, 2, topic, 4),)), size + 1 - 9),
        (News(diffs=(Diff(2**63, 256, 3, 1, hash + bytes(4)),)), (1 + 1 + 1 + size + 6) - 14),
        (News(records=(record,)), (1 + 1 + size) - 10),
        (Greet(record, 1, 2, True), (1 + 1 + size) - 10),
    ):
        assert named_size(message, names.by_hash) - len(encode(message)) == more
    assert len(set(names.hashes)) == 50
