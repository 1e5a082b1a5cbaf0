"""Versioned records of events in a run, written by simulations and live nodes and read by the
pipeline.

A trace file is JSON lines: a ``Header``, then one ``Stamped`` record a line. Each class states the
grain of its records. Event ids are (publisher, incarnation, sequence). A subscription is (node,
incarnation, subscription). Peers are 64-bit numbers and are written as 16 hex digits, because JSON
readers (Spark's included) have no unsigned 64-bit integers.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import msgspec
from msgspec import Struct

VERSION = 1


def hex_peer(peer: int) -> str:
    return f"{peer:016x}"


class Advertised(Struct, frozen=True, tag="advertised", tag_field="kind"):
    """A topic's schema was advertised here, or learnt from a peer."""

    topic: str
    schema: str


class Subscribing(Struct, frozen=True, tag="subscribing", tag_field="kind"):
    """``subscribe`` was called: from here on events are allowed."""

    subscription: int
    topic: str
    filter: str
    # The name of a durable subscription. One of another life of the node with this name is the
    # same.
    name: str = ""
    # since=: history from this moment on, in Unix microseconds.
    start: int | None = None
    # Of the subscriptions with this group, one gets each event.
    group: str = ""


class Subscribed(Struct, frozen=True, tag="subscribed", tag_field="kind"):
    """``subscribe`` returned: from here on events are due."""

    subscription: int


class Unsubscribed(Struct, frozen=True, tag="unsubscribed", tag_field="kind"):
    """The subscription ended: nothing is due after this."""

    subscription: int
    # Or "slow": it was cut off because it did not take its events in time.
    reason: str = "asked"


class Published(Struct, frozen=True, tag="published", tag_field="kind"):
    """One event was accepted from the user. There is one record for each event."""

    topic: str
    sequence: int
    incarnation: int
    values: dict[str, Any]


class Completed(Struct, frozen=True, tag="completed", tag_field="kind"):
    """A receipt is complete. There is one record for each event."""

    sequence: int
    incarnation: int
    matched: int
    # The number of subscriptions that were handed the event and had discarded it when they
    # reported.
    dropped: int = 0


class Delivered(Struct, frozen=True, tag="delivered", tag_field="kind"):
    """An event was handed to a subscription. There is one record for each hand-over."""

    subscription: int
    publisher: str
    incarnation: int
    sequence: int
    hops: int
    # It was handed over before, and not acknowledged.
    again: bool = False


class Discarded(Struct, frozen=True, tag="discarded", tag_field="kind"):
    """An event was handed to a subscription, which discarded it before its consumer took it.

    There is one record for each event. ``reported`` says that the report that counts it had left
    before. Events that slow="drop_oldest" discards after the report have no record.
    """

    subscription: int
    publisher: str
    incarnation: int
    sequence: int
    reported: bool


class Gapped(Struct, frozen=True, tag="gapped", tag_field="kind"):
    """A subscription was told that events of a publisher may be lost to it."""

    subscription: int
    publisher: str
    reason: str


class Duplicate(Struct, frozen=True, tag="duplicate", tag_field="kind"):
    """Copies of events that had arrived before were dropped. There is one record for each
    message.
    """

    peer: str
    events: int


class Rejected(Struct, frozen=True, tag="rejected", tag_field="kind"):
    """A peer sent something that it must not send. It was ignored."""

    peer: str
    reason: str
    # It was bad enough to cut the peer off.
    cut: bool = False


class Dropped(Struct, frozen=True, tag="dropped", tag_field="kind"):
    """Something was dropped because a stated maximum was reached."""

    what: str
    count: int
    reason: str


class Linked(Struct, frozen=True, tag="linked", tag_field="kind"):
    """The link to a peer changed. ``state`` is up, down, cut (for cause), full or ready."""

    peer: str
    state: str
    # Why it is down.
    reason: str = ""


class Restored(Struct, frozen=True, tag="restored", tag_field="kind"):
    """The node came back with the state that its disk had kept."""

    incarnation: int
    events: int


class Member(Struct, frozen=True, tag="member", tag_field="kind"):
    """A node became a member of this node's view, ceased to be one, or began a new life."""

    peer: str
    incarnation: int
    # One of joined, new life, left (it said so itself), failed (declared dead).
    change: str


class Conflict(Struct, frozen=True, tag="conflict", tag_field="kind"):
    """Another process uses this node's identity: a data directory was copied, or a name given
    twice.
    """

    peer: str
    incarnation: int


class SchemaConflict(Struct, frozen=True, tag="schema_conflict", tag_field="kind"):
    """A topic is advertised with another schema than this node's, and neither extends the other."""

    topic: str
    # The other schema.
    schema: str
    # The node that advertised it.
    peer: str
    # The schema that this node has.
    here: str


Record = (
    Advertised
    | Subscribing
    | Subscribed
    | Unsubscribed
    | Published
    | Completed
    | Delivered
    | Discarded
    | Gapped
    | Duplicate
    | Rejected
    | Dropped
    | Linked
    | Restored
    | Member
    | Conflict
    | SchemaConflict
)


class Header(Struct, frozen=True, tag="header", tag_field="kind"):
    """The first line of a trace file."""

    version: int
    node: str
    incarnation: int


class Stamped(Struct, frozen=True):
    """A record with its time and its node.

    The time is in microseconds: Unix time for a live node, and virtual time in a simulation.
    """

    at: int
    node: str
    record: Record


_encoder = msgspec.json.Encoder()
_header_decoder = msgspec.json.Decoder(Header)
_stamped_decoder = msgspec.json.Decoder(Stamped)


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values in a form that JSON can carry.

    JSON has no NaN and no infinities, so these become strings that Spark reads back.
    """

    def one(value: Any) -> Any:
        if type(value) is float and not math.isfinite(value):
            return str(value).replace("inf", "Infinity").replace("nan", "NaN")
        return plain(value) if isinstance(value, dict) else value

    return {name: one(value) for name, value in values.items()}


class Writer:
    """Appends stamped records to a file. The caller says when they must reach it."""

    def __init__(self, file: IO[bytes], node: int, incarnation: int) -> None:
        self._file, self._node = file, hex_peer(node)
        file.write(_encoder.encode(Header(VERSION, self._node, incarnation)) + b"\n")

    def write(self, at: int, record: Record) -> None:
        self._file.write(_encoder.encode(Stamped(at, self._node, record)) + b"\n")

    def flush(self) -> None:
        self._file.flush()


DIGEST_CHUNK = 1 << 14


class Digest:
    """A running hash over stamped records. Equal digests mean equal runs, to the byte."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        # Bytes that are not hashed yet. Hashing many at once is faster.
        self._waiting = bytearray()
        self.count = 0

    def add(self, at: int, node: int, record: Record) -> None:
        self.update(_encoder.encode(Stamped(at, hex_peer(node), record)))
        self.count += 1

    def update(self, data: bytes) -> None:
        waiting = self._waiting
        waiting += data
        if len(waiting) > DIGEST_CHUNK:
            self._hash.update(waiting)
            waiting.clear()

    def hexdigest(self) -> str:
        self._hash.update(self._waiting)
        self._waiting.clear()
        return self._hash.hexdigest()


class TraceError(ValueError):
    """A trace file that cannot be read. The message names the line and the remedy."""


def read(path: Path) -> Iterator[Stamped]:
    """The records of one trace file.

    A torn last line (the node was killed) ends the file. Any other bad line is an error.
    """
    with path.open("rb") as file:
        first = file.readline()
        try:
            header = _header_decoder.decode(first)
        except msgspec.DecodeError as error:
            raise TraceError(
                f"{path}: line 1 is not a trace header ({error}); is this a gossamer trace file?"
            ) from None
        if header.version != VERSION:
            raise TraceError(
                f"{path}: trace version {header.version}, this gossamer reads {VERSION}; "
                "re-record or upgrade"
            )
        for number, line in enumerate(file, start=2):
            try:
                yield _stamped_decoder.decode(line)
            except msgspec.DecodeError as error:
                if not line.endswith(b"\n"):
                    return
                raise TraceError(f"{path}: line {number} is not a trace record ({error})") from None
