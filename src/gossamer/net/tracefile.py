"""The file that a node writes its trace to."""

from __future__ import annotations

import contextlib
import stat
from pathlib import Path
from typing import IO

from gossamer import trace
from gossamer.machine import Peer
from gossamer.net import private
from gossamer.net.errors import NodeError


class TraceFile:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._file: IO[bytes] | None = None

    def open(self, peer: Peer, incarnation: int) -> trace.Writer:
        try:
            if not self._directory.exists():
                private.folder(self._directory, parents=True)
            path = self._directory / f"trace-{trace.hex_peer(peer)}-{incarnation}.jsonl"
            self._file = private.create(path, mode=self._mode(), buffering=1 << 16)
        except OSError as error:
            raise NodeError(
                f"cannot write traces to {self._directory}: {error.strerror or error}"
            ) from None
        return trace.Writer(self._file, peer, incarnation)

    def _mode(self) -> int:
        """Only the owner may read traces, because they contain events.

        Unix marks a directory that a group shares with the set-group-id bit. There the group may
        read the files too.
        """
        mode = self._directory.stat().st_mode
        is_shared = mode & stat.S_ISGID and mode & stat.S_IRGRP
        return private.FILE | stat.S_IRGRP if is_shared else private.FILE

    def close(self) -> None:
        if self._file is not None:
            # A full disk has been counted already.
            with contextlib.suppress(OSError):
                self._file.close()
