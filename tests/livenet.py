"""What tests on real sockets share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import gossamer
from gossamer.net.loop import run
from gossamer.node import wire

HELLO = wire.encode(wire.Hello(wire.MAGIC, wire.VERSION, wire.VERSION, 77, 1, ""))
WEATHER = "country STRING, city STRING, temp INT"
GENEVA = {"country": "CH", "city": "Geneva", "temp": 31}
# This is a limit and no measure: on a busy machine a process takes seconds to start.
SECONDS = 60.0


def go(main: Coroutine[Any, Any, Any]) -> Any:
    """Run it, within limits, on the loop that users get."""
    return run(asyncio.wait_for(main, SECONDS))


async def until(condition: Callable[[], object]) -> None:
    """Wait for a condition that other tasks bring about; ``go`` limits the time."""
    while not condition():
        await asyncio.sleep(0.005)


async def take(events: gossamer.Subscription, count: int) -> list[gossamer.Event]:
    return [await anext(events) for _ in range(count)]


class Others:
    """A task beside the one that is tested; ``turns``: how often the event loop came to it."""

    def __init__(self) -> None:
        self.turns = 0
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            self.turns += 1
            await asyncio.sleep(0)

    def stop(self) -> int:
        self._task.cancel()
        return self.turns
