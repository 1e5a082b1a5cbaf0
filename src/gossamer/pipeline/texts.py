"""Filters' texts taken apart into what stands between their literals, and the literals: the part of ``templates`` that runs in
Spark's Python workers, so it imports neither Spark nor anything of ours.

A text is split once, and what follows depends on its shape alone, of which there are few: 0.7 s for 100,000 texts where Spark's own
expressions took 1.6 s.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

_STRING = r"'[^'\\]*+(?:''[^'\\]*+)*+'"
# The digit comes before the look behind it: there are few digits, and a look behind every character is slow.
_LITERAL = rf"({_STRING}|(?:\d(?<![\w.]\d)\d*+(?:\.\d*+)?|\.(?<![\w.]\.)\d++)(?:[eE][+-]?\d++)?(?![\w.]))"
_split = re.compile(_LITERAL, re.ASCII).split
_number = r"(?:\d{1,15}(?:\.\d{0,15})?|\.\d{1,15})"
_double = re.compile(rf"{_number}[eE][+-]?\d{{1,3}}", re.ASCII)
_decimal = re.compile(r"\d{1,15}\.\d{0,15}|\.\d{1,15}", re.ASCII)
_dated = re.compile(r"\b(DATE|TIMESTAMP)\s*\Z", re.ASCII | re.IGNORECASE)
_FIRSTS = {"'": "s"}
INTEGER_DIGITS = 18
SHAPES_MAX = 10_000  # remembered


def take_apart(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Record batches with a column ``text`` -> the same with columns ``template`` and ``literals`` at the end."""
    import pyarrow as pa

    shapes: dict[tuple[str, ...], str | None] = {}
    for batch in batches:
        texts = _texts(batch.column("text"))
        literals = [None if text is None else _split(text) for text in texts]  # with what stands between them, at first
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
        columns = [*batch.columns, pa.array(names, pa.string()), pa.array(literals, pa.list_(pa.string()))]
        yield pa.RecordBatch.from_arrays(columns, names=[*batch.schema.names, "template", "literals"])


def template(pieces: list[str]) -> str | None:
    """What stands between the literals and, at odd places, their kinds -> the text with a mark for each literal; None: leave it."""
    if "?" in pieces[1::2] or any("@" in between for between in pieces[::2]):  # an @ of the text's own
        return None
    marked: list[str] = []
    for place in range(1, len(pieces), 2):
        before, kind = pieces[place - 1], pieces[place]
        dated = _dated.search(before) if kind == "s" else None
        if dated is not None:
            before, kind = before[: dated.start()], dated[1][0].lower()
        marked += [before, "@", kind]
    return "".join(marked) + pieces[-1]


def _kind(literal: str) -> str:
    """Of a number, as ``templates`` names them; "?" for one that Spark may read otherwise."""
    if literal.isdigit():
        return "i" if len(literal) <= INTEGER_DIGITS else "?"
    if _double.fullmatch(literal):
        return "e" if math.isfinite(float(literal)) else "?"
    return "n" if _decimal.fullmatch(literal) else "?"


def _texts(column: pa.Array) -> list[str | None]:
    try:
        texts: list[str | None] = column.to_pylist()
    except UnicodeDecodeError:
        texts = [None if one is None else _text(one) for one in column.cast("binary").to_pylist()]
    return texts


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None  # what cannot be read stays whole
