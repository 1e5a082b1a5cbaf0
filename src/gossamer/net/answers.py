"""What a node answers on its admin socket: {"do": ...}, one JSON object a line, {"error": ...} for what cannot be.

status                          what the node is and does
view, topic?, watch?            who wants which topic; with "watch" also every change, until the asker hangs up
sample                          how it does at this moment: rates and queues can be told from two of them
tree                            the dispatch tree, parents first
lookup, topic, event?           which subscriptions of the topic's skip list would take the event
publish, topic, wait?, more     publishes the events that follow, a JSON object a line, and answers with their receipts; the first
                                that cannot be published ends it: {"refused": its place, "why": ...}
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from gossamer.filters import EventError, Schema, event_of, from_plain
from gossamer.net.admin import REQUEST_MAX
from gossamer.net.errors import NodeError
from gossamer.net.receipt import Done, Receipt
from gossamer.net.sample import sample
from gossamer.node import RouteError, TopicError
from gossamer.trace import hex_peer

if TYPE_CHECKING:
    from gossamer.net.node import Node

RECEIPTS_MAX = 10_000  # of one who publishes, held at a time


async def answer(node: Node, request: dict[str, Any], more: AsyncIterator[bytes]) -> AsyncIterator[Any]:
    do = request.get("do")
    if do == "status":
        yield node.status()
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


async def _publish(node: Node, request: dict[str, Any], more: AsyncIterator[bytes]) -> AsyncIterator[Any]:
    topic, wait = str(request.get("topic")), request.get("wait")
    receipts: list[Receipt] = []
    refused = None
    try:
        schema = Schema.parse(await node.topic(topic, *([float(wait)] if isinstance(wait, int | float) else [])))
        place = 0
        try:
            async for line in more:
                receipts.append(await node.publish(topic, event_of(schema, line)))
                place += 1
                if len(receipts) >= RECEIPTS_MAX:
                    for receipt in receipts:
                        yield _told(await receipt)
                    receipts.clear()
        except EventError as error:
            refused = {"refused": place, "why": str(error)}
        except (NodeError, TopicError):
            raise
        except ValueError:  # of the reader: a line that does not end
            refused = {"refused": place, "why": f"more than {REQUEST_MAX} bytes"}
        for receipt in receipts:  # what has gone out is reported, whatever stops the rest
            yield _told(await receipt)
        if refused is not None:
            yield refused
    except (NodeError, TopicError) as error:
        yield {"error": str(error)}


def _told(done: Done) -> dict[str, Any]:
    return {"sequence": done.sequence, "matched": done.matched, "publisher": hex_peer(done.publisher)}
