"""Rules and barriers for the connections that messages travel on: rules judge, and barriers stop.

A connection is a stream, as TCP gives it. So nothing here loses, repeats or reorders a single
message of a connection that stays up. A rule is asked about each message that is sent. It may say
that the message is late (and with it everything behind it), that the connection breaks there and
then, or that the sender's queue is full. A barrier is there for a while. Messages that are sent
through it wait until the barrier is gone, or are lost with the connection. Rules and barriers count
how often they fired, because a fault that never fires tests nothing.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from gossamer.sim.network import Link, Packet

# Verdicts. With PASS the next rule is asked. A number above 0 is a delay in microseconds.
PASS = 0
# The connection breaks with this message on its way.
BREAK = -1
# The queue is full, and the message goes back to its sender.
REFUSE = -2
# The first retransmission time-out below a stream. Each further one is twice as long.
RESEND = 200_000
# A connection on which nothing gets through for this long is given up.
SILENCE = 10_000_000


class Rule(Protocol):
    """A rule is asked about each message. The first rule that does not pass decides."""

    name: str
    fired: int

    def judge(self, link: Link, packet: Packet) -> int: ...


class Loss:
    """Packets are lost with this chance, below the stream.

    The stream repairs it. The message, and everything behind it, is late by a retransmission
    time-out, which doubles each time. A connection that does not get a packet through within
    ``SILENCE`` breaks.
    """

    name = "loss"

    def __init__(self, chance: float, rng: Random) -> None:
        self._chance, self._rng, self.fired = chance, rng, 0

    def judge(self, link: Link, packet: Packet) -> int:
        late, timeout = 0, RESEND
        while self._rng.random() < self._chance:
            late += timeout
            timeout *= 2
            if late > SILENCE:
                return BREAK
        return late


class Delay:
    """Each message is late with this chance, by at most this time, and all messages behind
    it wait.
    """

    name = "delay"

    def __init__(self, chance: float, most: int, rng: Random) -> None:
        self._chance, self._most, self._rng, self.fired = chance, most, rng, 0

    def judge(self, link: Link, packet: Packet) -> int:
        if self._rng.random() >= self._chance:
            return PASS
        return 1 + int(self._most * self._rng.random())


class Breaks:
    """With this chance for each message the connection breaks while the message is on its way."""

    name = "breaks"

    def __init__(self, chance: float, rng: Random) -> None:
        self._chance, self._rng, self.fired = chance, rng, 0

    def judge(self, link: Link, packet: Packet) -> int:
        return BREAK if self._rng.random() < self._chance else PASS


class Refusals:
    """With this chance an event message finds the queue full, because others have filled it."""

    name = "refuse"

    def __init__(self, chance: float, rng: Random) -> None:
        self._chance, self._rng, self.fired = chance, rng, 0

    def judge(self, link: Link, packet: Packet) -> int:
        return REFUSE if packet.is_event and self._rng.random() < self._chance else PASS


class Barrier(Protocol):
    """Nothing gets through it while it is there."""

    name: str
    fired: int

    def stops(self, sender: int, to: int) -> bool: ...


class Cut:
    """A partition: nothing gets from one side to the other.

    This holds in both directions unless ``one_way``.
    """

    name = "partition"

    def __init__(self, side: tuple[int, ...], *, one_way: bool = False) -> None:
        self.side, self.one_way, self.fired = dict.fromkeys(side), one_way, 0

    def crosses(self, sender: int, to: int) -> bool:
        return (sender in self.side) != (to in self.side)

    def stops(self, sender: int, to: int) -> bool:
        return self.crosses(sender, to) and not (self.one_way and sender not in self.side)


class Clog:
    """Everything to and from these nodes is held, then comes in one burst."""

    name = "clog"

    def __init__(self, nodes: tuple[int, ...]) -> None:
        self.nodes, self.fired = dict.fromkeys(nodes), 0

    def stops(self, sender: int, to: int) -> bool:
        return sender in self.nodes or to in self.nodes


class Narrow:
    """Each link to and from these nodes carries a certain number of bytes a second.

    Control messages go first, as over a socket. What waits fills the link's event queue.
    """

    name = "narrow"

    def __init__(self, nodes: tuple[int, ...], rate: int) -> None:
        self.nodes, self.rate, self.fired = dict.fromkeys(nodes), rate, 0

    def concerns(self, sender: int, to: int) -> bool:
        return sender in self.nodes or to in self.nodes
