"""The oracle's ways agree with each other and with a plain loop."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from gossamer.pipeline import (
    bands,
    flat,
    oracle,
    prefixes,
    simple,
    spans,
    templates,
    texts,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "name STRING, type STRING, size BIGINT, ratio DOUBLE, day DATE, event STRING, filter INT"
Event = dict[str, Any]
Predicate = Callable[[Event], bool | None]


def frames(
    spark: SparkSession, events: list[Event], texts: list[str]
) -> tuple[DataFrame, DataFrame]:
    names = [field.split()[0] for field in SCHEMA.split(", ")]
    rows = [
        (number, tuple(event.get(name) for name in names)) for number, event in enumerate(events)
    ]
    fields = SCHEMA.replace(" ", ": ").replace(",: ", ", ")
    published = spark.createDataFrame(rows, f"event BIGINT, values STRUCT<{fields}>")
    return published, spark.createDataFrame(list(enumerate(texts)), "filter BIGINT, text STRING")


def pairs(found: DataFrame) -> list[tuple[int, int]]:
    return sorted((row["event"], row["filter"]) for row in found.collect())


def both(a: bool | None, b: bool | None) -> bool | None:
    return False if a is False or b is False else None if a is None or b is None else True


def known(function: Callable[[Any], bool], name: str) -> Predicate:
    return lambda event: None if event.get(name) is None else function(event[name])


def draw(rng: Random, shape: int) -> tuple[str, Predicate]:
    """A filter's text of any shape, with literals of all kinds, and its meaning in plain Python."""
    name, kind, size = (
        f"lib{rng.randrange(6)}",
        rng.choice(["dsc", "gz", "it''s"]),
        rng.randrange(20),
    )
    plain = kind.replace("''", "'")
    is_name, is_kind = known(lambda v: v == name, "name"), known(lambda v: v == plain, "type")
    between = known(lambda v: size <= v <= size + 3, "size")
    shapes: list[tuple[str, Predicate]] = [
        (f"name = '{name}' AND type = '{kind}'", lambda e: both(is_name(e), is_kind(e))),
        (f"type = '{kind}' AND size BETWEEN {size} AND {size + 3}",
            lambda e: both(is_kind(e), between(e))),
        (f"size BETWEEN {size + 3} AND {size}", lambda e: False),
        (f"type <> '{kind}'", known(lambda v: v != plain, "type")),
        (f"NOT (type = '{kind}') OR size IN ({size}, {size + 1})",
         lambda e: is_kind(e) is False or e.get("size") in (size, size + 1)),
        (f"ratio < {size}.5", known(lambda v: v < size + 0.5, "ratio")),
        (f"ratio > {size}e-1 AND name = '{name}'",
            lambda e: both(known(lambda v: v > size / 10, "ratio")(e), is_name(e))),
        (f"name LIKE '%{size % 6}'", known(lambda v: v.endswith(str(size % 6)), "name")),
        (f"type IS NULL AND size >= {size}",
         lambda e: both(e.get("type") is None, known(lambda v: v >= size, "size")(e))),
    ]  # fmt: skip
    return shapes[shape % len(shapes)]


@pytest.mark.spark
def test_both_ways_agree_with_a_plain_loop(spark: SparkSession) -> None:
    rng = Random(1)
    events: list[Event] = [
        {
            "name": rng.choice([None, *(f"lib{n}" for n in range(6))]),
            "type": rng.choice([None, "dsc", "gz", "it's"]),
            "size": rng.choice([None, *range(22)]),
            "ratio": rng.choice([None, *(n / 2 for n in range(40))]),
        }
        for _ in range(150)
    ]
    filters = [draw(rng, number) for number in range(100)]
    right = sorted(
        (e, f)
        for e, event in enumerate(events)
        for f, (_, holds) in enumerate(filters)
        if holds(event) is True
    )
    published, subscribed = frames(spark, events, [text for text, _ in filters])
    assert len(right) > 1000
    assert pairs(oracle.matches_by_text(published, subscribed)) == right
    assert pairs(oracle.matches_by_template(published, subscribed)) == right


TRICKY = [
    "name = 'DATE ' AND type = 'x'",
    "name = 'DATE ''2020-01-01'' and 5'",
    "day = DATE '2020-01-02' OR day > date'2021-01-01'",
    "name = 'a@b'",
    "name = 'it''s' OR name = 'it\\'s too'",
    "name LIKE '100!%%' ESCAPE '!'",
    "name LIKE '100\\\\%%'",
    "`size` = 5",
    'name = "quoted 5"',
    "size = -9223372036854775808",
    "size = 9223372036854775807 OR size = 92233720368547758070",
    "size = 5L AND ratio > 1.5D",
    "ratio = 1.50 OR ratio = .5 OR ratio = 1.",
    "ratio > 1e-3 AND ratio < 1.5E0",
    "name RLIKE '^lib[0-9]+$'",
    "name IN ('x', NULL) AND size > 3",
    "size > 3 -- a comment 'with a quote'\n AND size < 9",
    "size /* 5 */ > 3",
    "event = 'e' AND filter = 7",
    "event = 'e' AND filter = 8",
    "NOT (name = 'x' AND type IS NOT NULL)",
    "true",
    "name = r'raw'",
    "1=1",
    "true AND 1<2",
    "1<2 AND size>3",
    "5 BETWEEN 3 AND size",
    "size > 3 -- '\n AND name = '=' -- '",
    "size > 3 /* '*/ AND size < 9 /* '*/",
    "NULL",
    "NULL AND size = 5",
    # Spark sees one value here, so there is one pair.
    "ratio IN ('2', '2.0')",
    "ratio IN (2, 2.0)",
    "ratio IN (2, 2)",
    "size IN (5, 5, 4)",
]


@pytest.mark.spark
def test_tricky_texts_mean_the_same_both_ways(spark: SparkSession) -> None:
    from datetime import date

    events: list[Event] = [
        {
            "name": name,
            "size": size,
            "type": kind,
            "ratio": ratio,
            "day": day,
            "event": "e",
            "filter": 7 + (size or 0) % 2,
        }
        for name, size, kind, ratio, day in zip(
            [
                "DATE ",
                "DATE '2020-01-01' and 5",
                "a@b",
                "it's",
                "it's too",
                "100%",
                "quoted 5",
                "lib12",
                "x",
                "raw",
                None,
            ],
            [5, 4, -(2**63), 2**63 - 1, None, 3, 2, 5, 4, 8, 6],
            ["x", None, "y", "x", "x", None, "z", "x", "y", None, "x"],
            [1.5, 0.5, 1.0, None, 0.0005, 2.0, -0.0, float("nan"), float("inf"), 1.25, 0.002],
            [date(2020, 1, 2), date(2022, 1, 1), None, *[date(2019, 1, 1)] * 8],
            strict=True,
        )
    ]
    published, subscribed = frames(spark, events, TRICKY)
    by_text = pairs(oracle.matches_by_text(published, subscribed))
    assert pairs(oracle.matches_by_template(published, subscribed)) == by_text
    taken_apart = templates.take_apart(subscribed).collect()
    whole = {
        row["text"]
        for row in taken_apart
        if row["template"] is None or not templates.is_plain(row["template"])
    }
    # These texts are too odd to take apart.
    assert {text for text in TRICKY if re.search(r"[`\"\\]|--|/\*|ESCAPE|\br'", text)} <= whole
    assert len(whole) < len(TRICKY) / 2 + 2
    assert {filter for _, filter in by_text} >= {
        TRICKY.index(text) for text in TRICKY if "9223372036854775808" not in text
    } - {
        TRICKY.index("name IN ('x', NULL) AND size > 3"),
        TRICKY.index("name LIKE '100\\\\%%'"),
        TRICKY.index("size > 3 -- '\n AND name = '=' -- '"),
        TRICKY.index("NULL"),
        TRICKY.index("NULL AND size = 5"),
    }


@pytest.mark.spark
def test_a_literal_that_spark_cannot_read_stays_in_its_text(spark: SparkSession) -> None:
    texts = [
        "day = DATE '2020-99-99'",
        "day = DATE '2020-09-09'",
        "ratio < 1e400",
        "ratio < 1e300",
        "name = 'x'",
    ]
    _, subscribed = frames(spark, [{"name": "x"}], texts)
    broken = subscribed.selectExpr(
        "filter + 5 AS filter", "CAST(X'6e616d65203d202761ffffed27' AS STRING) AS text"
    )
    whole = (
        templates.take_apart(subscribed.union(broken.limit(1))).where("template IS NULL").collect()
    )
    assert sorted(row["filter"] for row in whole)[:2] == [0, 2]
    # The third one is not a text.
    assert len(whole) == 3


@pytest.mark.spark
def test_many_templates_and_no_filters(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oracle, "TEMPLATES_MAX", 2)
    events: list[Event] = [{"name": f"lib{n}", "size": n} for n in range(10)]
    texts = ["size = 1", "size = 2", "size > 7", "name = 'lib3'", "size >= 9"]
    published, subscribed = frames(spark, events, texts)
    right = [(1, 0), (2, 1), (3, 3), (8, 2), (9, 2), (9, 4)]
    assert pairs(oracle.matches_by_template(published, subscribed)) == right
    assert pairs(oracle.matches(published, subscribed)) == right
    assert pairs(oracle.matches(published, subscribed.where("false"))) == []
    assert pairs(oracle.matches_by_template(published, subscribed.where("false"))) == []


def kinds_of_plan(found: DataFrame) -> str:
    return str(found._jdf.queryExecution().executedPlan().toString())


@pytest.mark.spark
def test_templates_are_read_by_sparks_parser(spark: SparkSession) -> None:
    text = (
        "type = 'x' AND size BETWEEN -5 AND 9 OR name IN ('a', 'b') AND 3.5 <= ratio AND "
        "name LIKE 'q%'"
    )
    _, subscribed = frames(
        spark, [], [text, "size > 5 AND NOT (size > 9)", "name LIKE 'x%'", "name NOT LIKE 'x%'"]
    )
    rows = templates.take_apart(subscribed).orderBy("filter").collect()
    found = [templates.read(spark, row["template"], row["text"]) for row in rows]
    assert found[0] is not None
    first, second = found[0].branches
    assert first.equal == (("`type`", templates.Place(0)),)
    assert first.ranges == (
        templates.Range("`size`", templates.Place(1, minus=True), templates.Place(2)),
    )
    assert second.member == ("`name`", (templates.Place(3), templates.Place(4)))
    assert second.ranges == (templates.Range("`ratio`", templates.Place(5)),)
    assert found[1] is not None
    assert found[1].branches == (
        templates.Branch(ranges=(templates.Range("`size`", templates.Place(0)),)),
    )
    assert found[2] is not None
    assert found[2].branches == (templates.Branch(like=("`name`", templates.Place(0))),)
    assert found[3] is not None
    # There is nothing to join by, so each text is evaluated.
    assert found[3].branches == ()
    # The parser reads this text otherwise.
    assert templates.read(spark, rows[0]["template"], "size > 5") is None


EDGES = [0, 1, 5, 2**53, 2**53 + 1, 2**53 + 2, 2**63 - 1, -(2**63) + 1, -1, -5]
RATIOS = [
    0.0,
    -0.0,
    0.1,
    0.30000000000000004,
    1e300,
    -1e300,
    float("inf"),
    float("-inf"),
    float("nan"),
    5e-324,
    1.5,
]


@pytest.mark.spark
def test_ranges_are_exact_at_their_ends(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events lie on the ends of ranges, and beside them as closely as numbers can.

    All ranges get cells, in levels or of one width.
    """
    from datetime import date, timedelta
    from itertools import pairwise

    rng = Random(5)
    sizes = sorted(
        {min(max(edge + step, -(2**63)), 2**63 - 1) for edge in EDGES for step in (-1, 0, 1)}
    )
    names = ["", "a", "a\u0000", "aaaaaaa", "aaaaaab", "é", "\U0001f600", "z", "zz"]
    days = [date(1969, 12, 31) + timedelta(n) for n in range(4)]
    events: list[Event] = [
        {
            "size": rng.choice(sizes), "ratio": rng.choice(RATIOS), "name": rng.choice(names),
            "day": rng.choice(days),
            "type": rng.choice(["x", "y", None]),
        }
        for _ in range(120)
    ]  # fmt: skip
    events += [
        {"size": size, "ratio": ratio} for size, ratio in zip(sizes, RATIOS * 9, strict=False)
    ]
    ends = [size for size in sizes if abs(size) < 10**18]
    texts = [f"size BETWEEN {low} AND {high}" for low, high in pairwise(ends)]
    texts += [f"size > {low} AND size < {high}" for low in ends[::3] for high in ends[::2]]
    texts += [
        f"type = 'x' AND size >= {low} AND size <= {low + rng.choice([0, 1, 1000])}" for low in ends
    ]
    texts += [
        f"ratio >= {low}e0 AND ratio <= {high}e0"
        for low in (0.1, 0.3, 1.5)
        for high in (0.1, 0.3, 1.5)
    ]
    texts += [f"ratio > {low}.0 AND ratio < 9.5" for low in (0, 1, 2)] + [
        "ratio >= 1.5",
        "ratio <= 0.0",
        "ratio < 0.1",
    ]
    texts += [
        f"name >= '{low}' AND name < '{high}'"
        for low in ("a", "aaaaaaa", "é")
        for high in ("aaaaaab", "é", "zz")
    ]
    texts += [f"day BETWEEN DATE '{low}' AND DATE '{high}'" for low in days for high in days]
    texts += [f"size <= {high} AND 5 <= size" for high in ends] + [
        f"size IN ({a}, {a + 1}) OR size < {a}" for a in ends
    ]
    published, subscribed = frames(spark, events, texts)
    right = pairs(oracle.matches_by_text(published, subscribed))
    monkeypatch.setattr(oracle, "PLAIN_MAX", 0)
    monkeypatch.setattr(oracle, "EVEN_PART", 0)
    found = oracle.matches_by_template(published, subscribed)
    assert "CartesianProduct" not in kinds_of_plan(found)
    # Every template has a range or an equality to join by.
    assert "NestedLoop" not in kinds_of_plan(found)
    assert pairs(found) == right
    monkeypatch.setattr(oracle, "PLAIN_MAX", 1000)
    monkeypatch.setattr(oracle, "EVEN_MIN", 0)
    monkeypatch.setattr(oracle, "EVEN_PART", 1)
    # Many more cells than usual give many more ends of cells.
    monkeypatch.setattr(bands, "EVEN_COVER", 40)
    widths: list[int] = []
    cut = bands.cut
    monkeypatch.setattr(bands, "cut", lambda *given: widths.append(*given[4]) or cut(*given))
    # One template of each type.
    starts = ("size BETWEEN", "type", "ratio >= 0.1e0", "name", "day")
    some = [number for number, text in enumerate(texts) if text.startswith(starts)]
    found = oracle.matches_by_template(published, subscribed.where(subscribed["filter"].isin(some)))
    assert pairs(found) == [pair for pair in right if pair[1] in some]
    assert len(widths) >= len(starts)
    assert len(set(widths)) > 2


@pytest.mark.spark
def test_random_workloads_against_a_plain_loop(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two equalities and a range, as in the benchmark, by every join.

    With or without cells, the pairs are those of the loop.
    """
    rng = Random(11)
    events: list[Event] = [
        {
            "name": f"n{rng.randrange(3)}",
            "type": f"t{rng.randrange(2)}",
            "size": rng.randrange(1000),
        }
        for _ in range(300)
    ]
    filters = [
        (
            f"n{rng.randrange(3)}",
            f"t{rng.randrange(2)}",
            low := rng.randrange(1000),
            low + rng.choice([0, 3, 50, 600]),
        )
        for _ in range(200)
    ]
    right = sorted(
        (e, f)
        for e, event in enumerate(events)
        for f, (name, kind, low, high) in enumerate(filters)
        if event["name"] == name and event["type"] == kind and low <= event["size"] < high
    )
    texts = [
        f"name = '{n}' AND type = '{t}' AND size >= {low} AND size < {high}"
        for n, t, low, high in filters
    ]
    published, subscribed = frames(spark, events, texts)
    joins = []
    # The ways are: plain twice, cells in levels, cells of one width.
    ways = (
        (512, 0, 16),
        (512, 0, 1000),
        (1, 0, 16),
        (512, 1, 16),
    )
    for most, part, each in ways:
        monkeypatch.setattr(oracle, "PLAIN_MAX", most)
        monkeypatch.setattr(oracle, "EVEN_PART", part)
        monkeypatch.setattr(oracle, "EVEN_MIN", 4)
        monkeypatch.setattr(oracle, "BROADCAST_EACH", each)
        found = oracle.matches_by_template(published, subscribed)
        plan = kinds_of_plan(found)
        joins.append(
            ("SortMergeJoin" in plan, "BroadcastHashJoin" in plan, "gossamer.at_cell" in plan)
        )
        assert pairs(found) == right
    assert joins == [
        (True, False, False),
        (False, True, False),
        (True, False, True),
        (True, False, True),
    ]


def like(pattern: str, text: str) -> bool:
    """SQL's LIKE in plain Python. A backslash makes the next character plain."""
    pieces = re.findall(r"\\(?s:.)|%|_|[^%_\\]+", pattern)
    found = {"%": "(?s:.*)", "_": "(?s:.)"}
    return (
        re.fullmatch(
            "".join(found.get(one) or re.escape(one.removeprefix("\\")) for one in pieces), text
        )
        is not None
    )


@pytest.mark.spark
def test_patterns_go_by_how_they_begin(spark: SparkSession) -> None:
    rng = Random(5)
    starts = ["", "a", "ab", "ab", "a_b", "é", "é😀", "𝄞", "longer-than-most-", "x" * 40]
    names = [
        rng.choice(starts) + rng.choice(["", "b", "1", "12", "_", "%", "😀z"]) for _ in range(200)
    ]
    events: list[Event] = [
        {"name": name, "size": number % 7, "type": "t"} for number, name in enumerate(names)
    ]
    events += [{"name": None, "size": 1, "type": "t"}] * 3
    patterns = [
        rng.choice(starts) + rng.choice(["%", "_", "", "%1", "%%", "_%"]) for _ in range(150)
    ] + [
        "%z",
        "_",
        "%",
        "",
        "%_",
    ]
    published, subscribed = frames(
        spark, events, [f"name LIKE '{pattern}'" for pattern in patterns]
    )
    right = sorted(
        (e, f)
        for f, pattern in enumerate(patterns)
        for e, event in enumerate(events)
        if event["name"] is not None and like(pattern, event["name"])
    )
    found = oracle.matches_by_template(published, subscribed)
    assert "gossamer.at_prefix" in kinds_of_plan(found)
    assert "NestedLoop" not in kinds_of_plan(found)
    assert pairs(found) == right == pairs(oracle.matches_by_text(published, subscribed))
    assert len(right) > 1000
    # The same beside an equality that leaves many filters, and beside a range. Patterns over a
    # number are left to Spark.
    texts = [
        f"type = 't' AND name LIKE '{pattern}' AND size < {n % 5}"
        for n, pattern in enumerate(patterns)
    ]
    numbers = [f"size LIKE '{n}%' AND type = 't'" for n in range(3)]
    published, subscribed = frames(spark, events, [*texts, *numbers])
    found = oracle.matches_by_template(published, subscribed)
    assert "gossamer.at_prefix" in kinds_of_plan(found)
    assert pairs(found) == pairs(oracle.matches_by_text(published, subscribed))


def test_lengths_of_prefixes_are_few_and_the_shortest_is_among_them() -> None:
    assert prefixes.choose([]) == []
    assert prefixes.choose([(3, 5), (9, 1)]) == [3, 9]
    assert prefixes.choose([(length, 10) for length in range(40)]) == [0, 1, 7, 13, 18, 24, 29, 35]
    assert prefixes.choose([(2, 1000), *[(length, 1) for length in range(3, 21)]]) == [
        2,
        3,
        6,
        9,
        11,
        14,
        16,
        19,
    ]
    assert prefixes.choose([(0, 1), (1, 1000), *[(length, 1) for length in range(2, 20)]]) == [
        0,
        1,
        2,
        3,
        4,
        5,
        6,
        7,
    ]


@pytest.mark.spark
def test_the_same_pairs_whatever_the_partitioning(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oracle, "PLAIN_MAX", 4)
    rng = Random(2)
    events: list[Event] = [
        {"type": f"t{n % 3}", "size": rng.randrange(500), "name": f"lib{n % 9}"} for n in range(120)
    ]
    texts = [
        f"type = 't{n % 3}' AND size BETWEEN {n} AND {n + rng.randrange(90)}" for n in range(140)
    ]
    texts += [f"name LIKE '%{n}'" for n in range(6)] + [
        f"name IN ('lib{n}', 'lib{n + 1}')" for n in range(6)
    ]
    published, subscribed = frames(spark, events, texts)
    found = [
        pairs(
            oracle.matches_by_template(published.repartition(parts), subscribed.repartition(parts))
        )
        for parts in (1, 2, 7)
    ]
    assert found[0] == found[1] == found[2]
    assert len(found[0]) > 500


@pytest.mark.spark
def test_only_pairs_of_one_topic_count(spark: SparkSession) -> None:
    events: list[Event] = [{"size": n % 3} for n in range(12)]
    published, subscribed = frames(
        spark, events, ["size = 1", "size = 2", "size >= 1 OR name LIKE 'x%'", "size /* */ = 0"]
    )
    told = published.selectExpr("event", "concat('t', event % 2) AS topic", "values")
    asked = subscribed.selectExpr("filter", "concat('t', filter % 2) AS topic", "text")
    meant = {0: {1}, 1: {2}, 2: {1, 2}, 3: {0}}
    right = [(e, f) for e in range(12) for f in meant if e % 2 == f % 2 and e % 3 in meant[f]]
    assert pairs(oracle.matches_by_text(told, asked)) == right
    assert pairs(oracle.matches_by_template(told, asked)) == right


@pytest.mark.spark
def test_due_and_allowed(spark: SparkSession) -> None:
    """An event is published at 100 and complete at 110.

    The life of a subscription decides whether it is due, allowed, or neither.
    """
    lives = [
        ("before and after", 10, 20, None, True),
        ("ended after the receipt", 10, 20, 111, True),
        ("ended with the receipt", 10, 20, 110, False),
        ("ended while it was on its way", 10, 20, 105, False),
        ("ended before it was published", 10, 20, 99, None),
        ("returned as it was published", 10, 100, None, False),
        ("asked for while it was on its way", 105, 120, None, False),
        ("asked for after the receipt", 111, 120, None, None),
    ]
    life = "filter BIGINT, subscribing_at BIGINT, subscribed_at BIGINT, ended_at BIGINT"
    subscriptions = spark.createDataFrame(
        [(n, *times) for n, (_, *times, _) in enumerate(lives)], life
    )
    # A second stay does not change that the event is due.
    subscriptions = subscriptions.unionByName(spark.createDataFrame([(0, 101, 102, 103)], life))
    published = spark.createDataFrame(
        [(7, 100, 110), (8, 100, None)], "event BIGINT, published_at BIGINT, completed_at BIGINT"
    )
    matched = spark.createDataFrame(
        [(e, n) for e in (7, 8) for n in range(len(lives))], "event BIGINT, filter BIGINT"
    )
    found = {
        (row["event"], row["filter"]): row["due"]
        for row in oracle.due(matched, subscriptions, published).collect()
    }
    for number, (what, *_, right) in enumerate(lives):
        assert found.get((7, number)) == right, what
    # Without a receipt nothing is due.
    assert {filter: due for (event, filter), due in found.items() if event == 8} == {
        number: False for number, (*_, ended, _) in enumerate(lives) if ended != 99
    }


@pytest.mark.spark
def test_the_judge(spark: SparkSession) -> None:
    due = spark.createDataFrame(
        [(1, True), (2, True), (3, False), (4, False), (5, True)], "pair INT, due BOOLEAN"
    )
    handed = spark.createDataFrame([(1, 1), (3, 2), (5, 3), (6, 2)], "pair INT, copies INT")
    judged = oracle.judge(due, handed, ["pair"]).persist()
    assert sorted((row["pair"], row["verdict"], row["copies"]) for row in judged.collect()) == [
        (1, "delivered", 1),
        (2, "missed", 0),
        (3, "allowed", 2),
        (5, "delivered", 3),
        (6, "spurious", 2),
    ]
    counted = judged.agg(*(column.alias(name) for name, column in oracle.counts().items())).first()
    judged.unpersist()
    assert counted is not None
    assert counted.asDict() == {
        "expected": 3,
        "delivered": 2,
        "missed": 1,
        "allowed": 1,
        "duplicate": 3,
        "spurious": 2,
    }


def by_span(published: DataFrame, subscribed: DataFrame) -> DataFrame:
    """All pairs without a join, or a failure."""
    rows = simple.collect(subscribed)
    assert rows is not None
    found, rest = simple.matches(published, subscribed, rows)
    assert rest is None
    assert found is not None
    assert "Join" not in kinds_of_plan(found)
    return found


def draw_simple(rng: Random, numbers: list[int]) -> tuple[str, Predicate]:
    """The text of a filter of a few equalities and a range, and its meaning in plain Python."""
    name, kind, code = (
        rng.choice(["a", "b", "it's", ""]),
        rng.choice(["x", "y"]),
        rng.randrange(-1, 3),
    )
    low, high = rng.choice(numbers), rng.choice(numbers)
    quoted = name.replace("'", "''")
    is_name, is_kind, is_code = (
        known(lambda v, one=one: v == one, at)
        for one, at in ((name, "name"), (kind, "type"), (code, "filter"))
    )
    shapes: list[tuple[str, Predicate]] = [
        (f"name = '{quoted}' AND type = '{kind}' AND size >= {low} AND size < {high}",
         lambda e: both(both(is_name(e), is_kind(e)), known(lambda v: low <= v < high, "size")(e))),
        (f"'{kind}' = type AND {low} < size AND {high} >= size",
         lambda e: both(is_kind(e), known(lambda v: low < v <= high, "size")(e))),
        (f"size BETWEEN {low} AND {high} AND filter = {code}",
         lambda e: both(is_code(e), known(lambda v: low <= v <= high, "size")(e))),
        (f"(size > {low} AND name == '{quoted}')",
            lambda e: both(is_name(e), known(lambda v: v > low, "size")(e))),
        (f"size <= {high}", known(lambda v: v <= high, "size")),
        (f"filter > {low} AND type = '{kind}'",
            lambda e: both(is_kind(e), known(lambda v: v > low, "filter")(e))),
        (f"type = '{kind}' AND name = '{quoted}'", lambda e: both(is_kind(e), is_name(e))),
        (f"size = {low}", known(lambda v: v == low, "size")),
        (f"size >= {low} AND size > {high} AND size <= {high} AND type = '{kind}'",
            lambda e: both(False, is_kind(e))),
        (f"size >= {low} AND size > {high} AND type = '{kind}' AND type = 'x'",
         lambda e: both(both(is_kind(e), known(lambda v: v == "x", "type")(e)),
             known(lambda v: v >= low and v > high, "size")(e))),
    ]  # fmt: skip
    return rng.choice(shapes)


@pytest.mark.spark
@pytest.mark.parametrize(
    "numbers", [list(range(-8, 9)), [edge for edge in EDGES if abs(edge) < 10**18]]
)
def test_simple_filters_without_a_join(spark: SparkSession, numbers: list[int]) -> None:
    """The pairs equal those of a plain loop and those text by text: NULLs, ends of ranges and
    beside them, the least and the greatest number.
    """
    rng = Random(7)
    sizes = sorted(
        {number + step for number in numbers for step in (-1, 0, 1)} | {-(2**63), 2**63 - 1}
    )
    events: list[Event] = [
        {
            "name": rng.choice([None, "a", "b", "it's", ""]), "type": rng.choice([None, "x", "y"]),
            "size": rng.choice([None, *sizes]), "filter": rng.choice([None, -1, 0, 1, 2]),
        }
        for _ in range(250)
    ]  # fmt: skip
    filters = [draw_simple(rng, numbers) for _ in range(150)]
    filters += filters[:20]
    right = sorted(
        (e, f)
        for e, event in enumerate(events)
        for f, (_, holds) in enumerate(filters)
        if holds(event) is True
    )
    published, subscribed = frames(spark, events, [text for text, _ in filters])
    assert len(right) > 2000
    assert pairs(oracle.matches_by_text(published, subscribed)) == right
    for parts in (1, 2, 7):
        assert pairs(by_span(published.repartition(parts), subscribed.repartition(parts))) == right
    assert pairs(oracle.matches(published, subscribed)) == right
    assert pairs(by_span(published.where("false"), subscribed)) == []
    assert pairs(
        by_span(published.selectExpr("CAST(event AS STRING) AS event", "values"), subscribed)
    ) == sorted((str(event), filter) for event, filter in right)


@pytest.mark.spark
def test_simple_filters_of_several_topics(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[Event] = [{"size": n % 20, "type": "xy"[n % 2]} for n in range(60)]
    published, subscribed = frames(
        spark, events, [f"type = 'x' AND size < {n % 25}" for n in range(140)]
    )
    told = published.selectExpr(
        "event", "CASE WHEN event % 4 < 3 THEN concat('t', event % 4) END AS topic", "values"
    )
    asked = subscribed.selectExpr(
        "filter", "CASE WHEN filter % 7 < 5 THEN concat('t', filter % 7) END AS topic", "text"
    )
    right = [
        (e, f) for e in range(0, 60,
            2) for f in range(140) if e % 4 == f % 7 < 3 and e % 20 < f % 25
    ]  # fmt: skip
    assert len(right) > 100
    assert pairs(by_span(told, asked)) == right
    assert pairs(oracle.matches_by_template(told, asked)) == right
    # This way is not used.
    monkeypatch.setattr(oracle, "matches_by_template", None)
    assert pairs(oracle.matches(told, asked)) == right


NOT_SIMPLE = [
    "size = 1 OR size = {}",
    "size IN ({}, 5)",
    "name LIKE 'a{}%'",
    "NOT (size > {})",
    "size <> {}",
    "size <=> {}",
    "size > {} AND type IS NULL",
    "size > {} AND filter < 5",
    "size > {} AND size + 1 > 5",
    "size > {} AND name",
    "size > {}.5",
    "size > {}e0",
    "size > '{}'",
    "size = '{}'",
    "name > 'a{}'",
    "name BETWEEN 'a' AND 'b{}'",
    "ratio = {}",
    "ratio > {}",
    "day > DATE '2020-01-{}'",
    "day = '2020-01-{}'",
    "size > filter AND size > {}",
    "upper(name) = 'A{}'",
    "size > {} -- a comment",
    "`size` > {}",
    "name = r'{}'",
    "nothing = {}",
]


@pytest.mark.spark
def test_what_is_not_simple_is_joined(spark: SparkSession) -> None:
    """Each text looks simple in a way of its own. All of them are handed back and none is lost."""
    published, _ = frames(spark, [{"name": "a", "size": 5}], [])
    for form in NOT_SIMPLE:
        asked = [form.format(n) for n in range(10, 13)]
        _, subscribed = frames(spark, [], asked)
        rows = simple.collect(subscribed)
        assert rows is not None
        found, rest = simple.matches(published, subscribed, rows)
        assert found is None, form
        assert rest is not None
        assert rest.size == 3
        assert rest.filters is subscribed
    collated = published.selectExpr(
        "event", "struct(values.name COLLATE UTF8_LCASE AS name, values.size AS size) AS values"
    )
    for form, rows_of, taken in (
        ("name = 'A{}'", collated, False),
        ("size = {}", collated, True),
        ("name = '{}'", published, True),
    ):
        _, subscribed = frames(spark, [], [form.format(n) for n in range(3)])
        rows = simple.collect(subscribed)
        assert rows is not None
        assert (simple.matches(rows_of, subscribed, rows)[0] is not None) == taken


@pytest.mark.spark
def test_simple_filters_among_others(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simple filters, other filters, texts that are too long, and more filters than the limit."""
    monkeypatch.setattr(oracle, "SMALL_MAX", 20)
    events: list[Event] = [{"name": f"n{n % 5}", "type": "t", "size": n} for n in range(80)]
    events.append({"name": "n1", "type": None, "size": None})
    asked = [
        f"name = 'n{n % 5}' AND type = 't' AND size >= {n} AND size < {n + n % 7}"
        for n in range(90)
    ]
    asked += [f"size IN ({n}, 5)" for n in range(8)] + ["size /* */ = 3"]
    published, subscribed = frames(spark, events, asked)
    right = pairs(oracle.matches_by_text(published, subscribed))
    ways: list[str] = []

    def note(way: str) -> None:
        function = getattr(oracle, way)
        monkeypatch.setattr(oracle, way, lambda *given: ways.append(way) or function(*given))

    note("matches_by_text")
    note("matches_by_template")
    found = oracle.matches(published, subscribed)
    assert "MapInArrow" in kinds_of_plan(found)
    assert pairs(found) == right
    # The nine others are few.
    assert ways.pop() == "matches_by_text"
    long = asked[40:60] + [text + " " * simple.TEXT_MAX for text in asked[:40]] + asked[60:]
    assert pairs(oracle.matches(published, frames(spark, [], long)[1])) == pairs(
        oracle.matches_by_template(published, frames(spark, [], long)[1])
    )
    # They are the 40 that are too long, and nine others.
    assert ways == ["matches_by_template"] * 2
    monkeypatch.setattr(simple, "FILTERS_MAX", len(asked))
    assert simple.collect(subscribed) is not None
    monkeypatch.setattr(simple, "FILTERS_MAX", len(asked) - 1)
    assert simple.collect(subscribed) is None
    ways.clear()
    assert pairs(oracle.matches(published, subscribed)) == right
    assert ways == ["matches_by_template"]


@pytest.mark.spark
def test_simple_filters_wherever_their_rows_are(spark: SparkSession) -> None:
    """The rows are in many partitions, some of them empty.

    Strings are long and short, and ids are strings and large numbers.
    """
    names = ["", "a", "é", "éé", "x" * 450, "x" * 451, "x" * 100_000, None]
    events: list[Event] = [{"name": names[n % 8], "size": n % 11 - 5} for n in range(200)]
    asked = [
        f"name = '{names[n % 5]}' AND size > {'-' if n % 2 else ''}{n % 6}" for n in range(150)
    ]
    published, subscribed = frames(spark, events, asked * 2)
    right = pairs(oracle.matches_by_text(published, subscribed))
    assert len(right) > 1000
    assert pairs(by_span(published, subscribed.repartition(7, "text"))) == right
    empty = subscribed.where("filter < 0")
    assert (
        pairs(by_span(published.repartition(5), empty.unionByName(subscribed).unionByName(empty)))
        == right
    )
    collected = simple.collect(empty)
    assert collected is not None
    assert collected.num_rows == 0
    assert pairs(oracle.matches(published, empty)) == []
    assert pairs(by_span(published.where("event < 0"), subscribed)) == []
    large = 2**63 - 1
    moved = (
        published.selectExpr(f"{large} - event AS event", "values"),
        subscribed.selectExpr(f"filter - {large} AS filter", "text"),
    )
    assert pairs(by_span(*moved)) == sorted(
        (large - event, filter - large) for event, filter in right
    )
    named = published.selectExpr("concat('e', event) AS event", "values"), subscribed
    assert pairs(by_span(*named)) == sorted((f"e{event}", filter) for event, filter in right)


@pytest.mark.spark
def test_templates_that_are_rare(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample of all texts does not have these templates.

    A sample of the texts that the frequent template leaves has them.
    """
    asked = [f"name = 'n{n % 5}' AND size >= {n}" for n in range(3000)]
    asked[1], asked[2], asked[3] = "size = 7", "filter = 1 AND size < 3", "size = 8"
    events: list[Event] = [{"name": "n1", "size": n, "filter": n % 2} for n in range(9)]
    published, subscribed = frames(spark, events, asked)
    right = sorted(
        [(e, f) for e in range(9) for f in range(1, e + 1) if f % 5 == 1 and f > 3]
        + [(7, 1), (1, 2), (8, 3)]
    )
    assert len(right) > 5
    # Samples follow the order of the rows.
    subscribed = subscribed.coalesce(1)
    monkeypatch.setattr(simple, "SAMPLES", (64,))
    rows = simple.collect(subscribed)
    assert rows is not None
    rest = simple.matches(published, subscribed, rows)[1]
    assert rest is not None
    assert rest.size == 3
    monkeypatch.setattr(simple, "SAMPLES", (16, 64))
    assert pairs(by_span(published, subscribed)) == right


@pytest.mark.spark
def test_no_more_texts_come_than_may(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the limit all texts come, wherever they are.

    With one text more none comes, and few are brought.
    """
    _, subscribed = frames(spark, [], [f"size = {n}" for n in range(600)])
    brought: list[int] = []
    bring = type(subscribed).toArrow

    def noted(rows: DataFrame) -> Any:
        table = bring(rows)
        brought.append(table.num_rows)
        return table

    monkeypatch.setattr(type(subscribed), "toArrow", noted)
    for parts in (1, 2, 7):
        spread = subscribed.repartition(parts)
        monkeypatch.setattr(simple, "FILTERS_MAX", 600)
        rows = simple.collect(spread)
        assert rows is not None
        assert sorted(rows["filter"].to_pylist()) == list(range(600))
        for most in (599, 100, 1):
            monkeypatch.setattr(simple, "FILTERS_MAX", most)
            assert simple.collect(spread) is None
            assert most < brought[-1] <= simple.READERS * (most + 1)


@pytest.mark.spark
def test_simple_filters_of_attributes_by_any_name(spark: SparkSession) -> None:
    """Attributes in other letters, inside a struct, or with the names of our own columns.

    Two names that differ only in case are left to Spark.
    """
    events = spark.sql(
        """SELECT id AS event, named_struct('Size', id, 'values', id + 1, 'event', id + 2,
        'topic', id + 3, 'deep', named_struct('x', id + 4), 'b', id, 'B', id) AS values
        FROM range(5)"""
    )
    asked = [
        "size = 3",
        "SIZE = 3",
        "values = 3",
        "event = 3",
        "topic = 3",
        "deep.x = 5",
        "values > 3",
    ]
    _, subscribed = frames(spark, [], asked)
    right = [(0, 4), (1, 3), (1, 5), (2, 2), (3, 0), (3, 1), (3, 6), (4, 6)]
    assert pairs(oracle.matches_by_text(events, subscribed)) == right
    assert pairs(by_span(events, subscribed)) == right
    told = (
        events.selectExpr("event", "'t' AS topic", "values"),
        subscribed.selectExpr("filter", "'t' AS topic", "text"),
    )
    assert pairs(by_span(*told)) == right
    _, twice = frames(spark, [], ["b = 3"] * 5)
    rows = simple.collect(twice)
    assert rows is not None
    assert simple.matches(events, twice, rows)[0] is None


@pytest.mark.spark
def test_an_attributes_type_as_spark_has_it(spark: SparkSession) -> None:
    """The name alone gives the type if it is enough.

    Otherwise Spark is asked: other letters, a field of a struct, two names that differ in case,
    none.
    """
    events = spark.sql(
        "SELECT 1 AS event, named_struct('Size', 1L, 'a', 'x', 'b', 2, 'B', 3L, 'in', "
        "named_struct('x', 1Y)) AS values"
    )
    rows = flat.flat(events)
    kinds = {
        name: flat.type_of(rows, name)
        for name in ("`Size`", "`size`", "`a`", "`b`", "`in`.`x`", "`none`", "a")
    }
    told = {name: kind.simpleString() if kind is not None else None for name, kind in kinds.items()}
    assert told == {
        "`Size`": "bigint",
        "`size`": "bigint",
        "`a`": "string",
        "`b`": None,
        "`in`.`x`": "tinyint",
        "`none`": None,
        "a": "string",
    }


def test_the_oracle_knows_nothing_of_our_filters() -> None:
    import ast
    from pathlib import Path

    for module in (
        oracle,
        templates,
        bands,
        prefixes,
        flat,
        simple,
        spans,
        texts,
    ):
        tree = ast.parse(Path(str(module.__file__)).read_text("utf-8"))
        imported = [
            node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
        ]
        imported += [
            alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for alias in node.names
        ]
        assert {name for name in imported if name.startswith("gossamer")} <= {
            "gossamer.pipeline",
            "gossamer.pipeline.flat",
            "gossamer.pipeline.templates",
        }
