"""A bounded table whose places are shared among the links that bring its entries.

Peers name publishers, and a node must remember each publisher to know its earlier batches again.
Without shares, one peer that invents publishers would push out all others. Here a link whose share
is full pushes out only its own entries. When the whole table is full, the entries of links that are
gone go first. An entry that is in use is never pushed out.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

# The most entries that are looked at to find one that is not in use.
LOOKS = 100
# The share of links that are gone.
GONE = -3


class Shares(Generic[K, V]):
    def __init__(self, maximum: int, share: int, may_go: Callable[[K, V], bool]) -> None:
        """``may_go`` says whether an entry may be pushed out. If it says yes, the entry is
        pushed out.
        """
        assert 0 < share <= maximum
        self._maximum, self._share, self._may_go = maximum, share, may_go
        # Each entry has the link that brought it.
        self._entries: dict[K, tuple[V, int]] = {}
        # The entry that was unused longest comes first.
        self._by_link: dict[int, OrderedDict[K, None]] = {}
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, key: K) -> V:
        return self._entries[key][0]

    def get(self, key: K) -> V | None:
        found = self._entries.get(key)
        return found[0] if found is not None else None

    def values(self) -> Iterator[V]:
        return (value for value, _ in self._entries.values())

    def items(self) -> Iterator[tuple[K, V]]:
        return ((key, value) for key, (value, _) in self._entries.items())

    def use(self, key: K, link: int) -> V | None:
        """The entry, which is from now on the last to be pushed out.

        An entry of a link that is gone becomes an entry of this link.
        """
        found = self._entries.get(key)
        if found is None:
            return None
        value, by = found
        if by == GONE and link != GONE and len(self._by_link.get(link, ())) < self._share:
            del self._by_link[GONE][key]
            if not self._by_link[GONE]:
                del self._by_link[GONE]
            self._put(key, value, link)
        else:
            self._by_link[by].move_to_end(key)
        return value

    def add(self, key: K, value: V, link: int, *, always: bool = False) -> bool:
        """Adds an entry, and says whether there was room. ``always`` is for this node's own
        entries.
        """
        assert key not in self._entries
        has_room = True
        if len(self._by_link.get(link, ())) >= self._share:
            has_room = self._push_out(link)
        elif len(self._entries) >= self._maximum:
            has_room = self._push_out(GONE) or self._push_out(
                max(self._by_link, key=lambda each: len(self._by_link[each]))
            )
        if has_room or always:
            self._put(key, value, link)
        return has_room or always

    def closed(self, link: int) -> None:
        share = self._by_link.pop(link, None)
        if share:
            for key in share:
                value, _ = self._entries[key]
                self._put(key, value, GONE)

    def _put(self, key: K, value: V, link: int) -> None:
        self._entries[key] = (value, link)
        self._by_link.setdefault(link, OrderedDict())[key] = None

    def _push_out(self, link: int) -> bool:
        share: OrderedDict[K, None] = self._by_link.get(link, OrderedDict())
        for place, key in enumerate(share):
            if self._may_go(key, self._entries[key][0]):
                del share[key]
                if not share:
                    del self._by_link[link]
                del self._entries[key]
                self.evicted += 1
                return True
            if place >= LOOKS:
                break
        return False
