"""A subscription moves from one route to another, and neither loses nor doubles an event.

quiet       what was published before has its receipts: from now on, every event that comes is remembered (``Seen``)
entering    the new place is laid, and every live node knows of it; events may come by both routes, and count once
leaving     what was published before everybody knew has its receipts: nothing is under way by the old route alone
forgetting  the old place is gone; when what was published by both has its receipts, nothing need be remembered
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from gossamer.machine import Micros
from gossamer.node.local import Local, Subscription
from gossamer.node.planes import BITS, Plane, Route
from gossamer.node.seen import Seen
from gossamer.overlay.interest.core import Interest


class _Stage(Enum):
    QUIET = auto()
    ENTERING = auto()
    LEAVING = auto()
    FORGETTING = auto()


class _Move:
    __slots__ = ("barrier", "is_known", "is_laid", "new", "old", "stage", "subscription")

    def __init__(self, subscription: Subscription, new: Route, barrier: int) -> None:
        self.subscription, self.old, self.new, self.barrier = (
            subscription,
            subscription.route,
            new,
            barrier,
        )
        self.stage = _Stage.QUIET
        self.is_laid = self.is_known = False


class Moves:
    def __init__(self, interest: Interest, local: Local, planes: Mapping[Route, Plane]) -> None:
        self.done = 0
        self.refused = 0  # the new route had no room
        self.arrived: list[
            int
        ] = []  # subscriptions whose route is the new one, which is laid; for the owner to take
        self._interest, self._local, self._planes = interest, local, planes
        self._moves: dict[int, _Move] = {}  # by subscription
        self._barriers: dict[int, int] = {}  # barrier -> subscription

    def __contains__(self, number: int) -> bool:
        return number in self._moves

    def __len__(self) -> int:
        return len(self._moves)

    def begin(self, subscription: Subscription, new: Route, now: Micros) -> None:
        assert subscription.number not in self._moves
        subscription.seen = Seen()
        move = self._moves[subscription.number] = _Move(subscription, new, 0)
        self._ask(move, now, settled=True)

    def known(self, barrier: int, now: Micros) -> bool:
        """A barrier was reached; returns whether it was asked for here."""
        number = self._barriers.pop(barrier, None)
        if number is None:
            return False
        move = self._moves.get(number)
        if move is not None and move.barrier == barrier:
            if move.stage is _Stage.QUIET:
                self._enter(move, now)
            elif move.stage is _Stage.ENTERING:
                move.is_known = True
                self._maybe_leave(move, now)
            elif move.stage is _Stage.LEAVING:
                self._leave(move.subscription, move.old, now)
                move.stage = _Stage.FORGETTING
                self._ask(move, now, settled=True)
            else:
                self._end(move)
        return True

    def laid(self, number: int, route: Route, now: Micros) -> None:
        move = self._moves.get(number)
        if move is not None and move.stage is _Stage.ENTERING and move.new is route:
            move.is_laid = True
            self._maybe_leave(move, now)

    def abandon(self, subscription: Subscription, now: Micros) -> None:
        """It is gone: so is what it had beside its route's own place."""
        move = self._moves.pop(subscription.number, None)
        if move is not None:
            if move.stage is _Stage.ENTERING:
                self._leave(subscription, move.new, now)
            elif move.stage is _Stage.LEAVING:
                self._leave(subscription, move.old, now)

    def renew(self, now: Micros) -> None:
        """Others had taken this node for dead: places are laid again, and what had been known is not."""
        for move in self._moves.values():
            if move.stage is _Stage.ENTERING:
                move.is_laid, move.is_known = move.new is Route.FLOOD, False
            self._ask(move, now, settled=move.stage is not _Stage.ENTERING)

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
            self.refused += 1  # it stays where it is
            subscription.is_auto = False
            self._end(move)
            return
        self._local.listen(subscription, route)
        move.stage, move.is_laid = _Stage.ENTERING, route is Route.FLOOD
        self._ask(move, now)

    def _maybe_leave(self, move: _Move, now: Micros) -> None:
        if move.is_laid and move.is_known:
            move.subscription.route = move.new
            self.arrived.append(move.subscription.number)
            move.stage = _Stage.LEAVING
            self._ask(move, now, settled=True)

    def _leave(self, subscription: Subscription, route: Route, now: Micros) -> None:
        self._planes[route].unsubscribe(subscription.number, now)
        self._interest.unsubscribe(subscription.topic.name, now, BITS[route], subscription.source)
        self._local.ignore(subscription, route)

    def _end(self, move: _Move) -> None:
        move.subscription.seen = None
        del self._moves[move.subscription.number]
        self.done += 1

    def _ask(self, move: _Move, now: Micros, *, settled: bool = False) -> None:
        self._barriers.pop(move.barrier, None)
        move.barrier = self._interest.barrier(now, settled=settled)
        self._barriers[move.barrier] = move.subscription.number
