"""One run of the tree as data."""

from __future__ import annotations

from typing import ClassVar

from gossamer.overlay.tree.config import TreeConfig, TreeConfigError
from gossamer.sim import config as sim
from gossamer.sim.clock import duration
from gossamer.sim.config import ConfigError

HOSTS_MAX = 1_000_000
# More hosts are looked at in the steady state, without events.
SIMULATED_MAX = 5_000


class Setup(sim.Setup, frozen=True, kw_only=True):
    overlay: str = "tree"
    hosts: int = 120
    key_bits: int = 64
    arity: int = 2
    rooting: str = "zero"
    cap: bool = True
    dht: str = "ideal"
    # Successors that a host of a Chord ring lists.
    successors: int = TreeConfig().successors
    # The time between a join and the leave that follows, and to the next join.
    interval: str = "1s"
    # The time of the measurement. It begins when the network has its size.
    measure: str = "60s"
    # The time between joins while the network grows.
    grow: str = "50ms"
    # Events that are published during the measurement.
    events: int = 50
    # Hosts that publish; they stay.
    publishers: int = 5
    # What hosts subscribe to: everything, or a "mix" drawn from the seed.
    filters: str = "all"
    # Share of hosts replaced each second: half of them leave, half fail.
    churn_per_second: float = 0.0
    # Views are behind the truth by up to this.
    lag: str = "300ms"
    # Steps of trouble in the swarm. In each of them, these are
    steps: int = 0
    # the chance that a host joins,
    joins: float = 0.0
    # that one leaves,
    leaves: float = 0.0
    # that one fails,
    failures: float = 0.0
    # that one stands still for a while,
    pauses: float = 0.0
    # and the number of events that are published.
    publications: int = 0
    latency: str = "uniform:1ms:10ms"
    detect: str = "100ms"
    seconds_max: float = 60.0

    NODES: ClassVar = "hosts"
    OVERLAYS: ClassVar = ("tree",)
    BOUNDS: ClassVar = (
        ("hosts", 1, HOSTS_MAX), ("key_bits", 1, 64), ("arity", 2, 64), ("events", 0, 1_000_000),
        ("publishers", 1, HOSTS_MAX), ("churn_per_second", 0.0, 0.2), ("steps", 0, 1_000_000),
        ("joins", 0.0, 1.0), ("leaves", 0.0, 1.0), ("failures", 0.0, 1.0), ("pauses", 0.0, 1.0),
        ("publications", 0, 10_000),
    )  # fmt: skip
    CHOICES: ClassVar = (("dht", ("ideal", "view", "chord")), ("filters", ("all", "mix")))
    DURATIONS: ClassVar = ("interval", "measure", "grow", "lag")
    FABRIC: ClassVar = (
        "hosts", "key_bits", "arity", "rooting", "cap", "dht", "successors", "lag", "joins",
        "leaves", "failures", "pauses",
    )  # fmt: skip
    WORKLOAD: ClassVar = (
        "interval", "measure", "grow", "events", "publishers", "filters", "churn_per_second",
        "steps", "publications",
    )  # fmt: skip

    def check(self) -> None:
        if self.faults:
            raise ConfigError("the hosts of a tree come and go by joins, leaves and failures")
        if self.hosts >= 1 << self.key_bits:
            raise ConfigError(
                f"{self.hosts} hosts and one that joins need more than {1 << self.key_bits} keys: "
                "give more key-bits"
            )
        for name in ("interval", "grow"):
            if duration(getattr(self, name)) == 0:
                raise ConfigError(f"{name} must be more than 0")
        try:
            self.protocol()
        except TreeConfigError as error:
            raise ConfigError(str(error)) from None

    def protocol(self) -> TreeConfig:
        return TreeConfig(
            bits=self.key_bits,
            arity=self.arity,
            rooting=self.rooting,
            cap=self.cap,
            successors=self.successors,
        )
