"""One run of the interest plane as data; prints itself as a scenario file."""

from __future__ import annotations

from msgspec import Struct

from gossamer.overlay.interest.config import InterestConfig, InterestConfigError
from gossamer.overlay.interest.record import TOPICS_MAX
from gossamer.sim.clock import duration
from gossamer.sim.config import (
    ConfigError,
    check_duration,
    check_faults,
    check_latency,
    dump,
    parse,
)
from gossamer.sim.faults import AnyFault

NODES_MAX = 20_000
COLD_MAX = 2_000  # nodes; a cold start of N nodes is N * N records learnt
JOIN_AMONG, JOIN_COUNT = 8, 3  # a node is given so many addresses among those of the first nodes


class Setup(Struct, frozen=True, kw_only=True):
    overlay: str = "interest"
    nodes: int = 1_000
    start: str = "auto"  # "cold": nobody knows anybody; "formed": views are right, links are to be opened; auto: cold up to 2,000
    topics: int = 10_000  # names to draw from
    subscriptions: int = 50  # topics of each node at the start
    spread: str = "zipf"  # how topics are drawn: by rank, the n-th with weight 1 / n; or "uniform"
    k: int = 6
    news: str = "diff"
    threshold: int = 1
    coalesce: str = "3ms"
    period: str = "1s"
    links_max: int = 64  # links at a node, those of newcomers included
    durable: bool = False  # nodes have disks: they know their earlier lives
    disk: str = "1ms"
    changes: int = (
        20  # of subscriptions: one by one in a measured run, all over the place among faults
    )
    interval: str = "50ms"  # between changes among faults
    rate: int = 100  # changes a second, for the amortised cost
    latency: str = "constant:1ms"
    loss: float = 0.0
    delay: float = 0.0
    late: str = "20ms"
    breaks: float = 0.0
    detect: str = "100ms"  # a process that died is noticed after half to one and a half of this
    stop: str = ""  # when loss, delay and breaks stop, after the first change; empty: never
    seconds_max: float = (
        60.0  # virtual seconds that views and overlay have to become right once all is calm
    )
    seed: int = 0
    faults: tuple[AnyFault, ...] = ()

    @property
    def is_cold(self) -> bool:
        return self.start == "cold" or (self.start == "auto" and self.nodes <= COLD_MAX)

    def __post_init__(self) -> None:
        for name, low, high in _BOUNDS:
            value = getattr(self, name)
            if not low <= value <= high:
                raise ConfigError(f"{name} is {value}; it must be from {low} to {high}")
        if self.overlay != "interest":
            raise ConfigError(f"overlay is {self.overlay!r}; this is a run of 'interest'")
        if self.subscriptions > self.topics:
            raise ConfigError(
                f"a node cannot want {self.subscriptions} topics when there are {self.topics}"
            )
        if self.start not in ("auto", "cold", "formed"):
            raise ConfigError(f"start is {self.start!r}; it must be 'auto', 'cold' or 'formed'")
        if self.spread not in ("zipf", "uniform"):
            raise ConfigError(f"spread is {self.spread!r}; it must be 'zipf' or 'uniform'")
        for name in ("coalesce", "period", "disk", "interval", "late", "detect", "stop"):
            check_duration(name, getattr(self, name))
        check_faults(self.faults, self.nodes)
        check_latency(self.latency)
        try:
            self.protocol()
        except InterestConfigError as error:
            raise ConfigError(str(error)) from None

    def protocol(self, join: tuple[str, ...] = ()) -> InterestConfig:
        """The parameters of one node."""
        return InterestConfig(
            k=self.k,
            news=self.news,
            threshold=self.threshold,
            coalesce=duration(self.coalesce),
            period=duration(self.period),
            links_max=self.links_max,
            join=join,
        )


_BOUNDS: tuple[tuple[str, float, float], ...] = (
    ("nodes", 1, NODES_MAX), ("topics", 1, 10_000_000), ("subscriptions", 0, TOPICS_MAX), ("k", 1, 32), ("links_max", 1, 65_536),
    ("threshold", 0, 1_000_000), ("changes", 0, 1_000_000), ("rate", 1, 100_000), ("loss", 0.0, 0.9),
    ("delay", 0.0, 1.0), ("breaks", 0.0, 0.5), ("seconds_max", 0.001, 1e6), ("seed", 0, 2**63 - 1),
)  # fmt: skip

SECTIONS: dict[str, tuple[str, ...]] = {
    "fabric": (
        "overlay",
        "nodes",
        "start",
        "k",
        "news",
        "threshold",
        "coalesce",
        "period",
        "links_max",
        "durable",
        "disk",
    ),
    "workload": ("topics", "subscriptions", "spread", "changes", "interval", "rate"),
    "network": ("latency", "loss", "delay", "late", "breaks", "detect"),
    "run": ("seed", "stop", "seconds_max"),
}


class _Default(Setup, frozen=True, kw_only=True):
    """So that the overlay is always written: it says which kind of run a file is."""

    overlay: str = ""

    def __post_init__(self) -> None: ...


def to_toml(setup: Setup, about: str = "") -> str:
    return dump(setup, _Default(), SECTIONS, about)


def from_toml(text: str, where: str) -> Setup:
    return parse(text, where, Setup, SECTIONS)[1]
