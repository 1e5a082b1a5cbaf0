"""Arcs of the ring of keys: which host owns which keys, and which keys have been answered for.

Keys are numbers below 2^m, and they wrap around. An arc (low, high] holds the keys after ``low`` up
to ``high``; with low = high it is the whole ring. A host owns the keys from its predecessor
(excluded) to itself (included), as footnote 1 of the seed says.
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

# msgpack itself ends at 64 bits.
Key = Annotated[int, Meta(ge=0)]
Piece = tuple[Key, Key]
"""An arc as it travels: (low, high]."""


class Host(Struct, frozen=True, array_like=True):
    """A node as the tree sees it: its key on the ring, and its address."""

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
    """Whether the key is strictly between the two, going up; with low = high, whether it is any
    other.
    """
    if low < high:
        return low < key < high
    return key > low or key < high


class Keys:
    """A set of keys as disjoint pieces: the regions and the tiles of the tree.

    An empty one is false.
    """

    __slots__ = ("_begins", "_ends", "_pieces", "size")

    def __init__(self, bits: int, pieces: Iterable[Piece] = ()) -> None:
        self.size = 1 << bits
        # Both are sorted; piece i holds the keys begins[i] .. ends[i] - 1.
        self._begins: list[int] = []
        self._ends: list[int] = []
        self._pieces: tuple[Piece, ...] | None = None
        for piece in pieces:
            self.add(piece)

    def _empty(self) -> Keys:
        """No keys of the same ring."""
        found = Keys(0)
        found.size = self.size
        return found

    def add(self, piece: Piece) -> None:
        low, high = piece
        if low < high:
            self._add(low + 1, high + 1)
        else:
            self._add(low + 1, self.size)
            self._add(0, high + 1)

    def unite(self, other: Keys) -> None:
        """Add the other's keys."""
        if not self._begins:
            self._begins, self._ends = other._begins[:], other._ends[:]
            self._pieces = other._pieces
            return
        for begin, end in zip(other._begins, other._ends, strict=True):
            self._add(begin, end)

    def _add(self, begin: int, end: int) -> None:
        if begin >= end:
            return
        self._pieces = None
        begins, ends = self._begins, self._ends
        # The first piece that touches the new one or lies behind it.
        first = bisect_right(ends, begin - 1)
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

    def __bool__(self) -> bool:
        return bool(self._begins)

    def holds(self, other: Keys) -> bool:
        """Whether all of the other's keys are here."""
        return all(
            (place := bisect_right(self._begins, begin) - 1) >= 0 and end <= self._ends[place]
            for begin, end in zip(other._begins, other._ends, strict=True)
        )

    def pieces(self) -> tuple[Piece, ...]:
        """As arcs, sorted; an arc that wraps around is one of them."""
        if self._pieces is None:
            self._pieces = self._as_arcs()
        return self._pieces

    def _as_arcs(self) -> tuple[Piece, ...]:
        if self.full:
            return ((self.size - 1, self.size - 1),)
        found = [(begin - 1, end - 1) for begin, end in zip(self._begins, self._ends, strict=True)]
        if len(found) > 1 and found[0][0] == -1 and found[-1][1] == self.size - 1:
            found = [*found[1:-1], (found[-1][0], found[0][1])]
        return tuple((low % self.size, high) for low, high in found)

    def missing(self) -> Keys:
        """The other keys of the ring."""
        rest = self._empty()
        begin = 0
        for first, end in zip(self._begins, self._ends, strict=True):
            rest._add(begin, first)
            begin = end
        rest._add(begin, self.size)
        return rest

    def common(self, other: Keys) -> Keys:
        """The keys that are in both."""
        both = self._empty()
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

    def minus(self, other: Keys) -> Keys:
        """The keys that are here and not in the other."""
        return self.common(other.missing())

    def plus(self, other: Keys) -> Keys:
        """The keys that are in one of the two, or in both."""
        both = self._empty()
        both.unite(self)
        both.unite(other)
        return both

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Keys) and (self._begins, self._ends) == (
            other._begins,
            other._ends,
        )

    __hash__ = None  # type: ignore[assignment]
