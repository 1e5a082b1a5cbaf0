"""Reference trees over the keys (section 3.2).

Every host knows them, so hosts agree without a word.

A tree answers two questions. Which of a host's keys is the first in breadth-first order
(``topmost``, Definition 2)? And which hosts are its neighbours (``neighbours``): the owner of the
nearest topmost key on the way to the root (Definition 3), and the owners of the topmost keys below
with none in between? The second needs to know the owners of some other keys, so it is a generator:
it yields keys and is sent the arcs that hold them, by whatever ring there is, at once or after a
while.

``ZeroTree`` and ``SeedTree`` are the binary search tree in closed form. With tz the number of
trailing zeros, a key's level is m - 1 - tz, and the topmost key of (p, s] is s with its low bits
cleared as far up as p and s differ. Hosts then form the Cartesian tree of their arcs: a host's
subtree is one stretch of the ring, its parent owns one of the two keys at its ends, and its
children own the topmost keys of what lies between. ``ZeroTree`` puts key 0 above the seed's root,
so that all keys have a place and the arc that wraps around is the root's: 4 look-ups. ``SeedTree``
has the seed's keys 1 .. 2^m - 1: there the wrapping arc is two pieces, of which the first in
breadth-first order counts and the other must be seen through: 7 look-ups.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Protocol

from msgspec import Struct

from gossamer.overlay.tree.arcs import Arc, Host
from gossamer.overlay.tree.config import TreeConfig

Asking = Generator[int, Arc, "Neighbours"]


class Neighbours(Struct, frozen=True):
    """A host's neighbours.

    A host without a place (section 3.1 has one key too few) has none and is not ``placed``.
    """

    parent: Host | None = None
    children: tuple[Host, ...] = ()
    placed: bool = True

    @property
    def hosts(self) -> tuple[Host, ...]:
        return (*((self.parent,) if self.parent is not None else ()), *self.children)


class ReferenceTree(Protocol):
    bits: int
    children_max: int
    # A host's parent always comes before it by ``rank``.
    ordered: bool

    def root(self) -> int: ...
    def parent(self, key: int) -> int | None:
        """In the reference tree; None for the root, and for a key without a place."""

    def children(self, key: int) -> list[int]: ...
    def topmost(self, low: int, high: int) -> int | None:
        """Of the keys (low, high]; None if none of them has a place."""

    def neighbours(self, arc: Arc) -> Asking: ...
    def rank(self, low: int, high: int) -> tuple[int, int]:
        """Orders hosts with these keys by depth.

        The smaller of two may be the other's ancestor, and never the reverse.
        """


def trailing_zeros(key: int) -> int:
    return (key & -key).bit_length() - 1


def highest(low: int, high: int) -> int:
    """The topmost of the keys (low, high], 0 <= low < high, in the binary search tree."""
    shift = (low ^ high).bit_length() - 1
    return high >> shift << shift


class _Binary:
    """What the two rootings of the binary search tree share."""

    children_max = 2
    ordered = True
    zero: bool

    def __init__(self, bits: int) -> None:
        self.bits, self.size = bits, 1 << bits

    def _search_parent(self, key: int) -> int | None:
        step = key & -key
        return None if key == self.size >> 1 else (key & ~step) | step << 1

    def _search_children(self, key: int) -> list[int]:
        half = (key & -key) >> 1
        return [key - half, key + half] if half else []


class ZeroTree(_Binary):
    """Rooted at key 0, whose only child is the root of the search tree."""

    zero = True

    def root(self) -> int:
        return 0

    def parent(self, key: int) -> int | None:
        if key == 0:
            return None
        above = self._search_parent(key)
        return 0 if above is None else above

    def children(self, key: int) -> list[int]:
        return self._search_children(key) if key else [self.size >> 1]

    def topmost(self, low: int, high: int) -> int:
        return highest(low, high) if low < high else 0

    def rank(self, low: int, high: int) -> tuple[int, int]:
        key = self.topmost(low, high)
        return (-trailing_zeros(key) if key else -self.bits, key)

    def neighbours(self, arc: Arc) -> Asking:
        low, high = arc.piece
        key = self.topmost(low, high)
        if key == 0:
            if low == high:
                return Neighbours()
            child = yield highest(high, low)
            return Neighbours(None, (child.host,))
        step = key & -key
        left = yield key - step
        right = yield (key + step) % self.size
        children = []
        if left.high != low:
            child = yield highest(left.high, low)
            children.append(child.host)
        if right.low != high:
            child = yield highest(high, right.low)
            children.append(child.host)
        # The deeper one.
        parent = max(left, right, key=lambda each: self.rank(*each.piece))
        return Neighbours(parent.host, tuple(children))


class _Piece(Struct, frozen=True):
    """A part of an arc that does not wrap around.

    ``first``: the topmost key of this part is the topmost key of its host.
    """

    low: int
    high: int
    host: Host
    first: bool

    @property
    def top(self) -> int:
        return highest(self.low, self.high)


class SeedTree(_Binary):
    """The seed's own keys, Figure 1(a): 1 .. 2^m - 1.

    Key 0 has no place, nor has a host that owns only it.
    """

    zero = False

    def root(self) -> int:
        return self.size >> 1

    def parent(self, key: int) -> int | None:
        return self._search_parent(key) if key else None

    def children(self, key: int) -> list[int]:
        return self._search_children(key) if key else []

    def _pieces(self, low: int, high: int) -> list[tuple[int, int]]:
        """The arc without key 0, cut where it wraps; the one that counts first."""
        if low < high:
            return [(low, high)]
        both = [(begin, end) for begin, end in ((0, high), (low, self.size - 1)) if begin < end]
        return sorted(both, key=lambda each: (-trailing_zeros(highest(*each)), highest(*each)))

    def topmost(self, low: int, high: int) -> int | None:
        pieces = self._pieces(low, high)
        return highest(*pieces[0]) if pieces else None

    def rank(self, low: int, high: int) -> tuple[int, int]:
        key = self.topmost(low, high)
        return (1, 0) if key is None else (-trailing_zeros(key), key)

    def neighbours(self, arc: Arc) -> Asking:
        pieces = self._pieces(*arc.piece)
        if not pieces:
            return Neighbours(placed=False)
        mine = _Piece(*pieces[0], arc.host, True)
        seen = [arc]
        parent = yield from self._above(mine, seen)
        children = yield from self._below(mine, seen)
        return Neighbours(parent, tuple(children))

    def _piece(self, key: int, seen: list[Arc]) -> Generator[int, Arc, _Piece]:
        arc = next((each for each in seen if each.has(key)), None)
        if arc is None:
            arc = yield key
            seen.append(arc)
        pieces = self._pieces(*arc.piece)
        low, high = next(each for each in pieces if each[0] < key <= each[1])
        return _Piece(low, high, arc.host, (low, high) == pieces[0])

    def _above(self, piece: _Piece, seen: list[Arc]) -> Generator[int, Arc, Host | None]:
        while True:
            step = piece.top & -piece.top
            ends = []
            for key in (piece.top - step, piece.top + step):
                if 0 < key < self.size:
                    ends.append((yield from self._piece(key, seen)))
            if not ends:
                return None
            piece = min(ends, key=lambda each: trailing_zeros(each.top))
            if piece.first:
                # Else it is the other end of an arc that has its place elsewhere: look above it.
                return piece.host

    def _below(self, piece: _Piece, seen: list[Arc]) -> Generator[int, Arc, list[Host]]:
        key = piece.top
        step = key & -key
        low = (yield from self._piece(key - step, seen)).high if key - step > 0 else 0
        high = (
            (yield from self._piece(key + step, seen)).low
            if key + step < self.size
            else self.size - 1
        )
        found: list[Host] = []
        for begin, end in ((low, piece.low), (piece.high, high)):
            if begin < end:
                below = yield from self._piece(highest(begin, end), seen)
                found += [below.host] if below.first else (yield from self._below(below, seen))
        return found


def make_tree(config: TreeConfig) -> ReferenceTree:
    from gossamer.overlay.tree.wide import CappedTree, WideTree

    if config.arity == 2:
        return ZeroTree(config.bits) if config.rooting == "zero" else SeedTree(config.bits)
    return (CappedTree if config.cap else WideTree)(
        config.bits, config.arity, zero=config.rooting == "zero"
    )


def broken_rules(tree: ReferenceTree) -> list[str]:
    """Where a tree lacks the property of section 3.2; looks at every key, so for few bits only."""
    found = []
    for key in range(1 << tree.bits):
        above = tree.parent(key)
        if above is None:
            continue
        if key not in tree.children(above):
            found.append(f"{above} does not know its child {key}")
        outside = [
            child for child in tree.children(key) if not min(key, above) < child < max(key, above)
        ]
        if len(outside) > 1:
            found.append(f"{key}, child of {above}, has the children {outside} outside")
        found += [
            f"{child} is on the wrong side of {key}"
            for child in outside
            if (child < key) != (key < above)
        ]
        if len(tree.children(key)) > tree.children_max:
            found.append(f"{key} has more than {tree.children_max} children")
    return found
