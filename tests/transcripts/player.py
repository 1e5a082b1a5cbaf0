"""Plays a transcript: commands for whole nodes in the simulated world, and all their messages.

A transcript is a text file. A block of it is commands, a line ``----``, and the output of these
commands, up to an empty line:

    publish 0 {"temp": 31}
    run 100ms
    ----
      0.0010  0 > 1  Portion topic=weather first=1 ...

``pytest tests/transcripts --rewrite`` writes the output anew. The difference is then reviewed like
code.

    nodes N                  N nodes that find each other; a message takes 1 ms between any two
    join                     one more node starts, and joins through the first ones
    run TIME                 time passes: 100ms, 2s
    hide KIND ...            messages of these kinds are not shown from here on (a count of them is)
    quiet, loud              nothing is shown between the two
    advertise N TOPIC DDL    the node advertises a topic
    subscribe N TOPIC WHERE [route=ROUTE]
    publish N TOPIC JSON
    crash N, restart N, leave N, pause N, resume N
    status                   what each node believes: members that live, and subscriptions
"""

from __future__ import annotations

import json
import shlex
from typing import Any

import msgspec

from gossamer.machine import Deliver, LinkState, Message, Micros, Peer
from gossamer.node.planes import Route
from gossamer.sim import latency
from gossamer.sim.clock import duration
from gossamer.sim.codec import WireCodec
from gossamer.sim.config import Config
from gossamer.sim.run import make_core
from gossamer.sim.world import Node, Probe, World
from gossamer.trace import Record

SEED = 7
TEXT_MAX = 110
RULE = "----"


class Player(Probe):
    """Carries out the commands of one transcript, one after the other."""

    def __init__(self) -> None:
        self.world: World
        self._lines: list[str] = []
        self._hidden: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._open: list[tuple[int, Any]] = []
        self._since = 0
        self._is_quiet = False

    def play(self, commands: list[str]) -> str:
        """The output of a block of commands."""
        self._lines = []
        for command in commands:
            verb, *words = shlex.split(command)
            getattr(self, f"_{verb}")(*words)
        hidden = {kind: count for kind, count in self._hidden.items() if count}
        if hidden:
            told = ", ".join(f"{count} {kind}" for kind, count in sorted(hidden.items()))
            self._lines.append(f"  hidden: {told}")
            self._hidden = dict.fromkeys(self._hidden, 0)
        return "".join(f"{line}\n" for line in self._lines)

    # ------------------------------------------------------------- the commands

    def _nodes(self, count: str) -> None:
        config = Config(overlay="fabric", nodes=int(count), seed=SEED, durable=True)
        self.world = World(
            seed=SEED,
            make=lambda node: make_core(node, config),
            codec=WireCodec(),
            latency=latency.parse("constant:1ms", SEED),
            probe=self,
            detect=duration("20ms"),
        )
        for _ in range(int(count)):
            self._add()
        self.world.start()

    def _join(self) -> None:
        self.world.boot(self._add())

    def _add(self) -> Node:
        index = len(self.world.nodes)
        # The same in every run, and spread over the whole space as real identifiers are.
        peer = Peer((0x1111_1111_1111_1111 * (2 * index + 1) + 0x5DEECE66D * index) % 2**64)
        self._names[peer] = str(index)
        return self.world.add_node(peer, f"node-{index}")

    def _run(self, time: str) -> None:
        until = Micros(self.world.clock.now + duration(time))
        self.world.clock.call(until, lambda: None)
        self.world.clock.run(until, 1 << 62)
        self._since = self.world.clock.now

    def _hide(self, *kinds: str) -> None:
        self._hidden |= {kind: self._hidden.get(kind, 0) for kind in kinds}

    def _quiet(self) -> None:
        self._is_quiet = True

    def _loud(self) -> None:
        self._is_quiet = False

    def _advertise(self, index: str, topic: str, schema: str) -> None:
        node, core = self._core(index)
        core.advertise(topic, schema, self.world.clock.now)
        self.world.command(node)

    def _subscribe(self, index: str, topic: str, filter: str, route: str = "route=direct") -> None:
        node, core = self._core(index)
        chosen = Route(route.removeprefix("route="))
        number = core.subscribe(topic, filter, self.world.clock.now, route=chosen)
        self._say(f"node {index}: subscription {number}, route {chosen}, is wanted")
        self.world.command(node)

    def _publish(self, index: str, topic: str, event: str) -> None:
        node, core = self._core(index)
        ticket = core.publish(topic, json.loads(event), self.world.clock.now)
        self._open.append((node.index, ticket))
        self.world.command(node)

    def _crash(self, index: str) -> None:
        self.world.crash(self.world.nodes[int(index)])

    def _restart(self, index: str) -> None:
        self.world.restart(self.world.nodes[int(index)])

    def _leave(self, index: str) -> None:
        self.world.leave(self.world.nodes[int(index)])

    def _pause(self, index: str) -> None:
        self.world.pause(self.world.nodes[int(index)])

    def _resume(self, index: str) -> None:
        self.world.resume(self.world.nodes[int(index)])

    def _status(self) -> None:
        for node in self.world.nodes:
            if node.machine is None:
                self._lines.append(f"  node {node.index} is down")
                continue
            core: Any = node.machine
            members = sorted(self._name(peer) for peer in core.interest.view.members)
            topics = sorted(core.topics.schemas)
            self._lines.append(
                f"  node {node.index} knows the nodes {', '.join(members)}"
                f" and the topics {', '.join(topics) or '(none)'}"
            )

    # ------------------------------------------------------------ what happens

    def _core(self, index: str) -> tuple[Node, Any]:
        node = self.world.nodes[int(index)]
        assert node.machine is not None, f"node {index} is down"
        return node, node.machine

    def _say(self, text: str) -> None:
        if self._is_quiet:
            return
        now = (self.world.clock.now - self._since) / 1_000_000
        self._lines.append(f"  {now:.4f}  {text}")

    def sending(self, node: Node, to: tuple[Peer, ...], message: Message, size: int) -> None:
        kind = type(message).__name__
        if kind in self._hidden:
            self._hidden[kind] += 0 if self._is_quiet else len(to)
            return
        whom = ",".join(self._name(peer) for peer in to)
        self._say(f"{node.index} > {whom}  {self._told(message)}  ({size} bytes)")

    def delivered(self, node: Node, effect: Deliver) -> None:
        core: Any = node.machine
        for event in effect.events:
            values = json.dumps(dict(event.values) if hasattr(event, "values") else repr(event))
            self._say(f"node {node.index}: subscription {effect.subscription} is handed {values}")
        core.taken(effect.subscription, len(effect.events), self.world.clock.now)

    def called(self, node: Node) -> None:
        core: Any = node.machine
        if core is None:
            return
        for number in core.entered:
            self._say(f"node {node.index}: subscription {number} is in force")
        core.entered.clear()
        for number in core.lapsed:
            self._say(f"node {node.index}: subscription {number} has lapsed")
        core.lapsed.clear()
        core.changed.clear()
        for index, ticket in list(self._open):
            if index == node.index and ticket.done:
                self._open.remove((index, ticket))
                self._say(
                    f"node {index}: the receipt of event {ticket.id[1]} is complete,"
                    f" matched {ticket.matched}"
                )

    def noted(self, node: Node, record: Record) -> None:
        kind = type(record).__name__
        if kind not in self._hidden:
            self._say(f"node {node.index} notes  {self._told(record)}")

    def linked(self, node: Node, peer: Peer, state: LinkState) -> None:
        if "link" not in self._hidden:
            self._say(f"node {node.index}: the link to {self._name(peer)} is {state.name}")

    def crashed(self, node: Node) -> None:
        self._say(f"node {node.index} is gone")

    def started(self, node: Node) -> None:
        self._say(f"node {node.index} starts, life {node.incarnation + 1}")

    # ----------------------------------------------------------------- as text

    def _name(self, peer: int) -> str:
        return self._names.get(peer, f"{peer:016x}")

    def _told(self, struct: Any) -> str:
        """The kind and the fields, those that are as by default left out, and long ones cut."""
        fields = (
            f"{field.name}={self._value(value)}"
            for field in msgspec.structs.fields(struct)
            if (value := getattr(struct, field.name)) != field.default
        )
        text = " ".join((type(struct).__name__, *fields))
        return text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 3] + "..."

    def _value(self, value: Any) -> str:
        if isinstance(value, bytes | bytearray | memoryview):
            return f"<{len(value)} bytes>"
        if isinstance(value, bool) or value is None:
            return str(value).lower()
        if isinstance(value, int):
            return self._names[value] if value in self._names else str(value)
        if isinstance(value, str) and len(value) == 16 and set(value) <= set("0123456789abcdef"):
            return self._name(int(value, 16))
        if isinstance(value, msgspec.Struct):
            return f"({self._told(value)})"
        if isinstance(value, tuple | list):
            return "[" + ", ".join(map(self._value, value)) + "]"
        return str(value)


def blocks(text: str) -> list[tuple[list[str], str]]:
    """The commands and the output of each block. Lines that begin with ``#`` are for readers."""
    found = []
    for part in text.strip("\n").split("\n\n"):
        head, _, output = (part + "\n").partition(f"{RULE}\n")
        lines = head.splitlines()
        if any(line and not line.startswith("#") for line in lines):
            found.append((lines, output))
        else:
            found.append((lines, ""))
    return found


def played(text: str) -> str:
    """The same transcript with the output that its commands have now."""
    player = Player()
    told = []
    for lines, _ in blocks(text):
        commands = [line for line in lines if line and not line.startswith("#")]
        head = "".join(f"{line}\n" for line in lines)
        told.append(f"{head}{RULE}\n{player.play(commands)}" if commands else head)
    return "\n".join(told)
