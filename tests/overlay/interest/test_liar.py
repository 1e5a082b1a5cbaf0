"""One member of several lies: it forges, replays, withholds and exaggerates.

All nodes have keys. At every step each record that an honest node believes is one that its owner
has said, and no living node is taken for dead. The honest nodes agree while the liar goes on.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from gossamer.machine import Effect, LinkState, Message, Micros, Peer, Send
from gossamer.overlay.interest.core import Interest
from gossamer.overlay.interest.messages import (
    Beat,
    Diff,
    Flips,
    Gone,
    Have,
    Lone,
    News,
    OfferRecords,
    Suspicion,
)
from gossamer.overlay.interest.record import (
    LIFE_MAX,
    Known,
    apply,
    pack_entries,
    topic_hash,
)
from gossamer.overlay.proof import FAREWELL, RECORD
from gossamer.sim.keys import SimulatedKeys
from worldnet import Net, Place

KEYS = SimulatedKeys(11)
NODES, LIAR = 8, 5
# Lies for each call of the liar's machine.
LIES = 0.5
WITHHELD = 0.5


def keyed(kind: type[Interest], peer: Peer, **options: Any) -> Interest:
    rights = KEYS.rights(KEYS.identity(peer))
    machine = kind(peer, proof=KEYS.proof(rights), **options)
    machine.view.proves = rights.learn
    machine.certify(rights.me.certificate, Micros(0))
    return machine


class Liar(Interest):
    """It follows the protocol, and lies besides."""

    def __init__(self, me: Peer, **options: Any) -> None:
        super().__init__(me, **options)
        self.told = 0
        self._lies = Random(me)
        self._heard: deque[Message] = deque(maxlen=200)

    def receive(self, sender: Peer, message: Message, now: Micros) -> list[Effect]:
        self._heard.append(message)
        return self._bent(super().receive(sender, message, now))

    def wake(self, now: Micros) -> list[Effect]:
        return self._bent(super().wake(now))

    def link(self, peer: Peer, state: LinkState, now: Micros) -> list[Effect]:
        return self._bent(super().link(peer, state, now))

    def _bent(self, effects: list[Effect]) -> list[Effect]:
        rng = self._lies
        links = [peer for peer, link in self.links.items() if link.greeted]
        kept = [
            effect
            for effect in effects
            if not (isinstance(effect, Send) and isinstance(effect.message, News | Flips))
            or rng.random() >= WITHHELD
        ]
        if links and rng.random() < LIES:
            self.told += 1
            kept.append(Send((rng.choice(links),), self._lie()))
        return kept

    def _lie(self) -> Message:
        rng = self._lies
        peer = rng.choice([other for other in self.view.members if other != self.me] or [self.me])
        record = self.view.members[peer].record
        version = record.version + rng.choice((1, 1, 2, 1000))
        life = rng.choice((record.life, record.life, record.life + 1, LIFE_MAX))
        topic = topic_hash(rng.choice("abc"))
        changes = topic + rng.choice((bytes(4), b"\xff" * 4))
        after = replace(apply(record, version, changes), life=life)
        signature = self._proof.sign(RECORD, Known(after).said)
        gone = Gone(peer, life, rng.random() < 0.5)
        lone = Lone(peer, life, version, int.from_bytes(topic, "big"), rng.choice((-1, 0)))
        entries = pack_entries({peer: (life, version, rng.getrandbits(32))})
        lies: list[Message] = [
            Flips((lone,), signature),
            News(diffs=(Diff(peer, life, version, record.version, changes, signature),)),
            News(records=(replace(after, signature=signature),)),
            News(records=(replace(after, signature=record.signature),)),
            News(gone=(gone,)),
            News(gone=(replace(gone, signature=self._proof.sign(FAREWELL, gone.said)),)),
            News(suspicions=(Suspicion(peer, record.life, version, self.me, True),)),
            OfferRecords(entries),
            Have(1, b"\0", entries),
            Beat(rng.getrandbits(64), True),
        ]
        if self._heard:
            lies += [rng.choice(self._heard)] * 3
        return rng.choice(lies)


class World(Net):
    """Honest nodes, and one liar among them."""

    def __init__(self, seed: int) -> None:
        self.said: dict[Peer, dict[bytes, None]] = {}
        self.wrong: list[str] = []
        super().__init__(NODES, k=3, seed=seed, make=self._any, start=False)
        self.liar = self.peer(LIAR)
        self.after = self._check
        self.down: dict[Peer, None] = {}
        for number in range(NODES):
            self.start(number)

    def _any(self, peer: Peer, **options: Any) -> Interest:
        return keyed(Liar if peer == self.peer(LIAR) else Interest, peer, **options)

    @property
    def honest(self) -> list[Interest]:
        return [machine for machine in self.machines if machine.me != self.liar]

    def _check(self, place: Place) -> None:
        machine = place.machine
        if machine is None:
            return
        self.said.setdefault(machine.me, {})[Known(machine.record).said] = None
        if machine.me == self.liar:
            return
        for peer, known in machine.view.members.items():
            if peer not in (self.liar, machine.me) and known.said not in self.said.get(peer, ()):
                order = known.record.life, known.record.version
                self.wrong.append(f"{machine.me:x} believes {order} of {peer:x}")
        for change in place.changes:
            lives = change.peer != self.liar and change.peer not in self.down
            if change.after is None and lives:
                self.wrong.append(f"{machine.me:x} took {change.peer:x} for {change.reason}")
        place.changes.clear()

    @property
    def agree(self) -> bool:
        """Whether the honest nodes know the present record of each other."""
        now = {machine.me: machine.record for machine in self.honest}
        return all(
            {peer: known.record for peer, known in machine.view.members.items() if peer in now}
            == now
            for machine in self.honest
        )


@pytest.mark.parametrize("seed", range(12))
def test_honest_nodes_believe_nothing_of_a_liar_and_agree_all_the_same(seed: int) -> None:
    world, rng = World(seed), Random(f"users {seed}")
    world.until(lambda: world.agree, 30)
    others = [number for number in range(NODES) if number != LIAR]
    for _ in range(40):
        number, topic = rng.choice(others), rng.choice("abc")
        if rng.random() < 0.7:
            world.subscribe(number, topic)
        else:
            world[number].unsubscribe(topic, Micros(world.now))
        world.run(0.25)
    # A node crashes, and comes back without memory.
    number = rng.choice(others)
    world.down[world.peer(number)] = None
    world.crash(number)
    world.run(12)
    world.start(number)
    world.until(lambda: world.agree, 30)
    assert world.wrong == []
    liar: Any = world[LIAR]
    assert liar.told > 100
    assert sum(machine.counters["rejected"] for machine in world.honest) > 20
