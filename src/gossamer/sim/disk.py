"""A disk with latency and faults.

Writes finish in the order in which they were asked for. A record whose token was given to
``stored`` survives every crash. Of the other records a crash keeps some prefix, drawn at random,
because the tail was torn off in the middle of a write. A full disk refuses the writes that
somebody waits for, and does the others when there is room again, as the real one does
(net/disk.py).
"""

from __future__ import annotations

from random import Random

from gossamer.machine import Forget, Keep, Store


class Disk:
    __slots__ = ("_rng", "contents", "free_at", "full", "pending", "torn", "writes")

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self.contents: dict[str, bytes] = {}
        # Writes that were asked for, the oldest first, and that are not yet on disk.
        self.pending: list[Store] = []
        # The time when the last write that was asked for will be done.
        self.free_at = 0
        self.full = False
        self.writes = 0
        # The number of records that were lost to crashes.
        self.torn = 0

    def ask(self, store: Store, now: int, latency: int) -> int:
        """Queue a write. Returns the time when it will be done if the disk is not full."""
        self.pending.append(store)
        self.free_at = max(now, self.free_at) + latency
        return self.free_at

    def finish(self) -> list[Store]:
        """The oldest write is done. With a full disk, none is."""
        if self.full or not self.pending:
            return []
        store = self.pending.pop(0)
        for record in store.records:
            self._apply(record)
        self.writes += 1
        return [store]

    def refuse(self) -> list[Store]:
        """The writes that a full disk refuses at the time when they would be done.

        These are all that were asked for and that somebody waits for.
        """
        refused = [store for store in self.pending if store.is_awaited]
        self.pending = [store for store in self.pending if not store.is_awaited]
        return refused

    def crash(self) -> None:
        """Keep a random prefix of the writes that are not yet stored."""
        records = [record for store in self.pending for record in store.records]
        kept = int(self._rng.random() * (len(records) + 1))
        for record in records[:kept]:
            self._apply(record)
        self.torn += len(records) - kept
        self.pending.clear()
        self.free_at = 0

    def _apply(self, record: Keep | Forget) -> None:
        if isinstance(record, Keep):
            self.contents[record.key] = record.value
        else:
            self.contents.pop(record.key, None)
