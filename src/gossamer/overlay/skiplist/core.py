"""SkipList: one topic's list at one node, sans-IO. The machine that ties the parts together.

``Deliver(0, (what,))`` hands its owner ``Placed`` and ``Joined`` (an entry's join), ``Receipt`` (a publication is complete) and
``Found`` (the answer to a look-up). Events themselves go to ``match``, which says how many subscriptions took them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from gossamer.machine import NEVER, Effect, LinkState, Message, Micros, Peer, Token
from gossamer.overlay.refused import Refused
from gossamer.overlay.skiplist.config import SkipConfig
from gossamer.overlay.skiplist.entry import Entry
from gossamer.overlay.skiplist.events import Ask, BranchKey, Events, Match
from gossamer.overlay.skiplist.host import Host, Members
from gossamer.overlay.skiplist.leases import Leases
from gossamer.overlay.skiplist.level0 import Level0
from gossamer.overlay.skiplist.lines import Lines
from gossamer.overlay.skiplist.marks import Marks
from gossamer.overlay.skiplist.messages import (
    DELIVER,
    FIND,
    Absent,
    Ack,
    Beat,
    Carry,
    Gossip,
    Join,
    Leave,
    Report,
    Revoke,
    Revoked,
    Welcome,
)
from gossamer.overlay.skiplist.position import KEY_MAX, Interval, keys_to_interval
from gossamer.overlay.skiplist.receipts import Publication

QUESTIONS = 1 << 52  # where the numbers of look-ups begin: events have those below
ROUNDS = 1 << 20  # of one publication; those of the next one with the same id come after them
LIVES = 24  # bits below the incarnation: entries in one life
LOOPS_MAX = 10_000  # messages between a node's own entries in one turn

Published = tuple[int, Sequence[tuple[bytes, bytes]], bytes]
"""An event: its number, the intervals of keys in which it looks, which are disjoint, and its payload."""


def _owned(intervals: Sequence[tuple[bytes, bytes]]) -> list[Interval]:
    """What walks are to own; nothing is between keys that differ only where no entry's key reaches."""
    return [
        (low, high) for low, high in (keys_to_interval(*keys) for keys in intervals) if low < high
    ]


class SkipListError(Exception):
    """A call that the list cannot carry out; says why."""


class SkipList:
    def __init__(
        self,
        me: Peer,
        *,
        incarnation: int,
        rng: Random,
        config: SkipConfig,
        match: Match,
        ask: Ask = lambda key, payload: (),
        address: Callable[[Peer], str | None],
        contacts: Callable[[], Sequence[Peer]],
        epoch: Callable[[], int] = lambda: 0,
        members: Members | None = None,
        topic: int = 0,
        hangs_up: bool = False,
    ) -> None:
        """``match``: how many subscriptions of this node take each event; asked once for each that comes to any of its entries.
        ``ask``: what a look-up that has come to an entry is to be told.
        ``contacts``: members of the list that a newcomer may ask; in a node, those whose interest record says so.
        ``epoch``: another number whenever a member is new among at most FEW (leases.py).
        ``members``: who lives, if the owner knows it better than silence does (host.py); then ``dead`` says who does not.
        """
        self.me, self.config, self.incarnation = me, config, incarnation
        self._lines = Lines(me, address, hangs_up=hangs_up)
        self._refused = Refused()
        self._host = Host(me, topic, config, rng, self._lines, contacts, epoch, members)
        self._host.births = incarnation << LIVES
        self._leases = Leases(self._host)
        self._marks = Marks(self._host)
        self._level0 = Level0(self._host, self._leases, self._marks)
        self._events = Events(self._host, self._leases, self._marks, match, ask)
        self._sequence = self._questions = 0
        self.has_left = False
        self._handlers: dict[type[Message], Callable[[Peer, Any, Micros], None]] = {
            Gossip: self._level0.receive_gossip, Beat: self._level0.receive_beat, Ack: self._ack,
            Join: self._level0.receive_join, Welcome: self._level0.receive_welcome, Leave: self._level0.receive_leave,
            Absent: self._level0.receive_absent, Carry: self._events.receive_carry, Report: self._events.receive_report,
            Revoke: self._revoke, Revoked: self._revoked,
        }  # fmt: skip

    # ---------------------------------------------------------------- what is known

    @property
    def entries(self) -> dict[bytes, Entry]:
        return self._host.entries

    @property
    def counters(self) -> dict[str, int]:
        return self._host.counters

    @property
    def next_sequence(self) -> int:
        """Of whoever does not count events by itself."""
        return self._sequence + 1

    @property
    def leases(self) -> Leases:
        return self._leases

    @property
    def noise(self) -> int:
        return self._events.noise

    @property
    def holds_back(self) -> bool:
        """Whether unmatched events are held back where a gap is leased (the seed's proxy filters)."""
        return self._events.holds_back

    @holds_back.setter
    def holds_back(self, yes: bool) -> None:
        self._events.holds_back = yes

    @property
    def pending(self) -> int:
        """Publications without receipt."""
        return len(self._events.publications)

    @property
    def is_busy(self) -> bool:
        """Events, of its own or others', are on their way through this node."""
        return self._events.is_busy

    def under_way(self) -> list[BranchKey]:
        """Walks that this node still has to report."""
        return self._events.under_way()

    @property
    def remembered(self) -> int:
        """Events that are known to have been here."""
        return len(self._events.seen)

    @property
    def wanted(self) -> list[Peer]:
        """Whom this node's entries are linked with: connections that should stay."""
        peers = dict.fromkeys(
            link.at[1] for entry in self.entries.values() for _, _, link in entry.links()
        )
        return [Peer(peer) for peer in peers if peer != self.me]

    # -------------------------------------------------------------------- commands

    def enter(self, key: bytes, now: Micros, until: bytes | None = None) -> None:
        """Place an entry. ``until``: with the seed's ranges, it wants every event from ``key`` to that, both included."""
        if key in self.entries:
            raise SkipListError(
                "this key is entered already: a node's identical filters share one entry"
            )
        if len(self.entries) >= self.config.entries_max:
            raise SkipListError(
                f"a node places at most {self.config.entries_max} entries in a topic; merge some (places.py)"
            )
        if len(key) > KEY_MAX:
            raise SkipListError(f"a key of {len(key)} bytes; at most {KEY_MAX}")
        entry = Entry((key, int(self.me)), self.config, self._host.rng)
        entry.follows = bool(self.entries)
        self._host.births += 1
        entry.born = self._host.births
        self.entries[key] = entry
        if until is not None:
            self._marks.own(entry, until, now)
        self._level0.join(entry, now)
        self._host.sooner(now)

    def extend(self, key: bytes, until: bytes | None, now: Micros) -> None:
        """With the seed's ranges: from now on the entry wants everything up to there."""
        entry = self.entries[key]
        if until == (entry.range.high if entry.range is not None else None):
            return
        if until is not None:
            self._marks.own(entry, until, now)
        else:
            self._marks.disown(entry, now)
        self._level0.probe(entry, now)
        self._host.sooner(now)

    def withdraw(self, key: bytes, now: Micros) -> None:
        """Take an entry out, politely."""
        entry = self.entries.pop(key, None)
        if entry is None:
            raise SkipListError("no such entry here")
        if entry.is_placed:
            if entry.range is not None:
                self._marks.disown(entry, now)
                self._level0.probe(entry, now)
            self._level0.leave(entry, now)
        self._host.sooner(now)

    def leave(self, now: Micros) -> None:
        """Take all entries out, for good."""
        self.has_left = True
        for key in list(self.entries):
            self.withdraw(key, now)

    def publish(
        self, intervals: Sequence[tuple[bytes, bytes]], payload: bytes, now: Micros, *,
        id: tuple[int, int, int] | None = None, floor: int | None = None,
    ) -> int:  # fmt: skip
        """Carry an event to everything in these intervals of keys, which are disjoint; returns its sequence number.

        ``id``: incarnation, sequence and how often it has been published before, if the owner counts; not to be mixed.
        """
        incarnation, sequence, again = (
            id if id is not None else (self.incarnation, self.next_sequence, 0)
        )
        self.publish_all(
            [(sequence, intervals, payload)], now, incarnation=incarnation, again=again, floor=floor
        )
        return sequence

    def publish_all(
        self, events: Sequence[Published], now: Micros, *,
        incarnation: int | None = None, again: int = 0, floor: int | None = None,
    ) -> None:  # fmt: skip
        """The same of several: those that look in the same intervals walk there together."""
        self._sequence = max(self._sequence, events[-1][0])
        if floor is None:
            pending = (one for _, one in self._events.publications if one < QUESTIONS)
            floor = min(pending, default=events[0][0])
        life = self.incarnation if incarnation is None else incarnation
        self._events.publish(
            [
                Publication(
                    sequence, life, floor, _owned(intervals), payload, DELIVER, again * ROUNDS
                )
                for sequence, intervals, payload in events
            ],
            now,
        )
        self._host.sooner(now)

    def took(self, key: tuple[int, int, int], matched: Sequence[int], now: Micros) -> list[Effect]:
        """So many took each event of the arrival with this key, for which ``match`` had said None; (): nobody took any."""
        self._events.took(key, matched, now)
        return self._flush(now)

    def lookup(
        self, intervals: Sequence[tuple[bytes, bytes]], now: Micros, payload: bytes = b""
    ) -> int:
        """Which entries are there, and with a payload: which subscriptions at them want this event?

        Nothing is handed over. Returns the number that ``Found`` will carry.
        """
        self._questions += 1
        number = QUESTIONS + self._questions
        self._events.publish(
            [Publication(number, self.incarnation, 0, _owned(intervals), payload, FIND)], now
        )
        self._host.sooner(now)
        return number

    def doubt(self, now: Micros) -> None:
        """There may be another circle, of a part of the fabric that was cut off: look at whether the places are right, soon."""
        soon = Micros(now + self.config.period // 2)
        for entry in self.entries.values():
            if entry.is_placed and self.config.check:
                entry.checks, entry.check_at = 0, min(entry.check_at, soon)
        self._host.sooner(soon)

    def forget(self, number: int) -> None:
        """Nobody waits for the answer to this look-up any longer."""
        self._events.publications.pop((self.incarnation, number), None)

    def dead(self, peer: Peer, now: Micros) -> None:
        """A verdict: this peer is no more, or has begun anew and has none of its old entries, whatever its link says."""
        self._level0.peer_down(peer, now)
        self._events.peer_down(peer, now)
        self._host.sooner(now)

    # ---------------------------------------------------------------------- inputs

    @property
    def deadline(self) -> Micros:
        return self._host.deadline

    def receive(self, sender: Peer, message: Message, now: Micros) -> list[Effect]:
        handler = self._handlers.get(type(message))
        if handler is not None:
            handler(sender, message, now)
        if self._lines.loop:
            return self._flush(now)
        host = (
            self._host
        )  # as _flush does, without the call: this is the way of nearly all messages
        out, host.out = host.out, []
        return out

    def wake(self, now: Micros) -> list[Effect]:
        self._host.deadline = NEVER
        entries = self._host.entries
        for entry in [entry for entry in entries.values() if entry.next_at <= now]:
            self._tend(entry, now)
        if self._lines.deadline <= now:
            effects, lost = self._lines.wake(now)
            self._host.out += effects
            for peer in lost:
                self._down(peer, now)
        self._events.wake(now)
        found = self._flush(now)
        deadline = min(self._lines.deadline, self._events.deadline)
        for entry in entries.values():
            if entry.next_at < deadline:
                deadline = entry.next_at
        self._host.deadline = deadline if deadline > now else Micros(now + 1)
        return found

    def link(self, peer: Peer, state: LinkState, now: Micros) -> list[Effect]:
        self._host.out += self._refused.link(peer, state)
        if state is LinkState.UP:
            self._host.out += self._lines.opened(peer, now)
        elif state is LinkState.DOWN or state is LinkState.CUT:
            self._lines.closed(peer)
            self._down(peer, now)
        return self._flush(now)

    def refused(self, peer: Peer, message: Message, now: Micros) -> list[Effect]:
        return self._refused.keep(peer, message)

    def stored(self, token: Token, now: Micros) -> list[Effect]:
        return []

    # -------------------------------------------------------------------- the parts

    def _tend(self, entry: Entry, now: Micros) -> None:
        level0 = self._level0
        if entry.times[0] <= now:
            level0.look(entry, now)
            self._leases.remind(entry, now)
        for level, to, items in entry.due(now):
            level0.weave(entry, level, to, items, now)
        if entry.check_at <= now:
            level0.join(entry, now)
        if entry.lower <= now and self._leases.wake(entry, now):
            self._say_clear(entry, now)

    def _say_clear(self, entry: Entry, now: Micros) -> None:
        """Nobody relies on the old gaps any longer: newcomers at both sides are waiting to hear it."""
        self._level0.probe(entry, now)
        if entry.lefts[0] is not None:
            self._level0.beat(entry, entry.left, now)

    def _ack(self, sender: Peer, message: Ack, now: Micros) -> None:
        entry = self.entries.get(message.to)
        if message.at[1] != sender:
            self._host.reject(sender, "an answer in another's name")
        elif entry is not None:
            entry.acknowledged(message.level, message.at, message.chain)

    def _revoke(self, sender: Peer, message: Revoke, now: Micros) -> None:
        if message.by[1] != sender:
            self._host.reject(sender, "a revocation in another's name")
            return
        self._leases.receive_revoke(int(sender), message, now)

    def _revoked(self, sender: Peer, message: Revoked, now: Micros) -> None:
        entry = self._leases.receive_revoked(int(sender), message, now)
        if entry is not None:
            self._say_clear(entry, now)

    def _down(self, peer: Peer, now: Micros) -> None:
        """No line to this peer: what went to it will not be reported on. It may live all the same."""
        if not self._host.lives(peer):
            self._level0.peer_down(peer, now)
        self._events.peer_down(peer, now)

    def _flush(self, now: Micros) -> list[Effect]:
        """The effects so far; what goes from one entry of this node to another is dealt with on the way."""
        loop = self._lines.loop
        if loop:
            for _ in range(LOOPS_MAX):
                message = loop.popleft()
                self._handlers[type(message)](self.me, message, now)
                if not loop:
                    break
            loop.clear()
        out, self._host.out = self._host.out, []
        return out
