"""Whatever peers send, a machine neither raises nor spins, and its tables stay within their
bounds.
"""

from __future__ import annotations

from itertools import pairwise
from random import Random

import msgspec
import pytest

from gossamer.machine import SECOND, LinkState, Message, Micros, Peer, Send
from gossamer.overlay.batch import Batch, Group
from gossamer.overlay.skiplist.config import SkipConfig
from gossamer.overlay.skiplist.core import SkipList
from gossamer.overlay.skiplist.messages import (
    Absent,
    Ack,
    Ahead,
    Ask,
    Beat,
    Busy,
    Carry,
    Covered,
    Gap,
    Gossip,
    Hit,
    Item,
    Join,
    Leave,
    Mark,
    Part,
    Report,
    Revoke,
    Revoked,
    SkiplistMessage,
    Told,
    Welcome,
)
from gossamer.overlay.skiplist.position import Position

PEERS = [Peer(number) for number in range(1, 6)]
KEYS = [bytes([number]) for number in range(0, 250, 10)]
_encode, _decode = msgspec.msgpack.encode, msgspec.msgpack.Decoder(SkiplistMessage).decode


class Nonsense:
    """Messages of the right types that say anything."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)

    def one_of(self, several: list) -> object:  # type: ignore[type-arg]
        return several[int(self.rng.random() * len(several))]

    def key(self) -> bytes:
        return self.one_of(KEYS)  # type: ignore[return-value]

    def at(self) -> Position:
        return self.key(), int(self.one_of(PEERS))  # type: ignore[call-overload]

    def some(self, most: int = 4) -> tuple[Position, ...]:
        return tuple(self.at() for _ in range(int(self.rng.random() * most)))

    def number(self, most: int = 4) -> int:
        return int(self.rng.random() * most)

    def marks(self) -> tuple[Mark, ...]:
        return tuple(
            Mark(self.key(), self.key(), self.at(), self.number(), self.number(2) == 1)
            for _ in range(self.number(3))
        )

    def group(self, publisher: int) -> Group:
        first = self.number(50)
        numbers = tuple(first + n * self.number(3) for n in range(self.number()))
        count = len(numbers) or 1 + self.number()
        return Group(
            "t", publisher, 1, first, count, self.number(9), self.number(3), self.number(4_000),
            b"x", b"", numbers,
        )  # fmt: skip

    def parts(self) -> tuple[Part, ...]:
        places = sorted({self.at() for _ in range(2 + self.number(6))})
        pairs = list(pairwise(places))[:: 1 + self.number(2)]
        return tuple(Part(low, high) for low, high in pairs) or (Part((b"a", 0), (b"b", 0)),)

    def message(self, sender: int) -> Message:
        mine = (self.key(), sender) if self.number(8) else self.at()
        items = (Item(mine, 0), *(Item(at, 1 + number) for number, at in enumerate(self.some(3))))
        bound = self.at() if self.number(2) else None
        low, high = self.at(), self.at()
        return self.one_of(  # type: ignore[return-value]
            [
                Gossip(
                    0, self.key(), self.number(4), items, self.some(3),
                    self.number(2) == 1, self.marks(),
                ),
                Beat(
                    0, self.key(), mine, self.at(), self.some() if self.number(2) else None,
                    self.number(2) == 1,
                ),
                Ack(0, self.key(), self.number(5), mine, self.some(3)),
                Join(0, self.at(), self.number(5), self.key() if self.number(2) else None, bound),
                Welcome(
                    0, self.key(), mine, self.some(), self.some(), self.some(), 3, True,
                    self.marks(),
                ),
                Leave(0, mine, self.at(), self.some()),
                Absent(0, mine),
                Carry(self.group(sender), self.parts(), True),
                Carry(self.group(sender), (Part(low, high, self.key(), bound),), False),
                Report(
                    0, int(PEERS[0]), 1, self.number(50), 0, low, (Covered(low, high, 1),),
                    (1,) * self.number(), (), (Gap(self.at(), self.at(), mine, self.number(9)),),
                ),
                Busy(0, int(PEERS[0]), 1, self.number(50), 0, low),
                Ask(0, self.number(9), self.parts(), b"x"),
                Told(
                    0, 1 + self.number(9), low, (Covered(low, high, 1),),
                    tuple(Ahead(int(self.one_of(PEERS)), one) for one in self.parts()),  # type: ignore[call-overload]
                    tuple(Hit(at, ((1, "x"),)) for at in self.some()),
                ),
                Revoke(0, mine, self.number(9)),
                Revoked(0, self.at(), self.number(9)),
            ]
        )  # fmt: skip


@pytest.mark.parametrize("ranges", ["cells", "entries"])
@pytest.mark.parametrize("k", [2, 3])
def test_nonsense_never_raises(k: int, ranges: str) -> None:
    nonsense = Nonsense(k)
    receipts: list[object] = []
    first = 1
    machine = SkipList(
        PEERS[0], incarnation=1, rng=Random(1), config=SkipConfig(k=k, ranges=ranges),
        arrive=lambda batch, now, numbers, done: (1,), complete=receipts.append,
        address=lambda peer: f"at-{peer}", contacts=lambda: PEERS,
    )  # fmt: skip
    now = Micros(0)
    for step in range(2_500):
        now = Micros(now + nonsense.number(SECOND // 2))
        chance = nonsense.number(40)
        peer = PEERS[1 + nonsense.number(4)]
        if chance == 0:
            effects = machine.link(peer, LinkState.DOWN, now)
        elif chance <= 3:
            effects = machine.link(peer, LinkState.UP, now)
        elif chance == 4 and len(machine.entries) < 6:
            key = next(key for key in KEYS if key not in machine.entries)
            machine.enter(key, now, b"\xf0" if nonsense.number(2) else None)
            effects = machine.wake(now)
        elif chance == 5 and len(machine.entries) > 1:
            machine.withdraw(next(iter(machine.entries)), now)
            effects = machine.wake(now)
        elif chance == 6:
            low = nonsense.key()
            batch = Batch("t", PEERS[0], 1, first, 3, first, 0, 0, b"y")
            looks = [[(low, low + bytes([5 + n % 2]))] for n in range(3)]
            machine.publish(batch, looks, lambda places: b"y" * len(places), now)
            first += 3
            machine.lookup([(low, low + b"\x05")], now)
            effects = machine.wake(now)
        else:
            effects = machine.receive(peer, nonsense.message(int(peer)), now)
        if machine.deadline <= now:
            effects = effects + machine.wake(now)
        assert machine.deadline > now, step
        for effect in effects:
            if isinstance(effect, Send):
                assert _decode(_encode(effect.message)) == effect.message
        for entry in machine.entries.values():
            assert len(entry.lefts) == len(entry.rights) == len(entry.out) == len(entry.times)
            assert all(link.at != entry.at for _, _, link in entry.links()), (
                "nobody is its own neighbour"
            )
            assert len(entry.successors) <= 64
    assert machine.counters["rejected"] > 20
