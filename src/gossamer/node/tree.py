"""``route = tree``: the dispatch tree of seed 002 over the members of the view (overlay/tree).

The ring of keys comes from the interest plane, so there is one membership and no disagreement about
it. A host starts when some node of the fabric, perhaps this one, takes this route. Until then the
tree costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from msgspec import Struct

from gossamer.filters import Filter, Schema
from gossamer.machine import NEVER, Effect, LinkState, Micros, Peer, Send
from gossamer.node.planes import BITS, Key, Plane, Route, Rows
from gossamer.overlay.batch import Batch
from gossamer.overlay.delivery.engine import Arrive, Complete
from gossamer.overlay.interest.core import Interest
from gossamer.overlay.interest.record import ROUTES_ALL, Record, ViewChange
from gossamer.overlay.proof import UNSIGNED, Proof
from gossamer.overlay.tree.arcs import Host
from gossamer.overlay.tree.config import TreeConfig
from gossamer.overlay.tree.content import SchemaContent
from gossamer.overlay.tree.host import TreeHost
from gossamer.overlay.tree.messages import FILTER_TEXT_MAX, Carry
from gossamer.overlay.tree.reference import make_tree
from gossamer.overlay.tree.ring import Members, ViewRing, reckon
from gossamer.overlay.tree.router import declined

_NOT_TREE = bytes(stamp for stamp in range(256) if not stamp & ROUTES_ALL & BITS[Route.TREE])
"""Last bytes of stamps without this route."""


class Drawn(Struct, frozen=True):
    """A node's place in the tree."""

    peer: Peer
    address: str
    parent: Peer | None
    children: tuple[Peer, ...]
    # Whether its link to the parent is in use; None if that is not known here.
    linked: bool | None


def _host(record: Record) -> Host:
    return Host(record.peer, record.peer, record.address)


class TreePlane(Plane):
    def __init__(
        self,
        config: TreeConfig,
        interest: Interest,
        arrive: Arrive,
        complete: Complete,
        links: Callable[[], list[Peer]],
        out: list[Effect],
    ) -> None:
        """``links`` has the links that are up."""
        self.host: TreeHost | None = None
        # Signs this node's own batches; the owner sets it where there are keys.
        self.proof: Proof = UNSIGNED
        self._arrive, self._complete, self._out = arrive, complete, out
        self._config, self._interest, self._links = config, interest, links
        self._content = SchemaContent()
        # By peer, as the ring has them.
        self._hosts: dict[int, Host] = {}
        self._ring: ViewRing | None = None

    def learn(self, topic: str, schema: Schema) -> None:
        self._content.learn(topic, schema)

    def start(self, now: Micros) -> TreeHost:
        """Take part in the tree."""
        if self.host is None:
            me = _host(self._interest.record)
            known = [_host(member.record) for member in self._interest.view.members.values()] + [me]
            self._hosts = {host.peer: host for host in known if host.address}
            self._ring = ring = ViewRing(me, self._config.bits, self._hosts.values())
            self.host = host = TreeHost(
                me, self._config, make_tree(self._config), lambda _links: ring, self._content,
                self._arrive, self._complete, self._out,
            )  # fmt: skip
            host.engine.proof = self.proof
            # The interest plane closes the links of a node, and asks all planes whether they need
            # them.
            host.links.kept = lambda peer: True
            host.begin(self._links(), now)
        return self.host

    @property
    def remembered(self) -> int:
        """Batches in the once-only table."""
        return 0 if self.host is None else self.host.engine.remembered

    # ---------------------------------------------------------------------- inputs

    @property
    def deadline(self) -> Micros:
        return NEVER if self.host is None else self.host.deadline

    def receive(self, sender: Peer, message: Any, now: Micros) -> None:
        host = self.host
        if host is None:
            if not self._interest.is_synced(now):
                # A node that knows few members takes their keys for its own, and would answer for
                # them. Claims are made again, and a batch is answered.
                self.decline(sender, message, now)
                return
            host = self.start(now)
        host.receive(sender, message, now)

    def decline(self, sender: Peer, message: Any, now: Micros) -> None:
        if type(message) is Carry:
            self._out.append(Send((sender,), declined(message)))

    def wake(self, now: Micros) -> None:
        if self.host is not None:
            self.host.wake(now)

    def link(self, peer: Peer, state: LinkState, now: Micros) -> None:
        if self.host is not None:
            self.host.link(peer, state, now)

    def refused(self, peer: Peer, message: Any, now: Micros) -> None:
        if self.host is not None:
            self.host.engine.refused(peer, message)

    def changed(self, change: ViewChange, now: Micros) -> None:
        after = change.after
        if self.host is None:
            wanted = after is not None and after.stamps[3::4].translate(None, _NOT_TREE)
            if wanted and self._interest.is_synced(now):
                self.start(now)
            return
        assert self._ring is not None
        known = self._hosts.get(change.peer)
        host = _host(after) if after is not None and after.address else None
        if known == host:
            return
        if change.peer == self.host.me.peer:
            self._moved(host, now)
            return
        if known is not None:
            del self._hosts[known.peer]
            self._ring.forget(known)
        if host is not None:
            self._hosts[host.peer] = host
            self._ring.learn(host)
        self.host.changed(change.peer)

    def _moved(self, me: Host | None, now: Micros) -> None:
        """This node's own address has changed.

        A node without an address is no host of the tree, because others could not open links to it.
        """
        assert self.host is not None and self._ring is not None  # noqa: PT018
        if me is None:
            self._hosts.pop(self.host.me.peer, None)
            self._ring.forget(self.host.me)
            self.host.leave(now)
        else:
            self._hosts[me.peer] = me
            self._ring.learn(self.host.me)

    def needs(self, peer: Peer) -> bool:
        host = self.host
        return host is not None and (
            host.hood.needs(peer) or host.engine.outstanding.waits_for(peer)
        )

    def under_way(self, now: Micros) -> Sequence[Hashable]:
        return self.host.engine.under_way() if self.host is not None else ()

    def renew(self, now: Micros) -> None:
        if self.host is not None:
            self.host.renew(now)

    def leave(self, now: Micros) -> None:
        if self.host is not None:
            self.host.leave(now)

    def about(self) -> dict[str, Any]:
        """What this host does, as plain data."""
        host = self.host
        if host is None:
            return {}
        return {
            "links": len(host.hood.active),
            "rejected": host.links.rejected,
            "resent": host.engine.asked_again,
        }

    def drawn(self) -> list[Drawn]:
        """The whole tree, as the members of the view imply it.

        Whether links are in use is known for this node's own links only.
        """
        me = self._interest.me
        hosts = [
            _host(member.record)
            for member in self._interest.view.members.values()
            if member.record.address
        ]
        members = Members(self._config.bits, hosts)
        tree = make_tree(self._config)
        active = self.host.hood.active if self.host is not None else []
        found: list[Drawn] = []
        for key in members.keys:
            beside = reckon(tree, members, key)
            host = members.hosts[key]
            parent = beside.parent.to if beside.parent is not None else None
            # The other end of a link of this node.
            mine = parent if host.peer == me else host.to if parent == me else None
            linked = None if mine is None else mine in active
            found.append(
                Drawn(
                    host.to,
                    host.address,
                    parent,
                    tuple(child.to for child in beside.children),
                    linked,
                )
            )
        return found

    # -------------------------------------------------------------------- commands

    def subscribe(self, number: int, topic: str, filter: Filter, group: str, now: Micros) -> None:
        text = "" if filter.text == "TRUE" or len(filter.text) > FILTER_TEXT_MAX else filter.text
        self.start(now).subscribe(number, topic, text, now)

    def unsubscribe(self, number: int, now: Micros) -> None:
        self.start(now).unsubscribe(number, now)

    def waits_for(self, number: int) -> str:
        return "" if self.host is None else self.host.waits_for(number)

    def take_laid(self) -> list[int]:
        return [] if self.host is None else self.host.take_laid()

    def publish(self, batch: Batch, now: Micros, rows: Rows = None) -> None:
        self.start(now).publish(batch, now)

    def took(self, key: Key, matched: tuple[int, ...], now: Micros) -> None:
        self.start(now).engine.took((key[0], key[1], key[2]), matched, now)
