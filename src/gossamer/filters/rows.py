"""Rows: the values of an event as a tuple in declared order.

Every event passes through here when it is published and when it is delivered, so each schema
gets functions that are generated for it. Their source is made from positions only. Names enter as
constants beside it, never as code. It is compiled once. The generated function covers values of
exactly the right type. Any other event goes to the plain loop below it, which converts the values
or explains the error.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from gossamer.filters.model import Event, EventError

if TYPE_CHECKING:
    from gossamer.filters.schema import Attribute

_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
_FLOAT = struct.Struct("<f")

# The condition, as Python source, that the value v of a type needs no conversion. A string must be
# encodable: it has no lone surrogates.
_EXACT = {
    # A text that can be printed has no surrogate.
    "STRING": "type({v}) is str and ({v}.isascii() or {v}.isprintable() or encodable({v}))",
    "BINARY": "type({v}) is bytes",
    "BOOLEAN": "type({v}) is bool",
    "DOUBLE": "type({v}) is float",
    "FLOAT": "type({v}) is float and single({v})",
    "TIMESTAMP": "type({v}) is datetime and {v}.tzinfo is UTC",
    "DATE": "type({v}) is date",
} | {
    name: f"type({{v}}) is int and {-(2 ** (bits - 1))} <= {{v}} <= {2 ** (bits - 1) - 1}"
    for name, bits in _BITS.items()
}


def encodable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def to_float(value: float) -> float:
    """The nearest single-precision number, as Spark's FLOAT holds it.

    An OverflowError says that the value is out of range.
    """
    rounded: float = _FLOAT.unpack(_FLOAT.pack(value))[0]
    return rounded


def single(value: float) -> bool:
    try:
        return to_float(value) == value or value != value
    except OverflowError:
        return False


def make_row(
    attributes: tuple[Attribute, ...],
) -> Callable[[Mapping[str, Any] | Event], tuple[Any, ...]]:
    names = _Names()
    lines = _read(attributes, names, f"return ({_variables(attributes)})")
    return _define("row", ["def row(m):", *lines, " return slow(m)"], _row_scope(attributes, names))


def make_rows(
    attributes: tuple[Attribute, ...],
) -> Callable[[Iterable[Mapping[str, Any] | Event]], list[tuple[Any, ...]]]:
    """The function from mappings to their rows.

    It does what `make_row`'s function does for each mapping, without a call for each.
    """
    names = _Names()
    lines = _read(attributes, names, f"add(({_variables(attributes)})); continue")
    top = ["def rows(ms):", " found = []; add = found.append", " for m in ms:"]
    return _define(
        "rows",
        [*top, *(f" {line}" for line in lines), "  add(slow(m))", " return found"],
        _row_scope(attributes, names),
    )


def make_weighed(
    attributes: tuple[Attribute, ...], value_bytes: int
) -> Callable[[Mapping[str, Any] | Event], tuple[tuple[Any, ...], int]]:
    """The function from a mapping to its row and the row's approximate number of bytes.

    A character counts as one byte.
    """
    names, size = _Names(), _size(attributes, value_bytes)
    lines = _read(attributes, names, f"return ({_variables(attributes)}), {size}")
    lines += [f" row = {_variables(attributes)} = slow(m)", f" return row, {size}"]
    return _define("weighed", ["def weighed(m):", *lines], _row_scope(attributes, names))


def make_lane(
    attributes: tuple[Attribute, ...], value_bytes: int
) -> Callable[..., Callable[[str, Mapping[str, Any]], Any]]:
    """The function (topic, publication, rows, ticket, most, most_bytes, heavy) to another function.

    That function takes a mapping of the topic into ``rows`` and returns its ticket. It returns
    None and does nothing if the mapping is of another topic, does not have exactly the right types,
    or is too heavy, and if there would be too many rows or bytes.
    """
    names = _Names()
    read = _read(attributes, names, f"row = ({_variables(attributes)})")
    lines = [
        "def lane(topic, publication, rows, ticket, most, most_bytes, heavy):",
        " add = rows.append",
        " def accept(t, m):",
        "  if t != topic: return None",
        "  row = None",
    ]
    lines += [f" {line}" for line in read]
    lines += ["  place = len(rows)", "  if row is None or place >= most: return None"]
    lines += [
        f"  size = {_size(attributes, value_bytes)}",
        "  if size > heavy: return None",
        "  size += publication.size",
    ]
    lines += [
        "  if size >= most_bytes: return None",
        "  add(row); publication.size = size",
        "  return ticket(publication, place)",
        " return accept",
    ]
    return _define("lane", lines, _row_scope(attributes, names))


def _size(attributes: tuple[Attribute, ...], value_bytes: int) -> str:
    """The source of the approximate number of bytes of v0, v1, ..."""
    terms = [str(value_bytes * len(attributes))]
    return " + ".join(
        terms
        + [f"len(v{i} or '')" for i, a in enumerate(attributes) if a.type in ("STRING", "BINARY")]
    )


def _variables(attributes: tuple[Attribute, ...]) -> str:
    return "".join(f"v{i}, " for i in range(len(attributes)))


def _read(attributes: tuple[Attribute, ...], names: _Names, found: str) -> list[str]:
    """Lines that read the mapping m into v0, v1, ... and then do ``found``.

    They do it if every value has exactly the right type. Otherwise they fall through.
    """
    checked = [_check(f"v{i}", a) for i, a in enumerate(attributes)]
    reads, sizes = _reads(attributes, names)
    lines = [" try:", f"  if {' and '.join(sizes[:1])}:", *(f"   {line}" for line in reads)]
    lines += [f"   if {' and '.join(sizes[1:] + checked)}: {found}"]
    if len(sizes) == 1:
        # Missing attributes are ordinary in content-based topics, so they get generated code too.
        gets = [f"   v{i} = m.get({names(a.path[0])})" for i, a in enumerate(attributes)]
        lines += ["  elif m.keys() <= known:", *gets, f"   if {' and '.join(checked)}: {found}"]
    return [*lines, " except (KeyError, TypeError, AttributeError): pass"]


def _row_scope(attributes: tuple[Attribute, ...], names: _Names) -> dict[str, Any]:
    return names.scope | {
        "known": frozenset(a.path[0] for a in attributes),
        "slow": lambda m: _slow_row(attributes, m),
        "encodable": encodable,
        "single": single,
        "datetime": datetime,
        "date": date,
        "UTC": UTC,
    }


def make_values(attributes: tuple[Attribute, ...]) -> Callable[[tuple[Any, ...]], dict[str, Any]]:
    """The function from a row back to a dictionary, which is nested where the schema is."""
    names, variables = _Names(), _variables(attributes)
    lines = [
        "def values(r):",
        f" try: {variables} = r",
        f" except ValueError: {variables} = pad(r)",
    ]
    lines += [f" return {_dictionary(_leaves(attributes), names)}"]
    return _define("values", lines, names.scope | {"pad": _padding(attributes)})


def make_events(attributes: tuple[Attribute, ...]) -> Callable[..., list[Event]]:
    """The function (topic, publisher, incarnation, numbers, rows) to a list of events."""
    names, variables = _Names(), _variables(attributes)
    event = f"Event(topic, publisher, incarnation, n, {_dictionary(_leaves(attributes), names)})"
    lines = ["def events(topic, publisher, incarnation, numbers, rows):"]
    lines += [f" try: return [{event} for n, ({variables}) in zip(numbers, rows)]"]
    lines += [
        f" except ValueError: return [{event} for n, ({variables}) in zip(numbers, map(pad, rows))]"
    ]
    return _define("events", lines, names.scope | {"pad": _padding(attributes), "Event": Event})


def _leaves(attributes: tuple[Attribute, ...]) -> list[tuple[tuple[str, ...], str]]:
    return [(a.path, f"v{i}") for i, a in enumerate(attributes)]


def _padding(attributes: tuple[Attribute, ...]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    width = len(attributes)

    def pad(row: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(row) > width:
            raise EventError(f"a row of {len(row)} values for a schema of {width} attributes")
        return (*row, *[None] * (width - len(row)))

    return pad


def make_row_type(attributes: tuple[Attribute, ...]) -> Any:
    """The type tuple[...] of a row, in msgspec's terms."""
    plain: dict[str, Any] = {
        "STRING": str,
        "BINARY": bytes,
        "BOOLEAN": bool,
        "FLOAT": float,
        "DOUBLE": float,
        "DATE": date,
    }
    plain["TIMESTAMP"] = Annotated[datetime, msgspec.Meta(tz=True)]
    for name, bits in _BITS.items():
        plain[name] = Annotated[int, msgspec.Meta(ge=-(2 ** (bits - 1)), le=2 ** (bits - 1) - 1)]
    inner = tuple(plain[a.type] if a.required else plain[a.type] | None for a in attributes)
    return tuple.__class_getitem__(inner)


def _define(name: str, lines: list[str], scope: dict[str, Any]) -> Callable[..., Any]:
    exec(compile("\n".join(lines), f"<gossamer {name}>", "exec"), scope)
    made: Callable[..., Any] = scope[name]
    return made


class _Names:
    """Constants k0, k1, ... of the generated source, one for each different name."""

    def __init__(self) -> None:
        self.scope: dict[str, Any] = {}
        self._known: dict[str, str] = {}

    def __call__(self, name: str) -> str:
        variable = self._known.setdefault(name, f"k{len(self._known)}")
        self.scope[variable] = name
        return variable


def _check(variable: str, attribute: Attribute) -> str:
    exact = _EXACT[attribute.type].format(v=variable)
    return f"({exact})" if attribute.required else f"({exact} or {variable} is None)"


def _reads(attributes: tuple[Attribute, ...], names: _Names) -> tuple[list[str], list[str]]:
    """Lines that read every leaf into v0, v1, ..., and the conditions that no mapping has other
    keys.
    """
    lines: list[str] = []
    # By path: the variable of a mapping, and the keys that are read from it.
    mappings: dict[tuple[str, ...], tuple[str, set[str]]] = {(): ("m", set())}
    for i, attribute in enumerate(attributes):
        for depth in range(1, len(attribute.path)):
            path = attribute.path[:depth]
            if path not in mappings:
                variable = f"m{len(mappings)}"
                above, keys = mappings[path[:-1]]
                keys.add(path[-1])
                mappings[path] = variable, set()
                lines.append(f"{variable} = {above}[{names(path[-1])}]")
        above, keys = mappings[attribute.path[:-1]]
        keys.add(attribute.path[-1])
        lines.append(f"v{i} = {above}[{names(attribute.path[-1])}]")
    return lines, [f"len({variable}) == {len(keys)}" for variable, keys in mappings.values()]


def _dictionary(leaves: list[tuple[tuple[str, ...], str]], names: _Names) -> str:
    items: list[str] = []
    i = 0
    while i < len(leaves):
        path, variable = leaves[i]
        if len(path) == 1:
            items.append(f"{names(path[0])}: {variable}")
            i += 1
            continue
        end = i
        while end < len(leaves) and leaves[end][0][0] == path[0]:
            end += 1
        inner = [(p[1:], v) for p, v in leaves[i:end]]
        # A struct whose values are all missing was missing itself.
        absent = " and ".join(f"{v} is None" for _, v in inner)
        items.append(f"{names(path[0])}: None if {absent} else {_dictionary(inner, names)}")
        i = end
    return "{" + ", ".join(items) + "}"


def _slow_row(attributes: tuple[Attribute, ...], mapping: Any) -> tuple[Any, ...]:
    """The row of any mapping.

    It converts the values that may be converted, and an EventError names the wrong one.
    """
    _refuse_unknown(mapping, tuple(a.path for a in attributes), "")
    row: list[Any] = []
    for attribute in attributes:
        value = mapping
        for key in attribute.path:
            value = value.get(key) if value is not None else None
        if value is None:
            if attribute.required:
                raise EventError(
                    f"attribute {attribute.name!r} is NOT NULL, and the event has no value for it"
                )
        else:
            value = _convert(attribute, value)
        row.append(value)
    return tuple(row)


def _refuse_unknown(mapping: Any, paths: tuple[tuple[str, ...], ...], prefix: str) -> None:
    # The two modules need each other. This direction is used on errors only.
    from gossamer.filters.schema import nearest

    if not (hasattr(mapping, "keys") and hasattr(mapping, "get")):
        what = f"attribute {prefix[:-1]!r}" if prefix else "an event"
        raise EventError(f"{what} is a mapping of names to values, not {type(mapping).__name__}")
    known = dict.fromkeys(path[0] for path in paths)
    for key in mapping.keys():  # noqa: SIM118 - an Event is no dict
        if key not in known:
            close = nearest(key, tuple(known)) if isinstance(key, str) else None
            hint = f" (did you mean {prefix + close!r}?)" if close else ""
            named = prefix + key if isinstance(key, str) else key
            raise EventError(
                f"unknown attribute {named!r}{hint}; "
                f"the topic has {', '.join(prefix + k for k in known)}"
            )
    for key in known:
        inner = tuple(path[1:] for path in paths if path[0] == key and len(path) > 1)
        if inner and mapping.get(key) is not None:
            _refuse_unknown(mapping.get(key), inner, f"{prefix}{key}.")


def _convert(attribute: Attribute, value: Any) -> Any:
    kind = attribute.type
    try:
        converted = _CONVERT[kind](value)
    except OverflowError:
        raise EventError(
            f"attribute {attribute.name!r}: {value!r} is out of the range of {kind}"
        ) from None
    except (TypeError, ValueError):
        converted = None
    if converted is None:
        what = (
            "text with lone surrogates"
            if isinstance(value, str) and kind == "STRING"
            else type(value).__name__
        )
        raise EventError(f"attribute {attribute.name!r} is {kind}, not {what}: {value!r:.60}")
    return converted


def _string(value: Any) -> str | None:
    return str.__str__(value) if isinstance(value, str) and encodable(value) else None


def _binary(value: Any) -> bytes | None:
    return bytes(value) if isinstance(value, bytes | bytearray | memoryview) else None


def _boolean(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _double(value: Any) -> float | None:
    if isinstance(value, float):
        return float(value)
    return None if isinstance(value, bool) else float(operator.index(value))


def _single(value: Any) -> float | None:
    number = _double(value)
    return None if number is None else to_float(number)


def _integer(bits: int) -> Callable[[Any], int | None]:
    def convert(value: Any) -> int | None:
        if isinstance(value, bool):
            return None
        number = operator.index(value)
        if not -(1 << (bits - 1)) <= number < 1 << (bits - 1):
            raise OverflowError
        return number

    return convert


def _timestamp(value: Any) -> datetime | None:
    if not isinstance(value, datetime):
        return None
    value = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    # The value is rebuilt, so that a subclass (pandas has one) becomes a plain datetime.
    return datetime(
        value.year,
        value.month,
        value.day,
        value.hour,
        value.minute,
        value.second,
        value.microsecond,
        UTC,
    )


def _date(value: Any) -> date | None:
    return value if isinstance(value, date) and not isinstance(value, datetime) else None


_CONVERT: dict[str, Callable[[Any], Any]] = {
    "STRING": _string,
    "BINARY": _binary,
    "BOOLEAN": _boolean,
    "DOUBLE": _double,
    "FLOAT": _single,
    "TIMESTAMP": _timestamp,
    "DATE": _date,
} | {name: _integer(bits) for name, bits in _BITS.items()}
