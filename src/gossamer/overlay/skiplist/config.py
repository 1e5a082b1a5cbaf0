"""The parameters of one list at one node."""

from __future__ import annotations

from msgspec import Struct

from gossamer.machine import SECOND

K_MAX = 16
ENTRIES_MAX = 256  # places of one node in one topic; beyond that, coarser ones
FEW = 64  # members: so small a list may vanish and begin anew while leases of the old one are about (leases.py)
MOVING_MAX = 2 * ENTRIES_MAX  # entries while new places are joined and old ones not yet withdrawn


class SkipConfigError(ValueError):
    """A parameter that cannot be used; says which and why."""


class SkipConfig(Struct, frozen=True, kw_only=True):
    k: int = 2  # a link of level l spans k**l entries: more links and fewer messages when small, fewer links when large
    period: int = SECOND  # the seed's t: level l gossips every t * (l + 1)
    successors: int = 8  # so many neighbours may die at once
    silence: int = 3  # periods without a word from a level-0 neighbour, and it counts as gone
    stale: int = 5  # periods of its level in which no gossip renewed a long link, and it is dropped
    check: int = 64  # at most so many periods between looks, through some other member, at whether one's place is right; 0: never
    routing: str = (
        "gossamer"  # or "paper": greedy by comparison alone, contiguous matches one by one
    )
    pace: str = "prompt"  # or "paper": levels come with the periods alone
    ranges: str = (
        "cells"  # or "entries": the seed's 3.5, special routing entries at every peer of the range
    )
    lease: int = 10 * SECOND  # for how long a publisher may rely on an empty gap; 0: not at all
    patience: int = (
        8 * SECOND
    )  # how long a publisher waits for reports before it asks again for what is missing
    entries_max: int = MOVING_MAX

    def __post_init__(self) -> None:
        for name, low, high in (
            ("k", 2, K_MAX), ("period", 1_000, 3_600 * SECOND), ("successors", 1, 64), ("silence", 2, 100), ("stale", 2, 100),
            ("check", 0, 1_000_000), ("lease", 0, 3_600 * SECOND), ("patience", 1_000, 3_600 * SECOND),
            ("entries_max", 1, MOVING_MAX),
        ):  # fmt: skip
            value = getattr(self, name)
            if not low <= value <= high:
                raise SkipConfigError(f"{name} is {value}; it must be from {low} to {high}")
        if self.routing not in ("gossamer", "paper"):
            raise SkipConfigError(f"routing is {self.routing!r}; it must be 'gossamer' or 'paper'")
        if self.pace not in ("prompt", "paper"):
            raise SkipConfigError(f"pace is {self.pace!r}; it must be 'prompt' or 'paper'")
        if self.ranges not in ("cells", "entries"):
            raise SkipConfigError(f"ranges is {self.ranges!r}; it must be 'cells' or 'entries'")
