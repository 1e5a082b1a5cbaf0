"""The whole job on a small trace, and its command line."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

pytest.importorskip("pyspark")

from gossamer.cli.pipeline import pipeline
from gossamer.pipeline import job
from gossamer.pipeline.runs import Grid
from gossamer.pipeline.tables import EXPECTED, TABLES, ContractError
from pipeline.live import ADVERTISED, A, B, delivered, publish, subscribe, write
from pipeline.pages import assert_self_contained

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def invoke(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The command line, on the session that the tests share."""

    @contextlib.contextmanager
    def shared(*args: object, **kwargs: object) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr("gossamer.pipeline.session.session", shared)

    def call(*words: object) -> Result:
        return CliRunner().invoke(pipeline, [str(word) for word in words])

    return call


def small_trace(path: Path) -> Path:
    with job.sample() as sample:
        lines = gzip.decompress(sample.read_bytes()).decode().splitlines()[:120]
    path.write_text("\n".join([*lines, "broken,row", "p1,x,dsc,-5"]) + "\n")
    return path


@pytest.mark.spark
def test_the_whole_job(spark: SparkSession, tmp_path: Path, invoke: Any) -> None:
    trace, out = small_trace(tmp_path / "t.csv"), tmp_path / "out"
    stages: list[str] = []
    wanted = job.Job(out, (trace,), filters=30, events=20, grid=Grid(nodes=(4,), seeds=(0, 1), degree=3))
    result = job.run(spark, wanted, stages.append)
    assert stages == list(job.STAGES)
    assert result.ok
    assert (result.rows["traces"], result.rows["quarantine"], result.rows["events"], result.rows["runs"]) == (119, 2, 20, 2)
    assert result.totals["expected"] == 2 * result.rows["expected"] > 0
    assert sorted(path.name for path in out.iterdir()) == sorted([*TABLES, "report.html"])  # and no leavings
    page = result.report.read_text("utf-8")
    assert_self_contained(page)
    assert f"{result.totals['delivered']:,} of {result.totals['expected']:,} expected deliveries arrived" in page
    assert "not 4 columns" in page
    assert "This report is about another trace: t.csv." in page

    runs, count = job.show("runs", out, 10)
    assert count == 2
    assert len({run["digest"] for run in runs}) == 2
    before = {name: job.show(name, out, 10_000) for name in TABLES}
    answer = invoke(*runs[1]["replay"].split()[2:], "--json")  # the replay command does this one run again
    assert answer.exit_code == 0, answer.output
    assert json.loads(answer.stdout)["rows"]["runs"] == 1
    after = {name: job.show(name, out, 10_000) for name in TABLES}
    assert after["runs"][0][0]["digest"] == runs[1]["digest"]
    for name in ("traces", "quarantine", "filters", "events", "expected"):
        assert after[name] == before[name]  # the same rows again

    shown = invoke("show", "quarantine", "--out", out, "--json")
    assert [json.loads(line)["reason"] for line in shown.output.splitlines()] == ["not 4 columns", "size is negative"]
    assert "2 of 2 rows" in invoke("show", "quarantine", "--out", out).output


@pytest.mark.spark
def test_a_table_that_breaks_its_contract_does_not_replace_a_good_one(spark: SparkSession, tmp_path: Path) -> None:
    job.write(spark.createDataFrame([(1, 1)], EXPECTED.ddl), EXPECTED, tmp_path)
    with pytest.raises(ContractError):
        job.write(spark.createDataFrame([(2, 1), (2, 1)], EXPECTED.ddl), EXPECTED, tmp_path)
    assert [tuple(row) for row in job.read(spark, EXPECTED, tmp_path).collect()] == [(1, 1)]
    assert [path.name for path in tmp_path.iterdir()] == ["expected"]


@pytest.mark.spark
def test_a_rename_that_fails_leaves_the_old_table(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.write(spark.createDataFrame([(1, 1)], EXPECTED.ddl), EXPECTED, tmp_path)
    rename = Path.rename

    def fails(self: Path, target: Path) -> Path:
        if self.name.endswith("-new"):
            raise OSError("no")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fails)
    with pytest.raises(OSError, match="no"):
        job.write(spark.createDataFrame([(2, 1)], EXPECTED.ddl), EXPECTED, tmp_path)
    assert [tuple(row) for row in job.read(spark, EXPECTED, tmp_path).collect()] == [(1, 1)]
    assert [path.name for path in tmp_path.iterdir()] == ["expected"]


def test_what_killed_jobs_left_is_cleared_away(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    here, dead, alive = os.getpid(), gone.pid, os.getppid()
    for name in (
        f".traces-{dead}-new",
        f".runs-{here}-new",
        f".runs-{alive}-new",
        f".events-{dead}-old",
        "events",
        ".x-1-new",
    ):
        (tmp_path / name).mkdir()
    (tmp_path / f".filters-{dead}-old").mkdir()
    (tmp_path / f".filters-{dead}-old" / "kept").touch()
    job.recover(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [f".runs-{alive}-new", ".x-1-new", "events", "filters"]
    )
    assert (tmp_path / "filters" / "kept").exists()


@pytest.mark.spark
def test_misuse_is_one_line_and_exit_code_2(tmp_path: Path, invoke: Any) -> None:
    only_broken = tmp_path / "b.csv"
    only_broken.write_text("peer,name,type,size\nx\n")
    hidden = tmp_path / "_h.csv"
    hidden.write_text("peer,name,type,size\np,n,t,1\n")
    for words, said in (
        (("run", "--out", tmp_path / "o", "--trace", tmp_path / "no.csv"), "no such file"),
        (("run", "--out", tmp_path / "o", "--trace", only_broken), "no usable row in the trace, 1 in"),
        (("run", "--out", tmp_path / "o", "--trace", hidden), "_h.csv: Spark ignores files"),
        (("run", "--out", only_broken), "cannot be made a folder"),
        (("show", "metrics", "--out", tmp_path / "o"), "no table metrics in"),
        (("show", "nothing", "--out", tmp_path / "o"), "no table 'nothing'; there are traces"),
        (("verify", "--traces", tmp_path / "o" / "none"), "none: no "),
        (("run", "--out", tmp_path / "o", "--nodes", "ten"), "not a list of numbers"),
        (("run", "--out", tmp_path / "o", "--events", "0"), "neither a positive number nor 'all'"),
    ):
        answer = invoke(*words)
        assert answer.exit_code == 2, (words, answer.output)
        assert said in answer.output
        assert "Traceback" not in answer.output


@pytest.mark.spark
def test_verify_prints_the_verdict(tmp_path: Path, invoke: Any) -> None:
    write(tmp_path, A, [ADVERTISED, *publish(100, 1, {"size": 5})])
    path = write(tmp_path, B, [*subscribe(10, 1, "size = 5"), delivered(101, 1, 1)])
    answer = invoke("verify", "--traces", tmp_path, "--report", tmp_path / "v.html")
    assert answer.exit_code == 0, answer.output
    assert "missed     0" in answer.output
    assert_self_contained((tmp_path / "v.html").read_text("utf-8"))
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    answer = invoke("verify", "--traces", tmp_path, "--json")
    assert answer.exit_code == 1
    verdict = json.loads(answer.stdout)
    assert (verdict["ok"], verdict["expected"], verdict["missed"]) == (False, 1, 1)
    write(tmp_path, A, [ADVERTISED, *publish(100, 1, {"size": 5}, took=0)])
    answer = invoke("verify", "--traces", tmp_path)
    assert answer.exit_code == 0
    assert "incomplete 1 events without a complete receipt" in answer.output


def test_tables_need_no_spark() -> None:
    answer = CliRunner().invoke(pipeline, ["tables"])
    assert answer.exit_code == 0
    for table in TABLES.values():
        assert f"{table.name}: {table.meaning}" in answer.output
    lines = CliRunner().invoke(pipeline, ["tables", "--json"]).output.splitlines()
    assert [json.loads(line)["table"] for line in lines] == list(TABLES)


def test_a_missing_extra_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyspark", None)
    answer = CliRunner().invoke(pipeline, ["run", "--out", str(tmp_path / "o")])
    assert answer.exit_code == 2
    assert "pip install 'gossamer[spark]'" in answer.output
