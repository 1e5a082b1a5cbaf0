"""The reading of filters that peers tell: in slices, and with a budget for each peer.

Reading a filter costs one to two microseconds of CPU for each character of its text, whatever the
text is. So characters are the measure. A peer may have ``BURST`` of them read, and ``RATE`` a
second after that, and no more than ``SLICE`` at a time, so that events of others are not held up.

A filter that must wait is taken to pass everything. That is safe, because the subscriber's node
applies its filters itself; it only costs that node some noise for a while.
"""

from __future__ import annotations

from collections.abc import Iterator

from gossamer.machine import MILLISECOND, NEVER, SECOND, Micros, Peer

# In characters.
BURST = 1 << 20
RATE = 128 << 10
SLICE = 16 << 10
# The time between two slices.
PAUSE = Micros(20 * MILLISECOND)
# A short text costs as much as one of this length.
LEAST = 16
# The most budgets that are remembered before those that are full again are forgotten.
BUDGETS = 1024

Want = tuple[int, int]
"""A filter: the hash of its topic, and its number at the peer."""


class Budget:
    """The characters of one peer that may still be read."""

    __slots__ = ("left", "slice", "slice_at")

    def __init__(self, now: Micros) -> None:
        self.left = float(BURST)
        self.slice, self.slice_at = SLICE, now

    def spend(self, size: int, now: Micros) -> bool:
        if now - self.slice_at >= PAUSE:
            self.left = min(BURST, self.left + (now - self.slice_at) * RATE / SECOND)
            self.slice, self.slice_at = SLICE, now
        if self.slice <= 0 or self.left <= 0:
            return False
        # The last one may be longer than the budget. The next ones wait for it.
        self.slice -= size
        self.left -= size
        return True

    def is_full(self, now: Micros) -> bool:
        return self.left + (now - self.slice_at) * RATE / SECOND >= BURST


class Reading:
    def __init__(self) -> None:
        self.deadline = NEVER
        # Filters that wait, with their sizes. The peer whose turn is next comes first.
        self._waiting: dict[Peer, dict[Want, int]] = {}
        self._budgets: dict[Peer, Budget] = {}

    @property
    def waiting(self) -> int:
        """The number of filters that wait."""
        return sum(map(len, self._waiting.values()))

    def may_read(self, peer: Peer, want: Want, text: str, now: Micros) -> bool:
        """Whether a filter may be read now. If not, it waits, and ``due`` has it later."""
        size = max(len(text), LEAST)
        if peer not in self._waiting and self._budget(peer, now).spend(size, now):
            return True
        self._waiting.setdefault(peer, {})[want] = size
        self.deadline = min(self.deadline, Micros(now + PAUSE))
        return False

    def drop(self, peer: Peer, want: Want) -> None:
        """The filter is not wanted any more, or it has changed."""
        waiting = self._waiting.get(peer)
        if waiting is not None and waiting.pop(want, None) is not None and not waiting:
            del self._waiting[peer]

    def forget(self, peer: Peer, topic: int) -> None:
        """Nothing of this peer on this topic is wanted any more."""
        for want in [one for one in self._waiting.get(peer, ()) if one[0] == topic]:
            self.drop(peer, want)

    def due(self, now: Micros) -> Iterator[tuple[Peer, Want]]:
        """Filters that may be read now: one slice of all peers together, each peer in its turn."""
        size = 0
        for peer in list(self._waiting):
            if size >= SLICE:
                break
            waiting, budget = self._waiting.pop(peer), self._budget(peer, now)
            while waiting and size < SLICE:
                want, cost = next(iter(waiting.items()))
                if not budget.spend(cost, now):
                    break
                size += cost
                del waiting[want]
                yield peer, want
            if waiting:
                # The peers that had no turn come before it next time.
                self._waiting[peer] = waiting
        self.deadline = Micros(now + PAUSE) if self._waiting else NEVER

    def _budget(self, peer: Peer, now: Micros) -> Budget:
        found = self._budgets.get(peer)
        if found is None:
            if len(self._budgets) >= BUDGETS:
                full = [one for one, budget in self._budgets.items() if budget.is_full(now)]
                for one in full:
                    del self._budgets[one]
            found = self._budgets[peer] = Budget(now)
        return found
