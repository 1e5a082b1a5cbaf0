"""The word of events that were completed without a node, and false words."""

from __future__ import annotations

import pytest
from tests.node.test_follow import Fabric

from gossamer.machine import Dial, Effect, LinkState, Micros, Peer, Send
from gossamer.node import Route
from gossamer.node.missed import PATIENCE, Debts, Heard, Missed
from gossamer.overlay.batch import Left
from gossamer.trace import Rejected


def rejected(fabric: Fabric, number: int) -> list[str]:
    notes = fabric.places[number].notes
    return [record.reason for record in notes if isinstance(record, Rejected)]


@pytest.mark.parametrize("route", [Route.DIRECT, Route.FLOOD])
def test_events_that_this_node_had_all_the_same_do_not_come_again(route: Route) -> None:
    fabric = Fabric(3, retention="1h")
    fabric.enter(1, route=route, gaps=True)
    fabric.publish(0, 1, 2, 3)
    fabric.inject(0, 1, Missed("t", fabric.peer(0), 1, 1, 3, False))
    fabric.run(5)
    assert fabric.numbers(1) == [1, 2, 3]
    assert not fabric.gaps(1)


def test_a_word_that_comes_too_late_is_a_gap_and_is_told_once() -> None:
    fabric = Fabric(3, retention="1h")
    fabric.enter(1, route=Route.DIRECT, gaps=True)
    fabric.publish(0, 1, 2, 3)
    # Its position has passed them.
    fabric.run(10)
    for _ in range(2):
        fabric.inject(0, 1, Missed("t", fabric.peer(0), 1, 2, 3, False))
        fabric.run(5)
    [gap] = fabric.gaps(1)
    assert (gap.publisher, gap.after, gap.before) == (fabric.peer(0), (1, 1), (1, 4))
    assert fabric.numbers(1) == [1, 2, 3]


def test_a_publisher_speaks_only_for_itself() -> None:
    fabric = Fabric(3, retention="1h")
    fabric.enter(1, route=Route.DIRECT, gaps=True)
    fabric.inject(2, 1, Missed("t", fabric.peer(0), 1, 1, 3, False))
    fabric.inject(0, 1, Missed("t", fabric.peer(0), 1, 3, 1, False))
    fabric.run(5)
    assert rejected(fabric, 1) == ["a false word of missed events"] * 2
    assert not fabric.gaps(1)


def test_a_relay_passes_the_word_on_to_those_behind_it_once() -> None:
    fabric = Fabric(3)
    fabric.enter(2, gaps=True)
    fabric.sent = []
    for _ in range(3):
        fabric.inject(0, 1, Missed("t", 77, 1, 5, 6, True))
    fabric.run(20)
    passed = [place.number for _, place, _, message, _ in fabric.sent if type(message) is Missed]
    # Each passes it to the one other neighbour, from which it did not hear it.
    assert sorted(passed) == [0, 1, 2]
    [gap] = fabric.gaps(2)
    assert (gap.publisher, gap.after, gap.before) == (77, (1, 4), (1, 7))


def test_a_debt_is_told_once_over_each_link_and_what_was_added_follows() -> None:
    out: list[Effect] = []
    debts = Debts(out, lambda peer: "node-2")
    peer = Peer(2)

    def told() -> list[Missed]:
        debts.wake(Micros(clock))
        said = [effect.message for effect in out if isinstance(effect, Send)]
        out.clear()
        return said  # type: ignore[return-value]

    clock = 0
    debts.owe([Left(peer, "t", 1, 1, 5, 9, False)], Micros(clock))
    debts.wake(Micros(clock))
    assert out == [Dial("node-2", peer)]
    out.clear()
    for clock in (10, 20):
        debts.link(peer, LinkState.UP, Micros(clock))
        assert told() == [Missed("t", 1, 1, 5, 9, False)]
        assert told() == []
        assert debts.deadline == clock + PATIENCE
        debts.link(peer, LinkState.DOWN, Micros(clock + 5))
    clock = 30
    debts.link(peer, LinkState.UP, Micros(clock))
    assert len(told()) == 1
    debts.owe([Left(peer, "t", 1, 1, 10, 12, False)], Micros(clock))
    assert told() == [Missed("t", 1, 1, 5, 12, False)]
    assert debts.heard(peer, Heard("t", 1, 1, 5, 9)) == []
    assert debts.deadline == 0
    assert told() == [Missed("t", 1, 1, 10, 12, False)]
    assert debts.heard(peer, Heard("t", 1, 1, 10, 12)) == [LinkState.UP]
