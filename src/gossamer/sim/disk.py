"""A disk with latency and faults.

Writes finish in the order they were asked for. What ``stored`` was told of survives every crash; of the rest a crash keeps
some prefix of the records, drawn at random: the tail was torn off in the middle of a write. A full disk refuses what somebody
waits for, and writes the rest when there is room again, as the real one does (net/disk.py).
"""

from __future__ import annotations

from random import Random

from gossamer.machine import Forget, Keep, Store


class Disk:
    __slots__ = ("_rng", "contents", "free_at", "full", "pending", "torn", "writes")

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self.contents: dict[str, bytes] = {}
        self.pending: list[Store] = []  # asked for, oldest first, not yet on disk
        self.free_at = 0  # when the last write asked for will be done
        self.full = False
        self.writes = 0
        self.torn = 0  # records lost to crashes

    def ask(self, store: Store, now: int, latency: int) -> int:
        """Queue a write; returns when it will be done if the disk is not full."""
        self.pending.append(store)
        self.free_at = max(now, self.free_at) + latency
        return self.free_at

    def finish(self) -> list[Store]:
        """The oldest write is done; with a full disk, none is."""
        if self.full or not self.pending:
            return []
        store = self.pending.pop(0)
        for record in store.records:
            self._apply(record)
        self.writes += 1
        return [store]

    def refuse(self) -> list[Store]:
        """What a full disk refuses at the time when it would be written: all that is asked for and awaited."""
        refused = [store for store in self.pending if store.is_awaited]
        self.pending = [store for store in self.pending if not store.is_awaited]
        return refused

    def crash(self) -> None:
        """Keep a random prefix of what is not yet stored."""
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
