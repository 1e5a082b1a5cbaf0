"""What filters mean to relays: covering, passing, and what travels of them."""

from __future__ import annotations

import msgspec
import pytest

from gossamer.filters import Filter, Schema
from gossamer.overlay.batch import Batch
from gossamer.overlay.tree.content import SchemaContent

SCHEMA = Schema.parse("city STRING, temp INT")


def content() -> SchemaContent:
    found = SchemaContent()
    found.learn("weather", SCHEMA)
    return found


def batch(*rows: tuple[str | None, int | None], topic: str = "weather") -> Batch:
    return Batch(topic, 1, 1, 0, len(rows), 0, 0, 0, msgspec.msgpack.encode(rows))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("temp > 30", "temp > 30"),
        ("city RLIKE '^B'", "city IS NOT NULL"),
        ("NOT city RLIKE '^B'", "city IS NOT NULL"),
        ("temp > 30 AND city RLIKE '^B'", "city IS NOT NULL AND temp > 30"),
        ("temp > 30 OR city RLIKE '^B'", "city IS NOT NULL OR temp > 30"),
        ("", ""),
        ("TRUE", ""),
    ],
)
def test_regular_expressions_stay_with_the_subscriber(text: str, told: str) -> None:
    weak = content().weaken("weather", text)
    assert Filter.parse(weak, SCHEMA) == Filter.parse(told, SCHEMA)
    assert "RLIKE" not in weak


def test_what_is_told_covers_what_is_meant() -> None:
    relay = content()
    for text in (
        "city RLIKE 'n$'",
        "temp = 3 AND (city RLIKE 'x' OR city LIKE 'B%')",
        "city IN ('Bern', 'Gap')",
    ):
        matches, weak = Filter.parse(text, SCHEMA).matches_row, relay.weaken("weather", text)
        for city in (None, "Bern", "Gap", "xx"):
            for temp in (None, 3, 4):
                if matches((city, temp)):
                    assert relay.passes(batch((city, temp)), weak)
                    assert relay.passes(batch((city, temp)), text)


def test_a_batch_passes_if_one_of_its_events_does() -> None:
    relay = content()
    assert relay.passes(batch(("Bern", 1), ("Bern", 40)), "temp > 30")
    assert not relay.passes(batch(("Bern", 1), ("Bern", 4)), "temp > 30")


def test_what_cannot_be_judged_passes_and_covers_only_itself() -> None:
    relay = content()
    assert relay.passes(batch(("Bern", 1), topic="unknown"), "temp > 30")
    assert relay.passes(batch(("Bern", 1)), "no such thing =")
    assert relay.passes(Batch("weather", 1, 1, 0, 1, 0, 0, 0, b"\xc1"), "temp > 30")
    assert relay.weaken("unknown", "city RLIKE 'x'") == "city RLIKE 'x'"
    assert relay.covers("unknown", "a", "a")
    assert not relay.covers("unknown", "a", "b")
    assert relay.covers("weather", "temp > 10", "temp > 30")
    assert not relay.covers("weather", "temp > 30", "temp > 10")


def test_a_schema_that_comes_later_is_used_from_then_on() -> None:
    relay = SchemaContent()
    assert relay.passes(batch(("Bern", 1)), "temp > 30")
    relay.learn("weather", SCHEMA)
    assert not relay.passes(batch(("Bern", 1)), "temp > 30")
