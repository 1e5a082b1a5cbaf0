"""Draining: no new work, time for receipts, a polite leave, and an exit code for the outcome."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import gossamer
from gossamer.net.service import DRAINED, UNDELIVERED, serve
from livenet import go, take, until

pytestmark = pytest.mark.live
CONFIG = gossamer.NodeConfig(window=64, batch_events=8, buffer=4)
TOPICS = {"numbers": ("n INT", "")}


@contextlib.asynccontextmanager
async def served(
    node: gossamer.Node, drain: float, tmp_path: Path
) -> AsyncIterator[tuple[asyncio.Event, asyncio.Task[int]]]:
    stop, started = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(
        serve(node, stop, topics=TOPICS, drain=drain, started=lambda metrics: started.set())
    )
    await started.wait()
    try:
        yield stop, task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture(autouse=True)
def runtime(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))


def test_a_drain_takes_no_new_work_and_waits_for_accepted_work(tmp_path: Path) -> None:
    async def main() -> None:
        async with gossamer.Node(config=CONFIG) as far:
            node = gossamer.Node(join=[far.address], config=CONFIG)
            async with served(node, 15.0, tmp_path) as (stop, task):
                events = await far.subscribe("numbers")
                # They are far more than its buffer holds.
                receipts = [await node.publish("numbers", {"n": n}) for n in range(40)]
                # So the receipts wait for the consumer.
                await until(lambda: far._core.blocked())
                waiting = asyncio.create_task(fill(node))
                stop.set()
                with pytest.raises(gossamer.NodeError, match="closed"):
                    # A publisher that waited for room in the window hears of it at once, too.
                    await waiting
                for refused in (
                    node.publish("numbers", {"n": -1}),
                    node.advertise("more", "n INT"),
                    begin(node),
                ):
                    with pytest.raises(gossamer.NodeError, match="closed"):
                        await refused
                assert not task.done()
                assert not all(receipt.done for receipt in receipts)
                assert [event["n"] for event in await take(events, 40)] == list(range(40))
                rest = asyncio.create_task(take(events, 1000))
                assert await task == DRAINED
                rest.cancel()
                assert all(receipt.done and receipt.matched == 1 for receipt in receipts)
            await until(lambda: far.status()["members"] == 1)
            # It said farewell.
            assert far.status()["interest"].get("declared dead", 0) == 0

    go(main())


async def fill(node: gossamer.Node) -> None:
    while True:
        await node.publish("numbers", {"n": -1})
        if not node._core.window_is_open:
            await node.publish("numbers", {"n": -2})


async def begin(node: gossamer.Node) -> None:
    await node.subscribe("numbers")


def test_the_exit_code_says_whether_events_are_lost_with_a_node(tmp_path: Path) -> None:
    async def main() -> None:
        async with gossamer.Node() as far:
            node = gossamer.Node(join=[far.address])
            async with served(node, 0.2, tmp_path) as (stop, task):
                await far.subscribe("numbers")
                # From here on nothing leaves it.
                node._driver.links.clear()
                await node.publish("numbers", {"n": 1})
                stop.set()
                assert await task == UNDELIVERED

    go(main())


def test_events_in_a_data_directory_are_not_lost(tmp_path: Path) -> None:
    async def main() -> None:
        async with gossamer.Node() as far:
            node = gossamer.Node(join=[far.address], data_dir=tmp_path / "data")
            async with served(node, 0.2, tmp_path) as (stop, task):
                await far.subscribe("numbers")
                node._driver.links.clear()
                await node.publish("numbers", {"n": 1})
                stop.set()
                assert await task == DRAINED
            second = gossamer.Node(join=[far.address], data_dir=tmp_path / "data")
            async with far.subscribe("numbers") as events, second as again:
                assert (await anext(events))["n"] == 1
                assert await again.drain(15.0) == 0

    go(main())


def test_a_bad_topic_stops_the_start_and_leaves_nothing_behind(tmp_path: Path) -> None:
    async def main() -> None:
        async with gossamer.Node() as far:
            await far.advertise("numbers", "n STRING")
            node = gossamer.Node(join=[far.address])
            with pytest.raises(gossamer.TopicError, match="already advertised"):
                await serve(node, asyncio.Event(), topics=TOPICS, drain=1.0)
            await until(lambda: not far._driver.links)
            assert list((tmp_path / "run").rglob("*.sock")) == []

    go(main())


@pytest.mark.parametrize("is_open", [True, False])
def test_the_log_warns_of_everything_that_is_open_to_everybody(
    is_open: bool, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("prometheus_client", reason="the extra 'metrics' is not installed")
    host = "0.0.0.0" if is_open else "127.0.0.1"

    async def main() -> None:
        stop, started = asyncio.Event(), asyncio.Event()
        node = gossamer.Node(listen=f"{host}:0", insecure=is_open)
        served = serve(
            node, stop, topics={}, drain=0.0, metrics_address=f"{host}:0",
            started=lambda metrics: started.set(),
        )  # fmt: skip
        task = asyncio.create_task(served)
        await until(lambda: started.is_set() or task.done())
        stop.set()
        assert await task == DRAINED

    with caplog.at_level(logging.WARNING, "gossamer"):
        go(main())
    said = " ".join(record.getMessage() for record in caplog.records)
    assert ("has no keys and listens beyond loopback" in said) == is_open
    assert ("metrics are served beyond loopback" in said) == is_open
