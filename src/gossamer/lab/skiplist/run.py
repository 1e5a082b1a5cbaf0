"""Lists in the simulator: nodes that start, subscriptions that are placed and go, events, and what
is counted.

Node n has the subscriptions from n * per_node on. Nodes start in waves, each as large as the
number of nodes that are there already, so a newcomer finds a list with long links. Contacts are
drawn from all members, as an interest view would give them. A subscription is in force when every
entry of it has joined, and ends when its node says goodbye.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, cast

import msgspec

from gossamer.filters.place import Class
from gossamer.lab.skiplist import checkers as check
from gossamer.lab.skiplist.config import Setup
from gossamer.lab.skiplist.directory import Directory
from gossamer.lab.skiplist.workload import SCHEMA, TOPIC, Oracle, Row, Workload
from gossamer.machine import Deliver, Message, Micros, Peer
from gossamer.overlay.batch import Batch
from gossamer.overlay.skiplist.core import SkipList
from gossamer.overlay.skiplist.entry import Entry
from gossamer.overlay.skiplist.joining import Joined, Placed
from gossamer.overlay.skiplist.messages import Carry, SkiplistMessage
from gossamer.overlay.skiplist.places import Classes, Places
from gossamer.overlay.skiplist.search import Found
from gossamer.overlay.skiplist.subscriber import Subscriber
from gossamer.overlay.skiplist.walks import Walked
from gossamer.sim.book import BareBook
from gossamer.sim.checkers import Receipts
from gossamer.sim.clock import duration
from gossamer.sim.history import Place, Published
from gossamer.sim.network import EventId, Packet
from gossamer.sim.scenario import Scenario, Traffic, address, draw_peers
from gossamer.sim.world import Node

# A frame's length.
HEADER = 4
WAVE_PERIODS = 2
# Where what a node knows of others' classes comes from, all of it together.
VIEW = 0


class SkipCodec:
    """The messages as the wire carries them: msgpack, after a length (``HEADER``) that the
    simulator counts and does not write.
    """

    def __init__(self) -> None:
        self.encode: Callable[[Message], bytes] = msgspec.msgpack.Encoder().encode
        self.decode: Callable[[bytes], Message] = msgspec.msgpack.Decoder(SkiplistMessage).decode

    def ids(self, message: Message) -> tuple[EventId, ...]:
        assert isinstance(message, Carry)
        batch = message.batch
        return tuple((batch.publisher, batch.incarnation, number) for number in batch.events)


class Sent:
    """One event that a user published."""

    __slots__ = (
        "began",
        "by_class",
        "classes",
        "done",
        "event",
        "hops",
        "matched",
        "number",
        "rounds",
        "row",
        "took",
        "wanted",
    )

    def __init__(self, event: Published, row: Row, wanted: dict[int, None], now: Micros) -> None:
        self.event, self.number, self.row, self.began = event, event.index, row, now
        # Subscriptions whose filters it passes.
        self.wanted = wanted
        # When its receipt was complete.
        self.done: Micros | None = None
        self.matched = self.hops = self.rounds = 0
        # Subscriptions.
        self.took: list[int] = []
        # That it looked in.
        self.classes: list[Class] = []
        # Hops, in each of them.
        self.by_class: tuple[int, ...] = ()


_pack, _unpack = msgspec.msgpack.encode, msgspec.msgpack.decode


class SkipRun(Scenario[Setup]):
    codec = SkipCodec
    header = HEADER
    shares = True

    def __init__(self, setup: Setup, workload: Workload, kind: type[SkipList] = SkipList) -> None:
        super().__init__(setup)
        self.workload, self._kind = workload, kind
        self.directory = Directory(duration(setup.announce))
        self.oracle = Oracle(workload.filters)
        self.lease_checks = check.LeaseValidity()
        self.events: list[Sent] = []
        self.book = BareBook(
            self.world, TOPIC, SCHEMA.text, lambda number: self.events[number].wanted
        )
        # Subscriptions that there are, by number.
        self.places: dict[int, Place] = {}
        # Of nodes that are up.
        self.subscribers: dict[int, Subscriber] = {}
        # Nodes with an entry whose place is found: those that a view would list.
        self.members: list[Peer] = []
        self.epoch = 0
        self.join_hops: list[int] = []
        self.found: list[Found] = []
        # (node, incarnation, sequence).
        self._open: dict[tuple[int, int, int], Sent] = {}
        # Of each life of a node: the next number of its events.
        self._next: dict[tuple[int, int], int] = {}
        self._member_at: dict[Peer, int] = {}
        # Nodes that are up, and since when.
        self._up: dict[int, Micros] = {}
        peers = draw_peers(setup.nodes, Random(f"peers {setup.seed}"))
        self._addresses = {peer: address(index) for index, peer in enumerate(peers)}
        for index, peer in enumerate(peers):
            self.world.add_node(peer, address(index))

    def make(self, node: Node) -> SkipList:
        return self._kind(
            node.peer,
            incarnation=node.incarnation + 1,
            rng=Random(f"node {self.setup.seed} {node.index} {node.incarnation}"),
            config=self.setup.protocol(),
            arrive=lambda batch, now, numbers=None, done=None: self._take(node, batch),
            complete=lambda walked: self._walked(node, walked),
            ask=lambda key, payload: self.subscribers[node.index].answer(
                key, tuple(_unpack(payload)) if payload else None
            ),
            address=self._addresses.get,
            contacts=lambda: self.members,
            epoch=lambda: self.epoch,
        )

    # ------------------------------------------------------------------------ nodes

    def boot_in_waves(self, count: int) -> None:
        """Nodes 0 .. count - 1, each wave as large as all before it."""
        period, clock = duration(self.setup.period), self.world.clock
        at, there, number = int(clock.now), 1, 1
        self.boot(0)
        while number < count:
            at += 1
            wave = min(there, count - number)
            for offset in range(wave):
                clock.push(at + offset * WAVE_PERIODS * period // wave, self._boot, number)
                number += 1
            at += WAVE_PERIODS * period
            there += wave
        self.run_until(at + period)

    def boot(self, index: int) -> None:
        self.world.boot(self.world.nodes[index])

    def _boot(self, index: int, _y: None, _z: None) -> None:
        self.boot(index)

    def started(self, node: Node) -> None:
        """The users of a node subscribe as soon as it is up."""
        self._up[node.index] = self.world.clock.now
        self.directory.started(node.index, self.world.clock.now)
        self.subscribers[node.index] = self.make_subscriber(cast(SkipList, node.machine))
        first = node.index * self.setup.per_node
        for number in range(first, min(first + self.setup.per_node, len(self.workload.filters))):
            self.subscribe(node, number, command=False)

    def make_subscriber(self, machine: SkipList) -> Subscriber:
        return Subscriber(machine, Places(Classes()))

    def subscribe(self, node: Node, number: int, *, command: bool = True) -> None:
        self._look_up_classes(node.index)
        filter = self.workload.filters[number]
        self.places[number] = self.book.subscribing(node, number, number, filter.text)
        self.subscribers[node.index].subscribe(number, filter, self.world.clock.now)
        self._changed(node)
        if command:
            self.world.command(node)

    def unsubscribe(self, node: Node, number: int) -> None:
        self.subscribers[node.index].unsubscribe(number, self.world.clock.now)
        self.book.ended(self.places.pop(number))
        if not self.subscribers[node.index].filters:
            self._forget_member(node.peer)
        self._changed(node)
        self.world.command(node)

    def _changed(self, node: Node) -> None:
        """A node's subscriptions, or their places, have changed: spread its classes, and see which
        subscriptions are ready.
        """
        now, subscriber = self.world.clock.now, self.subscribers[node.index]
        classes = subscriber.announced
        self.directory.announce(node.index, classes, now)
        fresh = [cls for cls in classes if not subscriber.classes.is_settled(cls)]
        at = self.directory.known_to_all_at(fresh)
        if fresh and at <= now:
            subscriber.confirmed(fresh, now)
        elif fresh:
            self.world.clock.push(at, self._confirmed, node, node.life, fresh)
        for number in subscriber.ready():
            self.book.subscribed(self.places[number])

    def _confirmed(self, node: Node, life: int, classes: list[Class]) -> None:
        if node.index in self._up and node.life == life:
            self.subscribers[node.index].confirmed(classes, self.world.clock.now)
            self._changed(node)
            self.world.command(node)

    def _look_up_classes(self, index: int) -> None:
        self.subscribers[index].classes.hear(
            VIEW, self.directory.known(index, self.world.clock.now)
        )

    def intervals(self, node: Node, row: Row) -> list[tuple[Class, bytes, bytes]]:
        """Where an event from this node looks: in the classes that it knows of."""
        self._look_up_classes(node.index)
        return self.subscribers[node.index].classes.intervals(row)

    @property
    def joined(self) -> dict[int, Place]:
        """Subscriptions that are in force: all their entries have joined."""
        return {n: place for n, place in self.places.items() if place.returned is not None}

    def leaving(self, node: Node) -> None:
        """Its users unsubscribe first."""
        for number in self.subscribers[node.index].filters:
            if number in self.places:
                self.book.ended(self.places.pop(number))

    def crashed(self, node: Node) -> None:
        self._up.pop(node.index, None)
        self._forget_member(node.peer)
        self.directory.announce(node.index, (), self.world.clock.now)
        for number in self.subscribers.pop(node.index).filters:
            if number in self.places:
                self.book.ended(self.places.pop(number))
        for key in [key for key in self._open if key[0] == node.index]:
            del self._open[key]
        self.book.lost(node)

    def _forget_member(self, peer: Peer) -> None:
        place = self._member_at.pop(peer, None)
        if place is not None:
            last = self.members.pop()
            if last != peer:
                self.members[place] = last
                self._member_at[last] = place

    def live(self) -> list[Node]:
        return [self.world.nodes[index] for index in self._up if not self.world.nodes[index].paused]

    def draw_node(self) -> Node:
        """One that is up and not paused."""
        up = list(self._up)
        node = self.world.nodes[up[self.below(len(up))]]
        if node.paused:
            live = self.live()
            return live[self.below(len(live))]
        return node

    def entries(self) -> list[Entry]:
        found: list[Entry] = []
        for index in self._up:
            found += cast(SkipList, self.world.nodes[index].machine).entries.values()
        return found

    # ----------------------------------------------------------------------- events

    def publish(self, node: Node, row: Row) -> Sent:
        return self.publish_all(node, [row])[0]

    def publish_all(self, node: Node, rows: Sequence[Row]) -> list[Sent]:
        """Together."""
        now, machine = self.world.clock.now, cast(SkipList, node.machine)
        life = (node.index, machine.incarnation)
        first = self._next.get(life, 1)
        self._next[life] = first + len(rows)
        found: list[Sent] = []
        looks = []
        for sequence, row in enumerate(rows, first):
            values = dict(zip(SCHEMA.names, row, strict=True))
            event = self.book.publishing(node, machine.incarnation, sequence, values)
            sent = Sent(event, row, dict.fromkeys(self.oracle.wants(row)), now)
            self.events.append(sent)
            looked = self.intervals(node, row)
            sent.classes = [cls for cls, _, _ in looked]
            looks.append([(low, high) for _, low, high in looked])
            self._open[(*life, sequence)] = sent
            found.append(sent)
        packed = [(sent.number, *sent.row) for sent in found]
        floor = min([sequence for *open_life, sequence in self._open if tuple(open_life) == life])
        batch = Batch(
            TOPIC, node.peer, machine.incarnation, first, len(rows), floor, 0, 0, _pack(packed)
        )
        machine.publish(batch, looks, lambda places: _pack([packed[at] for at in places]), now)
        self.world.command(node)
        return found

    def _take(self, node: Node, batch: Batch) -> tuple[int, ...]:
        """No event comes in other company later, because no node publishes anything again."""
        return tuple([self._take_one(node, batch, *row) for row in _unpack(batch.rows)])

    def _take_one(self, node: Node, batch: Batch, number: int, *row: Any) -> int:
        sent = self.events[number]
        matching = self.subscribers[node.index].matching(row)
        took = [each for each in matching if each in self.places]
        assert sent.event.id is not None
        for subscription in took:
            self.book.took(node, self.places[subscription], sent.event.id, list(row), batch.hops)
        sent.took += took
        if batch.hops > sent.hops:
            sent.hops = batch.hops
        return len(took)

    def _walked(self, node: Node, walked: Walked) -> None:
        for walk in walked.walks:
            for number in walk.numbers:
                sent = self._open.pop((node.index, walked.incarnation, number))
                sent.matched = walked.counts[number - walked.first]
                self.book.completed(node, sent.event, sent.matched)
                sent.done, sent.rounds = self.world.clock.now, walk.rounds
                sent.hops = max(sent.hops, walk.hops)
                sent.by_class = tuple(walk.by_interval.values())

    def delivered(self, node: Node, effect: Deliver) -> None:
        now = self.world.clock.now
        for what in effect.events:
            if isinstance(what, Joined):
                self.subscribers[node.index].joined(now)
                self._changed(node)
            if isinstance(what, Joined | Placed):
                if node.peer not in self._member_at:
                    self.epoch += len(self.members) < self.setup.few
                    self._member_at[node.peer] = len(self.members)
                    self.members.append(node.peer)
                if isinstance(what, Placed):
                    self.join_hops.append(what.hops)
            elif isinstance(what, Found):
                self.found.append(what)

    def judge(self, *, receipts: bool = True) -> list[str]:
        """The faults of the hand-overs, and with ``receipts`` also those of the receipts."""
        return self.book.judge(*([Receipts()] if receipts else []))

    def is_open(self, sent: Sent) -> bool:
        """Whether its receipt is still to come, and somebody counts on it."""
        return not sent.event.lost and sent.done is None and self.is_due(sent)

    def is_due(self, sent: Sent) -> bool:
        history = self.book.history
        return any(history.is_due(sent.event, place) for place in history.candidates(sent.event))

    # ------------------------------------------------------------------------- looks

    def is_perfect(self) -> bool:
        """As the checker says, but without looking further than the first fault."""
        entries = self.entries()
        count, k = len(entries), self.setup.k
        spans = [k**level for level in range(check.levels_of(count, k))]
        top = len(spans) - 1
        if spans and any(
            len(entry.rights) <= top or entry.rights[top] is None for entry in entries
        ):
            # Most of the time the highest level is not there yet.
            return False
        ordered = sorted(entry.at for entry in entries)
        places = {at: number for number, at in enumerate(ordered)}
        for entry in entries:
            here = places[entry.at]
            for side, sign in ((entry.rights, 1), (entry.lefts, -1)):
                for level, span in enumerate(spans):
                    link = side[level] if level < len(side) else None
                    if link is None or link.at != ordered[(here + sign * span) % count]:
                        return False
                if any(link is not None for link in side[len(spans) :]):
                    return False
        return True

    def all_joined(self) -> bool:
        return all(entry.is_joined for entry in self.entries())

    def look_at_leases(self) -> None:
        joined = [entry.at for entry in self.entries() if entry.is_joined]
        now, held = self.world.clock.now, []
        for index in self._up:
            held += cast(SkipList, self.world.nodes[index].machine).leases.held
        self.lease_checks.look((gap for gap, until in held if until > now), joined)


class CountedRun(SkipRun):
    """Counts arrivals by kind of message. That costs a call for each message."""

    def __init__(self, setup: Setup, workload: Workload, kind: type[SkipList] = SkipList) -> None:
        self.traffic = Traffic()
        super().__init__(setup, workload, kind)

    def receiving(self, node: Node, sender: Node, packet: Packet) -> None:
        self.traffic.add(packet)
