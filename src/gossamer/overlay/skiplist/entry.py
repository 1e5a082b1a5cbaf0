"""One entry of the list: its links by level, and the seed's Figure 2, which makes and renews them.

A message of level l goes from neighbour to neighbour of that level. It goes rightward when l is
even, and leftward when l is odd. An entry in the message that has been passed on k - 1 times has
come k links of level l. The receiver is then k**(l+1) entries away, and takes it as its neighbour
of level l + 1. The receiver tells no other node of the new link. But it now gossips at level l + 1
in the opposite direction, and the counter 0 in that message makes the link known at the other end
(lines 4 to 10).

At the prompt pace, a level sends its message at once when one of its links comes about, or when
another entry takes the place of a neighbour. The message has the content that it would have at its
period, so the levels above come as fast as messages travel. One new entry moves 2 * k**l links of
level l by one entry each, which routing hardly notices. So of the links that only move, an entry
tells of about MOVES a level at once, whatever the list's size, and of the rest at the periods. No
level sends more than PROMPTS such messages in its period.

The list is a circle. An entry that would be carried past its own place has gone around, and the
receiver drops it (``_ordered``). So a level whose links would span the whole list never comes
about. A level that spans it because the list has shrunk is no longer renewed.

One entry decides from its own knowledge where an event goes next (section 3.4). ``spread`` cuts
the interval that a walk owns into steps:

    Take      this entry is in the interval, and no other entry is up to the end of the tile
    Empty     there is no entry in this part, and both ends of the gap agree on that
    Forward   this part belongs to that entry, which knows more
    Unsure    a neighbour is being replaced, so this part has to be asked for again

Routing "gossamer" uses links in both directions, around the circle. Where no known entry is in the
interval, the interval lies between two known entries. The middle of that span, where it is known,
says which of the two is nearer, so a walk may overshoot. Where several known entries are in the
interval, each gets a part of it at once. Routing "paper" is greedy by comparison alone. It takes
the list for a line, never goes past the goal, and visits contiguous matches one by one over level
0.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from random import Random

from msgspec import Struct

from gossamer.machine import NEVER, Micros
from gossamer.overlay.skiplist.config import SkipConfig
from gossamer.overlay.skiplist.messages import LEVELS_MAX, Item, Mark
from gossamer.overlay.skiplist.position import Position, between

_NOTHING: tuple[tuple[Position, ...], int] = ((), 0)
# A level sends at most this number of messages out of turn in its period.
PROMPTS = 32
# An entry tells of a link of level l that moves at once with the chance MOVES / k**l.
MOVES = 4
# An entry looks for stale long links each time that this number of periods has passed.
EXPIRE_EVERY = 4


class Link:
    """A neighbour of some level, and the entries that are known to lie behind it."""

    __slots__ = ("at", "born", "chain", "guess_until", "heard", "is_free", "sure")

    def __init__(self, at: Position, heard: Micros) -> None:
        self.at, self.heard = at, heard
        self.chain: tuple[Position, ...] = ()
        # At level 0 a link is sure when the neighbour has this entry as its neighbour too. Then no
        # entry is in between.
        self.sure = False
        # A node counts its entries, and this is the neighbour's number, as far as it is known. At
        # level 0 it tells a farewell of this neighbour from that of an earlier entry at the place.
        self.born = 0
        # Before this time the link is not sure, whatever the neighbour says.
        self.guess_until = Micros(0)
        # The neighbour has gone, and no publisher relies on the gaps that were beside it.
        self.is_free = False


class Entry:
    __slots__ = (
        "_acked", "_heard", "_mids", "_points", "_prompted", "_rng", "_rounds", "_soon",
        "_span", "agreed_at", "answered", "at", "attempts", "born", "check_at", "checks",
        "cleared_left", "cleared_right", "config", "failed", "follows", "free_left_at",
        "free_right_at", "fresh", "is_joined", "is_placed", "lefts", "lessees_left",
        "lessees_right", "lower", "marks", "number", "out", "range", "refused", "refused_twice",
        "rights", "successors", "times", "told", "waits",
    )  # fmt: skip

    def __init__(self, at: Position, config: SkipConfig, rng: Random) -> None:
        self.at, self.config, self._rng = at, config, rng
        self.lefts: list[Link | None] = [None]
        self.rights: list[Link | None] = [None]
        self.out: list[tuple[Item, ...]] = [()]
        # These are the times at which the levels gossip next.
        self.times: list[Micros] = [NEVER]
        # This is the least of ``times``.
        self._soon: Micros = NEVER
        self._rounds = 0
        # The keys are the levels whose links have changed since this entry last told of them. The
        # value is True where there was no link before.
        self.fresh: dict[int, bool] = {}
        # Each level has the entries here that came with its last message and are to be passed on.
        self._heard: dict[int, tuple[Item, ...]] = {}
        # Each level has the beginning of a period here, and the number of messages out of turn
        # since then.
        self._prompted: dict[int, tuple[Micros, int]] = {}
        self._acked: dict[int, tuple[tuple[Position, ...], int]] = {}
        self._points: list[Position] | None = None
        self._mids: list[Position | None] = []
        # A span from one level to the next has this number of links up to its middle.
        self._span = (config.k + 2) // 2

        # The attributes from here on belong to level 0 (level0.py).
        # A placed entry has neighbours, or knows that it is alone.
        self.is_placed = False
        # Both neighbours know a joined entry, and no publisher relies on the gap that it came into.
        self.is_joined = False
        # The node had another entry already when this one came.
        self.follows = False
        self.cleared_left = self.cleared_right = False
        # At this time both neighbours knew the entry for the first time.
        self.agreed_at: Micros = NEVER
        self.successors: list[Position] = []
        # The last beat with successors went to this position with these successors. The number
        # counts the beats to it since then, that one included.
        self.told: tuple[Position, tuple[Position, ...], int] | None = None
        # A neighbour that fell silent is not taken back at once.
        self.failed: dict[Position, Micros] = {}
        # These successors have answered a question of a repair.
        self.answered: dict[Position, Micros] = {}
        self.check_at: Micros = NEVER
        # This number of joins through contacts has come to nothing so far.
        self.attempts = 0
        # A node counts its entries, and this is the number of this one. A key that is left and
        # entered again is another entry.
        self.born = 0
        # These members have said that they are not in the list themselves.
        self.refused: dict[int, None] = {}
        # All members have refused once, and the entry is asking them for the second time.
        self.refused_twice = False
        # The entry has checked its place this number of times since it was last in doubt.
        self.checks = 0

        # The attributes from here on belong to the leases (leases.py). The lessees rely on the gaps
        # at both sides, each until its time. Unknown publishers may rely on them until
        # ``free_*_at``.
        self.lessees_left: dict[int, Micros] = {}
        self.lessees_right: dict[int, Micros] = {}
        self.free_left_at = self.free_right_at = Micros(0)
        self.number = 0
        # These lessees have not answered a revocation. Each has the end of its lease and the number
        # of the revocation.
        self.waits: dict[int, tuple[Micros, int]] = {}
        # At this time the first lease in ``waits`` ends.
        self.lower: Micros = NEVER

        # The attributes from here on belong to the marks (marks.py). Each owner has its mark here,
        # and the time at which the mark was last heard of.
        self.marks: dict[Position, tuple[Mark, Micros]] = {}
        # This is the mark of the entry itself.
        self.range: Mark | None = None

    # ------------------------------------------------------------------- neighbours

    @property
    def right(self) -> Position:
        """The next entry rightward. An entry that is alone is its own neighbour."""
        link = self.rights[0]
        return link.at if link is not None else self.at

    @property
    def left(self) -> Position:
        link = self.lefts[0]
        return link.at if link is not None else self.at

    @property
    def levels(self) -> int:
        """The number of levels that have a link."""
        return sum(
            left is not None or right is not None
            for left, right in zip(self.lefts, self.rights, strict=True)
        )

    def links(self) -> list[tuple[int, bool, Link]]:
        """Return (level, whether it leads rightward, link) of all links."""
        found = [(level, False, link) for level, link in enumerate(self.lefts) if link is not None]
        return found + [
            (level, True, link) for level, link in enumerate(self.rights) if link is not None
        ]

    def put(self, level: int, rightward: bool, at: Position, now: Micros) -> Link:
        """Take the entry at this position as the neighbour of the level."""
        side = self.rights if rightward else self.lefts
        link = side[level] if level < len(side) else None
        # Nearly every call only renews the neighbour.
        if link is not None and link.at == at:
            link.heard = now
            return link
        while len(self.lefts) <= level:
            number = len(self.lefts)
            self.lefts.append(None)
            self.rights.append(None)
            self.out.append(())
            # A new level begins together with one of the next heartbeats, which is drawn. So an
            # entry wakes once a period, whatever number of levels it has.
            beat = self.times[0] if now < self.times[0] < NEVER else now
            self.times.append(
                Micros(beat + self.config.period * int((number + 1) * self._rng.random()))
            )
            self._soon = min(self.times)
        if self.config.pace == "prompt":
            self.fresh[level] = self.fresh.get(level, False) or link is None
        link = side[level] = Link(at, now)
        self._points = None
        return link

    def drop(self, level: int, rightward: bool) -> None:
        side = self.rights if rightward else self.lefts
        if side[level] is not None:
            side[level] = None
            self._points = None

    def drop_long(self, gone: Position | int) -> None:
        """Forget long links to this entry, or to all entries of this peer."""
        for level, rightward, link in self.links():
            if level and (link.at == gone or link.at[1] == gone):
                self.drop(level, rightward)

    # ------------------------------------------------------------ Figure 2 (a): reception

    def hear(
        self, level: int, items: Sequence[Item], chain: tuple[Position, ...], now: Micros
    ) -> str | None:
        """Take in a gossip message of this level. Return the reason if it cannot be true."""
        # At an even level the sender is at the left.
        last, leftward = self.config.k - 1, level % 2 == 0
        reason = self._misshapen(items)
        if reason:
            return reason
        kept = self._ordered(items, leftward) if len(items) > 1 else items
        if kept is None:
            return "entries out of order"
        sender = kept[0].at
        if level:
            self.put(level, not leftward, sender, now)
        if level or last > 1:
            behind = chain if last == 1 else tuple(item.at for item in kept[1 : self._span])
            self.chain(level, not leftward, sender, behind)
        forward = [Item(sender, 1)]
        for item in kept[1:]:
            if item.counter == last:
                if level + 1 < LEVELS_MAX:
                    self.put(level + 1, not leftward, item.at, now)
            else:
                forward.append(Item(item.at, item.counter + 1))
        if len(self.out) > level:
            heard, self.out[level] = self._heard.get(level, ()), tuple(forward)
            self._heard[level] = self.out[level]
            # For k = 2 no entry is passed on but the sender, so only a link can be new.
            if last > 1 and self.config.pace == "prompt" and heard != self.out[level]:
                self.fresh[level] = self.fresh.get(level, False) or len(heard) < len(forward)
        return None

    def _misshapen(self, items: Sequence[Item]) -> str | None:
        k = self.config.k
        if len(items) > k:
            return "more than k entries in a message"
        if items[0].counter or items[0].at == self.at:
            return "a message whose first entry is not its sender's"
        last = 0
        for item in items[1:]:
            if not last < item.counter < k:
                return "forged counters"
            last = item.counter
        return None

    def _ordered(self, items: Sequence[Item], leftward: bool) -> list[Item] | None:
        """Return the entries that have not gone around the circle. Return None if they are not in
        the order in which they were passed on.
        """
        at, sender = self.at, items[0].at
        kept, last = [items[0]], sender
        for item in items[1:]:
            place = item.at
            if place == at or (
                between(sender, place, at) if leftward else between(at, place, sender)
            ):
                # This entry has gone around the circle, and so have all that come after it.
                break
            if not (between(at, place, last) if leftward else between(last, place, at)):
                return None
            kept.append(item)
            last = place
        return kept

    # ------------------------------------------------------------ Figure 2 (b): emission

    def start(self, now: Micros) -> None:
        """Begin to gossip at level 0, first at once and then every period."""
        self.times[0] = self._soon = now

    @property
    def next_at(self) -> Micros:
        soon = self._soon if self._soon < self.check_at else self.check_at
        return soon if soon < self.lower else self.lower

    def due(self, now: Micros) -> list[tuple[int, Position, tuple[Item, ...]]]:
        """Return (level, receiver, entries) of the messages that are to be sent now."""
        found: list[tuple[int, Position, tuple[Item, ...]]] = []
        if self.times[0] <= now:
            self._rounds += 1
            if self._rounds % EXPIRE_EVERY == 0:
                self._expire(now)
        for level, at in enumerate(self.times):
            if at <= now:
                every = self.config.period * (level + 1)
                self.times[level] = Micros(at + every if at + every > now else now + every)
                link = (self.rights if level % 2 == 0 else self.lefts)[level]
                if link is not None:
                    found.append((level, link.at, self.message(level)))
        self._soon = min(self.times)
        return found

    def message(self, level: int) -> tuple[Item, ...]:
        """Return the entries received during the last period, and the entry itself (lines 4 to
        6).
        """
        items = (Item(self.at, 0), *self.out[level])
        self.out[level] = ()
        return items

    def prompts(self, now: Micros) -> list[tuple[int, Position, tuple[Item, ...]]]:
        """Return messages, as ``due`` does, of levels that do not wait for their period. The links
        of these levels have just changed.
        """
        fresh, self.fresh = self.fresh, {}
        found: list[tuple[int, Position, tuple[Item, ...]]] = []
        for level, is_new in fresh.items():
            link = (
                (self.rights if level % 2 == 0 else self.lefts)[level]
                if level < len(self.rights)
                else None
            )
            if link is None or not (is_new or self._rng.random() * self.config.k**level < MOVES):
                continue
            since, count = self._prompted.get(level, (now, 0))
            if now - since >= self.config.period * (level + 1):
                since, count = now, 0
            if count < PROMPTS:
                self._prompted[level] = (since, count + 1)
                found.append((level, link.at, self.present(level)))
        return found

    def present(self, level: int) -> tuple[Item, ...]:
        """Return the content of a message of this level out of turn. It is the entry itself and, at
        the prompt pace, the entries that it has to pass on.
        """
        self.fresh.pop(level, None)
        link = (self.lefts if level % 2 == 0 else self.rights)[level]
        if link is None or self.config.pace != "prompt":
            return (Item(self.at, 0),)
        heard = self._heard.get(level, ())
        return (
            Item(self.at, 0),
            *(heard if heard and heard[0].at == link.at else (Item(link.at, 1),)),
        )

    def _expire(self, now: Micros) -> None:
        """Drop the long links that no gossip renews any longer. The other end of such a link has
        moved or gone, or the list is too short for the level.
        """
        for level, rightward, link in self.links():
            if level and now - link.heard > self.config.stale * self.config.period * (level + 1):
                self.drop(level, rightward)
        while len(self.lefts) > 1 and self.lefts[-1] is None and self.rights[-1] is None:
            for side in (self.lefts, self.rights, self.out, self.times):
                side.pop()
            for known in (self._acked, self._heard, self._prompted):
                known.pop(len(self.lefts), None)

    # ------------------------------------------------------------ midpoints of far spans

    def behind(self, level: int, rightward: bool) -> tuple[Position, ...]:
        """Return the entries behind this one, as seen by a neighbour of this level.

        For k = 2 the neighbour of the next lower level is the middle of the span that begins here.
        For a greater k the middle is some neighbours of the same level away.
        """
        side = self.rights if rightward else self.lefts
        if self.config.k == 2:
            link = side[level - 1] if 0 < level <= len(side) else None
            return (link.at,) if link is not None else ()
        link = side[level] if level < len(side) else None
        return (link.at, *link.chain)[: self._span - 1] if link is not None else ()

    def answer(self, level: int) -> tuple[Position, ...] | None:
        """Return the chain that acknowledges a message of a higher level. Return None if the sender
        has had that chain lately.
        """
        chain = self.behind(level, level % 2 == 0)
        told, count = self._acked.get(level, _NOTHING)
        if count % 8 and chain == told:
            self._acked[level] = (told, count + 1)
            return None
        self._acked[level] = (chain, 1)
        return chain

    def acknowledged(self, level: int, at: Position, chain: tuple[Position, ...]) -> None:
        self.chain(level, level % 2 == 0, at, chain)

    def chain(
        self, level: int, rightward: bool, at: Position, behind: tuple[Position, ...]
    ) -> None:
        """Remember the entries that lie behind that neighbour."""
        side = self.rights if rightward else self.lefts
        link = side[level] if level < len(side) else None
        if link is not None and link.chain != behind and link.at == at:
            link.chain = behind
            self._points = None

    def follow(self, successors: list[Position]) -> None:
        """Take this successor list, which also says which entries lie behind the right
        neighbour.
        """
        self.successors = successors
        if self.config.k > 2 and successors:
            self.chain(0, True, successors[0], tuple(successors[1 : self._span]))

    def table(self) -> tuple[list[Position], list[Position | None]]:
        """Return all known places, sorted, this entry's included. Return with each the middle of
        the span up to the next one, if it is known.
        """
        if self._points is None:
            self._points = sorted({self.at, *(link.at for _, _, link in self.links())})
            self._mids = [None] * len(self._points)
            for _level, rightward, link in self.links():
                self._place_mid(link, rightward)
        return self._points, self._mids

    def _place_mid(self, link: Link, rightward: bool) -> None:
        assert self._points is not None
        wanted = 0 if self.config.k == 2 else self._span - 2
        if len(link.chain) <= wanted:
            return
        mid = link.chain[wanted]
        around = between(link.at, mid, self.at) if rightward else between(self.at, mid, link.at)
        if not around:
            # The span reaches past this entry, so its middle is of no use.
            return
        arc = bisect_left(self._points, mid)
        if arc < len(self._points) and self._points[arc] == mid:
            return
        # The arc -1 leads from the last place to the first.
        arc -= 1
        starts = self._points[arc] if rightward else self._points[(arc + 1) % len(self._points)]
        if self._mids[arc] is None or starts == link.at:
            self._mids[arc] = mid

    def learn(self, places: Sequence[Position], rightward: bool, now: Micros) -> None:
        """Begin with the long links of the left neighbour, which are wrong by one entry at most."""
        for level, at in enumerate(places, start=1):
            if at == self.at or level >= LEVELS_MAX:
                return
            self.put(level, rightward, at, now)


def insert(successors: list[Position], at: Position, most: int) -> list[Position]:
    """Return the list with one more position in front."""
    return [at, *(place for place in successors if place != at)][:most]


# ------------------------------------------------------------ where an event goes next


class Take(Struct, frozen=True, gc=False):
    high: Position


class Empty(Struct, frozen=True, gc=False):
    low: Position
    high: Position
    # The part lies in the gap at the right of this entry if true, and else in that at its left.
    rightward: bool
    # The part is all that the walk owned.
    whole: bool


class Forward(Struct, frozen=True, gc=False):
    to: Position
    low: Position
    high: Position
    bound: Position | None


class Unsure(Struct, frozen=True, gc=False):
    low: Position
    high: Position


Step = Take | Empty | Forward | Unsure


def spread(entry: Entry, low: Position, high: Position, bound: Position | None) -> list[Step]:
    """Cut the interval into steps. ``bound`` is an entry at the other side of the interval. The
    walk has been there, or knows of it, and does not go back past it.
    """
    at = entry.at
    if low <= at < high:
        return _inside(entry, low, high)
    empty = _gap(entry, low, high)
    if empty is not None:
        return [empty]
    if entry.config.routing == "paper":
        return [Forward(_greedy(entry, low, high), low, high, None)]
    points, _ = entry.table()
    first, end = bisect_left(points, low), bisect_left(points, high)
    if first < end:
        return _share(points[first:end], low, high)
    to, other = _nearer(entry, low, bound)
    return [Forward(to, low, high, other)]


def toward(
    entry: Entry, place: Position, bound: Position | None
) -> tuple[Position, Position | None] | None:
    """Return the next entry on the way to the one at the left of a place, and the new bound.
    Return None if this entry is the one at the left of the place.
    """
    at, right = entry.at, entry.right
    if right == at or place in (at, right) or between(at, place, right):
        return None
    return _nearer(entry, place, bound)


def _nearer(
    entry: Entry, place: Position, bound: Position | None
) -> tuple[Position, Position | None]:
    """Return the nearer of the two known entries around a place, and the other one as the new
    bound.

    Every step goes strictly between the last entry and its bound, so a walk ends even while the
    links are being rebuilt.
    """
    at, (points, mids) = entry.at, entry.table()
    first = bisect_left(points, place)
    before, after = points[first - 1], points[first % len(points)]
    # An entry that looks for its own place wants the one before it.
    if after == place:
        after = points[(first + 1) % len(points)]
    # A walk has no use for a known entry beyond the bound. It neither goes there, nor takes it as
    # the next bound.
    fresh_before = bound is None or not between(bound, place, at) or between(bound, before, at)
    fresh_after = bound is None or not between(at, place, bound) or between(at, after, bound)
    can_before, can_after = fresh_before and before != at, fresh_after and after not in (at, place)
    mid = mids[first - 1]
    if can_before and can_after:
        can_before = mid is None or _is_left(before, place, mid)
    if can_before:
        return before, after if fresh_after or after == at else bound
    if can_after:
        return after, before if fresh_before or before == at else bound
    return (entry.right if before == at else entry.left), bound


def _is_left(before: Position, place: Position, mid: Position) -> bool:
    """Return whether the place comes before the middle of an arc that begins at ``before``."""
    if before < mid:
        return before < place <= mid
    return place > before or place <= mid


def _inside(entry: Entry, low: Position, high: Position) -> list[Step]:
    at, right, left = entry.at, entry.right, entry.left
    steps: list[Step] = []
    points = entry.table()[0] if entry.config.routing == "gossamer" else sorted({at, left, right})
    here, first, end = bisect_left(points, at), bisect_left(points, low), bisect_left(points, high)
    after, before = points[here + 1 : end], points[first:here]
    until = after[0] if after else high
    steps.append(Take(until) if _sure(entry, rightward=True) else Unsure(at, until))
    for number, place in enumerate(after):
        steps.append(
            Forward(place, place, after[number + 1] if number + 1 < len(after) else high, None)
        )
    if before:
        for number, place in enumerate(before):
            until = before[number + 1] if number + 1 < len(before) else at
            steps.append(Forward(place, place if number else low, until, None))
    elif low < at:
        sure = _sure(entry, rightward=False)
        steps.append(Empty(low, at, False, False) if sure else Unsure(low, at))
    return steps


def _sure(entry: Entry, *, rightward: bool) -> bool:
    link = (entry.rights if rightward else entry.lefts)[0]
    return link.sure if link is not None else entry.is_placed


def _gap(entry: Entry, low: Position, high: Position) -> Empty | Unsure | None:
    """Return a step if the interval lies in one of the gaps beside this entry."""
    at = entry.at
    for rightward, neighbour in ((True, entry.right), (False, entry.left)):
        left, right = (at, neighbour) if rightward else (neighbour, at)
        if left < right:
            within = left < low and high <= right
        # This is the gap between the last entry and the first. The gap of a lone entry is the whole
        # circle.
        else:
            within = left < low or high <= right
        if within:
            return (
                Empty(low, high, rightward, True)
                if _sure(entry, rightward=rightward)
                else Unsure(low, high)
            )
    return None


def _share(places: list[Position], low: Position, high: Position) -> list[Step]:
    """Give each of these entries of the interval the part from itself to the next entry. The first
    one also gets the part before it.
    """
    cuts = [low, *places[1:], high]
    return [
        Forward(place, cuts[number], cuts[number + 1], None) for number, place in enumerate(places)
    ]


def _greedy(entry: Entry, low: Position, high: Position) -> Position:
    """Return the farthest neighbour that is not past the goal, as the seed plainly does."""
    at, points = entry.at, entry.table()[0]
    if at < low:
        first = bisect_left(points, low)
        if first < len(points) and points[first] < high:
            # This entry is in the interval, so the walk need not stop before it.
            return points[first]
        return points[first - 1] if points[first - 1] > at else entry.right
    end = bisect_left(points, high)
    if end and points[end - 1] >= low:
        return points[end - 1]
    return points[end] if points[end] < at else entry.left
