"""A swarm of interest fabrics: size, parameters, network, faults and changes are all drawn from the seed.

While anything may go wrong the checkers look at every step. Then faults stop, and within ``seconds_max`` virtual seconds every
view must be the truth and the links that are up must be exactly those that the overlay wants; three seconds later the
checkers look at the whole fabric: views, connectivity, degrees, diameter.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from random import Random

from msgspec import Struct

from gossamer.lab.interest import checkers as check
from gossamer.lab.interest.config import JOIN_AMONG, Setup, to_toml
from gossamer.lab.interest.measure import unsettled
from gossamer.lab.interest.run import InterestRun, Make, make_interest
from gossamer.machine import SECOND
from gossamer.sim.clock import duration
from gossamer.sim.faults import (
    AnyFault,
    Clogging,
    Crash,
    FullDisk,
    Leave,
    Partition,
    Pause,
    Swizzle,
    schedule,
)
from gossamer.sim.swarm import Dice
from gossamer.sim.world import BreachError

NODES_MAX = 40
LEAD_IN = 3.0  # virtual seconds of cold start before the trouble begins
LINGER = 3.0  # after everything has become right: time for what is late to do harm
LOSS_FAIR = 0.3  # up to this loss, and with nothing worse, nobody may be taken for dead


class InterestFlight(Struct, frozen=True):
    """What became of one seed."""

    seed: int
    good: bool
    violations: list[str]
    digest: str
    messages: int
    changes: int
    settled_s: float  # from the end of all faults to the truth everywhere; -1: never
    fired: dict[str, int]
    toml: str

    @property
    def replay(self) -> str:
        return f"gossamer simulate swarm --overlay interest --start {self.seed} --seeds 1"


def draw_setup(seed: int) -> Setup:
    dice = Dice(f"interest swarm {seed}")
    nodes = dice.between(2, 9) if dice.chance(0.4) else dice.between(2, NODES_MAX)
    latencies = ("constant:1ms", "uniform:1ms:30ms", "lognormal:20ms:0.6", "weibull")
    topics = dice.between(1, 40)
    trigger = dice.between(0, 3)  # all of them, or one alone
    k, durable = dice.between(1, 8), dice.chance(0.4)
    return Setup(
        nodes=nodes,
        k=k,
        links_max=2 * k + dice.between(4, 12) if dice.chance(0.25) else 64,
        topics=topics,
        subscriptions=dice.between(0, min(topics, 12)),
        spread="uniform" if dice.chance(0.3) else "zipf",
        news="whole" if dice.chance(0.25) else "diff",
        threshold=(1, dice.between(1, 5), 0, 0)[trigger],
        coalesce=(dice.time(0, 5), "0s", dice.time(1, 20), "0s")[trigger],
        period=("1s", "1s", "0s", dice.time(20, 1_500))[trigger],
        durable=durable,
        disk=dice.time(0, 100),
        changes=dice.between(0, 120),
        interval=dice.time(1, 120),
        latency=latencies[dice.between(0, len(latencies) - 1)],
        loss=dice.share(0.4) if dice.chance(0.4) else 0.0,
        delay=dice.share(0.3) if dice.chance(0.4) else 0.0,
        breaks=round(dice.share(0.3) / 300, 5) if dice.chance(0.4) else 0.0,
        late=dice.time(20, 2_000) if dice.chance(0.3) else dice.time(1, 50),
        detect=dice.time(1, 400),
        stop=dice.time(1_000, 15_000),
        seed=seed,
        faults=_draw_faults(dice, nodes, durable) if dice.chance(0.85) else (),
    )


def _draw_faults(dice: Dice, nodes: int, durable: bool) -> tuple[AnyFault, ...]:
    faults: list[AnyFault] = []
    for _ in range(dice.between(1, 4)):
        at, share = dice.time(0, 15_000), round(0.03 + dice.share(0.6), 3)
        short, long = dice.time(20, 3_000), dice.time(3_000, 30_000)
        lasts = long if dice.chance(0.4) else short
        kind = dice.between(0, 7)
        if kind <= 1:
            faults.append(
                Partition(
                    at=at,
                    lasts=lasts,
                    share=share,
                    one_way=dice.chance(0.4),
                    silent=dice.chance(0.4),
                )
            )
        elif kind <= 3:
            faults.append(
                Crash(
                    at=at, lasts=lasts, share=share, silent=dice.chance(0.4), wipe=dice.chance(0.5)
                )
            )
        elif kind == 4:
            faults.append(Pause(at=at, lasts=lasts, share=share))
        elif kind == 5:
            faults.append(Leave(at=at, lasts=short, share=round(share / 2, 3)))
        elif kind == 6:
            faults.append(Clogging(at=at, lasts=short, share=share))
        else:
            faults.append(Swizzle(at=at, lasts=short, share=share))
    if durable and dice.chance(0.3):
        faults.append(
            FullDisk(
                at=dice.time(0, 5_000),
                lasts=dice.time(100, 10_000),
                share=round(0.1 + dice.share(0.8), 3),
            )
        )
    if nodes > JOIN_AMONG + 2 and dice.chance(
        0.3
    ):  # one that stays away; not one that newcomers look for
        gone = (dice.between(JOIN_AMONG, nodes - 1),)
        faults.append(
            Crash(at=dice.time(0, 10_000), lasts="0s", nodes=gone, silent=dice.chance(0.5))
        )
    return tuple(faults)


class Flown:
    """One seed: the run, its checkers, and how it ended."""

    def __init__(self, setup: Setup, make: Make = make_interest) -> None:
        self.setup = setup
        self.run = InterestRun(setup, make=make)
        self.violations: list[str] = []
        self.settled_s = -1.0
        gentle = setup.loss <= LOSS_FAIR and all(
            isinstance(fault, Crash | Leave | FullDisk) for fault in setup.faults
        )
        watches: list[check.Watch] = [
            check.Topics(), check.Agreement(), check.Connectivity(setup.k), check.Degrees(check.degree_bound(setup.k)),
            check.Diameter(setup.k), check.Burial(), check.Hidden(), check.Exact(), check.NewsOnly(),
        ]  # fmt: skip
        if gentle:
            watches.append(check.Removals(self.run.life))
        for watch in watches:
            self.run.watch(watch)

    def go(self) -> None:
        try:
            self._trouble()
            self._calm()
        except BreachError as breach:
            self.violations.append(f"contract: {breach}")
        self.violations += self.run.violations()

    def _trouble(self) -> None:
        run, setup, clock = self.run, self.setup, self.run.world.clock
        run.wait(LEAD_IN)
        start = over = int(clock.now)
        interval = duration(setup.interval)
        for number in range(setup.changes):
            over = max(over, start + number * interval)
            clock.push(start + number * interval, self._change)
        for number, fault in enumerate(setup.faults):
            over = max(
                over, schedule(fault, run.world, start, Random(f"fault {setup.seed} {number}"))
            )
        over = max(over, start + duration(setup.stop))
        run.wait((over - start) / SECOND + 0.001)
        run.calm()

    def _change(self, _x: None, _y: None, _z: None) -> None:
        run = self.run
        node = run.random_node()
        if node is not None:
            for _ in range(1 + run.below(3)):
                run.flap(node) if run.rng.random() < 0.3 else run.change(node)

    def _calm(self) -> None:
        run = self.run
        for node in run.world.nodes:
            run.world.resume(node)
        took = run.until(self._is_right, self.setup.seconds_max, 20_000)
        if took is not None:
            self.settled_s = took
            run.wait(LINGER)
            # What was late has done its harm; a suspicion of before may just be being refuted, which takes a moment.
            took = run.until(self._is_right, LINGER, 20_000)
        if took is None:
            self.violations.append(
                f"converged: {self.setup.seconds_max:g} s after all faults {unsettled(run)}"
            )
        run.look()

    def _is_right(self) -> bool:
        return self.run.agree() and self.run.is_woven()


def fly(seed: int, make: Make = make_interest) -> InterestFlight:
    return fly_setup(draw_setup(seed), make)


def fly_setup(setup: Setup, make: Make = make_interest) -> InterestFlight:
    flown = Flown(setup, make)
    flown.go()
    world = flown.run.world
    return InterestFlight(
        seed=setup.seed,
        good=not flown.violations,
        violations=flown.violations,
        digest=world.digest.hexdigest(),
        messages=world.messages,
        changes=setup.changes,
        settled_s=flown.settled_s,
        fired={name: count for name, count in sorted(world.counts.items()) if count},
        toml=to_toml(setup),
    )


def swarm(start: int, seeds: int, jobs: int = 1) -> Iterator[InterestFlight]:
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
