"""The trace files that a simulated run leaves: those of its nodes, as live nodes write them.

Many things happen within one microsecond of virtual time, and their order decides which events are
due. So no two records have the same time: a record that would have the time of the one before gets
the next microsecond.
"""

from __future__ import annotations

import io
from pathlib import Path

from gossamer.trace import Record, Writer, hex_peer


class Traces:
    """One file for each life of a node, by its name."""

    def __init__(self) -> None:
        self._files: dict[str, io.BytesIO] = {}
        self._writers: dict[tuple[int, int], Writer] = {}
        self._latest = 0

    def add(self, peer: int, incarnation: int, now: int, record: Record) -> None:
        writer = self._writers.get((peer, incarnation))
        if writer is None:
            file = self._files[f"{hex_peer(peer)}-{incarnation}.jsonl"] = io.BytesIO()
            writer = self._writers[peer, incarnation] = Writer(file, peer, incarnation)
        self._latest = max(self._latest + 1, now)
        writer.write(self._latest, record)

    def files(self) -> dict[str, bytes]:
        return {name: file.getvalue() for name, file in self._files.items()}

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in self.files().items():
            (folder / name).write_bytes(content)
