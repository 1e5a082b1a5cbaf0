"""``gossamer simulate skiplist``: the experiments of seed 001, and the skip list under churn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.console import Console
from rich.table import Table

from gossamer.cli import simulation
from gossamer.cli.bars import Bar

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


_OPTIONS: tuple[simulation.Flag, ...] = (
    (
        "entries",
        int,
        "Subscriptions in the list; above 50000 by a model of the perfect list. [1000]",
    ),
    ("per-node", int, "Entries at each node. [1]"),
    ("events", int, "Events to publish. [2500]"),
    ("k", int, "A link of level l spans k^l entries. [2]"),
    (
        "workload",
        click.Choice(["synthetic", "trace", "zipf"]),
        "Filters and events. [synthetic]",
    ),
    (
        "trace",
        str,
        (
            "With --workload trace: a folder with files.csv.gz and peer_files.csv.gz; or one "
            ".csv.gz with peer, name, type, size; or the word sample for the sample that comes "
            "with gossamer. [a fitted stand-in]"
        ),
    ),
    (
        "kinds",
        click.Choice(["point", "mixed"]),
        "Equalities only, or also ranges, wildcards, IN. [point]",
    ),
    (
        "routing",
        click.Choice(["gossamer", "paper"]),
        "With midpoints and in parallel, or greedy. [gossamer]",
    ),
    (
        "grow-from",
        int,
        "The seed's Figure 5: grow from this size, an event to each newcomer. [no]",
    ),
    ("churn", float, "Share of the entries that crash, and that join, each minute. [0]"),
    ("churn-s", float, "Virtual seconds of churn. [60]"),
    ("latency", str, f"{simulation.LATENCIES} [constant:10ms]"),
    ("period", str, "The seed's t: level l gossips every t * (l + 1). [1s]"),
    (
        "pace",
        click.Choice(["paper", "prompt"]),
        "Levels come with the periods, or as nodes do, at once. [paper]",
    ),
    ("seed", int, "Everything random comes from this number. [0]"),
)


@click.command()
@simulation.options(_OPTIONS)
@click.option(
    "--compare-ranges",
    is_flag=True,
    help="Compare ranges by cells with the seed's routing entries instead.",
)
def skiplist(as_json: bool, compare_ranges: bool, **given: Any) -> int:
    """Content filters in dictionary order, linked by gossip into a perfect skip list.

    The command builds the list by joins and waits until it is perfect. Then it publishes events
    from random nodes and compares the hand-overs with an oracle, all in virtual time. Hops are
    counted until an event is delivered everywhere or discarded. Noise is the share of all events
    that a peer gets without wanting them. Exit code 1 if an event was missed, came twice or was not
    wanted, or if the list is not perfect.

    \b
    Examples:
      gossamer simulate skiplist --entries 1000 --events 2500 --k 2 --workload synthetic --seed 7
      gossamer simulate skiplist --routing paper
      gossamer simulate skiplist --workload trace --grow-from 300
      gossamer simulate skiplist --entries 300 --churn 0.1 --rtt PlanetLabData_1.gz
      gossamer simulate skiplist --entries 1000000 --events 100000
      gossamer simulate skiplist --entries 200 --compare-ranges
    """
    from gossamer.lab.skiplist.measure import measure
    from gossamer.lab.skiplist.ranges import compare

    with simulation.usage():
        setup = _configure(given)
        with Bar("simulating") as bar:
            if compare_ranges:
                return _finish_ranges(compare(setup, bar.update), as_json)
            found = measure(setup, bar.update)
            seconds = bar.seconds
    told = {
        "seed": setup.seed,
        "good": found.good,
        "wall_seconds": round(seconds, 2),
        "replay": simulation.replay("skiplist", given, setup.seed),
    }
    reasons = found.violations[:40] or ["the list did not become perfect"]
    return simulation.finish(found, told, reasons, lambda: _print(setup, found), as_json=as_json)


def _configure(given: dict[str, Any]) -> Setup:
    from gossamer.lab.skiplist.config import Setup

    fields = simulation.fields(given)
    if given["trace"] and given["workload"] not in (None, "trace"):
        raise click.UsageError("--trace goes with --workload trace")
    if given["trace"]:
        fields["workload"] = "trace"
    if given["grow_from"] and given["churn"]:
        raise click.UsageError("--grow-from and --churn are two experiments; give one of them")
    return Setup(**fields)


def _print(setup: Setup, found: Measured) -> None:
    title = (
        f"skiplist: {setup.entries:,} subscriptions, k {setup.k}, {setup.workload}, "
        f"{setup.routing}, seed {setup.seed}"
    )
    rows = [
        ("hops, mean", f"{found.hops.mean:.2f}"),
        ("hops, most", f"{found.hops.max}"),
        *(
            (f"  events with {hops} hop{'s' if hops != 1 else ''}", f"{count:,}")
            for hops, count in found.hops.histogram.items()
        ),
        ("noise of a peer, mean", f"{found.noise.mean:.3%}"),
        ("noise of a peer, p99", f"{found.noise.p99:.3%}"),
        ("noise of the hottest peer", f"{found.noise.max:.3%}"),
    ]
    for name, text, form in _ROWS:
        value = getattr(found, name)
        if not (isinstance(value, float) and value < 0) and not (
            found.model and name in ("messages", "expected", "delivered")
        ):
            rows.append((text, form.format(value)))
    groups: tuple[tuple[str, dict[Any, float]], ...] = (
        ("span error, level", found.link_error_by_level),
        ("hops, class", found.hops_per_class),
        ("a range costs,", found.entries_per_range),
        ("hottest peer of unmatched events, share", found.gap_load),
    )
    for group, several in groups:
        rows += [(f"{group} {what}", f"{number:,.3f}") for what, number in several.items()]
    simulation.table(title, rows, "good", good=found.good)


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
                one.ranges,
                one.width,
                f"{one.churn:g}",
                f"{one.entries_per_range:.2f}",
                f"{one.kept_per_range:.1f}",
                f"{one.bytes_per_entry_period:,.0f}",
                f"{one.expected:,}",
                f"{one.missed:,}",
                f"{one.duplicate:,}",
                f"{one.hops_mean:.2f}",
            )
        Console().print(table)
    wrong = [
        one
        for one in found
        if (one.missed or one.duplicate or one.spurious)
        and (one.ranges == "cells" or not one.churn)
    ]
    return 1 if wrong else 0
