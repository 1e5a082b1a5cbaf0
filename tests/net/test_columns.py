"""Columns of numbers: record batches that follow each other closely are one batch.

It stays one from publisher to subscriber, in all circumstances.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import gossamer
from gossamer.node import Route
from gossamer.node.core import OPEN_MAX
from gossamer.node.local import Local
from gossamer.overlay.batch import BATCH_EVENTS_MAX, COLUMN_ROWS, Batch
from livenet import go, take, until

pytestmark = pytest.mark.live

SCHEMA = "n BIGINT, place STRING, half DOUBLE"


def record(first: int, rows: int) -> pa.RecordBatch:
    numbers = np.arange(first, first + rows)
    return pa.record_batch(
        {"n": numbers, "place": [f"Zürich {n % 13}" for n in range(rows)], "half": numbers / 2}
    )


async def numbers(batches: Any, count: int) -> tuple[list[int], list[int]]:
    """The numbers of ``count`` events, and the number of events in each batch."""
    found: list[int] = []
    sizes: list[int] = []
    async with asyncio.timeout(20):
        async for batch in batches:
            batch.validate(full=True)
            found += batch.column(0).to_pylist()
            sizes.append(batch.num_rows)
            if len(found) >= count:
                break
    return found, sizes


@pytest.mark.parametrize("route", ["direct", "tree", "flood"])
def test_many_travel_together_and_no_more_than_others_take(route: str) -> None:
    async def main() -> None:
        async with gossamer.Node() as a, gossamer.Node(join=[a.address]) as b:
            await a.advertise("numbers", SCHEMA)
            async with (
                b.subscribe("numbers", "n >= 0", route=route) as events,
                b.subscribe("numbers", "n < 0", route=route),
            ):
                receipts = [
                    await a.publish_batch("numbers", record(1000 * at, 1000)) for at in range(100)
                ]
                found, sizes = await numbers(events.batches(), 100_000)
                assert found == list(range(100_000))
                assert max(sizes) <= (
                    BATCH_EVENTS_MAX if route == "direct" else BATCH_EVENTS_MAX // COLUMN_ROWS
                )
                assert max(sizes) >= (10_000 if route == "direct" else 2000)
                done = [await receipt for receipt in receipts]
                assert {one.matched for one in done} == {(1,) * 1000}
                assert [number for one in done for number in one.sequences] == list(
                    range(1, 100_001)
                )
                assert len(receipts[0]) == 1000
                outbox = a._core.outbox
                assert (outbox.events, outbox.bytes, outbox._weight, outbox.opened) == (0, 0, 0, 0)

    go(main())


def test_odd_batches_in_between_leave_nothing_out() -> None:
    """Rows, another topic, and odd batches come in a turn of columns.

    The odd batches are empty, bad or with nulls, and one comes after the schema has grown.
    """

    async def main() -> None:
        async with gossamer.Node() as a, gossamer.Node(join=[a.address]) as b:
            await a.advertise("numbers", SCHEMA)
            await a.advertise("others", SCHEMA)
            mine, others = (
                await b.subscribe("numbers", "n >= 0"),
                await b.subscribe("others", "n >= 0"),
            )
            # This subscription is at the publisher itself.
            own = await a.subscribe("numbers", "n >= 3000")
            receipts: list[Any] = []

            async def three(topic: str, first: int) -> None:
                receipts.extend(
                    [await a.publish_batch(topic, record(first + at, 1)) for at in range(3)]
                )

            await three("numbers", 0)
            assert a._core.outbox.wide_lane is not None, "else this test is about nothing"
            assert len(await a.publish_batch("numbers", record(0, 0))) == 0
            with pytest.raises(gossamer.EventError, match="tenp"):
                await a.publish_batch("numbers", pa.record_batch({"tenp": [1]}))
            with pytest.raises(gossamer.EventError, match="whole record batch"):
                await a.publish_batch("numbers", wild())
            await three("numbers", 3)
            receipts.append(await a.publish_batch("numbers", [{"n": 6}, {"n": 7}]))
            await three("numbers", 8)
            await three("others", 0)
            await three("numbers", 11)
            receipts.append(
                await a.publish_batch(
                    "numbers", pa.record_batch({"n": [14, 15], "place": [None, "x"]})
                )
            )
            await three("numbers", 16)
            await a.advertise("numbers", SCHEMA + ", more INT")
            await three("numbers", 19)
            receipts.append(await a.publish_batch("numbers", record(3000, 5000)))
            got = [event["n"] for event in await take(mine, 5022)]
            assert got == [*range(22), *range(3000, 8000)]
            assert [event["n"] for event in await take(others, 3)] == [0, 1, 2]
            assert [event["n"] for event in await take(own, 5000)] == list(range(3000, 8000))
            assert sum([sum((await receipt).matched) for receipt in receipts]) == 5022 + 3 + 5000
            assert 0 <= a._core.outbox.opened < OPEN_MAX

    go(main())


def wild() -> pa.RecordBatch:
    """A text that begins far outside of the data."""
    offsets = pa.array([0, 2**30, 2], pa.int32()).buffers()[1]
    place = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"ab")])
    return pa.RecordBatch.from_arrays(
        [pa.array([1, 2]), place, pa.array([0.5, 1.0])], ["n", "place", "half"]
    )


def test_dropping_the_oldest_keeps_the_newest() -> None:
    async def main() -> None:
        config = gossamer.NodeConfig(buffer=1000)
        async with gossamer.Node() as a, gossamer.Node(join=[a.address], config=config) as b:
            await a.advertise("numbers", SCHEMA)
            async with b.subscribe("numbers", "n >= 0", slow="drop_oldest") as events:
                await (await a.publish_batch("numbers", record(0, 20_000)))
                await until(lambda: events.backlog + events.dropped == 20_000)
                assert 0 <= events.backlog - 1000 * COLUMN_ROWS < COLUMN_ROWS
                await (await a.publish("numbers", {"n": 20_000}))
                await until(lambda: events.backlog + events.dropped == 20_001)
                assert events.dropped <= 12_000 + 2 * COLUMN_ROWS, (
                    "one event more is no reason to drop thousands"
                )
                left = events.backlog
                assert [event["n"] for event in await take(events, left)] == list(
                    range(20_001 - left, 20_001)
                )

    go(main())


def test_more_events_than_a_window_holds() -> None:
    """All at once they exceeded the window of a subscriber, and were lost."""

    async def main() -> None:
        async with gossamer.Node() as a, gossamer.Node(join=[a.address]) as b:
            await a.advertise("numbers", "n BIGINT")
            async with b.subscribe("numbers", "n >= 0") as events:
                count = 1_200_000
                sums: list[int] = []

                async def add_up() -> None:
                    rows = 0
                    async for batch in events.batches():
                        rows += batch.num_rows
                        sums.append(int(np.asarray(batch.column(0)).sum()))
                        if rows >= count:
                            return

                adding = asyncio.create_task(add_up())
                receipt = await a.publish_batch("numbers", pa.record_batch({"n": np.arange(count)}))
                assert sum((await receipt).matched) == count
                await asyncio.wait_for(adding, 20)
                assert sum(sums) == count * (count - 1) // 2

    go(main())


@pytest.mark.parametrize("route", ["tree", "flood", "skiplist"])
def test_columns_for_direct_that_are_restored_for_relays_travel_in_pieces(
    route: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 20_000
    arrived: list[tuple[str, int, int]] = []
    whole = Local.arrived

    def spied(self: Local, route: Route, batch: Batch, *rest: Any, **named: Any) -> Any:
        arrived.append((route.value, batch.first, batch.count))
        return whole(self, route, batch, *rest, **named)

    async def before() -> None:
        async with (
            gossamer.Node() as far,
            gossamer.Node(join=[far.address], data_dir=tmp_path) as node,
        ):
            await node.advertise("numbers", "n INT")
            async with far.subscribe("numbers", route="direct"):
                await (await node.publish("numbers", {"n": -1}))
                for link in list(node._driver.links.values()):
                    # From here on nothing leaves this link.
                    link.send = lambda *some, **how: None
                await node.publish_batch(
                    "numbers", pa.RecordBatch.from_pydict({"n": pa.array(range(count), pa.int32())})
                )
                (publication,) = node._core.outbox.publications()
                assert publication.count == count
                await node.close(0)

    async def after() -> None:
        async with gossamer.Node() as far, gossamer.Node(join=[far.address]) as near:
            await far.advertise("numbers", "n INT")
            async with (
                far.subscribe("numbers", "n >= 0 AND n < 30000", route=Route(route)) as events,
                near.subscribe("numbers", "n > 19000", route="direct") as few,
                gossamer.Node(join=[far.address], data_dir=tmp_path) as node,
            ):
                (publication,) = node._core.outbox.publications()
                assert sorted([event["n"] for event in await take(events, count)]) == list(
                    range(count)
                )
                assert [event["n"] for event in await take(few, 999)] == list(range(19_001, count))
                await until(lambda: publication.matched is not None)
                assert publication.matched == (1,) * 19_001 + (2,) * 999
                assert not node._core.routing._pieces.wholes
                assert not events.backlog
                assert not few.backlog

    go(before())
    monkeypatch.setattr(Local, "arrived", spied)
    go(after())
    assert max(size for way, _, size in arrived if way == route) <= 4096
    # In a skip list the events of a batch walk in groups.
    if route != "skiplist":
        assert {first % 4096 for way, first, _ in arrived if way == route} == {2}
