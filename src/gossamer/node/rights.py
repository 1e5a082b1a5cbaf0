"""Who may publish and subscribe to what. Sans-IO: what proves an identity is the driver's business (net/keys.py).

A node's certificate names its key and the topics, as patterns, that it may publish to and subscribe to. It travels in the node's
interest record, so every node can judge every publisher and subscriber by itself, whoever relayed their words:

    a batch         from a publisher that may not publish there is refused where its own link brings it, and handed to nobody
                    anywhere else; from one that is not proved yet, it waits a little for the proof before it is handed over
    the past        is told only to who may subscribe, and believed only of who may publish
    an interest     in a topic that its owner may not subscribe to is ignored by publishers, and its entry kept out of skip lists
    a record        whose certificate is not its peer's, or not of the authority, is no record

Relays are trusted (ARCHITECTURE.md, Trust): one that lies about who published an event is not found out here.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable
from fnmatch import translate
from functools import lru_cache

from msgspec import Struct

from gossamer.machine import Message, Peer
from gossamer.node.history import Ask, Past
from gossamer.node.topics import TopicError
from gossamer.overlay.batch import Batch
from gossamer.overlay.interest.record import CERTIFICATE_MAX
from gossamer.overlay.skiplist import messages as skiplist

PROVED_MAX = 32_768  # certificates remembered, also of those who have left: their last events may be under way
VERDICTS_MAX = 65_536  # remembered answers


class NotPermittedError(TopicError):
    """This node's certificate does not allow that."""


class Identity(Struct, frozen=True):
    """Whom a certificate is for, and what it allows."""

    peer: Peer
    name: str
    serial: int
    not_before: int  # seconds of Unix time
    not_after: int
    publish: tuple[str, ...]  # patterns of topics: * stands for anything, ? for one character
    subscribe: tuple[str, ...]
    certificate: bytes = b""
    # The authority raises this number with each certificate of a key. Older certificates have none.
    generation: int = 0

    @property
    def order(self) -> tuple[int, int, int]:
        """Of two certificates of one node, the greater replaces the other.

        The expiry has no part in this: a certificate that allows less may well expire earlier.
        Certificates without a generation are ordered by the time at which they were issued.
        The serial number decides only so that all nodes decide alike.
        """
        return (self.generation, self.not_before, self.serial)


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(translate(pattern))  # made so that it cannot backtrack without end


def allows(patterns: tuple[str, ...], topic: str) -> bool:
    return any(_compiled(pattern).match(topic) is not None for pattern in patterns)


class Rights:
    """Which certificate of each node counts, and what it allows.

    ``prove`` checks a certificate's signature. ``valid`` says whether a certificate counts now.
    ``over`` says that a certificate has expired or was revoked, so that it never counts again.
    Without ``over`` every certificate that is not valid is taken to be over.
    """

    def __init__(
        self,
        me: Identity,
        prove: Callable[[bytes], Identity | None],
        valid: Callable[[Identity], bool],
        over: Callable[[Identity], bool] | None = None,
    ) -> None:
        self.me, self._prove, self._valid = me, prove, valid
        self._over = over if over is not None else lambda identity: not valid(identity)
        self.version = 0  # verdicts from before may not hold
        self.refused = 0  # batches, interests and entries of those who may not
        self._proved: OrderedDict[Peer, Identity] = OrderedDict({me.peer: me})
        self._verdicts: dict[tuple[Peer, str, bool], bool] = {}

    def learn(self, peer: Peer, certificate: bytes) -> bool:
        """Whether this is the peer's certificate.

        The answer depends on nothing but the bytes, so all nodes agree on it and on their views.
        Which certificate of the peer counts depends on its order and on what was revoked. One that
        is over is never remembered, whoever repeats it. One that was remembered and is over now
        gives way to any that counts.
        """
        known = self._proved.get(peer)
        if known is not None and known.certificate == certificate:
            return True
        identity = self._prove(certificate) if 0 < len(certificate) <= CERTIFICATE_MAX else None
        if identity is None or identity.peer != peer:
            return False
        if self._over(identity):
            return True
        if known is None or known.order <= identity.order or self._over(known):
            self._proved[peer] = identity
            self.changed()
            if len(self._proved) > PROVED_MAX:
                oldest = next(iter(self._proved))
                if oldest == self.me.peer:
                    self._proved.move_to_end(oldest)
                    oldest = next(iter(self._proved))
                del self._proved[oldest]
        return True

    def renew(self, me: Identity) -> bool:
        """This node has another certificate; whether it differs."""
        if me.certificate == self.me.certificate:
            return False
        self.me = self._proved[me.peer] = me
        self.changed()
        return True

    def changed(self) -> None:
        """Time has passed, or somebody was revoked: judge anew."""
        self._verdicts.clear()
        self.version += 1

    def identity(self, peer: Peer) -> Identity | None:
        """What is proved of a peer; None if nothing is, or nothing that may still count."""
        identity = self._proved.get(peer)
        return identity if identity is not None and not self._over(identity) else None

    def may_publish(self, peer: Peer, topic: str) -> bool:
        return self._may(peer, topic, True)

    def may_advertise(self, sender: Peer, origin: Peer, topic: str) -> bool | None:
        """Whether a schema may replace another one, or be in conflict with it.

        Its advertiser, or the neighbour that passes it on, must be one that may publish to the
        topic. None: nobody has proved the advertiser yet.
        """
        if self.may_publish(sender, topic) or self.may_publish(origin, topic):
            return True
        return None if origin not in self._proved else False

    def may_subscribe(self, peer: Peer, topic: str) -> bool:
        return self._may(peer, topic, False)

    def _may(self, peer: Peer, topic: str, publish: bool) -> bool:
        key = (peer, topic, publish)
        verdict = self._verdicts.get(key)
        if verdict is None:
            identity = self._proved.get(peer)
            if identity is None:
                return False
            verdict = self._valid(identity) and allows(
                identity.publish if publish else identity.subscribe, topic
            )
            if len(self._verdicts) >= VERDICTS_MAX:
                self._verdicts.clear()
            self._verdicts[key] = verdict
        return verdict

    def judge(
        self, sender: Peer, message: Message, name: Callable[[int], str | None]
    ) -> str | None:
        """Why a message must not be taken: a reason, "" to drop it without a word against its sender, None if it may be.

        ``name`` finds the name of a topic by its hash.
        """
        kind = type(message)
        if kind is Batch:
            return self.judge_batch(sender, message)  # type: ignore[arg-type]
        if kind is skiplist.Carry:
            topic, publisher = name(message.topic), Peer(message.publisher)  # type: ignore[attr-defined]
            if topic is None or (
                message.kind == skiplist.FIND and self.may_subscribe(publisher, topic)  # type: ignore[attr-defined]
            ):
                return None  # who may subscribe may also ask who else does
            return self._carried(sender, publisher, topic)
        if kind is Past:
            return self._carried(sender, sender, message.topic)  # type: ignore[attr-defined]
        if kind is Ask and not self.may_subscribe(sender, message.topic):  # type: ignore[attr-defined]
            self.refused += 1
            return f"asks for the past of {message.topic!r}, to which it may not subscribe"  # type: ignore[attr-defined]
        if kind in _OF_ENTRIES:
            owner = Peer(message.at[1]) if kind is skiplist.Join else sender  # type: ignore[attr-defined]
            topic = name(message.topic)  # type: ignore[attr-defined]
            if topic is not None and not self.may_subscribe(owner, topic):
                self.refused += 1
                return (
                    f"an entry on {topic!r}, to which it may not subscribe"
                    if owner == sender
                    else ""
                )
        return None

    def judge_batch(self, sender: Peer, batch: Batch) -> str | None:
        """The same of a batch, which the tree has in other messages."""
        return self._carried(sender, Peer(batch.publisher), batch.topic)

    def _carried(self, sender: Peer, publisher: Peer, topic: str) -> str | None:
        if sender != publisher or self.may_publish(publisher, topic):
            return None  # a relay passes on what it is given; who would be handed it looks again (``takes``)
        self.refused += 1
        return f"events on {topic!r}, to which it may not publish"

    def check(self, what: str, topic: str) -> None:
        """Whether this node itself may; others would refuse it."""
        me = self.me.peer
        if not (
            self.may_subscribe(me, topic) if what == "subscribe to" else self.may_publish(me, topic)
        ):
            kind = "subscribe" if what == "subscribe to" else "publish"
            raise NotPermittedError(
                f"this node ({self.me.name}) may not {what} {topic!r}: its certificate does not allow it, or has expired; "
                f"get another one: gossamer keys issue AUTHORITY {self.me.name} --renew --{kind} PATTERN"
            )

    def takes(self, publisher: Peer, topic: str) -> bool | None:
        """Whether events of this publisher may be handed over here; None: it is not proved yet.

        A publisher whose certificate was revoked may have been given another one, which is still on
        its way. Its events wait for that one as those of a publisher of whom nothing is known.
        """
        if self.may_publish(publisher, topic):
            return True
        if self.identity(publisher) is None:
            return None
        self.refused += 1
        return False


_OF_ENTRIES = (skiplist.Gossip, skiplist.Beat, skiplist.Ack, skiplist.Join, skiplist.Welcome)
"""What only entries of a list say, that is, subscribers."""
