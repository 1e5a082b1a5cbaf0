"""Links between nodes: who may send, what the rules say, when it arrives, and who is told that a link broke.

A link is a connection, as TCP would give it: in order unless a rule says otherwise, and everything on the way belongs to one
``epoch`` of it. When a pair of nodes is cut off (a crash, a partition), both ends notice on their own, each after a delay of
its own, and are told DOWN; after the repair both are told UP, and a new epoch begins. In between, the two ends may disagree
for a while, as they do in life.

Links of a fixed graph are laid with ``add_link`` and stay; those that machines dial (switchboard.py) are one ``Pair`` for one
connection, made when both ends are told UP and dropped from the tables once neither end believes in it.

A link's event queue (what a clog holds, and what waits at a paused node) has a mark: beyond it the sender is told FULL and
further event messages are dropped, until half of it has drained and the sender is told READY.

A narrow link has two lanes, and what waits in the one for control messages goes first. While it is busy, the sender is told
MOVING, as a real driver says it of a slow socket.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random

from msgspec import Struct

from gossamer.machine import LinkState, Message, Peer
from gossamer.sim.clock import Clock
from gossamer.sim.latency import Latency
from gossamer.sim.rules import HOLD, PASS, Carry, Clog, Cut, Drop, Queue, Rule, Verdict

Key = tuple[int, int]
MOVING_EVERY = 5_000_000  # looks at what has left over a narrow link
MOVING_BYTES = 16 << 10  # so much must have left to be a sign of life
AGAIN = 100_000  # between attempts to say that an end is gone, while a partition is in the way
EventId = tuple[int, int, int]  # publisher, incarnation, sequence


class Packet(Struct):
    """One message on the way to some nodes: encoded once, decoded once, never changed."""

    message: Message
    size: int
    ids: tuple[EventId, ...] = ()
    is_event: bool = False
    events: tuple[int, ...] = ()  # places in the workload, where they are known


class Link:
    """One direction of a connection. Nodes are numbers here; peers are what the machines know."""

    __slots__ = (
        "back",
        "base",
        "busy",
        "epoch",
        "full",
        "held",
        "lanes",
        "last",
        "looked_at",
        "moved",
        "pair",
        "queued",
        "sender",
        "sender_peer",
        "to",
        "up",
    )

    def __init__(self, sender: int, to: int, sender_peer: Peer, base: int) -> None:
        self.sender, self.to, self.sender_peer, self.base = sender, to, sender_peer, base
        self.back: Link = self  # the other direction
        self.pair: Pair
        self.up = False  # what the sending end believes
        self.epoch = 0
        self.last = 0  # when the latest message arrives: nothing overtakes it unless a rule says so
        self.held: list[Packet] = []
        self.queued = 0  # event messages held, or waiting at a paused node
        self.full = False
        # Of a narrow link: control messages, and events.
        self.lanes: tuple[deque[Packet], deque[Packet]] = (deque(), deque())
        self.busy = False  # something is on its way into it
        self.looked_at = self.moved = 0  # bytes that have left since then


class Pair:
    """Both directions between two nodes, and why they cannot talk."""

    __slots__ = ("broken", "dialled", "ends", "generation", "reset")

    def __init__(self, one: Link, other: Link) -> None:
        self.ends = (one, other)
        self.broken = 1  # reasons; not joined yet is one
        self.reset = True  # the next join begins a new epoch even if neither end noticed the break
        self.generation = 0
        self.dialled = False  # one connection; it never joins again


class Network:
    def __init__(
        self,
        clock: Clock,
        rng: Random,
        latency: Latency,
        *,
        arrive: Callable[[Link, Packet, int], None],
        tell: Callable[[int, int, LinkState], None],
        detect: int,
        reconnect: int,
        queue_mark: int,
    ) -> None:
        self._delay, self._push = latency.delay, clock.push
        self.rules: list[Rule] = []
        self.links: list[dict[Peer, Link]] = []  # by node, then by the peer at the far end
        self.knocked: Callable[[Link], None] = lambda _link: (
            None
        )  # something came over a connection whose far end is gone
        self.counts: dict[
            str, int
        ] = {}  # what befell messages: rule names, and full, unlinked, closed, refused
        self.in_flight_events = 0
        self.clock = self._clock = clock
        self._rng, self._latency = rng, latency
        self._arrive, self._tell = arrive, tell
        self._detect, self._reconnect, self._queue_mark = detect, reconnect, queue_mark
        self._peers: list[Peer] = []
        self._pairs: dict[Key, Pair] = {}

    # ----------------------------------------------------------------- set-up

    def add_node(self, peer: Peer) -> int:
        self._peers.append(peer)
        self.links.append({})
        return len(self._peers) - 1

    def add_link(self, a: int, b: int) -> Pair:
        """A pair that may talk once ``mend`` has removed the reason not to."""
        assert a != b
        one, other = self._ends(a, b)
        self.links[a][self._peers[b]], self.links[b][self._peers[a]] = one, other
        self._pairs[min(a, b), max(a, b)] = one.pair
        return one.pair

    def _ends(self, a: int, b: int) -> tuple[Link, Link]:
        base = self._latency.base(a, b)
        one, other = Link(a, b, self._peers[a], base), Link(b, a, self._peers[b], base)
        one.back, other.back = other, one
        one.pair = other.pair = Pair(one, other)
        return one, other

    def peer(self, index: int) -> Peer:
        return self._peers[index]

    def pairs(self) -> list[Pair]:
        return list(self._pairs.values())

    # ------------------------------------------------------------------- send

    def send(self, sender: int, to: Peer, packet: Packet) -> None:
        link = self.links[sender].get(to)
        if link is None or not link.up:
            self.count("unlinked")
            return
        if link.full and packet.is_event:
            self.count("full")
            return
        if self.rules:
            for rule in self.rules:
                verdict = rule.judge(link, packet)
                if verdict is not PASS:
                    rule.fired += 1
                    self.count(rule.name)
                    self._carry_out(verdict, link, packet)
                    return
        # The way of nearly all messages: _carry and _fly, written out.
        at = self._clock.now + self._delay(link.base, self._rng)
        if at < link.last:
            at = link.last
        link.last = at
        if packet.is_event:
            self.in_flight_events += 1
        self._push(at, self._land, link, packet, link.epoch)

    def _carry_out(self, verdict: Verdict, link: Link, packet: Packet) -> None:
        if verdict is HOLD:
            link.held.append(packet)
            self.queue(link, packet)
        elif isinstance(verdict, Carry):
            delay = self._latency.delay(link.base, self._rng)
            for extra in verdict.delays:
                self._fly(self._clock.now + delay + extra, link, packet)
        elif isinstance(verdict, Queue):
            link.lanes[packet.is_event].append(packet)
            self.queue(link, packet)
            if not link.busy:
                link.looked_at, link.moved = self._clock.now, 0
                self._squeeze(link, verdict.rate)
        else:
            assert isinstance(verdict, Drop)

    def _squeeze(self, link: Link, rate: int) -> None:
        """The next message begins its way into a narrow link."""
        lane = link.lanes[0] or link.lanes[1]
        link.busy = bool(lane)
        if lane:
            packet = lane.popleft()
            at = self._clock.now + max(1, packet.size * 1_000_000 // rate)
            self._clock.push(at, self._squeezed, link, packet, (link.epoch, rate))

    def _squeezed(self, link: Link, packet: Packet, how: tuple[int, int]) -> None:
        epoch, rate = how
        if epoch != link.epoch or not link.up:
            self.count("closed")
            return
        self._carry(link, packet, self._latency.delay(link.base, self._rng))
        link.moved += packet.size
        self._squeeze(link, rate)
        self.unqueue(link, packet, epoch)
        if self._clock.now - link.looked_at >= MOVING_EVERY:
            is_moving = link.busy and link.moved >= MOVING_BYTES
            link.looked_at, link.moved = self._clock.now, 0
            if is_moving:
                self.count("told moving")
                self._tell(link.sender, link.to, LinkState.MOVING)

    def _carry(self, link: Link, packet: Packet, delay: int) -> None:
        at = self._clock.now + delay
        if at < link.last:
            at = link.last
        link.last = at
        self._fly(at, link, packet)

    def _fly(self, at: int, link: Link, packet: Packet) -> None:
        if packet.is_event:
            self.in_flight_events += 1
        self._clock.push(at, self._land, link, packet, link.epoch)

    def _land(self, link: Link, packet: Packet, epoch: int) -> None:
        if packet.is_event:
            self.in_flight_events -= 1
        if epoch != link.epoch or not link.back.up:
            self.count("closed")
            if link.pair.dialled and link.up:
                self.knocked(link)
            return
        self._arrive(link, packet, epoch)

    def count(self, what: str, by: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + by

    # ----------------------------------------------------------------- queues

    def queue(self, link: Link, packet: Packet) -> None:
        """The packet waits: held by a clog, or in front of a paused node."""
        if packet.is_event:
            link.queued += 1
            if link.queued > self._queue_mark and not link.full:
                link.full = True
                self.count("told full")
                self._tell(link.sender, link.to, LinkState.FULL)

    def unqueue(self, link: Link, packet: Packet, epoch: int) -> None:
        if packet.is_event and epoch == link.epoch and link.queued:
            link.queued -= 1
            if link.full and link.queued <= self._queue_mark // 2:
                link.full = False
                self._tell(link.sender, link.to, LinkState.READY)

    def release(self) -> None:
        """Send on what is held on links that no rule holds any longer: in order, in one burst."""
        for links in self.links:
            for link in links.values():
                if not link.held or any(
                    rule.judge(link, link.held[0]) is HOLD
                    for rule in self.rules
                    if rule.name == "clog"
                ):
                    continue
                held, link.held = link.held, []
                self.count("released", len(held))
                for packet in held:
                    self._carry(link, packet, self._latency.delay(link.base, self._rng))
                    self.unqueue(link, packet, link.epoch)

    def hurry(self) -> None:
        """The links are as wide as they were: what waits in them comes in one burst."""
        for links in self.links:
            for link in links.values():
                for lane in link.lanes:
                    while lane:
                        packet = lane.popleft()
                        self._carry(link, packet, self._latency.delay(link.base, self._rng))
                        self.unqueue(link, packet, link.epoch)

    # -------------------------------------------------------- breaks and joins

    def break_pair(self, pair: Pair, *, reset: bool = False) -> None:
        """One more reason why these two cannot talk. Ends that believe they can will notice after a while."""
        pair.broken += 1
        pair.reset = pair.reset or reset
        if pair.broken == 1:
            pair.generation += 1
        for end in pair.ends:
            if end.up and pair.broken == 1:
                self._clock.push(
                    self._later(self._detect), self._notice, pair, end, pair.generation
                )

    def mend_pair(self, pair: Pair, *, at_once: bool = False) -> None:
        """One reason less. With none left they join again after a while."""
        assert pair.broken > 0
        pair.broken -= 1
        if pair.broken == 0:
            pair.generation += 1
            if pair.dialled:
                for end in pair.ends:
                    if end.up and not end.back.up:  # the other has given up meanwhile
                        self._clock.push(
                            self._later(self._detect), self._notice, pair, end, pair.generation
                        )
            elif at_once:
                self._join(pair, pair.generation, None)
            else:
                self._clock.push(self._later(self._reconnect), self._join, pair, pair.generation)

    def hang_up(self, end: Link) -> None:
        """This end is gone or has closed: what it holds is lost with it."""
        end.up = end.full = False
        end.queued = 0
        if end.held:
            self.count("closed", len(end.held))
            end.held = []
        for lane in end.lanes:
            self.count("closed", len(lane))
            lane.clear()
        end.busy = False
        if end.pair.dialled:
            self._drop(end)

    def settled(self) -> bool:
        """Both ends of every pair that may talk know that they may."""
        return all(pair.broken or all(end.up for end in pair.ends) for pair in self._pairs.values())

    def _later(self, delay: int) -> int:
        return self._clock.now + 1 + int(delay * (0.5 + self._rng.random()))

    def _notice(self, pair: Pair, end: Link, generation: int) -> None:
        if generation == pair.generation and end.up:
            self._close(end)

    def _close(self, end: Link) -> None:
        self.hang_up(end)
        self.count("told down")
        self._tell(end.sender, end.to, LinkState.DOWN)

    def _join(self, pair: Pair, generation: int, _z: None) -> None:
        if generation != pair.generation or pair.broken:
            return
        one, other = pair.ends
        if one.up and other.up and not pair.reset:
            return  # mended before either end noticed: the connection has survived
        for end in pair.ends:
            if end.up:
                self._close(end)
        pair.reset = False
        for end in pair.ends:
            end.epoch += 1
            end.last = self._clock.now
            end.up = True
        for end in pair.ends:
            self.count("told up")
            self._tell(end.sender, end.to, LinkState.UP)

    # ---------------------------------------------------------- dialled links

    def connect(self, a: int, b: int) -> None:
        """A new connection between these two; what is left of an earlier one breaks now."""
        key = (min(a, b), max(a, b))
        old = self._pairs.get(key)
        for end in old.ends if old is not None else ():
            if end.up:
                self._close(end)
        one, other = self._ends(a, b)
        pair = one.pair
        pair.dialled, pair.broken, pair.reset = True, 0, False
        self._pairs[key] = pair
        self.links[a][self._peers[b]], self.links[b][self._peers[a]] = one, other
        for end in pair.ends:
            end.up, end.last = True, self._clock.now
        for end in pair.ends:
            if end.up:  # told of the first, a machine may have hung up already
                self.count("told up")
                self._tell(end.sender, end.to, LinkState.UP)

    def lose(self, end: Link, at: int) -> None:
        """This end is gone; the other hears of it then, once there is a way from here to there."""
        self._clock.push(at, self._lost, end)

    def passes(self, sender: int, to: int) -> bool:
        """Whether no partition and no clog is between the two, in this direction."""
        for rule in self.rules:
            if isinstance(rule, Cut):
                if rule.crosses(sender, to) and not (rule.one_way and sender not in rule.side):
                    return False
            elif isinstance(rule, Clog) and (sender in rule.nodes or to in rule.nodes):
                return False
        return True

    def later(self) -> int:
        """When something that broke now is noticed."""
        return self._later(self._detect)

    def one_way(self, a: int, b: int) -> int:
        return self._latency.delay(self._latency.base(a, b), self._rng)

    def _lost(self, end: Link, _y: None, _z: None) -> None:
        if end.back.up:
            if self.passes(end.sender, end.to):
                self._close(end.back)
            else:
                self._clock.push(self._clock.now + max(self._detect, AGAIN), self._lost, end)

    def _drop(self, end: Link) -> None:
        links = self.links[end.sender]
        far = end.back.sender_peer
        if links.get(far) is end:
            del links[far]
        if not end.back.up:
            key = (min(end.sender, end.to), max(end.sender, end.to))
            if self._pairs.get(key) is end.pair:
                del self._pairs[key]
