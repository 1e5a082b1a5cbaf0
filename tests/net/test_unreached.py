"""Nodes that nobody can dial: behind a translation, or on loopback in a fabric of several hosts. Two of them are never linked."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

import gossamer
from gossamer.net.dialler import is_loopback
from gossamer.net.reached import withdraw
from gossamer.net.waiting import Waiting
from livenet import GENEVA, WEATHER, go, until

pytestmark = pytest.mark.live


async def unreached(stack: AsyncExitStack, station: gossamer.Node, count: int) -> list[gossamer.Node]:
    """Nodes beside a station that can be dialled; they hold no links but those that they have opened."""
    nodes = [await stack.enter_async_context(gossamer.Node(join=[station.address])) for _ in range(count)]
    for node in nodes:
        withdraw(node)  # as if the link to the station went to another host
        node._driver.wake()
        for peer, link in list(node._driver.links.items()):
            if peer != station.peer:
                link.close("test")
    await until(lambda: all(set(node._driver.links) == {station.peer} for node in nodes))
    await until(
        lambda: all(
            not member.record.address for peer, member in station._interest.view.members.items() if peer != station.peer
        )
    )
    return nodes


def test_what_two_of_them_publish_and_want_goes_by_others() -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            station = await stack.enter_async_context(gossamer.Node())
            await station.advertise("weather", WEATHER)
            reader, writer, _ = await unreached(stack, station, 3)
            async with reader.subscribe("weather", "temp > 30") as events:
                assert reader.status()["subscriptions"][0]["route"] == "flood"
                receipt = await writer.publish("weather", GENEVA)
                assert (await anext(events))["temp"] == 31
                assert (await receipt).matched == 1
                assert reader.peer not in writer._driver.links

    go(main())


def test_a_subscription_that_is_there_already_moves_when_the_node_cannot_be_dialled_any_more() -> None:
    async def main() -> None:
        async with gossamer.Node() as station, gossamer.Node(join=[station.address]) as reader:
            await station.advertise("weather", WEATHER)
            async with reader.subscribe("weather") as events:
                assert reader.status()["subscriptions"][0]["route"] == "direct"
                withdraw(reader)
                reader._driver.wake()
                await until(lambda: reader.status()["subscriptions"][0]["route"] == "flood")
                assert (await (await station.publish("weather", GENEVA))).matched == 1
                assert (await anext(events))["temp"] == 31

    go(main())


def test_a_member_of_a_group_opens_the_links_that_publishers_cannot() -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            station = await stack.enter_async_context(gossamer.Node(k=1))
            await station.advertise("weather", WEATHER)
            far = [await stack.enter_async_context(gossamer.Node(k=1, join=[station.address])) for _ in range(6)]
            worker = await stack.enter_async_context(gossamer.Node(k=1, join=[station.address]))
            await until(lambda: all(len(node._interest.view.members) == 8 for node in (worker, *far)))
            withdraw(worker)
            worker._driver.wake()
            await until(lambda: all(not node._interest.view.members[worker.peer].record.address for node in far))
            assert any(node.peer not in worker._driver.links for node in far)
            async with worker.subscribe("weather", group="workers") as events:
                for publisher in far:
                    assert (await (await publisher.publish("weather", GENEVA))).matched == 1
                    await anext(events)
                    assert publisher.peer in worker._driver.links

    go(main())


def test_a_route_that_needs_links_between_any_two_says_why_it_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(
        waiting: Waiting, number: int
    ) -> None:  # whether two of them are next to each other is left to their names
        await asyncio.Event().wait()

    async def main() -> None:
        async with AsyncExitStack() as stack:
            station = await stack.enter_async_context(gossamer.Node())
            await station.advertise("weather", WEATHER)
            await unreached(stack, station, 2)
            monkeypatch.setattr(Waiting, "entered", never)
            with pytest.raises(
                gossamer.BarrierError, match=r"2 members cannot be dialled, and route 'tree' needs .* use 'auto'"
            ):
                await station.subscribe("weather", route="tree", timeout=0.1)
            with pytest.raises(gossamer.BarrierError, match=r"try again, or with a longer timeout"):
                await station.subscribe("weather", route="flood", timeout=0.1)

    go(main())


@pytest.mark.parametrize(
    ("host", "is_so"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("::ffff:127.0.0.1", True), ("localhost", True),
     ("10.0.0.1", False), ("0.0.0.0", False), ("fe80::1%eth0", False), ("::ffff:10.0.0.1", False), ("example", False)],
)  # fmt: skip
def test_loopback(host: str, is_so: bool) -> None:
    assert is_loopback(host) is is_so
