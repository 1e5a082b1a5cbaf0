"""The neighbours of each member: a K-connected graph that is a pure function of the member set.

Every node holds the member list and asks for its own neighbours only. Nodes with the same members
agree, because nothing else goes in: no order of arrival, no randomness, no memory
(docs/decisions/0009-overlay-from-members.md).

Up to K + 1 members, all are neighbours of each other. Up to ``SMALL`` * K members, the members
stand on ring 0 in the order of their identifiers, and form the Harary graph. It links each member
to the K
2 nearest on either side, and for odd K also to the antipode. It is K-connected by a theorem and has
the fewest links that K-connected graphs have. But it is wide (N / K hops), so it is for few
members.

Beyond that, ring 0 keeps its N links, and K - 2 links for each node come from further rings, in
which members stand in hashed orders. Laying independent rings over each other is not enough,
because they share links. Replacing shared links is not enough either, because two or three nodes
that stand together may have all their other neighbours in common. So a node *picks*. In each
further ring it takes the first node after it, then the first node before it, that is

    far: at least ``span`` places from itself on ring 0, and
    spaced: neither one of its earlier picks nor next to one on ring 0.

Two nodes are linked if they are next to each other on ring 0 or one has picked the other. Most
picks are mutual, and so the degree stays near K. For odd K the last ring is a half one: a node
picks one of its two sides there, the one whose link has the larger hash. Both ends see the same
hash, so the ring has 2 N / 3 links.

Why is that K-connected? Say fewer than K nodes S cut a group A off from the rest. Look at the
stretches of ring 0 that lie in A and S together. Suppose that none of them holds more nodes of A
than of S. Let one hold s nodes of S, and so at most 2 s nodes. As picks are spaced, a node of A has
at most s picks in a stretch that is not its own. Its own stretch begins and ends with nodes of S,
and as picks are also far, it has at most s - 2 picks there. All its K - 2 picks lie in A and S, so
S has at least K nodes. This is a contradiction. So every group that fewer than K nodes cut off has,
on ring 0, a stretch with three nodes of A or more and with more nodes of A than of S. The rest has
such a stretch too. All the picks of all those nodes must fall into one small group. That is not
impossible, only unlikely: about N^(8 - 3 K), by a count of coincidences and not by a proof. So for
K = 3 and 4 the span is wider, and the group must be larger (for K = 3 it has 14 nodes, so there is
none up to 29 members). For each K from 3 to 8 it was not seen in over a million random member sets.

Bounds: the degree is at least K, and on average about K + K^2 / N, with a third of a link more for
odd K. The measured diameter is that of a random regular graph, within ceil(log(N) / log(K - 1)) +
3. K = 2 is a ring. K = 1 is the same ring: it costs one link more than a path and halves the way. A
join or a leave changes about 3 K / 2 links: K of its own, and K / 2 in the gaps that it opens or
closes. Only between SMALL * K members and one more, all links but those of ring 0 change. These
keep the fabric in one piece.

Identifiers need not be random: their order on ring 0 may be any, and further rings are ordered by a
strong hash. The hash is invertible, so rings are sorted lists of plain integers. Hashes are
remembered, and so are the integers, because a simulation holds thousands of rings of the same
members.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from functools import cache, lru_cache

from gossamer.machine import Peer

# Up to 5 K members there is the Harary graph, whose 5 hops are still within the bound on the
# diameter.
SMALL = 5
# The least distance of a pick, in places on ring 0.
SPAN = 3
# The same where a node has few picks, so that a larger group would be needed. 8 just fits into 16.
SPAN_LOW = {3: 8, 4: 6}
# The search for a pick is so wide that the chance to find none is below 2^-DOUBT.
DOUBT = 40
# From this number on, additions are sorted in rather than inserted.
BULK = 64
# The most hashes that are remembered. More members than that work, slowly.
REMEMBERED = 1 << 17

_MASK = (1 << 64) - 1
# The numbers of splitmix64.
_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_FIRST_INVERSE, _SECOND_INVERSE = pow(_FIRST, -1, 1 << 64), pow(_SECOND, -1, 1 << 64)


class Graph:
    """Members, and the links between them that the member set implies."""

    __slots__ = ("_further", "_k", "_members", "_places", "_rings", "_span")

    def __init__(self, k: int = 6) -> None:
        if k < 1:
            raise ValueError(f"connectivity {k}: must be at least 1")
        self._k = max(k, 2)
        self._span = SPAN_LOW.get(k, SPAN)
        further = (self._k - 1) // 2
        self._rings: tuple[list[int], ...] = tuple([] for _ in range(1 + further))
        self._members, *self._further = self._rings
        self._places = _placer(further)

    def add(self, peer: Peer) -> None:
        members = self._members
        at = bisect_left(members, peer)
        if at < len(members) and members[at] == peer:
            return
        places = self._places(peer)
        # This takes the remembered integer, and not another equal one. It is quicker than insert().
        members[at:at] = places[:1]
        for ring, place in zip(self._further, places[1:], strict=True):
            insort(ring, place)

    def add_all(self, peers: Iterable[Peer]) -> None:
        """Adds peers as if one after the other. For many it is quicker."""
        fresh = [peer for peer in dict.fromkeys(peers) if peer not in self]
        if len(fresh) < BULK:
            for peer in fresh:
                self.add(peer)
            return
        for ring, places in zip(
            self._rings, zip(*map(self._places, fresh), strict=True), strict=True
        ):
            ring.extend(places)
            ring.sort()

    def remove(self, peer: Peer) -> None:
        if peer in self:
            for ring, place in zip(self._rings, self._places(peer), strict=True):
                del ring[bisect_left(ring, place)]

    def __contains__(self, peer: Peer) -> bool:
        at = bisect_left(self._members, peer)
        return at < len(self._members) and self._members[at] == peer

    def __len__(self) -> int:
        return len(self._members)

    def neighbours(self, peer: Peer) -> tuple[Peer, ...]:
        """The peers that are linked to this member, in ascending order.

        For a peer that is not a member it gives the neighbours that it would have as one.
        """
        if peer in self:
            return self._peers(self._linked(bisect_left(self._members, peer)))
        self.add(peer)
        try:
            return self._peers(self._linked(bisect_left(self._members, peer)))
        finally:
            self.remove(peer)

    def after(self, peer: Peer, count: int) -> tuple[Peer, ...]:
        """The next ``count`` members on ring 0, or all."""
        members = self._members
        at = bisect_left(members, peer)
        return tuple(sorted(Peer(one) for one in (members[at:] + members[:at])[:count]))

    def before(self, peer: Peer, count: int) -> Peer | None:
        """The member ``count`` places before this one; None if there are not more than
        ``count``.
        """
        members = self._members
        return Peer(members[bisect_left(members, peer) - count]) if len(members) > count else None

    def edges(self) -> dict[Peer, tuple[Peer, ...]]:
        """All members and their neighbours, as ``neighbours`` gives them, with every pick made
        once.
        """
        size = len(self._members)
        if size <= SMALL * self._k:
            linked = [self._linked(at) for at in range(size)]
        else:
            linked = [{(at - 1) % size: None, (at + 1) % size: None} for at in range(size)]
            reach = self._reach()
            for at in range(size):
                for pick in self._picks(at, self._k - 2, reach):
                    linked[at][pick] = linked[pick][at] = None
        return {Peer(peer): self._peers(linked[at]) for at, peer in enumerate(self._members)}

    # From here on, members are known by their place on ring 0.

    def _peers(self, linked: dict[int, None]) -> tuple[Peer, ...]:
        return tuple([Peer(self._members[at]) for at in sorted(linked)])

    def _linked(self, me: int) -> dict[int, None]:
        size = len(self._members)
        if size <= SMALL * self._k:
            return self._few(me)
        wanted, reach = self._k - 2, self._reach()
        linked = {(me - 1) % size: None, (me + 1) % size: None}
        linked.update(dict.fromkeys(self._picks(me, wanted, reach)))
        places = self._places(Peer(self._members[me]))
        # A member that has picked me there is within reach of me there.
        for number in range(1, len(self._rings)):
            ring = self._rings[number]
            start = bisect_left(ring, places[number])
            # A member that stands before me has picked forwards.
            for side in (1, -1):
                count = min(2 * number - (side > 0), wanted)
                for hop in range(1, reach + 1):
                    other = bisect_left(
                        self._members, _peer(number, ring[(start - side * hop) % size])
                    )
                    if other not in linked and self._picks(other, count, reach)[-1] == me:
                        linked[other] = None
        return linked

    def _few(self, me: int) -> dict[int, None]:
        """The Harary graph. For K + 1 members or fewer it is complete."""
        size = len(self._members)
        linked = {
            (me + hop * side) % size: None for hop in range(1, self._k // 2 + 1) for side in (-1, 1)
        }
        if self._k % 2:
            half = size // 2
            if size % 2 == 0 or me <= half:
                linked[(me + half) % size] = None
            # An odd number cannot pair up. The one in the middle has two.
            if size % 2 and me >= half:
                linked[me - half] = None
        linked.pop(me, None)
        return linked

    def _picks(self, me: int, count: int, reach: int) -> list[int]:
        """The first ``count`` of a member's K - 2 picks.

        They go forwards and backwards in each further ring, and in a half ring in one direction.
        """
        picks: list[int] = []
        places = self._places(Peer(self._members[me]))
        start = 0
        for index in range(count):
            number = 1 + index // 2
            if index % 2:
                picks.append(self._pick(me, number, start, -1, picks, reach))
                continue
            start = bisect_left(self._rings[number], places[number])
            pick = self._pick(me, number, start, 1, picks, reach)
            # The last pick has no other side after it, so this is a half ring.
            if index == self._k - 3:
                back = self._pick(me, number, start, -1, picks, reach)
                forth_place, back_place = (
                    self._places(Peer(self._members[at]))[number] for at in (pick, back)
                )
                if _mix(places[number] ^ back_place) > _mix(places[number] ^ forth_place):
                    pick = back
            picks.append(pick)
        return picks

    def _pick(
        self, me: int, number: int, start: int, side: int, picks: list[int], reach: int
    ) -> int:
        members, ring, size, span = (
            self._members,
            self._rings[number],
            len(self._members),
            self._span,
        )
        other = me
        for hop in range(side, side * (reach + 1), side):
            other = bisect_left(members, _peer(number, ring[(start + hop) % size]))
            if (other - me + span - 1) % size < 2 * span - 1:
                continue
            for pick in picks:
                if (other - pick + 1) % size < 3:
                    break
            else:
                return other
        return other

    def _reach(self) -> int:
        """How many places are searched for a pick.

        The search goes past all places that may be unfit. It is shorter if that many unfit places
        in a row will not happen.
        """
        size = len(self._members)
        unfit = 2 * self._span - 2 + 3 * (self._k - 3)
        reach, chance, against = 1, unfit << DOUBT, size
        while reach <= unfit and chance > against:
            reach, chance, against = reach + 1, chance * unfit, against * size
        return reach


def edges(members: Iterable[Peer], k: int = 6) -> dict[Peer, tuple[Peer, ...]]:
    """The whole graph, for checkers and pictures."""
    graph = Graph(k)
    graph.add_all(members)
    return graph.edges()


@cache
def _placer(further: int) -> Callable[[Peer], tuple[int, ...]]:
    """A function that gives a peer's place in ring 0, which is the peer itself, and in the
    further rings.
    """

    @lru_cache(REMEMBERED)
    def places(peer: Peer) -> tuple[int, ...]:
        return (peer, *[_place(ring, peer) for ring in range(1, further + 1)])

    return places


def _place(ring: int, peer: int) -> int:
    # It mixes twice: after one mix alone, a shift of the identifiers could turn one ring into
    # another.
    return _mix(_mix(peer) ^ _salt(ring))


@lru_cache(REMEMBERED)
def _peer(ring: int, place: int) -> int:
    return _unmix(_unmix(place) ^ _salt(ring))


@cache
def _salt(ring: int) -> int:
    return _mix(ring * _GOLDEN & _MASK)


def _mix(value: int) -> int:
    """The finaliser of splitmix64: 64 bits to 64 bits, one to one."""
    value = (value ^ value >> 30) * _FIRST & _MASK
    value = (value ^ value >> 27) * _SECOND & _MASK
    return value ^ value >> 31


def _unmix(value: int) -> int:
    value = (value ^ value >> 31 ^ value >> 62) * _SECOND_INVERSE & _MASK
    value = (value ^ value >> 27 ^ value >> 54) * _FIRST_INVERSE & _MASK
    return value ^ value >> 30 ^ value >> 60
