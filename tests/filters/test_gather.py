"""Record batches that become one, by either way; texts of peers; memory that is used again."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.filters import Schema, loops
from gossamer.filters.gather import COPIES_MAX, Copies, Gather, sealed
from gossamer.filters.packed import Packed, is_columns

SCHEMA = Schema.parse(
    "s STRING, b BINARY, i TINYINT, j SMALLINT, k INT, l BIGINT, f FLOAT, d DOUBLE, day DATE, at "
    "TIMESTAMP"
)
PLAIN = Packed(SCHEMA)
ROWS, BYTES = 4096, 1 << 18
compiled = pytest.mark.skipif(loops.native is None, reason="nothing is compiled here")


def arrays(rows: int, text: str, seed: int) -> list[Any]:
    numbers = [(seed + 7 * row) % 100 for row in range(rows)]
    values: dict[str, list[Any]] = {
        "s": [text * (n % 5) for n in numbers],
        "b": [text.encode() * (n % 3) for n in numbers],
    }
    return [pa.array(values.get(field.name, numbers), field.type) for field in PLAIN.arrow_schema]


def record(rows: int, text: str = "ä", seed: int = 0) -> Any:
    return pa.RecordBatch.from_arrays(arrays(rows, text, seed), schema=PLAIN.arrow_schema)


def joined(records: list[Any]) -> Any:
    return pa.Table.from_batches(records).combine_chunks().to_batches()[0]


@st.composite
def slices(draw: st.DrawFn) -> Any:
    whole = record(
        draw(st.integers(1, 300)),
        draw(st.sampled_from(["", "x", "Zürich", "日本", "𝄞"])),
        draw(st.integers(0, 99)),
    )
    start = draw(st.integers(0, whole.num_rows - 1))
    return whole.slice(start, draw(st.integers(1, whole.num_rows - start)))


def gathered(begin: Any, records: list[Any]) -> tuple[Any, list[Any]]:
    """The sealed batch, and the record batches that are in it."""
    taken = [records[0]]
    made, _ = begin
    for one in records[1:]:
        if not made.add(one):
            break
        taken.append(one)
    return PLAIN.columns(sealed(made), sum(one.num_rows for one in taken)), taken


@settings(max_examples=120)
@given(st.lists(slices(), min_size=1, max_size=12))
def test_both_ways_give_the_added_rows(records: list[Any]) -> None:
    long = Copies(PLAIN, ROWS, BYTES)
    for begin in (Gather(PLAIN).begin(records[0], ROWS, BYTES), (long, long.begin(records[0]))):
        found, taken = gathered(begin, records)
        found.validate(full=True)
        assert found.equals(joined(taken))
        assert found.num_rows <= ROWS


@compiled
def test_columns_without_nulls_take_the_short_way_and_others_the_long_one() -> None:
    gather = Gather(PLAIN)
    assert type(gather.begin(record(3), ROWS, BYTES)[0]) is loops.native.Gathering
    nulls = pa.RecordBatch.from_arrays(
        [pa.array([None, *one.to_pylist()[1:]], one.type) for one in record(3).columns],
        schema=PLAIN.arrow_schema,
    )
    made, size = gather.begin(nulls, ROWS, BYTES)
    assert type(made) is Copies
    assert size > 0
    assert PLAIN.columns(sealed(made)).equals(nulls)
    begun, _ = gather.begin(record(3), ROWS, BYTES)
    assert not begun.add(nulls)
    bits = Packed(Schema.parse("yes BOOLEAN"))
    flags = pa.record_batch({"yes": [True, False, True]}, schema=bits.arrow_schema)
    made, _ = Gather(bits).begin(flags, ROWS, BYTES)
    assert type(made) is Copies
    assert made.add(flags)
    assert bits.columns(sealed(made)).to_pydict() == {"yes": [True, False, True] * 2}


@pytest.mark.parametrize("way", ["short", "long"])
def test_no_more_than_there_is_room_for(way: str) -> None:
    def begin(one: Any, rows: int, size: int) -> Any:
        copies = Copies(PLAIN, rows, size)
        return (
            Gather(PLAIN).begin(one, rows, size)[0]
            if way == "short"
            else (copies.begin(one), copies)[1]
        )

    made = begin(record(10), 25, BYTES)
    assert made.add(record(10))
    assert not made.add(record(10)), "rows"
    one = record(100, "x" * 100)
    made, several = begin(one, ROWS, 4 * one.nbytes), 1
    while made.add(one):
        several += 1
    assert 2 <= several <= 4, "bytes"
    assert not made.add(record(1, "y" * BYTES, seed=1)), "one text that is larger than all"
    assert PLAIN.columns(sealed(made)).equals(joined([one] * several))
    made, several = begin(record(1, ""), ROWS, BYTES), 1
    while made.add(record(1, "")):
        several += 1
    # A little room is left for longer texts, and empty ones need none.
    assert several <= COPIES_MAX + 40


@compiled
def test_older_contents_of_memory_are_not_shown() -> None:
    for _ in range(3):
        secret = memoryview(loops.native.Slab(1 << 18))
        secret[:] = b"secret!!" * (len(secret) // 8)
        del secret
        made, size = Gather(PLAIN).begin(record(700, "x"), ROWS, BYTES)
        while made.add(record(700, "x")):
            size += 1
        assert b"secret" not in bytes(sealed(made))
        small, _ = Gather(PLAIN).begin(record(3, "x"), ROWS, BYTES)
        assert b"secret" not in bytes(sealed(small))
        assert is_columns(bytes(sealed(Gather(PLAIN).begin(record(3), ROWS, BYTES)[0])))


@compiled
def test_memory_is_used_again_only_when_nobody_looks_at_it() -> None:
    kept = [memoryview(loops.native.Slab(300_000)) for _ in range(8)]
    for number, one in enumerate(kept):
        one[:] = bytes([number]) * len(one)
    held = [pa.py_buffer(one) for one in kept]
    del kept
    others = [memoryview(loops.native.Slab(300_000)) for _ in range(8)]
    for one in others:
        one[:] = b"\xff" * len(one)
    assert [set(one.to_pybytes()) for one in held] == [{number} for number in range(8)]
    with pytest.raises(ValueError, match="memory of"):
        loops.native.Slab(1 << 40)


def text_column(offsets: list[int], data: bytes, *, utf8: bool = True) -> Any:
    buffers = [None, pa.array(offsets, pa.int32()).buffers()[1], pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string() if utf8 else pa.binary(), len(offsets) - 1, buffers)


@compiled
@settings(max_examples=400)
@given(
    st.one_of(
        st.binary(max_size=80),
        st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass")),
        st.text(max_size=40).map(
            lambda text: ("ASCII of more than 32 bytes, " * 2 + text).encode(
                "utf-8", "surrogatepass"
            )
        ),
    ),
    st.data(),
    st.booleans(),
)  # fmt: skip
def test_texts_are_judged_as_arrow_judges_them(
    data: bytes, draw: st.DataObject, utf8: bool
) -> None:
    cuts = draw.draw(st.lists(st.integers(-1, len(data) + 1), max_size=6))
    offsets = draw.draw(st.sampled_from([sorted(cuts), cuts])) if cuts else [0]
    if draw.draw(st.booleans()):
        offsets = [0, *[cut for cut in offsets if cut >= 0], len(data)]
    try:
        text_column(offsets, data, utf8=utf8).validate(full=True)
        is_right = True
    except pa.ArrowInvalid:
        is_right = False
    rows = len(offsets) - 1
    verdict = loops.are_texts(pa.array(offsets, pa.int32()).buffers()[1], data, rows, utf8)
    if rows:
        assert verdict is is_right
    # Without any text, Arrow does not look where the texts would begin.
    else:
        assert is_right or not verdict


@compiled
def test_texts_of_every_kind_of_character_and_every_way_to_get_them_wrong() -> None:
    def judged(data: bytes) -> bool | None:
        return loops.are_texts(text_column([0, len(data)], data).buffers()[1], data, 1, True)

    for first in range(256):
        for rest in (
            b"",
            b"\x80",
            b"\x90\x80",
            b"\xa0\x80",
            b"\x80\x80\x80",
            b"\x90\x80\x80",
            b"\xbf\xbf\xbf",
            b"a",
            b"\x80a",
        ):
            data = b"0123456789abcdef" * 3 + bytes([first]) + rest
            try:
                data.decode()
                is_right = True
            except UnicodeDecodeError:
                is_right = False
            assert judged(data) is is_right, data
    halves = text_column([0, 1, 2], "ä".encode())
    assert loops.are_texts(*halves.buffers()[1:], 2, True) is False, "each half of a character"
    assert loops.are_texts(*halves.buffers()[1:], 2, False) is True
