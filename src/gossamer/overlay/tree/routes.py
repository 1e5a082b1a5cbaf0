"""Routes (section 2.1): the keys behind each link, and filters that cover their owners' wishes.

A host tells each neighbour which keys and filters are behind itself, as seen from there: its own,
and those that its other neighbours have told it. Covered filters are left out; when the covering
filter goes, the rest is told anew. Keys and filters travel together, always: every host whose keys
are in the pieces has all its subscriptions covered by the wishes. So a host that does not pass a
batch on may answer for the keys behind a link (router.py), however old the announcement is: a host
that has moved elsewhere is not in it with less than it wanted.

A neighbour that has told nothing yet is sent everything. Keys and wishes that are news are told at
once, or a moment after those before them. A loss waits for ``settle`` and is told only if it is
still one: the keys that a join or a leave moves about are whole again by then, and beyond the
reconfiguration area no host hears of it.

A host and its parent mean opposite sides of the tree. While the two do not agree which of them is
above the other, they leave each other's announcements aside; a host that turns tells again.

``Laid`` comes back when everybody whom an announcement concerns knows it. A subscription is laid
when it has come back from every neighbour.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from gossamer.machine import NEVER, Micros, Peer
from gossamer.overlay.batch import Batch
from gossamer.overlay.tree.arcs import Keys
from gossamer.overlay.tree.config import TreeConfig
from gossamer.overlay.tree.content import Content
from gossamer.overlay.tree.links import Links
from gossamer.overlay.tree.messages import PIECES_MAX, Announce, Laid, Pieces, Wish
from gossamer.overlay.tree.ring import Ring

EARLY_MAX = 256


class Table(Struct, frozen=True):
    """The announcement of a neighbour."""

    cover: Keys
    everything: bool
    wishes: tuple[Wish, ...]
    topics: dict[str, tuple[str, ...]]


class _Told:
    """The last announcement to a neighbour."""

    __slots__ = ("again", "at", "due", "everything", "laid", "pieces", "version", "wishes")

    def __init__(self) -> None:
        self.version = self.laid = 0
        # The neighbour is to tell this host, too.
        self.again = False
        self.pieces: Pieces | None = None
        self.everything = False
        self.wishes: tuple[Wish, ...] = ()
        # When a change that can wait is told.
        self.due = NEVER
        # When something was told last.
        self.at = Micros(0)


class Routes:
    def __init__(self, ring: Ring, config: TreeConfig, links: Links, content: Content) -> None:
        self._ring, self._config, self._links, self._content = ring, config, links, content
        # Whether this host's neighbours are known, and know this host.
        self.agreed: Callable[[], bool] = lambda: True
        # By subscription, as others are told.
        self.own: dict[int, Wish] = {}
        # By active neighbour; None: it has not told.
        self.tables: dict[Peer, Table | None] = {}
        # Subscriptions that everybody knows, for the owner to take.
        self.laid: list[int] = []
        self.deadline = NEVER
        self.announced = 0
        # Announcements of hosts that do not agree with this one which of the two is above the
        # other. They tell again when they do.
        self.turning = 0
        # Announcements of this host's own keys as those of others.
        self.disputed = 0
        self._told: dict[Peer, _Told] = {}
        self._parent: Peer | None = None
        # Links that are about to go.
        self._fading: list[Peer] = []
        # From hosts that take this one for a neighbour before it does so itself.
        self._early: dict[Peer, Announce] = {}
        # Neighbours that wait for Laid, and for which version.
        self._owed: dict[Peer, int] = {}
        self._barriers: dict[int, dict[Peer, int]] = {}
        # ``settled`` was called at a moment when it could do nothing, so the owner must call it
        # again. Without this mark an answer that this host owes might never be sent.
        self.is_put_off = False

    # ----------------------------------------------------------------- commands

    def subscribe(self, number: int, wish: Wish, now: Micros) -> None:
        topic, text = wish
        self.own[number] = (topic, self._content.weaken(topic, text))
        self.update(now, at_once=True)
        self._barriers[number] = {
            peer: told.version for peer, told in self._told.items() if told.laid < told.version
        }
        self.settled(now)

    def unsubscribe(self, number: int, now: Micros) -> None:
        del self.own[number]
        self._barriers.pop(number, None)
        if number in self.laid:
            # It may be laid again.
            self.laid.remove(number)
        self.update(now)

    def waits_for(self, number: int) -> list[Peer]:
        """The neighbours that have not confirmed this subscription."""
        return sorted(self._barriers.get(number, ()))

    # ------------------------------------------------------------------- inputs

    def edges(
        self, active: list[Peer], fading: list[Peer], parent: Peer | None, now: Micros
    ) -> tuple[list[Peer], list[Peer]]:
        """Bring the tables in line with the links in use.

        Returns the peers that came and that went.

        A fading link carries batches and no announcements: together with those that replace it, it
        closes a circle. So its announcement grows old, and answers for no key any more: all
        publications go over it. A parent that has become a child, or a child a parent, had the rest
        of the tree behind it and has it no longer, or the other way round: its announcement would
        be told on as if it still held. It is asked to tell again.
        """
        turned = parent != self._parent
        if turned:
            for peer in (parent, self._parent):
                if (
                    peer is not None
                    and peer in self.tables
                    and peer in active
                    and peer not in fading
                ):
                    self.tables[peer] = None
                    self._told[peer] = _Told()
                    self._told[peer].again = True
            self._parent = parent
        came = [peer for peer in active if peer not in self.tables]
        went = [peer for peer in self.tables if peer not in active]
        for peer in went:
            del self.tables[peer]
            self._told.pop(peer)
            self._owed.pop(peer, None)
        for peer in came:
            self.tables[peer] = None
            self._told[peer] = _Told()
        if came or went or turned or fading != self._fading:
            for peer in fading:
                self.tables[peer] = None
            # These links are not to go after all.
            stay = [peer for peer in self._fading if peer in self.tables and peer not in fading]
            for peer in stay:
                self._told[peer] = _Told()
                self._told[peer].again = True
            self._fading = fading
            self.update(now)
            # Subscriptions that are being laid are news to these.
            for waits in self._barriers.values():
                waits |= {
                    peer: self._told[peer].version for peer in (*came, *stay) if peer not in fading
                }
            self.settled(now)
        for peer in came:
            if (early := self._early.pop(peer, None)) is not None:
                self.announce(peer, early, now)
        return came, went

    def announce(self, sender: Peer, message: Announce, now: Micros) -> None:
        if sender not in self.tables:
            if len(self._early) < EARLY_MAX:
                # It has agreed before this host.
                self._early[sender] = message
            return
        if any(low >> self._ring.bits or high >> self._ring.bits for low, high in message.pieces):
            self._links.reject(sender, "keys that do not exist")
            return
        if message.again:
            self._told[sender] = _Told()
        if message.below == (sender == self._parent):
            # One of the two is behind: the announcement would be taken for the other side of the
            # tree.
            self.turning += 1
            self.update(now)
            return
        cover = Keys(self._ring.bits, message.pieces)
        arc = self._ring.arc
        if arc is not None and cover.common(Keys(self._ring.bits, [arc.piece])):
            # These are this host's: the successor of a newcomer may not know yet, and a liar may
            # not care.
            self.disputed += 1
        topics: dict[str, tuple[str, ...]] = {}
        for topic, text in message.wishes:
            topics[topic] = (*topics.get(topic, ()), text)
        if sender not in self._fading:
            self.tables[sender] = Table(cover, message.everything, message.wishes, topics)
            self.update(now)
        self._owed[sender] = message.version
        self.settled(now)

    def renew(self, peers: list[Peer], now: Micros) -> None:
        """These peers have lost the announcements of this host, which tells them again."""
        for peer in peers:
            if peer in self._told:
                self._told[peer] = _Told()
        self.update(now)

    def forget(self, peer: Peer) -> None:
        """The link is down."""
        self._early.pop(peer, None)

    def on_laid(self, sender: Peer, message: Laid, now: Micros) -> None:
        told = self._told.get(sender)
        if told is None:
            return
        if message.version > told.version:
            self._links.reject(sender, "an answer to no announcement")
            return
        told.laid = max(told.laid, message.version)
        self.settled(now)

    def wake(self, now: Micros) -> None:
        if self.deadline <= now:
            for peer, told in self._told.items():
                if told.due <= now:
                    self._tell(peer, told, now)
            self.deadline = min((told.due for told in self._told.values()), default=NEVER)
            self.settled(now)

    @property
    def quiet(self) -> bool:
        """All hosts whom they concern know this host's announcements."""
        if self._fading or not self.agreed():
            return False
        return all(told.due == NEVER and told.laid == told.version for told in self._told.values())

    def whole(self, peers: list[Peer]) -> bool:
        """Whether these neighbours have told, and every key is here or behind one of them."""
        arc = self._ring.arc
        tables = [self.tables.get(peer) for peer in peers]
        if arc is None or any(table is None for table in tables):
            return False
        return Keys(
            self._ring.bits,
            [arc.piece, *(p for table in tables if table for p in table.cover.pieces())],
        ).full

    # ------------------------------------------------------------------ matching

    def passes(self, peer: Peer, batch: Batch) -> bool:
        """Whether somebody behind this neighbour may want the batch."""
        table = self.tables.get(peer)
        if table is None or table.everything:
            return True
        return any(self._content.passes(batch, text) for text in table.topics.get(batch.topic, ()))

    # -------------------------------------------------------------- announcements

    def update(self, now: Micros, *, at_once: bool = False) -> None:
        """Tell each neighbour the changes behind this host.

        Gains are told at once, or a moment after the last ones; losses are told later.
        """
        for peer, told in self._told.items():
            if peer in self._fading:
                told.due = NEVER
                continue
            pieces, everything, wishes = self._behind(peer)
            if (pieces, everything, wishes) == (told.pieces, told.everything, told.wishes):
                told.due = NEVER
            elif told.pieces is None or self._gains(told, pieces, everything, wishes):
                if at_once or told.pieces is None or now >= told.at + self._config.pace:
                    self._tell(peer, told, now)
                else:
                    self._tell_at(told, Micros(told.at + self._config.pace))
            elif told.due == NEVER:
                self._tell_at(told, Micros(now + self._config.settle))

    def _tell_at(self, told: _Told, at: Micros) -> None:
        told.due = min(told.due, at)
        self.deadline = min(self.deadline, told.due)

    def _gains(
        self, told: _Told, pieces: Pieces, everything: bool, wishes: tuple[Wish, ...]
    ) -> bool:
        """Whether the neighbour has not been told of some keys or wishes behind this host."""
        bits = self._ring.bits
        if pieces != told.pieces and not Keys(bits, told.pieces or ()).holds(Keys(bits, pieces)):
            return True
        if told.everything:
            return False
        covers = self._content.covers
        return everything or any(
            not any(topic == known and covers(topic, outer, text) for known, outer in told.wishes)
            for topic, text in wishes
        )

    def _behind(self, peer: Peer) -> tuple[Pieces, bool, tuple[Wish, ...]]:
        """The keys and wishes on this host's side of the link to this neighbour."""
        arc = self._ring.arc
        cover = Keys(self._ring.bits, [arc.piece] if arc is not None else [])
        everything = False
        wishes = dict.fromkeys(self.own.values())
        for other, table in self.tables.items():
            if other != peer and table is not None and other not in self._fading:
                for piece in table.cover.pieces():
                    cover.add(piece)
                everything = everything or table.everything
                wishes |= dict.fromkeys(table.wishes)
        kept = self.least(tuple(wishes)) if not everything else ()
        length = sum(len(text) for _, text in kept)
        if len(kept) > self._config.wishes_max or length > self._config.wishes_length_max:
            everything, kept = True, ()
        return cover.pieces()[:PIECES_MAX], everything, kept

    def least(self, wishes: tuple[Wish, ...]) -> tuple[Wish, ...]:
        """Without those that another covers; too many on one topic are the whole topic. Sorted."""
        covers = self._content.covers
        topics: dict[str, list[str]] = {}
        for topic, text in wishes:
            topics.setdefault(topic, []).append(text)
        kept: list[Wish] = []
        for topic, texts in topics.items():
            if "" in texts or len(texts) > self._config.filters_max:
                kept.append((topic, ""))
                continue
            best: list[str] = []
            for text in sorted(texts, key=lambda each: (len(each), each)):
                if not any(covers(topic, outer, text) for outer in best):
                    best = [*(each for each in best if not covers(topic, text, each)), text]
            kept += [(topic, text) for text in best]
        return tuple(sorted(kept))

    def _tell(self, peer: Peer, told: _Told, now: Micros) -> None:
        pieces, everything, wishes = self._behind(peer)
        told.pieces, told.everything, told.wishes, told.due, told.at = (
            pieces,
            everything,
            wishes,
            NEVER,
            now,
        )
        self.announced += 1
        # Never one that was used before: a late answer means nothing else.
        told.version = self.announced
        self._links.say(
            peer,
            Announce(told.version, pieces, everything, told.again, peer == self._parent, wishes),
            now,
        )
        told.again = False

    def settled(self, now: Micros) -> None:
        """Answer announcements that all hosts whom they concern know, and end barriers.

        Not while a link fades, or while a link that is to be in use is not: the hosts behind the
        first have old news, and may not be behind the links that replace it. Then the call is put
        off (``is_put_off``), and the owner calls again.
        """
        self.is_put_off = bool(self._fading) or not self.agreed()
        if self.is_put_off:
            return
        open_at = [
            peer
            for peer, told in self._told.items()
            if told.due != NEVER or told.laid < told.version
        ]
        for peer, version in list(self._owed.items()):
            if all(other == peer for other in open_at) and self._told[peer].due == NEVER:
                del self._owed[peer]
                self._links.say(peer, Laid(version), now)
        for number, waits in list(self._barriers.items()):
            for peer, version in list(waits.items()):
                told = self._told.get(peer)
                if told is None or told.laid >= version:
                    del waits[peer]
            if not waits:
                del self._barriers[number]
                self.laid.append(number)
