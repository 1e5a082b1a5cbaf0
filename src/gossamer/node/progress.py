"""How far a subscription is with one publisher: what it has had, what it has told, and what waits for its turn.

``position``: everything of the topic up to this id was had, or was told to be lost. Ids above it that were had are remembered one
by one until the position passes them. Positions follow the publisher's floor: below it every receipt is complete, so what was due
here has come; but only floors of some seconds ago count (``LAG``), because others may take this node for dead, and complete
receipts without it, before it hears of that.

``release``: for a subscription that asks for order, or for history before what is new, events wait here until everything before
them can have come.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import Any

from gossamer.machine import SECOND, Micros
from gossamer.node.retention import SEQUENCE_MAX, Id

LAG = Micros(3 * SECOND)  # more than news of a verdict takes to come here
MARK_EVERY = Micros(SECOND // 4)
HAD_MAX = 1 << 19  # ids above the position; beyond it the newest floor counts at once
WAITING_MAX = (
    1 << 19
)  # events that wait for their turn; beyond it the first goes, whether it is its turn or not
EVERYTHING: Id = (SEQUENCE_MAX, SEQUENCE_MAX)


class Progress:
    __slots__ = (
        "_batches", "_had", "_marks", "ask_at", "attempts", "baseline", "began_at", "covered",
        "doubted_until", "first_newest", "has_published", "is_failed", "is_gone", "is_level",
        "is_told", "left", "position", "release", "serial", "trusted", "waiting",
    )  # fmt: skip

    def __init__(self, position: Id = (0, 0)) -> None:
        self.position = position
        self.is_level = False  # nothing more is to be had from the publisher's past
        self.covered = False  # since it was level, every event found this subscription
        self.baseline = False  # its past is not wanted: only where it is now
        self.is_gone = False  # it has left, with nothing missing
        self.is_told = False  # that it cannot be asked
        self.is_failed = False  # it was taken for dead before it had answered even once
        self.has_published = False  # on this topic, as far as is known
        # The last event that it had published when it first answered this subscription.
        self.first_newest: Id | None = None
        self.left = (
            0  # events that it still has beyond the position, as it said with its last answer
        )
        self.trusted = (
            0  # the life whose floors say something: no earlier one has anything without receipt
        )
        self.release: Id = (0, 0)
        self.waiting: list[tuple[Id, Any]] = []  # a heap
        self.ask_at = self.began_at = Micros(0)
        self.doubted_until = Micros(0)  # until then it may go on without us
        self.serial = self.attempts = 0
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

    # ---------------------------------------------------------------- order

    def wait(self, id: Id, what: Any) -> None:
        heapq.heappush(self.waiting, (id, what))

    def let_go(self, release: Id) -> list[Any]:
        """What may be handed over, in order."""
        if release != EVERYTHING:
            self.release = max(self.release, release)
            release = self.release
        out, waiting = [], self.waiting
        while waiting and waiting[0][0] <= release:
            out.append(heapq.heappop(waiting)[1])
        return out

    def overflow(self) -> list[Any]:
        """More waits than may: the first go, whether it is their turn or not."""
        over = len(self.waiting) - WAITING_MAX
        return [heapq.heappop(self.waiting)[1] for _ in range(over)] if over > 0 else []
