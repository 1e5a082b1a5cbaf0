"""Cancelling a call at any of its awaits leaves the node whole.

Nothing is half done, lost or left behind. ``each_await`` runs an operation again and again. It
cancels it at its first await, then at its second, and so on, until the operation ends without
having been cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from typing import Any

import pytest

import gossamer
from gossamer.net.waiting import WaitingCalls
from livenet import GENEVA, WEATHER, go, take, until

pytestmark = pytest.mark.live
AWAITS_MAX = 500


class Interrupted:
    """An operation that is cancelled at one of its awaits, as ``task.cancel`` does it."""

    def __init__(self, work: Awaitable[Any], at: int) -> None:
        self._steps, self._at = work.__await__(), at
        self.awaits = 0

    def __await__(self) -> Generator[Any, None, Any]:
        step, given = self._steps.send, None
        while True:
            try:
                future = step(given)  # type: ignore[operator]
            except StopIteration as end:
                return end.value
            if self.awaits == self._at:
                task = asyncio.current_task()
                assert task is not None
                # The task is about to wait for this future, and this wait is cancelled.
                task.cancel()
            self.awaits += 1
            try:
                given = yield future
                step = self._steps.send
            except BaseException as error:
                step, given = self._steps.throw, error  # type: ignore[assignment]


async def each_await(
    operation: Callable[[], Awaitable[Any]], afterwards: Callable[[bool, Any], Awaitable[None]]
) -> int:
    """Cancels at each await in turn, and returns the number of awaits.

    ``afterwards(cancelled, result)`` checks the state.
    """
    for at in range(AWAITS_MAX):
        work = Interrupted(operation(), at)

        async def run(work: Interrupted = work) -> Any:
            return await work

        task = asyncio.create_task(run())
        [outcome] = await asyncio.gather(task, return_exceptions=True)
        cancelled = isinstance(outcome, asyncio.CancelledError)
        if not cancelled and isinstance(outcome, BaseException):
            raise outcome
        await afterwards(cancelled, None if cancelled else outcome)
        if not cancelled:
            return at
    raise AssertionError(f"still not at its end after {AWAITS_MAX} awaits")


def nobody_waits(node: gossamer.Node) -> None:
    waiting = node._waiting
    for table in (
        waiting._window,
        waiting._topics,
        waiting._drains,
        waiting._barriers,
        waiting._entering,
        waiting._questions,
    ):
        assert not table


def test_publish_with_a_data_directory(tmp_path: Path) -> None:
    """Each event is handed over once or not at all, and never lost if it was accepted."""

    async def main() -> None:
        async with gossamer.Node(data_dir=tmp_path) as a, gossamer.Node(join=[a.address]) as b:
            await a.advertise("numbers", "n INT")
            numbers = iter(range(AWAITS_MAX))
            accepted: list[int] = []
            tried: list[int] = []
            async with b.subscribe("numbers") as events:

                async def publish() -> Any:
                    tried.append(next(numbers))
                    return await a.publish("numbers", {"n": tried[-1]})

                async def afterwards(cancelled: bool, receipt: Any) -> None:
                    if not cancelled:
                        accepted.append(tried[-1])
                        assert (await receipt).matched == 1
                    assert await a.drain() == 0
                    nobody_waits(a)

                assert await each_await(publish, afterwards) >= 1
                await (await a.publish("numbers", {"n": -1}))
                got = []
                while (event := await anext(events))["n"] != -1:
                    got.append(event["n"])
                assert len(set(got)) == len(got)
                assert set(accepted) <= set(got) <= set(tried)

    go(main())


def test_publish_that_waits_for_the_window() -> None:
    config = gossamer.NodeConfig(window=8, batch_events=4, buffer=4)

    async def main() -> None:
        async with (
            gossamer.Node(config=config) as a,
            gossamer.Node(join=[a.address], config=config) as b,
        ):
            await a.advertise("numbers", "n INT")
            async with b.subscribe("numbers") as events:
                published = 0
                while a._core.window_is_open:
                    await a.publish("numbers", {"n": published})
                    published += 1
                    await asyncio.sleep(0)
                waiting = [
                    asyncio.create_task(a.publish("numbers", {"n": 1000 + n})) for n in range(5)
                ]
                await until(lambda: len(a._waiting._window) == 5)
                for task in waiting[::2]:
                    task.cancel()
                await asyncio.gather(*waiting[::2], return_exceptions=True)
                assert len(a._waiting._window) == 2
                got = [event["n"] for event in await take(events, published + 2)]
                assert got == [*range(published), 1001, 1003]
                assert [(await task) is not None for task in waiting[1::2]] == [True, True]
                nobody_waits(a)

    go(main())


def test_a_receipt() -> None:
    async def main() -> None:
        async with gossamer.Node() as a, gossamer.Node(join=[a.address]) as b:
            await a.advertise("weather", WEATHER)
            async with b.subscribe("weather") as events:
                receipts: list[gossamer.Receipt] = []

                async def wait() -> Any:
                    receipts.append(await a.publish("weather", GENEVA))
                    return await receipts[-1]

                async def afterwards(cancelled: bool, done: Any) -> None:
                    if cancelled and receipts:
                        # It may be awaited again.
                        assert (await receipts[-1]).matched == 1

                assert await each_await(wait, afterwards) >= 1
                assert len(await take(events, len(receipts))) == len(receipts)

    go(main())


@pytest.mark.parametrize("route", ["flood", "skiplist", "tree"])
def test_subscribe(route: str) -> None:
    """A cancelled call is undone: there is no subscription, no interest, and no event is held
    back.
    """

    async def main() -> None:
        async with gossamer.Node() as a, gossamer.Node(join=[a.address]) as b:
            await a.advertise("weather", WEATHER)
            await b.topic("weather")

            async def afterwards(cancelled: bool, events: Any) -> None:
                nobody_waits(b)
                assert (
                    len(b._subscriptions) == len(b._core.subscriptions) == (0 if cancelled else 1)
                )
                if events is not None:
                    await events.close()

            async def subscribe() -> gossamer.Subscription:
                return await b.subscribe("weather", "temp > 30", route=route, barrier=True)

            assert await each_await(subscribe, afterwards) >= 1
            await until(lambda: a.view("weather").nodes() == [])
            async with b.subscribe("weather", "temp > 30", route=route) as events:
                assert (await (await a.publish("weather", GENEVA))).matched == 1
                assert (await anext(events))["temp"] == 31

    go(main())


def test_subscribe_to_a_topic_that_is_not_there_yet() -> None:
    async def main() -> None:
        async with gossamer.Node() as a:
            waiting = asyncio.create_task(a.subscribe("later").__aenter__())
            await until(lambda: a._waiting._topics)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            nobody_waits(a)
            await a.advertise("later", "n INT")
            assert not a._core.subscriptions

    go(main())


def test_iteration_loses_no_event() -> None:
    async def main() -> None:
        async with gossamer.Node() as a, gossamer.Node(join=[a.address]) as b:
            await a.advertise("numbers", "n INT")
            async with b.subscribe("numbers") as events:
                got: list[int] = []
                for number in range(30):
                    waiting = asyncio.ensure_future(anext(events))
                    for _ in range(number % 4):
                        await asyncio.sleep(0)
                    receipt = await a.publish("numbers", {"n": number})
                    if number % 3:
                        # So the event is there, and the iterator is about to hand it over.
                        await receipt
                    waiting.cancel()
                    [outcome] = await asyncio.gather(waiting, return_exceptions=True)
                    if isinstance(outcome, gossamer.Event):
                        got.append(outcome["n"])
                    await receipt
                got += [event["n"] for event in await take(events, 30 - len(got))]
                assert got == list(range(30))

    go(main())


def test_close_goes_on_to_its_end() -> None:
    async def main() -> None:
        async with gossamer.Node() as far:
            closed: list[gossamer.Node] = []
            for at in range(6):
                node = gossamer.Node(join=[far.address])
                await node.start()
                await node.advertise("weather", WEATHER)
                await node.publish("weather", GENEVA)
                work = Interrupted(node.close(), at)

                async def run(work: Interrupted = work) -> None:
                    await work

                await asyncio.gather(asyncio.create_task(run()), return_exceptions=True)
                closed.append(node)
            for node in closed:
                # It returns when the first call has ended.
                await node.close()
                assert not node._driver.connections
            await until(lambda: far.status()["members"] == 1)
            # All of them left politely.
            assert far.status()["interest"].get("declared dead", 0) == 0

    go(main())


def test_start_lets_go_of_everything(tmp_path: Path) -> None:
    async def main() -> None:
        async with gossamer.Node() as far:

            async def start() -> gossamer.Node:
                node = gossamer.Node(join=[far.address], data_dir=tmp_path)
                await node.start()
                return node

            async def afterwards(cancelled: bool, node: Any) -> None:
                if node is not None:
                    await node.close()

            # The directory would be locked if one had not let go of it.
            assert await each_await(start, afterwards) >= 1
            await until(lambda: not far._driver.links)

    go(main())


def test_a_start_that_is_given_up_after_others_have_heard_of_it_ends_with_a_farewell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a farewell they declare it dead after some seconds, and wait for it until then."""

    async def never(waiting: WaitingCalls) -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        async with gossamer.Node() as far:
            monkeypatch.setattr(WaitingCalls, "introduced", never)
            task = asyncio.create_task(gossamer.Node(join=[far.address]).start())
            await until(lambda: len(far._interest.view.members) == 2)
            changes = far._journal.members
            seen: list[str] = []
            monkeypatch.setattr(
                far._journal,
                "members",
                lambda some: (seen.extend(one.reason for one in some), changes(some)),
            )
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            async with asyncio.timeout(2):
                await until(lambda: len(far._interest.view.members) == 1)
            await until(lambda: seen)
            assert seen[-1] == "left"

    go(main())


def test_advertise_lookup_drain_and_names() -> None:
    async def main() -> None:
        async with gossamer.Node() as a, gossamer.Node(join=[a.address]) as b:
            await a.advertise("weather", WEATHER)
            async with b.subscribe("weather", "temp > 30", route="skiplist"):

                async def nothing_left(cancelled: bool, result: Any) -> None:
                    nobody_waits(a)

                numbers = iter(range(AWAITS_MAX))
                await each_await(
                    lambda: a.advertise(f"topic{next(numbers)}", "n INT"), nothing_left
                )
                await each_await(lambda: a.lookup("weather", GENEVA), nothing_left)

                async def publish_and_drain() -> None:
                    await a.publish("weather", GENEVA)
                    assert await a.drain() == 0

                await each_await(publish_and_drain, nothing_left)
                await each_await(lambda: a.view().names(), nothing_left)
                assert len(await a.lookup("weather", GENEVA)) == 1

    go(main())


def test_a_batch_is_accepted_whole_or_not_at_all(tmp_path: Path) -> None:
    """The batch fits the window.

    A batch that was begun before the cancellation is accepted and delivered whole.
    """

    async def main() -> None:
        async with gossamer.Node(data_dir=tmp_path) as a, gossamer.Node(join=[a.address]) as b:
            await a.advertise("numbers", "n INT")
            numbers = iter(range(AWAITS_MAX))
            async with b.subscribe("numbers") as events:
                tried: list[int] = []

                async def publish() -> Any:
                    tried.append(next(numbers))
                    return await a.publish_batch("numbers", [{"n": tried[-1]}] * 10)

                async def afterwards(cancelled: bool, receipt: Any) -> None:
                    assert await a.drain() == 0
                    nobody_waits(a)
                    if receipt is not None:
                        assert (await receipt).matched == (1,) * 10

                assert await each_await(publish, afterwards) >= 1
                await (await a.publish("numbers", {"n": -1}))
                got: dict[int, int] = {}
                while (event := await anext(events))["n"] != -1:
                    got[event["n"]] = got.get(event["n"], 0) + 1
                assert set(got.values()) == {10}
                assert tried[-1] in got

    go(main())


def test_an_acknowledgement_counts_or_the_event_comes_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with gossamer.Node() as a, gossamer.Node(join=[a.address], data_dir=tmp_path) as b:
            await a.advertise("numbers", "n INT", retention="1h")
            async with b.subscribe("numbers", name="mine") as events:
                for number in range(20):
                    await (await a.publish("numbers", {"n": number}))
                waiting = iter(await take(events, 20))
                acknowledged: list[int] = []

                async def ack() -> int:
                    event = next(waiting)
                    await events.ack(event)
                    return int(event["n"])

                async def afterwards(cancelled: bool, number: Any) -> None:
                    if number is not None:
                        acknowledged.append(number)

                assert await each_await(ack, afterwards) >= 1
                await events.ack(next(waiting), through=True)
                rest = [event["n"] for event in waiting]
            async with b.subscribe("numbers", name="mine") as events:
                again = [event["n"] for event in await take(events, len(rest))]
                # No acknowledged event is among them.
                assert again == rest
                assert not set(again) & set(acknowledged)

    go(main())
