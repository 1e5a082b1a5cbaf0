"""What a live fabric did, judged from its nodes' trace files: Spark reads the filters' text and the events, and says what was due.

The trace files (``gossamer.trace``) are the only input. *Due*: the subscription was made before the event was published, and
ended, if at all, after the event's receipt was complete. *Allowed*: they overlap. Anything else handed over is *spurious*.
Time stamps of different nodes are compared, so their clocks must agree to within the time a subscriber waits before it
relies on its subscription; on one machine they do.
"""

from __future__ import annotations

import contextlib
import functools
from pathlib import Path
from typing import Any

from msgspec import Struct
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sf
from pyspark.sql.types import StringType, StructType

from gossamer import trace
from gossamer.pipeline import oracle
from gossamer.pipeline.job import read_lines
from gossamer.pipeline.tables import parse_schema

EXAMPLES_MAX = 10
SUBSCRIPTIONS_MAX = 1000

_RECORD = (
    "at BIGINT, node STRING, kind STRING, version BIGINT, incarnation BIGINT, record STRUCT<kind: STRING, topic: STRING, "
    "schema: STRING, subscription: BIGINT, filter: STRING, sequence: BIGINT, incarnation: BIGINT, values: STRING, "
    "publisher: STRING, hops: BIGINT>, broken STRING"
)
_SUBSCRIPTION = ("node", "incarnation", "subscription")


class VerifyError(ValueError):
    """Trace files that cannot be judged; says why and what to do."""


class Counts(Struct, frozen=True):
    """``expected = delivered + missed``; ``delivered + allowed + duplicate + spurious`` is every hand-over."""

    expected: int = 0
    delivered: int = 0
    missed: int = 0
    allowed: int = 0
    duplicate: int = 0
    spurious: int = 0

    @property
    def ok(self) -> bool:
        return not (self.missed or self.duplicate or self.spurious)


class NodeRow(Struct, frozen=True):
    node: str
    counts: Counts


class SubscriptionRow(Struct, frozen=True):
    node: str
    incarnation: int
    subscription: int
    filter: str | None
    """Nothing if the subscription is not in the traces."""
    counts: Counts


class Example(Struct, frozen=True):
    """One pair that went wrong."""

    what: str
    """missed, duplicate or spurious"""
    event: str
    """publisher/incarnation/sequence"""
    values: str | None
    node: str
    subscription: int
    filter: str | None
    copies: int


class Verdict(Struct, frozen=True):
    expected: int
    delivered: int
    missed: int
    allowed: int
    duplicate: int
    spurious: int
    events: int
    subscriptions: int
    nodes: int
    incomplete: int
    """Events whose receipt was never complete."""
    broken: int
    """Lines or events that could not be read, other than a file's torn last line: the verdict may be wrong by these."""
    torn: int
    latency_ms_p50: float | None
    latency_ms_p99: float | None
    latency_ms: tuple[tuple[float, int], ...]
    """Hand-overs by latency: (at most so many milliseconds, count)."""
    hops: tuple[tuple[int, int], ...]
    """Hand-overs by hops."""
    per_node: tuple[NodeRow, ...]
    per_subscription: tuple[SubscriptionRow, ...]
    """The worst first, at most 1000."""
    examples: tuple[Example, ...]

    @property
    def ok(self) -> bool:
        return not (self.missed or self.duplicate or self.spurious or self.broken)


def verify(spark: SparkSession, trace_dir: Path) -> Verdict:
    """Judge the trace files ``*.jsonl`` in a folder."""
    if not trace_dir.is_dir():
        raise VerifyError(f"{trace_dir}: no such folder; give the folder that holds the nodes' trace files (*.jsonl)")
    paths = sorted(trace_dir.glob("*.jsonl"))
    if not paths:
        raise VerifyError(f"{trace_dir}: no trace files (*.jsonl); start nodes with a trace folder, then verify it")
    with contextlib.ExitStack() as kept:

        def keep(rows: DataFrame) -> DataFrame:
            kept.callback(rows.persist().unpersist)
            return rows

        records = keep(parse(read_lines(spark, paths)))
        nodes, broken, torn = _check_files(records, len(paths))
        subscribed, published, handed = keep(subscriptions(records)), keep(events(records)), keep(hand_overs(records))
        found, unreadable = matches(published, subscribed, topics(records))
        judged = keep(oracle.judge(pairs(found, subscribed, published), handed, ("event", *_SUBSCRIPTION)))
        return _verdict(judged, handed, subscribed, published, nodes, broken + unreadable, torn)


def parse(lines: DataFrame) -> DataFrame:
    """Lines (source, line, row) -> one record a row; ``incarnation`` is that of the header above it."""
    parsed = lines.select("source", "line", sf.from_json("row", _RECORD, {"columnNameOfCorruptRecord": "broken"}).alias("r"))
    in_file = Window.partitionBy("source").orderBy("line")
    header = sf.when(sf.col("r.kind") == "header", sf.col("r.incarnation"))
    unknown = sf.col("r.kind").isNull() & (sf.col("r.record.kind").isNull() | sf.col("r.at").isNull())
    return parsed.select(
        "source",
        "line",
        (sf.col("r.broken").isNotNull() | unknown).alias("broken"),
        (sf.row_number().over(Window.partitionBy("source").orderBy(sf.desc("line"))) == 1).alias("last"),
        sf.coalesce("r.record.kind", "r.kind").alias("kind"),
        sf.col("r.version").alias("version"),
        sf.col("r.at").alias("at"),
        sf.col("r.node").alias("node"),
        sf.last(header, ignorenulls=True).over(in_file).alias("incarnation"),
        sf.col("r.record").alias("record"),
    )


def _check_files(records: DataFrame, files: int) -> tuple[int, int, int]:
    """Are these trace files of a version that we read? Returns (nodes, broken lines, torn last lines)."""
    first = sf.col("line") == 1
    row = records.agg(
        sf.min(sf.when(first & ~sf.coalesce(sf.col("kind") == "header", sf.lit(False)), sf.col("source"))).alias("headless"),
        sf.count_if(first).alias("started"),
        sf.max(sf.when(sf.col("version") != trace.VERSION, sf.col("version"))).alias("version"),
        sf.count_distinct("node").alias("nodes"),
        sf.count_if(sf.col("broken") & ~sf.col("last")).alias("broken"),
        sf.count_if(sf.col("broken") & sf.col("last")).alias("torn"),
    ).first()
    assert row is not None
    if row["headless"] is not None:
        raise VerifyError(f"{row['headless']}: line 1 is not a trace header; is this a gossamer trace file?")
    if not row["started"]:
        raise VerifyError(f"all {files} trace files are empty; did the nodes run?")
    if row["version"] is not None:
        raise VerifyError(f"trace version {row['version']}, this gossamer reads {trace.VERSION}; re-record or upgrade")
    return row["nodes"], row["broken"], row["torn"]


def topics(records: DataFrame) -> dict[str, StructType]:
    """The schema of each topic, as its nodes advertised it."""
    found: dict[str, StructType] = {}
    rows = records.where("kind = 'advertised'").select("record.topic", "record.schema").distinct()
    for row in rows.orderBy("topic", "schema").collect():
        schema = parse_schema(row["schema"])
        if found.setdefault(row["topic"], schema) != schema:
            raise VerifyError(f"topic {row['topic']!r} was advertised with two schemas; verify one fabric at a time")
    return found


def subscriptions(records: DataFrame) -> DataFrame:
    """(node, incarnation, subscription, topic, filter, subscribing_at, subscribed_at, ended_at), times in microseconds."""

    def at(kind: str) -> Any:
        return sf.min(sf.when(sf.col("kind") == kind, sf.col("at")))

    asked = sf.col("kind") == "subscribing"
    made = (
        records.where("kind IN ('subscribing', 'subscribed', 'unsubscribed')")
        .groupBy("node", "incarnation", sf.col("record.subscription").alias("subscription"))
        .agg(
            sf.max(sf.when(asked, sf.col("record.topic"))).alias("topic"),
            sf.max(sf.when(asked, sf.col("record.filter"))).alias("filter"),
            at("subscribing").alias("subscribing_at"),
            at("subscribed").alias("subscribed_at"),
            at("unsubscribed").alias("unsubscribed_at"),
        )
    )
    # A node that came back in a new incarnation lost its subscriptions when the old one fell silent.
    lives = records.where("incarnation IS NOT NULL").groupBy("node", "incarnation").agg(sf.max("at").alias("silent_at"))
    next_life = sf.lead("incarnation").over(Window.partitionBy("node").orderBy("incarnation"))
    lives = lives.withColumn("silent_at", sf.when(next_life.isNotNull(), sf.col("silent_at")))
    return (
        made.join(lives, on=["node", "incarnation"], how="left")
        .withColumn("ended_at", sf.least("unsubscribed_at", "silent_at"))
        .select(*_SUBSCRIPTION, "topic", "filter", "subscribing_at", "subscribed_at", "ended_at")
    )


def events(records: DataFrame) -> DataFrame:
    """(event, topic, values, published_at, completed_at); an event is named publisher/incarnation/sequence."""
    published, completed = sf.col("kind") == "published", sf.col("kind") == "completed"
    return (
        records.where(published | completed)
        .groupBy(_event_id("node").alias("event"))
        .agg(
            sf.min(sf.when(published, sf.col("record.topic"))).alias("topic"),
            sf.min_by("record.values", sf.when(published, sf.col("at"))).alias("values"),
            sf.min(sf.when(published, sf.col("at"))).alias("published_at"),
            sf.min(sf.when(completed, sf.col("at"))).alias("completed_at"),
        )
        .where("published_at IS NOT NULL")
        .select("event", "topic", "values", "published_at", "completed_at")
    )


def hand_overs(records: DataFrame) -> DataFrame:
    """(event, node, incarnation, subscription, copies, at, hops); time and hops of the first copy."""
    return (
        records.where("kind = 'delivered'")
        .groupBy(
            _event_id("record.publisher").alias("event"),
            "node",
            "incarnation",
            sf.col("record.subscription").alias("subscription"),
        )
        .agg(
            sf.count(sf.lit(1)).alias("copies"),
            sf.min("at").alias("at"),
            sf.min_by("record.hops", "at").alias("hops"),
        )
        .select("event", *_SUBSCRIPTION, "copies", "at", "hops")
    )


def matches(published: DataFrame, subscribed: DataFrame, schemas: dict[str, StructType]) -> tuple[DataFrame, int]:
    """(event, topic, filter) where the filter's text is TRUE of the event; and how many events could not be read."""
    used = {row["topic"] for row in published.select("topic").distinct().collect()}
    if unknown := sorted(used - set(schemas)):
        raise VerifyError(f"topic {unknown[0]!r} was published but never advertised in these traces; are files missing?")
    found, unreadable = [published.select("event", "topic", sf.col("topic").alias("filter")).where(sf.lit(False))], 0
    for topic in sorted(used):
        schema = StructType(list(schemas[topic].fields)).add("__broken", StringType())
        read = published.where(sf.col("topic") == topic).select(
            "event", sf.from_json("values", schema, {"columnNameOfCorruptRecord": "__broken"}).alias("values")
        )
        unreadable += read.where("values IS NULL OR values.__broken IS NOT NULL").count()
        texts = subscribed.where(sf.col("topic") == topic).select(sf.col("filter").alias("text")).distinct()
        try:
            pairs = oracle.matches(
                read.select("event", sf.col("values").dropFields("__broken").alias("values")),
                texts.select(sf.col("text").alias("filter"), "text"),
            )
        except AnalysisException as error:
            raise VerifyError(f"topic {topic!r}: Spark does not read a filter: {str(error).splitlines()[0]}") from None
        found.append(pairs.select("event", sf.lit(topic).alias("topic"), "filter"))
    return functools.reduce(DataFrame.unionByName, found).select("event", "topic", "filter"), unreadable


def pairs(found: DataFrame, subscribed: DataFrame, published: DataFrame) -> DataFrame:
    """(event, node, incarnation, subscription, due): the pairs that match and are due or allowed."""
    due = (sf.col("subscribed_at") < sf.col("published_at")) & (
        sf.col("ended_at").isNull() | (sf.col("completed_at") <= sf.col("ended_at"))
    )
    allowed = (sf.col("completed_at").isNull() | (sf.col("subscribing_at") <= sf.col("completed_at"))) & (
        sf.col("ended_at").isNull() | (sf.col("ended_at") >= sf.col("published_at"))
    )
    return (
        found.join(subscribed, on=["topic", "filter"], how="inner")
        .join(published.drop("topic", "values"), on="event", how="inner")
        .where(allowed)
        .select("event", *_SUBSCRIPTION, sf.coalesce(due, sf.lit(False)).alias("due"))
    )


def _event_id(publisher: str) -> Any:
    return sf.concat_ws("/", publisher, "record.incarnation", "record.sequence")


def _verdict(
    judged: DataFrame, handed: DataFrame, subscribed: DataFrame, published: DataFrame, nodes: int, broken: int, torn: int
) -> Verdict:
    of_published = published.agg(sf.count(sf.lit(1)), sf.count_if(sf.col("completed_at").isNull())).first()
    assert of_published is not None
    total, per_node, per_subscription = _per_subscription(judged, subscribed)
    timed = handed.join(published.select("event", "published_at"), on="event", how="inner").select(
        ((sf.col("at") - sf.col("published_at")) / 1000.0).alias("ms"), "hops"
    )
    percentiles = timed.agg(sf.percentile("ms", sf.array(sf.lit(0.5), sf.lit(0.99))).alias("p")).first()
    assert percentiles is not None
    # Powers of two from a quarter of a millisecond: latencies have long tails.
    at_most = sf.greatest(sf.lit(0.25), sf.pow(sf.lit(2.0), sf.ceil(sf.log2(sf.greatest("ms", sf.lit(0.25))))))
    return Verdict(
        expected=total.expected,
        delivered=total.delivered,
        missed=total.missed,
        allowed=total.allowed,
        duplicate=total.duplicate,
        spurious=total.spurious,
        events=of_published[0],
        subscriptions=subscribed.count(),
        nodes=nodes,
        incomplete=of_published[1],
        broken=broken,
        torn=torn,
        latency_ms_p50=percentiles["p"][0] if percentiles["p"] else None,
        latency_ms_p99=percentiles["p"][1] if percentiles["p"] else None,
        latency_ms=tuple((row[0], row[1]) for row in timed.groupBy(at_most.alias("ms")).count().orderBy("ms").collect()),
        hops=tuple((row[0], row[1]) for row in timed.groupBy("hops").count().orderBy("hops").collect()),
        per_node=per_node,
        per_subscription=per_subscription,
        examples=_examples(judged, subscribed, published) if not total.ok else (),
    )


def _per_subscription(
    judged: DataFrame, subscribed: DataFrame
) -> tuple[Counts, tuple[NodeRow, ...], tuple[SubscriptionRow, ...]]:
    """Totals, per node and per subscription, counted in one pass."""
    kinds = oracle.counts()
    rows = (
        subscribed.select(*_SUBSCRIPTION, "filter")
        .join(judged, on=list(_SUBSCRIPTION), how="full")  # a subscription with nothing due is a row too
        .rollup("node", sf.struct("incarnation", "subscription").alias("which"))
        .agg(sf.grouping_id().alias("level"), sf.max("filter").alias("filter"), *(kinds[name].alias(name) for name in kinds))
        .orderBy("node", "which")
        .collect()
    )

    def counted(row: Any) -> Counts:
        return Counts(*(row[name] for name in Counts.__struct_fields__))

    total = next((counted(row) for row in rows if row["level"] == 3), Counts())
    per_node = tuple(NodeRow(row["node"], counted(row)) for row in rows if row["level"] == 1)
    each = [
        SubscriptionRow(row["node"], row["which"]["incarnation"], row["which"]["subscription"], row["filter"], counted(row))
        for row in rows
        if row["level"] == 0
    ]
    each.sort(key=lambda row: -(row.counts.missed + row.counts.duplicate + row.counts.spurious))
    return total, per_node, tuple(each[:SUBSCRIPTIONS_MAX])


def _examples(judged: DataFrame, subscribed: DataFrame, published: DataFrame) -> tuple[Example, ...]:
    what = sf.when(sf.col("verdict").isin("missed", "spurious"), sf.col("verdict")).otherwise(sf.lit("duplicate"))
    wrong = judged.where("verdict IN ('missed', 'spurious') OR copies > 1").withColumn("what", what)
    place = sf.row_number().over(Window.partitionBy("what").orderBy("event", *_SUBSCRIPTION))
    rows = (
        wrong.withColumn("place", place)
        .orderBy("place", "what")  # some of each kind, not only the most frequent
        .limit(EXAMPLES_MAX)
        .join(published.select("event", "values"), on="event", how="left")
        .join(subscribed.select(*_SUBSCRIPTION, "filter"), on=list(_SUBSCRIPTION), how="left")
        .orderBy("what", "place")
        .collect()
    )
    return tuple(Example(**{name: row[name] for name in Example.__struct_fields__}) for row in rows)
