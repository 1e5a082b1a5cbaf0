"""The neighbours of a host (section 3.4): it reckons them, tells those that come and go, and
agrees.

A host reckons anew when its keys change, when a neighbour's link breaks, and when somebody whose
neighbour set it has entered or left tells it so: the symmetric difference of the old set and the
new. New neighbours are told by ``Attach``, former ones by ``Notice``; nobody else hears anything.
Two hosts use the link between them (``active``) when both reckon that they are neighbours.

Link before unlink: a former neighbour's link is used until everybody is known to be behind the
others (``whole``, which the routes tell), or for two seconds.

A host believes no claim of others. A claim makes it look for itself. A claimant that is no
neighbour then is refused, and tries again later, as rings need time to agree. A claim that cannot
be true (another's keys, the receiver's own, a parent that is no higher than its child) is rejected
and counted.
"""

from __future__ import annotations

from collections.abc import Callable

from gossamer.machine import NEVER, LinkState, Micros, Peer
from gossamer.overlay.tree.arcs import Arc, Host
from gossamer.overlay.tree.config import TreeConfig
from gossamer.overlay.tree.links import Links
from gossamer.overlay.tree.messages import Attach, Notice
from gossamer.overlay.tree.reference import Asking, Neighbours, ReferenceTree
from gossamer.overlay.tree.ring import Ring

# Claims of others that are remembered; more are refused.
EDGES_MAX = 256


class Edge:
    """A host that is a neighbour by its own reckoning or by this host's."""

    __slots__ = ("attached", "host", "mine", "retire_at", "theirs", "wait_until")

    def __init__(self, host: Host) -> None:
        self.host = host
        # This host reckons so, and the other one does.
        self.mine = False
        self.theirs = False
        # It has been told over the link that is up.
        self.attached = False
        # This host does not reckon so any longer, and uses the link until then.
        self.retire_at = NEVER
        # The other host has refused, and is asked again then.
        self.wait_until = Micros(0)

    @property
    def active(self) -> bool:
        return self.theirs and (self.mine or self.retire_at != NEVER)


class Neighbourhood:
    def __init__(self, ring: Ring, tree: ReferenceTree, config: TreeConfig, links: Links) -> None:
        self.ring, self.tree, self.config, self._links = ring, tree, config, links
        # Whether every key is behind one of these.
        self.whole: Callable[[list[Peer]], bool] = lambda _peers: True
        # As last reckoned.
        self.neighbours: Neighbours | None = None
        self.edges: dict[Peer, Edge] = {}
        # Neighbours that have lost the announcements of this host. The routes take them.
        self.renewed: list[Peer] = []
        self.deadline = Micros(0)
        # Claims that this host's own reckoning does not bear out.
        self.refused = 0
        self.reckoned = 0
        # Keys looked up, in all and in one reckoning.
        self.lookups = self.lookups_max = 0
        self._arc: Arc | None = None
        self._dirty = False
        # An edge has changed.
        self._stirred = False
        # There are former neighbours whose links are in use.
        self._fades = False
        self._asking: Asking | None = None
        # The key whose owner is being looked up.
        self._key: int | None = None
        # The arcs that the last reckoning rests on.
        self._seen: list[Arc] = []
        self._count = 0
        self._retry = config.retry
        self._retry_at = self._verify_at = NEVER

    @property
    def active(self) -> list[Peer]:
        """Over these links routes and batches run."""
        return [peer for peer, edge in self.edges.items() if edge.active]

    @property
    def parent(self) -> Peer | None:
        above = self.neighbours.parent if self.neighbours is not None else None
        return above.to if above is not None else None

    @property
    def fading(self) -> list[Peer]:
        """Of these, the ones that are used only until others have taken their place."""
        return [
            peer
            for peer, edge in self.edges.items()
            if edge.theirs and not edge.mine and edge.retire_at != NEVER
        ]

    @property
    def agreed(self) -> bool:
        """This host knows its neighbours, and they know it.

        A ring that is not steady is asked again and again.
        """
        return (
            self.neighbours is not None
            and (not self.ring.steady or not self._dirty)
            and all(edge.theirs for edge in self.edges.values() if edge.mine)
        )

    def needs(self, peer: Peer) -> bool:
        edge = self.edges.get(peer)
        return edge is not None and (edge.mine or edge.active)

    # ------------------------------------------------------------------- inputs

    def touch(self) -> None:
        """Something has changed: reckon anew."""
        self._dirty = True

    def concerns(self, key: int) -> bool:
        """Whether a host that comes or goes with this key can change this host's neighbours.

        It can only if it changes an arc that the last reckoning rests on.
        """
        if self.neighbours is None or self._asking is not None or self._dirty:
            return True
        return any(arc.has(key) or arc.low == key for arc in self._seen)

    def attach(self, sender: Peer, message: Attach, now: Micros) -> None:
        self._stirred = True
        arc = message.arc
        mine = self.ring.arc
        if arc.host.to != sender or arc.host.key >> self.ring.bits or arc.low >> self.ring.bits:
            self._links.reject(sender, "a claim to the keys of another host")
            return
        if mine is not None:
            if arc.has(mine.high):
                self._links.reject(sender, "a claim to the keys of this host")
                self._refuse(sender, now)
                return
            above = self.tree.rank(*arc.piece) < self.tree.rank(*mine.piece)
            if self.tree.ordered and above != message.above and not mine.has(arc.high):
                # A parent that is not above its child would close a circle. It may also be that
                # this host's own keys are out of date.
                self._links.reject(sender, "a claim that turns parent and child around")
                self._refuse(sender, now)
                return
        edge = self.edges.get(sender)
        if edge is None:
            if len(self.edges) >= EDGES_MAX:
                self._refuse(sender, now)
                return
            edge = self.edges[sender] = Edge(arc.host)
        if not message.heard:
            # It has begun, perhaps anew, and knows nothing of this host.
            self.renewed.append(sender)
        edge.theirs, edge.wait_until = True, Micros(0)
        edge.attached = edge.attached and message.heard
        if edge.mine:
            self._tell(edge, now)
        else:
            self._dirty = True

    def notice(self, sender: Peer, message: Notice, now: Micros) -> None:
        edge = self.edges.get(sender)
        if edge is None:
            return
        self._dirty = True
        if message.gone:
            edge.theirs = edge.attached = False
            if not edge.mine:
                del self.edges[sender]
            else:
                edge.wait_until = Micros(now + self._retry)
                self._retry_at = min(self._retry_at, edge.wait_until)

    def link(self, peer: Peer, state: LinkState, now: Micros) -> None:
        if state is LinkState.DOWN or state is LinkState.CUT:
            edge = self.edges.get(peer)
            if edge is not None:
                edge.theirs = edge.attached = False
                self._dirty = True
                if not edge.mine:
                    del self.edges[peer]

    def failed(self, peer: Peer, now: Micros) -> None:
        edge = self.edges.get(peer)
        if edge is not None:
            edge.theirs = edge.attached = False
            self._retry_at = min(self._retry_at, Micros(now + self._retry))
            self._stirred = True

    def leave(self, now: Micros) -> None:
        """This host goes: say so, so that the others reckon anew at once."""
        for peer in self.edges:
            self._links.say(peer, Notice(True), now)
        self.edges.clear()
        self.neighbours, self._stirred = None, True

    # ---------------------------------------------------------------- reckoning

    def advance(self, now: Micros) -> bool:
        """Reckon, tell and retire, as far as it is due. Returns whether edges may have changed."""
        arc = self.ring.arc
        idle = now < self.deadline and not (
            self._stirred or self._dirty or self._fades or self.ring.found
        )
        if idle and arc is self._arc:
            return False
        self._stirred = False
        found, self.ring.found = self.ring.found, []
        for key, answer in found:
            if self._asking is not None and key == self._key:
                self._answer(answer, now)
        if arc != self._arc:
            self._dirty = True
        self._arc = arc
        if self._retry_at <= now or self._verify_at <= now:
            self._dirty = True
            self._retry_at = NEVER
            self._verify_at = NEVER if self.ring.steady else Micros(now + self.config.verify)
        if self._dirty and self._asking is None and self._arc is not None:
            self._start(now)
        if self._fades:
            self._retire(now)
        self.deadline = min(
            self._retry_at,
            self._verify_at,
            min((edge.retire_at for edge in self.edges.values()), default=NEVER),
        )
        return True

    def _start(self, now: Micros) -> None:
        assert self._arc is not None
        self._dirty = False
        self.reckoned += 1
        self._count = 0
        self._seen = [self._arc]
        self._verify_at = NEVER if self.ring.steady else Micros(now + self.config.verify)
        self._asking = self.tree.neighbours(self._arc)
        self._step(None, now)

    def _answer(self, arc: Arc | None, now: Micros) -> None:
        self._key = None
        if arc is None:
            self._asking = None
            self._again(now)
        else:
            self._step(arc, now)

    def _step(self, arc: Arc | None, now: Micros) -> None:
        asking = self._asking
        assert asking is not None
        try:
            while True:
                if arc is not None:
                    self._seen.append(arc)
                key = asking.send(arc) if arc is not None else next(asking)
                self._count += 1
                arc = self.ring.lookup(key, now)
                if arc is None:
                    self._key = key
                    return
        except StopIteration as done:
            self._asking = None
            self.lookups += self._count
            self.lookups_max = max(self.lookups_max, self._count)
            self._settle(done.value, now)

    def _again(self, now: Micros) -> None:
        self._retry_at = min(self._retry_at, Micros(now + self._retry))
        self._retry = Micros(min(2 * self._retry, self.config.retry_max))

    def _settle(self, neighbours: Neighbours, now: Micros) -> None:
        self.neighbours = neighbours
        wanted = {host.to: host for host in neighbours.hosts if host.peer != self.ring.me.peer}
        for peer, host in wanted.items():
            edge = self.edges.get(peer)
            if edge is None:
                edge = self.edges[peer] = Edge(host)
            edge.host, edge.mine, edge.retire_at = host, True, NEVER
            self._tell(edge, now)
        for peer, edge in list(self.edges.items()):
            if peer in wanted:
                continue
            if edge.mine:
                edge.mine = False
                if edge.theirs:
                    edge.retire_at, self._fades = Micros(now + self.config.unlink), True
                    self._links.say(peer, Notice(), now)
                else:
                    self._links.say(peer, Notice(True), now)
                    self._links.forget(peer)
                    del self.edges[peer]
            elif edge.retire_at == NEVER:
                self.refused += 1
                del self.edges[peer]
                self._refuse(peer, now)
        if all(edge.active for edge in self.edges.values()):
            self._retry = self.config.retry
        else:
            self._again(now)

    def _tell(self, edge: Edge, now: Micros) -> None:
        if (
            not edge.attached
            and self._arc is not None
            and self.neighbours is not None
            and edge.wait_until <= now
        ):
            edge.attached = True
            above = any(child.peer == edge.host.peer for child in self.neighbours.children)
            self._links.send(edge.host, Attach(self._arc, above, edge.theirs), now)

    def _refuse(self, peer: Peer, now: Micros) -> None:
        self._links.say(peer, Notice(True), now)

    def _retire(self, now: Micros) -> None:
        mine = [peer for peer, edge in self.edges.items() if edge.mine]
        ready = (
            all(self.edges[peer].theirs for peer in mine)
            and not self._dirty
            and self._asking is None
            and self.whole(mine)
        )
        self._fades = False
        for peer, edge in list(self.edges.items()):
            if edge.retire_at != NEVER and (ready or edge.retire_at <= now):
                self._links.say(peer, Notice(True), now)
                del self.edges[peer]
            self._fades = self._fades or (edge.retire_at != NEVER and peer in self.edges)
