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
retention agrees with any. A node can have a limit of its own for the retention that others have
advertised. It passes their word on and keeps less.

With keys, each schema and each retention has the signature of the node that advertised it, and its
certificate travels with it, because that node may be gone. A node takes and passes on only those
whose advertiser has the permission to publish to the topic. The link that brings another one is
charged. One advertiser can take a share of the places for topics, and not all of them. When an
advertiser is revoked, a node that may publish to its topics signs them in its own name.

There are two messages:

    Adverts        topics with their schemas, and the certificates of their advertisers
    AdvertsTaken   says that the sender has heard the oldest Adverts that it had not answered
"""

from __future__ import annotations

from collections import Counter, deque
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
from gossamer.overlay.interest.record import CERTIFICATE_MAX
from gossamer.overlay.proof import ADVERT, SIGNATURE_MAX, UNSIGNED, Proof
from gossamer.trace import Advertised, Dropped, Rejected, SchemaConflict, hex_peer

TOPICS_MAX = 4096
# Of them, those whose schemas come from one advertiser.
TOPICS_AN_ORIGIN = 3 * TOPICS_MAX // 4
TOPIC_LENGTH_MAX = 255
SCHEMA_LENGTH_MAX = 16_384
# Characters of all topics together.
SCHEMAS_LENGTH_MAX = 16 << 20
ADVERTS_A_MESSAGE = 64
# Characters for each link that the far end has not answered.
CHARACTERS_ON_THE_WAY = 256 << 10
# Messages for each link that the far end has not answered.
PARTS_ON_THE_WAY = 64
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
_Signature = Annotated[bytes, Meta(max_length=SIGNATURE_MAX)]
_Certificate = Annotated[bytes, Meta(max_length=CERTIFICATE_MAX)]
_encoder = msgspec.msgpack.Encoder()


class By(Struct, frozen=True, array_like=True):
    """The node that advertised something, with its proof where there are keys."""

    origin: _Origin
    signature: _Signature = b""
    certificate: _Certificate = b""


class Rule(Struct, frozen=True, array_like=True):
    """A topic's retention, as it was advertised."""

    seconds: _Seconds
    bytes: _Bytes
    # The epoch of the topic's schema at that time.
    epoch: _Epoch = 0
    origin: _Origin = 0
    signature: _Signature = b""


class Rival(Struct, frozen=True, array_like=True):
    """Another schema of a topic, which is in conflict with the first."""

    schema: SchemaText
    origin: _Origin
    signature: _Signature = b""


class Advert(Struct, frozen=True, array_like=True):
    """Everything that a node says of one topic."""

    topic: Name
    schema: SchemaText
    epoch: _Epoch
    # The node that advertised it.
    origin: _Origin
    retention: Rule | None = None
    rivals: Annotated[tuple[Rival, ...], Meta(max_length=RIVALS_MAX)] = ()
    # The origin's, over the topic, the epoch and the schema.
    signature: _Signature = b""


class Adverts(Message, frozen=True, array_like=True, tag=20):
    topics: Annotated[tuple[Advert, ...], Meta(max_length=ADVERTS_A_MESSAGE)]
    # With keys: those of all advertisers that the topics name, each once.
    certificates: Annotated[
        tuple[tuple[_Origin, _Certificate], ...],
        Meta(max_length=ADVERTS_A_MESSAGE * (RIVALS_MAX + 2)),
    ] = ()


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
    by: By


class _Stored(Struct, frozen=True, array_like=True):
    """A topic as it is on disk. An older record has the retention as two numbers."""

    schema: str
    epoch: int
    origin: int
    seconds: int = 0
    bytes: int = 0
    by: By | None = None
    rule: tuple[Rule, By] | None = None


_stored_decoder = msgspec.msgpack.Decoder(_Stored)

_Pool = dict[str, tuple[Schema, By]]
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


Permits = Callable[[Peer, bytes, str], bool]
"""Whether this certificate is the peer's and lets it publish to the topic."""


def said_schema(topic: str, epoch: int, schema: str) -> bytes:
    return _encoder.encode(("schema", topic, epoch, schema))


def said_rule(topic: str, rule: Rule | tuple[int, int, int]) -> bytes:
    seconds, size, epoch = (
        (rule.seconds, rule.bytes, rule.epoch) if isinstance(rule, Rule) else rule
    )
    return _encoder.encode(("retention", topic, epoch, seconds, size))


class Topics:
    """The machine that spreads advertisements."""

    def __init__(
        self,
        me: Peer = Peer(0),  # noqa: B008
        retention_max: Retention | None = None,
    ) -> None:
        """``retention_max`` limits what this node retains because others have advertised it."""
        self.schemas: dict[str, Schema] = {}
        # Of topics that have one: how long this node retains its own events.
        self.retentions: dict[str, Retention] = {}
        # The same as it was advertised, with the advertisers.
        self.rules: dict[str, tuple[Rule, By]] = {}
        # The schemas of topics that are in conflict. Of very many it has the first few by their
        # texts, so that all nodes keep the same ones.
        self.conflicts: dict[str, _Pool] = {}
        # A neighbour has told its topics.
        self.introduced = False
        # Topics that are new, or have another schema. The owner takes them.
        self.changed: list[str] = []
        # Those of them whose older events cannot be read any more.
        self.replaced: list[str] = []
        # With keys: whether an advertiser may say something of a topic.
        self.permits: Permits | None = None
        self.proof: Proof = UNSIGNED
        # With keys: the certificate of a node that counts now, or nothing.
        self.certificate_of: Callable[[Peer], bytes] = lambda peer: b""
        self._me, self._retention_max = me, retention_max
        # The topics by the advertisers of their schemas.
        self._by_origin: Counter[int] = Counter()
        self._heads: dict[str, _Head] = {}
        self._neighbours: dict[Peer, _Neighbour] = {}
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

    def check(self, topic: str) -> None:
        """Raises a SchemaConflictError for a topic that is in conflict."""
        if topic in self.conflicts:
            raise SchemaConflictError(topic, self.rivals(topic))

    def rivals(self, topic: str) -> list[tuple[str, Peer]]:
        """The schemas of a topic with their advertisers, this node's own first."""
        text = self.schemas[topic].text
        found = {text: self._heads[topic].by.origin}
        for other, (_, by) in self.conflicts.get(topic, {}).items():
            found.setdefault(other, by.origin)
        return [(text, Peer(origin)) for text, origin in found.items()]

    def retention(self, topic: str) -> Retention | None:
        """A topic's retention as it was advertised."""
        rule = self.rules.get(topic)
        return Retention(rule[0].seconds, rule[0].bytes) if rule is not None else None

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
        rule = self._my_rule(topic, 0, retention)
        if known is None:
            done = self._settle(topic, 0, self._mine(topic, 0, schema), None, rule)
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
            epoch = self._heads[topic].epoch
            pool = self._pool(topic)
            done = self._settle(topic, epoch, self._mine(topic, epoch, schema) | pool, None)
        if not done:
            raise TopicError(
                f"no room for another topic: a node keeps {TOPICS_MAX}, "
                f"with schemas of {SCHEMAS_LENGTH_MAX} characters"
            )
        rule = self._my_rule(topic, self._heads[topic].epoch, retention)
        if rule is not None and not self._retain(topic, rule, None):
            raise TopicError(
                f"topic {topic!r} is already advertised with retention "
                f"{_text(self.rules[topic][0])!r}, which is not {_text(rule[0])!r}; use the same "
                "retention, or another topic name, or replace it everywhere "
                "(--replace, replace=True)"
            )
        return self._flush()

    def _withdraws(self, topic: str, schema: Schema) -> bool:
        """Whether this node advertised one of two schemas, and now advertises the other one."""
        rivals = self.conflicts.get(topic, {})
        given_up = [by.origin for one, by in rivals.values() if not _agree(schema, one)]
        return len(rivals) == 2 and given_up == [self._me]

    def _replace(self, topic: str, schema: Schema, retention: Retention | None) -> bool:
        epoch = self._heads[topic].epoch
        other_rule = retention is not None and retention != self.retention(topic)
        if schema == self.schemas[topic] and topic not in self.conflicts and not other_rule:
            return True
        if epoch >= EPOCH_MAX:
            raise TopicError(
                f"the schema of topic {topic!r} was replaced too often; use another topic name"
            )
        mine = self._mine(topic, epoch + 1, schema)
        return self._settle(
            topic, epoch + 1, mine, None, self._my_rule(topic, epoch + 1, retention)
        )

    def _by_me(self, said: bytes) -> By:
        return By(self._me, self.proof.sign(ADVERT, said), self.certificate_of(self._me))

    def _mine(self, topic: str, epoch: int, schema: Schema) -> _Pool:
        """A schema that this node advertises."""
        return {schema.text: (schema, self._by_me(said_schema(topic, epoch, schema.text)))}

    def _my_rule(
        self, topic: str, epoch: int, retention: Retention | None
    ) -> tuple[Rule, By] | None:
        """A retention that this node advertises."""
        if retention is None:
            return None
        by = self._by_me(said_rule(topic, (retention.seconds, retention.bytes, epoch)))
        return Rule(retention.seconds, retention.bytes, epoch, self._me, by.signature), by

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
            rule = stored.rule
            if rule is None and stored.bytes:
                rule = Rule(stored.seconds, stored.bytes), By(stored.origin)
            pool: _Pool = {schema.text: (schema, stored.by or By(stored.origin))}
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
        head, rule = self._heads[topic], self.rules.get(topic)
        kept = (rule[0].seconds, rule[0].bytes) if rule is not None else (0, 0)
        text, by = self.schemas[topic].text, head.by
        stored = _Stored(text, head.epoch, by.origin, *kept, by, rule)
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
            self._send(peer)
            if not neighbour.parts:
                # The empty message matters: a newcomer waits for it.
                self._post(peer, neighbour, ())
        elif state in (LinkState.DOWN, LinkState.CUT):
            self._neighbours.pop(peer, None)
        return self._flush()

    def _receive(self, sender: Peer, message: Adverts) -> None:
        self.introduced = True
        certificates = dict(message.certificates)
        for advert in message.topics:
            self._hear(sender, advert, certificates)
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

    def _hear(self, sender: Peer, advert: Advert, certificates: dict[int, bytes]) -> None:
        """A neighbour tells of a topic."""
        topic, epoch = advert.topic, advert.epoch
        told = {advert.schema: By(advert.origin, advert.signature)} | {
            rival.schema: By(rival.origin, rival.signature) for rival in advert.rivals
        }
        for text, by in told.items():
            told[text] = By(by.origin, by.signature, certificates.get(by.origin, b""))
        rule = self._heard_rule(sender, topic, advert.retention, certificates)
        known, head = self.schemas.get(topic), self._heads.get(topic)
        is_news = True
        if known is not None and head is not None:
            # The neighbour has not heard of the replacement.
            if epoch < head.epoch:
                self._remind(sender, topic)
                return
            is_alone = len(told) == 1 and topic not in self.conflicts
            is_news = not (epoch == head.epoch and is_alone and known.text in told)
            if not is_news and not self._counts(topic, head.by):
                # Another node stands for the topic, because its advertiser counts no longer.
                by = told[known.text]
                if self._is_proved(topic, by, said_schema(topic, epoch, known.text)):
                    self._head_by(topic, by)
                    self._tell(topic, sender)
        if is_news:
            pool = self._parse(sender, topic, told)
            self._prove(sender, topic, epoch, pool)
            if pool and not self._take(sender, topic, epoch, pool, rule):
                about = (
                    f"more than {TOPICS_MAX} topics, {TOPICS_AN_ORIGIN} of one advertiser, "
                    f"or {SCHEMAS_LENGTH_MAX} characters"
                )
                self._out.append(Note(Dropped("topic", 1, about)))
        if rule is not None and topic in self.schemas and not self._retain(topic, rule, sender):
            reason = (
                f"topic {topic!r} has retention {_text(self.rules[topic][0])!r} here and "
                f"{_text(rule[0])!r} at the peer"
            )
            self._out.append(Note(Rejected(hex_peer(sender), reason)))

    def _heard_rule(
        self, sender: Peer, topic: str, rule: Rule | None, certificates: dict[int, bytes]
    ) -> tuple[Rule, By] | None:
        """A retention that a neighbour tells of, if its advertiser has signed it."""
        if rule is None:
            return None
        known = self.rules.get(topic)
        if known is not None and known[0] == rule:
            return known
        by = By(rule.origin, rule.signature, certificates.get(rule.origin, b""))
        if self._is_proved(topic, by, said_rule(topic, rule)):
            return rule, by
        self._charge(sender, f"a retention of {topic!r}")
        return None

    def _is_proved(self, topic: str, by: By, said: bytes) -> bool:
        """Whether this node has signed it, and has the permission to publish to the topic."""
        if self.permits is None:
            return True
        origin = Peer(by.origin)
        if not self.permits(origin, by.certificate, topic):
            return False
        return bool(self.proof.proves(origin, ADVERT, said, by.signature))

    def _charge(self, sender: Peer, about: str) -> None:
        reason = f"{about} that no node with the permission to publish there has signed"
        self._out.append(Note(Rejected(hex_peer(sender), reason)))

    def _parse(self, sender: Peer, topic: str, told: dict[str, By]) -> _Pool:
        pool: _Pool = {}
        for text, by in told.items():
            try:
                schema = Schema.parse(text)
            except SchemaError as error:
                reason = f"schema of {topic!r}: {error}"
                self._out.append(Note(Rejected(hex_peer(sender), reason)))
            else:
                pool[schema.text] = (schema, by)
        return pool

    def _prove(self, sender: Peer, topic: str, epoch: int, pool: _Pool) -> None:
        """Takes schemas out of the pool that nobody with the permission has signed."""
        head = self._heads.get(topic)
        mine = self._pool(topic) if head is not None and head.epoch == epoch else {}
        for text, (_, by) in list(pool.items()):
            if text not in mine and not self._is_proved(topic, by, said_schema(topic, epoch, text)):
                del pool[text]
                self._charge(sender, f"a schema of {topic!r}")

    def _take(
        self,
        sender: Peer,
        topic: str,
        epoch: int,
        told: _Pool,
        rule: tuple[Rule, By] | None,
    ) -> bool:
        """Takes a neighbour's schemas. False means that there is no room."""
        head = self._heads.get(topic)
        if head is None or epoch > head.epoch:
            return self._settle(topic, epoch, told, sender, rule)
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
        return {own.text: (own, self._heads[topic].by)} | self.conflicts.get(topic, {})

    def _settle(
        self,
        topic: str,
        epoch: int,
        pool: _Pool,
        sender: Peer | None,
        rule: tuple[Rule, By] | None = None,
    ) -> bool:
        """Sets a topic's schemas at this epoch, this node's own first.

        ``rule`` counts if the topic or its epoch is new. False means that there is no room.
        """
        known, head = self.schemas.get(topic), self._heads.get(topic)
        first, _ = next(iter(pool.values()))
        best = {
            text: one
            for text, one in sorted(pool.items())
            if not any(other.extends(one[0]) for other, _ in pool.values())
        }
        own, by = best.get(first.text) or next(
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
        # This node itself may have all places.
        is_other = by.origin not in (self._me, head.by.origin if head is not None else None)
        if (
            len(self.schemas) + (known is None) > TOPICS_MAX
            or self._characters + characters > SCHEMAS_LENGTH_MAX
            or (is_other and self._by_origin[by.origin] >= TOPICS_AN_ORIGIN)
        ):
            return False
        self._characters += characters
        if head is not None:
            self._by_origin[head.by.origin] -= 1
        self._by_origin[by.origin] += 1
        self._heads[topic] = _Head(epoch, by)
        if rule is not None and (head is None or epoch > head.epoch):
            self._keep(topic, rule)
        if own != known:
            self.schemas[topic] = own
            self.changed.append(topic)
            if known is not None and not own.extends(known):
                self.replaced.append(topic)
            self._out.append(Note(Advertised(topic, own.text)))
        self.conflicts.pop(topic, None)
        if rivals:
            self.conflicts[topic] = rivals
            for text, (_, its) in rivals.items():
                if text != own.text and text not in before:
                    record = SchemaConflict(topic, text, hex_peer(Peer(its.origin)), own.text)
                    self._out.append(Note(record))
        self._unsaved[topic] = None
        self._tell(topic, sender)
        return True

    def _retain(self, topic: str, rule: tuple[Rule, By], sender: Peer | None) -> bool:
        """Takes a topic's retention. False means that it has another one."""
        known = self.rules.get(topic)
        if known is None:
            self._keep(topic, rule)
            self._unsaved[topic] = None
            self._tell(topic, sender)
            return True
        is_same = (known[0].seconds, known[0].bytes) == (rule[0].seconds, rule[0].bytes)
        if is_same and not self._counts(topic, known[1]):
            # Another node stands for the retention, because its advertiser counts no longer.
            self.rules[topic] = rule
            self._unsaved[topic] = None
            self._tell(topic, sender)
        return is_same

    def _keep(self, topic: str, rule: tuple[Rule, By]) -> None:
        self.rules[topic] = rule
        seconds, size = rule[0].seconds, rule[0].bytes
        limit = self._retention_max
        if limit is not None and rule[1].origin != self._me:
            size = min(size, limit.bytes)
            # Zero is no age at all.
            ages = [age for age in (seconds, limit.seconds) if age]
            seconds = min(ages, default=0)
        self.retentions[topic] = Retention(seconds, size)

    def _tell(self, topic: str, sender: Peer | None) -> None:
        """Tells news of this topic to all neighbours but the one that said it."""
        for peer, neighbour in self._neighbours.items():
            if peer != sender:
                neighbour.topics[topic] = None
                self._send(peer)

    def vouch(self) -> list[Effect]:
        """Certificates were revoked. Topics outlive their advertisers: if the advertiser of a topic
        counts no longer, a node that may publish to the topic stands for it with its signature.
        """
        for topic in self.schemas:
            before = self._heads[topic].by
            if self._vouches(topic) and self._heads[topic].by != before:
                self._unsaved[topic] = None
                self._tell(topic, None)
        return self._flush()

    def _vouches(self, topic: str) -> bool:
        """Whether others may believe what this node tells of a topic. It signs for advertisers that
        count no longer, if it may.
        """
        if self.permits is None:
            return True
        head, rivals, rule = (
            self._heads[topic],
            self.conflicts.get(topic, {}),
            self.rules.get(topic),
        )
        said = [head.by, *(by for _, by in rivals.values())]
        if rule is not None:
            said.append(rule[1])
        if all(self._counts(topic, by) for by in said):
            return True
        if not self.permits(self._me, self.certificate_of(self._me), topic):
            return False
        if not self._counts(topic, head.by):
            self._head_by(
                topic, self._by_me(said_schema(topic, head.epoch, self.schemas[topic].text))
            )
        for text, (schema, by) in rivals.items():
            if not self._counts(topic, by):
                mine = self._by_me(said_schema(topic, head.epoch, text))
                rivals[text] = (schema, mine)
        if rule is not None and not self._counts(topic, rule[1]):
            seconds, size, epoch = rule[0].seconds, rule[0].bytes, rule[0].epoch
            mine = self._by_me(said_rule(topic, (seconds, size, epoch)))
            # The limit for the retention of others goes on.
            self.rules[topic] = Rule(seconds, size, epoch, self._me, mine.signature), mine
        return True

    def _counts(self, topic: str, by: By) -> bool:
        """Whether an advertiser, as far as certificates go, may speak of a topic now."""
        return self.permits is None or self.permits(Peer(by.origin), by.certificate, topic)

    def _head_by(self, topic: str, by: By) -> None:
        """Another node stands for the schema of a topic."""
        head = self._heads[topic]
        self._by_origin[head.by.origin] -= 1
        self._by_origin[by.origin] += 1
        self._heads[topic] = _Head(head.epoch, by)
        self._unsaved[topic] = None

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
            # A neighbour would refuse the others, and charge this link for them.
            counting = tuple(self._advert(topic) for topic in part if self._vouches(topic))
            if counting:
                self._post(peer, neighbour, counting)

    def _post(self, peer: Peer, neighbour: _Neighbour, adverts: tuple[Advert, ...]) -> None:
        certificates: dict[int, bytes] = {}
        for advert in adverts:
            certificates |= self._certificates(advert.topic)
        size = sum(map(len, certificates.values())) + sum(
            len(advert.topic)
            + len(advert.schema)
            + sum(len(rival.schema) for rival in advert.rivals)
            for advert in adverts
        )
        neighbour.parts.append(size)
        neighbour.characters += size
        self._out.append(Send((peer,), Adverts(adverts, tuple(certificates.items()))))

    def _certificates(self, topic: str) -> dict[int, bytes]:
        """Those of all advertisers of a topic."""
        said = [by for _, by in self._pool(topic).values()]
        if topic in self.rules:
            said.append(self.rules[topic][1])
        found = {by.origin: self.certificate_of(Peer(by.origin)) or by.certificate for by in said}
        return {origin: certificate for origin, certificate in found.items() if certificate}

    def _advert(self, topic: str) -> Advert:
        head, rule, text = self._heads[topic], self.rules.get(topic), self.schemas[topic].text
        rivals = self.conflicts.get(topic, {}).items()
        return Advert(
            topic,
            text,
            head.epoch,
            head.by.origin,
            rule[0] if rule is not None else None,
            tuple(
                Rival(other, by.origin, by.signature) for other, (_, by) in rivals if other != text
            ),
            head.by.signature,
        )

    def _flush(self) -> list[Effect]:
        out, self._out = self._out, []
        return out


def _agree(one: Schema, other: Schema) -> bool:
    """Whether they are the same schema, or one extends the other."""
    return one == other or one.extends(other) or other.extends(one)


def _text(rule: Rule) -> str:
    return Retention(rule.seconds, rule.bytes).text


def _shown(text: str) -> str:
    return text if len(text) <= SHOWN_LENGTH else f"{text[:SHOWN_LENGTH]}..."
