"""Links to other hosts: they are dialled for a message, and closed when they were idle for long.

A message to a host without a link waits until there is one. A message that was sent over a link
that has gone down may be lost, as the link contract says (machine.py), and the part of the host
that sent it makes it up over the next link.

A host that cannot be reached by ``dial_tries`` attempts is reported in ``failed``. This is the only
verdict there is. A link that is up and silent is no death, because a link that breaks is noticed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

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
from gossamer.overlay.tree.messages import Attach
from gossamer.trace import Dropped, Rejected, hex_peer

# Messages that may wait for one link.
QUEUE_MAX = 256


class Link:
    """A link that is up."""

    __slots__ = ("used",)

    def __init__(self, now: Micros) -> None:
        self.used = now


class Waiting:
    """A link that is wanted and not up."""

    __slots__ = ("at", "host", "is_awaited", "messages", "tries")

    def __init__(self, host: Host) -> None:
        self.host, self.tries, self.at = host, 0, Micros(0)
        # Somebody must hear that there is the link, or that there is none.
        self.is_awaited = False
        self.messages: deque[Message] = deque()


class Links:
    def __init__(self, me: Peer, config: TreeConfig, out: list[Effect]) -> None:
        self.me, self.config, self.out = me, config, out
        self.up: dict[Peer, Link] = {}
        # Verdicts, for the owner to take.
        self.failed: list[Peer] = []
        # Whether somebody needs a link though nothing moves on it.
        self.kept: Callable[[Peer], bool] = lambda _peer: False
        self.rejected = 0
        # Messages that waited for a link and had to go.
        self.dropped = 0
        self.deadline = NEVER
        self._waiting: dict[Peer, Waiting] = {}

    # ------------------------------------------------------------------ sending

    def dial(self, host: Host, now: Micros, *, is_awaited: bool = False) -> None:
        """Have a link to this host, or a verdict.

        ``is_awaited``: the caller waits for one of the two, whatever else happens.
        """
        if host.peer == self.me or host.to in self.up:
            return
        waiting = self._waiting.get(host.to)
        if waiting is None:
            waiting = self._waiting[host.to] = Waiting(host)
            self._dial(waiting, now)
        waiting.is_awaited = waiting.is_awaited or is_awaited

    def send(self, host: Host, message: Message, now: Micros) -> None:
        """Dial the host first if need be. The oldest message gives way when too many wait."""
        if self.say(host.to, message, now):
            return
        self.dial(host, now)
        waiting = self._waiting[host.to].messages
        if len(waiting) == QUEUE_MAX:
            waiting.popleft()
            self.dropped += 1
            self.out.append(
                Note(Dropped("tree", 1, f"more than {QUEUE_MAX} messages wait for a link"))
            )
        waiting.append(message)

    def say(self, peer: Peer, message: Message, now: Micros) -> bool:
        """The same to a peer to which there is a link; returns whether there is."""
        link = self.up.get(peer)
        if link is None:
            return False
        link.used = now
        self.out.append(Send((peer,), message))
        return True

    def hang_up(self, peer: Peer) -> None:
        if peer in self.up:
            self.out.append(Hangup(peer))

    def heard(self, sender: Peer, now: Micros) -> bool:
        """A message has come over the link to this peer. Returns whether there is such a link."""
        link = self.up.get(sender)
        if link is not None:
            link.used = now
        return link is not None

    def reject(self, sender: Peer, reason: str) -> None:
        self.rejected += 1
        self.out.append(Note(Rejected(hex_peer(sender), reason)))

    # -------------------------------------------------------------------- links

    def link(self, peer: Peer, state: LinkState, now: Micros) -> None:
        if state is LinkState.UP:
            self.up[peer] = Link(now)
            self.deadline = min(self.deadline, Micros(now + self.config.idle))
            waiting = self._waiting.pop(peer, None)
            if waiting is not None:
                self.out.extend(Send((peer,), message) for message in waiting.messages)
        elif state in (LinkState.DOWN, LinkState.CUT):
            self.up.pop(peer, None)

    def forget(self, peer: Peer) -> None:
        """The peer is no neighbour any longer.

        What others want to say to it still waits for the link, or for the verdict: a publisher that
        asks a host for its keys must hear that there is no such host.
        """
        waiting = self._waiting.get(peer)
        if waiting is not None:
            waiting.messages = deque(
                message for message in waiting.messages if type(message) is not Attach
            )
            if not waiting.messages and not waiting.is_awaited:
                del self._waiting[peer]

    def _dial(self, waiting: Waiting, now: Micros) -> None:
        waiting.tries += 1
        waiting.at = Micros(now + self.config.dial_wait)
        self.deadline = min(self.deadline, waiting.at)
        # A host without an address is given up after the same time.
        if waiting.host.address:
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
            if link.used + self.config.idle <= now:
                if not self.kept(peer):
                    self.hang_up(peer)
                link.used = now
            deadline = min(deadline, Micros(link.used + self.config.idle))
        self.deadline = deadline
