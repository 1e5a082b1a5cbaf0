"""The runs, judged by the oracle's table and not by the simulator's own counts; where the two differ, the row says so."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from gossamer.pipeline import oracle
from gossamer.pipeline.tables import METRICS

_COUNTED = ("expected", "delivered", "missed", "duplicate", "spurious")


def metrics(runs: DataFrame, deliveries: DataFrame, loads: DataFrame, expected: DataFrame) -> DataFrame:
    """One row for each run that ended."""
    ended = runs.where("status = 'ok'")
    counted = _judged(ended, deliveries, expected)
    agrees = sf.col("sim_delivered").eqNullSafe(sf.col("delivered") + sf.col("duplicate"))  # it counts every hand-over
    for name in ("expected", "missed", "duplicate", "spurious"):
        agrees = agrees & sf.col(f"sim_{name}").eqNullSafe(sf.col(name))
    return (
        ended.join(counted, on="run", how="left")
        .fillna(0, subset=list(_COUNTED))  # nothing expected and nothing delivered
        .join(_travelled(deliveries), on="run", how="left")
        .join(_noise(ended, loads), on="run", how="left")
        .withColumn("agrees", agrees)
        .withColumn("copies_per_delivery", sf.try_divide("copies", "delivered"))
        .select(*METRICS.names)
    )


def _judged(ended: DataFrame, deliveries: DataFrame, expected: DataFrame) -> DataFrame:
    """(run, expected, delivered, missed, duplicate, spurious)."""
    # Filter i lives on node i % nodes: an event handed over at another node is spurious, even if it matches.
    place = (sf.col("filter") % sf.col("nodes")).alias("node")
    due = ended.select("run", "nodes").crossJoin(expected).select("run", "event", "filter", place, "due")
    by = ("run", "event", "filter", "node")
    handed = deliveries.groupBy(*by).agg(sf.count(sf.lit(1)).alias("copies"))
    counts = oracle.counts()
    return oracle.judge(due, handed, by).groupBy("run").agg(*(counts[name].alias(name) for name in _COUNTED))


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
    return joined.groupBy("run").agg(sf.avg(share).alias("noise"), sf.max(share).alias("noise_node_max"))
