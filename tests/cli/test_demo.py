"""The demo at a small size, with real processes and a real Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.live, pytest.mark.spark, pytest.mark.slow]


def test_a_small_demo_ends_with_a_clean_verdict_and_a_report(tmp_path: Path) -> None:
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    command = [
        sys.executable,
        "-m",
        "gossamer",
        "demo",
        "--nodes",
        "4",
        "--filters",
        "40",
        "--events",
        "120",
        "--json",
    ]
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "out"), "--master", "local[2]"],
        env={**os.environ, "XDG_RUNTIME_DIR": str(runtime)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["expected"] == said["delivered"] == said["receipts_matched"] > 0
    assert said["missed"] == said["duplicate"] == said["spurious"] == 0
    assert (said["nodes"], said["subscriptions"], said["events"], said["ok"]) == (4, 40, 120, True)
    page = (tmp_path / "out" / "report.html").read_text()
    assert "<svg" in page
    assert len(list((tmp_path / "out" / "traces").glob("trace-*.jsonl"))) == 4
    # Every node has left.
    assert not list(runtime.rglob("*.sock"))
