"""Who can open a link to whom. A node that nobody can dial announces no address: it is behind a translation, or listens on loopback
in a fabric of several hosts. Two such nodes are never linked.

So the subscriptions of such a node take route "flood", which needs no links but those that there are. It has no place in the tree
or in a skip list, where its neighbours might be such nodes as well; it publishes into both over links that it opens itself. A group
is always direct: while such a node is a member of one, it opens the links that publishers could not.

A node that finds out late that nobody can dial it says so when its subscriptions have left tree and skip lists, because the others
then do without it there; or after ``LEAVE_MAX``: a tree whose links cannot be made may be why they do not get away.
"""

from __future__ import annotations

from gossamer.machine import NEVER, SECOND, Dial, Effect, Micros
from gossamer.node.local import Local
from gossamer.node.planes import Route, RouteError
from gossamer.overlay.interest.core import Interest

DIALS_A_TURN = 16
MEMBERS_MAX = 256  # of a larger fabric only so many: a node has room for 1,024 connections, and theirs count as well
AGAIN = Micros(SECOND)
LEAVE_MAX = Micros(30 * SECOND)
PLACED = (
    Route.TREE,
    Route.SKIPLIST,
)  # what others need links to, wherever they are: a place among others,
LINKED = (*PLACED, Route.DIRECT)  # or a node that wants something


class Reach:
    def __init__(self, interest: Interest, local: Local) -> None:
        self._interest, self._local = interest, local
        self._begun = 0  # where the last turn ended
        self.dial_at: Micros = NEVER  # when to look for members that this node must dial
        self.tell_at: Micros = (
            NEVER  # when to look whether the others can be told that nobody can dial this node
        )
        self._tell_by: Micros = (
            NEVER  # they are told then at the latest; NEVER: there is nothing to tell
        )

    @property
    def is_dialled(self) -> bool:
        """Whether others can open links to this node."""
        return bool(self._interest.record.address) and self._tell_by == NEVER

    @property
    def holds_on(self) -> bool:
        """Whether publishers may need links to this node that nobody but itself could open again."""
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
                f"nobody can dial this node, and route {route.value!r} needs nodes that can be dialled: "
                "use route 'auto' or 'flood', or give this node a public address (public_address, --public-address)"
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
        self._begun = begun = (self._begun + room) % len(
            far
        )  # those that do not answer hold nobody up
        return [
            Dial(members[peer].record.address, peer) for peer in (far + far)[begun : begun + room]
        ]
