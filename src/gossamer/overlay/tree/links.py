"""Links to other hosts: dialled when something is to be said, closed when nothing has been for long.

Plain messages (``send``) may be lost. What the tree says (``post``) is numbered for each link, acknowledged and repeated,
and comes out at the other end in order and once: the seed's third subproblem, one link at a time. When a link goes down,
what was not acknowledged is gone, and whoever posted it makes it up over the next link.

A host that nobody can reach (``dial_tries``) is reported in ``failed``: the only verdict there is. A link that is up and
silent is no death, because a link that breaks is noticed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from gossamer.machine import (
    NEVER,
    Dial,
    Effect,
    Hangup,
    LinkState,
    Message,
    Micros,
    Note,
    Peer,
    Send,
)
from gossamer.overlay.tree.arcs import Host
from gossamer.overlay.tree.config import TreeConfig
from gossamer.overlay.tree.messages import Attach, Body, Cargo, Carry, Got, Parcel
from gossamer.trace import Dropped, Rejected, hex_peer

AHEAD_MAX = 4096  # how far a number may be ahead of what has arrived
RESEND_AT_ONCE = 16
QUEUE_MAX = 256  # what waits for a link to come up


class Unacknowledged:
    __slots__ = ("body", "number", "sent", "tries")

    def __init__(self, number: int, body: Body, now: Micros) -> None:
        self.number, self.body, self.sent, self.tries = number, body, now, 1


class Link:
    """A link that is up, and both directions of numbered messages."""

    __slots__ = ("ack_at", "early", "expected", "number", "out", "resend_at", "rtt", "used")

    def __init__(self, now: Micros) -> None:
        self.used = now
        self.number = 0  # of the next message
        self.out: deque[Unacknowledged] = deque()
        self.expected = 0  # of the next that arrives
        self.early: dict[int, Body] = {}
        self.ack_at = NEVER
        self.resend_at = NEVER
        self.rtt = 0


class Waiting:
    """A link that is wanted and not up."""

    __slots__ = ("at", "host", "plain", "posted", "tries")

    def __init__(self, host: Host) -> None:
        self.host, self.tries, self.at = host, 0, Micros(0)
        self.plain: deque[Message] = deque()
        self.posted: deque[Body] = deque()


class Links:
    def __init__(self, me: Peer, config: TreeConfig) -> None:
        self.me, self.config = me, config
        self.up: dict[Peer, Link] = {}
        self.failed: list[Peer] = []  # verdicts, for the owner to take
        self.kept: Callable[[Peer], bool] = lambda _peer: (
            False
        )  # whether somebody needs the link though it is silent
        self.rejected = 0
        self.retransmitted = 0
        self.dropped = 0  # of what waited for a link
        self.out: list[Effect] = []
        self.deadline = NEVER
        self._waiting: dict[Peer, Waiting] = {}

    # ------------------------------------------------------------------ sending

    def dial(self, host: Host, now: Micros) -> None:
        """Have a link to this host, or a verdict."""
        if host.peer == self.me or host.to in self.up or host.to in self._waiting:
            return
        waiting = self._waiting[host.to] = Waiting(host)
        self._dial(waiting, now)

    def send(self, host: Host, message: Message, now: Micros) -> None:
        link = self.up.get(host.to)
        if link is not None:
            link.used = now
            self.out.append(Send((host.to,), message))
            return
        self.dial(host, now)
        self._queue(self._waiting[host.to].plain, message)

    def post(self, host: Host, body: Body, now: Micros) -> None:
        """In order, once, while the link lasts; dialled first if need be."""
        link = self.up.get(host.to)
        if link is not None:
            self._post(host.to, link, body, now)
            return
        self.dial(host, now)
        self._queue(self._waiting[host.to].posted, body)

    def _queue(self, queue: deque[Any], message: Message) -> None:
        """The oldest gives way when too many wait: questions are asked again, and batches sent again by their publishers."""
        if len(queue) == QUEUE_MAX:
            queue.popleft()
            self.dropped += 1
            self.out.append(
                Note(Dropped("tree", 1, f"more than {QUEUE_MAX} messages wait for a link"))
            )
        queue.append(message)

    def say(self, peer: Peer, body: Body, now: Micros) -> bool:
        """The same to whom there is a link; returns whether there is."""
        link = self.up.get(peer)
        if link is None:
            return False
        self._post(peer, link, body, now)
        return True

    def _post(self, peer: Peer, link: Link, body: Body, now: Micros) -> None:
        if len(link.out) >= self.config.unacknowledged_max:
            self.hang_up(peer)
            return
        self._transmit(peer, link, link.number, body)
        link.out.append(Unacknowledged(link.number, body, now))
        link.number += 1
        link.used = now
        if link.resend_at == NEVER:
            self._arm_resend(link, now)

    def _transmit(self, peer: Peer, link: Link, number: int, body: Body) -> None:
        kind = Cargo if type(body) is Carry else Parcel
        self.out.append(Send((peer,), kind(number, link.expected, body)))  # type: ignore[arg-type]
        link.ack_at = NEVER

    def hang_up(self, peer: Peer) -> None:
        if peer in self.up:
            self.out.append(Hangup(peer))

    # ---------------------------------------------------------------- receiving

    def receive(self, sender: Peer, message: Parcel | Cargo | Got, now: Micros) -> list[Body]:
        """What has arrived, in order."""
        link = self.up.get(sender)
        if link is None:
            return []
        if message.got > link.number:
            self.reject(sender, "an acknowledgement of what was never sent")
            return []
        self._acknowledged(link, message.got, now)
        if isinstance(message, Got):
            return []
        link.used = now
        if message.number >= link.expected + AHEAD_MAX:
            self.reject(sender, "a message numbered too far ahead")
            return []
        self._arm(now, link)
        if message.number < link.expected or message.number in link.early:
            return []
        link.early[message.number] = message.body
        found = []
        while link.expected in link.early:
            found.append(link.early.pop(link.expected))
            link.expected += 1
        return found

    def _arm(self, now: Micros, link: Link) -> None:
        if link.ack_at == NEVER:
            link.ack_at = Micros(now + self.config.acknowledge)
            self.deadline = min(self.deadline, link.ack_at)

    def _acknowledged(self, link: Link, got: int, now: Micros) -> None:
        out = link.out
        if not out or out[0].number >= got:
            return
        while out and out[0].number < got:
            done = out.popleft()
            if done.tries == 1:
                link.rtt = (
                    now - done.sent if not link.rtt else (7 * link.rtt + now - done.sent) // 8
                )
        self._arm_resend(link, now)

    def _arm_resend(self, link: Link, now: Micros) -> None:
        if not link.out:
            link.resend_at = NEVER
            return
        first = link.out[0]
        wait = min(
            max(self.config.resend, 3 * link.rtt) << min(first.tries - 1, 6),
            max(self.config.resend_max, 3 * link.rtt),
        )
        link.resend_at = Micros(max(first.sent + wait, now + 1))
        self.deadline = min(self.deadline, link.resend_at)

    def reject(self, sender: Peer, reason: str) -> None:
        self.rejected += 1
        self.out.append(Note(Rejected(hex_peer(sender), reason)))

    # -------------------------------------------------------------------- links

    def link(self, peer: Peer, state: LinkState, now: Micros) -> None:
        if state is LinkState.UP:
            link = self.up[peer] = Link(now)
            self.deadline = min(self.deadline, Micros(now + self.config.idle))
            waiting = self._waiting.pop(peer, None)
            if waiting is not None:
                self.out.extend(Send((peer,), message) for message in waiting.plain)
                for body in waiting.posted:
                    self._post(peer, link, body, now)
        elif state in (LinkState.DOWN, LinkState.CUT):
            self.up.pop(peer, None)

    def forget(self, peer: Peer) -> None:
        """It is no neighbour any longer. What others want to say to it still waits for the link, or for the verdict: a publisher
        that asks a host for its keys must hear that there is none to ask.
        """
        waiting = self._waiting.get(peer)
        if waiting is not None:
            waiting.posted = deque(body for body in waiting.posted if type(body) is not Attach)
            if not waiting.posted and not waiting.plain:
                del self._waiting[peer]

    def _dial(self, waiting: Waiting, now: Micros) -> None:
        waiting.tries += 1
        waiting.at = Micros(now + self.config.dial_wait)
        self.deadline = min(self.deadline, waiting.at)
        self.out.append(Dial(waiting.host.address, Peer(waiting.host.peer)))

    def wake(self, now: Micros) -> None:
        if now < self.deadline:
            return
        for peer, waiting in list(self._waiting.items()):
            if waiting.at <= now:
                if waiting.tries >= self.config.dial_tries:
                    del self._waiting[peer]
                    self.failed.append(peer)
                else:
                    self._dial(waiting, now)
        deadline = min((waiting.at for waiting in self._waiting.values()), default=NEVER)
        for peer, link in self.up.items():
            deadline = min(deadline, self._tend(peer, link, now))
        self.deadline = deadline

    def _tend(self, peer: Peer, link: Link, now: Micros) -> Micros:
        """Repeat, acknowledge, or close; returns when to look again."""
        if link.resend_at <= now:
            for late in list(link.out)[:RESEND_AT_ONCE]:
                late.tries, late.sent = late.tries + 1, now
                self.retransmitted += 1
                self._transmit(peer, link, late.number, late.body)
            self._arm_resend(link, now)
        if link.ack_at <= now:
            link.ack_at = NEVER
            self.out.append(Send((peer,), Got(link.expected)))
        idle_at = Micros(link.used + self.config.idle)
        if idle_at <= now:
            if not link.out and not self.kept(peer):
                self.hang_up(peer)
            link.used = now
            idle_at = Micros(now + self.config.idle)
        return min(link.resend_at, link.ack_at, idle_at)
