"""When what a publisher retains begins, and when it is let go (retention.py)."""

from __future__ import annotations

from gossamer.machine import NEVER, SECOND, Effect, Micros, Store
from gossamer.node.outbox import Outbox
from gossamer.node.topics import Topics

TRIM_SOON = Micros(SECOND // 10)  # after more than is retained has been published
TRIM_EVERY = Micros(SECOND)


class Keeping:
    def __init__(self, outbox: Outbox, topics: Topics, out: list[Effect], unix: int) -> None:
        """``unix``: the time of day at ``now`` = 0, in microseconds: what is retained has an age that survives restarts."""
        self.deadline = NEVER
        self.unix = unix
        self._outbox, self._rules, self._out = outbox, topics.retentions, out
        self._known: dict[str, None] = {}  # topics whose retention has begun

    def learn(self) -> None:
        """Perhaps another topic has a retention now."""
        if len(self._rules) == len(self._known):
            return
        for topic in self._rules:
            if topic not in self._known:
                self._known[topic] = None
                records = self._outbox.retained.begin(topic)
                if records:
                    self._out.append(Store(self._outbox.token(), tuple(records)))
                self.deadline = Micros(0)

    def stamp(self, topic: str, now: Micros) -> tuple[int, bool]:
        """The time of day for a batch of this topic that is about to be sealed, and whether it is to be kept."""
        if topic not in self._known:
            return self.unix + now, False
        retained = self._outbox.retained
        if retained.is_over(self._rules, topic):
            # Now, and not only when the timer comes round: so much may be published between two of its turns that it would
            # never catch up. One batch is added and many may go, so this keeps pace whatever is published.
            self._trim(now, None if retained.is_much_over else topic)
            self.deadline = min(self.deadline, Micros(now + TRIM_SOON))
        else:
            self.deadline = min(self.deadline, Micros(now + TRIM_EVERY))
        return self.unix + now, True

    def wake(self, now: Micros) -> None:
        if self.deadline > now:
            return
        outbox = self._outbox
        went = self._trim(now)
        oldest = outbox.retained.oldest(self._rules)
        later = NEVER if oldest is None else Micros(max(oldest - self.unix, now + TRIM_EVERY))
        if outbox.events:  # what has no receipt yet stays, and may be let go when it has
            later = Micros(min(later, now + TRIM_EVERY))
        self.deadline = Micros(now + TRIM_SOON) if went else later  # there may be more of it

    def _trim(self, now: Micros, only: str | None = None) -> bool:
        """Let go of some; returns whether there was any."""
        outbox, before = self._outbox, self._outbox.retained.trimmed
        groups = outbox.retained.trim(self._rules, outbox.waits, self.unix + now, only)
        self._out += [Store(outbox.token(), tuple(group)) for group in groups]
        return outbox.retained.trimmed > before
