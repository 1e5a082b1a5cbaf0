"""The steps of a node before it leaves, unless it is told to hurry.

It reports events that others wait for, makes sure that they have read the reports, and lets its
neighbours open other links.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gossamer.net.driver import Driver
from gossamer.node import NodeCore

# The time that a leaving node waits for its neighbours to open other links.
GOODBYE_SECONDS = 1.0
# The time that a leaving node goes on relaying batches that are under way.
REPORT_SECONDS = 1.0
# The time that it waits for its neighbours to read its last messages.
HEARD_SECONDS = 1.0


async def reported(core: NodeCore, driver: Driver, hurries: Callable[[], bool]) -> None:
    """Reports events that others wait for.

    A node that took an event and left without a report would not be counted.
    """
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
    """Waits until the neighbours have read this node's last messages.

    Other nodes may spread the news that this node has left faster than its last message arrives.
    Then a neighbour would not wait for that message.
    """
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
    """Says goodbye and waits: the neighbours open other links before ours go."""
    interest, loop = core.interest, driver.loop
    assert interest is not None
    core.say_goodbye(driver.now())
    driver.wake()
    until = loop.time() + GOODBYE_SECONDS
    while loop.time() < until and not hurries() and not interest.may_go:
        await asyncio.sleep(0.005)
