"""What Spark prints of a failure before it raises it; and of Ctrl-C.

A command tells a user's mistake in one line, and raises anything else whole, with Java's own trace. Spark prints both as well, for
each task, before anybody could catch them: dozens of lines above the one that says what to do. Only what is raised again is
silenced (``hush``); whatever else Spark has to say (executors that are lost, a master that does not answer) is printed as ever.
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
"""Who prints what is raised."""


@contextlib.contextmanager
def own_interrupts() -> Iterator[None]:
    """Ctrl-C stays what it was, where Spark would put a handler of its own in its place.

    That one calls the JVM in the middle of another call to it, which fails (a "reentrant call") with two tracebacks. Without it
    Ctrl-C is a KeyboardInterrupt as everywhere, and the jobs end with the session. py4j logs either, though it raises it.
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
    """One that was about to start would complain that it may not."""
    from pyspark import SparkContext

    started = getattr(
        SparkContext._gateway, "proc", None
    )  # by this process, not by one that runs it
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
    """Ctrl-C, or what came of it: a call to the JVM on the way out of the one that was cut off fails, too."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def stop(spark: SparkSession, why: BaseException) -> None:
    """After something went wrong, which is the error to tell: it may have taken the JVM with it. Tasks that are cut off by Ctrl-C
    complain of what is gone.
    """
    with contextlib.suppress(Exception):
        if is_interrupt(why):
            spark.sparkContext.setLogLevel("OFF")
        spark.stop()


def hush(spark: SparkSession) -> None:
    """Print nothing that is raised, too."""
    from pyspark.logger import PySparkLogger

    log4j = spark.sparkContext._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    for name in RAISED:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)
    # Of its own class, which knows more arguments than Python's: so not by logging.getLogger.
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
