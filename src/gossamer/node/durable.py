"""Taps: the state of a durable subscription on its node's disk.

With it, no crash of this node or of a publisher loses or repeats an event. A tap has a name. Events
are stored under consecutive offsets before they are handed over and before their batch is reported
to the publisher. So a receipt that counts this subscription means that the event is on this disk.
Events stay until they are acknowledged. After a restart, events that are not acknowledged are
handed over again, and acknowledged ones never are. The position with each publisher (progress.py)
is kept too, so that the tap can ask for events that it missed.

Events are stored in the order of their arrival, and may be handed over in another order
(follow.py). An acknowledgement through an offset covers the events that were handed over before it
in this life, in that order. It never covers an event that still waits for its turn.

On disk, ``tap/NAME`` has the description of the tap and its acknowledgements, ``/p/PEER`` the
positions, and ``/e/OFFSET`` the events of one batch, or a gap. A batch that was acknowledged stays
until the position on disk has passed it, because a repeated batch is recognised by it.

If the disk refuses a write, the tap goes back to the state on disk (``undo``). Its position is then
the old one. So the events that were not stored are asked for again when a program subscribes under
the tap's name, or they are reported as a gap.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from heapq import heapify, heappop, heappush

import msgspec
from msgspec import Struct

from gossamer.machine import Forget, Keep, Token
from gossamer.node.retention import Id

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
# Of one node.
TAPS_MAX = 1024
_PREFIX = "tap/"
_encoder = msgspec.msgpack.Encoder()


class TapError(ValueError):
    """A durable subscription that cannot be made. The message says why, and what to do."""


class Gap(Struct, frozen=True):
    """Events that are lost to a subscription. It comes in the iteration in their place."""

    topic: str
    publisher: int
    # The (incarnation, sequence) of the last event before the gap. None: not known.
    after: Id | None
    # The first event that may be there again. None: not known.
    before: Id | None
    reason: str
    # The offset in a durable subscription, to be acknowledged like an event's.
    offset: int = 0
    # The time when the last lost event was published. None: not known.
    until: datetime | None = None


class Stored(Struct, frozen=True, array_like=True):
    """Events of one batch under consecutive offsets, or one gap."""

    offset: int
    publisher: int
    incarnation: int
    hops: int
    sequences: tuple[int, ...]
    rows: bytes
    gap: Gap | None = None

    @property
    def end(self) -> int:
        return self.offset + (len(self.sequences) or 1)


class Position(Struct, frozen=True, array_like=True):
    incarnation: int
    sequence: int
    is_gone: bool = False
    # Whether the publisher is known to have published on the topic. Data directories of before do
    # not say, so it counts as one that has.
    has_published: bool = True


class _About(Struct, array_like=True):
    topic: str
    filter: str
    # In Unix microseconds.
    created_at: int
    # All offsets up to this one are acknowledged. So are the ranges in ``above``, from and to.
    acked: int = 0
    above: tuple[tuple[int, int], ...] = ()


class Offsets:
    """A set of offsets as runs: all of them through one offset, and further runs above it."""

    __slots__ = ("_highs", "_lows", "above", "through")

    def __init__(self, through: int = 0, above: Iterable[tuple[int, int]] = ()) -> None:
        self.through = through
        # Runs from a low to a high offset, both included, in ascending order. No two of them touch.
        self._lows: list[int] = []
        self._highs: list[int] = []
        # The number of offsets in the runs.
        self.above = 0
        for low, high in above:
            self.add(low, high)

    def runs(self) -> Iterator[tuple[int, int]]:
        """The runs above ``through``."""
        return zip(self._lows, self._highs, strict=True)

    @property
    def last(self) -> int:
        return self._highs[-1] if self._highs else self.through

    def covers(self, low: int, high: int) -> bool:
        """Whether all offsets from one to another are in the set."""
        if low <= self.through:
            return high <= self.through
        place = bisect_right(self._lows, low) - 1
        return place >= 0 and high <= self._highs[place]

    def __contains__(self, offset: int) -> bool:
        return self.covers(offset, offset)

    def add(self, low: int, high: int) -> int:
        """Adds all offsets from one to another, and returns the number of new ones."""
        low = max(low, self.through + 1)
        if low > high:
            return 0
        lows, highs = self._lows, self._highs
        start, end = bisect_left(highs, low - 1), bisect_right(lows, high + 1)
        had = 0
        if start < end:
            had = sum(highs[place] - lows[place] + 1 for place in range(start, end))
            low, high = min(low, lows[start]), max(high, highs[end - 1])
        lows[start:end], highs[start:end] = [low], [high]
        new = high - low + 1 - had
        self.above += new
        if lows[0] == self.through + 1:
            self.above -= highs[0] - self.through
            self.through = highs.pop(0)
            del lows[0]
        return new

    def cut(self, since: int) -> Offsets:
        """The offsets before ``since``."""
        above = [(low, min(high, since - 1)) for low, high in self.runs() if low < since]
        return Offsets(min(self.through, since - 1), above)


class _Write:
    """The contents of one Store of a tap, so that it can be undone."""

    __slots__ = ("about", "acked", "positions", "since", "told")

    def __init__(self, since: int) -> None:
        # The first offset in it, if it has events or gaps.
        self.since = since
        # None: the position is forgotten.
        self.positions: dict[int, Position | None] = {}
        # Batches that it forgets.
        self.acked: list[Stored] = []
        # Gaps that it forgets.
        self.told: list[int] = []
        # Whether it has the tap's description and acknowledgements.
        self.about = False


_about_decoder = msgspec.msgpack.Decoder(_About)
_stored_decoder = msgspec.msgpack.Decoder(Stored)
_position_decoder = msgspec.msgpack.Decoder(Position)


class Tap:
    def __init__(self, name: str, about: _About) -> None:
        self.name, self.about = name, about
        # The number of the subscription that reads it now.
        self.number = 0
        # No subscription has read it in an earlier life.
        self.is_new = True
        # The offsets that were acknowledged.
        self._done = Offsets(about.acked, about.above)
        # The offsets that were handed to the present subscription: in their order, and as a set.
        self._order: deque[tuple[int, int]] = deque()
        self._handed = Offsets()
        self.next = self._done.last + 1
        self.positions: dict[int, Position] = {}
        # The batches with unacknowledged events, by first offset, ascending.
        self.stored: dict[int, Stored] = {}
        # The token of the next Store. 0: there is nothing to store.
        self.token = Token(0)
        # The first offsets of the batches in ``stored``, in ascending order, and of some that are
        # gone.
        self._starts: list[int] = []
        # Batches that wait until the position of their publisher on disk has passed them. There is
        # a heap for each publisher, ordered by their last event.
        self._acked: dict[int, list[tuple[Id, int, Stored]]] = {}
        # Gaps that were acknowledged.
        self._told: list[int] = []
        self._records: list[Keep | Forget] = []
        self._is_dirty = False
        # It is on disk, or was.
        self.is_kept = False
        # Why the disk ended the subscription, if it did.
        self.problem = ""
        # The positions on disk.
        self._placed: dict[int, Position] = {}
        # The contents of the next Store.
        self._open = _Write(self.next)
        # Stores on their way to the disk, in order.
        self._writes: dict[Token, _Write] = {}

    @classmethod
    def create(cls, name: str, topic: str, filter: str, now: int) -> Tap:
        tap = cls(name, _About(topic, filter, now))
        tap._is_dirty = True
        return tap

    @property
    def _key(self) -> str:
        return f"{_PREFIX}{self.name}"

    def restore(self, kept: Mapping[str, bytes]) -> None:
        """Takes the records of this tap. ``kept`` has them by the rest of their keys."""
        self.is_new, self.is_kept = False, True
        for key in sorted(kept):
            if key.startswith("/p/"):
                self.positions[int(key[3:], 16)] = _position_decoder.decode(kept[key])
            elif key.startswith("/e/"):
                stored = _stored_decoder.decode(kept[key])
                self.next = max(self.next, stored.end)
                self.stored[stored.offset] = stored
        self._starts = list(self.stored)
        self._placed = dict(self.positions)
        self._open = _Write(self.next)
        self._retire(1, self.next)

    @property
    def has_records(self) -> bool:
        return self._is_dirty or bool(self._records)

    def records(self, token: Token) -> tuple[Keep | Forget, ...]:
        """The records to store now, in this order.

        The position and the acknowledgement of an event come after the event.
        """
        records, self._records = self._records, []
        write = self._writes[token] = self._open
        self._open = _Write(self.next)
        if self._is_dirty:
            self._is_dirty, write.about = False, True
            self.about.acked, self.about.above = self._done.through, tuple(self._done.runs())
            records.append(Keep(self._key, _encoder.encode(self.about)))
        records += [Forget(f"{self._key}/e/{offset:016d}") for offset in self._told]
        write.told, self._told = self._told, []
        for publisher, waiting in list(self._acked.items()):
            position = self.positions.get(publisher)
            passed = (position.incarnation, position.sequence) if position is not None else (0, 0)
            while waiting and waiting[0][0] <= passed:
                write.acked.append(heappop(waiting)[2])
                records.append(Forget(f"{self._key}/e/{write.acked[-1].offset:016d}"))
            if not waiting:
                del self._acked[publisher]
        return tuple(records)

    def confirm(self, token: Token) -> None:
        """This Store is on disk."""
        write = self._writes.pop(token)
        self.is_kept = True
        for publisher, position in write.positions.items():
            if position is None:
                self._placed.pop(publisher, None)
            else:
                self._placed[publisher] = position

    def undo(self) -> list[Token]:
        """Goes back to the state on disk, which has failed. Returns the Stores that are void now.

        Acknowledgements stay valid in this life for events that are on disk. They are written with
        the next Store.
        """
        writes = [*self._writes.values(), self._open]
        tokens = [*self._writes, *([self.token] if self.token else [])]
        since = min(write.since for write in writes)
        self._told = [offset for write in writes for offset in write.told] + self._told
        for write in writes:
            for stored in write.acked:
                self._wait(stored)
        # Nothing from ``since`` on was handed over, so it cannot have been acknowledged.
        self.stored = {offset: one for offset, one in self.stored.items() if offset < since}
        for publisher, waiting in list(self._acked.items()):
            kept = [one for one in waiting if one[1] < since]
            heapify(kept)
            if kept:
                self._acked[publisher] = kept
            else:
                del self._acked[publisher]
        self._told = [offset for offset in self._told if offset < since]
        self._starts = list(self.stored)
        self._done = self._done.cut(since)
        self.positions = dict(self._placed)
        self._is_dirty = True
        self._records.clear()
        self._writes.clear()
        self.token, self.next, self._open = Token(0), since, _Write(since)
        return tokens

    def forget(self) -> tuple[Keep | Forget, ...]:
        """The removal of everything under this name.

        The tap itself goes last, so that a crash in between leaves a tap.
        """
        offsets = [
            *self.stored,
            *(offset for waiting in self._acked.values() for _, offset, _ in waiting),
        ]
        keys = [f"/e/{offset:016d}" for offset in offsets] + [
            f"/p/{publisher:016x}" for publisher in self.positions
        ]
        return tuple(Forget(self._key + key) for key in [*keys, ""])

    def remembered(self) -> Iterable[Stored]:
        """Every batch on disk, acknowledged or not. Its events have arrived."""
        for waiting in self._acked.values():
            yield from [stored for _, _, stored in waiting]
        yield from (one for one in self.stored.values() if one.gap is None)

    def store(
        self, publisher: int, incarnation: int, hops: int, sequences: tuple[int, ...], rows: bytes
    ) -> Stored:
        return self._store(Stored(self.next, publisher, incarnation, hops, sequences, rows))

    def store_gap(self, gap: Gap) -> Gap:
        gap = msgspec.structs.replace(gap, offset=self.next)
        self._store(Stored(self.next, gap.publisher, 0, 0, (), b"", gap))
        return gap

    def _store(self, stored: Stored) -> Stored:
        self.next = stored.end
        self.stored[stored.offset] = stored
        self._starts.append(stored.offset)
        self._records.append(Keep(f"{self._key}/e/{stored.offset:016d}", _encoder.encode(stored)))
        return stored

    def place(
        self, publisher: int, position: Id, *, is_gone: bool, has_published: bool = True
    ) -> None:
        """Sets the position with a publisher."""
        found = Position(*position, is_gone, has_published)
        if self.positions.get(publisher) != found:
            self.positions[publisher] = self._open.positions[publisher] = found
            self._records.append(Keep(f"{self._key}/p/{publisher:016x}", _encoder.encode(found)))

    def misplace(self, publisher: int) -> None:
        if self.positions.pop(publisher, None) is not None:
            self._open.positions[publisher] = None
            self._records.append(Forget(f"{self._key}/p/{publisher:016x}"))

    def void(self, reason: str) -> None:
        """Replaces the stored events, which can no longer be read, by a gap for each publisher."""
        gaps: list[Gap] = []
        lost: dict[int, list[Stored]] = {}
        for stored in self.stored.values():
            if stored.gap is not None:
                gaps.append(stored.gap)
            else:
                lost.setdefault(stored.publisher, []).append(stored)
        if not lost:
            return
        self.settle(1, self.next - 1)
        for publisher, some in lost.items():
            first = min((one.incarnation, one.sequences[0]) for one in some)
            last = max((one.incarnation, one.sequences[-1]) for one in some)
            after, before = (first[0], first[1] - 1), (last[0], last[1] + 1)
            gaps.append(Gap(self.about.topic, publisher, after, before, reason))
        for gap in gaps:
            self.store_gap(gap)

    @property
    def acked(self) -> int:
        return self._done.through

    @property
    def unacked(self) -> int:
        return self.next - 1 - self._done.through - self._done.above

    def is_acked(self, offset: int) -> bool:
        return offset in self._done

    def open(self) -> None:
        """A subscription begins to read the tap. Nothing has been handed to it yet."""
        self._order.clear()
        self._handed = Offsets()

    def hand(self, low: int, high: int) -> None:
        """The events from one offset to another are handed to the subscription."""
        order = self._order
        if order and order[-1][1] + 1 == low:
            order[-1] = (order[-1][0], high)
        else:
            order.append((low, high))
        self._handed.add(low, high)

    def ack(self, offset: int, *, through: bool) -> int:
        """Acknowledges this offset, and with ``through`` everything that was handed over before it.

        Returns the number of offsets that were not acknowledged before.
        """
        if offset not in self._handed and (offset not in self._done or offset < 1):
            raise TapError(
                f"offset {offset} of {self.name!r} was not handed over to this subscription, so it "
                "cannot be acknowledged; what waits for its turn has not been handed over"
            )
        order, done = self._order, self._done
        before = self.unacked
        if not through:
            self.settle(offset, offset)
        elif offset not in done or any(low <= offset <= high for low, high in order):
            while True:
                low, high = order.popleft()
                if low <= offset <= high:
                    break
                self.settle(low, high)
            self.settle(low, offset)
            if offset < high:
                order.appendleft((offset + 1, high))
        while order and done.covers(*order[0]):
            order.popleft()
        if len(order) > 2 * self.unacked + 1024:
            self._order = deque(run for run in order if not done.covers(*run))
        return before - self.unacked

    def settle(self, low: int, high: int) -> None:
        """Counts all offsets from one to another as acknowledged."""
        if self._done.add(low, high):
            self._is_dirty = True
            self._retire(low, high)

    def _retire(self, low: int, high: int) -> None:
        """Retires batches with some of these offsets that are wholly acknowledged.

        They wait only for the position, and gaps wait for nothing.
        """
        starts, stored = self._starts, self.stored
        place = max(0, bisect_right(starts, low) - 1)
        while place < len(starts) and starts[place] <= high:
            one = stored.get(starts[place])
            place += 1
            if one is None or not self._done.covers(one.offset, one.end - 1):
                continue
            del stored[one.offset]
            if one.gap is not None:
                self._told.append(one.offset)
            else:
                self._wait(one)
        if len(starts) > 2 * len(stored) + 1024:
            self._starts = list(stored)

    def _wait(self, stored: Stored) -> None:
        last = (stored.incarnation, stored.sequences[-1])
        heappush(self._acked.setdefault(stored.publisher, []), (last, stored.offset, stored))


def restore_taps(kept: Mapping[str, bytes]) -> dict[str, Tap]:
    """The taps on a disk."""
    parts: dict[str, dict[str, bytes]] = {}
    for key, value in kept.items():
        if key.startswith(_PREFIX):
            name, slash, rest = key.removeprefix(_PREFIX).partition("/")
            parts.setdefault(name, {})[slash + rest] = value
    taps: dict[str, Tap] = {}
    for name, records in parts.items():
        about = records.pop("", None)
        if about is not None:
            taps[name] = tap = Tap(name, _about_decoder.decode(about))
            tap.restore(records)
    return taps
