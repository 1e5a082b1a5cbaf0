"""Sets of strings that contain patterns, and whether one set holds another.

A LIKE pattern, an end of a range and a single string are each a small automaton over the
characters of a text. Read side by side they give one deterministic automaton. Its states are walked
until a state is found where a text may end that the first set accepts and the second does not.
Characters that no pattern names behave alike between two named ones, so one character of each such
stretch stands for all of it. RLIKE is not read: where it makes a set smaller it is ignored, and
where it would have to be implied, the same RLIKE must be there. Both keep the answer sound.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gossamer.filters.box import Domain
from gossamer.filters.pattern import like_tokens
from gossamer.filters.tree import Like, Rlike

# The most steps of the walk. If a walk needs more, the answer is False.
STEPS_MAX: Final = 20_000

# The text has left the other text, on this side of it.
_BELOW, _ABOVE = -1, -2


def holds(outer: Domain | None, inner: Domain) -> bool:
    """Whether every string of `inner` is in `outer`; None as `outer` is the empty set.

    The answer is False also when the walk is too long.
    """
    if outer is not None and not {p for p in outer.patterns if isinstance(p, Rlike)} <= set(
        inner.patterns
    ):
        return False
    takes = _Set(inner)
    wants = None if outer is None else _Set(outer)
    alphabet = _alphabet(takes.texts + ([] if wants is None else wants.texts))
    start = takes.start, () if wants is None else wants.start
    seen, waiting, steps = {start}, [start], 0
    while waiting:
        ours, theirs = waiting.pop()
        if takes.accepts(ours) and (wants is None or not wants.accepts(theirs)):
            return False
        steps += len(alphabet)
        if steps > STEPS_MAX:
            return False
        for character in alphabet:
            following = takes.step(ours, character)
            if takes.dead(following):
                continue
            state = following, () if wants is None else wants.step(theirs, character)
            if state not in seen:
                seen.add(state)
                waiting.append(state)
    return True


def _alphabet(texts: list[str]) -> list[str]:
    """Every character of the texts, and one from each stretch between two of them."""
    named = sorted({ord(c) for text in texts for c in text})
    found = set(named)
    for code in (-1, *named):
        following = 0xE000 if code == 0xD7FF else code + 1
        if following <= 0x10FFFF:
            found.add(following)
    return [chr(code) for code in sorted(found)]


class _Set:
    """A domain of strings as one automaton.

    A state is a tuple with a number for each part.
    """

    def __init__(self, domain: Domain) -> None:
        value = domain.line.value
        self.parts: list[_Pattern | _Text] = [
            _Pattern(p) for p in domain.patterns if isinstance(p, Like)
        ]
        lower, upper = domain.bounded
        if lower:
            self.parts.append(_Text(value(domain.low), (0, 1)))
        if upper:
            self.parts.append(_Text(value(domain.high), (-1,)))
        self.parts += [_Text(value(code), (-1, 1)) for code in sorted(domain.holes)]
        self.values = (
            None if domain.values is None else [_Text(value(code), (0,)) for code in domain.values]
        )
        self.texts = [part.text for part in self.parts + (self.values or [])]
        self.start = tuple(part.start for part in self._all())

    def _all(self) -> Iterator[_Pattern | _Text]:
        yield from self.parts
        yield from self.values or ()

    def step(self, state: tuple[int, ...], character: str) -> tuple[int, ...]:
        return tuple(part.step(s, character) for part, s in zip(self._all(), state, strict=True))

    def accepts(self, state: tuple[int, ...]) -> bool:
        cut = len(self.parts)
        if not all(part.accepts(s) for part, s in zip(self.parts, state, strict=False)):
            return False
        return self.values is None or any(
            part.accepts(s) for part, s in zip(self.values, state[cut:], strict=True)
        )

    def dead(self, state: tuple[int, ...]) -> bool:
        """Whether neither this text nor any longer one can be accepted."""
        return any(part.dead(s) for part, s in zip(self.parts, state, strict=False))


class _Pattern:
    """The automaton of [NOT] LIKE.

    Bit i of a state says that the text so far can stand for the first i tokens.
    """

    start: int

    def __init__(self, like: Like) -> None:
        tokens = like_tokens(like.pattern)
        self.negated = like.negated
        self.text = "".join(t for t in tokens if isinstance(t, str))
        self.many = sum(1 << i for i, t in enumerate(tokens) if t is None)
        self.ones = sum(1 << i for i, t in enumerate(tokens) if t is ...)
        self.end = 1 << len(tokens)
        self.exact: dict[str, int] = {}
        for i, token in enumerate(tokens):
            if isinstance(token, str):
                self.exact[token] = self.exact.get(token, 0) | 1 << i
        self.start = self._free(1)

    def _free(self, state: int) -> int:
        # A % may stand for nothing. Two of them never follow each other.
        return state | (state & self.many) << 1

    def step(self, state: int, character: str) -> int:
        one = self.ones | self.exact.get(character, 0)
        return self._free((state & one) << 1 | state & self.many)

    def accepts(self, state: int) -> bool:
        return bool(state & self.end) is not self.negated

    def dead(self, state: int) -> bool:
        return not state and not self.negated


class _Text:
    """How the text compares with another one.

    A state is the number of characters that they share, or the side on which the other one left.
    """

    start = 0

    def __init__(self, text: str, wanted: tuple[int, ...]) -> None:
        self.text = text
        # A tuple of -1, 0 and 1.
        self.wanted = wanted

    def step(self, state: int, character: str) -> int:
        if state < 0:
            return state
        if state == len(self.text) or character > self.text[state]:
            return _ABOVE
        return state + 1 if character == self.text[state] else _BELOW

    def accepts(self, state: int) -> bool:
        if state >= 0:
            return (0 if state == len(self.text) else -1) in self.wanted
        return (-1 if state == _BELOW else 1) in self.wanted

    def dead(self, state: int) -> bool:
        return state < 0 and not self.accepts(state)
