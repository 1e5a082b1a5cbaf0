"""The schemas of a live fabric's topics, from what its nodes advertised.

A topic may grow: nullable attributes are added at the end, and the longest schema is everybody's. Events from before
have NULL there, and filters from before do not name what was added, so everything can be judged by the longest. Told by Spark's
reading of the text, not by the fabric's own.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import DataFrame
from pyspark.sql import types as st

from gossamer.pipeline.tables import parse_schema

Leaf = tuple[tuple[str, ...], str, bool]
"""Path, type, and whether it may be NULL."""


def schemas(advertised: DataFrame, error: type[ValueError]) -> dict[str, str]:
    """(topic, schema) -> the schema of each topic; ``error`` is raised where two fabrics would disagree about one."""
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
    """The attributes of a topic are the leaves of its structs, in their order; so a struct at the end may grow, too."""
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
