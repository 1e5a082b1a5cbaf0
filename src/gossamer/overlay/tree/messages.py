"""What hosts of the tree say to each other, in one union. Bounds are checked when a message is decoded: it comes from a peer.

Ring (Chord; a question without an answer is asked again):
    Find, Owner, Nearer     look-ups, one step at a time
    Ask, State, Occupied    a member's predecessor and successors; or that it has a question of its own under way. Either: it lives
    Notify                  the sender takes itself for our predecessor
    Met                     two rings know of each other: look yourself up in the other one

Tree:
    Attach, Notice          neighbours: claimed; changed, or no longer
    Yield, Yielded          a newcomer asks its successor to stop answering for its keys
    Announce, Laid          routes: which keys and which filters are behind the sender; known to all behind us
    Carry, Reached          a batch on its way; whose keys it has reached
    Offer                   after a break: batches that the sender has, or those that it lacks
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from gossamer.machine import Message
from gossamer.overlay.batch import BATCH_EVENTS_MAX, TOPIC_LENGTH_MAX, Batch, Count, Matched, Uint64
from gossamer.overlay.tree.arcs import Arc, Host, Key, Piece

SUCCESSORS_MAX = 64
PIECES_MAX = 256
FILTERS_MAX = 4096
OFFERS_MAX = 1024
FILTER_TEXT_MAX = 65_536

Hosts = Annotated[tuple[Host, ...], Meta(max_length=SUCCESSORS_MAX)]
Pieces = Annotated[tuple[Piece, ...], Meta(max_length=PIECES_MAX)]
Wish = tuple[
    Annotated[str, Meta(min_length=1, max_length=TOPIC_LENGTH_MAX)],
    Annotated[str, Meta(max_length=FILTER_TEXT_MAX)],
]
"""A topic and the text of a filter on it."""
BatchId = tuple[Uint64, Count, Count]
"""Publisher, incarnation, first sequence number."""


# Ring.


class Find(Message, frozen=True, array_like=True, tag=50):
    token: Count
    key: Key


class Owner(Message, frozen=True, array_like=True, tag=51):
    token: Count
    arc: Arc


class Nearer(Message, frozen=True, array_like=True, tag=52):
    """Not mine: ask these, the nearest first. Nobody: ask later."""

    token: Count
    hosts: Hosts


class Ask(Message, frozen=True, array_like=True, tag=53):
    token: Count


class State(Message, frozen=True, array_like=True, tag=54):
    token: Count
    predecessor: Host | None
    successors: Hosts


class Occupied(Message, frozen=True, array_like=True, tag=55):
    """A question of our own is under way, so our state is about to change: ask again."""

    token: Count


class Notify(Message, frozen=True, array_like=True, tag=56):
    host: Host


class Met(Message, frozen=True, array_like=True, tag=57):
    """A member of another ring. Each host passes a meeting on once."""

    meeting: Uint64
    host: Host


# Tree.


class Attach(Message, frozen=True, array_like=True, tag=61):
    """By the sender's reckoning we are neighbours; these are its keys. ``above``: it is the parent.

    ``heard``: it has our claim; if not, it is told again.
    """

    arc: Arc
    above: bool
    heard: bool


class Notice(Message, frozen=True, array_like=True, tag=62):
    """The sender's neighbours have changed: reckon anew. ``gone``: you are none of them, and it uses this link no longer."""

    gone: bool = False


class Yield(Message, frozen=True, array_like=True, tag=63):
    """The sender, before us on the ring, owns these keys now."""

    arc: Arc


class Yielded(Message, frozen=True, array_like=True, tag=64):
    """Nobody takes them for ours any longer."""

    ready: bool = True  # the sender is no newcomer itself, whose keys were somebody else's


class Announce(Message, frozen=True, array_like=True, tag=65):
    """Whose keys are behind the sender, and filters that cover every subscription of theirs; always the two together."""

    version: Count
    pieces: Pieces
    everything: bool  # too many filters to tell
    again: bool  # and tell me what is behind you
    below: bool  # the sender has us for its parent; else it means what is below it
    wishes: Annotated[tuple[Wish, ...], Meta(max_length=FILTERS_MAX)] = ()


class Laid(Message, frozen=True, array_like=True, tag=66):
    """Announcements up to this one are known to everybody behind us whom they concern."""

    version: Count


class Carry(Message, frozen=True, array_like=True, tag=67):
    """A batch for the owners of these keys. Without keys: a copy to make up for a break; nobody waits for a report."""

    is_event: ClassVar[bool] = True

    batch: Batch
    want: Pieces


class Reached(Message, frozen=True, array_like=True, tag=68):
    """The batch has reached the owners of these keys, and so many subscriptions took each event."""

    id: BatchId
    round: Count
    pieces: Pieces
    matched: Annotated[tuple[Matched, ...], Meta(max_length=BATCH_EVENTS_MAX)] = ()
    # Per event: subscriptions that discarded it; empty if all are zero.
    dropped: Annotated[tuple[Matched, ...], Meta(max_length=BATCH_EVENTS_MAX)] = ()


class Offer(Message, frozen=True, array_like=True, tag=69):
    """Recent batches that the sender has; ``ask``: no, that it lacks and wants."""

    ids: Annotated[tuple[BatchId, ...], Meta(max_length=OFFERS_MAX)]
    ask: bool = False


RingMessage = Find | Owner | Nearer | Ask | State | Occupied | Notify | Met
TreeMessage = (
    RingMessage | Attach | Notice | Yield | Yielded | Announce | Laid | Carry | Reached | Offer
)
RING_MESSAGES = (Find, Owner, Nearer, Ask, State, Occupied, Notify, Met)
