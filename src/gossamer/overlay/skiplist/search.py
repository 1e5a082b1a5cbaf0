"""Look-ups (section 5), which ask for the entries in some intervals.

With an event as payload, a look-up also asks which subscriptions at these entries want it. The node
that asks goes from node to node by itself. Each node answers for the part that it knows, and says
which nodes know more. So no other node keeps anything of a look-up, and nothing is handed over. The
node asks again after a while for a part without an answer, until the owner forgets the question.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import NamedTuple

from gossamer.machine import NEVER, SECOND, Micros, Peer
from gossamer.overlay.skiplist.entry import Empty, Forward, Take
from gossamer.overlay.skiplist.host import Host
from gossamer.overlay.skiplist.messages import (
    FOUND_BYTES_MAX,
    FOUND_MAX,
    HOPS_MAX,
    NUMBER_MAX,
    PARTS_MAX,
    TEXT_MAX,
    TOLD_MAX,
    Ahead,
    Ask,
    Covered,
    Hit,
    Part,
    Told,
)
from gossamer.overlay.skiplist.position import Interval, Position
from gossamer.overlay.skiplist.walks import is_ordered, merged, within, without

# The pause before the node asks again for the missing parts.
AGAIN = Micros(SECOND // 4)
# One look-up has at most this number of open questions to other nodes.
OPEN_MAX = 1_024

Answer = Callable[[bytes, bytes], Sequence[tuple[int, str]]]
"""It takes (key of an entry, payload of the question), and returns the (number, filter) of the
subscriptions there.
"""


class Found(NamedTuple):
    """The answer to a look-up. It has the entries in order, with their nodes' answers for them."""

    number: int
    hits: tuple[Hit, ...]
    hops: int
    # The answer had no room for this number of entries or subscriptions.
    left_off: int

    @property
    def entries(self) -> tuple[Position, ...]:
        return tuple(hit.at for hit in self.hits)

    @property
    def subscriptions(self) -> list[tuple[int, int, str]]:
        """(node, number, filter) of each subscription once, though it may have several entries."""
        return sorted({(hit.at[1], number, text) for hit in self.hits for number, text in hit.told})


class Hits:
    """An answer as it grows. Hits that do not fit are counted."""

    __slots__ = ("_bytes", "hits", "left_off")

    def __init__(self) -> None:
        self.hits: dict[Position, Hit] = {}
        self._bytes = self.left_off = 0

    def add(self, hit: Hit) -> None:
        size = 32 + len(hit.at[0]) + sum(16 + len(text) for _, text in hit.told)
        if hit.at in self.hits:
            return
        if len(self.hits) >= FOUND_MAX or self._bytes + size > FOUND_BYTES_MAX:
            self.left_off += 1
            return
        self.hits[hit.at] = hit
        self._bytes += size

    def tell(self, at: Position, told: Sequence[tuple[int, str]]) -> None:
        self.left_off += max(0, len(told) - TOLD_MAX)
        self.add(Hit(at, tuple((number, text[:TEXT_MAX]) for number, text in told[:TOLD_MAX])))

    def extend(self, hits: Sequence[Hit], left_off: int) -> None:
        # A number that is added here, one by one, still fits a message.
        self.left_off = min(self.left_off + left_off, NUMBER_MAX // 2)
        for hit in hits:
            self.add(hit)


class _Asked(NamedTuple):
    parts: tuple[Part, ...]
    hops: int
    until: Micros


class _Question:
    __slots__ = ("again_at", "asked", "hits", "hops", "missing", "number", "payload")

    def __init__(self, number: int, intervals: Sequence[Interval], payload: bytes) -> None:
        self.number, self.payload = number, payload
        self.missing: Sequence[Part] = [Part(low, high) for low, high in sorted(intervals)]
        # The key is the peer, and the beginning of the first part.
        self.asked: dict[tuple[int, Position], _Asked] = {}
        self.hits = Hits()
        self.hops = 0
        self.again_at = NEVER


class _Seen(NamedTuple):
    """The answer of one node to a question."""

    covered: list[Covered]
    ahead: list[tuple[int, Part]]
    hits: Hits


class Search:
    def __init__(self, host: Host, answer: Answer) -> None:
        self._host, self._answer = host, answer
        self._questions: dict[int, _Question] = {}
        self._number = 0

    @property
    def deadline(self) -> Micros:
        soon = NEVER
        for question in self._questions.values():
            for asked in question.asked.values():
                soon = min(soon, asked.until)
            soon = min(soon, question.again_at)
        return soon

    @property
    def is_busy(self) -> bool:
        return bool(self._questions)

    # ---------------------------------------------------------------------- the asker

    def ask(self, intervals: Sequence[Interval], payload: bytes, now: Micros) -> int:
        self._number += 1
        question = _Question(self._number, intervals, payload)
        self._questions[self._number] = question
        # The answer to a question that this node alone can answer comes with the next wake.
        question.again_at = now
        return self._number

    def forget(self, number: int) -> None:
        """Forget a question when no caller waits for the answer any longer."""
        self._questions.pop(number, None)

    def _begin(self, question: _Question, now: Micros) -> None:
        """Ask for the missing parts."""
        question.again_at = NEVER
        host, parts = self._host, tuple([Part(one.low, one.high) for one in question.missing])
        if host.is_placed:
            self._hear(question, self._look(parts, question.payload), 0, now)
            return
        contact = host.contact()
        if contact is not None:
            self._send(question, contact, parts[:PARTS_MAX], 0, now)
        else:
            # There is no list.
            question.missing = ()
        self._settle(question, now)

    def _hear(self, question: _Question, seen: _Seen, hops: int, now: Micros) -> None:
        """Take in the answer of some node."""
        question.hops = max(question.hops, hops)
        question.missing = without(question.missing, merged(seen.covered))
        question.hits.extend(list(seen.hits.hits.values()), seen.hits.left_off)
        ahead: dict[int, list[Part]] = {}
        for peer, part in seen.ahead:
            ahead.setdefault(peer, []).append(part)
        for peer, parts in ahead.items():
            if peer != self._host.me and hops < HOPS_MAX and len(question.asked) < OPEN_MAX:
                parts.sort(key=_low)
                self._send(question, peer, tuple(parts[:PARTS_MAX]), hops + 1, now)
        self._settle(question, now)

    def _send(
        self, question: _Question, peer: int, parts: tuple[Part, ...], hops: int, now: Micros
    ) -> None:
        host = self._host
        until = Micros(now + host.config.patience)
        question.asked[peer, parts[0].low] = _Asked(parts, hops, until)
        host.send(peer, Ask(host.topic, question.number, parts, question.payload), now)
        host.sooner(until)

    def _settle(self, question: _Question, now: Micros) -> None:
        if not question.missing:
            self._questions.pop(question.number, None)
            hits = tuple(hit for _, hit in sorted(question.hits.hits.items()))
            found = Found(question.number, hits, question.hops, question.hits.left_off)
            self._host.deliver(found)
        elif not question.asked:
            question.again_at = Micros(now + AGAIN)
            self._host.sooner(question.again_at)

    def receive_told(self, sender: Peer, message: Told, now: Micros) -> None:
        question = self._questions.get(message.number)
        asked = question.asked.pop((sender, message.low), None) if question is not None else None
        if question is None or asked is None:
            # The answer is too late, and another node was asked.
            return
        ahead = sorted(message.ahead, key=lambda one: one.part.low)
        spans = [one.part for one in ahead]
        if not (
            is_ordered(message.covered)
            and is_ordered(spans)
            and within(message.covered, asked.parts)
            and within(spans, asked.parts)
        ):
            self._host.reject(sender, "an answer to another question")
            self._settle(question, now)
            return
        hits = Hits()
        hits.extend(message.hits, message.left_off)
        seen = _Seen(list(message.covered), [(one.peer, one.part) for one in ahead], hits)
        self._hear(question, seen, asked.hops, now)

    def peer_down(self, peer: Peer, now: Micros) -> None:
        for question in list(self._questions.values()):
            lost = [key for key in question.asked if key[0] == peer]
            for key in lost:
                del question.asked[key]
            if lost:
                self._settle(question, now)

    def wake(self, now: Micros) -> None:
        for question in list(self._questions.values()):
            late = [key for key, asked in question.asked.items() if asked.until <= now]
            for key in late:
                del question.asked[key]
            if late:
                self._settle(question, now)
            if question.again_at <= now:
                self._begin(question, now)

    # ----------------------------------------------------------------- the other nodes

    def receive_ask(self, sender: Peer, message: Ask, now: Micros) -> None:
        host = self._host
        if not is_ordered(message.parts):
            host.reject(sender, "intervals that are out of order")
            return
        seen = self._look(message.parts, message.payload)
        ahead = tuple([Ahead(peer, part) for peer, part in seen.ahead[:PARTS_MAX]])
        told = Told(
            host.topic, message.number, message.parts[0].low, tuple(merged(seen.covered)), ahead,
            tuple(seen.hits.hits.values()), seen.hits.left_off,
        )  # fmt: skip
        host.send(int(sender), told, now)

    def _look(self, parts: Sequence[Part], payload: bytes) -> _Seen:
        seen = _Seen([], [], Hits())
        for part in parts:
            for entry, step in self._host.steps(part):
                if type(step) is Take:
                    told = self._answer(entry.at[0], payload)
                    seen.covered.append(Covered(entry.at, step.high, 0))
                    if told or not payload:
                        # An entry is no answer if the residual filters there do not pass the event.
                        seen.hits.tell(entry.at, told)
                elif type(step) is Empty:
                    seen.covered.append(Covered(step.low, step.high, 0))
                elif type(step) is Forward:
                    ahead = Part(step.low, step.high, step.to[0], step.bound)
                    seen.ahead.append((step.to[1], ahead))
        return seen


_low = attrgetter("low")
