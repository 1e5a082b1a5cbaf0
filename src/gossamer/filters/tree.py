"""The tree of a filter, in negation normal form.

Only TRUE passes, so the parser carries every NOT down to the predicates. De Morgan's laws and
the complements of the comparisons hold in three-valued logic, and for Spark's total order of
numbers with NaN. After that, NULL and FALSE need no distinction. The tree then has no NOT, no NULL,
and no literal of another type than its attribute's. So the matcher, the keys and the covering
relation each have eight small cases. `all_of` and `any_of` keep terms flat, unique and sorted: two
texts that differ only in the order of their terms are one filter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime
from itertools import product
from typing import TypeVar

from msgspec import Struct

from gossamer.filters import order

Value = str | bytes | bool | int | float | date | datetime


class Const(Struct, frozen=True):
    """Passes everything, or nothing."""

    value: bool


class Compare(Struct, frozen=True):
    """`attribute op value`, where op is one of < <= > >=."""

    attribute: int
    op: str
    value: Value


class In(Struct, frozen=True):
    """`attribute [NOT] IN (values)`, which with one value is = or <>.

    The values are sorted and unique.
    """

    attribute: int
    values: tuple[Value, ...]
    negated: bool


class Like(Struct, frozen=True):
    """`attribute [NOT] LIKE pattern`, with a backslash as the escape character."""

    attribute: int
    pattern: str
    negated: bool


class Rlike(Struct, frozen=True):
    """`attribute [NOT] RLIKE pattern`."""

    attribute: int
    pattern: str
    negated: bool


class Null(Struct, frozen=True):
    """`attribute IS [NOT] NULL`."""

    attribute: int
    negated: bool


class Pair(Struct, frozen=True):
    """`attribute op attribute`, where op is one of = <> < <=.

    For > and >= the sides are swapped.
    """

    left: int
    op: str
    right: int


class And(Struct, frozen=True):
    terms: tuple[Node, ...]


class Or(Struct, frozen=True):
    terms: tuple[Node, ...]


Predicate = Compare | In | Like | Rlike | Null | Pair
Node = Const | Predicate | And | Or

TRUE, FALSE = Const(True), Const(False)

# The kinds of predicates on one attribute, in the order of keys. Exact values come first, and the
# others follow about in the order of their width.
_NULL, _EQUAL, _LIKE, _FROM, _TO, _PAIR, _RLIKE, _NOT_EQUAL, _NOT_LIKE, _NOT_RLIKE, _NOT_NULL = (
    range(0x10, 0xC0, 0x10)
)
# By the end of the range: < 3 ends before <= 3.
_COMPARE = {">=": (_FROM, 0), ">": (_FROM, 1), "<": (_TO, 0), "<=": (_TO, 1)}
_PAIRS = {"=": _PAIR, "<": _PAIR + 1, "<=": _PAIR + 2, "<>": _PAIR + 3}
# It comes after every attribute.
_COMPOUND = 0xFFFF

_PREFIX = re.compile(r"(?:[^%_\\]|\\.)*", re.DOTALL)
_UNESCAPE = re.compile(r"\\(.)", re.DOTALL)


def predicate_key(node: Predicate, ranks: tuple[int, ...]) -> bytes:
    """The key of a predicate: rank (2 bytes), kind (1 byte), operand.

    It sorts predicates by attribute, then by kind, then by value.
    """
    first = ranks[node.left if isinstance(node, Pair) else node.attribute]
    return first.to_bytes(2, "big") + _OPERANDS[type(node)](node, ranks)


def _values(node: In, ranks: tuple[int, ...]) -> bytes:
    encoded = b"".join(map(order.encode, node.values))
    if len(node.values) == 1 and not node.negated:
        return bytes((_EQUAL,)) + encoded
    # NULL ends the list.
    return bytes((_NOT_EQUAL if node.negated else _EQUAL + 1,)) + encoded + order.NULL


def _bound(kind: int, inner: int, value: Value) -> bytes:
    return bytes((kind,)) + order.encode(value) + bytes((inner,))


def _like(node: Like) -> bytes:
    prefix, whole = like_prefix(node.pattern)
    if whole and not node.negated:
        # 'abc%' is a range of strings, and it sorts as the start of the range.
        return bytes((_LIKE,)) + order.encode(prefix)
    return bytes((_NOT_LIKE if node.negated else _LIKE + 1,)) + order.encode(node.pattern)


def like_prefix(pattern: str) -> tuple[str, bool]:
    """The characters that every match of the LIKE pattern starts with.

    The flag says whether the pattern asks nothing else.
    """
    match = _PREFIX.match(pattern)
    assert match is not None
    return _UNESCAPE.sub(r"\1", match[0]), pattern[match.end() :] == "%"


_OPERANDS: dict[type, Callable[..., bytes]] = {
    Compare: lambda node, ranks: _bound(*_COMPARE[node.op], node.value),
    In: _values,
    Like: lambda node, ranks: _like(node),
    Rlike: lambda node, ranks: (
        bytes((_NOT_RLIKE if node.negated else _RLIKE,)) + order.encode(node.pattern)
    ),
    Null: lambda node, ranks: bytes((_NOT_NULL if node.negated else _NULL,)),
    Pair: lambda node, ranks: bytes((_PAIRS[node.op],)) + ranks[node.right].to_bytes(2, "big"),
}


def node_key(node: Node, ranks: tuple[int, ...]) -> bytes:
    """A key that sorts the terms of a compound. Predicates come before compounds."""
    if type(node) is And or type(node) is Or:
        inner = b"".join(order.encode(node_key(term, ranks)) for term in node.terms)
        return _COMPOUND.to_bytes(2, "big") + bytes((type(node) is Or,)) + inner
    assert not isinstance(node, Const | And | Or)
    return predicate_key(node, ranks)


def all_of(terms: Iterable[Node], ranks: tuple[int, ...]) -> Node:
    return _compound(And, TRUE, FALSE, terms, ranks)


def any_of(terms: Iterable[Node], ranks: tuple[int, ...]) -> Node:
    return _compound(Or, FALSE, TRUE, terms, ranks)


C = TypeVar("C", And, Or)


def _compound(
    kind: type[C], neutral: Const, absorbing: Const, terms: Iterable[Node], ranks: tuple[int, ...]
) -> Node:
    kept: dict[Node, None] = {}
    # x = 1 OR x IN (2, 3) is x IN (1, 2, 3). AND does the same with NOT IN.
    values: dict[int, list[Value]] = {}
    for term in _flat(kind, terms):
        if term == absorbing:
            return absorbing
        if type(term) is In and term.negated is (kind is And):
            values.setdefault(term.attribute, []).extend(term.values)
        elif term != neutral:
            kept[term] = None
    for attribute, several in values.items():
        kept[membership(attribute, several, kind is And)] = None
    if not kept:
        return neutral
    if len(kept) == 1:
        return next(iter(kept))
    return kind(tuple(sorted(kept, key=lambda term: node_key(term, ranks))))


def _flat(kind: type[And] | type[Or], terms: Iterable[Node]) -> Iterator[Node]:
    for term in terms:
        if type(term) is kind:
            yield from term.terms
        else:
            yield term


def membership(attribute: int, values: Iterable[Value], negated: bool) -> In:
    several = tuple(set(values))
    return In(
        attribute,
        several if len(several) == 1 else tuple(sorted(several, key=order.encode)),
        negated,
    )


def count(node: Node) -> int:
    """The number of conjunctions that the node multiplies out to, without multiplying it out."""
    if type(node) is And:
        total = 1
        for term in node.terms:
            total *= count(term)
        return total
    if type(node) is Or:
        return sum(map(count, node.terms))
    if type(node) is In and not node.negated:
        return len(node.values)
    return int(node != FALSE)


def depth(node: Node) -> int:
    """The depth of the parentheses in the canonical text."""
    if type(node) is And or type(node) is Or:
        return max(depth(term) + (type(term) in (And, Or)) for term in node.terms)
    return 0


def conjunctions(node: Node, split: bool = True) -> list[tuple[Predicate, ...]]:
    """The node multiplied out: an event passes if it passes every predicate of one conjunction.

    `split` multiplies out IN as well.
    """
    if type(node) is And:
        parts = [conjunctions(term, split) for term in node.terms]
        return [tuple(p for part in choice for p in part) for choice in product(*parts)]
    if type(node) is Or:
        return [c for term in node.terms for c in conjunctions(term, split)]
    if type(node) is In and not node.negated and split:
        return [(In(node.attribute, (value,), False),) for value in node.values]
    if type(node) is Const:
        return [()] if node.value else []
    assert not isinstance(node, Const | And | Or)
    return [(node,)]


def attributes(node: Node) -> set[int]:
    if isinstance(node, And | Or):
        return {a for term in node.terms for a in attributes(term)}
    if isinstance(node, Pair):
        return {node.left, node.right}
    return set() if isinstance(node, Const) else {node.attribute}


def _has_patterns(node: Node) -> bool:
    if isinstance(node, And | Or):
        return any(_has_patterns(term) for term in node.terms)
    return isinstance(node, Rlike)


def without_patterns(node: Node, ranks: tuple[int, ...]) -> Node:
    """The node without RLIKE.

    An RLIKE passes no NULL, even when it is negated. This part of it stays.
    """
    if isinstance(node, Rlike):
        return Null(node.attribute, True)
    if not _has_patterns(node):
        return node
    if isinstance(node, And | Or):
        return (all_of if isinstance(node, And) else any_of)(
            (without_patterns(term, ranks) for term in node.terms), ranks
        )
    return node
