"""The oracle judges the runs. A row says so where the simulator's own counts differ.

Without churn every pair in ``expected`` is due in every run. With churn, the time when a
subscription was in force and a receipt complete decides which events are due, and only the run
knows these times. So the run records the actions of its users (``subscriptions``,
``publications``), and Spark decides from these which events were due, as for a live fabric. The
recorded actions are also compared with the plan, because a run could otherwise excuse a fault by
its own record.
"""

from __future__ import annotations

from msgspec import Struct
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from gossamer.pipeline import oracle
from gossamer.pipeline.tables import METRICS

_COUNTED = ("expected", "delivered", "missed", "allowed", "duplicate", "spurious")
_PAIR = ("run", "event", "filter", "node")
_SUBSCRIBED = (*_PAIR, "subscription")


class Churned(Struct, frozen=True):
    """The tables that judge runs in which subscribers came and went."""

    matches: DataFrame
    subscriptions: DataFrame
    publications: DataFrame
    stays: DataFrame
    """The planned stays: (filter, up_us, down_us)."""
    events: DataFrame
    """The planned events: (event, at_us)."""
    settle_us: int
    """A shorter stay may be over before it has begun."""


def metrics(
    runs: DataFrame,
    deliveries: DataFrame,
    loads: DataFrame,
    expected: DataFrame,
    churned: Churned | None = None,
) -> DataFrame:
    """One row for each run that ended."""
    ended = runs.where("status = 'ok'")
    if churned is None:
        counted, strayed = _planned(ended, deliveries, expected), None
    else:
        counted, strayed = _actual(ended, deliveries, churned), _strayed(ended, churned)
    # Runs without any expected or delivered pair have zeros.
    joined = ended.join(counted, on="run", how="left").fillna(0, subset=list(_COUNTED))
    joined = (
        joined.withColumn("strayed", sf.lit(0).cast("BIGINT"))
        if strayed is None
        else joined.join(strayed, on="run")
    )
    agrees = sf.col("sim_delivered").eqNullSafe(sf.col("delivered") + sf.col("allowed")) & (
        sf.col("strayed") == 0
    )
    for name in ("expected", "missed", "duplicate", "spurious"):
        agrees = agrees & sf.col(f"sim_{name}").eqNullSafe(sf.col(name))
    return (
        joined.join(_travelled(deliveries), on="run", how="left")
        .join(_noise(ended, loads), on="run", how="left")
        .withColumn("agrees", agrees)
        .withColumn(
            "copies_per_delivery", sf.try_divide("copies", sf.col("delivered") + sf.col("allowed"))
        )
        .select(*METRICS.names)
    )


def _planned(ended: DataFrame, deliveries: DataFrame, expected: DataFrame) -> DataFrame:
    """(run, counts) for runs whose subscribers stay all the time."""
    # Filter i lives on node i % nodes. A hand-over at another node is spurious, even if the event
    # matches.
    place = (sf.col("filter") % sf.col("nodes")).alias("node")
    due = (
        ended.select("run", "nodes")
        .crossJoin(expected)
        .select("run", "event", "filter", place, "due")
    )
    handed = deliveries.groupBy(*_PAIR).agg(sf.count(sf.lit(1)).alias("copies"))
    return _counted(oracle.judge(due, handed, _PAIR))


def _actual(ended: DataFrame, deliveries: DataFrame, churned: Churned) -> DataFrame:
    """(run, counts) by the recorded actions of each run's users.

    Each subscription of a filter is judged by itself.
    """
    subscriptions = churned.subscriptions.join(ended.select("run"), on="run", how="left_semi")
    lived = subscriptions.select(
        "run", "filter", "node", "subscription", "subscribing_at", "subscribed_at", "ended_at"
    )
    published = churned.publications.select("run", "event", "published_at", "completed_at")
    due = oracle.due(churned.matches, lived, published, _SUBSCRIBED).withColumn(
        "alive", sf.lit(True)
    )
    # Even a matching event is spurious if it comes before the subscription was asked for or after
    # it ended.
    alive = (sf.col("handed_at") > sf.col("subscribing_at")) & (
        sf.col("ended_at").isNull() | (sf.col("handed_at") < sf.col("ended_at"))
    )
    of = subscriptions.select("run", "subscription", "subscribing_at", "ended_at")
    handed = (
        deliveries.join(of, on=["run", "subscription"], how="left")
        .groupBy(*_SUBSCRIBED, sf.coalesce(alive, sf.lit(False)).alias("alive"))
        .agg(sf.count(sf.lit(1)).alias("copies"))
    )
    return _counted(oracle.judge(due, handed, (*_SUBSCRIBED, "alive")))


def _counted(judged: DataFrame) -> DataFrame:
    counts = oracle.counts()
    return judged.groupBy("run").agg(*(counts[name].alias(name) for name in _COUNTED))


def _strayed(ended: DataFrame, churned: Churned) -> DataFrame:
    """(run, strayed): the number of differences between the plan and the recorded actions.

    Three things count: a stay without a subscription that began in it and lasted to its end, a
    subscription without a stay in which it began and which it did not outlast, and an event that
    was published before its time or not at all.
    """
    runs = ended.select("run")
    plan = runs.crossJoin(churned.stays)
    made = churned.subscriptions.join(runs, on="run", how="left_semi").select(
        sf.col("run").alias("of"), sf.col("filter").alias("asked"), "subscribing_us", "ended_us"
    )
    up, down, began, over = (
        sf.col(f"{name}_us") for name in ("up", "down", "subscribing", "ended")
    )
    begun = (sf.col("run") == sf.col("of")) & (sf.col("filter") == sf.col("asked"))
    begun = begun & ((up <= 0) | (began >= up)) & (down.isNull() | (began <= down))
    lasted = sf.when(down.isNull(), over.isNull()).otherwise(
        over.between(down, down + churned.settle_us)
    )
    long = down.isNull() | (down - up >= churned.settle_us)
    unkept = plan.where(long).join(made, on=begun & lasted, how="left_anti")
    outside = made.join(
        plan, on=begun & (down.isNull() | (over <= down + churned.settle_us)), how="left_anti"
    )
    told = churned.publications.select(
        sf.col("run").alias("of"), sf.col("event").alias("told"), "published_us"
    )
    published = (sf.col("run") == sf.col("of")) & (sf.col("event") == sf.col("told"))
    untold = runs.crossJoin(churned.events).join(
        told, on=published & (sf.col("published_us") >= sf.col("at_us")), how="left_anti"
    )
    wrong = (
        unkept.select("run")
        .unionByName(outside.select(sf.col("of").alias("run")))
        .unionByName(untold.select("run"))
    )
    found = runs.join(
        wrong.groupBy("run").agg(sf.count(sf.lit(1)).alias("strayed")), on="run", how="left"
    )
    return found.fillna(0, subset=["strayed"])


def _travelled(deliveries: DataFrame) -> DataFrame:
    latency = sf.col("latency_us") / 1000.0
    return deliveries.groupBy("run").agg(
        sf.avg("hops").alias("hops_mean"),
        sf.max("hops").alias("hops_max"),
        sf.percentile(latency, sf.lit(0.5)).alias("latency_ms_p50"),
        sf.percentile(latency, sf.lit(0.99)).alias("latency_ms_p99"),
    )


def _noise(ended: DataFrame, loads: DataFrame) -> DataFrame:
    """Seed 001, section 4: noise events at a peer / all events that were published."""
    share = sf.try_divide("noise", "events")
    joined = loads.join(ended.select("run", "events"), on="run", how="inner")
    return joined.groupBy("run").agg(
        sf.avg(share).alias("noise"), sf.max(share).alias("noise_node_max")
    )
