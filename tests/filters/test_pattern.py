"""LIKE and RLIKE by themselves: the subset, and that every pattern costs linear time."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gossamer.filters.match import compile_row
from gossamer.filters.pattern import LIKE_SPAN_MAX, like_node, rlike
from gossamer.filters.schema import Schema
from gossamer.filters.tree import like_prefix

# All of it together takes seconds.
pytestmark = pytest.mark.slow

ACCEPTED = r"""
    abc|a.c|^a|a$|^a$|a|a|b|(a|b)+$|(?:ab)*c|a{2}|a{2,}|a{1,3}?|a+?|[abc]|[^a-c]|[\d_]|\d\w\s\D\W\S|\.|\\|\[|\t\n\r\f|[\]\^\-\\]|[a-]|[-a]
    é+|[é-ü]|😀|[😀-😆]|x\-y|a]b
"""
REFUSED = {
    "a]b": "] stands here only as",
    "a}": "} stands here only as",
    "a{": "{ begins a repeat",
    "a{,3}": "{ begins a repeat",
    "a{1001}": "{ begins a repeat",
    "a{101}": "a repeat counts from 1 to 100",
    "a{3,2}": "the smaller number first",
    "a{0}": "a repeat counts from 1",
    "(a{100}){11}": "nested repeats multiply",
    "a**": "a repeat of a repeat",
    "a++": "possessive",
    "a*+": "possessive",
    "*a": "nothing to repeat",
    "^*a": "nothing to repeat",
    "(a*)*": "an expression that matches the empty text cannot be repeated",
    "(a?|b)+": "an expression that matches the empty text cannot be repeated",
    "(a|)": "an empty alternative",
    "|a": "an empty alternative",
    "()": "an empty alternative",
    "(a": "is not closed",
    "a)": "unmatched",
    "[a": "[ is not closed",
    "[]a]": "in [...] ] stands only as",
    "[a[b]]": "in [...] [ stands only as",
    "[a&&b]": "in [...] & stands only as",
    "[[:alpha:]]": "in [...] [ stands only as",
    "[a^]": "in [...] ^ stands only as",
    "[b-a]": "wrong way round",
    "[a-b-c]": "in [...] - stands only as",
    r"[\d-z]": "a range begins and ends with a character",
    r"[a-\d]": r"\d is not supported",
    r"[\W]": r"\W is not supported",
    "a$b": "$ stands only at the end",
    "(a$)": "$ stands only at the end",
    "a^": "^ stands here only as",
    "(?i)a": "of the (? forms",
    "(?=a)": "of the (? forms",
    "(?<n>a)": "of the (? forms",
    "(?s).": "of the (? forms",
    r"\b": r"\b is not supported",
    r"\1": r"\1 is not supported",
    r"(a)\1": r"\1 is not supported",
    r"\p{L}": r"\p is not supported",
    r"\x41": r"\x is not supported",
    r"\u0041": r"\u is not supported",
    r"\Qa\E": r"\Q is not supported",
    r"\z": r"\z is not supported",
    r"\A": r"\A is not supported",
    r"\h": r"\h is not supported",
    r"\v": r"\v is not supported",
    r"\R": r"\R is not supported",
    r"\0": r"\0 is not supported",
    r"\é": r"\é is not supported",
    "a\\": "cannot end with",
    "(" * 40 + "a" + ")" * 40: "groups are at most 32 deep",
    "(é{100}a{100}[b-é]{100}){10}" * 40: "too large",
}


@pytest.mark.parametrize(
    "pattern", [p for p in ACCEPTED.split() if p and p != "a]b" and not p.endswith("a]b")]
)
def test_accepted(pattern: str) -> None:
    rlike(pattern)


@pytest.mark.parametrize(("pattern", "why"), REFUSED.items())
def test_refused(pattern: str, why: str) -> None:
    with pytest.raises(ValueError) as raised:
        rlike(pattern)
    assert why in str(raised.value)


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("a$", "a\n", True),
        ("a$", "a\r\n", True),
        ("a$", "a\u2028", True),
        ("a$", "a\n\n", False),
        ("a$", "a\x0b", False),
        # Java's $ does not split \\r\\n.
        (r"\r$", "a\r\n", False),
        (r"x\W$", "x\r\n", False),
        (r"\W\W$", "\r\n", True),
        ("a.b", "a\u0085b", False),
        ("a.b", "a\x0bb", True),
        (r"\s", "\x0b", True),
        (r"\s", "\u00a0", False),
        (r"\d", "٣", False),
        (r"\w", "é", False),
        ("^.$", "\U0001f600", True),
        ("", "", True),
        ("a$|b", "b\n\nx", True),
        ("a|b$", "xb\n", True),
    ],
)
def test_as_java_has_it(pattern: str, text: str, found: bool) -> None:
    assert rlike(pattern)(text) is found


@pytest.mark.parametrize("pattern", ["(a+)+$", "^(a|a)+$", "(a+)(a+)(a+)(a+)(a+)b", "(.+)+x$"])
def test_pathological_patterns_cost_linear_time(pattern: str) -> None:
    """A backtracking engine needs 2^n steps here.

    The fastest of three runs counts, so a busy machine does not matter.
    """
    matches = rlike(pattern)

    def seconds(length: int) -> float:
        text = "a" * length + "!"
        took = []
        for _ in range(3):
            start = time.perf_counter()
            assert not matches(text)
            took.append(time.perf_counter() - start)
        return min(took)

    seconds(100)
    assert seconds(200_000) < 40 * seconds(20_000) + 0.05
    assert seconds(200_000) < 1.0


@pytest.mark.parametrize(
    ("pattern", "prefix"),
    [
        ("abc%", ("abc", True)),
        ("a\\%%", ("a%", True)),
        ("ab_%", ("ab", False)),
        ("%a", ("", False)),
        ("_%", ("", False)),
    ],
)
def test_like_prefix(pattern: str, prefix: tuple[str, bool]) -> None:
    assert like_prefix(pattern) == prefix


SCHEMA = Schema.parse("s STRING")


def like(pattern: str, text: str) -> bool:
    return compile_row(like_node(0, pattern, "\\", False, False), SCHEMA)((text,))


def reference(pattern: str, text: str) -> bool:
    """LIKE in the plainest way: the places of the text at which the pattern so far may end."""
    ends = {0}
    place = 0
    while place < len(pattern):
        character = pattern[place]
        if character == "%":
            ends = set(range(min(ends, default=len(text) + 1), len(text) + 1))
        else:
            wild = character == "_"
            if character == "\\":
                place += 1
                character = pattern[place]
            ends = {end + 1 for end in ends if end < len(text) and (wild or text[end] == character)}
        place += 1
    return len(text) in ends


PIECES = st.sampled_from(
    ["a", "b", "ab", "%", "%", "_", "\\%", "\\_", "\\\\", "\n", "é", "\U0001f600", "."]
)


@settings(deadline=None, max_examples=1500)
@given(
    st.lists(PIECES, max_size=10).map("".join),
    st.text("ab%_\\\n\U0001f600é.", max_size=12) | st.text("ab", max_size=12),
)
@example("a%a", "a")
@example("%a_%a", "xaa")
@example("%a_b%b_", "aabab")
@example("_%a__%b", "aaab")
def test_like_follows_its_definition(pattern: str, text: str) -> None:
    assert like(pattern, text) is reference(pattern, text)


@settings(deadline=None, max_examples=500)
@given(st.lists(PIECES, max_size=8), st.data())
def test_like_finds_texts_that_were_made_from_it(pieces: list[str], data: st.DataObject) -> None:
    texts = {"%": st.text("ab", max_size=3), "_": st.sampled_from("ab\U0001f600")}
    text = "".join(
        data.draw(texts[p]) if p in texts else p[-1] if p[0] == "\\" else p for p in pieces
    )
    assert like("".join(pieces), text)


MILLION = 1_000_000


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("%a" * 500 + "%b", "a" * MILLION),
        ("%a" * 4000 + "%b", "a" * MILLION),
        ("%" + "a" * 8000 + "b%c", "a" * MILLION),
        ("%" + "a" * 4000 + "b" + "a" * 4000 + "%c", "a" * 30_000),
        ("%ab%" + "a" * 90 + "b%c", "a" * MILLION),
        ("%_a" * 2700 + "%b", "a" * MILLION),
        ("%a_a" * 2000 + "%b", "a" * MILLION),
        ("%" + "a_" * (LIKE_SPAN_MAX // 2 - 1) + "b%", "a" * MILLION),
        ("%" + "_a" * (LIKE_SPAN_MAX // 2 - 1) + "_b%", "é" + "a" * MILLION),
        ("".join(f"%{i:x}_" for i in range(1500)) + "%", "0123456789abcdef" * 60_000),
        ("".join(f"%{i:02x}_z" for i in range(1300)) + "%", "a" * MILLION),
        ("_" * 8000 + "%b", "a" * MILLION),
        ("a_" * 4000, "a" * MILLION),
        ("%" + "a_" * 4000, "a" * MILLION),
    ],
    ids=lambda value: value[:12],
)
def test_no_like_pattern_costs_much(pattern: str, text: str) -> None:
    start = time.process_time()
    like(pattern, text)
    # It takes some tenths at most on a quiet machine.
    assert time.process_time() - start < 2


def test_like_limit() -> None:
    longest = "a_" * (LIKE_SPAN_MAX // 2 - 1) + "bc"
    assert len(longest) == LIKE_SPAN_MAX
    assert like(f"%{longest}__%", "x" + longest + "yz")
    # At either end no search is needed.
    assert like(f"{longest}_c%{longest}_c", f"{longest}_c" * 2)
    with pytest.raises(ValueError, match="at most 64 characters"):
        like(f"%{longest}_c%", "")
