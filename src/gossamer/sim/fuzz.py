"""Fuzzing: a small fabric of whole nodes, and a peer that sends one of them anything.

Three honest nodes (one of them the victim) exchange real messages over a bus in virtual time:
topics, subscriptions by every route, events, history. A fourth peer is linked to the victim and
sends

    made       messages of every kind on the wire, with random fields of the right shape, made of
               names that mean something here
    bent       real messages that came to the victim, with some field changed, cut, repeated or put
               out of order
    broken     frames whose bytes were changed: the codec must refuse them, or take them for another
               message

and now and then the same under an honest neighbour's name. Links break and come back meanwhile. At
every step these promises must hold. No exception is raised but ``WireError`` of the codec. After
``wake(now)`` the deadline lies ahead. Every message that comes out fits a frame and can be read
again. The victim's memory stays below a bound.

Every second episode has keys. There the fourth peer is a member whose certificate permits nothing,
and its link proves its name. It signs some of its messages itself, whichever node they name. The
honest nodes must believe nothing of it that is not about itself: their views have the records that
the other nodes have said, their topics stay, and they deliver what honest nodes have published.

One seed and an episode's number replay an episode to the byte.
"""

from __future__ import annotations

import resource
import sys
from collections import Counter, deque
from collections.abc import Callable
from random import Random
from traceback import extract_tb
from typing import Any, get_args

import msgspec
from msgspec import Struct, inspect

from gossamer.filters import Event
from gossamer.machine import Deliver, Effect, LinkState, Message, Micros, Peer, Send, Store
from gossamer.node import NodeConfig, NodeCore
from gossamer.node.follow import Wish
from gossamer.node.retention import Retention
from gossamer.node.topics import Advert, Adverts, Rule, said_schema
from gossamer.node.wire import (
    AnyMessage,
    Hello,
    InMemory,
    Memory,
    MemorySeen,
    MemoryTaken,
    Ping,
    Pong,
    Revocations,
    Unframer,
    WireError,
    encode,
)
from gossamer.overlay.batch import Batch
from gossamer.overlay.interest.config import InterestConfig
from gossamer.overlay.interest.messages import Gone, Greet, News
from gossamer.overlay.interest.record import LIFE_MAX, Known, Record, topic_hash
from gossamer.overlay.proof import ADVERT, FAREWELL, RECORD, UNSIGNED, Proof
from gossamer.sim.keys import SimulatedKeys

# The number of steps in an episode.
STEPS = 2_000
# The bytes to which the whole process may grow.
MEMORY_MAX = 1 << 30
PEERS = (Peer(1), Peer(2), Peer(3))
ATTACKER = Peer(66)
TOPIC, SCHEMA = "weather", "city STRING, temp INT"
KEPT = Retention(3600, 1 << 20)
TEXTS = (
    "",
    "temp > 10",
    "city = 'a' AND temp BETWEEN 3 AND 9",
    "city LIKE 'a%' OR temp IS NULL",
    "temp = 7",
)
WORDS = (
    TOPIC,
    "other",
    "x" * 255,
    "127.0.0.1:7400",
    ":",
    "",
    SCHEMA,
    "n INT",
    *TEXTS,
    "temp >",
    "ü\0",
)
ROWS = (
    msgspec.msgpack.encode([["a", 7]]),
    msgspec.msgpack.encode([["b", None], ["c", 2**31 - 1]]),
    b"",
    b"\xc1",
    b"\x91\x93",
)
EDGES = (
    0,
    1,
    2,
    3,
    7,
    8,
    255,
    256,
    257,
    2**16 - 1,
    2**20,
    2**31,
    2**32 - 2,
    2**32 - 1,
    2**53,
    2**63,
    2**64 - 1,
)
THE_DRIVERS = (Hello, Ping, Pong, Revocations, Memory, MemorySeen, InMemory, MemoryTaken)
KINDS = [kind for kind in get_args(AnyMessage) if kind not in THE_DRIVERS]
_INFOS = {kind: inspect.type_info(kind) for kind in KINDS}
_decode = msgspec.msgpack.Decoder(AnyMessage).decode
_plain = msgspec.msgpack.Decoder().decode
_pack = msgspec.msgpack.Encoder().encode


class Failure(Struct, frozen=True):
    episode: int
    step: int
    what: str


class FuzzError(Exception):
    """A promise was broken."""


# ------------------------------------------------------------------------------ messages


class Maker:
    """Random values of a message's types."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._infos = _INFOS
        self.blobs: list[bytes] = [
            topic_hash(TOPIC),
            topic_hash("other"),
            *ROWS,
            bytes(12),
            bytes(20),
            b"\xff" * 12,
        ]
        self.numbers: list[int] = [
            *PEERS,
            ATTACKER,
            int.from_bytes(topic_hash(TOPIC), "big"),
            *EDGES,
        ]

    def message(self) -> Message:
        kind = self._rng.choice(KINDS)
        made: Message = msgspec.convert(self._make(self._infos[kind], 0), kind)
        return made

    def _length(self, least: int | None, most: int | None, depth: int) -> int:
        most = 8 if most is None else most
        drawn = self._rng.choice((0, 1, 1, 2, 3, most if most <= 64 and depth < 2 else 5))
        return max(least or 0, min(most, drawn))

    def _make(self, info: Any, depth: int) -> Any:
        rng, kind = self._rng, type(info)
        if kind is inspect.StructType:
            values = [self._make(field.type, depth + 1) for field in info.fields]
            return [info.tag, *values] if info.tag is not None else values
        if kind is inspect.UnionType:
            return self._make(rng.choice(info.types), depth)
        if kind is inspect.IntType:
            low = (
                info.ge if info.ge is not None else info.gt + 1 if info.gt is not None else -(2**63)
            )
            high = (
                info.le
                if info.le is not None
                else info.lt - 1
                if info.lt is not None
                else 2**64 - 1
            )
            value = (
                rng.choice(self.numbers)
                if rng.random() < 0.8
                else rng.getrandbits(rng.choice((4, 16, 32, 64)))
            )
            return max(low, min(high, value))
        if kind is inspect.StrType:
            text = rng.choice(WORDS)
            return (text + "x" * (info.min_length or 0))[: info.max_length]
        if kind is inspect.BytesType:
            data = b"".join(rng.choice(self.blobs) for _ in range(rng.choice((1, 1, 1, 2, 4))))
            return data[: info.max_length]
        if kind is inspect.BoolType:
            return rng.random() < 0.5
        if kind is inspect.TupleType:
            return [self._make(one, depth + 1) for one in info.item_types]
        if kind in (inspect.VarTupleType, inspect.ListType):
            return [
                self._make(info.item_type, depth + 1)
                for _ in range(self._length(info.min_length, info.max_length, depth))
            ]
        if kind is inspect.NoneType:
            return None
        raise FuzzError(f"no way to make a {info}")


def bend(rng: Random, value: Any) -> Any:
    """Change something, somewhere."""
    if isinstance(value, list) and value:
        place = rng.randrange(len(value))
        deed = rng.random()
        if deed < 0.7:
            return [*value[:place], bend(rng, value[place]), *value[place + 1 :]]
        if deed < 0.8:
            return value[:place] + value[place + 1 :]
        if deed < 0.9:
            return [*value, value[place]]
        return value[::-1]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice(
            (value + 1, value - 1, value ^ 1 << rng.randrange(64), rng.choice(EDGES), -value)
        )
    if isinstance(value, bytes):
        if not value or rng.random() < 0.2:
            return value + rng.randbytes(rng.choice((1, 8, 12)))
        at = rng.randrange(len(value))
        return rng.choice(
            (value[:at], value[at:], value[:at] + rng.randbytes(1) + value[at + 1 :], value + value)
        )
    if isinstance(value, str):
        return rng.choice((value[1:], value + "'", *WORDS))
    return rng.choice((0, "", b"", [], None))


# -------------------------------------------------------------------------------- a fabric


def _wish(rng: Random) -> Wish | None:
    return rng.choice(
        (None, None, Wish(ordered=True), Wish(start=0), Wish(gaps=True, ordered=True))
    )


# The values of honest events.
CITIES, TEMPS = ("a", "b", None), (7, None, -5)


class Truth:
    """The statements of honest nodes that have keys, and the check that nobody believes others."""

    def __init__(self) -> None:
        self.keys = SimulatedKeys(1)
        self._said: dict[Peer, dict[bytes, None]] = {peer: {} for peer in PEERS}
        rights = self.keys.rights(self.keys.identity(ATTACKER, (), ()))
        # The attacker's own keys.
        self._proof: Proof = self.keys.proof(rights)
        self._certificate = rights.me.certificate

    def hear(self, node: NodeCore) -> None:
        """A node's record is new, or the same as before."""
        assert node.interest is not None
        self._said[node.peer][Known(node.interest.record).said] = None

    def signed(self, message: Message) -> Message:
        """The message with the attacker's signatures, whichever node it names."""
        replace, sign = msgspec.structs.replace, self._proof.sign
        if isinstance(message, Batch):
            return message.signed(self._proof)
        if isinstance(message, Adverts):
            adverts = tuple(
                replace(one, signature=sign(ADVERT, said_schema(one.topic, one.epoch, one.schema)))
                for one in message.topics
            )
            return replace(message, topics=adverts)
        if isinstance(message, News):
            records = tuple(
                replace(one, signature=sign(RECORD, Known(one).said)) for one in message.records
            )
            gone = tuple(
                replace(one, signature=sign(FAREWELL if one.left else RECORD, one.said))
                for one in message.gone
            )
            return replace(message, records=records, gone=gone)
        return message

    def lie(self, rng: Random, node: NodeCore) -> Message:
        """A message with a purpose: the random ones seldom make sense."""
        assert node.interest is not None
        peer, number = rng.choice(PEERS), rng.choice((1, 2, 50, 2**40))
        known = node.interest.view.members.get(peer)
        record = known.record if known is not None else Record(peer, 256, 1)
        deed = rng.randrange(4)
        if deed == 0:
            row = msgspec.msgpack.encode([["z", 99]])
            return Batch(TOPIC, peer, 1, number, 1, rng.choice((1, number)), number, 1, row)
        if deed == 1:
            origin = rng.choice((peer, ATTACKER))
            text = rng.choice(("n INT", SCHEMA + ", more INT"))
            rule = rng.choice((None, Rule(7, 7, 0, origin)))
            advert = Advert(rng.choice((TOPIC, "new")), text, number % 3, origin, rule)
            return Adverts((advert,), ((origin, self._certificate),))
        if deed == 2:
            changed = {"version": record.version + 1, "address": "elsewhere:1"}
            return News(records=(msgspec.structs.replace(record, **changed),))
        return News(gone=(Gone(peer, min(LIFE_MAX, record.life + number - 1), True),))

    def greeting(self) -> Greet:
        """The attacker introduces itself, as a member does."""
        record = Record(ATTACKER, 256, 1, certificate=self._certificate)
        signature = self._proof.sign(RECORD, Known(record).said)
        return Greet(msgspec.structs.replace(record, signature=signature), 0, 2, True)

    def check(self, node: NodeCore) -> None:
        assert node.interest is not None
        for peer, known in node.interest.view.members.items():
            is_its_own = peer in (node.peer, ATTACKER)
            if not is_its_own and known.said not in self._said.get(peer, ()):
                order = known.record.life, known.record.version
                raise FuzzError(f"node {node.peer} believes of node {peer} the version {order}")
        for peer, tomb in node.interest.view.tombs.items():
            if peer != ATTACKER and tomb.gone.left:
                raise FuzzError(f"node {node.peer} believes a farewell: {tomb.gone!r}")
        topics = node.topics
        if {topic: schema.text for topic, schema in topics.schemas.items()} != {TOPIC: SCHEMA}:
            raise FuzzError(f"node {node.peer} believes of topics: {topics.schemas}")
        if topics.conflicts or topics.retentions != {TOPIC: KEPT}:
            raise FuzzError(f"node {node.peer} believes: {topics.conflicts} {topics.retentions}")

    def delivered(self, events: Any) -> None:
        # Gaps say that events were lost, and name none.
        for event in (event for event in events if isinstance(event, Event)):
            is_honest = event["city"] in CITIES and event["temp"] in TEMPS
            if event.publisher not in PEERS or not is_honest:
                raise FuzzError(f"delivered, though no honest node has published it: {event!r}")


class Fabric:
    """Whole nodes on a bus that loses nothing."""

    def __init__(self, rng: Random, *, keyed: bool) -> None:
        self.rng, self.now = rng, Micros(0)
        self.nodes: dict[Peer, NodeCore] = {}
        # The messages that came to the victim.
        self.heard: deque[tuple[Peer, bytes]] = deque(maxlen=400)
        self.counts: Counter[str] = Counter()
        self._bus: deque[tuple[Peer, Peer, bytes]] = deque()
        self.truth = Truth() if keyed else None
        for peer in PEERS:
            keys = self.truth.keys if self.truth is not None else None
            rights = keys.rights(keys.identity(peer)) if keys is not None else None
            proof = keys.proof(rights) if keys is not None and rights is not None else UNSIGNED
            interest = InterestConfig(k=2, join=() if peer == PEERS[0] else ("one:1",))
            self.nodes[peer] = NodeCore(
                peer, incarnation=1, rng=Random(rng.getrandbits(32)),
                config=NodeConfig(interest=interest),
                address=f"host{peer}:1",
                rights=rights, proof=proof,
            )  # fmt: skip
        self.victim = self.nodes[PEERS[0]]
        self.links = [(a, b) for a in PEERS for b in PEERS if a != b]
        for node in self.nodes.values():
            self.do(node, node.wake(self.now))
        for a, b in self.links:
            self.do(self.nodes[a], self.nodes[a].link(b, LinkState.UP, self.now))
        self.do(self.victim, self.victim.link(ATTACKER, LinkState.UP, self.now))
        if self.truth is not None:
            self.attack(ATTACKER, self.truth.greeting())
        self.victim.advertise(TOPIC, SCHEMA, self.now, KEPT)
        self.settle(20)
        for node in self.nodes.values():
            for route in self.victim.routing.planes:
                node.subscribe(TOPIC, rng.choice(TEXTS), self.now, route=route, wish=_wish(rng))
        self.settle(30)

    def do(self, node: NodeCore, effects: list[Effect]) -> None:
        """Carry out the effects of a node, and check that its messages can travel."""
        truth = self.truth
        if truth is not None:
            truth.hear(node)
        for effect in effects:
            kind = type(effect)
            if kind is Send:
                frame = encode(effect.message)  # type: ignore[union-attr]
                if _decode(frame[4:]) != effect.message:  # type: ignore[union-attr]
                    raise FuzzError(f"a message does not survive the codec: {effect.message!r}")  # type: ignore[union-attr]
                self._bus.extend(
                    (peer, node.peer, frame)
                    for peer in effect.to  # type: ignore[union-attr]
                    if peer in self.nodes
                )
            elif kind is Deliver:
                self.counts["delivered"] += len(effect.events)  # type: ignore[union-attr]
                if truth is not None and effect.subscription:  # type: ignore[union-attr]
                    truth.delivered(effect.events)  # type: ignore[union-attr]
                node.taken(effect.subscription, len(effect.events), self.now)  # type: ignore[union-attr]
            elif kind is Store:
                self.do(node, node.stored(effect.token, self.now))  # type: ignore[union-attr]
        node.changed.clear()
        node.entered.clear()
        node.view_changes.clear()

    def settle(self, turns: int) -> None:
        """Let time pass, and messages arrive."""
        for _ in range(turns):
            self.turn()

    def turn(self) -> None:
        due = min(node.deadline for node in self.nodes.values())
        step = self.rng.choice((50, 1_000, 20_000, 300_000))
        self.now = Micros(max(self.now + 1, min(due, self.now + step)))
        for node in self.nodes.values():
            if node.deadline <= self.now:
                self.do(node, node.wake(self.now))
                if node.deadline <= self.now:
                    raise FuzzError(f"after wake({self.now}) the deadline is {node.deadline}")
        for _ in range(min(len(self._bus), 200)):
            to, sender, frame = self._bus.popleft()
            if to == PEERS[0]:
                self.heard.append((sender, frame))
            node = self.nodes[to]
            self.do(node, node.receive(sender, _decode(frame[4:]), self.now))
        if len(self._bus) > 20_000:
            self.counts["bus cleared"] += 1
            # If one message makes many, the limits of a connection must stop it.
            self._bus.clear()

    def attack(self, sender: Peer, message: Message) -> None:
        self.counts[type(message).__name__] += 1
        if self.truth is not None and self.rng.random() < 0.5:
            message = self.truth.signed(message)
        self.do(self.victim, self.victim.receive(sender, message, self.now))


def _step(fabric: Fabric, maker: Maker, rng: Random) -> None:
    deed = rng.random()
    # Where there are keys, a link proves the name of its peer.
    is_own = fabric.truth is not None or rng.random() < 0.8
    sender = ATTACKER if is_own else rng.choice(PEERS[1:])
    if deed < 0.35:
        fabric.attack(sender, maker.message())
    elif deed < 0.65 and fabric.heard:
        _, frame = rng.choice(fabric.heard)
        bent = bend(rng, _plain(frame[4:]))
        try:
            message = _decode(_pack(bent))
        except (msgspec.MsgspecError, OverflowError, RecursionError):
            fabric.counts["refused"] += 1
        else:
            fabric.attack(sender, message)
    elif deed < 0.72 and fabric.heard:
        _broken(fabric, rng, rng.choice(fabric.heard)[1], sender)
    elif deed < 0.76 and fabric.heard:
        # The message is replayed, or sent in another node's name.
        fabric.attack(sender, _decode(rng.choice(fabric.heard)[1][4:]))
    elif deed < 0.80:
        _command(fabric, rng)
    elif deed < 0.85 and fabric.truth is not None:
        fabric.attack(sender, fabric.truth.lie(rng, fabric.victim))
    elif deed < 0.87 and rng.random() < 0.4:
        peer = rng.choice((ATTACKER, *PEERS[1:]))
        for state in (
            rng.choice((LinkState.DOWN, LinkState.CUT, LinkState.FULL, LinkState.READY)),
            LinkState.UP,
        ):
            fabric.do(fabric.victim, fabric.victim.link(peer, state, fabric.now))
    else:
        fabric.turn()


def _broken(fabric: Fabric, rng: Random, frame: bytes, sender: Peer) -> None:
    data = bytearray(frame)
    for _ in range(rng.choice((1, 1, 2, 8))):
        data[rng.randrange(len(data))] = rng.randrange(256)
    unframer = Unframer()
    try:
        for start in range(0, len(data), cut := rng.choice((1, 3, len(data)))):
            for message in unframer.feed(bytes(data[start : start + cut])):
                if type(message) in KINDS:
                    fabric.attack(sender, message)
    except WireError:
        fabric.counts["refused"] += 1


def _command(fabric: Fabric, rng: Random) -> None:
    node = rng.choice(list(fabric.nodes.values()))
    deed = rng.random()
    if deed < 0.6 and node.window_is_open:
        node.publish(
            TOPIC,
            {"city": rng.choice(CITIES), "temp": rng.choice(TEMPS)},
            fabric.now,
        )
    elif deed < 0.8 and len(node.subscriptions) < 12:
        node.subscribe(
            TOPIC,
            rng.choice(TEXTS),
            fabric.now,
            route=rng.choice(list(fabric.victim.routing.planes)),
            wish=_wish(rng),
        )
    elif node.subscriptions:
        node.unsubscribe(rng.choice(list(node.subscriptions)), fabric.now)


def episode(
    seed: int, number: int, *, steps: int = STEPS, counts: Counter[str] | None = None
) -> Failure | None:
    """Attack one fabric for this number of steps. Returns the failure, if there was one."""
    rng = Random(f"fuzz {seed} {number}")
    step = -1
    try:
        fabric, maker = Fabric(rng, keyed=number % 2 == 1), Maker(rng)
        while step + 1 < steps:
            step += 1
            _step(fabric, maker, rng)
            if fabric.truth is not None:
                fabric.truth.check(fabric.victim)
        fabric.settle(10)
        if fabric.truth is not None:
            for node in fabric.nodes.values():
                fabric.truth.check(node)
        if counts is not None:
            counts.update(fabric.counts)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
            1 if sys.platform == "darwin" else 1024
        )
        if memory > MEMORY_MAX:
            raise FuzzError(f"the process has come to {memory:,} bytes")
    except Exception as error:
        frames = extract_tb(error.__traceback__)[-3:]
        places = " < ".join(
            f"{frame.name} ({frame.filename.rpartition('gossamer/')[2]}:{frame.lineno})"
            for frame in frames[::-1]
        )
        return Failure(number, step, f"{type(error).__name__}: {error} in {places}")
    return None


def run(
    seed: int,
    *,
    seconds: float,
    clock: Callable[[], float],
    told: Callable[[float], None],
    first: int = 0,
    most: int = 1 << 30,
) -> tuple[int, Counter[str], list[Failure]]:
    """Run episodes until the time is up.

    Returns their number, the counts of messages that were sent, and at most 10 failures.
    """
    began, number = clock(), first
    counts: Counter[str] = Counter()
    failures: list[Failure] = []
    while number - first < most and clock() - began < seconds and len(failures) < 10:
        failed = episode(seed, number, counts=counts)
        if failed is not None:
            failures.append(failed)
        number += 1
        told(min(1.0, (clock() - began) / seconds))
    return number - first, counts, failures


__all__ = ["Failure", "episode", "run"]
