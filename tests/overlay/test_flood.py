"""Flood by hand: a few machines, messages carried by the test itself."""

from __future__ import annotations

from collections import deque

import pytest

from gossamer.machine import NEVER, SECOND, Deliver, LinkState, Micros, Note, Peer, Send
from gossamer.overlay.batch import HOPS_MAX, MATCHED_MAX, WINDOW_MAX, Batch, Leave, Report
from gossamer.overlay.flood import Finished, Flood, FloodConfig
from gossamer.trace import Duplicate, Rejected

ROWS = b"opaque"


def batch(
    publisher: int = 1,
    first: int = 1,
    count: int = 2,
    floor: int = 1,
    round: int = 0,
    hops: int = 0,
) -> Batch:
    return Batch("t", publisher, 1, first, count, floor, round, hops, ROWS)


class Net:
    """Machines and the messages between them, delivered in order; the owner of each takes every batch at once."""

    def __init__(
        self, edges: list[tuple[int, int]], matched: dict[int, tuple[int, ...]] | None = None
    ) -> None:
        self.matched = matched or {}
        self.machines: dict[int, Flood] = {}
        self.queue: deque[tuple[int, int, object]] = deque()
        self.handed: dict[int, list[Batch]] = {}
        self.copies = 0
        self.lose: set[tuple[int, int]] = set()
        for edge in edges:
            for peer in edge:
                self.machines.setdefault(peer, Flood(Peer(peer), FloodConfig()))
                self.handed.setdefault(peer, [])
        for a, b in edges:
            self.do(a, self.machines[a].link(Peer(b), LinkState.UP, Micros(0)), Micros(0))
            self.do(b, self.machines[b].link(Peer(a), LinkState.UP, Micros(0)), Micros(0))

    def do(self, peer: int, effects: list, now: Micros) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self.queue.extend((peer, to, effect.message) for to in effect.to)
            elif isinstance(effect, Deliver):
                for one in effect.events:
                    self.handed[peer].append(one)
                    key = (one.publisher, one.incarnation, one.first)
                    self.do(
                        peer, self.machines[peer].took(key, self.matched.get(peer, ()), now), now
                    )

    def run(self, now: int = 0) -> None:
        while self.queue:
            sender, to, message = self.queue.popleft()
            if (sender, to) in self.lose:
                continue
            self.copies += isinstance(message, Batch)
            self.do(to, self.machines[to].receive(Peer(sender), message, Micros(now)), Micros(now))

    def wake(self, now: int) -> None:
        for peer, machine in self.machines.items():
            self.do(peer, machine.wake(Micros(now)), Micros(now))
            assert machine.deadline > now
        self.run(now)

    def publish(self, peer: int, what: Batch, now: int = 0) -> None:
        self.do(peer, self.machines[peer].publish(what, Micros(now)), Micros(now))
        self.run(now)


RING = [(1, 2), (2, 3), (3, 4), (4, 1), (1, 3)]


def test_everyone_gets_it_once_and_the_receipt_counts_each_node_once() -> None:
    net = Net(RING, {2: (1, 0), 3: (0, 2), 4: (1, 1)})
    net.publish(1, batch())
    assert {peer: len(got) for peer, got in net.handed.items()} == {1: 1, 2: 1, 3: 1, 4: 1}
    assert net.machines[1].finished == [Finished(1, 1, (2, 3))]
    assert net.copies == 2 * len(RING) - (
        4 - 1
    )  # every link twice, but for each node's way to its parent
    assert all(machine.deadline == NEVER for machine in net.machines.values())


def test_alone_is_complete_unless_told_to_join() -> None:
    alone = Flood(Peer(1), FloodConfig())
    effects = alone.publish(batch(), Micros(0))
    assert [type(e) for e in effects] == [Deliver]
    alone.took((1, 1, 1), (), Micros(0))
    assert alone.finished == [Finished(1, 1, (0, 0))]
    joiner = Flood(Peer(1), FloodConfig(join=True))
    joiner.publish(batch(), Micros(0))
    joiner.took((1, 1, 1), (), Micros(0))
    assert joiner.finished == []
    sent = joiner.link(Peer(2), LinkState.UP, Micros(5))  # goes as soon as there is somebody
    assert [e.message.round for e in sent if isinstance(e, Send)] == [1]


@pytest.mark.parametrize("lost", [(1, 2), (2, 1), (3, 4), (4, 3)])
def test_a_loss_is_made_good_by_sending_again(lost: tuple[int, int]) -> None:
    net = Net([(1, 2), (2, 3), (3, 4)], {4: (1, 1)})
    net.lose.add(lost)
    net.publish(1, batch())
    assert net.machines[1].finished == []
    net.lose.clear()
    net.wake(600_000)
    net.wake(2_000_000)
    assert net.machines[1].finished == [Finished(1, 1, (1, 1))]
    assert all(len(got) == 1 for got in net.handed.values())


def test_a_broken_link_costs_another_round_and_no_second_hand_over() -> None:
    net = Net([(1, 2), (2, 3)], {2: (1, 0), 3: (1, 1)})
    net.lose.add((3, 2))  # 3 gets it, its report does not come
    net.publish(1, batch())
    net.lose.clear()
    for a, b in ((2, 3), (3, 2)):
        net.do(a, net.machines[a].link(Peer(b), LinkState.DOWN, Micros(1000)), Micros(1000))
    net.run(1000)
    assert net.machines[1].finished == []  # not whole: 3 is waited for
    for a, b in ((2, 3), (3, 2)):
        net.do(a, net.machines[a].link(Peer(b), LinkState.UP, Micros(2000)), Micros(2000))
    net.wake(1_000_000)
    assert net.machines[1].finished == [Finished(1, 1, (2, 1))]
    assert all(len(got) == 1 for got in net.handed.values())


def test_a_neighbour_that_does_not_come_back_is_waited_for_only_so_long() -> None:
    net = Net([(1, 2)])
    net.lose.add((2, 1))
    net.publish(1, batch())
    net.do(1, net.machines[1].link(Peer(2), LinkState.DOWN, Micros(0)), Micros(0))
    net.wake(4 * SECOND)
    assert net.machines[1].finished == []
    net.wake(10 * SECOND)
    assert net.machines[1].finished == [Finished(1, 1, (0, 0))]


def test_one_that_said_leave_is_not_waited_for() -> None:
    net = Net([(1, 2)])
    net.do(1, net.machines[1].receive(Peer(2), Leave(), Micros(0)), Micros(0))
    net.do(1, net.machines[1].link(Peer(2), LinkState.DOWN, Micros(0)), Micros(0))
    net.publish(1, batch())
    assert net.machines[1].finished == [Finished(1, 1, (0, 0))]


def test_one_that_was_cut_off_for_cause_is_not_waited_for() -> None:
    net = Net([(1, 2), (1, 3)])
    net.do(1, net.machines[1].link(Peer(2), LinkState.CUT, Micros(0)), Micros(0))
    net.publish(1, batch())
    assert net.machines[1].finished == [Finished(1, 1, (0, 0))]


def test_nothing_below_the_floor_is_handed_over_and_tables_are_pruned() -> None:
    flood = Flood(Peer(9), FloodConfig())
    flood.link(Peer(2), LinkState.UP, Micros(0))
    for first in range(1, 201, 2):
        flood.receive(Peer(2), batch(first=first, floor=max(1, first - 10)), Micros(0))
        flood.took((1, 1, first), (), Micros(0))
    assert flood.remembered <= 6
    effects = flood.receive(Peer(2), batch(first=1, floor=1), Micros(0))
    assert not [e for e in effects if isinstance(e, Deliver)]
    assert [e.record for e in effects if isinstance(e, Note)] == [Duplicate("0000000000000002", 2)]
    assert [e.message for e in effects if isinstance(e, Send)] == [Report(1, 1, 1, 0, True)]


def test_a_full_link_is_served_when_it_is_ready() -> None:
    flood = Flood(Peer(1), FloodConfig())
    flood.link(Peer(2), LinkState.UP, Micros(0))
    flood.link(Peer(2), LinkState.FULL, Micros(0))
    assert not [e for e in flood.publish(batch(), Micros(0)) if isinstance(e, Send)]
    flood.link(Peer(2), LinkState.READY, Micros(1))
    assert [e for e in flood.wake(flood.deadline) if isinstance(e, Send)]


@pytest.mark.parametrize(
    "bad",
    [
        batch(first=5, floor=6),
        batch(first=WINDOW_MAX + 1, floor=1),
        batch(hops=HOPS_MAX),
    ],
)
def test_bad_batches_are_rejected_counted_and_harmless(bad: Batch) -> None:
    flood = Flood(Peer(9), FloodConfig())
    flood.link(Peer(2), LinkState.UP, Micros(0))
    effects = flood.receive(Peer(2), bad, Micros(0))
    assert [type(e.record) for e in effects if isinstance(e, Note)] == [Rejected]
    assert not [e for e in effects if isinstance(e, (Send, Deliver))]
    assert flood.remembered == 0


def test_reports_that_lie_change_nothing_for_others() -> None:
    flood = Flood(Peer(1), FloodConfig())
    for peer in (2, 3):
        flood.link(Peer(peer), LinkState.UP, Micros(0))
    flood.publish(batch(), Micros(0))
    flood.took((1, 1, 1), (), Micros(0))
    flood.receive(Peer(7), Report(1, 1, 1, 0, True, (9, 9)), Micros(0))  # no neighbour
    effects = flood.receive(Peer(2), Report(1, 1, 1, 0, True, (1, 1, 1)), Micros(0))
    assert [type(e.record) for e in effects if isinstance(e, Note)] == [Rejected]
    flood.receive(Peer(2), Report(1, 1, 1, 0, True, (1, 0)), Micros(0))
    flood.receive(Peer(2), Report(1, 1, 1, 0, True, (1, 0)), Micros(0))  # twice
    flood.receive(Peer(3), Report(1, 1, 1, 0, True), Micros(0))
    assert flood.finished == [Finished(1, 1, (1, 0))]


def test_sums_stop_where_others_could_no_longer_read_them() -> None:
    flood = Flood(Peer(9), FloodConfig())
    for peer in (2, 3):
        flood.link(Peer(peer), LinkState.UP, Micros(0))
    flood.receive(Peer(2), batch(), Micros(0))
    flood.took((1, 1, 1), (1, 1), Micros(0))
    effects = flood.receive(Peer(3), Report(1, 1, 1, 0, True, (MATCHED_MAX, 0)), Micros(0))
    assert [e.message.matched for e in effects if isinstance(e, Send)] == [(MATCHED_MAX, 1)]


def test_a_link_that_comes_up_during_a_round_is_part_of_it() -> None:
    net = Net([(1, 2), (3, 4)], {3: (1, 1), 4: (1, 0)})
    net.lose.add((2, 1))  # the round stays open
    net.publish(1, batch())
    net.lose.clear()
    for a, b in ((2, 3), (3, 2)):
        net.do(a, net.machines[a].link(Peer(b), LinkState.UP, Micros(1)), Micros(1))
    for a, b in ((1, 3), (3, 1)):
        net.do(a, net.machines[a].link(Peer(b), LinkState.UP, Micros(1)), Micros(1))
    net.run(1)
    net.wake(600_000)
    assert net.machines[1].finished == [Finished(1, 1, (2, 1))]


def test_a_node_that_came_back_does_not_call_anything_whole_at_once() -> None:
    flood = Flood(Peer(9), FloodConfig(), restarted=True)
    flood.link(Peer(2), LinkState.UP, Micros(0))

    def report(at: int, first: int) -> Report:
        flood.receive(Peer(2), batch(first=first), Micros(at))
        effects = flood.took((1, 1, first), (), Micros(at))
        [send] = [e for e in effects if isinstance(e, Send)]
        return send.message

    assert not report(1, 1).whole
    assert report(6 * SECOND, 3).whole


def test_a_neighbour_that_comes_back_after_its_report_is_not_counted_twice() -> None:
    flood = Flood(Peer(1), FloodConfig())
    for peer in (2, 3):
        flood.link(Peer(peer), LinkState.UP, Micros(0))
    flood.publish(batch(), Micros(0))
    flood.took((1, 1, 1), (), Micros(0))
    flood.receive(Peer(2), Report(1, 1, 1, 0, True, (1, 1)), Micros(1))
    flood.link(Peer(2), LinkState.DOWN, Micros(2))
    flood.link(Peer(2), LinkState.UP, Micros(3))
    flood.receive(Peer(2), Report(1, 1, 1, 0, True, (1, 1)), Micros(4))
    flood.receive(Peer(3), Report(1, 1, 1, 0, True), Micros(5))
    assert flood.finished == [Finished(1, 1, (1, 1))]


def test_nobody_waits_in_a_circle_when_a_relay_forgets() -> None:
    net = Net([(1, 2), (2, 3), (3, 4), (4, 2)], {3: (1, 1), 4: (1, 0)})
    net.lose |= {
        (3, 4),
        (4, 3),
        (3, 2),
        (4, 2),
    }  # 3 and 4 have it from 2 and wait for each other's word
    net.publish(1, batch())
    net.lose.clear()
    for a in (1, 3, 4):  # 2 crashes, and comes back with no memory
        net.do(a, net.machines[a].link(Peer(2), LinkState.DOWN, Micros(1000)), Micros(1000))
    net.machines[2] = Flood(Peer(2), FloodConfig(), restarted=True)
    for a in (3, 4, 1):
        net.do(a, net.machines[a].link(Peer(2), LinkState.UP, Micros(2000)), Micros(2000))
        net.do(2, net.machines[2].link(Peer(a), LinkState.UP, Micros(2000)), Micros(2000))
    net.run(2000)
    for second in range(1, 20):
        net.wake(second * SECOND)
    assert net.machines[1].finished == [Finished(1, 1, (2, 1))]
    assert {peer: len(got) for peer, got in net.handed.items()} == {
        1: 1,
        2: 2,
        3: 1,
        4: 1,
    }  # 2 in two lives
