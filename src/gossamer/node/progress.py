"""The progress of a subscription with one publisher: the events that it has had, and the events
that wait for their turn.

``position``: the subscription has had every event of the topic up to this id, or was told that it
is lost. Ids above it that were had are remembered one by one until the position passes them.
Positions follow the publisher's floor. Below the floor every receipt is complete, so every due
event has come. But only floors of some seconds ago count (``LAG``), because others may take this
node for dead, and complete receipts without it, before it hears of that.

``release``: a subscription may ask for order, or for history before news. Its events wait here
until every earlier event can have come, and until every earlier event that did come is on the disk
of a durable subscription. History and live events are merged here: they leave in the order of their
ids, in whatever order they come.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence

from gossamer.filters import Event
from gossamer.machine import SECOND, Micros
from gossamer.node.retention import SEQUENCE_MAX, Id

# News of a verdict takes less time than this to come here.
LAG = Micros(3 * SECOND)
MARK_EVERY = Micros(SECOND // 4)
# The most ids above the position. Beyond it the newest floor counts at once.
HAD_MAX = 1 << 19
# The most events that wait for their turn. Beyond it the first goes before its turn.
WAITING_MAX = 1 << 19
# The most repetitions of one question that an answer may answer.
REPETITIONS_MAX = 16
EVERYTHING: Id = (SEQUENCE_MAX, SEQUENCE_MAX)


class Lot:
    """Events of one batch. They are handed over together, unless some have to wait longer."""

    __slots__ = ("again", "events", "hops", "incarnation", "is_stored", "progress", "sequences")

    def __init__(
        self, progress: Progress, incarnation: int, sequences: Sequence[int], events: list[Event],
        hops: int, *, again: bool = False, is_stored: bool = True,
    ) -> None:  # fmt: skip
        self.progress, self.incarnation = progress, incarnation
        # Ascending, and consecutive in their offsets.
        self.sequences, self.events = sequences, events
        self.hops = hops
        # They were handed over in an earlier life, too.
        self.again = again
        # Events for a disk are not handed over before they are on it.
        self.is_stored = is_stored

    @property
    def first(self) -> Id:
        return self.incarnation, self.sequences[0]

    @property
    def last(self) -> Id:
        return self.incarnation, self.sequences[-1]

    def __lt__(self, other: Lot) -> bool:
        return self.first < other.first

    def split(self, before: Id) -> Lot:
        """Keeps the events before an event, and returns the others."""
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
        # The publisher's past holds nothing more for the subscription.
        self.is_level = False
        # Since it was level, every event has found this subscription.
        self.covered = False
        # The past of the publisher is not wanted, only its present position.
        self.baseline = False
        # The publisher has left, and nothing is missing.
        self.is_gone = False
        # The subscription was told that the publisher cannot be asked.
        self.is_told = False
        # It was taken for dead before it had answered even once.
        self.is_failed = False
        # It has published on this topic, as far as is known.
        self.has_published = False
        # The last event that it had published when it first answered this subscription.
        self.first_newest: Id | None = None
        # The events that it still had beyond the position when it last answered.
        self.left = 0
        # The life whose floors count: no earlier life has an event without a receipt.
        self.trusted = 0
        self.release: Id = (0, 0)
        # A heap of lots by their first events, and the number of events in it.
        self._waiting: list[tuple[Id, Lot]] = []
        self.waits = 0
        self.ask_at = self.began_at = Micros(0)
        # Until then the publisher may go on without us.
        self.doubted_until = Micros(0)
        # The question that waits for an answer: each of its repetitions, by its serial, with when
        # it was sent. An answer to any of them counts.
        self.asked: dict[int, Micros] = {}
        self.attempts = self.serial = 0
        # The time from the last question that was answered to its answer.
        self.took = Micros(0)
        # The ids above the position that were had, and a heap of their batches (first id, last
        # sequence number).
        self._had: dict[Id, None] = {}
        self._batches: list[tuple[Id, int]] = []
        self._marks: deque[tuple[Micros, Id]] = deque()

    # ---------------------------------------------------------------- events had

    def had(self, id: Id) -> bool:
        return id <= self.position or id in self._had

    def take(self, incarnation: int, sequences: list[int]) -> None:
        """These events were had now. Their numbers ascend."""
        self.has_published = True
        for sequence in sequences:
            self._had[incarnation, sequence] = None
        heapq.heappush(self._batches, ((incarnation, sequences[0]), sequences[-1]))

    @property
    def is_owing(self) -> bool:
        """Whether events are still to come that the publisher had when it was first asked."""
        if self.is_level or self.is_gone or self.is_told:
            return False
        return self.first_newest is None or self.position < self.first_newest

    @property
    def remembered(self) -> int:
        return len(self._had)

    def advance(self, position: Id) -> bool:
        """Every event up to here was had. Returns whether that is news."""
        # Before a floor of 0 there is nothing.
        position = (position[0], max(position[1], 0))
        if position <= self.position:
            return False
        self.position = position
        batches = self._batches
        while batches and (batches[0][0][0], batches[0][1]) <= position:
            (incarnation, first), last = heapq.heappop(batches)
            if last - first < 4 * len(self._had):
                for sequence in range(first, last + 1):
                    self._had.pop((incarnation, sequence), None)
            else:
                # There are a few events, far apart.
                self._had = {id: None for id in self._had if id > position}
        return True

    def hear(self, floor: Id, now: Micros) -> bool:
        """Takes a floor of the trusted life. Returns whether the position has moved."""
        marks = self._marks
        if not marks or now - marks[-1][0] >= MARK_EVERY:
            marks.append((now, floor))
        return self.settle(now)

    def settle(self, now: Micros) -> bool:
        """Floors that came some seconds ago count now. Returns whether the position has moved."""
        marks, moved = self._marks, False
        while marks and (now - marks[0][0] >= LAG or len(self._had) > HAD_MAX):
            incarnation, sequence = marks.popleft()[1]
            moved |= self.advance((incarnation, sequence - 1))
        return moved

    @property
    def is_settling(self) -> bool:
        return bool(self._marks)

    def doubt(self) -> None:
        """Others may have gone on without this node. No floor counts until the publisher has been
        asked.
        """
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
        """The events that may be handed over, in order."""
        waiting = self._waiting
        if release == EVERYTHING:
            # That is every event that has come.
            release = max([lot.last for _, lot in waiting], default=self.release)
        release = self.release = max(self.release, release)
        out: list[Lot] = []
        while waiting and waiting[0][0] <= release and waiting[0][1].is_stored:
            first, lot = heapq.heappop(waiting)
            end = (release[0], release[1] + 1)
            # At least one event goes, even if two have the same id.
            if waiting:
                end = min(end, max(waiting[0][0], (first[0], first[1] + 1)))
            if lot.last >= end:
                rest = lot.split(end)
                heapq.heappush(waiting, (rest.first, rest))
            self.waits -= len(lot.events)
            out.append(lot)
        return out

    def overflow(self) -> int:
        """If more events wait than may, the first lot may go before its turn. Returns the number of
        its events.
        """
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
