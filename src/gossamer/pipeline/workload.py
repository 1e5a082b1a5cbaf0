"""The workload of seed 001 out of a trace: one filter for each peer that matches one of its files, one event for each file.

Everything that looks random is a hash of the seed and the row itself, so the same trace and seed give the same rows whatever
the partitioning. The texts are of mixed shapes, all in the common subset of the fabric and Spark.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from gossamer.pipeline.tables import EVENTS, FILTERS, TOPICS, parse_schema

SCHEMA = "name STRING, type STRING, size BIGINT"
"""The topic's schema."""
JSON = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "mode": "FAILFAST"}
"""How values are read from JSON."""

PERIOD_US = 1000
"""Time between two events."""

SHAPES = (
    ("exact", 40, "name = {name} AND type = {type} AND size = {size}"),
    ("name", 10, "name = {name}"),
    ("range", 20, "type = {type} AND size BETWEEN {low} AND {high}"),
    ("prefix", 10, "name LIKE {prefix}"),
    ("contains", 5, "name LIKE {middle}"),
    ("from", 2, "type = {type} AND size >= {size}"),
    ("either", 5, "name = {name} OR (type = {type} AND size = {size})"),
    ("in", 4, "type IN ({type}, 'dsc') AND name LIKE {prefix}"),
    ("not", 4, "NOT (type <> {type}) AND size > {below} AND size {under}"),
)
"""Shape, its share in percent, its text. The wide shapes are few: they alone would decide the number of deliveries."""

assert sum(share for _, share, _ in SHAPES) == 100


def topics(filters: DataFrame, events: DataFrame) -> DataFrame:
    """The topics that filters and events are on."""
    asked = filters.groupBy("topic").agg(sf.count(sf.lit(1)).alias("filters"))
    told = events.groupBy("topic").agg(sf.count(sf.lit(1)).alias("events"))
    both = asked.join(told, on="topic", how="full").fillna(0, subset=["filters", "events"])
    return both.withColumn("schema", sf.lit(SCHEMA)).select(*TOPICS.names)


def _files(items: DataFrame) -> DataFrame:
    read = sf.from_json("values", parse_schema(SCHEMA), JSON)
    return items.select("item", "topic", "values", read.alias("read")).select("item", "topic", "values", "read.*")


def filters(items: DataFrame, holdings: DataFrame, seed: int, limit: int | None = None) -> DataFrame:
    """One filter for each peer, which matches one of the peer's files; the first ``limit`` in the order of a hash."""
    traces = holdings.select("peer", "item").join(_files(items), on="item", how="inner")
    first = Window.partitionBy("peer").orderBy(_hash(seed, "file", "peer", "name", "type", "size"), "name", "type", "size")
    chosen = traces.withColumn("rank", sf.row_number().over(first)).where("rank = 1")
    drawn = chosen.withColumn("draw", sf.pmod(_hash(seed, "shape", "peer"), sf.lit(100)))
    shape, text, upto = sf.lit(None).cast("STRING"), sf.lit(None).cast("STRING"), 100
    for name, share, pattern in reversed(SHAPES):
        shape = sf.when(sf.col("draw") < upto, sf.lit(name)).otherwise(shape)
        text = sf.when(sf.col("draw") < upto, _fill(pattern, seed)).otherwise(text)
        upto -= share
    return (
        drawn.withColumn("filter", _number(seed, "peer"))
        .select("filter", "topic", "peer", shape.alias("shape"), text.alias("text"))
        .where(sf.lit(True) if limit is None else sf.col("filter") < limit)
        .select(*FILTERS.names)
    )


def events(items: DataFrame, holdings: DataFrame, seed: int, limit: int | None = None) -> DataFrame:
    """One event for each file, however many peers hold it; the first ``limit`` in the order of a hash."""
    holder = holdings.groupBy("item").agg(sf.min("peer").alias("peer"))
    files = _files(items).join(holder, on="item", how="inner")
    return (
        files.withColumn("event", _number(seed, "name", "type", "size"))
        .where(sf.lit(True) if limit is None else sf.col("event") < limit)
        .withColumn("at_us", sf.col("event") * PERIOD_US)
        .select(*EVENTS.names)
    )


def _hash(seed: int, purpose: str, *columns: str) -> Column:
    return sf.xxhash64(sf.lit(seed), sf.lit(purpose), *columns)


def _number(seed: int, *columns: str) -> Column:
    """0, 1, 2, ... in the order of a hash."""
    order = Window.orderBy(_hash(seed, "order", *columns), *columns)
    return sf.row_number().over(order).cast("BIGINT") - sf.lit(1)


def _quote(text: Column) -> Column:
    """A string literal of Spark SQL."""
    escaped = sf.replace(sf.replace(text, sf.lit("\\"), sf.lit("\\\\")), sf.lit("'"), sf.lit("\\'"))
    return sf.concat(sf.lit("'"), escaped, sf.lit("'"))


def _like(text: Column) -> Column:
    """The text as a LIKE pattern that matches itself."""
    for special in ("\\", "%", "_"):
        text = sf.replace(text, sf.lit(special), sf.lit("\\" + special))
    return text


def _fill(pattern: str, seed: int) -> Column:
    """The pattern with its places filled from the file at hand."""
    size, name = sf.col("size"), sf.col("name")
    margin = sf.floor(size / sf.lit(50)) + sf.lit(1)
    length = sf.lit(3) + sf.pmod(_hash(seed, "length", "peer"), sf.lit(5)).cast("INT")
    places = {
        "name": _quote(name),
        "type": _quote(sf.col("type")),
        "size": size,
        "low": sf.greatest(size - margin, sf.lit(0)),
        "high": sf.coalesce(sf.try_add(size, margin), size),
        "below": size - margin,
        "under": sf.coalesce(sf.concat(sf.lit("< "), sf.try_add(size, margin)), sf.concat(sf.lit("<= "), size)),
        "prefix": _quote(sf.concat(_like(sf.substring(name, sf.lit(1), length)), sf.lit("%"))),
        "middle": _quote(sf.concat(sf.lit("%"), _like(sf.substring(name, sf.lit(2), length + sf.lit(2))), sf.lit("%"))),
    }
    parts = []
    for piece in pattern.split("{"):
        place, bracket, rest = piece.partition("}")
        parts += [places[place].cast("STRING"), sf.lit(rest)] if bracket else [sf.lit(piece)]
    return sf.concat(*parts)
