"""A swarm of skip lists: size, parameters, network, faults, subscriptions and events are all drawn
from the seed.

While anything may go wrong nothing is handed over twice or unasked for; where faults are only
crashes and farewells with sound links, no publisher relies on a gap with a complete join in it,
and every due event arrives. Then faults stop: the list must become perfect in a stated time, every
receipt complete, and events that are published then must all arrive.
"""

from __future__ import annotations

from random import Random

from gossamer.lab.skiplist import checkers as check
from gossamer.lab.skiplist.config import Setup
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
)
from gossamer.sim.swarm import Dice

NODES_MAX = 30
# Virtual seconds until the list must be perfect.
CALM_S = 600.0
RECEIPTS_S = 120.0
# Of a seed: more is a storm.
STEPS_MAX = 10_000_000
# Published once the list is perfect.
LATE_EVENTS = 20


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
        # Else revocations would never be all that there is.
        else FEW,
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
    """Sound links, and nodes that only crash or leave, one fault at a time: no live node is
    taken for dead.
    """
    only = (
        all(isinstance(fault, Crash | Leave) for fault in setup.faults) and len(setup.faults) <= 1
    )
    return only and not setup.loss and not setup.breaks


class Flown(SkipRun):
    """Trouble and calm."""

    def __init__(self, setup: Setup, kind: type[SkipList] = SkipList) -> None:
        super().__init__(setup, make(setup), kind)
        self.steps_max = STEPS_MAX
        self.settled_s = -1.0

    def act(self) -> None:
        try:
            self._trouble()
            self._calm()
        finally:
            self.violations += [*self.book.once.told(), *self.book.wanted.told()]
            self.violations += [*self.book.whole.told(), *self.lease_checks.told()]

    def counted(self) -> dict[str, float]:
        """``settled_s``: from the end of all faults to the perfect list; -1: never."""
        found = self.book
        return {"expected": found.expected, "missed": found.missed, "settled_s": self.settled_s}

    def _trouble(self) -> None:
        setup, world = self.setup, self.world
        rules, world.network.rules = world.network.rules, []
        self.boot_in_waves(setup.nodes)
        world.network.rules = rules
        start = over = int(world.clock.now)
        interval = duration(setup.interval)
        for number in range(setup.events):
            over = start + number * interval
            world.clock.push(over, self._use, number)
        over = max(over, self.schedule_faults(start))
        self.run_until(over + 1)
        self.calm()

    def _use(self, number: int, _y: None, _z: None) -> None:
        """An event; now and then somebody unsubscribes, or subscribes again."""
        live = self.live()
        if not live:
            return
        node = live[self.below(len(live))]
        self.publish_all(node, self._rows(self.workload.rows, number))
        if self.rng.random() < 0.2:
            places = self.subscribers[node.index].filters
            first = node.index * self.setup.per_node
            absent = [n for n in range(first, first + self.setup.per_node) if n not in places]
            if absent:
                self.subscribe(node, absent[0])
            elif len(places) > 1:
                self.unsubscribe(node, next(iter(places)))
        if is_gentle(self.setup):
            self.look_at_leases()

    def _rows(self, rows: list[Row], number: int) -> list[Row]:
        """The rows that are published at once: two in turn, so that some walk together and their
        numbers do not follow each other.
        """
        return [rows[(number + turn % 2) % len(rows)] for turn in range(self.setup.together)]

    def _calm(self) -> None:
        for node in self.world.nodes:
            self.world.resume(node)
        took = self.until(lambda: self.is_perfect() and self.all_joined(), CALM_S, SECOND)
        if took is None:
            perfection = check.Perfection()
            perfection.look(self.entries(), self.setup.k)
            self.violations.append(
                f"converged: {CALM_S:g} s after all faults the list is not perfect or not joined"
            )
            self.violations += perfection.told()[:3]
            return
        self.settled_s = took
        if self.until(self._no_receipt_missing, RECEIPTS_S, SECOND) is None:
            self.violations.append(
                f"receipts: some are not complete {RECEIPTS_S:g} s after the list was perfect"
            )
        if not is_gentle(self.setup):
            self.book.whole.since = self.book.history.tick
        rng = Random(f"late {self.setup.seed}")
        rows = self.workload.rows or make(Setup(entries=max(2, self.setup.entries), events=5)).rows
        for _ in range(LATE_EVENTS):
            if self.live():
                self.publish_all(self.draw_node(), self._rows(rows, int(rng.random() * len(rows))))
                self.wait(0.05)
        if self.until(self._no_receipt_missing, RECEIPTS_S, SECOND) is None:
            self.violations.append("receipts: some of the late events' are not complete")
        self.look_at_leases()
        self.judge(receipts=False)

    def _no_receipt_missing(self) -> bool:
        return not any(map(self.is_open, self.events))


def skiplist(seed: int) -> Flown:
    return Flown(draw_setup(seed))
