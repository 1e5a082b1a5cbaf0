"""The program on each host: one node with a data directory, keys and a trace.

JSON lines on standard input tell the node its orders.

Beside its trace it keeps two lists of its own. They are read while it runs and after it was killed.
``accepted`` has the numbers of the events whose ``publish`` returned. ``seen-NAME`` has the events
that were handed to a durable subscription, before they are acknowledged.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from pathlib import Path
from typing import Any, TextIO

import gossamer

SECONDS = 120.0
PACE = 0.02
SHARDS = 4


def event(host: int, number: int) -> dict[str, Any]:
    return {"host": host, "n": number, "shard": number % SHARDS, "place": f"place-{number % 7}"}


async def main(about: dict[str, Any]) -> None:
    home = Path(about["home"])
    async with gossamer.Node(
            listen=about["listen"], join=about["join"], data_dir=home / "data",
            trace_dir=about["traces"], keys=about["keys"],
        k=3, join_timeout=SECONDS,
    ) as node:  # fmt: skip
        say({"address": node.address, "peer": f"{node.peer:016x}"})
        tasks: list[asyncio.Task[None]] = []
        publishing: asyncio.Task[None] | None = None
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )
        try:
            while line := await reader.readline():
                order = json.loads(line)
                do = order.pop("do")
                if do == "advertise":
                    await node.advertise("t", order["schema"], retention="1h")
                elif do == "subscribe":
                    events = await node.subscribe("t", timeout=SECONDS, **order)
                    seen = (home / f"seen-{order['name']}").open("a")
                    tasks.append(asyncio.create_task(take(events, seen)))
                elif do == "publish":
                    publishing = asyncio.create_task(
                        publish(node, about["host"], order["first"], home / "accepted")
                    )
                elif do == "hush":
                    assert publishing is not None
                    publishing.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await publishing
                elif do == "drain":
                    say({"left": await node.drain(SECONDS)})
                    continue
                elif do == "members":
                    say({"members": node.status()["members"]})
                    continue
                elif do == "stop":
                    break
                for task in tasks:
                    if task.done():
                        # A consumer that failed raises here.
                        task.result()
                say({"done": do})
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    say({"stopped": True})


async def take(events: gossamer.Subscription, seen: TextIO) -> None:
    with seen:
        async for some in events.lists():
            for one in some:
                seen.write(
                    f"gap {one.reason}\n"
                    if isinstance(one, gossamer.Gap)
                    else f"{one['host']} {one['n']}\n"
                )
            seen.flush()
            await events.ack(some[-1], through=True)


async def publish(node: gossamer.Node, host: int, first: int, path: Path) -> None:
    """Until told to stop, a few at a time."""
    with path.open("a") as accepted:
        await node.topic("t", SECONDS)
        number = first
        while True:
            some = range(number, number + 5)
            number += 5
            await asyncio.shield(node.publish_batch("t", [event(host, n) for n in some]))
            accepted.write("".join(f"{n}\n" for n in some))
            accepted.flush()
            await asyncio.sleep(PACE)


def say(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    gossamer.run(main(json.loads(sys.argv[1])))
