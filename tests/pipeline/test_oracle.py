"""The oracle: its two ways agree with each other and with a plain loop."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from gossamer.pipeline import oracle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "name STRING, type STRING, size BIGINT, ratio DOUBLE, day DATE, event STRING, filter INT"
Event = dict[str, Any]
Predicate = Callable[[Event], bool | None]


def frames(spark: SparkSession, events: list[Event], texts: list[str]) -> tuple[DataFrame, DataFrame]:
    names = [field.split()[0] for field in SCHEMA.split(", ")]
    rows = [(number, tuple(event.get(name) for name in names)) for number, event in enumerate(events)]
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
    """A filter's text, and what it means in plain Python. As many shapes as there are, with literals of all kinds."""
    name, kind, size = f"lib{rng.randrange(6)}", rng.choice(["dsc", "gz", "it''s"]), rng.randrange(20)
    plain = kind.replace("''", "'")
    is_name, is_kind = known(lambda v: v == name, "name"), known(lambda v: v == plain, "type")
    between = known(lambda v: size <= v <= size + 3, "size")
    shapes: list[tuple[str, Predicate]] = [
        (f"name = '{name}' AND type = '{kind}'", lambda e: both(is_name(e), is_kind(e))),
        (f"type = '{kind}' AND size BETWEEN {size} AND {size + 3}", lambda e: both(is_kind(e), between(e))),
        (f"size BETWEEN {size + 3} AND {size}", lambda e: False),
        (f"type <> '{kind}'", known(lambda v: v != plain, "type")),
        (f"NOT (type = '{kind}') OR size IN ({size}, {size + 1})",
         lambda e: is_kind(e) is False or e.get("size") in (size, size + 1)),
        (f"ratio < {size}.5", known(lambda v: v < size + 0.5, "ratio")),
        (f"ratio > {size}e-1 AND name = '{name}'", lambda e: both(known(lambda v: v > size / 10, "ratio")(e), is_name(e))),
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
    right = sorted((e, f) for e, event in enumerate(events) for f, (_, holds) in enumerate(filters) if holds(event) is True)
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
]


@pytest.mark.spark
def test_tricky_texts_mean_the_same_both_ways(spark: SparkSession) -> None:
    from datetime import date

    events: list[Event] = [
        {"name": name, "size": size, "type": kind, "ratio": ratio, "day": day, "event": "e", "filter": 7 + (size or 0) % 2}
        for name, size, kind, ratio, day in zip(
            ["DATE ", "DATE '2020-01-01' and 5", "a@b", "it's", "it's too", "100%", "quoted 5", "lib12", "x", "raw", None],
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
    whole = {row["text"] for row in oracle.take_apart(subscribed).where("template IS NULL").collect()}
    assert {text for text in TRICKY if re.search(r"[`\"\\]|--|/\*|ESCAPE|\br'", text)} <= whole  # too odd to take apart
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
    _, subscribed = frames(spark, [{"name": "x"}], ["day = DATE '2020-99-99'", "day = DATE '2020-09-09'"])
    whole = oracle.take_apart(subscribed).where("template IS NULL").collect()
    assert [row["filter"] for row in whole] == [0]


@pytest.mark.spark
def test_many_templates_and_no_filters(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracle, "TEMPLATES_MAX", 2)
    events: list[Event] = [{"name": f"lib{n}", "size": n} for n in range(10)]
    texts = ["size = 1", "size = 2", "size > 7", "name = 'lib3'", "size >= 9"]
    published, subscribed = frames(spark, events, texts)
    right = [(1, 0), (2, 1), (3, 3), (8, 2), (9, 2), (9, 4)]
    assert pairs(oracle.matches_by_template(published, subscribed)) == right
    assert pairs(oracle.matches(published, subscribed)) == right
    assert pairs(oracle.matches(published, subscribed.where("false"))) == []
    assert pairs(oracle.matches_by_template(published, subscribed.where("false"))) == []


@pytest.mark.spark
def test_the_judge(spark: SparkSession) -> None:
    due = spark.createDataFrame([(1, True), (2, True), (3, False), (4, False), (5, True)], "pair INT, due BOOLEAN")
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
    assert counted.asDict() == {"expected": 3, "delivered": 2, "missed": 1, "allowed": 1, "duplicate": 3, "spurious": 2}


def test_the_oracle_knows_nothing_of_our_filters() -> None:
    import ast
    from pathlib import Path

    tree = ast.parse(Path(str(oracle.__file__)).read_text("utf-8"))
    imported = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    imported += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    assert not [name for name in imported if name.startswith("gossamer")]
