"""Parquet files read by Spark's Python workers themselves: what is in a file, who reads which part of it, and the reading. Imports
neither Spark nor anything of ours.

A file's *row groups* are what can be read by itself, so they are what is shared out. Strings that a file keeps as a dictionary stay
one: what is done with a string is then done once, and not for each row.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
Path = tuple[str, ...]
SHARE_BYTES = 128 * 2**20
"""Of columns that are read, in one share at most: as much as Spark reads in a task."""


class UnreadableError(OSError):
    """A file that was whole by its end, and is not; says which."""


class Group(NamedTuple):
    rows: int
    size: int
    """Of the columns that are asked for, in bytes, not compressed."""


class Footer(NamedTuple):
    """What the end of a file tells."""

    path: str
    groups: tuple[Group, ...]
    encoded: tuple[str, ...]
    """Columns that have a dictionary in all row groups."""

    @property
    def rows(self) -> int:
        return sum(group.rows for group in self.groups)

    @property
    def size(self) -> int:
        return sum(group.size for group in self.groups)


class Part(NamedTuple):
    path: str
    group: int
    rows: int
    size: int
    encoded: tuple[str, ...]


def footer(path: str, asked: Mapping[Path, str]) -> Footer | None:
    """None: there is no such file, or its columns are others than those that are asked for, or of other types."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            schema, meta = file.schema_arrow, file.metadata
    except (OSError, pa.ArrowException):
        return None  # Spark says what is wrong with it
    if any(_type(schema, column) != kind for column, kind in asked.items()):
        return None
    leaves = {meta.schema.column(at).path: at for at in range(meta.num_columns)}
    places = [leaves[".".join(column)] for column in asked]
    groups, encoded = [], {".".join(column) for column, kind in asked.items() if kind == "string"}
    for number in range(meta.num_row_groups):
        group = meta.row_group(number)
        chunks = [group.column(at) for at in places]
        groups.append(Group(group.num_rows, sum(chunk.total_uncompressed_size for chunk in chunks)))
        encoded &= {chunk.path_in_schema for chunk in chunks if chunk.has_dictionary_page}
    return Footer(path, tuple(groups), tuple(sorted(encoded)))


def _type(schema: pa.Schema, column: Path) -> str | None:
    """None: there is none of this name, or there are more that some would take for it."""
    import pyarrow as pa

    fields = list(schema)
    for depth, name in enumerate(column):
        alike = [field for field in fields if field.name.lower() == name.lower()]
        if len(alike) != 1 or alike[0].name != name:
            return None
        if depth + 1 == len(column):
            return str(alike[0].type)
        if not pa.types.is_struct(alike[0].type):
            return None
        fields = list(alike[0].type)
    return None


def parts(footers: Sequence[Footer]) -> list[Part]:
    """All row groups but empty ones."""
    return [
        Part(footer.path, number, group.rows, group.size, footer.encoded)
        for footer in footers
        for number, group in enumerate(footer.groups)
        if group.rows
    ]


def share(parts: Sequence[Part], least: int) -> list[list[Part]]:
    """Row groups in shares of about as many rows: ``least`` if there are so many row groups, more where shares would be large."""
    count = min(len(parts), max(least, -(-sum(part.size for part in parts) // SHARE_BYTES)))
    shares: list[list[Part]] = []
    rows, before = sum(part.rows for part in parts), 0
    for part in (
        parts
    ):  # in order, so that a share is of few files; the middle of a part decides whose it is
        number = (2 * before + part.rows) * count // (2 * rows)
        while len(shares) <= number:
            shares.append([])
        shares[number].append(part)
        before += part.rows
    return [one for one in shares if one]


def read(
    parts: Sequence[Part], columns: Mapping[str, Path], whole: Sequence[str], rows: int, size: int
) -> Iterator[pa.RecordBatch]:
    """The columns by the names that are given them, in batches of so many rows and, as far as can be told, bytes at most.

    ``whole``: those that must not be dictionaries.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [".".join(column) for column in columns.values()]
    for part in parts:
        few = max(1, min(rows, part.rows, size * part.rows // max(1, part.size)))
        encoded = [
            name
            for given, name in zip(columns, names, strict=True)
            if given not in whole and name in part.encoded
        ]
        try:
            with pq.ParquetFile(part.path, read_dictionary=encoded) as file:
                for batch in file.iter_batches(
                    few, row_groups=[part.group], columns=names, use_threads=False
                ):
                    yield pa.RecordBatch.from_arrays(
                        [_field(batch, path) for path in columns.values()], names=list(columns)
                    )
        except (OSError, pa.ArrowException) as error:
            raise UnreadableError(f"{part.path}: {error}") from error


def together(makers: Sequence[Callable[[], Iterator[T]]], threads: int) -> Iterator[T]:
    """What iterators give, several of them at work at once, in no order; each waits as soon as one item of its own is not taken.

    Arrow and NumPy hold no lock while they work, so threads of one task are as good as tasks; and a query over one task needs no
    shuffle.
    """
    made: queue.Queue[T | BaseException | None] = queue.Queue(threads)
    left = iter(
        makers
    )  # taken from by one thread at a time: next() of a tuple's iterator is one step
    ended = threading.Event()

    def put(item: T | BaseException | None) -> None:
        while not ended.is_set():  # else nobody takes it any more
            with contextlib.suppress(queue.Full):
                made.put(item, timeout=0.1)
                return

    def work() -> None:
        try:
            for make in left:
                for item in make():
                    put(item)
                    if ended.is_set():
                        return
        except BaseException as error:
            put(error)
        put(None)

    workers = [threading.Thread(target=work, daemon=True) for _ in range(min(threads, len(makers)))]
    for worker in workers:
        worker.start()
    try:
        running = len(workers)
        while running:
            item = made.get()
            if isinstance(item, BaseException):
                raise item
            if item is None:
                running -= 1
            else:
                yield item
    finally:
        ended.set()


def _field(batch: pa.RecordBatch, path: Path) -> pa.Array:
    """A field of a struct that is NULL is NULL."""
    import pyarrow.compute as pc

    column = batch.column(path[0])
    return pc.struct_field(column, list(path[1:])) if path[1:] else column
