"""Index: one event, or a batch of events, against many filters at once.

Filters are sorted into templates. A template is the set of attributes with equalities, and the
one attribute with a range. Whatever a template does not express (a second range, NOT IN, patterns,
two attributes compared) is a residual. A filter with a residual is a candidate where its template
matches, and then its own generated function decides. A filter that fits no template is a candidate
for every event. So the verdicts are always those of `Filter.matches_row`.

Events are answered a batch at a time, by columns (runs.py explains it). Adding is cheap: filters
wait in lists until the next match. The match makes a new run of them and joins it with older runs
of similar size, so a filter is moved O(log n) times. A removed filter is passed over until its run
is joined. When more than half of the filters are gone, everything is laid out anew.

    index = Index(schema)
    here = index.add(Filter.parse("country = 'CH' AND temp BETWEEN 20 AND 30", schema))
    index.match({"country": "CH", "temp": 25})   # [0]: ids count up in the order of adding
    index.match_columns(pyarrow_table).pairs()   # (events, filters): two arrays

This module needs NumPy. Nothing else in the package imports it, so a plain node starts without
NumPy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gossamer.filters.box import LINES, Box, Domain, Line
from gossamer.filters.columns import ArrowEvents, EventColumns, RowEvents
from gossamer.filters.filter import Filter
from gossamer.filters.match import MatchRow
from gossamer.filters.model import Event
from gossamer.filters.runs import (
    GREATEST,
    LEAST,
    FilterColumns,
    FoundFilters,
    Ids,
    Ints,
    Mask,
    Run,
    expand,
    joined,
    objects,
)
from gossamer.filters.schema import Schema
from gossamer.filters.tree import And, Compare, In, Node

# Ids are 32 bits wide.
FILTERS_MAX: Final = (1 << 31) - 1
# The most entries of one box. Beyond that, lists of values become residual, the longest first.
SPLITS_MAX: Final = 64
# The most events that are matched in one go. More are taken in turns.
_BATCH_MAX: Final = 65_536
# The fewest removed filters for which the index is laid out anew.
_DEAD_MIN: Final = 1024

# The equality attributes in the schema's order, and the attribute with the range, or -1.
Template = tuple[tuple[int, ...], int]


class Matches:
    """The result for a batch: event i passes the filters `ids[offsets[i] : offsets[i + 1]]`."""

    def __init__(self, offsets: Ints, ids: Ids) -> None:
        self.offsets = offsets
        self.ids = ids

    def __len__(self) -> int:
        """The number of events."""
        return len(self.offsets) - 1

    def __getitem__(self, event: int) -> list[int]:
        """The filters that the event passes, in order."""
        if not 0 <= event < len(self):
            raise IndexError(event)
        return sorted(self.ids[self.offsets[event] : self.offsets[event + 1]].tolist())

    def __iter__(self) -> Iterator[list[int]]:
        return (self[event] for event in range(len(self)))

    @property
    def counts(self) -> Ints:
        return np.diff(self.offsets)

    def pairs(self) -> tuple[Ints, Ids]:
        """The matches as two arrays (events, filters), with one entry for each match, by event."""
        return np.repeat(np.arange(len(self)), self.counts), self.ids


class Index:
    """Filters of one schema.

    Ids count up from 0 in the order of adding, and no id is given twice.
    """

    def __init__(self, schema: Schema, filters: Iterable[Filter] = ()) -> None:
        self.schema = schema
        self._templates: dict[Template, _Template] = {}
        # By attribute: a number for each value that an equality names.
        self._numbers: dict[int, dict[Any, int]] = {}
        # The filters with a residual.
        self._asked: dict[int, MatchRow] = {}
        self._alive = _Flags()
        # The filters in _asked.
        self._asks = _Flags()
        # The filters of more than one box. Two boxes may find such a filter twice.
        self._boxed = _Flags()
        # Whether there are such filters.
        self._repeated = False
        self._removed = 0
        # The removed filters that may still be in a run.
        self._dead = 0
        for each in filters:
            self.add(each)

    def __len__(self) -> int:
        return self._alive.size - self._removed

    def add(self, filter: Filter) -> int:
        """Adds the filter, which takes part in the next match, and returns its id."""
        if filter.schema != self.schema:
            raise ValueError("an index has filters of one schema")
        number = self._alive.size
        if number == FILTERS_MAX:
            raise OverflowError(f"an index has at most {FILTERS_MAX:,} filters")
        asks = boxed = False
        if not self._enter_plain(filter.tree, number):
            for box in filter.boxes:
                asks |= self._enter(box, number)
            boxed = len(filter.boxes) > 1
        self._alive.append(True)
        self._asks.append(asks)
        self._boxed.append(boxed)
        self._repeated |= boxed
        if asks:
            self._asked[number] = filter.matches_row
        return number

    def remove(self, number: int) -> None:
        """Removes the filter. Raises a KeyError if the index does not have it."""
        if not (0 <= number < self._alive.size and self._alive[number]):
            raise KeyError(number)
        self._alive[number] = False
        self._asked.pop(number, None)
        self._removed += 1
        self._dead += 1
        if self._dead > _DEAD_MIN and self._dead > len(self):
            self._rebuild()

    def match(self, event: Event | Mapping[str, Any]) -> list[int]:
        """The ids of the filters that the event passes, in order.

        An EventError says that the event does not fit the schema.
        """
        return self.match_row(self.schema.row(event))

    def match_row(self, row: tuple[Any, ...]) -> list[int]:
        self._settle()
        row = (*row, *[None] * (len(self.schema.names) - len(row)))
        found: list[int] = []
        for template in self._templates.values():
            equal = [
                self._numbers[attribute].get(row[attribute], -1) for attribute in template.equal
            ]
            code = None
            if template.ranged >= 0 and row[template.ranged] is not None:
                code = LINES[self.schema.types[template.ranged]].code(row[template.ranged])
            for run in template.runs:
                found += run.find_one(equal, code)
        if self._repeated:
            found = list(dict.fromkeys(found))
        if self._dead:
            found = [number for number in found if self._alive[number]]
        if self._asked:
            asked = self._asked
            found = [number for number in found if number not in asked or asked[number](row)]
        return sorted(found)

    def match_events(self, events: Iterable[Event | Mapping[str, Any]]) -> Matches:
        row = self.schema.row
        return self.match_rows([row(event) for event in events])

    def match_rows(self, rows: Sequence[tuple[Any, ...]]) -> Matches:
        """Matches rows as `schema.row` makes them. NULLs at the end of a row may be missing."""
        return self._match(
            [
                RowEvents(rows[at : at + _BATCH_MAX], self.schema)
                for at in range(0, len(rows), _BATCH_MAX)
            ]
        )

    def match_columns(self, batch: Any) -> Matches:
        """Matches a pyarrow RecordBatch or Table with a column for each attribute of the schema.

        An EventError says that the columns do not fit the schema. Columns of the schema's own
        types, and dictionaries of STRING, are read without a copy.
        """
        places = range(0, batch.num_rows, _BATCH_MAX)
        return self._match([ArrowEvents(batch.slice(at, _BATCH_MAX), self.schema) for at in places])

    @property
    def nbytes(self) -> int:
        """About how many bytes the index holds, without the generated functions of residual
        filters.
        """
        # For each value: its string, its number, and their entry.
        values = sum(150 * len(numbers) for numbers in self._numbers.values())
        return (
            values
            + 3 * self._alive.size
            + sum(template.nbytes for template in self._templates.values())
        )

    # Filters go in.

    def _enter_plain(self, node: Node, number: int) -> bool:
        """Enters a filter of equalities with single values and at most one range.

        Returns False if the filter has anything else. Most filters are this simple, and entering
        them so takes a fraction of the time that boxes take.
        """
        equal: dict[int, Any] = {}
        ends: dict[str, Compare] = {}
        ranged = -1
        for term in node.terms if type(node) is And else (node,):
            if (
                type(term) is In
                and len(term.values) == 1
                and not term.negated
                and term.attribute not in equal
            ):
                equal[term.attribute] = term.values[0]
            elif (
                type(term) is Compare and ranged in (-1, term.attribute) and term.op[0] not in ends
            ):
                ranged = term.attribute
                ends[term.op[0]] = term
            else:
                return False
        order = tuple(sorted(equal, key=self.schema.ranks.__getitem__))
        choice = [self._number(attribute, equal[attribute]) for attribute in order]
        low: Any = None
        last: Any = None
        if ranged >= 0:
            low, last = _ends(LINES[self.schema.types[ranged]], ends)
        if ranged < 0 or low <= last:
            self._at(order, ranged).append(number, choice, low, last)
        return True

    def _at(self, equal: tuple[int, ...], ranged: int) -> _Template:
        template = self._templates.get((equal, ranged))
        if template is None:
            template = self._templates[equal, ranged] = _Template(equal, ranged)
        return template

    def _enter(self, box: Box, number: int) -> bool:
        """Enters a box in its template. Says whether the filter has a residual."""
        equal, ranged = _template(box)
        template = self._at(equal, ranged)
        choices = [self._values(attribute, box.domains[attribute]) for attribute in equal]
        low, last = (None, None) if ranged < 0 else _closed(box.domains[ranged])
        for choice in product(*choices):
            template.append(number, choice, low, last)
        exact = ranged >= 0 and box.domains[ranged].plain and box.domains[ranged].values is None
        return len(equal) + exact < len(box.domains) or bool(box.pairs)

    def _values(self, attribute: int, domain: Domain) -> list[int]:
        values = (
            [None] if domain.null else [domain.line.value(code) for code in domain.values or ()]
        )
        return [self._number(attribute, value) for value in values]

    def _number(self, attribute: int, value: Any) -> int:
        numbers = self._numbers.get(attribute)
        if numbers is None:
            numbers = self._numbers[attribute] = {}
        return numbers.setdefault(value, len(numbers))

    def _rebuild(self) -> None:
        """Lays everything out anew without the removed filters, and without values that only they
        named.
        """
        alive = self._alive.values
        kept: dict[Template, FilterColumns] = {}
        used: dict[int, list[Ids]] = {}
        for key, template in self._templates.items():
            columns = template.columns(alive)
            if columns is not None and len(columns.ids):
                kept[key] = columns
                for attribute, column in zip(template.equal, columns.equal, strict=True):
                    used.setdefault(attribute, []).append(column)
        fresh: dict[int, Ids] = {}
        for attribute, several in used.items():
            numbers = self._numbers[attribute]
            new = np.full(len(numbers), -1, np.int32)
            old = np.unique(np.concatenate(several))
            new[old] = np.arange(len(old), dtype=np.int32)
            fresh[attribute] = new
            self._numbers[attribute] = {
                value: int(new[at]) for value, at in numbers.items() if new[at] >= 0
            }
        self._numbers = {attribute: self._numbers[attribute] for attribute in used}
        self._templates = {}
        for (equal, ranged), columns in kept.items():
            renamed = [
                fresh[attribute][column]
                for attribute, column in zip(equal, columns.equal, strict=True)
            ]
            template = self._templates[equal, ranged] = _Template(equal, ranged)
            template.runs = [Run(columns._replace(equal=renamed))]
        self._dead = 0

    # Events go through.

    def _settle(self) -> None:
        for template in self._templates.values():
            template.settle(self._alive.values if self._dead else None)

    def _match(self, batches: Sequence[EventColumns]) -> Matches:
        self._settle()
        found = [self._match_batch(batch) for batch in batches]
        if len(found) == 1:
            return found[0]
        ends = np.cumsum([0, *(len(m.ids) for m in found)])
        offsets = [m.offsets[1:] + start for m, start in zip(found, ends, strict=False)]
        ids = [m.ids for m in found]
        return Matches(
            np.concatenate([np.zeros(1, np.int64), *offsets]),
            np.concatenate(ids) if ids else np.zeros(0, np.int32),
        )

    def _match_batch(self, batch: EventColumns) -> Matches:
        numbers: dict[int, Ints] = {}
        coded: dict[int, tuple[NDArray[Any], Mask | None]] = {}
        found: list[FoundFilters] = []
        for template in self._templates.values():
            if not template.runs:
                continue
            for attribute in template.equal:
                if attribute not in numbers:
                    numbers[attribute] = batch.numbers(attribute, self._numbers[attribute])
            if template.ranged >= 0 and template.ranged not in coded:
                coded[template.ranged] = batch.codes(template.ranged)
            codes, present = coded[template.ranged] if template.ranged >= 0 else (None, None)
            equal = [numbers[attribute] for attribute in template.equal]
            for run in template.runs:
                found += run.find(batch.size, equal, codes, present)
        return self._judged(_gathered(found, batch.size), batch)

    def _judged(self, matches: Matches, batch: EventColumns) -> Matches:
        """Leaves out removed filters, repeated ones, and those that a residual refuses."""
        if not (self._dead or self._repeated or self._asked) or not len(matches.ids):
            return matches
        events, ids = matches.pairs()
        kept = self._alive.values[ids]
        if self._repeated:
            boxed = np.flatnonzero(self._boxed.values[ids])
            _, first = np.unique(events[boxed] << 32 | ids[boxed], return_index=True)
            again = np.delete(boxed, first)
            kept[again] = False
        asked = (
            np.flatnonzero(kept & self._asks.values[ids]) if self._asked else np.zeros(0, np.int64)
        )
        if len(asked):
            rows = batch.rows(np.unique(events[asked]).tolist())
            functions = self._asked
            pairs = zip(events[asked].tolist(), ids[asked].tolist(), strict=True)
            kept[asked] = [functions[number](rows[event]) for event, number in pairs]
        events, ids = events[kept], ids[kept]
        offsets = np.zeros(len(matches) + 1, np.int64)
        np.cumsum(np.bincount(events, minlength=len(matches)), out=offsets[1:])
        return Matches(offsets, ids)


def _gathered(found: list[FoundFilters], count: int) -> Matches:
    """The parts as one, by event.

    The filters of each part follow those of the parts before it.
    """
    totals = np.zeros(count, np.int64)
    for part in found:
        if part.events is None:
            totals += part.counts
        else:
            totals[part.events] += part.counts
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(totals, out=offsets[1:])
    if len(found) == 1 and found[0].events is None:
        return Matches(offsets, found[0].pool[expand(found[0].starts, found[0].counts)])
    ids = np.empty(int(offsets[-1]), np.int32)
    free = offsets[:-1].copy()
    for events, starts, counts, pool in found:
        if events is None:
            ids[expand(free, counts)] = pool[expand(starts, counts)]
            free += counts
        else:
            ids[expand(free[events], counts)] = pool[expand(starts, counts)]
            free[events] += counts
    return Matches(offsets, ids)


def _template(box: Box) -> Template:
    equal = [a for a, domain in box.domains.items() if domain.values is not None]
    sizes = {a: len(box.domains[a].values or (None,)) for a in equal}
    total = 1
    # The longest lists are left out first.
    for attribute in sorted(equal, key=sizes.__getitem__):
        if total * sizes[attribute] > SPLITS_MAX:
            equal.remove(attribute)
        else:
            total *= sizes[attribute]
    ranged, best = -1, 0
    for attribute, domain in box.domains.items():
        ends = sum(domain.bounded)
        if attribute not in equal and not domain.null and ends > best:
            ranged, best = attribute, ends
    return tuple(equal), ranged


def _closed(domain: Domain) -> tuple[Any, Any]:
    """The ends of a range as runs.py has them."""
    if isinstance(domain.low, bytes):
        return domain.low, domain.high
    lower, upper = domain.bounded
    return domain.low if lower else LEAST, domain.high - 1 if upper else GREATEST


def _ends(line: Line, compares: Mapping[str, Compare]) -> tuple[Any, Any]:
    """The same ends, from the comparisons by the first character of their operator."""
    lower, upper = compares.get(">"), compares.get("<")
    low, high = line.bottom, line.top
    if lower is not None:
        low = line.code(lower.value)
        low = low if lower.op == ">=" else line.after(low)
    if upper is not None:
        high = line.code(upper.value)
        high = high if upper.op == "<" else line.after(high)
    if isinstance(low, bytes):
        return low, high
    return low if low != line.bottom else LEAST, high - 1 if high != line.top else GREATEST


class _Template:
    """The filters of one template: its runs, the largest first, and the filters that wait."""

    def __init__(self, equal: tuple[int, ...], ranged: int) -> None:
        self.equal = equal
        self.ranged = ranged
        self.runs: list[Run] = []
        self._clear()

    def _clear(self) -> None:
        self._ids: list[int] = []
        self._equal: list[list[int]] = [[] for _ in self.equal]
        self._low: list[Any] = []
        self._last: list[Any] = []

    def append(self, number: int, equal: Sequence[int], low: Any, last: Any) -> None:
        self._ids.append(number)
        for column, value in zip(self._equal, equal, strict=True):
            column.append(value)
        self._low.append(low)
        self._last.append(last)

    def settle(self, alive: Mask | None) -> None:
        """Makes one run of the filters that wait and of the runs that are not much larger."""
        if not self._ids:
            return
        several = [self._waiting()]
        count = len(self._ids)
        while self.runs and len(self.runs[-1].columns.ids) <= 2 * count:
            several.append(self.runs.pop().columns)
            count += len(several[-1].ids)
        columns = joined(several[::-1])
        if alive is not None:
            columns = columns.where(alive[columns.ids])
        self._clear()
        if len(columns.ids):
            self.runs.append(Run(columns))

    def columns(self, alive: Mask) -> FilterColumns | None:
        """All filters that are alive."""
        several = [run.columns for run in self.runs] + ([self._waiting()] if self._ids else [])
        if not several:
            return None
        columns = joined(several)
        return columns.where(alive[columns.ids])

    def _waiting(self) -> FilterColumns:
        low = last = None
        if self.ranged >= 0:
            make = (
                objects
                if isinstance(self._low[0], bytes)
                else lambda items: np.array(items, np.int64)
            )
            low, last = make(self._low), make(self._last)
        ids = np.array(self._ids, np.int32)
        return FilterColumns(ids, [np.array(column, np.int32) for column in self._equal], low, last)

    @property
    def nbytes(self) -> int:
        return sum(run.nbytes for run in self.runs) + 8 * len(self._ids) * (3 + len(self.equal))


class _Flags:
    """One flag for each filter, as an array that grows."""

    def __init__(self) -> None:
        self._room = np.zeros(1024, np.bool_)
        self.size = 0

    def append(self, value: bool) -> None:
        if self.size == len(self._room):
            self._room = np.concatenate([self._room, np.zeros(self.size, np.bool_)])
        self._room[self.size] = value
        self.size += 1

    def __getitem__(self, number: int) -> bool:
        return bool(self._room[number])

    def __setitem__(self, number: int, value: bool) -> None:
        self._room[number] = value

    @property
    def values(self) -> Mask:
        return self._room[: self.size]
