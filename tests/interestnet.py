"""A small fabric of interest machines in memory: virtual clock, links of a millisecond, faults drawn from one seed.

It is for small exact tests: every message passes the real codec, every call is followed by the rules that drivers assert, and a
test may look at all machines between any two events. A node is named by its number; two nodes may be given the same identity.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import count
from random import Random
from typing import Any

from gossamer.machine import (
    MILLISECOND,
    SECOND,
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
)
from gossamer.node.wire import Unframer, encode
from gossamer.overlay.interest.config import InterestConfig
from gossamer.overlay.interest.core import Interest
from gossamer.overlay.interest.messages import Greet
from gossamer.overlay.interest.record import Record, ViewChange

LATENCY = MILLISECOND
RESET_SEEN = 100 * MILLISECOND  # until the others see that a process is gone


def through_codec(message: Message) -> tuple[Message, int]:
    """As the other end decodes it, and its size as a frame."""
    frame = encode(message)
    [decoded] = Unframer().feed(frame)
    assert decoded == message
    return decoded, len(frame)


class Line:
    """One connection between two places; a later one between the same two is another."""

    def __init__(self, a: Place, b: Place) -> None:
        self.ends = (a, b)

    def other(self, place: Place) -> Place:
        return self.ends[place is self.ends[0]]


class Place:
    """Where a process runs, or may run again: its identity, its address and its disk."""

    def __init__(self, number: int, peer: Peer) -> None:
        self.number, self.peer, self.address = number, peer, f"node-{number}"
        self.machine: Interest | None = None
        self.links: dict[Peer, Line] = {}
        self.disk: dict[str, bytes] = {}
        self.armed: int | None = None
        self.paused = False
        self.inbox: list[Callable[[], None]] = []  # what arrives in a pause
        self.changes: list[ViewChange] = []
        self.notes: list[Any] = []
        self.dials: list[tuple[int, str]] = []


class Net:
    def __init__(
        self,
        nodes: int = 0,
        *,
        seed: int = 1,
        loss: float = 0.0,
        twice: float = 0.0,
        jitter: int = 0,
        latency: int = LATENCY,
        start: bool = True,
        make: Callable[..., Interest] = Interest,
        options: dict[str, Any] | None = None,
        **config: Any,
    ) -> None:
        self.now = 0
        self.rng = Random(seed)
        self.loss, self.twice, self.jitter, self.latency = loss, twice, jitter, latency
        self.make, self.options = make, options or {}
        self.config = InterestConfig(**{"join": ("node-0", "node-1", "node-2"), **config})
        self.places: list[Place] = []
        self.severed: Callable[[Place, Place], bool] = lambda a, b: False  # a partition
        self.after: Callable[[Place], None] = lambda place: (
            None
        )  # called when a machine has been called
        self.bytes: Counter[str] = Counter()
        self.count: Counter[str] = Counter()
        self.sent: list[tuple[int, Place, Peer, Message, int]] | None = (
            None  # a list: record everything
        )
        self._queue: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = count()
        for _ in range(nodes):
            self.add()
        if start:
            for number in range(nodes):
                self.start(number)

    # ------------------------------------------------------------------- nodes

    def add(self, peer: int | None = None) -> int:
        """A place for one more node; the same identity may be given twice."""
        self.places.append(
            Place(len(self.places), Peer(self.rng.getrandbits(64) if peer is None else peer))
        )
        return len(self.places) - 1

    def start(
        self, number: int, *, incarnation: int = 1, disk: bool = False, **options: Any
    ) -> Interest:
        place = self.places[number]
        assert place.machine is None, "it runs already"
        config = options.pop("config", self.config)
        place.machine = self.make(
            place.peer,
            incarnation=incarnation,
            address=place.address,
            rng=Random(f"{self.rng.random()} {number}"),
            config=config,
            durable=disk,
            restored=dict(place.disk) if disk else None,
            **{**self.options, **options},
        )
        place.paused, place.inbox = False, []
        self._arm(place)
        return place.machine

    def crash(self, number: int, *, silent: bool = False) -> None:
        """The process ends. Its host resets its connections, unless the host is gone too (silent)."""
        place = self.places[number]
        place.machine = place.armed = None
        lines, place.links = list(place.links.values()), {}
        for line in lines:
            if not silent:
                self._at(self.now + RESET_SEEN, self._close, line)

    def pause(self, number: int) -> None:
        self.places[number].paused = True

    def resume(self, number: int) -> None:
        place = self.places[number]
        place.paused = False
        inbox, place.inbox = place.inbox, []
        if place.machine is not None and place.machine.deadline <= self.now:
            self._do(place, place.machine.wake(Micros(self.now)))
        for arrive in inbox:
            arrive()
        self._arm(place)

    def partition(self, *halves: Iterable[int]) -> None:
        """Nothing passes between the groups, and their links break in a moment; no groups: all is well again."""
        group = {number: index for index, half in enumerate(halves) for number in half}
        self.severed = lambda a, b: group.get(a.number) != group.get(b.number)
        for place in self.places:
            for line in place.links.values():
                if self.severed(*line.ends):
                    self._at(self.now + RESET_SEEN, self._close, line)

    def __getitem__(self, number: int) -> Interest:
        machine = self.places[number].machine
        assert machine is not None, f"node {number} does not run"
        return machine

    @property
    def machines(self) -> list[Interest]:
        return [place.machine for place in self.places if place.machine is not None]

    def peer(self, number: int) -> Peer:
        return self.places[number].peer

    # ---------------------------------------------------------------- commands

    def command(self, number: int, name: str, *arguments: Any, **options: Any) -> Any:
        """A user's command, at this moment."""
        result = getattr(self[number], name)(*arguments, now=Micros(self.now), **options)
        self._arm(self.places[number])
        return result

    def subscribe(self, number: int, *topics: str, **options: Any) -> None:
        for topic in topics:
            self.command(number, "subscribe", topic, **options)

    def unsubscribe(self, number: int, *topics: str, **options: Any) -> None:
        for topic in topics:
            self.command(number, "unsubscribe", topic, **options)

    def inject(self, sender: int, to: int, message: Message) -> list[Effect]:
        """A message in a node's name that the node itself did not send; returns what it led to."""
        place, (decoded, _) = self.places[to], through_codec(message)
        effects = self[to].receive(self.peer(sender), decoded, Micros(self.now))
        self._do(place, effects)
        return effects

    # -------------------------------------------------------------------- time

    def run(self, seconds: float) -> None:
        until = self.now + round(seconds * SECOND)
        while self._queue and self._queue[0][0] <= until:
            self._step()
        self.now = until

    def until(self, condition: Callable[[], object], seconds: float = 30.0) -> float:
        """Runs until the condition holds; returns the seconds it took."""
        start = self.now
        while not condition():
            is_late = not self._queue or self._queue[0][0] - start > seconds * SECOND
            assert not is_late, f"not within {seconds} s"
            self._step()
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

    # ------------------------------------------------------------------ inside

    def _at(self, at: int, what: Callable[..., None], *arguments: Any) -> None:
        heapq.heappush(self._queue, (at, next(self._order), what, arguments))

    def _step(self) -> None:
        self.now, _, what, arguments = heapq.heappop(self._queue)
        what(*arguments)

    def _arm(self, place: Place) -> None:
        machine = place.machine
        if machine is not None and not place.paused:
            at = max(machine.deadline, self.now)
            if place.armed is None or at < place.armed:
                place.armed = at
                self._at(at, self._timer, place, at, machine)

    def _timer(self, place: Place, at: int, machine: Interest) -> None:
        if place.armed != at or place.machine is not machine:
            return
        place.armed = None
        if not place.paused:
            if machine.deadline <= self.now:
                effects = machine.wake(Micros(self.now))
                assert machine.deadline > self.now, "a driver would spin"
                self._do(place, effects)
            self._arm(place)

    def _do(self, place: Place, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self._send(place, effect)
            elif isinstance(effect, Deliver):
                place.changes.extend(effect.events)
            elif isinstance(effect, Note):
                place.notes.append(effect.record)
            elif isinstance(effect, Store):
                place.disk.update({record.key: record.value for record in effect.records})  # type: ignore[union-attr]
            elif isinstance(effect, Dial):
                place.dials.append((self.now, effect.address))
                other = next(
                    (other for other in self.places if other.address == effect.address), None
                )
                if other is not None:
                    self._at(
                        self.now + 2 * LATENCY,
                        self._connect,
                        place,
                        other,
                        place.machine,
                        other.machine,
                    )
            elif isinstance(effect, Hangup):
                line = place.links.get(effect.peer)
                if line is not None:
                    self._at(self.now + 2 * LATENCY, self._close, line)
        self._arm(place)
        self.after(place)

    def _send(self, place: Place, send: Send) -> None:
        message, size = through_codec(send.message)
        name = type(message).__name__
        for to in send.to:
            self.bytes[name] += size
            self.count[name] += 1
            if self.sent is not None:
                self.sent.append((self.now, place, to, message, size))
            line = place.links.get(to)
            for _ in range(1 + (self.rng.random() < self.twice) if self.twice else 1):
                if line is not None and not (self.loss and self.rng.random() < self.loss):
                    delay = self.latency + (
                        int(self.rng.random() * self.jitter) if self.jitter else 0
                    )
                    self._at(self.now + delay, self._arrive, line, place, message)

    def _arrive(self, line: Line, sender: Place, message: Message) -> None:
        to = line.other(sender)
        if to.machine is None or self.severed(sender, to):
            return
        if (
            to.links.get(sender.peer) is not line
        ):  # the process that had it is gone: its host says so
            self._close(line)
            return
        if to.paused:
            to.inbox.append(lambda: self._arrive(line, sender, message))
            return
        self._do(to, to.machine.receive(sender.peer, message, Micros(self.now)))

    def _connect(self, a: Place, b: Place, one: Interest | None, two: Interest | None) -> None:
        """One link a peer: a newer process of the same name replaces the older one's link."""
        if one is None or two is None or a.machine is not one or b.machine is not two:
            return
        old = a.links.get(b.peer)
        if (
            a.peer == b.peer
            or (old is not None and old.other(a) is b)
            or a.paused
            or b.paused
            or self.severed(a, b)
        ):
            return
        for line in (old, b.links.get(a.peer)):
            if line is not None:
                self._close(line)
        line = Line(a, b)
        a.links[b.peer] = b.links[a.peer] = line
        for here, there in ((a, b), (b, a)):
            if here.machine is not None:
                self._do(here, here.machine.link(there.peer, LinkState.UP, Micros(self.now)))

    def _close(self, line: Line) -> None:
        for place in line.ends:
            peer = line.other(place).peer
            if place.links.get(peer) is line:
                del place.links[peer]
                if place.machine is not None:
                    self._do(place, place.machine.link(peer, LinkState.DOWN, Micros(self.now)))


def single(me: int = 1, **options: Any) -> Interest:
    """One machine, driven by the test itself."""
    config = options.pop("config", {})
    return Interest(
        Peer(me), incarnation=1, address=f"node-{me}", rng=Random(me), config=InterestConfig(**config), **options
    )  # fmt: skip


def befriend(machine: Interest, peer: int, now: int = 0, want: bool = True) -> Record:
    """A link to a peer that exists only in the test: it greets, and its record is in the view. Returns that record."""
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
