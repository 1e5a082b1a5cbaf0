"""One run of the skip list as data; prints itself as a scenario file."""

from __future__ import annotations

from msgspec import Struct

from gossamer.overlay.skiplist.config import FEW, SkipConfig, SkipConfigError
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

FULL_MAX = 50_000  # entries of a full simulation; beyond that, the vectorised model


class Setup(Struct, frozen=True, kw_only=True):
    overlay: str = "skiplist"
    entries: int = 1_000  # subscriptions
    per_node: int = 1  # of them at each node; the seed's experiments have one
    k: int = 2
    period: str = "1s"
    pace: str = "paper"  # or "prompt", as nodes do: levels above do not wait for the periods
    routing: str = "gossamer"
    ranges: str = "cells"
    successors: int = 8
    lease: str = "10s"
    few: int = FEW  # leases hold only until another member comes while there are fewer than so many
    announce: str = "50ms"  # until every publisher knows of a new class of filters
    workload: str = "synthetic"  # synthetic, trace, zipf
    trace: str = ""  # a folder with files.csv.gz and peer_files.csv.gz; empty: a stand-in with the fitted distributions
    kinds: str = "point"  # or "mixed": ranges, wildcards, IN
    events: int = 2_500
    interval: str = "1ms"  # between events
    together: int = 1  # so many are published at once, of two kinds in turn (swarm)
    grow_from: int = (
        0  # the seed's Figure 5: from so many entries on, an event to each newcomer; 0: not
    )
    churn: float = 0.0  # share of the entries that join, and that crash, per minute
    churn_s: float = 60.0  # virtual seconds of it
    latency: str = "constant:10ms"
    loss: float = 0.0
    delay: float = 0.0
    late: str = "20ms"
    breaks: float = 0.0
    detect: str = "300ms"
    stop: str = ""
    seconds_max: float = 2_000.0  # virtual seconds that the list has to become perfect
    seed: int = 0
    faults: tuple[AnyFault, ...] = ()

    def __post_init__(self) -> None:
        for name, low, high in _BOUNDS:
            value = getattr(self, name)
            if not low <= value <= high:
                raise ConfigError(f"{name} is {value}; it must be from {low} to {high}")
        if self.overlay != "skiplist":
            raise ConfigError(f"overlay is {self.overlay!r}; this is a run of 'skiplist'")
        for name, choices in _CHOICES:
            if getattr(self, name) not in choices:
                raise ConfigError(
                    f"{name} is {getattr(self, name)!r}; it must be one of {', '.join(choices)}"
                )
        if self.grow_from >= self.entries:
            raise ConfigError(f"a list of {self.entries} entries cannot grow from {self.grow_from}")
        for name in ("period", "lease", "announce", "interval", "late", "detect", "stop"):
            check_duration(name, getattr(self, name))
        check_faults(self.faults, self.nodes)
        check_latency(self.latency)
        try:
            self.protocol()
        except SkipConfigError as error:
            raise ConfigError(str(error)) from None

    @property
    def nodes(self) -> int:
        return -(-self.entries // self.per_node)

    def protocol(self) -> SkipConfig:
        return SkipConfig(
            k=self.k,
            period=duration(self.period),
            pace=self.pace,
            routing=self.routing,
            ranges=self.ranges,
            successors=self.successors,
            lease=duration(self.lease),
        )


_BOUNDS: tuple[tuple[str, float, float], ...] = (
    ("entries", 1, 10_000_000), ("per_node", 1, 100_000), ("k", 2, 16), ("successors", 1, 64), ("events", 0, 10_000_000),
    ("grow_from", 0, FULL_MAX), ("churn", 0.0, 10.0), ("churn_s", 0.0, 1e6), ("loss", 0.0, 0.9), ("delay", 0.0, 1.0),
    ("breaks", 0.0, 0.5), ("seconds_max", 0.001, 1e6), ("seed", 0, 2**63 - 1),
    ("few", 0, 1_000_000), ("together", 1, 4_096),
)  # fmt: skip

_CHOICES = (
    ("workload", ("synthetic", "trace", "zipf")), ("kinds", ("point", "mixed")), ("routing", ("gossamer", "paper")),
    ("ranges", ("cells", "entries")), ("pace", ("paper", "prompt")),
)  # fmt: skip

SECTIONS: dict[str, tuple[str, ...]] = {
    "fabric": (
        "overlay",
        "entries",
        "per_node",
        "k",
        "period",
        "pace",
        "routing",
        "ranges",
        "successors",
        "lease",
        "few",
        "announce",
    ),
    "workload": (
        "workload",
        "trace",
        "kinds",
        "events",
        "interval",
        "together",
        "grow_from",
        "churn",
        "churn_s",
    ),
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
