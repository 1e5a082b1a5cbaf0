"""Reference trees of any degree, as in Figure 1(b), also where a host gets too many neighbours.

The subtree of a node is one stretch of keys, with its parent on one side of it. The node stands so
that one child lies on its far side and all others between it and its parent: the property of
section 3.2. Stretches are cut into parts that differ by at most one key, so a node is found by
going down from the root, with a division a level and nothing stored.

The seed argues that hosts then rarely have more neighbours than nodes (3.6); about one in a hundred
does. ``CappedTree`` hands the children that are too many to their brothers.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from functools import lru_cache

from gossamer.overlay.tree.arcs import Arc, Host
from gossamer.overlay.tree.reference import Asking, Neighbours

# First and last key; and the side on which the parent is: -1, 1, 0 for none.
Stretch = tuple[int, int, int]


class _Node:
    """A node with its stretch of keys."""

    __slots__ = ("first", "key", "last", "parts")

    def __init__(self, stretch: Stretch, arity: int) -> None:
        first, last, side = stretch
        self.first, self.last = first, last
        count = last - first
        sizes = [count // arity + (place < count % arity) for place in range(arity)]
        # Children on the left.
        before = {-1: arity - 1, 1: 1, 0: (arity + 1) // 2}[side]
        parts: list[Stretch] = []
        at = first
        for size in sizes[:before]:
            parts.append((at, at + size - 1, 1))
            at += size
        self.key = at
        at += 1
        for size in sizes[before:]:
            parts.append((at, at + size - 1, -1))
            at += size
        self.parts = [part for part in parts if part[0] <= part[1]]


class WideTree:
    """Nodes with up to ``arity`` children.

    ``zero``: key 0 is the root, above the root of all others.
    """

    ordered = True

    def __init__(self, bits: int, arity: int, *, zero: bool = True) -> None:
        self.bits, self.arity, self.zero, self.children_max = bits, arity, zero, arity
        self.size = 1 << bits
        self._whole: Stretch = (1, self.size - 1, -1 if zero else 0)
        self._node = lru_cache(maxsize=4096)(lambda stretch: _Node(stretch, arity))
        self._topmost = lru_cache(maxsize=4096)(self._find_topmost)

    def root(self) -> int:
        return 0 if self.zero else self._node(self._whole).key

    def _way(self, key: int) -> Iterator[_Node]:
        """The nodes from the root of the stretch to this key."""
        node = self._node(self._whole)
        while True:
            yield node
            if node.key == key:
                return
            node = self._node(next(part for part in node.parts if part[0] <= key <= part[1]))

    def parent(self, key: int) -> int | None:
        if key == 0:
            return None
        above = 0 if self.zero else None
        for node in self._way(key):
            if node.key != key:
                above = node.key
        return above

    def children(self, key: int) -> list[int]:
        if key == 0:
            return [self._node(self._whole).key] if self.zero else []
        return [self._node(part).key for part in list(self._way(key))[-1].parts]

    def topmost(self, low: int, high: int) -> int | None:
        return self._topmost(low, high)

    def _find_topmost(self, low: int, high: int) -> int | None:
        if low < high:
            pieces = [(low + 1, high)]
        elif self.zero:
            return 0
        else:
            pieces = [each for each in ((1, high), (low + 1, self.size - 1)) if each[0] <= each[1]]
        level = [self._node(self._whole)]
        while level and pieces:
            for node in level:
                if any(first <= node.key <= last for first, last in pieces):
                    return node.key
            level = [
                self._node(part)
                for node in level
                for part in node.parts
                if any(part[0] <= last and first <= part[1] for first, last in pieces)
            ]
        return None

    def rank(self, low: int, high: int) -> tuple[int, int]:
        key = self.topmost(low, high)
        if not key:
            return (-1, 0) if key == 0 else (self.size, 0)
        return (sum(1 for _ in self._way(key)), key)

    def neighbours(self, arc: Arc) -> Asking:
        top = self.topmost(*arc.piece)
        if top is None:
            return Neighbours(placed=False)
        seen = [arc]
        parent = yield from self._above(top, arc, seen)
        children = yield from self._below(top, arc, seen)
        return Neighbours(parent, tuple(sorted(children, key=lambda host: host.key)))

    def _owner(self, key: int, seen: list[Arc]) -> Generator[int, Arc, Arc]:
        for arc in seen:
            if arc.has(key):
                return arc
        found = yield key
        seen.append(found)
        return found

    def _above(self, top: int, arc: Arc, seen: list[Arc]) -> Generator[int, Arc, Host | None]:
        way = [node.key for node in self._way(top)][:-1] if top else []
        if self.zero and top:
            way.insert(0, 0)
        for key in reversed(way):
            owner = yield from self._owner(key, seen)
            if owner.high != arc.high and self.topmost(*owner.piece) == key:
                return owner.host
        return None

    def _below(self, top: int, arc: Arc, seen: list[Arc]) -> Generator[int, Arc, list[Host]]:
        """Depth first; a stretch with one owner, whose topmost key is not in it, is passed over."""
        stack = (
            [self._node(self._whole)]
            if top == 0
            else [self._node(p) for p in reversed(list(self._way(top))[-1].parts)]
        )
        found: list[Host] = []
        while stack:
            node = stack.pop()
            owner = yield from self._owner(node.key, seen)
            peak = self.topmost(*owner.piece)
            if peak == node.key and owner.high != arc.high:
                found.append(owner.host)
            elif not self._all_of(node, owner) or (
                peak is not None and node.first <= peak <= node.last
            ):
                stack += [self._node(part) for part in reversed(node.parts)]
        return found

    @staticmethod
    def _all_of(node: _Node, arc: Arc) -> bool:
        low, high = arc.piece
        if low < high:
            return low < node.first and node.last <= high
        return node.first > low or node.last <= high


class CappedTree(WideTree):
    """A wide tree in which no host has more neighbours than a node of the reference tree.

    A host keeps its first children, in the order of keys, and each of the others becomes the child
    of the one that stands before it by the number of children kept: a chain of brothers, so that no
    host is handed more than one. A host that is handed one keeps one less of its own. Whether a
    host is handed one depends on how many its parent keeps, and so on upwards; but a parent with
    few children hands none off, so the question nearly always ends at once. All of it follows from
    the ring, as before: hosts agree without a word.
    """

    # A brother may be as deep as the one that it takes in.
    ordered = False

    def neighbours(self, arc: Arc) -> Asking:
        mine = yield from super().neighbours(arc)
        if not mine.placed:
            return mine
        parent, handed = mine.parent, None
        if parent is not None:
            brothers, kept = yield from self._family(parent)
            keys = [host.key for host in brothers]
            # A host that is not one of them sees the ring change, and is asked again.
            place = keys.index(arc.high) if arc.high in keys else 0
            if place >= kept:
                parent = brothers[place - kept]
            if arc.high in keys and place + kept < len(brothers):
                handed = brothers[place + kept]
        children = mine.children[: self.arity - (handed is not None)]
        return Neighbours(parent, (*children, *((handed,) if handed is not None else ())))

    def _family(self, host: Host) -> Generator[int, Arc, tuple[tuple[Host, ...], int]]:
        """A host's children in the plain tree, and how many of them it keeps."""
        arc = yield host.key
        plain = yield from super().neighbours(arc)
        if len(plain.children) < self.arity or plain.parent is None:
            return plain.children, self.arity
        brothers, kept = yield from self._family(plain.parent)
        keys = [each.key for each in brothers]
        handed = arc.high in keys and keys.index(arc.high) + kept < len(keys)
        return plain.children, self.arity - handed
