"""The view on real sockets: wishes, changes, barriers, services outside, graceful leaves."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from typing import Any

import pytest

import gossamer
from gossamer.net.view import CHANGES_MAX, Change
from gossamer.overlay.interest.config import InterestConfig
from livenet import GENEVA, WEATHER, go, until

pytestmark = pytest.mark.live


def wanting(node: gossamer.Node, topic: str) -> list[str]:
    return [one.node for one in node.view(topic).nodes()]


def name(node: gossamer.Node) -> str:
    text: str = node.status()["node"]
    return text


async def nodes(
    stack: contextlib.AsyncExitStack, count: int, **options: Any
) -> list[gossamer.Node]:
    first = await stack.enter_async_context(gossamer.Node(**options))
    rest = [
        await stack.enter_async_context(gossamer.Node(join=[first.address], **options))
        for _ in range(count - 1)
    ]
    return [first, *rest]


def agree(fabric: list[gossamer.Node]) -> bool:
    return len({node.status()["view"]["digest"] for node in fabric}) == 1 and all(
        node.status()["members"] == len(fabric) for node in fabric
    )


def test_every_node_sees_the_nodes_that_want_a_topic() -> None:
    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:
            a, b, c, d = fabric = await nodes(stack, 4)
            await a.advertise("weather", WEATHER)
            async with (
                b.subscribe("weather", "temp > 30"),
                c.subscribe("weather"),
                c.subscribe("weather", "temp < 0"),
            ):
                await until(
                    lambda: all(
                        sorted(wanting(node, "weather")) == sorted([name(b), name(c)])
                        for node in fabric
                    )
                )
                assert [one.route for one in d.view("weather").nodes()] == ["direct", "direct"]
                assert {one.topic for one in d.view().nodes()} == {"weather"}
            await until(lambda: all(not wanting(node, "weather") for node in fabric))
            assert agree(fabric)

    go(main())


def test_changes_tell_joined_left_and_returned() -> None:
    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:
            a, b = await nodes(stack, 2)
            await a.advertise("weather", WEATHER)
            await a.advertise("news", "title STRING")
            changes = a.view("weather").changes()

            async def after(act: Any) -> Change:
                await act
                return await asyncio.wait_for(anext(changes), 5)

            first = b.subscribe("weather")
            joined = await after(first)
            assert (joined.kind, joined.topic, joined.node) == ("joined", "weather", name(b))
            # This is another topic, so this reader gets nothing.
            async with b.subscribe("news"):
                pass

            # It left and came back between two rounds. Only the leave counter shows it.
            async def again() -> None:
                b._core.unsubscribe(first.number, b._driver.now())
                b._core.subscribe("weather", "", b._driver.now())
                b._driver.wake()

            returned = await after(again())
            assert (returned.kind, returned.node) == ("returned", name(b))
            await b.close()
            left = await asyncio.wait_for(anext(changes), 5)
            assert (left.kind, left.reason) == ("left", "left")

    go(main())


def test_a_publisher_resends_retained_events_to_a_node_that_came_back() -> None:
    """Claim 5, "a need to retrieve data", through the hook.

    The fabric's own retention has no part in this.
    """

    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:
            a, b = await nodes(stack, 2)
            await a.advertise("weather", WEATHER)
            retained = [GENEVA | {"temp": temp} for temp in range(3)]

            async def resend() -> None:
                async for change in a.view("weather").changes():
                    if change.kind == "returned":
                        for event in retained:
                            await a.publish("weather", event)

            first = await b.subscribe("weather")
            await until(lambda: wanting(a, "weather"))
            task = asyncio.ensure_future(resend())
            await asyncio.sleep(0)
            b._core.unsubscribe(first.number, b._driver.now())
            b._subscriptions.pop(first.number)
            async with b.subscribe("weather") as events:
                assert [(await asyncio.wait_for(anext(events), 5))["temp"] for _ in retained] == [
                    0,
                    1,
                    2,
                ]
            task.cancel()

    go(main())


def test_a_barrier_returns_when_every_node_knows() -> None:
    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:
            a, b, *_ = fabric = await nodes(stack, 5, k=2)
            await a.advertise("weather", WEATHER)
            for _ in range(5):
                async with b.subscribe("weather", barrier=True):
                    assert [wanting(node, "weather") for node in fabric] == [[name(b)]] * 5
            async with gossamer.Node() as alone:
                await alone.advertise("weather", WEATHER)
                async with alone.subscribe("weather", barrier=True, timeout=2):
                    assert wanting(alone, "weather") == [name(alone)]

    go(main())


def test_a_barrier_that_nobody_answers_is_an_error_and_is_undone() -> None:
    async def main() -> None:
        deaf = gossamer.NodeConfig(interest=InterestConfig())
        async with gossamer.Node(config=deaf) as a, gossamer.Node(join=[a.address]) as b:
            await a.advertise("weather", WEATHER)
            await until(lambda: agree([a, b]))
            # From here on it hears nothing.
            b._core._handlers = {}
            with pytest.raises(
                gossamer.BarrierError,
                match=rf"within 1 s \(of 2 members, not confirmed yet by {name(b)} and",
            ):
                await a.subscribe("weather", barrier=True, timeout=1)
            assert not wanting(a, "weather")
            assert not a._subscriptions

    go(main())


def test_a_service_outside_decides_the_topics_of_a_node() -> None:
    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:
            a, b = await nodes(stack, 2)
            await a.advertise("weather", WEATHER)
            await a.advertise("news", "title STRING")
            got: list[gossamer.Event] = []
            async with b.source("inventory", got.append) as source:
                await source.replace({"weather": "temp > 30", "news": ""})
                assert source.topics == {"weather": "temp > 30", "news": ""}
                await until(lambda: wanting(a, "weather") == wanting(a, "news") == [name(b)])
                assert (await (await a.publish("weather", GENEVA))).matched == 1
                await until(lambda: len(got) == 1)
                # The user wants the topic, too.
                async with b.subscribe("news"):
                    await source.replace({"weather": "temp > 30"})
                    # The user keeps it.
                    assert wanting(b, "news") == [name(b)]
                await until(lambda: not wanting(a, "news"))
                await source.leave("weather")
                await until(lambda: not wanting(a, "weather"))
                await source.join("weather")

                def fails(event: gossamer.Event) -> None:
                    raise RuntimeError("not ready")

                source._handle = fails
                await a.publish("weather", GENEVA)
                await until(lambda: isinstance(source.problem, RuntimeError))
                # The service's own error does not end the subscription.
                assert wanting(b, "weather") == [name(b)]
            await until(lambda: not wanting(a, "weather"))

    go(main())


def test_names_are_asked_for_where_only_hashes_are_known() -> None:
    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:
            a, b = await nodes(stack, 2)
            b._interest.subscribe("never advertised", b._driver.now())
            b._driver.wake()
            await until(lambda: len(a.view().nodes()) == 1)
            assert a.view().nodes()[0].topic.startswith("#")
            assert await a.view().names()
            assert a.view().nodes()[0].topic == "never advertised"

    go(main())


def test_a_reader_that_lags_is_told() -> None:
    async def main() -> None:
        async with gossamer.Node() as a:
            await a.advertise("weather", WEATHER)
            changes = a.view().changes()
            async with a.subscribe("weather"):
                one = (await anext(changes)).kind
                assert one == "joined"
            kept = list(changes._queue)[:1]
            changes.put(kept * (CHANGES_MAX + 1))
            with pytest.raises(gossamer.ViewLagError, match="read the view again"):
                while True:
                    await anext(changes)

    go(main())


def test_a_graceful_leave_links_before_it_unlinks() -> None:
    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:
            fabric = await nodes(stack, 8, k=2)
            await until(lambda: agree(fabric))
            await until(
                lambda: all(
                    set(node._interest.neighbours) <= set(node._driver.links) for node in fabric
                )
            )
            leaving = fabric.pop()
            neighbours = [node for node in fabric if node.peer in leaving._driver.links]
            await leaving.close()
            # A node that lost a link by it had the new link before.
            for node in neighbours:
                assert set(node._interest.neighbours) <= set(node._driver.links)
            assert all(leaving.peer not in node._interest.view.members for node in fabric)

    go(main())


def test_a_killed_node_leaves_every_view_and_its_interest_with_it() -> None:
    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:
            fabric = await nodes(stack, 5)
            await fabric[0].advertise("weather", WEATHER)
            victim = fabric.pop()
            await victim.subscribe("weather", barrier=True)
            changes = fabric[0].view("weather").changes()
            # It ends without a farewell.
            await victim._release()
            change = await asyncio.wait_for(anext(changes), 10)
            assert (change.kind, change.reason) == ("left", "failed")
            await until(lambda: agree(fabric) and not wanting(fabric[0], "weather"))

    go(main())


def test_a_node_that_restarts_with_its_directory_has_a_greater_life(tmp_path: Any) -> None:
    async def main() -> None:
        async with gossamer.Node() as a:
            lives = []
            for _ in range(3):
                async with gossamer.Node(join=[a.address], data_dir=tmp_path) as b:
                    await until(lambda: agree([a, b]))
                    lives.append(b.status()["life"])
            assert lives == sorted(set(lives))

    go(main())


def test_a_copied_identity_is_reported(tmp_path: Any) -> None:
    async def main() -> None:
        async with (
            gossamer.Node() as a,
            gossamer.Node(join=[a.address], data_dir=tmp_path / "one") as b,
        ):
            await until(lambda: agree([a, b]))
            shutil.copytree(tmp_path / "one", tmp_path / "two")
            async with gossamer.Node(join=[a.address], data_dir=tmp_path / "two") as twin:
                assert twin.peer == b.peer
                await until(lambda: b.status()["conflict"] or twin.status()["conflict"])
                told = b if b.status()["conflict"] else twin
                assert "another process" in told.status()["last_problem"]

    go(main())
