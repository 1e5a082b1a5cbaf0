"""The way from filters to keys, with the classes in use on a topic and a node's places in its list.

An event looks once per class (filters/place.py), so a topic has at most 16 classes. Further filters
take a class over fewer attributes. Each node announces the classes of its own places, and a
publisher looks in every class that any node has announced. A node places at most 256 entries in a
topic. When its filters would need more, its fullest class gives way to a coarser one, over fewer
attributes. Then neighbouring places become one place, which covers them, and the node looks at its
filters itself. Identical places share an entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from gossamer.filters.filter import Filter
from gossamer.filters.place import ALL, Class, Placement, event_keys
from gossamer.overlay.skiplist.config import ENTRIES_MAX
from gossamer.overlay.skiplist.position import KEY_MAX

CLASSES_MAX = 16
ALL_OTHERS = -1
# A node knows at most this number of classes in all. Nodes that announce at the same moment may
# exceed the maximum that each alone keeps to.
HEARD_MAX = 256


class Classes:
    """The classes of a topic that one node knows. They are its own and the announced ones."""

    def __init__(self) -> None:
        # Each class has the number of nodes here that use it, this one included.
        self._uses: dict[Class, int] = {}
        # The value says whether every publisher knows that this node uses the class.
        self._own: dict[Class, bool] = {}
        self._heard: dict[int, tuple[Class, ...]] = {}
        # There was no room for this number of announcements.
        self.left_out = 0

    def __iter__(self) -> Iterator[Class]:
        return iter(self._uses)

    def __len__(self) -> int:
        return len(self._uses)

    def __contains__(self, cls: object) -> bool:
        return cls in self._uses

    @property
    def own(self) -> tuple[Class, ...]:
        """The classes that this node is to announce."""
        return tuple(self._own)

    def hear(self, peer: int, classes: Iterable[Class]) -> None:
        """Hear that a node announces these classes, and no others any longer. The caller asks
        whether they suit the schema.
        """
        new = tuple(dict.fromkeys(classes))
        before = self._heard.get(peer, ())
        if new == before:
            return
        taken = []
        for cls in new:
            if cls in self._uses or len(self._uses) < HEARD_MAX:
                self._uses[cls] = self._uses.get(cls, 0) + 1
                taken.append(cls)
            else:
                self.left_out += 1
        for cls in before:
            self._release(cls)
        if taken:
            self._heard[peer] = tuple(taken)
        else:
            self._heard.pop(peer, None)

    def announce(self, cls: Class) -> bool:
        """Use the class from now on, if there is room. One place is kept for ALL, which takes every
        filter.
        """
        if cls in self._own:
            return True
        if (
            cls not in self._uses
            and cls != ALL
            and len(self._uses) >= CLASSES_MAX - (ALL not in self._uses)
        ):
            return False
        self._own[cls] = False
        self._uses[cls] = self._uses.get(cls, 0) + 1
        return True

    def confirm(self, classes: Iterable[Class]) -> None:
        """Note that every publisher knows that this node uses these classes."""
        for cls in classes:
            if cls in self._own:
                self._own[cls] = True

    def unsettle(self) -> None:
        """Note that publishers have forgotten all that they knew of this node."""
        self._own = dict.fromkeys(self._own, False)

    def is_settled(self, cls: Class) -> bool:
        return self._own.get(cls, False)

    def retire(self, cls: Class) -> None:
        """Retire a class in which this node has no place any longer."""
        if self._own.pop(cls, None) is not None:
            self._release(cls)

    def renew(self, classes: Iterable[Class]) -> None:
        """Take these classes as all that the others have announced together."""
        self.hear(ALL_OTHERS, classes)

    def intervals(self, row: tuple[Any, ...]) -> list[tuple[Class, bytes, bytes]]:
        """Return the interval in which an event looks, for each class."""
        found: list[tuple[Class, bytes, bytes]] = []
        for cls in self._uses:
            keys = event_keys(cls, row)
            if keys is not None:
                found.append((cls, *keys))
        return found

    def _release(self, cls: Class) -> None:
        self._uses[cls] -= 1
        if not self._uses[cls]:
            del self._uses[cls]


def coarser(cls: Class) -> Class:
    """Return a class whose places cover those of this one."""
    if cls.kind == "between" and cls.bits > 0:
        return Class(cls.equal, "between", cls.ranged, cls.bits // 2)
    if cls.kind != "point":
        return Class(cls.equal)
    return Class(cls.equal[:-1])


class Places:
    """The filters of one node in one topic, and the keys at which it enters the list for them."""

    def __init__(self, classes: Classes, most: int = ENTRIES_MAX) -> None:
        self.classes, self._most = classes, most
        self.filters: dict[int, Filter] = {}
        # Each key has the number of placements here that share it.
        self.keys: dict[bytes, int] = {}
        self.class_of: dict[bytes, Class] = {}
        # With the seed's ranges (marks.py), an entry wants everything up to this key.
        self.until: dict[bytes, bytes] = {}
        # Each filter has its keys here.
        self._placed: dict[int, list[bytes]] = {}
        # These classes have given way to coarser ones.
        self._barred: dict[Class, None] = {}

    @property
    def in_use(self) -> tuple[Class, ...]:
        """The classes of the keys."""
        return tuple(dict.fromkeys(self.class_of.values()))

    def add(self, number: int, filter: Filter) -> tuple[list[bytes], list[bytes]]:
        """Return the keys to enter, and those to withdraw once that is done. If there are any to
        withdraw, other filters have moved, too.
        """
        before = list(self.keys)
        self.filters[number] = filter
        self._place(number)
        while len(self.keys) > self._most and any(cls != ALL for cls in self.class_of.values()):
            self._coarsen()
        return self._changes(before)

    def remove(self, number: int) -> tuple[list[bytes], list[bytes]]:
        before = list(self.keys)
        del self.filters[number]
        self._forget(number)
        if not self.filters:
            self._barred.clear()
        return self._changes(before)

    def _changes(self, before: list[bytes]) -> tuple[list[bytes], list[bytes]]:
        known = dict.fromkeys(before)
        return [key for key in self.keys if key not in known], [
            key for key in before if key not in self.keys
        ]

    def keys_of(self, number: int) -> list[bytes]:
        """Return the keys of a subscription. An event that it wants comes to one of them."""
        return self._placed[number]

    def at(self, key: bytes) -> list[int]:
        """Return the filters that have a place at this key."""
        return [number for number, keys in self._placed.items() if key in keys]

    def matching(self, row: tuple[Any, ...]) -> list[int]:
        return [number for number, filter in self.filters.items() if filter.matches_row(row)]

    def _place(self, number: int) -> None:
        filter = self.filters[number]
        best = self._placements(filter, None)
        wanted = [
            cls
            for cls in dict.fromkeys(placement.cls for placement in best)
            if cls not in self._barred
        ]
        # Each class is announced, also those after one that had no room.
        there_is_room = [self.classes.announce(cls) for cls in wanted]
        if not all(there_is_room) or any(placement.cls in self._barred for placement in best):
            best = self._placements(
                filter, [cls for cls in self.classes if cls not in self._barred]
            )
        placed = self._placed[number] = list(
            dict.fromkeys(key for placement in best for key in placement.keys)
        )
        for placement in best:
            self.classes.announce(placement.cls)
            for key in placement.keys:
                self.class_of[key] = placement.cls
        for key in placed:
            self.keys[key] = self.keys.get(key, 0) + 1

    def _placements(self, filter: Filter, allowed: Sequence[Class] | None) -> tuple[Placement, ...]:
        best = filter.placements(allowed, self._most)
        if any(len(key) > KEY_MAX for placement in best for key in placement.keys):
            # A key is too long, so the filter goes to class ALL, whose key is short.
            best = filter.placements((), self._most)
        return best

    def _forget(self, number: int) -> None:
        for key in self._placed.pop(number):
            self.keys[key] -= 1
            if not self.keys[key]:
                del self.keys[key], self.class_of[key]

    def _coarsen(self) -> None:
        """Let the class with the most keys give way to one that covers it."""
        counts: dict[Class, int] = {}
        for cls in self.class_of.values():
            counts[cls] = counts.get(cls, 0) + 1
        fullest = max(
            (cls for cls in counts if cls != ALL), key=lambda cls: (counts[cls], cls.prefix)
        )
        self._barred[fullest] = None
        one = coarser(fullest)
        while one in self._barred or not self.classes.announce(one):
            one = coarser(one)
        for number in list(self._placed):
            self._forget(number)
        for number in self.filters:
            self._place(number)
