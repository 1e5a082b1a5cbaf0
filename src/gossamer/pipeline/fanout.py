"""Fans simulations out over Spark: each configuration is one row and one task, and each result a
row.

A run that fails is a row with its error, and never fails the job. Only here does Python run inside
Spark's tasks, because a simulation is a Python program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame

from gossamer.pipeline.tables import parse_schema

if TYPE_CHECKING:
    import pyarrow as pa

Row = dict[str, Any]


def fan_out(
    configured: DataFrame,
    results: str,
    tasks: int,
    order: tuple[str | Column, ...],
    run: Callable[[Row], Row],
    lists: Mapping[str, Any],
) -> DataFrame:
    """Run the configurations, one in each task, and return ``results`` (DDL).

    ``order`` lets the longest runs begin first, so that no core waits for a long run at the end.
    ``run`` makes the columns of a result, and the columns of the configuration are kept. ``lists``
    are the columns of a failed run, beside its status and its error.
    """
    schema = parse_schema(results)

    def each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_schema

        arrow = to_arrow_schema(schema)
        for batch in batches:
            for row in batch.to_pylist():
                yield pa.RecordBatch.from_pylist([attempt(row)], schema=arrow)

    def attempt(row: Row) -> Row:
        try:
            return {**row, "status": "ok", **run(row)}
        # A failed run is a row, and never a failed job.
        except Exception as error:
            said = utf8(f"{type(error).__name__}: {error}")
            return {**row, "status": "failed", "error": said, **lists}

    return configured.repartitionByRange(tasks, *order).mapInArrow(each, schema)


def utf8(text: str) -> str:
    """Text that Arrow takes. A lone surrogate becomes its escape."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
