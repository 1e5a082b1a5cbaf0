"""Runs and metrics: each run is a row, also a failed one, and the oracle's table judges it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from gossamer.pipeline import metrics, runs
from gossamer.pipeline.contracts import check_rows, check_schema
from gossamer.pipeline.tables import DELIVERIES, EXPECTED, LOADS, METRICS, RUNS
from gossamer.sim import DeliveryRow, Load, Outcome, Workload

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORKLOAD = Workload("a INT", ("a = 0", "a >= 0", "a = 9"), ({"a": 0}, {"a": 1}))
PAIRS = [(0, 0), (0, 1), (1, 1)]


@pytest.mark.spark
def test_a_grid_with_a_good_a_bad_and_a_failed_run(spark: SparkSession) -> None:
    def simulate(row: dict[str, Any], workload: Workload) -> Outcome:
        """Seed 0 is right.

        Seed 1 misses one event, repeats one, and hands one over at the wrong node. Seed 2 breaks.
        """
        from types import SimpleNamespace

        if row["seed"] == 2:
            raise ZeroDivisionError("no luck \udc80")
        found = [DeliveryRow(e, f, f % row["nodes"], 1500 * (1 + e), 1 + e) for e, f in PAIRS]
        if row["seed"] == 1:
            found = [found[0], found[1], found[1], DeliveryRow(1, 1, 0, 9, 9)]
        loads = [Load(node, 4, 1, node, 100) for node in range(row["nodes"])]
        outcome: Any = SimpleNamespace(
            digest="d", expected=3, delivered=3, missed=0, duplicate=0, spurious=0, copies=12,
            violations=[],
            deliveries=found, loads=loads, subscriptions=[], publications=[],
        )  # fmt: skip
        return outcome  # type: ignore[no-any-return]

    grid = runs.Grid(nodes=(2,), seeds=(0, 1, 2))
    configured = runs.configurations(
        spark, grid, WORKLOAD, ["gossamer", "pipeline", "run", "--out", "a b"]
    )
    results = runs.simulate(configured, WORKLOAD, 3, simulate).persist()
    ran, handed, loads = (
        runs.runs(results),
        runs.rows_of(results, DELIVERIES),
        runs.rows_of(results, LOADS),
    )
    for rows, table, count in ((ran, RUNS, 3), (handed, DELIVERIES, 7), (loads, LOADS, 4)):
        check_schema(rows, table)
        assert check_rows(rows, table).rows == count
    failed = ran.where("status = 'failed'").first()
    assert failed is not None
    # Arrow takes no lone surrogate.
    assert failed["error"] == "ZeroDivisionError: no luck \\udc80"
    words = shlex.split(failed["replay"])
    assert words[:5] == ["gossamer", "pipeline", "run", "--out", "a b"]
    assert words[words.index("--seeds") + 1] == "2"

    judged = metrics.metrics(
        ran, handed, loads, spark.createDataFrame([(*pair, True) for pair in PAIRS], EXPECTED.ddl)
    )
    check_schema(judged, METRICS)
    # The failed run is not judged.
    good, bad = judged.orderBy("seed").collect()
    counts = ("expected", "delivered", "missed", "duplicate", "spurious")
    assert [good[name] for name in counts] == [3, 3, 0, 0, 0]
    assert good["agrees"]
    assert (good["copies_per_delivery"], good["hops_mean"], good["hops_max"]) == (4.0, 4 / 3, 2)
    assert (good["latency_ms_p50"], good["noise"], good["noise_node_max"]) == (1.5, 0.25, 0.5)
    assert [bad[name] for name in counts] == [3, 2, 1, 1, 1]
    # The simulator reported that all was well.
    assert not bad["agrees"]
    results.unpersist()


def test_replay_commands_are_command_lines() -> None:
    from click.testing import CliRunner

    from gossamer.cli.pipeline import pipeline

    help_text = CliRunner().invoke(pipeline, ["run", "--help"]).output
    for option in (
        "--overlay",
        "--nodes",
        "--seeds",
        "--degree",
        "--latency",
        "--loss",
        "--breaks",
        "--filters",
        "--seed",
    ):
        assert f"{option} " in help_text
