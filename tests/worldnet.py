"""A small fabric of machines in the simulated world, for exact tests.

A test may look at all machines between any two steps, send messages in a node's name, and cut any
link. A node is named by its number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from gossamer.machine import (
    MILLISECOND,
    SECOND,
    Deliver,
    Effect,
    LinkState,
    Message,
    Micros,
    Peer,
    Send,
)
from gossamer.node.wire import Unframer, encode
from gossamer.overlay.interest.config import InterestConfig
from gossamer.overlay.interest.core import Interest
from gossamer.overlay.interest.messages import Greet
from gossamer.overlay.interest.record import Record, ViewChange
from gossamer.sim import latency
from gossamer.sim.codec import WireCodec
from gossamer.sim.network import Link, Packet
from gossamer.sim.rules import PASS, RESEND
from gossamer.sim.world import Node, Probe, World
from gossamer.trace import Record as TraceRecord

STEPS_MAX = 1 << 62
# About the time until other nodes see that a process is gone.
DETECT = 100_000


def through_codec(message: Message) -> tuple[Message, int]:
    """As the other end decodes it, and its size as a frame."""
    frame = encode(message)
    [decoded] = Unframer().feed(frame)
    assert decoded == message
    return decoded, len(frame)


class Place:
    """A node of the world as tests look at it, and everything that it told its owner."""

    def __init__(self, node: Node, address: str, links: dict[Peer, Link]) -> None:
        self.node, self.number, self.peer, self.address = node, node.index, node.peer, address
        self._links = links
        self.changes: list[ViewChange] = []
        self.notes: list[TraceRecord] = []
        self.dials: list[tuple[int, str]] = []

    @property
    def machine(self) -> Any:
        return self.node.machine

    @property
    def paused(self) -> bool:
        return self.node.paused

    @property
    def disk(self) -> dict[str, bytes]:
        return self.node.disk.contents

    @property
    def links(self) -> list[Peer]:
        """The peers to which it has a link."""
        return [peer for peer, link in self._links.items() if link.up]


class Severed:
    """Links that nothing gets through, by a predicate over their ends."""

    name = "partition"

    def __init__(self, net: Net, severed: Callable[[Place, Place], bool]) -> None:
        self._net, self.severed, self.fired = net, severed, 0

    def stops(self, sender: int, to: int) -> bool:
        return self.severed(self._net.places[sender], self._net.places[to])


class Late:
    """Packets are lost and sent again by the stream, and messages take their time.

    All messages behind them wait.
    """

    name = "delay"

    def __init__(self, net: Net) -> None:
        self._net, self.fired = net, 0

    def judge(self, link: Link, packet: Packet) -> int:
        net = self._net
        late, timeout = int(net.rng.random() * net.jitter) if net.jitter else PASS, RESEND
        while net.loss and net.rng.random() < net.loss:
            late, timeout = late + timeout, min(2 * timeout, SECOND)
        return late


class Eyes(Probe):
    """The world tells the net of each step through this probe."""

    def __init__(self, net: Net) -> None:
        self._net = net

    def delivered(self, node: Node, effect: Deliver) -> None:
        self._net.delivered(node, effect)

    def noted(self, node: Node, record: TraceRecord) -> None:
        self._net.places[node.index].notes.append(record)

    def sending(self, node: Node, to: tuple[Peer, ...], message: Message, size: int) -> None:
        net, name = self._net, type(message).__name__
        net.bytes[name] += size * len(to)
        net.count[name] += len(to)
        if net.sent is not None:
            place = net.places[node.index]
            net.sent += [(net.now, place, peer, message, size) for peer in to]


class Net:
    def __init__(
        self,
        nodes: int = 0,
        *,
        seed: int = 1,
        loss: float = 0.0,
        jitter: int = 0,
        delay: int = MILLISECOND,
        start: bool = True,
        make: Callable[..., Any] = Interest,
        options: dict[str, Any] | None = None,
        disk_latency: int = 1,
        **config: Any,
    ) -> None:
        self.rng = Random(seed)
        self.loss, self.jitter = loss, jitter
        self.machine_of, self.options = make, options or {}
        self.config = InterestConfig(**{"join": ("node-0", "node-1", "node-2"), **config})
        self.places: list[Place] = []
        self._severed: Severed | None = None
        # Called when a machine has been called and its effects are on their way.
        self.after: Callable[[Place], None] = lambda place: None
        self.bytes: Counter[str] = Counter()
        self.count: Counter[str] = Counter()
        # A list: record everything.
        self.sent: list[tuple[int, Place, Peer, Message, int]] | None = None
        # The options with which a node is to be started.
        self._wishes: dict[int, dict[str, Any]] = {}
        self.world = World(
            seed=seed,
            make=self._make_node,
            codec=WireCodec(),
            latency=latency.Constant(delay),
            probe=Eyes(self),
            detect=DETECT,
            disk_latency=disk_latency,
        )
        self.world.network.rules.append(Late(self))
        self._observe()
        for _ in range(nodes):
            self.add()
        if start:
            for number in range(nodes):
                self.start(number)

    def _observe(self) -> None:
        carry_out, dial = self.world._after, self.world.switchboard.dial

        def after(node: Node, effects: list[Effect]) -> None:
            carry_out(node, effects)
            self.after(self.places[node.index])

        def dialling(index: int, address: str, peer: Peer | None = None) -> None:
            self.places[index].dials.append((self.now, address))
            dial(index, address, peer)

        self.world._after = after  # type: ignore[method-assign]
        self.world.switchboard.dial = dialling  # type: ignore[method-assign]

    @property
    def now(self) -> int:
        return self.world.clock.now

    def sever(self, severed: Callable[[Place, Place], bool] | None) -> None:
        """From here on nothing gets through the links between such places. None lets everything
        through again.
        """
        network = self.world.network
        if self._severed is not None:
            network.lower_barrier(self._severed)
        self._severed = Severed(self, severed) if severed is not None else None
        if self._severed is not None:
            network.raise_barrier(self._severed)

    # ------------------------------------------------------------------- nodes

    def add(self, peer: int | None = None) -> int:
        """A place for one more node."""
        address = f"node-{len(self.places)}"
        name = Peer(self.rng.getrandbits(64) if peer is None else peer)
        node = self.world.add_node(name, address)
        self.places.append(Place(node, address, self.world.network.links[node.index]))
        return len(self.places) - 1

    def start(
        self, number: int, *, incarnation: int = 1, disk: bool = False, **options: Any
    ) -> Any:
        place = self.places[number]
        assert place.machine is None, "it runs already"
        self._wishes[number] = {"incarnation": incarnation, "durable": disk, **options}
        if place.node.life:
            self.world.restart(place.node)
        else:
            self.world.boot(place.node)
        return place.machine

    def _make_node(self, node: Node) -> Any:
        place, wishes = self.places[node.index], {**self.options, **self._wishes[node.index]}
        return self.machine_of(
            place.peer,
            address=place.address,
            rng=Random(f"{self.rng.random()} {place.number}"),
            restored=dict(place.disk) if wishes["durable"] else None,
            **{"config": self.config, **wishes},
        )

    def crash(self, number: int, *, silent: bool = False) -> None:
        """The process ends. Its host resets its connections, unless it is gone too (silent)."""
        self.world.crash(self.places[number].node, silent=silent)

    def pause(self, number: int) -> None:
        self.world.pause(self.places[number].node)

    def resume(self, number: int) -> None:
        self.world.resume(self.places[number].node)

    def partition(self, *halves: Iterable[int]) -> None:
        """Nothing passes between the groups, and their links break in a moment.

        Without groups, everything passes again.
        """
        if not halves:
            self.sever(None)
            return
        group = {number: index for index, half in enumerate(halves) for number in half}
        self.sever(lambda a, b: group.get(a.number) != group.get(b.number))
        network = self.world.network
        for pair in network.pairs():
            one = pair.ends[0]
            if not network.passes(one.sender, one.to) and not pair.broken:
                network.break_pair(pair)

    def __getitem__(self, number: int) -> Any:
        machine = self.places[number].machine
        assert machine is not None, f"node {number} does not run"
        return machine

    @property
    def machines(self) -> list[Any]:
        return [place.machine for place in self.places if place.machine is not None]

    def peer(self, number: int) -> Peer:
        return self.places[number].peer

    def delivered(self, node: Node, effect: Deliver) -> None:
        self.places[node.index].changes.extend(effect.events)

    # ---------------------------------------------------------------- commands

    def command(self, number: int, name: str, *arguments: Any, **options: Any) -> Any:
        """A user's command, at this moment."""
        result = getattr(self[number], name)(*arguments, now=Micros(self.now), **options)
        self.poke(number)
        return result

    def poke(self, number: int) -> None:
        """A command was given to the machine itself. It wakes at this moment, after everything else
        that happens in it.
        """
        self.world._arm(self.places[number].node)

    def subscribe(self, number: int, *topics: str, **options: Any) -> None:
        for topic in topics:
            self.command(number, "subscribe", topic, **options)

    def unsubscribe(self, number: int, *topics: str, **options: Any) -> None:
        for topic in topics:
            self.command(number, "unsubscribe", topic, **options)

    def inject(self, sender: int, to: int, message: Message) -> list[Effect]:
        """Deliver a message in a node's name that the node itself did not send, and return the
        effects.
        """
        decoded, _ = through_codec(message)
        effects: list[Effect] = self[to].receive(self.peer(sender), decoded, Micros(self.now))
        self.carry_out(to, effects)
        return effects

    def carry_out(self, number: int, effects: list[Effect]) -> None:
        """The effects of a call of the machine that the test has made itself."""
        self.world._after(self.places[number].node, effects)

    # -------------------------------------------------------------------- time

    def run(self, seconds: float) -> None:
        until = self.now + round(seconds * SECOND)
        self.world.clock.run(until, STEPS_MAX)
        self.world.clock.now = Micros(until)

    def until(self, condition: Callable[[], object], seconds: float = 30.0) -> float:
        """Runs until the condition holds; returns the seconds it took."""
        start, clock = self.now, self.world.clock
        while not condition():
            steps = clock.steps
            clock.run(start + round(seconds * SECOND), 1)
            assert clock.steps > steps, f"not within {seconds} s"
        return (self.now - start) / SECOND

    def settle(self, seconds: float = 30.0) -> float:
        """Until all views agree and all links of the overlay are up."""
        return self.until(lambda: self.agrees and self.is_linked, seconds)

    @property
    def agrees(self) -> bool:
        machines = self.machines
        first = machines[0].view
        return len(first.members) == len({machine.me for machine in machines}) and all(
            machine.view.digest == first.digest for machine in machines
        )

    @property
    def is_linked(self) -> bool:
        links = self.adjacency()
        return all(set(machine.neighbours) <= set(links[machine.me]) for machine in self.machines)

    def adjacency(self, *without: int) -> dict[Peer, tuple[Peer, ...]]:
        """The links that are up at both ends."""
        gone = {self.peer(number) for number in without}
        ups = {
            m.me: {peer for peer, link in m.links.items() if link.greeted} - gone
            for m in self.machines
            if m.me not in gone
        }
        return {
            me: tuple(sorted(peer for peer in up if me in ups.get(peer, ())))
            for me, up in ups.items()
        }

    def knows(self, observer: int, number: int) -> bool:
        """Whether the observer has the node's present record."""
        known = self[observer].view.members.get(self.peer(number))
        return known is not None and known.record == self[number].record


def single(me: int = 1, **options: Any) -> Interest:
    """One machine, driven by the test itself."""
    config = options.pop("config", {})
    return Interest(
         Peer(me), incarnation=1, address=f"node-{me}", rng=Random(me),
        config=InterestConfig(**config), **options
    )  # fmt: skip


def befriend(machine: Interest, peer: int, now: int = 0, want: bool = True) -> Record:
    """A link to a peer that exists only in the test. The peer greets, and its record is in the
    view.

    Returns that record.
    """
    record = Record(peer, 256, 1, f"node-{peer}")
    machine.link(Peer(peer), LinkState.UP, Micros(now))
    machine.receive(Peer(peer), Greet(record, 0, 2, want), Micros(now))
    machine.wake(Micros(now))
    return record


def interest(record: Record | None) -> tuple[int, bytes, bytes] | None:
    """What owners are told of a record: signs of life and addresses are not among it."""
    return None if record is None else (record.life, record.topics, record.stamps)


def sends(effects: Iterable[Effect]) -> list[Message]:
    return [through_codec(effect.message)[0] for effect in effects if isinstance(effect, Send)]


def told(effects: Iterable[Effect]) -> list[ViewChange]:
    """What a machine told its owner."""
    return [change for effect in effects if isinstance(effect, Deliver) for change in effect.events]
