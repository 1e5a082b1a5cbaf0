"""The filters and events of a run: given, or drawn from the seed.

The drawn workload looks like a file-sharing network: names, types, sizes. Each drawn filter comes
with a ``Shape`` that evaluates it without ``gossamer.filters``. So the checkers have a second
opinion on the matches.
"""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

from msgspec import Struct

TOPIC = "files"
SCHEMA = "name STRING, type STRING, size BIGINT"

_TYPES = (
    "audio",
    "video",
    "image",
    "text",
    "source",
    "archive",
    "binary",
    "font",
    "mail",
    "map",
    "disk",
    "book",
)
_STEMS = (
    "lib",
    "py",
    "gnome",
    "kde",
    "ruby",
    "node",
    "linux",
    "font",
    "perl",
    "haskell",
    "xorg",
    "go",
    "rust",
    "tex",
    "r",
    "zig",
)
_ENDS = ("utils", "core", "doc", "dev", "data", "tools", "server", "client", "bin", "test")
_SIZE_MAX = 1 << 30


class Stay(Struct, frozen=True):
    """A subscriber is there from ``up`` to ``down``, in microseconds after the workload began.

    None means until the end.
    """

    up: int
    down: int | None = None


class Workload(Struct, frozen=True):
    """Filter i lives on node i % nodes. The seed chooses the node that publishes event j."""

    schema: str
    filters: tuple[str, ...]
    events: tuple[dict[str, Any], ...]
    topic: str = TOPIC
    # Further topics, with name and schema.
    more: tuple[tuple[str, str], ...] = ()
    # For each filter its place in ``topics``. Empty: all filters are on the first topic.
    filter_topics: tuple[int, ...] = ()
    event_topics: tuple[int, ...] = ()
    # The time when each event is published, as in Stay. Empty: the configuration's interval
    # decides.
    times: tuple[int, ...] = ()
    # The stays of each filter's subscriber, by time. None: it is always there.
    stays: tuple[tuple[Stay, ...], ...] | None = None

    def __post_init__(self) -> None:
        for what, given, wanted in (
            ("filter_topics", self.filter_topics, len(self.filters)),
            ("event_topics", self.event_topics, len(self.events)),
            ("times", self.times, len(self.events)),
        ):
            if given and len(given) != wanted:
                raise ValueError(
                    f"{what} has {len(given)} entries for {wanted}: give one for each, or none"
                )
        if wrong := [
            at for at in (*self.filter_topics, *self.event_topics) if not 0 <= at <= len(self.more)
        ]:
            raise ValueError(f"there is no topic {wrong[0]}; topics are 0 to {len(self.more)}")
        if self.stays is not None and len(self.stays) != len(self.filters):
            raise ValueError(
                f"stays has {len(self.stays)} entries for {len(self.filters)} filters: give one "
                "for each"
            )
        for filter, stays in enumerate(self.stays or ()):
            ends = [moment for stay in stays for moment in (stay.up, stay.down)]
            if None in ends[:-1] or any(
                b is not None and a is not None and b < a for a, b in pairwise(ends)
            ):
                raise ValueError(
                    f"the stays of filter {filter} overlap or run backwards: sort them, and merge "
                    "those that do"
                )

    @property
    def topics(self) -> tuple[tuple[str, str], ...]:
        """The name and the schema of each topic."""
        return ((self.topic, self.schema), *self.more)

    def topic_of_filter(self, filter: int) -> int:
        return self.filter_topics[filter] if self.filter_topics else 0

    def topic_of_event(self, event: int) -> int:
        return self.event_topics[event] if self.event_topics else 0

    def begins(self, filter: int) -> bool:
        """Whether the subscriber of a filter is there when the workload begins."""
        return self.stays is None or (bool(self.stays[filter]) and self.stays[filter][0].up <= 0)


class Shape(Struct, frozen=True):
    """A conjunction of an equality, a prefix and a range.

    ``None`` leaves a part out. A missing value never matches.
    """

    type: str | None = None
    prefix: str | None = None
    low: int | None = None
    high: int | None = None
    # The shape has IS NULL on the type instead of an equality.
    holed: bool = False

    @property
    def text(self) -> str:
        parts = []
        if self.holed:
            parts.append("type IS NULL")
        if self.type is not None:
            parts.append(f"type = '{self.type}'")
        if self.prefix is not None:
            parts.append(f"name LIKE '{self.prefix}%'")
        if self.low is not None and self.high is not None:
            parts.append(f"size BETWEEN {self.low} AND {self.high}")
        elif self.low is not None:
            parts.append(f"size >= {self.low}")
        elif self.high is not None:
            parts.append(f"size < {self.high}")
        return " AND ".join(parts)

    def matches(self, event: dict[str, Any]) -> bool:
        kind, name, size = event.get("type"), event.get("name"), event.get("size")
        if self.holed and kind is not None:
            return False
        if self.type is not None and kind != self.type:
            return False
        if self.prefix is not None and (name is None or not name.startswith(self.prefix)):
            return False
        if self.low is not None and (size is None or size < self.low):
            return False
        if self.high is None:
            return True
        return size is not None and (
            size <= self.high if self.low is not None else size < self.high
        )


class Drawn(Struct, frozen=True):
    workload: Workload
    shapes: tuple[Shape, ...]


def draw(seed: int, subscriptions: int, events: int) -> Drawn:
    """Draw filters that let a few percent of the events through, and the events."""
    rng = Random(f"workload {seed}")
    shapes = tuple(_shape(rng) for _ in range(subscriptions))
    published = tuple(_event(rng) for _ in range(events))
    return Drawn(Workload(SCHEMA, tuple(shape.text for shape in shapes), published), shapes)


def _below(rng: Random, count: int) -> int:
    return int(rng.random() * count)


def _pick(rng: Random, words: tuple[str, ...]) -> str:
    # Popularity falls with rank, as it does for files.
    return words[int(len(words) * rng.random() ** 1.5)]


def _size(rng: Random) -> int:
    # Uniform in its logarithm.
    return int(_SIZE_MAX ** rng.random())


def _event(rng: Random) -> dict[str, Any]:
    event: dict[str, Any] = {
        "name": f"{_pick(rng, _STEMS)}-{_pick(rng, _ENDS)}-{_below(rng, 1000)}",
        "type": _pick(rng, _TYPES),
        "size": _size(rng),
    }
    if rng.random() < 0.05:
        event["type"] = None
    if rng.random() < 0.02:
        del event["size"]
    return event


def _shape(rng: Random) -> Shape:
    draw = rng.random()
    if draw < 0.02:
        return Shape(holed=True)
    if draw < 0.40:
        return Shape(type=_pick(rng, _TYPES), prefix=_pick(rng, _STEMS))
    if draw < 0.60:
        return Shape(type=_pick(rng, _TYPES), low=_size(rng))
    if draw < 0.75:
        return Shape(prefix=f"{_pick(rng, _STEMS)}-{_pick(rng, _ENDS)}")
    low = _size(rng)
    if draw < 0.95:
        return Shape(low=low, high=low + low // 4)
    return Shape(high=1 + _below(rng, 8))
