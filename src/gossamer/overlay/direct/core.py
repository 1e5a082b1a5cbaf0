"""Direct: one hop from the publisher to each node that wants something of a batch, and nothing to anybody else.

A publisher *watches* the nodes whose interest records say that they take a topic this way: they tell it their filters, and every
change (told.py). It matches a batch against all of them (plan.py) and sends each node its *portions*; who has taken one says how
many subscriptions took each event. The receipt is complete when all have. What was meant for one of a group, and its node did not
take or is dead, goes to another.

A publisher waits for the answer until the node is no longer a member, or has said nothing for long
though its link is up (overlay/delivery/outstanding.py). Then the node is cut off, and ``left_out``
hears which events were completed without it. A portion is sent once over a link, and again over a new
link, or when its node had no room for it. So what waits in a queue, or for a slow consumer, is not
sent twice.

A batch waits while the filters of some node are not known. So a subscription is found by every batch from the moment at which every
live node knows that this node takes the topic this way, and every publisher that watches has its filter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, cast

from gossamer.filters import loops
from gossamer.filters.packed import Packed
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
from gossamer.overlay.direct.flight import Flight, Source, Taker
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
from gossamer.overlay.direct.plan import Payload, Plan
from gossamer.overlay.direct.reading import Reading
from gossamer.overlay.direct.received import BatchPart, Received
from gossamer.overlay.direct.told import Told
from gossamer.trace import Rejected, hex_peer

AGAIN = Micros(250 * MILLISECOND)
DIAL_AGAIN = Micros(SECOND)  # a node that owes an answer and has no link
IDLE = Micros(60 * SECOND)  # a topic on which nothing is published: nobody is watched for it
EXPECTED_MAX = 256  # topics for which others are watched though nothing has been published
WANTS_MAX = 2_000_000  # filters of others that are kept; who tells more gets everything
WANTS_CHARACTERS = 256 << 20  # and of their texts
WANTS_EACH = 1 << 17  # of one node on one topic, twice what an honest one tells
_ALL, _UNSAID = (
    -1,
    -2,
)  # numbers of what such a node is taken to want, and one that does not say what


class Members(Protocol):
    def takers(self, topic: str) -> list[Peer]:
        """Who takes a topic this way, this node included."""

    def address(self, peer: Peer) -> str | None:
        """Where a member can be reached; None: it is no member."""

    def hash(self, topic: str) -> int: ...

    @property
    def version(self) -> int:
        """Counts changes of what ``takers`` says that the view does not tell."""


class Direct:
    """The machine. Its effects go to ``out``. ``told.laid``: what is laid."""

    def __init__(
        self,
        me: Peer,
        epoch: int,
        members: Members,
        arrive: Arrive,
        complete: Complete,
        left_out: LeftOut,
        out: list[Effect],
    ) -> None:
        self.me, self.members = me, members
        self.told = Told(epoch)
        self._complete, self._left_out = complete, left_out
        self.out = out
        self.outstanding = Outstanding(out, _key, lambda key: Holding(*key[1:]))
        self.links = self.outstanding.links
        self._received = Received(me, arrive, out, self.outstanding)
        self._sources: dict[str, Source] = {}
        self._by_hash: dict[int, Source] = {}
        self._flights: dict[tuple[int, int], Flight] = {}
        self._own: dict[tuple[int, int, int], Part] = {}  # of ours, while our owner has them
        self._dialled: dict[Peer, Micros] = {}
        self._dial_at: Micros = NEVER  # when to dial nodes that owe an answer and have no link
        self._view = 0  # counts changes of the view
        self._look_at: Micros = (
            NEVER  # whether a batch need not wait any longer, and whom to ask again
        )
        self._idle_at: Micros = NEVER
        self._wants = self._characters = 0  # filters of others that are kept, and their texts
        self._reading = Reading()
        self._sessions = 0

    # ------------------------------------------------------------------ what is known

    @property
    def deadline(self) -> Micros:
        return min(
            self._dial_at, self._look_at, self._idle_at, self.told.deadline, self.outstanding.deadline,
            self._reading.deadline,
        )  # fmt: skip

    @property
    def remembered(self) -> int:
        """Portions in the deduplication tables."""
        return self._received.remembered

    @property
    def watched(self) -> int:
        """Filters of others that are known here."""
        return self._wants

    @property
    def resent(self) -> int:
        return self.outstanding.sent_again

    def needs(self, peer: Peer) -> bool:
        return self.outstanding.waits_for(peer)

    def _awake(self, now: Micros) -> Micros:
        """A clock for others' silence: it stands while this node is too busy to hear them."""
        return Micros(now - self.outstanding.overslept)

    # ------------------------------------------------------------------ subscribing

    def subscribe(self, number: int, topic: str, text: str, group: str, now: Micros) -> None:
        new = self.told.subscribe(number, self.members.hash(topic), text, group, now)
        source = self._sources.get(topic)
        if new is not None and source is not None and source.plan is not None:
            source.plan.want(self.me, *new)

    def unsubscribe(self, number: int, topic: str, now: Micros) -> None:
        gone = self.told.unsubscribe(number, now)
        source = self._sources.get(topic)
        if gone is not None and source is not None and source.plan is not None:
            source.plan.drop(self.me, gone)

    def renew(self, now: Micros) -> None:
        """Others had taken this node for dead: they do not tell it of changes any more, so what it knows is worth nothing."""
        self.told.renew(now)
        for source in self._sources.values():
            self._forget(source, list(source.takers))
            source.seen = (-1, 0)
        self._look_at = now

    # ------------------------------------------------------------------- publishing

    def expect(self, topic: str, packed: Packed, now: Micros) -> None:
        """Something will perhaps be published soon: whoever takes the topic is asked for its filters before that waits for them."""
        if topic in self._sources or len(self._sources) < EXPECTED_MAX:
            self._source(topic, packed, now)
            self._look_at = now

    def _source(self, topic: str, packed: Packed, now: Micros) -> Source:
        source = self._sources.get(topic)
        if source is None:
            hash = self.members.hash(topic)
            source = self._sources[topic] = self._by_hash[hash] = Source(topic, hash, packed)
        if source.packed is not packed:
            source.packed, source.plan = packed, None
            for other in self._flights.values():
                if other.source is source:  # as events of the longer schema
                    other.payload = Payload(other.batch, packed)
        source.used = now
        self._idle_at = min(self._idle_at, Micros(now + IDLE))
        return source

    def publish(self, batch: Batch, payload: Payload, packed: Packed, now: Micros) -> None:
        source = self._source(batch.topic, packed, now)
        flight = self._flights[batch.incarnation, batch.first] = Flight(source, batch, payload)
        if source.held or not self._is_ready(source, now):
            source.held.append(flight)
            self._look_at = min(self._look_at, Micros(now + AGAIN))
        else:
            self._launch(flight, now)

    def _is_ready(self, source: Source, now: Micros) -> bool:
        """Whether the filters of all who take the topic are known; who is not known is asked."""
        view = (self._view, self.members.version)
        if source.seen == view:
            if source.is_known:
                return True
        else:
            wanted = dict.fromkeys(self.members.takers(source.name))
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
                    # Others need not wait: it gets everything. It may be only busy; to cut it off would lose events.
                    taker.since = self._awake(now)
                    self.out.append(Note(Rejected(hex_peer(peer), "does not say what it wants")))
                    self._want(source, peer, taker, (_UNSAID, "", ""), now)
                source.is_known = False
                ready = ready and _UNSAID in taker.wants
                # It may not know this node as a member yet, and answers only members: so it is asked again.
                if taker.asked_at == NEVER or taker.asked_at + AGAIN <= now:
                    taker.asked_at = now
                    self._say(peer, Watch(source.hash, taker.epoch, taker.have, taker.session), now)
        return ready

    def _launch(self, flight: Flight, now: Micros) -> None:
        batch, payload = flight.batch, flight.payload
        flight.sending += 1
        for peer, group, places in self._plan(flight.source, now).shares(payload, batch.first):
            self._send(
                flight, peer, group, tuple(places or ()), payload.cut(places), now
            )  # no offsets: all of them
        flight.sending -= 1
        payload.rest()
        self._maybe_finish(flight)

    def _plan(self, source: Source, now: Micros) -> Plan:
        """What everybody wants of the topic, by its present schema."""
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
        message = Portion(
            batch.topic, self.me, batch.incarnation, batch.first, number, batch.floor, offsets, group, rows, whole
        )  # fmt: skip
        key = (batch.incarnation, batch.first, number)
        part = Part(peer, key, message, message.places, flight)
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
                flight.each += matched[0]  # of the whole batch
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
        self._maybe_finish(flight)

    def _choose_again(
        self, flight: Flight, peer: Peer, group: str, offsets: Sequence[int], now: Micros
    ) -> None:
        """A member of a group did not take these: another one may."""
        plan = self._plan(flight.source, now)
        members: dict[Peer, list[int]] = {}
        for offset in offsets:
            tried = flight.tried.setdefault((group, offset), [])
            tried.append(peer)
            other = plan.chosen(
                group, flight.payload.rows[offset], flight.batch.first + offset, tried
            )
            if other is not None:
                members.setdefault(other, []).append(offset)
        flight.sending += 1
        for other, several in members.items():
            self._send(flight, other, group, tuple(several), flight.payload.cut(several), now)
        flight.sending -= 1

    def _maybe_finish(self, flight: Flight) -> None:
        batch = flight.batch
        if (
            not flight.waiting
            and not flight.sending
            and self._flights.pop((batch.incarnation, batch.first), None) is not None
        ):
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
            if (
                self.members.address(sender) is not None
            ):  # else nobody would tell us that it is dead; it asks again
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
        if state is LinkState.CUT:  # for cause: no receipt waits for it
            self._give_up(peer, now, is_alive=True)

    def refused(self, peer: Peer, message: DirectMessage, now: Micros) -> None:
        self.outstanding.refused(peer, message)

    def view_changed(self, now: Micros) -> None:
        """Somebody came, or takes topics by other ways than before."""
        self._view += 1
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

    def took(self, key: BatchPart, matched: tuple[int, ...], now: Micros) -> None:
        """The owner has taken a portion whose count it did not know at once."""
        if key[0] == self.me:
            part = self._own.pop(key[1:], None)
            if part is not None:
                self._answered(part, matched, now)
            return
        self._received.took(key, matched)

    # ------------------------------------------------------------------ publishers' side

    def _taken(self, sender: Peer, message: Taken, now: Micros) -> None:
        part = self.outstanding.find(sender, _key(message))
        if part is None:
            return  # late or repeated: counted already
        matched = joined(message.matched, message.dropped)
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
            # The plan is made now, a part at a time, and not all at once with the first batch.
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

    def _want(self, source: Source, peer: Peer, taker: Taker, change: Want, now: Micros) -> None:
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
        self, source: Source, plan: Plan, peer: Peer, wish: tuple[int, str, str], now: Micros
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
        """Let batches go whose filters are all known; ask again for those that are not."""
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

    def _forget(self, source: Source, peers: list[Peer], *, tell: bool = False) -> None:
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
        address = self.members.address(peer)
        if address and now - self._dialled.get(peer, Micros(-AGAIN)) >= AGAIN:
            self._dialled[peer] = now
            self.out.append(Dial(address, peer))


def _key(message: Any) -> tuple[int, int, int]:
    """Which portion of ours a message is, or is about."""
    return message.incarnation, message.first, message.part
