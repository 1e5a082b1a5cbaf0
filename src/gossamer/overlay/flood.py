"""Flood: forward to all, deduplicate. The baseline that every plane is compared with.

A batch of events runs through the fabric as a wave with feedback. The node that publishes it sends it over all its links;
a node that gets it for the first time takes the sender as its parent, hands the batch to its owner, and sends it over its
other links; a node that has it already answers at once. When all that a node waits for have reported, and its owner has taken
the batch, it reports to its parent how many subscriptions took each event. So reports tile the fabric, every node counts
once, and the publisher's receipt is exact.

Messages:
    Batch    events of one publisher and one topic, with consecutive sequence numbers; forwarded as they came
    Report   how many subscriptions took each event of a batch, in the part of the fabric behind the sender
    Busy     the sender has the batch and still waits for others: be patient
    Inquiry  what has become of a batch? It travels behind the batch
    Lost     the batch was not there when the inquiry came
    Leave    the sender goes for good: nobody need wait for it, but for its neighbours, which look for other links

Losses: a node asks those that have not reported, at growing intervals. One that has reported says so again, and one that lacks
the batch is sent it again. So what waits in the queue of a slow link is not sent twice.

Broken links: what was behind the link may not have been reached, so the report is not ``whole``, and the publisher
starts another round. Nodes that have handed the batch over already do not do so again; they report what they counted.
Flood knows neighbours, not members: a neighbour whose link broke without a ``Leave`` is waited for (``grace``), and only then
the fabric goes on without it, unless it is still suspected to be dead (``doubts``): then the verdict decides. A partition that
heals within that time loses nothing.

A neighbour that neither reports nor says that it is busy (``patience``) is to be cut off, unless bytes move on its link. What is
completed without one that was cut off is in ``left``, for the owner to tell it.

Invariant: a batch is handed to the owner at most once, because an origin's table of batches is pruned only below the floor,
the lowest sequence number that its publisher has no complete receipt for, and nothing below the floor is handed over.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable

from msgspec import Struct

from gossamer.machine import (
    MILLISECOND,
    NEVER,
    SECOND,
    Deliver,
    Effect,
    LinkState,
    Micros,
    Note,
    Peer,
    Send,
    Token,
)
from gossamer.overlay.batch import (
    HOPS_MAX,
    NEIGHBOURS_MAX,
    WINDOW_MAX,
    Batch,
    Busy,
    Inquiry,
    Leave,
    Left,
    Lost,
    Report,
    bounded_all,
    joined,
    parted,
)
from gossamer.overlay.shares import Shares
from gossamer.trace import Dropped, Duplicate, Rejected, hex_peer

ORIGINS_MAX = 65_536  # publishers (with incarnation) remembered; the longest idle, with nothing under way, goes first
ORIGINS_A_LINK = 8_192  # of them, brought by one link: who invents publishers makes room among its own inventions
WAVES_A_LINK = 262_144  # batches remembered
BYTES_A_LINK = 256 << 20  # in batches under way


class Finished(Struct, frozen=True):
    """A receipt: every part of the fabric has reported."""

    incarnation: int
    first: int
    matched: tuple[int, ...]


Key = tuple[int, int, int]  # publisher, incarnation, first
_NOBODY = -2  # the parent of a wave whose parent's link broke; -1 is the publisher's own


class FloodConfig(Struct, frozen=True, kw_only=True):
    resend: Micros = Micros(
        500 * MILLISECOND
    )  # the first wait for a report; doubled each time. Above a round trip and a queue.
    resend_max: Micros = Micros(8 * SECOND)  # longer waits only delay recovery
    round_max: Micros = Micros(2 * SECOND)  # likewise between rounds
    grace: Micros = Micros(5 * SECOND)  # how long a neighbour whose link broke is waited for
    leave_grace: Micros = Micros(
        2 * SECOND
    )  # and the neighbours of one that left, unless there is a link to them
    patience: Micros = Micros(
        15 * SECOND
    )  # without a word about a batch; more than a slow subscriber's ``block``
    # After a link was said to move: the last inquiry is most likely still in its queue.
    moving: Micros = Micros(6 * SECOND)
    join: bool = (
        False  # told to join a fabric: with no link, publications wait instead of completing alone
    )


class _Wave:
    __slots__ = (
        "attempts",
        "batch",
        "by",
        "count",
        "done",
        "heard",
        "here",
        "parent",
        "resend_at",
        "round",
        "rounds",
        "size",
        "taken",
        "total",
        "waiting",
        "whole",
    )

    def __init__(self, batch: Batch) -> None:
        self.count = batch.count
        self.by, self.size = -1, 0  # the link that brought it first, and its bytes
        self.batch: Batch | None = (
            batch  # None once reported: only what a late question needs is kept
        )
        self.round = batch.round
        self.rounds = 0  # how many were started from here
        self.parent: int = -1
        self.waiting: dict[
            Peer, Micros
        ] = {}  # who has not reported, and when they last gave a sign
        self.heard: dict[Peer, None] = {}  # who has reported in this round: nobody counts twice
        self.here = True  # the owner has not taken it yet
        self.taken: tuple[int, ...] = ()  # what the owner counted
        self.total: tuple[int, ...] = ()
        self.whole = True
        self.done = False
        self.attempts = 0
        self.resend_at = NEVER


class _Origin:
    __slots__ = ("active", "firsts", "floor", "waves")

    def __init__(self) -> None:
        self.floor = 0
        self.active = 0  # waves under way
        self.waves: dict[int, _Wave] = {}
        self.firsts: list[
            int
        ] = []  # their keys as a heap: what falls below the floor is found without looking at the rest

    def add(self, batch: Batch) -> _Wave:
        wave = self.waves[batch.first] = _Wave(batch)
        heapq.heappush(self.firsts, batch.first)
        return wave


class Flood:
    """The machine. Its owner takes batches (``Deliver(0, [batch])``, then ``took``) and reads ``finished``."""

    def __init__(self, me: Peer, config: FloodConfig, *, restarted: bool = False) -> None:
        self.me, self.config = me, config
        # A node that comes back has forgotten its neighbours: for the grace it cannot say that it has reached them all.
        self._whole_from: Micros | None = None if restarted else Micros(0)
        self.links: dict[Peer, bool] = {}  # False: its queue is full
        self.finished: list[Finished] = []
        # What was completed without neighbours that were cut off; the owner's.
        self.left: list[Left] = []
        # Whether a member is suspected to be dead; the owner's, where there is a view.
        self.doubts: Callable[[Peer], bool] = lambda peer: False
        self._cut: dict[Peer, None] = {}  # neighbours that were cut off, and are not linked since
        self._moved: dict[Peer, Micros] = {}  # slow links, and when bytes last moved
        self._lost: dict[
            Peer, Micros
        ] = {}  # neighbours whose links broke, and until when they are waited for
        self._leaving: dict[Peer, None] = {}
        self._origins: Shares[tuple[int, int], _Origin] = Shares(
            ORIGINS_MAX, ORIGINS_A_LINK, self._pushed_out
        )
        self._waves_by: Counter[int] = Counter()
        self._bytes_by: Counter[int] = Counter()
        self._active: dict[Key, _Wave] = {}
        self._timers: list[tuple[Micros, Key]] = []
        self._out: list[Effect] = []

    # ------------------------------------------------------------------ inputs

    @property
    def deadline(self) -> Micros:
        return self._timers[0][0] if self._timers else NEVER

    @property
    def remembered(self) -> int:
        """Batches in the deduplication tables, all origins together."""
        return sum(len(origin.waves) for origin in self._origins.values())

    def unlink(self, peer: Peer) -> None:
        """The link to a neighbour is about to be closed because neither end needs it: nobody waits for it to come back."""
        if peer in self.links:
            self._leaving[peer] = None

    def gone(self, peer: Peer) -> None:
        """A member is dead, or has begun a new life: it asks for what it has missed."""
        self._cut.pop(peer, None)

    def lacks(self, publisher: int, incarnation: int, first: int, last: int) -> bool:
        """Whether some of these events may not have come here."""
        origin = self._origins.get((publisher, incarnation))
        while first <= last:
            wave = origin.waves.get(first) if origin is not None else None
            if wave is None:
                return True
            first += wave.count
        return False

    def hold(self, peer: Peer, now: Micros) -> None:
        """There is a link to a peer, and nothing may go over it before ``link`` says that it is up."""
        self._cut.pop(peer, None)
        self._linked(peer, now, is_ready=False)

    def under_way(self) -> list[Key]:
        """Batches that this node still has to report, or to complete."""
        return list(self._active)

    def publish(self, batch: Batch, now: Micros) -> list[Effect]:
        assert batch.publisher == self.me
        key = (batch.publisher, batch.incarnation, batch.first)
        origin = self._origin(key, batch.floor, -1)
        assert origin is not None, "an own publication needs no room of others"
        assert batch.first not in origin.waves
        wave = self._add_wave(origin, batch, -1)
        self._begin(key, wave, batch, -1, now)
        self._out.append(Deliver(0, (batch,)))
        return self._flush()

    def took(self, key: Key, matched: tuple[int, ...], now: Micros) -> list[Effect]:
        """The owner has taken the batch, and this is how many of its subscriptions took each event."""
        wave = self._active.get(key)  # one that waits for its owner is under way
        if wave is not None and wave.here:
            wave.here, wave.taken = False, matched
            self._add(wave, matched)
            if not wave.waiting:
                self._maybe_finish(key, wave, now)
        return self._flush() if self._out else []

    def receive(
        self, sender: Peer, message: Batch | Report | Busy | Inquiry | Lost | Leave, now: Micros
    ) -> list[Effect]:
        if type(message) is Batch:
            self._receive_batch(sender, message, now)
        elif type(message) is Report:
            self._receive_report(sender, message, now)
        elif type(message) is Inquiry:
            self._receive_inquiry(sender, message)
        elif type(message) is Lost:
            wave = self._active.get((message.publisher, message.incarnation, message.first))
            if wave is not None and wave.round == message.round and sender in wave.waiting:
                wave.waiting[sender] = now
                self._send_batch(wave, (sender,))
        elif type(message) is Busy:
            wave = self._active.get((message.publisher, message.incarnation, message.first))
            if wave is not None and wave.round == message.round and sender in wave.waiting:
                wave.waiting[sender] = now
        elif type(message) is Leave and sender in self.links:
            self._leaving[sender] = None
            for neighbour in message.neighbours:
                if (
                    neighbour != self.me
                    and neighbour not in self.links
                    and len(self._lost) < NEIGHBOURS_MAX
                ):
                    until = Micros(now + self.config.leave_grace)
                    self._lost[Peer(neighbour)] = max(until, self._lost.get(Peer(neighbour), until))
        return self._flush()

    def wake(self, now: Micros) -> list[Effect]:
        timers = self._timers
        while timers and timers[0][0] <= now:
            at, key = heapq.heappop(timers)
            wave = self._active.get(key)
            if wave is None or wave.resend_at != at:
                continue  # a timer of an earlier wait
            if wave.done:
                self._next_round(key, wave, now)
            else:
                self._give_up_the_mute(key, wave, now)
                if wave.waiting:
                    self._inquire(key, wave, now)
                    self._arm(key, wave, now)
                elif not wave.done:
                    wave.resend_at = NEVER  # only the owner is awaited; it has limits of its own
        return self._flush()

    def link(self, peer: Peer, state: LinkState, now: Micros) -> list[Effect]:
        if state is LinkState.DOWN or state is LinkState.CUT:
            self._origins.closed(peer)
            self._moved.pop(peer, None)
            if state is LinkState.CUT and len(self._cut) < NEIGHBOURS_MAX:
                self._cut[peer] = None
            if self.links.pop(peer, None) is not None:
                left = self._leaving.pop(peer, False) is None
                if not left and state is LinkState.DOWN:
                    self._lost[peer] = Micros(now + self.config.grace)
                for key, wave in list(self._active.items()):
                    if wave.parent == peer:
                        wave.parent = _NOBODY  # else one that came back could be waited for by those it waits for
                    if not wave.done and peer in wave.waiting:
                        del wave.waiting[peer]
                        if state is LinkState.DOWN:
                            wave.whole = False
                        else:  # it is not waited for, nor is another round made for it
                            self._leave_out(peer, key, wave)
                        self._maybe_finish(key, wave, now)
        elif state is LinkState.UP:
            self._cut.pop(peer, None)
            self._linked(peer, now, is_ready=True)
        elif state is LinkState.MOVING:
            self._moved[peer] = now
            for wave in self._active.values():
                if peer in wave.waiting:
                    wave.waiting[peer] = now
        elif peer in self.links:
            self.links[peer] = state is LinkState.READY
        return self._flush()

    def _linked(self, peer: Peer, now: Micros, *, is_ready: bool) -> None:
        self._still_lost(now)
        self.links[peer] = is_ready
        self._lost.pop(peer, None)
        self._leaving.pop(peer, None)
        for key, wave in list(self._active.items()):
            if wave.done:
                self._next_round(key, wave, now)  # it waited for a link, or for a better time
            elif peer != wave.parent and peer not in wave.heard:
                # A round under way goes there too: else it would be called whole without what lies behind this link.
                wave.waiting[peer] = now
                self._send_batch(wave, (peer,))
                if wave.resend_at == NEVER:
                    self._arm(key, wave, now)

    def stored(self, token: Token, now: Micros) -> list[Effect]:
        return []  # floods nothing that depends on a disk

    # ------------------------------------------------------------------- waves

    def _receive_batch(self, sender: Peer, batch: Batch, now: Micros) -> None:
        key = (batch.publisher, batch.incarnation, batch.first)
        if batch.floor > batch.first or batch.first + batch.count - batch.floor > WINDOW_MAX:
            self._reject(sender, "batch outside its publisher's window")
            return
        if batch.hops >= HOPS_MAX:
            self._reject(sender, "batch has gone too far")
            return
        if batch.publisher == self.me:
            # Our own comes back by another way. Of an earlier life: answered alike, the wave need not pass here.
            self._duplicate(sender, batch)
            self._answer(sender, batch)
            return
        origin = self._origin(key, batch.floor, sender)
        if origin is None:
            self._out.append(
                Note(
                    Dropped(
                        "batch",
                        1,
                        f"more than {ORIGINS_A_LINK} publishers with events under way by one link",
                    )
                )
            )
            return
        wave = origin.waves.get(batch.first)
        if wave is None:
            if batch.first < origin.floor:
                self._duplicate(sender, batch)
                self._answer(sender, batch)
                return
            if (
                self._waves_by[sender] >= WAVES_A_LINK
                or self._bytes_by[sender] + len(batch.rows) > BYTES_A_LINK
            ):
                self._out.append(
                    Note(Dropped("batch", 1, "more batches under way than one link may bring"))
                )
                return
            wave = self._add_wave(origin, batch, sender)
            self._begin(key, wave, batch, sender, now)
            self._out.append(Deliver(0, (batch,)))
            self._maybe_finish(key, wave, now)
            return
        if batch.count != wave.count:
            self._reject(sender, "batch with another number of events than before")
            return
        self._duplicate(sender, batch)
        if batch.round > wave.round:
            self._begin(key, wave, batch, sender, now)
            if not wave.here:
                self._add(wave, wave.taken)
            self._maybe_finish(key, wave, now)
        elif batch.round == wave.round:
            self._say_again(sender, key, wave, batch)

    def _receive_inquiry(self, sender: Peer, ask: Inquiry) -> None:
        key = (ask.publisher, ask.incarnation, ask.first)
        origin = self._origins.get(key[:2])
        wave = origin.waves.get(ask.first) if origin is not None else None
        if ask.publisher == self.me or (
            wave is None and origin is not None and ask.first < origin.floor
        ):
            self._answer(sender, ask)
        elif wave is None or wave.round < ask.round:
            self._out.append(Send((sender,), Lost(*key, ask.round)))
        elif wave.round == ask.round:
            self._say_again(sender, key, wave, ask)

    def _say_again(self, sender: Peer, key: Key, wave: _Wave, of: Batch | Inquiry) -> None:
        """A neighbour asks about a round, or has sent its batch once more."""
        if sender != wave.parent:
            self._answer(sender, of, whole=wave.parent != _NOBODY)
        elif wave.done:
            self._report(key, wave)  # the first report was lost
        else:
            self._out.append(Send((sender,), Busy(*key, wave.round)))

    def _receive_report(self, sender: Peer, report: Report, now: Micros) -> None:
        key = (report.publisher, report.incarnation, report.first)
        wave = self._active.get(key)
        if (
            wave is None
            or wave.batch is None
            or wave.round != report.round
            or sender not in wave.waiting
        ):
            return  # late or repeated: counted already
        counts = joined(report.matched, report.dropped)
        if counts is None or (counts and len(counts) != wave.count):
            self._reject(sender, "report for another number of events")
            return
        del wave.waiting[sender]
        wave.heard[sender] = None
        wave.whole = wave.whole and report.whole
        self._add(wave, counts)
        self._maybe_finish(key, wave, now)

    def _begin(self, key: Key, wave: _Wave, batch: Batch, parent: int, now: Micros) -> None:
        wave.batch, wave.round, wave.parent = batch, batch.round, parent
        wave.waiting = dict.fromkeys(self.links, now)
        wave.waiting.pop(Peer(parent), None)
        wave.heard = {}
        wave.total, wave.done, wave.attempts, wave.resend_at = (), False, 0, NEVER
        wave.whole = not (parent == -1 and self.config.join and not self.links)
        for peer in self._cut:
            self._leave_out(peer, key, wave)
        if key not in self._active:
            self._active[key] = wave
            self._bytes_by[wave.by] += wave.size
            self._origins[key[:2]].active += 1
        if wave.waiting:
            self._send_batch(wave, tuple(wave.waiting))
            self._arm(key, wave, now)

    def _send_batch(self, wave: _Wave, peers: tuple[Peer, ...]) -> None:
        batch = wave.batch
        assert batch is not None
        links = self.links
        to = tuple(
            [peer for peer in peers if links.get(peer)]
        )  # a full link gets it when the wait is over
        if to:
            floor = batch.floor
            if (
                wave.parent == -1
            ):  # ours: the floor of today, else a batch that waits for long would leave the window
                floor = min(batch.first, self._origins[(batch.publisher, batch.incarnation)].floor)
            onward = Batch(
                batch.topic, batch.publisher, batch.incarnation, batch.first, batch.count, floor,
                wave.round, batch.hops + 1, batch.rows,
            )  # fmt: skip
            self._out.append(Send(to, onward))

    def _inquire(self, key: Key, wave: _Wave, now: Micros) -> None:
        since = now - self.config.moving
        to = tuple(
            [
                peer
                for peer in wave.waiting
                if self.links.get(peer) and self._moved.get(peer, since) <= since
            ]
        )
        if to:
            self._out.append(Send(to, Inquiry(*key, wave.round)))

    def _leave_out(self, peer: Peer, key: Key, wave: _Wave) -> None:
        """A neighbour that was cut off is not waited for, though it may be alive."""
        assert wave.batch is not None
        self.left.append(Left(peer, wave.batch.topic, *key, key[2] + wave.count - 1, True))

    def _arm(self, key: Key, wave: _Wave, now: Micros) -> None:
        attempts = wave.attempts
        wait = (
            min(self.config.resend << attempts, self.config.resend_max)
            if attempts
            else self.config.resend
        )
        wave.attempts = attempts + 1 if attempts < 16 else 16
        wave.resend_at = Micros(now + wait)
        heapq.heappush(self._timers, (wave.resend_at, key))

    def _add(self, wave: _Wave, matched: tuple[int, ...]) -> None:
        if matched:
            wave.total = (
                bounded_all(tuple(map(int.__add__, wave.total, matched))) if wave.total else matched
            )

    def _maybe_finish(self, key: Key, wave: _Wave, now: Micros) -> None:
        if wave.done or wave.here or wave.waiting:
            return
        assert wave.batch is not None
        wave.done = True
        if (self._lost or self._whole_from != 0) and self._still_lost(now):
            wave.whole = False
        if wave.parent != -1:
            self._report(key, wave)
            wave.batch, wave.resend_at = None, NEVER
            self._inactive(key)
        elif wave.whole:
            self.finished.append(Finished(key[1], key[2], wave.total or (0,) * wave.count))
            wave.batch = None
            self._inactive(key)
        else:
            wait = min(self.config.resend << min(wave.rounds, 16), self.config.round_max)
            wave.resend_at = Micros(now + wait)
            heapq.heappush(self._timers, (wave.resend_at, key))

    def _inactive(self, key: Key) -> None:
        wave = self._active.pop(key, None)
        if wave is not None:
            self._bytes_by[wave.by] -= wave.size
            origin = self._origins.get(key[:2])
            if origin is not None:
                origin.active -= 1

    def _give_up_the_mute(self, key: Key, wave: _Wave, now: Micros) -> None:
        """Who has its link up but says nothing about a batch is to be cut off, and nobody waits for it any longer."""
        for peer, sign in list(wave.waiting.items()):
            if not self.links.get(peer):
                wave.waiting[peer] = now  # its queue is full: it may not have got it yet
            elif now - sign >= self.config.patience:
                self._out.append(Note(Rejected(hex_peer(peer), "does not report", cut=True)))
                del wave.waiting[peer]
                self._leave_out(peer, key, wave)
        self._maybe_finish(key, wave, now)

    def _still_lost(self, now: Micros) -> bool:
        """Some neighbour is still waited for, or this node has just come back and does not know who they were."""
        if self._whole_from is None:
            self._whole_from = Micros(now + self.config.grace)
        for peer in [peer for peer, until in self._lost.items() if until <= now]:
            if not self.doubts(peer):
                del self._lost[peer]
        return bool(self._lost) or now < self._whole_from

    def _next_round(self, key: Key, wave: _Wave, now: Micros) -> None:
        batch = wave.batch
        assert batch is not None
        wave.rounds += 1
        again = Batch(
            batch.topic, batch.publisher, batch.incarnation, batch.first, batch.count, batch.floor,
            wave.round + 1, 0, batch.rows,
        )  # fmt: skip
        self._begin(key, wave, again, -1, now)
        self._add(wave, wave.taken)
        self._maybe_finish(key, wave, now)

    def _report(self, key: Key, wave: _Wave) -> None:
        if wave.parent == _NOBODY:
            return
        matched, dropped = parted(wave.total) if any(wave.total) else ((), ())
        report = Report(*key, wave.round, wave.whole, matched, dropped)
        self._out.append(Send((Peer(wave.parent),), report))

    def _answer(self, sender: Peer, batch: Batch | Inquiry, *, whole: bool = True) -> None:
        """This node counts elsewhere (or, below the floor, has been counted): nothing to add here.

        Not whole: it lost the one it would have reported to, so this round will not count what is behind it.
        """
        self._out.append(
            Send(
                (sender,),
                Report(batch.publisher, batch.incarnation, batch.first, batch.round, whole),
            )
        )

    # ------------------------------------------------------------------ tables

    def _add_wave(self, origin: _Origin, batch: Batch, by: int) -> _Wave:
        wave = origin.add(batch)
        wave.by, wave.size = by, len(batch.rows)
        self._waves_by[by] += 1
        return wave

    def _origin(self, key: Key, floor: int, link: int) -> _Origin | None:
        """What is known of a publisher's life; None if there is no room for one more."""
        origin = self._origins.use(key[:2], link)
        if origin is None:
            origin = _Origin()
            if not self._origins.add(key[:2], origin, link, always=key[0] == self.me):
                return None
        if floor > origin.floor:
            origin.floor = floor
            while origin.firsts and origin.firsts[0] < floor:
                first = heapq.heappop(origin.firsts)
                self._forget(origin.waves.pop(first))
                self._inactive((*key[:2], first))
        return origin

    def _forget(self, wave: _Wave) -> None:
        self._waves_by[wave.by] -= 1
        if not self._waves_by[wave.by]:
            del self._waves_by[wave.by]

    def _pushed_out(self, key: tuple[int, int], origin: _Origin) -> bool:
        """Whether an origin may be forgotten; if so, it is."""
        if origin.active or key[0] == self.me:
            return False
        for wave in origin.waves.values():
            self._forget(wave)
        return True

    def _duplicate(self, sender: Peer, batch: Batch) -> None:
        self._out.append(Note(Duplicate(hex_peer(sender), batch.count)))

    def _reject(self, sender: Peer, reason: str) -> None:
        self._out.append(Note(Rejected(hex_peer(sender), reason)))

    def _flush(self) -> list[Effect]:
        timers, active = self._timers, self._active
        while timers:  # most waits end early: without this a driver would wake up for each of them
            at, key = timers[0]
            wave = active.get(key)
            if wave is not None and wave.resend_at == at:
                break
            heapq.heappop(timers)
        out, self._out = self._out, []
        return out
