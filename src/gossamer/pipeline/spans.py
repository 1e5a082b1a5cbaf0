"""Finds the pairs of events and simple filters by sorting.

This is the part of ``simple`` that runs in Spark's Python workers. It imports neither Spark nor any
module of gossamer.

A simple filter is a few equalities and the two ends of one range. The values of its equalities are
its *key*. Events are sorted by key, and by number if they have the same key. Then the events that
match a filter stand side by side. They are the filter's *span*, and two binary searches find it. So
only matching events are ever looked at, whatever the number of filters with the same key and the
width of their ranges.

Key and number are put into one integer, so that one sort is enough. *Cuts* are the first number
inside each range, and the first number above it. Between two cuts no range begins or ends. So of a
number only one fact matters: the two cuts between which it lies. All numbers below the least cut
are alike, and so are those above the greatest. What remains is the number's *place*: its distance
from the least cut. If places and keys do not fit into one integer, the place is the number's *rank*
instead: the number of cuts that are not above it. That takes another sort and a search. Either way,
a number is in a range exactly if its place lies between the places of the range's first and last
number.

All of this uses integers. So nothing is rounded, and nothing is built if an integer could overflow.
A NULL has neither key nor place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Integers = npt.NDArray[np.int64]

LEAST, MOST = -(2**63), 2**63 - 1
EVENTS = 250_000
"""The most events that are sorted at once. Each time all filters are looked up."""
BYTES = 64_000_000
"""The most bytes of events that are sorted at once."""
PAIRS = 1_000_000
"""The most pairs in a record batch that is handed back.

A batch has fewer if they are large, and more only if one filter has more.
"""


class Spans(NamedTuple):
    """Filters in the form in which they are looked up."""

    keys: tuple[tuple[str, pa.Array], ...]
    """Columns of the events that must be equal to one of these values.

    The values of a column are all different.
    """
    column: str | None
    """The column of the events' numbers. None: there is no range."""
    cuts: Integers
    """All cuts in ascending order if places are ranks.

    Otherwise only the least and the greatest, or none.
    """
    ranked: bool
    places: int
    """The number of places."""
    first: Integers
    """For each filter, its key and the place of its first number as one integer, in ascending
    order.
    """
    last: Integers
    bits: int
    """The bits of the largest such integer."""
    filters: pa.Array


def build(
    filters: pa.Array, keys: Sequence[tuple[str, pa.Array]], column: str | None, low: Any, high: Any
) -> Spans | None:
    """Filters whose events have these values in these columns, and ``low`` <= number <= ``high`` in
    another column (or none).

    A filter with a NULL in its key or with an empty range matches nothing. The result is None if
    there are more different keys than an integer can hold.
    """
    import numpy as np

    number = np.zeros(len(filters), np.int64)
    there = low <= high
    sets: list[tuple[str, pa.Array]] = []
    room = 1
    for name, values in keys:
        coded = values.dictionary_encode()
        codes = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        there &= codes >= 0
        room *= max(1, len(coded.dictionary))
        if room > MOST:
            return None
        number = number * max(1, len(coded.dictionary)) + codes
        sets.append((name, coded.dictionary))
    rows = np.flatnonzero(there)
    number, low, high = number[rows], low[rows], high[rows]
    # No number is below LEAST or above MOST, so these ends cut nothing.
    cuts = (
        np.concatenate([low[low > LEAST], high[high < MOST] + 1])
        if column is not None
        else np.zeros(0, np.int64)
    )
    ends = np.array([cuts.min(), cuts.max()]) if len(cuts) else cuts
    places = int(ends[1]) - int(ends[0]) + 2 if len(ends) else 1
    ranked = room * places > MOST
    if ranked:
        cuts = np.sort(cuts)
        places = len(cuts) + 1
        if room * places > MOST:
            return None
    else:
        cuts = ends
    first = number * places + _places(low, cuts, ranked)
    last = number * places + _places(high, cuts, ranked)
    order = _ascending(first, bits := (room * places).bit_length())
    return Spans(
        tuple(sets),
        column,
        cuts,
        ranked,
        places,
        first[order],
        last[order],
        bits,
        filters.take(rows[order]),
    )


def _places(numbers: Integers, cuts: Integers, ranked: bool) -> Integers:
    import numpy as np

    if not ranked:
        return (
            np.clip(numbers, cuts[0] - 1, cuts[1]) - (cuts[0] - 1)
            if len(cuts)
            else np.zeros(len(numbers), np.int64)
        )
    # Looking numbers up in order is faster.
    order = np.argsort(numbers)
    ranks = np.empty(len(numbers), np.int64)
    ranks[order] = np.searchsorted(cuts, numbers[order], "right")
    return ranks


def _ascending(numbers: Integers, bits: int) -> Any:
    """The order that sorts non-negative integers of ``bits`` bits.

    It sorts sixteen bits at a time, the last ones first. NumPy sorts these by counting, in a third
    of the time that comparing takes.
    """
    import numpy as np

    return np.lexsort(
        [(numbers >> shift).astype(np.uint16) for shift in range(0, max(1, bits), 16)]
    )


def longest(sought: Sequence[Spans]) -> dict[str, int]:
    """The columns in which strings are sought, and the number of bytes of the longest sought
    string.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    most: dict[str, int] = {}
    for name, values in (key for spans in sought for key in spans.keys):
        if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
            most[name] = max(most.get(name, 0), pc.max(pc.binary_length(values)).as_py() or 0)
    return most


def match(batches: Iterator[pa.RecordBatch], sought: Sequence[Spans]) -> Iterator[pa.RecordBatch]:
    """Turn record batches with columns ``event`` and the sought ones into (filter, events), with at
    least one event each.

    An event's columns are read once for all sought filters. A list of events is half as long as
    pairs are, and Spark unfolds it faster than it reads pairs.
    """
    import numpy as np
    import pyarrow as pa

    for table in _gather(batches):
        for spans in sought:
            for hit, count, events in _found(table, spans):
                offsets = np.concatenate([[0], np.cumsum(count)]).astype(np.int32)
                listed = pa.ListArray.from_arrays(pa.array(offsets), events)
                yield pa.RecordBatch.from_arrays(
                    [spans.filters.take(hit), listed], names=["filter", "events"]
                )


def _gather(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    import pyarrow as pa

    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if held and (rows + batch.num_rows > EVENTS or size + batch.nbytes > BYTES):
            yield pa.Table.from_batches(held)
            held, rows, size = [], 0, 0
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
    if held:
        yield pa.Table.from_batches(held)


def _found(events: pa.Table, spans: Spans) -> Iterator[tuple[Integers, Integers, pa.Array]]:
    """Filters by their places in ``spans``, the number of events of each, and these events one
    after the other.
    """
    import numpy as np

    rows, numbers = _numbers(events, spans)
    order = _ascending(numbers, spans.bits)
    numbers = numbers[order]
    begin = np.searchsorted(numbers, spans.first, "left")
    count = np.searchsorted(numbers, spans.last, "right") - begin
    hit = np.flatnonzero(count)
    begin, count = begin[hit], count[hit]
    total = np.cumsum(count)
    ids = one(events.column("event")).take(order if rows is None else rows[order])
    most = min(PAIRS, BYTES * len(ids) // max(1, ids.nbytes))
    at = 0
    while at < len(hit):
        before = int(total[at - 1]) if at else 0
        upto = max(at + 1, int(np.searchsorted(total, before + most, "right")))
        some = count[at:upto]
        shift = np.repeat(begin[at:upto] - (total[at:upto] - some) + before, some)
        yield hit[at:upto], some, ids.take(np.arange(len(shift)) + shift)
        at = upto


def _numbers(events: pa.Table, spans: Spans) -> tuple[Any, Integers]:
    """The rows whose values are all sought (None: all rows), and for each the key and place as one
    integer.
    """
    import numpy as np

    number = np.zeros(events.num_rows, np.int64)
    # None as long as all rows are there.
    there: Any = None
    for name, values in spans.keys:
        codes = _codes(events.column(name), values)
        number *= max(1, len(values))
        number += codes
        if len(codes) and codes.min() < 0:
            there = codes >= 0 if there is None else there & (codes >= 0)
    if spans.column is not None:
        column = events.column(spans.column)
        if column.null_count:
            valid = column.is_valid().to_numpy()
            there = valid if there is None else there & valid
            column = column.fill_null(0)
        number *= spans.places
        number += _places(column.cast("int64").to_numpy(), spans.cuts, spans.ranked)
    if there is None:
        return None, number
    rows = np.flatnonzero(there)
    return rows, number[rows]


def _codes(column: pa.ChunkedArray, values: pa.Array) -> Any:
    """The place of each value among the sought ones, or -1 if it is not sought or NULL."""
    import pyarrow.compute as pc

    column = column if column.type == values.type else column.cast(values.type)
    return pc.index_in(column, value_set=values).fill_null(-1).to_numpy()


def one(column: pa.ChunkedArray) -> pa.Array:
    """A column in one piece."""
    import pyarrow as pa

    whole = column.combine_chunks()
    return pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole
