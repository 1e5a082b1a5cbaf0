"""``gossamer pipeline``: from traces to verdicts and figures, on Spark."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from gossamer.cli.bars import Stages
from gossamer.cli.common import F, json_option
from gossamer.cli.pipeline_verdicts import plain_result, print_result, print_verdict
from gossamer.cli.plain import json_line, plain_all, plain_console
from gossamer.pipeline import masters
from gossamer.pipeline.session import conf_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from gossamer.pipeline.runs import Grid

RUNS_MAX = 10_000
WORKLOADS = ("trace", "exact", "uniform", "ranges", "wildcards", "mixed")
JOB = (
    "out", "traces", "mapping", "sessions", "rtts", "workload", "filters", "events", "seed",
    "topics", "zipf", "width", "wildcards", "period_us", "churn", "churn_per_minute", "until",
)  # fmt: skip
"""The options of ``run`` that belong to the job."""


class PipelineError(click.ClickException):
    """One line with the fault and the remedy."""

    exit_code = 2


def _count(ctx: click.Context, param: click.Parameter, value: str) -> int | None:
    """A positive number, or ``all``."""
    if value == "all":
        return None
    if not value.isdecimal() or int(value) == 0:
        raise click.BadParameter(f"{value!r} is neither a positive number nor 'all'")
    return int(value)


def _numbers(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, ...]:
    """Numbers with commas between, and ranges: ``10,20,40`` or ``0-9``."""
    found: list[int] = []
    for part in value.split(","):
        first, dash, last = part.strip().partition("-")
        if (
            not first.isdecimal()
            or (dash and not last.isdecimal())
            or int(last or first) - int(first) not in range(RUNS_MAX)
        ):
            raise click.BadParameter(f"{value!r} is not a list of numbers such as 50,100 or 0-4")
        found += range(int(first), int(last or first) + 1)
    return tuple(dict.fromkeys(found))


def _master(ctx: click.Context, param: click.Parameter, value: str) -> str:
    try:
        return masters.check(value)
    except masters.SparkStartError as error:
        raise click.BadParameter(str(error)) from None


shown = functools.partial(click.option, show_default=True)
_files = functools.partial(
    click.option, multiple=True, type=click.Path(path_type=Path), metavar="FILE"
)
LIST: dict[str, Any] = {"callback": _numbers, "metavar": "N,N,.."}
RANGE: dict[str, Any] = {"callback": _numbers, "metavar": "N-N"}
_COUNT: dict[str, Any] = {"callback": _count, "metavar": "N|all"}
_SHARE: dict[str, Any] = {"type": click.FloatRange(0, 1)}
SEVERAL = "May be given several times."


def out_option(help: str) -> Callable[[F], F]:
    return click.option(
        "--out", required=True, type=click.Path(path_type=Path), metavar="DIR", help=help
    )


master_option = click.option(
    "--master",
    callback=_master,
    default="local[*]",
    show_default=True,
    metavar="URL",
    help="The master of Spark: local[*], spark://host:7077, ...",
)


@click.group()
def pipeline() -> None:
    """From traces to verdicts and figures, on Spark.

    A trace becomes a workload of filters and events. Spark computes the events that each filter
    must get. Simulations of the fabric are fanned out over Spark and judged by that, and a report
    shows everything. `verify` judges a live fabric in the same way.

    \b
    Examples:
      gossamer pipeline run --out results
      gossamer pipeline show metrics --out results
      gossamer pipeline verify --traces gossamer-demo/traces
    """


@pipeline.command()
@_files(
    "--trace",
    "traces",
    help="CSV, JSON lines or Parquet with columns peer, name, type, size; Debian's Sources index; "
    "trace files of live nodes. May be given several times. "
    "Default: the sample that comes with gossamer.",
)
@click.option(
    "--mapping",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="TOML that assigns files and columns of any format to attributes (docs/pipeline.md).",
)
@_files(
    "--sessions",
    help="CSV with node_id, up_s, down_s, left_censored, right_censored: the times when peers were "
    "there.",
)
@_files("--rtts", help="Square matrix of round-trip times in milliseconds.")
@out_option("Where tables and report go.")
@master_option
@shown("--nodes", **LIST, default="20,40,80", help="Sizes of the fabric.")
@shown("--seeds", **RANGE, default="0,1", help="Seeds of the runs.")
@shown("--filters", **_COUNT, default="1000", help="The most filters. There is one for each peer.")
@shown("--events", **_COUNT, default="100", help="The most events. There is one for each file.")
@shown("--seed", type=click.IntRange(0), default=0, help="Seed of the workload.")
@shown(
    "--workload",
    type=click.Choice(WORKLOADS),
    default="trace",
    help="trace: one filter for each peer, of mixed shapes; exact: points alone; "
    "the others are synthetic.",
)
@shown(
    "--topics", type=click.IntRange(1, 10_000), default=1, help="Topics of a synthetic workload."
)
@shown(
    "--zipf",
    type=click.FloatRange(0, 10),
    default=0.0,
    help="Exponent of the topics' popularity; 0: all alike.",
)
@shown(
    "--width", **_SHARE, default=0.01, help="Width of synthetic ranges, as a share of all sizes."
)
@shown(
    "--wildcards",
    **_SHARE,
    default=0.2,
    help="Share of filters with a wildcard, for --workload wildcards.",
)
@shown(
    "--period-us",
    type=click.IntRange(1),
    default=1000,
    help="Microseconds between two events; simulations use it with churn.",
)
@shown(
    "--churn",
    type=click.Choice(["none", "sessions", "server", "client"]),
    default="none",
    help="Peers come and go, with their subscriptions: as in the trace of sessions, "
    "or by fitted distributions.",
)
@shown(
    "--churn-per-minute",
    type=click.FloatRange(0, 60),
    default=0.1,
    help="Share of peers that leave in a minute, where churn is fitted.",
)
@click.option(
    "--until",
    type=click.Choice(["traces", "workload", "oracle", "runs", "metrics", "report"]),
    help="End after this stage.",
)
@shown("--overlay", "overlays", multiple=True, default=("flood",), help=SEVERAL)
@shown("--degree", type=click.IntRange(1), default=6, help="Links of a node.")
@shown(
    "--latency",
    default="constant:1ms",
    help="Latency model of a link; rtts: the matrix of --rtts.",
)
@shown(
    "--loss",
    **_SHARE,
    default=0.0,
    help="Share of packets lost: their messages, and all behind them on the link, are late.",
)
@shown(
    "--breaks",
    type=click.FloatRange(0, 0.5),
    default=0.0,
    help="Chance for each message that its link breaks in mid-stream.",
)
@click.option(
    "--force", is_flag=True, help="Run every stage again, also those whose inputs did not change."
)
@json_option
@click.pass_context
def run(ctx: click.Context, /, as_json: bool, **options: Any) -> None:
    """Run the whole pipeline: traces, workload, oracle, runs, metrics, report.

    A stage whose inputs did not change since it was committed is skipped, so a job that was killed
    continues where it was. Exit code 1 if any event was missed, duplicate or spurious, or if a run
    failed or broke an invariant.

    \b
    Examples:
      gossamer pipeline run --out results
      gossamer pipeline run --out results --trace files.csv.gz --nodes 100,400 --seeds 0-4
      gossamer pipeline run --out results --events all --loss 0.01 --json
      gossamer pipeline run --out results --workload mixed --filters 5000 --events 10000 \\
        --topics 50 --zipf 0.9 --until oracle
      gossamer pipeline run --out results --workload ranges --topics 3 --churn client \\
        --churn-per-minute 20 --period-us 20000
    """
    for path in (*options["traces"], *options["sessions"], *options["rtts"]):
        if path.is_dir():
            raise PipelineError(
                f"{path}: a folder; give its files, each with an option of its own, or a mapping "
                'with a pattern (--mapping, files = ["*.csv"]); '
                "verify --traces takes a folder of live nodes' traces"
            )
        if not path.is_file():
            raise PipelineError(
                f"{path}: no such file; --help says what --trace, --sessions and --rtts take"
            )
    # The paths must be valid from any folder, because the job's options are kept, for status and
    # for the commands that repeat a run.
    for name in ("traces", "sessions", "rtts"):
        options[name] = tuple(path.absolute() for path in options[name])
    options["mapping"] = options["mapping"] and options["mapping"].absolute()
    if options["latency"] == "rtts":
        if not options["rtts"]:
            raise click.UsageError("--latency rtts takes the matrix of --rtts; give one")
        options["latency"] = f"matrix:{options['rtts'][0]}"
    with _errors():
        from gossamer.pipeline import stages

        wanted = stages.Job(grid=_grid(options), **{name: options[name] for name in JOB})
        conf = conf_for(wanted.size, options["master"])
    with _errors(), _spark(options["master"], "pipeline", conf) as (spark, progress):
        names = [stage.name for stage in stages.plan(wanted)]
        on_stage = stage_bar(progress, names)
        result = stages.run(spark, wanted, on_stage, force=options["force"])
    if as_json:
        click.echo(msgspec.json.encode(plain_result(result)).decode())
    else:
        print_result(result)
    ctx.exit(0 if result.ok else 1)


@pipeline.command()
@out_option("Where the pipeline wrote.")
@json_option
def status(out: Path, as_json: bool) -> None:
    """Show each stage, whether it is done, and why it would run again.

    Commits of grid, models and reproduce in this folder are shown, too. Only those commands know
    whether they are stale.

    \b
    Examples:
      gossamer pipeline status --out results
      gossamer pipeline status --out results --json
    """
    with _errors():
        from gossamer.pipeline import job, stages

        try:
            planned = stages.plan(stages.last_job(out))
        except job.JobError:
            if not (found := job.others(out, ())):
                raise
        else:
            found = job.status(out, planned) + job.others(out, planned)
    if as_json:
        for stage in found:
            click.echo(msgspec.json.encode(stage).decode())
        return
    _print_rows(
        [
            {
                "stage": stage.stage,
                "state": stage.state,
                "rows": ", ".join(f"{name} {count:,}" for name, count in stage.rows.items()),
                "seconds": "" if stage.seconds is None else f"{stage.seconds:.1f}",
                "why": stage.why,
            }
            for stage in found
        ]
    )


@pipeline.command()
@click.argument("stages", nargs=-1, metavar="[STAGE]...")
@out_option("Where the pipeline wrote.")
@json_option
def clean(stages: tuple[str, ...], out: Path, as_json: bool) -> None:
    """Remove the pipeline's tables: everything, or the tables of some stages. Other files in the
    folder stay.

    \b
    Examples:
      gossamer pipeline clean --out results
      gossamer pipeline clean runs metrics --out results
    """
    with _errors():
        from gossamer.pipeline import job

        gone = job.clean(out, stages)
    if as_json:
        click.echo(msgspec.json.encode({"removed": gone}).decode())
    else:
        click.echo(f"removed {', '.join(gone)}" if gone else f"nothing of the pipeline's in {out}")


@pipeline.command()
@json_option
def tables(as_json: bool) -> None:
    """Show every table: meaning, grain, key and columns.

    \b
    Examples:
      gossamer pipeline tables
      gossamer pipeline tables --json
    """
    from gossamer.pipeline.tables import TABLES, plain

    if as_json:
        for table in TABLES.values():
            click.echo(msgspec.json.encode(plain(table)).decode())
        return
    for table in TABLES.values():
        click.secho(table.name, bold=True, nl=False)
        click.echo(f": {table.meaning}\n  one row: {table.grain}\n  key: {', '.join(table.key)}")
        for column in table.columns:
            null = "" if column.required else " (may be NULL)"
            click.echo(f"    {column.name:<20} {column.type:<14} {column.meaning}{null}")


@pipeline.command()
@click.argument("table")
@out_option("Where the pipeline wrote.")
@click.option(
    "--limit", type=click.IntRange(1), default=20, show_default=True, help="Rows to show."
)
@json_option
def show(table: str, out: Path, limit: int, as_json: bool) -> None:
    """Show the first rows of a table.

    \b
    Examples:
      gossamer pipeline show metrics --out results
      gossamer pipeline show quarantine --out results --limit 100 --json
    """
    with _errors():
        from gossamer.pipeline.session import require_spark

        require_spark()
        from gossamer.pipeline import job

        rows, count = job.show(table, out, limit)
    if as_json:
        for row in rows:
            click.echo(json_line(row))
        return
    # A table may have texts of peers, for example in the quarantine.
    texts = [
        {name: "" if value is None else str(value) for name, value in row.items()} for row in rows
    ]
    _print_rows(plain_all(texts))
    click.echo(f"{len(rows):,} of {count:,} rows")


@pipeline.command()
@click.option(
    "--traces",
    required=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder of the nodes' *.jsonl.",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write an HTML report there, too.",
)
@click.option("--late", "late_ms", type=click.FloatRange(0), default=1000.0, show_default=True,
              metavar="MS", help="Count hand-overs that came later than this many milliseconds "
              "after the publication.")  # fmt: skip
@master_option
@json_option
@click.pass_context
def verify(
    ctx: click.Context,
    traces: Path,
    report: Path | None,
    late_ms: float,
    master: str,
    as_json: bool,
) -> None:
    """Judge a live fabric by its nodes' trace files.

    Exit code 1 if any event was missed, duplicate or spurious, or if a trace could not be read.

    \b
    Examples:
      gossamer pipeline verify --traces traces
      gossamer pipeline verify --traces traces --report verdict.html --json
    """
    with _errors():
        if not traces.is_dir():
            raise PipelineError(
                f"{traces}: no such folder; give the one that the nodes' --trace-dir named"
            )
        files = tuple(traces.glob("*.jsonl"))
        if not files:
            raise PipelineError(
                f"{traces}: no trace files (*.jsonl) here; "
                f"run nodes with --trace-dir {traces}, then verify"
            )
        if report is not None and (
            report.is_dir() or not os.access(report.absolute().parent, os.W_OK)
        ):
            raise PipelineError(
                f"{report}: no file that can be written; "
                "give --report a name in a folder that is there"
            )
    with (
        _errors(),
        _spark(master, "verify", conf_for(sum(path.stat().st_size for path in files), master)) as (
            spark,
            _,
        ),
    ):
        from gossamer.pipeline import verify as module
        from gossamer.pipeline.report import write_demo

        verdict = module.verify(spark(), traces, late_ms)
        if not verdict.events or not verdict.subscriptions:
            what = "subscription" if verdict.events else "publication"
            raise module.VerifyError(
                f"{traces}: not one {what} in these traces, so there is nothing to judge; "
                "the nodes that subscribe and publish need --trace-dir too"
            )
        if report is not None:
            write_demo(verdict, report, {"traces": str(traces)}, sample=False)
    if as_json:
        click.echo(json_line({"ok": verdict.ok, **msgspec.to_builtins(verdict)}))
    else:
        print_verdict(verdict)
    ctx.exit(0 if verdict.ok else 1)


def _print_rows(rows: list[dict[str, str]]) -> None:
    """Print a table if it fits the terminal, or else one value on each line."""
    console = plain_console()
    names = list(rows[0]) if rows else []
    if sum(2 + max(len(name), *(len(row[name]) for row in rows)) for name in names) > console.width:
        for row in rows:
            click.echo("\n".join(f"{name:<20} {value}" for name, value in row.items()) + "\n")
        return
    table = Table(*names, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*row.values())
    console.print(table)


def _grid(options: dict[str, Any]) -> Grid:
    """The grid of runs.

    Configurations that the simulator would refuse are refused before Spark starts.
    """
    from gossamer.pipeline.runs import Grid
    from gossamer.sim import Config, ConfigError

    grid = Grid(
        overlays=tuple(dict.fromkeys(options["overlays"])),
        nodes=options["nodes"],
        seeds=options["seeds"],
        degree=options["degree"],
        latency=options["latency"],
        loss=options["loss"],
        breaks=options["breaks"],
    )
    try:
        for overlay, nodes, seed in itertools.product(grid.overlays, grid.nodes, grid.seeds):
            Config(
                overlay=overlay, nodes=nodes, degree=grid.degree, seed=seed,
                latency=grid.latency, loss=grid.loss, breaks=grid.breaks,
            )  # fmt: skip
    except ConfigError as error:
        raise click.UsageError(str(error)) from None
    return grid


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    """Print one line for an error that a user can cause and correct.

    Any other error is our fault and shows its traceback.
    """
    from gossamer.pipeline.session import MissingExtraError, require_spark

    try:
        require_spark()
    except MissingExtraError as error:
        raise PipelineError(str(error)) from None
    from gossamer.pipeline.contracts import ContractError
    from gossamer.pipeline.formats import TraceInputError
    from gossamer.pipeline.job import JobError
    from gossamer.pipeline.mapping import MappingError
    from gossamer.pipeline.verify import VerifyError

    try:
        yield
    except (
        ContractError,
        JobError,
        MappingError,
        MissingExtraError,
        TraceInputError,
        VerifyError,
    ) as error:
        raise PipelineError(str(error)) from None


@contextlib.contextmanager
def _spark(
    master: str, name: str, conf: dict[str, str]
) -> Iterator[tuple[Callable[[], SparkSession], Progress]]:
    """A session that starts at its first use, and a progress bar on stderr that counts Spark's
    tasks.
    """
    from gossamer.pipeline.quiet import hush
    from gossamer.pipeline.session import session
    from gossamer.pipeline.taskcounts import watch

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with (
        contextlib.ExitStack() as stack,
        Stages(*columns, console=Console(stderr=True), transient=True) as progress,
    ):

        @functools.cache
        def start() -> SparkSession:
            starting = progress.add_task("starting Spark", total=None)
            spark = stack.enter_context(session(f"gossamer {name}", master, conf=conf))
            hush(spark)
            progress.update(starting, description="Spark tasks", total=0)
            stack.enter_context(watch(spark, _task_bar(progress, starting)))
            return spark

        yield start, progress


def stage_bar(progress: Progress, names: Sequence[str]) -> Callable[[str, bool], None]:
    """A callback that shows the stage of a job that runs."""
    bar = progress.add_task("start", total=len(names))

    def on_stage(name: str, skipped: bool) -> None:
        said = f"{name} (as before)" if skipped else name
        progress.update(bar, description=said, completed=names.index(name))

    return on_stage


def wave_bar(progress: Progress, bar: Any) -> Callable[[int, int], None]:
    """A callback for a grid that updates a bar, or logs each wave where no terminal shows the
    bar.
    """

    def on_wave(done: int, total: int) -> None:
        progress.update(bar, description=f"{done:,} of {total:,} runs", completed=done, total=total)

    return on_wave


def _task_bar(progress: Progress, bar: Any) -> Callable[[int, int], None]:
    def on_tasks(done: int, total: int) -> None:
        progress.update(bar, completed=done, total=total)

    return on_tasks
