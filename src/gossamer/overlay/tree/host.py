"""One host of the tree: ring, neighbours, routes and batches over one set of links.

Its effects go to the owner's list, ``out``. The owner subscribes and publishes. A batch is handed
over by ``arrive``, and a receipt is pushed by ``complete``, as with all routers of the delivery
engine. ``take_laid`` has the subscriptions that everybody knows of.

A newcomer's keys belonged to its successor, which has answered for them. So before the newcomer's
first subscription counts as laid it asks the successor to stop (``Yield``), and waits until nobody
takes the keys for the successor's any longer (``Yielded``). A successor that is a newcomer itself
had the keys from the host after it, which is asked next, and so on up to the first that is no
newcomer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gossamer.machine import MILLISECOND, NEVER, SECOND, Effect, LinkState, Micros, Peer
from gossamer.overlay.batch import Batch
from gossamer.overlay.delivery.engine import Arrive, Complete
from gossamer.overlay.tree.arcs import Arc, Host
from gossamer.overlay.tree.config import TreeConfig
from gossamer.overlay.tree.content import Content
from gossamer.overlay.tree.links import Links
from gossamer.overlay.tree.maintain import Neighbourhood
from gossamer.overlay.tree.messages import (
    RING_MESSAGES,
    Announce,
    Attach,
    Carry,
    Laid,
    Notice,
    Reached,
    Waits,
    Yield,
    Yielded,
)
from gossamer.overlay.tree.reference import ReferenceTree
from gossamer.overlay.tree.ring import Ring
from gossamer.overlay.tree.router import TreeRouter
from gossamer.overlay.tree.routes import Routes
from gossamer.trace import hex_peer

YIELD_AGAIN = Micros(500 * MILLISECOND)
YIELDING_MAX = 64
# The time for which a subscription that is being laid waits for a neighbour that lives and does not
# agree. The neighbour may be a liar.
HEED = 10 * SECOND
# Newcomers in a row that are asked to yield. Where there are more, the whole tree has just begun.
YIELDERS_MAX = 8


class TreeHost:
    def __init__(
        self,
        me: Host,
        config: TreeConfig,
        tree: ReferenceTree,
        make_ring: Callable[[Links], Ring],
        content: Content,
        arrive: Arrive,
        complete: Complete,
        out: list[Effect],
    ) -> None:
        self.me, self.config = me, config
        self.links = Links(me.to, config, out)
        self.ring = make_ring(self.links)
        self.hood = Neighbourhood(self.ring, tree, config, self.links)
        self.routes = Routes(self.ring, config, self.links, content)
        self.router = TreeRouter(self.ring, self.routes, config, self.links, arrive, complete, out)
        self.engine = self.router.engine
        self.links.kept = self._needs
        self.hood.whole = self.routes.whole
        self.routes.agreed = lambda: self.hood.agreed or self._unheeded
        # The host that answered for this host's keys has stopped.
        self.ready = False
        # The owner has changed the ring, so there may be something to do at once.
        self._is_stirred = True
        self._arc: Arc | None = None
        # Since when this host and its neighbours do not agree that they are, and whether that is
        # too long.
        self._restless = NEVER
        self._unheeded = False
        # Whether they agreed when they were looked at last.
        self._has_agreed = False
        self._yield_at = Micros(0)
        self._yield_key: int | None = None
        # The host that was asked last.
        self._yielder: Arc | None = None
        # The keys of this host, and of newcomers like it that have been asked.
        self._yielded = [me.key]
        self._yielding: dict[Peer, Arc] = {}
        # Messages on batches change nothing here but the batches.
        self._on_batches: dict[type, Callable[[Peer, Any, Micros], None]] = {
            Carry: self.router.on_carry,
            Reached: self.router.on_reached,
            Waits: self.router.on_waits,
        }
        self._handlers: dict[type, Callable[[Peer, Any, Micros], None]] = {
            Attach: self._on_attach,
            Notice: self.hood.notice,
            Announce: self.routes.announce,
            Laid: self.routes.on_laid,
            Yield: self._on_yield,
            Yielded: self._on_yielded,
        }

    # ----------------------------------------------------------------- commands

    def subscribe(self, number: int, topic: str, filter: str, now: Micros) -> None:
        """Its number is in ``take_laid`` once every publication from then on will find it."""
        self.routes.subscribe(number, (topic, filter), now)
        self._advance(now)

    def unsubscribe(self, number: int, now: Micros) -> None:
        self.routes.unsubscribe(number, now)
        self._advance(now)

    def publish(self, batch: Batch, now: Micros) -> None:
        if self._is_stirred:
            self.wake(now)
        self.engine.publish(batch, now)

    def renew(self, now: Micros) -> None:
        """Others had taken this host for dead, and its successor answered for its keys.

        So all subscriptions are laid again.
        """
        self.ready, self._yield_at, self._yielder, self._yielded = False, now, None, [self.me.key]
        for number, wish in list(self.routes.own.items()):
            self.routes.unsubscribe(number, now)
            self.routes.subscribe(number, wish, now)
        self.hood.touch()
        self._advance(now)

    def leave(self, now: Micros) -> None:
        self.hood.leave(now)
        self._advance(now)

    def changed(self, key: int) -> None:
        """The ring has a host with this key now, or has it no longer."""
        if self.hood.concerns(key):
            self.hood.touch()
            self._is_stirred = True

    def take_laid(self) -> list[int]:
        """Subscriptions that count from here on."""
        if not self.ready:
            return []
        laid, self.routes.laid = self.routes.laid, []
        return laid

    def waits_for(self, number: int) -> str:
        """What keeps a subscription from being laid, for people to read; empty if nothing does."""
        if not self.hood.agreed:
            return (
                "this node and its neighbours in the tree do not agree yet that they are neighbours"
            )
        if peers := self.routes.waits_for(number):
            named = ", ".join(map(hex_peer, peers))
            return f"not confirmed yet by its neighbours in the tree: {named}"
        return (
            "" if self.ready else "the node that held its keys in the tree has not handed them over"
        )

    # ------------------------------------------------------------------- inputs

    @property
    def deadline(self) -> Micros:
        if self._is_stirred:
            return Micros(0)
        engine = self.engine
        return min(
            self.links.deadline, self.ring.deadline, self.hood.deadline, self.routes.deadline,
            engine.again_at, engine.outstanding.deadline,
            self._yields_at,
        )  # fmt: skip

    def receive(self, sender: Peer, message: Any, now: Micros) -> None:
        kind = type(message)
        handler = self._on_batches.get(kind)
        if handler is not None:
            link = self.links.up.get(sender)
            if link is not None:
                link.used = now
                handler(sender, message, now)
            return
        if kind in RING_MESSAGES:
            self.ring.receive(sender, message, now)
        elif self.links.heard(sender, now):
            self._handlers[kind](sender, message, now)
        self._advance(now)

    def wake(self, now: Micros) -> None:
        self._is_stirred = False
        self.links.wake(now)
        self.ring.wake(now)
        self.routes.wake(now)
        self.engine.wake(now)
        self._advance(now)

    def begin(self, peers: list[Peer], now: Micros) -> None:
        """There were links to these peers before the host began."""
        for peer in peers:
            self.links.link(peer, LinkState.UP, now)
            self.engine.link(peer, LinkState.UP, now)

    def link(self, peer: Peer, state: LinkState, now: Micros) -> None:
        self.links.link(peer, state, now)
        self.ring.link(peer, state, now)
        self.hood.link(peer, state, now)
        self.engine.link(peer, state, now)
        if state is LinkState.DOWN or state is LinkState.CUT:
            self._yielding.pop(peer, None)
            self.routes.forget(peer)
        self._advance(now)

    def _needs(self, peer: Peer) -> bool:
        known = getattr(self.ring, "known", None)
        return (
            self.hood.needs(peer)
            or self.engine.outstanding.waits_for(peer)
            or (known is not None and known(peer))
        )

    def _advance(self, now: Micros) -> None:
        """Do everything that follows from the changes of this call."""
        while self.links.failed:
            peer = self.links.failed.pop(0)
            self.ring.failed(peer, now)
            self.hood.failed(peer, now)
            self.engine.failed(peer, now)
        for key, arc in list(self.ring.found):
            self.router.found(key, arc, now)
            if key == self._yield_key and arc is not None:
                self._ask_to_yield(arc, now)
        hood = self.hood
        if hood.advance(now):
            self._has_agreed = hood.agreed
            self._restless = NEVER if self._has_agreed else min(self._restless, now)
            if hood.renewed:
                self.routes.renew(hood.renewed, now)
                hood.renewed = []
            came, _ = self.routes.edges(hood.active, hood.fading, hood.parent, now)
            if came:
                self.engine.again(now)
        self._unheeded = self._restless <= now - HEED
        # Within one call this host may disagree with its neighbours for a moment: it has heard of a
        # newcomer and not yet reckoned anew. An announcement handled in that moment is answered
        # here, now that it has.
        if self.routes.is_put_off:
            self.routes.settled(now)
        arc = self.ring.arc
        if arc is not self._arc:
            self._arc = self.router.arc = arc
            self.routes.update(now)
        if not self.ready or self._yielding:
            self._yields(now)

    def _on_attach(self, sender: Peer, message: Attach, now: Micros) -> None:
        # The announcement that came before the claim may be old.
        self.routes.forget(sender)
        self.hood.attach(sender, message, now)

    # -------------------------------------------------------------------- yields

    @property
    def _yields_at(self) -> Micros:
        """A newcomer asks as soon as it and its neighbours agree, and again after a while."""
        if self.ready or self._arc is None or not self._has_agreed:
            return NEVER
        return self._yield_at

    def _yields(self, now: Micros) -> None:
        arc = self._arc
        if self._yields_at <= now:
            self._yield_at = Micros(now + YIELD_AGAIN)
            self._yield_key = (self._yielded[-1] + 1) % (1 << self.ring.bits)
            successor = self.ring.lookup(self._yield_key, now)
            if successor is not None:
                self._ask_to_yield(successor, now)
        for peer, theirs in list(self._yielding.items()):
            if arc is not None and not arc.has(theirs.high) and self.routes.quiet:
                del self._yielding[peer]
                self.links.say(peer, Yielded(self.ready), now)

    def _ask_to_yield(self, successor: Arc, now: Micros) -> None:
        self._yield_key, self._yielder = None, successor
        if successor.host.peer == self.me.peer:
            # This host is alone, or all hosts are newcomers.
            self._on_yielded(self.me.to, Yielded(), now)
        elif self._arc is not None:
            self.links.send(successor.host, Yield(self._arc), now)

    def _on_yield(self, sender: Peer, message: Yield, now: Micros) -> None:
        if message.arc.host.to != sender or message.arc.has(self.me.key):
            self.links.reject(sender, "a claim to the keys of another host")
        elif len(self._yielding) < YIELDING_MAX:
            self._yielding[sender] = message.arc

    def _on_yielded(self, sender: Peer, message: Yielded, now: Micros) -> None:
        if self.ready or self._yielder is None or sender != self._yielder.host.to:
            # It is late, or nobody has asked.
            return
        asked, self._yielder = self._yielder, None
        if not message.ready and len(self._yielded) < YIELDERS_MAX:
            self._yielded.append(asked.high)
            self._yield_at = now
            return
        self.ready = True
