"""Spark reads from the fabric and writes to it: ``spark.readStream.format("gossamer")`` and the other three (docs/streaming.md).

Who is a member of the fabric, and where:

- A streaming query's source is one: the process that Spark keeps for it beside the driver. It holds a tap (a durable subscription
  with ``name`` in ``dataDir``), so offsets survive restarts. Rows travel to the executors inside the partitions, as Arrow, so
  executors need no way into the fabric and no disk.
- A batch read is one for as long as it plans: it reads what publishers retain.
- A sink is one in a process of its own (gateway.py), because Spark's commits are too short-lived to be. Executors send their rows
  to the driver with their commit messages.

``register(spark)`` makes the format known. Options: ``join`` (addresses, with commas), ``topic``, and below each.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from gossamer import Gap, blocking
from gossamer.pipeline.gateway import ask
from gossamer.pipeline.sourceoptions import Options, SourceError

WAIT_SECONDS = (
    30.0  # for the fabric, a topic, the past of publishers, a data directory that is still locked
)
PART_ROWS = 20_000  # of one partition


def register(spark: SparkSession) -> None:
    """Make ``format("gossamer")`` known to a session."""
    spark.dataSource.register(GossamerDataSource)


class GossamerDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "gossamer"

    def schema(self) -> str:
        """The topic's, as it is advertised."""
        options = Options(self.options)
        with options.node() as node:
            return node.topic(options.topic, WAIT_SECONDS)

    def reader(self, schema: StructType) -> DataSourceReader:
        return _RetainedReader(Options(self.options, "read"), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return _TapReader(Options(self.options, "readStream"), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        if overwrite:
            raise SourceError("a fabric cannot be overwritten: use mode('append')")
        return _Writer(Options(self.options, "write"), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        return _StreamWriter(Options(self.options, "writeStream"), schema)


# ---------------------------------------------------------------- rows


def _pack(values: Sequence[dict[str, Any]], schema: StructType) -> bytes:
    """Events' values as an Arrow stream, which a partition can carry."""
    import pyarrow as pa

    wanted = to_arrow_schema(schema, timezone="UTC")
    columns = [pa.array([one.get(field.name) for one in values], field.type) for field in wanted]
    return _stream([pa.RecordBatch.from_arrays(columns, schema=wanted)])


def _stream(batches: Sequence[Any]) -> bytes:
    import pyarrow as pa

    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    data: bytes = out.getvalue().to_pybytes()
    return data


def _unpack(partition: InputPartition) -> Iterator[Any]:
    import pyarrow as pa

    yield from pa.ipc.open_stream(pa.py_buffer(partition.value))


def _partitions(values: list[dict[str, Any]], schema: StructType) -> list[InputPartition]:
    return [
        InputPartition(_pack(values[at : at + PART_ROWS], schema))
        for at in range(0, len(values), PART_ROWS)
    ]


# ---------------------------------------------------------------- reading


def _checked(node: blocking.Node, options: Options, schema: StructType) -> blocking.Node:
    """A node that knows the topic, of which the schema is no misunderstanding."""
    options.check_schema(schema, node.topic(options.topic, WAIT_SECONDS))
    return node


class _RetainedReader(DataSourceReader):
    """What publishers retain, from ``since`` on, as of now."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options, self._schema = options, schema

    def partitions(self) -> list[InputPartition]:
        options, values = self._options, []
        with (
            options.node() as node,
            _checked(node, options, self._schema).subscribe(
                options.topic, options.filter, since=options.since or "beginning"
            ) as events,
        ):
            until = time.monotonic() + WAIT_SECONDS
            is_behind = True
            while is_behind:
                [about] = node.status()["subscriptions"]
                is_behind = about["behind"] > 0 or about["publishers"] == 0
                for event in events.within(0.05):
                    if isinstance(event, Gap):
                        options.lost(event)
                    else:
                        values.append(event.values)
                    until = time.monotonic() + WAIT_SECONDS
                if time.monotonic() > until:
                    raise SourceError(
                        f"not every publisher of {options.topic!r} has answered within "
                        f"{WAIT_SECONDS:g} s"
                    )
        return _partitions(values, self._schema) or [InputPartition(_pack([], self._schema))]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _unpack(partition)


class _Tap:
    """The tap of a query, in the process that Spark keeps for it: events that Spark has not committed."""

    def __init__(self, options: Options, schema: StructType | None = None) -> None:
        self._options = options
        self._node = options.node(options.data_dir)
        self._start()
        if schema is not None:
            try:
                _checked(self._node, options, schema)
            except BaseException:
                self._node.close()
                raise
        self._events = self._node.subscribe(
            options.topic,
            options.filter,
            timeout=WAIT_SECONDS,
            name=options.name,
            since=options.since or None,
        )
        self.acked = int(self._node.status()["durable"][options.name]["acked"])
        self._lock = threading.Lock()
        self._waiting: deque[Any] = deque()  # events and gaps, by offset
        self._last, self._problem = self.acked, ""
        threading.Thread(target=self._pump, name="gossamer-tap", daemon=True).start()

    def _start(self) -> None:
        """The process of an earlier run may hold the directory a moment longer."""
        until = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                self._node.start()
                return
            except OSError as error:
                if "locked" not in str(error) or time.monotonic() > until:
                    raise
                time.sleep(0.1)
                self._node = self._options.node(self._options.data_dir)

    def _pump(self) -> None:
        try:
            for event in self._events:
                with self._lock:
                    self._waiting.append(event)
                    self._last = event.offset
        except Exception as error:
            self._problem = f"{type(error).__name__}: {error}"

    def latest(self) -> int:
        if self._problem:
            raise SourceError(f"the tap ended: {self._problem}")
        return self._last

    def between(self, start: int, end: int) -> list[dict[str, Any]]:
        """The values of the events after one offset up to another."""
        if start < self.acked:
            raise SourceError(
                f"offset {start} of {self._options.name!r} is asked for, but everything through "
                f"{self.acked} was committed; is the "
                "checkpoint an old one? Use the newest, or another name"
            )
        until = time.monotonic() + WAIT_SECONDS
        while self.latest() < end:
            if time.monotonic() > until:
                raise SourceError(
                    f"offset {end} of {self._options.name!r} is not there; was its data "
                    "directory replaced?"
                )
            time.sleep(0.01)
        values = []
        with self._lock:
            wanted = [event for event in self._waiting if start < event.offset <= end]
        for event in wanted:
            if isinstance(event, Gap):
                self._options.lost(event)
            else:
                values.append(event.values)
        return values

    def commit(self, end: int) -> None:
        if end > self.acked:
            self._events.ack(end, through=True)
            self.acked = end
            with self._lock:
                while self._waiting and self._waiting[0].offset <= end:
                    self._waiting.popleft()


_taps: dict[tuple[str, str], _Tap] = {}  # of this process, which is one query's


class _TapReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are the tap's: {"offset": n}. ``maxRows`` bounds a micro-batch."""

    def __init__(self, options: Options, schema: StructType) -> None:
        if not options.data_dir:
            raise SourceError(
                "a stream needs a disk for its tap, on the driver's host: .option('dataDir', "
                "DIRECTORY), one for each query"
            )
        self._options, self._schema = options, schema
        self._target: int | None = None

    @property
    def _tap(self) -> _Tap:
        key = (self._options.data_dir, self._options.name)
        if key not in _taps:
            _taps[key] = _Tap(self._options, self._schema)
        return _taps[key]

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"offset": self._tap.acked}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._options.rows_max) if self._options.rows_max else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        tap, until = self._tap, time.monotonic() + WAIT_SECONDS
        while time.monotonic() < until and self._behind(tap):
            time.sleep(0.05)
        self._target = tap.latest()

    @staticmethod
    def _behind(tap: _Tap) -> bool:
        [about] = tap._node.status()["subscriptions"]
        return bool(about["behind"] or tap.latest() < about["offset"])

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        last = self._tap.latest() if self._target is None else self._target
        if isinstance(limit, ReadMaxRows):
            last = min(last, start["offset"] + limit.max_rows)
        return {"offset": max(last, start["offset"])}

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802
        return {"offset": self._tap.latest()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return _partitions(self._tap.between(start["offset"], end["offset"]), self._schema)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _unpack(partition)

    def commit(self, end: dict[str, int]) -> None:
        self._tap.commit(end["offset"])


# ---------------------------------------------------------------- writing


@dataclass
class _Written(WriterCommitMessage):
    """The rows of one task."""

    partition: int
    data: bytes


def _written(iterator: Iterator[Any]) -> _Written:
    from pyspark import TaskContext

    batches = [batch for batch in iterator if batch.num_rows]
    context = TaskContext.get()
    return _Written(
        context.partitionId() if context is not None else 0, _stream(batches) if batches else b""
    )


def _together(messages: Sequence[WriterCommitMessage | None]) -> bytes:
    """All rows in the order of their partitions."""
    import pyarrow as pa

    written = sorted(
        (one for one in messages if isinstance(one, _Written) and one.data),
        key=lambda one: one.partition,
    )
    batches = [batch for one in written for batch in pa.ipc.open_stream(pa.py_buffer(one.data))]
    return _stream(batches) if batches else b""


def _request(options: Options, schema: StructType, query: str, batch: int) -> dict[str, Any]:
    text = ", ".join(
        f"`{field.name}` {field.dataType.simpleString()}" + ("" if field.nullable else " NOT NULL")
        for field in schema
    )
    return {
        "topic": options.topic,
        "schema": text,
        "retention": options.retention,
        "query": query,
        "batch": batch,
    }


class _StreamWriter(DataSourceStreamArrowWriter):
    """Each row once, whatever is replayed: by (query, batch, partition, row). ``query`` names the query for life."""

    def __init__(self, options: Options, schema: StructType) -> None:
        if not options.data_dir:
            raise SourceError(
                "a streaming sink needs a disk, on the driver's host: .option('dataDir', DIRECTORY)"
            )
        if not options.query:
            raise SourceError(
                "a streaming sink needs its query's name, the same for life: .option('query', NAME)"
            )
        self._options, self._schema = options, schema

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return _written(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        options = self._options
        ask(
            options.gateway(options.data_dir),
            _request(options, self._schema, options.query, batchId),
            _together(messages),
        )

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing was published: that happens in ``commit``."""


class _Writer(DataSourceArrowWriter):
    """``df.write``: published when all tasks are done; each row once, unless the commit itself is cut short."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options, self._schema = options, schema

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return _written(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        import tempfile

        options = self._options
        with tempfile.TemporaryDirectory(
            prefix="gossamer-write-", ignore_cleanup_errors=True
        ) as temporary:
            reply = ask(
                options.gateway(options.data_dir or temporary),
                _request(options, self._schema, "", 0),
                _together(messages),
            )
        if reply["incomplete"] and not options.data_dir:
            raise SourceError(
                f"{reply['incomplete']} of {reply['rows']} rows have no receipt; write with "
                ".option('dataDir', DIRECTORY), which "
                "keeps them until they have"
            )

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nothing was published: that happens in ``commit``."""
