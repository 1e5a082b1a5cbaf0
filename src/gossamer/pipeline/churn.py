"""When the peers of a workload come and go: from a trace of sessions, or from fitted distributions.

``sim.churn`` has the distributions. A peer's stays become lives of its subscriptions. ``lives``
gives ``oracle.due`` the times that decide which events are due, allowed or spurious.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from gossamer.pipeline.tables import CHURN
from gossamer.sim import churn as fitted

FITTED = ("server", "client")
KINDS = ("none", "sessions", *FITTED)


def from_sessions(peers: DataFrame, sessions: DataFrame, duration_us: int, seed: int) -> DataFrame:
    """Give each peer the stays of an observed peer, chosen by hash, as rows of ``churn``.

    Time is scaled so that the whole observation fits the workload. A first stay that had begun
    before the observation begins at the start. A stay that lasted beyond the observation never
    ends. A stay that would begin at the workload's very end is left out.
    """
    span = sf.max(sf.coalesce("down_us", "up_us"))
    row = sessions.agg(span.alias("span"), sf.count_distinct("peer").alias("peers")).first()
    assert row is not None
    observed = sessions.select("peer").distinct()
    from pyspark.sql import Window

    order = Window.orderBy(sf.xxhash64(sf.lit(seed), sf.lit("observed"), "peer"), "peer")
    numbered = observed.withColumn("place", sf.row_number().over(order) - 1).withColumnRenamed(
        "peer", "as"
    )
    chosen = sf.pmod(
        sf.xxhash64(sf.lit(seed), sf.lit("as"), "peer"), sf.lit(max(1, row["peers"]))
    ).cast("INT")
    placed = (
        peers.select("peer")
        .distinct()
        .withColumn("place", chosen)
        .join(numbered, on="place", how="inner")
    )
    stays = placed.join(sessions.withColumnRenamed("peer", "as"), on="as", how="inner")
    scale = duration_us / max(1, row["span"] or 1)
    up = (
        sf.when(sf.col("began") | (sf.col("session") > 0), sf.floor(sf.col("up_us") * scale))
        .otherwise(sf.lit(0))
        .cast("BIGINT")
    )
    down = sf.floor(sf.col("down_us") * scale).cast("BIGINT")
    ends = sf.when(down < duration_us, down)
    found = stays.select("peer", "session", up.alias("up_us"), ends.alias("down_us"))
    return found.where(sf.col("up_us") < duration_us).select(*CHURN.names)


def from_fit(
    spark: SparkSession,
    peers: DataFrame,
    kind: str,
    duration_us: int,
    share_per_minute: float,
    seed: int,
) -> DataFrame:
    """Rows of ``churn`` with sessions and absences as the simulator draws them (``server`` or
    ``client``).
    """
    names = [row["peer"] for row in peers.select("peer").distinct().orderBy("peer").collect()]
    absences = fitted.schedule(
        fitted.parse(kind), len(names), duration_us / 1e6, share_per_minute, seed
    )
    away: dict[int, list[fitted.Leaving]] = {}
    for leaving in absences:
        away.setdefault(leaving.node, []).append(leaving)
    rows: list[tuple[str, int, int, int | None]] = []
    for number, name in enumerate(names):
        up, session = 0, 0
        for leaving in away.get(number, []):
            if leaving.at > up:
                rows.append((name, session, up, leaving.at))
                session += 1
            up = leaving.until
        if up < duration_us:
            rows.append((name, session, up, None))
    return spark.createDataFrame(rows, CHURN.ddl)


def lives(filters: DataFrame, churn: DataFrame, settle_us: int) -> DataFrame:
    """(filter, subscribing_at, subscribed_at, ended_at) for each stay of a filter's peer.

    ``subscribe`` is called when the peer comes, and returns within ``settle_us``. Everything before
    the beginning of the workload has settled.
    """
    asked = sf.when(sf.col("up_us") > 0, sf.col("up_us")).otherwise(sf.lit(-settle_us - 1))
    return filters.join(churn, on="peer", how="inner").select(
        "filter",
        asked.alias("subscribing_at"),
        (asked + settle_us).alias("subscribed_at"),
        sf.col("down_us").alias("ended_at"),
    )


def publications(events: DataFrame, settle_us: int) -> DataFrame:
    """(event, published_at, completed_at): a receipt is complete within ``settle_us``."""
    return events.select(
        "event",
        sf.col("at_us").alias("published_at"),
        (sf.col("at_us") + settle_us).alias("completed_at"),
    )
