"""A publisher's retained batches: its own, bounded by age and by bytes.

A topic's ``Retention`` travels with its advertisement, so every publisher of the topic keeps its
own batches by the same rule. A batch is kept from the moment it is sealed. A batch without a
receipt is never trimmed, and the publisher's window bounds those. With a data directory the batch
is on disk once, under ``ret/``: the outbox holds a mark and no second copy. For each topic the last
trimmed event is remembered by its id, so that a node that asks for more can be told that it is gone
(history.py).

Ids are ordered: (incarnation, sequence) grows over a publisher's lives. Age is measured by the wall
clock of the publisher's host, because it must survive a restart. A clock that jumps changes which
events are trimmed. The record of the trimmed events stays right.
"""

from __future__ import annotations

import heapq
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct, structs

from gossamer.filters.packed import private
from gossamer.machine import NEVER, SECOND, Effect, Forget, Keep, Micros, Store
from gossamer.overlay.batch import Batch

if TYPE_CHECKING:
    from gossamer.node.outbox import Outbox

Id = tuple[int, int]
"""The (incarnation, sequence) of one publisher's event."""

SECONDS_MAX = 10 * 365 * 86_400
BYTES_MAX = 1 << 40
# The size for a rule that has only an age.
BYTES_DEFAULT = 256 << 20
# The approximate cost of a batch beside its rows.
OVERHEAD = 256
TRIMS_A_STORE = 256
TRIMS_A_CALL = 4096
# The time to the next look, after more than is retained has been published, and otherwise.
TRIM_SOON = Micros(SECOND // 10)
TRIM_EVERY = Micros(SECOND)
SEQUENCE_MAX = 2**53
_KEY, _TRIMMED = "ret/", "trim/"
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_SIZES = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?) *([A-Za-z]+)")
_encoder = msgspec.msgpack.Encoder()


class RetentionError(ValueError):
    """A retention that cannot be read. The message says which can be."""


class Retention(Struct, frozen=True):
    """How long, and how many bytes, each publisher keeps of a topic.

    With zero seconds the age does not matter.
    """

    seconds: int
    bytes: int

    @classmethod
    def parse(cls, text: str) -> Retention:
        """Reads ``1h``, ``64MB``, or both: ``1h, 64MB``. The limit that is reached first trims."""
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
                    f"cannot read retention {text!r}; write an age (s, m, h, d), "
                    "a size (KB, MB, GB) or both: '1h', '64MB', "
                    "'1h, 64MB'"
                )
        if not 0 <= seconds <= SECONDS_MAX or not 0 <= size <= BYTES_MAX or not seconds + size:
            raise RetentionError(
                f"retention {text!r} is out of bounds: "
                "up to ten years and 1024 GB are possible, and not zero of both"
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
    """The seconds of a duration such as ``10m``. Raises a RetentionError."""
    found = _PART.fullmatch(text.strip())
    if found is None or found[2].lower() not in _UNITS:
        raise RetentionError(
            f"cannot read {text!r} as a duration; write for example 30s, 10m, 1h or 7d"
        )
    return float(found[1]) * _UNITS[found[2].lower()]


class Kept(Struct, array_like=True, gc=False):
    """One retained batch: the time when it was sealed (Unix microseconds), and the batch."""

    at: int
    batch: Batch


_kept_decoder = msgspec.msgpack.Decoder(Kept)
_trimmed_decoder = msgspec.msgpack.Decoder(tuple[str, int, int, int])


class _Topic:
    __slots__ = ("ahead", "batches", "bytes", "events", "head", "keys", "trimmed", "trimmed_at")

    def __init__(self, trimmed: Id) -> None:
        # In ascending order.
        self.batches: dict[Id, Kept] = {}
        # The keys of ``batches``, from ``head`` on.
        self.keys: list[Id] = []
        # For each of the keys: the number of events that were added before its batch.
        self.ahead: list[int] = []
        self.head = 0
        # The number of events that were added in this life.
        self.events = 0
        self.bytes = 0
        # The last event that is gone.
        self.trimmed = trimmed
        # When it was published (Unix microseconds). 0: not known.
        self.trimmed_at = 0

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
    """This node's own batches by topic, oldest first.

    Changes to the disk are returned, and are to be stored in this order.
    """

    def __init__(self, *, durable: bool, total: int, life: int = 1) -> None:
        self.durable, self.total, self._life = durable, total, life
        self.bytes = 0
        # Batches, in this life.
        self.trimmed = 0
        self._topics: dict[str, _Topic] = {}
        # Topics without retention, of which the disk knows that this life publishes on them.
        self._told: dict[str, None] = {}

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
        """The topic has a retention from now on.

        The disk records the last event that an earlier life published and did not keep.
        """
        return [self._mark(topic, self._topic(topic))] if self.durable else []

    def add(self, batch: Batch, at: int) -> None:
        """Keeps a batch that has been accepted."""
        topic, id = self._topic(batch.topic), (batch.incarnation, batch.first)
        rows = private(batch.rows)
        topic.add(id, Kept(at, batch if rows is batch.rows else structs.replace(batch, rows=rows)))
        topic.bytes += len(batch.rows) + OVERHEAD
        self.bytes += len(batch.rows) + OVERHEAD

    def tell(self, topic: str, at: int) -> list[Keep | Forget]:
        """The record that the disk needs before a batch of a topic without retention is published.

        It says that this life published on the topic, so that the next life knows that events are
        gone. It is written once for each life and topic.
        """
        if topic in self._told or not self.durable:
            return []
        self._told[topic] = None
        return [Keep(f"{_TRIMMED}{topic}", _encoder.encode((topic, self._life, SEQUENCE_MAX, at)))]

    def untell(self, topic: str) -> None:
        """The disk did not take that record, so it is written with the next batch."""
        self._told.pop(topic, None)

    def skip(self, batch: Batch, at: int) -> None:
        """A batch of a topic without retention has been accepted."""
        topic = self._topics.get(batch.topic) or self._topic(batch.topic)
        last = batch.incarnation, batch.first + batch.count - 1
        topic.trimmed, topic.trimmed_at = max(topic.trimmed, last), at

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
        """The batches with events after an id, oldest first."""
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
        """Lets go of batches that are too old or too many, as groups of records to store.

        It trims some at a time, so that a call ends soon. ``waits`` says whether the batch with
        this first id has no receipt yet. Such a batch stays, with all later ones on its topic.
        ``only`` is the one topic to look at, and then the number of topics does not matter.
        """
        gone: dict[str, list[Id]] = {}
        for name in [only] if only is not None else self._topics:
            topic, rule = self._topic(name), rules.get(name)
            if rule is None:
                # A topic that is not advertised in this life (yet) stays as it was.
                continue
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
        # The mark goes before the batches do. A crash between the two leaves too many batches, and
        # never a gap that is not recorded.
        return [
            [
                self._mark(name, self._topics[name]),
                *(Forget(self.key(*id)) for id in ids[start : start + TRIMS_A_STORE]),
            ]
            for name, ids in gone.items()
            for start in range(0, len(ids), TRIMS_A_STORE)
        ]

    def void(self, topic: str, last: Id, at: int) -> list[list[Keep | Forget]]:
        """Lets go of this topic's events up to an id, because no node can read them any more.

        They are remembered as gone. Returns groups of records to store.
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
        """Trims the oldest batches of any topic while all topics together have too much."""
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
        """Whether all topics together exceed their limit by enough to look at all of them."""
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


class Keeping:
    """Says when a publisher begins to retain a topic's batches, and when it lets go of them."""

    def __init__(
        self, outbox: Outbox, rules: Mapping[str, Retention], out: list[Effect], unix: int
    ) -> None:
        """``unix`` is the time of day at ``now`` = 0, in microseconds. By it the age of a batch
        survives restarts.
        """
        self.deadline = NEVER
        self.unix = unix
        # The topics whose retention has begun.
        self.topics: dict[str, None] = {}
        self._outbox, self._rules, self._out = outbox, rules, out

    def learn(self) -> None:
        """Perhaps another topic has a retention now."""
        if len(self._rules) == len(self.topics):
            return
        for topic in self._rules:
            if topic not in self.topics:
                self.topics[topic] = None
                records = self._outbox.retained.begin(topic)
                if records:
                    self._out.append(Store(self._outbox.token(), tuple(records)))
                self.deadline = Micros(0)

    def make_room(self, topic: str, now: Micros) -> None:
        """A batch of this topic is about to be sealed, and kept."""
        retained = self._outbox.retained
        later = TRIM_EVERY
        if retained.is_over(self._rules, topic):
            # It trims now, and not only when the timer fires. Between two turns of the timer so
            # much may be published that trimming would never catch up. One batch is added and many
            # may go, so this keeps pace whatever is published.
            self._trim(now, None if retained.is_much_over else topic)
            later = TRIM_SOON
        self.deadline = min(self.deadline, Micros(now + later))

    def wake(self, now: Micros) -> None:
        if self.deadline > now:
            return
        outbox = self._outbox
        went = self._trim(now)
        oldest = outbox.retained.oldest(self._rules)
        later = NEVER if oldest is None else Micros(max(oldest - self.unix, now + TRIM_EVERY))
        # A batch without a receipt stays, and may be let go when it has one.
        if outbox.events:
            later = Micros(min(later, now + TRIM_EVERY))
        # If something went, there may be more of it.
        self.deadline = Micros(now + TRIM_SOON) if went else later

    def _trim(self, now: Micros, only: str | None = None) -> bool:
        """Lets go of some batches, and returns whether there were any."""
        outbox, before = self._outbox, self._outbox.retained.trimmed
        groups = outbox.retained.trim(self._rules, outbox.waits, self.unix + now, only)
        self._out += [Store(outbox.token(), tuple(group)) for group in groups]
        return outbox.retained.trimmed > before
