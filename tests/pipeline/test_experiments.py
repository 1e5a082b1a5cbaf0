"""Cells of a grid: their flags, numbers and command lines. Each command line gives the same run."""

from __future__ import annotations

import json
import shlex

import click
import pytest
from click.testing import CliRunner

from gossamer.cli.simulate import simulate
from gossamer.lab import experiments
from gossamer.lab.experiments import (
    FAULTS,
    NONE,
    OPTIONS,
    OVERLAYS,
    Cell,
    GridError,
    cells,
    execute,
)


def test_every_combination_is_one_cell() -> None:
    found = cells(["tree", "interest"], [8, 16], [2, 3], range(3), [NONE])
    assert len(found) == 24
    assert len({cell.run() for cell in found}) == 24
    assert all(0 <= cell.run() < 2**63 for cell in found)


def test_a_run_has_the_same_number_in_every_grid() -> None:
    plain = Cell("tree", 10, 0, 3)
    # 0 takes the overlay's own parameter.
    assert plain.run() == Cell("tree", 10, 2, 3).run()
    assert plain.run() != Cell("tree", 10, 2, 3, "loss").run()
    options = (("events", 5), ("measure", "4s"))
    assert Cell("tree", 10, options=options).run() == Cell("tree", 10, options=options[::-1]).run()


def _flags(overlay: str) -> set[str]:
    command = simulate.commands[overlay]
    return {
        name for param in command.params if isinstance(param, click.Option) for name in param.opts
    }


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_everything_a_cell_may_be_told_is_a_flag_of_the_command(overlay: str) -> None:
    flags = _flags(overlay)
    told = [*OPTIONS[overlay], experiments.SIZE[overlay], experiments.PARAMETER[overlay], "seed"]
    told += [name for trouble in FAULTS[overlay].values() for name in trouble]
    assert [name for name in told if f"--{name.replace('_', '-')}" not in flags] == []


@pytest.mark.parametrize(
    "cell",
    [
        Cell("flood", 8, 3, 5, "lossy", (("events", 5),)),
        Cell("tree", 9, 2, 1, NONE, (("key_bits", 8), ("measure", "4s"))),
        Cell(
            "skiplist", 14, 2, 2, NONE, (("events", 10), ("workload", "trace"), ("trace", "sample"))
        ),
        Cell("interest", 8, 3, 1, "leave", (("subscriptions", 2), ("topics", 10))),
    ],
    ids=lambda cell: cell.overlay,
)
def test_the_replay_command_does_the_same_run(cell: Cell) -> None:
    cell.check()
    found = execute(cell.overlay, cell.flags())
    words = shlex.split(cell.replay())
    assert words[:2] == ["gossamer", "simulate"]
    done = CliRunner().invoke(simulate, [*words[2:], "--json"])
    assert found.good == (
        done.return_value == 0 if done.return_value is not None else done.exit_code == 0
    )
    assert json.loads(done.stdout.splitlines()[-1])["digest"] == found.digest
    assert found.measures
    assert all(isinstance(value, float) for value in found.measures.values())


def test_what_a_tree_tells_adds_up() -> None:
    found = execute(
        "tree", Cell("tree", 9, 2, 1, NONE, (("key_bits", 8), ("measure", "6s"))).flags()
    )
    assert sum(found.spreads["degree"].values()) == 9
    joins = [each for each in found.reconfigurations if each["what"] == "join"]
    leaves = [each for each in found.reconfigurations if each["what"] == "leave"]
    assert [each["hosts"] for each in found.reconfigurations] == [9, 10] * 3
    assert (len(joins), len(leaves)) == (3, 3)
    mean = sum(each["area"] for each in joins) / 3
    assert found.measures["area_join_mean"] == pytest.approx(mean, abs=1e-3)


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        (Cell("ring", 5), "no overlay 'ring'; there are flood"),
        (Cell("tree", 5, fault="fire"), "no fault 'fire'; there are none, loss, churn"),
        (Cell("tree", 5, options=(("colour", 1),)), "no option 'colour'; there are events"),
        (Cell("tree", 0), "hosts is 0; it must be from 1"),
        (Cell("interest", 5, options=(("latency", "fast"),)), "latency"),
        (Cell("skiplist", 5, options=(("routing", "best"),)), "routing is 'best'"),
    ],
)
def test_what_cannot_be_run_is_refused_in_words(cell: Cell, said: str) -> None:
    with pytest.raises(GridError, match=said):
        cell.check()
