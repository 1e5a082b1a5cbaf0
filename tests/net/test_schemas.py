"""Topics across restarts, and schemas that do not agree: nodes on real sockets and disks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import gossamer
from gossamer.machine import Peer
from gossamer.net import admin
from gossamer.net.loop import run as run_loop
from gossamer.net.service import DRAINED, serve
from gossamer.node.topics import Advert, Adverts
from livenet import go, take, until

pytestmark = pytest.mark.live

WEATHER, OTHER = "country STRING, temp INT", "country STRING, temp DOUBLE"
GENEVA = {"country": "CH", "temp": 31}


def test_a_node_that_restarts_alone_has_its_topics_its_history_and_its_durable_events(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with gossamer.Node(data_dir=tmp_path) as node:
            async with gossamer.Node(join=[node.address]) as station:
                await station.advertise("weather", WEATHER, retention="1h")
            await node.topic("weather")
            async with node.subscribe("weather", name="x") as events:
                for temp in (1, 2, 3):
                    await (await node.publish("weather", {"country": "CH", "temp": temp}))
                await events.ack((await take(events, 3))[0])
        async with gossamer.Node(data_dir=tmp_path) as node:
            status = node.status()
            assert status["topics"] == {"weather": WEATHER}
            assert status["retention"]["weather"]["keeps"] == "1h, 256MB"
            assert status["retention"]["weather"]["batches"] == 3
            async with node.subscribe("weather", name="x", timeout=1.0) as events:
                assert [event["temp"] for event in await take(events, 2)] == [2, 3]
            async with node.subscribe("weather", since="1h", timeout=1.0) as past:
                assert [event["temp"] for event in await take(past, 3)] == [1, 2, 3]
            # A program that does not know of the retention advertises the topic again.
            await node.advertise("weather", WEATHER)
            async with node.subscribe("weather", since="beginning", gaps=True) as past:
                assert [event["temp"] for event in await take(past, 3)] == [1, 2, 3]

    go(main())


def test_a_durable_subscriber_that_restarts_while_all_publishers_are_away_gets_its_events(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with gossamer.Node() as station:
            await station.advertise("weather", WEATHER, retention="1h")
            async with (
                gossamer.Node(join=[station.address], data_dir=tmp_path) as node,
                node.subscribe("weather", name="x") as events,
            ):
                for _ in range(2):
                    await (await station.publish("weather", GENEVA))
                await take(events, 2)
        async with (
            gossamer.Node(data_dir=tmp_path) as node,
            node.subscribe("weather", name="x", timeout=1.0) as events,
        ):
            assert [event["temp"] for event in await take(events, 2)] == [31, 31]

    go(main())


def test_schemas_that_do_not_agree_are_told_to_both_sides_until_one_of_them_is_replaced(
    tmp_path: Path,
) -> None:
    """Two fabrics have never met. Each has a schema of its own, on disk, and a subscriber."""

    async def main() -> None:
        async with (
            gossamer.Node(data_dir=tmp_path / "a") as a,
            gossamer.Node(data_dir=tmp_path / "b", listen="127.0.0.1:0") as b,
        ):
            await a.advertise("weather", WEATHER)
            await b.advertise("weather", OTHER)
            async with a.subscribe("weather") as events:
                async with gossamer.Node(join=[a.address]) as c:
                    assert await c.topic("weather") == WEATHER
                b._driver.dial(a.address, None)
                await until(
                    lambda: a.status()["schema_conflicts"] and b.status()["schema_conflicts"]
                )
                said = {
                    (WEATHER, f"{a.peer:016x}"),
                    (OTHER, f"{b.peer:016x}"),
                }
                for node in (a, b):
                    for attempt in (
                        node.publish("weather", GENEVA),
                        node.publish_batch("weather", [GENEVA]),
                        node.publish_batch("weather", [{"of": "another schema"}]),
                        node.topic("weather"),
                        node.advertise("weather", WEATHER if node is a else OTHER),
                    ):
                        with pytest.raises(gossamer.SchemaConflictError) as raised:
                            await attempt
                        assert set(raised.value.schemas) == said
                    with pytest.raises(gossamer.SchemaConflictError):
                        await node.subscribe("weather")
                    shown = node.status()["schema_conflicts"]["weather"]
                    assert {(one["schema"], one["node"]) for one in shown} == said
                    assert "do not agree" in node.status()["last_problem"]
                # b gives up its own schema.
                await b.advertise("weather", WEATHER)
                await until(lambda: not a.status()["schema_conflicts"])
                assert (await (await b.publish("weather", GENEVA))).matched == 1
                assert (await anext(events)).values == GENEVA
        async with gossamer.Node(data_dir=tmp_path / "b") as b:
            assert await b.topic("weather") == WEATHER

    go(main())


def test_two_nodes_that_advertise_at_the_same_time_are_told() -> None:
    async def main() -> None:
        async with (
            gossamer.Node() as hub,
            gossamer.Node(join=[hub.address]) as a,
            gossamer.Node(join=[hub.address]) as b,
        ):
            await asyncio.gather(
                a.advertise("weather", WEATHER),
                b.advertise("weather", OTHER),
                return_exceptions=True,
            )
            nodes = (hub, a, b)
            await until(lambda: all(node.status()["schema_conflicts"] for node in nodes))
            for node in nodes:
                with pytest.raises(gossamer.SchemaConflictError):
                    await node.publish("weather", GENEVA)
            await hub.advertise("weather", OTHER, replace=True)
            await until(lambda: not any(node.status()["schema_conflicts"] for node in nodes))
            async with a.subscribe("weather", "temp > 1.5") as events:
                await b.publish("weather", {"country": "CH", "temp": 2.5})
                assert (await anext(events))["temp"] == 2.5

    go(main())


def test_a_subscription_to_a_replaced_schema_ends_with_an_error_that_names_the_new_one() -> None:
    async def main() -> None:
        async with gossamer.Node() as a, gossamer.Node(join=[a.address]) as b:
            await a.advertise("weather", WEATHER)
            async with b.subscribe("weather", "temp > 3") as events:
                await a.advertise("weather", "city STRING", replace=True)
                with pytest.raises(gossamer.TopicError, match=r"replaced by \(city STRING\)"):
                    await anext(events)
            async with b.subscribe("weather", "city = 'Bern'") as events:
                assert (await (await a.publish("weather", {"city": "Bern"}))).matched == 1
                assert (await anext(events)).values == {"city": "Bern"}

    go(main())


def test_a_data_directory_from_before_topics_were_stored_still_opens(tmp_path: Path) -> None:
    async def main() -> None:
        async with gossamer.Node(data_dir=tmp_path) as node:
            await node.advertise("weather", WEATHER, retention="1h")
            async with node.subscribe("weather", name="x") as events:
                await (await node.publish("weather", GENEVA))
                await anext(events)
        with (
            contextlib.closing(sqlite3.connect(tmp_path / "gossamer.sqlite")) as database,
            database,
        ):
            gone = database.execute("DELETE FROM kept WHERE key LIKE 'topic/%'")
            assert gone.rowcount == 1
        async with gossamer.Node(data_dir=tmp_path) as node:
            assert node.status()["topics"] == {}
            with pytest.raises(gossamer.TopicError, match="was not advertised"):
                await node.subscribe("weather", name="x", timeout=0.01)
            await node.advertise("weather", WEATHER)
            async with node.subscribe("weather", name="x") as events:
                assert (await anext(events)).values == GENEVA
            async with node.subscribe("weather", since="beginning") as events:
                assert (await anext(events)).values == GENEVA
        async with gossamer.Node(data_dir=tmp_path) as node:
            assert node.status()["topics"] == {"weather": WEATHER}

    go(main())


def test_a_service_whose_topic_is_in_conflict_serves_its_other_topics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    async def main() -> None:
        async with gossamer.Node() as hub:
            await hub.advertise("weather", WEATHER)
            hub._core.receive(
                Peer(7), Adverts((Advert("weather", OTHER, 0, 7),)), hub._driver.now()
            )
            assert hub.status()["schema_conflicts"]
            node, stop = gossamer.Node(join=[hub.address]), asyncio.Event()
            topics = {"weather": (WEATHER, ""), "numbers": ("n INT", "")}
            task = asyncio.create_task(serve(node, stop, topics=topics, drain=1.0))
            await until(lambda: "numbers" in hub.status()["topics"])
            assert list(node.status()["schema_conflicts"]) == ["weather"]
            stop.set()
            assert await task == DRAINED

    go(main())


GOSSAMER = [sys.executable, "-m", "gossamer"]


def test_the_command_line_tells_of_a_conflict_in_one_line_and_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    env = {**os.environ, "COLUMNS": "80"}

    async def run(*arguments: str, code: int = 0) -> tuple[str, str]:
        def work() -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [*GOSSAMER, *arguments],
                env=env,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )

        done = await asyncio.to_thread(work)
        assert done.returncode == code, (done.stdout, done.stderr)
        return done.stdout, done.stderr

    async def main() -> None:
        async with gossamer.Node() as a, gossamer.Node(join=[a.address]) as b:
            server, path = await admin.serve(a.address, a.answer)
            try:
                await a.advertise("weather", WEATHER)
                await until(lambda: "weather" in b.status()["topics"])
                # It is as if b had advertised this before it met a.
                word = Adverts((Advert("weather", OTHER, 0, b.peer),))
                b._driver.perform(b._core.receive(a.peer, word, b._driver.now()))
                b._driver.wake()
                await until(lambda: a.status()["schema_conflicts"])
                join = ("--join", a.address)
                event = json.dumps(GENEVA)
                for command in (
                    ("publish", "weather", event, *join),
                    ("publish", "weather", event, "--via", a.address),
                    ("subscribe", "weather", *join),
                    ("advertise", "weather", WEATHER, *join),
                ):
                    _, error = await run(*command, code=2)
                    [line] = error.splitlines()
                    assert f"({WEATHER}) by node {a.peer:016x}" in line, command
                    assert f"({OTHER}) by node {b.peer:016x}" in line
                    assert 'gossamer advertise weather "SCHEMA" --replace' in line
                told, _ = await run("topics", "--json")
                assert [json.loads(line) for line in told.splitlines()] == [
                    {
                        "topic": "weather",
                        "schema": WEATHER,
                        "advertised_by": f"{a.peer:016x}",
                        "retention": "",
                        "retained_here": "",
                        "conflicts": [{"schema": OTHER, "advertised_by": f"{b.peer:016x}"}],
                    }
                ]
                told, _ = await run("topics")
                assert "in conflict with" in told
                shown, _ = await run("status")
                assert "the schemas of topic 'weather' do not agree" in shown
                assert f"({OTHER}) by node {b.peer:016x}" in shown
                plain, _ = await run("status", "--json")
                assert {
                    one["schema"] for one in json.loads(plain)["schema_conflicts"]["weather"]
                } == {WEATHER, OTHER}
                said, _ = await run("advertise", "weather", OTHER, "--replace", *join)
                assert said.startswith(f"weather ({OTHER}) is advertised")
                await until(lambda: not a.status()["schema_conflicts"])
                assert "say which one holds" not in (await run("status"))[0]
                await run("publish", "weather", '{"country": "CH", "temp": 2.5}', *join)
            finally:
                server.close()
                path.unlink(missing_ok=True)

    run_loop(asyncio.wait_for(main(), 240))
