"""Filters, events, and who should get what: the seed's section 4, and an oracle that does not use
the overlay.

    synthetic   values of name, type and size drawn alike for filters and events, from a space in
                which two in five events match
    trace       a filter for each peer that matches one of the files it shares, and an event for
                each file drawn from the peers (files.csv.gz, peer_files.csv.gz; or one .csv.gz;
                "sample" is the shipped one), or a stand-in made from the distributions fitted to
                them
    zipf        popular values: names by Zipf's law, for filters and events alike

"mixed" kinds: of ten filters four are points, two BETWEEN, one `size >=`, one `size <=`, one has a
wildcard in the middle (name and size, any type), one is an IN of two names.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from bisect import bisect_right
from importlib import resources
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any

from gossamer.filters import Filter, Schema
from gossamer.filters.tree import In
from gossamer.lab.skiplist.config import Setup
from gossamer.sim.config import ConfigError

TOPIC = "files"
SCHEMA = Schema.parse("name STRING, type STRING, size BIGINT")
TYPES = ("dsc", "orig.gz", "orig.xz", "debian.xz", "diff.gz", "asc", "native.xz")
# As a trace: the one that comes with the package.
SAMPLE = "sample"
# Points of the synthetic space for each filter.
SPACE = 2
SIZE_MAX = 1 << 30

Row = tuple[Any, ...]


class Workload:
    """``filters[n]`` is subscription n; ``rows`` are the events."""

    def __init__(self, filters: list[Filter], rows: list[Row]) -> None:
        self.filters, self.rows = filters, rows


class Oracle:
    """Who wants what, for many rows: every filter is asked, those on a name only for its rows."""

    def __init__(self, filters: list[Filter]) -> None:
        self._by_name: dict[str, list[int]] = {}
        self._others: list[int] = []
        self._filters = filters
        for number, filter in enumerate(filters):
            names = [_name_of(conjunction) for conjunction in filter.conjunctions]
            if names and all(name is not None for name in names):
                for name in dict.fromkeys(names):
                    assert name is not None
                    self._by_name.setdefault(name, []).append(number)
            else:
                self._others.append(number)

    def wants(self, row: Row) -> list[int]:
        asked = self._by_name.get(row[0], []) + self._others
        return sorted(number for number in asked if self._filters[number].matches_row(row))


def _name_of(conjunction: tuple[Any, ...]) -> str | None:
    """The name that a conjunction demands, read off its text-level predicates."""
    for predicate in conjunction:
        if (
            isinstance(predicate, In)
            and predicate.attribute == 0
            and not predicate.negated
            and len(predicate.values) == 1
        ):
            return str(predicate.values[0])
    return None


def make(setup: Setup) -> Workload:
    rng = Random(f"skiplist workload {setup.seed}")
    if setup.workload == "trace":
        return _trace(setup, rng)
    names = max(1, setup.entries * SPACE // 2)
    if setup.workload == "zipf":
        weights = list(accumulate(1 / (rank + 1) for rank in range(names)))

        def draw() -> Row:
            rank = bisect_right(weights, rng.random() * weights[-1])
            return f"file-{rank:06d}", TYPES[rank % 2], rank % 3
    else:

        def draw() -> Row:
            number = int(rng.random() * names)
            return f"file-{number:06d}", TYPES[int(rng.random() * 2)], number * 1_000

    filters = [_filter(draw(), setup, rng, number) for number in range(setup.entries)]
    return Workload(filters, [draw() for _ in range(setup.events)])


def _quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _filter(row: Row, setup: Setup, rng: Random, number: int) -> Filter:
    name, kind, size = row
    text = f"name = {_quote(name)} AND type = {_quote(kind)} AND size = {size}"
    if setup.kinds == "mixed":
        choice = number % 10
        if choice in (4, 5):
            low = max(0, size - 1_000 * (1 + int(rng.random() * 8)))
            text = f"type = {_quote(kind)} AND size BETWEEN {low} AND {size + 2_000}"
        elif choice == 6:
            text = f"name = {_quote(name)} AND size >= {size}"
        elif choice == 7:
            text = f"name = {_quote(name)} AND size <= {size}"
        elif choice == 8:
            text = f"name = {_quote(name)} AND size = {size}"
        elif choice == 9:
            text = f"name IN ({_quote(name)}, {_quote(name + 'x')}) AND type = {_quote(kind)}"
    return Filter.parse(text, SCHEMA)


# Traces.


def _trace(setup: Setup, rng: Random) -> Workload:
    shared = (
        _read(Path(setup.trace), setup.entries, rng)
        if setup.trace
        else _stand_in(setup.entries, rng)
    )
    filters, rows = [], []
    for files in shared:
        name, kind, size = files[int(rng.random() * len(files))]
        text = f"name = {_quote(name)} AND type = {_quote(kind)} AND size = {size}"
        filters.append(Filter.parse(text, SCHEMA))
    for _ in range(setup.events):
        files = shared[int(rng.random() * len(shared))]
        rows.append(files[int(rng.random() * len(files))])
    return Workload(filters, rows)


def check_trace(trace: str) -> None:
    """Raises ConfigError, with the needed files, where ``_trace`` would."""
    _read(Path(trace), 1, Random(0))


def _read(folder: Path, peers: int, rng: Random) -> list[list[Row]]:
    """The files of this number of peers, drawn; peers are used again if there are too few."""
    files: dict[str, Row] = {}
    of_peer: dict[str, list[Row]] = {}
    try:
        if str(folder) == SAMPLE or folder.suffix == ".gz":
            shipped = resources.files("gossamer") / "data" / "debian-sample.csv.gz"
            with (
                (shipped if str(folder) == SAMPLE else folder).open("rb") as packed,
                gzip.open(packed, "rt", newline="") as file,
            ):
                for line in csv.DictReader(file):
                    of_peer.setdefault(line["peer"], []).append(
                        (line["name"], line["type"], int(line["size"]))
                    )
            return _drawn(of_peer, folder, peers, rng)
        with gzip.open(folder / "files.csv.gz", "rt", encoding="utf-8", newline="") as file:
            for line in csv.DictReader(file):
                files[line["file_id"]] = (line["name"], line["type"], int(line["size"]))
        with gzip.open(folder / "peer_files.csv.gz", "rt", encoding="utf-8", newline="") as file:
            for line in csv.DictReader(file):
                of_peer.setdefault(line["peer_id"], []).append(files[line["file_id"]])
    except (OSError, EOFError, KeyError, ValueError, zlib.error, UnicodeDecodeError) as error:
        raise ConfigError(
            f"cannot read the trace in {folder}: {error!r}; it needs files.csv.gz "
            "(file_id, name, type, size) and peer_files.csv.gz (peer_id, file_id); or give one "
            ".csv.gz with peer, name, type, size, or 'sample'"
        ) from None
    return _drawn(of_peer, folder, peers, rng)


def _drawn(of_peer: dict[str, list[Row]], folder: Path, peers: int, rng: Random) -> list[list[Row]]:
    if not of_peer:
        raise ConfigError(f"the trace in {folder} has no peers")
    known = sorted(of_peer, key=lambda _: rng.random())
    return [of_peer[known[number % len(known)]] for number in range(peers)]


def _stand_in(peers: int, rng: Random) -> list[list[Row]]:
    """Files per peer by a power law (alpha 1.65 from 3), popularity by Zipf 0.87; one name in six
    begins with `lib`.
    """
    count = max(10, peers * 8)
    weights = list(accumulate((rank + 1) ** -0.87 for rank in range(count)))
    order = sorted(range(count), key=lambda _: rng.random())
    shared: list[list[Row]] = []
    for _ in range(peers):
        number = min(500, int(3 * (1 - rng.random()) ** (-1 / 0.65)))
        drawn: dict[Row, None] = {}
        for _ in range(number):
            rank = bisect_right(weights, rng.random() * weights[-1])
            drawn[_file(order[rank])] = None
        shared.append(list(drawn))
    return shared


def _file(number: int) -> Row:
    rng = Random(f"file {number}")
    word = "".join(chr(97 + int(rng.random() * 26)) for _ in range(3 + int(rng.random() * 8)))
    prefix = "lib" if rng.random() < 0.16 else ""
    version = f"{int(rng.random() * 30)}-{1 + int(rng.random() * 4)}"
    name = f"{prefix}{word}_{number % 10}.{version}"
    size = int(2_000 * (1 - rng.random()) ** -0.8) % SIZE_MAX
    return name, TYPES[int(rng.random() * len(TYPES))], size
