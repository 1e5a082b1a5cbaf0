"""What every test may use. One Spark session serves the whole run: starting a JVM costs seconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from pipeline.quick import FAST

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_itemcollected(item: pytest.Item) -> None:
    """With several processes (pytest -n), one of them has all that use Spark."""
    if item.get_closest_marker("spark") is not None:
        item.add_marker(pytest.mark.xdist_group("spark"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """It begins with that: it is the longest."""
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from gossamer.pipeline.session import session

    with session("gossamer-tests", "local[2]", conf=FAST) as spark:
        yield spark
