"""The asyncio driver: one shell for any machine.

Bytes come in, the machine is called, its effects go out, and there is one timer. The driver owns
the links (one connection for each peer), the clock, the counters and the trace. The caller decides
about deliveries. The machine never sees a socket.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from gossamer import trace
from gossamer.machine import (
    NEVER,
    Deliver,
    Dial,
    Effect,
    Hangup,
    LinkState,
    Machine,
    Message,
    Micros,
    Note,
    Peer,
    Send,
    Store,
    Token,
)
from gossamer.net import memory
from gossamer.net.connection import LINGER_SECONDS, Connection
from gossamer.net.disk import Disk
from gossamer.net.guard import Guard
from gossamer.net.keys import Keys
from gossamer.net.limits import PeerLimits
from gossamer.net.spin import Spin
from gossamer.net.tally import Tally
from gossamer.node.rights import Identity, Rights
from gossamer.node.wire import MAGIC, MISCONDUCT, VERSION, AnyMessage, Hello, encode, framed

# The most bytes that are read at once.
SCRATCH_BYTES = 256 << 10
# In microseconds. A timer may fire a clock tick early, and uvloop's tick is a millisecond.
TIMER_TICK = 2000


async def gone(connections: list[Connection]) -> None:
    """Waits until closed connections have written their queues, within reason."""
    loop = asyncio.get_running_loop()
    until = loop.time() + LINGER_SECONDS
    while loop.time() < until and any(c in c.driver.connections for c in connections):
        await asyncio.sleep(0.005)


class Driver:
    def __init__(
        self,
        machine: Machine[Any],
        peer: Peer,
        incarnation: int,
        *,
        deliver: Callable[[Deliver], None],
        after: Callable[[], None],
        address: str,
        fabric: str = "",
        disk: Disk | None = None,
        writer: trace.Writer | None = None,
        keys: Keys | None = None,
        rights: Rights | None = None,
        limits: PeerLimits | None = None,
        spin: float = 0.0,
        shares: bool = False,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.machine, self.peer, self.incarnation = machine, peer, incarnation
        self.address = address
        # It tells this process from a copy of its data directory, or of its keys.
        self._process = secrets.randbits(64) or 1
        self.links: dict[Peer, Connection] = {}
        # The bytes that a connection has just read, until they have been processed.
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        # It also has the connections that have not said hello yet.
        self.connections: dict[Connection, None] = {}
        self.counters: Counter[str] = Counter()
        self.spin = Spin(self.loop, spin, self.counters)
        # Whether it shares memory with nodes of the same host.
        self.shares = shares and memory.HERE
        self.tally = Tally()
        self.last_problem = ""
        self.fabric, self.keys, self.rights = fabric, keys, rights
        self.guard = Guard(self, keys, limits or PeerLimits())
        # Called before the machine is woken.
        self.before: Callable[[], None] = lambda: None
        self.dial: Callable[[str, Peer | None], None] = lambda address, peer: None
        self.changed: Callable[[Peer, LinkState], None] = lambda peer, state: None
        # Called when this node has another certificate.
        self.renewed: Callable[[Identity], None] = lambda identity: None
        # Called when certificates were revoked.
        self.revoked: Callable[[], None] = lambda: None
        # Called when another process has this node's id.
        self.met_twin: Callable[[int], None] = lambda incarnation: None
        # This node's own certificate was revoked, or its authority counts no longer.
        self.disowned: Callable[[], None] = lambda: None
        self.noted: Callable[[trace.Record], None] = lambda record: None
        # Called with the place, the reason and the details when a connection ended for a reason
        # that an operator may have to act on.
        self.ended: Callable[[str, str, str], None] = lambda where, reason, detail: None
        self.closing = False
        # The bytes of connections that are gone.
        self.closed_bytes_in = self.closed_bytes_out = 0
        # Tells the owner about calls to the machine.
        self.after = after
        self._deliver = deliver
        self._disk, self._writer = disk, writer
        if disk is not None:
            disk.lost = self._unstored
        self._performing = False
        # The machine is told this when its effects have been carried out: the state of a link, or
        # an event message that a full queue refused.
        self._answers: deque[tuple[Peer, LinkState | Message]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NEVER
        # A wake-up is due in this turn of the loop.
        self.soon = False
        # A look at the machine's deadline is due, too.
        self._settling = False
        # The time of the last call to the machine, for uses that need no precision.
        self.tick = Micros(0)
        # This is not the loop's own clock. uvloop's clock stands still during a turn, and traces of
        # several processes are compared by time.
        self._origin = time.monotonic_ns()
        self._unix_origin = time.time_ns() // 1000

    def now(self) -> Micros:
        self.tick = now = Micros((time.monotonic_ns() - self._origin) // 1000)
        return now

    def received(self, sender: Peer, message: AnyMessage) -> None:
        """Hands a message to the machine.

        ``arrived`` comes first and ``settle_soon`` last, once for all messages that came together.
        """
        self.perform(self.machine.receive(sender, message, self.tick))

    def arrived(self, messages: int) -> None:
        self.counters["messages_in"] += messages
        self.now()

    def perform(self, effects: list[Effect]) -> None:
        """Carries out effects, and then tells the machine of full queues and broken links."""
        if not effects:
            return
        is_inner, self._performing = self._performing, True
        try:
            for effect in effects:
                kind = type(effect)
                if kind is Send:
                    self._send(effect)  # type: ignore[arg-type]
                elif kind is Deliver:
                    self._deliver(effect)  # type: ignore[arg-type]
                elif kind is Note:
                    self._note(effect.record)  # type: ignore[union-attr]
                elif kind is Store:
                    self._store(effect)  # type: ignore[arg-type]
                elif kind is Dial:
                    self.dial(effect.address, effect.expected)  # type: ignore[union-attr]
                elif kind is Hangup:
                    link = self.links.get(effect.peer)  # type: ignore[union-attr]
                    # The link does not close inside of the machine's own effects. DOWN follows
                    # later.
                    if link is not None:
                        self.loop.call_soon(link.close, "unlinked")
            while self._answers and not is_inner:
                self._answer(*self._answers.popleft())
        finally:
            self._performing = is_inner

    def _answer(self, peer: Peer, what: LinkState | Message) -> None:
        if isinstance(what, LinkState):
            self.perform(self.machine.link(peer, what, self.now()))
            self.changed(peer, what)
        # Otherwise the machine has been told that the link is down.
        elif peer in self.links:
            self.counters["refused_messages"] += 1
            self.perform(self.machine.refused(peer, what, self.now()))

    def settle(self) -> None:
        """Tells the owner about calls to the machine, and sets the timer by the machine's
        deadline.
        """
        self.after()
        deadline = self.machine.deadline
        if deadline < self._timer_at:
            self._plan(deadline)

    def settle_soon(self) -> None:
        """As ``settle``, once and a little later. The consumers of the latest events run first."""
        if not self._settling:
            self._settling = True
            self.loop.call_soon(self._settle)

    def _settle(self) -> None:
        self._settling = False
        if self.closing:
            return
        self.after()
        deadline = self.machine.deadline
        # A timer that is too early stays, because most deadlines move away before they are reached.
        if deadline < self._timer_at:
            self._plan(deadline)

    def _plan(self, deadline: Micros) -> None:
        """Makes sure that the driver is awake at a deadline that is earlier than the timer."""
        now = self.now()
        if deadline <= now:
            if not self.soon:
                self.soon = True
                self.loop.call_soon(self._wake_soon)
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self.loop.call_later((deadline - now) / 1e6, self._wake_timer)

    def _wake_timer(self) -> None:
        self._timer, self._timer_at = None, NEVER
        if self.closing:
            return
        deadline, now = self.machine.deadline, self.now()
        if deadline - now >= TIMER_TICK:
            # The deadline has moved since.
            self._plan(deadline)
        else:
            self._wake(max(deadline, now))

    def _wake_soon(self) -> None:
        if self.soon:
            self._wake()

    def wake(self) -> None:
        """Lets the machine act now: events that were published since the last turn go out in
        this one.
        """
        self._wake()

    def _wake(self, now: Micros | None = None) -> None:
        self.soon = False
        if self.closing:
            return
        self.before()
        now = self.now() if now is None else now
        self.perform(self.machine.wake(now))
        deadline = self.machine.deadline
        assert deadline > now, "a machine's deadline must lie ahead after wake()"
        self.after()
        if deadline < self._timer_at:
            self._plan(deadline)

    def _send(self, send: Send) -> None:
        message = send.message
        # It is encoded once for all recipients.
        frame = framed(message) if type(message).bulk else encode(message)
        is_event = type(message).is_event
        for peer in send.to:
            connection = self.links.get(peer)
            if connection is None:
                self.counters["sends_without_link"] += 1
            elif not connection.send(frame, is_event=is_event):
                self._answers.append((peer, message))

    def flush(self) -> None:
        """Writes now the frames that would be written at the end of this turn."""
        for connection in self.links.values():
            connection.flush()

    def send_to(self, peer: Peer, message: Message) -> None:
        self._send(Send((peer,), message))

    def _store(self, store: Store) -> None:
        assert self._disk is not None, "a machine stores, but the node has no data directory"
        # An event that survives a kill must be in the trace too, or the verdict on it is wrong.
        self._flush_trace()
        self._disk.store(store, self._stored)

    def _unstored(self, tokens: list[Token]) -> None:
        if not self.closing:
            self.perform(self.machine.unstored(tokens, self.now()))
            self.settle()

    def _stored(self, token: Token) -> None:
        if not self.closing:
            self.perform(self.machine.stored(token, self.now()))
            self.settle()

    def _note(self, record: trace.Record) -> None:
        # A record of any kind: ``type`` is quicker here than the checks that mypy follows.
        about: Any = record
        kind = type(record)
        if kind is trace.Rejected:
            self.counters["rejected"] += 1
            self.tally.reject(about.reason)
            self.last_problem = f"rejected from {about.peer}: {about.reason}"
            link = self.links.get(Peer(int(about.peer, 16)))
            if link is not None:
                link.rejected += 1
                if about.cut or link.rejected > self.guard.limits.rejected:
                    # The link does not close inside of the machine's own effects, but after them.
                    self.loop.call_soon(
                        link.close,
                        "does not report" if about.cut else "garbage",
                        about.reason,
                    )
        elif kind is trace.Dropped:
            self.counters["dropped"] += about.count
            self.tally.drop(about.what, about.count, about.reason)
            self.last_problem = f"dropped {about.what}: {about.reason}"
        elif kind is trace.Conflict:
            self.counters["conflicts"] += 1
            self.last_problem = (
                "another process uses this node's identity: "
                "are its keys or its data directory used twice? stop one"
            )
        elif kind is trace.SchemaConflict:
            self.counters["schema_conflicts"] += 1
            topic = about.topic
            self.last_problem = f"topic {topic!r} was advertised with schemas that do not agree"
        elif kind is trace.Gapped:
            self.counters["gaps"] += 1
        elif kind is trace.Duplicate:
            self.counters["duplicate_events_in"] += about.events
        self.noted(record)
        if self._writer is not None:
            try:
                self._writer.write(self._unix_origin + self.now(), record)
            except OSError as error:
                self._stop_tracing(error)

    def _flush_trace(self) -> None:
        if self._writer is not None:
            try:
                self._writer.flush()
            except OSError as error:
                self._stop_tracing(error)

    def _stop_tracing(self, error: OSError) -> None:
        """Ends the trace. A disk that takes no more trace must not stop the node."""
        self._writer = None
        self.counters["traces_stopped"] += 1
        self.last_problem = f"the trace ends here, it cannot be written: {error.strerror or error}"

    def hello(self) -> Hello:
        return Hello(
            MAGIC,
            VERSION,
            VERSION,
            self.peer,
            self.incarnation,
            self.address,
            self.fabric,
            self.guard.revocations(),
            self._process,
            self.shares,
        )

    def opened(self, connection: Connection) -> bool:
        refusal = "leaving" if self.closing else self.guard.admit(connection)
        if refusal:
            connection.close(refusal, "as many as allowed are open")
            return False
        self.connections[connection] = None
        return True

    def recognise(self, connection: Connection, certificate: bytes) -> Identity | None:
        """The identity of a peer, by the certificate that it has shown.

        None means that this node does not talk to it, and the connection ends.
        """
        assert self.keys is not None
        identity = self.keys.prove(certificate)
        if identity is None:
            connection.close("wrong certificate", "not of this fabric's authority")
        elif refusal := self.keys.refusal(identity):
            connection.close(refusal, f"the certificate of {identity.name}")
        elif self.guard.is_shut_out(identity.peer):
            connection.close("shut out", f"{identity.name} was cut off a short while ago")
        else:
            if self.rights is not None:
                self.rights.learn(identity.peer, certificate)
            return identity
        return None

    def greeted(self, connection: Connection) -> None:
        """A peer has said its name.

        There is one link for each peer: of two, both sides keep the one that the smaller peer
        dialled.
        """
        peer = connection.peer
        assert connection.hello is not None
        if self.guard.holds_back(connection):
            return
        self.guard.greeted(connection)
        if peer == self.peer:
            if connection.hello.process == self._process:
                connection.close("myself", "this node's own address")
            else:
                self.met_twin(connection.hello.incarnation)
                self.settle_soon()
                connection.close(
                    "identity used twice",
                    "are its keys or its data directory used twice? "
                    "a node needs its own; stop one of the two",
                )
            return
        if connection.hello.fabric != self.fabric:
            connection.close(
                "other fabric",
                f"the peer belongs to fabric {connection.hello.fabric!r}, not {self.fabric!r}",
            )
            return
        other = self.links.get(peer)
        if other is not None:
            same_direction = (other.dialled is None) == (connection.dialled is None)
            ours_wins = (connection.dialled is not None) == (self.peer < peer)
            # In the same direction, the peer has come back and the old link is dead.
            if same_direction or ours_wins:
                self.links.pop(peer)
                self._link(peer, LinkState.DOWN, "replaced")
                other.close("replaced", "a newer connection to the same peer")
            else:
                connection.close("replaced", "there is a connection to this peer already")
                return
        self.links[peer] = connection
        self.guard.tell(connection)
        self._link(peer, LinkState.UP)

    def lost(self, connection: Connection, reason: str) -> None:
        """The connection cannot be used any more, though its socket may linger."""
        self.counters[f"closed: {reason}"] += 1
        self.guard.closed(connection, reason)
        if connection.hello is not None and self.links.get(connection.peer) is connection:
            del self.links[connection.peer]
            self._link(
                connection.peer, LinkState.CUT if reason in MISCONDUCT else LinkState.DOWN, reason
            )

    def unplugged(self, connection: Connection) -> None:
        """The connection's socket is gone."""
        if self.connections.pop(connection, 0) is None:
            self.guard.unplugged(connection)
            self.closed_bytes_in += connection.traffic[0]
            self.closed_bytes_out += connection.traffic[1]

    def link_changed(self, connection: Connection, state: LinkState) -> None:
        if self.links.get(connection.peer) is connection:
            self._link(connection.peer, state)

    def moves(self, connection: Connection) -> None:
        """Bytes wait for the peer, and enough have left: the link is slow, and not silent."""
        if self.links.get(connection.peer) is connection and not self.closing:
            self.counters["slow_links"] += 1
            self.perform(self.machine.link(connection.peer, LinkState.MOVING, self.now()))
            self.settle()

    def _link(self, peer: Peer, state: LinkState, reason: str = "") -> None:
        if self.closing:
            return
        self._note(trace.Linked(trace.hex_peer(peer), state.name.lower(), reason))
        if self._performing:
            self._answers.append((peer, state))
            return
        self.perform(self.machine.link(peer, state, self.now()))
        self.changed(peer, state)
        self.settle()

    def count_dropped(self, what: str, count: int, reason: str) -> None:
        self._note(trace.Dropped(what, count, reason))

    def count_close(self, connection: Connection, reason: str, detail: str) -> None:
        if detail and reason not in ("replaced", "myself", "leaving", "somebody else"):
            where, detail = connection.dialled or "incoming", detail.removeprefix(f"{reason}: ")
            self.last_problem = f"closed {where}: {reason} ({detail})"
            self.ended(where, reason, detail)

    def close(self) -> None:
        """Says nothing more to the machine, and ends every connection after its queues."""
        # From here on nothing is due. Callers of ``soon`` must see that.
        self.closing, self.soon = True, False
        if self._timer is not None:
            self._timer.cancel()
        self.guard.close()
        for connection in list(self.connections):
            connection.close("leaving")
        self._flush_trace()
