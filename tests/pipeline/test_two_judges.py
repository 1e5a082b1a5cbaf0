"""Two definitions of what was due, made independently: the simulator's own in Python, and Spark's over the traces. They agree."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from gossamer.lab.skiplist.config import Setup as SkipSetup
from gossamer.lab.skiplist.swarm import Flown as SkipFlown
from gossamer.lab.tree.swarm import tree
from gossamer.overlay.skiplist.core import SkipList
from gossamer.pipeline.verify import verify
from gossamer.sim.config import load
from gossamer.sim.faults import Crash
from gossamer.sim.run import Run
from gossamer.sim.scenario import fly
from gossamer.sim.swarm import fabric
from gossamer.sim.traces import Traces

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


class Forgetful(SkipList):
    """Hands every copy over."""

    def receive(self, sender, message, now):  # type: ignore[no-untyped-def]
        self._events.seen.__init__()  # type: ignore[misc]
        return super().receive(sender, message, now)


def skiplist(kind: type[SkipList]) -> SkipFlown:
    crash = Crash(at="1s", lasts="2s", share=0.2)
    setup = SkipSetup(
        entries=12, events=30, interval="100ms", duplicate=0.2, pace="prompt", faults=(crash,)
    )
    return SkipFlown(setup, kind)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Run(load("crash-restart").config),
        lambda: Run(load("lossy").config),
        lambda: fabric(2),
        lambda: skiplist(SkipList),
        lambda: skiplist(Forgetful),
        lambda: tree(3),
    ],
    ids=["crash-restart", "lossy", "fabric", "skiplist", "forgetful", "tree"],
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
    is_broken = request.node.callspec.id == "forgetful"
    assert flight.good is verdict.ok is not is_broken
