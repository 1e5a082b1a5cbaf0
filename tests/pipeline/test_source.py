"""Spark reads from a live fabric and writes to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql.types import (
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    StringType,
    StructField,
    StructType,
)

from gossamer import Gap, blocking
from gossamer.net.admin import statuses
from gossamer.pipeline import gateway
from gossamer.pipeline.source import GossamerDataSource, _Tap, register
from gossamer.pipeline.sourceoptions import Options, SourceError
from pipeline.fabric import SCHEMA, events, finish, kill, until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.live


def stream(rows: list[dict[str, Any]]) -> bytes:
    table = pa.Table.from_pylist(rows)
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue().to_pybytes()


Commit = Callable[..., dict[str, Any]]


@pytest.fixture
def sink(station: blocking.Node, tmp_path: Path) -> Iterator[Commit]:
    """Commits of a query's micro-batches, as Spark makes them."""
    given = {"join": station.address, "topic": "out", "dataDir": str(tmp_path / "sink")}
    options = Options(given | {"query": "q"}, "writeStream")

    def commit(
        batch: int, rows: list[dict[str, Any]], checkpoint: str = "a", **changed: str
    ) -> dict[str, Any]:
        request = {
            "topic": "out",
            "schema": "`n` int",
            "retention": "1h",
            "query": "q",
            "checkpoint": checkpoint,
            "batch": batch,
            **changed,
        }
        where = options.gateway(options.data_dir)
        return gateway.ask(where, request, stream(rows) if rows else b"")

    yield commit
    kill(tmp_path)


def numbered(first: int, last: int) -> list[dict[str, Any]]:
    return [{"n": n} for n in range(first, last)]


def nothing(rows: int) -> dict[str, Any]:
    """The reply when all rows were published before."""
    return {"rows": rows, "published": 0, "replay": True, "incomplete": 0}


def test_the_sink_publishes_each_row_once_whatever_is_replayed(
    station: blocking.Node, sink: Commit, tmp_path: Path
) -> None:
    rows = numbered(0, 10_000)
    assert sink(0, rows)["published"] == 10_000
    assert sink(0, rows[::-1]) == nothing(10_000)
    with station.subscribe("out", since="beginning", timeout=30) as got:
        kill(tmp_path)
        # The disk of the sink remembers the rows.
        assert sink(0, rows) == nothing(10_000)
        assert sink(1, [{"n": -1}])["published"] == 1
        assert sink(0, rows) == nothing(10_000)
        numbers = [event["n"] for event in (got.next(timeout=30) for _ in range(10_001))]
        assert list(got.within(0.5)) == []
    assert sorted(numbers) == [-1, *range(10_000)]
    with pytest.raises(gateway.GatewayError, match=r"weather.*is already advertised"):
        sink(0, rows, topic="weather", query="q2")


def test_a_crash_in_the_middle_of_a_commit_publishes_each_row_once_in_whatever_order_it_comes_again(
    station: blocking.Node, sink: Commit, tmp_path: Path
) -> None:
    sink(1, [{"n": -1}])
    # A crash after the first part leaves this: the whole batch is staged, and a part of it is
    # accepted.
    [staged] = (tmp_path / "sink").glob("staged-*")
    rows = numbered(0, 10_000)
    data = stream(rows)
    sink(2, rows[: gateway.ROWS])
    staged.write_bytes(b"2\n" + data)
    kill(tmp_path)
    assert sink(2, rows[::-1]) == nothing(10_000) | {"published": 10_000 - gateway.ROWS}
    assert sink(2, rows) == nothing(10_000)
    # Accepted rows are not kept twice.
    assert staged.stat().st_size < 10
    with station.subscribe("out", since="beginning", timeout=30) as got:
        numbers = [event["n"] for event in (got.next(timeout=30) for _ in range(10_001))]
        assert sorted(numbers) == [-1, *range(10_000)]
        assert list(got.within(0.5)) == []


def test_a_fresh_checkpoint_with_the_same_query_and_data_dir_publishes_all_rows(
    station: blocking.Node, sink: Commit, tmp_path: Path
) -> None:
    for batch in range(3):
        sink(batch, numbered(100 * batch, 100 * batch + 100))
    again = [sink(batch, numbered(1000 + batch, 1050 + batch), "b") for batch in range(3)]
    assert [one["published"] for one in again] == [50, 50, 50]
    # The previous checkpoint continues, too.
    assert sink(2, numbered(0, 100)) == nothing(100)
    assert sink(3, numbered(0, 100))["published"] == 100
    found = [one for one in statuses() if one.get("outbox") and "out" in one["topics"]]
    told = [one["counters"].get("rows already published", 0) for one in found]
    assert sum(told) == 100
    with station.subscribe("out", since="beginning", timeout=30) as got:
        assert len([got.next(timeout=30) for _ in range(550)]) == 550
        assert list(got.within(0.5)) == []


def test_the_tap_keeps_offsets_and_fails_on_lost_events(
    station: blocking.Node, tmp_path: Path
) -> None:
    options = Options(
        {
            "join": station.address,
            "topic": "weather",
            "dataDir": str(tmp_path),
            "filter": "temp >= 10",
        }
    )
    tap = _Tap(options)
    station.publish_batch("weather", events(0, 30)).wait(30)
    until(lambda: tap.latest() == 20)
    assert [values["temp"] for values in tap.between(5, 8)] == [15, 16, 17]
    tap.commit(8)
    tap.close()
    again = _Tap(options)
    assert again.acked == 8
    assert [values["temp"] for values in again.between(8, 20)] == list(range(18, 30))
    with pytest.raises(SourceError, match="an old one"):
        again.between(5, 8)
    again._waiting.append(Gap("weather", 1, (1, 5), (1, 9), "gone", 21))
    again._last = 21
    with pytest.raises(SourceError, match=r"may be lost \(gone\).*failOnDataLoss"):
        again.between(20, 21)
    options.fails = False
    assert again.between(20, 21) == []
    again.close()


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"topic": "t"}, "option 'join' is missing"),
        ({"join": "127.0.0.1:1"}, "option 'topic' is missing"),
        ({"join": "127.0.0.1:1", "topic": "t", "filer": "x"}, "unknown option 'filer'"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, str], what: str) -> None:
    with pytest.raises(SourceError, match=what):
        Options(options)


USES: dict[str, Any] = {
    "read": lambda source: source.reader(StructType()),
    "readStream": lambda source: source.streamReader(StructType()),
    "write": lambda source: source.writer(StructType(), False),
    "writeStream": lambda source: source.streamWriter(StructType(), False),
}
STREAM = {"dataDir": "d", "query": "q"}


@pytest.mark.parametrize(
    ("use", "options", "what"),
    [
        (
            "write",
            {"filter": "temp > 1"},
            r"'filter' is for read, readStream, not for write.*df\.where",
        ),
        (
            "writeStream",
            {**STREAM, "FILTER": "temp > 1"},
            r"'filter' is for read, readStream, not for writeStream.*df\.where",
        ),
        ("write", {"since": "1h"}, "'since' is for read, readStream, not for write"),
        ("write", {"query": "q"}, "'query' is for writeStream, not for write"),
        (
            "write",
            {"failOnDataLoss": "true"},
            "'failOnDataLoss' is for read, readStream, not for write",
        ),
        ("write", {"retention": "zz"}, "'retention': cannot read retention 'zz'"),
        ("write", {"idle": "soon"}, "'idle' is 'soon'; give a number of seconds, 0 or more"),
        ("read", {"maxRows": "3"}, r"'maxRows' is for readStream, not for read.*\.limit\(n\)"),
        ("read", {"retention": "1h"}, "'retention' is for write, writeStream, not for read"),
        ("read", {"query": "q"}, "'query' is for writeStream, not for read"),
        ("read", {"dataDir": "d"}, "'dataDir' is for readStream, write, writeStream, not for read"),
        ("read", {"path": "/some/path"}, r"has no paths.*'/some/path'.*option\('topic'"),
        ("write", {"path": "/some/path"}, "has no paths"),
        ("read", {"failOnDataLoss": "nope"}, "'failOnDataLoss' is 'nope'; give 'true' or 'false'"),
        ("read", {"since": "ages"}, "'since': cannot read since='ages'"),
        (
            "readStream",
            {"dataDir": "d", "maxRows": "abc"},
            "'maxRows' is 'abc'; give a whole number, 1 or more",
        ),
        (
            "readStream",
            {"dataDir": "d", "maxRows": "0"},
            "'maxRows' is '0'; give a whole number, 1 or more",
        ),
        (
            "readStream",
            {"dataDir": "d", "query": "q"},
            "'query' is for writeStream, not for readStream",
        ),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(
    use: str, options: dict[str, str], what: str
) -> None:
    with pytest.raises(SourceError, match=what):
        USES[use](GossamerDataSource({"join": "127.0.0.1:1", "topic": "t", **options}))


def test_options_where_they_apply() -> None:
    """Every option is given in some place.

    A batch write without a disk of its own leaves no process behind for long.
    """
    common = {
        "join": "127.0.0.1:1, 127.0.0.1:2",
        "topic": "t",
        "fabric": "f",
        "keys": "k",
        "traceDir": "d",
    }
    reading = {**common, "filter": "x > 1", "since": "10m", "failOnDataLoss": "False"}
    writing = {**common, "dataDir": "d", "retention": "1h, 64MB"}
    for use, options in {
        "read": reading,
        "readStream": {**reading, "dataDir": "d", "name": "n", "maxRows": "7"},
        "write": {**writing, "idle": "1.5"},
        "writeStream": {
            **writing,
            "idle": "0",
            "query": "q",
            "checkpointLocation": "c",
            "queryName": "n",
        },
    }.items():
        USES[use](GossamerDataSource(options))
    assert (Options(reading).fails, Options(reading).join) == (
        False,
        ["127.0.0.1:1", "127.0.0.1:2"],
    )
    assert [
        Options(given, "write").idle for given in (common, writing, {**common, "idle": "9"})
    ] == [2, 30, 9]


@pytest.mark.parametrize(
    ("wanted", "what"),
    [
        (
            [("city", StringType()), ("tmep", IntegerType())],
            r"topic 'w' has no attribute 'tmep' \(did you mean 'temp'\?\)",
        ),
        ([("temp", StringType())], "topic 'w' has 'temp' as INT, not as STRING"),
        (
            [("where", StructType([StructField("lat", DoubleType())]))],
            "has 'where.lat' as FLOAT, not as DOUBLE",
        ),
        ([("City", StringType())], "no attribute 'City'"),
    ],
)
def test_a_schema_by_hand_that_is_not_the_topics_is_refused(
    wanted: list[tuple[str, DataType]], what: str
) -> None:
    text = "city STRING NOT NULL, temp INT, where STRUCT<lat: FLOAT, lon: FLOAT>"
    options = Options({"join": "127.0.0.1:1", "topic": "w"})
    with pytest.raises(SourceError, match=what) as refused:
        options.check_schema(StructType([StructField(*field) for field in wanted]), text)
    assert f"({text})" in str(refused.value)
    with pytest.raises(SourceError, match="has 'temp', which may be NULL"):
        options.check_schema(StructType([StructField("temp", IntegerType(), nullable=False)]), text)
    part = [
        StructField("where", StructType([StructField("lon", FloatType())])),
        StructField("city", StringType(), False),
    ]
    # The schema has fewer attributes, in another order.
    options.check_schema(StructType(part), text)


@pytest.mark.spark
@pytest.mark.slow
def test_spark_tells_of_options_and_schemas_that_do_not_fit(
    spark: SparkSession, station: blocking.Node, tmp_path: Path
) -> None:
    register(spark)
    station.publish_batch("weather", events(0, 5)).wait(30)
    options = {"join": station.address, "topic": "weather"}
    told = (
        r"topic 'weather' has no attribute 'tmep' \(did you mean 'temp'\?\); its schema is "
        r"\(city STRING"
    )
    with pytest.raises(Exception, match=told):
        spark.read.format("gossamer").options(**options).schema(
            "city STRING, tmep INT"
        ).load().collect()
    with pytest.raises(Exception, match=r"no paths.*'/some/path'"):
        spark.read.format("gossamer").options(**options).load("/some/path")
    with pytest.raises(Exception, match="'filter' is for read, readStream"):
        spark.range(1).write.format("gossamer").options(**options, filter="id > 5").mode(
            "append"
        ).save()
    part = spark.read.format("gossamer").options(**options).schema("temp INT").load()
    assert sorted(row["temp"] for row in part.collect()) == [0, 1, 2, 3, 4]

    def stream() -> Any:
        read = spark.readStream.format("gossamer").options(
            **options, dataDir=str(tmp_path / "tap"), since="beginning"
        )
        return (
            read.schema("city STRING, temp STRING")
            .load()
            .writeStream.format("noop")
            .trigger(availableNow=True)
            .start()
        )

    with pytest.raises(
        Exception, match="topic 'weather' has 'temp' as INT, not as STRING; its schema is"
    ):
        finish(stream)


@pytest.mark.spark
@pytest.mark.slow
def test_fabric_to_windowed_aggregate_to_fabric(
    spark: SparkSession, station: blocking.Node, tmp_path: Path
) -> None:
    """The worked example of docs/streaming.md, with a restart in the middle."""
    from pyspark.sql import functions as sf

    register(spark)
    common = {"join": station.address}

    def hottest() -> Any:
        weather = (
            spark.readStream.format("gossamer")
            .options(
                **common,
                topic="weather",
                filter="temp >= 0",
                dataDir=str(tmp_path / "source"),
                since="beginning",
            )
            .load()
        )
        minutes = (
            weather.withWatermark("at", "10 seconds")
            .groupBy(sf.window("at", "1 minute").alias("minute"), "city")
            .agg(sf.max("temp").alias("hottest"))
            .select(sf.col("minute.start").alias("minute"), "city", "hottest")
        )
        return (
            minutes.writeStream.format("gossamer")
            .options(
                **common,
                topic="hottest",
                dataDir=str(tmp_path / "sink"),
                query="hottest",
                retention="1h",
            )
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )

    station.publish_batch("weather", events(-5, 200)).wait(30)
    for first in (200, 400):
        finish(hottest)
        station.publish_batch("weather", events(first, first + 200)).wait(30)
    # The watermark is 10 s behind the newest event. So minutes that ended before 389 s are out,
    # each once over both runs.
    with station.subscribe("hottest", "city = 'Geneva'", since="beginning") as out:
        rows = sorted(
            (event["minute"].minute, event["hottest"])
            for event in (out.next(timeout=60) for _ in range(6))
        )
        assert rows == [(minute, 60 * minute + 57) for minute in range(6)]
        assert list(out.within(0.5)) == []
    kill(tmp_path)


@pytest.mark.spark
@pytest.mark.slow
def test_what_is_retained_is_a_table_and_a_table_is_published(
    spark: SparkSession, station: blocking.Node
) -> None:
    register(spark)
    station.publish_batch("weather", events(0, 30)).wait(30)
    read: DataFrame = (
        spark.read.format("gossamer")
        .options(join=station.address, topic="weather", filter="city = 'Geneva'")
        .load()
    )
    assert read.schema.simpleString() == "struct<city:string,temp:int,at:timestamp>"
    station.advertise("copied", SCHEMA)
    with station.subscribe("copied") as out:
        read.write.format("gossamer").options(join=station.address, topic="copied").mode(
            "append"
        ).save()
        copied = [out.next(timeout=60) for _ in range(10)]
    assert sorted((event["temp"], event["at"]) for event in copied) == [
        (one["temp"], one["at"]) for one in events(0, 30) if one["city"] == "Geneva"
    ]
