"""Durable subscriptions, history and retention between real processes, which are killed."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import gossamer
from gossamer.net.disk import Disk
from livenet import go, take, until

pytestmark = pytest.mark.live

SCHEMA = "n INT"

SUBSCRIBER = """
    import asyncio, sys, gossamer

    async def main(join, directory):
        async with gossamer.Node(join=[join], data_dir=directory) as node:
            async with node.subscribe("t", "n >= 0", name="x") as events:
                print("ready", flush=True)
                async for event in events:
                    print("got", event["n"], event.offset, flush=True)
                    if event["n"] % 3:
                        await events.ack(event)
                        print("acked", event["n"], flush=True)

    asyncio.run(main(*sys.argv[1:]))
"""

PUBLISHER = """
    import asyncio, sys, gossamer

    async def main(join, directory, first):
        async with gossamer.Node(join=[join], data_dir=directory) as node:
            await node.topic("t")
            for n in range(int(first), 1_000_000):
                await node.publish("t", {"n": n})
                print(n, flush=True)

    asyncio.run(main(*sys.argv[1:]))
"""


class Process:
    """A program of its own, read line by line."""

    def __init__(self, program: str, *arguments: str) -> None:
        command = [sys.executable, "-c", textwrap.dedent(program), *arguments]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.lines: list[str] = []

    async def line(self) -> str:
        assert self._process.stdout is not None
        line = (await asyncio.to_thread(self._process.stdout.readline)).strip()
        assert line, "it ended"
        self.lines.append(line)
        return line

    async def until(self, count: int) -> None:
        while len(self.lines) < count:
            await self.line()

    def kill(self) -> list[str]:
        """Kills it with SIGKILL, and returns the lines that it had written."""
        self._process.kill()
        rest = self._process.communicate()[0]
        self.lines += [line for line in rest.split("\n")[:-1] if line]
        return self.lines


def test_a_killed_subscriber_gets_everything_and_nothing_that_it_acknowledged(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with gossamer.Node() as node:
            await node.advertise("t", SCHEMA, retention="1h")
            first = Process(SUBSCRIBER, node.address, str(tmp_path))
            try:
                await first.line()
                for n in range(300):
                    await node.publish("t", {"n": n})
                await first.until(150)
            finally:
                said = first.kill()
            for n in range(300, 400):
                await node.publish("t", {"n": n})
            async with gossamer.Node(join=[node.address], data_dir=tmp_path) as again:
                got: list[Any] = []
                async with again.subscribe("t", "n >= 0", name="x") as events:
                    acked = {int(line.split()[1]) for line in said if line.startswith("acked")}
                    told = [int(line.split()[1]) for line in said if line.startswith("got")]
                    # It may have been killed between the acknowledgement and its line.
                    unsure = {n for n in told[-1:] if n % 3}
                    missing = set(range(400)) - acked - unsure
                    while missing - {event["n"] for event in got}:
                        got.append(await anext(events))
                    status = again.status()
                numbers = [event["n"] for event in got]
                assert not acked & set(numbers)
                assert len(set(numbers)) == len(numbers)
                assert status["subscriptions"][0]["gaps"] == 0
                assert status["durable"]["x"]["offset"] == 400
                before = {
                    int(line.split()[1]): int(line.split()[2])
                    for line in said
                    if line.startswith("got")
                }
                assert all(
                    event.offset == before[event["n"]] for event in got if event["n"] in before
                )
                assert len(acked) > 20

    go(main())


def test_a_killed_publisher_loses_nothing_that_it_accepted(tmp_path: Path) -> None:
    async def main() -> None:
        async with gossamer.Node(data_dir=tmp_path / "sub") as node:
            await node.advertise("t", SCHEMA, retention="1h")
            got: list[int] = []
            accepted = 0
            async with node.subscribe("t", name="x") as events:
                for _ in range(3):
                    publisher = Process(
                        PUBLISHER, node.address, str(tmp_path / "pub"), str(accepted)
                    )
                    try:
                        await publisher.until(40)
                    finally:
                        said = publisher.kill()
                    # One more event may have been accepted before its line was written.
                    accepted = int(said[-1]) + 2
                # It takes the data of the dead ones.
                last = Process(PUBLISHER, node.address, str(tmp_path / "pub"), str(1_000_000))
                try:
                    while got[-1:] != [accepted - 2] and accepted - 2 not in got:
                        got.append((await anext(events))["n"])
                finally:
                    last.kill()
            assert len(set(got)) == len(got)

    go(main())


def test_too_little_retention_is_told(tmp_path: Path) -> None:
    async def main() -> None:
        async with gossamer.Node() as node:
            await node.advertise("t", SCHEMA, retention="4KB")
            async with (
                gossamer.Node(join=[node.address], data_dir=tmp_path) as away,
                away.subscribe("t", name="x") as events,
            ):
                await node.publish("t", {"n": 0})
                await events.ack(await anext(events))
            for n in range(1, 101):
                await (await node.publish("t", {"n": n}))
            await until(lambda: node.status()["retention"]["t"]["bytes"] <= 4096)
            async with (
                gossamer.Node(join=[node.address], data_dir=tmp_path) as back,
                back.subscribe("t", name="x") as events,
            ):
                gap: Any = await anext(events)
                assert isinstance(gap, gossamer.Gap)
                assert (gap.publisher, gap.topic) == (node.peer, "t")
                rest = await take(events, 100 - gap.before[1] + 2)
                assert [event["n"] for event in rest] == list(range(rest[0]["n"], 101))
                assert 1 < rest[0]["n"] <= 100
                await events.ack(gap)
                assert back.status()["subscriptions"][0]["gaps"] == 1

    go(main())


def test_history_by_since_and_order_and_columns() -> None:
    async def main() -> None:
        async with gossamer.Node() as one, gossamer.Node(join=[one.address]) as other:
            await one.advertise("t", SCHEMA, retention="1h")
            await one.publish_batch("t", [{"n": n} for n in range(1000)])
            await other.topic("t")
            import pyarrow as pa

            await other.publish_batch(
                "t", pa.RecordBatch.from_pydict({"n": list(range(1000, 1100))})
            )
            # An event's time is that of its batch, when the batch leaves.
            assert await one.drain() == await other.drain() == 0
            middle = datetime.now(UTC)
            await one.publish("t", {"n": 2000})
            async with gossamer.Node(join=[one.address]) as late:
                async with late.subscribe(
                    "t", "n >= 990", since="beginning", ordered=True
                ) as events:
                    numbers = [event["n"] for event in await take(events, 111)]
                    assert [n for n in numbers if n < 1000 or n == 2000] == [
                        *range(990, 1000),
                        2000,
                    ]
                    assert [n for n in numbers if 1000 <= n < 2000] == list(range(1000, 1100))
                    await one.publish("t", {"n": 2001})
                    assert (await anext(events))["n"] == 2001
                async with late.subscribe("t", since=middle) as events:
                    assert (await anext(events))["n"] in (2000, 2001)
                with pytest.raises(gossamer.RetentionError, match="beginning"):
                    late.subscribe("t", since="yesterday")
                with pytest.raises(gossamer.TapError, match="data_dir"):
                    await late.subscribe("t", name="x")
                with pytest.raises(gossamer.TopicError, match="retention"):
                    await late.advertise("t", SCHEMA, retention="2h")

    go(main())


def test_from_the_shell(tmp_path: Path) -> None:
    def run(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "gossamer", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == code, done.stderr
        return done

    async def main() -> None:
        async with gossamer.Node() as node:
            join = ("--join", node.address)
            said = await asyncio.to_thread(
                run, "advertise", "t", SCHEMA, "--retention", "1h", *join, "--json"
            )
            assert json.loads(said.stdout)["retention"] == "1h, 256MB"
            for n in range(3):
                await node.publish("t", {"n": n})
            durable = (
                "subscribe",
                "t",
                "--name",
                "x",
                "--data-dir",
                str(tmp_path),
                "--since",
                "beginning",
                "--json",
                *join,
            )
            first = await asyncio.to_thread(run, *durable, "--limit", "2", "--no-ack")
            again = await asyncio.to_thread(run, *durable, "--limit", "3")
            lines = [json.loads(line) for line in again.stdout.splitlines()]
            assert [line["values"]["n"] for line in lines] == [0, 1, 2]
            assert [json.loads(line) for line in first.stdout.splitlines()] == lines[:2]
            await node.publish("t", {"n": 3})
            last = await asyncio.to_thread(run, *durable, "--limit", "1")
            assert json.loads(last.stdout)["values"] == {"n": 3}
            ordered = await asyncio.to_thread(
                run, "subscribe", "t", "--since", "1h", "--ordered", "--limit", "4", *join
            )
            assert ordered.stdout == '{"n":0}\n{"n":1}\n{"n":2}\n{"n":3}\n'
            wrong = await asyncio.to_thread(run, "subscribe", "t", "--name", "x", *join, code=2)
            assert "--data-dir" in wrong.stderr

    go(main())


def test_an_ordered_named_subscription_prints_what_waited_for_its_turn_when_it_was_stopped(
    tmp_path: Path,
) -> None:
    def start(address: str, *options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "gossamer", "subscribe", "t", "--name", "x", "--ordered"]
        command += ["--data-dir", str(tmp_path), "--json", "--join", address, *options]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    async def line(process: subprocess.Popen[bytes]) -> dict[str, Any]:
        assert process.stdout is not None
        text = await asyncio.wait_for(asyncio.to_thread(process.stdout.readline), 30)
        assert text, "it ended"
        found: dict[str, Any] = json.loads(text)
        return found

    async def main() -> None:
        async with (
            gossamer.Node() as one,
            gossamer.Node(join=[one.address]) as other,
            gossamer.Node(
                join=[one.address], config=gossamer.NodeConfig(buffer=1, block=120)
            ) as idle,
        ):
            await one.advertise("t", SCHEMA, retention="1h")
            await other.topic("t")
            process = start(one.address)
            try:
                # It takes nothing, so the receipts of the first publisher's events stay open.
                holds = await idle.subscribe("t", "n < 1000")
                assert process.stderr is not None
                assert b"subscribed to" in await asyncio.to_thread(process.stderr.readline)
                await one.publish("t", {"n": 0})
                printed = [await line(process)]
                for n in range(1, 30):
                    await one.publish("t", {"n": n})
                # It publishes until an event is handed over that was stored after some that wait.
                n = 1000
                while printed[-1]["offset"] <= len(printed) + 10:
                    await other.publish("t", {"n": n})
                    n += 1
                    while printed[-1]["values"]["n"] != n - 1:
                        printed.append(await line(process))
                process.terminate()
                rest = await asyncio.to_thread(process.communicate, timeout=30)
                printed += [json.loads(text) for text in rest[0].splitlines()]
                assert process.returncode == 0
            finally:
                process.kill()
            before = [each["values"]["n"] for each in printed]
            assert len([value for value in before if value < 1000]) < 20
            await holds.close()
            again, after = start(one.address), list[int]()
            try:
                while {*before, *after} != {*range(30), *range(1000, n)}:
                    after.append((await line(again))["values"]["n"])
            finally:
                again.kill()
                again.communicate()
            # The last printed event may not have been acknowledged when the first one was stopped.
            again_printed = [value for value in before if value in after]
            assert again_printed == before[len(before) - len(again_printed) :]
            values = [*before, *(value for value in after if value not in again_printed)]
            assert [value for value in values if value < 1000] == list(range(30))
            assert [value for value in values if value >= 1000] == list(range(1000, n))

    go(main())


@pytest.mark.live
def test_lines_that_come_through_the_admin_socket_share_their_way_to_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushes = 0
    commit = Disk._commit

    def counted(disk: Disk, stores: list[Any]) -> None:
        nonlocal flushes
        flushes += 1
        commit(disk, stores)

    async def lines() -> AsyncIterator[bytes]:
        for number in range(2000):
            yield b'{"n": %d}\n' % number

    async def main() -> None:
        async with gossamer.Node(data_dir=tmp_path / "data") as node:
            await node.advertise("numbers", "n INT")
            async with node.subscribe("numbers") as events:
                told = [
                    line
                    async for line in node.answer({"do": "publish", "topic": "numbers"}, lines())
                ]
                assert [(line["sequence"], line["matched"]) for line in told] == [
                    (n, 1) for n in range(1, 2001)
                ]
                assert [(await anext(events))["n"] for _ in range(2000)] == list(range(2000))

    monkeypatch.setattr(Disk, "_commit", counted)
    go(main())
    assert flushes < 100
