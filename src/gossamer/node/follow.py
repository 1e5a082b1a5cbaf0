"""Following: a subscription that misses nothing, or says so. Behind ``name=``, ``since=``, ``ordered=`` and ``gaps=``.

When the subscription comes into force, every live publisher is asked for its past (history.py) from where this subscription is with
it (progress.py); what comes live meanwhile, or comes twice, is told apart by its id. Whoever joins later is asked as well. What a
publisher no longer has, and a publisher that cannot be asked, become a ``Gap`` in the iteration. When others had taken this node
for dead, it is asked again, and so is a publisher that was.

With a tap (durable.py) events are handed over, and reported, once they are on disk.

With ``ordered=`` an event waits until everything before it of the same publisher can have come (progress.py). While a publisher's
history is still being read, the events that it publishes meanwhile wait behind that. Where too many wait, the publisher is held
back (local.py).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from gossamer.filters import Event
from gossamer.machine import MILLISECOND, NEVER, SECOND, Deliver, Micros, Note, Peer, Token
from gossamer.node.durable import Gap, Stored, Tap
from gossamer.node.history import Ask, Part, Past
from gossamer.node.progress import EVERYTHING, LAG, WAITING_MAX, Lot, Progress
from gossamer.node.retention import SEQUENCE_MAX, Id
from gossamer.overlay.batch import Batch
from gossamer.overlay.interest.record import ViewChange
from gossamer.trace import Delivered, Dropped, Gapped, Rejected, hex_peer

if TYPE_CHECKING:
    from gossamer.node.follows import Follows
    from gossamer.node.local import Subscription
    from gossamer.node.missed import Missed

ASK_AGAIN = Micros(500 * MILLISECOND)  # the first wait for an answer; doubled each time
ASK_AGAIN_MAX = Micros(4 * SECOND)
TOOK_MAX = Micros(15 * SECOND)  # an answer that takes longer says nothing about the next one
ABSENT = Micros(10 * SECOND)  # who has not answered by then is a gap, and is asked on
STUCK = Micros(
    50 * MILLISECOND
)  # an event that waits for its turn so long: its publisher is asked for its floor
PUBLISHERS_MAX = 4096  # that a subscription knows its position with
_encoder = msgspec.msgpack.Encoder()


class Wish(Struct, frozen=True):
    """What a subscription wants beyond what comes live."""

    name: str = ""  # durable, under this name
    start: int | None = None  # history from here on (Unix microseconds; 0: all that is retained)
    ordered: bool = False
    gaps: bool = False

    def __bool__(self) -> bool:
        return bool(self.name or self.ordered or self.gaps or self.start is not None)


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
        self._ready: dict[Token, list[Lot | Gap]] = {}  # what is on its way to the disk
        self.storing = 0  # events among that
        self._waits = 0  # events that wait for their turn, of all publishers
        if tap is not None:
            tap.open()
            self._restore(tap)

    def _restore(self, tap: Tap) -> None:
        for publisher, place in tap.positions.items():
            progress = self.publishers[publisher] = Progress((place.incarnation, place.sequence))
            progress.is_gone, progress.release = place.is_gone, progress.position
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
        """Its events that were not acknowledged: a lot for each run of them."""
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
        """The disk has events that the topic's schema cannot read.

        One gap under their last offset stands for all of them.
        """
        tap.settle(stored.offset, stored.end - 2)
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
            elif (
                incarnation > progress.trusted
            ):  # is there something of an earlier life on its way?
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
        """What waited for the disk is on it."""
        ready = self._ready.pop(token, [])
        for one in ready:
            if isinstance(one, Lot):
                one.is_stored = True
                self.storing -= len(one.events)
        self._turn(ready, waits=self._holds)

    def _turn(self, ready: list[Lot | Gap], *, waits: bool = False) -> None:
        """Hand over, or let wait for its turn; ``waits``: it does already."""
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
        """Of what waits, what may be handed over."""
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
            # As the ledger has a gap.
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
        """How many events may be ``behind``; beyond it their publishers are held back."""
        return self._hub.limit(self.subscription) if self.tap is not None else WAITING_MAX // 2

    def is_level(self, publisher: int) -> bool:
        """Whether what it publishes waits for none of its history."""
        progress = self.publishers.get(publisher)
        return progress is None or progress.is_level

    @property
    def behind(self) -> int:
        """Events that have come live and wait until their publisher's history has been read."""
        if not self._waits:
            return 0
        return sum(one.waits for one in self.publishers.values() if not one.is_level)

    def _gap(self, publisher: int, after: Id | None, before: Id | None, reason: str) -> None:
        self.gaps += 1
        hub, gap = self._hub, Gap(self.subscription.topic.name, publisher, after, before, reason)
        hub.out.append(Note(Gapped(self.subscription.number, hex_peer(publisher), reason)))
        if self.tap is None:
            self._hand_over([gap])
        else:
            gap = self.tap.store_gap(gap)
            self._ready.setdefault(hub.token(self.tap), []).append(gap)

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
            if progress is not None:
                if change.reason == "left":
                    progress.is_gone = progress.is_level and progress.covered
                else:
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
            progress.is_gone = False
            self._begin(change.peer, progress, now)

    def missed(self, message: Missed, now: Micros) -> None:
        """Events were completed without this node: their publisher is asked for them."""
        if not self.in_force:
            return  # when it is again, everybody is asked
        publisher, incarnation = message.publisher, message.incarnation
        is_known = publisher in self.publishers or self._hub.is_member(publisher)
        position = self._progress(publisher).position if is_known else EVERYTHING
        if position >= (incarnation, message.first):
            # This node has heard of it too late, or nobody is there to be asked.
            after, last = (incarnation, message.first - 1), (incarnation, message.last)
            reason = "this node was cut off, and they were completed without it"
            self._gap(publisher, after, (incarnation, min(position, last)[1] + 1), reason)
        if position < (incarnation, message.last):
            progress = self.publishers[publisher]
            progress.doubt()
            progress.baseline = False
            self._begin(publisher, progress, now)

    def _begin(self, peer: int, progress: Progress, now: Micros) -> None:
        """Ask for what was missed."""
        progress.is_level, progress.trusted = False, 0
        progress.began_at, progress.attempts = now, 0
        progress.asked.clear()  # the answers to earlier questions say something else
        self._schedule(peer, progress, now)

    def _schedule(self, peer: int, progress: Progress, at: Micros) -> None:
        if not self.in_force or (progress.ask_at and (progress.asked or progress.ask_at <= at)):
            return  # one wait a publisher; while a question waits for its answer, that one
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
        """A link came up: whoever is waited for behind it is asked at once."""
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
        if progress.is_level and progress.attempts > 6:  # its floor is not to be had
            self._release(progress, EVERYTHING)
            progress.attempts = 0
            progress.asked.clear()
            return
        if not is_member and progress.is_told:
            return  # until it joins
        progress.attempts = min(progress.attempts + 1, 16)
        progress.ask(now)
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
        is_known = is_member or progress.position > (0, 0)
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
        asked_at = progress.asked.get(past.serial) if progress is not None else None
        if progress is None or asked_at is None or not self.in_force:
            return  # nobody waits for it any more, or it is repeated
        if self._hub.is_in_conflict(past.topic):
            return  # its rows may be of another schema; it is asked for again
        read = self._read(progress, past)
        if isinstance(read, str):
            self._hub.out.append(
                Note(Rejected(hex_peer(peer), f"the past of {past.topic!r}: {read}"))
            )
            return
        progress.attempts, progress.is_told, progress.ask_at = 0, False, Micros(0)
        progress.took = Micros(now - asked_at)
        progress.asked.clear()
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
                self._gap(peer, after, before, reason)
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

    @property
    def parked(self) -> int:
        """Publishers that have more, and are asked for it when the consumer has taken, or
        acknowledged, some of what it was handed.
        """
        return len(self._parked)

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
            self._hub.loosen(self.subscription)
            if progress.waits:
                self._schedule(peer, progress, Micros(now + STUCK))
        if (
            progress.remembered
        ):  # an idle publisher says no more floors: it is asked, so that the position is right
            progress.hear(past.floor, now)
            self._schedule(peer, progress, Micros(now + LAG))

    def _save(self, peer: int, progress: Progress) -> None:
        if self.tap is not None:
            self.tap.place(peer, progress.position, progress.is_gone)

    @property
    def report_after(self) -> Token:
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
            "parked": self.parked,
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
