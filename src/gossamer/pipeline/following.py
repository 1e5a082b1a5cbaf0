"""Durable subscriptions, history and gaps in the judgement of live traces (verify.py).

A durable subscription is one subscription over all lives of its node, and its first life names it.
Events that were published while it was away are due. An event that is handed over again because it
was not acknowledged is not a duplicate. After a publisher's events were reported lost (a gap), they
are no longer due, but they are allowed.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

SUBSCRIPTION = ("node", "incarnation", "subscription")


def lives(records: DataFrame) -> DataFrame:
    """(node, incarnation, subscription, first): the first life of each life of a durable
    subscription.
    """
    same = Window.partitionBy("node", "record.name").orderBy("incarnation", "at")
    return (
        records.where("kind = 'subscribing' AND record.name <> ''")
        .withColumn("subscription", sf.col("record.subscription"))
        .withColumn("first", sf.first(sf.struct("incarnation", "subscription")).over(same))
        .select(*SUBSCRIPTION, "first")
    )


def fold(rows: DataFrame, durable: DataFrame) -> DataFrame:
    """Rows with (node, incarnation, subscription), where the first life names a durable
    subscription.

    ``life`` is the real life.
    """
    named = sf.coalesce("first", sf.struct("incarnation", "subscription"))
    return (
        rows.join(durable, on=list(SUBSCRIPTION), how="left")
        .withColumn("life", sf.col("incarnation"))
        .withColumn("named", named)
        .withColumn("incarnation", sf.col("named.incarnation"))
        .withColumn("subscription", sf.col("named.subscription"))
        .drop("first", "named")
    )


def merge(made: DataFrame, durable: DataFrame) -> DataFrame:
    """One row for each subscription, from the beginning of its first life to the end of its
    last.
    """
    latest = sf.struct("life", "subscribing_at")
    return (
        fold(made, durable)
        .groupBy(*SUBSCRIPTION)
        .agg(
            sf.first("topic", ignorenulls=True).alias("topic"),
            sf.first("filter", ignorenulls=True).alias("filter"),
            sf.min("subscribing_at").alias("subscribing_at"),
            sf.min("subscribed_at").alias("subscribed_at"),
            sf.max_by("ended_at", latest).alias("ended_at"),
            sf.min("start").alias("start"),
        )
        .select(
            *SUBSCRIPTION, "topic", "filter", "subscribing_at", "subscribed_at", "ended_at", "start"
        )
    )


def gaps(records: DataFrame, durable: DataFrame) -> DataFrame:
    """(node, incarnation, subscription, publisher, gap_at): the last time when a subscription was
    told of lost events of a publisher.
    """
    told = records.where("kind = 'gapped'").select(
        "node",
        "incarnation",
        sf.col("record.subscription").alias("subscription"),
        "record.publisher",
        "at",
    )
    return (
        fold(told, durable)
        .groupBy(*SUBSCRIPTION, "publisher")
        .agg(sf.max("at").alias("gap_at"))
        .select(*SUBSCRIPTION, "publisher", "gap_at")
    )


def copies() -> Column:
    """The number of hand-overs of an event, without repetitions because it had not been
    acknowledged.
    """
    return sf.greatest(sf.count_if(~sf.coalesce("record.again", sf.lit(False))), sf.lit(1))


def is_history() -> Column:
    """The event was published before the subscription, which asked for the past (since)."""
    return sf.coalesce(sf.col("published_at") >= sf.col("start"), sf.lit(False))
