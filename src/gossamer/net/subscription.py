"""A subscription as a program holds it: events as they come."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Generator, Sequence
from typing import TYPE_CHECKING, Any, Self

from gossamer.filters import Event
from gossamer.filters.packed import Columns
from gossamer.net.errors import BarrierError
from gossamer.node import Route, SlowPolicy
from gossamer.overlay.batch import BATCH_EVENTS_MAX

if TYPE_CHECKING:
    from gossamer.net.node import Node


class Subscription:
    """Events as they come: ``async with node.subscribe(...) as events``, then ``async for event in events``.

    ``await node.subscribe(...)`` starts it as well; then call ``close`` when done.
    """

    def __init__(
        self,
        node: Node,
        topic: str,
        filter: str,
        timeout: float,
        slow: SlowPolicy,
        *,
        barrier: bool = False,
        source: str = "user",
        route: Route = Route.FLOOD,
    ) -> None:
        self.topic, self.filter, self.route = topic, filter, route
        self.number = 0
        self.dropped = 0  # events dropped by slow="drop_oldest"
        self._node, self._timeout, self._slow = node, timeout, slow
        self._barrier, self._source = barrier, source
        self._queue: deque[Event | Columns] = deque()
        self._waits = 0  # events in the queue
        self._taken = 0
        self._waiter: asyncio.Future[None] | None = None
        self._ended: Exception | None = None

    def __await__(self) -> Generator[Any, None, Self]:
        return self._start().__await__()

    async def __aenter__(self) -> Self:
        return await self._start()

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        queue = self._queue
        while not queue:
            await self._some()
        event = queue.popleft()
        if type(event) is Columns:
            queue.extendleft(reversed(event.events()))
            event = queue.popleft()
        self._take(1)
        return event  # type: ignore[return-value]

    async def batches(self) -> AsyncIterator[Any]:
        """The events as ``pyarrow.RecordBatch``, as they come: as they were published where that was by columns.

        The columns are the topic's attributes in declared order, those of structs with dotted names.
        """
        from gossamer.filters.packed import Packed  # needs pyarrow when it makes a batch

        packed = Packed(self._node._core.topics.schemas[self.topic])
        packed.require()
        queue = self._queue
        while True:
            if not queue:
                try:
                    await self._some()
                except StopAsyncIteration:
                    return
                continue
            first = queue.popleft()
            if type(first) is Columns:
                self._take(len(first))
                yield first.record
                continue
            values = [first.values]  # type: ignore[union-attr]
            while queue and type(queue[0]) is Event and len(values) < BATCH_EVENTS_MAX:
                values.append(queue.popleft().values)  # type: ignore[union-attr]
            self._take(len(values))
            yield packed.from_values(values)

    @property
    def backlog(self) -> int:
        """Events that wait to be taken."""
        return self._waits

    async def close(self) -> None:
        """Unsubscribe. Events that have not been taken are gone; further iteration ends."""
        node = self._node
        if self.number and node._subscriptions.pop(self.number, None) is not None and not node._driver.closing:
            node._core.unsubscribe(self.number, node._driver.now())
            node._driver.wake()
        self._end(StopAsyncIteration())

    async def _start(self) -> Self:
        if self.number:
            return self
        node = self._node
        await node._waiting.topic(self.topic, self._timeout)
        now = node._driver.now()
        self.number = node._core.subscribe(self.topic, self.filter, now, self._slow, self._source, self.route)
        node._subscriptions[self.number] = self
        node._driver.wake()  # now, so that the trace has it before this returns
        try:
            async with asyncio.timeout(self._timeout):
                await node._waiting.entered(self.number)
                if self._barrier:
                    await node._waiting.barrier()
        except BaseException as error:
            await self.close()
            if isinstance(error, TimeoutError):
                raise BarrierError(
                    f"not every node has confirmed the subscription to {self.topic!r} within {self._timeout:g} s "
                    f"({len(node._interest.suspects)} of {len(node._interest.view.members)} members do not answer); "
                    "try again, or with a longer timeout"
                ) from None
            raise
        return self

    async def _some(self) -> None:
        """Wait for events; raises what has ended the subscription."""
        if self._taken and self.number in self._node._core.local.blocked:
            self._tell()
        if self._ended is not None:
            raise self._ended
        assert self._waiter is None, "one consumer a subscription"
        self._waiter = self._node._driver.loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _take(self, count: int) -> None:
        self._waits -= count
        self._taken += count
        if self._taken >= 256:
            self._tell()

    def _tell(self) -> None:
        """Say how many events were taken: now and then, and at once when publishers are held back."""
        node, taken = self._node, self._taken
        self._taken = 0
        if not node._driver.closing:
            node._core.taken(self.number, taken, node._driver.now())
            node._driver.settle()

    def _deliver(self, events: Sequence[Event]) -> None:
        if type(events) is Columns:
            self._queue.append(events)
        else:
            self._queue.extend(events)
        self._waits += len(events)
        if self._slow is SlowPolicy.DROP_OLDEST and self._waits > self._node._core.config.buffer:
            self._drop(self._waits - self._node._core.config.buffer)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        if self._taken and self.number in self._node._core.local.blocked:
            self._tell()  # the machine believes that all this is still waiting

    def _drop(self, over: int) -> None:
        """Drop the oldest, at least so many: columns go whole."""
        dropped = 0
        while dropped < over:
            oldest = self._queue.popleft()
            dropped += len(oldest) if type(oldest) is Columns else 1
        self.dropped += dropped
        self._waits -= dropped
        self._taken += dropped
        self._node._driver.count_dropped("event", dropped, f"slow subscription to {self.topic!r}")

    def _end(self, reason: Exception) -> None:
        if self._ended is None:
            self._ended = reason
            self._queue.clear()
            self._taken = self._waits = 0
            if self._waiter is not None and not self._waiter.done():
                self._waiter.set_result(None)
