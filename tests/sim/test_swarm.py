"""The swarm with thirty seeds, hundreds with ``make swarm``, and every seed that has failed
before.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from gossamer.sim import simulate
from gossamer.sim.config import from_toml
from gossamer.sim.scenario import fly
from gossamer.sim.swarm import OUTAGE_MAX, draw_config, fabric, flood, swarm

# These are whole runs, and many of them.
pytestmark = pytest.mark.slow

PAST = tomllib.loads((Path(__file__).parent.parent / "seeds.toml").read_text("utf-8"))["past"]


@pytest.mark.parametrize("seed", range(30))
def test_swarm(seed: int) -> None:
    flight = fly(flood(seed))
    assert flight.good, "\n".join([*flight.violations, flight.toml, flight.replay])


@pytest.mark.parametrize("seed", [1, 2, 3, 9, 12, 15, 17, 72, 146, 147])
def test_swarm_of_whole_nodes(seed: int) -> None:
    """All planes run over links that the interest plane opens and closes, under the same faults.

    The seed chooses the route.
    """
    flight = fly(fabric(seed))
    assert flight.good, "\n".join([*flight.violations, flight.toml, flight.replay])


@pytest.mark.parametrize("past", PAST, ids=lambda past: f"{past['seed']}")
def test_past_failures_stay_fixed(past: dict[str, str]) -> None:
    outcome = simulate(from_toml(past["scenario"], "seeds.toml").config)
    assert outcome.good, "\n".join([past["why"], *outcome.violations, past["scenario"]])


def test_the_draws_cover_the_ground() -> None:
    drawn = [draw_config(seed) for seed in range(400)]
    kinds: dict[str, int] = {}
    for config in drawn:
        for fault in config.faults:
            kinds[type(fault).__name__] = kinds.get(type(fault).__name__, 0) + 1
            begin, end = fault.times()
            assert end - begin <= OUTAGE_MAX
    assert (
        min(
            kinds[name]
            for name in ("Partition", "Clogging", "Swizzle", "Crash", "Leave", "Pause", "FullDisk")
        )
        > 40
    )
    assert len(kinds) == 7
    assert {config.nodes for config in drawn} >= set(range(2, 41))
    for name in ("loss", "delay", "breaks", "refuse", "churn", "durable"):
        share = sum(bool(getattr(config, name)) for config in drawn) / len(drawn)
        assert 0.2 < share < 0.6, name
    assert sum(config.burst > 1 for config in drawn) > 80
    assert len({config.latency.partition(":")[0] for config in drawn}) == 4


def test_several_processes_give_the_same_flights_in_order() -> None:
    assert list(swarm(flood, 30, 4, jobs=2)) == list(swarm(flood, 30, 4, jobs=1))
