"""Traces: every broken row, and no other, is kept in quarantine with its reason."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from gossamer.pipeline import formats, job, mapping, stages, traces
from gossamer.pipeline.contracts import check_rows, check_schema
from gossamer.pipeline.formats import TraceInputError
from gossamer.pipeline.mapping import MappingError
from gossamer.pipeline.tables import TABLES
from pipeline.live import ADVERTISED, A, B, publish, subscribe, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BROKEN = [
    ("", "blank line"),
    ("   ", "blank line"),
    ("p1,a.dsc", "not 4 columns"),
    ("p1,a.dsc,dsc,5,more", "not 4 columns"),
    ('"p1,a.dsc,dsc,5', "not 4 columns"),
    (",a.dsc,dsc,5", "peer is empty"),
    ("p1,  ,dsc,5", "name is empty"),
    ("p1,a.dsc,,5", "type is empty"),
    ("p1,a.dsc,dsc,", "size is empty"),
    ("p1,a.dsc,dsc,big", "size is not a whole number"),
    ("p1,a.dsc,dsc,1.5", "size is not a whole number"),
    ("p1,a.dsc,dsc,1e3", "size is not a whole number"),
    ("p1,a.dsc,dsc,9223372036854775808", "size is not a whole number"),
    ("p1,a.dsc,dsc,-1", "size is negative"),
]


NAMES = ["peer", "name", "type", "size"]


def parts(spark: SparkSession, *paths: Path, empty: tuple[str, ...] = ()) -> dict[str, DataFrame]:
    """The tables of some traces, each checked against its contract.

    Tables in ``empty`` have no row to check.
    """
    found = traces.split(stages.read_traces(spark, mapping.plain(paths)))
    for name, rows in found.items():
        check_schema(rows, TABLES[name])
        if name not in empty:
            assert check_rows(rows, TABLES[name]).rows
    return found


def rows(frame: DataFrame, *names: str) -> list[tuple[object, ...]]:
    return [tuple(row) for row in frame.orderBy("source", "line").select(*names).collect()]


def test_the_header_names_the_columns() -> None:
    assert formats.header("\ufeffPeer, name ,size,type,more", NAMES, "f") == [
        "peer",
        "name",
        "size",
        "type",
        "more",
    ]
    with pytest.raises(TraceInputError, match=r"f: no column type, size among \(peer, name\)"):
        formats.header("peer,name", NAMES, "f")
    with pytest.raises(TraceInputError, match="column name is there twice"):
        formats.header("peer,name,name,type,size", NAMES, "f")


@pytest.mark.spark
def test_each_broken_row_is_kept_with_its_reason(spark: SparkSession, tmp_path: Path) -> None:
    good = [
        "p1,a.dsc,dsc,5",
        '"p,2","a ""b"".dsc",dsc,0',
        "p3,é.dsc,dsc,9223372036854775807",
        "p1,a.dsc,dsc,5",
    ]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["peer,name,type,size", *good, *(row for row, _ in BROKEN), ""]))
    found = parts(spark, path, empty=("sessions", "rtts"))
    # No row vanished.
    assert found["holdings"].count() + found["quarantine"].count() == len(good) + len(BROKEN)
    kept = found["holdings"].join(found["items"].drop("source", "line"), on="item")
    assert [
        (peer, json.loads(str(values)), line)
        for peer, values, line in rows(kept, "peer", "values", "line")
    ] == [
        ("p1", {"name": "a.dsc", "type": "dsc", "size": 5}, 2),
        ("p,2", {"name": 'a "b".dsc', "type": "dsc", "size": 0}, 3),
        ("p3", {"name": "é.dsc", "type": "dsc", "size": 2**63 - 1}, 4),
    ]
    assert rows(found["quarantine"], "line", "table", "row", "reason") == [
        (5, "items", "p1,a.dsc,dsc,5", "repeated row"),
        *((line, "items", row, reason) for line, (row, reason) in enumerate(BROKEN, start=6)),
    ]


@pytest.mark.spark
def test_bytes_that_are_not_utf8_are_kept_apart(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"peer,name,type,size\np1,a\xff.dsc,dsc,5\np1,b.dsc,dsc,5\n")
    found = stages.read_traces(spark, mapping.plain([path]))
    assert rows(found, "line", "reason") == [(2, "not UTF-8"), (3, None)]


@pytest.mark.spark
def test_columns_are_found_by_name_in_several_files(spark: SparkSession, tmp_path: Path) -> None:
    first, second = tmp_path / "a b+c%20[1].csv", tmp_path / "two.csv.gz"
    first.write_text("size,more,type,name,peer\r\n7,x,dsc,a.dsc,p1\r\n", newline="")
    second.write_bytes(gzip.compress(b"size,type,name,peer,more\n8,dsc,b.dsc,p2,x\nbroken\n"))
    found = stages.read_traces(spark, mapping.plain([first, second]))
    assert rows(found, "source", "line", "peer", "reason") == [
        (str(first), 2, "p1", None),
        (str(second), 2, "p2", None),
        (str(second), 3, None, "not 5 columns"),
    ]


@pytest.mark.spark
def test_lines_are_numbered_however_a_file_is_split(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text("".join(f"line {number}\n" for number in range(1, 1001)))
    before = spark.conf.get("spark.sql.files.maxPartitionBytes")
    spark.conf.set("spark.sql.files.maxPartitionBytes", "1500")
    try:
        lines = job.read_lines(spark, [path])
        assert lines.where("row <> concat('line ', line)").count() == 0
        assert lines.count() == 1000
    finally:
        assert before is not None
        spark.conf.set("spark.sql.files.maxPartitionBytes", before)


@pytest.mark.spark
def test_unusable_input_is_a_clear_error(spark: SparkSession, tmp_path: Path) -> None:
    torn = gzip.compress(
        "".join(
            ["peer,name,type,size\n", *(f"p{n},n{n * n},t,{n}\n" for n in range(20000))]
        ).encode()
    )
    for name, content, said in (
        ("t.csv", b"", "an empty file; give one that has rows"),
        ("t.csv", b"\npeer", "its first line is empty"),
        ("t.csv", b"peer,name,type,size\n", "no rows; give a file that has some"),
        (
            "t.csv",
            b"x" * 5000,
            r"no column name, type, size, peer among \(x{200}\.\.\.\); the first line",
        ),
        ("t.csv", b"peer,name,type\np,n,t\n", "no column size"),
        ("t.csv.gz", torn[: len(torn) // 2], "cannot be read to the end"),
        ("t.csv", b"peer,name,type,size\np,n,t,1\np,n", "ends inside its last line"),
        (
            "t.jsonl",
            b'{"peer": "p", "name": "n", "type": "t", "size": 1}\n{"peer": "p", "na',
            "ends inside its last line",
        ),
        ("t.jsonl", b'{"peer": "p"}\n', "not one row has name, type, size"),
        ("t.parquet", b"PAR1 and no more", "cannot be read to the end"),
        ("_t.csv", b"peer,name,type,size\np,n,t,1\n", "Spark ignores files"),
        ("t.csv.xz", b"?", "Spark does not read .xz"),
        ("t.doc", b"?", "its name does not tell its format"),
        ("t.geojson", b"{}", "GeoJSON has no attributes of its own"),
    ):
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises((job.JobError, TraceInputError, MappingError), match=said):
            stages.read_traces(spark, mapping.plain([path])).count()
    with pytest.raises(TraceInputError, match="no such file"):
        stages.read_traces(spark, mapping.plain([tmp_path / "nothing.csv"]))


@pytest.mark.spark
def test_only_a_file_that_cannot_be_read_is_said_not_to_be_whole(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, torn = tmp_path / "good.csv", tmp_path / "t orn.csv.gz"
    good.write_text("peer,name,type,size\np,n,t,0\n")
    packed = gzip.compress(
        "".join(
            ["peer,name,type,size\n", *(f"p{n},n{n * n},t,{n}\n" for n in range(9000))]
        ).encode()
    )
    torn.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(
        job.JobError, match=r"^\S+/t orn\.csv\.gz: cannot be read to the end: EOFException: "
    ):
        stages.read_traces(spark, mapping.plain([good, torn]))
    (tmp_path / "map.toml").write_text(
        "[[source]]\nfiles = ['good.csv']\nschema = 'size INT'\nrefuse = { much = '1 / size > "
        "2' }\n"
    )
    with pytest.raises(
        job.JobError, match=r"DIVIDE_BY_ZERO.*do the conditions of refuse.*'1 / size > 2'"
    ) as refused:
        stages.read_traces(spark, mapping.load(tmp_path / "map.toml"))
    assert "whole" not in str(refused.value)
    monkeypatch.setattr(
        traces, "parse", lambda *_: spark.range(1).selectExpr("raise_error('a fault of ours')")
    )
    with pytest.raises(Exception, match="a fault of ours") as other:
        stages.read_traces(spark, mapping.plain([good]))
    assert not isinstance(other.value, job.JobError)


@pytest.mark.parametrize(
    ("name", "last", "cut"),
    [
        ("t.jsonl", '{"peer": "p", "na', True),
        ("t.jsonl", '{"peer": "é'.encode()[:-1], True),
        (
            "t.jsonl",
            '{"peer": "p", "na\n',
            False,
            # The line has an end, so it is a broken row like any other.
        ),
        ("t.jsonl", '{"peer": "p", "na\r\n', False),
        ("t.jsonl", '{"peer": "p"}', False),
        ("t.jsonl", "  ", False),
        # The line is too long to check.
        ("t.jsonl", f'{{"peer": "{"p" * 200_000}', False),
        ("t.csv", "p,n,t", True),
        ("t.csv", 'p,n,t,"1', True),
        ("t.csv", "p,n,t,1", False),
        ("t.csv", "p,n,t,1,2", False),
        ("t.csv", "p,n\n", False),
    ],
)
def test_a_plain_file_that_ends_inside_a_line(
    tmp_path: Path, name: str, last: str | bytes, cut: bool
) -> None:
    path = tmp_path / name
    first = "peer,name,type,size\n" if name == "t.csv" else '{"peer": "p"}\n'
    path.write_bytes(first.encode() + (last if isinstance(last, bytes) else last.encode()))
    read = json.loads if name == "t.jsonl" else formats._whole(NAMES)
    if not cut:
        formats._check_end(path, read)
        return
    with pytest.raises(
        TraceInputError,
        match=rf"{name}: ends inside its last line, which begins .* is the file whole\?",
    ):
        formats._check_end(path, read)


@pytest.mark.spark
def test_the_shipped_sample_is_whole(spark: SparkSession) -> None:
    found = traces.split(stages.read_traces(spark, ()))
    counted = {name: rows.count() for name, rows in found.items()}
    assert counted == {
        "peers": 1000,
        "items": 3449,
        "holdings": 3611,
        "sessions": 0,
        "rtts": 0,
        "quarantine": 0,
    }


MIXED = """
[[source]]
files = ["files.csv"]
schema = "name STRING NOT NULL, size BIGINT"
key = "id"
[[source]]
files = ["links.csv"]
table = "holdings"
peer = "who"
key = "id"
[[source]]
files = ["more.jsonl"]
topic = "readings"
schema = "place STRING, at TIMESTAMP NOT NULL, level DOUBLE, price FLOAT, day DATE, ok BOOLEAN"
columns = { place = "where.name", at = "t" }
units = { at = "ms" }
peer = "sensor"
refuse = { "too high" = "level > 100" }
[[source]]
files = ["quakes-*.geojson"]
topic = "quakes"
schema = "mag DOUBLE NOT NULL, place STRING, latitude DOUBLE, id STRING"
[[source]]
files = ["stays.csv"]
table = "sessions"
columns = { peer = "node", up = "from", down = "to" }
unit = "ms"
[[source]]
files = ["rtt.txt"]
table = "rtts"
format = "matrix"
[[source]]
files = ["p.parquet"]
topic = "table"
schema = "a BIGINT, b STRING"
"""


@pytest.mark.spark
def test_a_mapping_of_every_format(spark: SparkSession, tmp_path: Path) -> None:
    spark.createDataFrame([(1, "x"), (2, None)], "a INT, b STRING").coalesce(1).write.parquet(
        str(tmp_path / "parts")
    )
    next((tmp_path / "parts").glob("*.parquet")).rename(tmp_path / "p.parquet")
    quakes = [
        {
            "type": "Feature",
            "properties": {"mag": 2.5, "place": None},
            "geometry": {"coordinates": [1, 2.25]},
            "id": "a",
        },
        {"type": "Feature", "properties": {"mag": None}, "id": "b"},
        {
            "type": "Feature",
            "properties": {"mag": 3},
            "geometry": {"coordinates": [1, 2.25]},
            "id": "c",
        },
    ]
    readings = [
        {
            "sensor": 1,
            "where": {"name": "GVA"},
            "t": 1500,
            "level": 5,
            "price": 1.25,
            "day": "2020-01-31",
            "ok": True,
        },
        {"sensor": "s2", "t": 2, "level": 500},
        {"sensor": "s2", "t": "noon"},
        {"sensor": "s2", "t": 1, "price": "1,25"},
        {"sensor": "s2", "t": 1, "day": "2020-02-31"},
        {"t": 1},
    ]
    lines = [json.dumps(reading) for reading in readings]
    for name, text in {
        "map.toml": MIXED,
        "files.csv": "id,name,size\n1,a,5\n2,b,\n3,,7\n4,a,5\n4,c,1\n",
        "links.csv": "who,id\np,1\np,2\nq,4\nq,9\np,1\np,4\n,1\n",
        "more.jsonl": "\n".join([*lines, '{"t": 1', "[1]", ""]),
        "quakes-1.geojson": json.dumps({"type": "FeatureCollection", "features": quakes}),
        "stays.csv": "node,from,to,right_censored\n"
        "p,0,10,0\np,5,9,0\np,10,12,1\nq,5,4,0\nq,x,4,0\n",
        "rtt.txt": "0 1.5\n2 0\n",
    }.items():
        (tmp_path / name).write_text(text)
    found = traces.split(stages.read_traces(spark, mapping.load(tmp_path / "map.toml")))
    for name, frame in found.items():
        check_schema(frame, TABLES[name])
        check_rows(frame, TABLES[name])
    items = {(row["topic"], row["values"]): row["holders"] for row in found["items"].collect()}
    assert items == {
        ("files", '{"name":"a","size":5}'): 2,
        ("files", '{"name":"b"}'): 1,
        ("readings", ('{"place":"GVA","at":"1970-01-01T00:00:01.500000Z","level":5.0,'
            '"price":1.25,"day":"2020-01-31","ok":true}')): 1,
        ("quakes", '{"mag":2.5,"latitude":2.25,"id":"a"}'): 0,
        ("quakes", '{"mag":3.0,"latitude":2.25,"id":"c"}'): 0,
        ("table", '{"a":1,"b":"x"}'): 0,
        ("table", '{"a":2}'): 0,
    }  # fmt: skip
    assert rows(found["sessions"], "peer", "session", "up_us", "down_us") == [
        ("p", 0, 0, 10_000),
        ("p", 1, 10_000, None),
    ]
    assert rows(found["rtts"], "a", "b", "rtt_us") == [
        (0, 0, 0),
        (0, 1, 1500),
        (1, 0, 2000),
        (1, 1, 0),
    ]
    assert {(row["peer"], row["items"], row["sessions"]) for row in found["peers"].collect()} == {
        ("p", 2, 2), ("q", 1, 0), ("1", 1, 0),
    }  # fmt: skip
    broken = [
        (Path(row["source"]).name, row["line"], row["reason"])
        for row in found["quarantine"].collect()
    ]
    assert sorted(broken) == [
        ("files.csv", 4, "name is empty"),
        ("files.csv", 6, "another row has this key"),
        ("links.csv", 5, "no item has this key"),
        ("links.csv", 6, "repeated row"),
        ("links.csv", 7, "repeated row"),
        ("links.csv", 8, "who is empty"),
        ("more.jsonl", 2, "too high"),
        ("more.jsonl", 3, "at is not of type TIMESTAMP"),
        ("more.jsonl", 4, "price is not of type FLOAT"),
        ("more.jsonl", 5, "day is not of type DATE"),
        ("more.jsonl", 6, "sensor is empty"),
        ("more.jsonl", 7, "not JSON"),
        ("more.jsonl", 8, "not a JSON object"),
        ("quakes-1.geojson", 2, "mag is empty"),
        ("stays.csv", 3, "begins before the stay before it ended"),
        ("stays.csv", 5, "down is before up"),
        ("stays.csv", 6, "up is no moment, zero or more"),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no .*source"),
        ("[[source]]\nfiles = []\nformt = 1", "formt"),
        ("[[source]]\nfiles = ['none.csv']", "source 1: no such file"),
        ("[[source]]\nfiles = ['f.csv']", "no schema"),
        ("[[source]]\nfiles = ['f.csv']\ntable = 'rtts'", "go together"),
        ("[[source]]\nfiles = ['f.csv']\nschema = 'a INT'\nunit = 's'", "unit is for sessions"),
        (
            "[[source]]\nfiles = ['f.csv']\ntable = 'holdings'\npeer = 'p'",
            "holdings need peer and key",
        ),
        (
            "[[source]]\nfiles = ['f.csv']\ntable = 'sessions'\nschema = 'a INT'",
            "schema is for items, not for sessions",
        ),
        ("[[source]]\nfiles = ['f.csv']\ntable = 'sessions'\ncolumns = { x = 'y' }", "not x"),
        ("[[source]]\nfiles = ['f.csv']\nformat = 'debian'\npeer = 'x'", "has its own columns"),
    ],
)
def test_a_mapping_that_makes_no_sense_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "f.csv").write_text("a\n1\n")
    (tmp_path / "map.toml").write_text(text)
    with pytest.raises(MappingError, match=said):
        mapping.load(tmp_path / "map.toml")


@pytest.mark.spark
def test_the_schema_of_a_mapping_is_checked_before_the_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "f.csv").write_text("a,b\n1,2\n")
    for more, said in (
        ("schema = 'a INTT'", "Spark does not read the schema"),
        ("schema = 'a BINARY'", "a is binary, which no filter compares"),
        (
            "schema = 'a DECIMAL(4,2)'",
            r"a is DECIMAL\(4,2\), which no fabric carries; write DOUBLE",
        ),
        (
            "schema = 'p STRUCT<x: DECIMAL(4,2)>'",
            r"p\.x is DECIMAL\(4,2\), which no fabric carries; write DOUBLE",
        ),
        ("schema = 'a VARCHAR(3)'", r"a is VARCHAR\(3\), which no fabric carries; write STRING"),
        ("schema = 'a STRING COLLATE UTF8_LCASE'", "write STRING"),
        ("schema = 'a ARRAY<INT>'", "a is ARRAY<INT>, which no fabric carries; write attributes"),
        ("schema = 'a INT, A INT'", "an attribute is there twice"),
        ("schema = 'a INT'\ncolumns = { b = 'b' }", "the mapping names b"),
        ("schema = 'a INT'\nrefuse = { no = 'c > 1' }", "refuse 'c > 1'"),
    ):
        (tmp_path / "map.toml").write_text(f"[[source]]\nfiles = ['f.csv']\n{more}\n")
        with pytest.raises(TraceInputError, match=said):
            stages.read_traces(spark, mapping.load(tmp_path / "map.toml"))


def test_the_types_of_a_mapping_are_those_of_a_fabric() -> None:
    from gossamer.filters import Type

    assert {kind.upper() for kind in traces._CARRIED} == {kind.value for kind in Type} - {"BINARY"}


def test_a_topics_schema_keeps_the_names_of_its_structs() -> None:
    """JSON distinguishes case, so events do not have the attributes if the schema changes their
    case.
    """
    from pyspark.sql.types import IntegerType, StringType, StructType

    inner = StructType().add("x", IntegerType()).add("q", StructType().add("Y", StringType()))
    assert (
        traces._ddl(StructType().add("a b", StringType()).add("p", inner))
        == "`a b` STRING, p STRUCT<x: INT, q: STRUCT<Y: STRING>>"
    )


SOURCES = """Package: one
Maintainer: Ann <Ann@example.org>
Uploaders: Bob, Jr. <bob@example.org>,
 Ann <ann@example.org>
Checksums-Sha256:
 {hash} 10 one_1.dsc
 {hash} 2000 one_1.orig.tar.gz

Package: two
Maintainer: nobody
Checksums-Sha256:
 {hash} 10 two_1.dsc

Package: three
Maintainer: Bob <bob@example.org>
Checksums-Sha256:
 {hash} ten three_1.dsc
 {hash} 7 three_1.debian.tar.xz

Package: four
Maintainer: Bob <bob@example.org>
Checksums-Sha256:
 {hash} 8 four_1.dsc
 abc 9 four_1.tar.gz
"""


@pytest.mark.spark
def test_the_source_index_of_debian(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "deb_main_source_Sources"
    path.write_text(SOURCES.format(hash="ab" * 32))
    found = parts(spark, path, empty=("sessions", "rtts"))
    assert [json.loads(str(row[0])) for row in rows(found["items"].orderBy("item"), "values")] == [
        {"name": "one_1.dsc", "type": "dsc", "size": 10},
        {"name": "one_1.orig.tar.gz", "type": "orig.gz", "size": 2000},
        {"name": "three_1.debian.tar.xz", "type": "debian.xz", "size": 7},
        {"name": "four_1.dsc", "type": "dsc", "size": 8},
    ]
    assert sorted(row["items"] for row in found["peers"].collect()) == [2, 4]
    assert "example.org" not in str(found["peers"].collect())
    assert rows(found["quarantine"], "line", "reason") == [
        (2, "no Maintainer with an address in the stanza"),
        (3, "size is not a whole number"),
        (4, "a line under Checksums-Sha256 is not a hash, a size and a name"),
    ]


@pytest.mark.spark
def test_the_traces_of_live_nodes(spark: SparkSession, tmp_path: Path) -> None:
    write(
        tmp_path,
        A,
        [
            ADVERTISED,
            *publish(100, 1, {"size": 5}),
            *publish(200, 2, {"size": 5}),
            *publish(300, 3, {"size": "x"}),
        ],
    )
    path = write(tmp_path, B, [*subscribe(10, 1, "size = 5"), *publish(150, 1, {"size": 6})])
    with path.open("ab") as file:
        # This record has no topic.
        file.write(
            b'{"at": 390, "node": "ff", "record": {"kind": "published", "sequence": 2, '
            b'"values": {}}}\n'
        )
        file.write(b'{"at": 395, "node": "ff"}\n')
        file.write(b'{"at": 400, "no')
    assert {mapping.guess(one) for one in tmp_path.iterdir()} == {"trace"}
    found = parts(spark, *sorted(tmp_path.glob("*.jsonl")), empty=("rtts",))
    held = found["holdings"].join(found["items"].select("item", "values"), on="item")
    assert {(row["values"], row["times"]) for row in held.collect()} == {
        ('{"size":5}', 2),
        ('{"size":6}', 1),
    }
    assert found["sessions"].count() == 2
    assert [reason for _, reason in rows(found["quarantine"], "line", "reason")] == [
        "values are not of the topic's schema",
        *["not a trace record"] * 3,
    ]
