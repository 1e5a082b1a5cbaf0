"""What travels between the entries of a list. Bounds are checked when a message is decoded: they come from peers.

Gossip     Figure 2: entries with their counters, to a neighbour of the level; at level 0 also the heartbeat
Beat       the answer at level 0: who the answering entry has at its left, and who comes after it
Ack        the answer at a higher level: what lies behind the answering entry, for the midpoints of far spans
Join       a new entry looks for its place; also an old one, to see whether its place is still right
Welcome    here it is: left neighbour, successors, and the left neighbour's long links to begin with
Leave      an entry goes politely
Absent     no such entry lives here (any longer)
Carry      an event and others that go the same way, or a question, on its way through an interval of positions
Report     what became of it there: tiles of the interval
Revoke     the empty gap of a lease is no longer empty
Revoked    understood: events for it are no longer held back
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta, Struct

from gossamer.machine import Message
from gossamer.overlay.skiplist.config import K_MAX
from gossamer.overlay.skiplist.position import Key, Position, Uint64

LEVELS_MAX = 64
SUCCESSORS_MAX = 64
MARKS_MAX = 4_096  # routing entries in one message
TILES_MAX = 4_096
TOGETHER_MAX = 4_096  # events of one walk
FOUND_MAX = 4_096  # entries in one answer to a look-up
FOUND_BYTES_MAX = 1 << 20  # of it, roughly
TOLD_MAX = 64  # subscriptions of one of them
TEXT_MAX = 1_024  # characters of a subscription's filter
HOPS_MAX = 4_096  # few are needed; one by one along a stretch of matches, as the seed has it, many
PAYLOAD_MAX = 4 << 20
MATCHED_MAX = 2**32 - 1
NUMBER_MAX = 2**53  # sums stop here, so that a liar cannot make honest reports unreadable

Number = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]
Level = Annotated[int, Meta(ge=0, lt=LEVELS_MAX)]
Hops = Annotated[int, Meta(ge=0, le=HOPS_MAX)]
Matched = Annotated[int, Meta(ge=0, le=MATCHED_MAX)]
Payload = Annotated[bytes, Meta(max_length=PAYLOAD_MAX)]
Chain = Annotated[tuple[Position, ...], Meta(max_length=K_MAX)]
Successors = Annotated[tuple[Position, ...], Meta(max_length=SUCCESSORS_MAX)]
Links = Annotated[tuple[Position, ...], Meta(max_length=2 * LEVELS_MAX)]


class Item(Struct, frozen=True, array_like=True, gc=False):
    """An entry in a gossip message. The counter says how many neighbours of the level have passed it on."""

    at: Position
    counter: Annotated[int, Meta(ge=0, lt=K_MAX)]


class Mark(Struct, frozen=True, array_like=True, gc=False):
    """The seed's special routing entry: ``owner`` wants every event with a key from low to high, both included."""

    low: Key
    high: Key
    owner: Position
    version: Number
    gone: bool = False  # unsubscribed: forget it, and pass that on


class Gossip(Message, frozen=True, array_like=True, tag=70):
    topic: Uint64
    to: Key  # the receiving entry
    level: Level
    items: Annotated[
        tuple[Item, ...], Meta(min_length=1, max_length=K_MAX)
    ]  # the first is the sender's own, counter 0
    chain: Chain = ()
    clear: bool = (
        True  # at level 0: nobody relies any longer on the gap that the receiver came into
    )
    marks: Annotated[tuple[Mark, ...], Meta(max_length=MARKS_MAX)] = ()
    claims: bool = True  # at level 0: False only asks whether the receiver is there; the sender is not its neighbour
    born: Number = 0  # at level 0: which of the entries that the sender's node has had, in order; as are the others below


class Beat(Message, frozen=True, array_like=True, tag=71):
    topic: Uint64
    to: Key
    at: Position
    left: Position
    successors: Successors | None = None  # None: as before
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
    to: Key | None = None  # None: whichever entry of the receiver is nearest
    bound: Position | None = None  # the place is between the receiving entry and this
    born: Number = 0


class Welcome(Message, frozen=True, array_like=True, tag=74):
    topic: Uint64
    to: Key
    left: Position
    successors: Successors  # the first is the right neighbour
    lefts: Links  # of the left neighbour, by level from 1 on
    rights: Links
    hops: Hops
    clear: bool = True
    marks: Annotated[tuple[Mark, ...], Meta(max_length=MARKS_MAX)] = ()


class Leave(Message, frozen=True, array_like=True, tag=75):
    topic: Uint64
    at: Position
    left: Position
    successors: Successors
    leased: bool = True  # somebody may still rely on the gaps beside it
    born: Number = 0


class Absent(Message, frozen=True, array_like=True, tag=76):
    topic: Uint64
    at: Position
    born: Number = 0  # of the last entry that the sender has had: one that is younger is not meant


class Carry(Message, frozen=True, array_like=True, tag=77):
    """Whoever receives it owns [low, high) until it has reported."""

    is_event: ClassVar[bool] = True

    topic: Uint64
    publisher: Uint64
    incarnation: Number
    sequence: Number
    floor: Number  # the publisher's lowest sequence without receipt
    round: Number
    low: Position
    high: Position
    to: Key | None
    hops: Hops
    patience: Number  # microseconds that the sender waits for the report
    kind: Annotated[int, Meta(ge=0, le=2)]  # DELIVER, FIND, HANDOFF
    lease: bool
    payload: Payload
    bound: Position | None = (
        None  # outside the interval: it lies between the receiving entry and this
    )
    others: Annotated[
        tuple[Number, ...], Meta(max_length=TOGETHER_MAX - 1)
    ] = ()  # events that go with this one (tiles.py),
    payloads: Annotated[
        tuple[Payload, ...], Meta(max_length=TOGETHER_MAX - 1)
    ] = ()  # and what they are


DELIVER, FIND, HANDOFF = 0, 1, 2


class Tile(Struct, frozen=True, array_like=True, gc=False):
    """[low, high) is done: so many subscriptions took the event, so many hops away, past so many nodes that did not want it."""

    low: Position
    high: Position
    matched: Matched
    hops: Hops
    noise: Number
    others: (
        Annotated[tuple[Matched, ...], Meta(min_length=1, max_length=TOGETHER_MAX - 1)] | None
    ) = None
    """How many took the events that went with it: of each, or one number for all. None: the event walks alone."""
    dropped: Annotated[tuple[Matched, ...], Meta(max_length=TOGETHER_MAX)] = ()
    """Subscriptions that discarded the event, then as ``others``; nothing if all are zero."""


class Gap(Struct, frozen=True, array_like=True, gc=False):
    """Between these two there is no entry; said by ``by``, which is one of them. The number orders what it says."""

    left: Position
    right: Position
    by: Position
    number: Number


Told = tuple[Number, Annotated[str, Meta(max_length=TEXT_MAX)]]
"""A subscription: its number at its node, and its filter, cut off where it is too long."""


class Hit(Struct, frozen=True, array_like=True, gc=False):
    """An entry that a look-up has come to, and the subscriptions there."""

    at: Position
    told: Annotated[tuple[Told, ...], Meta(max_length=TOLD_MAX)] = ()


class Report(Message, frozen=True, array_like=True, tag=78):
    topic: Uint64
    publisher: Uint64
    incarnation: Number
    sequence: Number
    round: Number
    low: Position  # of the Carry that this answers, as is the next
    high: Position
    hops: Hops  # a walk may come to a node with several entries more than once
    tiles: Annotated[tuple[Tile, ...], Meta(max_length=TILES_MAX)]
    gaps: Annotated[tuple[Gap, ...], Meta(max_length=16)] = ()
    found: Annotated[tuple[Hit, ...], Meta(max_length=FOUND_MAX)] = ()
    left_off: Number = 0  # what there was no room for


class Revoke(Message, frozen=True, array_like=True, tag=79):
    topic: Uint64
    by: Position
    number: Number  # every lease by this entry up to this number is void


class Revoked(Message, frozen=True, array_like=True, tag=80):
    topic: Uint64
    by: Position
    number: Number


SkiplistMessage = (
    Gossip | Beat | Ack | Join | Welcome | Leave | Absent | Carry | Report | Revoke | Revoked
)
