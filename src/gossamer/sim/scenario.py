"""One run: a configuration, the machines of its world, their users, the faults and the probes.

``Scenario`` is the base of all runs. A subclass says which machine runs at a node (``make``) and
how its messages travel (``codec``), adds the nodes, and lets users act. Whole nodes (run.py) and
the bare overlays of the laboratory are such subclasses. Measures, experiments and the swarm drive
them.

A scenario that the swarm flies has ``act``. First there is trouble, in which anything may go wrong.
Then there is calm, in which everything must become right again in a stated time. ``fly`` runs it,
and returns its result.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from random import Random
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from msgspec import Struct

from gossamer.machine import SECOND, Micros, Peer
from gossamer.sim import latency
from gossamer.sim.clock import duration
from gossamer.sim.codec import WireCodec
from gossamer.sim.config import Setup, to_toml
from gossamer.sim.faults import schedule
from gossamer.sim.network import Packet
from gossamer.sim.rules import Breaks, Delay, Loss, Refusals, Rule
from gossamer.sim.world import AnyMachine, BreachError, Codec, Node, Probe, World
from gossamer.trace import Record

S = TypeVar("S", bound=Setup)
STEPS_MAX = 1 << 62


class Traffic:
    """Messages and bytes that have arrived, by kind of message."""

    def __init__(self) -> None:
        self.by_kind: dict[type, list[int]] = {}

    def add(self, packet: Packet) -> None:
        kind = type(packet.message)
        count = self.by_kind.get(kind)
        if count is None:
            count = self.by_kind[kind] = [0, 0]
        count[0] += 1
        count[1] += packet.size

    def clear(self) -> None:
        self.by_kind.clear()

    def of(self, *kinds: type) -> tuple[int, int]:
        counts = [self.by_kind.get(kind, (0, 0)) for kind in kinds]
        return sum(count for count, _ in counts), sum(size for _, size in counts)


class Flight(Struct, frozen=True):
    """The result of one seed of the swarm."""

    seed: int
    overlay: str
    good: bool
    violations: list[str]
    digest: str
    messages: int
    # The figures of this kind of run.
    counted: dict[str, float]
    fired: dict[str, int]
    # The drawn configuration.
    toml: str

    @property
    def replay(self) -> str:
        return f"gossamer simulate swarm --overlay {self.overlay} --start {self.seed} --seeds 1"


class Scenario(Probe, ABC, Generic[S]):
    """The base of all runs. A run is the probe of its world."""

    codec: ClassVar[Callable[[], Codec]] = WireCodec
    header: ClassVar[int] = 0
    shares: ClassVar[bool] = False
    # The microseconds between looks at whether a condition has come about.
    step: ClassVar[int] = 5_000

    def __init__(self, setup: S) -> None:
        self.setup = setup
        self.violations: list[str] = []
        # The number of notes of the nodes, by kind.
        self.notes: dict[str, int] = {}
        # The number of rejections, by their reason, where a reason was given.
        self.rejected: dict[str, int] = {}
        self.rng = Random(f"users {setup.seed}")
        self.steps_max = STEPS_MAX
        self.world = World(
            seed=setup.seed,
            make=self.make,
            codec=type(self).codec(),
            latency=latency.parse(setup.latency, setup.seed),
            probe=self,
            detect=duration(setup.detect),
            reconnect=duration(setup.reconnect),
            queue_mark=setup.queue_mark,
            disk_latency=duration(setup.disk),
            header=self.header,
            shares=self.shares,
        )
        self._befall()

    def _befall(self) -> None:
        """Put the rules of the configuration into the network, where they stay until ``calm``."""
        setup = self.setup
        late, chance = duration(setup.late), self.world.rng
        rules: tuple[tuple[float, Rule], ...] = (
            (setup.loss, Loss(setup.loss, chance)),
            (setup.delay, Delay(setup.delay, late, chance)),
            (setup.breaks, Breaks(setup.breaks, chance)),
            (setup.refuse, Refusals(setup.refuse, chance)),
        )
        self.world.network.rules.extend(rule for share, rule in rules if share)

    def calm(self) -> None:
        """No message is late, no link breaks and none refuses from here on."""
        self.world.network.rules.clear()

    @abstractmethod
    def make(self, node: Node) -> AnyMachine:
        """The machine that runs at a node."""

    def below(self, count: int) -> int:
        return int(self.rng.random() * count)

    # ------------------------------------------------------------------------ faults

    def schedule_faults(self, start: int) -> int:
        """Put the faults on the clock.

        Returns the time when they and the lossy network are over.
        """
        setup, over = self.setup, start
        for number, fault in enumerate(setup.faults):
            chosen = Random(f"fault {setup.seed} {number}")
            over = max(over, schedule(fault, self.world, start, chosen))
        return max(over, start + duration(setup.stop)) if setup.stop else over

    # -------------------------------------------------------------------------- time

    def run_until(self, at: int) -> None:
        clock = self.world.clock
        if clock.run(at, self.steps_max - clock.steps):
            raise BreachError(
                f"{clock.steps:,} steps in {clock.now / SECOND:g} virtual seconds: a storm of "
                "messages"
            )
        clock.now = Micros(max(at, clock.now))

    def wait(self, seconds: float) -> None:
        """Let virtual time pass, whether anything happens in it or not."""
        self.run_until(int(self.world.clock.now + seconds * SECOND))

    def until(
        self,
        done: Callable[[], bool],
        seconds_max: float,
        step: int = 0,
        progress: Callable[[float], None] = lambda _: None,
    ) -> float | None:
        """Go on until the condition holds.

        Returns the virtual seconds that it took, or None if it took too long.
        """
        clock = self.world.clock
        began = int(clock.now)
        end = began + int(seconds_max * SECOND)
        while not done():
            if clock.now >= end:
                return None
            self.run_until(clock.now + (step or self.step))
            progress((clock.now - began) / (end - began))
        return (clock.now - began) / SECOND

    # --------------------------------------------------------------------- the probe

    def noted(self, node: Node, record: Record) -> None:
        kind = type(record).__name__.lower()
        self.notes[kind] = self.notes.get(kind, 0) + 1
        reason: Any = getattr(record, "reason", None)
        if reason is not None:
            self.rejected[reason] = self.rejected.get(reason, 0) + 1


def draw_peers(count: int, rng: Random) -> list[Peer]:
    """Draw the names of this number of nodes."""
    peers: dict[int, None] = {}
    while len(peers) < count:
        peers[int(rng.random() * 2**53) << 11 | int(rng.random() * 2**11)] = None
    return [Peer(peer) for peer in peers]


def address(index: int) -> str:
    return f"node-{index}"


class Flown(Protocol):
    """A scenario that the swarm can fly."""

    violations: list[str]
    world: World

    @property
    def setup(self) -> Setup: ...
    def act(self) -> None:
        """Trouble, and then calm."""

    def counted(self) -> dict[str, float]:
        """The figures that the swarm prints of the seed."""


def fly(scenario: Flown) -> Flight:
    """Run trouble and calm, and return the result."""
    try:
        scenario.act()
    except BreachError as breach:
        scenario.violations.append(f"contract: {breach}")
    setup, world = scenario.setup, scenario.world
    return Flight(
        seed=setup.seed,
        overlay=setup.overlay,
        good=not scenario.violations,
        violations=scenario.violations,
        digest=world.digest.hexdigest(),
        messages=world.messages,
        counted=scenario.counted(),
        fired={name: count for name, count in sorted(world.counts.items()) if count},
        toml=to_toml(setup),
    )
