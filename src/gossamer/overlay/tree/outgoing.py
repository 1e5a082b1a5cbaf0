"""A batch on its way, as its publisher sees it: which keys have been answered for, and what is still being asked."""

from __future__ import annotations

from operator import add

from msgspec import Struct

from gossamer.machine import MILLISECOND, Micros, Peer
from gossamer.overlay.batch import Batch, bounded_all
from gossamer.overlay.tree.arcs import Arc, Cover, Piece
from gossamer.overlay.tree.config import TreeConfig
from gossamer.overlay.tree.messages import Pieces

PAUSE_MAX = Micros(2_000 * MILLISECOND)


class Finished(Struct, frozen=True):
    """A receipt: every key has been answered for."""

    incarnation: int
    first: int
    matched: tuple[int, ...]


class Round:
    """A part of the ring that has been asked for and not reported."""

    __slots__ = ("at", "peer", "want")

    def __init__(self, peer: Peer, want: Cover, at: Micros) -> None:
        self.peer, self.want, self.at = peer, want, at


class Outgoing:
    """Rounds under way want disjoint keys, and one that has run out of time is not listened to: so nobody is counted twice."""

    def __init__(self, batch: Batch, bits: int, at: Micros) -> None:
        self.batch, self.bits, self.at = batch, bits, at  # when to look after what is missing
        self.cover = Cover(bits)
        self.matched = (0,) * batch.count
        self.round = batch.round
        self.pauses = 0
        self.rounds: dict[int, Round] = {
            batch.round: Round(Peer(batch.publisher), Cover(bits).missing(), at)
        }

    def collect(self, round: int, pieces: Cover, matched: tuple[int, ...]) -> None:
        del self.rounds[round]
        for piece in pieces.pieces():
            self.cover.add(piece)
        self._count(matched)

    def add(self, piece: Piece, matched: tuple[int, ...]) -> None:
        self.cover.add(piece)
        self._count(matched)

    def _count(self, matched: tuple[int, ...]) -> None:
        if matched and len(matched) == len(self.matched):
            self.matched = bounded_all(tuple(map(add, self.matched, matched)))

    def total(self) -> tuple[int, ...]:
        return self.matched

    def lose(self, peer: Peer) -> bool:
        """The host that was to report cannot be reached; returns whether there was one."""
        lost = [
            round
            for round, each in self.rounds.items()
            if each.peer == peer and peer != self.batch.publisher
        ]
        for round in lost:
            del self.rounds[round]
        return bool(lost)

    def expire(self, now: Micros) -> None:
        self.rounds = {round: each for round, each in self.rounds.items() if each.at > now}

    def pause(self, config: TreeConfig, now: Micros) -> Micros:
        self.pauses += 1
        return Micros(now + min(config.again << min(self.pauses - 1, 6), PAUSE_MAX))

    def missing(self) -> Pieces:
        """What nobody has answered for and nobody is being asked."""
        cover = Cover(self.bits, self.cover.pieces() if not self.cover.empty else ())
        for each in self.rounds.values():
            for piece in each.want.pieces():
                cover.add(piece)
        return cover.missing().pieces()

    def begin(self, arc: Arc, now: Micros, config: TreeConfig) -> Pieces | None:
        """Ask this host for the missing piece that begins with its keys; None if nothing is missing there."""
        for low, high in self.missing():
            if low == high or arc.has(
                (low + 1) % (1 << self.bits)
            ):  # all is missing, or it begins here
                self.round += 1
                self.rounds[self.round] = Round(
                    arc.host.to, Cover(self.bits, [(low, high)]), Micros(now + config.round)
                )
                return ((low, high),)
        return None
