"""What every test may use. One Spark session serves the whole run: starting a JVM costs seconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from pipeline.quick import FAST

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.hookimpl(tryfirst=True)  # xdist looks at the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With several processes (pytest -n), one of them has all that use Spark, and begins with it: it is the longest."""
    for item in items:
        if item.get_closest_marker("spark") is not None:
            item.add_marker(pytest.mark.xdist_group("spark"))
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from gossamer.pipeline.session import session

    with session("gossamer-tests", "local[2]", conf=FAST) as spark:
        yield spark
