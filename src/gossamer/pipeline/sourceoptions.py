"""The options and the schema that a user gives to ``format("gossamer")``, checked
(docs/streaming.md).

Spark silently ignores an option that does not apply. Here it is an error, which says where the
option applies.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Literal

from pyspark.sql.types import StructType

from gossamer import Gap, NodeConfig, blocking
from gossamer.filters import Schema
from gossamer.net.arguments import start_of
from gossamer.node.retention import Retention

# The time that a micro-batch may take before a full tap is cut off.
BLOCK_SECONDS = 600
# The idle time of a sink's process, and of one that no other write can find again.
IDLE_SECONDS, IDLE_ONCE_SECONDS = (
    30.0,
    2.0,
)

_log = logging.getLogger(__name__)

Use = Literal["read", "readStream", "write", "writeStream"]
READING: tuple[Use, ...] = ("read", "readStream")
WRITING: tuple[Use, ...] = ("write", "writeStream")
USES: dict[str, tuple[Use, ...]] = {
    **dict.fromkeys(("join", "topic", "fabric", "keys", "traceDir"), READING + WRITING),
    **dict.fromkeys(("filter", "since", "failOnDataLoss"), READING),
    **dict.fromkeys(("name", "maxRows"), ("readStream",)),
    "dataDir": ("readStream", *WRITING),
    "query": ("writeStream",),
    **dict.fromkeys(("retention", "idle"), WRITING),
    **dict.fromkeys(("checkpointLocation", "queryName"), ("writeStream",)),
}
"""The uses of each option. The last two are Spark's own options, which it hands on to the sink."""
INSTEAD = {
    ("filter", "write"): "write df.where(...)",
    ("filter", "writeStream"): "write df.where(...)",
    ("maxRows", "read"): "write .limit(n) after .load()",
    ("query", "write"): "a batch write has no life to be named for; leave it out",
    ("dataDir", "read"): "a batch read keeps nothing; leave it out",
}


class SourceError(RuntimeError):
    """Options that do not fit, or events that are lost. The message gives a remedy."""


class Options:
    """The user's options, checked.

    Spark's options ignore case. Without ``use`` they are for reading in either way.
    """

    def __init__(self, options: Any, use: Use | None = None) -> None:
        spelt = {name.lower(): name for name in USES}
        given = {key.lower(): value for key, value in dict(options).items()}
        if "path" in given:
            raise SourceError(
                f"a fabric has no paths, but one is given ({given['path']!r}); say what to read "
                "or write with "
                ".option('topic', ...)"
            )
        for key in given:
            if key not in spelt:
                raise SourceError(f"unknown option {key!r}; known: {', '.join(USES)}")
            _check_use(spelt[key], use)
        for needed in ("join", "topic"):
            if not given.get(needed):
                raise SourceError(f"option {needed!r} is missing: .option({needed!r}, ...)")
        self.join = [address.strip() for address in given["join"].split(",")]
        self.topic, self.filter = given["topic"], given.get("filter", "")
        # Without it a batch starts at the beginning, and a stream now.
        self.since = given.get("since", "")
        self.data_dir, self.name = (
            given.get("datadir", ""),
            given.get("name", f"spark-{self.topic}"),
        )
        self.query, self.retention = given.get("query", ""), given.get("retention", "")
        self.fabric, self.keys, self.trace_dir = (
            given.get("fabric", ""),
            given.get("keys"),
            given.get("tracedir"),
        )
        self.rows_max = _number("maxRows", given["maxrows"], int, 1) if "maxrows" in given else 0
        self.fails = _flag("failOnDataLoss", given.get("failondataloss", "true"))
        # Each such write has a process of its own.
        forgotten = use == "write" and not self.data_dir
        self.idle = _number(
            "idle",
            given.get("idle", str(IDLE_ONCE_SECONDS if forgotten else IDLE_SECONDS)),
            float,
            0,
        )
        # The error comes here, and not when the rows are on their way.
        try:
            start_of(self.since or None)
            if self.retention:
                Retention.parse(self.retention)
        except ValueError as error:
            raise SourceError(
                f"option {'since' if self.since else 'retention'!r}: {error}"
            ) from None

    def node(self, data_dir: str | None = None) -> blocking.Node:
        config = NodeConfig(block=BLOCK_SECONDS)
        return blocking.Node(
            join=self.join,
            fabric=self.fabric,
            keys=self.keys,
            data_dir=data_dir,
            trace_dir=self.trace_dir,
            config=config,
        )

    def gateway(self, data_dir: str) -> dict[str, Any]:
        found = {
            "join": self.join,
            "data_dir": data_dir,
            "fabric": self.fabric,
            "keys": self.keys,
            "idle": self.idle,
        }
        return found | {"trace_dir": self.trace_dir}

    def lost(self, gap: Gap) -> None:
        """Report lost events. This fails the query, unless the user asked to continue."""
        when = f", published until {gap.until.isoformat(timespec='seconds')}" if gap.until else ""
        self._missed(
            f"events of publisher {gap.publisher:016x} on {gap.topic!r} may be lost "
            f"({gap.reason}): after {gap.after}, before {gap.before}{when}",
            "advertise the topic with more retention",
        )

    def check_asked(self, unasked: int) -> None:
        """Report members that died before they could be asked, because their events may be
        missing.
        """
        if unasked:
            died = "1 node died before it" if unasked == 1 else f"{unasked} nodes died before they"
            self._missed(
                f"{died} could be asked for retained events of {self.topic!r}, so events may be "
                "missing",
                "start it again" if unasked == 1 else "start them again",
            )

    def _missed(self, what: str, remedy: str) -> None:
        if self.fails:
            raise SourceError(
                f"{what}; {remedy}, or go on without them: .option('failOnDataLoss', 'false')"
            )
        _log.warning("%s; going on without them (failOnDataLoss=false)", what)

    def check_schema(self, wanted: StructType, text: str) -> None:
        """Check a schema given by hand (``.schema(...)``).

        It may leave attributes out. An attribute that the topic does not have would be NULL
        everywhere.
        """
        schema = Schema.parse(text)
        known = {attribute.path: attribute for attribute in schema.attributes}
        for path, kind, nullable in _leaves(wanted, ()):
            name, attribute = ".".join(path), known.get(path)
            if attribute is None:
                near = schema.nearest(name)
                wrong = f"has no attribute {name!r}" + (
                    f" (did you mean {near!r}?)" if near else ""
                )
            elif kind != attribute.type.value.lower():
                wrong = f"has {name!r} as {attribute.type.value}, not as {kind.upper()}"
            elif not nullable and not attribute.required:
                wrong = f"has {name!r}, which may be NULL"
            else:
                continue
            raise SourceError(
                f".schema(...): topic {self.topic!r} {wrong}; its schema is ({text}). Leave "
                ".schema(...) out to read it so, and "
                "rename or cast afterwards"
            )


def _check_use(name: str, use: Use | None) -> None:
    uses = USES[name]
    if use in uses or (use is None and set(uses) & set(READING)):
        return
    where = f"for {', '.join(uses)}"
    instead = INSTEAD.get((name, use or "read"), "leave it out")
    raise SourceError(
        f"option {name!r} is {where}, not for {use or ' and '.join(READING)}, where it would do "
        f"nothing: {instead}"
    )


def _number(name: str, text: str, kind: type[Any], least: int) -> Any:
    try:
        value = kind(text)
    except ValueError:
        value = None
    if value is None or not least <= value < float("inf"):
        what = "a whole number" if kind is int else "a number of seconds"
        raise SourceError(f"option {name!r} is {text!r}; give {what}, {least} or more")
    return value


def _flag(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise SourceError(f"option {name!r} is {text!r}; give 'true' or 'false'")
    return text.lower() == "true"


def _leaves(
    fields: StructType, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], str, bool]]:
    """(path, type, may be NULL) of each attribute, structs taken apart."""
    for field in fields:
        if isinstance(field.dataType, StructType):
            yield from _leaves(field.dataType, (*path, field.name))
        else:
            yield (*path, field.name), field.dataType.simpleString(), field.nullable
