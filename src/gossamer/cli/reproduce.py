"""``gossamer reproduce``: every figure of the seeds, drawn from tables, on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from gossamer.cli import pipeline as shared
from gossamer.cli.common import json_option
from gossamer.pipeline.session import SMALL


@click.command()
@shared.out_option("Where the page, charts and tables go.")
@click.option(
    "--quick",
    is_flag=True,
    help="Run everything at a small size, in a minute, as a check that all parts are in place. "
    "The numbers are not the seeds'.",
)
@click.option(
    "--trace",
    metavar="FOLDER|FILE",
    help="The trace of seed 001: files.csv.gz and peer_files.csv.gz, or one .csv.gz with peer, "
    "name, type, size. [the sample that comes with gossamer]",
)
@click.option(
    "--seed", type=click.IntRange(0), help="Everything random comes from this number. [7]"
)
@click.option("--no-png", is_flag=True, help="No PNG files: then Pillow is not needed.")
@shared.master_option
@json_option
@click.pass_context
def reproduce(ctx: click.Context, /, as_json: bool, **given: Any) -> None:
    """Reproduce the figures of the three seeds, each beside the seed's own numbers, on one page.

    Simulations and models are fanned out over Spark and committed as they end, so a run that was
    stopped continues. The command writes DIR/report.html (one file, nothing to load), DIR/charts
    (SVG, PNG) and the tables (Parquet, and CSV in DIR/csv). Exit code 1 if a run failed.

    \b
    Examples:
      gossamer reproduce --out results
      gossamer reproduce --out small --quick --json
      gossamer reproduce --out results --trace debian-sources --master spark://host:7077
    """
    with shared._errors():
        from gossamer.lab import experiments, studies
        from gossamer.lab.skiplist.workload import check_trace
        from gossamer.pipeline import drawing
        from gossamer.sim import ConfigError

        study = studies.QUICK if given["quick"] else studies.Study()
        changed = {name: given[name] for name in ("trace", "seed") if given[name] is not None}
        if "trace" in changed and changed["trace"] != "sample":
            if not Path(changed["trace"]).exists():
                raise shared.PipelineError(
                    f"{changed['trace']}: no such file or folder; "
                    "give a trace, or none for the shipped sample"
                )
            changed["trace"] = str(Path(changed["trace"]).resolve())
        study = msgspec.structs.replace(study, **changed)
        try:
            check_trace(study.trace)
            studies.grid_cells(study)
            if not given["no_png"]:
                drawing.require_png()
        except (ConfigError, experiments.GridError, drawing.PngError) as error:
            hint = "; or give --no-png" if isinstance(error, drawing.PngError) else ""
            raise shared.PipelineError(f"{error}{hint}") from None
    with shared._errors(), shared._spark(given["master"], "reproduce", SMALL) as (spark, progress):
        from gossamer.lab import reproduce as module

        names = [stage.name for stage in module.plan(given["out"], study)]
        on_stage = shared.stage_bar(progress, names)
        runs = progress.add_task("runs", total=None)
        on_wave = shared.wave_bar(progress, runs)
        result = module.run(spark, given["out"], study, on_stage, on_wave, png=not given["no_png"])
    if as_json:
        click.echo(msgspec.json.encode(_plain(result)).decode())
    else:
        for figure in result.figures:
            said = {True: "agrees", False: "differs", None: "beyond"}[figure.agrees]
            click.secho(
                f"{figure.key:<10} {said:<8} ",
                nl=False,
                fg="yellow" if figure.agrees is False else None,
            )
            click.echo(figure.sentence)
        for replay in result.failed:
            click.secho(f"failed: {replay}", fg="red")
        click.echo(f"{result.runs:,} runs, {result.seconds:.0f} s; {result.report}")
    ctx.exit(0 if result.ok else 1)


def _plain(result: Any) -> dict[str, Any]:
    figures = [
        {
            "figure": f.key,
            "agrees": f.agrees,
            "sentence": f.sentence,
            "numbers": msgspec.to_builtins(f.numbers),
        }
        for f in result.figures
    ]
    stages = {outcome.stage: outcome.seconds for outcome in result.stages}
    told = {
        "ok": result.ok,
        "runs": result.runs,
        "failed": result.failed,
        "seconds": stages,
        "figures": figures,
    }
    return told | {"report": str(result.report)}
