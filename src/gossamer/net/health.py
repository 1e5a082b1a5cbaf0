"""/metrics, /healthz and /readyz over HTTP: just enough of it for a scraper and an orchestrator.

GET and HEAD, one request a connection, bounded in size, time and number. /healthz: should this process be restarted?
/readyz: should it get work now? Both answer 200 or 503 with JSON that says why.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from gossamer.net.dialler import parse_address, reason_of
from gossamer.net.errors import NodeError
from gossamer.net.metrics import CONTENT_TYPE, Metrics
from gossamer.net.sample import unready, unwell

if TYPE_CHECKING:
    from gossamer.net.node import Node

REQUEST_BYTES_MAX = 8192
REQUEST_SECONDS = 5.0
CONNECTIONS_MAX = 64
_WORDS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}


class Health:
    """The server. ``node`` is None until it has started."""

    def __init__(self) -> None:
        self.node: Node | None = None
        self.address = ""
        self._metrics = Metrics()
        self._server: asyncio.Server | None = None
        self._open = 0

    async def start(self, address: str) -> None:
        host, port = parse_address(address)
        try:
            self._server = await asyncio.start_server(
                self._client, host, port, limit=REQUEST_BYTES_MAX
            )
        except OSError as error:
            raise NodeError(
                f"cannot serve metrics on {address}: {reason_of(error)}; choose another --metrics-address"
            ) from None
        bound = self._server.sockets[0].getsockname()
        self.address = f"[{bound[0]}]:{bound[1]}" if ":" in bound[0] else f"{bound[0]}:{bound[1]}"

    def serve(self, node: Node) -> None:
        """The node has started."""
        self.node = self._metrics.node = node

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open > CONNECTIONS_MAX:
                return
            async with asyncio.timeout(REQUEST_SECONDS):
                try:
                    head = await reader.readuntil(b"\r\n\r\n")
                except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                    head = b""
                status, kind, body = self._reply(head)
                only_head = head.startswith(b"HEAD ")
                writer.write(
                    f"HTTP/1.1 {status} {_WORDS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
                    f"Cache-Control: no-store\r\nConnection: close\r\n\r\n".encode()
                    + (b"" if only_head else body)
                )
                await writer.drain()
        except (TimeoutError, ConnectionError):
            return  # whoever asked has gone, or dawdles
        finally:
            self._open -= 1
            writer.close()

    def _reply(self, head: bytes) -> tuple[int, str, bytes]:
        parts = head.split(b"\r\n", 1)[0].split(b" ")
        if len(parts) != 3 or not parts[2].startswith(b"HTTP/1."):
            return 400, "text/plain", b"not an HTTP request\n"
        method, path = parts[0], parts[1].split(b"?")[0]
        if method not in (b"GET", b"HEAD"):
            return 405, "text/plain", b"GET or HEAD\n"
        if path == b"/metrics":
            return 200, CONTENT_TYPE, self._metrics.text()
        if path == b"/healthz":
            return _verdict(unwell(self.node) if self.node is not None else [])
        if path == b"/readyz":
            return _verdict(unready(self.node) if self.node is not None else ["starting"])
        return 404, "text/plain", b"/metrics, /healthz, /readyz\n"


def _verdict(problems: list[str]) -> tuple[int, str, bytes]:
    body = json.dumps({"ok": not problems, "problems": problems}).encode() + b"\n"
    return (503 if problems else 200), "application/json", body
