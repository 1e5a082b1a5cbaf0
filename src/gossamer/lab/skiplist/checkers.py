"""Checkers of the skip list: one property each, written before the protocol, and able to fail.

circle      level 0 is the sorted circle of all entries, in both directions
perfection  level l spans exactly k**l entries, for every entry, in both directions; and no other
            level has a link
links       no entry has more than 2 * ceil(log_k N) links
leases      no publisher relies on a gap that has an entry whose join is complete
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Protocol

from gossamer.overlay.skiplist.entry import Entry, Link
from gossamer.overlay.skiplist.messages import Gap
from gossamer.overlay.skiplist.position import Position, between
from gossamer.sim.checkers import Findings


class Linked(Protocol):
    """What the checkers need of an entry."""

    at: Position
    lefts: list[Link | None]
    rights: list[Link | None]


def levels_of(count: int, k: int) -> int:
    """The number of levels of a perfect list of this size: those with k**l < count."""
    levels, span = 0, 1
    while span < count:
        levels, span = levels + 1, span * k
    return levels


def link_bound(count: int, k: int) -> int:
    # levels_of is ceil(log_k N).
    return 2 * levels_of(count, k)


class Circle(Findings):
    name = "circle"

    def look(self, entries: Sequence[Linked]) -> None:
        ordered = sorted(entries, key=lambda entry: entry.at)
        count = len(ordered)
        for number, entry in enumerate(ordered):
            for side, step, name in ((entry.rights, 1, "right"), (entry.lefts, -1, "left")):
                want = ordered[(number + step) % count].at if count > 1 else None
                link = side[0]
                if (link.at if link is not None else None) != want:
                    self.fail(
                        f"entry {number} of {count} has {_show(link)} at its {name}, "
                        f"not {_show_place(want)}"
                    )


class Perfection(Findings):
    name = "perfection"

    def look(self, entries: Sequence[Linked], k: int) -> None:
        ordered = sorted(entries, key=lambda entry: entry.at)
        count = len(ordered)
        levels = levels_of(count, k)
        for number, entry in enumerate(ordered):
            for side, sign, name in ((entry.rights, 1, "right"), (entry.lefts, -1, "left")):
                for level in range(max(levels, len(side))):
                    link = side[level] if level < len(side) else None
                    want = (
                        ordered[(number + sign * k**level) % count].at if level < levels else None
                    )
                    if (link.at if link is not None else None) != want:
                        self.fail(
                            f"entry {number} of {count}, level {level} {name}: {_show(link)}, "
                            f"not {_show_place(want)}"
                        )


class Links(Findings):
    name = "links"

    def look(self, entries: Sequence[Linked], k: int) -> int:
        """Returns the most links of an entry."""
        bound, most = link_bound(len(entries), k), 0
        for entry in entries:
            links = sum(link is not None for side in (entry.lefts, entry.rights) for link in side)
            most = max(most, links)
            if links > bound:
                self.fail(f"{_show_place(entry.at)} has {links} links; the bound is {bound}")
        return most


class LeaseValidity(Findings):
    name = "leases"

    def look(self, held: Iterable[Gap], joined: Sequence[Position]) -> None:
        """Every gap that somebody relies on now, and every entry whose join is complete now."""
        ordered = sorted(joined)
        for gap in held:
            after = bisect_right(ordered, gap.left)
            following = ordered[after % len(ordered)] if ordered else gap.left
            if between(gap.left, following, gap.right):
                self.fail(f"{_show_place(following)} is in a gap that a publisher relies on")


def link_errors(entries: Sequence[Entry], k: int) -> dict[int, float]:
    """By level, the mean of |entries spanned - k**l| / k**l; links to entries that have
    gone are left out.
    """
    ordered = sorted(entry.at for entry in entries)
    places = {at: number for number, at in enumerate(ordered)}
    sums: dict[int, list[float]] = {}
    for entry in entries:
        here = places[entry.at]
        for level, rightward, link in entry.links():
            there = places.get(link.at)
            if there is None or k**level >= len(ordered):
                continue
            span = (there - here if rightward else here - there) % len(ordered)
            sums.setdefault(level, []).append(abs(span - k**level) / k**level)
    return {level: sum(errors) / len(errors) for level, errors in sorted(sums.items())}


def _show(link: Link | None) -> str:
    return _show_place(link.at if link is not None else None)


def _show_place(at: Position | None) -> str:
    return "nobody" if at is None else f"{at[0].hex()}@{at[1]:x}"
