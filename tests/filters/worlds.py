"""Small worlds: filters over few literals, and rows that show every difference of two such filters.

A predicate on one attribute changes its verdict only at its literals. So the literals, their
neighbours and the ends of the type are enough to tell any two conjunctions apart. For patterns, all
short strings over their characters are enough. The module imports nothing of gossamer, because
expectations must not come from the code that they judge.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from itertools import product
from typing import Any

from hypothesis import strategies as st

from gossamer.filters import Filter, FilterError, Schema

DDL = (
    "s STRING, i TINYINT, d DOUBLE, f FLOAT, b BOOLEAN, day DATE, n INT NOT NULL, at "
    "TIMESTAMP, x BINARY, l BIGINT"
)
NAMES = ["s", "i", "d", "f", "b", "day", "n", "at", "x", "l"]
# The characters of the literals and patterns, and one from each stretch between them.
CHARACTERS = "\x00Aab~\U0001f600\U0010ffff"


def single_after(value: float) -> float:
    """The next FLOAT above a positive one."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return float(struct.unpack("<f", struct.pack("<I", bits + 1))[0])


def single_before(value: float) -> float:
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return float(struct.unpack("<f", struct.pack("<I", bits - 1))[0])


_DAY, _MICRO = timedelta(days=1), timedelta(microseconds=1)
_D, _T = date(2024, 2, 29), datetime(2024, 2, 29, 12, tzinfo=UTC)
_MAX, _SINGLE_MAX = 1.7976931348623157e308, 3.4028234663852886e38

# Literals as text and as values, in order.
LITERALS: dict[str, list[tuple[str, Any]]] = {
    "s": [
        ("''", ""),
        ("'a'", "a"),
        ("'a\\0'", "a\x00"),
        ("'ab'", "ab"),
        ("'b'", "b"),
        ("'\U0001f600'", "\U0001f600"),
    ],
    "i": [(str(v), v) for v in (-128, -127, 0, 1, 2, 3, 126, 127)],
    "d": [
        ("-1.5D", -1.5),
        ("0D", 0.0),
        ("1D", 1.0),
        ("1.0000000000000002D", 1.0000000000000002),
        (f"{_MAX!r}D", _MAX),
    ],
    "f": [
        ("0.5D", 0.5),
        ("1D", 1.0),
        (f"{single_after(1.0)!r}D", single_after(1.0)),
        (f"{_SINGLE_MAX!r}D", _SINGLE_MAX),
    ],
    "b": [("FALSE", False), ("TRUE", True)],
    "day": [
        ("DATE '0001-01-01'", date.min),
        ("DATE '2024-02-29'", _D),
        ("DATE '2024-03-01'", _D + _DAY),
    ],
    "n": [("-2147483648", -(2**31)), ("5", 5), ("6", 6), ("2147483647", 2**31 - 1)],
    "at": [
        ("TIMESTAMP '2024-02-29 12:00:00'", _T),
        ("TIMESTAMP '2024-02-29 12:00:00.000001'", _T + _MICRO),
    ],
    "x": [("X''", b""), ("X'00'", b"\x00"), ("X'FF'", b"\xff")],
    "l": [(str(v), v) for v in (-(2**63), 2**53, 2**53 + 1, 2**63 - 1)],
}
PATTERNS = [
    "a%",
    "ab%",
    "%a",
    "%a%",
    "_",
    "a_",
    "_a%",
    "a%b",
    "%ab%",
    "_%",
    "__%",
    "%a%b%",
    "\U0001f600%",
]

_NAN = math.nan
VALUES: dict[str, list[Any]] = {
    "s": ["".join(c) for length in range(4) for c in product(CHARACTERS, repeat=length)]
    + ["".join(c) for c in product("\x00ab", repeat=4)],
    "i": list(range(-128, 128)),
    "d": [
        -math.inf,
        -1.6,
        -1.5,
        -1.4,
        -5e-324,
        0.0,
        5e-324,
        math.nextafter(1.0, 0),
        1.0,
        1.0000000000000002,
        math.nextafter(1.0000000000000002, 2),
        math.nextafter(_MAX, 0),
        _MAX,
        math.inf,
        _NAN,
    ],
    "f": [
        -math.inf,
        0.0,
        single_before(0.5),
        0.5,
        single_after(0.5),
        single_before(1.0),
        1.0,
        single_after(1.0),
        single_after(single_after(1.0)),
        single_before(_SINGLE_MAX),
        _SINGLE_MAX,
        math.inf,
        _NAN,
    ],
    "b": [False, True],
    "day": [date.min, date.min + _DAY, _D - _DAY, _D, _D + _DAY, _D + 2 * _DAY, date.max],
    "n": [-(2**31), -(2**31) + 1, 4, 5, 6, 7, 2**31 - 2, 2**31 - 1],
    "at": [
        datetime.min.replace(tzinfo=UTC),
        _T - _MICRO,
        _T,
        _T + _MICRO,
        _T + 2 * _MICRO,
        datetime.max.replace(tzinfo=UTC),
    ],
    "x": [
        b"",
        b"\x00",
        b"\x00\x00",
        b"\x00\x01",
        b"\x01",
        b"\xfe",
        b"\xff",
        b"\xff\x00",
        b"\xff\x01",
    ],
    "l": [-(2**63), -(2**63) + 1, 0, 2**53 - 1, 2**53, 2**53 + 1, 2**53 + 2, 2**63 - 2, 2**63 - 1],
}


@st.composite
def predicates(
    draw: st.DrawFn, names: tuple[str, ...] = tuple(NAMES), patterns: bool = True
) -> str:
    name = draw(st.sampled_from(names))
    literals = [text for text, _ in LITERALS[name]]
    one = st.sampled_from(literals)
    kinds = ["compare", "compare", "compare", "between", "in", "null"] + ["like"] * 3 * (
        name == "s" and patterns
    )
    kind = draw(st.sampled_from(kinds))
    no = draw(st.sampled_from(["", "", "NOT "]))
    if kind == "compare":
        return f"{name} {draw(st.sampled_from(['=', '<>', '<', '<=', '>', '>=']))} {draw(one)}"
    if kind == "between":
        return f"{name} BETWEEN {draw(one)} AND {draw(one)}"
    if kind == "in":
        return f"{name} {no}IN ({', '.join(draw(st.lists(one, min_size=1, max_size=5)))})"
    if kind == "null":
        return f"{name} IS {no}NULL"
    return f"{name} {no}LIKE '{draw(st.sampled_from(PATTERNS))}'"


def conjunctions(
    names: tuple[str, ...] = tuple(NAMES), patterns: bool = True
) -> st.SearchStrategy[str]:
    return st.lists(predicates(names, patterns), min_size=1, max_size=4).map(" AND ".join)


def filters(names: tuple[str, ...] = tuple(NAMES)) -> st.SearchStrategy[str]:
    return st.lists(conjunctions(names), min_size=1, max_size=4).map(
        lambda parts: " OR ".join(f"({p})" for p in parts)
    )


def rows(names: tuple[str, ...]) -> list[tuple[Any, ...]]:
    """Every combination of the values of these attributes, with NULL in the others."""
    choices = [
        [*VALUES[n], *([None] if n != "n" else [])] if n in names else [5 if n == "n" else None]
        for n in NAMES
    ]
    return list(product(*choices))


def parsed(texts: Iterable[str], schema: Schema) -> list[Filter]:
    """The filters of generated texts, without the few that have too many conjunctions."""
    found = []
    for text in texts:
        try:
            found.append(Filter.parse(text, schema))
        except FilterError as error:
            if "multiply out" not in str(error):
                raise
    return found
