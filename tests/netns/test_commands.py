"""The commands of docs/security.md, each on a host of its own: a subscriber and a publisher that
listen on loopback only.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from livenet import run
from netns.lab import Host, Lab, why_not

pytestmark = [pytest.mark.live, pytest.mark.slow]


async def gossamer(host: Host, *arguments: str) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        "ip", "netns", "exec", host.namespace, sys.executable, "-m", "gossamer", *arguments,
        "--keys", str(host.lab.keys(host.number)), stdout=pipe, stderr=pipe,
        env=os.environ | {"XDG_RUNTIME_DIR": str(host.lab.base)},
    )  # fmt: skip


def test_an_event_goes_from_one_host_to_another_whose_commands_listen_nowhere(
    tmp_path: Path,
) -> None:
    if reason := why_not():
        pytest.skip(reason)

    async def main() -> None:
        async with Lab(tmp_path, 3) as lab:
            station, reader, writer = lab.hosts
            topic = "weather=city STRING, temp INT"
            node = await gossamer(station, "node", "--listen", station.address, "--topic", topic)
            try:
                assert node.stdout is not None
                assert b"listens on" in await node.stdout.readline()
                events = await gossamer(
                    reader, "subscribe", "weather", "temp > 30", "--join", station.address,
                    "--limit", "1", "--json",
                    "--timeout", "30",
                )  # fmt: skip
                assert events.stderr is not None
                while b"subscribed" not in await events.stderr.readline():
                    pass
                event = json.dumps({"city": "Geneva", "temp": 31})
                sent = await gossamer(
                    writer, "publish", "weather", event, "--join", station.address, "--json"
                )
                told, _ = await sent.communicate()
                assert sent.returncode == 0
                assert json.loads(told)["matched"] == 1
                got, _ = await events.communicate()
                assert events.returncode == 0
                assert json.loads(got)["values"] == {"city": "Geneva", "temp": 31}
            finally:
                node.terminate()
                await node.communicate()

    run(asyncio.wait_for(main(), 90))
