"""A topic's schema: from Spark DDL to typed attributes.

A STRUCT is carried as its leaves, under dotted names: `loc STRUCT<lat: DOUBLE, lon: DOUBLE>` is
the two attributes `loc.lat` and `loc.lon`. In filters, names are resolved as Spark does it,
whatever their case. Events use the declared spelling, because publishing looks up every attribute
in a dictionary.
"""

from __future__ import annotations

import difflib
import enum
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn, Self, get_args

from gossamer.filters import loops, rows
from gossamer.filters.model import (
    ATTRIBUTES_MAX,
    DDL_MAX,
    NAME_MAX,
    STRUCT_DEPTH_MAX,
    Event,
    SchemaError,
)

if TYPE_CHECKING:
    from gossamer.filters import _native

Order = Literal["declared", "name"]


class Type(enum.StrEnum):
    """The types of attributes, by their names in Spark."""

    STRING = "STRING"
    BINARY = "BINARY"
    BOOLEAN = "BOOLEAN"
    TINYINT = "TINYINT"
    SMALLINT = "SMALLINT"
    INT = "INT"
    BIGINT = "BIGINT"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    TIMESTAMP = "TIMESTAMP"
    DATE = "DATE"


INTEGER_BITS: dict[Type, int] = {Type.TINYINT: 8, Type.SMALLINT: 16, Type.INT: 32, Type.BIGINT: 64}
FLOATING = frozenset((Type.FLOAT, Type.DOUBLE))
NUMERIC = FLOATING | frozenset(INTEGER_BITS)

_TYPE_NAMES = {t.value: t for t in Type} | {
    "BYTE": Type.TINYINT,
    "SHORT": Type.SMALLINT,
    "INTEGER": Type.INT,
    "LONG": Type.BIGINT,
    "REAL": Type.FLOAT,
    "TIMESTAMP_LTZ": Type.TIMESTAMP,
}

# Words that begin or join constructs in Spark's grammar. As names they must stand in backquotes.
_RESERVED = """
    ALL AND ANY BETWEEN CASE CAST CURRENT_DATE CURRENT_PATH CURRENT_TIME CURRENT_TIMESTAMP
    CURRENT_USER DISTINCT DIV ELSE END ESCAPE EXISTS FALSE FROM ILIKE IN INTERVAL IS LIKE NOT NULL
    OR REGEXP RLIKE SELECT SOME STRUCT THEN TRUE VALUES WHEN WHERE XOR
"""
RESERVED = frozenset(_RESERVED.split())
# The most characters of a name for which a similar one is suggested.
_GUESSED_MAX = 40
PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_TOKEN = re.compile(
    r"[ \t\r\n]*(?:(?P<quoted>`(?:[^`]|``)*`)|(?P<word>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<mark>[<>:,])|(?P<end>\Z))"
)


class Attribute(NamedTuple):
    """One leaf of a schema."""

    path: tuple[str, ...]
    type: Type
    # Whether it is NOT NULL.
    required: bool

    @property
    def name(self) -> str:
        return ".".join(self.path)


class Schema:
    """The attributes of a topic, in declared order.

    A schema does not change. Two schemas are equal when their attributes and orders are equal.
    """

    attributes: tuple[Attribute, ...]
    # The order of the predicates in the keys of filters.
    order: Order
    # A leaf of a struct has a dotted name.
    names: tuple[str, ...]
    types: tuple[Type, ...]
    # The place of each attribute in the order.
    ranks: tuple[int, ...]
    # The canonical DDL, which parses back to an equal schema.
    text: str

    def __init__(self, attributes: tuple[Attribute, ...], order: Order = "declared") -> None:
        self.attributes = attributes
        self.order = order
        self.names = tuple(a.name for a in attributes)
        self.types = tuple(a.type for a in attributes)
        self.text = ", ".join(_ddl([(a.path, a) for a in attributes], " "))
        places = range(len(attributes))
        by_order = sorted(places, key=self.names.__getitem__) if order == "name" else places
        ranks = {index: rank for rank, index in enumerate(by_order)}
        self.ranks = tuple(ranks[i] for i in places)
        self._index = {name.lower(): i for i, name in enumerate(self.names)}

    @classmethod
    def parse(cls, ddl: str, order: Order = "declared") -> Self:
        """Reads the schema that Spark would read from `ddl`.

        A SchemaError says why a text is refused. `order` is the order of predicates in keys.
        """
        if order not in get_args(Order):
            raise ValueError(f"order is 'declared' or 'name', not {order!r}")
        return cls(tuple(_Ddl(ddl).attributes()), order)

    @cached_property
    def row(self) -> Callable[[Mapping[str, Any] | Event], tuple[Any, ...]]:
        """The function that checks a mapping and gives its values in declared order.

        An EventError says that the mapping does not fit.
        """
        return rows.make_row(self.attributes)

    @cached_property
    def shape(self) -> _native.Shape | None:
        """The compiled reader and writer of rows (_native.pyx), or None.

        It takes values that have exactly the right type.
        """
        required = [attribute.required for attribute in self.attributes]
        return loops.shape(tuple(map(sys.intern, self.names)), self.types, required, Event)

    @cached_property
    def _flat(self) -> _native.Shape | None:
        """The compiled reader of mappings, or None. It cannot read structs."""
        return None if any(len(attribute.path) > 1 for attribute in self.attributes) else self.shape

    @cached_property
    def rows(self) -> Callable[[Iterable[Mapping[str, Any] | Event]], list[tuple[Any, ...]]]:
        """The function that gives a row for each mapping, as `row` makes it."""
        flat, row = self._flat, self.row
        return (
            rows.make_rows(self.attributes)
            if flat is None
            else lambda mappings: flat.rows(mappings, row)
        )

    def weighed(
        self, value_bytes: int
    ) -> Callable[[Mapping[str, Any] | Event], tuple[tuple[Any, ...], int]]:
        """A function from a mapping to its row and the row's approximate number of bytes.

        Each value counts `value_bytes`, and texts count their characters too.
        """
        return rows.make_weighed(self.attributes, value_bytes)

    def lane(self, value_bytes: int) -> Callable[..., Callable[[str, Mapping[str, Any]], Any]]:
        """As `weighed`, for a program that publishes one event after another. See
        ``rows.make_lane``.
        """
        flat = self._flat
        if flat is None:
            return rows.make_lane(self.attributes, value_bytes)
        return partial(flat.lane, value_bytes)

    @cached_property
    def events(self) -> Callable[..., list[Event]]:
        """The function (topic, publisher, incarnation, numbers, rows) to a list of events."""
        flat, slow = self._flat, rows.make_events(self.attributes)
        if flat is None:
            return slow

        def events(
            topic: str, publisher: int, incarnation: int, numbers: Sequence[int], rows: Any
        ) -> list[Event]:
            found = (
                flat.events(topic, publisher, incarnation, numbers, rows)
                if type(rows) is list
                else None
            )
            return slow(topic, publisher, incarnation, numbers, rows) if found is None else found

        return events

    @cached_property
    def values(self) -> Callable[[tuple[Any, ...]], dict[str, Any]]:
        """The function from a row to a dictionary. A short row ends in None."""
        return rows.make_values(self.attributes)

    @cached_property
    def row_type(self) -> Any:
        """The tuple type of a row. msgspec checks with it the rows that peers send."""
        return rows.make_row_type(self.attributes)

    def extends(self, other: Schema) -> bool:
        """Whether this is the other schema with nullable attributes added at its end.

        Then events of either schema can be read with both.
        """
        more = self.attributes[len(other.attributes) :]
        same = (
            self.attributes[: len(other.attributes)] == other.attributes
            and self.order == other.order
        )
        return bool(more) and same and not any(attribute.required for attribute in more)

    def find(self, name: str) -> int | None:
        """The position of the attribute that a filter calls `name`, whatever its case."""
        index = self._index.get(name.lower())
        return index if index is not None and _same(name, self.names[index]) else None

    def nearest(self, name: str) -> str | None:
        """The attribute that the user may have meant by `name`."""
        return nearest(name, self.names)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and (self.attributes, self.order) == (
            other.attributes,
            other.order,
        )

    def __hash__(self) -> int:
        return hash((self.attributes, self.order))

    def __repr__(self) -> str:
        order = "" if self.order == "declared" else f", order={self.order!r}"
        return f"Schema.parse({self.text!r}{order})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).parse, (self.text, self.order)


def _same(a: str, b: str) -> bool:
    """Spark's second test of names, Java's equalsIgnoreCase.

    It compares character by character, because "İ".lower() has two characters.
    """
    return len(a) == len(b) and all(
        x.lower() == y.lower() or x.upper() == y.upper() for x, y in zip(a, b, strict=True)
    )


def nearest(name: str, names: tuple[str, ...]) -> str | None:
    """The name that is most like `name`, whatever its case, or None if none is.

    Long names are not compared, because difflib takes quadratic time.
    """
    if len(name) > _GUESSED_MAX:
        return None
    by_lower = {n.lower(): n for n in names if len(n) <= _GUESSED_MAX}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[close[0]] if close else None


@lru_cache(maxsize=4096)
def quote(path: tuple[str, ...]) -> str:
    """A name as SQL text, in backquotes where it needs them."""
    plain = (PLAIN_NAME.fullmatch(p) and p.upper() not in RESERVED for p in path)
    return ".".join(
        p if ok else f"`{p.replace('`', '``')}`" for p, ok in zip(path, plain, strict=True)
    )


def _ddl(leaves: list[tuple[tuple[str, ...], Attribute]], colon: str) -> Iterator[str]:
    """The DDL of consecutive leaves.

    The leaves of one struct follow each other, so one pass groups them.
    """
    i = 0
    while i < len(leaves):
        path, attribute = leaves[i]
        head = quote(path[:1])
        if len(path) == 1:
            yield f"{head}{colon}{attribute.type}{' NOT NULL' if attribute.required else ''}"
            i += 1
        else:
            end = i
            while end < len(leaves) and leaves[end][0][0] == path[0]:
                end += 1
            inner = [(p[1:], a) for p, a in leaves[i:end]]
            yield f"{head}{colon}STRUCT<{', '.join(_ddl(inner, ': '))}>"
            i = end


class _Ddl:
    """Reads `name [:] type [NOT NULL], ...` by recursive descent."""

    def __init__(self, text: str) -> None:
        if len(text) > DDL_MAX:
            raise SchemaError(
                f"a schema has at most {DDL_MAX:,} characters; this one has {len(text):,}",
                text,
                DDL_MAX,
            )
        self.text = text
        # The place where the next token may begin.
        self.place = 0
        self.count = 0
        self._next()

    def _next(self) -> None:
        match = _TOKEN.match(self.text, self.place)
        if match is None:
            start = len(self.text) - len(self.text[self.place :].lstrip(" \t\r\n"))
            self._fail("a name, a type, ',' or ':' expected", start, start + 1)
        kind = match.lastgroup
        assert kind is not None
        self.kind, self.token, self.start, self.place = (
            kind,
            match[kind],
            match.start(kind),
            match.end(),
        )

    def _fail(self, message: str, start: int | None = None, end: int | None = None) -> NoReturn:
        raise SchemaError(
            message,
            self.text,
            self.start if start is None else start,
            self.place if end is None else end,
        )

    def _take(self, mark: str) -> bool:
        if self.kind == "mark" and self.token == mark:
            self._next()
            return True
        return False

    def attributes(self) -> list[Attribute]:
        found = self._fields((), 0)
        if self.kind != "end":
            self._fail("',' or the end of the schema expected")
        return found

    def _fields(self, parents: tuple[str, ...], depth: int) -> list[Attribute]:
        found: list[Attribute] = []
        seen: set[str] = set()
        while True:
            name, start, end = self._name()
            if name.lower() in seen:
                self._fail(
                    f"attribute {name!r} is declared twice (Spark takes names whatever their case)",
                    start,
                    end,
                )
            seen.add(name.lower())
            self._take(":")
            found += self._type((*parents, name), depth)
            if not self._take(","):
                return found

    def _name(self) -> tuple[str, int, int]:
        if self.kind not in ("word", "quoted"):
            self._fail("the name of an attribute expected")
        name = self.token if self.kind == "word" else self.token[1:-1].replace("``", "`")
        if not 0 < len(name) <= NAME_MAX:
            self._fail(f"a name has 1 to {NAME_MAX} characters")
        # A dot separates the parts of a path into structs. Control characters and lone surrogates
        # cannot be printed or encoded.
        if "." in name or not name.isprintable() or name != name.strip():
            self._fail("a name has no dot, no control character and no space at its ends")
        place = self.start, self.place
        self._next()
        return name, *place

    def _type(self, path: tuple[str, ...], depth: int) -> list[Attribute]:
        if self.kind != "word":
            self._fail(f"the type of {path[-1]!r} expected")
        word = self.token.upper()
        if word == "STRUCT":
            if depth == STRUCT_DEPTH_MAX:
                self._fail(f"structs are at most {STRUCT_DEPTH_MAX} deep")
            self._next()
            if not self._take("<"):
                self._fail("'<' expected after STRUCT")
            inner = self._fields(path, depth + 1)
            if not self._take(">"):
                self._fail("',' or '>' expected")
            return inner
        kind = _TYPE_NAMES.get(word)
        if kind is None:
            self._fail(
                f"type {self.token} is not supported; supported: {', '.join(Type)}, STRUCT<...>"
            )
        self.count += 1
        if self.count > ATTRIBUTES_MAX:
            self._fail(f"a schema has at most {ATTRIBUTES_MAX} attributes")
        self._next()
        required = self.kind == "word" and self.token.upper() == "NOT"
        if required:
            self._next()
            if self.kind != "word" or self.token.upper() != "NULL":
                self._fail("NULL expected after NOT")
            self._next()
        return [Attribute(path, kind, required)]
