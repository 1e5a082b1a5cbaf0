"""Direct: one hop from the publisher to each node that wants events of a batch, and to no other
node.

A publisher *watches* the nodes whose interest records say that they take a topic this way: they
tell it their filters, and every change (told.py). It matches a batch against all filters (plan.py)
and sends each node its *portions*. A node that has taken a portion answers how many subscriptions
took each event (received.py). The receipt is complete when all nodes have answered. Events for a
group that a member did not take, or whose node is dead, go to another member.

A publisher waits for the answer until the node is no longer a member, or has said nothing for long
though its link is up (overlay/delivery/outstanding.py). Then the node is cut off, and ``left_out``
hears which events were completed without it. A portion is sent once over a link, and again over a
new link, or when its node had no room for it. So what waits in a queue, or for a slow consumer, is
not sent twice.

A batch waits while the filters of a node are not known. So every batch finds a subscription from
the moment at which every live node knows that this node takes the topic this way, and every
publisher that watches has its filter.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol, cast

import msgspec

from gossamer.filters import Filter, loops
from gossamer.filters.packed import Packed
from gossamer.filters.tree import TRUE
from gossamer.machine import (
    MILLISECOND,
    NEVER,
    SECOND,
    Dial,
    Effect,
    LinkState,
    Micros,
    Note,
    Peer,
    Send,
)
from gossamer.overlay.batch import (
    DISCARDED,
    MATCHED_MAX,
    Batch,
    Left,
    added,
    bounded_all,
    joined,
)
from gossamer.overlay.delivery.engine import Arrive, Complete, LeftOut
from gossamer.overlay.delivery.outstanding import PATIENCE, Outstanding, Part
from gossamer.overlay.direct.messages import (
    DirectMessage,
    Holding,
    Portion,
    Taken,
    Unwatch,
    Want,
    Wanted,
    Watch,
)
from gossamer.overlay.direct.plan import Payload, Plan, Row
from gossamer.overlay.direct.reading import Reading
from gossamer.overlay.direct.received import Received
from gossamer.overlay.direct.told import Told
from gossamer.trace import Dropped, Rejected, hex_peer

AGAIN = Micros(250 * MILLISECOND)
# The time to the next call to a node that owes an answer and has no link.
DIAL_AGAIN = Micros(SECOND)
# After this time without a publication on a topic, no node is watched for it.
IDLE = Micros(60 * SECOND)
# The most topics for which nodes are watched though nothing has been published.
EXPECTED_MAX = 256
# The most filters of others that are kept, and the most characters of their texts. A node that
# tells more gets everything.
WANTS_MAX = 2_000_000
WANTS_CHARACTERS = 256 << 20
# The most filters of one node on one topic: twice as many as an honest node tells.
WANTS_EACH = 1 << 17
# The number of the wish of such a node, and of a node that does not say its wishes. Both wish for
# everything.
_ALL, _UNSAID = -1, -2


class DirectView(Protocol):
    def takers(self, topic: str) -> list[Peer]:
        """The nodes that take a topic this way, this node included."""

    def address(self, peer: Peer) -> str | None:
        """The address of a member. None means that the peer is no member."""

    def hash(self, topic: str) -> int: ...

    def packed(self, topic: str) -> Packed:
        """How the topic's events are encoded, by its present schema."""

    @property
    def version(self) -> int:
        """Counts changes of what ``takers`` says that the view does not tell."""


class Taker:
    """The wishes of one node on one topic, as far as this node knows them."""

    __slots__ = ("asked_at", "epoch", "have", "latest", "session", "since", "wants")

    def __init__(self, session: int, since: Micros) -> None:
        self.session = session
        # Since when it has said nothing over a link, by the clock that stands while this node
        # sleeps.
        self.since = since
        self.epoch = self.have = 0
        # The number of its last change; -1: it has not said anything yet.
        self.latest = -1
        self.wants: dict[int, tuple[str, str]] = {}
        self.asked_at = NEVER

    @property
    def is_ready(self) -> bool:
        return self.have == self.latest


class PublishedTopic:
    """A topic that is published here."""

    def __init__(self, name: str, hash: int, packed: Packed) -> None:
        self.name, self.hash, self.packed = name, hash, packed
        self.takers: dict[Peer, Taker] = {}
        self.plan: Plan | None = None
        # Batches that wait until all filters are known.
        self.held: deque[Flight] = deque()
        # The view by which ``takers`` are the right ones.
        self.seen = (-1, 0)
        # Whether the filters of all takers are known, by that view.
        self.is_known = False
        self.used = Micros(0)


class Flight:
    """A batch of ours on its way."""

    __slots__ = (
        "batch", "each", "most", "parts", "payload", "sending", "source", "total", "tried",
        "waiting",
    )  # fmt: skip

    def __init__(self, source: PublishedTopic, batch: Batch, payload: Payload) -> None:
        self.source, self.batch, self.payload = source, batch, payload
        # While more portions are about to go, the batch is not done, though none waits.
        self.sending = 0
        # Portions without an answer.
        self.waiting = 0
        # The number of portions that each node was sent.
        self.parts: dict[Peer, int] = {}
        # How many subscriptions took all events alike, and beside them how many took each event,
        # once a node has told them apart. No number is larger than ``most``.
        self.each = 0
        self.total: list[int] = []
        self.most = 0
        # By group and offset: the members that did not take the event.
        self.tried: dict[tuple[str, int], list[Peer]] = {}


class Direct:
    """The machine. Its effects go to ``out``, and the subscriptions that were laid are in
    ``told.laid``.
    """

    def __init__(
        self,
        me: Peer,
        epoch: int,
        view: DirectView,
        arrive: Arrive,
        complete: Complete,
        left_out: LeftOut,
        out: list[Effect],
    ) -> None:
        self.me, self.view = me, view
        self.told = Told(epoch)
        self._complete, self._left_out = complete, left_out
        self.out = out
        self.outstanding = Outstanding(out, _key, lambda key: Holding(*key[1:]))
        self.links = self.outstanding.links
        self._received = Received(me, arrive, out, self.outstanding)
        self._sources: dict[str, PublishedTopic] = {}
        self._by_hash: dict[int, PublishedTopic] = {}
        self._flights: dict[tuple[int, int], Flight] = {}
        # Portions of this node's own batches for itself, while its owner has them.
        self._own: dict[tuple[int, int, int], Part] = {}
        self._dialled: dict[Peer, Micros] = {}
        # When to dial nodes that owe an answer and have no link.
        self._dial_at: Micros = NEVER
        # Counts changes of the view.
        self._changes = 0
        # When to look whether a batch need not wait any longer, and which nodes to ask again.
        self._look_at: Micros = NEVER
        self._idle_at: Micros = NEVER
        # The filters of others that are kept, and the characters of their texts.
        self._wants = self._characters = 0
        self._reading = Reading()
        self._sessions = 0

    # ------------------------------------------------------------------ facts

    @property
    def deadline(self) -> Micros:
        return min(
            self._dial_at, self._look_at, self._idle_at,
            self.told.deadline, self.outstanding.deadline, self._reading.deadline,
        )  # fmt: skip

    @property
    def remembered(self) -> int:
        """Portions in the once-only table."""
        return self._received.remembered

    @property
    def watched(self) -> int:
        """The number of filters of others that are known here."""
        return self._wants

    def needs(self, peer: Peer) -> bool:
        return self.outstanding.waits_for(peer)

    def _awake(self, now: Micros) -> Micros:
        """A clock for the silence of others. It stands while this node is too busy to hear them."""
        return Micros(now - self.outstanding.overslept)

    # ------------------------------------------------------------------ subscribing

    def subscribe(self, number: int, topic: str, filter: Filter, group: str, now: Micros) -> None:
        weakened = filter.weakened
        text = "" if weakened.tree == TRUE else weakened.text
        new = self.told.subscribe(number, self.view.hash(topic), text, group, now)
        source = self._sources.get(topic)
        if new is not None and source is not None and source.plan is not None:
            source.plan.want(self.me, *new)

    def unsubscribe(self, number: int, now: Micros) -> None:
        hash, gone = self.told.unsubscribe(number, now)
        source = self._by_hash.get(hash)
        if gone is not None and source is not None and source.plan is not None:
            source.plan.drop(self.me, gone)

    def take_laid(self) -> list[int]:
        laid, self.told.laid = self.told.laid, []
        return laid

    def renew(self, now: Micros) -> None:
        """Others had taken this node for dead. They do not tell it of changes any more, so it asks
        all of them again.
        """
        self.told.renew(now)
        for source in self._sources.values():
            self._forget(source, list(source.takers))
            source.seen = (-1, 0)
        self._look_at = now

    # ------------------------------------------------------------------- publishing

    def expect(self, topic: str, now: Micros) -> None:
        """This node will perhaps publish soon.

        The nodes that take the topic are asked for their filters now, so that no batch waits.
        """
        if topic in self._sources or len(self._sources) < EXPECTED_MAX:
            self._source(topic, now)
            self._look_at = now

    def _source(self, topic: str, now: Micros) -> PublishedTopic:
        source, packed = self._sources.get(topic), self.view.packed(topic)
        if source is None:
            hash = self.view.hash(topic)
            source = self._sources[topic] = self._by_hash[hash] = PublishedTopic(
                topic, hash, packed
            )
        if source.packed is not packed:
            source.packed, source.plan = packed, None
            for other in self._flights.values():
                # The events are read by the longer schema.
                if other.source is source:
                    other.payload = Payload(other.batch, packed)
        source.used = now
        self._idle_at = min(self._idle_at, Micros(now + IDLE))
        return source

    def publish(self, batch: Batch, now: Micros, rows: list[Row] | None = None) -> None:
        """``rows`` are the batch's rows, decoded, if the caller has them."""
        source = self._source(batch.topic, now)
        try:
            payload = Payload(batch, source.packed, rows)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            # An earlier life published it, when the topic had another schema. Nobody takes it.
            reason = f"events on {batch.topic!r}: {error}"
            self.out.append(Note(Dropped("event", batch.count, reason)))
            self._complete(batch.incarnation, batch.first, (0,) * batch.count)
            return
        flight = self._flights[batch.incarnation, batch.first] = Flight(source, batch, payload)
        if source.held or not self._is_ready(source, now):
            source.held.append(flight)
            self._look_at = min(self._look_at, Micros(now + AGAIN))
        else:
            self._launch(flight, now)

    def _is_ready(self, source: PublishedTopic, now: Micros) -> bool:
        """Whether the filters of all nodes that take the topic are known. The others are asked."""
        view = (self._changes, self.view.version)
        if source.seen == view:
            if source.is_known:
                return True
        else:
            wanted = dict.fromkeys(self.view.takers(source.name))
            wanted.pop(self.me, None)
            self._forget(source, [peer for peer in source.takers if peer not in wanted], tell=True)
            for peer in wanted:
                if peer not in source.takers:
                    self._sessions += 1
                    source.takers[peer] = Taker(self._sessions, self._awake(now))
            source.seen = view
        ready = source.is_known = True
        for peer, taker in source.takers.items():
            if not taker.is_ready:
                if peer not in self.links:
                    taker.since = self._awake(now)
                elif self._awake(now) - taker.since >= PATIENCE:
                    # It gets everything, so that the others need not wait. It may only be busy, and
                    # to cut it off would lose events.
                    taker.since = self._awake(now)
                    self.out.append(Note(Rejected(hex_peer(peer), "does not tell its filters")))
                    self._want(source, peer, taker, (_UNSAID, "", ""), now)
                source.is_known = False
                ready = ready and _UNSAID in taker.wants
                # It answers only members, and may not know yet that this node is one. So it is
                # asked again.
                if taker.asked_at == NEVER or taker.asked_at + AGAIN <= now:
                    taker.asked_at = now
                    self._say(peer, Watch(source.hash, taker.epoch, taker.have, taker.session), now)
        return ready

    def _launch(self, flight: Flight, now: Micros) -> None:
        batch, payload, plan = flight.batch, flight.payload, flight.source.plan
        if plan is None:
            plan = self._plan(flight.source, now)
        flight.sending += 1
        for peer, group, places in plan.shares(payload, batch.first):
            # Without offsets it is the whole batch.
            rows = batch.rows if places is None else payload.cut(places)
            self._send(flight, peer, group, tuple(places or ()), rows, now)
        flight.sending -= 1
        # Every row has been looked at, and is seldom looked at again. The next batch finds their
        # memory still in the cache.
        payload.found = None
        if not flight.waiting:
            self._finish(flight)

    def _plan(self, source: PublishedTopic, now: Micros) -> Plan:
        """The filters of all nodes on the topic, by its present schema."""
        if source.plan is None:
            source.plan = plan = Plan(source.packed)
            for peer, taker in source.takers.items():
                for number, (text, group) in taker.wants.items():
                    self._read(source, plan, peer, (number, text, group), now)
            mine = self.told.topics.get(source.hash)
            for (text, group), (number, _) in mine.wishes.items() if mine is not None else ():
                plan.want(self.me, number, text, group)
        return source.plan

    def _send(
        self,
        flight: Flight,
        peer: Peer,
        group: str,
        offsets: tuple[int, ...],
        rows: bytes,
        now: Micros,
    ) -> None:
        batch = flight.batch
        number = flight.parts.get(peer, 0)
        flight.parts[peer] = number + 1
        whole = 0 if offsets else batch.count
        region = offsets or range(whole)
        message = Portion(
            batch.topic, self.me, batch.incarnation, batch.first, number, batch.floor, offsets,
            group, rows, whole,
        )  # fmt: skip
        key = (batch.incarnation, batch.first, number)
        part = Part(peer, key, message, region, flight)
        flight.waiting += 1
        if peer == self.me:
            self._own[key] = part
            matched = self._received.hand_over(self.me, message, 0, now)
            if matched is not None:
                self._answered(self._own.pop(key), matched, now)
        elif not self.outstanding.send(part, now):
            self._dial(peer, now)
            self._dial_at = min(self._dial_at, Micros(now + DIAL_AGAIN))

    def _answered(self, part: Part, matched: tuple[int, ...], now: Micros) -> None:
        """The part's node has answered, or it is given up."""
        flight: Flight = part.of
        flight.waiting -= 1
        if matched:
            flight.most += max(matched)
            if len(matched) == 1 and type(part.region) is range:
                # The number is that of every event of the batch.
                flight.each += matched[0]
            else:
                flight.total = flight.total or [0] * flight.batch.count
                loops.tally(flight.total, part.region, matched)
        group = part.message.group  # type: ignore[attr-defined]
        if group:
            taken = matched if len(matched) != 1 else matched * len(part.region)
            # A member that has discarded an event does not have it, so another one is asked.
            left = [
                offset
                for at, offset in enumerate(part.region)
                if not taken or not taken[at] % DISCARDED
            ]
            if left:
                self._choose_again(flight, part.peer, group, left, now)
        if not flight.waiting and not flight.sending:
            self._finish(flight)

    def _choose_again(
        self, flight: Flight, peer: Peer, group: str, offsets: Sequence[int], now: Micros
    ) -> None:
        """A member of a group did not take these events. Another member may."""
        plan = self._plan(flight.source, now)
        members: dict[Peer, list[int]] = {}
        for offset in offsets:
            tried = flight.tried.setdefault((group, offset), [])
            tried.append(peer)
            other = plan.chosen(
                group, flight.payload.rows()[offset], flight.batch.first + offset, tried
            )
            if other is not None:
                members.setdefault(other, []).append(offset)
        flight.sending += 1
        for other, several in members.items():
            self._send(flight, other, group, tuple(several), flight.payload.cut(several), now)
        flight.sending -= 1

    def _finish(self, flight: Flight) -> None:
        """No portion waits for an answer any more."""
        batch = flight.batch
        if self._flights.pop((batch.incarnation, batch.first), None) is not None:
            told = tuple(flight.total)
            total = added(told, (flight.each,)) if told and flight.each else told or (flight.each,)
            if flight.most > MATCHED_MAX:
                total = bounded_all(total)
            self._complete(batch.incarnation, batch.first, total)

    # ----------------------------------------------------------------------- inputs

    def receive(self, sender: Peer, message: DirectMessage, now: Micros) -> None:
        kind = type(message)
        if kind is Portion:
            self._received.portion(sender, message, now)  # type: ignore[arg-type]
        elif kind is Taken:
            self._taken(sender, message, now)  # type: ignore[arg-type]
        elif kind is Holding:
            self._holding(sender, message, now)  # type: ignore[arg-type]
        elif kind is Watch:
            # Only members are told, because the view says when a member is dead. Others ask again.
            if self.view.address(sender) is not None:
                answer = self.told.watch(sender, message, now)  # type: ignore[arg-type]
                if answer is not None:
                    self.out.append(Send((sender,), answer))
        elif kind is Unwatch:
            self.told.unwatch(sender, message)  # type: ignore[arg-type]
        elif kind is Wanted:
            self._wanted(sender, message, now)  # type: ignore[arg-type]

    def wake(self, now: Micros) -> None:
        self.outstanding.woken(self.deadline, now)
        if self.told.deadline <= now:
            for peer, message in self.told.wake(now):
                self._say(peer, message, now)
        self.outstanding.wake(now)
        if self._dial_at <= now:
            unlinked = self.outstanding.unlinked
            self._dial_at = Micros(now + DIAL_AGAIN) if unlinked else NEVER
            for peer in unlinked:
                self._dial(peer, now)
        if self._reading.deadline <= now:
            self._read_on(now)
        if self._look_at <= now:
            self._look(now)
        if self._idle_at <= now:
            self._drop_idle(now)

    def link(self, peer: Peer, state: LinkState, now: Micros) -> None:
        if state is LinkState.UP:
            self._dialled.pop(peer, None)
        if self.outstanding.link(peer, state, now):
            self._dial_at = now
        if state is LinkState.UP:
            self.told.linked(peer, now)
            for source in self._sources.values():
                taker = source.takers.get(peer)
                if taker is not None and not taker.is_ready:
                    taker.asked_at, self._look_at = NEVER, now
        elif state is LinkState.DOWN or state is LinkState.CUT:
            self.told.unlinked(peer, now)
        if state is LinkState.CUT:
            # It was cut off for cause, so no receipt waits for it.
            self._give_up(peer, now, is_alive=True)

    def refused(self, peer: Peer, message: DirectMessage, now: Micros) -> None:
        self.outstanding.refused(peer, message)

    def view_changed(self, now: Micros) -> None:
        """A node came, or takes topics by other routes than before."""
        self._changes += 1
        if self._sources:
            self._look_at = min(self._look_at, now)

    def gone(self, peer: Peer, now: Micros, *, anew: bool = False) -> None:
        """A member is dead, or has begun anew."""
        self.told.gone(peer, now, anew=anew)
        if not anew:
            self._dialled.pop(peer, None)
        for source in self._sources.values():
            if peer in source.takers:
                self._forget(source, [peer])
                source.seen = (-1, 0)
        self._give_up(peer, now)
        self.view_changed(now)

    def _give_up(self, peer: Peer, now: Micros, *, is_alive: bool = False) -> None:
        for part in self.outstanding.give_up(peer):
            message = cast(Portion, part.message)
            if is_alive and not message.group:
                ends = message.first + part.region[0], message.first + part.region[-1]
                left = Left(peer, message.topic, self.me, message.incarnation, *ends, False)
                self._left_out(left, now)
            self._answered(part, (), now)

    def took(self, key: tuple[int, ...], matched: tuple[int, ...], now: Micros) -> None:
        """The owner has taken a portion whose count it did not know at once."""
        publisher, incarnation, first, number = key
        if publisher == self.me:
            part = self._own.pop((incarnation, first, number), None)
            if part is not None:
                self._answered(part, matched, now)
            return
        self._received.took((publisher, incarnation, first, number), matched)

    # ------------------------------------------------------------------ publishers' side

    def _taken(self, sender: Peer, message: Taken, now: Micros) -> None:
        link = self.links.get(sender)
        key = message.incarnation, message.first, message.part
        part = link.parts.get(key) if link is not None else None
        if part is None:
            # It is late or repeated, and has been counted.
            return
        matched = joined(message.matched, message.dropped) if message.dropped else message.matched
        if matched is None or (len(matched) > 1 and len(matched) != len(part.region)):
            self.out.append(Note(Rejected(hex_peer(sender), "report for another number of events")))
            return
        self.outstanding.close(part)
        self._answered(part, matched, now)

    def _holding(self, sender: Peer, message: Holding, now: Micros) -> None:
        if message.is_kept:
            self.outstanding.heard(sender, _key(message), now)
        else:
            self.outstanding.put_off(sender, _key(message), now)

    def _wanted(self, sender: Peer, message: Wanted, now: Micros) -> None:
        source = self._by_hash.get(message.topic)
        taker = source.takers.get(sender) if source is not None else None
        if source is None or taker is None:
            self.out.append(Send((sender,), Unwatch(message.topic, message.session)))
            return
        source.is_known = False
        is_late = message.session != taker.session
        if (
            not is_late
            and message.base == 0
            and (taker.epoch != message.epoch or taker.have == 0 or taker.latest < 0)
        ):
            self._drop_wants(taker)
            self._reading.forget(sender, source.hash)
            taker.epoch, taker.have, taker.wants = message.epoch, 0, {}
            if source.plan is not None:
                source.plan.forget(sender)
        is_next = taker.epoch == message.epoch and taker.have == message.base
        if not is_late and is_next and message.base <= message.version <= message.latest:
            # The plan takes each part now, and not all of them with the first batch.
            self._plan(source, now)
            for change in message.changes:
                self._want(source, sender, taker, change, now)
            if _UNSAID in taker.wants and message.version == message.latest:
                self._want(source, sender, taker, (_UNSAID, None, ""), now)
            taker.have, taker.since = message.version, self._awake(now)
            taker.latest = message.latest
        taker.asked_at = now
        self.out.append(
            Send((sender,), Watch(message.topic, taker.epoch, taker.have, taker.session))
        )
        if taker.is_ready and source.held:
            self._look_at = now

    def _want(
        self, source: PublishedTopic, peer: Peer, taker: Taker, change: Want, now: Micros
    ) -> None:
        number, text, group = change
        known = taker.wants.pop(number, None)
        if known is not None:
            self._wants -= 1
            self._characters -= len(known[0]) + len(known[1])
        elif text is not None and (
            len(taker.wants) >= WANTS_EACH or (self._wants >= WANTS_MAX and not group)
        ):
            number, text, group = _ALL, "", ""
            known = taker.wants.get(_ALL)
        if text is not None and not (number == _ALL and known):
            has_room = self._wants < WANTS_MAX and self._characters + len(text) <= WANTS_CHARACTERS
            text = text if has_room else ""
            taker.wants[number] = (text, group)
            self._wants += 1
            self._characters += len(text) + len(group)
        if text is None:
            self._reading.drop(peer, (source.hash, number))
            if source.plan is not None:
                source.plan.drop(peer, number)
        elif source.plan is not None:
            self._read(source, source.plan, peer, (number, text, group), now)

    def _read(
        self,
        source: PublishedTopic,
        plan: Plan,
        peer: Peer,
        wish: tuple[int, str, str],
        now: Micros,
    ) -> None:
        """Enters a filter into the plan. One that must wait is taken to pass everything."""
        number, text, group = wish
        want = (source.hash, number)
        self._reading.drop(peer, want)
        if text and not self._reading.may_read(peer, want, text, now):
            text = ""
        plan.want(peer, number, text, group)

    def _read_on(self, now: Micros) -> None:
        """Reads filters that had to wait."""
        for peer, (hash, number) in self._reading.due(now):
            source = self._by_hash.get(hash)
            taker = source.takers.get(peer) if source is not None else None
            wish = taker.wants.get(number) if taker is not None else None
            if source is not None and source.plan is not None and wish is not None:
                source.plan.want(peer, number, *wish)

    def _drop_wants(self, taker: Taker) -> None:
        self._wants -= len(taker.wants)
        self._characters -= sum(len(text) + len(group) for text, group in taker.wants.values())

    def _look(self, now: Micros) -> None:
        """Sends the batches whose filters are all known, and asks again for the other filters."""
        self._look_at = NEVER
        for source in self._sources.values():
            ready = self._is_ready(source, now)
            while ready and source.held:
                self._launch(source.held.popleft(), now)
            if not ready:
                self._look_at = min(self._look_at, Micros(now + AGAIN))

    def _drop_idle(self, now: Micros) -> None:
        self._idle_at = NEVER
        flying = {flight.source.name for flight in self._flights.values()}
        for name, source in list(self._sources.items()):
            if source.used + IDLE <= now and name not in flying:
                self._forget(source, list(source.takers), tell=True)
                del self._sources[name], self._by_hash[source.hash]
            else:
                self._idle_at = min(self._idle_at, Micros(max(source.used, now) + IDLE))

    def _forget(self, source: PublishedTopic, peers: list[Peer], *, tell: bool = False) -> None:
        for peer in peers:
            taker = source.takers.pop(peer)
            self._drop_wants(taker)
            self._reading.forget(peer, source.hash)
            if source.plan is not None:
                source.plan.forget(peer)
            if tell and peer in self.links:
                self.out.append(Send((peer,), Unwatch(source.hash, taker.session)))

    # ------------------------------------------------------------------------ links

    def _say(self, peer: Peer, message: DirectMessage, now: Micros) -> None:
        if peer in self.links:
            self.out.append(Send((peer,), message))
        else:
            self._dial(peer, now)

    def _dial(self, peer: Peer, now: Micros) -> None:
        address = self.view.address(peer)
        if address and now - self._dialled.get(peer, Micros(-AGAIN)) >= AGAIN:
            self._dialled[peer] = now
            self.out.append(Dial(address, peer))


def _key(message: Any) -> tuple[int, int, int]:
    """The portion of this node that a message is, or is about."""
    return message.incarnation, message.first, message.part
