"""Same seed, same run, to the byte: in other processes and under other hash seeds."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

# These are whole runs, and many of them.
pytestmark = pytest.mark.slow


def output(hash_seed: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", "from gossamer.cli import main; main()", "simulate", *arguments],
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("flood", "--nodes", "40", "--events", "30", "--seed", "7", "--json", "--full"),
        ("flood", "--scenario", "crash-restart", "--seed", "7", "--json", "--full"),
        ("swarm", "--start", "100", "--seeds", "5", "--jobs", "1", "--json"),
    ],
)
def test_the_whole_output_is_the_same_under_another_hash_seed(arguments: tuple[str, ...]) -> None:
    first = output("0", *arguments)
    assert first == output("4711", *arguments)
    assert len(json.loads(first.splitlines()[0])["digest"]) == 32


def test_another_seed_is_another_run() -> None:
    small = ("flood", "--nodes", "10", "--events", "5", "--json")
    digests = [json.loads(output("0", *small, "--seed", seed))["digest"] for seed in ("1", "2")]
    assert digests[0] != digests[1]
