"""Nodes that are killed and start again many times, while others stand still for moments, in
virtual time.
"""

from __future__ import annotations

from random import Random

import pytest
from tests.node.test_routing import Fabric

from gossamer.node import Route
from gossamer.overlay.interest.config import InterestConfig

NODES = 6
RESTARTS = 15


class Busy(Fabric):
    """A fabric on a busy host: messages take different times, and processes pause for moments."""

    def __init__(self, seed: int) -> None:
        super().__init__(NODES)
        self.rng = Random(seed)
        self.draw = Random(seed)
        self.jitter = self.draw.choice([0, 2_000, 20_000, 60_000])
        self.lives = [1] * NODES

    def kill_and_start(self, number: int) -> None:
        self.crash(number, silent=self.draw.random() < 0.2)
        self.run(self.draw.choice([0, 0.05, 0.2, 1, 5]) * self.draw.random())
        self.lives[number] += 1
        config = InterestConfig(join=("node-0",))
        self.start(number, incarnation=self.lives[number], config=config)

    def stand_still(self) -> None:
        """Some other process gets no processor for up to 0.4 s."""
        number = self.draw.randrange(NODES)
        if not self.places[number].paused:
            self.pause(number)
            at = self.now + int(self.draw.random() * 400_000)
            self.world.clock.call(at, lambda: self.resume(number))


# In the first four a leaf owes an answer for ever, if ``Routes.settled`` is not called again after
# it was put off.
@pytest.mark.parametrize("seed", [39, 49, 63, 93, *range(16)])
def test_a_tree_subscription_comes_into_force_after_every_restart(seed: int) -> None:
    fabric = Busy(seed)
    for number in range(NODES):
        fabric.enter(number, "temp >= 0", Route.TREE)
    for _ in range(RESTARTS):
        number = 1 + fabric.draw.randrange(NODES - 1)
        fabric.kill_and_start(number)
        for _ in range(fabric.draw.randrange(4)):
            fabric.stand_still()
        fabric.until(lambda: "weather" in fabric.core(number).topics.schemas)  # noqa: B023
        fabric.enter(number, "temp >= 0", Route.TREE)


def test_a_subscription_says_what_it_waits_for() -> None:
    fabric = Fabric(3)
    fabric.enter(0, "temp >= 0", Route.TREE)
    fabric.enter(1, "temp >= 0", Route.TREE)
    fabric.pause(1)
    made = fabric.command(0, "subscribe", "weather", "temp < 0", route=Route.TREE)
    fabric.run(1)
    said = fabric.core(0).routing.waits_for(made)
    assert said.startswith("of 3 members, not confirmed yet by 0000000000000002")
    assert said.endswith("not confirmed yet by its neighbours in the tree: 0000000000000002")
    fabric.resume(1)
    fabric.until(lambda: fabric.core(0).subscriptions[made].in_force)
