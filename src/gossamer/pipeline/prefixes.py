"""LIKE without comparing all with all: what stands before a pattern's first wildcard is how a text that it matches begins.

A few *lengths* are chosen, the lengths of these beginnings where they are few. A pattern has the largest of them that its beginning
reaches; its *prefix* is so much of it. An event has one row for each length, with so much of its own text. Who are equal in
both are candidates, each pair once, and the pattern itself is then evaluated on them. ``'%x'`` has length 0 and is compared with
all events.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

LENGTHS_MAX = 8
"""Each is a row more for every event."""
_LENGTH, _PREFIX = "gossamer.length", "gossamer.prefix"
_AT_LENGTH, _AT_PREFIX = "gossamer.at_length", "gossamer.at_prefix"
_BEGINNING = r"^[^%_\\]*"  # a backslash is LIKE's escape: what comes after it is left to evaluation


def cut(filters: DataFrame, pattern: Column) -> tuple[DataFrame, list[int], float]:
    """Each filter with the length and the prefix of its pattern; the lengths; and with how many filters an event is compared."""
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
    """Some of these lengths, of which each has so many patterns: the shortest, and of the others those that share them out."""
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
