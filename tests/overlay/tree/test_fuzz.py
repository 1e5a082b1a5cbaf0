"""Whatever peers say, a host does not raise, keeps its tables within their bounds, and does not
spin.
"""

from __future__ import annotations

from random import Random

import pytest

from gossamer.filters import Schema
from gossamer.lab.tree.chord import Chord
from gossamer.machine import Effect, LinkState, Micros
from gossamer.overlay.batch import Batch
from gossamer.overlay.delivery.engine import Arrive, Counts
from gossamer.overlay.tree.arcs import Arc, Host
from gossamer.overlay.tree.config import TreeConfig
from gossamer.overlay.tree.content import SchemaContent
from gossamer.overlay.tree.host import TreeHost
from gossamer.overlay.tree.links import Links
from gossamer.overlay.tree.maintain import EDGES_MAX
from gossamer.overlay.tree.messages import (
    Announce,
    Ask,
    Attach,
    Carry,
    Find,
    Laid,
    Met,
    Nearer,
    Notice,
    Notify,
    Occupied,
    Owner,
    Reached,
    State,
    Waits,
    Yield,
    Yielded,
)
from gossamer.overlay.tree.reference import make_tree
from gossamer.overlay.tree.ring import IdealRing, Members, Ring, ViewRing

BITS = 6
HOSTS = [Host(key, key * 10 + 1, f"host-{key}") for key in (3, 9, 17, 20, 33, 41, 50, 63)]
ME = HOSTS[3]


class Noise:
    """Draws messages: mostly plausible, so that they get far, with numbers that are near to right
    or far from it.
    """

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)

    def below(self, count: int) -> int:
        return int(self.rng.random() * count)

    def key(self) -> int:
        return self.below(1 << BITS) if self.rng.random() < 0.95 else 2 ** self.below(64)

    def small(self) -> int:
        return self.below(6) if self.rng.random() < 0.9 else 2 ** self.below(60)

    def host(self) -> Host:
        return (
            HOSTS[self.below(len(HOSTS))]
            if self.rng.random() < 0.8
            else Host(self.key(), self.key(), "elsewhere")
        )

    def pieces(self) -> tuple[tuple[int, int], ...]:
        return tuple((self.key(), self.key()) for _ in range(self.below(4)))

    def want(self) -> tuple[tuple[int, int], ...]:
        """Often the whole ring, as in first rounds."""
        return () if self.below(2) else self.pieces()

    def batch(self) -> Batch:
        publisher = self.host().peer
        return Batch(
            "t",
            publisher,
            1,
            self.small(),
            1 + self.below(2),
            self.small(),
            self.below(3),
            self.below(3),
            b"\x91\x91\x05",
        )

    def body(self, sender: Host):
        arc = Arc(self.key(), sender if self.rng.random() < 0.8 else self.host())
        some = bool(self.below(2))
        id = (self.host().peer, 1, self.small())
        wishes = tuple(
            ("t", text) for text in ("", "a > 3", "nonsense (") if self.rng.random() < 0.4
        )
        return (
            lambda: Attach(arc, some, bool(self.below(2))),
            lambda: Notice(some),
            lambda: Yield(arc),
            lambda: Yielded(),
            lambda: Announce(
                self.small(),
                self.pieces(),
                some and not self.below(4),
                bool(self.below(2)),
                some,
                wishes,
            ),
            lambda: Laid(self.small()),
            lambda: Carry(self.batch(), self.want()),
            lambda: Reached(
                id, self.below(3), self.want(), self.pieces(), (self.small(),) * self.below(3)
            ),
            lambda: Waits(id, self.below(3), self.want()),
        )[self.below(9)]()

    def message(self, sender: Host):
        if self.rng.random() < 0.35:
            hosts = tuple(self.host() for _ in range(self.below(4)))
            token = self.small()
            return (
                lambda: Find(token, self.key()),
                lambda: Owner(token, Arc(self.key(), self.host())),
                lambda: Nearer(token, hosts),
                lambda: Ask(token),
                lambda: State(token, self.host() if self.below(3) else None, hosts),
                lambda: Occupied(token),
                lambda: Notify(sender if self.below(4) else self.host()),
                lambda: Met(self.small(), self.host()),
            )[self.below(8)]()
        return self.body(sender)


def make(dht: str, arity: int, seed: int, arrive: Arrive, out: list[Effect]) -> TreeHost:
    config = TreeConfig(bits=BITS, arity=arity, successors=3)
    content = SchemaContent()
    content.learn("t", Schema.parse("a INT"))

    def ring(links: Links) -> Ring:
        if dht == "ideal":
            return IdealRing(ME, Members(BITS, HOSTS))
        return (
            ViewRing(ME, BITS, HOSTS)
            if dht == "view"
            else Chord(ME, config, links, Random(seed), (HOSTS[0], HOSTS[1]))
        )

    return TreeHost(ME, config, make_tree(config), ring, content, arrive, lambda *_: None, out)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("dht", ["ideal", "view", "chord"])
def test_noise(dht: str, seed: int) -> None:
    noise = Noise(seed)
    out: list[Effect] = []
    slow: list[tuple[int, int, int]] = []

    def arrive(batch: Batch, now: Micros, *_: object) -> Counts | None:
        if noise.below(2):
            return (1,) * batch.count
        slow.append((batch.publisher, batch.incarnation, batch.first))
        return None

    host = make(dht, (2, 2, 4)[seed % 3], seed, arrive, out)
    host.subscribe(1, "t", "a > 3", Micros(0))
    now, published = 0, 0
    others = [each for each in HOSTS if each != ME]
    handled: dict[type, int] = {}
    for table in (host._handlers, host._on_batches):
        for kind, handler in table.items():
            table[kind] = lambda *said, kind=kind, handler=handler: (
                handled.update({kind: handled.get(kind, 0) + 1}),
                handler(*said),
            )
    for each in others:
        host.link(each.to, LinkState.UP, Micros(0))
    for _ in range(2_000):
        now += noise.below(40_000)
        if host.deadline <= now:
            host.wake(Micros(now))
            # Else a driver would spin.
            assert host.deadline > now
        sender = others[noise.below(len(others))]
        chance = noise.rng.random()
        if chance < 0.04:
            state = (LinkState.UP, LinkState.UP, LinkState.DOWN, LinkState.CUT)[noise.below(4)]
            host.link(sender.to, state, Micros(now))
        elif chance < 0.06:
            host.publish(
                Batch("t", ME.peer, 1, published, 1, 0, 0, 0, b"\x91\x91\x05"), Micros(now)
            )
            published += 1
        elif chance < 0.1 and slow:
            host.engine.took(slow.pop(), (), Micros(now))
        else:
            host.receive(sender.to, noise.message(sender), Micros(now))
        out.clear()
        assert len(host.hood.edges) <= EDGES_MAX
        assert host.routes.own == {1: ("t", "a > 3")}
    assert host.ring.arc is None or host.ring.arc.high == ME.key
    assert len(handled) == 9
    assert min(handled.values()) > 20
    host.wake(Micros(now + 10_000_000))
