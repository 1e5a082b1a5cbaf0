"""Ranges are cut into cells, and a join on cells leaves few pairs of value and range to compare.

A value lies in one cell, and a range covers a few. If the ranges are about equally wide, all cells
have one width, at which a range covers four cells on average. Otherwise the cells come in levels,
and the cells of each level are eight times as wide as those of the last. A range is put on the
first level where it covers at most eight cells. So narrow and wide ranges are both cheap, but each
value must be looked up on all levels.

Cells only choose the pairs that are compared. Spark compares the values themselves. For this to be
exact, a value inside a range must lie in one of its cells. Two facts ensure it. The function from
value to cell is monotone: a cast to DOUBLE, a logarithm, a subtraction, a division by a positive
number and a floor all are, rounding included. And ranges are widened by a billionth before they are
cut.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

BITS, STEP, COVER = 16, 3, 8
EVEN_COVER = 4
"""The number of cells that a range covers on average, if all have one width."""
SAMPLE = 2048
"""The number of ranges that decide the width."""
TOP = 2**BITS + 1
"""The cells of the lowest level: 1 .. 2^16 between the ends of nearly all ranges, one cell below,
one above.
"""
_LEVELS = range(0, BITS + STEP, STEP)


class Scale(Struct, frozen=True):
    """Maps numbers to cells."""

    log: bool
    start: float
    unit: float

    def cell(self, number: Column) -> Column:
        """The cell of a number.

        NaN is greater than any number, as for Spark, and NULL stays NULL.
        """
        moved = (_log(number) if self.log else number) - sf.lit(self.start)
        inside = sf.least(
            sf.greatest(moved / sf.lit(self.unit), sf.lit(-1.0)), sf.lit(float(2**BITS))
        )
        return sf.when(sf.isnan(number), sf.lit(TOP)).otherwise(sf.floor(inside).cast("INT") + 1)

    def plain_cell(self, number: float) -> int:
        moved = (_plain_log(number) if self.log else number) - self.start
        return int(min(max(moved / self.unit, -1.0), 2.0**BITS)) + 1


def number(value: Column, family: str) -> Column:
    """A value as a DOUBLE, in the same order. Several values may have the same DOUBLE."""
    if family == "date":
        return sf.unix_date(value.cast("DATE")).cast("DOUBLE")
    if family == "timestamp":
        return sf.unix_micros(value.cast("TIMESTAMP")).cast("DOUBLE")
    # Strings compare byte by byte, so this takes the first six bytes.
    if family == "string":
        head = sf.rpad(sf.left(sf.hex(sf.encode(value, "UTF-8")), sf.lit(12)), 12, "0")
        return sf.conv(head, 16, 10).cast("DOUBLE")
    return value.cast("DOUBLE")


def even(ranges: DataFrame, low: Column, high: Column) -> tuple[Scale, int, float] | None:
    """Cells of one width for these ranges: the scale, the level, and the share of the ranges with
    which a value is still compared.

    A sample of the ranges decides the width. The pairs are the same for any width.
    """
    some = ranges.select(low.alias("low"), high.alias("high")).where(
        "low <= high AND abs(low) < 1e300 AND abs(high) < 1e300"
    )
    pairs = [(row["low"], row["high"]) for row in some.limit(SAMPLE).collect()]
    if not pairs:
        return None
    ends = sorted(end for pair in pairs for end in pair)
    scale = _scale([ends[0], ends[len(ends) // 4], ends[len(ends) * 3 // 4], ends[-1]])
    cells = [(scale.plain_cell(first), scale.plain_cell(last)) for first, last in pairs]
    for level in range(BITS + 1):
        cover = sum((last >> level) - (first >> level) + 1 for first, last in cells) / len(cells)
        if cover <= EVEN_COVER:
            return scale, level, cover / 2 ** (BITS - level)
    return None


def scale(ranges: DataFrame, low: Column | None, high: Column | None) -> Scale:
    """A scale whose cells are fine where many ranges end: even, or even in the logarithm."""
    ends = sf.array_compact(sf.array(*(end for end in (low, high) if end is not None)))
    listed = ranges.select(sf.explode(ends).alias("end")).where(
        "NOT isnan(end) AND abs(end) < 1e300"
    )
    row = listed.agg(
        sf.percentile_approx("end", [0.0, 0.25, 0.75, 1.0], sf.lit(1000)).alias("at")
    ).first()
    return _scale((row["at"] if row is not None else None) or [0.0, 0.0, 0.0, 0.0])


def _scale(at: Sequence[float]) -> Scale:
    """A scale from the least end, the ends after a quarter and after three quarters, and the
    greatest.
    """
    logs = [_plain_log(end) for end in at]
    spread = [(ends[2] - ends[1]) / ((ends[3] - ends[0]) or 1.0) for ends in (at, logs)]
    log = spread[1] > spread[0]
    first, last = (logs if log else at)[0], (logs if log else at)[-1]
    return Scale(log, first, (last - first) / 2**BITS or 1.0)


def cut(
    ranges: DataFrame,
    low: Column | None,
    high: Column | None,
    scale: Scale,
    levels: Sequence[int] = _LEVELS,
) -> DataFrame:
    """The ranges with columns ``gossamer.level`` and ``gossamer.cell``, one row for each covered
    cell.
    """
    first = sf.lit(0) if low is None else scale.cell(low - _margin(low))
    last = sf.lit(TOP) if high is None else scale.cell(high + _margin(high))
    ends = ranges.withColumn("gossamer.first", first).withColumn("gossamer.last", last)
    # No value lies in an empty range, or in a range with a NULL end.
    proper = ends.where("`gossamer.first` <= `gossamer.last`")
    level = sf.lit(levels[-1])
    for tried in reversed(levels[:-1]):
        covers = (
            sf.shiftright("`gossamer.last`", tried) - sf.shiftright("`gossamer.first`", tried)
            < COVER
        )
        level = sf.when(covers, sf.lit(tried)).otherwise(level)
    leveled = proper.withColumn("gossamer.level", level)
    cells = sf.expr(
        "explode(sequence(shiftright(`gossamer.first`, `gossamer.level`), "
        "shiftright(`gossamer.last`, `gossamer.level`)))"
    )
    return leveled.withColumn("gossamer.cell", cells).drop("gossamer.first", "gossamer.last")


def place(values: DataFrame, value: Column, scale: Scale, levels: Sequence[int]) -> DataFrame:
    """The values with columns ``gossamer.at_level`` and ``gossamer.at_cell``, one row for each
    level in use.
    """
    found = values.withColumn("gossamer.at", scale.cell(value)).where("`gossamer.at` IS NOT NULL")
    spread = found.withColumn(
        "gossamer.at_level", sf.explode(sf.array(*(sf.lit(level) for level in levels)))
    )
    at = sf.expr("shiftright(`gossamer.at`, `gossamer.at_level`)")
    return spread.withColumn("gossamer.at_cell", at).drop("gossamer.at")


def _margin(end: Column) -> Column:
    """More than any cast can lose. Infinities stay unchanged."""
    return sf.when(sf.abs(end) < 1e300, (sf.abs(end) + 1.0) * 1e-9).otherwise(sf.lit(0.0))


def _log(number: Column) -> Column:
    return sf.signum(number) * sf.log1p(sf.abs(number))


def _plain_log(number: float) -> float:
    import math

    return math.copysign(math.log1p(abs(number)), number)
