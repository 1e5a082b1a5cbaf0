"""A batch's events as bytes: rows (msgpack), or columns (one Arrow IPC record batch, its schema being the topic's).

Relays carry the bytes as they are; the first byte tells the two forms apart, because no msgpack array begins with Arrow's
continuation mark. Columns have the topic's attributes in declared order, one flat column for each, in the type that belongs to it.
What comes from a peer is checked before anybody looks at it: the number of rows, no compression (a small message must not
become a large one), every buffer and text, NOT NULL, and that days and times are of the years 1 to 9999.

pyarrow is imported when columns are first used: nodes that publish and take rows need none.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import cache
from struct import error as StructError  # noqa: N812
from struct import unpack_from
from typing import Annotated, Any, overload

import msgspec

from gossamer.filters import loops
from gossamer.filters.model import Event, EventError
from gossamer.filters.schema import Schema, Type

COLUMNS_MARK = b"\xff"
NEEDED = "columns need pyarrow and NumPy; install them with: pip install 'gossamer[fast]'"
_encoder = msgspec.msgpack.Encoder()
ROWS_MAX = 65_536  # of one record batch; nodes allow fewer
FITTED_MAX = 4096  # rows that are made longer: a small message must not become a large one
_raw_rows = msgspec.msgpack.Decoder(
    Annotated[list[list[msgspec.Raw]], msgspec.Meta(max_length=FITTED_MAX)]
)


Bytes = bytes | memoryview
"""A batch's events: rows are bytes, columns may lie in memory that is used again when nobody looks at it any more."""


class Packed:
    """Reads and writes the batches of one topic. ``decode`` gives rows whichever form they came in."""

    def __init__(self, schema: Schema) -> None:
        row: Any = schema.row_type
        self.schema = schema
        self._decoder = msgspec.msgpack.Decoder(list[row])
        self._arrow: Any = None
        self._own: tuple[Bytes | None, Any] = (
            None,
            None,
        )  # what was sealed last: this node's own need not be checked
        timed = (Type.DATE, Type.TIMESTAMP)
        self._checked = [
            (at, one)
            for at, one in enumerate(schema.attributes)
            if one.required or one.type in timed
        ]
        self._shape = (
            None if any(kind in timed for kind in schema.types) else schema.shape
        )  # times are msgspec's

    def decode(self, data: Bytes) -> list[tuple[Any, ...]]:
        """The rows. A msgspec.DecodeError (or what msgpack itself raises) if they are not of the schema."""
        if is_columns(data):
            return self.rows(self.columns(data))
        found = self._shape.decode(data) if self._shape is not None else None
        if found is not None:
            return found
        try:
            rows: list[tuple[Any, ...]] = self._decoder.decode(data)
        except msgspec.ValidationError:
            fitted = self._fitted(data)
            if fitted is None:
                raise
            rows = self._decoder.decode(fitted)
        return rows

    def _fitted(self, data: Bytes) -> bytes | None:
        """Rows of a schema that this one extends, or that extends this one, as rows of this one; None: they are as long as ours."""
        width = len(self.schema.attributes)
        raw = _raw_rows.decode(data)
        if all(len(row) == width for row in raw):
            return None
        return _encoder.encode([[*row[:width], *[None] * (width - len(row))] for row in raw])

    def columns(self, data: Bytes, count: int | None = None) -> Any:
        """The record batch in these bytes, all of it checked. A msgspec.ValidationError if it is not of the schema."""
        if data is self._own[0]:
            return self._own[1]
        try:
            pa = _pyarrow()
        except EventError as error:  # said as of any batch that cannot be read here
            raise msgspec.ValidationError(str(error)) from None
        try:
            message = pa.ipc.read_message(pa.py_buffer(data))
            rows, fields, is_compressed = _shape(message.metadata.to_pybytes())
            if is_compressed or rows > ROWS_MAX or (count is not None and rows != count):
                what = (
                    "compressed columns" if is_compressed else f"{rows} rows in a batch of {count}"
                )
                raise msgspec.ValidationError(what)
            wanted = self.arrow_schema
            record = pa.ipc.read_record_batch(message, self.schema_of(min(fields, len(wanted))))
            if record.num_rows != rows:
                raise msgspec.ValidationError("columns of another length than they say")
            self._validate(record)
            for name in wanted.names[fields:]:  # of an older schema, which ended before
                record = record.append_column(name, pa.nulls(rows, wanted.field(name).type))
            self._check(record)
        except (
            pa.ArrowException,
            OSError,
            EOFError,
            StructError,
            EventError,
            OverflowError,
        ) as error:
            raise msgspec.ValidationError(
                f"no record batch of the schema: {str(error).splitlines()[0]}"
            ) from None
        return record

    @staticmethod
    def _validate(record: Any) -> None:
        """Every buffer and text of columns that a peer sent. As ``validate(full=True)``, which looks at each text by itself."""
        pa = _pyarrow()
        record.validate()  # what is as large as it must be
        for column in record.columns:
            is_text = pa.types.is_string(column.type)
            if is_text or pa.types.is_binary(column.type):
                present, offsets, data = column.buffers()
                if present is None and offsets is not None and not column.offset:
                    verdict = loops.are_texts(
                        offsets, data if data is not None else b"", len(column), is_text
                    )
                    if verdict is False:
                        raise EventError("a column of texts that are none")
                    if verdict:
                        continue
                column.validate(full=True)
            elif column.buffers()[0] is not None:
                column.validate(full=True)

    def rows(self, record: Any) -> list[tuple[Any, ...]]:
        """The rows of a record batch of `arrow_schema`."""
        lists = [column.to_pylist() for column in record.columns]
        if Type.TIMESTAMP in self.schema.types:
            from datetime import UTC

            for place, kind in enumerate(self.schema.types[: len(lists)]):
                if kind is Type.TIMESTAMP:
                    lists[place] = [value and value.astimezone(UTC) for value in lists[place]]
        return list(zip(*lists, strict=True))

    def record(self, batch: Any) -> Any:
        """A user's RecordBatch (structs or flat columns) as one of `arrow_schema`. EventError if it does not fit."""
        pa = _pyarrow()
        if not isinstance(batch, pa.RecordBatch):
            raise EventError(
                f"a batch is a pyarrow.RecordBatch or a list of events, not {type(batch).__name__}"
            )
        wanted = self.arrow_schema
        if not batch.schema.equals(wanted):
            from gossamer.filters.columns import Arrow

            read = Arrow(batch, self.schema)
            columns = [read.column(place) for place in range(len(wanted))]
            columns = [
                one.dictionary_decode() if pa.types.is_dictionary(one.type) else one
                for one in columns
            ]
            batch = pa.RecordBatch.from_arrays(columns, schema=wanted)
        try:
            batch.validate()
        except pa.ArrowInvalid as error:
            raise EventError(f"not a whole record batch: {error}") from None
        self._check(batch)
        return batch

    def require(self) -> None:
        """An EventError, with the remedy, where columns cannot be made."""
        _pyarrow()

    def places(self, places: list[int]) -> Any:
        """Row numbers as ``RecordBatch.take`` wants them."""
        return _pyarrow().array(places, "int64")

    def pack(self, record: Any) -> bytes:
        """A record batch of `arrow_schema` as bytes."""
        data: bytes = record.serialize().to_pybytes()
        return data

    def schema_of(self, width: int) -> Any:
        """`arrow_schema`, or its beginning: what was made before the topic's schema grew."""
        wanted = self.arrow_schema
        return (
            wanted
            if width == len(wanted)
            else _pyarrow().schema([wanted.field(place) for place in range(width)])
        )

    def own(self, data: Bytes, width: int) -> Bytes:
        """A batch that this node has made itself, of so many attributes: it need not be checked when it is read."""
        if width == len(self.arrow_schema):
            pa = _pyarrow()
            self._own = (data, pa.ipc.read_record_batch(pa.py_buffer(data), self.arrow_schema))
        return data

    def disown(self) -> None:
        """It is on its way: whoever reads it again may check it again, and its memory is not kept for that."""
        self._own = (None, None)

    def from_values(self, values: Sequence[dict[str, Any]]) -> Any:
        """Events' values as a record batch."""
        pa = _pyarrow()
        rows = self.schema.rows(values)
        columns = zip(*rows, strict=True) if rows else [()] * len(self.arrow_schema)
        arrays = [
            pa.array(list(column), field.type)
            for column, field in zip(columns, self.arrow_schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow_schema)

    @property
    def arrow_schema(self) -> Any:
        """One flat column for each attribute, by its (dotted) name."""
        if self._arrow is None:
            from gossamer.filters.columns import arrow_type

            pa = _pyarrow()
            self._arrow = pa.schema(
                [
                    (name, arrow_type(kind))
                    for name, kind in zip(self.schema.names, self.schema.types, strict=True)
                ]
            )
        return self._arrow

    def _check(self, record: Any) -> None:
        for place, attribute in self._checked:
            kind = attribute.type
            if attribute.required and record.column(place).null_count:
                raise EventError(
                    f"attribute {attribute.name!r} is NOT NULL, and an event has no value for it"
                )
            if kind is Type.DATE or kind is Type.TIMESTAMP:
                from gossamer.filters.columns import check_years

                check_years(record.column(place), kind, attribute.name)


def is_columns(data: Bytes) -> bool:
    """Whether a batch's events are columns."""
    return data[:1] == COLUMNS_MARK


def private(data: Bytes) -> Bytes:
    """A batch's events for who may keep them: copied, if they lie in memory that is lent to others (net/memory.py). That is for
    what is on its way, and is used again without regard to a forked child.
    """
    if loops.place(data) is None:
        return data
    found = loops.room(len(data))
    found[:] = data
    return found


@cache
def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.ipc
    except ImportError:
        raise EventError(NEEDED) from None
    return pyarrow


def _shape(metadata: bytes) -> tuple[int, int, bool]:
    """(rows, fields, whether compressed) of a record batch's metadata, a flatbuffer that pyarrow has verified; a
    msgspec.ValidationError if it is of something else."""

    def field(table: int, number: int) -> int:
        """Where a table's field is, or 0 if it has none."""
        (back,) = unpack_from("<i", metadata, table)
        (size,) = unpack_from("<H", metadata, table - back)
        if 4 + 2 * number >= size:
            return 0
        (offset,) = unpack_from("<H", metadata, table - back + 4 + 2 * number)
        return table + offset if offset else 0

    (root,) = unpack_from("<I", metadata, 0)
    kind, header = field(root, 1), field(root, 2)
    if not kind or metadata[kind] != 3 or not header:
        raise msgspec.ValidationError("not a record batch")
    batch = header + unpack_from("<I", metadata, header)[0]
    length, nodes = field(batch, 0), field(batch, 1)
    rows = unpack_from("<q", metadata, length)[0] if length else 0
    fields = (
        unpack_from("<I", metadata, nodes + unpack_from("<I", metadata, nodes)[0])[0]
        if nodes
        else 0
    )
    return rows, fields, field(batch, 3) != 0


class _Unmade(Sequence[Event]):
    """Events that are made when somebody wants them."""

    __slots__ = ()

    @abstractmethod
    def events(self, count: int | None = None) -> list[Event]:
        """The first so many, or all."""

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events())

    @overload
    def __getitem__(self, place: int) -> Event: ...
    @overload
    def __getitem__(self, place: slice) -> list[Event]: ...
    def __getitem__(self, place: int | slice) -> Event | list[Event]:
        return self.events()[place]


class Listed(_Unmade):
    """Events that came as rows, made when they are asked for: all those of a batch at once would not fit a processor's cache."""

    __slots__ = ("incarnation", "numbers", "publisher", "rows", "schema", "start", "topic")

    def __init__(
        self,
        schema: Schema,
        topic: str,
        publisher: int,
        incarnation: int,
        numbers: Sequence[int],
        rows: list[tuple[Any, ...]],
        start: int = 0,
    ) -> None:
        """Those from ``start`` on."""
        self.schema, self.topic, self.publisher, self.incarnation = (
            schema,
            topic,
            publisher,
            incarnation,
        )
        self.numbers, self.rows, self.start = numbers, rows, start

    def __len__(self) -> int:
        return len(self.rows) - self.start

    def events(self, count: int | None = None) -> list[Event]:
        some = slice(self.start, None if count is None else self.start + count)
        return self.schema.events(
            self.topic, self.publisher, self.incarnation, self.numbers[some], self.rows[some]
        )

    def after(self, count: int) -> Listed:
        """Those after the first so many."""
        start = self.start + count
        return Listed(
            self.schema,
            self.topic,
            self.publisher,
            self.incarnation,
            self.numbers,
            self.rows,
            start,
        )


class Columns(_Unmade):
    """Events that came by columns: a record batch, and a sequence of Event for whoever wants them one by one."""

    __slots__ = ("incarnation", "packed", "publisher", "record", "sequences", "topic")

    def __init__(
        self,
        packed: Packed,
        topic: str,
        publisher: int,
        incarnation: int,
        sequences: Sequence[int],
        record: Any,
    ) -> None:
        self.packed, self.topic, self.publisher, self.incarnation = (
            packed,
            topic,
            publisher,
            incarnation,
        )
        self.sequences, self.record = sequences, record

    def __len__(self) -> int:
        return len(self.sequences)

    def events(self, count: int | None = None) -> list[Event]:
        some = slice(count)
        rows = self.packed.rows(self.record[some])
        return self.packed.schema.events(
            self.topic, self.publisher, self.incarnation, self.sequences[some], rows
        )

    def after(self, count: int) -> Columns:
        """Those after the first so many."""
        rest, record = self.sequences[count:], self.record.slice(count)
        return Columns(self.packed, self.topic, self.publisher, self.incarnation, rest, record)
