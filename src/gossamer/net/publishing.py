"""``Node.publish`` and ``Node.publish_batch``: how events get into the outbox, and when they
leave it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from gossamer.filters import EventError
from gossamer.net.receipt import BatchReceipt, Receipt, waiter
from gossamer.node import WindowFullError
from gossamer.node.together import Part, Rows, cut, publish_columns, publish_rows

if TYPE_CHECKING:
    from gossamer.net.node import Node

# While fewer events are without a receipt, the first event of a turn goes at once.
EAGER_EVENTS = 16

Once = tuple[str, tuple[int, ...]]


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
