"""Barriers: when does every live node know what I want?

A wave with feedback over the overlay: each node passes the question on, waits until it has the origin's record itself and all to
whom it passed the question have answered, and answers with the sum of the members it stands for (64 bits each, spread, modulo
2**64). A node that is asked twice answers the second time with nothing to add. The barrier is reached when the sum is that of
the origin's view: every member has answered, each once. If not (somebody crashed or joined in between, or a link broke), the
origin asks again. Nobody is asked twice in one wave: a question and its answer get through, or the link goes down, and then the
node that waits goes on without that neighbour.

A barrier may also ask that everybody is *settled*: that what a node had published before it had the record has its receipts. After
that, nothing is under way to where the origin was reachable before.

An origin has one wave of each kind under way. Whoever asks in the meantime shares it, if it can answer for it, or else the
next one: a node that makes a thousand subscriptions at once asks the fabric twice, not a thousand times.
"""

from __future__ import annotations

from collections.abc import Callable

from gossamer.machine import MILLISECOND, NEVER, SECOND, Effect, Micros, Peer, Send
from gossamer.overlay.interest.links import Links
from gossamer.overlay.interest.messages import Barrier, Reached
from gossamer.overlay.interest.view import View

# A neighbour that lives and does not answer for this long is not waited for in this wave. It may be
# stuck, or lie; or one of those behind it is.
PATIENCE = Micros(30 * SECOND)
RETRY = Micros(50 * MILLISECOND)  # before another wave, when the sum was not that of the view
WAVES_MAX = 1024  # waves of others that are remembered; the oldest go first
_MASK = 2**64 - 1

Key = tuple[Peer, int]


class _Wave:
    __slots__ = ("barrier", "give_up_at", "is_answered", "mark", "parent", "total", "waiting")

    def __init__(
        self, barrier: Barrier, parent: Peer | None, waiting: dict[Peer, None], now: Micros
    ) -> None:
        self.barrier, self.parent, self.waiting = barrier, parent, waiting
        self.give_up_at = Micros(now + PATIENCE)
        self.is_answered = False
        self.mark: int | None = None  # what this node had published when it had the record
        self.total = 0


class _Line:
    """Own barriers of one kind that wait, and the wave that is under way."""

    def __init__(self) -> None:
        self.asked: dict[int, tuple[int, int]] = {}  # the version that all must have
        self.start_at: Micros = NEVER  # of the next wave
        self.own: _Wave | None = None
        self.served: list[int] = []  # those that were asked for before it started


class Barriers:
    def __init__(self, me: Peer, view: View, links: Links) -> None:
        self.mark: Callable[[], int] = lambda: 0  # counts what this node has published
        self.is_settled: Callable[[int], bool] = lambda mark: (
            True
        )  # whether all up to there has its receipts
        self.done: list[int] = []  # numbers of barriers that were reached
        self._me, self._view, self._links = me, view, links
        self._numbers = 0
        self._waves: dict[Key, _Wave] = {}  # oldest first
        self._active: dict[Key, _Wave] = {}  # those of them that are not answered yet
        self._lines = {False: _Line(), True: _Line()}  # by whether all must be settled

    @property
    def deadline(self) -> Micros:
        least = min(self._lines[False].start_at, self._lines[True].start_at)
        return (
            min(least, min(wave.give_up_at for wave in self._active.values()))
            if self._active
            else least
        )

    @property
    def is_waiting(self) -> bool:
        return bool(self._active)

    @property
    def waits_for(self) -> list[Peer]:
        """The neighbours that have not answered this node's own waves, for themselves or for those behind them."""
        waiting: dict[Peer, None] = {}
        for line in self._lines.values():
            if line.own is not None:
                waiting |= line.own.waiting
        return sorted(waiting)

    def ask(self, life: int, version: int, now: Micros, *, settled: bool = False) -> int:
        """Begin a barrier on this node's own record; returns its number."""
        self._numbers += 1
        line = self._lines[settled]
        line.asked[self._numbers] = (life, version)
        if line.own is None:
            line.start_at = min(line.start_at, now)
        return self._numbers

    def receive(self, sender: Peer, message: Barrier | Reached, now: Micros) -> list[Effect]:
        if type(message) is Barrier:
            return self._barrier(sender, message, now)
        assert type(message) is Reached
        wave = self._waves.get((Peer(message.origin), message.number))
        if wave is None or sender not in wave.waiting:
            return []
        del wave.waiting[sender]
        wave.total = (wave.total + message.total) & _MASK
        return self._maybe_answer(wave, now)

    def _barrier(self, sender: Peer, message: Barrier, now: Micros) -> list[Effect]:
        key = (Peer(message.origin), message.number)
        effects: list[Effect] = []
        wave = self._waves.get(key)
        if wave is not None and wave.barrier.life < message.life:
            effects += self._evict(
                key, now
            )  # of the origin's earlier life, which counted as this one does
        elif wave is not None:
            return [Send((sender,), Reached(message.origin, message.number, 0))]
        if message.origin == self._me:
            return []  # of an earlier life
        if len(self._waves) >= WAVES_MAX:  # nobody can push out ours
            effects += self._evict(next(key for key in self._waves if key[0] != self._me), now)
        others = {
            peer: None for peer in self._neighbours() if peer != sender and peer != message.origin
        }
        wave = self._waves[key] = self._active[key] = _Wave(message, sender, others, now)
        return effects + self._pass_on(wave) + self._maybe_answer(wave, now)

    def _pass_on(self, wave: _Wave) -> list[Effect]:
        return [Send(tuple(wave.waiting), wave.barrier)] if wave.waiting else []

    def _maybe_answer(self, wave: _Wave, now: Micros) -> list[Effect]:
        barrier = wave.barrier
        if wave.waiting or wave.is_answered:
            return []
        known = self._view.members.get(Peer(barrier.origin))
        if known is None or known.order[:2] < (barrier.life, barrier.version):
            return []  # its news is still on the way here
        if barrier.settled:
            if wave.mark is None:
                wave.mark = self.mark()
            if not self.is_settled(wave.mark):
                return []
        mine = self._view.members[self._me].spread
        answer = (wave.total + mine) & _MASK
        wave.is_answered = True
        self._active.pop((Peer(barrier.origin), barrier.number), None)
        if wave.parent is not None:
            return [Send((wave.parent,), Reached(barrier.origin, barrier.number, answer))]
        self._came_back(wave, answer, now)
        return []

    def _came_back(self, wave: _Wave, answer: int, now: Micros) -> None:
        """A wave of ours has all its answers."""
        barrier = wave.barrier
        line = self._lines[barrier.settled]
        del self._waves[self._me, barrier.number]
        line.own = None
        is_reached = answer == self._view.total
        if is_reached:
            # That all have a record is true whoever asks; that they are settled, only of what was asked for before.
            served = line.served if barrier.settled else list(line.asked)
            for number in [n for n in served if line.asked[n] <= (barrier.life, barrier.version)]:
                del line.asked[number]
                self.done.append(number)
        if line.asked:
            line.start_at = Micros(now if is_reached else now + RETRY)

    def changed(self, peer: Peer, now: Micros) -> list[Effect]:
        """The record of a peer is new here: waves of that origin may go on."""
        effects: list[Effect] = []
        for (origin, _), wave in list(self._active.items()):
            if origin == peer:
                effects += self._maybe_answer(wave, now)
        return effects

    def settled(self, now: Micros) -> list[Effect]:
        """Receipts are complete: waves that waited for them may go on."""
        effects: list[Effect] = []
        for wave in [wave for wave in self._active.values() if wave.mark is not None]:
            effects += self._maybe_answer(wave, now)
        return effects

    def closed(self, peer: Peer, now: Micros) -> list[Effect]:
        """A link is down, or its peer is dead: nobody answers over it. What is missing shows in the sum."""
        effects: list[Effect] = []
        for key, wave in list(self._active.items()):
            if wave.parent == peer:  # it does not hear the answer
                del self._waves[key], self._active[key]
            elif wave.waiting.pop(peer, 0) is None:
                effects += self._maybe_answer(wave, now)
        return effects

    def wake(self, now: Micros) -> list[Effect]:
        effects: list[Effect] = []
        for key, wave in list(self._active.items()):
            if wave.give_up_at <= now:
                effects += self._evict(key, now)
        for settled, line in self._lines.items():
            while line.start_at <= now:  # again at once, where nobody else is there to be asked
                line.start_at = NEVER
                if line.asked:
                    effects += self._start(line, settled, now)
        return effects

    def _evict(self, key: Key, now: Micros) -> list[Effect]:
        """Somebody does not answer, or there are too many waves; the origin starts another one, by then with other links."""
        wave = self._waves.pop(key)
        self._active.pop(key, None)
        if wave.parent is not None and not wave.is_answered:
            # Its sum will be wrong, and the origin need not wait to know it.
            return [Send((wave.parent,), Reached(wave.barrier.origin, wave.barrier.number, 0))]
        if key[0] == self._me:
            for line in self._lines.values():
                if line.own is not None and line.own.barrier.number == key[1]:
                    line.own, line.start_at = None, Micros(now + RETRY)
        return []

    def _neighbours(self) -> list[Peer]:
        """Whom to ask: the link to a node that was declared dead may still be up."""
        return [peer for peer in self._links.carriers() if peer in self._view.members]

    def _start(self, line: _Line, settled: bool, now: Micros) -> list[Effect]:
        life, version = max(line.asked.values())
        self._numbers += 1  # waves and barriers share the numbers
        barrier = Barrier(self._me, self._numbers, life, version, settled)
        key = (self._me, self._numbers)
        wave = self._waves[key] = self._active[key] = line.own = _Wave(
            barrier, None, dict.fromkeys(self._neighbours()), now
        )
        line.served = list(line.asked)
        return self._pass_on(wave) + self._maybe_answer(wave, now)
