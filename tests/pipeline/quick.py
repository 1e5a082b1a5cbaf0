"""Spark's settings where the data is small: starting and compiling would cost more than the work."""

from __future__ import annotations

from collections.abc import Callable

from click.testing import Result

# One partition after a shuffle, joins without a job of their own for each table that would be broadcast, a plan that is made once,
# not checked after each rule and not told at length; and room, as what tests leave behind is found by the garbage collector.
FAST = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.join.preferSortMergeJoin": "false",
    "spark.default.parallelism": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.lightweightPlanChangeValidation": "false",
    "spark.sql.ui.explainMode": "simple",
    "spark.shuffle.compress": "false",
    "spark.driver.memory": "2g",
    "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1",
}
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}

Invoke = Callable[..., Result]
"""``gossamer pipeline`` with these words, on the session that the tests share."""
