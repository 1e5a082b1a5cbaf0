"""Files of every format as rows of text, each with its origin, and with a fault if it cannot be
read.

A ``Raw`` has the frame (source, line, row, fault, and columns of its own) and ``get``, which gives
one of the user's columns as text, by its name. ``traces`` interprets the texts.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from gossamer.pipeline import job
from gossamer.pipeline.mapping import Source

COORDINATES = {"longitude": 0, "latitude": 1, "depth": 2}
PEOPLE_MAX, FILES_MAX = 200, 2000
"""Limits of one Debian stanza."""
NAMES_SHOWN = 200
"""The letters of the columns' names that an error shows when a column is missing."""
LINE_MAX, SHOWN = csv.field_size_limit(), 40
"""A file's last line is checked if it has at most this length (128 kB), and this many letters of it
are shown.
"""


class TraceInputError(ValueError):
    """A trace that cannot be used at all. The message gives the cause and a remedy."""


class Raw(Struct, frozen=True):
    frame: DataFrame
    get: Callable[[str], Column]
    """One of the user's columns as text; NULL where it is missing."""
    there: Callable[[str], Column] | None = None
    """Whether this row has the column, even if it is NULL.

    JSON needs this, because it has no head that names its columns.
    """


def read(spark: SparkSession, source: Source, needed: Sequence[str]) -> Raw:
    """The rows of a source's files. A ``needed`` column that a file does not have is an error."""
    paths = [Path(name) for name in source.files]
    for path in paths:
        if job.is_hidden(path):
            raise TraceInputError(f"{path}: {job.HIDDEN}")
        if not path.is_file():
            raise TraceInputError(f"{path}: no such file")
        if path.stat().st_size == 0:
            raise TraceInputError(f"{path}: an empty file; give one that has rows")
    match source.kind:
        case "csv":
            return _csv(spark, paths, needed)
        case "jsonl":
            for path in paths:
                _check_end(path, json.loads)
            return _json(job.read_lines(spark, paths), _path)
        case "geojson":
            return _geojson(spark, paths)
        case "parquet":
            return _parquet(spark, paths, needed)
        case "debian":
            return _debian(spark, paths)
        # Live traces and matrices have no columns of their own.
        case _:
            lines = job.read_lines(spark, paths)
            return Raw(_sound(lines), lambda name: sf.lit(None).cast("STRING"))


def _sound(lines: DataFrame) -> DataFrame:
    """Mark rows with broken bytes, because no other engine would read them alike."""
    fault = sf.when(~sf.is_valid_utf8("row"), sf.lit("not UTF-8")).when(
        sf.trim("row") == "", sf.lit("blank line")
    )
    return lines.withColumn("fault", fault).withColumn("row", sf.make_valid_utf8("row"))


def header(line: str, needed: Sequence[str], source: str) -> list[str]:
    """The column names of a CSV file, from its first line. A missing needed column is an error."""
    names = [name.strip().lower() for name in next(csv.reader([line.removeprefix("\ufeff")]), [])]
    missing = [name for name in needed if name.lower() not in names]
    if missing:
        raise TraceInputError(
            f"{source}: no column {', '.join(missing)} among ({_cut(', '.join(names))}); "
            "the first line must name it, or a mapping must say which column it is"
        )
    repeated = [name for name in needed if names.count(name.lower()) > 1]
    if repeated:
        raise TraceInputError(f"{source}: column {', '.join(repeated)} is there twice; rename one")
    return names


def _cut(words: str) -> str:
    """Shorten the names, because the first line of a file that is not CSV may be endless."""
    return words if len(words) <= NAMES_SHOWN else f"{words[:NAMES_SHOWN]}..."


def _first_line(path: Path) -> str:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            line = file.readline().decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise TraceInputError(
            f"{path}: cannot be read ({error}); give a CSV file in UTF-8, plain or .gz"
        ) from None
    if not line.strip():
        raise TraceInputError(f"{path}: its first line is empty; it must name the columns")
    return line.rstrip("\r\n")


def _check_end(path: Path, read: Callable[[str], object]) -> None:
    """Raise an error if the file was cut off inside its last line.

    Such a line has no line break and cannot be read. Spark itself notices this in packed files.
    """
    if path.suffix == ".gz":
        return
    with path.open("rb") as file:
        start = max(0, file.seek(0, 2) - LINE_MAX)
        file.seek(start)
        *before, line = re.split(rb"[\r\n]", file.read())
    # The last line has ended, or it is too long to tell.
    if not line.strip() or (start and not before):
        return
    try:
        read(line.decode("utf-8"))
    except (ValueError, csv.Error):
        raise TraceInputError(
            f"{path}: ends inside its last line, which begins {_shown(line)!r} and has no line "
            "break; is the file whole? If so, "
            "end that line: it then goes to quarantine"
        ) from None


def _shown(line: bytes) -> str:
    return line[:SHOWN].decode("utf-8", "replace") + ("..." if len(line) > SHOWN else "")


def _whole(names: Sequence[str]) -> Callable[[str], None]:
    """Return a function that fails on a CSV line with too few columns or an open quote."""

    def read(line: str) -> None:
        if len(next(csv.reader([line], strict=True), [])) < len(names):
            raise ValueError("too few columns")

    return read


def _csv(spark: SparkSession, paths: Sequence[Path], needed: Sequence[str]) -> Raw:
    heads = {path: header(_first_line(path), needed, path.name) for path in paths}
    if len({tuple(names) for names in heads.values()}) > 1:
        raise TraceInputError(
            f"{paths[0].name} and other files name different columns; give each kind its own "
            "[[source]]"
        )
    names = heads[paths[0]]
    for path in paths:
        _check_end(path, _whole(names))
    ddl = ", ".join(f"c{number} STRING" for number in range(len(names)))
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "broken", "escape": '"'}
    lines = _sound(job.read_lines(spark, paths).where("line > 1"))
    split = lines.withColumn("fields", sf.from_csv("row", f"{ddl}, broken STRING", options))
    fault = sf.coalesce(
        "fault", sf.when(sf.col("fields.broken").isNotNull(), sf.lit(f"not {len(names)} columns"))
    )

    def get(name: str) -> Column:
        if name.lower() not in names:
            return sf.lit(None).cast("STRING")
        text = sf.trim(sf.col(f"fields.c{names.index(name.lower())}"))
        return sf.when(text != "", text)

    return Raw(split.withColumn("fault", fault), get)


def _path(name: str) -> str:
    return "$" + "".join(f"['{part}']" for part in name.split("."))


def _json(lines: DataFrame, path: Callable[[str], str]) -> Raw:
    """One JSON object in each row. from_json would take the fitting parts and drop the rest, so
    this does not use it.
    """
    sound = _sound(lines)
    read = sound.withColumn(
        "json", sf.try_parse_json(sf.when(sf.col("fault").isNull(), sf.col("row")))
    )
    fault = (
        sf.when(sf.col("fault").isNotNull(), sf.col("fault"))
        .when(sf.col("json").isNull(), sf.lit("not JSON"))
        .when(~sf.ltrim("row").startswith("{"), sf.lit("not a JSON object"))
    )

    def get(name: str) -> Column:
        return sf.try_variant_get("json", path(name), "STRING")

    def there(name: str) -> Column:
        return sf.try_variant_get("json", path(name), "VARIANT").isNotNull()

    return Raw(read.withColumn("fault", fault), get, there)


def _geojson(spark: SparkSession, paths: Sequence[Path]) -> Raw:
    """One feature in each row. A column is a property, or id, longitude, latitude, depth."""
    whole = spark.read.text([job.literal(path) for path in paths], wholetext=True).select(
        job.source_column().alias("source"),
        sf.from_json("value", "type STRING, features ARRAY<STRING>").alias("v"),
    )
    broken = whole.where(
        "v IS NULL OR v.features IS NULL OR NOT coalesce(v.type = 'FeatureCollection', false)"
    )
    if (bad := broken.select("source").first()) is not None:
        raise TraceInputError(
            f"{bad['source']}: not a GeoJSON FeatureCollection; is the file whole?"
        )
    lines = whole.select("source", sf.posexplode("v.features").alias("place", "row")).select(
        "source", (sf.col("place") + 1).cast("BIGINT").alias("line"), "row"
    )

    def path(name: str) -> str:
        if name in COORDINATES:
            return f"$.geometry.coordinates[{COORDINATES[name]}]"
        if name == "id" or name.startswith(("properties.", "geometry.")):
            return _path(name)
        return _path(f"properties.{name}")

    return _json(lines, path)


def _parquet(spark: SparkSession, paths: Sequence[Path], needed: Sequence[str]) -> Raw:
    files = spark.read.parquet(*(job.literal(path) for path in paths))
    for name in needed:
        try:
            files.select(name)
        except Exception:
            raise TraceInputError(
                f"{paths[0].name}: no column {name} among ({', '.join(files.columns)})"
            ) from None
    frame = files.select(
        sf.struct("*").alias("fields"),
        job.source_column().alias("source"),
        (sf.col("_metadata.row_index") + 1).alias("line"),
        sf.to_json(sf.struct("*")).alias("row"),
        sf.lit(None).cast("STRING").alias("fault"),
    )
    return Raw(frame, lambda name: sf.col(f"fields.{name}").cast("STRING"))


def _debian(spark: SparkSession, paths: Sequence[Path]) -> Raw:
    """Debian's source index, with a stanza for each source package. A peer is a maintainer or an
    uploader of the package, and an item is one of its files.

    The e-mail address tells people apart. Only a hash of it is kept.
    """
    stanzas = job.read_lines(spark, paths, separator="\n\n").where(
        sf.trim(sf.col("row"), sf.lit("\n ")) != ""
    )
    sound = _sound(stanzas)

    def field(name: str) -> Column:
        found = sf.regexp_extract("row", rf"(?m)^{name}:((?:[^\n]|\n[ \t])*)", 1)
        return sf.trim(found)

    addresses = sf.regexp_extract_all(
        sf.concat_ws(",", field("Maintainer"), field("Uploaders")), sf.lit("<([^<>]+)>"), sf.lit(1)
    )
    people = sf.array_distinct(
        sf.transform(
            addresses, lambda text: sf.left(sf.sha2(sf.lower(sf.trim(text)), 256), sf.lit(16))
        )
    )
    lines = sf.transform(
        sf.split(field("Checksums-Sha256"), "\n"),
        lambda line: sf.trim(sf.replace(line, sf.lit("\t"), sf.lit(" "))),
    )
    files = sf.filter(lines, lambda line: line != "")
    read = sound.withColumn("people", people).withColumn("files", files)
    fault = (
        sf.when(sf.col("fault").isNotNull(), sf.col("fault"))
        .when(field("Package") == "", sf.lit("no Package in the stanza"))
        .when(sf.size("people") == 0, sf.lit("no Maintainer with an address in the stanza"))
        .when(sf.size("files") == 0, sf.lit("no files under Checksums-Sha256 in the stanza"))
        .when(
            (sf.size("people") > PEOPLE_MAX) | (sf.size("files") > FILES_MAX),
            sf.lit("too many people or files in the stanza"),
        )
    )
    judged = read.withColumn("fault", fault)
    bad = judged.where("fault IS NOT NULL").select(
        "source", "line", "row", "fault", *_nulls("person", "file")
    )
    good = judged.where("fault IS NULL").select(
        "source", "line", "row", "fault", sf.explode("people").alias("person"), "files"
    )
    is_file = sf.col("file").rlike("^[0-9a-f]{64} +[^ ]+ +[^ ]+$")
    wrong = sf.when(
        ~is_file, sf.lit("a line under Checksums-Sha256 is not a hash, a size and a name")
    )
    pairs = good.select(
        "source", "line", "row", "person", sf.explode("files").alias("file")
    ).select("source", "line", "row", wrong.alias("fault"), "person", "file")
    name, size = (
        sf.split_part(sf.regexp_replace("file", " +", " "), sf.lit(" "), sf.lit(part))
        for part in (3, 2)
    )
    columns = {"peer": sf.col("person"), "name": name, "size": size, "type": _file_type(name)}
    return Raw(pairs.unionByName(bad), lambda wanted: columns[wanted])


def _nulls(*names: str) -> list[Column]:
    return [sf.lit(None).cast("STRING").alias(name) for name in names]


def _file_type(name: Column) -> Column:
    """The kind of an archive file: dsc, orig.gz, debian.xz, orig-component.xz, diff.gz, tar.xz,
    orig.asc ...
    """
    last = sf.element_at(sf.split(name, r"\."), -1)
    return (
        sf.when(name.contains(".orig-"), sf.concat(sf.lit("orig-component."), last))
        .when(name.contains(".orig.tar"), sf.concat(sf.lit("orig."), last))
        .when(name.contains(".debian.tar"), sf.concat(sf.lit("debian."), last))
        .when(name.contains(".tar."), sf.concat(sf.lit("tar."), last))
        .when(name.contains(".diff."), sf.concat(sf.lit("diff."), last))
        .otherwise(last)
    )
