"""Each checker of the interest plane can fail, on a hand-made history or a broken stand-in."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gossamer.lab.interest import checkers as check
from gossamer.machine import LinkState, Peer
from gossamer.overlay.interest.messages import Beat, Diff, Flip, Flips, Lone, News
from gossamer.overlay.interest.record import (
    Known,
    Record,
    ViewChange,
    apply,
    make_stamp,
    topic_hash,
)
from gossamer.sim.disk import Disk
from gossamer.sim.world import Node

A, B = sorted((topic_hash("a"), topic_hash("b")))


def record(peer: int, life: int = 256, version: int = 1, **topics: int) -> Record:
    """``x=3``: topic x with leave counter 3; topics are A and B."""
    changes = b"".join(
        {"a": A, "b": B}[name] + make_stamp(counter) for name, counter in topics.items()
    )
    return apply(Record(peer, life, 0, f"node-{peer}"), version, changes)


def node(index: int, own: Record | None = None, *known: Record) -> Node:
    """A node whose machine is nothing but what the checkers read. Node i is peer i."""
    made = Node(index, Peer(index), Disk(None))  # type: ignore[arg-type]
    members = {Peer(one.peer): Known(one) for one in ((own,) if own else ()) + known}
    view = SimpleNamespace(
        members=members, digest=hash(tuple(sorted((p, k.digest) for p, k in members.items())))
    )
    made.machine = SimpleNamespace(record=own, view=view)  # type: ignore[assignment]
    return made


def fabric(
    *nodes: Node, links: tuple[tuple[int, int], ...] = (), wanted: dict[int, Any] | None = None
) -> check.Snapshot:
    adjacency: dict[int, list[int]] = {one.index: [] for one in nodes}
    for a, b in links:
        adjacency[a].append(b)
        adjacency[b].append(a)
    live: Any = [(one, one.machine) for one in nodes]
    return check.Snapshot(0, live, wanted or {}, adjacency)


def ring(size: int, chords: bool = False) -> tuple[tuple[int, int], ...]:
    links = [(i, (i + 1) % size) for i in range(size)]
    return tuple(links + ([(i, (i + 2) % size) for i in range(size)] if chords else []))


def change(before: Record | None, after: Record | None, reason: str = "news") -> ViewChange:
    either = after or before
    assert either is not None
    return ViewChange(Peer(either.peer), before, after, reason)


def test_topics() -> None:
    one = node(0, record(0, a=0))
    good, bad = check.Topics(), check.Topics()
    good.quiet(fabric(one, wanted={0: {A: "a"}}))
    bad.quiet(fabric(one, wanted={0: {B: "b"}}))
    assert good.told() == []
    assert bad.told() == [
        "topics: node 0: its record lacks 1 topics that its users want, and has 1 they do not"
    ]


def test_agreement() -> None:
    zero, one = record(0, a=0), record(1)
    good = check.Agreement()
    good.quiet(fabric(node(0, zero, one), node(1, one, zero)))
    assert good.told() == []
    # It does not know node 0.
    for second in (
        node(1, one),
        # It has another stamp.
        node(1, one, record(0, a=1)),
        node(1, one, record(0, version=2, a=0)),
        # It has one that is not there.
        node(1, one, zero, record(7)),
    ):
        bad = check.Agreement()
        bad.quiet(fabric(node(0, zero, one), second))
        assert bad.count == 1, bad.told()


def test_agreement_of_digests() -> None:
    zero, one = node(0, record(0), record(1)), node(1, record(1), record(0))
    one.machine.view.digest += 1  # type: ignore[union-attr]
    bad = check.Agreement()
    bad.quiet(fabric(zero, one))
    assert bad.told() == ["agreement: the views are equal, their digests are not"]


def test_connectivity() -> None:
    nodes = [node(index) for index in range(8)]
    for k, links, is_good in (
        (2, ring(8), True),
        (3, ring(8), False),
        (4, ring(8, chords=True), True),
        (5, ring(8, True), False),
    ):
        checker = check.Connectivity(k)
        checker.quiet(fabric(*nodes, links=links))
        assert (checker.count == 0) == is_good
    # Two nodes cannot do more than to be joined all to all.
    small = check.Connectivity(6)
    small.quiet(fabric(*nodes[:2], links=((0, 1),)))
    assert small.count == 0
    apart = check.Connectivity(1)
    apart.quiet(fabric(*nodes[:4], links=((0, 1), (2, 3))))
    assert apart.count == 1


def test_degrees() -> None:
    nodes = [node(index) for index in range(5)]
    star = tuple((0, other) for other in range(1, 5))
    good, bad = check.Degrees(4), check.Degrees(3)
    good.quiet(fabric(*nodes, links=star))
    bad.quiet(fabric(*nodes, links=star))
    assert (good.count, bad.count) == (0, 1)


def test_diameter() -> None:
    nodes = [node(index) for index in range(60)]
    for links, is_good in ((ring(60), False), (ring(60)[:-2], False)):
        checker = check.Diameter(4)
        checker.quiet(fabric(*nodes, links=links))
        assert (checker.count == 0) == is_good
    wide = check.Diameter(2)
    wide.quiet(fabric(*nodes, links=ring(60)))
    assert (wide.count, wide.found) == (0, 30)
    full = check.Diameter(6)
    full.quiet(fabric(*nodes[:3], links=ring(3)))
    assert full.count == 0


def test_removals() -> None:
    lives = {Peer(1): 256, Peer(2): 512, Peer(3): None}
    checker = check.Removals(lives.get)
    here = node(0, record(0))
    # An earlier life.
    checker.changed(here, change(record(2), None, "failed"), 0)
    # The node is down.
    checker.changed(here, change(record(3), None, "failed"), 0)
    checker.changed(here, change(record(1), record(1, version=2)), 0)
    # The node said so itself.
    checker.changed(here, change(record(1), None, "left"), 0)
    assert checker.count == 0
    checker.changed(here, change(record(1), None, "failed"), 5_000_000)
    assert checker.told()[0].endswith("out of its view at 5.000 s, and it is alive")


def test_burial() -> None:
    late = check.LATE + 1

    def history() -> tuple[check.Burial, Node, Node]:
        checker, dead, one = check.Burial(), node(0, record(0)), node(1, record(1))
        for each in (dead, one):
            checker.started(each, 0)
        checker.changed(one, change(None, record(0), "joined"), 1)
        dead.ended, dead.machine = dead.machine, None
        checker.crashed(dead, 2)
        return checker, dead, one

    checker, _, one = history()
    checker.changed(one, change(record(0), None, "failed"), 3)
    # A new life.
    checker.changed(one, change(None, record(0, life=512), "joined"), 3 + late)
    assert checker.count == 0
    checker, _, one = history()
    two = node(2, record(2))
    checker.started(two, 3)
    # Some node still had it.
    checker.changed(two, change(None, record(0), "joined"), 3 + late)
    assert checker.count == 0
    checker, _, one = history()
    checker.changed(one, change(record(0), None, "failed"), 3)
    checker.changed(one, change(None, record(0), "joined"), 3 + late)
    assert "that life is over" in checker.told()[0]
    checker, _, one = history()
    checker.changed(one, change(record(0), None, "failed"), 3)
    checker.resumed(two, 3 + late)
    # It came while this node stood still.
    checker.changed(two, change(None, record(0), "joined"), 3 + late)
    assert checker.count == 0
    checker, _, one = history()
    one.ended = one.machine
    # The last node that held it is gone, too.
    checker.crashed(one, 3)
    checker.started(two, 4)
    checker.changed(two, change(None, record(0), "joined"), 3 + late)
    assert checker.count == 1


def test_hidden_leave() -> None:
    origin = node(1, record(1, version=9))

    class Blind(ViewChange, frozen=True):
        """Compares topics only, as the seed's competitors do."""

        @property
        def returned(self) -> tuple[bytes, ...]:
            return ()

    def checker() -> check.Hidden:
        made = check.Hidden()
        made.commanded(origin, A, True, 5)
        return made

    here, before, after = (
        node(0, record(0)),
        record(1, version=4, a=0, b=0),
        record(1, version=6, a=1, b=0),
    )
    good, bad, early = checker(), checker(), checker()
    good.changed(here, change(before, after), 0)
    bad.changed(here, Blind(Peer(1), before, after, "news"), 0)
    # It had seen the leave.
    early.changed(here, Blind(Peer(1), record(1, version=5, a=1), after, "news"), 0)
    assert (good.count, bad.count, early.count) == (0, 1, 0)
    new_life = checker()
    new_life.changed(here, Blind(Peer(1), before, record(1, life=512, a=0, b=0), "new life"), 0)
    assert new_life.count == 2


def test_exact() -> None:
    class Loud(ViewChange, frozen=True):
        @property
        def joined(self) -> tuple[bytes, ...]:
            return (A, B)

    def told(*changes: ViewChange) -> check.Exact:
        checker, here = check.Exact(), node(0, record(0))
        checker.started(here, 0)
        for one in changes:
            checker.changed(here, one, 0)
        return checker

    first, second = (
        change(None, record(1, a=0), "joined"),
        change(record(1, a=0), record(1, version=2, a=0, b=0)),
    )
    gone = change(record(1, version=2, a=0, b=0), None, "failed")
    assert told(first, second, gone).count == 0
    # The change comes out of the blue.
    assert told(second).count == 1
    # A step is missing.
    assert told(first, gone).count == 1
    assert told(first, Loud(Peer(1), second.before, second.after, "news")).count == 1
    assert told(first, change(record(1, a=0), record(1, version=2, a=0))).empty == 1
    checker = told(first)
    checker.quiet(fabric(node(0, record(0), record(1, a=0))))
    assert checker.count == 0
    # The view changed and nobody was told.
    checker.quiet(fabric(node(0, record(0), record(1, b=0))))
    checker.quiet(fabric(node(0, record(0))))
    assert checker.count == 2


@pytest.mark.parametrize(
    "message",
    [
        Flip(7, 256, 3, 1, 0),
        Flips((Lone(7, 256, 3, 1, 0),)),
        News(diffs=(Diff(7, 256, 3, 1, b""),)),
        News(records=(record(7, version=3),)),
    ],
)
def test_news_only(message: Any) -> None:
    here = node(0)
    checker = check.NewsOnly()
    checker.linked(here, Peer(1), LinkState.UP, 0)
    checker.sending(here, (Peer(1),), Flip(7, 256, 2, 1, 0), 0, False)
    checker.sending(here, (Peer(1), Peer(2)), message, 0, False)
    checker.sending(here, (Peer(1),), Beat(1), 0, False)
    # The peer asked for it.
    checker.sending(here, (Peer(1),), message, 0, True)
    checker.linked(here, Peer(2), LinkState.DOWN, 0)
    checker.linked(here, Peer(2), LinkState.UP, 0)
    # A new link.
    checker.sending(here, (Peer(2),), message, 0, False)
    assert checker.count == 0
    checker.sending(here, (Peer(1),), message, 0, False)
    assert "told 0000000000000001 again" in checker.told()[0]
    # It is stale.
    checker.sending(here, (Peer(1),), Flip(7, 256, 2, 1, 0), 0, False)
    assert checker.count == 2


def test_hops() -> None:
    checker = check.Hops()
    checker.travelled(5, 5)
    assert checker.count == 0
    checker.travelled(6, 5)
    assert checker.count == 1
