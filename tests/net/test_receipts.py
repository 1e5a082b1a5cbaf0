"""Receipts of events that no program took, with real nodes.

The tests vary how the events are read and how the subscription ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import gossamer
from gossamer import blocking
from livenet import SECONDS, go, take, until

pytestmark = pytest.mark.live
BUFFER = 100
Done = gossamer.Done


async def finish(receipts: list[gossamer.Receipt]) -> list[Done]:
    return [await receipt for receipt in receipts]


def fates(done: list[Done]) -> list[tuple[int, int]]:
    return [(one.matched, one.dropped) for one in done]


def test_events_that_a_cut_off_subscriber_never_took_are_dropped_in_their_receipts() -> None:
    async def main() -> None:
        config = gossamer.NodeConfig(buffer=BUFFER, block=0.5)
        async with gossamer.Node() as a, gossamer.Node(join=[a.address], config=config) as b:
            await a.advertise("numbers", "n BIGINT")
            events = await b.subscribe("numbers")
            early = await finish([await a.publish("numbers", {"n": n}) for n in range(50)])
            late = await finish([await a.publish("numbers", {"n": n}) for n in range(50, 500)])
            # The first fifty were in its buffer when they were reported. The others left the buffer
            # at the end of the subscription, unless they had filled it before.
            assert fates(early) == [(1, 0)] * 50
            assert {one.matched + one.dropped for one in late} == {1}
            assert sum(one.matched for one in late) <= BUFFER - 50
            assert a._driver.tally.topic("numbers").dropped == sum(one.dropped for one in late)
            with pytest.raises(gossamer.SlowSubscriberError, match=r"for more than 0\.5 s"):
                await anext(events)

    go(main())


async def one_by_one(events: gossamer.Subscription, count: int) -> None:
    await take(events, count)


async def by_lists(events: gossamer.Subscription, count: int) -> None:
    found = 0
    async for some in events.lists():
        found += len(some)
        if found >= count:
            return


async def by_batches(events: gossamer.Subscription, count: int) -> None:
    pytest.importorskip("pyarrow", reason="record batches need the extra 'fast'")
    found = 0
    async for some in events.batches():
        found += some.num_rows
        if found >= count:
            return


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("read", [one_by_one, by_lists, by_batches])
def test_events_read_before_the_subscription_was_closed_are_matched_and_the_rest_dropped(
    read: Callable[[gossamer.Subscription, int], Awaitable[None]], columns: bool
) -> None:
    if columns:
        pyarrow = pytest.importorskip("pyarrow", reason="record batches need the extra 'fast'")

    def batch(start: int, count: int) -> Any:
        numbers = range(start, start + count)
        if columns:
            return pyarrow.RecordBatch.from_pydict(
                {"n": pyarrow.array(numbers, type=pyarrow.int64())}
            )
        return [{"n": n} for n in numbers]

    async def main() -> None:
        config = gossamer.NodeConfig(buffer=BUFFER)
        async with gossamer.Node() as a, gossamer.Node(join=[a.address], config=config) as b:
            await a.advertise("numbers", "n BIGINT")
            async with b.subscribe("numbers") as events:
                first = await a.publish_batch("numbers", batch(0, 30))
                await until(lambda: events.backlog == 30)
                await read(events, 30)
                second = await a.publish_batch("numbers", batch(30, 2000))
                await until(lambda: events.backlog == 2000)
                assert not second.done
            done = await second
            assert set((await first).matched) == {1}
            assert (set(done.matched), set(done.dropped)) == ({0}, {1})
            assert len(done.matched) == len(done.dropped) == 2000

    go(main())


def test_a_consumer_that_is_cancelled_in_the_middle_leaves_exact_receipts() -> None:
    async def main() -> None:
        config = gossamer.NodeConfig(buffer=BUFFER)
        async with gossamer.Node() as a, gossamer.Node(join=[a.address], config=config) as b:
            await a.advertise("numbers", "n BIGINT")
            got: list[int] = []
            stopped = asyncio.Event()

            async def consume() -> None:
                async with b.subscribe("numbers") as events:
                    stopped.clear()
                    ready.set()
                    async for event in events:
                        got.append(event["n"])
                        if len(got) == 70:
                            stopped.set()
                            await asyncio.sleep(60)

            ready = asyncio.Event()
            task = asyncio.create_task(consume())
            await ready.wait()
            receipt = await a.publish_batch("numbers", [{"n": n} for n in range(500)])
            await stopped.wait()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            done = await receipt
            assert got == list(range(70))
            assert done.matched == (1,) * 70 + (0,) * 430
            assert done.dropped == (0,) * 70 + (1,) * 430

    go(main())


def test_drop_oldest_counts_the_events_that_a_batch_pushed_out_and_delivers_the_kept_ones() -> None:
    async def main() -> None:
        config = gossamer.NodeConfig(buffer=BUFFER)
        async with gossamer.Node() as a, gossamer.Node(join=[a.address], config=config) as b:
            await a.advertise("numbers", "n BIGINT")
            async with b.subscribe("numbers", slow="drop_oldest") as events:
                done = await (await a.publish_batch("numbers", [{"n": n} for n in range(500)]))
                assert done.matched == (0,) * 400 + (1,) * 100
                assert done.dropped == (1,) * 400 + (0,) * 100
                assert [event["n"] for event in await take(events, 100)] == list(range(400, 500))
                assert events.dropped == 400

    go(main())


def test_a_durable_subscription_that_is_cut_off_drops_nothing(tmp_path: Any) -> None:
    async def main() -> None:
        config = gossamer.NodeConfig(durable=BUFFER, block=0.3)
        async with gossamer.Node() as a:
            await a.advertise("numbers", "n BIGINT")
            async with gossamer.Node(join=[a.address], data_dir=tmp_path, config=config) as b:
                events = await b.subscribe("numbers", name="mine")
                done = await (await a.publish_batch("numbers", [{"n": n} for n in range(500)]))
                assert (set(done.matched), set(done.dropped)) == ({1}, {0})
                await until(lambda: not b.status()["subscriptions"])
                with pytest.raises(gossamer.SlowSubscriberError):
                    await anext(events)

    go(main())


def test_events_between_the_blocking_facade_and_its_program_are_not_taken() -> None:
    config = gossamer.NodeConfig(buffer=BUFFER)
    with blocking.Node() as a, blocking.Node(join=[a.address], config=config) as b:
        a.advertise("numbers", "n BIGINT")
        with b.subscribe("numbers") as events:
            receipt = a.publish_batch("numbers", [{"n": n} for n in range(500)])
            assert [events.next(SECONDS)["n"] for _ in range(7)] == list(range(7))
            # They were fetched, and the program has not seen them.
            assert len(events._here) > 0
        done = receipt.wait(SECONDS)
        assert done.matched == (1,) * 7 + (0,) * 493
        assert done.dropped == (0,) * 7 + (1,) * 493


def test_a_slow_program_behind_the_blocking_facade_that_goes_on_taking_is_not_cut_off() -> None:
    config = gossamer.NodeConfig(buffer=BUFFER, block=0.5)
    with blocking.Node() as a, blocking.Node(join=[a.address], config=config) as b:
        a.advertise("numbers", "n BIGINT")
        with b.subscribe("numbers") as events:
            receipts = [a.publish_batch("numbers", [{"n": n} for n in range(300)])]
            got = []
            # This is 1.5 s, three times the limit for a subscription that takes nothing.
            for _ in range(300):
                got.append(events.next(SECONDS)["n"])
                time.sleep(0.005)
            assert got == list(range(300))
        assert set(receipts[0].wait(SECONDS).matched) == {1}
