"""Events that a subscription was handed while it moves from one route to another, when they may come by both."""

from __future__ import annotations

from collections.abc import Iterable

from gossamer.overlay.batch import Batch

SEEN_MANY = (
    8192  # events of a publisher that are remembered before those below its floor are dropped
)


class Seen:
    """Which events a subscription has been handed since it began to move; what is below a publisher's floor comes no more."""

    __slots__ = ("_events", "_many")

    def __init__(self) -> None:
        self._events: dict[tuple[int, int], dict[int, None]] = {}
        self._many: dict[tuple[int, int], int] = {}  # when to look for old ones again

    def fresh(self, batch: Batch, numbers: Iterable[int]) -> set[int]:
        """Those that were not seen, which are seen from now on."""
        life = (batch.publisher, batch.incarnation)
        known = self._events.setdefault(life, {})
        found = {number for number in numbers if number not in known}
        if len(known) > self._many.get(life, SEEN_MANY):
            for number in [number for number in known if number < batch.floor]:
                del known[number]
            self._many[life] = max(SEEN_MANY, 2 * len(known))
        known.update(dict.fromkeys(found))
        return found
