"""Routes: the ways in which events come to a subscription, and the plane behind each.

The subscriber chooses a route. Its interest record says so, and publishers serve every route that
is in use on a topic. A *plane* carries batches by one route. This module says what the node asks of
a plane, and has the planes of the routes "flood" and "direct". The others are in ``lists.py`` and
``tree.py``.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from enum import StrEnum
from random import Random
from typing import TYPE_CHECKING, Any

from gossamer.filters import Filter
from gossamer.filters.packed import Packed
from gossamer.machine import NEVER, Effect, LinkState, Micros, Peer
from gossamer.node.rights import Rights
from gossamer.overlay.batch import Batch
from gossamer.overlay.delivery.engine import Arrive, Complete, LeftOut
from gossamer.overlay.direct.core import Direct
from gossamer.overlay.direct.messages import GROUP_LENGTH_MAX
from gossamer.overlay.flood import Flood
from gossamer.overlay.interest.core import Interest
from gossamer.overlay.interest.record import ROUTES, ViewChange, read_stamp

if TYPE_CHECKING:
    from gossamer.node.local import Local

EPOCHS = 2**52


class Route(StrEnum):
    # The subscriber's node chooses what suits the size of the topic and the filter, and chooses
    # again as the fabric changes.
    AUTO = "auto"
    # Publishers know the filters, match at the source, and send in one hop to the nodes that want
    # it.
    DIRECT = "direct"
    # Every node gets every event: nothing has to be kept up, and nothing is spared.
    FLOOD = "flood"
    # To the entries that match, in O(log N) hops.
    SKIPLIST = "skiplist"
    # Along one tree over all nodes, where a node behind a link may want it.
    TREE = "tree"


BITS = {route: 1 << ROUTES.index(route) for route in Route if route in ROUTES}
"""The routes in the stamps of interest records."""

Key = tuple[int, ...]
"""A batch: publisher, incarnation, first sequence number, and the part if a plane splits batches.
"""

Rows = list[tuple[Any, ...]] | None


def is_end(change: ViewChange) -> bool:
    """Whether a member is gone, or has begun a new life."""
    before, after = change.before, change.after
    return before is not None and (after is None or before.life != after.life)


class RouteError(ValueError):
    """A route that cannot be taken. The message says why."""


def check_group(group: str, route: Route, *, alone: bool) -> None:
    """Raises a RouteError if a group cannot be on this route.

    The publishers share the events of a group out among its members, so a member has no past of its
    own.
    """
    if alone:
        raise RouteError(
            "a member of a group gets a part of the events: "
            "name, since, ordered and gaps do not go with group"
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
    """Carries batches by one route. Its effects go to the node's list as they arise.

    A plane hands a batch over by calling the node (``Arrive``), and pushes its part of a receipt
    when that is complete (``Complete``). It gets both when it is made. Its deadline changes in no
    other way than by a call of one of its methods (``Routing.deadline``).
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
        """The number is in ``take_laid`` once every later batch of this route finds it."""

    def unsubscribe(self, number: int, now: Micros) -> None: ...

    def take_laid(self) -> list[int]:
        return []

    def knows(self, topic: str) -> bool:
        """Whether it can carry this topic's events.

        A node that starts again may have some before it has heard of their topic.
        """
        return True

    def publish(self, batch: Batch, now: Micros, rows: Rows = None) -> None:
        """``rows`` are the batch's rows, decoded, if the caller has them."""

    def took(self, key: Key, matched: tuple[int, ...], now: Micros) -> None:
        """The counts that ``Arrive`` could not say at once."""

    def changed(self, change: ViewChange, now: Micros) -> None:
        """A member came, went, or wants something else."""

    def known(self, barrier: int, now: Micros) -> bool:
        """A barrier was reached. Returns whether this plane asked for it."""
        return False

    def needs(self, peer: Peer) -> bool:
        """Whether the link to this peer should stay."""
        return False

    def under_way(self, now: Micros) -> Sequence[Hashable]:
        """The batches that this node owes others a report of. A leaving node reports them first."""
        return ()

    def renew(self, now: Micros) -> None:
        """Others had taken this node for dead. All subscriptions are laid again, and each is in
        ``take_laid`` once more.
        """

    def leave(self, now: Micros) -> None:
        """This node goes for good, and others may prepare."""


class FloodPlane(Plane):
    """``route = flood``: nothing is laid, because every node gets everything."""

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


class _DirectView:
    """The view, as route "direct" asks it: the nodes that take a topic this way, and where they
    are.
    """

    def __init__(self, interest: Interest, local: Local) -> None:
        self.rights: Rights | None = None
        self._interest, self._local = interest, local

    @property
    def version(self) -> int:
        """Counts the changes of ``takers`` that the view does not tell."""
        return self.rights.version if self.rights is not None else 0

    def takers(self, topic: str) -> list[Peer]:
        rights, bit = self.rights, BITS[Route.DIRECT]
        return [
            peer
            for peer, stamp in self._interest.interested(topic).items()
            if read_stamp(stamp)[1] & bit and (rights is None or rights.may_subscribe(peer, topic))
        ]

    def address(self, peer: Peer) -> str | None:
        known = self._interest.view.members.get(peer)
        return known.record.address if known is not None else None

    def hash(self, topic: str) -> int:
        return int.from_bytes(self._interest.names.hash(topic), "big")

    def packed(self, topic: str) -> Packed:
        known = self._local.topics.get(topic) or self._local.topic(topic)
        return known.packed


class DirectPlane(Direct, Plane):
    """``route = direct``: the machine of overlay/direct, with this node's view."""

    def __init__(
        self,
        interest: Interest,
        rng: Random,
        local: Local,
        arrive: Arrive,
        complete: Complete,
        left_out: LeftOut,
        out: list[Effect],
    ) -> None:
        # What an earlier life of this node has told is not mistaken for what this one tells.
        epoch = 1 + int(rng.random() * EPOCHS)
        self.proven, self._local = _DirectView(interest, local), local
        super().__init__(interest.me, epoch, self.proven, arrive, complete, left_out, out)

    def about(self) -> dict[str, Any]:
        """What this node knows of the filters of others, as plain data."""
        return {"watched": self.watched, "resent": self.outstanding.sent_again}

    def knows(self, topic: str) -> bool:
        return self._local.knows(topic)

    def changed(self, change: ViewChange, now: Micros) -> None:
        before, after = change.before, change.after
        if change.peer == self.me:
            return
        if is_end(change):
            self.gone(change.peer, now, anew=after is not None)
        elif (
            change.is_interest
            or before is None
            or (after is not None and before.address != after.address)
        ):
            self.view_changed(now)
