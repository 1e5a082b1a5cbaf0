"""The tree at rest, by its closed form: for numbers of hosts that need no simulation of events.

The neighbours of each host follow from the hosts' keys alone, so degree, depth and look-ups are
counted host by host with the very procedures that the machines use. The changes by a join or a
leave are found as the algorithm finds them: they begin at the host and its successor, whose keys
change, and go on with the hosts that enter or leave a neighbour set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gossamer.overlay.tree.arcs import Host
from gossamer.overlay.tree.reference import Neighbours, ReferenceTree
from gossamer.overlay.tree.ring import Members

# Parent and children, by key.
Tree = dict[int, tuple[int | None, tuple[int, ...]]]


def reckon(tree: ReferenceTree, members: Members, key: int) -> tuple[Neighbours, int]:
    """A host's neighbours, and the look-ups that they took."""
    arc = members.owner(key)
    assert arc is not None
    asking, lookups = tree.neighbours(arc), 0
    try:
        wanted = next(asking)
        while True:
            lookups += 1
            owner = members.owner(wanted)
            assert owner is not None
            wanted = asking.send(owner)
    except StopIteration as done:
        found: Neighbours = done.value
        return found, lookups


class Rest:
    """A whole tree at rest."""

    def __init__(
        self,
        tree: ReferenceTree,
        members: Members,
        progress: Callable[[float], None] = lambda _: None,
    ) -> None:
        self.tree, self.members = tree, members
        self.links: Tree = {}
        self.lookups: list[int] = []
        self.unplaced = 0
        for place, key in enumerate(members.keys):
            found, lookups = reckon(tree, members, key)
            if place % 4096 == 0:
                progress(place / len(members.keys))
            if not found.placed:
                self.unplaced += 1
                continue
            self.lookups.append(lookups)
            parent = found.parent.key if found.parent is not None else None
            self.links[key] = (parent, tuple(child.key for child in found.children))

    def degrees(self) -> dict[int, int]:
        counts: dict[int, int] = {}
        for parent, children in self.links.values():
            degree = len(children) + (parent is not None)
            counts[degree] = counts.get(degree, 0) + 1
        return dict(sorted(counts.items()))

    def depths(self) -> list[int]:
        """Of every host that the root reaches, each child after its parent."""
        roots = [key for key, (parent, _) in self.links.items() if parent is None]
        found: list[int] = []
        level, depth = roots, 0
        while level and depth <= len(self.links):
            found += [depth] * len(level)
            level = [child for key in level for child in self.links[key][1]]
            depth += 1
        return found

    def is_tree(self) -> bool:
        """One root, everybody below it once, and claims that agree."""
        roots = [key for key, (parent, _) in self.links.items() if parent is None]
        mutual = all(
            self.links[child][0] == key
            for key, (_, children) in self.links.items()
            for child in children
        )
        return len(roots) == 1 and mutual and len(self.depths()) == len(self.links)

    def flood(self, source: int) -> tuple[int, int]:
        """A batch that everybody wants, from this host over the links: copies sent, and hosts
        reached (itself included).
        """
        copies, reached = 0, 0
        todo: list[tuple[int, int | None]] = [(source, None)]
        while todo:
            key, sender = todo.pop()
            reached += 1
            parent, children = self.links[key]
            for near in (*((parent,) if parent is not None else ()), *children):
                if near != sender:
                    copies += 1
                    todo.append((near, key))
        return copies, reached


class Change:
    """What a join (or, read backwards, a leave) of one host changes."""

    __slots__ = ("area", "hosts", "links")

    def __init__(self, hosts: int, links: int, area: int) -> None:
        # Other hosts changed, links added or removed, hosts in the area.
        self.hosts, self.links, self.area = (
            hosts,
            links,
            area,
        )


def change(tree: ReferenceTree, members: Members, host: Host) -> Change:
    """The difference that this host makes; it is no member before and none after."""

    def near(key: int) -> dict[int, None]:
        return dict.fromkeys(each.key for each in reckon(tree, members, key)[0].hosts)

    successor = members.owner(host.key)
    before: dict[int, dict[int, None]] = {}
    after: dict[int, dict[int, None]] = {}
    members.add(host)
    todo = [host.key] + ([successor.high] if successor is not None else [])
    looked: dict[int, None] = {}
    while todo:
        key = todo.pop()
        if key in looked:
            continue
        looked[key] = None
        after[key] = near(key)
        members.remove(host.key)
        before[key] = near(key) if key in members.hosts else {}
        members.add(host)
        todo += [
            each
            for each in (*before[key], *after[key])
            if (each in before[key]) != (each in after[key])
        ]
    added = {
        _pair(key, each): None for key in looked for each in after[key] if each not in before[key]
    }
    removed = {
        _pair(key, each): None for key in looked for each in before[key] if each not in after[key]
    }
    ends = dict.fromkeys(end for link in (*added, *removed) for end in link)
    parents = {key: reckon(tree, members, key)[0].parent for key in ends}
    size = len(area(ends, lambda key: _parent(tree, members, parents, key)))
    members.remove(host.key)
    return Change(len(ends) - (host.key in ends), len(added) + len(removed), size)


def _pair(one: int, other: int) -> tuple[int, int]:
    return (min(one, other), max(one, other))


def _parent(
    tree: ReferenceTree, members: Members, known: dict[int, Host | None], key: int
) -> int | None:
    if key not in known:
        known[key] = reckon(tree, members, key)[0].parent
    parent = known[key]
    return parent.key if parent is not None else None


def area(ends: Mapping[int, None], parent: Callable[[int], int | None]) -> dict[int, None]:
    """The reconfiguration area: the smallest subtree that connects these (section 4.2.2)."""
    if not ends:
        return {}
    ways = []
    for key in ends:
        way, at = [key], parent(key)
        while at is not None:
            way.append(at)
            at = parent(at)
        ways.append(way[::-1])
    shared = 0
    while all(len(way) > shared and way[shared] == ways[0][shared] for way in ways):
        shared += 1
    return dict.fromkeys(key for way in ways for key in way[shared - 1 :])
