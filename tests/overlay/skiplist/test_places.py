"""Filters to keys: classes that a topic can bear, and at most 256 entries a node, with nothing
lost.
"""

from __future__ import annotations

from gossamer.filters import Filter, Schema
from gossamer.filters.place import ALL, Class
from gossamer.overlay.skiplist.places import CLASSES_MAX, Classes, Places, coarser

SCHEMA = Schema.parse("a INT, b INT, c INT, d INT, e INT, s STRING")


def parse(text: str) -> Filter:
    return Filter.parse(text, SCHEMA)


def found(places: Places, row: tuple[object, ...]) -> bool:
    """Whether the event comes to one of the node's entries."""
    return any(
        low <= key < high for _, low, high in places.classes.intervals(row) for key in places.keys
    )


def test_a_nodes_identical_filters_share_one_entry() -> None:
    places = Places(Classes())
    places.add(1, parse("a = 1"))
    places.add(2, parse("a = 1"))
    assert len(places.keys) == 1
    places.remove(1)
    assert len(places.keys) == 1
    places.remove(2)
    assert not places.keys


def test_in_and_or_are_several_places() -> None:
    places = Places(Classes())
    places.add(1, parse("a IN (1, 2, 3) OR b = 7"))
    assert len(places.keys) == 4
    assert places.matching((1, 7, None, None, None, None)) == [1], (
        "matched once, whichever entry it came to"
    )


def test_at_most_256_entries_and_nothing_is_lost() -> None:
    places = Places(Classes())
    for number in range(1_000):
        places.add(number, parse(f"a = {number % 7} AND b = {number}"))
        assert len(places.keys) <= 256
    for number in range(0, 1_000, 13):
        row = (number % 7, number, None, None, None, None)
        assert found(places, row)
        assert places.matching(row) == [number]
    assert len(places.keys) == 7, "places on (a, b) have given way to places on a, which cover them"


def test_a_coarser_class_covers() -> None:
    cls = Class((0, 1), "between", 2, 12)
    while cls != ALL:
        wider = coarser(cls)
        assert wider != cls
        cls = wider


def test_at_most_16_classes_and_all_takes_the_rest() -> None:
    classes = Classes()
    places = Places(classes)
    names = "abcde"
    for mask in range(1, 32):
        terms = [f"{name} = {mask}" for bit, name in enumerate(names) if mask >> bit & 1]
        places.add(mask, parse(" AND ".join(terms)))
        assert len(classes) <= CLASSES_MAX
    for mask in range(1, 32):
        row = (*(mask if mask >> bit & 1 else 0 for bit in range(5)), None)
        assert found(places, row)


def test_kinds_and_cells_find_every_range() -> None:
    places = Places(Classes())
    for number, text in enumerate(
        [
            "a >= 10",
            "a <= -5",
            "a BETWEEN 3 AND 9",
            "b = 1 AND c BETWEEN 0 AND 1000",
            "s LIKE 'ab%'",
        ]
    ):
        places.add(number, parse(text))
    for a in range(-10, 20):
        row = (a, 1, a * 100, None, None, "abc" if a % 2 else "b")
        assert found(places, row) or not places.matching(row)
