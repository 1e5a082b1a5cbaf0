"""Publications: events gathered into batches, and held until their receipts are complete.

Events of one topic that are published close together become one batch. A batch is *sealed* when it
is full or when the driver wakes the node: its events get consecutive sequence numbers and are
encoded together, which costs a quarter of encoding them one by one. Until then their sizes are
estimated. With a data directory a sealed batch is stored before it is sent, and forgotten once its
receipt is complete. Batches that a crash leaves there are published again under their first ids. A
batch of a topic with retention is stored by that (retention.py), and the outbox has a mark of no
bytes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from gossamer.filters import EventError
from gossamer.filters.gather import sealed
from gossamer.filters.loops import Weighed
from gossamer.filters.packed import Bytes, Packed
from gossamer.machine import Effect, Forget, Keep, Peer, Store, Token
from gossamer.node.bounds import check_limits
from gossamer.node.retention import Id, Retained
from gossamer.overlay.batch import (
    BATCH_BYTES_MAX,
    COLUMN_ROWS,
    WINDOW_MAX,
    Batch,
    parted,
    spread,
)

ROUND_BITS = 20
# No number, time or header of a string is longer.
VALUE_BYTES = 10
# The most streams that are published once.
STREAMS_MAX = 1024
_KEY, _ONCE = "out/", "once/"
_encoder = msgspec.msgpack.Encoder()
_kept_decoder = msgspec.msgpack.Decoder(Batch)
_once_decoder = msgspec.msgpack.Decoder(tuple[int, ...])


class Publication(Weighed):
    """A batch from the publisher's side: open, sealed, accepted, done."""

    __slots__ = (
        "accepted", "columns", "count", "dropped", "first", "incarnation", "matched", "publisher",
        "refused", "rows", "topic", "traced", "waiter", "width",
    )  # fmt: skip

    def __init__(self, topic: str, publisher: Peer) -> None:
        self.topic, self.publisher = topic, publisher
        # Until it is sealed, its events are rows, or gathered columns (gather.py) of ``width``
        # attributes.
        self.rows: list[tuple[Any, ...]] = []
        self.columns: Any = None
        self.width = 0
        # The number of events. Of rows it is known once the batch is sealed.
        self.count = 0
        # The bytes, estimated while it is open.
        self.size = 0
        # The sequence number of the first event, once sealed.
        self.first = -1
        self.incarnation = 0
        # It is in the outbox, and on disk if there is one.
        self.accepted = False
        # The disk did not take it: it was not accepted, and never will be.
        self.refused = False
        # The counts of the complete receipt (``took`` and ``lost``). ``dropped`` is empty if all
        # are zero.
        self.matched: tuple[int, ...] | None = None
        self.dropped: tuple[int, ...] = ()
        # The values of the events, if the node writes a trace.
        self.traced: list[dict[str, Any]] = []
        # The driver's object for callers that wait for this batch.
        self.waiter: Any = None

    @property
    def gathered(self) -> int:
        """The number of events, sealed or not."""
        return self.count or len(self.rows)

    @property
    def weight(self) -> int:
        """The number of events, as limits count them."""
        return -(-self.count // COLUMN_ROWS) if self.width else self.gathered

    def took(self, index: int) -> int:
        """How many subscriptions took an event."""
        matched = self.matched
        assert matched is not None, "the receipt is not complete yet"
        return matched[index] if len(matched) > 1 else matched[0]

    def lost(self, index: int) -> int:
        """How many subscriptions had discarded an event when they reported it."""
        dropped = self.dropped
        if not dropped:
            return 0
        return dropped[index] if len(dropped) > 1 else dropped[0]

    @property
    def total(self) -> int:
        """The number of subscriptions that took an event, all events together."""
        assert self.matched is not None
        return sum(self.matched) if len(self.matched) > 1 else self.matched[0] * self.count

    @property
    def total_lost(self) -> int:
        """The number of subscriptions that had discarded an event, all events together."""
        return sum(spread(self.dropped, self.count))


class Ticket(Struct, frozen=True, gc=False):
    """One published event, and the place of its receipt."""

    publication: Publication
    index: int

    @property
    def id(self) -> tuple[int, int] | None:
        """(incarnation, sequence) once the batch is sealed."""
        publication = self.publication
        return (
            None
            if publication.first < 0
            else (publication.incarnation, publication.first + self.index)
        )

    @property
    def done(self) -> bool:
        return self.publication.matched is not None

    @property
    def matched(self) -> int:
        return self.publication.took(self.index)

    @property
    def dropped(self) -> int:
        return self.publication.lost(self.index)


Lane = Callable[[str, Mapping[str, Any]], Ticket | None]
"""The short way into the only open batch, for a program that publishes event after event.

Everything else has been checked. None means that the event must take the long way. The short way
ends when the batch is sealed, when a second one is opened, and when the topic's schema grows.
"""


WideLane = Callable[[str, Any], tuple[Any, int, int] | None]
"""The same for record batches. It gives the publication, and the place and number of the events in
it."""


class _Storing(Struct, frozen=True, gc=False):
    """A sealed batch on its way to the disk, and the changes to undo if the disk refuses it."""

    batch: Batch
    at: int
    retain: bool
    # The same Store tells the disk that this life publishes on the topic.
    told: bool
    # A stream, and its number in ``once`` before.
    before: tuple[str, tuple[int, ...] | None] | None


class WindowFullError(RuntimeError):
    """Too many events have no receipt. Wait for some of them; ``Node.publish`` waits by itself."""


class Limits(Struct, frozen=True, kw_only=True):
    """The most that a publisher may have on its way. Larger limits are faster, up to the limits of
    memory and latency.

    COLUMN_ROWS events that are published as columns count as one, and COLUMN_ROWS times
    ``batch_bytes`` travel together.
    """

    # Events without a receipt, beyond which ``publish`` waits; and their bytes.
    window: int = 32_768
    window_bytes: int = 32 << 20
    # The most events that travel together. If many nodes want a few each, their parts are still
    # large enough.
    batch_events: int = 4096
    # A batch is sealed when it has about reached this size.
    batch_bytes: int = 384 << 10
    # The size of one event, encoded.
    event_bytes: int = 1 << 20

    def __post_init__(self) -> None:
        check_limits(self)
        if self.batch_events > self.window:
            raise ValueError(
                f"window is {self.window}; it must be from batch_events ({self.batch_events}) to "
                f"{WINDOW_MAX // 2}"
            )
        # A batch is sealed by estimate, in which a character counts as one byte and may take four.
        if 4 * self.batch_bytes + self.event_bytes > BATCH_BYTES_MAX:
            raise ValueError(
                f"4 x batch_bytes + event_bytes must be at most {BATCH_BYTES_MAX}, "
                "the largest batch that nodes take"
            )

    @property
    def column_rows(self) -> int:
        """The most events that travel together as columns."""
        return self.batch_events * COLUMN_ROWS

    @property
    def column_bytes(self) -> int:
        """The most bytes of their values. The format, and room that stays empty, need some more."""
        return min(self.batch_bytes * COLUMN_ROWS, BATCH_BYTES_MAX // 8 * 7)


class Outbox:
    """The sealed publications of each incarnation in order, with floors and perhaps a disk."""

    def __init__(
        self, me: Peer, incarnation: int, limits: Limits, *, durable: bool, retained: Retained
    ) -> None:
        self.me, self.incarnation, self.limits, self.durable = me, incarnation, limits, durable
        self.retained = retained
        # The last event that was accepted.
        self.accepted: Id = (incarnation, 0)
        # For each topic, the last event that can be read no longer.
        self.voided: dict[str, Id] = {}
        # The number of the last batch of each stream that may be repeated.
        self.once: dict[str, tuple[int, ...]] = {}
        # Records to be stored with the next batch, and the number in ``once`` that they replace.
        self._also: tuple[Keep, ...] = ()
        self._before: tuple[str, tuple[int, ...] | None] | None = None
        # The sealed events without a receipt, their number as limits count them, and their bytes.
        self.events = 0
        self._weight = 0
        self.bytes = 0
        self._closed = False
        # It follows the changes of these numbers, so it is at most one batch late.
        self.is_full = False
        self.open: dict[str, Publication] = {}
        self.lane: Lane | None = None
        self.wide_lane: WideLane | None = None
        # The events that were accepted since all batches were last sealed together, without columns
        # that have been sealed.
        self.opened = 0
        self._next = 1
        self._tokens = 0
        self._sealed: dict[int, OrderedDict[int, Publication]] = {incarnation: OrderedDict()}
        self._storing: dict[Token, _Storing] = {}

    @property
    def floor(self) -> Id:
        """The first event of any life that has no receipt, or that will be published next."""
        firsts = [
            (incarnation, next(iter(sealed)))
            for incarnation, sealed in self._sealed.items()
            if sealed
        ]
        return min(firsts, default=(self.incarnation, self._next))

    def waits(self, id: Id) -> bool:
        """Whether the batch that begins with this event has no receipt yet."""
        return id[1] in self._sealed.get(id[0], ())

    def measure(self, topic: str, row: tuple[Any, ...]) -> None:
        """Refuses an event that is too large. Only events that may be too large are measured."""
        size = len(_encoder.encode(row))
        if size > self.limits.event_bytes:
            raise EventError(
                f"an event of {size} bytes on {topic!r}; at most {self.limits.event_bytes} are "
                "allowed (event_bytes)"
            )

    @property
    def unsettled(self) -> int:
        """The number of events without a receipt, including those in open batches."""
        return self.events + sum(publication.gathered for publication in self.open.values())

    def publications(self) -> list[Publication]:
        """All publications without a receipt."""
        return [
            *self.open.values(),
            *(one for sealed in self._sealed.values() for one in sealed.values()),
        ]

    def close(self) -> None:
        """Accepts no more events."""
        self._closed = self.is_full = True
        self.close_lanes()

    def close_lanes(self) -> None:
        """No event takes the short way any more. From now on the events in open batches are
        counted.
        """
        if self.lane is not None or self.wide_lane is not None:
            (only,) = self.open.values()
            self.opened = only.weight
        self.lane = self.wide_lane = None

    @property
    def may_open_lane(self) -> bool:
        """Whether one batch is open, and an event has only to be accepted."""
        return len(self.open) == 1 and not self.durable and not self._closed

    def begin(self, topic: str) -> Publication:
        """Open a batch for a topic."""
        if self.lane is not None or self.wide_lane is not None:
            self.close_lanes()
        publication = self.open[topic] = Publication(topic, self.me)
        return publication

    def open_lane(
        self,
        publication: Publication,
        lane: Callable[..., Any],
        ticket: Callable[[Publication, int], Ticket],
        heavy: int,
    ) -> None:
        """More events of this batch's topic may take the short way, except the one that fills the
        batch, and events of more than ``heavy`` bytes.
        """
        if len(self.open) == 1 and not self.durable and not self._closed:
            topic, rows, limits = publication.topic, publication.rows, self.limits
            self.lane = lane(
                topic, publication, rows, ticket, limits.batch_events - 1, limits.batch_bytes, heavy
            )

    def seal(
        self, topic: str, at: int = 0, retain: bool = False, packed: Packed | None = None
    ) -> tuple[Publication, Batch | None, list[Effect]]:
        """Closes the topic's open batch. Returns the batch if it may go at once, and otherwise the
        Store that it waits for.

        ``at`` is the publication time in Unix microseconds, used only if the batch is retained.
        ``packed`` is needed for a batch of columns.
        """
        publication, is_counted = self.open.pop(topic), self.wide_lane is None
        self.lane = self.wide_lane = None
        publication.count = publication.count or len(publication.rows)
        if publication.columns is not None:
            assert packed is not None
            rows: Bytes = packed.own(sealed(publication.columns), publication.width)
            self.opened -= publication.weight if is_counted else 0
        else:
            rows = _encoder.encode(publication.rows)
        publication.rows, publication.columns = [], None
        publication.first, publication.incarnation = self._next, self.incarnation
        publication.size = len(rows)
        self._next += publication.count
        self._count(publication, 1)
        mine = self._sealed[self.incarnation]
        mine[publication.first] = publication
        floor = next(iter(mine))
        # msgspec knows only bytes. Rows that are decoded in their place (wire.py), and rows that
        # were gathered, may be a memoryview.
        batch = Batch(
            topic, self.me, self.incarnation, publication.first, publication.count, floor, 0, 0,
            rows,  # type: ignore[arg-type]
        )  # fmt: skip
        if not self.durable:
            publication.accepted = True
            self._accept(batch, at, retain)
            return publication, batch, []
        token = self.token()
        key = self._key(batch.incarnation, batch.first)
        also, before, self._also, self._before = self._also, self._before, (), None
        told = [] if retain else self.retained.tell(topic, at)
        self._storing[token] = _Storing(batch, at, retain, bool(told), before)
        if not retain:
            records = (*told, Keep(key, _encoder.encode(batch)), *also)
        else:
            # Nothing is retained that was not accepted, so both are in one Store.
            kept = Keep(Retained.key(batch.incarnation, batch.first), Retained.encode(batch, at))
            records = (Keep(key, b""), kept, *also)
        return publication, None, [Store(token, records, is_awaited=True)]

    def is_void(self, batch: Batch) -> bool:
        """Whether the topic's schema was replaced after this was sealed."""
        return (batch.incarnation, batch.first) <= self.voided.get(batch.topic, (0, 0))

    def mark(self, stream: str, number: tuple[int, ...]) -> bool:
        """The batch that is sealed next has this number in a stream that may be repeated.

        Returns False if it was accepted before.
        """
        if self.once.get(stream, ()) >= number:
            return False
        if stream not in self.once and len(self.once) >= STREAMS_MAX:
            raise EventError(
                f"more than {STREAMS_MAX} streams that are published once; "
                "use another data directory"
            )
        if self.durable:
            self._before = (stream, self.once.get(stream))
            self._also = (Keep(f"{_ONCE}{stream}", _encoder.encode(number)),)
        self.once[stream] = number
        return True

    def _accept(self, batch: Batch, at: int, retain: bool) -> None:
        self.accepted = (batch.incarnation, batch.first + batch.count - 1)
        retain = retain and not self.is_void(batch)
        (self.retained.add if retain else self.retained.skip)(batch, at)

    def stored(self, token: Token) -> tuple[Batch, Publication] | None:
        found = self._storing.pop(token, None)
        if found is None:
            return None
        batch = found.batch
        self._accept(batch, found.at, found.retain)
        publication = self._sealed[batch.incarnation][batch.first]
        publication.accepted = True
        return batch, publication

    def unstored(self, tokens: Sequence[Token]) -> list[Publication]:
        """The disk did not take these. Returns the publications among them, which were not accepted
        and are forgotten.
        """
        refused: list[Publication] = []
        # The last one comes first. If a stream has several of them, the number before the first
        # counts again.
        for token in reversed(tokens):
            found = self._storing.pop(token, None)
            if found is None:
                continue
            batch = found.batch
            if found.told:
                self.retained.untell(batch.topic)
            if found.before is not None:
                stream, number = found.before
                if number is None:
                    del self.once[stream]
                else:
                    self.once[stream] = number
            publication = self._sealed[batch.incarnation].pop(batch.first)
            publication.refused = True
            self._count(publication, -1)
            refused.append(publication)
        return refused[::-1]

    def complete(
        self, incarnation: int, first: int, matched: tuple[int, ...]
    ) -> tuple[Publication, list[Effect]]:
        publication = self._sealed[incarnation].pop(first)
        publication.matched, publication.dropped = parted(matched)
        self._count(publication, -1)
        if not self.durable:
            return publication, []
        return publication, [Store(self.token(), (Forget(self._key(incarnation, first)),))]

    def void(self, topic: str) -> tuple[int, list[Keep | Forget]]:
        """No node can read the topic's earlier events any more.

        The disk forgets those without a receipt. Returns their number, and the records. Batches
        that are under way go on, and their receipts say how many subscriptions took them.
        """
        self.voided[topic] = (self.incarnation, self._next - 1)
        found = [
            one
            for sealed in self._sealed.values()
            for one in sealed.values()
            if one.topic == topic and one.first >= 0
        ]
        records: list[Keep | Forget] = [
            Forget(key)
            for one in found
            for key in (
                self._key(one.incarnation, one.first),
                Retained.key(one.incarnation, one.first),
            )
        ]
        return sum(one.count for one in found), records

    def restore(self, kept: dict[str, bytes]) -> list[tuple[Batch, Publication]]:
        """The batches that an earlier life had accepted and not completed, oldest first. They are
        published again under their first ids.
        """
        batches = sorted(
            (
                batch
                for key, value in kept.items()
                if key.startswith(_KEY)
                if (batch := self._read(key, value, kept))
            ),
            key=lambda batch: (batch.incarnation, batch.first),
        )
        self.once = {
            key.removeprefix(_ONCE): _once_decoder.decode(kept[key])
            for key in kept
            if key.startswith(_ONCE)
        }
        again: list[tuple[Batch, Publication]] = []
        floors: dict[int, int] = {}
        for batch in batches:
            floor = floors.setdefault(batch.incarnation, batch.first)
            publication = Publication(batch.topic, self.me)
            publication.count, publication.size, publication.width = (
                batch.count,
                len(batch.rows),
                int(batch.is_columns),
            )
            publication.first, publication.incarnation, publication.accepted = (
                batch.first,
                batch.incarnation,
                True,
            )
            self._sealed.setdefault(batch.incarnation, OrderedDict())[batch.first] = publication
            self._count(publication, 1)
            # Rounds of this life come after all rounds of earlier ones, which others may remember.
            life = self.incarnation << ROUND_BITS
            fresh = Batch(
                batch.topic,
                self.me,
                batch.incarnation,
                batch.first,
                batch.count,
                floor,
                life,
                0,
                batch.rows,
            )
            again.append((fresh, publication))
        return again

    @staticmethod
    def _read(key: str, value: bytes, kept: dict[str, bytes]) -> Batch | None:
        if value:
            return _kept_decoder.decode(value)
        retained = kept.get(Retained.key(*map(int, key.removeprefix(_KEY).split("/"))))
        # After a torn write there is none, and the batch was never accepted.
        return Retained.decode(retained).batch if retained is not None else None

    def _count(self, publication: Publication, sign: int) -> None:
        self.events += sign * publication.count
        self.bytes += sign * publication.size
        self._weight += sign * (publication.weight if publication.width else publication.count)
        over = self._weight >= self.limits.window or self.bytes >= self.limits.window_bytes
        self.is_full = over or self.events >= WINDOW_MAX // 2 or self._closed

    def token(self) -> Token:
        self._tokens += 1
        return Token(self._tokens)

    @staticmethod
    def _key(incarnation: int, first: int) -> str:
        return f"{_KEY}{incarnation:016d}/{first:016d}"
