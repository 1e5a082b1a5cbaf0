"""The file that a node writes its trace to."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import IO

from gossamer import trace
from gossamer.machine import Peer
from gossamer.net.errors import NodeError


class TraceFile:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._file: IO[bytes] | None = None

    def open(self, peer: Peer, incarnation: int) -> trace.Writer:
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            name = f"trace-{trace.hex_peer(peer)}-{incarnation}.jsonl"
            self._file = (self._directory / name).open("wb", buffering=1 << 16)
        except OSError as error:
            raise NodeError(
                f"cannot write traces to {self._directory}: {error.strerror or error}"
            ) from None
        return trace.Writer(self._file, peer, incarnation)

    def close(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):  # a full disk has been counted already
                self._file.close()
