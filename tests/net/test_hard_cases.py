"""Weaknesses that an attacker of our own found once, each on real sockets. They stay closed."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import gossamer
from gossamer.machine import SECOND, Micros
from gossamer.node import wire
from gossamer.overlay.batch import Batch
from gossamer.overlay.flood import FloodConfig
from gossamer.overlay.interest.messages import News
from gossamer.overlay.interest.record import Record
from livenet import GENEVA, HELLO, WEATHER, go, until

pytestmark = pytest.mark.live


async def stranger(
    node: gossamer.Node, *messages: Any
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A stranger that knows how to say hello."""
    host, port = node.address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(HELLO + b"".join(wire.encode(message) for message in messages))
    return reader, writer


def test_no_node_behind_a_leaving_one_is_forgotten() -> None:
    async def main() -> None:
        hub = gossamer.Node()
        await hub.start()
        async with contextlib.AsyncExitStack() as stack:
            leaves = [
                await stack.enter_async_context(gossamer.Node(join=[hub.address])) for _ in range(4)
            ]
            await hub.advertise("weather", WEATHER)
            for leaf in leaves:
                await leaf.subscribe("weather")
            # The leaves may not have found each other yet.
            await hub.close()
            receipts = [await leaves[0].publish("weather", GENEVA) for _ in range(10)]
            assert [(await receipt).matched for receipt in receipts] == [4] * 10

    go(main())


def test_a_slow_but_steady_consumer_is_not_cut_off() -> None:
    config = gossamer.NodeConfig(window=256, batch_events=64, buffer=32, block=0.3)

    async def main() -> None:
        async with (
            gossamer.Node(config=config) as a,
            gossamer.Node(join=[a.address], config=config) as b,
        ):
            await a.advertise("numbers", "n INT")
            async with b.subscribe("numbers") as events:

                async def publish() -> None:
                    for number in range(400):
                        await a.publish("numbers", {"n": number})

                task = asyncio.create_task(publish())
                for number in range(400):
                    assert (await anext(events))["n"] == number
                    # It takes two seconds for all, and is nearly always behind.
                    await asyncio.sleep(0.005)
                await task

    go(main())


def test_the_window_holds_over_many_topics() -> None:
    config = gossamer.NodeConfig(window=8192)

    async def main() -> None:
        async with gossamer.Node(config=config) as a, gossamer.Node(join=[a.address]):
            for number in range(100):
                a._core.advertise(f"topic {number}", "n INT", a._driver.now())
            most = 0
            for number in range(30_000):
                await a.publish(f"topic {number % 100}", {"n": number})
                most = max(most, a._core.outbox.unsettled) if number % 100 == 0 else most
            assert most <= 8192 + 4096 + 100
            assert await a.drain() == 0

    go(main())


def test_a_member_that_does_not_report_is_cut_off() -> None:
    config = gossamer.NodeConfig(flood=FloodConfig(patience=Micros(SECOND)))

    async def main() -> None:
        async with gossamer.Node(config=config) as a:
            await a.advertise("weather", WEATHER)
            await a.subscribe("weather", route="flood")
            _, writer = await stranger(a)
            await until(lambda: a.status()["links"])
            receipt = await a.publish("weather", GENEVA)
            assert (await receipt).matched == 1
            await until(lambda: a.status()["counters"].get("closed: does not report"))
            writer.close()

    go(main())


def test_a_member_that_breaks_the_rules_and_does_not_read_holds_nothing() -> None:
    async def main() -> None:
        async with gossamer.Node() as a:
            await a.advertise("weather", WEATHER)
            # The answers pile up unread.
            _, writer = await stranger(a, *[wire.Ping()] * 50_000)
            await until(lambda: a.status()["links"])
            writer.write(b"\x00\x00\x00\x01\xc1")
            await until(lambda: a.status()["counters"].get("closed: garbage"))
            assert not a.status()["links"]
            assert (await (await a.publish("weather", GENEVA))).matched == 0
            await until(lambda: not a._driver.connections)
            writer.close()

    go(main())


def test_addresses_that_are_none_are_counted_and_not_passed_on() -> None:
    async def main() -> None:
        async with gossamer.Node() as a:
            failures: list[Any] = []
            asyncio.get_running_loop().set_exception_handler(
                lambda loop, context: failures.append(context)
            )
            bad = ("nonsense", "a" * 70 + ".x:80", "..:1", ":", "x:99999", "x:٣", "\x00:1")
            members = tuple(
                Record(2**63 + number, 256, 1, address) for number, address in enumerate(bad)
            )
            _, writer = await stranger(a, News(records=members))
            await until(lambda: a.status()["counters"].get("bad_addresses", 0) >= 4)
            await until(lambda: not a._dialler._dialling)
            writer.close()
            gc.collect()
            assert not failures

    go(main())


def test_a_batch_that_changes_its_size_is_rejected() -> None:
    async def main() -> None:
        async with gossamer.Node() as a:
            await a.advertise("numbers", "n INT")
            async with a.subscribe("numbers", route="flood") as events:
                first = Batch("numbers", 77, 1, 1, 2, 1, 0, 1, b"\x92\x91\x01\x91\x01")
                second = Batch("numbers", 77, 1, 1, 1, 1, 1, 1, b"\x91\x91\x01")
                _, writer = await stranger(a, first, second)
                await until(lambda: a.status()["counters"].get("rejected"))
                assert [(await anext(events))["n"] for _ in range(2)] == [1, 1]
                writer.close()

    go(main())


def test_a_program_that_waits_for_a_receipt_is_told_when_the_node_closes() -> None:
    async def main() -> None:
        async with gossamer.Node() as far:
            node = gossamer.Node(join=[far.address])
            await node.start()
            await node.advertise("weather", WEATHER)
            await far.subscribe("weather")
            node._driver.links.clear()
            receipt = await node.publish("weather", GENEVA)
            waiting = asyncio.ensure_future(receipt)  # type: ignore[arg-type]
            await asyncio.sleep(0)
            await node.close(drain=0.0)
            with pytest.raises(gossamer.NodeError, match="closed"):
                await waiting
            with pytest.raises(gossamer.NodeError, match="closed"):
                await receipt

    go(main())


def test_a_data_directory_that_fails_is_told_and_let_go(tmp_path: Path) -> None:
    async def main() -> None:
        node = gossamer.Node(data_dir=tmp_path)
        await node.start()
        await node.advertise("weather", WEATHER)
        assert node._disk is not None

        def full(stores: object) -> None:
            raise sqlite3.OperationalError("database or disk is full")

        node._disk._commit = full  # type: ignore[method-assign, assignment]
        with pytest.raises(gossamer.NodeError, match=r"disk is full .*; free some space"):
            await node.publish("weather", GENEVA)
        with pytest.raises(gossamer.NodeError, match="disk is full"):
            await node.publish("weather", GENEVA)
        await node.close(drain=0.0)
        async with gossamer.Node(data_dir=tmp_path):
            # The lock is free again.
            pass

    go(main())


def test_a_trace_that_cannot_be_written_does_not_stop_the_node(tmp_path: Path) -> None:
    async def main() -> None:
        async with gossamer.Node(trace_dir=tmp_path) as a, gossamer.Node(join=[a.address]) as b:
            a._trace._file.close()  # type: ignore[union-attr]
            full = open("/dev/full", "wb", buffering=0)  # noqa: SIM115, PTH123
            a._trace._file = a._driver._writer._file = full
            await a.advertise("weather", WEATHER)
            async with b.subscribe("weather") as events:
                assert (await (await a.publish("weather", GENEVA))).matched == 1
                await anext(events)
            assert a.status()["counters"]["traces_stopped"] == 1
            assert "cannot be written" in a.status()["last_problem"]

    go(main())


def test_cancelled_starts_and_closes_let_go_of_the_data_directory(tmp_path: Path) -> None:
    async def main() -> None:
        for turns in range(12):
            node = gossamer.Node(data_dir=tmp_path)
            starting = asyncio.ensure_future(node.start())
            for _ in range(turns):
                await asyncio.sleep(0)
            starting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await starting
            closing = asyncio.ensure_future(node.close(drain=0.0))
            for _ in range(turns):
                await asyncio.sleep(0)
            closing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await closing
            await node.close()

    go(main())


def test_nothing_is_accepted_once_the_node_has_begun_to_leave() -> None:
    async def main() -> None:
        node = gossamer.Node()
        await node.start()
        await node.advertise("weather", WEATHER)
        closing = asyncio.ensure_future(node.close())
        accepted = 0
        with pytest.raises(gossamer.NodeError, match="closed"):
            while True:
                receipt = await node.publish("weather", GENEVA)
                accepted += 1
                assert (await receipt).matched == 0
                await asyncio.sleep(0)
        await closing

    go(main())


def test_several_drains_end_together() -> None:
    async def main() -> None:
        async with gossamer.Node() as a, gossamer.Node(join=[a.address]):
            await a.advertise("weather", WEATHER)
            await a.publish("weather", GENEVA)
            assert await asyncio.gather(a.drain(5), a.drain(5), a.drain(5)) == [0, 0, 0]

    go(asyncio.wait_for(main(), 4))


def test_an_address_by_another_name_makes_no_second_link() -> None:
    async def main() -> None:
        async with gossamer.Node() as a:
            port = a.address.split(":")[1]
            async with gossamer.Node(
                join=[f"127.0.0.1:{port}", f"localhost:{port}", f"LOCALHOST:{port}"]
            ) as b:
                await until(
                    lambda: all(
                        f"{name}:{port}" in b._dialler._names for name in ("localhost", "LOCALHOST")
                    )
                )
                settled = b.status()["counters"].get("closed: replaced", 0)
                # It is longer than the time for which the join addresses are left alone.
                await asyncio.sleep(3.5)
                assert b.status()["counters"].get("closed: replaced", 0) == settled

    go(main())
