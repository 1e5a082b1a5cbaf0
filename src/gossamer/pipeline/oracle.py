"""What must be delivered, by Spark's reading of the filters' text alone; and the verdict on what was.

This module imports nothing of ``gossamer.filters``: two independent answers, or it proves nothing. Two ways give the pairs
(event, filter), and the tests hold them equal:

    text by text    each filter is ``expr(text)``, evaluated on every event; exact by definition, for small sets
    by template     texts that differ in their literals only become one template, and the literals its columns:
                    ``name = 'x' AND size > 5`` is the row ('x', 5) of ``name = @ AND size > @``. The template goes to
                    Spark's parser once, as the condition of a join, and Spark's planner joins its equalities by hash and
                    evaluates the rest. A text that cannot be taken apart with certainty goes the first way.

Events come as (event, values STRUCT), so that an attribute may have any name, ``event`` and ``filter`` included.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as sf

SMALL_MAX = 128
"""Up to so many filters, text by text is the faster way."""
TEMPLATES_MAX = 48
"""So many templates at most, each a join; the texts of rarer ones are evaluated text by text."""
CHUNK = 64
"""Texts evaluated in one projection."""

_STRING = r"'(?:[^'\\]|'')*'"
_LITERALS = (
    # kind, what it looks like, the type that Spark's parser would give it
    ("date", rf"\bDATE\s*{_STRING}", "DATE"),
    ("timestamp", rf"\bTIMESTAMP\s*{_STRING}", "TIMESTAMP"),
    ("s", _STRING, "STRING"),
    ("e", r"(?<![\w.])(?:\d{1,15}(?:\.\d{0,15})?|\.\d{1,15})E[+-]?\d{1,3}(?![\w.])", "DOUBLE"),
    ("n", r"(?<![\w.])(?:\d{1,15}\.\d{0,15}|\.\d{1,15})(?![\w.])", "DECIMAL(38,18)"),
    ("i", r"(?<![\w.])\d{1,18}(?![\w.])", "BIGINT"),
)
_LITERAL = "(?i)(" + "|".join(pattern for _, pattern, _ in _LITERALS) + ")"
# What is left of a text must be made of these alone (no quotes, comments, parameters), and a literal may stand beside
# punctuation and these words only (no ESCAPE '!', X'1F', INTERVAL '1' DAY, 5L): else the text is left whole.
_WORDS = "AND|OR|NOT|LIKE|RLIKE|BETWEEN|IN|IS"
_PLAIN = r"^[\w\s.,()=<>!@+-]*$"
_ODD = rf"(?i)\b(?!(?:{_WORDS})\b)\w+\s*@|@\w|@\s+(?!(?:{_WORDS})\b)[\w@]|--|/\*"
# Columns of our own beside the attributes: an attribute's name has no dot.
_EVENT, _FILTER, _PLACE = "gossamer.event", "gossamer.filter", "gossamer.{}"


def matches(events: DataFrame, filters: DataFrame) -> DataFrame:
    """(event, values STRUCT) x (filter, text) -> (event, filter) where the filter is TRUE, by the way that suits the size."""
    few = len(filters.limit(SMALL_MAX + 1).collect()) <= SMALL_MAX
    return matches_by_text(events, filters) if few else matches_by_template(events, filters)


def matches_by_text(events: DataFrame, filters: DataFrame) -> DataFrame:
    """Each text by itself, through ``expr``."""
    return _evaluate(events, filters, filters.select("filter", "text").orderBy("filter").collect())


def matches_by_template(events: DataFrame, filters: DataFrame) -> DataFrame:
    """Texts grouped into templates, with the literals as columns."""
    apart = take_apart(filters)
    counted = apart.where("template IS NOT NULL").groupBy("template").agg(sf.count(sf.lit(1)).alias("n"))
    templates = [row["template"] for row in counted.orderBy(sf.desc("n"), "template").limit(TEMPLATES_MAX).collect()]
    joined = [_join(events, apart, template) for template in templates]
    left = apart.where(sf.col("template").isNull() | ~sf.col("template").isin(templates))
    singles = left.select("filter", "text").orderBy("filter").collect()
    if singles or not joined:
        joined.append(_evaluate(events, filters, singles))
    return functools.reduce(DataFrame.unionByName, joined).select("event", "filter")


def take_apart(filters: DataFrame) -> DataFrame:
    """(filter, text) -> (filter, text, template, literals); the template is NULL where the text is better left whole.

    A template is the text with ``@`` for each literal, then the kinds of the literals, so that the literals of equal templates
    have equal types. One pass finds them all: what looks like a literal inside another is part of that one.
    """
    skeleton = sf.regexp_replace("text", _LITERAL, "@")
    literals = sf.regexp_extract_all("text", sf.lit(_LITERAL), sf.lit(0))
    kinds = sf.transform(literals, _kind)
    known = sf.length(sf.regexp_replace(skeleton, "[^@]", "")) == sf.size(literals)  # else the text has an @ of its own
    read = ~sf.exists(kinds, lambda kind: kind.isNull())
    sure = known & read & skeleton.rlike(_PLAIN) & ~skeleton.rlike(_ODD)
    return filters.select(
        "filter",
        "text",
        sf.when(sure, sf.concat(skeleton, sf.lit("\n"), sf.array_join(kinds, " "))).alias("template"),
        literals.alias("literals"),
    )


def _kind(literal: Column) -> Column:
    """NULL where Spark cannot read the literal: DATE '2020-99-99'."""
    chosen = sf.lit(None).cast("STRING")
    for kind, pattern, _ in reversed(_LITERALS):
        known = sf.when(_read(literal, kind).isNotNull(), sf.lit(kind))
        chosen = sf.when(literal.rlike(f"(?i)^(?:{pattern})$"), known).otherwise(chosen)
    return chosen


def _read(literal: Column, kind: str) -> Column:
    """A literal's text as a value. Never an error: Spark may evaluate this for the literals of any template."""
    unquoted = sf.replace(sf.regexp_extract(literal, "'((?:[^']|'')*)'", 1), sf.lit("''"), sf.lit("'"))
    type = next(type for known, _, type in _LITERALS if known == kind)
    return (unquoted if kind in ("date", "timestamp", "s") else literal).try_cast(type)


def judge(pairs: DataFrame, handed: DataFrame, by: Sequence[str]) -> DataFrame:
    """(by.., due) and (by.., copies) -> (by.., verdict, copies): one row for each pair that was due or handed over.

    A pair that is due was ``delivered`` or ``missed``. One that matches but is not due may have been handed over (``allowed``).
    One that does not match was ``spurious``. Copies beyond the first of a delivered or allowed pair are duplicates.
    """
    copies = sf.coalesce("copies", sf.lit(0)).cast("BIGINT")
    verdict = (
        sf.when(sf.col("due") & (copies > 0), "delivered")
        .when(sf.col("due"), "missed")
        .when(sf.col("due").isNull(), "spurious")
        .otherwise("allowed")
    )
    judged = pairs.select(*by, "due").join(handed.select(*by, "copies"), on=list(by), how="full")
    return judged.where(sf.col("due") | (copies > 0)).select(*by, verdict.alias("verdict"), copies.alias("copies"))


def counts() -> dict[str, Column]:
    """The aggregates over ``judge`` that a verdict is made of."""
    taken = sf.col("verdict").isin("delivered", "allowed")

    def pairs(*verdicts: str) -> Column:
        return sf.count_if(sf.col("verdict").isin(*verdicts))

    return {
        "expected": pairs("delivered", "missed"),
        "delivered": pairs("delivered"),
        "missed": pairs("missed"),
        "allowed": pairs("allowed"),
        "duplicate": sf.coalesce(sf.sum(sf.when(taken, sf.col("copies") - 1)), sf.lit(0)),
        "spurious": sf.coalesce(sf.sum(sf.when(sf.col("verdict") == "spurious", sf.col("copies"))), sf.lit(0)),
    }


def _flat(events: DataFrame) -> DataFrame:
    return events.select(sf.col("event").alias(_EVENT), "values.*")


def _evaluate(events: DataFrame, filters: DataFrame, texts: list[Row]) -> DataFrame:
    """The pairs of these few filters, each text evaluated on every event."""
    key = filters.schema["filter"].dataType

    def where(row: Row) -> Column:
        passes = sf.coalesce(sf.expr(row["text"]), sf.lit(False))  # the text NULL alone has no type
        return sf.when(passes, sf.lit(row["filter"]).cast(key))

    found = [
        _flat(events).select(
            sf.col(f"`{_EVENT}`").alias("event"),
            sf.explode(sf.array_compact(sf.array(*map(where, texts[at : at + CHUNK])))).alias("filter"),
        )
        for at in range(0, len(texts), CHUNK)
    ]
    none = events.select("event", sf.lit(None).cast(key).alias("filter")).where(sf.lit(False))
    return functools.reduce(DataFrame.unionByName, found, none).select("event", "filter")


def _join(events: DataFrame, apart: DataFrame, template: str) -> DataFrame:
    """The pairs of the filters of one template. No hint: a forced broadcast join is the slow one where keys are coarse."""
    skeleton, _, kinds = template.rpartition("\n")
    literals = [
        _read(sf.get("literals", sf.lit(place)), kind).alias(_PLACE.format(place))
        for place, kind in enumerate(kinds.split())
    ]
    head, *rest = skeleton.split("@")
    condition = head + "".join(f"`{_PLACE.format(place)}`{piece}" for place, piece in enumerate(rest))
    chosen = apart.where(sf.col("template") == template).select(sf.col("filter").alias(_FILTER), *literals)
    # AND TRUE: the text NULL alone has no type.
    joined = _flat(events).join(chosen, on=sf.expr(condition) & sf.lit(True), how="inner")
    return joined.select(sf.col(f"`{_EVENT}`").alias("event"), sf.col(f"`{_FILTER}`").alias("filter"))
