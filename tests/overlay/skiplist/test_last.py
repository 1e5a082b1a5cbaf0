"""The last entry of a list, and who may begin one: an event that is due to an entry finds it, whoever has left before."""

from __future__ import annotations

from random import Random

import pytest

from gossamer.machine import SECOND, Deliver, LinkState, Micros, Peer, Send
from gossamer.overlay.skiplist.config import SkipConfig
from gossamer.overlay.skiplist.core import SkipList
from gossamer.overlay.skiplist.messages import Absent, Join
from gossamer.overlay.skiplist.receipts import Receipt

NEWCOMER, NEIGHBOUR, LAST = (
    Peer(1),
    Peer(2),
    Peer(3),
)  # the last one is the greatest: it may not begin a list


class Net:
    """Nodes that know each other as members, with links that carry everything at once and in order."""

    def __init__(self, *peers: Peer) -> None:
        self.now = Micros(0)
        self.members = list(peers)  # of the list
        self.dead: set[Peer] = set()
        self.receipts: list[Receipt] = []
        self.nodes = {
            peer: SkipList(
                peer, incarnation=1, rng=Random(peer), config=SkipConfig(), match=lambda arrival: [1] * len(arrival.numbers),
                address=lambda to: f"at-{to}", contacts=lambda: [to for to in self.members if to not in self.dead], members=self,
            )
            for peer in peers
        }  # fmt: skip
        for one in peers:
            for other in peers:
                if one != other:
                    self.nodes[one].link(other, LinkState.UP, self.now)

    def lives(self, peer: Peer) -> bool:
        return peer not in self.dead

    def is_known(self) -> bool:
        return True

    def wake(self, peer: Peer) -> None:
        """That node acts, and everybody whom that leads to."""
        waiting = [(peer, effect) for effect in self.nodes[peer].wake(self.now)]
        while waiting:
            sender, effect = waiting.pop(0)
            if isinstance(effect, Deliver):
                self.receipts += [what for what in effect.events if isinstance(what, Receipt)]
            elif isinstance(effect, Send):
                for to in effect.to:
                    if to not in self.dead:
                        waiting += [
                            (to, more)
                            for more in self.nodes[to].receive(sender, effect.message, self.now)
                        ]

    def run(self, seconds: int) -> None:
        end = self.now + seconds * SECOND
        while self.now < end:
            self.now = Micros(self.now + SECOND // 20)
            for peer, node in self.nodes.items():
                if peer not in self.dead and node.deadline <= self.now:
                    self.wake(peer)


def two() -> Net:
    """A list of two that have joined, and a member that is not in it."""
    net = Net(NEWCOMER, NEIGHBOUR, LAST)
    net.members = [NEIGHBOUR, LAST]
    net.nodes[LAST].enter(b"m", net.now)
    net.nodes[NEIGHBOUR].enter(b"x", net.now)
    net.run(20)
    assert all(
        net.nodes[peer].entries[key].is_joined for peer, key in ((LAST, b"m"), (NEIGHBOUR, b"x"))
    )
    return net


@pytest.mark.parametrize("way", ["leaves", "dies"])
def test_who_is_left_alone_keeps_its_place(way: str) -> None:
    net = two()
    net.members = [
        NEWCOMER,
        NEIGHBOUR,
        LAST,
    ]  # it wants the topic, and is about to look for its place
    if way == "leaves":
        net.nodes[NEIGHBOUR].withdraw(b"x", net.now)
        net.wake(NEIGHBOUR)
    else:
        net.dead.add(NEIGHBOUR)
        net.nodes[LAST].dead(NEIGHBOUR, net.now)
        net.nodes[NEWCOMER].dead(NEIGHBOUR, net.now)
        net.wake(LAST)
    last = net.nodes[LAST].entries[b"m"]
    assert last.is_placed
    assert last.left == last.right == last.at, "there is nobody else"
    net.nodes[NEWCOMER].enter(b"a", net.now)
    net.wake(NEWCOMER)
    assert net.nodes[NEWCOMER].entries[b"a"].right == last.at, (
        "the newcomer finds the list and begins none"
    )
    net.nodes[NEWCOMER].publish([(b"m", b"n")], b"event", net.now)
    net.run(1)
    assert [receipt.matched for receipt in net.receipts] == [1]


def test_who_begins_a_list_has_been_refused_twice_by_all() -> None:
    net = Net(NEWCOMER, NEIGHBOUR)
    machine = net.nodes[NEWCOMER]
    machine.enter(b"a", net.now)

    def asked(effects: list[object]) -> bool:
        return any(
            isinstance(effect, Send) and isinstance(effect.message, Join) for effect in effects
        )

    refusal = Absent(0, (b"", int(NEIGHBOUR)), 0)
    assert asked(list(machine.wake(net.now)))
    assert asked(list(machine.receive(NEIGHBOUR, refusal, net.now))), (
        "it may have joined since it said no"
    )
    assert not machine.entries[b"a"].is_placed
    machine.receive(NEIGHBOUR, refusal, net.now)
    assert machine.entries[b"a"].is_placed
