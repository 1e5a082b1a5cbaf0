"""Synthetic workloads: filters and events drawn from a space of files, over any number of topics.

    uniform     every filter is a point; filters and events are drawn alike from a space in which
                two in five events match (seed 001)
    ranges      a type, and a range of sizes of a chosen width
    wildcards   points; a chosen share leaves one attribute open, or asks only for a prefix
    mixed       of ten filters four points, two ranges, one from a size on, one up to a size, one
                that leaves the type open, one IN

The popularity of topics follows Zipf's law, for filters and events alike (with exponent 0 all are
equal). No value depends on the order of drawing: each is a hash of the seed, its purpose and the
row's number. So the rows are the same however Spark cuts the data.
"""

from __future__ import annotations

from itertools import accumulate

from msgspec import Struct
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from gossamer.pipeline.tables import EVENTS, FILTERS
from gossamer.pipeline.workload import fill

TYPES = ("dsc", "orig.gz")
SIZE = 1000
"""Sizes are a thousand apart, so that ends of ranges also lie between them."""
SLOTS = 65_536
"""The precision of Zipf's law: its shares are multiples of one part in this number."""
SHAPES = {
    "point": "name = '{name}' AND type = '{type}' AND size = {size}",
    "range": "type = '{type}' AND size BETWEEN {low} AND {high}",
    "from": "name = '{name}' AND size >= {size}",
    "upto": "name = '{name}' AND size <= {size}",
    "open": "name = '{name}' AND size = {size}",
    "prefix": "name LIKE '{prefix}%' AND type = '{type}'",
    "in": "name IN ('{name}', '{other}') AND type = '{type}'",
}
MIXES = {
    "uniform": ("point",),
    "ranges": ("range",),
    "mixed": ("point", "point", "point", "point", "range", "range", "from", "upto", "open", "in"),
}
KINDS = (*MIXES, "wildcards")


class Recipe(Struct, frozen=True):
    """The options of a synthetic workload."""

    kind: str = "uniform"
    filters: int = 1000
    events: int = 2500
    seed: int = 0
    topics: int = 1
    zipf: float = 0.0
    """The exponent of the topics' popularity."""
    width: float = 0.01
    """The width of a range, as a share of all sizes."""
    wildcards: float = 0.2
    """The share of filters with a wildcard, if the kind is wildcards."""
    period_us: int = 1000
    """The time between two events."""

    @property
    def names(self) -> int:
        """The names in each topic: one for each of its filters, so with two types there are two
        points for each filter.
        """
        return max(1, self.filters // self.topics)


def filters(spark: SparkSession, recipe: Recipe) -> DataFrame:
    """The rows of ``filters``. Filter i belongs to peer i."""
    drawn = _drawn(spark.range(recipe.filters).withColumnRenamed("id", "n"), recipe, "filter")
    if recipe.kind == "wildcards":
        kinds = sf.when(_share(recipe, "half", "n") < 0.5, sf.lit("open")).otherwise(
            sf.lit("prefix")
        )
        shape = sf.when(_share(recipe, "wild", "n") < recipe.wildcards, kinds).otherwise(
            sf.lit("point")
        )
    else:
        mix = MIXES[recipe.kind]
        shape = sf.element_at(sf.array(*map(sf.lit, mix)), (sf.col("n") % len(mix) + 1).cast("INT"))
    text: Column = sf.lit(None).cast("STRING")
    for name, pattern in SHAPES.items():
        text = sf.when(sf.col("shape") == name, _fill(pattern, recipe)).otherwise(text)
    shaped = drawn.withColumn("shape", shape).withColumn("text", text)
    return shaped.select(
        sf.col("n").alias("filter"), "topic", _peer("n").alias("peer"), "shape", "text"
    ).select(*FILTERS.names)


def events(spark: SparkSession, recipe: Recipe) -> DataFrame:
    """The rows of ``events``. The peer of some filter publishes each."""
    drawn = _drawn(spark.range(recipe.events).withColumnRenamed("id", "n"), recipe, "event")
    peer = sf.floor(_share(recipe, "publisher", "n") * max(1, recipe.filters)).cast("BIGINT")
    return drawn.select(
        sf.col("n").alias("event"),
        "topic",
        sf.concat(sf.lit("peer-"), peer).alias("peer"),
        (sf.col("n") * recipe.period_us).alias("at_us"),
        sf.to_json(sf.struct("name", "type", "size")).alias("values"),
    ).select(*EVENTS.names)


def _drawn(rows: DataFrame, recipe: Recipe, purpose: str) -> DataFrame:
    """Add a point of the space to each number: (n) becomes (n, topic, name, type, size)."""
    number = sf.floor(_share(recipe, f"{purpose} name", "n") * recipe.names).cast("BIGINT")
    second = _share(recipe, f"{purpose} type", "n") < 0.5
    points = rows.select(
        "n",
        sf.floor(_share(recipe, f"{purpose} topic", "n") * SLOTS).cast("INT").alias("slot"),
        number.alias("number"),
        sf.format_string("file-%06d", number).alias("name"),
        sf.when(second, sf.lit(TYPES[0])).otherwise(sf.lit(TYPES[1])).alias("type"),
        (number * SIZE).alias("size"),
    )
    return points.join(sf.broadcast(_slots(rows.sparkSession, recipe)), on="slot", how="inner")


def _slots(spark: SparkSession, recipe: Recipe) -> DataFrame:
    """(slot, topic): a more popular topic owns more slots."""
    weights = list(accumulate((rank + 1) ** -recipe.zipf for rank in range(recipe.topics)))
    ends = [round(weight / weights[-1] * SLOTS) for weight in weights]
    starts = [0, *ends]
    owned = [
        (f"topic-{rank}", starts[rank], ends[rank] - 1)
        for rank in range(recipe.topics)
        if starts[rank] < ends[rank]
    ]
    ranges = spark.createDataFrame(owned, "topic STRING, first INT, last INT")
    return ranges.select(sf.explode(sf.sequence("first", "last")).alias("slot"), "topic")


def _share(recipe: Recipe, purpose: str, column: str) -> Column:
    """A number from 0 up to 1, drawn by hash."""
    return sf.pmod(
        sf.xxhash64(sf.lit(recipe.seed), sf.lit(purpose), column), sf.lit(2**53)
    ) / sf.lit(float(2**53))


def _peer(column: str) -> Column:
    return sf.concat(sf.lit("peer-"), sf.col(column))


def _fill(pattern: str, recipe: Recipe) -> Column:
    half = max(1, round(recipe.names * SIZE * recipe.width / 2))
    places = {
        "name": sf.col("name"),
        "type": sf.col("type"),
        "size": sf.col("size"),
        "low": sf.greatest(sf.col("size") - half, sf.lit(0)),
        "high": sf.col("size") + half,
        "prefix": sf.substring("name", 1, len("file-0000")),
        "other": sf.format_string("file-%06d", sf.pmod(sf.col("number") + 1, sf.lit(recipe.names))),
    }
    return fill(pattern, places)
