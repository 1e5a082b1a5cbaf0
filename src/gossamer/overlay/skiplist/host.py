"""The parts of a list at one node share its entries, its parameters, and a way to send."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

from gossamer.machine import NEVER, Deliver, Effect, Message, Micros, Note, Peer, Send
from gossamer.overlay.skiplist.config import SkipConfig
from gossamer.overlay.skiplist.entry import Entry, Forward, Step, spread
from gossamer.overlay.skiplist.lines import Lines
from gossamer.overlay.skiplist.messages import Part
from gossamer.overlay.skiplist.position import Position, between
from gossamer.trace import Rejected, hex_peer

# One walk visits at most this number of entries of one node.
VISITS_MAX = 1_024


class Members(Protocol):
    """The owner of a list knows its members. In a node it knows them from the view. Without this
    knowledge, silence and broken lines count as deaths.
    """

    def lives(self, peer: Peer) -> bool:
        """Return whether that node is a member of the fabric. The list waits for a member, whatever
        its line does.
        """

    def is_known(self) -> bool:
        """Return whether every member of this list can know by now that this node is one of its
        ``contacts``.
        """


class Host:
    def __init__(
        self,
        me: Peer,
        topic: int,
        config: SkipConfig,
        rng: Random,
        lines: Lines,
        contacts: Callable[[], Sequence[Peer]],
        epoch: Callable[[], int] = lambda: 0,
        members: Members | None = None,
    ) -> None:
        self.epoch, self.members = epoch, members
        self.me, self.topic, self.config, self.rng, self.lines, self.contacts = (
            me,
            topic,
            config,
            rng,
            lines,
            contacts,
        )
        self.entries: dict[bytes, Entry] = {}
        # The node has had this number of entries, those of earlier lives included.
        self.births = 0
        self.out: list[Effect] = []
        # The deadline of the list may be too early, but never too late.
        self.deadline: Micros = NEVER
        self.counters = {
            "rejected": 0, "joins": 0, "repairs": 0, "revoked": 0, "held": 0, "resent": 0,
            "absent": 0,
            # Events were compared with this number of places on their way, by binary search.
            "compared": 0,
        }  # fmt: skip

    def send(self, to: int, message: Message, now: Micros) -> None:
        up = self.lines.up
        # Nearly all messages go this way.
        if to in up:
            up[Peer(to)] = now
            self.out.append(Send((Peer(to),), message))
            return
        self.out += self.lines.send(Peer(to), message, now)
        if self.lines.deadline < self.deadline:
            self.deadline = self.lines.deadline

    def deliver(self, what: object) -> None:
        self.out.append(Deliver(0, (what,)))

    def reject(self, peer: Peer, reason: str) -> None:
        self.counters["rejected"] += 1
        self.out.append(Note(Rejected(hex_peer(peer), reason)))

    def sooner(self, at: Micros) -> None:
        self.deadline = min(self.deadline, at)

    def contact(self) -> int | None:
        """Draw some other member of the list. Return None if there is none."""
        known = self.contacts()
        for _ in range(4):
            if not known:
                return None
            peer = known[int(self.rng.random() * len(known))]
            if peer != self.me:
                return int(peer)
        return next((int(peer) for peer in known if peer != self.me), None)

    def call(self, peer: Peer, now: Micros) -> bool:
        """Get a link to the peer, if need be by dialling it. Return whether that is possible."""
        if peer in self.lines.up:
            self.lines.up[peer] = now
            return True
        self.out += self.lines.call(peer, now)
        self.sooner(self.lines.deadline)
        return self.lines.calls(peer)

    def steps(self, part: Part) -> list[tuple[Entry, Step]]:
        """Return how a walk through this interval goes on, at each entry of this node on its way.

        Each of these entries decides for the part up to the next one, so the walk does not come
        back here.
        """
        work, visits = self._starts(part), 0
        found: list[tuple[Entry, Step]] = []
        while work and visits < VISITS_MAX:
            visits += 1
            here, low, high, bound = work.pop()
            self.counters["compared"] += len(here.table()[0]).bit_length()
            for step in spread(here, low, high, bound):
                if type(step) is Forward and step.to[1] == self.me:
                    local = self.entries.get(step.to[0])
                    if local is not None and local.is_placed and local is not here:
                        work.append((local, step.low, step.high, step.bound))
                else:
                    found.append((here, step))
        return found

    def _starts(self, part: Part) -> list[tuple[Entry, Position, Position, Position | None]]:
        low, high, bound, entries = part.low, part.high, part.bound, self.entries
        if part.to is not None and (part.to not in entries or not entries[part.to].is_placed):
            # The bound says nothing to other entries, and the walk might come back here.
            return []
        placed = sorted([entry.at for entry in entries.values() if entry.is_placed])
        if not placed:
            return []
        first, end = bisect_left(placed, low), bisect_left(placed, high)
        if first < end:
            starts: list[tuple[Entry, Position, Position, Position | None]] = []
            for place in range(first, end):
                until = placed[place + 1] if place + 1 < end else high
                starts.append((entries[placed[place][0]], low, until, None))
                low = until
            return starts
        before, after = placed[first - 1], placed[end % len(placed)]
        if self.config.routing == "paper":
            return [(entries[(before if first else placed[0])[0]], low, high, None)]
        if bound is None or part.to is None:
            return [(entries[before[0]], low, high, after if after != before else None)]
        if between((part.to, int(self.me)), low, bound):
            until = after if between(before, after, bound) else bound
            return [(entries[before[0]], low, high, until)]
        until = before if between(bound, before, after) else bound
        return [(entries[after[0]], low, high, until)]

    @property
    def is_placed(self) -> bool:
        """Return whether this node has an entry in the list."""
        return bool(self.entries) and any(entry.is_placed for entry in self.entries.values())

    def lives(self, peer: int) -> bool:
        """Return whether the peer is known to live. No silence outweighs that verdict."""
        return self.members is not None and self.members.lives(Peer(peer))

    def nearest(self, place: Position) -> Entry | None:
        """Return this node's entry from which a walk to the place begins. It is the last entry
        before the place, or else the last of all.
        """
        placed = [entry for entry in self.entries.values() if entry.is_placed]
        if not placed:
            return None
        before = [entry for entry in placed if entry.at <= place]
        return max(before or placed, key=lambda entry: entry.at)
