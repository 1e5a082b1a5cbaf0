"""Groups in the judgement of live traces (verify.py): one of a group's members gets each event.

The members of a group become one subscription, named "group NAME of TOPIC". An event is due to the
group if it is due to some member, and handing it to two members is a duplicate. There is one
exception: if a member ended before the event's receipt was complete, another member had to be
asked. A hand-over to a member whose own filter does not pass the event stays with that member, and
is spurious.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from gossamer.pipeline.following import SUBSCRIPTION
from gossamer.pipeline.job import cut

_KEY = ["event", *SUBSCRIPTION]


def members(records: DataFrame) -> DataFrame:
    """(node, incarnation, subscription, named): the subscriptions that have a group, and the name
    of the group.
    """
    named = sf.concat(sf.lit("group "), "record.group", sf.lit(" of "), "record.topic")
    return records.where("kind = 'subscribing' AND record.group <> ''").select(
        "node",
        "incarnation",
        sf.col("record.subscription").alias("subscription"),
        named.alias("named"),
    )


def fold(
    due: DataFrame,
    handed: DataFrame,
    subscribed: DataFrame,
    published: DataFrame,
    grouped: DataFrame,
) -> tuple[DataFrame, DataFrame, DataFrame]:
    """Pairs, hand-overs and subscriptions with groups in place of their members, or unchanged if
    there is no group.
    """
    if grouped.isEmpty():
        return due, handed, subscribed
    due = cut(due)
    handed = cut(fold_handed(handed, due, subscribed, published, grouped))
    return fold_due(due, grouped), handed, cut(fold_subscribed(subscribed, grouped))


def fold_due(due: DataFrame, grouped: DataFrame) -> DataFrame:
    """Matching pairs (event, node, incarnation, subscription, due) with groups in place of their
    members.
    """
    return (
        _as_groups(due.join(grouped, on=list(SUBSCRIPTION), how="left"))
        .groupBy(*_KEY)
        .agg(sf.bool_or("due").alias("due"))
    )


def fold_handed(
    handed: DataFrame,
    due: DataFrame,
    subscribed: DataFrame,
    published: DataFrame,
    grouped: DataFrame,
) -> DataFrame:
    """Hand-overs (event, node, incarnation, subscription, alive, copies, at, hops) with groups in
    place of their members.

    ``due`` are the members' pairs.
    """
    wanted = due.select(*_KEY, sf.lit(True).alias("wanted"))
    ends = subscribed.select(*SUBSCRIPTION, "ended_at")
    stayed = sf.col("ended_at").isNull() | (
        sf.col("ended_at") > sf.coalesce("completed_at", sf.lit(0))
    )
    told = (
        handed.join(grouped, on=list(SUBSCRIPTION), how="left")
        .join(wanted, on=_KEY, how="left")
        .join(ends, on=list(SUBSCRIPTION), how="left")
        .join(published.select("event", "completed_at"), on="event", how="left")
        .withColumn("named", sf.when(sf.col("wanted"), sf.col("named")))
        .withColumn(
            "counted", sf.when(sf.col("named").isNull() | stayed, sf.col("copies")).otherwise(0)
        )
    )
    return (
        _as_groups(told)
        .groupBy(*_KEY, "alive")
        .agg(
            sf.greatest(sf.sum("counted"), sf.lit(1)).alias("copies"),
            sf.min("at").alias("at"),
            sf.min_by("hops", "at").alias("hops"),
        )
        .select(*_KEY, "alive", "copies", "at", "hops")
    )


def fold_subscribed(subscribed: DataFrame, grouped: DataFrame) -> DataFrame:
    """Subscriptions with groups in place of their members, for the report.

    A group has the filter of one of its members.
    """
    return (
        _as_groups(subscribed.join(grouped, on=list(SUBSCRIPTION), how="left"))
        .groupBy(*SUBSCRIPTION)
        .agg(sf.min("topic").alias("topic"), sf.min("filter").alias("filter"))
    )


def _as_groups(rows: DataFrame) -> DataFrame:
    def instead(column: str, value: Column) -> Column:
        return sf.when(sf.col("named").isNull(), sf.col(column)).otherwise(value)

    return (
        rows.withColumn("incarnation", instead("incarnation", sf.lit(0)))
        .withColumn("subscription", instead("subscription", sf.lit(0)))
        .withColumn("node", sf.coalesce("named", "node"))
    )
