"""This node's own subscriptions: what arrives is matched here, handed over, and held back while a consumer is behind.

Flow: a subscription's consumer says what it has taken (``taken``). While more than ``buffer`` events wait for it, this node
does not report the batches that brought them, so their publishers' windows fill and they slow down: back-pressure runs end
to end and no relay ever stops reading. After ``block`` a subscription that takes nothing is cut off (``SlowPolicy.BLOCK``); with
``SlowPolicy.DROP_OLDEST`` the driver drops instead, counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import repeat
from typing import TYPE_CHECKING, Any

import msgspec

from gossamer.filters import Event, Filter, Schema, Type
from gossamer.filters.packed import COLUMNS_MARK, Columns, Packed
from gossamer.machine import MILLISECOND, NEVER, SECOND, Deliver, Effect, Micros, Note, Peer, Token
from gossamer.node.matcher import INDEX_FROM, Matcher
from gossamer.node.outbox import VALUE_BYTES
from gossamer.node.planes import Key, Route
from gossamer.node.rights import Rights
from gossamer.node.topics import TopicError
from gossamer.overlay.batch import Batch
from gossamer.trace import Delivered, Dropped, Rejected, hex_peer

UNPROVED_BYTES = 16 << 20  # of events that wait for their publisher's certificate
PROOF_WAIT = Micros(5 * SECOND)  # certificates travel with the view, which takes milliseconds
PROOF_LOOK = Micros(20 * MILLISECOND)

if TYPE_CHECKING:
    from gossamer.node.follow import Follow


class SlowPolicy(StrEnum):
    BLOCK = "block"
    DROP_OLDEST = "drop_oldest"


class Topic:
    """What this node does with a topic that it knows the schema of."""

    __slots__ = ("matchers", "name", "packed", "row", "schema", "subscriptions", "values", "weigh")

    def __init__(self, name: str, schema: Schema) -> None:
        self.name, self.schema = name, schema
        self.row, self.values = schema.row, schema.values
        self.packed, self.weigh = Packed(schema), _weigher(schema)
        self.subscriptions: dict[Route, dict[int, Subscription]] = {}
        self.matchers: dict[Route, Matcher | None] = {}  # where there are many; None: there is no NumPy

    def matcher(self, route: Route) -> Matcher | None:
        """The index over the subscriptions of this route, if they are many."""
        wanted = self.subscriptions[route]
        if len(wanted) <= INDEX_FROM:
            return None
        if route not in self.matchers:
            try:
                self.matchers[route] = Matcher(self, wanted.values())
            except ImportError:
                self.matchers[route] = None
        return self.matchers[route]


def _weigher(schema: Schema) -> Callable[[tuple[Any, ...]], int]:
    """A function that estimates a row's bytes, a character as one; generated, because every event pays for it."""
    places = [place for place, kind in enumerate(schema.types) if kind in (Type.STRING, Type.BINARY)]
    terms = [str(VALUE_BYTES * len(schema.types)), *(f"len(row[{place}] or ())" for place in places)]
    made: Callable[[tuple[Any, ...]], int] = eval(f"lambda row: {' + '.join(terms)}")
    return made


class Subscription:
    """``SELECT * FROM topic WHERE filter``, at this node."""

    __slots__ = (
        "backlog",
        "blocked_at",
        "filter",
        "follow",
        "held",
        "in_force",
        "mask",
        "number",
        "policy",
        "route",
        "source",
        "topic",
        "was_in_force",
    )

    def __init__(self, number: int, topic: Topic, filter: Filter, policy: SlowPolicy, source: str, route: Route) -> None:
        self.number, self.topic, self.filter, self.policy, self.source = number, topic, filter, policy, source
        self.route = route
        self.in_force = self.was_in_force = False  # every publication from now on finds it; and whether that was so before
        self.mask: Callable[[Any], Any] | None = None  # the same over columns, once it is needed
        self.follow: Follow | None = None  # if it is durable, ordered, or wants the past
        self.backlog = 0  # events handed over that the consumer has not taken; durable: stored and not acknowledged
        self.blocked_at = NEVER
        self.held: dict[tuple[Route, Key], None] = {}  # batches whose report waits for this consumer

    @property
    def matches(self) -> Callable[[tuple[Any, ...]], bool]:
        """Whether a row passes. Compiled when it is first asked: an index that many are in asks none of them."""
        return self.filter.matches_row


class _Held:
    __slots__ = ("blockers", "matched")

    def __init__(self, matched: tuple[int, ...], blockers: int) -> None:
        self.matched, self.blockers = matched, blockers


class Local:
    """The subscriptions, by number. ``out`` is the node's list of effects; ``released`` says what may be reported now."""

    def __init__(
        self,
        schemas: Mapping[str, Schema],
        out: list[Effect],
        *,
        buffer: int,
        block: Micros,
        tracing: bool,
        durable: int = 0,
    ) -> None:
        self.subscriptions: dict[int, Subscription] = {}
        self.topics: dict[str, Topic] = {}
        self.blocked: dict[int, Subscription] = {}  # in the order in which they were blocked
        self.released: list[tuple[Route, Key, tuple[int, ...]]] = []
        self.rights: Rights | None = None
        self._schemas, self._out = schemas, out
        self._buffer, self._block, self._tracing = buffer, block, tracing
        self._durable = durable or buffer
        self._held: dict[tuple[Route, Key], _Held] = {}
        self._storing: dict[Token, list[tuple[Route, Key]]] = {}  # batches whose report waits for a disk
        self._unproved: dict[tuple[Route, Key], tuple[Batch, Micros]] = {}  # and until when they wait
        self._unproved_bytes = 0
        self.unproved_at = NEVER

    def limit(self, subscription: Subscription) -> int:
        """How many events may wait for its consumer."""
        is_durable = subscription.follow is not None and subscription.follow.tap is not None
        return self._durable if is_durable else self._buffer

    def topic(self, name: str) -> Topic:
        known = self.topics.get(name)
        if known is None:
            schema = self._schemas.get(name)
            if schema is None:
                raise TopicError(f"topic {name!r} is not advertised (as far as this node knows): advertise it first")
            known = self.topics[name] = Topic(name, schema)
        return known

    def add(self, subscription: Subscription) -> None:
        self.subscriptions[subscription.number] = subscription
        topic, route = subscription.topic, subscription.route
        topic.subscriptions.setdefault(route, {})[subscription.number] = subscription
        matcher = topic.matchers.get(route)
        if matcher is not None:
            matcher.add(subscription)

    def remove(self, number: int) -> Subscription | None:
        subscription = self.subscriptions.pop(number, None)
        if subscription is not None:
            topic, route = subscription.topic, subscription.route
            del topic.subscriptions[route][number]
            matcher = topic.matchers.get(route)
            if matcher is not None:
                matcher.remove(number)
                if len(topic.subscriptions[route]) <= INDEX_FROM // 2:
                    del topic.matchers[route]
            self._release(subscription)
            if subscription.follow is not None:
                subscription.follow.ended()
        return subscription

    # -------------------------------------------------------------------- arrivals

    def arrived(self, route: Route, batch: Batch, now: Micros) -> tuple[int, ...] | None:
        """Hand a batch over; how many subscriptions took each event, () for none, or None: ``released`` will say it."""
        known = self.topics.get(batch.topic)
        wanted = known.subscriptions.get(route) if known is not None else None
        if known is None or not wanted:
            return ()
        if self.rights is not None:
            takes = self.rights.takes(Peer(batch.publisher), batch.topic)
            if takes is None and self._wait(route, batch, now):
                return None
            if not takes:
                reason = f"events on {batch.topic!r}, to which it may not publish"
                self._out.append(Note(Rejected(hex_peer(batch.publisher), reason)))
                return ()
        return self._match(route, known, wanted, batch, now)

    def _wait(self, route: Route, batch: Batch, now: Micros) -> bool:
        """Keep a batch whose publisher's certificate has not come yet: it may be on its way. False if there is no room."""
        size = len(batch.rows) + 200
        if self._unproved_bytes + size > UNPROVED_BYTES:
            self._out.append(Note(Dropped("batch", 1, "too many events of publishers that nobody has proved")))
            return False
        key = (batch.publisher, batch.incarnation, batch.first)
        if (route, key) not in self._unproved:
            self._unproved[route, key] = (batch, Micros(now + PROOF_WAIT))
            self._unproved_bytes += size
            self.unproved_at = min(self.unproved_at, Micros(now + PROOF_LOOK))
        return True

    def prove(self, now: Micros) -> None:
        """Look again at what waits for proof; ``released`` says what came of it."""
        if now < self.unproved_at or self.rights is None:
            return
        for (route, key), (batch, until) in list(self._unproved.items()):
            if until <= now or self.rights.identity(Peer(batch.publisher)) is not None:
                del self._unproved[route, key]
                self._unproved_bytes -= len(batch.rows) + 200
                known = self.topics.get(batch.topic)
                wanted = known.subscriptions.get(route) if known is not None else None
                matched: tuple[int, ...] | None = ()
                if known is not None and wanted and self.rights.takes(Peer(batch.publisher), batch.topic):
                    matched = self._match(route, known, wanted, batch, now)
                elif until <= now:
                    reason = f"events on {batch.topic!r} of a publisher that nobody has proved"
                    self._out.append(Note(Rejected(hex_peer(batch.publisher), reason)))
                if matched is not None:
                    self.released.append((route, key, matched))
        self.unproved_at = Micros(now + PROOF_LOOK) if self._unproved else NEVER

    def _match(
        self, route: Route, known: Topic, wanted: dict[int, Subscription], batch: Batch, now: Micros
    ) -> tuple[int, ...] | None:
        try:
            rows: Any
            hand_over: Callable[[Subscription, Batch, Any, list[int] | None], tuple[int, ...]]
            is_columns = batch.rows.startswith(COLUMNS_MARK)
            if is_columns:
                rows, hand_over = known.packed.columns(batch.rows, batch.count), self._hand_over_columns
            else:
                rows, hand_over = known.packed.decode(batch.rows), self._hand_over
                if len(rows) != batch.count:
                    raise msgspec.ValidationError(f"{len(rows)} rows in a batch of {batch.count}")
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            self._out.append(Note(Rejected(hex_peer(batch.publisher), f"events on {batch.topic!r}: {error}")))
            return ()
        key = (batch.publisher, batch.incarnation, batch.first)
        if (route, key) in self._held:  # on another topic, or so late that its plane has forgotten it
            self._out.append(Note(Rejected(hex_peer(batch.publisher), f"events on {batch.topic!r} with the ids of others")))
            return ()
        matched: tuple[int, ...] = ()
        blockers = 0
        matcher = known.matcher(route)
        asked: Iterable[tuple[Subscription, list[int] | None]] = (
            zip(wanted.values(), repeat(None)) if matcher is None else matcher.match(rows, columns=is_columns)
        )
        for subscription, places in asked:
            follow = subscription.follow
            counts = hand_over(subscription, batch, rows, places) if follow is None else follow.arrived(batch, rows, now)
            if counts:
                matched = tuple(map(int.__add__, matched, counts)) if matched else counts
                if follow is not None and (token := follow.storing):
                    blockers += 1
                    self._storing.setdefault(token, []).append((route, key))
                if subscription.backlog > self.limit(subscription) and subscription.policy is SlowPolicy.BLOCK:
                    blockers += 1
                    subscription.held[route, key] = None
                    if subscription.number not in self.blocked:
                        subscription.blocked_at = now
                        self.blocked[subscription.number] = subscription
        if not blockers:
            return matched
        self._held[route, key] = _Held(matched, blockers)
        return None

    def _hand_over(
        self, subscription: Subscription, batch: Batch, rows: list[tuple[Any, ...]], places: list[int] | None
    ) -> tuple[int, ...]:
        """Deliver what matches (at these places, if that is known); returns 1 or 0 for each event, or nothing if none does."""
        values = subscription.topic.values
        topic, publisher, incarnation, first = batch.topic, batch.publisher, batch.incarnation, batch.first
        if places is None:
            matches = subscription.matches
            events = [
                Event(topic, publisher, incarnation, sequence, values(row))
                for sequence, row in enumerate(rows, first)
                if matches(row)
            ]
        else:
            events = [Event(topic, publisher, incarnation, first + place, values(rows[place])) for place in places]
        if not events:
            return ()
        subscription.backlog += len(events)
        self._out.append(Deliver(subscription.number, events))
        if self._tracing:
            name = hex_peer(publisher)
            for event in events:
                self._out.append(Note(Delivered(subscription.number, name, incarnation, event.sequence, batch.hops)))
        if len(events) == len(rows):
            return (1,) * len(rows)
        counts = [0] * len(rows)
        for event in events:
            counts[event.sequence - first] = 1
        return tuple(counts)

    def _hand_over_columns(
        self, subscription: Subscription, batch: Batch, record: Any, places: list[int] | None
    ) -> tuple[int, ...]:
        """As ``_hand_over``, for a record batch."""
        first = batch.first
        sequences: Sequence[int] = range(first, first + batch.count)
        counts = (1,) * batch.count
        if places is None:
            if subscription.mask is None:
                from gossamer.filters.mask import compile_mask  # needs NumPy, as whoever made the record batch has

                subscription.mask = compile_mask(subscription.filter, subscription.topic.packed)
            passed = subscription.mask(record)
            places = passed.nonzero()[0].tolist() if passed is not None else None
        if places is not None:
            if not places:
                return ()
            wants = [0] * batch.count
            for place in places:
                wants[place] = 1
            sequences, counts = [first + place for place in places], tuple(wants)
            record = record.take(subscription.topic.packed.places(places))
        events = Columns(subscription.topic.packed, batch.topic, batch.publisher, batch.incarnation, sequences, record)
        subscription.backlog += len(events)
        self._out.append(Deliver(subscription.number, events))
        if self._tracing:
            name = hex_peer(batch.publisher)
            for sequence in sequences:
                self._out.append(Note(Delivered(subscription.number, name, batch.incarnation, sequence, batch.hops)))
        return counts

    # ------------------------------------------------------------------------ flow

    def taken(self, number: int, count: int, now: Micros) -> None:
        """The consumer has taken this many events."""
        subscription = self.subscriptions.get(number)
        if subscription is None:
            return
        subscription.backlog -= count
        assert subscription.backlog >= 0
        if count and number in self.blocked:  # slow, but not asleep: only one that takes nothing is cut off
            subscription.blocked_at = now
            self.blocked[number] = self.blocked.pop(number)
        if subscription.held and subscription.backlog <= self.limit(subscription) // 2:
            self._release(subscription)

    def stored(self, token: Token) -> None:
        """What a durable subscription asked for is on disk."""
        for what in self._storing.pop(token, ()):
            self._unblock(what)

    @property
    def deadline(self) -> Micros:
        """When the first of those that hold publishers back is cut off."""
        if not self.blocked:
            return self.unproved_at
        return min(self.unproved_at, Micros(next(iter(self.blocked.values())).blocked_at + self._block))

    def overdue(self, now: Micros) -> list[Subscription]:
        return [s for s in self.blocked.values() if s.blocked_at + self._block <= now]

    def _release(self, subscription: Subscription) -> None:
        """This consumer holds nothing back any more."""
        self.blocked.pop(subscription.number, None)
        subscription.blocked_at = NEVER
        held, subscription.held = subscription.held, {}
        for what in held:
            self._unblock(what)

    def _unblock(self, what: tuple[Route, Key]) -> None:
        entry = self._held[what]
        entry.blockers -= 1
        if not entry.blockers:
            del self._held[what]
            self.released.append((*what, entry.matched))
