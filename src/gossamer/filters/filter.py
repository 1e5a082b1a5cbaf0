"""Filter: a text, its meaning, and its place in the dictionary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Self

from gossamer.filters import cover, order, place, tree
from gossamer.filters.box import Box, boxes
from gossamer.filters.match import MatchRow, Passing, compile_row, compile_rows
from gossamer.filters.model import DEPTH_MAX, TEXT_MAX, Event, FilterError
from gossamer.filters.parse import parse
from gossamer.filters.place import PLACEMENTS_MAX, Class, Placement
from gossamer.filters.schema import Schema
from gossamer.filters.text import write
from gossamer.filters.tree import Node, Predicate


class Filter:
    """The text of a WHERE clause over a schema.

    A filter does not change. Two filters are equal when their canonical texts and schemas are
    equal. Filters sort in dictionary order, as section 2 of the seed has it: by `key`, in which the
    key of the first conjunction comes first.
    """

    schema: Schema
    tree: Node

    def __init__(self, node: Node, schema: Schema) -> None:
        self.tree = node
        self.schema = schema

    @classmethod
    def parse(cls, text: str, schema: Schema) -> Self:
        """Reads the filter that Spark would apply in `df.where(text)`.

        An empty text passes everything. A FilterError says why a text is refused.
        """
        found = cls(parse(text, schema), schema)
        # A filter travels and is pickled as its canonical text, so that text must be accepted too.
        depth = tree.depth(found.tree)
        if depth > DEPTH_MAX:
            message = f"the canonical text has parentheses {depth} deep; the maximum is {DEPTH_MAX}"
            raise FilterError(message, text, 0, len(text))
        if len(found.text) > TEXT_MAX:
            count = f"{len(found.text):,}"
            message = f"the canonical text has {count} characters; the maximum is {TEXT_MAX:,}"
            raise FilterError(message, text, 0, len(text))
        return found

    def matches(self, event: Event | Mapping[str, Any]) -> bool:
        """Whether the event passes. An EventError says that it does not fit the schema."""
        return self.matches_row(self.schema.row(event))

    @cached_property
    def matches_row(self) -> MatchRow:
        """The function that says whether a row of the schema passes.

        It is compiled at its first use. The attribute is the function itself, which saves a
        call.
        """
        return compile_row(self.tree, self.schema)

    @cached_property
    def passing(self) -> Passing:
        """The function that gives the places of the rows that pass.

        It is compiled at its first use.
        """
        return compile_rows(self.tree, self.schema, self.matches_row)

    @cached_property
    def text(self) -> str:
        """The canonical text, which parses back to an equal filter."""
        return write(self.tree, self.schema)

    @cached_property
    def weakened(self) -> Filter:
        """The filter without RLIKE, as other nodes evaluate it for the subscriber.

        RLIKE is evaluated by the subscribing node only.
        """
        node = tree.without_patterns(self.tree, self.schema.ranks)
        return self if node is self.tree or node == self.tree else Filter(node, self.schema)

    @cached_property
    def attributes(self) -> tuple[str, ...]:
        """The names of the attributes that the filter looks at, in declared order."""
        return tuple(self.schema.names[i] for i in sorted(tree.attributes(self.tree)))

    @cached_property
    def conjunctions(self) -> tuple[tuple[Predicate, ...], ...]:
        """The filter with every OR and IN multiplied out, sorted by key.

        Each conjunction is sorted in the order of the schema.
        """
        return tuple(conjunction for _, conjunction in self._sorted)

    @cached_property
    def keys(self) -> tuple[bytes, ...]:
        """A key for each conjunction, in the order of `conjunctions`.

        The key of a conjunction is made of the keys of its predicates, one after the other.
        """
        return tuple(key for key, _ in self._sorted)

    @cached_property
    def key(self) -> bytes:
        """The keys as one key, which compares as the tuple of them does."""
        return order.encode_all(self.keys)

    @cached_property
    def _sorted(self) -> list[tuple[bytes, tuple[Predicate, ...]]]:
        ranks = self.schema.ranks
        found: dict[bytes, tuple[Predicate, ...]] = {}
        for conjunction in tree.conjunctions(self.tree):
            parts = {tree.predicate_key(predicate, ranks): predicate for predicate in conjunction}
            ordered = sorted(parts)
            found[b"".join(ordered)] = tuple(parts[key] for key in ordered)
        return sorted(found.items(), key=lambda item: item[0])

    @cached_property
    def boxes(self) -> list[Box]:
        """The filter as sets of values, which covering, placements and the index work with."""
        return boxes(self.tree, self.schema)

    def covers(self, other: Filter) -> bool:
        """Whether every event that passes `other` passes this filter.

        True is always right. False may mean that there was no proof. Without OR the answer is
        exact, apart from RLIKE and comparisons of two attributes (see cover.py).
        """
        if other.schema != self.schema:
            raise ValueError("two filters are compared over one schema")
        return cover.covers(self.boxes, other.boxes, self.schema)

    def placements(
        self, allowed: Iterable[Class] | None = None, most: int = PLACEMENTS_MAX
    ) -> tuple[Placement, ...]:
        """The places in the dictionary where the filter is entered, `most` of them at most.

        They lie in the classes `allowed`, or for None in the classes of the filter itself. An
        event passes the filter if and only if for one placement `takes(placement, row)` is true and
        the residual passes.
        """
        return place.placements(self.tree, self.boxes, self.schema, allowed, most)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Filter) and (self.tree, self.schema) == (other.tree, other.schema)

    def __lt__(self, other: Filter) -> bool:
        return (self.key, self.text) < (other.key, other.text)

    def __hash__(self) -> int:
        return hash((self.text, self.schema))

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Filter.parse({self.text!r}, {self.schema!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).parse, (self.text, self.schema)


def merge(filters: Iterable[Filter]) -> tuple[Filter, ...]:
    """Fewer filters, without OR, that together pass exactly the same events. They are sorted."""
    several = list(filters)
    if not several:
        return ()
    schema = several[0].schema
    if any(each.schema != schema for each in several):
        raise ValueError("filters are merged over one schema")
    return tuple(
        sorted(
            Filter(node, schema) for node in cover.merge((each.tree for each in several), schema)
        )
    )
