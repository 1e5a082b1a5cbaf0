"""Placements: an event passes a filter if and only if it passes by one of its placements.

That is, the event finds the placement, and the placement's residual passes.
"""

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from itertools import combinations
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from filters import generate, worlds
from gossamer.filters import Class, Filter, Placement, Schema, event_keys, pattern, tree
from gossamer.filters.match import compile_row
from gossamer.filters.place import ALL, PLACEMENTS_MAX, takes
from gossamer.filters.tree import TRUE

SCHEMA = Schema.parse(worlds.DDL)
S, T, D, N = 0, 1, 2, 6
NAMES = st.sampled_from([pair for pair in combinations(worlds.NAMES, 2) if set(pair) != {"s", "i"}])


def made(text: str) -> Filter:
    return Filter.parse(text, SCHEMA)


def found(placements: tuple[Placement, ...], row: tuple[Any, ...], schema: Schema = SCHEMA) -> bool:
    return any(takes(p, row) and compile_row(p.residual, schema)(row) for p in placements)


def check(
    one: Filter,
    rows: list[tuple[Any, ...]],
    placements: tuple[Placement, ...],
    schema: Schema = SCHEMA,
) -> None:
    residuals = [compile_row(p.residual, schema) for p in placements]
    for row in rows:
        passed = any(
            takes(p, row) and rest(row) for p, rest in zip(placements, residuals, strict=True)
        )
        assert passed == one.matches_row(row), (one, row, placements)


def classes(draw: st.DrawFn, one: Filter, other: Filter) -> list[Class]:
    """Some classes, as other filters of the topic might have brought them."""
    brought = {ALL} | {p.cls for f in (one, other) for p in f.placements()}
    brought |= {Class(c.equal[:1], c.kind, c.ranged, c.bits) for c in brought}
    brought |= {Class(c.equal, "from", c.ranged) for c in brought if c.kind == "between"}
    brought |= {Class(c.equal, "to", c.ranged) for c in brought if c.kind == "between"}
    brought |= {
        Class(c.equal, "between", c.ranged, c.bits // 2) for c in brought if c.kind == "between"
    }
    brought |= {Class((), "between", a, 3) for c in brought for a in c.equal}
    return draw(st.lists(st.sampled_from(sorted(brought, key=repr)), max_size=4, unique=True))


@given(st.data())
@settings(deadline=None, max_examples=80)
def test_matching_is_being_found(data: st.DataObject) -> None:
    names = data.draw(NAMES)
    one, other = made(data.draw(worlds.filters(names))), made(data.draw(worlds.filters(names)))
    rows = worlds.rows(names)
    rows = random.Random(len(one.text)).sample(rows, min(100, len(rows)))
    check(one, rows, one.placements())
    for most in (1, 2, 3):
        few = one.placements(most=most)
        assert len(few) <= most
        check(one, rows, few)
    allowed = classes(data.draw, one, other)
    check(one, rows, one.placements(allowed))
    assert {p.cls for p in one.placements(allowed)} <= {*allowed, ALL}
    check(one, rows, one.placements(allowed, most=2))


@given(st.integers(0, 2**32))
@settings(deadline=None, max_examples=40)
def test_matching_is_being_found_for_any_text(seed: int) -> None:
    batch = generate.batch(seed, texts=6, events=20)
    schema = Schema.parse(batch.ddl)
    rows = [schema.row(event) for event in batch.events]
    filters = worlds.parsed(batch.texts, schema)
    used = sorted({p.cls for f in filters for p in f.placements()}, key=repr)
    rng = random.Random(seed)
    for one in filters:
        check(one, rows, one.placements(), schema)
        check(
            one,
            rows,
            one.placements(rng.sample(used, len(used) // 2), most=rng.choice([1, 4, 16])),
            schema,
        )


@pytest.mark.parametrize(
    ("text", "cls", "keys", "residual"),
    [
        ("s = 'a' AND i = 1", Class((S, T)), 1, "TRUE"),
        ("i = 1 AND s = 'a' AND d > 2", Class((S, T), "from", D), 1, "TRUE"),
        ("s = 'a' AND i <= 1", Class((S,), "to", T), 1, "TRUE"),
        ("i BETWEEN 16 AND 31", Class((), "between", T, 60), 1, "i >= 16 AND i <= 31"),
        ("i BETWEEN 15 AND 30", Class((), "between", T, 60), 2, "i >= 15 AND i <= 30"),
        ("s LIKE 'abc%'", Class((), "between", S, 24), 1, "s LIKE 'abc%'"),
        ("s LIKE 'ab_c%'", Class((), "between", S, 16), 1, "s LIKE 'ab_c%'"),
        ("s IS NULL AND i > 3", Class((S,), "from", T), 1, "TRUE"),
        ("i > 3 AND i <> 7", Class((), "from", T), 1, "i > 3 AND i <> 7"),
        ("s = 'a' AND i < n", Class((S,)), 1, "i < n"),
        (
            "i > 3 AND n BETWEEN 4 AND 5",
            Class((), "between", N, 63),
            1,
            "i > 3 AND n >= 4 AND n <= 5",
        ),
        ("i >= 3 AND i <= 3", Class((T,)), 1, "TRUE"),
        ("s RLIKE 'a'", ALL, 1, "s RLIKE 'a'"),
        ("s IS NOT NULL", ALL, 1, "s IS NOT NULL"),
        ("TRUE", ALL, 1, "TRUE"),
    ],
)
def test_classes(text: str, cls: Class, keys: int, residual: str) -> None:
    (placement,) = made(text).placements()
    assert (placement.cls, len(placement.keys)) == (cls, keys)
    assert str(Filter(placement.residual, SCHEMA)) == residual


def test_a_filter_that_cannot_match_has_no_place() -> None:
    assert made("i > 3 AND i < 4").placements() == ()
    assert made("FALSE").placements() == ()


def test_in_and_or_are_split() -> None:
    placements = made("(s IN ('a', 'b') AND i IN (1, 2, 3)) OR d > 1").placements()
    assert [p.cls for p in placements].count(Class((S, T))) == 6
    assert [p.cls for p in placements].count(Class((), "from", D)) == 1
    assert len({key for p in placements for key in p.keys}) == 7
    assert all(p.residual == TRUE for p in placements)


def test_a_long_list_becomes_a_range_or_residual() -> None:
    text = f"s IN ('a', 'b') AND i IN ({', '.join(map(str, range(0, 120, 2)))})"
    fine = made(text).placements()
    assert len(fine) == 120
    (coarse, _) = made(text).placements(most=100)
    assert coarse.cls == Class((S,), "between", T, 57)
    (coarser,) = made(text).placements(most=1)
    assert coarser.cls.equal == ()
    assert (
        len(made(f"n IN ({', '.join(map(str, range(1000)))})").placements()) == 1 <= PLACEMENTS_MAX
    )


def test_too_many_ors_become_their_hull() -> None:
    one = made(" OR ".join(f"(i = 1 AND n BETWEEN {3 * v} AND {3 * v + 1})" for v in range(40)))
    assert len(one.placements()) == 40
    (hull,) = one.placements(most=30)
    assert (hull.cls, hull.residual) == (Class((T,), "between", N, 57), one.tree)
    apart = made("i = 1 OR s = 'a' OR d = 1")
    (anything,) = apart.placements(most=2)
    assert (anything.cls, anything.residual) == (ALL, apart.tree)


def test_a_class_that_is_not_allowed_gives_way_to_one_over_fewer_attributes() -> None:
    one = made("s = 'a' AND i = 1 AND n BETWEEN 4 AND 5")
    between, larger, smaller = (Class((), "between", N, bits) for bits in (60, 40, 64))
    assert one.placements([Class((S,)), between])[0].cls == Class((S,))
    assert one.placements([Class((D,)), larger, between])[0].cls == between
    # Two of the smaller cells would not be enough for every range.
    assert one.placements([smaller, larger])[0].cls == larger
    assert one.placements([Class((), "from", T)])[0].cls == Class((), "from", T)
    assert one.placements([])[0].cls == ALL
    assert one.placements([Class((), "from", T)])[0].residual == one.tree
    with pytest.raises(ValueError):
        one.placements(most=0)


def test_ranges_of_one_width_take_cells_of_one_size() -> None:
    classes = {
        made(f"n BETWEEN {low} AND {low + 9}").placements()[0].cls for low in range(-300, 300)
    }
    assert classes == {Class((), "between", N, 60)}


def test_an_event_looks_once_per_class_and_filters_of_a_class_are_contiguous() -> None:
    texts = [
        "s = 'a' AND i > 1",
        "s = 'a' AND i > 5",
        "s = 'b' AND i > 1",
        "s = 'a' AND i < 9",
        "s = 'a'",
        "i > 1",
        "TRUE",
    ]
    entries = sorted(
        (key, p.cls, text) for text in texts for p in made(text).placements() for key in p.keys
    )
    order = [cls for _, cls, _ in entries]
    assert [cls for i, cls in enumerate(order) if i == 0 or order[i - 1] != cls] == list(
        dict.fromkeys(order)
    )
    row = SCHEMA.row({"s": "a", "i": 5, "n": 0})
    spans = [span for cls in dict.fromkeys(order) if (span := event_keys(cls, row)) is not None]
    met = [text for key, _, text in entries if any(low <= key < high for low, high in spans)]
    assert sorted(met) == sorted(
        ["s = 'a' AND i > 1", "s = 'a' AND i < 9", "s = 'a'", "i > 1", "TRUE"]
    )


def test_a_string_that_starts_the_bytes_of_another_is_not_taken_for_it() -> None:
    """'' is written 01 00, and a NUL character 01 00 FF 00."""
    values = [b"", b"\x00", b"\x00\x00", b"\xff", b"\x00\xff"]
    rows = [
        SCHEMA.row({"x": v, "s": s, "n": 0}) for v in values for s in ("", "\x00", "\x00\x00", "a")
    ]
    literals = [f"X'{v.hex()}'" for v in values]
    texts = [f"s = '' AND x {op} {v}" for op in ("=", "<", "<=", ">", ">=") for v in literals]
    texts += [f"x = {v} AND s {op} '\\0'" for op in ("=", "<", "<=", ">", ">=") for v in literals]
    texts += [f"s = '' AND x BETWEEN {a} AND {b}" for a in literals for b in literals]
    for one in map(made, texts):
        check(one, rows, one.placements())


def test_null_meets_only_is_null() -> None:
    row = SCHEMA.row({"n": 0})
    assert event_keys(Class((), "from", T), row) is None
    assert event_keys(Class((), "between", S, 8), row) is None
    assert found(made("s IS NULL").placements(), row)
    # A short row ends in NULLs.
    assert found(made("s IS NULL").placements(), (None,))
    assert event_keys(Class((), "to", T), ()) is None
    assert not found(made("s = ''").placements(), row)


@given(
    st.text("ab\x00\U0010ffff", max_size=40),
    st.text("ab\x00\U0010ffff", max_size=40),
    st.text(max_size=3),
)
@settings(deadline=None)
@example("a" * 40, "a" * 40, "b")
@example("\U0010ffff", "", "\U0010ffff")
def test_cells_of_strings(prefix: str, other: str, rest: str) -> None:
    schema = Schema.parse("s STRING")
    low, high = sorted((prefix, other + rest), key=str.encode)
    rows = [(v,) for v in (prefix, other, prefix + rest, other + rest, rest, prefix + other, "")]
    between = (tree.Compare(0, ">=", low), tree.Compare(0, "<=", high))
    for node in (
        tree.all_of(between, schema.ranks),
        pattern.like_node(0, prefix + "%", "\\", False, False),
    ):
        one = Filter(node, schema)
        check(one, rows, one.placements(), schema)


@pytest.mark.parametrize(
    "cls",
    [
        Class((T, S)),
        Class((S, S)),
        Class((99,)),
        Class((-1,)),
        Class((), "from"),
        Class((), "from", 99),
        Class((), "from", T, 3),
        Class((T,), "from", T),
        Class((), "point", T),
        Class((), "between", T, 257),
        Class((), "between", T, -1),
        Class((), "around", T),  # type: ignore[arg-type]
    ],
)
def test_a_class_that_makes_no_sense_does_not_suit(cls: Class) -> None:
    assert not cls.suits(SCHEMA)


def test_classes_suit_their_schema_and_travel() -> None:
    texts = [
        "s = 'a' AND i = 1 AND d > 2",
        "s LIKE 'abc%'",
        "i < 3",
        "TRUE",
        " AND ".join(f"{n} IS NULL" for n in "sidbxlf"),
    ]
    for cls in (p.cls for text in texts for p in made(text).placements()):
        assert cls.suits(SCHEMA)
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(cls), type=Class) == cls
    wide = Schema.parse(", ".join(f"a{i} INT" for i in range(256)))
    (placement,) = Filter.parse(" AND ".join(f"a{i}=1" for i in range(256)), wide).placements()
    assert placement.cls.suits(wide)
    assert takes(placement, (1,) * 256)


def test_layout() -> None:
    """The keys go over the wire and into other nodes' lists, so they are fixed."""
    (point,) = made("s = 'a' AND i IS NULL").placements()
    assert point.keys[0].hex() == "00020000000100ffff000001610000"
    (low,) = made("i > 1").placements()
    assert low.keys[0].hex() == "00000100010000018000000000000002"
    (high,) = made("i < 1").placements()
    assert high.keys[0].hex() == "00000200010000018000000000000001"
    (cells,) = made("l BETWEEN 15 AND 16").placements()
    assert [key.hex() for key in cells.keys] == [
        "0000030009003f800000000000000e",
        "0000030009003f8000000000000010",
    ]
    ranged = Schema.parse("f FLOAT, d DOUBLE, day DATE, at TIMESTAMP, x BINARY, b BOOLEAN")
    row = (1.5, 1.5, date(2024, 2, 29), datetime(2024, 2, 29, tzinfo=UTC), b"ab", True)
    spans = [event_keys(Class((), "between", a, 16), row) for a in range(len(ranged.names))]
    assert [span[0][-2:].hex() for span in spans if span] == [
        "bff8",
        "bff8",
        "000b",
        "8006",
        "6162",
        "0100",
    ]
