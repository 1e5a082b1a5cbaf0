"""Intervals of positions, as the delivery engine needs them: regions, tiles and covers.

A *region* is what a walk is to answer for: some disjoint intervals, in order. Each interval may name
the entry that is to go on with it, and a bound (route.py). A *tile* is what was reached of a region.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Protocol

from gossamer.machine import Micros
from gossamer.overlay.skiplist.messages import Covered, Gap, Part
from gossamer.overlay.skiplist.position import Interval, Position

# Leases that one report brings.
GAPS_MAX = 16


class Walk:
    """A group of this node's own events on its way: events that look in the same intervals."""

    __slots__ = ("by_interval", "epoch", "hops", "numbers", "rounds", "sent_at")

    def __init__(self, numbers: Sequence[int], intervals: Sequence[Interval]) -> None:
        self.numbers = numbers
        # To the farthest end of the walk, in each interval and in all.
        self.by_interval: dict[Interval, int] = dict.fromkeys(intervals, 0)
        self.hops = 0
        # No round means that the events were held back: they were known to match nothing.
        self.rounds = 0
        self.sent_at = Micros(0)
        self.epoch = 0

    def reached(self, covered: Sequence[Covered]) -> None:
        for one in covered:
            if one.hops > self.hops:
                self.hops = one.hops
            for interval, known in self.by_interval.items():
                if one.hops > known and one.low < interval[1] and interval[0] < one.high:
                    self.by_interval[interval] = one.hops


class Region:
    __slots__ = ("enters", "lease", "of", "parts", "tie")

    def __init__(
        self,
        parts: Sequence[Part],
        lease: bool,
        *,
        of: Walk | None = None,
        tie: Interval | None = None,
        enters: bool = False,
    ) -> None:
        self.parts = parts
        # Whether the publisher would rely on an empty gap (leases.py).
        self.lease = lease
        # This node's own walk.
        self.of = of
        # With the seed's ranges: an interval that counts only when this region was reached as well.
        self.tie = tie
        # The publisher has no entry: its message to a member of the list is no hop in the list.
        self.enters = enters

    def __bool__(self) -> bool:
        return bool(self.parts)


class Reached:
    """A tile."""

    __slots__ = ("covered", "gaps", "tied")

    def __init__(
        self,
        covered: Sequence[Covered] = (),
        gaps: Sequence[Gap] = (),
        tied: dict[Interval, int] | None = None,
    ) -> None:
        self.covered = covered
        # What the publisher may rely on.
        self.gaps = gaps
        # Intervals that wait for so many regions.
        self.tied = tied


NOTHING = Reached()


class _Span(Protocol):
    @property
    def low(self) -> Position: ...
    @property
    def high(self) -> Position: ...


def is_ordered(parts: Sequence[_Span]) -> bool:
    """Whether these are disjoint intervals, in order, and none is empty."""
    last: Position | None = None
    for part in parts:
        if part.low >= part.high or (last is not None and part.low < last):
            return False
        last = part.high
    return True


def without(parts: Sequence[Part], taken: Sequence[_Span]) -> Sequence[Part]:
    """What is left of disjoint intervals; the same object if nothing was taken."""
    left: list[Part] = []
    start = 0
    for part in parts:
        low, high = part.low, part.high
        while start < len(taken) and taken[start].high <= low:
            start += 1
        place = start
        while place < len(taken) and taken[place].low < high:
            if low < taken[place].low:
                left.append(Part(low, taken[place].low, part.to, part.bound))
            low = max(low, taken[place].high)
            place += 1
        if place == start:
            left.append(part)
        elif low < high:
            left.append(Part(low, high, part.to, part.bound))
    if len(left) == len(parts) and all(map(_is, left, parts)):
        return parts
    return left


def _is(one: Part, other: Part) -> bool:
    return one is other


def within(inner: Sequence[_Span], outer: Sequence[_Span]) -> bool:
    """Whether these intervals are in those."""
    return not without([Part(one.low, one.high) for one in inner], outer)


def minus(one: Region, other: Region | Reached) -> Region:
    taken = other.parts if isinstance(other, Region) else other.covered
    left = without(one.parts, taken)
    return one if left is one.parts else Region(left, one.lease, of=one.of, tie=one.tie)


def plus(one: Region, other: Region) -> Region:
    """What this node answers for. It names no entries."""
    union: list[Part] = []
    for part in sorted([*one.parts, *other.parts], key=_low):
        if union and part.low <= union[-1].high:
            if part.high > union[-1].high:
                union[-1] = Part(union[-1].low, part.high)
        else:
            union.append(Part(part.low, part.high))
    return Region(union, one.lease)


def merged(covered: Sequence[Covered]) -> list[Covered]:
    """Fewer tiles: those that touch become one."""
    found: list[Covered] = []
    for one in sorted(covered, key=_low):
        last = found[-1] if found else None
        if last is None or last.high < one.low:
            found.append(one)
        elif last.high == one.low:
            found[-1] = Covered(last.low, one.high, max(last.hops, one.hops))
    return found


_low = attrgetter("low")


class Cover:
    """What has been reached of one region, as answers come in."""

    __slots__ = ("_over", "_region", "covered", "gaps", "tied")

    def __init__(self, region: Region, over: Callable[[Walk, Reached, Micros], None]) -> None:
        """``over`` is told when a round of this node's own walk is over."""
        self._region, self._over = region, over
        self.covered: list[Covered] = []
        self.gaps: list[Gap] = []
        self.tied: dict[Interval, int] = {}

    def add(self, tile: Reached, region: Region) -> None:
        if region.tie is not None:
            if within(region.parts, tile.covered):
                self.tied[region.tie] -= 1
            return
        self.covered += tile.covered
        self.gaps += tile.gaps[: GAPS_MAX - len(self.gaps)]
        if tile.tied:
            self.tied.update(tile.tied)

    def lose(self, region: Region) -> None: ...

    def tile(self, now: Micros) -> Reached:
        free = [one for one in self.covered if not self.tied.get((one.low, one.high))]
        tile = Reached(merged(free), self.gaps)
        if self._region.of is not None:
            self._over(self._region.of, tile, now)
        return tile
