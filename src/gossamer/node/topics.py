"""Topics: their names and schemas, and how every node comes to know them.

An advertisement goes to every neighbour and on from there; each link keeps what its far end has not confirmed, a bounded part
of it on the way at a time, and sends it again, so a loss delays it and nothing more. The first schema of a topic that a node
hears of stands, and may grow: nullable attributes can be added at the end, and the longest is everybody's. Another one is an error
at whoever advertises it, and a counted rejection when it comes from a peer. So it is with a topic's retention (retention.py), which
may also be added later; who says nothing about it agrees.

Messages:
    Adverts        topics with their schemas
    AdvertsTaken   the names of topics that the sender has heard of by the receiver's Adverts
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from gossamer.filters import Schema, SchemaError
from gossamer.machine import (
    MILLISECOND,
    NEVER,
    Effect,
    LinkState,
    Message,
    Micros,
    Note,
    Peer,
    Send,
    Token,
)
from gossamer.node.retention import BYTES_MAX, SECONDS_MAX, Retention
from gossamer.trace import Advertised, Dropped, Rejected, hex_peer

TOPICS_MAX = 4096
TOPIC_LENGTH_MAX = 255
SCHEMA_LENGTH_MAX = 16_384
SCHEMAS_LENGTH_MAX = 16 << 20  # of all topics together
ADVERTS_A_MESSAGE = 64
CHARACTERS_ON_THE_WAY = 256 << 10  # unconfirmed, per link
RESEND = Micros(500 * MILLISECOND)

Name = Annotated[str, Meta(min_length=1, max_length=TOPIC_LENGTH_MAX)]
SchemaText = Annotated[str, Meta(min_length=1, max_length=SCHEMA_LENGTH_MAX)]


_Seconds = Annotated[int, Meta(ge=0, le=SECONDS_MAX)]
_Bytes = Annotated[int, Meta(ge=1, le=BYTES_MAX)]
_Length = Annotated[int, Meta(ge=0, le=SCHEMA_LENGTH_MAX)]


class Adverts(Message, frozen=True, array_like=True, tag=20):
    topics: Annotated[tuple[tuple[Name, SchemaText], ...], Meta(max_length=ADVERTS_A_MESSAGE)]
    retained: Annotated[
        tuple[tuple[Name, _Seconds, _Bytes], ...], Meta(max_length=ADVERTS_A_MESSAGE)
    ] = ()


class AdvertsTaken(Message, frozen=True, array_like=True, tag=21):
    topics: Annotated[tuple[Name, ...], Meta(max_length=ADVERTS_A_MESSAGE)]
    lengths: Annotated[
        tuple[_Length, ...], Meta(max_length=ADVERTS_A_MESSAGE)
    ] = ()  # of the schemas' texts, as they came


class TopicError(ValueError):
    """A topic that is unknown, badly named, or advertised with two schemas."""


class Topics:
    """The machine that spreads advertisements."""

    def __init__(self) -> None:
        self.schemas: dict[str, Schema] = {}
        self.retentions: dict[str, Retention] = {}  # of topics that have one
        self.deadline = NEVER
        self.introduced = False  # some neighbour has told what it knows
        self.changed: list[
            str
        ] = []  # topics that are new, or have a longer schema, for the owner to take
        self._unconfirmed: dict[
            Peer, dict[str, bool]
        ] = {}  # per link: what its far end has not confirmed; True: on the way
        self._characters = 0
        self._out: list[Effect] = []

    @property
    def unconfirmed(self) -> bool:
        """Some neighbour may not have heard of some topic yet."""
        return any(self._unconfirmed.values())

    def advertise(
        self, topic: str, schema: Schema, now: Micros, retention: Retention | None = None
    ) -> list[Effect]:
        if not 1 <= len(topic) <= TOPIC_LENGTH_MAX:
            raise TopicError(
                f"a topic's name has 1 to {TOPIC_LENGTH_MAX} characters, not {len(topic)}"
            )
        if len(schema.text) > SCHEMA_LENGTH_MAX:
            raise TopicError(
                f"the schema of {topic!r} has {len(schema.text)} characters; at most {SCHEMA_LENGTH_MAX} are allowed"
            )
        known = self.schemas.get(topic)
        if known is None:
            if not self._has_room(schema):
                raise TopicError(
                    f"no room for another topic: a node keeps {TOPICS_MAX}, with schemas of {SCHEMAS_LENGTH_MAX} characters"
                )
            self._learn(topic, schema, None, now, retention)
        elif schema.extends(known):
            self._learn(topic, schema, None, now, retention)
        elif known != schema and not known.extends(schema):
            raise TopicError(
                f"topic {topic!r} is already advertised as ({known.text}), which is not ({schema.text}); "
                "use the same schema, with nullable attributes added at the end if need be, or another topic name"
            )
        if retention is not None and not self._retain(topic, retention, None, now):
            raise TopicError(
                f"topic {topic!r} is already advertised with retention {self.retentions[topic].text!r}, which is not "
                f"{retention.text!r}; use the same retention, or another topic name"
            )
        return self._flush()

    def receive(self, sender: Peer, message: Adverts | AdvertsTaken, now: Micros) -> list[Effect]:
        if type(message) is Adverts:
            self.introduced = True
            retained = {
                topic: Retention(seconds, size) for topic, seconds, size in message.retained
            }
            for topic, text in message.topics:
                self._hear(sender, topic, text, now, retained.get(topic))
            for topic, theirs in retained.items():
                if topic in self.schemas and not self._retain(topic, theirs, sender, now):
                    reason = f"topic {topic!r} has retention {self.retentions[topic].text!r} here and {theirs.text!r} at the peer"
                    self._out.append(Note(Rejected(hex_peer(sender), reason)))
            if message.topics:
                topics, lengths = zip(
                    *((topic, len(text)) for topic, text in message.topics), strict=True
                )
                self._out.append(Send((sender,), AdvertsTaken(topics, lengths)))
        elif type(message) is AdvertsTaken:
            pending = self._unconfirmed.get(sender)
            if pending is not None:
                said = dict(zip(message.topics, message.lengths, strict=False))
                for topic in message.topics:
                    if topic in pending and said.get(topic, SCHEMA_LENGTH_MAX) >= len(
                        self.schemas[topic].text
                    ):
                        del pending[topic]  # else it has a shorter one
                if (
                    pending and next(iter(pending.values())) is False
                ):  # all that was on the way has arrived: the next part
                    self._send(sender, now)
        return self._flush()

    def link(self, peer: Peer, state: LinkState, now: Micros) -> list[Effect]:
        if state is LinkState.UP:
            self._unconfirmed[peer] = dict.fromkeys(self.schemas, False)
            self._send(peer, now)
            if not self.schemas:
                self._out.append(
                    Send((peer,), Adverts(()))
                )  # nothing, but said: a newcomer waits for it
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

    def _hear(
        self, sender: Peer, topic: str, text: str, now: Micros, retention: Retention | None
    ) -> None:
        known = self.schemas.get(topic)
        if known is not None and known.text == text:
            return
        try:
            schema = Schema.parse(text)
        except SchemaError as error:
            self._out.append(Note(Rejected(hex_peer(sender), f"schema of {topic!r}: {error}")))
            return
        if known is not None:
            if schema.extends(known):
                if self._has_room(schema, known):
                    self._learn(topic, schema, sender, now, retention)
            elif known.extends(schema):
                pending = self._unconfirmed.get(sender)
                if (
                    pending is not None and topic not in pending
                ):  # it has not heard of what was added
                    pending[topic] = False
                    self._send(sender, now)
            elif known != schema:
                reason = f"topic {topic!r} is ({known.text}) here and ({schema.text}) at the peer"
                self._out.append(Note(Rejected(hex_peer(sender), reason)))
        elif not self._has_room(schema):
            self._out.append(
                Note(
                    Dropped(
                        "topic",
                        1,
                        f"more than {TOPICS_MAX} topics or {SCHEMAS_LENGTH_MAX} characters",
                    )
                )
            )
        else:
            self._learn(topic, schema, sender, now, retention)

    def _retain(self, topic: str, retention: Retention, sender: Peer | None, now: Micros) -> bool:
        """Take a topic's retention; False if it has another."""
        known = self.retentions.get(topic)
        if known is None:
            self.retentions[topic] = retention
            for peer, pending in self._unconfirmed.items():
                if peer != sender:
                    pending[topic] = False
                    self._send(peer, now)
        return known is None or known == retention

    def _learn(
        self,
        topic: str,
        schema: Schema,
        sender: Peer | None,
        now: Micros,
        retention: Retention | None,
    ) -> None:
        known = self.schemas.get(topic)
        self.schemas[topic] = schema
        self.changed.append(topic)
        if retention is not None and known is None:
            self.retentions[topic] = retention
        self._characters += len(schema.text) - (len(known.text) if known is not None else 0)
        self._out.append(Note(Advertised(topic, schema.text)))
        for peer, pending in self._unconfirmed.items():
            if peer != sender:
                pending[topic] = len(pending) < ADVERTS_A_MESSAGE
                if pending[topic]:
                    self._out.append(Send((peer,), self._adverts([(topic, schema.text)])))
        self.deadline = min(self.deadline, Micros(now + RESEND))

    def _send(self, peer: Peer, now: Micros) -> None:
        """Send the first part of what is unconfirmed; the rest follows when that is confirmed."""
        pending = self._unconfirmed[peer]
        part: list[tuple[str, str]] = []
        characters = 0
        for topic in pending:
            text = self.schemas[topic].text
            characters += len(topic) + len(text)
            if part and (len(part) == ADVERTS_A_MESSAGE or characters > CHARACTERS_ON_THE_WAY):
                break
            part.append((topic, text))
        for topic, _ in part:
            pending[topic] = True
        if part:
            self._out.append(Send((peer,), self._adverts(part)))
            self.deadline = min(self.deadline, Micros(now + RESEND))

    def _adverts(self, part: list[tuple[str, str]]) -> Adverts:
        kept = [(name, self.retentions[name]) for name, _ in part if name in self.retentions]
        return Adverts(tuple(part), tuple((name, rule.seconds, rule.bytes) for name, rule in kept))

    def _has_room(self, schema: Schema, instead: Schema | None = None) -> bool:
        topics, characters = (1, 0) if instead is None else (0, len(instead.text))
        room = self._characters + len(schema.text) - characters <= SCHEMAS_LENGTH_MAX
        return len(self.schemas) + topics <= TOPICS_MAX and room

    def _flush(self) -> list[Effect]:
        out, self._out = self._out, []
        return out
