"""A grid of simulations, fanned out over Spark: each run is one row, and each row one task.

A run that fails is a row with its error and the command that repeats it (fanout.py).
"""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from gossamer.pipeline.fanout import fan_out, utf8
from gossamer.pipeline.tables import (
    DELIVERIES,
    LOADS,
    PUBLICATIONS,
    RUNS,
    SUBSCRIPTIONS,
    Table,
)

if TYPE_CHECKING:
    from gossamer.sim import Outcome, Workload

RUNS_MAX = 10_000
_CONFIGURED = (
    "run",
    "overlay",
    "nodes",
    "filters",
    "events",
    "degree",
    "seed",
    "latency",
    "loss",
    "breaks",
    "replay",
)
CONFIGURATIONS = ", ".join(f"{c.name} {c.type}" for c in RUNS.columns if c.name in _CONFIGURED)
_NUMBERED = ("delivery", "subscription")
"""Tables in which the ordinal of a row is its place in the run's list."""


def _list(table: Table) -> str:
    """The rows of one run as one column."""
    numbered = table.key[1] if table.key[1] in _NUMBERED else None
    inner = ", ".join(
        f"{c.name}: {c.type}" for c in table.columns if c.name not in ("run", numbered)
    )
    return f"{table.name} ARRAY<STRUCT<{inner}>>"


LISTS = (SUBSCRIPTIONS, PUBLICATIONS, DELIVERIES, LOADS)
RESULTS = ", ".join([RUNS.ddl, *map(_list, LISTS)])
"""A whole run in one row. A task returns it, and then it is split into tables."""


def latency_files(latencies: Iterable[str]) -> tuple[Path, ...]:
    """The matrices that these models of latency read. Other round trips give other runs."""
    return tuple(
        Path(one.removeprefix("matrix:"))
        for one in sorted(set(latencies))
        if one.startswith("matrix:")
    )


class Grid(Struct, frozen=True):
    """Every combination of these values is a run."""

    overlays: tuple[str, ...] = ("flood",)
    nodes: tuple[int, ...] = (20, 40, 80)
    seeds: tuple[int, ...] = (0, 1)
    degree: int = 6
    latency: str = "constant:1ms"
    loss: float = 0.0
    breaks: float = 0.0
    """The chance for each message that its link breaks."""


Simulate = Callable[[dict[str, Any], "Workload"], "Outcome"]
"""Takes a configuration (a row of the grid) and the workload, and returns the outcome."""


def configurations(
    spark: SparkSession, grid: Grid, workload: Workload, command: Sequence[str]
) -> DataFrame:
    """The configurations, one row for each run.

    ``command`` is the pipeline's own command line without the grid. Replay commands are made from
    it.
    """
    rows = []
    for run, (overlay, nodes, seed) in enumerate(
        itertools.product(grid.overlays, grid.nodes, grid.seeds)
    ):
        only = [
            "--overlay",
            overlay,
            "--nodes",
            nodes,
            "--seeds",
            seed,
            "--degree",
            grid.degree,
            "--latency",
            grid.latency,
        ]
        only += ["--loss", grid.loss] if grid.loss else []
        only += ["--breaks", grid.breaks] if grid.breaks else []
        replay = shlex.join([*command, *map(str, only)])
        sizes = (nodes, len(workload.filters), len(workload.events), grid.degree)
        rows.append(
            (run, overlay, *sizes, seed, grid.latency, float(grid.loss), float(grid.breaks), replay)
        )
    return spark.createDataFrame(rows, CONFIGURATIONS)


def simulate(
    configured: DataFrame, workload: Workload, runs: int, run: Simulate | None = None
) -> DataFrame:
    """Run the configurations, and return RESULTS. ``run`` replaces the simulator in tests."""
    call = run or _simulate
    return fan_out(
        configured,
        RESULTS,
        runs,
        (sf.desc("nodes"), "run"),
        lambda row: _plain(call(row, workload)),
        {table.name: [] for table in LISTS},
    )


def runs(results: DataFrame) -> DataFrame:
    return results.select(*RUNS.names)


def rows_of(results: DataFrame, table: Table) -> DataFrame:
    """The rows of one of the ``LISTS``."""
    ordinal = table.key[1]
    if ordinal not in _NUMBERED:
        return (
            results.select("run", sf.explode(table.name).alias("r"))
            .select("run", "r.*")
            .select(*table.names)
        )
    exploded = results.select("run", sf.posexplode(table.name).alias("place", "r"))
    return exploded.select("run", sf.col("place").cast("BIGINT").alias(ordinal), "r.*").select(
        *table.names
    )


def _simulate(row: dict[str, Any], workload: Workload) -> Outcome:
    from gossamer.sim import Config, simulate

    config = Config(
        overlay=row["overlay"],
        nodes=row["nodes"],
        degree=row["degree"],
        seed=row["seed"],
        latency=row["latency"],
        loss=row["loss"],
        breaks=row["breaks"],
        events=row["events"],
        subscriptions=row["filters"],
    )
    return simulate(config, workload)


def _plain(outcome: Outcome) -> dict[str, Any]:
    """An outcome of the simulator as columns."""
    return {
        "digest": outcome.digest,
        "sim_expected": outcome.expected,
        "sim_delivered": outcome.delivered,
        "sim_missed": outcome.missed,
        "sim_duplicate": outcome.duplicate,
        "sim_spurious": outcome.spurious,
        "copies": outcome.copies,
        "violations": [utf8(str(violation)) for violation in outcome.violations],
        "deliveries": [{"latency_us": each.at, **_fields(each)} for each in outcome.deliveries],
        **{
            name: list(map(_fields, getattr(outcome, name)))
            for name in ("subscriptions", "publications", "loads")
        },
    }


def _fields(row: Struct) -> dict[str, Any]:
    return {name: getattr(row, name) for name in row.__struct_fields__}
