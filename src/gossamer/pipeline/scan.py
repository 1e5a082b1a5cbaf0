"""The literals of all texts of one shape, found in their bytes at once, by NumPy: imports neither Spark nor anything of ours.

Texts lie one after the other in memory. Each has a position, and all positions move on together: over what stands between the
literals, compared eight bytes at a time; over a string, to its second quote, as all quotes are found beforehand; over a number,
eight digits at a time. So each step is a few operations on arrays, however many texts there are: a fifth of the time that a regular
expression takes. A text that is otherwise at any step is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Words = npt.NDArray[np.uint64]

WORD = 8
_QUOTE, _BACKSLASH = 0x27, 0x5C
# Each of these is eight bytes, alike, to do the same with eight digits at once.
_ONES, _ZEROS, _LOWER, _ABOVE_NINE, _HIGH = (
    byte * 0x0101010101010101 for byte in (0x01, 0x30, 0x7F, 0x76, 0x80)
)


def take(texts: pa.Array, shape: Sequence[str], digits_max: int) -> tuple[Any, list[pa.Array]]:
    """The texts of a shape, by their numbers, and for each place the values of the literals: strings without their quotes,
    and whole numbers of so many digits at most.

    ``shape``: what stands between the literals, with no quotes, and at odd places their kinds, ``s`` or ``i``. Strings with a quote
    or a backslash inside are none of this shape.
    """
    import numpy as np
    import pyarrow as pa

    pieces = [piece.encode() for piece in shape[::2]]
    data, offsets = _bytes(texts, WORD + max(digits_max + WORD, *map(len, pieces)))
    words: Words = np.ndarray(len(data) - WORD + 1, "<u8", data, strides=(1,))
    rows = np.flatnonzero(texts.is_valid().to_numpy(zero_copy_only=False))
    quotes = np.flatnonzero(data == _QUOTE)
    before = np.searchsorted(quotes, offsets)  # how many quotes there are before each text
    fits = before[rows + 1] - before[rows] == 2 * shape[1::2].count("s")
    if (data == _BACKSLASH).any():
        escaped = np.searchsorted(np.flatnonzero(data == _BACKSLASH), offsets)
        fits &= escaped[rows + 1] == escaped[rows]
    rows = rows[fits]
    at, end, quote = offsets[rows], offsets[rows + 1], before[rows]
    found: list[Any] = []
    for place, piece in enumerate(pieces):
        fits = _are(words, at, piece)
        at = at + len(piece)
        fits &= at <= end
        kind = shape[2 * place + 1] if 2 * place + 1 < len(shape) else None
        if kind == "s":
            fits &= quotes[quote] == at
            begin, at = at + 1, quotes[quote + 1] + 1
            quote = quote + 2
            found.append((begin, at - 1 - begin))
        elif kind == "i":
            value, count = _number(words, at, np.clip(end - at, 0, digits_max + 1))
            fits &= (count >= 1) & (count <= digits_max)
            at = at + count
            found.append((value,))
        else:
            fits &= at == end
        if not fits.all():
            rows, at, end, quote = rows[fits], at[fits], end[fits], quote[fits]
            found = [tuple(part[fits] for part in parts) for parts in found]
    return rows, [
        pa.array(parts[0]) if len(parts) == 1 else _strings(data, texts.type, *parts)
        for parts in found
    ]


def _bytes(texts: pa.Array, more: int) -> tuple[Any, Any]:
    """Of all texts, with so many zeros after them, and where each begins and the last one ends."""
    import numpy as np
    import pyarrow as pa

    _, ends, data = texts.buffers()
    wide = pa.types.is_large_string(texts.type)
    if not len(texts):
        return np.zeros(more, np.uint8), np.zeros(1, np.int64)
    offsets = np.frombuffer(ends, np.int64 if wide else np.int32).astype(np.int64)
    offsets = offsets[texts.offset : texts.offset + len(texts) + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    padded = np.zeros(last - first + more, np.uint8)
    if last > first:
        padded[: last - first] = np.frombuffer(data, np.uint8, last - first, first)
    return padded, offsets - first


def _are(words: Words, at: Any, piece: bytes) -> Any:
    """Where the bytes are these."""
    import numpy as np

    fits = np.ones(len(at), np.bool_)
    for begin in range(0, len(piece), WORD):
        begin = max(0, min(begin, len(piece) - WORD))  # the last word may lie over the one before
        some = piece[begin : begin + WORD]
        word = np.uint64(int.from_bytes(some, "little"))
        mask = np.uint64(2 ** (8 * len(some)) - 1)
        fits &= words[at + begin] & mask == word
    return fits


def _number(words: Words, at: Any, most: Any) -> tuple[Any, Any]:
    """The whole numbers there, of so many digits at most, and how many digits they have.

    Of eight bytes less ``0``, those are digits that are below ten. The first that is not ends the number, and its bytes are moved
    up so that zeros stand before it. Then neighbours are put together: to four numbers of two digits, to one of eight.
    """
    import numpy as np

    value = np.zeros(len(at), np.int64)
    count = np.zeros(len(at), np.int64)
    powers = 10 ** np.arange(WORD + 1)
    u = np.uint64
    while True:
        digits = words[at + count] ^ u(_ZEROS)
        others = (((digits & u(_LOWER)) + u(_ABOVE_NINE)) | digits) & u(_HIGH)
        below = ((others & (~others + u(1))) >> u(7)) - u(
            1
        )  # all bits below the byte that ends it; if none does, all bits
        some = np.minimum((((below & u(_ONES)) * u(_ONES)) >> u(56)).astype(np.int64), most - count)
        digits <<= (8 * (WORD - some)).astype(np.uint64)
        digits = digits * u(10) + (digits >> u(8))
        low, high = digits & u(0x000000FF000000FF), (digits >> u(16)) & u(0x000000FF000000FF)
        eight = (low * u(0x000F424000000064) + high * u(0x0000271000000001)) >> u(32)
        value = value * powers[some] + eight.astype(np.int64)
        count += some
        if not (some == WORD).any():
            return value, count


def _strings(data: Any, kind: pa.DataType, begin: Any, size: Any) -> pa.Array:
    """These parts of the bytes as strings, of the type that the texts have: they are no longer than the texts."""
    import numpy as np
    import pyarrow as pa

    ends = np.zeros(len(size) + 1, np.int64)
    np.cumsum(size, out=ends[1:])
    chosen = data[np.repeat(begin - ends[:-1], size) + np.arange(ends[-1])]
    if not pa.types.is_large_string(kind):
        ends = ends.astype(np.int32)
    return pa.Array.from_buffers(kind, len(size), [None, pa.py_buffer(ends), pa.py_buffer(chosen)])
