"""Topics: their names and schemas, and how every node comes to know them.

An advertisement goes to every neighbour and on from there; each link keeps what its far end has not confirmed and sends it
again, so a loss delays it and nothing more. The first schema of a topic that a node hears of stands; another one is an error
at whoever advertises it, and a counted rejection when it comes from a peer.

Messages:
    Adverts        topics with their schemas
    AdvertsTaken   the names of topics that the sender has heard of by the receiver's Adverts
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from gossamer.filters import Schema, SchemaError
from gossamer.machine import MILLISECOND, NEVER, Effect, LinkState, Message, Micros, Note, Peer, Send, Token
from gossamer.trace import Advertised, Dropped, Rejected, hex_peer

TOPICS_MAX = 4096
TOPIC_LENGTH_MAX = 255
SCHEMA_LENGTH_MAX = 16_384
ADVERTS_A_MESSAGE = 64
RESEND = Micros(500 * MILLISECOND)

Name = Annotated[str, Meta(min_length=1, max_length=TOPIC_LENGTH_MAX)]
SchemaText = Annotated[str, Meta(min_length=1, max_length=SCHEMA_LENGTH_MAX)]


class Adverts(Message, frozen=True, array_like=True, tag=20):
    topics: Annotated[tuple[tuple[Name, SchemaText], ...], Meta(max_length=ADVERTS_A_MESSAGE)]


class AdvertsTaken(Message, frozen=True, array_like=True, tag=21):
    topics: Annotated[tuple[Name, ...], Meta(max_length=ADVERTS_A_MESSAGE)]


class TopicError(ValueError):
    """A topic that is unknown, badly named, or advertised with two schemas."""


class Topics:
    """The machine that spreads advertisements."""

    def __init__(self) -> None:
        self.schemas: dict[str, Schema] = {}
        self.deadline = NEVER
        self.introduced = False  # some neighbour has told what it knows
        self._unconfirmed: dict[Peer, dict[str, None]] = {}  # per link: what its far end has not confirmed
        self._out: list[Effect] = []

    @property
    def unconfirmed(self) -> bool:
        """Some neighbour may not have heard of some topic yet."""
        return any(self._unconfirmed.values())

    def advertise(self, topic: str, schema: Schema, now: Micros) -> list[Effect]:
        if not 1 <= len(topic) <= TOPIC_LENGTH_MAX:
            raise TopicError(f"a topic's name has 1 to {TOPIC_LENGTH_MAX} characters, not {len(topic)}")
        if len(schema.text) > SCHEMA_LENGTH_MAX:
            raise TopicError(
                f"the schema of {topic!r} has {len(schema.text)} characters; at most {SCHEMA_LENGTH_MAX} are allowed"
            )
        known = self.schemas.get(topic)
        if known is None:
            if len(self.schemas) >= TOPICS_MAX:
                raise TopicError(f"there are {TOPICS_MAX} topics already, the most that a node keeps")
            self._learn(topic, schema, None, now)
        elif known != schema:
            raise TopicError(
                f"topic {topic!r} is already advertised as ({known.text}), which is not ({schema.text}); "
                "use the same schema, or another topic name"
            )
        return self._flush()

    def receive(self, sender: Peer, message: Adverts | AdvertsTaken, now: Micros) -> list[Effect]:
        if type(message) is Adverts:
            self.introduced = True
            for topic, text in message.topics:
                self._hear(sender, topic, text, now)
            if message.topics:
                self._out.append(Send((sender,), AdvertsTaken(tuple(topic for topic, _ in message.topics))))
        elif type(message) is AdvertsTaken:
            pending = self._unconfirmed.get(sender)
            if pending is not None:
                for topic in message.topics:
                    pending.pop(topic, None)
        return self._flush()

    def link(self, peer: Peer, state: LinkState, now: Micros) -> list[Effect]:
        if state is LinkState.UP:
            self._unconfirmed[peer] = dict.fromkeys(self.schemas)
            self._send(peer, now)
            if not self.schemas:
                self._out.append(Send((peer,), Adverts(())))  # nothing, but said: a newcomer waits for it
        elif state in (LinkState.DOWN, LinkState.CUT):
            self._unconfirmed.pop(peer, None)
        return self._flush()

    def wake(self, now: Micros) -> list[Effect]:
        if now >= self.deadline:
            self.deadline = NEVER
            for peer in self._unconfirmed:
                self._send(peer, now)
        return self._flush()

    def stored(self, token: Token, now: Micros) -> list[Effect]:
        return []

    def _hear(self, sender: Peer, topic: str, text: str, now: Micros) -> None:
        known = self.schemas.get(topic)
        if known is not None and known.text == text:
            return
        try:
            schema = Schema.parse(text)
        except SchemaError as error:
            self._out.append(Note(Rejected(hex_peer(sender), f"schema of {topic!r}: {error}")))
            return
        if known is not None:
            if known != schema:
                reason = f"topic {topic!r} is ({known.text}) here and ({schema.text}) at the peer"
                self._out.append(Note(Rejected(hex_peer(sender), reason)))
        elif len(self.schemas) >= TOPICS_MAX:
            self._out.append(Note(Dropped("topic", 1, f"more than {TOPICS_MAX} topics")))
        else:
            self._learn(topic, schema, sender, now)

    def _learn(self, topic: str, schema: Schema, sender: Peer | None, now: Micros) -> None:
        self.schemas[topic] = schema
        self._out.append(Note(Advertised(topic, schema.text)))
        for peer, pending in self._unconfirmed.items():
            if peer != sender:
                pending[topic] = None
                self._out.append(Send((peer,), Adverts(((topic, schema.text),))))
        self.deadline = min(self.deadline, Micros(now + RESEND))

    def _send(self, peer: Peer, now: Micros) -> None:
        pending = [(topic, self.schemas[topic].text) for topic in self._unconfirmed[peer]]
        for start in range(0, len(pending), ADVERTS_A_MESSAGE):
            self._out.append(Send((peer,), Adverts(tuple(pending[start : start + ADVERTS_A_MESSAGE]))))
        if pending:
            self.deadline = min(self.deadline, Micros(now + RESEND))

    def _flush(self) -> list[Effect]:
        out, self._out = self._out, []
        return out
