"""A job is killed in the middle of a stage.

Its commits stay, the rest is done again, and the rows are the same.
"""

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
    """Start the job and stop it once ``half`` exists. Return its exit code and its output.

    The job has a session of its own, so the JVM dies with it.
    """
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
    # The JVM printed no error.
    assert "ERROR" not in said
    # No process holds the folder, and half-written files are gone.
    with job.writing(out):
        assert list((out / job.STAGING).iterdir()) == []


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_killed_job_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    out, whole = tmp_path / "killed", tmp_path / "whole"
    trace = tmp_path / "t.csv"
    # The workload is synthetic.
    trace.write_text("peer,name,type,size\np,n,t,1\nbroken\n")
    # The second stage is being written.
    stopped(out, trace, out / job.STAGING / "workload" / "filters", signal.SIGKILL)
    assert not (out / job.MANIFESTS / "workload.json").exists()
    kept = digests(out)
    assert set(kept) == {"peers", "items", "holdings", "sessions", "rtts", "quarantine"}
    with pytest.raises(job.JobError, match="no table filters in"):
        # The table is half-written, so it must not be read.
        job.show("filters", out, 1)
    states = {
        stage.stage: stage.state for stage in job.status(out, stages.plan(stages.last_job(out)))
    }
    assert states == {"traces": "done", "workload": "missing", "oracle": "missing"}

    # Only the victim needs a process of its own. The same job runs again, and so does a job that is
    # not killed.
    wanted = stages.last_job(out)
    skipped = []
    for given in (wanted, structs.replace(wanted, out=whole)):
        done = stages.run(lambda: spark, given).stages
        skipped.append([outcome.stage for outcome in done if outcome.skipped])
    # Committed work is not done again.
    assert skipped == [["traces"], []]
    # The rows are the same as those of a job that was not killed.
    assert digests(out) == digests(whole)
    assert list((out / job.STAGING).iterdir()) == []
