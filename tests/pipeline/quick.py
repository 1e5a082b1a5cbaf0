"""Spark's settings for small data, where starting and compiling would cost more than the work."""

from __future__ import annotations

from collections.abc import Callable

from click.testing import Result

from gossamer.pipeline.session import TINY

# Commands use these settings with little data. The memory has room, because the garbage collector
# finds the leavings of tests late. Code is compiled unless a test says otherwise, because texts
# must mean the same either way.
INTERPRETED = {
    name: TINY[name] for name in ("spark.sql.codegen.wholeStage", "spark.sql.codegen.factoryMode")
}
FAST = {name: value for name, value in TINY.items() if name not in INTERPRETED} | {
    "spark.default.parallelism": "2",
    "spark.shuffle.compress": "false",
    "spark.driver.memory": "2g",
}

Invoke = Callable[..., Result]
"""``gossamer pipeline`` with these words, on the session that the tests share."""
