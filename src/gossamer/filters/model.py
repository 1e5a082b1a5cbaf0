"""The limits, the errors and the event, which the other modules of this package share."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView
from typing import Any, Final

from msgspec import Struct

# Filters and schemas come from peers as well as from the user, so everything that grows with
# them has a maximum.
# Characters of a filter.
TEXT_MAX: Final = 8_192
# Parentheses inside parentheses, and NOTs inside NOTs: Spark's parser recurses into both.
DEPTH_MAX: Final = 64
# Conjunctions of a filter with every OR and IN multiplied out.
CONJUNCTIONS_MAX: Final = 1_024
# Characters of a schema.
DDL_MAX: Final = 65_536
# Attributes of a schema, with the leaves of its structs counted.
ATTRIBUTES_MAX: Final = 256
STRUCT_DEPTH_MAX: Final = 8
# Characters of one name.
NAME_MAX: Final = 128

# Characters of the text that an error shows.
_SHOWN = 100


class TextError(ValueError):
    """An error at a place in a text.

    It shows `message`, then the line of the text, then carets under the place.
    """

    def __init__(self, message: str, text: str, start: int, end: int | None = None) -> None:
        self.message = message
        self.text = text
        self.start = min(start, len(text))
        self.end = max(self.start + 1, min(len(text), end if end is not None else start + 1))
        super().__init__(f"{message}\n{_pointer(text, self.start, self.end)}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.text, self.start, self.end)


class FilterError(TextError):
    """The text of a filter is not one that the fabric and Spark agree on."""


class SchemaError(TextError):
    """The text of a schema is not DDL of the types that Gossamer carries."""


class EventError(ValueError):
    """An event does not fit the schema of its topic."""


def printable(text: str) -> str:
    """The text with a space for each character that a terminal cannot show.

    The length stays the same, so that carets stay in place.
    """
    return "".join(c if c.isprintable() else " " for c in text)


def _pointer(text: str, start: int, end: int) -> str:
    """The line of `text` around `start`, with carets under start..end.

    A long line is cut to the width of a terminal.
    """
    first = text.rfind("\n", 0, start) + 1
    last = text.find("\n", start)
    last = len(text) if last < 0 else last
    before, after = "", ""
    if last - first > _SHOWN:
        if start - first > _SHOWN // 2:
            first, before = start - _SHOWN // 2, "…"
        if last - first > _SHOWN:
            last, after = first + _SHOWN, "…"
    line = printable(text[first:last])
    width = max(1, min(end, last) - start)
    return f"  {before}{line}{after}\n  {' ' * (len(before) + start - first)}{'^' * width}"


class Event(Struct, frozen=True, gc=False):
    """One event as a subscriber gets it.

    It reads like a mapping, and a missing attribute is None.
    """

    topic: str
    publisher: int
    incarnation: int
    sequence: int
    values: dict[str, Any]
    # The place of the event in a durable subscription, from 1 on. A consumer acknowledges offsets.
    offset: int = 0

    @property
    def id(self) -> tuple[int, int, int]:
        """The identity of the event.

        It is the same on every node, however often the event is sent.
        """
        return self.publisher, self.incarnation, self.sequence

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values)

    def __len__(self) -> int:
        return len(self.values)

    def __contains__(self, name: object) -> bool:
        return name in self.values

    def __hash__(self) -> int:
        return hash((self.topic, self.publisher, self.incarnation, self.sequence))

    def get(self, name: str, default: Any = None) -> Any:
        return self.values.get(name, default)

    def keys(self) -> KeysView[str]:
        return self.values.keys()

    def items(self) -> ItemsView[str, Any]:
        return self.values.items()
