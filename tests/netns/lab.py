"""Hosts for tests: each has a network namespace and one node, and one switch joins them.

All of it is gone afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Self

from keynet import Fabric
from netns.host import SECONDS
from netns.switch import mac

HERE = Path(__file__).parent
STOP_SECONDS = 60.0


def why_not() -> str:
    """Why there can be no such hosts on this machine; "" if there can."""
    if not sys.platform.startswith("linux"):
        return "network namespaces are Linux's"
    if os.geteuid():
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need the program ip (iproute2)"
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "the switch between the namespaces needs /dev/net/tun"
    name = f"gossamer-{secrets.token_hex(4)}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode:
        return f"network namespaces cannot be made here: {made.stderr.strip()}"
    _ip("netns", "del", name)
    return ""


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


class Program:
    """A process that is told things and answers, a line each."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self.process, self._log = process, log

    @classmethod
    async def start(cls, log: Path, *command: str) -> Self:
        with log.open("ab") as errors:
            pipe = asyncio.subprocess.PIPE
            process = await asyncio.create_subprocess_exec(
                *command, stdin=pipe, stdout=pipe, stderr=errors,
                # Signals to the test's group are not for them. They end when their input does.
                start_new_session=True,
            )  # fmt: skip
        self = cls(process, log)
        self.first = await self.answer()
        return self

    async def ask(self, **order: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order).encode() + b"\n")
        return await self.answer()

    async def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = await asyncio.wait_for(self.process.stdout.readline(), SECONDS)
        assert line, f"it ended: {self._log.read_text()[-2000:]}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def end(self) -> None:
        """However it is: stopped, running or gone."""
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
        await self.process.communicate()


class Host:
    """One namespace with an interface and an address, and the node in it."""

    def __init__(self, lab: Lab, number: int) -> None:
        self.lab, self.number = lab, number
        self.namespace = f"{lab.name}-{number}"
        self.address = f"10.77.0.{number + 1}:7400"
        self.home = lab.base / f"host-{number}"
        self.node: Program | None = None

    def up(self) -> None:
        _ip("-n", self.namespace, "link", "set", "lo", "up")
        _ip("-n", self.namespace, "link", "set", "eth0", "address", mac(self.number))
        _ip("-n", self.namespace, "addr", "add", f"10.77.0.{self.number + 1}/24", "dev", "eth0")
        self.cable(plugged=True)

    def cable(self, *, plugged: bool) -> None:
        _ip("-n", self.namespace, "link", "set", "eth0", "up" if plugged else "down")

    async def start(self, *join: Host) -> None:
        self.home.mkdir(exist_ok=True)
        about = {
            "host": self.number, "listen": self.address,
            "join": [host.address for host in join], "home": str(self.home),
            "traces": str(self.lab.traces), "keys": str(self.lab.keys(self.number)),
        }  # fmt: skip
        program = (sys.executable, str(HERE / "host.py"), json.dumps(about))
        self.node = await Program.start(
            self.home / "log", "ip", "netns", "exec", self.namespace, *program
        )

    async def ask(self, **order: Any) -> dict[str, Any]:
        assert self.node is not None
        return await self.node.ask(**order)

    async def kill(self) -> None:
        assert self.node is not None
        await self.node.end()

    async def members(self) -> int:
        return int((await self.ask(do="members"))["members"])

    def accepted(self) -> set[int]:
        """Numbers of the events that this host's node accepted, in all its lives."""
        path = self.home / "accepted"
        return {int(line) for line in _lines(path)}

    def seen(self, name: str) -> set[tuple[int, int]]:
        """What one of its durable subscriptions was handed: (host, number)."""
        pairs = (
            line.split(" ")
            for line in _lines(self.home / f"seen-{name}")
            if not line.startswith("gap")
        )
        return {(int(host), int(number)) for host, number in pairs}


def _lines(path: Path) -> list[str]:
    # A kill may tear the last line.
    return path.read_text().split("\n")[:-1] if path.exists() else []


class Lab:
    """``async with Lab(folder, 5) as lab``: hosts with their cables plugged, and no nodes yet."""

    def __init__(self, base: Path, size: int) -> None:
        self.base, self.traces = base, base / "traces"
        self.name = f"gossamer-{secrets.token_hex(4)}"
        self.hosts = [Host(self, number) for number in range(size)]
        self._fabric = Fabric(base, "keys")
        self._keys: dict[int, Path] = {}
        self._switch: Program | None = None

    def keys(self, number: int) -> Path:
        if number not in self._keys:
            self._keys[number] = self._fabric.issue(f"host-{number}")
        return self._keys[number]

    async def __aenter__(self) -> Self:
        try:
            for host in self.hosts:
                _ip("netns", "add", host.namespace)
            names = json.dumps([host.namespace for host in self.hosts])
            self._switch = await Program.start(
                self.base / "switch.log", sys.executable, str(HERE / "switch.py"), names
            )
            for host in self.hosts:
                host.up()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        for host in self.hosts:
            if host.node is not None:
                await host.node.end()
        if self._switch is not None:
            # The end of its input makes it remove the namespaces.
            await self._switch.process.communicate(b"")
        # This is for a switch that could not do so.
        for host in self.hosts:
            subprocess.run(["ip", "netns", "del", host.namespace], capture_output=True, check=False)

    async def weather(self, **how: Any) -> None:
        """How every way is; those that a test has cut are whole again."""
        size = range(len(self.hosts))
        await self.ways([(a, b) for a in size for b in size if a != b], **how)

    async def ways(self, paths: list[tuple[int, int]], **how: Any) -> None:
        assert self._switch is not None
        await self._switch.ask(paths=paths, **how)

    async def counts(self) -> dict[str, int]:
        assert self._switch is not None
        return await self._switch.ask(count=True)

    async def stop(self) -> None:
        """Every node leaves politely, so that its trace is whole."""

        async def one(host: Host) -> None:
            assert host.node is not None
            assert await host.ask(do="stop") == {"stopped": True}
            assert await asyncio.wait_for(host.node.process.wait(), STOP_SECONDS) == 0

        await asyncio.gather(*(one(host) for host in self.hosts))


async def until(condition: Callable[[], Any], what: str) -> None:
    """Wait for what processes bring about."""
    async with _limit(what):
        while True:
            met = condition()
            if await met if asyncio.iscoroutine(met) else met:
                return
            await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def _limit(what: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(SECONDS):
            yield
    except TimeoutError:
        raise AssertionError(f"not within {SECONDS:g} s: {what}") from None
