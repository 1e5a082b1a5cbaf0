"""A node's local admin socket: who runs the node may ask what it does.

A Unix socket in a directory that only its owner can enter; one JSON request a line, one JSON answer a line. ``gossamer status``
finds the sockets of all nodes that this user runs on this machine.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

REQUEST_MAX = 1 << 16
ANSWER_SECONDS = 2.0


class AdminError(RuntimeError):
    """A node cannot be asked."""


def directory() -> Path:
    """Where this user's admin sockets are. Refuses a directory that somebody else could have put there."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    path = (
        Path(base) / "gossamer" if base and Path(base).is_dir() else Path(tempfile.gettempdir()) / f"gossamer-{os.getuid()}"
    )
    path.mkdir(mode=0o700, exist_ok=True)
    info = path.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid() or info.st_mode & 0o077:
        raise AdminError(f"{path} must be a directory of yours that nobody else can enter: chmod 700, or remove it")
    return path


async def serve(address: str, answer: Callable[[dict[str, Any]], dict[str, Any]]) -> tuple[asyncio.Server, Path]:
    """Listen for requests about the node at this address."""
    path = directory() / f"{address.replace(':', '_').replace('[', '').replace(']', '')}.sock"

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = await asyncio.wait_for(reader.readline(), ANSWER_SECONDS)
            try:
                request = json.loads(line)
                reply = answer(request if isinstance(request, dict) else {})
            except ValueError as error:
                reply = {"error": f"not a request: {error}"}
            writer.write(json.dumps(reply).encode() + b"\n")
            await writer.drain()
        except (TimeoutError, ConnectionError, ValueError):
            return  # whoever asked has gone, or talks without end
        finally:
            writer.close()

    path.unlink(missing_ok=True)  # left by a node that was killed; the TCP port is ours, so no other node can own it
    return await asyncio.start_unix_server(client, path, limit=REQUEST_MAX), path


def ask(path: Path, request: dict[str, Any]) -> dict[str, Any]:
    """One request, one answer."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(ANSWER_SECONDS)
        sock.connect(str(path))
        sock.sendall(json.dumps(request).encode() + b"\n")
        data = b""
        while not data.endswith(b"\n"):
            more = sock.recv(1 << 16)
            if not more:
                raise AdminError(f"{path} closed before it answered")
            data += more
    reply: dict[str, Any] = json.loads(data)
    return reply


def statuses() -> list[dict[str, Any]]:
    """The status of every node that this user runs on this machine; sockets of nodes that are gone are removed."""
    found = []
    for path in sorted(directory().glob("*.sock")):
        try:
            found.append(ask(path, {"do": "status"}))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
        except (OSError, AdminError, ValueError) as error:
            found.append({"node": "?", "address": path.stem, "last_problem": f"does not answer: {error}"})
    return found
