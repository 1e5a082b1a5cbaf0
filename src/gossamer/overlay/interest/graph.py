"""Who is whose neighbour: a K-connected graph that is a pure function of the member set.

Every node holds the member list and asks for its own neighbours only. Nodes with the same members agree, because nothing else
goes in: no order of arrival, no randomness, no memory.

Up to K + 1 members, everybody is everybody's neighbour. Up to ``SMALL`` * K members, the members stand on ring 0, in the order
of their identifiers, and form the Harary graph: links to the K // 2 nearest on either side, for odd K also to the antipode. It
is K-connected by a theorem, has the fewest links that K-connected graphs have, and is wide (N / K hops), so it is for few.

Beyond, ring 0 keeps its N links and K - 2 links a node come from further rings, in which members stand in hashed orders. Laying
independent rings over each other is not enough: they share links. Replacing shared links is not enough: two or three nodes that
stand together may have all their other neighbours in common. So a node *picks*: in each further ring it takes the first node
after it, then the first node before it, that is
    far: at least ``span`` places from itself on ring 0, and
    spaced: neither one of its earlier picks nor next to one on ring 0.
Two nodes are linked if they are next to each other on ring 0 or one has picked the other. Most picks are mutual, which is why
the degree stays near K. For odd K the last ring is a half one: a node picks one of its two sides there, the one whose link has
the larger hash; both ends see the same hash, so the ring has 2 N / 3 links.

Why that is K-connected: say fewer than K nodes S cut a group A off from the rest, and look at the stretches of ring 0 that lie
in A and S together. Suppose that none of them holds more of A than of S; let one hold s of S, so at most 2 s nodes. As picks are
spaced, a node of A has at most s picks in a stretch that is not its own. Its own stretch begins and ends with nodes of S, and
as picks are also far, it has at most s - 2 there. All its K - 2 picks lie in A and S, so S has at least K nodes: a contradiction.
So whatever fewer than K nodes cut off has, on ring 0, a stretch with three nodes of A or more and more of A than of S, and so has
the rest; all the picks of all those nodes must fall into one small group. That is not impossible, only unlikely: by a count of
coincidences, not a proof, about N^(8 - 3 K). So for K = 3 and 4 the span is wider, and the group must be larger (for K = 3, of
14, hence none up to 29 members). For each K from 3 to 8 it was not seen in over a million random member sets.

Bounds: the degree is at least K, on average K + K^2 / N or so, and a third of a link more for odd K. The diameter, as measured,
is that of a random regular graph, within ceil(log(N) / log(K - 1)) + 3. K = 2 is a ring, and K = 1 is the same ring: it costs
one link more than a path and halves the way. A join or a leave changes about 3 K / 2 links: K of its own, and K / 2 in the gaps
it opens or closes. Only between SMALL * K members and one more, all links but those of ring 0 change; these keep the fabric in
one piece.

Identifiers need not be random: their order on ring 0 may be any, and further rings are ordered by a strong hash. The hash is
invertible, so rings are sorted lists of plain integers. Hashes are remembered, and so are the integers: a simulation holds
thousands of rings of the same members.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from functools import cache, lru_cache

from gossamer.machine import Peer

SMALL = 5  # up to 5 K members: the Harary graph, whose 5 hops are still within the bound on the diameter
SPAN = 3  # nearest a pick may be, in places on ring 0
SPAN_LOW = {
    3: 8,
    4: 6,
}  # the same where a node has few picks: so that a larger group must conspire. 8 just fits into 16
DOUBT = 40  # a pick is sought so far that the chance to find none is below 2^-DOUBT
BULK = 64  # that many additions at once are sorted in rather than inserted
REMEMBERED = 1 << 17  # hashes; more members than that work, slowly

_MASK = (1 << 64) - 1
_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # splitmix64
_FIRST_INVERSE, _SECOND_INVERSE = pow(_FIRST, -1, 1 << 64), pow(_SECOND, -1, 1 << 64)


class Graph:
    """Members and the links between them that the member set implies."""

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
        members[at:at] = places[
            :1
        ]  # the remembered integer, not yet another one; and quicker than insert()
        for ring, place in zip(self._further, places[1:], strict=True):
            insort(ring, place)

    def add_all(self, peers: Iterable[Peer]) -> None:
        """The same as adding one after the other; quicker if they are many."""
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
        """Who is linked to this member, in ascending order. Who is not a member is told what it would be, were it one."""
        if peer in self:
            return self._peers(self._linked(bisect_left(self._members, peer)))
        self.add(peer)
        try:
            return self._peers(self._linked(bisect_left(self._members, peer)))
        finally:
            self.remove(peer)

    def after(self, peer: Peer, count: int) -> tuple[Peer, ...]:
        """The next so many members on ring 0, or all."""
        members = self._members
        at = bisect_left(members, peer)
        return tuple(sorted(Peer(one) for one in (members[at:] + members[:at])[:count]))

    def before(self, peer: Peer, count: int) -> Peer | None:
        """The member so many places before this one; None if there are no more than so many."""
        members = self._members
        return Peer(members[bisect_left(members, peer) - count]) if len(members) > count else None

    def edges(self) -> dict[Peer, tuple[Peer, ...]]:
        """All members and their neighbours: what ``neighbours`` says of each, with every pick made once."""
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

    # Below, members are known by their place on ring 0.

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
        for number in range(
            1, len(self._rings)
        ):  # who has picked me there is within reach of me there
            ring = self._rings[number]
            start = bisect_left(ring, places[number])
            for side in (1, -1):  # who stands before me has picked forwards
                count = min(2 * number - (side > 0), wanted)
                for hop in range(1, reach + 1):
                    other = bisect_left(
                        self._members, _peer(number, ring[(start - side * hop) % size])
                    )
                    if other not in linked and self._picks(other, count, reach)[-1] == me:
                        linked[other] = None
        return linked

    def _few(self, me: int) -> dict[int, None]:
        """The Harary graph; for K + 1 members or fewer it is complete."""
        size = len(self._members)
        linked = {
            (me + hop * side) % size: None for hop in range(1, self._k // 2 + 1) for side in (-1, 1)
        }
        if self._k % 2:
            half = size // 2
            if size % 2 == 0 or me <= half:
                linked[(me + half) % size] = None
            if (
                size % 2 and me >= half
            ):  # an odd number cannot pair up: the one in the middle has two
                linked[me - half] = None
        linked.pop(me, None)
        return linked

    def _picks(self, me: int, count: int, reach: int) -> list[int]:
        """The first so many of a member's K - 2 picks: forwards and backwards in each further ring; in a half ring, either."""
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
            if index == self._k - 3:  # the last, and no other side follows: a half ring
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
        """How many places a pick is sought: past all that may be unfit, or fewer if that many in a row will not happen."""
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
    """A function that tells a peer's place in ring 0, which is the peer itself, and in so many further rings."""

    @lru_cache(REMEMBERED)
    def places(peer: Peer) -> tuple[int, ...]:
        return (peer, *[_place(ring, peer) for ring in range(1, further + 1)])

    return places


def _place(ring: int, peer: int) -> int:
    # Twice: after one mix alone, a shift of the identifiers could turn one ring into another.
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
