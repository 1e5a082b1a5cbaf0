"""The pipeline as one job: the only module that reads and writes. traces -> workload -> oracle -> runs -> metrics -> report.

Each table is Parquet in its own folder under ``out``. It is written beside its place, checked there against its contract
(``tables``), and renamed: a table that can be seen is whole and sound. Every stage reads what the stages before it wrote.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

from msgspec import Struct
from py4j.protocol import Py4JJavaError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

from gossamer.pipeline import metrics, oracle, report, runs, tables, traces, workload
from gossamer.pipeline.runs import Grid
from gossamer.pipeline.tables import TABLES, Table

STAGES = ("traces", "workload", "oracle", "runs", "metrics", "report")
CHECKED_MAX = 128
"""So many filters of a workload are also evaluated text by text, and must give what the templates gave."""

HIDDEN = "Spark ignores files whose names begin with _ or a dot; rename it"


class JobError(ValueError):
    """A job that cannot be done; says why and what to do."""


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
    rows: dict[str, int]
    """Rows in each table."""
    seconds: dict[str, float]
    """Wall time of each stage."""
    totals: dict[str, int]
    """expected, delivered, missed, duplicate, spurious over all runs; and how many runs failed, disagree, or violated
    an invariant."""

    @property
    def ok(self) -> bool:
        return not any(self.totals[name] for name in ("missed", "duplicate", "spurious", "failed", "disagree", "violated"))


OnStage = Callable[[str], None]
"""Told which stage begins."""


@contextlib.contextmanager
def sample() -> Iterator[Path]:
    """The trace that comes with the package."""
    with resources.as_file(resources.files("gossamer") / "data" / "debian-sample.csv.gz") as path:
        yield path


def run(
    spark: SparkSession, job: Job, on_stage: OnStage = lambda stage: None, simulate: runs.Simulate | None = None
) -> Result:
    """Do the whole job. ``simulate`` replaces the simulator in tests."""
    rows: dict[str, int] = {}
    seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def stage(name: str) -> Iterator[None]:
        on_stage(name)
        began = time.perf_counter()
        yield
        seconds[name] = round(time.perf_counter() - began, 3)

    def put(table: Table, frame: DataFrame) -> None:
        rows[table.name] = write(frame, table, job.out)

    def get(table: Table) -> DataFrame:
        return read(spark, table, job.out)

    try:
        job.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise JobError(f"{job.out}: cannot be made a folder ({error.strerror}); choose another with --out") from None
    recover(job.out)
    with stage("traces"):
        parsed = read_traces(spark, job.traces).persist()
        put(tables.QUARANTINE, traces.broken(parsed))
        put(tables.TRACES, traces.good(parsed))
        parsed.unpersist()
        if not rows["traces"]:
            raise JobError(f"no usable row in the trace, {rows['quarantine']} in {job.out / 'quarantine'} with the reasons")
    with stage("workload"):
        put(tables.FILTERS, workload.filters(get(tables.TRACES), job.seed, job.filters))
        put(tables.EVENTS, workload.events(get(tables.TRACES), job.seed, job.events))
    with stage("oracle"):
        put(tables.EXPECTED, expected(get(tables.EVENTS), get(tables.FILTERS)))
        check_expected(get(tables.EVENTS), get(tables.FILTERS), get(tables.EXPECTED))
    with stage("runs"):
        results = _simulated(spark, job, get(tables.FILTERS), get(tables.EVENTS), simulate)
        put(tables.RUNS, runs.runs(results))
        put(tables.DELIVERIES, runs.deliveries(results))
        put(tables.LOADS, runs.loads(results))
        results.unpersist()
    with stage("metrics"):
        judged = (get(table) for table in (tables.RUNS, tables.DELIVERIES, tables.LOADS, tables.EXPECTED))
        put(tables.METRICS, metrics.metrics(*judged))
    with stage("report"):
        facts = report.facts(**{name: get(TABLES[name]) for name in report.READS}, rows=rows)
        page = report.write_pipeline(facts, job.out / "report.html", job.traces)
    return Result(job.out, page, rows, seconds, facts.totals)


def expected(events: DataFrame, filters: DataFrame) -> DataFrame:
    """The rows of ``expected``: by template where there are many filters."""
    return oracle.matches(_values(events), filters).select(*tables.EXPECTED.names)


def check_expected(events: DataFrame, filters: DataFrame, found: DataFrame) -> None:
    """The first filters again, text by text: the two ways must give the same pairs."""
    few = sf.col("filter") < CHECKED_MAX
    by_text = oracle.matches_by_text(_values(events), filters.where(few)).select(*tables.EXPECTED.names)
    sides = by_text.withColumn("side", sf.lit(1)).unionByName(found.where(few).withColumn("side", sf.lit(-1)))
    if (pair := sides.groupBy("event", "filter").agg(sf.sum("side").alias("side")).where("side <> 0").first()) is not None:
        raise JobError(
            f"the oracle's two ways differ on event {pair['event']}, filter {pair['filter']}: this is a bug in gossamer"
        )


def read(spark: SparkSession, table: Table, out: Path) -> DataFrame:
    """A table that was written under ``out``."""
    folder = out / table.name
    if not folder.is_dir():
        raise JobError(f"no table {table.name} in {out}; make it with: gossamer pipeline run --out {out}")
    return spark.read.schema(table.schema).parquet(_literal(folder))


def write(rows: DataFrame, table: Table, out: Path) -> int:
    """Write beside the place, check, rename. Returns the number of rows."""
    tables.check_schema(rows, table)
    place, fresh, old = out / table.name, *(out / f".{table.name}-{os.getpid()}-{what}" for what in ("new", "old"))
    try:
        rows.write.mode("overwrite").parquet(str(fresh))
        count = tables.check_rows(rows.sparkSession.read.schema(table.schema).parquet(_literal(fresh)), table)
        if place.exists():
            place.rename(old)
        fresh.rename(place)
    finally:
        if old.exists() and not place.exists():
            old.rename(place)
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
    return count


def recover(out: Path) -> None:
    """Clear away what killed jobs left beside the tables; a job killed between its two renames gets its old table back."""
    for left in sorted(out.glob(".*-*-*")):
        known = re.fullmatch(r"\.(\w+)-(\d+)-(new|old)", left.name)
        if known is None or known[1] not in TABLES or _runs(int(known[2])):
            continue
        if known[3] == "old" and not (out / known[1]).exists():
            left.rename(out / known[1])
        else:
            shutil.rmtree(left, ignore_errors=True)


def _runs(pid: int) -> bool:
    """Another process has this number; ours is not meant, since it has written nothing yet."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return pid != os.getpid()


def show(name: str, out: Path, limit: int) -> tuple[list[dict[str, Any]], int]:
    """The first rows of a table in the order of its key, and how many there are. Needs no JVM."""
    import pyarrow.parquet as pq

    if name not in TABLES:
        raise JobError(f"no table {name!r}; there are {', '.join(TABLES)}")
    folder = out / name
    if not folder.is_dir():
        raise JobError(f"no table {name} in {out}; make it with: gossamer pipeline run --out {out}")
    whole = pq.read_table(folder)
    ordered = whole.sort_by([(key, "ascending") for key in TABLES[name].key])
    return ordered.slice(0, limit).to_pylist(), whole.num_rows


def read_traces(spark: SparkSession, paths: tuple[Path, ...]) -> DataFrame:
    """The rows of trace files, parsed; the shipped sample where no file is given."""
    with contextlib.ExitStack() as stack:
        chosen = paths or (stack.enter_context(sample()),)
        parsed = []
        for path in chosen:
            if is_hidden(path):
                raise JobError(f"{path}: {HIDDEN}")
            names = traces.header(_first_line(path), path.name)
            lines = read_lines(spark, [path]).where("line > 1")
            parsed.append((names, lines))
        if len({tuple(names) for names, _ in parsed}) > 1:
            raise JobError("the trace files name different columns; convert them to peer, name, type, size")
        lines = parsed[0][1]
        for _, more in parsed[1:]:
            lines = lines.unionByName(more)
        try:
            if lines.first() is None:
                raise JobError(f"{', '.join(path.name for path in chosen)}: no rows below the first line")
        except (Py4JJavaError, PySparkException) as error:
            raise JobError(f"the trace cannot be read to its end: {_cause(error)}; is the file whole?") from None
        return traces.parse(lines, parsed[0][0])


def read_lines(spark: SparkSession, paths: Iterable[Path]) -> DataFrame:
    """The lines of text files (plain or .gz) as (source, line, row); lines are numbered from 1, however the files are split."""
    found = spark.read.text([_literal(path) for path in paths]).select(
        _source(sf.col("_metadata.file_path")).alias("source"),
        sf.col("_metadata.file_block_start").alias("block"),
        sf.monotonically_increasing_id().alias("place"),  # consecutive inside a block
        sf.col("value").alias("row"),
    )
    blocks = found.groupBy("source", "block").agg(sf.min("place").alias("first"), sf.count(sf.lit(1)).alias("size"))
    before = Window.partitionBy("source").orderBy("block").rowsBetween(Window.unboundedPreceding, -1)
    starts = blocks.select("source", "block", "first", sf.coalesce(sf.sum("size").over(before), sf.lit(0)).alias("before"))
    numbered = found.join(sf.broadcast(starts), on=["source", "block"], how="inner")
    return numbered.select("source", (sf.col("place") - sf.col("first") + sf.col("before") + 1).alias("line"), "row")


def is_hidden(path: Path) -> bool:
    """Spark would silently read nothing from it."""
    return path.resolve().name.startswith(("_", "."))


def _source(uri: Column) -> Column:
    """A file's path as its owner wrote it: Spark gives a URI."""
    encoded = sf.replace(sf.regexp_replace(uri, "^file:(//)?", ""), sf.lit("+"), sf.lit("%2B"))
    return sf.url_decode(encoded)


def _literal(path: Path) -> str:
    """Spark reads paths as patterns; this one means itself."""
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", str(path.resolve()))


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


def _values(events: DataFrame) -> DataFrame:
    return events.select("event", sf.struct("name", "type", "size").alias("values"))


def _simulated(
    spark: SparkSession, job: Job, filters: DataFrame, events: DataFrame, simulate: runs.Simulate | None
) -> DataFrame:
    """All runs of the grid, kept, because three tables are made of them."""
    from gossamer.sim import Workload

    texts = tuple(row["text"] for row in filters.orderBy("filter").collect())
    values = tuple(row.asDict() for row in events.orderBy("event").select("name", "type", "size").collect())
    given = Workload(workload.SCHEMA, texts, values)
    configured = runs.configurations(spark, job.grid, given, _command(job))
    count = len(job.grid.overlays) * len(job.grid.nodes) * len(job.grid.seeds)
    results = runs.simulate(configured, given, count, simulate)
    return results.persist(StorageLevel.MEMORY_AND_DISK)


def _command(job: Job) -> list[str]:
    """The command line that does this job, without its grid."""
    command = ["gossamer", "pipeline", "run", "--out", str(job.out), "--seed", str(job.seed)]
    for path in job.traces:
        command += ["--trace", str(path)]
    command += ["--filters", "all" if job.filters is None else str(job.filters)]
    return [*command, "--events", "all" if job.events is None else str(job.events)]


def _cause(error: Exception) -> str:
    """The innermost reason of a failed Spark job, in one line."""
    causes = re.findall(r"Caused by: [\w.$]*?(\w+): ([^\n]*)", str(error)) or [("", str(error).strip().split("\n")[0])]
    return ": ".join(part for part in causes[-1] if part)
