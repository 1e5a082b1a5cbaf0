"""A member that speaks the wire by hand: it has keys and a certificate, and no scruples.

Its certificate permits nothing. It says hello and greets like a node, so it has links and a place
in the view. From then on it sends what a test tells it to send, and remembers all that it hears.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

from msgspec import structs

import gossamer
from gossamer.machine import Message, Peer
from gossamer.net.keys import Keys
from gossamer.node import wire
from gossamer.node.topics import Advert, Adverts, AdvertsTaken, said_rule, said_schema
from gossamer.overlay.batch import Batch, Report
from gossamer.overlay.interest.messages import Barrier, Beat, Greet, News, Probe, Reached
from gossamer.overlay.interest.record import Known, Record, mix
from gossamer.overlay.proof import ADVERT, RECORD
from keynet import client_context


class Member:
    def __init__(self, keys: Path) -> None:
        self._keys = Keys(keys)
        self._directory = keys
        self.peer = self._keys.identity.peer
        self.certificate = self._keys.identity.certificate
        self.proof = self._keys.proof(self._keys.rights())
        self.record = self.signed(Record(self.peer, 256, 1, certificate=self.certificate))
        # All that it was told, by every node.
        self.heard: list[Message] = []
        self._links: dict[Peer, asyncio.StreamWriter] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def signed(self, record: Record) -> Record:
        """The record with this member's signature, whichever node it is about."""
        return structs.replace(record, signature=self.proof.sign(RECORD, Known(record).said))

    def batch(self, batch: Batch) -> Batch:
        """The batch with this member's signature, whichever publisher it names."""
        return batch.signed(self.proof)

    def advert(self, advert: Advert) -> Advert:
        """The advertisement with this member's signatures wherever it has its name."""
        me, sign = self.peer, partial(self.proof.sign, ADVERT)
        rule = advert.retention
        if rule is not None and rule.origin == me:
            rule = structs.replace(rule, signature=sign(said_rule(advert.topic, rule)))
        rivals = tuple(
            structs.replace(
                one, signature=sign(said_schema(advert.topic, advert.epoch, one.schema))
            )
            for one in advert.rivals
        )
        signature = advert.signature
        if advert.origin == me:
            signature = sign(said_schema(advert.topic, advert.epoch, advert.schema))
        return structs.replace(advert, retention=rule, rivals=rivals, signature=signature)

    async def connect(self, node: gossamer.Node) -> None:
        """Opens a link to a node, and greets."""
        host, port = node.address.split(":")
        context = client_context(self._directory)
        reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
        hello = wire.Hello(wire.MAGIC, wire.VERSION, wire.VERSION, self.peer, 1, "")
        writer.write(wire.encode(hello))
        self._links[node.peer] = writer
        self._tasks.append(asyncio.create_task(self._listen(node.peer, reader)))
        # It says that it knows many members, so that it is not told everything at once.
        self.say(node, Greet(self.record, 1, 2, True), Adverts(()))

    def say(self, node: gossamer.Node, *messages: Message) -> None:
        self._links[node.peer].write(b"".join(map(wire.encode, messages)))

    def is_cut_off(self, node: gossamer.Node) -> bool:
        return node.peer not in self._links

    def batches(self) -> list[Batch]:
        return [message for message in self.heard if isinstance(message, Batch)]

    async def _listen(self, peer: Peer, reader: asyncio.StreamReader) -> None:
        unframer = wire.Unframer()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            while data := await reader.read(1 << 16):
                for message in unframer.feed(data):
                    self._hear(peer, message)
        self._links.pop(peer).close()

    def _hear(self, peer: Peer, message: Message) -> None:
        """Behaves as a node does, so that nobody takes this member for dead."""
        self.heard.append(message)
        answer: Message | None = None
        if isinstance(message, wire.Ping):
            answer = wire.Pong()
        elif isinstance(message, Adverts):
            answer = AdvertsTaken()
        elif isinstance(message, Beat | Probe):
            answer = Beat(1)
        elif isinstance(message, Barrier):
            # It stands for itself, once, and asks nobody.
            is_first = sum(message == other for other in self.heard) == 1
            answer = Reached(message.origin, message.number, mix(self.peer) if is_first else 0)
        elif isinstance(message, News) and any(one.peer == self.peer for one in message.gone):
            self.record = self.signed(structs.replace(self.record, life=self.record.life + 1))
            answer = News(records=(self.record,))
        elif isinstance(message, Batch):
            answer = Report(
                message.publisher, message.incarnation, message.first, message.round, True
            )
        if answer is not None:
            self._links[peer].write(wire.encode(answer))

    async def close(self) -> None:
        for writer in list(self._links.values()):
            writer.transport.abort()
        await asyncio.gather(*self._tasks)


@contextlib.asynccontextmanager
async def member(keys: Path, *nodes: gossamer.Node) -> AsyncIterator[Member]:
    """A member with links to these nodes, which all have it in their views."""
    made = Member(keys)
    try:
        for node in nodes:
            await made.connect(node)
        while not all(made.peer in node._interest.view.members for node in nodes):
            await asyncio.sleep(0.005)
        yield made
    finally:
        await made.close()
