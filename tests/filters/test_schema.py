"""Schemas and rows: DDL text, checked values, and the way back."""

from __future__ import annotations

import math
import pickle
from collections import OrderedDict
from datetime import UTC, date, datetime, timedelta, timezone
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.filters import Event, EventError, Schema, SchemaError, Type
from gossamer.filters.loops import Weighed
from gossamer.filters.model import ATTRIBUTES_MAX, DDL_MAX

WEATHER = Schema.parse("country STRING, city STRING, temp INT, at TIMESTAMP")
ALL = Schema.parse(
    "s STRING, bin BINARY, b BOOLEAN, t TINYINT, h SMALLINT, i INT, l BIGINT, f FLOAT, d DOUBLE, "
    "at TIMESTAMP, day DATE"
)
NESTED = Schema.parse(
    "id BIGINT NOT NULL, loc STRUCT<lat: DOUBLE, lon: DOUBLE, at: STRUCT<`a b` INT>>, x STRING"
)


def test_parse() -> None:
    assert WEATHER.names == ("country", "city", "temp", "at")
    assert WEATHER.types == (Type.STRING, Type.STRING, Type.INT, Type.TIMESTAMP)
    assert WEATHER.text == "country STRING, city STRING, temp INT, at TIMESTAMP"
    assert WEATHER.find("TEMP") == 2
    assert NESTED.names == ("id", "loc.lat", "loc.lon", "loc.at.a b", "x")
    place = "STRUCT<lat: DOUBLE, lon: DOUBLE, at: STRUCT<`a b`: INT>>"
    assert NESTED.text == f"id BIGINT NOT NULL, loc {place}, x STRING"


@pytest.mark.parametrize(
    "schema", [WEATHER, ALL, NESTED, Schema.parse("`a``b` int, `select` string, `é` date")]
)
def test_text_parses_back(schema: Schema) -> None:
    for order in ("declared", "name"):
        same = Schema.parse(schema.text, order)
        again = Schema.parse(same.text, order)
        assert same == again
        assert hash(same) == hash(again)
        assert same.text == schema.text
        assert pickle.loads(pickle.dumps(same)) == same
    assert schema != Schema.parse(schema.text, "name")


def test_aliases_and_case() -> None:
    schema = Schema.parse("a byte, b short, c integer, d LONG, e real, f Timestamp_LTZ, g: string")
    assert schema.text == "a TINYINT, b SMALLINT, c INT, d BIGINT, e FLOAT, f TIMESTAMP, g STRING"


@pytest.mark.parametrize(
    ("ddl", "shown"),
    [
        ("", "the name of an attribute expected\n  \n  ^"),
        ("a", "the type of 'a' expected\n  a\n   ^"),
        (
            "a INT, A STRING",
            (
                "attribute 'A' is declared twice (Spark takes names whatever their case)\n"
                "  a INT, A "
                "STRING\n         ^"
            ),
        ),
        ("a INT b INT", "',' or the end of the schema expected\n  a INT b INT\n        ^"),
        ("a INT,", "the name of an attribute expected\n  a INT,\n        ^"),
        (
            "`a.b` INT",
            (
                "a name has no dot, no control character and no space at its ends\n  `a.b` INT\n  "
                "^^^^^"
            ),
        ),
        ("a INT NOT", "NULL expected after NOT\n  a INT NOT\n           ^"),
        ("a STRUCT<b INT", "',' or '>' expected\n  a STRUCT<b INT\n                ^"),
        ("a INT; b INT", "a name, a type, ',' or ':' expected\n  a INT; b INT\n       ^"),
    ],
)
def test_ddl_errors(ddl: str, shown: str) -> None:
    with pytest.raises(SchemaError) as raised:
        Schema.parse(ddl)
    assert str(raised.value) == shown


def test_ddl_limits() -> None:
    with pytest.raises(SchemaError, match="type DECIMAL is not supported; supported: STRING, "):
        Schema.parse("a DECIMAL(10, 2)")
    assert (
        len(Schema.parse(", ".join(f"a{i} INT" for i in range(ATTRIBUTES_MAX))).names)
        == ATTRIBUTES_MAX
    )
    with pytest.raises(SchemaError, match="at most 256 attributes"):
        Schema.parse(", ".join(f"a{i} INT" for i in range(ATTRIBUTES_MAX + 1)))
    with pytest.raises(SchemaError, match="structs are at most 8 deep"):
        Schema.parse("a " + "STRUCT<a: " * 500 + "INT" + ">" * 500)
    with pytest.raises(SchemaError, match="at most 65,536 characters"):
        Schema.parse("a" * (DDL_MAX + 1))
    with pytest.raises(SchemaError, match="1 to 128 characters"):
        Schema.parse("a" * 129 + " INT")


@settings(deadline=None)
@given(st.text() | st.text("ab` :,<>INTSTRUCT"))
def test_any_ddl_parses_or_is_a_schema_error(ddl: str) -> None:
    try:
        schema = Schema.parse(ddl)
    except SchemaError:
        return
    assert Schema.parse(schema.text) == schema


def test_row() -> None:
    now = datetime.now(UTC)
    event = {"country": "CH", "city": "Genève", "temp": 31, "at": now}
    assert WEATHER.row(event) == ("CH", "Genève", 31, now)
    assert WEATHER.row({"temp": 31}) == (None, None, 31, None)
    assert WEATHER.row({}) == (None,) * 4
    assert WEATHER.row({"temp": None, "country": "CH"}) == ("CH", None, None, None)
    assert WEATHER.row(Event("weather", 1, 2, 3, event)) == ("CH", "Genève", 31, now)
    assert (
        WEATHER.row(MappingProxyType(event))
        == WEATHER.row(OrderedDict(event))
        == WEATHER.row(event)
    )


EAST = timezone(timedelta(hours=2))


@pytest.mark.parametrize(
    ("name", "given_value", "value"),
    [
        ("d", 3, 3.0),
        ("d", True, "attribute 'd' is DOUBLE, not bool: True"),
        ("d", 10**400, "is out of the range of DOUBLE"),
        ("d", "3", "attribute 'd' is DOUBLE, not str: '3'"),
        ("f", 0.1, 0.10000000149011612),
        ("f", 1e39, "attribute 'f': 1e+39 is out of the range of FLOAT"),
        ("f", math.inf, math.inf),
        ("i", 2**31, "attribute 'i': 2147483648 is out of the range of INT"),
        ("i", True, "attribute 'i' is INT, not bool: True"),
        ("i", 1.0, "attribute 'i' is INT, not float: 1.0"),
        ("t", -128, -128),
        ("t", 128, "out of the range of TINYINT"),
        ("h", 32768, "out of the range of SMALLINT"),
        ("l", 2**63, "out of the range of BIGINT"),
        ("b", 1, "attribute 'b' is BOOLEAN, not int: 1"),
        ("s", b"x", "attribute 's' is STRING, not bytes: b'x'"),
        ("s", "\ud800", "attribute 's' is STRING, not text with lone surrogates"),
        ("s", "\U0001f600", "\U0001f600"),
        ("bin", bytearray(b"x"), b"x"),
        ("bin", "x", "attribute 'bin' is BINARY, not str"),
        ("at", datetime(2024, 1, 1, 2), datetime(2024, 1, 1, 2, tzinfo=UTC)),
        ("at", datetime(2024, 1, 1, 2, tzinfo=EAST), datetime(2024, 1, 1, 0, tzinfo=UTC)),
        ("at", datetime(1, 1, 1, tzinfo=EAST), "is out of the range of TIMESTAMP"),
        ("at", date(2024, 1, 1), "attribute 'at' is TIMESTAMP, not date"),
        ("day", date(2024, 1, 1), date(2024, 1, 1)),
        ("day", datetime(2024, 1, 1), "attribute 'day' is DATE, not datetime"),
    ],
)
def test_row_converts_or_explains(name: str, given_value: Any, value: Any) -> None:
    place = ALL.names.index(name)
    if isinstance(value, str) and value != given_value:
        with pytest.raises(EventError) as raised:
            ALL.row({name: given_value})
        assert value in str(raised.value)
        return
    row = ALL.row({name: given_value})
    assert row[place] == value
    assert type(row[place]) is type(value)
    if isinstance(value, datetime):
        assert row[place].tzinfo is UTC
    assert ALL.row(ALL.values(row)) == row


VALUES: list[Any] = [
    None, "CH", "Genève", "\ud800", "a\nb", b"x", True, 0, 31, 2**31, -(2**63), 2**63,
    0.1, 0.5, math.nan, math.inf,
    datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1), date(2024, 1, 1),
]  # fmt: skip


class Publication(Weighed):
    def __init__(self) -> None:
        self.size = 0


@settings(deadline=None, max_examples=300)
@given(st.sampled_from([WEATHER, ALL, NESTED]), st.data())
def test_the_short_ways_of_a_publisher_give_the_same_row_or_leave_it_to_others(
    schema: Schema, data: st.DataObject
) -> None:
    names = sorted({path[0] for path in (a.path for a in schema.attributes)} | {"unknown"})
    event = data.draw(
        st.dictionaries(
            st.sampled_from(names),
            st.sampled_from([*VALUES, {}, {"lat": 0.5}]),
            max_size=len(names),
        )
    )
    rows: list[tuple[Any, ...]] = []
    publication = Publication()
    ticket = schema.lane(10)("wire", publication, rows, lambda *given: given, 1, 10**6, 10**6)(
        "wire", event
    )
    try:
        row = schema.row(event)
    except EventError:
        assert ticket is None
        with pytest.raises(EventError):
            schema.weighed(10)(event)
        return
    size = 10 * len(schema.attributes) + sum(
        len(value) for value in row if isinstance(value, str | bytes)
    )
    # By their repr: NaN is not equal to itself, and True is equal to 1.
    assert repr(schema.weighed(10)(event)) == repr((row, size))
    if ticket is not None:
        assert ticket == (publication, 0)
        assert repr(rows) == repr([row])
        assert publication.size == size
    else:
        assert not rows
        assert publication.size == 0
        plain = len(names) - 1 == len(schema.attributes)
        exact = (
            all(event.get(name) is value for name, value in zip(schema.names, row, strict=True))
            if plain
            else False
        )
        assert not exact, "values of the right type go the short way"


def test_the_short_way_ends_where_a_batch_is_full() -> None:
    publication, rows = Publication(), []
    lane = WEATHER.lane(10)("wire", publication, rows, lambda *given: given, 3, 200, 198)

    def accept(event: dict[str, Any]) -> Any:
        return lane("wire", event)

    assert lane("another", {}) is None
    event = {"country": "CH", "city": "Bern", "temp": 1, "at": None}
    assert [accept(event) is not None for _ in range(5)] == [True] * 3 + [False] * 2
    assert publication.size == 3 * 46
    assert accept({**event, "city": "x" * 200}) is None
    publication.size, rows[:] = 0, []
    assert accept({**event, "city": "x" * 157}) is None, (
        "by itself heavier than it may be without being measured"
    )
    assert accept({**event, "city": "x" * 156}) is not None
    assert publication.size == 198


def test_row_names_the_unknown_attribute() -> None:
    with pytest.raises(
        EventError,
        match=r"^unknown attribute 'tmep' \(did you mean 'temp'\?\); the topic has country, city",
    ):
        WEATHER.row({"tmep": 3})
    with pytest.raises(EventError, match="unknown attribute 'Temp'"):
        WEATHER.row({"country": "CH", "city": "Bern", "Temp": 3, "at": None})
    with pytest.raises(EventError, match="unknown attribute 3;"):
        WEATHER.row({3: 3})  # type: ignore[dict-item]
    with pytest.raises(EventError, match="an event is a mapping of names to values, not int"):
        WEATHER.row(3)  # type: ignore[arg-type]
    with pytest.raises(
        EventError, match=r"unknown attribute 'loc.lap' \(did you mean 'loc.lat'\?\)"
    ):
        NESTED.row({"id": 1, "loc": {"lap": 1.0}})
    with pytest.raises(
        EventError, match="attribute 'loc' is a mapping of names to values, not float"
    ):
        NESTED.row({"id": 1, "loc": 1.0})
    with pytest.raises(EventError, match="'id' is NOT NULL, and the event has no value"):
        NESTED.row({"x": "a"})


def test_structs() -> None:
    event = {"id": 1, "loc": {"lat": 1.5, "lon": 2.5, "at": {"a b": 3}}, "x": "y"}
    assert NESTED.row(event) == (1, 1.5, 2.5, 3, "y")
    assert NESTED.values((1, 1.5, 2.5, 3, "y")) == event
    assert NESTED.row({"id": 1, "loc": {"lon": 2}}) == (1, None, 2.0, None, None)
    assert NESTED.row({"id": 1, "loc": None}) == (1, None, None, None, None)
    assert NESTED.values((1,)) == {"id": 1, "loc": None, "x": None}


def test_values() -> None:
    assert WEATHER.values(("CH", "Bern", 3, None)) == {
        "country": "CH",
        "city": "Bern",
        "temp": 3,
        "at": None,
    }
    assert WEATHER.values(("CH",)) == {"country": "CH", "city": None, "temp": None, "at": None}
    with pytest.raises(EventError, match="a row of 5 values for a schema of 4 attributes"):
        WEATHER.values((None,) * 5)


def test_names_never_become_code() -> None:
    hostile = "'); import os; ('"
    schema = Schema.parse(f"`{hostile}` INT, `k0` INT, `m` STRING")
    assert schema.row({hostile: 1, "m": "x"}) == (1, None, "x")
    assert schema.values((1, 2, "x")) == {hostile: 1, "k0": 2, "m": "x"}


def test_row_type_checks_the_rows_of_peers() -> None:
    codec = msgspec.msgpack.Decoder(list[ALL.row_type])  # type: ignore[name-defined]
    now = datetime(2024, 1, 1, 10, 0, 0, 5, UTC)
    row = ALL.row(
        {
            "s": "é",
            "bin": b"\0",
            "b": True,
            "t": 1,
            "h": 2,
            "i": 3,
            "l": 4,
            "f": 0.5,
            "d": math.inf,
            "at": now,
            "day": date(2024, 1, 1),
        }
    )
    assert codec.decode(msgspec.msgpack.encode([row, (None,) * 11])) == [row, (None,) * 11]
    for place, bad in [
        (0, 3),
        (2, 1),
        (3, 128),
        (4, 2**15),
        (5, 2**31),
        (6, 2**63),
        (8, "x"),
        (9, datetime(2024, 1, 1)),
    ]:
        with pytest.raises(msgspec.ValidationError):
            codec.decode(msgspec.msgpack.encode([(*row[:place], bad, *row[place + 1 :])]))
    with pytest.raises(msgspec.ValidationError):
        codec.decode(msgspec.msgpack.encode([row[:4]]))
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode((None,) * 5), type=NESTED.row_type)


def test_event_reads_like_a_mapping() -> None:
    event = Event("weather", 7, 1, 42, {"temp": 3, "city": None})
    assert event.id == (7, 1, 42)
    assert event["temp"] == 3
    assert event.get("city", "x") is None
    assert event.get("none", 5) == 5
    assert dict(event) == {"temp": 3, "city": None}
    assert list(event) == ["temp", "city"]
    assert (len(event), "temp" in event, "x" in event) == (2, True, False)
    assert list(event.items()) == [("temp", 3), ("city", None)]
    assert {event: 1}[Event("weather", 7, 1, 42, {"temp": 3, "city": None})] == 1
    with pytest.raises(KeyError):
        event["x"]
    with pytest.raises(AttributeError):
        event.topic = "other"  # type: ignore[misc]
