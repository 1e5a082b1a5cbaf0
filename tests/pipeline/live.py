"""Trace files of live nodes, made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gossamer import trace

A, B = 0xA, 2**64 - 1
SCHEMA = "name STRING, size BIGINT, ratio DOUBLE, at TIMESTAMP, data BINARY"
Record = tuple[int, trace.Record]


def write(
    folder: Path, node: int, records: Sequence[Record], incarnation: int = 1, tail: bytes = b""
) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{trace.hex_peer(node)}-{incarnation}.jsonl"
    with path.open("wb") as file:
        writer = trace.Writer(file, node, incarnation)
        for at, record in records:
            writer.write(at, record)
        file.write(tail)
    return path


def subscribe(at: int, number: int, text: str, took: int = 2) -> list[Record]:
    return [(at, trace.Subscribing(number, "t", text)), (at + took, trace.Subscribed(number))]


def publish(at: int, sequence: int, values: dict[str, Any], took: int = 5) -> list[Record]:
    published = (at, trace.Published("t", sequence, 1, trace.plain(values)))
    return [published, (at + took, trace.Completed(sequence, 1, 0))] if took else [published]


def delivered(at: int, number: int, sequence: int, hops: int = 1) -> Record:
    return at, trace.Delivered(number, trace.hex_peer(A), 1, sequence, hops)


ADVERTISED = (0, trace.Advertised("t", SCHEMA))
