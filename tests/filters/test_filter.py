"""Filters: verdicts, canonical text, keys, errors with their carets, limits."""

from __future__ import annotations

import math
import pickle
import sys
import time
from datetime import UTC, date, datetime
from typing import Any

import pytest

from gossamer.filters import Event, EventError, Filter, FilterError, Schema
from gossamer.filters.model import CONJUNCTIONS_MAX, DEPTH_MAX, TEXT_MAX

SCHEMA = Schema.parse(
    "country STRING, city STRING, temp INT, big BIGINT, ratio DOUBLE, single FLOAT, wet BOOLEAN, "
    "at TIMESTAMP, day DATE, "
    "raw BINARY, tiny TINYINT, loc STRUCT<lat: DOUBLE, `the lon`: DOUBLE>, must INT NOT NULL"
)


def passes(text: str, **values: Any) -> bool:
    return Filter.parse(text, SCHEMA).matches({"must": 0, **values})


@pytest.mark.parametrize(
    ("text", "values", "verdict"),
    [
        ("", {}, True),
        ("  \n", {}, True),
        ("TRUE", {}, True),
        ("NULL", {}, False),
        ("country = 'CH' AND temp > 30", {"country": "CH", "temp": 31}, True),
        ("country = 'CH' AND temp > 30", {"country": "CH", "temp": 30}, False),
        ("country = 'CH' AND temp > 30", {"country": "CH"}, False),
        ("NOT (temp > 30)", {}, False),
        ("NOT (temp > 30 AND country = 'CH')", {"country": "FR"}, True),
        ("temp > 30 OR country = 'CH'", {"country": "CH"}, True),
        ("temp IS NULL", {}, True),
        ("NOT temp IS NULL", {}, False),
        ("temp <=> NULL", {}, True),
        ("temp <=> 3", {}, False),
        ("NOT temp <=> 3", {}, True),
        ("temp BETWEEN 3 AND 5", {"temp": 5}, True),
        ("temp BETWEEN 5 AND 3", {"temp": 4}, False),
        ("temp NOT BETWEEN 5 AND 3", {"temp": 4}, True),
        ("temp IN (1, NULL)", {"temp": 1}, True),
        ("temp IN (1, NULL)", {"temp": 2}, False),
        ("temp NOT IN (1, NULL)", {"temp": 2}, False),
        ("30 < temp", {"temp": 31}, True),
        ("temp > 30.5", {"temp": 31}, True),
        ("temp > 30.5", {"temp": 30}, False),
        ("temp = 30.0", {"temp": 30}, True),
        ("temp < 3000000000", {"temp": 30}, True),
        ("temp < 3000000000", {}, False),
        ("big = 9007199254740992D", {"big": 2**53 + 1}, True),
        ("big = 9007199254740992", {"big": 2**53 + 1}, False),
        ("big = ratio", {"big": 2**53 + 1, "ratio": 2.0**53}, True),
        ("single = 0.1", {"single": 0.1}, False),
        ("single = 0.1F", {"single": 0.1}, True),
        ("single > 1e300", {"single": math.inf}, True),
        ("ratio > 1e308", {"ratio": math.nan}, True),
        ("ratio < 1e308", {"ratio": math.nan}, False),
        ("ratio = ratio", {"ratio": math.nan}, True),
        ("ratio = loc.lat", {"ratio": math.nan, "loc": {"lat": math.nan}}, True),
        ("ratio = 0", {"ratio": -0.0}, True),
        ("LOC.`The Lon` >= 2", {"loc": {"the lon": 2.0}}, True),
        ("wet", {"wet": True}, True),
        ("NOT wet", {"wet": False}, True),
        ("!wet", {}, False),
        ("wet < TRUE", {"wet": False}, True),
        # The order is by code point. By UTF-16 the verdict would be no.
        ("city > '\uffff'", {"city": "\U0001f600"}, True),
        (
            "at = TIMESTAMP '2024-01-01 10:00:00+02:00'",
            {"at": datetime(2024, 1, 1, 8, tzinfo=UTC)},
            True,
        ),
        ("at = TIMESTAMP '2024-01-01 10:00:00'", {"at": datetime(2024, 1, 1, 10)}, True),
        ("day >= DATE '2024-02-29'", {"day": date(2024, 2, 29)}, True),
        ("raw > X'7F'", {"raw": b"\x80"}, True),
        ("city LIKE 'a_c%'", {"city": "abcd"}, True),
        ("city LIKE '_'", {"city": "\U0001f600"}, True),
        ("city LIKE 'a%b'", {"city": "a\nb"}, True),
        ("city LIKE '50#%' ESCAPE '#'", {"city": "50%"}, True),
        ("city LIKE '50\\%'", {"city": "50x"}, False),
        ("city LIKE '%%'", {}, False),
        ("city NOT LIKE '%x%'", {"city": "abc"}, True),
        ("city LIKE NULL", {"city": "a"}, False),
        ("city RLIKE '^(a|b)+$'", {"city": "abab"}, True),
        ("city RLIKE 'b'", {"city": "abc"}, True),
        ("city NOT RLIKE 'b'", {}, False),
        ("city = 'it''s'", {"city": "it's"}, True),
        ("city = 'it' \"'s\"", {"city": "it's"}, True),
        (r"city = r'\d'", {"city": "\\d"}, True),
        (r"city = '\u00e9\ud83d\ude00\101'", {"city": "é\U0001f600A"}, True),
    ],
)
def test_verdicts(text: str, values: dict[str, Any], verdict: bool) -> None:
    assert passes(text, **values) is verdict
    found = Filter.parse(text, SCHEMA)
    assert found.matches_row(SCHEMA.row({"must": 0, **values})) is verdict
    assert Filter.parse(found.text, SCHEMA) == found


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("temp>30 and country='CH'", "country = 'CH' AND temp > 30"),
        ("TRUE AND temp > 1 AND temp > 1", "temp > 1"),
        ("temp > 1 OR TRUE", "TRUE"),
        ("temp = NULL", "FALSE"),
        ("NOT (temp = 1 OR country IS NULL)", "country IS NOT NULL AND temp <> 1"),
        ("temp = 3 OR temp IN (2, 1, 3)", "temp IN (1, 2, 3)"),
        ("temp <> 3 AND temp != 1", "temp NOT IN (1, 3)"),
        ("temp BETWEEN 1 AND 5", "temp >= 1 AND temp <= 5"),
        ("temp > 30.5", "temp > 30"),
        ("temp >= 30.5", "temp >= 31"),
        ("temp = 30.5", "FALSE"),
        ("temp <> 30.5", "temp IS NOT NULL"),
        ("tiny > 127", "FALSE"),
        ("tiny >= -128", "tiny IS NOT NULL"),
        ("must >= -3000000000", "TRUE"),
        ("must IS NULL", "FALSE"),
        ("big = 9007199254740992D", "big >= 9007199254740992 AND big <= 9007199254740993"),
        ("ratio > 3", "ratio > 3.0D"),
        ("ratio > 1e300", "ratio > 1E+300D"),
        ("single < 0.1", "single < 0.10000000149011612D"),
        ("3 > temp", "temp < 3"),
        ("temp >= big", "big <= temp"),
        ("big = temp", "temp = big"),
        ("wet", "wet = TRUE"),
        ("wet <> TRUE", "wet = FALSE"),
        ("city LIKE 'abc'", "city = 'abc'"),
        ("city LIKE '%%'", "city IS NOT NULL"),
        ("city LIKE 'a%%_#%%' ESCAPE '#'", "city LIKE 'a_%\\\\%%'"),
        ("loc.`THE lon` < 1 and LOC.LAT < 1", "loc.lat < 1.0D AND loc.`the lon` < 1.0D"),
        (
            "at < TIMESTAMP '2024-01-01 10:00:00.5+02:00'",
            "at < TIMESTAMP '2024-01-01 08:00:00.500000Z'",
        ),
        ("day = DATE '2024-2'", "day = DATE '2024-02-01'"),
        ("raw = x'0aff'", "raw = X'0AFF'"),
        ("city = 'a\nb\t\\'\\\\\u2028é'", "city = 'a\\nb\\t\\'\\\\\\u2028é'"),
        ("(temp > 1 OR wet) AND (country = 'x')", "country = 'x' AND (temp > 1 OR wet = TRUE)"),
        ("temp <=> big", "temp = big OR (temp IS NULL AND big IS NULL)"),
    ],
)
def test_canonical_text(text: str, canonical: str) -> None:
    found = Filter.parse(text, SCHEMA)
    assert found.text == canonical
    again = Filter.parse(canonical, SCHEMA)
    assert (again, hash(again), again.keys) == (found, hash(found), found.keys)
    assert pickle.loads(pickle.dumps(found)) == found
    assert Filter.parse(f"NOT NOT ({text})", SCHEMA) == found


def test_filter_is_plain() -> None:
    found = Filter.parse("temp > 30 AND loc.lat IS NULL", SCHEMA)
    assert found.schema is SCHEMA
    assert found.attributes == ("temp", "loc.lat")
    assert str(found) == "temp > 30 AND loc.lat IS NULL"
    # It is the compiled function itself.
    assert found.matches_row is found.matches_row
    # A short row ends in NULLs.
    assert found.matches_row(("x", "y", 31))
    assert found.passing([("x", "y", 30), ("x", "y", 31)]) == [1]
    assert found.matches(Event("weather", 1, 1, 1, {"temp": 31, "must": 1}))
    assert found != Filter.parse("temp > 30", SCHEMA)
    assert found != "temp > 30"
    with pytest.raises(EventError):
        found.matches({"temp": "hot", "must": 1})
    with pytest.raises(TypeError):
        found.matches_row(("x", "y", "hot", *[None] * 10))


def test_both_ends_of_a_range_and_more_about_the_same_attribute() -> None:
    schema = Schema.parse("a INT, b DOUBLE")
    rows = [(a, b) for a in (None, 1, 2, 3, 4) for b in (None, 1.0, 2.0, float("nan"))]
    both = [
        (a, b) for a, b in rows if a is not None and 1 < a <= 3 and b is not None and 1 <= b < 3
    ]
    for text in (
        "a > 1 AND a <= 3 AND b >= 1 AND b < 3",
        "b < 3 AND a > 1 AND a > 0 AND b >= 1 AND a <= 3 AND a < 9",
    ):
        found = Filter.parse(text, schema)
        assert (
            [rows[place] for place in found.passing(rows)]
            == [row for row in rows if found.matches_row(row)]
            == both
        )


def test_keys() -> None:
    schema = Schema.parse("a STRING, b INT")
    two = Filter.parse("a IN ('y', 'x') AND b > 3", schema)
    assert [len(c) for c in two.conjunctions] == [2, 2]
    assert list(two.keys) == [
        bytes.fromhex("0000 20 017800 0001 40 018000000000000003 01"),
        bytes.fromhex("0000 20 017900 0001 40 018000000000000003 01"),
    ]
    assert Filter.parse("FALSE", schema).keys == ()
    assert Filter.parse("TRUE", schema).keys == (b"",)
    assert (
        Filter.parse("b = 1 AND a = 'x'", schema).keys
        == Filter.parse("a = 'x' AND b = 1", schema).keys
    )
    by_name = Schema.parse("b INT, a STRING", "name")
    assert (
        Filter.parse("b = 1 AND a = 'x'", by_name).keys
        == Filter.parse("a = 'x' AND b = 1", schema).keys
    )
    # Multiplied out they are the same, so they have the same keys and differ in their text only.
    apart = Filter.parse("(a = 'x' AND b < 1) OR (a = 'x' AND b > 2)", schema)
    joined = Filter.parse("a = 'x' AND (b < 1 OR b > 2)", schema)
    assert apart.key == joined.key
    assert (apart < joined) != (joined < apart)


def test_filters_sort() -> None:
    schema = Schema.parse("a STRING, b INT")
    texts = [
        "FALSE",
        "TRUE",
        "a IS NULL",
        "a = ''",
        "a = 'x'",
        "a = 'x' AND b = -1",
        "a = 'x' AND b = 2",
        "a = 'x' AND b > 0",
    ]
    texts += [
        "a = 'x' AND b < 9",
        "a = 'xy'",
        "a LIKE 'x%'",
        "a > 'x'",
        "a < 'x'",
        "b = 1",
        "b IN (1, 2)",
        "b = 2",
    ]
    filters = [Filter.parse(text, schema) for text in texts]
    assert [f.text for f in sorted(filters)] == texts


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "country = 'CH' AND tmep > 30",
            """
unknown attribute 'tmep' (did you mean 'temp'?)
  country = 'CH' AND tmep > 30
                     ^^^^""",
        ),
        (
            "zzz IS NULL",
            """
unknown attribute 'zzz'
  zzz IS NULL
  ^^^""",
        ),
        (
            "temp > 'hot' OR wet",
            """
temp (INT) cannot be compared with 'hot' (STRING)
  temp > 'hot' OR wet
  ^^^^^^^^^^^^""",
        ),
        (
            "wet OR\n  day = TIMESTAMP '2024-01-01 00:00:00'\n  OR wet",
            """
day (DATE) cannot be compared with TIMESTAMP '2024-01-01 00:00:00' (TIMESTAMP)
    day = TIMESTAMP '2024-01-01 00:00:00'
    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^""",
        ),
        (
            "temp IN (1, 'x')",
            """
temp (INT) cannot be compared with 'x' (STRING)
  temp IN (1, 'x')
  ^^^^^^^^^^^^^^^""",
        ),
        (
            "city = country AND city = temp",
            """
city (STRING) cannot be compared with temp (INT)
  city = country AND city = temp
                     ^^^^^^^^^^^""",
        ),
        (
            "upper(city) = 'X'",
            """
function calls are not supported: upper
  upper(city) = 'X'
  ^^^^^^""",
        ),
        (
            "temp + 1 > 3",
            """
arithmetic is not supported
  temp + 1 > 3
       ^""",
        ),
        (
            "wet AND CASE WHEN wet THEN TRUE END",
            """
CASE is not supported
  wet AND CASE WHEN wet THEN TRUE END
          ^^^^""",
        ),
        (
            "wet AND (temp > 3",
            """
( is not closed
  wet AND (temp > 3
          ^""",
        ),
        (
            "temp > 3)",
            """
) closes nothing
  temp > 3)
          ^""",
        ),
        (
            "temp = 1 = wet",
            """
a comparison cannot be compared again; use AND, OR, NOT
  temp = 1 = wet
           ^""",
        ),
        (
            "temp",
            """
a condition expected, and temp (INT) is not one
  temp
  ^^^^""",
        ),
        (
            "wet AND",
            """
an attribute or a literal expected
  wet AND
         ^""",
        ),
        (
            "city = 'a",
            """
' is opened and never closed
  city = 'a
         ^""",
        ),
        (
            "temp = 1 -- one",
            """
a filter has no comments
  temp = 1 -- one
           ^^""",
        ),
        (
            r"city RLIKE 'a\d'",
            r"""
\d in a string is just 'd' to Spark; write \\d, or the whole string as r'...'
  city RLIKE 'a\d'
               ^^""",
        ),
        (
            "city RLIKE '(?i)a'",
            """
RLIKE pattern: of the (? forms only (?: is supported (character 1 of the pattern)
  city RLIKE '(?i)a'
             ^^^^^^^""",
        ),
        (
            "city LIKE '#a' ESCAPE '#'",
            """
in a LIKE pattern # stands before %, _ or # only
  city LIKE '#a' ESCAPE '#'
            ^^^^""",
        ),
        (
            "wet OR `loc.lat` > 1",
            """
in backquotes the dot is part of a name; write loc.lat
  wet OR `loc.lat` > 1
         ^^^^^^^^^""",
        ),
        (
            "`LOC.the lon` > 1",
            """
in backquotes the dot is part of a name; write loc.`the lon`
  `LOC.the lon` > 1
  ^^^^^^^^^^^^^""",
        ),
        (
            "single < -3.4028235e38F",
            """
the number is out of the range of FLOAT: Spark reads numbers up to 3.4028234663852886E+38
  single < -3.4028235e38F
           ^^^^^^^^^^^^^^""",
        ),
        (
            "temp < 10000000000000000000",
            """
an integer is compared with numbers in the range of BIGINT, or with a DOUBLE: 1e20
  temp < 10000000000000000000
         ^^^^^^^^^^^^^^^^^^^^""",
        ),
        (
            "x" * 60 + " = 1 AND " + "city = 'x' AND " * 10,
            """
unknown attribute '"""
            + "x" * 60
            + """'
  """
            + "x" * 60
            + """ = 1 AND city = 'x' AND city = 'x' AND c…
  """
            + "^" * 60,
        ),
        (
            "temp = 1 OR " * 20 + "tmp = 1",
            """
unknown attribute 'tmp' (did you mean 'temp'?)
  …R temp = 1 OR temp = 1 OR temp = 1 OR temp = 1 OR tmp = 1
   """
            + " " * 50
            + "^^^",
        ),
    ],
)
def test_errors_point_at_the_place(text: str, shown: str) -> None:
    with pytest.raises(FilterError) as raised:
        Filter.parse(text, SCHEMA)
    assert str(raised.value) == shown.removeprefix("\n")
    assert raised.value.text == text
    assert isinstance(raised.value, ValueError)
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


REFUSED = """
    temp IS TRUE ¦ temp IS DISTINCT FROM 1 ¦ city ILIKE 'a' ¦ city LIKE ANY ('a')
    temp IN (SELECT 1)
    EXISTS (SELECT 1) ¦ temp IN () ¦ temp IN (big) ¦ 1 IN (temp) ¦ CAST(temp AS STRING) = '1'
    temp::STRING = '1'
    city || 'a' = 'b' ¦ temp % 2 = 0 ¦ temp = -big ¦ temp = --1 ¦ temp = - -1
    at > INTERVAL '1' DAY
    city = current_date() ¦ (temp, big) = (1, 2) ¦ temp !> 3 ¦ temp !< 3 ¦ temp => 3
    temp = 1e400 ¦ temp = 1e400D
    temp = 1e5L ¦ temp = 300Y ¦ temp = 12345678901234567890123 ¦ ratio = 0.1234567890123456789
    temp = 1a
    temp = 0x1F ¦ temp = 1.2.3 ¦ city = '\\ud800' ¦ city = '\\x41' ¦ city = '\\U00110000'
    city LIKE 'a' ESCAPE ''
    city LIKE 'a' ESCAPE '##' ¦ city LIKE city ¦ city RLIKE city ¦ temp LIKE '1' ¦ wet RLIKE 'a'
    'a' LIKE 'a'
    day = DATE 'today' ¦ day = DATE '2023-02-29' ¦ day = DATE '10000-01-01' ¦ at = DATE '2024-01-01'
    at = TIMESTAMP 'now' ¦ at = TIMESTAMP '2024-01-01 10:00'
    at = TIMESTAMP '2024-01-01 10:00:00 Europe/Paris'
    at = TIMESTAMP '2024-01-01 10:00:00+19:00' ¦ at = TIMESTAMP '0001-01-01 00:00:00+02:00'
    at = '2024-01-01 10:00:00' ¦ raw = X'1' ¦ raw = X'GG' ¦ raw = 'a' ¦ day = '2024-01-01'
    temp = '1'
    temp = TRUE ¦ wet = 1 ¦ wet = 'true' ¦ city = 1 ¦ city = X'61' ¦ temp == == 1 ¦ NOT ¦ AND
    () ¦ temp 1
    temp NOT 1 ¦ temp NOT = 1 ¦ temp ! IN (1) ¦ city = 'a' 1 ¦ temp BETWEEN 1
    temp BETWEEN 1 OR 2 ¦ temp IS
    temp IS NOT 1 ¦ case = 1 ¦ (temp = 1 ¦ loc = 1 ¦ loc.lat.x = 1 ¦ `loc.lat` = 1 ¦ temp. = 1
    é = 1 ¦ temp = 1;
    temp = :x ¦ temp = ? ¦ temp[0] = 1 ¦ temp & 1 = 1 ¦ TIMESTAMP_NTZ '2024-01-01' = at
    DATE '2024-01-01' '' = day
    temp IN (1,) ¦ temp IN (1 2) ¦ temp = (1, 2) ¦ (temp = 1) IS NULL ¦ (temp = 1) = wet
    (wet AND wet) = wet
    b'a' = raw ¦ (NOT NOT temp) = 1 ¦ temp <= 9223372036854775807.5
    9223372036854775807.000000000000000001 > big
    tiny IN (9223372036854775807.5) ¦ big >= -9223372036854775808.5
    single = 3.4028234663852887e38F
    ratio < 1.7976931348623158e308 ¦ ratio = -1.797693134862315708e308D
    temp < 1.7976931348623158e308
    ratio < 1.79769313486231570000000000000000000000000000001e308
"""


@pytest.mark.parametrize(
    "text", [text.strip() for line in REFUSED.strip().splitlines() for text in line.split("¦")]
)
def test_refused(text: str) -> None:
    with pytest.raises(FilterError):
        Filter.parse(text, SCHEMA)


def test_the_greatest_literals() -> None:
    assert Filter.parse("big <= 9223372036854775807.0", SCHEMA).text == "big IS NOT NULL"
    assert Filter.parse("big < 9223372036854775806.5", SCHEMA).text == "big < 9223372036854775807"
    assert passes("single = 3.4028234663852886e38F", single=3.4028234663852886e38)
    assert passes("ratio = -1.7976931348623157e308", ratio=-1.7976931348623157e308)


def test_zero_has_one_sign() -> None:
    tiny, zero = Filter.parse("single < -1e-50", SCHEMA), Filter.parse("single < 0", SCHEMA)
    assert tiny == zero
    assert (hash(tiny), tiny.text, tiny.key) == (hash(zero), "single < 0.0D", zero.key)
    assert not tiny < zero
    assert not zero < tiny


def test_the_blank_text_is_true() -> None:
    for blank in ("", " ", "\t\r\n "):
        found = Filter.parse(blank, SCHEMA)
        assert (found.text, found.keys, found.attributes) == ("TRUE", (b"",), ())
        assert found == Filter.parse("TRUE", SCHEMA) == pickle.loads(pickle.dumps(found))


def test_names_whose_lower_case_is_longer() -> None:
    schema = Schema.parse("`\u0130` INT, `\u0130i\u0307` INT, `\u00c9\u03a3` INT")
    assert Filter.parse("`\u0130` = 1", schema).attributes == ("\u0130",)
    assert Filter.parse("`\u00e9\u03c2` = 1", schema).attributes == ("\u00c9\u03a3",)
    for other in ("i\u0307", "i\u0307\u0130"):
        assert schema.find(other) is None
        with pytest.raises(FilterError, match="unknown attribute"):
            Filter.parse(f"`{other}` = 1", schema)


@pytest.mark.parametrize(
    "text",
    [
        "city = '" + "\x01" * 8000 + "'",
        'city = "' + "'" * 8000 + '"',
        "OR ".join(f"city RLIKE'a{i}'" for i in range(435)),
        " OR ".join(f"!city<=>'{i}'" for i in range(200)),
        "ratio IN (" + "1e9," * 1000 + "1e18)",
    ],
    ids=lambda text: text[:20],
)
def test_an_accepted_filter_can_be_sent(text: str) -> None:
    """Filters travel as their canonical text, so that text has the limits of a filter."""
    assert len(text) <= TEXT_MAX
    try:
        found = Filter.parse(text, SCHEMA)
    except FilterError as error:
        assert "canonical text" in error.message
        assert "the maximum is 8,192" in error.message
    else:
        assert pickle.loads(pickle.dumps(found)) == found


def test_canonical_text_limits() -> None:
    fits = Filter.parse("city = '" + "\x01" * 1363 + "'", SCHEMA)
    assert len(fits.text) == 8187
    assert pickle.loads(pickle.dumps(fits)) == fits
    with pytest.raises(
        FilterError, match="the canonical text has 8,193 characters; the maximum is 8,192"
    ):
        Filter.parse("city = '" + "\x01" * 1364 + "'", SCHEMA)
    # An AND beside an OR stands in parentheses in the canonical text.
    for depth in (DEPTH_MAX // 2, DEPTH_MAX // 2 + 1, DEPTH_MAX):
        text = (
            "".join(f"big = {i} OR temp > {i} AND (" for i in range(depth))
            + "!temp <=> big"
            + ")" * depth
        )
        try:
            found = Filter.parse(text, SCHEMA)
        except FilterError as error:
            assert depth > DEPTH_MAX // 2
            assert "canonical text has parentheses" in error.message
        else:
            assert depth == DEPTH_MAX // 2
            assert pickle.loads(pickle.dumps(found)) == found


def test_nots_are_limited() -> None:
    """Spark's parser recurses into NOT: some hundreds of them overflow its stack."""
    for word in ("!", "NOT "):
        assert passes(word * DEPTH_MAX + "wet", wet=True)
        assert passes(f"{word * 40}({word * 24}wet) AND {word * DEPTH_MAX}wet", wet=True)
        for text in (
            word * (DEPTH_MAX + 1) + "wet",
            f"{word * 40}({word * 25}wet)",
            f"({word * 2}" * 33 + "wet" + ")" * 33,
        ):
            with pytest.raises(FilterError, match="NOTs are at most 64 deep"):
                Filter.parse(text, SCHEMA)


def test_limits() -> None:
    Filter.parse("temp = 1" + " " * (TEXT_MAX - 8), SCHEMA)
    with pytest.raises(
        FilterError, match="a filter has at most 8,192 characters; this one has 8,193"
    ):
        Filter.parse(" " * (TEXT_MAX + 1), SCHEMA)
    Filter.parse("(" * DEPTH_MAX + "wet" + ")" * DEPTH_MAX, SCHEMA)
    for deep in (
        "(" * (DEPTH_MAX + 1) + "wet" + ")" * (DEPTH_MAX + 1),
        "(" * 8000,
        "temp = " + "(" * 8000,
    ):
        with pytest.raises(FilterError, match="parentheses are at most 64 deep"):
            Filter.parse(deep, SCHEMA)
    several = ", ".join(str(i) for i in range(32))
    assert (
        len(Filter.parse(f"temp IN ({several}) AND big IN ({several})", SCHEMA).keys)
        == CONJUNCTIONS_MAX
    )
    with pytest.raises(
        FilterError, match=r"multiply out to 2,048 conjunctions; the maximum is 1,024"
    ):
        Filter.parse(f"temp IN ({several}) AND big IN ({several}) AND tiny IN (1, 2)", SCHEMA)
    with pytest.raises(FilterError, match="IN takes at most 1,024 values; this one has 1,100"):
        Filter.parse(f"temp IN ({','.join(map(str, range(1100)))})", SCHEMA)
    assert passes(f"city LIKE '{'_' * 8000}'", city="é" * 8000)
    assert Filter.parse(f"temp = {'0' * 5000}7", SCHEMA).text == "temp = 7"
    with pytest.raises(FilterError, match="more than a thousand million"):
        Filter.parse(" AND ".join(f"(temp > {i} OR big < {i})" for i in range(200)), SCHEMA)


@pytest.mark.parametrize(
    "text",
    [
        " OR ".join(f"big = {i}" for i in range(600)),
        "big IN (" + "1e18, " * 1300 + "1)",
        "".join(f"big = {i} OR (temp > {i} AND (" for i in range(32)) + "wet" + "))" * 32,
        " AND ".join(["NOT temp <=> big"] * 380),
        "a." * 4000 + "b = 1",
        f"city LIKE '{'%_a' * 2600}'",
        f"city RLIKE '{'(a{100}){10}' * 600}'",
        f"city RLIKE '{'a|' * 4000}b'",
        f"ratio = 0.{'1' * 8000}F",
        f"ratio = 1e{'9' * 8000}",
    ],
    ids=lambda text: text[:20],
)
def test_hostile_texts_cost_little(text: str) -> None:
    """Peers send filters: any text is parsed, matched and keyed, or refused, in a moment."""
    start = time.perf_counter()
    try:
        found = Filter.parse(text, SCHEMA)
        found.matches({"city": "a" * 1000, "must": 1})
        assert found.keys is not None
    except FilterError:
        pass
    # It takes milliseconds on a quiet machine.
    assert time.perf_counter() - start < 2.0


def test_deep_texts_stay_far_from_the_recursion_limit() -> None:
    half = DEPTH_MAX // 2
    deep = "".join(f"big = {i} OR (temp > {i} AND (" for i in range(half)) + "wet" + "))" * half
    limit = sys.getrecursionlimit()
    depth = 0
    frame = sys._getframe()
    while frame.f_back is not None:
        depth, frame = depth + 1, frame.f_back
    try:
        sys.setrecursionlimit(depth + 300)
        found = Filter.parse(deep, SCHEMA)
        assert Filter.parse(found.text, SCHEMA) == found
        assert found.matches({"wet": True, "temp": 99, "must": 1})
        assert len(found.keys) == 1 + half
        assert Filter.parse("NOT " * DEPTH_MAX + "wet", SCHEMA).text == "wet = TRUE"
    finally:
        sys.setrecursionlimit(limit)
