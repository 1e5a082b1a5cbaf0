"""Flood: forward to all, deduplicate. The baseline that every other overlay is compared with.

Flood is a router of the delivery engine (overlay/delivery). A batch goes over all links but the one
on which it came. The region of a part is everything behind a link, and no node knows it. So a
region is either everything or nothing, and so is a tile: a report is *whole* or it is not. A node
that has a batch already answers at once, because it is counted where the batch came first. So whole
reports tile the fabric, every node counts once in a round, and the receipt is exact. A report that
is not whole brings nothing, and the publisher begins another round.

Messages:
    Batch    events of one publisher and one topic, with consecutive sequence numbers
    Report   the number of subscriptions that took each event of a batch, in the part of the fabric
             behind the sender
    Busy     the sender has the batch and waits for others: be patient
    Leave    the sender goes for good. No node needs to wait for it, but for its neighbours, which
             look for other links

Flood knows neighbours, not members. So it waits for a neighbour whose link broke without a
``Leave``. Until the neighbour is back, or until the ``grace`` is over and the view does not doubt
it any more, no report of this node is whole. A partition that heals within that time loses nothing.

A neighbour that is silent is cut off, and the fabric goes on without it. ``left_out`` hears of each
batch that does, so that the neighbour can be told.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gossamer.machine import SECOND, Effect, LinkState, Micros, Note, Peer
from gossamer.overlay.batch import NEIGHBOURS_MAX, Batch, Busy, Leave, Left, Report, joined, parted
from gossamer.overlay.delivery.engine import Arrive, Complete, Engine, LeftOut, Pace
from gossamer.overlay.delivery.region import Aim, Id
from gossamer.trace import Rejected, hex_peer

_EVERYTHING = "everything"
"""The only name of a part: a peer answers for one in each round."""


class FloodConfig(Pace, frozen=True, kw_only=True):
    grace: Micros = Micros(5 * SECOND)
    """The time for which a neighbour whose link broke is waited for."""

    leave_grace: Micros = Micros(2 * SECOND)
    """The time for which the neighbours of a node that left are waited for.

    If there is a link to such a neighbour, it is not waited for.
    """

    join: bool = False
    """The node was told to join a fabric.

    With no link, publications wait and are not complete alone.
    """


class _Whole:
    """Whether all neighbours have reported, and all reports were whole."""

    __slots__ = ("_flood", "_is_whole")

    def __init__(self, flood: Flood) -> None:
        links = flood.engine.outstanding.links
        self._flood, self._is_whole = flood, bool(links) or not flood.config.join

    def add(self, tile: bool, region: bool) -> None:
        self._is_whole = self._is_whole and tile

    def lose(self, region: bool) -> None:
        self._is_whole = False

    def tile(self, now: Micros) -> bool:
        return self._is_whole and not self._flood.is_incomplete(now)


class Flood:
    """The machine. Its effects go to ``out``."""

    def __init__(
        self,
        me: Peer,
        config: FloodConfig,
        arrive: Arrive,
        complete: Complete,
        left_out: LeftOut,
        out: list[Effect],
        *,
        restarted: bool = False,
    ) -> None:
        self.me, self.config = me, config
        # A node that comes back has forgotten its neighbours. For the grace it cannot say that it
        # has reached them all.
        self._whole_from: Micros | None = None if restarted else Micros(0)
        # Neighbours whose links broke, and the times until which they are waited for.
        self._lost: dict[Peer, Micros] = {}
        self._leaving: dict[Peer, None] = {}
        # Neighbours that were cut off, and are not linked since.
        self._cut: dict[Peer, None] = {}
        # Whether a member is suspected to be dead. The owner sets it, where there is a view.
        self.doubts: Callable[[Peer], bool] = lambda peer: False
        self._left_out, self._out = left_out, out
        self.engine = Engine(me, self, arrive, complete, out, config, _key)

    # ------------------------------------------------------------------------- inputs

    @property
    def remembered(self) -> int:
        """Batches in the once-only table."""
        return self.engine.remembered

    def unlink(self, peer: Peer) -> None:
        """The link to a neighbour is about to be closed because neither end needs it.

        So the node does not wait for it to come back.
        """
        if peer in self.engine.outstanding.links:
            self._leaving[peer] = None

    def receive(self, sender: Peer, message: Batch | Report | Busy | Leave, now: Micros) -> None:
        if type(message) is Batch:
            self.engine.carry(sender, message, True, now)
        elif type(message) is Report:
            counts = joined(message.matched, message.dropped)
            if counts is None:
                reason = "report for another number of events"
                self._out.append(Note(Rejected(hex_peer(sender), reason)))
            else:
                self.engine.report(sender, _key(message), message.whole, counts, now)
        elif type(message) is Busy:
            self.engine.busy(sender, _key(message), now)
        elif type(message) is Leave and sender in self.engine.outstanding.links:
            self._leaves(sender, message, now)

    def hold(self, peer: Peer, now: Micros) -> None:
        """There is a link to a peer, and nothing may go over it before ``link`` says that
        it is up.
        """
        self._linked(peer, now)
        self.engine.hold(peer, now)

    def _linked(self, peer: Peer, now: Micros) -> None:
        self.is_incomplete(now)
        self._lost.pop(peer, None)
        self._leaving.pop(peer, None)
        self._cut.pop(peer, None)

    def gone(self, peer: Peer) -> None:
        """A member is dead, or has begun a new life. It asks for the events that it has missed."""
        self._cut.pop(peer, None)

    def link(self, peer: Peer, state: LinkState, now: Micros) -> None:
        if state is LinkState.UP:
            self._linked(peer, now)
        elif state is LinkState.DOWN or state is LinkState.CUT:
            is_known = peer in self.engine.outstanding.links
            has_left = self._leaving.pop(peer, False) is None
            if is_known and not has_left and state is LinkState.DOWN:
                self._lost[peer] = Micros(now + self.config.grace)
            if state is LinkState.CUT and len(self._cut) < NEIGHBOURS_MAX:
                self._cut[peer] = None
        self.engine.link(peer, state, now)

    def _leaves(self, sender: Peer, message: Leave, now: Micros) -> None:
        links, lost = self.engine.outstanding.links, self._lost
        self._leaving[sender] = None
        until = Micros(now + self.config.leave_grace)
        for number in message.neighbours:
            peer = Peer(number)
            if peer != self.me and peer not in links and len(lost) < NEIGHBOURS_MAX:
                lost[peer] = max(until, lost.get(peer, until))

    def is_incomplete(self, now: Micros) -> bool:
        """Some neighbour is waited for, or this node has just come back and does not know its
        neighbours.
        """
        if self._whole_from is None:
            self._whole_from = Micros(now + self.config.grace)
        for peer in [peer for peer, until in self._lost.items() if until <= now]:
            if not self.doubts(peer):
                del self._lost[peer]
        return bool(self._lost) or now < self._whole_from

    # ------------------------------------------------------------------ as a router

    everything = True
    splits = False

    def minus(self, one: bool, other: bool) -> bool:
        return one and not other

    def plus(self, one: bool, other: bool) -> bool:
        return one or other

    def cover(self, region: bool) -> _Whole:
        return _Whole(self)

    def elsewhere(self, region: bool) -> bool:
        return True

    def nothing(self, region: bool) -> bool:
        return False

    def name(self, region: bool) -> str:
        return _EVERYTHING

    def aim(self, batch: Batch, region: bool, sender: Peer | None, now: Micros) -> Aim:
        for peer in self._cut:
            self.leaves_out(batch, peer, now)
        return Aim([(peer, True) for peer in self.engine.outstanding.links if peer != sender], True)

    def joins(self, batch: Batch, region: bool, peer: Peer) -> bool | None:
        # Otherwise the round would be called whole without the nodes behind this link.
        return True

    def leaves_out(self, batch: Batch, peer: Peer, now: Micros) -> bool:
        id = (batch.publisher, batch.incarnation, batch.first)
        self._left_out(Left(peer, batch.topic, *id, batch.first + batch.count - 1, True), now)
        # A peer that was cut off is not waited for, nor is there another round for it.
        return True

    def carry(self, batch: Batch, region: bool) -> Batch:
        return batch

    def report(
        self, id: Id, round: int, region: bool, tile: bool, counts: tuple[int, ...]
    ) -> Report:
        matched, dropped = parted(counts) if any(counts) else ((), ())
        return Report(*id, round, tile, matched, dropped)

    def busy(self, id: Id, round: int, region: bool) -> Busy:
        return Busy(*id, round)


def _key(message: Any) -> tuple[int, int, int, int, str]:
    return message.publisher, message.incarnation, message.first, message.round, _EVERYTHING
