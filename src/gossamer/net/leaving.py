"""What a node that leaves does first, unless it is told to hurry.

It reports what others wait for, makes sure that they have read it, and lets its neighbours open other links.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gossamer.net.driver import Driver
from gossamer.node import NodeCore

GOODBYE_SECONDS = 1.0  # how long a node that leaves waits for its neighbours to open other links
REPORT_SECONDS = 1.0  # how long a node that leaves goes on relaying what it has begun
HEARD_SECONDS = 1.0  # how long it waits for those who are linked to read what it has said


async def reported(core: NodeCore, driver: Driver, hurries: Callable[[], bool]) -> None:
    """Report what others wait for: who leaves with an event taken but not reported would not be counted."""
    planes, loop = core.routing.planes, driver.loop
    mine = {route: set(plane.under_way(driver.now())) for route, plane in planes.items()}
    until = loop.time() + REPORT_SECONDS
    while (
        loop.time() < until
        and not hurries()
        and any(not mine[route].isdisjoint(planes[route].under_way(driver.now())) for route in mine)
    ):
        await asyncio.sleep(0.002)
    await _heard(driver, hurries)


async def _heard(driver: Driver, hurries: Callable[[], bool]) -> None:
    """The news that this node has left may come by others, and so before its last word, which nobody would wait for then."""
    driver.wake()
    asked = list(driver.links.values())
    for connection in asked:
        connection.ping(last=True)
    until = driver.loop.time() + HEARD_SECONDS
    while (
        driver.loop.time() < until
        and not hurries()
        and any(each.unanswered and not each.closed for each in asked)
    ):
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
