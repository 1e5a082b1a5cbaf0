"""One host of the tree: ring, neighbours, routes and batches as one machine over one set of links.

Its owner subscribes, publishes and takes batches, as with the flood (overlay/flood.py): ``Deliver(0, (batch,))`` hands one
over, ``took`` answers it, ``finished`` has the receipts, and ``laid`` the subscriptions that everybody knows of.

A newcomer's keys belonged to its successor, who has answered for them. So before its first subscription counts as laid it
asks the successor to stop (``Yield``), and waits until nobody takes them for the successor's any longer (``Yielded``). A
successor that is a newcomer itself had them from the one after it, which is asked next: up to the first that is none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gossamer.machine import MILLISECOND, NEVER, SECOND, Effect, LinkState, Micros, Peer, Token
from gossamer.overlay.batch import Batch
from gossamer.overlay.refused import Refused
from gossamer.overlay.tree.arcs import Arc, Host
from gossamer.overlay.tree.config import TreeConfig
from gossamer.overlay.tree.content import Content
from gossamer.overlay.tree.forward import Forward
from gossamer.overlay.tree.links import Links
from gossamer.overlay.tree.maintain import Neighbourhood
from gossamer.overlay.tree.messages import (
    RING_MESSAGES,
    Announce,
    Attach,
    BatchId,
    Carry,
    Laid,
    Notice,
    Offer,
    Reached,
    Yield,
    Yielded,
)
from gossamer.overlay.tree.outgoing import Finished
from gossamer.overlay.tree.reference import ReferenceTree
from gossamer.overlay.tree.ring import Ring
from gossamer.overlay.tree.routes import Routes
from gossamer.trace import hex_peer

YIELD_AGAIN = Micros(500 * MILLISECOND)
YIELDING_MAX = 64
HEED = (
    10 * SECOND
)  # so long what is laid waits for a neighbour that lives and does not agree: it may be a liar
YIELDERS_MAX = 8  # newcomers in a row; where there are more, the whole tree has just begun


class TreeHost:
    def __init__(
        self,
        me: Host,
        config: TreeConfig,
        tree: ReferenceTree,
        make_ring: Callable[[Links], Ring],
        content: Content,
    ) -> None:
        self.me, self.config = me, config
        self.links = Links(me.to, config)
        self._refused = Refused()
        self.ring = make_ring(self.links)
        self.hood = Neighbourhood(self.ring, tree, config, self.links)
        self.routes = Routes(self.ring, config, self.links, content)
        self.forward = Forward(self.ring, self.routes, config, self.links)
        self.links.kept = self._needs
        self.hood.whole = self.routes.whole
        self.routes.agreed = lambda: self.hood.agreed or self._unheeded
        self.ready = False  # whoever answered for our keys has stopped
        self._commanded = True  # something to do at once
        self._arc: Arc | None = None
        self._restless = NEVER  # since when we and our neighbours do not agree that we are,
        self._unheeded = False  # and whether that is for too long
        self._yield_at = Micros(0)
        self._yield_key: int | None = None
        self._yielder: Arc | None = None  # who was asked last
        self._yielded = [me.key]  # keys of those that are done, newcomers like us, and our own
        self._yielding: dict[Peer, Arc] = {}
        self.refuses: Callable[[Peer, Batch], str | None] = lambda sender, batch: (
            None
        )  # why a batch must not be taken
        self._handlers: dict[type, Callable[[Peer, Any, Micros], None]] = {
            Attach: self._on_attach,
            Notice: self.hood.notice,
            Announce: self.routes.announce,
            Laid: self.routes.on_laid,
            Carry: self.forward.carry,
            Reached: self.forward.reached,
            Offer: self.forward.offer,
            Yield: self._on_yield,
            Yielded: self._on_yielded,
        }

    # ----------------------------------------------------------------- commands

    def subscribe(self, number: int, topic: str, filter: str, now: Micros) -> None:
        """Its number is in ``laid`` once every publication from then on will find it."""
        self.routes.subscribe(number, (topic, filter), now)
        self._commanded = True

    def unsubscribe(self, number: int, now: Micros) -> None:
        self.routes.unsubscribe(number, now)
        self._commanded = True

    def publish(self, batch: Batch, now: Micros) -> None:
        self.forward.publish(batch, now)
        self._commanded = True

    def took(self, id: BatchId, matched: tuple[int, ...], now: Micros) -> None:
        self.forward.took(id, matched, now)
        self._commanded = True

    def renew(self, now: Micros) -> None:
        """Others had taken this host for dead, and its successor answered for its keys: lay all subscriptions again."""
        self.ready, self._yield_at, self._yielder, self._yielded = False, now, None, [self.me.key]
        for number, wish in list(self.routes.own.items()):
            self.routes.unsubscribe(number, now)
            self.routes.subscribe(number, wish, now)
        self.hood.touch()
        self._commanded = True

    def leave(self, now: Micros) -> None:
        self.hood.leave(now)
        self._commanded = True

    def changed(self, key: int) -> bool:
        """Whoever feeds the ring has put in or taken out the host with this key; returns whether that is any concern of ours."""
        if self.hood.concerns(key):
            self.hood.touch()
            self._commanded = True
        return self._commanded

    @property
    def finished(self) -> list[Finished]:
        return self.forward.finished

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
            return f"not confirmed yet by its neighbours in the tree: {', '.join(map(hex_peer, peers))}"
        return (
            "" if self.ready else "the node that held its keys in the tree has not handed them over"
        )

    # ------------------------------------------------------------------- machine

    @property
    def deadline(self) -> Micros:
        if self._commanded:
            return Micros(0)
        return min(
            self.links.deadline, self.ring.deadline, self.hood.deadline, self.routes.deadline, self.forward.deadline,
            NEVER if self.ready or self.ring.arc is None else self._yield_at,
        )  # fmt: skip

    def receive(self, sender: Peer, message: Any, now: Micros) -> list[Effect]:
        if type(message) in RING_MESSAGES:
            self.ring.receive(sender, message, now)
        elif self.links.heard(sender, now):
            refusal = self.refuses(sender, message.batch) if type(message) is Carry else None
            if refusal is None:
                self._handlers[type(message)](sender, message, now)
            else:
                self.links.reject(sender, refusal)
        return self._advance(now)

    def wake(self, now: Micros) -> list[Effect]:
        self._commanded = False
        self.links.wake(now)
        self.ring.wake(now)
        self.routes.wake(now)
        self.forward.wake(now)
        return self._advance(now)

    def link(self, peer: Peer, state: LinkState, now: Micros) -> list[Effect]:
        self.links.out += self._refused.link(peer, state)
        self.links.link(peer, state, now)
        self.ring.link(peer, state, now)
        self.hood.link(peer, state, now)
        self.forward.link(peer, state, now)
        if state is LinkState.DOWN or state is LinkState.CUT:
            self._yielding.pop(peer, None)
            self.routes.forget(peer)
        return self._advance(now)

    def refused(self, peer: Peer, message: Any, now: Micros) -> list[Effect]:
        return self._refused.keep(peer, message)

    def stored(self, token: Token, now: Micros) -> list[Effect]:
        return []  # nothing here depends on a disk

    def _needs(self, peer: Peer) -> bool:
        known = getattr(self.ring, "known", None)
        return self.hood.needs(peer) or (known is not None and known(peer))

    def _advance(self, now: Micros) -> list[Effect]:
        while self.links.failed:
            peer = self.links.failed.pop(0)
            self.ring.failed(peer, now)
            self.hood.failed(peer, now)
            self.forward.failed(peer, now)
        for key, arc in list(self.ring.found):
            self.forward.found(key, arc, now)
            if key == self._yield_key and arc is not None:
                self._ask_to_yield(arc, now)
        self.hood.advance(now)
        self._restless = NEVER if self.hood.agreed else min(self._restless, now)
        self._unheeded = self._restless <= now - HEED
        if self.hood.renewed:
            self.routes.renew(self.hood.renewed, now)
            self.hood.renewed = []
        came, _ = self.routes.edges(self.hood.active, self.hood.fading, self.hood.parent, now)
        if came:
            self.forward.came(came, now)
        # Within one call this host may disagree with its neighbours for a moment: it has heard of a newcomer and not yet
        # reckoned anew. An announcement handled in that moment is answered here, now that it has.
        if self.routes.is_put_off:
            self.routes.settled(now)
        if self.ring.arc != self._arc:
            self._arc = self.ring.arc
            self.routes.update(now)
        if not self.ready or self._yielding:
            self._yields(now)
        out, self.links.out = self.links.out, []
        return out

    def _on_attach(self, sender: Peer, message: Attach, now: Micros) -> None:
        self.routes.forget(sender)  # what it told before it became our neighbour may be old
        self.hood.attach(sender, message, now)

    # -------------------------------------------------------------------- yields

    def _yields(self, now: Micros) -> None:
        arc = self.ring.arc
        if not self.ready and arc is not None and self._yield_at <= now and self.hood.agreed:
            self._yield_at = Micros(now + YIELD_AGAIN)
            self._yield_key = (self._yielded[-1] + 1) % (1 << self.ring.bits)
            successor = self.ring.lookup(self._yield_key, now)
            if successor is not None:
                self._ask_to_yield(successor, now)
        if not self.ready and self._yield_at <= now:
            self._yield_at = Micros(now + YIELD_AGAIN)
        for peer, theirs in list(self._yielding.items()):
            if arc is not None and not arc.has(theirs.high) and self.routes.quiet:
                del self._yielding[peer]
                self.links.say(peer, Yielded(self.ready), now)

    def _ask_to_yield(self, successor: Arc, now: Micros) -> None:
        self._yield_key, self._yielder = None, successor
        if successor.host.peer == self.me.peer:
            self._on_yielded(self.me.to, Yielded(), now)  # alone, or all are newcomers
        elif self.ring.arc is not None:
            self.links.send(successor.host, Yield(self.ring.arc), now)

    def _on_yield(self, sender: Peer, message: Yield, now: Micros) -> None:
        if message.arc.host.to != sender or message.arc.has(self.me.key):
            self.links.reject(sender, "a claim to the keys of another host")
        elif len(self._yielding) < YIELDING_MAX:
            self._yielding[sender] = message.arc

    def _on_yielded(self, sender: Peer, message: Yielded, now: Micros) -> None:
        if self.ready or self._yielder is None or sender != self._yielder.host.to:
            return  # late, or nobody asked
        asked, self._yielder = self._yielder, None
        if not message.ready and len(self._yielded) < YIELDERS_MAX:
            self._yielded.append(asked.high)
            self._yield_at = now
            return
        self.ready = True
        self.forward.offers_from = min(
            self.forward.offers_from, Micros(now + self.config.offer_age)
        )
