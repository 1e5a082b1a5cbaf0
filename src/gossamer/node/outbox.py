"""Publications: events gathered into batches, and held until their receipts are complete.

Events of one topic that are published close together become one batch. Each event is encoded when it is published, straight
into its batch, so its size is known while the caller can still be told. A batch is *sealed* when it is full or when the
driver wakes the node; then its events get consecutive sequence numbers. With a data directory a sealed batch is stored before
it is sent, and forgotten once its receipt is complete; what a crash leaves there is published again under its first ids.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from gossamer.filters import EventError, Schema
from gossamer.machine import Effect, Forget, Keep, Peer, Store, Token
from gossamer.overlay.flood import BATCH_BYTES_MAX, BATCH_EVENTS_MAX, Batch

ROUND_BITS = 20
_KEY = "out/"
_encoder = msgspec.msgpack.Encoder()
_kept_decoder = msgspec.msgpack.Decoder(Batch)


class Publication:
    """A batch from the publisher's side: open, sealed, accepted, done."""

    __slots__ = (
        "accepted",
        "buffer",
        "count",
        "first",
        "incarnation",
        "matched",
        "publisher",
        "size",
        "topic",
        "traced",
        "waiter",
    )

    def __init__(self, topic: str, publisher: Peer) -> None:
        self.topic, self.publisher = topic, publisher
        self.buffer = bytearray()  # the rows, one msgpack array each; handed over when sealed
        self.count = 0
        self.size = 0
        self.first = -1  # sequence number of the first event, once sealed
        self.incarnation = 0
        self.accepted = False  # in the outbox, and on disk where there is one
        self.matched: tuple[int, ...] | None = None  # how many subscriptions took each event, once complete
        self.traced: list[dict[str, Any]] = []  # the events' values, when the node writes a trace
        self.waiter: Any = None  # the driver's, for whoever waits for this batch


class Ticket(Struct, frozen=True, weakref=False):
    """One published event: where to look for its receipt."""

    publication: Publication
    index: int

    @property
    def id(self) -> tuple[int, int] | None:
        """(incarnation, sequence) once the batch is sealed."""
        publication = self.publication
        return None if publication.first < 0 else (publication.incarnation, publication.first + self.index)

    @property
    def done(self) -> bool:
        return self.publication.matched is not None

    @property
    def matched(self) -> int:
        matched = self.publication.matched
        assert matched is not None, "the receipt is not complete yet"
        return matched[self.index]


class WindowFullError(RuntimeError):
    """Too many events without a receipt: wait for some to complete. ``Node.publish`` waits by itself."""


def array_header(count: int) -> bytes:
    """Msgpack's header of an array of this many elements."""
    if count < 16:
        return bytes((0x90 | count,))
    return b"\xdc" + count.to_bytes(2, "big")


class Outbox:
    """Sealed publications in order, per incarnation, with floors and, where asked for, a disk behind them."""

    def __init__(
        self, me: Peer, incarnation: int, *, durable: bool, batch_events: int, batch_bytes: int, event_bytes: int
    ) -> None:
        assert 1 <= batch_events <= BATCH_EVENTS_MAX
        assert batch_bytes + event_bytes <= BATCH_BYTES_MAX
        self.me, self.incarnation, self.durable = me, incarnation, durable
        self.batch_events, self.batch_bytes, self.event_bytes = batch_events, batch_bytes, event_bytes
        self.events = 0  # without a receipt, open batches included
        self.bytes = 0
        self.open: dict[str, Publication] = {}
        self._next = 1
        self._tokens = 0
        self._sealed: dict[int, dict[int, Publication]] = {incarnation: {}}
        self._storing: dict[Token, Batch] = {}

    def add(self, publication: Publication, row: tuple[Any, ...]) -> bool:
        """Put an event into its topic's open batch; says whether the batch is full."""
        buffer = publication.buffer
        before = publication.size
        _encoder.encode_into(row, buffer, before)
        publication.size = after = len(buffer)
        size = after - before
        if size > self.event_bytes:
            del buffer[before:]
            publication.size = before
            if not publication.count:
                del self.open[publication.topic]
            raise EventError(
                f"an event of {size} bytes on {publication.topic!r}; at most {self.event_bytes} are allowed (event_bytes)"
            )
        publication.count += 1
        self.events += 1
        self.bytes += size
        return publication.count >= self.batch_events or after >= self.batch_bytes

    def begin(self, topic: str) -> Publication:
        """Open a batch for a topic."""
        publication = self.open[topic] = Publication(topic, self.me)
        return publication

    def seal(self, topic: str) -> tuple[Publication, Batch | None, list[Effect]]:
        """Close the topic's open batch. Returns the batch when it may go at once, else the Store that it waits for."""
        publication = self.open.pop(topic)
        publication.first, publication.incarnation = self._next, self.incarnation
        self._next += publication.count
        mine = self._sealed[self.incarnation]
        mine[publication.first] = publication
        rows = array_header(publication.count) + bytes(publication.buffer)
        publication.buffer = bytearray()
        floor = next(iter(mine))
        batch = Batch(topic, self.me, self.incarnation, publication.first, publication.count, floor, 0, 0, rows)
        if not self.durable:
            publication.accepted = True
            return publication, batch, []
        token = self.token()
        self._storing[token] = batch
        keep = Keep(self._key(batch.incarnation, batch.first), _encoder.encode(batch))
        return publication, None, [Store(token, (keep,))]

    def stored(self, token: Token) -> tuple[Batch, Publication] | None:
        batch = self._storing.pop(token, None)
        if batch is None:
            return None
        publication = self._sealed[batch.incarnation][batch.first]
        publication.accepted = True
        return batch, publication

    def complete(self, incarnation: int, first: int, matched: tuple[int, ...]) -> tuple[Publication, list[Effect]]:
        publication = self._sealed[incarnation].pop(first)
        publication.matched = matched
        self.events -= publication.count
        self.bytes -= publication.size
        if not self.durable:
            return publication, []
        return publication, [Store(self.token(), (Forget(self._key(incarnation, first)),))]

    def restore(self, kept: dict[str, bytes]) -> list[tuple[Batch, Publication]]:
        """What an earlier life had accepted and not completed, oldest first, to be published again under its first ids."""
        batches = sorted(
            (_kept_decoder.decode(value) for key, value in kept.items() if key.startswith(_KEY)),
            key=lambda batch: (batch.incarnation, batch.first),
        )
        again: list[tuple[Batch, Publication]] = []
        floors: dict[int, int] = {}
        for batch in batches:
            floor = floors.setdefault(batch.incarnation, batch.first)
            publication = Publication(batch.topic, self.me)
            publication.count, publication.size = batch.count, len(batch.rows)
            publication.first, publication.incarnation, publication.accepted = batch.first, batch.incarnation, True
            self._sealed.setdefault(batch.incarnation, {})[batch.first] = publication
            self.events += batch.count
            self.bytes += publication.size
            # Rounds of this life come after all rounds of earlier ones, which others may remember.
            life = self.incarnation << ROUND_BITS
            fresh = Batch(batch.topic, self.me, batch.incarnation, batch.first, batch.count, floor, life, 0, batch.rows)
            again.append((fresh, publication))
        return again

    def token(self) -> Token:
        self._tokens += 1
        return Token(self._tokens)

    @staticmethod
    def _key(incarnation: int, first: int) -> str:
        return f"{_KEY}{incarnation:016d}/{first:016d}"


def rows_decoder(schema: Schema) -> msgspec.msgpack.Decoder[list[tuple[Any, ...]]]:
    """Decodes a batch's rows and checks every value's type: they come from a peer."""
    row: Any = schema.row_type
    return msgspec.msgpack.Decoder(list[row])
