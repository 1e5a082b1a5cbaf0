"""Answers that are remembered by the values that the filters look at are those of the filters, and
there is a limit to them.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec
import pytest

from gossamer.filters import Filter, Schema
from gossamer.filters.packed import Packed
from gossamer.machine import Peer
from gossamer.overlay.batch import Batch
from gossamer.overlay.direct import plan as module
from gossamer.overlay.direct.plan import Payload, Plan

SCHEMA = Schema.parse("city STRING, temp INT, ratio DOUBLE, note STRING")
PACKED = Packed(SCHEMA)
NAN = float("nan")


def payload(rows: Sequence[tuple[Any, ...]]) -> Payload:
    return Payload(
        Batch("t", 9, 1, 1, len(rows), 1, 0, 0, msgspec.msgpack.encode(rows)), PACKED, rows
    )


def right(wants: dict[int, list[str]], rows: Sequence[tuple[Any, ...]]) -> dict[int, list[int]]:
    filters = {
        peer: [Filter.parse(text, SCHEMA) for text in texts] for peer, texts in wants.items()
    }
    found = {
        peer: [
            place for place, row in enumerate(rows) if any(each.matches_row(row) for each in some)
        ]
        for peer, some in filters.items()
    }
    return {peer: places for peer, places in found.items() if places}


def shares(plan: Plan, rows: Sequence[tuple[Any, ...]]) -> dict[int, list[int]]:
    found = plan.shares(payload(rows), 1)
    return {
        int(peer): list(range(len(rows)) if places is None else places) for peer, _, places in found
    }


def planned(wants: dict[int, list[str]]) -> Plan:
    plan = Plan(PACKED)
    for peer, texts in wants.items():
        for number, text in enumerate(texts):
            plan.want(Peer(peer), number, text, "")
    return plan


TEXTS = (
    "temp BETWEEN 0 AND 9", "temp > 5 AND city = 'a'", "city IS NULL", "ratio = 0.0",
    "ratio > 1.5 OR temp < 0", "city LIKE 'b%'",
    "temp IN (1, 2, 3)", "NOT (temp = 4)", "ratio IS NULL AND temp = 7", "city <> 'a'",
    "ratio >= 1e300", "TRUE",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
def test_the_same_as_trying_each(seed: int) -> None:
    rng = Random(seed)
    wants = {
        peer: rng.sample(TEXTS[: 11 + (peer == 5)], rng.randrange(1, 3))
        for peer in range(1, 3 + seed)
    }
    plan = planned(wants)
    for _ in range(6):
        rows = [
            (
                rng.choice([None, "a", "b", "bc"]),
                rng.choice([None, *range(-2, 12)]),
                rng.choice([None, 0.0, -0.0, 2.0, NAN]),
                "x",
            )
            for _ in range(rng.randrange(1, 300))
        ]
        assert shares(plan, rows) == right(wants, rows)
    peer = next(iter(wants))
    # The remembered answers are worth nothing after that.
    plan.drop(Peer(peer), 0)
    plan.want(Peer(77), 1, "temp = 4", "")
    wants[peer] = wants[peer][1:]
    wants[77] = ["temp = 4"]
    assert shares(plan, rows) == right(wants, rows)


FOUR = {peer: [f"temp BETWEEN {10 * peer} AND {10 * peer + 9}"] for peer in range(4)}


def test_values_that_come_once_are_not_remembered_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MEMORY_MAX", 64)
    plan = planned(FOUR)
    rows = [("a", number % 40, 0.0, "x") for number in range(60)]
    assert shares(plan, rows) == right(FOUR, rows)
    assert plan._memory is not None
    assert plan._memory.is_worth_it
    # Each value comes once.
    for first in range(40, 4000, 60):
        rows = [("a", number, 0.0, "x") for number in range(first, first + 60)]
        assert shares(plan, rows) == right(FOUR, rows)
        assert len(plan._memory._known) <= 64 + 60
    assert not plan._memory.is_worth_it


def test_long_texts_are_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MEMORY_BYTES", 10_000)
    wants = {peer: [f"note LIKE '{peer}%'"] for peer in range(4)}
    plan = planned(wants)
    for number in range(20):
        rows = [("a", 1, 0.0, f"{number % 4}{'x' * 4000}{number}")]
        assert shares(plan, rows) == right(wants, rows)
        assert plan._memory is not None
        assert sum(len(text) for text in plan._memory._known) <= 10_000


def test_filters_over_many_attributes_and_rows_of_a_shorter_schema_are_tried() -> None:
    wants = {1: ["city = 'a'"], 2: ["temp = 1"], 3: ["ratio = 0.0"], 4: ["note = 'x'"]}
    plan, rows = planned(wants), [("a", 1, 0.0, "x"), ("b", 1, 1.0, "y")]
    assert shares(plan, rows) == right(wants, rows)
    assert plan._memory is not None
    assert not plan._memory.is_worth_it
    wants = {1: ["note IS NULL"], 2: ["note = 'x'"], 3: ["note <> 'x'"]}
    plan, rows = planned(wants), [("a", 1, 0.0, "x"), ("b", 1, 0.0)]
    assert shares(plan, rows) == right(wants, rows) == {1: [1], 2: [0]}


def test_with_many_filters_nothing_is_built_that_the_index_does_not_use() -> None:
    pytest.importorskip("numpy")
    wants = {peer: [f"temp = {peer}"] for peer in range(module.FEW + 1)}
    plan, rows = (
        planned(wants),
        [("a", number % 40, 0.0, "x") for number in range(module.ROWS_MANY)],
    )
    assert shares(plan, rows) == right(wants, rows)
    assert plan._memory is None


@pytest.mark.parametrize(("rows", "is_loaded"), [(100, False), (1000, True)])
def test_numpy_is_loaded_once_trying_filters_has_taken_as_long(rows: int, is_loaded: bool) -> None:
    """A program that publishes little starts at once; one that publishes much gets the index."""
    pytest.importorskip("numpy")
    code = f"""
import sys
from gossamer.filters import Schema
from gossamer.filters.packed import Packed
from gossamer.overlay.batch import Batch
from gossamer.overlay.direct import plan as module
import msgspec
packed = Packed(Schema.parse("temp INT, text STRING"))
plan = module.Plan(packed)
for peer in range(240):
    plan.want(peer, 1, f"temp = {{peer}} AND text = '{{peer}}'", "")
rows = [(number % 300, str(number % 300)) for number in range({rows})]
for _ in range(6):
    batch = Batch("t", 1, 1, 1, len(rows), 1, 0, 0, msgspec.msgpack.encode(rows))
    shares = plan.shares(module.Payload(batch, packed, rows), 1)
    found = dict((peer, list(places)) for peer, _, places in shares)
    due = {{peer: list(range(peer, {rows}, 300)) for peer in range(min(240, {rows}))}}
    assert found == due, found
print("numpy" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == f"{is_loaded}\n", done.stderr


def test_rows_that_were_let_go_are_there_when_they_are_asked_for() -> None:
    """Of a group, another member may be chosen by its filters long after the batch went out."""
    rows = [("a", n, None, None) for n in range(20)]
    given = payload(rows)
    assert given.rows() is rows
    given.found = None
    assert given.rows() is not rows
    assert given.rows() == rows
    assert given.cut([3, 5]) == msgspec.msgpack.encode([rows[3], rows[5]])
