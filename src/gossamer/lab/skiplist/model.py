"""The converged list of a million entries, vectorised: routing over a perfect list, many walks at
once (needs NumPy).

In a perfect list every entry knows the same thing at the same distances, so a walk is a sequence
of distances. One real ``Entry`` is given the links it would have, and its own table of places and
midpoints, as distances, decides every step, by the rules of entry.py.
tests/lab/test_skiplist_model.py compares walk by walk with the full simulation. Delivery, time and
bytes are not modelled: the full simulation is for that.
"""

from __future__ import annotations

import hashlib
from random import Random
from typing import TYPE_CHECKING, Any

from gossamer.lab.skiplist.checkers import levels_of, link_bound
from gossamer.lab.skiplist.config import Setup
from gossamer.machine import Micros
from gossamer.overlay.skiplist.config import SkipConfig
from gossamer.overlay.skiplist.entry import Entry
from gossamer.overlay.skiplist.position import Position

if TYPE_CHECKING:
    from gossamer.lab.skiplist.measure import Measured

HOPS_MAX = 1_000


def _place(number: int, count: int) -> Position:
    return (number % count).to_bytes(8, "big"), 0


def perfect_entry(count: int, k: int, number: int = 0) -> Entry:
    """An entry as it is in a perfect list of so many."""
    entry = Entry(_place(number, count), SkipConfig(k=k), Random(0))
    span = (k + 2) // 2
    for level in range(levels_of(count, k)):
        for rightward, sign in ((True, 1), (False, -1)):
            link = entry.put(level, rightward, _place(number + sign * k**level, count), Micros(0))
            if k == 2:
                far = [k**level + k ** (level - 1)] if level else []
            else:
                far = [times * k**level for times in range(2, span + 1)]
            if all(distance < count for distance in far):
                link.chain = tuple(_place(number + sign * distance, count) for distance in far)
    return entry


class Model:
    """Distances are doubled: entry d places to the right is 2 * d, the gap after it 2 * d + 1."""

    def __init__(self, count: int, k: int, routing: str = "gossamer") -> None:
        import numpy as np

        self.count, self.k, self.routing = count, k, routing
        points, mids = perfect_entry(count, k).table()
        self._points = np.array(
            [2 * int.from_bytes(at[0], "big") for at in points] + [2 * count], dtype=np.int64
        )
        self._mids = np.array(
            [2 * int.from_bytes(m[0], "big") if m is not None else -1 for m in mids], dtype=np.int64
        )

    def walk(self, sources: Any, targets: Any) -> tuple[Any, Any]:
        """From entries to doubled places (even: an entry, odd: the gap after it). Returns hops,
        and visits of each entry.
        """
        import numpy as np

        around = 2 * self.count
        at = np.array(sources, dtype=np.int64) * 2
        goal = np.array(targets, dtype=np.int64)
        bound = np.full(len(at), -1, dtype=np.int64)
        hops = np.zeros(len(at), dtype=np.int64)
        visits = np.zeros(self.count, dtype=np.int64)
        active = np.arange(len(at))
        for _ in range(HOPS_MAX):
            distance = (goal[active] - at[active]) % around
            there = (distance == 0) | (distance == 1) | (distance == around - 1)
            active, distance = active[~there], distance[~there]
            if not len(active):
                return hops, visits
            if self.routing == "paper":
                step, limit = self._greedy(at[active], goal[active]), bound[active]
            else:
                step, limit = self._nearer(distance, bound[active])
            at[active] = (at[active] + step) % around
            bound[active] = np.where(limit < 0, -1, (limit - step) % around)
            hops[active] += 1
            np.add.at(visits, at[active] // 2, 1)
        raise AssertionError("a walk does not end")

    def _nearer(self, distance: Any, bound: Any) -> tuple[Any, Any]:
        """entry._nearer, for many walks: the step, and the new bound, both as distances from where
        the walk is.
        """
        import numpy as np

        around, points, mids = 2 * self.count, self._points, self._mids
        first = np.searchsorted(points, distance)
        # The goal itself is a neighbour.
        known = points[np.minimum(first, len(points) - 1)] == distance
        before, after = points[first - 1], points[first]
        none = bound < 0
        fresh_before = none | (bound >= distance) | (before > bound)
        fresh_after = none | (distance >= bound) | ((after < bound) & (after != around))
        can_before, can_after = fresh_before & (before != 0), fresh_after & (after != around)
        mid = mids[first - 1]
        left = can_before & (~can_after | (mid < 0) | (distance <= mid))
        step = np.where(
            left, before, np.where(can_after, after, np.where(before == 0, points[1], points[-2]))
        )
        limit_left = np.where(fresh_after | (after == around), after % around, bound)
        limit_right = np.where(fresh_before | (before == 0), before, bound)
        limit = np.where(left, limit_left, np.where(can_after, limit_right, bound))
        return np.where(known, distance, step), np.where(known, -1, limit)

    def _greedy(self, at: Any, goal: Any) -> Any:
        """entry._greedy: on the line, never past the goal; the circle's links reach across the
        line's ends.
        """
        import numpy as np

        span = self._points[np.searchsorted(self._points, np.abs(goal - at), side="right") - 1]
        return np.where(goal > at, span, -span)


def measure_model(setup: Setup) -> Measured:
    """Events from anywhere to anywhere: two in five to an entry, the others to a gap, as in the
    synthetic workload.
    """
    import numpy as np

    from gossamer.lab.skiplist.measure import Hops, Measured, Noise, entries_per_range

    count, events = setup.entries, setup.events
    rng = np.random.Generator(np.random.PCG64(setup.seed))
    sources = rng.integers(0, count, events)
    matched = rng.random(events) < 0.4
    targets = 2 * rng.integers(0, count, events) + np.where(matched, 0, 1)
    hops, visits = Model(count, setup.k, setup.routing).walk(sources, targets)
    # Where it was wanted it is no noise.
    visits[targets[matched & (hops > 0)] // 2] -= 1
    digest = hashlib.blake2b(hops.tobytes() + visits.tobytes(), digest_size=16).hexdigest()
    return Measured(
        entries=count,
        hops=Hops.of([int(hop) for hop in hops]),
        noise=Noise.of([int(visit) for visit in visits], events),
        join_hops=Hops.of([]),
        levels=levels_of(count, setup.k),
        links_max=link_bound(count, setup.k),
        perfect=True,
        entries_per_range=entries_per_range(count),
        events=events,
        digest=digest,
        model=True,
    )
