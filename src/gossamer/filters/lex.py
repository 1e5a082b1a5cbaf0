"""The words of a filter's text, as Spark's own lexer cuts them.

A text that Spark would cut in another way is refused here. A token keeps its place, so that
every later error can point at it. Strings are unescaped by Spark's rules: '' is a quote, a
backslash escapes, r'...' is raw. Spark reads some escapes as the bare letter ('\\d' is 'd'). They
are refused, because the person writing one means something else.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from gossamer.filters.model import TEXT_MAX, FilterError, printable
from gossamer.filters.schema import RESERVED

_TOKEN = re.compile(
    r"""
      (?P<string>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    | (?P<raw>[rR](?:'[^']*'|"[^"]*"))
    | (?P<quoted>`(?:[^`]|``)+`)
    | (?P<number>(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)(?:[eE][+-]?[0-9]+)?
          (?:BD|bd|Bd|bD|[LlSsYyFfDd])?(?![A-Za-z0-9_.]))
    | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<comment>--|/\*)
    | (?P<strange>=>|!<|!>|->|<<|>>|\|\||::|<=>(?==))
    | (?P<op><=>|<>|!=|==|<=|>=|[<>=!(),.+-])
    """,
    re.VERBOSE | re.DOTALL,
)
_SPACE = re.compile(r"[ \t\r\n]*")
_ESCAPE = re.compile(
    r"\\(?:u(?P<u>[0-9A-Fa-f]{4})|U(?P<U>[0-9A-Fa-f]{8})|(?P<octal>[01][0-7]{2})|(?P<one>.))",
    re.DOTALL,
)
_ONE = {
    "0": "\0",
    "b": "\b",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "Z": "\x1a",
    "\\": "\\",
    "'": "'",
    '"': '"',
}
# LIKE reads these escapes itself.
_ONE |= {"%": "\\%", "_": "\\_"}


class Token(NamedTuple):
    # One of word (in upper case if reserved), name, string, number, op, end.
    kind: str
    # Strings are unescaped, names have no backquotes, and each operator has one spelling.
    value: str
    start: int
    end: int


def tokens(text: str) -> list[Token]:
    """The tokens of `text`. The last one has the kind `end`."""
    if len(text) > TEXT_MAX:
        raise FilterError(
            f"a filter has at most {TEXT_MAX:,} characters; this one has {len(text):,}",
            text,
            TEXT_MAX,
        )
    found: list[Token] = []
    place = 0
    while True:
        match = _SPACE.match(text, place)
        assert match is not None
        place = match.end()
        if place == len(text):
            found.append(Token("end", "", place, place + 1))
            return found
        found.append(_token(text, place))
        place = found[-1].end


def _token(text: str, place: int) -> Token:
    match = _TOKEN.match(text, place)
    if match is None:
        raise FilterError(_why(text, place), text, place)
    kind, value, end = match.lastgroup, match[0], match.end()
    if kind == "string":
        return Token("string", _unescape(text, place, end), place, end)
    if kind == "raw":
        return Token("string", value[2:-1], place, end)
    if kind == "quoted":
        return Token("name", value[1:-1].replace("``", "`"), place, end)
    if kind == "word":
        upper = value.upper()
        return (
            Token("word", upper, place, end)
            if upper in RESERVED
            else Token("name", value, place, end)
        )
    if kind == "op":
        return Token("op", {"!=": "<>", "==": "="}.get(value, value), place, end)
    if kind == "number":
        return Token("number", value, place, end)
    raise FilterError(
        "a filter has no comments" if kind == "comment" else f"{value} is not supported",
        text,
        place,
        end,
    )


def _why(text: str, place: int) -> str:
    character = text[place]
    if character in "'\"`":
        return f"{character} is opened and never closed"
    if character.isdigit() or character == ".":
        return "Spark reads no such number"
    if character in "*/%&|^~[]{}:?@$;#":
        return f"{character} is not supported"
    if character.isalpha():
        return f"a name with {character!r} stands in backquotes"
    return f"unexpected character {character!r}"


def _unescape(text: str, start: int, end: int) -> str:
    quote, inner = text[start], text[start + 1 : end - 1]
    if "\\" not in inner:
        return inner.replace(quote * 2, quote)
    parts: list[str] = []
    place = start + 1
    stop = end - 1
    while place < stop:
        character = text[place]
        # It is the first quote of two.
        if character == quote:
            parts.append(quote)
            place += 2
            continue
        if character != "\\":
            parts.append(character)
            place += 1
            continue
        match = _ESCAPE.match(text, place, stop)
        assert match is not None
        parts.append(_escaped(match, text))
        place = match.end()
    # Escapes may write a supplementary character as two surrogates. The parser refuses a lone one.
    return "".join(parts).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _escaped(match: re.Match[str], text: str) -> str:
    code = match["u"] or match["U"]
    if code:
        point = int(code, 16)
        if point > 0x10FFFF:
            raise FilterError(f"{match[0]} is beyond Unicode", text, match.start(), match.end())
        return chr(point)
    if match["octal"]:
        return chr(int(match["octal"], 8))
    one = match["one"]
    if one not in _ONE:
        # It may be half of a surrogate pair, which no encoding could write.
        shown = printable(match[0])
        hint = (
            f"{shown} in a string is just {one!r} to Spark; "
            f"write \\{shown}, or the whole string as r'...'"
        )
        raise FilterError(hint, text, match.start(), match.end())
    return _ONE[one]
