"""One property of the tree each. A complaint is a text; no complaint is an empty list.

``mutual``: both ends of every link in use agree. ``shape``: the links form one tree, of bounded
degree. ``form``: it is the closed form over the true ring. ``closure``: behind every link there is
exactly what the tables say. Together at quiescence. ``ring``: Chord's lists are whole; they are a
few rounds after the rest.
"""

from __future__ import annotations

from collections.abc import Mapping

from gossamer.lab.tree.run import TreeRun, truth
from gossamer.overlay.tree.arcs import Keys
from gossamer.sim.checkers import Receipts


def mutual(edges: Mapping[int, list[int]]) -> list[str]:
    """Whoever uses a link is used over it."""
    return [
        f"{one} uses a link to {other}, which does not"
        for one, several in edges.items()
        for other in several
            if one not in edges.get(other, ())]  # fmt: skip


def shape(edges: Mapping[int, list[int]], degree_max: int | None = None) -> list[str]:
    """Acyclic and connected: a tree; and nobody has too many neighbours."""
    if not edges:
        return []
    found = []
    links = sum(map(len, edges.values())) // 2
    reached: dict[int, None] = {}
    todo = [next(iter(edges))]
    while todo:
        key = todo.pop()
        if key not in reached:
            reached[key] = None
            todo += edges[key]
    if len(reached) < len(edges):
        found.append(f"not connected: {len(reached)} of {len(edges)} hosts reach each other")
    if links != len(edges) - 1:
        found.append(f"not a tree: {links} links among {len(edges)} hosts")
    if degree_max is not None:
        found += [
            f"{key} has {len(near)} neighbours"
            for key, near in edges.items()
            if len(near) > degree_max
        ]
    return found


def form(run: TreeRun) -> list[str]:
    """Every host reckons what the seed's definitions say of the true ring."""
    right, reckoned = truth(run.tree, run.truth), run.neighbours()
    return [
        f"{key} reckons {reckoned.get(key)}; it is {right[key]}"
        for key in right
        if reckoned.get(key) != right[key]
    ]


def claims(run: TreeRun) -> list[str]:
    """Parent and child claim each other."""
    reckoned = run.neighbours()
    found = []
    for key, (parent, children) in reckoned.items():
        if parent is not None and key not in reckoned.get(parent, (None, ()))[1]:
            found.append(f"{key} has the parent {parent}, which does not have the child")
        found += [f"{key} has the child {child}, whose parent it is not" for child in children
                  if reckoned.get(child, (None, ()))[0] != key]  # fmt: skip
    return found


def closure(run: TreeRun) -> list[str]:
    """Each table holds the keys behind its link, and filters that cover all subscriptions there;
    none that is there no more.
    """
    edges = run.edges()
    found = []
    covers = run.content.covers
    for key, near in edges.items():
        tables = run.machine(run.up[key]).routes.tables
        by_key = {run.hosts[run.up[other].index].to: other for other in near}
        for peer, table in tables.items():
            behind = _behind(edges, by_key[peer], key)
            if table is None:
                found.append(f"{key} does not know which keys are behind {by_key[peer]}")
                continue
            arcs = [run.truth.owner(host) for host in behind]
            if table.cover != Keys(
                run.setup.key_bits, [arc.piece for arc in arcs if arc is not None]
            ):
                found.append(f"{key} has other keys behind {by_key[peer]} than there are")
            wanted = [
                wish for host in behind for wish in run.machine(run.up[host]).routes.own.values()
            ]
            for topic, text in wanted if not table.everything else ():
                if not any(
                    covers(topic, outer, text) for known, outer in table.wishes if known == topic
                ):
                    found.append(f"{key} has nothing that covers {text!r} behind {by_key[peer]}")
            found += [
                f"{key} has {wish} behind {by_key[peer]}, which nobody wants"
                for wish in table.wishes
                if wish not in wanted
            ]
    return found


def _behind(edges: Mapping[int, list[int]], first: int, source: int) -> list[int]:
    seen, todo = {source: None}, [first]
    while todo:
        key = todo.pop()
        if key not in seen:
            seen[key] = None
            todo += edges[key]
    return [key for key in seen if key != source]


def at_rest(run: TreeRun) -> list[str]:
    """All of them, for a fabric that is said to be quiet."""
    edges = run.edges()
    placed = {
        key: near
        for key, near in edges.items()
        if near or len(edges) == 1 or run.tree.topmost(*_arc(run, key)) is not None
    }
    degree = run.setup.arity + 1 if run.setup.arity == 2 or run.setup.cap else None
    return [*mutual(edges), *shape(placed, degree), *form(run), *claims(run), *closure(run)]


def ring(run: TreeRun) -> list[str]:
    """Chord's lists are those of the whole ring; with more than r members that includes Zave's
    invariants.
    """
    if run.setup.dht != "chord":
        return []
    lists = run.lists()
    found = lists.complaints() if len(lists.lists) > lists.redundancy else []
    return found if found or lists.ideal() else ["successor lists are not those of the whole ring"]


def _arc(run: TreeRun, key: int) -> tuple[int, int]:
    arc = run.truth.owner(key)
    assert arc is not None
    return arc.piece


def deliveries(run: TreeRun) -> list[str]:
    """Whatever is due was delivered, once, and nothing else; and receipts count those that took the
    event.
    """
    return run.book.judge(Receipts())
