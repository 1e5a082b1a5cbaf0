"""Text of peers on a terminal: it is shown, and it does nothing.

Topics, schemas, filters, addresses, reasons and values come from peers, who may put anything into
them: the escape sequences of a terminal, newlines, text that runs from right to left, or the markup
of Rich. A command prints such text through these functions.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from rich.console import Console

# The control characters of a terminal that JSON does not escape, in UTF-8: 7F, and 80 to 9F.
_CONTROLS = re.compile(rb"\x7f|\xc2[\x80-\x9f]")


def plain(text: str, *, keep: str = "") -> str:
    r"""The text with every character that is not printable written as \xNN or \uNNNN.

    Characters in ``keep`` stay.
    """
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() or one in keep else one.encode("unicode_escape").decode()
        for one in text
    )


def plain_lines(text: str) -> str:
    """The same for a message of several lines."""
    return plain(text, keep="\n")


def plain_all(value: Any) -> Any:
    """Plain data with all its texts made plain."""
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, dict):
        return {plain_all(key): plain_all(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_all(one) for one in value]
    return value


def json_line(value: Any) -> bytes:
    """JSON in one line, with all control characters escaped."""
    data = msgspec.json.encode(value)
    if b"\xc2" in data or b"\x7f" in data:
        data = _CONTROLS.sub(lambda found: b"\\u00%02x" % found.group()[-1], data)
    return data


def plain_console(**options: Any) -> Console:
    """A console that takes no text for markup."""
    from rich.console import Console

    return Console(markup=False, emoji=False, **options)
