"""Links between nodes, exactly as the link contract of machine.py has them.

A link is a connection, as TCP gives it. While it is up, control messages arrive in order, event
messages arrive in order, and a control message may overtake event messages. Everything on the way
belongs to one ``epoch`` of the link. When a pair of nodes is cut off (a crash, a partition, a
break), both ends notice on their own, each after a delay of its own, and are told DOWN. Each end
has received a prefix of the messages of the other end, and the tail is lost. After the repair both
are told UP, and a new epoch begins. In between, the two ends may disagree for a while, as they do
in life.

A barrier (a partition, a clog) stalls the links that it stops: from a drawn moment on, no message
that is on the way arrives. The messages wait. When the barrier goes, all of them arrive in one
burst, in order, if the link has survived. A link that is stalled for ``SILENCE`` is half open, is
found by that, and breaks.

Links of a fixed graph are laid with ``add_link`` and stay. Links that machines dial
(switchboard.py) have one ``Pair`` for each connection. It is made when both ends are told UP, and
dropped from the tables once neither end believes in it.

A link's event queue has a mark. It holds the messages that a barrier holds, that wait in a narrow
link, and that wait at a paused node. Beyond the mark the sender is told FULL, and further event
messages go back to it (``refused``) until half of the queue has drained and the sender is told
READY.

A narrow link has two lanes, and messages in the lane for control messages go first. While the link
is busy, the sender is told MOVING, as a real driver says it of a slow socket.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random

from msgspec import Struct

from gossamer.machine import NEVER, LinkState, Message, Peer
from gossamer.sim.clock import Clock
from gossamer.sim.latency import Latency
from gossamer.sim.rules import BREAK, REFUSE, SILENCE, Barrier, Narrow, Rule

Key = tuple[int, int]
# The time between looks at the bytes that have left over a narrow link.
MOVING_EVERY = 5_000_000
# This number of bytes that have left is a sign of life.
MOVING_BYTES = 16 << 10
# The time between attempts to say that an end is gone, while a partition is in the way.
AGAIN = 100_000
# Publisher, incarnation and sequence.
EventId = tuple[int, int, int]


class Packet(Struct):
    """One message on the way to some nodes: encoded once, decoded once, never changed."""

    message: Message
    size: int
    ids: tuple[EventId, ...] = ()
    is_event: bool = False
    # Places in the workload, where they are known.
    events: tuple[int, ...] = ()


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
        "last_control",
        "last_event",
        "looked_at",
        "moved",
        "pair",
        "queued",
        "sender",
        "sender_peer",
        "stalled_at",
        "stalls",
        "to",
        "up",
    )

    def __init__(self, sender: int, to: int, sender_peer: Peer, base: int) -> None:
        self.sender, self.to, self.sender_peer, self.base = sender, to, sender_peer, base
        # The other direction.
        self.back: Link = self
        self.pair: Pair
        # The state that the sending end believes in.
        self.up = False
        self.epoch = 0
        # When the latest message of each kind arrives, which no later one of its kind overtakes.
        self.last_control = self.last_event = 0
        # A message that would arrive later than this is held.
        self.stalled_at: int = NEVER
        # The number of stalls, so that the end of one is not taken for the end of another.
        self.stalls = 0
        self.held: list[Packet] = []
        # The number of event messages that are held, or that wait at a paused node.
        self.queued = 0
        self.full = False
        # Of a narrow link: control messages, and events.
        self.lanes: tuple[deque[Packet], deque[Packet]] = (deque(), deque())
        # A message is on its way into the link.
        self.busy = False
        # The bytes that have left since the last look.
        self.looked_at = self.moved = 0

    @property
    def last(self) -> int:
        return max(self.last_control, self.last_event)


class Pair:
    """Both directions between two nodes, and the reasons why they cannot talk."""

    __slots__ = ("broken", "dialled", "ends", "generation", "reset")

    def __init__(self, one: Link, other: Link) -> None:
        self.ends = (one, other)
        # The number of reasons. Not joined yet is one.
        self.broken = 1
        # The next join begins a new epoch, even if neither end noticed the break.
        self.reset = True
        self.generation = 0
        # The pair is one connection, which never joins again.
        self.dialled = False


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
        self.barriers: list[Barrier] = []
        self.narrows: list[Narrow] = []
        # The answers to the sender of the message at hand: the link is FULL (None), or refuses.
        self.answers: list[tuple[Link, Packet | None]] = []
        # By node, and then by the peer at the far end.
        self.links: list[dict[Peer, Link]] = []
        # Called when a message came over a connection whose far end is gone.
        self.knocked: Callable[[Link], None] = lambda _link: None
        # The number of times that something befell a message, by the names of rules and barriers,
        # and by full, unlinked and closed.
        self.counts: dict[str, int] = {}
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
        is_event = packet.is_event
        if link.full and is_event:
            self.count("full")
            self.answers.append((link, packet))
            return
        now = self._clock.now
        at = now + self._delay(link.base, self._rng)
        for rule in self.rules:
            verdict = rule.judge(link, packet)
            if not verdict:
                continue
            rule.fired += 1
            self.count(rule.name)
            if verdict == REFUSE:
                link.full = True
                self.answers += (link, None), (link, packet)
                self._clock.push(self._later(self._reconnect), self._relieve, link, link.epoch)
                return
            if verdict == BREAK:
                self.sever(link.pair)
            else:
                at += verdict
        for narrow in self.narrows:
            if narrow.concerns(sender, link.to):
                narrow.fired += 1
                self.count(narrow.name)
                link.lanes[is_event].append(packet)
                self.queue(link, packet)
                if not link.busy:
                    link.looked_at, link.moved = now, 0
                    self._squeeze(link, narrow.rate)
                return
        self._fly(link, packet, at)

    def _fly(self, link: Link, packet: Packet, at: int) -> None:
        """No message overtakes a control message, and an event message overtakes nothing."""
        if at < link.last_control:
            at = link.last_control
        if packet.is_event:
            if at < link.last_event:
                at = link.last_event
            link.last_event = at
            self.in_flight_events += 1
        else:
            link.last_control = at
        self._push(at, self._land, link, packet, link.epoch)

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
        self._fly(link, packet, self._clock.now + self._latency.delay(link.base, self._rng))
        link.moved += packet.size
        self._squeeze(link, rate)
        self.unqueue(link, packet, epoch)
        if self._clock.now - link.looked_at >= MOVING_EVERY:
            is_moving = link.busy and link.moved >= MOVING_BYTES
            link.looked_at, link.moved = self._clock.now, 0
            if is_moving:
                self.count("told moving")
                self._tell(link.sender, link.to, LinkState.MOVING)

    def _land(self, link: Link, packet: Packet, epoch: int) -> None:
        if self._clock.now > link.stalled_at and epoch == link.epoch:
            self._hold(link, packet)
            return
        if packet.is_event:
            self.in_flight_events -= 1
        self._come_in(link, packet, epoch)

    def _come_in(self, link: Link, packet: Packet, epoch: int) -> None:
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
        if packet.is_event and link.up:
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

    def _relieve(self, link: Link, epoch: int, _z: None) -> None:
        """The queue that was full by the word of a rule has drained."""
        if link.full and link.epoch == epoch and link.queued <= self._queue_mark // 2:
            link.full = False
            self._tell(link.sender, link.to, LinkState.READY)

    # --------------------------------------------------------------- barriers

    def raise_barrier(self, barrier: Barrier) -> None:
        self.barriers.append(barrier)
        for links in self.links:
            for link in links.values():
                if barrier.stops(link.sender, link.to):
                    self._stall(link)

    def lower_barrier(self, barrier: Barrier) -> None:
        self.barriers.remove(barrier)
        for links in self.links:
            for link in list(links.values()):
                if barrier.stops(link.sender, link.to) and self.passes(link.sender, link.to):
                    at = self._clock.now + self._latency.delay(link.base, self._rng)
                    self._clock.push(at, self._drain, link, link.stalls)

    def passes(self, sender: int, to: int) -> bool:
        """Whether no barrier is between the two, in this direction."""
        return not any(barrier.stops(sender, to) for barrier in self.barriers)

    def _stall(self, link: Link) -> None:
        """From some moment on no message that is on the way arrives. All of them wait."""
        if link.stalled_at != NEVER:
            return
        link.stalls += 1
        now = self._clock.now
        ahead = max(0, link.last - now)
        link.stalled_at = now + int(ahead * self._rng.random()) if ahead else now - 1
        self._clock.push(now + SILENCE, self._silent, link, link.stalls)

    def _hold(self, link: Link, packet: Packet) -> None:
        link.held.append(packet)
        for barrier in self.barriers:
            if barrier.stops(link.sender, link.to):
                barrier.fired += 1
                self.count(barrier.name)
                break
        if packet.is_event:
            self.in_flight_events -= 1
            self.queue(link, packet)

    def _drain(self, link: Link, stalls: int, _z: None) -> None:
        """No barrier is in the way any longer. The held messages arrive, in order, in one burst."""
        if stalls != link.stalls or link.pair.broken or not self.passes(link.sender, link.to):
            return
        link.stalls += 1
        link.stalled_at = NEVER
        held, link.held = link.held, []
        self.count("released", len(held))
        epoch = link.epoch
        for packet in held:
            self._come_in(link, packet, epoch)
            self.unqueue(link, packet, epoch)

    def _silent(self, link: Link, stalls: int, _z: None) -> None:
        """Nothing has got through for this time, so the receiving end gives the link up."""
        if stalls == link.stalls and link.back.up and not link.pair.broken:
            self.count("silent")
            self.sever(link.pair)

    def widen(self, narrow: Narrow) -> None:
        """The links are as wide as they were. The messages that wait in them come in one burst."""
        self.narrows.remove(narrow)
        for links in self.links:
            for link in links.values():
                for lane in link.lanes:
                    while lane:
                        packet = lane.popleft()
                        at = self._clock.now + self._latency.delay(link.base, self._rng)
                        self._fly(link, packet, at)
                        self.unqueue(link, packet, link.epoch)

    # -------------------------------------------------------- breaks and joins

    def break_pair(self, pair: Pair, *, reset: bool = False) -> None:
        """One more reason why these two cannot talk.

        Ends that believe they can will notice after a while.
        """
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
                    # The other end has given up meanwhile.
                    if end.up and not end.back.up:
                        self._clock.push(
                            self._later(self._detect), self._notice, pair, end, pair.generation
                        )
            elif at_once:
                self._join(pair, pair.generation, None)
            else:
                self._clock.push(self._later(self._reconnect), self._join, pair, pair.generation)

    def sever(self, pair: Pair) -> None:
        """The connection breaks in mid-stream. Each end has a prefix of the messages to it."""
        self.count("severed")
        for link in pair.ends:
            self._stall(link)
        self.break_pair(pair, reset=True)
        if not pair.dialled:
            self._clock.push(self._later(self._reconnect), self._mend, pair)

    def _mend(self, pair: Pair, _y: None, _z: None) -> None:
        self.mend_pair(pair)

    def hang_up(self, end: Link) -> None:
        """This end is gone or has closed. Its messages go on, and may still arrive."""
        end.up = end.full = False
        end.queued = 0
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
            # Mended before either end noticed: the connection has survived. A barrier may have gone
            # while it was broken, and what that held has not come in yet.
            for end in pair.ends:
                if end.stalled_at != NEVER and self.passes(end.sender, end.to):
                    at = self._clock.now + self._latency.delay(end.base, self._rng)
                    self._clock.push(at, self._drain, end, end.stalls)
            return
        for end in pair.ends:
            if end.up:
                self._close(end)
        pair.reset = False
        for end in pair.ends:
            self._open(end)
        for end in pair.ends:
            self.count("told up")
            self._tell(end.sender, end.to, LinkState.UP)

    def _open(self, end: Link) -> None:
        """A new epoch: no message of an earlier one arrives any longer."""
        end.epoch += 1
        end.last_control = end.last_event = self._clock.now
        end.stalls += 1
        end.stalled_at = NEVER
        end.held = []
        end.busy = False
        end.up = True
        if not self.passes(end.sender, end.to):
            self._stall(end)

    # ---------------------------------------------------------- dialled links

    def connect(self, a: int, b: int) -> None:
        """A new connection between these two. The remains of an earlier one break now."""
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
            self._open(end)
        for end in pair.ends:
            # The machine was told of the first end, and may have hung up already.
            if end.up:
                self.count("told up")
                self._tell(end.sender, end.to, LinkState.UP)

    def lose(self, end: Link, at: int) -> None:
        """This end is gone. The other end hears of it once there is a way from here to there."""
        self._clock.push(at, self._lost, end)

    def later(self) -> int:
        """The time at which something that broke now is noticed."""
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
