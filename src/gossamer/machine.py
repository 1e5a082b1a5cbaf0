"""The contract of every protocol core, and the words that all cores share. They are sans-IO.

A machine is a plain object without a clock, sockets or global randomness. A driver (the simulator,
or asyncio) gives it messages, time, changes of links, and writes that have ended. The machine
answers with a list of effects, and the driver carries them out:

    Send      puts a message on its way to some peers, as the link contract below says
    Deliver   hands events to a subscription (a bare overlay hands them to its owner)
    Store     writes records to disk, then calls ``stored(token)``; messages that depend on them are
              sent after that. If the disk fails, the driver calls ``unstored`` for the Stores that
              something waits for, and writes the others when the disk works again
    Note      a trace record for an event that the driver cannot see by itself
    Dial      tries to open a link to the node that listens at an address, or only to the peer that
              it names; ``link(peer, UP)`` says that it worked, and silence that it did not
    Hangup    closes the link to a peer after the queued messages; ``link(peer, DOWN)`` follows at
              both ends

The commands of users (subscribe, publish, ...) are methods of a machine. They append to the effects
of the next ``wake`` and move ``deadline`` to now. So a driver reads ``deadline`` again after every
call.

The link contract. A link behaves like the TCP connection that it is:

- While it is UP, every control message arrives once and in order, and so does every event message
  that the link has accepted. A control message may overtake event messages. An event message
  overtakes nothing but reports that arrive with it.
- When it goes DOWN (or CUT), an unknown tail of the sent messages is lost. Both ends are told, each
  in its own time. A message that arrives after the next UP is of the new link. Between links there
  is no order.
- A full queue refuses event messages. The machine is told FULL, and ``refused`` hands each refused
  message back, after the effects of the call that sent it have been carried out. READY follows when
  there is room.
- A Send to a peer without a link is lost. The machine has been told that the link is down, and is
  told when it is up.

So nothing above a link numbers, acknowledges or repeats a control message because of the link.
Protocols react to DOWN and UP. A time-out is for a peer that lives and does not answer.

Both drivers assert these rules. After ``wake(now)``, ``deadline > now``, because otherwise a real
driver would spin. A bad message from a peer never raises an error (it is a ``Note(Rejected)``), and
local misuse does. Nothing iterates over a set.
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
"""The name of one ``Store``, by which ``stored`` says that it is on disk."""

NEVER = Micros(2**63 - 1)
PEER_MAX = 2**64 - 1
MILLISECOND = Micros(1_000)
SECOND = Micros(1_000_000)


class LinkState(IntEnum):
    """The news that a driver has of the link to a peer."""

    # Messages may flow.
    UP = 1
    # They may not, and messages that were on their way may be lost.
    DOWN = 2
    # The event queue to this peer is over its high mark, so event messages may be refused.
    FULL = 3
    # The queue has drained again.
    READY = 4
    # The link is down for cause: the peer broke the rules, so no node need wait for it.
    CUT = 5
    # Much has left for the peer in the last seconds, and more waits, or much of one message has
    # come: the link is slow, and the peer is not silent. The link stays as it is, UP or FULL.
    MOVING = 6


class Message(Struct, frozen=True, array_like=True):
    """The base of all messages. Each subclass sets a ``tag`` that is unique in ``node/wire.py``."""

    is_event: ClassVar[bool] = False
    """Event messages queue behind control messages. A full queue refuses no other messages."""

    is_report: ClassVar[bool] = False
    """A driver may take the messages that came with a report before the report."""

    bulk: ClassVar[str] = ""
    """A field of bytes that may be large: a driver writes them as they are, without a copy."""


class Keep(Struct, frozen=True, gc=False):
    """Remember this value under this key, in place of an earlier one."""

    key: str
    value: bytes


class Forget(Struct, frozen=True, gc=False):
    key: str


class Send(Struct, frozen=True):
    # The message is encoded once for all recipients.
    to: tuple[Peer, ...]
    message: Message


class Deliver(Struct, frozen=True):
    # The subscription's number at this node; 0 from a bare overlay.
    subscription: int
    events: Sequence[Any]


class Store(Struct, frozen=True):
    token: Token
    # They are written in this order. A crash may keep any prefix of the records that are not stored
    # yet.
    records: tuple[Keep | Forget, ...]
    # Whether something waits for this write. If the disk refuses it, the driver says so at once
    # (``unstored``) and drops the records. The records of any other Store stay with the driver,
    # which writes them as soon as the disk takes them.
    is_awaited: bool = False


class Note(Struct, frozen=True):
    # The driver adds the time and the node.
    record: Record


class Dial(Struct, frozen=True):
    address: str
    # The peer that should be there. By now another node may have the port, or the host's address.
    expected: Peer | None = None


class Hangup(Struct, frozen=True):
    peer: Peer


Effect = Send | Deliver | Store | Note | Dial | Hangup

M = TypeVar("M", bound=Message, contravariant=True)


class Machine(Protocol[M]):
    """A protocol core, as a driver needs it. ``M`` is the union of the messages it understands."""

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
        """The full queue to this peer did not take this event message. READY says when there is
        room.

        It is called once for each peer that refused, after the effects of the call that sent the
        message. A machine that sends no event messages needs no such method.
        """

    def stored(self, token: Token, now: Micros) -> list[Effect]:
        """The records of ``Store(token, ...)`` are on disk."""

    def unstored(self, tokens: Sequence[Token], now: Micros) -> list[Effect]:
        """The disk has failed. Nothing of these Stores is on it, nor will be.

        They are all the awaited Stores that were not stored, in the order in which they were asked
        for. A machine that asks for none needs no such method.
        """
