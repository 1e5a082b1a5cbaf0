"""Options and fixtures of all tests. One Spark session serves the whole run, because starting a JVM
costs seconds.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from pipeline.quick import FAST

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write the transcripts anew")


def pytest_configure() -> None:
    """A shell that runs the tests in the background makes them ignore Ctrl-C. The programs that
    they interrupt would inherit that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The checks of style come first, because they take seconds and often fail."""
    items.sort(key=lambda item: item.path.name != "test_tidy.py")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from gossamer.pipeline.session import session

    with session("gossamer-tests", "local[2]", conf=FAST) as spark:
        yield spark
