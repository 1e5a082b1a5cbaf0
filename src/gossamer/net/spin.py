"""Staying awake for a moment where the next message is expected at once.

A process that sleeps until its socket has something is woken by whoever writes to it. That costs the writer a good part of its
system call and the reader the way back onto a core: together about as much as all that Gossamer does for a lone message
(docs/performance.md). So a node whose messages come in quick succession goes on looking for a moment before it sleeps, as kernels
do with idle processors. It adapts: quiet nodes never do it, and nor do those whose messages come far apart, or that send or get
much at a time (``bulk``: they are no conversation, and whoever they wait for may want the core); looking in vain ends it until
messages come quickly again; and where somebody else wants the core, or the interpreter, it is left for a while.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter

SPIN_SECONDS, SPIN_MOST = 0.0005, 0.01
QUICK_NS = 1_000_000  # messages that come within this time of each other are in quick succession
STREAK = 4  # so many, before it is worth looking
WORK_TURNS = 3  # of the loop after an arrival: those who take what came are at work
ASIDE_NS = 150_000  # between two looks: others had the core meanwhile
SHY = 64  # arrivals until the next try, then
BULK_BYTES = 8 << 10  # read or written at once


class Spin:
    """After an arrival, turns the loop without sleeping for up to ``seconds``, while arrivals are in quick succession."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, seconds: float, counters: Counter[str]
    ) -> None:
        self._loop, self._counters = loop, counters
        self._limit_ns = (
            int(seconds * 1e9) if (os.cpu_count() or 1) > 1 else 0
        )  # whom would it wait for?
        self._streak = 0
        self._arrived = self._looked = 0
        self._turns = 0  # since the last arrival
        self._looking = self._bulk = False

    def bulk(self) -> None:
        """Much is sent or comes at a time: until that is over, time is won by sleeping."""
        self._bulk = True

    def arrived(self) -> None:
        """Something came, and has been dealt with."""
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
        """Being called is all: the loop has looked at its sockets on the way."""
        now = time.monotonic_ns()
        if self._bulk:
            self._looking, self._streak = False, 0
            return
        if self._turns < WORK_TURNS:
            self._turns += 1
            if self._turns == WORK_TURNS:
                _yield()  # whoever else wants the core takes it now, and the next look finds out
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
