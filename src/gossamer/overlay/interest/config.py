"""The parameters of the interest plane, with their defaults and reasons."""

from __future__ import annotations

from msgspec import Struct

from gossamer.machine import MILLISECOND, SECOND, Micros


class InterestConfigError(ValueError):
    """Parameters that cannot work together. The message names them and says why."""


class InterestConfig(Struct, frozen=True, kw_only=True):
    # The overlay stays connected when any k - 1 nodes fail. Paragraph 32 of the seed has 6 for
    # thousands.
    k: int = 6
    # With "diff" a change carries the touched topics. With "whole" it carries the node's whole
    # interest, as in the seed's pseudo-code.
    news: str = "diff"

    # These decide when a gossip round starts. Each can be turned off with 0, but not all of them.
    # Pending changes (claim 3). 1 starts a round at once.
    threshold: int = 1
    # After news has arrived (claim 2) the wait is drawn from 0 to twice this.
    coalesce: Micros = Micros(3 * MILLISECOND)
    # Changes a second. From there on rounds wait four times as long, and carry more.
    busy: int = 50
    # Since the last round, if anything is pending.
    period: Micros = Micros(1 * SECOND)

    # Between signs of life on each link.
    beat: Micros = Micros(1 * SECOND)
    # Of silence, probes through others included.
    suspect_after: Micros = Micros(3_500 * MILLISECOND)
    # From the suspicion to the verdict, when no other node confirms it.
    verdict_alone: Micros = Micros(10 * SECOND)
    # The same, when three or more confirm it. With suspect_after it is more than a pause of 5 s.
    verdict_min: Micros = Micros(4 * SECOND)
    # From a broken link that could not be opened again to the suspicion.
    reset_after: Micros = Micros(500 * MILLISECOND)
    # From there to the verdict, when all nodes that look after that node say the same.
    reset_verdict: Micros = Micros(1 * SECOND)

    # Between looks at which links the overlay should have.
    settle: Micros = Micros(100 * MILLISECOND)
    # Before an attempt to open a link is made again.
    dial: Micros = Micros(1 * SECOND)
    # Before a link that neither end wants is closed.
    linger: Micros = Micros(2 * SECOND)
    # Links at a node, those of newcomers included.
    links_max: int = 64
    members_max: int = 16_384
    # Pairs of node and topic in the view.
    pairs_max: int = 4_000_000
    # How long a death is remembered, and a lost peer looked for.
    forget: Micros = Micros(3600 * SECOND)
    # Addresses to begin with.
    join: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.k < 1 or self.k > 32:
            raise InterestConfigError(f"k is {self.k}; it must be from 1 to 32")
        if not 1 <= self.members_max <= 65_536:
            raise InterestConfigError(
                f"members_max is {self.members_max}; it must be from 1 to 65,536"
            )
        if self.news not in ("diff", "whole"):
            raise InterestConfigError(f"news is {self.news!r}; it must be 'diff' or 'whole'")
        if min(self.threshold, self.coalesce, self.period) < 0:
            raise InterestConfigError(
                "threshold, coalesce and period must not be negative; 0 turns one off"
            )
        if (
            min(self.beat // 4, self.suspect_after, self.settle, self.dial // 4, self.linger // 4)
            < 1
        ):
            raise InterestConfigError(
                "beat, suspect_after, settle, dial and linger must be 4 microseconds or more"
            )
        if not (self.threshold or self.coalesce or self.period):
            raise InterestConfigError(
                "threshold, coalesce and period are all 0: no gossip round would ever start"
            )
