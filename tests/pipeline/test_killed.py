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
    words = [sys.executable, "-m", "gossamer", "pipeline", "run", "--out", str(out), "--trace", str(trace)]
    return [*words, "--master", "local[2]", *OPTIONS]


def digests(out: Path) -> dict[str, str]:
    return {name: checked.digest for found in job._manifests(out) for name, checked in found.tables.items()}


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_killed_job_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    out, whole = tmp_path / "killed", tmp_path / "whole"
    trace = tmp_path / "t.csv"
    trace.write_text("peer,name,type,size\np,n,t,1\nbroken\n")  # the workload is synthetic
    # In a session of its own, so that the JVM dies with it.
    victim = subprocess.Popen(
        command(out, trace), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    half = out / job.STAGING / "workload" / "filters"
    try:
        deadline = time.monotonic() + 500
        while not half.exists():  # the second stage is being written, and is not committed
            assert victim.poll() is None, "it ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.killpg(victim.pid, signal.SIGKILL)
    finally:
        victim.wait(60)
    assert not (out / job.MANIFESTS / "workload.json").exists()
    kept = digests(out)
    assert set(kept) == {"peers", "items", "holdings", "sessions", "rtts", "quarantine"}
    with pytest.raises(job.JobError, match="no table filters in"):
        job.show("filters", out, 1)  # half-written, so not to be read
    states = {stage.stage: stage.state for stage in job.status(out, stages.plan(stages.last_job(out)))}
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
