"""A slow link is no silent peer, and a node that is cut off hears of the events that it missed.

Whole nodes in the simulated world, with the real wire.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from gossamer.filters import Event
from gossamer.machine import SECOND, Deliver, Effect, LinkState, Message, Micros, Peer
from gossamer.node import Gap, NodeConfig, NodeCore, Retention, Route, Wish
from gossamer.node.history import Past
from gossamer.node.outbox import Ticket
from gossamer.overlay.interest.config import InterestConfig
from gossamer.sim import latency
from gossamer.sim.codec import WireCodec
from gossamer.sim.network import Packet
from gossamer.sim.rules import Narrow
from gossamer.sim.world import Node, Probe, World
from gossamer.trace import Record, Rejected

ROUTES = [Route.DIRECT, Route.FLOOD, Route.TREE, Route.SKIPLIST]
ONCE = [Route.DIRECT, Route.FLOOD]
PUBLISHER, SUBSCRIBER = 0, 1
# Bytes a second.
MEGABIT = 125_000


class Mute:
    """A node that takes no notice of live events: it looks alive, and never reports."""

    def __init__(self, machine: Any) -> None:
        self._machine, self._receive = machine, machine.receive
        machine.receive = self

    def __call__(self, sender: Peer, message: Message, now: Micros) -> list[Effect]:
        is_live = message.is_event and not isinstance(message, Past)
        return [] if is_live else self._receive(sender, message, now)

    def stop(self) -> None:
        del self._machine.receive


class Fabric(Probe):
    def __init__(
        self, nodes: int = 3, *, retention: str = "", durable: bool = False, **config: Any
    ) -> None:
        self.config, self.durable = config, durable
        self.got: dict[int, list[Event | Gap]] = {}
        # False: this node's consumer takes nothing for now.
        self.consumers: dict[int, bool] = {}
        # Copies of events, by node.
        self.arrivals: Counter[int] = Counter()
        self.bytes_to: Counter[int] = Counter()
        self.cut: list[Record] = []
        self.linked_states: Counter[LinkState] = Counter()
        self.world = World(
            seed=1, make=self._make, codec=WireCodec(), latency=latency.parse("constant:1ms", 1),
            probe=self, detect=100_000, reconnect=100_000, queue_mark=4096, disk_latency=500,
        )  # fmt: skip
        for number in range(nodes):
            self.world.add_node(Peer(number + 1), f"node-{number}")
        self.world.start()
        self.run(5)
        keep = Retention.parse(retention) if retention else None
        self.command(PUBLISHER, "advertise", "t", "n INT, pad STRING", retention=keep)
        self.run(1)

    def _make(self, node: Node) -> NodeCore:
        join = ("node-0",) if node.index else ()
        return NodeCore(
            node.peer,
            incarnation=1,
            rng=Random(node.index),
            config=NodeConfig(interest=InterestConfig(join=join), **self.config),
            address=f"node-{node.index}",
            durable=self.durable,
        )

    def core(self, number: int) -> NodeCore:
        machine = self.world.nodes[number].machine
        assert isinstance(machine, NodeCore)
        return machine

    def command(self, number: int, name: str, *arguments: Any, **options: Any) -> Any:
        now = self.world.clock.now
        result = getattr(self.core(number), name)(*arguments, now=now, **options)
        self.world.command(self.world.nodes[number])
        return result

    def run(self, seconds: float) -> None:
        until = Micros(self.world.clock.now + round(seconds * SECOND))
        self.world.clock.run(until, 100_000_000)
        self.world.clock.now = until

    def enter(self, number: int, route: Route, **wish: Any) -> int:
        wanted = Wish(**wish) if wish else None
        made = self.command(number, "subscribe", "t", "", route=route, wish=wanted)
        assert isinstance(made, int)
        self.run(3)
        assert self.core(number).subscriptions[made].in_force
        return made

    def publish(self, numbers: range, size: int = 0) -> list[Ticket]:
        """Each in a batch of its own."""
        tickets: list[Ticket] = []
        for n in numbers:
            tickets.append(self.command(PUBLISHER, "publish", "t", {"n": n, "pad": "x" * size}))
        return tickets

    def numbers(self, number: int) -> list[int]:
        return [event["n"] for event in self.got.get(number, []) if isinstance(event, Event)]

    def gaps(self, number: int) -> list[Gap]:
        return [gap for gap in self.got.get(number, []) if isinstance(gap, Gap)]

    # ------------------------------------------------------- what users see

    def delivered(self, node: Node, effect: Deliver) -> None:
        self.got.setdefault(node.index, []).extend(effect.events)
        core, now = self.core(node.index), self.world.clock.now
        if last := effect.events[-1].offset if self.durable else 0:
            core.ack(effect.subscription, last, now, through=True)
        elif self.consumers.get(node.index, True):
            core.taken(effect.subscription, len(effect.events), now)

    def arrived(self, node: Node, packet: Packet) -> None:
        self.arrivals[node.index] += len(packet.ids)
        self.bytes_to[node.index] += packet.size

    def linked(self, node: Node, peer: Peer, state: LinkState) -> None:
        self.linked_states[state] += 1

    def noted(self, node: Node, record: Record) -> None:
        if isinstance(record, Rejected) and record.cut:
            self.cut.append(record)


@pytest.mark.parametrize("retention", ["1h", ""])
@pytest.mark.parametrize(
    "wish", [{"gaps": True}, {"ordered": True}, {"start": 0}, {"name": "x"}], ids=str
)
@pytest.mark.parametrize("route", ROUTES)
def test_who_is_cut_off_gets_what_was_completed_without_it_or_is_told(
    route: Route, wish: dict[str, Any], retention: str
) -> None:
    fabric = Fabric(retention=retention, durable="name" in wish)
    fabric.enter(SUBSCRIBER, route, **wish)
    tickets = fabric.publish(range(10))
    fabric.run(10)
    assert fabric.numbers(SUBSCRIBER) == list(range(10))
    mute = Mute(fabric.core(SUBSCRIBER))
    tickets += fabric.publish(range(10, 20))
    fabric.run(40)
    mute.stop()
    tickets += fabric.publish(range(20, 30))
    fabric.run(40)
    assert all(ticket.done for ticket in tickets)
    lost = [n for n in range(10, 20) if not tickets[n].matched]
    # By the other routes a member that is cut off is asked again, as long as it is one.
    assert bool(lost) == (route in (Route.DIRECT, Route.FLOOD))
    assert fabric.cut
    numbers = fabric.numbers(SUBSCRIBER)
    assert len(set(numbers)) == len(numbers)
    assert set(numbers) >= {*range(30)} - {*lost}
    if lost and set(numbers) != {*range(30)}:
        assert not retention
        [gap] = fabric.gaps(SUBSCRIBER)
        assert gap.publisher == fabric.world.nodes[PUBLISHER].peer
        assert gap.after is not None
        assert gap.before is not None
        # The sequence numbers of the missing events.
        missing = [n + 1 for n in range(30) if n not in numbers]
        assert gap.after[1] < min(missing) <= max(missing) < gap.before[1]
    else:
        assert not fabric.gaps(SUBSCRIBER)
    if "ordered" in wish:
        assert numbers == sorted(numbers)


@pytest.mark.parametrize("route", ROUTES)
def test_a_burst_over_a_slow_link_arrives_whole_and_travels_once(route: Route) -> None:
    """Five megabytes over one megabit a second take 40 s, more than twice the patience."""
    fabric = Fabric(retention="1h", batch_events=1)
    fabric.enter(SUBSCRIBER, route, gaps=True)
    fabric.world.narrow(Narrow((SUBSCRIBER,), MEGABIT))
    tickets = fabric.publish(range(2500), size=2000)
    fabric.run(80)
    assert fabric.linked_states[LinkState.MOVING]
    assert not fabric.cut
    assert not fabric.gaps(SUBSCRIBER)
    assert sorted(fabric.numbers(SUBSCRIBER)) == list(range(2500))
    if route in ONCE:
        assert all(ticket.done and ticket.matched == 1 for ticket in tickets)
        # By flood, once over each of its links.
        assert fabric.arrivals[SUBSCRIBER] == (2 if route is Route.FLOOD else 1) * 2500


@pytest.mark.parametrize("route", ONCE)
def test_a_slow_consumer_costs_no_traffic(route: Route) -> None:
    """A consumer that takes 25 events a second of a burst of 1,000, with a buffer of 100."""
    fabric = Fabric(buffer=100, batch_events=1)
    made = fabric.enter(SUBSCRIBER, route)
    fabric.consumers[SUBSCRIBER] = False
    before = fabric.bytes_to[SUBSCRIBER]
    tickets = fabric.publish(range(1000), size=1000)
    for _ in range(1000 // 5):
        fabric.run(0.2)
        waiting = fabric.core(SUBSCRIBER).subscriptions[made].backlog
        fabric.command(SUBSCRIBER, "taken", made, min(5, waiting))
    fabric.run(10)
    assert sorted(fabric.numbers(SUBSCRIBER)) == list(range(1000))
    assert all(ticket.done and ticket.matched == 1 for ticket in tickets)
    copies = 2 if route is Route.FLOOD else 1
    assert fabric.arrivals[SUBSCRIBER] == copies * 1000
    assert fabric.bytes_to[SUBSCRIBER] - before < copies * 1.2 * 1_000_000
