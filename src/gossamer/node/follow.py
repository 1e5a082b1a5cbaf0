"""Following: a subscription that misses nothing, or reports it as a gap.

It stands behind ``name=``, ``since=``, ``ordered=`` and ``gaps=``. When the subscription comes into
force, every live publisher is asked for its past (history.py) from this subscription's position
with it (progress.py). Events that come live meanwhile, or come twice, are recognised by their ids.
A publisher that joins later is asked as well. Events that a publisher no longer has, and a
publisher that cannot be asked, become a ``Gap`` in the iteration. When other nodes had declared
this node dead, all publishers are asked again. A publisher that had been declared dead is asked
again too.

With a tap (durable.py) events are handed over, and reported, once they are on disk.

With ``ordered=`` an event waits until all earlier events of its publisher can have come
(progress.py). While a publisher's history is still being read, its new events wait behind it. If
too many wait, the publisher is held back (local.py).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from gossamer.filters import Event
from gossamer.machine import MILLISECOND, NEVER, SECOND, Deliver, Micros, Note, Peer, Token
from gossamer.node.durable import Gap, Stored, Tap
from gossamer.node.history import AskPast, Past, PastPart
from gossamer.node.progress import EVERYTHING, LAG, WAITING_MAX, Lot, Progress
from gossamer.node.retention import SEQUENCE_MAX, Id
from gossamer.overlay.batch import Batch
from gossamer.overlay.interest.record import ViewChange
from gossamer.trace import Delivered, Dropped, Gapped, Rejected, hex_peer

if TYPE_CHECKING:
    from gossamer.node.follows import Follows
    from gossamer.node.local import LocalSubscription
    from gossamer.node.missed import Missed

# The first wait for an answer. It doubles each time.
ASK_AGAIN = Micros(500 * MILLISECOND)
ASK_AGAIN_MAX = Micros(4 * SECOND)
# If an answer takes longer, this says nothing about the next one.
TOOK_MAX = Micros(15 * SECOND)
# A publisher that has not answered by then becomes a gap, and is asked on.
ABSENT = Micros(10 * SECOND)
# If an event waits this long for its turn, its publisher is asked for its floor.
STUCK = Micros(50 * MILLISECOND)
# The publishers with which a subscription knows its position.
PUBLISHERS_MAX = 4096
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The year 10,000 in Unix microseconds. A peer may claim any time.
_UNTIL_MAX = 253_402_300_800_000_000
_encoder = msgspec.msgpack.Encoder()


class Wish(Struct, frozen=True):
    """The wishes of a subscription beyond live events."""

    # It is durable under this name.
    name: str = ""
    # History from this moment on (Unix microseconds). 0: all that is retained.
    start: int | None = None
    ordered: bool = False
    gaps: bool = False

    def __bool__(self) -> bool:
        return bool(self.name or self.ordered or self.gaps or self.start is not None)


class Follow:
    def __init__(
        self, hub: Follows, subscription: LocalSubscription, wish: Wish, tap: Tap | None, unix: int
    ) -> None:
        self._hub, self.subscription, self.wish, self.tap = hub, subscription, wish, tap
        self.publishers: dict[int, Progress] = {}
        self.in_force = False
        self.gaps = 0
        # Events that were handed over before their turn, because too many waited.
        self.early = 0
        # Its past begins now.
        self._is_fresh = wish.start is None and (tap is None or tap.is_new)
        self._start = (
            wish.start
            if wish.start is not None
            else tap.about.created_at
            if tap is not None
            else unix
        )
        self._asks_all = bool(wish.name or wish.gaps or wish.start is not None)
        self._holds = wish.ordered or (wish.start is not None and tap is None)
        self._due: list[tuple[Micros, int]] = []
        # Publishers that have more events, for when the consumer has taken some.
        self._parked: dict[int, None] = {}
        # Events and gaps on their way to the disk.
        self._ready: dict[Token, list[Lot | Gap]] = {}
        # The number of events among them.
        self.storing = 0
        # The number of events that wait for their turn, of all publishers.
        self._waits = 0
        if tap is not None:
            tap.open()
            self._restore(tap)

    def _restore(self, tap: Tap) -> None:
        for publisher, place in tap.positions.items():
            progress = self.publishers[publisher] = Progress((place.incarnation, place.sequence))
            progress.is_gone, progress.release = place.is_gone, progress.position
            progress.has_published = place.has_published
        for stored in tap.remembered():
            self._progress(stored.publisher).take(stored.incarnation, list(stored.sequences))
        again: list[Lot | Gap] = []
        for stored in tap.stored.values():
            if stored.gap is not None:
                again.append(stored.gap)
                continue
            try:
                rows = self.subscription.topic.packed.decode(stored.rows)
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                again.append(self._unreadable(tap, stored))
            else:
                again += self._unacked(tap, self._lot(stored, rows))
        self._turn(again)

    @staticmethod
    def _unacked(tap: Tap, lot: Lot) -> list[Lot]:
        """The events of a lot that were not acknowledged, as a lot for each run of them."""
        runs: list[list[int]] = []
        for place, event in enumerate(lot.events):
            if tap.is_acked(event.offset):
                continue
            if runs and runs[-1][1] == place:
                runs[-1][1] += 1
            else:
                runs.append([place, place + 1])
        return [
            Lot(
                lot.progress,
                lot.incarnation,
                lot.sequences[a:b],
                lot.events[a:b],
                lot.hops,
                again=True,
            )
            for a, b in runs
        ]

    def _unreadable(self, tap: Tap, stored: Stored) -> Gap:
        """A gap for events on disk that the topic's schema cannot read.

        One gap under their last offset stands for all of them.
        """
        tap.settle(stored.offset, stored.end - 2)
        after = (stored.incarnation, stored.sequences[0] - 1)
        before = (stored.incarnation, stored.sequences[-1] + 1)
        reason = "they were stored under another schema of the topic"
        return Gap(
            self.subscription.topic.name, stored.publisher, after, before, reason, stored.end - 1
        )

    def refused(self, batch: Batch, reason: str) -> None:
        """A live batch has come that this node cannot read. The subscription may have wanted
        some of it.
        """
        after = (batch.incarnation, batch.first - 1)
        before = (batch.incarnation, batch.first + batch.count)
        self._gap(batch.publisher, after, before, reason)

    def arrived(
        self, batch: Batch, rows: Any, numbers: Sequence[int], wanted: Sequence[int], now: Micros
    ) -> None:
        """A live batch has come, as rows or columns.

        ``numbers`` are the numbers of its events, and ``wanted`` the places of the wanted ones.
        """
        incarnation = batch.incarnation
        progress = self._meet(batch, now)
        if not progress.has_published:
            progress.has_published = True
            self._save(batch.publisher, progress)
        fresh = [place for place in wanted if not progress.had((incarnation, numbers[place]))]
        if fresh:
            if not isinstance(rows, list):
                rows = self.subscription.topic.packed.rows(rows)
            data = batch.rows if len(fresh) == len(rows) else None
            sequences = tuple([numbers[place] for place in fresh])
            self._take(
                progress,
                batch.publisher,
                incarnation,
                sequences,
                [rows[place] for place in fresh],
                data,
                batch.hops,
            )
        if progress.is_level:
            if incarnation == progress.trusted:
                if progress.hear((incarnation, batch.floor), now):
                    self._save(batch.publisher, progress)
                if (incarnation, batch.floor) > progress.release:
                    # Its floors come, so it is not given up for a question without an answer.
                    progress.attempts = min(progress.attempts, 1)
                if self._holds:
                    self._release(
                        progress, (incarnation, batch.floor) if self.wish.ordered else EVERYTHING
                    )
            elif incarnation > progress.trusted:
                # Events of an earlier life may be on their way.
                progress.trusted = 0
                self._schedule(
                    batch.publisher, progress, Micros(now + (STUCK if self._holds else SECOND))
                )
            if progress.waits:
                self._schedule(batch.publisher, progress, Micros(now + STUCK))
            elif fresh:
                self._schedule(batch.publisher, progress, Micros(now + LAG))

    def _meet(self, batch: Batch, now: Micros) -> Progress:
        progress = self.publishers.get(batch.publisher)
        if progress is None:
            progress = self._progress(batch.publisher)
            if not self._asks_all and batch.incarnation == 1:
                # In its first life nothing of an earlier one can be on its way, so its own floor is
                # enough.
                progress.advance((1, batch.floor - 1))
                progress.is_level = progress.covered = True
                progress.trusted = 1
            elif self.in_force:
                progress.baseline, progress.covered = not self._asks_all, True
                self._begin(batch.publisher, progress, now)
        return progress

    def _take(
        self,
        progress: Progress,
        publisher: int,
        incarnation: int,
        sequences: tuple[int, ...],
        rows: list[tuple[Any, ...]],
        data: bytes | None,
        hops: int,
    ) -> None:
        """Takes new events. They count as arrived, and are handed over in their turn."""
        progress.take(incarnation, list(sequences))
        tap = self.tap
        if tap is None:
            stored = Stored(0, publisher, incarnation, hops, sequences, b"")
            self._turn([self._lot(stored, rows)])
            return
        stored = tap.store(
            publisher,
            incarnation,
            hops,
            sequences,
            data if data is not None else _encoder.encode(rows),
        )
        lot = self._lot(stored, rows)
        lot.is_stored = False
        self.storing += len(rows)
        self._ready.setdefault(self._hub.token(tap), []).append(lot)
        if self._holds:
            self._wait(lot)

    def _lot(self, stored: Stored, rows: list[tuple[Any, ...]]) -> Lot:
        topic, values = self.subscription.topic.name, self.subscription.topic.values
        publisher, incarnation, offset = stored.publisher, stored.incarnation, stored.offset
        events = [
            Event(
                topic,
                publisher,
                incarnation,
                sequence,
                values(row),
                offset + place if offset else 0,
            )
            for place, (sequence, row) in enumerate(zip(stored.sequences, rows, strict=True))
        ]
        progress = self._progress(publisher)
        return Lot(progress, incarnation, stored.sequences, events, stored.hops)

    def stored(self, token: Token) -> None:
        """The events that waited for this Store are on disk."""
        ready = self._ready.pop(token, [])
        for one in ready:
            if isinstance(one, Lot):
                one.is_stored = True
                self.storing -= len(one.events)
        self._turn(ready, waits=self._holds)

    def _turn(self, ready: list[Lot | Gap], *, waits: bool = False) -> None:
        """Hands events over, or lets them wait for their turn. With ``waits`` they wait already."""
        if not self._holds:
            self._hand_over(ready)
            return
        touched: dict[int, Progress] = {}
        for one in ready:
            if isinstance(one, Lot):
                touched[id(one.progress)] = one.progress
                if not waits:
                    self._wait(one)
        out: list[Lot | Gap] = [one for one in ready if isinstance(one, Gap)]
        for progress in touched.values():
            out += self._due_now(progress)
        self._hand_over(out)

    def _wait(self, lot: Lot) -> None:
        lot.progress.wait(lot)
        self._waits += len(lot.events)

    def _due_now(self, progress: Progress, release: Id = (0, 0)) -> list[Lot]:
        """The waiting events that may be handed over now."""
        before = progress.waits
        out = progress.let_go(release)
        while progress.waits > WAITING_MAX:
            self.early += progress.overflow()
            more = progress.let_go(release)
            if not more:
                break
            out += more
        self._waits -= before - progress.waits
        return out

    def _release(self, progress: Progress, release: Id) -> None:
        self._hand_over(self._due_now(progress, release))

    def _hand_over(self, out: Sequence[Lot | Gap]) -> None:
        if not out:
            return
        tap, hub, number = self.tap, self._hub, self.subscription.number
        handed: list[Event | Gap] = []
        for one in out:
            if isinstance(one, Lot):
                handed += one.events
                if tap is not None:
                    tap.hand(one.events[0].offset, one.events[-1].offset)
            else:
                handed.append(one)
                if tap is not None:
                    tap.hand(one.offset, one.offset)
        self.subscription.backlog += len(handed)
        if self.subscription.ledger is not None:
            # The ledger has a gap under this id.
            self.subscription.ledger.hand(
                [one.id if isinstance(one, Event) else (0, 0, 0) for one in handed]
            )
        hub.out.append(Deliver(number, handed))
        if hub.tracing:
            for one in out:
                if isinstance(one, Lot):
                    for event in one.events:
                        id = (hex_peer(event.publisher), event.incarnation, event.sequence)
                        hub.out.append(Note(Delivered(number, *id, one.hops, one.again)))

    def waiting(self) -> list[tuple[int, int, int]]:
        """Events that have come and wait for their turn."""
        return [
            (publisher, *id)
            for publisher, progress in self.publishers.items()
            for id in progress.waiting()
        ]

    @property
    def behind_max(self) -> int:
        """The most events that may be ``behind``. Beyond it their publishers are held back."""
        return self._hub.limit(self.subscription) if self.tap is not None else WAITING_MAX // 2

    def is_level(self, publisher: int) -> bool:
        """Whether this publisher's new events wait for none of its history."""
        progress = self.publishers.get(publisher)
        return progress is None or progress.is_level

    @property
    def behind(self) -> int:
        """The number of live events that wait until their publisher's history has been read."""
        if not self._waits:
            return 0
        return sum(one.waits for one in self.publishers.values() if not one.is_level)

    def _gap(
        self, publisher: int, after: Id | None, before: Id | None, reason: str, until: int = 0
    ) -> None:
        """``until``: when the last lost event was published (Unix microseconds; 0: not known)."""
        self.gaps += 1
        hub, topic = self._hub, self.subscription.topic.name
        when = _EPOCH + timedelta(microseconds=until) if 0 < until < _UNTIL_MAX else None
        gap = Gap(topic, publisher, after, before, reason, until=when)
        hub.out.append(Note(Gapped(self.subscription.number, hex_peer(publisher), reason)))
        if self.tap is None:
            self._hand_over([gap])
        else:
            gap = self.tap.store_gap(gap)
            self._ready.setdefault(hub.token(self.tap), []).append(gap)

    def _progress(self, publisher: int) -> Progress:
        progress = self.publishers.get(publisher)
        if progress is None:
            if len(self.publishers) >= PUBLISHERS_MAX:
                out = next(
                    (peer for peer, one in self.publishers.items() if one.is_gone),
                    next(iter(self.publishers)),
                )
                if not self.publishers[out].is_gone:
                    reason = (
                        f"more than {PUBLISHERS_MAX} publishers: "
                        f"the position with {hex_peer(out)} is forgotten"
                    )
                    self._hub.out.append(Note(Dropped("position", 1, reason)))
                self._release(self.publishers.pop(out), EVERYTHING)
                if self.tap is not None:
                    self.tap.misplace(out)
            progress = self.publishers[publisher] = Progress()
        return progress

    def entered(self, now: Micros) -> None:
        """The subscription is in force.

        From now on everything comes live, so earlier events can be asked for.
        """
        self.in_force = True
        fresh, self._is_fresh = self._is_fresh, False
        if self._asks_all:
            for member in self._hub.members():
                self._progress(member)
        for peer, progress in self.publishers.items():
            progress.baseline = fresh
            self._begin(peer, progress, now)

    def lapsed(self) -> None:
        """Other nodes had declared this node dead, and gone on without it."""
        self.in_force = False
        self._due.clear()
        self._parked.clear()
        for progress in self.publishers.values():
            progress.doubt()
            # That wait is over. If it stayed, the publisher would never be asked again.
            progress.ask_at = Micros(0)

    def changed(self, change: ViewChange, now: Micros) -> None:
        progress = self.publishers.get(change.peer)
        if change.after is None:
            was_failed = change.reason == "failed"
            if was_failed and progress is None and self._asks_all and not self._is_fresh:
                # It was to be asked for its past.
                progress = self._progress(change.peer)
            if progress is not None:
                if change.reason == "left":
                    progress.is_gone = progress.is_level and progress.covered
                else:
                    is_asked = not (progress.baseline or progress.covered or self._is_fresh)
                    progress.is_failed = was_failed and is_asked and progress.first_newest is None
                    # It may live on where this node cannot see it.
                    progress.covered = False
                progress.baseline = False
                self._save(change.peer, progress)
                self._release(progress, EVERYTHING)
            return
        is_new = change.before is None or change.before.life != change.after.life
        if is_new and self.in_force and (self._asks_all or progress is not None):
            if progress is None:
                # It knew of this node before it published anything.
                progress = self._progress(change.peer)
                progress.covered = True
            else:
                # It may have declared this node dead, and not know yet that it lives.
                progress.doubted_until = Micros(now + LAG)
            progress.is_gone = progress.is_failed = False
            self._begin(change.peer, progress, now)

    def missed(self, message: Missed, now: Micros) -> None:
        """Events were completed without this node, so their publisher is asked for them."""
        if not self.in_force:
            # When it is in force again, all publishers are asked.
            return
        publisher, incarnation = message.publisher, message.incarnation
        is_known = publisher in self.publishers or self._hub.is_member(publisher)
        position = self._progress(publisher).position if is_known else EVERYTHING
        if position >= (incarnation, message.first):
            # This node has heard of it too late, or no node can be asked.
            after, last = (incarnation, message.first - 1), (incarnation, message.last)
            reason = "this node was cut off, and they were completed without it"
            self._gap(publisher, after, (incarnation, min(position, last)[1] + 1), reason)
        if position < (incarnation, message.last):
            progress = self.publishers[publisher]
            progress.doubt()
            progress.baseline, progress.has_published = False, True
            self._save(publisher, progress)
            self._begin(publisher, progress, now)

    def _begin(self, peer: int, progress: Progress, now: Micros) -> None:
        """Asks for missed events."""
        progress.is_level, progress.trusted = False, 0
        progress.began_at, progress.attempts = now, 0
        # The answers to earlier questions no longer fit.
        progress.asked.clear()
        self._schedule(peer, progress, now)

    def _schedule(self, peer: int, progress: Progress, at: Micros) -> None:
        if not self.in_force or (progress.ask_at and (progress.asked or progress.ask_at <= at)):
            # There is one wait for each publisher. While a question waits for its answer, it is
            # that one.
            return
        progress.ask_at = at
        heapq.heappush(self._due, (at, peer))

    @property
    def deadline(self) -> Micros:
        return self._due[0][0] if self._due else NEVER

    def wake(self, now: Micros) -> None:
        # The disk may have taken some events.
        self.taken(now)
        while self._due and self._due[0][0] <= now:
            at, peer = heapq.heappop(self._due)
            progress = self.publishers.get(peer)
            if progress is None or progress.ask_at != at:
                continue
            progress.ask_at = Micros(0)
            if progress.settle(now):
                self._save(peer, progress)
            if (
                progress.is_level
                and not progress.waits
                and progress.trusted
                and not progress.attempts
            ):
                if not progress.remembered:
                    continue
                if progress.is_settling:
                    self._schedule(peer, progress, Micros(now + LAG))
                    continue
            self._ask(peer, progress, now)

    def linked(self, peer: Peer, now: Micros) -> None:
        """A link came up: a publisher behind it that is waited for is asked at once."""
        progress = self.publishers.get(peer)
        if progress is not None and progress.ask_at:
            progress.ask_at = Micros(0)
            self._schedule(peer, progress, now)

    def _ask(self, peer: int, progress: Progress, now: Micros) -> None:
        # On a slow link an answer takes long, and another question would only make it longer.
        usual = 2 * min(progress.took, TOOK_MAX)
        wait = max(min(ASK_AGAIN << progress.attempts, ASK_AGAIN_MAX), usual)
        is_member = self._hub.is_member(peer)
        absent = max(ABSENT, usual)
        if not progress.is_level and now - progress.began_at >= absent and not progress.is_told:
            self._absent(peer, progress, is_member)
        # Its floor cannot be had.
        if progress.is_level and progress.attempts > 6:
            self._release(progress, EVERYTHING)
            progress.attempts = 0
            progress.asked.clear()
            return
        if not is_member and progress.is_told:
            # It waits until the publisher joins.
            return
        progress.attempts = min(progress.attempts + 1, 16)
        progress.ask(now)
        self._schedule(peer, progress, Micros(now + wait))
        # An ordered subscription that begins takes the events that are on their way first. Else
        # they could come after later ones: when it is stopped soon, and then asks for the events
        # that it missed.
        is_new = progress.baseline and self.wish.ordered
        rows = not progress.is_level and (is_new or not progress.baseline)
        start = self._start if progress.position == (0, 0) else 0
        ask = AskPast(
            self.subscription.topic.name,
            self.subscription.number,
            progress.serial,
            progress.position,
            start,
            rows,
            self.subscription.filter.text,
            is_new,
        )
        self._hub.ask(Peer(peer), ask, now)

    def _absent(self, peer: int, progress: Progress, is_member: bool) -> None:
        progress.is_told = True
        is_unreadable = self._hub.is_in_conflict(self.subscription.topic.name)
        is_known = is_member or progress.has_published
        if not (progress.baseline or progress.is_gone) and (
            is_unreadable or (is_known and not progress.covered)
        ):
            reason = "the publisher does not answer" if is_member else "the publisher is not there"
            if is_unreadable:
                reason = "the topic's schema is in conflict"
            self._gap(peer, progress.position if progress.position > (0, 0) else None, None, reason)
        if not is_member:
            progress.is_gone = True
            self._save(peer, progress)
        self._release(progress, EVERYTHING)

    def past(self, peer: Peer, past: Past, now: Micros) -> None:
        progress = self.publishers.get(peer)
        asked_at = progress.asked.get(past.serial) if progress is not None else None
        if progress is None or asked_at is None or not self.in_force:
            # No question waits for this answer, or it is repeated.
            return
        if self._hub.is_in_conflict(past.topic):
            # The rows may be of another schema, so they are asked for again.
            return
        read = self._read(progress, past)
        if isinstance(read, str):
            self._hub.out.append(
                Note(Rejected(hex_peer(peer), f"the past of {past.topic!r}: {read}"))
            )
            return
        progress.attempts, progress.is_told, progress.ask_at = 0, False, Micros(0)
        progress.took = Micros(now - asked_at)
        progress.asked.clear()
        progress.is_failed = False
        if self._hub.is_member(peer):
            # It may have come back while this node was away.
            progress.is_gone = False
        progress.has_published |= past.newest > (0, 0)
        progress.left = past.left
        if progress.first_newest is None:
            progress.first_newest = past.newest
        if not progress.is_level:
            position = past.through
            if self._is_lost(progress, past):
                after = progress.position if progress.position > (0, 0) else None
                incarnation, sequence = past.trimmed
                before = (
                    (incarnation, sequence + 1) if sequence < SEQUENCE_MAX else (incarnation + 1, 1)
                )
                reason = "the publisher retains nothing"
                if past.parts or past.through > past.trimmed:
                    reason = "the publisher retains nothing that old"
                self._gap(peer, after, before, reason, past.trimmed_at)
            for part, rows in read:
                places = list(part.places or range(part.count))
                fresh = [
                    n
                    for n, place in enumerate(places)
                    if not progress.had((part.incarnation, part.first + place))
                ]
                if fresh:
                    data = part.rows if len(fresh) == len(rows) else None
                    chosen = tuple([part.first + places[n] for n in fresh])
                    self._take(
                        progress, peer, part.incarnation, chosen, [rows[n] for n in fresh], data, 1
                    )
            progress.advance(position)
            self._save(peer, progress)
            if self._holds:
                self._release(progress, progress.position)
            if not past.done:
                self._more(peer, progress, now)
                return
        # Until the publisher knows of this node again, its events can be had only by asking.
        if now < progress.doubted_until:
            progress.began_at = now
            self._schedule(peer, progress, progress.doubted_until)
            return
        self._level(peer, progress, past, now)
        self._save(peer, progress)

    def _read(
        self, progress: Progress, past: Past
    ) -> list[tuple[PastPart, list[tuple[Any, ...]]]] | str:
        """The parts with their rows, or the error in them. They come from a peer."""
        read: list[tuple[PastPart, list[tuple[Any, ...]]]] = []
        last = (0, 0)
        try:
            for part in past.parts:
                rows = self.subscription.topic.packed.decode(part.rows)
                places = part.places or range(part.count)
                if (
                    len(rows) != len(places)
                    or list(places) != sorted({*places})
                    or places[-1] >= part.count
                ):
                    return "its places do not fit its rows"
                if not last < (part.incarnation, part.first) <= past.through:
                    return "it is not in order"
                last = (part.incarnation, part.first + part.count - 1)
                read.append((part, rows))
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            return str(error)
        return read

    def _is_lost(self, progress: Progress, past: Past) -> bool:
        """Whether there are events between this position and the first that the publisher still
        has.
        """
        if progress.covered or progress.baseline or past.trimmed <= progress.position:
            return False
        if progress.position > (0, 0):
            return True
        return self._start > 0 and past.trimmed_at >= self._start

    def _more(self, peer: int, progress: Progress, now: Micros) -> None:
        progress.attempts = 0
        progress.began_at = now
        if self._is_ahead:
            # The consumer sets the pace.
            self._parked[peer] = None
        else:
            self._schedule(peer, progress, now)

    @property
    def _is_ahead(self) -> bool:
        """Whether more history would come faster than disk and consumer take it."""
        limit = self._hub.limit(self.subscription)
        return self.subscription.backlog + self.storing > limit // 2

    @property
    def parked(self) -> int:
        """The number of publishers that have more events.

        They are asked for them when the consumer has taken, or acknowledged, some events.
        """
        return len(self._parked)

    def taken(self, now: Micros) -> None:
        """The consumer has taken, or acknowledged, some events."""
        if self._parked and not self._is_ahead:
            parked, self._parked = self._parked, {}
            for peer in parked:
                if peer in self.publishers:
                    self.publishers[peer].began_at = now
                    self._schedule(peer, self.publishers[peer], now)

    def _level(self, peer: int, progress: Progress, past: Past, now: Micros) -> None:
        progress.is_level = progress.covered = True
        progress.baseline = False
        progress.trusted = past.floor[0]
        if self._holds:
            self._release(
                progress, max(progress.position, past.floor) if self.wish.ordered else EVERYTHING
            )
            self._hub.loosen(self.subscription)
            if progress.waits:
                self._schedule(peer, progress, Micros(now + STUCK))
        # An idle publisher sends no more floors. It is asked, so that the position gets right.
        if progress.remembered:
            progress.hear(past.floor, now)
            self._schedule(peer, progress, Micros(now + LAG))

    def _save(self, peer: int, progress: Progress) -> None:
        if self.tap is not None:
            is_gone, has_published = progress.is_gone, progress.has_published
            self.tap.place(peer, progress.position, is_gone=is_gone, has_published=has_published)

    @property
    def report_after(self) -> Token:
        """The Store after which the report of the latest events may go. 0: now."""
        return self._hub.storing(self.tap) if self.tap is not None else Token(0)

    def ended(self) -> None:
        """The subscription is gone."""
        self._hub.removed(self.subscription.number)

    def about(self) -> dict[str, Any]:
        tap = self.tap
        found: dict[str, Any] = {
            "publishers": len(self.publishers),
            "behind": sum(not one.is_level and not one.is_gone for one in self.publishers.values()),
            "gaps": self.gaps,
            "parked": self.parked,
        }
        if self._asks_all:
            some = self.publishers.values()
            found |= {
                # Members that do not answer.
                "unreached": sum(one.is_told and not one.is_gone for one in some),
                # Members that died before they had answered.
                "unasked": sum(one.is_failed for one in some),
                # Events that publishers still hold, whatever the filter wants.
                "left": sum(one.left for one in some if not one.is_gone),
                # Publishers with events to come that they had when they first answered.
                "owing": sum(one.is_owing for one in some),
            }
        if tap is not None:
            found |= {
                "name": tap.name,
                "offset": tap.next - 1,
                "acked": tap.acked,
                "unacked": tap.unacked,
                "unacked_max": self._hub.limit(self.subscription),
            }
        if self.wish.ordered:
            found |= {
                "waiting": self._waits,
                "early": self.early,
            }
        return found
