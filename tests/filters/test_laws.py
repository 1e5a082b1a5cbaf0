"""Laws of parsing and printing: printing and then parsing is the identity.

No text causes an error worse than a FilterError.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from filters import generate
from gossamer.filters import Filter, FilterError, Schema
from gossamer.filters import tree as t
from gossamer.filters.model import CONJUNCTIONS_MAX
from gossamer.filters.text import write

# All of it together takes seconds.
pytestmark = pytest.mark.slow

SCHEMA = Schema.parse(
    "s STRING, i INT, d DOUBLE, b BOOLEAN, f FLOAT, l BIGINT, at TIMESTAMP, day DATE, x BINARY, `t "
    "t` TINYINT, S2 STRING"
)
RANKS = SCHEMA.ranks
BITS = {"TINYINT": 8, "INT": 32, "BIGINT": 64}


def values(attribute: int) -> st.SearchStrategy[t.Value]:
    kind = SCHEMA.types[attribute].value
    if kind in BITS:
        edge = 2 ** (BITS[kind] - 1)
        # At the very edges a comparison says TRUE or FALSE.
        return st.integers(-edge + 1, edge - 2)
    return {
        "STRING": st.text(),
        "DOUBLE": st.floats(allow_nan=False, allow_infinity=False).map(lambda v: v + 0.0),
        "FLOAT": st.floats(allow_nan=False, allow_infinity=False, width=32).map(lambda v: v + 0.0),
        "BOOLEAN": st.booleans(),
        "BINARY": st.binary(),
        "DATE": st.dates(),
        "TIMESTAMP": st.sampled_from(generate.TIMES),
    }[kind]


@st.composite
def predicates(draw: st.DrawFn) -> t.Node:
    attribute = draw(st.integers(0, len(SCHEMA.names) - 1))
    boolean = SCHEMA.types[attribute] == "BOOLEAN"
    kinds = (
        ["null", "in"]
        + ["compare"]
        + ["rlike", "like"] * (attribute in (0, 10))
        + ["pair"] * (attribute in (1, 2))
    )
    kind = draw(st.sampled_from(kinds))
    negated = draw(st.booleans())
    if kind == "null":
        return t.Null(attribute, negated)
    if kind == "compare":
        return t.Compare(
            attribute, draw(st.sampled_from(["<", "<=", ">", ">="])), draw(values(attribute))
        )
    if kind == "in":
        several = draw(st.lists(values(attribute), min_size=1, max_size=1 if boolean else 4))
        return t.membership(attribute, several, negated and not boolean)
    if kind == "pair":
        left, right = (1, 2) if attribute == 1 else (2, 5)
        return t.Pair(left, draw(st.sampled_from(["=", "<>", "<", "<="])), right)
    if kind == "like":
        return t.Like(
            attribute,
            draw(st.sampled_from(["a%", "%a", "%a%", "_", "a_%", "\\%%", "\\\\_", "é%'\n%"])),
            negated,
        )
    return t.Rlike(
        attribute, draw(st.sampled_from(["a", "^a$", "(a+)+$", "\\d'\\.", "[é-ü]\n"])), negated
    )


def compounds(inner: st.SearchStrategy[t.Node]) -> st.SearchStrategy[t.Node]:
    several = st.lists(inner, min_size=2, max_size=4)
    return several.map(lambda terms: t.all_of(terms, RANKS)) | several.map(
        lambda terms: t.any_of(terms, RANKS)
    )


# Trees with more conjunctions are refused, however they are written.
TREES = st.recursive(predicates(), compounds, max_leaves=12).filter(
    lambda node: t.count(node) <= CONJUNCTIONS_MAX
)


@given(TREES)
@settings(deadline=None, max_examples=200)
def test_print_then_parse_is_the_identity(node: t.Node) -> None:
    text = write(node, SCHEMA)
    found = Filter.parse(text, SCHEMA)
    assert found.tree == node
    assert found.text == text
    assert t.count(node) >= len(found.keys)


@settings(deadline=None)
@given(TREES, st.randoms(use_true_random=False))
def test_the_order_of_terms_does_not_matter(node: t.Node, rng: random.Random) -> None:
    if isinstance(node, t.And | t.Or):
        terms = list(node.terms)
        rng.shuffle(terms)
        joint = " AND " if isinstance(node, t.And) else " OR "
        text = joint.join(f"({write(term, SCHEMA)})" for term in terms)
        assert Filter.parse(text, SCHEMA) == Filter(node, SCHEMA)


@given(st.integers(0, 2**32))
@example(37874)
@settings(deadline=None, max_examples=60)
def test_generated_texts(seed: int) -> None:
    batch = generate.batch(seed, texts=6, events=8)
    schema = Schema.parse(batch.ddl)
    rows = [schema.row(event) for event in batch.events]
    for text in batch.texts:
        found = Filter.parse(text, schema)
        same = Filter.parse(found.text, schema)
        assert same == found
        assert same.text == found.text
        assert same.key == found.key
        conjunctions = [t.all_of(c, schema.ranks) for c in found.conjunctions]
        apart = [Filter(c, schema) for c in conjunctions]
        for row in rows:
            assert found.matches_row(row) == any(f.matches_row(row) for f in apart), text
        assert found.passing(rows) == [
            place for place, row in enumerate(rows) if found.matches_row(row)
        ], text
        # An event passes the text, its negation, or neither (NULL), and never both.
        try:
            negation = Filter.parse(f"NOT ({text})", schema)
        # The conjunctions of a text and those of its negation may differ in number.
        except FilterError as error:
            assert "multiply out" in str(error)
            continue
        assert not any(found.matches_row(row) and negation.matches_row(row) for row in rows)


@given(TREES, TREES, TREES)
@settings(deadline=None, max_examples=50)
def test_filters_are_totally_ordered(a: t.Node, b: t.Node, c: t.Node) -> None:
    first, second, third = sorted(Filter(node, SCHEMA) for node in (a, b, c))
    assert not second < first
    assert not third < second
    assert not third < first
    assert (first == second) == (not first < second)


@given(st.lists(TREES, min_size=2, max_size=6))
@settings(deadline=None, max_examples=150)
def test_keys_compare_as_their_parts_do(nodes: list[t.Node]) -> None:
    """A key is made of the keys of its parts, and this does not change their order.

    The parts of a conjunction's key are predicates, and the parts of a filter's key are
    conjunctions.
    """
    filters = [Filter(node, SCHEMA) for node in nodes]
    parts = {f: [[t.predicate_key(p, RANKS) for p in c] for c in f.conjunctions] for f in filters}
    for a in filters:
        for b in filters:
            assert (a.key < b.key) == (a.keys < b.keys) == (parts[a] < parts[b])
            assert (a.key == b.key) == (parts[a] == parts[b])
    predicates = {key for conjunctions in parts.values() for c in conjunctions for key in c}
    for one in predicates:
        # A string with NUL in it goes on with FF where a shorter one ends, and no key begins with
        # FF. So the following part decides alike.
        assert not any(
            other != one and other.startswith(one) and other[len(one)] != 0xFF
            for other in predicates
        )


WORDS = [
    "s",
    "i",
    "d",
    "b",
    "`t t`",
    "x",
    "NOT",
    "!",
    "AND",
    "OR",
    "(",
    ")",
    "IN",
    "LIKE",
    "RLIKE",
    "BETWEEN",
    "IS",
    "NULL",
    "TRUE",
]
WORDS += [
    "=",
    "<",
    "<=>",
    "<>",
    ",",
    "1",
    "-1",
    "1.5",
    "1e3",
    "2L",
    "'a'",
    "'%\\\\'",
    "r'('",
    '"b"',
    "X'00'",
    "DATE",
    "'2024-01-01'",
]
WORDS += [
    "TIMESTAMP",
    "ESCAPE",
    "'#'",
    ".",
    "-",
    "+",
    "--",
    "/*",
    "'",
    "`",
    "\\",
    "CASE",
    "f(",
    "é",
    "\x00",
    "\ud800",
    "🙂",
    "1e999999999",
]
SOUP = st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join) | st.lists(
    st.sampled_from(WORDS), max_size=12
).map("".join)


# The message quoted half of a surrogate pair.
@example("'\\\ud800'")
@given(SOUP | st.text(st.characters()) | st.text(max_size=40))
@settings(deadline=None, max_examples=1000)
def test_any_text_parses_or_is_a_filter_error(text: str) -> None:
    try:
        found = Filter.parse(text, SCHEMA)
    except FilterError as error:
        # The message can be shown, whatever the text is.
        str(error).encode()
        return
    assert Filter.parse(found.text, SCHEMA) == found
    found.matches_row(SCHEMA.row({}))


@given(st.integers(0, 2**32), st.data())
@settings(deadline=None, max_examples=100)
def test_a_damaged_text_parses_or_is_a_filter_error(seed: int, data: st.DataObject) -> None:
    batch = generate.batch(seed, texts=1, events=1)
    text = batch.texts[0]
    cut = data.draw(st.integers(0, len(text)))
    skip = data.draw(st.integers(0, 6))
    damaged = text[:cut] + data.draw(st.sampled_from(["", *WORDS])) + text[cut + skip :]
    schema = Schema.parse(batch.ddl)
    try:
        found = Filter.parse(damaged, schema)
    except FilterError:
        return
    assert Filter.parse(found.text, schema) == found
