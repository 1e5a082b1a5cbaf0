"""publish_batch: lists and Arrow record batches, over real sockets, by every route."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import gossamer
from gossamer.filters import Schema
from gossamer.filters.packed import Packed
from gossamer.node import wire
from gossamer.overlay.batch import Batch
from livenet import WEATHER, Others, go, take, until

pytestmark = pytest.mark.live

ROWS = 1000


def record(rows: int = ROWS) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "country": pa.array(["CH" if number % 4 == 0 else "DE" for number in range(rows)]),
            "city": pa.array(
                [None if number % 7 == 0 else f"city {number}" for number in range(rows)]
            ),
            "temp": pa.array([number % 50 for number in range(rows)], pa.int32()),
        }
    )


def test_the_short_way_of_event_after_event_leaves_nothing_out() -> None:
    """Bad and heavy events, a second topic and a growing schema come in the middle of a turn.

    The other events of the turn go the short way.
    """

    async def main() -> None:
        config = gossamer.NodeConfig(batch_bytes=64 << 10, event_bytes=256 << 10)
        async with gossamer.Node(config=config) as a, gossamer.Node(join=[a.address]) as b:
            await a.advertise("numbers", "n INT, text STRING")
            await a.advertise("others", "n INT")
            numbers = await b.subscribe("numbers", "n >= 0")
            others = await b.subscribe("others", "n >= 0")
            receipts = [await a.publish("numbers", {"n": n, "text": "x"}) for n in range(5000)]
            assert a._core.outbox.lane is not None, "else this test is about nothing"
            with pytest.raises(gossamer.EventError, match="n"):
                await a.publish("numbers", {"n": "five", "text": "x"})
            with pytest.raises(gossamer.EventError, match="event_bytes"):
                await a.publish("numbers", {"n": 1, "text": "x" * (300 << 10)})
            receipts += [
                await a.publish("numbers", {"n": n, "text": "x" * 5000}) for n in range(5000, 5100)
            ]
            receipts += [
                await a.publish(topic, {"n": 5100})
                for topic in ("numbers", "others", "numbers", "others")
            ]
            await a.advertise("numbers", "n INT, text STRING, more INT")
            receipts += [await a.publish("numbers", {"n": 5101, "more": n}) for n in range(3)]
            assert [(await receipt).matched for receipt in receipts] == [1] * 5107
            got = list(await take(numbers, 5105))
            assert [event["n"] for event in got] == [*range(5100), 5100, 5100, 5101, 5101, 5101]
            assert [event["more"] for event in got[-3:]] == [0, 1, 2]
            assert [event["n"] for event in await take(others, 2)] == [5100, 5100]
            assert not numbers.backlog

    go(main())


def test_every_event_that_may_be_too_large_is_measured() -> None:
    async def main() -> None:
        async with gossamer.Node(config=gossamer.NodeConfig(event_bytes=1000)) as a:
            await a.advertise("weather", WEATHER)
            # The first event opens a batch, and the others come the short way.
            for turn in range(4):
                await a.publish("weather", {"temp": turn})
                with pytest.raises(
                    gossamer.EventError, match=r"5[0-9]{3} bytes on 'weather'; at most 1000"
                ):
                    await a.publish("weather", {"city": "x" * 5000})
                await a.publish("weather", {"city": "x" * 900})

    go(main())


def test_a_list_is_accepted_whole_or_not_at_all() -> None:
    async def main() -> None:
        async with gossamer.Node() as a, gossamer.Node(join=[a.address]) as b:
            await a.advertise("weather", WEATHER)
            async with b.subscribe("weather", "temp >= 10") as events:
                receipt = await a.publish_batch(
                    "weather", [{"temp": number} for number in range(5000)]
                )
                assert len(receipt) == 5000
                done = await receipt
                assert receipt.done
                assert list(done.matched) == [0] * 10 + [1] * 4990
                assert list(done.sequences) == list(range(1, 5001))
                got: list[gossamer.Event] = []
                async for some in events.lists():
                    got += some
                    if len(got) == 4990:
                        break
                assert [event["temp"] for event in got] == list(range(10, 5000))
                assert [event.sequence for event in got] == list(range(11, 5001))
                with pytest.raises(gossamer.EventError, match="temp"):
                    await a.publish_batch("weather", [{"temp": 1}, {"temp": "warm"}])
                with pytest.raises(gossamer.EventError, match="RecordBatch or a list"):
                    await a.publish_batch("weather", {"temp": 1})
                assert (await (await a.publish_batch("weather", []))).matched == ()
                # No event of the bad list was taken.
                assert (await (await a.publish("weather", {"temp": 99}))).sequence == 5001

    go(main())


@pytest.mark.parametrize("route", ["direct", "flood", "tree", "skiplist"])
def test_columns_by_every_route_to_rows_and_to_batches(route: str) -> None:
    async def main() -> None:
        rows = record(200)
        async with contextlib.AsyncExitStack() as stack:
            first = await stack.enter_async_context(gossamer.Node())
            nodes = [first] + [
                await stack.enter_async_context(gossamer.Node(join=[first.address]))
                for _ in range(2)
            ]
            await first.advertise("weather", WEATHER)
            swiss = await stack.enter_async_context(
                nodes[1].subscribe("weather", "country = 'CH' AND temp < 40", route=route)
            )
            warm = await stack.enter_async_context(
                nodes[2].subscribe("weather", "temp > 30", route=route)
            )
            here = await stack.enter_async_context(
                first.subscribe("weather", "city LIKE '%7'", route=route)
            )
            before = await (await first.publish("weather", {"temp": 31}))
            done = await (await first.publish_batch("weather", rows))
            expected = rows.to_pylist()
            wants = [
                (row["country"] == "CH" and row["temp"] < 40)
                + (row["temp"] > 30)
                + (row["city"] is not None and row["city"].endswith("7"))
                for row in expected
            ]
            assert list(done.matched) == wants
            assert list(done.sequences) == list(range(before.sequence + 1, before.sequence + 201))
            mine = [row for row in expected if row["country"] == "CH" and row["temp"] < 40]
            # In a skip list, events that look in the same places travel together, whatever was
            # published between them.
            came = await take(swiss, len(mine))
            assert [
                event.values for event in sorted(came, key=lambda event: event.sequence)
            ] == mine
            assert came == sorted(came, key=lambda event: event.sequence) or route == "skiplist"
            cities = [
                row for row in expected if row["city"] is not None and row["city"].endswith("7")
            ]
            got = sorted(await take(here, len(cities)), key=lambda event: event.sequence)
            assert [event["city"] for event in got] == [row["city"] for row in cities]
            assert [event.sequence for event in got] == [
                sequence
                for sequence, row in zip(done.sequences, expected, strict=True)
                if row in cities
            ]
            hot: list[dict[str, object]] = []
            async for batch in warm.batches():
                assert batch.schema.names == ["country", "city", "temp"]
                hot += batch.to_pylist()
                if len(hot) > sum(row["temp"] > 30 for row in expected):
                    break
            wanted = [{"country": None, "city": None, "temp": 31}] + [
                row for row in expected if row["temp"] > 30
            ]
            assert (
                sorted(hot, key=repr) == sorted(wanted, key=repr)
                if route == "skiplist"
                else hot == wanted
            )
            assert not any("events on" in node._driver.last_problem for node in nodes)

    go(main())


def test_columns_travel_together_and_large_ones_are_cut() -> None:
    async def main() -> None:
        async with gossamer.Node() as a, gossamer.Node(join=[a.address]) as b:
            await a.advertise("weather", WEATHER)
            async with b.subscribe("weather", "temp >= 0") as events:
                given = [record().slice(number, ROWS - number) for number in range(20)]
                receipts = [await a.publish_batch("weather", one) for one in given]
                total = sum(one.num_rows for one in given)
                got: list[pa.RecordBatch] = []
                async for batch in events.batches():
                    got.append(batch)
                    if sum(one.num_rows for one in got) == total:
                        break
                assert got[0].num_rows == ROWS, "nothing was on its way: it waits for nobody"
                assert len(got) < 12, "those that follow one another at once travel together"
                assert max(one.num_rows for one in got) <= 32_768
                assert (
                    pa.Table.from_batches(got).to_pylist()
                    == pa.Table.from_batches(given).to_pylist()
                )
                done = [await receipt for receipt in receipts]
                assert [one.matched for one in done] == [(1,) * one.num_rows for one in given]
                assert [number for one in done for number in one.sequences] == list(
                    range(1, total + 1)
                )
                large = await a.publish_batch("weather", record(40_000))
                assert sum((await large).matched) == 40_000
                assert [event["temp"] for event in await take(events, 40_000)] == [
                    number % 50 for number in range(40_000)
                ]
                with pytest.raises(gossamer.EventError, match="unknown attribute"):
                    await a.publish_batch("weather", pa.record_batch({"tenp": [1]}))

    go(main())


def test_memory_that_is_filled_again_changes_nothing_that_was_published() -> None:
    """Arrow takes NumPy's memory as it is.

    A program may fill it again while its batch waits for company, or for filters.
    """

    async def main() -> None:
        async with gossamer.Node() as a, gossamer.Node(join=[a.address]) as b:
            await a.advertise("readings", "at BIGINT NOT NULL, temp INT")
            async with (
                b.subscribe("readings", "temp < 1000") as cold,
                b.subscribe("readings", "temp >= 1000") as hot,
            ):
                at, temp = np.zeros(100, np.int64), np.zeros(100, np.int32)
                batch = pa.record_batch({"at": pa.array(at), "temp": pa.array(temp)})
                receipts = []
                for turn in range(40):
                    at[:], temp[:] = turn, 1000 * (turn % 2)
                    receipts.append(await a.publish_batch("readings", batch))
                at[:], temp[:] = -1, -1
                assert [set((await receipt).matched) for receipt in receipts] == [{1}] * 40
                for events, odd in ((cold, 0), (hot, 1)):
                    got = await take(events, 2000)
                    assert [event["at"] for event in got] == [
                        turn for turn in range(odd, 40, 2) for _ in range(100)
                    ]
                    assert {event["temp"] for event in got} == {1000 * odd}

    go(main())


def test_rows_and_columns_keep_their_order_whatever_is_mixed() -> None:
    async def main() -> None:
        async with gossamer.Node() as a, gossamer.Node(join=[a.address]) as b:
            await a.advertise("numbers", "n INT")
            await a.advertise("others", "n INT")
            async with b.subscribe("numbers", "n >= 0", ordered=True) as events:
                receipts: list[gossamer.Receipt | gossamer.BatchReceipt] = []
                schema, count = pa.schema([("n", pa.int32())]), 0
                for turn in range(60):
                    some = list(range(count, count + 1 + turn % 3))
                    if turn % 4 == 0:
                        receipts.append(await a.publish("numbers", {"n": count}))
                        some = some[:1]
                    elif turn % 4 == 1:
                        receipts.append(await a.publish_batch("numbers", [{"n": n} for n in some]))
                    else:
                        receipts.append(
                            await a.publish_batch("numbers", pa.record_batch([some], schema=schema))
                        )
                    if turn % 5 == 0:
                        await a.publish("others", {"n": turn})
                    count += len(some)
                assert [event["n"] for event in await take(events, count)] == list(range(count))
                for receipt in receipts:
                    matched = (await receipt).matched
                    assert set([matched] if isinstance(matched, int) else matched) == {1}

    go(main())


def test_small_batches_let_others_have_their_turn() -> None:
    """A program publishes without a pause.

    Its events travel in batches of at most 256, and it waits for each batch.
    """

    async def main() -> None:
        async with gossamer.Node() as a, gossamer.Node(join=[a.address]) as b:
            await a.advertise("numbers", "n INT")
            async with b.subscribe("numbers", "n >= 0") as events:
                one, others = pa.record_batch({"n": pa.array([1], pa.int32())}), Others()
                receipts = [await a.publish_batch("numbers", one) for _ in range(3000)]
                assert others.stop() >= 3000 // 256
                assert len(await take(events, 3000)) == 3000
                assert {(await receipt).matched for receipt in receipts} == {(1,)}
                assert a._core.outbox.opened == 0

    go(main())


def test_with_asyncios_own_loop() -> None:
    """asyncio's transports take bytes, and not pieces of them.

    Many megabytes go both ways, as columns and as rows, by several routes.
    """

    async def main() -> None:
        async with gossamer.Node() as a, gossamer.Node(join=[a.address]) as b:
            await a.advertise("weather", WEATHER)
            await b.advertise("back", WEATHER)
            for route in ("direct", "flood"):
                async with (
                    b.subscribe("weather", "temp >= 0", route=route) as there,
                    a.subscribe("back", route=route) as back,
                ):
                    both = [asyncio.create_task(take(events, 80_000)) for events in (there, back)]
                    receipts = [await a.publish_batch("weather", record(4000)) for _ in range(20)]
                    receipts += [
                        await b.publish_batch("back", record(4000).to_pylist()) for _ in range(20)
                    ]
                    for taken in both:
                        assert [event["temp"] for event in await taken] == [
                            number % 50 for number in range(4000)
                        ] * 20
                    assert {(await receipt).matched for receipt in receipts} == {(1,) * 4000}

    asyncio.run(asyncio.wait_for(main(), 60))


def test_columns_of_a_shorter_schema_are_rows_of_it() -> None:
    """The topic's schema may grow while a publisher waits for room, and a trace needs the rows."""
    packed = Packed(Schema.parse("n INT, at TIMESTAMP"))
    short = pa.record_batch({"n": pa.array([1, 2], pa.int32())})
    assert packed.rows(short) == [(1,), (2,)]
    assert [packed.schema.values(row) for row in packed.rows(short)] == [
        {"n": 1, "at": None},
        {"n": 2, "at": None},
    ]


def test_a_schema_that_grows_between_two_batches_of_columns() -> None:
    async def main() -> None:
        async with gossamer.Node() as a, gossamer.Node(join=[a.address]) as b:
            await a.advertise("numbers", "n INT")
            async with b.subscribe("numbers", "n >= 0") as events:
                short = pa.record_batch({"n": pa.array([1, 2], pa.int32())})
                # The last two wait for company.
                first = [await a.publish_batch("numbers", short) for _ in range(3)]
                growing = asyncio.create_task(a.advertise("numbers", "n INT, unit STRING"))
                await asyncio.sleep(0)
                longer = pa.record_batch({"n": pa.array([3], pa.int32()), "unit": ["K"]})
                while True:
                    try:
                        last = await a.publish_batch("numbers", longer)
                        break
                    # The attribute is not known yet.
                    except gossamer.EventError:
                        await asyncio.sleep(0)
                await growing
                got = await take(events, 7)
                assert [event["n"] for event in got] == [1, 2, 1, 2, 1, 2, 3]
                assert got[-1].values == {"n": 3, "unit": "K"}
                assert [(await one).matched for one in first] == [(1, 1)] * 3
                assert (await last).matched == (1,)

    go(main())


def test_columns_survive_a_crash_of_their_publisher(tmp_path: Path) -> None:
    async def main() -> None:
        async with gossamer.Node(data_dir=tmp_path) as first:
            await first.advertise("weather", WEATHER)
            # It acts as if the node ended before it could send.
            first._core.routing.publish = lambda *_: None
            receipt = await first.publish_batch("weather", record(50))
            assert not receipt.done
            await first.close(drain=0)
        async with gossamer.Node() as b:
            await b.advertise("weather", WEATHER)
            async with (
                b.subscribe("weather", "temp < 10") as events,
                gossamer.Node(data_dir=tmp_path, join=[b.address]) as again,
            ):
                assert [event["temp"] for event in await take(events, 10)] == list(range(10))
                assert await again.drain() == 0

    go(main())


def test_columns_that_lie_are_rejected_and_counted() -> None:
    async def main() -> None:
        async with gossamer.Node() as a, gossamer.Node(join=[a.address]) as b:
            await a.advertise("weather", WEATHER)
            async with b.subscribe("weather", "temp > 0", route="flood") as events:
                good = record(3).serialize().to_pybytes()
                for first, data in enumerate(
                    (
                        b"\xff" * 40,
                        good[:-20],
                        pa.record_batch({"x": [1.5] * 3}).serialize().to_pybytes(),
                    )
                ):
                    a._driver.send_to(b.peer, Batch("weather", 77, 1, first + 1, 3, 1, 0, 0, data))
                await until(lambda: b.status()["counters"].get("rejected", 0) == 3)
                assert "events on 'weather'" in b._driver.last_problem
                done = await (await a.publish_batch("weather", record(10)))
                assert sum(done.matched) == 9
                assert len(await take(events, 9)) == 9

    go(main())


def test_bytes_are_opaque_to_the_wire() -> None:
    data = record(3).serialize().to_pybytes()
    batch = Batch("weather", 7, 1, 1, 3, 1, 0, 0, data)
    assert wire.Unframer().feed(wire.encode(batch)) == [batch]
