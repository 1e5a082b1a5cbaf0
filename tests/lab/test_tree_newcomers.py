"""Hosts that come to a tree at nearly the same time, and the last of them subscribes: once laid, it
misses nothing.

Each seed lost events once: to what a link that was about to go had told long before; because a
newcomer was asked to stop answering for keys that an older host, which nobody asked, still answered
for; or because a subscription counted as laid before neighbours that were still to come had heard
of it.
"""

from __future__ import annotations

from random import Random

import pytest

from gossamer.lab.tree.checkers import deliveries
from gossamer.lab.tree.config import Setup
from gossamer.lab.tree.run import TreeRun
from gossamer.overlay.tree.host import YIELD_AGAIN
from gossamer.sim.world import Node

NOBODY, EVERYBODY = "temp > 200", "temp >= 0"
PACE = 0.04


class Newcomers(TreeRun):
    text = NOBODY

    def draw_filter(self) -> str:
        return self.text

    def publish_for(self, seconds: float, pace: float = PACE) -> None:
        for _ in range(int(seconds / pace)):
            for node in list(self.up.values()):
                self.publish(node)
            self.wait(pace)

    def subscribe_anew(self, node: Node) -> None:
        """To everything, from now on."""
        self.book.ended(self.users[node.index])
        self.machine(node).unsubscribe(1, self.world.clock.now)
        self.subscribe(node, EVERYBODY)


UNIFORM, WEIBULL = "uniform:1ms:10ms", "weibull"
LOST = [(UNIFORM, seed) for seed in (91, 179, 210, 243, 262, 371, 411, 515, 594)]
LOST += [(WEIBULL, seed) for seed in (64, 206, 227, 253, 259, 271, 324)]


@pytest.mark.parametrize(("latency", "seed"), LOST)
def test_newcomers_side_by_side_miss_nothing_once_their_subscriptions_are_laid(
    latency: str, seed: int
) -> None:
    rng = Random(seed)
    hosts, joins, lag = 3 + seed % 5, 2 + seed % 3, ("50ms", "300ms", "1s", "2s")[seed % 4]
    run = Newcomers(Setup(dht="view", hosts=hosts, lag=lag, seed=seed, latency=latency))
    run.start_all([rng.getrandbits(64) for _ in range(hosts)])
    run.wait(3)
    for join in range(joins):
        run.text = EVERYBODY if join == joins - 1 else NOBODY
        # The latter near the root.
        run.join(rng.getrandbits(64) if rng.random() < 0.5 else rng.getrandbits(56))
        run.publish_for(rng.random() * rng.choice([0.0, 0.1, 0.4, 1.0]))
    run.publish_for(6)
    assert run.until(lambda: not run.unfinished, 60) is not None
    assert deliveries(run) == []
    assert run.book.expected > 100


@pytest.mark.parametrize("seed", [1, 4, 7, 21, 34, 94, 113, 183, 184, 192])
def test_a_host_that_subscribes_while_another_comes_and_goes_misses_nothing(seed: int) -> None:
    rng = Random(seed)
    hosts, lag = 4 + seed % 6, ("50ms", "300ms", "20ms", "700ms")[seed % 4]
    run = Newcomers(Setup(dht="view", hosts=hosts, lag=lag, seed=seed))
    run.start_all([rng.getrandbits(64) for _ in range(hosts)])
    run.wait(5)
    there = list(run.up.values())
    key = rng.getrandbits(64) if rng.random() < 0.5 else rng.getrandbits(56)
    run.join(key)
    run.publish_for(rng.random() * 0.6, 0.02)
    subscriber = there[rng.randrange(len(there))]
    goes_first = rng.random() < 0.5
    if goes_first:
        run.stop(key, leave=rng.random() < 0.5)
        run.publish_for(rng.random() * 0.2, 0.02)
    run.subscribe_anew(subscriber)
    run.publish_for(rng.random() * 0.2, 0.01)
    if not goes_first:
        run.stop(key, leave=rng.random() < 0.5)
    run.publish_for(2, 0.02)
    run.wait(60)
    run.book.judge()
    assert run.book.expected > 100
    assert (run.book.missed, run.book.duplicate) == (0, 0)


def test_a_neighbour_that_never_agrees_holds_a_subscription_up_for_a_while_only() -> None:
    """It lives, as far as others know, and does not say that it is a neighbour."""
    run = Newcomers(Setup(dht="view", hosts=3, lag="50ms", seed=1))
    run.start_all([1 << 62, 2 << 62, 3 << 62])
    run.wait(3)
    stuck = run.join(5 << 60)
    run.world.pause(stuck)
    run.wait(1)
    subscriber = next(
        node for node in run.up.values() if stuck.peer in run.machine(node).hood.edges
    )
    run.subscribe_anew(subscriber)
    run.wait(5)
    assert run.users[subscriber.index].returned is None
    run.wait(10)
    assert run.users[subscriber.index].returned is not None


def test_most_newcomers_subscriptions_are_laid_after_some_round_trips_and_no_timer() -> None:
    """The newcomer asks its successor to yield as soon as it and its neighbours agree."""
    run = TreeRun(Setup(hosts=12, seed=5, latency="constant:1ms"))
    waits: list[float] = []
    for _ in range(12):
        node = run.join(run.free_key())
        began = run.world.clock.now
        assert run.until(lambda node=node: is_laid(run, node), 5, 5_000) is not None
        waits.append(run.world.clock.now - began)
        run.wait(1)
    assert sorted(waits)[6] < YIELD_AGAIN / 5


def is_laid(run: TreeRun, node: Node) -> bool:
    return run.users[node.index].returned is not None
