"""LIKE and RLIKE: from patterns to trees and matchers.

Nothing here backtracks, so a pattern from a peer costs linear time.

LIKE is matched piece by piece. The piece before the first % and the piece after the last one
have fixed places. Each piece between two of them is taken at the first place where it is found,
because that leaves most of the text to the rest.

RLIKE is Java's `find()`. The subset below means the same to java.util.regex and to RE2, once
`.`, `\\s` and `$` are written out as Java has them (RE2's differ on \\r, \\x0B, \\u0085, \\u2028,
\\u2029):

    characters    any, or \\ before ASCII punctuation, or \\t \\n \\r \\f
    sets          .  \\d \\w \\s \\D \\W \\S  [abc] [^a-z] with characters, ranges, \\d \\w \\s
    groups        (...) (?:...)  with | between alternatives that are not empty
    repeats       * + ? {n} {n,} {n,m}, also lazy; n, m <= 100; at most 1,000 when nested;
                  an expression that matches the empty text cannot be repeated
    anchors       ^ at the start of an alternative, $ at the end of an outermost one
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NoReturn

import re2

from gossamer.filters import tree
from gossamer.filters.tree import Like, Node, Null

REPEAT_MAX: Final = 100
REPEAT_NESTED_MAX: Final = 1_000
GROUP_DEPTH_MAX: Final = 32
# The most bytes that RE2 may take for one pattern. A larger pattern is refused.
MEMORY_MAX: Final = 1 << 20

# The most characters of a piece between two % that has a _ inside. Such a piece is tried at each
# place.
LIKE_SPAN_MAX: Final = 64

Matcher = Callable[[str], bool]
Finder = Callable[[str, int, int], int]

# The wildcards _ and %.
_ONE, _MANY = object(), object()


# LIKE


def _like_parts(pattern: str, escape: str) -> list[Any]:
    """A pattern as runs of characters and wildcards.

    Each % comes after the _ beside it, and only once, so that equal patterns have equal parts.
    """
    parts: list[Any] = []
    place = 0
    while place < len(pattern):
        character = pattern[place]
        if character == escape:
            place += 1
            if place == len(pattern):
                raise ValueError(f"a LIKE pattern cannot end with its escape character {escape}")
            if pattern[place] not in ("%", "_", escape):
                raise ValueError(f"in a LIKE pattern {escape} stands before %, _ or {escape} only")
            parts.append(pattern[place])
        elif character == "_" and parts and parts[-1] is _MANY:
            parts.insert(-1, _ONE)
        elif character == "%":
            if not (parts and parts[-1] is _MANY):
                parts.append(_MANY)
        else:
            parts.append(_ONE if character == "_" else character)
        place += 1
    joined: list[Any] = []
    for part in parts:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        else:
            joined.append(part)
    return joined


def like_node(attribute: int, pattern: str, escape: str, negated: bool, required: bool) -> Node:
    """The node of `attribute [NOT] LIKE pattern`.

    Without wildcards it is an equality. A ValueError says that the escapes are wrong.
    """
    parts = _like_parts(pattern, escape)
    if not parts or (len(parts) == 1 and isinstance(parts[0], str)):
        return tree.membership(attribute, ("".join(parts),), negated)
    if parts == [_MANY]:
        if required:
            return tree.Const(not negated)
        return tree.FALSE if negated else Null(attribute, True)
    return Like(attribute, "".join(map(_like_text, parts)), negated)


def _like_text(part: Any) -> str:
    if not isinstance(part, str):
        return "_" if part is _ONE else "%"
    return part.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def like_tokens(pattern: str) -> list[Any]:
    """The pattern of a Like as single characters, with ... for _ and None for %."""
    found: list[Any] = []
    for part in _like_parts(pattern, "\\"):
        found += part if isinstance(part, str) else [... if part is _ONE else None]
    return found


@lru_cache(maxsize=64)
def like_source(pattern: str) -> tuple[str, Any]:
    """Python source over v that tells whether the string v matches, and its constant {c}.

    A ValueError says that the pattern is too large.
    """
    parts = _like_parts(pattern, "\\")
    kinds = tuple("x" if isinstance(p, str) else "_" if p is _ONE else "%" for p in parts)
    text = next((p for p in parts if isinstance(p, str)), "")
    if kinds == ("x", "%"):
        return "v.startswith({c})", text
    if kinds == ("%", "x"):
        return "v.endswith({c})", text
    if kinds == ("%", "x", "%"):
        return "{c} in v", text
    return "{c}(v)", _like_matcher(parts)


def _like_matcher(parts: list[Any]) -> Matcher:
    pieces: list[list[Any]] = [[]]
    for part in parts:
        if part is _MANY:
            pieces.append([])
        else:
            pieces[-1].append(part)
    head, head_length = _placed(pieces[0])
    if len(pieces) == 1:
        return lambda v: len(v) == head_length and all(v.startswith(run, at) for at, run in head)
    finders = [_finder(piece) for piece in pieces[1:-1]]
    tail, tail_length = _placed(pieces[-1])

    def matches(v: str) -> bool:
        place, end = head_length, len(v) - tail_length
        if place > end or not all(v.startswith(run, at) for at, run in head):
            return False
        if not all(v.startswith(run, end + at) for at, run in tail):
            return False
        for find in finders:
            place = find(v, place, end)
            if not 0 <= place <= end:
                return False
        return True

    return matches


def _placed(piece: list[Any]) -> tuple[list[tuple[int, str]], int]:
    """The runs of characters, each with its place, and the length of the piece."""
    runs: list[tuple[int, str]] = []
    length = 0
    for part in piece:
        if isinstance(part, str):
            runs.append((length, part))
        length += len(part) if isinstance(part, str) else 1
    return runs, length


def _finder(piece: list[Any]) -> Finder:
    """A function find(v, start, end) for the first occurrence of the piece in v[start:end].

    It gives the place where the occurrence ends. Without one it gives -1 or a place beyond the
    end.
    """
    runs, length = _placed(piece)
    # Each % comes after _ in the parts, so a piece after a % begins with characters.
    first = runs[0][1]
    if len(runs) == 1:

        def find(v: str, start: int, end: int) -> int:
            place = v.find(first, start, end)
            return place if place < 0 else place + length

        return find
    at, last = runs[-1]
    span = at + len(last)
    if span > LIKE_SPAN_MAX:
        raise ValueError(
            "in a LIKE pattern a text with _ inside, between two %, "
            f"has at most {LIKE_SPAN_MAX} characters"
        )
    # The piece has a fixed length, so Python's own engine never backtracks.
    search = re.compile(
        "".join(re.escape(p) if isinstance(p, str) else "." for p in piece), re.DOTALL
    ).search

    def find_wild(v: str, start: int, end: int) -> int:
        match = search(v, start, end)
        return -1 if match is None else match.end()

    return find_wild


# RLIKE

_TERMINATORS = "\n\r\u0085\u2028\u2029"
_SETS = {
    "d": "0-9",
    "w": "0-9A-Z_a-z",
    "s": r"\t\n\x0B\f\r ",
}
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")


@lru_cache(maxsize=64)
def rlike(pattern: str) -> Matcher:
    """The matcher of an RLIKE pattern. A ValueError says that the pattern is outside the subset."""
    parser = _Regex(pattern)
    search = _search(parser.parse())
    if not parser.dollar:
        return search

    def matches(value: str) -> bool:
        # Java's $ is the end, or the place before a line terminator that ends the text. Because $
        # is last in its alternative, the text has to match up to its end, with that terminator or
        # without it.
        if search(value):
            return True
        if value.endswith("\r\n"):
            return search(value[:-2])
        return value[-1:] in _TERMINATORS and value != "" and search(value[:-1])

    return matches


def _search(expression: str) -> Matcher:
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = MEMORY_MAX
    try:
        compiled = re2.compile(expression, options=options)
    except re2.error:
        raise ValueError("the pattern is too large") from None
    search = compiled.search
    return lambda value: search(value) is not None


def _quote(text: str) -> str:
    return "".join(c if c.isalnum() and c.isascii() else f"\\x{{{ord(c):X}}}" for c in text)


class _Regex:
    """Reads a pattern and writes it in the syntax of RE2.

    Groups are bounded in depth, and so is the recursion.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.place = 0
        self.dollar = False

    def _fail(self, message: str) -> NoReturn:
        raise ValueError(f"{message} (character {self.place + 1} of the pattern)")

    def _peek(self, length: int = 1) -> str:
        return self.text[self.place : self.place + length]

    def parse(self) -> str:
        if not self.text:
            return ""
        written, _, _ = self._alternatives(0)
        if self.place < len(self.text):
            self._fail("unmatched )")
        return written

    def _alternatives(self, depth: int) -> tuple[str, bool, int]:
        """Reads alternatives.

        The result is RE2's syntax, whether the empty text matches, and the largest product of
        nested repeats.
        """
        written: list[str] = []
        nullable, repeats = False, 1
        while True:
            part, empty, inner = self._sequence(depth)
            written.append(part)
            nullable |= empty
            repeats = max(repeats, inner)
            if self._peek() != "|":
                return "|".join(written), nullable, repeats
            self.place += 1

    def _sequence(self, depth: int) -> tuple[str, bool, int]:
        written: list[str] = []
        nullable, repeats = True, 1
        if self._peek() == "^":
            self.place += 1
            written.append("\\A")
        while (character := self._peek()) and character not in "|)":
            if character == "$":
                self.place += 1
                if depth or self._peek() not in ("", "|"):
                    self._fail("$ stands only at the end of an outermost alternative")
                self.dollar = True
                written.append("\\z")
                break
            atom, empty, inner = self._atom(depth)
            repeat, optional, most = self._repeat()
            if repeat and empty and most != 1:
                self._fail("an expression that matches the empty text cannot be repeated")
            inner *= max(most, 1)
            if inner > REPEAT_NESTED_MAX:
                self._fail(f"nested repeats multiply to more than {REPEAT_NESTED_MAX:,}")
            written.append(atom + repeat)
            nullable &= empty or optional
            repeats = max(repeats, inner)
        if not written:
            self._fail("an empty alternative or group")
        return "".join(written), nullable, repeats

    def _repeat(self) -> tuple[str, bool, int]:
        """Reads a quantifier.

        The result is the quantifier, whether it allows no occurrence, and how often RE2 writes
        the expression out. The last is 1 for no quantifier and for ?, and 0 for * and +.
        """
        character = self._peek()
        if character and character in "*+?":
            self.place += 1
            found = character, character != "+", 1 if character == "?" else 0
        elif character == "{":
            found = self._counted()
        else:
            return "", False, 1
        lazy = self._peek()
        if lazy == "?":
            # A greedy and a lazy quantifier match the same texts.
            self.place += 1
        elif lazy == "+":
            self._fail("possessive repeats are not supported")
        if self._peek() and self._peek() in "*+?{":
            self._fail("a repeat of a repeat")
        return found

    def _counted(self) -> tuple[str, bool, int]:
        close = self.text.find("}", self.place)
        numbers = self.text[self.place + 1 : close].split(",") if close > 0 else []
        low, high = [*numbers, "", ""][:2]
        plain = all(n.isascii() and n.isdigit() and len(n) <= 3 for n in numbers if n)
        if not (1 <= len(numbers) <= 2 and low and plain):
            self._fail("{ begins a repeat {n}, {n,} or {n,m}; \\{ is the character")
        least = int(low)
        most = least if len(numbers) == 1 else int(high) if high else max(least, 2)
        if max(least, most) > REPEAT_MAX or most < least or most == 0:
            self._fail(f"a repeat counts from 1 to {REPEAT_MAX}, the smaller number first")
        self.place = close + 1
        upper = "" if len(numbers) == 1 else f",{int(high)}" if high else ","
        return f"{{{least}{upper}}}", least == 0, most

    def _atom(self, depth: int) -> tuple[str, bool, int]:
        character = self._peek()
        if character == "(":
            return self._group(depth)
        if character == "[":
            return self._class(), False, 1
        if character == "\\":
            letter = self._peek(2)[1:]
            if letter and letter in "dws":
                self.place += 2
                return f"[{_SETS[letter]}]", False, 1
            if letter and letter in "DWS":
                self.place += 2
                return f"[^{_SETS[letter.lower()]}]", False, 1
            return _quote(self._escaped()), False, 1
        if character in "*+?{":
            self._fail("nothing to repeat")
        if character in "^}]":
            self._fail(f"{character} stands here only as \\{character}")
        self.place += 1
        if character == ".":
            return f"[^{''.join(map(_quote, _TERMINATORS))}]", False, 1
        return _quote(character), False, 1

    def _group(self, depth: int) -> tuple[str, bool, int]:
        if depth == GROUP_DEPTH_MAX:
            self._fail(f"groups are at most {GROUP_DEPTH_MAX} deep")
        if self._peek(3) == "(?:":
            self.place += 3
        elif self._peek(2) == "(?":
            self._fail("of the (? forms only (?: is supported")
        else:
            self.place += 1
        inner, nullable, repeats = self._alternatives(depth + 1)
        if self._peek() != ")":
            self._fail("( is not closed")
        self.place += 1
        return f"(?:{inner})", nullable, repeats

    def _escaped(self) -> str:
        letter = self._peek(2)[1:]
        if not letter or not (letter in _CONTROL or letter in _PUNCTUATION):
            self._fail(f"\\{letter} is not supported" if letter else "a pattern cannot end with \\")
        self.place += 2
        return _CONTROL.get(letter, letter)

    def _class(self) -> str:
        self.place += 1
        negated = self._peek() == "^"
        self.place += negated
        written: list[str] = []
        while self._peek() != "]" or not written:
            letter = self._peek(2)[1:] if self._peek() == "\\" else ""
            if letter and letter in "dws":
                self.place += 2
                written.append(_SETS[letter])
                if self._peek() == "-" and self._peek(2) != "-]":
                    self._fail("a range begins and ends with a character")
                continue
            low = self._class_character(first=not written)
            if self._peek() == "-" and self._peek(2) != "-]":
                self.place += 1
                high = self._class_character(first=False)
                if high < low or len(low) + len(high) > 2:
                    self._fail("the ends of a range are the wrong way round")
                written.append(f"{_quote(low)}-{_quote(high)}")
            else:
                written.append(_quote(low))
        self.place += 1
        return f"[{'^' if negated else ''}{''.join(written)}]"

    def _class_character(self, first: bool) -> str:
        character = self._peek()
        if not character:
            self._fail("[ is not closed")
        if character == "\\":
            return self._escaped()
        # Java reads [a[b]] and [a&&b] as set operations. A bare - is a character only at either
        # end.
        if character in "[]^&" or (character == "-" and not first and self._peek(2) != "-]"):
            self._fail(f"in [...] {character} stands only as \\{character}")
        self.place += 1
        return character
