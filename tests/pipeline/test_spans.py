"""Pairs by sorting, and texts taken apart together, compared with plain loops, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("numpy")

import numpy as np
import pyarrow as pa

from gossamer.pipeline import spans, texts

if TYPE_CHECKING:
    Row = tuple[Any, ...]

LEAST, MOST = spans.LEAST, spans.MOST
ENDS = [LEAST, LEAST + 1, -(2**53) - 1, -1, 0, 1, 5, 2**53, 2**53 + 1, MOST - 1, MOST]
TYPES = {"event": pa.int64(), "name": pa.string(), "code": pa.int64(), "size": pa.int64()}


def batches(
    rows: list[Row], each: int, types: dict[str, pa.DataType] = TYPES
) -> Iterator[pa.RecordBatch]:
    columns = [pa.array([row[at] for row in rows], kind) for at, kind in enumerate(types.values())]
    yield from pa.table(columns, names=list(types)).to_batches(max_chunksize=each)


def found(
    rows: list[Row], each: int, *sought: spans.Spans, types: dict[str, pa.DataType] = TYPES
) -> list[tuple[Any, Any]]:
    listed = [
        (event, row["filter"])
        for batch in spans.match(batches(rows, each, types), sought)
        for row in batch.to_pylist()
        for event in row["events"]
    ]
    return sorted(listed)


def make(rng: Random, events: int, filters: int, numbers: list[int]) -> tuple[list[Row], list[Row]]:
    names = [None, "", "a", "a\0", "b", "é", "😀"]
    rows = [
        (n, rng.choice(names), rng.choice([None, 0, -1, LEAST, MOST]), rng.choice([None, *numbers]))
        for n in range(events)
    ]
    sought = [
        (
            n % (filters // 2),
            rng.choice(names),
            rng.choice([None, 0, -1, LEAST, MOST]),
            rng.choice(numbers),
            rng.choice(numbers),
        )
        for n in range(filters)
    ]
    return rows, sought


def build(sought: list[Row]) -> spans.Spans | None:
    filters, names, codes, low, high = (
        (list(column) for column in zip(*sought, strict=True)) if sought else ([],) * 5
    )
    keys = [("name", pa.array(names, pa.string())), ("code", pa.array(codes, pa.int64()))]
    return spans.build(
        pa.array(filters, pa.int64()),
        keys,
        "size",
        np.array(low, np.int64),
        np.array(high, np.int64),
    )


def loop(rows: list[Row], sought: list[Row]) -> list[tuple[int, int]]:
    return sorted(
        (event, filter)
        for event, *values, size in rows
        for filter, *keys, low, high in sought
        if None not in (*values, size) and values == keys and low <= size <= high
    )


@pytest.mark.parametrize(
    ("events", "pairs", "each"), [(250_000, 1_000_000, 10_000), (7, 3, 2), (64, 1, 5), (1, 1, 1)]
)
def test_spans_are_a_loop(
    monkeypatch: pytest.MonkeyPatch, events: int, pairs: int, each: int
) -> None:
    """Numbers lie on all ends and beside them, there are NULLs, and several filters share an id.

    The size of the portions does not matter.
    """
    monkeypatch.setattr(spans, "EVENTS", events)
    monkeypatch.setattr(spans, "PAIRS", pairs)
    for seed, numbers in enumerate((ENDS, list(range(12)), [3])):
        rows, sought = make(Random(seed), 200, 300, numbers)
        built = build(sought)
        assert built is not None
        right = loop(rows, sought)
        assert len(right) > 200
        assert found(rows, each, built) == right
        assert found(rows, each, built, built) == sorted(right * 2)


def test_a_batch_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """One event matches all filters, and one filter matches all events."""
    monkeypatch.setattr(spans, "EVENTS", 50)
    monkeypatch.setattr(spans, "PAIRS", 60)
    rows: list[Row] = [(n, "a", 1, n % 10) for n in range(500)]
    built = build([(n, "a", 1, 0, 9 if n % 2 else n % 10) for n in range(200)])
    assert built is not None
    answers = list(spans.match(batches(rows, 20), [built]))
    sizes = [sum(len(events) for events in batch["events"].to_pylist()) for batch in answers]
    assert max(sizes) <= 60
    assert sum(sizes) == 500 * 100 + sum(50 * (end + 1) for end in range(0, 10, 2)) * 20
    large = [("x" * 1000, "a", 1, 5)] * 30
    monkeypatch.setattr(spans, "BYTES", 3000)
    types = {**TYPES, "event": pa.string()}
    portions = spans._gather(batches(large, 1, types))  # type: ignore[arg-type]
    assert max(len(table) for table in portions) == 2
    answers = list(spans.match(batches(large, 1, types), [built]))  # type: ignore[arg-type]
    assert sum(len(events) for batch in answers for events in batch["events"].to_pylist()) == 30 * (
        100 + 40
    )
    assert max(batch.nbytes for batch in answers) < 5000


def test_nothing_and_too_much() -> None:
    rows, sought = make(Random(1), 20, 30, ENDS)
    nothing = build([])
    assert nothing is not None
    assert found(rows, 7, nothing) == []
    built = build(sought)
    assert built is not None
    assert found([], 7, built) == []
    assert list(spans.match(iter(()), [built])) == []
    never = build([(1, "a", 0, 1, 0), (2, None, 0, LEAST, MOST), (3, "a", 0, MOST, LEAST)])
    assert never is not None
    assert len(never.first) == 0
    # Five keys of 10,000 values each, with ranks beside them, are more than 2^63.
    many = pa.array(range(10_000))
    low = np.arange(10_000)
    keys = [(f"k{n}", many) for n in range(5)]
    assert spans.build(many, keys, "size", low, low) is None
    assert spans.build(many, keys[:4], "size", low, low) is None
    assert spans.build(many, keys[:3], "size", low, low) is not None


def test_without_keys_and_without_a_range() -> None:
    rows: list[Row] = [(n, "a", n % 3, n) for n in range(30)] + [(30, None, None, None)]
    low, high = np.array([3, 29, LEAST]), np.array([5, MOST, 0])
    ranged = spans.build(pa.array(["x", "y", "z"]), [], "size", low, high)
    assert ranged is not None
    assert found(rows, 4, ranged) == [(0, "z"), (3, "x"), (4, "x"), (5, "x"), (29, "y")]
    everything = np.full(2, LEAST), np.full(2, MOST)
    keyed = spans.build(pa.array([7, 8]), [("code", pa.array([1, 5]))], None, *everything)
    assert keyed is not None
    assert found(rows, 4, keyed) == [(n, 7) for n in range(1, 30, 3)]


def test_ids_and_columns_of_other_types() -> None:
    rows: list[Row] = [(f"e{n}", "ab"[n % 2], n % 3, n - 3) for n in range(12)]
    types = {
        "event": pa.large_string(),
        "name": pa.large_string(),
        "code": pa.int8(),
        "size": pa.int16(),
    }
    keys = [("name", pa.array(["a", "b"])), ("code", pa.array([0, 2]))]
    built = spans.build(
        pa.array(["p", "q"]), keys, "size", np.array([-3, 2]), np.array([3, LEAST + 2**63 + 9])
    )
    assert built is not None
    assert found(rows, 5, built, types=types) == [
        ("e0", "p"),
        ("e11", "q"),
        ("e5", "q"),
        ("e6", "p"),
    ]


def test_texts_are_extracted_as_they_are_split() -> None:
    """The texts of a known shape give the same values together as one by one.

    Other texts are left.
    """
    rng = Random(3)
    words = [
        "",
        "a",
        "it''s",
        "''",
        "x'' AND size > 5 AND name = ''y",
        "5",
        "AND",
        "é😀",
        "a b",
        "@s",
        "\n",
        "x" * 99,
    ]
    forms = [
        "name = '{}' AND size > {}",
        "name = '{}'  AND size > {}",
        "name = '{}' AND\nsize BETWEEN {} AND 7",
        "name='{}' and (size=-{})",
        "name = '{}' AND size > {}.5",
        "name = '{}' AND size2 > {}",
    ]
    lines = [
        rng.choice(forms).format(
            rng.choice(words), rng.choice(["0", "007", "9" * 18, "9" * 19, "12"])
        )
        for _ in range(400)
    ]
    column = pa.array([*lines, None, "name = 'x\\'' AND size > 5", "", "name = 'a' AND size > 5 "])
    apart = next(
        texts.take_apart(iter([pa.RecordBatch.from_arrays([column], names=["text"])]))
    ).to_pylist()
    shapes = sorted(
        {shape for line in lines if set((shape := texts.shape(line))[1::2]) <= {"s", "i"}}
    )
    assert len(shapes) == 5
    for shape in shapes:
        name = texts.template(list(shape))
        right = {
            number: [
                one[1:-1].replace("''", "'") if one[0] == "'" else int(one)
                for one in row["literals"]
            ]
            for number, row in enumerate(apart)
            if row["template"] == name
        }
        told: dict[int, list[Any]] = {}
        numbers, literals = texts.extract(column, shape)
        for at, *values in zip(
            numbers.tolist(), *(one.to_pylist() for one in literals), strict=True
        ):
            assert at not in told
            told[at] = values
        assert told == right
        assert len(right) > 20


@pytest.mark.parametrize("bits", [1, 15, 16, 17, 32, 33, 48, 49, 63])
def test_bits_are_sorted_as_numbers_are(bits: int) -> None:
    rng = np.random.default_rng(bits)
    numbers = np.concatenate(
        [rng.integers(0, 2**bits - 1, 3000, endpoint=True), [0, 2**bits - 1]] * 2
    )
    assert np.array_equal(spans._ascending(numbers, bits), np.argsort(numbers, kind="stable"))
    assert len(spans._ascending(numbers[:0], bits)) == 0


@pytest.mark.parametrize(
    ("numbers", "ranked"),
    [
        ([-3, 0, 4, 5], False),
        # The numbers are large, but near each other.
        ([2**62, 2**62 + 1, 2**62 + 7], False),
        # The ends of all numbers cut nothing.
        ([LEAST, -1, 0, 1, MOST], False),
        ([LEAST, MOST], False),
        ([LEAST + 1, 0, MOST - 1], True),
        # With the keys beside them these need more than 63 bits.
        ([-(2**60), 0, 2**60], True),
    ],
)
def test_places_are_distances_where_they_fit_and_ranks_where_not(
    numbers: list[int], ranked: bool
) -> None:
    """Events lie on the ends of each range, beside them, and at the ends of all numbers."""
    near = {one + by for one in numbers for by in (-1, 0, 1) if LEAST <= one + by <= MOST} | {
        LEAST,
        MOST,
    }
    rows: list[Row] = [
        (n, name, 1, size)
        for n, (name, size) in enumerate((a, b) for a in "abcdx" for b in sorted(near))
    ]
    ranges = [(low, high) for low in numbers for high in numbers if low < MOST and high > LEAST]
    sought: list[Row] = [
        (n, "abcd"[n % 4], 1, low, high) for n, (low, high) in enumerate(ranges * 4)
    ]
    built = build(sought)
    assert built is not None
    assert built.ranked == ranked
    assert found(rows, 3, built) == loop(rows, sought)
    assert found(rows, 3, built)


def test_places_fit_up_to_the_last_bit() -> None:
    """With one key, distances up to 2^63 - 1 are places, and beyond that places are ranks."""
    for high, ranked in ((MOST - 2, False), (MOST - 1, True)):
        built = spans.build(
            pa.array([1, 2]), [], "size", np.array([1, high]), np.array([high, high])
        )
        assert built is not None
        assert (built.ranked, built.bits <= 63) == (ranked, True)
        rows: list[Row] = [
            (n, "a", 1, size)
            for n, size in enumerate((0, 1, high - 1, high, high + 1, LEAST, MOST))
        ]
        assert found(rows, 2, built) == [(1, 1), (2, 1), (3, 1), (3, 2)]


def test_the_longest_string_sought() -> None:
    ends = np.full(3, LEAST), np.full(3, MOST)
    one = spans.build(
        pa.array([1, 2, 3]),
        [("c0", pa.array(["a", "é😀", None])), ("c1", pa.array([1, 2, 3]))],
        None,
        *ends,
    )
    two = spans.build(
        pa.array([1, 2, 3]),
        [("c0", pa.array(["abc"] * 3)), ("c2", pa.array([None] * 3, pa.string()))],
        None,
        *ends,
    )
    assert one is not None
    assert two is not None
    assert spans.longest([one, two]) == {"c0": 6, "c2": 0}
    assert spans.longest([two]) == {"c0": 3, "c2": 0}
    assert spans.longest([]) == {}
