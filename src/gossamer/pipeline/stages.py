"""The stages of ``gossamer pipeline run``: traces -> workload -> oracle -> runs -> metrics -> report.

Each is stated with the tables it reads and writes and with everything else its rows depend on; ``job`` runs them.
"""

from __future__ import annotations

import contextlib
import gzip
import re
from collections.abc import Callable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, to_builtins
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from gossamer.pipeline import job, metrics, oracle, report, runs, tables, traces, workload
from gossamer.pipeline.job import HIDDEN, JobError, OnStage, Outcome, Stage, Step
from gossamer.pipeline.runs import Grid
from gossamer.pipeline.tables import TABLES

if TYPE_CHECKING:
    from gossamer.sim import Workload

CHECKED_MAX = 128
"""So many filters of a workload are also evaluated text by text, and must give what the templates gave."""


class Job(Struct, frozen=True):
    """What to do. No trace: the sample that comes with the package."""

    out: Path
    traces: tuple[Path, ...] = ()
    filters: int | None = 1000
    events: int | None = 100
    seed: int = 0
    """Of the workload; each run has its own."""
    grid: Grid = Grid()


class Result(Struct, frozen=True):
    """What came of it."""

    out: Path
    report: Path
    stages: list[Outcome]
    totals: dict[str, int]
    """expected, delivered, missed, duplicate, spurious over all runs; and how many runs failed, disagree, or violated
    an invariant."""

    @property
    def rows(self) -> dict[str, int]:
        return {name: count for outcome in self.stages for name, count in outcome.rows.items()}

    @property
    def seconds(self) -> dict[str, float]:
        return {outcome.stage: outcome.seconds for outcome in self.stages}

    @property
    def ok(self) -> bool:
        return not any(self.totals[name] for name in ("missed", "duplicate", "spurious", "failed", "disagree", "violated"))


def run(
    spark: Callable[[], SparkSession],
    wanted: Job,
    on_stage: OnStage = lambda stage, skipped: None,
    simulate: runs.Simulate | None = None,
    *,
    force: bool = False,
) -> Result:
    """Do the whole job; ``spark`` is asked for only if there is something to do. ``simulate`` replaces the simulator in tests."""
    job.remember(wanted.out, wanted)
    outcomes = job.run(spark, wanted.out, plan(wanted, simulate), on_stage, force=force)
    ran, judged = (job.show(name, wanted.out, runs.RUNS_MAX)[0] for name in ("runs", "metrics"))
    return Result(wanted.out, wanted.out / "report.html", outcomes, report.totals(ran, judged))


def last_job(out: Path) -> Job:
    """The job that was last asked for in this folder."""
    return job.remembered(out, Job)


def plan(wanted: Job, simulate: runs.Simulate | None = None) -> tuple[Stage, ...]:
    """The job's stages in order."""
    here = "gossamer.pipeline"
    return (
        Stage(
            "traces",
            lambda step: _traces(step, wanted),
            writes=(tables.PEERS, tables.ITEMS, tables.HOLDINGS, tables.SESSIONS, tables.RTTS, tables.QUARANTINE),
            files=wanted.traces or (_sample(),),
            code=(f"{here}.traces",),
        ),
        Stage(
            "workload",
            lambda step: _workload(step, wanted),
            reads=(tables.ITEMS, tables.HOLDINGS, tables.SESSIONS),
            writes=(tables.TOPICS, tables.FILTERS, tables.EVENTS, tables.CHURN),
            settings=[wanted.seed, wanted.filters, wanted.events],
            code=(f"{here}.workload",),
        ),
        Stage(
            "oracle",
            _oracle,
            reads=(tables.TOPICS, tables.FILTERS, tables.EVENTS, tables.CHURN),
            writes=(tables.EXPECTED,),
            code=(f"{here}.oracle",),
        ),
        Stage(
            "runs",
            lambda step: _runs(step, wanted, simulate),
            reads=(tables.TOPICS, tables.FILTERS, tables.EVENTS),
            writes=(tables.RUNS, tables.DELIVERIES, tables.LOADS),
            settings=[to_builtins(wanted.grid), _command(wanted), simulate is not None],
            code=(
                "gossamer.filters",
                "gossamer.machine",
                "gossamer.overlay",
                "gossamer.node",
                "gossamer.sim",
                f"{here}.runs",
            ),
        ),
        Stage(
            "metrics",
            lambda step: {"metrics": metrics.metrics(*map(step.read, step.stage.reads))},
            reads=(tables.RUNS, tables.DELIVERIES, tables.LOADS, tables.EXPECTED),
            writes=(tables.METRICS,),
            code=(f"{here}.metrics", f"{here}.oracle"),
        ),
        Stage(
            "report",
            lambda step: _report(step, wanted),
            reads=tuple(TABLES[name] for name in ("holdings", *report.READS)),
            products=("report.html",),
            settings=[str(path) for path in wanted.traces],
            code=(f"{here}.report", f"{here}.figures"),
        ),
    )


def _traces(step: Step, wanted: Job) -> Mapping[str, DataFrame]:
    parsed = step.keep(read_traces(step.spark, wanted.traces))
    if parsed.where("reason IS NULL").isEmpty():
        count, first = parsed.count(), parsed.orderBy("source", "line").first()
        assert first is not None
        raise JobError(
            f"no usable row in the trace: all {count} are broken, the first ({first['source']}, line {first['line']}) because: "
            f"{first['reason']}"
        )
    return traces.split(parsed)


def _workload(step: Step, wanted: Job) -> Mapping[str, DataFrame]:
    items, holdings = step.read(tables.ITEMS), step.read(tables.HOLDINGS)
    filters = step.keep(workload.filters(items, holdings, wanted.seed, wanted.filters))
    events = step.keep(workload.events(items, holdings, wanted.seed, wanted.events))
    return {
        "topics": workload.topics(filters, events),
        "filters": filters,
        "events": events,
        "churn": step.spark.createDataFrame([], tables.CHURN.ddl),
    }


def _oracle(step: Step) -> Mapping[str, DataFrame]:
    events, filters = with_values(step.read(tables.EVENTS), step.read(tables.TOPICS)), step.read(tables.FILTERS)
    found = step.keep(expected(events, filters))
    check_expected(events, filters, found)
    return {"expected": found}


def _runs(step: Step, wanted: Job, simulate: runs.Simulate | None) -> Mapping[str, DataFrame]:
    given = sim_workload(step.read(tables.TOPICS), step.read(tables.FILTERS), step.read(tables.EVENTS))
    configured = runs.configurations(step.spark, wanted.grid, given, _command(wanted))
    count = len(wanted.grid.overlays) * len(wanted.grid.nodes) * len(wanted.grid.seeds)
    results = step.keep(runs.simulate(configured, given, count, simulate))  # three tables are made of it
    return {"runs": runs.runs(results), "deliveries": runs.deliveries(results), "loads": runs.loads(results)}


def _report(step: Step, wanted: Job) -> Mapping[str, DataFrame]:
    rows = {table.name: step.read(table).count() for table in step.stage.reads}
    rows["traces"] = rows["holdings"]
    facts = report.facts(**{name: step.read(TABLES[name]) for name in report.READS}, rows=rows)
    report.write_pipeline(facts, step.product("report.html"), wanted.traces)
    return {}


def with_values(events: DataFrame, topics: DataFrame) -> dict[str, DataFrame]:
    """The events of each topic as (event, values STRUCT), read by the topic's schema."""
    found = {}
    for row in topics.orderBy("topic").collect():
        values = sf.from_json("values", tables.parse_schema(row["schema"]), workload.JSON)
        found[row["topic"]] = events.where(sf.col("topic") == row["topic"]).select("event", values.alias("values"))
    return found


def expected(events: dict[str, DataFrame], filters: DataFrame) -> DataFrame:
    """The rows of ``expected``: by template where there are many filters."""
    found = [oracle.matches(rows, filters.where(sf.col("topic") == topic)) for topic, rows in events.items()]
    return _union(found).select("event", "filter", sf.lit(True).alias("due")).select(*tables.EXPECTED.names)


def check_expected(events: dict[str, DataFrame], filters: DataFrame, found: DataFrame) -> None:
    """The first filters again, text by text: the two ways must give the same pairs."""
    few = filters.where(sf.col("filter") < CHECKED_MAX)
    by_text = _union([oracle.matches_by_text(rows, few.where(sf.col("topic") == topic)) for topic, rows in events.items()])
    joined = found.where(sf.col("filter") < CHECKED_MAX).select("event", "filter").withColumn("side", sf.lit(-1))
    sides = by_text.withColumn("side", sf.lit(1)).unionByName(joined)
    if (pair := sides.groupBy("event", "filter").agg(sf.sum("side").alias("side")).where("side <> 0").first()) is not None:
        raise JobError(
            f"the oracle's two ways differ on event {pair['event']}, filter {pair['filter']}: this is a bug in gossamer"
        )


def _union(frames: list[DataFrame]) -> DataFrame:
    whole = frames[0]
    for more in frames[1:]:
        whole = whole.unionByName(more)
    return whole


def sim_workload(topics: DataFrame, filters: DataFrame, events: DataFrame) -> Workload:
    """The workload as the simulator takes it: filter i is the i-th, so is event j. One topic."""
    from gossamer.sim import Workload

    named = topics.orderBy("topic").collect()
    if len(named) != 1:
        raise JobError(f"the workload has {len(named)} topics and a simulation takes one; run it with --topics 1")
    read = with_values(events, topics)[named[0]["topic"]].orderBy("event").collect()
    texts = tuple(row["text"] for row in filters.orderBy("filter").collect())
    return Workload(
        named[0]["schema"], texts, tuple(row["values"].asDict(recursive=True) for row in read), named[0]["topic"]
    )


@contextlib.contextmanager
def sample() -> Iterator[Path]:
    """The trace that comes with the package."""
    with resources.as_file(resources.files("gossamer") / "data" / "debian-sample.csv.gz") as path:
        yield path


def _sample() -> Path:
    with sample() as path:
        return path


def read_traces(spark: SparkSession, paths: tuple[Path, ...]) -> DataFrame:
    """The rows of trace files, parsed; the shipped sample where no file is given."""
    with contextlib.ExitStack() as stack:
        chosen = paths or (stack.enter_context(sample()),)
        parsed = []
        for path in chosen:
            if job.is_hidden(path):
                raise JobError(f"{path}: {HIDDEN}")
            names = traces.header(_first_line(path), path.name)
            lines = job.read_lines(spark, [path]).where("line > 1")
            parsed.append((names, lines))
        if len({tuple(names) for names, _ in parsed}) > 1:
            raise JobError("the trace files name different columns; convert them to peer, name, type, size")
        lines = _union([lines for _, lines in parsed])
        try:
            if lines.first() is None:
                raise JobError(f"{', '.join(path.name for path in chosen)}: no rows below the first line")
        except (Py4JJavaError, PySparkException) as error:
            raise JobError(f"the trace cannot be read to its end: {_cause(error)}; is the file whole?") from None
        return traces.parse(lines, parsed[0][0])


def _first_line(path: Path) -> str:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            line = file.readline().decode("utf-8")
    except FileNotFoundError:
        raise JobError(f"{path}: no such file; give a CSV file with --trace, or none for the shipped sample") from None
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise JobError(f"{path}: cannot be read ({error}); give a CSV file in UTF-8, plain or .gz") from None
    if not line.strip():
        raise JobError(f"{path}: empty; its first line must name the columns {', '.join(traces.COLUMNS)}")
    return line.rstrip("\r\n")


def _command(wanted: Job) -> list[str]:
    """The command line that does this job, without its grid."""
    command = ["gossamer", "pipeline", "run", "--out", str(wanted.out), "--seed", str(wanted.seed)]
    for path in wanted.traces:
        command += ["--trace", str(path)]
    command += ["--filters", "all" if wanted.filters is None else str(wanted.filters)]
    return [*command, "--events", "all" if wanted.events is None else str(wanted.events)]


def _cause(error: Exception) -> str:
    """The innermost reason of a failed Spark job, in one line."""
    causes = re.findall(r"Caused by: [\w.$]*?(\w+): ([^\n]*)", str(error)) or [("", str(error).strip().split("\n")[0])]
    return ": ".join(part for part in causes[-1] if part)
