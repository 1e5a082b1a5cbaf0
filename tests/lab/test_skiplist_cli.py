"""`gossamer simulate skiplist`: the output, and the errors for bad input."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from gossamer.cli.simulate_skiplist import skiplist

# All of it together takes seconds.
pytestmark = pytest.mark.slow

FIELDS = (
    "hops", "noise", "expected", "delivered", "missed", "duplicate", "spurious", "levels",
    "links_max", "perfect",
    "converge_periods", "bytes_per_entry_period", "link_error_by_level", "entries_per_range",
    "hops_per_class", "gap_load",
    "digest", "seed", "good", "replay",
)  # fmt: skip


def call(*words: str) -> tuple[int, str, str]:
    found = CliRunner().invoke(skiplist, list(words), standalone_mode=False)
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        return 2, found.output, str(found.exception)
    return found.return_value or 0, found.output, found.stderr


def test_json_has_every_field() -> None:
    code, out, _ = call("--entries", "40", "--events", "60", "--seed", "7", "--json")
    found = json.loads(out)
    assert code == 0
    assert [name for name in FIELDS if name not in found] == []
    assert found["missed"] == found["duplicate"] == found["spurious"] == 0
    assert found["expected"] == found["delivered"] > 0
    assert sum(found["hops"]["histogram"].values()) == 60
    assert found["perfect"]
    assert found["gap_load"]["after"] < found["gap_load"]["before"]
    assert set(found["noise"]) == {"mean", "p99", "max"}


def test_the_same_seed_gives_the_same_digest() -> None:
    words = ("--entries", "12", "--events", "10", "--seed", "3", "--kinds", "mixed", "--json")
    assert json.loads(call(*words)[1])["digest"] == json.loads(call(*words)[1])["digest"]
    other = (*words[:5], "4", *words[6:])
    assert json.loads(call(*words)[1])["digest"] != json.loads(call(*other)[1])["digest"]


def test_a_table_for_readers() -> None:
    code, out, _ = call("--entries", "10", "--events", "10")
    assert code == 0
    for text in ("hops, mean", "noise of the hottest peer", "good"):
        assert text in out


@pytest.mark.slow
def test_grow_zipf_and_churn() -> None:
    grown = json.loads(
        call("--entries", "30", "--grow-from", "20", "--workload", "trace", "--json")[1]
    )
    assert grown["good"]
    assert grown["events"] == 10
    zipf = json.loads(
        call(
            "--entries",
            "30",
            "--events",
            "40",
            "--workload",
            "zipf",
            "--routing",
            "paper",
            "--json",
        )[1]
    )
    assert zipf["good"]
    churned = json.loads(
        call("--entries", "20", "--events", "40", "--churn", "0.5", "--churn-s", "30", "--json")[1]
    )
    assert churned["good"]
    assert churned["churned"] > 5
    assert churned["link_error_by_level"]


def test_a_trace_from_files(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "files.csv.gz", "wt") as file:
        file.write(
            "file_id,name,type,size,package\n" + "".join(f"{n},n{n},t,{n},p\n" for n in range(30))
        )
    with gzip.open(tmp_path / "peer_files.csv.gz", "wt") as file:
        file.write(
            "peer_id,file_id\n"
            + "".join(f"{n},{(n * 7 + m) % 30}\n" for n in range(10) for m in range(3))
        )
    found = json.loads(
        call("--entries", "10", "--events", "30", "--trace", str(tmp_path), "--json")[1]
    )
    assert found["good"]
    assert found["expected"] > 0


@pytest.mark.slow
def test_ranges_side_by_side() -> None:
    code, out, _ = call("--entries", "30", "--events", "40", "--compare-ranges", "--json")
    found = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [(one["ranges"], one["width"]) for one in found if not one["churn"]] == [
        ("cells", "10"), ("cells", "N/2"), ("entries", "10"), ("entries", "N/2"),
    ]  # fmt: skip
    for one in found:
        assert one["missed"] == 0 or one["churn"]
        assert one["duplicate"] == one["spurious"] == 0
        assert (one["kept_per_range"] == 0) == (one["ranges"] == "cells")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--entries", "0"), "entries is 0; it must be from 1"),
        (("--k", "1"), "k is 1; it must be from 2 to 16"),
        (("--latency", "warp"), "unknown latency"),
        (("--rtt", "x", "--latency", "constant:1ms"), "give one of them"),
        (("--grow-from", "5", "--churn", "0.1"), "two experiments"),
        (("--entries", "10", "--grow-from", "10"), "cannot grow from 10"),
        (("--trace", "/nowhere"), "files.csv.gz"),
        (("--trace", "x", "--workload", "zipf"), "--trace goes with"),
    ],
)
def test_bad_input_says_what_to_do(words: tuple[str, ...], text: str) -> None:
    code, out, error = call(*words)
    assert code == 2
    assert text in out + error


def test_both_are_commands_of_simulate() -> None:
    from gossamer.cli.simulate import simulate

    words = [
        "swarm",
        "--overlay",
        "skiplist",
        "--start",
        "4",
        "--seeds",
        "2",
        "--jobs",
        "1",
        "--json",
    ]
    found = CliRunner().invoke(simulate, words, standalone_mode=False)
    flights = [json.loads(line) for line in found.stdout.splitlines()]
    assert [flight.get("seed") for flight in flights] == [4, 5, None]
    assert flights[-1]["failed"] == []
    assert flights[0]["replay"] == "gossamer simulate swarm --overlay skiplist --start 4 --seeds 1"
    found = CliRunner().invoke(
        simulate, ["skiplist", "--entries", "4", "--events", "3", "--json"], standalone_mode=False
    )
    assert json.loads(found.stdout)["good"]
