"""Filters, as the tree needs them: whether one covers another, and whether a batch passes one.

Relays look at content, so they decode rows, once for each batch and topic. A filter that cannot be
judged, because the schema of its topic is not known here or its text is no filter, passes
everything and covers nothing but itself. Then too much travels, and nothing is lost.

Relays do not check regular expressions. The subscriber does, and the filter travels without them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Protocol

import msgspec

from gossamer.filters import Filter, FilterError, Schema
from gossamer.filters.packed import Packed
from gossamer.filters.tree import TRUE
from gossamer.overlay.batch import Batch

CACHED = 65_536


class Content(Protocol):
    def weaken(self, topic: str, filter: str) -> str:
        """A filter that covers this one and costs relays little. It is told to others."""

    def covers(self, topic: str, outer: str, inner: str) -> bool:
        """Whether every event that passes the inner filter passes the outer one.

        It is False if that is not known.
        """

    def passes(self, batch: Batch, filter: str) -> bool:
        """Whether some event of the batch passes; True if that is not known."""


class SchemaContent:
    """Filters over the schemas that are known here."""

    def __init__(self) -> None:
        self._schemas: dict[str, Schema] = {}
        self._decoders: dict[str, Packed] = {}
        self._filter = lru_cache(maxsize=CACHED)(self._parse)
        self._mask = lru_cache(maxsize=CACHED)(self._compile)
        # The last batch, and its rows or its record batch.
        self._rows: tuple[object, Any] = (
            None,
            None,
        )
        self.covers = lru_cache(maxsize=CACHED)(self._covers)

    def learn(self, topic: str, schema: Schema) -> None:
        self._schemas[topic], self._decoders[topic] = schema, Packed(schema)
        # They may be of another schema.
        self._rows = (None, None)
        self._filter.cache_clear()
        self._mask.cache_clear()
        self.covers.cache_clear()

    def _parse(self, topic: str, text: str) -> Filter | None:
        schema = self._schemas.get(topic)
        try:
            found = Filter.parse(text, schema) if schema is not None else None
        except FilterError:
            return None
        return found and found.weakened

    def weaken(self, topic: str, filter: str) -> str:
        found = self._filter(topic, filter)
        if found is None:
            return filter
        return "" if found.tree == TRUE else found.text

    def _covers(self, topic: str, outer: str, inner: str) -> bool:
        if not outer or outer == inner:
            return True
        one, other = self._filter(topic, outer), self._filter(topic, inner)
        return one is not None and other is not None and one.covers(other)

    def passes(self, batch: Batch, filter: str) -> bool:
        if not filter:
            return True
        found = self._filter(batch.topic, filter)
        rows = self._decode(batch) if found is not None else None
        if found is None or rows is None:
            return True
        if batch.is_columns:
            passed = self._mask(batch.topic, filter)(rows)
            return passed is None or bool(passed.any())
        return any(map(found.matches_row, rows))

    def _compile(self, topic: str, filter: str) -> Any:
        # It needs NumPy, which pyarrow brings.
        from gossamer.filters.mask import (
            compile_mask,
        )

        found = self._filter(topic, filter)
        assert found is not None
        return compile_mask(found, self._decoders[topic])

    def _decode(self, batch: Batch) -> Any:
        """The rows or columns, or None if they are not of the schema.

        The last ones are remembered, because each link asks for them.
        """
        if self._rows[0] is not batch.rows:
            try:
                packed = self._decoders[batch.topic]
                is_columns = batch.is_columns
                read = (
                    packed.columns(batch.rows, batch.count)
                    if is_columns
                    else packed.decode(batch.rows)
                )
                self._rows = (batch.rows, read)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                self._rows = (batch.rows, None)
        return self._rows[1]
