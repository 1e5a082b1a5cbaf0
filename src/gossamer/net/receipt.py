"""Receipts: what a publisher holds of an event that was accepted, and awaits until it is complete."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

from msgspec import Struct

from gossamer.node import Ticket
from gossamer.node.outbox import Publication


class Done(Struct, frozen=True):
    """A complete receipt: every part of the fabric that could hold a match has reported."""

    publisher: int
    incarnation: int
    sequence: int
    matched: int  # how many subscriptions took the event: known, not guessed


class Waiter:
    """Futures of those who wait for a publication."""

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
    """Returned by ``publish`` once the event is accepted; await it for the complete receipt."""

    def __await__(self) -> Generator[Any, None, Done]:
        publication = self.publication
        if publication.matched is None:
            yield from asyncio.shield(waiter(publication).complete).__await__()
        return Done(publication.publisher, publication.incarnation, publication.first + self.index, self.matched)
