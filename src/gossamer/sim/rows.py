"""Rows about everything that the users of a run did and were given, from which others can judge it.

Everything has two times. ``_us`` is virtual time, in microseconds after the workload began; it is
negative for the set-up before. ``_at`` is the order of all that users did and saw in the run. Two
things in one microsecond still have an order, and that order decides which events are due.
"""

from __future__ import annotations

from msgspec import Struct

from gossamer.sim.history import History


class DeliveryRow(Struct, frozen=True):
    """One hand-over. ``event`` and ``filter`` are places in the workload; -1 stands for none."""

    event: int
    filter: int
    node: int
    # Microseconds after ``publish``.
    at: int
    hops: int
    # The place in ``Outcome.subscriptions``. -1: there never was such a subscription.
    subscription: int = -1
    handed_at: int = 0


class SubscriptionRow(Struct, frozen=True):
    """One subscription, from the call of ``subscribe`` to its end.

    A filter that is subscribed again has another one.
    """

    filter: int
    node: int
    subscribing_at: int
    # The subscription is in force, because ``subscribe`` returned.
    subscribed_at: int | None
    # It was cancelled or cut off, or its node is gone.
    ended_at: int | None
    subscribing_us: int
    subscribed_us: int | None
    ended_us: int | None


class PublicationRow(Struct, frozen=True):
    """One event, from the call of ``publish`` to its complete receipt."""

    event: int
    node: int
    published_at: int
    completed_at: int | None
    published_us: int
    completed_us: int | None


def subscriptions(history: History, start: int) -> list[SubscriptionRow]:
    return [
        SubscriptionRow(
            place.filter,
            place.node,
            place.began,
            place.returned,
            place.ended,
            place.began_us - start,
            _since(place.returned_us, start),
            _since(place.ended_us, start),
        )
        for place in history.places
    ]


def publications(history: History, start: int) -> list[PublicationRow]:
    return [
        PublicationRow(
            event.index,
            event.node,
            event.began,
            event.completed,
            event.at - start,
            _since(event.completed_us, start),
        )
        for event in history.events
    ]


def _since(at: int | None, start: int) -> int | None:
    return None if at is None else at - start
