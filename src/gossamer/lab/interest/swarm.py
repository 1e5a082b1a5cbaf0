"""A swarm of interest fabrics. Size, parameters, network, faults and changes come from the seed.

While anything may go wrong the checkers look at every step. Then faults stop. Within
``seconds_max`` virtual seconds every view must be the truth, and the links that are up must be
exactly those that the overlay wants. Three seconds later the checkers look at the whole fabric:
views, connectivity, degrees, diameter.
"""

from __future__ import annotations

from gossamer.lab.interest import checkers as check
from gossamer.lab.interest.config import JOIN_AMONG, Setup
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
)
from gossamer.sim.swarm import Dice

NODES_MAX = 40
# The virtual seconds of cold start before the trouble begins.
LEAD_IN = 3.0
# The time after everything has become right, in which late messages may still do harm.
LINGER = 3.0
# Up to this loss, and with no worse fault, nobody may be taken for dead.
LOSS_FAIR = 0.3


def draw_setup(seed: int) -> Setup:
    dice = Dice(f"interest swarm {seed}")
    nodes = dice.between(2, 9) if dice.chance(0.4) else dice.between(2, NODES_MAX)
    latencies = ("constant:1ms", "uniform:1ms:30ms", "lognormal:20ms:0.6", "weibull")
    topics = dice.between(1, 40)
    # All triggers, or one alone.
    trigger = dice.between(0, 3)
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
    # One node stays away. It is none that newcomers look for.
    if nodes > JOIN_AMONG + 2 and dice.chance(0.3):
        gone = (dice.between(JOIN_AMONG, nodes - 1),)
        faults.append(
            Crash(at=dice.time(0, 10_000), lasts="0s", nodes=gone, silent=dice.chance(0.5))
        )
    return tuple(faults)


class Flown(InterestRun):
    """First trouble, and then calm."""

    def __init__(self, setup: Setup, make: Make = make_interest) -> None:
        gentle = setup.loss <= LOSS_FAIR and all(
            isinstance(fault, Crash | Leave | FullDisk) for fault in setup.faults
        )
        watches: list[check.Watch] = [
            check.Topics(), check.Agreement(), check.Connectivity(setup.k),
            check.Degrees(check.degree_bound(setup.k)),
            check.Diameter(setup.k), check.Burial(), check.Hidden(), check.Exact(),
            check.NewsOnly(),
        ]  # fmt: skip
        if gentle:
            watches.append(check.Removals(self.life))
        super().__init__(setup, watches, make)
        self.settled_s = -1.0

    def act(self) -> None:
        try:
            self._trouble()
            self._calm()
        finally:
            self.violations += self.told()

    def counted(self) -> dict[str, float]:
        """``settled_s`` is the time from the end of all faults to the truth everywhere. -1:
        never.
        """
        return {"changes": self.setup.changes, "settled_s": self.settled_s}

    def _trouble(self) -> None:
        clock, interval = self.world.clock, duration(self.setup.interval)
        self.wait(LEAD_IN)
        start = over = int(clock.now)
        for number in range(self.setup.changes):
            over = start + number * interval
            clock.push(over, self._change)
        over = max(over, self.schedule_faults(start))
        self.wait((over - start) / SECOND + 0.001)
        self.calm()

    def _change(self, _x: None, _y: None, _z: None) -> None:
        node = self.random_node()
        if node is not None:
            for _ in range(1 + self.below(3)):
                self.flap(node) if self.rng.random() < 0.3 else self.change(node)

    def _calm(self) -> None:
        for node in self.world.nodes:
            self.world.resume(node)
        took = self.until(self._is_right, self.setup.seconds_max, 20_000)
        if took is not None:
            self.settled_s = took
            self.wait(LINGER)
            # Late messages have done their harm. A suspicion of before may just be being refuted,
            # which takes a moment.
            took = self.until(self._is_right, LINGER, 20_000)
        if took is None:
            self.violations.append(
                f"converged: {self.setup.seconds_max:g} s after all faults {unsettled(self)}"
            )
        self.look()

    def _is_right(self) -> bool:
        return self.agree() and self.is_woven()


def interest(seed: int) -> Flown:
    return Flown(draw_setup(seed))
