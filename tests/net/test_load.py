"""The load benchmark, small: processes, content filters that come and go while all publish, and Spark's verdict."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.live, pytest.mark.spark, pytest.mark.slow]
LOAD = Path(__file__).parents[2] / "benchmarks" / "load.py"


def test_a_small_load_is_what_the_oracle_says() -> None:
    command = [sys.executable, str(LOAD), "--nodes", "8", "--events", "5000", "--filters", "200", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout)
    assert (said["nodes"], said["events"], said["filters"], said["ok"]) == (8, 5000, 200, True)
    assert said["missed"] == said["duplicate"] == said["spurious"] == said["incomplete"] == 0
    assert said["delivered"] + said["allowed"] == said["receipts_matched"] > 1000
    assert said["subscriptions_churned"] > 0
