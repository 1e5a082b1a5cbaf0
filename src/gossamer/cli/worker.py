"""A node process of ``gossamer demo``. It reads orders as JSON lines and answers on standard
output.

It ends when its input ends, so it never outlives the process that started it.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import click

import gossamer
from gossamer.cli.common import Stop, run_until_signal
from gossamer.net import admin

PROGRESS_EVERY = 50
LINE_MAX = 64 << 20
# The time for all subscriptions to be in force.
SECONDS = 100.0


@click.command()
@click.option("--join", multiple=True)
@click.option("--trace-dir", required=True)
@click.option("--fabric", required=True)
def worker(join: tuple[str, ...], trace_dir: str, fabric: str) -> int:
    """One node of a demo."""

    async def main(stop: Stop) -> int:
        async with (
            gossamer.Node(join=join, trace_dir=trace_dir, fabric=fabric, k=3) as node,
            admin.offered(node.address, node.answer),
        ):
            _say({"address": node.address, "node": node.status()["node"]})
            await _obey(node)
        _say({"stopped": True})
        return 0

    return run_until_signal(main)


async def _obey(node: gossamer.Node) -> None:
    reader = asyncio.StreamReader(limit=LINE_MAX)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    consumers: list[asyncio.Task[None]] = []
    try:
        while line := await reader.readline():
            order = json.loads(line)
            if order["do"] == "advertise":
                await node.advertise(order["topic"], order["schema"])
                _say({"advertised": order["topic"]})
            elif order["do"] == "subscribe":
                route = order.get("route", "auto")
                made = [
                    node.subscribe(order["topic"], text, route=route, timeout=SECONDS)
                    for text in order["filters"]
                ]
                for events in await asyncio.gather(*made):
                    consumers.append(asyncio.create_task(_take(events)))
                _say({"subscribed": len(consumers)})
            elif order["do"] == "status":
                _say(node.status())
            elif order["do"] == "publish":
                await _publish(node, order["topic"], order["events"])
            elif order["do"] == "stop":
                return
    finally:
        for task in consumers:
            task.cancel()
        await asyncio.gather(*consumers, return_exceptions=True)


async def _take(events: gossamer.Subscription) -> None:
    async for _ in events:
        # The trace records the event. Here it only has to be taken.
        pass


async def _publish(node: gossamer.Node, topic: str, events: list[dict[str, Any]]) -> None:
    """Publish all events in waves, and report the completed receipts."""
    matched = 0
    for start in range(0, len(events), PROGRESS_EVERY):
        receipts = [
            await node.publish(topic, event) for event in events[start : start + PROGRESS_EVERY]
        ]
        for receipt in receipts:
            matched += (await receipt).matched
        _say({"completed": start + len(receipts), "matched": matched})
    _say({"published": len(events), "matched": matched})


def _say(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(worker.main(standalone_mode=False))
