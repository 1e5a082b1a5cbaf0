"""Two independent definitions of due events agree: the simulator's own in Python, and Spark's over
the traces.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from gossamer.lab.skiplist.config import Setup as SkipSetup
from gossamer.lab.skiplist.swarm import Flown as SkipFlown
from gossamer.lab.tree.swarm import tree
from gossamer.overlay.batch import Batch
from gossamer.pipeline.verify import verify
from gossamer.sim.config import load
from gossamer.sim.faults import Crash
from gossamer.sim.run import Run
from gossamer.sim.scenario import fly
from gossamer.sim.swarm import fabric
from gossamer.sim.traces import Traces
from gossamer.sim.world import Node

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


class Careless(SkipFlown):
    """One of its users takes everything twice, and a third of them take nothing."""

    def _take_one(self, node: Node, batch: Batch, number: int, *row: Any) -> int:
        if node.index == 3:
            super()._take_one(node, batch, number, *row)
        return 0 if node.index % 3 == 1 else super()._take_one(node, batch, number, *row)


def skiplist(kind: type[SkipFlown]) -> SkipFlown:
    crash = Crash(at="1s", lasts="2s", share=0.2)
    return kind(
        SkipSetup(
            entries=12,
            workload="zipf",
            events=30,
            interval="100ms",
            delay=0.2,
            pace="prompt",
            stop="5s",
            faults=(crash,),
        )
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda: Run(load("crash-restart").config),
        lambda: Run(load("lossy").config),
        lambda: fabric(2),
        lambda: skiplist(SkipFlown),
        lambda: skiplist(Careless),
        lambda: tree(3),
    ],
    ids=["crash-restart", "lossy", "fabric", "skiplist", "careless", "tree"],
)
def test_the_two_judges_agree(
    spark: SparkSession, tmp_path: Path, make: Callable[[], Any], request: pytest.FixtureRequest
) -> None:
    scenario = make()
    scenario.world.traces = Traces()
    flight = fly(scenario)
    scenario.world.traces.write(tmp_path)
    verdict = verify(spark, tmp_path)
    book = scenario.book
    assert verdict.expected == book.expected > 0
    assert verdict.delivered + verdict.allowed == book.delivered
    judged = (verdict.missed, verdict.duplicate, verdict.spurious)
    assert judged == (book.missed, book.duplicate, book.spurious)
    assert verdict.broken == 0
    is_broken = request.node.callspec.id == "careless"
    assert bool(book.missed and book.duplicate) is is_broken
    assert flight.good is verdict.ok is not is_broken
