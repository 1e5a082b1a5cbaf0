"""Nodes that stay for a moment, and addresses that outlive them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import gossamer
from gossamer.machine import Dial, LinkState, Peer
from gossamer.net.connection import Connection
from gossamer.net.leaving import GOODBYE_SECONDS
from gossamer.net.service import serve
from livenet import GENEVA, SECONDS, WEATHER, go, until

pytestmark = pytest.mark.live


def test_a_node_that_left_after_a_moment_is_not_declared_dead() -> None:
    """Its neighbour has not said yet whether it wants the link. The goodbye goes over it all the
    same.
    """

    async def main() -> None:
        async with gossamer.Node() as seed, gossamer.Node(join=[seed.address]) as other:
            await seed.advertise("weather", WEATHER)
            async with other.subscribe("weather"):
                for _ in range(12):
                    async with gossamer.Node(join=[seed.address]) as brief:
                        assert (await (await brief.publish("weather", GENEVA))).matched == 1
                for node in (seed, other):
                    tombs = node._interest.view.tombs
                    await until(lambda tombs=tombs: len(tombs) == 12)
                    assert all(tomb.gone.left for tomb in tombs.values())

    go(main())


async def _raises(join: list[str]) -> None:
    with pytest.raises(ZeroDivisionError):
        async with gossamer.Node(join=join):
            raise ZeroDivisionError


async def _is_cancelled(join: list[str]) -> None:
    inside = asyncio.Event()

    async def stay() -> None:
        async with gossamer.Node(join=join):
            inside.set()
            await asyncio.sleep(SECONDS)

    task = asyncio.create_task(stay())
    await inside.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _serves_a_topic_that_is_another_one_already(join: list[str]) -> None:
    with pytest.raises(gossamer.TopicError, match="already advertised"):
        await serve(
            gossamer.Node(join=join),
            asyncio.Event(),
            topics={"weather": ("other INT", "")},
            drain=1.0,
        )


@pytest.mark.parametrize(
    "ends", [_raises, _is_cancelled, _serves_a_topic_that_is_another_one_already]
)
def test_a_node_that_ends_with_an_error_says_goodbye_all_the_same(
    ends: Callable[[list[str]], Awaitable[None]],
) -> None:
    """Otherwise others would declare it dead only after seconds.

    Subscriptions that they make meanwhile would wait for it.
    """

    async def main() -> None:
        async with gossamer.Node() as seed, gossamer.Node(join=[seed.address]) as other:
            await seed.advertise("weather", WEATHER)
            await other.topic("weather")
            before = asyncio.get_running_loop().time()
            for _ in range(3):
                await ends([seed.address])
            assert asyncio.get_running_loop().time() - before < SECONDS / 4
            for node in (seed, other):
                tombs = node._interest.view.tombs
                await until(lambda tombs=tombs: len(tombs) == 3)
                assert all(tomb.gone.left for tomb in tombs.values())

    go(main())


def test_closing_at_once_during_a_close_waits_for_nothing() -> None:
    async def main() -> None:
        async with gossamer.Node() as seed:
            node = gossamer.Node(join=[seed.address])
            await node.start()
            closing = asyncio.create_task(node.close(drain=0.0))
            await asyncio.sleep(0)
            assert node._closing is not None
            unheard: Any = type("Unheard", (type(node._interest),), {"may_go": False})
            node._interest.__class__ = unheard
            before = asyncio.get_running_loop().time()
            await node.close(drain=0.0)
            assert asyncio.get_running_loop().time() - before < GOODBYE_SECONDS / 2
            await closing

    go(main())


@pytest.mark.parametrize("route", ["direct", "skiplist", "flood"])
def test_a_node_that_takes_an_event_and_leaves_at_once_is_counted(
    route: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The news that it has left reaches the publisher by others, before its report.

    The publisher reads the report late.
    """
    reads, slow = Connection.received, set[int]()

    def late(self: Connection, data: memoryview | int) -> None:
        if self.driver.peer in slow and self.peer == taker:
            # This is a large message.
            assert not isinstance(data, int)
            self.loop.call_later(0.05, reads, self, memoryview(bytes(data)))
        else:
            reads(self, data)

    taker = 0
    monkeypatch.setattr(Connection, "received", late)

    async def main() -> None:
        nonlocal taker
        async with gossamer.Node() as seed, gossamer.Node(join=[seed.address]) as publisher:
            await seed.advertise("weather", WEATHER)
            async with gossamer.Node(join=[seed.address]) as node:
                taker = node._driver.peer
                async with node.subscribe("weather", "temp > 30", route=route) as events:
                    await until(lambda: taker in publisher._driver.links)
                    slow.add(publisher._driver.peer)
                    receipt = await publisher.publish("weather", GENEVA)
                    assert (await anext(events)).values == GENEVA
            assert (await receipt).matched == 1

    go(main())


def test_an_address_that_is_somebody_elses_by_now_does_not_join_two_fabrics() -> None:
    """Ports are used again.

    A fabric that looks for a lost member finds a stranger at its address, and leaves it alone.
    """

    async def main() -> None:
        async with gossamer.Node() as one, gossamer.Node() as other:
            lost = Peer(one._driver.peer ^ 1)
            # The stranger has seen them.
            seen: list[LinkState] = []
            changed = other._driver.changed

            def noted(peer: Peer, state: LinkState) -> None:
                seen.append(state)
                changed(peer, state)

            other._driver.changed = noted
            one._driver.perform([Dial(other.address, lost)])
            await until(lambda: one._driver.counters["closed: somebody else"])
            await until(lambda: not other._driver.links and not other._driver.connections)
            assert not one._driver.links
            assert not seen
            assert len(one._interest.view.members) == len(other._interest.view.members) == 1
            one._driver.perform([Dial(other.address, Peer(other._driver.peer))])
            await until(
                lambda: len(one._interest.view.members) == len(other._interest.view.members) == 2
            )
            # A link that is up stays as it is.
            one._driver.perform([Dial(other.address, lost)])
            await until(lambda: one._driver.counters["closed: somebody else"] == 2)
            assert other._driver.peer in one._driver.links
            assert seen == [LinkState.UP]

    go(main())


def test_an_address_to_join_is_good_whatever_node_is_there() -> None:
    async def main() -> None:
        async with (
            gossamer.Node() as other,
            gossamer.Node(join=[other.address], join_required=False) as one,
        ):
            await until(lambda: one._driver.links)
            one._driver.links[other._driver.peer].close("unlinked")
            await until(lambda: not one._driver.links)
            one._dialler._peers.clear()
            one._dialler.dial(other.address, Peer(7))
            await until(lambda: one._driver.links)
            assert not one._driver.counters["closed: somebody else"]

    go(main())
