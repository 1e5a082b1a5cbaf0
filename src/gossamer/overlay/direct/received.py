"""Portions as a subscriber gets them: each is handed over once, and answered as often as it comes."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Sequence
from operator import ge

from gossamer.machine import Effect, Micros, Note, Peer, Send
from gossamer.overlay.batch import WINDOW_MAX, Batch
from gossamer.overlay.direct.messages import Holding, Portion, Taken, brief
from gossamer.trace import Dropped, Duplicate, Rejected, hex_peer

ORIGINS_MAX = 65_536  # lives of publishers of which something is remembered
LIVES_MAX = 16  # of one publisher

Key = tuple[int, int, int, int]
"""Publisher, incarnation, first, part."""
Arrive = Callable[[Batch, Sequence[int], str, int, Micros], "tuple[int, ...] | None"]
"""A portion is here: the batch with its rows, their numbers, the group and the part. None: ``took`` will say."""


class _Origin:
    """A publisher's life."""

    __slots__ = ("firsts", "floor", "taken")

    def __init__(self) -> None:
        self.floor = 0
        self.taken: dict[tuple[int, int], tuple[int, ...] | None] = {}  # by first and part; None: the owner has it still
        self.firsts: list[tuple[int, int]] = []  # the same as a heap


class Received:
    def __init__(self, arrive: Arrive, out: list[Effect]) -> None:
        self._arrive, self._out = arrive, out
        self._origins: OrderedDict[tuple[int, int], _Origin] = OrderedDict()
        self._lives: dict[int, int] = {}  # by publisher

    @property
    def remembered(self) -> int:
        return sum(len(origin.taken) for origin in self._origins.values())

    def portion(self, sender: Peer, message: Portion, now: Micros) -> None:
        first, part, floor = message.first, message.part, message.floor
        problem, places = "", message.places
        if message.publisher != sender:
            problem = "events of somebody else"
        elif not places:
            problem = "no events"
        elif floor > first or first + places[-1] - floor > WINDOW_MAX:
            problem = "events outside their publisher's window"
        elif any(map(ge, message.offsets, message.offsets[1:])):
            problem = "events out of order"
        if problem:
            self._out.append(Note(Rejected(hex_peer(sender), problem)))
            return
        origin = self._origin(sender, message.incarnation, floor)
        if origin is None:
            self._out.append(Note(Dropped("batch", len(places), f"more than {LIVES_MAX} lives of one publisher")))
            return
        if (first, part) in origin.taken or first < origin.floor:
            self._out.append(Note(Duplicate(hex_peer(sender), len(places))))
            matched = origin.taken.get((first, part), ())
            answer = Holding(message.incarnation, first, part) if matched is None else Taken(*_id(message), brief(matched))
            self._out.append(Send((sender,), answer))
            return
        origin.taken[first, part] = None
        heapq.heappush(origin.firsts, (first, part))
        matched = self.hand_over(sender, message, 1, now)
        if matched is not None:
            origin.taken[first, part] = matched
            self._out.append(Send((sender,), Taken(*_id(message), brief(matched))))

    def hand_over(self, publisher: Peer, message: Portion, hops: int, now: Micros) -> tuple[int, ...] | None:
        """To the owner; how many took each event, or None: that will be said later."""
        first, offsets = message.first, message.places
        batch = Batch(
            message.topic, publisher, message.incarnation, first, len(offsets), message.floor, 0, hops, message.rows
        )  # fmt: skip
        whole = offsets[-1] == len(offsets) - 1
        numbers: Sequence[int] = range(first, first + len(offsets)) if whole else [first + offset for offset in offsets]
        return self._arrive(batch, numbers, message.group, message.part, now)

    def took(self, key: Key, matched: tuple[int, ...]) -> None:
        publisher, incarnation, first, part = key
        origin = self._origins.get((publisher, incarnation))
        if origin is not None and (first, part) in origin.taken:
            origin.taken[first, part] = matched
        self._out.append(Send((Peer(publisher),), Taken(incarnation, first, part, brief(matched))))

    def _origin(self, sender: Peer, incarnation: int, floor: int) -> _Origin | None:
        """A publisher is who sends: a peer can fill only its own part of the table."""
        key = (int(sender), incarnation)
        origin = self._origins.get(key)
        if origin is None:
            if self._lives.get(sender, 0) >= LIVES_MAX:
                return None
            while len(self._origins) >= ORIGINS_MAX:
                old, _ = self._origins.popitem(last=False)
                self._lives[old[0]] -= 1
                if not self._lives[old[0]]:
                    del self._lives[old[0]]
            origin = self._origins[key] = _Origin()
            self._lives[sender] = self._lives.get(sender, 0) + 1
        else:
            self._origins.move_to_end(key)
        if floor > origin.floor:
            origin.floor = floor
            while origin.firsts and origin.firsts[0][0] < floor:
                origin.taken.pop(heapq.heappop(origin.firsts), None)
        return origin


def _id(message: Portion) -> tuple[int, int, int]:
    return message.incarnation, message.first, message.part
