"""Finds the pairs of many filters that are a few equalities and one range, without a join.

The texts come to the driver once. Texts of one shape are taken apart together (``texts.extract``).
Spark's parser reads the template, as for any join. If the template consists only of comparisons of
attributes with literals, of types that are compared as integers or byte by byte, then the literals
go to Spark's tasks as arrays (a broadcast), and ``spans`` finds the pairs there. That is exact, so
the condition is not evaluated again. All other filters are handed back, and Spark joins them:

    other conditions    OR, IN, LIKE, NOT, IS NULL, functions, ranges of two attributes
    other types         doubles, decimals, dates, strings that are ordered or have a collation, a
                        literal of another type
    too much            more than FILTERS_MAX filters, texts longer than TEXT_MAX, keys that no
                        integer can hold
    rare templates      templates that the samples of the texts do not have
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
from gossamer.pipeline.flat import flat, type_of
from gossamer.pipeline.templates import Comparison, Template

if TYPE_CHECKING:
    import pyarrow as pa

FILTERS_MAX = 250_000
"""The most filters that come to the driver and go to every task. They take some 10 MB there."""
TEXT_MAX = 512
"""The most bytes of a text that comes to the driver."""
TEMPLATES_MAX = 48
SAMPLES = (128, 1024)
"""The sizes of the samples that show the templates: first a few texts, and of the remaining ones
some more.
"""
READERS = 2
"""The number of tasks that bring the texts here. Each brings at most FILTERS_MAX."""
_TOPIC = "topic"
"""This is not an attribute, because attributes have quotes."""
_STRING = st.StringType()
"""A string without collation: two strings are equal if their bytes are."""
_more = re.compile(r"\b(OR|NOT|IN|IS|R?LIKE)\b", re.IGNORECASE)
"""Words that show without a parser that a text has more than comparisons."""


class Rest(NamedTuple):
    filters: DataFrame
    size: int


def collect(filters: DataFrame) -> pa.Table | None:
    """(filter, text, and topic if there is one), all NULL for a text that is too long.

    None if there are too many filters.
    """
    names = ["filter", "text", *(["topic"] if "topic" in filters.columns else [])]
    told = filters.select(*(sf.when(_is_short(), sf.col(name)).alias(name) for name in names))
    # limit() would shuffle over several tasks, and one task alone takes a quarter longer. The id is
    # the row's number in its task, with the number of the task above bit 33.
    number = sf.monotonically_increasing_id().bitwiseAND(sf.lit(2**33 - 1))
    rows = told.coalesce(READERS).where(number <= FILTERS_MAX).toArrow()
    return rows.combine_chunks() if rows.num_rows <= FILTERS_MAX else None


def matches(
    events: DataFrame, filters: DataFrame, rows: pa.Table
) -> tuple[DataFrame | None, Rest | None]:
    """(event, filter) of the simple filters, and the other filters; None for either if there are
    none.

    ``rows`` is ``collect(filters)``.
    """
    import numpy as np

    column = spans.one(rows["text"])
    left = np.flatnonzero(column.is_valid())
    known = functools.cache(functools.partial(_type_of, events))
    # The name of each attribute's column on the way to the tasks.
    columns: dict[str, str] = {}
    sought: list[spans.Spans] = []
    seen: set[tuple[str, ...]] = set()
    for size in SAMPLES if _are_topics_plain(events, filters) else ():
        for shape, name, text in _shapes(_some(column, left), size, seen):
            template = templates.read(events.sparkSession, name, text)
            asked = _asked(template, known) if template is not None else None
            if asked is None:
                continue
            numbers, literals = texts.extract(_some(column, left), shape)
            built = _build(rows.drop_columns("text"), left[numbers], asked, literals, columns)
            if built is not None:
                sought.append(built)
                left = np.delete(left, numbers)
    pairs = _search(events, filters, columns, sought) if sought else None
    return pairs, _rest(filters, rows, left) if sought else Rest(filters, rows.num_rows)


def _some(column: pa.Array, numbers: Any) -> pa.Array:
    return column if len(numbers) == len(column) else column.take(numbers)


def _shapes(
    column: pa.Array, size: int, seen: set[tuple[str, ...]]
) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """The most frequent shapes that may be simple, with the template and one text of each, except
    those ``seen`` before.
    """
    import numpy as np

    some = np.unique(
        np.linspace(0, max(0, len(column) - 1), min(size, len(column))).astype(np.int64)
    )
    told = [(texts.shape(text), text) for text in texts.read(column.take(some)) if text is not None]
    example = dict(told)
    for shape, _ in Counter(shape for shape, _ in told if shape not in seen).most_common(
        TEMPLATES_MAX - len(seen)
    ):
        seen.add(shape)
        name = texts.template(list(shape))
        if (
            name is not None
            and not _more.search(name)
            and templates.is_plain(name)
            and set(shape[1::2]) <= {"s", "i"}
        ):
            yield shape, name, example[shape]


def _type_of(events: DataFrame, attribute: str) -> st.DataType | None:
    """The type of an attribute as SQL.

    If only one attribute has this name, its type is known at once. Otherwise Spark is asked, which
    costs an analysis.
    """
    values = events.schema["values"].dataType
    assert isinstance(values, st.StructType)
    alike = [field for field in values.fields if f"`{field.name}`".lower() == attribute.lower()]
    plain = len(alike) == 1 and f"`{alike[0].name}`" == attribute
    return alike[0].dataType if plain else type_of(flat(events), attribute)


def _asked(
    template: Template, type_of: Callable[[str], st.DataType | None]
) -> tuple[Comparison, ...] | None:
    """The comparisons that make up a template. None if it is not simple."""
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
    """Whether topics are equal if their bytes are, or there are no topics."""
    if "topic" not in filters.columns:
        return True
    return (
        "topic" in events.columns
        and events.schema["topic"].dataType == filters.schema["topic"].dataType == _STRING
    )


def _build(
    rows: pa.Table,
    chosen: Any,
    asked: Sequence[Comparison],
    literals: Sequence[pa.Array],
    columns: dict[str, str],
) -> spans.Spans | None:
    """The filters of one template in the ``chosen`` rows, from their literals."""
    import numpy as np
    import pyarrow.compute as pc

    def column(attribute: str) -> str:
        return columns.setdefault(attribute, f"c{len(columns)}")

    rows = rows if len(chosen) == len(rows) else rows.take(chosen)
    keys = [(column(_TOPIC), spans.one(rows["topic"]))] if "topic" in rows.column_names else []
    low, high, ranged = np.full(len(rows), spans.LEAST), np.full(len(rows), spans.MOST), None
    for one in asked:
        values = literals[one.place.number]
        values = pc.negate(values) if one.place.minus else values
        if one.sign == "=":
            keys.append((column(one.attribute), values))
            continue
        ranged, ends = column(one.attribute), values.to_numpy()
        # An integer has at most 18 digits (``texts``), so there is room for one more or less.
        if one.sign in (
            ">",
            ">=",
        ):
            low = np.maximum(low, ends + (one.sign == ">"))
        else:
            high = np.minimum(high, ends - (one.sign == "<"))
    return spans.build(spans.one(rows["filter"]), keys, ranged, low, high)


def _search(
    events: DataFrame, filters: DataFrame, columns: dict[str, str], sought: list[spans.Spans]
) -> DataFrame:
    """Let Spark's tasks find the pairs. Only the needed columns go there."""
    listed = (
        st.StructType()
        .add(filters.schema["filter"])
        .add("events", st.ArrayType(events.schema["event"].dataType))
    )
    sent = events.sparkSession.sparkContext.broadcast(sought)

    def find(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return spans.match(batches, sent.value)

    longest = spans.longest(sought)

    def asked(sql: str, name: str) -> Column:
        """The value, or NULL for a string that is longer than all sought ones.

        It would match nothing, and a batch of such strings could have any size.
        """
        value = sf.expr(sql if sql == _TOPIC else f"values.{sql}")
        return (
            sf.when(sf.octet_length(value) <= longest[name], value) if name in longest else value
        ).alias(name)

    needed = events.select("event", *(asked(sql, name) for sql, name in columns.items()))
    return needed.mapInArrow(find, listed).select(sf.explode("events").alias("event"), "filter")


def _rest(filters: DataFrame, rows: pa.Table, left: Any) -> Rest | None:
    """The filters that are not simple: the ones in ``left``, and those whose texts are too long to
    be here.
    """
    long = rows["text"].null_count
    if not len(left) + long:
        return None
    if not len(left):
        others = filters.where(sf.lit(False))
    else:
        schema = st.StructType([filters.schema[name] for name in rows.column_names])
        others = filters.sparkSession.createDataFrame(rows.take(left), schema)
    if long:
        is_long = ~sf.coalesce(_is_short(), sf.lit(False))
        others = (
            filters.where(is_long)
            .select(*rows.column_names)
            .unionByName(others.select(*rows.column_names))
        )
    return Rest(others, len(left) + long)


def _is_short() -> Column:
    return sf.octet_length("text") <= TEXT_MAX
