"""What a publisher keeps of a topic after it was published: its own batches, bounded by age and by bytes.

A topic's ``Retention`` travels with its advertisement, so every publisher of the topic keeps its own batches by the same rule. A
batch is kept from the moment it is sealed; what still waits for its receipt is never trimmed, and is bounded by the publisher's
window. With a data directory the batch is on disk once, under ``ret/``: the outbox holds a mark and no second copy. What was
trimmed is remembered as one id for each topic, so that who asks for more than is there can be told (history.py).

Ids are ordered: (incarnation, sequence) grows over a publisher's lives. Age is by the wall clock of the publisher's host,
because it must survive a restart; a clock that jumps changes what is trimmed, never what is called trimmed.
"""

from __future__ import annotations

import heapq
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from itertools import islice

import msgspec
from msgspec import Struct, structs

from gossamer.filters.packed import private
from gossamer.machine import Forget, Keep
from gossamer.overlay.batch import Batch

Id = tuple[int, int]
"""(incarnation, sequence) of one publisher's event."""

SECONDS_MAX = 10 * 365 * 86_400
BYTES_MAX = 1 << 40
BYTES_DEFAULT = 256 << 20  # where only an age is given
OVERHEAD = 256  # what a batch costs beside its rows, about
TRIMS_A_STORE = 256
TRIMS_A_CALL = 4096
SEQUENCE_MAX = 2**53
_KEY, _TRIMMED = "ret/", "trim/"
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_SIZES = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?) *([A-Za-z]+)")
_encoder = msgspec.msgpack.Encoder()


class RetentionError(ValueError):
    """A retention that cannot be read; says what can."""


class Retention(Struct, frozen=True):
    """How long, and how much of it, each publisher keeps of a topic. Zero seconds: age does not matter."""

    seconds: int
    bytes: int

    @classmethod
    def parse(cls, text: str) -> Retention:
        """``1h``, ``64MB``, or both: ``1h, 64MB`` (what is reached first trims)."""
        seconds, size = 0, 0
        for part in text.split(","):
            found = _PART.fullmatch(part.strip())
            unit = found[2] if found is not None else ""
            if found is not None and unit.lower() in _UNITS and not seconds:
                seconds = int(float(found[1]) * _UNITS[unit.lower()])
            elif found is not None and unit.upper() in _SIZES and not size:
                size = int(float(found[1]) * _SIZES[unit.upper()])
            else:
                raise RetentionError(
                    f"cannot read retention {text!r}; write an age (s, m, h, d), a size (KB, MB, GB) or both: '1h', '64MB', "
                    "'1h, 64MB'"
                )
        if not 0 <= seconds <= SECONDS_MAX or not 0 <= size <= BYTES_MAX or not seconds + size:
            raise RetentionError(
                f"retention {text!r} is out of bounds: up to ten years and 1024 GB, and not nothing"
            )
        return cls(seconds, size or BYTES_DEFAULT)

    @property
    def text(self) -> str:
        size = next(
            f"{self.bytes // by}{unit}"
            for unit, by in reversed(_SIZES.items())
            if self.bytes % by == 0
        )
        if not self.seconds:
            return size
        age = next(
            f"{self.seconds // by}{unit}"
            for unit, by in reversed(_UNITS.items())
            if self.seconds % by == 0
        )
        return f"{age}, {size}"


def seconds_of(text: str) -> float:
    """A duration such as ``10m``; raises RetentionError."""
    found = _PART.fullmatch(text.strip())
    if found is None or found[2].lower() not in _UNITS:
        raise RetentionError(
            f"cannot read {text!r} as a duration; write for example 30s, 10m, 1h or 7d"
        )
    return float(found[1]) * _UNITS[found[2].lower()]


class Kept(Struct, array_like=True, gc=False):
    """One retained batch: when it was sealed (Unix microseconds), and the batch as it was published."""

    at: int
    batch: Batch


_kept_decoder = msgspec.msgpack.Decoder(Kept)
_trimmed_decoder = msgspec.msgpack.Decoder(tuple[str, int, int, int])


class _Topic:
    __slots__ = ("ahead", "batches", "bytes", "events", "head", "keys", "trimmed", "trimmed_at")

    def __init__(self, trimmed: Id) -> None:
        self.batches: dict[Id, Kept] = {}  # ascending
        self.keys: list[Id] = []  # theirs, from ``head`` on
        self.ahead: list[int] = []  # events that were kept before each of them
        self.head = 0
        self.events = 0  # that were ever kept in this life
        self.bytes = 0
        self.trimmed = trimmed  # the last event that is gone
        self.trimmed_at = 0  # when it was published (Unix microseconds); 0: not known

    @property
    def first(self) -> Kept:
        return self.batches[self.keys[self.head]]

    @property
    def newest(self) -> Id:
        """The last event that was published on the topic, as far as that is known."""
        if not self.batches:
            return self.trimmed
        last = self.batches[self.keys[-1]].batch
        return max(self.trimmed, (last.incarnation, last.first + last.count - 1))

    def add(self, id: Id, kept: Kept) -> None:
        self.batches[id] = kept
        self.keys.append(id)
        self.ahead.append(self.events)
        self.events += kept.batch.count

    def count(self, after: Id) -> int:
        """How many events are retained after an id."""
        place = max(self.head, bisect_right(self.keys, after, self.head) - 1)
        if place == len(self.keys):
            return 0
        batch = self.batches[self.keys[place]].batch
        had = 0
        if (batch.incarnation, batch.first) <= after:
            is_inside = batch.incarnation == after[0]
            had = min(batch.count, after[1] - batch.first + 1) if is_inside else batch.count
        return self.events - self.ahead[place] - had

    def forget(self, count: int) -> None:
        for id in self.keys[self.head : self.head + count]:
            del self.batches[id]
        self.head += count
        if self.head > 1024 and 2 * self.head > len(self.keys):
            del self.keys[: self.head], self.ahead[: self.head]
            self.head = 0


class Retained:
    """This node's own batches by topic, oldest first. Changes to the disk are returned, to be stored in this order."""

    def __init__(self, *, durable: bool, total: int, life: int = 1) -> None:
        self.durable, self.total, self._life = durable, total, life
        self.bytes = 0
        self.trimmed = 0  # batches, in this life
        self._topics: dict[str, _Topic] = {}
        self._told: dict[
            str, None
        ] = {}  # topics without retention that the disk knows to be published on in this life

    @staticmethod
    def key(incarnation: int, first: int) -> str:
        return f"{_KEY}{incarnation:016d}/{first:016d}"

    @staticmethod
    def encode(batch: Batch, at: int) -> bytes:
        return _encoder.encode(Kept(at, batch))

    @staticmethod
    def decode(value: bytes) -> Kept:
        return _kept_decoder.decode(value)

    def restore(self, kept: Mapping[str, bytes]) -> None:
        for key, value in kept.items():
            if key.startswith(_TRIMMED):
                topic, incarnation, sequence, at = _trimmed_decoder.decode(value)
                found = self._topics[topic] = _Topic((incarnation, sequence))
                found.trimmed_at = at
        for key in sorted(key for key in kept if key.startswith(_KEY)):
            one = self.decode(kept[key])
            self.add(one.batch, one.at)

    def begin(self, topic: str) -> list[Keep | Forget]:
        """The topic has a retention from now on: what an earlier life published is known, or known to be unknown."""
        return [self._mark(topic, self._topic(topic))] if self.durable else []

    def add(self, batch: Batch, at: int) -> None:
        """Keep a batch that has been accepted."""
        topic, id = self._topic(batch.topic), (batch.incarnation, batch.first)
        rows = private(batch.rows)
        topic.add(id, Kept(at, batch if rows is batch.rows else structs.replace(batch, rows=rows)))
        topic.bytes += len(batch.rows) + OVERHEAD
        self.bytes += len(batch.rows) + OVERHEAD

    def tell(self, topic: str, at: int) -> list[Keep | Forget]:
        """What the disk must know before a batch of a topic without retention is published: that this life did, so that the next
        one can say what it cannot know. Once a life and topic.
        """
        if topic in self._told or not self.durable:
            return []
        self._told[topic] = None
        return [Keep(f"{_TRIMMED}{topic}", _encoder.encode((topic, self._life, SEQUENCE_MAX, at)))]

    def untell(self, topic: str) -> None:
        """The disk did not take that: it is to be told with the next batch."""
        self._told.pop(topic, None)

    def skip(self, batch: Batch, at: int) -> None:
        """A batch of a topic without retention has been accepted."""
        topic = self._topic(batch.topic)
        topic.trimmed, topic.trimmed_at = (
            max(topic.trimmed, (batch.incarnation, batch.first + batch.count - 1)),
            at,
        )

    def trimmed_through(self, topic: str) -> tuple[Id, int]:
        """The last event that is gone, and when it was published."""
        found = self._topics.get(topic)
        return (found.trimmed, found.trimmed_at) if found is not None else ((0, 0), 0)

    def newest(self, topic: str) -> Id:
        """The last event that was published on the topic; (0, 0): none, as far as is known."""
        found = self._topics.get(topic)
        return found.newest if found is not None else (0, 0)

    def count(self, topic: str, after: Id) -> int:
        """How many events of the topic are retained after an id."""
        found = self._topics.get(topic)
        return found.count(after) if found is not None else 0

    def batches(self, topic: str, after: Id) -> Iterator[Kept]:
        """Those with events after an id, oldest first."""
        found = self._topics.get(topic)
        if found is None:
            return
        keys = found.keys
        for place in range(max(found.head, bisect_right(keys, after, found.head) - 1), len(keys)):
            kept = found.batches[keys[place]]
            if (kept.batch.incarnation, kept.batch.first + kept.batch.count - 1) > after:
                yield kept

    def trim(
        self,
        rules: Mapping[str, Retention],
        waits: Callable[[Id], bool],
        at: int,
        only: str | None = None,
    ) -> list[list[Keep | Forget]]:
        """Let go of what is too old or too much, as groups of records to store; some at a time, so a call ends soon.

        ``waits``: whether the batch with this first id has no receipt yet; it stays, and what came after it on its topic.
        ``only``: look at this topic alone, which takes no longer the more topics there are.
        """
        gone: dict[str, list[Id]] = {}
        for name in [only] if only is not None else self._topics:
            topic, rule = self._topic(name), rules.get(name)
            if rule is None:
                continue  # a topic that is not advertised (yet) in this life stays as it was
            oldest = at - rule.seconds * 1_000_000 if rule.seconds else None
            for id in islice(topic.keys, topic.head, topic.head + TRIMS_A_CALL):
                too_old = oldest is not None and topic.batches[id].at < oldest
                if waits(id) or not (too_old or topic.bytes > rule.bytes):
                    break
                self._let_go(topic, id)
                gone.setdefault(name, []).append(id)
            topic.forget(len(gone.get(name, ())))
        if only is None and self.bytes > self.total:
            for name, ids in self._trim_all(waits).items():
                gone.setdefault(name, []).extend(ids)
        if not self.durable:
            return []
        # What is gone is said before it goes: a crash between the two leaves more, never a hole that nobody knows of.
        return [
            [
                self._mark(name, self._topics[name]),
                *(Forget(self.key(*id)) for id in ids[start : start + TRIMS_A_STORE]),
            ]
            for name, ids in gone.items()
            for start in range(0, len(ids), TRIMS_A_STORE)
        ]

    def void(self, topic: str, last: Id, at: int) -> list[list[Keep | Forget]]:
        """Nobody can read this topic's events up to an id any more.

        They go, and are remembered as gone. Returns groups of records to store.
        """
        found = self._topics.get(topic)
        if found is None or not (found.batches or found.trimmed > (0, 0)):
            return []
        ids = found.keys[found.head :]
        for id in ids:
            self._let_go(found, id)
        found.forget(len(ids))
        found.trimmed, found.trimmed_at = max(found.trimmed, last), at
        return [
            [
                self._mark(topic, found),
                *(Forget(self.key(*id)) for id in ids[start : start + TRIMS_A_STORE]),
            ]
            for start in range(0, max(1, len(ids)), TRIMS_A_STORE)
        ]

    def _trim_all(self, waits: Callable[[Id], bool]) -> dict[str, list[Id]]:
        """All topics together have too much: the oldest of any goes first."""
        gone: dict[str, list[Id]] = {}
        heads = [(topic.first.at, name) for name, topic in self._topics.items() if topic.batches]
        heapq.heapify(heads)
        for _ in range(TRIMS_A_CALL):
            if not heads or self.bytes <= self.total:
                break
            name = heads[0][1]
            topic = self._topics[name]
            id = topic.keys[topic.head]
            if waits(id):
                heapq.heappop(heads)
                continue
            self._let_go(topic, id)
            topic.forget(1)
            gone.setdefault(name, []).append(id)
            if topic.batches:
                heapq.heapreplace(heads, (topic.first.at, name))
            else:
                heapq.heappop(heads)
        return gone

    def _let_go(self, topic: _Topic, id: Id) -> None:
        kept = topic.batches[id]
        size = len(kept.batch.rows) + OVERHEAD
        topic.bytes -= size
        self.bytes -= size
        self.trimmed += 1
        topic.trimmed, topic.trimmed_at = (id[0], id[1] + kept.batch.count - 1), kept.at

    def is_over(self, rules: Mapping[str, Retention], topic: str) -> bool:
        """Whether a topic, or the node, has more than it may."""
        rule = rules.get(topic)
        return self.bytes > self.total or (
            rule is not None and self._topic(topic).bytes > rule.bytes
        )

    @property
    def is_much_over(self) -> bool:
        """Whether all topics together have so much more than they may that looking at all of them is worth it."""
        return self.bytes > self.total + self.total // 16

    def oldest(self, rules: Mapping[str, Retention]) -> int | None:
        """When the first batch will be too old (Unix microseconds), or None."""
        found: int | None = None
        for name, topic in self._topics.items():
            rule = rules.get(name)
            if rule is not None and rule.seconds and topic.batches:
                due = topic.first.at + rule.seconds * 1_000_000 + 1
                found = due if found is None else min(found, due)
        return found

    def about(self) -> dict[str, dict[str, int]]:
        """Plain data for ``gossamer status``."""
        return {
            name: {"batches": len(topic.batches), "bytes": topic.bytes}
            for name, topic in self._topics.items()
            if topic.batches
        }

    def _topic(self, name: str) -> _Topic:
        found = self._topics.get(name)
        if found is None:
            found = self._topics[name] = _Topic((0, 0))
        return found

    @staticmethod
    def _mark(name: str, topic: _Topic) -> Keep:
        return Keep(f"{_TRIMMED}{name}", _encoder.encode((name, *topic.trimmed, topic.trimmed_at)))
