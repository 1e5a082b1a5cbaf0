"""Every route carries real events over real sockets, to the right subscriptions only.

The receipts are exact.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

import gossamer
from gossamer.node import Route, RouteError
from livenet import GENEVA, WEATHER, go, take, until

pytestmark = pytest.mark.live

FILTERS = (
    "temp > 30",
    "country = 'CH' AND temp BETWEEN 0 AND 40",
    "city LIKE 'Gen%'",
    "temp > 90",
    "",
    "city RLIKE '^G'",
)
OTHER = [route for route in Route if route not in (Route.FLOOD, Route.AUTO)]


async def nodes(
    stack: contextlib.AsyncExitStack, count: int, **options: Any
) -> list[gossamer.Node]:
    first = await stack.enter_async_context(gossamer.Node(**options))
    rest = [
        await stack.enter_async_context(gossamer.Node(join=[first.address], **options))
        for _ in range(count - 1)
    ]
    return [first, *rest]


def event(number: int) -> dict[str, Any]:
    return {
        "country": "CH" if number % 2 else "FR",
        "city": f"{'Gen' if number % 3 else 'Ber'}-{number}",
        "temp": number,
    }


@pytest.mark.parametrize("route", list(Route))
def test_events_reach_exactly_the_right_subscriptions_and_receipts_count_them(route: Route) -> None:
    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:
            fabric = await nodes(stack, 6)
            await fabric[0].advertise("weather", WEATHER)
            events = [
                await stack.enter_async_context(node.subscribe("weather", text, route=route))
                for node, text in zip(fabric, FILTERS, strict=True)
            ]
            shown = {one.route for one in fabric[5].view("weather").nodes()}
            assert shown == {"direct" if route is Route.AUTO else route.value}
            sent = [
                await fabric[number % 6].publish("weather", event(number)) for number in range(48)
            ]
            matched = [(await receipt).matched for receipt in sent]
            parsed = [fabric[0].check_filter("weather", text) for text in FILTERS]
            schema = gossamer.Schema.parse(WEATHER)
            right = [gossamer.Filter.parse(text, schema) for text in parsed]
            assert matched == [
                sum(one.matches(event(number)) for one in right) for number in range(48)
            ]
            for got, one in zip(events, right, strict=True):
                wanted = [number for number in range(48) if one.matches(event(number))]
                assert sorted(each["temp"] for each in await take(got, len(wanted))) == wanted
                assert not got.backlog

    go(main())


def test_subscriptions_by_different_routes_on_one_topic_get_each_event_once() -> None:
    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:
            a, b, c = await nodes(stack, 3)
            await a.advertise("weather", WEATHER)
            events = [
                await stack.enter_async_context(node.subscribe("weather", "temp > 30", route=route))
                for node in (b, c)
                for route in Route
            ]
            assert [one.route for one in a.view("weather").nodes()] == [
                "direct+skiplist+tree+flood"
            ] * 2
            assert (await (await a.publish("weather", GENEVA))).matched == 2 * len(Route)
            for got in events:
                assert [one["city"] for one in await take(got, 1)] == ["Geneva"]
                assert not got.backlog

    go(main())


@pytest.mark.parametrize("route", OTHER)
def test_subscriptions_come_and_go_under_load_and_nothing_due_is_missed(route: Route) -> None:
    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:
            fabric = await nodes(stack, 4)
            await fabric[0].advertise("weather", WEATHER)
            steady = await stack.enter_async_context(
                fabric[3].subscribe("weather", "temp >= 0", route=route)
            )
            stop = False
            cycles = 0

            async def come_and_go(node: gossamer.Node, low: int) -> None:
                nonlocal cycles
                while not stop:
                    async with node.subscribe("weather", f"temp > {low}", route=route):
                        await asyncio.sleep(0)
                    cycles += 1

            churn = [
                asyncio.create_task(come_and_go(node, 10 * number))
                for number, node in enumerate(fabric[:3])
            ]
            receipts = []
            for number in range(200):
                receipts.append(await fabric[number % 3].publish("weather", event(number)))
                if number % 8 == 0:
                    await asyncio.sleep(0.002)
            await until(lambda: cycles >= 3)
            stop = True
            await asyncio.gather(*churn)
            done = [await receipt for receipt in receipts]
            assert all(one.matched >= 1 for one in done)
            assert sorted(one["temp"] for one in await take(steady, 200)) == list(range(200))
            assert not steady.backlog

    go(main())


@pytest.mark.parametrize("route", OTHER)
def test_a_slow_subscriber_holds_publishers_back(route: Route) -> None:
    async def main() -> None:
        config = gossamer.NodeConfig(buffer=16, window=64, batch_events=8)
        async with contextlib.AsyncExitStack() as stack:
            a, b = await nodes(stack, 2, config=config)
            await a.advertise("weather", WEATHER)
            events = await stack.enter_async_context(
                b.subscribe("weather", "temp >= 0", route=route)
            )
            sender = asyncio.create_task(_publish(a, 400))
            await until(lambda: events.backlog > 16)
            held = events.backlog
            assert held <= 16 + 64 + 8, "more waits than the buffer and the window allow"
            assert not sender.done()
            got = [one["temp"] for one in await take(events, 400)]
            assert sorted(got) == list(range(400))
            assert await sender == 400

    go(main())


async def _publish(node: gossamer.Node, count: int) -> int:
    receipts = [await node.publish("weather", event(number)) for number in range(count)]
    return sum([(await receipt).matched for receipt in receipts])


def test_an_unknown_route_is_refused_with_those_there_are() -> None:
    async def main() -> None:
        async with gossamer.Node() as node:
            with pytest.raises(RouteError, match="known: auto, direct, flood, skiplist, tree"):
                node.subscribe("weather", route="teleport")

    go(main())


def test_a_look_up_names_the_subscriptions_for_an_event_and_hands_nothing_over() -> None:
    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:
            a, b, c = await nodes(stack, 3)
            await a.advertise("weather", WEATHER)
            texts = ("temp > 30", "country = 'CH' AND temp < 40", "city LIKE 'Ber%'")
            events = [
                await stack.enter_async_context(node.subscribe("weather", text, route="skiplist"))
                for node, text in ((b, texts[0]), (c, texts[1]), (c, texts[2]))
            ]
            hits = await a.lookup("weather", GENEVA)
            assert sorted(one["filter"] for one in hits) == sorted(
                a.check_filter("weather", text) for text in texts[:2]
            )
            assert {one["address"] for one in hits} == {b.address, c.address}
            assert len(await a.lookup("weather")) == 3
            assert not any(got.backlog for got in events)
            with pytest.raises(gossamer.EventError):
                await a.lookup("weather", {"temp": "warm"})

    go(main())


def test_every_node_draws_the_same_tree() -> None:
    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:
            fabric = await nodes(stack, 5)
            await fabric[0].advertise("weather", WEATHER)
            await stack.enter_async_context(fabric[2].subscribe("weather", route="tree"))
            await until(lambda: all(node.status()["members"] == 5 for node in fabric))
            shapes = {
                tuple((one["node"], one["parent"], one["depth"]) for one in node.tree())
                for node in fabric
            }
            assert len(shapes) == 1
            (shape,) = shapes
            assert len(shape) == 5
            assert [depth for _, parent, depth in shape if parent is None] == [0]
            await until(
                lambda: all(one["linked"] in (True, None) for node in fabric for one in node.tree())
            )

    go(main())
