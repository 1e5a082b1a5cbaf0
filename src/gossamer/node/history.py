"""A publisher's past: who came later, or was away, asks for it, and the publisher answers from what it retains.

Messages:
    Ask    what of your topic do you have after this event, that this filter wants? Or only: where are you?
    Past   a part of it, oldest first, filtered at the publisher; and how far it goes, what is gone, and the publisher's floor

The asker sends one ``Ask`` at a time to a publisher and the next when it has taken the answer, so it sets the pace; what is lost it
asks for again. The publisher keeps no state for it. An answer is bounded in bytes, and in what is looked at for it.
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

ANSWER_BYTES = 256 << 10  # rows in one answer; a larger batch goes alone
LOOKED_AT = 4 << 20  # bytes of rows looked at for one answer
PARTS_MAX = 4096
FILTERS_MAX = 64  # texts that others ask with, kept parsed

Name = Annotated[str, Meta(min_length=1, max_length=TOPIC_LENGTH_MAX)]
_Id = tuple[Count, Count]
_encoder = msgspec.msgpack.Encoder()


class Ask(Message, frozen=True, array_like=True, tag=90):
    topic: Name
    number: Count  # the asker's, for the answer to say
    serial: Count
    after: _Id
    start: Annotated[int, Meta(ge=0)]  # and not published before this (Unix microseconds)
    rows: bool  # False: only where the publisher is
    filter: Annotated[str, Meta(max_length=TEXT_MAX)] = ""


class Part(Struct, frozen=True, array_like=True):
    """Some events of one batch."""

    incarnation: Count
    first: Count
    count: Annotated[int, Meta(ge=1, le=BATCH_EVENTS_MAX)]
    places: Annotated[
        tuple[Annotated[int, Meta(ge=0, lt=BATCH_EVENTS_MAX)], ...],
        Meta(max_length=BATCH_EVENTS_MAX),
    ]
    rows: Annotated[
        bytes, Meta(max_length=BATCH_BYTES_MAX)
    ]  # of these places only; no places: of all


class Past(Message, frozen=True, array_like=True, tag=91):
    is_event: ClassVar[bool] = True

    topic: Name
    number: Count
    serial: Count
    parts: Annotated[tuple[Part, ...], Meta(max_length=PARTS_MAX)]
    through: _Id  # there is nothing more to be had up to this event
    done: bool  # nor after it, now
    trimmed: _Id  # the last event of the topic that is gone
    trimmed_at: Annotated[int, Meta(ge=0)]
    floor: _Id  # the first event of any topic, and of any of the publisher's lives, without receipt


class Archive:
    """Answers."""

    def __init__(
        self,
        outbox: Outbox,
        schemas: Mapping[str, Schema],
        retentions: Mapping[str, Retention],
        conflicts: Mapping[str, object],
    ) -> None:
        self.answered = 0
        self._outbox, self._schemas, self._retentions = outbox, schemas, retentions
        self.conflicts = conflicts  # topics whose events cannot be read alike everywhere
        self._filters: OrderedDict[tuple[str, str], tuple[Filter, Packed]] = OrderedDict()

    @property
    def _retained(self) -> Retained:
        return self._outbox.retained

    def answer(self, ask: Ask) -> Past | None:
        """None: a publisher that has just come back does not know the topic yet, or the topic's
        schema is in conflict; the publisher is asked again.
        Raises FilterError for a filter that does not fit the topic.
        """
        if ask.rows and (ask.topic not in self._schemas or ask.topic in self.conflicts):
            return None
        self.answered += 1
        floor = self._outbox.floor
        trimmed, at = self._retained.trimmed_through(ask.topic)
        parts: list[Part] = []
        settled = (floor[0], max(0, floor[1] - 1))
        if ask.rows and ask.topic in self._retentions:
            through, done = self._read(ask, parts, self._outbox.accepted)
        elif ask.rows:
            # No retention is known, but an earlier life may have kept events. Events without a
            # receipt come live.
            through, done = self._read(ask, parts, settled)
        else:
            through, done = settled, True
        return Past(
            ask.topic, ask.number, ask.serial, tuple(parts), through, done, trimmed, at, floor
        )

    def _read(self, ask: Ask, parts: list[Part], end: Id) -> tuple[Id, bool]:
        """Collect what is retained up to ``end``.

        Returns how far that went, and whether it is all.
        """
        filter, packed = self._filter(ask.topic, ask.filter)
        through, size, looked = ask.after, 0, 0
        for kept in self._retained.batches(ask.topic, ask.after):
            if size >= ANSWER_BYTES or looked >= LOOKED_AT or len(parts) == PARTS_MAX:
                return through, False
            batch = kept.batch
            if (batch.incarnation, batch.first) > end:
                break
            looked += len(batch.rows)
            through = (batch.incarnation, batch.first + batch.count - 1)
            part = _part(batch, ask.after, filter, packed) if kept.at >= ask.start else None
            if part is not None:
                parts.append(part)
                size += len(part.rows)
        return max(end, ask.after), True

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


def _part(batch: Batch, after: Id, filter: Filter, packed: Packed) -> Part | None:
    is_new = (batch.incarnation, batch.first) > after
    if is_new and filter.text == "TRUE":
        return Part(batch.incarnation, batch.first, batch.count, (), batch.rows)
    rows, wanted = packed.decode(batch.rows), []
    for place, row in enumerate(rows):
        if (is_new or (batch.incarnation, batch.first + place) > after) and filter.matches_row(row):
            wanted.append(place)
    if not wanted:
        return None
    if len(wanted) == len(rows):
        return Part(batch.incarnation, batch.first, batch.count, (), batch.rows)
    return Part(
        batch.incarnation,
        batch.first,
        batch.count,
        tuple(wanted),
        _encoder.encode([rows[place] for place in wanted]),
    )


HistoryMessage = Ask | Past

__all__ = ["Archive", "Ask", "FilterError", "HistoryMessage", "Kept", "Part", "Past"]
