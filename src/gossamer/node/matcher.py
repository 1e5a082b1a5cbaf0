"""Finds the subscriptions that want the events of a batch, by an index.

A few subscriptions are asked one after the other, which is faster (node/local.py). From
``INDEX_FROM`` on, the subscriptions of a topic and route are in a ``filters.index.Index``, whose
answers are those of the filters. Subscriptions that follow (durable, ordered, with a past) examine
every batch themselves and are not in it. The index needs NumPy. Without it every subscription is
asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gossamer.node.local import LocalSubscription, Topic

# Subscriptions of a topic and route. Asking this number of them takes about as long as the index.
INDEX_FROM = 64
_DEAD_MIN = 1024


class Matcher:
    def __init__(self, topic: Topic, subscriptions: Iterable[LocalSubscription]) -> None:
        from gossamer.filters.index import Index

        self._topic, self._new = topic, Index
        self._lay(subscriptions)

    def _lay(self, subscriptions: Iterable[LocalSubscription]) -> None:
        self.index = self._new(self._topic.schema)
        self._by_place: list[LocalSubscription | None] = []
        # By the number of the subscription.
        self._places: dict[int, int] = {}
        self._following: dict[int, LocalSubscription] = {}
        for subscription in subscriptions:
            self.add(subscription)

    def add(self, subscription: LocalSubscription) -> None:
        if subscription.follow is not None:
            self._following[subscription.number] = subscription
            return
        place = self.index.add(subscription.filter)
        assert place == len(self._by_place)
        self._by_place.append(subscription)
        self._places[subscription.number] = place

    def remove(self, number: int) -> None:
        if self._following.pop(number, None) is not None:
            return
        place = self._places.pop(number)
        self._by_place[place] = None
        self.index.remove(place)
        gone = len(self._by_place) - len(self._places)
        # No place is used twice. So it begins anew with the subscriptions that are left.
        if gone > _DEAD_MIN and gone > len(self._places):
            self._lay(
                [*(one for one in self._by_place if one is not None), *self._following.values()]
            )

    def match(
        self, rows: Any, *, columns: bool
    ) -> Iterator[tuple[LocalSubscription, list[int] | None]]:
        """The subscriptions with the places of the rows that they want, in the order of
        subscribing.

        Then come the subscriptions that follow, with None.
        """
        wanted: Iterable[tuple[int, list[int]]]
        if not columns and len(rows) == 1:
            wanted = [(place, [0]) for place in sorted(self.index.match_row(rows[0]))]
        else:
            index = self.index
            found = index.match_columns(rows) if columns else index.match_rows(rows)
            wanted = _by_place(*found.pairs())
        for place, events in wanted:
            one = self._by_place[place]
            assert one is not None
            yield one, events
        for one in list(self._following.values()):
            yield one, None


def _by_place(events: Any, places: Any) -> Iterator[tuple[int, list[int]]]:
    """The pairs, given as arrays, as the events of each place. Places and events are in order."""
    import numpy as np

    turned = np.argsort(places, kind="stable")
    kinds, starts = np.unique(places[turned], return_index=True)
    ordered, bounds = events[turned].tolist(), [*starts.tolist(), len(events)]
    return (
        (kind, ordered[start:end])
        for kind, start, end in zip(kinds.tolist(), bounds, bounds[1:], strict=False)
    )
