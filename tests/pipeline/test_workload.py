"""The workload of the seed's kind. The rows do not depend on the partitioning."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import itertools

from pyspark.sql import functions as sf

from gossamer.filters import Filter, Schema
from gossamer.pipeline import churn, oracle, synthetic, workload
from gossamer.pipeline.contracts import check_rows, check_schema
from gossamer.pipeline.stages import with_values
from gossamer.pipeline.synthetic import Recipe
from gossamer.pipeline.tables import CHURN, EVENTS, FILTERS, HOLDINGS, ITEMS, SESSIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ODD = ["it's", "100%_sure\\", "\\'", "é😀", "a", "-- x", "/* y", '"q"', "@s"]
ODD += ["DATE '2020-01-01'"]


def rows() -> list[tuple[Any, ...]]:
    plain = [
        (f"p{n % 60}", f"lib{n}_1.{n % 7}.dsc", ("dsc", "orig.gz")[n % 2], n * n, "f", n)
        for n in range(150)
    ]
    odd = [
        (f"odd{n % 40}", ODD[n % len(ODD)], ODD[n % 7], (2**63 - 1, 0, 7)[n % 3], "g", n)
        for n in range(80)
    ]
    return list({row[:4]: row for row in plain + odd}.values())


def files(spark: SparkSession, partitions: int = 2) -> tuple[DataFrame, DataFrame]:
    """Items and holdings of a trace of files."""
    numbers = {
        file: number for number, file in enumerate(dict.fromkeys(row[1:4] for row in rows()))
    }
    items = [
        (
            number,
            "files",
            workload.SCHEMA,
            json.dumps(dict(zip(("name", "type", "size"), file, strict=True))),
            1,
            "f",
            number,
        )
        for file, number in numbers.items()
    ]
    holdings = [(row[0], numbers[row[1:4]], 1, *row[4:]) for row in rows()]
    return (
        spark.createDataFrame(items, ITEMS.ddl).repartition(partitions),
        spark.createDataFrame(holdings, HOLDINGS.ddl).repartition(partitions),
    )


@pytest.mark.spark
def test_the_same_whatever_the_partitioning(spark: SparkSession) -> None:
    found = []
    before = spark.conf.get("spark.sql.shuffle.partitions")
    assert before is not None
    for partitions in (1, 2, 7):
        spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
        parts = files(spark, partitions)
        filters, events = workload.filters(*parts, 3, 70), workload.events(*parts, 3, 120)
        found.append((sorted(filters.collect()), sorted(events.collect())))
    spark.conf.set("spark.sql.shuffle.partitions", before)
    assert found[0] == found[1] == found[2]
    filters, events = found[0]
    assert [row["filter"] for row in filters] == list(range(70))
    assert [row["event"] for row in events] == list(range(120))
    # Another seed gives another workload.
    assert sorted(workload.filters(*files(spark), 4, 70).collect()) != filters


@pytest.mark.spark
def test_every_shape_matches_the_largest_size(spark: SparkSession) -> None:
    largest = spark.createDataFrame(
        [("p", "lib", "dsc", 2**63 - 1)], "peer STRING, name STRING, type STRING, size BIGINT"
    )
    for name, _, pattern in workload.SHAPES:
        row = largest.select("*", workload._fill(pattern, 0).alias("text")).first()
        assert row is not None
        assert largest.where(row["text"]).count() == 1, name
        Filter.parse(row["text"], Schema.parse(workload.SCHEMA))


@pytest.mark.spark
def test_each_filter_matches_a_file_of_its_peer(spark: SparkSession) -> None:
    items, holdings = files(spark)
    filters, events = (
        workload.filters(items, holdings, 1).persist(),
        workload.events(items, holdings, 1).persist(),
    )
    check_schema(filters, FILTERS)
    check_schema(events, EVENTS)
    assert check_rows(filters, FILTERS).rows == holdings.select("peer").distinct().count()
    assert check_rows(events, EVENTS).rows == items.count()
    assert filters.select("shape").distinct().count() > 6
    read = with_values(events, workload.topics(filters, events, workload.schemas(items)))
    matched = oracle.matches(read[("files",)], filters.select("filter", "topic", "text"))
    own = matched.join(events.select("event", "values"), on="event").join(filters, on="filter")
    held = own.join(items.select("item", "values"), on="values").join(
        holdings.select("peer", "item"), on=["peer", "item"]
    )
    assert held.select("filter").distinct().count() == filters.count()


GENERAL = "mag DOUBLE, place STRING, felt BIGINT, day DATE, at TIMESTAMP, ok BOOLEAN"


@pytest.mark.spark
def test_items_with_any_attributes_get_filters_that_match_them(spark: SparkSession) -> None:
    values = [
        {"mag": 2.5, "place": "it's", "felt": 3, "day": "2020-01-31",
            "at": "2020-01-31T10:00:00.123456Z", "ok": True},
        {"mag": -0.001}, {"felt": 2**63 - 1}, {"felt": -(2**63)}, {"mag": 1e14, "ok": False}, {},
    ]  # fmt: skip
    items = [
        (n, "quakes", GENERAL, json.dumps(v), int(n == 0), "f", n) for n, v in enumerate(values)
    ]
    frame = spark.createDataFrame(items, ITEMS.ddl)
    holdings = spark.createDataFrame([("p", 0, 1, "f", 0)], HOLDINGS.ddl)
    events = workload.events(frame, holdings, 1)
    for exact in (False, True):
        filters = workload.filters(frame, holdings, 1, exact=exact).persist()
        assert {row["peer"] for row in filters.collect()} == {
            "p",
            *(f"item-{n}" for n in range(1, 6)),
        }
        for row in filters.collect():
            Filter.parse(row["text"], Schema.parse(GENERAL))
        read = with_values(events, workload.topics(filters, events, workload.schemas(frame)))
        matched = (
            oracle.matches(read[("quakes",)], filters.select("filter", "topic", "text"))
            .join(filters, on="filter")
            .join(events.drop("topic", "peer"), on="event")
        )
        own = {
            row["peer"]
            for row in matched.collect()
            if json.loads(row["values"]) == values[number(row["peer"])]
        }
        assert len(own) == len(values)


def number(peer: str) -> int:
    return 0 if peer == "p" else int(peer.removeprefix("item-"))


@pytest.mark.spark
def test_synthetic_workloads(spark: SparkSession) -> None:
    schema = Schema.parse(workload.SCHEMA)
    for kind in synthetic.KINDS:
        recipe = Recipe(
            kind, filters=300, events=200, seed=5, topics=3, zipf=1.0, width=0.05, wildcards=0.5
        )
        found = []
        for parts in (1, 7):
            filters, events = (
                synthetic.filters(spark, recipe).repartition(parts),
                synthetic.events(spark, recipe),
            )
            found.append((sorted(filters.collect()), sorted(events.collect())))
        assert found[0] == found[1]
        filters, events = synthetic.filters(spark, recipe), synthetic.events(spark, recipe)
        check_schema(filters, FILTERS)
        check_schema(events, EVENTS)
        texts = [row["text"] for row in found[0][0]]
        for text in dict.fromkeys(text for text in texts[:40]):
            Filter.parse(text, schema)
        per_topic = {
            f"topic-{n}": sum(row["topic"] == f"topic-{n}" for row in found[0][0]) for n in range(3)
        }
        assert per_topic["topic-0"] > per_topic["topic-1"] > per_topic["topic-2"] > 0
        shapes = {row["shape"] for row in found[0][0]}
        assert shapes == (
            set(synthetic.MIXES[kind]) if kind in synthetic.MIXES else {"point", "open", "prefix"}
        )


@pytest.mark.spark
def test_two_in_five_uniform_events_match(spark: SparkSession) -> None:
    recipe = Recipe("uniform", filters=1000, events=1000, seed=1)
    filters = synthetic.filters(spark, recipe).select("topic", sf.col("text"))
    points = filters.select(
        sf.regexp_extract_all("text", sf.lit("'([^']*)'"), sf.lit(1)).alias("p")
    ).distinct()
    events = synthetic.events(spark, recipe).select(
        sf.from_json("values", workload.SCHEMA).alias("v")
    )
    matched = events.join(
        points, on=sf.array("v.name", "v.type") == sf.col("p"), how="left_semi"
    ).count()
    # 1 - exp(-1/2) is 39 %.
    assert 350 < matched < 440
    ranges = synthetic.filters(spark, Recipe("ranges", filters=200, width=0.1)).collect()
    ends = [
        tuple(int(word) for word in row["text"].split("BETWEEN ")[1].split(" AND "))
        for row in ranges
    ]
    # This is a tenth of 200 sizes that are a thousand apart.
    assert {high - low for low, high in ends if low > 0} == {20_000}


@pytest.mark.spark
def test_churn_from_sessions_and_from_fits(spark: SparkSession) -> None:
    stays = [("a", 0, 0, 500, False), ("a", 1, 600, None, True), ("b", 0, 250, 1000, True)]
    sessions = spark.createDataFrame([(*stay, "f", 1) for stay in stays], SESSIONS.ddl)
    peers = spark.createDataFrame([(f"p{n}",) for n in range(40)], "peer STRING")
    found = churn.from_sessions(peers, sessions, 10_000, 3)
    check_schema(found, CHURN)
    check_rows(found, CHURN)
    rows = found.collect()
    assert {(row["session"], row["up_us"], row["down_us"]) for row in rows} == {
        (0, 0, 5000),
        (1, 6000, None),
        (0, 2500, None),
    }
    assert len({row["peer"] for row in rows}) == 40
    again = churn.from_sessions(peers.repartition(7), sessions.repartition(3), 10_000, 3)
    assert sorted(again.collect(), key=str) == sorted(rows, key=str)
    seen_late = spark.createDataFrame(
        [("a", 0, 0, 500, True, "f", 1), ("a", 1, 600, 1000, False, "f", 2)], SESSIONS.ddl
    )
    late = churn.from_sessions(peers.limit(1), seen_late, 10_000, 3).orderBy("session").collect()
    # The second stay lasts from the first observation on.
    assert [(row["up_us"], row["down_us"]) for row in late] == [
        (0, 5000),
        (6000, None),
    ]
    fit = churn.from_fit(spark, peers, "client", 120_000_000, 5.0, 1)
    check_rows(fit, CHURN)
    by_peer: dict[str, list[Any]] = {}
    for row in sorted(fit.collect(), key=lambda row: (row["peer"], row["session"])):
        by_peer.setdefault(row["peer"], []).append(row)
    assert max(map(len, by_peer.values())) > 1
    for stays_ in by_peer.values():
        assert [row["session"] for row in stays_] == list(range(len(stays_)))
        for one, next_ in itertools.pairwise(stays_):
            assert one["up_us"] < one["down_us"] <= next_["up_us"]
    filters = spark.createDataFrame([(0, "t", "p", "s", "x")], FILTERS.ddl)
    lived = spark.createDataFrame([("p", 0, 0, 50), ("p", 1, 100, None)], CHURN.ddl)
    assert sorted(tuple(row) for row in churn.lives(filters, lived, 10).collect()) == [
        (0, -11, -1, 50),
        (0, 100, 110, None),
    ]
