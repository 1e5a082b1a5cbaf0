"""The dispatch tree of a million hosts at rest, vectorised (needs NumPy): shape, distances and
loads by the closed forms.

A host's topmost key is the last key of its arc with its low bits cleared as far up as both ends of
the arc differ; its parent is the deeper of the two owners of the keys beside the stretch below it
(overlay/tree/reference.py, ``ZeroTree``). So the tree is two searches in the sorted keys. Depths
follow by doubling, everything else level by level. tests/lab/test_steady_models.py compares host by
host with the machines' own procedures and with the full simulation.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Keys = NDArray[np.uint64]
_ONE = np.uint64(1)


def draw_keys(hosts: int, seed: int, bits: int = 64) -> Keys:
    """So many different keys, sorted."""
    rng = np.random.Generator(np.random.PCG64([seed, hosts, bits]))
    keys = np.zeros(0, dtype=np.uint64)
    while len(keys) < hosts:
        more = rng.integers(0, 2**bits, hosts - len(keys), dtype=np.uint64, endpoint=False)
        keys = np.unique(np.concatenate([keys, more]))
    return keys


def _highest_bit(values: Keys) -> Keys:
    values = values.copy()
    for shift in (1, 2, 4, 8, 16, 32):
        values |= values >> np.uint64(shift)
    return np.asarray(values ^ (values >> _ONE), dtype=np.uint64)


def parents(keys: Keys, bits: int = 64) -> Ints:
    """The place of each host's parent in the sorted keys; -1 for the root, which owns key 0 and
    stands first.
    """
    count = len(keys)
    mask = np.uint64((1 << bits) - 1)
    differ = _highest_bit(np.roll(keys, 1) ^ keys)
    top = keys & ~(differ - _ONE)
    # Its arc wraps around, or is everything.
    top[0] = 0
    step = top & (~top + _ONE)
    # Above all others.
    step[0] = np.uint64(2**64 - 1)
    if count == 1:
        return np.array([-1], dtype=np.int64)
    left = np.searchsorted(keys, top - step) % count
    right = np.searchsorted(keys, (top + step) & mask) % count
    left[0] = right[0] = 0
    # The deeper one has the smaller step; of equal ones the larger key, as ``rank`` says.
    deeper = (step[left] < step[right]) | ((step[left] == step[right]) & (top[left] > top[right]))
    found: Ints = np.where(deeper, left, right).astype(np.int64)
    found[0] = -1
    return found


class Tree:
    """A whole tree at rest, hosts known by their places in the sorted keys."""

    def __init__(self, keys: Keys, bits: int = 64) -> None:
        self.keys, self.parent = keys, parents(keys, bits)
        count = len(keys)
        above = np.where(self.parent < 0, np.arange(count), self.parent)
        self.depth: Ints = (self.parent >= 0).astype(np.int64)
        # Twice as far up each time.
        while True:
            further = self.depth + self.depth[above]
            if np.array_equal(further, self.depth):
                break
            self.depth, above = further, above[above]
        self.degree: Ints = np.bincount(self.parent[self.parent >= 0], minlength=count) + (
            self.parent >= 0
        )
        order = np.argsort(self.depth, kind="stable")
        ends = np.cumsum(np.bincount(self.depth))
        self.levels: list[Ints] = [
            order[begin:end] for begin, end in zip([0, *ends[:-1]], ends, strict=True)
        ]

    def distances(self, source: int) -> Ints:
        """Links between one host and every other."""
        far = np.zeros(len(self.keys), dtype=np.int64)
        way = [source]
        while self.parent[way[-1]] >= 0:
            way.append(int(self.parent[way[-1]]))
        on_way = np.zeros(len(self.keys), dtype=bool)
        on_way[way] = True
        far[way] = np.arange(len(way))
        for level in self.levels[1:]:
            rest = level[~on_way[level]]
            far[rest] = far[self.parent[rest]] + 1
        return far

    def carries(self, source: int, wants: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], int]:
        """Who handles an event from this host that these want, when it goes only where somebody
        wants it; and its copies.
        """
        ends = wants.copy()
        ends[source] = True
        below = ends.astype(np.int64)
        for level in reversed(self.levels[1:]):
            np.add.at(below, self.parent[level], below[level])
        # The link to the parent is used if hosts on both sides of it are concerned.
        used = (below > 0) & (below < below[0]) & (self.parent >= 0)
        touched = used | ends
        touched[self.parent[used]] = True
        return touched, int(used.sum())


def draw_event(rng: Any, hosts: int, share: float) -> tuple[int, NDArray[np.bool_]]:
    """A publisher, and who wants its event: this share of the hosts, the publisher aside."""
    source = int(rng.integers(0, hosts))
    wants = rng.random(hosts) < share
    wants[source] = False
    return source, wants
