"""Batches and the reports on them, which travel on every overlay.

A batch holds events of one publisher and one topic with consecutive sequence numbers. It stays
whole from its publisher to its subscribers, and relays do not look inside. Messages come from
peers, so their bounds are checked when they are decoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from itertools import repeat
from operator import add, lt, sub
from typing import Annotated, ClassVar, NamedTuple

import msgspec
from msgspec import Meta, structs

from gossamer.filters.packed import is_columns
from gossamer.machine import Message, Peer
from gossamer.overlay.proof import BATCH, SIGNATURE_MAX, Proof

_encoder = msgspec.msgpack.Encoder()

# Where limits count events, this number of events in columns counts as one, as it costs about as
# much.
COLUMN_ROWS = 8
# This holds for columns. Publishers send no more than 4,096 events as rows.
BATCH_EVENTS_MAX = 4096 * COLUMN_ROWS
BATCH_BYTES_MAX = 4 << 20
TOPIC_LENGTH_MAX = 255
# The greatest distance of an honest publisher's newest event from its floor.
WINDOW_MAX = 1 << 20
NEIGHBOURS_MAX = 4096
# The most subscriptions that took an event. Sums stop here, so that a liar cannot make the reports
# of honest nodes unreadable.
MATCHED_MAX = 2**32 - 1
# More than the nodes of any fabric that floods.
HOPS_MAX = 1 << 16

DISCARDED = 1 << 48
"""One subscription that discarded an event, in a count.

A plane counts two things of each event: how many subscriptions have it (``matched``), and how many
were handed it and discarded it before their consumers took it (``dropped``). Inside a node both are
one number: ``matched`` is its lower 48 bits, ``dropped`` is above them. So one addition adds both,
and a count in which nothing was discarded is simply ``matched``. They travel as two numbers of at
most ``MATCHED_MAX``; the 16 bits between leave room for the sums of many, until they are bounded.
"""

Count = Annotated[int, Meta(ge=0, le=2**53)]
# The last event of a batch is a ``Count``, too, because messages name it.
First = Annotated[int, Meta(ge=0, le=2**53 - BATCH_EVENTS_MAX)]
Matched = Annotated[int, Meta(ge=0, le=MATCHED_MAX)]
# msgpack itself ends at 64 bits.
Uint64 = Annotated[int, Meta(ge=0)]


class Batch(Message, frozen=True, array_like=True, tag=10):
    """Events first .. first + count - 1 of a publisher, all on one topic."""

    is_event: ClassVar[bool] = True
    bulk: ClassVar[str] = "rows"
    # The sequence numbers, where some of a batch's events go by themselves (``Group``).
    numbers: ClassVar[tuple[int, ...]] = ()

    topic: Annotated[str, Meta(min_length=1, max_length=TOPIC_LENGTH_MAX)]
    publisher: Uint64
    incarnation: Count
    first: First
    count: Annotated[int, Meta(ge=1, le=BATCH_EVENTS_MAX)]
    floor: Count
    round: Count
    hops: Annotated[int, Meta(ge=0, le=HOPS_MAX)]
    # Only subscribing nodes decode it; see packed.Bytes.
    rows: Annotated[bytes, Meta(max_length=BATCH_BYTES_MAX)]
    # The publisher's signature over ``said``. It is empty without keys, and on route direct, where
    # the link proves the publisher.
    signature: Annotated[bytes, Meta(max_length=SIGNATURE_MAX)] = b""

    def said(self) -> bytes:
        """The bytes that the publisher signs: everything but the hops, which relays count."""
        rows = blake2b(self.rows, digest_size=32).digest()
        head = (
            self.topic, self.publisher, self.incarnation, self.first, self.count, self.floor,
            self.round, rows,
        )  # fmt: skip
        return _encoder.encode(head)

    def signed(self, proof: Proof) -> Batch:
        """This batch with this node's signature; the batch itself where there are no keys."""
        if not proof.is_on:
            return self
        return structs.replace(self, signature=proof.sign(BATCH, self.said()))

    @property
    def events(self) -> Sequence[int]:
        """The sequence numbers."""
        return self.numbers or range(self.first, self.first + self.count)

    @property
    def is_columns(self) -> bool:
        """The rows are one Arrow record batch (filters/packed.py)."""
        return is_columns(self.rows)


class Group(Batch, frozen=True, array_like=True, tag=14):
    """Some events of a batch, which its publisher has split. It signs each group by itself.

    The sequence numbers ascend. ``numbers`` is empty where they follow each other.
    """

    numbers: Annotated[tuple[Count, ...], Meta(max_length=BATCH_EVENTS_MAX)] = ()  # type: ignore[misc]

    def said(self) -> bytes:
        return super().said() + _encoder.encode(self.numbers)

    @property
    def is_sound(self) -> bool:
        """Whether the numbers are those of its events, in order, within the publisher's window."""
        numbers = self.numbers
        return not numbers or (
            len(numbers) == self.count
            and numbers[0] == self.first
            and numbers[-1] - self.floor < WINDOW_MAX
            and all(map(lt, numbers, numbers[1:]))
        )


def spread(counts: tuple[int, ...], events: int) -> Sequence[int]:
    """One for each event, where a single number is that of each."""
    return counts * events if len(counts) == 1 else counts


def added(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    """The sum of two counts of the same events. A single number is that of each event."""
    if len(one) < len(other):
        one, other = other, one
    return tuple(map(add, one, other if len(other) == len(one) else repeat(other[0])))


def bounded(count: int) -> int:
    """A sum of counts, each of its two numbers at most ``MATCHED_MAX``."""
    if count <= MATCHED_MAX:
        return count
    return min(count % DISCARDED, MATCHED_MAX) + min(count // DISCARDED, MATCHED_MAX) * DISCARDED


def bounded_all(counts: tuple[int, ...]) -> tuple[int, ...]:
    return counts if max(counts) <= MATCHED_MAX else tuple(map(bounded, counts))


def discarded(counts: tuple[int, ...], places: Sequence[int], events: int) -> tuple[int, ...]:
    """The counts after one subscription has discarded the events at these places."""
    found = list(spread(counts, events))
    for place in places:
        found[place] += DISCARDED - 1
    return tuple(found)


def parted(counts: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(matched, dropped), as they travel; no dropped where nothing was discarded."""
    if not counts or max(counts) < DISCARDED:
        return counts, ()
    return (
        tuple([count % DISCARDED for count in counts]),
        tuple([count // DISCARDED for count in counts]),
    )


def joined(matched: tuple[int, ...], dropped: tuple[int, ...]) -> tuple[int, ...] | None:
    """The counts that a peer has sent as two; None where the two do not fit each other."""
    if not dropped:
        return matched
    if len(matched) != len(dropped):
        return None
    return tuple([one + other * DISCARDED for one, other in zip(matched, dropped, strict=True)])


def less(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    """A count without a part that was added to it before; empty if nothing is left."""
    left = tuple(map(sub, one, other if len(other) == len(one) else repeat(other[0])))
    return left if any(left) else ()


class Report(Message, frozen=True, array_like=True, tag=11):
    """The counts of a batch behind the sender."""

    is_report: ClassVar[bool] = True

    publisher: Uint64
    incarnation: Count
    first: Count
    round: Count
    # False: a link broke, so some nodes may not have been reached.
    whole: bool
    # For each event the number of subscriptions; empty if all are zero.
    matched: Annotated[tuple[Matched, ...], Meta(max_length=BATCH_EVENTS_MAX)] = ()
    # For each event the number of subscriptions that discarded it; empty if all are zero.
    dropped: Annotated[tuple[Matched, ...], Meta(max_length=BATCH_EVENTS_MAX)] = ()


class Left(NamedTuple):
    """Events of one topic that were completed without a live member, which has to hear of it."""

    peer: Peer
    topic: str
    publisher: int
    incarnation: int
    first: int
    last: int
    # Perhaps the nodes behind the member have to hear of it too.
    spreads: bool


class Leave(Message, frozen=True, array_like=True, tag=12):
    """The sender goes for good. The nodes behind it may need a moment to find another way."""

    neighbours: Annotated[tuple[Uint64, ...], Meta(max_length=NEIGHBOURS_MAX)] = ()


class Busy(Message, frozen=True, array_like=True, tag=13):
    """The batch is here and not yet reported, because others have not reported yet."""

    publisher: Uint64
    incarnation: Count
    first: Count
    round: Count
