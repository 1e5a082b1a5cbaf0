"""Who can open a link to whom. A node that nobody can dial announces no address: it is behind a translation, or listens on loopback
in a fabric of several hosts. Two such nodes are never linked.

So a subscription of such a node that may choose takes route "flood", which needs no links but those that there are; and while it
has others by route "direct" (a group's, or as it was asked for), this node opens the links itself that publishers could not.
"""

from __future__ import annotations

from gossamer.machine import NEVER, SECOND, Dial, Effect, Micros, Peer
from gossamer.node.local import Local
from gossamer.node.planes import Route
from gossamer.overlay.interest.core import Interest
from gossamer.overlay.interest.record import ViewChange

DIALS_A_TURN = 16
MEMBERS_MAX = 256  # of a larger fabric only so many: a node has room for 1,024 connections, and theirs count as well
AGAIN = Micros(SECOND)


class Reach:
    def __init__(self, interest: Interest, local: Local) -> None:
        self._interest, self._local = interest, local
        self._others: dict[Peer, None] = {}  # that cannot be dialled
        self._begun = 0  # where the last turn ended
        self.deadline: Micros = NEVER  # when to look for members that this node must dial

    @property
    def is_dialled(self) -> bool:
        """Whether others can open links to this node."""
        return bool(self._interest.record.address)

    @property
    def is_whole(self) -> bool:
        """Whether any two nodes can be linked."""
        return len(self._others) + (not self.is_dialled) < 2

    @property
    def holds_on(self) -> bool:
        """Whether publishers may need links to this node that nobody but itself could open again."""
        return not self.is_dialled and any(topic.subscriptions.get(Route.DIRECT) for topic in self._local.topics.values())

    def changed(self, change: ViewChange, now: Micros) -> None:
        if change.peer == self._interest.me:
            return
        if change.after is not None and not change.after.address:
            self._others[change.peer] = None
        else:
            self._others.pop(change.peer, None)
        self.look(now)

    def look(self, now: Micros) -> None:
        """Something has changed that may give this node somebody to dial."""
        if not self.is_dialled and self.deadline == NEVER:
            self.deadline = now

    def wake(self, now: Micros) -> list[Effect]:
        self.deadline = NEVER
        if not self.holds_on:
            return []
        links, members = self._interest.links, self._interest.view.members
        far = [peer for peer in members if peer not in links and peer != self._interest.me and members[peer].record.address]
        room = min(DIALS_A_TURN, MEMBERS_MAX - len(links), len(far))
        if room <= 0:
            return []
        self.deadline = Micros(now + AGAIN)
        self._begun = begun = (self._begun + room) % len(far)  # those that do not answer hold nobody up
        return [Dial(members[peer].record.address, peer) for peer in (far + far)[begun : begun + room]]
