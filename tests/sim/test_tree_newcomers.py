"""Hosts that come to a tree at nearly the same time, and the last of them subscribes: once laid, it misses nothing.

Each seed lost events once: to what a link that was about to go had told long before, or because a newcomer was asked to stop
answering for keys that an older host, which nobody asked, still answered for.
"""

from __future__ import annotations

from random import Random

import pytest

from gossamer.sim.tree.config import Setup
from gossamer.sim.tree.run import TreeRun, User
from gossamer.sim.world import Node

NOBODY, EVERYBODY = "temp > 200", "temp >= 0"
PACE = 0.04


class Newcomers(TreeRun):
    text = NOBODY

    def _add(self, key: int, contacts: tuple[object, ...]) -> Node:  # type: ignore[override]
        node = super()._add(key, contacts)  # type: ignore[arg-type]
        self.users[node.index] = User(self.text, self.world.clock.now)
        return node

    def publish_for(self, seconds: float) -> None:
        for _ in range(int(seconds / PACE)):
            for node in list(self.up.values()):
                self.publish(node)
            self.run(PACE)


@pytest.mark.parametrize("seed", [91, 179, 210, 243, 262, 371, 411, 515, 594])
def test_newcomers_side_by_side_miss_nothing_once_their_subscriptions_are_laid(seed: int) -> None:
    rng = Random(seed)
    hosts, joins, lag = 3 + seed % 5, 2 + seed % 3, ("50ms", "300ms", "1s", "2s")[seed % 4]
    run = Newcomers(Setup(dht="view", hosts=hosts, lag=lag, seed=seed))
    run.start_all([rng.getrandbits(64) for _ in range(hosts)])
    run.run(3)
    for join in range(joins):
        run.text = EVERYBODY if join == joins - 1 else NOBODY
        run.join(rng.getrandbits(64) if rng.random() < 0.5 else rng.getrandbits(56))  # the latter near the root
        run.publish_for(rng.random() * rng.choice([0.0, 0.1, 0.4, 1.0]))
    run.publish_for(3)
    assert run.until(lambda: not run.unfinished, 60) is not None
    expected, _, missed, twice = run.due()
    assert expected > 100
    assert (missed, twice) == (0, 0)
