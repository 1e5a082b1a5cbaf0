"""Small fabrics under loss, repetition, disorder, crashes, restarts, pauses, partitions and leaves.

Meanwhile the changes that each node tells its owner must add up to its view. In the end all must
agree, and on the truth.
"""

from __future__ import annotations

from random import Random

import pytest

from gossamer.lab.connectivity import vertex_connectivity
from gossamer.machine import SECOND, Peer
from gossamer.overlay.interest.record import Record, topic_hash
from worldnet import Net, Place, interest

NODES, K = 10, 3


class Soak(Net):
    def __init__(self, seed: int, mode: str) -> None:
        super().__init__(NODES, k=K, seed=seed, news=mode, forget=600 * SECOND)
        self.chance = Random(f"soak {seed}")
        self.wanted: dict[int, set[str]] = {number: set() for number in range(NODES)}
        self.shown: dict[int, dict[Peer, Record]] = {number: {} for number in range(NODES)}
        self.after = self.add_up

    def add_up(self, place: Place) -> None:
        """The changes, one after the other, are the view."""
        shown = self.shown[place.number]
        for change in place.changes:
            assert interest(shown.get(change.peer)) == interest(change.before)
            if change.after is None:
                del shown[change.peer]
            else:
                shown[change.peer] = change.after
        place.changes.clear()
        if place.machine is not None and not place.machine._state.changes:
            members = place.machine.view.members
            assert shown.keys() == members.keys()
            assert all(
                interest(record) == interest(members[peer].record) for peer, record in shown.items()
            )

    def restart(self, number: int) -> None:
        self.wanted[number], self.shown[number] = set(), {}
        self.places[number].changes.clear()
        self.start(number, disk=self.chance.random() < 0.5)

    def trouble(self) -> None:
        """One thing that happens."""
        chance = self.chance
        number = chance.randrange(NODES)
        place = self.places[number]
        if place.machine is None:
            self.restart(number)
        elif place.paused:
            self.resume(number)
        elif (what := chance.random()) < 0.6:
            topic = f"t{chance.randrange(5)}"
            (self.unsubscribe if topic in self.wanted[number] else self.subscribe)(number, topic)
            self.wanted[number] ^= {topic}
        elif what < 0.7:
            self.crash(number, silent=chance.random() < 0.5)
        elif what < 0.8:
            self.pause(number)
        elif what < 0.85:
            self.command(number, "leave")
            self.run(0.3)
            self.crash(number)
        elif what < 0.95:
            self.loss, self.jitter = chance.choice([0.0, 0.1, 0.4]), chance.choice([0, 50_000])
        elif what < 0.975:
            half = chance.sample(range(NODES), NODES // 2)
            self.partition(half, [other for other in range(NODES) if other not in half])
        else:
            self.partition()

    def peace(self) -> None:
        self.loss = self.jitter = 0
        self.partition()
        for place in self.places:
            if place.machine is None:
                self.restart(place.number)
            elif place.paused:
                self.resume(place.number)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("mode", ["diff", "whole"])
def test_after_everything_all_agree_on_the_truth(seed: int, mode: str) -> None:
    net = Soak(seed, mode)
    for _ in range(150):
        net.run(net.chance.choice([0.001, 0.05, 0.3, 1.5]))
        net.trouble()
    net.peace()
    net.settle(90)
    net.run(25)
    assert net.agrees
    assert vertex_connectivity(net.adjacency()) >= K
    for number in range(NODES):
        assert net[number].suspects == {}
        for observer in net.machines:
            assert set(observer.view.members[net.peer(number)].record.pairs()) == {
                topic_hash(t) for t in net.wanted[number]
            }
    barrier = net.command(3, "barrier")
    net.until(lambda: barrier in net[3].barriers_done, 1)
