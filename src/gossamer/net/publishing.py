"""``Node.publish`` and ``Node.publish_batch``: how events get into the outbox, when they leave it,
and the receipts that the publisher gets for them and awaits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from gossamer.filters import EventError
from gossamer.node import Ticket, WindowFullError
from gossamer.node.outbox import Publication
from gossamer.node.together import Part, Rows, cut, publish_columns, publish_rows

if TYPE_CHECKING:
    from gossamer.net.node import Node

# While fewer events are without a receipt, the first event of a turn goes at once.
EAGER_EVENTS = 16

Once = tuple[str, tuple[int, ...]]


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
        index = self.index
        return Done(
            publication.publisher,
            publication.incarnation,
            publication.first + index,
            publication.took(index),
            publication.lost(index),
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


async def publish(node: Node, topic: str, event: Mapping[str, Any]) -> Receipt:
    """Accepts an event.

    It returns once the event is in the outbox, and with a data_dir once it is on disk. Await the
    receipt for the rest.
    """
    lane = node._outbox.lane
    # This is the usual way: a batch is open, and leaves at the end of this turn.
    if lane is not None:
        taken = lane(topic, event)
        if taken is not None:
            return taken  # type: ignore[return-value]
    driver, core = node._driver, node._core
    while True:
        try:
            now = driver.tick if driver.soon else driver.now()
            receipt: Receipt = core.publish(topic, event, now)  # type: ignore[assignment]
            break
        except WindowFullError:
            await node._waiting.window()
    publication = receipt.publication
    if publication.first < 0 and driver.soon and node._disk is None:
        return receipt
    if node._refuses:
        node._check_open()
    # The event's batch is full.
    if publication.first >= 0:
        driver.wake()
        await _turn(node)
    elif not driver.soon:
        _send_or_wait(node)
    if node._disk is not None and not publication.accepted:
        await asyncio.shield(waiter(publication).accepted)
    return receipt


async def publish_batch(
    node: Node, topic: str, events: Any, once: Once | None = None
) -> BatchReceipt:
    """Accepts events together: a list of them, or a ``pyarrow.RecordBatch``.

    All are accepted or none. A record batch travels by columns and is filtered by columns. Up to
    4,096 events of a list, and 32,768 of columns (3 MiB), have consecutive ids. A larger batch is
    cut, and record batches that follow each other closely travel as one. ``once`` is for columns:
    it is the batch's number in a stream that may be published again. A part that was accepted under
    this number is left out (a data directory remembers it).
    """
    lane = node._outbox.wide_lane
    # This is the usual way of columns: some went before in this turn.
    if lane is not None and once is None:
        part = lane(topic, events)
        if part is not None:
            return BatchReceipt(*part)
    node._check_open()
    if hasattr(events, "num_rows"):
        parts = await _publish_columns(node, topic, events, once)
    elif isinstance(events, Iterable) and not isinstance(events, str | bytes | dict):
        parts = await _publish_rows(node, topic, events)
    else:
        raise EventError(
            f"a batch is a pyarrow.RecordBatch or a list of events, not {type(events).__name__}"
        )
    if node._disk is not None:
        for publication, _, _ in parts:
            if not publication.accepted:
                await asyncio.shield(waiter(publication).accepted)
    return BatchReceipt(*parts[0], parts[1:]) if parts else BatchReceipt(None, 0, 0)


async def _publish_rows(node: Node, topic: str, events: Iterable[Any]) -> list[Part]:
    core, driver = node._core, node._driver
    given = Rows(core, topic, events)
    parts: list[Part] = []
    at = 0
    while at < len(given.rows):
        try:
            publication, count = publish_rows(core, topic, given, at, driver.now())
        except WindowFullError:
            await node._waiting.window()
            continue
        at += count
        start = (publication.count or len(publication.rows)) - count
        parts.append((publication, start, count))
        if publication.first >= 0:
            driver.wake()
            await _turn(node)
    driver.settle()
    return parts


async def _publish_columns(node: Node, topic: str, batch: Any, once: Once | None) -> list[Part]:
    core = node._core
    core.topics.check(topic)
    record = core.local.topic(topic).packed.record(batch)
    if record.num_rows <= core.config.batch_events:
        return await _publish_piece(node, topic, record, once, 0)
    # Each piece waits for room. All at once, many pieces would exceed this node's window.
    parts: list[Part] = []
    for place, piece in enumerate(cut(core, topic, record, once=once is not None)):
        parts += await _publish_piece(node, topic, piece, once, place)
    return parts


async def _publish_piece(
    node: Node, topic: str, record: Any, once: Once | None, place: int
) -> list[Part]:
    core, driver = node._core, node._driver
    while True:
        try:
            before = core.outbox.events
            parts = publish_columns(core, topic, record, driver.now(), once, place)
            break
        except WindowFullError:
            await node._waiting.window()
    # A batch was full.
    if core.outbox.events > before:
        driver.wake()
        if 2 * (core.outbox.events - before) >= core.config.column_rows:
            await _turn(node)
        else:
            # It was of very small record batches, which took as long as a full batch.
            await asyncio.sleep(0)
    elif not driver.soon:
        _send_or_wait(node)
    return parts


async def _turn(node: Node) -> None:
    """A batch is full and on its way: after every other one the loop may write and read.

    Consumers that take a few events each wake up half as often when two batches come at a time.
    This costs them a sixth less.
    """
    limits = node._core.config
    # In a smaller buffer, two batches would be too much for a consumer that drops the oldest.
    node._full = not node._full and limits.buffer >= 2 * limits.batch_events
    if not node._full:
        await asyncio.sleep(0)


def _send_or_wait(node: Node) -> None:
    """Sends the open batch at once if next to nothing is on its way.

    Waiting for company would only cost time then. Later events of this turn of the loop wait for
    its end.
    """
    core, driver = node._core, node._driver
    if not node._eager and core.outbox.events < EAGER_EVENTS:
        node._eager = True
        driver.perform(core.send_open(driver.tick))
        driver.flush()
        driver.loop.call_soon(node._turn_over)
        driver.settle_soon()
    else:
        driver.settle()
