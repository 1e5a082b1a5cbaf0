"""LIKE and RLIKE by themselves: the subset, and that no pattern costs more than linear time."""

from __future__ import annotations

import time

import pytest

from gossamer.filters.pattern import rlike
from gossamer.filters.tree import like_prefix

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
    "(a*)*": "what may be empty cannot be repeated",
    "(a?|b)+": "what may be empty cannot be repeated",
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


@pytest.mark.parametrize("pattern", [p for p in ACCEPTED.split() if p and p != "a]b" and not p.endswith("a]b")])
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
        (r"\r$", "a\r\n", False),  # Java's $ does not split \r\n
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
    """A backtracking engine needs 2^n steps here; the fastest of three keeps a busy machine out of it."""
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
    [("abc%", ("abc", True)), ("a\\%%", ("a%", True)), ("ab_%", ("ab", False)), ("%a", ("", False)), ("_%", ("", False))],
)
def test_like_prefix(pattern: str, prefix: tuple[str, bool]) -> None:
    assert like_prefix(pattern) == prefix
