"""Routes: the ways in which events come to a subscription, and what the node asks of the plane behind each.

The subscriber chooses; its interest record says so, and publishers serve every route in use on a topic (DESIGN.md, section 2).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from enum import StrEnum
from typing import Any

from gossamer.filters import Filter
from gossamer.machine import NEVER, LinkState, Micros, Peer
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


class Plane:
    """What carries batches by one route. Effects go to the node's list, at once.

    A plane hands a batch over by calling the node (``Arrive``), and pushes its part of a receipt when
    that is complete (``Complete``); both are given to it when it is made.
    """

    @property
    def deadline(self) -> Micros:
        return NEVER

    def receive(self, sender: Peer, message: Any, now: Micros) -> None: ...
    def wake(self, now: Micros) -> None: ...
    def link(self, peer: Peer, state: LinkState, now: Micros) -> None: ...

    def refused(self, peer: Peer, message: Any, now: Micros) -> None:
        """The full queue to a peer did not take this event message."""

    def decline(self, sender: Peer, message: Any, now: Micros) -> None:
        """This node does not take the batch of this relayed message, and says so to the sender."""

    def subscribe(self, number: int, topic: str, filter: Filter, group: str, now: Micros) -> None:
        """Its number is in ``take_laid`` once every batch that is published by this route from then on finds it."""

    def unsubscribe(self, number: int, now: Micros) -> None: ...

    def take_laid(self) -> list[int]:
        return []

    def knows(self, topic: str) -> bool:
        """Whether it can carry this topic's events: a node that starts again may have some before it has heard of their topic."""
        return True

    def publish(self, batch: Batch, now: Micros, rows: Rows = None) -> None:
        """``rows``: the batch's, decoded, where they are at hand."""

    def took(self, key: Key, matched: tuple[int, ...], now: Micros) -> None:
        """What ``Arrive`` could not say at once."""

    def changed(self, change: ViewChange, now: Micros) -> None:
        """A member came, went, or wants something else."""

    def known(self, barrier: int, now: Micros) -> bool:
        """A barrier was reached; returns whether it was asked for by this plane."""
        return False

    def needs(self, peer: Peer) -> bool:
        """Whether the link to this peer should stay."""
        return False

    def under_way(self, now: Micros) -> Sequence[Hashable]:
        """What others wait for this node to report: a node that leaves should do that first."""
        return ()

    def renew(self, now: Micros) -> None:
        """Others had taken this node for dead: lay all subscriptions again, each to be in ``take_laid`` once more."""

    def leave(self, now: Micros) -> None:
        """This node goes for good: others may prepare."""


class FloodPlane(Plane):
    """``route = flood``: nothing is laid, because everybody gets everything."""

    def __init__(self, flood: Flood) -> None:
        self._flood = flood
        self.receive, self.wake, self.link = flood.receive, flood.engine.wake, flood.link  # type: ignore[method-assign]

    @property
    def deadline(self) -> Micros:
        return self._flood.engine.deadline

    def refused(self, peer: Peer, message: Any, now: Micros) -> None:
        self._flood.engine.refused(peer, message)

    def decline(self, sender: Peer, message: Any, now: Micros) -> None:
        if type(message) is Batch:
            self._flood.engine.decline(sender, message, True)

    def publish(self, batch: Batch, now: Micros, rows: Rows = None) -> None:
        self._flood.engine.publish(batch, now)

    def took(self, key: Key, matched: tuple[int, ...], now: Micros) -> None:
        self._flood.engine.took((key[0], key[1], key[2]), matched, now)

    def changed(self, change: ViewChange, now: Micros) -> None:
        if is_end(change):
            self._flood.gone(change.peer)

    def under_way(self, now: Micros) -> Sequence[Hashable]:
        return self._flood.engine.under_way()
