"""The workload: the seed's way, and the same rows whatever the partitioning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from gossamer.filters import Filter, Schema
from gossamer.pipeline import oracle, traces, workload
from gossamer.pipeline.stages import with_values
from gossamer.pipeline.tables import EVENTS, FILTERS, check_rows, check_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ODD = ["it's", "100%_sure\\", "\\'", "é😀", "a", "-- x", "/* y", '"q"', "@s", "DATE '2020-01-01'"]


def rows() -> list[tuple[Any, ...]]:
    plain = [(f"p{n % 60}", f"lib{n}_1.{n % 7}.dsc", ("dsc", "orig.gz")[n % 2], n * n, "f", n) for n in range(150)]
    odd = [(f"odd{n % 40}", ODD[n % len(ODD)], ODD[n % 7], (2**63 - 1, 0, 7)[n % 3], "g", n) for n in range(80)]
    return list({row[:4]: row for row in plain + odd}.values())


def tables(spark: SparkSession, partitions: int = 2) -> tuple[DataFrame, DataFrame]:
    ddl = "peer STRING, name STRING, type STRING, size BIGINT, source STRING, line BIGINT, reason STRING, row STRING"
    parsed = spark.createDataFrame([(*row, None, "") for row in rows()], ddl).repartition(partitions)
    parts = traces.split(parsed)
    return parts["items"], parts["holdings"]


@pytest.mark.spark
def test_the_same_whatever_the_partitioning(spark: SparkSession) -> None:
    found = []
    for partitions in (1, 2, 7):
        parts = tables(spark, partitions)
        filters, events = workload.filters(*parts, 3, 70), workload.events(*parts, 3, 120)
        found.append((sorted(filters.collect()), sorted(events.collect())))
    assert found[0] == found[1] == found[2]
    filters, events = found[0]
    assert [row["filter"] for row in filters] == list(range(70))
    assert [row["event"] for row in events] == list(range(120))
    assert sorted(workload.filters(*tables(spark), 4, 70).collect()) != filters  # another seed, another workload


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
    items, holdings = tables(spark)
    filters, events = workload.filters(items, holdings, 1).persist(), workload.events(items, holdings, 1).persist()
    check_schema(filters, FILTERS)
    check_schema(events, EVENTS)
    assert check_rows(filters, FILTERS).rows == holdings.select("peer").distinct().count()
    assert check_rows(events, EVENTS).rows == items.count()
    assert filters.select("shape").distinct().count() > 6
    read = with_values(events, workload.topics(filters, events))
    matched = oracle.matches(read["files"], filters)
    own = matched.join(events.select("event", "values"), on="event").join(filters, on="filter")
    held = own.join(items.select("item", "values"), on="values").join(holdings.select("peer", "item"), on=["peer", "item"])
    assert held.select("filter").distinct().count() == filters.count()
