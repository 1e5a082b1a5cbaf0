"""LIKE without a cross join: a text that matches a pattern has the pattern's beginning.

The beginning of a pattern is the text before its first wildcard. Out of the lengths of all
beginnings a few *lengths* are chosen. A pattern has the largest of them that its beginning reaches,
and its *prefix* is that part of the beginning. An event has one row for each length, with that part
of its own text. Patterns and events with equal length and prefix are candidates, each pair once,
and the pattern itself is then evaluated on them. ``'%x'`` has length 0 and is compared with all
events.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

LENGTHS_MAX = 8
"""Each length adds a row for every event."""
_LENGTH, _PREFIX = "gossamer.length", "gossamer.prefix"
_AT_LENGTH, _AT_PREFIX = "gossamer.at_length", "gossamer.at_prefix"
# A backslash is LIKE's escape, so the beginning ends before it.
_BEGINNING = r"^[^%_\\]*"


def cut(filters: DataFrame, pattern: Column) -> tuple[DataFrame, list[int], float]:
    """Each filter with the length and the prefix of its pattern, the lengths, and the number of
    filters with which an event is compared.
    """
    begun = filters.withColumn(_PREFIX, sf.regexp_extract(pattern, _BEGINNING, 0)).localCheckpoint()
    prefix = sf.col(f"`{_PREFIX}`")
    counted = begun.groupBy(sf.length(prefix).alias("length")).count().orderBy("length").collect()
    lengths = choose([(row["length"], row["count"]) for row in counted])
    reached = sf.element_at(sf.filter(_array(lengths), lambda one: one <= sf.length(prefix)), -1)
    cut = begun.withColumn(_LENGTH, reached).withColumn(_PREFIX, _left(prefix, reached))
    keys = sf.approx_count_distinct(prefix).alias("keys")
    alike = cut.groupBy(f"`{_LENGTH}`").agg(sf.count(sf.lit(1)).alias("n"), keys).collect()
    return cut, lengths, sum(row["n"] / max(1, row["keys"]) for row in alike)


def choose(counted: Sequence[tuple[int, int]]) -> list[int]:
    """Choose some of these (length, number of patterns): the shortest, and others so that each has
    about as many patterns.
    """
    if len(counted) <= LENGTHS_MAX:
        return [length for length, _ in counted]
    (shortest, _), *others = counted
    chosen, passed, total = [shortest], 0, sum(count for _, count in others)
    for length, count in others:
        if passed * (LENGTHS_MAX - 1) >= total * (len(chosen) - 1):
            chosen.append(length)
        passed += count
    return chosen


def place(events: DataFrame, value: Column, lengths: Sequence[int]) -> DataFrame:
    """Each event once for each of the lengths that its text has."""
    here = sf.col(f"`{_AT_LENGTH}`")
    exploded = events.withColumn(_AT_LENGTH, sf.explode(_array(lengths)))
    return exploded.where(sf.length(value) >= here).withColumn(_AT_PREFIX, _left(value, here))


def same() -> Column:
    return (sf.col(f"`{_LENGTH}`") == sf.col(f"`{_AT_LENGTH}`")) & (
        sf.col(f"`{_PREFIX}`") == sf.col(f"`{_AT_PREFIX}`")
    )


def _array(lengths: Sequence[int]) -> Column:
    return sf.array(*map(sf.lit, lengths or [0]))


def _left(text: Column, length: Column) -> Column:
    return sf.substring(text, sf.lit(1), length)
