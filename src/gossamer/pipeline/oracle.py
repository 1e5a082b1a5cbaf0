"""The deliveries that must happen, by Spark's reading of the filters' text alone, and the verdict
on those that did happen.

This module and those that it uses import nothing of ``gossamer.filters``, because two answers prove
something only when they are independent. There are three ways to find the pairs (event, filter),
and the tests hold them equal:

    text by text    Each filter is ``expr(text)``, evaluated on every event. This is exact by
                    definition, and good for small sets.
    by template     Texts that differ only in their literals become one template with the literals
                    as columns (``templates``). The template goes to Spark as the condition of a
                    join. Its equalities are the keys of the join. A range that leaves too many
                    candidates is cut into cells (``bands``). A LIKE joins by the beginning of its
                    pattern (``prefixes``). Spark evaluates the whole condition on each candidate,
                    the ends of ranges included. A text that cannot be taken apart with certainty
                    goes the first way.
    by sorting      A template may consist only of equalities and one range, of integers and
                    strings. Then Spark's parser reads it, and NumPy finds the pairs inside Spark's
                    tasks (``simple``, ``spans``).

Events come as (event, values STRUCT), so an attribute may have any name, also ``event`` and
``filter``. If both tables have a column ``topic``, only pairs of one topic count. All topics with
the same schema are judged together.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as sf
from pyspark.sql import types as st

from gossamer.pipeline import bands, prefixes, simple, templates
from gossamer.pipeline.flat import (
    ASKED,
    EVENT,
    FILTER,
    MEMBER,
    TOPIC,
    family_of,
    flat,
    topic,
    type_of,
)
from gossamer.pipeline.templates import FAMILIES, PLACE, Branch, Place, Range, Template

SMALL_MAX = 128
"""Up to this number of filters, text by text is the fastest way."""
TEMPLATES_MAX = 48
"""The most templates, each of which is a join.

Texts of rarer templates are evaluated text by text.
"""
CHUNK = 64
"""The number of texts that are evaluated in one projection."""
PLAIN_MAX = 512
"""The most filters with equal keys that are compared with an event.

If there are more, ranges are cut into cells.
"""
EVEN_MIN = 64
"""Above this number ranges are cut, too, if one width of cell suits them and saves most of the
comparisons.
"""
EVEN_PART = 0.25
"""The part of the comparisons that may remain."""
BROADCAST_MAX = 250_000
"""The most filters that are sent whole to every task.

With more, and with coarse keys, both sides are sorted and merged, which spills to disk and does not
fail.
"""
BROADCAST_EACH = 16
"""The most filters with equal keys for a hash join. With more it is the slower join."""
PLACES_MAX = 8
"""The most literals of a text that are counted to choose its join."""
ROUGH = 0.12
"""The allowed error of the number of different literals."""


def matches(events: DataFrame, filters: DataFrame) -> DataFrame:
    """(event, filter) for all pairs where the filter is TRUE, by the way that suits the size.

    Events are (event, values STRUCT), filters (filter, text).
    """
    rows = simple.collect(filters)
    if rows is None:
        return matches_by_template(events, filters)
    if rows.num_rows <= SMALL_MAX:
        return _evaluate(
            events,
            filters,
            rows.to_pylist() if rows["text"].null_count == 0 else _collected(filters),
        )
    pairs, rest = simple.matches(events, filters, rows)
    if rest is None:
        assert pairs is not None
        return pairs
    others = (matches_by_text if rest.size <= SMALL_MAX else matches_by_template)(
        events, rest.filters
    )
    return others if pairs is None else pairs.unionByName(others)


def matches_by_text(events: DataFrame, filters: DataFrame) -> DataFrame:
    """Evaluate each text by itself, through ``expr``."""
    return _evaluate(events, filters, _collected(filters))


def matches_by_template(events: DataFrame, filters: DataFrame) -> DataFrame:
    """Group texts into templates, with the literals as columns."""
    # The result is kept, because every template reads it, and taking texts apart is most of the
    # work for small sets of events. Texts come in few files, and so in few partitions. The
    # repartitioning gives all cores a share of the work.
    spread = filters.repartition(filters.sparkSession.sparkContext.defaultParallelism, "filter")
    apart = templates.take_apart(spread).localCheckpoint()
    different = [
        sf.approx_count_distinct(sf.get("literals", sf.lit(n)), ROUGH).alias(f"d{n}")
        for n in range(PLACES_MAX)
    ]
    topics = sf.col("topic") if "topic" in apart.columns else sf.lit(0)
    different.append(sf.approx_count_distinct(topics, ROUGH).alias("topics"))
    counted = apart.groupBy("template").agg(
        sf.count(sf.lit(1)).alias("n"), sf.min("text").alias("text"), *different
    )
    rows = (
        counted.orderBy(sf.col("template").isNull(), sf.desc("n"), "template")
        .limit(TEMPLATES_MAX + 1)
        .collect()
    )
    joined, names = [], []
    for row in rows[:TEMPLATES_MAX]:
        if row["template"] is None:
            break
        template = templates.read(events.sparkSession, row["template"], row["text"])
        if template is not None:
            names.append(template.name)
            joined.append(_join(events, apart, template, row))
    singles: list[Row] = []
    if len(names) < len(rows):
        singles = _collected(
            apart.where(sf.col("template").isNull() | ~sf.col("template").isin(names))
        )
    if singles or not joined:
        joined.append(_evaluate(events, filters, singles))
    return functools.reduce(DataFrame.unionByName, joined).select("event", "filter")


def is_due() -> Column:
    """Whether an event is due to a subscription whose filter it passes.

    ``subscribe`` returned before ``publish`` began, and the subscription outlived the receipt. A
    NULL ``ended_at`` means never. A NULL ``completed_at`` means that the receipt was never
    complete, so nothing is due. Times need only have an order.
    """
    outlived = sf.col("ended_at").isNull() | (sf.col("ended_at") > sf.col("completed_at"))
    began = sf.col("subscribed_at") < sf.col("published_at")
    return sf.coalesce(began & sf.col("completed_at").isNotNull() & outlived, sf.lit(False))


def is_allowed(takes_earlier: Column | None = None) -> Column:
    """Whether such an event may be handed over, because subscription and publication overlap.

    ``takes_earlier`` says of a subscription that it asked for earlier events as well.
    """
    began = sf.col("completed_at").isNull() | (sf.col("subscribing_at") <= sf.col("completed_at"))
    if takes_earlier is not None:
        began = began | takes_earlier
    alive = sf.col("ended_at").isNull() | (sf.col("ended_at") >= sf.col("published_at"))
    return sf.coalesce(began & alive, sf.lit(False))


def due(
    matched: DataFrame,
    subscriptions: DataFrame,
    publications: DataFrame,
    by: Sequence[str] = ("event", "filter"),
) -> DataFrame:
    """Decide for each (event, filter) whether it is due, from the times of subscriptions and
    publications.

    ``subscriptions`` are (filter, subscribing_at, subscribed_at, ended_at), several for a filter
    that comes and goes. ``publications`` are (event, published_at, completed_at). Pairs that are
    allowed and not due have a false ``due``. Other pairs are left out, because handing them over is
    spurious.

    ``by`` names the columns of a pair. With ``subscription`` each of a filter's subscriptions is
    judged by itself, and with ``run`` each run.
    """
    both = [name for name in by if name in publications.columns]
    pairs = matched.select("event", "filter").join(subscriptions, on="filter", how="inner").join(
        publications, on=both, how="inner"
    )  # fmt: skip
    judged = pairs.where(is_allowed() | is_due())
    return judged.groupBy(*by).agg(sf.bool_or(is_due()).alias("due"))


def judge(pairs: DataFrame, handed: DataFrame, by: Sequence[str]) -> DataFrame:
    """(by.., verdict, copies) for each pair that was due or handed over, from (by.., due) and
    (by.., copies).

    A pair that is due was ``delivered`` or ``missed``. A pair that matches but is not due may have
    been handed over (``allowed``). A pair that does not match was ``spurious``. Copies beyond the
    first of a delivered or allowed pair are duplicates.
    """
    copies = sf.coalesce("copies", sf.lit(0)).cast("BIGINT")
    verdict = (
        sf.when(sf.col("due") & (copies > 0), "delivered")
        .when(sf.col("due"), "missed")
        .when(sf.col("due").isNull(), "spurious")
        .otherwise("allowed")
    )
    judged = pairs.select(*by, "due").join(handed.select(*by, "copies"), on=list(by), how="full")
    return judged.where(sf.col("due") | (copies > 0)).select(
        *by, verdict.alias("verdict"), copies.alias("copies")
    )


def counts() -> dict[str, Column]:
    """The aggregates over ``judge`` that make up a verdict."""
    taken = sf.col("verdict").isin("delivered", "allowed")

    def pairs(*verdicts: str) -> Column:
        return sf.count_if(sf.col("verdict").isin(*verdicts))

    return {
        "expected": pairs("delivered", "missed"),
        "delivered": pairs("delivered"),
        "missed": pairs("missed"),
        "allowed": pairs("allowed"),
        "duplicate": sf.coalesce(sf.sum(sf.when(taken, sf.col("copies") - 1)), sf.lit(0)),
        "spurious": sf.coalesce(
            sf.sum(sf.when(sf.col("verdict") == "spurious", sf.col("copies"))), sf.lit(0)
        ),
    }


def _collected(filters: DataFrame) -> list[Row]:
    return filters.select("filter", "text", *topic(filters, "topic")).orderBy("filter").collect()


def _evaluate(events: DataFrame, filters: DataFrame, texts: Sequence[Any]) -> DataFrame:
    """The pairs of these few filters (rows, or the like), with each text evaluated on every
    event.
    """
    key = filters.schema["filter"].dataType

    def where(row: Any) -> Column:
        # The text NULL alone has no type.
        passes = sf.coalesce(sf.expr(row["text"]), sf.lit(False))
        if "topic" in row:
            passes = (sf.col(f"`{TOPIC}`") == row["topic"]) & passes
        return sf.when(passes, sf.lit(row["filter"]).cast(key))

    found = [
        flat(events).select(
            sf.col(f"`{EVENT}`").alias("event"),
            sf.explode(sf.array_compact(sf.array(*map(where, texts[at : at + CHUNK])))).alias(
                "filter"
            ),
        )
        for at in range(0, len(texts), CHUNK)
    ]
    none = events.select("event", sf.lit(None).cast(key).alias("filter")).where(sf.lit(False))
    return functools.reduce(DataFrame.unionByName, found, none).select("event", "filter")


def _join(events: DataFrame, apart: DataFrame, template: Template, counted: Row) -> DataFrame:
    """The pairs of the filters of one template."""
    literals = [
        templates.value(sf.get("literals", sf.lit(place)), kind).alias(PLACE.format(place))
        for place, kind in enumerate(template.kinds)
    ]
    chosen = apart.where(sf.col("template") == template.name)
    chosen = chosen.select(sf.col("filter").alias(FILTER), *topic(apart, ASKED), *literals)
    # AND TRUE gives the text NULL a type, which it does not have alone.
    condition = sf.expr(template.condition) & sf.lit(True)
    if "topic" in apart.columns:
        condition = condition & (sf.col(f"`{ASKED}`") == sf.col(f"`{TOPIC}`"))
    found = [
        _alternative(flat(events), chosen, condition, template, branch, counted)
        for branch in template.branches
    ]
    if not found or any(pairs is None for pairs in found):
        found = [flat(events).join(chosen, on=condition, how="inner")]
    pairs = [
        joined.select(sf.col(f"`{EVENT}`").alias("event"), sf.col(f"`{FILTER}`").alias("filter"))
        for joined in found
        if joined is not None
    ]
    # A pair may be true by several alternatives, and by several values of an IN that Spark takes
    # for equal.
    once = len(pairs) == 1 and all(
        _is_exact(events, template, branch) for branch in template.branches
    )
    return pairs[0] if once else functools.reduce(DataFrame.unionByName, pairs).distinct()


def _is_exact(events: DataFrame, template: Template, branch: Branch) -> bool:
    """Whether values of an IN that differ as literals also differ as values of the attribute.

    For a DOUBLE, 5 and 5.0 do not.
    """
    if branch.member is None:
        return True
    attribute, places = branch.member
    kind = template.kinds[places[0].number]
    if kind == "i":
        return isinstance(type_of(flat(events), attribute), st.IntegralType)
    return FAMILIES[kind] == family_of(flat(events), attribute) != "number"


def _alternative(
    events: DataFrame,
    chosen: DataFrame,
    condition: Column,
    template: Template,
    branch: Branch,
    counted: Row,
) -> DataFrame | None:
    """The pairs for which one alternative of the condition is true.

    None if only a cross join could find them.
    """
    on, each, keyed = condition, counted["n"] / max(1, counted["topics"]), bool(branch.equal)
    for attribute, place in branch.equal:
        on = on & (sf.expr(attribute) == _literal(place))
        each /= max(1, counted[f"d{place.number}"] if place.number < PLACES_MAX else 1)
    if branch.member and len({template.kinds[place.number] for place in branch.member[1]}) == 1:
        attribute, places = branch.member
        values = sf.explode(sf.array_distinct(sf.array(*map(_literal, places))))
        chosen, keyed = chosen.withColumn(MEMBER, values), True
        on = on & (sf.expr(attribute) == sf.col(f"`{MEMBER}`"))
        each = (
            each
            * len(places)
            / max(1, counted[f"d{places[0].number}"] if places[0].number < PLACES_MAX else 1)
        )
    if branch.like and (not keyed or each > min(EVEN_MIN, PLAIN_MAX)):
        attribute, pattern = branch.like
        if family_of(events, attribute) == FAMILIES[template.kinds[pattern.number]] == "string":
            chosen, lengths, alike = prefixes.cut(chosen, _literal(pattern))
            events, on, keyed = (
                prefixes.place(events, sf.expr(attribute), lengths),
                on & prefixes.same(),
                True,
            )
            each = min(each, alike)
    if (
        each > min(EVEN_MIN, PLAIN_MAX)
        and (banded := _banded(events, chosen, template, branch, each)) is not None
    ):
        events, chosen, same = banded
        on = on & same
    elif not keyed and (each > PLAIN_MAX or not branch.ranges):
        return None
    small = counted["n"] <= BROADCAST_MAX and each <= BROADCAST_EACH
    return events.join(sf.broadcast(chosen) if small else chosen.hint("merge"), on=on, how="inner")


def _banded(
    events: DataFrame, chosen: DataFrame, template: Template, branch: Branch, each: float
) -> tuple[DataFrame, DataFrame, Column] | None:
    """Events and filters with the cells of one range, and the condition that joins them.

    None if cells are not worth while.
    """
    best: tuple[Range, str] | None = None
    for band in branch.ranges:
        family = family_of(events, band.attribute)
        kinds = {FAMILIES[template.kinds[end.number]] for end in (band.low, band.high) if end}
        both = band.low is not None and band.high is not None
        if kinds == {family} and (best is None or both):
            best = (band, family)
    if best is None:
        return None
    band, family = best
    low, high = (
        None if end is None else bands.number(_literal(end), family)
        for end in (band.low, band.high)
    )
    value = bands.number(sf.expr(band.attribute), family)
    suits = bands.even(chosen, low, high) if low is not None and high is not None else None
    if suits is not None and suits[2] <= EVEN_PART and each * suits[2] <= PLAIN_MAX:
        scale, level, _ = suits
        same = sf.col("`gossamer.cell`") == sf.col("`gossamer.at_cell`")
        return (
            bands.place(events, value, scale, [level]),
            bands.cut(chosen, low, high, scale, [level]),
            same,
        )
    if each <= PLAIN_MAX:
        return None
    scale = bands.scale(chosen, low, high)
    cut = bands.cut(chosen, low, high, scale).localCheckpoint()
    levels = [row[0] for row in cut.select("`gossamer.level`").distinct().collect()]
    placed = bands.place(events, value, scale, sorted(levels) or [0])
    same = (sf.col("`gossamer.level`") == sf.col("`gossamer.at_level`")) & (
        sf.col("`gossamer.cell`") == sf.col("`gossamer.at_cell`")
    )
    return placed, cut, same


def _literal(place: Place) -> Column:
    column = sf.col(f"`{PLACE.format(place.number)}`")
    return -column if place.minus else column
