"""The index gives the verdict of each filter, however the events come.

It does so whatever filters came and went before.
"""

from __future__ import annotations

import math
import random
import subprocess
import sys
from datetime import UTC, date, datetime
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filters import generate, worlds
from gossamer.filters import EventError, Filter, Schema
from gossamer.filters import runs as runs_module
from gossamer.filters.box import LINES
from gossamer.filters.columns import float_codes
from gossamer.filters.index import Index
from gossamer.filters.schema import Type

# All of it together takes seconds.
pytestmark = pytest.mark.slow

SCHEMA = Schema.parse(worlds.DDL)
ARROW = {
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "DATE": pa.date32(),
}


def table(schema: Schema, rows: list[tuple[Any, ...]]) -> pa.Table:
    """Rows as an Arrow table with nested structs."""
    fields: dict[str, Any] = {}
    for attribute in schema.attributes:
        kind = ARROW[attribute.type.value]
        if len(attribute.path) == 1:
            fields[attribute.path[0]] = kind
        else:
            fields.setdefault(attribute.path[0], []).append((attribute.path[1], kind))
    types = {
        name: pa.struct(kind) if isinstance(kind, list) else kind for name, kind in fields.items()
    }
    values = [schema.values(row) for row in rows]
    return pa.table(
        {name: pa.array([v[name] for v in values], kind) for name, kind in types.items()}
    )


def expected(filters: dict[int, Filter], rows: list[tuple[Any, ...]]) -> list[list[int]]:
    return [[number for number, each in filters.items() if each.matches_row(row)] for row in rows]


@given(st.integers(0, 2**32))
@settings(deadline=None, max_examples=40)
def test_verdicts_are_those_of_the_filters(seed: int) -> None:
    batch = generate.batch(seed, texts=12, events=25)
    schema = Schema.parse(batch.ddl)
    filters = dict(enumerate(worlds.parsed(batch.texts, schema)))
    rows = [schema.row(event) for event in batch.events]
    index = Index(schema, filters.values())
    wanted = expected(filters, rows)
    assert list(index.match_rows(rows)) == wanted
    assert list(index.match_events(batch.events)) == wanted
    assert list(index.match_columns(table(schema, rows))) == wanted
    assert [index.match(event) for event in batch.events] == wanted


PAIRS = st.sampled_from([pair for pair in combinations(worlds.NAMES, 2) if set(pair) != {"s", "i"}])


@given(st.data())
@settings(deadline=None, max_examples=40)
def test_filters_come_and_go(data: st.DataObject) -> None:
    """Any order of adding, removing and matching.

    The worlds are small, so that equal values and shared ends are common.
    """
    names = data.draw(PAIRS)
    rows = worlds.rows(names)
    rows = random.Random(1).sample(rows, min(60, len(rows)))
    columns = table(SCHEMA, rows)
    index, filters = Index(SCHEMA), {}
    for _ in range(data.draw(st.integers(1, 4))):
        for text in data.draw(st.lists(worlds.filters(names), max_size=6)):
            one = Filter.parse(text, SCHEMA)
            filters[index.add(one)] = one
        for number in (
            data.draw(st.lists(st.sampled_from(sorted(filters)), unique=True)) if filters else []
        ):
            index.remove(number)
            del filters[number]
        assert len(index) == len(filters)
        wanted = expected(filters, rows)
        assert list(index.match_rows(rows)) == wanted
        assert list(index.match_columns(columns)) == wanted
        assert [index.match_row(row) for row in rows] == wanted


def texts(count: int, rng: random.Random, spread: int, width: int) -> list[str]:
    found = []
    for _ in range(count):
        low = rng.randint(-spread, spread)
        end = rng.choice(
            [
                f"BETWEEN {low} AND {low + rng.randint(0, width)}",
                f">= {low}",
                f"< {low}",
                f"= {low}",
            ]
        )
        found.append(f"s = '{rng.randint(0, 3)}' AND l {end}" + rng.choice(["", "", " AND b"]))
    return found


@pytest.mark.parametrize(("spread", "width"), [(50, 5), (50, 100), (10**6, 10**5), (2**62, 2**60)])
def test_layouts(spread: int, width: int) -> None:
    """Tables and searches, one level and many: every layout of runs.py."""
    rng = random.Random(spread + width)
    filters = {
        i: Filter.parse(text, SCHEMA) for i, text in enumerate(texts(1500, rng, spread, width))
    }
    index = Index(SCHEMA, filters.values())
    values = [rng.randint(-spread - width, spread + width) for _ in range(100)] + [
        None,
        2**63 - 1,
        -(2**63),
    ]
    rows = [
        SCHEMA.row({"s": str(rng.randint(0, 4)), "l": v, "b": rng.choice([True, None]), "n": 0})
        for v in values
    ]
    assert (
        list(index.match_rows(rows))
        == [index.match_row(row) for row in rows]
        == expected(filters, rows)
    )


def test_long_searches_go_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs_module, "_SORTED_MIN", 0)
    test_layouts(10**6, 10**5)
    test_layouts(2**62, 2**60)


def test_a_large_batch_is_taken_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossamer.filters.index._BATCH_MAX", 7)
    index = Index(SCHEMA, [Filter.parse(f"n = {i % 5}", SCHEMA) for i in range(20)])
    rows = [SCHEMA.row({"n": i % 6}) for i in range(50)]
    found = index.match_rows(rows)
    assert list(found) == [[i for i in range(20) if i % 5 == row[6]] for row in rows]
    assert list(index.match_columns(table(SCHEMA, rows))) == list(found)


def test_pairs_and_counts() -> None:
    index = Index(SCHEMA, [Filter.parse(text, SCHEMA) for text in ("n > 1", "n = 3", "n < 0")])
    found = index.match_events([{"n": 0}, {"n": 3}, {"n": 2}])
    events, ids = found.pairs()
    assert sorted(zip(events.tolist(), ids.tolist(), strict=True)) == [(1, 0), (1, 1), (2, 0)]
    assert found.counts.tolist() == [0, 2, 1]
    assert len(found) == 3
    with pytest.raises(IndexError):
        found[3]


def test_nothing_to_match() -> None:
    index = Index(SCHEMA)
    assert list(index.match_rows([])) == []
    assert index.match({"n": 1}) == []
    index.add(Filter.parse("i > 3 AND i < 4", SCHEMA))
    assert list(index.match_rows([(None, 3), (None, 4)])) == [[], []]
    assert list(index.match_columns(table(SCHEMA, []))) == []


def test_short_rows_end_in_nulls() -> None:
    index = Index(
        SCHEMA,
        [
            Filter.parse(text, SCHEMA)
            for text in ("i IS NULL AND s = 'a'", "s = 'a'", "l > 0 AND d < n")
        ],
    )
    assert list(index.match_rows([("a",), ("a", 1), ()])) == [[0, 1], [1], []]
    assert index.match_row(("a",)) == [0, 1]


def test_a_long_list_is_asked_instead_of_split() -> None:
    many = ", ".join(map(str, range(0, 400, 2)))
    index = Index(
        SCHEMA, [Filter.parse(f"s IN ('a', 'b') AND n IN ({many}) AND l IN (1, 2)", SCHEMA)]
    )
    assert index.match({"s": "a", "n": 4, "l": 1}) == [0]
    assert index.match({"s": "a", "n": 5, "l": 1}) == []
    (template,) = index._templates.values()
    assert len(template.runs[0].columns.ids) == 4


def test_a_filter_is_found_once() -> None:
    index = Index(SCHEMA, [Filter.parse("n > 1 OR n > 2 OR s = 'a' OR n IN (3, 4)", SCHEMA)])
    assert index.match_events([{"n": 3, "s": "a"}]).counts.tolist() == [1]


def test_removed_filters_leave_nothing_behind() -> None:
    """When most filters are gone, the index is laid out anew. So its size does not grow with
    past filters.
    """
    index = Index(SCHEMA)
    for _ in range(4):
        numbers = [
            index.add(Filter.parse(f"s = '{index._alive.size}' AND n > 1", SCHEMA))
            for _ in range(1500)
        ]
        index.match({"n": 2})
        for number in numbers[:-1]:
            index.remove(number)
    assert len(index) == 4
    assert (
        sum(len(run.columns.ids) for template in index._templates.values() for run in template.runs)
        < 1500
    )
    assert sum(map(len, index._numbers.values())) < 1500
    assert index.match({"s": "5999", "n": 2}) == [5999]
    assert index.match({"s": "1499", "n": 2}) == [1499]
    with pytest.raises(KeyError):
        index.remove(0)
    with pytest.raises(KeyError):
        index.remove(6000)


def test_adding_one_by_one_moves_a_filter_a_few_times() -> None:
    index = Index(SCHEMA)
    most = 0
    for i in range(600):
        index.add(Filter.parse(f"n = {i % 7}", SCHEMA))
        index.match({"n": 3})
        (template,) = index._templates.values()
        most = max(most, len(template.runs))
    # This is log2 of 600.
    assert most <= 10
    assert index.match({"n": 3}) == list(range(3, 600, 7))


def test_filters_of_another_schema_are_refused() -> None:
    with pytest.raises(ValueError, match="one schema"):
        Index(SCHEMA).add(Filter.parse("i = 1", Schema.parse("i INT")))


@given(st.lists(st.floats(), min_size=1), st.lists(st.floats(width=32), min_size=1))
@settings(deadline=None)
def test_codes_of_floats_are_those_of_the_line(doubles: list[float], singles: list[float]) -> None:
    edges = [0.0, -0.0, math.inf, -math.inf, math.nan, -math.nan]
    for values, kind, width in (
        (doubles + edges, Type.DOUBLE, np.float64),
        (singles + edges, Type.FLOAT, np.float32),
    ):
        assert float_codes(np.array(values, width)).tolist() == [
            LINES[kind].code(v) for v in values
        ]


def test_columns_of_other_widths_and_units() -> None:
    schema = Schema.parse("i INT, d DOUBLE, s STRING, at TIMESTAMP, day DATE, f FLOAT")
    texts = [
        "i = 3",
        "i > 2",
        "d >= 1.5",
        "s = 'a'",
        "s > 'a'",
        "at = TIMESTAMP '2024-01-01'",
        "day < DATE '2024-01-02'",
        "f > 1",
    ]
    index = Index(schema, [Filter.parse(text, schema) for text in texts])
    at = datetime(2024, 1, 1)
    columns = {
        "i": pa.array([3, None], pa.int64()),
        "d": pa.array([2, 1], pa.int32()),
        "s": pa.array(["a", "b"]).dictionary_encode(),
        "at": pa.array([at, None], pa.timestamp("ms")),
        "day": pa.array([date(2024, 1, 1), None], pa.date64()),
    }
    wanted = [[0, 1, 2, 3, 5, 6], [4]]
    assert list(index.match_columns(pa.table(columns))) == wanted
    assert list(index.match_columns(pa.record_batch(columns))) == wanted
    chunks = pa.concat_tables([pa.table(columns).slice(0, 1), pa.table(columns).slice(1, 1)])
    assert list(index.match_columns(chunks)) == wanted
    assert list(index.match_columns(pa.table({"i": pa.nulls(1)}))) == [[]]
    assert index.match({"at": at.replace(tzinfo=UTC)}) == [5]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"n": pa.array([1]), "other": pa.array([1])}, "unknown attribute 'other'"),
        ({"n": pa.array([1, None])}, "NOT NULL"),
        ({"s": pa.array(["a"])}, "NOT NULL"),
        ({"n": pa.array([2**31])}, "'n' is INT"),
        ({"n": pa.array([1.0])}, "'n' is INT, not double"),
        ({"n": pa.array([1]), "s": pa.array([1])}, "'s' is STRING, not int64"),
        ({"n": pa.array([1]), "b": pa.array([1])}, "'b' is BOOLEAN, not int64"),
        ({"n": pa.array([1]), "at": pa.array([2**60], pa.timestamp("us"))}, "years 1 to 9999"),
    ],
)
def test_columns_that_do_not_fit_are_refused(columns: dict[str, Any], message: str) -> None:
    index = Index(SCHEMA, [Filter.parse("n = 1 AND s = 'a' AND b AND at IS NULL", SCHEMA)])
    with pytest.raises(EventError, match=message):
        index.match_columns(pa.table(columns))


def test_a_plain_import_loads_no_numpy() -> None:
    code = (
        "import sys, gossamer, gossamer.filters; print(sorted({'numpy', 'pyarrow', 'numba'} & "
        "set(sys.modules)))"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "[]"
    )
