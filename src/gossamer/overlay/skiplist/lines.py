"""Connections to the peers that an entry must talk to.

``Send`` goes over links that are up. Other peers are dialled first, and the messages for them wait.
The number of waiting messages is bounded, and no message waits for long. If a peer cannot be
reached within ``PATIENCE``, the lines report it as if its link had broken. The side that dialled
closes a line that it has sent nothing over for ``IDLE``, if the owner lets it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from gossamer.machine import NEVER, SECOND, Dial, Effect, Hangup, Message, Micros, Peer, Send

# This number of messages may wait for one peer that is being dialled.
WAITING_MAX = 256
PEERS_WAITING_MAX = 4_096
PATIENCE = 2 * SECOND
AGAIN = SECOND // 2
IDLE = 60 * SECOND


class _Waiting:
    __slots__ = ("dialled", "messages", "since")

    def __init__(self, now: Micros) -> None:
        self.messages: list[Message] = []
        self.since = self.dialled = now


class Lines:
    def __init__(
        self, me: Peer, address: Callable[[Peer], str | None], *, hangs_up: bool = False
    ) -> None:
        self.me = me
        # Each peer with a link has the time here at which a message was last sent to it.
        self.up: dict[Peer, Micros] = {}
        self.dropped = 0
        # These messages go from one entry of this node to another.
        self.loop: deque[Message] = deque()
        self._address, self._hangs_up = address, hangs_up
        self._waiting: dict[Peer, _Waiting] = {}
        # This node has dialled these peers.
        self._mine: dict[Peer, None] = {}
        self._look_at: Micros = NEVER

    @property
    def deadline(self) -> Micros:
        return self._look_at

    def send(self, to: Peer, message: Message, now: Micros) -> list[Effect]:
        if to == self.me:
            self.loop.append(message)
            return []
        if to in self.up:
            self.up[to] = now
            return [Send((to,), message)]
        effects = self.call(to, now)
        waiting = self._waiting.get(to)
        if waiting is not None and len(waiting.messages) < WAITING_MAX:
            waiting.messages.append(message)
        else:
            self.dropped += 1
        return effects

    def calls(self, peer: Peer) -> bool:
        """Return whether that peer is being dialled."""
        return peer in self._waiting

    def call(self, to: Peer, now: Micros) -> list[Effect]:
        """Dial a peer, if it has an address and is not being dialled already."""
        if to in self._waiting:
            return []
        address = self._address(to)
        if address is None or len(self._waiting) >= PEERS_WAITING_MAX:
            return []
        self._waiting[to] = _Waiting(now)
        self._look_at = min(self._look_at, Micros(now + AGAIN))
        return [Dial(address, to)]

    def opened(self, peer: Peer, now: Micros) -> list[Effect]:
        self.up[peer] = now
        waiting = self._waiting.pop(peer, None)
        if self._hangs_up:
            self._look_at = min(self._look_at, Micros(now + IDLE))
        if waiting is None:
            return []
        self._mine[peer] = None
        return [Send((peer,), message) for message in waiting.messages]

    def closed(self, peer: Peer) -> None:
        self.up.pop(peer, None)
        self._mine.pop(peer, None)

    def wake(self, now: Micros) -> tuple[list[Effect], list[Peer]]:
        """Dial again. Return also the peers that cannot be reached."""
        effects: list[Effect] = []
        lost: list[Peer] = []
        self._look_at = NEVER
        for peer, waiting in list(self._waiting.items()):
            if now - waiting.since >= PATIENCE:
                del self._waiting[peer]
                self.dropped += len(waiting.messages)
                lost.append(peer)
                continue
            if now - waiting.dialled >= AGAIN:
                waiting.dialled = now
                address = self._address(peer)
                if address is not None:
                    effects.append(Dial(address, peer))
            self._look_at = min(self._look_at, Micros(waiting.dialled + AGAIN))
        if self._hangs_up and self._mine:
            self._look_at = min(self._look_at, Micros(now + IDLE // 2))
            for peer in [peer for peer in self._mine if now - self.up.get(peer, now) >= IDLE]:
                del self._mine[peer]
                effects.append(Hangup(peer))
        return effects, lost
