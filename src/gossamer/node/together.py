"""Events published together: a list of them, or a record batch of columns.

A list joins its topic's open batch, as single events do, without a call for each; the events keep their order and follow one
another. Columns are a batch of their own, which stays whole on its way, unless it is too large for one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import accumulate
from typing import Any

from gossamer.filters import EventError
from gossamer.machine import Micros
from gossamer.node.core import OPEN_MAX, NodeCore
from gossamer.node.outbox import Publication, WindowFullError
from gossamer.overlay.batch import BATCH_BYTES_MAX, BATCH_EVENTS_MAX
from gossamer.trace import plain

Row = tuple[Any, ...]


class Rows:
    """Events of a list that all fit the schema, and how much the first ones weigh together: so all are accepted or none."""

    def __init__(self, core: NodeCore, topic: str, events: Iterable[Mapping[str, Any]]) -> None:
        known = core.local.topic(topic)
        self.rows: list[Row] = known.schema.rows(events)
        self.size: int = known.weigh(self.rows)
        self._weigh = known.weigh
        if self.size > core.config.event_bytes // 4:  # else none can be too large
            for row in self.rows:
                core.outbox.measure(topic, row)

    @cached_property
    def weights(self) -> list[int]:
        """What the first 0, 1, 2, ... weigh together."""
        return list(accumulate((self._weigh((row,)) for row in self.rows), initial=0))


def publish_rows(core: NodeCore, topic: str, given: Rows, start: int, now: Micros) -> tuple[Publication, int]:
    """Accept rows from ``start`` on, as many as the topic's open batch takes; returns that batch and how many those are."""
    outbox, limits = core.outbox, core.config
    _check(core, topic)
    known = core.local.topic(topic)
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
        some = given.rows[start : min(start + limits.batch_events - len(into), max(full, start + 1))]
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
    core: NodeCore, topic: str, record: Any, now: Micros, once: tuple[str, tuple[int, ...]] | None = None
) -> list[Publication]:
    """Accept a record batch, as ``Packed.record`` gives it; more than one publication if it is too large for one.

    ``once``: the batch's number in a stream. What the node has accepted under it, in this life or with a data directory in an
    earlier one, is left out: the same stream may be published again after a crash. Numbers grow.
    """
    _check(core, topic)
    if topic in core.outbox.open:
        core.seal(topic, now)
    packed = core.local.topic(topic).packed
    parts: list[tuple[Any, bytes]] = []  # all of them fit before the first is accepted
    left = [record]
    while left:
        record = left.pop()
        data = packed.pack(record) if record.num_rows <= BATCH_EVENTS_MAX else b""
        if record.num_rows > 1 and (not data or len(data) > core.config.event_bytes):
            half = record.num_rows // 2
            left += [record.slice(half), record.slice(0, half)]  # the first half is next
        elif len(data) > BATCH_BYTES_MAX:
            raise EventError(f"an event of {len(data)} bytes on {topic!r}; by columns at most {BATCH_BYTES_MAX} are allowed")
        elif record.num_rows:
            parts.append((record, data))
    return [
        _seal_columns(core, topic, record, data, now)
        for place, (record, data) in enumerate(parts)
        if once is None or core.outbox.mark(once[0], (*once[1], place))
    ]


def _seal_columns(core: NodeCore, topic: str, record: Any, data: bytes, now: Micros) -> Publication:
    known = core.local.topic(topic)
    publication, batch, effects = core.outbox.seal_columns(topic, data, record.num_rows, *core.keeping.stamp(topic, now))
    if core.config.trace:
        publication.traced = [plain(known.values(row)) for row in known.packed.rows(record)]
    core.sent(publication, batch, effects, now)
    return publication


def _check(core: NodeCore, topic: str) -> None:
    if core.rights is not None:
        core.rights.check("publish to", topic)
    if core.outbox.is_full:
        raise WindowFullError(f"{core.outbox.events} events without a receipt, the most allowed (window, window_bytes)")
