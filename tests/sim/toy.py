"""A machine small enough to see through. It says hello on command, and remembers all messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import msgspec

from gossamer.machine import (
    NEVER,
    Effect,
    Keep,
    LinkState,
    Message,
    Micros,
    Peer,
    Send,
    Store,
    Token,
)
from gossamer.sim.latency import Constant, Latency
from gossamer.sim.network import EventId
from gossamer.sim.rules import Rule
from gossamer.sim.world import Node, Probe, World


class Word(Message, frozen=True, array_like=True, tag=1):
    is_event: ClassVar[bool] = True
    number: int


class Sign(Message, frozen=True, array_like=True, tag=2):
    number: int


class ToyCodec:
    def __init__(self) -> None:
        self._encoder, self._decoder = (
            msgspec.msgpack.Encoder(),
            msgspec.msgpack.Decoder(Word | Sign),
        )

    def encode(self, message: Message) -> bytes:
        return self._encoder.encode(message)

    def decode(self, frame: bytes) -> Message:
        return self._decoder.decode(frame)

    def ids(self, message: Message) -> tuple[EventId, ...]:
        return ((0, 0, message.number),)


class Toy:
    def __init__(self, node: Node) -> None:
        self.deadline, self.index = NEVER, node.index
        self.restored = dict(node.disk.contents)
        self.incarnation = node.incarnation
        # The time, the sender and the message.
        self.heard: list[tuple[int, int, int]] = []
        # The time, the peer and the state.
        self.links: list[tuple[int, int, str]] = []
        self.stored_tokens: list[tuple[int, int]] = []
        self.woken: list[int] = []
        # The peer and the message.
        self.refusals: list[tuple[int, int]] = []
        # The history with each peer, in order: a state, or "sent", "refused" or "heard" with a
        # message.
        self.log: dict[int, list[tuple[str, Message | None]]] = {}
        self.out: list[Effect] = []

    def say(self, world: World, node: Node, *to: int, message: Message | None = None) -> None:
        message = message or Word(0)
        for index in to:
            self.log.setdefault(world.nodes[index].peer, []).append(("sent", message))
        self.out.append(Send(tuple(world.nodes[index].peer for index in to), message))
        world.command(node)

    def keep(self, world: World, node: Node, token: int, *values: str) -> None:
        self.out.append(
            Store(
                Token(token),
                tuple(Keep(f"{token}/{place}", v.encode()) for place, v in enumerate(values)),
            )
        )
        world.command(node)

    def receive(self, sender: Peer, message: Word | Sign, now: Micros) -> list[Effect]:
        self.heard.append((now, sender, message.number))
        self.log.setdefault(sender, []).append(("heard", message))
        return []

    def wake(self, now: Micros) -> list[Effect]:
        self.woken.append(now)
        if self.deadline <= now:
            self.deadline = NEVER
        out, self.out = self.out, []
        return out

    def link(self, peer: Peer, state: LinkState, now: Micros) -> list[Effect]:
        self.links.append((now, peer, state.name))
        self.log.setdefault(peer, []).append((state.name, None))
        return []

    def refused(self, peer: Peer, message: Word, now: Micros) -> list[Effect]:
        self.refusals.append((peer, message.number))
        self.log.setdefault(peer, []).append(("refused", message))
        return []

    def stored(self, token: Token, now: Micros) -> list[Effect]:
        self.stored_tokens.append((now, token))
        return []


def toy_world(
    nodes: int = 2,
    *rules: Rule,
    seed: int = 1,
    latency: Latency | None = None,
    make: Callable[[Node], Toy] = Toy,
    queue_mark: int = 4,
    probe: Probe | None = None,
) -> World:
    """Node i is peer i. Fully linked; 1 ms of latency; breaks are noticed after 100 ms or so."""
    world = World(
        seed=seed, make=make, codec=ToyCodec(), latency=latency or Constant(1_000),
        probe=probe or Probe(),
        detect=100_000, reconnect=50_000, queue_mark=queue_mark, disk_latency=1_000,
    )  # fmt: skip
    for index in range(nodes):
        world.add_node(Peer(index))
    for one in range(nodes):
        for other in range(one + 1, nodes):
            world.network.add_link(one, other)
    world.network.rules.extend(rules)
    world.start()
    return world


def say(world: World, sender: int, to: int, *numbers: int) -> None:
    node = world.nodes[sender]
    for number in numbers:
        node.machine.say(world, node, to, message=Word(number))


def heard(world: World, index: int) -> list[int]:
    return [number for _, _, number in world.nodes[index].machine.heard]


def states(world: World, index: int) -> list[str]:
    return [state for _, _, state in world.nodes[index].machine.links]


def run(world: World, until: int = 8_000_000) -> None:
    world.clock.run(until, 1_000_000)


def sessions(log: list[tuple[str, Message | None]], verb: str) -> list[list[Message]]:
    """The messages that were sent and not refused, or heard, on each link between UP and DOWN."""
    found: list[list[Message]] = []
    is_up = False
    for what, message in log:
        if what in ("UP", "DOWN"):
            is_up = what == "UP"
            if is_up:
                found.append([])
        elif what == verb and message is not None:
            assert is_up or verb == "sent", "something was heard on a link that is down"
            if is_up:
                found[-1].append(message)
        elif what == "refused" and verb == "sent" and message is not None:
            found[-1].remove(message)
    return found


def keeps_the_contract(sender: list[list[Message]], receiver: list[list[Message]]) -> bool:
    """Whether the links that the receiver knew each had a prefix of one that the sender knew.

    The prefix is compared kind by kind, in order.
    """
    left = iter(sender)
    for heard in filter(None, receiver):
        for sent in left:
            if heard[0] in sent:
                break
        else:
            return False
        for kind in (Word, Sign):
            some = [message for message in heard if type(message) is kind]
            if some != [message for message in sent if type(message) is kind][: len(some)]:
                return False
    return True
