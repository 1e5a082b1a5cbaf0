"""The plan of a topic: which rows go to which nodes. The publisher matches all filters together.

A node gets a row once if one of its filters passes the row. Of a group, one node gets the row whose
filter passes it. That node is drawn by the number of the event, and the draw is always the same. So
a publisher that comes back after a crash asks the same member again.

A few filters are tried one by one. If they look at few attributes and these have few values, the
answer for each value is remembered (``_Memory``). If there are more filters, and NumPy is
installed, they go through an index (filters/index.py). Events that were published as columns are
matched, cut and sent as columns.
"""

from __future__ import annotations

import contextlib
import sys
from array import array
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import msgspec

from gossamer.filters import Filter, FilterError, Schema, loops
from gossamer.filters.packed import Packed
from gossamer.machine import Peer
from gossamer.overlay.batch import Batch

# Up to this number, filters are tried one by one.
FEW = 24
# The same for batches of at least ``ROWS_MANY`` rows, if NumPy is loaded.
FEWEST = 3
ROWS_MANY = 512
# From this number of filters on, NumPy is loaded at once. With fewer filters, it is loaded once
# evaluating them on rows ``TRIED_MANY`` times has cost as much as loading NumPy.
MANY = 2048
TRIED_MANY = 1_000_000
CACHED = 65_536
MASKS_MAX = 1024
# With fewer nodes that have filters, trying the filters is faster than remembering answers.
MEMORY_FROM = 3
MEMORY_ATTRIBUTES = 3
# The most values that are remembered. If there are more, or each comes once, the filters are tried.
MEMORY_MAX = 4096
# The bytes of batches that brought new values, because texts may be long.
MEMORY_BYTES = 16 << 20
# This number of the index's filters may be wanted no longer before the index is laid out anew.
GONE_MANY = 4096
HAS_NUMPY = find_spec("numpy") is not None
_SPREAD, _MASK = 0x9E3779B97F4A7C15, 2**64 - 1

Row = tuple[Any, ...]
_encoder = msgspec.msgpack.Encoder()
Share = tuple[Peer, str, Sequence[int] | None]
"""A node, the group that the rows are for, and the places of the rows; None: all."""


class Payload:
    """The events of a batch as rows, as columns, or both.

    Raises a msgspec.DecodeError if they are neither.
    """

    __slots__ = ("_batch", "_cutter", "_packed", "count", "found", "record")

    def __init__(self, batch: Batch, packed: Packed, rows: list[Row] | None = None) -> None:
        self._batch, self._packed = batch, packed
        self.count = batch.count
        self._cutter: loops.Cutter | None = None
        # The rows, while they are at hand.
        self.found = rows
        # The record batch; None if the events were published as rows.
        self.record: Any = None
        if rows is None:
            if batch.is_columns:
                self.record = packed.columns(batch.rows, batch.count)
            else:
                self.found = packed.decode(batch.rows)

    @property
    def size(self) -> int:
        """The bytes of the events, as they were published."""
        return len(self._batch.rows)

    def rows(self) -> list[Row]:
        if self.found is None:
            packed, record = self._packed, self.record
            self.found = packed.decode(self._batch.rows) if record is None else packed.rows(record)
        return self.found

    def cut(self, places: Sequence[int]) -> bytes:
        """The events at these places, encoded."""
        if self.record is not None:
            return self._packed.pack(self.record.take(places))
        if self._cutter is None:
            self._cutter = loops.Cutter(self._batch.rows)
        found = self._cutter.cut(places)
        if found is None:
            rows = self.rows()
            found = _encoder.encode([rows[place] for place in places])
        return found


@lru_cache(maxsize=CACHED)
def understood(text: str, schema: Schema) -> Filter | None:
    """The filter of a peer's text. None passes all events: the subscriber judges a filter that this
    node cannot read.
    """
    try:
        return Filter.parse(text, schema).weakened if text else None
    except FilterError:
        return None


def _score(peer: int, sequence: int) -> int:
    mixed = ((peer ^ (sequence * _SPREAD)) * _SPREAD) & _MASK
    return (mixed ^ (mixed >> 29)) * _SPREAD & _MASK


class _Memory:
    """The nodes that want a row, by the values of the attributes that the filters look at. Rows
    with equal values have equal answers.
    """

    def __init__(self, schema: Schema, some: dict[Peer, dict[int, Filter]]) -> None:
        names = dict.fromkeys(
            name
            for filters in some.values()
            for each in filters.values()
            for name in each.attributes
        )
        self.is_worth_it = len(some) >= MEMORY_FROM and 0 < len(names) <= MEMORY_ATTRIBUTES
        if self.is_worth_it:
            self._where = tuple(map(schema.names.index, names))
            self._tried = [
                (peer, [each.matches_row for each in filters.values()])
                for peer, filters in some.items()
            ]
        self._known: dict[Any, tuple[int, ...]] = {}
        self._new = self._asked = self._bytes = 0

    def shares(self, rows: list[Row], size: int) -> list[tuple[Peer, list[int]]]:
        """The places of the rows that each node wants.

        ``size`` is the number of bytes of all rows. Raises an IndexError if a row is too short.
        """
        known, before = self._known, len(self._known)
        places = loops.shares(rows, self._where, known, self._takers, len(self._tried))
        if len(known) > before:
            self._new += len(known) - before
            self._bytes += size
            if len(known) > MEMORY_MAX or self._bytes > MEMORY_BYTES:
                known.clear()
                self._bytes = 0
        self._asked += len(rows)
        if self._asked > MEMORY_MAX:
            self._new, self._asked, self.is_worth_it = (
                self._new // 2,
                self._asked // 2,
                self._new * 4 < self._asked,
            )
            if not self.is_worth_it:
                known.clear()
        return [(peer, some) for (peer, _), some in zip(self._tried, places, strict=True) if some]

    def _takers(self, row: Row) -> tuple[int, ...]:
        return tuple(
            [
                at
                for at, (_, tried) in enumerate(self._tried)
                if any(matches(row) for matches in tried)
            ]
        )


class Plan:
    """The filters of each node. A change costs the same for any number of filters."""

    def __init__(self, packed: Packed) -> None:
        self._packed = packed
        self._masks: dict[Filter, Any] = {}
        # The filter and the group of each wish, by the node's number for it.
        self._wants: dict[Peer, dict[int, tuple[Filter | None, str]]] = {}
        # The nodes that take all rows, with the number of wishes that say so.
        self._everything: dict[Peer, int] = {}
        self._some: dict[Peer, dict[int, Filter]] = {}
        # A filter of None passes all rows.
        self.groups: dict[str, dict[Peer, dict[int, Filter | None]]] = {}
        # The remembered answers of ``_some``, and the number of filters in ``_some``.
        self._memory: _Memory | None = None
        self._filters = 0
        # How often a filter was asked about a row, or would have been asked without the index.
        self._tried = 0
        self._index: Any = None
        # The ids of the filters in the index, and for each id the place of its node in ``_order``.
        self._ids: dict[tuple[Peer, int], int] = {}
        self._owners = array("q")
        self._order: dict[Peer, int] = {}

    def want(self, peer: Peer, number: int, text: str, group: str) -> None:
        self.drop(peer, number)
        found = understood(text, self._packed.schema)
        self._wants.setdefault(peer, {})[number] = (found, group)
        if group:
            self.groups.setdefault(group, {}).setdefault(peer, {})[number] = found
        elif found is None:
            self._everything[peer] = self._everything.get(peer, 0) + 1
        else:
            self._some.setdefault(peer, {})[number] = found
            self._memory = None
            self._filters += 1
            if self._index is not None:
                self._enter(peer, number, found)
            elif HAS_NUMPY and self._filters > (FEW if _is_loaded() else MANY):
                # If very many come, the index is laid out now, and not with the next batch.
                self._lay_out()

    def drop(self, peer: Peer, number: int) -> None:
        """A node wants this no longer, if it did."""
        wants = self._wants.get(peer, {})
        known = wants.pop(number, None)
        if known is None:
            return
        found, group = known
        if not wants:
            del self._wants[peer]
        if group:
            _remove(self.groups[group], peer, number)
            if not self.groups[group]:
                del self.groups[group]
        elif found is None:
            self._everything[peer] -= 1
            if not self._everything[peer]:
                del self._everything[peer]
        else:
            _remove(self._some, peer, number)
            self._memory = None
            self._filters -= 1
            if self._index is not None:
                self._index.remove(self._ids.pop((peer, number)))
                if len(self._owners) > 2 * self._filters + GONE_MANY:
                    # No id is used twice. The index is laid out anew when it is needed.
                    self._index = None

    def forget(self, peer: Peer) -> None:
        for number in list(self._wants.get(peer, ())):
            self.drop(peer, number)

    def _uses_index(self, payload: Payload) -> bool:
        """Whether the index is faster. It is laid out when it is first needed."""
        # Loading NumPy in the middle of a burst would cost more than it saves. So a few filters do
        # without the index unless NumPy is loaded, and more filters do until they have been tried
        # on many rows. Remembered answers are found in half the time.
        if self._filters > FEW:
            self._tried += payload.count * self._filters
            worth_it = (
                self._index is not None
                or _is_loaded()
                or self._filters > MANY
                or self._tried >= TRIED_MANY
            )
        else:
            worth_it = self._filters > FEWEST and payload.count >= ROWS_MANY and _is_loaded()
            if worth_it and payload.record is None:
                worth_it = not self._remember().is_worth_it
        if not worth_it or not HAS_NUMPY:
            return False
        if self._index is None:
            self._lay_out()
        return True

    def _lay_out(self) -> None:
        from gossamer.filters.index import Index

        self._index, self._owners = Index(self._packed.schema), array("q")
        self._ids.clear()
        self._order.clear()
        for peer, filters in self._some.items():
            for number, each in filters.items():
                self._enter(peer, number, each)

    def _enter(self, peer: Peer, number: int, filter: Filter) -> None:
        self._ids[peer, number] = self._index.add(filter)
        self._owners.append(self._order.setdefault(peer, len(self._order)))

    def shares(self, payload: Payload, first: int) -> list[Share]:
        """Who gets which events of a batch, of which the first has this number."""
        found: list[Share] = []
        everything, count = self._everything, payload.count
        for peer in everything:
            found.append((peer, "", None))
        if self._filters > FEWEST and self._uses_index(payload):
            found += self._by_index(payload)
        else:
            if payload.record is not None:
                some = self._masked(payload.record)
            elif len(self._some) < MEMORY_FROM:
                some = []
                rows = payload.found or payload.rows()
                for peer, wants in self._some.items():
                    if len(wants) == 1:
                        (only,) = wants.values()
                        some.append((peer, only.passing(rows)))
                    else:
                        some.append((peer, _passing(rows, list(wants.values()))))
            else:
                some = self._remembered(payload)
            for peer, places in some:
                if places and peer not in everything:
                    found.append((peer, "", places if len(places) < count else None))
        for group in self.groups:
            members: dict[Peer, list[int]] = {}
            for place, row in enumerate(payload.rows()):
                one = self.chosen(group, row, first + place, ())
                if one is not None:
                    members.setdefault(one, []).append(place)
            found += [(peer, group, places) for peer, places in members.items()]
        return found

    def _remember(self) -> _Memory:
        memory = self._memory
        if memory is None:
            memory = self._memory = _Memory(self._packed.schema, self._some)
        return memory

    def _remembered(self, payload: Payload) -> Iterable[tuple[Peer, Sequence[int]]]:
        memory, rows = self._remember(), payload.rows()
        if memory.is_worth_it:
            # An IndexError says that a row is of a shorter schema.
            with contextlib.suppress(IndexError):
                return memory.shares(rows, payload.size)
        return [(peer, _passing(rows, list(wants.values()))) for peer, wants in self._some.items()]

    def _masked(self, record: Any) -> Iterable[tuple[Peer, Sequence[int]]]:
        from gossamer.filters.mask import compile_mask

        for peer, wants in self._some.items():
            passed: Any = None
            for each in wants.values():
                mask = self._masks.get(each)
                if mask is None:
                    if len(self._masks) >= MASKS_MAX:
                        self._masks.clear()
                    mask = self._masks[each] = compile_mask(each, self._packed)
                some = mask(record)
                # All rows pass.
                if some is None:
                    passed = None
                    break
                passed = some if passed is None else passed | some
            yield peer, range(record.num_rows) if passed is None else passed.nonzero()[0].tolist()

    def _by_index(self, payload: Payload) -> list[Share]:
        import numpy as np

        count = payload.count
        matches = (
            self._index.match_rows(payload.rows())
            if payload.record is None
            else self._index.match_columns(payload.record)
        )
        events, filters = matches.pairs()
        each = np.unique(np.frombuffer(self._owners, np.int64)[filters] * count + events)
        owners, places = each // count, each % count
        ends = np.searchsorted(owners, np.arange(len(self._order) + 1))
        found: list[Share] = []
        for peer, at in self._order.items():
            here = places[ends[at] : ends[at + 1]].tolist()
            if here and peer not in self._everything:
                found.append((peer, "", here if len(here) < count else None))
        return found

    def chosen(self, group: str, row: Row, sequence: int, tried: Iterable[Peer]) -> Peer | None:
        """The member of a group that gets this event. None means that no member wants it, or that
        all were tried.
        """
        best, least = None, -1
        for peer, filters in self.groups.get(group, {}).items():
            if peer not in tried and any(
                each is None or each.matches_row(row) for each in filters.values()
            ):
                score = _score(peer, sequence)
                if score > least:
                    best, least = peer, score
        return best


def _is_loaded() -> bool:
    return "numpy" in sys.modules


def _remove(table: dict[Peer, dict[int, Any]], peer: Peer, number: int) -> None:
    del table[peer][number]
    if not table[peer]:
        del table[peer]


def _passing(rows: Sequence[Row], filters: list[Filter]) -> list[int]:
    if len(filters) == 1:
        return filters[0].passing(rows)
    several = [each.matches_row for each in filters]
    return [place for place, row in enumerate(rows) if any(matches(row) for matches in several)]
