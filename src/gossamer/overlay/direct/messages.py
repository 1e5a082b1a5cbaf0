"""What publishers and subscribers say to each other on route "direct". Bounds are checked when a message is decoded.

Watch     what do you want on this topic? I have all up to ``have``; also the answer to Wanted
Wanted    the next part of it, in the order in which it changed
Unwatch   I need not be told any more
Portion   events of a batch for the receiver, or for one of a group at the receiver
Taken     how many subscriptions took each
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
CHANGES_MAX = 1024  # in one message
CHANGES_CHARACTERS = 256 << 10  # beyond it another message begins

GroupName = Annotated[str, Meta(max_length=GROUP_LENGTH_MAX)]
Want = tuple[Count, Annotated[str, Meta(max_length=FILTER_TEXT_MAX)] | None, GroupName]
"""Its number at the subscriber, the text of the filter ("": all events; None: no longer wanted), and the group ("": none)."""
Offset = Annotated[int, Meta(ge=0, lt=BATCH_EVENTS_MAX)]


class Watch(Message, frozen=True, array_like=True, tag=81):
    topic: Uint64  # hash of the name
    epoch: (
        Count  # of the subscriber, which numbers its changes anew in each; 0: nothing is known yet
    )
    have: Count
    session: Count = 0  # the publisher numbers them: what is said of an earlier one comes too late


class Wanted(Message, frozen=True, array_like=True, tag=82):
    topic: Uint64
    epoch: Annotated[int, Meta(ge=1, le=2**53)]
    base: Count  # these are the changes after this one,
    version: Count  # up to this one;
    latest: Count  # and so many there are
    changes: Annotated[tuple[Want, ...], Meta(max_length=CHANGES_MAX)]
    session: Count = 0  # of the Watch that it answers


class Unwatch(Message, frozen=True, array_like=True, tag=83):
    topic: Uint64
    session: Count = 0  # this one, and those before


class Portion(Message, frozen=True, array_like=True, tag=84):
    """Events of the sender's batch (incarnation, first). Sent again, it is the same."""

    is_event: ClassVar[bool] = True
    bulk: ClassVar[str] = "rows"

    topic: Annotated[str, Meta(min_length=1, max_length=TOPIC_LENGTH_MAX)]
    publisher: Uint64  # who sends it: nobody speaks for another
    incarnation: Count
    first: First
    part: Count  # of what the receiver gets of this batch: 0, 1, ...
    floor: Count
    offsets: Annotated[
        tuple[Offset, ...], Meta(max_length=BATCH_EVENTS_MAX)
    ]  # ascending, from ``first``; none: see count
    group: GroupName
    rows: Annotated[bytes, Meta(max_length=BATCH_BYTES_MAX)]
    count: Annotated[int, Meta(ge=0, le=BATCH_EVENTS_MAX)] = (
        0  # without offsets: the whole batch, of so many events
    )

    @property
    def places(self) -> Sequence[int]:
        """The offsets of its events."""
        return self.offsets or range(self.count)


class Taken(Message, frozen=True, array_like=True, tag=85):
    incarnation: Count
    first: Count
    part: Count
    matched: Annotated[
        tuple[Matched, ...], Meta(max_length=BATCH_EVENTS_MAX)
    ] = ()  # an event; one: of each; empty: none
    # Subscriptions that discarded it, likewise; as many numbers as ``matched``, or none.
    dropped: Annotated[tuple[Matched, ...], Meta(max_length=BATCH_EVENTS_MAX)] = ()

    is_report: ClassVar[bool] = True


class Holding(Message, frozen=True, array_like=True, tag=86):
    incarnation: Count
    first: Count
    part: Count
    # False: there was no room for the portion, and it is to be sent again later.
    is_kept: bool = True


DirectMessage = Watch | Wanted | Unwatch | Portion | Taken | Holding


def brief(matched: tuple[int, ...]) -> tuple[int, ...]:
    """Counts as they travel: most often all are the same."""
    return matched[:1] if matched and matched.count(matched[0]) == len(matched) else matched
