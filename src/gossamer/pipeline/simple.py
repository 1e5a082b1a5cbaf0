"""Filters that are a few equalities and one range, many of them: their pairs without a join.

The texts come to the driver, once, where those of one shape are taken apart at once (``texts.extract``). Spark's parser reads the
template, as for any join. If it is nothing but comparisons of attributes with literals, of types that are compared as integers or
byte by byte, the literals go to Spark's tasks as arrays (a broadcast), and ``spans`` finds the pairs there. That is exact, so the
condition is not evaluated again. Whatever is not so simple is handed back, to be joined by Spark:

    other conditions    OR, IN, LIKE, NOT, IS NULL, functions, ranges of two attributes
    other types         doubles, decimals, dates, strings that are ordered or have a collation, a literal of another type
    too much            more than FILTERS_MAX filters, texts longer than TEXT_MAX, keys that no integer holds
    rare templates      such as a sample of the texts does not have
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as st

from gossamer.pipeline import spans, templates, texts
from gossamer.pipeline.flat import EVENT, TOPIC, flat, type_of
from gossamer.pipeline.templates import Comparison, Template

if TYPE_CHECKING:
    import pyarrow as pa

FILTERS_MAX = 250_000
"""So many at most come to the driver, and go to every task: some 10 MB there."""
TEXT_MAX = 512
"""Bytes of a text that comes to the driver."""
TEMPLATES_MAX = 48
SAMPLE = 1024
"""Texts that are looked at to find the templates."""
_STRING = st.StringType()
"""With no collation: equal if the bytes are."""
_more = re.compile(r"\b(OR|NOT|IN|IS|R?LIKE)\b", re.IGNORECASE)
"""More than comparisons, as can be told without the parser."""


class Rest(NamedTuple):
    filters: DataFrame
    size: int


def collect(filters: DataFrame) -> pa.Table | None:
    """(filter, text, topic if there is one), all NULL where the text is too long to be brought here; None: too many."""
    names = ["filter", "text", *(["topic"] if "topic" in filters.columns else [])]
    told = filters.select(*(sf.when(_is_short(), sf.col(name)).alias(name) for name in names))
    # One task reads partition after partition until it has enough: a limit over several would have each bring that many, and then
    # shuffle them.
    rows = told.coalesce(1).limit(FILTERS_MAX + 1).toArrow()
    return rows.combine_chunks() if rows.num_rows <= FILTERS_MAX else None


def matches(events: DataFrame, filters: DataFrame, rows: pa.Table) -> tuple[DataFrame | None, Rest | None]:
    """(event, filter) of the filters that are simple, and the others; None where there are none. ``rows``: ``collect(filters)``."""
    import numpy as np

    left = np.flatnonzero(rows["text"].is_valid())
    attributes = flat(events)
    known = functools.cache(functools.partial(type_of, attributes))
    columns: dict[str, str] = {}  # an attribute, and what its column is called on the way to the tasks
    sought: list[spans.Spans] = []
    for shape, name, text in _shapes(rows["text"].take(left)) if _are_topics_plain(events, filters) else ():
        template = templates.read(events.sparkSession, name, text)
        asked = _asked(template, known) if template is not None else None
        if asked is None:
            continue
        taken = np.zeros(len(left), np.bool_)
        for numbers, literals in texts.extract(spans.one(rows["text"].take(left)), shape):
            built = _build(rows.take(left[numbers]), asked, literals, columns)
            if built is not None:
                sought.append(built)
                taken[numbers] = True
        left = left[~taken]
    pairs = _search(attributes, filters, columns, sought) if sought else None
    return pairs, _rest(filters, rows, left) if sought else Rest(filters, rows.num_rows)


def _shapes(column: pa.ChunkedArray) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """The most frequent shapes that may be simple, the template of each, and one of its texts."""
    import numpy as np

    some = np.unique(np.linspace(0, max(0, len(column) - 1), min(SAMPLE, len(column))).astype(np.int64))
    told = [(texts.shape(text), text) for text in texts.read(spans.one(column.take(some))) if text is not None]
    example = dict(told)
    for shape, _ in Counter(shape for shape, _ in told).most_common(TEMPLATES_MAX):
        name = texts.template(list(shape))
        if name is not None and not _more.search(name) and templates.is_plain(name) and set(shape[1::2]) <= {"s", "i"}:
            yield shape, name, example[shape]


def _asked(template: Template, type_of: Callable[[str], st.DataType | None]) -> tuple[Comparison, ...] | None:
    """The comparisons that a template is made of; None if it is not simple."""
    whole = template.branches[0].whole if len(template.branches) == 1 else None
    for attribute, sign, place in ((one.attribute, one.sign, one.place) for one in whole or ()):
        literal, kind = template.kinds[place.number], type_of(attribute)
        integer = literal == "i" and isinstance(kind, st.IntegralType)
        string = literal == "s" and kind == _STRING and sign == "=" and not place.minus
        if not (integer or string):
            return None
    ranged = {one.attribute for one in whole or () if one.sign != "="}
    return whole if len(ranged) <= 1 else None


def _are_topics_plain(events: DataFrame, filters: DataFrame) -> bool:
    """There are none, or they are equal if their bytes are."""
    if "topic" not in filters.columns:
        return True
    return "topic" in events.columns and events.schema["topic"].dataType == filters.schema["topic"].dataType == _STRING


def _build(
    rows: pa.Table, asked: Sequence[Comparison], literals: Sequence[pa.Array], columns: dict[str, str]
) -> spans.Spans | None:
    """The filters of one template, by their literals."""
    import numpy as np
    import pyarrow.compute as pc

    def column(attribute: str) -> str:
        return columns.setdefault(attribute, f"c{len(columns)}")

    keys = [(column(f"`{TOPIC}`"), spans.one(rows["topic"]))] if "topic" in rows.column_names else []
    low, high, ranged = np.full(len(rows), spans.LEAST), np.full(len(rows), spans.MOST), None
    for one in asked:
        values = literals[one.place.number]
        values = pc.negate(values) if one.place.minus else values
        if one.sign == "=":
            keys.append((column(one.attribute), values))
            continue
        ranged, ends = column(one.attribute), values.to_numpy()
        if one.sign in (">", ">="):  # 18 digits at most (``texts``): there is room for one more or less
            low = np.maximum(low, ends + (one.sign == ">"))
        else:
            high = np.minimum(high, ends - (one.sign == "<"))
    return spans.build(spans.one(rows["filter"]), keys, ranged, low, high)


def _search(attributes: DataFrame, filters: DataFrame, columns: dict[str, str], sought: list[spans.Spans]) -> DataFrame:
    """The pairs, found by Spark's tasks: only the columns that are asked for go there."""
    context = attributes.sparkSession.sparkContext
    sent = context.broadcast(sought)

    def find(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return spans.match(batches, sent.value)

    longest = spans.longest(sought)

    def asked(sql: str, name: str) -> Column:
        """No string that is longer than those sought for: it would match nothing, and a batch of them could be of any size."""
        value = sf.expr(sql)
        return (sf.when(sf.octet_length(value) <= longest[name], value) if name in longest else value).alias(name)

    needed = attributes.select(sf.col(f"`{EVENT}`").alias("event"), *(asked(sql, name) for sql, name in columns.items()))
    listed = st.StructType().add(filters.schema["filter"]).add("events", st.ArrayType(attributes.schema[EVENT].dataType))
    return needed.mapInArrow(find, listed).select(sf.explode("events").alias("event"), "filter")


def _rest(filters: DataFrame, rows: pa.Table, left: Any) -> Rest | None:
    """The filters that are not simple: those of ``left``, and those whose texts are too long to be here."""
    long = rows["text"].null_count
    if not len(left):
        others = filters.where(sf.lit(False))
    else:
        schema = st.StructType([filters.schema[name] for name in rows.column_names])
        others = filters.sparkSession.createDataFrame(rows.take(left), schema)
    if long:
        is_long = ~sf.coalesce(_is_short(), sf.lit(False))
        others = filters.where(is_long).select(*rows.column_names).unionByName(others.select(*rows.column_names))
    return Rest(others, len(left) + long) if len(left) + long else None


def _is_short() -> Column:
    return sf.octet_length("text") <= TEXT_MAX
