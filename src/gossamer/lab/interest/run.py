"""A fabric of interest machines in the simulator: its nodes, its users, and the counts of a run.

``InterestRun`` is the simulator's probe. It drives the users, counts arriving messages by kind,
follows a lone change from node to node, and passes every step on to the checkers. measure.py,
experiments.py and swarm.py make use of it.

Cold start: every node starts within the first virtual second and knows three addresses among those
of the first eight nodes. Topics are drawn for each node without repetition, by Zipf's law (weight
1 / rank) or uniformly.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from itertools import accumulate
from random import Random
from typing import Any, cast

from gossamer.lab.interest.checkers import NEWS, Member, Snapshot, Watch
from gossamer.lab.interest.config import JOIN_AMONG, JOIN_COUNT, Setup
from gossamer.lab.interest.names import Names
from gossamer.machine import SECOND, Deliver, LinkState, Message, Peer
from gossamer.overlay.interest.core import Interest
from gossamer.overlay.interest.messages import Beat, Vouch
from gossamer.overlay.interest.messages import Probe as ProbeMessage
from gossamer.overlay.interest.record import Pool
from gossamer.sim.hooks import Hooks
from gossamer.sim.network import Packet
from gossamer.sim.scenario import Scenario, Traffic, address, draw_peers
from gossamer.sim.world import AnyMachine, Node

HOOKS = ("started", "crashed", "resumed", "linked", "commanded", "changed", "sending", "receiving")
SIGNS_OF_LIFE: tuple[type[Message], ...] = (Beat, ProbeMessage, Vouch)


def make_interest(
    node: Node, setup: Setup, pool: Pool, kind: type[Interest] = Interest
) -> Interest:
    rng = Random(f"node {setup.seed} {node.index} {node.incarnation}")
    others = [index for index in range(min(JOIN_AMONG, setup.nodes)) if index != node.index]
    join = sorted(others, key=lambda _: rng.random())[:JOIN_COUNT]
    return kind(
        node.peer,
        incarnation=1
        # Without a disk the node has never lived before.
        + (node.remembers if setup.durable else 0),
        address=address(node.index),
        rng=rng,
        config=setup.protocol(tuple(map(address, join))),
        pool=pool,
        durable=setup.durable,
        restored=dict(node.disk.contents) if setup.durable else None,
    )


Make = Callable[[Node, Setup, Pool], AnyMachine]


class Trail:
    """A change on its way: the nodes that know it, since when, and over how many hops."""

    __slots__ = ("at", "began", "hops", "life", "peer", "version")

    def __init__(self, peer: Peer, life: int, version: int, origin: int, now: int) -> None:
        self.peer, self.life, self.version, self.began = peer, life, version, now
        self.hops, self.at = {origin: 0}, {origin: now}


class InterestRun(Scenario[Setup]):
    def __init__(
        self, setup: Setup, watches: Iterable[Watch] = (), make: Make = make_interest
    ) -> None:
        super().__init__(setup)
        self.pool = Pool()
        self.names = Names(setup.topics)
        self.wanted: dict[int, dict[bytes, str]] = {index: {} for index in range(setup.nodes)}
        self.traffic = Traffic()
        self.trail: Trail | None = None
        self.up_since: dict[int, int] = {}
        self.watches: list[Watch] = []
        self._make = make
        self._hooks = Hooks(Watch, HOOKS)
        for watch in watches:
            self.watch(watch)
        weights = [
            1 / (rank + 1) if setup.spread == "zipf" else 1.0 for rank in range(setup.topics)
        ]
        self._weights = list(accumulate(weights))
        self._add_nodes()

    def make(self, node: Node) -> AnyMachine:
        return self._make(node, self.setup, self.pool)

    def _add_nodes(self) -> None:
        setup, world = self.setup, self.world
        rng = Random(f"peers {setup.seed}")
        for index, peer in enumerate(draw_peers(setup.nodes, rng)):
            node = world.add_node(peer, address(index))
            self.wanted[index] = {
                self.names.hashes[n]: self.names.names[n]
                for n in self._draw_topics(setup.subscriptions)
            }
            at = int(rng.random() * SECOND) if setup.nodes > 1 else 0
            world.clock.push(at if setup.is_cold else 0, self._boot, node)
        if not setup.is_cold:
            world.clock.call(0, self._form)

    def _boot(self, node: Node, _y: None, _z: None) -> None:
        self.world.boot(node)

    def _form(self) -> None:
        """Every view becomes the truth, as in a fabric that has been there for long, but for its
        links.
        """
        now = self.world.clock.now
        machines = [(node, cast(Interest, node.machine)) for node in self.world.nodes]
        records = [(node.peer, machine.view.members[node.peer]) for node, machine in machines]
        for node, machine in machines:
            for peer, known in records:
                if peer != node.peer:
                    machine.view.put(known, now)
            self.world.command(node)

    # ------------------------------------------------------------------ checkers

    def watch(self, watch: Watch) -> None:
        self.watches.append(watch)
        self._hooks.add(watch)

    def look(self, *extra: Watch) -> None:
        """The fabric is said to be quiet. Let the checkers see it."""
        snapshot = self.snapshot()
        for watch in (*self.watches, *extra):
            watch.quiet(snapshot)

    def told(self) -> list[str]:
        """The violations that the checkers have found."""
        return [text for watch in self.watches for text in watch.told()]

    # --------------------------------------------------------------------- users

    def _draw_topics(self, count: int) -> list[int]:
        drawn: dict[int, None] = {}
        while len(drawn) < count:
            drawn[self._draw_topic()] = None
        return list(drawn)

    def _draw_topic(self) -> int:
        return bisect_right(self._weights, self.rng.random() * self._weights[-1])

    def subscribe(self, node: Node, name: str) -> None:
        self._command(node, name, left=False)
        self.world.command(node)

    def unsubscribe(self, node: Node, name: str) -> None:
        self._command(node, name, left=True)
        self.world.command(node)

    def _command(self, node: Node, name: str, *, left: bool) -> None:
        machine = cast(Any, node.machine)
        hash = self.names.hash(name)
        if left:
            self.wanted[node.index].pop(hash)
            machine.unsubscribe(name, self.world.clock.now)
        else:
            self.wanted[node.index][hash] = name
            machine.subscribe(name, self.world.clock.now)
        for commanded in self._hooks["commanded"]:
            commanded(node, hash, left, machine.record.version)

    def change(self, node: Node) -> None:
        """Join or leave one topic, half of the time each, as far as possible."""
        wanted = self.wanted[node.index]
        if wanted and (self.rng.random() < 0.5 or len(wanted) >= len(self.names.names)):
            self.unsubscribe(node, list(wanted.values())[self.below(len(wanted))])
            return
        for _ in range(1_000):
            number = self._draw_topic()
            if self.names.hashes[number] not in wanted:
                self.subscribe(node, self.names.names[number])
                return

    def flap(self, node: Node) -> None:
        """Leave a topic and come back to it within one moment.

        This is the hidden leave of claim 5.
        """
        wanted = self.wanted[node.index]
        if wanted:
            name = list(wanted.values())[self.below(len(wanted))]
            self._command(node, name, left=True)
            self._command(node, name, left=False)
            self.world.command(node)

    def random_node(self) -> Node | None:
        """A random node that is up and awake."""
        nodes = [node for node in self.world.nodes if node.machine is not None and not node.paused]
        return nodes[self.below(len(nodes))] if nodes else None

    # --------------------------------------------------------------------- looks

    def live(self) -> list[tuple[Node, Member]]:
        return [
            (node, cast(Member, node.machine))
            for node in self.world.nodes
            if node.machine is not None
        ]

    def life(self, peer: Peer) -> int | None:
        node = self.world.nodes[self.world.switchboard.by_peer(peer)]
        return cast(Member, node.machine).record.life if node.machine is not None else None

    def snapshot(self) -> Snapshot:
        live = self.live()
        adjacency = {
            node.index: [
                link.to
                for link in self.world.network.links[node.index].values()
                if link.up and link.back.up
            ]
            for node, _ in live
        }
        return Snapshot(self.world.clock.now, live, self.wanted, adjacency)

    def agree(self) -> bool:
        """Every view is the truth, by its digest."""
        live = self.live()
        truth = 0
        for _, member in live:
            known = self.pool.get(member.record)
            assert known is not None
            truth ^= known.digest
        return all(member.view.digest == truth for _, member in live)

    def linked(self, node: Node, peer: Peer, state: LinkState) -> None:
        for linked in self._hooks["linked"]:
            linked(node, peer, state, self.world.clock.now)

    def is_woven(self) -> bool:
        """Every link that the overlay wants is up, and no other."""
        for node, _ in self.live():
            machine, links = cast(Any, node.machine), self.world.network.links[node.index]
            wanted = machine.neighbours
            if len(wanted) != len(links) or not all(
                peer in links and links[peer].back.up for peer in wanted
            ):
                return False
        return True

    def has_links(self) -> bool:
        """Every link that the overlay wants is up."""
        for node, _ in self.live():
            machine, links = cast(Any, node.machine), self.world.network.links[node.index]
            if not all(peer in links and links[peer].back.up for peer in machine.neighbours):
                return False
        return True

    # ----------------------------------------------------------------- the probe

    def started(self, node: Node) -> None:
        self.up_since[node.index] = self.world.clock.now
        for started in self._hooks["started"]:
            started(node, self.world.clock.now)
        machine = cast(Any, node.machine)
        now = self.world.clock.now
        for hash, name in self.wanted[node.index].items():
            machine.subscribe(name, now)
            for commanded in self._hooks["commanded"]:
                commanded(node, hash, False, machine.record.version)

    def crashed(self, node: Node) -> None:
        for crashed in self._hooks["crashed"]:
            crashed(node, self.world.clock.now)

    def resumed(self, node: Node) -> None:
        for resumed in self._hooks["resumed"]:
            resumed(node, self.world.clock.now)

    def called(self, node: Node) -> None:
        trail = self.trail
        if trail is None or node.index in trail.hops:
            return
        known = cast(Any, node.machine).view.members.get(trail.peer)
        if known is not None and (known.record.life, known.record.version) >= (
            trail.life,
            trail.version,
        ):
            sender = self.world.handling_from if self.world.handling is not None else -1
            trail.hops[node.index] = trail.hops.get(sender, 0) + 1
            trail.at[node.index] = self.world.clock.now

    def delivered(self, node: Node, effect: Deliver) -> None:
        told = self._hooks["changed"]
        if told:
            now = self.world.clock.now
            for change in effect.events:
                if change.peer != node.peer:
                    for changed in told:
                        changed(node, change, now)

    def sending(self, node: Node, to: tuple[Peer, ...], message: Message, size: int) -> None:
        told = self._hooks["sending"]
        if told:
            is_answer = self.world.handling is not None
            for sending in told:
                sending(node, to, message, self.world.clock.now, is_answer)

    def receiving(self, node: Node, sender: Node, packet: Packet) -> None:
        self.traffic.add(packet)
        for receiving in self._hooks["receiving"]:
            receiving(node, sender, packet, self.world.clock.now)

    # -------------------------------------------------------------------- counts

    def received(self) -> tuple[int, int]:
        """Copies of news that have arrived so far, and bytes of everything but signs of life."""
        others = [kind for kind in self.traffic.by_kind if kind not in SIGNS_OF_LIFE]
        return self.traffic.of(*NEWS)[0], self.traffic.of(*others)[1]
