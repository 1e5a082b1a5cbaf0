"""The sink's node: a process of its own that publishes Spark's commits, each row once.

Spark forks a new Python process for each commit. Such a process lives too short for a member of a
fabric. So the first commit starts this process on the driver's host, and later commits talk to it
over a Unix socket in the user's runtime directory. It ends when it has had no request for a while.

Its data directory makes the sink idempotent. A batch is staged whole before its first row is
published. A replay, whose rows may come in another order, publishes the rest of the staged rows.
Each part is accepted together with its number (batch, part) in the stream of (query, checkpoint),
which a node accepts once (``node.together``). A new checkpoint counts its batches from 0 again, so
it is another stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gossamer
from gossamer.net import admin, private
from gossamer.net.publishing import publish_batch

IDLE_SECONDS = 30.0
START_SECONDS = 30.0
RECEIPT_SECONDS = 60.0
# The rows of one part. This is the most that a node allows in a batch.
ROWS = 4096
_HEAD = struct.Struct(">II")
_LOG = "gateway.log"
# The gateways that this process started. They outlive it.
_started: list[subprocess.Popen[bytes]] = []


class GatewayError(RuntimeError):
    """Spark's rows could not be published. The message gives the cause."""


# ---------------------------------------------------------------- the process of a commit


def ask(options: dict[str, Any], request: dict[str, Any], body: bytes = b"") -> dict[str, Any]:
    """Send a request to the gateway of this data directory, and start the gateway if necessary."""
    path = _path(options["data_dir"])
    until = time.monotonic() + START_SECONDS
    process: subprocess.Popen[bytes] | None = None
    while True:
        with socket.socket(socket.AF_UNIX) as sock:
            try:
                sock.connect(str(path))
            except OSError:
                if process is not None and process.poll() is not None:
                    raise GatewayError(_last_words(process, options)) from None
                if process is None:
                    process = _start(options, path)
                if time.monotonic() > until:
                    raise GatewayError(
                        f"the sink's node did not start within {START_SECONDS:g} s"
                    ) from None
                # The gateway does not listen yet.
                time.sleep(0.02)
                continue
            head = json.dumps(request).encode()
            try:
                sock.sendall(_HEAD.pack(len(head), len(body)) + head + body)
                with sock.makefile("rb") as file:
                    line = file.readline()
            except (
                ConnectionError
                # The gateway is just ending. A batch that is requested twice is published once.
            ):
                if time.monotonic() > until:
                    raise GatewayError(
                        "the sink's node ended; Spark will try the batch again"
                    ) from None
                continue
        if not line:
            raise GatewayError("the sink's node ended; Spark will try the batch again")
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise GatewayError(reply["error"])
        return reply


def _path(data_dir: str) -> Path:
    name = hashlib.blake2b(str(Path(data_dir).resolve()).encode(), digest_size=8).hexdigest()
    # The name does not end in .sock, because such sockets answer `gossamer status`.
    return admin.directory() / f"spark-{name}.gateway"


def _start(options: dict[str, Any], path: Path) -> subprocess.Popen[bytes]:
    data_dir = Path(options["data_dir"])
    try:
        private.folder(data_dir.resolve(), parents=True, holds=(_LOG, "gossamer.sqlite"))
        log_file = private.create(data_dir / _LOG)
    except OSError as error:
        raise GatewayError(f"cannot use the sink's data_dir: {error}") from None
    with log_file as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "gossamer.pipeline.gateway", json.dumps(options), str(path)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log, start_new_session=True,
        )  # fmt: skip
    _started[:] = [*(one for one in _started if one.poll() is None), process]
    return process


def _last_words(process: subprocess.Popen[bytes], options: dict[str, Any]) -> str:
    words = (Path(options["data_dir"]) / _LOG).read_text(errors="replace").strip().splitlines()
    said = words[-1] if words else f"exit code {process.returncode}"
    return f"the sink's node ended at once: {said}"


# ---------------------------------------------------------------- the process of the gateway


class Gateway:
    def __init__(self, node: gossamer.Node, data_dir: Path) -> None:
        self.asked_at, self.busy = time.monotonic(), 0
        self._node, self._data_dir = node, data_dir
        self._turn = asyncio.Lock()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.busy += 1
        try:
            head, body = _HEAD.unpack(await reader.readexactly(_HEAD.size))
            request = json.loads(await reader.readexactly(head))
            data = await reader.readexactly(body)
            try:
                async with self._turn:
                    reply = await self._publish(request, data)
            except (ValueError, RuntimeError, OSError) as error:
                reply = {"error": f"{type(error).__name__}: {error}"}
            writer.write(json.dumps(reply).encode() + b"\n")
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            # The requesting process has gone. Spark tries again.
            return
        finally:
            self.busy -= 1
            self.asked_at = time.monotonic()
            writer.close()

    async def _publish(self, request: dict[str, Any], data: bytes) -> dict[str, Any]:
        query, batch, topic = str(request["query"]), int(request["batch"]), str(request["topic"])
        stream = f"{query}/{request['checkpoint']}" if query else ""
        await self._node.advertise(
            topic, str(request["schema"]), retention=str(request.get("retention", ""))
        )
        given = _table(data)
        staged, is_replay = self._stage(stream, batch, data) if stream else (data, False)
        table = _table(staged) if is_replay else given
        parts = table.combine_chunks().to_batches(max_chunksize=ROWS) if table is not None else []
        receipts = []
        for place, part in enumerate(parts):
            once = (stream, (batch, place)) if stream else None
            receipts.append(await publish_batch(self._node, topic, part, once))
        if parts and stream:
            # All of it is accepted, so only its number is kept.
            os.truncate(self._path(stream), len(b"%d\n" % batch))
        # Accepted rows are on disk, so their receipts may come later.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RECEIPT_SECONDS):
                for receipt in receipts:
                    await receipt
        whole = table if table is not None else given
        rows = whole.num_rows if whole is not None else 0
        incomplete = sum(len(receipt) for receipt in receipts if not receipt.done)
        published = sum(len(receipt) for receipt in receipts)
        if rows > published:
            self._node._driver.counters["rows already published"] += rows - published
        return {"rows": rows, "published": published, "replay": is_replay, "incomplete": incomplete}

    def _stage(self, stream: str, batch: int, data: bytes) -> tuple[bytes, bool]:
        """The batch in the order of its first commit, because a replay may have another order.

        It is empty if all of the batch is accepted.
        """
        path = self._path(stream)
        if path.exists():
            number, _, staged = path.read_bytes().partition(b"\n")
            if int(number) >= batch:
                return staged if int(number) == batch else b"", True
        temporary = path.with_suffix(".new")
        with private.create(temporary) as file:
            file.write(b"%d\n" % batch + data)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
        return data, False

    def _path(self, stream: str) -> Path:
        name = hashlib.blake2b(stream.encode(), digest_size=8).hexdigest()
        return self._data_dir / f"staged-{name}"


def _table(data: bytes) -> Any:
    import pyarrow as pa

    return pa.ipc.open_stream(pa.py_buffer(data)).read_all() if data else None


async def main(options: dict[str, Any], path: Path) -> None:
    data_dir = Path(options["data_dir"])
    running = gossamer.Node(
        join=options["join"], data_dir=data_dir, fabric=options.get("fabric", ""),
        keys=options.get("keys"), trace_dir=options.get("trace_dir"),
    )  # fmt: skip
    async with running as node, admin.offered(node.address, node.answer):
        gateway = Gateway(node, data_dir)
        # The data directory belongs to this process alone, so no other process listens there.
        path.unlink(missing_ok=True)
        server = await asyncio.start_unix_server(gateway.serve, path)
        path.chmod(0o600)
        try:
            while gateway.busy or time.monotonic() - gateway.asked_at < float(
                options.get("idle", IDLE_SECONDS)
            ):
                await asyncio.sleep(0.2)
        finally:
            server.close()
            path.unlink(missing_ok=True)


if __name__ == "__main__":
    gossamer.run(main(json.loads(sys.argv[1]), Path(sys.argv[2])))
