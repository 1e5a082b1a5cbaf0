"""A swarm of trees: ring, reference tree, filters, workload and faults are all drawn from the seed.

A safety phase in which hosts join, leave and fail, messages are late, links break, and processes stand still; then faults
stop, and the tree must come to rest, be the closed form over the true ring, have the right routes, and have delivered what was
due, once. Where the ring is Chord, the seed also flies a ring alone that meets Zave's assumptions, with her invariants looked at
at every step.

What is not drawn: partitions (``view`` and ``ideal`` have no verdicts of their own, and a host that is wrongly given up is a new
one: DESIGN.md, section 6), and the death of a publisher whose receipts are open.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from random import Random
from typing import Any

import msgspec
from msgspec import Struct

from gossamer.lab.tree.checkers import at_rest, deliveries, ring
from gossamer.lab.tree.config import Setup
from gossamer.lab.tree.rings import assumed
from gossamer.lab.tree.run import TreeRun
from gossamer.sim.rules import Breaks, Delay
from gossamer.sim.world import BreachError

LATE = 30_000
STEP = 0.2
LISTS_SECONDS = 60.0  # in which Chord's successor lists become whole, a host further in each round


class TreeFlight(Struct, frozen=True):
    """What became of one seed."""

    seed: int
    good: bool
    violations: list[str]
    digest: str
    expected: int
    delivered: int
    missed: int
    duplicate: int
    messages: int
    spurious: int
    fired: dict[str, int]
    toml: str

    @property
    def replay(self) -> str:
        return f"gossamer simulate swarm --overlay tree --start {self.seed} --seeds 1"


class Plan(Struct, frozen=True):
    """What the seed has drawn."""

    setup: Setup
    delay: float
    breaks: float
    steps: int
    joins: float  # chances, in each step
    leaves: float
    failures: float
    pauses: float
    publications: int  # in each step


def draw(seed: int) -> Plan:
    rng = Random(f"tree swarm {seed}")

    def one_of(*choices: object) -> object:
        return choices[int(rng.random() * len(choices))]

    arity = one_of(2, 2, 2, 3, 5)
    bits = one_of(8, 16, 64)
    setup = Setup(
        hosts=2 + int(rng.random() * 24),
        key_bits=bits,  # type: ignore[arg-type]
        arity=arity,  # type: ignore[arg-type]
        rooting="zero" if rng.random() < 0.75 else "seed",
        cap=rng.random() < 0.7,
        dht=one_of("ideal", "view", "chord"),  # type: ignore[arg-type]
        filters=one_of("all", "mix", "mix"),  # type: ignore[arg-type]
        loss=one_of(0.0, 0.02, 0.1),  # type: ignore[arg-type]
        latency=one_of("constant:1ms", "uniform:1ms:20ms", "lognormal:10ms:0.7"),  # type: ignore[arg-type]
        publishers=2,
        seed=seed,
        seconds_max=240.0,
    )
    return Plan(
        setup,
        delay=0.05 if rng.random() < 0.5 else 0.0,
        breaks=0.001 if rng.random() < 0.5 else 0.0,
        steps=10 + int(rng.random() * 20),
        joins=rng.random() * 0.4,
        leaves=rng.random() * 0.2,
        failures=rng.random() * 0.2,
        pauses=rng.random() * 0.1,
        publications=int(rng.random() * 3),
    )


def to_toml(plan: Plan) -> str:
    """The plan as text, for tests/seeds.toml: it stays what it was when the swarm changes what it draws."""
    drawn = msgspec.to_builtins(plan)
    setup, default = drawn.pop("setup"), msgspec.to_builtins(Setup())
    changed = {name: value for name, value in setup.items() if value != default[name]}
    return "".join([*_lines(drawn), "\n[setup]\n", *_lines(changed)])


def _lines(fields: dict[str, Any]) -> list[str]:
    return [f"{name} = {msgspec.json.encode(value).decode()}\n" for name, value in fields.items()]


def from_toml(text: str) -> Plan:
    return msgspec.convert(tomllib.loads(text), Plan)


def swarm(start: int, seeds: int, jobs: int = 1) -> Iterator[TreeFlight]:
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


def fly(seed: int) -> TreeFlight:
    return fly_plan(draw(seed))


def fly_plan(plan: Plan) -> TreeFlight:
    """Safety, then liveness."""
    setup = plan.setup
    run = TreeRun(setup)
    violations: list[str] = []
    try:
        _safety(run, plan)
        _calm(run)
        if run.until(run.quiet, setup.seconds_max) is None:
            violations.append(
                f"not whole {setup.seconds_max:g} s after faults had stopped: {_what(run)}"
            )
        else:
            violations += at_rest(run)[:5]
            run.until(lambda: not ring(run), LISTS_SECONDS)
            violations += ring(run)[:5]
        violations += deliveries(run)
        if setup.dht == "chord":
            violations += assumed(setup.seed)[1]
    except BreachError as error:
        violations.append(str(error))
    expected, delivered, missed, duplicate = run.due()
    return TreeFlight(
        setup.seed, not violations, violations, run.world.digest.hexdigest(), expected, delivered, missed, duplicate,
        run.world.messages, run.spurious(), dict(sorted(run.world.counts.items())), to_toml(plan),
    )  # fmt: skip


def _safety(run: TreeRun, plan: Plan) -> None:
    setup, world = run.setup, run.world
    for share, rule in (
        (plan.delay, Delay(plan.delay, LATE, world.rng)),
        (plan.breaks, Breaks(plan.breaks, world.rng)),
    ):
        if share:
            world.network.rules.append(rule)
    for _ in range(setup.hosts):
        run.join(run.free_key())
        run.run(STEP)
    run.until(lambda: run.truth.keys == sorted(run.neighbours()), 30)
    safe = list(run.up)[: setup.publishers]
    for _ in range(plan.steps):
        others = [key for key in run.up if key not in safe]
        if run.rng.random() < plan.joins and len(run.truth) + 2 < 1 << setup.key_bits:
            run.join(run.free_key())
        for chance, leave in ((plan.leaves, True), (plan.failures, False)):
            if others and run.rng.random() < chance:
                key = others.pop(run.below(len(others)))
                if not run.up[key].paused:
                    run.stop(key, leave=leave)
        if others and run.rng.random() < plan.pauses:
            node = run.up[others[run.below(len(others))]]
            world.pause(node)
            world.clock.call(
                world.clock.now + int(400_000 * run.rng.random()),
                lambda node=node: world.resume(node),  # type: ignore[misc]
            )
        for _ in range(plan.publications):
            run.publish(run.up[safe[run.below(len(safe))]])
        run.run(STEP)


def _calm(run: TreeRun) -> None:
    run.world.network.rules.clear()
    for node in run.up.values():
        run.world.resume(node)


def _what(run: TreeRun) -> str:
    machines = {key: run.machine(node) for key, node in run.up.items()}
    return (
        f"{run.unfinished} receipts open, {sum(not m.hood.agreed for m in machines.values())} hosts without agreement, "
        f"{sum(not m.routes.quiet for m in machines.values())} with routes under way, "
        f"{sum(not m.ready for m in machines.values())} not ready, tree {'whole' if run.whole() else 'not whole'}"
    )
