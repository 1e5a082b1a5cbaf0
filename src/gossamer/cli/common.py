"""What the commands that talk to a fabric share: their options, and leaving cleanly on Ctrl-C."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import click

DEFAULT_ADDRESS = "127.0.0.1:7400"

F = TypeVar("F", bound=Callable[..., Any])


def json_option(command: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, one object a line.")(command)


def join_option(command: F) -> F:
    return click.option(
        "--join",
        multiple=True,
        metavar="HOST:PORT",
        envvar="GOSSAMER_JOIN",
        default=(DEFAULT_ADDRESS,),
        show_default=True,
        help="A node of the fabric; may be given several times.",
    )(command)


def run_until_signal(main: Callable[[asyncio.Event], Coroutine[Any, Any, int]]) -> int:
    """Run ``main(stop)``; SIGINT and SIGTERM set ``stop``, so that it can leave the fabric politely."""
    from gossamer.net.node import run

    async def guarded() -> int:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        return await main(stop)

    code: int = run(guarded())
    return code


async def first_of(work: Coroutine[Any, Any, Any], stop: asyncio.Event, timeout: float | None = None) -> bool:
    """Run the work until it ends (True), or until ``stop`` is set or the time is up (False). Its errors are raised."""
    task, stopped = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({task, stopped}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
            return True
        return False
    finally:
        for future in (task, stopped):
            future.cancel()
        await asyncio.gather(task, stopped, return_exceptions=True)
