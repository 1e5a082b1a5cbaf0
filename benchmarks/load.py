"""Load: many node processes on loopback that publish and subscribe, with many content filters and
churn.

    python benchmarks/load.py                  50 processes, 200,000 events, 5,000 filters (minutes)
    python benchmarks/load.py --nodes 8 --events 5000 --filters 200
    python benchmarks/load.py --json > load.json
    python benchmarks/load.py --out load       keeps the traces, for gossamer pipeline verify

All nodes publish at the same time, in lists of 100 events. Meanwhile each node closes one of its
subscriptions after the other and makes a new one with another filter. Every node writes a trace.
When all receipts are complete, Spark reads the filters' text and decides which events each
subscription should have got. Exit code 1 if an event is missed, duplicate, spurious or without a
receipt, or if the publishers' receipts and the traces count different numbers of hand-overs.

Rates cover the time from the order to publish until the last receipt of the last node is complete.
Memory is the peak of each process, as the kernel reports it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import resource
import secrets
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import gossamer

TOPIC = "files"
SCHEMA = "name STRING, kind STRING, size BIGINT, price DOUBLE"
KINDS = ("dsc", "orig", "debian", "diff")
SIZE_MAX = 1_000_000
# Events that are published together.
LIST = 100
# The most lists of a node without a receipt.
LISTS_OPEN = 4
# The seconds between two changes of a node's subscriptions.
CHURN_PAUSE = 0.2
# Nodes that start at a time. Each is a Python interpreter that has to start.
STARTED_AT_ONCE = 4
# The seconds that any one answer of a node may take.
SECONDS = 900.0


def filters(seed: int, count: int) -> list[str]:
    """Content filters: points, ranges, lists, prefixes. A handful of them match each event."""
    rng = Random(f"load filters {seed}")
    found = []
    for number in range(count):
        name, other, kind = _name(rng, count), _name(rng, count), rng.choice(KINDS)
        size = rng.randrange(SIZE_MAX)
        match number % 10:
            case 0 | 1 | 2 | 3:
                text = f"name = '{name}' AND kind = '{kind}'"
            case 4 | 5:
                text = f"name = '{name}' AND size > {size}"
            case 6 | 7:
                text = f"kind = '{kind}' AND size BETWEEN {size} AND {size + 4 * SIZE_MAX // count}"
            case 8:
                text = f"name IN ('{name}', '{other}') AND price < {rng.randrange(1, 100)}.5"
            case _:
                text = f"name LIKE '{name[:-1]}%' AND size < {size // 4}"
        found.append(text)
    return found


def events(seed: int, node: int, count: int, names: int) -> list[dict[str, Any]]:
    rng = Random(f"load events {seed} {node}")
    return [
        {
            "name": _name(rng, names), "kind": rng.choice(KINDS), "size": rng.randrange(SIZE_MAX),
            "price": rng.randrange(10_000) / 100,
        }
        for _ in range(count)
    ]  # fmt: skip


def _name(rng: Random, names: int) -> str:
    return f"file-{rng.randrange(names):06d}"


# One node process.


class Worker:
    """A node that reads its orders as JSON lines and ends when its input ends."""

    def __init__(self, about: dict[str, Any]) -> None:
        self._about = about
        self._rng = Random(f"load churn {about['seed']} {about['number']}")
        self._texts = filters(about["seed"], about["filters"])
        self._subscriptions: list[gossamer.Subscription] = []
        self._consumers: set[asyncio.Task[None]] = set()
        self._taken = self._churned = 0

    async def run(self) -> None:
        about = self._about
        async with gossamer.Node(
            join=about["join"],
            trace_dir=about["traces"],
            fabric=about["fabric"],
            k=4,
            join_timeout=SECONDS,
        ) as node:
            say({"address": node.address})
            reader = asyncio.StreamReader()
            await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
            )
            while line := await reader.readline():
                match line.decode().strip():
                    case "advertise":
                        await node.advertise(TOPIC, SCHEMA)
                        say({})
                    case "subscribe":
                        own = self._texts[about["number"] :: about["nodes"]]
                        for one in await node.subscribe_many(TOPIC, own, timeout=SECONDS):
                            self._follow(one)
                        say({"subscribed": len(own)})
                    case "publish":
                        say(await self._publish_all(node))
                    case "stop":
                        break
            say(
                {
                    "taken": self._taken,
                    "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                }
            )
        for task in self._consumers:
            task.cancel()

    def _follow(self, subscription: gossamer.Subscription) -> None:
        self._subscriptions.append(subscription)
        task = asyncio.create_task(self._take(subscription))
        self._consumers.add(task)
        task.add_done_callback(self._consumers.discard)

    async def _take(self, subscription: gossamer.Subscription) -> None:
        async for some in subscription.lists():
            self._taken += len(some)

    async def _publish_all(self, node: gossamer.Node) -> dict[str, Any]:
        about = self._about
        rows = events(about["seed"], about["number"], about["events"], about["filters"])
        churning = asyncio.create_task(self._churn(node))
        began, matched = time.monotonic(), 0
        waiting: deque[Any] = deque()
        for start in range(0, len(rows), LIST):
            waiting.append(await node.publish_batch(TOPIC, rows[start : start + LIST]))
            if len(waiting) >= LISTS_OPEN:
                matched += sum((await waiting.popleft()).matched)
        for receipt in waiting:
            matched += sum((await receipt).matched)
        seconds = time.monotonic() - began
        churning.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await churning
        return {
            "published": len(rows),
            "matched": matched,
            "churned": self._churned,
            "seconds": seconds,
        }

    async def _churn(self, node: gossamer.Node) -> None:
        """Close one subscription after the other, and make another for each."""
        while True:
            place = self._rng.randrange(len(self._subscriptions))
            await self._subscriptions.pop(place).close()
            self._follow(
                await node.subscribe(TOPIC, self._rng.choice(self._texts), timeout=SECONDS)
            )
            self._churned += 1
            await asyncio.sleep(CHURN_PAUSE)


def say(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


# The fabric of all processes.


class Process:
    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process, self._log = process, log
        self.address = ""

    @classmethod
    async def start(cls, log: Path, about: dict[str, Any]) -> Process:
        pipe = asyncio.subprocess.PIPE
        with log.open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                __file__,
                "--worker",
                json.dumps(about),
                stdin=pipe,
                stdout=pipe,
                stderr=errors,
            )
        self = cls(process, log)
        try:
            self.address = (await self.answer())["address"]
        except BaseException:
            await self.end()
            raise
        return self

    async def ask(self, order: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(order.encode() + b"\n")
        return await self.answer()

    async def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), SECONDS)
        if not line:
            words = self._log.read_text(errors="replace").strip().splitlines()
            raise SystemExit(
                f"node {self.address or self._process.pid} ended early: "
                f"{words[-1] if words else 'no message'}"
            )
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def left(self) -> None:
        """Wait for the end of a process that was told to stop. Its trace is whole then."""
        if code := await asyncio.wait_for(self._process.wait(), SECONDS):
            raise SystemExit(f"node {self.address} ended with exit code {code}")

    async def end(self) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        await self._process.communicate()


Say = Callable[[str], None]


async def live(given: argparse.Namespace, folder: Path, note: Say) -> dict[str, Any]:
    """Run the fabric from its start to its end, and return its own figures."""
    about = {
        "nodes": given.nodes, "filters": given.filters, "seed": given.seed,
        "traces": str(folder / "traces"),
        "fabric": f"load-{secrets.token_hex(8)}",
    }  # fmt: skip
    shares = [
        given.events // given.nodes + (number < given.events % given.nodes)
        for number in range(given.nodes)
    ]
    processes: list[Process] = []

    async def start(number: int) -> None:
        join = [process.address for process in processes[:1]]
        own = {**about, "number": number, "events": shares[number], "join": join}
        processes.append(await Process.start(folder / f"node-{number}.log", own))

    async def everyone(order: str) -> list[dict[str, Any]]:
        return await asyncio.gather(*(process.ask(order) for process in processes))

    try:
        began = time.monotonic()
        await start(0)
        for first in range(1, given.nodes, STARTED_AT_ONCE):
            await asyncio.gather(
                *(
                    start(number)
                    for number in range(first, min(first + STARTED_AT_ONCE, given.nodes))
                )
            )
        started = time.monotonic() - began
        note(f"{given.nodes} node processes after {started:.1f} s")
        await processes[0].ask("advertise")
        began = time.monotonic()
        subscribed = sum(answer["subscribed"] for answer in await everyone("subscribe"))
        subscribing = time.monotonic() - began
        note(f"{subscribed:,} subscriptions in force after {subscribing:.1f} s more; publishing")
        began = time.monotonic()
        published = await everyone("publish")
        publishing = time.monotonic() - began
        note(f"{given.events:,} events have their receipts after {publishing:.1f} s")
        stopped = await everyone("stop")
        await asyncio.gather(*(process.left() for process in processes))
    finally:
        await asyncio.gather(*(process.end() for process in processes))
    matched, memory = (
        sum(one["matched"] for one in published),
        [one["memory_mb"] for one in stopped],
    )
    return {
        "nodes": given.nodes, "filters": subscribed,
        "events": sum(one["published"] for one in published),
        "subscriptions_churned": sum(one["churned"] for one in published),
        "receipts_matched": matched,
        "start_s": round(started, 1), "subscribe_s": round(subscribing, 1),
        "publish_s": round(publishing, 1),
        "events_per_s": round(given.events / publishing),
        "hand_overs_per_s": round(matched / publishing),
        "memory_mb_all": round(sum(memory)), "memory_mb_max": round(max(memory), 1),
    }  # fmt: skip


def judge(traces: Path, note: Say) -> dict[str, Any]:
    from gossamer.pipeline.session import session
    from gossamer.pipeline.verify import verify

    size = sum(path.stat().st_size for path in traces.glob("*.jsonl"))
    note(f"Spark judges {size / 1e6:,.0f} MB of traces")
    began = time.monotonic()
    conf = {"spark.driver.memory": "4g", "spark.sql.shuffle.partitions": "8"}
    with session("gossamer-load", conf=conf) as spark:
        verdict = verify(spark, traces)
    for example in verdict.examples:
        note(
            f"{example.what}: event {example.event} {example.values} for {example.filter!r} of "
            f"node {example.node}"
        )
    names = (
        "expected",
        "delivered",
        "allowed",
        "missed",
        "duplicate",
        "spurious",
        "incomplete",
        "broken",
    )
    return {
        **{name: getattr(verdict, name) for name in names},
        "latency_ms_p50": verdict.latency_ms_p50, "latency_ms_p99": verdict.latency_ms_p99,
        "traces_mb": round(size / 1e6), "judge_s": round(time.monotonic() - began, 1),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=50, help="node processes")
    parser.add_argument("--events", type=int, default=200_000, help="over all nodes")
    parser.add_argument("--filters", type=int, default=5_000, help="over all nodes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--out", type=Path, help="a new folder for traces and logs; they are removed without it"
    )
    parser.add_argument("--json", action="store_true", dest="as_json")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        gossamer.run(Worker(json.loads(given.worker)).run())
        return 0
    if not 2 <= given.nodes <= given.filters:
        parser.error("--nodes must be 2 or more, and there must be a filter for each")
    if given.out is not None and given.out.exists():
        parser.error(f"{given.out} exists already; choose a new folder with --out")

    def note(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    with contextlib.ExitStack() as stack:
        folder = given.out or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "traces").mkdir(parents=True)
        note(
            f"gossamer {gossamer.__version__}, Python {platform.python_version()}, "
            f"{os.cpu_count()} cores, seed {given.seed}"
        )
        found = gossamer.run(live(given, folder, note))
        found |= judge(folder / "traces", note)
    wrong = sum(found[name] for name in ("missed", "duplicate", "spurious", "incomplete", "broken"))
    found["ok"] = not wrong and found["receipts_matched"] == found["delivered"] + found["allowed"]
    if given.as_json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:<22} {value:,}" if isinstance(value, int) else f"{name:<22} {value}")
    return 0 if found["ok"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
