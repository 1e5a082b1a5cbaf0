"""What one node is interested in, as every other node holds it: an immutable record, and how records change.

A record is (peer, life, version, address, topics). ``life`` is the incarnation (24 bits) with 8 random bits below it: a restart
without memory of itself is told from its old life even before it has heard of it. ``version`` counts changes within a life.
Records of a peer are totally ordered by (life, version, check); views merge by taking the greatest, so they agree whatever the
order in which news arrives.

Topics are 64-bit hashes of names (claim 4), packed: 8 bytes each, big-endian, ascending. With each goes a stamp of 4 bytes: the
node's leave counter at the time of subscribing (claim 5), shifted by four bits for the routes. 12 bytes a pair in memory and on
the wire, and a decoded record is a handful of objects however many topics it has. The counter only grows within a life, so a topic
whose stamp differs was left and came back, however many versions were missed in between.

A change travels as the touched topics with their final state, 12 bytes each (``LEFT`` for a topic that was left). It applies to any
version from its base on, not only to the base itself: a topic that was joined and left in between is in it as left.
"""

from __future__ import annotations

import struct
from hashlib import blake2b
from typing import Annotated

from msgspec import Meta, Struct

from gossamer.machine import Peer

TOPICS_MAX = 65_536  # of one node
ADDRESS_MAX = 255
LIFE_MAX = VERSION_MAX = 2**32 - 1
INCARNATION_MAX = LIFE_MAX >> 8
EXTRA_MAX = 4096
CERTIFICATE_MAX = 2048
ROUTES = (
    "direct",
    "skiplist",
    "tree",
    "flood",
)  # how a node's subscriptions to a topic are served: a bit each in its stamp
ROUTE_BITS = len(ROUTES)
ROUTES_ALL = (1 << ROUTE_BITS) - 1
COUNTER_MAX = (1 << 32 - ROUTE_BITS) - 2  # leaves within a life; beyond it a new life begins

TOPIC, STAMP, CHANGE = 8, 4, 12  # bytes
LEFT = b"\xff\xff\xff\xff"

Uint64 = Annotated[int, Meta(ge=0)]
Life = Annotated[int, Meta(ge=0, le=LIFE_MAX)]
Version = Annotated[int, Meta(ge=0, le=VERSION_MAX)]
Address = Annotated[str, Meta(max_length=ADDRESS_MAX)]


class Record(Struct, frozen=True, array_like=True, gc=False):
    """One node, and what it wants."""

    peer: Uint64
    life: Life
    version: Version
    address: Address = ""  # where others can reach it; empty if they cannot
    topics: Annotated[bytes, Meta(max_length=TOPIC * TOPICS_MAX)] = b""
    stamps: Annotated[bytes, Meta(max_length=STAMP * TOPICS_MAX)] = b""
    extra: Annotated[bytes, Meta(max_length=EXTRA_MAX)] = (
        b""  # what its owner adds for others to read; opaque here
    )
    certificate: Annotated[bytes, Meta(max_length=CERTIFICATE_MAX)] = (
        b""  # proves who it is, where there are keys; opaque here
    )

    @property
    def incarnation(self) -> int:
        return self.life >> 8

    @property
    def count(self) -> int:
        """How many topics. Not a length: a record without topics is still one."""
        return len(self.topics) // TOPIC

    def stamp(self, topic: bytes) -> bytes | None:
        """The stamp of a topic, or None if this node does not want it."""
        place = find(self.topics, topic)
        return None if place < 0 else self.stamps[place * STAMP : place * STAMP + STAMP]

    def pairs(self) -> dict[bytes, bytes]:
        topics, stamps = self.topics, self.stamps
        return {
            topics[8 * place : 8 * place + 8]: stamps[4 * place : 4 * place + 4]
            for place in range(len(topics) // TOPIC)
        }


def topic_hash(name: str) -> bytes:
    """64 bits for a name of any length (claim 4)."""
    return blake2b(name.encode(), digest_size=TOPIC).digest()


def make_stamp(counter: int, routes: int = 0) -> bytes:
    return (counter << ROUTE_BITS | routes).to_bytes(STAMP, "big")


def read_stamp(stamp: bytes) -> tuple[int, int]:
    """Leave counter and routes."""
    value = int.from_bytes(stamp, "big")
    return value >> ROUTE_BITS, value & ROUTES_ALL


def route_names(routes: int) -> str:
    """The routes of a stamp in words; "none" for an interest that asks for no events."""
    return "+".join(name for bit, name in enumerate(ROUTES) if routes >> bit & 1) or "none"


def find(topics: bytes, topic: bytes) -> int:
    """The place of a topic, or -1. A search of bytes beats a bisection in Python for any size that occurs."""
    at = topics.find(topic)
    while at >= 0 and at % TOPIC:
        at = topics.find(topic, at + 1)
    return at // TOPIC if at >= 0 else -1


def apply(record: Record, version: int, changes: bytes) -> Record:
    """The record after some changes."""
    if not changes:
        return Record(
            record.peer, record.life, version, record.address, record.topics, record.stamps, record.extra, record.certificate
        )  # fmt: skip
    if len(changes) == CHANGE:
        topics, stamps = _apply_one(record.topics, record.stamps, changes[:TOPIC], changes[TOPIC:])
    else:
        pairs = record.pairs()
        for at in range(0, len(changes), CHANGE):
            topic, stamp = changes[at : at + TOPIC], changes[at + TOPIC : at + CHANGE]
            if stamp == LEFT:
                pairs.pop(topic, None)
            else:
                pairs[topic] = stamp
        ordered = sorted(pairs)
        topics, stamps = b"".join(ordered), b"".join(map(pairs.__getitem__, ordered))
    return Record(
        record.peer,
        record.life,
        version,
        record.address,
        topics,
        stamps,
        record.extra,
        record.certificate,
    )


def _apply_one(topics: bytes, stamps: bytes, topic: bytes, stamp: bytes) -> tuple[bytes, bytes]:
    low, high = 0, len(topics) // TOPIC
    while low < high:
        middle = (low + high) // 2
        if topics[middle * TOPIC : middle * TOPIC + TOPIC] < topic:
            low = middle + 1
        else:
            high = middle
    at, stamp_at = low * TOPIC, low * STAMP
    is_there = topics[at : at + TOPIC] == topic
    after, stamps_after = at + TOPIC * is_there, stamp_at + STAMP * is_there
    if stamp == LEFT:
        return topics[:at] + topics[after:], stamps[:stamp_at] + stamps[stamps_after:]
    return topics[:at] + topic + topics[after:], stamps[:stamp_at] + stamp + stamps[stamps_after:]


def is_well_formed(record: Record) -> bool:
    """What types cannot say: lengths agree, and topics ascend strictly; nor do they see a record that changes made too long."""
    count, rest = divmod(len(record.topics), TOPIC)
    if rest or count > TOPICS_MAX or len(record.stamps) != count * STAMP:
        return False
    hashes = struct.unpack(f">{count}Q", record.topics)
    return all(map(int.__lt__, hashes, hashes[1:]))


_HEAD = struct.Struct(">QII")
_ENTRY = struct.Struct(">QIII")
_MASK = 2**64 - 1


def mix(value: int) -> int:
    """Spreads 64 bits: for sums over peers and for cutting them into parts, however they were chosen."""
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _MASK
    return value ^ value >> 31


class Known:
    """A record with its digest. Shared between the views of simulated nodes, so that thousands of them fit one process."""

    __slots__ = ("digest", "order", "record", "spread")

    def __init__(self, record: Record) -> None:
        head = _HEAD.pack(record.peer, record.life, record.version)
        content = (
            head
            + record.address.encode()
            + b"\0"
            + record.topics
            + record.stamps
            + record.extra
            + record.certificate
        )
        self.record = record
        self.digest = int.from_bytes(blake2b(content, digest_size=8).digest(), "big")
        self.spread = mix(record.peer)
        self.order = (record.life, record.version, self.digest & 0xFFFFFFFF)


class Pool:
    """Records by content: equal ones become one object. Without one (a real node) each record is checked and made anew."""

    def __init__(self, maximum: int = 200_000) -> None:
        self._known: dict[Record, Known] = {}
        self._maximum = maximum

    def get(self, record: Record) -> Known | None:
        """The record with its digest, or None if it is malformed."""
        known = self._known.get(record)
        if known is None:
            known = learn(record)
            if known is not None:
                if len(self._known) >= self._maximum:
                    self._known.clear()  # only a cache: what views hold stays
                self._known[record] = known
        return known


def learn(record: Record) -> Known | None:
    return Known(record) if is_well_formed(record) else None


def pack_entries(entries: dict[Peer, tuple[int, int, int]]) -> bytes:
    return b"".join([_ENTRY.pack(peer, *order) for peer, order in entries.items()])


def read_entries(data: bytes) -> dict[Peer, tuple[int, int, int]]:
    whole = len(data) - len(data) % _ENTRY.size
    return {
        Peer(peer): (life, version, check)
        for peer, life, version, check in _ENTRY.iter_unpack(data[:whole])
    }


class ViewChange(Struct, frozen=True):
    """One node's interest changed: what was known of it before, and what is now. None: not a member."""

    peer: Peer
    before: Record | None
    after: Record | None
    reason: str  # "joined", "news", "left" (by itself), "failed" (declared dead), "new life"

    @property
    def is_interest(self) -> bool:
        """Somebody came, went or began anew, or wants something else; not a sign of life, nor another address."""
        old, new = self.before, self.after
        if old is None or new is None or old.life != new.life:
            return True
        return old.topics != new.topics or old.stamps != new.stamps

    @property
    def is_told(self) -> bool:
        """More than a sign of life: what it wants, where it is, or what its owner says of it."""
        old, new = self.before, self.after
        return self.is_interest or (
            old is not None
            and new is not None
            and (old.address, old.extra) != (new.address, new.extra)
        )

    @property
    def joined(self) -> tuple[bytes, ...]:
        return self._compare()[0]

    @property
    def left(self) -> tuple[bytes, ...]:
        return self._compare()[1]

    @property
    def returned(self) -> tuple[bytes, ...]:
        """Topics that were left and came back unseen (claim 5): whoever retains data for them has a need to send it."""
        return self._compare()[2]

    def _compare(self) -> tuple[tuple[bytes, ...], tuple[bytes, ...], tuple[bytes, ...]]:
        old = self.before.pairs() if self.before else {}
        new = self.after.pairs() if self.after else {}
        other_life = (
            self.before is not None
            and self.after is not None
            and self.before.life != self.after.life
        )
        joined = tuple(topic for topic in new if topic not in old)
        left = tuple(topic for topic in old if topic not in new)
        returned = tuple(
            topic
            for topic, stamp in new.items()
            if topic in old and (other_life or read_stamp(old[topic])[0] != read_stamp(stamp)[0])
        )
        return joined, left, returned
