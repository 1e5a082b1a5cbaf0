"""Links break in any order.

Once all is mended, every link is up at both ends and carries messages.
"""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from gossamer.machine import Message, Micros, Peer
from gossamer.sim.latency import Uniform
from gossamer.sim.rules import Clog, Cut
from gossamer.sim.world import Node, World
from sim.toy import Sign, Toy, Word, keeps_the_contract, run, say, sessions, states, toy_world

NODES = 3
actions = st.tuples(
    st.sampled_from(
        [
            "crash",
            "restart",
            "pause",
            "resume",
            "cut",
            "one-way",
            "heal",
            "clog",
            "unclog",
            "break",
            "say",
            "say",
            "wait",
        ]
    ),
    st.integers(0, NODES - 1),
    st.integers(0, 200_000),
)


class Breaker:
    def __init__(self) -> None:
        self.lives: list[Toy] = []
        self.said = 0
        self.world: World = toy_world(
            NODES, queue_mark=2, make=self._make, latency=Uniform(1_000, 30_000)
        )
        self.cuts: dict[int, Cut] = {}
        self.clogs: dict[int, Clog] = {}

    def _make(self, node: Node) -> Toy:
        self.lives.append(Toy(node))
        return self.lives[-1]

    def act(self, verb: str, index: int, wait: int) -> None:
        world, node = self.world, self.world.nodes[index]
        if verb in ("crash", "restart", "pause", "resume"):
            getattr(world, verb)(node)
        elif verb in ("cut", "one-way") and index not in self.cuts:
            self.cuts[index] = Cut((index,), one_way=verb == "one-way")
            world.cut(self.cuts[index])
        elif verb == "heal" and index in self.cuts:
            world.heal(self.cuts.pop(index))
        elif verb == "clog" and index not in self.clogs:
            self.clogs[index] = Clog((index,))
            world.clog(self.clogs[index])
        elif verb == "unclog" and index in self.clogs:
            world.unclog(self.clogs.pop(index))
        elif verb == "say" and node.machine is not None and not node.paused:
            for other in range(NODES):
                if other != index:
                    for kind in (Word, Sign, Word):
                        self.said += 1
                        node.machine.say(world, node, other, message=kind(self.said))
        elif verb == "break":
            world.network.sever(world.network.links[index][Peer((index + 1) % NODES)].pair)
        if wait:
            until = Micros(world.clock.now + wait)
            run(world, until)
            world.clock.now = until

    def sessions(self, one: int, other: int, verb: str) -> list[list[Message]]:
        """Of all lives of a node, with another."""
        logs = [life.log.get(other, []) for life in self.lives if life.index == one]
        return [session for log in logs for session in sessions(log, verb)]

    def mend(self) -> None:
        for index in range(NODES):
            for verb in ("restart", "resume", "heal", "unclog"):
                self.act(verb, index, 0)
        run(self.world, self.world.clock.now + 10_000_000)


@settings(max_examples=200, deadline=None)
@given(st.lists(actions, max_size=25))
# A clog went while the link was broken. The link survived, and the messages that the clog had held
# never came.
@example([("one-way", 1, 0), ("clog", 0, 0), ("say", 0, 0), ("say", 0, 0), ("unclog", 0, 1110)])
def test_all_is_mended(steps: list[tuple[str, int, int]]) -> None:
    breaker = Breaker()
    for step in steps:
        breaker.act(*step)
    breaker.mend()
    world = breaker.world
    assert world.network.settled()
    assert world.network.in_flight_events == 0
    for one in range(NODES):
        for other in range(NODES):
            assert keeps_the_contract(
                breaker.sessions(one, other, "sent"), breaker.sessions(other, one, "heard")
            )
    for node in world.nodes:
        told: dict[int, list[str]] = {}
        for _, peer, state in node.machine.links:
            told.setdefault(peer, []).append(state)
        for history in told.values():
            assert_regular(history)
        assert states(world, node.index).count("UP") >= NODES - 1
        node.machine.heard.clear()
    for one in range(NODES):
        for other in range(NODES):
            if one != other:
                say(world, one, other, 100 + one)
    run(world, world.clock.now + 1_000_000)
    for node in world.nodes:
        assert sorted(number for _, _, number in node.machine.heard) == [
            100 + n for n in range(NODES) if n != node.index
        ]


def assert_regular(told: list[str]) -> None:
    """UP and DOWN alternate. FULL and READY alternate, and only while the link is UP.

    At the end it is UP and READY.
    """
    up = full = False
    for state in told:
        if state in ("UP", "DOWN"):
            assert (state == "UP") != up, told
            up, full = state == "UP", False
        else:
            assert up, told
            assert (state == "FULL") != full, told
            full = state == "FULL"
    assert up, told
    assert not full, told
