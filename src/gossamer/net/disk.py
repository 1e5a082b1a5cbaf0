"""A node's data directory, in SQLite (WAL mode).

It has the node's identity, its incarnation, and its outbox. Writes that are requested close
together become one transaction. It runs in a thread of its own, so the event loop never waits for
the disk. Writes are committed in the order of the requests.

A disk that is full or broken refuses a whole transaction, and nothing of it is written. Then the
awaited Stores among all requests so far are reported as lost at once. The records of the other
Stores are owed: they are written first when the disk works again. The disk is tried again with the
next Store, and every ``AGAIN_SECONDS``.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gossamer.machine import Forget, Keep, Peer, Store, Token
from gossamer.net import private

AGAIN_SECONDS = 1.0
_FILE = "gossamer.sqlite"
_PEER_KEY = "peer"
_PROBE_KEY, _PROBE_BYTES = "probe", 64 << 10


class DataDirectoryError(OSError):
    """A data directory that cannot be used. The message says why, and what to do."""


class Disk:
    def __init__(
        self,
        directory: Path,
        on_failure: Callable[[Exception], None] = lambda error: None,
        on_recovery: Callable[[], None] = lambda: None,
    ) -> None:
        """``on_failure`` is called when a write fails and the one before it did not.

        ``on_recovery`` is called when a write works again.
        """
        self.loop = asyncio.get_running_loop()
        # The error of the last write, or None if it worked.
        self.failed: Exception | None = None
        self._on_failure = on_failure
        self._on_recovery = on_recovery
        # Called with the awaited Stores that are lost.
        self.lost: Callable[[list[Token]], None] = lambda tokens: None
        self._waiting: list[tuple[Store, Callable[[Token], None]]] = []
        # Records, by key, that the disk did not take and that nothing waits for. They are written
        # first.
        self._owed: dict[str, Keep | Forget] = {}
        self._running: asyncio.Future[None] | None = None
        self._is_due = self._is_closed = False
        self._again: asyncio.TimerHandle | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="gossamer-disk")
        try:
            # SQLite gives its other files the mode of this one.
            private.folder(directory.resolve(), parents=True, holds=(_FILE,))
            private.file(directory / _FILE)
            for other in ("-wal", "-shm", "-journal"):
                private.tighten(directory / f"{_FILE}{other}")
            self._db = sqlite3.connect(
                directory / _FILE, check_same_thread=False, isolation_level=None, timeout=0.5
            )
            # Only one process may use a directory: two nodes with one identity would corrupt each
            # other's receipts.
            self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS kept"
                " (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID"
            )
        except (OSError, sqlite3.Error) as error:
            self._thread.shutdown(wait=False)
            if hasattr(self, "_db"):
                self._db.close()
            text = str(error)
            if isinstance(error, private.NotPrivateError):
                raise DataDirectoryError(f"cannot use data directory {directory}: {text}") from None
            hint = (
                "is another node using it?" if "locked" in text else "is it a writable directory?"
            )
            hint = "free some space" if " full" in text or "No space" in text else hint
            reason = getattr(error, "strerror", None) or text
            raise DataDirectoryError(
                f"cannot use data directory {directory}: {reason}; {hint}"
            ) from error

    def kept(self) -> dict[str, bytes]:
        return dict(self._db.execute("SELECT key, value FROM kept ORDER BY key"))

    def peer(self, mine: Peer | None = None) -> Peer:
        """This directory's peer, which never changes.

        With keys it is ``mine``, and otherwise a random number.
        """
        row = self._db.execute("SELECT value FROM kept WHERE key = ?", (_PEER_KEY,)).fetchone()
        if row is None:
            peer = secrets.randbits(64) if mine is None else mine
            self._db.execute("INSERT INTO kept VALUES (?, ?)", (_PEER_KEY, b"%016x" % peer))
            return Peer(peer)
        if mine is not None and mine != int(row[0], 16):
            raise DataDirectoryError(
                f"the data directory belongs to node {row[0].decode()}, not to these keys "
                f"({mine:016x}); use another directory"
            )
        return Peer(int(row[0], 16))

    def store(self, store: Store, done: Callable[[Token], None]) -> None:
        """Writes a Store, and calls ``done`` when it is on disk.

        A Store that never will be is reported by ``lost``.
        """
        self._waiting.append((store, done))
        if self._running is None and not self._is_due:
            self._is_due = True
            self.loop.call_soon(self._commit_next)

    def _commit_next(self) -> None:
        self._is_due = False
        if self._running is not None or self._is_closed or not (self._waiting or self._owed):
            return
        batch, self._waiting = self._waiting, []
        stores = [*self._debts(), *(store for store, _ in batch)]

        def finished(future: asyncio.Future[None]) -> None:
            self._running = None
            error = future.exception()
            if isinstance(error, Exception):
                self._fail(error, batch)
                return
            self._owed.clear()
            if self.failed is not None:
                self.failed = None
                self.store(Store(Token(0), (Forget(_PROBE_KEY),)), lambda token: None)
                self._on_recovery()
            for store, done in batch:
                done(store.token)
            self._commit_next()

        self._running = self.loop.run_in_executor(self._thread, self._commit, stores)
        self._running.add_done_callback(finished)

    def _debts(self) -> list[Store]:
        """The records of earlier Stores that the disk did not take and that nothing waits for."""
        return [Store(Token(0), tuple(self._owed.values()))] if self._owed else []

    def _fail(self, error: Exception, batch: list[tuple[Store, Callable[[Token], None]]]) -> None:
        """Handles a failed write: nothing of this batch is on disk.

        Later requests may build on it, so nothing of them is written either.
        """
        batch, self._waiting = batch + self._waiting, []
        is_news, self.failed = self.failed is None, error
        # The next attempt writes and removes this record. If that succeeds, the disk is known to
        # work.
        self._owe(Keep(_PROBE_KEY, bytes(_PROBE_BYTES)))
        tokens: list[Token] = []
        for store, _ in batch:
            if store.is_awaited:
                tokens.append(store.token)
            else:
                for record in store.records:
                    self._owe(record)
        if self._again is None and not self._is_closed:
            self._again = self.loop.call_later(AGAIN_SECONDS, self._try_again)
        if is_news:
            self._on_failure(error)
        if tokens:
            self.lost(tokens)

    @property
    def owed(self) -> int:
        """The number of records that wait for the disk to work again."""
        return len(self._owed)

    def _owe(self, record: Keep | Forget) -> None:
        """Keeps a record until the disk works again.

        There is one for each key, so their number is limited by the keys of the disk.
        """
        self._owed.pop(record.key, None)
        self._owed[record.key] = record

    def _try_again(self) -> None:
        self._again = None
        if self.failed is not None:
            self._commit_next()

    def _commit(self, stores: list[Store]) -> None:
        self._db.execute("BEGIN")
        try:
            for store in stores:
                for record in store.records:
                    if isinstance(record, Keep):
                        self._db.execute(
                            "INSERT OR REPLACE INTO kept VALUES (?, ?)", (record.key, record.value)
                        )
                    else:
                        self._db.execute("DELETE FROM kept WHERE key = ?", (record.key,))
            self._db.execute("COMMIT")
        except BaseException:
            # The first error is the one to report.
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            raise

    async def close(self) -> None:
        """Finishes the requests and then lets go of the directory, even after an error."""
        try:
            while self._running is not None:
                await asyncio.wait([self._running])
            self._is_closed = True
            if self._again is not None:
                self._again.cancel()
            stores = [*self._debts(), *(store for store, _ in self._waiting)]
            self._waiting = []
            if stores:
                await self.loop.run_in_executor(self._thread, self._commit, stores)
        except sqlite3.Error as error:
            self.failed = error
        finally:
            self._thread.shutdown(wait=True)
            self._db.close()
