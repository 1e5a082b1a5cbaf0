"""The events of a batch as bytes: rows (msgpack), or columns (one Arrow IPC record batch).

Relays carry the bytes as they are. The first byte tells the two forms apart, because no msgpack
array begins with Arrow's continuation mark. Columns have the topic's attributes in declared order:
one flat column for each, in the Arrow type for the attribute's type.

Columns from a peer are checked before anything else reads them. The checks cover the number of
rows, every buffer and text, NOT NULL, and that days and times lie in the years 1 to 9999.
Compression is refused, because a small message must not become a large one.

pyarrow is imported when columns are first used. A node that publishes and takes rows does not
need it.
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
# The most rows of one record batch. Nodes allow fewer.
ROWS_MAX = 65_536
# Columns of an older version of the schema lack values, and each costs about 50 bytes here. So a
# batch lacks at most this number of values, or this number for each of its bytes.
MISSING_MAX = 1 << 20
MISSING_A_BYTE = 4
# The most rows that are padded with NULLs: a small message must not become a large one.
FITTED_MAX = 4096
_raw_rows = msgspec.msgpack.Decoder(
    Annotated[list[list[msgspec.Raw]], msgspec.Meta(max_length=FITTED_MAX)]
)


Bytes = bytes | memoryview
"""The events of a batch.

Rows are bytes. Columns may lie in memory that is used again when nothing refers to it any more.
"""


class Packed:
    """Reads and writes the batches of one topic. ``decode`` gives rows for both forms."""

    def __init__(self, schema: Schema) -> None:
        row: Any = schema.row_type
        self.schema = schema
        self._decoder = msgspec.msgpack.Decoder(list[row])
        self._arrow: Any = None
        # The batch that this node sealed last. A node need not check its own batch.
        self._own: tuple[Bytes | None, Any] = (None, None)
        timed = (Type.DATE, Type.TIMESTAMP)
        self._checked = [
            (at, one)
            for at, one in enumerate(schema.attributes)
            if one.required or one.type in timed
        ]
        # The compiled reader leaves days and times to msgspec.
        has_times = any(kind in timed for kind in schema.types)
        self._shape = None if has_times else schema.shape

    def decode(self, data: Bytes) -> list[tuple[Any, ...]]:
        """The rows of a batch.

        A msgspec.DecodeError, or an error of msgpack itself, says that they do not fit the
        schema.
        """
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
        """Rows of an older or newer version of the schema, as rows of this version.

        None means that they have the length of this version already.
        """
        width = len(self.schema.attributes)
        raw = _raw_rows.decode(data)
        if all(len(row) == width for row in raw):
            return None
        return _encoder.encode([[*row[:width], *[None] * (width - len(row))] for row in raw])

    def columns(self, data: Bytes, count: int | None = None) -> Any:
        """The record batch in these bytes, completely checked.

        A msgspec.ValidationError says that it does not fit the schema.
        """
        if data is self._own[0]:
            return self._own[1]
        try:
            pa = _pyarrow()
        # The error is the same as for any batch that cannot be read here.
        except EventError as error:
            raise msgspec.ValidationError(str(error)) from None
        try:
            message = pa.ipc.read_message(pa.py_buffer(data))
            rows, fields, is_compressed = _shape(message.metadata.to_pybytes())
            if is_compressed or rows > ROWS_MAX or (count is not None and rows != count):
                if is_compressed:
                    raise msgspec.ValidationError("compressed columns")
                raise msgspec.ValidationError(f"{rows} rows in a batch of {count}")
            wanted = self.arrow_schema
            record = pa.ipc.read_record_batch(message, self.schema_of(min(fields, len(wanted))))
            if record.num_rows != rows:
                raise msgspec.ValidationError(
                    "columns whose length is not the one that they announce"
                )
            self._validate(record)
            missing = rows * (len(wanted) - record.num_columns)
            if missing > max(MISSING_MAX, MISSING_A_BYTE * len(data)):
                raise msgspec.ValidationError(
                    f"{len(data)} bytes of columns lack {missing} values of the schema"
                )
            # An older version of the schema ended before these columns.
            for name in wanted.names[fields:]:
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
        """Checks every buffer and text of columns that a peer sent.

        It does what ``validate(full=True)`` does, but that looks at each text by itself.
        """
        pa = _pyarrow()
        # This checks that each buffer is as large as it must be.
        record.validate()
        for column in record.columns:
            is_text = pa.types.is_string(column.type)
            if is_text or pa.types.is_binary(column.type):
                present, offsets, data = column.buffers()
                if present is None and offsets is not None and not column.offset:
                    verdict = loops.are_texts(
                        offsets, data if data is not None else b"", len(column), is_text
                    )
                    if verdict is False:
                        raise EventError("a column whose texts are not well formed")
                    if verdict:
                        continue
                column.validate(full=True)
            elif column.buffers()[0] is not None:
                column.validate(full=True)

    def rows(self, record: Any) -> list[tuple[Any, ...]]:
        lists = [column.to_pylist() for column in record.columns]
        if Type.TIMESTAMP in self.schema.types:
            from datetime import UTC

            for place, kind in enumerate(self.schema.types[: len(lists)]):
                if kind is Type.TIMESTAMP:
                    lists[place] = [value and value.astimezone(UTC) for value in lists[place]]
        return list(zip(*lists, strict=True))

    def record(self, batch: Any) -> Any:
        """A user's RecordBatch, with structs or flat columns, as one of `arrow_schema`.

        An EventError says that it does not fit.
        """
        pa = _pyarrow()
        if not isinstance(batch, pa.RecordBatch):
            raise EventError(
                f"a batch is a pyarrow.RecordBatch or a list of events, not {type(batch).__name__}"
            )
        wanted = self.arrow_schema
        if not batch.schema.equals(wanted):
            from gossamer.filters.columns import ArrowEvents

            read = ArrowEvents(batch, self.schema)
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
        """Raises an EventError, with the remedy, if columns cannot be made here."""
        _pyarrow()

    def places(self, places: list[int]) -> Any:
        """Row numbers in the form that ``RecordBatch.take`` wants."""
        return _pyarrow().array(places, "int64")

    def pack(self, record: Any) -> bytes:
        data: bytes = record.serialize().to_pybytes()
        return data

    def schema_of(self, width: int) -> Any:
        """The first `width` columns of `arrow_schema`: the topic's schema before it grew."""
        wanted = self.arrow_schema
        return (
            wanted
            if width == len(wanted)
            else _pyarrow().schema([wanted.field(place) for place in range(width)])
        )

    def own(self, data: Bytes, width: int) -> Bytes:
        """Remembers a batch of `width` attributes that this node has made itself.

        It need not be checked when this node reads it.
        """
        if width == len(self.arrow_schema):
            pa = _pyarrow()
            self._own = (data, pa.ipc.read_record_batch(pa.py_buffer(data), self.arrow_schema))
        return data

    def disown(self) -> None:
        """Forgets the batch that was sealed last, because it is on its way.

        A later reader may check it again. Its memory is not kept for that.
        """
        self._own = (None, None)

    def from_values(self, values: Sequence[dict[str, Any]]) -> Any:
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
        """One flat column for each attribute, under its (dotted) name."""
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
    """Whether the events of a batch are columns."""
    return data[:1] == COLUMNS_MARK


def private(data: Bytes) -> Bytes:
    """Copies a batch out of lent memory before anyone keeps it.

    Lent memory (net/memory.py) is for batches that are on their way. It is reused, and a forked
    child is not protected against that.
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
    """The rows, the fields, and whether it is compressed, from the metadata of a record batch.

    pyarrow has verified the metadata, which is a flatbuffer. A msgspec.ValidationError says that
    it describes something else.
    """

    def field(table: int, number: int) -> int:
        """The place of a table's field, or 0 if the table does not have it."""
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
    """Events that are made when they are first needed."""

    __slots__ = ()

    @abstractmethod
    def events(self, count: int | None = None) -> list[Event]:
        """The first `count` events, or all."""

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events())

    @overload
    def __getitem__(self, place: int) -> Event: ...
    @overload
    def __getitem__(self, place: slice) -> list[Event]: ...
    def __getitem__(self, place: int | slice) -> Event | list[Event]:
        return self.events()[place]


class Listed(_Unmade):
    """Events that came as rows.

    They are made on demand, because all events of a batch at once would not fit into a
    processor's cache.
    """

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
        """The events after the first `count`."""
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
    """Events that came as columns: a record batch that also reads as a sequence of Event."""

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
        """The events after the first `count`."""
        rest, record = self.sequences[count:], self.record.slice(count)
        return Columns(self.packed, self.topic, self.publisher, self.incarnation, rest, record)
