"""The vectorised model takes the same walks as the full simulation, and gives the numbers for a
million entries.
"""

from __future__ import annotations

import math
from random import Random

import pytest

from gossamer.filters import Filter
from gossamer.lab.skiplist.config import Setup
from gossamer.lab.skiplist.measure import measure
from gossamer.lab.skiplist.model import Model
from gossamer.lab.skiplist.run import SkipRun
from gossamer.lab.skiplist.workload import SCHEMA, Workload
from gossamer.machine import SECOND

# All of it together takes seconds.
pytestmark = pytest.mark.slow

np = pytest.importorskip("numpy")


@pytest.mark.parametrize(
    ("count", "k", "routing"),
    [(33, 2, "gossamer"), (40, 2, "paper"), (30, 3, "gossamer"), (41, 4, "gossamer")],
)
def test_walk_by_walk_as_the_full_simulation(count: int, k: int, routing: str) -> None:
    filters = [Filter.parse(f"size = {10 * number}", SCHEMA) for number in range(count)]
    setup = Setup(entries=count, events=0, k=k, routing=routing, lease="0s", seed=count)
    run = SkipRun(setup, Workload(filters, []))
    run.boot_in_waves(count)
    assert run.until(run.is_perfect, 300, SECOND) is not None
    # Midpoints are told with the gossip, too.
    run.wait(40)
    rng = Random(count)
    walks = [(int(rng.random() * count), int(rng.random() * (2 * count - 1))) for _ in range(80)]
    for source, target in walks:
        run.publish(run.world.nodes[source], ("", "", 5 * target))
        run.wait(0.15)
    hops, _ = Model(count, k, routing).walk(
        [source for source, _ in walks], [target for _, target in walks]
    )
    assert [sent.hops for sent in run.events] == hops.tolist()


def test_the_noise_of_the_model_is_its_visits() -> None:
    hops, visits = Model(1_000, 2).walk(
        list(range(1_000)), [2 * ((7 * n) % 1_000) + 1 for n in range(1_000)]
    )
    assert visits.sum() == hops.sum()


def test_a_million_entries() -> None:
    found = measure(Setup(entries=1_000_000, events=20_000, seed=1))
    assert found.model
    assert found.hops.mean <= math.log2(1_000_000) / 3 + 0.5
    assert found.hops.max <= math.log2(1_000_000) + 1
    paper = measure(Setup(entries=1_000_000, events=20_000, seed=1, routing="paper"))
    assert paper.hops.mean > found.hops.mean + 2


def test_mean_hops_grow_as_a_third_of_the_logarithm() -> None:
    for count in (1_000, 20_000, 300_000):
        rng = np.random.Generator(np.random.PCG64(1))
        hops, _ = Model(count, 2).walk(
            rng.integers(0, count, 5_000), rng.integers(0, 2 * count, 5_000)
        )
        assert hops.mean() <= math.log2(count) / 3 + 0.5
