"""From a user's files to our tables: a mapping in TOML says which column is which attribute. Plain data, no Spark.

[[source]]
files = ["files.csv.gz"]                # beside this file; patterns such as part-*.parquet are fine
format = "csv"                          # csv, jsonl, geojson, parquet, debian, trace, matrix; else told by the name
topic = "files"
schema = "name STRING NOT NULL, type STRING NOT NULL, size BIGINT NOT NULL"
peer = "maintainer"                     # the column that says who holds the item; leave out where nobody does
columns = { name = "file_name" }        # attribute = column, where the names differ; dotted in JSON
units = { time = "ms" }                 # a TIMESTAMP that is a number since 1970: s, ms or us
refuse = { "size is negative" = "size < 0" }    # rows for quarantine: reason = condition
key = "file_id"                         # if who holds what is in another file, which names items by this column

[[source]]
files = ["peer_files.csv.gz"]
table = "holdings"                      # items (default), holdings, sessions, rtts
peer = "peer_id"
key = "file_id"

[[source]]
files = ["sessions.csv.gz"]
table = "sessions"                      # columns peer, up, down; and left_censored, right_censored where there are
columns = { peer = "node_id", up = "up_s", down = "down_s" }
unit = "s"
"""

from __future__ import annotations

import gzip
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

FORMATS = ("csv", "jsonl", "geojson", "parquet", "debian", "trace", "matrix")
FILES = "name STRING NOT NULL, type STRING NOT NULL, size BIGINT NOT NULL"
"""What a trace of shared files holds, the topic of seed 001."""
NO_NEGATIVE = {"size is negative": "size < 0"}
SESSION = ("peer", "up", "down")
CENSORED = ("left_censored", "right_censored")
MICROS = {"s": 1_000_000, "ms": 1_000, "us": 1}
ITEM_OPTIONS = ("schema", "refuse", "units")


class MappingError(ValueError):
    """A mapping that cannot be used; says where, why and what to write."""


class Source(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One kind of file and what its columns mean."""

    files: tuple[str, ...]
    format: Literal["csv", "jsonl", "geojson", "parquet", "debian", "trace", "matrix"] | None = None
    table: Literal["items", "holdings", "sessions", "rtts"] = "items"
    topic: str = "files"
    schema: str = ""
    peer: str | None = None
    key: str | None = None
    columns: dict[str, str] = {}
    units: dict[str, Literal["s", "ms", "us"]] = {}
    unit: Literal["s", "ms", "us"] | None = None
    refuse: dict[str, str] = {}

    @property
    def kind(self) -> str:
        assert self.format is not None
        return self.format

    @property
    def micros(self) -> int:
        """Of its unit of time: seconds for sessions, milliseconds for round trips, unless it says otherwise."""
        return MICROS[self.unit or ("ms" if self.table == "rtts" else "s")]


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    source: tuple[Source, ...] = ()


def load(path: Path) -> tuple[Source, ...]:
    """The sources of a mapping file, one for each format, with the files that there are."""
    try:
        given = msgspec.convert(tomllib.loads(path.read_text("utf-8")), _File)
    except FileNotFoundError:
        raise MappingError(f"{path}: no such file; give a mapping in TOML with --mapping") from None
    except (OSError, UnicodeDecodeError) as error:
        raise MappingError(f"{path}: cannot be read ({error})") from None
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise MappingError(f"{path}: {error}; docs/pipeline.md shows a mapping") from None
    if not given.source:
        raise MappingError(f"{path}: no [[source]]; docs/pipeline.md shows a mapping")
    found: list[Source] = []
    for number, source in enumerate(given.source, start=1):
        where = f"{path}, source {number}"
        paths = [one for pattern in source.files for one in _glob(path.parent, pattern, where)]
        for kind in dict.fromkeys(source.format or guess(one) for one in paths):
            same = tuple(str(one) for one in paths if (source.format or guess(one)) == kind)
            found.append(_checked(msgspec.structs.replace(source, files=same, format=kind), where))
    return tuple(found)


def plain(
    paths: Iterable[Path], *, sessions: Iterable[Path] = (), rtts: Iterable[Path] = ()
) -> tuple[Source, ...]:
    """Files that need no mapping: traces of files by peer, name, type and size; sessions; matrices of round-trip times."""
    kinds = {path: guess(path) for path in paths}
    live = tuple(str(path) for path, kind in kinds.items() if kind == "trace")
    found = (
        [Source(files=live, format="trace")] if live else []
    )  # together: one node's file may name a topic of another's
    for path, kind in kinds.items():
        if kind == "geojson":
            raise MappingError(
                f"{path}: GeoJSON has no attributes of its own; say which are wanted in a "
                "mapping (--mapping)"
            )
        if kind == "debian":
            found.append(Source(files=(str(path),), format="debian"))
        elif kind != "trace":
            found.append(
                Source(
                    files=(str(path),),
                    format=kind,  # type: ignore[arg-type]
                    schema=FILES,
                    peer="peer",
                    refuse=NO_NEGATIVE,
                )
            )
    for path in sessions:
        columns = {"peer": "node_id", "up": "up_s", "down": "down_s"}
        found.append(
            Source(files=(str(path),), format="csv", table="sessions", columns=columns, unit="s")
        )
    found += [Source(files=(str(path),), format="matrix", table="rtts", unit="ms") for path in rtts]
    return tuple(found)


def guess(path: Path) -> str:
    """The format that a file's name tells; of JSON lines, the first line tells those of a live node."""
    name = path.name.lower()
    if name.endswith((".xz", ".bz2", ".lz4", ".zst", ".zip")) and not name.endswith(".parquet"):
        raise MappingError(
            f"{path}: Spark does not read {path.suffix}; unpack the file, or pack it with gzip"
        )
    stem = name.removesuffix(".gz")
    for ending, kind in (
        (".csv", "csv"),
        (".geojson", "geojson"),
        (".parquet", "parquet"),
        (".ndjson", "jsonl"),
    ):
        if stem.endswith(ending):
            return kind
    if stem.endswith(".jsonl"):
        return "trace" if _is_live(path) else "jsonl"
    if stem == "sources" or stem.endswith("_sources"):
        return "debian"
    raise MappingError(
        f"{path}: its name does not tell its format; name it in a mapping: format = one of "
        f"{', '.join(FORMATS)}"
    )


def _is_live(path: Path) -> bool:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return re.match(rb'\s*\{\s*"kind"\s*:\s*"header"', file.read(100)) is not None
    except (OSError, EOFError):
        return False  # whoever reads it says what is wrong with it


def _glob(folder: Path, pattern: str, where: str) -> list[Path]:
    if not pattern:
        raise MappingError(f"{where}: files has an empty name")
    anchor = Path(pattern)
    base, inside = (
        (Path(anchor.anchor), str(anchor.relative_to(anchor.anchor)))
        if anchor.is_absolute()
        else (folder, pattern)
    )
    found = sorted(path for path in base.glob(inside) if path.is_file())
    literal = base / inside
    if not found and literal.is_file():
        found = [literal]  # its name has a * or a [ of its own
    if not found:
        raise MappingError(f"{where}: no such file: {base / inside}")
    return found


def _checked(source: Source, where: str) -> Source:
    """Options that would be ignored or contradict each other are errors."""

    def wrong(said: str) -> MappingError:
        return MappingError(f"{where}: {said}")

    if (source.format == "matrix") != (source.table == "rtts"):
        raise wrong(
            'round-trip times come as a matrix: table = "rtts" and format = "matrix" go together'
        )
    if source.table == "items":
        if source.format in ("debian", "trace"):
            if source.schema or source.columns or source.peer or source.key:
                raise wrong(
                    f"format {source.format} has its own columns; leave out schema, columns, "
                    "peer and key"
                )
        elif not source.schema:
            raise wrong(
                'no schema; write the topic\'s attributes, such as schema = "name STRING, size BIGINT"'
            )
        if source.unit:
            raise wrong(
                'unit is for sessions and rtts; for a TIMESTAMP attribute write units = { attribute = "ms" }'
            )
        return source
    if used := [name for name in ITEM_OPTIONS if getattr(source, name)]:
        raise wrong(f"{used[0]} is for items, not for {source.table}")
    if source.format in ("debian", "trace", "geojson"):
        raise wrong(f"format {source.format} gives items, not {source.table}")
    if source.table == "holdings" and not (source.peer and source.key):
        raise wrong("holdings need peer and key: the columns that say who holds which item")
    if source.table == "sessions" and (unknown := set(source.columns) - {*SESSION, *CENSORED}):
        raise wrong(
            f"columns of sessions are {', '.join((*SESSION, *CENSORED))}, not {min(unknown)}"
        )
    return source
