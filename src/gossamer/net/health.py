"""/metrics, /healthz and /readyz over HTTP, for a scraper and an orchestrator.

It understands GET and HEAD, one request a connection, bounded in size, time and number. /healthz
answers whether the process should be restarted. /readyz answers whether it should get work now.
Both reply 200 or 503 with JSON that says why.

A client that opens connections and says nothing must not keep a probe out, because an orchestrator
would restart a healthy node then. So a new connection is never refused. If there are too many
connections, from one address or in all, a silent one makes room. An address with many connections
gives up one of its own before an address with few.
"""

from __future__ import annotations

import asyncio
import json
import select
from collections import Counter
from typing import TYPE_CHECKING

from gossamer.net.dialler import parse_address, reason_of
from gossamer.net.errors import NodeError
from gossamer.net.metrics import CONTENT_TYPE, Metrics
from gossamer.net.sample import unready, unwell

if TYPE_CHECKING:
    from gossamer.net.node import Node

REQUEST_BYTES_MAX = 8192
# The time until the request is there.
REQUEST_SECONDS = 2.0
# The time until the answer is taken.
ANSWER_SECONDS = 5.0
# The most connections. They use descriptors that guard.py leaves for everything but links.
CONNECTIONS_MAX = 48
# The most connections from one address.
ADDRESS_MAX = 16
# The most connections that wait to be accepted.
BACKLOG = 512
_WORDS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}


class Caller:
    """A client that has opened a connection."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        name = writer.get_extra_info("peername")
        self.address = str(name[0]) if name else ""
        # The whole request is there, and the answer is on its way.
        self.has_asked = False
        self._transport = writer.transport

    @property
    def rank(self) -> int:
        """The order of making room: silent callers, then those with part of a request, then the
        others.

        A request may lie in the socket already although the event loop has not read it.
        """
        if self.has_asked:
            return 2
        said = select.poll()
        said.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        return 1 if said.poll(0) else 0

    def drop(self) -> None:
        self._transport.abort()

    @property
    def is_gone(self) -> bool:
        return self._transport.is_closing()


class Health:
    """The server. ``node`` is None until the node has started."""

    def __init__(self) -> None:
        self.node: Node | None = None
        self.address = ""
        self._metrics = Metrics()
        self._server: asyncio.Server | None = None
        # The oldest come first.
        self._callers: dict[Caller, None] = {}
        # Counters until there is a node.
        self._counted: Counter[str] = Counter()

    async def start(self, address: str) -> None:
        host, port = parse_address(address)
        try:
            self._server = await asyncio.start_server(
                self._client, host, port, limit=REQUEST_BYTES_MAX, backlog=BACKLOG
            )
        except OSError as error:
            raise NodeError(
                f"cannot serve metrics on {address}: {reason_of(error)}; "
                "choose another --metrics-address"
            ) from None
        bound = self._server.sockets[0].getsockname()
        self.address = f"[{bound[0]}]:{bound[1]}" if ":" in bound[0] else f"{bound[0]}:{bound[1]}"

    def serve(self, node: Node) -> None:
        self.node = self._metrics.node = node
        node._driver.counters.update(self._counted)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for caller in list(self._callers):
            # A client that holds a connection does not hold up the end of the process.
            caller.drop()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        caller = Caller(writer)
        self._make_room(caller.address)
        self._callers[caller] = None
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                head = await _read_head(reader)
            if head is None or caller.is_gone:
                return
            caller.has_asked = True
            # With this, draining means writing all of it.
            writer.transport.set_write_buffer_limits(0)
            status, kind, body = self._reply(head)
            only_head = head.startswith(b"HEAD ")
            writer.write(
                f"HTTP/1.1 {status} {_WORDS[status]}\r\nContent-Type: {kind}\r\n"
                f"Content-Length: {len(body)}\r\n"
                f"Cache-Control: no-store\r\nConnection: close\r\n\r\n".encode()
                + (b"" if only_head else body)
            )
            async with asyncio.timeout(ANSWER_SECONDS):
                await writer.drain()
            writer.close()
        except TimeoutError:
            self._count("metrics connections timed out")
        except ConnectionError:
            # The client has gone.
            return
        finally:
            del self._callers[caller]
            if not caller.is_gone:
                # The rest of an answer that was not taken in time is discarded.
                caller.drop()

    def _make_room(self, address: str) -> None:
        """Ends one of too many connections before another one from this address is served."""
        held = Counter(one.address for one in self._callers if not one.is_gone)
        if held[address] >= ADDRESS_MAX:
            crowd = address
        elif held.total() >= CONNECTIONS_MAX:
            crowd = held.most_common(1)[0][0]
        else:
            return
        those = [one for one in self._callers if one.address == crowd and not one.is_gone]
        # Of equal ones the oldest goes.
        min(those, key=lambda one: one.rank).drop()
        self._count("metrics connections crowded out")

    def _count(self, what: str) -> None:
        counters = self._counted if self.node is None else self.node._driver.counters
        counters[what] += 1

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


async def _read_head(reader: asyncio.StreamReader) -> bytes | None:
    """The first lines of a request.

    It is empty if they are malformed, and None if the client said nothing.
    """
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        return b"" if error.partial else None
    except asyncio.LimitOverrunError:
        return b""


def _verdict(problems: list[str]) -> tuple[int, str, bytes]:
    body = json.dumps({"ok": not problems, "problems": problems}).encode() + b"\n"
    return (503 if problems else 200), "application/json", body
