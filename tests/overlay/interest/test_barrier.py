"""The barrier: when it returns, every live node has the record.

The tests look in the very moment in which it returns, under faults.
"""

from __future__ import annotations

import pytest

from gossamer.machine import SECOND, LinkState, Micros, Peer, Send
from gossamer.overlay.interest.barrier import PATIENCE, WAVES_MAX
from gossamer.overlay.interest.messages import Barrier, Gone, News, Reached
from worldnet import Net, Place, befriend, sends, single


class Checked(Net):
    """Asserts, in the moment when a barrier is reached, that every live member has its record."""

    def __init__(self, *arguments: int, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]
        self.asked: dict[tuple[int, int], tuple[int, int]] = {}
        self.reached: dict[tuple[int, int], int] = {}
        # Nodes that began after a barrier did. No node may know of them yet.
        self.young: set[int] = set()
        self.after = self.look

    def barrier(self, number: int) -> int:
        barrier = self.command(number, "barrier")
        self.asked[number, barrier] = (self[number].record.life, self[number].record.version)
        # A lone node reaches it at once.
        self.look(self.places[number])
        return barrier

    def look(self, place: Place) -> None:
        machine = place.machine
        for barrier in machine.barriers_done if machine is not None else ():
            key = (place.number, barrier)
            if key in self.asked and key not in self.reached:
                self.reached[key] = self.now
                for other in self.machines:
                    if other.me in machine.view.members or other.me not in self.young:
                        known = other.view.members.get(place.peer)
                        assert known is not None, f"{other.me} does not know {place.peer}"
                        assert (known.record.life, known.record.version) >= self.asked[key]

    def wait(self, number: int, barrier: int, seconds: float = 30.0) -> float:
        return self.until(lambda: (number, barrier) in self.reached, seconds)


def test_alone_it_is_reached_at_once() -> None:
    net = Checked(1)
    net.subscribe(0, "a")
    assert net.wait(0, net.barrier(0)) == 0.0


def test_two_of_a_kind_at_a_time() -> None:
    net = Checked(10, k=3)
    net.settle()
    net.subscribe(3, "a"), net.subscribe(7, "b")
    first, second = net.barrier(3), net.barrier(7)
    net.subscribe(3, "c")
    third = net.barrier(3)
    assert len({first, third}) == 2
    net.wait(3, first), net.wait(7, second), net.wait(3, third)


def test_it_takes_a_few_hops() -> None:
    net = Checked(40, k=6)
    net.settle()
    net.subscribe(3, "a")
    assert net.wait(3, net.barrier(3)) < 0.1


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("loss", [0.1, 0.4])
def test_under_loss(seed: int, loss: float) -> None:
    net = Checked(12, k=3, seed=seed, jitter=3000)
    net.settle()
    net.loss = loss
    for number in range(3):
        net.subscribe(number, f"t{number}")
        net.wait(number, net.barrier(number), 120)


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize("after", [0.0, 0.002, 0.004])
def test_a_crash_in_the_middle(silent: bool, after: float) -> None:
    """The dead are not waited for longer than it takes to declare them dead."""
    net = Checked(12, k=3)
    net.settle()
    net.subscribe(3, "a")
    barrier = net.barrier(3)
    net.run(after)
    net.crash(8, silent=silent)
    took = net.wait(3, barrier)
    assert took < (20 if silent else 6)


@pytest.mark.parametrize("after", [0.0, 0.001, 0.003, 0.006])
def test_a_join_in_the_middle(after: float) -> None:
    net = Checked(12, k=3, start=False)
    for number in range(11):
        net.start(number)
    net.settle()
    net.young = {net.peer(11)}
    net.start(11)
    net.run(after)
    net.subscribe(3, "a")
    net.wait(3, net.barrier(3))
    net.settle()
    assert net.knows(11, 3)


def test_a_leave_and_a_restart_in_the_middle() -> None:
    net = Checked(12, k=3)
    net.settle()
    net.subscribe(3, "a")
    barrier = net.barrier(3)
    net.command(5, "leave")
    net.crash(9)
    net.young = {net.peer(9), net.peer(5)}
    net.start(9)
    net.wait(3, barrier)
    net.until(lambda: net.knows(9, 3), 5)


def test_one_that_lacks_the_record_holds_the_barrier_up() -> None:
    """It can fail: a node that answers without the record would be caught."""
    # The news is slow, and the question is not.
    net = Checked(8, k=3, threshold=0, coalesce=0, period=3 * SECOND)
    net.settle()
    net.run(4)
    net.subscribe(3, "a")
    barrier = net.barrier(3)
    net.run(0.05)
    assert not net.reached
    net.wait(3, barrier)


def test_a_new_life_in_the_middle_counts() -> None:
    net = Checked(8, k=3, threshold=0, coalesce=0, period=SECOND)
    net.settle()
    net.subscribe(3, "a")
    barrier = net.barrier(3)
    net[3]._state.new_life(9, Micros(net.now))
    net.wait(3, barrier)


def test_a_question_is_answered_once_and_repeated_answers_add_nothing() -> None:
    node = single(1)
    record = befriend(node, 11)
    befriend(node, 12)
    ask = Barrier(11, 1, record.life, record.version)
    # The question goes to 12.
    assert sends(node.receive(Peer(11), ask, Micros(1))) == [ask]
    # Another node asks, and there is nothing to add.
    assert sends(node.receive(Peer(12), ask, Micros(2))) == [Reached(11, 1, 0)]
    [answer] = sends(node.receive(Peer(12), Reached(11, 1, 5), Micros(4)))
    mine = node.view.members[node.me].spread
    assert answer == Reached(11, 1, (mine + 5) % 2**64)
    assert sends(node.receive(Peer(12), Reached(11, 1, 5), Micros(5))) == []


def test_a_wave_of_an_earlier_life_is_no_answer_for_the_next() -> None:
    node = single(1)
    record = befriend(node, 11)
    ask = Barrier(11, 1, record.life, record.version)
    mine = node.view.members[node.me].spread
    assert sends(node.receive(Peer(11), ask, Micros(1))) == [Reached(11, 1, mine)]
    again = Barrier(11, 1, record.life + 256, record.version)
    # The record is not here yet.
    assert sends(node.receive(Peer(11), again, Micros(2))) == []


def test_a_neighbour_that_does_not_answer_is_not_waited_for_for_ever() -> None:
    """It lives, or the link would be down; the sum is wrong, and the origin asks again."""
    node = single(1, config={"suspect_after": 1000 * SECOND})
    record = befriend(node, 11)
    befriend(node, 12)
    ask = Barrier(11, 1, record.life, record.version)
    assert sends(node.receive(Peer(11), ask, Micros(1))) == [ask]
    said = [m for m in sends(node.wake(Micros(1 + PATIENCE))) if isinstance(m, Reached)]
    assert said == [Reached(11, 1, 0)]
    assert not node._barriers.active


def test_a_link_that_breaks_ends_the_wait_for_its_answer_and_the_wave_of_whoever_asked() -> None:
    node = single(1)
    record = befriend(node, 11)
    befriend(node, 12)
    ask = Barrier(11, 1, record.life, record.version)
    node.receive(Peer(11), ask, Micros(1))
    said = sends(node.link(Peer(12), LinkState.DOWN, Micros(2)))
    assert Reached(11, 1, node.view.members[node.me].spread) in said
    befriend(node, 12)
    node.receive(Peer(12), Barrier(12, 1, record.life, record.version), Micros(3))
    assert node._barriers.active
    node.link(Peer(12), LinkState.DOWN, Micros(4))
    assert not node._barriers.active


def test_the_dead_are_neither_waited_for_nor_asked() -> None:
    """Their links may still be up."""
    node = single(1)
    record = befriend(node, 11)
    befriend(node, 12)
    node.receive(Peer(11), Barrier(11, 1, record.life, record.version), Micros(1))
    answers = sends(node.receive(Peer(11), News(gone=(Gone(12, 256, True),)), Micros(2)))
    assert Reached(11, 1, node.view.members[node.me].spread) in answers
    node.barrier(Micros(3))
    asked = [
        effect
        for effect in node.wake(Micros(3))
        if isinstance(effect, Send) and isinstance(effect.message, Barrier)
    ]
    assert [effect.to for effect in asked] == [(11,)]


def test_an_answer_that_nobody_asked_for_is_ignored() -> None:
    node = single(1)
    befriend(node, 11)
    number = node.barrier(Micros(1))
    node.wake(Micros(1))
    for lie in (Reached(1, 99, 7), Reached(77, number, 7), Reached(1, number, 7)):
        assert sends(node.receive(Peer(11), lie, Micros(2))) == []
    assert node.barriers_done == []


def test_a_wrong_sum_starts_another_wave() -> None:
    node = single(1)
    befriend(node, 11)
    node.barrier(Micros(1))
    [first] = [m for m in sends(node.wake(Micros(1))) if isinstance(m, Barrier)]
    node.receive(Peer(11), Reached(1, first.number, 12345), Micros(2))
    assert node.barriers_done == []
    [second] = [m for m in sends(node.wake(Micros(60_000))) if isinstance(m, Barrier)]
    assert second.number != first.number
    node.receive(
        Peer(11), Reached(1, second.number, node.view.members[Peer(11)].spread), Micros(60_001)
    )
    assert len(node.barriers_done) == 1


def test_a_flood_of_questions_is_bounded_and_does_not_lose_our_own_barrier() -> None:
    node = single(1)
    record = befriend(node, 11)
    befriend(node, 12)
    number = node.barrier(Micros(1))
    [ours] = [m for m in sends(node.wake(Micros(1))) if isinstance(m, Barrier)]
    told = 0
    for wave in range(3 * WAVES_MAX):
        ask = Barrier(11 if wave % 2 else 10**9 + wave, wave, record.life, record.version)
        told += sum(isinstance(m, Reached) for m in sends(node.receive(Peer(11), ask, Micros(2))))
    assert len(node._barriers._waves) <= WAVES_MAX + 1
    assert len(node._barriers.active) <= WAVES_MAX + 1
    # Whoever is pushed out hears it, and need not wait for the answer.
    assert told >= 2 * WAVES_MAX - 1
    for peer in (11, 12):
        spread = node.view.members[Peer(peer)].spread
        node.receive(Peer(peer), Reached(1, ours.number, spread), Micros(3))
    assert node.barriers_done == [number]


def test_many_barriers_leave_nothing_behind() -> None:
    net = Checked(4, k=2)
    net.settle()
    for _ in range(300):
        net.subscribe(1, "a"), net.unsubscribe(1, "a")
        net.wait(1, net.barrier(1))
    own = net[1]._barriers
    assert [len(table) for table in (own.active, own._lines[False].asked, own._waves)] == [0, 0, 0]
    assert own._lines[False].own is None
    assert all(len(machine._barriers.active) == 0 for machine in net.machines)
    assert all(len(machine._barriers._waves) <= WAVES_MAX for machine in net.machines)


def test_a_thousand_at_once_share_their_waves() -> None:
    """The first barrier goes at once. Callers that ask while it is under way share the next one."""
    net = Checked(12, k=3)
    net.settle()
    waves: set[int] = set()
    for machine in net.machines:
        receive = machine.receive
        machine.receive = lambda sender, message, now, receive=receive: (  # type: ignore[method-assign, misc]
            waves.add(message.number)
            if isinstance(message, Barrier) and message.origin == net.places[1].peer
            else None,
            receive(sender, message, now),
        )[1]
    asked = []
    for number in range(1000):
        net.subscribe(1, f"topic {number}")
        asked.append(net.barrier(1))
    for barrier in asked:
        net.wait(1, barrier)
    assert 1 <= len(waves) <= 2
