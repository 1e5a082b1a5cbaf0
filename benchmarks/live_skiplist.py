"""The seed's experiment with real instances (001, section 4): 1,000 entries over many node
processes on loopback.

Every event walks the skip list over TCP. Beside it stand the simulator's figures for the same
filters and events, with the same number of entries in each node, and with one entry in each node as
in the seed.

    python benchmarks/live_skiplist.py     20 processes, 1,000 entries, 2,500 events (a few minutes)
    python benchmarks/live_skiplist.py --processes 5 --entries 100 --events 200
    python benchmarks/live_skiplist.py --json

Hops are counted to the farthest end of each event's walks, also for unmatched events. Noise is the
share of all events that came to the hottest node although it did not want them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import sys
import tempfile
import time
from collections import Counter
from math import ceil, log2
from pathlib import Path
from typing import Any

import gossamer
from gossamer.cli.fabric import Fabric, Process
from gossamer.lab.skiplist.config import Setup
from gossamer.lab.skiplist.measure import measure
from gossamer.lab.skiplist.workload import SCHEMA, Oracle, make

TOPIC = "files"
WEAVE_SECONDS = 300


async def live(setup: Setup, processes: int, say: Any) -> dict[str, Any]:
    workload = make(setup)
    rows = [SCHEMA.values(row) for row in workload.rows]
    texts = [filter.text for filter in workload.filters]
    oracle = Oracle(workload.filters)
    expected = sum(len(oracle.wants(row)) for row in workload.rows)
    with tempfile.TemporaryDirectory() as folder:
        async with Fabric(processes, Path(folder)) as fabric:
            nodes = fabric.processes
            nodes[0].tell({"do": "advertise", "topic": TOPIC, "schema": SCHEMA.text})
            await nodes[0].answer()
            began = time.monotonic()
            for index, node in enumerate(nodes):
                node.tell(
                    {
                        "do": "subscribe",
                        "topic": TOPIC,
                        "filters": texts[index::processes],
                        "route": "skiplist",
                    }
                )
            for node in nodes:
                await node.answer()
            joined = time.monotonic() - began
            say(f"{len(texts):,} subscriptions in force after {joined:.1f} s")
            woven = await _woven(nodes)
            say(f"every entry has all its links after {woven:.1f} s more")
            began = time.monotonic()
            for index, node in enumerate(nodes):
                node.tell({"do": "publish", "topic": TOPIC, "events": rows[index::processes]})
            matched = 0
            for node in nodes:
                while "published" not in (answer := await node.answer()):
                    pass
                matched += answer["matched"]
            published = time.monotonic() - began
            hops: Counter[int] = Counter()
            noise: list[int] = []
            for node in nodes:
                node.tell({"do": "status"})
                about = (await node.answer())["skiplist"]
                hops.update({int(count): number for count, number in about["hops"].items()})
                noise.append(about["topics"][TOPIC]["noise"])
    events = sum(hops.values())
    return {
        "processes": processes, "entries": len(texts), "events": events, "expected": expected,
        "delivered": matched,
        "hops_mean": round(sum(count * number for count, number in hops.items()) / max(1, events),
            3), "hops_max": max(hops),
        "noise_max_percent": round(100 * max(noise) / max(1, events), 2),
        "join_s": round(joined, 1),
        "woven_s": round(woven, 1),
        "events_per_s": round(events / published),
    }  # fmt: skip


async def _woven(nodes: list[Process]) -> float:
    """Wait until every entry has the links of a perfect list. Return the seconds."""
    began = time.monotonic()
    while time.monotonic() - began < WEAVE_SECONDS:
        found: set[int] = set()
        entries = 0
        for node in nodes:
            node.tell({"do": "status"})
            about = (await node.answer())["skiplist"]["topics"][TOPIC]
            found.update(about["links"])
            entries += about["entries"]
        if min(found) >= 2 * ceil(log2(entries)):
            return time.monotonic() - began
        await asyncio.sleep(1.0)
    raise SystemExit(
        f"after {WEAVE_SECONDS} s the {entries} entries have {sorted(found)} links each"
    )


def simulated(setup: Setup) -> dict[str, Any]:
    found = measure(setup)
    return {
        "processes": setup.nodes, "entries": setup.entries, "events": setup.events,
        "expected": found.expected,
        "delivered": found.delivered, "hops_mean": found.hops.mean, "hops_max": found.hops.max,
        "noise_max_percent": round(100 * found.noise.max, 2),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", type=int, default=20)
    parser.add_argument("--entries", type=int, default=1_000)
    parser.add_argument("--events", type=int, default=2_500)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", action="store_true", dest="as_json")
    given = parser.parse_args()

    def say(text: str) -> None:
        print(text, file=sys.stderr if given.as_json else sys.stdout, flush=True)

    say(
        f"gossamer {gossamer.__version__}, Python {platform.python_version()}, {given.processes} "
        f"processes, seed {given.seed}"
    )
    one = Setup(entries=given.entries, events=given.events, seed=given.seed)
    many = Setup(
        entries=given.entries,
        events=given.events,
        seed=given.seed,
        per_node=-(-given.entries // given.processes),
    )
    found = {
        "live": asyncio.run(live(one, given.processes, say)),
        "simulated": simulated(many),
        "simulated_one_a_node": simulated(one),
    }
    if given.as_json:
        print(json.dumps(found))
    else:
        for name, figures in found.items():
            say(f"{name:<22} " + "  ".join(f"{key} {value}" for key, value in figures.items()))
    complete = all(figures["delivered"] == figures["expected"] for figures in found.values())
    return 0 if complete else 1


if __name__ == "__main__":
    raise SystemExit(main())
