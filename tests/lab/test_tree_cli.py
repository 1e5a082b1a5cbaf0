"""``gossamer simulate tree``."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from gossamer.cli.simulate_tree import tree
from gossamer.lab.tree.config import Setup
from gossamer.lab.tree.measure import measure
from gossamer.sim import ConfigError

FIELDS = (
    *(
        "is_tree",
        "degree",
        "depth_mean",
        "depth_max",
        "lookups_mean",
        "lookups_max",
        "contacted_mean",
        "contacted_max",
    ),
    *(
        "area_join",
        "area_leave",
        "copies_per_delivery",
        "expected",
        "delivered",
        "missed",
        "duplicate",
        "digest",
    ),
)


def run(*words: str, code: int = 0):
    done = CliRunner().invoke(tree, words, standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    assert done.return_value == code, done.output
    return done.output


def test_json_has_every_field_of_the_issue() -> None:
    found = json.loads(
        run(
            "--hosts",
            "20",
            "--key-bits",
            "8",
            "--arity",
            "2",
            "--seed",
            "7",
            "--measure",
            "6s",
            "--json",
        )
    )
    assert [name for name in FIELDS if name not in found] == []
    assert found["is_tree"]
    assert found["good"]
    assert found["missed"] == found["duplicate"] == 0
    assert found["expected"] == found["delivered"] > 0
    assert found["copies_per_delivery"] <= 1.1
    assert found["lookups_max"] <= 4
    assert max(map(int, found["degree"])) <= 3
    assert found["area_join"]["count"] == found["area_leave"]["count"] == 3


def test_a_table_for_people() -> None:
    text = run("--hosts", "10", "--measure", "2s")
    assert "hosts by degree" in text
    assert "everything due was delivered, once" in text


@pytest.mark.parametrize(
    "words", [("--merge", "--hosts", "20"), ("--root-failure", "--hosts", "20")]
)
def test_the_experiments(words: tuple[str, ...]) -> None:
    found = json.loads(run(*words, "--seed", "3", "--json"))
    assert found["good"]
    assert found["violations"] == []
    assert " ".join(words) in found["replay"].replace(" --seed 3", "")


def test_many_hosts_are_looked_at_in_their_steady_state() -> None:
    found = measure(Setup(hosts=6_000, seed=1))
    assert not found.simulated
    assert found.good
    assert found.is_tree
    assert found.degree_max == 3
    assert found.lookups_max <= 4
    assert found.depth_max <= 26
    assert found.area_join.mean <= 4
    assert found.contacted_max <= 6
    assert found.links_max <= 9
    assert found.copies_per_delivery <= 1.0
    assert found.missed == 0


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"hosts": 0}, "hosts is 0"),
        ({"hosts": 256, "key_bits": 8}, "more key-bits"),
        ({"dht": "pastry"}, "must be one of"),
        ({"interval": "0s"}, "more than 0"),
        ({"arity": 1}, "arity is 1"),
        ({"loss": 0.95}, "loss is 0.95"),
    ],
)
def test_what_cannot_be_is_said_plainly(fields: dict, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        Setup(**fields)


@pytest.mark.slow
def test_the_whole_output_is_the_same_under_another_hash_seed() -> None:
    def output(hash_seed: str) -> dict:
        code = "import sys; from gossamer.cli.simulate_tree import tree; tree(sys.argv[1:])"
        words = [
            "--hosts",
            "15",
            "--dht",
            "chord",
            "--loss",
            "0.05",
            "--filters",
            "mix",
            "--churn-per-second",
            "0.05",
        ]
        words += ["--measure", "5s", "--seed", "4", "--json"]
        done = subprocess.run(
            [sys.executable, "-c", code, *words],
            env=os.environ | {"PYTHONHASHSEED": hash_seed}, capture_output=True, text=True,
            timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return {
            key: value for key, value in json.loads(done.stdout).items() if key != "wall_seconds"
        }

    assert output("0") == output("4711")
