"""The simulator: nodes, their machines, and everything that a driver does for a machine.

There is one driver for any ``Machine``. It takes the next act from the clock, calls the machine,
carries out its effects and reads its deadline again. Every message goes through a codec, so a
message that cannot travel fails here, and bytes are counted. Crash, restart, pause and disk faults
are plain verbs of ``World``. The network decides the fate of messages.

The contract of machine.py is checked at every step. A breach ends the run (``BreachError``),
because nothing after it means anything.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from traceback import extract_tb
from typing import Any, Protocol

from gossamer.machine import (
    NEVER,
    Deliver,
    Dial,
    Effect,
    Hangup,
    LinkState,
    Message,
    Micros,
    Note,
    Peer,
    Send,
    Store,
    Token,
)
from gossamer.sim.clock import Clock
from gossamer.sim.disk import Disk
from gossamer.sim.latency import Latency
from gossamer.sim.network import EventId, Link, Network, Packet
from gossamer.sim.rules import Clog, Cut, Narrow
from gossamer.sim.switchboard import Switchboard
from gossamer.sim.traces import Traces
from gossamer.trace import Digest, Record, Rejected

# The time between the goodbye and the departure.
GOODBYE = 10_000
# The most time between them, if others still need the node.
GOODBYE_MAX = 2_000_000
_STAMP = struct.Struct("<qiI")


class AnyMachine(Protocol):
    """A ``Machine`` of any messages, which the simulator drives."""

    @property
    def deadline(self) -> Micros: ...
    def receive(self, sender: Peer, message: Any, now: Micros) -> list[Effect]: ...
    def wake(self, now: Micros) -> list[Effect]: ...
    def link(self, peer: Peer, state: LinkState, now: Micros) -> list[Effect]: ...
    def stored(self, token: Token, now: Micros) -> list[Effect]: ...


class Codec(Protocol):
    def encode(self, message: Message) -> bytes: ...
    def decode(self, frame: bytes) -> Message: ...
    def ids(self, message: Message) -> tuple[EventId, ...]:
        """The events that an event message carries."""


class BreachError(Exception):
    """A machine, or the codec, broke the contract."""


def _raised(node: Node, when: str, error: Exception) -> BreachError:
    frame = extract_tb(error.__traceback__)[-1]
    return BreachError(
        f"node {node.index} raised {when}: {error!r} ({frame.name}, "
        f"{Path(frame.filename).name}:{frame.lineno})"
    )


class Node:
    """A machine with its surroundings."""

    __slots__ = (
        "armed", "disk", "ended", "inbox", "incarnation", "index", "life", "machine", "paused",
        "peer", "received",
        "received_messages", "remembers", "sent_bytes", "sent_messages",
    )  # fmt: skip

    def __init__(self, index: int, peer: Peer, disk: Disk) -> None:
        self.index, self.peer, self.disk = index, peer, disk
        # None: the node is down.
        self.machine: AnyMachine | None = None
        # The machine that ran here before the node went down.
        self.ended: AnyMachine | None = None
        self.incarnation = 0
        # The number of earlier lives that the disk knows of.
        self.remembers = 0
        # Counts starts and crashes, so that acts for an earlier life find nobody.
        self.life = 0
        self.armed: int = NEVER
        self.paused = False
        # The acts that wait for a paused node.
        self.inbox: list[Callable[[], None]] = []
        # Events (every copy), and messages.
        self.received = self.received_messages = 0
        self.sent_bytes = self.sent_messages = 0


class Probe:
    """A probe watches a run. The users of the nodes and the checkers are probes.

    All methods may be left out.
    """

    def delivered(self, node: Node, effect: Deliver) -> None: ...
    def noted(self, node: Node, record: Record) -> None: ...
    def sent(self, node: Node, packet: Packet) -> None: ...
    def arrived(self, node: Node, packet: Packet) -> None: ...
    def called(self, node: Node) -> None: ...
    def started(self, node: Node) -> None: ...
    def leaving(self, node: Node) -> None: ...
    def crashed(self, node: Node) -> None: ...
    def resumed(self, node: Node) -> None: ...
    def linked(self, node: Node, peer: Peer, state: LinkState) -> None: ...
    def sending(self, node: Node, to: tuple[Peer, ...], message: Message, size: int) -> None: ...
    def receiving(self, node: Node, sender: Node, packet: Packet) -> None: ...


class World:
    def __init__(
        self,
        *,
        seed: int,
        make: Callable[[Node], AnyMachine],
        codec: Codec,
        latency: Latency,
        probe: Probe,
        detect: int = 300_000,
        reconnect: int = 100_000,
        queue_mark: int = 256,
        disk_latency: int = 1_000,
        header: int = 0,
        shares: bool = False,
    ) -> None:
        """``header`` is the number of bytes of a frame that the codec does not write.

        With ``shares``, a message that came out of the codec as it went in is itself handed to the
        receiver. This is for messages that nobody can change. Thousands of nodes then hold the same
        places instead of copies of them.
        """
        self.clock = Clock()
        self.rng = Random(f"network {seed}")
        self.network = Network(
            self.clock, self.rng, latency, arrive=self._arrive, tell=self._tell,
            detect=detect, reconnect=reconnect, queue_mark=queue_mark,
        )  # fmt: skip
        self._carry = self.network.send
        self.nodes: list[Node] = []
        self.digest = Digest()
        self.counts = self.network.counts
        self.messages = 0
        self.bytes = 0
        # If it is set, the run leaves traces.
        self.traces: Traces | None = None
        # The packet whose effects are being carried out.
        self.handling: Packet | None = None
        # The node from which that packet came.
        self.handling_from = -1
        self.switchboard = Switchboard(self.network, self._life)
        self._seed, self._make, self._codec, self._probe = seed, make, codec, probe
        self._encode, self._decode, self._header, self._shares = (
            codec.encode,
            codec.decode,
            header,
            shares,
        )
        self._disk_latency = disk_latency
        # Nodes that have said goodbye, and whether they are to come back at once.
        self._leaving: dict[int, bool] = {}
        # A probe is told of every message only if it cares, because these calls are the hot ones.
        kind = type(probe)
        self._sending = probe.sending if kind.sending is not Probe.sending else None
        self._receiving = probe.receiving if kind.receiving is not Probe.receiving else None
        self._called = probe.called if kind.called is not Probe.called else None

    # ----------------------------------------------------------------- set-up

    def add_node(self, peer: Peer, address: str = "") -> Node:
        """With an address, others can dial it."""
        index = self.network.add_node(peer)
        node = Node(index, peer, Disk(Random(f"disk {self._seed} {index}")))
        self.nodes.append(node)
        self.switchboard.add(index, address)
        return node

    def boot(self, node: Node) -> None:
        """Start one node for the first time. ``start`` does it for all."""
        assert node.life == 0
        self._start(node)

    def _life(self, index: int) -> int:
        node = self.nodes[index]
        return node.life if node.machine is not None else 0

    def start(self) -> None:
        """Start all nodes, then join all links."""
        for node in self.nodes:
            self._start(node)
        for pair in self.network.pairs():
            self.network.mend_pair(pair, at_once=True)

    # ------------------------------------------------------------ node actions

    def crash(self, node: Node, *, silent: bool = False) -> None:
        """The process is gone, and so are all records that it had not stored.

        Neighbours will notice, unless the host is gone, too (``silent``).
        """
        if node.machine is None:
            return
        self.network.count("crash")
        node.ended = node.machine
        node.machine, node.armed, node.paused = None, NEVER, False
        node.inbox.clear()
        node.life += 1
        torn = node.disk.torn
        node.disk.crash()
        self.network.count("torn", node.disk.torn - torn)
        for link in list(self.network.links[node.index].values()):
            self.network.hang_up(link)
            if not link.pair.dialled:
                self.network.break_pair(link.pair, reset=True)
            else:
                self.switchboard.lost(link, silent=silent)
        self._probe.crashed(node)

    def leave(self, node: Node) -> None:
        """The node tells its neighbours that it goes for good, and goes a moment later."""
        if node.machine is None or node.paused or node.index in self._leaving:
            return
        self.network.count("leave")
        life = node.life
        self._probe.leaving(node)
        node.machine.leave(self.clock.now)  # type: ignore[attr-defined]
        self.command(node)
        self._go(node, life, self.clock.now + GOODBYE_MAX)

    def _go(self, node: Node, life: int, latest: int) -> None:
        """Stop the node in a moment. A machine may say (``may_go``) that others still need it."""

        def stop() -> None:
            if life != node.life:
                self._leaving.pop(node.index, None)
            elif getattr(node.machine, "may_go", True) or self.clock.now >= latest:
                self.crash(node)
                # The node was to be back by now.
                if self._leaving.pop(node.index):
                    self.restart(node)
            else:
                self._go(node, life, latest)

        self._leaving.setdefault(node.index, False)
        self.clock.call(self.clock.now + GOODBYE, stop)

    def restart(self, node: Node, *, wipe: bool = False) -> None:
        """Start a new incarnation with the records of the disk, or with an empty disk
        (``wipe``).
        """
        if node.machine is not None:
            if node.index in self._leaving:
                self._leaving[node.index] = True
            return
        self.network.count("restart")
        node.incarnation += 1
        node.remembers += 1
        if wipe:
            self.network.count("wiped")
            node.remembers = 0
            node.disk.contents.clear()
        self._start(node)
        for link in self.network.links[node.index].values():
            self.network.mend_pair(link.pair)

    def pause(self, node: Node) -> None:
        """Stop the process as SIGSTOP does: time passes, messages queue, links stay."""
        if node.machine is not None and not node.paused:
            self.network.count("pause")
            node.paused = True

    def resume(self, node: Node) -> None:
        if node.paused:
            node.paused = False
            self._probe.resumed(node)
            inbox, node.inbox = node.inbox, []
            for act in inbox:
                act()
            self._arm(node)

    def fill_disk(self, node: Node) -> None:
        self.network.count("disk full")
        node.disk.full = True

    def drain_disk(self, node: Node) -> None:
        node.disk.full = False
        for offset, _ in enumerate(node.disk.pending, start=1):
            self.clock.push(
                self.clock.now + offset * self._disk_latency, self._stored, node, node.life
            )

    def cut(self, cut: Cut, *, silent: bool = False) -> None:
        """Begin a partition. Unless it is silent, connections across it break."""
        self.network.raise_barrier(cut)
        if not silent:
            for pair in self._across(cut):
                self.network.break_pair(pair)

    def heal(self, cut: Cut, *, silent: bool = False) -> None:
        self.network.lower_barrier(cut)
        if not silent:
            for pair in self._across(cut):
                self.network.mend_pair(pair)

    def _across(self, cut: Cut) -> list[Any]:
        return [
            pair
            for pair in self.network.pairs()
            if cut.crosses(pair.ends[0].sender, pair.ends[0].to)
        ]

    def clog(self, clog: Clog) -> None:
        self.network.raise_barrier(clog)

    def unclog(self, clog: Clog) -> None:
        self.network.lower_barrier(clog)

    def narrow(self, narrow: Narrow) -> None:
        self.network.narrows.append(narrow)

    def widen(self, narrow: Narrow) -> None:
        self.network.widen(narrow)

    def record(self, node: Node, record: Record) -> None:
        """Write a record into the traces: a node's own note, or an act of a user of a bare
        machine.
        """
        if self.traces is not None:
            self.traces.add(node.peer, node.incarnation + 1, self.clock.now, record)

    # ----------------------------------------------------------------- driving

    def command(self, node: Node) -> None:
        """The user has called a command of the machine. Its effects come out now."""
        self._wake(node)

    def _start(self, node: Node) -> None:
        node.life += 1
        node.machine, node.ended = self._make(node), None
        node.paused = False
        node.armed = NEVER
        self._probe.started(node)
        self._arm(node)

    def _arrive(self, link: Link, packet: Packet, epoch: int) -> None:
        node = self.nodes[link.to]
        machine = node.machine
        if machine is None:
            self.network.count("closed")
            return
        if node.paused:
            self.network.queue(link, packet)
            node.inbox.append(lambda: self._late(link, packet, epoch))
            return
        if packet.is_event:
            node.received += len(packet.ids)
            self._probe.arrived(node, packet)
        node.received_messages += 1
        if self._receiving is not None:
            self._receiving(node, self.nodes[link.sender], packet)
        try:
            effects = machine.receive(link.sender_peer, packet.message, self.clock.now)
        except Exception as error:
            raise _raised(node, f"on a {type(packet.message).__name__}", error) from error
        self.handling, self.handling_from = packet, link.sender
        self._after(node, effects)
        self.handling = None

    def _late(self, link: Link, packet: Packet, epoch: int) -> None:
        self.network.unqueue(link, packet, epoch)
        self._arrive(link, packet, epoch)

    def _tell(self, index: int, far: int, state: LinkState) -> None:
        node, peer = self.nodes[index], self.nodes[far].peer
        if node.paused:
            node.inbox.append(lambda: self._tell(index, far, state))
        elif node.machine is not None:
            self._probe.linked(node, peer, state)
            try:
                effects = node.machine.link(peer, state, self.clock.now)
            except Exception as error:
                raise _raised(node, f"when a link was {state.name}", error) from error
            self._after(node, effects)

    def _refused(self, node: Node, link: Link, packet: Packet) -> None:
        machine, to = node.machine, self.nodes[link.to].peer
        if machine is None or not link.up:
            # The link has gone down meanwhile, and the machine is told of that.
            return
        try:
            effects = machine.refused(to, packet.message, self.clock.now)  # type: ignore[attr-defined]
        except Exception as error:
            raise _raised(node, "when a message was refused", error) from error
        self._after(node, effects)

    def _stored(self, node: Node, life: int, _z: None) -> None:
        if life != node.life:
            return
        if node.paused:
            node.inbox.append(lambda: self._stored(node, life, None))
            return
        assert node.machine is not None
        if node.disk.full:
            tokens = [store.token for store in node.disk.refuse()]
            if tokens:
                self.network.count("refused")
                try:
                    effects = node.machine.unstored(tokens, self.clock.now)  # type: ignore[attr-defined]
                except Exception as error:
                    raise _raised(node, "when the disk refused records", error) from error
                self._after(node, effects)
            return
        for store in node.disk.finish():
            try:
                effects = node.machine.stored(store.token, self.clock.now)
            except Exception as error:
                raise _raised(node, "when records were stored", error) from error
            self._after(node, effects)

    def _arm(self, node: Node) -> None:
        """Make sure that the node is woken in time.

        Later timers stay in the heap. They find that another one is armed, and do nothing.
        """
        machine = node.machine
        if machine is not None:
            deadline = machine.deadline
            if deadline < node.armed:
                node.armed = max(deadline, self.clock.now)
                self.clock.push(node.armed, self._timer, node, node.life, node.armed)

    def _timer(self, node: Node, life: int, armed: int) -> None:
        if life != node.life or armed != node.armed:
            # The timer belongs to an earlier life, or another timer has taken its place.
            return
        node.armed = NEVER
        machine = node.machine
        if machine is None or node.paused:
            return
        if machine.deadline <= self.clock.now:
            self._wake(node)
        else:
            self._arm(node)

    def _wake(self, node: Node) -> None:
        machine, now = node.machine, self.clock.now
        assert machine is not None
        try:
            effects = machine.wake(now)
        except Exception as error:
            raise _raised(node, "when woken", error) from error
        if machine.deadline <= now:
            raise BreachError(
                f"node {node.index} woke at {now} us and wants to wake at {machine.deadline} us: a "
                "driver would spin"
            )
        self._after(node, effects)

    def _after(self, node: Node, effects: list[Effect]) -> None:
        if self._called is not None:
            self._called(node)
        hung: tuple[tuple[Peer, LinkState], ...] = ()
        for effect in effects:
            kind = type(effect)
            if kind is Send:
                self._send(node, effect)  # type: ignore[arg-type]
            elif kind is Note:
                record = effect.record  # type: ignore[union-attr]
                self.digest.add(self.clock.now, node.peer, record)
                self.record(node, record)
                self._probe.noted(node, record)
                if type(record) is Rejected and record.cut:
                    peer = Peer(int(record.peer, 16))
                    if self.switchboard.hang_up(node.index, peer):
                        hung = (*hung, (peer, LinkState.CUT))
            elif kind is Deliver:
                self._probe.delivered(node, effect)  # type: ignore[arg-type]
            elif kind is Store:
                at = node.disk.ask(effect, self.clock.now, self._disk_latency)  # type: ignore[arg-type]
                self.clock.push(at, self._stored, node, node.life)
            elif kind is Dial:
                self.switchboard.dial(node.index, effect.address, effect.expected)  # type: ignore[union-attr]
            elif kind is Hangup:
                if self.switchboard.hang_up(node.index, effect.peer):  # type: ignore[union-attr]
                    hung = (*hung, (effect.peer, LinkState.DOWN))  # type: ignore[union-attr]
            else:
                raise BreachError(f"node {node.index} asked for {effect!r}, which is no effect")
        answers, self.network.answers = self.network.answers, []
        for link, packet in answers:
            if packet is None:
                self._tell(node.index, link.to, LinkState.FULL)
            else:
                self._refused(node, link, packet)
        for peer, state in hung:
            self._tell(node.index, self.switchboard.by_peer(peer), state)
        machine = node.machine
        if machine is not None and machine.deadline < node.armed:
            self._arm(node)

    def _send(self, node: Node, effect: Send) -> None:
        message, to = effect.message, effect.to
        try:
            frame = self._encode(message)
            decoded = self._decode(frame)
        except Exception as error:
            raise BreachError(
                f"node {node.index} sent {message!r}, which cannot travel: {error}"
            ) from error
        if decoded != message:
            # NaN is not equal to itself.
            if self._encode(decoded) != frame:
                raise BreachError(
                    f"node {node.index} sent {message!r}, which the codec turns into {decoded!r}"
                )
        elif self._shares:
            decoded = message
        size, copies, index = len(frame) + self._header, len(to), node.index
        self.digest.update(_STAMP.pack(self.clock.now, index, copies) + frame)
        if decoded.is_event:
            packet = Packet(decoded, size, self._codec.ids(decoded), True)
            self._probe.sent(node, packet)
        else:
            packet = Packet(decoded, size)
        if self._sending is not None:
            self._sending(node, to, decoded, size)
        node.sent_messages += copies
        node.sent_bytes += size * copies
        if copies == 1:
            self.messages += 1
            self.bytes += size
            self._carry(index, to[0], packet)
            return
        self.messages += copies
        self.bytes += size * copies
        for peer in to:
            self._carry(index, peer, packet)
