"""Judges a live fabric by its nodes' trace files: Spark reads filters and events, and decides which
events were due.

The trace files (``gossamer.trace``) are the only input. An event is *due* to a subscription that
was made before the event was published, and that did not end before the event's receipt was
complete. It is *allowed* if they overlap. Any other hand-over is *spurious*, also one that came
before the subscription was asked for or after it ended.

The time stamps of different nodes are compared. So their clocks must agree to within the time that
a subscriber waits before it relies on its subscription. On one machine they do.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

from msgspec import Struct, structs
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as sf
from pyspark.sql.types import StringType, StructType

from gossamer import trace
from gossamer.pipeline import advertised, discards, following, groups, masters, oracle
from gossamer.pipeline.job import HIDDEN, cut, is_hidden, read_lines
from gossamer.pipeline.tables import parse_schema

EXAMPLES_MAX = 10
LATE_MS = 1000.0
"""By default, a hand-over is late if it comes longer after the publication than this."""
SUBSCRIPTIONS_MAX = 1000
TEXT_MAX = 200
"""The most letters of a filter's text in an error."""

_RECORD = (
    "at BIGINT, node STRING, kind STRING, version BIGINT, incarnation BIGINT, record "
    "STRUCT<kind: STRING, topic: STRING, "
    "schema: STRING, subscription: BIGINT, filter: STRING, sequence: BIGINT, incarnation: "
    "BIGINT, values: STRING, "
    "publisher: STRING, hops: BIGINT, name: STRING, start: BIGINT, again: BOOLEAN, group: STRING, "
    "matched: BIGINT, reported: BOOLEAN>, broken STRING"
)
_SUBSCRIPTION = ("node", "incarnation", "subscription")
# This column stands beside the attributes, whose names have no dot.
# The separator between the name of a fabric and the name of a node in it.
_WITHIN = ":"
_BROKEN = "gossamer.broken"


class VerifyError(ValueError):
    """Trace files that cannot be judged. The message gives the cause and a remedy."""


class Counts(Struct, frozen=True):
    """``expected = delivered + missed``; ``delivered + allowed + duplicate + spurious`` is every
    hand-over.
    """

    expected: int = 0
    delivered: int = 0
    missed: int = 0
    allowed: int = 0
    duplicate: int = 0
    spurious: int = 0
    late: int = 0
    """Late hand-overs. They are counted above, too, and are no fault."""

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
    """None if the subscription is not in the traces."""
    counts: Counts


class Example(Struct, frozen=True):
    """One pair with a fault."""

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
    late: int
    """Hand-overs later than ``late_ms`` after the publication.

    They are no fault by themselves, because catching up and ordering take time.
    """
    late_ms: float
    events: int
    subscriptions: int
    nodes: int
    incomplete: int
    """Events whose receipt was never complete.

    They are due to no subscription and do not count in ``ok``, so look at them yourself.
    """
    broken: int
    """Lines or events that could not be read or that contradict each other, except a file's torn
    last line.

    They may make the verdict wrong.
    """
    torn: int
    """Files that end inside a line, because their nodes were killed."""
    latency_ms_p50: float | None
    latency_ms_p99: float | None
    latency_ms: tuple[tuple[float, int], ...]
    """Hand-overs by latency: (the highest latency in milliseconds, count)."""
    hops: tuple[tuple[int, int], ...]
    """Hand-overs by hops."""
    per_node: tuple[NodeRow, ...]
    per_subscription: tuple[SubscriptionRow, ...]
    """The worst first, at most 1000."""
    examples: tuple[Example, ...]
    miscounted: int = 0
    """Events whose receipt counts them as taken by a subscription that had discarded them before it
    reported.
    """

    @property
    def ok(self) -> bool:
        wrong = self.missed or self.duplicate or self.spurious
        return not (wrong or self.broken or self.miscounted)


def verify(spark: SparkSession, trace_dir: Path, late_ms: float = LATE_MS) -> Verdict:
    """Judge the trace files ``*.jsonl`` in a folder."""
    if not trace_dir.is_dir():
        raise VerifyError(
            f"{trace_dir}: no such folder; give the folder that holds the nodes' trace files "
            "(*.jsonl)"
        )
    paths = sorted(trace_dir.glob("*.jsonl"))
    if hidden := [path for path in paths if is_hidden(path)]:
        raise VerifyError(f"{hidden[0]}: {HIDDEN}")
    if not paths:
        raise VerifyError(
            f"{trace_dir}: no trace files (*.jsonl); start nodes with a trace folder, then "
            "verify it"
        )
    records = cut(parse(read_lines(spark, paths), [path for path in paths if _is_cut(path)]))
    nodes, broken, torn = _check_files(records, len(paths))
    judged, handed, subscribed, published, unread, miscounted = _judge(records)
    verdict = _verdict(judged, handed, subscribed, published, nodes, broken + unread, torn, late_ms)
    return structs.replace(verdict, miscounted=miscounted)


_Judged = tuple[DataFrame, DataFrame, DataFrame, DataFrame, int, int]


def _judge(records: DataFrame) -> _Judged:
    """Judge the records of trace files.

    The result is: pairs with their verdicts, hand-overs, subscriptions, events, the number of
    events that cannot be read, and the number of receipts that count wrongly.
    """
    subscribed, published = cut(subscriptions(records)), cut(events(records))
    handed = cut(hand_overs(records, subscribed))
    read = {topic: cut(rows) for topic, rows in read_values(published, topics(records)).items()}
    with _names_the_filter(read, subscribed):
        told = following.gaps(records, following.lives(records))
        due = pairs(matches(published, subscribed, read), subscribed, published, told)
        miscounted = discards.miscounted(records, due, handed, _event_id("record.publisher"))
        due, handed, subscribed = groups.fold(
            due, handed, subscribed, published, groups.members(records)
        )
        due = due.withColumn("alive", sf.lit(True))
        judged = cut(oracle.judge(due, handed, ("event", *_SUBSCRIPTION, "alive")))
        judged.count()
    unread = sum(
        rows.where(f"values IS NULL OR values.`{_BROKEN}` IS NOT NULL").count()
        for rows in read.values()
    )
    return judged, handed, subscribed, published, unread, miscounted


def verdicts(lines: DataFrame) -> DataFrame:
    """Judge many fabrics at once, such as the runs of a grid.

    ``lines`` are (fabric, file, line, row) of their trace files. The result has (fabric, expected,
    delivered, missed, allowed, duplicate, spurious, broken). Nodes of different fabrics may have
    the same name.
    """
    source = sf.concat_ws("/", "fabric", "file").alias("source")
    parsed = parse(lines.select(source, "line", "row"), [])
    fabric = sf.substring_index("source", "/", 1)

    def named(peer: str) -> Column:
        return sf.concat_ws(_WITHIN, fabric, peer)

    publisher = sf.when(sf.col("record").isNotNull(), named("record.publisher"))
    records = cut(
        parsed.withColumn("node", named("node")).withColumn(
            "record", sf.col("record").withField("publisher", publisher)
        )
    )
    judged = _judge(records)[0]
    kinds = oracle.counts()
    counted = judged.groupBy(_fabric("node").alias("fabric")).agg(
        *(kinds[name].alias(name) for name in kinds)
    )
    all_of_them = records.groupBy(fabric.alias("fabric")).agg(sf.count_if("broken").alias("broken"))
    return all_of_them.join(counted, on="fabric", how="left").na.fill(0)


def _fabric(node: str) -> Column:
    """The fabric of a node. If there are several, the name of the node begins with it."""
    return sf.regexp_extract(node, f"^([^{_WITHIN}]*){_WITHIN}", 1)


def _is_cut(path: Path) -> bool:
    """Whether the file ends inside a line. Then its node was killed."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(size - 1, 0))
        return file.read(1) not in (b"", b"\n")


def parse(lines: DataFrame, cut: Sequence[Path]) -> DataFrame:
    """Turn lines (source, line, row) into one record for each row. ``incarnation`` is that of the
    header above it.

    ``cut`` are the files that end inside a line. That line is marked ``cut``, even if it can be
    read. A broken record has no kind.
    """
    parsed = lines.select(
        "source",
        "line",
        sf.from_json("row", _RECORD, {"columnNameOfCorruptRecord": "broken"}).alias("r"),
    )
    parsed = parsed.withColumn(
        "good", sf.col("r.broken").isNull() & sf.coalesce(_is_whole(), sf.lit(False))
    )
    in_file = Window.partitionBy("source").orderBy("line")
    is_header = sf.col("r.kind") == "header"
    good = sf.col("good")
    last = sf.row_number().over(Window.partitionBy("source").orderBy(sf.desc("line"))) == 1
    of_header = sf.last(
        sf.when(is_header, sf.struct("r.node", "r.incarnation")), ignorenulls=True
    ).over(in_file)
    return parsed.select(
        "source",
        "line",
        (~good).alias("broken"),
        (last & sf.col("source").isin([str(path.resolve()) for path in cut])).alias("cut"),
        sf.when(good, sf.coalesce("r.record.kind", "r.kind")).alias("kind"),
        sf.col("r.version").alias("version"),
        sf.when(good, sf.col("r.at")).alias("at"),
        sf.when(good, sf.col("r.node")).otherwise(of_header["node"]).alias("node"),
        of_header["incarnation"].alias("incarnation"),
        sf.col("r.record").alias("record"),
    )


def _is_whole() -> Column:
    """Whether this is a header or a record of a known kind, with every field that its kind
    needs.
    """
    fields = parse_schema(_RECORD)["record"].dataType
    assert isinstance(fields, StructType)
    read = set(fields.names)

    def there(*names: str) -> Column:
        return functools.reduce(Column.__and__, (sf.col(f"r.{name}").isNotNull() for name in names))

    whole = sf.when(sf.col("r.kind") == "header", there("version", "node", "incarnation"))
    for record in get_args(trace.Record):
        needed = [
            f"record.{field.name}"
            for field in structs.fields(record)
            if field.required and field.name in read
        ]
        whole = whole.when(
            sf.col("r.record.kind") == record.__struct_config__.tag, there("at", "node", *needed)
        )
    # NULL: the record has no known kind.
    return whole


def _check_files(records: DataFrame, files: int) -> tuple[int, int, int]:
    """Check that these are trace files of our version.

    Return (nodes, broken lines, torn last lines).
    """
    first, torn = sf.col("line") == 1, sf.col("broken") & sf.col("cut")
    headless = first & ~torn & ~sf.coalesce(sf.col("kind") == "header", sf.lit(False))
    row = records.agg(
        sf.min(sf.when(headless, sf.col("source"))).alias("headless"),
        sf.count_if(first).alias("started"),
        sf.max(sf.when(sf.col("version") != trace.VERSION, sf.col("version"))).alias("version"),
        sf.count_distinct("node").alias("nodes"),
        sf.count_if(sf.col("broken") & ~sf.col("cut")).alias("broken"),
        sf.count_if(torn).alias("torn"),
    ).first()
    assert row is not None
    if row["headless"] is not None:
        raise VerifyError(
            f"{row['headless']}: line 1 is not a trace header; is this a gossamer trace file?"
        )
    if not row["started"]:
        raise VerifyError(f"all {files} trace files are empty; did the nodes run?")
    if row["version"] is not None:
        raise VerifyError(
            f"trace version {row['version']}, this gossamer reads {trace.VERSION}; re-record or "
            "upgrade"
        )
    return row["nodes"], row["broken"], row["torn"]


def topics(records: DataFrame) -> dict[str, StructType]:
    """The schema of each topic, as its nodes advertised it. If it grew, this is the longest."""
    rows = records.where("kind = 'advertised'").select("record.topic", "record.schema")
    return {
        topic: parse_schema(text) for topic, text in advertised.schemas(rows, VerifyError).items()
    }


def subscriptions(records: DataFrame) -> DataFrame:
    """(node, incarnation, subscription, topic, filter, subscribing_at, subscribed_at, ended_at,
    start).

    Times are in microseconds. A durable subscription is one row (following.py).
    """

    def at(kind: str) -> Any:
        return sf.min(sf.when(sf.col("kind") == kind, sf.col("at")))

    asked = sf.col("kind") == "subscribing"
    made = (
        records.where("kind IN ('subscribing', 'subscribed', 'unsubscribed')")
        .groupBy("node", "incarnation", sf.col("record.subscription").alias("subscription"))
        .agg(
            sf.max(sf.when(asked, sf.col("record.topic"))).alias("topic"),
            sf.max(sf.when(asked, sf.col("record.filter"))).alias("filter"),
            sf.max(sf.when(asked, sf.col("record.start"))).alias("start"),
            at("subscribing").alias("subscribing_at"),
            at("subscribed").alias("subscribed_at"),
            at("unsubscribed").alias("unsubscribed_at"),
        )
    )
    # When a node is killed or comes back in a new incarnation, its subscriptions end with the last
    # record of the old one.
    lives = (
        records.where("incarnation IS NOT NULL")
        .groupBy("node", "incarnation")
        .agg(sf.max("at").alias("silent_at"), sf.bool_or("cut").alias("killed"))
    )
    next_life = sf.lead("incarnation").over(Window.partitionBy("node").orderBy("incarnation"))
    lives = lives.withColumn(
        "silent_at", sf.when(sf.col("killed") | next_life.isNotNull(), sf.col("silent_at"))
    )
    ended = made.join(lives, on=["node", "incarnation"], how="left").withColumn(
        "ended_at", sf.least("unsubscribed_at", "silent_at")
    )
    return following.merge(ended, following.lives(records))


def events(records: DataFrame) -> DataFrame:
    """(event, topic, values, published_at, completed_at, times).

    An event is named publisher/incarnation/sequence. ``times`` counts its publications; more than
    one is wrong.
    """
    published, completed = sf.col("kind") == "published", sf.col("kind") == "completed"
    return (
        records.where(published | completed)
        .groupBy(_event_id("node").alias("event"))
        .agg(
            sf.min(sf.when(published, sf.col("record.topic"))).alias("topic"),
            sf.min_by("record.values", sf.when(published, sf.col("at"))).alias("values"),
            sf.min(sf.when(published, sf.col("at"))).alias("published_at"),
            sf.min(sf.when(completed, sf.col("at"))).alias("completed_at"),
            sf.count_if(published).alias("times"),
        )
        .where("published_at IS NOT NULL")
        .select("event", "topic", "values", "published_at", "completed_at", "times")
    )


def hand_overs(records: DataFrame, subscribed: DataFrame) -> DataFrame:
    """(event, node, incarnation, subscription, alive, copies, at, hops), with time and hops of the
    first copy.

    ``alive`` means that the subscription was asked for at the time of the hand-over. Some copies of
    one pair may be alive and others not.
    """
    alive = (sf.col("at") >= sf.col("subscribing_at")) & (
        sf.col("ended_at").isNull() | (sf.col("at") <= sf.col("ended_at"))
    )
    handed = records.where("kind = 'delivered'").withColumn(
        "subscription", sf.col("record.subscription")
    )
    return (
        following.fold(handed, following.lives(records))
        .withColumn("event", _event_id("record.publisher"))
        .join(
            subscribed.select(*_SUBSCRIPTION, "subscribing_at", "ended_at"),
            on=list(_SUBSCRIPTION),
            how="left",
        )
        .groupBy("event", *_SUBSCRIPTION, sf.coalesce(alive, sf.lit(False)).alias("alive"))
        .agg(
            following.copies().alias("copies"),
            sf.min("at").alias("at"),
            sf.min_by("record.hops", "at").alias("hops"),
        )
        .select("event", *_SUBSCRIPTION, "alive", "copies", "at", "hops")
    )


def read_values(published: DataFrame, schemas: dict[str, StructType]) -> dict[str, DataFrame]:
    """(event, values STRUCT) of each topic.

    The struct has one more field for the text of values that could not be read.
    """
    used = {row["topic"] for row in published.select("topic").distinct().collect()}
    if unknown := sorted(used - set(schemas)):
        raise VerifyError(
            f"topic {unknown[0]!r} was published but never advertised in these traces; are files "
            "missing?"
        )
    found = {}
    for topic in sorted(used):
        schema = StructType(list(schemas[topic].fields)).add(_BROKEN, StringType())
        values = sf.from_json("values", schema, {"columnNameOfCorruptRecord": _BROKEN})
        found[topic] = published.where(sf.col("topic") == topic).select(
            "event", values.alias("values")
        )
    return found


def matches(published: DataFrame, subscribed: DataFrame, read: dict[str, DataFrame]) -> DataFrame:
    """(event, topic, filter) for all pairs where the filter's text is TRUE."""
    found = [
        published.select("event", "topic", sf.col("topic").alias("filter")).where(sf.lit(False))
    ]
    for topic, rows in read.items():
        pairs = oracle.matches(_attributes(rows), _texts(subscribed, topic))
        found.append(pairs.select("event", sf.lit(topic).alias("topic"), "filter"))
    return functools.reduce(DataFrame.unionByName, found).select("event", "topic", "filter")


def _attributes(rows: DataFrame) -> DataFrame:
    return rows.select("event", sf.col("values").dropFields(f"`{_BROKEN}`").alias("values"))


def _texts(subscribed: DataFrame, topic: str) -> DataFrame:
    texts = (
        subscribed.where((sf.col("topic") == topic) & sf.col("filter").isNotNull())
        .select("filter")
        .distinct()
    )
    return texts.select("filter", sf.col("filter").alias("text"))


@contextlib.contextmanager
def _names_the_filter(read: dict[str, DataFrame], subscribed: DataFrame) -> Iterator[None]:
    """If Spark fails, find by halves the filter that makes it fail."""
    try:
        yield
    except (Py4JJavaError, PySparkException):
        for topic, rows in read.items():
            texts = sorted(row["text"] for row in _texts(subscribed, topic).collect())
            while len(texts) > 1:
                half = texts[: len(texts) // 2]
                texts = half if _failure(rows, half) else texts[len(half) :]
            if texts and (failure := _failure(rows, texts)):
                text = texts[0] if len(texts[0]) <= TEXT_MAX else texts[0][:TEXT_MAX] + "..."
                raise VerifyError(
                    f"topic {topic!r}: Spark does not read a filter: {text!r}: {failure}"
                ) from None
        raise


def _failure(rows: DataFrame, texts: list[str]) -> str | None:
    """Spark's error for these filters, in one line."""
    try:
        filters = rows.sparkSession.createDataFrame(
            [(text, text) for text in texts], "filter STRING, text STRING"
        )
        oracle.matches_by_text(_attributes(rows), filters).count()
    except Py4JJavaError as error:
        return masters.first_line(str(error.java_exception), error)
    except PySparkException as error:
        return masters.first_line(str(error), error)
    return None


def pairs(
    found: DataFrame, subscribed: DataFrame, published: DataFrame, told: DataFrame
) -> DataFrame:
    """(event, node, incarnation, subscription, due): the pairs that match and are due or
    allowed.
    """
    in_gap = sf.coalesce(sf.col("published_at") < sf.col("gap_at"), sf.lit(False))
    return (
        found.withColumn("fabric", _fabric("event"))
        .join(
            subscribed.withColumn("fabric", _fabric("node")),
            on=["topic", "filter", "fabric"],
            how="inner",
        )
        .join(published.drop("topic", "values", "times"), on="event", how="inner")
        .where(oracle.is_allowed(following.is_history()))
        .withColumn("publisher", sf.element_at(sf.split("event", "/"), 1))
        .join(told, on=[*_SUBSCRIPTION, "publisher"], how="left")
        .select("event", *_SUBSCRIPTION, (oracle.is_due() & ~in_gap).alias("due"))
    )


def _event_id(publisher: str) -> Any:
    return sf.concat_ws("/", publisher, "record.incarnation", "record.sequence")


def _verdict(
    judged: DataFrame,
    handed: DataFrame,
    subscribed: DataFrame,
    published: DataFrame,
    nodes: int,
    broken: int,
    torn: int,
    late_ms: float,
) -> Verdict:
    again = sf.coalesce(sf.sum(sf.col("times") - 1), sf.lit(0))
    of_published = published.agg(
        sf.count(sf.lit(1)), sf.count_if(sf.col("completed_at").isNull()), again
    ).first()
    assert of_published is not None
    after = ((sf.col("at") - sf.col("published_at")) / 1000.0).alias("ms")
    of_event = published.select("event", "published_at")
    timed = cut(
        handed.join(of_event, on="event", how="inner").select(*_SUBSCRIPTION, after, "hops")
    )
    behind = timed.where(sf.col("ms") > late_ms).groupBy(*_SUBSCRIPTION).count().collect()
    late = {(row["node"], row["incarnation"], row["subscription"]): row["count"] for row in behind}
    total, per_node, per_subscription = _per_subscription(judged, subscribed, late)
    percentiles = timed.agg(
        sf.percentile("ms", sf.array(sf.lit(0.5), sf.lit(0.99))).alias("p")
    ).first()
    assert percentiles is not None
    # The steps are powers of two from a quarter of a millisecond, because latencies have long
    # tails.
    at_most = sf.greatest(
        sf.lit(0.25), sf.pow(sf.lit(2.0), sf.ceil(sf.log2(sf.greatest("ms", sf.lit(0.25)))))
    )
    return Verdict(
        expected=total.expected,
        delivered=total.delivered,
        missed=total.missed,
        allowed=total.allowed,
        duplicate=total.duplicate,
        spurious=total.spurious,
        late=total.late,
        late_ms=late_ms,
        events=of_published[0],
        subscriptions=subscribed.count(),
        nodes=nodes,
        incomplete=of_published[1],
        broken=broken + of_published[2],
        torn=torn,
        latency_ms_p50=percentiles["p"][0] if percentiles["p"] else None,
        latency_ms_p99=percentiles["p"][1] if percentiles["p"] else None,
        latency_ms=tuple(
            (row[0], row[1])
            for row in timed.groupBy(at_most.alias("ms")).count().orderBy("ms").collect()
        ),
        hops=tuple(
            (row[0], row[1]) for row in timed.groupBy("hops").count().orderBy("hops").collect()
        ),
        per_node=per_node,
        per_subscription=per_subscription,
        examples=_examples(judged, subscribed, published) if not total.ok else (),
    )


def _per_subscription(
    judged: DataFrame, subscribed: DataFrame, late: dict[tuple[str, int, int], int]
) -> tuple[Counts, tuple[NodeRow, ...], tuple[SubscriptionRow, ...]]:
    """Totals, and counts for each node and each subscription, in one pass."""
    kinds = oracle.counts()
    # The full join keeps subscriptions to which nothing is due.
    rows = (
        subscribed.select(*_SUBSCRIPTION, "filter")
        .join(judged, on=list(_SUBSCRIPTION), how="full")
        .rollup("node", sf.struct("incarnation", "subscription").alias("which"))
        .agg(
            sf.grouping_id().alias("level"),
            sf.max("filter").alias("filter"),
            *(kinds[name].alias(name) for name in kinds),
        )
        .orderBy("node", "which")
        .collect()
    )

    behind: dict[tuple[Any, ...], int] = {}
    for place, count in late.items():
        for which in ((), place[:1], place):
            behind[which] = behind.get(which, 0) + count

    def counted(row: Any) -> Counts:
        which = {0: (row["node"], *(row["which"] or ())), 1: (row["node"],), 3: ()}[row["level"]]
        return Counts(**{name: row[name] for name in kinds}, late=behind.get(which, 0))

    total = next((counted(row) for row in rows if row["level"] == 3), Counts())
    per_node = tuple(NodeRow(row["node"], counted(row)) for row in rows if row["level"] == 1)
    each = [
        SubscriptionRow(
            row["node"],
            row["which"]["incarnation"],
            row["which"]["subscription"],
            row["filter"],
            counted(row),
        )
        for row in rows
        if row["level"] == 0
    ]
    each.sort(key=lambda row: -(row.counts.missed + row.counts.duplicate + row.counts.spurious))
    return total, per_node, tuple(each[:SUBSCRIPTIONS_MAX])


def _examples(
    judged: DataFrame, subscribed: DataFrame, published: DataFrame
) -> tuple[Example, ...]:
    what = sf.when(sf.col("verdict").isin("missed", "spurious"), sf.col("verdict")).otherwise(
        sf.lit("duplicate")
    )
    wrong = judged.where("verdict IN ('missed', 'spurious') OR copies > 1").withColumn("what", what)
    place = sf.row_number().over(Window.partitionBy("what").orderBy("event", *_SUBSCRIPTION))
    # This order shows some examples of each kind, and not only of the most frequent one.
    rows = (
        wrong.withColumn("place", place)
        .orderBy("place", "what")
        .limit(EXAMPLES_MAX)
        .join(published.select("event", "values"), on="event", how="left")
        .join(subscribed.select(*_SUBSCRIPTION, "filter"), on=list(_SUBSCRIPTION), how="left")
        .orderBy("what", "place")
        .collect()
    )
    return tuple(Example(**{name: row[name] for name in Example.__struct_fields__}) for row in rows)
