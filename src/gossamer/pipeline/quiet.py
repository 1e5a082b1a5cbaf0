"""Silences Spark's own output about a failure that is raised anyway, and about Ctrl-C.

A command reports a user's mistake in one line, and raises any other error whole, with Java's own
trace. Spark prints both as well, for each task, before any code can catch them: dozens of lines
above the one line with the remedy. ``hush`` silences only errors that are raised again. Spark
prints all other messages as before, such as lost executors or a master that does not answer.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RAISED = (
    "org.apache.spark.TaskContextImpl",
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
    "org.apache.spark.sql.execution.datasources.FileFormatWriter",
    "org.apache.spark.util.Utils",
)
"""The loggers that print errors that are raised."""


@contextlib.contextmanager
def own_interrupts() -> Iterator[None]:
    """Keep the meaning of Ctrl-C where Spark would install a handler of its own.

    Spark's handler calls the JVM in the middle of another call to it, which fails (a "reentrant
    call") with two tracebacks. Without it Ctrl-C is a KeyboardInterrupt as everywhere, and the jobs
    end with the session. py4j logs both, although it raises them.
    """
    before = signal.getsignal(signal.SIGINT)
    if _drop_interrupts not in logging.getLogger().filters:
        logging.getLogger().addFilter(_drop_interrupts)
    try:
        yield
    except KeyboardInterrupt:
        _end_jvm()
        raise
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def _end_jvm() -> None:
    """Kill a JVM that is about to start, because it would complain that it may not."""
    from pyspark import SparkContext

    # A JVM that this process started, and not one that runs this process.
    started = getattr(SparkContext._gateway, "proc", None)
    if started is not None and SparkContext._active_spark_context is None:
        started.kill()
        SparkContext._gateway = SparkContext._jvm = None


def _drop_interrupts(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    interrupted = isinstance(error, KeyboardInterrupt) or "reentrant call" in str(
        getattr(error, "__context__", None)
    )
    return not (interrupted and record.module in ("java_gateway", "clientserver"))


def is_interrupt(error: BaseException | None) -> bool:
    """Whether an error is Ctrl-C or follows from it.

    A call to the JVM also fails on the way out of an interrupted call.
    """
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def stop(spark: SparkSession, why: BaseException) -> None:
    """Stop the session after an error.

    The error may have taken the JVM with it, so errors of stopping are not raised. Tasks that
    Ctrl-C interrupts complain of missing things, so their log is off.
    """
    with contextlib.suppress(Exception):
        if is_interrupt(why):
            spark.sparkContext.setLogLevel("OFF")
        spark.stop()


def hush(spark: SparkSession) -> None:
    """Do not print errors that are raised, too."""
    from pyspark.logger import PySparkLogger

    log4j = spark.sparkContext._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    for name in RAISED:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)
    # These loggers have a class of their own that knows more arguments than Python's, so
    # logging.getLogger cannot make them.
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
