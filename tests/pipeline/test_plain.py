"""Events and filters in Parquet files, which the oracle reads itself: the same pairs as by Spark's reader; and what is not plain is
left to Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.parquet as pq

from gossamer.pipeline import oracle, plain, rowgroups, simple, spans

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVENT, NAME, SIZE = ("event",), ("values", "name"), ("values", "size")
WANTED = [EVENT, NAME, SIZE]
NAMES = [None, "", "a", "it's", "é😀", "x" * 300, "a b", "5"]
Pairs = list[tuple[Any, Any]]


def rows_of(rng: Random, count: int, start: int = 0) -> dict[str, list[Any]]:
    return {
        "event": list(range(start, start + count)),
        "name": [rng.choice(NAMES) for _ in range(count)],
        "size": [rng.choice([None, *range(-12, 13), -(2**63), 2**63 - 1]) for _ in range(count)],
    }


TYPES = pa.schema([("event", pa.int64()), ("name", pa.string()), ("size", pa.int64())])


def write(folder: Path, rng: Random, files: int = 3, each: int = 150) -> dict[str, list[Any]]:
    """Several files, one empty, of several row groups; strings as dictionaries in some of them."""
    folder.mkdir()
    whole: dict[str, list[Any]] = {name: [] for name in TYPES.names}
    for number in range(files):
        rows = rows_of(rng, each, number * each)
        for name, column in rows.items():
            whole[name] += column
        pq.write_table(
            pa.table(rows, TYPES),
            folder / f"{number} é%20.parquet",
            row_group_size=40,
            use_dictionary=number % 2 == 0,
        )
    pq.write_table(TYPES.empty_table(), folder / "empty.parquet")
    return whole


def draw(rng: Random, count: int) -> tuple[list[str], list[Callable[[Any, Any], bool]]]:
    """Filters of several shapes, and what they mean of a name, which may be None, and a size that is not."""
    texts, means = [], []
    for _ in range(count):
        name, low = rng.choice(NAMES[1:]), rng.randrange(0, 12)
        high = low + rng.randrange(0, 4)
        assert name is not None
        quoted = name.replace("'", "''")
        text, holds = rng.choice(
            [
                (f"name = '{quoted}' AND size >= {low} AND size < {high}",
                 lambda n, s, a=name, b=low, c=high: n == a and b <= s < c),
                (f"size BETWEEN -{high} AND {low}", lambda n, s, b=low, c=high: -c <= s <= b),
                (f"name = '{quoted}' and size>{low}", lambda n, s, a=name, b=low: n == a and s > b),
            ]
        )  # fmt: skip
        texts.append(text)
        means.append(holds)
    return texts, means


def loop(events: dict[str, list[Any]], means: list[Callable[[Any, Any], bool]]) -> Pairs:
    rows = list(zip(*events.values(), strict=True))
    return sorted(
        (e, f) for e, n, s in rows if s is not None for f, holds in enumerate(means) if holds(n, s)
    )


def pairs(found: DataFrame) -> Pairs:
    return sorted((row["event"], row["filter"]) for row in found.collect())


def events_of(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("event", "struct(name, size) AS values")


def asked_of(spark: SparkSession, folder: Path, texts: list[str]) -> DataFrame:
    folder.mkdir()
    for at in range(0, len(texts), 70):
        some = texts[at : at + 70]
        table = pa.table(
            {"filter": pa.array(range(at, at + len(some)), pa.int64()), "text": pa.array(some)}
        )
        pq.write_table(table, folder / f"{at}.parquet", row_group_size=30)
    return spark.read.schema("filter BIGINT, text STRING").parquet(str(folder))


@pytest.mark.spark
@pytest.mark.parametrize("few", [0, 10**9])
def test_files_are_read_as_spark_reads_them(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    """Against a plain loop, and with Spark's reader: by one task and by several, however much is taken at once."""
    rng = Random(3)
    events, (texts, means) = write(tmp_path / "events", rng), draw(rng, 300)
    right = loop(events, means)
    assert len(right) > 5000
    published = events_of(
        spark.read.schema("event BIGINT, name STRING, size BIGINT").parquet(
            str(tmp_path / "events")
        )
    )
    subscribed = asked_of(spark, tmp_path / "filters", texts)
    ways: list[str] = []
    search = simple._search_files

    def noted(*args: Any) -> Any:
        ways.append("files")
        return search(*args)

    monkeypatch.setattr(simple, "_search_files", noted)
    monkeypatch.setattr(simple, "FEW_PAIRS", few)
    found = oracle.matches(published, subscribed)
    assert ways == ["files"]
    assert found.columns == ["event", "filter"]
    assert (found.rdd.getNumPartitions() == 1) == (few > 0)
    assert pairs(found) == right
    assert pairs(found) == right  # again, of the same frame
    assert len(found.limit(5).collect()) == 5
    monkeypatch.setattr(spans, "EVENTS", 33)
    monkeypatch.setattr(rowgroups, "SHARE_BYTES", 500)
    assert pairs(oracle.matches(published, subscribed)) == right
    assert ways == ["files"] * 2
    monkeypatch.setattr(plain, "FILES_MAX", 0)
    assert pairs(oracle.matches(published, subscribed)) == right
    assert ways == ["files"] * 2


@pytest.mark.spark
def test_structs_topics_and_ids_in_files(spark: SparkSession, tmp_path: Path) -> None:
    """A struct that the files have, and that is NULL; ids that are strings, which are no dictionary in what comes; topics."""
    rng = Random(4)
    rows = rows_of(rng, 200)
    values = [
        None if n % 9 == 0 else {"name": a, "size": b}
        for n, (a, b) in enumerate(zip(rows["name"], rows["size"], strict=True))
    ]
    table = pa.table(
        {
            "event": [f"e{n % 50}" for n in rows["event"]],
            "topic": ["t", None, "u", "t"] * 50,
            "values": values,
        }
    )
    pq.write_table(table, tmp_path / "events.parquet", row_group_size=60)
    texts, _ = draw(rng, 200)
    filters = pa.table(
        {"filter": [f"f{n}" for n in range(200)], "topic": ["t", "u"] * 100, "text": texts}
    )
    pq.write_table(filters, tmp_path / "filters.parquet")
    published, subscribed = (
        spark.read.parquet(str(tmp_path / f"{name}.parquet")) for name in ("events", "filters")
    )
    assert plain.files(published, [*WANTED, ("topic",)]) is not None
    found = pairs(oracle.matches(published, subscribed))
    assert len(found) > 500
    assert found == pairs(oracle.matches_by_text(published, subscribed))


@pytest.mark.spark
def test_what_is_not_plain_is_left_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    rng = Random(5)
    write(tmp_path / "events", rng)
    path = str(tmp_path / "events")
    read = spark.read.schema("event BIGINT, name STRING, size BIGINT")
    rows = read.parquet(path)
    events = events_of(rows)
    found = plain.files(events, WANTED)
    assert found is not None
    assert found.columns == {EVENT: ("event",), NAME: ("name",), SIZE: ("size",)}
    assert sum(footer.rows for footer in found.footers) == 450
    renamed = rows.selectExpr("event", "size AS x", "name AS size").selectExpr(
        "event", "struct(size AS name, x AS size) AS values"
    )
    told = plain.files(renamed.select("event", "values"), WANTED)
    assert told is not None
    assert told.columns == found.columns
    others = {
        "condition": events.where("event > 3"),
        "limit": events.limit(3),
        "cast": rows.selectExpr("event", "struct(name, CAST(size + 1 AS BIGINT) AS size) AS values"),
        "constant": rows.selectExpr("event", "struct('a' AS name, size) AS values"),
        "union": events.unionByName(events),
        "no file": spark.range(3).selectExpr("id AS event", "struct('a' AS name, id AS size) AS values"),
        "narrower": events_of(spark.read.schema("event BIGINT, name STRING, size INT").parquet(path)),
        "wider": rows.selectExpr("event", "struct(name, size) AS values", "_metadata.file_name AS file").where("file > ''"),
        "missing": spark.read.schema("event BIGINT, name STRING, Size BIGINT").parquet(path).selectExpr(
            "event", "struct(name, Size AS size) AS values"),
        "option": events_of(read.option("mergeSchema", "true").parquet(path)),
        "json": events_of(read.json(path)),
        "double": rows.selectExpr("event", "struct(name, CAST(size AS DOUBLE) AS size) AS values"),
    }  # fmt: skip
    for name, other in others.items():
        assert plain.files(other, WANTED) is None, name
    assert plain.files(events, [EVENT, ("values", "none")]) is None
    cached = events_of(read.parquet(path)).cache()
    try:
        assert plain.files(cached.select("event", "values"), WANTED) is None
    finally:
        cached.unpersist()
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        assert plain.files(events, WANTED) is None
    finally:
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")


@pytest.mark.spark
def test_files_that_differ_or_are_broken(spark: SparkSession, tmp_path: Path) -> None:
    """One file of several with another type, one with names that differ in case, parts of paths; and errors that name the file."""
    rng = Random(6)
    events, (texts, means) = write(tmp_path / "events", rng), draw(rng, 200)
    subscribed = asked_of(spark, tmp_path / "filters", texts)
    schema = "event BIGINT, name STRING, size BIGINT"
    rows = rows_of(rng, 30, 1000)
    rows["size"] = [size if size is None or abs(size) < 99 else 7 for size in rows["size"]]
    narrow = pa.table(rows, TYPES.set(2, pa.field("size", pa.int32())))
    pq.write_table(narrow, tmp_path / "events" / "narrow.parquet")
    published = events_of(spark.read.schema(schema).parquet(str(tmp_path / "events")))
    assert plain.files(published, WANTED) is None
    both = {name: events[name] + rows[name] for name in events}
    assert pairs(oracle.matches(published, subscribed)) == loop(both, means)
    asked = {EVENT: "int64", ("name",): "string", ("size",): "int64"}
    twice = pa.table(
        [*pa.table(rows, TYPES).columns, pa.array(range(30))],
        names=["event", "name", "size", "SIZE"],
    )
    pq.write_table(twice, tmp_path / "twice.parquet")
    assert rowgroups.footer(str(tmp_path / "twice.parquet"), asked) is None
    assert rowgroups.footer(str(tmp_path / "none.parquet"), asked) is None
    folder = tmp_path / "parts" / "name=a"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"event": [1], "size": [5]}), folder / "a.parquet")
    parts = spark.read.schema(schema).parquet(str(tmp_path / "parts"))
    assert plain.files(events_of(parts), WANTED) is None
    # Whole by its end, and broken inside.
    path = tmp_path / "broken.parquet"
    pq.write_table(
        pa.table(rows_of(rng, 5000), TYPES), path, compression="NONE", use_dictionary=False
    )
    data = bytearray(path.read_bytes())
    data[4:60] = b"\xff" * 56
    path.write_bytes(data)
    broken = events_of(spark.read.schema(schema).parquet(str(path)))
    with pytest.raises(Exception, match=r"broken\.parquet"):
        oracle.matches(broken, subscribed).collect()
    path.write_bytes(b"no Parquet at all")
    assert plain.files(broken, WANTED) is None
    with pytest.raises(Exception, match=r"broken\.parquet"):
        oracle.matches(broken, subscribed).collect()


@pytest.mark.spark
def test_filters_in_files_as_spark_brings_them(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts that are NULL or too long are all NULL; more than may come do not."""
    texts = [f"size = {n}" for n in range(300)]
    table = pa.table(
        {
            "filter": list(range(302)),
            "text": [*texts, None, "size = 1 OR name = '" + "x" * simple.TEXT_MAX + "'"],
        }
    )
    pq.write_table(table, tmp_path / "filters.parquet", row_group_size=90)
    filters = spark.read.parquet(str(tmp_path / "filters.parquet"))
    key = [("filter", "ascending")]
    read = simple.collect(filters)
    brought = simple.collect(filters.where("true AND filter >= 0"))
    assert read is not None
    assert brought is not None
    assert read.sort_by(key).to_pylist() == brought.sort_by(key).to_pylist()
    assert read["filter"].null_count == 2
    events = spark.range(10).selectExpr("id AS event", "struct('a' AS name, id AS size) AS values")
    pq.write_table(table.filter(table["text"].is_valid()), tmp_path / "known.parquet")
    known = spark.read.parquet(str(tmp_path / "known.parquet"))
    assert pairs(oracle.matches(events, known)) == sorted([(n, n) for n in range(10)] + [(1, 301)])
    monkeypatch.setattr(simple, "FILTERS_MAX", 301)
    assert simple.collect(filters) is None
