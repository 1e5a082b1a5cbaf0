"""The calls that wait for the machine: for a receipt, room in the window, a topic, a barrier.

After every call to the machine (``settle``) the calls whose wait is over are woken. A call that
waits for something that cannot come any more gets an error (``fail``).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from gossamer.machine import Token
from gossamer.net.driver import Driver
from gossamer.net.errors import NodeError
from gossamer.net.publishing import Waiter, waiter
from gossamer.node import NodeCore, TopicError
from gossamer.overlay.skiplist.search import Found

Future = asyncio.Future[None]


class WaitingCalls:
    def __init__(
        self,
        core: NodeCore,
        driver: Driver,
        check: Callable[[], None],
        unstored: Callable[[str, str], Exception],
    ) -> None:
        """``check`` raises if the node is closed.

        ``unstored`` makes the error for something that the disk did not take.
        """
        self._core, self._driver, self._check, self._unstored = core, driver, check, unstored
        self._window: deque[Future] = deque()
        self._topics: list[tuple[str, Future]] = []
        self._drains: list[Future] = []
        self._barriers: dict[int, Future] = {}
        self._entering: dict[int, Future] = {}
        self._questions: dict[int, asyncio.Future[Found]] = {}
        self._storing: dict[Token, Future] = {}
        self._introduced: Future | None = None
        self._confirmed: Future | None = None

    async def window(self) -> None:
        """Waits until the outbox has room."""
        self._driver.wake()
        while not self._core.window_is_open:
            self._check()
            future = self._driver.loop.create_future()
            self._window.append(future)
            try:
                await future
            finally:
                # It was removed already when it was woken.
                with contextlib.suppress(ValueError):
                    self._window.remove(future)

    async def topic(self, topic: str, timeout: float) -> None:
        """Waits until a topic is advertised."""
        self._check()
        if topic in self._core.topics.schemas:
            return
        future = self._driver.loop.create_future()
        entry = (topic, future)
        self._topics.append(entry)
        try:
            async with asyncio.timeout(timeout):
                await future
        except TimeoutError:
            known = ", ".join(sorted(self._core.topics.schemas)[:10]) or "none"
            raise TopicError(
                f"topic {topic!r} was not advertised within {timeout:g} s (known topics: {known}); "
                f'advertise it first: gossamer advertise {topic} "name STRING, ..."'
            ) from None
        finally:
            self._topics.remove(entry)

    def advertised(self, topic: str) -> None:
        for wanted, future in self._topics:
            if wanted == topic and not future.done():
                future.set_result(None)

    async def drained(self, timeout: float) -> int:
        """Waits until every accepted event has a receipt.

        Returns the number of events without one after the timeout.
        """
        self._driver.wake()
        if self._core.outbox.unsettled:
            future = self._driver.loop.create_future()
            self._drains.append(future)
            try:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(timeout):
                        await future
            finally:
                if future in self._drains:
                    self._drains.remove(future)
        return self._core.outbox.unsettled

    async def introduced(self) -> None:
        """Waits until some neighbour has told its topics."""
        if not self._core.topics.introduced:
            self._introduced = self._driver.loop.create_future()
            await self._introduced

    async def confirmed(self) -> None:
        """Waits until all neighbours know all topics that this node knows."""
        while self._core.topics.unconfirmed:
            self._check()
            self._confirmed = self._confirmed or self._driver.loop.create_future()
            await asyncio.shield(self._confirmed)

    async def barrier(self) -> None:
        """Waits until every live node knows this node's interest."""
        self._check()
        interest = self._core.interest
        assert interest is not None
        number = interest.barrier(self._driver.now())
        future = self._barriers[number] = self._driver.loop.create_future()
        self._driver.wake()
        try:
            await future
        finally:
            self._barriers.pop(number, None)

    async def entered(self, number: int) -> None:
        """Waits until a subscription is in force: every later publication finds it."""
        self._check()
        if self._core.subscriptions[number].in_force:
            return
        future = self._entering[number] = self._driver.loop.create_future()
        try:
            await future
        finally:
            self._entering.pop(number, None)

    async def stored(self, token: Token) -> None:
        """Waits until a request of a durable subscription is on disk."""
        self._check()
        future = self._storing.get(token)
        if future is None:
            future = self._storing[token] = self._driver.loop.create_future()
        await asyncio.shield(future)

    def refused(self, number: int, error: Exception) -> None:
        """A subscription that was put off could not be made."""
        future = self._entering.get(number)
        if future is not None and not future.done():
            future.set_exception(error)

    async def lookup(self, topic: str, event: Mapping[str, Any] | None, timeout: float) -> Found:
        """Waits until a question about a topic's list is answered."""
        await self.topic(topic, timeout)
        number = self._core.lookup(topic, event, self._driver.now())
        future: asyncio.Future[Found] = self._driver.loop.create_future()
        self._questions[number] = future
        self._driver.wake()
        try:
            async with asyncio.timeout(timeout):
                return await future
        except TimeoutError:
            raise NodeError(
                f"no answer about {topic!r} within {timeout:g} s; "
                "try again, or with a longer timeout"
            ) from None
        finally:
            self._questions.pop(number, None)

    def settle(self) -> None:
        """Wakes the calls whose wait is over. It is called after every call to the machine."""
        core, routing = self._core, self._core.routing
        if core.follows.done:
            for token in core.follows.done:
                waited = self._storing.pop(token, None)
                if waited is not None and not waited.done():
                    waited.set_result(None)
            core.follows.done.clear()
        if core.follows.lost:
            for token in core.follows.lost:
                waited = self._storing.pop(token, None)
                if waited is not None and not waited.done():
                    _refuse(
                        waited,
                        self._unstored("the acknowledgement is not stored", "subscribe again"),
                    )
            core.follows.lost.clear()
        if core.changed:
            self._published()
        if self._introduced is not None and core.topics.introduced:
            if not self._introduced.done():
                self._introduced.set_result(None)
            self._introduced = None
        if self._confirmed is not None and not core.topics.unconfirmed:
            self._confirmed.set_result(None)
            self._confirmed = None
        if core.interest is not None and core.interest.barriers_done:
            done = core.interest.barriers_done
            while done:
                future = self._barriers.get(done.pop())
                if future is not None and not future.done():
                    future.set_result(None)
        if core.skiplist is not None and core.skiplist.found:
            for number, found in core.skiplist.found.items():
                question = self._questions.get(number)
                if question is not None and not question.done():
                    question.set_result(found)
            core.skiplist.found.clear()
        if routing.lapsed:
            self._driver.counters["lapsed_subscriptions"] += len(routing.lapsed)
            routing.lapsed.clear()
        if routing.entered:
            for number in routing.entered:
                future = self._entering.get(number)
                if future is not None and not future.done():
                    future.set_result(None)
            routing.entered.clear()

    def _published(self) -> None:
        core = self._core
        changed, core.changed = core.changed, []
        tallies = self._driver.tally
        for publication in changed:
            if publication.matched is not None:
                tally = tallies.topics.get(publication.topic) or tallies.topic(publication.topic)
                tally.published += publication.count
                tally.matched += publication.total
                if publication.dropped:
                    tally.dropped += publication.total_lost
            waiting: Waiter | None = publication.waiter
            if publication.refused:
                self._driver.counters["refused_events"] += publication.count
                error = self._unstored("the event was not accepted", "publish it again")
                for future in (waiter(publication).accepted, waiter(publication).complete):
                    if not future.done():
                        _refuse(future, error)
            elif waiting is not None:
                if publication.accepted and not waiting.accepted.done():
                    waiting.accepted.set_result(None)
                if publication.matched is not None and not waiting.complete.done():
                    waiting.complete.set_result(None)
        if self._window and core.window_is_open:
            while self._window:
                future = self._window.popleft()
                if not future.done():
                    future.set_result(None)
        if self._drains and not core.outbox.unsettled:
            for future in self._drains:
                if not future.done():
                    future.set_result(None)
            self._drains.clear()

    def refuse(self, error: NodeError) -> None:
        """Ends the waits of calls that have not begun their work. Accepted work goes on."""
        for future in [*self._window, *(future for _, future in self._topics)]:
            if not future.done():
                future.set_exception(error)

    def hurry(self) -> None:
        """Ends the waits for the receipts of all events."""
        for future in self._drains:
            if not future.done():
                future.set_result(None)

    def fail(self, error: NodeError) -> None:
        """Ends all waits for something that cannot come any more."""
        futures: list[asyncio.Future[Any]] = [
            *self._window,
            *self._drains,
            *(future for _, future in self._topics),
            *self._barriers.values(),
        ]
        futures += [*self._entering.values(), *self._questions.values(), *self._storing.values()]
        futures += [future for future in (self._confirmed, self._introduced) if future is not None]
        for publication in self._core.outbox.publications():
            found = waiter(publication)
            futures += [found.accepted, found.complete]
        for future in futures:
            if not future.done():
                _refuse(future, error)


def _refuse(future: asyncio.Future[Any], error: Exception) -> None:
    future.set_exception(error)
    # The exception is marked as seen, because perhaps nothing waits for the future.
    future.exception()
