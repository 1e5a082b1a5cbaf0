"""The last entry of a list, and who may begin one: an event that is due to an entry finds it,
whoever has left before.
"""

from __future__ import annotations

from random import Random

import pytest

from gossamer.machine import LinkState, Micros, Peer, Send
from gossamer.overlay.batch import Batch
from gossamer.overlay.skiplist.config import SkipConfig
from gossamer.overlay.skiplist.core import SkipList
from gossamer.overlay.skiplist.messages import Absent, Join
from gossamer.overlay.skiplist.walks import Walked
from worldnet import Net

# The last one has the greatest name: it may not begin a list.
NEWCOMER, NEIGHBOUR, LAST = 0, 1, 2


class Members(Net):
    """Nodes that know each other as members of the list."""

    def __init__(self, nodes: int) -> None:
        # Of the list.
        self.members = [Peer(number + 1) for number in range(nodes)]
        self.receipts: list[Walked] = []
        super().__init__(start=False, make=self._list)
        for number, peer in enumerate(self.members):
            self.add(peer)
            self.start(number)

    def _list(self, peer: Peer, *, incarnation: int, rng: Random, **_: object) -> SkipList:
        return SkipList(
            peer,
            incarnation=incarnation,
            rng=rng,
            config=SkipConfig(),
            arrive=lambda batch, now, numbers, done: (1,),
            complete=self.receipts.append,
            address=lambda to: f"node-{to - 1}",
            contacts=lambda: [to for to in self.members if self.lives(to)],
            members=self,
        )

    def lives(self, peer: Peer) -> bool:
        return self.places[peer - 1].machine is not None

    def is_known(self) -> bool:
        return True


def two() -> Members:
    """A list of two that have joined, and a member that is not in it."""
    net = Members(3)
    net.members = [net.peer(NEIGHBOUR), net.peer(LAST)]
    net.command(LAST, "enter", b"m")
    net.command(NEIGHBOUR, "enter", b"x")
    net.run(20)
    assert net[LAST].entries[b"m"].is_joined
    assert net[NEIGHBOUR].entries[b"x"].is_joined
    return net


@pytest.mark.parametrize("way", ["leaves", "dies"])
def test_who_is_left_alone_keeps_its_place(way: str) -> None:
    net = two()
    # The newcomer wants the topic, and is about to look for its place.
    net.members = [net.peer(number) for number in (NEWCOMER, NEIGHBOUR, LAST)]
    if way == "leaves":
        net.command(NEIGHBOUR, "withdraw", b"x")
    else:
        net.crash(NEIGHBOUR, silent=True)
        net.command(LAST, "dead", net.peer(NEIGHBOUR))
        net.command(NEWCOMER, "dead", net.peer(NEIGHBOUR))
    net.run(0.1)
    last = net[LAST].entries[b"m"]
    assert last.is_placed
    assert last.left == last.right == last.at, "there is nobody else"
    net.command(NEWCOMER, "enter", b"a")
    net.run(0.1)
    newcomer = net[NEWCOMER].entries[b"a"]
    assert newcomer.right == last.at, "the newcomer finds the list and begins none"
    one = Batch("t", net.peer(NEWCOMER), 1, 1, 1, 1, 0, 0, b"event")
    net.command(NEWCOMER, "publish", one, [[(b"m", b"n")]], lambda places: b"event")
    net.run(1)
    assert [receipt.counts for receipt in net.receipts] == [(1,)]


def test_who_begins_a_list_has_been_refused_twice_by_all() -> None:
    net = Members(2)
    machine, neighbour, now = net[NEWCOMER], net.peer(NEIGHBOUR), Micros(net.now)
    machine.link(neighbour, LinkState.UP, now)
    machine.enter(b"a", now)

    def asked(effects: list[object]) -> bool:
        return any(
            isinstance(effect, Send) and isinstance(effect.message, Join) for effect in effects
        )

    refusal = Absent(0, (b"", int(neighbour)), 0)
    assert asked(machine.wake(now))
    assert asked(machine.receive(neighbour, refusal, now)), "it may have joined since it said no"
    assert not machine.entries[b"a"].is_placed
    machine.receive(neighbour, refusal, now)
    assert machine.entries[b"a"].is_placed
