"""Covering and merging: a filter need not be sent if other filters say the same.

One filter **covers** another when every event that passes the other filter passes it too. For
conjunctions (IN counts as one predicate) this is decided attribute by attribute. The answer is
exact for every predicate on one attribute except RLIKE. RLIKE and comparisons of two attributes
count as implied by the same predicate, by a stronger operator, or by known values. For filters with
OR, each box of the other filter must lie in one box of ours. This is sound and not complete,
because a complete answer would have to solve satisfiability.

**Merging** makes fewer filters that together pass exactly the same events. Covered filters go.
Boxes that differ in one attribute become one box when the union of the values is a set of values or
a range. Merging never adds values to save room, because events that travel further for them would
be noise.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any, Final

from gossamer.filters import language, tree
from gossamer.filters.box import (
    LINES,
    Box,
    Code,
    Domain,
    boxes,
    everything,
    finite,
    interval,
    predicates,
)
from gossamer.filters.match import compile_row
from gossamer.filters.model import CONJUNCTIONS_MAX, TEXT_MAX
from gossamer.filters.schema import Schema
from gossamer.filters.text import write
from gossamer.filters.tree import Like, Node, Null, Pair, Predicate

# The most pairs of boxes that are compared. Filters with more count as not covered.
PAIRS_MAX: Final = 65_536
# The most combinations of values that are tried on a comparison of two attributes.
_TRIED_MAX: Final = 64
_STRONGER = {"<=": ("<", "="), "<>": ("<",), "<": (), "=": ()}


def covers(ours: list[Box], theirs: list[Box], schema: Schema) -> bool:
    """Whether every event in one of `theirs` is seen to be in one of `ours`."""
    if len(ours) * len(theirs) > PAIRS_MAX:
        return False
    return all(
        any(box_covers(our, their, schema) for our in ours) or _empty(their) for their in theirs
    )


def box_covers(ours: Box, theirs: Box, schema: Schema) -> bool:
    for attribute, outer in ours.domains.items():
        inner = theirs.domains.get(attribute)
        if inner is None:
            inner = everything(schema.types[attribute], not schema.attributes[attribute].required)
        if not _holds(outer, inner):
            return False
    return all(_implied(pair, theirs, schema) for pair in ours.pairs)


def _empty(box: Box) -> bool:
    """Whether patterns on one attribute contradict each other.

    Every other contradiction is noticed when a box is made.
    """
    return any(_automata(d) and language.holds(None, d) for d in box.domains.values())


def _automata(domain: Domain) -> bool:
    return any(isinstance(pattern, Like) for pattern in domain.patterns)


def _holds(outer: Domain, inner: Domain) -> bool:
    """Whether every value of `inner` is in `outer`."""
    if inner.null and not outer.null:
        return False
    if inner.values is not None:
        return all(map(outer.has, inner.values))
    if _automata(outer) or _automata(inner):
        return language.holds(outer, inner)
    few = _few(inner, len(outer.values or ()) + len(outer.holes) + len(inner.holes))
    if few is not None and all(map(outer.has, few)):
        return True
    if outer.values is not None or not (outer.low <= inner.low and inner.high <= outer.high):
        return False
    missing = (hole for hole in outer.holes if inner.low <= hole < inner.high)
    return inner.holes.issuperset(missing) and set(outer.patterns) <= set(inner.patterns)


def _few(domain: Domain, most: int) -> list[Code] | None:
    """The codes of an interval that has at most `most` codes and its holes; otherwise None."""
    found: list[Code] = []
    code = domain.low
    for _ in range(most + 1):
        if code not in domain.holes:
            found.append(code)
        code = domain.line.after(code)
        if code == domain.high:
            return found
    return None


def _implied(pair: Pair, box: Box, schema: Schema) -> bool:
    for known in box.pairs:
        if (known.left, known.right) == (pair.left, pair.right) and known.op in (
            pair.op,
            *_STRONGER[pair.op],
        ):
            return True
        swapped = (known.right, known.left) == (pair.left, pair.right)
        if swapped and (
            known.op == pair.op in ("=", "<>") or (known.op, pair.op) in (("=", "<="), ("<", "<>"))
        ):
            return True
    left, right = box.domains.get(pair.left), box.domains.get(pair.right)
    if left is None or right is None or left.null or right.null:
        return False
    if left.kind is right.kind and (
        left.high <= right.low or (pair.op == "<>" and right.high <= left.low)
    ):
        return pair.op != "="
    if (
        left.values is None
        or right.values is None
        or len(left.values) * len(right.values) > _TRIED_MAX
    ):
        return False
    matches = compile_row(pair, schema)
    return all(
        matches(_row(schema, pair, *choice)) for choice in product(left.values, right.values)
    )


def _row(schema: Schema, pair: Pair, left: Code, right: Code) -> tuple[Any, ...]:
    row: list[Any] = [None] * len(schema.names)
    row[pair.left] = LINES[schema.types[pair.left]].value(left)
    row[pair.right] = LINES[schema.types[pair.right]].value(right)
    return tuple(row)


# Merging.


def merge(nodes: Iterable[Node], schema: Schema) -> list[Node]:
    """Nodes without OR that together pass exactly the events that the given nodes pass."""
    merger = _Merger(schema)
    for node in nodes:
        for box in boxes(node, schema):
            merger.add(box)
    return merger.merged()


# A box as a key of a dictionary: its domains by attribute, and its pairs.
Part = tuple[tuple[tuple[int, Domain], ...], frozenset[Pair]]


class _Merger:
    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.parts: dict[Part, None] = {}
        # The predicates of a domain as the user's filter had them.
        self.written: dict[tuple[int, Domain], tuple[Predicate, ...]] = {}

    def add(self, box: Box) -> None:
        for attribute, domain in box.domains.items():
            self.written.setdefault((attribute, domain), box.predicates[attribute])
        self.parts[
            tuple(sorted(box.domains.items(), key=lambda item: item[0])), frozenset(box.pairs)
        ] = None

    def merged(self) -> list[Node]:
        changed = True
        while changed:
            self._drop_covered()
            changed = any(
                self._join(a) for a in sorted({a for domains, _ in self.parts for a, _ in domains})
            )
        return [node for part in self.parts for node in self._nodes(part)]

    def _drop_covered(self) -> None:
        if len(self.parts) ** 2 > PAIRS_MAX:
            # There may be more parts than needed, but they are right.
            return
        kept = {part: Box(dict(part[0]), {}, tuple(part[1])) for part in self.parts}
        for part, box in list(kept.items()):
            if _empty(box) or any(
                box_covers(other, box, self.schema) for other in kept.values() if other is not box
            ):
                # A covered part goes at once: if two parts cover each other, one of them must stay.
                del kept[part]
        self.parts = dict.fromkeys(kept)

    def _join(self, attribute: int) -> bool:
        """Joins the parts that differ in this attribute only, and says whether there were any."""
        groups: dict[Part, list[Domain]] = {}
        for domains, pairs in self.parts:
            rest = tuple(item for item in domains if item[0] != attribute)
            own = [domain for a, domain in domains if a == attribute]
            groups.setdefault((rest, pairs), []).extend(own or [self._everything(attribute)])
        joined: dict[Part, None] = {}
        for (rest, pairs), several in groups.items():
            for domain in _union(several) if len(several) > 1 else several:
                whole = domain == self._everything(attribute) and not any(
                    attribute in (p.left, p.right) for p in pairs
                )
                parts = rest if whole else (*rest, (attribute, domain))
                joined[tuple(sorted(parts, key=lambda item: item[0])), pairs] = None
        changed = len(joined) < len(self.parts)
        if changed:
            self.parts = joined
        return changed

    def _everything(self, attribute: int) -> Domain:
        return everything(
            self.schema.types[attribute], not self.schema.attributes[attribute].required
        )

    def _nodes(self, part: Part) -> list[Node]:
        """The part as nodes.

        There are several if a list of values is too long for one filter.
        """
        domains, pairs = part
        terms: list[Node] = list(pairs)
        for attribute, domain in domains:
            of_pair = any(attribute in (p.left, p.right) for p in pairs)
            written = self.written.get((attribute, domain)) or predicates(attribute, domain)
            terms += [p for p in written if not (of_pair and p == Null(attribute, True))]
        node = tree.all_of(terms, self.schema.ranks)
        if tree.count(node) <= CONJUNCTIONS_MAX and len(write(node, self.schema)) <= TEXT_MAX:
            return [node]
        lists = [
            i
            for i, (_, domain) in enumerate(domains)
            if domain.values is not None and len(domain.values) > 1
        ]
        longest = max(lists, key=lambda i: len(domains[i][1].values or ()))
        attribute, domain = domains[longest]
        assert domain.values is not None
        half = len(domain.values) // 2
        found: list[Node] = []
        for values in (domain.values[:half], domain.values[half:]):
            some = finite(domain.kind, values)
            assert some is not None
            found += self._nodes(
                ((*domains[:longest], (attribute, some), *domains[longest + 1 :]), pairs)
            )
        return found


def _union(domains: list[Domain]) -> list[Domain]:
    """Fewer domains with the same union.

    They are at most one list of values, and ranges that do not touch.
    """
    kind = domains[0].kind
    if any(d.null and d.values is None for d in domains):
        return [everything(kind, True)]
    apart = list(dict.fromkeys(d for d in domains if d.patterns))
    null = any(d.null for d in domains)
    points = {code for d in domains for code in d.values or ()}
    ranges = [d for d in domains if d.values is None and not d.patterns]
    spans = [(d.low, d.high, True) for d in ranges] + [
        (c, LINES[kind].after(c), False) for c in points
    ]
    found: list[Domain] = []
    loose: list[Code] = []
    for low, high, wide in _stretches(sorted(spans)):
        inside = {h for d in ranges for h in d.holes if low <= h < high and h not in points}
        if not wide:
            loose += [code for code in points if low <= code < high]
        elif (
            made := interval(
                kind, low, high, (h for h in inside if not any(d.has(h) for d in ranges))
            )
        ) is not None:
            found.append(made)
    if null and everything(kind, False) in found:
        return [everything(kind, True)]
    values = finite(kind, loose)
    nothing = finite(kind, (), null=True)
    assert nothing is not None
    return [*([nothing] if null else []), *([values] if values is not None else []), *found, *apart]


def _stretches(spans: list[tuple[Code, Code, bool]]) -> list[tuple[Code, Code, bool]]:
    """Makes one span of spans that overlap or touch.

    The flag of a span is True if a range is part of it.
    """
    found: list[tuple[Code, Code, bool]] = []
    for low, high, wide in spans:
        if found and low <= found[-1][1]:
            first, end, was = found[-1]
            found[-1] = first, max(end, high), was or wide
        else:
            found.append((low, high, wide))
    return found
