"""Placements: where in the dictionary a filter is entered, and where an event looks for it.

A filter is taken apart into boxes (OR), and those into points (IN). The **ordered part** of each
becomes a byte key. The rest is the **residual**, which the subscriber checks. The **class** of a
placement says which attributes its key is made of, and how. A class has equality attributes in the
order of the schema (IS NULL is an equality), then at most one ranged attribute of one of four
kinds:

    point      There is no ranged attribute. The event looks at one key.
    from       The key is the low end. The event looks at all keys up to its own value.
    to         The key is the high end. The event looks at all keys beyond its own value.
    between    The keys are the one or two cells that the range lies in. The event looks at its
               own cell, and the exact ends are residual. A cell is all the values that share
               their first `bits` bits. So its size is a power of two, and LIKE 'abc%' is exactly
               one cell. Each range takes the smallest cells of which two are enough.

An event looks once for each class, whatever the number of filters. A topic uses few classes, so
`placements(allowed)` takes the best allowed class: one over fewer attributes, or one with larger
cells. The class ALL has no attribute and is always allowed.

The law: an event passes a filter if and only if for one of its placements a key is in the
event's interval for that class, and the residual passes. Keys begin with their class, so each key
belongs to one class, and the keys of a class are contiguous.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime
from functools import lru_cache
from itertools import pairwise, product
from typing import Any, Final, Literal

from msgspec import Struct

from gossamer.filters import order, tree
from gossamer.filters.box import LINES, Box, Domain, finite, interval, microseconds
from gossamer.filters.schema import Schema, Type
from gossamer.filters.tree import Node

# The most placements of one filter. Beyond that they become coarser.
PLACEMENTS_MAX: Final = 256
# Strings that share more bits than this share a cell.
CELL_BITS_MAX: Final = 256

Kind = Literal["point", "from", "to", "between"]

_KINDS: dict[Kind, int] = {"point": 0, "from": 1, "to": 2, "between": 3}
# These bytes come after every encoded value, because those begin with 00 or 01.
_END = b"\x02"


class Class(Struct, frozen=True, array_like=True):
    """The way in which the keys of some placements are made. Attributes are positions in the
    schema.
    """

    equal: tuple[int, ...] = ()
    kind: Kind = "point"
    ranged: int = -1
    # The number of bits that the values of a cell share.
    bits: int = 0

    @property
    def prefix(self) -> bytes:
        """The bytes that the keys of this class, and no others, start with."""
        return _prefix(self)

    def suits(self, schema: Schema) -> bool:
        """Whether this can be a class of the schema's filters.

        A class that a peer announces is checked with it before the class is used.
        """
        places = range(len(schema.names))
        if not all(a in places for a in self.equal):
            return False
        ranks = [schema.ranks[a] for a in self.equal]
        if any(a >= b for a, b in pairwise(ranks)) or self.kind not in _KINDS:
            return False
        if self.kind == "point":
            return self.ranged == -1 and self.bits == 0
        most = CELL_BITS_MAX if self.kind == "between" else 0
        return self.ranged in places and self.ranged not in self.equal and 0 <= self.bits <= most


ALL: Final = Class()


class Placement(Struct, frozen=True):
    """One entry of a filter.

    It has two keys if its range lies across two cells. The residual is the part of the filter
    that the keys do not express.
    """

    cls: Class
    keys: tuple[bytes, ...]
    residual: Node


@lru_cache(maxsize=1024)
def _prefix(cls: Class) -> bytes:
    equal = struct.pack(f">H{len(cls.equal)}H", len(cls.equal), *cls.equal)
    return equal + struct.pack(">BHH", _KINDS[cls.kind], cls.ranged & 0xFFFF, cls.bits)


def event_keys(cls: Class, row: tuple[Any, ...]) -> tuple[bytes, bytes] | None:
    """The interval [low, high) of the keys whose filters of this class may match the row.

    None means that no filter of this class can match.
    """
    # A short row ends in NULLs.
    width = len(row)
    start = cls.prefix + b"".join(order.encode(row[a] if a < width else None) for a in cls.equal)
    if cls.kind == "point":
        return start, start + b"\x00"
    value = row[cls.ranged] if cls.ranged < width else None
    if value is None:
        return None
    if cls.kind == "between":
        key = start + _cell(*_number(value), cls.bits)
        return key, key + b"\x00"
    # The interval ends just after the value. '' is 01 00, and '\\0' is 01 00 FF 00, so one encoding
    # starts the other. But FF comes after 00.
    key = start + order.encode(value) + b"\x00"
    return (start, key) if cls.kind == "from" else (key, start + _END)


def takes(placement: Placement, row: tuple[Any, ...]) -> bool:
    """Whether the row finds the placement by its key. The residual is not evaluated."""
    found = event_keys(placement.cls, row)
    return found is not None and any(found[0] <= key < found[1] for key in placement.keys)


# Cells: values as numbers of some width, the same for types that widen into each other.


def _number(value: Any) -> tuple[int, int]:
    """A number and its width in bits. The numbers are in the order of the values."""
    return _NUMBERS[type(value)](value)


def _text_number(body: bytes) -> tuple[int, int]:
    return int.from_bytes(body, "big"), 8 * len(body)


_NUMBERS: dict[type, Callable[[Any], tuple[int, int]]] = {
    bool: lambda value: (int(value), 8),
    int: lambda value: (value + (1 << 63), 64),
    float: lambda value: (LINES[Type.DOUBLE].code(value) + (1 << 63), 64),
    date: lambda value: (value.toordinal(), 32),
    datetime: lambda value: (microseconds(value) + (1 << 63), 64),
    str: lambda value: _text_number(order.encode(value)[1:]),
    bytes: lambda value: _text_number(order.encode(value)[1:]),
}


def _cell(number: int, width: int, bits: int) -> bytes:
    """The first `bits` bits, filled up to whole bytes."""
    kept = number >> (width - bits) if width >= bits else number << (bits - width)
    length = (bits + 7) // 8
    return (kept << (8 * length - bits)).to_bytes(length, "big")


def _ends(domain: Domain) -> tuple[int, int, int]:
    """The first number of a domain, its last number, and their width.

    The last is a number that no value of the domain is above.
    """
    line = domain.line
    first, width = _number(line.value(domain.low))
    if isinstance(domain.high, int):
        return first, _number(line.value(domain.high - 1))[0], width
    # A string below s differs from s in its first bytes, and is lower there.
    last, last_width = _text_number(domain.high[1:-1])
    both = max(width, last_width)
    return first << (both - width), (last << (both - last_width)) - 1, both


def _cell_bits(domain: Domain) -> int:
    """The most bits, and so the smallest cells, with which any range of this width lies in two
    cells.
    """
    first, last, width = _ends(domain)
    return min(max(0, width - (last - first).bit_length()), CELL_BITS_MAX)


def _cells(domain: Domain, bits: int) -> list[bytes]:
    first, last, width = _ends(domain)
    return sorted({_cell(first, width, bits), _cell(last, width, bits)})


# From boxes to placements.


def placements(
    node: Node,
    boxes: list[Box],
    schema: Schema,
    allowed: Iterable[Class] | None = None,
    most: int = PLACEMENTS_MAX,
) -> tuple[Placement, ...]:
    """The placements of a filter that consists of these boxes.

    There are at most `most` of them, and none if the filter cannot match.
    """
    if most < 1:
        raise ValueError("a filter has at least one place")
    known = None if allowed is None else [*allowed, ALL]
    coarse = len(boxes) > most
    if coarse:
        boxes = [_hull(boxes, schema)]
    share = most // max(1, len(boxes))
    found: dict[Placement, None] = {}
    for box in boxes:
        cls = next(cls for cls in _classes(box, schema, known) if _count(box, cls) <= share)
        # The hull of several boxes says less than they do, so the whole filter is its residual.
        residual = node if coarse else _residual(box, cls, schema)
        for keys in _keys(box, cls):
            found[Placement(cls, keys, residual)] = None
    return tuple(found)


def _classes(box: Box, schema: Schema, allowed: list[Class] | None) -> Iterator[Class]:
    """The classes that the box can take, the best first. The last one is ALL."""
    if allowed is not None:
        fitting = [cls for cls in allowed if _fits(box, cls)]
        yield from sorted(
            fitting, key=lambda cls: (-len(cls.equal), *_worth(cls), cls.equal, cls.ranged)
        )
        return
    equal = [a for a, domain in box.domains.items() if domain.values is not None]
    while True:
        yield _widest(box, tuple(equal))
        if not equal:
            break
        equal.remove(max(equal, key=lambda a: len(box.domains[a].values or ())))
    yield ALL


def _worth(cls: Class) -> tuple[int, int]:
    return {"between": 0, "from": 1, "to": 1, "point": 2}[cls.kind], -cls.bits


def _widest(box: Box, equal: tuple[int, ...]) -> Class:
    """The class over these equalities and the most selective attribute of the others."""
    found = Class(equal)
    for attribute, domain in box.domains.items():
        if attribute not in equal and not domain.null:
            kind = _kind(domain)
            if kind != "point":
                one = Class(equal, kind, attribute, _cell_bits(domain) if kind == "between" else 0)
                # Of two that are alike, the first in the schema wins.
                found = min(found, one, key=_worth)
    return found


def _kind(domain: Domain) -> Kind:
    lower, upper = domain.bounded
    if lower and upper:
        return "between"
    return "from" if lower else "to" if upper else "point"


def _fits(box: Box, cls: Class) -> bool:
    for attribute in cls.equal:
        domain = box.domains.get(attribute)
        if domain is None or domain.values is None:
            return False
    if cls.kind == "point":
        return True
    domain = box.domains.get(cls.ranged)
    if domain is None or domain.null:
        return False
    lower, upper = domain.bounded
    if cls.kind == "between":
        return lower and upper and cls.bits <= _cell_bits(domain)
    return lower if cls.kind == "from" else upper


def _count(box: Box, cls: Class) -> int:
    total = 1
    for attribute in cls.equal:
        domain = box.domains[attribute]
        total *= len(domain.values or ()) + domain.null
    return total


def _keys(box: Box, cls: Class) -> Iterator[tuple[bytes, ...]]:
    choices: list[list[bytes]] = []
    for attribute in cls.equal:
        domain = box.domains[attribute]
        codes = [order.encode(domain.line.value(code)) for code in domain.values or ()]
        choices.append([order.NULL, *codes] if domain.null else codes)
    ends = [b""]
    if cls.kind != "point":
        domain = box.domains[cls.ranged]
        if cls.kind == "between":
            ends = _cells(domain, cls.bits)
        else:
            ends = [
                order.encode(domain.line.value(domain.low if cls.kind == "from" else domain.high))
            ]
    for choice in product(*choices):
        start = cls.prefix + b"".join(choice)
        yield tuple(start + end for end in ends)


def _residual(box: Box, cls: Class, schema: Schema) -> Node:
    terms: list[Node] = list(box.pairs)
    for attribute, domain in box.domains.items():
        told = attribute in cls.equal
        if attribute == cls.ranged and cls.kind != "between":
            # The key expresses one end exactly. It does not express both ends, or holes.
            told = domain.plain and domain.values is None and _kind(domain) == cls.kind
        if not told:
            terms += box.predicates[attribute]
    return tree.all_of(terms, schema.ranks)


def _hull(boxes: list[Box], schema: Schema) -> Box:
    """A box around all of the boxes. It has no predicates."""
    domains: dict[int, Domain] = {}
    for attribute in boxes[0].domains:
        several = [box.domains[attribute] for box in boxes if attribute in box.domains]
        if len(several) < len(boxes):
            continue
        kind = schema.types[attribute]
        values = {code for domain in several for code in domain.values or ()}
        if any(domain.null for domain in several):
            hull = finite(kind, (), null=True) if all(domain.null for domain in several) else None
        elif len(values) == 1 and all(domain.values is not None for domain in several):
            hull = several[0]
        else:
            hull = interval(
                kind, min(domain.low for domain in several), max(domain.high for domain in several)
            )
        if hull is not None:
            domains[attribute] = hull
    return Box(domains, {}, ())
