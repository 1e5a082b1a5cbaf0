"""The machine ``SkipList`` ties the parts together. It is one topic's list at one node, sans-IO.

``Deliver(0, (what,))`` hands its owner ``Placed`` and ``Joined`` (an entry's join) and ``Found``
(the answer to a look-up). Events go to ``arrive``, which says how many subscriptions took them. The
receipt of a batch goes to ``complete``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from gossamer.machine import NEVER, Effect, LinkState, Message, Micros, Peer, Token
from gossamer.overlay.batch import Batch
from gossamer.overlay.delivery.engine import Counts
from gossamer.overlay.delivery.region import Id
from gossamer.overlay.skiplist.config import SkipConfig
from gossamer.overlay.skiplist.entry import Entry
from gossamer.overlay.skiplist.host import Host, Members
from gossamer.overlay.skiplist.leases import Leases
from gossamer.overlay.skiplist.level0 import Level0
from gossamer.overlay.skiplist.lines import Lines
from gossamer.overlay.skiplist.marks import Marks
from gossamer.overlay.skiplist.messages import (
    Absent,
    Ack,
    Ask,
    Beat,
    Busy,
    Carry,
    Gossip,
    Join,
    Leave,
    Report,
    Revoke,
    Revoked,
    Told,
    Welcome,
)
from gossamer.overlay.skiplist.position import KEY_MAX, Interval, cut
from gossamer.overlay.skiplist.search import Answer, Search
from gossamer.overlay.skiplist.walks import Walked, Walks

# This number of bits below the incarnation counts the entries in one life.
LIVES = 24
# In one turn a node's own entries exchange at most this number of messages.
LOOPS_MAX = 10_000


def _owned(intervals: Sequence[tuple[bytes, bytes]]) -> list[Interval]:
    """Return intervals of all positions whose keys are in these intervals of keys.

    There is no entry between keys that differ only where no entry's key reaches.
    """
    owned: list[Interval] = []
    for low, high in intervals:
        if len(low) > KEY_MAX or len(high) > KEY_MAX:
            low, high = cut(low), cut(high)
        if low < high:
            owned.append(((low, 0), (high, 0)))
    return owned


class SkipListError(Exception):
    """The list cannot carry out a call. The text says why."""


class SkipList:
    def __init__(
        self,
        me: Peer,
        *,
        incarnation: int,
        rng: Random,
        config: SkipConfig,
        arrive: Callable[..., Counts | None],
        complete: Callable[[Walked], None],
        ask: Answer = lambda key, payload: (),
        address: Callable[[Peer], str | None],
        contacts: Callable[[], Sequence[Peer]],
        epoch: Callable[[], int] = lambda: 0,
        members: Members | None = None,
        topic: int = 0,
        hangs_up: bool = False,
    ) -> None:
        """Make the list from these parts of its owner.

        ``arrive`` says how many subscriptions of this node take each event of a group, as the
        engine's ``Arrive``. It is asked once for each event. ``complete`` takes the receipt of a
        batch. ``ask`` returns the answer to a look-up that has come to an entry. ``contacts``
        returns the members of the list that a newcomer may ask. In a node, these are the members
        whose interest record says so. ``epoch`` returns another number whenever a member is new
        among at most FEW (leases.py). ``members`` knows the members that live, if the owner knows
        it better than silence does (host.py). Then ``dead`` tells the list of each dead one.
        """
        self.me, self.config, self.incarnation = me, config, incarnation
        self._lines = Lines(me, address, hangs_up=hangs_up)
        self._host = Host(me, topic, config, rng, self._lines, contacts, epoch, members)
        self._host.births = incarnation << LIVES
        self._leases = Leases(self._host)
        self._marks = Marks(self._host)
        self._level0 = Level0(self._host, self._leases, self._marks)
        self._walks = Walks(self._host, self._leases, self._marks, arrive, complete)
        self._search = Search(self._host, ask)
        self.engine = self._walks.engine
        self.has_left = False
        self._handlers: dict[type[Message], Callable[[Peer, Any, Micros], None]] = {
            Gossip: self._level0.receive_gossip, Beat: self._level0.receive_beat, Ack: self._ack,
            Join: self._level0.receive_join, Welcome: self._level0.receive_welcome,
            Leave: self._level0.receive_leave,
            Absent: self._level0.receive_absent, Revoke: self._revoke, Revoked: self._revoked,
            Carry: self._walks.receive_carry, Report: self._walks.receive_report,
            Busy: self._walks.receive_busy, Ask: self._search.receive_ask,
            Told: self._search.receive_told,
        }  # fmt: skip

    # ------------------------------------------------------------------- the tables

    @property
    def entries(self) -> dict[bytes, Entry]:
        return self._host.entries

    @property
    def counters(self) -> dict[str, int]:
        return self._host.counters

    @property
    def leases(self) -> Leases:
        return self._leases

    @property
    def noise(self) -> int:
        return self._walks.noise

    @property
    def holds_back(self) -> bool:
        """Whether this node holds back events that match nothing, where it has a lease on a gap.

        The seed calls this proxy filters.
        """
        return self._walks.holds_back

    @holds_back.setter
    def holds_back(self, yes: bool) -> None:
        self._walks.holds_back = yes

    @property
    def is_busy(self) -> bool:
        """Whether events, its own or others', are on their way through this node."""
        return bool(self.engine.under_way()) or self._search.is_busy

    @property
    def remembered(self) -> int:
        """The number of events that are known to have been here."""
        return self.engine.remembered

    @property
    def wanted(self) -> list[Peer]:
        """The peers that this node's entries are linked with. Connections to them should stay."""
        peers = dict.fromkeys(
            link.at[1] for entry in self.entries.values() for _, _, link in entry.links()
        )
        return [Peer(peer) for peer in peers if peer != self.me]

    # -------------------------------------------------------------------- commands

    def enter(self, key: bytes, now: Micros, until: bytes | None = None) -> None:
        """Place an entry. With the seed's ranges, it wants every event from ``key`` to ``until``,
        both included.
        """
        if key in self.entries:
            raise SkipListError(
                "this key is entered already: a node's identical filters share one entry"
            )
        if len(self.entries) >= self.config.entries_max:
            raise SkipListError(
                f"a node places at most {self.config.entries_max} entries in a topic; "
                "merge some (places.py)"
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
        """Let the entry want everything up to ``until`` from now on, with the seed's ranges."""
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
        self,
        batch: Batch,
        looks: Sequence[Sequence[tuple[bytes, bytes]]],
        pack: Callable[[Sequence[int]], bytes],
        now: Micros,
    ) -> None:
        """Carry each event of a batch to everything in its intervals of keys, which are disjoint.

        ``pack`` makes the rows of the events at some places of the batch. ``complete`` is called
        when all of them have arrived.
        """
        owned: list[list[Interval]] = []
        for intervals in looks:
            owned.append(_owned(intervals))
        self._walks.publish(batch, owned, pack, now)

    def took(self, id: Id, counts: Counts, now: Micros) -> list[Effect]:
        """Count events that the owner has taken now. ``arrive`` had said None for them."""
        self._walks.took(id, counts, now)
        return self.effects(now)

    def lookup(
        self, intervals: Sequence[tuple[bytes, bytes]], now: Micros, payload: bytes = b""
    ) -> int:
        """Ask for the entries there and, with a payload, for the subscriptions that want it.

        Nothing is handed over. Return the number that ``Found`` will carry.
        """
        number = self._search.ask(_owned(intervals), payload, now)
        self._host.sooner(now)
        return number

    def doubt(self, now: Micros) -> None:
        """Check soon whether the places are right. There may be another circle, of a part of the
        fabric that was cut off.
        """
        soon = Micros(now + self.config.period // 2)
        for entry in self.entries.values():
            if entry.is_placed and self.config.check:
                entry.checks, entry.check_at = 0, min(entry.check_at, soon)
        self._host.sooner(soon)

    def forget(self, number: int) -> None:
        """Forget a look-up when no caller waits for its answer any longer."""
        self._search.forget(number)

    def dead(self, peer: Peer, now: Micros) -> None:
        """Take the verdict that this peer is no more, whatever its link says. A peer that has begun
        anew has none of its old entries either.
        """
        self._level0.peer_down(peer, now)
        self._host.sooner(now)

    # ---------------------------------------------------------------------- inputs

    @property
    def deadline(self) -> Micros:
        return min(self._host.deadline, self.engine.deadline)

    def receive(self, sender: Peer, message: Message, now: Micros) -> list[Effect]:
        handler = self._handlers.get(type(message))
        if handler is not None:
            handler(sender, message, now)
        return self.effects(now)

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
                self.engine.failed(peer, now)
        if self.engine.deadline <= now:
            self.engine.wake(now)
        self._search.wake(now)
        found = self.effects(now)
        deadline = min(self._lines.deadline, self._search.deadline)
        for entry in entries.values():
            if entry.next_at < deadline:
                deadline = entry.next_at
        self._host.deadline = deadline if deadline > now else Micros(now + 1)
        return found

    def link(self, peer: Peer, state: LinkState, now: Micros) -> list[Effect]:
        if state is LinkState.UP:
            self._host.out += self._lines.opened(peer, now)
        elif state is LinkState.DOWN or state is LinkState.CUT:
            self._lines.closed(peer)
            self._down(peer, now)
        self.engine.link(peer, state, now)
        return self.effects(now)

    def refused(self, peer: Peer, message: Message, now: Micros) -> list[Effect]:
        self.engine.refused(peer, message)
        return self.effects(now)

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
        """Tell both neighbours that no publisher relies on the old gaps any longer. Newcomers at
        both sides wait to hear it.
        """
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
        """Give up the answers of a peer that has no line. It may live all the same."""
        if not self._host.lives(peer):
            self._level0.peer_down(peer, now)
        self._search.peer_down(peer, now)

    def effects(self, now: Micros) -> list[Effect]:
        """Return the effects so far. Handle messages between entries of this node on the way."""
        loop = self._lines.loop
        if loop:
            for _ in range(LOOPS_MAX):
                message = loop.popleft()
                self._handlers[type(message)](self.me, message, now)
                if not loop:
                    break
            loop.clear()
        out = self._host.out.copy()
        self._host.out.clear()
        return out
