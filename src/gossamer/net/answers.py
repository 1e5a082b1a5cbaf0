"""The answers of a node on its admin socket.

A request is {"do": ...}. An answer has one JSON object a line, and {"error": ...} for a request
that cannot be met.

status                          the node, its settings and its counters
view, topic?, watch?            the nodes that want the topic; with "watch" also every change,
                                until the client hangs up
topics                          the topics, with the nodes that advertised them
sample                          the state of this moment; two samples give rates and queues
tree                            the dispatch tree, parents first
lookup, topic, event?           the subscriptions of the topic's skip list that would take the event
publish, topic, wait?, more     publishes the events that follow, a JSON object a line, and answers
                                with their receipts; the first event that cannot be published ends
                                it: {"refused": its place, "why": ...}
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from gossamer.filters import EventError, Schema, event_of, from_plain
from gossamer.net.admin import REQUEST_MAX
from gossamer.net.errors import NodeError
from gossamer.net.publishing import BatchDone, BatchReceipt
from gossamer.net.sample import sample
from gossamer.net.status import describe_topics
from gossamer.node import RouteError, TopicError
from gossamer.trace import hex_peer

if TYPE_CHECKING:
    from gossamer.net.node import Node

# The most receipts of one client that are held at a time.
RECEIPTS_MAX = 10_000
# The most lines that are published together.
TOGETHER_MAX = 1024


async def answer(
    node: Node, request: dict[str, Any], more: AsyncIterator[bytes]
) -> AsyncIterator[Any]:
    do = request.get("do")
    if do == "status":
        yield node.status()
    elif do == "topics":
        for told in describe_topics(node._core):
            yield told
    elif do == "sample":
        yield sample(node)
    elif do == "tree":
        for place in node.tree():
            yield place
    elif do == "view":
        async for line in _view(node, request):
            yield line
    elif do == "lookup":
        topic, event = str(request.get("topic")), request.get("event")
        try:
            schema = Schema.parse(await node.topic(topic))
            typed = from_plain(schema, event) if isinstance(event, dict) else None
            for hit in await node.lookup(topic, typed):
                yield hit
        except (NodeError, TopicError, RouteError, EventError) as error:
            yield {"error": str(error)}
    elif do == "publish":
        async for line in _publish(node, request, more):
            yield line
    else:
        yield {"error": f"unknown request {do!r}"}


async def _view(node: Node, request: dict[str, Any]) -> AsyncIterator[Any]:
    topic = request.get("topic")
    view = node.view(topic if isinstance(topic, str) else None)
    changes = view.changes() if request.get("watch") else None
    await view.names()
    for interested in view.nodes():
        yield to_builtins(interested)
    if changes is not None:
        async for change in changes:
            yield to_builtins(change)


async def _publish(
    node: Node, request: dict[str, Any], more: AsyncIterator[bytes]
) -> AsyncIterator[Any]:
    topic, wait = str(request.get("topic")), request.get("wait")
    receipts: deque[BatchReceipt] = deque()
    end: dict[str, Any] | None = None
    place = held = 0
    try:
        schema = Schema.parse(
            await node.topic(topic, *([float(wait)] if isinstance(wait, int | float) else []))
        )
        async for lines in _together(more):
            events: list[Mapping[str, Any]] = []
            try:
                for line in lines:
                    # The reader raises it for a line that does not end.
                    if isinstance(line, ValueError):
                        raise EventError(f"more than {REQUEST_MAX} bytes")
                    events.append(event_of(schema, line))
            except EventError as error:
                end = {"refused": place + len(events), "why": str(error)}
            try:
                receipts.append(await node.publish_batch(topic, events))
            # One of the events is too large. They are published one by one to find it.
            except EventError:
                for event in events:
                    try:
                        receipts.append(await node.publish_batch(topic, [event]))
                    except EventError as error:
                        end = {"refused": place, "why": str(error)}
                        break
                    place += 1
            else:
                place += len(events)
            held += len(events)
            if end is not None:
                break
            if held >= RECEIPTS_MAX:
                while receipts:
                    for told in _told(await receipts.popleft()):
                        yield told
                held = 0
    except (NodeError, TopicError) as error:
        end = {"error": str(error)}
    # Events that were published are reported, whatever stops the others.
    try:
        while receipts:
            for told in _told(await receipts.popleft()):
                yield told
    except NodeError as error:
        end = end or {"error": str(error)}
    if end is not None:
        yield end


async def _together(more: AsyncIterator[bytes]) -> AsyncIterator[list[bytes | ValueError]]:
    """Collects the lines that have come already.

    They are published together, because a data directory costs a flush each time. The last element
    may be an error.
    """
    some: list[bytes | ValueError] = []
    following = asyncio.ensure_future(anext(more))
    try:
        while True:
            if some:
                await asyncio.sleep(0)
                if not following.done() or len(some) >= TOGETHER_MAX:
                    yield some
                    some = []
            try:
                some.append(await following)
            except ValueError as error:
                some.append(error)
                break
            following = asyncio.ensure_future(anext(more))
    except StopAsyncIteration:
        pass
    finally:
        following.cancel()
    if some:
        yield some


def _told(done: BatchDone) -> Iterator[dict[str, Any]]:
    publisher = hex_peer(done.publisher)
    told = zip(done.sequences, done.matched, done.dropped, strict=True)
    for sequence, matched, dropped in told:
        yield {
            "sequence": sequence,
            "matched": matched,
            "dropped": dropped,
            "publisher": publisher,
        }
