"""Topics: their names and schemas, and how every node learns them.

An advertisement goes to every neighbour and on from there. A new link begins with all topics that a
node knows, a bounded part at a time. The far end answers each part, in order, so a node knows which
topics its neighbours have heard of. A node with a data directory stores the topics that it knows.
When it restarts it knows them again at once, even alone.

A schema may grow: nullable attributes can be added at the end, and the longest schema holds for all
nodes. Two schemas of one topic are a conflict if neither extends the other. Nodes pass both on,
each with the node that advertised it, until every node knows of the conflict. From then on no node
can publish or subscribe on the topic, and no node takes its events. A conflict ends when a node
replaces the schema. Each schema has an epoch, and a replacement has the next one. A greater epoch
wins everywhere, also at a node that was away and comes back with a schema on its disk.

A topic's retention (retention.py) may be added later. An advertisement that does not mention
retention agrees with any.

There are two messages:

    Adverts        topics with their schemas
    AdvertsTaken   says that the sender has heard the oldest Adverts that it had not answered
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from gossamer.filters import Schema, SchemaError
from gossamer.machine import (
    Effect,
    Keep,
    LinkState,
    Message,
    Micros,
    Note,
    Peer,
    Send,
    Token,
)
from gossamer.node.retention import BYTES_MAX, SECONDS_MAX, Retention
from gossamer.trace import Advertised, Dropped, Rejected, SchemaConflict, hex_peer

TOPICS_MAX = 4096
TOPIC_LENGTH_MAX = 255
SCHEMA_LENGTH_MAX = 16_384
# Characters of all topics together.
SCHEMAS_LENGTH_MAX = 16 << 20
ADVERTS_A_MESSAGE = 64
# Characters for each link that the far end has not answered.
CHARACTERS_ON_THE_WAY = 256 << 10
# Messages for each link that the far end has not answered.
PARTS_ON_THE_WAY = 64
# The most advertisements whose advertiser is not proved yet.
UNPROVED_MAX = 256
EPOCH_MAX = 2**53
# The most schemas of one topic that a node keeps while they are in conflict.
RIVALS_MAX = 4
# Characters of a schema that an error shows.
SHOWN_LENGTH = 200
_KEY = "topic/"

Name = Annotated[str, Meta(min_length=1, max_length=TOPIC_LENGTH_MAX)]
SchemaText = Annotated[str, Meta(min_length=1, max_length=SCHEMA_LENGTH_MAX)]


_Seconds = Annotated[int, Meta(ge=0, le=SECONDS_MAX)]
_Bytes = Annotated[int, Meta(ge=1, le=BYTES_MAX)]
_Epoch = Annotated[int, Meta(ge=0, le=EPOCH_MAX)]
_Origin = Annotated[int, Meta(ge=0)]
_encoder = msgspec.msgpack.Encoder()


class Advert(Struct, frozen=True, array_like=True):
    """Everything that a node says of one topic."""

    topic: Name
    schema: SchemaText
    epoch: _Epoch
    # The node that advertised it.
    origin: _Origin
    retention: tuple[_Seconds, _Bytes] | None = None
    # Other schemas of the topic, with their advertisers, which are in conflict with the first.
    rivals: Annotated[tuple[tuple[SchemaText, _Origin], ...], Meta(max_length=RIVALS_MAX)] = ()


class Adverts(Message, frozen=True, array_like=True, tag=20):
    topics: Annotated[tuple[Advert, ...], Meta(max_length=ADVERTS_A_MESSAGE)]


class AdvertsTaken(Message, frozen=True, array_like=True, tag=21):
    pass


class TopicError(ValueError):
    """A topic that is unknown, badly named, or advertised with two schemas."""


class SchemaConflictError(TopicError):
    """A topic is advertised with schemas that do not agree, so not every node could read its
    events.
    """

    def __init__(self, topic: str, schemas: Iterable[tuple[str, Peer]]) -> None:
        """``schemas`` has each schema with the node that advertised it. This node's own comes
        first.
        """
        self.topic = topic
        self.schemas = tuple((text, hex_peer(origin)) for text, origin in schemas)
        said = " and ".join(f"({_shown(text)}) by node {origin}" for text, origin in self.schemas)
        super().__init__(
            f"topic {topic!r} is advertised with schemas that do not agree: {said}; say which one "
            f'holds: gossamer advertise {topic} "SCHEMA" --replace '
            "(in a program: advertise(..., replace=True))"
        )


class _Head(Struct, frozen=True):
    """A node's knowledge of a topic's schema, beside the schema."""

    epoch: int
    # The node that advertised it.
    origin: int


class _Stored(Struct, frozen=True, array_like=True):
    """A topic as it is on disk. A topic without retention has 0 bytes of it."""

    schema: str
    epoch: int
    origin: int
    seconds: int = 0
    bytes: int = 0


_stored_decoder = msgspec.msgpack.Decoder(_Stored)

_Pool = dict[str, tuple[Schema, int]]
"""Schemas by their texts, with their advertisers."""


class _Neighbour:
    """The topics that the far end of a link has still to be told, and the parts that it has not
    answered.

    The oldest part comes first.
    """

    __slots__ = ("characters", "parts", "topics")

    def __init__(self, topics: Iterable[str]) -> None:
        self.topics = dict.fromkeys(topics)
        # The characters of each part.
        self.parts: deque[int] = deque()
        self.characters = 0


Trusts = Callable[[Peer, Peer, str], bool | None]


class Topics:
    """The machine that spreads advertisements."""

    def __init__(self, me: Peer = Peer(0)) -> None:  # noqa: B008
        self.schemas: dict[str, Schema] = {}
        # Of topics that have one.
        self.retentions: dict[str, Retention] = {}
        # The schemas of topics that are in conflict. Of very many it has the first few by their
        # texts, so that all nodes keep the same ones.
        self.conflicts: dict[str, _Pool] = {}
        # A neighbour has told its topics.
        self.introduced = False
        # Topics that are new, or have another schema. The owner takes them.
        self.changed: list[str] = []
        # Those of them whose older events cannot be read any more.
        self.replaced: list[str] = []
        # Says whether an advertiser, or the neighbour that passes its advertisement on, may set a
        # topic's schema. None means that this is not known yet.
        self.trusts: Trusts | None = None
        self._me = me
        self._heads: dict[str, _Head] = {}
        self._neighbours: dict[Peer, _Neighbour] = {}
        # Advertisements of neighbours while it is not known whether the advertiser may make them.
        self._unproved: dict[tuple[Peer, str], Advert] = {}
        self._unsaved: dict[str, None] = {}
        self._saving: dict[Token, None] = {}
        self._characters = 0
        self._out: list[Effect] = []

    @property
    def unconfirmed(self) -> bool:
        """Whether some neighbour, or this node's own disk, may not have some topic yet."""
        return bool(self._saving) or any(
            neighbour.topics or neighbour.parts for neighbour in self._neighbours.values()
        )

    @property
    def has_unproved(self) -> bool:
        """Whether some advertisement waits for the proof of its advertiser."""
        return bool(self._unproved)

    def check(self, topic: str) -> None:
        """Raises a SchemaConflictError for a topic that is in conflict."""
        if topic in self.conflicts:
            raise SchemaConflictError(topic, self.rivals(topic))

    def rivals(self, topic: str) -> list[tuple[str, Peer]]:
        """The schemas of a topic with their advertisers, this node's own first."""
        text = self.schemas[topic].text
        found = {text: self._heads[topic].origin}
        for other, (_, origin) in self.conflicts.get(topic, {}).items():
            found.setdefault(other, origin)
        return [(text, Peer(origin)) for text, origin in found.items()]

    def advertise(
        self,
        topic: str,
        schema: Schema,
        now: Micros,
        retention: Retention | None = None,
        *,
        replace: bool = False,
    ) -> list[Effect]:
        """With ``replace`` this schema, and this retention if there is one, hold from now on."""
        if not 1 <= len(topic) <= TOPIC_LENGTH_MAX:
            raise TopicError(
                f"a topic's name has 1 to {TOPIC_LENGTH_MAX} characters, not {len(topic)}"
            )
        if any("\ud800" <= character <= "\udfff" for character in topic):
            # Neither a message nor a data directory can hold it.
            raise TopicError(f"{topic!r} is no name for a topic: it holds half a character")
        if len(schema.text) > SCHEMA_LENGTH_MAX:
            raise TopicError(
                f"the schema of {topic!r} has {len(schema.text)} characters; "
                f"at most {SCHEMA_LENGTH_MAX} are allowed"
            )
        known = self.schemas.get(topic)
        mine: _Pool = {schema.text: (schema, self._me)}
        if known is None:
            done = self._settle(topic, 0, mine, None, retention)
        elif replace:
            done = self._replace(topic, schema, retention)
        else:
            if self._withdraws(topic, schema):
                return self.advertise(topic, schema, now, retention, replace=True)
            if not any(_agree(schema, one) for one, _ in self._pool(topic).values()):
                self.check(topic)
                raise TopicError(
                    f"topic {topic!r} is already advertised as ({_shown(known.text)}), which is "
                    f"not ({_shown(schema.text)}); use the same schema, with nullable attributes "
                    "added at the end if need be, or another topic name, "
                    f'or replace it everywhere: gossamer advertise {topic} "SCHEMA" --replace '
                    "(in a program: advertise(..., replace=True))"
                )
            done = self._settle(topic, self._heads[topic].epoch, self._pool(topic) | mine, None)
        if not done:
            raise TopicError(
                f"no room for another topic: a node keeps {TOPICS_MAX}, "
                f"with schemas of {SCHEMAS_LENGTH_MAX} characters"
            )
        if retention is not None and not self._retain(topic, retention, None):
            raise TopicError(
                f"topic {topic!r} is already advertised with retention "
                f"{self.retentions[topic].text!r}, which is not {retention.text!r}; use the same "
                "retention, or another topic name, or replace it everywhere "
                "(--replace, replace=True)"
            )
        return self._flush()

    def _withdraws(self, topic: str, schema: Schema) -> bool:
        """Whether this node advertised one of two schemas, and now advertises the other one."""
        rivals = self.conflicts.get(topic, {})
        given_up = [origin for one, origin in rivals.values() if not _agree(schema, one)]
        return len(rivals) == 2 and given_up == [self._me]

    def _replace(self, topic: str, schema: Schema, retention: Retention | None) -> bool:
        epoch = self._heads[topic].epoch
        other_rule = retention is not None and retention != self.retentions.get(topic)
        if schema == self.schemas[topic] and topic not in self.conflicts and not other_rule:
            return True
        if epoch >= EPOCH_MAX:
            raise TopicError(
                f"the schema of topic {topic!r} was replaced too often; use another topic name"
            )
        mine: _Pool = {schema.text: (schema, self._me)}
        return self._settle(topic, epoch + 1, mine, None, retention)

    def restore(self, kept: Mapping[str, bytes]) -> list[Effect]:
        """Takes the topics that this node knew in an earlier life."""
        for key, value in kept.items():
            if not key.startswith(_KEY):
                continue
            topic = key.removeprefix(_KEY)
            try:
                stored = _stored_decoder.decode(value)
                schema = Schema.parse(stored.schema)
            except (msgspec.DecodeError, SchemaError) as error:
                reason = f"the data directory's record of topic {topic!r} cannot be read: {error}"
                self._out.append(Note(Dropped("topic", 1, reason)))
                continue
            rule = Retention(stored.seconds, stored.bytes) if stored.bytes else None
            pool: _Pool = {schema.text: (schema, stored.origin)}
            self._settle(topic, stored.epoch, pool, None, rule)
        self._unsaved.clear()
        return self._flush()

    def records(self) -> tuple[Keep, ...]:
        """The records that have changed since the last call.

        They must be on disk before events that need them.
        """
        if not self._unsaved:
            return ()
        unsaved, self._unsaved = self._unsaved, {}
        return tuple(self._record(topic) for topic in unsaved)

    def _record(self, topic: str) -> Keep:
        head, rule = self._heads[topic], self.retentions.get(topic)
        kept = (rule.seconds, rule.bytes) if rule is not None else (0, 0)
        stored = _Stored(self.schemas[topic].text, head.epoch, head.origin, *kept)
        return Keep(f"{_KEY}{topic}", _encoder.encode(stored))

    def storing(self, token: Token) -> None:
        """The records will be on disk when this Store is done."""
        self._saving[token] = None

    def saved(self, token: Token) -> bool:
        """Whether this Store was one of topics."""
        return self._saving.pop(token, self) is None

    def receive(self, sender: Peer, message: Adverts | AdvertsTaken, now: Micros) -> list[Effect]:
        if type(message) is Adverts:
            self._receive(sender, message)
        elif type(message) is AdvertsTaken:
            self._confirm(sender)
        return self._flush()

    def link(self, peer: Peer, state: LinkState, now: Micros) -> list[Effect]:
        if state is LinkState.UP:
            neighbour = self._neighbours[peer] = _Neighbour(self.schemas)
            if self.schemas:
                self._send(peer)
            else:
                # The empty message matters: a newcomer waits for it.
                self._post(peer, neighbour, ())
        elif state in (LinkState.DOWN, LinkState.CUT):
            self._neighbours.pop(peer, None)
        return self._flush()

    def proved(self) -> list[Effect]:
        """More is known about permissions, so waiting advertisements are looked at again."""
        unproved, self._unproved = self._unproved, {}
        for (sender, _), advert in unproved.items():
            self._hear_or_keep(sender, advert)
        return self._flush()

    def _receive(self, sender: Peer, message: Adverts) -> None:
        self.introduced = True
        for advert in message.topics:
            self._hear_or_keep(sender, advert)
        self._out.append(Send((sender,), AdvertsTaken()))

    def _confirm(self, sender: Peer) -> None:
        neighbour = self._neighbours.get(sender)
        if neighbour is None:
            return
        if not neighbour.parts:
            self._out.append(Note(Rejected(hex_peer(sender), "an answer to no advertisement")))
            return
        neighbour.characters -= neighbour.parts.popleft()
        self._send(sender)

    def _hear_or_keep(self, sender: Peer, advert: Advert) -> None:
        self._unproved.pop((sender, advert.topic), None)
        if self._hear(sender, advert):
            return
        self._unproved[sender, advert.topic] = advert
        if len(self._unproved) > UNPROVED_MAX:
            del self._unproved[next(iter(self._unproved))]
            about = f"more than {UNPROVED_MAX} advertisements with an unproved advertiser"
            self._out.append(Note(Dropped("topic", 1, about)))

    def _hear(self, sender: Peer, advert: Advert) -> bool:
        """A neighbour tells of a topic.

        False means that it is not known yet whether it may.
        """
        topic, epoch = advert.topic, advert.epoch
        told = {advert.schema: advert.origin} | dict(advert.rivals)
        retention = Retention(*advert.retention) if advert.retention is not None else None
        known, head = self.schemas.get(topic), self._heads.get(topic)
        is_news = True
        if known is not None and head is not None:
            # The neighbour has not heard of the replacement.
            if epoch < head.epoch:
                self._remind(sender, topic)
                return True
            is_alone = len(told) == 1 and topic not in self.conflicts
            is_news = not (epoch == head.epoch and is_alone and known.text in told)
        if is_news:
            pool = self._parse(sender, topic, told)
            if known is not None and not self._may(sender, topic, epoch, pool):
                return False
            if pool and not self._take(sender, topic, epoch, pool, retention):
                about = f"more than {TOPICS_MAX} topics or {SCHEMAS_LENGTH_MAX} characters"
                self._out.append(Note(Dropped("topic", 1, about)))
        if (
            retention is not None
            and topic in self.schemas
            and not self._retain(topic, retention, sender)
        ):
            reason = (
                f"topic {topic!r} has retention {self.retentions[topic].text!r} here and "
                f"{retention.text!r} at the peer"
            )
            self._out.append(Note(Rejected(hex_peer(sender), reason)))
        return True

    def _parse(self, sender: Peer, topic: str, told: dict[str, int]) -> _Pool:
        pool: _Pool = {}
        for text, origin in told.items():
            try:
                schema = Schema.parse(text)
            except SchemaError as error:
                reason = f"schema of {topic!r}: {error}"
                self._out.append(Note(Rejected(hex_peer(sender), reason)))
            else:
                pool[schema.text] = (schema, origin)
        return pool

    def _may(self, sender: Peer, topic: str, epoch: int, pool: _Pool) -> bool:
        """Takes schemas out of the pool that their advertisers may not set.

        False means that this is not known of one of them yet, so the pool must be looked at again.
        """
        if self.trusts is None:
            return True
        mine = self._pool(topic)
        is_newer = epoch > self._heads[topic].epoch
        for text, (schema, origin) in list(pool.items()):
            if not is_newer and any(_agree(schema, one) for one, _ in mine.values()):
                continue
            trusted = self.trusts(sender, Peer(origin), topic)
            if trusted is None:
                return False
            if not trusted:
                del pool[text]
                reason = f"a schema of {topic!r}, to which its advertiser may not publish"
                self._out.append(Note(Rejected(hex_peer(sender), reason)))
        return True

    def _take(
        self,
        sender: Peer,
        topic: str,
        epoch: int,
        told: _Pool,
        retention: Retention | None,
    ) -> bool:
        """Takes a neighbour's schemas. False means that there is no room."""
        head = self._heads.get(topic)
        if head is None or epoch > head.epoch:
            return self._settle(topic, epoch, told, sender, retention)
        mine = self._pool(topic)
        # If both know a schema, the advertiser that was heard of first stays.
        if not self._settle(topic, epoch, mine | told | mine, sender):
            return False
        if set(self.conflicts.get(topic) or (self.schemas[topic].text,)) - set(told):
            self._remind(sender, topic)
        return True

    def _pool(self, topic: str) -> _Pool:
        """All that this node knows of a topic's schema, its own first."""
        own = self.schemas[topic]
        return {own.text: (own, self._heads[topic].origin)} | self.conflicts.get(topic, {})

    def _settle(
        self,
        topic: str,
        epoch: int,
        pool: _Pool,
        sender: Peer | None,
        retention: Retention | None = None,
    ) -> bool:
        """Sets a topic's schemas at this epoch, this node's own first.

        ``retention`` counts if the topic or its epoch is new. False means that there is no room.
        """
        known, head = self.schemas.get(topic), self._heads.get(topic)
        first, _ = next(iter(pool.values()))
        best = {
            text: one
            for text, one in sorted(pool.items())
            if not any(other.extends(one[0]) for other, _ in pool.values())
        }
        own, origin = best.get(first.text) or next(
            one for one in best.values() if one[0].extends(first)
        )
        rivals = dict(list(best.items())[:RIVALS_MAX]) if len(best) > 1 else {}
        before = self.conflicts.get(topic, {})
        if (
            head is not None
            and head.epoch == epoch
            and own == known
            and list(rivals) == list(before)
        ):
            return True
        characters = sum(map(len, rivals)) + len(own.text)
        if known is not None:
            characters -= sum(map(len, before)) + len(known.text)
        if (
            len(self.schemas) + (known is None) > TOPICS_MAX
            or self._characters + characters > SCHEMAS_LENGTH_MAX
        ):
            return False
        self._characters += characters
        self._heads[topic] = _Head(epoch, origin)
        if retention is not None and (head is None or epoch > head.epoch):
            self.retentions[topic] = retention
        if own != known:
            self.schemas[topic] = own
            self.changed.append(topic)
            if known is not None and not own.extends(known):
                self.replaced.append(topic)
            self._out.append(Note(Advertised(topic, own.text)))
        self.conflicts.pop(topic, None)
        if rivals:
            self.conflicts[topic] = rivals
            for text, (_, peer) in rivals.items():
                if text != own.text and text not in before:
                    record = SchemaConflict(topic, text, hex_peer(Peer(peer)), own.text)
                    self._out.append(Note(record))
        self._unsaved[topic] = None
        self._tell(topic, sender)
        return True

    def _retain(self, topic: str, retention: Retention, sender: Peer | None) -> bool:
        """Takes a topic's retention. False means that it has another one."""
        known = self.retentions.get(topic)
        if known is None:
            self.retentions[topic] = retention
            self._unsaved[topic] = None
            self._tell(topic, sender)
        return known is None or known == retention

    def _tell(self, topic: str, sender: Peer | None) -> None:
        """Tells news of this topic to all neighbours but the one that said it."""
        for peer, neighbour in self._neighbours.items():
            if peer != sender:
                neighbour.topics[topic] = None
                self._send(peer)

    def _remind(self, peer: Peer, topic: str) -> None:
        """Tells the topic to a neighbour that lacks news of it."""
        neighbour = self._neighbours.get(peer)
        if neighbour is not None:
            neighbour.topics[topic] = None
            self._send(peer)

    def _send(self, peer: Peer) -> None:
        """Sends as much as may be on the way. The rest follows when a part is answered."""
        neighbour = self._neighbours[peer]
        while (
            neighbour.topics
            and neighbour.characters < CHARACTERS_ON_THE_WAY
            and len(neighbour.parts) < PARTS_ON_THE_WAY
        ):
            part: list[str] = []
            characters = 0
            for topic in neighbour.topics:
                rivals = self.conflicts.get(topic, ())
                characters += len(topic) + len(self.schemas[topic].text) + sum(map(len, rivals))
                if part and (len(part) == ADVERTS_A_MESSAGE or characters > CHARACTERS_ON_THE_WAY):
                    break
                part.append(topic)
            for topic in part:
                del neighbour.topics[topic]
            self._post(peer, neighbour, tuple(map(self._advert, part)))

    def _post(self, peer: Peer, neighbour: _Neighbour, adverts: tuple[Advert, ...]) -> None:
        size = sum(
            len(advert.topic) + len(advert.schema) + sum(len(text) for text, _ in advert.rivals)
            for advert in adverts
        )
        neighbour.parts.append(size)
        neighbour.characters += size
        self._out.append(Send((peer,), Adverts(adverts)))

    def _advert(self, topic: str) -> Advert:
        head, rule, text = self._heads[topic], self.retentions.get(topic), self.schemas[topic].text
        rivals = self.conflicts.get(topic, {}).items()
        return Advert(
            topic,
            text,
            head.epoch,
            head.origin,
            (rule.seconds, rule.bytes) if rule is not None else None,
            tuple((other, origin) for other, (_, origin) in rivals if other != text),
        )

    def _flush(self) -> list[Effect]:
        out, self._out = self._out, []
        return out


def _agree(one: Schema, other: Schema) -> bool:
    """Whether they are the same schema, or one extends the other."""
    return one == other or one.extends(other) or other.extends(one)


def _shown(text: str) -> str:
    return text if len(text) <= SHOWN_LENGTH else f"{text[:SHOWN_LENGTH]}..."
