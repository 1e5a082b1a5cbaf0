"""Walks and their reports (section 3.4; DESIGN.md section 9).

A ``Carry`` owns an interval of positions. Whoever receives it takes the event if one of its entries is in the interval, cuts the
rest into parts, sends those on, and reports to the sender when all parts have reported, or when its patience ends: tiles of the
interval, each with how many subscriptions took the event there. What is not in a tile was not reached; the publisher sends the
event again for exactly that. The receipt is complete when the tiles cover everything.

A node takes an event once, whichever of its entries it comes to first: its owner looks at all of its filters then. The entry at
which it was taken keeps the count, so that a repeated walk reports the same number and no other entry of the node adds to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec import structs

from gossamer.machine import NEVER, SECOND, Micros, Peer
from gossamer.overlay.batch import bounded, bounded_all
from gossamer.overlay.skiplist.entry import Entry
from gossamer.overlay.skiplist.host import Host
from gossamer.overlay.skiplist.leases import Leases
from gossamer.overlay.skiplist.marks import Marks
from gossamer.overlay.skiplist.messages import (
    DELIVER,
    FIND,
    HANDOFF,
    HOPS_MAX,
    MATCHED_MAX,
    Absent,
    Carry,
    Gap,
    Report,
    Tile,
)
from gossamer.overlay.skiplist.position import Interval, Position, subtract
from gossamer.overlay.skiplist.receipts import UNKNOWN, Arrival, Hits, Publication, Seen
from gossamer.overlay.skiplist.route import Empty, Forward, Take, spread
from gossamer.overlay.skiplist.tiles import (
    Settled,
    as_counted,
    as_sent,
    count_at,
    is_sound,
    merge_tiles,
    reportable,
    settle,
    suits,
    tile_of,
    together,
)

UNDER_WAY_MAX = 65_536  # events of walks through one node, those that walk together one by one
LOCAL_MAX = 1_024  # entries of one node that one walk visits
RETRY = SECOND // 4
WAITING_MAX = (
    16  # walks that wait for the owner's word on one event: an honest publisher has one or two
)
SHARE = 64  # of its sender's patience each hop keeps so much for the way back

Match = Callable[[Arrival], Sequence[int] | None]
"""How many subscriptions of this node take each of the events; (): none takes any. Asked once an event; the owner hands it over
then. None: ``took`` will say, and until then they are not reported, which holds their publisher back."""

Ask = Callable[[bytes, bytes], Sequence[tuple[int, str]]]
"""(key of an entry, payload of the question) to the subscriptions there: number and filter."""


class _Child(NamedTuple):
    low: Position
    high: Position
    tie: Interval | None  # of a handoff: the tile that counts only if the handoff succeeds


class _Waiting:
    """A tile that is due when the owner has said how many took some of the events."""

    __slots__ = ("branch", "child", "counts", "left")

    def __init__(self, branch: Branch, child: BranchKey, counts: list[int]) -> None:
        self.branch, self.child, self.counts, self.left = (
            branch,
            child,
            counts,
            counts.count(UNKNOWN),
        )

    @property
    def is_over(self) -> bool:
        """The walk has been reported without it."""
        return self.child not in self.branch.children


class Branch:
    """One walk at this node: from whom, what it owns, and what is missing."""

    __slots__ = (
        "children",
        "deadline",
        "found",
        "gaps",
        "message",
        "noise",
        "parent",
        "tied",
        "tiles",
    )

    def __init__(self, message: Carry, parent: Peer | None, deadline: Micros) -> None:
        self.message, self.parent, self.deadline = message, parent, deadline
        self.children: dict[BranchKey, _Child] = {}
        self.tiles: list[Tile] = []
        self.tied: dict[Interval, int] = {}  # tiles that wait for handoffs: how many
        self.gaps: list[Gap] = []
        self.found = Hits()
        self.noise = 0


BranchKey = tuple[int, int, int, int, Position, Position, int, int]


def _key(message: Carry | Report, parent: int) -> BranchKey:
    return (
        message.publisher, message.incarnation, message.sequence, message.round, message.low, message.high, message.hops, parent
    )  # fmt: skip


class Events:
    def __init__(self, host: Host, leases: Leases, marks: Marks, match: Match, ask: Ask) -> None:
        self._host, self._leases, self._marks, self._match, self._ask = (
            host,
            leases,
            marks,
            match,
            ask,
        )
        self._branches: dict[BranchKey, Branch] = {}
        self._by_child: dict[BranchKey, BranchKey] = {}
        self.publications: dict[tuple[int, int], Publication] = {}  # by incarnation and sequence
        self._deferred: dict[
            tuple[int, int, int], list[tuple[_Waiting, int]]
        ] = {}  # by event; and its place in the walk
        self._asked: dict[
            tuple[int, int, int], tuple[int, ...]
        ] = {}  # arrivals that the owner has not told of: their events
        self._under_way = 0  # events
        self.seen = Seen()
        self.deadline: Micros = NEVER
        self.holds_back = True  # ask for leases and rely on them
        self.noise = 0  # events that came here and that nobody here wanted

    # ------------------------------------------------------------------ publishing

    def publish(self, publications: Sequence[Publication], now: Micros) -> None:
        held: dict[Interval, bool] = {}
        for publication in publications:
            self.publications[publication.incarnation, publication.sequence] = publication
            if publication.kind == DELIVER and self.holds_back:
                for low, high in list(publication.remaining):
                    if (low, high) not in held:
                        held[low, high] = self._leases.is_held(low, high, now)
                    if held[low, high]:
                        publication.remaining = subtract(publication.remaining, low, high)
                        self._host.counters["held"] += 1
        self._round(publications, now)

    def _round(self, publications: Sequence[Publication], now: Micros) -> None:
        """Send events for everything that is still missing of them; those that look in the same interval together."""
        walks: dict[tuple[Interval, int, int, int], list[Publication]] = {}
        epoch, is_apart = self._host.epoch(), self._host.config.ranges == "entries"
        for publication in publications:
            if not publication.remaining:
                self._complete(publication)
                continue
            publication.round += 1
            publication.sent_at, publication.walks, publication.epoch = (
                now,
                len(publication.remaining),
                epoch,
            )
            publication.retry_at = NEVER
            alone = publication.sequence if is_apart or publication.kind != DELIVER else -1
            for interval in publication.remaining:
                alike = (interval, publication.incarnation, publication.round, alone)
                walks.setdefault(alike, []).append(publication)
        for (interval, *_), several in walks.items():
            for some in together(several):
                self._set_out(some, *interval, now)

    def _set_out(self, some: list[Publication], low: Position, high: Position, now: Micros) -> None:
        """A walk of our own begins."""
        host, config, first, others = self._host, self._host.config, some[0], some[1:]
        message = Carry(
            host.topic, host.me, first.incarnation, first.sequence, min([one.floor for one in some]), first.round, low, high,
            None, 0, config.patience, first.kind, self.holds_back and bool(config.lease), first.payload, None,
            tuple([one.sequence for one in others]), tuple([one.payload for one in others]),
        )  # fmt: skip
        entry = host.nearest(low)
        branch = Branch(message, None, Micros(now + config.patience))
        if entry is not None:
            self._walk(entry, branch, now, own=True)
            return
        self._open(branch)
        contact = host.contact()
        if contact is not None:
            self._send(branch, contact, None, low, high, now, hops=0)
        else:
            branch.tiles.append(tile_of(message, low, high, [0] * len(some)))  # there is no list
        self._maybe_report(branch, now)

    def _over(self, branch: Branch, now: Micros) -> None:
        """A walk of our own is over."""
        message, tiles = branch.message, branch.tiles
        numbers = enumerate((message.sequence, *message.others))
        known = [
            (place, self.publications.get((message.incarnation, number)))
            for place, number in numbers
        ]
        ours = [
            (place, one) for place, one in known if one is not None and one.round == message.round
        ]
        if not ours:
            return
        for gap in branch.gaps:  # all of them were sent at the same time
            self._leases.hold(gap, ours[0][1].sent_at, now, ours[0][1].epoch)
        room = min([one.room for _, one in ours])
        settled = settle(tiles, message, room)
        for place, publication in ours:
            self._apply(publication, place, branch, settled, now)

    def _apply(
        self, publication: Publication, place: int, branch: Branch, settled: Settled, now: Micros
    ) -> None:
        """What a walk has come to, for one of its events."""
        counted, missing = settled
        for tile in counted:
            publication.reached(tile.low, tile.hops)
            publication.matched += count_at(tile, place)
            publication.noise += tile.noise
        interval = (branch.message.low, branch.message.high)
        publication.remaining = [one for one in publication.remaining if one != interval] + missing
        if publication.kind == FIND:
            publication.found.extend(list(branch.found.hits.values()), branch.found.left_off)
        publication.walks -= 1
        if publication.walks <= 0:
            if not publication.remaining:
                self._complete(publication)
            else:
                self._host.counters["resent"] += 1
                publication.retry_at = Micros(
                    now + RETRY * min(publication.round - publication.first_round, 16)
                )
                self._sooner(publication.retry_at)

    def _complete(self, publication: Publication) -> None:
        self.publications.pop((publication.incarnation, publication.sequence), None)
        self._host.deliver(publication.result())

    # -------------------------------------------------------------------- carrying

    def receive_carry(self, sender: Peer, message: Carry, now: Micros) -> None:
        host = self._host
        if message.low > message.high:
            host.reject(sender, "an interval that ends before it begins")
            return
        if message.others or message.payloads:
            if not is_sound(message):
                host.reject(sender, "events in a walk that are out of order, or too many")
                return
            if (
                message.kind != DELIVER or host.config.ranges == "entries"
            ):  # what is not meant for several is for the first
                message = structs.replace(message, others=(), payloads=())
        key = _key(message, int(sender))
        if key in self._branches:
            return  # repeated by the network
        patience = min(
            message.patience, host.config.patience
        )  # nobody waits longer, whatever a sender says
        branch = Branch(message, sender, Micros(now + patience - patience // SHARE))
        if message.to is not None and message.to not in host.entries:
            host.send(sender, Absent(host.topic, (message.to, host.me), host.births), now)
        if message.kind == HANDOFF:
            self._handed(branch, now)
            return
        # From another entry than the named one the bound says nothing, and the walk might come back here: the publisher asks again.
        entry = host.nearest(message.low) if message.to is None else host.entries.get(message.to)
        is_full = self._under_way + len(message.others) >= UNDER_WAY_MAX
        if entry is None or not entry.is_placed or message.hops >= HOPS_MAX or is_full:
            self._report(branch, now)
            return
        self._walk(entry, branch, now, own=False)

    def _walk(self, entry: Entry, branch: Branch, now: Micros, *, own: bool) -> None:
        """Cut what the walk owns into steps, at all entries of this node that it comes to."""
        host, message = self._host, branch.message
        self._open(branch)
        work: list[tuple[Entry, Position, Position, Position | None]] = [
            (entry, message.low, message.high, message.bound)
        ]
        visits, took = 0, False
        while work and visits < LOCAL_MAX:
            visits += 1
            here, low, high, bound = work.pop()
            host.counters["compared"] += len(here.table()[0]).bit_length()
            for step in spread(here, low, high, bound):
                if isinstance(step, Take):
                    took = True
                    self._take(here, branch, here.at, step.high, now)
                elif isinstance(step, Empty):
                    self._dead_end(here, step, branch, now)
                elif isinstance(step, Forward):
                    if step.to[1] != host.me:
                        self._send(
                            branch,
                            step.to[1],
                            step.to[0],
                            step.low,
                            step.high,
                            now,
                            bound=step.bound,
                        )
                    elif (
                        (local := host.entries.get(step.to[0])) is not None
                        and local.is_placed
                        and local is not here
                    ):
                        work.append((local, step.low, step.high, step.bound))
        if not own and message.kind == DELIVER and not took:
            counts = self.seen.counts(message)
            branch.noise += counts[0] is None
            self.noise += counts.count(None)
        self._maybe_report(branch, now)

    def _take(
        self, entry: Entry, branch: Branch, low: Position, high: Position, now: Micros
    ) -> None:
        message = branch.message
        if message.kind == FIND:
            told = self._ask(entry.at[0], message.payload)
            counts = [min(len(told), MATCHED_MAX)]
            if (
                told or not message.payload
            ):  # an event's residual may not pass: then this entry is no answer
                branch.found.tell(entry.at, told)
        else:
            counts = self._hand_over(message, entry.at)
            if UNKNOWN in counts:
                self._defer(branch, low, high, counts)
                return
        self._tie(entry, branch, tile_of(message, low, high, counts), now)

    def _hand_over(self, message: Carry, at: Position) -> list[int]:
        """To the owner, those events that have not been here; returns what this entry adds to the count of each."""
        known = self.seen.counts(message)
        fresh = [place for place, count in enumerate(known) if count is None]
        counts = [count[1] if count is not None and count[0] == at else 0 for count in known]
        if not fresh:
            return counts
        numbers, payloads = (
            (message.sequence, *message.others),
            (message.payload, *message.payloads),
        )
        if len(fresh) < len(known):
            numbers, payloads = (
                tuple(numbers[place] for place in fresh),
                tuple(payloads[place] for place in fresh),
            )
        arrival = Arrival(
            message.publisher, message.incarnation, numbers, message.hops, payloads, message.floor
        )
        matched = self._match(arrival)
        if matched is None:
            self._asked[arrival.key] = numbers
            told = [UNKNOWN] * len(fresh)
        else:
            told = _each(matched, len(fresh))
            self.noise += told.count(0)
        self.seen.add(message, numbers, at, told)
        for place, count in zip(fresh, told, strict=True):
            counts[place] = count
        return counts

    def _defer(self, branch: Branch, low: Position, high: Position, counts: list[int]) -> None:
        """The tile is due when the owner has said how many took the events."""
        message = branch.message
        parent = _key(message, -1 if branch.parent is None else int(branch.parent))
        child: BranchKey = (*parent[:4], low, high, message.hops, -2)
        several: list[tuple[int, list[tuple[_Waiting, int]]]] = []
        for place, number in enumerate((message.sequence, *message.others)):
            if counts[place] == UNKNOWN:
                others = self._deferred.setdefault(
                    (message.publisher, message.incarnation, number), []
                )
                others[:] = [one for one in others if not one[0].is_over]
                several.append((place, others))
        if any(len(others) >= WAITING_MAX for _, others in several):
            return  # without a tile: the publisher asks again
        branch.children[child] = _Child(low, high, None)
        waiting = _Waiting(branch, child, counts)
        for place, others in several:
            others.append((waiting, place))

    def took(self, key: tuple[int, int, int], matched: Sequence[int], now: Micros) -> None:
        numbers = self._asked.pop(key)
        for number, count in zip(numbers, _each(matched, len(numbers)), strict=True):
            self.seen.set(key[:2], number, count)
            self.noise += not count
            for waiting, place in self._deferred.pop((*key[:2], number), ()):
                waiting.counts[place] = count
                waiting.left -= 1
                branch = waiting.branch
                child = branch.children.pop(waiting.child, None) if not waiting.left else None
                if child is not None:
                    branch.tiles.append(
                        tile_of(branch.message, child.low, child.high, waiting.counts)
                    )
                    self._maybe_report(branch, now)

    @property
    def is_busy(self) -> bool:
        return bool(self.publications or self._branches or self._deferred)

    def under_way(self) -> list[BranchKey]:
        return list(self._branches)

    def _dead_end(self, entry: Entry, step: Empty, branch: Branch, now: Micros) -> None:
        message = branch.message
        tied = self._tie(
            entry,
            branch,
            tile_of(message, step.low, step.high, [0] * (1 + len(message.others))),
            now,
        )
        if step.whole and message.lease and not tied:
            gap = self._leases.grant(entry, step.rightward, message.publisher, now)
            if gap is not None and len(branch.gaps) < 16:
                branch.gaps.append(gap)

    def _tie(self, entry: Entry, branch: Branch, tile: Tile, now: Micros) -> bool:
        """With the seed's ranges: the tile counts once everybody whose range holds the event has it. Whether there is such."""
        message = branch.message
        if self._host.config.ranges != "entries" or message.kind != DELIVER or tile.low[1]:
            branch.tiles.append(
                tile
            )  # the handoffs are up to whoever has the beginning of the interval, before all peers
            return False
        key = tile.low[0]
        owners = [
            owner for owner in self._marks.owners(entry, key) if owner[0] != key
        ]  # else the walk comes there by itself
        away = [owner for owner in owners if owner[1] != self._host.me]
        matched = tile.matched
        if len(away) < len(owners):
            matched += max(
                0,
                *self._hand_over(
                    message, next(owner for owner in owners if owner[1] == self._host.me)
                ),
            )
        branch.tiles.append(Tile(tile.low, tile.high, matched, tile.hops, tile.noise))
        if away:
            tie = (tile.low, tile.high)
            branch.tied[tie] = len(away)
            for owner in away:
                self._send(branch, owner[1], owner[0], owner, owner, now, tie=tie, kind=HANDOFF)
        return bool(owners)

    def _handed(self, branch: Branch, now: Micros) -> None:
        """An entry of the range has handed the event to us, its subscriber."""
        message = branch.message
        if message.to in self._host.entries:
            matched = max(0, *self._hand_over(message, message.low))
            branch.tiles.append(Tile(message.low, message.high, matched, message.hops, 0))
        self._report(branch, now)

    def _send(
        self, branch: Branch, to: int, key: bytes | None, low: Position, high: Position, now: Micros, *,
        tie: Interval | None = None, kind: int | None = None, hops: int | None = None, bound: Position | None = None,
    ) -> None:  # fmt: skip
        message = branch.message
        part = Carry(
            message.topic, message.publisher, message.incarnation, message.sequence, message.floor, message.round, low, high,
            key, message.hops + 1 if hops is None else hops, message.patience - message.patience // SHARE,
            message.kind if kind is None else kind, message.lease, message.payload, bound, message.others, message.payloads,
        )  # fmt: skip
        child = _key(part, to)
        branch.children[child] = _Child(low, high, tie)
        self._by_child[child] = _key(message, -1 if branch.parent is None else int(branch.parent))
        self._host.send(to, part, now)

    # ------------------------------------------------------------------- reporting

    def _open(self, branch: Branch) -> None:
        self._branches[
            _key(branch.message, -1 if branch.parent is None else int(branch.parent))
        ] = branch
        self._under_way += 1 + len(branch.message.others)
        self._sooner(branch.deadline)

    def receive_report(self, sender: Peer, message: Report, now: Micros) -> None:
        part = _key(message, int(sender))
        key = self._by_child.pop(part, None)
        branch = self._branches.get(key) if key is not None else None
        if branch is None:
            return  # too late: its interval has been asked for again
        child = branch.children.pop(part, None)
        if child is None:
            return
        for told in message.tiles:
            tile = as_counted(told)
            if tile is None:
                self._host.reject(sender, "a tile whose counts do not fit each other")
            elif child.tie is not None:
                self._untie(branch, child.tie, tile)
            elif message.low <= tile.low < tile.high <= message.high and suits(
                tile, branch.message
            ):
                branch.tiles.append(tile)
            else:
                self._host.reject(sender, "a tile of another interval")
        branch.gaps += message.gaps[: 16 - len(branch.gaps)]
        branch.found.extend(message.found, message.left_off)
        self._maybe_report(branch, now)

    def _untie(self, branch: Branch, tie: Interval, handed: Tile) -> None:
        branch.tied[tie] -= 1
        for number, tile in enumerate(branch.tiles):
            if (tile.low, tile.high) == tie:
                matched = bounded(tile.matched + handed.matched)
                branch.tiles[number] = Tile(
                    tile.low, tile.high, matched, max(tile.hops, handed.hops), tile.noise
                )

    def _maybe_report(self, branch: Branch, now: Micros) -> None:
        if not branch.children:
            self._report(branch, now)

    def _report(self, branch: Branch, now: Micros) -> None:
        """This walk is over at this node: tell whoever sent it, or the publication if it is our own."""
        message = branch.message
        if (
            self._branches.pop(
                _key(message, -1 if branch.parent is None else int(branch.parent)), None
            )
            is not None
        ):
            self._under_way -= 1 + len(message.others)
        for part in branch.children:
            self._by_child.pop(part, None)
        branch.children.clear()  # what comes later is not for a walk that is over
        tiles = merge_tiles(
            [tile for tile in branch.tiles if not branch.tied.get((tile.low, tile.high))],
            branch.noise,
        )
        if branch.parent is None:
            branch.tiles = list(tiles)
            self._over(branch, now)
            return
        told = reportable([as_sent(tile) for tile in tiles])
        report = Report(
            message.topic, message.publisher, message.incarnation, message.sequence, message.round, message.low, message.high,
            message.hops, told, tuple(branch.gaps), tuple(branch.found.hits.values()), branch.found.left_off,
        )  # fmt: skip
        self._host.send(int(branch.parent), report, now)

    # ------------------------------------------------------------------------ time

    def peer_down(self, peer: Peer, now: Micros) -> None:
        """What went to this peer will not be reported on. Those that wait for nobody else say so at once."""
        for branch in list(self._branches.values()):
            lost = [child for child in branch.children if child[-1] == peer]
            for child in lost:
                del branch.children[child]
                self._by_child.pop(child, None)
            if lost:
                self._maybe_report(branch, now)

    def wake(self, now: Micros) -> None:
        if now < self.deadline:
            return
        for branch in [branch for branch in self._branches.values() if branch.deadline <= now]:
            self._report(branch, now)
        self._round(
            [
                publication
                for publication in self.publications.values()
                if publication.retry_at <= now
            ],
            now,
        )
        self.deadline = min(
            min((branch.deadline for branch in self._branches.values()), default=NEVER),
            min(
                (publication.retry_at for publication in self.publications.values()), default=NEVER
            ),
        )

    def _sooner(self, at: Micros) -> None:
        self.deadline = min(self.deadline, at)
        self._host.sooner(at)


def _each(matched: Sequence[int], count: int) -> list[int]:
    """How many took each of so many events, as the owner of the list says it."""
    return list(bounded_all(tuple(matched))) if matched else [0] * count
