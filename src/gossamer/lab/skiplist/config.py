"""One run of the skip list as data."""

from __future__ import annotations

from typing import ClassVar

from gossamer.overlay.skiplist.config import FEW, SkipConfig, SkipConfigError
from gossamer.sim import config as sim
from gossamer.sim.clock import duration
from gossamer.sim.config import ConfigError

# Entries of a full simulation; beyond that, the vectorised model.
FULL_MAX = 50_000


class Setup(sim.Setup, frozen=True, kw_only=True):
    overlay: str = "skiplist"
    # Subscriptions.
    entries: int = 1_000
    # Of them at each node; the seed's experiments have one.
    per_node: int = 1
    k: int = 2
    period: str = "1s"
    # Or "prompt", as nodes do: levels above do not wait for the periods.
    pace: str = "paper"
    routing: str = "gossamer"
    ranges: str = "cells"
    successors: int = 8
    lease: str = "10s"
    # Below this many members, leases hold only until another member comes.
    few: int = FEW
    # Until every publisher knows of a new class of filters.
    announce: str = "50ms"
    workload: str = "synthetic"
    # A folder with files.csv.gz and peer_files.csv.gz; empty: a stand-in with the fitted
    # distributions.
    trace: str = ""
    # Or "mixed": ranges, wildcards, IN.
    kinds: str = "point"
    events: int = 2_500
    # Between events.
    interval: str = "1ms"
    # Events published at once, of two kinds in turn (swarm).
    together: int = 1
    # The seed's Figure 5: from this number of entries on, an event to each newcomer; 0: not.
    grow_from: int = 0
    # Share of the entries that join, and that crash, per minute.
    churn: float = 0.0
    # Virtual seconds of it.
    churn_s: float = 60.0
    latency: str = "constant:10ms"
    seconds_max: float = 2_000.0

    OVERLAYS: ClassVar = ("skiplist",)
    BOUNDS: ClassVar = (
        ("entries", 1, 10_000_000), ("per_node", 1, 100_000), ("k", 2, 16), ("successors", 1, 64),
        ("events", 0, 10_000_000), ("grow_from", 0, FULL_MAX), ("churn", 0.0, 10.0),
        ("churn_s", 0.0, 1e6),
        ("few", 0, 1_000_000), ("together", 1, 4_096),
    )  # fmt: skip
    CHOICES: ClassVar = (
        ("workload", ("synthetic", "trace", "zipf")), ("kinds", ("point", "mixed")),
        ("routing", ("gossamer", "paper")), ("ranges", ("cells", "entries")),
        ("pace", ("paper", "prompt")),
    )  # fmt: skip
    DURATIONS: ClassVar = ("period", "lease", "announce", "interval")
    FABRIC: ClassVar = (
        "entries", "per_node", "k", "period", "pace", "routing", "ranges", "successors", "lease",
        "few", "announce",
    )  # fmt: skip
    WORKLOAD: ClassVar = (
        "workload", "trace", "kinds", "events", "interval", "together", "grow_from", "churn",
        "churn_s",
    )  # fmt: skip

    @property
    def nodes(self) -> int:
        return -(-self.entries // self.per_node)

    def check(self) -> None:
        if self.grow_from >= self.entries:
            raise ConfigError(f"a list of {self.entries} entries cannot grow from {self.grow_from}")
        try:
            self.protocol()
        except SkipConfigError as error:
            raise ConfigError(str(error)) from None

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
