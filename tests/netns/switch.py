"""A switch between network namespaces that does to frames the harm that bad networks do.

It knows delay, loss, duplication, reordering and one-way cuts.

It runs as a program, and JSON lines on standard input tell it what to do. It ends when its input
ends, and removes the namespaces. So they go in whatever way the test ends, killed included.

    python switch.py '["ns-1", "ns-2"]'        an interface eth0 (a TAP device) in each namespace
    {"paths": [[0, 1]], "delay_ms": 5, "jitter_ms": 5, "loss": 0.02, "duplicate": 0.02, "cut":
    false} {"count": true}

It stands in for a bridge with ``tc netem``, which cannot cut one direction between two hosts, and
which many kernels do not have. A frame that waits longer than the one after it (jitter) arrives
after it.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import json
import os
import selectors
import struct
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000
CLONE_NEWNET = 0x40000000
FRAME_MAX = 2048
# IPv4 and ARP. Hosts also talk IPv6 to nobody in particular.
KINDS = (b"\x08\x00", b"\x08\x06")
WAITING_MAX = 100_000


def mac(port: int) -> str:
    return f"02:00:00:00:00:{port + 1:02x}"


@dataclass
class Way:
    """From one host to another, in this direction only."""

    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    loss: float = 0.0
    duplicate: float = 0.0
    cut: bool = False


class Switch:
    def __init__(self, namespaces: list[str]) -> None:
        self.taps = [_tap(name) for name in namespaces]
        self.by_mac = {
            bytes.fromhex(mac(port).replace(":", "")): port for port in range(len(namespaces))
        }
        self.ways = {
            (a, b): Way() for a in range(len(namespaces)) for b in range(len(namespaces)) if a != b
        }
        self.counts = dict.fromkeys(("passed", "lost", "duplicated", "cut", "late"), 0)
        self._rng, self._waiting, self._number = Random(1), [], 0
        self._waiting: list[tuple[float, int, int, bytes]]

    def take(self, source: int) -> None:
        """All frames that a host has sent."""
        while True:
            try:
                frame = os.read(self.taps[source], FRAME_MAX)
            except BlockingIOError:
                return
            if frame[12:14] not in KINDS:
                continue
            target = self.by_mac.get(frame[:6])
            for port in range(len(self.taps)) if target is None else (target,):
                if port != source:
                    self._send(source, port, frame)

    def _send(self, source: int, target: int, frame: bytes) -> None:
        way, draw = self.ways[source, target], self._rng.random
        if way.cut:
            self.counts["cut"] += 1
        elif draw() < way.loss or len(self._waiting) > WAITING_MAX:
            self.counts["lost"] += 1
        else:
            copies = 1 + (draw() < way.duplicate)
            self.counts["duplicated"] += copies - 1
            for _ in range(copies):
                self._number += 1
                due = time.monotonic() + (way.delay_ms + draw() * way.jitter_ms) / 1000
                heapq.heappush(self._waiting, (due, self._number, target, frame))

    def deliver(self) -> float | None:
        """Frames whose time has come; returns how long until the next."""
        while self._waiting:
            due, _, target, frame = self._waiting[0]
            if (wait := due - time.monotonic()) > 0:
                return wait
            heapq.heappop(self._waiting)
            try:
                os.write(self.taps[target], frame)
                self.counts["passed"] += 1
            # The host's interface is down, or its queue is full.
            except OSError:
                self.counts["late"] += 1
        return None

    def obey(self, order: dict[str, Any]) -> dict[str, Any]:
        if "paths" in order:
            for a, b in order.pop("paths"):
                self.ways[a, b] = Way(**order)
        return self.counts


def _tap(namespace: str) -> int:
    """An interface in a namespace, of which the switch holds the other end.

    Frames come complete, with their checksums.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    home, there = (
        os.open(path, os.O_RDONLY) for path in ("/proc/self/ns/net", Path("/run/netns") / namespace)
    )
    try:
        if libc.setns(there, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter the namespace {namespace}")
        tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH", b"eth0", IFF_TAP | IFF_NO_PI))
        if libc.setns(home, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "cannot come back from a namespace")
    finally:
        os.close(home)
        os.close(there)
    return tap


def main() -> None:
    namespaces = json.loads(sys.argv[1])
    try:
        run(Switch(namespaces))
    finally:
        for name in namespaces:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def run(switch: Switch) -> None:
    poll = selectors.DefaultSelector()
    for port, tap in enumerate(switch.taps):
        poll.register(tap, selectors.EVENT_READ, port)
    poll.register(sys.stdin, selectors.EVENT_READ)
    print(json.dumps({"ready": len(switch.taps)}), flush=True)
    wait = None
    while True:
        for key, _ in poll.select(wait):
            if key.data is not None:
                switch.take(key.data)
            elif line := sys.stdin.readline():
                print(json.dumps(switch.obey(json.loads(line))), flush=True)
            else:
                return
        wait = switch.deliver()


if __name__ == "__main__":
    main()
