"""What the limits of a node may be, in one table, and the checks that say it by name.

Users give times in seconds, as whole or broken numbers; the machines count microseconds.
"""

from __future__ import annotations

import math
from typing import Any

from gossamer.overlay.batch import BATCH_BYTES_MAX, BATCH_EVENTS_MAX, COLUMN_ROWS, WINDOW_MAX

WHOLE: dict[str, tuple[int, int]] = {
    "window": (1, WINDOW_MAX // 2),
    "window_bytes": (1, 1 << 40),
    "batch_events": (1, BATCH_EVENTS_MAX // COLUMN_ROWS),
    "batch_bytes": (1, BATCH_BYTES_MAX),
    "event_bytes": (1, BATCH_BYTES_MAX),
    "buffer": (1, 1 << 30),
    "subscriptions": (0, 1 << 30),
    "durable": (1, 1 << 30),
    "retained": (0, 1 << 40),
}
"""Whole numbers: from, to."""

SECONDS: dict[str, tuple[float, float]] = {"block": (0.001, 86_400.0)}
"""Seconds: from, to."""

SECONDS_MAX = 366 * 86_400.0
"""The longest wait that may be asked for: a year."""


def check_whole(name: str, value: Any, low: int, high: int) -> None:
    """ValueError unless it is a whole number within these bounds."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"{name} is {value!r}; it must be a whole number from {low} to {high}")


def check_seconds(name: str, value: Any, low: float = 0.0, high: float = SECONDS_MAX) -> None:
    """ValueError unless it is a number of seconds within these bounds."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or math.isnan(value) or not low <= value <= high:
        raise ValueError(
            f"{name} is {value!r}; it must be a number of seconds from {low:g} to {high:g}"
        )


def check_limits(config: Any) -> None:
    """All limits of these two tables that a configuration has."""
    for name in config.__struct_fields__:
        if name in WHOLE:
            check_whole(name, getattr(config, name), *WHOLE[name])
        elif name in SECONDS:
            check_seconds(name, getattr(config, name), *SECONDS[name])
