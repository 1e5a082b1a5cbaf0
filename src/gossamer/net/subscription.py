"""A subscription as a program holds it: events as they come."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self

from gossamer.filters import Event
from gossamer.filters.packed import Columns
from gossamer.net.errors import BarrierError, NodeError, SlowSubscriberError
from gossamer.net.named import check_timeout, route_of
from gossamer.node import Gap, Route, RouteError, SlowPolicy, TopicError, Wish
from gossamer.node.core import DISK_FAILED
from gossamer.overlay.batch import COLUMN_ROWS

if TYPE_CHECKING:
    from gossamer.net.node import Node


_NOTHING: deque[Any] = deque(
    maxlen=0
)  # of all that have had no event yet: an empty deque takes 760 bytes
_CHUNK = 256  # events between one word to the node about how many were taken and the next
_MADE_MAX = 4096  # events that came one by one and are made a record batch
_PLAIN = Wish()


class Subscription:
    """Events as they come: ``async with node.subscribe(...) as events``, then ``async for event in events``.

    ``await node.subscribe(...)`` starts it as well; then call ``close`` when done.
    """

    __slots__ = (
        "__weakref__", "_barrier", "_behind", "_counts", "_ended", "_later", "_lent", "_node", "_ready", "_route", "_slow",
        "_source", "_timeout", "_untold", "_waiter", "_wide", "dropped", "filter", "group", "number", "topic", "wish",
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
        self.wish = wish or _PLAIN
        self._counts = not self.wish.name  # a durable one is behind by what it has not acknowledged
        # Both are its own once there is something to put into them.
        self._ready: deque[Any] = _NOTHING  # the next events, to be taken one by one
        self._behind: deque[Any] = (
            _NOTHING  # those after them, as they were delivered: lists of events, Listed, or Columns
        )
        self._later = self._wide = 0  # events in ``_behind``, and those of them that are columns
        self._untold = (
            0  # events that have left it, and the node has not been told that they were taken
        )
        # Events that have left it and wait outside (blocking.py), where no consumer has them yet.
        self._lent: Callable[[], int] | None = None
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
        try:
            event: Event = self._ready.popleft()  # nearly always: keep it short
        except IndexError:
            while not self._refill():
                await self._some()
            event = self._ready.popleft()
        return event

    def _refill(self) -> bool:
        """Make the next events ready; whether there are any."""
        if self._untold >= _CHUNK:
            self._tell()
        if not self._behind:
            return False
        some = self._behind.popleft()
        is_made, is_wide = type(some) is list, type(some) is Columns
        if len(some) > _CHUNK:
            self._behind.appendleft(some[_CHUNK:] if is_made else some.after(_CHUNK))
            some = some[:_CHUNK] if is_made else some.events(_CHUNK)
        elif not is_made:
            some = some.events()
        self._later -= len(some)
        self._wide -= len(some) if is_wide else 0
        self._untold += len(some)
        self._ready.extend(some)
        return True

    async def batches(self) -> AsyncIterator[Any]:
        """The events as ``pyarrow.RecordBatch``, as they come. What was published by columns is never made rows on its way; what
        was published in close succession may come as one batch.

        The columns are the topic's attributes in declared order, those of structs with dotted names. A ``Gap`` comes as itself.
        """
        from gossamer.filters.packed import Packed  # needs pyarrow when it makes a batch

        self._check_begun()
        packed = Packed(self._node._core.topics.schemas[self.topic])
        packed.require()
        ready, behind = self._ready, self._behind
        while True:
            if not (self._ready or self._behind):
                try:
                    await self._some()
                except StopAsyncIteration:
                    return
                ready, behind = self._ready, self._behind
                continue
            if not ready and type(behind[0]) is Columns:
                first = behind.popleft()
                self._wide -= len(first)
                self._take(len(first))
                yield first.record
                continue
            values: list[dict[str, Any]] = []
            while len(values) < _MADE_MAX and (
                ready or (behind and type(behind[0]) is not Columns and self._refill())
            ):
                if type(ready[0]) is Gap:
                    break
                values.append(ready.popleft().values)
            yield packed.from_values(values) if values else ready.popleft()

    async def lists(self) -> AsyncIterator[list[Event]]:
        """The events as they come, as many at a time as wait: less work for each than one by one. A ``Gap`` is among them."""
        while True:
            if not (self._ready or self._behind):
                try:
                    await self._some()
                except StopAsyncIteration:
                    return
                continue
            found: list[Event] = list(self._ready)
            self._ready.clear()
            for some in self._behind:
                found += some
            self._behind.clear()
            self._wide = 0
            self._take(self._later)
            yield found

    async def ack(self, what: Event | Gap | int, *, through: bool = False) -> None:
        """Acknowledge an event (or gap, or offset) of a durable subscription: it will never be handed over again.

        ``through``: and all that this subscription handed over before it; what still waits for its turn is not among them.
        Returns when that is on disk. Do not wait for each by itself where speed matters.
        """
        node, offset = self._node, what if isinstance(what, int) else what.offset
        if self._ended is not None:
            raise NodeError(
                "the subscription has ended: what is not acknowledged is handed over again next time"
            )
        self._check_begun()
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
        self._check_begun()
        way = route_of(route)
        if not node._core.move(self.number, way, node._driver.now()) and self.route is not way:
            raise RouteError(
                f"the subscription to {self.topic!r} is on its way to another route already; try again later"
            )
        node._driver.wake()

    @property
    def backlog(self) -> int:
        """Events that wait to be taken."""
        return len(self._ready) + self._later

    @property
    def parked(self) -> int:
        """Publishers that have more of the past, which comes when this consumer has taken, or acknowledged, some events."""
        known = self._node._core.subscriptions.get(self.number) if self.number else None
        return known.follow.parked if known is not None and known.follow is not None else 0

    @property
    def _taken(self) -> int:
        """Events that were taken, and the node has not been told."""
        return self._untold - self._kept if self._counts else 0

    @property
    def _kept(self) -> int:
        """Those among the untold that no consumer has."""
        kept = len(self._ready)
        if self._lent is not None:
            kept = min(kept + self._lent(), self._untold)
        return kept

    async def close(self) -> None:
        """Unsubscribe. Events that have not been taken are gone; further iteration ends."""
        node = self._node
        if (
            self.number
            and node._subscriptions.pop(self.number, None) is not None
            and not node._driver.closing
        ):
            # Receipts say which events are gone, so the node must know which ones were taken.
            self._tell()
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
            waits_for = node._core.routing.waits_for(self.number)
            await self.close()
            if isinstance(error, TimeoutError):
                raise BarrierError(
                    f"the subscription to {self.topic!r} was not in force within {self._timeout:g} s "
                    f"({waits_for}); try again, or with a longer timeout"
                ) from None
            raise
        return self

    def _enter(self) -> None:
        node = self._node
        now = node._driver.now()
        self.number = node._core.subscribe(
            self.topic,
            self.filter,
            now,
            self._slow,
            self._source,
            self._route,
            self.group,
            self.wish,
        )
        node._subscriptions[self.number] = self

    def _check_begun(self) -> None:
        if not self.number:  # nobody would ever send it anything
            raise NodeError(
                f"the subscription to {self.topic!r} has not begun: use 'async with node.subscribe(...) as events', or await it"
            )

    async def _some(self) -> None:
        """Wait for events; raises what has ended the subscription."""
        if self.number in self._node._core.local.blocked and self._taken:
            self._tell()
        if self._ended is not None:
            raise self._ended
        self._check_begun()
        assert self._waiter is None, "one consumer a subscription"
        self._waiter = self._node._driver.loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _take(self, count: int) -> None:
        """So many are taken that were not made ready before."""
        self._later -= count
        self._untold += count
        if self._untold >= _CHUNK:
            self._tell()

    def _count_taken(self) -> int:
        kept = self._kept
        taken = self._untold - kept if self._counts else 0
        self._untold = kept
        return taken

    def _tell(self) -> None:
        """Say how many events were taken: now and then, and at once when publishers are held back."""
        node, taken = self._node, self._count_taken()
        if taken and not node._driver.closing:
            node._core.taken(self.number, taken, node._driver.now())
            if node._core.deadline <= node._driver.tick:  # what was held back goes
                node._driver.settle()

    def _deliver(self, events: Sequence[Event]) -> None:
        if self._behind is _NOTHING:
            self._ready, self._behind = deque(), deque()
        self._behind.append(events)
        self._later += len(events)
        if type(events) is Columns:
            self._wide += len(events)
        if self._slow is SlowPolicy.DROP_OLDEST and self._counts:
            self._drop(self._node._core.config.buffer)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        if self.number in self._node._core.local.blocked and self._taken:
            self._tell()  # the machine believes that all this is still waiting

    def _drop(self, buffer: int) -> None:
        """Drop the oldest, until no more wait than the buffer holds; of columns, eight count as one."""
        dropped = 0
        while (over := self.backlog - self._wide + self._wide // COLUMN_ROWS - buffer) > 0:
            if self._ready or (type(self._behind[0]) is not Columns and self._refill()):
                self._ready.popleft()
                dropped += 1
            else:
                columns = self._behind.popleft()
                some = min(len(columns), over * COLUMN_ROWS)
                if some < len(columns):
                    self._behind.appendleft(columns.after(some))
                self._later -= some
                self._wide -= some
                self._untold += some
                dropped += some
        if dropped:
            self.dropped += dropped
            self._node._driver.count_dropped(
                "event", dropped, f"slow subscription to {self.topic!r}"
            )

    def why_ended(self, reason: str, block: float) -> Exception:
        """What to tell the consumer of a subscription that ended by itself."""
        if reason.startswith("refused"):
            return TopicError(
                f"the subscription to {self.topic!r} by route {self.route.value!r} was {reason}"
            )
        if reason == "replaced":
            text = self._node._core.topics.schemas[self.topic].text
            return TopicError(
                f"the subscription to {self.topic!r} has ended: the topic's schema was replaced by "
                f"({text}); subscribe again"
            )
        name, waiting = self.wish.name, self.backlog
        if reason == DISK_FAILED:
            return self._node._unstored(
                f"the durable subscription {name!r} to {self.topic!r} was cut off",
                "subscribe again: what it missed comes from what its publishers retain, or is told as a gap",
            )
        what, remedy = (
            f"{waiting} events waited",
            "take events faster, or subscribe with slow='drop_oldest'",
        )
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
            self._ready.clear()
            self._behind.clear()
            self._untold = self._later = self._wide = 0
            if self._waiter is not None and not self._waiter.done():
                self._waiter.set_result(None)


async def subscribe_many(
    node: Node, topic: str, filters: Iterable[str], *, timeout: float = 60.0, **options: Any
) -> list[Subscription]:
    """Many subscriptions to a topic at once, one for each filter; ``options`` as for ``subscribe``. All of them, or none.

    Each is a subscription of its own, to be closed by itself. A node may have a million of them (extra ``fast``): what arrives
    is matched against an index.
    """
    check_timeout("timeout", timeout, 0.001)
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
        numbers = [one.number for one in made if one.number in node._core.subscriptions]
        late = [number for number in numbers if not node._core.subscriptions[number].in_force]
        why = f" (the first that waits: {node._core.routing.waits_for(late[0])})" if late else ""
        for one in made:
            await one.close()
        if isinstance(error, TimeoutError):
            raise BarrierError(
                f"{len(made)} subscriptions to {topic!r} were not in force within {timeout:g} s{why}; "
                "try again, or with a longer timeout"
            ) from None
        raise
    return made
