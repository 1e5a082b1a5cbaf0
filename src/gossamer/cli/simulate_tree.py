"""``gossamer simulate tree``: the dispatch tree (seed 002) in virtual time, measured as the seed does."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeGuard

import click
import msgspec
from rich.console import Console
from rich.table import Table

from gossamer.cli.common import json_option
from gossamer.cli.progress import Bar

if TYPE_CHECKING:
    from gossamer.lab.tree.config import Setup
    from gossamer.lab.tree.experiments import Merged, RootFailure
    from gossamer.lab.tree.measure import Measured

# flag, type, help: what is not given comes from the defaults of gossamer.lab.tree.config.Setup.
_OPTIONS: tuple[tuple[str, Any, str], ...] = (
    (
        "hosts",
        int,
        "Hosts of the tree; beyond 5000 its steady state is computed, without events. [120]",
    ),
    ("key-bits", int, "Bits of a key: the reference tree has a node for each key. [64]"),
    ("arity", int, "Children of a node of the reference tree. [2]"),
    (
        "rooting",
        click.Choice(["zero", "seed"]),
        "Key 0 as the root, or the seed's own keys 1 .. 2^m - 1. [zero]",
    ),
    ("dht", click.Choice(["ideal", "view", "chord"]), "Who knows the owner of a key. [ideal]"),
    ("seed", int, "Everything random comes from this number. [0]"),
    ("interval", str, "Between a join and the leave that follows it. [1s]"),
    ("measure", str, "For how long, once the network has its size. [60s]"),
    ("events", int, "Publications while it is measured. [50]"),
    ("publishers", int, "Hosts that publish. [5]"),
    (
        "filters",
        click.Choice(["all", "mix"]),
        "Hosts subscribe to everything, or to a mix of filters. [all]",
    ),
    ("loss", float, "Chance that a message is lost. [0]"),
    (
        "churn-per-second",
        float,
        "Share of the hosts that is replaced each second, instead of turn by turn. [0]",
    ),
    (
        "latency",
        str,
        "constant:1ms, uniform:1ms:10ms, lognormal:20ms:0.5, weibull, matrix:FILE. [uniform:1ms:10ms]",
    ),
    ("detect", str, "How long until a broken link is noticed. [100ms]"),
    ("lag", str, "With --dht view: how far views are behind. [300ms]"),
    ("seconds-max", float, "Virtual seconds that the tree has to become whole. [60]"),
)

_ROWS: tuple[tuple[str, str, str], ...] = (
    ("is_tree", "one tree", "{}"),
    ("degree", "hosts by degree", "{}"),
    ("depth_mean", "depth, mean", "{:,.2f}"),
    ("depth_max", "depth, most", "{:,}"),
    ("lookups_mean", "look-ups for the neighbours, mean", "{:,.2f}"),
    ("lookups_max", "look-ups for the neighbours, most", "{:,}"),
    ("contacted_mean", "hosts contacted per change, mean", "{:,.2f}"),
    ("contacted_max", "hosts contacted per change, most", "{:,}"),
    ("links_max", "links changed by one change, most", "{:,}"),
    ("copies_per_delivery", "payload copies per delivery", "{:,.3f}"),
    ("expected", "deliveries due", "{:,}"),
    ("delivered", "delivered", "{:,}"),
    ("missed", "missed", "{:,}"),
    ("duplicate", "duplicate", "{:,}"),
    ("spurious", "spurious", "{:,}"),
    ("replaced", "hosts replaced", "{:,}"),
    ("messages", "messages", "{:,}"),
    ("digest", "digest", "{}"),
)


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    command = json_option(command)
    command = click.option(
        "--root-failure", is_flag=True, help="Fail the root, beside a rendezvous tree."
    )(command)
    command = click.option(
        "--merge", is_flag=True, help="Two Chord rings of half the hosts each meet."
    )(command)
    command = click.option(
        "--uncapped", is_flag=True, help="Wide trees: let hosts exceed the degree of the tree."
    )(command)
    for flag, kind, text in reversed(_OPTIONS):
        command = click.option(f"--{flag}", type=kind, help=text)(command)
    return command


@click.command()
@_options
def tree(as_json: bool, root_failure: bool, merge: bool, uncapped: bool, **given: Any) -> int:
    """The dispatch tree over a DHT (seed 002).

    The network grows to its size; then a host joins, one leaves or fails, and so on, while events are published. Prints the
    tree's shape, what each change touched, and whether every subscriber got what was due to it, once. Exit code 1 if not, or
    if a checker objects; then also the line that replays the run.

    \b
    Examples:
      gossamer simulate tree --hosts 120 --key-bits 8 --arity 2 --seed 7 --json
      gossamer simulate tree --hosts 60 --dht chord --filters mix
      gossamer simulate tree --hosts 1000 --dht view --loss 0.1 --churn-per-second 0.01 --measure 20s
      gossamer simulate tree --hosts 100000 --seed 1
      gossamer simulate tree --hosts 2000 --arity 4 --uncapped
      gossamer simulate tree --root-failure --hosts 120
      gossamer simulate tree --merge --hosts 1000
    """
    from gossamer.lab.tree.experiments import merge as merge_rings
    from gossamer.lab.tree.experiments import root_failure as fail_root
    from gossamer.lab.tree.measure import measure
    from gossamer.sim import ConfigError
    from gossamer.sim.latency import LatencyError

    if merge and root_failure:
        raise click.UsageError("--merge and --root-failure are two experiments; give one of them")
    fields = {name: value for name, value in given.items() if value is not None}
    if merge:
        if given["dht"] not in (None, "chord"):
            raise click.UsageError("--merge is about rings: it goes with --dht chord")
        fields["dht"] = "chord"
    words = [
        *(["--merge"] if merge else []),
        *(["--root-failure"] if root_failure else []),
        *(["--uncapped"] if uncapped else []),
    ]
    try:
        setup = _setup(fields, cap=not uncapped)
        with Bar("tree") as bar:
            if merge:
                return _finish(
                    setup, fields, words, merge_rings(setup, bar.update), bar.seconds, as_json
                )
            if root_failure:
                return _finish(
                    setup, fields, words, fail_root(setup, bar.update), bar.seconds, as_json
                )
            return _finish(setup, fields, words, measure(setup, bar.update), bar.seconds, as_json)
    except (ConfigError, LatencyError) as error:
        raise click.UsageError(str(error)) from None


def _setup(fields: dict[str, Any], cap: bool) -> Setup:
    from gossamer.lab.tree.config import Setup

    return Setup(cap=cap, **fields)


def _finish(
    setup: Setup,
    fields: dict[str, Any],
    words: list[str],
    found: Measured | Merged | RootFailure,
    seconds: float,
    as_json: bool,
) -> int:
    line = ["gossamer", "simulate", "tree", *words]
    for name, value in (fields | {"seed": setup.seed}).items():
        line += [f"--{name.replace('_', '-')}", str(value)]
    replay = shlex.join(line)
    if as_json:
        extra = {
            "seed": setup.seed,
            "good": found.good,
            "wall_seconds": round(seconds, 2),
            "replay": replay,
        }
        click.echo(msgspec.json.encode(msgspec.to_builtins(found) | extra).decode())
    else:
        _print(setup, found)
    if found.good:
        return 0
    for reason in found.violations:
        click.echo(reason, err=True)
    click.echo(f"seed {setup.seed} failed; replay it with:\n  {replay}", err=True)
    return 1


def _is_measured(found: Measured | Merged | RootFailure) -> TypeGuard[Measured]:
    return hasattr(found, "area_join")


def _print(setup: Setup, found: Measured | Merged | RootFailure) -> None:
    title = f"tree: {setup.hosts:,} hosts, {setup.key_bits}-bit keys, arity {setup.arity}, {setup.dht}, seed {setup.seed}"
    table = Table(title=title, title_justify="left", box=None, show_header=False, pad_edge=False)
    table.add_column()
    table.add_column(justify="right")
    if _is_measured(found):
        for name, text, form in _ROWS:
            value = getattr(found, name)
            if isinstance(value, dict):
                value = ", ".join(f"{degree}: {count:,}" for degree, count in value.items())
            table.add_row(text, form.format(value))
        for name, area in (("join", found.area_join), ("leave", found.area_leave)):
            table.add_row(
                f"reconfiguration area of a {name}, mean and most",
                f"{area.mean:,.2f}, {area.max:,}",
            )
    else:
        for name, value in msgspec.to_builtins(found).items():
            if name != "violations":
                table.add_row(
                    name.replace("_", " "),
                    f"{value:,}" if isinstance(value, int | float) else str(value),
                )
    console = Console()
    console.print(table)
    console.print(
        "[green]everything due was delivered, once[/green]"
        if found.good
        else "[red]something went wrong[/red]"
    )
