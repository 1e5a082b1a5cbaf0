"""A job that is killed in the middle of a stage: what was committed stays, the rest is done again, and the rows are the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

pytest.importorskip("pyspark")

from gossamer.pipeline import job, stages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPTIONS = ["--workload", "mixed", "--filters", "150", "--events", "200", "--until", "oracle"]


def command(out: Path, trace: Path) -> list[str]:
    words = [
        sys.executable,
        "-m",
        "gossamer",
        "pipeline",
        "run",
        "--out",
        str(out),
        "--trace",
        str(trace),
    ]
    return [*words, "--master", "local[2]", *OPTIONS]


def digests(out: Path) -> dict[str, str]:
    return {
        name: checked.digest
        for found in job._manifests(out)
        for name, checked in found.tables.items()
    }


def stopped(out: Path, trace: Path, half: Path, how: signal.Signals) -> tuple[int, str]:
    """Start the job, in a session of its own so that the JVM dies with it, and stop it once ``half`` is there: its exit code and
    what it said."""
    victim = subprocess.Popen(
        command(out, trace),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
    )
    try:
        deadline = time.monotonic() + 500
        while not half.exists():
            assert victim.poll() is None, "it ended before it could be stopped"
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        os.killpg(victim.pid, how)
        said = victim.communicate(timeout=60)[0]
    return victim.returncode, said


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_job_that_is_interrupted_says_so_and_no_more(tmp_path: Path) -> None:
    out, trace = tmp_path / "out", tmp_path / "t.csv"
    trace.write_text("peer,name,type,size\np,n,t,1\n")
    code, said = stopped(
        out, trace, out / job.STAGING / "traces" / "items" / "_temporary", signal.SIGINT
    )
    assert code == 130
    assert said.splitlines()[-1] == "gossamer: interrupted"
    assert "Traceback" not in said
    assert "ERROR" not in said  # of the JVM
    with job.writing(out):  # nobody holds the folder, and what was half-written is gone
        assert list((out / job.STAGING).iterdir()) == []


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_killed_job_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    out, whole = tmp_path / "killed", tmp_path / "whole"
    trace = tmp_path / "t.csv"
    trace.write_text("peer,name,type,size\np,n,t,1\nbroken\n")  # the workload is synthetic
    stopped(
        out, trace, out / job.STAGING / "workload" / "filters", signal.SIGKILL
    )  # its second stage is being written
    assert not (out / job.MANIFESTS / "workload.json").exists()
    kept = digests(out)
    assert set(kept) == {"peers", "items", "holdings", "sessions", "rtts", "quarantine"}
    with pytest.raises(job.JobError, match="no table filters in"):
        job.show("filters", out, 1)  # half-written, so not to be read
    states = {
        stage.stage: stage.state for stage in job.status(out, stages.plan(stages.last_job(out)))
    }
    assert states == {"traces": "done", "workload": "missing", "oracle": "missing"}

    # Only the victim needs a process of its own: the same job again, and one that nobody kills.
    wanted = stages.last_job(out)
    skipped = []
    for given in (wanted, structs.replace(wanted, out=whole)):
        done = stages.run(lambda: spark, given).stages
        skipped.append([outcome.stage for outcome in done if outcome.skipped])
    assert skipped == [["traces"], []]  # what was committed is not done once more
    assert digests(out) == digests(whole)  # row for row what a job gives that nobody killed
    assert list((out / job.STAGING).iterdir()) == []
