"""A swarm of runs: configuration, workload and faults are all drawn from the seed.

Each run has a safety phase, in which anything may go wrong and the checkers look at every step. In
the liveness phase after it the faults stop, and the fabric must become whole again in a stated
time. Outages are kept shorter than flood's grace for a lost neighbour and do not overlap one
another, because beyond that flood promises nothing. Everything else overlaps freely.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from random import Random

import msgspec

from gossamer.sim.clock import duration_text
from gossamer.sim.config import Config
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
from gossamer.sim.run import Run
from gossamer.sim.scenario import Flight, Flown, fly

MILLISECOND = 1_000
OUTAGE_MAX = 2_000 * MILLISECOND
# The routes of a swarm of whole nodes.
TURNS = (
    "flood",
    "skiplist",
    "tree",
    "mixed",
    "direct",
    "wander",
    "auto",
)
NODES_MAX = 40


class Dice:
    """Draws by ``random()`` alone: its stream is the one that Python keeps."""

    def __init__(self, seed: str) -> None:
        self._rng = Random(seed)

    def chance(self, share: float) -> bool:
        return self._rng.random() < share

    def between(self, low: int, high: int) -> int:
        return low + int(self._rng.random() * (high - low + 1))

    def share(self, high: float) -> float:
        return round(high * self._rng.random(), 3)

    def time(self, low_ms: int, high_ms: int) -> str:
        return duration_text(self.between(low_ms, high_ms) * MILLISECOND)


def draw_config(seed: int) -> Config:
    dice = Dice(f"swarm {seed}")
    nodes = dice.between(2, 8) if dice.chance(0.4) else dice.between(2, NODES_MAX)
    latencies = (
        "constant:1ms", "uniform:1ms:30ms", "lognormal:20ms:0.6", "weibull",
        f"uniform:{dice.time(1, 5)}:{dice.time(5, 200)}",
    )  # fmt: skip
    durable = dice.chance(0.5)
    faults = _draw_faults(dice, durable) if dice.chance(0.9) else ()
    config = Config(
        nodes=nodes,
        degree=dice.between(2, 6),
        durable=durable,
        disk=dice.time(50, 400) if dice.chance(0.3) else dice.time(0, 20),
        window=dice.between(1, 8) if dice.chance(0.2) else 32_768,
        buffer=dice.between(1, 8) if dice.chance(0.3) else 16_384,
        events=dice.between(1, 60),
        subscriptions=dice.between(0, 3 * nodes),
        interval=dice.time(1, 80),
        burst=dice.between(2, 12) if dice.chance(0.3) else 1,
        churn=dice.between(1, 20) if dice.chance(0.3) else 0,
        consumer=dice.time(1, 300) if dice.chance(0.3) else "0s",
        latency=latencies[dice.between(0, len(latencies) - 1)],
        loss=dice.share(0.2) if dice.chance(0.5) else 0.0,
        delay=dice.share(0.3) if dice.chance(0.4) else 0.0,
        breaks=round(dice.share(0.3) / 300, 5) if dice.chance(0.4) else 0.0,
        detect=dice.time(20, 600),
        reconnect=dice.time(5, 300),
        queue_mark=dice.between(1, 8) if dice.chance(0.3) else 256,
        stop=dice.time(1_000, 6_000),
        seconds_max=120.0,
        seed=seed,
        faults=faults,
    )
    if nodes > 2 and dice.chance(0.2):
        # One node only. The ring in the graph stays connected without it, and nobody waits for a
        # node that has said goodbye.
        gone = Leave(
            at=dice.time(0, 3_000), lasts=dice.time(50, 2_000), nodes=(dice.between(0, nodes - 1),)
        )
        config = msgspec.structs.replace(config, faults=(*faults, gone))
    if dice.chance(0.3):
        config = msgspec.structs.replace(config, late=dice.time(20, 3_000))
    if dice.chance(0.4):
        config = msgspec.structs.replace(config, refuse=dice.share(0.2))
    return config


def _draw_faults(dice: Dice, durable: bool) -> tuple[AnyFault, ...]:
    faults: list[AnyFault] = []
    at = 0
    # These are the outages, one after another.
    for _ in range(dice.between(0, 3)):
        at += dice.between(0, 1_500)
        lasts = dice.between(20, OUTAGE_MAX // MILLISECOND)
        begin, span = duration_text(at * MILLISECOND), duration_text(lasts * MILLISECOND)
        if dice.chance(0.5):
            share = round(0.05 + dice.share(0.9), 3)
            faults.append(
                Partition(
                    at=begin,
                    lasts=span,
                    share=share,
                    one_way=dice.chance(0.4),
                    silent=dice.chance(0.2),
                )
            )
        else:
            faults.append(Crash(at=begin, lasts=span, share=round(0.02 + dice.share(0.3), 3)))
        # Both ends have joined again before the next outage begins.
        at += lasts + 1_500
    # The other faults come at any time.
    for _ in range(dice.between(0, 3)):
        begin, span = dice.time(0, 4_000), dice.time(20, 2_000)
        share = round(0.05 + dice.share(0.5), 3)
        kind = dice.between(0, 3)
        if kind == 0:
            faults.append(Clogging(at=begin, lasts=span, share=share))
        elif kind == 1:
            faults.append(Swizzle(at=begin, lasts=span, share=share))
        elif kind == 2 or not durable:
            faults.append(Pause(at=begin, lasts=span, share=share))
        else:
            faults.append(FullDisk(at=begin, lasts=span, share=share))
    return tuple(faults)


def draw_fabric(seed: int) -> Config:
    """The same draw with whole nodes: planes over links that the interest plane opens and closes.

    The routes take turns.
    """
    dice = Dice(f"unreached {seed}")
    unreached = dice.share(1.0) if dice.chance(0.25) else 0.0
    route = TURNS[seed % len(TURNS)]
    return msgspec.structs.replace(
        draw_config(seed), overlay="fabric", route=route, unreached=unreached
    )


def flood(seed: int) -> Run:
    return Run(draw_config(seed))


def fabric(seed: int) -> Run:
    return Run(draw_fabric(seed))


Draw = Callable[[int], Flown]
"""A scenario that was drawn from a seed and is ready to fly.

It is a function of a module, because it goes to other processes.
"""


def fly_seed(draw: Draw, seed: int) -> Flight:
    return fly(draw(seed))


def swarm(draw: Draw, start: int, seeds: int, jobs: int = 1) -> Iterator[Flight]:
    """Fly the seeds, in order; with several jobs, in several processes."""
    one, numbers = partial(fly_seed, draw), range(start, start + seeds)
    if jobs <= 1 or seeds <= 1:
        yield from map(one, numbers)
        return
    with ProcessPoolExecutor(
        min(jobs, os.cpu_count() or 1), mp_context=get_context("spawn")
    ) as pool:
        yield from pool.map(one, numbers, chunksize=max(1, min(16, seeds // (4 * jobs))))
