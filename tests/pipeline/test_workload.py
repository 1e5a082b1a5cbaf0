"""The workload: the seed's way, and the same rows whatever the partitioning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import functions as sf

from gossamer.filters import Filter, Schema
from gossamer.pipeline import oracle, workload
from gossamer.pipeline.tables import EVENTS, FILTERS, TRACES, check_rows, check_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ODD = ["it's", "100%_sure\\", "\\'", "é😀", "a", "-- x", "/* y", '"q"', "@s", "DATE '2020-01-01'"]


def rows() -> list[tuple[Any, ...]]:
    plain = [(f"p{n % 60}", f"lib{n}_1.{n % 7}.dsc", ("dsc", "orig.gz")[n % 2], n * n, "f", n) for n in range(150)]
    odd = [(f"odd{n % 40}", ODD[n % len(ODD)], ODD[n % 7], (2**63 - 1, 0, 7)[n % 3], "g", n) for n in range(80)]
    return list({row[:4]: row for row in plain + odd}.values())


@pytest.mark.spark
def test_the_same_whatever_the_partitioning(spark: SparkSession) -> None:
    found = []
    for partitions in (1, 2, 7):
        traces = spark.createDataFrame(rows(), TRACES.ddl).repartition(partitions)
        filters, events = workload.filters(traces, 3, 70), workload.events(traces, 3, 120)
        found.append((sorted(filters.collect()), sorted(events.collect())))
    assert found[0] == found[1] == found[2]
    filters, events = found[0]
    assert [row["filter"] for row in filters] == list(range(70))
    assert [row["event"] for row in events] == list(range(120))
    traces = spark.createDataFrame(rows(), TRACES.ddl)
    assert sorted(workload.filters(traces, 4, 70).collect()) != filters  # another seed, another workload


@pytest.mark.spark
def test_every_shape_matches_the_largest_size(spark: SparkSession) -> None:
    largest = spark.createDataFrame([("p", "lib", "dsc", 2**63 - 1)], "peer STRING, name STRING, type STRING, size BIGINT")
    for name, _, pattern in workload.SHAPES:
        row = largest.select("*", workload._fill(pattern, 0).alias("text")).first()
        assert row is not None
        assert largest.where(row["text"]).count() == 1, name
        Filter.parse(row["text"], Schema.parse(workload.SCHEMA))


@pytest.mark.spark
def test_each_filter_matches_a_file_of_its_peer(spark: SparkSession) -> None:
    traces = spark.createDataFrame(rows(), TRACES.ddl)
    filters, events = workload.filters(traces, 1).persist(), workload.events(traces, 1).persist()
    check_schema(filters, FILTERS)
    check_schema(events, EVENTS)
    assert check_rows(filters, FILTERS) == traces.select("peer").distinct().count()
    assert check_rows(events, EVENTS) == traces.select("name", "type", "size").distinct().count()
    assert filters.select("shape").distinct().count() > 6
    matched = oracle.matches(events.select("event", sf.struct("name", "type", "size").alias("values")), filters)
    own = matched.join(events.drop("peer"), on="event").join(filters, on="filter")
    held = own.join(traces.select("peer", "name", "type", "size"), on=["peer", "name", "type", "size"])
    assert held.select("filter").distinct().count() == filters.count()
