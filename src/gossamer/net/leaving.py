"""What a node that leaves does first, unless it is told to hurry.

It reports what others wait for, and lets its neighbours open other links.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gossamer.net.driver import Driver
from gossamer.node import NodeCore

GOODBYE_SECONDS = 1.0  # how long a node that leaves waits for its neighbours to open other links
REPORT_SECONDS = 1.0  # how long a node that leaves goes on relaying what it has begun


async def reported(core: NodeCore, driver: Driver, hurries: Callable[[], bool]) -> None:
    """Report what others wait for: who leaves with an event taken but not reported would not be counted."""
    flood, loop = core.flood, driver.loop
    mine, until = flood.under_way(), loop.time() + REPORT_SECONDS
    while loop.time() < until and not hurries() and any(flood.is_under_way(key) for key in mine):
        await asyncio.sleep(0.002)


async def said_goodbye(core: NodeCore, driver: Driver, hurries: Callable[[], bool]) -> None:
    """Link before unlink: the neighbours open other links before ours go."""
    interest, loop = core.interest, driver.loop
    assert interest is not None
    core.say_goodbye(driver.now())
    driver.wake()
    until = loop.time() + GOODBYE_SECONDS
    while loop.time() < until and not hurries() and not interest.may_go:
        await asyncio.sleep(0.005)
