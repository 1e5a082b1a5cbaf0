from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from msgspec import structs

from gossamer.cli.simulate import simulate
from gossamer.node.local import Local
from gossamer.sim import swarm as sim_swarm
from gossamer.sim.scenario import Flight, Flown, fly


def call(*arguments: str) -> Result:
    """As ``gossamer.cli.main`` calls it: what a command returns is the exit code."""
    return CliRunner().invoke(simulate, arguments, standalone_mode=False)


def test_flood_as_json() -> None:
    result = call("flood", "--nodes", "12", "--events", "10", "--seed", "7", "--json")
    assert result.return_value == 0
    found = json.loads(result.stdout)
    assert {
        "expected",
        "delivered",
        "missed",
        "duplicate",
        "copies_per_delivery",
        "digest",
    } <= found.keys()
    assert (found["seed"], found["missed"], found["duplicate"], found["good"]) == (7, 0, 0, True)
    assert found["replay"] == "gossamer simulate flood --nodes 12 --events 10 --seed 7"
    assert "deliveries" not in found
    full = json.loads(
        call("flood", "--nodes", "12", "--events", "10", "--seed", "7", "--json", "--full").stdout
    )
    assert len(full["deliveries"]) == found["delivered"]
    assert len(full["loads"]) == 12


def test_flood_for_people() -> None:
    result = call("flood", "--nodes", "5", "--events", "3", "--loss", "0.1")
    assert result.return_value == 0
    assert "seed 0" in result.stdout
    assert "every due event arrived once" in result.stdout


def test_a_scenario_with_changes() -> None:
    result = call("flood", "--scenario", "lossy", "--nodes", "6", "--seed", "3", "--json")
    found = json.loads(result.stdout)
    assert (found["config"]["nodes"], found["config"]["loss"], found["seed"]) == (6, 0.05, 3)
    assert found["replay"] == "gossamer simulate flood --scenario lossy --nodes 6 --seed 3"
    assert (
        json.loads(call("--scenario", "lossy", "--seed", "3", "--json").stdout)["config"]["nodes"]
        == 40
    )


def test_every_replay_line_gives_the_same_run() -> None:
    first = json.loads(
        call(
            "flood", "--nodes", "6", "--events", "5", "--durable", "--queue-mark", "3", "--json"
        ).stdout
    )
    words = first["replay"].split()[2:]
    assert json.loads(call(*words, "--json").stdout) == first


def test_an_rtt_file(tmp_path: Path) -> None:
    path = tmp_path / "rtt.txt"
    path.write_text("0 40\n40 0\n")
    found = json.loads(
        call("flood", "--nodes", "2", "--events", "20", "--rtt", str(path), "--json").stdout
    )
    assert 20.0 <= found["latency_ms_p99"] <= 21.0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("flood", "--loss", "3"), "loss is 3.0"),
        (("flood", "--latency", "warp"), "unknown latency"),
        (("flood", "--rtt", "/nowhere/rtt"), "cannot read the RTT matrix /nowhere/rtt"),
        (("flood", "--rtt", "x", "--latency", "weibull"), "give one of them"),
        (("flood", "--scenario", "nope"), "no scenario 'nope'"),
        (("--scenario", "nope"), "no scenario 'nope'"),
    ],
)
def test_misuse_is_one_clear_line(arguments: tuple[str, ...], says: str) -> None:
    result = call(*arguments)
    assert result.exception is not None
    assert says in result.exception.format_message()  # type: ignore[attr-defined]


def test_a_failed_run_says_how_to_replay_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Local, "_hand_over", lambda *_: ())
    result = call("flood", "--nodes", "5", "--events", "20", "--seed", "9")
    assert result.return_value == 1
    assert "something went wrong" in result.stdout
    assert "whole: event" in result.stderr
    assert (
        "seed 9 failed; replay it with:\n  gossamer simulate flood --nodes 5 --events 20 --seed 9\n"
        in result.stderr
    )


def test_swarm_as_json() -> None:
    result = call("swarm", "--start", "3", "--seeds", "2", "--jobs", "1", "--json")
    assert result.return_value == 0
    *flights, total = map(json.loads, result.stdout.splitlines())
    assert [flight["seed"] for flight in flights] == [3, 4]
    assert (total["seeds"], total["failed"]) == (2, [])


def test_a_failed_seed_prints_its_configuration_and_its_replay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(scenario: Flown) -> Flight:
        return structs.replace(fly(scenario), good=False, violations=["once: made up"])

    monkeypatch.setattr(sim_swarm, "fly", fail)
    result = call("swarm", "--start", "5", "--seeds", "1", "--jobs", "1")
    assert result.return_value == 1
    assert "seed 5 failed:\n  once: made up\n" in result.stdout
    assert "seed = 5" in result.stdout
    assert "replay: gossamer simulate swarm --overlay flood --start 5 --seeds 1" in result.stdout


def test_scenarios_are_listed() -> None:
    assert "swizzle" in call("scenarios").stdout
    listed = [json.loads(line)["name"] for line in call("scenarios", "--json").stdout.splitlines()]
    assert listed == ["calm", "crash-restart", "lossy", "partition", "swizzle"]


@pytest.mark.parametrize(
    "arguments",
    [("--help",), ("flood", "--help"), ("swarm", "--help"), ("scenarios", "--help"), ()],
)
def test_help_has_examples(arguments: tuple[str, ...]) -> None:
    assert "Examples:" in call(*arguments).stdout
