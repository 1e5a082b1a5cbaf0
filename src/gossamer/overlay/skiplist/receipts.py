"""What is known of one's own publications, and of others' events that have been here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gossamer.machine import NEVER, Micros
from gossamer.overlay.skiplist.messages import (
    DELIVER,
    FOUND_BYTES_MAX,
    FOUND_MAX,
    NUMBER_MAX,
    TEXT_MAX,
    TOLD_MAX,
    Carry,
    Hit,
)
from gossamer.overlay.skiplist.position import Interval, Position

PUBLISHERS_MAX = 65_536
PIECES_MAX = 256  # that are missing of one event, beyond its intervals: who reports many small tiles makes no more of it
UNKNOWN = -1  # the owner has the event, and will say later how many took it
_BELOW: tuple[Position | None, int] = (
    None,
    0,
)  # the publisher's floor: done, whatever became of it
SEEN_MAX = 65_536  # events of one publisher that have no receipt yet, as far as this node knows


class Arrival(NamedTuple):
    """Events that came to an entry of this node, and have not been here before."""

    publisher: int
    incarnation: int
    numbers: tuple[int, ...]
    hops: int
    payloads: tuple[bytes, ...]  # one for each
    floor: int = 0

    @property
    def key(self) -> tuple[int, int, int]:
        """By which the owner says later how many took them; no other arrival has it, because no event arrives twice."""
        return self.publisher, self.incarnation, self.numbers[0]


class Receipt(NamedTuple):
    """Complete: so many subscriptions took the event; the farthest end of its walks was so many hops away."""

    sequence: int
    matched: int
    hops: int
    noise: int
    rounds: int  # 0: held back, because all of it was known to match nothing
    by_interval: tuple[int, ...]  # hops in each of the intervals that were given
    incarnation: int = 0

    @property
    def id(self) -> tuple[int, int]:
        return self.incarnation, self.sequence


class Found(NamedTuple):
    """The answer to a look-up: the entries there, in order, with what their nodes say of them."""

    number: int
    hits: tuple[Hit, ...]
    hops: int
    left_off: int  # entries or subscriptions that the answer had no room for

    @property
    def entries(self) -> tuple[Position, ...]:
        return tuple(hit.at for hit in self.hits)

    @property
    def subscriptions(self) -> list[tuple[int, int, str]]:
        """(node, number, filter), each once, though it may have several entries."""
        return sorted({(hit.at[1], number, text) for hit in self.hits for number, text in hit.told})


class Hits:
    """An answer as it grows; what does not fit is counted."""

    __slots__ = ("_bytes", "hits", "left_off")

    def __init__(self) -> None:
        self.hits: dict[Position, Hit] = {}
        self._bytes = self.left_off = 0

    def add(self, hit: Hit) -> None:
        size = 32 + len(hit.at[0]) + sum(16 + len(text) for _, text in hit.told)
        if hit.at in self.hits:
            return
        if len(self.hits) >= FOUND_MAX or self._bytes + size > FOUND_BYTES_MAX:
            self.left_off += 1
            return
        self.hits[hit.at] = hit
        self._bytes += size

    def tell(self, at: Position, told: Sequence[tuple[int, str]]) -> None:
        self.left_off += max(0, len(told) - TOLD_MAX)
        self.add(Hit(at, tuple((number, text[:TEXT_MAX]) for number, text in told[:TOLD_MAX])))

    def extend(self, hits: Sequence[Hit], left_off: int) -> None:
        self.left_off = min(
            self.left_off + left_off, NUMBER_MAX // 2
        )  # what is added here, one by one, still fits
        for hit in hits:
            self.add(hit)


class Publication:
    __slots__ = (
        "by_interval", "epoch", "first_round", "floor", "found", "hops", "incarnation", "kind", "matched", "noise", "payload",
        "remaining", "retry_at", "round", "sent_at", "sequence", "walks",
    )  # fmt: skip

    def __init__(
        self, sequence: int, incarnation: int, floor: int, intervals: Sequence[Interval], payload: bytes, kind: int,
        first_round: int = 0,
    ) -> None:  # fmt: skip
        self.sequence, self.incarnation, self.floor, self.payload, self.kind = (
            sequence,
            incarnation,
            floor,
            payload,
            kind,
        )
        self.remaining: list[Interval] = list(intervals)
        self.by_interval: dict[Interval, int] = dict.fromkeys(intervals, 0)
        self.round = self.first_round = first_round
        self.matched = self.hops = self.noise = 0
        self.walks = 0  # of this round, not yet over
        self.found = Hits()
        self.sent_at = Micros(0)
        self.epoch = 0  # when it was sent
        self.retry_at: Micros = NEVER

    @property
    def room(self) -> int:
        """How many more pieces may be missing than there are."""
        return len(self.by_interval) + PIECES_MAX - len(self.remaining)

    def reached(self, low: Position, hops: int) -> None:
        self.hops = max(self.hops, hops)
        for interval, known in self.by_interval.items():
            if interval[0] <= low < interval[1]:
                self.by_interval[interval] = max(known, hops)

    def result(self) -> Receipt | Found:
        if self.kind == DELIVER:
            return Receipt(
                self.sequence, self.matched, self.hops, self.noise, self.round - self.first_round,
                tuple(self.by_interval.values()), self.incarnation,
            )  # fmt: skip
        hits = tuple(hit for _, hit in sorted(self.found.hits.items()))
        return Found(self.sequence, hits, self.hops, self.found.left_off)


class Seen:
    """Events that have been here: at which entry, and how many took them. What is below a publisher's floor is a duplicate."""

    def __init__(self) -> None:
        self._tables: dict[tuple[int, int], dict[int, tuple[Position | None, int]]] = {}
        self._floors: dict[tuple[int, int], int] = {}

    def count(self, message: Carry) -> tuple[Position | None, int] | None:
        return self.counts(message)[0]

    def counts(self, message: Carry) -> list[tuple[Position | None, int] | None]:
        """Of each event of the walk; None: it has not been here."""
        who = (message.publisher, message.incarnation)
        floor, table = self._floors.get(who, 0), self._tables.get(who, {})
        numbers = (message.sequence, *message.others)
        return [_BELOW if number < floor else table.get(number) for number in numbers]

    def add(
        self, message: Carry, numbers: Sequence[int], at: Position, matched: Sequence[int]
    ) -> None:
        """These events of the walk are here."""
        who = (message.publisher, message.incarnation)
        table = self._tables.get(who)
        if table is None:
            if len(self._tables) >= PUBLISHERS_MAX:
                oldest = next(iter(self._tables))
                del self._tables[oldest]
                self._floors.pop(oldest, None)
            table = self._tables[who] = {}
        if message.floor > self._floors.get(who, 0):
            self._floors[who] = message.floor
            for sequence in [sequence for sequence in table if sequence < message.floor]:
                del table[sequence]
        for number, count in zip(numbers, matched, strict=True):
            if len(table) >= SEEN_MAX:
                table.pop(next(iter(table)))
            table[number] = (at, count)

    def set(self, who: tuple[int, int], number: int, matched: int) -> None:
        """The count of an event that was added without."""
        table = self._tables.get(who)
        if table is not None and number in table:
            table[number] = (table[number][0], matched)

    def __len__(self) -> int:
        return sum(map(len, self._tables.values()))
