"""Events as rows with an attribute a column, and what the attributes' types are."""

from __future__ import annotations

import re

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as st

# Columns of our own beside the attributes: an attribute's name has no dot.
EVENT, FILTER, MEMBER = "gossamer.event", "gossamer.filter", "gossamer.member"
TOPIC, ASKED = "gossamer.topic", "gossamer.asked"


def flat(events: DataFrame) -> DataFrame:
    """(event, values STRUCT, ..) -> EVENT, TOPIC if there is one, and the attributes."""
    return events.select(sf.col("event").alias(EVENT), *topic(events, TOPIC), "values.*")


def topic(rows: DataFrame, name: str) -> list[Column]:
    return [sf.col("topic").alias(name)] if "topic" in rows.columns else []


def type_of(events: DataFrame, attribute: str) -> st.DataType | None:
    """Of an attribute as SQL. Spark is asked only where the name alone does not tell: each time costs it an analysis."""
    if quoted := re.fullmatch(r"`(\w+)`", attribute):
        alike = [field for field in events.schema.fields if field.name.lower() == quoted[1].lower()]
        if len(alike) == 1 and alike[0].name == quoted[1]:
            return alike[0].dataType
    try:
        return events.select(sf.expr(attribute)).schema[0].dataType
    except Exception:  # Spark says so again, and better, where the condition is evaluated
        return None


def family_of(events: DataFrame, attribute: str) -> str:
    """What an attribute can be compared with."""
    kind = type_of(events, attribute)
    if isinstance(kind, st.StringType):
        return "string"
    if isinstance(kind, st.DateType):
        return "date"
    if isinstance(kind, st.TimestampType):
        return "timestamp"
    return "number" if isinstance(kind, st.NumericType) else "unknown"
