"""/metrics, /healthz and /readyz over HTTP: just enough of it for a scraper and an orchestrator.

GET and HEAD, one request a connection, bounded in size, time and number. /healthz: should this process be restarted?
/readyz: should it get work now? Both answer 200 or 503 with JSON that says why.

Whoever opens connections and says nothing must not keep a probe out, or an orchestrator would
restart a node that is well. So a new connection is never refused: where there are too many, from
one address or in all, one that has said nothing makes room for it. An address that has many gives
up one of its own before an address that has few.
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
REQUEST_SECONDS = 2.0  # until the request is there
ANSWER_SECONDS = 5.0  # until the answer is taken
CONNECTIONS_MAX = 48  # of the descriptors that guard.py leaves for all that is no link
ADDRESS_MAX = 16  # from one address
BACKLOG = 512  # connections that wait to be accepted
_WORDS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}


class Caller:
    """Somebody who has opened a connection."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        name = writer.get_extra_info("peername")
        self.address = str(name[0]) if name else ""
        self.has_asked = False  # the whole request is there, and the answer is on its way
        self._transport = writer.transport

    @property
    def rank(self) -> int:
        """Who makes room first: one who has said nothing, one who has said something, one who has asked.

        A request may lie in the socket already, though the event loop has not come to it.
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
    """The server. ``node`` is None until it has started."""

    def __init__(self) -> None:
        self.node: Node | None = None
        self.address = ""
        self._metrics = Metrics()
        self._server: asyncio.Server | None = None
        self._callers: dict[Caller, None] = {}  # oldest first
        self._counted: Counter[str] = Counter()  # until there is a node to count it

    async def start(self, address: str) -> None:
        host, port = parse_address(address)
        try:
            self._server = await asyncio.start_server(
                self._client, host, port, limit=REQUEST_BYTES_MAX, backlog=BACKLOG
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
        node._driver.counters.update(self._counted)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for caller in list(self._callers):
            caller.drop()  # nobody who holds a connection holds up the end of the process

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
            writer.transport.set_write_buffer_limits(0)  # to drain is to write all of it
            status, kind, body = self._reply(head)
            only_head = head.startswith(b"HEAD ")
            writer.write(
                f"HTTP/1.1 {status} {_WORDS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
                f"Cache-Control: no-store\r\nConnection: close\r\n\r\n".encode()
                + (b"" if only_head else body)
            )
            async with asyncio.timeout(ANSWER_SECONDS):
                await writer.drain()
            writer.close()
        except TimeoutError:
            self._count("metrics connections timed out")
        except ConnectionError:
            return  # whoever asked has gone
        finally:
            del self._callers[caller]
            if not caller.is_gone:
                caller.drop()  # what was not taken in time is not kept

    def _make_room(self, address: str) -> None:
        """End one of too many connections before another one from this address is served."""
        held = Counter(one.address for one in self._callers if not one.is_gone)
        if held[address] >= ADDRESS_MAX:
            crowd = address
        elif held.total() >= CONNECTIONS_MAX:
            crowd = held.most_common(1)[0][0]
        else:
            return
        those = [one for one in self._callers if one.address == crowd and not one.is_gone]
        min(those, key=lambda one: one.rank).drop()  # of equal ones, the oldest
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
    """A request's first lines; empty if they are none; None if nothing was said at all."""
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        return b"" if error.partial else None
    except asyncio.LimitOverrunError:
        return b""


def _verdict(problems: list[str]) -> tuple[int, str, bytes]:
    body = json.dumps({"ok": not problems, "problems": problems}).encode() + b"\n"
    return (503 if problems else 200), "application/json", body
