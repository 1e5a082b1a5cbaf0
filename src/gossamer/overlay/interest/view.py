"""The view: the members and their topics, which every node should hold alike.

Merging takes the greatest record of each peer, in the order of records. A death is remembered for a
while (``tombs``), so that late news of that life does not bring the peer back. A greater life does.
The digests of the whole view, and of each of its 256 parts by peer, are sums (exclusive or) of the
records' digests. They are updated as records change. Equal sums mean equal views.

An index finds the members that want a topic. It has only the topics that this node has asked about,
because a node publishes to a few topics, and the view may hold a million pairs.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from itertools import islice

from gossamer.machine import Micros, Peer
from gossamer.overlay.interest.graph import Graph
from gossamer.overlay.interest.messages import BUCKETS_MAX, Gone
from gossamer.overlay.interest.record import TOPICS_MAX, Known, Pool, Record, ViewChange, learn
from gossamer.overlay.proof import FAREWELL, RECORD, UNSIGNED, Proof

TOMBS_MAX = 65_536
# The most topics in the index.
WATCHED_MAX = 65_536
_MASK = 2**64 - 1


class Tomb:
    __slots__ = ("address", "at", "gone")

    def __init__(self, gone: Gone, at: Micros, address: str) -> None:
        self.gone, self.at, self.address = gone, at, address


class View:
    def __init__(
        self,
        k: int,
        *,
        members_max: int,
        pairs_max: int,
        pool: Pool | None = None,
        proof: Proof = UNSIGNED,
    ) -> None:
        self.members: dict[Peer, Known] = {}
        self._graph = Graph(k)
        self._k = k
        # Members that cannot be dialled, sorted. They are not in the graph.
        self._guests: list[Peer] = []
        # Members that the graph has not been told of. Telling it many at once costs less.
        self._newcomers: list[Peer] = []
        # The oldest come first.
        self.tombs: dict[Peer, Tomb] = {}
        self.digest = 0
        # The sum of the members' spreads. A barrier must add up to it.
        self.total = 0
        self.pairs = 0
        # Counts the changes of this view.
        self.version = 0
        # Counts the changes of its member set.
        self.membership = 0
        self.changed_at = Micros(0)
        self._members_max, self._pairs_max = members_max, pairs_max
        self._learn = pool.get if pool is not None else learn
        # With keys: whether a certificate is the peer's.
        self.proves: Callable[[Peer, bytes], bool] | None = None
        self._proof = proof
        self._buckets = [0] * BUCKETS_MAX
        self._watched: dict[bytes, dict[Peer, bytes]] = {}

    @property
    def graph(self) -> Graph:
        """The overlay that follows from the members that can be dialled."""
        if self._newcomers:
            self._graph.add_all(self._newcomers)
            self._newcomers.clear()
        return self._graph

    def neighbours(self, peer: Peer) -> tuple[Peer, ...]:
        """The peers that are linked to this member.

        A member that cannot be dialled is the guest of the next K members, going up, that can be.
        The graph has K disjoint ways, and K ways lead to each guest. So fewer than K failures cut
        no member off.
        """
        graph, guests = self.graph, self._guests
        if not guests:
            return graph.neighbours(peer)
        at = bisect_left(guests, peer)
        if at < len(guests) and guests[at] == peer:
            return graph.after(peer, self._k)
        first = graph.before(peer, self._k)
        if first is None:
            near = guests
        else:
            begin = bisect_left(guests, first)
            near = guests[begin:at] if first < peer else guests[begin:] + guests[:at]
        return tuple(sorted({*graph.neighbours(peer), *near}))

    def _place(self, peer: Peer, address: str) -> None:
        """Puts a member into its place in the overlay."""
        if address:
            self._newcomers.append(peer)
        else:
            insort(self._guests, peer)
        self.membership += 1

    def _displace(self, peer: Peer, address: str) -> None:
        if address:
            self.graph.remove(peer)
        else:
            del self._guests[bisect_left(self._guests, peer)]
        self.membership += 1

    def refuses(self, record: Record) -> str:
        """Why there is no room for this record; "" if there is."""
        known = self.members.get(Peer(record.peer))
        if known is None and len(self.members) >= self._members_max:
            return f"a member more than the {self._members_max} allowed (members_max)"
        if self.pairs + record.count - (known.record.count if known else 0) > self._pairs_max:
            return f"more (node, topic) pairs than the {self._pairs_max} allowed (pairs_max)"
        return ""

    def learn(self, record: Record, *, flipped: bool = False) -> Known | None:
        """The record with its digest; None if it is malformed.

        With ``flipped`` it is a record from here with one topic changed, so its order need not be
        checked again.
        """
        if flipped and self._learn is learn:
            return Known(record) if record.count <= TOPICS_MAX else None
        return self._learn(record)

    def is_signed(self, known: Known) -> bool:
        """Whether the record's certificate is its peer's, and the peer has signed the record."""
        record = known.record
        peer = Peer(record.peer)
        if self.proves is not None and not self.proves(peer, record.certificate):
            return False
        return bool(self._proof.proves(peer, RECORD, known.said, record.signature))

    def has_lived(self, gone: Gone) -> bool | None:
        """Whether the peer has had this life, and has said farewell itself if that is claimed.

        None means that its key is not known here.
        """
        kind = FAREWELL if gone.left else RECORD
        return self._proof.proves(Peer(gone.peer), kind, gone.said, gone.signature)

    def put(self, known: Known, now: Micros) -> ViewChange:
        """Takes a record that is greater than the one here."""
        record = known.record
        peer = Peer(record.peer)
        old = self.members.get(peer)
        self.members[peer] = known
        part = known.spread >> 56
        if old is None:
            self._place(peer, record.address)
            self.total = (self.total + known.spread) & _MASK
            self.tombs.pop(peer, None)
            change, reason = known.digest, "joined"
            self.pairs += record.count
        else:
            if bool(old.record.address) != bool(record.address):
                self._displace(peer, old.record.address)
                self._place(peer, record.address)
            change = known.digest ^ old.digest
            reason = "news" if old.record.life == record.life else "new life"
            self.pairs += record.count - old.record.count
        self.digest ^= change
        self._buckets[part] ^= change
        self._touch(now)
        if self._watched:
            self._reindex(peer, old.record if old else None, record)
        return ViewChange(peer, old.record if old else None, record, reason)

    def remove(self, gone: Gone, now: Micros) -> ViewChange | None:
        """This life of the peer is over."""
        peer, life = Peer(gone.peer), gone.life
        old = self.members.get(peer)
        tomb = self.tombs.pop(peer, None)
        address = old.record.address if old else tomb.address if tomb else ""
        if tomb is None or life > tomb.gone.life:
            tomb = Tomb(gone, now, address)
        self.tombs[peer] = tomb
        if len(self.tombs) > TOMBS_MAX:
            del self.tombs[next(iter(self.tombs))]
        if old is None or old.record.life > life:
            return None
        del self.members[peer]
        self._displace(peer, old.record.address)
        self.total = (self.total - old.spread) & _MASK
        self.pairs -= old.record.count
        self.digest ^= old.digest
        self._buckets[old.spread >> 56] ^= old.digest
        self._touch(now)
        if self._watched:
            self._reindex(peer, old.record, None)
        return ViewChange(peer, old.record, None, "left" if gone.left else "failed")

    def is_dead(self, peer: Peer, life: int) -> bool:
        tomb = self.tombs.get(peer)
        return tomb is not None and life <= tomb.gone.life

    def forget(self, before: Micros) -> None:
        """Forgets deaths from before this time."""
        old = []
        for peer, tomb in self.tombs.items():
            if tomb.at >= before:
                break
            old.append(peer)
        for peer in old:
            del self.tombs[peer]

    def _touch(self, now: Micros) -> None:
        self.version += 1
        self.changed_at = now

    def interested(self, topic: bytes) -> dict[Peer, bytes]:
        """The peers that want a topic, and their stamps."""
        found = self._watched.get(topic)
        if found is None:
            found = {}
            for peer, known in self.members.items():
                stamp = known.record.stamp(topic)
                if stamp is not None:
                    found[peer] = stamp
            if len(self._watched) >= WATCHED_MAX:
                del self._watched[next(iter(self._watched))]
            self._watched[topic] = found
        return found

    def topics(self) -> Iterator[bytes]:
        """Every wanted topic, once."""
        seen: dict[bytes, None] = {}
        for known in self.members.values():
            topics = known.record.topics
            for at in range(0, len(topics), 8):
                topic = topics[at : at + 8]
                if topic not in seen:
                    seen[topic] = None
                    yield topic

    def _reindex(self, peer: Peer, old: Record | None, new: Record | None) -> None:
        if len(self._watched) <= 64:
            topics = list(self._watched)
        else:
            # With few changed topics, or many watched ones, only this peer's topics are looked at.
            topics = [
                topic
                for topic in {**(old.pairs() if old else {}), **(new.pairs() if new else {})}
                if topic in self._watched
            ]
        for topic in topics:
            stamp = new.stamp(topic) if new else None
            if stamp is None:
                self._watched[topic].pop(peer, None)
            else:
                self._watched[topic][peer] = stamp

    def parts(self) -> int:
        """The number of parts to cut the view into; a power of two.

        With it the digests of all parts and the entries of one part have a similar size.
        """
        count = 1
        # 8 bytes for a digest, 20 for an entry.
        while count < BUCKETS_MAX and 2 * count * count < 5 * len(self.members):
            count *= 2
        return count

    def bucket_digests(self, parts: int) -> tuple[int, ...]:
        """The digests of the parts, by the top bits of the members' spreads."""
        width = BUCKETS_MAX // parts
        digests = []
        for start in range(0, BUCKETS_MAX, width):
            digest = 0
            for value in islice(self._buckets, start, start + width):
                digest ^= value
            digests.append(digest)
        return tuple(digests)

    def entries(self, parts: int, buckets: bytes) -> dict[Peer, tuple[int, int, int]]:
        """The entries of these parts: peer to (life, version, check)."""
        wanted = bytearray(BUCKETS_MAX)
        for bucket in buckets:
            if bucket < parts:
                wanted[bucket] = 1
        width = BUCKETS_MAX // parts
        return {
            peer: known.order
            for peer, known in self.members.items()
            if wanted[(known.spread >> 56) // width]
        }
