"""A batch of events by columns, from rows or from Arrow, as the index reads it.

The index asks a column two questions. For equalities it asks for the number that a dictionary
has for each value. For ranges it asks for the code of each value on the line of its type. Both
answers are arrays. The two classes here differ only in where the values come from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gossamer.filters import order
from gossamer.filters.box import LINES
from gossamer.filters.model import EventError
from gossamer.filters.runs import Ints, Mask, objects
from gossamer.filters.schema import FLOATING, Schema, Type

Numbers = Mapping[Any, int]
# The codes, and a mask of the places that have a value, or None if all have one.
Coded = tuple[NDArray[Any], Mask | None]

# DATE counts its days from the year 1, and Arrow counts them from 1970.
_DAYS_TO_1970 = 719_163


class EventColumns(Protocol):
    """Events by columns."""

    size: int

    def numbers(self, attribute: int, known: Numbers) -> Ints:
        """The number of each event's value, and -1 for an unknown value. NULL counts as a value
        here.
        """

    def codes(self, attribute: int) -> Coded:
        """The code of each event's value."""

    def rows(self, places: Iterable[int]) -> Mapping[int, tuple[Any, ...]]:
        """The rows of some events."""


def float_codes(values: NDArray[Any]) -> Ints:
    """The codes of an array of float32 or float64, as in LINES."""
    single = values.dtype == np.float32
    kind = Type.FLOAT if single else Type.DOUBLE
    bits = values.view(np.int32 if single else np.int64).astype(np.int64)
    codes = np.where(bits >= 0, bits, -(bits & ((1 << (31 if single else 63)) - 1)))
    nan = np.isnan(values)
    return np.where(nan, LINES[kind].top - 1, codes) if nan.any() else codes


def whole_codes(column: Any, kind: Type) -> NDArray[Any]:
    """The codes of a column of integers, BOOLEAN, DATE or TIMESTAMP.

    At a place without a value the code means nothing.
    """
    if kind is Type.DATE or kind is Type.TIMESTAMP:
        column = column.view("int32" if kind is Type.DATE else "int64")
    if column.null_count:
        column = column.fill_null(False if kind is Type.BOOLEAN else 0)
    codes: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return codes.astype(np.int64) + _DAYS_TO_1970 if kind is Type.DATE else codes


def check_years(column: Any, kind: Type, name: str) -> None:
    """Raises an EventError for a day or time that neither Python nor Spark's text can hold."""
    if kind not in (Type.DATE, Type.TIMESTAMP) or column.null_count == len(column):
        return
    codes = whole_codes(column, kind)
    codes = codes[column.is_valid().to_numpy(zero_copy_only=False)] if column.null_count else codes
    if codes.min() < LINES[kind].bottom or codes.max() >= LINES[kind].top:
        raise EventError(f"attribute {name!r}: a {kind} lies in the years 1 to 9999")


class RowEvents:
    def __init__(self, rows: Sequence[tuple[Any, ...]], schema: Schema) -> None:
        width = len(schema.names)
        if min(map(len, rows), default=width) < width:
            rows = [(*row, *[None] * (width - len(row))) for row in rows]
        self.size = len(rows)
        self._rows = rows
        self._types = schema.types

    def numbers(self, attribute: int, known: Numbers) -> Ints:
        get = known.get
        return np.array([get(row[attribute], -1) for row in self._rows], np.int64)

    def codes(self, attribute: int) -> Coded:
        values = [row[attribute] for row in self._rows]
        if None not in values:
            return _codes(values, self._types[attribute]), None
        present = np.array([value is not None for value in values])
        filler = next((value for value in values if value is not None), None)
        if filler is None:
            return np.zeros(len(values), np.int64), present
        return _codes(
            [filler if value is None else value for value in values], self._types[attribute]
        ), present

    def rows(self, places: Iterable[int]) -> Mapping[int, tuple[Any, ...]]:
        return {place: self._rows[place] for place in places}


def _codes(values: list[Any], kind: Type) -> NDArray[Any]:
    if kind in FLOATING:
        return float_codes(np.array(values, np.float32 if kind is Type.FLOAT else np.float64))
    if kind in (Type.STRING, Type.BINARY):
        return _texts(values)
    if kind in (Type.DATE, Type.TIMESTAMP):
        code = LINES[kind].code
        values = [code(value) for value in values]
    return np.array(values, np.int64)


def _texts(values: Iterable[str | bytes]) -> NDArray[Any]:
    return objects([order.encode(value) for value in values])


class ArrowEvents:
    """A pyarrow RecordBatch or Table with the attributes of the schema.

    An attribute without a column is NULL.
    """

    def __init__(self, batch: Any, schema: Schema) -> None:
        import pyarrow as pa

        self.size = batch.num_rows
        self._pa = pa
        self._schema = schema
        self._batch = batch
        self._made: dict[int, Any] = {}
        known = {attribute.path[0] for attribute in schema.attributes}
        for name in batch.schema.names:
            if name not in known:
                raise EventError(
                    f"unknown attribute {name!r}; the topic has {', '.join(sorted(known))}"
                )
        for place, attribute in enumerate(schema.attributes):
            if attribute.required and self.column(place).null_count:
                raise EventError(
                    f"attribute {attribute.name!r} is NOT NULL, and an event has no value for it"
                )

    def column(self, attribute: int) -> Any:
        """The column in one piece, in the Arrow type of its attribute."""
        if attribute not in self._made:
            self._made[attribute] = self._make(attribute)
        return self._made[attribute]

    def _make(self, attribute: int) -> Any:
        import pyarrow.compute as pc

        pa = self._pa
        path, kind = self._schema.attributes[attribute].path, self._schema.types[attribute]
        wanted = arrow_type(kind)
        if path[0] not in self._batch.schema.names:
            return pa.nulls(self.size, wanted)
        column = self._batch.column(path[0])
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        for name in path[1:]:
            if not pa.types.is_struct(column.type) or column.type.get_field_index(name) < 0:
                return pa.nulls(self.size, wanted)
            column = pc.struct_field(column, name)
        if pa.types.is_dictionary(column.type):
            if column.type.value_type == wanted:
                return column
            column = column.dictionary_decode()
        if column.type != wanted and not _alike(pa, column.type, wanted):
            raise EventError(f"attribute {'.'.join(path)!r} is {kind}, not {column.type}")
        try:
            column = column if column.type == wanted else column.cast(wanted)
        except pa.ArrowInvalid as error:
            raise EventError(f"attribute {'.'.join(path)!r} is {kind}: {error}") from None
        check_years(column, kind, ".".join(path))
        return column

    def numbers(self, attribute: int, known: Numbers) -> Ints:
        column = self.column(attribute)
        if not self._pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        get = known.get
        table = np.array(
            [*(get(value, -1) for value in column.dictionary.to_pylist()), get(None, -1)], np.int64
        )
        places = column.indices.fill_null(len(table) - 1) if column.null_count else column.indices
        numbers: Ints = table[places.to_numpy(zero_copy_only=False)]
        return numbers

    def codes(self, attribute: int) -> Coded:
        column, kind = self.column(attribute), self._schema.types[attribute]
        if self._pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if kind in (Type.STRING, Type.BINARY):
            places = column.dictionary_encode()
            empty = "" if kind is Type.STRING else b""
            table = _texts(
                [
                    *(empty if value is None else value for value in places.dictionary.to_pylist()),
                    empty,
                ]
            )
            present = (
                column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else None
            )
            indices = (
                places.indices.fill_null(len(table) - 1) if column.null_count else places.indices
            )
            return table[indices.to_numpy(zero_copy_only=False)], present
        return self._whole(column, kind)

    def _whole(self, column: Any, kind: Type) -> Coded:
        present = column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else None
        if kind in FLOATING:
            filled = column.fill_null(0.0) if column.null_count else column
            return float_codes(filled.to_numpy(zero_copy_only=False)), present
        codes = whole_codes(column, kind)
        return codes if codes.dtype == np.int64 else codes.astype(np.int64), present

    def rows(self, places: Iterable[int]) -> Mapping[int, tuple[Any, ...]]:
        wanted = list(places)
        taken = self._pa.array(wanted, self._pa.int64())
        columns = [
            self.column(attribute).take(taken).to_pylist()
            for attribute in range(len(self._schema.names))
        ]
        nested = [attribute.path for attribute in self._schema.attributes]
        row = self._schema.row
        return {
            place: row(_nested(zip(nested, values, strict=True)))
            for place, values in zip(wanted, zip(*columns, strict=True), strict=True)
        }


def _nested(leaves: Iterable[tuple[tuple[str, ...], Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path, value in leaves:
        inner = found
        for name in path[:-1]:
            inner = inner.setdefault(name, {})
        inner[path[-1]] = value
    return found


def arrow_type(kind: Type) -> Any:
    """The Arrow type for an attribute's type."""
    import pyarrow as pa

    if kind is Type.TIMESTAMP:
        return pa.timestamp("us", "UTC")
    names = {
        "STRING": "string",
        "BINARY": "binary",
        "BOOLEAN": "bool_",
        "TINYINT": "int8",
        "SMALLINT": "int16",
    }
    names |= {
        "INT": "int32",
        "BIGINT": "int64",
        "FLOAT": "float32",
        "DOUBLE": "float64",
        "DATE": "date32",
    }
    return getattr(pa, names[kind])()


def _alike(pa: Any, given: Any, wanted: Any) -> bool:
    """Whether a cast changes only the width or the unit.

    Columns refuse the same types that rows refuse.
    """
    types = pa.types
    if types.is_null(given):
        return True
    if types.is_floating(wanted):
        return bool(types.is_floating(given) or types.is_integer(given))
    tests = (types.is_integer, types.is_boolean, types.is_timestamp, types.is_date)
    texts = ((types.is_string, types.is_large_string), (types.is_binary, types.is_large_binary))
    return any(test(given) and test(wanted) for test in tests) or any(
        any(test(given) for test in pair) and any(test(wanted) for test in pair) for pair in texts
    )
