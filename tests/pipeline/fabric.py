"""A live fabric for tests of Spark's reads and writes."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

SCHEMA = "city STRING, temp INT, at TIMESTAMP"
CITIES = ("Geneva", "Zurich", "Basel")


def events(first: int, last: int) -> list[dict[str, Any]]:
    from datetime import UTC, datetime, timedelta

    began = datetime(2026, 5, 1, tzinfo=UTC)
    return [
        {"city": CITIES[n % 3], "temp": n, "at": began + timedelta(seconds=n)}
        for n in range(first, last)
    ]


def until(condition: Any, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.02)


def finish(start: Any) -> None:
    """Run a query to its end, and again if a Python process of Spark did not start in time.

    Spark gives such a process 10 s, which may be too short on a busy machine. The query continues
    as after any crash.
    """
    for _ in range(6):
        query = start()
        try:
            query.awaitTermination(240)
            return
        except Exception as error:
            if "failed to connect back" not in str(error):
                raise
    raise AssertionError("Spark's Python processes do not start")


def kill(tmp_path: Path) -> None:
    """Kill the gateway that has this data directory."""
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = process.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"gossamer.pipeline.gateway" in words and any(
            str(tmp_path).encode() in word for word in words
        ):
            os.kill(int(process.parent.name), signal.SIGKILL)
