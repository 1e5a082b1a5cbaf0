"""Settings for small data.

Compiling a query costs more than running it, so Spark interprets in these tests.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from gossamer import blocking
from pipeline.fabric import SCHEMA
from pipeline.quick import INTERPRETED, Invoke

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def interpreted(request: pytest.FixtureRequest) -> Iterator[None]:
    if "spark" not in request.fixturenames:
        yield
        return
    spark: SparkSession = request.getfixturevalue("spark")
    for key, value in INTERPRETED.items():
        spark.conf.set(key, value)
    yield
    for key in INTERPRETED:
        spark.conf.unset(key)


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sockets of this test only."""
    path = tmp_path / "run"
    path.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(path))
    return path


@pytest.fixture
def station(runtime: Path) -> Iterator[blocking.Node]:
    with blocking.Node() as node:
        node.advertise("weather", SCHEMA, retention="1h")
        yield node


@pytest.fixture
def invoke(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    from gossamer.cli.app import app

    @contextlib.contextmanager
    def shared(*args: object, **kwargs: object) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr("gossamer.pipeline.session.session", shared)

    def call(*words: object) -> Result:
        return CliRunner().invoke(app, ["pipeline", *map(str, words)])

    return call
