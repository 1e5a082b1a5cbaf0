"""Portions as a subscriber gets them: each is handed over once, and answered as often as it comes."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

from gossamer.filters import loops
from gossamer.machine import Effect, Micros, Note, Peer, Send
from gossamer.overlay.batch import WINDOW_MAX, Batch, parted, spread
from gossamer.overlay.direct.messages import (
    Check,
    Holding,
    Lacking,
    Portion,
    PortionId,
    Taken,
    brief,
)
from gossamer.trace import Dropped, Duplicate, Rejected, hex_peer

ORIGINS_MAX = 65_536  # lives of publishers of which something is remembered
LIVES_MAX = 16  # of one publisher: those that it has used least lately are forgotten
TAKEN_MAX = (
    1 << 18
)  # portions of one life: an honest publisher sends what does not fit again, when its floor has risen

Key = tuple[int, int, int, int]
"""Publisher, incarnation, first, part."""
Arrive = Callable[
    [Batch, Sequence[int], str, int, Mapping[int, int], Micros], "tuple[int, ...] | None"
]
"""A portion is here: the batch with its rows, their numbers, the group, the part, and which of them were taken before.
None: ``took`` will say."""


class _Taken:
    """A portion that was handed over. A publisher that has crashed cuts its batches by the wants of its new life: under the same id
    other events may come, and the same events under another."""

    __slots__ = ("before", "group", "matched", "places")

    def __init__(self, group: str, places: Sequence[int], before: dict[int, int]) -> None:
        self.group, self.places, self.before = group, places, before
        self.matched: tuple[int, ...] | None = None  # the owner has it still

    def took(self, matched: tuple[int, ...]) -> tuple[int, ...]:
        if self.before:
            counts = spread(matched or (0,), len(self.places))
            matched = tuple(
                [
                    self.before.get(place, count)
                    for place, count in zip(self.places, counts, strict=True)
                ]
            )
        self.matched = matched
        return matched


class _Origin:
    """A publisher's life."""

    __slots__ = ("firsts", "floor", "shares", "taken")

    def __init__(self) -> None:
        self.floor = 0
        self.taken: dict[tuple[int, int], _Taken] = {}  # by first and part
        self.shares: dict[tuple[int, str], list[_Taken]] = {}  # by first and group
        self.firsts: list[tuple[int, int]] = []  # the same as a heap


class Received:
    def __init__(self, arrive: Arrive, out: list[Effect]) -> None:
        self._arrive, self._out = arrive, out
        self._origins: OrderedDict[tuple[int, int], _Origin] = OrderedDict()
        self._lives: dict[
            int, OrderedDict[int, None]
        ] = {}  # by publisher, the one used last at the end

    @property
    def remembered(self) -> int:
        return sum(len(origin.taken) for origin in self._origins.values())

    def portion(self, sender: Peer, message: Portion, now: Micros) -> None:
        first, part, floor, offsets = message.first, message.part, message.floor, message.offsets
        problem, places = "", offsets or range(message.count)
        if message.publisher != sender:
            problem = "events of somebody else"
        elif not places:
            problem = "no events"
        elif floor > first or first + places[-1] - floor > WINDOW_MAX:
            problem = "events outside their publisher's window"
        elif not loops.ascends(offsets):
            problem = "events out of order"
        if problem:
            self._out.append(Note(Rejected(hex_peer(sender), problem)))
            return
        origin = self._origin(sender, message.incarnation, floor)
        known = origin.taken.get((first, part))
        is_same = known is not None and known.group == message.group and known.places == places
        if is_same or first < origin.floor:
            self._out.append(Note(Duplicate(hex_peer(sender), len(places))))
            self._answer(sender, message.id, known.matched if known is not None else ())
            return
        shares = origin.shares.setdefault((first, message.group), [])
        if (known is not None and known.matched is None) or (
            shares and any(one.matched is None for one in shares)
        ):
            # Of an earlier life of the publisher: first that, then what is new.
            self._answer(sender, message.id, None)
            return
        if known is None and len(origin.taken) >= TAKEN_MAX:
            self._out.append(
                Note(
                    Dropped(
                        "batch", len(places), f"more than {TAKEN_MAX} portions of one publisher"
                    )
                )
            )
            return
        before: dict[int, int] = {}
        if shares:
            counts = {
                place: n for one in shares if one.matched
                for place, n in zip(one.places, spread(one.matched, len(one.places)), strict=True) if n
            }  # fmt: skip
            before = {place: counts[place] for place in places if place in counts} if counts else {}
        if known is None:
            heapq.heappush(origin.firsts, (first, part))
        entry = origin.taken[first, part] = _Taken(message.group, places, before)
        shares.append(entry)
        matched = (
            self.hand_over(sender, message, 1, now, before) if len(before) < len(places) else ()
        )
        if matched is not None:
            self._answer(sender, message.id, entry.took(matched))

    def check(self, sender: Peer, message: Check) -> None:
        """A publisher asks what has become of portions. What is not here was dropped on its way."""
        lacking: list[PortionId] = []
        for id in message.portions:
            incarnation, first, part = id
            origin = self._origins.get((int(sender), incarnation))
            known = origin.taken.get((first, part)) if origin is not None else None
            if known is not None:
                self._answer(sender, id, known.matched)
            elif origin is not None and first < origin.floor:
                self._answer(sender, id, ())
            else:
                lacking.append(id)
        if lacking:
            self._out.append(Send((sender,), Lacking(message.number, tuple(lacking))))

    def _answer(self, sender: Peer, id: PortionId, matched: tuple[int, ...] | None) -> None:
        answer = Holding(*id) if matched is None else _taken(*id, matched)
        self._out.append(Send((sender,), answer))

    def hand_over(
        self,
        publisher: Peer,
        message: Portion,
        hops: int,
        now: Micros,
        before: Mapping[int, int] | None = None,
    ) -> tuple[int, ...] | None:
        """To the owner; how many took each event, or None: that will be said later."""
        first, offsets = message.first, message.places
        batch = Batch(
            message.topic, publisher, message.incarnation, first, len(offsets), message.floor, 0, hops, message.rows
        )  # fmt: skip
        whole = offsets[-1] == len(offsets) - 1
        numbers: Sequence[int] = (
            range(first, first + len(offsets)) if whole else loops.shifted(offsets, first)
        )
        done = {first + place: count for place, count in before.items()} if before else {}
        return self._arrive(batch, numbers, message.group, message.part, done, now)

    def took(self, key: Key, matched: tuple[int, ...]) -> None:
        publisher, incarnation, first, part = key
        origin = self._origins.get((publisher, incarnation))
        if origin is not None and (first, part) in origin.taken:
            matched = origin.taken[first, part].took(matched)
        self._out.append(Send((Peer(publisher),), _taken(incarnation, first, part, matched)))

    def _origin(self, sender: Peer, incarnation: int, floor: int) -> _Origin:
        """A publisher is who sends: a peer can fill only its own part of the table."""
        key = (int(sender), incarnation)
        origin = self._origins.get(key)
        if origin is None:
            lives = self._lives.setdefault(int(sender), OrderedDict())
            if len(lives) >= LIVES_MAX:
                del self._origins[int(sender), lives.popitem(last=False)[0]]
            lives[incarnation] = None
            origin = self._origins[key] = _Origin()
            while len(self._origins) > ORIGINS_MAX:
                (peer, life), _ = self._origins.popitem(last=False)
                del self._lives[peer][life]
                if not self._lives[peer]:
                    del self._lives[peer]
        else:
            self._origins.move_to_end(key)
            self._lives[int(sender)].move_to_end(incarnation)
        if floor > origin.floor:
            origin.floor = floor
            while origin.firsts and origin.firsts[0][0] < floor:
                old = heapq.heappop(origin.firsts)
                gone = origin.taken.pop(old, None)
                if gone is not None:
                    origin.shares.pop((old[0], gone.group), None)
        return origin


def _taken(incarnation: int, first: int, part: int, counts: tuple[int, ...]) -> Taken:
    return Taken(incarnation, first, part, *parted(brief(counts)))
