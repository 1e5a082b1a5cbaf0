"""This node's own subscriptions. Batches that arrive are matched here and handed over, and their
reports are held back while a consumer is behind.

Flow: a subscription's consumer tells how many events it has taken (``taken``). While more than
``buffer`` events wait for it, this node does not report the batches that brought them. So the
windows of their publishers fill and the publishers slow down: back-pressure runs from end to end,
and no relay ever stops reading. After ``block`` a subscription that takes nothing is cut off
(``SlowPolicy.BLOCK``); with ``SlowPolicy.DROP_OLDEST`` the driver drops instead, counted.

Reports: an event is reported when it is in the buffer of each subscription that wants it, and the
buffer is not over its limit. The report then says ``matched``. A report that is held back learns
more: when the subscription ends first, the events that its consumer had not taken by then are
reported as ``dropped`` (``_discard``), and so are those of one batch that ``DROP_OLDEST`` pushes
out by later ones of the same batch. An event that was reported first and discarded later stays
``matched``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import repeat
from typing import TYPE_CHECKING, Any

import msgspec

from gossamer.filters import Filter, Schema, Type
from gossamer.filters.gather import Gather
from gossamer.filters.packed import Columns, Listed, Packed, private
from gossamer.filters.packed import is_columns as is_column_batch
from gossamer.machine import MILLISECOND, NEVER, SECOND, Deliver, Effect, Micros, Note, Peer, Token
from gossamer.node.life import LIFE, State, Step, after
from gossamer.node.matcher import INDEX_FROM, Matcher
from gossamer.node.outbox import VALUE_BYTES
from gossamer.node.planes import Key, Route
from gossamer.node.rights import Rights
from gossamer.node.topics import TopicError
from gossamer.overlay.batch import COLUMN_ROWS, Batch, added, discarded, less
from gossamer.trace import Delivered, Discarded, Dropped, Rejected, hex_peer

# The most bytes of events that wait for their publisher's certificate.
UNPROVED_BYTES = 16 << 20
# Certificates travel with the view, which takes milliseconds.
PROOF_WAIT = Micros(5 * SECOND)
PROOF_LOOK = Micros(20 * MILLISECOND)

if TYPE_CHECKING:
    from gossamer.node.follow import Follow
    from gossamer.node.moves import Handed

Id = tuple[int, int, int]
"""Publisher, incarnation and sequence number of an event; all zero for a gap."""


class SlowPolicy(StrEnum):
    BLOCK = "block"
    DROP_OLDEST = "drop_oldest"


class Topic:
    """A topic whose schema this node knows."""

    __slots__ = (
        "gather", "lane", "matchers", "name", "packed", "row", "schema", "subscriptions", "values",
        "weigh", "weighed",
    )  # fmt: skip

    def __init__(self, name: str, schema: Schema) -> None:
        self.name = name
        self.subscriptions: dict[Route, dict[int, LocalSubscription]] = {}
        # The indexes of routes with many subscriptions. None: there is no NumPy.
        self.matchers: dict[Route, Matcher | None] = {}
        self.grow(schema)

    def grow(self, schema: Schema) -> None:
        """The schema, or one that extends it."""
        self.schema = schema
        self.row, self.values = schema.row, schema.values
        self.packed, self.weigh = Packed(schema), _weigher(schema)
        self.weighed = schema.weighed(VALUE_BYTES)
        self.lane = schema.lane(VALUE_BYTES)
        # It gathers the columns that are published here.
        self.gather: Gather | None = None
        self.matchers.clear()
        for some in self.subscriptions.values():
            for subscription in some.values():
                if subscription.filter.schema is not schema:
                    subscription.filter = Filter.parse(subscription.filter.text, schema)
                    subscription.mask = None

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


def _weigher(schema: Schema) -> Callable[[Sequence[tuple[Any, ...]]], int]:
    """A function that estimates the bytes of rows, and counts a character as one byte.

    It is generated, because every event pays for it.
    """
    places = [
        place for place, kind in enumerate(schema.types) if kind in (Type.STRING, Type.BINARY)
    ]
    terms = [f"{VALUE_BYTES * len(schema.types)} * len(rows)"]
    terms += [f"sum([len(row[{place}] or ()) for row in rows])" for place in places]
    made: Callable[[Sequence[tuple[Any, ...]]], int] = eval(f"lambda rows: {' + '.join(terms)}")
    return made


class Ledger:
    """The events that a subscription was handed and has not taken, one by one.

    A subscription that is ordered, or reads history, hands events over in another order than they
    came in, so it keeps a ledger to know which events it discards when it ends. A node that writes
    a trace keeps one for each subscription. All others do with two numbers (``Local.taken``).
    """

    __slots__ = ("_handed", "_taken")

    def __init__(self) -> None:
        # The hand-overs, oldest first, and the number of events taken of the oldest of them.
        self._handed: deque[Sequence[Id]] = deque()
        self._taken = 0

    def hand(self, ids: Sequence[Id]) -> None:
        if ids:
            self._handed.append(ids)

    def take(self, count: int) -> None:
        self._taken += count
        handed = self._handed
        while handed and self._taken >= len(handed[0]):
            self._taken -= len(handed.popleft())

    def left(self) -> Iterator[Id]:
        """The events that were not taken, oldest first."""
        skipped = self._taken
        for ids in self._handed:
            yield from ids[skipped:]
            skipped = 0


class LocalSubscription:
    """``SELECT * FROM topic WHERE filter``, at this node."""

    __slots__ = (
        "backlog",
        "blocked_at",
        "by_columns",
        "filter",
        "follow",
        "group",
        "handed",
        "held",
        "is_auto",
        "ledger",
        "mask",
        "number",
        "passed",
        "policy",
        "route",
        "source",
        "state",
        "topic",
        "was_in_force",
    )

    def __init__(
        self,
        number: int,
        topic: Topic,
        filter: Filter,
        policy: SlowPolicy,
        source: str,
        route: Route,
        group: str = "",
    ) -> None:
        self.number, self.topic, self.filter = number, topic, filter
        self.policy, self.source, self.route, self.group = policy, source, route, group
        # Whether this node chooses the route.
        self.is_auto = False
        # While the subscription moves to another route, an event may come by both.
        self.handed: Handed | None = None
        self.state = State.WANTED
        # Whether it has been in force, now or before.
        self.was_in_force = False
        # The filter over columns, once it is needed.
        self.mask: Callable[[Any], Any] | None = None
        # Set if the subscription is durable, ordered, or wants the past.
        self.follow: Follow | None = None
        # Whether the latest events were columns.
        self.by_columns = False
        # Events that were handed over and that the consumer has not taken. Of a durable
        # subscription: events that are stored and not acknowledged.
        self.backlog = 0
        # Events that the consumer has taken.
        self.passed = 0
        # Set if the order, or a trace, needs it.
        self.ledger: Ledger | None = None
        self.blocked_at = NEVER
        # Batches whose report waits for this consumer. Each has the place of its first event among
        # all events that were handed over, and the places of its own events in the batch.
        self.held: dict[tuple[Route, Key], tuple[int, Sequence[int]]] = {}

    def step(self, step: Step) -> None:
        self.state = after(LIFE, self.state, step)

    @property
    def in_force(self) -> bool:
        return self.state is State.IN_FORCE or self.state is State.MOVING

    @property
    def matches(self) -> Callable[[tuple[Any, ...]], bool]:
        """Whether a row passes. The function is compiled when it is first asked for, because an
        index over many subscriptions asks none of them.
        """
        return self.filter.matches_row


class _Arrival:
    """A batch, or a part of one, as a plane hands it over."""

    __slots__ = ("batch", "done", "group", "key", "numbers", "route")

    def __init__(
        self,
        route: Route,
        batch: Batch,
        numbers: Sequence[int],
        group: str,
        part: int | None,
        done: Mapping[int, int] | None,
    ) -> None:
        self.route, self.batch, self.numbers = route, batch, numbers
        self.group, self.done = group, done
        self.key: Key = (batch.publisher, batch.incarnation, batch.first)
        if part is not None:
            self.key = (*self.key, part)

    def repeats(self, other: _Arrival) -> bool:
        return self.batch.topic == other.batch.topic and tuple(self.numbers) == tuple(other.numbers)


class _Held:
    """A report that waits: its counts so far, and how many consumers and disks it waits for."""

    __slots__ = ("blockers", "count", "incarnation", "matched", "numbers", "publisher")

    def __init__(
        self, matched: tuple[int, ...], blockers: int, batch: Batch, numbers: Sequence[int]
    ) -> None:
        self.matched, self.blockers = matched, blockers
        # Not the batch itself, whose rows may be large and are not read again.
        self.publisher, self.incarnation = batch.publisher, batch.incarnation
        self.count, self.numbers = batch.count, numbers

    def discard(self, places: Sequence[int]) -> None:
        """A subscription that was handed the events at these places has discarded them."""
        self.matched = discarded(self.matched, places, self.count)

    def id(self, place: int) -> Id:
        return self.publisher, self.incarnation, self.numbers[place]


class Local:
    """The subscriptions, by number.

    ``out`` is the node's list of effects, and ``released`` has the reports that may go now.
    """

    def __init__(
        self,
        schemas: Mapping[str, Schema],
        out: list[Effect],
        *,
        buffer: int,
        block: Micros,
        tracing: bool,
        durable: int = 0,
        conflicts: Mapping[str, object],
    ) -> None:
        self.subscriptions: dict[int, LocalSubscription] = {}
        self.topics: dict[str, Topic] = {}
        # In the order in which they were blocked.
        self.blocked: dict[int, LocalSubscription] = {}
        self.released: list[tuple[Route, Key, tuple[int, ...]]] = []
        self.rights: Rights | None = None
        self._schemas, self._out = schemas, out
        # Topics whose events cannot be read alike everywhere.
        self._conflicts = conflicts
        self._buffer, self._block, self._tracing = buffer, block, tracing
        self._durable = durable or buffer
        self._held: dict[tuple[Route, Key], _Held] = {}
        # Batches whose report waits for a disk, with the counts of the subscription that stores
        # them.
        self._storing: dict[Token, list[tuple[tuple[Route, Key], tuple[int, ...]]]] = {}
        # Batches that wait for the proof of their publisher, and until when they wait.
        self._unproved: dict[tuple[Route, Key], tuple[_Arrival, Micros]] = {}
        self._unproved_bytes = 0
        self.unproved_at = NEVER

    def limit(self, subscription: LocalSubscription) -> int:
        """The number of events that may wait for its consumer."""
        if subscription.follow is not None and subscription.follow.tap is not None:
            return self._durable
        return self._buffer * (COLUMN_ROWS if subscription.by_columns else 1)

    def knows(self, name: str) -> bool:
        return name in self._schemas

    def topic(self, name: str) -> Topic:
        known = self.topics.get(name)
        if known is None:
            schema = self._schemas.get(name)
            if schema is None:
                raise TopicError(
                    f"topic {name!r} is not advertised (as far as this node knows): "
                    "advertise it first"
                )
            known = self.topics[name] = Topic(name, schema)
        return known

    def learn(self, name: str) -> None:
        """A topic's schema is longer than before: its subscriptions go on, over the longer one."""
        known = self.topics.get(name)
        if known is not None and known.schema != self._schemas[name]:
            known.grow(self._schemas[name])

    def add(self, subscription: LocalSubscription) -> None:
        self.subscriptions[subscription.number] = subscription
        is_durable = subscription.follow is not None and subscription.follow.tap is not None
        if (self._tracing or subscription.follow is not None) and not is_durable:
            subscription.ledger = Ledger()
        self.listen(subscription, subscription.route)

    def listen(self, subscription: LocalSubscription, route: Route) -> None:
        """The subscription also takes the events of this route."""
        topic = subscription.topic
        wanted = topic.subscriptions.setdefault(route, {})
        wanted[subscription.number] = subscription
        matcher = topic.matchers.get(route)
        if matcher is not None:
            matcher.add(subscription)
        elif len(wanted) > INDEX_FROM:
            # If there are very many, the index is made now, and not with the next batch.
            topic.matcher(route)

    def ignore(self, subscription: LocalSubscription, route: Route) -> None:
        topic, number = subscription.topic, subscription.number
        if topic.subscriptions.get(route, {}).pop(number, None) is None:
            return
        matcher = topic.matchers.get(route)
        if matcher is not None:
            matcher.remove(number)
            if len(topic.subscriptions[route]) <= INDEX_FROM // 2:
                del topic.matchers[route]

    def remove(self, number: int) -> LocalSubscription | None:
        subscription = self.subscriptions.pop(number, None)
        if subscription is not None:
            for route in list(subscription.topic.subscriptions):
                self.ignore(subscription, route)
            self._discard(subscription)
            self._release(subscription)
            if subscription.follow is not None:
                subscription.follow.ended()
        return subscription

    # -------------------------------------------------------------------- arrivals

    def arrived(
        self,
        route: Route,
        batch: Batch,
        now: Micros,
        numbers: Sequence[int] | None = None,
        group: str = "",
        part: int | None = None,
        done: Mapping[int, int] | None = None,
    ) -> tuple[int, ...] | None:
        """Hands a batch over (``Arrive``). None means that ``released`` will have the counts."""
        arrival = _Arrival(
            route,
            batch,
            numbers or range(batch.first, batch.first + batch.count),
            group,
            part,
            done,
        )
        known = self.topics.get(batch.topic)
        if known is None or not known.subscriptions.get(route):
            return ()
        waits = self._unproved.get((route, arrival.key))
        if (route, arrival.key) in self._held or (
            waits is not None and not arrival.repeats(waits[0])
        ):
            # It is on another topic, or has other events beside the first, or comes so late that
            # its plane has forgotten it.
            reason = f"events on {batch.topic!r} with the ids of others"
            self._out.append(Note(Rejected(hex_peer(batch.publisher), reason)))
            return ()
        if waits is not None:
            return None
        if self.rights is not None:
            takes = self.rights.takes(Peer(batch.publisher), batch.topic)
            if takes is None and self._wait(arrival, now):
                return None
            if not takes:
                reason = f"events on {batch.topic!r}, to which it may not publish"
                self._out.append(Note(Rejected(hex_peer(batch.publisher), reason)))
                return ()
        return self._match(known, arrival, now)

    def _wait(self, arrival: _Arrival, now: Micros) -> bool:
        """Keeps a batch whose publisher's certificate has not come yet, and may be on its way.

        Returns False if there is no room.
        """
        size = len(arrival.batch.rows) + 200
        if self._unproved_bytes + size > UNPROVED_BYTES:
            self._out.append(
                Note(Dropped("batch", 1, "too many events of publishers that nobody has proved"))
            )
            return False
        self._unproved[arrival.route, arrival.key] = (arrival, Micros(now + PROOF_WAIT))
        self._unproved_bytes += size
        self.unproved_at = min(self.unproved_at, Micros(now + PROOF_LOOK))
        return True

    def prove(self, now: Micros) -> None:
        """Looks again at the batches that wait for proof. ``released`` has the counts."""
        if now < self.unproved_at or self.rights is None:
            return
        for (route, key), (arrival, until) in list(self._unproved.items()):
            batch = arrival.batch
            if until <= now or self.rights.identity(Peer(batch.publisher)) is not None:
                del self._unproved[route, key]
                self._unproved_bytes -= len(batch.rows) + 200
                known = self.topics.get(batch.topic)
                matched: tuple[int, ...] | None = ()
                if known is not None and self.rights.takes(Peer(batch.publisher), batch.topic):
                    matched = self._match(known, arrival, now)
                elif until <= now:
                    reason = f"events on {batch.topic!r} of a publisher that nobody has proved"
                    self._out.append(Note(Rejected(hex_peer(batch.publisher), reason)))
                if matched is not None:
                    self.released.append((route, key, matched))
        self.unproved_at = Micros(now + PROOF_LOOK) if self._unproved else NEVER

    def _match(self, known: Topic, arrival: _Arrival, now: Micros) -> tuple[int, ...] | None:
        route, batch = arrival.route, arrival.batch
        if self._conflicts and batch.topic in self._conflicts:
            # These may be rows of another schema that happen to fit this one.
            reason = f"events on {batch.topic!r}, whose schema is in conflict"
            self._out.append(Note(Dropped("event", batch.count, reason)))
            self._miss(known, arrival, "the topic's schema is in conflict")
            return ()
        wanted, is_columns = known.subscriptions.get(route, {}), is_column_batch(batch.rows)
        try:
            packed = known.packed
            events = (
                packed.columns(private(batch.rows), batch.count)
                if is_columns
                else packed.decode(batch.rows)
            )
            if not is_columns and len(events) != batch.count:
                raise msgspec.ValidationError(f"{len(events)} rows in a batch of {batch.count}")
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            self._out.append(
                Note(Rejected(hex_peer(batch.publisher), f"events on {batch.topic!r}: {error}"))
            )
            self._miss(known, arrival, "the events are not of the topic's schema")
            return ()
        if arrival.group:
            if is_columns:
                events = known.packed.rows(events)
            members = [one for one in wanted.values() if one.group == arrival.group]
            return self._give(
                arrival, events, self._share_out(members, events, arrival.numbers), now
            )
        matcher = known.matcher(route) if len(wanted) > INDEX_FROM else None
        asked: Iterable[tuple[LocalSubscription, Sequence[int] | None]] = (
            zip(wanted.values(), repeat(None))
            if matcher is None
            else matcher.match(events, columns=is_columns)
        )
        shares: list[tuple[LocalSubscription, Sequence[int]]] = []
        for one, at in asked:
            if not one.group:
                if at is None:
                    at = self._masked(one, events) if is_columns else one.filter.passing(events)
                shares.append((one, at))
        return self._give(arrival, events, shares, now)

    @staticmethod
    def _miss(known: Topic, arrival: _Arrival, reason: str) -> None:
        """A batch cannot be read. Subscriptions that are told of missed events are told of it."""
        for subscription in known.subscriptions.get(arrival.route, {}).values():
            if subscription.follow is not None:
                subscription.follow.refused(arrival.batch, reason)

    def _give(
        self,
        arrival: _Arrival,
        events: Any,
        shares: list[tuple[LocalSubscription, Sequence[int]]],
        now: Micros,
    ) -> tuple[int, ...] | None:
        """Hands each subscription the events at its places. Returns the counts, or None if the
        report waits.
        """
        route, key, batch, numbers = arrival.route, arrival.key, arrival.batch, arrival.numbers
        matched: tuple[int, ...] = ()
        blockers = 0
        for subscription, places in shares:
            if arrival.done:
                places = [place for place in places if numbers[place] not in arrival.done]
            if subscription.handed is not None:
                fresh = subscription.handed.fresh(batch, [numbers[place] for place in places])
                places = [place for place in places if numbers[place] in fresh]
            follow = subscription.follow
            if follow is not None:
                follow.arrived(batch, events, numbers, places, now)
            elif places:
                self._hand_over(subscription, batch, events, numbers, places)
            if not places:
                continue
            # By route "direct" one number may be that of each event. The reports of other routes
            # have one for each.
            is_whole = route is Route.DIRECT and len(places) == batch.count
            counts = (1,) if is_whole else _ones(places, batch.count)
            matched = added(matched, counts) if matched else counts
            if follow is not None and (token := follow.report_after):
                blockers += 1
                self._storing.setdefault(token, []).append(((route, key), counts))
            if subscription.policy is SlowPolicy.BLOCK:
                if self._is_full(subscription, batch.publisher):
                    blockers += 1
                    ahead = subscription.passed + subscription.backlog - len(places)
                    subscription.held[route, key] = (ahead, places)
                    if subscription.number not in self.blocked:
                        subscription.blocked_at = now
                        self.blocked[subscription.number] = subscription
            elif len(places) > self._buffer:
                origin = batch.publisher, batch.incarnation
                gone = self._pushed_out(subscription, origin, numbers, places)
                matched = discarded(matched, gone, batch.count)
                self._trace_discarded(subscription, [(*origin, numbers[place]) for place in gone])
        if not blockers:
            return matched
        self._held[route, key] = _Held(matched, blockers, batch, numbers)
        return None

    def _pushed_out(
        self,
        subscription: LocalSubscription,
        origin: tuple[int, int],
        numbers: Sequence[int],
        places: Sequence[int],
    ) -> Sequence[int]:
        """The places that ``DROP_OLDEST`` drops at once, because later events of the batch fill the
        buffer.
        """
        follow, ledger = subscription.follow, subscription.ledger
        if follow is not None:
            if ledger is None:
                # It is durable, and its disk is its buffer.
                return ()
            gone = {*list(ledger.left())[: -self._buffer]}
            return [place for place in places if (*origin, numbers[place]) in gone]
        return places[: overfull(len(places), self._buffer, columns=subscription.by_columns)]

    @staticmethod
    def _masked(subscription: LocalSubscription, events: Any) -> Sequence[int]:
        """The places of the events of a record batch that the subscription wants."""
        if subscription.mask is None:
            # This needs NumPy, which the maker of the record batch needed too.
            from gossamer.filters.mask import compile_mask

            subscription.mask = compile_mask(subscription.filter, subscription.topic.packed)
        passed = subscription.mask(events)
        places: Sequence[int] = (
            range(events.num_rows) if passed is None else passed.nonzero()[0].tolist()
        )
        return places

    @staticmethod
    def _share_out(
        members: list[LocalSubscription], rows: list[tuple[Any, ...]], numbers: Sequence[int]
    ) -> list[tuple[LocalSubscription, Sequence[int]]]:
        """Each row to one of a group's members here that want it, in turns."""
        found: dict[int, tuple[LocalSubscription, list[int]]] = {}
        for place, row in enumerate(rows):
            willing = [one for one in members if one.matches(row)]
            if willing:
                one = willing[numbers[place] % len(willing)]
                found.setdefault(one.number, (one, []))[1].append(place)
        return list(found.values())

    def _hand_over(
        self,
        subscription: LocalSubscription,
        batch: Batch,
        events: Any,
        numbers: Sequence[int],
        places: Sequence[int],
    ) -> None:
        """Deliver the events at these places."""
        topic = subscription.topic
        publisher, incarnation = batch.publisher, batch.incarnation
        handed: Any
        if isinstance(events, list):
            rows = events
            if len(places) < len(events):
                rows, numbers = (
                    [events[place] for place in places],
                    [numbers[place] for place in places],
                )
            handed = Listed(topic.schema, batch.topic, publisher, incarnation, numbers, rows)
        else:
            if len(places) < batch.count:
                events = events.take(topic.packed.places(list(places)))
                numbers = [numbers[place] for place in places]
            handed = Columns(topic.packed, batch.topic, publisher, incarnation, numbers, events)
        subscription.backlog += len(places)
        subscription.by_columns = type(handed) is Columns
        self._out.append(Deliver(subscription.number, handed))
        if self._tracing:
            who = hex_peer(publisher)
            taken = numbers if len(numbers) == len(places) else [numbers[place] for place in places]
            assert subscription.ledger is not None
            subscription.ledger.hand([(publisher, incarnation, sequence) for sequence in taken])
            for sequence in taken:
                self._out.append(
                    Note(Delivered(subscription.number, who, incarnation, sequence, batch.hops))
                )

    # ------------------------------------------------------------------------ flow

    def taken(self, number: int, count: int, now: Micros) -> None:
        """The consumer has taken this many events."""
        subscription = self.subscriptions.get(number)
        if subscription is None:
            return
        subscription.backlog -= count
        subscription.passed += count
        assert subscription.backlog >= 0
        if subscription.ledger is not None:
            subscription.ledger.take(count)
        # A consumer that takes some events is slow, and not asleep: it is not cut off.
        if count and number in self.blocked:
            subscription.blocked_at = now
            self.blocked[number] = self.blocked.pop(number)
        self.loosen(subscription)

    def _is_full(self, subscription: LocalSubscription, publisher: int) -> bool:
        """Whether this publisher has to be held back for this subscription."""
        follow = subscription.follow
        if follow is None and subscription.backlog <= self._buffer:
            return False
        limit = self.limit(subscription)
        if follow is None:
            return subscription.backlog > limit
        # Beside the events that the consumer has, only those count that wait for their publisher's
        # history. Events that wait for other receipts would wait for ever if their own were held
        # back.
        return subscription.backlog + follow.storing > limit or (
            not follow.is_level(publisher) and follow.behind > follow.behind_max
        )

    def loosen(self, subscription: LocalSubscription) -> None:
        """Reports that were held back go, if there is room again."""
        limit, follow = self.limit(subscription) // 2, subscription.follow
        if not subscription.held or subscription.backlog > limit:
            return
        if follow is None:
            self._release(subscription)
        elif subscription.backlog + follow.storing <= limit:
            behind = follow.behind > follow.behind_max // 2
            waits = {
                what: places
                for what, places in subscription.held.items()
                if behind and not follow.is_level(what[1][0])
            }
            for what in [what for what in subscription.held if what not in waits]:
                del subscription.held[what]
                self._unblock(what)
            if not waits:
                self._release(subscription)

    def stored(self, token: Token) -> None:
        """What a durable subscription asked for is on disk."""
        for what, _ in self._storing.pop(token, ()):
            self._unblock(what)

    def unstored(self, token: Token) -> None:
        """The disk did not take it. The report goes without the counts of this subscription."""
        for what, counts in self._storing.pop(token, ()):
            entry = self._held[what]
            entry.matched = less(entry.matched, counts)
            self._unblock(what)

    @property
    def deadline(self) -> Micros:
        """When the first of the subscriptions that hold publishers back is cut off."""
        return Micros(next(iter(self.blocked.values())).blocked_at + self._block)

    def overdue(self, now: Micros) -> list[LocalSubscription]:
        """The subscriptions whose consumers have taken nothing for too long."""
        found: list[LocalSubscription] = []
        for one in list(self.blocked.values()):
            if one.blocked_at + self._block > now:
                break
            if one.backlog > self.limit(one) // 2:
                found.append(one)
            else:
                # Something else than the consumer is waited for.
                one.blocked_at = now
                self.blocked[one.number] = self.blocked.pop(one.number)
        return found

    def _discard(self, subscription: LocalSubscription) -> None:
        """It ends, and the events that its consumer has not taken are gone. The reports that wait
        for it say so.
        """
        follow = subscription.follow
        if follow is not None and follow.tap is not None:
            # They are stored, and handed over again.
            return
        left: dict[Id, None] = {}
        if subscription.ledger is not None:
            left = dict.fromkeys(subscription.ledger.left())
            if follow is not None:
                left.update(dict.fromkeys(follow.waiting()))
        told: dict[Id, None] = {}
        for what, (start, places) in subscription.held.items():
            entry = self._held[what]
            if follow is not None:
                gone: Sequence[int] = [place for place in places if entry.id(place) in left]
            else:
                gone = places[max(0, subscription.passed - start) :]
            if gone:
                entry.discard(gone)
            if self._tracing:
                told.update(dict.fromkeys([entry.id(place) for place in places]))
        if self._tracing:
            self._trace_discarded(subscription, [id for id in left if id in told])
            self._trace_discarded(
                subscription, [id for id in left if id not in told], reported=True
            )

    def _trace_discarded(
        self, subscription: LocalSubscription, ids: Iterable[Id], *, reported: bool = False
    ) -> None:
        if not self._tracing:
            return
        for publisher, incarnation, sequence in ids:
            if sequence:
                record = Discarded(
                    subscription.number, hex_peer(publisher), incarnation, sequence, reported
                )
                self._out.append(Note(record))

    def _release(self, subscription: LocalSubscription) -> None:
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


def overfull(events: int, buffer: int, *, columns: bool) -> int:
    """How many events are too many for a buffer. Of those in columns, eight count as one."""
    if columns:
        return max(0, events // COLUMN_ROWS - buffer) * COLUMN_ROWS
    return max(0, events - buffer)


def _ones(places: Sequence[int], count: int) -> tuple[int, ...]:
    """1 at the places, 0 elsewhere."""
    if len(places) == count:
        return (1,) * count
    counts = [0] * count
    for place in places:
        counts[place] = 1
    return tuple(counts)
