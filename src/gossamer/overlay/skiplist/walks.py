"""Events on their way through a list: the skip list as a router of the delivery engine.

A batch is split into groups of events that look in the same intervals, and each group is one batch
of the engine (overlay/delivery). A node that gets a group takes it if one of its entries is in the
intervals, cuts the rest into parts (entry.py), and sends those on. Its report names the
intervals that were reached.

A node takes an event once, whichever of its entries the event comes to first: its owner looks at
all of its filters then. That entry is the group's home at this node. Only the tile of the home
carries the node's counts, so no other entry adds to them.

A walk answers for a *region*, which is some disjoint intervals of positions, in order. Each of them
may name the entry that is to go on with it, and a bound (entry.py). A *tile* is the reached part of
a region.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple, Protocol

from gossamer.filters.packed import is_columns
from gossamer.machine import SECOND, Message, Micros, Peer
from gossamer.overlay.batch import Batch, Group, joined, parted
from gossamer.overlay.delivery.engine import Counts, Engine, Pace
from gossamer.overlay.delivery.region import Aim, Id
from gossamer.overlay.skiplist.entry import Empty, Entry, Forward, Take
from gossamer.overlay.skiplist.host import Host
from gossamer.overlay.skiplist.leases import Leases
from gossamer.overlay.skiplist.marks import Marks
from gossamer.overlay.skiplist.messages import (
    COVERED_MAX,
    HOPS_MAX,
    PARTS_MAX,
    Absent,
    Busy,
    Carry,
    Covered,
    Gap,
    Part,
    Report,
)
from gossamer.overlay.skiplist.position import Interval, Position

# A report has at most this number of intervals beyond those that were asked for. A report with more
# of them is refused, so that a peer cannot break an event into many pieces.
PIECES_MAX = 256
# The intervals of one report have at most this number of bytes, roughly. A report must fit a frame.
REPORT_BYTES = 2 << 20
# One report brings at most this number of leases.
GAPS_MAX = 16
# A publisher makes a first pause of this length before it asks again for the missing intervals.
AGAIN = Micros(SECOND // 4)
AGAIN_MAX = Micros(4 * SECOND)

Looks = Sequence[Interval]
"""An event looks in these intervals."""


class Walk:
    """A group of this node's own events on its way. They look in the same intervals."""

    __slots__ = ("by_interval", "epoch", "hops", "numbers", "rounds", "sent_at")

    def __init__(self, numbers: Sequence[int], intervals: Sequence[Interval]) -> None:
        self.numbers = numbers
        # The hops to the farthest end of the walk are counted for each interval, and in all.
        self.by_interval: dict[Interval, int] = dict.fromkeys(intervals, 0)
        self.hops = 0
        # No round means that the events were held back, because they were known to match nothing.
        self.rounds = 0
        self.sent_at = Micros(0)
        self.epoch = 0

    def reached(self, covered: Sequence[Covered]) -> None:
        for one in covered:
            if one.hops > self.hops:
                self.hops = one.hops
            for interval, known in self.by_interval.items():
                if one.hops > known and one.low < interval[1] and interval[0] < one.high:
                    self.by_interval[interval] = one.hops


class Region:
    __slots__ = ("enters", "lease", "of", "parts", "tie")

    def __init__(
        self,
        parts: Sequence[Part],
        lease: bool,
        *,
        of: Walk | None = None,
        tie: Interval | None = None,
        enters: bool = False,
    ) -> None:
        self.parts = parts
        # Whether the publisher would rely on an empty gap (leases.py).
        self.lease = lease
        # A region of this node's own events belongs to a walk.
        self.of = of
        # With the seed's ranges, this interval counts only when the region was reached as well.
        self.tie = tie
        # The publisher has no entry. Its message to a member of the list is no hop in the list.
        self.enters = enters

    def __bool__(self) -> bool:
        return bool(self.parts)


class Reached:
    """A tile, with the gaps that came with it."""

    __slots__ = ("covered", "gaps", "tied")

    def __init__(
        self,
        covered: Sequence[Covered] = (),
        gaps: Sequence[Gap] = (),
        tied: dict[Interval, int] | None = None,
    ) -> None:
        self.covered = covered
        # The publisher may rely on these gaps.
        self.gaps = gaps
        # Each interval has the number of regions here that it waits for.
        self.tied = tied


NOTHING = Reached()


class _Span(Protocol):
    @property
    def low(self) -> Position: ...
    @property
    def high(self) -> Position: ...


def is_ordered(parts: Sequence[_Span]) -> bool:
    """Return whether these are disjoint intervals, in order, and none is empty."""
    last: Position | None = None
    for part in parts:
        if part.low >= part.high or (last is not None and part.low < last):
            return False
        last = part.high
    return True


def without(parts: Sequence[Part], taken: Sequence[_Span]) -> Sequence[Part]:
    """Return disjoint intervals without others. It is the same object if nothing was taken."""
    left: list[Part] = []
    start = 0
    for part in parts:
        low, high = part.low, part.high
        while start < len(taken) and taken[start].high <= low:
            start += 1
        place = start
        while place < len(taken) and taken[place].low < high:
            if low < taken[place].low:
                left.append(Part(low, taken[place].low, part.to, part.bound))
            low = max(low, taken[place].high)
            place += 1
        if place == start:
            left.append(part)
        elif low < high:
            left.append(Part(low, high, part.to, part.bound))
    if len(left) == len(parts) and all(map(_is, left, parts)):
        return parts
    return left


def _is(one: Part, other: Part) -> bool:
    return one is other


def within(inner: Sequence[_Span], outer: Sequence[_Span]) -> bool:
    """Return whether the inner intervals are in the outer ones."""
    return not without([Part(one.low, one.high) for one in inner], outer)


def minus(one: Region, other: Region | Reached) -> Region:
    taken = other.parts if isinstance(other, Region) else other.covered
    left = without(one.parts, taken)
    return one if left is one.parts else Region(left, one.lease, of=one.of, tie=one.tie)


def plus(one: Region, other: Region) -> Region:
    """Return the region that this node answers for. It names no entries."""
    union: list[Part] = []
    for part in sorted([*one.parts, *other.parts], key=_low):
        if union and part.low <= union[-1].high:
            if part.high > union[-1].high:
                union[-1] = Part(union[-1].low, part.high)
        else:
            union.append(Part(part.low, part.high))
    return Region(union, one.lease)


def merged(covered: Sequence[Covered]) -> list[Covered]:
    """Return fewer tiles, where those that touch have become one."""
    found: list[Covered] = []
    for one in sorted(covered, key=_low):
        last = found[-1] if found else None
        if last is None or last.high < one.low:
            found.append(one)
        elif last.high == one.low:
            found[-1] = Covered(last.low, one.high, max(last.hops, one.hops))
    return found


class Cover:
    """The reached intervals of one region, as answers come in."""

    __slots__ = ("_over", "_region", "covered", "gaps", "tied")

    def __init__(self, region: Region, over: Callable[[Walk, Reached, Micros], None]) -> None:
        """``over`` is told when a round of this node's own walk is over."""
        self._region, self._over = region, over
        self.covered: list[Covered] = []
        self.gaps: list[Gap] = []
        self.tied: dict[Interval, int] = {}

    def add(self, tile: Reached, region: Region) -> None:
        if region.tie is not None:
            if within(region.parts, tile.covered):
                self.tied[region.tie] -= 1
            return
        self.covered += tile.covered
        self.gaps += tile.gaps[: GAPS_MAX - len(self.gaps)]
        if tile.tied:
            self.tied.update(tile.tied)

    def lose(self, region: Region) -> None: ...

    def tile(self, now: Micros) -> Reached:
        covered = self.covered
        if self.tied:
            covered = [one for one in covered if not self.tied.get((one.low, one.high))]
        tile = Reached(merged(covered) if len(covered) > 1 else covered, self.gaps)
        if self._region.of is not None:
            self._over(self._region.of, tile, now)
        return tile


class Walked(NamedTuple):
    """All groups of a batch have arrived wherever they were to go."""

    incarnation: int
    first: int
    # Each event has the number of subscriptions here that took it.
    counts: Counts
    walks: Sequence[Walk]


class _Split:
    """A batch of this node, and how many of its groups are on their way."""

    __slots__ = ("counts", "first", "left", "walks")

    def __init__(self, first: int, count: int) -> None:
        self.first, self.left, self.counts = first, 0, [0] * count
        self.walks: list[Walk] = []


class Walks:
    """The router of one list."""

    everything = None
    splits = True

    def __init__(
        self,
        host: Host,
        leases: Leases,
        marks: Marks,
        arrive: Callable[..., Counts | None],
        complete: Callable[[Walked], None],
    ) -> None:
        self._host, self._leases, self._marks = host, leases, marks
        self._arrive, self._complete = arrive, complete
        pace = Pace(again=AGAIN, again_max=AGAIN_MAX, patience=Micros(host.config.patience))
        self.engine = Engine(host.me, self, self._hand_over, self._completed, host.out, pace, _key)
        # The node asks for leases, and relies on them.
        self.holds_back = True
        # This number of events came here, and no subscription here wanted them.
        self.noise = 0
        # The key is the incarnation and the first number of a group.
        self._split: dict[tuple[int, int], tuple[_Split, Walk]] = {}

    # ------------------------------------------------------------------- publishing

    def publish(
        self,
        batch: Batch,
        looks: Sequence[Looks],
        pack: Callable[[Sequence[int]], bytes],
        now: Micros,
    ) -> None:
        """Publish a batch. ``looks`` has the intervals of each event. ``pack`` makes the rows of
        the events at some places.
        """
        together: dict[tuple[Interval, ...], list[int]] = {}
        for place, look in enumerate(looks):
            together.setdefault(tuple(look), []).append(place)
        split = _Split(batch.first, batch.count)
        groups: list[tuple[Group, Region]] = []
        for intervals, places in together.items():
            numbers = tuple(map(batch.first.__add__, places))
            walk = Walk(numbers, intervals)
            split.walks.append(walk)
            parts = self._not_held(intervals, now)
            if not parts:
                continue
            is_all = len(places) == batch.count and not is_columns(batch.rows)
            follows = numbers[-1] - numbers[0] + 1 == len(numbers)
            group = Group(
                batch.topic, batch.publisher, batch.incarnation, numbers[0], len(numbers),
                batch.floor, batch.round, 0, batch.rows if is_all else pack(places), b"",
                () if follows else numbers,
            )  # fmt: skip
            lease = self.holds_back and bool(self._host.config.lease)
            groups.append((group, Region(parts, lease, of=walk)))
            self._split[batch.incarnation, group.first] = split, walk
        split.left = len(groups)
        for group, region in groups:
            self.engine.publish(group, now, region)
        if not groups:
            self._complete(Walked(batch.incarnation, batch.first, tuple(split.counts), split.walks))

    def _not_held(self, intervals: Sequence[Interval], now: Micros) -> list[Part]:
        """Return the parts without the intervals that are known to be empty."""
        parts: list[Part] = []
        relies = self.holds_back and self._leases.gaps
        for low, high in sorted(intervals):
            if relies and self._leases.is_held(low, high, now):
                self._host.counters["held"] += 1
            else:
                parts.append(Part(low, high))
        return parts

    def _completed(self, incarnation: int, first: int, counts: Counts) -> None:
        split, walk = self._split.pop((incarnation, first))
        for number, count in zip(walk.numbers, counts, strict=True):
            split.counts[number - split.first] = count
        split.left -= 1
        if not split.left:
            self._complete(Walked(incarnation, split.first, tuple(split.counts), split.walks))

    def _over(self, walk: Walk, tile: Reached, now: Micros) -> None:
        """Take in the tile when a round of this node's own walk is over."""
        walk.reached(tile.covered)
        for gap in tile.gaps:
            self._leases.hold(gap, walk.sent_at, now, walk.epoch)

    # --------------------------------------------------------------------- messages

    def receive_carry(self, sender: Peer, message: Carry, now: Micros) -> None:
        if not message.batch.is_sound or not is_ordered(message.parts):
            self._host.reject(sender, "events or intervals that are out of order")
        elif message.batch.hops >= HOPS_MAX:
            region = Region(message.parts, message.lease)
            self.engine.decline(sender, message.batch, region)
        else:
            region = Region(message.parts, message.lease)
            for part in message.parts:
                if part.to is not None and part.to not in self._host.entries:
                    absent = Absent(self._host.topic, (part.to, self._host.me), self._host.births)
                    self._host.send(sender, absent, now)
            self.engine.carry(sender, message.batch, region, now)

    def receive_report(self, sender: Peer, message: Report, now: Micros) -> None:
        key = _key(message)
        part = self.engine.outstanding.find(sender, key)
        if part is None:
            # The report is late or repeated. Its part was counted, or it is asked for again.
            return
        tile, counts = Reached(message.covered, message.gaps), message.matched
        told = joined(counts, message.dropped)
        if told is None or not self._fits(tile, part.of.cover, part.region):
            self._host.reject(sender, "a report that does not fit the question")
            tile, told = NOTHING, ()
        if len(told) == 1:
            told *= part.of.wave.count
        self.engine.report(sender, key, tile, told, now)

    def _fits(self, tile: Reached, cover: Cover, region: Region) -> bool:
        covered, parts = tile.covered, region.parts
        if len(covered) == len(parts) == 1:
            [one], [part] = covered, parts
            return part.low <= one.low < one.high <= part.high
        return (
            len(covered) <= len(region.parts) + PIECES_MAX
            and len(covered) + len(cover.covered) <= COVERED_MAX
            and is_ordered(covered)
            and within(covered, region.parts)
        )

    def receive_busy(self, sender: Peer, message: Busy, now: Micros) -> None:
        self.engine.busy(sender, _key(message), now)

    def took(self, id: Id, counts: Counts, now: Micros) -> None:
        """Count events for which the owner could not say at once how many took them."""
        wave = self.engine.wave(id)
        if wave is not None and not wave.is_taken:
            self.noise += _unwanted(counts, wave.count)
        self.engine.took(id, counts, now)

    # ------------------------------------------------------------------ as a router

    minus = staticmethod(minus)
    plus = staticmethod(plus)

    def cover(self, region: Region) -> Cover:
        return Cover(region, self._over)

    def elsewhere(self, region: Region) -> Reached:
        return NOTHING

    def nothing(self, region: Region) -> Reached:
        return NOTHING

    def name(self, region: Region) -> Position:
        return region.parts[0].low

    def aim(self, batch: Batch, region: Region, sender: Peer | None, now: Micros) -> Aim:
        host = self._host
        if region.of is not None:
            if region.of.rounds:
                host.counters["resent"] += 1
            region.of.rounds += 1
            region.of.sent_at, region.of.epoch = now, host.epoch()
            if not host.is_placed:
                return self._enter(region, now)
        # The homes are those of the tiles in ``takes``.
        homes: list[Position] = []
        takes: list[Covered] = []
        known: list[Covered] = []
        gaps: list[Gap] = []
        has_ranges = host.config.ranges == "entries"
        tied: dict[Interval, int] = {}
        onward: list[tuple[int, Part]] = []
        aims: list[tuple[Peer, Region]] = []
        for part in region.parts:
            for entry, step in host.steps(part):
                if type(step) is Forward:
                    onward.append((step.to[1], Part(step.low, step.high, step.to[0], step.bound)))
                elif type(step) is Take:
                    homes.append(entry.at)
                    takes.append(Covered(entry.at, step.high, batch.hops))
                elif type(step) is Empty:
                    empty = Covered(step.low, step.high, batch.hops)
                    if has_ranges and (owners := self._owners(entry, step.low)):
                        self._tie(empty, owners, homes, takes, known, tied, aims)
                        continue
                    known.append(empty)
                    if step.whole and region.lease and len(gaps) < GAPS_MAX:
                        gap = self._leases.grant(entry, step.rightward, batch.publisher, now)
                        if gap is not None:
                            gaps.append(gap)
        if onward:
            onward.sort(key=_way)
            for to, several in groupby(onward, key=_to):
                parts = tuple([part for _, part in several])
                aims.append((Peer(to), Region(parts[:PARTS_MAX], region.lease)))
        if aims:
            aims = [one for one in aims if host.call(one[0], now)]
        here = self._here(batch, homes, takes, known, is_own=sender is None)
        tile = Reached(known, gaps, tied) if known or gaps or tied else None
        return Aim(aims, here, tile, bool(takes))

    def _here(
        self,
        batch: Batch,
        homes: list[Position],
        takes: list[Covered],
        known: list[Covered],
        is_own: bool,
    ) -> Reached | None:
        """Return the tile with this node's counts. Tiles of its other entries are known at once."""
        wave = self.engine.wave((batch.publisher, batch.incarnation, batch.first))
        assert wave is not None
        if not takes:
            if not is_own and wave.home is None:
                self.noise += batch.count
            return None
        if wave.home is None:
            wave.home = homes[0]
        if wave.home in homes:
            return Reached(takes)
        known += takes
        return None

    def _enter(self, region: Region, now: Micros) -> Aim:
        """This node has no entry, so another member of the list goes on."""
        contact = self._host.contact()
        if contact is None:
            # There is no list.
            return Aim((), None, Reached([Covered(p.low, p.high, 0) for p in region.parts]), False)
        parts = region.parts[:PARTS_MAX]
        ahead = [(Peer(contact), Region(parts, region.lease, enters=True))]
        return Aim(ahead if self._host.call(Peer(contact), now) else (), None, None, False)

    def joins(self, batch: Batch, region: Region, peer: Peer) -> None:
        return None

    def leaves_out(self, batch: Batch, peer: Peer, now: Micros) -> None:
        # The publisher asks again, and the walk finds another way when the list is repaired.
        return None

    def carry(self, batch: Batch, region: Region) -> Message:
        assert isinstance(batch, Group)
        if region.enters:
            batch = Group(
                batch.topic, batch.publisher, batch.incarnation, batch.first, batch.count,
                batch.floor, batch.round, 0, batch.rows, batch.signature, batch.numbers,
            )  # fmt: skip
        return Carry(batch, tuple(region.parts), region.lease)

    def report(self, id: Id, round: int, region: Region, tile: Reached, counts: Counts) -> Message:
        covered = tile.covered
        size = 0
        for one in covered:
            size += 40 + len(one.low[0]) + len(one.high[0])
        if len(covered) > COVERED_MAX or size > REPORT_BYTES:
            # Tiles and counts go together, so a report without room for both tells neither.
            covered, counts = (), ()
        matched, dropped = parted(counts) if any(counts) else ((), ())
        if len(matched) > 1 and _is_uniform(matched) and _is_uniform(dropped):
            matched, dropped = matched[:1], dropped[:1]
        gaps = tuple(tile.gaps)
        low = region.parts[0].low
        return Report(self._host.topic, *id, round, low, tuple(covered), matched, dropped, gaps)

    def busy(self, id: Id, round: int, region: Region) -> Message:
        return Busy(self._host.topic, *id, round, region.parts[0].low)

    # ------------------------------------------------------- ranges, as the seed has them

    def _owners(self, entry: Entry, low: Position) -> list[Position]:
        """Return the entries elsewhere whose ranges hold the events.

        The handing over is up to the node that has the beginning of the interval, before all peers.
        A walk comes by itself to an owner whose range begins here.
        """
        if self._host.config.ranges != "entries" or low[1]:
            return []
        return [owner for owner in self._marks.owners(entry, low[0]) if owner[0] != low[0]]

    def _tie(
        self,
        empty: Covered,
        owners: Sequence[Position],
        homes: list[Position],
        takes: list[Covered],
        known: list[Covered],
        tied: dict[Interval, int],
        aims: list[tuple[Peer, Region]],
    ) -> None:
        """Let the interval count once all of these owners have the events."""
        tie = (empty.low, empty.high)
        mine = [owner for owner in owners if owner[1] == self._host.me]
        tied[tie] = len(owners) - len(mine)
        if mine:
            homes.append(mine[0])
            takes.append(empty)
        else:
            known.append(empty)
        for owner in owners:
            if owner[1] != self._host.me:
                part = Part(owner, (owner[0], owner[1] + 1), owner[0])
                aims.append((Peer(owner[1]), Region((part,), lease=False, tie=tie)))

    def _hand_over(
        self,
        batch: Batch,
        now: Micros,
        numbers: Sequence[int] | None = None,
        group: str = "",
        part: int | None = None,
        done: Mapping[int, int] | None = None,
    ) -> Counts | None:
        counts = self._arrive(batch, now, numbers, done=done)
        if counts is not None:
            self.noise += _unwanted(counts, batch.count)
        return counts


def unreached(message: Carry, topic: bytes) -> Report:
    """Return the answer of a node that cannot say anything about a part of a walk."""
    batch, low = message.batch, message.parts[0].low
    id = (batch.publisher, batch.incarnation, batch.first)
    return Report(int.from_bytes(topic, "big"), *id, batch.round, low)


def _unwanted(counts: Counts, events: int) -> int:
    """Return the number of events that no subscription took."""
    if len(counts) == 1:
        return 0 if counts[0] else events
    return counts.count(0) if counts else events


def _is_uniform(counts: Counts) -> bool:
    return not counts or counts.count(counts[0]) == len(counts)


_low = attrgetter("low")
_to = itemgetter(0)


def _way(one: tuple[int, Part]) -> tuple[int, Position]:
    return one[0], one[1].low


def _key(message: Any) -> tuple[int, int, int, int, Position]:
    """Return the key of the part that a message is, or answers."""
    if type(message) is Carry:
        batch = message.batch
        low = message.parts[0].low
        return batch.publisher, batch.incarnation, batch.first, batch.round, low
    return message.publisher, message.incarnation, message.first, message.round, message.low
