"""Events as rows with one column for each attribute, and the types of the attributes."""

from __future__ import annotations

import re

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as st

# Our own columns beside the attributes: an attribute's name has no dot.
EVENT, FILTER, MEMBER = "gossamer.event", "gossamer.filter", "gossamer.member"
TOPIC, ASKED = "gossamer.topic", "gossamer.asked"


def flat(events: DataFrame) -> DataFrame:
    """Turn (event, values STRUCT, ..) into EVENT, TOPIC if there is one, and the attributes."""
    return events.select(sf.col("event").alias(EVENT), *topic(events, TOPIC), "values.*")


def topic(rows: DataFrame, name: str) -> list[Column]:
    return [sf.col("topic").alias(name)] if "topic" in rows.columns else []


def type_of(events: DataFrame, attribute: str) -> st.DataType | None:
    """The type of an attribute as SQL.

    Spark is asked only if the name alone does not show it, because each question costs an analysis.
    """
    if quoted := re.fullmatch(r"`(\w+)`", attribute):
        alike = [field for field in events.schema.fields if field.name.lower() == quoted[1].lower()]
        if len(alike) == 1 and alike[0].name == quoted[1]:
            return alike[0].dataType
    try:
        return events.select(sf.expr(attribute)).schema[0].dataType
    # Spark raises this again, with a better message, where the condition is evaluated.
    except Exception:
        return None


def family_of(events: DataFrame, attribute: str) -> str:
    """The family of values with which an attribute can be compared."""
    kind = type_of(events, attribute)
    if isinstance(kind, st.StringType):
        return "string"
    if isinstance(kind, st.DateType):
        return "date"
    if isinstance(kind, st.TimestampType):
        return "timestamp"
    return "number" if isinstance(kind, st.NumericType) else "unknown"
