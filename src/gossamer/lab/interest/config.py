"""One run of the interest plane as data."""

from __future__ import annotations

from typing import ClassVar

from gossamer.overlay.interest.config import InterestConfig, InterestConfigError
from gossamer.overlay.interest.record import TOPICS_MAX
from gossamer.sim import config as sim
from gossamer.sim.clock import duration
from gossamer.sim.config import ConfigError

NODES_MAX = 20_000
# The most nodes of a cold start. N nodes learn N * N records.
COLD_MAX = 2_000
# A node gets JOIN_COUNT addresses among those of the first JOIN_AMONG nodes.
JOIN_AMONG, JOIN_COUNT = 8, 3


class Setup(sim.Setup, frozen=True, kw_only=True):
    overlay: str = "interest"
    nodes: int = 1_000
    # "cold": no node knows another. "formed": views are right, and links are to be opened. "auto":
    # cold up to 2,000 nodes.
    start: str = "auto"
    # The number of names to draw from.
    topics: int = 10_000
    # The number of topics of each node at the start.
    subscriptions: int = 50
    # The way in which topics are drawn: by rank, the n-th with weight 1 / n ("zipf"), or "uniform".
    spread: str = "zipf"
    k: int = 6
    news: str = "diff"
    threshold: int = 1
    coalesce: str = "3ms"
    period: str = "1s"
    # The most links at a node, those of newcomers included.
    links_max: int = 64
    # Nodes have disks, and know their earlier lives.
    durable: bool = False
    # Changes of subscriptions: one by one in a measured run, at random times among faults.
    changes: int = 20
    # The time between changes among faults.
    interval: str = "50ms"
    # Changes a second, for the amortised cost.
    rate: int = 100
    detect: str = "100ms"
    seconds_max: float = 60.0

    OVERLAYS: ClassVar = ("interest",)
    BOUNDS: ClassVar = (
        ("nodes", 1, NODES_MAX), ("topics", 1, 10_000_000), ("subscriptions", 0, TOPICS_MAX),
        ("k", 1, 32),
        ("links_max", 1, 65_536), ("threshold", 0, 1_000_000), ("changes", 0, 1_000_000),
        ("rate", 1, 100_000),
    )  # fmt: skip
    CHOICES: ClassVar = (("start", ("auto", "cold", "formed")), ("spread", ("zipf", "uniform")))
    DURATIONS: ClassVar = ("coalesce", "period", "interval")
    FABRIC: ClassVar = (
        "nodes", "start", "k", "news", "threshold", "coalesce", "period", "links_max", "durable",
    )  # fmt: skip
    WORKLOAD: ClassVar = ("topics", "subscriptions", "spread", "changes", "interval", "rate")

    @property
    def is_cold(self) -> bool:
        return self.start == "cold" or (self.start == "auto" and self.nodes <= COLD_MAX)

    def check(self) -> None:
        if self.subscriptions > self.topics:
            raise ConfigError(
                f"a node cannot want {self.subscriptions} topics when there are {self.topics}"
            )
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
