"""The way of one event through two live nodes stays short (benchmarks/path.py)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

COUNTER = Path(__file__).parents[2] / "benchmarks" / "path.py"
# For each route the most files until the subscriber has the event, and the most Python calls until
# the publisher has its receipt.
MOST = {"direct": (22, 200), "tree": (28, 350), "skiplist": (30, 300)}


@pytest.mark.live
def test_an_event_passes_few_files_and_costs_few_calls() -> None:
    # The counter needs a process of its own, because it runs the pure Python loops.
    done = subprocess.run(
        [sys.executable, str(COUNTER), "--json", "--rounds", "15"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert not done.returncode, done.stderr
    found = {one["route"]: one for one in json.loads(done.stdout)["routes"]}
    for route, (files, calls) in MOST.items():
        assert found[route]["files"] <= files, found[route]
        assert found[route]["calls_to_receipt"] <= calls, found[route]
