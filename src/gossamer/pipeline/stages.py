"""The stages of ``gossamer pipeline run``: traces -> workload -> oracle -> runs -> metrics ->
report.

Each stage states the tables that it reads and writes, and everything else that its rows depend on.
``job`` runs them.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from msgspec import Struct, to_builtins
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from gossamer.pipeline import (
    churn,
    formats,
    job,
    mapping,
    metrics,
    oracle,
    report,
    runs,
    synthetic,
    tables,
    traces,
    workload,
)
from gossamer.pipeline.job import JobError, OnStage, Outcome, Stage, Step
from gossamer.pipeline.mapping import NO_NEGATIVE, Source
from gossamer.pipeline.runs import Grid, latency_files
from gossamer.pipeline.tables import TABLES
from gossamer.pipeline.workload import PERIOD_US

if TYPE_CHECKING:
    from gossamer.sim import Workload

CHECKED_MAX = 2000
"""The most filters of a workload that are also evaluated text by text.

Both ways must give the same pairs.
"""
PACKED, PACKED_FACTOR = (".gz", ".bz2", ".xz", ".zst", ".parquet"), 10
"""Files of these kinds grow by about this factor when they are read."""
ROW_BYTES = 200
"""The approximate size of an event or a filter."""
NO_SESSIONS = "--churn sessions needs a trace of sessions: give one with --sessions or --mapping"
STAGES = ("traces", "workload", "oracle", "runs", "metrics", "report")


class Job(Struct, frozen=True):
    """The options of a job. Without a trace it uses the sample that comes with the package."""

    out: Path
    traces: tuple[Path, ...] = ()
    """Files that need no mapping."""
    mapping: Path | None = None
    sessions: tuple[Path, ...] = ()
    rtts: tuple[Path, ...] = ()
    workload: str = "trace"
    """trace, exact (points alone, as in the seed), or one of ``synthetic.KINDS``"""
    filters: int | None = 1000
    events: int | None = 100
    """None: as many as the trace has."""
    seed: int = 0
    """The seed of the workload. Each run has a seed of its own."""
    topics: int = 1
    zipf: float = 0.0
    width: float = 0.01
    wildcards: float = 0.2
    period_us: int = PERIOD_US
    churn: str = "none"
    """One of ``churn.KINDS``."""
    churn_per_minute: float = 0.1
    """The share of the peers that leave in a minute, if churn is fitted."""
    settle_us: int = 1_000_000
    """The longest time until a subscription is in force or a receipt is complete."""
    grid: Grid = Grid()
    until: str | None = None
    """The last stage to run. None: run all."""

    def sources(self) -> tuple[Source, ...]:
        """Every input with its mapping, or the sample if there is none."""
        mapped = mapping.load(self.mapping) if self.mapping else ()
        given = mapped + mapping.plain(self.traces, sessions=self.sessions, rtts=self.rtts)
        if (
            given
            and self.workload not in synthetic.KINDS
            and all(source.table != "items" for source in given)
        ):
            # Sessions or round trips alone hold no items, so the sample supplies these.
            return mapping.plain([_sample()]) + given
        return given

    @property
    def size(self) -> int:
        """The approximate bytes of the whole job: its inputs, the workload, and the events once
        more for each run.
        """
        files = [Path(name) for source in self.sources() for name in source.files]
        runs = len(self.grid.overlays) * len(self.grid.nodes) * len(self.grid.seeds)
        given = sum(
            path.stat().st_size * (PACKED_FACTOR if path.suffix in PACKED else 1)
            for path in files
            if path.is_file()
        )
        return given + ROW_BYTES * ((self.filters or 0) + (self.events or 0) * (1 + runs))


class Result(Struct, frozen=True):
    """The result of a job."""

    out: Path
    report: Path | None
    """None if the job ended before it."""
    stages: list[Outcome]
    totals: dict[str, int]
    """The sums of expected, delivered, missed, allowed, duplicate, spurious and strayed over all
    runs, and the numbers of runs that failed, disagree, or violated an invariant.
    """
    failure: dict[str, str] | None = None
    """The ``error`` of the first run that failed, and ``replay``, the command that repeats it."""

    @property
    def rows(self) -> dict[str, int]:
        return {name: count for outcome in self.stages for name, count in outcome.rows.items()}

    @property
    def seconds(self) -> dict[str, float]:
        return {outcome.stage: outcome.seconds for outcome in self.stages}

    @property
    def ok(self) -> bool:
        return not any(
            self.totals.get(name)
            for name in ("missed", "duplicate", "spurious", "failed", "disagree", "violated")
        )


def run(
    spark: Callable[[], SparkSession],
    wanted: Job,
    on_stage: OnStage = lambda stage, skipped: None,
    simulate: runs.Simulate | None = None,
    *,
    force: bool = False,
) -> Result:
    """Do the whole job.

    ``spark`` is called only if there is work for it. ``simulate`` replaces the simulator in tests.
    """
    job.remember(wanted.out, wanted)
    stages = plan(wanted, simulate)
    outcomes = job.run(spark, wanted.out, stages, on_stage, force=force)
    if "report" not in [stage.name for stage in stages]:
        return Result(wanted.out, None, outcomes, {})
    ran, judged = (job.show(name, wanted.out, runs.RUNS_MAX)[0] for name in ("runs", "metrics"))
    failed = next(
        ({name: row[name] for name in ("error", "replay")} for row in ran if row["status"] != "ok"),
        None,
    )
    return Result(
        wanted.out, wanted.out / "report.html", outcomes, report.totals(ran, judged), failed
    )


def last_job(out: Path) -> Job:
    """The last job of this folder."""
    return job.remembered(out, Job)


def plan(wanted: Job, simulate: runs.Simulate | None = None) -> tuple[Stage, ...]:
    """The job's stages in order, up to the last wanted one."""
    if wanted.topics > 1 and wanted.workload not in synthetic.KINDS:
        raise JobError(
            f"--topics spreads synthetic workloads; --workload {wanted.workload} has the topics "
            "of its trace: "
            "leave --topics out, or add --workload mixed"
        )
    _check_heeded(wanted)
    if wanted.churn == "sessions" and not any(
        one.table == "sessions" or one.format == "trace" for one in wanted.sources()
    ):
        raise JobError(NO_SESSIONS)
    return _plan(wanted, simulate)[: STAGES.index(wanted.until or STAGES[-1]) + 1]


def _check_heeded(wanted: Job) -> None:
    """Raise an error for an option that the workload would not use."""
    drawn = wanted.workload in synthetic.KINDS
    if drawn and (wanted.filters is None or wanted.events is None):
        raise JobError(
            "a synthetic workload has no end of its own; give numbers with --filters and --events"
        )
    for name, heeded, where in (
        (
            "zipf",
            drawn and wanted.topics > 1,
            "several topics of a synthetic workload: add --topics 10 --workload mixed",
        ),
        ("width", wanted.workload in ("ranges", "mixed"), "ranges: add --workload ranges or mixed"),
        ("wildcards", wanted.workload == "wildcards", "wildcards: add --workload wildcards"),
        (
            "churn_per_minute",
            wanted.churn in churn.FITTED,
            "churn that is fitted: add --churn server or client",
        ),
    ):
        if not heeded and getattr(wanted, name) != getattr(Job(wanted.out), name):
            option = f"--{name.replace('_', '-')}"
            raise JobError(
                f"{option} would do nothing here; it is for {where}, or leave {option} out"
            )


_JUDGED = (tables.RUNS, tables.DELIVERIES, tables.LOADS, tables.EXPECTED)
_ORACLE = ("oracle", "templates", "simple", "spans", "texts", "flat", "bands", "prefixes")
"""The modules that decide which pairs match."""
_CHURNED = (
    tables.MATCHES,
    tables.SUBSCRIPTIONS,
    tables.PUBLICATIONS,
    tables.FILTERS,
    tables.CHURN,
    tables.EVENTS,
)


def _plan(wanted: Job, simulate: runs.Simulate | None) -> tuple[Stage, ...]:
    here = "gossamer.pipeline"
    sources = wanted.sources()
    return (
        Stage(
            "traces",
            lambda step: _traces(step, sources),
            writes=(
                tables.PEERS,
                tables.ITEMS,
                tables.HOLDINGS,
                tables.SESSIONS,
                tables.RTTS,
                tables.QUARANTINE,
            ),
            files=tuple(Path(name) for source in sources for name in source.files) or (_sample(),),
            settings=to_builtins(sources),
            code=(f"{here}.traces", f"{here}.formats", f"{here}.advertised"),
        ),
        Stage(
            "workload",
            lambda step: _workload(step, wanted),
            reads=(tables.ITEMS, tables.HOLDINGS, tables.SESSIONS),
            writes=(tables.TOPICS, tables.FILTERS, tables.EVENTS, tables.CHURN),
            settings={name: getattr(wanted, name) for name in _WORKLOAD},
            code=(f"{here}.workload", f"{here}.synthetic", f"{here}.churn", "gossamer.sim.churn"),
        ),
        Stage(
            "oracle",
            lambda step: _oracle(step, wanted),
            reads=(tables.TOPICS, tables.FILTERS, tables.EVENTS, tables.CHURN),
            writes=(tables.MATCHES, tables.EXPECTED),
            settings=[wanted.settle_us if wanted.churn != "none" else None],
            code=(*(f"{here}.{name}" for name in _ORACLE), f"{here}.churn"),
        ),
        Stage(
            "runs",
            lambda step: _runs(step, wanted, simulate),
            reads=(tables.TOPICS, tables.FILTERS, tables.EVENTS, tables.CHURN),
            writes=(tables.RUNS, *runs.LISTS),
            files=latency_files([wanted.grid.latency]),
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
            lambda step: _metrics(step, wanted),
            reads=(*_JUDGED, *(_CHURNED if wanted.churn != "none" else ())),
            writes=(tables.METRICS,),
            settings=[wanted.settle_us if wanted.churn != "none" else None],
            code=(f"{here}.metrics", f"{here}.oracle"),
        ),
        Stage(
            "report",
            lambda step: _report(step, sources),
            reads=tuple(table for table in TABLES.values() if table.name not in job.MAKERS),
            products=("report.html",),
            settings=[str(path) for path in _own(sources)],
            code=tuple(f"{here}.{name}" for name in ("report", "pages", "charts", "drawing")),
        ),
    )


def _traces(step: Step, sources: tuple[Source, ...]) -> Mapping[str, DataFrame]:
    parsed = read_traces(step.spark, sources)
    if parsed.where("reason IS NULL").isEmpty():
        count, first = parsed.count(), parsed.orderBy("source", "line").first()
        assert first is not None
        raise JobError(
            f"no usable row in the trace: all {count} are broken, the first ({first['source']}, "
            f"line {first['line']}) because: "
            f"{first['reason']}"
        )
    return traces.split(parsed)


_WORKLOAD = (
    "workload", "filters", "events", "seed", "topics", "zipf", "width", "wildcards", "period_us",
    "churn", "churn_per_minute",
)  # fmt: skip
"""The options of a job that decide its workload."""


def _workload(step: Step, wanted: Job) -> Mapping[str, DataFrame]:
    items, holdings = step.read(tables.ITEMS), step.read(tables.HOLDINGS)
    if wanted.workload in synthetic.KINDS:
        assert wanted.filters is not None
        assert wanted.events is not None
        sizes = (wanted.filters, wanted.events, wanted.seed, wanted.topics, wanted.zipf)
        recipe = synthetic.Recipe(
            wanted.workload, *sizes, wanted.width, wanted.wildcards, wanted.period_us
        )
        filters, events = (
            synthetic.filters(step.spark, recipe),
            synthetic.events(step.spark, recipe),
        )
        of_topics = filters.select("topic").unionByName(events.select("topic")).distinct()
        schemas = of_topics.withColumn("schema", sf.lit(workload.SCHEMA))
    else:
        if items.isEmpty():
            raise JobError(
                "the trace has no items to make filters and events of; why its rows are not "
                "used says: gossamer pipeline show "
                f"quarantine --out {wanted.out}"
            )
        exact = wanted.workload == "exact"
        filters = workload.filters(items, holdings, wanted.seed, wanted.filters, exact=exact)
        events = workload.events(items, holdings, wanted.seed, wanted.events, wanted.period_us)
        schemas = workload.schemas(items)
    # Every table is made of both.
    filters, events = job.cut(filters), job.cut(events)
    return {
        "topics": workload.topics(filters, events, schemas),
        "filters": filters,
        "events": events,
        "churn": _churn(step, wanted, filters, events),
    }


def _churn(step: Step, wanted: Job, filters: DataFrame, events: DataFrame) -> DataFrame:
    """The stays of the peers that subscribe."""
    if wanted.churn == "none":
        return step.spark.createDataFrame([], tables.CHURN.ddl)
    last = events.agg(sf.max("at_us")).first()
    duration = (last[0] if last is not None and last[0] is not None else 0) + wanted.period_us
    peers = filters.select("peer")
    if wanted.churn != "sessions":
        return churn.from_fit(
            step.spark, peers, wanted.churn, duration, wanted.churn_per_minute, wanted.seed
        )
    sessions = step.read(tables.SESSIONS)
    if sessions.isEmpty():
        raise JobError(NO_SESSIONS)
    return churn.from_sessions(peers, sessions, duration, wanted.seed)


def _oracle(step: Step, wanted: Job) -> Mapping[str, DataFrame]:
    published, filters, stays = (
        step.read(table) for table in (tables.EVENTS, tables.FILTERS, tables.CHURN)
    )
    events = with_values(published, step.read(tables.TOPICS))
    found = step.keep(matches(events, filters))
    check_matches(events, filters, found)
    if wanted.churn == "none":
        none = step.spark.createDataFrame([], tables.MATCHES.ddl)
        return {
            "matches": none,
            "expected": found.withColumn("due", sf.lit(True)).select(*tables.EXPECTED.names),
        }
    lives, publications = (
        churn.lives(filters, stays, wanted.settle_us),
        churn.publications(published, wanted.settle_us),
    )
    expected = oracle.due(found, lives, publications).select(*tables.EXPECTED.names)
    return {"matches": found.select(*tables.MATCHES.names), "expected": expected}


def _runs(step: Step, wanted: Job, simulate: runs.Simulate | None) -> Mapping[str, DataFrame]:
    stays = step.read(tables.CHURN) if wanted.churn != "none" else None
    given = sim_workload(
        step.read(tables.TOPICS), step.read(tables.FILTERS), step.read(tables.EVENTS), stays
    )
    configured = runs.configurations(step.spark, wanted.grid, given, _command(wanted))
    count = len(wanted.grid.overlays) * len(wanted.grid.nodes) * len(wanted.grid.seeds)
    # All tables are made of these results.
    results = step.keep(runs.simulate(configured, given, count, simulate))
    return {
        "runs": runs.runs(results),
        **{table.name: runs.rows_of(results, table) for table in runs.LISTS},
    }


def _metrics(step: Step, wanted: Job) -> Mapping[str, DataFrame]:
    ran, handed, loads, expected = (step.read(table) for table in _JUDGED)
    if wanted.churn == "none":
        return {"metrics": metrics.metrics(ran, handed, loads, expected)}
    matched, subscriptions, publications, filters, stays, events = (
        step.read(table) for table in _CHURNED
    )
    plan = (
        filters.select("filter", "peer")
        .join(stays, on="peer", how="inner")
        .select("filter", "up_us", "down_us")
    )
    planned = (plan, events.select("event", "at_us"), wanted.settle_us)
    churned = metrics.Churned(matched, subscriptions, publications, *planned)
    return {"metrics": metrics.metrics(ran, handed, loads, expected, churned)}


def _own(sources: tuple[Source, ...]) -> list[Path]:
    """The user's files with items, or none if the sample is used."""
    files = [Path(name) for source in sources if source.table == "items" for name in source.files]
    return [path for path in files if path != _sample()]


def _report(step: Step, sources: tuple[Source, ...]) -> Mapping[str, DataFrame]:
    counted = job.counts(step.out)
    rows = {table.name: counted[table.name] for table in step.stage.reads}
    facts = report.facts(**{name: step.read(TABLES[name]) for name in report.READS}, rows=rows)
    report.write_pipeline(facts, step.product("report.html"), _own(sources))
    return {}


def with_values(events: DataFrame, topics: DataFrame) -> dict[tuple[str, ...], DataFrame]:
    """The events as (event, topic, values STRUCT), read by their topic's schema.

    Topics with the same schema share a frame.
    """
    alike: dict[str, list[str]] = {}
    for row in topics.orderBy("topic").collect():
        alike.setdefault(row["schema"], []).append(row["topic"])
    found = {}
    for schema, names in alike.items():
        values = sf.from_json("values", tables.parse_schema(schema), workload.JSON)
        found[tuple(names)] = events.where(sf.col("topic").isin(names)).select(
            "event", "topic", values.alias("values")
        )
    return found


def matches(events: dict[tuple[str, ...], DataFrame], filters: DataFrame) -> DataFrame:
    """(event, filter) for all pairs where the filter is TRUE, in every topic."""
    found = [oracle.matches(rows, _asked(filters, names)) for names, rows in events.items()]
    return _union(found).select("event", "filter")


def check_matches(
    events: dict[tuple[str, ...], DataFrame], filters: DataFrame, found: DataFrame
) -> None:
    """Evaluate the first filters again, text by text, and raise an error if the pairs differ."""
    few = filters.where(sf.col("filter") < CHECKED_MAX)
    texts = [oracle.matches_by_text(rows, _asked(few, names)) for names, rows in events.items()]
    joined = (
        found.where(sf.col("filter") < CHECKED_MAX)
        .select("event", "filter")
        .withColumn("side", sf.lit(-1))
    )
    sides = _union(texts).withColumn("side", sf.lit(1)).unionByName(joined)
    if (
        pair := sides.groupBy("event", "filter")
        .agg(sf.sum("side").alias("side"))
        .where("side <> 0")
        .first()
    ) is not None:
        raise JobError(
            f"the oracle's two ways differ on event {pair['event']}, filter {pair['filter']}: "
            "this is a bug in gossamer"
        )


def _asked(filters: DataFrame, topics: tuple[str, ...]) -> DataFrame:
    return filters.where(sf.col("topic").isin(list(topics))).select("filter", "topic", "text")


def _union(frames: list[DataFrame]) -> DataFrame:
    return functools.reduce(DataFrame.unionByName, frames)


def sim_workload(
    topics: DataFrame, filters: DataFrame, events: DataFrame, churn: DataFrame | None = None
) -> Workload:
    """The workload in the form that the simulator takes: filter i is the i-th, and so is event j.

    With ``churn`` the subscribers come and go by it, and events are published at their times.
    Without it the configuration decides.
    """
    from gossamer.sim import Stay, Workload

    named = [(row["topic"], row["schema"]) for row in topics.orderBy("topic").collect()]
    if not named:
        raise JobError(
            "the workload has neither filters nor events, so there is nothing to simulate; give "
            "it another trace"
        )
    read = [row for rows in with_values(events, topics).values() for row in rows.collect()]
    read.sort(key=lambda row: row["event"])
    asked = filters.orderBy("filter").collect()
    places = {topic: place for place, (topic, _) in enumerate(named)} if len(named) > 1 else {}
    times: tuple[int, ...] = ()
    stays: tuple[tuple[Stay, ...], ...] | None = None
    if churn is not None:
        of: dict[str, list[Stay]] = {}
        for row in churn.orderBy("peer", "session").collect():
            of.setdefault(row["peer"], []).append(Stay(row["up_us"], row["down_us"]))
        stays = tuple(tuple(of.get(row["peer"], ())) for row in asked)
        times = tuple(row["at_us"] for row in events.orderBy("event").select("at_us").collect())
    return Workload(
        schema=named[0][1],
        filters=tuple(row["text"] for row in asked),
        events=tuple(row["values"].asDict(recursive=True) for row in read),
        topic=named[0][0],
        more=tuple(named[1:]),
        filter_topics=tuple(places[row["topic"]] for row in asked) if places else (),
        event_topics=tuple(places[row["topic"]] for row in read) if places else (),
        times=times,
        stays=stays,
    )


@contextlib.contextmanager
def sample() -> Iterator[Path]:
    """The trace that comes with the package."""
    with resources.as_file(resources.files("gossamer") / "data" / "debian-sample.csv.gz") as path:
        yield path


def _sample() -> Path:
    with sample() as path:
        return path


def read_traces(spark: SparkSession, sources: tuple[Source, ...]) -> DataFrame:
    """The judged rows of trace files (``traces.PARSED``), or of the sample if no source is
    given.
    """
    with contextlib.ExitStack() as stack:
        chosen = sources or mapping.plain([stack.enter_context(sample())])
        names = ", ".join(Path(name).name for source in chosen for name in source.files)
        try:
            found = [
                traces.parse(formats.read(spark, source, traces.needed(source)), source)
                for source in chosen
            ]
            # The files are read to the end here, and only once. All tables are made of these rows,
            # and Spark need not consider for each table how they were read.
            rows = _union(found).localCheckpoint()
        except (Py4JJavaError, PySparkException) as error:
            if (file := _unread(error)) is not None:
                raise JobError(
                    f"{file}: cannot be read to the end: {_cause(error)}; is the file whole?"
                ) from None
            if conditions := [
                f"{one!r}"
                for source in chosen
                for one in source.refuse.values()
                if source.refuse != NO_NEGATIVE
            ]:
                raise JobError(
                    f"{names}: Spark does not get through the rows: {_cause(error)}; "
                    "do the conditions of refuse hold for all of them? "
                    f"They are {', '.join(conditions)}"
                ) from None
            raise
        if rows.isEmpty():
            raise JobError(f"{names}: no rows; give a file that has some")
        return rows


def _command(wanted: Job) -> list[str]:
    """The command line that does this job, without its grid."""
    command = ["gossamer", "pipeline", "run", "--out", str(wanted.out), "--seed", str(wanted.seed)]
    for option, paths in (
        ("--trace", wanted.traces),
        ("--sessions", wanted.sessions),
        ("--rtts", wanted.rtts),
    ):
        command += [word for path in paths for word in (option, str(path))]
    command += ["--mapping", str(wanted.mapping)] if wanted.mapping else []
    plain = Job(wanted.out)
    for name in (
        "workload",
        "topics",
        "zipf",
        "width",
        "wildcards",
        "period_us",
        "churn",
        "churn_per_minute",
    ):
        if getattr(wanted, name) != getattr(plain, name):
            command += [f"--{name.replace('_', '-')}", str(getattr(wanted, name))]
    command += ["--filters", "all" if wanted.filters is None else str(wanted.filters)]
    return [*command, "--events", "all" if wanted.events is None else str(wanted.events)]


def _unread(error: Exception) -> str | None:
    """The file that Spark could not read, if that is the cause of the error."""
    found = re.search(
        r"\[FAILED_READ_FILE[.\w]*\] Encountered error while reading file (.+?)\.?\s", str(error)
    )
    return unquote(re.sub("^file:(//)?", "", found[1])) if found else None


def _cause(error: Exception) -> str:
    """The innermost cause of a failed Spark job, in one line."""
    causes = re.findall(r"Caused by: [\w.$]*?(\w+): ([^\n]*)", str(error)) or [
        ("", str(error).strip().split("\n")[0])
    ]
    return ": ".join(part for part in causes[-1] if part)
