"""A grid of simulations: one configuration a row, fanned out over Spark (``pipeline/fanout.py``).

A large grid is committed in **waves**. Each wave is one Spark job, whose results are written beside
their place and renamed. So a grid that was killed goes on with the missing runs, and a grid that
grows runs the new ones. When nothing is missing, the waves are judged and become the tables. The
runs do not judge their own deliveries. Each brings the traces of its nodes. Spark reads the text of
the filters and the events, and decides which events were due (``pipeline/verify.py``).
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import gossamer
from gossamer.lab.experiments import Cell, Found, execute
from gossamer.lab.skiplist.workload import SAMPLE
from gossamer.pipeline import verify
from gossamer.pipeline.fanout import fan_out
from gossamer.pipeline.job import WAVES, Stage, Step, literal
from gossamer.pipeline.runs import latency_files
from gossamer.pipeline.tables import GRID, MEASURES, NEWS, RECONFIGURATIONS, SPREADS, parse_schema

WAVE = 64
"""Runs that are committed together. A killed grid loses at most this number."""

_CONFIGURED = ("run", "overlay", "size", "parameter", "seed", "fault", "options", "replay")
CONFIGURATIONS = (
    ", ".join(f"{c.name} {c.type}" for c in GRID.columns if c.name in _CONFIGURED)
    + ", flags STRING, place BIGINT"
)
"""``flags`` has all options of the run, as JSON.

``place`` is the order in which runs begin, the longest first.
"""


def _inner(table: Any) -> str:
    return ", ".join(f"{c.name}: {c.type}" for c in table.columns if c.name != "run")


RESULTS = (
    f"{GRID.ddl}, measures ARRAY<STRUCT<{_inner(MEASURES)}>>, spreads "
    f"ARRAY<STRUCT<{_inner(SPREADS)}>>, "
    f"news ARRAY<STRUCT<{_inner(NEWS)}>>, reconfigurations "
    f"ARRAY<STRUCT<{_inner(RECONFIGURATIONS)}>>, "
    "traces ARRAY<STRUCT<file: STRING, line: BIGINT, row: STRING>>"
)
"""A whole run in one row, as a task returns it, before it is judged and split into tables."""

LISTS = (MEASURES, SPREADS, NEWS, RECONFIGURATIONS)
JUDGED = ("expected", "delivered", "missed", "allowed", "duplicate", "spurious")
"""Measures of the runs that leave traces. Spark counts them."""

Execute = Callable[[str, Mapping[str, Any]], Found]


def configurations(spark: SparkSession, cells: Sequence[Cell]) -> DataFrame:
    """One row for each run, in the order in which they are to begin."""
    rows = []
    for place, cell in enumerate(sorted(dict.fromkeys(cells), key=lambda one: (-one.cost(), one))):
        flags = cell.flags()
        parameter = cell.flags()[_parameter(cell)]
        options = msgspec.json.encode(dict(cell.options)).decode()
        told = msgspec.json.encode(flags).decode()
        named = (
            cell.run(),
            cell.overlay,
            cell.size,
            parameter,
            cell.seed,
            cell.fault,
            options,
            cell.replay(),
        )
        rows.append((*named, told, place))
    return spark.createDataFrame(rows, CONFIGURATIONS)


def _parameter(cell: Cell) -> str:
    from gossamer.lab.experiments import PARAMETER

    return PARAMETER[cell.overlay]


def simulate(configured: DataFrame, runs: int, run: Execute = execute) -> DataFrame:
    """Run the configurations, one in each task, and return RESULTS.

    ``run`` replaces the simulators in tests.
    """
    lists: dict[str, list[Any]] = {table.name: [] for table in LISTS} | {"traces": []}
    return fan_out(
        configured, RESULTS, max(1, runs), ("place",), lambda row: _result(row, run), lists
    )


def _result(row: dict[str, Any], run: Execute) -> dict[str, Any]:
    """The results of a run, as columns."""
    found = run(row["overlay"], msgspec.json.decode(row["flags"]))
    spreads = [
        {"name": name, "at": at, "count": count}
        for name, counts in sorted(found.spreads.items())
        for at, count in counts.items()
    ]
    return {
        "status": "ok" if found.good else "bad",
        "error": None if found.good else "; ".join(found.violations[:5]) or "the run is not good",
        "digest": found.digest,
        "measures": [
            {"name": name, "value": value} for name, value in sorted(found.measures.items())
        ],
        "spreads": spreads,
        "news": found.news,
        "reconfigurations": found.reconfigurations,
        "traces": [
            {"file": name, "line": number, "row": line}
            for name, content in sorted(found.traces.items())
            for number, line in enumerate(content.decode().rstrip("\n").split("\n"), start=1)
        ],
    }


# ----------------------------------------------------------------------------------- waves


OnWave = Callable[[int, int], None]
"""Called with the number of runs that are committed, and the number of all runs."""


def inputs(cells: Iterable[Cell]) -> tuple[Path, ...]:
    """The files that runs of a grid read: traces, and matrices of round-trip times.

    A file that is missing fails its runs.
    """
    told = [dict(cell.options) for cell in cells]
    traces = {Path(str(one["trace"])) for one in told if one.get("trace", SAMPLE) != SAMPLE}
    found = [
        path for trace in traces for path in (trace.glob("*.csv.gz") if trace.is_dir() else [trace])
    ]
    found += latency_files(str(one["latency"]) for one in told if "latency" in one)
    return tuple(sorted(path for path in found if path.is_file()))


def version(cells: Iterable[Cell]) -> str:
    """A digest of everything that decides the result of a run.

    Results of other code, or of other files, are not taken up again.
    """
    if not (files := inputs(cells)):
        return code_version()
    read = hashlib.blake2b(code_version().encode(), digest_size=8)
    for path in files:
        read.update(str(path).encode() + b"\0" + path.read_bytes())
    return read.hexdigest()


def code_version() -> str:
    """A digest of the code that decides the result of a run."""
    root = Path(gossamer.__file__).parent
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted(root.rglob("*.py")):
        if path.relative_to(root).parts[0] not in ("cli", "pipeline", "net"):
            digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def run_waves(
    spark: SparkSession,
    cells: Sequence[Cell],
    folder: Path,
    wave: int = WAVE,
    on_wave: OnWave = lambda done, all: None,
    run: Execute = execute,
) -> DataFrame:
    """Run the missing cells, wave by wave, and return the RESULTS of exactly these cells."""
    home = folder / WAVES / version(cells)
    home.mkdir(parents=True, exist_ok=True)
    # These are left of a job that was killed in the middle of a wave.
    for left in home.glob(".*"):
        shutil.rmtree(left, ignore_errors=True)
    wanted = {cell.run(): cell for cell in cells}
    committed = _committed(home)
    todo = sorted(
        (cell for number, cell in wanted.items() if number not in committed),
        key=lambda one: (-one.cost(), one),
    )
    on_wave(len(wanted) - len(todo), len(wanted))
    while todo:
        now, todo = todo[:wave], todo[wave:]
        name = hashlib.blake2b(
            ",".join(str(cell.run()) for cell in now).encode(), digest_size=8
        ).hexdigest()
        fresh = home / f".{name}"
        results = simulate(configurations(spark, now), len(now), run)
        results.write.mode("overwrite").parquet(str(fresh))
        (fresh / "_runs.json").write_bytes(msgspec.json.encode([cell.run() for cell in now]))
        shutil.rmtree(home / name, ignore_errors=True)
        fresh.rename(home / name)
        on_wave(len(wanted) - len(todo), len(wanted))
    return _results(spark, home, list(wanted))


def _committed(home: Path) -> dict[int, Path]:
    """Runs that are there, and the wave that has them.

    Failed runs are there, too, because the same run would fail again.
    """
    return {
        number: listed.parent
        for listed in sorted(home.glob("*/_runs.json"))
        for number in msgspec.json.decode(listed.read_bytes(), type=list[int])
    }


def _results(spark: SparkSession, home: Path, wanted: list[int]) -> DataFrame:
    schema = parse_schema(RESULTS)
    committed = _committed(home)
    places = sorted({committed[number] for number in wanted})
    if not places:
        return spark.createDataFrame([], schema)
    asked = spark.createDataFrame([(number,) for number in wanted], "run BIGINT")
    return (
        spark.read.schema(schema)
        .parquet(*map(literal, places))
        .join(sf.broadcast(asked), on="run", how="semi")
    )


# ---------------------------------------------------------------------------------- tables


def judge(results: DataFrame) -> DataFrame:
    """Give the runs that brought traces Spark's verdict on their deliveries, and return RESULTS."""
    lines = results.select(
        sf.col("run").cast("STRING").alias("fabric"), sf.explode("traces").alias("t")
    )
    if lines.isEmpty():
        return results
    verdicts = verify.verdicts(lines.select("fabric", "t.file", "t.line", "t.row"))
    counted = verdicts.select(
        sf.col("fabric").cast("BIGINT").alias("run"),
        sf.expr("missed + duplicate + spurious + broken > 0").alias("wrong"),
        sf.format_string(
            "Spark finds %d missed, %d duplicate, %d spurious, and %d lines that cannot be read",
            "missed", "duplicate", "spurious", "broken",
        ).alias("says"),
        sf.array(*(
            sf.struct(sf.lit(name).alias("name"), sf.col(name).cast("DOUBLE").alias("value"))
            for name in JUDGED
        )).alias("judged"),
    )  # fmt: skip
    wrong = sf.coalesce(sf.col("wrong"), sf.lit(False)) & (sf.col("status") != "failed")
    changed = {
        "status": sf.when(wrong, "bad").otherwise(sf.col("status")),
        "error": sf.when(wrong, sf.concat_ws("; ", "error", "says")).otherwise(sf.col("error")),
        "measures": sf.concat("measures", sf.coalesce("judged", sf.array())),
    }
    return results.join(counted, on="run", how="left").withColumns(changed).select(*results.columns)


def split(results: DataFrame) -> dict[str, DataFrame]:
    """The rows of each table in RESULTS, by the table's name."""
    found = {"grid": results.select(*GRID.names)}
    for table in LISTS:
        rows = results.select("run", sf.explode(table.name).alias("each")).select("run", "each.*")
        found[table.name] = rows.select(*table.names)
    return found


def stage(
    cells: Sequence[Cell],
    wave: int = WAVE,
    on_wave: OnWave = lambda done, all: None,
    run: Execute = execute,
) -> Stage:
    """The grid as a stage of a job.

    Its waves outlive it. Another grid in the same folder takes up those that it needs.
    """

    def make(step: Step) -> dict[str, DataFrame]:
        results = run_waves(step.spark, cells, step.out, wave, on_wave, run)
        return split(step.keep(judge(results)))

    return Stage(
        "grid",
        make,
        writes=(GRID, *LISTS),
        files=inputs(cells),
        settings=sorted(cell.run() for cell in cells),
        code=(
            "gossamer.filters", "gossamer.machine", "gossamer.overlay", "gossamer.node",
            "gossamer.sim", "gossamer.lab.experiments", "gossamer.lab.grid",
            "gossamer.pipeline.verify", "gossamer.pipeline.oracle",
        ),
    )  # fmt: skip
