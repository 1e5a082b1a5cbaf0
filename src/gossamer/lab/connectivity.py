"""What a graph is worth: exact vertex connectivity, diameter, degrees. A graph is a dictionary of neighbours, both ways.

Connectivity is Even's algorithm: take the nodes in some order. If a cut of fewer than k nodes exists, then either it separates
two of the first k nodes, or there is a first node that it separates from all before it, and then fewer than k paths lead from
that node to those before it that share nothing but their start. So it is enough to look for k paths, by augmentation, between
each two of the first k nodes, and from each later node to those before it. Those are short: most nodes have k neighbours
among those before them or nearly so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

N = TypeVar("N", bound=Hashable)


def degrees(adjacency: Mapping[N, Sequence[N]]) -> tuple[int, float, int]:
    """Least, mean and greatest number of neighbours."""
    counts = [len(neighbours) for neighbours in adjacency.values()]
    return (min(counts), sum(counts) / len(counts), max(counts)) if counts else (0, 0.0, 0)


def diameter(adjacency: Mapping[N, Sequence[N]]) -> int:
    """The longest of the shortest ways, in hops; -1 if there is no way between some two nodes."""
    links = _numbered(adjacency)
    everyone = (1 << len(links)) - 1
    reached = [
        1 << node for node in range(len(links))
    ]  # sets as bits: all nodes take a step at once
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
    """How many nodes must go before the rest falls apart or one is left."""
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
    """The nodes that can be reached, nearest first: so that those before a node are near it."""
    order, seen = [0], _marks([0], len(links))
    for node in order:
        for other in links[node]:
            if not seen[other]:
                seen[other] = 1
                order.append(other)
    return order


def _fan(links: list[list[int]], start: int, ends: bytearray, k: int, without: int = -1) -> bool:
    """Whether k paths lead from the start to k different ends, sharing nothing but the start."""
    before: dict[int, int] = {}  # on the paths found so far: who comes before a node
    count = 0
    for node in links[start]:  # paths of one link need no search
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
    """One more path, as steps from an end back to the start; a node is entered (False) and left (True), as in the split graph.

    A node on a path can be entered only to give up the link that leads to it: the search goes on from the one before it.
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
        if not leaving:  # entered, and on a path: give up the link from the one before
            steps = [(before[node], True)]
        else:
            steps = [(other, False) for other in links[node] if before.get(other) != node]
            if node in before:  # come to against its path: its own entry can be given up too
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
            gained[node] = source  # entered from there
        elif not left and node != source:
            before.pop(source, None)  # the link from node to source is given up
        elif left:
            before.pop(node, None)  # its entry is given up: the node is on no path any more
    before.update(gained)
