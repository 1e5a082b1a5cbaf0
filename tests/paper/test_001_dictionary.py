"""Seed 001, section 2: the dictionary-based model.

Examples 1 and 2, and the two ways to agree on predicate order.
"""

from __future__ import annotations

from gossamer.filters import Filter, Schema

DDL = "class STRING, category STRING, country STRING, type STRING, city STRING, year INT"

# Example 1: "an example set of subscription filters", each a set of (attribute, value, operator).
EXAMPLE_1 = {
    "f1": "class = 'weather' AND country = 'Switzerland' AND city = 'Geneva'",
    "f2": "class = 'auctions' AND category = 'vehicle' AND type = 'cars' AND year = 2003",
    "f3": "class = 'auctions' AND category = 'vehicle' AND type = 'cars' AND year = 2002",
    "f4": "class = 'weather' AND country = 'France' AND city = 'Paris'",
}


def in_order(schema: Schema) -> list[str]:
    filters = {name: Filter.parse(text, schema) for name, text in EXAMPLE_1.items()}
    by_filter = sorted(filters, key=filters.__getitem__)
    by_bytes = sorted(filters, key=lambda name: filters[name].key)
    by_conjunction = sorted(filters, key=lambda name: filters[name].keys[0])
    assert by_filter == by_bytes == by_conjunction
    return by_filter


def test_the_seeds_order() -> None:
    """Reference: section 2, "we have the following order for the filters: f3 < f2 < f4 < f1"."""
    assert in_order(Schema.parse(DDL)) == ["f3", "f2", "f4", "f1"]


def test_predicates_go_by_the_schema_and_not_by_the_text() -> None:
    """Reference: section 2, "peers also need to agree on the predicate order"."""
    schema = Schema.parse(DDL)
    turned = " AND ".join(reversed(EXAMPLE_1["f2"].split(" AND ")))
    assert Filter.parse(turned, schema) == Filter.parse(EXAMPLE_1["f2"], schema)


def test_example_2_individual_predicates() -> None:
    """Reference: Example 2, strings in alphabetical and numbers in numerical order."""
    schema = Schema.parse(DDL)

    def before(a: str, b: str) -> bool:
        return Filter.parse(a, schema).key < Filter.parse(b, schema).key

    assert before("class = 'auctions'", "class = 'weather'")
    assert before("year = 2002", "year = 2003")
    # As numbers, not as digits.
    assert before("year = 3", "year = 2002")
    assert before("year = -1", "year = 0")


def test_order_by_name() -> None:
    """Reference: section 2, "a lexicographic order based on attributes names".

    By name, `category` and `city` lead. f3 < f2 stands, since they differ in the year only. The
    weather filters are led by their city, so that Geneva (f1) comes before Paris (f4). The order
    printed in the seed is the advertised one, with `class` first. A schema whose names sort that
    way gives it by name as well.
    """
    assert in_order(Schema.parse(DDL, "name")) == ["f3", "f2", "f1", "f4"]
    shuffled = Schema.parse(
        "year INT, city STRING, type STRING, country STRING, category STRING, class STRING", "name"
    )
    assert in_order(shuffled) == ["f3", "f2", "f1", "f4"]
    renamed = {
        "class": "a_class",
        "category": "b_category",
        "country": "c_country",
        "type": "d_type",
        "city": "e_city",
    }
    schema = Schema.parse(
        "year INT, e_city STRING, d_type STRING, c_country STRING, b_category STRING, a_class "
        "STRING",
        "name",
    )
    filters = {}
    for name, text in EXAMPLE_1.items():
        for old, new in renamed.items():
            text = text.replace(f"{old} =", f"{new} =")
        filters[name] = Filter.parse(text, schema)
    assert sorted(filters, key=filters.__getitem__) == ["f3", "f2", "f4", "f1"]


def test_file_sharing_requests() -> None:
    """Reference: section 2, "*title*, associated with the operator *contains*".

    "And *size*, associated with the operator *>*".
    """
    schema = Schema.parse("title STRING, size BIGINT")
    wanted = Filter.parse("title LIKE '%skip%' AND size > 1000", schema)
    assert wanted.matches({"title": "a skip list", "size": 1001})
    assert not wanted.matches({"title": "a skip list", "size": 1000})
    assert not wanted.matches({"title": "a list", "size": 1001})
