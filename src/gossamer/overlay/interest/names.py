"""Names of topics. They travel as 64-bit hashes, and other nodes can be asked for them.

A node that wants a topic knows its name. So a node that has only the hash asks a node that wants
it. Two names with one hash cost a needless delivery, which the receiver drops by name. A node shows
the first name that it learns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gossamer.machine import Effect, Peer, Send
from gossamer.overlay.interest.messages import NAME_MAX, NAMES_MAX, NameAsk, NameTell
from gossamer.overlay.interest.record import TOPIC, topic_hash

KNOWN_MAX = 1_000_000
ASKED_MAX = 65_536


class Names:
    def __init__(self, hash: Callable[[str], bytes] = topic_hash) -> None:
        self.hash = hash
        self._names: dict[bytes, str] = {}
        self._asked: dict[bytes, None] = {}

    def learn(self, name: str) -> bytes:
        """The hash of a name, which from now on can be turned back into the name."""
        topic = self.hash(name)
        if topic not in self._names and len(self._names) < KNOWN_MAX:
            self._names[topic] = name
        self._asked.pop(topic, None)
        return topic

    def get(self, topic: bytes) -> str | None:
        return self._names.get(topic)

    def show(self, topic: bytes) -> str:
        """The name, or the hash if the name is not known yet."""
        return self._names.get(topic) or f"#{topic.hex()}"

    def unknown(self, topics: Iterable[bytes]) -> list[bytes]:
        return [topic for topic in topics if topic not in self._names]

    def question(self, peer: Peer, topics: list[bytes]) -> list[Effect]:
        """Asks a peer for the names of topics that it wants."""
        effects: list[Effect] = []
        for start in range(0, len(topics), NAMES_MAX):
            some = topics[start : start + NAMES_MAX]
            for topic in some:
                if len(self._asked) < ASKED_MAX:
                    self._asked[topic] = None
            effects.append(Send((peer,), NameAsk(b"".join(some))))
        return effects

    def ask(self, peer: Peer, message: NameAsk) -> list[Effect] | None:
        """Answers a question. None means that the message is malformed."""
        if len(message.topics) % TOPIC:
            return None
        topics = message.topics
        found = [self._names.get(topics[at : at + TOPIC]) for at in range(0, len(topics), TOPIC)]
        names = tuple(name for name in found if name is not None and len(name) <= NAME_MAX)
        return [Send((peer,), NameTell(names))] if names else []

    def tell(self, message: NameTell) -> None:
        """Learns names, but only those whose hash was asked for. A hash shows whether its name
        is right.
        """
        for name in message.names:
            if self.hash(name) in self._asked:
                self.learn(name)
