"""Programs that publish without a pause, and the guarantees that they have."""

from __future__ import annotations

import asyncio
import enum

import pytest

import gossamer
from livenet import Others, go, take, until

pytestmark = pytest.mark.live


class Topics(enum.StrEnum):
    NUMBERS = "numbers"


def test_a_topic_may_be_any_string() -> None:
    async def main() -> None:
        async with gossamer.Node() as a, gossamer.Node(join=[a.address]) as b:
            await a.advertise(Topics.NUMBERS, "n INT")
            async with b.subscribe(Topics.NUMBERS, "n >= 0") as events:
                receipts = []
                for n in range(100):
                    receipts.append(
                        await a.publish(
                            (Topics.NUMBERS, "numbers", str(Topics.NUMBERS))[n % 3], {"n": n}
                        )
                    )
                    if n % 10 == 0:
                        await asyncio.sleep(0)
                assert [event["n"] for event in await take(events, 100)] == list(range(100))
                assert {(await receipt).matched for receipt in receipts} == {1}
            assert (
                a.status()["counters"].get("rejected", 0)
                == b.status()["counters"].get("rejected", 0)
                == 0
            )

    go(main())


def test_large_events_do_not_fill_a_link_before_anything_is_written() -> None:
    async def main() -> None:
        async with gossamer.Node() as a, gossamer.Node(join=[a.address]) as b:
            await a.advertise("large", "text STRING")
            async with b.subscribe("large") as events:
                taking = asyncio.create_task(take(events, 1600))
                receipts = [await a.publish("large", {"text": "x" * 20_000}) for _ in range(1600)]
                assert len(await taking) == 1600
                assert {(await receipt).matched for receipt in receipts} == {1}
            assert a.status()["counters"].get("dropped", 0) == 0

    go(main())


@pytest.mark.parametrize("batch_events", [1, 256])
def test_others_have_their_turn(batch_events: int) -> None:
    async def main() -> None:
        async with gossamer.Node(config=gossamer.NodeConfig(batch_events=batch_events)) as node:
            await node.advertise("numbers", "n INT")
            others = Others()
            for n in range(4096):
                await node.publish("numbers", {"n": n})
            assert others.stop() >= 4096 // batch_events // 2 - 1

    go(main())


def test_dropping_the_oldest_at_home_loses_nothing_while_the_program_keeps_up() -> None:
    async def main() -> None:
        async with gossamer.Node(config=gossamer.NodeConfig(buffer=6000)) as node:
            await node.advertise("numbers", "n INT")
            async with node.subscribe("numbers", slow="drop_oldest") as events:
                taking = asyncio.create_task(take(events, 20_000))
                for n in range(20_000):
                    await node.publish("numbers", {"n": n})
                assert [event["n"] for event in await taking] == list(range(20_000))
                assert events.dropped == 0

    go(main())


def test_a_node_that_refuses_goes_on_refusing() -> None:
    """The node's start fails while a program publishes event after event.

    Once one event is refused, no later one is accepted.
    """

    async def main() -> None:
        node = gossamer.Node(join=["127.0.0.1:1"], join_timeout=0.3)
        starting = asyncio.create_task(node.start())
        await until(lambda: node.address)
        await node.advertise("numbers", "n INT")
        stop, stopping = node._dialler.stop, asyncio.Event()

        # Dials that take their time to end have the same effect.
        async def stop_later() -> None:
            stopping.set()
            await asyncio.sleep(0.05)
            await stop()

        node._dialler.stop = stop_later  # type: ignore[method-assign]
        accepted: list[bool] = []
        while not starting.done():
            for _ in range(3):
                try:
                    await node.publish("numbers", {"n": 1})
                    accepted.append(True)
                except gossamer.NodeError:
                    accepted.append(False)
            # The window must not fill, because a publisher that waits for it is refused in any
            # case.
            await asyncio.sleep(0.001)
        with pytest.raises(gossamer.JoinError):
            await starting
        assert stopping.is_set()
        assert accepted[0]
        assert not any(accepted[accepted.index(False) :])

    go(main())
