"""Record batches that are published in close succession, on their way into one batch.

Every record batch is copied when it is published, because Arrow may share its memory with the
program that made it. The compiled way (``Gathering`` in _columns.pxi) copies it once, to its place
in the joined batch. Columns with nulls or of BOOLEAN take the longer way (``Copies``), and so do
all columns when nothing is compiled. Both classes have the methods ``add`` and ``seal``. ``add``
returns the number of bytes that it has taken, or 0 if there is no room.
"""

from __future__ import annotations

from typing import Any

from gossamer.filters import loops
from gossamer.filters.model import EventError
from gossamer.filters.packed import Bytes, Packed
from gossamer.filters.schema import Type

# The most record batches that become one. A program that publishes small ones without a pause lets
# other tasks have their turn after this number.
COPIES_MAX = 256
# Bytes of a value in a column. 0: its values differ in length.
_WIDTHS = {
    Type.STRING: 0,
    Type.BINARY: 0,
    Type.TINYINT: 1,
    Type.SMALLINT: 2,
    Type.INT: 4,
    Type.BIGINT: 8,
    Type.FLOAT: 4,
    Type.DOUBLE: 8,
    Type.DATE: 4,
    Type.TIMESTAMP: 8,
}


class Gather:
    def __init__(self, packed: Packed) -> None:
        self._packed = packed
        # By the number of columns: the beginning that ``loops.gathering`` takes, and the widths.
        self._heads: dict[int, tuple[bytes, bytes] | None] = {}

    def begin(self, record: Any, rows: int, most: int) -> tuple[Any, int]:
        """Begins a batch of at most `rows` rows and `most` bytes with this record batch.

        Returns the batch and the number of bytes of the record batch.
        """
        width = record.num_columns
        if width not in self._heads:
            self._heads[width] = self._head(width)
        head = self._heads[width]
        if head is not None:
            made = loops.gathering(*head, rows, most, COPIES_MAX)
            size = made.add(record) if made is not None else 0
            if size:
                return made, size
        copies = Copies(self._packed, rows, most)
        return copies, copies.begin(record)

    def _head(self, width: int) -> tuple[bytes, bytes] | None:
        import pyarrow as pa

        kinds = self._packed.schema.types[:width]
        if any(kind not in _WIDTHS for kind in kinds):
            return None
        schema = self._packed.schema_of(width)
        empty = {Type.STRING: "", Type.BINARY: b""}
        arrays = [
            pa.array([empty.get(kind, 0)], field.type)
            for kind, field in zip(kinds, schema, strict=True)
        ]
        data = pa.RecordBatch.from_arrays(arrays, schema=schema).serialize().to_pybytes()
        widths = bytes(_WIDTHS[kind] for kind in kinds)
        return data[: 8 + int.from_bytes(data[4:8], "little")], widths


class Copies:
    """The longer way: each record batch is copied by itself, and then all are copied together."""

    def __init__(self, packed: Packed, rows: int, size: int) -> None:
        self._schema: Any = None
        self._packed, self._room, self._left = packed, size, rows
        self._copies: list[Any] = []

    def begin(self, record: Any) -> int:
        """Takes the first record batch, whatever its size."""
        self._schema = record.schema
        return self._take(record, record.serialize())

    def add(self, record: Any) -> int:
        copy = (
            record.serialize()
            if record.num_rows <= self._left and len(self._copies) < COPIES_MAX
            else None
        )
        return self._take(record, copy) if copy is not None and copy.size <= self._room else 0

    def _take(self, record: Any, copy: Any) -> int:
        try:
            # The compiled way looks at the offsets of texts itself.
            record.validate(full=True)
        except ValueError as error:
            raise EventError(f"not a whole record batch: {error}") from None
        self._copies.append(copy)
        self._left -= record.num_rows
        self._room -= copy.size
        size: int = copy.size
        return size

    def seal(self) -> Bytes:
        import pyarrow as pa

        if len(self._copies) == 1:
            return memoryview(self._copies[0]).cast("B")
        records = [pa.ipc.read_record_batch(copy, self._schema) for copy in self._copies]
        if hasattr(pa, "concat_batches"):
            return self._packed.pack(pa.concat_batches(records))
        return self._packed.pack(pa.Table.from_batches(records).combine_chunks().to_batches()[0])


def sealed(gathered: Any) -> Bytes:
    """The bytes of the one batch that was gathered."""
    found = gathered.seal()
    return found if isinstance(found, bytes | memoryview) else memoryview(found)


__all__ = ["COPIES_MAX", "Copies", "Gather", "sealed"]
