"""Nodes that no other node can dial.

Such a node announces no address. It is behind a translation of addresses, or listens on loopback in
a fabric of several hosts. Two such nodes are never linked.

So the subscriptions of such a node take route "flood", which needs only the links that exist. The
node has no place in the tree or in a skip list, where its neighbours might be such nodes as well.
It publishes into both over links that it opens itself. A group is always direct: while such a node
is a member of a group, it opens the links that publishers could not open.

A node may find out late that no node can dial it. It says so when its subscriptions have left the
tree and the skip lists, because the others then do without it there. It also says so after
``LEAVE_MAX``, because a tree whose links cannot be made may be what holds the subscriptions up.
"""

from __future__ import annotations

from gossamer.machine import NEVER, SECOND, Dial, Effect, Micros
from gossamer.node.local import Local
from gossamer.node.planes import Route, RouteError
from gossamer.overlay.interest.core import Interest

DIALS_A_TURN = 16
# The most members that are dialled in a large fabric. A node has room for 1,024 connections, and
# the links that others open count as well.
MEMBERS_MAX = 256
AGAIN = Micros(SECOND)
LEAVE_MAX = Micros(30 * SECOND)
# On these routes a node has a place among others, and any of them may need a link to it.
PLACED = (Route.TREE, Route.SKIPLIST)
# On these routes others need a link to a node that subscribes.
LINKED = (*PLACED, Route.DIRECT)


class Reach:
    def __init__(self, interest: Interest, local: Local) -> None:
        self._interest, self._local = interest, local
        # Where the last turn ended.
        self._begun = 0
        # When to look for members that this node must dial.
        self.dial_at: Micros = NEVER
        # When to look whether the others can be told that no node can dial this one, and when they
        # are told at the latest. NEVER: there is nothing to tell.
        self.tell_at: Micros = NEVER
        self._tell_by: Micros = NEVER

    @property
    def is_dialled(self) -> bool:
        """Whether others can open links to this node."""
        return bool(self._interest.record.address) and self._tell_by == NEVER

    @property
    def holds_on(self) -> bool:
        """Whether publishers may need links to this node that only this node could open again."""
        return not self.is_dialled and self._has(Route.DIRECT)

    def _has(self, *routes: Route) -> bool:
        return any(
            topic.subscriptions.get(route)
            for topic in self._local.topics.values()
            for route in routes
        )

    def check(self, route: Route, group: str) -> None:
        """RouteError where a subscription of this node cannot take this route."""
        if route in LINKED and not group and not self.is_dialled:
            raise RouteError(
                f"nobody can dial this node, and route {route.value!r} needs nodes that can be "
                "dialled: use route 'auto' or 'flood', or give this node a public address "
                "(public_address, --public-address)"
            )

    def withdraw(self, now: Micros) -> None:
        """It has turned out that nobody can dial this node."""
        self.tell_at, self._tell_by = now, Micros(now + LEAVE_MAX)
        self.look(now)

    def look(self, now: Micros) -> None:
        """Something has changed that may give this node somebody to dial, or something to tell."""
        if not self.is_dialled:
            self.dial_at = now if self.dial_at == NEVER else self.dial_at
            self.tell_at = now if self._tell_by != NEVER else NEVER

    def wake(self, now: Micros) -> list[Effect]:
        if self.tell_at <= now:
            self._tell(now)
        return self._dial(now) if self.dial_at <= now else []

    def _tell(self, now: Micros) -> None:
        if now < self._tell_by and self._has(*PLACED):
            self.tell_at = self._tell_by
            return
        self._interest.readdress("", now)
        self.tell_at = self._tell_by = NEVER

    def _dial(self, now: Micros) -> list[Effect]:
        self.dial_at = NEVER
        if not self.holds_on:
            return []
        links, members = self._interest.links, self._interest.view.members
        far = [
            peer
            for peer in members
            if peer not in links and peer != self._interest.me and members[peer].record.address
        ]
        room = min(DIALS_A_TURN, MEMBERS_MAX - len(links), len(far))
        if room <= 0:
            return []
        self.dial_at = Micros(now + AGAIN)
        # Each turn begins with others, so that members that do not answer hold no one up.
        self._begun = begun = (self._begun + room) % len(far)
        return [
            Dial(members[peer].record.address, peer) for peer in (far + far)[begun : begun + room]
        ]
