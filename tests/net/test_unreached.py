"""Nodes that cannot be dialled: behind a translation, or on loopback in a fabric of several hosts.

Two such nodes are never linked.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

import gossamer
from gossamer.net.dialler import is_loopback
from gossamer.node.planes import Route
from livenet import GENEVA, WEATHER, go, until

pytestmark = pytest.mark.live


async def unreached(
    stack: AsyncExitStack, others: list[gossamer.Node], count: int
) -> list[gossamer.Node]:
    """Nodes beside others that can be dialled. They hold only links that they have opened."""
    nodes = [
        await stack.enter_async_context(gossamer.Node(join=[others[0].address]))
        for _ in range(count)
    ]
    for node in nodes:
        # It is as if the link to the first node went to another host.
        node._withdraw()
        node._driver.wake()
    names, mute = {node.peer for node in others}, {node.peer for node in nodes}
    for node in (*nodes, *others):
        members = node._interest.view.members
        await until(
            lambda members=members: all(
                peer in members and not members[peer].record.address for peer in mute
            )
        )
    for node in nodes:
        for peer, link in list(node._driver.links.items()):
            if peer not in names:
                link.close("test")
    await until(
        lambda: all(node._driver.links and set(node._driver.links) <= names for node in nodes)
    )
    return nodes


def test_events_between_two_of_them_go_by_others() -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            station = await stack.enter_async_context(gossamer.Node())
            await station.advertise("weather", WEATHER)
            reader, writer, _ = await unreached(stack, [station], 3)
            async with reader.subscribe("weather", "temp > 30") as events:
                assert reader.status()["subscriptions"][0]["route"] == "flood"
                receipt = await writer.publish("weather", GENEVA)
                assert (await anext(events))["temp"] == 31
                assert (await receipt).matched == 1
                assert reader.peer not in writer._driver.links

    go(main())


def test_a_subscription_that_is_there_already_moves_when_the_node_cannot_be_dialled_any_more() -> (
    None
):
    async def main() -> None:
        async with gossamer.Node() as station, gossamer.Node(join=[station.address]) as reader:
            await station.advertise("weather", WEATHER)
            async with reader.subscribe("weather") as events:
                assert reader.status()["subscriptions"][0]["route"] == "direct"
                reader._withdraw()
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
            far = [
                await stack.enter_async_context(gossamer.Node(k=1, join=[station.address]))
                for _ in range(6)
            ]
            worker = await stack.enter_async_context(gossamer.Node(k=1, join=[station.address]))
            await until(
                lambda: all(len(node._interest.view.members) == 8 for node in (worker, *far))
            )
            worker._withdraw()
            worker._driver.wake()
            await until(
                lambda: all(
                    not node._interest.view.members[worker.peer].record.address for node in far
                )
            )
            assert any(node.peer not in worker._driver.links for node in far)
            async with worker.subscribe("weather", group="workers") as events:
                for publisher in far:
                    assert (await (await publisher.publish("weather", GENEVA))).matched == 1
                    await anext(events)
                    assert publisher.peer in worker._driver.links

    go(main())


@pytest.mark.parametrize("route", ["tree", "skiplist"])
def test_others_use_tree_and_skip_list_as_if_they_were_not_there_and_they_publish_into_both(
    route: str,
) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            station = await stack.enter_async_context(gossamer.Node())
            await station.advertise("weather", WEATHER)
            others = [
                await stack.enter_async_context(gossamer.Node(join=[station.address]))
                for _ in range(2)
            ]
            mute = await unreached(stack, [station, *others], 4)
            reached = [station, *others]
            taken = [
                await stack.enter_async_context(node.subscribe("weather", "temp > 30", route=route))
                for node in reached
            ]
            for node in (*reached, *mute):
                assert (await (await node.publish("weather", GENEVA))).matched == len(reached)
            for events in taken:
                assert len({(await anext(events)).id for _ in range(7)}) == 7
            assert {one.peer for one in station._core.routing.planes[Route.TREE].drawn()} == {
                node.peer for node in reached
            }

    go(main())


@pytest.mark.parametrize("route", ["tree", "skiplist", "direct"])
def test_a_route_that_others_need_links_for_is_refused_at_a_node_that_nobody_can_dial(
    route: str,
) -> None:
    async def main() -> None:
        async with gossamer.Node() as station, gossamer.Node(join=[station.address]) as reader:
            await station.advertise("weather", WEATHER)
            reader._withdraw()
            with pytest.raises(
                gossamer.RouteError,
                match=rf"nobody can dial this node, and route '{route}' .* use route 'auto'",
            ):
                await reader.subscribe("weather", route=route)
            async with reader.subscribe("weather") as events:
                with pytest.raises(gossamer.RouteError, match="nobody can dial this node"):
                    await events.move(route)

    go(main())


def test_a_refusal_of_a_put_off_subscription_says_why() -> None:
    async def main() -> None:
        async with gossamer.Node() as reader:
            await reader.advertise("weather", WEATHER)
            subscription = reader.subscribe("weather", route="tree")
            reader._core.routing._synced, known = False, reader._interest.is_synced
            reader._interest.is_synced = lambda now: False  # type: ignore[method-assign]
            entering = asyncio.ensure_future(subscription._start())
            await until(lambda: bool(reader._core.routing._waiting))
            reader._withdraw()
            reader._interest.is_synced = known  # type: ignore[method-assign]
            reader._driver.wake()
            with pytest.raises(
                gossamer.TopicError, match="by route 'tree' was refused: nobody can dial this node"
            ):
                await entering

    go(main())


@pytest.mark.parametrize("route", ["tree", "skiplist", "direct"])
def test_a_subscription_leaves_such_a_route_without_a_loss_when_its_node_cannot_be_dialled(
    route: str,
) -> None:
    async def main() -> None:
        async with gossamer.Node() as station, gossamer.Node(join=[station.address]) as reader:
            await station.advertise("weather", WEATHER)
            async with reader.subscribe("weather", route=route) as events:
                receipts = []
                for count in range(60):
                    if count == 20:
                        reader._withdraw()
                        reader._driver.wake()
                    receipts.append(await station.publish("weather", GENEVA))
                    # This is the pace of a publisher.
                    await asyncio.sleep(0.005)
                assert [(await receipt).matched for receipt in receipts] == [1] * 60
                assert len({(await anext(events)).id for _ in range(60)}) == 60
                await until(lambda: reader.status()["subscriptions"][0]["route"] == "flood")
                await until(lambda: not station._interest.view.members[reader.peer].record.address)
                assert not events.backlog

    go(main())


@pytest.mark.parametrize(
    ("host", "is_so"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("localhost", True),
        ("10.0.0.1", False),
        ("0.0.0.0", False),
        ("fe80::1%eth0", False),
        ("::ffff:10.0.0.1", False),
        ("example", False),
    ],
)  # fmt: skip
def test_loopback(host: str, is_so: bool) -> None:
    assert is_loopback(host) is is_so
