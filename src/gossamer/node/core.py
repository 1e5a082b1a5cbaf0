"""One node, sans-IO: topics, subscriptions, publications and their receipts, over flood for now.

``NodeCore`` is a machine made of machines: ``Topics`` spreads advertisements, ``Flood`` carries batches. It takes what flood
hands over, matches it against the node's own subscriptions, and tells flood how many took each event.

Flow: a subscription's consumer says what it has taken (``taken``). While more than ``buffer`` events wait for it, this node
does not report the batches that brought them, so their publishers' windows fill and they slow down: back-pressure runs end
to end and no relay ever stops reading. After ``block`` a subscription that takes nothing is cut off (``SlowPolicy.BLOCK``); with
``SlowPolicy.DROP_OLDEST`` the driver drops instead, counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from random import Random
from typing import Any

import msgspec

from gossamer.filters import Event, Filter, Schema, Type
from gossamer.machine import (
    NEVER,
    SECOND,
    Deliver,
    Effect,
    Hangup,
    Keep,
    LinkState,
    Message,
    Micros,
    Note,
    Peer,
    Send,
    Store,
    Token,
)
from gossamer.node.outbox import VALUE_BYTES, Limits, Outbox, Publication, Ticket, WindowFullError, rows_decoder
from gossamer.node.topics import Adverts, AdvertsTaken, TopicError, Topics
from gossamer.overlay.batch import NEIGHBOURS_MAX, Batch, Busy, Leave, Report
from gossamer.overlay.flood import Flood, FloodConfig, Key
from gossamer.overlay.interest.config import InterestConfig
from gossamer.overlay.interest.core import Interest, InterestError
from gossamer.overlay.interest.messages import InterestMessage
from gossamer.overlay.interest.record import ViewChange
from gossamer.trace import (
    Completed,
    Delivered,
    Dropped,
    Member,
    Published,
    Rejected,
    Restored,
    Subscribed,
    Subscribing,
    Unsubscribed,
    hex_peer,
    plain,
)

INCARNATION_KEY = "incarnation"
OPEN_MAX = 4096  # events in open batches, all topics together: the window counts sealed events only


class SlowPolicy(StrEnum):
    BLOCK = "block"
    DROP_OLDEST = "drop_oldest"


class NodeConfig(Limits, frozen=True, kw_only=True):
    """Every limit of a node."""

    buffer: int = 16_384  # events that may wait for one subscription's consumer
    block: Micros = Micros(5 * SECOND)  # how long a full buffer holds publishers back before the subscription is cut off
    subscriptions: int = 1_000_000  # subscriptions of this node
    trace: bool = False  # write a Note for each publication, hand-over and receipt
    flood: FloodConfig = FloodConfig()
    interest: InterestConfig | None = None  # None: links are somebody else's business, and there is no view


class _Topic:
    """What this node does with a topic that it knows the schema of."""

    __slots__ = ("decoder", "name", "row", "schema", "subscriptions", "values", "weigh")

    def __init__(self, name: str, schema: Schema) -> None:
        self.name, self.schema = name, schema
        self.row, self.values = schema.row, schema.values
        self.decoder, self.weigh = rows_decoder(schema), _weigher(schema)
        self.subscriptions: dict[int, Subscription] = {}


def _weigher(schema: Schema) -> Callable[[tuple[Any, ...]], int]:
    """A function that estimates a row's bytes, a character as one; generated, because every event pays for it."""
    places = [place for place, kind in enumerate(schema.types) if kind in (Type.STRING, Type.BINARY)]
    terms = [str(VALUE_BYTES * len(schema.types)), *(f"len(row[{place}] or ())" for place in places)]
    made: Callable[[tuple[Any, ...]], int] = eval(f"lambda row: {' + '.join(terms)}")
    return made


class Subscription:
    """``SELECT * FROM topic WHERE filter``, at this node."""

    __slots__ = ("backlog", "blocked_at", "filter", "held", "matches", "number", "policy", "source", "topic")

    def __init__(self, number: int, topic: _Topic, filter: Filter, policy: SlowPolicy, source: str) -> None:
        self.number, self.topic, self.filter, self.policy, self.source = number, topic, filter, policy, source
        self.matches: Callable[[tuple[Any, ...]], bool] = filter.matches_row
        self.backlog = 0  # events handed over that the consumer has not taken
        self.blocked_at = NEVER
        self.held: dict[Key, None] = {}  # batches whose report waits for this consumer


class _Held:
    __slots__ = ("blockers", "matched")

    def __init__(self, matched: tuple[int, ...], blockers: int) -> None:
        self.matched, self.blockers = matched, blockers


class NodeCore:
    """The machine that a driver runs."""

    def __init__(
        self,
        peer: Peer,
        *,
        incarnation: int,
        rng: Random,
        config: NodeConfig | None = None,
        restored: Mapping[str, bytes] | None = None,
        durable: bool = False,
        ticket: Callable[[Publication, int], Ticket] = Ticket,
        address: str = "",
    ) -> None:
        self.peer, self.incarnation, self.rng = peer, incarnation, rng
        self.config = config = config or NodeConfig()
        self.topics = Topics()
        self.flood = Flood(peer, config.flood, restarted=incarnation > 1)
        self.outbox = Outbox(peer, incarnation, config, durable=durable)
        self.interest: Interest | None = None
        self.view_changes: list[ViewChange] = []  # since the driver last looked; the driver clears it
        self.subscriptions: dict[int, Subscription] = {}
        self.changed: list[Publication] = []  # accepted or complete since the driver last looked; the driver clears it
        self._ticket, self._tracing = ticket, config.trace
        self._heavy = config.event_bytes // 4  # an event that is estimated to be larger than this is measured
        self._batch_events, self._batch_bytes = config.batch_events, config.batch_bytes
        self._known: dict[str, _Topic] = {}
        self._numbers = 0
        self._held: dict[Key, _Held] = {}
        self._blocked: dict[int, Subscription] = {}
        self._out: list[Effect] = []
        self._handlers: dict[type[Message], Callable[[Peer, Any, Micros], list[Effect]]] = {
            Batch: self.flood.receive,
            Report: self.flood.receive,
            Busy: self.flood.receive,
            Leave: self.flood.receive,
            Adverts: self.topics.receive,
            AdvertsTaken: self.topics.receive,
        }
        if config.interest is not None:
            self.interest = Interest(
                peer, incarnation=incarnation, address=address, rng=rng, config=config.interest, durable=durable,
                restored=restored,
            )  # fmt: skip
            for kind in InterestMessage.__args__:
                self._handlers[kind] = self._receive_interest
        if durable:
            # Stores are kept in order, so no publication of this incarnation is on disk without this record.
            self._out.append(Store(self.outbox.token(), (Keep(INCARNATION_KEY, b"%d" % incarnation),)))
        self._again = self.outbox.restore(dict(restored or {}))
        if restored is not None:
            self._out.append(Note(Restored(incarnation, sum(batch.count for batch, _ in self._again))))

    # ---------------------------------------------------------------- commands

    def advertise(self, topic: str, schema: str | Schema, now: Micros) -> Schema:
        parsed = Schema.parse(schema) if isinstance(schema, str) else schema
        self._absorb(self.topics.advertise(topic, parsed, now), now)
        return parsed

    def subscribe(
        self, topic: str, filter: str, now: Micros, policy: SlowPolicy = SlowPolicy.BLOCK, source: str = "user"
    ) -> int:
        """Returns the subscription's number. Raises TopicError for a topic that is not known here (yet), and FilterError."""
        known = self._topic(topic)
        parsed = Filter.parse(filter, known.schema)
        if len(self.subscriptions) >= self.config.subscriptions:
            raise TopicError(f"this node has {len(self.subscriptions)} subscriptions already, its maximum (subscriptions)")
        if self.interest is not None:
            try:
                self.interest.subscribe(topic, now, source=source)
            except InterestError as error:
                raise TopicError(str(error)) from None
        self._numbers += 1
        subscription = Subscription(self._numbers, known, parsed, policy, source)
        self.subscriptions[subscription.number] = subscription
        known.subscriptions[subscription.number] = subscription
        if self.config.trace:
            # Flood keeps no routing state: a subscription is in force as soon as its own node knows it.
            # The user's own text: whoever judges the trace must not depend on how we read it.
            self._out.append(Note(Subscribing(subscription.number, topic, filter.strip() or "TRUE")))
            self._out.append(Note(Subscribed(subscription.number)))
        return subscription.number

    def unsubscribe(self, number: int, now: Micros, reason: str = "asked") -> None:
        subscription = self.subscriptions.pop(number, None)
        if subscription is None:
            return
        del subscription.topic.subscriptions[number]
        if self.interest is not None:
            self.interest.unsubscribe(subscription.topic.name, now, subscription.source)
        self._release(subscription, now)
        if self.config.trace or reason != "asked":
            self._out.append(Note(Unsubscribed(number, reason)))

    def publish(self, topic: str, event: Mapping[str, Any], now: Micros) -> Ticket:
        """Accept an event. What comes of it leaves with the next ``wake``, together with what else is published till then."""
        outbox = self.outbox
        if outbox.is_full:
            raise WindowFullError(f"{outbox.events} events without a receipt, the most allowed (window, window_bytes)")
        known = self._known.get(topic) or self._topic(topic)
        row = known.row(event)
        size = known.weigh(row)
        if size > self._heavy:
            outbox.measure(topic, row)
        publication = outbox.open.get(topic) or outbox.begin(topic)
        rows = publication.rows
        ticket = self._ticket(publication, len(rows))
        rows.append(row)
        publication.size += size
        if self._tracing:
            publication.traced.append(plain(known.values(row)))
        if len(rows) >= self._batch_events or publication.size >= self._batch_bytes:
            self._seal(topic, now)
        outbox.opened += 1
        if outbox.opened >= OPEN_MAX:
            self._seal_all(now)
        return ticket

    def taken(self, number: int, count: int, now: Micros) -> None:
        """The consumer has taken this many events."""
        subscription = self.subscriptions.get(number)
        if subscription is None:
            return
        subscription.backlog -= count
        assert subscription.backlog >= 0
        if count and number in self._blocked:  # slow, but not asleep: only one that takes nothing is cut off
            subscription.blocked_at = now
            self._blocked[number] = self._blocked.pop(number)
        if subscription.held and subscription.backlog <= self.config.buffer // 2:
            self._release(subscription, now)

    def leave(self, now: Micros) -> None:
        """Tell the neighbours that this node goes for good. With a view, say so first (``say_goodbye``)."""
        links = tuple(self.flood.links)
        if links:
            # Neighbours that have all opened other links already need not wait for each other.
            alone = () if self.interest is not None and self.interest.may_go else links[:NEIGHBOURS_MAX]
            self._out.append(Send(links, Leave(alone)))

    def say_goodbye(self, now: Micros) -> None:
        """Let the neighbours open other links before this node's go; ``interest.may_go`` says when they have."""
        if self.interest is not None:
            self.interest.leave(now)

    def blocked(self) -> list[int]:
        """Subscriptions that hold publishers back now."""
        return list(self._blocked)

    # ------------------------------------------------------------------ inputs

    @property
    def window_is_open(self) -> bool:
        return not self.outbox.is_full

    @property
    def deadline(self) -> Micros:
        if self._out or self.outbox.open or self._again:
            return Micros(0)
        deadline = min(self.flood.deadline, self.topics.deadline)
        if self.interest is not None:
            deadline = min(deadline, self.interest.deadline)
        if self._blocked:
            first = next(iter(self._blocked.values()))  # blocked in this order
            deadline = min(deadline, Micros(first.blocked_at + self.config.block))
        return deadline

    def receive(self, sender: Peer, message: Message, now: Micros) -> list[Effect]:
        handler = self._handlers.get(type(message))
        if handler is None:
            self._out.append(Note(Rejected(hex_peer(sender), f"unexpected {type(message).__name__}")))
        else:
            self._absorb(handler(sender, message, now), now)
        return self._flush()

    def wake(self, now: Micros) -> list[Effect]:
        if self._again:
            again, self._again = self._again, []
            for batch, _ in again:
                self._absorb(self.flood.publish(batch, now), now)
        self._seal_all(now)
        self._absorb(self.topics.wake(now), now)
        self._absorb(self.flood.wake(now), now)
        if self.interest is not None:
            self._absorb_interest(self.interest.wake(now))
        for subscription in [s for s in self._blocked.values() if s.blocked_at + self.config.block <= now]:
            self._out.append(Note(Dropped("subscription", subscription.backlog, "slow: its events were not taken in time")))
            self.unsubscribe(subscription.number, now, "slow")
        return self._flush()

    def link(self, peer: Peer, state: LinkState, now: Micros) -> list[Effect]:
        self._absorb(self.topics.link(peer, state, now), now)
        self._absorb(self.flood.link(peer, state, now), now)
        if self.interest is not None:
            self._absorb_interest(self.interest.link(peer, state, now))
        return self._flush()

    def stored(self, token: Token, now: Micros) -> list[Effect]:
        ready = self.outbox.stored(token) if token > 0 else None  # others are the interest plane's, which waits for none
        if ready is not None:
            batch, publication = ready
            self.changed.append(publication)
            self._absorb(self.flood.publish(batch, now), now)
        return self._flush()

    # ------------------------------------------------------------------ inside

    def _topic(self, name: str) -> _Topic:
        known = self._known.get(name)
        if known is None:
            schema = self.topics.schemas.get(name)
            if schema is None:
                raise TopicError(f"topic {name!r} is not advertised (as far as this node knows): advertise it first")
            known = self._known[name] = _Topic(name, schema)
        return known

    def _seal(self, topic: str, now: Micros) -> None:
        publication, batch, effects = self.outbox.seal(topic)
        for sequence, values in enumerate(publication.traced, publication.first):
            self._out.append(Note(Published(topic, sequence, self.incarnation, values)))
        publication.traced = []
        self._out += effects
        if batch is not None:
            self._absorb(self.flood.publish(batch, now), now)

    def _seal_all(self, now: Micros) -> None:
        for topic in list(self.outbox.open):
            self._seal(topic, now)
        self.outbox.opened = 0

    def _absorb(self, effects: list[Effect], now: Micros) -> None:
        """Take what a child machine says: its deliveries are ours to match, the rest is passed on."""
        for effect in effects:
            if type(effect) is Deliver:
                for batch in effect.events:
                    self._arrived(batch, now)
            else:
                self._out.append(effect)
        finished = self.flood.finished
        while finished:
            receipt = finished.pop(0)
            publication, stores = self.outbox.complete(receipt.incarnation, receipt.first, receipt.matched)
            self._out += stores
            self.changed.append(publication)
            if self.config.trace:
                for index, matched in enumerate(receipt.matched):
                    self._out.append(Note(Completed(receipt.first + index, receipt.incarnation, matched)))

    def _receive_interest(self, sender: Peer, message: Any, now: Micros) -> list[Effect]:
        assert self.interest is not None
        self._absorb_interest(self.interest.receive(sender, message, now))
        return []

    def _absorb_interest(self, effects: list[Effect]) -> None:
        """What the interest plane says: its view changes are kept for the driver, links that it closes are not waited for."""
        for effect in effects:
            if type(effect) is Deliver:
                self.view_changes += effect.events
                if self._tracing:
                    for change in effect.events:
                        if change.reason != "news":
                            record = change.after if change.after is not None else change.before
                            self._out.append(Note(Member(hex_peer(change.peer), record.incarnation, change.reason)))
            else:
                if type(effect) is Hangup:
                    self.flood.unlink(effect.peer)
                    self._out.append(Send((effect.peer,), Leave()))
                self._out.append(effect)

    def _arrived(self, batch: Batch, now: Micros) -> None:
        key = (batch.publisher, batch.incarnation, batch.first)
        known = self._known.get(batch.topic)
        if known is None or not known.subscriptions:
            self._absorb(self.flood.took(key, (), now), now)
            return
        try:
            rows = known.decoder.decode(batch.rows)
            if len(rows) != batch.count:
                raise msgspec.ValidationError(f"{len(rows)} rows in a batch of {batch.count}")
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            self._out.append(Note(Rejected(hex_peer(batch.publisher), f"events on {batch.topic!r}: {error}")))
            self._absorb(self.flood.took(key, (), now), now)
            return
        matched: tuple[int, ...] = ()
        blockers = 0
        for subscription in known.subscriptions.values():
            counts = self._hand_over(subscription, batch, rows)
            if counts:
                matched = tuple(map(int.__add__, matched, counts)) if matched else counts
                if subscription.backlog > self.config.buffer and subscription.policy is SlowPolicy.BLOCK:
                    blockers += 1
                    subscription.held[key] = None
                    if subscription.number not in self._blocked:
                        subscription.blocked_at = now
                        self._blocked[subscription.number] = subscription
        if blockers:
            self._held[key] = _Held(matched, blockers)
        else:
            self._absorb(self.flood.took(key, matched, now), now)

    def _hand_over(self, subscription: Subscription, batch: Batch, rows: list[tuple[Any, ...]]) -> tuple[int, ...]:
        """Deliver what matches; returns 1 or 0 for each event, or nothing if none matched."""
        values, matches = subscription.topic.values, subscription.matches
        topic, publisher, incarnation, first = batch.topic, batch.publisher, batch.incarnation, batch.first
        events = [
            Event(topic, publisher, incarnation, sequence, values(row))
            for sequence, row in enumerate(rows, first)
            if matches(row)
        ]
        if not events:
            return ()
        subscription.backlog += len(events)
        self._out.append(Deliver(subscription.number, events))
        if self.config.trace:
            name = hex_peer(publisher)
            for event in events:
                self._out.append(Note(Delivered(subscription.number, name, incarnation, event.sequence, batch.hops)))
        if len(events) == len(rows):
            return (1,) * len(rows)
        counts = [0] * len(rows)
        for event in events:
            counts[event.sequence - first] = 1
        return tuple(counts)

    def _release(self, subscription: Subscription, now: Micros) -> None:
        """This consumer holds nothing back any more."""
        self._blocked.pop(subscription.number, None)
        subscription.blocked_at = NEVER
        held, subscription.held = subscription.held, {}
        for key in held:
            entry = self._held[key]
            entry.blockers -= 1
            if not entry.blockers:
                del self._held[key]
                self._absorb(self.flood.took(key, entry.matched, now), now)

    def _flush(self) -> list[Effect]:
        out, self._out = self._out, []
        return out


__all__ = ["NodeConfig", "NodeCore", "SlowPolicy", "Subscription", "Ticket", "WindowFullError"]
