"""``gossamer demo``: a fabric of real processes, a real trace, and Spark's verdict."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

import gossamer
from gossamer.cli.common import json_option
from gossamer.cli.pipeline import master_option

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from gossamer.pipeline.verify import Verdict

TOPIC = "files"
# The approximate bytes of trace files for each event.
TRACE_BYTES = 640
VERDICT = ("expected", "delivered", "missed", "duplicate", "spurious")


class Run(msgspec.Struct, frozen=True):
    """The facts of the run beside Spark's verdict."""

    filters: int
    events: int
    # The sum over the publishers' receipts.
    matched: int
    fabric_seconds: float
    seconds: float
    report: str


@click.command()
@click.option(
    "--nodes", default=12, show_default=True, type=click.IntRange(2, 50), help="Node processes."
)
@click.option(
    "--filters",
    default=240,
    show_default=True,
    type=click.IntRange(1, 1000),
    help="Subscriptions, over all nodes.",
)
@click.option(
    "--events",
    default=2500,
    show_default=True,
    type=click.IntRange(1, 100_000),
    help="Events, from all nodes.",
)
@click.option(
    "--seed", default=1, show_default=True, help="Chooses filters and events from the trace."
)
@click.option(
    "--out",
    default="gossamer-demo",
    show_default=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Traces and report.",
)
@master_option
@json_option
def demo(
    nodes: int, filters: int, events: int, seed: int, out: Path, master: str, as_json: bool
) -> int:
    """Start a fabric of real node processes on loopback, publish a real trace through it, and let
    Spark judge it.

    Filters and events come from a sample of Debian's source index that ships with the package.
    Spark computes from the filters' text alone which events every subscription should have got, and
    compares them with the nodes' traces. Exit code 1 if any event is missed, duplicate or spurious.

    \b
    Examples:
      gossamer demo
      gossamer demo --nodes 20 --filters 1000 --json
    """
    from gossamer.pipeline.session import conf_for, require_spark, session

    require_spark()
    began = time.perf_counter()
    traces = _fresh(out)
    columns = (
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(12), MofNCompleteColumn(),
        TextColumn("{task.fields[of]}"), TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True)) as progress:
        starting = progress.add_task("Spark starts", total=1, of="")
        with session("gossamer-demo", master, conf=conf_for(TRACE_BYTES * events, master)) as spark:
            progress.update(starting, completed=1)
            schema, texts, rows = _workload(spark, filters, events, seed, progress)
            fabric_began = time.perf_counter()
            matched = asyncio.run(_through_a_fabric(nodes, traces, schema, texts, rows, progress))
            fabric_seconds = time.perf_counter() - fabric_began
            verdict = _judge(spark, traces, progress)
    run = Run(
        filters=len(texts),
        events=len(rows),
        matched=matched,
        fabric_seconds=round(fabric_seconds, 1),
        seconds=round(time.perf_counter() - began, 1),
        report=str(out / "report.html"),
    )
    _report(verdict, run, out, nodes, seed, master)
    agree = matched == verdict.delivered + verdict.allowed
    if as_json:
        said = {name: getattr(verdict, name) for name in VERDICT}
        facts = {
            "nodes": nodes,
            "subscriptions": verdict.subscriptions,
            "receipts_matched": matched,
            "seed": seed,
        }
        click.echo(
            msgspec.json.encode(
                {**said, **facts, **msgspec.to_builtins(run), "ok": verdict.ok and agree}
            ).decode()
        )
    else:
        _print(verdict, run, nodes, agree)
    return 0 if verdict.ok and agree else 1


def _fresh(out: Path) -> Path:
    """An empty folder for the nodes' traces. Only the traces of an earlier demo are removed."""
    traces = out / "traces"
    if traces.exists():
        strange = [
            path.name
            for path in traces.iterdir()
            if not (path.name.startswith("trace-") and path.suffix == ".jsonl")
        ]
        if strange:
            raise click.UsageError(
                f"{traces} holds {strange[0]}, which no demo wrote; "
                "choose another folder with --out"
            )
        shutil.rmtree(traces)
    traces.mkdir(parents=True)
    return traces


def _workload(
    spark: SparkSession, filters: int, events: int, seed: int, progress: Progress
) -> tuple[str, list[str], list[dict[str, Any]]]:
    """Filters and events out of the sample, chosen by the seed."""
    from gossamer.pipeline import stages, traces, workload

    task = progress.add_task("filters and events from a trace", total=2, of="")
    parts = traces.split(stages.read_traces(spark, ()))
    items, holdings = parts["items"].persist(), parts["holdings"].persist()
    texts = [
        row["text"]
        for row in workload.filters(items, holdings, seed, filters).orderBy("filter").collect()
    ]
    progress.update(task, completed=1)
    found = workload.events(items, holdings, seed, events).orderBy("event").collect()
    items.unpersist()
    holdings.unpersist()
    progress.update(task, completed=2)
    return workload.SCHEMA, texts, [json.loads(row["values"]) for row in found]


async def _through_a_fabric(
    nodes: int,
    traces: Path,
    schema: str,
    texts: list[str],
    rows: list[dict[str, Any]],
    progress: Progress,
) -> int:
    """Subscribe and publish from all nodes.

    Return the number of hand-overs that the receipts counted.
    """
    from gossamer.cli.fabric import Fabric

    starting = progress.add_task(f"{nodes} node processes", total=nodes, of="started")
    async with Fabric(nodes, traces) as fabric:
        processes = fabric.processes
        progress.update(starting, completed=len(processes))
        processes[0].tell({"do": "advertise", "topic": TOPIC, "schema": schema})
        await processes[0].answer()
        subscribing = progress.add_task("subscriptions", total=len(texts), of="made")
        for index, process in enumerate(processes):
            process.tell({"do": "subscribe", "topic": TOPIC, "filters": texts[index::nodes]})
        for answer in asyncio.as_completed([process.answer() for process in processes]):
            progress.advance(subscribing, (await answer)["subscribed"])
        publishing = progress.add_task("events", total=len(rows), of="complete")
        for index, process in enumerate(processes):
            process.tell({"do": "publish", "topic": TOPIC, "events": rows[index::nodes]})

        async def follow(process: Any, task: TaskID) -> int:
            completed = 0
            while True:
                answer = await process.answer()
                if "published" in answer:
                    return int(answer["matched"])
                progress.advance(task, answer["completed"] - completed)
                completed = answer["completed"]

        return sum(await asyncio.gather(*(follow(process, publishing) for process in processes)))


def _judge(spark: SparkSession, traces: Path, progress: Progress) -> Verdict:
    from gossamer.pipeline.taskcounts import watch
    from gossamer.pipeline.verify import verify

    task = progress.add_task("Spark judges", total=None, of="tasks")
    with watch(
        spark,
        lambda done, all_tasks: progress.update(task, completed=done, total=all_tasks or None),
    ):
        verdict = verify(spark, traces)
    progress.update(task, total=1, completed=1, of="")
    return verdict


def _report(verdict: Verdict, run: Run, out: Path, nodes: int, seed: int, master: str) -> None:
    from gossamer.pipeline.report import write_demo

    facts = {
        "command": " ".join(["gossamer", *sys.argv[1:]]),
        "nodes": f"{nodes} processes on loopback, flood",
        "subscriptions": f"{run.filters:,}, seed {seed}",
        "receipts": f"{run.matched:,} hand-overs counted by the publishers' receipts",
        "time": f"{run.fabric_seconds:g} s in the fabric, {run.seconds:g} s in all",
        "machine": f"{os.cpu_count()} cores, Python {platform.python_version()}, Spark on {master}",
        "version": f"gossamer {gossamer.__version__}",
    }
    write_demo(verdict, out / "report.html", facts)


def _print(verdict: Verdict, run: Run, nodes: int, agree: bool) -> None:
    console = Console()
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_column()
    meaning = {
        "expected": "due by the filters' text, as Spark reads it",
        "delivered": "handed over by the fabric",
        "missed": "due, and not delivered",
        "duplicate": "delivered more than once",
        "spurious": "delivered, and not asked for",
    }
    for name in VERDICT:
        table.add_row(name, f"{getattr(verdict, name):,}", meaning[name])
    console.print()
    console.print(
        f"{run.events:,} events from {nodes} nodes to {verdict.subscriptions:,} subscriptions, "
        "judged by Spark:"
    )
    console.print(table)
    same = "which agrees" if agree else "WHICH DOES NOT AGREE"
    console.print(f"The publishers' own receipts counted {run.matched:,} hand-overs, {same}.")
    if verdict.latency_ms_p50 is not None and verdict.latency_ms_p99 is not None:
        console.print(
            f"From publish to hand-over: p50 {verdict.latency_ms_p50:.1f} ms, "
            f"p99 {verdict.latency_ms_p99:.1f} ms."
        )
    if verdict.ok and agree:
        console.print(
            "[bold green]Every event reached exactly the subscriptions that asked for it.[/]"
        )
    else:
        console.print("[bold red]Something went wrong; the report has examples.[/]")
    console.print(f"Report with figures: {run.report} ({run.seconds:g} s in all)", soft_wrap=True)
