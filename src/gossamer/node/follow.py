"""Following: a subscription that misses nothing, or says so. Behind ``name=``, ``since=``, ``ordered=`` and ``gaps=``.

When the subscription comes into force, every live publisher is asked for its past (history.py) from where this subscription is with
it (progress.py); what comes live meanwhile, or comes twice, is told apart by its id. Whoever joins later is asked as well. What a
publisher no longer has, and a publisher that cannot be asked, become a ``Gap`` in the iteration. When others had taken this node
for dead, it is asked again, and so is a publisher that was.

With a tap (durable.py) events are handed over, and reported, once they are on disk.
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
from gossamer.node.history import Ask, Part, Past
from gossamer.node.progress import EVERYTHING, LAG, Progress
from gossamer.node.retention import SEQUENCE_MAX, Id
from gossamer.overlay.batch import Batch
from gossamer.overlay.interest.record import ViewChange
from gossamer.trace import Delivered, Dropped, Gapped, Rejected, hex_peer

if TYPE_CHECKING:
    from gossamer.node.follows import Follows
    from gossamer.node.local import Subscription

ASK_AGAIN = Micros(500 * MILLISECOND)  # the first wait for an answer; doubled each time
ASK_AGAIN_MAX = Micros(4 * SECOND)
ABSENT = Micros(10 * SECOND)  # who has not answered by then is a gap, and is asked on
STUCK = Micros(
    50 * MILLISECOND
)  # an event that waits for its turn so long: its publisher is asked for its floor
PUBLISHERS_MAX = 4096  # that a subscription knows its position with
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNTIL_MAX = 253_402_300_800_000_000  # the year 10,000: a peer may say anything
_encoder = msgspec.msgpack.Encoder()


class Wish(Struct, frozen=True):
    """What a subscription wants beyond what comes live."""

    name: str = ""  # durable, under this name
    start: int | None = None  # history from here on (Unix microseconds; 0: all that is retained)
    ordered: bool = False
    gaps: bool = False

    def __bool__(self) -> bool:
        return bool(self.name or self.ordered or self.gaps or self.start is not None)


def _id_of(what: Event | Gap) -> tuple[int, int, int]:
    """As the subscription's ledger has it."""
    if isinstance(what, Event):
        return what.publisher, what.incarnation, what.sequence
    return 0, 0, 0


class Follow:
    def __init__(
        self, hub: Follows, subscription: Subscription, wish: Wish, tap: Tap | None, unix: int
    ) -> None:
        self._hub, self.subscription, self.wish, self.tap = hub, subscription, wish, tap
        self.publishers: dict[int, Progress] = {}
        self.in_force = False
        self.gaps = 0
        self.early = 0  # events handed over before their turn, because too many waited
        self._is_fresh = wish.start is None and (tap is None or tap.is_new)  # its past begins now
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
        self._parked: dict[int, None] = {}  # who has more, when the consumer has taken some
        self._ready: dict[Token, list[tuple[Progress | None, Id, Event | Gap, int]]] = {}
        if tap is not None:
            self._restore(tap)

    def _restore(self, tap: Tap) -> None:
        for publisher, place in tap.positions.items():
            progress = self.publishers[publisher] = Progress((place.incarnation, place.sequence))
            progress.is_gone, progress.release = place.is_gone, progress.position
            progress.has_published = place.has_published
        for stored in tap.remembered():
            self._progress(stored.publisher).take(stored.incarnation, list(stored.sequences))
        again: list[tuple[Progress | None, Id, Event | Gap, int]] = []
        for stored in tap.stored.values():
            if stored.gap is not None:
                again.append((None, (0, 0), stored.gap, 0))
                continue
            try:
                rows = self.subscription.topic.packed.decode(stored.rows)
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                again.append((None, (0, 0), self._unreadable(tap, stored), 0))
            else:
                again += self._events(stored, rows)
        again = [one for one in again if not tap.is_acked(one[2].offset)]
        self.subscription.backlog += len(again)
        self._turn(again, again=True)

    def _unreadable(self, tap: Tap, stored: Stored) -> Gap:
        """The disk has events that the topic's schema cannot read.

        One gap under their last offset stands for all of them.
        """
        for offset in range(stored.offset, stored.end - 1):
            tap.ack(offset, through=False)
        after = (stored.incarnation, stored.sequences[0] - 1)
        before = (stored.incarnation, stored.sequences[-1] + 1)
        reason = "they were stored under another schema of the topic"
        return Gap(
            self.subscription.topic.name, stored.publisher, after, before, reason, stored.end - 1
        )

    # ---------------------------------------------------------------- events

    def refused(self, batch: Batch, reason: str) -> None:
        """A batch has come live that this node cannot read; some of it may have been wanted."""
        after = (batch.incarnation, batch.first - 1)
        before = (batch.incarnation, batch.first + batch.count)
        self._gap(batch.publisher, after, before, reason)

    def arrived(
        self, batch: Batch, rows: Any, numbers: Sequence[int], wanted: Sequence[int], now: Micros
    ) -> None:
        """A batch has come live, as rows or columns, with the numbers of its events; those at some places are wanted."""
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
                if self._holds:
                    self._release(
                        progress, (incarnation, batch.floor) if self.wish.ordered else EVERYTHING
                    )
            elif (
                incarnation > progress.trusted
            ):  # is there something of an earlier life on its way?
                progress.trusted = 0
                self._schedule(
                    batch.publisher, progress, Micros(now + (STUCK if self._holds else SECOND))
                )
            if progress.waiting:
                self._schedule(batch.publisher, progress, Micros(now + STUCK))
            elif fresh:
                self._schedule(batch.publisher, progress, Micros(now + LAG))

    def _meet(self, batch: Batch, now: Micros) -> Progress:
        progress = self.publishers.get(batch.publisher)
        if progress is None:
            progress = self._progress(batch.publisher)
            if not self._asks_all and batch.incarnation == 1:
                # Of its first life, so no earlier one has anything on its way: its own floor says it all.
                progress.advance((1, batch.floor - 1))
                progress.is_level = progress.covered = True
                progress.trusted = 1
            elif self.in_force:
                progress.baseline, progress.covered = not self._asks_all, True
                self._begin(batch.publisher, progress, now)
        return progress

    def _take(
        self, progress: Progress, publisher: int, incarnation: int, sequences: tuple[int, ...],
        rows: list[tuple[Any, ...]], data: bytes | None, hops: int,
    ) -> None:  # fmt: skip
        """New events: they count as had, and are handed over when they may be."""
        progress.take(incarnation, list(sequences))
        tap = self.tap
        if tap is None:
            stored = Stored(0, publisher, incarnation, hops, sequences, b"")
            self._turn(self._events(stored, rows))
            return
        stored = tap.store(
            publisher,
            incarnation,
            hops,
            sequences,
            data if data is not None else _encoder.encode(rows),
        )
        self.subscription.backlog += len(rows)  # until they are acknowledged
        self._ready.setdefault(self._hub.token(tap), []).extend(self._events(stored, rows))

    def _events(
        self, stored: Stored, rows: list[tuple[Any, ...]]
    ) -> list[tuple[Progress | None, Id, Event | Gap, int]]:
        topic, values = self.subscription.topic.name, self.subscription.topic.values
        progress = self.publishers[stored.publisher]
        publisher, incarnation, hops, offset = (
            stored.publisher,
            stored.incarnation,
            stored.hops,
            stored.offset,
        )
        return [
            (
                progress,
                (incarnation, sequence),
                Event(
                    topic,
                    publisher,
                    incarnation,
                    sequence,
                    values(row),
                    offset + place if offset else 0,
                ),
                hops,
            )
            for place, (sequence, row) in enumerate(zip(stored.sequences, rows, strict=True))
        ]

    def stored(self, token: Token) -> None:
        """What waited for the disk is on it."""
        ready = self._ready.pop(token, None)
        if ready:
            self._turn(ready)

    def _turn(
        self, ready: list[tuple[Progress | None, Id, Event | Gap, int]], *, again: bool = False
    ) -> None:
        """Hand over, or let wait for its turn."""
        out: list[tuple[Event | Gap, int, bool]] = []
        for progress, id, what, hops in ready:
            if not self._holds or progress is None or id <= progress.release:
                out.append((what, hops, again))
            else:
                progress.wait(id, (what, hops, again))
                for early in progress.overflow():
                    out.append(early)
                    self.early += 1
        self._hand_over(out)

    def _release(self, progress: Progress, release: Id) -> None:
        self._hand_over(progress.let_go(release))

    def _hand_over(self, out: list[tuple[Event | Gap, int, bool]]) -> None:
        if not out:
            return
        number, hub = self.subscription.number, self._hub
        ledger = self.subscription.ledger
        if self.tap is None:
            self.subscription.backlog += len(out)
            if ledger is not None:
                ledger.hand([_id_of(what) for what, _, _ in out])
        hub.out.append(Deliver(number, [what for what, _, _ in out]))
        if hub.tracing:
            for what, hops, again in out:
                if isinstance(what, Event):
                    id = (hex_peer(what.publisher), what.incarnation, what.sequence)
                    hub.out.append(Note(Delivered(number, *id, hops, again)))

    def waiting(self) -> list[tuple[int, int, int]]:
        """Events that have come and wait for their turn."""
        return [
            (publisher, *id)
            for publisher, progress in self.publishers.items()
            for id, _ in progress.waiting
        ]

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
            self._hand_over([(gap, 0, False)])
        else:
            self.subscription.backlog += 1
            gap = self.tap.store_gap(gap)
            self._ready.setdefault(hub.token(self.tap), []).append((None, (0, 0), gap, 0))

    # ---------------------------------------------------------------- publishers

    def _progress(self, publisher: int) -> Progress:
        progress = self.publishers.get(publisher)
        if progress is None:
            if len(self.publishers) >= PUBLISHERS_MAX:
                out = next(
                    (peer for peer, one in self.publishers.items() if one.is_gone),
                    next(iter(self.publishers)),
                )
                if not self.publishers[out].is_gone:
                    reason = f"more than {PUBLISHERS_MAX} publishers: the position with {hex_peer(out)} is forgotten"
                    self._hub.out.append(Note(Dropped("position", 1, reason)))
                self._release(self.publishers.pop(out), EVERYTHING)
                if self.tap is not None:
                    self.tap.misplace(out)
            progress = self.publishers[publisher] = Progress()
        return progress

    def entered(self, now: Micros) -> None:
        """In force: from now on everything comes live, so what was before can be asked for."""
        self.in_force = True
        fresh, self._is_fresh = self._is_fresh, False
        if self._asks_all:
            for member in self._hub.members():
                self._progress(member)
        for peer, progress in self.publishers.items():
            progress.baseline = fresh
            self._begin(peer, progress, now)

    def lapsed(self) -> None:
        """Others had taken this node for dead, and gone on without it."""
        self.in_force = False
        self._due.clear()
        self._parked.clear()
        for progress in self.publishers.values():
            progress.doubt()
            progress.ask_at = Micros(
                0
            )  # that wait is over: one that stayed would keep it from ever being asked again

    def changed(self, change: ViewChange, now: Micros) -> None:
        progress = self.publishers.get(change.peer)
        if change.after is None:
            was_failed = change.reason == "failed"
            if was_failed and progress is None and self._asks_all and not self._is_fresh:
                progress = self._progress(change.peer)  # it was to be asked for its past
            if progress is not None:
                if change.reason == "left":
                    progress.is_gone = progress.is_level and progress.covered
                else:
                    is_asked = not (progress.baseline or progress.covered or self._is_fresh)
                    progress.is_failed = was_failed and is_asked and progress.first_newest is None
                    progress.covered = False  # it may live on where we do not see it
                progress.baseline = False
                self._save(change.peer, progress)
                self._release(progress, EVERYTHING)
            return
        is_new = change.before is None or change.before.life != change.after.life
        if is_new and self.in_force and (self._asks_all or progress is not None):
            if progress is None:  # it knew of us before it published anything
                progress = self._progress(change.peer)
                progress.covered = True
            else:  # it may have taken us for dead as well, and may not have heard yet that we are not
                progress.doubted_until = Micros(now + LAG)
            progress.is_gone = progress.is_failed = False
            self._begin(change.peer, progress, now)

    def _begin(self, peer: int, progress: Progress, now: Micros) -> None:
        """Ask for what was missed."""
        progress.is_level, progress.trusted = False, 0
        progress.began_at, progress.attempts = now, 0
        self._schedule(peer, progress, now)

    def _schedule(self, peer: int, progress: Progress, at: Micros) -> None:
        if not self.in_force or (progress.ask_at and progress.ask_at <= at):
            return  # one wait a publisher
        progress.ask_at = at
        heapq.heappush(self._due, (at, peer))

    @property
    def deadline(self) -> Micros:
        return self._due[0][0] if self._due else NEVER

    def wake(self, now: Micros) -> None:
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
                and not progress.waiting
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
        """A link came up: whoever is waited for behind it is asked at once."""
        progress = self.publishers.get(peer)
        if progress is not None and progress.ask_at:
            progress.ask_at = Micros(0)
            self._schedule(peer, progress, now)

    def _ask(self, peer: int, progress: Progress, now: Micros) -> None:
        wait = min(ASK_AGAIN << progress.attempts, ASK_AGAIN_MAX)
        is_member = self._hub.is_member(peer)
        if not progress.is_level and now - progress.began_at >= ABSENT and not progress.is_told:
            self._absent(peer, progress, is_member)
        if progress.is_level and progress.attempts > 6:  # its floor is not to be had
            self._release(progress, EVERYTHING)
            progress.attempts = 0
            return
        if not is_member and progress.is_told:
            return  # until it joins
        progress.attempts = min(progress.attempts + 1, 16)
        progress.serial += 1
        self._schedule(peer, progress, Micros(now + wait))
        rows = not progress.is_level and not progress.baseline
        start = self._start if progress.position == (0, 0) else 0
        ask = Ask(
            self.subscription.topic.name, self.subscription.number, progress.serial, progress.position, start, rows,
            self.subscription.filter.text,
        )  # fmt: skip
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

    # ---------------------------------------------------------------- answers

    def past(self, peer: Peer, past: Past, now: Micros) -> None:
        progress = self.publishers.get(peer)
        if (
            progress is None
            or not progress.attempts
            or past.serial != progress.serial
            or not self.in_force
        ):
            return  # late, or repeated
        if self._hub.is_in_conflict(past.topic):
            return  # its rows may be of another schema; it is asked for again
        read = self._read(progress, past)
        if isinstance(read, str):
            self._hub.out.append(
                Note(Rejected(hex_peer(peer), f"the past of {past.topic!r}: {read}"))
            )
            return
        progress.attempts, progress.is_told, progress.ask_at = 0, False, Micros(0)
        progress.is_gone = progress.is_failed = False  # it is here, whatever was known of it
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
                reason = "the publisher retains nothing that old" if past.parts or past.through > past.trimmed else (
                    "the publisher retains nothing"
                )  # fmt: skip
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
        if (
            now < progress.doubted_until
        ):  # what it publishes before it knows of us again is to be had only by asking
            progress.began_at = now
            self._schedule(peer, progress, progress.doubted_until)
            return
        self._level(peer, progress, past, now)
        self._save(peer, progress)

    def _read(
        self, progress: Progress, past: Past
    ) -> list[tuple[Part, list[tuple[Any, ...]]]] | str:
        """The parts with their rows, or what is wrong with them: they come from a peer."""
        read: list[tuple[Part, list[tuple[Any, ...]]]] = []
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
        """Whether there is something between where we are and what the publisher still has."""
        if progress.covered or progress.baseline or past.trimmed <= progress.position:
            return False
        if progress.position > (0, 0):
            return True
        return self._start > 0 and past.trimmed_at >= self._start

    def _more(self, peer: int, progress: Progress, now: Micros) -> None:
        progress.attempts = 0
        progress.began_at = now
        if self.subscription.backlog > self._hub.limit(self.subscription) // 2:
            self._parked[peer] = None  # the consumer sets the pace
        else:
            self._schedule(peer, progress, now)

    def taken(self, now: Micros) -> None:
        """The consumer has taken, or acknowledged, some events."""
        if self._parked and self.subscription.backlog <= self._hub.limit(self.subscription) // 2:
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
            if progress.waiting:
                self._schedule(peer, progress, Micros(now + STUCK))
        if (
            progress.remembered
        ):  # an idle publisher says no more floors: it is asked, so that the position is right
            progress.hear(past.floor, now)
            self._schedule(peer, progress, Micros(now + LAG))

    def _save(self, peer: int, progress: Progress) -> None:
        if self.tap is not None:
            is_gone, has_published = progress.is_gone, progress.has_published
            self.tap.place(peer, progress.position, is_gone=is_gone, has_published=has_published)

    @property
    def storing(self) -> Token:
        """After which Store the report of what has just come may go; 0: now."""
        return self._hub.storing(self.tap) if self.tap is not None else Token(0)

    def ended(self) -> None:
        """The subscription is gone."""
        self._hub.removed(self.subscription.number)

    # ---------------------------------------------------------------- about

    def about(self) -> dict[str, Any]:
        tap = self.tap
        found: dict[str, Any] = {
            "publishers": len(self.publishers),
            "behind": sum(not one.is_level and not one.is_gone for one in self.publishers.values()),
            "gaps": self.gaps,
        }
        if self._asks_all:
            some = self.publishers.values()
            found |= {
                # Publishers that have more, when the consumer has taken some.
                "parked": len(self._parked),
                # Members that do not answer.
                "unreached": sum(one.is_told and not one.is_gone for one in some),
                # Members that died before they had answered.
                "unasked": sum(one.is_failed for one in some),
                # Events that publishers hold and that are not here yet, whatever the filter wants.
                "left": sum(one.left for one in some if not one.is_gone),
                # Publishers of which something is to come that they had when they were first asked.
                "owing": sum(one.is_owing for one in some),
            }
        if tap is not None:
            found |= {
                "name": tap.name,
                "offset": tap.next - 1,
                "acked": tap.acked,
                "unacked": tap.unacked,
            }
        if self.wish.ordered:
            found |= {
                "waiting": sum(len(one.waiting) for one in self.publishers.values()),
                "early": self.early,
            }
        return found
