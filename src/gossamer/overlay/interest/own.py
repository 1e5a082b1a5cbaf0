"""This node's own record: what it wants, on whose behalf, and which life it is in.

The seed's ``subscribe`` and ``unsubscribe`` (paragraphs 47 and 49) with one leave counter, stamped on each topic at subscribing and
never reset within a life. A topic may be wanted by several sources (the user, services of the overlay, services outside it:
claim 7) and several times by each; it is left when none wants it any longer.
"""

from __future__ import annotations

from gossamer.machine import Peer
from gossamer.overlay.interest.names import Names
from gossamer.overlay.interest.record import (
    COUNTER_MAX,
    INCARNATION_MAX,
    LEFT,
    ROUTES,
    TOPICS_MAX,
    VERSION_MAX,
    Record,
    apply,
    make_stamp,
)


class InterestError(ValueError):
    """More topics than a node may want."""


class Own:
    def __init__(self, me: Peer, incarnation: int, nonce: int, address: str, names: Names) -> None:
        self.record = Record(me, incarnation << 8 | nonce, 1, address)
        self.leaves = 0  # the leave counter
        self._nonce, self._names = nonce, names
        self._sources: dict[bytes, dict[tuple[str, str], int]] = {}  # who wants a topic (and by which name), and how often

    def join(self, topic: str, route: int, source: str) -> bytes:
        """Want a topic; returns the change, empty if others want it already."""
        if not 0 <= route < len(ROUTES):
            raise InterestError(f"route {route} is none of {', '.join(ROUTES)} (0 to {len(ROUTES) - 1})")
        name = self._names.learn(topic)
        sources = self._sources.get(name)
        if sources is None:
            if len(self._sources) >= TOPICS_MAX:
                raise InterestError(f"this node wants {TOPICS_MAX} topics already, the most allowed")
            sources = self._sources[name] = {}
        sources[source, topic] = sources.get((source, topic), 0) + 1
        stamp = self.record.stamp(name)
        if stamp is not None and stamp[-1] & 3 == route:
            return b""
        counter = self.leaves if stamp is None else int.from_bytes(stamp, "big") >> 2  # another route is no leave
        return name + make_stamp(counter, route)

    def part(self, topic: str, source: str) -> bytes:
        """Want it no longer; returns the change, empty if others still want it."""
        name = self._names.hash(topic)
        sources = self._sources.get(name, {})
        if (source, topic) not in sources:
            return b""
        sources[source, topic] -= 1
        if sources[source, topic]:
            return b""
        return self._drop(name, (source, topic))

    def drop_source(self, source: str) -> bytes:
        """A source is gone: what only it wanted is left."""
        ends = [(name, who) for name, sources in self._sources.items() for who in sources if who[0] == source]
        return b"".join([self._drop(name, who) for name, who in ends])

    def _drop(self, name: bytes, who: tuple[str, str]) -> bytes:
        sources = self._sources[name]
        del sources[who]
        if sources:
            return b""
        del self._sources[name]
        self.leaves += 1
        return name + LEFT

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
        old = self.record
        self.record = Record(old.peer, old.life, old.version + 1, address, old.topics, old.stamps)
        return self.record

    def live_again(self, incarnation: int) -> Record:
        """The same interest in a new life; absurd incarnations are as good as the greatest."""
        old = self.record
        self.leaves = 0
        stamps = b"".join([make_stamp(0, stamp & 3) for stamp in old.stamps[3::4]])
        life = min(incarnation, INCARNATION_MAX) << 8 | self._nonce
        self.record = Record(old.peer, life, 1, old.address, old.topics, stamps)
        return self.record
