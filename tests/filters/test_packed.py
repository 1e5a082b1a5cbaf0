"""Batches by columns: the bytes, the refusals, and filters over columns."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filters import generate, worlds
from gossamer.filters import EventError, Filter, Schema
from gossamer.filters.mask import compile_mask
from gossamer.filters.packed import Columns, Packed

SCHEMA = Schema.parse(
    "country STRING NOT NULL, temp INT, at TIMESTAMP, day DATE, place STRUCT<lat: DOUBLE, raw: "
    "BINARY>"
)
EVENTS = [
    {
        "country": "CH",
        "temp": 31,
        "at": datetime(2026, 1, 2, 3, 4, 5, 6, UTC),
        "day": date(1, 1, 1),
        "place": {"lat": 46.2},
    },
    {"country": "é漢", "temp": None, "at": None, "day": None, "place": None},
    {
        "country": "",
        "temp": -(2**31),
        "day": date(9999, 12, 31),
        "place": {"lat": float("inf"), "raw": b"\x00\xff"},
    },
]


def record(packed: Packed, events: list[dict[str, Any]] = EVENTS) -> pa.RecordBatch:
    return packed.from_values(events)


def test_rows_come_back_as_they_went() -> None:
    packed = Packed(SCHEMA)
    rows = [SCHEMA.row(event) for event in EVENTS]
    data = packed.pack(record(packed))
    assert packed.decode(data) == rows
    assert packed.decode(msgspec.msgpack.encode(rows)) == rows
    columns = Columns(packed, "t", 7, 1, range(5, 8), packed.columns(data, 3))
    assert [event.sequence for event in columns] == [5, 6, 7]
    assert columns[1].values == SCHEMA.values(rows[1])
    assert [row[2].tzinfo for row in packed.decode(data) if row[2]] == [UTC]


def test_a_batch_of_the_user_is_made_to_fit_or_refused() -> None:
    packed = Packed(Schema.parse("country STRING NOT NULL, temp INT, at TIMESTAMP"))
    given = pa.record_batch(
        {
            "country": pa.array(["CH", "DE"]).dictionary_encode(),
            "temp": pa.array([1, 2], pa.int64()),
        }
    )
    made = packed.record(given)
    assert made.schema.equals(packed.arrow_schema)
    assert packed.rows(made) == [("CH", 1, None), ("DE", 2, None)]
    # It is not copied.
    assert packed.record(made) is made
    for bad, why in (
        ({"country": ["CH"], "tenp": [1]}, "unknown attribute 'tenp'"),
        ({"country": [None, "CH"]}, "NOT NULL"),
        ({"country": ["CH"], "temp": ["warm"]}, "is INT"),
        ({"country": ["CH"], "temp": [2**40]}, "is INT"),
    ):
        with pytest.raises(EventError, match=why):
            packed.record(pa.record_batch(bad))
    late = pa.record_batch({"country": ["CH"], "at": pa.array([2**62], pa.timestamp("us", "UTC"))})
    with pytest.raises(EventError, match="years 1 to 9999"):
        packed.record(late)
    with pytest.raises(EventError, match="RecordBatch"):
        packed.record(pa.table({"country": ["CH"]}))


def _compressed(made: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(
        sink, made.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")
    ) as writer:
        writer.write_batch(made)
    stream = pa.ipc.MessageReader.open_stream(sink.getvalue())
    # This is the schema.
    stream.read_next_message()
    return stream.read_next_message().serialize().to_pybytes()


def test_bytes_that_a_peer_must_not_send_are_refused() -> None:
    packed = Packed(SCHEMA)
    made = record(packed)
    good = packed.pack(made)
    text = bytearray(good)
    # This is no UTF-8.
    text[good.index("é漢".encode())] = 0xFF
    other = pa.record_batch({"a": [1, 2, 3]})
    missing = made.set_column(0, "country", pa.array(["CH", None, ""]))
    for data, why in (
        (_compressed(made), "compressed"),
        (bytes(text), "no record batch"),
        (other.serialize().to_pybytes(), "no record batch"),
        (SCHEMA_MESSAGE, "not a record batch|no record batch"),
        (missing.serialize().to_pybytes(), "NOT NULL"),
        (b"\xff", "no record batch"),
        (b"\xff" * 64, "no record batch"),
        # Here Arrow says that a stream ends.
        (b"\xff" * 4 + bytes(4), "no record batch"),
        (good[: len(good) // 2], "no record batch"),
        (packed.pack(made.slice(0, 2)), "2 rows in a batch of 3"),
    ):
        with pytest.raises(msgspec.ValidationError, match=why):
            packed.columns(data, 3)


SCHEMA_MESSAGE = pa.schema([("a", pa.int64())]).serialize().to_pybytes()


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_no_bytes_of_a_peer_do_more_than_be_refused(data: st.DataObject) -> None:
    packed = Packed(SCHEMA)
    good = bytearray(packed.pack(record(packed)))
    for _ in range(data.draw(st.integers(1, 8))):
        good[data.draw(st.integers(1, len(good) - 1))] = data.draw(st.integers(0, 255))
    try:
        rows = packed.decode(bytes(good))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return
    for row in rows:
        # Every row that got through fits the schema.
        SCHEMA.row(SCHEMA.values(row))


def test_columns_of_an_older_schema_end_in_nulls() -> None:
    older, newer = Packed(Schema.parse("a INT")), Packed(Schema.parse("a INT, b STRING"))
    data = older.pack(older.from_values([{"a": 1}, {"a": None}]))
    assert newer.rows(newer.columns(data, 2)) == [(1, None), (None, None)]


@given(st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_masks_are_the_verdicts_of_the_filters(seed: int) -> None:
    batch = generate.batch(seed, texts=12, events=25)
    schema = Schema.parse(batch.ddl)
    packed, rows = Packed(schema), [schema.row(event) for event in batch.events]
    made = packed.from_values(batch.events)
    # NaN is not equal to itself.
    assert packed.rows(made) == rows or any(value != value for row in rows for value in row)
    for filter in worlds.parsed(batch.texts, schema):
        passed = compile_mask(filter, packed)(made)
        expected = [filter.matches_row(row) for row in rows]
        assert (np.ones(len(rows), bool) if passed is None else passed).tolist() == expected, (
            filter.text
        )


def test_masks_by_hand() -> None:
    packed = Packed(SCHEMA)
    made = record(packed)
    for text, expected in (
        ("", None),
        ("temp > 30", [True, False, False]),
        ("temp IN (31, 5) OR country = ''", [True, False, True]),
        ("country <> 'CH'", [False, True, True]),
        ("place.lat IS NULL", [False, True, False]),
        ("at >= TIMESTAMP '2026-01-02 03:04:05.000006Z'", [True, False, False]),
        ("day = DATE '9999-12-31'", [False, False, True]),
        ("country LIKE '%漢'", [False, True, False]),
        ("place.lat > 46.0", [True, False, True]),
    ):
        passed = compile_mask(Filter.parse(text, SCHEMA), packed)(made)
        assert (passed if passed is None else passed.tolist()) == expected, text


def test_few_bytes_do_not_become_millions_of_missing_values() -> None:
    """A peer says that its events are of a schema with one attribute, and there are 256."""
    older = Packed(Schema.parse("a BOOLEAN"))
    newer = Packed(Schema.parse("a BOOLEAN, " + ", ".join(f"b{n} BIGINT" for n in range(255))))
    data = older.pack(older.from_values([{"a": True}] * 32_768))
    assert len(data) < 5000
    with pytest.raises(msgspec.ValidationError, match="lack 8355840 values"):
        newer.columns(data, 32_768)
    # Rows are few enough.
    assert len(newer.decode(msgspec.msgpack.encode([[]] * 4096))) == 4096
    with pytest.raises(msgspec.ValidationError, match="length <= 4096"):
        newer.decode(msgspec.msgpack.encode([[]] * 4097))


def test_an_older_version_of_a_schema_may_lack_many_attributes() -> None:
    """A publisher that sends full batches by the version before forty attributes were added."""
    older = Packed(Schema.parse("a BIGINT, t STRING"))
    newer = Packed(Schema.parse("a BIGINT, t STRING, " + ", ".join(f"b{n} INT" for n in range(40))))
    data = older.pack(older.from_values([{"a": 1, "t": "some text"}] * 32_768))
    assert newer.columns(data, 32_768).num_columns == 42
    rows = msgspec.msgpack.encode([[1, "x"]] * 4096)
    assert newer.decode(rows)[0] == (1, "x", *[None] * 40)
