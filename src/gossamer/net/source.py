"""Interests that come from outside: a service decides on the subscriptions of this node.

It is claim 7 of seed 000 (docs/seeds.md).

    # The service may be a scheduler, a registry, or a file that is watched.
    async with node.source("inventory", handle) as source:
        await source.replace({"weather": "country = 'CH'", "alarms": ""})
        await source.join("news")
        await source.leave("alarms")

Each topic that the source joins is a subscription whose events go to ``handle``. The source leaves
all of them at the end of the block. Its interests are its own: a topic that the user wants too
stays wanted when the source leaves it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Self

from gossamer.filters import Event
from gossamer.net.subscription import Subscription

if TYPE_CHECKING:
    from gossamer.net.node import Node

Handle = Callable[[Event], Awaitable[None] | None]


class Source:
    def __init__(self, node: Node, name: str, handle: Handle) -> None:
        self.name = name
        # The last error that ``handle`` raised, or that ended a subscription.
        self.problem: Exception | None = None
        self._node, self._handle = node, handle
        self._joined: dict[str, tuple[Subscription, asyncio.Task[None]]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.replace({})

    @property
    def topics(self) -> dict[str, str]:
        """The topics that this source has joined, with their filters."""
        return {topic: subscription.filter for topic, (subscription, _) in self._joined.items()}

    async def join(self, topic: str, filter: str = "") -> None:
        """Subscribes for the service. Another filter replaces the one before."""
        if topic in self._joined:
            if self._joined[topic][0].filter == filter:
                return
            await self.leave(topic)
        subscription = self._node.subscribe(topic, filter, source=self.name)
        await subscription
        self._joined[topic] = (
            subscription,
            asyncio.get_running_loop().create_task(self._feed(subscription)),
        )

    async def leave(self, topic: str) -> None:
        found = self._joined.pop(topic, None)
        if found is not None:
            subscription, task = found
            await subscription.close()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def replace(self, topics: Mapping[str, str]) -> None:
        """Subscribes to exactly these topics, with their filters."""
        for topic in [topic for topic in self._joined if topic not in topics]:
            await self.leave(topic)
        for topic, filter in topics.items():
            await self.join(topic, filter)

    async def _feed(self, subscription: Subscription) -> None:
        try:
            async for event in subscription:
                try:
                    result = self._handle(event)
                    if result is not None:
                        await result
                # An error of the service itself must not end the subscription.
                except Exception as error:
                    self.problem = error
                    self._node._driver.counters["source_handler_errors"] += 1
        except Exception as error:
            self.problem = error
