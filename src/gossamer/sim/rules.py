"""What may happen to a message on its way: rules that judge, verdicts that the network carries out.

Rules are asked in order and the first verdict that is not ``PASS`` wins, so each fault is a small class of its own and a
test can write one in five lines. Every rule counts how often it fired: a fault that never fires tests nothing.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from gossamer.sim.network import Link, Packet


class Pass(Struct, frozen=True):
    """No opinion: the next rule is asked."""


class Drop(Struct, frozen=True):
    """Lost on the way."""


class Hold(Struct, frozen=True):
    """Kept back until the link is released."""


class Carry(Struct, frozen=True):
    """One copy for each of these delays, on top of the latency; they may overtake and be overtaken."""

    delays: tuple[int, ...]


class Queue(Struct, frozen=True):
    """Behind what is on its way over the link already, at so many bytes a second."""

    rate: int


Verdict = Pass | Drop | Hold | Carry | Queue
PASS, DROP, HOLD = Pass(), Drop(), Hold()


class Rule(Protocol):
    name: str
    fired: int

    def judge(self, link: Link, packet: Packet) -> Verdict: ...


class Loss:
    """Each message is lost with this chance."""

    name = "loss"

    def __init__(self, chance: float, rng: Random) -> None:
        self._chance, self._rng, self.fired = chance, rng, 0

    def judge(self, link: Link, packet: Packet) -> Verdict:
        return DROP if self._rng.random() < self._chance else PASS


class Duplication:
    """Each message arrives twice with this chance, the second copy a little later."""

    name = "duplicate"

    def __init__(self, chance: float, delay: int, rng: Random) -> None:
        self._chance, self._delay, self._rng, self.fired = chance, delay, rng, 0

    def judge(self, link: Link, packet: Packet) -> Verdict:
        if self._rng.random() >= self._chance:
            return PASS
        return Carry((0, int(self._delay * self._rng.random())))


class Reordering:
    """Each message is late with this chance, and those behind it overtake it."""

    name = "reorder"

    def __init__(self, chance: float, delay: int, rng: Random) -> None:
        self._chance, self._delay, self._rng, self.fired = chance, delay, rng, 0

    def judge(self, link: Link, packet: Packet) -> Verdict:
        if self._rng.random() >= self._chance:
            return PASS
        return Carry((1 + int(self._delay * self._rng.random()),))


class Cut:
    """A partition: messages from one side to the other are lost, in both directions unless ``one_way``."""

    name = "partition"

    def __init__(self, side: tuple[int, ...], *, one_way: bool = False) -> None:
        self.side, self.one_way, self.fired = dict.fromkeys(side), one_way, 0

    def crosses(self, sender: int, to: int) -> bool:
        return (sender in self.side) != (to in self.side)

    def judge(self, link: Link, packet: Packet) -> Verdict:
        if not self.crosses(link.sender, link.to) or (
            self.one_way and link.sender not in self.side
        ):
            return PASS
        return DROP


class Clog:
    """Everything to and from these nodes is held, then comes in one burst."""

    name = "clog"

    def __init__(self, nodes: tuple[int, ...]) -> None:
        self.nodes, self.fired = dict.fromkeys(nodes), 0

    def judge(self, link: Link, packet: Packet) -> Verdict:
        return HOLD if link.sender in self.nodes or link.to in self.nodes else PASS


class Narrow:
    """Each link to and from these nodes carries a certain number of bytes a second.

    Control messages go first, as over a socket. What waits fills the link's event queue.
    """

    name = "narrow"

    def __init__(self, nodes: tuple[int, ...], rate: int) -> None:
        self.nodes, self.fired = dict.fromkeys(nodes), 0
        self._verdict = Queue(rate)

    def judge(self, link: Link, packet: Packet) -> Verdict:
        return self._verdict if link.sender in self.nodes or link.to in self.nodes else PASS
