"""Links: each is opened before another is closed, for newcomers, leavers and crowds.

A lost link is looked for.
"""

from __future__ import annotations

import pytest

from gossamer.lab.connectivity import vertex_connectivity
from gossamer.machine import SECOND, Dial, Hangup, LinkState, Micros, Peer
from gossamer.overlay.interest.messages import Greet, News, Want
from gossamer.overlay.interest.record import Record
from worldnet import Net, befriend, sends, single

# All tests together take seconds.
pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("nodes", "k"), [(8, 3), (12, 4), (20, 3), (24, 4), (33, 6)])
def test_a_graceful_leave_never_takes_the_links_below_k(nodes: int, k: int) -> None:
    """The leaver's links count while it is there.

    The others must have theirs without it by the time it may go.
    """
    net = Net(nodes, k=k)
    net.settle()
    net.run(3)
    for leaver in (4, 2, 7):
        worst = [nodes]

        def look(place: object, worst: list[int] = worst) -> None:
            worst.append(vertex_connectivity(net.adjacency()))

        net.command(leaver, "leave")
        net.after = look
        took = net.until(lambda number=leaver: net[number].may_go, 5)
        assert took < 1.0
        assert min(worst) >= k
        assert vertex_connectivity(net.adjacency(leaver)) >= k
        net.after = lambda place: None
        net.crash(leaver)
        net.settle()
        net.run(3)
        assert vertex_connectivity(net.adjacency()) >= k


def test_a_leave_is_heard_even_if_rounds_wait_for_a_threshold() -> None:
    net = Net(8, k=3, threshold=10, coalesce=0, period=0)
    net.settle(60)
    net.run(3)
    net.command(2, "leave")
    assert net.until(lambda: net[2].may_go, 5) < 1.0


def test_joins_keep_the_links_at_k() -> None:
    net = Net(20, k=3, start=False)
    for number in range(8):
        net.start(number)
    net.settle()
    worst = []
    for number in range(8, 20):
        net.start(number)
        net.until(lambda number=number: len(net[number].links) >= 1, 5)
        net.run(0.01)
        worst.append(vertex_connectivity(net.adjacency(number)))
        net.settle()
        worst.append(vertex_connectivity(net.adjacency()))
    assert min(worst) >= 3


def test_crashes_are_made_good() -> None:
    net = Net(20, k=4)
    net.settle()
    net.run(3)
    # Fewer than K at once leave the rest in one piece.
    for number in (3, 9, 14):
        net.crash(number)
    net.run(0.2)
    assert vertex_connectivity(net.adjacency()) >= 1
    net.settle()
    assert vertex_connectivity(net.adjacency()) >= 4


def test_links_that_neither_end_wants_are_closed_in_the_end() -> None:
    net = Net(30, k=3)
    net.settle()
    net.run(6)
    for machine in net.machines:
        assert set(machine.links) == set(machine.neighbours)


@pytest.mark.parametrize("seed", range(3))
def test_links_that_neither_end_wants_are_closed_even_if_words_about_them_were_late(
    seed: int,
) -> None:
    net = Net(20, k=3, seed=seed)
    net.loss, net.jitter = 0.5, 200_000
    net.run(20)
    net.loss = net.jitter = 0
    net.settle(30)
    net.run(8)
    for machine in net.machines:
        assert set(machine.links) == set(machine.neighbours)


def test_a_link_that_one_end_wants_stays() -> None:
    node = single(1, config={"k": 2, "suspect_after": 1000 * SECOND})
    for peer in range(11, 20):
        befriend(node, peer, want=peer % 2 == 1)
    hung: list[int] = []
    for tick in range(1, 80):
        now = Micros(tick * SECOND // 4)
        effects = node.wake(now)
        for peer in [effect.peer for effect in effects if isinstance(effect, Hangup)]:
            hung.append(peer)
            node.link(peer, LinkState.DOWN, now)
    unwanted = {peer for peer in range(11, 20) if peer not in node.neighbours}
    assert set(hung) == {peer for peer in unwanted if peer % 2 == 0}
    node.receive(Peer(13), Want(False), Micros(25 * SECOND))
    for tick in range(100, 120):
        hung += [
            effect.peer
            for effect in node.wake(Micros(tick * SECOND // 4))
            if isinstance(effect, Hangup)
        ]
    assert 13 in hung


def test_a_stranger_that_says_nothing_is_hung_up_on() -> None:
    node = single(1, config={"suspect_after": 1000 * SECOND})
    befriend(node, 11)
    node.link(Peer(99), LinkState.UP, Micros(0))
    hung = []
    for tick in range(1, 60):
        hung += [
            effect.peer
            for effect in node.wake(Micros(tick * SECOND // 4))
            if isinstance(effect, Hangup)
        ]
    assert 99 in hung


def test_links_to_the_dead_are_closed() -> None:
    """A host that is gone resets nothing, and its last word was that it wants the link."""
    net = Net(8, k=3)
    net.settle()
    net.crash(4, silent=True)
    net.until(lambda: all(net.peer(4) not in machine.view.members for machine in net.machines), 20)
    net.run(4)
    assert not any(net.peer(4) in machine.links for machine in net.machines)


def test_a_crowd_is_told_what_is_known_and_sent_on() -> None:
    """More links than allowed: those beyond are greeted, get the state, and are closed."""
    node = single(1, config={"links_max": 8, "k": 2, "suspect_after": 1000 * SECOND})
    for peer in range(100, 140):
        node.link(Peer(peer), LinkState.UP, Micros(0))
        made = sends(
            node.receive(Peer(peer), Greet(Record(peer, 256, 1, ""), 0, 1, True), Micros(0))
        )
        assert peer == 100 or any(isinstance(message, News) for message in made)
    for tick in range(1, 40):
        now = Micros(tick * SECOND // 4)
        for peer in [effect.peer for effect in node.wake(now) if isinstance(effect, Hangup)]:
            node.link(peer, LinkState.DOWN, now)
    assert len(node.links) <= 8 + len(node.neighbours)


def test_addresses_to_begin_with_are_tried_in_turn_until_one_answers() -> None:
    net = Net(4, start=False, join=("nobody-1", "nobody-2", "node-3"))
    net.start(0)
    net.run(10)
    assert {address for _, address in net.places[0].dials} == {"nobody-1", "nobody-2", "node-3"}
    net.start(3)
    net.settle(10)


def test_an_unreachable_neighbour_is_dialled_at_a_gentle_pace() -> None:
    node = single(1, config={"suspect_after": 1000 * SECOND})
    befriend(node, 11)
    node.receive(Peer(11), News(records=(Record(77, 256, 1, "far"),)), Micros(0))
    dials = []
    for tick in range(1, 100):
        now = tick * SECOND // 10
        dials += [
            now
            for effect in node.wake(Micros(now))
            if isinstance(effect, Dial) and effect.address == "far"
        ]
    assert 8 <= len(dials) <= 11


def test_the_lost_are_looked_for_at_a_rate_that_does_not_grow_with_the_fabric() -> None:
    rates = {}
    for nodes in (6, 24):
        net = Net(nodes, k=3)
        net.settle()
        net.crash(nodes - 1)
        net.run(20)
        for place in net.places:
            place.dials.clear()
        net.run(30)
        rates[nodes] = (
            sum(
                address == f"node-{nodes - 1}" for place in net.places for _, address in place.dials
            )
            / 30
        )
    assert all(0.5 <= rate <= 3.0 for rate in rates.values()), rates


def test_a_moved_address_is_told_to_all() -> None:
    net = Net(8, k=3)
    net.settle()
    net.command(2, "readdress", "elsewhere:1")
    net.until(lambda: all(net.knows(number, 2) for number in range(8)), 1)
    assert net[5].view.members[net.peer(2)].record.address == "elsewhere:1"
