"""The workload of a trace: one filter for each peer, and one event for each item, as in seed 001.

A peer's filter matches one of its items. Where the items are files (name, type, size), filters have
mixed shapes, or are points alone as in the seed (``exact``). Items with other attributes get
filters on one or two of them: an equal text, a number within a fiftieth, a later day or moment. An
item that no peer holds gets a peer of its own that asks for it.

Each random-looking value is a hash of the seed and the row. So the same trace and seed give the
same rows, whatever the partitioning. The fabric and Spark read the texts alike.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf
from pyspark.sql import types as st

from gossamer.pipeline import traces
from gossamer.pipeline.tables import EVENTS, FILTERS, TOPICS, parse_schema

SCHEMA = "name STRING, type STRING, size BIGINT"
"""The schema of files."""
JSON = traces.JSON | {"mode": "FAILFAST"}
"""How values are read from JSON."""
PERIOD_US = 1000
"""The time between two events."""
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
"""The shape, its share in percent, and its text.

Wide shapes are rare, because they alone would decide the number of deliveries.
"""

assert sum(share for _, share, _ in SHAPES) == 100


def topics(filters: DataFrame, events: DataFrame, schemas: DataFrame) -> DataFrame:
    """The topics of filters and events; ``schemas`` are (topic, schema)."""
    asked = filters.groupBy("topic").agg(sf.count(sf.lit(1)).alias("filters"))
    told = events.groupBy("topic").agg(sf.count(sf.lit(1)).alias("events"))
    both = asked.join(told, on="topic", how="full").fillna(0, subset=["filters", "events"])
    return both.join(schemas, on="topic", how="inner").select(*TOPICS.names)


def schemas(items: DataFrame) -> DataFrame:
    """The (topic, schema) of a trace."""
    return items.groupBy("topic").agg(sf.min("schema").alias("schema"))


def owned(items: DataFrame, holdings: DataFrame) -> DataFrame:
    """(peer, item, topic, values): the items that each peer may ask for.

    An item without a holder gets a peer of its own.
    """
    held = holdings.select("peer", "item").join(
        items.select("item", "topic", "values"), on="item", how="inner"
    )
    alone = sf.concat(sf.lit("item-"), sf.col("item")).alias("peer")
    free = items.where("holders = 0").select(alone, "item", "topic", "values")
    return held.select("peer", "item", "topic", "values").unionByName(free)


def filters(
    items: DataFrame,
    holdings: DataFrame,
    seed: int,
    limit: int | None = None,
    *,
    exact: bool = False,
) -> DataFrame:
    """One filter for each peer, which matches one of the peer's items.

    ``limit`` keeps the first ones in the order of a hash.
    """
    first = Window.partitionBy("peer").orderBy(
        _hash(seed, "file", "peer", "topic", "values"), "topic", "values"
    )
    chosen = (
        owned(items, holdings)
        .withColumn("rank", sf.row_number().over(first))
        .where("rank = 1")
        .drop("rank")
    )
    numbered = chosen.withColumn("filter", _number(seed, "peer"))
    kept = numbered if limit is None else numbered.where(sf.col("filter") < limit)
    found = []
    for row in schemas(items).orderBy("topic").collect():
        read = sf.from_json("values", parse_schema(row["schema"]), JSON).alias("read")
        of_topic = kept.where(sf.col("topic") == row["topic"]).select(
            "filter", "topic", "peer", read
        )
        named = of_topic.select("filter", "topic", sf.col("peer").alias("gossamer.peer"), "read.*")
        found.append(_texts(named, parse_schema(row["schema"]), seed, exact))
    return functools.reduce(DataFrame.unionByName, found).select(*FILTERS.names)


def events(
    items: DataFrame,
    holdings: DataFrame,
    seed: int,
    limit: int | None = None,
    period_us: int = PERIOD_US,
) -> DataFrame:
    """One event for each item, whatever the number of its holders.

    ``limit`` keeps the first ones in the order of a hash.
    """
    holder = (
        owned(items, holdings).groupBy("item", "topic", "values").agg(sf.min("peer").alias("peer"))
    )
    return (
        holder.withColumn("event", _number(seed, "topic", "values"))
        .where(sf.lit(True) if limit is None else sf.col("event") < limit)
        .withColumn("at_us", sf.col("event") * period_us)
        .select(*EVENTS.names)
    )


def _texts(rows: DataFrame, kind: st.StructType, seed: int, exact: bool) -> DataFrame:
    """Turn (filter, topic, gossamer.peer, attributes..) into the rows of ``filters``."""
    if kind.simpleString() == parse_schema(SCHEMA).simpleString():
        drawn = rows.withColumnRenamed("gossamer.peer", "peer")
        draw = sf.lit(0) if exact else sf.pmod(_hash(seed, "shape", "peer"), sf.lit(100))
        shape, text, upto = sf.lit(None).cast("STRING"), sf.lit(None).cast("STRING"), 100
        for name, share, pattern in reversed(SHAPES):
            shape = sf.when(draw < upto, sf.lit(name)).otherwise(shape)
            text = sf.when(draw < upto, _fill(pattern, seed)).otherwise(text)
            upto -= share
        return drawn.select("filter", "topic", "peer", shape.alias("shape"), text.alias("text"))
    return _general(rows, kind, seed, exact)


def _general(rows: DataFrame, kind: st.StructType, seed: int, exact: bool) -> DataFrame:
    """Filters on attributes of any type.

    A hash chooses two of the item's attributes; ``exact`` takes all of them.
    """
    conditions = [
        sf.struct(
            _hash(seed, f"attribute {field.name}", "`gossamer.peer`").alias("order"),
            _condition(field, exact).alias("text"),
        )
        for field in kind.fields
    ]
    there = sf.filter(sf.sort_array(sf.array(*conditions)), lambda one: one["text"].isNotNull())
    count = sf.lit(len(conditions) if exact else 2)
    text = sf.array_join(
        sf.transform(sf.slice(there, sf.lit(1), count), lambda one: one["text"]), " AND "
    )
    # An item without any attribute is still an item.
    nothing = f"`{kind.fields[0].name}` IS NULL"
    return rows.select(
        "filter",
        "topic",
        sf.col("`gossamer.peer`").alias("peer"),
        sf.lit("exact" if exact else "general").alias("shape"),
        sf.when(sf.size(there) > 0, text).otherwise(sf.lit(nothing.replace("`", ""))).alias("text"),
    )


def _condition(field: st.StructField, exact: bool) -> Column:
    """A condition that the item's own value meets.

    NULL if there is no value, or if text cannot express it.
    """
    name, at = field.name, sf.col(f"`{field.name}`")
    shown = at.cast("STRING")
    kind = field.dataType
    if isinstance(kind, st.StringType):
        return sf.concat(sf.lit(f"{name} = "), _quote(at))
    if isinstance(kind, (st.ByteType, st.ShortType, st.IntegerType, st.LongType)):
        if exact:
            return sf.concat(sf.lit(f"{name} = "), shown)
        whole = at.cast("BIGINT")
        # The least BIGINT has no absolute value that is a BIGINT.
        part = sf.abs(whole.cast("DECIMAL(20,0)")) / sf.lit(50)
        margin = sf.floor(part).cast("BIGINT") + sf.lit(1)
        low, high = (
            sf.coalesce(sf.try_subtract(whole, margin), whole),
            sf.coalesce(sf.try_add(whole, margin), whole),
        )
        return sf.concat(
            sf.lit(f"{name} BETWEEN "), low.cast("STRING"), sf.lit(" AND "), high.cast("STRING")
        )
    if isinstance(kind, (st.FloatType, st.DoubleType)):
        margin = sf.abs(at) / 50.0 + 0.001
        low, high = (at - margin).cast("DOUBLE"), (at + margin).cast("DOUBLE")
        # Each bound is a literal with plain digits.
        finite = sf.abs(at) < 1e15
        text = sf.concat(
            sf.lit(f"{name} BETWEEN "), low.cast("DECIMAL(30,6)").cast("STRING"),
            sf.lit(" AND "), (high + 0.000001).cast("DECIMAL(30,6)").cast("STRING"),
        )  # fmt: skip
        return sf.when(finite, text)
    if isinstance(kind, st.DateType):
        return sf.concat(sf.lit(f"{name} >= DATE '"), shown, sf.lit("'"))
    if isinstance(kind, st.TimestampType):
        return sf.concat(sf.lit(f"{name} >= TIMESTAMP '"), shown, sf.lit("'"))
    if isinstance(kind, st.BooleanType):
        return sf.concat(sf.lit(f"{name} = "), shown)
    return sf.lit(None).cast("STRING")


def _hash(seed: int, purpose: str, *columns: str) -> Column:
    return sf.xxhash64(sf.lit(seed), sf.lit(purpose), *columns)


def _number(seed: int, *columns: str) -> Column:
    """The numbers 0, 1, 2, ... in the order of a hash."""
    order = Window.orderBy(_hash(seed, "order", *columns), *columns)
    return sf.row_number().over(order).cast("BIGINT") - sf.lit(1)


def _quote(text: Column) -> Column:
    """A string literal of Spark SQL."""
    escaped = sf.replace(sf.replace(text, sf.lit("\\"), sf.lit("\\\\")), sf.lit("'"), sf.lit("\\'"))
    return sf.concat(sf.lit("'"), escaped, sf.lit("'"))


def _like(text: Column) -> Column:
    """The text as a LIKE pattern that matches only this text."""
    for special in ("\\", "%", "_"):
        text = sf.replace(text, sf.lit(special), sf.lit("\\" + special))
    return text


def _fill(pattern: str, seed: int) -> Column:
    """The pattern, with its places filled from the current file."""
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
        "under": sf.coalesce(
            sf.concat(sf.lit("< "), sf.try_add(size, margin)), sf.concat(sf.lit("<= "), size)
        ),
        "prefix": _quote(sf.concat(_like(sf.substring(name, sf.lit(1), length)), sf.lit("%"))),
        "middle": _quote(
            sf.concat(
                sf.lit("%"), _like(sf.substring(name, sf.lit(2), length + sf.lit(2))), sf.lit("%")
            )
        ),
    }
    return fill(pattern, places)


def fill(pattern: str, places: Mapping[str, Column]) -> Column:
    """The pattern as text, with a column for each ``{place}``."""
    parts: list[Column] = []
    for piece in pattern.split("{"):
        place, bracket, rest = piece.partition("}")
        parts += [places[place].cast("STRING"), sf.lit(rest)] if bracket else [sf.lit(piece)]
    return sf.concat(*parts)
