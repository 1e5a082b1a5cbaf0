"""``gossamer simulate skiplist``: the experiments of seed 001, and the skip list under churn."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.console import Console
from rich.table import Table

from gossamer.cli.common import json_option
from gossamer.cli.progress import Bar

if TYPE_CHECKING:
    from gossamer.lab.skiplist.config import Setup
    from gossamer.lab.skiplist.measure import Measured
    from gossamer.lab.skiplist.ranges import Compared

_ROWS: tuple[tuple[str, str, str], ...] = (
    ("entries", "entries in the list", "{:,}"),
    ("levels", "levels", "{}"),
    ("links_max", "links of an entry, most", "{}"),
    ("perfect", "perfect", "{}"),
    ("converge_periods", "periods from the last join to the perfect list", "{:.0f}"),
    ("reperfect_periods", "periods until perfect again", "{:.0f}"),
    ("bytes_per_entry_period", "bytes out of an entry in a quiet period", "{:,.1f}"),
    ("compared_per_event", "filters that an event is compared with", "{:,.1f}"),
    ("expected", "deliveries expected", "{:,}"),
    ("delivered", "delivered", "{:,}"),
    ("missed", "missed", "{:,}"),
    ("duplicate", "duplicate", "{:,}"),
    ("spurious", "spurious", "{:,}"),
    ("messages", "messages", "{:,}"),
    ("digest", "digest", "{}"),
)


@click.command()
@click.option(
    "--entries",
    type=int,
    help="Subscriptions in the list; above 50000 by a model of the perfect list. [1000]",
)
@click.option("--per-node", type=int, help="Of them at each node. [1]")
@click.option("--events", type=int, help="Events to publish. [2500]")
@click.option("--k", type=int, help="A link of level l spans k^l entries. [2]")
@click.option(
    "--workload",
    type=click.Choice(["synthetic", "trace", "zipf"]),
    help="Filters and events. [synthetic]",
)
@click.option(
    "--trace",
    metavar="FOLDER|FILE",
    help="With --workload trace: files.csv.gz and peer_files.csv.gz; or one .csv.gz with peer, name, type, size; or the word "
    "sample: what comes with gossamer. [a stand-in, fitted to them]",
)
@click.option(
    "--kinds",
    type=click.Choice(["point", "mixed"]),
    help="Equalities only, or also ranges, wildcards, IN. [point]",
)
@click.option(
    "--routing",
    type=click.Choice(["gossamer", "paper"]),
    help="With midpoints and in parallel, or greedy. [gossamer]",
)
@click.option(
    "--grow-from",
    type=int,
    help="The seed's Figure 5: grow from so many, an event to each newcomer. [no]",
)
@click.option(
    "--churn", type=float, help="Share of the entries that crash, and that join, each minute. [0]"
)
@click.option("--churn-s", type=float, help="Virtual seconds of churn. [60]")
@click.option(
    "--compare-ranges",
    is_flag=True,
    help="Instead: ranges by cells beside the seed's routing entries.",
)
@click.option(
    "--latency",
    help="constant:1ms, uniform:1ms:10ms, lognormal:20ms:0.5, weibull, matrix:FILE. [constant:10ms]",
)
@click.option(
    "--rtt", metavar="FILE", help="Round-trip times in ms, a square matrix: --latency matrix:FILE."
)
@click.option("--period", help="The seed's t: level l gossips every t * (l + 1). [1s]")
@click.option(
    "--pace",
    type=click.Choice(["paper", "prompt"]),
    help="Levels come with the periods, or as nodes do, at once. [paper]",
)
@click.option("--seed", type=int, help="Everything random comes from this number. [0]")
@json_option
def skiplist(as_json: bool, compare_ranges: bool, **given: Any) -> int:
    """Content filters in dictionary order, linked by gossip into a perfect skip list.

    Builds the list by joins, waits until it is perfect, publishes events from random nodes and compares what arrives with an
    oracle; all in virtual time. Hops are counted until an event is delivered everywhere or discarded; noise is what a peer gets
    without wanting it, as a share of the events. Exit code 1 if anything was missed, came twice or was not wanted, or the list is
    not perfect.

    \b
    Examples:
      gossamer simulate skiplist --entries 1000 --events 2500 --k 2 --workload synthetic --seed 7 --json
      gossamer simulate skiplist --routing paper
      gossamer simulate skiplist --workload trace --grow-from 300
      gossamer simulate skiplist --entries 300 --churn 0.1 --rtt PlanetLabData_1.gz
      gossamer simulate skiplist --entries 1000000 --events 100000
      gossamer simulate skiplist --entries 200 --compare-ranges
    """
    from gossamer.lab.skiplist.measure import measure
    from gossamer.lab.skiplist.ranges import compare
    from gossamer.sim import ConfigError
    from gossamer.sim.latency import LatencyError

    try:
        setup = _configure(given)
        with Bar("simulating") as bar:
            if compare_ranges:
                return _finish_ranges(compare(setup, bar.update), as_json)
            measured = measure(setup, bar.update)
            seconds = bar.seconds
        return _finish(setup, given, measured, seconds, as_json)
    except (ConfigError, LatencyError) as error:
        raise click.UsageError(str(error)) from None


def _configure(given: dict[str, Any]) -> Setup:
    from gossamer.lab.skiplist.config import Setup

    fields = {name: value for name, value in given.items() if value is not None and name != "rtt"}
    if given["rtt"]:
        if given["latency"]:
            raise click.UsageError(
                "--rtt and --latency both say how long messages take; give one of them"
            )
        fields["latency"] = f"matrix:{given['rtt']}"
    if given["trace"] and given["workload"] not in (None, "trace"):
        raise click.UsageError("--trace goes with --workload trace")
    if given["trace"]:
        fields["workload"] = "trace"
    if given["grow_from"] and given["churn"]:
        raise click.UsageError("--grow-from and --churn are two experiments; give one of them")
    return Setup(**fields)


def _finish(
    setup: Setup, given: dict[str, Any], found: Measured, seconds: float, as_json: bool
) -> int:
    words = ["gossamer", "simulate", "skiplist"]
    for name, value in (given | {"seed": setup.seed}).items():
        if value is not None:
            words += [f"--{name.replace('_', '-')}", str(value)]
    replay = shlex.join(words)
    if as_json:
        extra = {
            "seed": setup.seed,
            "good": found.good,
            "wall_seconds": round(seconds, 2),
            "replay": replay,
        }
        click.echo(msgspec.json.encode(msgspec.to_builtins(found, str_keys=True) | extra).decode())
    else:
        _print(setup, found)
    if found.good:
        return 0
    for reason in found.violations[:40] or ["the list did not become perfect"]:
        click.echo(reason, err=True)
    click.echo(f"seed {setup.seed} failed; replay it with:\n  {replay}", err=True)
    return 1


def _print(setup: Setup, found: Measured) -> None:
    title = f"skiplist: {setup.entries:,} subscriptions, k {setup.k}, {setup.workload}, {setup.routing}, seed {setup.seed}"
    table = Table(title=title, title_justify="left", box=None, show_header=False, pad_edge=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("hops, mean", f"{found.hops.mean:.2f}")
    table.add_row("hops, most", f"{found.hops.max}")
    for hops, count in found.hops.histogram.items():
        table.add_row(f"  events with {hops} hop{'s' if hops != 1 else ''}", f"{count:,}")
    table.add_row("noise of a peer, mean", f"{found.noise.mean:.3%}")
    table.add_row("noise of a peer, p99", f"{found.noise.p99:.3%}")
    table.add_row("noise of the hottest peer", f"{found.noise.max:.3%}")
    for name, text, form in _ROWS:
        value = getattr(found, name)
        if not (isinstance(value, float) and value < 0) and not (
            found.model and name in ("messages", "expected", "delivered")
        ):
            table.add_row(text, form.format(value))
    groups: tuple[tuple[str, dict[Any, float]], ...] = (
        ("span error, level", found.link_error_by_level), ("hops, class", found.hops_per_class),
        ("a range costs,", found.entries_per_range), ("hottest peer of unmatched events, share", found.gap_load),
    )  # fmt: skip
    for title, several in groups:
        for what, number in several.items():
            table.add_row(f"{title} {what}", f"{number:,.3f}")
    console = Console()
    console.print(table)
    console.print("[green]good[/green]" if found.good else "[red]something went wrong[/red]")


def _finish_ranges(found: list[Compared], as_json: bool) -> int:
    if as_json:
        for one in found:
            click.echo(msgspec.json.encode(one).decode())
    else:
        table = Table(title="Ranges: two ways", title_justify="left", box=None, pad_edge=False)
        for name in (
            "ranges",
            "width",
            "churn",
            "entries",
            "kept elsewhere",
            "bytes",
            "expected",
            "missed",
            "duplicate",
            "hops",
        ):
            table.add_column(name, justify="right")
        for one in found:
            table.add_row(
                one.ranges, one.width, f"{one.churn:g}", f"{one.entries_per_range:.2f}", f"{one.kept_per_range:.1f}",
                f"{one.bytes_per_entry_period:,.0f}", f"{one.expected:,}", f"{one.missed:,}", f"{one.duplicate:,}",
                f"{one.hops_mean:.2f}",
            )  # fmt: skip
        Console().print(table)
    wrong = [
        one
        for one in found
        if (one.missed or one.duplicate or one.spurious)
        and (one.ranges == "cells" or not one.churn)
    ]
    return 1 if wrong else 0
