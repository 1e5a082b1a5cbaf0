"""A node's local admin socket: who runs the node may ask what it does, and publish through it.

A Unix socket in a directory that only its owner can enter; one JSON request a line, one JSON answer a line. ``gossamer status``
finds the sockets of all nodes that this user runs on this machine. A request that says ``more`` is followed by lines of its own, up
to the end of what is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from gossamer.net import private

REQUEST_MAX = 8 << 20  # a line: the largest event, in JSON
ANSWER_SECONDS = 2.0
WAKE_SECONDS = 6.0
INTERRUPTED_SECONDS = 10.0  # for answers to what was sent before an interrupt
SHOWN_MAX = 5  # nodes that an error names


class AdminError(RuntimeError):
    """A node cannot be asked."""


def directory() -> Path:
    """Where this user's admin sockets are. Refuses a directory that somebody else has put there."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    path = (
        Path(base) / "gossamer"
        if base and Path(base).is_dir()
        else Path(tempfile.gettempdir()) / f"gossamer-{os.getuid()}"
    )
    try:
        return private.folder(path)
    except OSError as error:
        raise AdminError(f"no folder for admin sockets: {error}") from None


Answer = Callable[[dict[str, Any], AsyncIterator[bytes]], AsyncIterator[Any]]
"""To a request, and what follows it."""


async def serve(address: str, answer: Answer) -> tuple[asyncio.Server, Path]:
    """Listen for requests about the node at this address. An answer may have many lines; either side may end it."""
    path = directory() / f"{_stem(address)}.sock"

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = await asyncio.wait_for(reader.readline(), ANSWER_SECONDS)
            try:
                request = json.loads(line)
            except ValueError as error:
                writer.write(json.dumps({"error": f"not a request: {error}"}).encode() + b"\n")
                return
            asked = request if isinstance(request, dict) else {}
            await _reply(
                answer(asked, aiter(reader)), None if asked.get("more") else reader, writer
            )
        except (TimeoutError, ConnectionError, ValueError):
            return  # whoever asked has gone, or talks without end
        finally:
            writer.close()

    path.unlink(
        missing_ok=True
    )  # left by a node that was killed; the TCP port is ours, so no other node can own it
    server = await asyncio.start_unix_server(client, path, limit=REQUEST_MAX)
    path.chmod(0o600)
    return server, path


@contextlib.asynccontextmanager
async def offered(address: str, answer: Answer) -> AsyncIterator[None]:
    """Answer requests about the node at this address meanwhile.

    Where that is impossible (another user has a folder of our name under the temporary folder) the
    node runs all the same, and the log says why nobody can ask it.
    """
    try:
        server, path = await serve(address, answer)
    except (AdminError, OSError) as error:
        from gossamer.net.journal import say

        say(
            logging.WARNING,
            "no admin socket: 'gossamer status' cannot ask this node",
            address=address,
            reason=str(error),
        )
        yield
        return
    try:
        yield
    finally:
        server.close()
        path.unlink(missing_ok=True)


async def _reply(
    lines: AsyncIterator[Any], reader: asyncio.StreamReader | None, writer: asyncio.StreamWriter
) -> None:
    """Write lines as they come; stop when whoever asked hangs up, even if no line comes. No ``reader``: the answer reads."""

    async def write() -> None:
        async for line in lines:
            writer.write(json.dumps(line).encode() + b"\n")
            await writer.drain()

    if reader is None:
        await write()
        return
    work, gone = asyncio.ensure_future(write()), asyncio.ensure_future(reader.read(1))
    try:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()
    finally:
        for task in (work, gone):
            task.cancel()
        await asyncio.gather(work, gone, return_exceptions=True)


def lines(
    path: Path, request: dict[str, Any], *, patient: bool = False, seconds: float = ANSWER_SECONDS
) -> Iterator[Any]:
    """The lines of an answer as they come; ``patient``: however long that takes, of a node that is awake."""
    if patient:
        _wake(path)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(ANSWER_SECONDS)
        sock.connect(str(path))
        sock.sendall(json.dumps(request).encode() + b"\n")
        sock.settimeout(None if patient else seconds)
        try:
            with sock.makefile("rb") as file:
                for line in file:
                    reply = json.loads(line)
                    if isinstance(reply, dict) and list(reply) == ["error"]:
                        raise AdminError(str(reply["error"]))
                    yield reply
        except TimeoutError:
            about = f"the node at {_address(path)} has not answered within {seconds:g} s"
            raise AdminError(f"{about}; is its process stopped, or very busy?") from None


def _wake(path: Path) -> None:
    """Nobody waits without end for a process that is stopped; one that is only busy has some time."""
    ask(path, {"do": "sample"}, WAKE_SECONDS)


def send(
    path: Path,
    request: dict[str, Any],
    more: Iterable[bytes],
    heard: Callable[[dict[str, Any]], None],
) -> None:
    """A request with lines that follow it. ``heard`` gets each answer, in a thread: neither side waits for the other to read."""
    problems: list[str] = []
    _wake(path)

    def listen(file: IO[bytes]) -> None:
        with contextlib.suppress(OSError, ValueError):  # closed by this side
            for line in file:
                reply = json.loads(line)
                problems.append(reply["error"]) if "error" in reply else heard(reply)

    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(ANSWER_SECONDS)
        sock.connect(str(path))
        sock.settimeout(None)
        with sock.makefile("rb") as file:
            listener = threading.Thread(target=listen, args=(file,), name="answers", daemon=True)
            listener.start()
            try:
                with contextlib.suppress(
                    BrokenPipeError, ConnectionResetError
                ):  # it has said why, or has gone
                    sock.sendall(json.dumps({**request, "more": True}).encode() + b"\n")
                    for line in more:
                        sock.sendall(line + b"\n")
                    sock.shutdown(socket.SHUT_WR)
                listener.join()
            except KeyboardInterrupt:  # answers to what was sent have some time to come
                try:
                    with contextlib.suppress(OSError):
                        sock.shutdown(socket.SHUT_WR)
                    listener.join(INTERRUPTED_SECONDS)
                finally:
                    with contextlib.suppress(OSError):
                        sock.shutdown(socket.SHUT_RDWR)
                    listener.join()
                raise
            except BaseException:
                sock.shutdown(socket.SHUT_RDWR)
                listener.join()
                raise
    if problems:
        raise AdminError(problems[0])


def ask(path: Path, request: dict[str, Any], seconds: float = ANSWER_SECONDS) -> dict[str, Any]:
    """One request, one answer."""
    for reply in lines(path, request, seconds=seconds):
        if isinstance(reply, dict):
            return reply
    raise AdminError(f"{path} closed before it answered")


def find(address: str | None, usual: str = "") -> Path:
    """The socket of the node that listens at this address; without one, of the only node there is, or of the usual one."""
    found = [path for path in sorted(directory().glob("*.sock")) if _answers(path)]
    if address is not None:
        found = [path for path in found if path.stem == _stem(address)]
    if not found:
        where = f"at {address}" if address else "of yours on this machine"
        raise AdminError(f"no node {where} is running; start one with: gossamer node")
    if (
        len(found) > 1
    ):  # 'gossamer subscribe' is a node too, so beside it the one that runs by itself is meant
        found = [path for path in found if path.stem == _stem(usual)] or found
    if len(found) > 1:
        some = ", ".join(map(_address, found[:SHOWN_MAX]))
        more = ", ..." if len(found) > SHOWN_MAX else ""
        raise AdminError(
            f"{len(found)} nodes are running here ({some}{more}); say which one: --node HOST:PORT"
        )
    return found[0]


def _answers(path: Path) -> bool:
    try:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(ANSWER_SECONDS)
            sock.connect(str(path))
    except ConnectionRefusedError:
        path.unlink(missing_ok=True)  # of a node that is gone
        return False
    except OSError:
        return False
    return True


def _stem(address: str) -> str:
    return address.replace(":", "_").replace("[", "").replace("]", "")


def _address(path: Path) -> str:
    """The other way round."""
    host, _, port = path.stem.replace("_", ":").rpartition(":")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def statuses() -> list[dict[str, Any]]:
    """The status of every node that this user runs on this machine; sockets of nodes that are gone are removed."""
    found = []
    for path in sorted(directory().glob("*.sock")):
        try:
            found.append(ask(path, {"do": "status"}))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
        except (OSError, AdminError, ValueError) as error:
            found.append({"node": "?", "address": _address(path), "last_problem": str(error)})
    return found
