"""Routes: the ways in which events come to a subscription, and what the node asks of the plane behind each.

The subscriber chooses; its interest record says so, and publishers serve every route in use on a topic (DESIGN.md, section 2).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from enum import StrEnum
from typing import Any, Protocol

from msgspec import Struct

from gossamer.filters import Filter
from gossamer.machine import Effect, LinkState, Micros, Peer
from gossamer.overlay.batch import Batch
from gossamer.overlay.direct.messages import GROUP_LENGTH_MAX
from gossamer.overlay.flood import Flood
from gossamer.overlay.interest.record import ROUTES, ViewChange


class Route(StrEnum):
    AUTO = "auto"  # what suits the topic's size and the filter: chosen by the subscriber's node, and again as the fabric changes
    DIRECT = "direct"  # publishers know the filters, match at the source, and send to those who want it: one hop
    FLOOD = "flood"  # every node gets every event: nothing to keep up, and nothing spared
    SKIPLIST = "skiplist"  # to the entries that match, in O(log N) hops
    TREE = "tree"  # along one tree over all nodes, where somebody behind a link may want it


BITS = {route: 1 << ROUTES.index(route) for route in Route if route in ROUTES}
"""In the stamps of interest records."""

Key = tuple[int, ...]
"""A batch: publisher, incarnation, first sequence number, and where a plane splits batches, the part."""


Rows = list[tuple[Any, ...]] | None


class Finished(Struct, frozen=True):
    """A plane's part of a receipt: everybody whom it serves has reported."""

    incarnation: int
    first: int
    matched: tuple[int, ...]  # of each event; a single number: of each of them


def is_end(change: ViewChange) -> bool:
    """Whether a member is gone, or has begun a new life."""
    before, after = change.before, change.after
    return before is not None and (after is None or before.life != after.life)


class RouteError(ValueError):
    """A route that cannot be taken; says why."""


def check_group(group: str, route: Route, *, alone: bool) -> None:
    """RouteError where a group cannot be: its publishers share the events out, and its members have no past of their own."""
    if alone:
        raise RouteError(
            "a member of a group gets a part of the events: name, since, ordered and gaps do not go with group"
        )
    if route not in (Route.AUTO, Route.DIRECT):
        raise RouteError(
            f"a group's events are shared out by their publishers: route {route.value!r} cannot, "
            "use route 'direct' (or 'auto') with group"
        )
    if len(group) > GROUP_LENGTH_MAX:
        raise RouteError(
            f"a group's name has at most {GROUP_LENGTH_MAX} characters, not {len(group)}"
        )


class Plane(Protocol):
    """What carries batches. Methods that return nothing have their effects in the next ``wake``, which ``deadline`` asks for."""

    @property
    def deadline(self) -> Micros: ...

    def receive(self, sender: Peer, message: Any, now: Micros) -> list[Effect]: ...
    def wake(self, now: Micros) -> list[Effect]: ...
    def link(self, peer: Peer, state: LinkState, now: Micros) -> list[Effect]: ...

    def subscribe(self, number: int, topic: str, filter: Filter, group: str, now: Micros) -> None:
        """Its number is in ``take_laid`` once every batch that is published by this route from then on finds it."""

    def unsubscribe(self, number: int, now: Micros) -> None: ...
    def take_laid(self) -> list[int]: ...

    def knows(self, topic: str) -> bool:
        """Whether it can carry this topic's events: a node that starts again may have some before it has heard of their topic."""

    def publish(self, batch: Batch, now: Micros, rows: Rows = None) -> list[Effect]:
        """``Deliver(0, (batch,))`` hands batches over, here and at other nodes; ``took`` answers that.

        ``rows``: the batch's, decoded, where they are at hand.
        """

    def took(self, key: Key, matched: tuple[int, ...], now: Micros) -> list[Effect]: ...
    def take_finished(self) -> list[Finished]: ...

    def changed(self, change: ViewChange, now: Micros) -> None:
        """A member came, went, or wants something else."""

    def known(self, barrier: int, now: Micros) -> bool:
        """A barrier was reached; returns whether it was asked for by this plane."""

    def needs(self, peer: Peer) -> bool:
        """Whether the link to this peer should stay."""

    def under_way(self, now: Micros) -> Sequence[Hashable]:
        """What others wait for this node to report: who leaves should do that first."""

    def renew(self, now: Micros) -> None:
        """Others had taken this node for dead: lay all subscriptions again, each to be in ``take_laid`` once more."""

    def leave(self, now: Micros) -> None:
        """This node goes for good: others may prepare."""


class FloodPlane:
    """``route = flood``: nothing is laid, because everybody gets everything."""

    def __init__(self, flood: Flood) -> None:
        self._flood = flood
        self.receive, self.wake, self.link = flood.receive, flood.wake, flood.link

    @property
    def deadline(self) -> Micros:
        return self._flood.deadline

    def subscribe(self, number: int, topic: str, filter: Filter, group: str, now: Micros) -> None:
        """In force as it is."""

    def unsubscribe(self, number: int, now: Micros) -> None: ...
    def leave(self, now: Micros) -> None: ...
    def renew(self, now: Micros) -> None: ...

    def changed(self, change: ViewChange, now: Micros) -> None:
        if is_end(change):
            self._flood.gone(change.peer)

    def publish(self, batch: Batch, now: Micros, rows: Rows = None) -> list[Effect]:
        return self._flood.publish(batch, now)

    def took(self, key: Key, matched: tuple[int, ...], now: Micros) -> list[Effect]:
        return self._flood.took((key[0], key[1], key[2]), matched, now)

    def known(self, barrier: int, now: Micros) -> bool:
        return False

    def knows(self, topic: str) -> bool:
        return True

    def take_laid(self) -> list[int]:
        return []

    def take_finished(self) -> list[Finished]:
        finished = self._flood.finished
        if not finished:
            return []
        found = [Finished(one.incarnation, one.first, one.matched) for one in finished]
        finished.clear()
        return found

    def needs(self, peer: Peer) -> bool:
        return False  # whatever links there are will do

    def under_way(self, now: Micros) -> Sequence[Hashable]:
        return self._flood.under_way()
