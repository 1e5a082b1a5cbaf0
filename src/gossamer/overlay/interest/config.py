"""Every parameter of the interest plane, with its default and why."""

from __future__ import annotations

from msgspec import Struct

from gossamer.machine import MILLISECOND, SECOND, Micros


class InterestConfigError(ValueError):
    """Parameters that cannot work together; says which and why."""


class InterestConfig(Struct, frozen=True, kw_only=True):
    k: int = 6  # the overlay stays connected when any k - 1 nodes fail (paragraph 32 of the seed has 6 for thousands)
    news: str = "diff"  # or "whole": every change carries the node's whole interest, as in the seed's pseudo-code

    # When a gossip round starts; each can be turned off with 0, but not all of them.
    threshold: int = 1  # pending changes (claim 3); 1: at once
    coalesce: Micros = Micros(
        3 * MILLISECOND
    )  # after news has arrived (claim 2): a draw from 0 to twice this
    busy: int = 50  # changes a second; from there on rounds wait four times as long, and carry more
    period: Micros = Micros(1 * SECOND)  # since the last round, if anything is pending

    beat: Micros = Micros(1 * SECOND)  # between signs of life on each link
    suspect_after: Micros = Micros(
        3_500 * MILLISECOND
    )  # of silence, probes through others included
    verdict_alone: Micros = Micros(
        10 * SECOND
    )  # from suspicion to verdict, when nobody confirms it
    verdict_min: Micros = Micros(
        4 * SECOND
    )  # when three or more do; with suspect_after, more than a pause of 5 s
    reset_after: Micros = Micros(
        500 * MILLISECOND
    )  # suspicion after a link broke and could not be opened again
    reset_verdict: Micros = Micros(
        1 * SECOND
    )  # and verdict, when all who look after that node say the same

    settle: Micros = Micros(
        100 * MILLISECOND
    )  # between looks at which links the overlay should have
    dial: Micros = Micros(1 * SECOND)  # before an attempt to open a link is made again
    linger: Micros = Micros(2 * SECOND)  # before a link that neither end wants is closed
    links_max: int = 64  # links at a node, those of newcomers included
    members_max: int = 16_384
    pairs_max: int = 4_000_000  # (node, topic) pairs in the view
    forget: Micros = Micros(
        3600 * SECOND
    )  # how long a death is remembered, and a lost peer looked for
    join: tuple[str, ...] = ()  # addresses to begin with

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
