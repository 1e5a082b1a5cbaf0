"""Checkers: one property each, told of every step, written so that they can fail.

    once        no subscription is handed an event twice
    wanted      nothing is handed over that the filter does not want, or at the wrong time
    intact      the row that is handed over is the row that was published
    whole       every due event was handed over, once everything is quiet
    receipts    a receipt comes once (again after a crash). It counts the subscriptions that took
                the event, but none that discarded it before it was reported
    floors      a publisher's floor never passes an event without receipt, and never falls
    tables      deduplication tables hold nothing below the floors they have heard of
    converged   once faults stop, links, subscriptions and receipts become whole again

The simulator itself checks ``contract`` (machine.py's rules). ``oracle`` (two evaluations of each
filter agree) is checked when the workload is made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from gossamer.sim.codec import floor_of, plane_of
from gossamer.sim.history import HandOver, History, Published
from gossamer.sim.network import Packet
from gossamer.sim.world import Node

# A checker tells this number of violations, and counts the others.
VIOLATIONS_MAX = 20


class Findings:
    """The violations that a checker has found."""

    name = ""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self.count = 0

    def fail(self, text: str) -> None:
        self.count += 1
        if len(self.violations) < VIOLATIONS_MAX:
            self.violations.append(f"{self.name}: {text}")

    def told(self) -> list[str]:
        more = self.count - len(self.violations)
        return (
            [*self.violations, f"{self.name}: and {more} more"] if more else list(self.violations)
        )


class Checker(Findings):
    def handed(self, history: History, hand: HandOver) -> None: ...
    def completed(self, history: History, event: Published, life: int) -> None: ...
    def sent(self, history: History, node: Node, packet: Packet) -> None: ...
    def arrived(self, history: History, node: Node, packet: Packet) -> None:
        """Events have come to a node for the first time in its life.

        Further copies are not told.
        """

    def finish(self, history: History) -> None: ...


def _who(hand: HandOver) -> str:
    what = f"event {hand.event.index}" if hand.event else f"event with id {hand.id}"
    where = f"filter {hand.place.filter}" if hand.place else f"subscription {hand.number}"
    return f"{what} at node {hand.node}, {where}"


class Once(Checker):
    name = "once"

    def handed(self, history: History, hand: HandOver) -> None:
        if hand.event and hand.place and hand.event.index in hand.place.got:
            self.fail(f"{_who(hand)}: handed over again")


class Wanted(Checker):
    name = "wanted"

    def handed(self, history: History, hand: HandOver) -> None:
        event, place = hand.event, hand.place
        if event is None:
            self.fail(f"{_who(hand)}: was never published")
        elif place is None:
            self.fail(f"{_who(hand)}: no such subscription now")
        elif not history.matches(place.filter, event.index):
            self.fail(f"{_who(hand)}: the filter does not match")
        elif not history.is_allowed(event, place):
            self.fail(f"{_who(hand)}: the subscription and the publication do not overlap")


class Intact(Checker):
    name = "intact"

    def __init__(self, published: Sequence[dict[str, Any]]) -> None:
        super().__init__()
        self._published = published

    def handed(self, history: History, hand: HandOver) -> None:
        if hand.event is not None:
            values = self._published[hand.event.index]
            for name, value in hand.values.items():
                if not _same(value, values.get(name)):
                    self.fail(
                        f"{_who(hand)}: {name} is {value!r}, published as {values.get(name)!r}"
                    )


def _same(a: Any, b: Any) -> bool:
    return a == b or (
        isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b)
    )


class Whole(Checker):
    name = "whole"

    def __init__(self) -> None:
        super().__init__()
        self.due = 0
        # A tick. Events that were published before it are nobody's loss.
        self.since = 0

    def finish(self, history: History) -> None:
        for event in history.events:
            if event.began <= self.since:
                continue
            for place in history.candidates(event):
                if history.is_due(event, place):
                    self.due += 1
                    if event.index not in place.got:
                        self.fail(
                            f"event {event.index} of node {event.node} missed at node "
                            f"{place.node}, filter {place.filter}"
                        )


class Receipts(Checker):
    name = "receipts"

    def completed(self, history: History, event: Published, life: int) -> None:
        # After a crash it may come again.
        if event.completed is not None and event.life == life:
            self.fail(f"event {event.index}: a second receipt")

    def finish(self, history: History) -> None:
        for event in history.events:
            if event.completed is None:
                continue
            low = high = gone = 0
            for place in history.candidates(event):
                low += history.is_due(event, place)
                if event.index in place.discarded:
                    gone += 1
                else:
                    high += history.is_allowed(event, place)
            if not low <= event.matched <= high:
                right = str(low) if low == high else f"{low} to {high}"
                self.fail(
                    f"event {event.index} of node {event.node}: matched is {event.matched}, right "
                    f"is {right}"
                )
            if event.dropped > gone:
                self.fail(
                    f"event {event.index} of node {event.node}: dropped is {event.dropped}, "
                    f"but {gone} subscriptions discarded it"
                )


class Floors(Checker):
    name = "floors"

    def __init__(self) -> None:
        super().__init__()
        # For each publisher's life, the sequence number and the floor of the newest event.
        self._floors: dict[tuple[int, int], tuple[int, int]] = {}
        self._checked: dict[tuple[int, int], int] = {}

    def sent(self, history: History, node: Node, packet: Packet) -> None:
        floor = floor_of(packet.message)
        if floor is None or not packet.ids or packet.ids[0][0] != node.peer:
            return
        publisher, incarnation, first = packet.ids[0]
        key = (publisher, incarnation)
        if floor > first:
            self.fail(f"node {node.index}: event {first} sent with floor {floor}, above itself")
        newest, before = self._floors.get(key, (0, 0))
        # An event that is sent again keeps the floor that it had.
        if first > newest:
            self._floors[key] = (first, floor)
            if floor < before:
                self.fail(f"node {node.index}: floor fell from {before} to {floor}")
        for sequence in range(self._checked.get(key, 1), floor):
            event = history.by_id.get((publisher, incarnation, sequence))
            if event is not None and event.completed is None and not event.refused:
                self.fail(
                    f"node {node.index}: floor {floor} passes sequence {sequence}, which has no "
                    "receipt"
                )
        self._checked[key] = max(floor, self._checked.get(key, 1))


class Tables(Checker):
    """``remembered`` reads how many batches a plane of a machine remembers.

    Each plane knows the floors that came to it.
    """

    name = "tables"
    # The number of arrivals between looks.
    EVERY = 128

    def __init__(self, remembered: Callable[[Any, str], int | None]) -> None:
        super().__init__()
        self._remembered = remembered
        self._heard: dict[tuple[int, int, str], dict[tuple[int, int], tuple[int, int]]] = {}
        self._nodes: dict[int, Node] = {}
        self._arrivals = 0

    def sent(self, history: History, node: Node, packet: Packet) -> None:
        if packet.ids and packet.ids[0][0] == node.peer:
            self._hear(node, packet)

    def arrived(self, history: History, node: Node, packet: Packet) -> None:
        self._arrivals += 1
        if self._arrivals % self.EVERY == 0:
            # This comes before the node has seen the packet.
            self._look(history, node, plane_of(packet.message))
        self._hear(node, packet)

    def _hear(self, node: Node, packet: Packet) -> None:
        floor = floor_of(packet.message)
        if floor is None or not packet.ids:
            return
        self._nodes[node.index] = node
        heard = self._heard.setdefault((node.index, node.life, plane_of(packet.message)), {})
        publisher, incarnation, last = packet.ids[-1]
        key = (publisher, incarnation)
        low, high = heard.get(key, (0, 0))
        heard[key] = (floor if floor > low else low, last if last > high else high)

    def finish(self, history: History) -> None:
        for node in self._nodes.values():
            for plane in ("flood", "skiplist", "tree", "direct"):
                self._look(history, node, plane)

    def _look(self, history: History, node: Node, plane: str) -> None:
        count = self._remembered(node.machine, plane) if node.machine is not None else None
        if count is None:
            return
        heard = dict(self._heard.get((node.index, node.life, plane), {}))
        for key, newest in history.newest.items():
            # This batch is the node's own. A node also remembers batches that it could not send.
            if key[0] == node.peer:
                heard[key] = (heard.get(key, (1, 0))[0], newest)
        most = sum(high - low + 1 for low, high in heard.values())
        if count > most:
            self.fail(
                f"node {node.index} remembers {count} batches ({plane}), though the floors it "
                f"knows allow {most}"
            )


class Converged(Checker):
    name = "converged"

    def __init__(self, unquiet: Callable[[], list[str]]) -> None:
        super().__init__()
        self._unquiet = unquiet

    def finish(self, history: History) -> None:
        for reason in self._unquiet():
            self.fail(reason)
