"""``gossamer pipeline grid`` and ``gossamer pipeline models``: simulations and models over
Spark.
"""

from __future__ import annotations

from typing import Any

import click
import msgspec

from gossamer.cli import pipeline as shared
from gossamer.cli.common import json_option
from gossamer.pipeline.session import SMALL


def _value(text: str) -> Any:
    """The text as a number, if it is one."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _settings(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> dict[str, Any]:
    found = {}
    for text in values:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE, such as events=500")
        found[name.strip().replace("-", "_")] = _value(value)
    return found


@click.command()
@shared.shown(
    "--overlay",
    "overlays",
    multiple=True,
    default=("flood",),
    type=click.Choice(["flood", "interest", "skiplist", "tree"]),
    help=shared.SEVERAL,
)
@shared.shown("--size", "sizes", **shared.LIST, default="20,40", help="Nodes, entries or hosts.")
@click.option(
    "--parameter",
    "parameters",
    **shared.LIST,
    default="0",
    show_default="the overlay's own",
    help="Links of a node (flood), K (interest), k (skiplist), arity (tree).",
)
@shared.shown("--seeds", **shared.RANGE, default="0", help="Seeds of the runs.")
@shared.shown(
    "--fault",
    "faults",
    multiple=True,
    default=("none",),
    help="A kind of trouble that the overlay knows; may be given several times.",
)
@click.option(
    "--set",
    "options",
    multiple=True,
    callback=_settings,
    metavar="NAME=VALUE",
    help="A flag of gossamer simulate OVERLAY for every run; may be given several times.",
)
@shared.shown(
    "--wave", type=click.IntRange(1), default=64, help="Runs that are committed together."
)
@shared.out_option("Where the tables go.")
@shared.master_option
@json_option
@click.pass_context
def grid(ctx: click.Context, /, as_json: bool, **given: Any) -> None:
    """Simulate every combination of overlay, size, parameter, seed and fault: one run in each row
    and Spark task.

    Runs are committed in waves. A grid that was killed runs only the missing runs, and a grid that
    grows only the new ones. A run that fails is a row with its error and the command that repeats
    it. The command writes the tables grid, measures, spreads, news and reconfigurations. Exit code
    1 if a run failed or was not good.

    \b
    Examples:
      gossamer pipeline grid --out grid --overlay tree --size 10,50,100 --seeds 0-9
      gossamer pipeline grid --out grid --overlay interest --size 64 --parameter 3,4,6 \\
        --fault none --fault crashes
      gossamer pipeline grid --out grid --overlay skiplist --size 200 --parameter 2,4 \\
        --set events=500 --set routing=paper
    """
    with shared._errors():
        from gossamer.lab import experiments

        axes = (
            given["overlays"],
            given["sizes"],
            given["parameters"],
            given["seeds"],
            given["faults"],
            given["options"],
        )
        try:
            cells = experiments.cells(*axes)
        except experiments.GridError as error:
            raise click.UsageError(str(error)) from None
    if len(cells) > shared.RUNS_MAX:
        raise click.UsageError(
            f"{len(cells):,} runs are more than {shared.RUNS_MAX:,}; cut the grid"
        )
    with shared._errors(), shared._spark(given["master"], "grid", SMALL) as (spark, progress):
        from gossamer.lab.grid import stage
        from gossamer.pipeline import job

        bar = progress.add_task("runs", total=len(cells))
        planned = stage(cells, given["wave"], shared.wave_bar(progress, bar))
        (outcome,) = job.run(spark, given["out"], [planned])
    rows = job.show("grid", given["out"], len(cells))[0]
    bad = [row for row in rows if row["status"] != "ok"]
    if as_json:
        failed = [{name: row[name] for name in ("run", "status", "error", "replay")} for row in bad]
        told = {
            "ok": not bad,
            "runs": len(rows),
            "bad": failed,
            "rows": outcome.rows,
            "seconds": outcome.seconds,
        }
        click.echo(
            msgspec.json.encode(
                told | {"skipped": outcome.skipped, "out": str(given["out"])}
            ).decode()
        )
    else:
        again = ", as before" if outcome.skipped else ""
        click.echo(
            f"{len(rows):,} runs in {outcome.seconds:.1f} s{again}; tables in {given['out']}"
        )
        for row in bad:
            click.secho(f"{row['status']}: {row['error']}\n  {row['replay']}", fg="red")
    ctx.exit(1 if bad else 0)


@click.command()
@shared.shown(
    "--plane",
    "planes",
    multiple=True,
    default=("skiplist", "interest", "tree"),
    type=click.Choice(["skiplist", "interest", "tree", "robustness"]),
    help=shared.SEVERAL,
)
@shared.shown(
    "--size",
    "sizes",
    **shared.LIST,
    default="1000,1000000",
    help="Entries, nodes or hosts, up to 10,000,000.",
)
@click.option(
    "--parameter",
    type=click.IntRange(0),
    default=0,
    show_default="the seed's own",
    help="k (skiplist) or K (interest).",
)
@click.option(
    "--events",
    type=click.IntRange(0),
    default=0,
    show_default="a number that suits the plane",
    help="Events or changes to follow.",
)
@shared.shown("--seeds", **shared.RANGE, default="0", help="Seeds of the fabrics.")
@shared.shown("--parts", type=click.IntRange(1, 1000), default=2, help="Tasks for each fabric.")
@shared.out_option("Where the tables go.")
@shared.master_option
@json_option
def models(as_json: bool, **given: Any) -> None:
    """Model the planes in their steady state, up to millions of nodes: hops, noise, rounds, depth
    and load.

    \b
    Examples:
      gossamer pipeline models --out models --size 1000,10000,100000,1000000
      gossamer pipeline models --out models --plane skiplist --parameter 4 --size 1000000
      gossamer pipeline models --out models --plane robustness --parameter 3 --size 100000 --json
    """
    with shared._errors():
        from gossamer.lab import models as module

        try:
            plans = [
                module.Plan(plane, size, given["parameter"], seed, given["events"]).checked()
                for plane in given["planes"]
                for size in given["sizes"]
                for seed in given["seeds"]
            ]
        except module.ModelError as error:
            raise click.UsageError(str(error)) from None
    with shared._errors(), shared._spark(given["master"], "models", SMALL) as (spark, _):
        from gossamer.pipeline import job
        from gossamer.pipeline.tables import MODELS

        (outcome,) = job.run(spark, given["out"], [module.stage(plans, given["parts"])])
        summary = module.summary(job.read(spark(), MODELS, given["out"]))
        rows = [
            row.asDict()
            for row in summary.orderBy("plane", "what", "size", "parameter", "seed").collect()
        ]
    if as_json:
        for row in rows:
            click.echo(msgspec.json.encode(row).decode())
        return
    columns = ("plane", "what", "size", "parameter", "seed", "events", "mean", "p50", "p99", "most")
    shared._print_rows([{name: _shown(row[name]) for name in columns} for row in rows])
    click.echo(f"{outcome.seconds:.1f} s; table models in {given['out']}")


def _shown(value: Any) -> str:
    return (
        f"{value:,.3f}"
        if isinstance(value, float)
        else f"{value:,}"
        if isinstance(value, int)
        else str(value)
    )


# This is the whole group. app.py takes it from here.
pipeline = shared.pipeline
pipeline.add_command(grid)
pipeline.add_command(models)
