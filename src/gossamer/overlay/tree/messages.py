"""Everything that hosts of the tree say to each other, in one union.

Bounds are checked when a message is decoded, because it comes from a peer.

Ring (Chord; a question without an answer is asked again):
    Find, Owner, Nearer     look-ups, one step at a time
    Ask, State, Occupied    the predecessor and the successors of a member, or the word that it has
                            a question of its own under way; either answer says that it lives
    Notify                  the sender takes itself for the receiver's predecessor
    Met                     two rings know of each other, and the receiver looks itself up in the
                            other one

Tree:
    Attach, Notice          the sender claims to be a neighbour; its neighbours have changed
    Yield, Yielded          a newcomer asks its successor to stop answering for its keys
    Announce, Laid          routes: the keys and the filters behind the sender; all whom they
                            concern know them
    Carry, Reached, Waits   a batch on its way; the keys whose owners it has reached; a request for
                            patience
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
    """The sender does not own the key: ask these hosts, the nearest first.

    If there are none, ask later.
    """

    token: Count
    hosts: Hosts


class Ask(Message, frozen=True, array_like=True, tag=53):
    token: Count


class State(Message, frozen=True, array_like=True, tag=54):
    token: Count
    predecessor: Host | None
    successors: Hosts


class Occupied(Message, frozen=True, array_like=True, tag=55):
    """The sender has a question of its own under way, so its state will change: ask again."""

    token: Count


class Notify(Message, frozen=True, array_like=True, tag=56):
    host: Host


class Met(Message, frozen=True, array_like=True, tag=57):
    """A member of another ring. Each host passes a meeting on once."""

    meeting: Uint64
    host: Host


# Tree.


class Attach(Message, frozen=True, array_like=True, tag=61):
    """By the sender's reckoning the two are neighbours, and these are its keys.

    ``above``: the sender is the parent. ``heard``: it has the receiver's claim; if not, it is told
    again.
    """

    arc: Arc
    above: bool
    heard: bool


class Notice(Message, frozen=True, array_like=True, tag=62):
    """The sender's neighbours have changed, so the receiver reckons anew.

    ``gone``: the receiver is none of them, and the sender uses this link no longer.
    """

    gone: bool = False


class Yield(Message, frozen=True, array_like=True, tag=63):
    """The sender, which stands before the receiver on the ring, owns these keys now."""

    arc: Arc


class Yielded(Message, frozen=True, array_like=True, tag=64):
    """Nobody takes these keys for the sender's any longer."""

    # The sender is no newcomer itself, whose keys were another host's before.
    ready: bool = True


class Announce(Message, frozen=True, array_like=True, tag=65):
    """The keys behind the sender, and filters that cover every subscription of their owners.

    The two always travel together.
    """

    version: Count
    pieces: Pieces
    # There are too many filters to tell.
    everything: bool
    # The receiver is to announce the keys and filters behind it, too.
    again: bool
    # The sender has the receiver for its parent; else it means the hosts below itself.
    below: bool
    wishes: Annotated[tuple[Wish, ...], Meta(max_length=FILTERS_MAX)] = ()


class Laid(Message, frozen=True, array_like=True, tag=66):
    """Announcements up to this one are known to all hosts behind the sender whom they concern."""

    version: Count


class Carry(Message, frozen=True, array_like=True, tag=67):
    """A batch for the owners of these keys, or of all keys if there are no pieces.

    The sender waits for one report.
    """

    is_event: ClassVar[bool] = True

    batch: Batch
    want: Pieces


class Reached(Message, frozen=True, array_like=True, tag=68):
    """The answer to a ``Carry`` with the same ``want``.

    The keys in ``pieces`` have been answered for, and their owners' subscriptions have taken the
    events as often as ``matched`` says.
    """

    is_report: ClassVar[bool] = True

    id: BatchId
    round: Count
    want: Pieces
    pieces: Pieces
    # One number for each event; empty if all are zero.
    matched: Annotated[tuple[Matched, ...], Meta(max_length=BATCH_EVENTS_MAX)] = ()
    # For each event, the subscriptions that discarded it; empty if all are zero.
    dropped: Annotated[tuple[Matched, ...], Meta(max_length=BATCH_EVENTS_MAX)] = ()


class Waits(Message, frozen=True, array_like=True, tag=69):
    """The batch of a ``Carry`` with this ``want`` is here, and others have not reported yet."""

    id: BatchId
    round: Count
    want: Pieces


RingMessage = Find | Owner | Nearer | Ask | State | Occupied | Notify | Met
TreeMessage = (
    RingMessage | Attach | Notice | Yield | Yielded | Announce | Laid | Carry | Reached | Waits
)
RING_MESSAGES = (Find, Owner, Nearer, Ask, State, Occupied, Notify, Met)
