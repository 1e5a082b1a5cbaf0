"""Zave's invariants of a Chord ring, looked at from outside, with what follows from them.

OneLiveSuccessor: every member's list has a live entry. SufficientPrincipals: at least r + 1 members
are skipped by no adjacent pair of any member's [self] + list. Together they are inductive, and
imply that lists are ordered and without duplicates, that there is exactly one ring, that it is
ordered, and that every member reaches it. The consequences are looked at as well: a checker that is
wrong in one place then disagrees with itself.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from gossamer.lab.tree.chord import Chord
from gossamer.overlay.tree.arcs import Host, between

COMPLAINTS_MAX = 10


class Lists:
    """The members' successor lists at one moment; dead hosts are in ``lists`` of others only."""

    def __init__(self, lists: Mapping[int, Sequence[int]], redundancy: int) -> None:
        self.lists = {key: list(successors) for key, successors in lists.items()}
        self.redundancy = redundancy

    @classmethod
    def of(cls, members: Mapping[int, Sequence[Host]], redundancy: int) -> Lists:
        return cls(
            {key: [host.key for host in hosts] for key, hosts in members.items()}, redundancy
        )

    def without(self, dead: int) -> Lists:
        return Lists(
            {key: value for key, value in self.lists.items() if key != dead}, self.redundancy
        )

    # ------------------------------------------------------------------ conjuncts

    def lonely(self) -> list[int]:
        """Members whose lists have no live entry."""
        if len(self.lists) == 1:
            return []
        return [
            key
            for key, listed in self.lists.items()
            if not any(each in self.lists for each in listed)
        ]

    def principals(self) -> list[int]:
        """Members that no adjacent pair of any extended list skips."""
        keys = sorted(self.lists)
        skipped: dict[int, None] = {}
        for key, listed in self.lists.items():
            for low, high in pairwise((key, *listed)):
                for member in _strictly_between(keys, low, high):
                    skipped[member] = None
        return [key for key in keys if key not in skipped]

    def holds(self) -> bool:
        return not self.lonely() and len(self.principals()) > self.redundancy

    # --------------------------------------------------------------- consequences

    def first_live(self, key: int) -> int:
        return next((each for each in self.lists[key] if each in self.lists), key)

    def disordered(self) -> list[int]:
        """Members whose [self] + list is out of order, or names somebody twice."""
        bad = []
        for key, listed in self.lists.items():
            line = [key, *listed]
            if any(
                not between(line[i], line[i + 1], line[i + 2]) for i in range(len(line) - 2)
            ) or len(dict.fromkeys(listed)) < len(listed):
                bad.append(key)
        return bad

    def rings(self) -> list[list[int]]:
        """Cycles of best successors."""
        state: dict[int, int] = {}
        found = []
        for number, start in enumerate(sorted(self.lists)):
            key = start
            while key not in state:
                state[key] = number
                key = self.first_live(key)
            if state[key] == number:
                cycle, each = [key], self.first_live(key)
                while each != key:
                    cycle.append(each)
                    each = self.first_live(each)
                found.append(cycle)
        return found

    def ideal(self) -> bool:
        """Every list is exactly the next members."""
        keys = sorted(self.lists)
        count = min(self.redundancy, len(keys) - 1)
        return all(
            self.lists[key] == [keys[(place + step) % len(keys)] for step in range(1, count + 1)]
            for place, key in enumerate(keys)
        )

    def complaints(self) -> list[str]:
        """Everything that is wrong for a ring of more than r members."""
        found = [f"OneLiveSuccessor: no live entry in the list of {key}" for key in self.lonely()]
        principals = self.principals()
        if len(principals) <= self.redundancy:
            found.append(
                f"SufficientPrincipals: {len(principals)} principals, "
                f"{self.redundancy + 1} are needed"
            )
        found += [f"ordered lists: {key} has {self.lists[key]}" for key in self.disordered()]
        rings = self.rings()
        if len(rings) != 1:
            found.append(f"one ring: there are {len(rings)}")
        else:
            ring = rings[0]
            start = ring.index(min(ring))
            turned = ring[start:] + ring[:start]
            if turned != sorted(turned):
                found.append(f"ordered ring: {turned}")
        return found


def _strictly_between(keys: list[int], low: int, high: int) -> list[int]:
    if low < high:
        return keys[bisect_right(keys, low) : bisect_left(keys, high)]
    return keys[bisect_right(keys, low) :] + keys[: bisect_left(keys, high)]


class Watch:
    """Looks at all lists after every step at which one has changed."""

    def __init__(self) -> None:
        self.on = False
        self.looked = 0
        self.complaints: list[str] = []
        # By peer.
        self._before: dict[int, tuple[bool, tuple[Host, ...]]] = {}

    def look(self, chord: Chord, lists: Callable[[], Lists], now: int) -> None:
        seen = (chord.member, tuple(chord.successors))
        if (
            not self.on
            or self._before.get(chord.me.peer) == seen
            or len(self.complaints) >= COMPLAINTS_MAX
        ):
            return
        self._before[chord.me.peer] = seen
        self.looked += 1
        self.complaints += [
            f"at {now} us, after host {chord.me.key}: {text}" for text in lists().complaints()
        ]
