"""Everything that the users of the fabric did and saw, in order: the truth that checkers judge by.

Order is a counter (``tick``) that goes up with each thing that a user does or learns, so that two
things in one microsecond still have an order. An event is *due* at a subscription that was there
before the publication began and outlived the receipt. It is *allowed* if the two overlap. Any other
hand-over is *spurious*. This is the one definition of the simulator. ``gossamer pipeline verify``
has the other one, which was made independently of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

from msgspec import Struct

from gossamer.sim.network import EventId


class Published:
    """One event of the workload, from the moment its user calls ``publish``."""

    __slots__ = (
        "accepted", "at", "began", "closed", "completed", "completed_us", "dropped", "id", "index",
        "life", "lost",
        "matched", "node", "refused",
    )  # fmt: skip

    def __init__(self, index: int, node: int, began: int, at: int) -> None:
        self.index, self.node, self.began, self.at = index, node, began, at
        # The id that the node has given to the event, once it has.
        self.id: EventId | None = None
        # A tick.
        self.accepted: int | None = None
        # The tick of the first receipt.
        self.completed: int | None = None
        # The same in virtual time, as ``at`` is.
        self.completed_us: int | None = None
        # The tick of the last receipt. A publisher that crashed after a receipt may publish again.
        self.closed: int | None = None
        # The life of the publishing node that got the last receipt.
        self.life = 0
        # The number of subscriptions in the receipt.
        self.matched = -1
        # The number of subscriptions that discarded the event, by the receipt.
        self.dropped = 0
        # The publisher crashed before the event was safe, so nobody may count on it.
        self.lost = False
        # The publisher's disk did not take the event, so nobody may ever get it. It is ``lost`` as
        # well.
        self.refused = False


class Place:
    """One subscription at one life of a node. A filter that is subscribed again has a new place."""

    __slots__ = (
        "began", "began_us", "discarded", "ended", "ended_us", "filter", "got", "index", "node",
        "number", "returned",
        "returned_us",
    )  # fmt: skip

    def __init__(self, filter: int, node: int, began: int, began_us: int) -> None:
        self.filter, self.node, self.began, self.began_us = filter, node, began, began_us
        self.number = 0
        # The index in ``History.places``.
        self.index = -1
        # A tick.
        self.returned: int | None = None
        # Virtual time.
        self.returned_us: int | None = None
        # The tick at which it was cancelled or cut off, or crashed.
        self.ended: int | None = None
        self.ended_us: int | None = None
        # For each event the number of hand-overs.
        self.got: dict[int, int] = {}
        # Events that it discarded before it reported them.
        self.discarded: dict[int, None] = {}


class HandOver(Struct, frozen=True):
    """An event given to a subscription. Fields that the history does not know are None."""

    node: int
    number: int
    id: EventId
    values: Any
    event: Published | None
    place: Place | None


class History:
    """``wanted`` says which filters an event passes, by the places of both in the workload."""

    def __init__(self, wanted: Callable[[int], Collection[int]]) -> None:
        self.tick = 0
        self.events: list[Published] = []
        self.by_id: dict[EventId, Published] = {}
        # For each publisher and incarnation the last sequence number.
        self.newest: dict[tuple[int, int], int] = {}
        self.places: list[Place] = []
        self.by_filter: dict[int, list[Place]] = {}
        self._wanted = wanted

    def next(self) -> int:
        self.tick += 1
        return self.tick

    def add_place(self, place: Place) -> None:
        place.index = len(self.places)
        self.places.append(place)
        self.by_filter.setdefault(place.filter, []).append(place)

    def matches(self, filter: int, event: int) -> bool:
        return filter in self._wanted(event)

    def candidates(self, event: Published) -> Iterator[Place]:
        """Every place, past and present, whose filter matches the event."""
        for filter in self._wanted(event.index):
            yield from self.by_filter.get(filter, ())

    def is_due(self, event: Published, place: Place) -> bool:
        if place.returned is None or place.returned > event.began:
            return False
        if event.completed is None:
            return event.accepted is not None and not event.lost and place.ended is None
        return place.ended is None or place.ended > event.completed

    def is_allowed(self, event: Published, place: Place) -> bool:
        if event.refused or (place.ended is not None and place.ended < event.began):
            return False
        return event.closed is None or event.closed > place.began
