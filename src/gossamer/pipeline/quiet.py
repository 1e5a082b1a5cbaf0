"""For commands: what Spark prints of a failure before it raises it.

A command tells a user's mistake in one line, and raises anything else whole, with Java's own trace. Spark prints both as well, for
each task, before anybody could catch them: dozens of lines above the one that says what to do. Only what is raised again is
silenced; whatever else Spark has to say (executors that are lost, a master that does not answer) is printed as ever.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RAISED = (
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
    "org.apache.spark.sql.execution.datasources.FileFormatWriter",
    "org.apache.spark.util.Utils",
)
"""Who prints what is raised."""


def hush(spark: SparkSession) -> None:
    """Print nothing that is raised, too."""
    from pyspark.logger import PySparkLogger

    log4j = spark.sparkContext._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    for name in RAISED:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)
    # Of its own class, which knows more arguments than Python's: so not by logging.getLogger.
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
