"""Options and functions that the commands of a fabric share, among them leaving cleanly on
Ctrl-C.
"""

from __future__ import annotations

import asyncio
import math
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import click

DEFAULT_ADDRESS = "127.0.0.1:7400"
INTERRUPTED = 130

F = TypeVar("F", bound=Callable[..., Any])


class SecondsFlag(click.ParamType[float]):
    """A number of seconds that is not negative and not nan."""

    name = "seconds"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            seconds = float(value)
        except ValueError:
            seconds = math.nan
        if not 0 <= seconds < math.inf:
            self.fail(f"{value!r} is not a number of seconds", param, ctx)
        return seconds


class Stop(asyncio.Event):
    """Set by SIGINT and SIGTERM.

    A command that watches it by itself is ``patient``. Any other command is cancelled.
    """

    patient = False


def json_option(command: F) -> F:
    return click.option(
        "--json", "as_json", is_flag=True, help="Print JSON, one object on each line."
    )(command)


def node_option(command: F) -> F:
    """The option that chooses one of the nodes that run here, for ``admin.find``."""
    return click.option(
        "--node",
        "address",
        metavar="HOST:PORT",
        help="Ask the node that listens there.  "
        f"[default: the only node, or of several the one at {DEFAULT_ADDRESS}]",
    )(command)


def _addresses(
    ctx: click.Context, param: click.Parameter, given: tuple[str, ...]
) -> tuple[str, ...]:
    """Split addresses at commas or spaces, as ``gossamer node`` reads GOSSAMER_JOIN."""
    return tuple(address for one in given for address in one.replace(",", " ").split())


def join_option(command: F) -> F:
    return click.option(
        "--join",
        multiple=True,
        callback=_addresses,
        metavar="HOST:PORT",
        envvar="GOSSAMER_JOIN",
        default=(DEFAULT_ADDRESS,),
        show_default=True,
        show_envvar=True,
        help="A node of the fabric; may be given several times.",
    )(command)


def node_options(command: F) -> F:
    """Add the options of every command that is a node of its own."""
    for option in (
        click.option(
            "--keys",
            type=click.Path(path_type=Path, file_okay=False),
            envvar="GOSSAMER_KEYS",
            show_envvar=True,
            help="This node's keys (gossamer keys): TLS.",
        ),
        click.option(
            "--trace-dir",
            type=click.Path(path_type=Path, file_okay=False),
            help="Write traces for 'pipeline verify'.",
        ),
        click.option(
            "--fabric",
            default="",
            envvar="GOSSAMER_FABRIC",
            show_envvar=True,
            help="Only nodes of the same fabric name talk to each other.",
        ),
        click.option(
            "--wait",
            type=SecondsFlag(),
            default=10.0,
            show_default=True,
            help="Seconds to wait for the fabric and the topic.",
        ),
    ):
        command = option(command)
    return command


def run_until_signal(main: Callable[[Stop], Coroutine[Any, Any, int]]) -> int:
    """Run ``main(stop)`` until it ends, or until SIGINT or SIGTERM.

    A signal lets a patient command end by itself and cancels any other. Both leave the fabric
    politely.
    """
    from gossamer.net.loop import run

    async def guarded() -> int:
        stop = Stop()
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(main(stop))

        def interrupted() -> None:
            if stop.is_set() or not stop.patient:
                task.cancel()
            stop.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, interrupted)
        try:
            return await task
        except asyncio.CancelledError:
            return INTERRUPTED

    code: int = run(guarded())
    return code


async def first_of(
    work: Coroutine[Any, Any, Any], stop: Stop, timeout: float | None = None
) -> bool:
    """Run the work until it ends (True), or until ``stop`` is set or the time is up (False).

    Errors of the work are raised.
    """
    stop.patient = True
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
