"""Virtual time: durations as text, and one heap of what happens next.

Entries order by (time, sequence number), so that ties are settled by who came first and never by comparing payloads.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from gossamer.machine import Micros

_UNITS = {"us": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(us|ms|s|m)\s*", re.ASCII)


class DurationError(ValueError):
    """Text that is no duration."""


def duration(text: str) -> Micros:
    """``"250ms"`` -> 250000. Units: us, ms, s, m."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise DurationError(f"{text!r} is no duration; write a number and a unit, such as 250ms, 1.5s or 2m")
    return Micros(round(float(match[1]) * _UNITS[match[2]]))


def duration_text(micros: int) -> str:
    """The shortest exact text: 250000 -> ``"250ms"``."""
    for unit in ("s", "ms"):
        if micros % _UNITS[unit] == 0:
            return f"{micros // _UNITS[unit]}{unit}"
    return f"{micros}us"


Act = Callable[[Any, Any, Any], None]


class Clock:
    """What happens next, and when. Acts take three arguments, so that an entry is one flat tuple."""

    __slots__ = ("_heap", "_sequence", "now", "steps")

    def __init__(self) -> None:
        self.now = Micros(0)
        self.steps = 0  # acts done so far: orders what happens within one microsecond
        self._sequence = 0
        self._heap: list[tuple[int, int, Act, Any, Any, Any]] = []

    def push(self, at: int, act: Act, x: Any = None, y: Any = None, z: Any = None) -> None:
        self._sequence = sequence = self._sequence + 1
        heappush(self._heap, (at, sequence, act, x, y, z))

    def call(self, at: int, act: Callable[[], None]) -> None:
        """For what happens rarely, where three arguments are a nuisance."""
        assert at >= self.now, "the past is closed"
        self.push(at, _bare, act)

    def run(self, until: int, steps_max: int) -> bool:
        """Go on until this time, or for so many steps. Returns whether anything is left before ``until``."""
        heap = self._heap
        end = self.steps + steps_max
        while heap and heap[0][0] <= until:
            if self.steps >= end:
                return True
            at, _, act, x, y, z = heappop(heap)
            self.now = Micros(at)
            self.steps += 1
            act(x, y, z)
        return False

    @property
    def next_at(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def __len__(self) -> int:
        return len(self._heap)


def _bare(act: Callable[[], None], _y: None, _z: None) -> None:
    act()
