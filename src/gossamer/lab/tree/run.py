"""Hosts, subscribers and publishers of a tree in the simulator.

``TreeRun`` starts, stops and replaces hosts, and feeds their rings: the ideal ring is one object
for all hosts, a view is told of each change after a delay of its own, and Chord needs no feeding.
It subscribes, publishes and counts. A subscription is in force when it has been laid, and ends when
its host leaves or fails.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from random import Random
from typing import Any, cast

import msgspec

from gossamer.filters import Filter, Schema
from gossamer.lab.tree.chord import Chord
from gossamer.lab.tree.codec import TreeCodec
from gossamer.lab.tree.config import Setup
from gossamer.lab.tree.zave import Lists, Watch
from gossamer.machine import Effect, LinkState, Message, Micros, Peer, Token
from gossamer.overlay.batch import Batch
from gossamer.overlay.tree.arcs import Host
from gossamer.overlay.tree.content import SchemaContent
from gossamer.overlay.tree.host import TreeHost
from gossamer.overlay.tree.links import Links
from gossamer.overlay.tree.messages import Announce, Attach, Carry, Notice
from gossamer.overlay.tree.reference import ReferenceTree, make_tree
from gossamer.overlay.tree.ring import IdealRing, Members, Ring, ViewRing, reckon
from gossamer.sim.book import BareBook
from gossamer.sim.clock import duration
from gossamer.sim.history import Place, Published
from gossamer.sim.network import Packet
from gossamer.sim.scenario import Scenario
from gossamer.sim.world import Node

# Views learn of a change in groups, each after a delay of its own.
GROUPS = 8
# Hosts that a new host of a Chord ring knows. The first of all is one of them, as a join address
# is.
CONTACTS = 3
PAUSED_LATE = 50_000
TOPIC = "weather"
SCHEMA = Schema.parse("city STRING, temp INT")
MIX = (
    "",
    "temp > 30",
    "temp > 10",
    "temp BETWEEN 10 AND 20",
    "city = 'Geneva'",
    "city LIKE 'G%'",
    "city RLIKE '^B.*n$'",
    "temp <> 5",
)
CITIES = ("Geneva", "Bern", "Basel", "Gap")
# A host that comes back is a new one.
INCARNATION = 1

Row = tuple[str, int]


class Machine:
    """A host as a machine of its own, without a node around it."""

    def __init__(self, host: TreeHost, out: list[Effect]) -> None:
        self.host, self._out = host, out

    @property
    def deadline(self) -> Micros:
        return Micros(0) if self._out else self.host.deadline

    def receive(self, sender: Peer, message: Any, now: Micros) -> list[Effect]:
        self.host.receive(sender, message, now)
        return self._flush()

    def wake(self, now: Micros) -> list[Effect]:
        self.host.wake(now)
        return self._flush()

    def link(self, peer: Peer, state: LinkState, now: Micros) -> list[Effect]:
        self.host.link(peer, state, now)
        return self._flush()

    def refused(self, peer: Peer, message: Any, now: Micros) -> list[Effect]:
        self.host.engine.refused(peer, message)
        return self._flush()

    def stored(self, token: Token, now: Micros) -> list[Effect]:
        raise AssertionError("a host of the tree stores nothing")

    def _flush(self) -> list[Effect]:
        out = self._out.copy()
        self._out.clear()
        return out


@cache
def _matcher(text: str) -> Callable[[Row], bool | None]:
    return Filter.parse(text, SCHEMA).matches_row


def passes(text: str, row: Row) -> bool:
    """Whether a row passes a filter."""
    return bool(_matcher(text)(row))


class TreeRun(Scenario[Setup]):
    codec = TreeCodec
    step = 100_000

    def __init__(self, setup: Setup, make_host: type[TreeHost] = TreeHost) -> None:
        super().__init__(setup)
        self.config = setup.protocol()
        self.tree: ReferenceTree = make_tree(self.config)
        self.truth = Members(setup.key_bits)
        # By key.
        self.up: dict[int, Node] = {}
        # By index, the dead included.
        self.hosts: dict[int, Host] = {}
        # The latest subscription of each host, by index.
        self.users: dict[int, Place] = {}
        # Filters, and the order in which they came up.
        self.texts: dict[str, int] = {}
        # Of the events.
        self.rows: list[Row] = []
        self.book = BareBook(self.world, TOPIC, SCHEMA.text, self._wanted)
        self.copies = 0
        self.contacts: dict[int, None] | None = (
            # Hosts that neighbours have contacted, while somebody watches.
            None
        )
        # And those that heard of new routes.
        self.told: dict[int, None] | None = None
        # Of Chord's lists, when it is on.
        self.watch = Watch()
        self.content = SchemaContent()
        self.content.learn(TOPIC, SCHEMA)
        self._make_host = make_host
        self._chord_contacts: dict[int, tuple[Host, ...]] = {}
        self._sequences: dict[int, int] = {}
        # (index, sequence).
        self._open: dict[tuple[int, int], Published] = {}
        # By index.
        self._text: dict[int, str] = {}
        # By key: they have said so and are still there.
        self._leaving: dict[int, Node] = {}

    # -------------------------------------------------------------------- hosts

    def make(self, node: Node) -> Machine:
        me = self.hosts[node.index]
        out: list[Effect] = []
        host = self._make_host(
            me, self.config, self.tree, lambda links: self._ring(node, me, links), self.content,
            partial(self._arrive, node), partial(self._complete, node), out,
        )  # fmt: skip
        return Machine(host, out)

    def _ring(self, node: Node, me: Host, links: Links) -> Ring:
        if self.setup.dht == "ideal":
            return IdealRing(me, self.truth)
        if self.setup.dht == "view":
            return ViewRing(
                me, self.setup.key_bits, [self.truth.hosts[key] for key in self.truth.keys]
            )
        rng = Random(f"host {self.setup.seed} {node.index}")
        return Chord(me, self.config, links, rng, self._chord_contacts[node.index])

    def free_key(self) -> int:
        while True:
            key = int(self.rng.random() * 2**53) << 11 | int(self.rng.random() * 2**11)
            key >>= 64 - self.setup.key_bits
            if key not in self.truth.hosts:
                return key

    def join(self, key: int, contacts: tuple[int, ...] | None = None) -> Node:
        """A new host with this key; with Chord, it knows the hosts with the given keys (else three
        members).
        """
        if contacts is None:
            keys = list(self.up)
            contacts = (
                (keys[0], *(keys[self.below(len(keys))] for _ in range(CONTACTS - 1)))
                if keys
                else ()
            )
        known = tuple(dict.fromkeys(self.hosts[self.up[each].index] for each in contacts))
        node = self._add(key, known)
        me = self.hosts[node.index]
        self.world.boot(node)
        self._subscribe(node)
        self._spread(me)
        return node

    def _add(self, key: int, contacts: tuple[Host, ...]) -> Node:
        index = len(self.world.nodes)
        peer = Peer((index + 1) * 0x9E3779B97F4A7C15 % 2**64)
        me = self.hosts[index] = Host(key, peer, f"host-{index}")
        self._chord_contacts[index] = contacts
        self.truth.add(me)
        node = self.up[key] = self.world.add_node(peer, me.address)
        self._text[index] = self.draw_filter()
        return node

    def draw_filter(self) -> str:
        """What a new host subscribes to."""
        return MIX[self.below(len(MIX))] if self.setup.filters == "mix" else ""

    def start_all(self, *groups: list[int]) -> None:
        """Fabrics that have formed: all at once, with rings that are right (Chord with its lists
        and fingers filled in).
        """
        rings = [[self._add(key, ()) for key in keys] for keys in groups]
        for nodes in rings:
            members = Members(self.setup.key_bits, [self.hosts[node.index] for node in nodes])
            for node in nodes:
                self.world.boot(node)
                ring = self.machine(node).ring
                if isinstance(ring, Chord):
                    fill(ring, members)
        for nodes in rings:
            for node in nodes:
                self._subscribe(node)

    def stop(self, key: int, *, leave: bool = False) -> None:
        node = self.up.pop(key)
        me = self.truth.remove(key)
        assert me is not None
        # Its users unsubscribe first.
        self.book.ended(self.users[node.index])
        if leave:
            self.machine(node).leave(self.world.clock.now)
            self.world.command(node)
            life = node.life
            self._leaving[key] = node
            self.world.clock.call(self.world.clock.now + 20_000, lambda: self._gone(node, life))
        else:
            self.world.crash(node)
        self._spread(me)

    def _gone(self, node: Node, life: int) -> None:
        self._leaving.pop(self.hosts[node.index].key, None)
        if node.life == life:
            self.world.crash(node)

    def _spread(self, host: Host) -> None:
        """A member came or went: whoever has a view of its own hears of it."""
        key = host.key
        if self.setup.dht == "ideal":
            arc = self.truth.owner(key + 1 if key in self.truth.hosts else key)
            if arc is not None and arc.high in self.up:
                # Its keys are others now, and it is aware of its keys.
                self.changed(self.up[arc.high], key)
        elif self.setup.dht == "view":
            lag = duration(self.setup.lag)
            groups: list[list[Node]] = [[] for _ in range(GROUPS)]
            for node in self.up.values():
                groups[self.below(GROUPS)].append(node)
            for group in groups:
                at = self.world.clock.now + 1 + int(lag * self.rng.random())
                self.world.clock.push(at, self._tell_views, group, host)

    def _tell_views(self, group: list[Node], host: Host, _z: None) -> None:
        """These hosts learn the truth of this moment.

        So news of one host that overtake each other do not undo each other.
        """
        there = self.truth.hosts.get(host.key) == host
        late = [node for node in group if node.paused]
        for node in group:
            if node.machine is not None and not node.paused:
                ring = cast(ViewRing, self.machine(node).ring)
                if ring.learn(host) if there else ring.forget(host):
                    self.changed(node, host.key)
        if late:
            self.world.clock.push(self.world.clock.now + PAUSED_LATE, self._tell_views, late, host)

    def changed(self, node: Node, key: int) -> None:
        if node.machine is not None:
            host = self.machine(node)
            host.changed(key)
            if host.deadline <= self.world.clock.now:
                self.world.command(node)

    @staticmethod
    def machine(node: Node) -> TreeHost:
        return cast(Machine, node.machine).host

    # -------------------------------------------------------------------- users

    def _subscribe(self, node: Node) -> None:
        self.subscribe(node, self._text[node.index])

    def subscribe(self, node: Node, text: str) -> None:
        filter = self.texts.setdefault(text, len(self.texts))
        self.users[node.index] = self.book.subscribing(node, filter, 1, text)
        self.machine(node).subscribe(1, TOPIC, text, self.world.clock.now)
        self.world.command(node)

    def unsubscribe(self, node: Node) -> None:
        self.book.ended(self.users[node.index])
        self.machine(node).unsubscribe(1, self.world.clock.now)
        self.world.command(node)

    def crashed(self, node: Node) -> None:
        self.book.lost(node)

    def _wanted(self, event: int) -> dict[int, None]:
        """The filters that an event passes, of those that have come up."""
        return {
            number: None for text, number in self.texts.items() if passes(text, self.rows[event])
        }

    def publish(self, node: Node) -> None:
        sequence = self._sequences.get(node.index, 0)
        self._sequences[node.index] = sequence + 1
        row = (CITIES[self.below(len(CITIES))], self.below(40))
        self.rows.append(row)
        values = dict(zip(SCHEMA.names, row, strict=True))
        event = self.book.publishing(node, INCARNATION, sequence, values)
        self._open[node.index, sequence] = event
        floor = min(each for index, each in self._open if index == node.index)
        rows = msgspec.msgpack.encode([row])
        self.machine(node).publish(
            Batch(TOPIC, node.peer, INCARNATION, sequence, 1, floor, 0, 0, rows),
            self.world.clock.now,
        )
        self.world.command(node)

    def _arrive(self, node: Node, batch: Batch, now: Micros, *_: Any) -> tuple[int, ...]:
        place = self.users[node.index]
        id = (batch.publisher, batch.incarnation, batch.first)
        row = tuple(msgspec.msgpack.decode(batch.rows)[0])
        if place.ended is not None or not passes(list(self.texts)[place.filter], row):
            return ()
        self.book.took(node, place, id, row, batch.hops)
        return (1,)

    def _complete(self, node: Node, incarnation: int, first: int, counts: tuple[int, ...]) -> None:
        event = self._open.pop((node.index, first))
        self.book.completed(node, event, sum(counts))

    def called(self, node: Node) -> None:
        if node.machine is None:
            return
        host = self.machine(node)
        if self.watch.on:
            self.watch.look(cast(Chord, host.ring), self.lists, self.world.clock.now)
        if host.routes.laid and host.take_laid():
            self.book.subscribed(self.users[node.index])

    def sending(self, node: Node, to: tuple[Peer, ...], message: Message, size: int) -> None:
        if type(message) is Carry:
            self.copies += len(to) * message.batch.count

    def receiving(self, node: Node, sender: Node, packet: Packet) -> None:
        kind = type(packet.message)
        if self.contacts is not None and (kind is Attach or kind is Notice):
            self.contacts[node.index] = None
        elif self.told is not None and kind is Announce:
            self.told[node.index] = None

    # -------------------------------------------------------------------- looks

    def neighbours(self) -> dict[int, tuple[int | None, tuple[int, ...]]]:
        """What each host reckons, by key: parent and children."""
        found = {}
        for key, node in self.up.items():
            reckoned = self.machine(node).hood.neighbours
            if reckoned is not None:
                parent = reckoned.parent.key if reckoned.parent is not None else None
                found[key] = (parent, tuple(sorted(child.key for child in reckoned.children)))
        return found

    def lists(self) -> Lists:
        """Chord's successor lists."""
        there = {
            key: cast(Chord, self.machine(node).ring)
            for key, node in (self._leaving | self.up).items()
        }
        return Lists.of(
            {key: ring.successors for key, ring in there.items() if ring.member},
            self.config.successors,
        )

    def edges(self) -> dict[int, list[int]]:
        """Links in use, by key of both ends, as each end sees them."""
        by_peer = {self.hosts[node.index].peer: key for key, node in self.up.items()}
        return {
            key: sorted(by_peer[peer] for peer in self.machine(node).hood.active if peer in by_peer)
            for key, node in self.up.items()
        }

    def agreed(self) -> bool:
        """The links in use are the tree."""
        return all(
            self.machine(node).hood.agreed and not self.machine(node).hood.fading
            for node in self.up.values()
        ) and (self.whole())

    def quiet(self) -> bool:
        """All agree on the tree and on its routes, and every receipt is complete."""
        return (
            not self._open
            and all(self.machine(node).routes.quiet for node in self.up.values())
            and all(self.users[node.index].returned is not None for node in self.up.values())
            and self.agreed()
        )

    def whole(self) -> bool:
        """Every host has the keys and the neighbours that it has in the true ring."""
        if any(
            self.machine(node).ring.arc != self.truth.owner(key) for key, node in self.up.items()
        ):
            return False
        return self.neighbours() == truth(self.tree, self.truth)

    @property
    def unfinished(self) -> int:
        """Receipts that are not complete."""
        return len(self._open)

    @property
    def handed_over(self) -> int:
        return self.book.delivered + self.book.spurious


def fill(chord: Chord, members: Members) -> None:
    """Predecessor, successors and fingers as they are once a ring has formed."""
    keys, size = members.keys, 1 << chord.bits
    place = keys.index(chord.me.key)
    count = min(chord.config.successors, len(keys) - 1)
    chord.predecessor = members.hosts[keys[place - 1]]
    chord.successors = [
        members.hosts[keys[(place + step) % len(keys)]] for step in range(1, count + 1)
    ]
    for exponent in range(chord.bits):
        arc = members.owner((chord.me.key + (1 << exponent)) % size)
        if arc is not None and arc.host not in (chord.me, *chord.successors):
            chord.fingers[exponent] = arc.host


def truth(tree: ReferenceTree, members: Members) -> dict[int, tuple[int | None, tuple[int, ...]]]:
    """The closed form over the true ring: parent and children, by key."""
    found: dict[int, tuple[int | None, tuple[int, ...]]] = {}
    for key in members.keys:
        beside = reckon(tree, members, key)
        parent = beside.parent.key if beside.parent is not None else None
        found[key] = (parent, tuple(sorted(child.key for child in beside.children)))
    return found


__all__ = ["TreeRun", "truth"]
