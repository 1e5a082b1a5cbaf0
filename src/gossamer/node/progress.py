"""How far a subscription is with one publisher: what it has had, what it has told, and what waits for its turn.

``position``: everything of the topic up to this id was had, or was told to be lost. Ids above it that were had are remembered one
by one until the position passes them. Positions follow the publisher's floor: below it every receipt is complete, so what was due
here has come; but only floors of some seconds ago count (``LAG``), because others may take this node for dead, and complete
receipts without it, before it hears of that.

``release``: for a subscription that asks for order, or for history before what is new, events wait here until everything before
them can have come, and until everything before them that did come is on the disk of a durable subscription. History and what comes
live are merged here: whatever the order in which it comes, it leaves in the order of its ids.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence

from gossamer.filters import Event
from gossamer.machine import SECOND, Micros
from gossamer.node.retention import SEQUENCE_MAX, Id

LAG = Micros(3 * SECOND)  # more than news of a verdict takes to come here
MARK_EVERY = Micros(SECOND // 4)
HAD_MAX = 1 << 19  # ids above the position; beyond it the newest floor counts at once
WAITING_MAX = (
    1 << 19
)  # events that wait for their turn; beyond it the first goes, whether it is its turn or not
REPETITIONS_MAX = 16  # of one question, that an answer may be to
EVERYTHING: Id = (SEQUENCE_MAX, SEQUENCE_MAX)


class Lot:
    """Events of one batch: handed over together, unless some of them wait longer for their turn."""

    __slots__ = ("again", "events", "hops", "incarnation", "is_stored", "progress", "sequences")

    def __init__(
        self, progress: Progress, incarnation: int, sequences: Sequence[int], events: list[Event],
        hops: int, *, again: bool = False, is_stored: bool = True,
    ) -> None:  # fmt: skip
        self.progress, self.incarnation = progress, incarnation
        # Ascending, and consecutive in their offsets.
        self.sequences, self.events = sequences, events
        self.hops = hops
        self.again = again  # they were handed over in an earlier life, too
        self.is_stored = is_stored  # nothing is handed over before it is on the disk that it is for

    @property
    def first(self) -> Id:
        return self.incarnation, self.sequences[0]

    @property
    def last(self) -> Id:
        return self.incarnation, self.sequences[-1]

    def __lt__(self, other: Lot) -> bool:
        return self.first < other.first

    def split(self, before: Id) -> Lot:
        """Keep those before an event; returns the others."""
        # An event of a later life is after all of these.
        place = (
            bisect_left(self.sequences, before[1])
            if before[0] == self.incarnation
            else len(self.sequences)
        )
        rest = Lot(
            self.progress, self.incarnation, self.sequences[place:], self.events[place:],
            self.hops, again=self.again, is_stored=self.is_stored,
        )  # fmt: skip
        self.sequences, self.events = self.sequences[:place], self.events[:place]
        return rest


class Progress:
    __slots__ = (
        "_batches", "_had", "_marks", "_waiting", "ask_at", "asked", "attempts", "baseline",
        "began_at", "covered", "doubted_until", "first_newest", "has_published", "is_failed",
        "is_gone", "is_level", "is_told", "left", "position", "release", "serial", "took",
        "trusted", "waits",
    )  # fmt: skip

    def __init__(self, position: Id = (0, 0)) -> None:
        self.position = position
        self.is_level = False  # nothing more is to be had from the publisher's past
        self.covered = False  # since it was level, every event found this subscription
        self.baseline = False  # its past is not wanted: only where it is now
        self.is_gone = False  # it has left, with nothing missing
        self.is_told = False  # that it cannot be asked
        # It was taken for dead before it had answered even once.
        self.is_failed = False
        # It has published on this topic, as far as is known.
        self.has_published = False
        # The last event that it had published when it first answered this subscription.
        self.first_newest: Id | None = None
        # The events that it still had beyond the position when it last answered.
        self.left = 0
        self.trusted = (
            0  # the life whose floors say something: no earlier one has anything without receipt
        )
        self.release: Id = (0, 0)
        self._waiting: list[tuple[Id, Lot]] = []  # a heap, by their first events
        self.waits = 0  # events in it
        self.ask_at = self.began_at = Micros(0)
        self.doubted_until = Micros(0)  # until then it may go on without us
        # The question that waits for an answer: each of its repetitions, by its serial, with when it
        # was sent. An answer to any of them counts.
        self.asked: dict[int, Micros] = {}
        self.attempts = self.serial = 0
        self.took = Micros(0)  # the time from the last question that was answered to its answer
        self._had: dict[Id, None] = {}
        self._batches: list[
            tuple[Id, int]
        ] = []  # a heap of (first, last sequence) of what is in it
        self._marks: deque[tuple[Micros, Id]] = deque()

    # ---------------------------------------------------------------- what was had

    def had(self, id: Id) -> bool:
        return id <= self.position or id in self._had

    def take(self, incarnation: int, sequences: list[int]) -> None:
        """These were had now: ascending."""
        self.has_published = True
        for sequence in sequences:
            self._had[incarnation, sequence] = None
        heapq.heappush(self._batches, ((incarnation, sequences[0]), sequences[-1]))

    @property
    def is_owing(self) -> bool:
        """Whether something is to come that the publisher had when it was first asked."""
        if self.is_level or self.is_gone or self.is_told:
            return False
        return self.first_newest is None or self.position < self.first_newest

    @property
    def remembered(self) -> int:
        return len(self._had)

    def advance(self, position: Id) -> bool:
        """Everything up to here was had; returns whether that is news."""
        position = (position[0], max(position[1], 0))  # before a floor of 0 there is nothing
        if position <= self.position:
            return False
        self.position = position
        batches = self._batches
        while batches and (batches[0][0][0], batches[0][1]) <= position:
            (incarnation, first), last = heapq.heappop(batches)
            if last - first < 4 * len(self._had):
                for sequence in range(first, last + 1):
                    self._had.pop((incarnation, sequence), None)
            else:  # a few events far apart
                self._had = {id: None for id in self._had if id > position}
        return True

    def hear(self, floor: Id, now: Micros) -> bool:
        """A floor of the trusted life; returns whether the position has moved."""
        marks = self._marks
        if not marks or now - marks[-1][0] >= MARK_EVERY:
            marks.append((now, floor))
        return self.settle(now)

    def settle(self, now: Micros) -> bool:
        """Floors that were heard some seconds ago count now; returns whether the position has moved."""
        marks, moved = self._marks, False
        while marks and (now - marks[0][0] >= LAG or len(self._had) > HAD_MAX):
            incarnation, sequence = marks.popleft()[1]
            moved |= self.advance((incarnation, sequence - 1))
        return moved

    @property
    def is_settling(self) -> bool:
        return bool(self._marks)

    def doubt(self) -> None:
        """Others may have gone on without this node: no floor counts until the publisher has been asked."""
        self._marks.clear()
        self.is_level = self.covered = False
        self.trusted = 0

    def ask(self, now: Micros) -> None:
        """The question is asked, or repeated."""
        self.serial += 1
        self.asked[self.serial] = now
        if len(self.asked) > REPETITIONS_MAX:
            del self.asked[next(iter(self.asked))]

    # ---------------------------------------------------------------- order

    def wait(self, lot: Lot) -> None:
        heapq.heappush(self._waiting, (lot.first, lot))
        self.waits += len(lot.events)

    def let_go(self, release: Id) -> list[Lot]:
        """What may be handed over, in order."""
        waiting = self._waiting
        if release == EVERYTHING:  # that has come
            release = max([lot.last for _, lot in waiting], default=self.release)
        release = self.release = max(self.release, release)
        out: list[Lot] = []
        while waiting and waiting[0][0] <= release and waiting[0][1].is_stored:
            first, lot = heapq.heappop(waiting)
            end = (release[0], release[1] + 1)
            if waiting:  # one event goes at least, also where two have the same id
                end = min(end, max(waiting[0][0], (first[0], first[1] + 1)))
            if lot.last >= end:
                rest = lot.split(end)
                heapq.heappush(waiting, (rest.first, rest))
            self.waits -= len(lot.events)
            out.append(lot)
        return out

    def overflow(self) -> int:
        """More waits than may: the first may go, whether it is their turn or not. Returns how many."""
        early = 0
        if self.waits > WAITING_MAX:
            lot = self._waiting[0][1]
            early = len(lot.events) if lot.last > self.release else 0
            self.release = max(self.release, lot.last)
        return early

    def waiting(self) -> Iterator[Id]:
        """The events that have come and wait for their turn."""
        for _, lot in self._waiting:
            for sequence in lot.sequences:
                yield lot.incarnation, sequence
