"""The interest plane's overlay for a million nodes, vectorised (needs NumPy).

The graph is the same as in overlay/interest/graph.py. The model follows a change over it round by
round, and finds the rest of the graph when nodes fail.

A change goes from a node to all its neighbours but those it came from. So in a quiet fabric with
equal links a node that is some hops away knows it after as many rounds, and gets a copy from each
neighbour that is not farther away than itself. The graph is compared link by link with the real
one, and rounds and copies with the full simulation (tests/lab/test_steady_models.py).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gossamer.machine import Peer
from gossamer.overlay.interest import graph

Ints = NDArray[np.int64]
Peers = NDArray[np.uint64]
_FIRST, _SECOND = np.uint64(graph._FIRST), np.uint64(graph._SECOND)


def draw_peers(nodes: int, seed: int) -> Peers:
    """Draw this number of different peers, sorted."""
    rng = np.random.Generator(np.random.PCG64([seed, nodes]))
    peers = np.zeros(0, dtype=np.uint64)
    while len(peers) < nodes:
        more = rng.integers(1, 2**64, nodes - len(peers), dtype=np.uint64, endpoint=False)
        peers = np.unique(np.concatenate([peers, more]))
    return peers


def _mix(values: Peers) -> Peers:
    """graph._mix for many values."""
    values = (values ^ values >> np.uint64(30)) * _FIRST
    values = (values ^ values >> np.uint64(27)) * _SECOND
    return values ^ values >> np.uint64(31)


class Overlay:
    """The neighbours of all nodes. Nodes are known by their places in the sorted peers."""

    def __init__(self, peers: Peers, k: int) -> None:
        self.size, self.k = len(peers), k
        pairs = (
            _few(peers, k) if self.size <= graph.SMALL * max(k, 2) else _many(peers, max(k, 2), k)
        )
        both = np.sort(
            np.concatenate(
                [pairs[:, 0] * self.size + pairs[:, 1], pairs[:, 1] * self.size + pairs[:, 0]]
            )
        )
        both = both[np.concatenate([[True], both[1:] != both[:-1]])] if len(both) else both
        self.begins: Ints = np.searchsorted(both, np.arange(self.size + 1) * self.size).astype(
            np.int64
        )
        self.near: Ints = (both % self.size).astype(np.int64)
        self.degree: Ints = np.diff(self.begins)

    def links(self) -> Ints:
        """Every link twice, as (from, to)."""
        return np.stack([np.repeat(np.arange(self.size), self.degree), self.near], axis=1)

    def rounds(self, source: int, alive: NDArray[np.bool_] | None = None) -> Ints:
        """The rounds until each node knows a change of this one. -1 stands for never."""
        found = np.full(self.size, -1, dtype=np.int64)
        found[source], edge, number = 0, np.array([source], dtype=np.int64), 0
        while len(edge):
            number += 1
            near = self._around(edge)
            fresh = near[found[near] < 0]
            if alive is not None:
                fresh = fresh[alive[fresh]]
            found[fresh] = number
            edge = np.unique(fresh)
        return found

    def copies(self, rounds: Ints) -> Ints:
        """Copies of that change into each node."""
        at, near = np.repeat(np.arange(self.size), self.degree), self.near
        sends = (rounds[near] <= rounds[at]) & (rounds[near] >= 0)
        return np.bincount(at[sends], minlength=self.size)

    def _around(self, nodes: Ints) -> Ints:
        counts = self.degree[nodes]
        starts = np.repeat(self.begins[nodes] - (np.cumsum(counts) - counts), counts)
        return np.asarray(self.near[starts + np.arange(len(starts))], dtype=np.int64)


def _few(peers: Peers, k: int) -> Ints:
    places = {int(peer): place for place, peer in enumerate(peers)}
    linked = graph.edges([Peer(int(peer)) for peer in peers], k)
    pairs = [(places[one], places[other]) for one, others in linked.items() for other in others]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def _many(peers: Peers, wanted: int, k: int) -> Ints:
    """graph.Graph.edges, with every node's picks at once."""
    size = len(peers)
    me = np.arange(size, dtype=np.int64)
    picking = _Picking(peers, k)
    pairs = [np.stack([me, (me + 1) % size], axis=1)]
    for index in range(wanted - 2):
        number, back = 1 + index // 2, index % 2 == 1
        pick = picking.pick(number, -1 if back else 1)
        # A half ring.
        if not back and index == wanted - 3:
            other = picking.pick(number, -1)
            places = picking.places[number]
            takes = _mix(places ^ places[other]) > _mix(places ^ places[pick])
            pick = np.where(takes, other, pick)
        picking.picks.append(pick)
        pairs.append(np.stack([me, pick], axis=1))
    return np.concatenate(pairs)


class _Picking:
    def __init__(self, peers: Peers, k: int) -> None:
        self.size, self.span = len(peers), graph.SPAN_LOW.get(k, graph.SPAN)
        self.me = np.arange(self.size, dtype=np.int64)
        self.picks: list[Ints] = []
        self.places: dict[int, Peers] = {}
        self._order: dict[int, Ints] = {}
        self._rank: dict[int, Ints] = {}
        self._reach = reach(self.size, k)
        once = _mix(peers)
        for number in range(1, 1 + (max(k, 2) - 1) // 2):
            self.places[number] = _mix(once ^ np.uint64(graph._salt(number)))
            order = np.argsort(self.places[number], kind="stable")
            self._order[number], self._rank[number] = order, np.empty(self.size, dtype=np.int64)
            self._rank[number][order] = self.me

    def pick(self, number: int, side: int) -> Ints:
        """graph.Graph._pick: the first node that is far and spaced.

        If there is none, it is the last one that was looked at.
        """
        chosen = np.full(self.size, -1, dtype=np.int64)
        open_ = self.me
        other = open_
        for hop in range(1, self._reach + 1):
            other = self._order[number][(self._rank[number][open_] + side * hop) % self.size]
            fit = (other - open_ + self.span - 1) % self.size >= 2 * self.span - 1
            for pick in self.picks:
                fit &= (other - pick[open_] + 1) % self.size >= 3
            chosen[open_[fit]] = other[fit]
            open_, other = open_[~fit], other[~fit]
            if not len(open_):
                break
        chosen[open_] = other
        return chosen


def reach(size: int, k: int) -> int:
    """graph.Graph._reach for this number of members."""
    unfit = 2 * graph.SPAN_LOW.get(k, graph.SPAN) - 2 + 3 * (max(k, 2) - 3)
    found, chance, against = 1, unfit << graph.DOUBT, size
    while found <= unfit and chance > against:
        found, chance, against = found + 1, chance * unfit, against * size
    return found


def survivors(nodes: int, share: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """The nodes that are left when this share of the nodes, drawn at random, fails at once."""
    alive = np.ones(nodes, dtype=bool)
    alive[rng.permutation(nodes)[: round(share * nodes)]] = False
    return alive
