"""Taps: the state of a durable subscription on its node's disk.

With it, no crash of this node or of a publisher loses or repeats an event. A tap has a name. Events
are stored under consecutive offsets before they are handed over and before their batch is reported
to the publisher. So a receipt that counts this subscription means that the event is on this disk.
Events stay until they are acknowledged. After a restart, events that are not acknowledged are
handed over again, and acknowledged ones never are. The position with each publisher (progress.py)
is kept too, so that the tap can ask for events that it missed.

On disk, ``tap/NAME`` has the description of the tap and its acknowledgements, ``/p/PEER`` the
positions, and ``/e/OFFSET`` the events of one batch, or a gap. A batch that was acknowledged stays
until the position on disk has passed it, because a repeated batch is recognised by it.

If the disk refuses a write, the tap goes back to the state on disk (``undo``). Its position is then
the old one. So the events that were not stored are asked for again when a program subscribes under
the tap's name, or they are reported as a gap.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping

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


class _About(Struct, array_like=True):
    topic: str
    filter: str
    # In Unix microseconds.
    created_at: int
    # All offsets up to this one are acknowledged. So are the ranges in ``above``, from and to.
    acked: int = 0
    above: tuple[tuple[int, int], ...] = ()


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
        self.next = about.acked + 1
        self.positions: dict[int, Position] = {}
        # The batches with unacknowledged events, by first offset, ascending.
        self.stored: dict[int, Stored] = {}
        # The token of the next Store. 0: there is nothing to store.
        self.token = Token(0)
        # Events that are not stored yet.
        self.pending = 0
        self._above: dict[int, None] = {
            offset: None for low, high in about.above for offset in range(low, high + 1)
        }
        # Acknowledged batches, by publisher. They wait until the position on disk has passed them.
        self._acked: dict[int, deque[Stored]] = {}
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
        self._placed = dict(self.positions)
        self._open = _Write(self.next)
        self._sift()

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
            self.about.above = tuple(_intervals(self._above))
            records.append(Keep(self._key, _encoder.encode(self.about)))
        records += [Forget(f"{self._key}/e/{offset:016d}") for offset in self._told]
        write.told, self._told = self._told, []
        for publisher, waiting in list(self._acked.items()):
            position = self.positions.get(publisher)
            passed = (position.incarnation, position.sequence) if position is not None else (0, 0)
            while waiting and (waiting[0].incarnation, waiting[0].sequences[-1]) <= passed:
                write.acked.append(waiting.popleft())
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
        for stored in reversed([one for write in writes for one in write.acked]):
            self._acked.setdefault(stored.publisher, deque()).appendleft(stored)
        # Nothing from ``since`` on was handed over, so it cannot have been acknowledged.
        self.stored = {offset: one for offset, one in self.stored.items() if offset < since}
        for publisher, waiting in list(self._acked.items()):
            self._acked[publisher] = deque(one for one in waiting if one.offset < since)
            if not self._acked[publisher]:
                del self._acked[publisher]
        self._told = [offset for offset in self._told if offset < since]
        self._above = {offset: None for offset in self._above if offset < since}
        self.about.acked = min(self.about.acked, since - 1)
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
            *(one.offset for waiting in self._acked.values() for one in waiting),
        ]
        keys = [f"/e/{offset:016d}" for offset in offsets] + [
            f"/p/{publisher:016x}" for publisher in self.positions
        ]
        return tuple(Forget(self._key + key) for key in [*keys, ""])

    def remembered(self) -> Iterable[Stored]:
        """Every batch on disk, acknowledged or not. Its events have arrived."""
        for waiting in self._acked.values():
            yield from waiting
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
        self._records.append(Keep(f"{self._key}/e/{stored.offset:016d}", _encoder.encode(stored)))
        return stored

    def place(self, publisher: int, position: Id, is_gone: bool) -> None:
        """Sets the position with a publisher."""
        found = Position(*position, is_gone)
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
            if all(self.is_acked(offset) for offset in range(stored.offset, stored.end)):
                continue
            if stored.gap is not None:
                gaps.append(stored.gap)
            else:
                lost.setdefault(stored.publisher, []).append(stored)
        if not lost:
            return
        self.ack(self.next - 1, through=True)
        for publisher, some in lost.items():
            first = min((one.incarnation, one.sequences[0]) for one in some)
            last = max((one.incarnation, one.sequences[-1]) for one in some)
            after, before = (first[0], first[1] - 1), (last[0], last[1] + 1)
            gaps.append(Gap(self.about.topic, publisher, after, before, reason))
        for gap in gaps:
            self.store_gap(gap)

    @property
    def acked(self) -> int:
        return self.about.acked

    @property
    def unacked(self) -> int:
        return self.next - 1 - self.about.acked - len(self._above)

    def is_acked(self, offset: int) -> bool:
        return offset <= self.about.acked or offset in self._above

    def ack(self, offset: int, *, through: bool) -> int:
        """Acknowledges this offset, or all through it.

        Returns the number of offsets that were not acknowledged before.
        """
        if not 1 <= offset < self.next:
            raise TapError(
                f"offset {offset} of {self.name!r} was never handed over; "
                f"the last is {self.next - 1}"
            )
        if self.is_acked(offset) and not through:
            return 0
        before = self.unacked
        if through:
            self.about.acked = max(offset, self.about.acked)
            self._above = {one: None for one in self._above if one > offset}
        else:
            self._above[offset] = None
        while self.about.acked + 1 in self._above:
            self.about.acked += 1
            del self._above[self.about.acked]
        self._is_dirty = True
        self._sift()
        return before - self.unacked

    def _sift(self) -> None:
        """Moves batches that are wholly acknowledged aside, where they wait for the position.

        Acknowledged gaps wait for nothing.
        """
        while self.stored:
            first = next(iter(self.stored.values()))
            if first.end > self.about.acked + 1:
                return
            del self.stored[first.offset]
            if first.gap is not None:
                self._told.append(first.offset)
            else:
                self._acked.setdefault(first.publisher, deque()).append(first)


def _intervals(offsets: Iterable[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for offset in sorted(offsets):
        if found and found[-1][1] == offset - 1:
            found[-1] = (found[-1][0], offset)
        else:
            found.append((offset, offset))
    return found


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
