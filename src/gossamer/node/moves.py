"""A subscription moves from one route to another, and neither loses nor doubles an event.

``life.py`` has the table of the stages (``MOVE``). This module does what each stage needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gossamer.machine import Micros
from gossamer.node.life import MOVE, Stage, State, Step, after
from gossamer.node.local import Local, LocalSubscription
from gossamer.node.planes import BITS, Plane, Route
from gossamer.overlay.batch import Batch
from gossamer.overlay.interest.core import Interest

# In these stages the new place has been asked for, and the old one holds.
_ENTERING = (Stage.ENTERING, Stage.PLACED, Stage.ANNOUNCED)

# The events of a publisher that are remembered before those below its floor are dropped.
HANDED_MANY = 8192


class Handed:
    """The events that a subscription was handed since it began to move, because an event may come
    by both routes. An event below its publisher's floor comes no more.
    """

    __slots__ = ("_events", "_many")

    def __init__(self) -> None:
        self._events: dict[tuple[int, int], dict[int, None]] = {}
        # For each life of a publisher, the number of events at which to look for old ones again.
        self._many: dict[tuple[int, int], int] = {}

    def fresh(self, batch: Batch, numbers: Iterable[int]) -> set[int]:
        """Those of a batch's events that are new. From now on they are not."""
        life = (batch.publisher, batch.incarnation)
        known = self._events.setdefault(life, {})
        found = {number for number in numbers if number not in known}
        if len(known) > self._many.get(life, HANDED_MANY):
            for number in [number for number in known if number < batch.floor]:
                del known[number]
            self._many[life] = max(HANDED_MANY, 2 * len(known))
        known.update(dict.fromkeys(found))
        return found


class _Move:
    __slots__ = ("barrier", "new", "old", "stage", "subscription")

    def __init__(self, subscription: LocalSubscription, new: Route) -> None:
        self.subscription, self.old, self.new = subscription, subscription.route, new
        self.barrier = 0
        self.stage = Stage.QUIET

    def step(self, step: Step) -> None:
        self.stage = after(MOVE, self.stage, step)


class Moves:
    def __init__(self, interest: Interest, local: Local, planes: Mapping[Route, Plane]) -> None:
        self.done = 0
        # Moves that ended because the new route had no room.
        self.refused = 0
        # Subscriptions whose route is now the new one, which is laid. The owner takes them.
        self.arrived: list[int] = []
        self._interest, self._local, self._planes = interest, local, planes
        # By the number of the subscription.
        self.under_way: dict[int, _Move] = {}
        # The subscription that waits for each barrier.
        self._barriers: dict[int, int] = {}

    def begin(self, subscription: LocalSubscription, new: Route, now: Micros) -> None:
        assert subscription.number not in self.under_way
        subscription.step(Step.MOVE)
        subscription.handed = Handed()
        move = self.under_way[subscription.number] = _Move(subscription, new)
        self._ask(move, now)

    def known(self, barrier: int, now: Micros) -> bool:
        """A barrier was reached. Returns whether a move asked for it."""
        number = self._barriers.pop(barrier, None)
        if number is None:
            return False
        move = self.under_way.get(number)
        if move is not None and move.barrier == barrier:
            if move.stage in _ENTERING:
                move.step(Step.KNOW)
                self._maybe_leave(move, now)
            elif move.stage is Stage.QUIET:
                self._enter(move, now)
            else:
                if move.stage is Stage.LEAVING:
                    self._leave(move.subscription, move.old, now)
                move.step(Step.SETTLE)
                if move.stage is Stage.OVER:
                    self._end(move)
                else:
                    self._ask(move, now)
        return True

    def laid(self, number: int, route: Route, now: Micros) -> None:
        move = self.under_way.get(number)
        if move is not None and move.new is route and Step.LAY in MOVE[move.stage]:
            move.step(Step.LAY)
            self._maybe_leave(move, now)

    def abandon(self, subscription: LocalSubscription, now: Micros) -> None:
        """The subscription has ended. The place that it had beside its route's own place goes."""
        move = self.under_way.pop(subscription.number, None)
        if move is not None:
            if move.stage in _ENTERING:
                self._leave(subscription, move.new, now)
            elif move.stage is Stage.LEAVING:
                self._leave(subscription, move.old, now)
            move.step(Step.END)

    def renew(self, now: Micros) -> None:
        """The others had taken this node for dead. Places are laid again, and announced again."""
        for move in self.under_way.values():
            move.step(Step.RENEW)
            self._maybe_flood(move)
            self._ask(move, now)

    def _enter(self, move: _Move, now: Micros) -> None:
        subscription = move.subscription
        topic, route = subscription.topic.name, move.new
        try:
            self._interest.subscribe(topic, now, BITS[route], subscription.source)
            try:
                self._planes[route].subscribe(
                    subscription.number, topic, subscription.filter, subscription.group, now
                )
            except ValueError:
                self._interest.unsubscribe(topic, now, BITS[route], subscription.source)
                raise
        except ValueError:
            # The subscription stays where it is.
            self.refused += 1
            subscription.is_auto = False
            move.step(Step.REFUSE)
            self._end(move)
            return
        self._local.listen(subscription, route)
        move.step(Step.SETTLE)
        self._maybe_flood(move)
        self._ask(move, now)

    @staticmethod
    def _maybe_flood(move: _Move) -> None:
        """Route flood needs no place, so a place there is always ready."""
        if move.new is Route.FLOOD and move.stage is Stage.ENTERING:
            move.step(Step.LAY)

    def _maybe_leave(self, move: _Move, now: Micros) -> None:
        if move.stage is Stage.LEAVING:
            move.subscription.route = move.new
            self.arrived.append(move.subscription.number)
            self._ask(move, now)

    def _leave(self, subscription: LocalSubscription, route: Route, now: Micros) -> None:
        self._planes[route].unsubscribe(subscription.number, now)
        self._interest.unsubscribe(subscription.topic.name, now, BITS[route], subscription.source)
        self._local.ignore(subscription, route)

    def _end(self, move: _Move) -> None:
        subscription = move.subscription
        subscription.handed = None
        del self.under_way[subscription.number]
        self.done += 1
        # A subscription that has lapsed meanwhile comes into force by its own steps.
        if subscription.state is State.MOVING:
            subscription.step(Step.ARRIVE)

    def _ask(self, move: _Move, now: Micros) -> None:
        """Ask for the barrier that the stage waits for."""
        self._barriers.pop(move.barrier, None)
        settled = move.stage not in _ENTERING
        move.barrier = self._interest.barrier(now, settled=settled)
        self._barriers[move.barrier] = move.subscription.number
