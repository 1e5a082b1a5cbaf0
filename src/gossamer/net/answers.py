"""What a node answers on its admin socket: {"do": ...}, one JSON object a line, {"error": ...} for what cannot be.

status                          what the node is and does
view, topic?, watch?            who wants which topic; with "watch" also every change, until the asker hangs up
sample                          how it does at this moment: rates and queues can be told from two of them
tree                            the dispatch tree, parents first
lookup, topic, event?           which subscriptions of the topic's skip list would take the event
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from gossamer.filters import EventError, Schema, from_plain
from gossamer.net.errors import NodeError
from gossamer.net.sample import sample
from gossamer.node import RouteError, TopicError

if TYPE_CHECKING:
    from gossamer.net.node import Node


async def answer(node: Node, request: dict[str, Any]) -> AsyncIterator[Any]:
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
