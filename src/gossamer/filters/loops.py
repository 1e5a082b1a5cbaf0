"""Small loops that every event passes through, in Python.

_native.pyx has the same loops compiled. They are used instead if a C compiler was present when
gossamer was installed. With GOSSAMER_PURE=1 in the environment the loops in Python are used.
docs/decisions/0020-compiled-loops.md gives the reasons.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from operator import ge, itemgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gossamer.filters import _native

# The fewest bytes for which memory is used again. It comes in steps of 256 KiB.
SLAB_LEAST = 192 << 10
# The version of _native.pyx that this module works with.
VERSION = 5
Row = tuple[Any, ...]


class Weighed:
    """Base of an object that is gathered. ``size`` is its estimated number of bytes."""

    __slots__ = ("size",)
    size: int


def shares(
    rows: list[Row],
    where: tuple[int, ...],
    known: dict[Any, tuple[int, ...]],
    answer: Callable[[Row], tuple[int, ...]],
    takers: int,
) -> list[list[int]]:
    """For each taker, the places of the rows that it wants, by the values at ``where``.

    ``known`` has the takers for values that were met before, and ``answer(row)`` gives them for
    others. An IndexError says that a row is too short.
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
"""A test of a value.

Its elements are the place of the value in the row, the kind of test, the least and the greatest
value that passes, and the values of ``AMONG``.
"""
RANGE, AMONG, NOT_AMONG, IS_NULL, NOT_NULL = range(5)
TESTS_MAX = 16


def passing(tests: tuple[Test, ...], slow: Passing) -> Passing:
    """A function that gives the places of the rows that pass all tests.

    ``slow`` gives the same answer. In Python it is also the fastest.
    """
    return slow


class Cutter:
    """Cuts rows out of an encoded list without decoding them."""

    def __init__(self, data: bytes) -> None: ...

    def cut(self, places: Sequence[int]) -> bytes | None:
        """The rows at these places, encoded.

        None means that the caller encodes them again. In Python this is always so, because it is
        faster.
        """
        return None


def tally(total: list[int], places: Sequence[int], matched: tuple[int, ...]) -> None:
    """Adds counts at places: one count for each place, or one count for all."""
    if len(matched) == 1:
        matched *= len(places)
    for place, count in zip(places, matched, strict=True):
        total[place] += count


def ascends(places: tuple[int, ...]) -> bool:
    """Whether each place is greater than the one before."""
    return not any(map(ge, places, places[1:]))


def shifted(places: Sequence[int], by: int) -> list[int]:
    return [place + by for place in places]


def gathering(head: bytes, widths: bytes, rows: int, size: int, copies: int) -> Any:
    """Begins to gather record batches that become one (see gather.py).

    ``rows``, ``size`` and ``copies`` are the most rows, bytes and record batches. ``head`` is
    the beginning of an IPC message of such a batch. ``widths`` has the bytes of a value for each
    column, and 0 if its values differ in length. None means that record batches cannot be gathered
    this way.
    """
    return None


def are_texts(offsets: Any, data: Any, rows: int, utf8: bool) -> bool | None:
    """Whether the offsets and bytes of an Arrow column are well formed.

    The column is STRING (``utf8``) or BINARY. None means that the caller has to find out.
    """
    return None


def bulk(head: memoryview, places: dict[int, int]) -> tuple[int, int, int] | None:
    """Where the columns are in the message that begins with ``head``.

    The result is the start of their field, the start of the columns, and their end. None means
    that the message has none, or that they are copied out of it. ``places`` says by the tag of a
    message which field has the columns.
    """
    return None


def room(size: int) -> memoryview:
    """Memory for a large message."""
    return memoryview(bytearray(size))


def lend(file: int, size: int, stamp: int) -> None:
    """From now on published columns are gathered in this file's memory, which other processes see.

    See net/memory.py. With -1 nothing is lent any longer.
    """


def missed() -> int:
    """How often columns were gathered elsewhere because the lent memory had no room."""
    return 0


def fence() -> None:
    """Keeps the processor from moving a read across this call.

    Only the compiled loops need it. Python is too slow for such a move.
    """


def mapped(file: int, size: int) -> Any:
    """The memory of another process, to read."""
    import mmap

    return mmap.mmap(file, size, prot=mmap.PROT_READ)


def place(data: Any) -> tuple[int, int] | None:
    """Where a message's bytes lie in the lent memory, and under which stamp.

    None means that they lie elsewhere.
    """
    return None


def _compiled() -> Any:
    if os.environ.get("GOSSAMER_PURE"):
        return None
    try:
        from gossamer.filters import _native
    # The loops were not compiled, or they were compiled for another Python.
    except ImportError:
        return None
    # Another version comes from an older source. `make install` compiles it anew.
    same = getattr(_native, "VERSION", 0) == VERSION
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
    """The compiled reader of a schema's rows, or None if nothing is compiled."""
    return None if native is None else native.Shape(names, types, required, event)


def how() -> str:
    return "pure Python" if native is None else "compiled"
