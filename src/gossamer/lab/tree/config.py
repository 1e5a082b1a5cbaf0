"""One run of the tree as data."""

from __future__ import annotations

from msgspec import Struct

from gossamer.overlay.tree.config import TreeConfig, TreeConfigError
from gossamer.sim.clock import duration
from gossamer.sim.config import ConfigError, check_duration, check_latency

HOSTS_MAX = 1_000_000
SIMULATED_MAX = 5_000  # more hosts are looked at in the steady state, without events
DHTS = ("ideal", "view", "chord")


class Setup(Struct, frozen=True, kw_only=True):
    hosts: int = 120
    key_bits: int = 64
    arity: int = 2
    rooting: str = "zero"
    cap: bool = True
    dht: str = "ideal"
    interval: str = "1s"  # between a join and the leave that follows, and to the next join
    measure: str = "60s"  # for so long, from when the network has its size
    grow: str = "50ms"  # between joins while it grows
    events: int = 50  # published while it is measured
    publishers: int = 5  # hosts that publish; they stay
    filters: str = "all"  # what hosts subscribe to: everything, or a "mix" drawn from the seed
    loss: float = 0.0
    churn_per_second: float = (
        0.0  # share of hosts replaced each second: half of them leave, half fail
    )
    latency: str = "uniform:1ms:10ms"
    detect: str = "100ms"  # until a process that died is noticed
    lag: str = "300ms"  # views are behind the truth by up to this
    seconds_max: float = (
        60.0  # virtual seconds that all has to become whole once nothing happens any more
    )
    seed: int = 0

    def __post_init__(self) -> None:
        for name, low, high in _BOUNDS:
            value = getattr(self, name)
            if not low <= value <= high:
                raise ConfigError(
                    f"{name.replace('_', '-')} is {value}; it must be from {low} to {high}"
                )
        if self.dht not in DHTS:
            raise ConfigError(f"dht is {self.dht!r}; it must be one of {', '.join(DHTS)}")
        if self.filters not in ("all", "mix"):
            raise ConfigError(f"filters is {self.filters!r}; it must be 'all' or 'mix'")
        if self.hosts >= 1 << self.key_bits:
            raise ConfigError(
                f"{self.hosts} hosts and one that joins need more than {1 << self.key_bits} keys: give more key-bits"
            )
        for name in ("interval", "measure", "grow", "detect", "lag"):
            check_duration(name, getattr(self, name))
            if name in ("interval", "grow") and duration(getattr(self, name)) == 0:
                raise ConfigError(f"{name} must be more than 0")
        check_latency(self.latency)
        try:
            self.protocol()
        except TreeConfigError as error:
            raise ConfigError(str(error)) from None

    def protocol(self) -> TreeConfig:
        return TreeConfig(bits=self.key_bits, arity=self.arity, rooting=self.rooting, cap=self.cap)


_BOUNDS: tuple[tuple[str, float, float], ...] = (
    ("hosts", 1, HOSTS_MAX), ("key_bits", 1, 64), ("arity", 2, 64), ("events", 0, 1_000_000), ("publishers", 1, HOSTS_MAX),
    ("loss", 0.0, 0.5), ("churn_per_second", 0.0, 0.2), ("seconds_max", 1.0, 1e6), ("seed", 0, 2**63 - 1),
)  # fmt: skip
