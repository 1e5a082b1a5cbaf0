"""Finding the fabric: by addresses, by DNS names for many nodes, or from behind a translation.

Some tests check that it is not found.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import gossamer
from gossamer.net import dialler
from gossamer.net.sample import unwell
from gossamer.node import wire
from livenet import GENEVA, WEATHER, go, until

pytestmark = pytest.mark.live


class Resolver:
    """Answers for names, with the addresses that a test gives. Every 127.x.y.z is loopback."""

    def __init__(self) -> None:
        self.hosts: dict[str, list[str]] = {}
        self.asked = 0

    async def getaddrinfo(self, host: str, port: int, **about: Any) -> list[Any]:
        self.asked += 1
        if host not in self.hosts:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))
            for address in self.hosts[host]
        ]


class Loop:
    """The event loop with another resolver."""

    def __init__(self, loop: asyncio.AbstractEventLoop, resolver: Resolver) -> None:
        self._loop, self.getaddrinfo = loop, resolver.getaddrinfo

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Resolver:
    found = Resolver()
    make = dialler.Dialler.__init__

    def with_resolver(self: dialler.Dialler, driver: Any, told: tuple[str, ...]) -> None:
        driver.loop = Loop(driver.loop, found)
        make(self, driver, told)

    monkeypatch.setattr(dialler.Dialler, "__init__", with_resolver)
    monkeypatch.setattr(dialler, "RESOLVE_SECONDS", 0.05)
    monkeypatch.setattr(dialler, "RESOLVE_SECONDS_ALONE", 0.1)
    return found


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


async def one_fabric(*nodes: gossamer.Node) -> None:
    await until(lambda: all(len(node._interest.view.members) == len(nodes) for node in nodes))
    await nodes[0].advertise("weather", WEATHER)
    async with contextlib.AsyncExitStack() as stack:
        for node in nodes:
            await stack.enter_async_context(node.subscribe("weather"))
        assert (await (await nodes[-1].publish("weather", GENEVA))).matched == len(nodes)


def test_all_nodes_are_given_one_name_that_stands_for_all_of_them(resolver: Resolver) -> None:
    """Each node finds itself under the name as well.

    The first one finds only itself, and begins the fabric.
    """
    port = free_port()

    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:
            nodes = []
            for number in (1, 2, 3):
                resolver.hosts.setdefault("fabric.example", []).append(f"127.0.0.{number}")
                node = gossamer.Node(
                    listen=f"127.0.0.{number}:{port}", join=[f"fabric.example:{port}"]
                )
                nodes.append(await stack.enter_async_context(node))
            assert nodes[0].public_address == f"127.0.0.1:{port}"
            await one_fabric(*nodes)

    go(main())


def test_dead_addresses_of_a_name_do_not_hide_the_live_one(resolver: Resolver) -> None:
    async def main() -> None:
        async with gossamer.Node(listen="127.0.0.9:0") as a:
            port = a.address.split(":")[1]
            # Only the last one answers.
            resolver.hosts["fabric.example"] = [f"127.0.0.{n}" for n in range(2, 10)]
            async with gossamer.Node(join=[f"fabric.example:{port}"]) as b:
                await one_fabric(a, b)

    go(main())


def test_a_name_is_asked_again_when_it_does_not_resolve_and_when_it_changes(
    resolver: Resolver,
) -> None:
    async def main() -> None:
        async with gossamer.Node() as a:
            port = a.address.split(":")[1]
            joining = gossamer.Node(join=[f"late.example:{port}"])
            task = asyncio.create_task(joining.start())
            await until(lambda: resolver.asked >= 2)
            assert not task.done()
            # No node is there.
            resolver.hosts["late.example"] = ["127.0.0.7"]
            await until(lambda: joining._driver.counters["dials_failed"] >= 1)
            resolver.hosts["late.example"] = ["127.0.0.1"]
            await task
            await one_fabric(a, joining)
            await joining.close()

    go(main())


def test_a_name_that_never_resolves_is_named_in_the_error_and_asked_ever_more_rarely(
    resolver: Resolver,
) -> None:
    async def main() -> None:
        with pytest.raises(
            gossamer.JoinError,
            match=(
                r"cannot resolve nowhere\.example: Name or service not known\); "
                r"is the name right"
            ),
        ):
            await gossamer.Node(join=["nowhere.example:1"], join_timeout=1.0).start()
        assert 2 <= resolver.asked <= 12

    go(main())


def test_backoff_of_a_name() -> None:
    name = dialler._Name()
    name.asked_at, name.wait = 100.0, 32.0
    assert not name.is_due(131.0, alone=False)
    assert name.is_due(132.0, alone=False)
    # A node without links asks more often.
    assert name.is_due(104.0, alone=True)


def test_a_real_resolver_knows_localhost() -> None:
    async def main() -> None:
        async with (
            gossamer.Node() as a,
            gossamer.Node(join=[f"localhost:{a.address.split(':')[1]}"]) as b,
        ):
            await one_fabric(a, b)

    go(main())


def test_a_node_that_need_not_join_goes_on_alone_and_finds_the_fabric_later() -> None:
    port = free_port()

    async def main() -> None:
        with pytest.raises(gossamer.JoinError):
            await gossamer.Node(join=[f"127.0.0.1:{port}"], join_timeout=0.2).start()
        async with gossamer.Node(
            join=[f"127.0.0.1:{port}"], join_timeout=0.2, join_required=False
        ) as early:
            assert not early.status()["links"]
            async with gossamer.Node(listen=f"127.0.0.1:{port}") as late:
                await one_fabric(late, early)

    go(main())


def test_others_are_told_the_public_address_and_dial_it() -> None:
    """A forwarder stands for a translation: b is reached at its public address only."""

    async def main() -> None:
        target: list[str] = []
        forwarded: list[str] = []

        async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            forwarded.append(target[0])
            host, port = target[0].split(":")
            far_reader, far_writer = await asyncio.open_connection(host, int(port))

            async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
                with contextlib.suppress(ConnectionError):
                    while data := await source.read(1 << 16):
                        sink.write(data)
                sink.close()

            await asyncio.gather(copy(reader, far_writer), copy(far_reader, writer))

        server = await asyncio.start_server(forward, "127.0.0.1", 0)
        public = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with (
            gossamer.Node() as a,
            gossamer.Node(join=[a.address], public_address=public) as b,
        ):
            target.append(b.address)
            assert b.address != b.public_address == public
            assert b.status()["public_address"] == public
            async with gossamer.Node(join=[a.address]) as c:
                await until(lambda: len(c._interest.view.members) == 3)
                known = c._interest.view.members[b.peer].record.address  # type: ignore[index]
                assert known == public
                c._driver.dial(public)
                await until(lambda: forwarded and b.peer in c._driver.links)
                await one_fabric(a, b, c)
        server.close()

    go(main())


def test_a_copy_of_a_data_directory_that_joins_its_original_is_noticed_by_both(
    tmp_path: Path,
) -> None:
    """They know no other node, so no third node could tell them of each other."""

    async def main() -> None:
        async with gossamer.Node(data_dir=tmp_path / "one"):
            pass
        shutil.copytree(tmp_path / "one", tmp_path / "two")
        shutil.copytree(tmp_path / "one", tmp_path / "three")
        async with gossamer.Node(data_dir=tmp_path / "one") as one:
            with pytest.raises(gossamer.JoinError, match="identity used twice"):
                async with gossamer.Node(
                    data_dir=tmp_path / "two", join=[one.address], join_timeout=1.0
                ):
                    pass
            async with gossamer.Node(
                data_dir=tmp_path / "three",
                join=[one.address],
                join_required=False,
                join_timeout=0.5,
            ) as other:
                assert other.peer == one.peer
                await until(lambda: one.status()["conflict"] and other.status()["conflict"])
                for node in (one, other):
                    assert unwell(node) == [
                        (
                            "another process uses this node's identity; are its keys or its data "
                            "directory used twice?"
                        )
                    ]
                    assert node.status()["counters"]["conflicts"] == 1

    go(main())


def test_a_node_that_dials_itself_is_no_twin() -> None:
    """It dials an address that it does not know as its own."""

    async def main() -> None:
        port = free_port()
        async with gossamer.Node(listen=f"127.0.0.1:{port}", join=[f"127.0.0.1:{port}"]) as alone:
            # A translation would do the same.
            relay = await asyncio.start_server(_passed_on_to(port), "127.0.0.1", 0)
            alone._dialler.dial(f"127.0.0.1:{relay.sockets[0].getsockname()[1]}")
            counters = alone._driver.counters
            await until(
                lambda: counters["closed: myself"] + counters["closed: identity used twice"] >= 2
            )
            relay.close()
            assert counters["closed: identity used twice"] == 0
            assert not alone.status()["conflict"]

    go(main())


def _passed_on_to(
    port: int,
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))

    return serve


def test_a_node_of_another_version_is_refused_and_both_versions_are_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    said = f"this node speaks wire version {wire.VERSION} and the peer versions 1 to 2"
    older = wire.encode(wire.Hello(wire.MAGIC, 1, 2, 77, 1, ""))
    heard: list[bytes] = []

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(older)
        heard.append(await reader.read())
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(greet, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        with pytest.raises(gossamer.JoinError, match=f"wrong version .{said}; only nodes of one"):
            await gossamer.Node(join=[f"{host}:{port}"], join_timeout=1.0).start()
        assert heard[0] == wire.encode(wire.Unframer().feed(heard[0])[0])
        server.close()
        async with gossamer.Node() as node:
            reader, writer = await asyncio.open_connection(*node.address.split(":"))
            writer.write(older)
            [hello] = wire.Unframer().feed(await reader.read())
            assert isinstance(hello, wire.Hello)
            assert (hello.version_min, hello.version_max) == (wire.VERSION, wire.VERSION)
            writer.close()
            assert said in node.status()["last_problem"]

    with caplog.at_level(logging.WARNING, "gossamer"):
        go(main())
    records: list[Any] = caplog.records
    closed = [one.fields for one in records if one.getMessage() == "connection closed"]
    assert [one["reason"] for one in closed] == ["wrong version"] * 2
    assert all(said in one["detail"] for one in closed)
