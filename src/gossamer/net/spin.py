"""Staying awake for a moment when the next message is expected at once.

docs/decisions/0017-spinning.md gives the reasons.

A process that sleeps until its socket has data is woken by the process that writes to it. Waking
costs the writer a good part of its system call, and the reader has to get back onto a core.
Together this costs about as much as all that Gossamer does for a lone message
(docs/performance.md). So a node whose messages come in quick succession goes on looking for a
moment before it sleeps, as kernels do with idle processors.

It adapts. Quiet nodes never do it, and nor do nodes whose messages come far apart. A node that
sends or gets much at a time (``bulk``) does not do it either, because the process that it waits for
may need the core. Looking in vain ends it until messages come quickly again. If another process
needs the core, or another thread the interpreter, the node sleeps for a while.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter

SPIN_SECONDS, SPIN_MOST = 0.0005, 0.01
# Messages that come within this time of each other are in quick succession.
QUICK_NS = 1_000_000
# The number of quick arrivals before the node starts to look.
STREAK = 4
# The turns of the loop after an arrival in which the consumers are at work.
WORK_TURNS = 3
# A longer time between two looks means that others had the core meanwhile.
ASIDE_NS = 150_000
# After that, the number of arrivals until the next try.
SHY = 64
# The bytes read or written at once that count as bulk.
BULK_BYTES = 8 << 10


class Spin:
    """Turns the loop without sleeping after an arrival.

    It does so for up to ``seconds``, while arrivals are in quick succession.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, seconds: float, counters: Counter[str]
    ) -> None:
        self._loop, self._counters = loop, counters
        # With a single core the awaited process could not run meanwhile.
        self._limit_ns = int(seconds * 1e9) if (os.cpu_count() or 1) > 1 else 0
        self._streak = 0
        self._arrived = self._looked = 0
        # The turns since the last arrival.
        self._turns = 0
        self._looking = self._bulk = False

    def bulk(self) -> None:
        """Much is sent or received at a time. Until that is over, sleeping saves time."""
        self._bulk = True

    def arrived(self) -> None:
        """A message came, and has been dealt with."""
        now = time.monotonic_ns()
        if self._bulk:
            self._bulk, self._arrived = False, now
            self._streak = min(self._streak, 0)
            return
        is_quick = now - self._arrived < QUICK_NS
        self._arrived, self._turns = now, 0
        if self._streak <= 0 or is_quick:
            self._streak += is_quick
        else:
            self._streak = 0
        if self._streak >= STREAK and self._limit_ns and not self._looking:
            self._looking = True
            self._counters["spins"] += 1
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        """Counts a look. The loop has already looked at its sockets on the way to this call."""
        now = time.monotonic_ns()
        if self._bulk:
            self._looking, self._streak = False, 0
            return
        if self._turns < WORK_TURNS:
            self._turns += 1
            if self._turns == WORK_TURNS:
                # Other processes that need the core take it now, and the next look notices.
                _yield()
        elif now - self._looked > ASIDE_NS:
            self._looking, self._streak = False, -SHY
            self._counters["spins_left_to_others"] += 1
            return
        elif now - self._arrived > self._limit_ns:
            self._looking, self._streak = False, 0
            self._counters["spins_in_vain"] += 1
            return
        self._looked = now
        self._loop.call_soon(self._look)


def _yield() -> None:
    if hasattr(os, "sched_yield"):
        os.sched_yield()
