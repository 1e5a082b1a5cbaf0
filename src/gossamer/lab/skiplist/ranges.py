"""Ranges two ways, side by side: kinds and cells (ours), and the seed's routing entries at every
peer of the range (3.5).

One subscription in five is a range over the size, the others are points; narrow ranges hold ten
entries, wide ones half of them. Each case is run static and under churn, and judged by the oracle:
what the seed's way misses under churn is a finding, what ours misses is a fault.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from random import Random
from typing import cast

import msgspec
from msgspec import Struct

from gossamer.filters import Filter, order
from gossamer.filters.place import ALL, Class
from gossamer.lab.memory import rare_collections
from gossamer.lab.skiplist.config import Setup
from gossamer.lab.skiplist.run import SkipRun
from gossamer.lab.skiplist.workload import SCHEMA, Row, Workload
from gossamer.machine import SECOND
from gossamer.overlay.skiplist.core import SkipList
from gossamer.overlay.skiplist.marks import merge_ranges
from gossamer.overlay.skiplist.places import Classes, Places
from gossamer.overlay.skiplist.subscriber import Subscriber
from gossamer.sim.clock import duration
from gossamer.sim.world import Node

# Of the entries a minute.
CHURN = 0.1
SETTLE_PERIODS = 12
EVENTS_MAX = 500
SPACING = 1_000


class Compared(Struct, frozen=True):
    ranges: str
    width: str
    churn: float
    # Places of its own.
    entries_per_range: float
    # Routing entries at other peers.
    kept_per_range: float
    bytes_per_entry_period: float
    expected: int
    delivered: int
    missed: int
    duplicate: int
    spurious: int
    hops_mean: float
    digest: str


def range_workload(setup: Setup, wide: bool) -> Workload:
    rng = Random(f"ranges {setup.seed} {wide}")
    count = setup.entries
    span = count // 2 if wide else min(10, count)
    filters = []
    for number in range(count):
        size = SPACING * int(rng.random() * count)
        text = f"size = {size}"
        if number % 5 == 0:
            low = SPACING * int(rng.random() * max(1, count - span))
            text = f"size BETWEEN {low} AND {low + SPACING * span}"
        filters.append(Filter.parse(text, SCHEMA))
    rows: list[Row] = []
    for _ in range(min(setup.events, EVENTS_MAX)):
        at = SPACING * int(rng.random() * count) + (0 if rng.random() < 0.5 else 1)
        rows.append(("", "", at))
    return Workload(filters, rows)


class SeedPlaces(Places):
    """Plain dictionary order over the size: a point at its value, a range at its low end, with a
    mark up to its high end.

    Covering and merging, as 3.5 proposes: of one node's ranges those that overlap are one, and
    points in them need no entry.
    """

    def add(self, number: int, filter: Filter) -> tuple[list[bytes], list[bytes]]:
        before = list(self.keys)
        self.filters[number] = filter
        self._build()
        return self._changes(before)

    def remove(self, number: int) -> tuple[list[bytes], list[bytes]]:
        before = list(self.keys)
        del self.filters[number]
        self._build()
        return self._changes(before)

    def _build(self) -> None:
        spans = {number: _span(filter) for number, filter in self.filters.items()}
        merged = merge_ranges(spans.values())
        self.classes.announce(ALL)
        self.keys = dict.fromkeys((low for low, _ in merged), 1)
        self.class_of = dict.fromkeys(self.keys, ALL)
        self.until = {low: high for low, high in merged if low < high}
        lows = list(self.keys)
        self._placed = {
            number: [lows[bisect_right(lows, low) - 1]] for number, (low, _) in spans.items()
        }


def _span(filter: Filter) -> tuple[bytes, bytes]:
    (domain,) = filter.boxes[0].domains.values()
    if domain.values is not None:
        key = order.encode(domain.line.value(domain.values[0]))
        return key, key
    return order.encode(domain.line.value(domain.low)), order.encode(
        domain.line.value(cast(int, domain.high) - 1)
    )


class SeedRanges(SkipRun):
    """Every node's places in the seed's own way."""

    def make_subscriber(self, machine: SkipList) -> Subscriber:
        return Subscriber(machine, SeedPlaces(Classes()))

    def intervals(self, node: Node, row: Row) -> list[tuple[Class, bytes, bytes]]:
        key = order.encode(row[2])
        return [(ALL, key, key + b"\x00")]


def compare(setup: Setup, progress: Callable[[float], None] = lambda _: None) -> list[Compared]:
    found: list[Compared] = []
    cases = [
        (ranges, wide, churn)
        for ranges in ("cells", "entries")
        for wide in (False, True)
        for churn in (0.0, CHURN)
    ]
    with rare_collections():
        for number, (ranges, wide, churn) in enumerate(cases):
            found.append(_one(setup, ranges, wide, churn))
            progress((number + 1) / len(cases))
    return found


def _one(setup: Setup, ranges: str, wide: bool, churn: float) -> Compared:
    setup = msgspec.structs.replace(setup, ranges=ranges, churn=churn)
    workload = range_workload(setup, wide)
    run = (SeedRanges if ranges == "entries" else SkipRun)(setup, workload)
    run.boot_in_waves(setup.nodes)
    run.until(
        lambda: run.is_perfect() and run.all_joined(), setup.seconds_max, duration(setup.period)
    )
    period = duration(setup.period)
    run.run_until(run.world.clock.now + SETTLE_PERIODS * period)
    before = run.world.bytes
    run.run_until(run.world.clock.now + 5 * period)
    quiet = (run.world.bytes - before) / 5 / max(1, len(run.entries()))
    kept = sum(not mark.gone for entry in run.entries() for mark, _ in entry.marks.values())
    many = sum(1 for number in range(0, len(workload.filters), 5))
    places = len(run.entries()) - (len(workload.filters) - many)
    _publish(run, churn)
    run.judge(receipts=False)
    done = [sent for sent in run.events if sent.done is not None]
    verdict = run.book
    return Compared(
        ranges=ranges,
        width="N/2" if wide else "10",
        churn=churn,
        entries_per_range=round(places / many, 2),
        kept_per_range=round(kept / many, 2),
        bytes_per_entry_period=round(quiet, 1),
        expected=verdict.expected,
        delivered=verdict.delivered,
        missed=verdict.missed,
        duplicate=verdict.duplicate,
        spurious=verdict.spurious,
        hops_mean=round(sum(sent.hops for sent in done) / max(1, len(done)), 3),
        digest=run.world.digest.hexdigest(),
    )


def _publish(run: SkipRun, churn: float) -> None:
    """The events, over half a minute; with churn, a crash and a return for each so many."""
    rows = run.workload.rows
    every = 30 * SECOND // max(1, len(rows))
    crashes = int(churn * len(run.live()) / 2)
    each = max(1, len(rows) // max(1, crashes)) if crashes else len(rows) + 1
    down: list[Node] = []
    for number, row in enumerate(rows):
        run.run_until(run.world.clock.now + every)
        if number % each == each - 1:
            if len(down) > 1:
                run.world.restart(down.pop(0))
            down.append(run.draw_node())
            run.world.crash(down[-1])
        run.publish(run.draw_node(), row)
    run.wait(20.0)
