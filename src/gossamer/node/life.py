"""The life of a subscription: one table of its states, and of the steps between them.

A subscription is *in force* when every publication from then on finds it. That takes two things:
its place on its route is ready (``laid``), and every live node knows of its route (``known``).
Either may come first. A subscription that moves to another route stays in force, and its move has a
table of its own, because two places have to be kept at the same time.

========== ==================================================== ==================================
state      what holds                                           what the subscription waits for
========== ==================================================== ==================================
wanted     the program asked for it                             this node knows the fabric; then
                                                                its place, and the other nodes
laid       its place is ready                                   a barrier: all live nodes know
known      all live nodes know of its route                     its place on the route
in force   every publication finds it                           nothing
moving     the same, and it takes another route                 the stages of its move
lapsed     the others took this node for dead, and forgot it    both again, as ``wanted``
ended      the program closed it, or the node cut it off        nothing, and never again
========== ==================================================== ==================================

========== ==================================================== ==================================
stage      what holds                                           what the move waits for
========== ==================================================== ==================================
quiet      every event that comes is remembered by its id       receipts of all events before
entering   the new place was asked for; events may come by      the new place, and a barrier
           both routes, and count once
placed     the new place is ready                               a barrier: all live nodes know
announced  all live nodes know of the new route                 the new place
leaving    the subscription's route is the new one              receipts of all events before
forgetting the old place is gone                                receipts of all events before
over       nothing is remembered any more                       nothing
========== ==================================================== ==================================

docs/delivery.md draws both tables, and tests/node/test_life.py compares the drawing with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar


class State(StrEnum):
    """A state of a subscription."""

    WANTED = "wanted"
    LAID = "laid"
    KNOWN = "known"
    IN_FORCE = "in force"
    MOVING = "moving"
    LAPSED = "lapsed"
    ENDED = "ended"


class Stage(StrEnum):
    """A stage of a subscription's move to another route."""

    QUIET = "quiet"
    ENTERING = "entering"
    PLACED = "placed"
    ANNOUNCED = "announced"
    LEAVING = "leaving"
    FORGETTING = "forgetting"
    OVER = "over"


class Step(StrEnum):
    """An occurrence that changes a state or a stage."""

    # The place on the route is ready.
    LAY = "lay"
    # A barrier was reached: every live node knows of the route.
    KNOW = "know"
    # A barrier was reached: all that was published before it has its receipts.
    SETTLE = "settle"
    MOVE = "move"
    ARRIVE = "arrive"
    # The others had taken this node for dead, and heard of its new life.
    RENEW = "renew"
    # The new route has no room.
    REFUSE = "refuse"
    END = "end"


LIFE: Mapping[State, Mapping[Step, State]] = {
    State.WANTED: {
        Step.LAY: State.LAID,
        Step.KNOW: State.KNOWN,
        Step.RENEW: State.WANTED,
        Step.END: State.ENDED,
    },
    State.LAID: {Step.KNOW: State.IN_FORCE, Step.RENEW: State.WANTED, Step.END: State.ENDED},
    State.KNOWN: {Step.LAY: State.IN_FORCE, Step.RENEW: State.WANTED, Step.END: State.ENDED},
    State.IN_FORCE: {Step.MOVE: State.MOVING, Step.RENEW: State.LAPSED, Step.END: State.ENDED},
    State.MOVING: {Step.ARRIVE: State.IN_FORCE, Step.RENEW: State.LAPSED, Step.END: State.ENDED},
    State.LAPSED: {
        Step.LAY: State.LAID,
        Step.KNOW: State.KNOWN,
        Step.RENEW: State.LAPSED,
        Step.END: State.ENDED,
    },
    State.ENDED: {},
}
"""A move outlives a lapse: when the subscription is in force again, it moves on at once."""

MOVE: Mapping[Stage, Mapping[Step, Stage]] = {
    Stage.QUIET: {
        Step.SETTLE: Stage.ENTERING,
        Step.REFUSE: Stage.OVER,
        Step.RENEW: Stage.QUIET,
        Step.END: Stage.OVER,
    },
    Stage.ENTERING: {
        Step.LAY: Stage.PLACED,
        Step.KNOW: Stage.ANNOUNCED,
        Step.RENEW: Stage.ENTERING,
        Step.END: Stage.OVER,
    },
    Stage.PLACED: {Step.KNOW: Stage.LEAVING, Step.RENEW: Stage.ENTERING, Step.END: Stage.OVER},
    Stage.ANNOUNCED: {Step.LAY: Stage.LEAVING, Step.RENEW: Stage.ENTERING, Step.END: Stage.OVER},
    Stage.LEAVING: {
        Step.SETTLE: Stage.FORGETTING,
        Step.RENEW: Stage.LEAVING,
        Step.END: Stage.OVER,
    },
    Stage.FORGETTING: {
        Step.SETTLE: Stage.OVER,
        Step.RENEW: Stage.FORGETTING,
        Step.END: Stage.OVER,
    },
    Stage.OVER: {},
}

In = TypeVar("In", State, Stage)


class ImpossibleStepError(RuntimeError):
    """The node took a step that its tables do not have: a mistake in this program."""


def after(table: Mapping[In, Mapping[Step, In]], now: In, step: Step) -> In:
    """The state, or stage, that a step leads to."""
    found = table[now].get(step)
    if found is None:
        raise ImpossibleStepError(f"a subscription that is {now.value!r} cannot {step.value}")
    return found
