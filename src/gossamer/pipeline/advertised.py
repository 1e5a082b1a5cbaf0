"""The schemas of a live fabric's topics, from the advertisements of its nodes.

A topic may grow: nullable attributes are added at the end, and the longest schema is valid for all
nodes. Earlier events have NULL there, and earlier filters do not name the new attributes. So all
events and filters can be judged by the longest schema. Spark reads the schemas, and not the
fabric's own code.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import DataFrame
from pyspark.sql import types as st

from gossamer.pipeline.tables import parse_schema

Leaf = tuple[tuple[str, ...], str, bool]
"""Path, type, and whether it may be NULL."""


def schemas(advertised: DataFrame, error: type[ValueError]) -> dict[str, str]:
    """The schema of each topic, from (topic, schema).

    ``error`` is raised if two schemas of a topic do not agree.
    """
    found: dict[str, str] = {}
    for row in advertised.select("topic", "schema").distinct().orderBy("topic", "schema").collect():
        topic, text = row["topic"], row["schema"]
        known = found.setdefault(topic, text)
        had, has = _leaves(known), _leaves(text)
        if _extends(has, had):
            found[topic] = text
        elif not (has == had or _extends(had, has)):
            raise error(
                f"topic {topic!r} was advertised as ({known}) and as ({text}), and neither is "
                "the other with nullable attributes "
                "added at the end; are these traces of two fabrics? Give those of one at a time"
            )
    return found


def _leaves(text: str) -> list[Leaf]:
    return list(_walk(parse_schema(text), ()))


def _walk(fields: st.StructType, path: tuple[str, ...]) -> Iterator[Leaf]:
    """The attributes of a topic are the leaves of its structs, in their order.

    So a struct at the end may grow, too.
    """
    for field in fields:
        if isinstance(field.dataType, st.StructType):
            yield from _walk(field.dataType, (*path, field.name))
        else:
            yield (*path, field.name), field.dataType.simpleString(), field.nullable


def _extends(longer: list[Leaf], shorter: list[Leaf]) -> bool:
    more = longer[len(shorter) :]
    return (
        bool(more)
        and longer[: len(shorter)] == shorter
        and all(nullable for _, _, nullable in more)
    )
