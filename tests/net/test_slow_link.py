"""A slow link between real nodes: a burst takes long, and nothing else happens."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

import gossamer
from gossamer.net.loop import run
from livenet import until

pytestmark = pytest.mark.live

# Bytes a second: one megabit.
RATE = 125_000
EVENTS = 2_500
SIZE = 1_000
PIECE = 4096


class Narrow:
    """A proxy on loopback that passes one megabit a second in each direction."""

    def __init__(self, port: int) -> None:
        self.port = port
        # Bytes to the node behind it, and back.
        self.passed = [0, 0]
        self._server: asyncio.Server | None = None

    async def start(self) -> str:
        # Buffers are small, like those of a slow link: bytes that have left the sender have nearly
        # arrived.
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 15)
        listener.bind(("127.0.0.1", 0))
        self._server = await asyncio.start_server(self._serve, sock=listener, limit=PIECE)
        return f"127.0.0.1:{listener.getsockname()[1]}"

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far = socket.socket()
        far.setblocking(False)
        far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 15)
        await asyncio.get_running_loop().sock_connect(far, ("127.0.0.1", self.port))
        back, forth = await asyncio.open_connection(sock=far, limit=PIECE)
        await asyncio.gather(self._pass(reader, forth, 0), self._pass(back, writer, 1))

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: int
    ) -> None:
        try:
            while data := await reader.read(PIECE):
                await asyncio.sleep(len(data) / RATE)
                writer.write(data)
                await writer.drain()
                self.passed[way] += len(data)
        except OSError:
            pass
        finally:
            writer.close()


def test_a_burst_over_a_slow_link_reaches_a_durable_subscription_whole_and_once(
    tmp_path: Path,
) -> None:
    """It takes 20 seconds, and a peer that says nothing is cut off after 15."""

    async def main() -> None:
        async with gossamer.Node() as a:
            await a.advertise("t", "n INT, pad STRING", retention="1h")
            narrow = Narrow(int(a.address.rpartition(":")[2]))
            near = await narrow.start()
            async with (
                gossamer.Node(join=[near], data_dir=tmp_path) as b,
                b.subscribe("t", name="x") as events,
            ):
                before = narrow.passed[1]
                receipts = [
                    await a.publish("t", {"n": n, "pad": "x" * SIZE}) for n in range(EVENTS)
                ]
                got = [await anext(events) for _ in range(EVENTS)]
                assert [event["n"] for event in got] == list(range(EVENTS))
                assert [(await receipt).matched for receipt in receipts] == [1] * EVENTS
                await until(lambda: narrow.passed[1] - before >= EVENTS * SIZE)
                assert narrow.passed[1] - before < EVENTS * SIZE * 1.1
                counters = a.status()["counters"]
                assert counters["slow_links"]
                assert not counters.get("closed: does not report")
                assert len(a.status()["links"]) == 1
                assert b.status()["counters"].get("duplicate_events_in", 0) == 0
            await narrow.stop()

    run(asyncio.wait_for(main(), 90))
