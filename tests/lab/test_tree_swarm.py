"""The swarm of trees: everything from the seed.

``make swarm`` has a thousand; a few are here, and all that failed before.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from gossamer.cli.simulate import simulate
from gossamer.lab.tree.config import Setup
from gossamer.lab.tree.swarm import Flown, draw_setup, tree
from gossamer.sim.config import from_toml, to_toml
from gossamer.sim.scenario import fly
from gossamer.sim.swarm import swarm

# All of it together takes seconds.
pytestmark = pytest.mark.slow

PAST = tomllib.loads((Path(__file__).parent.parent / "seeds.toml").read_text("utf-8")).get(
    "tree", []
)


@pytest.mark.parametrize("seed", range(2, 10))
def test_a_seed_comes_to_rest_with_everything_delivered(seed: int) -> None:
    flight = fly(tree(seed))
    assert flight.good, "\n".join([*flight.violations, flight.toml, flight.replay])


@pytest.mark.parametrize("past", PAST, ids=lambda past: str(past["seed"]))
def test_past_failures_stay_fixed(past: dict[str, str]) -> None:
    flight = fly(Flown(from_toml(past["scenario"], "seeds.toml", Setup).config))
    assert flight.good, "\n".join([past["why"], *flight.violations, past["scenario"]])


def test_seeds_draw_every_kind_of_run() -> None:
    setups = [draw_setup(seed) for seed in range(60)]
    assert {setup.dht for setup in setups} == {"ideal", "view", "chord"}
    assert {setup.rooting for setup in setups} == {"zero", "seed"}
    assert {setup.arity for setup in setups} == {2, 3, 5}
    assert len({setup.loss for setup in setups}) == 3


def test_a_setup_is_read_back_as_it_was_drawn() -> None:
    for seed in range(20):
        setup = draw_setup(seed)
        assert from_toml(to_toml(setup), "here", Setup).config == setup


def test_one_seed_is_one_digest_whatever_the_number_of_processes() -> None:
    one = list(swarm(tree, 5, 2, jobs=1))
    assert one == list(swarm(tree, 5, 2, jobs=2))
    assert one[0].digest != one[1].digest


def test_the_command_flies_it() -> None:
    words = ["swarm", "--overlay", "tree", "--start", "5", "--seeds", "1", "--jobs", "1", "--json"]
    done = CliRunner().invoke(simulate, words, standalone_mode=False)
    assert done.exception is None
    flight, total = map(json.loads, done.output.splitlines())
    assert flight["good"]
    assert flight["replay"] == "gossamer simulate swarm --overlay tree --start 5 --seeds 1"
    assert total["failed"] == []
