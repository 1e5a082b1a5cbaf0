"""Subscribers come and go, on several topics.

The times when they were there decide which events are due, and these times are written down.
"""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from gossamer.machine import Deliver, Effect
from gossamer.node.core import NodeCore
from gossamer.sim import Config, Outcome, Stay, Workload, simulate
from gossamer.sim.faults import Crash, Pause
from gossamer.sim.run import Run, make_core
from gossamer.sim.world import AnyMachine, Node
from sim.test_checkers import Mutant

SCHEMA = "a INT"
FIRST = Workload(SCHEMA, ("a >= 0",) * 3, ({"a": 1},) * 4, times=(0, 100_000, 200_000, 300_000))


def drawn(seed: int, peers: int = 40, events: int = 60, period: int = 50_000) -> Workload:
    """Three topics with one schema; subscribers come and go by chance."""
    rng = Random(seed)
    stays, last = [], events * period
    for _ in range(peers):
        at, found = (0 if rng.random() < 0.6 else rng.randrange(1, last)), []
        while at < last:
            until = at + rng.randrange(last)
            found.append(Stay(at, until if until < last else None))
            at = until + rng.randrange(1, last // 2)
        stays.append(tuple(found))
    return Workload(
        SCHEMA,
        tuple(f"a >= {rng.randrange(10)}" for _ in range(peers)),
        tuple({"a": rng.randrange(10)} for _ in range(events)),
        "zero",
        (("one", SCHEMA), ("two", SCHEMA)),
        tuple(rng.randrange(3) for _ in range(peers)),
        tuple(rng.randrange(3) for _ in range(events)),
        tuple(number * period for number in range(events)),
        tuple(stays),
    )


def pairs(outcome: Outcome) -> list[tuple[int, int]]:
    return sorted((delivery.event, delivery.filter) for delivery in outcome.deliveries)


def test_who_is_away_gets_nothing() -> None:
    stays = ((Stay(0),), (Stay(0, 150_000), Stay(250_000)), ())
    outcome = simulate(Config(nodes=2, seed=1), msgspec.structs.replace(FIRST, stays=stays))
    assert outcome.good, outcome.violations
    assert pairs(outcome) == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (3, 0), (3, 1)]
    assert (outcome.expected, outcome.delivered) == (7, 7)
    always, first, second = sorted(
        outcome.subscriptions, key=lambda one: (one.filter, one.subscribing_at)
    )
    assert (always.filter, always.ended_at, always.ended_us) == (0, None, None)
    # It was set up before the workload began.
    assert always.subscribing_us < 0
    assert (first.ended_us, second.subscribing_us) == (150_000, 250_000)
    assert second.ended_us is None
    assert [each.published_us for each in outcome.publications] == list(FIRST.times)
    assert all(each.published_at < (each.completed_at or 0) for each in outcome.publications)
    for delivery in outcome.deliveries:
        taken = outcome.subscriptions[delivery.subscription]
        assert (taken.filter, taken.node) == (delivery.filter, delivery.node)
        assert (taken.subscribed_at or 0) < delivery.handed_at


def test_going_and_coming_in_one_microsecond_are_two_subscriptions() -> None:
    stays = ((Stay(0, 150_000), Stay(150_000)), (Stay(50_000, 50_000),), (Stay(0, 0),))
    outcome = simulate(Config(nodes=3, seed=1), msgspec.structs.replace(FIRST, stays=stays))
    assert outcome.good, outcome.violations
    # Filter 2 goes just as event 0 is published, so it may get it.
    assert [pair for pair in pairs(outcome) if pair != (0, 2)] == [(event, 0) for event in range(4)]
    assert [one.filter for one in outcome.subscriptions] == [0, 2, 1, 0]


def test_a_topic_is_not_another() -> None:
    """The same text on three topics, of two schemas."""
    workload = Workload(
        SCHEMA, ("a = 1",) * 3, ({"a": 1}, {"a": 1}, {"a": "1"}), "x",
        (("y", SCHEMA), ("z", "a STRING")), (0, 1, 1), (0, 1, 2)
    )  # fmt: skip
    outcome = simulate(Config(nodes=4, seed=2), workload)
    assert outcome.good, outcome.violations
    assert pairs(outcome) == [(0, 0), (1, 1), (1, 2)]


@pytest.mark.slow
@pytest.mark.parametrize("overlay", ["flood", "fabric"])
@pytest.mark.parametrize("trouble", [{}, {"loss": 0.03}, {"delay": 0.2}, {"latency": "weibull"}])
def test_nothing_is_missed_duplicate_or_spurious(
    overlay: str, trouble: dict[str, float | str]
) -> None:
    workload = drawn(3)
    outcome = simulate(Config(overlay=overlay, nodes=10, degree=4, seed=3, **trouble), workload)  # type: ignore[arg-type]
    assert outcome.good, outcome.violations
    assert outcome.fired["came"] > 10
    assert outcome.fired["went"] > 10
    assert 0 < outcome.expected <= outcome.delivered < simulate_still(workload).expected
    # A seed is a run.
    assert simulate(outcome.config, workload) == outcome


def simulate_still(workload: Workload) -> Outcome:
    return simulate(
        Config(nodes=10, degree=4, seed=3), msgspec.structs.replace(workload, stays=None)
    )


@pytest.mark.slow
def test_stays_and_faults_together() -> None:
    """A node that stands still hears later that a subscriber has gone.

    A node that was down comes back without the subscribers that went.
    """
    faults = (
        Pause(at="500ms", lasts="700ms", share=0.5),
        Crash(at="1500ms", lasts="400ms", share=0.3),
    )
    for seed in range(3):
        outcome = simulate(Config(nodes=8, degree=4, seed=seed, faults=faults), drawn(seed))
        assert outcome.violations == []
        assert min(outcome.fired[name] for name in ("pause", "restart", "came", "went")) > 0


def of_mutant(kind: type[NodeCore], workload: Workload) -> Outcome:
    def make(node: Node, config: Config) -> AnyMachine:
        return make_core(node, config, kind)

    return Run(Config(nodes=4, degree=3, seed=1), workload, make).go()


class Clings(Mutant):
    """Hands everything to each subscription that it ever had, also to those that ended."""

    def change(self, effect: Effect) -> list[Effect]:
        if type(effect) is not Deliver:
            return [effect]
        return [Deliver(number, effect.events) for number in range(1, self._numbers + 1)]


class Stutters(Mutant):
    def change(self, effect: Effect) -> list[Effect]:
        return [effect, effect] if type(effect) is Deliver else [effect]


def test_wrong_hand_overs_are_rows_too() -> None:
    """A judge of the rows must see the fault, with the subscription that had ended."""
    stays = ((Stay(0),), (Stay(0),), (Stay(0),), (Stay(0),), (Stay(0, 150_000),))
    workload = Workload(SCHEMA, ("a >= 0",) * 5, ({"a": 1},) * 4, times=FIRST.times, stays=stays)
    # Filters 0 and 4 share a node.
    outcome = of_mutant(Clings, workload)
    assert outcome.spurious > 0
    late = [each for each in outcome.deliveries if each.filter == 4 and each.event in (2, 3)]
    assert late
    ended = outcome.subscriptions[late[0].subscription].ended_at
    assert ended is not None
    assert all(each.handed_at > ended for each in late)
    outcome = of_mutant(Stutters, workload)
    assert outcome.duplicate == len(outcome.deliveries) - outcome.delivered > 0


def test_a_workload_that_contradicts_itself_is_refused() -> None:
    for wrong, said in (
        ({"times": (1,)}, "times has 1 entries for 4"),
        ({"filter_topics": (0, 0, 1)}, "there is no topic 1"),
        ({"stays": ((),)}, "stays has 1 entries for 3 filters"),
        ({"stays": ((), (Stay(5, 3),), ())}, "the stays of filter 1 overlap"),
        ({"stays": ((), (), (Stay(0), Stay(3)))}, "the stays of filter 2 overlap"),
    ):
        with pytest.raises(ValueError, match=said):
            msgspec.structs.replace(FIRST, **wrong)
