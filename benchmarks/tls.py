"""The cost of keys: one publisher process and one subscriber process on loopback, with TLS and
without.

    python benchmarks/tls.py [--rounds 5] [--events 100000] [--json]

The rounds are interleaved. Events have four attributes and receipts are on; a round trip is an
event there and another one back. The CPU time of a handshake, both ends in one process, and of the
check of a certificate are measured as well.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import gossamer
from gossamer.net.authority import create
from gossamer.net.keys import Keys
from gossamer.net.tls import Session

SCHEMA = "id BIGINT, city STRING, temp DOUBLE, country STRING"
TRIPS = 1000


def event(number: int) -> dict[str, Any]:
    return {"id": number, "city": "Geneva", "temp": 21.5, "country": "CH"}


async def subscriber(join: str, keys: str | None, events: int) -> None:
    async with (
        gossamer.Node(join=[join], keys=keys) as node,
        node.subscribe("flow") as flow,
        node.subscribe("ping") as ping,
    ):
        print("ready", flush=True)
        for _ in range(events):
            await anext(flow)
        print("all", flush=True)
        for _ in range(TRIPS):
            one = await anext(ping)
            await node.publish("pong", dict(one))
        print("done", flush=True)
        await asyncio.to_thread(sys.stdin.readline)


async def one_round(keys: tuple[str, str] | None, events: int) -> dict[str, float]:
    async with gossamer.Node(keys=keys[0] if keys else None) as node:
        for topic in ("flow", "ping", "pong"):
            await node.advertise(topic, SCHEMA)
        command = [sys.executable, __file__, "--subscribe", node.address, "--events", str(events)]
        child = await asyncio.create_subprocess_exec(
            *command,
            *(["--keys", keys[1]] if keys else []),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert child.stdout is not None
        assert child.stdin is not None
        assert await child.stdout.readline() == b"ready\n"
        async with node.subscribe("pong") as pong:
            began, worked = time.perf_counter(), time.process_time()
            receipts = [await node.publish("flow", event(number)) for number in range(events)]
            assert await child.stdout.readline() == b"all\n"
            took, worked = time.perf_counter() - began, time.process_time() - worked
            assert sum([(await receipt).matched for receipt in receipts]) == events, (
                "events were lost"
            )
            trips = []
            tripping = time.process_time()
            for number in range(TRIPS):
                began = time.perf_counter()
                await node.publish("ping", event(number))
                await anext(pong)
                trips.append((time.perf_counter() - began) * 1e6)
            tripping = time.process_time() - tripping
        child.stdin.write(b"\n")
        await child.wait()
    return {
        "events_per_second": events / took, "cpu_us_per_event": worked / events * 1e6,
        "round_trip_us": statistics.median(trips), "round_trip_cpu_us": tripping / TRIPS * 1e6,
    }  # fmt: skip


def handshakes(keys: Keys) -> float:
    """Microseconds of CPU for a whole handshake, both ends."""
    began = time.process_time()
    for _ in range(200):
        ends = (
            Session(keys.context(server=False), server=False),
            Session(keys.context(server=True), server=True),
        )
        ends[0].start()
        while not (ends[0].established and ends[1].established):
            for here, there in (ends, ends[::-1]):
                if data := here.take():
                    there.receive(data)
    return (time.process_time() - began) / 200 * 1e6


def proofs(keys: Keys) -> float:
    """Microseconds of CPU to check a certificate that came with a record."""
    began = time.process_time()
    for _ in range(1000):
        assert keys.prove(keys.identity.certificate) is not None
    return (time.process_time() - began) / 1000 * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--subscribe", help=argparse.SUPPRESS)
    parser.add_argument("--keys", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.subscribe:
        gossamer.run(subscriber(given.subscribe, given.keys, given.events))
        return
    found: dict[str, list[dict[str, float]]] = {"plain": [], "tls": []}
    with tempfile.TemporaryDirectory() as base:
        authority = create(Path(base) / "authority")
        paths = [Path(base) / name for name in ("a", "b")]
        for path in paths:
            authority.issue(path.name, path, publish=["*"], subscribe=["*"])
        for number in range(given.rounds):
            for name in ("plain", "tls") if number % 2 else ("tls", "plain"):
                keys = (str(paths[0]), str(paths[1])) if name == "tls" else None
                found[name].append(gossamer.run(one_round(keys, given.events)))
        own = Keys(paths[0])
        extra = {
            "handshake_cpu_us": round(handshakes(own)),
            "certificate_check_cpu_us": round(proofs(own)),
        }
    medians = {
        name: {key: round(statistics.median(one[key] for one in rounds), 1) for key in rounds[0]}
        for name, rounds in found.items()
    }
    ratio = {key: round(medians["tls"][key] / medians["plain"][key], 3) for key in medians["plain"]}
    result = {
        "rounds": given.rounds,
        "events": given.events,
        **medians,
        "tls_to_plain": ratio,
        **extra,
    }
    if given.json:
        print(json.dumps(result))
        return
    print(
        f"medians of {given.rounds} interleaved rounds of {given.events:,} events; nothing lost; "
        "CPU is the publisher's"
    )
    print(
        f"{'':>6}",
        *(f"{one:>12}" for one in ("events/s", "CPU µs/event", "trip p50 µs", "CPU µs/trip")),
    )
    for name, one in (*medians.items(), ("ratio", ratio)):
        cells = [
            f"{one[key]:>12,}"
            for key in (
                "events_per_second",
                "cpu_us_per_event",
                "round_trip_us",
                "round_trip_cpu_us",
            )
        ]
        print(f"{name:>6}", *cells)
    print(
        f"CPU: {extra['handshake_cpu_us']:,} µs a handshake, both ends; "
        f"{extra['certificate_check_cpu_us']:,} µs a certificate"
    )


if __name__ == "__main__":
    main()
