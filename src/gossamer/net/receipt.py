"""Receipts: a publisher holds one for an event that was accepted, and awaits it until it is
complete.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from typing import Any

from msgspec import Struct

from gossamer.node import Ticket
from gossamer.node.outbox import Publication
from gossamer.node.together import Part


class Done(Struct, frozen=True):
    """A complete receipt: every part of the fabric that could hold a match has reported."""

    publisher: int
    incarnation: int
    sequence: int
    # The number of subscriptions that have the event: in their buffers, in their consumers' hands,
    # or stored.
    matched: int
    # The number of further subscriptions that were handed the event and discarded it before they
    # reported.
    dropped: int = 0


class Waiter:
    """The futures on which the callers wait for a publication."""

    __slots__ = ("accepted", "complete")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.accepted: asyncio.Future[None] = loop.create_future()
        self.complete: asyncio.Future[None] = loop.create_future()


def waiter(publication: Publication) -> Waiter:
    if publication.waiter is None:
        publication.waiter = Waiter(asyncio.get_running_loop())
    found: Waiter = publication.waiter
    return found


class Receipt(Ticket, frozen=True, gc=False):
    """The receipt of an accepted event, from ``publish``. Await it for the complete receipt."""

    def __await__(self) -> Generator[Any, None, Done]:
        publication = self.publication
        if publication.matched is None:
            yield from asyncio.shield(waiter(publication).complete).__await__()
        return Done(
            publication.publisher,
            publication.incarnation,
            publication.first + self.index,
            self.matched,
            self.dropped,
        )


class BatchDone(Struct, frozen=True):
    """The complete receipt of events that were published together."""

    publisher: int
    incarnation: int
    # One for each event, in their order.
    sequences: tuple[int, ...]
    # One for each event, as in ``Done``.
    matched: tuple[int, ...]
    # One for each event, as in ``Done``.
    dropped: tuple[int, ...] = ()


class BatchReceipt(Struct, frozen=True, eq=False, gc=False):
    """The receipt of an accepted batch, from ``publish_batch``. Await it for the complete
    receipt.
    """

    # The first part (None: there were no events) and the others. They are apart because most
    # receipts have one part, and many receipts are kept.
    _publication: Publication | None
    _start: int
    _count: int
    _more: Sequence[Part] = ()

    @property
    def _parts(self) -> list[Part]:
        return (
            []
            if self._publication is None
            else [(self._publication, self._start, self._count), *self._more]
        )

    def __len__(self) -> int:
        return sum(count for _, _, count in self._parts)

    @property
    def done(self) -> bool:
        return all(publication.matched is not None for publication, _, _ in self._parts)

    def __await__(self) -> Generator[Any, None, BatchDone]:
        sequences: list[int] = []
        matched: list[int] = []
        dropped: list[int] = []
        publisher = incarnation = 0
        for publication, start, count in self._parts:
            if publication.matched is None:
                yield from asyncio.shield(waiter(publication).complete).__await__()
            publisher, incarnation = publication.publisher, publication.incarnation
            sequences += range(publication.first + start, publication.first + start + count)
            counts = publication.matched
            assert counts is not None
            matched += counts * count if len(counts) == 1 else counts[start : start + count]
            lost = publication.dropped or (0,)
            dropped += lost * count if len(lost) == 1 else lost[start : start + count]
        return BatchDone(publisher, incarnation, tuple(sequences), tuple(matched), tuple(dropped))
