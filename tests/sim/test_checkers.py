"""Each checker can fail. A broken node is caught by the checker for its fault, and by no other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from gossamer.filters import Event
from gossamer.machine import Deliver, Effect, LinkState, Message, Micros, Peer, Send
from gossamer.node.core import NodeCore
from gossamer.node.local import Local, LocalSubscription
from gossamer.overlay.batch import Batch, Report
from gossamer.overlay.delivery.lives import Lives
from gossamer.sim import Config, Outcome
from gossamer.sim.run import Run, make_core, matching
from gossamer.sim.workload import Shape, Workload, draw
from gossamer.sim.world import AnyMachine, Node

# All tests together take seconds.
pytestmark = pytest.mark.slow

CONFIG = Config(
    nodes=6, degree=3, events=40, subscriptions=60, interval="2ms", seed=5, seconds_max=20.0
)


def outcome_of(kind: type[NodeCore], config: Config = CONFIG) -> Outcome:
    def make(node: Node, config: Config) -> AnyMachine:
        return make_core(node, config, kind)

    return Run(config, make=make).go()


def blamed(outcome: Outcome) -> list[str]:
    return sorted(dict.fromkeys(violation.partition(":")[0] for violation in outcome.violations))


class Mutant(NodeCore):
    """Changes the effects of a healthy node."""

    def change(self, effect: Effect) -> list[Effect]:
        return [effect]

    def receive(self, sender: Peer, message: Message, now: Micros) -> list[Effect]:
        return [
            new for effect in super().receive(sender, message, now) for new in self.change(effect)
        ]

    def wake(self, now: Micros) -> list[Effect]:
        return [new for effect in super().wake(now) for new in self.change(effect)]

    def link(self, peer: Peer, state: LinkState, now: Micros) -> list[Effect]:
        return [new for effect in super().link(peer, state, now) for new in self.change(effect)]

    def taken(self, number: int, count: int, now: Micros) -> None:
        # The consumer takes everything that a mutant hands over, whatever the books say.
        pass


class Stutters(Mutant):
    def change(self, effect: Effect) -> list[Effect]:
        return [effect, effect] if type(effect) is Deliver else [effect]


class HandsToOthers(Mutant):
    """Hands the first event of each publisher to a subscription that does not want it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.done: dict[int, None] = {}

    def change(self, effect: Effect) -> list[Effect]:
        if type(effect) is Deliver and effect.events[0].publisher not in self.done:
            event = effect.events[0]
            for other in self.subscriptions.values():
                if not other.filter.matches(event.values):
                    self.done[event.publisher] = None
                    return [effect, Deliver(other.number, (event,))]
        return [effect]


class Invents(Mutant):
    def change(self, effect: Effect) -> list[Effect]:
        if type(effect) is not Deliver:
            return [effect]
        event = effect.events[0]
        return [
            effect,
            Deliver(
                effect.subscription,
                (Event(event.topic, event.publisher, 77, event.sequence, event.values),),
            ),
        ]


class HandsToTheGone(Mutant):
    def change(self, effect: Effect) -> list[Effect]:
        return [effect, Deliver(4_711, effect.events)] if type(effect) is Deliver else [effect]


class Garbles(Mutant):
    def change(self, effect: Effect) -> list[Effect]:
        if type(effect) is not Deliver:
            return [effect]
        events = [
            Event(e.topic, e.publisher, e.incarnation, e.sequence, e.values | {"name": "x"})
            for e in effect.events
        ]
        return [Deliver(effect.subscription, events)]


class Forgets(Mutant):
    """Hands over nothing on odd subscriptions, but counts as if it had."""

    def change(self, effect: Effect) -> list[Effect]:
        return [] if type(effect) is Deliver and effect.subscription % 2 else [effect]


class Miscounts(NodeCore):
    def receive(self, sender: Peer, message: Message, now: Micros) -> list[Effect]:
        if type(message) is Report and message.matched:
            message = Report(
                *_key(message),
                message.round,
                message.whole,
                tuple(count + 1 for count in message.matched),
            )
        return super().receive(sender, message, now)


class _CountsTheGone(Local):
    """Reports what a subscription discards when it ends as if its consumer had it."""

    def _discard(self, subscription: LocalSubscription) -> None:
        before = {what: entry.matched for what, entry in self._held.items()}
        super()._discard(subscription)
        for what, matched in before.items():
            self._held[what].matched = matched


class CountsTheGone(NodeCore):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.local.__class__ = _CountsTheGone


class CompletesTwice(NodeCore):
    def receive(self, sender: Peer, message: Message, now: Micros) -> list[Effect]:
        before = len(self.changed)
        effects = super().receive(sender, message, now)
        self.changed += self.changed[before:]
        return effects


class LowersTheFloor(Mutant):
    """Forgets every other time that it has receipts."""

    def floor(self, batch: Batch) -> int:
        return batch.floor if batch.first % 2 else 1

    def change(self, effect: Effect) -> list[Effect]:
        if (
            type(effect) is Send
            and type(effect.message) is Batch
            and effect.message.publisher == self.peer
        ):
            m = effect.message
            changed = Batch(
                m.topic,
                m.publisher,
                m.incarnation,
                m.first,
                m.count,
                self.floor(m),
                m.round,
                m.hops,
                m.rows,
            )
            return [Send(effect.to, changed)]
        return [effect]


class RaisesTheFloor(LowersTheFloor):
    """Claims receipts that it does not have."""

    def floor(self, batch: Batch) -> int:
        return batch.first


class _Hoarder(Lives[Any]):
    def use(self, publisher: int, incarnation: int, floor: int, link: int) -> Any:
        # Its messages are right, and its tables are not.
        kept = floor if publisher == self._me else 0
        return super().use(publisher, incarnation, kept, link)


class Hoards(NodeCore):
    """Never forgets a batch."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.flood.engine.lives.__class__ = _Hoarder


class NeverReports(Mutant):
    def change(self, effect: Effect) -> list[Effect]:
        return [] if type(effect) is Send and type(effect.message) is Report else [effect]


class RefusesTopics(NodeCore):
    def publish(self, topic: str, event: Mapping[str, Any], now: Micros) -> Any:
        return super().publish(topic + "?", event, now)


class Spins(NodeCore):
    @property
    def deadline(self) -> Micros:
        return Micros(0)


class Raises(NodeCore):
    def receive(self, sender: Peer, message: Message, now: Micros) -> list[Effect]:
        if type(message) is Report:
            raise ValueError("I do not like reports")
        return super().receive(sender, message, now)


def _key(message: Report) -> tuple[int, int, int]:
    return message.publisher, message.incarnation, message.first


def test_a_healthy_node_is_blamed_for_nothing() -> None:
    outcome = outcome_of(NodeCore)
    assert outcome.violations == []
    assert outcome.expected == outcome.delivered > 40
    assert outcome.good


@pytest.mark.parametrize(
    ("kind", "checker"),
    [
        (Stutters, "once"),
        (HandsToOthers, "wanted"),
        (Invents, "wanted"),
        (HandsToTheGone, "wanted"),
        (Garbles, "intact"),
        (Forgets, "whole"),
        (Miscounts, "receipts"),
        (CompletesTwice, "receipts"),
        (LowersTheFloor, "floors"),
        (Hoards, "tables"),
        (NeverReports, "converged"),
        (RefusesTopics, "converged"),
        (Spins, "contract"),
        (Raises, "contract"),
    ],
)
def test_a_broken_node_is_caught_by_the_checker_for_it(kind: type[NodeCore], checker: str) -> None:
    outcome = outcome_of(kind)
    assert blamed(outcome) == [checker]
    assert not outcome.good


def test_a_floor_that_passes_an_open_receipt_is_caught_whatever_else_it_breaks() -> None:
    assert "floors" in blamed(
        outcome_of(RaisesTheFloor, msgspec.structs.replace(CONFIG, interval="500us"))
    )


def test_a_receipt_that_counts_what_a_cut_off_subscription_discarded_is_caught() -> None:
    slow = msgspec.structs.replace(CONFIG, buffer=2, consumer="9s", seconds_max=60.0)
    healthy = outcome_of(NodeCore, slow)
    assert healthy.violations == []
    assert blamed(outcome_of(CountsTheGone, slow)) == ["receipts"]


def test_the_counts_of_the_outcome_say_the_same() -> None:
    assert outcome_of(Stutters).duplicate > 0
    assert outcome_of(HandsToOthers).spurious > 0
    assert outcome_of(Forgets).missed > 0


def test_two_evaluations_of_a_filter_that_differ_are_told() -> None:
    workload = Workload("size BIGINT", ("size < 5", "size < 6"), ({"size": 5},))
    found, differences = matching(workload, (Shape(high=5), Shape(high=5)))
    assert differences == ["oracle: 'size < 6' matches [0], evaluated by hand []"]
    assert found == [[], []]


def test_both_evaluations_of_the_drawn_filters_agree() -> None:
    for seed in range(5):
        drawn = draw(seed, 300, 300)
        found, differences = matching(drawn.workload, drawn.shapes)
        assert differences == []
        share = sum(map(len, found)) / (300 * 300)
        assert 0.005 < share < 0.10
