"""Arcs of the ring of keys: who owns which keys, and whether pieces tile the whole.

Keys are numbers below 2^m and wrap around. An arc (low, high] holds the keys after ``low`` up to ``high``; low = high is the
whole ring. A host owns the keys from its predecessor (excluded) to itself (included): the seed's footnote 1.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta, Struct

from gossamer.machine import Peer

BITS_MAX = 64
KEY_MAX = 2**BITS_MAX - 1
ADDRESS_MAX = 255

Key = Annotated[int, Meta(ge=0)]  # msgpack itself ends at 64 bits
Piece = tuple[Key, Key]
"""An arc as it travels: (low, high]."""


class Host(Struct, frozen=True, array_like=True):
    """A node as the tree sees it: its key on the ring, and how to reach it."""

    key: Key
    peer: Key
    address: Annotated[str, Meta(max_length=ADDRESS_MAX)] = ""

    @property
    def to(self) -> Peer:
        return Peer(self.peer)


class Arc(Struct, frozen=True, array_like=True):
    """The keys of one host: after ``low`` up to its own."""

    low: Key
    host: Host

    @property
    def high(self) -> int:
        return self.host.key

    @property
    def piece(self) -> Piece:
        return (self.low, self.host.key)

    def has(self, key: int) -> bool:
        return within(self.low, key, self.host.key)


def within(low: int, key: int, high: int) -> bool:
    """Whether the key is in (low, high]."""
    if low < high:
        return low < key <= high
    return key > low or key <= high


def between(low: int, key: int, high: int) -> bool:
    """Whether the key is strictly between the two, going up; with low = high, whether it is any other."""
    if low < high:
        return low < key < high
    return key > low or key < high


class Cover:
    """A set of keys as disjoint pieces. Sums of what was reported: complete when nothing is missing."""

    __slots__ = ("_begins", "_ends", "size")

    def __init__(self, bits: int, pieces: Iterable[Piece] = ()) -> None:
        self.size = 1 << bits
        self._begins: list[int] = []  # sorted; piece i holds the keys begins[i] .. ends[i] - 1
        self._ends: list[int] = []
        for piece in pieces:
            self.add(piece)

    def add(self, piece: Piece) -> None:
        low, high = piece
        if low < high:
            self._add(low + 1, high + 1)
        else:
            self._add(low + 1, self.size)
            self._add(0, high + 1)

    def _add(self, begin: int, end: int) -> None:
        if begin >= end:
            return
        begins, ends = self._begins, self._ends
        first = bisect_right(ends, begin - 1)  # the first piece that touches or lies behind
        last = bisect_right(begins, end)
        if first < last:
            begin, end = min(begin, begins[first]), max(end, ends[last - 1])
        begins[first:last] = [begin]
        ends[first:last] = [end]

    def has(self, key: int) -> bool:
        place = bisect_right(self._begins, key) - 1
        return place >= 0 and key < self._ends[place]

    @property
    def full(self) -> bool:
        return self._begins == [0] and self._ends == [self.size]

    @property
    def empty(self) -> bool:
        return not self._begins

    def holds(self, other: Cover) -> bool:
        """Whether all of the other's keys are here."""
        return all(
            (place := bisect_right(self._begins, begin) - 1) >= 0 and end <= self._ends[place]
            for begin, end in zip(other._begins, other._ends, strict=True)
        )

    def pieces(self) -> tuple[Piece, ...]:
        """As arcs, sorted; what wraps around is one."""
        if self.full:
            return ((self.size - 1, self.size - 1),)
        found = [(begin - 1, end - 1) for begin, end in zip(self._begins, self._ends, strict=True)]
        if len(found) > 1 and found[0][0] == -1 and found[-1][1] == self.size - 1:
            found = [*found[1:-1], (found[-1][0], found[0][1])]
        return tuple((low % self.size, high) for low, high in found)

    def missing(self) -> Cover:
        """The other keys."""
        rest = Cover(0)
        rest.size = self.size
        begin = 0
        for first, end in zip(self._begins, self._ends, strict=True):
            rest._add(begin, first)
            begin = end
        rest._add(begin, self.size)
        return rest

    def common(self, other: Cover) -> Cover:
        """What is in both."""
        both = Cover(0)
        both.size = self.size
        mine = theirs = 0
        while mine < len(self._begins) and theirs < len(other._begins):
            begin = max(self._begins[mine], other._begins[theirs])
            end = min(self._ends[mine], other._ends[theirs])
            both._add(begin, end)
            if self._ends[mine] < other._ends[theirs]:
                mine += 1
            else:
                theirs += 1
        return both

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cover) and (self._begins, self._ends) == (
            other._begins,
            other._ends,
        )

    __hash__ = None  # type: ignore[assignment]
