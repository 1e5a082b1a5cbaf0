"""Many filters of one template, laid out so that array look-ups find the matches of a batch.

A template is the set of attributes that are compared for equality, and the one attribute with a
range. The equality values of a filter are numbers (the index keeps the dictionaries). They are
folded into one number, the **group**. A range is closed, in the codes of box.py. The group and an
end of the range make one 64-bit key. The sorted keys cut the line of all keys into **slots**. Each
filter holds for a contiguous stretch of slots, which never leaves its group. So an event belongs to
one slot, and its matches are the stretches around that slot: no candidate is examined in vain.

Levels say which filters hold at a slot, as in a segment tree. A stretch is cut into aligned
blocks of 1, 2^b, 2^2b ... slots, and an event reads one list for each level. Narrow ranges need one
level, which is then a plain table of answers. Wide ranges would fill memory. So b is the largest
value with which a filter is written `_WRITTEN` times on average, or 1.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Ids = NDArray[np.int32]
Mask = NDArray[np.bool_]

# An int64 that stands for no lower end.
LEAST: Final = -(1 << 63)
# An int64 that stands for no upper end.
GREATEST: Final = (1 << 63) - 1

_KEY_BITS: Final = 62
# The values of b. With 40 there is one level.
_STRIDES: Final = (40, 6, 4, 3, 2, 1)
# The most times that a filter is written on average. Each time takes 4 bytes.
_WRITTEN: Final = 12
# The entries of a look-up table for each filter. A larger table is replaced by a binary search.
_TABLE: Final = 4
# The number of boundaries beyond which a search is faster in sorted order, because of the caches.
_SORTED_MIN: Final = 1 << 15


class FoundFilters(NamedTuple):
    """For event events[i], the filters pool[starts[i] : starts[i] + counts[i]].

    If `events` is None, the counts are for all events in order.
    """

    events: Ints | None
    # They are int32 while that is wide enough.
    starts: NDArray[Any]
    counts: NDArray[Any]
    pool: Ids


class FilterColumns(NamedTuple):
    """Filters by columns.

    There is a column of ids, a column of value numbers for each equality, and columns for the
    ends of the range (or None).
    """

    ids: Ids
    equal: list[Ids]
    # An int64, or bytes as objects.
    low: NDArray[Any] | None
    # An int64 that is part of the range, or bytes that lie beyond the range.
    last: NDArray[Any] | None

    def where(self, kept: Mask) -> FilterColumns:
        low, last = (None if column is None else column[kept] for column in (self.low, self.last))
        return FilterColumns(self.ids[kept], [column[kept] for column in self.equal], low, last)


def joined(several: list[FilterColumns]) -> FilterColumns:
    first = several[0]
    low = (
        None if first.low is None else np.concatenate([c.low for c in several if c.low is not None])
    )
    last = (
        None
        if first.last is None
        else np.concatenate([c.last for c in several if c.last is not None])
    )
    equal = [np.concatenate([c.equal[i] for c in several]) for i in range(len(first.equal))]
    return FilterColumns(np.concatenate([c.ids for c in several]), equal, low, last)


class Run:
    """Columns of filters and the structure over them, which does not change."""

    def __init__(self, columns: FilterColumns) -> None:
        self.columns = columns
        self._fold = _Fold(columns.equal)
        self._axis: _Axis | None = None
        self._slots: _Slots | None = None
        groups = self._fold.groups if columns.equal else np.zeros(len(columns.ids), np.int64)
        if columns.low is None or columns.last is None:
            self._levels = [_Level(0, *_lists(groups, columns.ids, self._fold.size))]
        else:
            self._axis = _Axis.over(columns.low, columns.last, self._fold.size)
            bits = self._axis.bits
            lows, ends = self._axis.ends(columns.low, columns.last)
            self._slots = _Slots(
                (groups << bits) + lows, (groups << bits) + ends, self._fold.size << bits
            )
            self._levels = _levels(*self._slots.stretches, columns.ids, self._slots.size)
            del self._slots.stretches
        # Only the building of the run needs them.
        del self._fold.groups

    def find(
        self, count: int, equal: list[Ints], codes: NDArray[Any] | None, present: Mask | None
    ) -> list[FoundFilters]:
        """The matches of `count` events.

        The arguments are the numbers of their values (-1 for unknown values), their codes, and a
        mask of the events that have a code.
        """
        groups = self._fold.find(equal) if equal else None
        kept = present if self._axis is not None else None
        if groups is not None and groups.min(initial=0) < 0:
            kept = groups >= 0 if kept is None else kept & (groups >= 0)
        events: Ints | None = None
        if kept is not None:
            events = np.flatnonzero(kept)
            count = len(events)
            groups = None if groups is None else groups[events]
            codes = None if codes is None else codes[events]
        if self._axis is None or self._slots is None:
            slots = np.zeros(count, np.int64) if groups is None else groups
        else:
            assert codes is not None
            places = self._axis.places(codes)
            slots, order = self._slots.find(
                places if groups is None else (groups << self._axis.bits) + places
            )
            if order is not None:
                events = order if events is None else events[order]
        return [level.find(slots, events) for level in self._levels]

    def find_one(self, equal: list[int], code: Any) -> list[int]:
        """The matches of one event.

        These are the same look-ups without the cost of making arrays. The code is None for NULL.
        """
        slot = self._fold.find_one(equal) if equal else 0
        if slot < 0 or (code is None and self._axis is not None):
            return []
        if self._axis is not None and self._slots is not None:
            slot = self._slots.find_one((slot << self._axis.bits) + self._axis.place(code))
        found: list[int] = []
        for level in self._levels:
            found += level.find_one(slot)
        return found

    @property
    def nbytes(self) -> int:
        parts = [self._fold.nbytes, *(level.nbytes for level in self._levels)]
        parts += [0 if part is None else part.nbytes for part in (self._slots, self._axis)]
        columns = [self.columns.ids, *self.columns.equal, self.columns.low, self.columns.last]
        return sum(parts) + sum(0 if column is None else nbytes(column) for column in columns)


def objects(items: list[bytes]) -> NDArray[Any]:
    found = np.empty(len(items), object)
    found[:] = items
    return found


def nbytes(array: NDArray[Any]) -> int:
    if array.dtype != object:
        return array.nbytes
    # The head of a bytes object takes 33 bytes.
    return array.nbytes + sum(33 + len(item) for item in array.tolist())


class _Fold:
    """Folds several numbers into one dense number.

    It goes pair by pair. Each pair that occurs gets the next number.
    """

    # One for each filter.
    groups: Ints

    def __init__(self, equal: list[Ids]) -> None:
        self._steps: list[tuple[int, Ints, Ids | None]] = []
        self._most = [int(column.max(initial=0)) + 1 for column in equal]
        self.size = 1
        self.groups = np.zeros(0, np.int64)
        if not equal:
            return
        groups, self.size = equal[0].astype(np.int64), self._most[0]
        for column, most in zip(equal[1:], self._most[1:], strict=True):
            pairs = groups * most + column
            known, groups = np.unique(pairs, return_inverse=True)
            space = self.size * most
            table = None
            if space <= _TABLE * len(column) + 256:
                table = np.full(space, -1, np.int32)
                table[known] = np.arange(len(known), dtype=np.int32)
            self._steps.append((most, known, table))
            self.size = len(known)
        self.groups = groups

    def find(self, equal: list[Ints]) -> Ints:
        """The groups of events, and -1 where no filter has their values."""
        groups = np.where(equal[0] < self._most[0], equal[0], -1)
        for column, (most, known, table) in zip(equal[1:], self._steps, strict=True):
            bad = (groups < 0) | (column < 0) | (column >= most)
            pairs = groups * most + column
            pairs[bad] = 0
            if table is not None:
                groups = table[pairs].astype(np.int64)
            else:
                groups = np.searchsorted(known, pairs)
                groups[known[np.minimum(groups, len(known) - 1)] != pairs] = -1
            groups[bad] = -1
        return groups

    def find_one(self, equal: list[int]) -> int:
        group = equal[0] if equal[0] < self._most[0] else -1
        for number, (most, known, table) in zip(equal[1:], self._steps, strict=True):
            if group < 0 or not 0 <= number < most:
                return -1
            pair = group * most + number
            if table is not None:
                group = int(table[pair])
            else:
                group = int(known.searchsorted(pair))
                if group == len(known) or known[group] != pair:
                    return -1
        return group

    @property
    def nbytes(self) -> int:
        return sum(
            known.nbytes + (0 if table is None else table.nbytes) for _, known, table in self._steps
        )


class _Axis:
    """Maps codes to small numbers that are cut in the same places.

    It subtracts where the span allows it. Otherwise it takes the rank.
    """

    def __init__(self, cuts: NDArray[Any], by_rank: bool) -> None:
        # Looking up one code at a time is faster in a list.
        self._cuts: Any = cuts.tolist() if cuts.dtype == object else cuts
        self._by_rank = by_rank
        # Events have places below `_end`. Ranges without an upper end end there.
        self._end = len(cuts) + 1 if by_rank else int(cuts[-1]) - int(cuts[0]) + 2
        self.bits = self._end.bit_length()

    @classmethod
    def over(cls, low: NDArray[Any], last: NDArray[Any], groups: int) -> _Axis:
        if low.dtype == object:
            return cls(objects(sorted({*low.tolist(), *last.tolist()})), True)
        cuts = np.unique(np.concatenate([low[low != LEAST], last[last != GREATEST] + 1]))
        if not len(cuts):
            cuts = np.zeros(1, np.int64)
        span = int(cuts[-1]) - int(cuts[0]) + 2
        if span.bit_length() + groups.bit_length() <= _KEY_BITS:
            return cls(cuts[[0, -1]], False)
        return cls(cuts, True)

    def places(self, codes: NDArray[Any]) -> Ints:
        """The number of cuts at or below each code, or a number that grows with it."""
        if isinstance(self._cuts, list):
            return np.fromiter(
                (bisect_right(self._cuts, code) for code in codes), np.int64, len(codes)
            )
        if self._by_rank:
            return np.searchsorted(self._cuts, codes, "right")
        below = self._cuts[0] - 1
        places: Ints = np.clip(codes, below, self._cuts[1]) - below
        return places

    def place(self, code: Any) -> int:
        if isinstance(self._cuts, list):
            return bisect_right(self._cuts, code)
        if self._by_rank:
            return int(self._cuts.searchsorted(code, "right"))
        below = int(self._cuts[0]) - 1
        return int(min(max(code, below), int(self._cuts[1])) - below)

    def ends(self, low: NDArray[Any], last: NDArray[Any]) -> tuple[Ints, Ints]:
        """The ranges as half-open stretches of places."""
        if low.dtype == object:
            return self.places(low), self.places(last)
        ends = self.places(np.where(last == GREATEST, last, last + 1))
        return self.places(low), np.where(last == GREATEST, self._end, ends)

    @property
    def nbytes(self) -> int:
        cuts = self._cuts
        return sum(41 + len(cut) for cut in cuts) if isinstance(cuts, list) else int(cuts.nbytes)


class _Slots:
    """Maps keys to slots. The slot of a key is the number of boundaries at or below it."""

    stretches: tuple[Ints, Ints]

    def __init__(self, lows: Ints, ends: Ints, space: int) -> None:
        bounds = np.unique(np.concatenate([lows, ends]))
        self.size = len(bounds) + 1
        self._bounds: Ints | None = bounds
        self._table: Ids | None = None
        if space + 1 <= _TABLE * len(lows) + 256:
            marks = np.zeros(space + 1, np.int32)
            marks[bounds] = 1
            self._table = np.cumsum(marks, dtype=np.int32)
            self._bounds = None
            self.stretches = self._table[lows].astype(np.int64), self._table[ends].astype(np.int64)
        else:
            self.stretches = (
                np.searchsorted(bounds, lows, "right"),
                np.searchsorted(bounds, ends, "right"),
            )

    def find(self, keys: Ints) -> tuple[Ints, Ints | None]:
        """The slots, and the order that they are in. None is the order of the keys."""
        if self._table is not None:
            return self._table[keys].astype(np.int64), None
        assert self._bounds is not None
        if self.size < _SORTED_MIN or len(keys) < 64:
            return np.searchsorted(self._bounds, keys, "right"), None
        order = np.argsort(keys)
        return np.searchsorted(self._bounds, keys[order], "right"), order

    def find_one(self, key: int) -> int:
        if self._table is not None:
            return int(self._table[key])
        assert self._bounds is not None
        return int(self._bounds.searchsorted(key, "right"))

    @property
    def nbytes(self) -> int:
        return sum(0 if array is None else array.nbytes for array in (self._bounds, self._table))


class _Level:
    """Lists of filters, one for each block of 2^shift slots."""

    def __init__(self, shift: int, offsets: Ids, pool: Ids) -> None:
        self.shift = shift
        self.offsets = offsets
        self.pool = pool

    def find(self, slots: Ints, events: Ints | None) -> FoundFilters:
        blocks = slots >> self.shift if self.shift else slots
        starts = self.offsets[blocks]
        counts = self.offsets[blocks + 1] - starts
        return FoundFilters(events, starts, counts, self.pool)

    def find_one(self, slot: int) -> list[int]:
        block = slot >> self.shift
        found: list[int] = self.pool[self.offsets[block] : self.offsets[block + 1]].tolist()
        return found

    @property
    def nbytes(self) -> int:
        return self.offsets.nbytes + self.pool.nbytes


def _lists(blocks: Ints, ids: Ids, size: int) -> tuple[Any, Ids]:
    """The offsets and the pool: the ids of each block, one block after the other."""
    order = np.argsort(blocks, kind="stable")
    offsets = np.zeros(size + 1, np.int64)
    np.cumsum(np.bincount(blocks, minlength=size), out=offsets[1:])
    small = offsets[-1] < 1 << 31
    return offsets.astype(np.int32) if small else offsets, ids[order]


def _levels(first: Ints, end: Ints, ids: Ids, size: int) -> list[_Level]:
    stride = next((b for b in _STRIDES if _written(first, end, b) <= _WRITTEN * len(ids)), 1)
    found: list[_Level] = []
    shift = 0
    while len(ids):
        head, tail = _cut(first, end, stride)
        blocks = np.concatenate([expand(first, head - first), expand(tail, end - tail)])
        owners = np.concatenate([np.repeat(ids, head - first), np.repeat(ids, end - tail)])
        found.append(_Level(shift, *_lists(blocks, owners, (size >> shift) + 1)))
        left = head < tail
        first, end, ids = head[left] >> stride, tail[left] >> stride, ids[left]
        shift += stride
    return found


def _written(first: Ints, end: Ints, stride: int) -> int:
    total = 0
    while len(first):
        head, tail = _cut(first, end, stride)
        total += int((head - first).sum() + (end - tail).sum())
        left = head < tail
        first, end = head[left] >> stride, tail[left] >> stride
    return total


def _cut(first: Ints, end: Ints, stride: int) -> tuple[Ints, Ints]:
    """Cuts the stretch from `first` to `end`.

    Between head and tail lie whole blocks of the next level. The rest is first..head and
    tail..end.
    """
    mask = (1 << stride) - 1
    head = np.minimum(end, (first + mask) & ~mask)
    return head, np.maximum(head, end & ~mask)


def expand(starts: NDArray[Any], counts: NDArray[Any]) -> Ints:
    """starts[0], starts[0] + 1, ... up to counts[0] numbers, then those of starts[1], and so on."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    places: Ints = np.arange(total) + np.repeat(starts - (ends - counts), counts)
    return places
