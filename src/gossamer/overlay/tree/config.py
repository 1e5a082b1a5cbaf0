"""Parameters of one host."""

from __future__ import annotations

from gossamer.machine import MILLISECOND, SECOND, Micros
from gossamer.overlay.delivery.engine import Pace
from gossamer.overlay.tree.messages import SUCCESSORS_MAX


class TreeConfigError(ValueError):
    """A parameter that cannot be; says which and why."""


class TreeConfig(Pace, frozen=True, kw_only=True):
    # Bits of a key; 8 in the seed's experiments.
    bits: int = 64
    # Children of a node of the reference tree.
    arity: int = 2
    # "zero", or "seed": the seed's own keys 1 .. 2^m - 1, where key 0 has no place.
    rooting: str = "zero"
    # In wide trees, children beyond the degree of the reference tree are handed to their brothers.
    cap: bool = True

    # Links.

    # How long an attempt to dial may take; more than a round trip.
    dial_wait: Micros = Micros(500 * MILLISECOND)
    # Attempts. After them a host counts as gone.
    dial_tries: int = 3
    # A link that neither the ring nor the tree needs is closed after this time without a message.
    idle: Micros = Micros(15 * SECOND)

    # Chord.

    # Zave's r: any r hosts in a row, less one, may fail at once.
    successors: int = 8
    stabilise: Micros = Micros(1 * SECOND)
    # The time between look-ups for the finger table.
    fingers: Micros = Micros(2 * SECOND)
    # A question is repeated after this time,
    answer: Micros = Micros(250 * MILLISECOND)
    # and so often; then the next turn asks again. Only a link that cannot be had is a death.
    answer_tries: int = 4
    # The time between knocks at hosts that were given up. So partitions end.
    passive: Micros = Micros(2 * SECOND)
    passive_max: int = 64

    # Neighbours.

    # The time between claims while a neighbour has not agreed.
    retry: Micros = Micros(300 * MILLISECOND)
    retry_max: Micros = Micros(4 * SECOND)
    # A ring that may answer wrongly is asked again after this time.
    verify: Micros = Micros(3 * SECOND)
    # The longest time that an old link is used while new ones come up.
    unlink: Micros = Micros(2 * SECOND)

    # Routes and batches.

    # The time between announcements over one link. Changes in quick succession travel together.
    pace: Micros = Micros(20 * MILLISECOND)
    # A change that can wait is announced after this time, if it is still one.
    settle: Micros = Micros(500 * MILLISECOND)
    # The first pause before a publisher asks for the missing keys.
    again: Micros = Micros(200 * MILLISECOND)
    # Missing arcs that are asked for together.
    rounds_at_once: int = 16
    # Filters on one topic that are announced over one link. Beyond that all of the topic is. Each
    # is compared with each other one.
    filters_max: int = 64
    # Filters on all topics that are announced over one link. Beyond that everything is.
    wishes_max: int = 512
    # The length of their texts together, in characters: a message must fit into a frame.
    wishes_length_max: int = 262_144

    def __post_init__(self) -> None:
        if self.rooting not in ("zero", "seed"):
            raise TreeConfigError(f"rooting is {self.rooting!r}; it must be 'zero' or 'seed'")
        if not 2 <= self.arity <= 64:
            raise TreeConfigError(f"arity is {self.arity}; it must be from 2 to 64")
        if not 1 <= self.successors <= SUCCESSORS_MAX:
            raise TreeConfigError(
                f"successors is {self.successors}; it must be from 1 to {SUCCESSORS_MAX}"
            )
