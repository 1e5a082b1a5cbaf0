"""The messages between nodes of the interest plane.

They come from peers, so bounds are checked when a message is decoded.

Greet         the first message on a link: the sender's own record, the digest of its view, and the
              number of members that it knows
Want          whether the sender's overlay has this link
Flip          one topic joined or left, without keys: the lone change, in about 30 bytes
Flips         several of them, of any nodes, or one that is signed
News          other changes, whole records, suspicions and deaths
Beat          a sign of life, with the digest of the sender's view
Probe         asks whether this peer is alive, the peer itself or another node that may know
Vouch         the reply that the sender has heard from this peer
Buckets       digests of the sender's view, cut into parts by peer
Have          all entries of the sender in some parts: peer, life and version
OfferRecords  entries of records that the sender can send
AskRecords    asks for these records
Barrier       asks whether the receiver, and all behind it, have this version of the origin's record
Reached       the reply that they have it: the sum of their numbers
NameAsk       asks for the names of these topics
NameTell      names
"""

from __future__ import annotations

import struct
from typing import Annotated

from msgspec import Meta, Struct

from gossamer.machine import Message
from gossamer.overlay.interest.record import (
    CHANGE,
    HASH,
    SAID_HEAD,
    TOPIC,
    TOPICS_MAX,
    Known,
    Life,
    Record,
    Signature,
    Uint64,
    Version,
)
from gossamer.overlay.proof import SIGNATURE_MAX

# The most items of a kind in one message.
ITEMS_MAX = 4096
BUCKETS_MAX = 256
# Bytes: peer, life, version, check.
HAVE_ENTRY = 20
# A message is closed when it has this number of bytes.
NEWS_BYTES = 128 << 10
NAMES_MAX = 256
# In characters.
NAME_MAX = 255

# Bytes: the version and the hash of a record.
LAST = 4 + HASH
_GONE = struct.Struct(">QI")

Number = Annotated[int, Meta(ge=0, le=2**53)]
# -1 says that the topic was left.
Stamp = Annotated[int, Meta(ge=-1, le=2**32 - 2)]


class Flip(Message, frozen=True, array_like=True, tag=30):
    """One topic changed, from version - 1 to version."""

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
    # With keys: the owner's signature of each record after its change, in the same order.
    signatures: Annotated[bytes, Meta(max_length=SIGNATURE_MAX * ITEMS_MAX)] = b""

    def signature(self, place: int) -> bytes:
        return self.signatures[SIGNATURE_MAX * place : SIGNATURE_MAX * (place + 1)]


class Diff(Struct, frozen=True, array_like=True, gc=False):
    """Every topic touched after ``base`` and up to ``version``, with its final state."""

    peer: Uint64
    life: Life
    version: Version
    base: Version
    changes: Annotated[bytes, Meta(max_length=CHANGE * TOPICS_MAX)]
    # The owner's signature of the record at ``version``.
    signature: Signature = b""


class Suspicion(Struct, frozen=True, array_like=True, gc=False):
    """``by`` has not heard of the peer for too long. A greater version of its record withdraws
    it.
    """

    peer: Uint64
    life: Life
    version: Version
    by: Uint64
    # The peer's link broke, and could not be opened again.
    reset: bool


class Gone(Struct, frozen=True, array_like=True, gc=False):
    """This life of the peer is over."""

    peer: Uint64
    life: Life
    # The peer said so itself.
    left: bool
    # With keys, the peer's signature of its farewell, or else of the last record that it has said
    # in this life. So no verdict is about a life that the peer has not had.
    signature: Signature = b""
    # The end of what the peer has signed (``Known.said``), if it has not said farewell.
    last: Annotated[bytes, Meta(max_length=LAST)] = b""

    @property
    def said(self) -> bytes:
        """What the peer has signed."""
        return _GONE.pack(self.peer, self.life) + self.last


def verdict(known: Known) -> Gone:
    """The verdict on a node by its last record."""
    record = known.record
    if not record.signature:
        return Gone(record.peer, record.life, False)
    return Gone(record.peer, record.life, False, record.signature, known.said[SAID_HEAD:])


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
    # As in Beat.
    sure: bool = False


class Want(Message, frozen=True, array_like=True, tag=33):
    want: bool


class Beat(Message, frozen=True, array_like=True, tag=34):
    digest: Uint64
    # The sender's view is that of the fabric, and not that of a few newcomers that have found each
    # other.
    sure: bool = False


class Probe(Message, frozen=True, array_like=True, tag=35):
    peer: Uint64


class Vouch(Message, frozen=True, array_like=True, tag=36):
    peer: Uint64


class Buckets(Message, frozen=True, array_like=True, tag=37):
    # 8 bytes each. Their number is a power of two.
    digests: Annotated[bytes, Meta(max_length=8 * BUCKETS_MAX)]


class Have(Message, frozen=True, array_like=True, tag=38):
    # The number of parts that the view was cut into.
    parts: Annotated[int, Meta(ge=1, le=BUCKETS_MAX)]
    # The numbers of the chosen parts, a byte each.
    buckets: Annotated[bytes, Meta(max_length=BUCKETS_MAX)]
    entries: Annotated[bytes, Meta(max_length=HAVE_ENTRY * 65_536)]


class OfferRecords(Message, frozen=True, array_like=True, tag=45):
    entries: Annotated[bytes, Meta(max_length=HAVE_ENTRY * ITEMS_MAX)]


class AskRecords(Message, frozen=True, array_like=True, tag=39):
    # 8 bytes each.
    peers: Annotated[bytes, Meta(max_length=8 * ITEMS_MAX)]


class Barrier(Message, frozen=True, array_like=True, tag=40):
    origin: Uint64
    number: Number
    life: Life
    version: Version
    # Answer when everything that was published before has its receipts.
    settled: bool = False


class Reached(Message, frozen=True, array_like=True, tag=41):
    origin: Uint64
    number: Number
    # The sum, modulo 2**64, of the numbers that all reached nodes add.
    total: Uint64


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
    | OfferRecords
    | AskRecords
    | Barrier
    | Reached
    | NameAsk
    | NameTell
)
