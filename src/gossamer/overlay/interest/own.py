"""This node's own record: its topics, the sources that want them, and its life.

These are the seed's ``subscribe`` and ``unsubscribe`` (paragraphs 47 and 49). They use one leave
counter, which is stamped on each topic at subscribing and never reset within a life. A topic may be
wanted by several sources (the user, services of the overlay, services outside it: claim 7), and
several times by each, over the same route or another. It is left when no source wants it any
longer.

Each version of the record is signed here, because other nodes believe nothing else of this node.
"""

from __future__ import annotations

from msgspec.structs import replace

from gossamer.machine import Peer
from gossamer.overlay.interest.names import Names
from gossamer.overlay.interest.record import (
    COUNTER_MAX,
    EXTRA_MAX,
    LEFT,
    ROUTES,
    ROUTES_ALL,
    TOPICS_MAX,
    VERSION_MAX,
    Known,
    Record,
    apply,
    make_stamp,
    read_stamp,
)
from gossamer.overlay.proof import RECORD, UNSIGNED, Proof

# A source, the topic's name, and the routes.
_Wish = tuple[str, str, int]


class InterestError(ValueError):
    """A node wants or says more than it may."""


class Own:
    def __init__(
        self,
        me: Peer,
        incarnation: int,
        nonce: int,
        address: str,
        names: Names,
        proof: Proof = UNSIGNED,
    ) -> None:
        self._proof = proof
        self.record = self._signed(Record(me, incarnation << 8 | nonce, 1, address))
        # The leave counter.
        self.leaves = 0
        self._names = names
        # For each topic: the wishes for it, and how often each was made.
        self._sources: dict[bytes, dict[_Wish, int]] = {}

    def join(self, topic: str, routes: int, source: str) -> bytes:
        """Wants a topic.

        Returns the change, which is empty if others want it already by the same routes.
        """
        if not 0 <= routes <= ROUTES_ALL:
            raise InterestError(
                f"routes {routes} are no sum of {', '.join(ROUTES)} (0 to {ROUTES_ALL})"
            )
        name = self._names.learn(topic)
        sources = self._sources.get(name)
        if sources is None:
            if len(self._sources) >= TOPICS_MAX:
                raise InterestError(
                    f"this node wants {TOPICS_MAX} topics already, the most allowed"
                )
            sources = self._sources[name] = {}
        sources[source, topic, routes] = sources.get((source, topic, routes), 0) + 1
        return self._restamp(name)

    def part(self, topic: str, routes: int, source: str) -> bytes:
        """Wants a topic no longer. Returns the change, which is empty if others still want it."""
        name = self._names.hash(topic)
        sources = self._sources.get(name, {})
        wish = (source, topic, routes)
        if wish not in sources:
            return b""
        sources[wish] -= 1
        if sources[wish]:
            return b""
        return self._drop(name, [wish])

    def drop_source(self, source: str) -> bytes:
        """A source is gone. Topics that only this source wanted are left."""
        ends = {
            name: [wish for wish in wishes if wish[0] == source]
            for name, wishes in self._sources.items()
        }
        return b"".join([self._drop(name, wishes) for name, wishes in ends.items() if wishes])

    def _drop(self, name: bytes, wishes: list[_Wish]) -> bytes:
        sources = self._sources[name]
        for wish in wishes:
            del sources[wish]
        if sources:
            return self._restamp(name)
        del self._sources[name]
        self.leaves += 1
        return name + LEFT

    def _restamp(self, name: bytes) -> bytes:
        """The change of the topic's stamp to its routes, empty if there is none.

        Another route is no leave.
        """
        routes = 0
        for _, _, some in self._sources[name]:
            routes |= some
        stamp = self.record.stamp(name)
        after = make_stamp(self.leaves if stamp is None else read_stamp(stamp)[0], routes)
        return b"" if after == stamp else name + after

    @property
    def is_worn(self) -> bool:
        """Version or counter are at their end, so the next change needs a new life."""
        return self.record.version >= VERSION_MAX or self.leaves >= COUNTER_MAX

    def change(self, changes: bytes) -> tuple[Record, int]:
        """The record after the changes, and the version that it was based on.

        The changes may be empty.
        """
        base = self.record.version
        self.record = self._signed(apply(self.record, base + 1, changes))
        return self.record, base

    def _signed(self, record: Record) -> Record:
        if not self._proof.is_on:
            return record
        return replace(record, signature=self._proof.sign(RECORD, Known(record).said))

    def _renew(self, **changed: object) -> Record:
        self.record = self._signed(replace(self.record, version=self.record.version + 1, **changed))
        return self.record

    def move(self, address: str) -> Record:
        return self._renew(address=address)

    def add(self, extra: bytes) -> Record:
        """Sets ``extra``."""
        if len(extra) > EXTRA_MAX:
            raise InterestError(
                f"{len(extra)} bytes for all other nodes to keep; at most {EXTRA_MAX} are allowed"
            )
        return self._renew(extra=extra)

    def certify(self, certificate: bytes) -> Record:
        """Sets the certificate."""
        return self._renew(certificate=certificate)

    def live_again(self, life: int) -> Record:
        """The same interest in a new life."""
        old = self.record
        self.leaves = 0
        stamps = b"".join([make_stamp(0, stamp & ROUTES_ALL) for stamp in old.stamps[3::4]])
        self.record = self._signed(replace(old, life=life, version=1, stamps=stamps))
        return self.record
