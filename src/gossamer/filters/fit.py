"""Literals, and how they are brought to the type of an attribute.

Spark widens both sides of a comparison to a common type and compares there. Gossamer brings the
literal to the type of the attribute once, when the filter is parsed. So `temp > 30.5` on an INT
becomes `temp > 30`, and `temp < 3000000000` becomes `temp IS NOT NULL`. Widening is monotonic, so
each comparison in the wide type is a comparison with a bound in the narrow type.

    integers with integers or decimals    exact
    anything with FLOAT or DOUBLE         as DOUBLE (Spark's ANSI rules); BIGINT loses digits
    all else                              both sides have one type, or it is an error
"""

from __future__ import annotations

import math
import operator
import re
import struct
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeVar

from msgspec import Struct

from gossamer.filters import tree
from gossamer.filters.rows import encodable, to_float
from gossamer.filters.schema import FLOATING, INTEGER_BITS, NUMERIC, Schema, Type
from gossamer.filters.tree import FALSE, Compare, Const, Node, Null, Pair, Value

MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

# Within these limits a decimal and any integer fit a DECIMAL(38, 18) together. Beyond them Spark
# starts to round.
DECIMAL_WHOLE_MAX = 20
DECIMAL_SCALE_MAX = 18

_FLOAT_MAX = to_float(3.4028234663852886e38)
# The greatest literals that Spark reads. They are compared before rounding, because a slightly
# greater one would round to the same number.
_LITERAL_MAX = {
    "FLOAT": Decimal("3.4028234663852886E+38"),
    "DOUBLE": Decimal("1.7976931348623157E+308"),
}
_NUMBER = re.compile(r"(?P<digits>[0-9.]+)(?:[eE](?P<exponent>[+-]?[0-9]+))?(?P<suffix>[A-Za-z]*)")
_DATE = re.compile(r"([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2}))?)?", re.ASCII)
_TIMESTAMP = re.compile(
    r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})"
    r"(?:[ T]([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2})(?:\.([0-9]{1,6}))?"
    r"(Z|[+-][0-9]{2}:[0-9]{2})?)?",
    re.ASCII,
)


class Literal(Struct, frozen=True):
    """A literal of the text: its value, and its kind in Spark's words.

    Integers of every width have the kind INTEGER.
    """

    kind: str
    value: Value | Decimal | None


class UnlikeError(Exception):
    """The two sides of a comparison have no common type."""


# From text to literals. A ValueError says why a literal is refused.


def string(value: str) -> Literal:
    if not encodable(value):
        raise ValueError("a string with half a surrogate pair has no UTF-8 form")
    return Literal("STRING", value)


def number(text: str, negative: bool) -> Literal:
    match = _NUMBER.fullmatch(text)
    assert match is not None
    suffix = match["suffix"].upper()
    if suffix in ("L", "S", "Y") or (
        suffix == "" and match["exponent"] is None and "." not in match["digits"]
    ):
        return _integer(match["digits"] if match["exponent"] is None else "", suffix, negative)
    exponent = int(match["exponent"] or "0") if len(match["exponent"] or "") < 6 else 10**6
    if abs(exponent) > 400:
        raise ValueError("the exponent is out of the range of DOUBLE")
    value = Decimal(("-" if negative else "") + match["digits"] + f"e{exponent}")
    if suffix in ("F", "D") or (suffix == "" and match["exponent"] is not None):
        return _floating(value, "FLOAT" if suffix == "F" else "DOUBLE")
    return _decimal(value)


def _integer(digits: str, suffix: str, negative: bool) -> Literal:
    if not digits.isdigit():
        raise ValueError(f"the suffix {suffix} is for whole numbers")
    # Python counts leading zeros against its limit for the digits of an int.
    digits = digits.lstrip("0") or "0"
    if len(digits) > DECIMAL_WHOLE_MAX:
        raise ValueError(f"a whole number has at most {DECIMAL_WHOLE_MAX} digits")
    value = -int(digits) if negative else int(digits)
    bits = {"L": 64, "S": 16, "Y": 8}.get(suffix, 128)
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise ValueError(f"{value}{suffix} is out of the range of its type")
    return Literal("INTEGER", value)


def _floating(value: Decimal, name: str) -> Literal:
    most = _LITERAL_MAX[name]
    # abs() would round the decimal.
    if value.copy_abs() > most:
        raise ValueError(
            f"the number is out of the range of {name}: Spark reads numbers up to {most}"
        )
    number = _nearest_float(value) if name == "FLOAT" else float(value)
    if number == 0 and value != 0:
        raise ValueError(f"the number is too near to zero for {name}")
    return Literal(name, number + 0.0)


def _nearest_float(value: Decimal) -> float:
    """The nearest FLOAT, rounded once.

    By way of DOUBLE, a number near the middle of two floats could be rounded twice.
    """
    near = to_float(float(value))
    candidates = [c for c in (_step(near, -1), near, _step(near, 1)) if math.isfinite(c)]
    exact = Fraction(value)
    return min(
        candidates,
        key=lambda c: (abs(Fraction(c) - exact), struct.unpack("<I", struct.pack("<f", c))[0] & 1),
    )


def _decimal(value: Decimal) -> Literal:
    parts = value.as_tuple()
    assert isinstance(parts.exponent, int)
    scale = max(0, -parts.exponent)
    whole = max(0, len(parts.digits) + parts.exponent)
    if scale > DECIMAL_SCALE_MAX or whole > DECIMAL_WHOLE_MAX:
        raise ValueError(
            f"a decimal has at most {DECIMAL_WHOLE_MAX} digits before the point and "
            f"{DECIMAL_SCALE_MAX} after it; a DOUBLE ends with D"
        )
    return Literal("DECIMAL", value)


def typed(word: str, text: str) -> Literal:
    """Reads DATE '...', TIMESTAMP '...' or X'...'."""
    if word == "DATE":
        match = _DATE.fullmatch(text)
        if match is None:
            raise ValueError("a date is written DATE 'yyyy-mm-dd'")
        year, month, day = (int(part or "1") for part in match.groups())
        return Literal("DATE", _made(date, year, month, day))
    if word == "TIMESTAMP":
        return Literal("TIMESTAMP", _timestamp(text))
    if len(text) % 2 or re.fullmatch("[0-9A-Fa-f]*", text) is None:
        raise ValueError("X'...' holds pairs of hexadecimal digits")
    return Literal("BINARY", bytes.fromhex(text))


def _timestamp(text: str) -> datetime:
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise ValueError(
            "a timestamp is written TIMESTAMP 'yyyy-mm-dd[ hh:mm:ss[.ffffff][Z|+hh:mm|-hh:mm]]'; "
            "without a zone it is in UTC"
        )
    *parts, fraction, zone = match.groups()
    year, month, day, hour, minute, second = (int(part or "0") for part in parts)
    value = _made(
        datetime, year, month, day, hour, minute, second, int((fraction or "0").ljust(6, "0")), UTC
    )
    if zone is None or zone == "Z":
        return value
    hours, minutes = int(zone[1:3]), int(zone[4:6])
    if hours > 18 or minutes > 59 or hours * 60 + minutes > 18 * 60:
        raise ValueError("a zone is at most 18:00 away from UTC")
    offset = timedelta(hours=hours, minutes=minutes) * (-1 if zone[0] == "-" else 1)
    try:
        return value.replace(tzinfo=timezone(offset)).astimezone(UTC)
    except OverflowError:
        raise ValueError("timestamps go from year 1 to 9999") from None


D = TypeVar("D", bound=date)


def _made(make: Callable[..., D], *parts: object) -> D:
    try:
        return make(*parts)
    except ValueError as error:
        raise ValueError(f"no such day or time: {error}") from None


# From literals to predicates of an attribute.


def alike(kind: Type, literal: Literal) -> bool:
    if literal.kind == "NULL":
        return True
    return kind in NUMERIC if literal.kind in _NUMBERS else literal.kind == kind


_NUMBERS = frozenset(("INTEGER", "DECIMAL", "FLOAT", "DOUBLE"))


def compare(attribute: int, schema: Schema, op: str, literal: Literal) -> Node:
    """The predicate `attribute op literal`."""
    kind = schema.types[attribute]
    if not alike(kind, literal):
        raise UnlikeError
    value = literal.value
    if value is None:
        return FALSE
    if kind in INTEGER_BITS:
        return _bounded_integer(attribute, schema, op, *_integer_bounds(kind, value))
    if kind in FLOATING:
        assert isinstance(value, int | float | Decimal)
        number = float(value) + 0.0
        return (
            _exact(attribute, op, number)
            if kind is Type.DOUBLE
            else _single(attribute, schema, op, number)
        )
    assert not isinstance(value, Decimal)
    if kind is Type.BOOLEAN and op == "<>":
        return tree.membership(attribute, (not value,), False)
    return _exact(attribute, op, value)


def member(attribute: int, schema: Schema, literals: Iterable[Literal], negated: bool) -> Node:
    """The predicate `attribute [NOT] IN (literals)`.

    Spark widens all literals together, so one DOUBLE makes DOUBLEs of all.
    """
    several = list(literals)
    if negated and any(literal.value is None for literal in several):
        return FALSE
    if any(literal.kind in FLOATING for literal in several):
        several = [
            Literal("DOUBLE", float(literal.value))
            if isinstance(literal.value, int | Decimal)
            else literal
            for literal in several
        ]
    terms = [compare(attribute, schema, "<>" if negated else "=", literal) for literal in several]
    return (tree.all_of if negated else tree.any_of)(terms, schema.ranks)


def pair(left: int, schema: Schema, op: str, right: int) -> Node:
    """The predicate `attribute op attribute`.

    A comparison and its mirror image give the same node, with the same side first.
    """
    kinds = schema.types[left], schema.types[right]
    if kinds[0] is not kinds[1] and not NUMERIC.issuperset(kinds):
        raise UnlikeError
    if left == right:
        return _not_null(left, schema) if op in ("=", "<=", ">=") else FALSE
    if op in (">", ">=") or (op in ("=", "<>") and schema.ranks[left] > schema.ranks[right]):
        left, right, op = right, left, MIRRORED[op]
    return Pair(left, op, right)


def constants(left: Literal, op: str, right: Literal) -> Node:
    """The verdict of `literal op literal`."""
    if left.value is None or right.value is None:
        return FALSE
    sides: list[Any] = [left.value, right.value]
    if {left.kind, right.kind} <= _NUMBERS:
        if left.kind in FLOATING or right.kind in FLOATING:
            sides = [float(side) for side in sides]
    elif left.kind != right.kind:
        raise UnlikeError
    return Const(_OPERATORS[op](*sides))


def _exact(attribute: int, op: str, value: Value) -> Node:
    if op in ("=", "<>"):
        return tree.membership(attribute, (value,), op == "<>")
    return Compare(attribute, op, value)


def _not_null(attribute: int, schema: Schema) -> Node:
    return Const(True) if schema.attributes[attribute].required else Null(attribute, True)


def _integer_bounds(kind: Type, value: object) -> tuple[int, int]:
    """The least integer that is >= value, and the greatest that is <= value.

    Both are compared in the wide type.
    """
    if not isinstance(value, float):
        assert isinstance(value, int | Decimal)
        if not -(1 << 63) <= value <= (1 << 63) - 1:
            # Spark folds `x < 9223372036854775807.5` to TRUE, which lets NULL pass.
            raise ValueError(
                "an integer is compared with numbers in the range of BIGINT, or with a DOUBLE: 1e20"
            )
        return math.ceil(value), math.floor(value)
    limit = 1 << (INTEGER_BITS[kind] - 1)
    # float(x) is monotonic in x, so the two ends are found by bisection.
    return _first(lambda x: float(x) >= value, limit), _first(lambda x: float(x) > value, limit) - 1


def _first(holds: Callable[[int], bool], limit: int) -> int:
    """The least x in -limit..limit - 1 for which `holds(x)`, or limit."""
    low, high = -limit, limit
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def _bounded_integer(attribute: int, schema: Schema, op: str, least: int, greatest: int) -> Node:
    limit = 1 << (INTEGER_BITS[schema.types[attribute]] - 1)
    low, high = -limit, limit - 1
    always = _not_null(attribute, schema)
    if op in ("=", "<>"):
        if least > greatest or least > high or greatest < low:
            return FALSE if op == "=" else always
        if least == greatest:
            return tree.membership(attribute, (least,), op == "<>")
        ends = [("<", least), (">", greatest)] if op == "<>" else [(">=", least), ("<=", greatest)]
        terms = [_bounded_integer(attribute, schema, o, bound, bound) for o, bound in ends]
        return (tree.any_of if op == "<>" else tree.all_of)(terms, schema.ranks)
    # From here on the comparison is one of x < least, x <= greatest, x > greatest, x >= least.
    bound = least if op in ("<", ">=") else greatest
    # Up to `first` no x is below the bound. Beyond `last` every x is.
    first = {"<": low, "<=": low - 1, ">": low - 1, ">=": low}[op]
    last = {"<": high, "<=": high - 1, ">": high - 1, ">=": high}[op]
    if bound <= first:
        return FALSE if op in ("<", "<=") else always
    if bound > last:
        return always if op in ("<", "<=") else FALSE
    return Compare(attribute, op, bound)


def _single(attribute: int, schema: Schema, op: str, value: float) -> Node:
    """Compares a FLOAT with a DOUBLE.

    The bound is the nearest float below or above. It is finite, so that it can be printed.
    """
    try:
        # A bound of -0.0 would make an equal filter with another text.
        near = to_float(value) + 0.0
    except OverflowError:
        near = math.copysign(_FLOAT_MAX, value)
    if near == value:
        return _exact(attribute, op, near)
    if op in ("=", "<>"):
        return FALSE if op == "=" else _not_null(attribute, schema)
    if near < value:
        return Compare(attribute, "<=" if op in ("<", "<=") else ">", near)
    return Compare(attribute, "<" if op in ("<", "<=") else ">=", near)


def _step(value: float, direction: int) -> float:
    """The next single-precision number above or below."""
    (bits,) = struct.unpack("<i", struct.pack("<f", value))
    ordered = bits if bits >= 0 else -(bits & 0x7FFF_FFFF)
    ordered += direction
    packed = ordered if ordered >= 0 else -ordered - (1 << 31)
    stepped: float = struct.unpack("<f", struct.pack("<i", packed))[0]
    return stepped
