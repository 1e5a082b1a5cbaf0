"""``gossamer.blocking``: a node in a thread of its own, for synchronous programs.

Every call crosses to the node's event loop and waits there. Lists cross once for many events (``publish_many``), and a
subscription fetches what is there in one go. A wait for events that is given up (a timeout, Ctrl-C) loses none: what was asked for
is kept for the next call.
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
from gossamer.net import receipt as fabric_receipt
from gossamer.net.errors import NodeError
from gossamer.net.named import check_timeout
from gossamer.net.node import DRAIN_SECONDS, Done
from gossamer.net.receipt import BatchDone
from gossamer.net.view import Change, Interested

FETCH_MAX = 1024  # events that cross at a time
EXIT_SECONDS = 5.0  # a node that nobody closed gets this long when the program ends

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def _like(
    model: Callable[Concatenate[Any, P], Any],
) -> Callable[[Callable[..., R]], Callable[Concatenate[Any, P], R]]:
    """Takes the arguments that ``model`` takes: one signature, written once, in ``gossamer.Node``."""

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
        signal.pthread_sigmask(
            signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM}
        )  # they are for whoever waits for us
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    @property
    def is_forked(self) -> bool:
        return os.getpid() != self.process

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        problem = ""
        if self.is_forked:
            problem = f"this node belongs to process {self.process}, from which this one was forked; make a node in each process"
        elif not self.thread.is_alive():
            problem = "the node is closed"
        else:
            with contextlib.suppress(RuntimeError):
                asyncio.get_running_loop()
                problem = "gossamer.blocking would stop the event loop that runs here; use gossamer.Node and await"
        if problem:
            work.close()
            raise NodeError(problem)
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def call(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Wait for the work; cancel it if the wait is given up."""
        if timeout is not None:
            try:
                check_timeout("timeout", timeout)
            except NodeError:
                work.close()
                raise
        future = self.submit(work)
        try:
            return future.result(timeout)
        except BaseException:  # Ctrl-C, too: nobody would hear of what comes of it
            future.cancel()
            raise

    def stop(self) -> None:
        if not self.is_forked and self.thread.is_alive():
            self.call(_end_tasks())
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join()
            self.loop.close()


async def _end_tasks() -> None:
    """End what still runs in this loop, and wait until it has."""
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    loop = asyncio.get_running_loop()
    await loop.shutdown_asyncgens()
    await loop.shutdown_default_executor()


class _Stream(Generic[T]):
    """An asynchronous iterator, read from outside. One reader at a time."""

    def __init__(self, loop: _Loop, source: AsyncIterator[T]) -> None:
        self._loop, self._source = loop, source
        self._here: deque[T] = deque()
        # Counted by the program's thread: what has arrived here. By the node's: what was fetched.
        self._arrived = self._fetched = 0
        self._crossing: list[T] = []  # what is being fetched
        self._coming: Future[list[T]] | None = (
            None  # asked for, and kept if a wait is given up: it would be lost otherwise
        )

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        return self.next()

    def next(self, timeout: float | None = None) -> T:
        """The next one. Raises TimeoutError if none comes in so many seconds, and StopIteration at the end."""
        if not self._here:
            if timeout is not None:
                check_timeout("timeout", timeout)
            if self._coming is None:
                self._coming = self._loop.submit(self._fetch())
            found = self._coming.result(timeout)  # gives up waiting, not what was asked for
            self._coming = None
            if not found:
                raise StopIteration
            # In this order, because ``_outside`` is asked meanwhile and must not find too few.
            self._here.extend(found)
            self._arrived += len(found)
        return self._here.popleft()

    def _outside(self) -> int:
        """How many have left the source and wait for the program. Asked in the node's thread."""
        on_the_way = self._fetched - self._arrived
        return len(self._crossing) + on_the_way + len(self._here)

    def within(self, timeout: float) -> Iterator[T]:
        """One after another, until none has come for so many seconds."""
        while True:
            try:
                yield self.next(timeout)
            except (TimeoutError, StopIteration):
                return

    async def _fetch(self) -> list[T]:
        """At least one, unless it has ended, and what else is there already: no wait comes after the first is taken."""
        try:
            self._crossing = found = [await anext(self._source)]
        except StopAsyncIteration:
            return []
        self._fetch_more(found)
        self._fetched += len(found)
        self._crossing = []
        return found

    def _fetch_more(self, found: list[T]) -> None:
        """Add what can be had without waiting, up to ``FETCH_MAX`` in all."""


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
        """Events dropped by slow="drop_oldest"."""
        return self._subscription.dropped

    @property
    def parked(self) -> int:
        """As ``gossamer.Subscription.parked``."""
        return self._subscription.parked

    def close(self) -> None:
        """Unsubscribe. Events that have not been taken are gone; further iteration ends."""
        if not self._loop.is_forked and self._loop.thread.is_alive():
            self._loop.call(self._subscription.close())
        self._here.clear()  # not before: what is here counts as not taken

    @_like(fabric.Subscription.ack)
    def ack(self, *arguments: Any, **options: Any) -> None:
        """As ``gossamer.Subscription.ack``, of a durable subscription: returns when it is on disk."""
        self._loop.call(self._subscription.ack(*arguments, **options))

    def batches(self) -> Batches:
        """The events as ``pyarrow.RecordBatch``. Read these or the events one by one, not both."""
        return Batches(self._loop, self._subscription.batches())

    def _fetch_more(self, found: list[Event]) -> None:
        """What waits can be taken without waiting: step the iterator by hand, it will not suspend."""
        while self._subscription.backlog and len(found) < FETCH_MAX:
            try:
                self._subscription.__anext__().send(None)
            except StopIteration as taken:
                found.append(taken.value)


class Batches(_Stream[Any]):
    """Record batches as they come."""


class Changes(_Stream[Change]):
    """Changes of the view as they become known: ``for change in changes``, or ``changes.next(timeout)``."""


class Receipt:
    """Of an event that was accepted."""

    def __init__(self, loop: _Loop, receipt: fabric.Receipt) -> None:
        self._loop, self._receipt = loop, receipt

    @property
    def done(self) -> bool:
        return self._receipt.done

    def wait(self, timeout: float | None = None) -> Done:
        """Until it is complete. Raises TimeoutError after so many seconds; it may be asked again."""
        return self._loop.call(_awaited(self._receipt), timeout)


class BatchReceipt:
    """Of a batch of events that was accepted."""

    def __init__(self, loop: _Loop, receipt: fabric_receipt.BatchReceipt) -> None:
        self._loop, self._receipt = loop, receipt

    def __len__(self) -> int:
        return len(self._receipt)

    @property
    def done(self) -> bool:
        return self._receipt.done

    def wait(self, timeout: float | None = None) -> BatchDone:
        """Until it is complete. Raises TimeoutError after so many seconds; it may be asked again."""
        return self._loop.call(_batch_awaited(self._receipt), timeout)


class Receipts:
    """Of many events, in their order."""

    def __init__(self, loop: _Loop, receipts: list[fabric.Receipt]) -> None:
        self._loop, self._receipts = loop, receipts

    def __len__(self) -> int:
        return len(self._receipts)

    def wait(self, timeout: float | None = None) -> list[Done]:
        """Until all are complete."""
        return self._loop.call(_all_awaited(self._receipts), timeout)


async def _awaited(receipt: fabric.Receipt) -> Done:
    return await receipt


async def _batch_awaited(receipt: fabric_receipt.BatchReceipt) -> BatchDone:
    return await receipt


async def _all_awaited(receipts: list[fabric.Receipt]) -> list[Done]:
    return [await receipt for receipt in receipts]


class Node:
    """A member of the fabric, for synchronous programs. Use as ``with blocking.Node(...) as node``.

    Its options are those of ``gossamer.Node``; only ``spin`` is 0 unless it is given, as its thread is not the program's only one.
    """

    @_like(fabric.Node.__init__)
    def __init__(self, *arguments: Any, **options: Any) -> None:
        options.setdefault("spin", 0.0)  # the program's own thread wants the interpreter
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
        """Start the thread, listen and join."""
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
        """Wait up to ``drain`` seconds for receipts, leave politely, and end the thread."""
        loop = self._loop
        if loop is None:
            return
        if loop.is_forked:
            warnings.warn(
                f"a node of process {loop.process} is left alone in process {os.getpid()}, which was forked off it",
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
            loop.call(_quietly(self._node.close(0.0)))  # Ctrl-C while it drains: at once, then
            raise
        finally:
            loop.stop()

    @_like(fabric.Node.advertise)
    def advertise(self, *arguments: Any, **options: Any) -> None:
        """As ``gossamer.Node.advertise``."""
        self._run(self._node.advertise(*arguments, **options))

    @_like(fabric.Node.subscribe)
    def subscribe(self, *arguments: Any, **options: Any) -> Subscription:
        """As ``gossamer.Node.subscribe``; returns when the subscription is in force."""
        return Subscription(
            self._thread(), self._run(_started(self._node.subscribe(*arguments, **options)))
        )

    def publish(self, topic: str, event: Mapping[str, Any]) -> Receipt:
        """Accept an event. Returns once it is in the outbox (on disk, with a data_dir); ``wait`` for the rest."""
        return Receipt(self._thread(), self._run(self._node.publish(topic, event)))

    def publish_many(self, topic: str, events: Iterable[Mapping[str, Any]]) -> Receipts:
        """Accept events, many at a time. An event that is refused raises, and those before it are published."""
        rest, receipts = iter(events), list[fabric.Receipt]()
        while some := list(itertools.islice(rest, FETCH_MAX)):
            receipts += self._run(self._publish_some(topic, some))
        return Receipts(self._thread(), receipts)

    def publish_batch(self, topic: str, events: Any) -> BatchReceipt:
        """Accept events together, all or none: a list of them, or a ``pyarrow.RecordBatch``."""
        return BatchReceipt(self._thread(), self._run(self._node.publish_batch(topic, events)))

    async def _publish_some(
        self, topic: str, events: list[Mapping[str, Any]]
    ) -> list[fabric.Receipt]:
        return [await self._node.publish(topic, event) for event in events]

    def topic(self, topic: str, timeout: float = 10.0) -> str:
        """The topic's schema, once it is advertised."""
        return self._run(self._node.topic(topic, timeout))

    def forget(self, name: str) -> None:
        """Give up a durable subscription of this node, with its position and all that is stored for it."""
        self._run(self._node.forget(name))

    @_like(fabric.Node.lookup)
    def lookup(self, *arguments: Any, **options: Any) -> list[dict[str, Any]]:
        """As ``gossamer.Node.lookup``."""
        return self._run(self._node.lookup(*arguments, **options))

    def view(self, topic: str | None = None) -> list[Interested]:
        """Who wants a topic now; without a topic, who wants what."""
        return self._run(_called(self._node.view(topic).nodes))

    def changes(self, topic: str | None = None) -> Changes:
        """How that changes, from this call on."""
        return Changes(self._thread(), self._run(_called(self._node.view(topic).changes)))

    def drain(self, timeout: float = DRAIN_SECONDS) -> int:
        """Wait until every accepted event has a receipt; returns how many still have none."""
        return self._run(self._node.drain(timeout))

    def status(self) -> dict[str, Any]:
        return self._run(_called(self._node.status))

    # ------------------------------------------------------------------ inside

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
    """In the node's own thread: what it reads does not change meanwhile."""
    return function()


async def _started(subscription: fabric.Subscription) -> fabric.Subscription:
    return await subscription


async def _quietly(work: Coroutine[Any, Any, Any]) -> None:
    with contextlib.suppress(Exception):
        await work
