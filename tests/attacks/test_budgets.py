"""Members with rights that ask for more work or memory than their share: others go on."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

import gossamer
from gossamer.filters import Schema
from gossamer.filters.packed import Packed
from gossamer.net.loop import run
from gossamer.overlay.direct.messages import Portion, Wanted
from keynet import Fabric
from livenet import GENEVA, WEATHER, until

pytestmark = pytest.mark.live

LIMIT_SECONDS = 100.0
# The CPU time of one turn of the event loop. Reading all filters at once takes about nine seconds.
TURN_SECONDS = 1.5
WIDE = "a BOOLEAN, " + ", ".join(f"b{number} BIGINT" for number in range(255))


class Turns:
    """The most CPU time that one turn of the event loop took."""

    def __init__(self) -> None:
        self.most = 0.0
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            before = time.process_time()
            await asyncio.sleep(0)
            self.most = max(self.most, time.process_time() - before)


def test_hundreds_of_long_filters_do_not_stall_a_publisher(tmp_path: Path) -> None:
    """6 MB of filters in one message, from a member that may subscribe."""
    fabric = Fabric(tmp_path)

    async def main() -> None:
        async with (
            gossamer.Node(keys=fabric.issue("victim")) as victim,
            gossamer.Node(keys=fabric.issue("honest"), join=[victim.address]) as honest,
            gossamer.Node(keys=fabric.issue("mallory"), join=[victim.address]) as mallory,
        ):
            await victim.advertise("weather", WEATHER)
            async with (
                honest.subscribe("weather", "temp > 0", route="direct") as events,
                mallory.subscribe("weather", "temp > 1000000", route="direct"),
            ):
                assert (await (await victim.publish("weather", GENEVA))).matched == 1
                await anext(events)
                direct = mallory._core.direct
                assert direct is not None
                [(hash, topic)] = direct.told.topics.items()
                watcher = topic.watchers[victim.peer]
                many = " OR ".join(f"temp = {number}" for number in range(530))
                changes = tuple((100 + n, f"{many} OR temp = -{n}", "") for n in range(850))
                assert sum(len(text) for _, text, _ in changes) > 6_000_000
                has, next_one = watcher.has, watcher.has + 1
                told = Wanted(
                    hash, direct.told.epoch, has, next_one, next_one, changes, watcher.session
                )
                attacked = victim._core.direct
                assert attacked is not None
                turns = Turns()
                mallory._driver.send_to(victim.peer, told)
                await until(lambda: attacked._reading.waiting)
                for number in range(1, 200):
                    receipt = await victim.publish("weather", {**GENEVA, "temp": number})
                    assert (await anext(events))["temp"] == number
                    assert (await receipt).matched == 1
                assert attacked._reading.waiting
                turns.task.cancel()
                assert turns.most < TURN_SECONDS

    run(asyncio.wait_for(main(), LIMIT_SECONDS))


def test_a_few_kilobytes_do_not_become_millions_of_values(tmp_path: Path) -> None:
    """Columns of a schema with one attribute, where the topic has 256."""
    fabric = Fabric(tmp_path)

    async def main() -> None:
        async with (
            gossamer.Node(keys=fabric.issue("victim")) as victim,
            gossamer.Node(keys=fabric.issue("mallory"), join=[victim.address]) as mallory,
        ):
            await victim.advertise("wide", WIDE)
            await mallory.topic("wide")
            narrow = Packed(Schema.parse("a BOOLEAN"))
            rows = narrow.pack(narrow.from_values([{"a": True}] * 32_768))
            assert len(rows) < 5000
            async with victim.subscribe("wide", route="direct") as events:
                portion = Portion(
                    "wide", mallory.peer, mallory.incarnation, 1, 0, 1, (), "", rows, 32_768
                )
                mallory._driver.send_to(victim.peer, portion)
                await until(lambda: victim.status()["counters"].get("rejected"))
                assert "lack 8355840 values" in victim.status()["last_problem"]
                assert not events.backlog
                await (await mallory.publish("wide", {"a": True}))
                assert (await anext(events))["a"] is True

    run(asyncio.wait_for(main(), LIMIT_SECONDS))
