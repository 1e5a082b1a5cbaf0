"""Which nodes are alive: probes, suspicion and verdict, each in its time, rebuttal and vouching.

A node that slept accuses no other.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from gossamer.machine import SECOND, LinkState, Micros, Peer
from gossamer.overlay.interest.core import Interest
from gossamer.overlay.interest.detector import MOMENT
from gossamer.overlay.interest.messages import Beat, Flip, Gone, News, Probe, Suspicion, Vouch
from gossamer.overlay.interest.record import Record
from worldnet import Net, befriend, sends, single, told

SILENT, HELPER, OTHER = Peer(11), Peer(12), Peer(13)


class Watch:
    """A node, one neighbour that goes silent, and two that do not."""

    def __init__(self, **config: int) -> None:
        self.node = single(1, config=config)
        self.now = 0
        self.sent: list[tuple[int, object]] = []
        self.gone_at: int | None = None
        self.beating = [HELPER, OTHER]
        for peer in (SILENT, HELPER, OTHER):
            befriend(self.node, peer)

    def run(self, seconds: float) -> None:
        stop = self.now + int(seconds * SECOND)
        while self.now < stop:
            self.now += SECOND // 20
            for peer in self.beating:
                self.take(self.node.receive(peer, Beat(self.node.view.digest), Micros(self.now)))
            if self.node.deadline <= self.now:
                self.take(self.node.wake(Micros(self.now)))

    def take(self, effects: list) -> None:
        self.sent += [(self.now, message) for message in sends(effects)]
        for change in told(effects):
            if change.peer == SILENT and change.after is None:
                self.gone_at = self.now

    def hear(self, message: object, sender: Peer = HELPER) -> None:
        self.take(self.node.receive(sender, message, Micros(self.now)))

    def first(self, kind: type) -> float | None:
        return next((at / SECOND for at, message in self.sent if isinstance(message, kind)), None)

    def accusations(self) -> list[float]:
        return [
            at / SECOND
            for at, m in self.sent
            if isinstance(m, News) and any(s.by == 1 for s in m.suspicions)
        ]


def test_silence_leads_to_probes_suspicion_and_verdict_in_the_stated_times() -> None:
    watch = Watch()
    watch.run(20)
    assert 1.5 <= (watch.first(Probe) or 0) <= 2.0
    assert 3.5 <= watch.accusations()[0] <= 4.0
    assert watch.gone_at is not None
    # No other node confirms it, and a lone accuser is slow.
    assert 13.5 <= watch.gone_at / SECOND <= 14.1
    assert (Gone(SILENT, 256, False)) in [
        gone for _, m in watch.sent if isinstance(m, News) for gone in m.gone
    ]


def test_probes_go_through_others_as_well() -> None:
    net = Net(8, k=3)
    net.settle()
    net.sent = []
    net.crash(2, silent=True)
    net.run(3)
    about = {
        (place.number, to)
        for _, place, to, m, _ in net.sent
        if isinstance(m, Probe) and m.peer == net.peer(2)
    }
    assert any(to == net.peer(2) for _, to in about)
    assert any(to != net.peer(2) for _, to in about)


def test_others_that_agree_make_the_verdict_quicker() -> None:
    watch = Watch()
    watch.run(4)
    for by in (HELPER, OTHER):
        watch.hear(News(suspicions=(Suspicion(SILENT, 256, 1, by, False),)), by)
    watch.run(16)
    assert watch.gone_at is not None
    # suspect_after and verdict_min.
    assert 7.4 <= watch.gone_at / SECOND <= 8.1


def test_an_accusation_by_others_alone_is_not_a_verdict() -> None:
    """Only a node's own evidence makes it give the verdict.

    Words alone remove no node, and wear off.
    """
    watch = Watch()
    watch.beating.append(SILENT)
    for by in (HELPER, OTHER):
        watch.hear(News(suspicions=(Suspicion(SILENT, 256, 1, by, False),)), by)
    assert SILENT in watch.node.suspects
    watch.run(60)
    assert watch.gone_at is None
    assert SILENT not in watch.node.suspects


def test_an_absurd_accusation_wears_off_too() -> None:
    """Of a version that the accused cannot outdo."""
    watch = Watch()
    watch.beating.append(SILENT)
    watch.hear(News(suspicions=(Suspicion(SILENT, 256, 2**32 - 1, HELPER, False),)))
    watch.run(40)
    assert watch.node.suspects == {}


@pytest.mark.parametrize(("others", "least"), [(0, 13.0), (1, 10.0)])
def test_a_suspicion_that_was_withdrawn_does_not_shorten_the_next_one(
    others: int, least: float
) -> None:
    """A node is silent for a moment, heard again, and silent once more a minute later.

    The second time counts from its own start.
    """
    watch = Watch()
    watch.run(4.5)
    assert watch.accusations()
    for by in (HELPER,)[:others]:
        watch.hear(News(suspicions=(Suspicion(SILENT, 256, 1, by, False),)), by)
    # The node is alive after all. It has not heard that it was suspected.
    watch.hear(Beat(0), SILENT)
    assert (SILENT in watch.node.suspects) == bool(others)
    watch.beating.append(SILENT)
    watch.run(8)
    watch.beating.remove(SILENT)
    silent_since = watch.now
    watch.run(30)
    assert watch.gone_at is not None
    assert watch.gone_at - silent_since >= least * SECOND


def test_the_accused_answers_and_is_believed_everywhere() -> None:
    net = Net(8, k=3)
    net.settle()
    version = net[2].record.version
    accused, by = net.peer(2), net.peer(5)
    net.inject(0, 1, News(suspicions=(Suspicion(accused, net[2].record.life, version, by, False),)))
    assert accused in net[1].suspects
    net.run(1)
    assert net[2].record.version > version
    assert net[2].counters["refuted"] == 1
    assert all(accused not in machine.suspects for machine in net.machines)
    assert all(net.knows(number, 2) for number in range(8))


def test_a_vouched_for_neighbour_is_not_accused() -> None:
    watch = Watch()
    for _ in range(20):
        watch.run(1)
        watch.hear(Vouch(SILENT))
    assert watch.accusations() == []
    watch.run(4)
    assert watch.accusations()
    watch.hear(Vouch(SILENT))
    assert watch.node.suspects == {}


def test_who_is_asked_vouches_at_once_or_when_it_hears() -> None:
    watch = Watch()
    watch.run(0.5)
    watch.sent.clear()
    watch.hear(Probe(SILENT), HELPER)
    assert watch.sent[0][1] == Vouch(SILENT)
    watch.run(2)
    watch.sent.clear()
    watch.hear(Probe(SILENT), HELPER)
    assert [m for _, m in watch.sent] == [Probe(SILENT)]
    watch.sent.clear()
    # Any message is a sign of life.
    watch.hear(Flip(SILENT, 256, 1, 1, 0), SILENT)
    assert [m for _, m in watch.sent] == [Vouch(SILENT)]


def test_a_link_cut_between_two_living_nodes_removes_nobody() -> None:
    """Each is heard by others, which vouch for it."""
    net = Net(10, k=4)
    net.settle()
    a = net.places[0]
    b = next(place for place in net.places if place.peer in net[0].neighbours)
    net.sever(lambda one, two: {one, two} == {a, b})
    net.run(60)
    assert all(len(machine.view.members) == 10 for machine in net.machines)
    assert sum(machine.counters["new lives"] for machine in net.machines) == 0


def test_a_node_that_slept_accuses_nobody() -> None:
    net = Net(6, k=3, verdict_alone=1000 * SECOND, verdict_min=1000 * SECOND)
    net.settle()
    net.sent = []
    net.pause(3)
    net.run(60)
    # From now on it hears nothing.
    net.sever(lambda one, two: 3 in (one.number, two.number))
    net.places[3].node.inbox.clear()
    net.resume(3)
    net.run(1)
    assert net[3].counters["slept"] == 1
    assert net[3].strain >= 1
    assert net[3].suspects == {}
    accused = [
        m
        for _, place, _, m, _ in net.sent
        if place.number == 3 and isinstance(m, News) and m.suspicions
    ]
    assert accused == []


def test_broken_links_give_a_quick_verdict() -> None:
    net = Net(10, k=4)
    net.settle()
    net.crash(4)
    took = net.until(
        lambda: all(net.peer(4) not in machine.view.members for machine in net.machines), 10
    )
    assert took < 3.0


def test_silence_of_a_host_gives_a_verdict_in_its_time() -> None:
    net = Net(10, k=4)
    net.settle()
    net.crash(4, silent=True)
    took = net.until(
        lambda: all(net.peer(4) not in machine.view.members for machine in net.machines), 30
    )
    assert 6.5 <= took <= 12.0


def test_a_reset_that_is_vouched_for_is_not_a_death() -> None:
    """The link broke, but another node hears the peer."""
    watch = Watch(verdict_alone=1000 * SECOND)
    watch.run(1)
    watch.node.link(SILENT, LinkState.DOWN, Micros(watch.now))
    for _ in range(8):
        watch.run(0.4)
        watch.hear(Vouch(SILENT))
    assert watch.accusations() == []
    assert watch.gone_at is None


def test_a_verdict_without_suspicion_gives_time_to_answer() -> None:
    watch = Watch()
    watch.beating.append(SILENT)
    watch.hear(News(gone=(Gone(SILENT, 256, False),)))
    assert SILENT in watch.node.view.members
    watch.run(1)
    assert SILENT in watch.node.view.members
    # A new life is its answer.
    watch.hear(News(records=(Record(SILENT, 512, 1, "node-11"),)))
    watch.run(5)
    assert watch.gone_at is None
    watch.hear(News(gone=(Gone(SILENT, 512, False),)))
    watch.run(1.5)
    assert watch.gone_at is None
    watch.run(1)
    # No answer came within two seconds.
    assert watch.gone_at is not None


def test_a_verdict_on_a_suspect_counts_when_the_suspect_has_had_a_moment_to_answer() -> None:
    late, early = Watch(), Watch()
    for watch, pause in ((late, MOMENT / SECOND), (early, 0.1)):
        watch.beating.append(SILENT)
        watch.hear(News(suspicions=(Suspicion(SILENT, 256, 1, HELPER, False),)))
        watch.run(pause)
        watch.hear(News(gone=(Gone(SILENT, 256, False),)))
    assert late.gone_at == late.now
    assert early.gone_at is None
    early.run(1)
    assert early.gone_at is not None
    assert early.gone_at >= MOMENT


def test_a_leave_counts_at_once() -> None:
    watch = Watch()
    watch.hear(News(gone=(Gone(SILENT, 256, True),)))
    assert watch.gone_at == watch.now


def test_accusations_of_or_by_strangers_and_of_other_lives_are_ignored() -> None:
    node = single(1)
    befriend(node, 11), befriend(node, 12)
    for claim in (
        Suspicion(77, 256, 1, 12, False),
        Suspicion(11, 256, 1, 77, False),
        Suspicion(11, 512, 1, 12, False),
        Suspicion(11, 255, 9, 12, False),
        Suspicion(11, 256, 0, 12, False),
    ):
        node.receive(Peer(12), News(suspicions=(claim,)), Micros(1))
        assert node.suspects == {}


@pytest.mark.parametrize("seed", range(3))
def test_half_of_all_messages_lost_for_half_a_minute_removes_nobody(seed: int) -> None:
    net = Net(12, k=4, seed=seed)
    net.settle()
    net.loss = 0.5
    removed = []
    net.after = lambda place: removed.extend(
        change for change in place.changes if change.after is None
    )
    net.run(30)
    assert removed == []
    net.loss = 0.0
    net.settle()
    assert sum(machine.counters["new lives"] for machine in net.machines) == 0
    net.run(25)
    assert all(machine.suspects == {} for machine in net.machines)


@pytest.mark.parametrize("seed", range(3))
def test_a_pause_of_five_seconds_of_a_quarter_removes_nobody(seed: int) -> None:
    net = Net(12, k=4, seed=seed)
    net.settle()
    removed = []
    net.after = lambda place: removed.extend(
        change for change in place.changes if change.after is None
    )
    for number in (1, 5, 9):
        net.pause(number)
    net.run(5)
    for number in (1, 5, 9):
        net.resume(number)
    net.run(20)
    assert removed == []
    net.settle()
    assert all(machine.suspects == {} for machine in net.machines)


def test_members_that_do_not_exist_vanish_again() -> None:
    net = Net(8, k=3)
    net.settle()
    ghosts = [
        Record(peer, 256, 1, address)
        for peer, address in ((5, "nowhere"), (2**63, ""), (2**64 - 1, "node-0"))
    ]
    net.inject(0, 1, News(records=tuple(ghosts)))
    net.until(lambda: all(Peer(5) in machine.view.members for machine in net.machines), 5)
    assert net.settle(40) < 20


def test_beats_come_once_a_period_and_carry_the_digest() -> None:
    watch = Watch()
    watch.run(10)
    beats = [at / SECOND for at, m in watch.sent if isinstance(m, Beat)]
    assert 9 <= len(beats) <= 11
    assert all(0.9 <= b - a <= 1.1 for a, b in pairwise(beats))


def two_of(net: Net) -> list[Interest]:
    return [machine for machine in net.machines if len(machine.view.members) < len(net.machines)]


def test_two_halves_find_each_other_again() -> None:
    net = Net(12, k=4)
    net.settle()
    net.subscribe(1, "a"), net.subscribe(7, "b")
    net.settle()
    net.partition(range(6), range(6, 12))
    net.run(40)
    assert {len(machine.view.members) for machine in net.machines} == {6}
    net.unsubscribe(1, "a"), net.subscribe(7, "c")
    net.partition()
    assert net.settle(60) < 30
    assert two_of(net) == []
    assert all(machine.interested("a") == {} for machine in net.machines)
    assert all(net.peer(7) in machine.interested("c") for machine in net.machines)
