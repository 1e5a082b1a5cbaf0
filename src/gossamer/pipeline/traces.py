"""Rows of text become peers, items, holdings, sessions and round-trip times, or go to quarantine.

No row stops a job, and none vanishes: every row of a file is in one of the tables, or in quarantine
with the reason. ``parse`` judges each row of one source (``mapping.Source``) by itself. ``split``
makes the tables, and finds the faults that show only beside other rows: repeated rows, overlapping
stays, and keys without an item.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf
from pyspark.sql import types as st

from gossamer.pipeline import advertised, masters
from gossamer.pipeline.formats import Raw, TraceInputError
from gossamer.pipeline.job import cut
from gossamer.pipeline.mapping import CENSORED, FILES, MICROS, NO_NEGATIVE, SESSION, Source
from gossamer.pipeline.tables import (
    HOLDINGS,
    ITEMS,
    PEERS,
    QUARANTINE,
    RTTS,
    SESSIONS,
    parse_schema,
)

ROW_MAX = 1000
"""The part of a broken row that is kept."""
MOMENT_MAX = 10**12
"""In seconds. A later moment is not in the log of anything."""
JSON = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
"""How attributes are written as JSON and read again: to the microsecond."""
_PARSED = {
    "table": "STRING", "topic": "STRING", "schema": "STRING", "source": "STRING",
    "line": "BIGINT", "row": "STRING", "reason": "STRING", "peer": "STRING", "key": "STRING",
    "values": "STRING", "times": "BIGINT", "up_us": "BIGINT", "down_us": "BIGINT",
    "began": "BOOLEAN", "a": "BIGINT", "b": "BIGINT", "rtt_us": "BIGINT",
}  # fmt: skip
PARSED = ", ".join(f"`{name}` {type}" for name, type in _PARSED.items())
"""A judged row of any source. ``reason`` is NULL where the row is good."""
_WHOLE = (st.ByteType, st.ShortType, st.IntegerType, st.LongType)
_CARRIED = (
    "string",
    "boolean",
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "float",
    "double",
    "timestamp",
    "date",
)
"""The types of a topic's attribute, beside structs of these and BINARY."""
_INSTEAD = {
    "decimal": "DOUBLE, or BIGINT in the smallest unit",
    "varchar": "STRING", "char": "STRING", "string": "STRING", "timestamp_ntz": "TIMESTAMP",
}  # fmt: skip
_NUMBER = r"^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?$|^[+-]?(NaN|Infinity)$"
_TRACE = (
    "kind STRING, at BIGINT, node STRING, incarnation BIGINT, "
    "record STRUCT<kind: STRING, topic: STRING, schema: STRING, values: STRING>"
)


def needed(source: Source) -> list[str]:
    """The columns that a source's files must have."""
    if source.kind in ("debian", "trace", "matrix"):
        return []
    if source.table == "items":
        names = [source.columns.get(field.name, field.name) for field in schema(source).fields]
    elif source.table == "sessions":
        names = [source.columns.get(name, name) for name in SESSION]
    else:
        names = []
    return list(dict.fromkeys([*names, *(name for name in (source.peer, source.key) if name)]))


def schema(source: Source) -> st.StructType:
    """The attributes of a source's items, as Spark reads the text."""
    text = source.schema or FILES
    try:
        found = parse_schema(text)
    except Exception as error:
        raise TraceInputError(
            f"topic {source.topic}: Spark does not read the schema {text!r}: {_first(error)}"
        ) from None
    names = [field.name.lower() for field in found.fields]
    if unknown := [name for name in (*source.columns, *source.units) if name not in found.names]:
        raise TraceInputError(
            f"topic {source.topic}: the mapping names {unknown[0]}, but its schema is {text!r}"
        )
    if len(set(names)) < len(names):
        raise TraceInputError(f"topic {source.topic}: an attribute is there twice in {text!r}")
    for name, kind in _leaves(found):
        if isinstance(kind, st.BinaryType):
            raise TraceInputError(
                f"topic {source.topic}: {name} is binary, which no filter compares; leave it out"
            )
        said = kind.simpleString()
        # A fabric would refuse the topic, and every simulation of it would fail.
        if said not in _CARRIED:
            instead = _INSTEAD.get(
                re.split("[^a-z_]", said)[0], "attributes of their own for what filters ask for"
            )
            raise TraceInputError(
                f"topic {source.topic}: {name} is {said.upper()}, which no fabric carries; write "
                f"{instead}"
            )
    return found


def _leaves(fields: st.StructType, path: str = "") -> Iterator[tuple[str, st.DataType]]:
    for field in fields:
        if isinstance(field.dataType, st.StructType):
            yield from _leaves(field.dataType, f"{path}{field.name}.")
        else:
            yield f"{path}{field.name}", field.dataType


def parse(raw: Raw, source: Source) -> DataFrame:
    """The rows of one source as PARSED, each judged by itself."""
    match (source.table, source.kind):
        case ("items", "trace"):
            return _live(raw)
        case ("items", _):
            return _items(raw, source)
        case ("holdings", _):
            peer, key = raw.get(source.peer or ""), raw.get(source.key or "")
            empty = (
                (peer.isNull(), f"{source.peer} is empty"),
                (key.isNull(), f"{source.key} is empty"),
            )
            return _judged(raw.frame, source, empty, peer=peer, key=key, times=sf.lit(1))
        case ("sessions", _):
            return _sessions(raw, source)
        case _:
            return _matrix(raw, source)


def _items(raw: Raw, source: Source) -> DataFrame:
    kind = schema(source)
    peer_of, refuse = source.peer, source.refuse
    if source.kind == "debian":
        peer_of, refuse = "peer", refuse or NO_NEGATIVE
    texts = {
        field.name: raw.get(source.columns.get(field.name, field.name)) for field in kind.fields
    }
    values = {
        field.name: _value(texts[field.name], field, source.units.get(field.name))
        for field in kind.fields
    }
    frame = raw.frame.withColumn(
        "attributes", sf.struct(*(value.alias(name) for name, value in values.items()))
    )
    if raw.there is not None:
        _check_there(frame, {name: raw.there(name) for name in needed(source)}, source)
    peer = raw.get(peer_of) if peer_of else sf.lit(None).cast("STRING")
    key = raw.get(source.key) if source.key else sf.lit(None).cast("STRING")
    faults: list[tuple[Column, str]] = []
    for name, column in ((peer_of, peer), (source.key, key)):
        if name:
            faults.append((column.isNull() | (sf.trim(column) == ""), f"{name} is empty"))
    for field in kind.fields:
        text = texts[field.name]
        if not field.nullable:
            faults.append((text.isNull() | (sf.trim(text) == ""), f"{field.name} is empty"))
        wrong = text.isNotNull() & sf.col(f"attributes.`{field.name}`").isNull()
        faults.append((wrong, f"{field.name} is not {_words(field.dataType)}"))
    faults += [(sf.col(f"`refused.{number}`"), reason) for number, reason in enumerate(refuse)]
    return _judged(
        _with_refusals(frame, list(refuse.values()), source),
        source,
        faults,
        topic=sf.lit(source.topic),
        schema=sf.lit(_ddl(kind)),
        peer=peer,
        key=key,
        values=sf.to_json("attributes", JSON),
        times=sf.lit(1),
    )


def _check_there(frame: DataFrame, there: Mapping[str, Column], source: Source) -> None:
    """Raise an error for a column that no row has.

    It is a mistake in the mapping, and not NULL everywhere.
    """
    counts = (sf.count_if(column).alias(name) for name, column in there.items())
    found = (
        frame.where("fault IS NULL")
        .agg(sf.count(sf.lit(1)).alias("gossamer.rows"), *counts)
        .first()
    )
    assert found is not None
    if found["gossamer.rows"] and (gone := [name for name in there if not found[name]]):
        raise TraceInputError(
            f"{source.files[0]}: not one row has {', '.join(gone)}; does the mapping name it "
            "rightly?"
        )


def _with_refusals(frame: DataFrame, conditions: Sequence[str], source: Source) -> DataFrame:
    """Add the user's conditions over the attributes as columns refused.0, refused.1, ... of the
    frame.
    """
    # The other columns are packed into one, so that an attribute may be named source, line or row.
    # The names of attributes have no dot.
    alone = frame.select(sf.struct("*").alias("gossamer.rest"), "attributes.*")
    bare = frame.select("attributes.*")
    for number, condition in enumerate(conditions):
        try:
            holds = sf.coalesce(sf.expr(condition).cast("BOOLEAN"), sf.lit(False))
            # Spark checks the condition first over the attributes alone, because its error suggests
            # all names that it sees.
            _ = bare.select(holds).schema
        except Exception as error:
            raise TraceInputError(
                f"topic {source.topic}: refuse {condition!r}: {_first(error)}; the attributes "
                f"are {', '.join(bare.columns)}"
            ) from None
        alone = alone.select("*", holds.alias(f"refused.{number}"))
    return alone.select(
        "`gossamer.rest`.*", *(f"`refused.{number}`" for number in range(len(conditions)))
    )


def _first(error: Exception) -> str:
    """Spark's error in one line, without its SQLSTATE code."""
    said = masters.first_line(str(error), error)
    return re.sub(r"\s*SQLSTATE: \w+", "", said)[:200].rstrip("; ")


def _value(text: Column, field: st.StructField, unit: str | None) -> Column:
    """A text as a value of the attribute's type, or NULL.

    A cast alone would accept 1.5 and 1e3 as whole numbers.
    """
    kind = field.dataType
    text = sf.trim(text) if not isinstance(kind, st.StringType) else text
    if isinstance(kind, st.StringType):
        return text
    if isinstance(kind, st.StructType):
        return sf.from_json(text, kind, JSON)
    if unit and isinstance(kind, st.TimestampType):
        number = sf.when(text.rlike(_NUMBER), text.try_cast("DECIMAL(38,6)"))
        return sf.timestamp_micros((number * MICROS[unit]).try_cast("BIGINT")).cast(kind)
    value = text.try_cast(kind)
    if isinstance(kind, _WHOLE):
        return sf.when(text.rlike("^[+-]?[0-9]+$"), value)
    if isinstance(kind, (st.FloatType, st.DoubleType)):
        return sf.when(text.rlike(_NUMBER), value)
    return value


def _words(kind: st.DataType) -> str:
    return (
        "a whole number" if isinstance(kind, _WHOLE) else f"of type {kind.simpleString().upper()}"
    )


def _ddl(kind: st.StructType, colon: str = " ") -> str:
    """The topic's schema.

    Any attribute of an event may be missing. Names keep their case, because JSON distinguishes it.
    """
    return ", ".join(
        f"{_quoted(field.name)}{colon}{_type(field.dataType)}" for field in kind.fields
    )


def _type(kind: st.DataType) -> str:
    return (
        f"STRUCT<{_ddl(kind, ': ')}>"
        if isinstance(kind, st.StructType)
        else kind.simpleString().upper()
    )


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) else f"`{name.replace('`', '``')}`"


def _sessions(raw: Raw, source: Source) -> DataFrame:
    def text(name: str) -> Column:
        return raw.get(source.columns.get(name, name))

    def moment(name: str) -> Column:
        number = sf.when(text(name).rlike(_NUMBER), text(name).try_cast("DECIMAL(30,6)"))
        inside = (number >= 0) & (number <= MOMENT_MAX * 1_000_000 // source.micros)
        return sf.when(inside, (number * source.micros).cast("BIGINT"))

    def flag(name: str) -> Column:
        return sf.coalesce(text(name).try_cast("BOOLEAN"), sf.lit(False))

    peer, up, down = text("peer"), moment("up"), moment("down")
    open_end = flag("right_censored")
    faults = [
        (peer.isNull(), "peer is empty"),
        (up.isNull(), "up is no moment, zero or more"),
        (down.isNull() & (text("down").isNotNull() | ~open_end), "down is no moment, zero or more"),
        (down < up, "down is before up"),
        *(
            (
                text(name).isNotNull() & text(name).try_cast("BOOLEAN").isNull(),
                f"{name} is not 0 or 1",
            )
            for name in CENSORED
        ),
    ]
    began, down = ~flag("left_censored"), sf.when(~open_end, down)
    return _judged(raw.frame, source, faults, peer=peer, up_us=up, down_us=down, began=began)


def _matrix(raw: Raw, source: Source) -> DataFrame:
    """A square matrix with white space between the numbers: row a, column b."""
    size = raw.frame.where("fault IS NULL").count()
    numbers = sf.split(sf.trim("row"), r"\s+")
    rows = raw.frame.withColumn("numbers", numbers)
    wrong = sf.exists(
        "numbers",
        lambda text: ~(text.rlike(_NUMBER) & (text.try_cast("DOUBLE") >= 0) & (text != "NaN")),
    )
    fault = (
        sf.when(sf.col("fault").isNotNull(), sf.col("fault"))
        .when(
            sf.size("numbers") != size,
            sf.concat(sf.size("numbers"), sf.lit(f" numbers, in a matrix of {size} rows")),
        )
        .when(wrong, sf.lit("not every cell is a number, zero or more"))
    )
    judged = rows.withColumn("fault", fault)
    broken = _judged(judged.where("fault IS NOT NULL"), source, ())
    cells = judged.where("fault IS NULL").select("*", sf.posexplode("numbers").alias("b", "text"))
    rtt = sf.round(sf.col("text").try_cast("DOUBLE") * source.micros).cast("BIGINT")
    good = _judged(
        cells, source, (), a=sf.col("line") - 1, b=sf.col("b").cast("BIGINT"), rtt_us=rtt
    )
    return good.unionByName(broken)


def _live(raw: Raw) -> DataFrame:
    """The trace files of live nodes: the events that each node published, and the times of each
    node's lives.
    """
    read = raw.frame.withColumn("r", sf.from_json("row", _TRACE))
    said = sf.coalesce("r.record.kind", sf.when(sf.col("r.kind") == "header", sf.col("r.kind")))
    no_record = (
        sf.col("r.node").isNull()
        | said.isNull()
        | ((said == "published") & sf.col("r.record.topic").isNull())
    )
    fault = sf.coalesce("fault", sf.when(no_record, sf.lit("not a trace record")))
    records = read.withColumn("fault", fault)
    told = records.where("r.record.kind = 'advertised'").select("r.record.topic", "r.record.schema")
    schemas = advertised.schemas(told, TraceInputError)
    published = records.where("fault IS NULL AND r.record.kind = 'published'")
    source = Source(files=(), format="trace")
    found = [_judged(records.where("fault IS NOT NULL"), source, ())]
    for topic, text in schemas.items():
        kind = st.StructType(list(parse_schema(text).fields)).add(
            "gossamer.broken", st.StringType()
        )
        values = sf.from_json(
            "r.record.values", kind, {"columnNameOfCorruptRecord": "gossamer.broken"}
        )
        rows = published.where(sf.col("r.record.topic") == topic).withColumn("attributes", values)
        broken = sf.col("attributes").isNull() | sf.col("attributes.`gossamer.broken`").isNotNull()
        found.append(
            _judged(
                rows,
                source,
                [(broken, "values are not of the topic's schema")],
                topic=sf.lit(topic),
                schema=sf.lit(text),
                peer=sf.col("r.node"),
                values=sf.to_json(sf.col("attributes").dropFields("`gossamer.broken`"), JSON),
            )
        )
    lost = published.where(~sf.col("r.record.topic").isin(list(schemas))) if schemas else published
    found.append(
        _judged(lost, source, [(sf.lit(True), "its topic was never advertised in these traces")])
    )
    return functools.reduce(DataFrame.unionByName, [_together(found), _lives(records)])


def _together(found: list[DataFrame]) -> DataFrame:
    """Merge equal values into one holding with a count, because a node may publish the same values
    again.
    """
    rows = functools.reduce(DataFrame.unionByName, found)
    good = rows.where("reason IS NULL").groupBy("topic", "schema", "peer", "values")
    merged = good.agg(
        sf.min(sf.struct("source", "line", "row")).alias("o"), sf.count(sf.lit(1)).alias("times")
    )
    first = merged.select("*", "o.*").withColumn("table", sf.lit("items"))
    return _parsed(first).unionByName(rows.where("reason IS NOT NULL"))


def _lives(records: DataFrame) -> DataFrame:
    """Each file is one life of its node, from its first record to its last."""
    start = records.agg(sf.min("r.at")).first()
    origin = 0 if start is None or start[0] is None else start[0]
    node = sf.max("r.node").alias("peer")
    lives = (
        records.where("r.at IS NOT NULL")
        .groupBy("source")
        .agg(
            node,
            sf.min("r.at").alias("up"),
            sf.max("r.at").alias("down"),
            sf.min("line").alias("line"),
        )
    )
    return _parsed(
        lives.select(
            sf.lit("sessions").alias("table"),
            "source",
            "line",
            sf.lit("").alias("row"),
            "peer",
            (sf.col("up") - origin).alias("up_us"),
            (sf.col("down") - origin).alias("down_us"),
            sf.lit(True).alias("began"),
        )
    )


def _judged(
    frame: DataFrame, source: Source, faults: Sequence[tuple[Column, str]], **columns: Column
) -> DataFrame:
    """The rows as PARSED. The reason is the first fault that is true."""
    conditions = [
        sf.when(sf.coalesce(condition, sf.lit(False)), sf.lit(text)) for condition, text in faults
    ]
    reason = sf.coalesce("fault", *conditions)
    judged = frame.select(
        "source", "line", "row", reason.alias("reason"), sf.lit(source.table).alias("table"),
        *(column.alias(name) for name, column in columns.items()),
    )  # fmt: skip
    return _parsed(judged)


def _parsed(rows: DataFrame) -> DataFrame:
    """The rows with every column of PARSED, and NULL for columns that the rows do not have."""
    there = set(rows.columns)
    return rows.select(
        *(
            (sf.col(f"`{name}`") if name in there else sf.lit(None)).cast(kind).alias(name)
            for name, kind in _PARSED.items()
        )
    )


def split(parsed: DataFrame) -> dict[str, DataFrame]:
    """Make the tables of the traces, by name, from the PARSED rows of all sources."""
    items = cut(_with_repeated(parsed.where("table = 'items'")))
    numbered = cut(_numbered(items.where("reason IS NULL")))
    of_items = items.where("reason IS NULL AND peer IS NOT NULL").join(
        numbered.select("item", "topic", "values"), on=["topic", "values"], how="inner"
    )
    links = cut(_linked(parsed.where("table = 'holdings'"), items, numbered))
    held = of_items.select(*HOLDINGS.names).unionByName(
        links.where("reason IS NULL").select(*HOLDINGS.names)
    )
    merged = (sf.sum("times").alias("times"), sf.min(sf.struct("source", "line")).alias("origin"))
    holdings = cut(held.groupBy("peer", "item").agg(*merged))
    stays = cut(_stays(parsed.where("table = 'sessions'")))
    sessions = stays.where("reason IS NULL")
    rtts = cut(_once(parsed.where("table = 'rtts'"), ["a", "b"], "this pair was there before"))
    none, one = sf.lit(0), sf.lit(1)
    counts = holdings.select("peer", one.alias("items"), none.alias("sessions")).unionByName(
        sessions.select("peer", none.alias("items"), one.alias("sessions"))
    )
    peers = counts.groupBy("peer").agg(
        sf.sum("items").alias("items"), sf.sum("sessions").alias("sessions")
    )
    holders = holdings.groupBy("item").agg(sf.count(sf.lit(1)).alias("holders"))
    broken = [
        frame.where("reason IS NOT NULL").select(*QUARANTINE.names)
        for frame in (items, links, stays, rtts)
    ]
    return {
        "peers": peers.select(*PEERS.names),
        "items": numbered.join(holders, on="item", how="left")
        .fillna(0, subset=["holders"])
        .select(*ITEMS.names),
        "holdings": holdings.select("*", "origin.*").select(*HOLDINGS.names),
        "sessions": sessions.select(*SESSIONS.names),
        "rtts": rtts.where("reason IS NULL").select(*RTTS.names),
        "quarantine": _quarantine(functools.reduce(DataFrame.unionByName, broken)),
    }


def _quarantine(broken: DataFrame) -> DataFrame:
    """One row for each line, with its first reason, because a line may give many rows."""
    first = broken.groupBy("source", "line").agg(
        sf.min(sf.struct("reason", "table", "row")).alias("f")
    )
    cut = first.select(
        "source", "line", "f.table", "f.reason", sf.left("f.row", sf.lit(ROW_MAX)).alias("row")
    )
    return cut.select(*QUARANTINE.names)


def _once(rows: DataFrame, by: Sequence[str], reason: str, only: Column | None = None) -> DataFrame:
    """Keep the first of equal good rows. The order does not depend on the partitioning."""
    good = sf.col("reason").isNull() & (sf.lit(True) if only is None else only)
    same = Window.partitionBy(good, *by).orderBy("source", "line")
    again = good & (sf.row_number().over(same) > 1)
    return rows.withColumn("reason", sf.when(again, sf.lit(reason)).otherwise(sf.col("reason")))


def _with_repeated(items: DataFrame) -> DataFrame:
    """Find repeated rows and repeated keys.

    A row with a key may repeat the values of another row: it is another name of that item.
    """
    no_key = _once(items, ["topic", "values", "peer"], "repeated row", sf.col("key").isNull())
    return _once(no_key, ["key"], "another row has this key", sf.col("key").isNotNull())


def _numbered(good: DataFrame) -> DataFrame:
    """Number the different items in the order of topic, source and line."""
    items = good.groupBy("topic", "values").agg(
        sf.min(sf.struct("source", "line")).alias("origin"), sf.min("schema").alias("schema")
    )
    number = sf.row_number().over(Window.orderBy("topic", "origin")).cast("BIGINT") - sf.lit(1)
    return items.select(
        number.alias("item"), "topic", "schema", "values", "origin.source", "origin.line"
    )


def _linked(links: DataFrame, items: DataFrame, numbered: DataFrame) -> DataFrame:
    """The items that each peer holds, where a key names the item."""
    named = items.where("reason IS NULL AND key IS NOT NULL").select("key", "topic", "values")
    keys = named.join(
        numbered.select("item", "topic", "values"), on=["topic", "values"], how="inner"
    ).select("key", "item")
    found = links.join(keys, on="key", how="left")
    missing = sf.col("reason").isNull() & sf.col("item").isNull()
    judged = found.withColumn(
        "reason", sf.when(missing, sf.lit("no item has this key")).otherwise(sf.col("reason"))
    )
    return _once(judged, ["peer", "item"], "repeated row")


def _stays(rows: DataFrame) -> DataFrame:
    """A peer's stays in the order of time.

    A stay that begins before the previous one has ended is broken.
    """
    good = sf.col("reason").isNull()
    order = Window.partitionBy("peer", good).orderBy(
        "up_us", sf.col("down_us").asc_nulls_last(), "source", "line"
    )
    ends = sf.max(sf.coalesce("down_us", sf.lit(2**63 - 1))).over(
        order.rowsBetween(Window.unboundedPreceding, -1)
    )
    overlaps = good & (sf.col("up_us") < ends)
    judged = rows.withColumn(
        "reason",
        sf.when(overlaps, sf.lit("begins before the stay before it ended")).otherwise(
            sf.col("reason")
        ),
    )
    number = sf.row_number().over(
        Window.partitionBy("peer", sf.col("reason").isNull()).orderBy("up_us", "source", "line")
    )
    return judged.withColumn("session", number.cast("BIGINT") - 1)
