"""The messages between the entries of a list.

Messages come from peers, so the decoder checks their bounds.

Gossip     Figure 2: entries with their counters, to a neighbour of the level; also the heartbeat
Beat       the answer at level 0: the left neighbour of the answering entry, and its successors
Ack        the answer at a higher level: the entries behind the answering one, for midpoints
Join       a new entry looks for its place; also an old one, to see whether its place is still right
Welcome    here it is: left neighbour, successors, and the left neighbour's long links to begin with
Leave      an entry goes politely
Absent     no such entry lives here (any longer)
Carry      events that look in the same intervals, on their way through them
Report     the intervals that they have reached, and the subscriptions that took them
Busy       their report has to wait for others
Ask        a question to the entries of some intervals
Told       the answer, and which nodes know more
Revoke     the empty gap of a lease is no longer empty
Revoked    understood: events for it are no longer held back
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta, Struct

from gossamer.machine import Message
from gossamer.overlay.batch import BATCH_EVENTS_MAX, Group, Matched
from gossamer.overlay.skiplist.config import K_MAX
from gossamer.overlay.skiplist.position import Key, Position, Uint64

LEVELS_MAX = 64
SUCCESSORS_MAX = 64
# One message has at most this number of routing entries.
MARKS_MAX = 4_096
# A walk has at most this number of intervals, and a report too.
PARTS_MAX = 4_096
COVERED_MAX = 4_096
# One answer to a look-up has at most this number of entries.
FOUND_MAX = 4_096
# One answer to a look-up has at most this number of bytes, roughly.
FOUND_BYTES_MAX = 1 << 20
# One entry of an answer has at most this number of subscriptions.
TOLD_MAX = 64
# The filter of a subscription is cut off after this number of characters.
TEXT_MAX = 1_024
# A walk needs few hops. It needs many where it goes one by one along a stretch of matches, as the
# seed has it.
HOPS_MAX = 4_096
PAYLOAD_MAX = 4 << 20
# Sums stop here, so that a liar cannot make honest reports unreadable.
NUMBER_MAX = 2**53

Number = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]
Level = Annotated[int, Meta(ge=0, lt=LEVELS_MAX)]
Hops = Annotated[int, Meta(ge=0, le=HOPS_MAX)]
Payload = Annotated[bytes, Meta(max_length=PAYLOAD_MAX)]
Chain = Annotated[tuple[Position, ...], Meta(max_length=K_MAX)]
Successors = Annotated[tuple[Position, ...], Meta(max_length=SUCCESSORS_MAX)]
Links = Annotated[tuple[Position, ...], Meta(max_length=2 * LEVELS_MAX)]


class Item(Struct, frozen=True, array_like=True, gc=False):
    """An entry in a gossip message. The counter is the number of neighbours of the level that have
    passed it on.
    """

    at: Position
    counter: Annotated[int, Meta(ge=0, lt=K_MAX)]


class Mark(Struct, frozen=True, array_like=True, gc=False):
    """The seed's special routing entry. Its ``owner`` wants every event with a key from low to
    high, both included.
    """

    low: Key
    high: Key
    owner: Position
    version: Number
    # The owner has unsubscribed. A receiver forgets the mark, and passes that on.
    gone: bool = False


class Gossip(Message, frozen=True, array_like=True, tag=70):
    topic: Uint64
    # The key of the receiving entry.
    to: Key
    level: Level
    # The first item is the sender's own entry, with counter 0.
    items: Annotated[tuple[Item, ...], Meta(min_length=1, max_length=K_MAX)]
    chain: Chain = ()
    # At level 0 no publisher relies any longer on the gap that the receiver came into.
    clear: bool = True
    marks: Annotated[tuple[Mark, ...], Meta(max_length=MARKS_MAX)] = ()
    # At level 0 the sender claims to be a neighbour. If it does not, it only asks whether the
    # receiver is there.
    claims: bool = True
    # A node counts the entries that it has had, and at level 0 this is the number of the sender.
    # The fields of this name in other messages are counted the same way.
    born: Number = 0


class Beat(Message, frozen=True, array_like=True, tag=71):
    topic: Uint64
    to: Key
    at: Position
    left: Position
    # None means that they are as before.
    successors: Successors | None = None
    clear: bool = True
    born: Number = 0


class Ack(Message, frozen=True, array_like=True, tag=72):
    topic: Uint64
    to: Key
    level: Level
    at: Position
    chain: Chain


class Join(Message, frozen=True, array_like=True, tag=73):
    topic: Uint64
    at: Position
    hops: Hops = 0
    # None means the nearest entry of the receiver.
    to: Key | None = None
    # The place is between the receiving entry and this.
    bound: Position | None = None
    born: Number = 0


class Welcome(Message, frozen=True, array_like=True, tag=74):
    topic: Uint64
    to: Key
    left: Position
    # The first successor is the right neighbour.
    successors: Successors
    # These are the long links of the left neighbour, by level from 1 on.
    lefts: Links
    rights: Links
    hops: Hops
    clear: bool = True
    marks: Annotated[tuple[Mark, ...], Meta(max_length=MARKS_MAX)] = ()


class Leave(Message, frozen=True, array_like=True, tag=75):
    topic: Uint64
    at: Position
    left: Position
    successors: Successors
    # Some publisher may still rely on the gaps beside the entry.
    leased: bool = True
    born: Number = 0


class Absent(Message, frozen=True, array_like=True, tag=76):
    topic: Uint64
    at: Position
    # This is the number of the last entry that the sender has had. The message does not mean a
    # younger entry.
    born: Number = 0


class Part(Struct, frozen=True, array_like=True, gc=False):
    """An interval [low, high) of a walk, and the entry at the receiver that is to go on with it."""

    low: Position
    high: Position
    # None means the nearest entry.
    to: Key | None = None
    # A position outside the interval. The interval lies between that entry and this.
    bound: Position | None = None


class Carry(Message, frozen=True, array_like=True, tag=77):
    """Events on their way. The receiving node answers for these intervals, which are in order."""

    is_event: ClassVar[bool] = True

    batch: Group
    parts: Annotated[tuple[Part, ...], Meta(min_length=1, max_length=PARTS_MAX)]
    # Whether the publisher would rely on an empty gap (leases.py).
    lease: bool = True


class Covered(Struct, frozen=True, array_like=True, gc=False):
    """The walk has reached [low, high), over at most that number of hops."""

    low: Position
    high: Position
    hops: Hops


class Gap(Struct, frozen=True, array_like=True, gc=False):
    """There is no entry between ``left`` and ``right``. One of the two, ``by``, says so. The number
    orders the statements of that entry.
    """

    left: Position
    right: Position
    by: Position
    number: Number


Wanting = tuple[Number, Annotated[str, Meta(max_length=TEXT_MAX)]]
"""A subscription: its number at its node, and its filter, cut off where it is too long."""


class Hit(Struct, frozen=True, array_like=True, gc=False):
    """An entry that a look-up has come to, and the subscriptions there."""

    at: Position
    told: Annotated[tuple[Wanting, ...], Meta(max_length=TOLD_MAX)] = ()


class Report(Message, frozen=True, array_like=True, tag=78):
    """The report of a node on a part of a walk."""

    is_report: ClassVar[bool] = True

    topic: Uint64
    publisher: Uint64
    incarnation: Number
    first: Number
    round: Number
    # The first interval of the part begins here.
    low: Position
    covered: Annotated[tuple[Covered, ...], Meta(max_length=COVERED_MAX)] = ()
    # Each event has a number here, or one number stands for all. It is empty if all are zero.
    matched: Annotated[tuple[Matched, ...], Meta(max_length=BATCH_EVENTS_MAX)] = ()
    # The subscriptions that discarded the events are counted the same way.
    dropped: Annotated[tuple[Matched, ...], Meta(max_length=BATCH_EVENTS_MAX)] = ()
    gaps: Annotated[tuple[Gap, ...], Meta(max_length=16)] = ()


class Busy(Message, frozen=True, array_like=True, tag=94):
    """The events are here and not yet reported, because others have not reported yet."""

    topic: Uint64
    publisher: Uint64
    incarnation: Number
    first: Number
    round: Number
    low: Position


class Ask(Message, frozen=True, array_like=True, tag=95):
    """A look-up asks which entries are there and, with a payload, which of them want this event."""

    topic: Uint64
    number: Number
    parts: Annotated[tuple[Part, ...], Meta(min_length=1, max_length=PARTS_MAX)]
    payload: Payload = b""


class Ahead(Struct, frozen=True, array_like=True, gc=False):
    """This part of a look-up is for another node to answer."""

    peer: Uint64
    part: Part


class Told(Message, frozen=True, array_like=True, tag=96):
    """The answer to a look-up."""

    topic: Uint64
    number: Number
    # The first part of the question that this answers begins here.
    low: Position
    covered: Annotated[tuple[Covered, ...], Meta(max_length=COVERED_MAX)] = ()
    ahead: Annotated[tuple[Ahead, ...], Meta(max_length=PARTS_MAX)] = ()
    hits: Annotated[tuple[Hit, ...], Meta(max_length=FOUND_MAX)] = ()
    # The message had no room for this number of entries and subscriptions.
    left_off: Number = 0


class Revoke(Message, frozen=True, array_like=True, tag=79):
    topic: Uint64
    by: Position
    # Every lease by this entry up to this number is void.
    number: Number


class Revoked(Message, frozen=True, array_like=True, tag=80):
    topic: Uint64
    by: Position
    number: Number


SkiplistMessage = (
    Gossip
    | Beat
    | Ack
    | Join
    | Welcome
    | Leave
    | Absent
    | Carry
    | Report
    | Busy
    | Ask
    | Told
    | Revoke
    | Revoked
)
