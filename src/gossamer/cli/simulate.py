"""``gossamer simulate``: whole fabrics in virtual time, with faults, from one seed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.console import Console
from rich.table import Table

from gossamer.cli import simulation
from gossamer.cli.bars import Bar
from gossamer.cli.common import json_option
from gossamer.cli.simulate_fuzz import fuzz
from gossamer.cli.simulate_interest import interest
from gossamer.cli.simulate_skiplist import skiplist
from gossamer.cli.simulate_tree import tree

if TYPE_CHECKING:
    from gossamer.sim.config import Config
    from gossamer.sim.run import Outcome
    from gossamer.sim.scenario import Flight
    from gossamer.sim.swarm import Draw

# An option that is not given comes from the scenario, or else from the defaults of
# gossamer.sim.Config.
_OPTIONS: tuple[simulation.Flag, ...] = (
    ("nodes", int, "Nodes in the fabric. [200]"),
    ("events", int, "Events to publish. [100]"),
    ("subscriptions", int, "Subscriptions, spread over the nodes in turn. [200]"),
    ("degree", int, "Neighbours of each node. [6]"),
    ("seed", int, "Everything random comes from this number. [0]"),
    ("interval", str, "Time between publications. [10ms]"),
    ("burst", int, "Events published together. [1]"),
    ("churn", int, "Subscriptions cancelled and made again while events are published. [0]"),
    ("consumer", str, "How long a subscriber takes for each event. [0s]"),
    ("window", int, "Events without a receipt that a node may have. [32768]"),
    ("buffer", int, "Events that may wait for one subscriber. [16384]"),
    (
        "latency",
        str,
        f"{simulation.LATENCIES} [constant:1ms]",
    ),
    (
        "loss",
        float,
        "Chance that a packet is lost: its message and all behind it on the link are late. [0]",
    ),
    ("delay", float, "Chance that a message, and all behind it on the link, is late. [0]"),
    ("late", str, "The most that such a message is late. [20ms]"),
    ("breaks", float, "Chance for each message that its link breaks in mid-stream. [0]"),
    ("refuse", float, "Chance that an event message finds the queue of its link full. [0]"),
    (
        "stop",
        str,
        "When loss, delay, breaks and refusals stop, counted from the first publication. [never]",
    ),
    ("detect", str, "The time until a broken link is noticed. [300ms]"),
    ("reconnect", str, "The time until a mended link is used again. [100ms]"),
    ("queue-mark", int, "Event messages that may wait on a link. [256]"),
    ("disk", str, "The time of a write. [1ms]"),
    ("seconds-max", float, "Virtual seconds that the fabric has to become quiet. [120]"),
    ("durable", bool, "Nodes have disks. [no]"),
)


@click.group(invoke_without_command=True)
@click.option(
    "--scenario", metavar="FILE|NAME", help="Run this scenario: a file, or one that is shipped."
)
@click.option("--seed", type=int, help="Another seed than the scenario's.")
@json_option
@click.pass_context
def simulate(
    ctx: click.Context, scenario: str | None, seed: int | None, as_json: bool
) -> int | None:
    """Run a whole fabric in this process, in virtual time. The same seed gives the same run, to the
    byte.

    \b
    Examples:
      gossamer simulate flood --nodes 200 --events 100 --seed 7
      gossamer simulate flood --loss 0.05 --latency weibull --json
      gossamer simulate interest --nodes 200 --seed 1
      gossamer simulate skiplist --entries 300 --seed 7
      gossamer simulate tree --hosts 120 --seed 7
      gossamer simulate --scenario partition
      gossamer simulate swarm --seeds 100
      gossamer simulate fuzz --seconds 60
      gossamer simulate scenarios
    """
    if ctx.invoked_subcommand is not None:
        if scenario is not None or seed is not None or as_json:
            raise click.UsageError(
                f"options go behind the command: gossamer simulate {ctx.invoked_subcommand} ..."
            )
        return None
    if scenario is None:
        if seed is not None or as_json:
            raise click.UsageError("nothing to run: give --scenario, or a command such as flood")
        click.echo(ctx.get_help())
        return 0
    return _run("flood", {"scenario": scenario, "seed": seed}, as_json, full=False)


@simulate.command()
@click.option("--scenario", metavar="FILE|NAME", help="A scenario file, or one that is shipped.")
@simulation.options(_OPTIONS)
@click.option(
    "--full", is_flag=True, help="With --json: every hand-over and every node's load, too."
)
def flood(as_json: bool, full: bool, **given: Any) -> int:
    """Forward to all, deduplicate: the baseline.

    The command prints the counts of expected, delivered, missed, duplicate and spurious hand-overs,
    the cost, and a digest of everything that happened. Exit code 1 if a hand-over is missed,
    duplicate or spurious, or if a checker objects. Then the command also prints the line that
    replays the run.

    \b
    Examples:
      gossamer simulate flood --nodes 200 --events 100 --seed 7 --json
      gossamer simulate flood --nodes 30 --loss 0.1 --delay 0.1 --breaks 0.001
      gossamer simulate flood --rtt PlanetLabData_1.gz --nodes 400
      gossamer simulate flood --scenario crash-restart --seed 3
    """
    if full and not as_json:
        raise click.UsageError("--full goes with --json")
    return _run("flood", given, as_json, full)


simulate.add_command(fuzz)
simulate.add_command(interest)
simulate.add_command(skiplist)
simulate.add_command(tree)


@simulate.command()
@click.option(
    "--overlay",
    type=click.Choice(["flood", "interest", "fabric", "skiplist", "tree"]),
    default="flood",
    show_default=True,
    help="The subject: flood over a fixed graph, the interest plane, skip lists, dispatch trees, "
    "or whole nodes.",
)
@click.option(
    "--seeds", type=click.IntRange(1), default=100, show_default=True, help="The number of seeds."
)
@click.option(
    "--start", type=click.IntRange(0), default=0, show_default=True, help="The first seed."
)
@click.option(
    "--jobs",
    type=click.IntRange(1),
    default=min(2, os.cpu_count() or 1),
    show_default=True,
    help="Processes.",
)
@json_option
def swarm(overlay: str, seeds: int, start: int, jobs: int, as_json: bool) -> int:
    """Run random faults over many seeds, and demand that the fabric becomes whole again.

    Each seed draws configuration, workload and faults. Every step is checked, and then the faults
    stop. Exit code 1 if a seed fails. Each seed that fails prints the line that replays it.

    \b
    Examples:
      gossamer simulate swarm --seeds 200 --jobs 2
      gossamer simulate swarm --start 166 --seeds 1
      gossamer simulate swarm --overlay interest --seeds 100
      gossamer simulate swarm --overlay skiplist --seeds 100
      gossamer simulate swarm --overlay tree --seeds 100
    """
    from gossamer.sim.swarm import swarm as fly

    flights: list[Flight] = []
    flown = fly(_draw(overlay), start, seeds, jobs)
    with Bar("seeds") as bar:
        for flight in flown:
            flights.append(flight)
            bar.update(len(flights) / seeds)
            if as_json:
                click.echo(msgspec.json.encode(_flat(flight) | {"replay": flight.replay}).decode())
            elif not flight.good:
                _print_failure(flight)
    _print_swarm(flights, start, as_json)
    return 0 if all(flight.good for flight in flights) else 1


@simulate.command()
@json_option
def scenarios(as_json: bool) -> int:
    """List the scenarios that come with gossamer.

    \b
    Examples:
      gossamer simulate scenarios
      gossamer simulate --scenario swizzle
    """
    from gossamer.sim.config import shipped

    found = shipped()
    if as_json:
        for name, scenario in found.items():
            click.echo(
                msgspec.json.encode(
                    {"name": name, "about": scenario.about, "config": scenario.config}
                ).decode()
            )
    else:
        table = Table(box=None, pad_edge=False)
        table.add_column("scenario")
        table.add_column("about")
        for name, scenario in found.items():
            table.add_row(name, scenario.about)
        Console().print(table)
    return 0


# ------------------------------------------------------------------------ inside


def _draw(overlay: str) -> Draw:
    """The function that draws a run of this overlay from a seed."""
    from gossamer.lab.interest.swarm import interest
    from gossamer.lab.skiplist.swarm import skiplist
    from gossamer.lab.tree.swarm import tree
    from gossamer.sim.swarm import fabric, flood

    drawn: dict[str, Draw] = {
        "fabric": fabric,
        "flood": flood,
        "interest": interest,
        "skiplist": skiplist,
        "tree": tree,
    }
    return drawn[overlay]


def _run(overlay: str, given: dict[str, Any], as_json: bool, full: bool) -> int:
    from gossamer.sim.run import simulate as run

    with simulation.usage():
        config = _configure(overlay, given)
        with Bar("simulating") as bar:
            outcome = run(config, progress=bar.update)
    told = {
        "seed": config.seed,
        "good": outcome.good,
        "replay": simulation.replay(overlay, given, config.seed),
    }
    return simulation.finish(
        _summary(outcome, full),
        told,
        outcome.violations,
        lambda: _print_outcome(outcome),
        as_json=as_json,
    )


def _configure(overlay: str, given: dict[str, Any]) -> Config:
    """The configuration of the scenario, or the default one, changed by the command line."""
    from gossamer.sim import Config
    from gossamer.sim.config import load

    changes = simulation.fields(given, "scenario")
    base = load(given["scenario"]).config if given.get("scenario") else Config()
    if given.get("disk") and not changes.get("durable", base.durable):
        raise click.UsageError("--disk goes with --durable: without it nothing is written")
    return msgspec.structs.replace(base, overlay=overlay, **changes)


def _summary(outcome: Outcome, full: bool) -> dict[str, Any]:
    summary: dict[str, Any] = msgspec.to_builtins(outcome)
    if not full:
        for name in ("deliveries", "loads", "subscriptions", "publications"):
            del summary[name]
    return summary


def _flat(flight: Flight) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(flight)
    counted: dict[str, Any] = told.pop("counted")
    return told | counted


def _print_outcome(outcome: Outcome) -> None:
    config = outcome.config
    sizes = f"{config.nodes} nodes, {config.subscriptions} subscriptions, {config.events} events"
    title = f"{config.overlay}: {sizes}, seed {config.seed}"
    rows: tuple[tuple[str, str], ...] = (
        ("expected", f"{outcome.expected:,}"),
        ("delivered", f"{outcome.delivered:,}"),
        ("missed", f"{outcome.missed:,}"),
        ("duplicate", f"{outcome.duplicate:,}"),
        ("spurious", f"{outcome.spurious:,}"),
        ("receipts complete", f"{outcome.receipts_complete:,} of {config.events:,}"),
        ("copies per delivery", f"{outcome.copies_per_delivery:,}"),
        ("hops, mean and most", f"{outcome.hops_mean:.2f}, {outcome.hops_max}"),
        ("latency p50, p99", f"{outcome.latency_ms_p50:.1f} ms, {outcome.latency_ms_p99:.1f} ms"),
        ("messages", f"{outcome.messages:,}"),
        ("bytes", f"{outcome.bytes:,}"),
        ("virtual time", f"{outcome.virtual_seconds:.3f} s"),
        ("digest", outcome.digest),
    )
    fired = [
        (f"[dim]{name}[/dim]", f"[dim]{count:,}[/dim]") for name, count in outcome.fired.items()
    ]
    simulation.table(title, [*rows, *fired], "every due event arrived once", good=outcome.good)


def _print_failure(flight: Flight) -> None:
    click.echo(f"seed {flight.seed} failed:")
    for violation in flight.violations:
        click.echo(f"  {violation}")
    click.echo("drawn configuration:")
    click.echo("".join(f"  {line}\n" for line in flight.toml.splitlines()), nl=False)
    click.echo(f"replay: {flight.replay}")


def _print_swarm(flights: list[Flight], start: int, as_json: bool) -> None:
    fired: dict[str, int] = {}
    for flight in flights:
        for name, count in flight.fired.items():
            fired[name] = fired.get(name, 0) + count
    failed = [flight.seed for flight in flights if not flight.good]
    counted = [flight.counted | {"messages": flight.messages} for flight in flights]
    totals = {
        name: sum(each[name] for each in counted)
        for name in (
            "expected",
            "delivered",
            "missed",
            "duplicate",
            "spurious",
            "changes",
            "messages",
        )
        if name in counted[0]
    }
    if as_json:
        click.echo(
            msgspec.json.encode(
                {"start": start, "seeds": len(flights), "failed": failed, **totals, "fired": fired}
            ).decode()
        )
        return
    click.echo(
        f"seeds {start} to {start + len(flights) - 1}: "
        f"{len(flights) - len(failed)} good, {len(failed)} failed"
    )
    click.echo(", ".join(f"{name} {count:,}" for name, count in totals.items()))
    click.echo(
        "faults fired: " + ", ".join(f"{name} {count:,}" for name, count in sorted(fired.items()))
    )
