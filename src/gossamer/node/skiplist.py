"""``route = skiplist``: a topic has one skip list of filters (seed 001, overlay/skiplist).

A subscription's filter becomes entries (filters/place.py) in the list of its topic. An event
looks once in each class that is in use on the topic. Every node says in its interest record
(``extra``) which classes its entries have, so a publisher knows the union over the members of the
view. A barrier on the record is a barrier on its classes: the first subscription of a new class
is laid when every publisher knows the class. A list does not know the whole content of filters,
so subscribers check it.
"""

from __future__ import annotations

import contextlib
import heapq
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from gossamer.filters import Filter, Schema
from gossamer.filters.packed import Packed
from gossamer.filters.place import Class
from gossamer.machine import NEVER, Deliver, Effect, LinkState, Micros, Note, Peer, Send
from gossamer.node.planes import BITS, Key, Plane, Route, RouteError, Rows
from gossamer.node.rights import Rights
from gossamer.overlay.batch import Batch
from gossamer.overlay.delivery.engine import Arrive, Complete
from gossamer.overlay.interest.core import Interest
from gossamer.overlay.interest.record import Record, ViewChange, read_stamp
from gossamer.overlay.proof import UNSIGNED, Proof
from gossamer.overlay.skiplist.config import FEW, SkipConfig
from gossamer.overlay.skiplist.core import SkipList
from gossamer.overlay.skiplist.joining import Joined
from gossamer.overlay.skiplist.messages import Carry
from gossamer.overlay.skiplist.places import CLASSES_MAX, Classes, Places
from gossamer.overlay.skiplist.position import beyond
from gossamer.overlay.skiplist.search import Found
from gossamer.overlay.skiplist.subscriber import Subscriber
from gossamer.overlay.skiplist.walks import Walked, unreached
from gossamer.trace import Dropped

# Look-ups without an answer, and answers that the driver has not taken.
QUESTIONS_MAX = 1024
# Topics of which this node keeps a list, because it subscribes, publishes or asks there.
LISTS_MAX = 4096
_Announced = dict[bytes, Annotated[tuple[Class, ...], Meta(max_length=CLASSES_MAX)]]
_encoder = msgspec.msgpack.Encoder()
_announced_decoder = msgspec.msgpack.Decoder(_Announced)

_BIT = BITS[Route.SKIPLIST]


class _TopicList:
    """One topic's list at this node."""

    def __init__(self, name: str, hash: bytes, schema: Schema) -> None:
        self.name, self.hash, self.schema = name, hash, schema
        self.rows = Packed(schema)
        self.machine: SkipList
        self.subscriber: Subscriber
        # This counts new members while there are few.
        self.epoch = 0
        # Whether every live node knows that this one is a member.
        self.is_known = False
        # The members, as long as nobody has changed; and the version of the rights by which they
        # were judged.
        self.contacts: list[Peer] | None = None
        self.judged = -1
        # The earliest time for which the list is in the heap.
        self.armed: Micros = NEVER

    @property
    def classes(self) -> Classes:
        return self.subscriber.classes


class _Members:
    """The members of a list, as the view knows them."""

    def __init__(self, one: _TopicList, interest: Interest) -> None:
        self._one, self._view = one, interest.view

    def lives(self, peer: Peer) -> bool:
        return peer in self._view.members

    def is_known(self) -> bool:
        return self._one.is_known


class SkipListPlane(Plane):
    def __init__(
        self,
        me: Peer,
        incarnation: int,
        rng: Random,
        config: SkipConfig,
        interest: Interest,
        arrive: Arrive,
        complete: Complete,
        say: Callable[[list[Effect], Micros], None],
        *,
        schemas: dict[str, Schema],
        links: Callable[[], list[Peer]],
    ) -> None:
        self.rights: Rights | None = None
        # Answers to look-ups, for the driver to take.
        self.found: dict[int, Found] = {}
        # The number of this node's events by the hops to the farthest end of their walks.
        self.hops: Counter[int] = Counter()
        # Signs this node's events. The node sets it where there are keys.
        self.proof: Proof = UNSIGNED
        self._me, self._incarnation, self._rng, self._config = me, incarnation, rng, config
        self._interest, self._schemas, self._links = interest, schemas, links
        self._arrive, self._complete, self._say_effects = arrive, complete, say
        self._lists: dict[bytes, _TopicList] = {}
        # Topics whose schema is known.
        self._names: dict[bytes, str] = {}
        # By subscription.
        self._of: dict[int, _TopicList] = {}
        # By other member: its classes, and the bytes that they were decoded from.
        self._announced: dict[Peer, _Announced] = {}
        self._read: dict[Peer, bytes] = {}
        # By barrier: the classes that everybody knows when it is reached.
        self._barriers: dict[int, dict[bytes, tuple[Class, ...]]] = {}
        # Groups that the owner has not taken yet.
        self._deferred: dict[Key, _TopicList] = {}
        self._laid: list[int] = []
        self._heap: list[tuple[Micros, bytes]] = []
        self._questions: dict[tuple[bytes, int], int] = {}
        self._asked = 0
        for peer, known in interest.view.members.items():
            self._hear(peer, known.record.extra)

    @property
    def remembered(self) -> int:
        """Events in the deduplication tables."""
        return sum(one.machine.remembered for one in self._lists.values())

    def about(self) -> dict[str, Any]:
        """The content of this node's lists, as plain data."""
        topics = {
            one.name: {
                "entries": len(one.machine.entries),
                "links": sorted(
                    {len(list(entry.links())) for entry in one.machine.entries.values()}
                ),
                "noise": one.machine.noise,
                "counters": {
                    name: count for name, count in sorted(one.machine.counters.items()) if count
                },
            }
            for one in self._lists.values()
        }
        return {
            "topics": topics,
            "hops": {str(hops): count for hops, count in sorted(self.hops.items())},
        }

    # ---------------------------------------------------------------------- inputs

    @property
    def deadline(self) -> Micros:
        heap = self._heap
        while heap:
            one = self._lists.get(heap[0][1])
            if one is not None and one.armed == heap[0][0]:
                return heap[0][0]
            heapq.heappop(heap)
        return NEVER

    def receive(self, sender: Peer, message: Any, now: Micros) -> None:
        hash = self._hash(message)
        one = self._lists.get(hash) or self._list(hash, now)
        if one is not None:
            self._run(one, one.machine.receive(sender, message, now), now)
        elif type(message) is Carry:
            # The topic is not known here yet. The publisher asks again, and perhaps other nodes.
            self._say_effects([Send((sender,), unreached(message, hash))], now)

    def decline(self, sender: Peer, message: Any, now: Micros) -> None:
        self._say_effects([Send((sender,), unreached(message, self._hash(message)))], now)

    def _hash(self, message: Any) -> bytes:
        """The hash of the topic that a message is about."""
        if type(message) is Carry:
            return self._interest.names.hash(message.batch.topic)
        hash: bytes = message.topic.to_bytes(8, "big")
        return hash

    def wake(self, now: Micros) -> None:
        while self.deadline <= now:
            one = self._lists[heapq.heappop(self._heap)[1]]
            one.armed = NEVER
            self._run(one, one.machine.wake(now), now)

    def link(self, peer: Peer, state: LinkState, now: Micros) -> None:
        for one in list(self._lists.values()):
            self._run(one, one.machine.link(peer, state, now), now)

    def refused(self, peer: Peer, message: Any, now: Micros) -> None:
        one = self._lists.get(self._hash(message))
        if one is not None:
            self._run(one, one.machine.refused(peer, message, now), now)

    def changed(self, change: ViewChange, now: Micros) -> None:
        before, after = change.before, change.after
        if change.peer != self._me:
            self._hear(change.peer, after.extra if after is not None else b"")
        new_life = before is not None and (after is None or before.life != after.life)
        for one in list(self._lists.values()):
            one.contacts = None
            if new_life and change.peer != self._me:
                # This is a verdict, which a broken link is not; or the peer has begun anew, and has
                # none of its entries.
                one.machine.dead(change.peer, now)
                self._arm(one)
            if (
                after is not None
                and _takes(after, one.hash)
                and (before is None or before.life != after.life or not _takes(before, one.hash))
                and len(self._contacts(one)) <= FEW
            ):
                one.epoch += 1
                if before is None:
                    # The peer may come from a part of the fabric that went on without this node.
                    one.machine.doubt(now)
                    self._arm(one)

    def under_way(self, now: Micros) -> Sequence[Hashable]:
        return [key for one in self._lists.values() for key in one.machine.engine.under_way()]

    def known(self, barrier: int, now: Micros) -> bool:
        """Every live node has heard what this node had said when it asked for this barrier.

        Returns whether it was a barrier of this plane.
        """
        announced = self._barriers.pop(barrier, None)
        if announced is None:
            return False
        for hash, classes in announced.items():
            one = self._lists.get(hash)
            if one is not None:
                one.is_known = bool(one.subscriber.filters)
                one.subscriber.confirmed(classes, now)
                self._laid += one.subscriber.ready()
                self._arm(one)
        return True

    def needs(self, peer: Peer) -> bool:
        return any(peer in one.machine.wanted for one in self._lists.values())

    def renew(self, now: Micros) -> None:
        self._laid.clear()
        # What others knew of the old life counts for nothing.
        self._barriers = {barrier: {} for barrier in self._barriers}
        for one in self._lists.values():
            one.is_known = False
            one.subscriber.renew(now)
            self._laid += one.subscriber.ready()
            self._arm(one)
        self._say(now, ask=True)

    def leave(self, now: Micros) -> None:
        for one in self._lists.values():
            one.machine.leave(now)
            self._arm(one)

    # -------------------------------------------------------------------- commands

    def subscribe(self, number: int, topic: str, filter: Filter, group: str, now: Micros) -> None:
        one = self._by_name(topic, now)
        one.subscriber.subscribe(number, filter, now)
        try:
            self._say(now, ask=not one.is_known)
        except ValueError:
            # This node's record has no room for another class.
            one.subscriber.unsubscribe(number, now)
            raise
        finally:
            self._arm(one)
        self._of[number] = one
        # It is laid at once where another filter of this node has its places, or nothing passes it.
        self._laid += one.subscriber.ready()

    def unsubscribe(self, number: int, now: Micros) -> None:
        one = self._of.pop(number)
        one.subscriber.unsubscribe(number, now)
        one.is_known = one.is_known and bool(one.subscriber.filters)
        self._say(now)
        self._arm(one)

    def take_laid(self) -> list[int]:
        laid, self._laid = self._laid, []
        return laid

    def knows(self, topic: str) -> bool:
        return self._interest.names.hash(topic) in self._names

    def publish(self, batch: Batch, now: Micros, rows: Rows = None) -> None:
        one = self._by_name(batch.topic, now)
        try:
            known = rows if rows is not None else one.rows.decode(batch.rows)
        except msgspec.DecodeError as error:
            # They are of an earlier life, when the topic had another schema, so nobody takes them.
            reason = f"events on {batch.topic!r}: {error}"
            self._say_effects([Note(Dropped("event", batch.count, reason))], now)
            self._complete(batch.incarnation, batch.first, (0,) * batch.count)
            return
        looks: list[list[tuple[bytes, bytes]]] = []
        for row in known:
            look: list[tuple[bytes, bytes]] = []
            for _, low, high in one.subscriber.classes.intervals(row):
                look.append((low, high))
            looks.append(look)
        one.machine.publish(
            batch, looks, lambda places: _encoder.encode([known[place] for place in places]), now
        )
        self._run(one, one.machine.effects(now), now)

    def took(self, key: Key, matched: tuple[int, ...], now: Micros) -> None:
        """The owner has taken events for which it could not say the counts at once."""
        one = self._deferred.pop(key)
        self._run(one, one.machine.took((key[0], key[1], key[2]), matched, now), now)

    def lookup(self, topic: str, row: tuple[Any, ...] | None, now: Micros) -> int:
        """Asks which subscriptions want this event, or without an event which there are.

        ``found`` will have the answer under the number that is returned.
        """
        one = self._by_name(topic, now)
        if row is not None:
            intervals, payload = (
                [keys[1:] for keys in one.classes.intervals(row)],
                _encoder.encode([row]),
            )
        else:
            intervals, payload = [(cls.prefix, beyond(cls.prefix)) for cls in one.classes], b""
        if len(self._questions) >= QUESTIONS_MAX:
            # The program that asked first has given up long ago.
            hash, number = next(iter(self._questions))
            del self._questions[hash, number]
            self._lists[hash].machine.forget(number)
        self._asked += 1
        self._questions[one.hash, one.machine.lookup(intervals, now, payload)] = self._asked
        self._arm(one)
        return self._asked

    # -------------------------------------------------------------------- the lists

    def learn(self, topic: str) -> None:
        """The schema of a topic is known, or longer than before.

        Filters that were placed by the shorter one stay where they are.
        """
        hash = self._interest.names.hash(topic)
        self._names[hash] = topic
        one = self._lists.get(hash)
        if one is not None:
            one.schema, one.rows = self._schemas[topic], Packed(self._schemas[topic])
            for peer, announced in self._announced.items():
                self._spread(one, peer, announced)

    def _by_name(self, topic: str, now: Micros) -> _TopicList:
        hash = self._interest.names.hash(topic)
        one = self._lists.get(hash) or self._list(hash, now)
        if one is None:
            raise RouteError(
                f"this node keeps the lists of {LISTS_MAX} topics already, the most allowed"
            )
        return one

    def _list(self, hash: bytes, now: Micros) -> _TopicList | None:
        one = self._lists.get(hash)
        if one is not None:
            return one
        name = self._names.get(hash)
        if name is None or (len(self._lists) >= LISTS_MAX and not self._forget_idle()):
            return None
        made = one = self._lists[hash] = _TopicList(name, hash, self._schemas[name])
        made.machine = machine = SkipList(
            self._me, incarnation=self._incarnation, rng=self._rng, config=self._config,
            arrive=partial(self._match, made), complete=self._walked, ask=partial(self._ask, made),
            address=self._address, contacts=partial(self._contacts, made), epoch=lambda: made.epoch,
            members=_Members(made, self._interest), topic=int.from_bytes(hash, "big"),
        )  # fmt: skip
        machine.engine.proof = self.proof
        made.subscriber = Subscriber(machine, Places(Classes()))
        for peer, announced in self._announced.items():
            self._spread(made, peer, announced)
        for peer in self._links():
            machine.link(peer, LinkState.UP, now)
        return one

    def _forget_idle(self) -> bool:
        """Forgets lists in which this node has no entry and nothing under way."""
        idle = [
            one.hash
            for one in self._lists.values()
            if not one.machine.entries and not one.machine.is_busy
        ]
        for hash in idle:
            del self._lists[hash]
        return bool(idle)

    def _address(self, peer: Peer) -> str | None:
        known = self._interest.view.members.get(peer)
        return (known.record.address or None) if known is not None else None

    def _contacts(self, one: _TopicList) -> list[Peer]:
        """The members of a list.

        A node that wants the topic by this route and names no class has only filters that nothing
        passes, or it lies.
        """
        version = self.rights.version if self.rights is not None else 0
        if one.contacts is None or one.judged != version:
            announced, me, hash = self._announced, self._me, one.hash
            one.judged = version
            one.contacts = [
                peer
                for peer, stamp in self._interest.view.interested(hash).items()
                if read_stamp(stamp)[1] & _BIT
                and (peer == me or (hash in announced.get(peer, ()) and self._may(peer, hash)))
            ]
        return one.contacts

    def _may(self, peer: Peer, hash: bytes) -> bool:
        name = self._names.get(hash)
        return self.rights is None or name is None or self.rights.may_subscribe(peer, name)

    def name(self, hash: bytes) -> str | None:
        """The name of a topic whose schema is known."""
        return self._names.get(hash)

    def _run(self, one: _TopicList, effects: list[Effect], now: Micros) -> None:
        """Takes the effects of a list that are for this node, and passes the others on."""
        passed: list[Effect] = []
        for effect in effects:
            if type(effect) is Deliver:
                self._heard(one, effect.events[0], now)
            else:
                passed.append(effect)
        if passed:
            self._say_effects(passed, now)
        self._arm(one)

    def _arm(self, one: _TopicList) -> None:
        at = one.machine.deadline
        if at < one.armed:
            one.armed = at
            heapq.heappush(self._heap, (at, one.hash))

    def _heard(self, one: _TopicList, what: object, now: Micros) -> None:
        if type(what) is Joined:
            one.subscriber.joined(now)
            self._laid += one.subscriber.ready()
            self._say(now)
        elif type(what) is Found:
            number = self._questions.pop((one.hash, what.number), None)
            if number is not None:
                if len(self.found) >= QUESTIONS_MAX:
                    del self.found[next(iter(self.found))]
                self.found[number] = what

    def _walked(self, walked: Walked) -> None:
        """All events of a batch have arrived."""
        for walk in walked.walks:
            self.hops[walk.hops] += len(walk.numbers)
        self._complete(walked.incarnation, walked.first, walked.counts)

    def _match(
        self,
        one: _TopicList,
        batch: Batch,
        now: Micros,
        numbers: Sequence[int] | None = None,
        *,
        done: Mapping[int, int] | None = None,
    ) -> tuple[int, ...] | None:
        """Events have come to an entry of this node. None: ``took`` will say how many took each."""
        matched = self._arrive(batch, now, numbers, done=done)
        if matched is None:
            self._deferred[batch.publisher, batch.incarnation, batch.first] = one
        return matched

    @staticmethod
    def _ask(one: _TopicList, key: bytes, payload: bytes) -> list[tuple[int, str]]:
        """A look-up has come to an entry of this node."""
        try:
            rows = one.rows.decode(payload) if payload else []
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return []
        return one.subscriber.answer(key, rows[0] if rows else None)

    # --------------------------------------------------------------------- classes

    def _say(self, now: Micros, ask: bool = False) -> None:
        """Tells all nodes the classes of this node's entries, and asks when all know them."""
        mine = {
            one.hash: one.subscriber.announced
            for one in self._lists.values()
            if one.subscriber.announced
        }
        extra = _encoder.encode(mine) if mine else b""
        if ask or extra != self._interest.record.extra:
            self._interest.say(extra, now)
            if mine:
                self._barriers[self._interest.barrier(now)] = mine

    def _hear(self, peer: Peer, extra: bytes) -> None:
        """Another member has said which classes its entries have."""
        if peer == self._me or self._read.get(peer, b"") == extra:
            return
        before = self._announced.pop(peer, {})
        self._read.pop(peer, None)
        announced: _Announced = {}
        if extra:
            self._read[peer] = extra
            with contextlib.suppress(msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                # If it cannot be read, it helps nobody.
                announced = self._announced[peer] = _announced_decoder.decode(extra)
        for hash in {**before, **announced}:
            one = self._lists.get(hash)
            if one is not None:
                self._spread(one, peer, announced)

    @staticmethod
    def _spread(one: _TopicList, peer: Peer, announced: _Announced) -> None:
        one.classes.hear(
            peer, [cls for cls in announced.get(one.hash, ()) if cls.suits(one.schema)]
        )


def _takes(record: Record, topic: bytes) -> bool:
    """Whether the node wants the topic by this route."""
    stamp = record.stamp(topic)
    return stamp is not None and bool(read_stamp(stamp)[1] & _BIT)


__all__ = ["SkipListPlane"]
