"""From a tree to a Python function over rows.

The source of the function depends on the shape of the tree only. Literals and matchers are
arguments of a factory around it. So filters of one shape share compiled code, no text of a peer
becomes code, and a call costs no more than its comparisons.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from gossamer.filters import loops, pattern
from gossamer.filters.schema import FLOATING, INTEGER_BITS, Schema, Type
from gossamer.filters.tree import And, Compare, Const, In, Like, Node, Null, Or, Pair

MatchRow = Callable[[tuple[Any, ...]], bool]
Passing = loops.Passing
_LEAST, _MOST = -(2**63), 2**63 - 1


def compile_row(node: Node, schema: Schema) -> MatchRow:
    """The function that says whether a row passes. A row shorter than the schema ends in NULLs."""
    constants: list[Any] = []
    source = _source(node, schema, constants)
    return _factory(source, len(constants), len(schema.names))(*constants)


def compile_rows(node: Node, schema: Schema, matches_row: MatchRow) -> Passing:
    """The function that gives the places of the rows that pass.

    A row costs about half as much as with a call for each row.
    """
    constants: list[Any] = []
    source = _source(node, schema, constants)
    slow = _rows_factory(source, len(constants))(matches_row, *constants)
    terms = node.terms if isinstance(node, And) else (node,)
    tests = [_test(term, schema) for term in terms[: loops.TESTS_MAX + 1]]
    if len(tests) > loops.TESTS_MAX or None in tests:
        return slow
    return loops.passing(tuple(tests), slow)  # type: ignore[arg-type]


def _test(node: Node, schema: Schema) -> loops.Test | None:
    """The node as a test for the compiled loops, or None if they cannot make it."""
    if isinstance(node, Null):
        return node.attribute, loops.NOT_NULL if node.negated else loops.IS_NULL, 0, 0, frozenset()
    if not isinstance(node, Compare | In):
        return None
    kind = schema.types[node.attribute]
    if isinstance(node, In) and (kind is Type.STRING or kind in INTEGER_BITS):
        return (
            node.attribute,
            loops.NOT_AMONG if node.negated else loops.AMONG,
            0,
            0,
            frozenset(node.values),
        )
    if (
        isinstance(node, Compare)
        and kind in INTEGER_BITS
        and type(node.value) is int
        and _LEAST < node.value < _MOST
    ):
        least = {">": node.value + 1, ">=": node.value}.get(node.op, _LEAST)
        most = {"<": node.value - 1, "<=": node.value}.get(node.op, _MOST)
        return node.attribute, loops.RANGE, least, most, frozenset()
    return None


@lru_cache(maxsize=4096)
def _rows_factory(source: str, constants: int) -> Callable[..., Passing]:
    names = "".join(f", c{i}" for i in range(constants))
    lines = [
        f"def factory(matches_row{names}):",
        " def passing(rows):",
        "  try:",
        f"   return [place for place, r in enumerate(rows) if {source}]",
        "  except IndexError:  # some row is short",
        "   return [place for place, r in enumerate(rows) if matches_row(r)]",
        " return passing",
    ]
    return _define(lines, {})


@lru_cache(maxsize=4096)
def _factory(source: str, constants: int, width: int) -> Callable[..., MatchRow]:
    names = ", ".join(f"c{i}" for i in range(constants))
    lines = [
        f"def factory({names}):",
        " def matches_row(r):",
        "  try:",
        f"   return {source}",
        "  except IndexError:",
        "   if len(r) >= width: raise",
        "   return matches_row((*r, *[None] * (width - len(r))))",
        " return matches_row",
    ]
    return _define(lines, {"width": width})


def _define(lines: list[str], scope: dict[str, Any]) -> Callable[..., Any]:
    exec(compile("\n".join(lines), "<gossamer filter>", "exec"), scope)
    made: Callable[..., Any] = scope["factory"]
    return made


def _source(node: Node, schema: Schema, constants: list[Any]) -> str:
    """An expression over the row r.

    It needs no third truth value: the tree has no NOT, so NULL may count as False.
    """
    if isinstance(node, Const):
        return str(node.value)
    if isinstance(node, Or):
        return " or ".join(f"({_source(term, schema, constants)})" for term in node.terms)
    if isinstance(node, And):
        return " and ".join(f"({source})" for source in _both(node, schema, constants))
    if isinstance(node, Pair):
        return _pair(node, schema)
    if isinstance(node, Null):
        return f"r[{node.attribute}] is {'not ' * node.negated}None"

    def constant(value: Any) -> str:
        constants.append(value)
        return f"c{len(constants) - 1}"

    present = f"(v := r[{node.attribute}]) is not None and "
    if isinstance(node, In):
        single = len(node.values) == 1
        name = constant(node.values[0] if single else frozenset(node.values))
        if node.negated:
            return f"{present}v {'!=' if single else 'not in'} {name}"
        # None is equal to no literal.
        return f"r[{node.attribute}] {'==' if single else 'in'} {name}"
    if isinstance(node, Compare):
        name = constant(node.value)
        if schema.types[node.attribute] in FLOATING and node.op[0] == ">":
            # NaN is above every number.
            return f"{present}not v {'<=' if node.op == '>' else '<'} {name}"
        return f"{present}v {node.op} {name}"
    test, value = (
        pattern.like_source(node.pattern)
        if isinstance(node, Like)
        else ("{c}(v)", pattern.rlike(node.pattern))
    )
    return f"{present}{'not ' * node.negated}({test.format(c=constant(value))})"


def _both(node: And, schema: Schema, constants: list[Any]) -> Iterator[str]:
    """The sources of the terms. The two ends of a range become one comparison."""
    # By attribute: "<" for the upper end, ">" for the lower end.
    ends: dict[int, dict[str, Compare]] = {}
    for term in node.terms:
        if isinstance(term, Compare) and schema.types[term.attribute] not in FLOATING:
            ends.setdefault(term.attribute, {}).setdefault(term.op[0], term)
    for term in node.terms:
        range = ends.get(term.attribute, {}) if isinstance(term, Compare) else {}
        if len(range) < 2 or term not in range.values():
            yield _source(term, schema, constants)
        elif term is range[">"]:
            low, high = range[">"], range["<"]
            constants += (low.value, high.value)
            upper, lower = f"c{len(constants) - 1}", f"c{len(constants) - 2}"
            value = f"(v := r[{low.attribute}]) is not None"
            yield f"{value} and {upper} {_TURNED[high.op]} v {low.op} {lower}"


_TURNED = {"<": ">", "<=": ">="}


def _pair(node: Pair, schema: Schema) -> str:
    kinds = schema.types[node.left], schema.types[node.right]
    floating = not FLOATING.isdisjoint(kinds)
    # Spark compares a BIGINT with a FLOAT or DOUBLE as DOUBLE; Python would compare them exactly.
    a, b = (
        f"float({v})" if floating and kind is Type.BIGINT else v
        for v, kind in zip("ab", kinds, strict=True)
    )
    present = f"(a := r[{node.left}]) is not None and (b := r[{node.right}]) is not None and "
    if not floating:
        return f"{present}{a} {({'=': '==', '<>': '!='}).get(node.op, node.op)} {b}"
    # NaN equals NaN and is above every number.
    tests = {
        "=": f"({a} == {b} or a != a and b != b)",
        "<>": f"{a} != {b} and (a == a or b == b)",
        "<": f"({a} < {b} or b != b and a == a)",
        "<=": f"({a} <= {b} or b != b)",
    }
    return present + tests[node.op]
