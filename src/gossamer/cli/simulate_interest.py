"""``gossamer simulate interest``: the figures of the interest plane, and experiments with it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from gossamer.cli import simulation
from gossamer.cli.bars import Bar

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from gossamer.lab.interest.config import Setup
    from gossamer.lab.interest.experiments import Verdict
    from gossamer.lab.interest.measure import Measured

# The default number of nodes of an experiment.
SCENARIO_NODES = 100
SCENARIOS = ("crashes", "loss", "pause", "partition", "restart", "churn", "leave", "flips", "dead")

# The name in Measured, the words for a reader, and the format.
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


_OPTIONS: tuple[simulation.Flag, ...] = (
    ("scenario", click.Choice(SCENARIOS), "Make trouble of this kind instead of measuring."),
    ("nodes", int, f"Nodes in the fabric. [1000; {SCENARIO_NODES} with --scenario]"),
    (
        "start",
        click.Choice(["auto", "cold", "formed"]),
        (
            "cold: nodes know no other nodes. formed: views are right, links are to be opened. "
            "[cold up to 2000 nodes]"
        ),
    ),
    ("topics", int, "Topics in the fabric. [10000]"),
    ("subscriptions", int, "Topics of each node. [50]"),
    (
        "spread",
        click.Choice(["zipf", "uniform"]),
        "How topics are drawn: by Zipf's law, or alike. [zipf]",
    ),
    ("k", int, "The fabric holds together when any K - 1 nodes fail. [6]"),
    ("seed", int, "Everything random comes from this number. [0]"),
    (
        "news",
        click.Choice(["diff", "whole"]),
        "A message carries a change alone, or the whole interest. [diff]",
    ),
    ("threshold", int, "Pending changes that start a gossip round; 0: none does. [1]"),
    ("coalesce", str, "The time that news from others may wait for company; 0s: none. [3ms]"),
    ("period", str, "The time between rounds, if a change is pending; 0s: no rounds. [1s]"),
    ("changes", int, "Lone changes to measure. [20]"),
    ("rate", int, "Changes a second, for the amortised cost. [100]"),
    ("latency", str, f"{simulation.LATENCIES} [constant:1ms]"),
    ("loss", float, "Chance that a message is lost, all along. [0]"),
    ("durable", bool, "Nodes have disks. [no]"),
    (
        "churn",
        str,
        "With --scenario churn: server, client, or a CSV file of sessions. [server]",
    ),
    ("lasts", float, "With --scenario: seconds of trouble. [the experiment's own]"),
    ("flips", int, "With --scenario flips: the number of flips. [1000000]"),
)


@click.command()
@simulation.options(_OPTIONS)
@click.option(
    "--jobs",
    type=click.IntRange(1),
    default=min(2, os.cpu_count() or 1),
    show_default=True,
    help="Processes.",
)
def interest(as_json: bool, jobs: int, **given: Any) -> int:
    """Every node knows which nodes want which topics: gossip over a K-connected overlay.

    The command starts the fabric cold and waits until every view is the truth. Then it measures the
    overlay, lone changes, steady changes and silence, all in virtual time. Exit code 1 if a view is
    wrong in the end or a checker objects.

    With --scenario it makes trouble instead (crashes, loss, pause, partition, restart, churn,
    leave, flips, dead). It prints the demand and the result, and exits with 1 if the demand is not
    met.

    \b
    Examples:
      gossamer simulate interest --nodes 1000 --topics 10000 --subscriptions 50 --k 6 --json
      gossamer simulate interest --nodes 200 --news whole --coalesce 5ms
      gossamer simulate interest --nodes 400 --rtt PlanetLabData_1.gz
      gossamer simulate interest --scenario crashes --nodes 200 --seed 3
      gossamer simulate interest --scenario partition --lasts 60
      gossamer simulate interest --scenario churn --churn sessions_60d.csv.gz
    """
    from gossamer.lab.interest.experiments import Options, experiment
    from gossamer.lab.interest.measure import measure

    name = given["scenario"]
    found: Measured | Verdict
    with simulation.usage():
        setup = _configure(given)
        with Bar(name or "measuring") as bar:
            if name is None:
                found = measure(setup, bar.update, jobs)
            else:
                chosen = {
                    key: given[key] for key in ("lasts", "churn", "flips") if given[key] is not None
                }
                found = experiment(name, setup, Options(**chosen), bar.update)
            seconds = bar.seconds
    told = {
        "seed": setup.seed,
        "good": found.good,
        "wall_seconds": round(seconds, 2),
        "replay": simulation.replay("interest", given, setup.seed),
    }
    reasons = found.reasons if _is_verdict(found) else found.violations
    return simulation.finish(found, told, reasons, lambda: _print(setup, found), as_json=as_json)


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
    fields = simulation.fields(given, "scenario", "churn", "lasts", "flips")
    if given["scenario"] and given["nodes"] is None:
        fields["nodes"] = SCENARIO_NODES
    return Setup(**fields)


def _is_verdict(found: Measured | Verdict) -> TypeIs[Verdict]:
    return hasattr(found, "figures")


def _print(setup: Setup, found: Measured | Verdict) -> None:
    if _is_verdict(found):
        rows = [
            (name, f"{value:,}" if not isinstance(value, str) else value)
            for name, value in found.figures.items()
        ]
        if found.digest:
            rows += [("messages", f"{found.messages:,}"), ("digest", found.digest)]
        title = f"{found.scenario}: {found.demand} (seed {setup.seed})"
        simulation.table(title, rows, "met", "not met", good=found.good)
        return
    sizes = (
        f"{setup.nodes:,} nodes, {setup.subscriptions} of {setup.topics:,} topics each "
        f"({setup.spread})"
    )
    title = f"interest: {sizes}, K {setup.k}, {setup.latency}, seed {setup.seed}"
    rows = [(text, form.format(getattr(found, name))) for name, text, form in _ROWS]
    simulation.table(title, rows, "every view is the truth", good=found.good)
