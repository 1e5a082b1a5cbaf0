"""A random connected graph of neighbours, drawn from the seed."""

from __future__ import annotations

from random import Random


def neighbours(nodes: int, degree: int, rng: Random) -> list[tuple[int, int]]:
    """Pairs of nodes that are neighbours.

    Random rings are laid over each other, so the graph is connected. If the degree is odd, a
    matching is added.
    """
    if nodes <= degree + 1:
        return [(a, b) for a in range(nodes) for b in range(a + 1, nodes)]
    edges: dict[tuple[int, int], None] = {}
    for _ in range(max(1, degree // 2)):
        ring = _shuffled(nodes, rng)
        for a, b in zip(ring, ring[1:] + ring[:1], strict=True):
            edges[min(a, b), max(a, b)] = None
    if degree % 2 and degree > 1:
        order = _shuffled(nodes, rng)
        for a, b in zip(order[::2], order[1::2], strict=False):
            edges[min(a, b), max(a, b)] = None
    return list(edges)


def _shuffled(count: int, rng: Random) -> list[int]:
    return sorted(range(count), key=lambda _: rng.random())
