"""A publisher's past: subscribers that come later, or were away, ask for it.

The publisher answers from the batches that it retains. There are two messages:

    AskPast  asks a publisher for the events after this one that the filter passes, or only for the
             publisher's position
    Past     a part of the answer, oldest first and filtered at the publisher, with the place up to
             which it goes, the last event that is gone, and the publisher's floor

The asking node sends one ``AskPast`` at a time to a publisher, and the next one when it has taken
the answer. So it sets the pace. It asks again for an answer that is lost. The publisher keeps no
state for it. An answer is bounded in its bytes, and in the bytes that are looked at for it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta, Struct

from gossamer.filters import Filter, FilterError, Schema
from gossamer.filters.model import TEXT_MAX
from gossamer.filters.packed import Packed
from gossamer.machine import Message
from gossamer.node.outbox import Outbox
from gossamer.node.retention import Id, Kept, Retained, Retention
from gossamer.overlay.batch import BATCH_BYTES_MAX, BATCH_EVENTS_MAX, TOPIC_LENGTH_MAX, Batch, Count

# Bytes of rows in one answer. A larger batch goes alone.
ANSWER_BYTES = 256 << 10
# Bytes of rows that are looked at for one answer.
LOOKED_AT = 4 << 20
PARTS_MAX = 4096
# The most filters of asking nodes that are kept parsed.
FILTERS_MAX = 64

Name = Annotated[str, Meta(min_length=1, max_length=TOPIC_LENGTH_MAX)]
_Id = tuple[Count, Count]
_encoder = msgspec.msgpack.Encoder()


class AskPast(Message, frozen=True, array_like=True, tag=90):
    topic: Name
    # The asking node's number for the subscription, which the answer repeats.
    number: Count
    serial: Count
    after: _Id
    # Events that were published before this time (Unix microseconds) are left out.
    start: Annotated[int, Meta(ge=0)]
    # If it is false, only the publisher's position is asked for.
    rows: bool
    filter: Annotated[str, Meta(max_length=TEXT_MAX)] = ""
    # The subscription has just begun, so of the past it wants only the events without a receipt.
    is_new: bool = False


class PastPart(Struct, frozen=True, array_like=True):
    """Some events of one batch."""

    incarnation: Count
    first: Count
    count: Annotated[int, Meta(ge=1, le=BATCH_EVENTS_MAX)]
    places: Annotated[
        tuple[Annotated[int, Meta(ge=0, lt=BATCH_EVENTS_MAX)], ...],
        Meta(max_length=BATCH_EVENTS_MAX),
    ]
    # The rows of these places only. Without places they are all rows.
    rows: Annotated[bytes, Meta(max_length=BATCH_BYTES_MAX)]


class Past(Message, frozen=True, array_like=True, tag=91):
    is_event: ClassVar[bool] = True

    topic: Name
    number: Count
    serial: Count
    parts: Annotated[tuple[PastPart, ...], Meta(max_length=PARTS_MAX)]
    # Nothing more can be had up to this event.
    through: _Id
    # Nothing more can be had after it now.
    done: bool
    # The last event of the topic that is gone.
    trimmed: _Id
    trimmed_at: Annotated[int, Meta(ge=0)]
    # The first event without a receipt, of any topic and of any of the publisher's lives.
    floor: _Id
    # The last event that the publisher has published on the topic. (0, 0): none.
    newest: _Id
    # The number of retained events of the topic after ``through``, whatever the filter is.
    left: Annotated[int, Meta(ge=0)]


class Archive:
    """Answers questions about this node's past."""

    def __init__(
        self,
        outbox: Outbox,
        schemas: Mapping[str, Schema],
        retentions: Mapping[str, Retention],
        conflicts: Mapping[str, object],
    ) -> None:
        self.answered = 0
        self._outbox, self._schemas, self._retentions = outbox, schemas, retentions
        # Topics whose events cannot be read alike everywhere.
        self.conflicts = conflicts
        self._filters: OrderedDict[tuple[str, str], tuple[Filter, Packed]] = OrderedDict()

    @property
    def _retained(self) -> Retained:
        return self._outbox.retained

    def answer(self, ask: AskPast) -> Past | None:
        """The answer to a question, or None.

        None means that the publisher has just come back and does not know the topic yet, or that
        the topic's schema is in conflict. Then the publisher is asked again. A FilterError says
        that the filter does not fit the topic.
        """
        rows = ask.rows
        if rows and (ask.topic not in self._schemas or ask.topic in self.conflicts):
            if not ask.is_new:
                return None
            rows = False
        self.answered += 1
        floor = self._outbox.floor
        trimmed, at = self._retained.trimmed_through(ask.topic)
        parts: list[PastPart] = []
        settled = (floor[0], max(0, floor[1] - 1))
        after = max(ask.after, settled) if ask.is_new else ask.after
        if rows and ask.topic in self._retentions:
            through, done = self._read(ask, after, parts, self._outbox.accepted)
        elif rows:
            # No retention is known, but an earlier life may have kept events. Events without a
            # receipt come live.
            through, done = self._read(ask, after, parts, settled)
        else:
            through, done = settled, True
        left = 0 if done else self._retained.count(ask.topic, through)
        return Past(
            ask.topic,
            ask.number,
            ask.serial,
            tuple(parts),
            through,
            done,
            trimmed,
            at,
            floor,
            self._retained.newest(ask.topic),
            left,
        )

    def _read(self, ask: AskPast, after: Id, parts: list[PastPart], end: Id) -> tuple[Id, bool]:
        """Collects the retained events after one and up to ``end``.

        Returns how far it went, and whether that is all.
        """
        filter, packed = self._filter(ask.topic, ask.filter)
        through, size, looked = after, 0, 0
        for kept in self._retained.batches(ask.topic, after):
            if size >= ANSWER_BYTES or looked >= LOOKED_AT or len(parts) == PARTS_MAX:
                return through, False
            batch = kept.batch
            if (batch.incarnation, batch.first) > end:
                break
            looked += len(batch.rows)
            through = (batch.incarnation, batch.first + batch.count - 1)
            is_wanted = kept.at >= ask.start
            if ask.is_new:
                is_wanted = self._outbox.waits((batch.incarnation, batch.first))
            part = _part(batch, after, filter, packed) if is_wanted else None
            if part is not None:
                parts.append(part)
                size += len(part.rows)
        return max(end, after), True

    def _filter(self, topic: str, text: str) -> tuple[Filter, Packed]:
        key, filters = (topic, text), self._filters
        found = filters.get(key)
        if found is None or found[0].schema != self._schemas[topic]:
            schema = self._schemas[topic]
            found = filters[key] = (Filter.parse(text, schema), Packed(schema))
            if len(filters) > FILTERS_MAX:
                filters.popitem(last=False)
        filters.move_to_end(key)
        return found


def _part(batch: Batch, after: Id, filter: Filter, packed: Packed) -> PastPart | None:
    is_new = (batch.incarnation, batch.first) > after
    if is_new and filter.text == "TRUE":
        return PastPart(batch.incarnation, batch.first, batch.count, (), batch.rows)
    rows, wanted = packed.decode(batch.rows), []
    for place, row in enumerate(rows):
        if (is_new or (batch.incarnation, batch.first + place) > after) and filter.matches_row(row):
            wanted.append(place)
    if not wanted:
        return None
    if len(wanted) == len(rows):
        return PastPart(batch.incarnation, batch.first, batch.count, (), batch.rows)
    return PastPart(
        batch.incarnation,
        batch.first,
        batch.count,
        tuple(wanted),
        _encoder.encode([rows[place] for place in wanted]),
    )


HistoryMessage = AskPast | Past

__all__ = ["Archive", "AskPast", "FilterError", "HistoryMessage", "Kept", "Past", "PastPart"]
