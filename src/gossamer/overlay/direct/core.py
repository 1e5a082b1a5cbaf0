"""Direct: one hop from the publisher to each node that wants something of a batch, and nothing to anybody else.

A publisher *watches* the nodes whose interest records say that they take a topic this way: they tell it their filters, and every
change (told.py). It matches a batch against all of them (plan.py) and sends each node its *portions*; who has taken one says how
many subscriptions took each event. The receipt is complete when all have. What was meant for one of a group, and its node did not
take or is dead, goes to another.

A publisher waits for the answer until the node is no longer a member, or has said nothing for long though its link is up
(``PATIENCE``). Then the node is cut off, and ``left`` says which events were completed without it. A portion is sent again over a
new link, and when its node says that it lacks it: the publisher asks (``Check``) behind its portions, so that what waits in a
queue, or for a slow consumer, is not sent twice.

A batch waits while the filters of some node are not known. So a subscription is found by every batch from the moment at which every
live node knows that this node takes the topic this way, and every publisher that watches has its filter.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Protocol

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
from gossamer.overlay.direct.flight import Flight, Outstanding, Part, Source, Taker
from gossamer.overlay.direct.messages import (
    CHECK_MAX,
    Check,
    DirectMessage,
    Holding,
    Lacking,
    Portion,
    PortionId,
    Taken,
    Unwatch,
    Wanted,
    Watch,
)
from gossamer.overlay.direct.plan import Payload, Plan
from gossamer.overlay.direct.received import Arrive, Key, Received
from gossamer.overlay.direct.told import Told
from gossamer.trace import Rejected, hex_peer

AGAIN = Micros(250 * MILLISECOND)
CHECK_AFTER = Micros(SECOND)  # a portion without an answer is asked for
CHECK_MAX_AFTER = Micros(4 * SECOND)
# A link on which bytes move has the last question still in its queue, most likely.
MOVING_LASTS = Micros(6 * SECOND)
# With a link on which nothing moves, and without a word about a portion, while this node was awake itself.
PATIENCE = Micros(15 * SECOND)
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
    """The machine. ``finished``: (incarnation, first, matched) of our batches, as ``added`` has it; ``told.laid``: what is laid."""

    def __init__(self, me: Peer, epoch: int, members: Members, arrive: Arrive) -> None:
        self.me, self.members = me, members
        self.told = Told(epoch)
        self.finished: list[tuple[int, int, tuple[int, ...]]] = []
        self.left: list[Left] = []  # what was completed without live members; the owner's
        self.links: dict[Peer, bool] = {}  # False: its queue is full
        self.resent = 0
        self.out: list[Effect] = []
        self._received = Received(arrive, self.out)
        self._sources: dict[str, Source] = {}
        self._by_hash: dict[int, Source] = {}
        self._flights: dict[tuple[int, int], Flight] = {}
        self._to: dict[Peer, Outstanding] = {}
        self._checks = 0
        self._dialled: dict[Peer, Micros] = {}
        self._timers: list[tuple[Micros, Peer]] = []
        self._view = 0  # counts changes of the view
        self._look_at: Micros = (
            NEVER  # whether a batch need not wait any longer, and whom to ask again
        )
        self._idle_at: Micros = NEVER
        self._wants = self._characters = 0  # filters of others that are kept, and their texts
        self._sessions = 0
        self._overslept = Micros(0)  # by how much wake-ups came far too late, together

    # ------------------------------------------------------------------ what is known

    @property
    def deadline(self) -> Micros:
        return Micros(0) if self.out else self._due

    @property
    def _due(self) -> Micros:
        timers, to = self._timers, self._to
        # Of what has long been answered: nobody need wake up for it.
        while timers and ((known := to.get(timers[0][1])) is None or known.at != timers[0][0]):
            heapq.heappop(timers)
        timer = timers[0][0] if timers else NEVER
        return min(timer, self._look_at, self._idle_at, self.told.deadline)

    @property
    def remembered(self) -> int:
        """Portions in the deduplication tables."""
        return self._received.remembered

    @property
    def watched(self) -> int:
        """Filters of others that are known here."""
        return self._wants

    def needs(self, peer: Peer) -> bool:
        return peer in self._to

    def _awake(self, now: Micros) -> Micros:
        """A clock for others' silence: it stands while this node is too busy to hear them."""
        return Micros(now - self._overslept)

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
        if source.seen != view:
            wanted = dict.fromkeys(self.members.takers(source.name))
            wanted.pop(self.me, None)
            self._forget(source, [peer for peer in source.takers if peer not in wanted], tell=True)
            for peer in wanted:
                if peer not in source.takers:
                    self._sessions += 1
                    source.takers[peer] = Taker(self._sessions, self._awake(now))
            source.seen = view
        ready = True
        for peer, taker in source.takers.items():
            if not taker.is_ready:
                if peer not in self.links:
                    taker.since = self._awake(now)
                elif self._awake(now) - taker.since >= PATIENCE:
                    # Others need not wait: it gets everything. It may be only busy; to cut it off would lose events.
                    taker.since = self._awake(now)
                    self.out.append(Note(Rejected(hex_peer(peer), "does not say what it wants")))
                    self._want(source.plan, peer, taker, _UNSAID, "", "")
                ready = ready and _UNSAID in taker.wants
                # It may not know this node as a member yet, and answers only members: so it is asked again.
                if taker.asked_at == NEVER or taker.asked_at + AGAIN <= now:
                    taker.asked_at = now
                    self._say(peer, Watch(source.hash, taker.epoch, taker.have, taker.session), now)
        return ready

    def _launch(self, flight: Flight, now: Micros) -> None:
        batch, payload = flight.batch, flight.payload
        flight.sending += 1
        for peer, group, places in self._plan(flight.source).shares(payload, batch.first):
            self._send(
                flight, peer, group, tuple(places or ()), payload.cut(places), now
            )  # no offsets: all of them
        flight.sending -= 1
        payload.rest()
        self._maybe_finish(flight)

    def _plan(self, source: Source) -> Plan:
        """What everybody wants of the topic, by its present schema."""
        if source.plan is None:
            source.plan = plan = Plan(source.packed)
            for peer, taker in source.takers.items():
                for number, (text, group) in taker.wants.items():
                    plan.want(peer, number, text, group)
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
        part = flight.waiting[peer, number] = Part(peer, message, self._awake(now))
        if peer == self.me:
            matched = self._received.hand_over(self.me, message, 0, now)
            if matched is not None:
                self._answered(flight, part, matched, now)
            return
        outstanding = self._to.get(peer)
        if outstanding is None:
            outstanding = self._to[peer] = Outstanding()
            self._look_after(peer, outstanding, CHECK_AFTER, now)
        outstanding.parts[message.id] = part
        self._try(part, now)

    def _try(self, part: Part, now: Micros) -> None:
        """Send a portion, or see to a link."""
        if self.links.get(part.peer):
            part.attempts += 1
            part.said_at, part.number = now, self._checks
            self.resent += part.attempts > 1
            self.out.append(Send((part.peer,), part.message))
        elif part.peer not in self.links:
            self._dial(part.peer, now)

    def _look_after(self, peer: Peer, outstanding: Outstanding, wait: Micros, now: Micros) -> None:
        outstanding.wait, outstanding.at = wait, Micros(now + wait)
        heapq.heappush(self._timers, (outstanding.at, peer))

    def _check(self, peer: Peer, outstanding: Outstanding, now: Micros) -> None:
        """What has become of the portions on their way to a peer?"""
        wait, link = CHECK_AFTER, self.links.get(peer)
        overdue: list[PortionId] = []
        is_mute = False
        for id, part in list(outstanding.parts.items()):
            if not link:  # there is none, or its queue is full: the peer may not have got it
                part.sign = self._awake(now)
            elif self._awake(now) - part.sign >= PATIENCE:
                part.sign, is_mute = self._awake(now), True
            if link is None or not part.attempts:
                self._try(part, now)
            elif link and now - part.said_at >= min(outstanding.wait, CHECK_MAX_AFTER):
                overdue.append(id)
        if is_mute:
            self.out.append(Note(Rejected(hex_peer(peer), "does not report", cut=True)))
        elif overdue:
            wait = Micros(min(outstanding.wait * 2, CHECK_MAX_AFTER))
            self._checks += 1
            for start in range(0, len(overdue), CHECK_MAX):
                some = tuple(overdue[start : start + CHECK_MAX])
                self.out.append(Send((peer,), Check(self._checks, some)))
        self._look_after(peer, outstanding, wait, now)

    def _lacking(self, sender: Peer, message: Lacking, now: Micros) -> None:
        outstanding = self._to.get(sender)
        for id in message.portions:
            part = outstanding.parts.get(id) if outstanding is not None else None
            if part is not None:
                part.sign = self._awake(now)
                # What was sent after that question is not meant.
                if part.number < message.number:
                    self._try(part, now)

    def _answered(self, flight: Flight, part: Part, matched: tuple[int, ...], now: Micros) -> None:
        message = part.message
        key = (part.peer, message.part)
        if flight.waiting.pop(key, None) is None:
            return
        outstanding = self._to.get(part.peer)
        if outstanding is not None:
            outstanding.parts.pop(message.id, None)
            if not outstanding.parts:
                del self._to[part.peer]
        if matched:
            flight.most += max(matched)
            if len(matched) == 1 and type(part.offsets) is range:
                flight.each += matched[0]  # of the whole batch
            else:
                flight.total = flight.total or [0] * flight.batch.count
                loops.tally(flight.total, part.offsets, matched)
        if message.group:
            taken = matched if len(matched) != 1 else matched * len(part.offsets)
            # A member that has discarded an event does not have it, so another one is asked.
            left = [
                offset
                for at, offset in enumerate(part.offsets)
                if not taken or not taken[at] % DISCARDED
            ]
            if left:
                self._choose_again(flight, part.peer, message.group, left, now)
        self._maybe_finish(flight)

    def _choose_again(
        self, flight: Flight, peer: Peer, group: str, offsets: Sequence[int], now: Micros
    ) -> None:
        """A member of a group did not take these: another one may."""
        plan = self._plan(flight.source)
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
            self.finished.append((batch.incarnation, batch.first, total))

    # ----------------------------------------------------------------------- inputs

    def receive(self, sender: Peer, message: DirectMessage, now: Micros) -> None:
        kind = type(message)
        if kind is Portion:
            self._received.portion(sender, message, now)  # type: ignore[arg-type]
        elif kind is Taken or kind is Holding:
            self._reply(sender, message, now)  # type: ignore[arg-type]
        elif kind is Check:
            self._received.check(sender, message)  # type: ignore[arg-type]
        elif kind is Lacking:
            self._lacking(sender, message, now)  # type: ignore[arg-type]
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
        late = now - self._due
        if late > AGAIN:  # less is how loops are
            self._overslept = Micros(self._overslept + late)
        if self.told.deadline <= now:
            for peer, message in self.told.wake(now):
                self._say(peer, message, now)
        timers = self._timers
        while timers and timers[0][0] <= now:
            at, peer = heapq.heappop(timers)
            outstanding = self._to.get(peer)
            if outstanding is not None and outstanding.at == at:
                self._check(peer, outstanding, now)
        if self._look_at <= now:
            self._look(now)
        if self._idle_at <= now:
            self._drop_idle(now)

    def link(self, peer: Peer, state: LinkState, now: Micros) -> None:
        if state is LinkState.DOWN or state is LinkState.CUT:
            self.links.pop(peer, None)
            self.told.unlinked(peer, now)
            if state is LinkState.CUT:  # for cause: no receipt waits for it
                self._give_up(peer, now, is_alive=True)
            return
        outstanding = self._to.get(peer)
        if state is LinkState.MOVING:
            if outstanding is not None:
                for part in outstanding.parts.values():
                    part.sign = self._awake(now)
                self._look_after(peer, outstanding, MOVING_LASTS, now)
            return
        self.links[peer] = state is not LinkState.FULL
        if state is LinkState.UP:
            self._dialled.pop(peer, None)
            self.told.linked(peer, now)
            for source in self._sources.values():
                taker = source.takers.get(peer)
                if taker is not None and not taker.is_ready:
                    taker.asked_at, self._look_at = NEVER, now
        if state is not LinkState.FULL and outstanding is not None:
            for part in list(outstanding.parts.values()):
                if state is LinkState.UP or not part.attempts:
                    part.sign = self._awake(now)
                    self._try(part, now)

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
        outstanding = self._to.pop(peer, None)
        for part in outstanding.parts.values() if outstanding is not None else ():
            message = part.message
            flight = self._flights.get((message.incarnation, message.first))
            if is_alive and not message.group:
                ends = message.first + part.offsets[0], message.first + part.offsets[-1]
                self.left.append(
                    Left(peer, message.topic, self.me, message.incarnation, *ends, False)
                )
            if flight is not None:
                self._answered(flight, part, (), now)

    def took(self, key: Key, matched: tuple[int, ...], now: Micros) -> None:
        """The owner has taken a portion whose count it did not know at once."""
        publisher, incarnation, first, number = key
        if publisher == self.me:
            flight = self._flights.get((incarnation, first))
            part = flight.waiting.get((self.me, number)) if flight is not None else None
            if flight is not None and part is not None:
                self._answered(flight, part, matched, now)
            return
        self._received.took(key, matched)

    # ------------------------------------------------------------------ publishers' side

    def _reply(self, sender: Peer, message: Taken | Holding, now: Micros) -> None:
        flight = self._flights.get((message.incarnation, message.first))
        part = flight.waiting.get((sender, message.part)) if flight is not None else None
        if flight is None or part is None:
            return  # late or repeated: counted already
        if type(message) is Holding:
            part.sign, part.said_at = self._awake(now), now
            return
        assert type(message) is Taken
        matched = joined(message.matched, message.dropped)
        if matched is None or (len(matched) > 1 and len(matched) != len(part.offsets)):
            self.out.append(Note(Rejected(hex_peer(sender), "report for another number of events")))
            return
        self._answered(flight, part, matched, now)

    def _wanted(self, sender: Peer, message: Wanted, now: Micros) -> None:
        source = self._by_hash.get(message.topic)
        taker = source.takers.get(sender) if source is not None else None
        if source is None or taker is None:
            self.out.append(Send((sender,), Unwatch(message.topic, message.session)))
            return
        is_late = message.session != taker.session
        if (
            not is_late
            and message.base == 0
            and (taker.epoch != message.epoch or taker.have == 0 or taker.latest < 0)
        ):
            self._drop_wants(taker)
            taker.epoch, taker.have, taker.wants = message.epoch, 0, {}
            if source.plan is not None:
                source.plan.forget(sender)
        is_next = taker.epoch == message.epoch and taker.have == message.base
        if not is_late and is_next and message.base <= message.version <= message.latest:
            plan = self._plan(
                source
            )  # now, a part at a time, and not all at once with the first batch
            for number, text, group in message.changes:
                self._want(plan, sender, taker, number, text, group)
            if _UNSAID in taker.wants and message.version == message.latest:
                self._want(plan, sender, taker, _UNSAID, None, "")
            taker.have, taker.since = message.version, self._awake(now)
            taker.latest = message.latest
        taker.asked_at = now
        self.out.append(
            Send((sender,), Watch(message.topic, taker.epoch, taker.have, taker.session))
        )
        if taker.is_ready and source.held:
            self._look_at = now

    def _want(
        self, plan: Plan | None, peer: Peer, taker: Taker, number: int, text: str | None, group: str
    ) -> None:
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
        if plan is not None:
            if text is None:
                plan.drop(peer, number)
            else:
                plan.want(peer, number, text, group)

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
