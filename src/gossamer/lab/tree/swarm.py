"""A swarm of trees: ring, reference tree, filters, workload and faults are all drawn from the seed.

A safety phase in which hosts join, leave and fail, messages are late, links break, and processes
stand still; then faults stop, and the tree must come to rest, be the closed form over the true
ring, have the right routes, and have delivered all due events, once. Where the ring is Chord, the
seed also flies a ring alone that meets Zave's assumptions, with her invariants looked at at every
step.

Partitions are not drawn, because ``view`` and ``ideal`` have no verdicts of their own, and a host
that is wrongly given up is a new one. Nor does a publisher die while its receipts are open.
"""

from __future__ import annotations

from random import Random

from gossamer.lab.tree.checkers import at_rest, deliveries, ring
from gossamer.lab.tree.config import Setup
from gossamer.lab.tree.rings import assumed
from gossamer.lab.tree.run import TreeRun

STEP = 0.2
# The time in which Chord's successor lists become whole, a host further in each round.
LISTS_SECONDS = 60.0


def draw_setup(seed: int) -> Setup:
    rng = Random(f"tree swarm {seed}")

    def one_of(*choices: object) -> object:
        return choices[int(rng.random() * len(choices))]

    arity = one_of(2, 2, 2, 3, 5)
    bits = one_of(8, 16, 64)
    return Setup(
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
        late="30ms",
        seed=seed,
        seconds_max=240.0,
        delay=0.05 if rng.random() < 0.5 else 0.0,
        breaks=0.001 if rng.random() < 0.5 else 0.0,
        steps=10 + int(rng.random() * 20),
        joins=rng.random() * 0.4,
        leaves=rng.random() * 0.2,
        failures=rng.random() * 0.2,
        pauses=rng.random() * 0.1,
        publications=int(rng.random() * 3),
    )


class Flown(TreeRun):
    """Trouble and calm."""

    def act(self) -> None:
        try:
            self._trouble()
            self._calm()
        finally:
            self.violations += deliveries(self)
            if self.setup.dht == "chord":
                self.violations += assumed(self.setup.seed)[1]

    def counted(self) -> dict[str, float]:
        names = ("expected", "delivered", "missed", "duplicate", "spurious")
        return {name: getattr(self.book, name) for name in names}

    def _trouble(self) -> None:
        setup = self.setup
        for _ in range(setup.hosts):
            self.join(self.free_key())
            self.wait(STEP)
        self.until(lambda: self.truth.keys == sorted(self.neighbours()), 30)
        safe = list(self.up)[: setup.publishers]
        for _ in range(setup.steps):
            self._step(safe)
            self.wait(STEP)

    def _step(self, safe: list[int]) -> None:
        setup, world = self.setup, self.world
        others = [key for key in self.up if key not in safe]
        if self.rng.random() < setup.joins and len(self.truth) + 2 < 1 << setup.key_bits:
            self.join(self.free_key())
        for chance, leave in ((setup.leaves, True), (setup.failures, False)):
            if others and self.rng.random() < chance:
                key = others.pop(self.below(len(others)))
                if not self.up[key].paused:
                    self.stop(key, leave=leave)
        if others and self.rng.random() < setup.pauses:
            node = self.up[others[self.below(len(others))]]
            world.pause(node)
            lasts = int(400_000 * self.rng.random())
            world.clock.call(world.clock.now + lasts, lambda: world.resume(node))
        for _ in range(setup.publications):
            self.publish(self.up[safe[self.below(len(safe))]])

    def _calm(self) -> None:
        self.calm()
        for node in self.up.values():
            self.world.resume(node)
        if self.until(self.quiet, self.setup.seconds_max) is None:
            self.violations.append(
                f"not whole {self.setup.seconds_max:g} s after faults had stopped: "
                f"{self._unquiet()}"
            )
        else:
            self.violations += at_rest(self)[:5]
            self.until(lambda: not ring(self), LISTS_SECONDS)
            self.violations += ring(self)[:5]

    def _unquiet(self) -> str:
        machines = {key: self.machine(node) for key, node in self.up.items()}
        return (
            f"{self.unfinished} receipts open, "
            f"{sum(not m.hood.agreed for m in machines.values())} hosts without agreement, "
            f"{sum(not m.routes.quiet for m in machines.values())} with routes under way, "
            f"{sum(not m.ready for m in machines.values())} not ready, "
            f"tree {'whole' if self.whole() else 'not whole'}"
        )


def tree(seed: int) -> Flown:
    return Flown(draw_setup(seed))
