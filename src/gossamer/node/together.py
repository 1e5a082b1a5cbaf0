"""Events published together: a list of them, or a record batch of columns.

A list joins its topic's open batch, as single events do, without a call for each; the events keep their order and follow one
another. So do columns with other columns, as long as they are not too large to travel together.
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

COPIES_MAX = (
    256  # record batches that travel as one: a program that publishes small ones without a pause lets others have their turn
)

Row = tuple[Any, ...]
Part = tuple[Publication, int, int]
"""A publication, the first of somebody's events in it, and how many."""


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
    if topic in outbox.open and outbox.open[topic].columns:
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
) -> list[Part]:
    """Accept a record batch, as ``Packed.record`` gives it; more than one part if it is too large to travel as one.

    ``once``: the batch's number in a stream. What the node has accepted under it, in this life or with a data directory in an
    earlier one, is left out: the same stream may be published again after a crash. Numbers grow.
    """
    _check(core, topic)
    packed = core.local.topic(topic).packed
    copies: list[tuple[Any, Any]] = []  # all of them fit before the first is accepted
    left = [record]
    while left:
        record = left.pop()
        copy = packed.copied(record) if record.num_rows <= BATCH_EVENTS_MAX else None
        size = copy[0].size if copy is not None else 0
        if record.num_rows > 1 and (not size or size > core.config.event_bytes):
            half = record.num_rows // 2
            left += [record.slice(half), record.slice(0, half)]  # the first half is next
        elif size > BATCH_BYTES_MAX:
            raise EventError(f"an event of {size} bytes on {topic!r}; by columns at most {BATCH_BYTES_MAX} are allowed")
        elif copy is not None and record.num_rows:
            copies.append(copy)
    if once is None:
        return [_gather(core, topic, copy, now) for copy in copies]
    parts = []
    for place, copy in enumerate(copies):
        core.seal_all(now)  # the mark is stored with the batch that is sealed next, which must be this one
        if core.outbox.mark(once[0], (*once[1], place)):
            parts.append(_gather(core, topic, copy, now, alone=True))
    return parts


def _gather(core: NodeCore, topic: str, copy: tuple[Any, Any], now: Micros, *, alone: bool = False) -> Part:
    """Into the topic's open batch, or another if that holds rows or has no room. It goes when another like this would not fit, or
    at once (``alone``)."""
    outbox, limits = core.outbox, core.config
    size, count = copy[0].size, copy[1].num_rows
    traced: list[dict[str, Any]] = []
    if limits.trace:
        known = core.local.topic(topic)
        traced = [plain(known.values(row)) for row in known.packed.rows(copy[1])]
    publication = outbox.open.get(topic)
    if publication is not None and not (
        publication.columns
        and publication.columns[0][1].num_columns == copy[1].num_columns  # else the topic's schema has grown
        and publication.gathered + count <= limits.batch_events
        and publication.size + size <= limits.batch_bytes
    ):
        core.seal(topic, now)
        publication = None
    publication = publication or outbox.begin(topic)
    start = publication.count
    publication.columns.append(copy)
    publication.count += count
    publication.size += size
    publication.traced += traced
    outbox.opened += count
    is_full = start + 2 * count > limits.batch_events or publication.size + size > limits.batch_bytes
    if alone or is_full or len(publication.columns) >= COPIES_MAX:
        core.seal(topic, now)
    elif outbox.opened >= OPEN_MAX:
        core.seal_all(now)
    return publication, start, count


def _check(core: NodeCore, topic: str) -> None:
    if core.rights is not None:
        core.rights.check("publish to", topic)
    if core.outbox.is_full:
        raise WindowFullError(f"{core.outbox.events} events without a receipt, the most allowed (window, window_bytes)")
