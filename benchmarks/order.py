"""Ordered and durable subscriptions: events a second.

    python benchmarks/order.py                 # five rounds of each kind: about half a minute
    python benchmarks/order.py --rounds 1 --events 50000

A publisher and a subscriber are two nodes of one process. The publisher publishes batches of 1,000
events, and the subscriber takes them as lists. A durable subscription acknowledges each list, on a
disk in the system's temporary folder. The order is checked where it is asked for. Figures are
medians over the rounds, and a round runs every kind.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from typing import Any

import gossamer

BATCH = 1000
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "ordered": {"ordered": True},
    "durable": {"name": "x"},
    "durable, ordered": {"name": "x", "ordered": True},
}


async def measure(kind: str, count: int, directory: str) -> float:
    """Events a second."""
    options = KINDS[kind]
    async with (
        gossamer.Node() as publisher,
        gossamer.Node(
            join=[publisher.address], data_dir=directory if "name" in options else None
        ) as subscriber,
    ):
        await publisher.advertise("numbers", "n INT, text STRING")

        async def publish() -> None:
            for first in range(0, count, BATCH):
                rows = [{"n": n, "text": "a few bytes"} for n in range(first, first + BATCH)]
                await publisher.publish_batch("numbers", rows)

        async with subscriber.subscribe("numbers", **options) as events:
            start = time.perf_counter()
            publishing = asyncio.create_task(publish())
            came = 0
            async for some in events.lists():
                if "ordered" in options:
                    assert [event["n"] for event in some] == list(range(came, came + len(some)))
                came += len(some)
                if "name" in options:
                    await events.ack(some[-1], through=True)
                if came == count:
                    break
            seconds = time.perf_counter() - start
            await publishing
    return count / seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Ordered and durable subscriptions: events a second."
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--events", type=int, default=200_000)
    options = parser.parse_args()
    count = -(-options.events // BATCH) * BATCH
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(options.rounds):
        for kind, rates in found.items():
            with tempfile.TemporaryDirectory() as directory:
                rates.append(gossamer.run(measure(kind, count, directory)))
    for kind, rates in found.items():
        print(f"{kind:18}{statistics.median(rates):12,.0f} events/s")


if __name__ == "__main__":
    main()
