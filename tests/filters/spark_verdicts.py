"""Spark's verdicts on filter texts over events: the second opinion.

It imports nothing of gossamer.filters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The most texts of one Spark job.
COLUMNS_MAX = 100


def frame(spark: SparkSession, ddl: str, events: Sequence[dict[str, Any]]) -> DataFrame:
    """The events as a DataFrame with a last column `_row`, their position."""
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = spark.createDataFrame([], f"{ddl}, _row INT").schema
    rows = [{**event, "_row": i} for i, event in enumerate(events)]
    # It goes by way of Arrow, which keeps NaN apart from NULL and timestamps in UTC.
    arrow = to_arrow_schema(schema, timezone="UTC")
    columns = [
        pa.array([row.get(f.name) for row in rows], type=f.type, from_pandas=False) for f in arrow
    ]
    return spark.createDataFrame(pa.table(columns, schema=arrow), schema)


def verdicts(df: DataFrame, texts: Sequence[str]) -> Iterator[list[bool]]:
    """For each text the verdict on each event, by position.

    TRUE passes, FALSE and NULL do not.
    """
    from pyspark.sql.functions import expr

    for start in range(0, len(texts), COLUMNS_MAX):
        part = texts[start : start + COLUMNS_MAX]
        chosen = df.select("_row", *[expr(text).alias(f"t{i}") for i, text in enumerate(part)])
        table = chosen.toArrow().sort_by("_row")
        for i in range(len(part)):
            yield [value is True for value in table.column(f"t{i}").to_pylist()]


def passing(df: DataFrame, text: str) -> list[int]:
    """The positions of the events that `df.where(text)` keeps."""
    return sorted(row[0] for row in df.where(text).select("_row").collect())
