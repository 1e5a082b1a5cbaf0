"""A book in which the steps of the users of a run are written down as they happen.

A book holds the history by which the checkers judge, tallies the hand-overs, and tells the checkers
of each step. Whole nodes write their own trace records. For a bare overlay machine the book writes
the same records, so that any run can leave traces.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from gossamer.sim.checkers import Checker, Once, Wanted, Whole
from gossamer.sim.history import HandOver, History, Place, Published
from gossamer.sim.hooks import Hooks
from gossamer.sim.network import EventId
from gossamer.sim.rows import DeliveryRow
from gossamer.sim.world import Node, World
from gossamer.trace import (
    Advertised,
    Completed,
    Delivered,
    Subscribed,
    Subscribing,
    Unsubscribed,
    hex_peer,
    plain,
)
from gossamer.trace import Published as PublishedRecord

HOOKS = ("handed", "completed", "sent", "arrived")


class Book:
    """``wanted`` says which filters an event passes. ``checkers`` look on beside those of
    hand-overs.
    """

    def __init__(
        self, wanted: Callable[[int], Collection[int]], checkers: Sequence[Checker] = ()
    ) -> None:
        self.history = History(wanted)
        self.once, self.wanted, self.whole = Once(), Wanted(), Whole()
        self.checkers: list[Checker] = [self.once, self.wanted, self.whole, *checkers]
        self.hooks = Hooks(Checker, HOOKS)
        for checker in self.checkers:
            self.hooks.add(checker)
        self.deliveries: list[DeliveryRow] = []
        # These hand-overs are neither duplicate nor spurious.
        self.delivered = 0
        self.duplicate = 0
        self.spurious = 0

    @property
    def expected(self) -> int:
        return self.whole.due

    @property
    def missed(self) -> int:
        return self.whole.count

    def handed(
        self,
        node: Node,
        number: int,
        id: EventId,
        values: Any,
        place: Place | None,
        was: Place | None,
        now: int,
        hops: int,
        tick: int,
    ) -> Published | None:
        """An event was handed over.

        ``place`` is the subscription, if there is one. ``was`` is the one that there was.
        """
        history = self.history
        event = history.by_id.get(id)
        hand = HandOver(node.index, number, id, values, event, place)
        for handed in self.hooks["handed"]:
            handed(history, hand)
        if event is None or place is None or not history.matches(place.filter, event.index):
            self.spurious += 1
        elif event.index in place.got:
            self.duplicate += 1
        elif not history.is_allowed(event, place):
            self.spurious += 1
        else:
            self.delivered += 1
        index, after = (event.index, now - event.at) if event is not None else (-1, 0)
        filter, subscription = (was.filter, was.index) if was is not None else (-1, -1)
        self.deliveries.append(
            DeliveryRow(index, filter, node.index, after, hops, subscription, tick)
        )
        if event is not None and place is not None:
            place.got[event.index] = place.got.get(event.index, 0) + 1
        return event

    def judge(self, *more: Checker) -> list[str]:
        """The faults of the run so far, by the checkers of hand-overs and ``more``.

        The book may be judged again.
        """
        self.whole.violations.clear()
        self.whole.count = self.whole.due = 0
        judges = [self.once, self.wanted, self.whole, *more]
        for judge in judges:
            judge.finish(self.history)
        return [text for judge in judges for text in judge.told()]


class BareBook(Book):
    """The book of bare machines, which note nothing of their users: all on one topic."""

    def __init__(
        self,
        world: World,
        topic: str,
        schema: str,
        wanted: Callable[[int], Collection[int]],
    ) -> None:
        super().__init__(wanted)
        self._world, self._topic, self._schema = world, topic, schema
        # By the index of a place.
        self._nodes: dict[int, Node] = {}

    def subscribing(self, node: Node, filter: int, number: int, text: str) -> Place:
        now = self._world.clock.now
        place = Place(filter, node.index, self.history.next(), now)
        place.number = number
        if not self.history.places:
            self._world.record(node, Advertised(self._topic, self._schema))
        self.history.add_place(place)
        self._nodes[place.index] = node
        # A node may subscribe again under the same number. In a trace, each subscription has a
        # number of its own.
        self._world.record(node, Subscribing(place.index, self._topic, text or "TRUE"))
        return place

    def subscribed(self, place: Place) -> None:
        """It is in force: from here on events are due."""
        if place.returned is None:
            place.returned, place.returned_us = self.history.next(), self._world.clock.now
            self._world.record(self._nodes[place.index], Subscribed(place.index))

    def ended(self, place: Place) -> None:
        if place.ended is None:
            place.ended, place.ended_us = self.history.next(), self._world.clock.now
            self._world.record(self._nodes[place.index], Unsubscribed(place.index))

    def publishing(
        self, node: Node, incarnation: int, sequence: int, values: Mapping[str, Any]
    ) -> Published:
        history = self.history
        event = Published(len(history.events), node.index, history.next(), self._world.clock.now)
        event.id, event.accepted, event.life = (
            (node.peer, incarnation, sequence),
            event.began,
            node.life,
        )
        history.events.append(event)
        history.by_id[event.id] = event
        record = PublishedRecord(self._topic, sequence, incarnation, plain(values))
        self._world.record(node, record)
        return event

    def completed(self, node: Node, event: Published, matched: int) -> None:
        for completed in self.hooks["completed"]:
            completed(self.history, event, node.life)
        event.completed = event.closed = self.history.next()
        event.completed_us, event.matched = self._world.clock.now, matched
        assert event.id is not None
        _, incarnation, sequence = event.id
        self._world.record(node, Completed(sequence, incarnation, matched))

    def lost(self, node: Node) -> None:
        """A publisher is gone. Nobody promised the events that it did not complete."""
        for event in self.history.events:
            if event.node == node.index and event.completed is None:
                event.lost = True

    def took(self, node: Node, place: Place, id: EventId, values: Any, hops: int) -> None:
        """An event was handed to a subscription."""
        tick, now = self.history.next(), self._world.clock.now
        self.handed(node, place.number, id, values, place, place, now, hops, tick)
        publisher, incarnation, sequence = id
        record = Delivered(place.index, hex_peer(publisher), incarnation, sequence, hops)
        self._world.record(node, record)
