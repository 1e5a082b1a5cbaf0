"""``gossamer simulate interest``: the figures of the interest plane, and experiments with it."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.console import Console
from rich.table import Table

from gossamer.cli.common import json_option
from gossamer.cli.progress import Bar

if TYPE_CHECKING:
    from gossamer.lab.interest.config import Setup
    from gossamer.lab.interest.experiments import Verdict
    from gossamer.lab.interest.measure import Measured

SCENARIO_NODES = 100  # of an experiment, unless told otherwise
SCENARIOS = ("crashes", "loss", "pause", "partition", "restart", "churn", "leave", "flips", "dead")

# name in Measured, what a reader sees, format
_ROWS: tuple[tuple[str, str, str], ...] = (
    ("vertex_connectivity", "nodes that must fail to cut it apart", "{:,}"),
    ("degree_mean", "links of a node, mean", "{:.2f}"),
    ("degree_max", "links of a node, most", "{:,}"),
    ("diameter", "hops across", "{:,}"),
    ("hops_p50", "hops of a change, p50", "{:,}"),
    ("hops_p99", "hops of a change, p99", "{:,}"),
    ("ms_p50", "time until a node knows, p50", "{:.1f} ms"),
    ("ms_p99", "time until a node knows, p99", "{:.1f} ms"),
    ("barrier_ms", "time until it is told that all know, p50", "{:.1f} ms"),
    ("copies_per_node", "copies of a change into a node", "{:.2f}"),
    ("bytes_per_change", "bytes into a node for a lone change", "{:,.1f}"),
    ("bytes_per_change_names", "the same with names for hashes", "{:,.1f}"),
    ("bytes_per_change_whole", "the same with whole interests for differences", "{:,.1f}"),
    ("bytes_amortised", "bytes into a node for one of many changes", "{:,.1f}"),
    ("idle_bytes_per_s", "bytes out of a node in a quiet second", "{:,.1f}"),
    ("cold_start_s", "cold start of all nodes", "{:.2f} s"),
    ("cold_start_bytes_per_node", "bytes out of a node for that", "{:,.0f}"),
    ("memory_mb_per_million_pairs", "memory for a million (node, topic) pairs", "{:.1f} MB"),
    ("messages", "messages", "{:,}"),
    ("digest", "digest", "{}"),
)


@click.command()
@click.option(
    "--scenario",
    type=click.Choice(SCENARIOS),
    help="Make trouble of this kind instead of measuring.",
)
@click.option(
    "--nodes", type=int, help=f"Nodes in the fabric. [1000; {SCENARIO_NODES} with --scenario]"
)
@click.option(
    "--start",
    type=click.Choice(["auto", "cold", "formed"]),
    help="cold: nobody knows anybody. formed: views are right, links are to be opened. [cold up to 2000 nodes]",
)
@click.option("--topics", type=int, help="Topics that there are. [10000]")
@click.option("--subscriptions", type=int, help="Topics of each node. [50]")
@click.option(
    "--spread",
    type=click.Choice(["zipf", "uniform"]),
    help="How topics are drawn: by Zipf's law, or alike. [zipf]",
)
@click.option("--k", type=int, help="The fabric holds together when any K - 1 nodes fail. [6]")
@click.option("--seed", type=int, help="Everything random comes from this number. [0]")
@click.option(
    "--news",
    type=click.Choice(["diff", "whole"]),
    help="What a change carries: itself, or the whole interest. [diff]",
)
@click.option(
    "--threshold", type=int, help="Pending changes that start a gossip round; 0: none does. [1]"
)
@click.option(
    "--coalesce", help="How long news from others may wait for company; 0s: not at all. [3ms]"
)
@click.option("--period", help="Between rounds, if anything is pending; 0s: never. [1s]")
@click.option("--changes", type=int, help="Lone changes to measure. [20]")
@click.option("--rate", type=int, help="Changes a second, for the amortised cost. [100]")
@click.option(
    "--latency",
    help="constant:1ms, uniform:1ms:10ms, lognormal:20ms:0.5, weibull, matrix:FILE. [constant:1ms]",
)
@click.option(
    "--rtt", metavar="FILE", help="Round-trip times in ms, a square matrix: --latency matrix:FILE."
)
@click.option("--loss", type=float, help="Chance that a message is lost, all along. [0]")
@click.option("--durable", is_flag=True, default=None, help="Nodes have disks. [no]")
@click.option(
    "--churn",
    metavar="FILE|NAME",
    help="With --scenario churn: server, client, or a CSV file of sessions. [server]",
)
@click.option(
    "--lasts",
    metavar="SECONDS",
    type=float,
    help="With --scenario: how long the trouble lasts. [the experiment's own]",
)
@click.option("--flips", type=int, help="With --scenario flips: how many. [1000000]")
@click.option(
    "--jobs",
    type=click.IntRange(1),
    default=min(2, os.cpu_count() or 1),
    show_default=True,
    help="Processes.",
)
@json_option
def interest(as_json: bool, jobs: int, **given: Any) -> int:
    """Who wants which topic, known everywhere: gossip over a K-connected overlay.

    Starts the fabric cold, waits until every view is the truth, measures the overlay, lone changes, steady changes and silence,
    all in virtual time. Exit code 1 if a view is wrong in the end or a checker objects.

    With --scenario it makes trouble instead (crashes, loss, pause, partition, restart, churn, leave, flips, dead), says what is
    demanded, what was found, and exits with 1 if the demand is not met.

    \b
    Examples:
      gossamer simulate interest --nodes 1000 --topics 10000 --subscriptions 50 --k 6 --seed 1 --json
      gossamer simulate interest --nodes 200 --news whole --coalesce 5ms
      gossamer simulate interest --nodes 400 --rtt PlanetLabData_1.gz
      gossamer simulate interest --scenario crashes --nodes 200 --seed 3
      gossamer simulate interest --scenario partition --lasts 60
      gossamer simulate interest --scenario churn --churn sessions_60d.csv.gz
    """
    from gossamer.lab.interest.experiments import Options, experiment
    from gossamer.lab.interest.measure import measure
    from gossamer.sim import ConfigError
    from gossamer.sim.churn import ChurnError
    from gossamer.sim.latency import LatencyError

    name = given["scenario"]
    try:
        setup = _configure(given)
        with Bar(name or "measuring") as bar:
            if name is None:
                measured = measure(setup, bar.update, jobs)
                return _finish(setup, given, measured, measured.violations, bar.seconds, as_json)
            chosen = {
                key: given[key] for key in ("lasts", "churn", "flips") if given[key] is not None
            }
            verdict = experiment(name, setup, Options(**chosen), bar.update)
            return _finish(setup, given, verdict, verdict.reasons, bar.seconds, as_json)
    except (ConfigError, LatencyError, ChurnError) as error:
        raise click.UsageError(str(error)) from None


def _configure(given: dict[str, Any]) -> Setup:
    from gossamer.lab.interest.config import Setup

    for option, scenarios in (
        ("churn", ("churn",)),
        ("flips", ("flips",)),
        ("lasts", ("loss", "pause", "partition", "churn")),
    ):
        if given[option] is not None and given["scenario"] not in scenarios:
            raise click.UsageError(f"--{option} goes with --scenario {' or '.join(scenarios)}")
    if given["lasts"] is not None and not given["lasts"] > 0:
        raise click.UsageError("--lasts must be more than 0 seconds")
    fields = {
        key: value
        for key, value in given.items()
        if value is not None and key not in ("scenario", "rtt", "churn", "lasts", "flips")
    }
    if given["rtt"]:
        if given["latency"]:
            raise click.UsageError(
                "--rtt and --latency both say how long messages take; give one of them"
            )
        fields["latency"] = f"matrix:{given['rtt']}"
    if given["scenario"] and given["nodes"] is None:
        fields["nodes"] = SCENARIO_NODES
    return Setup(**fields)


def _finish(
    setup: Setup,
    given: dict[str, Any],
    found: Measured | Verdict,
    reasons: list[str],
    seconds: float,
    as_json: bool,
) -> int:
    words = ["gossamer", "simulate", "interest"]
    for name, value in (given | {"seed": setup.seed}).items():
        if value is True:
            words.append(f"--{name}")
        elif value is not None and value is not False:
            words += [f"--{name}", str(value)]
    replay = shlex.join(words)
    if as_json:
        extra = {
            "seed": setup.seed,
            "good": found.good,
            "wall_seconds": round(seconds, 2),
            "replay": replay,
        }
        click.echo(msgspec.json.encode(msgspec.to_builtins(found) | extra).decode())
    elif hasattr(found, "figures"):
        _print_verdict(setup, found)  # type: ignore[arg-type]
    else:
        _print_measured(setup, found)
    if found.good:
        return 0
    for reason in reasons:
        click.echo(reason, err=True)
    click.echo(f"seed {setup.seed} failed; replay it with:\n  {replay}", err=True)
    return 1


def _table(title: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, show_header=False, pad_edge=False)
    table.add_column()
    table.add_column(justify="right")
    return table


def _print_measured(setup: Setup, found: Measured) -> None:
    sizes = f"{setup.nodes:,} nodes, {setup.subscriptions} of {setup.topics:,} topics each ({setup.spread})"
    table = _table(f"interest: {sizes}, K {setup.k}, {setup.latency}, seed {setup.seed}")
    for name, text, form in _ROWS:
        table.add_row(text, form.format(getattr(found, name)))
    console = Console()
    console.print(table)
    console.print(
        "[green]every view is the truth[/green]"
        if found.good
        else "[red]something went wrong[/red]"
    )


def _print_verdict(setup: Setup, verdict: Verdict) -> None:
    table = _table(f"{verdict.scenario}: {verdict.demand} (seed {setup.seed})")
    for name, value in verdict.figures.items():
        table.add_row(name, f"{value:,}" if not isinstance(value, str) else value)
    if verdict.digest:
        table.add_row("messages", f"{verdict.messages:,}")
        table.add_row("digest", verdict.digest)
    console = Console()
    console.print(table)
    console.print("[green]met[/green]" if verdict.good else "[red]not met[/red]")
