"""Same as Spark: the verdict of a filter on an event and that of `df.where(text)` never differ.

`spark_verdicts` asks Spark and imports nothing of gossamer.filters. `generate` draws the cases from
a seed. A difference prints the seed, the text and the event.
"""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import pytest

from filters import generate, spark_verdicts
from gossamer.filters import Filter, FilterError, Schema
from gossamer.filters.schema import RESERVED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

# Schemas; texts and events of each; texts that also go through where().
BATCHES, TEXTS, EVENTS, WHERE = (
    18,
    120,
    60,
    3,
)
FIRST_SEED = 20_260
# Every feature that the comparison promises, with the number of times that it must at least occur.
FEATURES = {
    **dict.fromkeys(
        [
            "AND",
            "OR",
            "NOT",
            "IN",
            "BETWEEN",
            "IS NULL",
            "LIKE",
            "RLIKE",
            "two attributes",
            "NOT over NULL",
        ],
        100,
    ),
    **dict.fromkeys(
        [
            "BETWEEN reversed",
            "IN with NULL",
            "DATE",
            "TIMESTAMP",
            "TIMESTAMP with zone",
            "BINARY",
            "non-ASCII",
        ],
        50,
    ),
    **dict.fromkeys(
        [
            "LIKE ESCAPE",
            "LIKE escape",
            "RLIKE $",
            "supplementary plane",
            "literal left",
            "literal NULL",
        ],
        20,
    ),
    **dict.fromkeys(
        [
            "DECIMAL",
            "DOUBLE",
            "F",
            "L",
            "beyond the type",
            "struct",
            "bare boolean",
            "unicode escape",
        ],
        20,
    ),
    **dict.fromkeys(["raw string", "strings in a row", "constant"], 20),
}
# Seeds whose batches once differed, and why. They run every time.
PAST = {
    0: "x < 10000000000000000000 passes NULL in Spark: refused since",
    3: "a TIMESTAMP with a zone but without seconds is an error in Spark: refused since",
}


def compare(
    spark: SparkSession, seed: int, texts: int, events: int, where: int, canonical: bool = False
) -> Counter[str]:
    batch = generate.batch(seed, texts, events)
    schema = Schema.parse(batch.ddl)
    rows = [schema.row(event) for event in batch.events]
    filters = [Filter.parse(text, schema) for text in batch.texts]
    df = spark_verdicts.frame(spark, batch.ddl, batch.events)
    sent = [f.text for f in filters] if canonical else batch.texts
    seen = Counter(batch.features)
    for text, found, theirs in zip(sent, filters, spark_verdicts.verdicts(df, sent), strict=True):
        ours = [found.matches_row(row) for row in rows]
        for event, mine, their in zip(batch.events, ours, theirs, strict=True):
            assert mine == their, (
                f"seed {seed}, {batch.ddl}\n{text}\n{event}\nSpark {their}, gossamer {mine} by "
                f"{found}"
            )
        seen["pairs"] += len(ours)
        seen["TRUE"] += sum(ours)
        seen["texts"] += 1
    seen["NaN or NULL"] += sum(value is None or value != value for row in rows for value in row)
    # Spark evaluates as much as it can while planning. A checkpoint makes it generate code and run
    # a job, as with real tables.
    df = df.localCheckpoint() if where else df
    for text, found in zip(sent[:where], filters, strict=False):
        passing = [i for i, row in enumerate(rows) if found.matches_row(row)]
        assert spark_verdicts.passing(df, text) == passing, f"seed {seed}: where({text!r})"
    return seen


def test_generated_filters(spark: SparkSession) -> None:
    seen: Counter[str] = Counter()
    for seed in range(FIRST_SEED, FIRST_SEED + BATCHES):
        seen += compare(spark, seed, TEXTS, EVENTS, WHERE)
    assert seen["texts"] >= 2_000
    assert seen["pairs"] >= 100_000
    assert seen["TRUE"] >= 0.2 * seen["pairs"]
    assert seen["NaN or NULL"] >= 500
    for feature, least in FEATURES.items():
        assert seen[feature] >= least, f"{feature}: {seen[feature]}"


@pytest.mark.parametrize("seed", PAST)
def test_past_differences(spark: SparkSession, seed: int) -> None:
    compare(spark, seed, 60, 30, 0)


def test_canonical_texts_mean_the_same(spark: SparkSession) -> None:
    compare(spark, FIRST_SEED, TEXTS, EVENTS, 0, canonical=True)


# Spellings at the edges of the grammar. They mean the same here and to Spark.
EDGE_DDL = (
    "i INT, s STRING, b BOOLEAN, d DOUBLE, l BIGINT, date DATE, at TIMESTAMP, x BINARY, t "
    "TINYINT, f FLOAT"
)
EDGE_EVENTS: list[dict[str, Any]] = [
    {},
    {
        "i": 1,
        "s": "a",
        "b": True,
        "d": 1.0,
        "l": 1,
        "date": date(2024, 1, 1),
        "at": datetime(2024, 1, 1, 8, tzinfo=UTC),
        "x": b"\x1f",
        "t": 1,
        "f": 1.0,
    },
    {
        "i": 2,
        "s": "it's",
        "b": False,
        "d": float("nan"),
        "l": 2**53 + 1,
        "date": date(2024, 1, 5),
        "at": datetime(2024, 1, 1, 10),
        "x": b"",
        "t": 2,
        "f": 0.1,
    },
    {
        "i": -3,
        "s": "\\%_",
        "b": True,
        "d": -0.0,
        "l": -(2**63),
        "date": date(1, 1, 1),
        "at": datetime(1970, 1, 1),
        "x": b"\xff",
        "t": -3,
        "f": -0.0,
    },
    {"i": 0, "s": "\U0001f600\n", "b": False, "d": float("inf"), "l": 2**63 - 1},
]
ACCEPTED = r"""
    !b = b ¦ NOT b = b ¦ NOT b AND b ¦ ! b OR b ¦ NOT NOT b ¦ !!b ¦ NOT b = b OR b
    NOT i IS NULL ¦ NOT i IN (1)
    NOT i BETWEEN 0 AND 1 ¦ NOT s LIKE 'a' ¦ i NOT IN (1) AND b ¦ b OR b AND NOT b
    (b OR b) AND NOT b
    i BETWEEN 0 AND 1 AND b ¦ i BETWEEN 0 AND 1 OR b ¦ (i) = (1) ¦ ((i)) IN ((1), (2)) ¦ (b)
    ((b)) AND (TRUE)
    (NOT b) ¦ (b) = (b) ¦ i = 1 AND (b) ¦ (i = 1) ¦ (s) LIKE ('a') ¦ s='a'AND b ¦ i IN(1)
    s LIKE'a' ¦ i>-3
    i<-3 ¦ i>=-3 ¦ i=-3 ¦ i =- 3 ¦ i = +1 ¦ i <>-3 ¦ i !=1 ¦ i<=>1 ¦ i == 1 ¦ -3 = i ¦ i = 1.
    i = .5 ¦ i = 1.0e0
    i = 1e0BD ¦ i = 1L ¦ i = 1S ¦ i = 1Y ¦ i = 1F ¦ i = 1D ¦ i = 1BD ¦ i = 01 ¦ i = 1e+0
    i = 2147483648
    i > -2147483649 ¦ t < 128 ¦ t <> 1000 ¦ l = 9007199254740992D ¦ l = 9007199254740993
    l = 9007199254740993.0
    l < 9223372036854775808D ¦ l >= -9223372036854775808 ¦ l <= 9223372036854775807F
    l IN (9007199254740993, 1D)
    l IN (9007199254740993, 1.5) ¦ d = 0 ¦ d > 1e308 ¦ d >= 9223372036854775807 ¦ d <> 0 ¦ NOT d > 1
    d BETWEEN 0 AND 1e308 ¦ f = 0.1 ¦ f = 0.1F ¦ f < 0.1 ¦ f <= 0.1 ¦ f > 0.1 ¦ f >= 0.1
    f <> 0.1 ¦ f > 1e300
    f < 1e300 ¦ f > -1e300 ¦ f IN (0.1) ¦ f IN (0.1, 0.1F) ¦ f = 16777217 ¦ f < i ¦ f = l ¦ d = l
    d >= l ¦ t = d
    i = t ¦ d <=> d ¦ d < f ¦ i <=> t ¦ i <=> NULL ¦ NULL <=> i ¦ NULL <=> NULL ¦ 1 <=> NULL
    NOT i <=> NULL
    NOT i <=> t ¦ NOT (d <=> f) ¦ NULL ¦ NOT NULL ¦ NULL AND b ¦ NULL OR b ¦ i = NULL ¦ i IN (NULL)
    i NOT IN (NULL) ¦ i NOT IN (7, NULL) ¦ NOT (i = NULL OR i = 1) ¦ i BETWEEN NULL AND 1
    i NOT BETWEEN NULL AND 0 ¦ NULL IS NULL ¦ 1 IS NOT NULL ¦ TRUE ¦ false ¦ TRUE = b ¦ b = TRUE
    b <> TRUE
    b < TRUE ¦ b > FALSE ¦ b IN (TRUE, NULL) ¦ 1 = 1 ¦ 1 = 1.0D ¦ 'a' = "a" ¦ s = 'it''s'
    s = 'it\'s'
    s = "it's" ¦ s = 'it' '''s' ¦ s = 'it' "'s" ¦ s = r'\%_' ¦ s = '\\%_' ¦ s = '\\\%\_'
    s = '\%\_' ¦ s = R"\%_"
    s = '\U0001F600\n' ¦ s = '\ud83d\ude00\012' ¦ s = 'a' 'b' ¦ s = '\141' ¦ s = '\u0061'
    s > '\uffff'
    s LIKE '\\\\\%\_' ¦ s LIKE r'\\\%\_' ¦ s LIKE '\\%_' ¦ s LIKE '__' ¦ s LIKE '_\n'
    s LIKE '%' ¦ s LIKE ''
    s LIKE 'A' ¦ s LIKE 'a' ESCAPE '%' ¦ s NOT LIKE NULL ¦ s LIKE 'a' 'b' ¦ s RLIKE '^.$'
    s RLIKE '\n$'
    s RLIKE '' ¦ s REGEXP 'a' ¦ s rlike r'^\W' ¦ s RLIKE NULL ¦ s RLIKE '\\\\' ¦ s NOT RLIKE 'a'
    NOT s RLIKE 'a'
    date = DATE '2024' ¦ date = DATE '2024-1-5' ¦ DATE = date'2024-01-01' ¦ date > DATE '0001-01-01'
    date IN (DATE '2024-01-01', NULL) ¦ at = TIMESTAMP '2024-01-01 10:00:00+02:00'
    at = TIMESTAMP '2024-01-01T10:00:00Z' ¦ at >= timestamp'2024-01-01'
    at < TIMESTAMP '2024-01-01 9:0:0'
    at = TIMESTAMP '2024-01-01 10:00:00.0' ¦ at = TIMESTAMP '2024-01-01 04:30:00-05:30'
    at > TIMESTAMP '1970-01-01' ¦ x = X'1F' ¦ x = x'1f' ¦ x = X"1F" ¦ X = X'' ¦ x > X'7f'
    x = X '1F' ¦ x <> X''
    x IN (X'1F', X'FF') ¦ I = 1 ¦ `i` = 1 ¦ `I`=1 ¦ i = t AND i < d ¦ i IN (1, 2L, 2.5)
"""
# These are not in the language, even if Spark takes them.
REFUSED = r"""
    i = 1 = b ¦ i < 2 < l ¦ i=1AND b ¦ i=1.AND b ¦ i = - -3 ¦ i! =1 ¦ i<= >1 ¦ i< >1 ¦ i !> 1
    i !< 1 ¦ i => 1
    i === 1 ¦ i = 1_0 ¦ i = 1e ¦ 1 < 'a' ¦ s = '\x61' ¦ s LIKE '#\#%_' ESCAPE '#'
    s LIKE '%a' ESCAPE '%'
    s LIKE '%%%' ESCAPE '%' ¦ s LIKE 'a_' ESCAPE '_' ¦ date = DATE '2024-1-5 '
    date = DATE ' 2024-01-05'
    at = TIMESTAMP '2024-01-01 10:00' ¦ at = TIMESTAMP '2024-01-01 10:00:00.000000001' ¦ i = 1 -- x
    i /* x */ = 1 ¦ i = 1; ¦ at = date ¦ date = '2024-01-01' ¦ i = '1' ¦ s = 1 ¦ b = 1 ¦ x = 'a'
    at < date
    i IS NULL IS NULL ¦ (i IS NULL) = b ¦ i IS TRUE ¦ b IS NOT FALSE ¦ i DIV 1 = 1
    i IS NOT DISTINCT FROM 1
    s ILIKE 'A' ¦ i IN (1, 'a')
"""


def table(texts: str) -> list[str]:
    return [text.strip() for line in texts.strip().splitlines() for text in line.split("¦")]


def test_edges_of_the_grammar(spark: SparkSession) -> None:
    schema = Schema.parse(EDGE_DDL)
    rows = [schema.row(event) for event in EDGE_EVENTS]
    filters = {text: Filter.parse(text, schema) for text in table(ACCEPTED)}
    df = spark_verdicts.frame(spark, EDGE_DDL, EDGE_EVENTS)
    for text, theirs in zip(filters, spark_verdicts.verdicts(df, list(filters)), strict=True):
        assert [filters[text].matches_row(row) for row in rows] == theirs, text
    for text in table(REFUSED):
        with pytest.raises(FilterError):
            Filter.parse(text, schema)


def test_numbers_at_the_ends_of_types(spark: SparkSession) -> None:
    """Next to the ends of every numeric type the verdict is Spark's, or the text is refused.

    It is refused if Spark refuses it.
    """
    ddl = "t TINYINT, h SMALLINT, i INT, l BIGINT, f FLOAT, d DOUBLE"
    schema = Schema.parse(ddl)
    ends = {"t": 2**7, "h": 2**15, "i": 2**31, "l": 2**63}
    events: list[dict[str, Any]] = [{}, {name: end - 1 for name, end in ends.items()}]
    events += [
        {name: -end for name, end in ends.items()},
        {"f": 3.4028234663852886e38, "d": 1.7976931348623157e308},
    ]
    events += [
        {"f": value, "d": value} for value in (0.0, -0.0, float("inf"), float("-inf"), float("nan"))
    ]
    events.append({"f": -1.401298464324817e-45, "d": -5e-324, "l": 0, "t": 0})
    bounds = [
        f"{whole}{part}"
        for end in ends.values()
        for whole in (end - 1, -end)
        for part in ("", ".5", ".0", "D")
    ]
    bounds += [
        "9223372036854775807.000000000000000001",
        "9223372036854775806.5",
        "-9223372036854775808.1",
        "-1e-50",
        "0",
    ]
    bounds += [
        "3.4028234663852886e38F",
        "-3.4028234663852886e38F",
        "1.7976931348623157e308",
        "-1.7976931348623157e308D",
    ]
    forms = [
        "{n} < {v}",
        "{n} <= {v}",
        "NOT {n} > {v}",
        "NOT {n} >= {v}",
        "{v} > {n}",
        "{n} = {v}",
        "{n} <=> {v}",
        "{n} <> {v}",
    ]
    filters: dict[str, Filter] = {}
    for text in [form.format(n=n, v=v) for n in schema.names for v in bounds for form in forms]:
        try:
            filters[text] = Filter.parse(text, schema)
        except FilterError as error:
            assert "in the range of BIGINT" in error.message
    assert len(filters) > 0.9 * len(schema.names) * len(bounds) * len(forms)
    rows = [schema.row(event) for event in events]
    df = spark_verdicts.frame(spark, ddl, events)
    for text, theirs in zip(filters, spark_verdicts.verdicts(df, list(filters)), strict=True):
        assert [filters[text].matches_row(row) for row in rows] == theirs, text


def test_the_deepest_texts(spark: SparkSession) -> None:
    """A text within the limits on NOTs and parentheses does not overflow Spark's stack."""
    deep = "".join(f"i = {n} OR (t > {n} AND (NOT NOT " for n in range(32)) + "b" + "))" * 32
    texts = [
        "!" * 64 + "b",
        "NOT " * 64 + "(" * 64 + "b" + ")" * 64,
        "NOT (" * 64 + "b" + ")" * 64,
        deep,
    ]
    texts += [Filter.parse(deep, Schema.parse(EDGE_DDL)).text, " OR ".join(["b"] * 1600)]
    schema = Schema.parse(EDGE_DDL)
    rows = [schema.row(event) for event in EDGE_EVENTS]
    df = spark_verdicts.frame(spark, EDGE_DDL, EDGE_EVENTS)
    for text, theirs in zip(texts, spark_verdicts.verdicts(df, texts), strict=True):
        assert [Filter.parse(text, schema).matches_row(row) for row in rows] == theirs, text[:60]


def test_like_of_many_segments(spark: SparkSession) -> None:
    pieces = ["a", "b", "ab", "_", "%", "a_b", "__", "%_", "\U0001f600"]
    rng = random.Random(FIRST_SEED)
    patterns = [
        "".join(rng.choices(pieces, k=rng.randint(2, 9))) + rng.choice(["", "%"])
        for _ in range(400)
    ]
    events = [
        {"s": "".join(rng.choices(["a", "b", "\n", "\U0001f600"], [5, 5, 1, 1], k=k % 14))}
        for k in range(60)
    ]
    texts = [f"s LIKE '{p}'" for p in patterns]
    schema = Schema.parse("s STRING")
    df = spark_verdicts.frame(spark, "s STRING", events)
    passed = 0
    for text, theirs in zip(texts, spark_verdicts.verdicts(df, texts), strict=True):
        assert [Filter.parse(text, schema).matches(event) for event in events] == theirs, text
        passed += sum(theirs)
    assert 0.05 < passed / (len(texts) * len(events)) < 0.9


LITERALS = [
    "1",
    "2.5",
    "1.0D",
    "1F",
    "2147483648",
    "'1'",
    "TRUE",
    "DATE '2024-01-01'",
    "TIMESTAMP '2024-01-01 00:00:00'",
    "X'31'",
    "NULL",
]


def test_every_type_with_every_literal(spark: SparkSession) -> None:
    """Unlike types are refused. For all others the verdict is Spark's."""
    schema = Schema.parse(EDGE_DDL)
    rows = [schema.row(event) for event in EDGE_EVENTS]
    # Literals of its kind, NULL aside.
    likes = {
        "i": 5,
        "l": 5,
        "t": 5,
        "d": 5,
        "f": 5,
        "s": 1,
        "b": 1,
        "date": 1,
        "at": 1,
        "x": 1,
    }
    filters: dict[str, Filter] = {}
    for name, alike in likes.items():
        accepted = 0
        for literal in LITERALS:
            forms = [f"{name} {op} {literal}" for op in ("=", "<>", "<", ">=")] + [
                f"{name} NOT IN ({literal})"
            ]
            for text in forms:
                try:
                    filters[text] = Filter.parse(text, schema)
                    accepted += 1
                except FilterError as error:
                    assert "cannot be compared with" in error.message
        assert accepted == (alike + 1) * len(forms)
    df = spark_verdicts.frame(spark, EDGE_DDL, EDGE_EVENTS)
    for text, theirs in zip(filters, spark_verdicts.verdicts(df, list(filters)), strict=True):
        assert [filters[text].matches_row(row) for row in rows] == theirs, text


def test_keywords_as_names(spark: SparkSession) -> None:
    """A name that needs no backquotes here needs none in Spark.

    In backquotes every keyword is a name in both.
    """
    words = [
        row[0] for row in spark.sql("SELECT keyword FROM sql_keywords() ORDER BY 1").collect()
    ] + ["r", "b", "n"]
    for start in range(0, len(words), 75):
        part = words[start : start + 75]
        ddl = ", ".join(f"`{word}` INT" for word in part)
        schema = Schema.parse(ddl)
        assert Schema.parse(schema.text) == schema
        assert (
            spark.createDataFrame([], schema.text).schema == spark.createDataFrame([], ddl).schema
        )
        events = [dict.fromkeys(part, 1), dict.fromkeys(part, 2), {}]
        texts = [f"`{word}` = 1" for word in part]
        for word in part:
            text = f"2 <= {word} AND NOT {word} IN (1, 3) AND {word} IS NOT NULL"
            try:
                Filter.parse(text, schema)
                texts.append(text)
            except FilterError:
                assert word in RESERVED
        assert len(texts) > 1.5 * len(part)
        filters = [Filter.parse(text, schema) for text in texts]
        rows = [schema.row(event) for event in events]
        df = spark_verdicts.frame(spark, ddl, events)
        for text, found, theirs in zip(
            texts, filters, spark_verdicts.verdicts(df, texts), strict=True
        ):
            assert [found.matches_row(row) for row in rows] == theirs, text
