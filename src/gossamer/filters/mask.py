"""A filter over columns: which rows of a record batch pass.

A few array operations take the place of a call for each row. The verdicts are those of
`Filter.matches_row`. Patterns and comparisons of two attributes are evaluated row by row. The
module needs NumPy and pyarrow, and is imported only where there are columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.filters.box import LINES
from gossamer.filters.columns import arrow_type, float_codes, whole_codes
from gossamer.filters.filter import Filter
from gossamer.filters.packed import Packed
from gossamer.filters.runs import Mask
from gossamer.filters.schema import FLOATING, Schema, Type
from gossamer.filters.tree import And, Compare, Const, In, Node, Null, Or

# A function of a record batch of `Packed.arrow_schema`. It gives None if all rows pass.
Masker = Callable[[Any], "Mask | None"]
_OPS = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}
_TEXT_OPS = {"<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"}


def compile_mask(filter: Filter, packed: Packed) -> Masker:
    """The function that says which rows of a record batch pass."""
    node, schema = filter.tree, filter.schema
    if isinstance(node, Const) and node.value:
        return lambda record: None
    inner = _mask(node, schema)
    if inner is None:
        matches, rows = filter.matches_row, packed.rows

        def one_by_one(record: Any) -> Mask | None:
            found: Mask = np.fromiter((matches(row) for row in rows(record)), bool, record.num_rows)
            return None if found.all() else found

        return one_by_one
    asked = inner

    def by_columns(record: Any) -> Mask | None:
        found = asked(record)
        return None if found.all() else found

    return by_columns


def _mask(node: Node, schema: Schema) -> Callable[[Any], Mask] | None:
    if isinstance(node, Const):
        value = node.value
        return lambda record: np.full(record.num_rows, value)
    if isinstance(node, And | Or):
        several = [_mask(term, schema) for term in node.terms]
        known = [one for one in several if one is not None]
        return _joined(known, is_and=isinstance(node, And)) if len(known) == len(several) else None
    if isinstance(node, Null):
        attribute, negated = node.attribute, node.negated
        return lambda record: _present(record.column(attribute)) == negated
    if isinstance(node, Compare):
        return _compare(node, schema.types[node.attribute])
    if isinstance(node, In):
        return _among(node, schema.types[node.attribute])
    return None


def _joined(several: list[Callable[[Any], Mask]], *, is_and: bool) -> Callable[[Any], Mask]:
    first, *others = several

    def joined(record: Any) -> Mask:
        found = first(record)
        for one in others:
            found = found & one(record) if is_and else found | one(record)
        return found

    return joined


def _present(column: Any) -> Mask:
    present: Mask = column.is_valid().to_numpy(zero_copy_only=False)
    return present


def _codes(column: Any, kind: Type) -> NDArray[Any]:
    """The code of each value on the line of its type.

    At a place without a value the code means nothing.
    """
    if kind in FLOATING:
        filled = column.fill_null(0.0) if column.null_count else column
        return float_codes(filled.to_numpy(zero_copy_only=False))
    return whole_codes(column, kind)


def _compare(node: Compare, kind: Type) -> Callable[[Any], Mask]:
    attribute, value = node.attribute, node.value
    if kind in (Type.STRING, Type.BINARY):
        import pyarrow as pa
        import pyarrow.compute as pc

        function, literal = getattr(pc, _TEXT_OPS[node.op]), pa.scalar(value, arrow_type(kind))

        def by_text(record: Any) -> Mask:
            found: Mask = (
                function(record.column(attribute), literal)
                .fill_null(False)
                .to_numpy(zero_copy_only=False)
            )
            return found

        return by_text
    operation, code = _OPS[node.op], LINES[kind].code(value)

    def by_code(record: Any) -> Mask:
        column = record.column(attribute)
        found: Mask = operation(_codes(column, kind), code)
        return found & _present(column) if column.null_count else found

    return by_code


def _among(node: In, kind: Type) -> Callable[[Any], Mask] | None:
    attribute, negated = node.attribute, node.negated
    if kind in (Type.STRING, Type.BINARY):
        import pyarrow as pa
        import pyarrow.compute as pc

        values = pa.array(list(node.values), arrow_type(kind))

        def test(column: Any) -> Mask:
            found: Mask = pc.is_in(column, value_set=values).to_numpy(zero_copy_only=False)
            return found

    else:
        if kind in FLOATING and any(value != value for value in node.values):
            return None
        codes = np.array([LINES[kind].code(value) for value in node.values], np.int64)

        def test(column: Any) -> Mask:
            given = _codes(column, kind)
            found: Mask = given == codes[0] if len(codes) == 1 else np.isin(given, codes)
            return found

    def among(record: Any) -> Mask:
        column = record.column(attribute)
        found = ~test(column) if negated else test(column)
        return found & _present(column) if column.null_count else found

    return among
