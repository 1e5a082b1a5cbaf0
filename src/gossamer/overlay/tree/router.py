"""The dispatch tree as a router of the delivery engine (overlay/delivery): events are kept whole.

This is the third subproblem of section 2.1 of the seed. A region is a set of keys, and so is a
tile. The publisher's region is the whole ring. A batch goes over the tree's links to where somebody
may want it, with the whole region, of which each host answers for its side of the link. For a link
that a host does not send the batch over it answers itself, with the keys behind the link
(routes.py): nobody there wants it. Each host answers for its own arc, and counts with its own key.
So at the publisher the tiles cover the ring, and the receipt is complete: each key has been
answered for by its owner, or by a host that knew its owner's wishes.

A link that breaks leaves a hole. In the next round the publisher asks the ring who owns the first
missing key of each missing arc. It sends that host the batch for this arc only, over a link that is
dialled if need be, and from there the batch spreads over the tree. A publisher that is not in the
ring has no neighbours in the tree, so it does this from the first round on, beginning with the key
that it would have.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from gossamer.machine import Effect, Micros, Peer
from gossamer.overlay.batch import Batch, joined, parted
from gossamer.overlay.delivery.engine import Arrive, Complete, Counts, Engine
from gossamer.overlay.delivery.region import Aim, Id
from gossamer.overlay.tree.arcs import Arc, Keys
from gossamer.overlay.tree.config import TreeConfig
from gossamer.overlay.tree.links import Links
from gossamer.overlay.tree.messages import PIECES_MAX, Carry, Pieces, Reached, Waits
from gossamer.overlay.tree.ring import Ring
from gossamer.overlay.tree.routes import Routes

# Owners that a look-up has found and that no round has asked yet.
FOUND_MAX = 1024


class Answered:
    """The keys of one region that have been answered for."""

    __slots__ = ("everything", "keys")

    def __init__(self, everything: Keys, bits: int) -> None:
        self.everything, self.keys = everything, Keys(bits)

    def add(self, tile: Keys, region: Keys) -> None:
        self.keys.unite(tile if region is self.everything else tile.common(region))

    def lose(self, region: Keys) -> None:
        """A part that nobody has answered for is missing anyway."""

    def tile(self, now: Micros) -> Keys:
        return self.keys


class TreeRouter:
    splits = False

    def __init__(
        self,
        ring: Ring,
        routes: Routes,
        config: TreeConfig,
        links: Links,
        arrive: Arrive,
        complete: Complete,
        out: list[Effect],
    ) -> None:
        self.everything = Keys(ring.bits).missing()
        self.nobody = Keys(ring.bits)
        self._ring, self._routes, self._config, self._links = ring, routes, config, links
        # This host's arc, which the host brings up to date, and the keys of the arc before.
        self.arc: Arc | None = None
        self._arc: Arc | None = None
        self._mine = self.nobody
        # The first keys of missing arcs whose owners are being looked up, and those that were
        # found.
        self._lookups: dict[int, None] = {}
        self._found: dict[int, Arc] = {}
        self.engine = Engine(ring.me.to, self, arrive, complete, out, config, _key)

    # ------------------------------------------------------------------------- inputs

    def on_carry(self, sender: Peer, message: Carry, now: Micros) -> None:
        region = self._keys(message.want) if message.want else self.everything
        if region is None:
            self._links.reject(sender, "keys that do not exist")
        else:
            self.engine.carry(sender, message.batch, region, now)

    def on_reached(self, sender: Peer, message: Reached, now: Micros) -> None:
        counts = joined(message.matched, message.dropped)
        tile = self._keys(message.pieces)
        if counts is None:
            self._links.reject(sender, "report for another number of events")
        elif tile is None:
            # All of it is asked for again, so counts that were added now would be added twice.
            self._links.reject(sender, "a report for keys that do not exist")
            self.engine.report(sender, _key(message), self.nobody, (), now)
        else:
            self.engine.report(sender, _key(message), tile, counts, now)

    def on_waits(self, sender: Peer, message: Waits, now: Micros) -> None:
        self.engine.busy(sender, _key(message), now)

    def found(self, key: int, arc: Arc | None, now: Micros) -> None:
        """The ring has answered a look-up."""
        if key in self._lookups:
            del self._lookups[key]
            if arc is not None:
                if len(self._found) >= FOUND_MAX:
                    self._found.clear()
                self._found[key] = arc
                self.engine.again(now)

    def _keys(self, pieces: Pieces) -> Keys | None:
        """The keys of a message; None if some do not exist."""
        bits = self._ring.bits
        if any(low >> bits or high >> bits for low, high in pieces):
            return None
        return Keys(bits, pieces)

    # ------------------------------------------------------------------ as a router

    def minus(self, one: Keys, other: Keys) -> Keys:
        return one.minus(other)

    def plus(self, one: Keys, other: Keys) -> Keys:
        return one.plus(other)

    def cover(self, region: Keys) -> Answered:
        return Answered(self.everything, self._ring.bits)

    def elsewhere(self, region: Keys) -> Keys:
        return self.nobody

    def nothing(self, region: Keys) -> Keys:
        return self.nobody

    def name(self, region: Keys) -> Pieces:
        """A region as it travels. The whole ring is the most frequent, and has no piece."""
        return () if region is self.everything else region.pieces()

    def aim(self, batch: Batch, region: Keys, sender: Peer | None, now: Micros) -> Aim:
        arc, whole = self.arc, region is self.everything
        here: Keys | None = None
        known: Keys | None = None
        if arc is not None:
            if arc is not self._arc:
                self._arc, self._mine = arc, Keys(self._ring.bits, [arc.piece])
            mine = self._mine if whole else self._mine.common(region)
            if whole or region.has(arc.high):
                here = mine
            elif mine:
                # These were keys of a host that is no more. This host counts with its own key.
                known = Keys(self._ring.bits)
                known.unite(mine)
        asks_owners = sender is None and (batch.round > 0 or arc is None)
        if len(region.pieces()) > PIECES_MAX:
            # The rest is asked for in another round.
            region = Keys(self._ring.bits, region.pieces()[:PIECES_MAX])
        parts: list[tuple[Peer, Keys]] = []
        linked = self.engine.outstanding.links
        for peer, table in self._routes.tables.items():
            if peer == sender or peer not in linked:
                continue
            if table is not None:
                behind = table.cover if whole else table.cover.common(region)
                if not behind and not whole:
                    continue
                if not self._routes.passes(peer, batch):
                    if known is None:
                        known = Keys(self._ring.bits)
                    known.unite(behind)
                    continue
            if not asks_owners:
                parts.append((peer, region))
        if asks_owners:
            rest = region if known is None else region.minus(known)
            parts = self._owners(rest if here is None else rest.minus(here), now)
        return Aim(parts, here, known)

    def _owners(self, missing: Keys, now: Micros) -> list[tuple[Peer, Keys]]:
        """The owners of the first missing keys, and a missing arc for each."""
        ring, parts = self._ring, []
        if missing.full:
            # It begins nowhere. So not one host starts for all publishers, but the host that has
            # this one's key.
            begins = [(ring.me.key, missing.pieces()[0])]
        else:
            size = 1 << ring.bits
            begins = [((piece[0] + 1) % size, piece) for piece in missing.pieces()]
        for key, piece in begins[: self._config.rounds_at_once]:
            arc = self._found.pop(key, None)
            if arc is None:
                self._lookups[key] = None
                arc = ring.lookup(key, now)
                if arc is None:
                    continue
                self._lookups.pop(key, None)
            to = arc.host.to
            if to == ring.me.to:
                continue
            parts.append((to, Keys(ring.bits, [piece])))
            if to not in self.engine.outstanding.links:
                self._links.dial(arc.host, now, is_awaited=True)
        return parts

    def joins(self, batch: Batch, region: Keys, peer: Peer) -> Keys | None:
        # The tree has changed, and the publisher asks for everything that was lost meanwhile. A new
        # neighbour has nearly always got the batch by the old way.
        return None

    def leaves_out(self, batch: Batch, peer: Peer, now: Micros) -> Keys | None:
        # The publisher asks again, until the peer answers or is no member any more.
        return None

    def carry(self, batch: Batch, region: Keys) -> Carry:
        return Carry(batch, self.name(region))

    def report(self, id: Id, round: int, region: Keys, tile: Keys, counts: Counts) -> Reached:
        pieces = tile.pieces()
        if len(pieces) > PIECES_MAX:
            # Too many to tell. All of it is asked for again, so nothing of it may be counted.
            pieces, counts = (), ()
        matched, dropped = parted(counts) if any(counts) else ((), ())
        return Reached(id, round, self.name(region), pieces, matched, dropped)

    def busy(self, id: Id, round: int, region: Keys) -> Waits:
        return Waits(id, round, self.name(region))


def declined(message: Carry) -> Reached:
    """The answer of a node that cannot take part in the tree yet: nothing was reached."""
    batch = message.batch
    id = (batch.publisher, batch.incarnation, batch.first)
    return Reached(id, batch.round, message.want, ())


def _key(message: Any) -> Hashable:
    """The part that a message belongs to: its batch, its round, and its region."""
    if type(message) is Carry:
        batch = message.batch
        return batch.publisher, batch.incarnation, batch.first, batch.round, message.want
    return *message.id, message.round, message.want
