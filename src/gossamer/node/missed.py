"""A live member is told of events that were completed without it, before it hears of a newer floor.

A publisher on route "direct", or a relay on route "flood", gives up a neighbour that does not
report, or that breaks the rules. The receipts are completed without it, though it may hold
matches. So the node that has given it up owes it the word of that (``Missed``). As soon as there is
a link again, the word goes first: until the peer has answered (``Heard``), no plane of this node
knows of the link, and nothing else goes over it, so no floor overtakes the word. At the peer,
subscriptions that are told of missed events ask the publisher, or are told a gap (follow.py).

Nodes behind the peer may have missed a flooded event, too. A peer that lacks it passes the word on
to its other neighbours, each of which does so once.

A debt ends when the peer has heard of it, is dead, or has begun a new life: then it asks for
everything by itself.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Annotated

from msgspec import Meta

from gossamer.machine import (
    MILLISECOND,
    NEVER,
    SECOND,
    Dial,
    Effect,
    LinkState,
    Message,
    Micros,
    Note,
    Peer,
    Send,
)
from gossamer.overlay.batch import TOPIC_LENGTH_MAX, Count, Left, Uint64
from gossamer.trace import Dropped, Rejected, hex_peer

DIAL_AGAIN = Micros(500 * MILLISECOND)
DIAL_AGAIN_MAX = Micros(4 * SECOND)
# The longest wait for an answer over a link on which nothing moves.
PATIENCE = Micros(15 * SECOND)
# The most debts of all peers together, and the most topics and publishers of which one peer has
# missed events.
DEBTS_MAX = 65_536
DEBTS_A_PEER = 1024
# The most words of others that this node remembers.
KNOWN_MAX = 4096

_Of = tuple[str, int, int]
"""Topic, publisher, incarnation."""


class Missed(Message, frozen=True, array_like=True, tag=92):
    """Events of a topic, from ``first`` to ``last``, were completed without the receiver."""

    topic: Annotated[str, Meta(min_length=1, max_length=TOPIC_LENGTH_MAX)]
    publisher: Uint64
    incarnation: Count
    first: Count
    last: Count
    # Perhaps without the nodes behind the receiver, too.
    spreads: bool


class Heard(Message, frozen=True, array_like=True, tag=93):
    topic: Annotated[str, Meta(min_length=1, max_length=TOPIC_LENGTH_MAX)]
    publisher: Uint64
    incarnation: Count
    first: Count
    last: Count


MissedMessage = Missed | Heard


class _Debt:
    """What one peer has to hear of."""

    __slots__ = ("at", "is_full", "is_held", "ranges", "sign", "told", "wait")

    def __init__(self) -> None:
        # The first event, the last one, and whether it spreads.
        self.ranges: dict[_Of, tuple[int, int, bool]] = {}
        # The ranges that went over the present link.
        self.told: dict[_Of, tuple[int, int, bool]] = {}
        self.at, self.wait = NEVER, DIAL_AGAIN
        # A link is up, of which the planes do not know.
        self.is_held = False
        # The queue of the link is full.
        self.is_full = False
        self.sign = Micros(0)


class Debts:
    """``lacks``: whether this node lacks events of a publisher that were flooded."""

    def __init__(
        self,
        out: list[Effect],
        address: Callable[[Peer], str | None],
    ) -> None:
        self.lacks: Callable[[int, int, int, int], bool] = lambda *ids: True
        self.links: dict[Peer, None] = {}
        self._out, self._address = out, address
        self._debts: dict[Peer, _Debt] = {}
        self._count = 0
        self.deadline = NEVER
        self._known: OrderedDict[Missed, None] = OrderedDict()

    def __contains__(self, peer: Peer) -> bool:
        return peer in self._debts

    # ------------------------------------------------------------------- debts

    def owe(self, left: Iterable[Left], now: Micros) -> None:
        for one in left:
            of = one.topic, one.publisher, one.incarnation
            self._owe(one.peer, of, one.first, one.last, one.spreads, now)

    def _owe(self, peer: Peer, of: _Of, first: int, last: int, spreads: bool, now: Micros) -> None:
        debt = self._debts.get(peer)
        if debt is None:
            debt = self._debts[peer] = _Debt()
            debt.sign = now
        known = debt.ranges.get(of)
        if known is not None:
            first, last, spreads = min(known[0], first), max(known[1], last), spreads or known[2]
        elif len(debt.ranges) >= DEBTS_A_PEER or self._count >= DEBTS_MAX:
            reason = "too much that was completed without members of which they have not heard"
            self._out.append(Note(Dropped("missed", 1, reason)))
            if not debt.ranges:
                del self._debts[peer]
            return
        else:
            self._count += 1
        debt.ranges[of] = (first, last, spreads)
        self._tell_at(debt, now)

    def _tell_at(self, debt: _Debt, now: Micros) -> None:
        debt.wait, debt.at = DIAL_AGAIN, now
        self.deadline = min(self.deadline, now)

    def forgive(self, peer: Peer) -> list[LinkState]:
        """It need not hear of anything any more. Returns what the planes may know of its link."""
        debt = self._debts.pop(peer, None)
        if debt is None:
            return []
        self._count -= len(debt.ranges)
        if not debt.is_held:
            return []
        return [LinkState.UP, LinkState.FULL] if debt.is_full else [LinkState.UP]

    # ------------------------------------------------------------------ inputs

    def link(self, peer: Peer, state: LinkState, now: Micros) -> bool:
        """A link has changed; returns whether the planes may know."""
        if state is LinkState.UP:
            self.links[peer] = None
        elif state is LinkState.DOWN or state is LinkState.CUT:
            self.links.pop(peer, None)
        debt = self._debts.get(peer)
        if debt is None:
            return True
        was_held = debt.is_held
        if state is LinkState.UP:
            debt.is_held, debt.is_full = True, False
            debt.told.clear()
            debt.sign = now
            self._tell_at(debt, now)
            return False
        if state is LinkState.DOWN or state is LinkState.CUT:
            debt.is_held = False
            self._tell_at(debt, now)
        elif state is LinkState.MOVING:
            debt.sign = now
        else:
            debt.is_full = state is LinkState.FULL
        return not was_held

    def heard(self, sender: Peer, message: Heard) -> list[LinkState]:
        """A peer has heard; returns what the planes may know of its link now."""
        debt = self._debts.get(sender)
        of = message.topic, message.publisher, message.incarnation
        known = debt.ranges.get(of) if debt is not None else None
        if debt is None or known is None or known[0] != message.first:
            return []
        # More has been added by now, which is told next.
        if known[1] > message.last:
            debt.ranges[of] = (message.last + 1, *known[1:])
            debt.at = self.deadline = Micros(0)
            return []
        del debt.ranges[of]
        self._count -= 1
        return [] if debt.ranges else self.forgive(sender)

    def receive(self, sender: Peer, message: Missed, now: Micros) -> bool:
        """Events were completed without this node; returns whether that is news."""
        of = message.topic, message.publisher, message.incarnation
        is_own = message.publisher == sender
        if message.first > message.last or not (message.spreads or is_own):
            self._out.append(Note(Rejected(hex_peer(sender), "a false word of missed events")))
            return False
        self._out.append(Send((sender,), Heard(*of, message.first, message.last)))
        if message in self._known:
            return False
        if message.spreads and not self.lacks(
            message.publisher, message.incarnation, message.first, message.last
        ):
            return False
        self._known[message] = None
        if len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
        for peer in self.links if message.spreads else ():
            if peer != sender:
                self._owe(peer, of, message.first, message.last, True, now)
        return True

    def wake(self, now: Micros) -> None:
        for peer, debt in list(self._debts.items()):
            if debt.at > now:
                continue
            if peer not in self.links:
                debt.sign = now
                debt.at = Micros(now + debt.wait)
                debt.wait = Micros(min(2 * debt.wait, DIAL_AGAIN_MAX))
                if address := self._address(peer):
                    self._out.append(Dial(address, peer))
            elif now - debt.sign >= PATIENCE:
                debt.sign = now
                debt.at = Micros(now + PATIENCE)
                self._out.append(Note(Rejected(hex_peer(peer), "does not report", cut=True)))
            else:
                debt.at = Micros(debt.sign + PATIENCE)
                for of, (first, last, spreads) in debt.ranges.items():
                    if debt.told.get(of) != (first, last, spreads):
                        debt.told[of] = (first, last, spreads)
                        self._out.append(Send((peer,), Missed(*of, first, last, spreads)))
        self.deadline = min([debt.at for debt in self._debts.values()], default=NEVER)
