"""A node's local admin socket: its user can ask the node and publish through it.

It is a Unix socket in a directory that only its owner can enter. A request is one line of JSON, and
so is each line of an answer. ``gossamer status`` finds the sockets of all nodes that this user runs
on this machine. A request that says ``more`` is followed by lines of its own, up to the end of what
the client sends.
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

# The most bytes of a line: the largest event, in JSON.
REQUEST_MAX = 8 << 20
ANSWER_SECONDS = 2.0
WAKE_SECONDS = 6.0
# The time for answers to lines that were sent before an interrupt.
INTERRUPTED_SECONDS = 10.0
# The most nodes that an error names.
SHOWN_MAX = 5


class AdminError(RuntimeError):
    """A node cannot be asked."""


def directory() -> Path:
    """The directory of this user's admin sockets.

    A directory that another user has put there is refused.
    """
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
"""Answers a request and the lines that follow it."""


async def serve(address: str, answer: Answer) -> tuple[asyncio.Server, Path]:
    """Listens for requests about the node at this address.

    An answer may have many lines. Either side may end it.
    """
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
            # The client has gone, or its line does not end.
            return
        finally:
            writer.close()

    # A node that was killed left it. The TCP port is ours, so no other node can own the socket.
    path.unlink(missing_ok=True)
    server = await asyncio.start_unix_server(client, path, limit=REQUEST_MAX)
    path.chmod(0o600)
    return server, path


@contextlib.asynccontextmanager
async def offered(address: str, answer: Answer) -> AsyncIterator[None]:
    """Answers requests about the node at this address while the context is open.

    This is impossible if another user has a folder of our name under the temporary folder. Then the
    node runs all the same, and the log says why it cannot be asked.
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
    """Writes lines as they come, and stops when the client hangs up, even if no line comes.

    Without a ``reader`` it does not watch the client, because the answer itself reads.
    """

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
    """The lines of an answer as they come.

    A ``patient`` caller waits without a limit for a node that is awake.
    """
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
    """Raises an AdminError if the process does not answer.

    A process that is stopped must not make a patient caller wait for ever. A process that is only
    busy gets some time.
    """
    ask(path, {"do": "sample"}, WAKE_SECONDS)


def send(
    path: Path,
    request: dict[str, Any],
    more: Iterable[bytes],
    heard: Callable[[dict[str, Any]], None],
) -> None:
    """Sends a request and the lines that follow it.

    ``heard`` gets each answer, in a thread. So neither side waits for the other to read.
    """
    problems: list[str] = []
    _wake(path)

    def listen(file: IO[bytes]) -> None:
        # This side closed the socket.
        with contextlib.suppress(OSError, ValueError):
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
                # The node may have gone, or it has said why it hangs up.
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    sock.sendall(json.dumps({**request, "more": True}).encode() + b"\n")
                    for line in more:
                        sock.sendall(line + b"\n")
                    sock.shutdown(socket.SHUT_WR)
                listener.join()
            # Answers to lines that were sent have some time to come.
            except KeyboardInterrupt:
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
    """Sends one request and returns one answer."""
    for reply in lines(path, request, seconds=seconds):
        if isinstance(reply, dict):
            return reply
    raise AdminError(f"{path} closed before it answered")


def find(address: str | None, usual: str = "") -> Path:
    """The socket of the node that listens at this address.

    Without an address it is the only running node, or the one at the usual address.
    """
    found = [path for path in sorted(directory().glob("*.sock")) if _answers(path)]
    if address is not None:
        found = [path for path in found if path.stem == _stem(address)]
    if not found:
        where = f"at {address}" if address else "of yours on this machine"
        raise AdminError(f"no node {where} is running; start one with: gossamer node")
    # 'gossamer subscribe' is a node too. Beside it, the node that runs by itself is meant.
    if len(found) > 1:
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
        # The node is gone.
        path.unlink(missing_ok=True)
        return False
    except OSError:
        return False
    return True


def _stem(address: str) -> str:
    return address.replace(":", "_").replace("[", "").replace("]", "")


def _address(path: Path) -> str:
    """The address of a node from the path of its socket."""
    host, _, port = path.stem.replace("_", ":").rpartition(":")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def statuses() -> list[dict[str, Any]]:
    """The status of every node that this user runs on this machine.

    It removes the sockets of nodes that are gone.
    """
    found = []
    for path in sorted(directory().glob("*.sock")):
        try:
            found.append(ask(path, {"do": "status"}))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
        except (OSError, AdminError, ValueError) as error:
            found.append({"node": "?", "address": _address(path), "last_problem": str(error)})
    return found
