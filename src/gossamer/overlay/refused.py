"""Event messages that a full queue handed back. They wait here until the queue has room again."""

from __future__ import annotations

from gossamer.machine import Effect, LinkState, Message, Note, Peer, Send
from gossamer.trace import Dropped

# Messages for each link.
KEPT_MAX = 256


class Refused:
    def __init__(self) -> None:
        self._kept: dict[Peer, list[Message]] = {}

    def keep(self, peer: Peer, message: Message) -> list[Effect]:
        """Keep the message for the moment when the link is ready.

        Beyond the limit it is dropped and counted.
        """
        kept = self._kept.setdefault(peer, [])
        if len(kept) >= KEPT_MAX:
            return [Note(Dropped("event message", 1, "queue to peer full"))]
        kept.append(message)
        return []

    def link(self, peer: Peer, state: LinkState) -> list[Effect]:
        """Send the kept messages, in order, if there is room again.

        Forget them if the link is another one.
        """
        if state is LinkState.FULL:
            return []
        kept = self._kept.pop(peer, [])
        if state is not LinkState.READY:
            return []
        return [Send((peer,), message) for message in kept]
