"""The messages from an entry to its neighbours of level 0, and the choice of these neighbours."""

from __future__ import annotations

from gossamer.machine import Micros
from gossamer.overlay.skiplist.entry import Entry, insert
from gossamer.overlay.skiplist.host import Host
from gossamer.overlay.skiplist.leases import Leases
from gossamer.overlay.skiplist.marks import Marks
from gossamer.overlay.skiplist.messages import Beat, Gossip, Item
from gossamer.overlay.skiplist.position import Position

# After this number of beats a beat names the successors again, changed or not. A neighbour that did
# not agree yet that the two are neighbours has taken no notice of the earlier beat.
TELL_AGAIN = 8


class Beside:
    def __init__(self, host: Host, leases: Leases, marks: Marks) -> None:
        self._host, self._leases, self._marks = host, leases, marks

    def gossip(self, entry: Entry, to: Position, items: tuple[Item, ...], now: Micros) -> None:
        """Send the message of level 0. It is the heartbeat, and it carries Figure 2 and the
        marks.
        """
        clear = self._leases.is_clear(entry, rightward=True, now=now)
        marks = self._marks.to_pass_on(entry, to, now)
        self._host.send(
            to[1],
            Gossip(self._host.topic, to[0], 0, items, (), clear, marks, True, entry.born),
            now,
        )

    def probe(self, entry: Entry, now: Micros) -> None:
        """Talk to the right neighbour now instead of at the period."""
        link = entry.rights[0]
        if link is not None:
            self.gossip(entry, link.at, entry.present(0), now)

    def weave(
        self, entry: Entry, level: int, to: Position, items: tuple[Item, ...], now: Micros
    ) -> None:
        """Send the message of any level."""
        if level:
            chain = entry.behind(level, level % 2 == 1) if self._host.config.k == 2 else ()
            self._host.send(to[1], Gossip(self._host.topic, to[0], level, items, chain), now)
        else:
            self.gossip(entry, to, items, now)

    def beat(self, entry: Entry, to: Position, now: Micros) -> None:
        host = self._host
        clear = self._leases.is_clear(entry, rightward=False, now=now)
        after: tuple[Position, ...] | None = tuple(entry.successors[: host.config.successors])
        told = entry.told
        if told is not None and told[2] % TELL_AGAIN and told[0] == to and told[1] == after:
            entry.told, after = (to, told[1], told[2] + 1), None
        else:
            assert after is not None
            entry.told = (to, after, 1)
        host.send(
            to[1], Beat(host.topic, to[0], entry.at, entry.left, after, clear, entry.born), now
        )

    def _set_right(self, entry: Entry, at: Position, now: Micros) -> None:
        if entry.right != at or entry.rights[0] is None:
            self._leases.void(entry, rightward=True, now=now)
            entry.put(0, True, at, now)
            entry.successors = insert(entry.successors, at, self._host.config.successors)

    def _set_left(self, entry: Entry, at: Position, now: Micros) -> None:
        if entry.left != at or entry.lefts[0] is None:
            self._leases.void(entry, rightward=False, now=now)
            entry.put(0, False, at, now).sure = True
