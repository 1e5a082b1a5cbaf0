"""The numbers of `gossamer simulate skiplist`: build the list by joins, let it become perfect,
then the seed's section 4.

Static: events from random nodes; hops until delivered or discarded, noise per node. Figure 5
(``grow_from``): an event to each newcomer as soon as it has its level-0 links. Churn: entries
crash and join all the while, events go on, then the time until the list is perfect again. Gap
load: one publisher whose events match nothing, without and with proxy filters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from msgspec import Struct

from gossamer.filters import Filter, Schema
from gossamer.filters.place import Class
from gossamer.lab.memory import rare_collections
from gossamer.lab.skiplist import checkers as check
from gossamer.lab.skiplist.config import FULL_MAX, Setup
from gossamer.lab.skiplist.run import Sent, SkipRun
from gossamer.lab.skiplist.workload import SCHEMA, make
from gossamer.machine import SECOND
from gossamer.overlay.skiplist.core import SkipList
from gossamer.sim.clock import duration
from gossamer.sim.traces import Traces
from gossamer.sim.world import BreachError, Node

Progress = Callable[[float], None]
QUIET_PERIODS = 10
# Events for one gap.
PATHOLOGICAL = 500
# Virtual seconds in which every receipt must be complete.
SETTLE_S = 60.0
# A crashed node of the churn stays away at least so long.
DOWN_S = 10.0


class Hops(Struct, frozen=True):
    histogram: dict[int, int]
    mean: float
    max: int

    @classmethod
    def of(cls, hops: list[int]) -> Hops:
        counts: dict[int, int] = {}
        for count in sorted(hops):
            counts[count] = counts.get(count, 0) + 1
        return cls(counts, round(sum(hops) / max(1, len(hops)), 4), max(hops, default=0))


class Noise(Struct, frozen=True):
    """Per peer, as a share of all events."""

    mean: float
    p99: float
    max: float

    @classmethod
    def of(cls, counts: list[int], events: int) -> Noise:
        ordered = sorted(counts)
        share = [count / max(1, events) for count in ordered]
        at = min(len(share) - 1, int(0.99 * len(share)))
        return cls(round(sum(share) / len(share), 6), round(share[at], 6), round(share[-1], 6))


class Measured(Struct, kw_only=True):
    entries: int
    hops: Hops
    noise: Noise
    # Noise events at a peer -> peers.
    noise_counts: dict[int, int] = {}
    expected: int = 0
    delivered: int = 0
    missed: int = 0
    duplicate: int = 0
    spurious: int = 0
    levels: int = 0
    links_max: int = 0
    perfect: bool = False
    # From the last join to the perfect list.
    converge_periods: float = -1.0
    join_hops: Hops
    bytes_per_entry_period: float = 0.0
    messages_per_entry_period: float = 0.0
    # Under churn: mean of |span - k**l| / k**l.
    link_error_by_level: dict[int, float] = {}
    # After the churn has stopped.
    reperfect_periods: float = -1.0
    # Joins and crashes.
    churned: int = 0
    entries_per_range: dict[str, float] = {}
    # Filters that an event is compared with on its way, the subscribers' own matching aside.
    compared_per_event: float = 0.0
    hops_per_class: dict[str, float] = {}
    # The hottest peer's share of a pathological publisher's events, before and after.
    gap_load: dict[str, float] = {}
    events: int = 0
    resent: int = 0
    messages: int = 0
    virtual_s: float = 0.0
    digest: str = ""
    model: bool = False
    violations: list[str] = []

    @property
    def good(self) -> bool:
        return not self.violations and self.perfect


def measure(
    setup: Setup, progress: Progress = lambda _: None, traces: Traces | None = None
) -> Measured:
    """``traces`` is given what the nodes' users did and saw; a model has none."""
    if setup.entries > FULL_MAX:
        from gossamer.lab.skiplist.model import measure_model

        return measure_model(setup)
    with rare_collections():
        return _Measuring(setup, progress, traces).go()


class _Measuring:
    def __init__(self, setup: Setup, progress: Progress, traces: Traces | None) -> None:
        self.setup, self.progress = setup, progress
        self.run = SkipRun(setup, make(setup))
        self.run.world.traces = traces
        self.period = duration(setup.period)
        self.violations: list[str] = []
        self.found = Measured(
            entries=0, hops=Hops.of([]), noise=Noise.of([0], 1), join_hops=Hops.of([])
        )

    def go(self) -> Measured:
        try:
            self._build()
            if self.setup.grow_from:
                self._grow()
            elif self.setup.churn:
                self._churn()
            else:
                self._static()
            self._finish()
        except BreachError as breach:
            self.violations.append(f"contract: {breach}")
        run, found = self.run, self.found
        self.violations += run.lease_checks.told()
        found.violations = self.violations
        found.messages, found.digest = run.world.messages, run.world.digest.hexdigest()
        found.virtual_s = run.world.clock.now / SECOND
        return found

    # ------------------------------------------------------------------- the list

    def _build(self) -> None:
        setup, run = self.setup, self.run
        first = -(-setup.grow_from // setup.per_node) if setup.grow_from else setup.nodes
        run.boot_in_waves(first)
        self._perfect("converge_periods", 0.0, 0.6)
        found, entries = self.found, run.entries()
        found.join_hops = Hops.of(run.join_hops)
        before = run.world.bytes, run.world.messages
        run.run_until(run.world.clock.now + QUIET_PERIODS * self.period)
        each = QUIET_PERIODS * max(1, len(entries))
        found.bytes_per_entry_period = round((run.world.bytes - before[0]) / each, 1)
        found.messages_per_entry_period = round((run.world.messages - before[1]) / each, 2)
        self._look_at_links()

    def _perfect(self, field: str, low: float, high: float) -> None:
        run = self.run
        took = run.until(
            lambda: run.is_perfect() and run.all_joined(), self.setup.seconds_max, self.period,
            lambda share: self.progress(
                low + (high - low) * min(1.0, share * self.setup.seconds_max / 120)
            ),
        )  # fmt: skip
        setattr(self.found, field, -1.0 if took is None else took * SECOND / self.period)

    def _look_at_links(self) -> None:
        run, found, k = self.run, self.found, self.setup.k
        entries = run.entries()
        circle, perfection, links = check.Circle(), check.Perfection(), check.Links()
        circle.look(entries)
        perfection.look(entries, k)
        found.links_max = links.look(entries, k)
        found.entries, found.perfect = len(entries), not perfection.count
        found.levels = max((entry.levels for entry in entries), default=0)
        for finding in (circle, perfection, links):
            self.violations += finding.told()

    # ----------------------------------------------------------------------- events

    def _static(self) -> None:
        run, setup = self.run, self.setup
        self._hold_back(False)
        interval = duration(setup.interval)
        for number, row in enumerate(run.workload.rows):
            run.publish(run.draw_node(), row)
            run.run_until(run.world.clock.now + interval)
            if number % 64 == 0:
                self.progress(0.6 + 0.3 * number / max(1, setup.events))
        self._settle()
        self._count(run.events)
        self._gap_load()

    def _hold_back(self, yes: bool) -> None:
        for node in self.run.live():
            cast(SkipList, node.machine).holds_back = yes

    def _settle(self) -> None:
        """Wait until every receipt is complete."""
        run = self.run
        done = run.until(
            lambda: not any(map(run.is_open, run.events)),
            SETTLE_S,
            self.period,
        )
        if done is None:
            self.violations.append(
                f"receipts: some are not complete {SETTLE_S:g} s after the last event"
            )

    def _count(self, events: list[Sent]) -> None:
        run, found = self.run, self.found
        self.violations += run.judge()
        found.events = len(events)
        found.hops = Hops.of([sent.hops for sent in events])
        noise = [cast(SkipList, node.machine).noise for node in run.live()]
        found.noise = Noise.of(noise, len(events))
        found.noise_counts = Hops.of(noise).histogram
        compared = sum(cast(SkipList, node.machine).counters["compared"] for node in run.live())
        found.compared_per_event = round(compared / max(1, len(events)), 2)
        found.resent = sum(max(0, sent.rounds - 1) for sent in events)
        for field in ("expected", "delivered", "missed", "duplicate", "spurious"):
            setattr(found, field, getattr(run.book, field))
        by_class: dict[str, list[int]] = {}
        for sent in events:
            # No receipt: no hops.
            for cls, hops in zip(sent.classes, sent.by_class, strict=False):
                by_class.setdefault(class_text(cls), []).append(hops)
        found.hops_per_class = {
            name: round(sum(hops) / len(hops), 3) for name, hops in sorted(by_class.items())
        }

    def _gap_load(self) -> None:
        """One publisher whose events all fall into one gap: what the hottest peer gets of them."""
        run = self.run
        nodes = run.live()
        if len(nodes) < 2:
            return
        publisher = nodes[0]
        row = (
            ("file-0000000", "zzz", 1)
            if self.setup.workload != "trace"
            else ("nobody shares this", "zzz", 1)
        )
        for name, yes in (("before", False), ("after", True)):
            self._hold_back(yes)
            before = {node.index: cast(SkipList, node.machine).noise for node in nodes}
            for _ in range(PATHOLOGICAL):
                run.publish(publisher, row)
                run.run_until(run.world.clock.now + 2_000)
            run.wait(1.0)
            most = max(cast(SkipList, node.machine).noise - before[node.index] for node in nodes)
            self.found.gap_load[name] = round(most / PATHOLOGICAL, 6)
            run.look_at_leases()

    # ------------------------------------------------------------------ Figure 5

    def _grow(self) -> None:
        """Newcomers one by one; to each, as soon as its level-0 links are there, an event that it
        wants.
        """
        run, setup = self.run, self.setup
        first, hops = len(run.live()), []
        for index in range(first, setup.nodes):
            run.boot(index)
            node = run.world.nodes[index]
            machine = cast(SkipList, node.machine)
            joined = run.until(
                lambda m=machine: all(e.is_joined for e in m.entries.values()),  # type: ignore[misc]
                SETTLE_S,
                2_000,
            )
            if joined is None:
                self.violations.append(
                    f"join: node {index} is not in the list after {SETTLE_S:g} s"
                )
                continue
            sent = run.publish(self._another(node), self._wanted_by(index))
            run.until(lambda s=sent: s.done is not None, SETTLE_S, 2_000)  # type: ignore[misc]
            hops.append(sent.hops)
            self.progress(0.6 + 0.4 * (index - first) / (setup.nodes - first))
        self._settle()
        self._count(run.events)
        self.found.join_hops = Hops.of(run.join_hops[first:])
        self.found.entries = len(run.entries())

    def _another(self, node: Node) -> Node:
        while True:
            other = self.run.draw_node()
            if other is not node:
                return other

    def _wanted_by(self, index: int) -> tuple[Any, ...]:
        """A row that the first filter of a node matches: its own values (the workload's filters
        are points here).
        """
        filter = self.run.workload.filters[index * self.setup.per_node]
        values: dict[int, Any] = {p.attribute: p.values[0] for p in filter.conjunctions[0]}  # type: ignore[union-attr]
        return tuple(values.get(place) for place in range(len(SCHEMA.names)))

    # --------------------------------------------------------------------- churn

    def _churn(self) -> None:
        """So many crash, and as many join, a minute; events go on all the while, from nodes that
        are up.
        """
        run, setup = self.run, self.setup
        clock, rng = run.world.clock, run.rng
        start = int(clock.now)
        lasts = int(setup.churn_s * SECOND)
        count = int(setup.churn * setup.nodes * setup.churn_s / 60)
        down: list[tuple[int, Node]] = []
        acts: list[tuple[int, int, Any]] = [
            (start + int(lasts * rng.random()), 0, None) for _ in range(count)
        ]
        every = max(1, lasts // max(1, setup.events))
        acts += [(start + number * every, 1, row) for number, row in enumerate(run.workload.rows)]
        acts += [(start + (number + 1) * lasts // 10, 2, None) for number in range(10)]
        errors: dict[int, list[float]] = {}
        for at, kind, row in sorted(acts, key=lambda act: act[:2]):
            run.run_until(at)
            if kind == 1:
                run.publish(run.draw_node(), row)
            elif kind == 2:
                for level, error in check.link_errors(run.entries(), setup.k).items():
                    errors.setdefault(level, []).append(error)
                run.look_at_leases()
                self.progress(0.6 + 0.3 * (at - start) / lasts)
            else:
                if down and clock.now - down[0][0] > DOWN_S * SECOND:
                    run.world.restart(down.pop(0)[1])
                    self.found.churned += 1
                node = run.draw_node()
                if len(run.live()) > 2:
                    run.world.crash(node)
                    down.append((int(clock.now), node))
                    self.found.churned += 1
        self.found.link_error_by_level = {
            level: round(sum(e) / len(e), 4) for level, e in sorted(errors.items())
        }
        for _, node in down:
            run.world.restart(node)
        self._perfect("reperfect_periods", 0.9, 0.98)
        self._settle()
        self._count(run.events)

    def _finish(self) -> None:
        if self.setup.grow_from:
            self._perfect("reperfect_periods", 0.98, 1.0)
        self._look_at_links()
        self.run.look_at_leases()
        self.found.entries_per_range = entries_per_range(self.found.entries)


def class_text(cls: Class) -> str:
    """name,type=;size>= and the like: what a class's keys are made of."""
    equal = ",".join(SCHEMA.names[attribute] for attribute in cls.equal)
    ranged = f";{SCHEMA.names[cls.ranged]} {cls.kind}" if cls.kind != "point" else ""
    bits = f"/{cls.bits}" if cls.kind == "between" else ""
    return (f"{equal} ={ranged}{bits}" if equal else f"{ranged.lstrip(';')}{bits}") or "all"


def entries_per_range(entries: int) -> dict[str, float]:
    """What a range costs: entries by kinds and cells, and peers that keep a routing entry in the
    seed's way.

    Over ``entries`` evenly spread points; ranges that hold 10 of them, and half of them.
    """
    schema = Schema.parse("value BIGINT")
    found: dict[str, float] = {}
    for name, width in (("narrow", min(10, entries)), ("wide", max(1, entries // 2))):
        keys = seed = 0
        for number in range(50):
            low = number * entries // 100
            filter = Filter.parse(
                f"value BETWEEN {1_000 * low} AND {1_000 * (low + width) - 1}", schema
            )
            keys += sum(len(placement.keys) for placement in filter.placements())
            # Everyone in it, its own entry aside, and the first beyond.
            seed += width + 1
        found[f"{name}_cells"], found[f"{name}_seed"] = keys / 50, seed / 50
    return found
