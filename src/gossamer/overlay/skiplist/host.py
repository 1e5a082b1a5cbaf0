"""What the parts of a list at one node share: its entries, its parameters, and a way to send."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

from gossamer.machine import NEVER, Deliver, Effect, Message, Micros, Note, Peer, Send
from gossamer.overlay.skiplist.config import SkipConfig
from gossamer.overlay.skiplist.entry import Entry
from gossamer.overlay.skiplist.lines import Lines
from gossamer.overlay.skiplist.position import Position
from gossamer.trace import Rejected, hex_peer


class Members(Protocol):
    """What the owner of a list knows of its members (in a node: from the view). Without it, silence and broken lines are deaths."""

    def lives(self, peer: Peer) -> bool:
        """Whether that node is a member of the fabric: then it is waited for, whatever its line does."""

    def is_known(self) -> bool:
        """Whether every member of this list can know by now that this node is one of its ``contacts``."""


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
        self.births = 0  # entries that this node has had, those of earlier lives included
        self.out: list[Effect] = []
        self.deadline: Micros = NEVER  # of the list; may be too early, never too late
        self.counters = {
            "rejected": 0, "joins": 0, "repairs": 0, "revoked": 0, "held": 0, "resent": 0, "absent": 0,
            "compared": 0,  # places with which events were compared on their way, by binary search
        }  # fmt: skip

    def send(self, to: int, message: Message, now: Micros) -> None:
        up = self.lines.up
        if to in up:  # the way of nearly all messages
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
        """Some other member of the list, drawn; None if there is none."""
        known = self.contacts()
        for _ in range(4):
            if not known:
                return None
            peer = known[int(self.rng.random() * len(known))]
            if peer != self.me:
                return int(peer)
        return next((int(peer) for peer in known if peer != self.me), None)

    def lives(self, peer: int) -> bool:
        """Known to live: a verdict that no silence outweighs."""
        return self.members is not None and self.members.lives(Peer(peer))

    def nearest(self, place: Position) -> Entry | None:
        """This node's entry from which a walk to the place begins: the last before it, else the last of all."""
        placed = [entry for entry in self.entries.values() if entry.is_placed]
        if not placed:
            return None
        before = [entry for entry in placed if entry.at <= place]
        return max(before or placed, key=lambda entry: entry.at)
