"""A subscription as a program holds it: events as they come."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self

from gossamer.filters import Event
from gossamer.filters.packed import Columns
from gossamer.net.errors import BarrierError, NodeError, SlowSubscriberError
from gossamer.node import Gap, Route, RouteError, SlowPolicy, TopicError, Wish
from gossamer.overlay.batch import BATCH_EVENTS_MAX

if TYPE_CHECKING:
    from gossamer.net.node import Node


_NOTHING: deque[Any] = deque(maxlen=0)  # of all that have had no event yet: an empty deque takes 760 bytes
_PLAIN = Wish()


class Subscription:
    """Events as they come: ``async with node.subscribe(...) as events``, then ``async for event in events``.

    ``await node.subscribe(...)`` starts it as well; then call ``close`` when done.
    """

    __slots__ = (
        "__weakref__", "_barrier", "_counts", "_ended", "_node", "_queue", "_route", "_slow", "_source", "_taken",
        "_timeout", "_waiter",
        "_waits", "dropped", "filter", "group", "number", "topic", "wish",
    )  # fmt: skip

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
        route: Route = Route.AUTO,
        group: str = "",
        wish: Wish | None = None,
    ) -> None:
        self.topic, self.filter, self.group = topic, filter, group
        self._route = route
        self.number = 0
        self.dropped = 0  # events dropped by slow="drop_oldest"
        self._node, self._timeout, self._slow = node, timeout, slow
        self._barrier, self._source = barrier, source
        self._waits = 0  # events in the queue
        self.wish = wish or _PLAIN
        self._counts = not self.wish.name  # a durable one is behind by what it has not acknowledged
        self._queue: deque[Event | Columns | Gap] = _NOTHING  # its own once there is something to put into it
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
        """The next event; or a ``Gap``, where the subscription asked to be told of lost events (name, since, gaps, ordered)."""
        queue = self._queue
        while not queue:
            await self._some()
            queue = self._queue
        event = queue.popleft()
        if type(event) is Columns:
            queue.extendleft(reversed(event.events()))
            event = queue.popleft()
        self._waits -= 1
        if self._counts:
            self._taken += 1
            if self._taken >= 256:
                self._tell()
        return event  # type: ignore[return-value]

    async def batches(self) -> AsyncIterator[Any]:
        """The events as ``pyarrow.RecordBatch``, as they come: as they were published where that was by columns.

        The columns are the topic's attributes in declared order, those of structs with dotted names. A ``Gap`` comes as itself.
        """
        from gossamer.filters.packed import Packed  # needs pyarrow when it makes a batch

        packed = Packed(self._node._core.topics.schemas[self.topic])
        packed.require()
        while True:
            queue = self._queue
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
            if type(first) is Gap:
                self._take(1)
                yield first
                continue
            values = [first.values]  # type: ignore[union-attr]
            while queue and type(queue[0]) is Event and len(values) < BATCH_EVENTS_MAX:
                values.append(queue.popleft().values)  # type: ignore[union-attr]
            self._take(len(values))
            yield packed.from_values(values)

    async def lists(self) -> AsyncIterator[list[Event]]:
        """The events as they come, as many at a time as wait: less work for each than one by one. A ``Gap`` is among them."""
        while True:
            queue = self._queue
            if not queue:
                try:
                    await self._some()
                except StopAsyncIteration:
                    return
                continue
            some: list[Any] = list(queue)
            queue.clear()
            if Columns in set(map(type, some)):
                some = [event for one in some for event in (one.events() if type(one) is Columns else (one,))]
            self._take(len(some))
            yield some

    async def ack(self, what: Event | Gap | int, *, through: bool = False) -> None:
        """Acknowledge an event (or gap, or offset) of a durable subscription: it will never be handed over again.

        ``through``: and all before it. Returns when that is on disk. Do not wait for each by itself where speed matters.
        """
        node, offset = self._node, what if isinstance(what, int) else what.offset
        if self._ended is not None:
            raise NodeError("the subscription has ended: what is not acknowledged is handed over again next time")
        token = node._core.ack(self.number, offset, node._driver.now(), through=through)
        node._driver.settle()
        if token:
            await node._waiting.stored(token)

    @property
    def route(self) -> Route:
        """The one that it takes now; with "auto" that may change."""
        known = self._node._core.subscriptions.get(self.number) if self.number else None
        return known.route if known is not None else self._route

    async def move(self, route: Route | str) -> None:
        """Take another route, without losing or doubling an event; returns when that has begun."""
        node = self._node
        node._check_open()
        if not node._core.move(self.number, Route(route), node._driver.now()) and self.route is not Route(route):
            raise RouteError(f"the subscription to {self.topic!r} is on its way to another route already; try again later")
        node._driver.wake()

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
        self._enter()
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

    def _enter(self) -> None:
        node = self._node
        now = node._driver.now()
        self.number = node._core.subscribe(
            self.topic, self.filter, now, self._slow, self._source, self._route, self.group, self.wish
        )
        node._subscriptions[self.number] = self

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
        if self._counts:
            self._taken += count
        if self._taken >= 256:
            self._tell()

    def _count_taken(self) -> int:
        taken, self._taken = self._taken, 0
        return taken

    def _tell(self) -> None:
        """Say how many events were taken: now and then, and at once when publishers are held back."""
        node, taken = self._node, self._count_taken()
        if not node._driver.closing:
            node._core.taken(self.number, taken, node._driver.now())
            if node._core.deadline <= node._driver.tick:  # what was held back goes
                node._driver.settle()

    def _deliver(self, events: Sequence[Event]) -> None:
        if self._queue is _NOTHING:
            self._queue = deque()
        if type(events) is Columns:
            self._queue.append(events)
        else:
            self._queue.extend(events)
        self._waits += len(events)
        if self._slow is SlowPolicy.DROP_OLDEST and self._counts and self._waits > self._node._core.config.buffer:
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

    def why_ended(self, reason: str, block: float) -> Exception:
        """What to tell the consumer of a subscription that ended by itself."""
        if reason == "refused":
            return TopicError(f"the subscription to {self.topic!r} by route {self.route.value!r} was refused: no room")
        name, waiting = self.wish.name, self._waits
        what, remedy = f"{waiting} events waited", "take events faster, or subscribe with slow='drop_oldest'"
        if name:
            what, remedy = (
                "no event was acknowledged",
                "acknowledge faster; what is stored is handed over when you subscribe again",
            )
        return SlowSubscriberError(
            f"the subscription to {self.topic!r} was cut off: {what} for more than {block:g} s; {remedy}"
        )

    def _end(self, reason: Exception) -> None:
        if self._ended is None:
            self._ended = reason
            self._queue.clear()
            self._taken = self._waits = 0
            if self._waiter is not None and not self._waiter.done():
                self._waiter.set_result(None)


async def subscribe_many(
    node: Node, topic: str, filters: Iterable[str], *, timeout: float = 60.0, **options: Any
) -> list[Subscription]:
    """Many subscriptions to a topic at once, one for each filter; ``options`` as for ``subscribe``. All of them, or none.

    Each is a subscription of its own, to be closed by itself. A node may have a million of them (extra ``fast``): what arrives
    is matched against an index.
    """
    made = [node.subscribe(topic, filter, timeout=timeout, **options) for filter in filters]
    await node._waiting.topic(topic, timeout)
    try:
        async with asyncio.timeout(timeout):
            for place, one in enumerate(made, 1):
                one._enter()
                if place % 256 == 0:
                    node._driver.wake()
                    await asyncio.sleep(0)  # the node lives on meanwhile
            node._driver.wake()
            for one in made:
                await node._waiting.entered(one.number)
    except BaseException as error:
        for one in made:
            await one.close()
        if isinstance(error, TimeoutError):
            raise BarrierError(f"{len(made)} subscriptions to {topic!r} were not in force within {timeout:g} s") from None
        raise
    return made
