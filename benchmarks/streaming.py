"""Spark and the fabric: rows a second in each direction, and the time of a row through a
micro-batch.

The fabric's own rate stands beside them. Everything runs on this machine, one round after the
other: a publisher node, Spark on local[2], and a node of its own where rows come out. Rows have
four columns. No row is lost: every figure is of rows that were counted where they arrived.

    python benchmarks/streaming.py              100,000 rows each way, 20 single rows
    python benchmarks/streaming.py --quick      10,000 and 5
    python benchmarks/streaming.py --json       one object
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark

import gossamer
from gossamer import blocking
from gossamer.pipeline.session import session
from gossamer.pipeline.source import register

SCHEMA = "id BIGINT, symbol STRING, price DOUBLE, size INT"
DDL = [("id", pa.int64()), ("symbol", pa.string()), ("price", pa.float64()), ("size", pa.int32())]
BATCH = 4096


def rows(first: int, last: int) -> pa.RecordBatch:
    ids = range(first, last)
    columns = [
        list(ids),
        [f"S{n % 100}" for n in ids],
        [n / 7 for n in ids],
        [n % 1000 for n in ids],
    ]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, kind) for column, (_, kind) in zip(columns, DDL, strict=True)],
        names=[name for name, _ in DDL],
    )


def publish(node: blocking.Node, topic: str, first: int, last: int) -> None:
    receipts = [
        node.publish_batch(topic, rows(at, min(at + BATCH, last)))
        for at in range(first, last, BATCH)
    ]
    for receipt in receipts:
        receipt.wait(120)


def fabric_rate(node: blocking.Node, count: int) -> float:
    """Columns from one node to another.

    They are taken while they are published, because receipts wait for a consumer.
    """
    node.advertise("own", SCHEMA)
    with (
        blocking.Node(join=[node.address]) as other,
        other.subscribe("own", timeout=30) as events,
        ThreadPoolExecutor(1) as pool,
    ):
        began = time.perf_counter()
        published = pool.submit(publish, node, "own", 0, count)
        batches, got = events.batches(), 0
        while got < count:
            got += batches.next(timeout=60).num_rows
        published.result()
        return count / (time.perf_counter() - began)


def source_rate(spark: Any, node: blocking.Node, count: int, folder: Path) -> dict[str, float]:
    node.advertise("in", SCHEMA, retention="1h, 1GB")
    publish(node, "in", 0, count)
    batch = []
    # The first round starts Spark's Python workers.
    for _ in range(3):
        began = time.perf_counter()
        read = spark.read.format("gossamer").options(join=node.address, topic="in").load().count()
        batch.append(time.perf_counter() - began)
        assert read == count, read
    stream = spark.readStream.format("gossamer").options(
        join=node.address, topic="in", since="beginning", dataDir=str(folder / "source")
    )
    query = (
        stream.load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(folder / "c1"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert query.exception() is None
    progress = [one for one in query.recentProgress if one["numInputRows"]]
    taken = sum(one["numInputRows"] for one in progress)
    assert taken == count, taken
    seconds = sum(one["durationMs"]["triggerExecution"] for one in progress) / 1000
    return {"batch_read_rows_s": count / min(batch[1:]),
        "batch_read_first_rows_s": count / batch[0],
            "stream_read_rows_s": count / seconds}  # fmt: skip


def sink_rate(spark: Any, node: blocking.Node, count: int, folder: Path) -> float:
    """Rows that Spark makes itself, counted at a subscriber."""
    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", count).load()
    made = rate.selectExpr(
        "value AS id",
        "concat('S', value % 100) AS symbol",
        "value / 7D AS price",
        "CAST(value % 1000 AS INT) AS size",
    )
    node.advertise("out", "id BIGINT, symbol STRING, price DOUBLE, size INT")
    query = None
    with node.subscribe("out", timeout=30) as events:
        sink = made.writeStream.format("gossamer").options(
            join=node.address, topic="out", dataDir=str(folder / "sink"), query="bench"
        )
        query = sink.option("checkpointLocation", str(folder / "c2")).start()
        batches, got, began = events.batches(), 0, 0.0
        rounds: list[float] = []
        while len(rounds) < 3:
            record = batches.next(timeout=300)
            began = began or time.perf_counter()
            got += record.num_rows
            if got >= count:
                rounds.append(time.perf_counter() - began)
                got, began = got - count, time.perf_counter()
        query.stop()
    # Each is a whole micro-batch, and the first one starts the sink's node.
    return count / statistics.median(rounds[1:])


def latency(spark: Any, node: blocking.Node, count: int, folder: Path) -> list[float]:
    """One row at a time: published, through source and sink, and taken."""
    node.advertise("ping", SCHEMA, retention="1h")
    pings = spark.readStream.format("gossamer").options(
        join=node.address, topic="ping", since="beginning", dataDir=str(folder / "pings")
    )
    query = (
        pings.load().writeStream.format("gossamer")
        .options(join=node.address, topic="pong", dataDir=str(folder / "pongs"), query="pong",
            retention="1h")
        .option("checkpointLocation", str(folder / "c3")).start()
    )  # fmt: skip
    times = []
    # The first row starts the sink's node.
    publish(node, "ping", 0, 1)
    with node.subscribe("pong", since="beginning", timeout=300) as events:
        events.next(timeout=300)
        for number in range(1, count + 1):
            began = time.perf_counter()
            publish(node, "ping", number, number + 1)
            assert events.next(timeout=120)["id"] == number
            times.append(1000 * (time.perf_counter() - began))
    query.stop()
    return sorted(times)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    count, singles = (10_000, 5) if given.quick else (100_000, 20)

    def say(text: str) -> None:
        if not given.json:
            sys.stderr.write(f"{text}\n")

    with (
        tempfile.TemporaryDirectory(prefix="gossamer-bench-", ignore_cleanup_errors=True) as name,
        blocking.Node() as node,
    ):
        folder = Path(name)
        say("the fabric's own rate")
        own = fabric_rate(node, count)
        say("starting Spark")
        with session("streaming", master="local[2]") as spark:
            register(spark)
            say("source")
            figures = source_rate(spark, node, count, folder)
            say("sink")
            figures["stream_write_rows_s"] = sink_rate(spark, node, count, folder)
            say("single rows")
            times = latency(spark, node, singles, folder)
    figures = {name: round(value) for name, value in figures.items()}
    figures |= {
        "fabric_rows_s": round(own),
        "rows": count,
        "micro_batch_ms_p50": round(statistics.median(times), 1),
        "micro_batch_ms_max": round(times[-1], 1),
        "versions": f"gossamer {gossamer.__version__}, pyspark {pyspark.__version__}, "
        f"Python {platform.python_version()}",
    }  # type: ignore[assignment]
    if given.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:22} {value:,}" if isinstance(value, int | float) else f"{name:22} {value}")


if __name__ == "__main__":
    main()
