"""Which rows go to whom: the filters of all who take a topic, matched together at the source.

A node gets a row if one of its filters passes it, once; of a group, one node whose filter passes it. Which one is drawn by the
event's number, the same one each time it is asked, so a publisher that comes back after a crash asks the same member again.

A handful of filters are tried one by one; more of them go through an index (filters/index.py), where NumPy is there. Events that
were published as columns are matched, cut and sent as columns.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import msgspec

from gossamer.filters import Filter, FilterError, Schema
from gossamer.filters.packed import Packed
from gossamer.machine import Peer
from gossamer.overlay.batch import Batch

FEW = 24  # filters that are tried one by one,
FEWEST = 3  # or so many, where there are rows enough and NumPy is loaded
ROWS_MANY = 512
CACHED = 65_536
_SPREAD, _MASK = 0x9E3779B97F4A7C15, 2**64 - 1

Row = tuple[Any, ...]
_encoder = msgspec.msgpack.Encoder()
Share = tuple[Peer, str, list[int] | None]
"""Who, for which group, and the places of the rows; None: all."""


class Payload:
    """The events of a batch: as rows, as columns, or both, whatever is asked for. Raises msgspec.DecodeError if it is neither."""

    __slots__ = ("_batch", "_packed", "_record", "_rows", "count")

    def __init__(self, batch: Batch, packed: Packed, rows: Sequence[Row] | None = None) -> None:
        self._batch, self._packed, self._rows = batch, packed, rows
        self.count = batch.count
        self._record: Any = packed.columns(batch.rows, batch.count) if rows is None and batch.is_columns else None
        if rows is None and self._record is None:
            self._rows = packed.decode(batch.rows)

    @property
    def record(self) -> Any:
        """The record batch; None if the events were published as rows."""
        return self._record

    @property
    def rows(self) -> Sequence[Row]:
        if self._rows is None:
            self._rows = self._packed.rows(self._record)
        return self._rows

    def cut(self, places: Sequence[int] | None) -> bytes:
        """The events at these places, encoded; None: all."""
        if places is None:
            return self._batch.rows
        if self._record is not None:
            return self._packed.pack(self._record.take(places))
        rows = self.rows
        return _encoder.encode([rows[place] for place in places])


@lru_cache(maxsize=CACHED)
def understood(text: str, schema: Schema) -> Filter | None:
    """What a peer says it wants; None: all, for what cannot be read is the subscriber's to judge."""
    try:
        return Filter.parse(text, schema).weakened if text else None
    except FilterError:
        return None


def _score(peer: int, sequence: int) -> int:
    mixed = ((peer ^ (sequence * _SPREAD)) * _SPREAD) & _MASK
    return (mixed ^ (mixed >> 29)) * _SPREAD & _MASK


class Plan:
    """Made from what each node wants, as (text, group); made anew when that changes."""

    def __init__(self, packed: Packed, wants: Mapping[Peer, Iterable[tuple[str, str]]]) -> None:
        schema = packed.schema
        self._packed = packed
        self._masks: dict[Filter, Any] = {}
        self._everything: list[Peer] = []  # nodes that take all rows
        self._some: list[tuple[Peer, list[Filter]]] = []
        self.groups: dict[str, dict[Peer, list[Filter] | None]] = {}  # None: all
        for peer, several in wants.items():
            own: list[Filter] = []
            takes_all = False
            for text, group in several:
                found = understood(text, schema)
                if group:
                    known = self.groups.setdefault(group, {}).setdefault(peer, [])
                    if found is None:
                        self.groups[group][peer] = None
                    elif known is not None:
                        known.append(found)
                elif found is None:
                    takes_all = True
                else:
                    own.append(found)
            if takes_all:
                self._everything.append(peer)
            elif own:
                self._some.append((peer, own))
        self._index: Any = None
        self._owners: Any = None
        self._filters = sum(len(filters) for _, filters in self._some) if find_spec("numpy") is not None else 0

    def _uses_index(self, rows: int) -> bool:
        """Whether that is faster; it is laid out when it is first needed."""
        # Loading NumPy in the middle of a burst would cost more than it saves: a few filters do without unless it is there.
        worth_it = self._filters > FEWEST and rows >= ROWS_MANY and "numpy" in sys.modules
        if self._filters <= FEW and not worth_it:
            return False
        if self._index is None:
            self._lay_out(self._packed.schema)
        return True

    def _lay_out(self, schema: Schema) -> None:
        import numpy as np

        from gossamer.filters.index import Index

        self._index = Index(schema, [each for _, filters in self._some for each in filters])
        sizes = [len(filters) for _, filters in self._some]
        self._owners = np.repeat(np.arange(len(sizes)), sizes)

    def shares(self, payload: Payload, first: int) -> list[Share]:
        """For the events of a batch, of which the first has this number."""
        found: list[Share] = [(peer, "", None) for peer in self._everything]
        if self._uses_index(payload.count):
            found += self._by_index(payload)
        else:
            for peer, filters in self._some:
                places = _passing(payload.rows, filters) if payload.record is None else self._masked(payload.record, filters)
                if places:
                    found.append((peer, "", places if len(places) < payload.count else None))
        for group in self.groups:
            members: dict[Peer, list[int]] = {}
            for place, row in enumerate(payload.rows):
                one = self.chosen(group, row, first + place, ())
                if one is not None:
                    members.setdefault(one, []).append(place)
            found += [(peer, group, places) for peer, places in members.items()]
        return found

    def _masked(self, record: Any, filters: list[Filter]) -> list[int]:
        from gossamer.filters.mask import compile_mask

        passed: Any = None
        for each in filters:
            mask = self._masks.get(each)
            if mask is None:
                mask = self._masks[each] = compile_mask(each, self._packed)
            some = mask(record)
            if some is None:
                return list(range(record.num_rows))
            passed = some if passed is None else passed | some
        places: list[int] = passed.nonzero()[0].tolist()
        return places

    def _by_index(self, payload: Payload) -> list[Share]:
        import numpy as np

        count = payload.count
        matches = (
            self._index.match_rows(payload.rows) if payload.record is None else self._index.match_columns(payload.record)
        )
        events, filters = matches.pairs()
        each = np.unique(self._owners[filters].astype(np.int64) * count + events)
        owners, places = each // count, each % count
        ends = np.searchsorted(owners, np.arange(len(self._some) + 1))
        found: list[Share] = []
        for at, (peer, _) in enumerate(self._some):
            here = places[ends[at] : ends[at + 1]].tolist()
            if here:
                found.append((peer, "", here if len(here) < count else None))
        return found

    def chosen(self, group: str, row: Row, sequence: int, tried: Iterable[Peer]) -> Peer | None:
        """The member of a group that gets this event; None: nobody wants it, or all were tried."""
        best, least = None, -1
        for peer, filters in self.groups.get(group, {}).items():
            if peer not in tried and (filters is None or any(each.matches_row(row) for each in filters)):
                score = _score(peer, sequence)
                if score > least:
                    best, least = peer, score
        return best


def _passing(rows: Sequence[Row], filters: list[Filter]) -> list[int]:
    if len(filters) == 1:
        matches = filters[0].matches_row
        return [place for place, row in enumerate(rows) if matches(row)]
    several = [each.matches_row for each in filters]
    return [place for place, row in enumerate(rows) if any(matches(row) for matches in several)]
