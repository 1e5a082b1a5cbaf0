"""Virtual time: durations as text, and a calendar of coming events.

Entries are in the order of (time, sequence number). So ties are settled by the order in which the
entries came, and never by comparing payloads.
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
        raise DurationError(
            f"{text!r} is no duration; write a number and a unit, such as 250ms, 1.5s or 2m"
        )
    return Micros(round(float(match[1]) * _UNITS[match[2]]))


def duration_text(micros: int) -> str:
    """The shortest exact text: 250000 -> ``"250ms"``."""
    for unit in ("s", "ms"):
        if micros % _UNITS[unit] == 0:
            return f"{micros // _UNITS[unit]}{unit}"
    return f"{micros}us"


Act = Callable[[Any, Any, Any], None]
_Entry = tuple[int, int, Act, Any, Any, Any]
# The bits of the microseconds that one slot of the calendar spans.
SLOT_BITS = 10


class Clock:
    """A calendar of the acts to come.

    Acts take three arguments, so that an entry is one flat tuple. The acts within one slot of about
    a millisecond are a plain list, which is sorted when its time comes. So an entry costs an append
    and its share of a sort, whatever the number of timers. In one heap it would cost a walk through
    memory.
    """

    __slots__ = ("_late", "_present", "_ready", "_sequence", "_slots", "_times", "now", "steps")

    def __init__(self) -> None:
        self.now = Micros(0)
        # The acts done so far. Their number orders everything that happens within one microsecond.
        self.steps = 0
        self._sequence = 0
        # The slots of the future.
        self._slots: dict[int, list[_Entry]] = {}
        # A heap of the numbers of these slots.
        self._times: list[int] = []
        # The slot that was opened last.
        self._present = -1
        # The remaining entries of that slot, the last first.
        self._ready: list[_Entry] = []
        # A heap of the entries that were pushed into that slot, or before it, since then.
        self._late: list[_Entry] = []

    def push(self, at: int, act: Act, x: Any = None, y: Any = None, z: Any = None) -> None:
        self._sequence = sequence = self._sequence + 1
        number = at >> SLOT_BITS
        if number > self._present:
            slot = self._slots.get(number)
            if slot is not None:
                slot.append((at, sequence, act, x, y, z))
            else:
                self._slots[number] = [(at, sequence, act, x, y, z)]
                heappush(self._times, number)
        else:
            heappush(self._late, (at, sequence, act, x, y, z))

    def call(self, at: int, act: Callable[[], None]) -> None:
        """For acts that are rare, where three arguments are a nuisance."""
        assert at >= self.now, "the past is closed"
        self.push(at, _bare, act)

    def run(self, until: int, steps_max: int) -> bool:
        """Go on until this time, or for this number of steps.

        Returns whether anything is left before ``until``.
        """
        late = self._late
        end = self.steps + steps_max
        while True:
            ready = self._ready
            source = late if late and (not ready or late[0] < ready[-1]) else ready
            if not source:
                if not self._times or self._times[0] << SLOT_BITS > until:
                    return False
                self._open()
                continue
            if source is late:
                if late[0][0] > until:
                    return False
                if self.steps >= end:
                    return True
                at, _, act, x, y, z = heappop(late)
            else:
                if ready[-1][0] > until:
                    return False
                if self.steps >= end:
                    return True
                at, _, act, x, y, z = ready.pop()
            self.now = at  # type: ignore[assignment]  # a call for each act otherwise
            self.steps += 1
            act(x, y, z)

    def _open(self) -> None:
        self._present = heappop(self._times)
        self._ready = self._slots.pop(self._present)
        self._ready.sort(reverse=True)

    @property
    def next_at(self) -> int | None:
        known = [
            entries[place][0] for entries, place in ((self._late, 0), (self._ready, -1)) if entries
        ]
        if not known and self._times:
            known = [min(self._slots[self._times[0]])[0]]
        return min(known, default=None)

    def __len__(self) -> int:
        return len(self._late) + len(self._ready) + sum(len(slot) for slot in self._slots.values())


def _bare(act: Callable[[], None], _y: None, _z: None) -> None:
    act()
