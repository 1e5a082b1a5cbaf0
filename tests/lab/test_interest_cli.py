"""``gossamer simulate interest`` and the swarm of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from gossamer.cli import simulate_interest
from gossamer.cli.simulate import simulate
from gossamer.lab.interest import experiments
from gossamer.sim import swarm

# All tests together take seconds.
pytestmark = pytest.mark.slow

SMALL = (
    "interest",
    "--nodes",
    "10",
    "--topics",
    "30",
    "--subscriptions",
    "5",
    "--k",
    "3",
    "--changes",
    "3",
    "--jobs",
    "1",
)


def call(*arguments: str) -> Result:
    """As ``gossamer.cli.main`` calls it: what a command returns is the exit code."""
    return CliRunner().invoke(simulate, arguments, standalone_mode=False)


def test_figures_as_json() -> None:
    result = call(*SMALL, "--seed", "4", "--json")
    assert result.return_value == 0
    found = json.loads(result.stdout)
    assert {
        "vertex_connectivity", "degree_max", "degree_mean", "diameter", "hops_p50", "hops_p99",
        "ms_p50", "ms_p99",
        "copies_per_node", "bytes_per_change", "bytes_per_change_whole", "bytes_per_change_names",
        "bytes_amortised",
        "idle_bytes_per_s", "converged", "digest", "cold_start_s", "cold_start_bytes_per_node",
        "messages", "wall_seconds",
        "violations", "memory_mb_per_million_pairs",
    } <= found.keys()  # fmt: skip
    assert (found["seed"], found["converged"], found["violations"]) == (4, True, [])
    assert found["replay"] == "gossamer simulate " + " ".join(SMALL[:-2]) + " --seed 4"
    again = json.loads(call(*found["replay"].split()[2:], "--jobs", "2", "--json").stdout)
    for name in ("wall_seconds", "memory_mb_per_million_pairs"):
        del found[name], again[name]
    assert again == found


def test_figures_for_people() -> None:
    result = call(*SMALL)
    assert result.return_value == 0
    assert "hops of a change, p99" in result.stdout
    assert "every view is the truth" in result.stdout


def test_an_experiment() -> None:
    result = call(
        "interest",
        "--scenario",
        "dead",
        "--nodes",
        "8",
        "--topics",
        "9",
        "--subscriptions",
        "3",
        "--json",
    )
    assert result.return_value == 0
    found = json.loads(result.stdout)
    assert found["figures"]["reset_s"] <= 3.0
    assert (
        found["replay"]
        == "gossamer simulate interest --scenario dead --nodes 8 --topics 9 --subscriptions 3 "
        "--seed 0"
    )
    assert "met" in call("interest", "--scenario", "flips", "--flips", "2000").stdout
    assert sorted(experiments.NAMES) == sorted(simulate_interest.SCENARIOS)


def test_a_demand_that_is_not_met_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiments, "RESET_MAX", 0.001)
    result = call(
        "interest",
        "--scenario",
        "dead",
        "--nodes",
        "5",
        "--topics",
        "9",
        "--subscriptions",
        "3",
        "--seed",
        "2",
    )
    assert result.return_value == 1
    assert "not met" in result.stdout
    assert "reset_s is" in result.stderr
    assert "--scenario dead --nodes 5 --topics 9 --subscriptions 3 --seed 2" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--nodes", "0"), "nodes is 0"),
        (("--subscriptions", "50", "--topics", "5"), "cannot want 50 topics"),
        (("--rtt", "x", "--latency", "weibull"), "give one of them"),
        (("--rtt", "/nowhere/rtt", "--nodes", "2"), "cannot read the RTT matrix"),
        (("--lasts", "3"), "--lasts goes with --scenario loss or pause or partition or churn"),
        (("--scenario", "dead", "--churn", "server"), "--churn goes with --scenario churn"),
        (
            ("--scenario", "churn", "--churn", "/nowhere/x.csv", "--nodes", "2", "--topics", "60"),
            "cannot read the sessions",
        ),
        (("--scenario", "pause", "--lasts", "0"), "more than 0 seconds"),
    ],
)
def test_misuse_is_one_clear_line(arguments: tuple[str, ...], says: str) -> None:
    result = call("interest", *arguments, "--jobs", "1")
    assert result.exception is not None
    assert says in result.exception.format_message()  # type: ignore[attr-defined]


def test_an_rtt_file(tmp_path: Path) -> None:
    path = tmp_path / "rtt.txt"
    path.write_text("0 40\n40 0\n")
    found = json.loads(call(*SMALL, "--nodes", "2", "--rtt", str(path), "--json").stdout)
    assert 20.0 <= found["ms_p50"] <= 21.0


def test_swarm_of_interest_as_json() -> None:
    result = call(
        "swarm", "--overlay", "interest", "--start", "2", "--seeds", "2", "--jobs", "1", "--json"
    )
    *flights, total = map(json.loads, result.stdout.splitlines())
    assert [flight["seed"] for flight in flights] == [2, 3]
    assert total["seeds"] == 2
    assert flights[0]["replay"] == "gossamer simulate swarm --overlay interest --start 2 --seeds 1"


def test_a_failed_seed_prints_its_configuration_and_its_replay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = swarm.fly
    monkeypatch.setattr(
        swarm,
        "fly",
        lambda scenario: replace(real(scenario), good=False, violations=["agreement: made up"]),
    )
    result = call("swarm", "--overlay", "interest", "--start", "3", "--seeds", "1", "--jobs", "1")
    assert result.return_value == 1
    assert "seed 3 failed:\n  agreement: made up\n" in result.stdout
    assert 'overlay = "interest"' in result.stdout
    assert "replay: gossamer simulate swarm --overlay interest --start 3 --seeds 1" in result.stdout


def test_help_has_examples() -> None:
    assert "Examples:" in call("interest", "--help").stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        (
            "interest",
            "--nodes",
            "30",
            "--topics",
            "100",
            "--subscriptions",
            "8",
            "--seed",
            "7",
            "--jobs",
            "1",
            "--json",
        ),
        (
            "interest",
            "--scenario",
            "restart",
            "--nodes",
            "15",
            "--topics",
            "60",
            "--subscriptions",
            "8",
            "--json",
        ),
        (
            "swarm",
            "--overlay",
            "interest",
            "--start",
            "100",
            "--seeds",
            "5",
            "--jobs",
            "1",
            "--json",
        ),
    ],
)
def test_the_whole_output_is_the_same_under_another_hash_seed(arguments: tuple[str, ...]) -> None:
    outputs = []
    for hash_seed in ("0", "4711"):
        done = subprocess.run(
            [sys.executable, "-c", "from gossamer.cli import main; main()", "simulate", *arguments],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        found = [json.loads(line) for line in done.stdout.splitlines()]
        assert len(found[0]["digest"]) == 32
        for name in ("wall_seconds", "memory_mb_per_million_pairs"):
            found[0].pop(name, None)
        outputs.append(found)
    assert outputs[0] == outputs[1]
