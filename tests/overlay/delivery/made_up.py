"""A made-up overlay for tests of the delivery engine: regions are sets of nodes, as bits of a
number.

The network keeps the link contract and nothing more. Messages on a link arrive in order, once. A
link that breaks loses an unknown tail, and each end is told when it notices. A full queue hands
event messages back, and READY follows. Nodes restart and forget everything.
"""

from __future__ import annotations

import heapq
from collections import deque
from random import Random
from typing import Any

from gossamer.machine import Effect, LinkState, Message, Micros, Note, Peer, Send
from gossamer.overlay.batch import Batch
from gossamer.overlay.delivery.engine import Engine, Pace
from gossamer.overlay.delivery.region import Aim, Id
from gossamer.trace import Rejected

MILLI = 1_000


class Carried(Message, frozen=True, array_like=True):
    is_event = True

    batch: Batch
    region: int


class Told(Message, frozen=True, array_like=True):
    id: Id
    round: int
    region: int
    tile: int
    counts: tuple[int, ...]


class Patience(Message, frozen=True, array_like=True):
    id: Id
    round: int
    region: int


class Union:
    """A cover: the tiles that were answered for."""

    def __init__(self) -> None:
        self.bits = 0

    def add(self, tile: int, region: int) -> None:
        self.bits |= tile & region

    def lose(self, region: int) -> None: ...

    def tile(self, now: Micros) -> int:
        return self.bits


class BitRouter:
    """Sends along shortest ways over the links that are up, as far as this node knows them.

    ``strays``: how often it draws another neighbour instead, and how often it asks two for the same
    node, so that regions meet in strange ways. ``calls``: how often a publisher asks a node without
    a link in a later round. ``slow``: how often it does not know the way to a node yet in a later
    round; when it does, it tells the engine.
    """

    def __init__(self, net: Net, me: int) -> None:
        self.net, self.me = net, me
        self.everything = net.everybody
        self.splits = net.splits

    def minus(self, one: int, other: int) -> int:
        return one & ~other

    def plus(self, one: int, other: int) -> int:
        return one | other

    def cover(self, region: int) -> Union:
        return Union()

    def elsewhere(self, region: int) -> int:
        return 0

    def nothing(self, region: int) -> int:
        return 0

    def name(self, region: int) -> int:
        return region

    def aim(self, batch: Batch, region: int, sender: Peer | None, now: Micros) -> Aim:
        net, me = self.net, self.me
        up = [int(peer) for peer in net.engines[me].outstanding.links]
        parts: dict[int, int] = {}
        rest = region & ~(1 << me)
        without = 0
        for node in net.cut_off[me]:
            self.leaves_out(batch, Peer(node), now)
            without |= rest & 1 << node
        rest &= ~without
        if sender is None and batch.round:
            for node in range(net.nodes):
                if rest >> node & 1 and node not in up and net.rng.random() < net.calls:
                    parts[node] = 1 << node
                    rest &= ~(1 << node)
                    net.dial(me, node)
                elif rest >> node & 1 and net.rng.random() < net.slow:
                    rest &= ~(1 << node)
                    net.look_up(me)
        known = rest & net.silent if net.rng.random() < 0.5 else 0
        rest &= ~known
        hop = net.first_hops(me, up)
        for node in range(net.nodes):
            if rest >> node & 1 and up:
                to = hop.get(node)
                if to is None or net.rng.random() < net.strays:
                    to = up[int(net.rng.random() * len(up))]
                also = up[int(net.rng.random() * len(up))] if net.rng.random() < net.strays else to
                for one in dict.fromkeys((to, also)):
                    if sender is None or one != int(sender):
                        parts[one] = parts.get(one, 0) | 1 << node
        here = 1 << me if region >> me & 1 else None
        # Where batches are split, a node that only relays one does not take it.
        takes = here is not None or not self.splits
        aims = [(Peer(to), part) for to, part in parts.items()]
        return Aim(aims, here, known | without or None, takes)

    def joins(self, batch: Batch, region: int, peer: Peer) -> int | None:
        return None

    def leaves_out(self, batch: Batch, peer: Peer, now: Micros) -> int:
        self.net.cut_off[self.me][int(peer)] = None
        self.net.left_out.append((int(peer), (batch.publisher, batch.incarnation, batch.first)))
        return 1 << int(peer)

    def carry(self, batch: Batch, region: int) -> Carried:
        return Carried(batch, region)

    def report(self, id: Id, round: int, region: int, tile: int, counts: tuple[int, ...]) -> Told:
        return Told(id, round, region, tile, counts)

    def busy(self, id: Id, round: int, region: int) -> Patience:
        return Patience(id, round, region)


def key(message: Any) -> Any:
    if type(message) is Carried:
        batch = message.batch
        id = (batch.publisher, batch.incarnation, batch.first)
        return (*id, batch.round, message.region)
    return (*message.id, message.round, message.region)


class Wire:
    """One direction of a connection."""

    def __init__(self) -> None:
        self.queue: deque[tuple[int, Message]] = deque()
        self.last = 0
        self.is_full = False


class Net:
    def __init__(
        self,
        seed: int,
        *,
        nodes: int,
        strays: float = 0.0,
        calls: float = 0.0,
        slow: float = 0.0,
        mute: int | None = None,
        room: int = 4,
        kind: type[Engine] = Engine,
        splits: bool = False,
    ) -> None:
        self.rng = rng = Random(seed)
        self.nodes, self.strays, self.room = nodes, strays, room
        self.calls, self.slow, self.mute, self.splits = calls, slow, mute, splits
        # For each node those that it has cut off, and who was told of which batches.
        self.cut_off: list[dict[int, None]] = [{} for _ in range(nodes)]
        self.left_out: list[tuple[int, Id]] = []
        self.dialled = self.failures = self.lookups = 0
        self.everybody = (1 << nodes) - 1
        # Nodes whose owners want nothing, which everybody knows.
        self.silent = sum(1 << node for node in range(nodes) if rng.random() < 0.3)
        self.kind = kind
        self.now = 0
        self.events: list[tuple[int, int, Any]] = []
        self._serial = 0
        self.edges: set[tuple[int, int]] = {(node, node + 1) for node in range(nodes - 1)}
        while len(self.edges) < min(2 * nodes, nodes * (nodes - 1) // 2):
            a, b = sorted(rng.sample(range(nodes), 2))
            self.edges.add((a, b))
        # What each end believes of its links; a wire for each direction while the connection lives.
        self.wires: dict[tuple[int, int], Wire] = {}
        self.generation: dict[tuple[int, int], int] = {}
        self.alive = [True] * nodes
        self.life = [1] * nodes
        self.engines: list[Engine] = []
        self.outs: list[list[Effect]] = []
        self.handed: list[dict[Id, int]] = []
        self.repeats: list[tuple[int, Id]] = []
        self.receipts: dict[Id, tuple[int, ...]] = {}
        self.rejected: list[str] = []
        self.refusals = self.lost = 0
        self.armed = [0] * nodes
        for node in range(nodes):
            self._start(node, new=True)
        for a, b in sorted(self.edges):
            self.join(a, b)

    # -------------------------------------------------------------------- the world

    def at(self, when: int, what: Any) -> None:
        self._serial += 1
        heapq.heappush(self.events, (when, self._serial, what))

    def run(self, until: int) -> None:
        while self.events and self.events[0][0] <= until:
            self.now, _, what = heapq.heappop(self.events)
            what()
        self.now = max(self.now, until)

    def wants(self, node: int, sequence: int) -> int:
        """How many subscriptions of a node take an event: settled by its number."""
        return 0 if self.silent >> node & 1 else (sequence * (node + 3)) % 4

    def due(self, batch: Batch) -> tuple[int, ...]:
        return tuple(
            sum(self.wants(node, number) for node in range(self.nodes)) for number in batch.events
        )

    def first_hops(self, me: int, up: list[int]) -> dict[int, int]:
        found: dict[int, int] = {me: me}
        queue = deque([me])
        while queue:
            node = queue.popleft()
            near = up if node == me else [b for a, b in sorted(self.wires) if a == node]
            for other in near:
                if other not in found:
                    found[other] = other if node == me else found[node]
                    queue.append(other)
        return found

    # -------------------------------------------------------------------- the nodes

    def _start(self, node: int, *, new: bool = False) -> None:
        out: list[Effect] = []
        engine = self.kind(
            Peer(node), self._router(node), self._arrive(node),
            lambda life, first, counts: self._complete((node, life, first), counts),
            out, Pace(), key,
        )  # fmt: skip
        if new:
            self.engines.append(engine)
            self.outs.append(out)
            self.handed.append({})
        else:
            self.engines[node], self.outs[node], self.handed[node] = engine, out, {}

    def _router(self, node: int) -> Any:
        return BitRouter(self, node)

    def _arrive(self, node: int) -> Any:
        life = self.life[node]

        def arrive(
            batch: Batch, now: Micros, numbers: Any = None, done: Any = None
        ) -> tuple[int, ...] | None:
            id = (batch.publisher, batch.incarnation, batch.first)
            fresh = [number for number in batch.events if number not in (done or ())]
            # A batch that is split is counted event by event.
            for one in [(*id[:2], n) for n in fresh] if self.splits else [id]:
                if one in self.handed[node]:
                    self.repeats.append((node, one))
                self.handed[node][one] = now
            counts = tuple(self.wants(node, n) if n in fresh else 0 for n in batch.events)
            counts = counts if any(counts) else ()
            if self.rng.random() < 0.7:
                return counts

            def later() -> None:
                if self.alive[node] and self.life[node] == life:
                    self.engines[node].took(id, counts, Micros(self.now))
                    self.flush(node)

            self.at(self.now + int(self.rng.random() * 3_000 * MILLI), later)
            return None

        return arrive

    def _complete(self, id: Id, counts: tuple[int, ...]) -> None:
        assert id not in self.receipts, "a receipt is complete once"
        self.receipts[id] = counts

    def publish(self, node: int, batch: Batch) -> None:
        self.engines[node].publish(batch, Micros(self.now))
        self.flush(node)

    def flush(self, node: int) -> None:
        out = self.outs[node]
        while out:
            effects = out[:]
            out.clear()
            for effect in effects:
                if isinstance(effect, Send):
                    for to in effect.to:
                        self._send(node, int(to), effect.message)
                elif isinstance(effect, Note) and isinstance(effect.record, Rejected):
                    if effect.record.cut and self.mute is not None:
                        self._hang_up(node, int(effect.record.peer, 16))
                        continue
                    self.rejected.append(effect.record.reason)
        deadline = self.engines[node].deadline
        if deadline < 1 << 60 and (self.armed[node] <= self.now or deadline < self.armed[node]):
            self.armed[node] = deadline
            self.at(max(deadline, self.now + 1), lambda: self._wake(node))

    def _wake(self, node: int) -> None:
        if self.alive[node]:
            self.engines[node].wake(Micros(self.now))
            assert self.engines[node].deadline > self.now
            self.armed[node] = 0
            self.flush(node)

    # -------------------------------------------------------------------- the links

    def _send(self, node: int, to: int, message: Message) -> None:
        wire = self.wires.get((node, to))
        if wire is None:
            # This end has not noticed yet that the link is down.
            self.lost += 1
            return
        if message.is_event and sum(one.is_event for _, one in wire.queue) >= self.room:
            self.refusals += 1
            wire.is_full = True
            self.engines[node].refused(Peer(to), message)
            return
        at = max(wire.last, self.now + 1 + int(self.rng.random() * 40 * MILLI))
        wire.last = at
        wire.queue.append((at, message))
        self.at(at, lambda: self._land(node, to, wire))

    def _land(self, node: int, to: int, wire: Wire) -> None:
        if self.wires.get((node, to)) is not wire or not wire.queue:
            return
        _, message = wire.queue.popleft()
        engine, now = self.engines[to], Micros(self.now)
        if to == self.mute:
            return
        if type(message) is Carried:
            engine.carry(Peer(node), message.batch, message.region, now)
        elif type(message) is Told:
            engine.report(Peer(node), key(message), message.tile, message.counts, now)
        else:
            engine.busy(Peer(node), key(message), now)
        self.flush(to)
        if wire.is_full and sum(one.is_event for _, one in wire.queue) <= self.room // 2:
            wire.is_full = False
            self.engines[node].link(Peer(to), LinkState.READY, now)
            self.flush(node)

    def join(self, a: int, b: int) -> None:
        if not (self.alive[a] and self.alive[b]) or (a, b) in self.wires:
            return
        self.generation[a, b] = self.generation.get((a, b), 0) + 1
        self.wires[a, b], self.wires[b, a] = Wire(), Wire()
        for one, other in ((a, b), (b, a)):
            if Peer(other) in self.engines[one].outstanding.links:
                self._tell(one, other, LinkState.DOWN)
            self._tell(one, other, LinkState.UP)

    def _hang_up(self, node: int, to: int) -> None:
        """A node cuts off a peer, for good."""
        self.wires.pop((node, to), None)
        self.wires.pop((to, node), None)
        self._tell(node, to, LinkState.CUT)
        self._tell(to, node, LinkState.DOWN)

    def dial(self, node: int, to: int) -> None:
        """A node without a link to another one asks for it: there is one after a while, or none."""
        life = self.life[node]

        def answer() -> None:
            if not self.alive[node] or self.life[node] != life:
                return
            if self.alive[to] and self.rng.random() < 0.6:
                self.dialled += 1
                a, b = sorted((node, to))
                # It breaks like the others when one of its ends crashes.
                self.edges.add((a, b))
                self.join(a, b)
            elif Peer(to) not in self.engines[node].outstanding.links:
                self.failures += 1
                self.engines[node].failed(Peer(to), Micros(self.now))
                self.flush(node)

        self.at(self.now + int(self.rng.random() * 1_000 * MILLI), answer)

    def look_up(self, node: int) -> None:
        """A publisher knows the way after a while, and need not wait for its next turn."""
        life = self.life[node]

        def answer() -> None:
            if self.alive[node] and self.life[node] == life:
                self.lookups += 1
                self.engines[node].again(Micros(self.now))
                self.flush(node)

        self.at(self.now + int(self.rng.random() * 300 * MILLI), answer)

    def cut(self, a: int, b: int) -> None:
        """The connection breaks: a tail of each direction is lost, and each end notices at its own
        time.
        """
        generation = self.generation.get((a, b))
        for one, other in ((a, b), (b, a)):
            wire = self.wires.pop((one, other), None)
            if wire is None:
                return
            self.lost += len(wire.queue)
            delay = int(self.rng.random() * 300 * MILLI)

            def notice(one: int = one, other: int = other) -> None:
                if self.generation.get((a, b)) == generation and self.alive[one]:
                    self._tell(one, other, LinkState.DOWN)

            self.at(self.now + delay, notice)
        if b != a + 1 and self.rng.random() < 0.3:
            # For good; along the line of all nodes there is still a way.
            return
        again = self.now + 300 * MILLI + int(self.rng.random() * 2_000 * MILLI)
        self.at(again, lambda: self.join(a, b))

    def _tell(self, node: int, peer: int, state: LinkState) -> None:
        self.engines[node].link(Peer(peer), state, Micros(self.now))
        self.flush(node)

    def crash(self, node: int) -> None:
        """The node forgets everything, and comes back after a while."""
        self.alive[node] = False
        for a, b in sorted(self.edges):
            if node in (a, b):
                self.cut(a, b)
        self.at(self.now + 1_000 * MILLI, lambda: self._restart(node))

    def _restart(self, node: int) -> None:
        self.alive[node] = True
        self.life[node] += 1
        self._start(node)
        for a, b in sorted(self.edges):
            if node in (a, b):
                self.join(a, b)
