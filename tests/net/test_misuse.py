"""A program's mistake is an error that says what to write instead.

No call waits for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

import gossamer
from gossamer.net.arguments import start_of
from livenet import GENEVA, WEATHER, go, until


async def _first(events: AsyncIterator[Any]) -> Any:
    async for event in events:
        return event
    return None


@pytest.mark.live
@pytest.mark.parametrize(
    "misuse",
    [
        anext,
        _first,
        lambda events: _first(events.lists()),
        lambda events: _first(events.batches()),
        lambda events: events.ack(1),
        lambda events: events.move("flood"),
    ],
)
def test_a_subscription_that_nobody_began_says_so(
    misuse: Callable[[gossamer.Subscription], Awaitable[Any]],
) -> None:
    async def main() -> None:
        async with gossamer.Node() as node:
            await node.advertise("weather", WEATHER)
            events = node.subscribe("weather")
            with pytest.raises(
                gossamer.NodeError, match=r"'weather' has not begun: use 'async with node.subscribe"
            ):
                await asyncio.wait_for(misuse(events), 5)
            # The mistake spoils nothing.
            async with events:
                await node.publish("weather", GENEVA)
                assert (await anext(events)).values == GENEVA
            with pytest.raises(StopAsyncIteration):
                await anext(events)

    go(main())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timeout": 0}, "timeout is 0; it must be a number of seconds from 0.001 to"),
        ({"timeout": -1}, "timeout is -1; it must be a number of seconds"),
        ({"timeout": float("nan")}, "timeout is nan; it must be a number of seconds"),
        ({"timeout": "5"}, "timeout is '5'; it must be a number of seconds"),
        ({"timeout": None}, "timeout is None; it must be a number of seconds"),
        ({"slow": "stop"}, "unknown slow='stop'; known: block, drop_oldest"),
        ({"barrier": 1}, "barrier is 1; it must be True or False"),
        ({"ordered": "yes"}, "ordered is 'yes'; it must be True or False"),
        ({"gaps": None}, "gaps is None; it must be True or False"),
        ({"group": 3}, "group is 3; it must be text"),
        ({"name": None}, "name is None; it must be text"),
        ({"source": b"x"}, "source is b'x'; it must be text"),
        ({"filter": None}, "filter is None; it must be text"),
    ],
)
def test_subscribe_refuses_bad_options_and_names_the_good_ones(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(gossamer.NodeError) as told:
        gossamer.Node().subscribe("weather", **options)
    assert message in str(told.value)


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), "5", None, True])
def test_a_node_refuses_times_that_are_none(value: Any) -> None:
    for option in ("join_timeout", "spin"):
        with pytest.raises(gossamer.NodeError, match=f"{option} is .*; it must be a number of sec"):
            gossamer.Node(**{option: value})
    for limit in ("window", "shut_out"):
        with pytest.raises(ValueError, match=f"{limit} is .*; it must be a number of seconds"):
            gossamer.PeerLimits(**{limit: value})

    async def main() -> None:
        async with gossamer.Node() as node:
            for asked in (node.drain, node.close):
                with pytest.raises(gossamer.NodeError, match="it must be a number of seconds"):
                    await asked(value)
            with pytest.raises(gossamer.NodeError, match="it must be a number of seconds"):
                await node.topic("weather", value)

    go(main())


@pytest.mark.parametrize(
    "command",
    [
        lambda node: node.publish("weather", GENEVA),
        lambda node: node.publish_batch("weather", [GENEVA]),
        lambda node: node.advertise("weather", WEATHER),
        lambda node: node.subscribe("weather"),
        lambda node: node.topic("weather"),
        lambda node: node.lookup("weather"),
        lambda node: node.drain(),
        lambda node: node.forget("x"),
        lambda node: node.status(),
        lambda node: node.tree(),
        lambda node: node.check_filter("weather", ""),
        lambda node: node.view("weather").nodes(),
        lambda node: node.peer,
    ],
)
def test_a_command_before_the_start_says_how_to_start(
    command: Callable[[gossamer.Node], Any],
) -> None:
    async def main() -> None:
        node = gossamer.Node()
        with pytest.raises(
            gossamer.NodeError, match=r"not started: use 'async with gossamer\.Node"
        ):
            await command(node)
        # A node that was not started can be closed without an error.
        await node.close()
        assert not hasattr(node, "peer")
        assert not hasattr(node, "nonsense")

    go(main())


@pytest.mark.live
def test_names_that_are_not_known_are_told_with_those_that_are() -> None:
    async def main() -> None:
        async with gossamer.Node() as node:
            with pytest.raises(
                gossamer.RouteError, match="unknown route 'foo'; known: auto, direct, flood"
            ):
                node.subscribe("weather", route="foo")
            with pytest.raises(
                gossamer.NodeError, match="unknown slow='foo'; known: block, drop_oldest"
            ):
                node.subscribe("weather", slow="foo")
            await node.advertise("weather", WEATHER)
            async with node.subscribe("weather") as events:
                with pytest.raises(
                    gossamer.RouteError, match="unknown route 'bogus'; known: auto, direct, flood"
                ):
                    await events.move("bogus")
                await events.move("flood")
                await until(lambda: events.route == "flood")

    go(main())


@pytest.mark.parametrize(
    "since", [5, 5.0, True, b"10m", date(2026, 5, 1), timedelta(-1), "yesterday"]
)
def test_an_unreadable_past_names_the_readable_forms(since: Any) -> None:
    with pytest.raises(
        gossamer.RetentionError, match=r"cannot read since=.*; write 'beginning', a duration"
    ):
        gossamer.Node().subscribe("weather", since=since)


def test_a_past_is_a_text_a_duration_or_a_time() -> None:
    now = datetime.now(UTC).timestamp() * 1e6
    for same in ("10m", timedelta(minutes=10), datetime.now(UTC) - timedelta(minutes=10)):
        found = start_of(same)
        assert found is not None
        assert abs(found - (now - 600e6)) < 5e6
    # It is before there were clocks, and so means everything.
    assert start_of(timedelta(days=100_000)) == 1
    assert start_of("beginning") == 0
    assert start_of(None) is None
