"""The grid on Spark: one run in each task, failures as rows, committed waves, and a killed grid
that continues.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark")

from gossamer.cli.app import app
from gossamer.lab import grid
from gossamer.lab.experiments import Found, cells
from gossamer.pipeline import job
from gossamer.pipeline.contracts import check_rows, check_schema
from gossamer.pipeline.tables import GRID, MEASURES, NEWS, RECONFIGURATIONS, SPREADS
from gossamer.sim.traces import Traces
from gossamer.trace import (
    Advertised,
    Completed,
    Delivered,
    Published,
    Record,
    Subscribed,
    Subscribing,
    hex_peer,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
CHANGE = {
    "reconfiguration": 0,
    "what": "join",
    "hosts": 4,
    "contacted": 2,
    "links": 3,
    "area": 3,
    "degree_max": 3,
}


def pretend(marks: Path) -> Callable[[str, Mapping[str, Any]], Found]:
    """A simulator that leaves a mark, fails with seed 2, and is bad with seed 3."""

    def run(overlay: str, flags: Mapping[str, Any]) -> Found:
        with (marks / f"{flags['hosts']}-{flags['seed']}").open("a") as mark:
            mark.write("x")
        if flags["seed"] == 2:
            raise ZeroDivisionError("no luck \udc80")
        return Found(
            good=flags["seed"] != 3, digest=f"d{flags['seed']}",
            violations=["a wheel came off"] if flags["seed"] == 3 else [],
            measures={"hosts": float(flags["hosts"])},
            spreads={"degree": {1: 2, 3: flags["hosts"]}},
            news=[{"change": 0, "node": 1, "latency_us": 5, "hops": 2}],
            reconfigurations=[CHANGE],
        )  # fmt: skip

    return run


def test_failed_and_bad_runs_are_rows_and_waves_are_taken_up(
    spark: SparkSession, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    wanted = cells(["tree"], [5, 6], seeds=range(4))
    told: list[tuple[int, int]] = []

    def stop_after_one(done: int, all: int) -> None:
        told.append((done, all))
        if done == 3:
            raise KeyboardInterrupt

    # Spark reads this name as a pattern, unless it is escaped.
    out = tmp_path / "out[1] *"
    with pytest.raises(KeyboardInterrupt):
        grid.run_waves(spark, wanted, out, 3, stop_after_one, pretend(marks))
    assert told == [(0, 8), (3, 8)]
    assert len(list(marks.iterdir())) == 3
    told.clear()
    stage = grid.stage(wanted, 3, lambda done, all: told.append((done, all)), pretend(marks))
    (outcome,) = job.run(lambda: spark, out, [stage])
    assert told == [(3, 8), (6, 8), (8, 8)]
    # Each run ran once.
    assert {path.read_text() for path in marks.iterdir()} == {"x"}
    assert outcome.rows == {
        "grid": 8,
        "measures": 6,
        "spreads": 12,
        "news": 6,
        "reconfigurations": 6,
    }
    rows = {(row["size"], row["seed"]): row for row in job.read(spark, GRID, out).collect()}
    assert rows[5, 2]["status"] == "failed"
    assert rows[5, 2]["error"] == "ZeroDivisionError: no luck \\udc80"
    assert rows[5, 2]["replay"] == "gossamer simulate tree --hosts 5 --arity 2 --seed 2"
    assert (rows[6, 3]["status"], rows[6, 3]["error"], rows[6, 3]["digest"]) == (
        "bad",
        "a wheel came off",
        "d3",
    )
    assert (rows[6, 1]["status"], rows[6, 1]["error"]) == ("ok", None)
    assert job.run(lambda: spark, out, [stage])[0].skipped
    # This is another grid in the same folder.
    more = grid.stage(cells(["tree"], [6, 7], seeds=range(2)), 64, run=pretend(marks))
    assert job.run(lambda: spark, out, [more])[0].rows["grid"] == 4
    assert {path.name for path in marks.iterdir()} - {
        f"{size}-{seed}" for size in (5, 6) for seed in range(4)
    } == {
        "7-0",
        "7-1",
    }
    assert {path.read_text() for path in marks.iterdir()} == {"x"}
    assert (out / job.WAVES).is_dir()
    answer = CliRunner().invoke(app, ["pipeline", "status", "--out", str(out), "--json"])
    [told_of] = [json.loads(line) for line in answer.stdout.splitlines()]
    assert (told_of["stage"], told_of["state"], told_of["rows"]["grid"]) == ("grid", "committed", 4)
    job.clean(out)
    assert not (out / job.WAVES).exists()


def test_one_run_a_task_the_longest_first(spark: SparkSession) -> None:
    from pyspark.sql import functions as sf

    wanted = cells(["tree"], [10, 40, 20], seeds=range(7))
    configured = grid.configurations(spark, wanted)
    assert [row["size"] for row in configured.orderBy("place").collect()] == [40] * 7 + [20] * 7 + [
        10
    ] * 7
    results = grid.simulate(configured, len(wanted), lambda overlay, flags: Found(True, "", [], {}))
    places = results.select(sf.spark_partition_id().alias("task")).groupBy("task").count().collect()
    assert sorted(row["count"] for row in places) == [1] * 21


def test_real_runs_fill_every_table(spark: SparkSession) -> None:
    wanted = cells(["tree"], [6], options={"key_bits": 8, "measure": "3s"})
    wanted += cells(["interest"], [6], [3], options={"changes": 2, "subscriptions": 2, "topics": 9})
    wanted += cells(["skiplist"], [8], options={"events": 5})
    wanted += cells(["flood"], [6], faults=["crash-restart"])
    results = grid.simulate(grid.configurations(spark, wanted), len(wanted)).persist()
    made = grid.split(grid.judge(results))
    for table in (GRID, MEASURES, SPREADS, NEWS, RECONFIGURATIONS):
        check_schema(made[table.name], table)
        assert check_rows(made[table.name], table).rows
    assert [row["status"] for row in made["grid"].collect()] == ["ok"] * 4
    measured = {(row["run"], row["name"]): row["value"] for row in made["measures"].collect()}
    for cell in wanted:
        flags = cell.flags()
        # No node publishes there.
        if cell.overlay != "interest":
            missed, expected = (measured[cell.run(), name] for name in ("missed", "expected"))
            assert missed == 0
            assert expected > 0, flags
        else:
            assert (cell.run(), "expected") not in measured
    # There are two changes and five other nodes.
    assert made["news"].count() == 2 * 5
    results.unpersist()


def _traced(seed: int, matched: int, copies: int) -> Found:
    """Traces of a node that publishes to itself, and takes the event ``copies`` times."""
    traces = Traces()
    records: list[Record] = [
        Advertised("t", "a INT"),
        Subscribing(0, "t", "a > 0"),
        Subscribed(0),
        Published("t", 1, 1, {"a": 1}),
        *[Delivered(0, hex_peer(7), 1, 1, 0)] * copies,
        Completed(1, 1, matched),
    ]
    for record in records:
        traces.add(7, 1, 0, record)
    return Found(True, "d", [], {"seed": float(seed)}, traces=traces.files())


def test_spark_judges_each_run_by_its_own_traces(spark: SparkSession) -> None:
    """All runs have a node of the same name and the same filter, and all report themselves as
    good.
    """
    copies = {0: 1, 1: 0, 2: 2}
    wanted = cells(["tree"], [5], seeds=range(3))
    results = grid.simulate(
        grid.configurations(spark, wanted),
        3,
        lambda overlay, flags: _traced(flags["seed"], 1, copies[flags["seed"]]),
    )
    made = grid.split(grid.judge(results))
    rows = {row["seed"]: (row["status"], row["error"]) for row in made["grid"].collect()}
    assert rows[0] == ("ok", None)
    assert rows[1][0] == rows[2][0] == "bad"
    assert rows[1][1].startswith("Spark finds 1 missed, 0 duplicate, 0 spurious")
    assert rows[2][1].startswith("Spark finds 0 missed, 1 duplicate, 0 spurious")
    expected = made["measures"].where("name = 'expected'").collect()
    assert [row["value"] for row in expected] == [1.0] * 3


KILLED = """
import sys, time
from pathlib import Path
from gossamer.lab import grid
from gossamer.lab.experiments import Found, cells
from gossamer.pipeline.session import SMALL, session
out, marks = Path(sys.argv[1]), Path(sys.argv[2])
def run(overlay, flags):
    (marks / str(flags["seed"])).touch()
    if flags["seed"] >= 2:
        time.sleep(600)
    return Found(True, "d", [], {})
with session(master="local[2]", conf=SMALL) as spark:
    grid.run_waves(spark, cells(["tree"], [5], seeds=range(4)), out, 2, run=run)
"""


@pytest.mark.slow
@pytest.mark.live
def test_a_grid_that_is_killed_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    out, marks = tmp_path / "out", tmp_path / "marks"
    marks.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(out), str(marks)], start_new_session=True
    )
    try:
        until = time.monotonic() + 200
        # The kill comes in the middle of the second wave.
        while not {"2", "3"} <= {path.name for path in marks.iterdir()}:
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    ran = tmp_path / "ran"
    ran.mkdir()
    results = grid.run_waves(
        spark, cells(["tree"], [5], seeds=range(4)), out, 2, run=pretend_seeds(ran)
    )
    assert results.count() == 4
    assert sorted(path.name for path in ran.iterdir()) == ["2", "3"]


def pretend_seeds(marks: Path) -> Callable[[str, Mapping[str, Any]], Found]:
    def run(overlay: str, flags: Mapping[str, Any]) -> Found:
        (marks / str(flags["seed"])).touch()
        return Found(True, "d", [], {})

    return run
