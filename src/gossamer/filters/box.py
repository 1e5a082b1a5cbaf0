"""Conjunctions as boxes: for each attribute, the set of values that pass.

Covering, merging, placements and the index all ask about sets of values, so they ask this
module. Every type is a line of **codes**: it has a first code, an end, and a next code after each
code. The codes are integers for the types of fixed width (floats have neighbours too), and the
order-preserving bytes for STRING and BINARY. On such a line `>` is `>=` of the next code, and `<=`
is `<` of the next code. So every range is a half-open interval. Two ranges touch when the end of
one is the start of the other, and an interval between two neighbours is seen to be empty. This is
why the answers are exact.
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

# An int or bytes, the same for all codes of one line.
Code = Any

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
    # It gives None if the codes before this one have no last one.
    before: Callable[[Code], Code | None]


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
    """The strings that start with `prefix`, as a half-open interval.

    The end of the interval is a string too, or the top of the line.
    """
    return order.encode(prefix), _after_prefix(prefix)


def _after_prefix(prefix: str) -> bytes:
    kept = prefix.rstrip("\U0010ffff")
    if not kept:
        return b"\x02"
    following = ord(kept[-1]) + 1
    return order.encode(kept[:-1] + chr(0xE000 if following == 0xD800 else following))


class Domain(Struct, frozen=True):
    """The values of one attribute that pass: some of the codes in [low, high), and perhaps NULL."""

    kind: Type
    low: Code
    high: Code
    null: bool = False
    # If this is not None, exactly these codes pass. They are sorted.
    values: tuple[Code, ...] | None = None
    # Codes of the interval that do not pass.
    holes: frozenset[Code] = frozenset()
    # A code of the interval passes only if its value also passes these patterns.
    patterns: tuple[Like | Rlike, ...] = ()

    @property
    def line(self) -> Line:
        return LINES[self.kind]

    @property
    def bounded(self) -> tuple[bool, bool]:
        return self.low != self.line.bottom, self.high != self.line.top

    @property
    def plain(self) -> bool:
        """Whether the domain is a finite set or an interval, and nothing else."""
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
    """The interval without holes at its ends, or None if it is empty."""
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
    """The values that pass all the predicates on one attribute, or None if no value does.

    Patterns that contradict each other are not noticed here.
    """
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
    """A conjunction with each IN kept whole.

    An event passes if the value of each attribute is in its domain and the pairs hold.
    """

    # By attribute, in the order of the schema.
    domains: dict[int, Domain]
    # The predicates that the domains were made from.
    predicates: dict[int, tuple[Predicate, ...]]
    pairs: tuple[Pair, ...]


def boxes(node: Node, schema: Schema) -> list[Box]:
    """The boxes whose union is the filter, without those that are seen to be empty."""
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
    # A comparison of two attributes is TRUE only if both have a value.
    for pair in pairs:
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
    """Predicates that pass exactly the values of the domain.

    The domain is NULL alone, or it does not hold NULL.
    """
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
    """The end of a range as a comparison.

    A lower end is x >= code, or x > the code before it. An upper end is x < code, or x <= the
    code before it. The shorter one that can be written is taken.
    """
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
