"""Flood by hand: a few machines, messages carried by the test itself."""

from __future__ import annotations

from collections import deque

import pytest

from gossamer.machine import NEVER, SECOND, Effect, LinkState, Micros, Note, Peer, Send
from gossamer.overlay.batch import (
    HOPS_MAX,
    MATCHED_MAX,
    WINDOW_MAX,
    Batch,
    Busy,
    Leave,
    Left,
    Report,
)
from gossamer.overlay.flood import Flood, FloodConfig
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


class Owned(Flood):
    """A machine with an owner that takes every batch at once, and lists of all that the machine
    says.
    """

    def __init__(
        self,
        peer: int,
        config: FloodConfig | None = None,
        *,
        matched: tuple[int, ...] = (),
        restarted: bool = False,
    ) -> None:
        self.handed: list[Batch] = []
        self.receipts: list[tuple[int, int, tuple[int, ...]]] = []
        self.out: list[Effect] = []
        self.left: list[Left] = []

        def arrive(batch: Batch, now: Micros, *_: object) -> tuple[int, ...] | None:
            self.handed.append(batch)
            return matched

        super().__init__(
            Peer(peer), config or FloodConfig(), arrive,
            lambda *receipt: self.receipts.append(receipt),
            lambda left, now: self.left.append(left), self.out, restarted=restarted,
        )  # fmt: skip

    def take(self) -> list[Effect]:
        effects = self.out[:]
        self.out.clear()
        return effects


class Net:
    """Machines and the messages between them, delivered in order.

    The owner of each machine takes every batch at once.
    """

    def __init__(
        self, edges: list[tuple[int, int]], matched: dict[int, tuple[int, ...]] | None = None
    ) -> None:
        self.matched = matched or {}
        self.machines: dict[int, Owned] = {}
        self.queue: deque[tuple[int, int, object]] = deque()
        self.copies = 0
        # The tail of a link that is about to break, and what a slow link has not brought yet.
        self.lose: set[tuple[int, int]] = set()
        self.slow: set[tuple[int, int]] = set()
        self.later: list[tuple[int, int, object]] = []
        for edge in edges:
            for peer in edge:
                self.machines.setdefault(peer, Owned(peer, matched=self.matched.get(peer, ())))
        for a, b in edges:
            self.link(a, b, LinkState.UP, 0)

    @property
    def handed(self) -> dict[int, int]:
        return {peer: len(machine.handed) for peer, machine in self.machines.items()}

    def link(self, a: int, b: int, state: LinkState, now: int) -> None:
        for one, other in ((a, b), (b, a)):
            self.machines[one].link(Peer(other), state, Micros(now))
            self.flush(one)

    def flush(self, peer: int) -> None:
        for effect in self.machines[peer].take():
            if isinstance(effect, Send):
                self.queue.extend((peer, to, effect.message) for to in effect.to)

    def run(self, now: int = 0) -> None:
        while self.queue:
            sender, to, message = self.queue.popleft()
            if (sender, to) in self.lose:
                continue
            if (sender, to) in self.slow:
                self.later.append((sender, to, message))
                continue
            self.copies += isinstance(message, Batch)
            self.machines[to].receive(Peer(sender), message, Micros(now))
            self.flush(to)

    def wake(self, now: int) -> None:
        for peer, machine in self.machines.items():
            machine.engine.wake(Micros(now))
            self.flush(peer)
            assert machine.engine.deadline > now
        self.run(now)

    def publish(self, peer: int, what: Batch, now: int = 0) -> None:
        self.machines[peer].engine.publish(what, Micros(now))
        self.flush(peer)
        self.run(now)


RING = [(1, 2), (2, 3), (3, 4), (4, 1), (1, 3)]


def test_everyone_gets_it_once_and_the_receipt_counts_each_node_once() -> None:
    net = Net(RING, {2: (1, 0), 3: (0, 2), 4: (1, 1)})
    net.publish(1, batch())
    assert net.handed == {1: 1, 2: 1, 3: 1, 4: 1}
    assert net.machines[1].receipts == [(1, 1, (2, 3))]
    # Every link is used twice, but for each node's way to its parent.
    assert net.copies == 2 * len(RING) - (4 - 1)
    for machine in net.machines.values():
        # Each node looks once more at those that it waits for, and there are none.
        machine.engine.wake(machine.engine.deadline)
        assert machine.engine.deadline == NEVER


def test_alone_is_complete_unless_told_to_join() -> None:
    alone = Owned(1)
    alone.engine.publish(batch(), Micros(0))
    assert alone.take() == []
    assert alone.receipts == [(1, 1, (0, 0))]
    joiner = Owned(1, FloodConfig(join=True))
    joiner.engine.publish(batch(), Micros(0))
    assert joiner.receipts == []
    # The batch goes as soon as there is another node.
    joiner.link(Peer(2), LinkState.UP, Micros(5))
    assert [e.message.round for e in joiner.take() if isinstance(e, Send)] == [1]


def test_a_broken_link_costs_another_round_and_no_second_hand_over() -> None:
    net = Net([(1, 2), (2, 3)], {2: (1, 0), 3: (1, 1)})
    # 3 gets the batch, and its report does not come.
    net.lose.add((3, 2))
    net.publish(1, batch())
    net.lose.clear()
    net.link(2, 3, LinkState.DOWN, 1000)
    net.run(1000)
    # The round is not whole, because 3 is waited for.
    assert net.machines[1].receipts == []
    net.link(2, 3, LinkState.UP, 2000)
    net.wake(1_000_000)
    assert net.machines[1].receipts == [(1, 1, (2, 1))]
    assert set(net.handed.values()) == {1}


def test_a_neighbour_that_does_not_come_back_is_waited_for_only_so_long() -> None:
    net = Net([(1, 2)])
    net.lose.add((2, 1))
    net.publish(1, batch())
    net.machines[1].link(Peer(2), LinkState.DOWN, Micros(0))
    net.wake(4 * SECOND)
    assert net.machines[1].receipts == []
    net.wake(10 * SECOND)
    assert net.machines[1].receipts == [(1, 1, (0, 0))]


def test_one_that_said_leave_is_not_waited_for() -> None:
    net = Net([(1, 2)])
    net.machines[1].receive(Peer(2), Leave(), Micros(0))
    net.machines[1].link(Peer(2), LinkState.DOWN, Micros(0))
    net.publish(1, batch())
    assert net.machines[1].receipts == [(1, 1, (0, 0))]


def test_one_that_was_cut_off_for_cause_is_not_waited_for() -> None:
    net = Net([(1, 2), (1, 3)])
    net.machines[1].link(Peer(2), LinkState.CUT, Micros(0))
    net.publish(1, batch())
    assert net.machines[1].receipts == [(1, 1, (0, 0))]


def test_nothing_below_the_floor_is_handed_over_and_tables_are_pruned() -> None:
    flood = Owned(9)
    flood.link(Peer(2), LinkState.UP, Micros(0))
    for first in range(1, 201, 2):
        flood.receive(Peer(2), batch(first=first, floor=max(1, first - 10)), Micros(0))
    assert flood.remembered <= 6
    flood.take()
    flood.receive(Peer(2), batch(first=1, floor=1), Micros(0))
    effects = flood.take()
    assert len(flood.handed) == 100
    assert [e.record for e in effects if isinstance(e, Note)] == [Duplicate("0000000000000002", 2)]
    assert [e.message for e in effects if isinstance(e, Send)] == [Report(1, 1, 1, 0, True)]


def test_a_full_link_is_served_when_it_is_ready() -> None:
    flood = Owned(1)
    flood.link(Peer(2), LinkState.UP, Micros(0))
    flood.link(Peer(2), LinkState.FULL, Micros(0))
    flood.engine.publish(batch(), Micros(0))
    assert flood.take() == []
    flood.link(Peer(2), LinkState.READY, Micros(1))
    assert [e.message.first for e in flood.take() if isinstance(e, Send)] == [1]


def test_a_batch_that_a_full_queue_refused_goes_when_it_is_ready() -> None:
    flood = Owned(1)
    flood.link(Peer(2), LinkState.UP, Micros(0))
    flood.engine.publish(batch(), Micros(0))
    [send] = flood.take()
    flood.engine.refused(Peer(2), send.message)
    flood.engine.publish(batch(first=3), Micros(0))
    assert flood.take() == []
    flood.link(Peer(2), LinkState.READY, Micros(1))
    assert [e.message.first for e in flood.take() if isinstance(e, Send)] == [1, 3]


def test_a_neighbour_that_says_nothing_is_cut_off_and_one_that_is_busy_is_not() -> None:
    flood = Owned(1)
    for peer in (2, 3):
        flood.link(Peer(peer), LinkState.UP, Micros(0))
    flood.engine.publish(batch(), Micros(0))
    flood.take()
    blamed = []
    while not blamed:
        now = flood.engine.deadline
        flood.receive(Peer(3), Busy(1, 1, 1, 0), now)
        flood.engine.wake(now)
        blamed = [e.record for e in flood.take() if isinstance(e, Note)]
    assert blamed == [Rejected("0000000000000002", "does not report", cut=True)]
    assert 15 * SECOND <= now <= 19 * SECOND
    assert flood.receipts == []
    flood.receive(Peer(3), Report(1, 1, 1, 0, True, (1, 1)), now)
    assert flood.receipts == [(1, 1, (1, 1))]


def test_a_node_that_waits_for_others_says_that_it_is_busy() -> None:
    flood = Owned(9)
    for peer in (2, 3):
        flood.link(Peer(peer), LinkState.UP, Micros(0))
    flood.receive(Peer(2), batch(), Micros(0))
    flood.take()
    flood.engine.wake(flood.engine.deadline)
    assert [(e.to, e.message) for e in flood.take() if isinstance(e, Send)] == [
        ((Peer(2),), Busy(1, 1, 1, 0))
    ]


@pytest.mark.parametrize(
    "bad",
    [
        batch(first=5, floor=6),
        batch(first=WINDOW_MAX + 1, floor=1),
        batch(hops=HOPS_MAX),
    ],
)
def test_bad_batches_are_rejected_counted_and_harmless(bad: Batch) -> None:
    flood = Owned(9)
    flood.link(Peer(2), LinkState.UP, Micros(0))
    flood.take()
    flood.receive(Peer(2), bad, Micros(0))
    effects = flood.take()
    assert [type(e.record) for e in effects if isinstance(e, Note)] == [Rejected]
    assert not [e for e in effects if isinstance(e, Send)]
    assert flood.remembered == 0


def test_reports_that_lie_change_nothing_for_others() -> None:
    flood = Owned(1)
    for peer in (2, 3):
        flood.link(Peer(peer), LinkState.UP, Micros(0))
    flood.engine.publish(batch(), Micros(0))
    # 7 is no neighbour.
    flood.receive(Peer(7), Report(1, 1, 1, 0, True, (9, 9)), Micros(0))
    flood.take()
    flood.receive(Peer(2), Report(1, 1, 1, 0, True, (1, 1, 1)), Micros(0))
    effects = flood.take()
    assert [type(e.record) for e in effects if isinstance(e, Note)] == [Rejected]
    flood.receive(Peer(2), Report(1, 1, 1, 0, True, (1, 0)), Micros(0))
    # The report comes twice.
    flood.receive(Peer(2), Report(1, 1, 1, 0, True, (1, 0)), Micros(0))
    flood.receive(Peer(3), Report(1, 1, 1, 0, True), Micros(0))
    assert flood.receipts == [(1, 1, (1, 0))]


def test_sums_stop_where_others_could_no_longer_read_them() -> None:
    flood = Owned(9, matched=(1, 1))
    for peer in (2, 3):
        flood.link(Peer(peer), LinkState.UP, Micros(0))
    flood.receive(Peer(2), batch(), Micros(0))
    flood.take()
    flood.take()
    flood.receive(Peer(3), Report(1, 1, 1, 0, True, (MATCHED_MAX, 0)), Micros(0))
    effects = flood.take()
    assert [e.message.matched for e in effects if isinstance(e, Send)] == [(MATCHED_MAX, 1)]


def test_a_link_that_comes_up_during_a_round_is_part_of_it() -> None:
    net = Net([(1, 2), (3, 4)], {3: (1, 1), 4: (1, 0)})
    # The round stays open.
    net.slow.add((2, 1))
    net.publish(1, batch())
    net.slow.clear()
    net.link(2, 3, LinkState.UP, 1)
    net.link(1, 3, LinkState.UP, 1)
    net.queue.extendleft(net.later)
    net.run(1)
    assert net.machines[1].receipts == [(1, 1, (2, 1))]


def test_a_node_that_came_back_does_not_call_anything_whole_at_once() -> None:
    flood = Owned(9, restarted=True)
    flood.link(Peer(2), LinkState.UP, Micros(0))

    def report(at: int, first: int) -> Report:
        flood.receive(Peer(2), batch(first=first), Micros(at))
        [send] = [e for e in flood.take() if isinstance(e, Send)]
        return send.message

    assert not report(1, 1).whole
    assert report(6 * SECOND, 3).whole


def test_a_neighbour_that_comes_back_after_its_report_is_not_counted_twice() -> None:
    flood = Owned(1)
    for peer in (2, 3):
        flood.link(Peer(peer), LinkState.UP, Micros(0))
    flood.engine.publish(batch(), Micros(0))
    flood.receive(Peer(2), Report(1, 1, 1, 0, True, (1, 1)), Micros(1))
    flood.link(Peer(2), LinkState.DOWN, Micros(2))
    flood.link(Peer(2), LinkState.UP, Micros(3))
    flood.receive(Peer(2), Report(1, 1, 1, 0, True, (1, 1)), Micros(4))
    flood.receive(Peer(3), Report(1, 1, 1, 0, True), Micros(5))
    assert flood.receipts == [(1, 1, (1, 1))]


def test_nobody_waits_in_a_circle_when_a_relay_forgets() -> None:
    net = Net([(1, 2), (2, 3), (3, 4), (4, 2)], {3: (1, 1), 4: (1, 0)})
    # 3 and 4 have the batch from 2, and each waits for the other's report.
    net.lose |= {
        (3, 4),
        (4, 3),
        (3, 2),
        (4, 2),
    }
    net.publish(1, batch())
    net.lose.clear()
    before = net.machines[2]
    # 2 crashes, and comes back with no memory.
    for a in (1, 3, 4):
        net.link(a, 2, LinkState.DOWN, 1000)
    net.machines[2] = Owned(2, restarted=True)
    for a in (3, 4, 1):
        net.link(a, 2, LinkState.UP, 2000)
    net.run(2000)
    for second in range(1, 20):
        net.wake(second * SECOND)
    assert net.machines[1].receipts == [(1, 1, (2, 1))]
    assert net.handed == {1: 1, 2: 1, 3: 1, 4: 1}
    # 2 has the batch in each of its two lives.
    assert len(before.handed) == 1
