"""One TCP connection between two nodes: frames in, frames out, two lanes.

Frames that are ready in one turn of the event loop leave in one write. Control frames go ahead of
event frames. While the socket takes no more, both wait here, and control frames go first when it
does again. Event frames beyond ``EVENT_QUEUE_BYTES`` are refused and go back to the machine.
Control frames beyond ``CONTROL_QUEUE_BYTES`` mean that the peer has stalled, and end the
connection.

A slow link is not a silent peer. While bytes wait, the connection looks now and then at the number
of bytes that have reached the peer's system. If there are enough of them, that is a sign of life,
and the machine is told that the link moves.

With keys everything goes through TLS (tls.py), and a peer has the identity of its certificate.
Nothing is said to it before that is known, and a Hello in another node's name ends the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import socket
import struct
import sys
from collections import deque
from typing import TYPE_CHECKING, cast

from gossamer.filters.packed import Bytes
from gossamer.machine import LinkState, Peer
from gossamer.net.memory import SHARING, Sharing
from gossamer.net.spin import BULK_BYTES
from gossamer.net.tls import HANDSHAKE_FAILURE, Closed, Session, TlsError
from gossamer.node.rights import Identity
from gossamer.node.wire import (
    MISCONDUCT,
    AnyMessage,
    Frame,
    Hello,
    Memory,
    Pieces,
    Ping,
    Pong,
    Revocations,
    Unframer,
    WireError,
    check,
    encode,
)

if TYPE_CHECKING:
    from gossamer.net.driver import Driver

EVENT_QUEUE_BYTES = 16 << 20
EVENT_QUEUE_LOW = 4 << 20
CONTROL_QUEUE_BYTES = 16 << 20
SOCKET_HIGH_WATER = 1 << 20
# A connection that has not said hello by then, and shown its certificate, is closed.
HELLO_SECONDS = 5.0
# A link that has been silent for this long gets a Ping.
PING_SECONDS = 5.0
# A link that has been silent for this long is given up.
SILENCE_SECONDS = 10.0
# Before a link is given up it gets one more Ping, and the bytes in the socket are read.
DOUBT_SECONDS = 1.0
# The most bytes that are written at once. The event loop writes more than this at the end of its
# turn.
DIRECT_BYTES = 16 << 10
# A sign of life is a whole message, or this number of bytes of one.
DRIBBLE_BYTES = 16 << 10
# A sign of life is also this number of bytes that have left for the peer in ``PING_SECONDS``.
MOVING_BYTES = 16 << 10
# This number of bytes in shared memory counts as one byte that comes by the socket.
SHARED_WEIGHT = 4
# A request number of Linux: the bytes that a socket still holds.
SIOCOUTQ = 0x5411
# A closed connection gets this long to write its queues.
LINGER_SECONDS = 2.0

_PING, _PONG = encode(Ping()), encode(Pong())


class Connection(asyncio.BufferedProtocol):
    """The protocol object of a connection.

    ``dialled`` is the address that this node called, or None if the peer called this node.
    ``expected`` is the peer that this node called, or None for any peer at the address. Another
    peer hears nothing of this node, not even its name.
    """

    def __init__(self, driver: Driver, dialled: str | None, expected: Peer | None = None) -> None:
        self.driver, self.dialled, self.expected = driver, dialled, expected
        self.loop = driver.loop
        # The peer's Hello.
        self.hello: Hello | None = None
        self.peer = Peer(0)
        self.closed = False
        self.reason = ""
        # It is done when the peer has said hello, or will not.
        self.settled: asyncio.Future[None] = self.loop.create_future()
        # The address of the other end, without the port.
        self.address = ""
        # The identity in the peer's certificate.
        self.identity: Identity | None = None
        # This node's list of revoked certificates is too old, and the peer sends a later one first.
        self.awaits_list = False
        # The number of messages that the machine rejected.
        self.rejected = 0
        # The number of Pings without an answer.
        self.unanswered = 0
        self.bytes_in = 0
        self.bytes_out = 0
        # The bytes that were written to the socket.
        self._written = 0
        # At the last look: the bytes that had arrived, the bytes in and the messages in.
        self._seen = (0, 0, 0)
        # The number of messages in.
        self._frames = 0
        self._transport: asyncio.Transport | None = None
        # The socket's descriptor.
        self._direct = -1
        self._tls: Session | None = None
        # The other end is on this host.
        self._is_here = False
        # Memory that is shared with such a peer.
        self._sharing: Sharing | None = None
        self._unframer = Unframer(stranger=True)
        # Bytes are read straight to their place in the unframer.
        self._fills = False
        # The transport writes several pieces without joining them.
        self._takes_pieces = False
        self._control: deque[Frame] = deque()
        self._events: deque[Frame] = deque()
        self._control_bytes = 0
        self._event_bytes = 0
        self._paused = False
        self._full = self._doubted = False
        # A write at the end of this turn.
        self._scheduled: asyncio.Handle | None = None
        self._heard = self._window = self.loop.time()
        # The bytes that had come by then.
        self._heard_bytes = 0
        # The messages of this window, and the bytes before it.
        self._messages_in = self._bytes_before = 0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=SOCKET_HIGH_WATER)
        # asyncio's own transport either joins them as well, or (3.12, 3.13) never says that it has
        # more than it should.
        self._takes_pieces = type(transport).__module__.startswith("uvloop")
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._direct = sock.fileno()
        name = transport.get_extra_info("peername")
        self.address = str(name[0]) if name else ""
        own = transport.get_extra_info("sockname")
        self._is_here = bool(name and own and name[0] == own[0])
        self._timer = self.loop.call_later(HELLO_SECONDS, self._watch)
        if not self.driver.opened(self):
            return
        keys = self.driver.keys
        if keys is None:
            if self.expected is None:
                self.send(encode(self.driver.hello()), is_event=False)
        else:
            is_server = self.dialled is None
            self._tls = Session(keys.context(server=is_server), server=is_server)
            self._tls.start()
            self._transport.write(self._tls.take())

    def get_buffer(self, sizehint: int) -> memoryview:
        unframer = self._unframer
        room = unframer.room() if unframer.place is not None and self._tls is None else None
        self._fills = room is not None
        return self.driver.scratch if room is None else room

    def buffer_updated(self, nbytes: int) -> None:
        self.received(nbytes if self._fills else self.driver.scratch[:nbytes])

    def received(self, data: memoryview | int) -> None:
        """Takes bytes from the peer.

        The buffer is used again after this call. A number says how many bytes were read straight to
        their place.
        """
        if self.closed:
            return
        size = data if isinstance(data, int) else len(data)
        try:
            if isinstance(data, int):
                self.bytes_in += size
                messages = self._unframer.filled(data)
            elif self._tls is not None:
                self.bytes_in += size
                clear = self._unseal(self._tls, data)
                if self.closed:
                    return
                messages, size = self._unframer.feed(clear), len(clear)
            else:
                if not self.bytes_in and bytes(data[:2]) in (b"\x15\x03", b"\x16\x03"):
                    raise WireError(
                        "garbage",
                        "the peer speaks TLS: it has keys, and this node needs keys too (--keys)",
                    )
                self.bytes_in += size
                messages = self._unframer.feed(data)
            self._spend(len(messages), size)
            if self.hello is None and messages:
                self._greet(messages.pop(0))
        except WireError as error:
            self.close(error.reason, str(error))
            return
        if messages and not self.closed:
            self._dispatch(messages)
            if size > BULK_BYTES:
                self.driver.spin.bulk()
            self.driver.spin.arrived()

    def _unseal(self, tls: Session, data: memoryview) -> bytes:
        """The peer's bytes in the clear.

        The first message to the peer goes once its identity is known.
        """
        assert self._transport is not None
        try:
            clear = tls.receive(data)
        except Closed:
            self.close("closed by peer")
            return b""
        except TlsError as error:
            self._transport.write(tls.take() or HANDSHAKE_FAILURE)
            self.close(error.reason, str(error))
            return b""
        if answer := tls.take():
            self._transport.write(answer)
        if self.identity is None and tls.established:
            self.identity = self.driver.recognise(self, tls.certificate)
            if self.identity is None:
                return b""
            if self.expected is None:
                self.send(encode(self.driver.hello()), is_event=False)
        return clear

    def _spend(self, messages: int, size: int) -> None:
        """Counts the peer's messages and bytes.

        A dribble is no sign of life, and a flood ends the connection.
        """
        now, limits = self.loop.time(), self.driver.guard.limits
        volume, sharing = self.bytes_in, self._sharing
        if sharing is not None and sharing.bytes_in:
            volume = self._volume
        if messages or self.bytes_in - self._heard_bytes >= DRIBBLE_BYTES:
            self._heard, self._heard_bytes = now, self.bytes_in
        self._messages_in += messages
        self._frames += messages
        if now - self._window > limits.window:
            self._window, self._messages_in, self._bytes_before = now, messages, volume - size
        if self._messages_in > limits.messages * limits.window:
            raise WireError("flood", f"more than {limits.messages} messages a second")
        if volume - self._bytes_before > limits.bytes * limits.window:
            raise WireError("flood", f"more than {limits.bytes} bytes a second")

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._direct = -1
        self._control.clear()
        self._events.clear()
        if self._sharing is not None:
            self._sharing.close()
        self.driver.unplugged(self)
        if self.closed:
            return
        self.closed = True
        try:
            self._unframer.end()
            self.reason = "closed by peer" if exc is None else "connection lost"
        except WireError as error:
            self.reason = error.reason
        if self.hello is None and self.dialled is not None:
            why = "before it said hello: has it keys, and this node none, or none that are good?"
            self.driver.count_close(self, self.reason, why)
        self._gone(self.reason)

    @property
    def _volume(self) -> int:
        """The bytes in, as the limits count them.

        An honest peer of the same host leaves more bytes in memory than any network carries.
        """
        return self.bytes_in + (
            self._sharing.bytes_in // SHARED_WEIGHT if self._sharing is not None else 0
        )

    @property
    def shares(self) -> bool:
        """Whether large messages to the peer lie in memory that it sees."""
        return self._sharing is not None and self._sharing.is_seen

    @property
    def shared(self) -> tuple[int, int]:
        """The bytes in and out that lay in memory which both ends see, and so did not come by
        the socket.
        """
        return (
            (self._sharing.bytes_in, self._sharing.bytes_out)
            if self._sharing is not None
            else (0, 0)
        )

    @property
    def traffic(self) -> tuple[int, int]:
        """All bytes in and out."""
        return self.bytes_in + self.shared[0], self.bytes_out + self.shared[1]

    @property
    def queued(self) -> int:
        """The bytes in both lanes that wait for the socket."""
        return self._control_bytes + self._event_bytes

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._write()

    def _greet(self, message: AnyMessage) -> None:
        if type(message) is not Hello:
            raise WireError("no hello", f"the first message is a {type(message).__name__}")
        check(message)
        if self.identity is not None and self.identity.peer != message.peer:
            raise WireError(
                "false identity", f"{self.identity.name} says hello as {message.peer:016x}"
            )
        if self.expected is not None:
            if self.expected != message.peer:
                self.close("somebody else", f"at {self.dialled}, where {self.expected:016x} was")
                return
            self.send(encode(self.driver.hello()), is_event=False)
        self.hello, self.peer = message, Peer(message.peer)
        if self._is_here and self.driver.shares and message.memory:
            self._sharing = Sharing(self.driver.hello(), message)
        self.driver.greeted(self)
        if self._sharing is not None and not self.closed and (offer := self._sharing.offer()):
            self.send(offer, is_event=False)
        if not self.settled.done():
            self.settled.set_result(None)

    def _dispatch(self, messages: list[AnyMessage]) -> None:
        driver, peer = self.driver, self.peer
        while self.awaits_list and messages:
            first = messages.pop(0)
            if type(first) is not Revocations:
                self.close("old list", driver.guard.stale())
                return
            driver.guard.hear(self, first)
            if not self.closed:
                # The peer is judged by the lists that this node has now.
                driver.greeted(self)
            if self.closed:
                return
        driver.arrived(len(messages))
        reports: list[AnyMessage] = []
        for message in messages:
            kind = type(message)
            if kind.is_report:
                reports.append(message)
            elif kind.is_event:
                driver.received(peer, message)
            elif kind is Ping:
                self.send(_PONG, is_event=False)
            elif kind is Hello:
                self.close("second hello", "a Hello in the middle of a connection")
                return
            elif kind is Revocations:
                driver.guard.hear(self, message)  # type: ignore[arg-type]
                if self.closed:
                    return
            elif kind is Pong:
                self.unanswered -= self.unanswered > 0
            elif kind in SHARING:
                if not self._shared(message):
                    return
            else:
                # Control messages keep their order. Only event messages may be taken before a
                # report.
                for report in reports:
                    driver.received(peer, report)
                reports.clear()
                driver.received(peer, message)
            if self.closed:
                # The machine has been told that the link is down.
                return
        sharing = self._sharing
        if sharing is not None and sharing.copied != sharing.told:
            self.send(sharing.owed(), is_event=False)
        if reports:
            # Reports come after the other messages, and the owner is told at once: publishers wait
            # for them when their window is full.
            if len(reports) < len(messages):
                self.loop.call_soon(self._report, reports)
            else:
                self._report(reports)
                return
        driver.settle_soon()

    def _shared(self, message: AnyMessage) -> bool:
        """Takes a message about memory, or one that lies there.

        It returns False if the connection has ended.
        """
        sharing = self._sharing
        try:
            if sharing is None and type(message) is Memory and self.driver.shares:
                # The other end believes that this node is on its host. A forwarder there can cause
                # this.
                return True
            if sharing is None:
                raise WireError(
                    "wrong shape", f"a {type(message).__name__}, where no memory is shared"
                )
            before = self._volume
            found = sharing.receive(message)
            self._spend(0, self._volume - before)
        except WireError as error:
            self.close(error.reason, str(error))
            return False
        if isinstance(found, bytes):
            self.send(found, is_event=False)
        elif found is not None:
            self.driver.spin.bulk()
            self.driver.received(self.peer, cast(AnyMessage, found))
        # There may be room again.
        elif self._events and not self._paused:
            self._write()
        return not self.closed

    def _report(self, reports: list[AnyMessage]) -> None:
        driver, peer = self.driver, self.peer
        if driver.links.get(peer) is self:
            for report in reports:
                driver.received(peer, report)
            # The timer waits for ``settle_soon``.
            driver.after()
            driver.settle_soon()

    def send(self, frame: Frame, *, is_event: bool) -> bool:
        """Queues a frame. Returns False if the event queue has no room for it."""
        if self.closed:
            # The frame is lost with the link, and the machine is told of that.
            return True
        if is_event:
            is_refused = self._event_bytes + len(frame) > EVENT_QUEUE_BYTES
            if not is_refused:
                self._events.append(frame)
                self._event_bytes += len(frame)
            if not self._full and (is_refused or self._event_bytes > EVENT_QUEUE_BYTES // 2):
                self._full = True
                self.driver.link_changed(self, LinkState.FULL)
            if is_refused:
                return False
        else:
            self._control.append(frame)
            self._control_bytes += len(frame)
            if self._control_bytes > CONTROL_QUEUE_BYTES:
                self.close("stalled", "the peer does not read")
                return True
        if self._scheduled is None and not self._paused:
            self._scheduled = self.loop.call_soon(self._write)
        return True

    def _write(self, *, last: bool = False) -> None:
        """Writes as much as the socket takes.

        With ``last`` it is the last write, so nothing waits for room in memory.
        """
        self._scheduled = None
        transport, tls, sharing = self._transport, self._tls, self._sharing
        if (
            self.closed
            or transport is None
            or transport.is_closing()
            or (tls is not None and not tls.established)
        ):
            return
        # The peer must take some bytes out of memory first.
        waits = False
        while not self._paused and (self._control or (self._events and not waits)):
            pieces: list[Bytes] = []
            size = 0
            while self._control and size < SOCKET_HIGH_WATER:
                frame = self._control.popleft()
                if isinstance(frame, bytes):
                    pieces.append(frame)
                else:
                    pieces += frame.pieces
                size += len(frame)
                self._control_bytes -= len(frame)
            while self._events and size < SOCKET_HIGH_WATER:
                lies: bytes | None = b""
                frame = self._events[0]
                if type(frame) is Pieces and sharing is not None and not last:
                    lies = sharing.instead(frame)
                if lies is None:
                    waits = True
                    break
                self._events.popleft()
                self._event_bytes -= len(frame)
                if lies:
                    pieces.append(lies)
                    size += len(lies)
                    continue
                if isinstance(frame, bytes):
                    pieces.append(frame)
                else:
                    pieces += frame.pieces
                size += len(frame)
            if not size:
                break
            self.bytes_out += size
            if size > BULK_BYTES:
                self.driver.spin.bulk()
            if tls is None and size > DIRECT_BYTES and self._takes_pieces:
                self._written += size
                transport.writelines(pieces)
                continue
            data = pieces[0] if len(pieces) == 1 and type(pieces[0]) is bytes else b"".join(pieces)
            if tls is not None:
                data = tls.send(data)
                size = len(data)
            self._written += size
            if size <= DIRECT_BYTES and self._direct >= 0 and not transport.get_write_buffer_size():
                try:
                    sent = os.write(self._direct, data)
                except OSError:
                    # The socket is full or broken. The transport finds out which, and reports it.
                    sent = 0
                if sent == size:
                    continue
                data = data[sent:]
            transport.write(data)
        if self._full and self._event_bytes < EVENT_QUEUE_LOW:
            self._full = False
            self.driver.link_changed(self, LinkState.READY)

    def ping(self, *, last: bool = False) -> None:
        """Asks whether the peer is there.

        With ``last`` it asks whether the peer has read everything that was sent before (see
        ``unanswered``).
        """
        self.unanswered += 1
        self.send(_PING, is_event=last)

    def flush(self) -> None:
        """Writes the waiting frames now, and not at the end of this turn."""
        if self._scheduled is not None and not self._paused:
            self._scheduled.cancel()
            self._write()

    def close(self, reason: str, detail: str = "") -> None:
        """Ends the connection, once.

        The link is down from now on. Queued frames that can be written still go.
        """
        if self.closed:
            return
        self.driver.count_close(self, reason, detail)
        if not self._paused and reason not in MISCONDUCT:
            self._write(last=True)
        self.closed, self.reason = True, reason
        transport = self._transport
        if transport is not None:
            if self._paused or reason in MISCONDUCT:
                # Waiting for a peer that does not read could take for ever.
                transport.abort()
            else:
                if self._tls is not None and not transport.is_closing():
                    # With uvloop the handle may be gone before this protocol is told.
                    with contextlib.suppress(RuntimeError):
                        transport.write(self._tls.end())
                transport.close()
                self.loop.call_later(LINGER_SECONDS, transport.abort)
        self._gone(reason)

    def _gone(self, reason: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self.settled.done():
            self.settled.set_result(None)
        self.driver.lost(self, reason)

    def _look(self) -> None:
        """Looks for signs of life in bytes that move.

        While bytes wait, those that have reached the peer's system count. So do the bytes of a
        message that takes long to come.
        """
        if self._transport is None or self.hello is None:
            return
        waits = self._transport.get_write_buffer_size() + _unsent(self._direct)
        arrived, came, frames = self._seen
        self._seen = self._written - waits, self.bytes_in, self._frames
        leaves = bool(waits + self.queued) and self._seen[0] - arrived >= MOVING_BYTES
        comes = self._frames == frames and self.bytes_in - came >= MOVING_BYTES
        if leaves:
            self._heard = self.loop.time()
        if leaves or comes:
            self.driver.moves(self)

    def _watch(self) -> None:
        """Asks silent peers, and gives up dead ones."""
        if self.closed:
            return
        if not self._doubted:
            self._look()
        silent = self.loop.time() - self._heard
        is_new = self.hello is None or self.awaits_list
        is_mute = is_new or silent > SILENCE_SECONDS
        if is_mute and not self._doubted:
            # This process may have been too busy to read, or stopped, and the peer with it: timers
            # come before sockets. So it asks once more and reads the waiting bytes before it
            # decides.
            self._doubted = True
            if not is_new:
                self.ping()
            self._timer = self.loop.call_later(DOUBT_SECONDS, self._watch)
            return
        self._doubted = False
        if is_new:
            self.close("no hello", f"nothing for {HELLO_SECONDS:g} s")
            return
        if is_mute:
            # The peer does not read, so the queued frames are not waited for.
            self._paused = True
            if self.bytes_in > self._heard_bytes:
                self.close("dribbles", f"no whole message for {silent:.0f} s, only parts of one")
            else:
                self.close("silent", f"nothing for {silent:.0f} s")
            return
        if silent >= PING_SECONDS / 2:
            self.ping()
        self._timer = self.loop.call_later(PING_SECONDS, self._watch)


def _unsent(descriptor: int) -> int:
    """The bytes that a socket holds and the other end has not confirmed; 0 if the system does
    not say.
    """
    if descriptor < 0 or sys.platform != "linux":
        return 0
    try:
        found = fcntl.ioctl(descriptor, SIOCOUTQ, bytes(4))
    except OSError:
        return 0
    count: int = struct.unpack("i", found)[0]
    return count
