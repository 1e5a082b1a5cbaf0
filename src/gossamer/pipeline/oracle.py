"""What must be delivered, by Spark's reading of the filters' text alone; and the verdict on what was.

This module and those it uses import nothing of ``gossamer.filters``: two independent answers, or it proves nothing. Three ways
give the pairs (event, filter), and the tests hold them equal:

    text by text    each filter is ``expr(text)``, evaluated on every event; exact by definition, for small sets
    by template     texts that differ in their literals only become one template, and the literals its columns
                    (``templates``). The template goes to Spark as the condition of a join: its equalities are the join's keys,
                    a range that leaves too many candidates is cut into cells (``bands``), a LIKE goes by how its pattern begins
                    (``prefixes``), and the rest of the condition, the ends of ranges included, is evaluated by Spark on each
                    candidate. A text that cannot be taken apart with certainty goes the first way.
    by sorting      where a template is nothing but equalities and one range, of integers and strings, Spark's parser is asked what
                    it means, and then not Spark but NumPy, inside Spark's tasks, finds the pairs (``simple``, ``spans``).

Events come as (event, values STRUCT), so that an attribute may have any name, ``event`` and ``filter`` included. Where both have a
column ``topic``, only pairs of one topic count; all topics with the same schema are judged together.
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
"""Up to so many filters, text by text is the faster way."""
TEMPLATES_MAX = 48
"""So many templates at most, each a join; the texts of rarer ones are evaluated text by text."""
CHUNK = 64
"""Texts evaluated in one projection."""
PLAIN_MAX = 512
"""So many filters with equal keys may be compared with an event; where there are more, ranges are cut into cells."""
EVEN_MIN = 64
"""Where there are more than so many, they are cut too, if one width of cell suits them and saves most of the comparisons."""
EVEN_PART = 0.25
"""Most: all but this part."""
BROADCAST_MAX = 250_000
"""So many filters at most are sent whole to every task; beyond that, and where keys are coarse, both sides are sorted and merged,
which spills to disk instead of failing."""
BROADCAST_EACH = 16
"""Filters with equal keys: with more, a hash join is the slow one."""
PLACES_MAX = 8
"""Literals of a text that are looked at to choose its join."""
ROUGH = 0.12
"""How far off the number of different ones may be."""


def matches(events: DataFrame, filters: DataFrame) -> DataFrame:
    """(event, values STRUCT) x (filter, text) -> (event, filter) where the filter is TRUE, by the way that suits the size."""
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
    """Each text by itself, through ``expr``."""
    return _evaluate(events, filters, _collected(filters))


def matches_by_template(events: DataFrame, filters: DataFrame) -> DataFrame:
    """Texts grouped into templates, with the literals as columns."""
    # Kept until nobody holds it: every template reads it, and taking texts apart is most of the work for small sets of events.
    # Texts come in few files, and so in few partitions; taking them apart is for all cores.
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


def due(
    matched: DataFrame,
    subscriptions: DataFrame,
    publications: DataFrame,
    by: Sequence[str] = ("event", "filter"),
) -> DataFrame:
    """(event, filter), when each filter is subscribed to, when each event is published -> (event, filter, due).

    ``subscriptions`` are (filter, subscribing_at, subscribed_at, ended_at), several for a filter that comes and goes;
    ``publications`` (event, published_at, completed_at). *Due*: ``subscribe`` returned before ``publish`` began, and the
    subscription outlived the receipt. *Allowed* (due is false): they overlap. Pairs that do neither are left out: handing them
    over is spurious. A NULL end: never; a NULL ``completed_at``: the receipt was never complete, so nothing is due.

    ``by``: what a pair is; with ``subscription`` each of a filter's subscriptions is judged for itself, with ``run`` each run.
    Times need only have an order.
    """
    both = [name for name in by if name in publications.columns]
    pairs = matched.select("event", "filter").join(subscriptions, on="filter", how="inner").join(
        publications, on=both, how="inner"
    )  # fmt: skip
    lived = sf.col("ended_at").isNull()
    must = (sf.col("subscribed_at") < sf.col("published_at")) & (
        lived | (sf.col("ended_at") > sf.col("completed_at"))
    )
    must = must & sf.col("completed_at").isNotNull()
    begun = sf.col("completed_at").isNull() | (sf.col("subscribing_at") <= sf.col("completed_at"))
    may = begun & (lived | (sf.col("ended_at") >= sf.col("published_at")))
    judged = pairs.where(sf.coalesce(may | must, sf.lit(False)))
    return judged.groupBy(*by).agg(sf.bool_or(sf.coalesce(must, sf.lit(False))).alias("due"))


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
    return judged.where(sf.col("due") | (copies > 0)).select(
        *by, verdict.alias("verdict"), copies.alias("copies")
    )


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
        "spurious": sf.coalesce(
            sf.sum(sf.when(sf.col("verdict") == "spurious", sf.col("copies"))), sf.lit(0)
        ),
    }


def _collected(filters: DataFrame) -> list[Row]:
    return filters.select("filter", "text", *topic(filters, "topic")).orderBy("filter").collect()


def _evaluate(events: DataFrame, filters: DataFrame, texts: Sequence[Any]) -> DataFrame:
    """The pairs of these few filters (rows, or the like), each text evaluated on every event."""
    key = filters.schema["filter"].dataType

    def where(row: Any) -> Column:
        passes = sf.coalesce(sf.expr(row["text"]), sf.lit(False))  # the text NULL alone has no type
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
    condition = sf.expr(template.condition) & sf.lit(
        True
    )  # AND TRUE: the text NULL alone has no type
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
    # A pair may hold by several alternatives, and by several values of an IN that are one to Spark.
    once = len(pairs) == 1 and all(
        _is_exact(events, template, branch) for branch in template.branches
    )
    return pairs[0] if once else functools.reduce(DataFrame.unionByName, pairs).distinct()


def _is_exact(events: DataFrame, template: Template, branch: Branch) -> bool:
    """Whether the values of an IN that differ as literals differ as values of the attribute: 5 and 5.0 of a DOUBLE do not."""
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
    """The pairs for which one alternative of the condition holds; None if it gives no way but to compare all with all."""
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
    """Events and filters with the cells of one range, and the condition that joins them; None: it is not worth while."""
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
