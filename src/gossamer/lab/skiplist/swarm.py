"""A swarm of skip lists: size, parameters, network, faults, subscriptions and events are all drawn from the seed.

While anything may go wrong nothing is handed over twice or unasked for; where faults are only crashes and farewells with sound
links, no publisher relies on a gap with a complete join in it, and every due event arrives. Then faults stop: the list must become
perfect in a stated time, every receipt complete, and events that are published then must all arrive.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from random import Random

from msgspec import Struct

from gossamer.lab.skiplist import checkers as check
from gossamer.lab.skiplist.config import Setup, to_toml
from gossamer.lab.skiplist.run import SkipRun
from gossamer.lab.skiplist.workload import Row, make
from gossamer.machine import SECOND
from gossamer.overlay.skiplist.config import FEW
from gossamer.overlay.skiplist.core import SkipList
from gossamer.sim.clock import duration
from gossamer.sim.faults import (
    AnyFault,
    Clogging,
    Crash,
    Leave,
    Partition,
    Pause,
    Swizzle,
    schedule,
)
from gossamer.sim.swarm import Dice
from gossamer.sim.world import BreachError

NODES_MAX = 30
CALM_S = 600.0  # virtual seconds until the list must be perfect
RECEIPTS_S = 120.0
STEPS_MAX = 10_000_000  # of a seed: more is a storm
LATE_EVENTS = 20  # published once the list is perfect


class SkipFlight(Struct, frozen=True):
    """What became of one seed."""

    seed: int
    good: bool
    violations: list[str]
    digest: str
    messages: int
    expected: int
    missed: int
    settled_s: float
    fired: dict[str, int]
    toml: str

    @property
    def replay(self) -> str:
        return f"gossamer simulate swarm --overlay skiplist --start {self.seed} --seeds 1"


def draw_setup(seed: int) -> Setup:
    dice = Dice(f"skiplist swarm {seed}")
    nodes = dice.between(1, 5) if dice.chance(0.3) else dice.between(2, NODES_MAX)
    per_node = 1 if dice.chance(0.6) else dice.between(2, 4)
    latencies = ("constant:1ms", "uniform:1ms:30ms", "lognormal:20ms:0.6", "weibull")
    gentle = dice.chance(0.4)
    return Setup(
        entries=nodes * per_node,
        per_node=per_node,
        k=dice.between(2, 4),
        routing="paper" if dice.chance(0.15) else "gossamer",
        successors=dice.between(4, 10),
        lease=dice.time(1_000, 12_000) if dice.chance(0.8) else "0s",
        workload="zipf" if dice.chance(0.3) else "synthetic",
        kinds="mixed" if dice.chance(0.5) else "point",
        events=dice.between(0, 60),
        interval=dice.time(10, 300),
        latency=latencies[dice.between(0, len(latencies) - 1)],
        loss=0.0 if gentle else dice.share(0.2),
        delay=dice.share(0.3) if dice.chance(0.4) else 0.0,
        breaks=0.0 if gentle else round(dice.share(0.3) / 300, 5),
        late=dice.time(1, 200),
        detect=dice.time(20, 400),
        stop=dice.time(1_000, 15_000),
        seed=seed,
        faults=_draw_faults(dice, gentle),
        announce=dice.time(1, 3_000),
        few=1
        if gentle and dice.chance(0.7)
        else FEW,  # else revocations would never be all that there is
        pace="prompt" if dice.chance(0.7) else "paper",
        together=dice.between(2, 9) if dice.chance(0.5) else 1,
    )


def _draw_faults(dice: Dice, gentle: bool) -> tuple[AnyFault, ...]:
    faults: list[AnyFault] = []
    for _ in range(dice.between(0, 3)):
        at, share = dice.time(0, 12_000), round(0.03 + dice.share(0.3), 3)
        short, long = dice.time(500, 3_000), dice.time(3_000, 20_000)
        lasts = long if dice.chance(0.4) else short
        kind = dice.between(0, 3 if gentle else 8)
        if kind <= 1:
            faults.append(Crash(at=at, lasts=lasts, share=share))
        elif kind <= 3:
            faults.append(Leave(at=at, lasts=short, share=share))
        elif kind <= 5:
            faults.append(
                Partition(
                    at=at,
                    lasts=lasts,
                    share=share,
                    one_way=dice.chance(0.3),
                    silent=dice.chance(0.3),
                )
            )
        elif kind == 6:
            faults.append(Pause(at=at, lasts=lasts, share=share))
        elif kind == 7:
            faults.append(Clogging(at=at, lasts=short, share=share))
        else:
            faults.append(Swizzle(at=at, lasts=short, share=share))
    return tuple(faults)


def is_gentle(setup: Setup) -> bool:
    """Sound links, and nodes that only crash or leave, one fault at a time: nobody is taken for dead who is not."""
    only = (
        all(isinstance(fault, Crash | Leave) for fault in setup.faults) and len(setup.faults) <= 1
    )
    return only and not setup.loss and not setup.breaks


class Flown:
    """One seed: the run, its checkers, and how it ended."""

    def __init__(self, setup: Setup, kind: type[SkipList] = SkipList) -> None:
        self.setup = setup
        self.run = SkipRun(setup, make(setup), kind)
        self.run.steps_max = STEPS_MAX
        self.violations: list[str] = []
        self.settled_s = -1.0

    def go(self) -> None:
        run = self.run
        try:
            self._trouble()
            self._calm()
        except BreachError as breach:
            self.violations.append(f"contract: {breach}")
        for finding in (run.deliveries, run.lease_checks):
            self.violations += finding.told()

    def _trouble(self) -> None:
        run, setup, world = self.run, self.setup, self.run.world
        rules, world.network.rules = world.network.rules, []
        run.boot_in_waves(setup.nodes)
        world.network.rules = rules
        start = over = int(world.clock.now)
        interval = duration(setup.interval)
        for number in range(setup.events):
            over = max(over, start + number * interval)
            world.clock.push(start + number * interval, self._act, number)
        for number, fault in enumerate(setup.faults):
            over = max(over, schedule(fault, world, start, Random(f"fault {setup.seed} {number}")))
        over = max(over, start + duration(setup.stop))
        run.run_until(over + 1)
        run.calm()

    def _act(self, number: int, _y: None, _z: None) -> None:
        """An event; now and then somebody unsubscribes, or subscribes again."""
        run = self.run
        live = run.live()
        if not live:
            return
        node = live[int(run.rng.random() * len(live))]
        run.publish_all(node, self._rows(run.workload.rows, number))
        if run.rng.random() < 0.2:
            places = run.subscribers[node.index].filters
            first = node.index * self.setup.per_node
            absent = [n for n in range(first, first + self.setup.per_node) if n not in places]
            if absent:
                run.subscribe(node, absent[0])
            elif len(places) > 1:
                run.unsubscribe(node, next(iter(places)))
        if is_gentle(self.setup):
            run.look_at_leases()

    def _rows(self, rows: list[Row], number: int) -> list[Row]:
        """What is published at once: two rows in turn, so that some walk together and their numbers do not follow each other."""
        return [rows[(number + turn % 2) % len(rows)] for turn in range(self.setup.together)]

    def _calm(self) -> None:
        run = self.run
        for node in run.world.nodes:
            run.world.resume(node)
        took = run.until(lambda: run.is_perfect() and run.all_joined(), CALM_S, SECOND)
        if took is None:
            perfection = check.Perfection()
            perfection.look(run.entries(), self.setup.k)
            self.violations.append(
                f"converged: {CALM_S:g} s after all faults the list is not perfect or not joined"
            )
            self.violations += perfection.told()[:3]
            return
        self.settled_s = took
        if run.until(self._no_receipt_missing, RECEIPTS_S, SECOND) is None:
            self.violations.append(
                f"receipts: some are not complete {RECEIPTS_S:g} s after the list was perfect"
            )
        if not is_gentle(self.setup):
            for sent in run.events:
                sent.due = [number for number in sent.due if number in sent.took]
        rng = Random(f"late {self.setup.seed}")
        rows = run.workload.rows or make(Setup(entries=max(2, self.setup.entries), events=5)).rows
        for _ in range(LATE_EVENTS):
            if run.live():
                run.publish_all(run.draw_node(), self._rows(rows, int(rng.random() * len(rows))))
                run.wait(0.05)
        if run.until(self._no_receipt_missing, RECEIPTS_S, SECOND) is None:
            self.violations.append("receipts: some of the late events' are not complete")
        run.look_at_leases()
        run.judge(receipts=False)

    def _no_receipt_missing(self) -> bool:
        return all(sent.done is not None or not sent.due for sent in self.run.events)


def fly(seed: int, kind: type[SkipList] = SkipList) -> SkipFlight:
    return fly_setup(draw_setup(seed), kind)


def fly_setup(setup: Setup, kind: type[SkipList] = SkipList) -> SkipFlight:
    flown = Flown(setup, kind)
    flown.go()
    run, world = flown.run, flown.run.world
    return SkipFlight(
        seed=setup.seed,
        good=not flown.violations,
        violations=flown.violations,
        digest=world.digest.hexdigest(),
        messages=world.messages,
        expected=run.deliveries.expected,
        missed=run.deliveries.missed,
        settled_s=flown.settled_s,
        fired={name: count for name, count in sorted(world.counts.items()) if count},
        toml=to_toml(setup),
    )


def swarm(start: int, seeds: int, jobs: int = 1) -> Iterator[SkipFlight]:
    """Fly the seeds, in order; with several jobs, in several processes."""
    if jobs <= 1 or seeds <= 1:
        yield from map(fly, range(start, start + seeds))
        return
    with ProcessPoolExecutor(
        min(jobs, os.cpu_count() or 1), mp_context=get_context("spawn")
    ) as pool:
        yield from pool.map(
            fly, range(start, start + seeds), chunksize=max(1, min(16, seeds // (4 * jobs)))
        )
