"""Parameters of one host."""

from __future__ import annotations

from msgspec import Struct

from gossamer.machine import MILLISECOND, SECOND, Micros
from gossamer.overlay.tree.messages import SUCCESSORS_MAX


class TreeConfigError(ValueError):
    """A parameter that cannot be; says which and why."""


class TreeConfig(Struct, frozen=True, kw_only=True):
    bits: int = 64  # of a key; 8 in the seed's experiments
    arity: int = 2  # children of a node of the reference tree
    rooting: str = "zero"  # or "seed": its own keys 1 .. 2^m - 1, key 0 unplaced
    cap: bool = True  # wide trees: children beyond the reference degree are handed off

    # Links.
    dial_wait: Micros = Micros(500 * MILLISECOND)  # more than a round trip
    dial_tries: int = 3  # then nobody lives there
    idle: Micros = Micros(
        15 * SECOND
    )  # a link that neither ring nor tree needs is closed after this

    # Chord.
    successors: int = 8  # Zave's r: any r hosts in a row may fail at once but one
    stabilise: Micros = Micros(1 * SECOND)
    fingers: Micros = Micros(2 * SECOND)  # between look-ups for the finger table
    answer: Micros = Micros(250 * MILLISECOND)  # a question is repeated after this
    answer_tries: int = (
        4  # then the next turn asks again; only a link that cannot be had is a death
    )
    passive: Micros = Micros(
        2 * SECOND
    )  # between knocks at hosts that were given up: so partitions end
    passive_max: int = 64

    # Neighbours.
    retry: Micros = Micros(300 * MILLISECOND)  # while a neighbour has not agreed
    retry_max: Micros = Micros(4 * SECOND)
    verify: Micros = Micros(3 * SECOND)  # a ring that may answer wrongly is asked again
    unlink: Micros = Micros(
        2 * SECOND
    )  # an old link is used so long at most while new ones come up

    # Routes and batches.
    pace: Micros = Micros(
        20 * MILLISECOND
    )  # between announcements over one link: what comes in quick succession travels together
    settle: Micros = Micros(
        500 * MILLISECOND
    )  # a change that can wait is announced after this, if it is still one
    round: Micros = Micros(
        15 * SECOND
    )  # the publisher waits so long for a report that no broken link has cut short
    again: Micros = Micros(
        200 * MILLISECOND
    )  # and this before it does so after an incomplete report
    rounds_at_once: int = 16  # missing pieces that are under way together
    offer_age: Micros = Micros(
        5 * SECOND
    )  # batches that are offered to a new neighbour, and how long a newcomer takes none
    filters_max: int = 64  # on one topic, announced over one link; beyond that: all of the topic. Each is compared with each
    wishes_max: int = 512  # filters on all topics, announced over one link; beyond that: everything
    wishes_length_max: int = (
        262_144  # and their texts together, in characters: a message must fit into a frame
    )

    def __post_init__(self) -> None:
        if self.rooting not in ("zero", "seed"):
            raise TreeConfigError(f"rooting is {self.rooting!r}; it must be 'zero' or 'seed'")
        if not 2 <= self.arity <= 64:
            raise TreeConfigError(f"arity is {self.arity}; it must be from 2 to 64")
        if not 1 <= self.successors <= SUCCESSORS_MAX:
            raise TreeConfigError(
                f"successors is {self.successors}; it must be from 1 to {SUCCESSORS_MAX}"
            )
