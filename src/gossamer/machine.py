"""The words every protocol core shares: the sans-IO contract.

A machine is a plain object with no clock, no sockets and no global randomness. A driver (the simulator, or asyncio) feeds
it messages, time, link changes and finished writes; it answers with a list of effects that the driver carries out:

    Send      put a message on the way to some peers, as the link contract below says
    Deliver   hand events to a subscription (at a bare overlay: to whoever owns the overlay)
    Store     write records to disk, then call ``stored(token)``; what depends on them is sent after that. Where the disk
              fails: ``unstored`` for those that something waits for, and the others are written when it works again
    Note      a trace record for what a driver cannot see by itself
    Dial      try to open a link to whoever listens at an address, or to nobody but the peer that it names; ``link(peer, UP)``
              says that it worked, silence that it did not
    Hangup    close the link to a peer, after what is queued; ``link(peer, DOWN)`` follows at both ends

User commands (subscribe, publish, ...) are methods of a machine; they append to the effects of the next ``wake`` and
move ``deadline`` to now, so a driver re-reads ``deadline`` after every call.

The link contract. A link behaves like the TCP connection that it is:

- While it is UP, every control message that is sent arrives once and in order, and so does every event message that the link
  has accepted. A control message may overtake event messages. An event message overtakes nothing but reports that arrive with it.
- When it goes DOWN (or CUT), an unknown tail of what was sent is lost, and both ends are told, each in its own time. What
  arrives after the next UP is of the new link. Between links there is no order.
- A full queue refuses event messages. The machine is told FULL, and each message that was refused is handed back to it by
  ``refused``, after the effects of the call that sent the message have been carried out. READY follows when there is room.
- A Send to a peer without a link is lost. The machine has been told that the link is down, and is told when it is up.

So nothing above a link numbers, acknowledges or repeats a control message to survive the link: protocols react to DOWN and UP.
A time-out is for a peer that lives and does not answer.

Rules that both drivers assert: after ``wake(now)``, ``deadline > now`` (else a real driver would spin); a bad message from
a peer never raises (it is a ``Note(Rejected)``), local misuse does; nothing iterates a set.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, ClassVar, NewType, Protocol, TypeVar

from msgspec import Struct

from gossamer.trace import Record

Peer = NewType("Peer", int)
"""A node as another sees it: 64 bits, the same for life."""

Micros = NewType("Micros", int)
"""Integer microseconds. Durations and points in time; each driver has its own origin."""

Token = NewType("Token", int)
"""Names one ``Store``, so that ``stored`` can say which one is on disk."""

NEVER = Micros(2**63 - 1)
PEER_MAX = 2**64 - 1
MILLISECOND = Micros(1_000)
SECOND = Micros(1_000_000)


class LinkState(IntEnum):
    """What a driver says of the link to a peer."""

    UP = 1  # messages may flow
    DOWN = 2  # they may not; what was on the way may be lost
    FULL = 3  # the event queue to this peer is over its high mark: event messages may be refused
    READY = 4  # it has drained again
    CUT = 5  # down for cause: the peer broke the rules, so nobody need wait for it
    # Much has left for the peer in the last seconds, and more waits, or much of one message has
    # come: the link is slow, and the peer is not silent. The link stays as it is, UP or FULL.
    MOVING = 6


class Message(Struct, frozen=True, array_like=True):
    """Base of everything that travels. Each subclass sets a ``tag`` that is unique in ``net/wire.py``."""

    is_event: ClassVar[bool] = False
    """Event messages queue behind control messages and are the only ones that a full queue refuses."""

    is_report: ClassVar[bool] = False
    """Reports close books: a driver may take what came with them first."""

    bulk: ClassVar[str] = ""
    """A field of bytes that may be large: a driver writes them as they are, without a copy."""


class Keep(Struct, frozen=True, gc=False):
    """Remember this value under this key, replacing what was there."""

    key: str
    value: bytes


class Forget(Struct, frozen=True, gc=False):
    key: str


class Send(Struct, frozen=True):
    to: tuple[Peer, ...]  # many recipients, encoded once
    message: Message


class Deliver(Struct, frozen=True):
    subscription: int  # the subscription's number at this node; 0 from a bare overlay
    events: Sequence[Any]


class Store(Struct, frozen=True):
    token: Token
    records: tuple[
        Keep | Forget, ...
    ]  # written in this order; a crash may keep any prefix of what is not yet stored
    # Whether something waits for this write. If the disk refuses it, the driver says so at once (``unstored``) and drops the
    # records. The records of any other Store stay with the driver, which writes them as soon as the disk takes them.
    is_awaited: bool = False


class Note(Struct, frozen=True):
    record: Record  # the driver stamps time and node


class Dial(Struct, frozen=True):
    address: str
    expected: Peer | None = (
        None  # who should be there: a port, or a host's address, may be somebody else's by now
    )


class Hangup(Struct, frozen=True):
    peer: Peer


Effect = Send | Deliver | Store | Note | Dial | Hangup

M = TypeVar("M", bound=Message, contravariant=True)


class Machine(Protocol[M]):
    """What a driver needs of a protocol core; ``M`` is the union of the messages it understands."""

    @property
    def deadline(self) -> Micros:
        """When ``wake`` is due; NEVER if idle."""

    def receive(self, sender: Peer, message: M, now: Micros) -> list[Effect]:
        """A message has arrived over the link to ``sender``."""

    def wake(self, now: Micros) -> list[Effect]:
        """Time has passed. Early and needless calls are harmless."""

    def link(self, peer: Peer, state: LinkState, now: Micros) -> list[Effect]:
        """The link to a peer has changed."""

    def refused(self, peer: Peer, message: M, now: Micros) -> list[Effect]:
        """The queue to this peer is full and did not take this event message; READY says when it takes some again.

        It is called once for each peer that refused, after the effects of the call that sent the message. A machine that sends
        no event messages needs no such method.
        """

    def stored(self, token: Token, now: Micros) -> list[Effect]:
        """What ``Store(token, ...)`` asked for is on disk."""

    def unstored(self, tokens: Sequence[Token], now: Micros) -> list[Effect]:
        """The disk has failed: nothing of these Stores is on it, nor will be. They are all the awaited ones that were not
        stored, in the order in which they were asked for. A machine that asks for none needs no such method."""
