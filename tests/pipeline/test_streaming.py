"""A streaming query with a backlog, after a restart, and when nodes die.

Most tests ask the source as Spark does. The last ones run Spark.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import IntegerType, StructField, StructType

from gossamer import NodeConfig, blocking
from gossamer.pipeline import source, sourceoptions
from gossamer.pipeline.source import _RetainedReader, _Tap, _TapReader, register
from gossamer.pipeline.sourceoptions import Options, SourceError
from pipeline.fabric import events, kill, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.live

MANY = 5_000
# The events that the taps of these tests hold. They stop asking at half of that.
TAP = 1_000
# With this text some 250 events make an answer of a publisher.
TEXT = "x" * 1_000
NUMBER = StructType([StructField("n", IntegerType())])

Make = Callable[..., _TapReader]


def wide(first: int, last: int) -> list[dict[str, Any]]:
    return [{"n": n, "text": TEXT} for n in range(first, last)]


@pytest.fixture
def backlog(station: blocking.Node) -> blocking.Node:
    station.advertise("wide", "n INT, text STRING", retention="1h")
    for first in range(0, MANY, 500):
        station.publish_batch("wide", wide(first, first + 500)).wait(30)
    return station


@pytest.fixture
def reader(
    backlog: blocking.Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Make]:
    """Sources as Spark makes them, with small taps."""
    monkeypatch.setattr(sourceoptions, "NodeConfig", partial(NodeConfig, durable=TAP))
    made: list[_TapReader] = []

    def make(**options: str) -> _TapReader:
        given = {"join": backlog.address, "topic": "wide", "dataDir": str(tmp_path / "tap")}
        made.append(_TapReader(Options(given | {"since": "beginning"} | options), NUMBER))
        return made[-1]

    yield make
    for one in made:
        one.stop()


class Query:
    """Micro-batches as Spark makes them: it commits one when it builds the next."""

    def __init__(self, reader: _TapReader, start: dict[str, int] | None = None) -> None:
        self.reader, self.rows, self.sizes = reader, list[int](), list[int]()
        self.at = start or reader.initialOffset()
        self.lags: list[int] = []

    def trigger(self, limit: ReadLimit | None = None) -> bool:
        """Whether there was something new."""
        reader, start = self.reader, self.at
        end = reader.latestOffset(start, limit or reader.getDefaultReadLimit())
        self.lags.append(reader.reportLatestOffset()["offset"] - end["offset"])
        if end == start:
            return False
        if self.sizes:
            reader.commit(start)
        parts = reader.partitions(start, end)
        rows = [n for part in parts for batch in reader.read(part) for n in batch["n"].to_pylist()]
        self.rows += rows
        self.sizes.append(len(rows))
        self.at = end
        return True


def test_a_backlog_larger_than_the_tap_drains_and_its_lag_is_seen(reader: Make) -> None:
    query = Query(reader())
    end = time.monotonic() + 60
    while len(query.rows) < MANY:
        query.trigger()
        assert time.monotonic() < end, f"{len(query.rows)} rows, in {query.sizes}"
    assert sorted(query.rows) == list(range(MANY))
    assert max(query.sizes) <= TAP
    # Events that publishers still hold count, so the lag goes from nearly all of them down to
    # nothing.
    full = query.lags[query.sizes.index(max(query.sizes))]
    assert 0 < full < MANY
    assert query.lags[-1] == 0


@pytest.mark.parametrize("options", [{}, {"maxRows": "700"}, {"filter": "n >= 100"}])
def test_available_now_takes_what_publishers_held_at_the_beginning_and_ends(
    backlog: blocking.Node, reader: Make, options: dict[str, str]
) -> None:
    made = reader(**options)
    made.prepareForTriggerAvailableNow()
    query, extra = Query(made), 0
    while query.trigger():
        assert len(query.sizes) < 100, "it never ends while somebody publishes"
        backlog.publish_batch("wide", wide(MANY + extra, MANY + extra + 20)).wait(30)
        extra += 20
    first = 100 if "filter" in options else 0
    assert {*range(first, MANY)} <= {*query.rows}
    assert len(query.rows) == len({*query.rows})
    assert max(query.sizes) <= int(options.get("maxRows", TAP))


def test_once_takes_everything_in_one_micro_batch(reader: Make) -> None:
    query = Query(reader(filter=f"n < {TAP // 2}"))
    assert query.trigger(ReadAllAvailable())
    assert sorted(query.rows) == list(range(TAP // 2))


def test_once_names_available_now_when_the_tap_cannot_hold_everything(reader: Make) -> None:
    query = Query(reader())
    with pytest.raises(SourceError, match=r"hold more than the tap.*availableNow=True"):
        query.trigger(ReadAllAvailable())


def test_a_query_that_stops_in_the_middle_of_a_backlog_goes_on_with_the_next_event(
    reader: Make,
) -> None:
    first = Query(reader())
    until(lambda: first.trigger() and len(first.sizes) == 2)
    assert 0 < len(first.rows) < MANY
    first.reader.stop()
    again = Query(reader(), first.at)
    end = time.monotonic() + 60
    while len(first.rows) + len(again.rows) < MANY:
        again.trigger()
        assert time.monotonic() < end, f"{len(first.rows)} and {len(again.rows)} rows"
    assert sorted(first.rows + again.rows) == list(range(MANY))


def test_an_offset_that_the_tap_never_gave_is_an_error_at_once(reader: Make) -> None:
    began = time.monotonic()
    query = Query(reader(), {"offset": MANY + 1})
    for ask in (query.trigger, lambda: query.reader.partitions({"offset": 0}, {"offset": 9_999})):
        with pytest.raises(SourceError, match=r"has only given offsets through \d+; was its data"):
            ask()
    assert time.monotonic() - began < source.WAIT_SECONDS / 2


def test_available_now_says_which_publishers_have_not_answered(
    reader: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "WAIT_SECONDS", 1.0)
    made = reader()
    made.prepareForTriggerAvailableNow()
    tap = made._tap
    about = tap.about() | {"owing": 1, "parked": 0, "behind": 1, "left": 7, "in_force": True}
    until(lambda: tap.latest() >= TAP // 2)
    monkeypatch.setattr(tap, "about", lambda: about)
    with pytest.raises(SourceError, match=r"nothing new for 1 s: 1 of \d publishers.*7 events"):
        made.latestOffset({"offset": 0}, made.getDefaultReadLimit())


# ---------------------------------------------------------------- nodes that die

MEMBER = """
import sys
from gossamer import blocking
with blocking.Node(join=[sys.argv[1]]) as node:
    if sys.argv[2:]:
        node.topic("weather")
        node.publish_batch("weather", [{"temp": int(n)} for n in sys.argv[2:]]).wait(30)
    print("ready", flush=True)
    sys.stdin.read()
"""


class Member:
    """A node in a process of its own, which can be killed. It publishes some temperatures first."""

    def __init__(self, station: blocking.Node, *temps: int) -> None:
        words = [sys.executable, "-c", MEMBER, station.address, *map(str, temps)]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n"

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def restarted(
    station: blocking.Node, options: Options, member: Member
) -> tuple[list[dict[str, Any]], str]:
    """The events that a query's tap hands over after a member died in its absence, and the error of
    the query.
    """
    tap = _Tap(options)
    until(lambda: tap.latest() == 30)
    tap.commit(30)
    until(lambda: not tap.about()["behind"])
    tap.close()
    member.kill()
    until(lambda: station.status()["members"] == 1)
    tap = _Tap(options)
    try:
        station.publish_batch("weather", events(30, 40)).wait(30)
        until(lambda: not tap.about()["behind"])
        until(lambda: tap.latest() == tap.about()["offset"])
        return tap.between(30, tap.latest()), ""
    except SourceError as error:
        return [], str(error)
    finally:
        tap.close()


@pytest.mark.slow
def test_a_source_restarts_when_a_member_that_never_published_has_died(
    station: blocking.Node, tmp_path: Path
) -> None:
    options = Options(
        {"join": station.address, "topic": "weather", "dataDir": str(tmp_path / "tap")}
        | {"since": "beginning", "filter": "temp >= 0"}
    )
    station.publish_batch("weather", events(0, 30)).wait(30)
    rows, problem = restarted(station, options, Member(station))
    assert problem == ""
    assert [row["temp"] for row in rows] == list(range(30, 40))


@pytest.mark.slow
def test_a_restarted_source_fails_when_a_member_that_published_has_died(
    station: blocking.Node, tmp_path: Path
) -> None:
    options = Options(
        {"join": station.address, "topic": "weather", "dataDir": str(tmp_path / "tap")}
        | {"since": "beginning", "filter": "temp >= 0"}
    )
    station.publish_batch("weather", events(0, 30)).wait(30)
    _, problem = restarted(station, options, Member(station, -1))
    assert "may be lost (the publisher is not there)" in problem


@pytest.mark.slow
@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_batch_read_does_not_leave_a_member_that_died_out_without_a_word(
    station: blocking.Node, caplog: pytest.LogCaptureFixture, fails: str
) -> None:
    station.publish_batch("weather", events(0, 30)).wait(30)
    member = Member(station, 1000, 1001)
    options = Options(
        {"join": station.address, "topic": "weather", "failOnDataLoss": fails}, "read"
    )
    schema = StructType([StructField("temp", IntegerType())])
    # The node is dead, and no other node knows it yet.
    os.kill(member.process.pid, signal.SIGSTOP)
    try:
        read = _RetainedReader(options, schema)
        if fails == "true":
            with pytest.raises(SourceError, match="1 node died before it could be asked"):
                read.partitions()
            return
        with caplog.at_level(logging.WARNING):
            parts = read.partitions()
    finally:
        member.kill()
    temps = [n for part in parts for batch in read.read(part) for n in batch["temp"].to_pylist()]
    assert sorted(temps) == list(range(30))
    assert "1 node died before it could be asked" in caplog.text


# ---------------------------------------------------------------- with Spark


@pytest.mark.spark
@pytest.mark.slow
def test_spark_drains_a_backlog_of_400_000_with_each_trigger(
    spark: SparkSession, station: blocking.Node, tmp_path: Path
) -> None:
    """The backlog has the real size: three times the events that a tap holds before it waits for
    acknowledgements.
    """
    many = 400_000
    register(spark)
    station.advertise("many", "n INT", retention="1h")
    for first in range(0, many, 20_000):
        numbers = pa.array(range(first, first + 20_000), pa.int32())
        station.publish_batch("many", pa.RecordBatch.from_arrays([numbers], ["n"])).wait(60)

    def start(name: str, **trigger: Any) -> Any:
        given = {"join": station.address, "topic": "many", "since": "beginning"}
        read = spark.readStream.format("gossamer").options(
            **given, dataDir=str(tmp_path / name / "tap")
        )
        writing = read.load().writeStream.format("noop").trigger(**trigger)
        return writing.option("checkpointLocation", str(tmp_path / name / "checkpoint")).start()

    def rows(query: Any) -> int:
        return sum(progress["numInputRows"] for progress in query.recentProgress)

    query = start("seconds", processingTime="1 second")
    until(lambda: rows(query) >= many or not query.isActive, 120)
    latest = [one["sources"][0]["latestOffset"] for one in query.recentProgress]
    lags = [one if isinstance(one, dict) else json.loads(one) for one in latest]
    assert query.isActive
    began = time.monotonic()
    query.stop()
    # The query's node said goodbye.
    until(lambda: station.status()["members"] == 1, 5)
    assert time.monotonic() - began < 5
    assert rows(query) == many
    assert {"offset": many} == lags[0] == lags[-1]

    query = start("now", availableNow=True)
    assert query.awaitTermination(120)
    assert rows(query) == many

    query = start("once", once=True)
    with pytest.raises(Exception, match=r"Use trigger\(availableNow=True\)"):
        query.awaitTermination(120)


@pytest.mark.spark
@pytest.mark.slow
def test_spark_publishes_all_rows_with_a_fresh_checkpoint(
    spark: SparkSession, station: blocking.Node, tmp_path: Path
) -> None:
    register(spark)
    station.advertise("out", "temp INT", retention="1h")
    station.publish_batch("weather", events(0, 50)).wait(30)

    def run(checkpoint: str) -> None:
        given = {"join": station.address, "topic": "weather", "since": "beginning"}
        read = spark.readStream.format("gossamer").options(
            **given, dataDir=str(tmp_path / checkpoint)
        )
        writing = read.load().select("temp").writeStream.format("gossamer")
        sink = {"topic": "out", "dataDir": str(tmp_path / "sink"), "query": "q"}
        writing = writing.options(join=station.address, **sink).trigger(availableNow=True)
        query = writing.option("checkpointLocation", str(tmp_path / f"{checkpoint}-c")).start()
        assert query.awaitTermination(120)

    with station.subscribe("out") as out:
        run("first")
        assert sorted(out.next(timeout=30)["temp"] for _ in range(50)) == list(range(50))
        run("second")
        assert sorted(out.next(timeout=30)["temp"] for _ in range(50)) == list(range(50))
        run("second")
        assert list(out.within(0.5)) == []
    kill(tmp_path)
