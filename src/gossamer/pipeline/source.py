"""Spark reads from the fabric and writes to it by ``format("gossamer")`` (docs/streaming.md).

Three processes are members of the fabric:

- The source of a streaming query, in the process that Spark keeps for it beside the driver. It
  holds a tap (a durable subscription with ``name`` in ``dataDir``), so offsets survive restarts.
  Rows travel to the executors inside the partitions, as Arrow. So executors need no way into the
  fabric and no disk.
- A batch read, while it plans. It reads the events that publishers retain.
- A sink, in a process of its own (gateway.py), because the processes of Spark's commits live too
  short. Executors send their rows to the driver with their commit messages.

``register(spark)`` makes the format known.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
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
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from gossamer import Gap, blocking
from gossamer.pipeline.gateway import ask
from gossamer.pipeline.sourceoptions import Options, SourceError

# The time to wait for the fabric, a topic, the past of publishers, or a data directory that is
# still locked.
WAIT_SECONDS = 30.0
_log = logging.getLogger(__name__)
# A tap that was full, and has room again, gets this time to fill.
FILL_SECONDS = 2.0
# The rows of one partition.
PART_ROWS = 20_000
# The bound of a micro-batch without ``maxRows``. A tap holds less.
ROWS_MAX = 2**31 - 1


def register(spark: SparkSession) -> None:
    """Make ``format("gossamer")`` known to a session."""
    spark.dataSource.register(GossamerDataSource)


class GossamerDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "gossamer"

    def schema(self) -> str:
        """The schema of the topic, as it is advertised."""
        options = Options(self.options)
        with options.node() as node:
            return node.topic(options.topic, WAIT_SECONDS)

    def reader(self, schema: StructType) -> DataSourceReader:
        return _RetainedReader(Options(self.options, "read"), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return _TapReader(Options(self.options, "readStream"), schema, steps_aside=True)

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
    """The node, if its schema of the topic agrees with the schema given by hand."""
    options.check_schema(schema, node.topic(options.topic, WAIT_SECONDS))
    return node


class _RetainedReader(DataSourceReader):
    """The events that publishers retain at this moment, from ``since`` on."""

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
                is_behind = about["behind"] > about["unreached"] or about["publishers"] == 0
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
            options.check_asked(about["unasked"])
        return _partitions(values, self._schema) or [InputPartition(_pack([], self._schema))]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _unpack(partition)


class _Tap:
    """The tap of a query, in the process that Spark keeps for it.

    It has the events that Spark has not committed.
    """

    def __init__(self, options: Options, schema: StructType | None = None) -> None:
        self._options = options
        self._node = options.node(options.data_dir)
        self._start()
        try:
            if schema is not None:
                _checked(self._node, options, schema)
            self._events = self._node.subscribe(
                options.topic,
                options.filter,
                timeout=WAIT_SECONDS,
                name=options.name,
                since=options.since or None,
            )
            about = self.about()
        except BaseException:
            self._node.close()
            raise
        self.acked = int(about["acked"])
        self._lock = threading.Lock()
        # Events and gaps, by offset.
        self._waiting: deque[Any] = deque()
        self._last, self._problem = self.acked, ""
        threading.Thread(target=self._pump, name="gossamer-tap", daemon=True).start()

    def _start(self) -> None:
        """Start the node. The process of an earlier run may hold the directory a moment longer."""
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

    def close(self) -> None:
        """Leave the fabric politely. Events that were not committed stay on disk."""
        self._node.close(drain=0.0)

    def about(self) -> dict[str, Any]:
        """The entry of the subscription in ``gossamer status``."""
        about: dict[str, Any] | None = self._events.status()
        if about is None:
            raise SourceError(f"the tap {self._options.name!r} was cut off")
        return about

    def latest(self) -> int:
        """The offset of the last event that is here."""
        if self._problem:
            raise SourceError(f"the tap ended: {self._problem}")
        return self._last

    def reach(self, offset: int) -> None:
        """Wait until all events through an offset of a checkpoint are here, from the tap's disk."""
        options = self._options
        if offset > self.latest() and offset > (given := self.about()["offset"]):
            raise SourceError(
                f"offset {offset} of {options.name!r} is in the checkpoint, but the tap in "
                f"{options.data_dir!r} has only given offsets through {given}; was its data "
                "directory replaced? Use the one that belongs to the checkpoint, or a new "
                "checkpoint"
            )
        self.wait(
            lambda: self._last >= offset, lambda: f"offset {offset} is not read from its disk"
        )

    def wait(
        self,
        is_done: Callable[[], object],
        why: Callable[[], str],
        moved: Callable[[], object] | None = None,
    ) -> None:
        """Wait until ``is_done``.

        If nothing moves for ``WAIT_SECONDS``, that is an error with the reason from ``why``.
        ``moved`` changes while something comes; it is the last offset by default.
        """
        moved = moved or self.latest
        last, until, pause = moved(), time.monotonic() + WAIT_SECONDS, 0.005
        while not is_done():
            self.latest()
            if _is_abandoned():
                raise SourceError("Spark has stopped the query")
            if moved() != last:
                last, until = moved(), time.monotonic() + WAIT_SECONDS
            elif time.monotonic() > until:
                raise SourceError(
                    f"the tap {self._options.name!r} has had nothing new for {WAIT_SECONDS:g} s: "
                    f"{why()}"
                )
            time.sleep(pause)
            pause = min(2 * pause, 0.1)

    def between(self, start: int, end: int) -> list[dict[str, Any]]:
        """The values of the events after one offset up to another."""
        if start < self.acked:
            raise SourceError(
                f"offset {start} of {self._options.name!r} is asked for, but everything through "
                f"{self.acked} was committed; is the "
                "checkpoint an old one? Use the newest, or another name"
            )
        self.reach(end)
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
        """Acknowledge all events through this offset, because they are in Spark's commit log."""
        if end > self.acked:
            self.reach(end)
            self._events.ack(end, through=True)
            self.acked = end
            with self._lock:
                while self._waiting and self._waiting[0].offset <= end:
                    self._waiting.popleft()


# The taps of this process, which belongs to one query.
_taps: dict[tuple[str, str], _Tap] = {}
# The process that Spark knows, if this process is its child. 0 means that it is not a child.
_parent = 0


def _step_aside() -> None:
    """Continue in a child process, because Spark kills the process of a source that is stopped.

    The process that Spark knows only waits. The child reads that Spark has closed its socket, and
    can say goodbye. It has a group of its own, because Spark's daemon ends its group with it.
    """
    global _parent
    parent = os.getpid()
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    os.setpgid(0, 0)
    _parent = parent


def _is_abandoned() -> bool:
    """Whether Spark has killed the process that it knows."""
    return _parent != 0 and os.getppid() != _parent


class _TapReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A source whose offsets are the tap's: {"offset": n}. ``maxRows`` bounds a micro-batch.

    Spark commits a micro-batch only when it builds the next one, and it builds that only if there
    is something new. A full tap gets nothing new before some events are acknowledged. But Spark
    asks for more from the end of the last micro-batch in its commit log. So the events up to that
    offset are acknowledged as soon as the tap has nothing new.
    """

    def __init__(self, options: Options, schema: StructType, *, steps_aside: bool = False) -> None:
        """``steps_aside`` means that this is the process that Spark keeps for a query, and may
        kill.
        """
        if not options.data_dir:
            raise SourceError(
                "a stream needs a disk for its tap, on the driver's host: .option('dataDir', "
                "DIRECTORY), one for each query"
            )
        self._options, self._schema, self._steps_aside = options, schema, steps_aside
        # Whether Spark has asked for the latest offset.
        self._has_begun = False
        # Whether the trigger is availableNow, and the offset at which it ends, as soon as that is
        # known.
        self._is_bounded = False
        self._target: int | None = None

    @property
    def _key(self) -> tuple[str, str]:
        return self._options.data_dir, self._options.name

    @property
    def _tap(self) -> _Tap:
        if self._key not in _taps:
            if self._steps_aside and not _parent:
                _step_aside()
            _taps[self._key] = _Tap(self._options, self._schema)
        return _taps[self._key]

    def stop(self) -> None:
        tap = _taps.pop(self._key, None)
        if tap is not None:
            tap.close()

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"offset": self._tap.acked}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        # The limit is never "all", because "all" distinguishes the trigger ``once`` from the
        # others.
        return ReadMaxRows(self._options.rows_max or ROWS_MAX)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._is_bounded, self._target = True, None

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        tap, at = self._tap, start["offset"]
        tap.reach(at)
        if isinstance(limit, ReadMaxRows):
            most = limit.max_rows
            last = self._next_now(tap, at, most) if self._is_bounded else self._next(tap, at)
            return {"offset": min(last, at + most)}
        return {"offset": self._everything(tap, at)}

    def _next(self, tap: _Tap, at: int) -> int:
        """The last offset of the tap.

        After a start, and when a commit made room, more events have a moment to come, because
        micro-batches should be large.
        """
        is_filling = not self._has_begun
        self._has_begun = True
        if tap.latest() == at > tap.acked:
            is_filling = is_filling or tap.about()["parked"] > 0
            tap.commit(at)
        if is_filling:
            until = time.monotonic() + FILL_SECONDS
            tap.wait(lambda: time.monotonic() > until or _is_full(tap, at, tap.about()), str)
        return tap.latest()

    def _next_now(self, tap: _Tap, at: int, most: int) -> int:
        """The last offset of the tap, until all events are here that publishers held at the
        beginning.
        """
        if tap.latest() == at:
            tap.commit(at)
        if self._target is None:
            about = _fill(tap, at, most)
            if not about["owing"]:
                self._options.check_asked(about["unasked"])
                self._target = about["offset"]
                tap.reach(self._target)
        return tap.latest() if self._target is None else max(at, self._target)

    def _everything(self, tap: _Tap, at: int) -> int:
        """The offset after all events that publishers held at the beginning, for one micro-batch
        (``once``).
        """
        tap.commit(at)
        about = _fill(tap, at, ROWS_MAX)
        if about["owing"]:
            raise SourceError(
                f"publishers of {self._options.topic!r} hold more than the tap does, which has "
                f"{about['unacked']} events, so one micro-batch cannot take everything. Use "
                "trigger(availableNow=True) instead of trigger(once=True)"
            )
        self._options.check_asked(about["unasked"])
        tap.reach(about["offset"])
        return int(about["offset"])

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802
        """The offset after all events that publishers still hold, so that a progress of the query
        shows its lag.
        """
        about = self._tap.about()
        return {"offset": about["offset"] + about["left"]}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return _partitions(self._tap.between(start["offset"], end["offset"]), self._schema)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _unpack(partition)

    def commit(self, end: dict[str, int]) -> None:
        self._tap.commit(end["offset"])


def _is_full(tap: _Tap, at: int, about: dict[str, Any]) -> bool:
    """Whether all events have come, or none comes before the ones after ``at`` are taken."""
    if not about["in_force"]:
        return False
    is_level = about["behind"] <= about["unreached"]
    return bool(is_level or (about["parked"] and tap.latest() >= about["offset"] > at))


def _fill(tap: _Tap, at: int, most: int) -> dict[str, Any]:
    """Wait for all events that publishers held when they were first asked, as far as the tap holds
    them.
    """
    about: dict[str, Any] = {}

    def is_done() -> bool:
        about.update(tap.about())
        if about["in_force"] and not about["owing"]:
            return True
        return _is_full(tap, at, about) or tap.latest() - at >= most

    def why() -> str:
        return (
            f"{about['owing']} of {about['publishers']} publishers still hold something of what "
            f"they had when they were first asked, {about['left']} events or fewer"
        )

    tap.wait(is_done, why, lambda: (tap.latest(), about.get("left"), about.get("owing")))
    return about


# ---------------------------------------------------------------- writing


@dataclass
class _Written(WriterCommitMessage):
    """The rows of one task."""

    partition: int
    data: bytes
    # The number that Spark writes into each new checkpoint.
    checkpoint: str


def _written(iterator: Iterator[Any]) -> _Written:
    from pyspark import TaskContext

    batches = [batch for batch in iterator if batch.num_rows]
    context = TaskContext.get()
    data = _stream(batches) if batches else b""
    if context is None:
        return _Written(0, data, "")
    checkpoint = context.getLocalProperty("sql.streaming.queryId") or ""
    return _Written(context.partitionId(), data, checkpoint)


def _together(messages: Sequence[WriterCommitMessage | None]) -> bytes:
    """All rows in the order of their partitions."""
    import pyarrow as pa

    written = sorted(
        (one for one in messages if isinstance(one, _Written) and one.data),
        key=lambda one: one.partition,
    )
    batches = [batch for one in written for batch in pa.ipc.open_stream(pa.py_buffer(one.data))]
    return _stream(batches) if batches else b""


def _request(options: Options, schema: StructType) -> dict[str, Any]:
    text = ", ".join(
        f"`{field.name}` {field.dataType.simpleString()}" + ("" if field.nullable else " NOT NULL")
        for field in schema
    )
    return {
        "topic": options.topic,
        "schema": text,
        "retention": options.retention,
        "query": "",
        "checkpoint": "",
        "batch": 0,
    }


class _StreamWriter(DataSourceStreamArrowWriter):
    """Publishes each row once, even in a replay, by (query, checkpoint, batch, partition, row).

    ``query`` names the query for its whole life.
    """

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
        written = [one for one in messages if isinstance(one, _Written)]
        checkpoint = written[0].checkpoint if written else ""
        if any(one.data for one in written) and not checkpoint:
            raise SourceError("Spark does not say which checkpoint this micro-batch belongs to")
        request = {"query": options.query, "checkpoint": checkpoint, "batch": batchId}
        reply = ask(
            options.gateway(options.data_dir),
            _request(options, self._schema) | request,
            _together(messages),
        )
        already = reply["rows"] - reply["published"]
        if already:
            _log.warning(
                "%d of %d rows of micro-batch %d of query %r were published before, and are not "
                "published again",
                already,
                reply["rows"],
                batchId,
                options.query,
            )

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing was published, because that happens in ``commit``."""


class _Writer(DataSourceArrowWriter):
    """``df.write``: publishes the rows when all tasks are done.

    Each row is published once, unless the commit itself is cut short.
    """

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
                _request(options, self._schema),
                _together(messages),
            )
        if reply["incomplete"] and not options.data_dir:
            raise SourceError(
                f"{reply['incomplete']} of {reply['rows']} rows have no receipt; write with "
                ".option('dataDir', DIRECTORY), which "
                "keeps them until they have"
            )

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nothing was published, because that happens in ``commit``."""
