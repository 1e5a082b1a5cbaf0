"""Finds receipts that count an event as taken although the traces say that it was discarded before
the report.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from gossamer.pipeline.following import SUBSCRIPTION

_PAIR = ["event", *SUBSCRIPTION]


def miscounted(records: DataFrame, pairs: DataFrame, handed: DataFrame, event: Column) -> int:
    """The number of events whose receipt counts in ``matched`` a subscription that had discarded
    them.

    ``pairs`` are (event, subscription) that match and are due or allowed, also of members of
    groups. ``handed`` are hand-overs. ``event`` is an event's name in ``records``. A receipt must
    leave out the subscriptions that discarded the event before they reported it. A member of a
    group counts only for the events that it was handed.
    """
    discarded = (
        records.where("kind = 'discarded'")
        .select(
            event.alias("event"), "node", "incarnation", "record.subscription", "record.reported"
        )
        .distinct()
    )
    if discarded.isEmpty():
        return 0
    members = records.where("kind = 'subscribing' AND record.group <> ''").select(
        "node", "incarnation", sf.col("record.subscription").alias("subscription")
    )
    counted = (
        pairs.select(*_PAIR)
        .join(members, on=list(SUBSCRIPTION), how="left_anti")
        .unionByName(handed.select(*_PAIR))
        .unionByName(discarded.select(*_PAIR))
        .distinct()
        .groupBy("event")
        .count()
    )
    gone = discarded.where("NOT reported").groupBy("event").agg(sf.count(sf.lit(1)).alias("gone"))
    receipts = (
        records.where("kind = 'completed'")
        .select(
            sf.concat_ws("/", "node", "record.incarnation", "record.sequence").alias("event"),
            sf.col("record.matched").alias("matched"),
        )
        .groupBy("event")
        .agg(sf.max("matched").alias("matched"))
    )
    return (
        receipts.join(gone, on="event", how="inner")
        .join(counted, on="event", how="inner")
        .where(sf.col("matched") > sf.col("count") - sf.col("gone"))
        .count()
    )
