"""What travels between nodes of the interest plane. Bounds are checked when a message is decoded: they come from peers.

Greet      the first word on a link: the sender's own record, its view's digest, and how many members it knows
Want       whether the sender's overlay has this link
Flip       one topic joined or left: the lone change, in about 30 bytes
Flips      several of them, of any nodes
News       other changes, whole records, suspicions and deaths
Beat       a sign of life, with the digest of the sender's view
Probe      is this peer alive? to it, or to somebody who may know
Vouch      yes, I have heard of it
Buckets    digests of the sender's view, cut into parts by peer
Have       all that the sender has in some parts: who, in which life and version
Ask        send me these records
Barrier    have you heard of this version of the origin's record? and have all behind you?
Reached    yes: who has, as a sum
NameAsk    what are the names of these topics?
NameTell   names
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from gossamer.machine import Message
from gossamer.overlay.interest.record import (
    CHANGE,
    TOPIC,
    TOPICS_MAX,
    Life,
    Record,
    Uint64,
    Version,
)

ITEMS_MAX = 4096  # of a kind in one message
BUCKETS_MAX = 256
HAVE_ENTRY = 20  # bytes: peer, life, version, check
NEWS_BYTES = 128 << 10  # a message is closed when it has so many
NAMES_MAX = 256
NAME_MAX = 255  # characters

Number = Annotated[int, Meta(ge=0, le=2**53)]
Stamp = Annotated[int, Meta(ge=-1, le=2**32 - 2)]  # -1: left


class Flip(Message, frozen=True, array_like=True, tag=30):
    """From version - 1 to version: one topic."""

    peer: Uint64
    life: Life
    version: Version
    topic: Uint64
    stamp: Stamp


class Lone(Struct, frozen=True, array_like=True, gc=False):
    """A Flip among others."""

    peer: Uint64
    life: Life
    version: Version
    topic: Uint64
    stamp: Stamp


class Flips(Message, frozen=True, array_like=True, tag=44):
    flips: Annotated[tuple[Lone, ...], Meta(min_length=1, max_length=ITEMS_MAX)]


class Diff(Struct, frozen=True, array_like=True, gc=False):
    """Every topic touched after ``base`` and up to ``version``, with its final state."""

    peer: Uint64
    life: Life
    version: Version
    base: Version
    changes: Annotated[bytes, Meta(max_length=CHANGE * TOPICS_MAX)]


class Suspicion(Struct, frozen=True, array_like=True, gc=False):
    """``by`` has not heard of the peer for too long. A greater version of its record takes it back."""

    peer: Uint64
    life: Life
    version: Version
    by: Uint64
    reset: bool  # its link broke, and could not be opened again


class Gone(Struct, frozen=True, array_like=True, gc=False):
    """This life of the peer is over."""

    peer: Uint64
    life: Life
    left: bool  # it said so itself


class News(Message, frozen=True, array_like=True, tag=31):
    diffs: Annotated[tuple[Diff, ...], Meta(max_length=ITEMS_MAX)] = ()
    records: Annotated[tuple[Record, ...], Meta(max_length=ITEMS_MAX)] = ()
    suspicions: Annotated[tuple[Suspicion, ...], Meta(max_length=ITEMS_MAX)] = ()
    gone: Annotated[tuple[Gone, ...], Meta(max_length=ITEMS_MAX)] = ()


class Greet(Message, frozen=True, array_like=True, tag=32):
    record: Record
    digest: Uint64
    members: Number
    want: bool
    sure: bool = False  # as in Beat


class Want(Message, frozen=True, array_like=True, tag=33):
    want: bool


class Beat(Message, frozen=True, array_like=True, tag=34):
    digest: Uint64
    sure: bool = False  # the sender's view is the fabric's, not that of a few newcomers that have found each other


class Probe(Message, frozen=True, array_like=True, tag=35):
    peer: Uint64


class Vouch(Message, frozen=True, array_like=True, tag=36):
    peer: Uint64


class Buckets(Message, frozen=True, array_like=True, tag=37):
    digests: Annotated[
        bytes, Meta(max_length=8 * BUCKETS_MAX)
    ]  # 8 bytes each; their number is a power of two


class Have(Message, frozen=True, array_like=True, tag=38):
    parts: Annotated[int, Meta(ge=1, le=BUCKETS_MAX)]  # into how many the view was cut
    buckets: Annotated[bytes, Meta(max_length=BUCKETS_MAX)]  # which of them; a byte each
    entries: Annotated[bytes, Meta(max_length=HAVE_ENTRY * 65_536)]


class Offer(Message, frozen=True, array_like=True, tag=45):
    entries: Annotated[bytes, Meta(max_length=HAVE_ENTRY * ITEMS_MAX)]


class Ask(Message, frozen=True, array_like=True, tag=39):
    peers: Annotated[bytes, Meta(max_length=8 * ITEMS_MAX)]  # 8 bytes each


class Barrier(Message, frozen=True, array_like=True, tag=40):
    origin: Uint64
    number: Number
    life: Life
    version: Version
    settled: bool = False  # answer when what was published before has its receipts


class Reached(Message, frozen=True, array_like=True, tag=41):
    origin: Uint64
    number: Number
    total: Uint64  # of what every node that has been reached adds, modulo 2**64


class NameAsk(Message, frozen=True, array_like=True, tag=42):
    topics: Annotated[bytes, Meta(max_length=TOPIC * NAMES_MAX)]


class NameTell(Message, frozen=True, array_like=True, tag=43):
    names: Annotated[
        tuple[Annotated[str, Meta(max_length=NAME_MAX)], ...], Meta(max_length=NAMES_MAX)
    ]


InterestMessage = (
    Flip
    | Flips
    | News
    | Greet
    | Want
    | Beat
    | Probe
    | Vouch
    | Buckets
    | Have
    | Offer
    | Ask
    | Barrier
    | Reached
    | NameAsk
    | NameTell
)
