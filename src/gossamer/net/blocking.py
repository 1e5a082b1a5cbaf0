"""``gossamer.blocking``: a node in a thread of its own, for synchronous programs.

Every call crosses to the node's event loop and waits there. ``publish_many`` crosses once for many
events, and a subscription fetches all waiting events in one go. If the program gives up a wait for
events (a timeout, Ctrl-C), no event is lost: the request is kept for the next call.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import itertools
import os
import signal
import threading
import warnings
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from gossamer.filters import Event
from gossamer.net import node as fabric
from gossamer.net import publishing as fabric_receipt
from gossamer.net.arguments import check_timeout
from gossamer.net.errors import NodeError
from gossamer.net.node import DRAIN_SECONDS, Done
from gossamer.net.publishing import BatchDone
from gossamer.net.view import Change, Interested

# The most events that cross at a time.
FETCH_MAX = 1024
# A node that the program did not close gets this long when the program ends.
EXIT_SECONDS = 5.0

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def _like(
    model: Callable[Concatenate[Any, P], Any],
) -> Callable[[Callable[..., R]], Callable[Concatenate[Any, P], R]]:
    """Takes the arguments that ``model`` takes.

    So the signature is written once, in ``gossamer.Node``
    (docs/decisions/0014-one-signature-for-blocking.md).
    """

    def same(function: Callable[..., R]) -> Callable[Concatenate[Any, P], R]:
        return function

    return same


class _Loop:
    """A thread with an event loop, and the way to it."""

    def __init__(self) -> None:
        try:
            import uvloop

            self.loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        except ImportError:
            self.loop = asyncio.new_event_loop()
        self.process = os.getpid()
        self.thread = threading.Thread(target=self._run, name="gossamer", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        # These signals are for the program's thread.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    @property
    def is_forked(self) -> bool:
        return os.getpid() != self.process

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        problem = ""
        if self.is_forked:
            problem = (
                f"this node belongs to process {self.process}, from which this one was forked; "
                "make a node in each process"
            )
        elif not self.thread.is_alive():
            problem = "the node is closed"
        else:
            with contextlib.suppress(RuntimeError):
                asyncio.get_running_loop()
                problem = (
                    "gossamer.blocking would stop the event loop that runs here; "
                    "use gossamer.Node and await"
                )
        if problem:
            work.close()
            raise NodeError(problem)
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def call(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Waits for the work, and cancels it if the wait is given up."""
        if timeout is not None:
            try:
                check_timeout("timeout", timeout)
            except NodeError:
                work.close()
                raise
        future = self.submit(work)
        try:
            return future.result(timeout)
        # This includes Ctrl-C. The work's result would reach nobody.
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        if not self.is_forked and self.thread.is_alive():
            self.call(_end_tasks())
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join()
            self.loop.close()


async def _end_tasks() -> None:
    """Ends the tasks that still run in this loop, and waits until they have ended."""
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    loop = asyncio.get_running_loop()
    await loop.shutdown_asyncgens()
    await loop.shutdown_default_executor()


class _Stream(Generic[T]):
    """An asynchronous iterator, read from another thread. It has one reader at a time."""

    def __init__(self, loop: _Loop, source: AsyncIterator[T]) -> None:
        self._loop, self._source = loop, source
        self._here: deque[T] = deque()
        # The program's thread counts the items that have arrived here. The node's thread counts the
        # items that were fetched.
        self._arrived = self._fetched = 0
        # The items that are being fetched.
        self._crossing: list[T] = []
        # The request that is under way. It is kept if a wait is given up, because its items would
        # be lost otherwise.
        self._coming: Future[list[T]] | None = None

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        return self.next()

    def next(self, timeout: float | None = None) -> T:
        """The next item.

        Raises a TimeoutError if none comes within ``timeout`` seconds, and StopIteration at the
        end.
        """
        if not self._here:
            if timeout is not None:
                check_timeout("timeout", timeout)
            if self._coming is None:
                self._coming = self._loop.submit(self._fetch())
            # A timeout gives up the wait, and not the request.
            found = self._coming.result(timeout)
            self._coming = None
            if not found:
                raise StopIteration
            # The order matters: ``_outside`` is called meanwhile and must not count too few.
            self._here.extend(found)
            self._arrived += len(found)
        return self._here.popleft()

    def _outside(self) -> int:
        """The number of items that have left the source and wait for the program.

        The node's thread calls it.
        """
        on_the_way = self._fetched - self._arrived
        return len(self._crossing) + on_the_way + len(self._here)

    def within(self, timeout: float) -> Iterator[T]:
        """One item after another, until none has come for ``timeout`` seconds."""
        while True:
            try:
                yield self.next(timeout)
            except (TimeoutError, StopIteration):
                return

    async def _fetch(self) -> list[T]:
        """The next item and all items that wait behind it; an empty list at the end.

        Once the first item is taken, nothing here waits.
        """
        try:
            self._crossing = found = [await anext(self._source)]
        except StopAsyncIteration:
            return []
        self._fetch_more(found)
        self._fetched += len(found)
        self._crossing = []
        return found

    def _fetch_more(self, found: list[T]) -> None:
        """Adds items that can be had without waiting, up to ``FETCH_MAX`` in all."""


class Subscription(_Stream[Event]):
    """Events as they come: ``for event in events``, or ``events.next(timeout)``."""

    def __init__(self, loop: _Loop, subscription: fabric.Subscription) -> None:
        super().__init__(loop, subscription)
        self._subscription = subscription
        subscription._lent = self._outside
        self.topic, self.filter = subscription.topic, subscription.filter

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def dropped(self) -> int:
        """The number of events dropped by slow="drop_oldest"."""
        return self._subscription.dropped

    @property
    def parked(self) -> int:
        """As ``gossamer.Subscription.parked``."""
        return self._subscription.parked

    def close(self) -> None:
        """Unsubscribes. Events that have not been taken are gone, and further iteration ends."""
        if not self._loop.is_forked and self._loop.thread.is_alive():
            self._loop.call(self._subscription.close())
        # Not before: until here these events count as not taken.
        self._here.clear()

    @_like(fabric.Subscription.ack)
    def ack(self, *arguments: Any, **options: Any) -> None:
        """As ``gossamer.Subscription.ack``, for a durable subscription. It returns when it is on
        disk.
        """
        self._loop.call(self._subscription.ack(*arguments, **options))

    def status(self) -> dict[str, Any] | None:
        """As ``gossamer.Subscription.status``."""
        return self._loop.call(_called(self._subscription.status))

    def batches(self) -> Batches:
        """The events as ``pyarrow.RecordBatch``. Read either these or the events one by one."""
        return Batches(self._loop, self._subscription.batches())

    def _fetch_more(self, found: list[Event]) -> None:
        """Waiting events can be taken without suspending, so the iterator is stepped by hand."""
        while self._subscription.backlog and len(found) < FETCH_MAX:
            try:
                self._subscription.__anext__().send(None)
            except StopIteration as taken:
                found.append(taken.value)


class Batches(_Stream[Any]):
    """Record batches as they come."""


class Changes(_Stream[Change]):
    """Changes of the view as the node learns of them.

    Use ``for change in changes``, or ``changes.next(timeout)``.
    """


class Receipt:
    """The receipt of an event that was accepted."""

    def __init__(self, loop: _Loop, receipt: fabric.Receipt) -> None:
        self._loop, self._receipt = loop, receipt

    @property
    def done(self) -> bool:
        return self._receipt.done

    def wait(self, timeout: float | None = None) -> Done:
        """Waits until the receipt is complete.

        Raises a TimeoutError after ``timeout`` seconds. It can be called again.
        """
        return self._loop.call(_awaited(self._receipt), timeout)


class BatchReceipt:
    """The receipt of a batch of events that was accepted."""

    def __init__(self, loop: _Loop, receipt: fabric_receipt.BatchReceipt) -> None:
        self._loop, self._receipt = loop, receipt

    def __len__(self) -> int:
        return len(self._receipt)

    @property
    def done(self) -> bool:
        return self._receipt.done

    def wait(self, timeout: float | None = None) -> BatchDone:
        """Waits until the receipt is complete.

        Raises a TimeoutError after ``timeout`` seconds. It can be called again.
        """
        return self._loop.call(_batch_awaited(self._receipt), timeout)


class Receipts:
    """The receipts of many events, in their order."""

    def __init__(self, loop: _Loop, receipts: list[fabric.Receipt]) -> None:
        self._loop, self._receipts = loop, receipts

    def __len__(self) -> int:
        return len(self._receipts)

    def wait(self, timeout: float | None = None) -> list[Done]:
        """Waits until all are complete."""
        return self._loop.call(_all_awaited(self._receipts), timeout)


async def _awaited(receipt: fabric.Receipt) -> Done:
    return await receipt


async def _batch_awaited(receipt: fabric_receipt.BatchReceipt) -> BatchDone:
    return await receipt


async def _all_awaited(receipts: list[fabric.Receipt]) -> list[Done]:
    return [await receipt for receipt in receipts]


class Node:
    """A member of the fabric, for synchronous programs. Use it as ``with blocking.Node(...) as
    node``.

    Its options are those of ``gossamer.Node``. Only ``spin`` is 0 unless it is given, because the
    node's thread is not the only thread of the program.
    """

    @_like(fabric.Node.__init__)
    def __init__(self, *arguments: Any, **options: Any) -> None:
        # The program's own thread needs the interpreter.
        options.setdefault("spin", 0.0)
        self._node = fabric.Node(*arguments, **options)
        self._loop: _Loop | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close(drain=DRAIN_SECONDS if kind is None else 0.0)

    @property
    def address(self) -> str:
        return self._node.address

    @property
    def peer(self) -> int:
        return self._node.peer

    def start(self) -> None:
        """Starts the thread, listens and joins."""
        if self._loop is not None:
            raise NodeError("this node has been started already; make another one")
        self._loop = loop = _Loop()
        try:
            loop.call(self._node.start())
        except BaseException:
            loop.stop()
            raise
        atexit.register(self._at_exit)

    def close(self, drain: float = DRAIN_SECONDS) -> None:
        """Waits up to ``drain`` seconds for receipts, leaves politely, and ends the thread."""
        loop = self._loop
        if loop is None:
            return
        if loop.is_forked:
            warnings.warn(
                f"process {os.getpid()} was forked off process {loop.process}, "
                "and cannot close its node",
                RuntimeWarning,
                stacklevel=2,
            )
            return
        if not loop.thread.is_alive():
            return
        atexit.unregister(self._at_exit)
        try:
            loop.call(self._node.close(drain))
        except BaseException:
            # Ctrl-C while it drains: it closes at once.
            loop.call(_quietly(self._node.close(0.0)))
            raise
        finally:
            loop.stop()

    @_like(fabric.Node.advertise)
    def advertise(self, *arguments: Any, **options: Any) -> None:
        """As ``gossamer.Node.advertise``."""
        self._run(self._node.advertise(*arguments, **options))

    @_like(fabric.Node.subscribe)
    def subscribe(self, *arguments: Any, **options: Any) -> Subscription:
        """As ``gossamer.Node.subscribe``. It returns when the subscription is in force."""
        return Subscription(
            self._thread(), self._run(_started(self._node.subscribe(*arguments, **options)))
        )

    def publish(self, topic: str, event: Mapping[str, Any]) -> Receipt:
        """Accepts an event.

        It returns once the event is in the outbox, and with a data directory once it is on disk.
        Call ``wait`` on the receipt for the rest.
        """
        return Receipt(self._thread(), self._run(self._node.publish(topic, event)))

    def publish_many(self, topic: str, events: Iterable[Mapping[str, Any]]) -> Receipts:
        """Accepts events, many at a time.

        An event that is refused raises, and the events before it are published.
        """
        rest, receipts = iter(events), list[fabric.Receipt]()
        while some := list(itertools.islice(rest, FETCH_MAX)):
            receipts += self._run(self._publish_some(topic, some))
        return Receipts(self._thread(), receipts)

    def publish_batch(self, topic: str, events: Any) -> BatchReceipt:
        """Accepts a list of events or a ``pyarrow.RecordBatch``: all of them, or none."""
        return BatchReceipt(self._thread(), self._run(self._node.publish_batch(topic, events)))

    async def _publish_some(
        self, topic: str, events: list[Mapping[str, Any]]
    ) -> list[fabric.Receipt]:
        return [await self._node.publish(topic, event) for event in events]

    def topic(self, topic: str, timeout: float = 10.0) -> str:
        """The schema of the topic. It waits until the topic is advertised."""
        return self._run(self._node.topic(topic, timeout))

    def forget(self, name: str) -> None:
        """Gives up a durable subscription of this node, with its position and all that is stored
        for it.
        """
        self._run(self._node.forget(name))

    @_like(fabric.Node.lookup)
    def lookup(self, *arguments: Any, **options: Any) -> list[dict[str, Any]]:
        """As ``gossamer.Node.lookup``."""
        return self._run(self._node.lookup(*arguments, **options))

    def view(self, topic: str | None = None) -> list[Interested]:
        """The nodes that want a topic now; without a topic, all nodes and their wishes."""
        return self._run(_called(self._node.view(topic).nodes))

    def changes(self, topic: str | None = None) -> Changes:
        """The changes of that view, from this call on."""
        return Changes(self._thread(), self._run(_called(self._node.view(topic).changes)))

    def drain(self, timeout: float = DRAIN_SECONDS) -> int:
        """Waits until every accepted event has a receipt.

        It returns the number of events without one after ``timeout`` seconds.
        """
        return self._run(self._node.drain(timeout))

    def status(self) -> dict[str, Any]:
        return self._run(_called(self._node.status))

    def _thread(self) -> _Loop:
        if self._loop is None:
            raise NodeError("the node has not been started; use: with blocking.Node(...) as node")
        return self._loop

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            loop = self._thread()
        except NodeError:
            work.close()
            raise
        return loop.call(work)

    def _at_exit(self) -> None:
        with contextlib.suppress(Exception):
            self.close(EXIT_SECONDS)


async def _called(function: Callable[[], T]) -> T:
    """Calls the function in the node's own thread, where its state does not change meanwhile."""
    return function()


async def _started(subscription: fabric.Subscription) -> fabric.Subscription:
    return await subscription


async def _quietly(work: Coroutine[Any, Any, Any]) -> None:
    with contextlib.suppress(Exception):
        await work
