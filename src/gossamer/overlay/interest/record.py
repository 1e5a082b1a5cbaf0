"""One node's interest as every other node holds it: an immutable record, and its changes.

A record is (peer, life, version, address, topics). ``life`` is the incarnation (24 bits) with 8
random bits below it. So a restart without memory of itself differs from its old life even before
the node has heard of that life. ``version`` counts changes within a life. Records of a peer are
totally ordered by (life, version, check). Views merge by taking the greatest, so they agree
whatever the order of the news.

Topics are 64-bit hashes of names (claim 4). They are packed: 8 bytes each, big-endian, ascending.
Each has a stamp of 4 bytes: the node's leave counter at the time of subscribing (claim 5), shifted
by four bits for the routes. A pair takes 12 bytes in memory and on the wire, and a decoded record
is a handful of objects, whatever the number of its topics. The counter only grows within a life. So
a topic whose stamp differs was left and came back, whatever number of versions was missed in
between.

A change travels as the touched topics with their final state, 12 bytes each (``LEFT`` for a topic
that was left). It applies to any version from its base on, not only to the base itself: a topic
that was joined and left in between is in it as left. With it travels the owner's signature of the
record as it is after the change. So a change counts only if it leads to a record that its owner
has signed.
"""

from __future__ import annotations

import struct
from hashlib import blake2b
from typing import Annotated

from msgspec import Meta, Struct

from gossamer.machine import Peer
from gossamer.overlay.proof import SIGNATURE_MAX

# Of one node.
TOPICS_MAX = 65_536
ADDRESS_MAX = 255
LIFE_MAX = VERSION_MAX = 2**32 - 1
INCARNATION_MAX = LIFE_MAX >> 8
EXTRA_MAX = 4096
CERTIFICATE_MAX = 2048
# The routes of a node's subscriptions to a topic. Each is a bit in the topic's stamp.
ROUTES = ("direct", "skiplist", "tree", "flood")
ROUTE_BITS = len(ROUTES)
ROUTES_ALL = (1 << ROUTE_BITS) - 1
# Leaves within a life. Beyond it a new life begins.
COUNTER_MAX = (1 << 32 - ROUTE_BITS) - 2

# In bytes.
TOPIC, STAMP, CHANGE = 8, 4, 12
HASH = 32
LEFT = b"\xff\xff\xff\xff"

Uint64 = Annotated[int, Meta(ge=0)]
Life = Annotated[int, Meta(ge=0, le=LIFE_MAX)]
Version = Annotated[int, Meta(ge=0, le=VERSION_MAX)]
Address = Annotated[str, Meta(max_length=ADDRESS_MAX)]
Signature = Annotated[bytes, Meta(max_length=SIGNATURE_MAX)]


class Record(Struct, frozen=True, array_like=True, gc=False):
    """One node and its topics."""

    peer: Uint64
    life: Life
    version: Version
    # Where others can reach it; empty if they cannot.
    address: Address = ""
    topics: Annotated[bytes, Meta(max_length=TOPIC * TOPICS_MAX)] = b""
    stamps: Annotated[bytes, Meta(max_length=STAMP * TOPICS_MAX)] = b""
    # Bytes that its owner adds for others to read. They are opaque here.
    extra: Annotated[bytes, Meta(max_length=EXTRA_MAX)] = b""
    # The proof of the node's identity, where there are keys. It is opaque here.
    certificate: Annotated[bytes, Meta(max_length=CERTIFICATE_MAX)] = b""
    # The owner's signature of everything else (``Known.said``); empty without keys.
    signature: Signature = b""

    @property
    def incarnation(self) -> int:
        return self.life >> 8

    @property
    def count(self) -> int:
        """The number of topics. It is not a length: a record without topics is still one."""
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
    """The leave counter and the routes."""
    value = int.from_bytes(stamp, "big")
    return value >> ROUTE_BITS, value & ROUTES_ALL


def route_names(routes: int) -> str:
    """The routes of a stamp in words; "none" for an interest that asks for no events."""
    return "+".join(name for bit, name in enumerate(ROUTES) if routes >> bit & 1) or "none"


def find(topics: bytes, topic: bytes) -> int:
    """The place of a topic, or -1.

    A search of bytes beats a bisection in Python for any size that occurs.
    """
    at = topics.find(topic)
    while at >= 0 and at % TOPIC:
        at = topics.find(topic, at + 1)
    return at // TOPIC if at >= 0 else -1


def apply(record: Record, version: int, changes: bytes, signature: bytes = b"") -> Record:
    """The record after some changes, with its owner's signature."""
    if not changes:
        topics, stamps = record.topics, record.stamps
    elif len(changes) == CHANGE:
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
        signature,
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
    """Checks that the lengths agree and that the topics ascend strictly.

    Types cannot express this. They also do not see a record that changes made too long.
    """
    count, rest = divmod(len(record.topics), TOPIC)
    if rest or count > TOPICS_MAX or len(record.stamps) != count * STAMP:
        return False
    hashes = struct.unpack(f">{count}Q", record.topics)
    return all(map(int.__lt__, hashes, hashes[1:]))


_SAID = struct.Struct(">QII")
# With the lengths no two records with different fields have the same bytes.
_LENGTHS = struct.Struct(">HIH")
# The peer and the life, with which ``Known.said`` begins.
SAID_HEAD = 12
_ENTRY = struct.Struct(">QIII")
_MASK = 2**64 - 1


def mix(value: int) -> int:
    """Spreads 64 bits, for sums over peers and for cutting them into parts, however they were
    chosen.
    """
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _MASK
    return value ^ value >> 31


class Known:
    """A record with the bytes that its owner signs, and its digest.

    These bytes say the peer, life and version, and the hash of everything else but the signature.
    So they prove a life without the record. The views of simulated nodes share it, so that
    thousands of them fit into one process.
    """

    __slots__ = ("digest", "order", "record", "said", "spread")

    def __init__(self, record: Record) -> None:
        address = record.address.encode()
        content = (
            _LENGTHS.pack(len(address), len(record.topics), len(record.extra))
            + address
            + record.topics
            + record.stamps
            + record.extra
            + record.certificate
        )
        self.record = record
        hash = blake2b(content, digest_size=HASH).digest()
        self.said = _SAID.pack(record.peer, record.life, record.version) + hash
        self.digest = int.from_bytes(blake2b(self.said, digest_size=8).digest(), "big")
        self.spread = mix(record.peer)
        self.order = (record.life, record.version, self.digest & 0xFFFFFFFF)


class Pool:
    """Records by content: equal ones become one object.

    Without a pool, as in a real node, each record is checked and made anew.
    """

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
                    # It is only a cache: records in views stay.
                    self._known.clear()
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
    """One node's interest changed.

    ``before`` and ``after`` are the records before and after the change. None means that the node
    was or is not a member.
    """

    peer: Peer
    before: Record | None
    after: Record | None
    # One of "joined", "news", "left" (by itself), "failed" (declared dead), "new life".
    reason: str

    @property
    def is_interest(self) -> bool:
        """Whether a node came, went, began anew or has other wishes.

        Signs of life and other addresses do not count.
        """
        old, new = self.before, self.after
        if old is None or new is None or old.life != new.life:
            return True
        return old.topics != new.topics or old.stamps != new.stamps

    @property
    def is_told(self) -> bool:
        """Whether it is more than a sign of life: other wishes, another address, or other
        ``extra``.
        """
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
        """Topics that were left and came back unnoticed (claim 5).

        A publisher that retains events for them has to send them.
        """
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
