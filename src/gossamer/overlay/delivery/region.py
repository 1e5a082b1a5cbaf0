"""What the engine asks of an overlay: a router, and the algebra of its regions.

A *region* is what a branch of the distribution answers for: everybody behind a link (flood), keys
(tree), positions (skip list). A *tile* is a part of a region that somebody has answered for. The
engine never looks into either. It asks the router.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple, Protocol

from gossamer.machine import Message, Micros, Peer
from gossamer.overlay.batch import Batch

Id = tuple[int, int, int]
"""A batch: publisher, incarnation, first sequence number."""

Region = Any
Tile = Any


class Aim(NamedTuple):
    """The peers to which a batch goes for a region."""

    # The peers, and the part of the region that each is to answer for. A peer without a link may be
    # among them. Its part waits for the link, and the router's owner dials the peer and tells the
    # engine (``Engine.failed``) when no link can be had.
    parts: Sequence[tuple[Peer, Region]]
    # The tile of this node itself. It is None if the node is not in the region, and its count
    # belongs elsewhere.
    here: Tile | None
    # A tile that the router answers for at once, because it knows that no node there wants the
    # batch.
    known: Tile | None = None
    # Whether this node takes the batch. A node that only relays it does not look at it.
    takes: bool = True


class Cover(Protocol):
    """The tiles of one region that have been answered for, as answers come in."""

    def add(self, tile: Tile, region: Region) -> None:
        """This tile of this part was answered for. A tile counts only where it is in the part."""

    def lose(self, region: Region) -> None:
        """No node will answer for this part, because a link broke or a new round has begun."""

    def tile(self, now: Micros) -> Tile:
        """The tile that may be reported, now that no peer is waited for."""


class Router(Protocol):
    everything: Region

    # Whether a publisher splits a batch among nodes. Then it may split it in another way when it
    # has started again, and the once-only table knows each event by itself.
    splits: bool

    # ------------------------------------------------------------------ the algebra

    def minus(self, one: Region, other: Region) -> Region:
        """The part of the first region that is not in the second. An empty region is false."""

    def plus(self, one: Region, other: Region) -> Region: ...

    def cover(self, region: Region) -> Cover: ...

    def elsewhere(self, region: Region) -> Tile:
        """The answer of a node to a part for which it has nothing to add.

        It answers for the part to another peer in the same round, or the part was complete long
        ago.
        """

    def nothing(self, region: Region) -> Tile:
        """The answer that no part of the region has been reached."""

    def name(self, region: Region) -> Hashable:
        """Tells apart the parts for which one peer is asked in one round."""

    # --------------------------------------------------------------------- the ways

    def aim(self, batch: Batch, region: Region, sender: Peer | None, now: Micros) -> Aim: ...

    def joins(self, batch: Batch, region: Region, peer: Peer) -> Region | None:
        """A link has come up while the region is under way.

        Returns the part that its peer gets as well.
        """

    def leaves_out(self, batch: Batch, peer: Peer, now: Micros) -> Tile | None:
        """The peer was cut off, or is about to be, and the batch goes on without it.

        Returns the tile that counts as answered in the peer's stead; None if the part is lost.
        """

    # ----------------------------------------------------------------- the messages

    def carry(self, batch: Batch, region: Region) -> Message: ...

    def report(
        self, id: Id, round: int, region: Region, tile: Tile, counts: tuple[int, ...]
    ) -> Message: ...

    def busy(self, id: Id, round: int, region: Region) -> Message: ...
