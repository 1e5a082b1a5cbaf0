"""The load benchmark, small: processes, changing content filters, and Spark's verdict."""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import gossamer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.live, pytest.mark.spark, pytest.mark.slow]
LOAD = Path(__file__).parents[2] / "benchmarks" / "load.py"


def load() -> Any:
    spec = importlib.util.spec_from_file_location("load", LOAD)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_small_load_is_as_the_oracle_says(spark: SparkSession, tmp_path: Path) -> None:
    from gossamer.pipeline.verify import verify

    given = argparse.Namespace(nodes=8, events=5000, filters=200, seed=1)
    (tmp_path / "traces").mkdir()
    said = gossamer.run(load().live(given, tmp_path, lambda text: None))
    assert (said["nodes"], said["events"], said["filters"]) == (8, 5000, 200)
    assert said["subscriptions_churned"] > 0
    verdict = verify(spark, tmp_path / "traces")
    wrong = (
        verdict.missed,
        verdict.duplicate,
        verdict.spurious,
        verdict.incomplete,
        verdict.broken,
    )
    assert wrong == (0, 0, 0, 0, 0), verdict.examples
    assert verdict.delivered + verdict.allowed == said["receipts_matched"] > 1000
