"""Traces in: the rows of a CSV file become ``traces``, or ``quarantine`` with the reason. No row stops a job, none vanishes.

A trace file is UTF-8 text, one row a line (a quoted value may hold commas, not line breaks), with a first line that names the
columns. ``peer, name, type, size`` are needed, in any order; further columns are ignored.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from gossamer.pipeline.tables import HOLDINGS, ITEMS, PEERS, QUARANTINE, RTTS, SESSIONS

TOPIC = "files"
ROW_MAX = 1000
"""So much of a broken row is kept."""
COLUMNS = ("peer", "name", "type", "size")
LINES = "source STRING, line BIGINT, row STRING"
"""What ``parse`` reads: the lines of a file without its first, each with the file it came from and its number."""


class TraceError(ValueError):
    """A trace that cannot be used at all; says why and what to do."""


def header(line: str, source: str) -> list[str]:
    """The column names of a file, from its first line. A needed one that is missing is an error."""
    names = [name.strip().lower() for name in next(csv.reader([line.removeprefix("\ufeff")]), [])]
    missing = [name for name in COLUMNS if name not in names]
    if missing:
        raise TraceError(
            f"{source}: no column {', '.join(missing)} among ({', '.join(names)}); the first line must name {', '.join(COLUMNS)}"
        )
    repeated = [name for name in COLUMNS if names.count(name) > 1]
    if repeated:
        raise TraceError(f"{source}: column {', '.join(repeated)} is there twice; rename one")
    return names


def parse(lines: DataFrame, names: Sequence[str]) -> DataFrame:
    """Lines -> (source, line, row, reason, peer, name, type, size); ``reason`` is NULL where the row is good."""
    fields = ", ".join(f"c{number} STRING" for number in range(len(names)))
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "broken", "escape": '"'}
    # Broken bytes would otherwise travel on as text that no other engine reads alike.
    readable = lines.select("source", "line", sf.make_valid_utf8("row").alias("row"), sf.is_valid_utf8("row").alias("utf8"))
    split = readable.withColumn("fields", sf.from_csv("row", f"{fields}, broken STRING", options))

    def field(name: str) -> Column:
        return sf.trim(sf.col(f"fields.c{names.index(name)}"))

    size = field("size").try_cast("BIGINT")
    reasons = [
        (~sf.col("utf8"), "not UTF-8"),
        (sf.trim("row") == "", "blank line"),
        (sf.col("fields.broken").isNotNull(), f"not {len(names)} columns"),
        *((sf.coalesce(field(name), sf.lit("")) == "", f"{name} is empty") for name in COLUMNS),
        # A cast alone would let 1.5 and 1e3 through as whole numbers of bytes.
        (~field("size").rlike("^[+-]?[0-9]+$") | size.isNull(), "size is not a whole number"),
        (size < 0, "size is negative"),
    ]
    reason = sf.coalesce(*(sf.when(condition, sf.lit(text)) for condition, text in reasons))
    parsed = split.select(
        "source",
        "line",
        "row",
        reason.alias("reason"),
        *(field(name).alias(name) for name in COLUMNS[:3]),
        size.alias("size"),
    )
    # Of equal good rows the first stays; which one that is must not depend on the partitioning.
    same = Window.partitionBy(sf.col("reason").isNull(), *COLUMNS).orderBy("source", "line")
    repeated = sf.col("reason").isNull() & (sf.row_number().over(same) > 1)
    return parsed.withColumn("reason", sf.when(repeated, sf.lit("repeated row")).otherwise(sf.col("reason"))).select(
        "source", "line", "row", "reason", *COLUMNS
    )


def split(parsed: DataFrame) -> dict[str, DataFrame]:
    """Parsed rows -> the tables of the traces, by name."""
    good = parsed.where("reason IS NULL").select(
        "peer", sf.to_json(sf.struct("name", "type", "size")).alias("values"), "source", "line"
    )
    items = good.groupBy("values").agg(
        sf.count_distinct("peer").alias("holders"), sf.min(sf.struct("source", "line")).alias("origin")
    )
    number = sf.row_number().over(Window.orderBy("origin")).cast("BIGINT") - sf.lit(1)
    numbered = items.select(
        number.alias("item"), sf.lit(TOPIC).alias("topic"), "values", "holders", "origin.source", "origin.line"
    )
    holdings = good.join(numbered.select("item", "values"), on="values", how="inner").select(*HOLDINGS.names)
    peers = holdings.groupBy("peer").agg(sf.count_distinct("item").alias("items"))
    broken = parsed.where("reason IS NOT NULL").withColumn("table", sf.lit("holdings"))
    spark = parsed.sparkSession
    return {
        "peers": peers.withColumn("sessions", sf.lit(0).cast("BIGINT")).select(*PEERS.names),
        "items": numbered.select(*ITEMS.names),
        "holdings": holdings,
        "sessions": spark.createDataFrame([], SESSIONS.ddl),
        "rtts": spark.createDataFrame([], RTTS.ddl),
        "quarantine": broken.withColumn("row", sf.left("row", sf.lit(ROW_MAX))).select(*QUARANTINE.names),
    }
