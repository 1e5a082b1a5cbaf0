"""Thirty processes on loopback, a third of them killed while subscriptions churn.

The views of the others agree.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gossamer.net import admin

pytestmark = [pytest.mark.live, pytest.mark.slow]

PROCESSES, KILLED, SECONDS = 30, 10, 90.0

CHURN = """
import asyncio, random, sys
import gossamer
from gossamer.net import admin

async def main(join, seed):
    rng = random.Random(seed)
    async with gossamer.Node(join=join) as node:
        for topic in range(8):
            await node.advertise(f"topic-{topic}", "n INT")
        server, path = await admin.serve(node.address, node.answer)
        print(node.address, flush=True)
        held = []
        # A line ends the churn.
        stop = asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        while not stop.done():
            if held and rng.random() < 0.5:
                await held.pop(rng.randrange(len(held))).close()
            else:
                held.append(await node.subscribe(f"topic-{rng.randrange(8)}"))
            await asyncio.sleep(0.02)
        print("quiet", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        server.close()

gossamer.run(main(sys.argv[2:], int(sys.argv[1])))
"""


def start(seed: int, join: list[str], script: Path) -> subprocess.Popen[str]:
    command = [sys.executable, str(script), str(seed), *join]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def status(address: str) -> dict[str, Any]:
    return admin.ask(admin.find(address), {"do": "status"})


def wait_for(condition: Any, what: str) -> None:
    until = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.1)


def test_thirty_processes_a_third_of_them_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    script = tmp_path / "churn.py"
    script.write_text(CHURN)
    processes: list[subprocess.Popen[str]] = []
    try:
        first = start(0, [], script)
        processes.append(first)
        assert first.stdout is not None
        join = [first.stdout.readline().strip()]
        processes += [start(seed, join, script) for seed in range(1, PROCESSES)]
        addresses = join + [
            (process.stdout and process.stdout.readline().strip()) or ""
            for process in processes[1:]
        ]
        assert all(addresses)
        wait_for(
            lambda: all(status(address)["members"] == PROCESSES for address in addresses),
            "they do not find each other",
        )
        for process in processes[1 : KILLED + 1]:
            os.kill(process.pid, signal.SIGKILL)
        alive = [
            (process, address)
            for process, address in zip(processes, addresses, strict=True)
            if process not in processes[1 : KILLED + 1]
        ]
        for process, _ in alive:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline().strip() == "quiet"

        def agree() -> bool:
            all_status = [status(address) for _, address in alive]
            return len({one["view"]["digest"] for one in all_status}) == 1 and {
                one["members"] for one in all_status
            } == {PROCESSES - KILLED}

        wait_for(agree, "their views do not agree")
        truth: dict[str, set[str]] = {}
        for _, address in alive:
            one = status(address)
            for subscription in one["subscriptions"]:
                truth.setdefault(subscription["topic"], set()).add(one["node"])
        seen: dict[str, set[str]] = {}
        for line in admin.lines(admin.find(alive[-1][1]), {"do": "view"}):
            seen.setdefault(line["topic"], set()).add(line["node"])
        assert seen == truth
        assert all(not status(address)["suspects"] for _, address in alive)
        linked = {
            one["node"]: {link["peer"] for link in one["links"]}
            for one in (status(address) for _, address in alive)
        }
        assert min(map(len, linked.values())) >= 6, json.dumps(
            {node: len(links) for node, links in linked.items()}
        )
    finally:
        for process in processes:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()
