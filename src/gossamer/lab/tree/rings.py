"""Chord alone in the simulator: hosts that join, fail and meet, and Zave's invariants at every
step.

Her proof assumes that failures are noticed rightly and that none breaks the invariant. So
``RingRun.may_fail`` asks first whether the invariant would survive, and every verdict here comes
from a link that cannot be had, which is true when nothing is cut.
"""

from __future__ import annotations

from random import Random
from typing import Any, cast

from gossamer.lab.tree.chord import Chord
from gossamer.lab.tree.codec import TreeCodec
from gossamer.lab.tree.config import Setup
from gossamer.lab.tree.zave import Lists, Watch
from gossamer.machine import Effect, LinkState, Micros, Peer, Token
from gossamer.overlay.tree.arcs import Host
from gossamer.overlay.tree.config import TreeConfig
from gossamer.overlay.tree.links import Links
from gossamer.sim.scenario import Scenario
from gossamer.sim.world import Node


def address(index: int) -> str:
    return f"host-{index}"


class RingHost:
    """Chord and its links as one machine."""

    def __init__(
        self, me: Host, config: TreeConfig, rng: Random, contacts: tuple[Host, ...]
    ) -> None:
        self._out: list[Effect] = []
        self.links = Links(me.to, config, self._out)
        self.chord = Chord(me, config, self.links, rng, contacts)
        self.links.kept = self.chord.known

    @property
    def deadline(self) -> Micros:
        return min(self.links.deadline, self.chord.deadline)

    def receive(self, sender: Peer, message: Any, now: Micros) -> list[Effect]:
        self.chord.receive(sender, message, now)
        return self._flush(now)

    def wake(self, now: Micros) -> list[Effect]:
        self.links.wake(now)
        self.chord.wake(now)
        return self._flush(now)

    def link(self, peer: Peer, state: LinkState, now: Micros) -> list[Effect]:
        self.links.link(peer, state, now)
        self.chord.link(peer, state, now)
        return self._flush(now)

    def stored(self, token: Token, now: Micros) -> list[Effect]:
        return []

    def _flush(self, now: Micros) -> list[Effect]:
        while self.links.failed:
            self.chord.failed(self.links.failed.pop(0), now)
        out = self._out.copy()
        self._out.clear()
        return out


class RingRun(Scenario[Setup]):
    """``watch``, when it is on, looks at the invariants after every step at which a list has
    changed.
    """

    codec = TreeCodec
    step = 250_000

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.config, self.watch = setup.protocol(), Watch()
        # By key, those that are up.
        self.hosts: dict[int, Node] = {}
        self._contacts: dict[int, tuple[Host, ...]] = {}
        # By index.
        self._host: dict[int, Host] = {}

    # ---------------------------------------------------------------------- hosts

    def add(self, key: int, contacts: tuple[int, ...] = ()) -> Node:
        """Start a host that knows the hosts with these keys; the first of a ring knows nobody."""
        index = len(self.world.nodes)
        peer = Peer((index + 1) * 0x9E3779B97F4A7C15 % 2**64)
        self._host[index] = Host(key, peer, address(index))
        self._contacts[index] = tuple(self._host[self.hosts[known].index] for known in contacts)
        node = self.world.add_node(peer, address(index))
        self.hosts[key] = node
        self.world.boot(node)
        return node

    def fail(self, key: int) -> None:
        node = self.hosts.pop(key)
        self.world.crash(node)

    def host(self, key: int) -> Host:
        return self._host[self.hosts[key].index]

    def chord(self, key: int) -> Chord:
        return cast(RingHost, self.hosts[key].machine).chord

    def meet(self, one: int, other: int) -> None:
        self.chord(one).meet(self.host(other), self.world.clock.now)
        self.world.command(self.hosts[one])

    def make(self, node: Node) -> RingHost:
        rng = Random(f"host {self.setup.seed} {node.index}")
        return RingHost(self._host[node.index], self.config, rng, self._contacts[node.index])

    # ---------------------------------------------------------------------- looks

    def lists(self) -> Lists:
        return Lists.of(
            {key: self.chord(key).successors for key in self.hosts if self.chord(key).member},
            self.config.successors,
        )

    def may_fail(self, key: int) -> bool:
        """Whether the invariant would survive the failure of this host, now or while messages
        arrive.
        """
        if not self.chord(key).member:
            return False
        return self.lists().without(key).holds()

    def members(self) -> list[int]:
        return sorted(key for key in self.hosts if self.chord(key).member)

    def ideal(self) -> bool:
        """Everybody is a member, lists and predecessors are those of the whole."""
        keys = sorted(self.hosts)
        if self.members() != keys or not self.lists().ideal():
            return False
        for place, key in enumerate(keys):
            before = self.chord(key).predecessor
            if before is None or before.key != keys[place - 1]:
                return False
        return True

    def until_ideal(self, seconds: float) -> float | None:
        """How long it took, in virtual seconds; None: not in time."""
        return self.until(self.ideal, seconds)

    def called(self, node: Node) -> None:
        if node.machine is not None:
            self.watch.look(cast(RingHost, node.machine).chord, self.lists, self.world.clock.now)


def ring_setup(seed: int, **given: Any) -> Setup:
    """Chord alone."""
    return Setup(
        seed=seed, hosts=1, dht="chord", latency="uniform:1ms:20ms", detect="50ms", **given
    )


def assumed(seed: int, turns: int = 30) -> tuple[int, list[str]]:
    """A ring as her proof assumes it, and what became of it: steps looked at, and complaints.

    More than r members from the start, true verdicts, no failure that would break the invariant;
    joins and failures at once.
    """
    rng = Random(f"assumed {seed}")
    run = RingRun(ring_setup(seed, key_bits=16, successors=2 + int(rng.random() * 3)))
    successors = run.config.successors
    while len(run.hosts) < successors + 2 + int(rng.random() * 6):
        key = int(rng.random() * 2**16)
        if key not in run.hosts:
            run.add(key, tuple(run.hosts))
            run.wait(0.5)
    if run.until_ideal(60) is None:
        return 0, ["the ring has not formed"]
    run.watch.on = True
    for _ in range(turns):
        run.wait(rng.random())
        members = run.members()
        key = members[int(rng.random() * len(members))]
        if rng.random() < 0.5:
            if len(members) > successors + 2 and run.may_fail(key):
                run.fail(key)
        elif (new := int(rng.random() * 2**16)) not in run.hosts:
            run.add(
                new,
                tuple(dict.fromkeys(members[int(rng.random() * len(members))] for _ in range(4))),
            )
    for key in [key for key in run.hosts if not run.chord(key).member]:
        # Those that it knows may have died before it could join.
        run.fail(key)
    if run.until_ideal(60) is None:
        run.watch.complaints.append("the ring is not ideal a minute after the last change")
    return run.watch.looked, run.watch.complaints
