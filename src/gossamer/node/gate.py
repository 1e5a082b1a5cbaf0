"""The gate: every relayed event message passes here before any table is touched.

With keys, a batch that relays carry has its publisher's signature over everything that the
publisher says of it. That is topic, life, numbers, floor, round and rows (``Batch.said``). A node
checks the signature before it remembers, hands over or forwards anything. So no node publishes in
another node's name, or changes an event on its way. No liar moves a floor or a round. The events of
an invented publisher end at the first honest node.

    the signature holds       the message goes to its overlay
    it does not hold          the link that brought the message is charged, and nobody else
    the publisher is unknown  the message waits for the publisher's certificate, which travels with
                              the view. After ``WAIT`` it is declined: the overlay answers that
                              nothing was reached, and the publisher asks again

On route direct the link itself proves the publisher, so its messages do not pass here.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, NamedTuple

from gossamer.machine import NEVER, SECOND, Effect, Message, Micros, Note, Peer
from gossamer.node.rights import Rights
from gossamer.overlay.batch import Batch
from gossamer.overlay.proof import BATCH, Proof
from gossamer.overlay.skiplist.messages import Carry as SkipListCarry
from gossamer.overlay.tree.messages import Carry as TreeCarry
from gossamer.trace import Dropped, Rejected, hex_peer

# Certificates travel with the view, which takes milliseconds.
WAIT = Micros(5 * SECOND)
# Messages that wait for certificates have at most this number of bytes for one link, and for all.
BYTES_A_LINK = 2 << 20
BYTES_MAX = 16 << 20
# A message counts as this number of bytes beside its rows.
MESSAGE_BYTES = 400
# The gate remembers this number of signatures that held lately. Every neighbour that floods brings
# the same one.
KNOWN_MAX = 16_384


class Waiting(NamedTuple):
    sender: Peer
    message: Message
    publisher: Peer
    size: int
    until: Micros


class Gate:
    def __init__(self, rights: Rights, proof: Proof, out: list[Effect]) -> None:
        self._rights, self._proof, self._out = rights, proof, out
        # The messages stand in the order of their coming, so the time of the first is up first.
        self._waiting: deque[Waiting] = deque()
        self._bytes_by: dict[Peer, int] = {}
        self._bytes = 0
        self._known: OrderedDict[bytes, None] = OrderedDict()
        # This number of messages was refused because their publisher has not signed them.
        self.forged = 0

    @property
    def deadline(self) -> Micros:
        return self._waiting[0].until if self._waiting else NEVER

    def admits(self, sender: Peer, message: Message, now: Micros) -> bool | None:
        """Return whether the message may go to its overlay. None means that it must be declined at
        once.
        """
        read = _RELAYED.get(type(message))
        if read is None:
            return True
        publisher, said, signature, size = read(message)
        answer = self._proves(publisher, said, signature)
        if answer:
            return True
        if answer is None:
            return self._wait(Waiting(sender, message, publisher, size, Micros(now + WAIT)))
        self.forged += 1
        reason = "events that their publisher has not signed"
        self._out.append(Note(Rejected(hex_peer(sender), reason)))
        return False

    def proved(self) -> list[Waiting]:
        """Return the messages whose publishers are known by now. They may be received again."""
        identity = self._rights.identity
        return self._take([one for one in self._waiting if identity(one.publisher) is not None])

    def expired(self, now: Micros) -> list[Waiting]:
        """Return the messages that have waited in vain. They must be declined."""
        over = self._take([one for one in self._waiting if one.until <= now])
        for one in over:
            reason = "events of a publisher that nobody has proved"
            self._out.append(Note(Rejected(hex_peer(one.sender), reason)))
        return over

    def _proves(self, publisher: Peer, said: bytes, signature: bytes) -> bool | None:
        if self._rights.identity(publisher) is None:
            return None
        key = blake2b(said + signature, digest_size=16).digest()
        if key in self._known:
            self._known.move_to_end(key)
            return True
        answer = self._proof.proves(publisher, BATCH, said, signature)
        if answer:
            self._known[key] = None
            if len(self._known) > KNOWN_MAX:
                self._known.popitem(last=False)
        return answer

    def _wait(self, one: Waiting) -> bool | None:
        by = self._bytes_by.get(one.sender, 0) + one.size
        if by > BYTES_A_LINK or self._bytes + one.size > BYTES_MAX:
            about = "too many events of publishers that nobody has proved"
            self._out.append(Note(Dropped("batch", 1, about)))
            return None
        self._bytes_by[one.sender] = by
        self._bytes += one.size
        self._waiting.append(one)
        return False

    def _take(self, some: list[Waiting]) -> list[Waiting]:
        if some:
            gone = {id(one) for one in some}
            self._waiting = deque(one for one in self._waiting if id(one) not in gone)
        for one in some:
            self._bytes -= one.size
            left = self._bytes_by[one.sender] - one.size
            if left:
                self._bytes_by[one.sender] = left
            else:
                del self._bytes_by[one.sender]
        return some


Read = Callable[[Any], tuple[Peer, bytes, bytes, int]]
"""It returns the publisher of a relayed message, the bytes that the publisher signed, the
signature, and the number of bytes that the message counts as.
"""


def _of_batch(batch: Batch) -> tuple[Peer, bytes, bytes, int]:
    size = len(batch.rows) + MESSAGE_BYTES
    return Peer(batch.publisher), batch.said(), batch.signature, size


_RELAYED: dict[type[Message], Read] = {
    Batch: _of_batch,
    SkipListCarry: lambda message: _of_batch(message.batch),
    TreeCarry: lambda message: _of_batch(message.batch),
}
