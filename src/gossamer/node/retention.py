"""What a publisher keeps of a topic after it was published: its own batches, bounded by age and by bytes.

A topic's ``Retention`` travels with its advertisement, so every publisher of the topic keeps its own batches by the same rule. A
batch is kept from the moment it is sealed; what still waits for its receipt is never trimmed, and is bounded by the publisher's
window. With a data directory the batch is on disk once, under ``ret/``: the outbox holds a mark and no second copy. What was
trimmed is remembered as one id for each topic, so that who asks for more than is there can be told (history.py).

Ids are ordered: (incarnation, sequence) grows over a publisher's lives. Age is by the wall clock of the publisher's host,
because it must survive a restart; a clock that jumps changes what is trimmed, never what is called trimmed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice

import msgspec
from msgspec import Struct

from gossamer.machine import Forget, Keep
from gossamer.overlay.batch import Batch

Id = tuple[int, int]
"""(incarnation, sequence) of one publisher's event."""

SECONDS_MAX = 10 * 365 * 86_400
BYTES_MAX = 1 << 40
BYTES_DEFAULT = 256 << 20  # where only an age is given
TRIMS_A_STORE = 256
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
            raise RetentionError(f"retention {text!r} is out of bounds: up to ten years and 1024 GB, and not nothing")
        return cls(seconds, size or BYTES_DEFAULT)

    @property
    def text(self) -> str:
        size = next(f"{self.bytes // by}{unit}" for unit, by in reversed(_SIZES.items()) if self.bytes % by == 0)
        if not self.seconds:
            return size
        age = next(f"{self.seconds // by}{unit}" for unit, by in reversed(_UNITS.items()) if self.seconds % by == 0)
        return f"{age}, {size}"


def seconds_of(text: str) -> float:
    """A duration such as ``10m``; raises RetentionError."""
    found = _PART.fullmatch(text.strip())
    if found is None or found[2].lower() not in _UNITS:
        raise RetentionError(f"cannot read {text!r} as a duration; write for example 30s, 10m, 1h or 7d")
    return float(found[1]) * _UNITS[found[2].lower()]


class Kept(Struct, array_like=True, gc=False):
    """One retained batch: when it was sealed (Unix microseconds), and the batch as it was published."""

    at: int
    batch: Batch


_kept_decoder = msgspec.msgpack.Decoder(Kept)
_id_decoder = msgspec.msgpack.Decoder(tuple[str, int, int])


class _Topic:
    __slots__ = ("batches", "bytes", "trimmed")

    def __init__(self) -> None:
        self.batches: dict[Id, Kept] = {}  # ascending
        self.bytes = 0
        self.trimmed: Id = (0, 0)  # the last event that is gone


class Retained:
    """This node's own batches by topic, oldest first. Changes to the disk are returned, to be stored in this order."""

    def __init__(self, *, durable: bool, total: int) -> None:
        self.durable, self.total = durable, total
        self.bytes = 0
        self.trimmed = 0  # batches, in this life
        self._topics: dict[str, _Topic] = {}

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
                topic, incarnation, sequence = _id_decoder.decode(value)
                self._topic(topic).trimmed = (incarnation, sequence)
        for key in sorted(key for key in kept if key.startswith(_KEY)):
            found = self.decode(kept[key])
            self.add(found.batch, found.at)

    def add(self, batch: Batch, at: int) -> None:
        topic = self._topic(batch.topic)
        topic.batches[batch.incarnation, batch.first] = Kept(at, batch)
        topic.bytes += len(batch.rows)
        self.bytes += len(batch.rows)

    def trimmed_through(self, topic: str) -> Id:
        found = self._topics.get(topic)
        return found.trimmed if found is not None else (0, 0)

    def batches(self, topic: str, after: Id) -> Iterator[Kept]:
        """Those with events after an id, oldest first."""
        found = self._topics.get(topic)
        if found is None:
            return
        for (incarnation, first), kept in found.batches.items():
            if (incarnation, first + kept.batch.count - 1) > after:
                yield kept

    def trim(self, rules: Mapping[str, Retention], floor: Id, at: int) -> list[list[Keep | Forget]]:
        """Let go of what is too old or too much, as groups of records to store. Nothing from ``floor`` on goes."""
        groups: list[list[Keep | Forget]] = []
        for name, topic in self._topics.items():
            if not topic.batches:
                continue
            rule = rules.get(name)
            oldest = at - rule.seconds * 1_000_000 if rule is not None and rule.seconds else None
            most = rule.bytes if rule is not None else 0  # not advertised (yet) in this life: as it was
            gone: list[Id] = []
            size = topic.bytes
            for id, kept in islice(topic.batches.items(), TRIMS_A_STORE):
                last = (id[0], id[1] + kept.batch.count - 1)
                over = self.bytes > self.total or (rule is not None and size > most)
                if last >= floor or not (over or (oldest is not None and kept.at < oldest)):
                    break
                gone.append(id)
                size -= len(kept.batch.rows)
                self.bytes -= len(kept.batch.rows)
                topic.trimmed = last
            for id in gone:
                del topic.batches[id]
            topic.bytes = size
            self.trimmed += len(gone)
            if gone and self.durable:
                # What is gone is said before it goes: a crash between the two leaves more, never a hole that nobody knows of.
                value = _encoder.encode((name, *topic.trimmed))
                groups.append([Keep(f"{_TRIMMED}{name}", value), *(Forget(self.key(*id)) for id in gone)])
        return groups

    def oldest(self, rules: Mapping[str, Retention]) -> int | None:
        """When the first batch will be too old (Unix microseconds), or None."""
        found: int | None = None
        for name, topic in self._topics.items():
            rule = rules.get(name)
            if rule is not None and rule.seconds and topic.batches:
                due = next(iter(topic.batches.values())).at + rule.seconds * 1_000_000 + 1
                found = due if found is None else min(found, due)
        return found

    def about(self) -> dict[str, dict[str, int]]:
        """Plain data for ``gossamer status``."""
        return {
            name: {"batches": len(topic.batches), "bytes": topic.bytes, "trimmed_through": topic.trimmed[1]}
            for name, topic in self._topics.items()
        }

    def _topic(self, name: str) -> _Topic:
        found = self._topics.get(name)
        if found is None:
            found = self._topics[name] = _Topic()
        return found
