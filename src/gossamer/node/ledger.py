"""Which events a subscription was handed and has not taken: an account that few of them need.

A subscription that is ordered, or reads history, hands events over in another order than they
came in, so it keeps one to know what it discards when it ends. A node that writes a trace keeps one
for each subscription. All others do with two numbers (``Local.taken``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

Id = tuple[int, int, int]
"""Publisher, incarnation and sequence number of an event; all zero for what is no event (a gap)."""


class Ledger:
    __slots__ = ("_handed", "_taken")

    def __init__(self) -> None:
        self._handed: deque[Sequence[Id]] = deque()  # hand-overs, oldest first
        self._taken = 0  # of the oldest of them

    def hand(self, ids: Sequence[Id]) -> None:
        if ids:
            self._handed.append(ids)

    def take(self, count: int) -> None:
        self._taken += count
        handed = self._handed
        while handed and self._taken >= len(handed[0]):
            self._taken -= len(handed.popleft())

    def left(self) -> Iterator[Id]:
        """What was not taken, oldest first."""
        skipped = self._taken
        for ids in self._handed:
            yield from ids[skipped:]
            skipped = 0
