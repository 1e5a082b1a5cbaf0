"""Spark's settings where the data is small: starting and compiling would cost more than the work."""

from __future__ import annotations

from collections.abc import Callable

from click.testing import Result

from gossamer.pipeline.session import TINY

# As commands do with little data; and room, as what tests leave behind is found by the garbage collector. Compiled where a test
# does not say otherwise: texts must mean the same either way.
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
