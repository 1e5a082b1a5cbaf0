"""Conjunctions as boxes: for each attribute, the set of values that pass.

Covering, merging, placements and the index all ask about sets of values, so they ask here. Every type is a line of
**codes** with a first one, an end, and a next one after each: integers for the types of fixed width (floats have
neighbours too), the order-preserving bytes for STRING and BINARY. On such a line `>` is `>=` of the next code and `<=` is `<` of
it, so every range is a half-open interval, two ranges touch when one's end is the other's start, and an interval between
neighbours is seen to be empty. That is what makes the answers exact.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gossamer.filters import order, tree
from gossamer.filters.match import compile_row
from gossamer.filters.schema import INTEGER_BITS, Schema, Type
from gossamer.filters.tree import Compare, In, Like, Node, Null, Pair, Predicate, Rlike, Value

Code = Any  # int or bytes: of one type on one line

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_ONE_STRING = Schema.parse("s STRING")


class Line(Struct, frozen=True):
    """The values of a type in order: codes from `bottom` up to, and without, `top`."""

    bottom: Code
    top: Code
    code: Callable[[Any], Code]
    value: Callable[[Code], Any]
    after: Callable[[Code], Code]
    before: Callable[[Code], Code | None]  # None if there is no last one of those before


def _next(code: int) -> int:
    return code + 1


def _last(code: int) -> int:
    return code - 1


def _float_line(form: str, whole: str, infinity: int) -> Line:
    """NaN is one code, next to infinity; -0.0 is 0.0."""
    real, bits = struct.Struct(form), struct.Struct(whole)
    sign = 1 << (8 * real.size - 1)

    def code(value: float) -> int:
        if value != value:
            return infinity + 1
        (found,) = bits.unpack(real.pack(value))
        return int(found) if found < sign else sign - int(found)

    def value(code: int) -> float:
        if code > infinity:
            return math.nan
        found: float = real.unpack(bits.pack(code if code >= 0 else sign - code))[0]
        return found

    return Line(-infinity, infinity + 2, code, value, _next, _last)


def _text_line(kind: type[str] | type[bytes]) -> Line:
    def value(code: bytes) -> str | bytes:
        plain = code[1:-1].replace(b"\x00\xff", b"\x00")
        return plain.decode() if kind is str else plain

    def before(code: bytes) -> bytes | None:
        return code[:-3] + b"\x00" if code.endswith(b"\x00\xff\x00") else None

    return Line(
        order.encode(kind()),
        b"\x02",
        order.encode,
        value,
        lambda code: code[:-1] + b"\x00\xff\x00",
        before,
    )


def microseconds(value: datetime) -> int:
    return (value - _EPOCH) // _MICROSECOND


def _whole_line(
    bottom: int, top: int, code: Callable[[Any], int], value: Callable[[int], Any]
) -> Line:
    return Line(bottom, top, code, value, _next, _last)


LINES: dict[Type, Line] = {
    Type.BOOLEAN: _whole_line(0, 2, int, bool),
    Type.FLOAT: _float_line(">f", ">I", 0x7F80_0000),
    Type.DOUBLE: _float_line(">d", ">Q", 0x7FF0_0000_0000_0000),
    Type.DATE: _whole_line(
        1, date.max.toordinal() + 1, lambda value: int(value.toordinal()), date.fromordinal
    ),
    Type.TIMESTAMP: _whole_line(
        microseconds(datetime.min.replace(tzinfo=UTC)),
        microseconds(datetime.max.replace(tzinfo=UTC)) + 1,
        microseconds,
        lambda code: _EPOCH + code * _MICROSECOND,
    ),
    Type.STRING: _text_line(str),
    Type.BINARY: _text_line(bytes),
} | {
    kind: _whole_line(-(1 << (bits - 1)), 1 << (bits - 1), int, int)
    for kind, bits in INTEGER_BITS.items()
}


def prefix_codes(prefix: str) -> tuple[bytes, bytes]:
    """The strings that start with `prefix`, as a half-open interval whose end is a string too (or the top)."""
    return order.encode(prefix), _after_prefix(prefix)


def _after_prefix(prefix: str) -> bytes:
    kept = prefix.rstrip("\U0010ffff")
    if not kept:
        return b"\x02"
    following = ord(kept[-1]) + 1
    return order.encode(kept[:-1] + chr(0xE000 if following == 0xD800 else following))


class Domain(Struct, frozen=True):
    """The values of one attribute that pass: some of the codes in [low, high), and NULL or not."""

    kind: Type
    low: Code
    high: Code
    null: bool = False
    values: tuple[Code, ...] | None = None  # exactly these, sorted, if not None
    holes: frozenset[Code] = frozenset()  # of the interval
    patterns: tuple[Like | Rlike, ...] = ()  # of the interval: what is no range

    @property
    def line(self) -> Line:
        return LINES[self.kind]

    @property
    def bounded(self) -> tuple[bool, bool]:
        return self.low != self.line.bottom, self.high != self.line.top

    @property
    def plain(self) -> bool:
        """A finite set or an interval, and nothing else."""
        return not self.holes and not self.patterns

    def has(self, code: Code) -> bool:
        if self.values is not None:
            return code in self.values
        if not self.low <= code < self.high or code in self.holes:
            return False
        return not self.patterns or passes(self.patterns, self.line.value(code))


def passes(patterns: Iterable[Like | Rlike], value: str) -> bool:
    return all(
        compile_row(replace(pattern, attribute=0), _ONE_STRING)((value,)) for pattern in patterns
    )


def everything(kind: Type, null: bool) -> Domain:
    return Domain(kind, LINES[kind].bottom, LINES[kind].top, null)


def finite(kind: Type, codes: Iterable[Code], null: bool = False) -> Domain | None:
    values = tuple(sorted(codes))
    if not values:
        return Domain(kind, LINES[kind].bottom, LINES[kind].bottom, True, ()) if null else None
    return Domain(kind, values[0], LINES[kind].after(values[-1]), null, values)


def interval(
    kind: Type,
    low: Code,
    high: Code,
    holes: Iterable[Code] = (),
    patterns: Iterable[Like | Rlike] = (),
) -> Domain | None:
    """The interval without holes at its ends; None if nothing is left of it."""
    line, gaps = LINES[kind], set(holes)
    while low in gaps:
        low = line.after(low)
    while high > low and line.before(high) in gaps:
        high = line.before(high)
    if not low < high:
        return None
    if line.after(low) == high:
        return finite(kind, (low,) if passes(patterns, line.value(low)) else ())
    return Domain(
        kind,
        low,
        high,
        holes=frozenset(c for c in gaps if low <= c < high),
        patterns=tuple(patterns),
    )


def domain(kind: Type, predicates: Iterable[Predicate]) -> Domain | None:
    """What all the predicates on one attribute let pass; None if nothing does (patterns may be at odds unseen)."""
    line = LINES[kind]
    low, high = line.bottom, line.top
    null = present = False
    values: set[Code] | None = None
    holes: set[Code] = set()
    patterns: list[Like | Rlike] = []
    for p in predicates:
        if isinstance(p, Null) and not p.negated:
            null = True
            continue
        present = True
        if isinstance(p, Compare):
            code = line.code(p.value)
            if p.op in (">", "<="):
                code = line.after(code)
            if p.op[0] == ">":
                low = max(low, code)
            else:
                high = min(high, code)
        elif isinstance(p, In):
            codes = {line.code(value) for value in p.values}
            if p.negated:
                holes |= codes
            else:
                values = codes if values is None else values & codes
        elif isinstance(p, Like | Rlike):
            prefix, whole = (
                tree.like_prefix(p.pattern)
                if isinstance(p, Like) and not p.negated
                else ("", False)
            )
            first, end = prefix_codes(prefix)
            low, high = max(low, first), min(high, end)
            if not whole:
                patterns.append(p)
    if null:
        return None if present else finite(kind, (), null=True)
    if values is None:
        return interval(kind, low, high, holes, patterns)
    kept = (c for c in values if low <= c < high and c not in holes)
    return finite(kind, (c for c in kept if passes(patterns, line.value(c))))


class Box(Struct, frozen=True):
    """A conjunction with IN kept whole: an event passes if each attribute's value is in its domain and the pairs hold."""

    domains: dict[int, Domain]  # by attribute, in the schema's order
    predicates: dict[int, tuple[Predicate, ...]]  # what the domains were made from
    pairs: tuple[Pair, ...]


def boxes(node: Node, schema: Schema) -> list[Box]:
    """The boxes whose union is the filter; those that are seen to be empty are left out."""
    found = (box(conjunction, schema) for conjunction in tree.conjunctions(node, split=False))
    return [each for each in found if each is not None]


def box(conjunction: Iterable[Predicate], schema: Schema) -> Box | None:
    predicates: dict[int, list[Predicate]] = {}
    pairs: list[Pair] = []
    for p in conjunction:
        if isinstance(p, Pair):
            pairs.append(p)
        else:
            predicates.setdefault(p.attribute, []).append(p)
    for pair in pairs:  # both sides are there, or it is not TRUE
        for attribute in (pair.left, pair.right):
            predicates.setdefault(attribute, [])
    domains: dict[int, Domain] = {}
    for attribute in sorted(predicates, key=schema.ranks.__getitem__):
        found = domain(schema.types[attribute], predicates[attribute])
        if found is None:
            return None
        domains[attribute] = found
    return Box(domains, {a: tuple(ps) for a, ps in predicates.items()}, tuple(pairs))


# Domains back to predicates.


def predicates(attribute: int, domain: Domain) -> tuple[Predicate, ...]:
    """Predicates that let pass what the domain holds; NULL alone or not at all."""
    if domain.values is not None:
        if domain.null:
            assert not domain.values
            return (Null(attribute, False),)
        return (tree.membership(attribute, map(domain.line.value, domain.values), False),)
    found: list[Predicate] = []
    like = _like(attribute, domain)
    if like is not None:
        found.append(like)
    else:
        if domain.bounded[0]:
            found.append(_bound(attribute, domain.kind, domain.low, (">=", ">")))
        if domain.bounded[1]:
            found.append(_bound(attribute, domain.kind, domain.high, ("<", "<=")))
    if domain.holes:
        found.append(tree.membership(attribute, map(domain.line.value, domain.holes), True))
    found += [replace(pattern, attribute=attribute) for pattern in domain.patterns]
    return tuple(found) or (Null(attribute, True),)


def _like(attribute: int, domain: Domain) -> Like | None:
    if domain.kind is not Type.STRING:
        return None
    prefix = domain.line.value(domain.low)
    if not prefix or domain.high != _after_prefix(prefix):
        return None
    return Like(
        attribute, prefix.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%", False
    )


def _bound(attribute: int, kind: Type, code: Code, ops: tuple[str, str]) -> Compare:
    """x >= code or x > the one before; x < code or x <= the one before: what is shorter, and can be written."""
    line = LINES[kind]
    choices: list[tuple[str, Value]] = []
    if line.bottom <= code < line.top:
        choices.append((ops[0], line.value(code)))
    before = line.before(code)
    if before is not None:
        choices.append((ops[1], line.value(before)))
    written = [c for c in choices if not isinstance(c[1], float) or math.isfinite(c[1])]
    op, value = min(written, key=lambda choice: (len(repr(choice[1])), len(choice[0]) == 1))
    return Compare(attribute, op, value)
