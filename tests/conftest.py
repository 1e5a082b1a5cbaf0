"""What every test may use. One Spark session serves the whole run: starting a JVM costs seconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Small data: one partition and no code generation start fastest.
FAST = {
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.shuffle.compress": "false",
    "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from gossamer.pipeline.session import session

    with session("gossamer-tests", "local[2]", conf=FAST) as spark:
        yield spark
