"""A fabric of real node processes on this machine, for the demo."""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
from pathlib import Path
from typing import Any, Self

from gossamer.net.node import NodeError

START_SECONDS = 30.0
ANSWER_SECONDS = 120.0
STOP_SECONDS = 15.0
LINE_MAX = 1 << 20


class FabricError(NodeError):
    """A node process of the demo did not follow its orders."""


class Process:
    """One node process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.address = ""

    @classmethod
    async def start(cls, join: list[str], trace_dir: Path, fabric: str) -> Self:
        joins = [part for address in join for part in ("--join", address)]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gossamer.cli.worker", *joins,
            "--trace-dir", str(trace_dir), "--fabric", fabric,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE, limit=LINE_MAX,
            # Ctrl-C is for this process. The node processes end when their input ends.
            start_new_session=True,
        )  # fmt: skip
        self = cls(process)
        self.address = (await self.answer(START_SECONDS))["address"]
        return self

    def tell(self, order: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")

    async def answer(self, timeout: float = ANSWER_SECONDS) -> dict[str, Any]:
        assert self._process.stdout is not None
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), timeout)
        except TimeoutError:
            raise FabricError(
                f"node {self.address or self._process.pid} said nothing for {timeout:g} s"
            ) from None
        if not line:
            assert self._process.stderr is not None
            words = (
                (await self._process.stderr.read()).decode(errors="replace").strip().splitlines()
            )
            said = words[-1] if words else "no message"
            raise FabricError(f"node {self.address or self._process.pid} ended early: {said}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def stop(self) -> None:
        """Ask the process to leave, and kill it if it does not."""
        if self._process.returncode is None and self._process.stdin is not None:
            self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.communicate(), STOP_SECONDS)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


class Fabric:
    """Several processes in one fabric. All others join the first one."""

    def __init__(self, size: int, trace_dir: Path) -> None:
        self.size, self.trace_dir = size, trace_dir
        # The random name keeps two demos on one machine apart.
        self.name = f"demo-{secrets.token_hex(8)}"
        self.processes: list[Process] = []

    async def __aenter__(self) -> Self:
        try:
            self.processes.append(await Process.start([], self.trace_dir, self.name))
            first = self.processes[0].address
            # Only a few start at a time, because each is a Python interpreter that has to start.
            for start in range(1, self.size, 4):
                some = range(start, min(start + 4, self.size))
                self.processes += await asyncio.gather(
                    *(Process.start([first], self.trace_dir, self.name) for _ in some)
                )
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await asyncio.gather(*(process.stop() for process in self.processes))
