"""The delivery engine: batches go down the overlay, and reports come back up.

Every overlay with relays runs on it. A batch leaves its publisher with a region that is to be
answered for. A node that gets it takes from the region the part that it answers for already in this
round, hands the batch to its owner once, and sends parts of the rest on, as its router aims them.
When all parts have been answered for and the owner has taken the batch, the node reports to the
sender: a tile of the region, and the number of subscriptions that took each event there. At the
publisher the tiles cover the whole, and the receipt is complete.

The publisher, and no other node, asks again for the region that is missing. A part whose link
breaks is a hole: no tile covers it. When nothing is under way any more, the publisher begins
another round for exactly the missing region, after a pause, or at once when a link comes up.

    once       A batch is handed over once. Its id is remembered until the publisher's floor has
               passed it. A batch from below the floor is answered and not handed over (lives.py).
    counted    A node counts in one branch of a round: regions that it answers for do not overlap.
               A tile and its counts travel together, so a part that is asked for again has not
               been counted.
    bounded    The batches that one link brings have a limit. A batch over the limit is answered
               with an empty tile.
    patience   A peer that owes an answer says that it is busy; one that is silent is cut off
               (outstanding.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct, structs

from gossamer.machine import (
    MILLISECOND,
    NEVER,
    SECOND,
    Effect,
    LinkState,
    Message,
    Micros,
    Note,
    Peer,
    Send,
)
from gossamer.overlay.batch import (
    HOPS_MAX,
    WINDOW_MAX,
    Batch,
    Left,
    added,
    bounded_all,
)
from gossamer.overlay.delivery.lives import Life, Lives
from gossamer.overlay.delivery.outstanding import PATIENCE, Outstanding, Part
from gossamer.overlay.delivery.region import Cover, Id, Region, Router, Tile
from gossamer.overlay.proof import UNSIGNED, Proof
from gossamer.trace import Dropped, Duplicate, Rejected, hex_peer

BATCHES_A_LINK = 262_144
"""Batches that are remembered of those that one link has brought."""

BYTES_A_LINK = 256 << 20
"""Bytes of those among them that are under way."""

NOBODY = -1
"""The parent of a branch whose sender is gone."""

Counts = tuple[int, ...]


class Arrive(Protocol):
    """Hands a batch to the owner of an overlay, once.

    Returns how many subscriptions took each event: one number for each event, or a single one for
    all of them, or none if nobody took any. None instead of a tuple: ``took`` will say it.

    The rest is for batches that are split among nodes. ``numbers`` are the sequence numbers of its
    events. ``group`` is the group that it is meant for, and ``part`` the number of the part.
    ``done`` says of some events that they were taken before, and by how many subscriptions.
    """

    def __call__(
        self,
        batch: Batch,
        now: Micros,
        numbers: Sequence[int] | None = None,
        group: str = "",
        part: int | None = None,
        done: Mapping[int, int] | None = None,
    ) -> Counts | None: ...


LeftOut = Callable[[Left, Micros], None]
"""Events were completed without a peer that may be alive."""

Complete = Callable[[int, int, Counts], None]
"""A receipt is complete: incarnation, first sequence number, and the number of subscriptions that
took each event.
"""


class Pace(Struct, frozen=True, kw_only=True):
    again: Micros = Micros(500 * MILLISECOND)
    """The first pause before the publisher asks for the missing region. It doubles each time."""

    again_max: Micros = Micros(2 * SECOND)
    """A longer pause only delays recovery."""

    patience: Micros = PATIENCE
    """Longest silence of a peer that owes an answer."""


class Branch:
    """A region that this node answers for to one peer, in one round of a batch."""

    __slots__ = ("counts", "cover", "heard", "here", "key", "parent", "parts", "region", "wave")

    def __init__(self, wave: Wave, parent: int, region: Region, cover: Cover) -> None:
        self.wave, self.parent, self.region, self.cover = wave, parent, region, cover
        self.key: Hashable = None
        # The tile of this node itself. It is None if the node is not in the region, or has been
        # counted.
        self.here: Tile | None = None
        self.counts: Counts = ()
        self.parts: dict[tuple[Peer, Hashable], Part] = {}
        # Peers that have answered. A peer whose link breaks and comes back is not asked a second
        # time.
        self.heard: dict[Peer, None] = {}


class Wave:
    """A batch at this node."""

    __slots__ = (
        "again_at",
        "answered",
        "batch",
        "branches",
        "by",
        "count",
        "home",
        "id",
        "is_handed",
        "is_orphaned",
        "is_taken",
        "keys",
        "life",
        "missing",
        "numbers",
        "own",
        "past",
        "round",
        "rounds",
        "size",
        "takes",
        "total",
    )

    def __init__(self, batch: Batch, life: Life[Wave], by: int, keys: int) -> None:
        self.id: Id = (batch.publisher, batch.incarnation, batch.first)
        self.batch: Batch | None = batch
        """None while nothing is under way.

        Then only the facts that a late question needs are kept.
        """
        self.count, self.round, self.numbers = batch.count, batch.round, batch.numbers
        self.life = life
        # The number of keys of the once-only table that the batch has.
        self.keys = keys
        # The place of this node when it took the batch. It is the router's, where a node has
        # several places.
        self.home: Any = None
        # The link that brought it first, and its bytes.
        self.by, self.size = by, len(batch.rows)
        self.branches: list[Branch] = []
        # The region that this node answers for, or has answered for, in this round.
        self.answered: Region = None
        # A peer that waited for this node in this round is gone. The answer to that peer is
        # missing.
        self.is_orphaned = False
        # Whether this node is among those that take it, whether its owner has been handed it, and
        # whether the owner has taken it.
        self.takes = self.is_handed = self.is_taken = False
        # Events that were taken before, in other company, and the number of subscriptions that took
        # them.
        self.past: dict[int, int] | None = None
        # The number of the owner's subscriptions that took each event.
        self.own: Counts = ()
        # For a batch of this node's own: the region that no tile covers yet, and the sum of the
        # tiles' counts.
        self.missing: Region = None
        self.total: Counts = ()
        self.rounds = 0
        self.again_at = NEVER

    @property
    def events(self) -> Sequence[int]:
        """The sequence numbers."""
        return self.numbers or range(self.id[2], self.id[2] + self.count)


class Engine:
    def __init__(
        self,
        me: Peer,
        router: Router,
        arrive: Arrive,
        complete: Complete,
        out: list[Effect],
        pace: Pace,
        key: Callable[[Message], Hashable],
    ) -> None:
        """``key`` gives the part that a message is about: its id, its round, and the name of its
        region.
        """
        self.me, self.pace = me, pace
        # Signs this node's own batches; the owner sets it where there are keys. Batches of other
        # nodes are proved before they come here (node/gate.py).
        self.proof: Proof = UNSIGNED
        self._router, self._arrive, self._complete, self._out = router, arrive, complete, out
        self.lives: Lives[Wave] = Lives(me, self._forgotten)
        self.outstanding = Outstanding(out, key, self._busy, patience=pace.patience)
        self._active: dict[Id, Wave] = {}
        # Batches of this node's own that wait for another round.
        self._incomplete: dict[Id, Wave] = {}
        # No batch of this node's own waits for an earlier time.
        self.again_at: Micros = NEVER
        self._branches: dict[Hashable, Branch] = {}
        self.batches_by: Counter[int] = Counter()
        self.bytes_by: Counter[int] = Counter()
        # Rounds of this node's own batches beyond the first.
        self.asked_again = 0

    # ------------------------------------------------------------------ the tables

    @property
    def deadline(self) -> Micros:
        return min(self.again_at, self.outstanding.deadline)

    @property
    def remembered(self) -> int:
        """Batches in the once-only table."""
        return self.lives.remembered

    def wave(self, id: Id) -> Wave | None:
        """The batch, if it is remembered."""
        life = self.lives.get(id[0], id[1])
        return life.batches.get((id[2],)) if life is not None else None

    def under_way(self) -> list[Id]:
        """Batches that this node still has to report, or to complete."""
        return list(self._active)

    # --------------------------------------------------------------------- the origin

    def publish(self, batch: Batch, now: Micros, region: Region = None) -> None:
        """``region`` is the region where the batch goes, if that is not everywhere."""
        assert batch.publisher == self.me
        life = self.lives.use(self.me, batch.incarnation, batch.floor, self.me)
        assert life is not None, "an own publication needs no room of others"
        assert (batch.first,) not in life.batches
        batch = batch.signed(self.proof)
        wave = self._add(life, batch, self.me, now)
        wave.missing = self._router.everything if region is None else region
        self._begin(wave, batch, self.me, wave.missing, now)
        self._go_on(wave, batch, now)

    def _another_round(self, wave: Wave, now: Micros) -> None:
        """Ask for exactly the missing region."""
        self._incomplete.pop(wave.id, None)
        batch = wave.batch
        assert batch is not None
        wave.rounds += 1
        self.asked_again += 1
        # The floor is the one of today. Otherwise a batch that waits for long would leave the
        # window.
        floor = min(batch.first, wave.life.floor)
        again = structs.replace(
            batch, floor=floor, round=wave.round + 1, hops=0, signature=b""
        ).signed(self.proof)
        self._new_round(wave, again, now)
        self._begin(wave, again, self.me, wave.missing, now)
        self._go_on(wave, again, now)

    def _collect(self, wave: Wave, branch: Branch, tile: Tile, now: Micros) -> None:
        """A round of a batch of this node's own is over."""
        router, before = self._router, wave.missing
        left = router.minus(before, tile)
        if left != before and branch.counts:
            wave.total = (
                bounded_all(added(wave.total, branch.counts)) if wave.total else branch.counts
            )
        wave.missing = left
        if not left:
            self._over(wave)
            self._complete(wave.id[1], wave.id[2], wave.total or (0,) * wave.count)
            return
        pause = min(self.pace.again << min(wave.rounds, 16), self.pace.again_max)
        wave.again_at = Micros(now + pause)
        self._incomplete[wave.id] = wave
        self.again_at = min(self.again_at, wave.again_at)

    # ------------------------------------------------------------------------- inputs

    def carry(self, sender: Peer, batch: Batch, region: Region, now: Micros) -> None:
        """A batch has come, for this region."""
        router = self._router
        if batch.floor > batch.first or batch.first + batch.count - batch.floor > WINDOW_MAX:
            self.reject(sender, "batch outside its publisher's window")
            return
        if batch.hops >= HOPS_MAX:
            self.reject(sender, "batch has gone too far")
            return
        if batch.publisher == self.me:
            wave = self.wave((batch.publisher, batch.incarnation, batch.first))
            if (
                not router.splits
                or wave is None
                or (wave.round, wave.numbers, wave.count)
                != (batch.round, batch.numbers, batch.count)
            ):
                # A batch of this node's own comes back by another way. If it is of an earlier life,
                # the wave need not pass here.
                self._repeated(sender, batch, region, router.elsewhere(region))
                return
        link = self.outstanding.links.get(sender)
        if link is None:
            return
        life = self.lives.use(batch.publisher, batch.incarnation, batch.floor, sender)
        if life is None:
            self._refuse(
                sender,
                batch,
                region,
                "more publishers with events under way than one link may bring",
            )
            return
        wave = life.batches.get((batch.first,))
        past: dict[int, int] | None = None
        if router.splits and (
            wave.numbers != batch.numbers if wave is not None else batch.count > 1
        ):
            answer, past = self._in_other_company(life, batch)
            if answer is not None:
                self._repeated(sender, batch, region, answer(region))
                return
            wave = None
        if wave is None:
            if batch.first < life.floor:
                self._repeated(sender, batch, region, router.elsewhere(region))
            elif (
                self.batches_by[sender] >= BATCHES_A_LINK
                or self.bytes_by[sender] + len(batch.rows) > BYTES_A_LINK
            ):
                self._refuse(
                    sender, batch, region, "more batches under way than one link may bring"
                )
            else:
                wave = self._add(life, batch, sender, now)
                wave.past = past
                self._begin(wave, batch, sender, region, now)
                self._go_on(wave, batch, now)
            return
        if batch.count != wave.count:
            self.reject(sender, "batch with another number of events than before")
            return
        if batch.round < wave.round:
            self._repeated(sender, batch, region, router.nothing(region))
            return
        if batch.round > wave.round:
            self._new_round(wave, batch, now)
        remaining = region if wave.answered is None else router.minus(region, wave.answered)
        if remaining:
            if (*wave.id, batch.round, router.name(region), sender) in self._branches:
                self.reject(sender, "a part with the name of another part")
                return
            self._out.append(Note(Duplicate(hex_peer(sender), batch.count)))
            self._begin(wave, batch, sender, region, now, remaining)
            self._go_on(wave, batch, now)
            return
        answer = router.nothing if wave.is_orphaned else router.elsewhere
        self._repeated(sender, batch, region, answer(region))

    def decline(self, sender: Peer, batch: Batch, region: Region) -> None:
        """The node does not take this batch. The publisher asks again for the missing region."""
        self._answer_at_once(sender, batch, region, self._router.nothing(region))

    def report(self, sender: Peer, key: Hashable, tile: Tile, counts: Counts, now: Micros) -> None:
        """A peer has answered for a part. ``counts`` is empty if no subscription took anything."""
        part = self.outstanding.find(sender, key)
        if part is None:
            # Late or repeated: it was counted, or it is asked for again.
            return
        branch: Branch = part.of
        if counts and len(counts) != branch.wave.count:
            self.reject(sender, "report for another number of events")
            return
        self.outstanding.close(part)
        del branch.parts[part.peer, part.key]
        branch.heard[sender] = None
        branch.cover.add(tile, part.region)
        self._count(branch, counts)
        self._settle(branch, now)

    def busy(self, sender: Peer, key: Hashable, now: Micros) -> None:
        self.outstanding.heard(sender, key, now)

    def took(self, id: Id, counts: Counts, now: Micros) -> None:
        """The owner has taken the batch.

        ``counts`` says how many of its subscriptions took each event.
        """
        wave = self.wave(id)
        if wave is not None and not wave.is_taken:
            self._taken(wave, counts, now)

    def refused(self, peer: Peer, message: Message) -> None:
        self.outstanding.refused(peer, message)

    def link(self, peer: Peer, state: LinkState, now: Micros) -> None:
        lost = self.outstanding.link(peer, state, now)
        if state is LinkState.UP:
            self._came(peer, now)
        elif state is LinkState.DOWN or state is LinkState.CUT:
            self.lives.closed(peer)
            for branch in list(self._branches.values()):
                if branch.parent == peer:
                    # A parent that came back could be waited for by the peers that it waits for.
                    branch.parent, branch.wave.is_orphaned = NOBODY, True
                    self.outstanding.answered(branch.key)
            self._lose(lost, for_cause=state is LinkState.CUT, now=now)

    def failed(self, peer: Peer, now: Micros) -> None:
        """There is no link to this peer, and none can be had. No part waits for it any more."""
        self._lose(self.outstanding.give_up(peer), for_cause=False, now=now)

    def hold(self, peer: Peer, now: Micros) -> None:
        """There is a link, and nothing may go over it before ``link`` says that it is up."""
        self.outstanding.hold(peer)
        self._came(peer, now)

    def lacks(self, publisher: int, incarnation: int, first: int, last: int) -> bool:
        """Whether some of these events may not have come here."""
        life = self.lives.get(publisher, incarnation)
        while first <= last:
            wave = life.batches.get((first,)) if life is not None else None
            if wave is None:
                return True
            first += wave.count
        return False

    def wake(self, now: Micros) -> None:
        self.outstanding.woken(self.deadline, now)
        if self.outstanding.deadline <= now:
            self._lose(self.outstanding.wake(now), for_cause=True, now=now)
        if self.again_at <= now:
            for wave in list(self._incomplete.values()):
                if wave.again_at <= now:
                    self._another_round(wave, now)
            self.again_at = min((w.again_at for w in self._incomplete.values()), default=NEVER)

    def again(self, now: Micros) -> None:
        """Begin another round of each incomplete batch now, because the router knows other ways."""
        for wave in list(self._incomplete.values()):
            self._another_round(wave, now)

    def _came(self, peer: Peer, now: Micros) -> None:
        self.again(now)
        for branch in list(self._branches.values()):
            batch = branch.wave.batch
            assert batch is not None
            if peer == branch.parent or peer in branch.heard:
                continue
            region = self._router.joins(batch, branch.region, peer)
            if region is not None and not any(part.peer == peer for part in branch.parts.values()):
                self._send(branch, [(peer, region)], now)

    def _lose(self, parts: list[Part], *, for_cause: bool, now: Micros) -> None:
        for part in parts:
            branch: Branch = part.of
            self.outstanding.close(part)
            if branch.parts.pop((part.peer, part.key), None) is None:
                continue
            instead: Tile | None = None
            if for_cause and branch.wave.batch is not None:
                instead = self._router.leaves_out(branch.wave.batch, part.peer, now)
            if instead is None:
                branch.cover.lose(part.region)
            else:
                branch.cover.add(instead, part.region)
            self._settle(branch, now)

    # ----------------------------------------------------------------------- branches

    def _begin(
        self,
        wave: Wave,
        batch: Batch,
        parent: int,
        asked: Region,
        now: Micros,
        remaining: Region | None = None,
    ) -> Branch:
        """Answer for a region to a peer. ``remaining`` is the rest of it for this branch."""
        router, region = self._router, asked if remaining is None else remaining
        if wave.batch is None:
            wave.life.under_way += 1
            self.bytes_by[wave.by] += wave.size
        wave.batch, wave.again_at = batch, NEVER
        wave.answered = region if wave.answered is None else router.plus(wave.answered, region)
        self._active[wave.id] = wave
        branch = Branch(wave, parent, asked, router.cover(region))
        branch.key = (*wave.id, batch.round, router.name(asked), parent)
        wave.branches.append(branch)
        self._branches[branch.key] = branch
        aim = router.aim(batch, region, Peer(parent) if parent != self.me else None, now)
        branch.here = aim.here
        wave.takes = wave.takes or aim.takes
        if aim.known is not None:
            branch.cover.add(aim.known, region)
        if wave.is_taken:
            self._count_own(branch)
        if parent != self.me:
            self.outstanding.owe(branch.key, Peer(parent), now)
        if aim.parts:
            self._send(branch, aim.parts, now)
        return branch

    def _send(self, branch: Branch, parts: Sequence[tuple[Peer, Region]], now: Micros) -> None:
        router, wave = self._router, branch.wave
        batch = wave.batch
        assert batch is not None
        onward = structs.replace(batch, hops=batch.hops + 1)
        alike: list[Part] = []
        for peer, region in parts:
            if alike and alike[0].region is not region:
                self.outstanding.send_alike(alike, now)
                alike = []
            message = alike[0].message if alike else router.carry(onward, region)
            key = (*wave.id, batch.round, router.name(region))
            part = branch.parts[peer, key] = Part(peer, key, message, region, branch)
            alike.append(part)
        self.outstanding.send_alike(alike, now)

    def _go_on(self, wave: Wave, batch: Batch, now: Micros) -> None:
        """Hand the batch over, once, if this node takes it, and report branches that wait for no
        peer.
        """
        if wave.takes and not wave.is_handed:
            wave.is_handed = True
            if self._router.splits:
                counts = self._arrive(batch, now, batch.numbers or None, done=wave.past)
            else:
                counts = self._arrive(batch, now)
            if counts is not None:
                self._taken(wave, counts, now)
                return
        for branch in list(wave.branches):
            self._settle(branch, now)

    def _taken(self, wave: Wave, counts: Counts, now: Micros) -> None:
        if len(counts) == 1 and wave.count > 1:
            counts = counts * wave.count
        if wave.past is not None:
            before = tuple([wave.past.get(number, 0) for number in wave.events])
            counts = bounded_all(added(counts, before)) if counts else before
        wave.is_taken, wave.own = True, counts
        for branch in list(wave.branches):
            self._count_own(branch)
            self._settle(branch, now)

    def _count_own(self, branch: Branch) -> None:
        """The counts that this node adds to a branch whose region it is in."""
        if branch.here is not None:
            branch.cover.add(branch.here, branch.region)
            branch.here = None
            self._count(branch, branch.wave.own)

    @staticmethod
    def _count(branch: Branch, counts: Counts) -> None:
        if counts:
            branch.counts = bounded_all(added(branch.counts, counts)) if branch.counts else counts

    def _settle(self, branch: Branch, now: Micros) -> None:
        """Report the branch if nothing is missing at this node any more."""
        wave = branch.wave
        if branch.parts or branch.here is not None or branch not in wave.branches:
            return
        self._end(branch)
        tile = branch.cover.tile(now)
        if branch.parent == self.me:
            self._collect(wave, branch, tile, now)
            return
        self._answer(branch, tile)
        if not wave.branches and not wave.missing:
            self._over(wave)

    def _end(self, branch: Branch) -> None:
        branch.wave.branches.remove(branch)
        del self._branches[branch.key]
        self.outstanding.answered(branch.key)

    def _answer(self, branch: Branch, tile: Tile) -> None:
        if branch.parent != NOBODY:
            wave = branch.wave
            self._say(
                Peer(branch.parent),
                self._router.report(wave.id, wave.round, branch.region, tile, branch.counts),
            )

    def _new_round(self, wave: Wave, batch: Batch, now: Micros) -> None:
        self._break_off(wave, now)
        wave.round, wave.answered, wave.is_orphaned = batch.round, None, False
        if wave.batch is not None:
            wave.batch = batch

    def _break_off(self, wave: Wave, now: Micros) -> None:
        """The parts under way belong to an earlier round.

        A peer that waits for one gets the answers that there are.
        """
        for branch in list(wave.branches):
            for part in branch.parts.values():
                self.outstanding.close(part)
                branch.cover.lose(part.region)
            if branch.here is not None:
                branch.cover.lose(branch.here)
            self._end(branch)
            if branch.parent != self.me:
                self._answer(branch, branch.cover.tile(now))

    def _over(self, wave: Wave) -> None:
        """Nothing is under way any more."""
        if wave.batch is None:
            return
        if self._active.get(wave.id) is wave:
            del self._active[wave.id]
        self._incomplete.pop(wave.id, None)
        wave.batch = None
        wave.life.under_way -= 1
        self.bytes_by[wave.by] -= wave.size

    # ------------------------------------------------------------------------- tables

    def _add(self, life: Life[Wave], batch: Batch, by: int, now: Micros) -> Wave:
        if self._router.splits:
            wave = Wave(batch, life, by, batch.count)
            for number in batch.numbers or range(batch.first, batch.first + batch.count):
                other = life.batches.get((number,))
                if other is None:
                    life.add((number,), wave)
                else:
                    self._break_off(other, now)
                    self._over(other)
                    life.batches[number,] = wave
                    self._forgotten(other)
        else:
            wave = life.add((batch.first,), Wave(batch, life, by, 1))
        self.batches_by[by] += wave.keys
        life.under_way += 1
        self.bytes_by[by] += wave.size
        return wave

    def _in_other_company(
        self, life: Life[Wave], batch: Batch
    ) -> tuple[Callable[[Region], Tile] | None, dict[int, int] | None]:
        """The answer for events that come together for the first time, and earlier counts.

        A publisher that starts again may split a batch in another way than it did in its earlier
        life. If an answer is returned, the batch gets it and is not taken now. The counts are of
        the subscriptions that took each event before.
        """
        past: dict[int, int] = {}
        for number in batch.events:
            other = life.batches.get((number,))
            if other is None:
                continue
            if other.round > batch.round or (other.is_handed and not other.is_taken):
                return self._router.nothing, None
            if other.is_handed:
                past[number] = other.own[other.events.index(number)] if other.own else 0
        return None, past or None

    def _forgotten(self, wave: Wave) -> None:
        """A key of the batch has left the table."""
        wave.keys -= 1
        if not wave.keys:
            for branch in list(wave.branches):
                for part in branch.parts.values():
                    self.outstanding.close(part)
                self._end(branch)
            if wave.batch is not None:
                self._over(wave)
        self.batches_by[wave.by] -= 1
        if not self.batches_by[wave.by]:
            del self.batches_by[wave.by]
            self.bytes_by.pop(wave.by, None)

    # ----------------------------------------------------------------------- messages

    def _busy(self, key: Hashable) -> Message:
        branch = self._branches[key]
        return self._router.busy(branch.wave.id, branch.wave.round, branch.region)

    def _repeated(self, sender: Peer, batch: Batch, region: Region, tile: Tile) -> None:
        self._out.append(Note(Duplicate(hex_peer(sender), batch.count)))
        self._answer_at_once(sender, batch, region, tile)

    def _refuse(self, sender: Peer, batch: Batch, region: Region, reason: str) -> None:
        """There is no room for the batch. The publisher will ask again."""
        self._out.append(Note(Dropped("batch", 1, reason)))
        self._answer_at_once(sender, batch, region, self._router.nothing(region))

    def _answer_at_once(self, sender: Peer, batch: Batch, region: Region, tile: Tile) -> None:
        id = (batch.publisher, batch.incarnation, batch.first)
        self._say(sender, self._router.report(id, batch.round, region, tile, ()))

    def _say(self, peer: Peer, message: Message) -> None:
        self._out.append(Send((peer,), message))

    def reject(self, sender: Peer, reason: str) -> None:
        self._out.append(Note(Rejected(hex_peer(sender), reason)))
