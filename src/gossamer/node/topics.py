"""Topics: their names and schemas, and how every node comes to know them.

An advertisement goes to every neighbour and on from there. Each link keeps what its far end has not
confirmed, has a bounded part of it on the way at a time, and sends it again, so a loss delays it
and nothing more. A node with a data directory stores what it knows; when it restarts it knows that
again at once, even alone.

A schema may grow: nullable attributes can be added at the end, and the longest schema is
everybody's. Two schemas of one topic are a conflict if neither is the other grown. Nodes pass both
on, each with the node that advertised it, until every node knows of the conflict. From then on
nobody can publish or subscribe on the topic, and nobody takes its events. A conflict ends when
somebody replaces the schema. Each schema has an epoch, and a replacement has the next one; a greater
epoch wins everywhere, also at a node that was away and comes back with a schema on its disk.

A topic's retention (retention.py) may be added later. An advertisement that does not mention
retention agrees with any.

Messages:
    Adverts        topics with their schemas
    AdvertsTaken   the names of topics that the sender has heard of by the receiver's Adverts
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from gossamer.filters import Schema, SchemaError
from gossamer.machine import (
    MILLISECOND,
    NEVER,
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
SCHEMAS_LENGTH_MAX = 16 << 20  # of all topics together
ADVERTS_A_MESSAGE = 64
CHARACTERS_ON_THE_WAY = 256 << 10  # unconfirmed, per link
RESEND = Micros(500 * MILLISECOND)
EPOCH_MAX = 2**53
RIVALS_MAX = 4  # schemas of one topic that a node keeps while they are in conflict
SHOWN_LENGTH = 200  # characters of a schema that an error shows
_KEY = "topic/"

Name = Annotated[str, Meta(min_length=1, max_length=TOPIC_LENGTH_MAX)]
SchemaText = Annotated[str, Meta(min_length=1, max_length=SCHEMA_LENGTH_MAX)]


_Seconds = Annotated[int, Meta(ge=0, le=SECONDS_MAX)]
_Bytes = Annotated[int, Meta(ge=1, le=BYTES_MAX)]
_Length = Annotated[int, Meta(ge=0, le=SCHEMA_LENGTH_MAX)]
_Epoch = Annotated[int, Meta(ge=0, le=EPOCH_MAX)]
_Origin = Annotated[int, Meta(ge=0)]
_Mark = Annotated[int, Meta(ge=0, lt=2**32)]
_encoder = msgspec.msgpack.Encoder()


class Adverts(Message, frozen=True, array_like=True, tag=20):
    topics: Annotated[tuple[tuple[Name, SchemaText], ...], Meta(max_length=ADVERTS_A_MESSAGE)]
    retained: Annotated[
        tuple[tuple[Name, _Seconds, _Bytes], ...], Meta(max_length=ADVERTS_A_MESSAGE)
    ] = ()
    # The epoch and the advertiser of each of the topics. Empty: epoch 0, and the sender's own.
    origins: Annotated[tuple[tuple[_Epoch, _Origin], ...], Meta(max_length=ADVERTS_A_MESSAGE)] = ()
    # Other schemas of these topics, with their advertisers, which are in conflict with the first.
    rivals: Annotated[
        tuple[tuple[Name, SchemaText, _Origin], ...],
        Meta(max_length=ADVERTS_A_MESSAGE * RIVALS_MAX),
    ] = ()


class AdvertsTaken(Message, frozen=True, array_like=True, tag=21):
    topics: Annotated[tuple[Name, ...], Meta(max_length=ADVERTS_A_MESSAGE)]
    lengths: Annotated[
        tuple[_Length, ...], Meta(max_length=ADVERTS_A_MESSAGE)
    ] = ()  # of the schemas' texts, as they came
    # A checksum of all that came about each topic, so that nothing newer is taken for confirmed.
    marks: Annotated[tuple[_Mark, ...], Meta(max_length=ADVERTS_A_MESSAGE)] = ()


class TopicError(ValueError):
    """A topic that is unknown, badly named, or advertised with two schemas."""


class SchemaConflictError(TopicError):
    """A topic is advertised with schemas that do not agree: not everybody could read its events."""

    def __init__(self, topic: str, schemas: Iterable[tuple[str, Peer]]) -> None:
        """``schemas``: each with the node that advertised it; this node's own comes first."""
        self.topic = topic
        self.schemas = tuple((text, hex_peer(origin)) for text, origin in schemas)
        said = " and ".join(f"({_shown(text)}) by node {origin}" for text, origin in self.schemas)
        super().__init__(
            f"topic {topic!r} is advertised with schemas that do not agree: {said}; say which one "
            f'holds: gossamer advertise {topic} "SCHEMA" --replace '
            "(in a program: advertise(..., replace=True))"
        )


class _Head(Struct, frozen=True):
    """What a node knows of a topic's schema beside the schema."""

    epoch: int
    origin: int  # the node that advertised it


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

Trusts = Callable[[Peer, Peer, str], bool | None]


class Topics:
    """The machine that spreads advertisements."""

    def __init__(self, me: Peer = Peer(0)) -> None:  # noqa: B008
        self.schemas: dict[str, Schema] = {}
        self.retentions: dict[str, Retention] = {}  # of topics that have one
        # The schemas of topics that are in conflict: of very many the first few by their texts, so
        # that all nodes keep the same ones.
        self.conflicts: dict[str, _Pool] = {}
        self.deadline = NEVER
        self.introduced = False  # some neighbour has told what it knows
        self.changed: list[
            str
        ] = []  # topics that are new, or have another schema, for the owner to take
        self.replaced: list[
            str
        ] = []  # those of them whose events of before cannot be read any more
        # Says whether an advertiser, or the neighbour that passes its word on, may set a topic's
        # schema. None: that is not known yet.
        self.trusts: Trusts | None = None
        self._me = me
        self._heads: dict[str, _Head] = {}
        self._unconfirmed: dict[
            Peer, dict[str, bool]
        ] = {}  # per link: what its far end has not confirmed; True: on the way
        self._unsaved: dict[str, None] = {}
        self._saving: dict[Token, None] = {}
        self._characters = 0
        self._out: list[Effect] = []

    @property
    def unconfirmed(self) -> bool:
        """Some neighbour, or this node's own disk, may not have some topic yet."""
        return bool(self._saving) or any(self._unconfirmed.values())

    def check(self, topic: str) -> None:
        """Raises SchemaConflictError for a topic that is in conflict."""
        if topic in self.conflicts:
            raise SchemaConflictError(topic, self.rivals(topic))

    def rivals(self, topic: str) -> list[tuple[str, Peer]]:
        """The schemas of a topic with their advertisers, this node's own first."""
        text = self.schemas[topic].text
        found = {text: self._heads[topic].origin}
        for other, (_, origin) in self.conflicts.get(topic, {}).items():
            found.setdefault(other, origin)
        return [(text, Peer(origin)) for text, origin in found.items()]

    # -------------------------------------------------------------------- commands

    def advertise(
        self,
        topic: str,
        schema: Schema,
        now: Micros,
        retention: Retention | None = None,
        *,
        replace: bool = False,
    ) -> list[Effect]:
        """``replace``: this schema, and this retention if there is one, hold from now on."""
        if not 1 <= len(topic) <= TOPIC_LENGTH_MAX:
            raise TopicError(
                f"a topic's name has 1 to {TOPIC_LENGTH_MAX} characters, not {len(topic)}"
            )
        if any("\ud800" <= character <= "\udfff" for character in topic):
            # Neither a message nor a data directory can hold it.
            raise TopicError(f"{topic!r} is no name for a topic: it holds half a character")
        if len(schema.text) > SCHEMA_LENGTH_MAX:
            raise TopicError(
                f"the schema of {topic!r} has {len(schema.text)} characters; at most {SCHEMA_LENGTH_MAX} are allowed"
            )
        known = self.schemas.get(topic)
        mine: _Pool = {schema.text: (schema, self._me)}
        if known is None:
            done = self._settle(topic, 0, mine, None, now, retention)
        elif replace:
            done = self._replace(topic, schema, retention, now)
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
            done = self._settle(
                topic, self._heads[topic].epoch, self._pool(topic) | mine, None, now
            )
        if not done:
            raise TopicError(
                f"no room for another topic: a node keeps {TOPICS_MAX}, "
                f"with schemas of {SCHEMAS_LENGTH_MAX} characters"
            )
        if retention is not None and not self._retain(topic, retention, None, now):
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

    def _replace(
        self, topic: str, schema: Schema, retention: Retention | None, now: Micros
    ) -> bool:
        epoch = self._heads[topic].epoch
        other_rule = retention is not None and retention != self.retentions.get(topic)
        if schema == self.schemas[topic] and topic not in self.conflicts and not other_rule:
            return True
        if epoch >= EPOCH_MAX:
            raise TopicError(
                f"the schema of topic {topic!r} was replaced too often; use another topic name"
            )
        mine: _Pool = {schema.text: (schema, self._me)}
        return self._settle(topic, epoch + 1, mine, None, now, retention)

    # -------------------------------------------------------------------- disk

    def restore(self, kept: Mapping[str, bytes]) -> None:
        """What this node knew in an earlier life."""
        for key, value in kept.items():
            if not key.startswith(_KEY):
                continue
            topic = key.removeprefix(_KEY)
            try:
                stored = _stored_decoder.decode(value)
                schema = Schema.parse(stored.schema)
            except (msgspec.DecodeError, SchemaError) as error:
                reason = f"what the data directory has of topic {topic!r} cannot be read: {error}"
                self._out.append(Note(Dropped("topic", 1, reason)))
                continue
            rule = Retention(stored.seconds, stored.bytes) if stored.bytes else None
            pool: _Pool = {schema.text: (schema, stored.origin)}
            self._settle(topic, stored.epoch, pool, None, Micros(0), rule)
        self._unsaved.clear()

    def records(self) -> tuple[Keep, ...]:
        """What has changed since this was last asked.

        It must be on disk before events that need it.
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
        """Whether this Store was one of ours."""
        return self._saving.pop(token, self) is None

    # -------------------------------------------------------------------- inputs

    def receive(self, sender: Peer, message: Adverts | AdvertsTaken, now: Micros) -> list[Effect]:
        if type(message) is Adverts:
            self._receive(sender, message, now)
        elif type(message) is AdvertsTaken:
            self._confirm(sender, message, now)
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

    def _receive(self, sender: Peer, message: Adverts, now: Micros) -> None:
        self.introduced = True
        retained = {topic: Retention(seconds, size) for topic, seconds, size in message.retained}
        rivals: dict[str, dict[str, int]] = {}
        for topic, text, origin in message.rivals:
            some = rivals.setdefault(topic, {})
            if len(some) < RIVALS_MAX:  # no node says more of a topic
                some[text] = origin
        origins = message.origins
        if len(origins) != len(message.topics):
            origins = ((0, sender),) * len(message.topics)
        taken: list[tuple[str, int, int]] = []
        for (topic, text), (epoch, origin) in zip(message.topics, origins, strict=True):
            told = {text: origin} | rivals.get(topic, {})
            rule = retained.get(topic)
            if self._hear(sender, topic, epoch, told, rule, now):
                taken.append((topic, len(text), _mark(epoch, told, rule)))
        if taken:
            self._out.append(Send((sender,), AdvertsTaken(*zip(*taken, strict=True))))

    def _confirm(self, sender: Peer, message: AdvertsTaken, now: Micros) -> None:
        pending = self._unconfirmed.get(sender)
        if pending is None:
            return
        marks = dict(zip(message.topics, message.marks, strict=False))
        lengths = dict(zip(message.topics, message.lengths, strict=False))
        for topic in message.topics:
            if topic not in pending:
                continue
            if topic in marks:
                is_current = marks[topic] == self._state_mark(topic)
            else:  # a node of an older version; if it has a shorter schema, it has not had ours yet
                is_current = lengths.get(topic, SCHEMA_LENGTH_MAX) >= len(self.schemas[topic].text)
            if is_current:
                del pending[topic]
        # When all that was on the way has arrived, the next part goes.
        if pending and next(iter(pending.values())) is False:
            self._send(sender, now)

    def _hear(
        self,
        sender: Peer,
        topic: str,
        epoch: int,
        told: dict[str, int],
        retention: Retention | None,
        now: Micros,
    ) -> bool:
        """A neighbour tells of a topic, its own schema first. Returns whether to confirm that."""
        known, head = self.schemas.get(topic), self._heads.get(topic)
        is_news = True
        if known is not None and head is not None:
            if epoch < head.epoch:  # the neighbour has not heard of the replacement
                self._remind(sender, topic, now)
                return True
            is_alone = len(told) == 1 and topic not in self.conflicts
            is_news = not (epoch == head.epoch and is_alone and known.text in told)
        if is_news:
            pool = self._parse(sender, topic, told)
            if known is not None and not self._may(sender, topic, epoch, pool):
                return False
            if pool and not self._take(sender, topic, epoch, pool, retention, now):
                about = f"more than {TOPICS_MAX} topics or {SCHEMAS_LENGTH_MAX} characters"
                self._out.append(Note(Dropped("topic", 1, about)))
        if (
            retention is not None
            and topic in self.schemas
            and not self._retain(topic, retention, sender, now)
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
        """Take those out of the pool that are not their advertisers' to say.

        False: that is not known of one of them yet, so the pool must be told again.
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
        now: Micros,
    ) -> bool:
        """False: there is no room."""
        head = self._heads.get(topic)
        if head is None or epoch > head.epoch:
            return self._settle(topic, epoch, told, sender, now, retention)
        mine = self._pool(topic)
        # Of one schema that both know, the advertiser that was heard of first stays.
        if not self._settle(topic, epoch, mine | told | mine, sender, now):
            return False
        if set(self.conflicts.get(topic) or (self.schemas[topic].text,)) - set(told):
            self._remind(sender, topic, now)
        return True

    # -------------------------------------------------------------------- what is known

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
        now: Micros,
        retention: Retention | None = None,
    ) -> bool:
        """These are a topic's schemas at this epoch, this node's own first.

        ``retention`` counts where the topic or its epoch is new. False: there is no room.
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
        self.deadline = min(self.deadline, Micros(now + RESEND))
        return True

    def _retain(self, topic: str, retention: Retention, sender: Peer | None, now: Micros) -> bool:
        """Take a topic's retention; False if it has another."""
        known = self.retentions.get(topic)
        if known is None:
            self.retentions[topic] = retention
            self._unsaved[topic] = None
            for peer, pending in self._unconfirmed.items():
                if peer != sender:
                    pending[topic] = False
                    self._send(peer, now)
        return known is None or known == retention

    # -------------------------------------------------------------------- to the neighbours

    def _tell(self, topic: str, sender: Peer | None) -> None:
        """Something about this topic is new, to all neighbours but the one that said it."""
        for peer, pending in self._unconfirmed.items():
            if peer != sender:
                pending[topic] = len(pending) < ADVERTS_A_MESSAGE
                if pending[topic]:
                    self._out.append(Send((peer,), self._adverts([topic])))

    def _remind(self, peer: Peer, topic: str, now: Micros) -> None:
        """This neighbour lacks something of the topic. What is in ``pending`` goes to it anyway."""
        pending = self._unconfirmed.get(peer)
        if pending is not None and topic not in pending:
            pending[topic] = False
            self._send(peer, now)

    def _send(self, peer: Peer, now: Micros) -> None:
        """Send the first part of what is unconfirmed; the rest follows when that is confirmed."""
        pending = self._unconfirmed[peer]
        part: list[str] = []
        characters = 0
        for topic in pending:
            rivals = self.conflicts.get(topic, ())
            characters += len(topic) + len(self.schemas[topic].text) + sum(map(len, rivals))
            if part and (len(part) == ADVERTS_A_MESSAGE or characters > CHARACTERS_ON_THE_WAY):
                break
            part.append(topic)
        for topic in part:
            pending[topic] = True
        if part:
            self._out.append(Send((peer,), self._adverts(part)))
            self.deadline = min(self.deadline, Micros(now + RESEND))

    def _adverts(self, part: list[str]) -> Adverts:
        heads = [self._heads[topic] for topic in part]
        plain = _Head(0, self._me)
        rules = [(topic, self.retentions[topic]) for topic in part if topic in self.retentions]
        return Adverts(
            tuple((topic, self.schemas[topic].text) for topic in part),
            tuple((topic, rule.seconds, rule.bytes) for topic, rule in rules),
            ()
            if all(head == plain for head in heads)
            else tuple((head.epoch, head.origin) for head in heads),
            tuple(
                (topic, text, origin)
                for topic in part
                for text, (_, origin) in self.conflicts.get(topic, {}).items()
                if text != self.schemas[topic].text
            ),
        )

    def _state_mark(self, topic: str) -> int:
        return _mark(
            self._heads[topic].epoch,
            {self.schemas[topic].text, *self.conflicts.get(topic, ())},
            self.retentions.get(topic),
        )

    def _flush(self) -> list[Effect]:
        out, self._out = self._out, []
        return out


def _agree(one: Schema, other: Schema) -> bool:
    """Whether they are the same schema, or one is the other grown."""
    return one == other or one.extends(other) or other.extends(one)


def _mark(epoch: int, texts: Iterable[str], rule: Retention | None) -> int:
    """A checksum of what is said of a topic."""
    kept = (rule.seconds, rule.bytes) if rule is not None else None
    return zlib.crc32(_encoder.encode((epoch, sorted(texts), kept)))


def _shown(text: str) -> str:
    return text if len(text) <= SHOWN_LENGTH else f"{text[:SHOWN_LENGTH]}..."
