"""A subscription as a program holds it: events as they come."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self

from gossamer.filters import Event
from gossamer.filters.packed import Columns
from gossamer.net.arguments import check_timeout, route_of
from gossamer.net.errors import BarrierError, IdentityError, NodeError, SlowSubscriberError
from gossamer.net.status import describe_subscription
from gossamer.net.tally import TopicTally
from gossamer.node import Gap, Route, RouteError, SlowPolicy, TopicError, Wish
from gossamer.node.core import DISK_FAILED
from gossamer.overlay.batch import COLUMN_ROWS

if TYPE_CHECKING:
    from gossamer.net.node import Node


# All subscriptions without an event share it, because an empty deque takes 760 bytes.
_NOTHING: deque[Any] = deque(maxlen=0)
# The node is told after this number of taken events.
_CHUNK = 256
# The most events that came one by one and are made one record batch.
_MADE_MAX = 4096
_PLAIN = Wish()


class Subscription:
    """Events as they come: ``async with node.subscribe(...) as events``, then ``async for event in
    events``.

    ``await node.subscribe(...)`` starts it as well; then call ``close`` when done.
    """

    __slots__ = (
        "__weakref__",
        "_barrier",
        "_behind",
        "_counts",
        "_ended",
        "_later",
        "_lent",
        "_node",
        "_ready",
        "_route",
        "_slow",
        "_source",
        "_tally",
        "_timeout",
        "_untold",
        "_waiter",
        "_wide",
        "dropped",
        "filter",
        "group",
        "number",
        "topic",
        "wish",
    )

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
        # Events dropped by slow="drop_oldest".
        self.dropped = 0
        self._node, self._timeout, self._slow = node, timeout, slow
        self._barrier, self._source = barrier, source
        self.wish = wish or _PLAIN
        # A durable subscription is behind by the events that it has not acknowledged.
        self._counts = not self.wish.name
        # The next events, to be taken one by one. This deque and the next one are this
        # subscription's own once there is something to put into them.
        self._ready: deque[Any] = _NOTHING
        # The events after them, as they were delivered: lists of events, Listed, or Columns.
        self._behind: deque[Any] = _NOTHING
        # The number of events in ``_behind``, and the number of those that are columns.
        self._later = self._wide = 0
        # Events that have left it, and the node does not know yet that they were taken.
        self._untold = 0
        # Counts events that have left it and wait outside (blocking.py), where no consumer has them
        # yet.
        self._lent: Callable[[], int] | None = None
        self._waiter: asyncio.Future[None] | None = None
        # The counters of its topic, once it has begun.
        self._tally: TopicTally | None = None
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
        """The next event, or a ``Gap`` for lost events.

        Gaps come only to a subscription with name, since, gaps or ordered.
        """
        try:
            # This is the usual case, so it is short.
            event: Event = self._ready.popleft()
        except IndexError:
            while not self._refill():
                await self._some()
            event = self._ready.popleft()
        return event

    def _refill(self) -> bool:
        """Makes the next events ready, and says whether there are any."""
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
        """The events as ``pyarrow.RecordBatch``, as they come.

        Events that were published by columns are never made rows on their way. Record batches that
        were published in close succession may come as one. The columns are the topic's attributes
        in declared order. Those of structs have dotted names. A ``Gap`` comes as itself.
        """
        # It needs pyarrow when it makes a batch.
        from gossamer.filters.packed import Packed

        self._check_begun()
        packed = Packed(self._node._core.topics.schemas[self.topic])
        packed.require()
        while await self._has_more():
            ready, behind = self._ready, self._behind
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
        """The events as they come, all waiting ones at a time.

        This is less work for each event than taking them one by one. A ``Gap`` is among them.
        """
        while await self._has_more():
            found: list[Event] = list(self._ready)
            self._ready.clear()
            for some in self._behind:
                found += some
            self._behind.clear()
            self._wide = 0
            self._take(self._later)
            yield found

    async def ack(self, what: Event | Gap | int, *, through: bool = False) -> None:
        """Acknowledges an event (or gap, or offset) of a durable subscription.

        It will never be handed over again. With ``through`` this holds for all events that this
        subscription handed over before it too. Events that still wait for their turn are not among
        them. It returns when that is on disk. A fast program does not await each call by itself.
        """
        node, offset = self._node, what if isinstance(what, int) else what.offset
        if self._ended is not None:
            raise NodeError(
                "the subscription has ended: "
                "events that are not acknowledged are handed over again next time"
            )
        self._check_begun()
        token = node._core.ack(self.number, offset, node._driver.now(), through=through)
        node._driver.settle()
        if token:
            await node._waiting.stored(token)

    @property
    def route(self) -> Route:
        """The route that it takes now. With "auto" it may change."""
        known = self._node._core.subscriptions.get(self.number) if self.number else None
        return known.route if known is not None else self._route

    async def move(self, route: Route | str) -> None:
        """Takes another route, without losing or doubling an event. Returns when that has begun."""
        node = self._node
        node._check_open()
        self._check_begun()
        way = route_of(route)
        if not node._core.move(self.number, way, node._driver.now()) and self.route is not way:
            raise RouteError(
                f"the subscription to {self.topic!r} is on its way to another route already; "
                "try again later"
            )
        node._driver.wake()

    def status(self) -> dict[str, Any] | None:
        """Its entry in ``gossamer status``. None means that it has ended, or has not begun."""
        known = self._node._core.subscriptions.get(self.number) if self.number else None
        return describe_subscription(known) if known is not None else None

    @property
    def backlog(self) -> int:
        """The number of events that wait to be taken."""
        return len(self._ready) + self._later

    @property
    def parked(self) -> int:
        """The number of publishers that have more of the past for this subscription.

        It comes when the consumer has taken, or acknowledged, some events.
        """
        known = self._node._core.subscriptions.get(self.number) if self.number else None
        return known.follow.parked if known is not None and known.follow is not None else 0

    @property
    def _taken(self) -> int:
        """The number of events that were taken, and the node does not know it yet."""
        return self._untold - self._kept if self._counts else 0

    @property
    def _kept(self) -> int:
        """The number of untold events that no consumer has."""
        kept = len(self._ready)
        if self._lent is not None:
            kept = min(kept + self._lent(), self._untold)
        return kept

    async def close(self) -> None:
        """Unsubscribes. Events that have not been taken are gone, and further iteration ends."""
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

    def disown(self, error: IdentityError) -> None:
        """Ends it, because this node's identity counts no longer."""
        node = self._node
        if node._subscriptions.pop(self.number, None) is not None and not node._driver.closing:
            self._tell()
            node._core.unsubscribe(self.number, node._driver.now())
            node._driver.settle_soon()
            node._waiting.refused(self.number, error)
        self._end(error)

    async def _start(self) -> Self:
        if self.number:
            return self
        node = self._node
        await node._waiting.topic(self.topic, self._timeout)
        self._enter()
        # It wakes the node now, so that the trace has the subscription before this returns.
        node._driver.wake()
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
                    f"the subscription to {self.topic!r} was not in force within "
                    f"{self._timeout:g} s "
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
        self._tally = node._driver.tally.topic(self.topic)
        node._subscriptions[self.number] = self

    def _check_begun(self) -> None:
        if not self.number:
            # Without a start no node would ever send it anything.
            raise NodeError(
                f"the subscription to {self.topic!r} has not begun: "
                "use 'async with node.subscribe(...) as events', or await it"
            )

    async def _has_more(self) -> bool:
        """Waits until there are events. Returns False at the end of the subscription."""
        while not (self._ready or self._behind):
            try:
                await self._some()
            except StopAsyncIteration:
                return False
        return True

    async def _some(self) -> None:
        """Waits for events. Raises the error that has ended the subscription."""
        if self.number in self._node._core.local.blocked and self._taken:
            self._tell()
        if self._ended is not None:
            raise self._ended
        self._check_begun()
        assert self._waiter is None, "a subscription has one consumer"
        self._waiter = self._node._driver.loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _take(self, count: int) -> None:
        """Counts taken events that were not made ready before."""
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
        """Tells the node how many events were taken.

        It does so now and then, and at once when publishers are held back.
        """
        node, taken = self._node, self._count_taken()
        if taken and not node._driver.closing:
            node._core.taken(self.number, taken, node._driver.now())
            # Reports that were held back go now.
            if node._core.deadline <= node._driver.tick:
                node._driver.settle()

    def _deliver(self, events: Sequence[Event]) -> None:
        if self._behind is _NOTHING:
            self._ready, self._behind = deque(), deque()
        count = len(events)
        self._behind.append(events)
        self._later += count
        if self._tally is not None:
            self._tally.delivered += count
        if type(events) is Columns:
            self._wide += count
        if self._slow is SlowPolicy.DROP_OLDEST and self._counts:
            self._drop(self._node._core.config.buffer)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        if self.number in self._node._core.local.blocked and self._taken:
            # The machine believes that all these events are still waiting.
            self._tell()

    def _drop(self, buffer: int) -> None:
        """Drops the oldest events until no more wait than the buffer holds. Eight in columns
        count as one.
        """
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
        """The error for the consumer of a subscription that ended by itself."""
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
                "subscribe again: events that it missed come from the publishers' retention, "
                "or are reported as a gap",
            )
        what, remedy = (
            f"{waiting} events waited",
            "take events faster, or subscribe with slow='drop_oldest'",
        )
        if name:
            what, remedy = (
                "no event was acknowledged",
                "acknowledge faster; stored events are handed over when you subscribe again",
            )
        return SlowSubscriberError(
            f"the subscription to {self.topic!r} was cut off: "
            f"{what} for more than {block:g} s; {remedy}"
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
    """Many subscriptions to a topic at once, one for each filter. All of them begin, or none.

    ``options`` are those of ``subscribe``. Each subscription is closed by itself. A node may have a
    million of them (extra ``fast``), because arriving events are matched against an index.
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
                    # The node goes on with its other work meanwhile.
                    await asyncio.sleep(0)
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
                f"{len(made)} subscriptions to {topic!r} were not in force within "
                f"{timeout:g} s{why}; "
                "try again, or with a longer timeout"
            ) from None
        raise
    return made
