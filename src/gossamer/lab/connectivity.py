"""Exact vertex connectivity, diameter and degrees of a graph, a dictionary of neighbours both ways.

Connectivity is Even's algorithm. Take the nodes in some order, and suppose that a cut of fewer than
k nodes exists. Then either it separates two of the first k nodes, or there is a first node that it
separates from all nodes before it. In the second case fewer than k paths that share nothing but
their start lead from that node to the nodes before it. So it is enough to look for k paths, by
augmentation, between each two of the first k nodes, and from each later node to the nodes before
it. These paths are short, because most nodes have about k neighbours among the nodes before them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

N = TypeVar("N", bound=Hashable)


def degrees(adjacency: Mapping[N, Sequence[N]]) -> tuple[int, float, int]:
    """The least, mean and greatest number of neighbours."""
    counts = [len(neighbours) for neighbours in adjacency.values()]
    return (min(counts), sum(counts) / len(counts), max(counts)) if counts else (0, 0.0, 0)


def diameter(adjacency: Mapping[N, Sequence[N]]) -> int:
    """The longest of the shortest ways, in hops.

    It is -1 if no way leads from one node to another.
    """
    links = _numbered(adjacency)
    everyone = (1 << len(links)) - 1
    # Sets are bits, so all nodes take a step at once.
    reached = [1 << node for node in range(len(links))]
    hops = 0
    while any(nodes != everyone for nodes in reached):
        further = []
        for node, nodes in enumerate(reached):
            for other in links[node]:
                nodes |= reached[other]
            further.append(nodes)
        if further == reached:
            return -1
        reached = further
        hops += 1
    return hops


def vertex_connectivity(adjacency: Mapping[N, Sequence[N]]) -> int:
    """The number of nodes that must go before the rest falls apart or one node is left."""
    k = min(degrees(adjacency)[0], len(adjacency) - 1)
    while k > 0 and not is_connected_to_degree(adjacency, k):
        k -= 1
    return max(k, 0)


def is_connected_to_degree(adjacency: Mapping[N, Sequence[N]], k: int) -> bool:
    """Whether there are more than k nodes and no k - 1 of them are a cut."""
    links = _numbered(adjacency)
    if k <= 0:
        return True
    if len(links) <= k or min(map(len, links)) < k:
        return False
    order = _by_distance(links)
    if len(order) < len(links):
        return False
    first = order[:k]
    for position, node in enumerate(first):
        for other in first[position + 1 :]:
            if other not in links[node] and not _fan(
                links, node, _marks(links[other], len(links)), k, without=other
            ):
                return False
    before = _marks(first, len(links))
    for node in order[k:]:
        if not _fan(links, node, before, k):
            return False
        before[node] = 1
    return True


def _marks(nodes: Sequence[int], size: int) -> bytearray:
    marks = bytearray(size)
    for node in nodes:
        marks[node] = 1
    return marks


def _numbered(adjacency: Mapping[N, Sequence[N]]) -> list[list[int]]:
    numbers = {node: number for number, node in enumerate(adjacency)}
    return [[numbers[other] for other in neighbours] for neighbours in adjacency.values()]


def _by_distance(links: list[list[int]]) -> list[int]:
    """The reachable nodes, nearest first, so that the nodes before a node are near it."""
    order, seen = [0], _marks([0], len(links))
    for node in order:
        for other in links[node]:
            if not seen[other]:
                seen[other] = 1
                order.append(other)
    return order


def _fan(links: list[list[int]], start: int, ends: bytearray, k: int, without: int = -1) -> bool:
    """Whether k paths lead from the start to k different ends, sharing nothing but the start."""
    # The node before each node on the paths found up to now.
    before: dict[int, int] = {}
    count = 0
    # Paths of one link need no search.
    for node in links[start]:
        if ends[node] and count < k:
            before[node] = start
            count += 1
    while count < k:
        trail = _augment(links, start, ends, before, without)
        if trail is None:
            return False
        _apply(trail, before)
        count += 1
    return True


def _augment(
    links: list[list[int]], start: int, ends: bytearray, before: dict[int, int], without: int
) -> list[tuple[int, bool]] | None:
    """One more path, as steps from an end back to the start.

    A node is entered (False) and left (True), as in the split graph. A node on a path can be
    entered only to give up the link that leads to it. Then the search continues from the node
    before it.
    """
    came: dict[tuple[int, bool], tuple[int, bool]] = {
        (start, True): (start, True),
        (start, False): (start, True),
    }
    if without >= 0:
        came[without, False] = came[without, True] = (start, True)
    queue = deque([(start, True)])
    while queue:
        here = node, leaving = queue.popleft()
        # A node that was entered is on a path, so the link from the node before it is given up.
        if not leaving:
            steps = [(before[node], True)]
        else:
            steps = [(other, False) for other in links[node] if before.get(other) != node]
            # The search came to this node against its path, so the node's own entry can be given
            # up, too.
            if node in before:
                steps.append((node, False))
        for step in steps:
            if step in came:
                continue
            came[step] = here
            other, left = step
            if left or other in before:
                queue.append(step)
            elif ends[other]:
                return _trail(came, step)
            elif (other, True) not in came:
                came[other, True] = step
                queue.append((other, True))
    return None


def _trail(
    came: dict[tuple[int, bool], tuple[int, bool]], step: tuple[int, bool]
) -> list[tuple[int, bool]]:
    trail = [step]
    while came[step] != step:
        step = came[step]
        trail.append(step)
    return trail


def _apply(trail: list[tuple[int, bool]], before: dict[int, int]) -> None:
    gained: dict[int, int] = {}
    for (node, _), (source, left) in pairwise(trail):
        if left and node != source:
            # The path enters the node from here.
            gained[node] = source
        elif not left and node != source:
            # The link from node to source is given up.
            before.pop(source, None)
        elif left:
            # The entry of the node is given up, so it is on no path any more.
            before.pop(node, None)
    before.update(gained)
