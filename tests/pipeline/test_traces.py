"""Traces in: every broken row is kept with its reason, and nothing else is."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from gossamer.pipeline import job, stages, traces
from gossamer.pipeline.tables import TABLES, check_rows, check_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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


def test_the_header_names_the_columns() -> None:
    assert traces.header("\ufeffPeer, name ,size,type,more", "f") == ["peer", "name", "size", "type", "more"]
    with pytest.raises(traces.TraceError, match=r"f: no column type, size among \(peer, name\)"):
        traces.header("peer,name", "f")
    with pytest.raises(traces.TraceError, match="column name is there twice"):
        traces.header("peer,name,name,type,size", "f")


@pytest.mark.spark
def test_each_broken_row_is_kept_with_its_reason(spark: SparkSession) -> None:
    good = ["p1,a.dsc,dsc,5", '"p,2","a ""b"".dsc",dsc,0', "p3,é.dsc,dsc,9223372036854775807", "p1,a.dsc,dsc,5"]
    rows = [("f", line, row) for line, row in enumerate([*good, *(row for row, _ in BROKEN)], start=2)]
    lines = spark.createDataFrame(rows, traces.LINES).repartition(3)
    parsed = traces.parse(lines, ["peer", "name", "type", "size"])
    parts = traces.split(parsed)
    counted = {}
    for name, rows_ in parts.items():
        check_schema(rows_, TABLES[name])
        counted[name] = check_rows(rows_, TABLES[name]).rows
    assert counted["holdings"] + counted["quarantine"] == len(rows)  # nothing vanished
    kept = parts["holdings"].join(parts["items"].drop("source", "line"), on="item")
    assert [(row["peer"], json.loads(row["values"]), row["line"]) for row in kept.orderBy("line").collect()] == [
        ("p1", {"name": "a.dsc", "type": "dsc", "size": 5}, 2),
        ("p,2", {"name": 'a "b".dsc', "type": "dsc", "size": 0}, 3),
        ("p3", {"name": "é.dsc", "type": "dsc", "size": 2**63 - 1}, 4),
    ]
    refused = parts["quarantine"]
    found = [(row["line"], row["row"], row["reason"]) for row in refused.orderBy("line").collect()]
    assert found == [
        (5, "p1,a.dsc,dsc,5", "repeated row"),
        *((line, row, reason) for line, (row, reason) in enumerate(BROKEN, start=6)),
    ]


@pytest.mark.spark
def test_bytes_that_are_not_utf8_are_kept_apart(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"peer,name,type,size\np1,a\xff.dsc,dsc,5\np1,b.dsc,dsc,5\n")
    rows = stages.read_traces(spark, (path,)).orderBy("line").collect()
    assert [(row["line"], row["reason"]) for row in rows] == [(2, "not UTF-8"), (3, None)]


@pytest.mark.spark
def test_columns_are_found_by_name_in_several_files(spark: SparkSession, tmp_path: Path) -> None:
    first, second = tmp_path / "a b+c%20[1].csv", tmp_path / "two.csv.gz"
    first.write_text("size,more,type,name,peer\r\n7,x,dsc,a.dsc,p1\r\n", newline="")
    second.write_bytes(gzip.compress(b"size,more,type,name,peer\n8,x,dsc,b.dsc,p2\nbroken\n"))
    rows = stages.read_traces(spark, (first, second)).orderBy("source", "line").collect()
    assert [(row["source"], row["line"], row["peer"], row["size"], row["reason"]) for row in rows] == [
        (str(first), 2, "p1", 7, None),
        (str(second), 2, "p2", 8, None),
        (str(second), 3, None, None, "not 5 columns"),
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
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty; its first line must name the columns"),
        (b"peer,name,type,size\n", "no rows below the first line"),
        (b"peer,name,type\np,n,t\n", "no column size"),
    ],
)
def test_unusable_input_is_a_clear_error(spark: SparkSession, tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises((job.JobError, traces.TraceError), match=said):
        stages.read_traces(spark, (path,))


@pytest.mark.spark
def test_missing_and_truncated_files_are_clear_errors(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(job.JobError, match="no such file"):
        stages.read_traces(spark, (tmp_path / "nothing.csv",))
    torn = tmp_path / "torn.csv.gz"
    whole = gzip.compress("".join(["peer,name,type,size\n", *(f"p{n},n{n * n},t,{n}\n" for n in range(20000))]).encode())
    torn.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(job.JobError, match="cannot be read to its end"):
        stages.read_traces(spark, (torn,)).count()


@pytest.mark.spark
def test_the_shipped_sample_is_whole(spark: SparkSession) -> None:
    parsed = stages.read_traces(spark, ()).persist()
    assert parsed.where("reason IS NOT NULL").count() == 0
    assert parsed.count() == 3611
    assert parsed.select("peer").distinct().count() == 1000
    parsed.unpersist()
