"""Byte order is dictionary order, for every type and for tuples."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gossamer.filters.order import NULL, encode, encode_all, prefix_range

INTEGERS = st.integers(-(2**63), 2**63 - 1) | st.sampled_from(
    [0, 1, -1, 2**63 - 1, -(2**63), 255, 256, -256]
)
FLOATS = st.floats() | st.sampled_from([0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, -5e-324])
TEXTS = st.text() | st.text("a\x00\x01\u00ff\uffff\U00010000", max_size=4)
TYPES: dict[str, st.SearchStrategy[Any]] = {
    "STRING": TEXTS,
    "BINARY": st.binary() | st.lists(st.sampled_from([0, 1, 254, 255]), max_size=4).map(bytes),
    "BOOLEAN": st.booleans(),
    "BIGINT": INTEGERS,
    "DOUBLE": FLOATS,
    "TIMESTAMP": st.datetimes(timezones=st.just(UTC)),
    "DATE": st.dates(),
}


def rank(value: Any) -> tuple[Any, ...]:
    """Spark's order without bytes: NULL first, NaN last, -0.0 as 0.0, strings by their UTF-8."""
    if value is None:
        return (0,)
    if isinstance(value, float):
        return (2, 0) if math.isnan(value) else (1, value)
    return (1, value.encode() if isinstance(value, str) else value)


def ordered(a: Any, b: Any) -> int:
    return (a > b) - (a < b)


@pytest.mark.parametrize("kind", TYPES)
def test_bytes_compare_as_values_do(kind: str) -> None:
    values = TYPES[kind] | st.none()

    @settings(deadline=None)
    @given(values, values)
    def law(a: Any, b: Any) -> None:
        assert ordered(encode(a), encode(b)) == ordered(rank(a), rank(b))

    law()


@settings(deadline=None)
@given(st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=4), st.data())
def test_tuples_concatenate(kinds: list[str], data: st.DataObject) -> None:
    row = st.tuples(*[TYPES[kind] | st.none() for kind in kinds])
    a, b = data.draw(row), data.draw(row)
    assert ordered(encode_all(a), encode_all(b)) == ordered(
        [rank(v) for v in a], [rank(v) for v in b]
    )


@settings(deadline=None)
@given(st.lists(TEXTS, max_size=3), st.lists(TEXTS, max_size=3))
@example(["a", "b"], ["a\x00", ""])
@example(["a"], ["a", ""])
def test_a_shorter_tuple_comes_first(a: list[str], b: list[str]) -> None:
    assert ordered(encode_all(a), encode_all(b)) == ordered(
        [rank(v) for v in a], [rank(v) for v in b]
    )


@settings(deadline=None)
@given(TEXTS, TEXTS)
@example("", "a")
@example("a", "a")
@example("a\x00", "a\x00\U0010ffff")
def test_prefix_range(prefix: str, text: str) -> None:
    low, high = prefix_range(prefix)
    assert (low <= encode(text) < high) == text.startswith(prefix)
    assert low <= encode(prefix + text) < high


def test_layout() -> None:
    """The bytes go over the wire and into other nodes' lists, so they are fixed."""
    assert encode(None) == NULL == b"\x00"
    assert encode(True) == b"\x01\x01"
    assert encode(-1).hex() == "017fffffffffffffff"
    assert encode(1.0).hex() == "01bff0000000000000"
    assert encode(-0.0) == encode(0.0)
    assert encode(float("nan")).hex() == "01fff8000000000000"
    assert encode("a\x00é").hex() == "016100ffc3a900"
    assert encode(b"\xff").hex() == "01ff00"
    assert encode(date(1, 1, 1)).hex() == "0100000001"
    assert encode(datetime(1970, 1, 1, 0, 0, 0, 1, UTC)).hex() == "018000000000000001"
