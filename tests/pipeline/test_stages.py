"""The stage mechanism: which stages are skipped, which run again and why.

Half-written tables are never read.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from gossamer.lab import reproduce
from gossamer.lab.studies import QUICK
from gossamer.pipeline import job, stages
from gossamer.pipeline.contracts import ContractError
from gossamer.pipeline.job import JobError, Stage, Step
from gossamer.pipeline.tables import CHURN, EXPECTED, TOPICS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Plan:
    """Two stages: ``first`` makes topics and churn from its file, and ``second`` makes expected
    from topics.
    """

    def __init__(self, spark: SparkSession, out: Path, file: Path) -> None:
        self.spark, self.out, self.file = spark, out, file
        self.due, self.made = True, []
        self.pairs: list[tuple[int, int]] = [(0, 0), (1, 0)]

    def first(self, step: Step) -> Mapping[str, DataFrame]:
        self.made.append("first")
        topics = [(f"t{n}", "a INT", n, 1) for n in range(int(self.file.read_text().strip()))]
        return {
            "topics": step.spark.createDataFrame(topics, TOPICS.ddl),
            "churn": step.spark.createDataFrame([("p", 0, 0, None)], CHURN.ddl),
        }

    def second(self, step: Step) -> Mapping[str, DataFrame]:
        self.made.append("second")
        step.product("page.html").write_text(str(step.read(TOPICS).count()))
        return {
            "expected": step.spark.createDataFrame(
                [(*pair, self.due) for pair in self.pairs], EXPECTED.ddl
            )
        }

    def stages(self) -> tuple[Stage, Stage]:
        return (
            Stage("first", self.first, writes=(TOPICS, CHURN), files=(self.file,)),
            Stage(
                "second",
                self.second,
                reads=(TOPICS,),
                writes=(EXPECTED,),
                products=("page.html",),
                settings=[self.due],
            ),
        )

    def run(self, **more: Any) -> list[str]:
        """Run the job, and return the stages that ran."""
        self.made.clear()
        job.run(lambda: self.spark, self.out, self.stages(), **more)
        return list(self.made)

    def states(self) -> list[str]:
        return [stage.state for stage in job.status(self.out, self.stages())]

    def rows(self) -> list[tuple[Any, ...]]:
        return sorted(tuple(row) for row in job.read(self.spark, EXPECTED, self.out).collect())


@pytest.fixture
def plan(spark: SparkSession, tmp_path: Path) -> Plan:
    """A plan of which no stage has run."""
    (tmp_path / "input").write_text("3")
    return Plan(spark, tmp_path / "out", tmp_path / "input")


@pytest.fixture(scope="module")
def run_once(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Plan:
    folder = tmp_path_factory.mktemp("once")
    (folder / "input").write_text("3")
    once = Plan(spark, folder / "out", folder / "input")
    assert once.run() == ["first", "second"]
    return once


@pytest.fixture
def done(run_once: Plan, tmp_path: Path) -> Plan:
    """A plan of which every stage has run: a copy of one commit in a folder of the test's own.

    All tests share its input.
    """
    shutil.copytree(run_once.out, tmp_path / "out")
    return Plan(run_once.spark, tmp_path / "out", run_once.file)


@pytest.mark.spark
def test_only_what_changed_runs_again(plan: Plan) -> None:
    assert plan.states() == ["missing", "missing"]
    assert plan.run() == ["first", "second"]
    assert plan.states() == ["done", "done"]
    assert plan.run() == []
    assert plan.run(force=True) == ["first", "second"]
    plan.due = False
    assert plan.states() == ["done", "stale"]
    assert job.status(plan.out, plan.stages())[1].why == "changed: settings"
    assert plan.run() == ["second"]
    # Another file gives the same rows here, so the stage that reads them need not run.
    plan.file.write_text("3\n")
    assert plan.states() == ["stale", "waits"]
    assert plan.run() == ["first"]
    plan.file.write_text("4")
    assert plan.run() == ["first", "second"]
    assert (plan.out / "page.html").read_text() == "4"
    next((plan.out / "expected").glob("*.parquet")).unlink()
    assert job.status(plan.out, plan.stages())[1].why == "its files were changed by hand"
    assert plan.run() == ["second"]
    assert plan.rows() == [(0, 0, False), (1, 0, False)]


@pytest.mark.spark
def test_rows_that_break_the_contract_replace_nothing(done: Plan) -> None:
    done.due, done.pairs = False, [(0, 0), (0, 0)]
    with pytest.raises(ContractError, match="occurs 2 times"):
        done.run()
    assert done.rows() == [(0, 0, True), (1, 0, True)]
    assert list((done.out / ".staging").iterdir()) == []
    assert done.states() == ["done", "stale"]


@pytest.mark.spark
@pytest.mark.parametrize("renames", [0, 1, 2])
def test_a_commit_that_breaks_off_is_finished_by_the_next_job(
    done: Plan, monkeypatch: pytest.MonkeyPatch, renames: int
) -> None:
    """The job stops after this number of renames, as if it was killed.

    The half-renamed stage is not read, and no work is done twice.
    """
    done.due = False
    rename, count = Path.rename, 0

    def dies(self: Path, target: Path) -> Path:
        nonlocal count
        count += 1
        if count > renames:
            raise KeyboardInterrupt
        return rename(self, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", dies)
        if renames < 2:
            with pytest.raises(KeyboardInterrupt):
                done.run()
            with pytest.raises(JobError, match="no table expected in"):
                done.rows()
        else:
            done.run()
    # The commit was decided, so the next job only finishes it.
    assert done.run() == []
    assert done.rows() == [(0, 0, False), (1, 0, False)]


@pytest.mark.spark
def test_what_was_not_decided_is_cleared_away(done: Plan) -> None:
    left = done.out / ".staging" / "second"
    left.mkdir(parents=True)
    (left / "expected").mkdir()
    (left / "expected" / "part-0.parquet").write_text("half")
    assert done.run() == []
    assert not left.exists()
    assert len(done.rows()) == 2


@pytest.mark.spark
def test_scratch_outlives_a_failure_and_goes_with_the_commit(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[bool] = []
    second = plan.second

    def resumes(step: Step) -> Mapping[str, DataFrame]:
        found.append((step.scratch / "so far").exists())
        step.scratch.mkdir(parents=True, exist_ok=True)
        (step.scratch / "so far").touch()
        if not found[-1]:
            raise RuntimeError("killed")
        return second(step)

    monkeypatch.setattr(plan, "second", resumes)
    with pytest.raises(RuntimeError, match="killed"):
        plan.run()
    assert plan.states() == ["done", "missing"]
    plan.run()
    assert found == [False, True]
    assert not (plan.out / ".scratch" / "second").exists()


@pytest.mark.spark
def test_clean_removes_what_jobs_made_and_nothing_else(done: Plan) -> None:
    own = done.out / "notes.txt"
    own.write_text("mine")
    with pytest.raises(JobError, match="no stage 'third' to clean; there are first, second"):
        job.clean(done.out, ["third"])
    assert sorted(job.clean(done.out, ["second"])) == ["expected", "page.html"]
    assert done.states() == ["done", "missing"]
    assert sorted(job.clean(done.out)) == ["churn", "topics"]
    assert [path.name for path in done.out.iterdir()] == ["notes.txt"]
    assert done.run() == ["first", "second"]


@pytest.mark.spark
def test_one_job_at_a_time(plan: Plan) -> None:
    with job.writing(plan.out), pytest.raises(JobError, match="another job is writing to"):
        plan.run()


@pytest.mark.spark
def test_a_stage_reads_only_what_it_states(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "second", lambda step: {"expected": step.read(CHURN)})
    with pytest.raises(AssertionError, match="does not state that it reads churn"):
        plan.run()


def test_a_manifest_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    (tmp_path / job.MANIFESTS).mkdir()
    (tmp_path / job.MANIFESTS / "x.json").write_text("{torn")
    assert job.status(tmp_path, [Stage("x", lambda step: {})])[0].state == "missing"
    with pytest.raises(JobError, match="no job has run here"):
        job.remembered(tmp_path, job.Manifest)


def test_every_module_that_a_stage_names_exists(tmp_path: Path) -> None:
    """Otherwise a job would end in the middle, because a stage's fingerprint reads these
    modules.
    """
    planned = stages.plan(stages.Job(tmp_path)) + reproduce.plan(tmp_path, QUICK)
    assert len(planned) >= 9
    for stage in planned:
        for name in stage.code:
            assert job.digest_code(name)
