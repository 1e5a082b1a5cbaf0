"""Options of the ``gossamer simulate`` commands, the line that replays a run, and the end of a
run.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.table import Table

from gossamer.cli.common import json_option

Command = Callable[..., Any]
# A flag's name, its type and its help.
Flag = tuple[str, Any, str]
LATENCIES = "constant:1ms, uniform:1ms:10ms, lognormal:20ms:0.5, weibull, matrix:FILE."
RTT = "Round-trip times in ms, a square matrix: --latency matrix:FILE."


def options(flags: Sequence[Flag], *, rtt: bool = True) -> Callable[[Command], Command]:
    """Add the flags of a run. A flag that is not given takes the default of the run's
    configuration.

    A flag of type ``bool`` has no value.
    """

    def add(command: Command) -> Command:
        command = json_option(command)
        if rtt:
            command = click.option("--rtt", metavar="FILE", help=RTT)(command)
        for flag, kind, text in reversed(flags):
            if kind is bool:
                command = click.option(f"--{flag}", is_flag=True, default=None, help=text)(command)
            else:
                command = click.option(f"--{flag}", type=kind, help=text)(command)
        return command

    return add


def fields(given: Mapping[str, Any], *others: str) -> dict[str, Any]:
    """The given fields of the configuration. ``others`` are options that are not fields."""
    told = {
        name: value
        for name, value in given.items()
        if value is not None and name not in ("rtt", *others)
    }
    if given.get("rtt"):
        if given.get("latency"):
            raise click.UsageError(
                "--rtt and --latency both say how long messages take; give one of them"
            )
        told["latency"] = f"matrix:{given['rtt']}"
    return told


def replay(command: str, given: Mapping[str, Any], seed: int, *words: str) -> str:
    """The line that repeats the run."""
    line = ["gossamer", "simulate", command, *words]
    for name, value in (dict(given) | {"seed": seed}).items():
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            line.append(flag)
        elif value is not None and value is not False:
            line += [flag, str(value)]
    return shlex.join(line)


@contextmanager
def usage() -> Iterator[None]:
    """Report a refused configuration as the user's mistake, and not as a failure of the command."""
    from gossamer.sim import ConfigError
    from gossamer.sim.churn import ChurnError
    from gossamer.sim.latency import LatencyError

    try:
        yield
    except (ConfigError, LatencyError, ChurnError) as error:
        raise click.UsageError(str(error)) from None


def finish(
    found: Any,
    told: Mapping[str, Any],
    reasons: Sequence[str],
    show: Callable[[], None],
    *,
    as_json: bool,
) -> int:
    """Print a run, as JSON with ``told`` or by ``show``, and its faults. Return the exit code."""
    if as_json:
        row = found if isinstance(found, dict) else msgspec.to_builtins(found, str_keys=True)
        click.echo(msgspec.json.encode(row | dict(told)).decode())
    else:
        show()
    if told["good"]:
        return 0
    for reason in reasons:
        click.echo(reason, err=True)
    click.echo(f"seed {told['seed']} failed; replay it with:\n  {told['replay']}", err=True)
    return 1


def table(
    title: str,
    rows: Sequence[tuple[str, str]],
    yes: str,
    no: str = "something went wrong",
    *,
    good: bool,
) -> None:
    """Print names and values, and the verdict on them."""
    drawn = Table(title=title, title_justify="left", box=None, show_header=False, pad_edge=False)
    drawn.add_column()
    drawn.add_column(justify="right")
    for name, value in rows:
        drawn.add_row(name, value)
    console = Console()
    console.print(drawn)
    console.print(f"[green]{yes}[/green]" if good else f"[red]{no}[/red]")
