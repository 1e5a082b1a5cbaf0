"""Spark reads from a live fabric and writes to it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa

from gossamer import Gap, blocking
from gossamer.pipeline import gateway
from gossamer.pipeline.source import SourceError, _Options, _Tap, register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.live

SCHEMA = "city STRING, temp INT, at TIMESTAMP"
CITIES = ("Geneva", "Zurich", "Basel")


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


def events(first: int, last: int) -> list[dict[str, Any]]:
    from datetime import UTC, datetime, timedelta

    began = datetime(2026, 5, 1, tzinfo=UTC)
    return [{"city": CITIES[n % 3], "temp": n, "at": began + timedelta(seconds=n)} for n in range(first, last)]


def stream(rows: list[dict[str, Any]]) -> bytes:
    table = pa.Table.from_pylist(rows)
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue().to_pybytes()


def until(condition: Any, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.02)


def finish(start: Any) -> None:
    """Run a query to its end. Spark gives a Python process 10 s to start, which a busy machine may not: then as after any crash."""
    for _ in range(6):
        query = start()
        try:
            query.awaitTermination(240)
            return
        except Exception as error:
            if "failed to connect back" not in str(error):
                raise
    raise AssertionError("Spark's Python processes do not start")


def kill(tmp_path: Path) -> None:
    """End the gateway whose data directory this is, without a word."""
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = process.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"gossamer.pipeline.gateway" in words and any(str(tmp_path).encode() in word for word in words):
            os.kill(int(process.parent.name), signal.SIGKILL)


def test_the_sink_publishes_each_row_once_whatever_is_replayed(station: blocking.Node, tmp_path: Path) -> None:
    options = _Options({"join": station.address, "topic": "out", "dataDir": str(tmp_path / "sink"), "query": "q"})
    where = options.gateway(options.data_dir)

    def commit(batch: int, rows: list[dict[str, Any]]) -> dict[str, Any]:
        request = {"topic": "out", "schema": "`n` int", "retention": "1h", "query": "q", "batch": batch}
        return gateway.ask(where, request, stream(rows) if rows else b"")

    rows = [{"n": n} for n in range(10_000)]
    assert commit(0, rows)["published"] == 10_000
    assert commit(0, rows[::-1]) == {"rows": 10_000, "published": 0, "replay": True, "incomplete": 0}
    with station.subscribe("out", since="beginning", timeout=30) as got:
        kill(tmp_path)
        assert commit(0, rows)["published"] == 0  # its disk remembers
        assert commit(1, [{"n": -1}])["published"] == 1
        assert commit(0, rows) == {"rows": 0, "published": 0, "replay": True, "incomplete": 0}
        # A crash between two parts: what was staged is what is published, and only the rest of it.
        staged = next((tmp_path / "sink").glob("staged-*"))
        staged.write_bytes(b"2\n" + stream([{"n": n} for n in range(20_000, 26_000)]))
        assert commit(2, [{"n": 5}])["published"] == 6_000
        numbers = [event["n"] for event in (got.next(timeout=30) for _ in range(16_001))]
    assert sorted(numbers) == [-1, *range(10_000), *range(20_000, 26_000)]
    with pytest.raises(gateway.GatewayError, match=r"weather.*is already advertised"):
        gateway.ask(where, {"topic": "weather", "schema": "n int", "query": "q2", "batch": 0})
    kill(tmp_path)


def test_the_tap_keeps_offsets_and_fails_on_lost_events(station: blocking.Node, tmp_path: Path) -> None:
    options = _Options({"join": station.address, "topic": "weather", "dataDir": str(tmp_path), "filter": "temp >= 10"})
    tap = _Tap(options)
    station.publish_batch("weather", events(0, 30)).wait(30)
    until(lambda: tap.latest() == 20)
    assert [values["temp"] for values in tap.between(5, 8)] == [15, 16, 17]
    tap.commit(8)
    tap._node.close()
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
    again._node.close()


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
        _Options(options)


@pytest.mark.spark
@pytest.mark.slow
def test_fabric_to_windowed_aggregate_to_fabric(spark: SparkSession, station: blocking.Node, tmp_path: Path) -> None:
    """The worked example of docs/streaming.md, with a restart in the middle."""
    from pyspark.sql import functions as sf

    register(spark)
    common = {"join": station.address}

    def hottest() -> Any:
        weather = (
            spark.readStream.format("gossamer")
            .options(**common, topic="weather", filter="temp >= 0", dataDir=str(tmp_path / "source"), since="beginning")
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
            .options(**common, topic="hottest", dataDir=str(tmp_path / "sink"), query="hottest", retention="1h")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )

    station.publish_batch("weather", events(-5, 200)).wait(30)
    for first in (200, 400):
        finish(hottest)
        station.publish_batch("weather", events(first, first + 200)).wait(30)
    # The watermark is 10 s behind the newest event: minutes that ended before 389 s are out, each once over both runs.
    with station.subscribe("hottest", "city = 'Geneva'", since="beginning") as out:
        rows = sorted((event["minute"].minute, event["hottest"]) for event in (out.next(timeout=60) for _ in range(6)))
        assert rows == [(minute, 60 * minute + 57) for minute in range(6)]
        assert list(out.within(0.5)) == []
    kill(tmp_path)


@pytest.mark.spark
@pytest.mark.slow
def test_what_is_retained_is_a_table_and_a_table_is_published(spark: SparkSession, station: blocking.Node) -> None:
    register(spark)
    station.publish_batch("weather", events(0, 30)).wait(30)
    read: DataFrame = (
        spark.read.format("gossamer").options(join=station.address, topic="weather", filter="city = 'Geneva'").load()
    )
    assert read.schema.simpleString() == "struct<city:string,temp:int,at:timestamp>"
    station.advertise("copied", SCHEMA)
    with station.subscribe("copied") as out:
        read.write.format("gossamer").options(join=station.address, topic="copied").mode("append").save()
        copied = [out.next(timeout=60) for _ in range(10)]
    assert sorted((event["temp"], event["at"]) for event in copied) == [
        (one["temp"], one["at"]) for one in events(0, 30) if one["city"] == "Geneva"
    ]
