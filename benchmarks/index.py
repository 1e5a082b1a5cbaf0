"""One event against many filters at once: gossamer's index beside a loop, a dict with bisect, and
DuckDB.

    python benchmarks/index.py             # 1,000, 100,000 and 1,000,000 filters: about two minutes
    python benchmarks/index.py --quick     # the same with less of everything: under a minute
    python benchmarks/index.py --sizes 100000 --json > index.json

The work. Every filter is `country = ... AND kind = ... AND reading BETWEEN ... AND ...`: two
equalities and a range, drawn evenly from 100 countries, 10 kinds, and readings of 0 to 9,999 in
ranges of 2 to 100. Every event has the three attributes. So at a million filters, about 1,000 agree
with an event on country and kind, and about 5 match it. A dict does better when fewer agree;
--countries and --width set how many agree and match. *Events a second* covers the way from events
in the named form to all the pairs (event, filter).

    gossamer, dicts     `Index.match_events` on a list of dicts, which it checks against the schema
    gossamer, columns   `Index.match_columns` on an Arrow table with plain (not dictionary-encoded)
                        strings
    gossamer, one       `Index.match` on one dict at a time
    dict with bisect    from dicts: a dict from (country, kind) to the ranges sorted by their low
                        end. bisect finds the ranges that begin at or below the reading, and a list
                        comprehension compares their high ends. Its lists are laid out for the
                        processor's caches, which makes it about four times as fast at a million
    plain loop          from dicts: a tuple for each filter, compared with each event
    duckdb              the join of a table of filters with the Arrow table of events, fetched as
                        Arrow, on all cores (the table and the index's structure are not counted)

The method. Before any timing, every contender's pairs are compared with those of the dict with
bisect, over all the events that it gets. A contender that takes a batch gets 65,536 events in one;
the others get as many of the same events as they can match in about half a second. A round runs
every contender once, and each round starts with the next contender, so a slow minute of the machine
hits all alike. Figures are medians over the rounds, and "times faster" is the median of the rounds'
own ratios. Trust the ratios of one run, and do not compare figures of two runs.

*Bytes a filter* is the size of the index's arrays (`Index.nbytes`), and the growth of the process
while it was built.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import importlib.metadata
import importlib.util
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from gossamer.filters import Filter, Schema, tree
from gossamer.filters.index import Index

DDL = "country STRING, kind STRING, reading INT"
KINDS = [f"kind {i}" for i in range(10)]
READINGS = 10_000
EVENTS = 65_536
# The time that a contender should take in a round.
SHARE_S = 0.5
# The bars at a million filters, as multiples of the dict with bisect.
BAR = {
    "gossamer, dicts": 8,
    "gossamer, columns": 20,
}
RIVAL = "dict with bisect"
BATCHED = ("gossamer, columns", "gossamer, dicts", "duckdb")

Range = tuple[str, str, int, int]
# A sorted array of event * 2^32 + filter.
Pairs = Any
# For n events it returns the function to time, whose result goes to `pairs_of`.
Contender = Callable[[int], Callable[[], Any]]


def make_ranges(count: int, countries: list[str], width: int, rng: random.Random) -> list[Range]:
    found = []
    for _ in range(count):
        low = rng.randrange(READINGS)
        found.append(
            (rng.choice(countries), rng.choice(KINDS), low, low + rng.randint(1, width - 1))
        )
    return found


def make_events(count: int, countries: list[str], rng: random.Random) -> list[dict[str, Any]]:
    found = []
    for _ in range(count):
        found.append(
            {
                "country": rng.choice(countries),
                "kind": rng.choice(KINDS),
                "reading": rng.randrange(READINGS),
            }
        )
    return found


def make_table(events: list[dict[str, Any]]) -> pa.Table:
    types = {"country": pa.string(), "kind": pa.string(), "reading": pa.int32()}
    return pa.table(
        {name: pa.array([event[name] for event in events], kind) for name, kind in types.items()}
    )


def make_filters(ranges: list[Range], schema: Schema) -> Iterator[Filter]:
    """The result of Filter.parse for their texts, without parsing, which would take most of the
    time.
    """
    for country, kind, low, high in ranges:
        ends = tree.Compare(2, ">=", low), tree.Compare(2, "<=", high)
        yield Filter(
            tree.And((tree.In(0, (country,), False), tree.In(1, (kind,), False), *ends)), schema
        )


# -- the rivals


def plain_loop(ranges: list[Range], events: list[dict[str, Any]]) -> Contender:
    def run(count: int) -> Callable[[], list[list[int]]]:
        def go() -> list[list[int]]:
            found = []
            for event in events[:count]:
                c, k, v = event["country"], event["kind"], event["reading"]
                found.append(
                    [
                        i
                        for i, (a, b, low, high) in enumerate(ranges)
                        if c == a and k == b and low <= v <= high
                    ]
                )
            return found

        return go

    return run


def dict_with_bisect(ranges: list[Range], events: list[dict[str, Any]]) -> Contender:
    gathered: dict[tuple[str, str], list[tuple[int, int, int]]] = {}
    for i, (country, kind, low, high) in enumerate(ranges):
        gathered.setdefault((country, kind), []).append((low, high, i))
    table = {}
    for key, several in gathered.items():
        several.sort()
        # The way through an array puts the numbers of a list side by side in memory, which takes a
        # quarter of the time at a million.
        lows, highs, ids = (list(array("q", column)) for column in zip(*several, strict=True))
        table[key] = lows, highs, ids
    nothing: tuple[list[int], list[int], list[int]] = ([], [], [])

    def run(count: int) -> Callable[[], list[list[int]]]:
        def go() -> list[list[int]]:
            found = []
            for event in events[:count]:
                lows, highs, ids = table.get((event["country"], event["kind"]), nothing)
                v = event["reading"]
                found.append(
                    [
                        i
                        for high, i in zip(highs[: bisect_right(lows, v)], ids, strict=False)
                        if high >= v
                    ]
                )
            return found

        return go

    return run


def duckdb_join(ranges: list[Range], table: pa.Table) -> Contender:
    import duckdb

    connection = duckdb.connect()
    names = ("country", "kind", "low", "high")
    columns = dict(zip(names, map(list, zip(*ranges, strict=True)), strict=True))
    filters = pa.table({**columns, "id": pa.array(range(len(ranges)), pa.int32())})
    connection.register("given", filters)
    connection.execute("CREATE TABLE filters AS SELECT * FROM given")
    connection.unregister("given")
    numbered = table.append_column("event", pa.array(range(table.num_rows), pa.int32()))
    join = (
        "SELECT event, id FROM {} JOIN filters USING (country, kind) "
        "WHERE reading BETWEEN low AND high"
    )

    def run(count: int) -> Callable[[], Any]:
        connection.register(f"events_{count}", numbered.slice(0, count))
        text = join.format(f"events_{count}")
        return lambda: connection.sql(text).to_arrow_table()

    return run


# -- gossamer


def index_dicts(index: Index, events: list[dict[str, Any]]) -> Contender:
    def run(count: int) -> Callable[[], Any]:
        some = events[:count]
        return lambda: index.match_events(some)

    return run


def index_columns(index: Index, table: pa.Table) -> Contender:
    def run(count: int) -> Callable[[], Any]:
        some = table.slice(0, count)
        return lambda: index.match_columns(some)

    return run


def index_one(index: Index, events: list[dict[str, Any]]) -> Contender:
    def run(count: int) -> Callable[[], list[list[int]]]:
        some = events[:count]
        return lambda: [index.match(event) for event in some]

    return run


def pairs_of(result: Any) -> Pairs:
    """Any contender's result as one sorted array, so that results can be compared."""
    if isinstance(result, pa.Table):
        events, ids = result.column("event").to_numpy(), result.column("id").to_numpy()
    elif isinstance(result, list):
        events = np.repeat(np.arange(len(result)), [len(ids) for ids in result])
        ids = np.array([i for several in result for i in several], np.int64)
    else:
        events, ids = result.pairs()
    return np.sort(events.astype(np.int64) << 32 | ids)


# -- measuring


class Size(msgspec.Struct):
    """The results for one number of filters."""

    filters: int
    matches_per_event: float = 0.0
    build_s: float = 0.0
    index_bytes_per_filter: float = 0.0
    grown_bytes_per_filter: float = 0.0
    events: dict[str, int] = {}
    # Events a second, by contender.
    rounds: list[dict[str, float]] = []
    events_per_s: dict[str, float] = {}
    times_the_dict: dict[str, float] = {}
    errors: list[str] = []


class Report(msgspec.Struct):
    """The results of a run; `--json` prints them unchanged."""

    benchmark: str
    when: str
    commit: str
    machine: dict[str, Any]
    versions: dict[str, str]
    settings: dict[str, Any]
    skipped: dict[str, str]
    sizes: list[Size] = []


def timed(go: Callable[[], Any]) -> float:
    gc.collect()
    # Garbage collection is off for all contenders. It would go through the rivals' million tuples
    # again and again.
    gc.disable()
    try:
        start = time.perf_counter()
        go()
        return time.perf_counter() - start
    finally:
        gc.enable()


def events_for(contender: Contender, most: int, share_s: float) -> int:
    """The number of events that takes about the share, at most all of them."""
    count = 1
    while True:
        seconds = timed(contender(count))
        if seconds >= share_s / 8 or count == most:
            return max(1, min(most, int(count * share_s / max(seconds, 1e-9))))
        count = min(most, count * 4)


def resident_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def measure(count: int, args: argparse.Namespace, skipped: dict[str, str]) -> Size:
    rng = random.Random(args.seed)
    countries = [f"country {i}" for i in range(args.countries)]
    ranges = make_ranges(count, countries, args.width, rng)
    events = make_events(EVENTS, countries, rng)
    table = make_table(events)
    size = Size(count)
    gc.collect()
    before, start = resident_bytes(), time.perf_counter()
    index = Index(Schema.parse(DDL), make_filters(ranges, Schema.parse(DDL)))
    index.match(events[0])
    size.build_s = time.perf_counter() - start
    gc.collect()
    size.index_bytes_per_filter = index.nbytes / count
    size.grown_bytes_per_filter = (resident_bytes() - before) / count
    contenders: dict[str, Contender] = {
        "gossamer, columns": index_columns(index, table),
        "gossamer, dicts": index_dicts(index, events),
        "gossamer, one": index_one(index, events),
        RIVAL: dict_with_bisect(ranges, events),
        "plain loop": plain_loop(ranges, events),
    }
    if "duckdb" not in skipped:
        contenders["duckdb"] = duckdb_join(ranges, table)
    size.events = {
        n: EVENTS if n in BATCHED else events_for(c, EVENTS, args.share)
        for n, c in contenders.items()
    }
    verify(size, contenders)
    ready = {name: contenders[name](size.events[name]) for name in contenders}
    names = list(contenders)
    for number in range(args.rounds):
        shift = number % len(names)
        times = {name: timed(ready[name]) for name in names[shift:] + names[:shift]}
        size.rounds.append({name: size.events[name] / times[name] for name in names})
    for name in names:
        size.events_per_s[name] = statistics.median(each[name] for each in size.rounds)
        size.times_the_dict[name] = statistics.median(
            each[name] / each[RIVAL] for each in size.rounds
        )
    return size


def verify(size: Size, contenders: dict[str, Contender]) -> None:
    """Compare every contender's pairs with those of the dict with bisect over the same events."""
    wanted = pairs_of(contenders[RIVAL](max(size.events.values()))())
    size.matches_per_event = len(wanted) / max(size.events.values())
    for name, contender in contenders.items():
        count = size.events[name]
        if not np.array_equal(
            pairs_of(contender(count)()), wanted[: np.searchsorted(wanted, count << 32)]
        ):
            size.errors.append(
                f"{name}: other matches than the {RIVAL} over {count:,} events and "
                f"{size.filters:,} filters"
            )


# -- the figures in words


def show(report: Report) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    machine, versions = (
        report.machine,
        ", ".join(f"{name} {version}" for name, version in report.versions.items()),
    )
    console.print(
        f"{machine['processor']}, {machine['cores']} cores, load {machine['load']:.1f}; "
        f"{versions}; {report.commit}"
    )
    for name, why in report.skipped.items():
        console.print(f"{name} is skipped: {why}")
    table = Table(
        "",
        *[f"{size.filters:,} filters" for size in report.sizes],
        title="events a second (times the dict with bisect)",
    )
    for column in table.columns[1:]:
        column.justify = "right"
    for name in report.sizes[0].events_per_s:
        cells = [
            f"{_short(size.events_per_s[name])} ({size.times_the_dict[name]:.3g}x)"
            for size in report.sizes
        ]
        table.add_row(name, *cells)
    table.add_section()
    table.add_row("matches an event", *[f"{size.matches_per_event:.3f}" for size in report.sizes])
    table.add_row(
        "bytes a filter (index)", *[f"{size.index_bytes_per_filter:,.0f}" for size in report.sizes]
    )
    table.add_row(
        "bytes a filter (process)",
        *[f"{size.grown_bytes_per_filter:,.0f}" for size in report.sizes],
    )
    table.add_row("building, seconds", *[f"{size.build_s:.2f}" for size in report.sizes])
    console.print(table)
    for size in report.sizes:
        for error in size.errors:
            console.print(f"[red]{error}[/red]")
        if size.filters == 1_000_000:
            for name, bar in BAR.items():
                reached = size.times_the_dict[name]
                console.print(
                    f"bar at 1,000,000: {name}, {bar}x: "
                    f"{'reached' if reached >= bar else 'MISSED'} ({reached:.1f}x)"
                )


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def about() -> tuple[str, dict[str, Any], dict[str, str]]:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    processor = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        models = [
            line.split(":", 1)[1].strip()
            for line in info.read_text().splitlines()
            if line.startswith("model name")
        ]
        processor = models[0] if models else processor
    machine = {
        "processor": processor,
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "system": platform.platform(),
    }
    versions = {"python": platform.python_version()}
    for name in ("numpy", "pyarrow", "duckdb"):
        if importlib.util.find_spec(name) is not None:
            versions[name] = importlib.metadata.version(name)
    return commit.stdout.strip() or "no commit", machine, versions


def main() -> int:
    parser = argparse.ArgumentParser(
        description="many filters at once", epilog="the head of the file describes the measurement"
    )
    parser.add_argument(
        "--sizes",
        type=lambda text: [int(part) for part in text.split(",")],
        default=[1_000, 100_000, 1_000_000],
    )
    parser.add_argument(
        "--countries",
        type=int,
        default=100,
        help="more of them: fewer filters agree with an event on both",
    )
    parser.add_argument("--width", type=int, default=100, help="readings in the widest range")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--share",
        type=float,
        default=SHARE_S,
        metavar="SECONDS",
        help="a contender's part of a round",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="three rounds of short shares")
    parser.add_argument("--json", action="store_true", help="the whole report, for machines")
    args = parser.parse_args()
    if args.quick:
        args.rounds, args.share = 3, 0.1
    skipped = {} if importlib.util.find_spec("duckdb") else {"duckdb": "not installed"}
    commit, machine, versions = about()
    when = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    report = Report("index", when, commit, machine, versions, vars(args), skipped)
    for count in args.sizes:
        if not args.json:
            print(f"{count:,} filters ...", file=sys.stderr)
        report.sizes.append(measure(count, args, skipped))
    if args.json:
        print(json.dumps(msgspec.to_builtins(report), indent=2))
    else:
        show(report)
    return int(any(size.errors for size in report.sizes))


if __name__ == "__main__":
    sys.exit(main())
