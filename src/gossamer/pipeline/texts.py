"""Splits filters' texts into their literals and the parts between them.

This is the part of ``templates`` that runs in Spark's Python workers, so it imports nothing of
Spark.

A text is split once. All further work depends only on its shape, and there are few shapes: it took
0.7 s for 100,000 texts where Spark's own expressions took 1.6 s. If the shape is known and has only
strings and integers, one regular expression of Arrow takes all its texts apart at once
(``extract``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

_STRING = r"'[^'\\]*+(?:''[^'\\]*+)*+'"
# The digit comes before the look behind it. There are few digits, and a look behind every character
# is slow.
_LITERAL = (
    rf"({_STRING}|(?:\d(?<![\w.]\d)\d*+(?:\.\d*+)?|\.(?<![\w.]\.)\d++)(?:[eE][+-]?\d++)?(?![\w.]))"
)
_split = re.compile(_LITERAL, re.ASCII).split
_number = r"(?:\d{1,15}(?:\.\d{0,15})?|\.\d{1,15})"
_double = re.compile(rf"{_number}[eE][+-]?\d{{1,3}}", re.ASCII)
_decimal = re.compile(r"\d{1,15}\.\d{0,15}|\.\d{1,15}", re.ASCII)
_dated = re.compile(r"\b(DATE|TIMESTAMP)\s*\Z", re.ASCII | re.IGNORECASE)
_FIRSTS = {"'": "s"}
INTEGER_DIGITS = 18
# In the syntax of RE2, without the outer quotes: strings that may have quotes inside.
_PATTERNS = {"s": r"'([^'\\]*(?:''[^'\\]*)*)'", "i": rf"(\d{{1,{INTEGER_DIGITS}}})"}
# The most shapes that are remembered.
SHAPES_MAX = 10_000


def take_apart(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Add columns ``template`` and ``literals`` to record batches with a column ``text``."""
    import pyarrow as pa

    shapes: dict[tuple[str, ...], str | None] = {}
    for batch in batches:
        texts = read(batch.column("text"))
        # At first this holds all pieces: the literals and the parts between them.
        literals = [None if text is None else _split(text) for text in texts]
        names: list[str | None] = []
        for place, pieces in enumerate(literals):
            if pieces is None:
                names.append(None)
                continue
            literals[place] = found = pieces[1::2]
            pieces[1::2] = [_FIRSTS.get(literal[0]) or _kind(literal) for literal in found]
            shape = tuple(pieces)
            try:
                names.append(shapes[shape])
            except KeyError:
                if len(shapes) >= SHAPES_MAX:
                    shapes.clear()
                shapes[shape] = template(pieces)
                names.append(shapes[shape])
        columns = [
            *batch.columns,
            pa.array(names, pa.string()),
            pa.array(literals, pa.list_(pa.string())),
        ]
        yield pa.RecordBatch.from_arrays(
            columns, names=[*batch.schema.names, "template", "literals"]
        )


def template(pieces: list[str]) -> str | None:
    """The text with a mark for each literal, from the parts between literals and, at odd places,
    the literals' kinds.

    None: leave the text whole.
    """
    # The text has an @ of its own.
    if "?" in pieces[1::2] or any("@" in between for between in pieces[::2]):
        return None
    marked: list[str] = []
    for place in range(1, len(pieces), 2):
        before, kind = pieces[place - 1], pieces[place]
        dated = _dated.search(before) if kind == "s" else None
        if dated is not None:
            before, kind = before[: dated.start()], dated[1][0].lower()
        marked += [before, "@", kind]
    return "".join(marked) + pieces[-1]


def shape(text: str) -> tuple[str, ...]:
    """The parts between the literals and, at odd places, the literals' kinds."""
    pieces = _split(text)
    pieces[1::2] = [_FIRSTS.get(literal[0]) or _kind(literal) for literal in pieces[1::2]]
    return tuple(pieces)


def extract(texts: pa.Array, shape: Sequence[str]) -> tuple[Any, list[pa.Array]]:
    """The texts of one shape, by their numbers in the column, and the values of the literals for
    each place.

    The shape must have only strings and integers, and between them only parts that
    ``templates.is_plain`` accepts. Such parts have no quotes, so a text has this shape in only one
    way: the way in which it is split.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    pattern = "".join(
        _PATTERNS[piece].replace("(", f"(?P<p{place // 2}>", 1) if place % 2 else re.escape(piece)
        for place, piece in enumerate(shape)
    )
    found = pc.extract_regex(texts, rf"\A{pattern}\z")
    fits = found.is_valid()
    values = [
        pc.replace_substring(value, "''", "'") if kind == "s" else value.cast(pa.int64())
        for value, kind in zip(found.filter(fits).flatten(), shape[1::2], strict=True)
    ]
    return fits.to_numpy(zero_copy_only=False).nonzero()[0], values


def _kind(literal: str) -> str:
    """The kind of a number as ``templates`` names it, or "?" for a number that Spark may read
    otherwise.
    """
    if literal.isdigit():
        return "i" if len(literal) <= INTEGER_DIGITS else "?"
    if _double.fullmatch(literal):
        return "e" if math.isfinite(float(literal)) else "?"
    return "n" if _decimal.fullmatch(literal) else "?"


def read(column: pa.Array) -> list[str | None]:
    """The texts, with None for bytes that are not UTF-8."""
    try:
        texts: list[str | None] = column.to_pylist()
    except UnicodeDecodeError:
        texts = [None if one is None else _text(one) for one in column.cast("binary").to_pylist()]
    return texts


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        # A text that cannot be read stays whole.
        return None
