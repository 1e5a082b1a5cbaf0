"""This node's own record: what it wants, on whose behalf, and which life it is in.

The seed's ``subscribe`` and ``unsubscribe`` (paragraphs 47 and 49) with one leave counter, stamped on each topic at subscribing and
never reset within a life. A topic may be wanted by several sources (the user, services of the overlay, services outside it:
claim 7) and several times by each, over the same route or another; it is left when none wants it any longer.
"""

from __future__ import annotations

from msgspec.structs import replace

from gossamer.machine import Peer
from gossamer.overlay.interest.names import Names
from gossamer.overlay.interest.record import (
    COUNTER_MAX,
    EXTRA_MAX,
    INCARNATION_MAX,
    LEFT,
    ROUTES,
    ROUTES_ALL,
    TOPICS_MAX,
    VERSION_MAX,
    Record,
    apply,
    make_stamp,
    read_stamp,
)

_Who = tuple[str, str, int]  # source, the topic's name, routes


class InterestError(ValueError):
    """More than a node may want or say."""


class Own:
    def __init__(self, me: Peer, incarnation: int, nonce: int, address: str, names: Names) -> None:
        self.record = Record(me, incarnation << 8 | nonce, 1, address)
        self.leaves = 0  # the leave counter
        self._nonce, self._names = nonce, names
        self._sources: dict[bytes, dict[_Who, int]] = {}  # who wants a topic, and how often

    def join(self, topic: str, routes: int, source: str) -> bytes:
        """Want a topic; returns the change, empty if others want it already, by the same routes."""
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
        """Want it no longer; returns the change, empty if others still want it."""
        name = self._names.hash(topic)
        sources = self._sources.get(name, {})
        who = (source, topic, routes)
        if who not in sources:
            return b""
        sources[who] -= 1
        if sources[who]:
            return b""
        return self._drop(name, [who])

    def drop_source(self, source: str) -> bytes:
        """A source is gone: what only it wanted is left."""
        ends = {
            name: [who for who in sources if who[0] == source]
            for name, sources in self._sources.items()
        }
        return b"".join([self._drop(name, whose) for name, whose in ends.items() if whose])

    def _drop(self, name: bytes, whose: list[_Who]) -> bytes:
        sources = self._sources[name]
        for who in whose:
            del sources[who]
        if sources:
            return self._restamp(name)
        del self._sources[name]
        self.leaves += 1
        return name + LEFT

    def _restamp(self, name: bytes) -> bytes:
        """The topic's stamp with the routes that it is wanted by; empty if it has that already. Another route is no leave."""
        routes = 0
        for _, _, some in self._sources[name]:
            routes |= some
        stamp = self.record.stamp(name)
        after = make_stamp(self.leaves if stamp is None else read_stamp(stamp)[0], routes)
        return b"" if after == stamp else name + after

    @property
    def is_worn(self) -> bool:
        """Version or counter are at their end: the next change needs a new life."""
        return self.record.version >= VERSION_MAX or self.leaves >= COUNTER_MAX

    def change(self, changes: bytes) -> tuple[Record, int]:
        """The record after changes, possibly none; and the version it was based on."""
        base = self.record.version
        self.record = apply(self.record, base + 1, changes)
        return self.record, base

    def move(self, address: str) -> Record:
        self.record = replace(self.record, version=self.record.version + 1, address=address)
        return self.record

    def add(self, extra: bytes) -> Record:
        """Say something else in ``extra``."""
        if len(extra) > EXTRA_MAX:
            raise InterestError(
                f"{len(extra)} bytes for all other nodes to keep; at most {EXTRA_MAX} are allowed"
            )
        self.record = replace(self.record, version=self.record.version + 1, extra=extra)
        return self.record

    def certify(self, certificate: bytes) -> Record:
        """Show another certificate."""
        self.record = replace(self.record, version=self.record.version + 1, certificate=certificate)
        return self.record

    def live_again(self, incarnation: int) -> Record:
        """The same interest in a new life; absurd incarnations are as good as the greatest."""
        old = self.record
        self.leaves = 0
        stamps = b"".join([make_stamp(0, stamp & ROUTES_ALL) for stamp in old.stamps[3::4]])
        life = min(incarnation, INCARNATION_MAX) << 8 | self._nonce
        self.record = replace(old, life=life, version=1, stamps=stamps)
        return self.record
