"""``gossamer simulate tree``: the dispatch tree (seed 002) in virtual time, measured as the seed
does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeGuard

import click
import msgspec

from gossamer.cli import simulation
from gossamer.cli.bars import Bar

if TYPE_CHECKING:
    from gossamer.lab.tree.config import Setup
    from gossamer.lab.tree.experiments import Merged, RootFailure
    from gossamer.lab.tree.measure import Measured

    Found = Measured | Merged | RootFailure

_OPTIONS: tuple[simulation.Flag, ...] = (
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
    (
        "dht",
        click.Choice(["ideal", "view", "chord"]),
        "The part that knows the owner of a key. [ideal]",
    ),
    ("seed", int, "Everything random comes from this number. [0]"),
    ("interval", str, "The time between a join and the leave that follows it. [1s]"),
    ("measure", str, "The time to measure, once the network has its size. [60s]"),
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
        f"{simulation.LATENCIES} [uniform:1ms:10ms]",
    ),
    ("detect", str, "The time until a broken link is noticed. [100ms]"),
    ("lag", str, "With --dht view: the time by which views are behind. [300ms]"),
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


@click.command()
@simulation.options(_OPTIONS, rtt=False)
@click.option(
    "--uncapped", is_flag=True, help="Wide trees: let hosts exceed the degree of the tree."
)
@click.option("--merge", is_flag=True, help="Two Chord rings of half the hosts each meet.")
@click.option("--root-failure", is_flag=True, help="Fail the root, beside a rendezvous tree.")
def tree(as_json: bool, root_failure: bool, merge: bool, uncapped: bool, **given: Any) -> int:
    """The dispatch tree over a DHT (seed 002).

    The network grows to its size. Then hosts join and leave or fail in turn, while events are
    published. The command prints the shape of the tree, the extent of each change, and whether
    every subscriber got each due event once. Exit code 1 if not, or if a checker objects. Then the
    command also prints the line that replays the run.

    \b
    Examples:
      gossamer simulate tree --hosts 120 --key-bits 8 --arity 2 --seed 7 --json
      gossamer simulate tree --hosts 60 --dht chord --filters mix
      gossamer simulate tree --hosts 1000 --dht view --loss 0.1 --churn-per-second 0.01
      gossamer simulate tree --hosts 100000 --seed 1
      gossamer simulate tree --hosts 2000 --arity 4 --uncapped
      gossamer simulate tree --root-failure --hosts 120
      gossamer simulate tree --merge --hosts 1000
    """
    from gossamer.lab.tree.experiments import merge as merge_rings
    from gossamer.lab.tree.experiments import root_failure as fail_root
    from gossamer.lab.tree.measure import measure

    if merge and root_failure:
        raise click.UsageError("--merge and --root-failure are two experiments; give one of them")
    fields = simulation.fields(given)
    if merge:
        if given["dht"] not in (None, "chord"):
            raise click.UsageError("--merge is about rings: it goes with --dht chord")
        fields["dht"] = "chord"
    kinds = (("--merge", merge), ("--root-failure", root_failure), ("--uncapped", uncapped))
    words = [word for word, is_given in kinds if is_given]
    run: Callable[..., Found] = merge_rings if merge else fail_root if root_failure else measure
    with simulation.usage():
        setup = _setup(fields, cap=not uncapped)
        with Bar("tree") as bar:
            found = run(setup, bar.update)
            seconds = bar.seconds
    told = {
        "seed": setup.seed,
        "good": found.good,
        "wall_seconds": round(seconds, 2),
        "replay": simulation.replay("tree", fields, setup.seed, *words),
    }
    return simulation.finish(
        found, told, found.violations, lambda: _print(setup, found), as_json=as_json
    )


def _setup(fields: dict[str, Any], cap: bool) -> Setup:
    from gossamer.lab.tree.config import Setup

    return Setup(cap=cap, **fields)


def _is_measured(found: Found) -> TypeGuard[Measured]:
    return hasattr(found, "area_join")


def _print(setup: Setup, found: Found) -> None:
    title = (
        f"tree: {setup.hosts:,} hosts, {setup.key_bits}-bit keys, arity {setup.arity}, "
        f"{setup.dht}, seed {setup.seed}"
    )
    rows: list[tuple[str, str]] = []
    if _is_measured(found):
        for name, text, form in _ROWS:
            value = getattr(found, name)
            if isinstance(value, dict):
                value = ", ".join(f"{degree}: {count:,}" for degree, count in value.items())
            rows.append((text, form.format(value)))
        for name, area in (("join", found.area_join), ("leave", found.area_leave)):
            what = f"reconfiguration area of a {name}, mean and most"
            rows.append((what, f"{area.mean:,.2f}, {area.max:,}"))
    else:
        rows += [
            (name.replace("_", " "), f"{value:,}" if isinstance(value, int | float) else str(value))
            for name, value in msgspec.to_builtins(found).items()
            if name != "violations"
        ]
    simulation.table(title, rows, "everything due was delivered, once", good=found.good)
