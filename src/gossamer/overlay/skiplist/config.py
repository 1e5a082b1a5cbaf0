"""The parameters of one list at one node."""

from __future__ import annotations

from msgspec import Struct

from gossamer.machine import SECOND

K_MAX = 16
# A node has at most this number of places in one topic. Beyond that it takes coarser places.
ENTRIES_MAX = 256
# A small list has at most this number of members. Such a list may vanish and begin anew while there
# are leases of the old one (leases.py).
FEW = 64
# A node has at most this number of entries while it joins new places and has not withdrawn the old
# ones yet.
MOVING_MAX = 2 * ENTRIES_MAX


class SkipConfigError(ValueError):
    """A parameter cannot be used. The text says which one, and why."""


class SkipConfig(Struct, frozen=True, kw_only=True):
    # A link of level l spans k**l entries. A small k makes more links and fewer messages, and a
    # large k makes fewer links.
    k: int = 2
    # The seed calls it t. Level l gossips every t * (l + 1).
    period: int = SECOND
    # This number of neighbours may die at once.
    successors: int = 8
    # After this number of periods without a word a level-0 neighbour counts as gone.
    silence: int = 3
    # After this number of periods of its level without gossip that renews it a long link is
    # dropped.
    stale: int = 5
    # An entry checks its place through some other member at least once in this number of periods. 0
    # means never.
    check: int = 64
    # "paper" is greedy by comparison alone, and visits contiguous matches one by one.
    routing: str = "gossamer"
    # With "paper" the levels come with the periods alone.
    pace: str = "prompt"
    # "entries" is section 3.5 of the seed, with special routing entries at every peer of the range.
    ranges: str = "cells"
    # A publisher may rely on an empty gap for this time. 0 means not at all.
    lease: int = 10 * SECOND
    # A peer that owes a report is cut off after a silence of this length.
    patience: int = 8 * SECOND
    entries_max: int = MOVING_MAX

    def __post_init__(self) -> None:
        for name, low, high in (
            ("k", 2, K_MAX), ("period", 1_000, 3_600 * SECOND), ("successors", 1, 64),
            ("silence", 2, 100), ("stale", 2, 100), ("check", 0, 1_000_000),
            ("lease", 0, 3_600 * SECOND), ("patience", 1_000, 3_600 * SECOND),
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
