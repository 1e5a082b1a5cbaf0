"""Covering means implication, in both directions where the answer is exact.

Merging keeps the union as it is.
"""

from __future__ import annotations

import random
from itertools import combinations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from filters import generate, worlds
from gossamer.filters import Filter, Schema, language, merge
from gossamer.filters.cover import PAIRS_MAX
from gossamer.filters.model import CONJUNCTIONS_MAX, TEXT_MAX

# All of it together takes seconds.
pytestmark = pytest.mark.slow

SCHEMA = Schema.parse(worlds.DDL)
ONE = st.sampled_from([(name,) for name in worlds.NAMES])
TWO = st.sampled_from(
    [pair for pair in combinations(worlds.NAMES, 2) if "s" not in pair and "i" not in pair]
)


def made(text: str) -> Filter:
    return Filter.parse(text, SCHEMA)


def implied(outer: Filter, inner: Filter, names: tuple[str, ...]) -> bool:
    return all(outer.matches_row(row) for row in worlds.rows(names) if inner.matches_row(row))


@given(
    st.one_of(ONE, TWO).flatmap(
        lambda names: st.tuples(
            st.just(names), worlds.conjunctions(names), worlds.conjunctions(names)
        )
    )
)
@settings(deadline=None, max_examples=250)
@example((("s",), "s LIKE '_a%'", "s > 'a' AND s LIKE '%a%'"))
@example((("d",), "d > 1D", "d >= 1.0000000000000002D"))
@example((("i",), "i >= 126 AND i < 127 OR i = 127", "i > 125"))
@example((("b",), "b IN (TRUE, FALSE)", "b IS NOT NULL"))
@example((("b",), "b IS NULL", "b < FALSE"))
@example((("s",), "s < 'a\\0'", "s <= 'a\\0' AND s <> 'a\\0'"))
@example((("s",), "s NOT LIKE '%a%'", "s LIKE '_' AND s > 'a'"))
def test_covering_a_conjunction_is_implication(case: tuple[tuple[str, ...], str, str]) -> None:
    names, one, other = case
    a, b = made(one), made(other)
    exact = len(a.boxes) <= 1 and len(b.boxes) <= 1
    for outer, inner in ((a, b), (b, a)):
        covers, holds = outer.covers(inner), implied(outer, inner, names)
        assert holds or not covers, (outer, inner)
        assert covers or not holds or not exact, (outer, inner)
    assert a.covers(a)


@given(
    TWO.flatmap(
        lambda names: st.tuples(st.just(names), worlds.filters(names), worlds.filters(names))
    )
)
@settings(deadline=None, max_examples=80)
def test_covering_implies_matching(case: tuple[tuple[str, ...], str, str]) -> None:
    names, one, other = case
    a, b = made(one), made(other)
    assert not a.covers(b) or implied(a, b, names)
    assert made(f"({one}) OR ({other})").covers(b)
    assert b.covers(made(f"({one}) AND ({other})"))


@given(st.integers(0, 2**32))
@settings(deadline=None, max_examples=40)
def test_covering_implies_matching_for_any_text(seed: int) -> None:
    """The texts also have RLIKE, pairs of attributes, structs and NOT. Weaker and stronger texts
    are made of them.
    """
    batch = generate.batch(seed, texts=5, events=30)
    schema = Schema.parse(batch.ddl)
    rng = random.Random(seed)
    more = [
        f"({batch.texts[0]}) AND ({batch.texts[1]})",
        f"({batch.texts[0]}) OR ({batch.texts[2]})",
    ]
    filters = worlds.parsed([*batch.texts, *more], schema)
    rows = [schema.row(event) for event in batch.events]
    for a in filters:
        assert a.covers(a)
        for b in rng.sample(filters, min(4, len(filters))):
            if a.covers(b):
                assert not [row for row in rows if b.matches_row(row) and not a.matches_row(row)], (
                    a,
                    b,
                )


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        ("i < 5", "i < 3 AND s = 'a'"),
        ("i IN (1, 2, 3)", "i BETWEEN 1 AND 3"),
        ("i <> 7", "i < 7 OR i > 7"),
        ("s LIKE '%b%'", "s LIKE 'a%b_c'"),
        ("s >= 'ab'", "s LIKE 'abc%'"),
        ("s LIKE '%'", "s RLIKE 'a'"),
        # No character is between the two.
        ("s >= '\ud7ff' AND s < '\ue000'", "s LIKE '\ud7ff%'"),
        ("s LIKE '\ud7ff%'", "s >= '\ud7ff' AND s < '\ue000'"),
        ("s RLIKE '^a'", "s RLIKE '^a' AND i = 1"),
        ("s RLIKE '^a'", "s IN ('a', 'ab')"),
        ("i <= n", "i = n"),
        ("i <> n", "i < n"),
        ("i IS NOT NULL", "i < n"),
        ("d < f OR i < n", "i < 3 AND n = 5 AND i = 2"),
        ("s = 'a'", "i < 3 AND i > 2"),
        ("TRUE", "s = 'a'"),
        ("s = 'a'", "FALSE"),
        ("n >= -2147483648", "TRUE"),
    ],
)
def test_covers(outer: str, inner: str) -> None:
    assert made(outer).covers(made(inner))
    assert outer in ("TRUE", "n >= -2147483648") or not made("i = 99 AND s = 'zz'").covers(
        made(outer)
    )


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        ("i <= n", "i >= n"),
        ("i = n", "i <= n"),
        # This is true and not seen: seeing it would need reading the expression.
        ("s RLIKE 'a'", "s RLIKE 'aa'"),
        # This is true and not seen: no single box holds it.
        ("i < 5 OR i >= 5", "i IS NOT NULL"),
        # Infinity and NaN pass the second only.
        ("d <= 1.7976931348623157E308D", "d > 0D"),
        ("i IS NOT NULL", "s = 'a'"),
    ],
)
def test_does_not_cover(outer: str, inner: str) -> None:
    assert not made(outer).covers(made(inner))


def test_a_walk_that_is_too_long_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    outer, inner = made("s LIKE '%a%'"), made("s LIKE '%ba%b%'")
    assert outer.covers(inner)
    monkeypatch.setattr(language, "STEPS_MAX", 3)
    assert not outer.covers(inner)


def test_too_many_pairs_of_boxes_are_not_shown() -> None:
    several = " OR ".join(f"(i = {i % 100} AND n > {i})" for i in range(300))
    one = made(several)
    assert len(one.boxes) ** 2 > PAIRS_MAX
    assert not one.covers(one)
    assert made("TRUE").covers(one)


def test_filters_of_two_schemas_are_not_compared() -> None:
    other = Filter.parse("i = 1", Schema.parse("i INT"))
    with pytest.raises(ValueError, match="one schema"):
        made("i = 1").covers(other)
    with pytest.raises(ValueError, match="one schema"):
        merge([made("i = 1"), other])


@given(
    st.one_of(ONE, TWO).flatmap(
        lambda names: st.tuples(
            st.just(names), st.lists(worlds.filters(names), min_size=1, max_size=5)
        )
    )
)
@settings(deadline=None, max_examples=80)
@example((("i",), ["i < 5", "i >= 5", "i IS NULL"]))
@example((("d",), ["d < 1D", "d > 1D", "d = 1D"]))
@example((("s",), ["s LIKE 'a%'", "s >= 'b' AND s < '\U0001f600'"]))
def test_merging_neither_loses_nor_adds(case: tuple[tuple[str, ...], list[str]]) -> None:
    names, texts = case
    before = [made(text) for text in texts]
    after = merge(before)
    assert len(after) <= sum(len(f.boxes) for f in before)
    for found in after:
        assert Filter.parse(found.text, SCHEMA) == found
        assert len(found.boxes) == 1
    for row in worlds.rows(names):
        assert any(f.matches_row(row) for f in after) == any(f.matches_row(row) for f in before), (
            row
        )


@given(st.integers(0, 2**32))
@settings(deadline=None, max_examples=40)
def test_merging_any_texts(seed: int) -> None:
    batch = generate.batch(seed, texts=5, events=30)
    schema = Schema.parse(batch.ddl)
    before = [Filter.parse(text, schema) for text in batch.texts]
    after = merge(before)
    for found in after:
        assert Filter.parse(found.text, schema) == found
    for row in map(schema.row, batch.events):
        assert any(f.matches_row(row) for f in after) == any(f.matches_row(row) for f in before)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["i = 1", "i = 2", "i = 5"], ["i IN (1, 2, 5)"]),
        (["i < 5", "i >= 5"], ["i IS NOT NULL"]),
        (["i < 5", "i >= 5", "i IS NULL"], ["TRUE"]),
        (["n < 5", "n >= 5"], ["TRUE"]),
        (["d < 1D", "d > 1D"], ["d > 1.0D", "d < 1.0D"]),
        (["d < 1D", "d > 1D", "d = 1D"], ["d IS NOT NULL"]),
        (
            ["i > 3 AND s = 'a'", "i = 3 AND s = 'a'", "s = 'b' AND i >= 3"],
            ["s IN ('a', 'b') AND i >= 3"],
        ),
        (["s LIKE 'a%'", "s = 'abc'", "s >= 'b' AND s < 'c'"], ["s >= 'a' AND s < 'c'"]),
        (["s LIKE 'a%' AND s <> 'ab'", "s = 'ab'"], ["s LIKE 'a%'"]),
        (
            ["i = 1 AND n = 1", "i = 1 AND n = 2", "i = 2 AND n = 1", "i = 2 AND n = 2"],
            ["i IN (1, 2) AND n IN (1, 2)"],
        ),
        (
            ["s LIKE '%a%'", "s LIKE '%ba%'", "s RLIKE 'a'", "s RLIKE 'a'"],
            ["s LIKE '%a%'", "s RLIKE 'a'"],
        ),
        (["i < n", "i <= n"], ["i <= n"]),
        (["FALSE"], []),
        ([], []),
    ],
)
def test_merge(before: list[str], after: list[str]) -> None:
    assert [str(f) for f in merge(map(made, before))] == after


def test_merged_lists_stay_within_the_limits_of_a_filter() -> None:
    texts = [f"s = '{'x' * 40}{i}'" for i in range(3 * CONJUNCTIONS_MAX)]
    found = merge(map(made, texts))
    assert 3 < len(found) < 64
    assert all(len(f.text) <= TEXT_MAX and len(f.conjunctions) <= CONJUNCTIONS_MAX for f in found)
    assert sum(len(f.conjunctions) for f in found) == len(texts)
