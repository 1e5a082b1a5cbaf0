"""The permissions of nodes: the topics that they may publish to and subscribe to.

It is sans-IO: the driver proves identities (net/keys.py).

A node's certificate names its key and the topics, as patterns, that it may publish to and subscribe
to. It travels in the node's interest record (docs/decisions/0016-certificates-in-records.md). So
every node can judge every publisher and subscriber by itself, whatever node relayed their messages:

    a batch         If its publisher may not publish there, the batch is refused where the
                    publisher's own link brings it, and no other node hands it over. If the
                    publisher is not proved yet, the batch waits a little for the proof.
    the past        is told only to nodes that may subscribe, and believed only from nodes that may
                    publish.
    an interest     in a topic that its owner may not subscribe to is ignored by publishers, and
                    its entry is kept out of skip lists.
    a record        is refused if its certificate is not its peer's, or not of the authority.

Relays are trusted (ARCHITECTURE.md, Trust): a relay that lies about the publisher of an event is
not found out here.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable
from fnmatch import translate
from functools import lru_cache

from msgspec import Struct

from gossamer.machine import Message, Peer
from gossamer.node.history import AskPast, Past
from gossamer.node.topics import TopicError
from gossamer.overlay.batch import Batch
from gossamer.overlay.interest.record import CERTIFICATE_MAX
from gossamer.overlay.skiplist import messages as skiplist
from gossamer.overlay.tree.messages import Carry as TreeCarry

# The most certificates that are remembered, also of nodes that have left. Their last events may be
# under way.
PROVED_MAX = 32_768
# The most certificates of advertisers that are remembered.
ADVERTISERS_MAX = 1024
# The most answers that are remembered.
VERDICTS_MAX = 65_536


class NotPermittedError(TopicError):
    """This node's certificate does not allow the action."""


class Identity(Struct, frozen=True):
    """The node that a certificate is for, and its permissions."""

    peer: Peer
    name: str
    serial: int
    # In seconds of Unix time.
    not_before: int
    not_after: int
    # Patterns of topics: * stands for any text, ? for one character.
    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    certificate: bytes = b""
    # The authority raises this number with each certificate of a key. Older certificates have none.
    generation: int = 0
    # The public key, by which the node's signatures are judged.
    key: bytes = b""
    # Names the authority that has signed the certificate.
    authority: int = 0

    @property
    def order(self) -> tuple[int, int, int]:
        """Of two certificates of one node, the greater one replaces the other.

        The expiry has no part in this: a certificate that allows less may well expire earlier.
        Certificates without a generation are ordered by the time at which they were issued. The
        serial number decides only so that all nodes decide alike.
        """
        return (self.generation, self.not_before, self.serial)


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    # The pattern is translated so that it cannot backtrack without end.
    return re.compile(translate(pattern))


def allows(patterns: tuple[str, ...], topic: str) -> bool:
    return any(_compiled(pattern).match(topic) is not None for pattern in patterns)


class Rights:
    """The certificate of each node that counts, and its permissions.

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
        revoked: Callable[[Identity], bool] = lambda identity: False,
    ) -> None:
        self.me, self._prove, self._valid = me, prove, valid
        self._over = over if over is not None else lambda identity: not valid(identity)
        self._revoked = revoked
        # Identities by certificate, of nodes that have advertised topics and may be gone.
        self._advertisers: OrderedDict[bytes, Identity] = OrderedDict()
        # A greater version means that older verdicts may be wrong.
        self.version = 0
        # Batches, interests and entries of nodes without the permission.
        self.refused = 0
        # Certificates for the id of another node, with another key.
        self.doubled = 0
        # The key of each node that a certificate was seen of, also of one that has expired.
        self._keys: OrderedDict[Peer, bytes] = OrderedDict({me.peer: me.key})
        self._proved: OrderedDict[Peer, Identity] = OrderedDict({me.peer: me})
        self._verdicts: dict[tuple[Peer, str, bool], bool] = {}

    def learn(self, peer: Peer, certificate: bytes) -> bool:
        """Whether this is the peer's certificate.

        The answer depends only on the bytes, so all nodes agree on it and on their views. The
        certificate that counts depends on its order and on revocations. A certificate that is over
        is never remembered, whatever peer repeats it. One that was remembered and is over now gives
        way to any that counts.
        """
        known = self._proved.get(peer)
        if known is not None and known.certificate == certificate:
            return True
        identity = self._prove(certificate) if 0 < len(certificate) <= CERTIFICATE_MAX else None
        if identity is None or identity.peer != peer or not self._learn_key(identity):
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

    def _learn_key(self, identity: Identity) -> bool:
        """Whether the id belongs to this key. An id is a short hash, so two keys may share one."""
        peer = identity.peer
        known = self._keys.setdefault(peer, identity.key)
        if known != identity.key:
            self.doubled += 1
            return False
        if len(self._keys) > PROVED_MAX:
            oldest = next(iter(self._keys))
            if oldest == self.me.peer:
                self._keys.move_to_end(oldest)
                oldest = next(iter(self._keys))
            del self._keys[oldest]
        return True

    def key(self, peer: Peer) -> bytes | None:
        """The public key of a node, or None if no certificate of it was seen.

        A node signs with its key whether its certificate counts now or not.
        """
        return self._keys.get(peer)

    def renew(self, me: Identity) -> bool:
        """Takes another certificate of this node, and says whether it differs."""
        if me.certificate == self.me.certificate:
            return False
        self.me = self._proved[me.peer] = me
        self.changed()
        return True

    def changed(self) -> None:
        """Forgets the verdicts, because time has passed or a certificate was revoked."""
        self._verdicts.clear()
        self.version += 1

    def identity(self, peer: Peer) -> Identity | None:
        """The proved identity of a peer.

        None means that there is none, or that it can no longer count.
        """
        identity = self._proved.get(peer)
        return identity if identity is not None and not self._over(identity) else None

    def may_publish(self, peer: Peer, topic: str) -> bool:
        return self._may(peer, topic, True)

    def may_advertise(self, origin: Peer, certificate: bytes, topic: str) -> bool:
        """Whether the origin may publish to the topic.

        It may by the certificate that counts, or by this one. This one may have expired since,
        because topics outlive their advertisers. It must not have been revoked.
        """
        if self.may_publish(origin, topic):
            return True
        identity = self._advertisers.get(certificate)
        if identity is None:
            if not 0 < len(certificate) <= CERTIFICATE_MAX:
                return False
            identity = self._prove(certificate)
            if identity is None or identity.peer != origin or not self._learn_key(identity):
                return False
            self._advertisers[certificate] = identity
            if len(self._advertisers) > ADVERTISERS_MAX:
                self._advertisers.popitem(last=False)
        if identity.peer != origin or self._revoked(identity):
            return False
        return allows(identity.publish, topic)

    def certificate(self, peer: Peer) -> bytes:
        """The certificate of a node that counts now, or nothing."""
        identity = self.identity(peer)
        return identity.certificate if identity is not None else b""

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
        """Why a message must not be taken.

        It is a reason, or "" to drop the message without blaming its sender, or None if the message
        may be taken. ``name`` finds the name of a topic by its hash.
        """
        if isinstance(message, Batch | TreeCarry | skiplist.Carry):
            batch = message if isinstance(message, Batch) else message.batch
            return self._carried(sender, Peer(batch.publisher), batch.topic)
        if isinstance(message, skiplist.Ask):
            topic = name(message.topic)
            # A node that may subscribe, or publish, may also ask for the subscribers.
            if topic is None or self.may_subscribe(sender, topic):
                return None
            return self._carried(sender, sender, topic)
        if isinstance(message, Past):
            return self._carried(sender, sender, message.topic)
        if isinstance(message, AskPast) and not self.may_subscribe(sender, message.topic):
            self.refused += 1
            return f"asks for the past of {message.topic!r}, to which it may not subscribe"
        if isinstance(message, _OF_ENTRIES):
            owner = Peer(message.at[1]) if isinstance(message, skiplist.Join) else sender
            topic = name(message.topic)
            if topic is not None and not self.may_subscribe(owner, topic):
                self.refused += 1
                # A neighbour that passes on another node's entry is not to blame.
                return (
                    f"an entry on {topic!r}, to which it may not subscribe"
                    if owner == sender
                    else ""
                )
        return None

    def _carried(self, sender: Peer, publisher: Peer, topic: str) -> str | None:
        # A relay passes on all batches. The node that hands one over checks it again (``takes``).
        if sender != publisher or self.may_publish(publisher, topic):
            return None
        self.refused += 1
        return f"events on {topic!r}, to which it may not publish"

    def check(self, what: str, topic: str) -> None:
        """Raises a NotPermittedError if this node itself may not do it. Other nodes would refuse
        it.
        """
        me = self.me.peer
        if not (
            self.may_subscribe(me, topic) if what == "subscribe to" else self.may_publish(me, topic)
        ):
            kind = "subscribe" if what == "subscribe to" else "publish"
            raise NotPermittedError(
                f"this node ({self.me.name}) may not {what} {topic!r}: "
                "its certificate does not allow it, or has expired; "
                f"get another one: gossamer keys issue AUTHORITY {self.me.name} --renew "
                f"--{kind} PATTERN"
            )

    def takes(self, publisher: Peer, topic: str) -> bool | None:
        """Whether events of this publisher may be handed over here; None if it is not proved yet.

        A publisher whose certificate was revoked may have been given another one, which is still on
        its way. Its events wait for that one, like those of an unknown publisher.
        """
        if self.may_publish(publisher, topic):
            return True
        if self.identity(publisher) is None:
            return None
        self.refused += 1
        return False


_OF_ENTRIES = (skiplist.Gossip, skiplist.Beat, skiplist.Ack, skiplist.Join, skiplist.Welcome)
"""The messages about entries of a skip list. Only subscribers send them."""
