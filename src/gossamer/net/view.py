"""The view as a program holds it: the nodes that want a topic, and the changes.

view = node.view("weather")
view.nodes()                                # now
async for change in view.changes():         # from now on: joined, left, returned
    # A node left and came back unnoticed. A publisher that retains events for it resends them.
    if change.kind == "returned": ...
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Self

from msgspec import Struct

from gossamer.net.errors import NodeError
from gossamer.overlay.interest.names import Names
from gossamer.overlay.interest.record import Record, ViewChange, read_stamp, route_names
from gossamer.trace import hex_peer

if TYPE_CHECKING:
    from gossamer.net.node import Node

# The most changes that wait for one reader.
CHANGES_MAX = 65_536
# For names of topics that this node has never heard of.
NAMES_SECONDS = 2.0


class ViewLagError(NodeError):
    """A reader of changes fell too far behind. Read the view again, and go on from there."""


class Interested(Struct, frozen=True):
    """A node that wants a topic."""

    node: str
    address: str
    topic: str
    route: str
    # The node's leave counter when it subscribed.
    leaves: int
    incarnation: int
    suspected: bool = False


class Change(Struct, frozen=True):
    """One node's interest in one topic changed."""

    # "joined", "left", or "returned" (it left and came back in between).
    kind: str
    topic: str
    node: str
    address: str
    # "news" (the node said so), "joined", "left", "failed" (declared dead), or "new life".
    reason: str


class TopicView:
    """The nodes that want a topic; without a topic, all nodes and their wishes."""

    def __init__(self, node: Node, topic: str | None) -> None:
        self.topic = topic
        self._node = node

    def nodes(self) -> list[Interested]:
        """The nodes as this node knows them now, itself included.

        Names that it does not know show as #hash (see ``names``).
        """
        interest = self._node._interest
        names = self._names()
        members, suspects = interest.view.members, interest.suspects
        found: list[Interested] = []
        if self.topic is not None:
            topic = names.hash(self.topic)
            pairs = [
                (peer, topic, stamp) for peer, stamp in interest.view.interested(topic).items()
            ]
        else:
            pairs = [
                (peer, *pair)
                for peer, known in members.items()
                for pair in known.record.pairs().items()
            ]
        for peer, topic, stamp in pairs:
            record = members[peer].record
            counter, routes = read_stamp(stamp)
            name = self.topic or names.show(topic)
            about = (
                hex_peer(peer),
                record.address,
                name,
                route_names(routes),
                counter,
                record.incarnation,
                peer in suspects,
            )
            found.append(Interested(*about))
        return sorted(found, key=lambda one: (one.topic, one.node))

    async def names(self, timeout: float = NAMES_SECONDS) -> bool:
        """Asks for names that are known only by their hash. Returns whether all are known now."""
        node = self._node
        names, loop = self._names(), node._driver.loop
        until = loop.time() + timeout
        while unknown := names.unknown(node._interest.view.topics()):
            if loop.time() >= until:
                return False
            node._interest.ask_names(unknown, node._driver.now())
            node._driver.wake()
            await asyncio.sleep(0.05)
        return True

    def changes(self) -> Changes:
        """The changes from this call on, as this node learns of them: an async iterator."""
        return Changes(self)

    def _names(self) -> Names:
        names = self._node._interest.names
        for topic in self._node._core.topics.schemas:
            names.learn(topic)
        return names

    def _explain(self, change: ViewChange) -> list[Change]:
        names = self._names()
        record: Record | None = change.after if change.after is not None else change.before
        assert record is not None
        only = names.hash(self.topic) if self.topic is not None else None
        found = []
        for kind, topics in (
            ("joined", change.joined),
            ("left", change.left),
            ("returned", change.returned),
        ):
            for topic in topics:
                if only is None or topic == only:
                    name = self.topic or names.show(topic)
                    found.append(
                        Change(kind, name, hex_peer(change.peer), record.address, change.reason)
                    )
        return found


class Changes:
    """``async for change in view.changes()``. Raises a ViewLagError if they are not taken in
    time.
    """

    def __init__(self, view: TopicView) -> None:
        self._view, self._node = view, view._node
        self._queue: deque[ViewChange] = deque()
        self._ready: deque[Change] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._lags = False
        # A weak reference: a reader that the program drops is forgotten.
        self._node._view_readers.add(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Change:
        while not self._ready:
            if self._queue:
                self._ready.extend(self._view._explain(self._queue.popleft()))
                continue
            if self._lags:
                raise ViewLagError(
                    f"more than {CHANGES_MAX} changes waited to be read; "
                    "read the view again with nodes()"
                )
            self._node._check_open()
            self._waiter = self._node._driver.loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self._ready.popleft()

    def put(self, changes: list[ViewChange]) -> None:
        if len(self._queue) + len(changes) > CHANGES_MAX:
            self._lags = True
            self._queue.clear()
        elif not self._lags:
            self._queue.extend(changes)
        self.wake()

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
