"""Events published together: a list of them, or a record batch of columns.

A list joins its topic's open batch, as single events do, without a call for each. The events keep
their order and follow one another. So do columns with other columns, as long as they are not too
large to travel together.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import accumulate
from typing import Any

from gossamer.filters import EventError
from gossamer.filters.gather import Gather
from gossamer.machine import Micros
from gossamer.node.core import OPEN_MAX, NodeCore
from gossamer.node.outbox import Publication, WideLane, WindowFullError
from gossamer.overlay.batch import BATCH_BYTES_MAX
from gossamer.trace import plain

Row = tuple[Any, ...]
Part = tuple[Publication, int, int]
"""A publication, the place of the first of the caller's events in it, and their number."""


class Rows:
    """The events of a list, which all fit the schema, and the weights of the first of them.

    So all events are accepted, or none.
    """

    def __init__(self, core: NodeCore, topic: str, events: Iterable[Mapping[str, Any]]) -> None:
        core.topics.check(topic)
        known = core.local.topic(topic)
        self.rows: list[Row] = known.schema.rows(events)
        self.size: int = known.weigh(self.rows)
        self._weigh = known.weigh
        # In a smaller list no event can be too large.
        if self.size > core.config.event_bytes // 4:
            for row in self.rows:
                core.outbox.measure(topic, row)

    @cached_property
    def weights(self) -> list[int]:
        """The weights of the first 0, 1, 2, ... rows together."""
        return list(accumulate((self._weigh((row,)) for row in self.rows), initial=0))


def publish_rows(
    core: NodeCore, topic: str, given: Rows, start: int, now: Micros
) -> tuple[Publication, int]:
    """Accepts rows from ``start`` on, up to the room in the topic's open batch.

    Returns that batch and the number of the rows.
    """
    outbox, limits = core.outbox, core.config
    _check(core, topic)
    known = core.local.topic(topic)
    if topic in outbox.open and outbox.open[topic].width:
        core.seal(topic, now)
    publication = outbox.open.get(topic) or outbox.begin(topic)
    into = publication.rows
    if (
        not start
        and len(into) + len(given.rows) <= limits.batch_events
        and publication.size + given.size <= limits.batch_bytes
    ):
        some, size = given.rows, given.size
    else:
        weights = given.weights
        full = bisect_left(weights, weights[start] + limits.batch_bytes - publication.size)
        some = given.rows[
            start : min(start + limits.batch_events - len(into), max(full, start + 1))
        ]
        size = weights[start + len(some)] - weights[start]
    into += some
    publication.size += size
    if limits.trace:
        publication.traced += [plain(known.values(row)) for row in some]
    outbox.opened += len(some)
    if len(into) >= limits.batch_events or publication.size >= limits.batch_bytes:
        core.seal(topic, now)
    elif outbox.opened >= OPEN_MAX:
        core.seal_all(now)
    return publication, len(some)


def publish_columns(
    core: NodeCore,
    topic: str,
    record: Any,
    now: Micros,
    once: tuple[str, tuple[int, ...]] | None = None,
    place: int = 0,
) -> list[Part]:
    """Accepts a record batch, as ``Packed.record`` gives it. It has more than one part if it is too
    large to travel as one.

    ``once`` is the batch's number in a stream, and numbers grow. A part that the node has accepted
    under this number is left out, also if an earlier life with this data directory did. So the same
    stream may be published again after a crash. ``place`` is the place of the first part.
    """
    _check(core, topic)
    if once is None:
        part = _gather(core, topic, record, now, alone=False) if record.num_rows else None
        # Nearly always it goes with the record batches before it.
        if part is not None:
            return [part]
        return [_begin(core, topic, one, now) for one in cut(core, topic, record)]
    parts = []
    for number, one in enumerate(cut(core, topic, record, once=True), place):
        # The mark is stored with the batch that is sealed next, which must be this one.
        core.seal_all(now)
        if core.outbox.mark(once[0], (*once[1], number)):
            parts.append(_begin(core, topic, one, now, alone=True))
    return parts


def _most_rows(core: NodeCore, topic: str) -> int:
    """Rows that travel together as columns.

    Where they go by relays, no more of them travel together than events do, because reports have a
    number for each event there.
    """
    return core.config.column_rows if core.routing.is_direct(topic) else core.config.batch_events


def cut(core: NodeCore, topic: str, record: Any, *, once: bool = False) -> list[Any]:
    """A record batch in parts that may travel.

    Raises an EventError if one event is too large, before any part is accepted. With ``once`` the
    parts do not depend on the routes in use, because they have numbers.
    """
    limits = core.config
    most = limits.batch_events if once else _most_rows(core, topic)
    found: list[Any] = []
    left = [record]
    while left:
        record = left.pop()
        # Each column is measured by itself, because columns may share their buffers.
        size = sum([column.get_total_buffer_size() for column in record.columns])
        if size > limits.column_bytes:
            # It may be a part of larger columns. This measure takes longer.
            size = record.nbytes
        if record.num_rows > most or (record.num_rows > 1 and size > limits.column_bytes):
            half = record.num_rows // 2
            # The first half is next.
            left += [record.slice(half), record.slice(0, half)]
        elif (
            size > limits.column_bytes
            and len(core.local.topic(topic).packed.pack(record)) > BATCH_BYTES_MAX
        ):
            raise EventError(
                f"an event of {size} bytes on {topic!r}; by columns at most {BATCH_BYTES_MAX} are "
                "allowed"
            )
        elif record.num_rows:
            found.append(record)
    return found


def _gather(core: NodeCore, topic: str, record: Any, now: Micros, *, alone: bool) -> Part | None:
    """Adds a record batch to the topic's open batch. Returns None if that holds rows or other
    columns, or has no room.
    """
    outbox, width = core.outbox, record.num_columns
    publication = outbox.open.get(topic)
    # Perhaps the topic's schema has grown.
    if publication is None or publication.width != width:
        return None
    size = publication.columns.add(record)
    return _gathered(core, publication, record, size, now, alone=alone) if size else None


def _begin(core: NodeCore, topic: str, record: Any, now: Micros, *, alone: bool = False) -> Part:
    """Begins a batch with a record batch. Others may follow into it, unless it is ``alone``."""
    part = _gather(core, topic, record, now, alone=alone)
    if part is not None:
        return part
    known, limits, most = core.local.topic(topic), core.config, _most_rows(core, topic)
    if known.gather is None:
        known.gather = Gather(known.packed)
    # This comes before anything is opened, because it may be refused.
    begun, size = known.gather.begin(record, most, limits.column_bytes)
    if topic in core.outbox.open:
        core.seal(topic, now)
    publication = core.outbox.begin(topic)
    publication.columns = begun
    part = _gathered(core, publication, record, size, now, alone=alone)
    if publication.first < 0 and core.outbox.may_open_lane and not limits.trace:
        core.outbox.opened -= publication.weight
        core.outbox.wide_lane = _lane(core, publication, type(record), most, size)
    return part


def _lane(
    core: NodeCore, publication: Publication, kind: type, most_rows: int, last: int
) -> WideLane:
    """The short way into this batch for the following record batches, except the one that fills it.

    ``last`` is the number of bytes of the one before.
    """
    name, add, read = (
        publication.topic,
        publication.columns.add,
        core.local.topic(publication.topic).packed.record,
    )
    most_bytes = core.config.column_bytes

    def lane(topic: str, batch: Any) -> Part | None:
        nonlocal last
        start = publication.count
        if type(batch) is not kind or topic != name or publication.size + 3 * last > most_bytes:
            return None
        record = read(batch)
        count = record.num_rows
        size = add(record) if start + 2 * count <= most_rows else 0
        if not size:
            return None
        last = size
        publication.count = start + count
        publication.size += size
        return publication, start, count

    return lane


def _gathered(
    core: NodeCore, publication: Publication, record: Any, size: int, now: Micros, *, alone: bool
) -> Part:
    """A record batch has been added. The batch leaves if another record batch of this size would
    not fit, or at once if it is to be ``alone``.
    """
    outbox, limits, count = core.outbox, core.config, record.num_rows
    if limits.trace:
        known = core.local.topic(publication.topic)
        publication.traced += [plain(known.values(row)) for row in known.packed.rows(record)]
    start, before = publication.count, publication.weight if publication.width else 0
    publication.width = record.num_columns
    publication.count += count
    publication.size += size
    # With a short way, the batch is the only open one.
    if outbox.wide_lane is None:
        outbox.opened += publication.weight - before
    if (
        alone
        or start + 2 * count > _most_rows(core, publication.topic)
        or publication.size + size > limits.column_bytes
    ):
        core.seal(publication.topic, now)
    elif outbox.opened >= OPEN_MAX:
        core.seal_all(now)
    return publication, start, count


def _check(core: NodeCore, topic: str) -> None:
    core.topics.check(topic)
    if core.rights is not None:
        core.rights.check("publish to", topic)
    if core.outbox.is_full:
        raise WindowFullError(
            f"{core.outbox.events} events without a receipt, the most allowed "
            "(window, window_bytes)"
        )
