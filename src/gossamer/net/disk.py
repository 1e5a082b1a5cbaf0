"""A node's data directory: who it is, its incarnation, and its outbox, in SQLite (WAL mode).

Writes that are asked for close together become one transaction, in a thread of their own, so the event loop never waits for
the disk. They are committed in the order they were asked for.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gossamer.machine import Keep, Peer, Store, Token
from gossamer.net import private

_FILE = "gossamer.sqlite"
_PEER_KEY = "peer"


class DataDirectoryError(OSError):
    """A data directory that cannot be used; says why and what to do."""


class Disk:
    def __init__(
        self, directory: Path, on_failure: Callable[[Exception], None] = lambda error: None
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.failed: Exception | None = None
        self._on_failure = on_failure
        self._waiting: list[tuple[Store, Callable[[Token], None]]] = []
        self._busy = False
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
            # One process a directory: two nodes with one identity would corrupt each other's receipts.
            self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS kept (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID"
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
            raise DataDirectoryError(
                f"cannot use data directory {directory}: {getattr(error, 'strerror', None) or text}; {hint}"
            ) from error

    def kept(self) -> dict[str, bytes]:
        return dict(self._db.execute("SELECT key, value FROM kept ORDER BY key"))

    def peer(self, mine: Peer | None = None) -> Peer:
        """This directory's peer, the same for life: ``mine``, where there are keys, else a random one."""
        row = self._db.execute("SELECT value FROM kept WHERE key = ?", (_PEER_KEY,)).fetchone()
        if row is None:
            peer = secrets.randbits(64) if mine is None else mine
            self._db.execute("INSERT INTO kept VALUES (?, ?)", (_PEER_KEY, b"%016x" % peer))
            return Peer(peer)
        if mine is not None and mine != int(row[0], 16):
            raise DataDirectoryError(
                f"the data directory belongs to node {row[0].decode()}, not to these keys ({mine:016x}); use another directory"
            )
        return Peer(int(row[0], 16))

    def store(self, store: Store, done: Callable[[Token], None]) -> None:
        self._waiting.append((store, done))
        if not self._busy:
            self._busy = True
            self.loop.call_soon(self._commit_next)

    def _commit_next(self) -> None:
        batch, self._waiting = self._waiting, []
        if not batch:
            self._busy = False
            return

        def finished(future: asyncio.Future[None]) -> None:
            error = future.exception()
            if isinstance(error, Exception):
                self.failed = error  # nothing is called stored that is not
                self._on_failure(error)
                return
            for store, done in batch:
                done(store.token)
            self._commit_next()

        self.loop.run_in_executor(
            self._thread, self._commit, [store for store, _ in batch]
        ).add_done_callback(finished)

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
            with contextlib.suppress(sqlite3.Error):  # the first error is the one to tell
                self._db.execute("ROLLBACK")
            raise

    async def close(self) -> None:
        """Finish what was asked for, then let go of the directory, come what may."""
        try:
            if self.failed is None:
                waiting, self._waiting = [store for store, _ in self._waiting], []
                await self.loop.run_in_executor(self._thread, self._commit, waiting)
        except sqlite3.Error as error:
            self.failed = error
        finally:
            self._thread.shutdown(wait=True)
            self._db.close()
