"""Counts the tasks that Spark has done, for a progress bar."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PERIOD_S = 0.2


@contextlib.contextmanager
def watch(spark: SparkSession, on_tasks: Callable[[int, int], None]) -> Iterator[None]:
    """Call ``on_tasks(done, all)`` with the tasks of the running stages, from a thread of its
    own.
    """
    tracker = spark.sparkContext.statusTracker()
    stop = threading.Event()

    def look() -> None:
        last = None
        while not stop.wait(PERIOD_S):
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            now = (
                sum(s.numCompletedTasks for s in stages if s),
                sum(s.numTasks for s in stages if s),
            )
            if now != last:
                on_tasks(*now)
                last = now

    thread = threading.Thread(target=look, name="spark progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
