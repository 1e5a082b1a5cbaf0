"""A mapping in TOML leads from a user's files to our tables: it assigns columns to attributes.

This module is plain data and needs no Spark. A mapping looks like this:

    [[source]]
    # The files lie beside this one. Patterns such as part-*.parquet are allowed.
    files = ["files.csv.gz"]
    # csv, jsonl, geojson, parquet, debian, trace, matrix; otherwise the name shows it
    format = "csv"
    topic = "files"
    schema = "name STRING NOT NULL, type STRING NOT NULL, size BIGINT NOT NULL"
    # The column that names the peer that holds the item. Leave it out if no peer does.
    peer = "maintainer"
    # attribute = column, where the names differ; dotted in JSON
    columns = { name = "file_name" }
    # A TIMESTAMP that is a number since 1970 is in s, ms or us.
    units = { time = "ms" }
    # Rows for quarantine: reason = condition
    refuse = { "size is negative" = "size < 0" }
    # Needed if another file says which peer holds which item and names items by this column.
    key = "file_id"

    [[source]]
    files = ["peer_files.csv.gz"]
    # items (default), holdings, sessions, rtts
    table = "holdings"
    peer = "peer_id"
    key = "file_id"

    [[source]]
    files = ["sessions.csv.gz"]
    # Columns peer, up, down, and left_censored and right_censored if there are any.
    table = "sessions"
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
"""The schema of a trace of shared files, the topic of seed 001."""
NO_NEGATIVE = {"size is negative": "size < 0"}
SESSION = ("peer", "up", "down")
CENSORED = ("left_censored", "right_censored")
MICROS = {"s": 1_000_000, "ms": 1_000, "us": 1}
ITEM_OPTIONS = ("schema", "refuse", "units")


class MappingError(ValueError):
    """A mapping that cannot be used. The message names the place, the fault and the remedy."""


class Source(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One kind of file, and the meaning of its columns."""

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
        """Microseconds in its unit of time.

        The default is seconds for sessions and milliseconds for round trips.
        """
        return MICROS[self.unit or ("ms" if self.table == "rtts" else "s")]


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    source: tuple[Source, ...] = ()


def load(path: Path) -> tuple[Source, ...]:
    """The sources of a mapping file, one for each format, with the files that exist."""
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
    """Files that need no mapping: traces of files by peer, name, type and size; sessions; matrices
    of round-trip times.
    """
    kinds = {path: guess(path) for path in paths}
    live = tuple(str(path) for path, kind in kinds.items() if kind == "trace")
    # Live traces are one source, because the file of one node may name a topic of another node.
    found = [Source(files=live, format="trace")] if live else []
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
    """The format that a file's name shows.

    For JSON lines, the first line shows whether a live node wrote them.
    """
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
        # The reader of the file reports the fault.
        return False


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
        # The name itself has a * or a [.
        found = [literal]
    if not found:
        raise MappingError(f"{where}: no such file: {base / inside}")
    return found


def _checked(source: Source, where: str) -> Source:
    """Raise an error for options that would be ignored or that contradict each other."""

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
                "no schema; write the topic's attributes, such as "
                'schema = "name STRING, size BIGINT"'
            )
        if source.unit:
            raise wrong(
                "unit is for sessions and rtts; "
                'for a TIMESTAMP attribute write units = { attribute = "ms" }'
            )
        return source
    if used := [name for name in ITEM_OPTIONS if getattr(source, name)]:
        raise wrong(f"{used[0]} is for items, not for {source.table}")
    if source.format in ("debian", "trace", "geojson"):
        raise wrong(f"format {source.format} gives items, not {source.table}")
    if source.table == "holdings" and not (source.peer and source.key):
        raise wrong("holdings need peer and key: the columns that name the holder and its item")
    if source.table == "sessions" and (unknown := set(source.columns) - {*SESSION, *CENSORED}):
        raise wrong(
            f"columns of sessions are {', '.join((*SESSION, *CENSORED))}, not {min(unknown)}"
        )
    return source
