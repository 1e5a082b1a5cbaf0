"""Ranges in the seed's own way (section 3.5), as routing entries at every peer of the range.

A configuration can select this way for comparison. The subscriber of [v1, v2] joins at v1. Its mark
rides rightward on the gossip of level 0. Every entry up to v2, and the first one beyond, keeps the
mark, and hands an event that falls into the range to the subscriber. The gossip renews the marks,
and they run out without it. An entry passes an unsubscription on at once.

The seed proposes covering and merging. So the ranges of one node that overlap are merged into one
mark, and no entry keeps a mark that another mark of the same node covers.

The other way (kinds and cells) keeps nothing at other peers. ``filters/place.py`` makes its keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gossamer.machine import Micros
from gossamer.overlay.skiplist.entry import Entry
from gossamer.overlay.skiplist.host import Host
from gossamer.overlay.skiplist.messages import MARKS_MAX, Mark
from gossamer.overlay.skiplist.position import Position

# A mark that is not renewed is kept for this number of periods.
KEPT_PERIODS = 4


def merge_ranges(ranges: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return fewer ranges with the same union, where those that overlap have become one."""
    merged: list[tuple[bytes, bytes]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(high, merged[-1][1])
        else:
            merged.append((low, high))
    return merged


class Marks:
    def __init__(self, host: Host) -> None:
        self._host = host
        self.version = 0

    def own(self, entry: Entry, high: bytes, now: Micros) -> None:
        """Let this entry want everything from its own key to ``high``."""
        self.version += 1
        entry.range = Mark(entry.at[0], high, entry.at, self.version)

    def disown(self, entry: Entry, now: Micros) -> None:
        """Send the mark of an unsubscription its way once more, so that it is forgotten."""
        if entry.range is not None:
            self.version += 1
            gone = Mark(entry.range.low, entry.range.high, entry.at, self.version, True)
            entry.range = None
            entry.marks[entry.at] = (gone, now)

    def keep(self, entry: Entry, marks: Sequence[Mark], now: Micros) -> bool:
        """Keep these marks. Return whether there was news among them, which goes on at once."""
        news = False
        for mark in marks:
            known = entry.marks.get(mark.owner)
            if mark.owner == entry.at or (known is not None and known[0].version > mark.version):
                continue
            if mark.low > mark.high or mark.low > entry.at[0]:
                # This mark is not on its way from left to right.
                continue
            if known is None and len(entry.marks) >= MARKS_MAX:
                continue
            if (known is None and not mark.gone) or (
                known is not None and known[0].version < mark.version
            ):
                news = True
            entry.marks[mark.owner] = (mark, now)
        self._expire(entry, now)
        self._cover(entry)
        return news

    def _expire(self, entry: Entry, now: Micros) -> None:
        limit = KEPT_PERIODS * self._host.config.period
        for owner in [owner for owner, (_, heard) in entry.marks.items() if now - heard > limit]:
            del entry.marks[owner]

    def _cover(self, entry: Entry) -> None:
        """Forget the marks that another mark of the same node covers."""
        widest: dict[int, Mark] = {}
        for owner, (mark, _) in list(entry.marks.items()):
            if mark.gone:
                continue
            other = widest.get(owner[1])
            if other is None:
                widest[owner[1]] = mark
            elif other.low <= mark.low and mark.high <= other.high:
                del entry.marks[owner]
            elif mark.low <= other.low and other.high <= mark.high:
                del entry.marks[other.owner]
                widest[owner[1]] = mark

    def to_pass_on(self, entry: Entry, to: Position, now: Micros) -> tuple[Mark, ...]:
        """Return the marks that ride on the gossip of level 0. There are none from the last entry
        to the first.
        """
        if self._host.config.ranges != "entries" or to <= entry.at:
            return ()
        self._expire(entry, now)
        passed = [mark for mark, _ in entry.marks.values() if entry.at[0] <= mark.high]
        own = [entry.range] if entry.range is not None else []
        return tuple(own + passed)[:MARKS_MAX]

    def for_newcomer(self, entry: Entry, place: Position) -> tuple[Mark, ...]:
        """Return the marks that a newcomer at the right must keep from its first moment."""
        if self._host.config.ranges != "entries" or place <= entry.at:
            return ()
        own = [entry.range] if entry.range is not None else []
        kept = [mark for mark, _ in entry.marks.values() if not mark.gone]
        return tuple(mark for mark in own + kept if entry.at[0] <= mark.high)[:MARKS_MAX]

    def owners(self, entry: Entry, key: bytes) -> list[Position]:
        """Return the owners of the ranges that hold this key, as far as this entry knows."""
        found = [
            mark.owner
            for mark, _ in entry.marks.values()
            if not mark.gone and mark.low <= key <= mark.high
        ]
        if entry.range is not None and entry.range.low <= key <= entry.range.high:
            found.append(entry.at)
        return found
