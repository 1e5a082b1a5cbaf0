"""Real sockets on loopback, several nodes in one process."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable
from pathlib import Path

import msgspec
import pytest

import gossamer
from gossamer import trace
from gossamer.net.dialler import AddressError
from gossamer.net.disk import DataDirectoryError
from gossamer.node import wire
from gossamer.overlay.batch import Batch
from livenet import GENEVA, HELLO, SECONDS, WEATHER, go, take, until

pytestmark = pytest.mark.live


def test_the_example_of_the_design() -> None:
    async def main() -> None:
        async with (
            gossamer.Node(listen="127.0.0.1:0") as seed,
            gossamer.Node(join=[seed.address]) as node,
        ):
            await seed.advertise("weather", WEATHER)
            async with node.subscribe("weather", "country = 'CH' AND temp > 30") as events:
                receipt = await seed.publish("weather", GENEVA)
                done = await receipt
                assert done.matched == 1
                assert (await (await seed.publish("weather", {**GENEVA, "temp": 30}))).matched == 0
                event = await anext(events)
                assert dict(event) == GENEVA
                assert (
                    event.id
                    == (seed.peer, 1, 1)
                    == (done.publisher, done.incarnation, done.sequence)
                )
            assert (await (await seed.publish("weather", GENEVA))).matched == 0

    go(main())


def test_on_the_standard_loop_too() -> None:
    async def main() -> None:
        async with gossamer.Node() as a, gossamer.Node(join=[a.address]) as b:
            await b.advertise("weather", WEATHER)
            async with a.subscribe("weather") as events:
                await b.publish("weather", GENEVA)
                assert (await anext(events))["city"] == "Geneva"

    asyncio.run(asyncio.wait_for(main(), SECONDS))


def test_a_line_of_nodes_relays_and_everybody_is_counted() -> None:
    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:
            nodes = [await stack.enter_async_context(gossamer.Node(k=1))]
            for _ in range(4):
                nodes.append(
                    await stack.enter_async_context(gossamer.Node(join=[nodes[-1].address], k=1))
                )
            await nodes[0].advertise("weather", WEATHER)
            subscriptions = [await node.subscribe("weather", "temp >= 0") for node in nodes]
            receipts = [
                await nodes[4].publish("weather", {**GENEVA, "temp": temp})
                for temp in range(-50, 50)
            ]
            assert [(await receipt).matched for receipt in receipts] == [0] * 50 + [5] * 50
            for events in subscriptions:
                assert [event["temp"] for event in await take(events, 50)] == list(range(50))

    go(main())


def test_nodes_learn_of_each_other_and_survive_the_seed() -> None:
    async def main() -> None:
        seed = gossamer.Node()
        await seed.start()
        async with gossamer.Node(join=[seed.address]) as a, gossamer.Node(join=[seed.address]) as b:
            await until(lambda: len(a.status()["links"]) == 2 and len(b.status()["links"]) == 2)
            await seed.advertise("weather", WEATHER)
            await seed.close()
            async with b.subscribe("weather") as events:
                receipt = await a.publish("weather", GENEVA)
                assert (await receipt).matched == 1
                await anext(events)

    go(main())


def test_more_events_than_the_window_and_the_buffer_are_all_delivered_in_order() -> None:
    config = gossamer.NodeConfig(window=512, batch_events=64, buffer=100)

    async def main() -> None:
        async with (
            gossamer.Node(config=config) as a,
            gossamer.Node(join=[a.address], config=config) as b,
        ):
            await a.advertise("numbers", "n BIGINT")
            async with b.subscribe("numbers", "n >= 0") as events:

                async def publish() -> None:
                    for number in range(5000):
                        await a.publish("numbers", {"n": number})

                task = asyncio.create_task(publish())
                assert [event["n"] for event in await take(events, 5000)] == list(range(5000))
                await task
                assert await a.drain() == 0

    go(main())


def test_a_subscriber_that_takes_nothing_is_cut_off_and_the_publisher_goes_on() -> None:
    config = gossamer.NodeConfig(window=64, batch_events=8, buffer=16, block=0.2)

    async def main() -> None:
        async with (
            gossamer.Node(config=config) as a,
            gossamer.Node(join=[a.address], config=config) as b,
        ):
            await a.advertise("numbers", "n BIGINT")
            slow = await b.subscribe("numbers")
            for number in range(500):
                await a.publish("numbers", {"n": number})
            with pytest.raises(gossamer.SlowSubscriberError, match="slow='drop_oldest'"):
                while True:
                    await anext(slow)
            assert b.status()["counters"]["dropped"] > 0

    go(main())


def test_drop_oldest_keeps_the_newest_and_counts() -> None:
    config = gossamer.NodeConfig(buffer=10)

    async def main() -> None:
        async with gossamer.Node() as a, gossamer.Node(join=[a.address], config=config) as b:
            await a.advertise("numbers", "n BIGINT")
            async with b.subscribe("numbers", slow="drop_oldest") as events:
                for number in range(100):
                    await (await a.publish("numbers", {"n": number}))
                assert [event["n"] for event in await take(events, 10)] == list(range(90, 100))
                assert events.dropped == 90

    go(main())


def test_accepted_events_survive_a_crash_of_the_publisher(tmp_path: Path) -> None:
    async def main() -> None:
        async with gossamer.Node() as far:
            first = gossamer.Node(data_dir=tmp_path, join=[far.address])
            await first.start()
            await first.advertise("weather", WEATHER)
            async with far.subscribe("weather") as events:
                # From here on nothing leaves it.
                first._driver.links.clear()
                # But this event is on disk.
                receipt = await first.publish("weather", GENEVA)
                assert not receipt.done
                await first.close(drain=0.0)
                async with gossamer.Node(data_dir=tmp_path, join=[far.address]) as second:
                    assert (second.peer, second.incarnation) == (first.peer, 2)
                    event = await anext(events)
                    # A replayed event keeps its first id.
                    assert event.id == (first.peer, 1, 1)
                    assert await second.drain(15.0) == 0

    go(main())


def test_one_process_a_data_directory(tmp_path: Path) -> None:
    async def main() -> None:
        async with gossamer.Node(data_dir=tmp_path):
            with pytest.raises(DataDirectoryError, match="is another node using it"):
                await gossamer.Node(data_dir=tmp_path).start()

    go(main())


def test_clear_errors(tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(AddressError, match="write host:port"):
            gossamer.Node(listen="7400")
        with pytest.raises(AddressError, match="has port 0"):
            gossamer.Node(public_address="node.example:0")
        with pytest.raises(gossamer.NodeError, match="insecure=True"):
            gossamer.Node(listen="0.0.0.0:0")
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
            there = f"127.0.0.1:{port}"
            no_answer = (
                rf"no node answered at {there} within 0.3 s "
                rf"\(cannot reach {there}: Connection refused\); is one"
            )
            with pytest.raises(gossamer.JoinError, match=no_answer):
                await gossamer.Node(join=[f"127.0.0.1:{port}"], join_timeout=0.3).start()
            taken.listen()
            with pytest.raises(gossamer.NodeError, match="cannot listen on"):
                await gossamer.Node(listen=f"127.0.0.1:{port}").start()
        async with gossamer.Node() as node:
            with pytest.raises(gossamer.TopicError, match=r"not advertised within 0\.05 s"):
                await node.subscribe("nothing", timeout=0.05)
            await node.advertise("weather", WEATHER)
            with pytest.raises(gossamer.FilterError, match="temperature"):
                await node.subscribe("weather", "temperature > 3")
            with pytest.raises(gossamer.EventError):
                await node.publish("weather", {"temp": "hot"})
        with pytest.raises(gossamer.NodeError, match="closed"):
            await node.publish("weather", GENEVA)

    go(main())


def test_closing_with_events_that_nobody_could_get_is_an_error() -> None:
    async def main() -> None:
        async with gossamer.Node() as far:
            node = gossamer.Node(join=[far.address])
            await node.start()
            await node.advertise("weather", WEATHER)
            await far.subscribe("weather")
            node._driver.links.clear()
            await node.publish("weather", GENEVA)
            with pytest.raises(
                gossamer.UndeliveredError, match="1 accepted events without a receipt"
            ):
                await node.close(drain=0.1)

    go(main())


def test_cancelled_consumers_and_receipts_leave_the_node_whole() -> None:
    async def main() -> None:
        async with gossamer.Node() as a, gossamer.Node(join=[a.address]) as b:
            await a.advertise("weather", WEATHER)
            async with b.subscribe("weather") as events:
                waiting = asyncio.create_task(anext(events))  # type: ignore[arg-type]
                await asyncio.sleep(0)
                waiting.cancel()
                await asyncio.gather(waiting, return_exceptions=True)
                receipt = await a.publish("weather", GENEVA)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(receipt, 0)
                assert (await receipt).matched == 1
                assert (await anext(events))["temp"] == 31

    go(main())


def test_the_trace_file_can_be_read_back(tmp_path: Path) -> None:
    async def main() -> int:
        async with (
            gossamer.Node(trace_dir=tmp_path) as a,
            gossamer.Node(join=[a.address], trace_dir=tmp_path) as b,
        ):
            await a.advertise("weather", WEATHER)
            async with b.subscribe("weather", "temp > 30"):
                await (await a.publish("weather", GENEVA))
            return a.peer

    peer = go(main())
    records = {
        path.name.split("-")[1]: [s.record for s in trace.read(path)]
        for path in tmp_path.glob("*.jsonl")
    }
    mine = records.pop(trace.hex_peer(peer))
    [theirs] = records.values()
    assert [r for r in mine if isinstance(r, trace.Published)] == [
        trace.Published("weather", 1, 1, GENEVA)
    ]
    assert [r for r in mine if isinstance(r, trace.Completed)] == [trace.Completed(1, 1, 1)]
    kinds = [
        type(r)
        for r in theirs
        if isinstance(r, (trace.Subscribed, trace.Delivered, trace.Unsubscribed))
    ]
    assert kinds == [trace.Subscribed, trace.Delivered, trace.Unsubscribed]


# Bad peers.


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "oversized"),
        (HELLO + struct.pack(">I", wire.FRAME_MAX + 1), "oversized"),
        (HELLO + b"\x00\x00\x00\x02\xc1\xc1", "garbage"),
        (HELLO + b"\x00\x00\x00\x03\x92\x63\x01", "wrong shape"),
        (wire.encode(wire.Hello(wire.MAGIC, 7, 9, 77, 1, "")), "wrong version"),
        (wire.encode(wire.Hello("something", 1, 1, 77, 1, "")), "garbage"),
        (wire.encode(wire.Ping()), "no hello"),
        (HELLO + HELLO, "second hello"),
        (HELLO + wire.encode(wire.Ping())[:3], "truncated"),
    ],
)
def test_bad_frames_close_that_connection_with_a_counted_reason_and_harm_nothing_else(
    data: bytes, reason: str
) -> None:
    async def main() -> None:
        async with gossamer.Node() as a, gossamer.Node(join=[a.address]) as b:
            await a.advertise("weather", WEATHER)
            async with b.subscribe("weather") as events:
                host, port = a.address.split(":")
                reader, writer = await asyncio.open_connection(host, int(port))
                writer.write(data)
                writer.write_eof()
                # It reads until the node has closed the connection.
                while await reader.read(1 << 16):
                    pass
                writer.close()
                await until(lambda: a.status()["counters"].get(f"closed: {reason}"))
                await a.publish("weather", GENEVA)
                await anext(events)
                assert len(a.status()["links"]) == 1

    go(main())


def test_a_peer_that_sends_nonsense_in_good_frames_is_counted_and_survived() -> None:
    async def main() -> None:
        async with gossamer.Node() as a:
            await a.advertise("weather", WEATHER)
            async with a.subscribe("weather", route="flood"):
                host, port = a.address.split(":")
                _, writer = await asyncio.open_connection(host, int(port))
                writer.write(HELLO)
                for bad in (
                    Batch("weather", 77, 1, 5, 1, 9, 0, 1, b""),
                    Batch("weather", 77, 1, 10, 1, 9, 0, 1, b"\xc1"),
                    Batch(
                        "weather",
                        77,
                        1,
                        11,
                        2,
                        9,
                        0,
                        1,
                        msgspec.msgpack.encode([["CH", "Geneva", "hot"], []]),
                    ),
                ):
                    writer.write(wire.encode(bad))
                await until(lambda: a.status()["counters"].get("rejected", 0) == 3)
                writer.close()
                assert (await (await a.publish("weather", GENEVA))).matched == 1

    go(main())


def test_a_peer_that_never_says_hello_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossamer.net.connection.HELLO_SECONDS", 0.1)

    async def main() -> None:
        async with gossamer.Node() as a:
            host, port = a.address.split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            while await reader.read(1 << 16):
                pass
            writer.close()
            await until(lambda: a.status()["counters"].get("closed: no hello"))

    go(main())


def test_a_silent_link_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossamer.net.connection.PING_SECONDS", 0.05)
    monkeypatch.setattr("gossamer.net.connection.HELLO_SECONDS", 0.05)
    monkeypatch.setattr("gossamer.net.connection.SILENCE_SECONDS", 0.2)

    async def main() -> None:
        async with gossamer.Node() as a, gossamer.Node(join=[a.address]) as b:
            host, port = a.address.split(":")
            _, writer = await asyncio.open_connection(host, int(port))
            # Then it sends nothing, not even an answer to pings.
            writer.write(HELLO)
            await until(lambda: a.status()["counters"].get("closed: silent"))
            writer.close()
            # The peer that answers stays.
            assert b.status()["node"] in [link["peer"] for link in a.status()["links"]]

    go(main())


def test_two_dials_at_once_leave_one_link() -> None:
    async def main() -> None:
        async with gossamer.Node() as a, gossamer.Node() as b:
            dials: list[Awaitable[None]] = [
                a._dialler._dial(b.address),
                b._dialler._dial(a.address),
            ]
            await asyncio.gather(*dials)
            await until(lambda: len(a._driver.connections) == len(b._driver.connections) == 1)
            assert len(a.status()["links"]) == len(b.status()["links"]) == 1
            await a.advertise("weather", WEATHER)
            async with b.subscribe("weather") as events:
                await a.publish("weather", GENEVA)
                await anext(events)

    go(main())
