"""The once-only table: the batches that a node remembers.

A batch is known by its publisher, its publisher's life and a key that begins with its first
sequence number. It is remembered until the publisher's *floor* has passed it. The floor is the
lowest sequence number that has no complete receipt. So no node asks for anything below it again,
and a batch from below it is a repetition.

The table has a stated size, and the links that bring publishers share it (overlay/shares.py). A
peer that invents publishers pushes out only the lives that it has brought itself. A life with
something under way is never pushed out.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Generic, TypeVar

from gossamer.machine import Peer
from gossamer.overlay.shares import Shares

LIVES_MAX = 65_536
"""Publishers' lives that a node remembers.

Of the lives with nothing under way, the one that was idle longest goes first.
"""

LIVES_A_LINK = 8_192
"""Of these, lives that one link has brought."""

B = TypeVar("B")
BatchKey = tuple[int, ...]
"""The first sequence number; where a batch is split among nodes, the number of the part follows."""


class Life(Generic[B]):
    """The knowledge of one life of a publisher."""

    __slots__ = ("batches", "floor", "keys", "under_way")

    def __init__(self) -> None:
        self.floor = 0
        self.batches: dict[BatchKey, B] = {}
        # The keys of these as a heap, so that keys below the floor are found without a look at the
        # rest.
        self.keys: list[BatchKey] = []
        # Batches that the node still has to report or to complete. While there are any, the life
        # stays.
        self.under_way = 0

    def add(self, key: BatchKey, batch: B) -> B:
        self.batches[key] = batch
        heapq.heappush(self.keys, key)
        return batch


class Lives(Generic[B]):
    def __init__(
        self,
        me: Peer,
        forgotten: Callable[[B], None],
        *,
        most: int = LIVES_MAX,
        share: int = LIVES_A_LINK,
    ) -> None:
        """``forgotten`` hears of each batch that leaves the table."""
        self._me, self._forgotten = me, forgotten
        self._lives: Shares[tuple[int, int], Life[B]] = Shares(most, share, self._may_go)

    def __len__(self) -> int:
        return len(self._lives)

    @property
    def remembered(self) -> int:
        """Batches in the table, all lives together."""
        return sum(len(life.batches) for life in self._lives.values())

    def get(self, publisher: int, incarnation: int) -> Life[B] | None:
        return self._lives.get((publisher, incarnation))

    def use(self, publisher: int, incarnation: int, floor: int, link: int) -> Life[B] | None:
        """The life that a batch belongs to. It is None if there is no room for one more.

        ``floor`` is the floor that the batch tells. Batches below it are forgotten.
        """
        key = (publisher, incarnation)
        life = self._lives.use(key, link)
        if life is None:
            life = Life()
            if not self._lives.add(key, life, link, always=publisher == self._me):
                return None
        if floor > life.floor:
            life.floor = floor
            keys = life.keys
            while keys and keys[0][0] < floor:
                self._forgotten(life.batches.pop(heapq.heappop(keys)))
        return life

    def closed(self, link: int) -> None:
        """The link is no more. The lives that it has brought stay, and are the first to go."""
        self._lives.closed(link)

    def _may_go(self, key: tuple[int, int], life: Life[B]) -> bool:
        if life.under_way or key[0] == self._me:
            return False
        for batch in life.batches.values():
            self._forgotten(batch)
        return True
