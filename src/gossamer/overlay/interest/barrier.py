"""Barriers: they are reached when every live node knows this node's interest.

A barrier is a wave with feedback over the overlay. Each node passes the question on. It waits until
it has the origin's record itself, and until all nodes that it asked have answered. Then it answers
with the sum of the members that it stands for (64 bits each, spread, modulo 2**64). A node that is
asked twice adds nothing the second time. The barrier is reached when the sum is that of the
origin's view, because then every member has answered, each once. Otherwise a node crashed or joined
in between, or a link broke, and the origin asks again. No node is asked twice in one wave: a
question and its answer get through, or the link goes down, and then the waiting node goes on
without that neighbour.

A barrier may also ask that every node is *settled*: everything that a node had published before it
had the record must have its receipts. After that, nothing is under way to the places where the
origin could be reached before.

An origin has one wave of each kind under way. A later barrier shares it if the wave can answer for
it, and otherwise shares the next one. So a node that makes a thousand subscriptions at once asks
the fabric twice, and not a thousand times.
"""

from __future__ import annotations

from collections.abc import Callable

from gossamer.machine import MILLISECOND, NEVER, SECOND, Effect, Micros, Peer, Send
from gossamer.overlay.interest.links import Links
from gossamer.overlay.interest.messages import Barrier, Reached
from gossamer.overlay.interest.view import View

# A neighbour that lives and does not answer for this long is not waited for in this wave. It may be
# stuck or lie, or a node behind it may.
PATIENCE = Micros(30 * SECOND)
# Before another wave, when the sum was not that of the view.
RETRY = Micros(50 * MILLISECOND)
# The waves of others that are remembered. The oldest go first.
WAVES_MAX = 1024
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
        # The count of this node's publications when it had the record.
        self.mark: int | None = None
        self.total = 0


class _Line:
    """Own barriers of one kind that wait, and the wave that is under way."""

    def __init__(self) -> None:
        # For each barrier, the version that all nodes must have.
        self.asked: dict[int, tuple[int, int]] = {}
        # The start of the next wave.
        self.start_at: Micros = NEVER
        self.own: _Wave | None = None
        # The barriers that were asked for before it started.
        self.served: list[int] = []


class Barriers:
    def __init__(self, me: Peer, view: View, links: Links) -> None:
        # Counts this node's publications.
        self.mark: Callable[[], int] = lambda: 0
        # Whether all publications up to a count have their receipts.
        self.is_settled: Callable[[int], bool] = lambda mark: True
        # The numbers of barriers that were reached.
        self.done: list[int] = []
        self._me, self._view, self._links = me, view, links
        self._numbers = 0
        # The oldest come first.
        self._waves: dict[Key, _Wave] = {}
        # The waves that are not answered yet.
        self.active: dict[Key, _Wave] = {}
        # By whether all nodes must be settled.
        self._lines = {False: _Line(), True: _Line()}
        # It may be too early, because a wave may be over sooner than it would be given up.
        self.deadline: Micros = NEVER

    @property
    def waits_for(self) -> list[Peer]:
        """The neighbours that have not answered this node's own waves.

        They may be waiting for nodes behind them.
        """
        waiting: dict[Peer, None] = {}
        for line in self._lines.values():
            if line.own is not None:
                waiting |= line.own.waiting
        return sorted(waiting)

    def ask(self, life: int, version: int, now: Micros, *, settled: bool = False) -> int:
        """Begins a barrier on this node's own record, and returns its number."""
        self._numbers += 1
        line = self._lines[settled]
        line.asked[self._numbers] = (life, version)
        if line.own is None:
            line.start_at = min(line.start_at, now)
            self.deadline = min(self.deadline, now)
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
            # It is of an earlier life of the origin, which counted its waves as this life does.
            effects += self._evict(key, now)
        elif wave is not None:
            return [Send((sender,), Reached(message.origin, message.number, 0))]
        if message.origin == self._me:
            # The wave is of an earlier life.
            return []
        # Other nodes cannot push out this node's own waves.
        if len(self._waves) >= WAVES_MAX:
            effects += self._evict(next(key for key in self._waves if key[0] != self._me), now)
        others = {
            peer: None for peer in self._neighbours() if peer != sender and peer != message.origin
        }
        wave = self._waves[key] = self.active[key] = _Wave(message, sender, others, now)
        self.deadline = min(self.deadline, wave.give_up_at)
        return effects + self._pass_on(wave) + self._maybe_answer(wave, now)

    def _pass_on(self, wave: _Wave) -> list[Effect]:
        return [Send(tuple(wave.waiting), wave.barrier)] if wave.waiting else []

    def _maybe_answer(self, wave: _Wave, now: Micros) -> list[Effect]:
        barrier = wave.barrier
        if wave.waiting or wave.is_answered:
            return []
        known = self._view.members.get(Peer(barrier.origin))
        if known is None or known.order[:2] < (barrier.life, barrier.version):
            # The news is still on its way.
            return []
        if barrier.settled:
            if wave.mark is None:
                wave.mark = self.mark()
            if not self.is_settled(wave.mark):
                return []
        mine = self._view.members[self._me].spread
        answer = (wave.total + mine) & _MASK
        wave.is_answered = True
        self.active.pop((Peer(barrier.origin), barrier.number), None)
        if wave.parent is not None:
            return [Send((wave.parent,), Reached(barrier.origin, barrier.number, answer))]
        self._came_back(wave, answer, now)
        return []

    def _came_back(self, wave: _Wave, answer: int, now: Micros) -> None:
        """Ends a wave of this node that has all its answers."""
        barrier = wave.barrier
        line = self._lines[barrier.settled]
        del self._waves[self._me, barrier.number]
        line.own = None
        is_reached = answer == self._view.total
        if is_reached:
            # All nodes have the record, whenever a barrier was asked for. But they are settled only
            # for barriers that were asked for before.
            served = line.served if barrier.settled else list(line.asked)
            for number in [n for n in served if line.asked[n] <= (barrier.life, barrier.version)]:
                del line.asked[number]
                self.done.append(number)
        if line.asked:
            line.start_at = Micros(now if is_reached else now + RETRY)
            self.deadline = min(self.deadline, line.start_at)

    def changed(self, peer: Peer, now: Micros) -> list[Effect]:
        """The record of a peer is new here, so waves of that origin may go on."""
        effects: list[Effect] = []
        for (origin, _), wave in list(self.active.items()):
            if origin == peer:
                effects += self._maybe_answer(wave, now)
        return effects

    def settled(self, now: Micros) -> list[Effect]:
        """Receipts are complete, so waves that waited for them may go on."""
        effects: list[Effect] = []
        for wave in [wave for wave in self.active.values() if wave.mark is not None]:
            effects += self._maybe_answer(wave, now)
        return effects

    def closed(self, peer: Peer, now: Micros) -> list[Effect]:
        """A link is down, or its peer is dead: no answer comes over it. The sum shows the gap."""
        effects: list[Effect] = []
        for key, wave in list(self.active.items()):
            # It would not hear the answer.
            if wave.parent == peer:
                del self._waves[key], self.active[key]
            elif wave.waiting.pop(peer, 0) is None:
                effects += self._maybe_answer(wave, now)
        return effects

    def wake(self, now: Micros) -> list[Effect]:
        effects: list[Effect] = []
        for key, wave in list(self.active.items()):
            if wave.give_up_at <= now:
                effects += self._evict(key, now)
        for settled, line in self._lines.items():
            # It starts again at once if there is no neighbour to ask.
            while line.start_at <= now:
                line.start_at = NEVER
                if line.asked:
                    effects += self._start(line, settled, now)
        self.deadline = min(line.start_at for line in self._lines.values())
        for wave in self.active.values():
            self.deadline = min(self.deadline, wave.give_up_at)
        return effects

    def _evict(self, key: Key, now: Micros) -> list[Effect]:
        """Gives up a wave, because a neighbour does not answer or there are too many waves.

        The origin starts another wave, by then with other links.
        """
        wave = self._waves.pop(key)
        self.active.pop(key, None)
        if wave.parent is not None and not wave.is_answered:
            # Its sum will be wrong, and the origin need not wait to learn it.
            return [Send((wave.parent,), Reached(wave.barrier.origin, wave.barrier.number, 0))]
        if key[0] == self._me:
            for line in self._lines.values():
                if line.own is not None and line.own.barrier.number == key[1]:
                    line.own, line.start_at = None, Micros(now + RETRY)
                    self.deadline = min(self.deadline, line.start_at)
        return []

    def _neighbours(self) -> list[Peer]:
        """The neighbours to ask. The link to a node that was declared dead may still be up."""
        return [peer for peer in self._links.carriers() if peer in self._view.members]

    def _start(self, line: _Line, settled: bool, now: Micros) -> list[Effect]:
        life, version = max(line.asked.values())
        # Waves and barriers share the numbers.
        self._numbers += 1
        barrier = Barrier(self._me, self._numbers, life, version, settled)
        key = (self._me, self._numbers)
        wave = self._waves[key] = self.active[key] = line.own = _Wave(
            barrier, None, dict.fromkeys(self._neighbours()), now
        )
        self.deadline = min(self.deadline, wave.give_up_at)
        line.served = list(line.asked)
        return self._pass_on(wave) + self._maybe_answer(wave, now)
