"""Small loops that every event passes through, in Python; and the same compiled (_native.pyx), which is used instead where a C
compiler was there when gossamer was installed. With GOSSAMER_PURE=1 in the environment Python does it all the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from operator import ge, itemgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gossamer.filters import _native

SLAB_LEAST = 192 << 10  # bytes: memory that is used again comes in steps of 256 KiB
VERSION = 5  # of _native.pyx
Row = tuple[Any, ...]


class Weighed:
    """Something that is gathered; ``size``: bytes, as estimated."""

    __slots__ = ("size",)
    size: int


def shares(
    rows: list[Row],
    where: tuple[int, ...],
    known: dict[Any, tuple[int, ...]],
    answer: Callable[[Row], tuple[int, ...]],
    takers: int,
) -> list[list[int]]:
    """For each taker the places of the rows that it wants, by the values at ``where``: ``known`` has the takers for values
    that were met before, ``answer(row)`` gives them for others. IndexError: a row is too short.
    """
    found: list[list[int]] = [[] for _ in range(takers)]
    for place, values in enumerate(list(map(itemgetter(*where), rows))):
        these = known.get(values)
        if these is None:
            these = known[values] = answer(rows[place])
        for taker in these:
            found[taker].append(place)
    return found


Passing = Callable[[Sequence[Row]], list[int]]
Test = tuple[int, int, int, int, frozenset[Any]]
"""Of a value: its place in the row, the kind of test, the least and the most that it may be, and the values of ``AMONG``."""
RANGE, AMONG, NOT_AMONG, IS_NULL, NOT_NULL = range(5)
TESTS_MAX = 16


def passing(tests: tuple[Test, ...], slow: Passing) -> Passing:
    """A function from rows to the places of those that pass all tests, as ``slow`` says it too: in Python that is the fastest."""
    return slow


class Cutter:
    """Rows of an encoded list, encoded, without a look at what is in them."""

    def __init__(self, data: bytes) -> None: ...

    def cut(self, places: Sequence[int]) -> bytes | None:
        """Those at these places; None: not this way. In Python that is always so: to encode them again is faster."""
        return None


def tally(total: list[int], places: Sequence[int], matched: tuple[int, ...]) -> None:
    """Add counts at places: one for each of them, or one for all."""
    if len(matched) == 1:
        matched *= len(places)
    for place, count in zip(places, matched, strict=True):
        total[place] += count


def ascends(places: tuple[int, ...]) -> bool:
    """Whether each is greater than the one before."""
    return not any(map(ge, places, places[1:]))


def shifted(places: Sequence[int], by: int) -> list[int]:
    return [place + by for place in places]


def gathering(head: bytes, widths: bytes, rows: int, size: int, copies: int) -> Any:
    """For record batches that become one, of at most so many ``rows`` and bytes, and ``copies`` (gather.py). ``head``: what an IPC
    message of them begins with. ``widths``: of each column's values in bytes; 0: texts, or others that differ in length.
    None: not this way.
    """
    return None


def are_texts(offsets: Any, data: Any, rows: int, utf8: bool) -> bool | None:
    """Whether the offsets and bytes of an Arrow column of STRING (``utf8``) or BINARY are such; None: not this way."""
    return None


def bulk(head: memoryview, places: dict[int, int]) -> tuple[int, int, int] | None:
    """Where the columns are in a message of which this is the beginning: their field's start, their own, and their end. None: there
    are none, or they are copied out. ``places``: which field has them, by the messages' tags.
    """
    return None


def room(size: int) -> memoryview:
    """Memory for a large message."""
    return memoryview(bytearray(size))


def lend(file: int, size: int, stamp: int) -> None:
    """From now on published columns are gathered in this memory, which other processes see (net/memory.py); -1: no longer."""


def missed() -> int:
    """How often columns were gathered elsewhere because the memory that is lent had no room."""
    return 0


def fence() -> None:
    """What was read before is not read after: compiled only, for Python is too slow to be overtaken."""


def mapped(file: int, size: int) -> Any:
    """The memory of another process, to read."""
    import mmap

    return mmap.mmap(file, size, prot=mmap.PROT_READ)


def place(data: Any) -> tuple[int, int] | None:
    """Where in the memory that is lent a message's bytes lie, and under which stamp; None: elsewhere."""
    return None


def _compiled() -> Any:
    if os.environ.get("GOSSAMER_PURE"):
        return None
    try:
        from gossamer.filters import _native
    except ImportError:  # nobody compiled it, or for another Python
        return None
    same = (
        getattr(_native, "VERSION", 0) == VERSION
    )  # else of an older source: make install compiles it anew
    return _native if same else None


native: Any = _compiled()
if native is not None and not TYPE_CHECKING:
    Weighed, Cutter, shares, tally = native.Weighed, native.Cutter, native.shares, native.tally
    ascends, shifted, are_texts, bulk, gathering = (
        native.ascends, native.shifted, native.are_texts, native.bulk, native.Gathering
    )  # fmt: skip
    lend, mapped, place, fence = native.lend, native.Mapped, native.place, native.fence
    passing, missed = native.Passing, native.missed

    def room(size: int) -> memoryview:
        return memoryview(native.Slab(size) if size >= SLAB_LEAST else bytearray(size))


def shape(
    names: tuple[str, ...], types: Sequence[str], required: Sequence[bool], event: type
) -> _native.Shape | None:
    """What a row of a schema holds, compiled; None: there is nothing compiled."""
    return None if native is None else native.Shape(names, types, required, event)


def how() -> str:
    return "pure Python" if native is None else "compiled"
