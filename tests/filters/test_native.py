"""The compiled loops beside the Python ones: the same rows, events and bytes, and the same
refusals.
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
import os
import shutil
import subprocess
import sys
import sysconfig
from datetime import UTC, date, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gossamer
from gossamer.filters import Event, EventError, Filter, FilterError, Schema, loops, rows
from gossamer.filters.loops import native
from gossamer.filters.packed import Packed

SCHEMAS = [
    Schema.parse(text)
    for text in (
        "country STRING, city STRING, temp INT, at BIGINT",
        (
            "name STRING NOT NULL, data BINARY, flag BOOLEAN, tiny TINYINT, small SMALLINT, ratio "
            "FLOAT, wide DOUBLE NOT NULL"
        ),
        "at TIMESTAMP, day DATE, n INT NOT NULL",
        # It is longer than a short array of msgpack.
        ", ".join(f"a{n} INT" for n in range(20)),
    )
]
VALUES: list[Any] = [
    None, "", "CH", "Genève", "𝄞", "一", "\ud800", "x" * 31, "y" * 32, "z" * 300, "é" * 24,
    b"", b"x" * 300, True, False, 0, 1, -1, 31, 127, 128, -128, -129, 32767, 32768, -32769,
    2**31 - 1, 2**31, -(2**31) - 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**70,
    0.0, -0.0, 0.5, 0.1, 1e300, math.inf, -math.inf, math.nan,
    datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1), date(2024, 1, 1), [], {},
]  # fmt: skip
encode = msgspec.msgpack.Encoder().encode


class Text(str):
    """A subclass, which does not have exactly the right type."""


def test_the_loops_are_compiled_if_there_is_a_compiler() -> None:
    if os.environ.get("GOSSAMER_PURE"):
        pytest.skip("GOSSAMER_PURE is set")
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if (
        shutil.which(compiler) is None
        or not Path(sysconfig.get_path("include"), "Python.h").exists()
    ):
        pytest.skip(f"there is no C compiler ({compiler}), or no Python.h for it")
    assert native is not None, "make install compiles it; see hatch_build.py"


@pytest.mark.parametrize("pure", ["", "1"])
def test_the_version_says_whether_it_is_compiled(pure: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gossamer", "--version"],
        env={**os.environ, "GOSSAMER_PURE": pure},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    how = "pure Python" if pure or native is None else "compiled"
    assert done.stdout == f"gossamer {gossamer.__version__} ({how})\n"


needs_native = pytest.mark.skipif(native is None, reason="nothing is compiled: see the test above")


@pytest.fixture(scope="module")
def python() -> ModuleType:
    """loops.py as it is when nothing is compiled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GOSSAMER_PURE", "1")
        spec = importlib.util.spec_from_file_location("pure_loops", loops.__file__)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    assert module.native is None
    return module


def events_of(schema: Schema) -> st.SearchStrategy[Any]:
    """Mappings for a schema, most of them nearly right."""
    names = st.sampled_from([*schema.names, "unknown"])
    plain = st.dictionaries(names, st.sampled_from([*VALUES, Text("CH"), 1 + 0j]))
    right = st.fixed_dictionaries(
        {name: good(kind) for name, kind in zip(schema.names, schema.types, strict=True)}
    )
    turned = right.map(lambda event: dict(reversed(event.items())))
    spoilt = st.tuples(right, plain).map(
        lambda both: {**both[0], **dict(list(both[1].items())[:1])}
    )
    return st.one_of(right, turned, spoilt, plain, st.sampled_from([None, 5, [], "x"]))


def good(kind: str) -> st.SearchStrategy[Any]:
    bits = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}.get(kind)
    if bits:
        return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return {
        "STRING": st.one_of(st.text(max_size=40), st.sampled_from([2, 70_000]).map("z".__mul__)),
        "BINARY": st.binary(max_size=300),
        "BOOLEAN": st.booleans(),
        "FLOAT": st.floats(width=32),
        "DOUBLE": st.floats(),
        "DATE": st.dates(),
        "TIMESTAMP": st.datetimes(timezones=st.just(UTC)),
    }[kind]


def outcome(function: Any, *given: Any) -> str:
    """The outcome by its repr: NaN is not equal to itself, and True is equal to 1."""
    try:
        return repr(function(*given))
    except EventError as error:
        return f"refused: {error}"


schema_and_events = st.sampled_from(SCHEMAS).flatmap(
    lambda schema: st.tuples(st.just(schema), st.lists(events_of(schema), max_size=6))
)


@needs_native
@settings(deadline=None, max_examples=400)
@given(schema_and_events)
def test_rows_are_those_that_python_makes(drawn: tuple[Schema, list[Any]]) -> None:
    schema, events = drawn
    assert outcome(schema.rows, events) == outcome(rows.make_rows(schema.attributes), events)


@needs_native
@settings(deadline=None, max_examples=400)
@given(schema_and_events, st.integers(1, 4), st.integers(0, 900), st.integers(0, 400))
def test_a_lane_takes_the_same_events_as_the_one_in_python(
    drawn: tuple[Schema, list[Any]], most: int, most_bytes: int, heavy: int
) -> None:
    schema, events = drawn

    class Publication(loops.Weighed):
        pass

    results = []
    for make in (schema.lane(10), rows.make_lane(schema.attributes, 10)):
        publication, into = Publication(), []
        publication.size = 7
        lane = make("wire", publication, into, lambda _, place: place, most, most_bytes, heavy)
        tickets = [lane("wi" + "re", event) for event in events]
        assert [lane("other", event) for event in events] == [None] * len(events)
        results.append(repr((tickets, into, publication.size)))
    assert results[0] == results[1]


def those_that_fit(schema: Schema, events: list[Any]) -> list[tuple[Any, ...]]:
    found = []
    for event in events:
        with contextlib.suppress(EventError):
            found.append(schema.row(event))
    return found


def decoded(schema: Schema, data: bytes) -> str:
    row: Any = schema.row_type
    try:
        return repr(msgspec.msgpack.Decoder(list[row]).decode(data))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return "refused"


def mutated(data: bytes, changes: list[tuple[int, int, int]]) -> bytes:
    """Some bytes replaced, inserted or taken away."""
    found = bytearray(data)
    for place, byte, what in changes:
        at = place % (len(found) + 1)
        found[at : at + (what > 0)] = bytes([byte]) if what < 2 else b""
    return bytes(found)


changes = st.lists(
    st.tuples(st.integers(0, 10**6), st.integers(0, 255), st.integers(0, 2)), max_size=4
)


@needs_native
@settings(deadline=None, max_examples=600)
@given(schema_and_events, changes)
def test_bytes_are_read_as_msgspec_reads_them_or_left_to_it(
    drawn: tuple[Schema, list[Any]], spoil: list[tuple[int, int, int]]
) -> None:
    schema, events = drawn
    fitting = those_that_fit(schema, events)
    data = mutated(encode(fitting), spoil)
    assert schema.shape is not None
    found = schema.shape.decode(data)
    if found is not None:
        assert repr(found) == decoded(schema, data)
        assert repr(Packed(schema).decode(data)) == repr(found)
    elif not spoil and not any(kind in ("DATE", "TIMESTAMP") for kind in schema.types):
        pytest.fail("bytes that this node wrote are read the short way")


@needs_native
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x90",
        b"\xdc",
        b"\xdd\xff\xff\xff\xff",
        b"\xdc\xff\xff" + b"\x94" * 70_000,
        b"\x91\x94\xd9",
    ],
)
def test_bytes_that_promise_too_much(data: bytes) -> None:
    shape = SCHEMAS[0].shape
    assert shape is not None
    assert shape.decode(data) in (None, [])
    assert native.Cutter(data).cut([0]) is None


@needs_native
def test_texts_are_remembered_by_all_their_bytes() -> None:
    """The few thousand remembered texts give way to others, and no text is taken for another."""
    schema = Schema.parse("a STRING")
    assert schema.shape is not None
    texts = [f"{'é' * (n % 20)}{n:05}" for n in range(20_000)] * 2
    assert schema.shape.decode(encode([(text,) for text in texts])) == [(text,) for text in texts]


@needs_native
@settings(deadline=None)
@given(schema_and_events, st.integers(-1, 1), st.booleans())
def test_events_are_those_that_python_makes(
    drawn: tuple[Schema, list[Any]], more: int, shorter: bool
) -> None:
    schema, events = drawn
    fitting = those_that_fit(schema, events)
    if shorter and fitting:
        fitting[-1] = fitting[-1][:-1]
    numbers = range(5, 5 + max(0, len(fitting) + more))
    given_ = ("wire", 2**64 - 1, 3, numbers, fitting)
    assert repr(schema.events(*given_)) == repr(rows.make_events(schema.attributes)(*given_))
    assert all(type(event) is Event for event in schema.events(*given_))


TESTED = Schema.parse("name STRING, small TINYINT, n INT, wide BIGINT, ratio DOUBLE")
tested_texts = st.lists(
    st.one_of(
        st.builds(
            "{} {} {}".format,
            st.sampled_from(["small", "n", "wide"]),
            st.sampled_from(["<", "<=", ">", ">=", "=", "<>"]),
            st.sampled_from([0, 1, -1, 127, -128, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63) + 1]),
        ),
        st.builds("{} IN (1, 3, 127)".format, st.sampled_from(["n", "NOT n"])).map(
            lambda t: t.replace("NOT n IN", "n NOT IN")
        ),
        st.sampled_from(
            [
                "name = 'CH'",
                "name <> 'CH'",
                "name IN ('CH', 'é', '')",
                "name NOT IN ('CH', '一')",
                "name > 'CH'",
            ]
        ),
        st.sampled_from(["n IS NULL", "name IS NOT NULL", "ratio > 0.5", "ratio IS NULL"]),
    ),
    min_size=1,
    max_size=20,
).map(" AND ".join)
whole = st.one_of(st.none(), st.sampled_from([0, 1, 3, -1, 127, 2**31 - 1, 2**63 - 1, -(2**63)]))
tested_rows = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from([None, "", "CH", "é", "一", "CI"]),
            whole,
            whole,
            whole,
            st.sampled_from([None, 0.5, math.nan]),
        ),
        # The row is short, or not of the schema.
        st.tuples(st.sampled_from(VALUES[:10]), st.sampled_from([1, True, 2**70, 1.0, None])),
    ),
    max_size=12,
)


@needs_native
@settings(deadline=None, max_examples=500)
@given(tested_texts, tested_rows)
def test_the_rows_that_pass_are_those_that_python_finds(text: str, given_rows: list[Any]) -> None:
    # An integer may be too large for its attribute.
    with contextlib.suppress(FilterError):
        found = Filter.parse(text, TESTED)
        one_by_one = [place for place, row in enumerate(given_rows) if found.matches_row(row)]
        assert found.passing(given_rows) == found.passing(tuple(given_rows)) == one_by_one


@needs_native
def test_rows_that_pass_are_found_without_python() -> None:
    """Otherwise the test above would compare Python with itself."""
    schema = Schema.parse("name STRING, n INT, ratio DOUBLE")
    for text in ("n BETWEEN 1 AND 5", "name = 'CH' AND n <> 3", "name IS NOT NULL", "n IN (1, 2)"):
        assert type(Filter.parse(text, schema).passing) is native.Passing
    for text in ("ratio > 1", "name LIKE 'C%'", "n = 1 OR name = 'CH'", "name > 'A'"):
        assert type(Filter.parse(text, schema).passing) is not native.Passing
    asked: list[Any] = []
    passing = native.Passing(
        ((0, loops.RANGE, 1, 5, frozenset()),), lambda rows: asked.append(rows) or [9]
    )
    assert passing([(1,), (None,), (6,), (5,)]) == [0, 3]
    assert not asked
    for odd in ([(1,), ()], [(True,)], [(2**64,)], [[1]], [("1",)], ((1,),)):
        assert passing(odd) == [9]
    for test in (
        (-1, loops.RANGE, 0, 0, frozenset()),
        (0, 5, 0, 0, frozenset()),
        (0, loops.AMONG, 0, 0, {1}),
    ):
        with pytest.raises(ValueError, match="no such test"):
            native.Passing((test,), list)
    with pytest.raises(ValueError, match="17 tests"):
        native.Passing(((0, loops.RANGE, 0, 0, frozenset()),) * 17, list)


small_rows = st.lists(
    st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 5), st.floats()), max_size=30
)


@needs_native
@settings(deadline=None)
@given(small_rows, st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True), st.booleans())
def test_shares_are_the_same(
    python: ModuleType, given_rows: list[Any], where: list[int], short: bool
) -> None:
    if short and given_rows:
        given_rows = [*given_rows, ("a",)]
    results: list[Any] = []
    for module in (loops, python):
        known: dict[Any, tuple[int, ...]] = {}
        asked: list[Any] = []

        def answer(row: Any, asked: list[Any] = asked) -> tuple[int, ...]:
            asked.append(row)
            return tuple(
                taker
                for taker in range(4)
                if row[0] != "b" and (len(row) < 2 or row[1] % (taker + 1) == 0)
            )

        try:
            results.append(
                repr((module.shares(given_rows, tuple(where), known, answer, 4), known, asked))
            )
        except IndexError:
            results.append("too short")
    assert results[0] == results[1]


@needs_native
def test_calls_that_no_caller_makes_are_refused() -> None:
    """No peer can cause these calls. They must not touch memory all the same."""
    with pytest.raises(ValueError, match="from 1 to 16"):
        loops.shares([("a",)], (), {}, lambda row: (), 1)
    for where, takers in (((0,), (7,)), ((-1,), (0,)), ((1,), (0,))):
        with pytest.raises(IndexError):
            loops.shares([("a",)], where, {}, lambda row, takers=takers: takers, 1)
    rows: list[Any] = [("a",), ("b",), ("c",)]
    assert loops.shares(rows, (0,), {}, lambda row: rows.clear() or (0,), 1) == [[0]]
    for call in (
        lambda: native.Shape(("a",), ["INT", "INT"], [False, False], Event),
        lambda: native.Lane(),
        lambda: native.Cutter(None),
        lambda: native.ascends(None),
        lambda: native.tally([0], [0], None),
        lambda: native.shares(None, (0,), {}, None, 1),
        lambda: native.tally([0], Longer([0]), (1, 2)),
    ):
        with pytest.raises((TypeError, ValueError)):
            call()
    assert native.Cutter(encode([(1,), (2,)])).cut(Longer([1])) == encode([(2,), (2,), (2,)])


class Longer(list[int]):
    """It has more elements than it says."""

    def __iter__(self) -> Any:
        return iter([self[0]] * 3)

    def __len__(self) -> int:
        return 2


@needs_native
def test_an_extension_of_an_older_source_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "VERSION", native.VERSION - 1)
    assert loops._compiled() is None
    monkeypatch.undo()
    assert loops._compiled() is native


@needs_native
@settings(deadline=None, max_examples=300)
@given(st.data(), changes)
def test_rows_cut_from_bytes_are_the_rows(
    data: st.DataObject, spoil: list[tuple[int, int, int]]
) -> None:
    schema = data.draw(st.sampled_from(SCHEMAS))
    drawn = data.draw(st.lists(events_of(schema), max_size=40))
    fitting = those_that_fit(schema, drawn)
    places = sorted(data.draw(st.sets(st.integers(0, len(fitting) - 1)))) if fitting else []
    encoded = encode(fitting)
    cutter = native.Cutter(encoded)
    assert cutter.cut(places) == encode([fitting[place] for place in places])
    assert cutter.cut(places[::-1]) == encode([fitting[place] for place in reversed(places)])
    assert cutter.cut([len(fitting)]) is None
    assert cutter.cut([-1]) is None
    # Whatever the places are, it ends.
    native.Cutter(mutated(encoded, spoil)).cut(places)


@needs_native
def test_as_many_rows_as_fit_the_head_of_a_list_are_cut() -> None:
    whole = [(n,) for n in range(70_000)]
    cutter = native.Cutter(encode(whole))
    for count in (0, 1, 15, 16, 255, 65_535):
        assert cutter.cut(range(count)) == encode(whole[:count])
    assert cutter.cut(range(65_536)) is None


@needs_native
@settings(deadline=None)
@given(
    st.lists(st.integers(-3, 2**53), max_size=12),
    st.integers(0, 2**53),
    st.lists(st.integers(0, 2**32), max_size=12),
)
def test_the_small_ones_are_the_same(
    python: ModuleType, places: list[int], by: int, counts: list[int]
) -> None:
    offsets = tuple(place for place in places if place >= 0)
    assert loops.ascends(offsets) == python.ascends(offsets)
    assert loops.shifted(offsets, by) == python.shifted(offsets, by)
    here = [place % 7 for place in offsets]
    for matched in (tuple(counts[:1]), tuple(counts[: len(here)])):
        results = []
        for module in (loops, python):
            total = [1] * 7
            try:
                module.tally(total, here, matched)
                results.append(repr(total))
            except ValueError:
                results.append("refused")
        assert results[0] == results[1]


@needs_native
def test_a_simulation_is_the_same_to_the_byte_without_anything_compiled() -> None:
    command = [
        sys.executable,
        "-m",
        "gossamer",
        "simulate",
        "swarm",
        "--overlay",
        "fabric",
        "--seeds",
        "2",
        "--json",
    ]
    told = []
    for pure in ("", "1"):
        done = subprocess.run(
            command,
            env={**os.environ, "GOSSAMER_PURE": pure},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
            cwd=Path(__file__).parent,
        )
        told.append(done.stdout)
    assert '"digest"' in told[0]
    assert told[0] == told[1]
