"""The models as one DataFrame program: the rows do not depend on the cutting, and the numbers are
those of the models.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import numpy as np

from gossamer.lab import models
from gossamer.lab.models import ModelError, Plan
from gossamer.pipeline.contracts import check_rows, check_schema
from gossamer.pipeline.tables import MODELS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLANS = (
    Plan("skiplist", 200, events=300),
    Plan("interest", 60, 4, events=7),
    Plan("tree", 90, events=7),
    Plan("robustness", 50),
)


def _spread(rows: list[Any], plane: str, what: str) -> dict[int, int]:
    return {row["at"]: row["count"] for row in rows if (row["plane"], row["what"]) == (plane, what)}


@pytest.mark.spark
def test_the_same_rows_in_one_two_and_seven_parts(spark: SparkSession) -> None:
    found = []
    for parts in (1, 2, 7):
        made = models.models(models.plans(spark, PLANS, parts))
        check_schema(made, MODELS)
        rows = made.collect()
        found.append(sorted(tuple(row) for row in rows))
    assert found[0] == found[1] == found[2]
    # Each event is followed once.
    assert made._jdf.queryExecution().executedPlan().toString().count("MapInArrow") == 1
    same = spark.createDataFrame(rows, MODELS.ddl)
    check_rows(same, MODELS)
    summary = {(row["plane"], row["what"]): row for row in models.summary(same).collect()}
    hops = _spread(rows, "skiplist", "hops")
    assert sum(hops.values()) == 300
    load, noise = _spread(rows, "skiplist", "load"), _spread(rows, "skiplist", "noise")
    # Entries without any are counted, too.
    assert sum(load.values()) == sum(noise.values()) == 200
    assert sum(at * count for at, count in load.items()) == sum(
        at * count for at, count in hops.items()
    )
    rounds = _spread(rows, "interest", "rounds")
    assert sum(rounds.values()) == 7 * 59
    assert -1 not in rounds
    assert sum(_spread(rows, "tree", "depth").values()) == 90
    assert max(_spread(rows, "tree", "degree")) <= 3
    values = [at for at, count in sorted(hops.items()) for _ in range(count)]
    one = summary["skiplist", "hops"]
    assert (one["p50"], one["p99"], one["most"]) == (values[149], values[296], values[-1])
    assert one["mean"] == pytest.approx(np.mean(values))
    left, reached = _spread(rows, "robustness", "survivors"), _spread(rows, "robustness", "reached")
    assert sorted(left) == list(models.FAILED)
    assert left[10] == 4 * 45
    # The graph is 6-connected, so five nodes do not cut it.
    assert reached[10] == left[10]
    assert all(reached[at] <= left[at] for at in left)


def test_a_task_follows_the_events_of_its_part_and_no_other() -> None:
    whole = list(models._tree(90, 2, 0, 6, 0, 6))
    parts = [each for first in (0, 2, 4) for each in models._tree(90, 2, 0, 6, first, first + 2)]

    def total(found: list[Any], what: str) -> dict[int, int]:
        added: dict[int, int] = {}
        for name, at, count in found:
            if name == what:
                for place, value in zip(at.tolist(), count.tolist(), strict=True):
                    added[place] = added.get(place, 0) + value
        return dict(sorted(added.items()))

    for what in ("hops", "noise", "load", "depth", "copies_of_event"):
        assert total(whole, what) == total(parts, what), what


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (Plan("ring", 10), "no model of 'ring'; there are skiplist"),
        (Plan("tree", 10, 4), "the model of the tree is binary"),
        (Plan("skiplist", 1), "size is 1; it must be from 2"),
        (Plan("skiplist", 10, 1), "parameter is 1"),
    ],
)
def test_what_cannot_be_modelled_is_refused_in_words(plan: Plan, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        plan.checked()
