"""The messages of route "direct". Their bounds are checked when a message is decoded.

Watch     a publisher asks for the receiver's filters on a topic, and has all up to ``have``; it is
          also the answer to Wanted
Wanted    the next filters, in the order in which they changed
Unwatch   the publisher need not be told any more
Portion   events of a batch for the receiver, or for one member of a group at the receiver
Taken     the numbers of subscriptions that took each event of a portion
Holding   the portion is here and not taken yet; or there is no room for it yet
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from msgspec import Meta

from gossamer.machine import Message
from gossamer.overlay.batch import (
    BATCH_BYTES_MAX,
    BATCH_EVENTS_MAX,
    TOPIC_LENGTH_MAX,
    Count,
    First,
    Matched,
    Uint64,
)

FILTER_TEXT_MAX = 65_536
GROUP_LENGTH_MAX = 255
# The most changes in one message, and the characters beyond which another message begins.
CHANGES_MAX = 1024
CHANGES_CHARACTERS = 256 << 10

GroupName = Annotated[str, Meta(max_length=GROUP_LENGTH_MAX)]
Want = tuple[Count, Annotated[str, Meta(max_length=FILTER_TEXT_MAX)] | None, GroupName]
"""The number of a wish at the subscriber, the text of the filter ("": all events; None: no longer
wanted), and the group ("": none)."""
Offset = Annotated[int, Meta(ge=0, lt=BATCH_EVENTS_MAX)]


class Watch(Message, frozen=True, array_like=True, tag=81):
    # The hash of the topic's name.
    topic: Uint64
    # The subscriber numbers its changes anew in each epoch. 0: nothing is known yet.
    epoch: Count
    have: Count
    # The publisher numbers its sessions. An answer to an earlier one comes too late.
    session: Count = 0


class Wanted(Message, frozen=True, array_like=True, tag=82):
    topic: Uint64
    epoch: Annotated[int, Meta(ge=1, le=2**53)]
    # The message has the changes after ``base``, up to ``version``. The last of all is ``latest``.
    base: Count
    version: Count
    latest: Count
    changes: Annotated[tuple[Want, ...], Meta(max_length=CHANGES_MAX)]
    # The session of the Watch that it answers.
    session: Count = 0


class Unwatch(Message, frozen=True, array_like=True, tag=83):
    topic: Uint64
    # It ends this session, and those before.
    session: Count = 0


class Portion(Message, frozen=True, array_like=True, tag=84):
    """Events of the sender's batch (incarnation, first). It is the same when it is sent again."""

    is_event: ClassVar[bool] = True
    bulk: ClassVar[str] = "rows"

    topic: Annotated[str, Meta(min_length=1, max_length=TOPIC_LENGTH_MAX)]
    # The publisher is the sender: no node speaks for another.
    publisher: Uint64
    incarnation: Count
    first: First
    # The number of this portion among those of the batch that the receiver gets: 0, 1, ...
    part: Count
    floor: Count
    # The places of the events, counted from ``first``, ascending. Without any it is the whole batch
    # of ``count`` events.
    offsets: Annotated[tuple[Offset, ...], Meta(max_length=BATCH_EVENTS_MAX)]
    group: GroupName
    rows: Annotated[bytes, Meta(max_length=BATCH_BYTES_MAX)]
    count: Annotated[int, Meta(ge=0, le=BATCH_EVENTS_MAX)] = 0

    @property
    def places(self) -> Sequence[int]:
        """The places of its events in the batch."""
        return self.offsets or range(self.count)


class Taken(Message, frozen=True, array_like=True, tag=85):
    incarnation: Count
    first: Count
    part: Count
    # One number for each event, or one number that is that of each event; empty: all are zero.
    matched: Annotated[tuple[Matched, ...], Meta(max_length=BATCH_EVENTS_MAX)] = ()
    # The numbers of subscriptions that discarded each event, in the same form; empty: all are zero.
    dropped: Annotated[tuple[Matched, ...], Meta(max_length=BATCH_EVENTS_MAX)] = ()

    is_report: ClassVar[bool] = True


class Holding(Message, frozen=True, array_like=True, tag=86):
    incarnation: Count
    first: Count
    part: Count
    # False: there was no room for the portion, and the publisher sends it again later.
    is_kept: bool = True


DirectMessage = Watch | Wanted | Unwatch | Portion | Taken | Holding


def brief(matched: tuple[int, ...]) -> tuple[int, ...]:
    """Counts as they travel: one number if all are the same, as they are most often."""
    return matched[:1] if matched and matched.count(matched[0]) == len(matched) else matched
