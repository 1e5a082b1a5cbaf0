"""Batches down the tree, reports back up: events kept whole (the third subproblem of section 2.1; DESIGN.md, section 9).

A batch leaves its publisher over the tree's links to where somebody may want it. A host that gets it for the first time
takes the sender as its parent in this wave, hands the batch to its owner, passes it on, and reports when all it sent it to
have reported: whose keys the batch has reached, and how many subscriptions took it. For a link that it does not pass the
batch over it answers itself, with the keys that are behind the link and want none of it (routes.py). So at the publisher the
reports tile the ring of keys. A link that breaks leaves a hole, for which nobody answers; then the publisher asks the ring
who owns the first missing key and sends that host the batch for the missing keys only, from where it spreads over the tree
as before. When nothing is missing, the receipt is complete: every key has been answered for by its owner, or by somebody who
knew what its owner wants.

Meanwhile neighbours help themselves: over a new link each offers the batches that it has (``Offer``), and sends what the
other lacks.

A batch is handed over once: its id is remembered until the publisher's floor has passed it, and below the floor nothing is
taken.
"""

from __future__ import annotations

import heapq
from operator import add

from gossamer.machine import NEVER, SECOND, Deliver, Effect, LinkState, Micros, Note, Peer
from gossamer.overlay.batch import HOPS_MAX, WINDOW_MAX, Batch, bounded_all, joined, parted
from gossamer.overlay.shares import Shares
from gossamer.overlay.tree.arcs import Arc, Cover
from gossamer.overlay.tree.config import TreeConfig
from gossamer.overlay.tree.links import Links
from gossamer.overlay.tree.messages import (
    OFFERS_MAX,
    PIECES_MAX,
    BatchId,
    Carry,
    Offer,
    Pieces,
    Reached,
)
from gossamer.overlay.tree.outgoing import Finished, Outgoing
from gossamer.overlay.tree.ring import Ring
from gossamer.overlay.tree.routes import Routes
from gossamer.trace import Dropped, Duplicate, hex_peer

ORIGINS_MAX = 65_536  # publishers (with incarnation) remembered; the longest idle, with nothing under way, goes first
ORIGINS_A_LINK = 8_192  # of them, brought by one link
UNASKED_FOR = Micros(5 * SECOND)
UNASKED_MAX = 4_096


class Wave:
    """A batch at this host."""

    __slots__ = (
        "at",
        "batch",
        "cover",
        "done",
        "here",
        "matched",
        "parent",
        "round",
        "taken",
        "waiting",
        "want",
    )

    def __init__(self, batch: Batch, now: Micros) -> None:
        self.batch, self.at = batch, now
        self.round = -1
        self.parent: Peer | None = None  # who waits for the report; our own peer at the publisher
        self.want: Cover
        self.waiting: dict[Peer, None] = {}
        self.cover: Cover  # whose owners it has reached
        self.matched: tuple[int, ...] = ()
        self.here = True  # the owner has not taken it yet
        self.taken: tuple[int, ...] = ()
        self.done = True


class _Origin:
    __slots__ = ("firsts", "floor", "waves")

    def __init__(self) -> None:
        self.floor = 0
        self.waves: dict[int, Wave] = {}
        self.firsts: list[int] = []  # as a heap


class Forward:
    def __init__(self, ring: Ring, routes: Routes, config: TreeConfig, links: Links) -> None:
        self._ring, self._routes, self._config, self._links = ring, routes, config, links
        self.me = ring.me.to
        self.finished: list[Finished] = []  # receipts, for the owner to take
        self.duplicates = 0
        self.recovered = 0  # batches that came by an offer
        self.resent = 0  # rounds beyond the first
        self.dropped = 0
        self.late = 0  # reports that nobody waits for
        self.offers_from = NEVER  # before this, what is offered may be older than our subscriptions
        self._origins: Shares[tuple[int, int], _Origin] = Shares(
            ORIGINS_MAX,
            ORIGINS_A_LINK,
            lambda key, origin: key[0] != self.me and not self._is_active(key, origin),
        )
        self._active: dict[BatchId, Wave] = {}
        self._unasked: dict[
            BatchId, Micros
        ] = {}  # taken here, when; came by an offer: the publisher does not know yet
        self._outgoing: dict[BatchId, Outgoing] = {}
        self._lookups: dict[
            int, list[BatchId]
        ] = {}  # keys whose owners are being looked up, for these
        self.deadline = NEVER

    @property
    def _out(self) -> list[Effect]:
        return self._links.out

    @property
    def remembered(self) -> int:
        return sum(len(origin.waves) for origin in self._origins.values())

    def under_way(self, now: Micros) -> list[BatchId]:
        """Batches that this host still has to report."""
        return [*self._active, *(id for id, at in self._unasked.items() if now - at < UNASKED_FOR)]

    # ----------------------------------------------------------------- commands

    def publish(self, batch: Batch, now: Micros) -> None:
        assert batch.publisher == self.me
        id = (batch.publisher, batch.incarnation, batch.first)
        origin = self._origin(batch, self.me)
        assert origin is not None
        assert batch.first not in origin.waves
        self._outgoing[id] = Outgoing(batch, self._ring.bits, Micros(now + self._config.round))
        self.deadline = min(self.deadline, self._outgoing[id].at)
        wave = self._add(origin, batch, now)
        self._out.append(Deliver(0, (batch,)))
        self._begin(id, wave, batch, self.me, Cover(self._ring.bits).missing(), now)
        if self._ring.arc is None:  # not a host of the tree: one that is starts for us
            self._resend(id, self._outgoing[id], now)

    def took(self, id: BatchId, matched: tuple[int, ...], now: Micros) -> None:
        """The owner has taken the batch, and so many of its subscriptions took each event."""
        origin = self._origins.get(id[:2])
        wave = origin.waves.get(id[2]) if origin is not None else None
        if wave is not None and wave.here:
            wave.here, wave.taken = False, matched
            if wave.round < 0 and any(matched):
                self._remember_unasked(id, now)
            if not wave.done:
                self._count_own(wave)
                self._maybe_finish(id, wave, now)

    # ------------------------------------------------------------------- inputs

    def carry(self, sender: Peer, message: Carry, now: Micros) -> None:
        batch = message.batch
        id = (batch.publisher, batch.incarnation, batch.first)
        want = Cover(self._ring.bits, message.want)
        if (
            batch.floor > batch.first
            or batch.first + batch.count - batch.floor > WINDOW_MAX
            or batch.hops >= HOPS_MAX
        ):
            self._links.reject(sender, "a batch outside its publisher's window")
            return
        if any(low >> self._ring.bits or high >> self._ring.bits for low, high in message.want):
            self._links.reject(sender, "keys that do not exist")
            return
        origin = self._origin(batch, sender)
        wave = origin.waves.get(batch.first) if origin is not None else None
        if origin is None or (
            wave is None and (batch.first < origin.floor or batch.publisher == self.me)
        ):
            self._duplicate(sender, batch)  # taken long ago, or of an earlier life of ours
            self._answer(sender, id, batch.round, Cover(self._ring.bits), (), now)
            return
        if wave is None:
            wave = self._add(origin, batch, now)
            self._out.append(Deliver(0, (batch,)))
            if want.empty:
                self.recovered += 1
                self._offer(
                    [
                        p
                        for p in self._routes.tables
                        if p != sender and self._routes.passes(p, batch)
                    ],
                    [id],
                    now,
                )
            else:
                self._begin(id, wave, batch, sender, want, now)
            return
        if batch.count != wave.batch.count:
            self._links.reject(sender, "a batch with another number of events than before")
            return
        self._duplicate(sender, batch)
        if want.empty:
            return
        if batch.round > wave.round:
            if not wave.done:
                self._finish(id, wave, now)  # who waits for an earlier round gets what there is
            self._begin(id, wave, batch, sender, want, now)
        elif sender != wave.parent or wave.done:
            self._answer(
                sender, id, batch.round, Cover(self._ring.bits), (), now
            )  # another answers for us

    def reached(self, sender: Peer, message: Reached, now: Micros) -> None:
        pieces = Cover(self._ring.bits, message.pieces)
        matched = joined(message.matched, message.dropped)
        if matched is None:
            self._links.reject(sender, "a report for another number of events")
            return
        outgoing, own = self._outgoing.get(message.id), self._ring.me.key
        if any(max(piece) >> self._ring.bits for piece in message.pieces):
            self._links.reject(sender, "a report for keys that do not exist")
            pieces, matched = (
                Cover(self._ring.bits),
                (),
            )  # all of it is asked for again: who counts now would count twice
        wave = self._active.get(message.id)
        if wave is None or wave.round != message.round or sender not in wave.waiting:
            round = outgoing.rounds.get(message.round) if outgoing is not None else None
            if outgoing is not None and round is not None and round.peer == sender:
                if self._ring.arc is not None and pieces.has(
                    own
                ):  # the batch may have come back to us in this round, and we may be counted in it
                    self._links.reject(sender, "a report for the key of this host")
                    pieces, matched = Cover(self._ring.bits), ()
                outgoing.collect(message.round, pieces, matched)
                self._settle(message.id, outgoing, now)
            else:
                self.late += 1  # counted already, or in a later round; or nobody asked
            return
        if matched and len(matched) != wave.batch.count:
            self._links.reject(sender, "a report for another number of events")
            return
        if self._ring.arc is not None and pieces.has(own):
            # While links are being made, two neighbours may have heard of a newcomer, and one answers to the other for it. What is
            # taken here is counted here, once a round: the rest of the report holds, and for our own key it says nothing.
            pieces = pieces.common(
                Cover(self._ring.bits, [((own - 1) % pieces.size, own)]).missing()
            )
        del wave.waiting[sender]
        for piece in pieces.pieces():
            wave.cover.add(piece)
        self._add_matched(wave, matched)
        self._maybe_finish(message.id, wave, now)

    def offer(self, sender: Peer, message: Offer, now: Micros) -> None:
        lacking = []
        if not message.ask and now < self.offers_from:
            return
        for id in message.ids:
            origin = self._origins.get(id[:2])
            wave = origin.waves.get(id[2]) if origin is not None else None
            if message.ask:
                if wave is not None:
                    self._links.say(sender, Carry(wave.batch, ()), now)
            elif wave is None and id[0] != self.me and (origin is None or id[2] >= origin.floor):
                lacking.append(id)
        if lacking:
            self._links.say(sender, Offer(tuple(lacking), True), now)

    def came(self, peers: list[Peer], now: Micros) -> None:
        """New neighbours: offer them what is recent. They tell their routes a moment later, so all of it."""
        since = now - self._config.offer_age
        ids = [
            (*key, first)
            for key, origin in self._origins.items()
            for first, wave in origin.waves.items()
            if wave.at >= since
        ]
        self._offer(peers, ids[-OFFERS_MAX:], now)

    def link(self, peer: Peer, state: LinkState, now: Micros) -> None:
        """What a broken link carried is a hole in the reports."""
        if state is not LinkState.DOWN and state is not LinkState.CUT:
            return
        self._origins.closed(peer)
        for id, wave in list(self._active.items()):
            if wave.parent == peer:
                wave.parent = None
            if peer in wave.waiting:
                del wave.waiting[peer]
                self._maybe_finish(id, wave, now)
        for id, outgoing in list(self._outgoing.items()):
            if outgoing.lose(peer):
                self._settle(id, outgoing, now)

    def failed(self, peer: Peer, now: Micros) -> None:
        for id, outgoing in list(self._outgoing.items()):
            if outgoing.lose(peer):
                self._settle(id, outgoing, now)

    def found(self, key: int, arc: Arc | None, now: Micros) -> None:
        """The ring has answered a look-up."""
        for id in self._lookups.pop(key, ()):
            outgoing = self._outgoing.get(id)
            if outgoing is not None and arc is not None:
                self._resend_to(id, outgoing, arc, now)

    def wake(self, now: Micros) -> None:
        if now < self.deadline:
            return
        for id, outgoing in list(self._outgoing.items()):
            if outgoing.at <= now:
                self._resend(id, outgoing, now)
        self.deadline = min((outgoing.at for outgoing in self._outgoing.values()), default=NEVER)

    # -------------------------------------------------------------------- waves

    def _is_active(self, key: tuple[int, int], origin: _Origin) -> bool:
        return any((*key, first) in self._active for first in origin.waves)

    def _origin(self, batch: Batch, link: int) -> _Origin | None:
        key = (batch.publisher, batch.incarnation)
        origin = self._origins.use(key, link)
        if origin is None:
            origin = _Origin()
            if not self._origins.add(key, origin, link, always=batch.publisher == self.me):
                self.dropped += 1
                self._out.append(
                    Note(Dropped("batch", 1, f"more than {ORIGINS_A_LINK} publishers by one link"))
                )
                return None
        if batch.floor > origin.floor:
            origin.floor = batch.floor
            while origin.firsts and origin.firsts[0] < origin.floor:
                first = heapq.heappop(origin.firsts)
                del origin.waves[first]
                self._active.pop((*key, first), None)
                self._unasked.pop((*key, first), None)
        return origin

    def _remember_unasked(self, id: BatchId, now: Micros) -> None:
        """For a while: a publisher whose receipt is complete without it never asks."""
        unasked = self._unasked
        unasked[id] = now
        while now - next(iter(unasked.values())) >= UNASKED_FOR or len(unasked) > UNASKED_MAX:
            del unasked[next(iter(unasked))]

    def _add(self, origin: _Origin, batch: Batch, now: Micros) -> Wave:
        wave = origin.waves[batch.first] = Wave(batch, now)
        heapq.heappush(origin.firsts, batch.first)
        return wave

    def _begin(
        self, id: BatchId, wave: Wave, batch: Batch, parent: Peer, want: Cover, now: Micros
    ) -> None:
        wave.round, wave.parent, wave.want, wave.done = batch.round, parent, want, False
        wave.cover, wave.matched, wave.waiting = Cover(self._ring.bits), (), {}
        self._active[id] = wave
        self._unasked.pop(id, None)
        if not wave.here:
            self._count_own(wave)
        onward = Batch(
            batch.topic, batch.publisher, batch.incarnation, batch.first, batch.count, batch.floor, batch.round,
            batch.hops + 1, batch.rows,
        )  # fmt: skip
        pieces = want.pieces()[:PIECES_MAX]
        whole = want.full
        for peer, table in self._routes.tables.items():
            if peer == parent:
                continue
            if table is not None:
                reach = table.cover if whole else table.cover.common(want)
                if reach.empty and not whole:
                    continue
                if not self._routes.passes(peer, batch):
                    for piece in reach.pieces():
                        wave.cover.add(piece)
                    continue
            if self._links.say(peer, Carry(onward, pieces), now):
                wave.waiting[peer] = None
        self._maybe_finish(id, wave, now)

    def _count_own(self, wave: Wave) -> None:
        arc = self._ring.arc
        if arc is not None:
            for piece in Cover(self._ring.bits, [arc.piece]).common(wave.want).pieces():
                wave.cover.add(
                    piece
                )  # perhaps without our own key: some keys may have been a host's that is no more
            if wave.want.has(arc.high):
                self._add_matched(wave, wave.taken)  # counted with its own key, so once

    @staticmethod
    def _add_matched(wave: Wave, matched: tuple[int, ...]) -> None:
        if any(matched):
            before = wave.matched or (0,) * wave.batch.count
            wave.matched = bounded_all(tuple(map(add, before, matched)))

    def _maybe_finish(self, id: BatchId, wave: Wave, now: Micros) -> None:
        if not wave.done and not wave.waiting and not wave.here:
            self._finish(id, wave, now)

    def _finish(self, id: BatchId, wave: Wave, now: Micros) -> None:
        wave.done = True
        wave.waiting = {}
        self._active.pop(id, None)
        if wave.parent == self.me:
            outgoing = self._outgoing.get(id)
            if outgoing is not None and wave.round in outgoing.rounds:
                outgoing.collect(wave.round, wave.cover, wave.matched)
                self._settle(id, outgoing, now)
        elif wave.parent is not None:
            self._answer(wave.parent, id, wave.round, wave.cover, wave.matched, now)

    def _answer(
        self, to: Peer, id: BatchId, round: int, cover: Cover, matched: tuple[int, ...], now: Micros
    ) -> None:
        pieces: Pieces = cover.pieces()[:PIECES_MAX]
        self._links.say(to, Reached(id, round, pieces, *parted(matched)), now)

    def _offer(self, peers: list[Peer], ids: list[BatchId], now: Micros) -> None:
        if ids:
            for peer in peers:
                self._links.say(peer, Offer(tuple(ids)), now)

    def _duplicate(self, sender: Peer, batch: Batch) -> None:
        self.duplicates += 1
        self._out.append(Note(Duplicate(hex_peer(sender), batch.count)))

    # ----------------------------------------------------------------- receipts

    def _settle(self, id: BatchId, outgoing: Outgoing, now: Micros) -> None:
        if outgoing.cover.full:
            del self._outgoing[id]
            self.finished.append(Finished(id[1], id[2], outgoing.total()))
        elif not outgoing.rounds:
            outgoing.at = min(outgoing.at, outgoing.pause(self._config, now))
            self.deadline = min(self.deadline, outgoing.at)

    def _resend(self, id: BatchId, outgoing: Outgoing, now: Micros) -> None:
        """Rounds whose time is up count for what they brought; send what is missing to those who own it now."""
        wave = self._active.get(id)
        if wave is not None and wave.parent == self.me:
            self._finish(id, wave, now)
            if id not in self._outgoing:
                return
        outgoing.expire(now)
        arc = self._ring.arc
        own = self._origins[id[:2]].waves.get(id[2])
        if (
            arc is not None
            and own is not None
            and not own.here
            and not outgoing.cover.has(arc.high)
        ):
            outgoing.add(arc.piece, own.taken)
        elif arc is not None and own is not None and not own.here:
            outgoing.cover.add(arc.piece)  # our keys have become more
        outgoing.at = Micros(now + self._config.round)
        self._settle(id, outgoing, now)
        if id not in self._outgoing:
            return
        for low, high in outgoing.missing()[: self._config.rounds_at_once - len(outgoing.rounds)]:
            key = (low + 1) % (1 << self._ring.bits)
            if (
                arc is None and low == high
            ):  # all of it: from our own key, so that not one host starts for all publishers
                key = self._ring.me.key
            waiting = self._lookups.setdefault(key, [])
            if id not in waiting:
                waiting.append(id)
            owner = self._ring.lookup(key, now)
            if owner is not None:
                self.found(key, owner, now)
        self.deadline = min(self.deadline, outgoing.at)

    def _resend_to(self, id: BatchId, outgoing: Outgoing, arc: Arc, now: Micros) -> None:
        want = outgoing.begin(arc, now, self._config)
        if want is None or arc.host.to == self.me:
            return
        self.resent += 1
        batch = outgoing.batch
        again = Batch(
            batch.topic,
            batch.publisher,
            batch.incarnation,
            batch.first,
            batch.count,
            batch.floor,
            outgoing.round,
            1,
            batch.rows,
        )
        self._links.send(arc.host, Carry(again, want), now)
