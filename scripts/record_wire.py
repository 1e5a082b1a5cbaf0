"""Record what this version says on the wire, for the interoperability tests of the next one: tests/wire/vN_*.txt.

    python scripts/record_wire.py

Run it on the last commit of a wire version, before ``VERSION`` is raised (node/wire.py). Two files, hex frames, a line each:
every message once, by name; and a conversation of two nodes on loopback that join, advertise, subscribe by every route,
publish, and leave (> is what the newcomer said, < what it was told).
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import gossamer
from gossamer.net.connection import Connection
from gossamer.node import wire

ROOT = Path(__file__).parent.parent
ROUTES = ("flood", "skiplist", "tree")


def record_messages(path: Path) -> None:
    sys.path.insert(0, str(ROOT / "tests" / "node"))
    from test_wire import MESSAGES

    lines = [
        f"{type(message).__module__}.{type(message).__name__} {wire.encode(message).hex()}"
        for message in MESSAGES
    ]
    path.write_text("\n".join(lines) + "\n")


async def record_conversation(path: Path) -> None:
    heard: list[str] = []
    listen = Connection.data_received
    newcomer: dict[str, Any] = {}

    def tapped(self: Connection, data: bytes) -> None:
        here = self.driver.peer == newcomer.get("peer") or self.dialled is not None
        heard.append(f"{'<' if here else '>'} {data.hex()}")
        listen(self, data)

    Connection.data_received = tapped  # type: ignore[method-assign]
    async with gossamer.Node() as seed, gossamer.Node(join=[seed.address]) as node:
        newcomer["peer"] = node.peer
        await node.advertise("weather", "country STRING, temp INT")
        for route in ROUTES:
            async with node.subscribe(
                "weather", "country = 'CH' AND temp > 30", route=route, barrier=True
            ) as events:
                receipt = await seed.publish("weather", {"country": "CH", "temp": 31})
                assert (await receipt).matched == 1
                await anext(events)
                receipt = await node.publish("weather", {"country": "CH", "temp": 32})
                assert (await receipt).matched == 1
                await anext(events)
    path.write_text("\n".join(heard) + "\n")


if __name__ == "__main__":
    folder = ROOT / "tests" / "wire"
    folder.mkdir(exist_ok=True)
    record_messages(folder / f"v{wire.VERSION}_messages.txt")
    asyncio.run(record_conversation(folder / f"v{wire.VERSION}_conversation.txt"))
    print(f"recorded wire version {wire.VERSION} in {folder.relative_to(ROOT)}")
