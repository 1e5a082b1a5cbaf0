"""Links that machines open and close themselves."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.machine import Dial, Hangup, Micros, Peer
from gossamer.sim.latency import Constant
from gossamer.sim.rules import SILENCE, Cut
from gossamer.sim.world import Node, Probe, World
from sim.toy import Toy, ToyCodec, Word, run, say, states

DETECT = 100_000


def dialled_world(nodes: int, seed: int = 1) -> World:
    world = World(
        seed=seed,
        make=Toy,
        codec=ToyCodec(),
        latency=Constant(1_000),
        probe=Probe(),
        detect=DETECT,
        queue_mark=4,
    )
    for index in range(nodes):
        world.add_node(Peer(index), f"node-{index}")
    world.start()
    return world


def dial(world: World, index: int, to: int | str) -> None:
    node = world.nodes[index]
    node.machine.out.append(Dial(f"node-{to}" if isinstance(to, int) else to))
    world.command(node)


def hang_up(world: World, index: int, to: int) -> None:
    node = world.nodes[index]
    node.machine.out.append(Hangup(Peer(to)))
    world.command(node)


def joined(world: World) -> World:
    dial(world, 0, 1)
    run(world)
    return world


def wait(world: World, micros: int) -> None:
    until = Micros(world.clock.now + micros)
    run(world, until)
    world.clock.now = until


def is_empty(world: World) -> bool:
    return not world.network.pairs() and not any(world.network.links)


def test_a_dial_takes_a_round_trip_and_both_ends_are_told() -> None:
    world = joined(dialled_world(3))
    assert [(at, peer, state) for at, peer, state in world.nodes[0].machine.links] == [
        (2_000, 1, "UP")
    ]
    assert [(at, peer, state) for at, peer, state in world.nodes[1].machine.links] == [
        (2_000, 0, "UP")
    ]
    assert states(world, 2) == []
    say(world, 0, 1, 7)
    say(world, 1, 0, 8)
    run(world)
    assert [number for _, _, number in world.nodes[1].machine.heard] == [7]
    assert [number for _, _, number in world.nodes[0].machine.heard] == [8]


def test_a_dial_for_somebody_who_is_not_there_makes_no_link() -> None:
    world = dialled_world(3)
    for expected in (Peer(2), Peer(1)):
        world.nodes[0].machine.out.append(Dial("node-1", expected))
        world.command(world.nodes[0])
        run(world)
        assert world.counts["dial of somebody else"] == 1
        assert states(world, 0) == states(world, 1) == ([] if expected == 2 else ["UP"])


def test_both_dial_at_once_and_there_is_one_link() -> None:
    world = dialled_world(2)
    dial(world, 0, 1)
    dial(world, 1, 0)
    run(world)
    dial(world, 1, 0)
    run(world)
    assert states(world, 0) == states(world, 1) == ["UP"]
    assert world.counts["dial needless"] == 2
    assert len(world.network.pairs()) == 1


def test_nobody_at_the_address() -> None:
    world = dialled_world(2)
    dial(world, 0, "nowhere")
    dial(world, 0, 0)
    world.crash(world.nodes[1])
    dial(world, 0, 1)
    run(world)
    assert states(world, 0) == []
    assert world.counts["dial unanswered"] == 2
    assert is_empty(world)


def test_who_dies_during_the_handshake_is_not_joined() -> None:
    for victim in (0, 1):
        world = dialled_world(2)
        dial(world, 0, 1)
        wait(world, 500)
        world.crash(world.nodes[victim])
        world.restart(world.nodes[victim])
        run(world)
        assert states(world, 0) == states(world, 1) == []


def test_a_partition_either_way_stops_a_dial_and_healing_joins_nothing() -> None:
    for one_way in (False, True):
        for side in (0, 1):
            world = dialled_world(2)
            cut = Cut((side,), one_way=one_way)
            world.cut(cut)
            dial(world, 0, 1)
            run(world)
            world.heal(cut)
            run(world)
            assert states(world, 0) == states(world, 1) == []


def test_hanging_up_lets_what_was_sent_before_arrive() -> None:
    world = joined(dialled_world(2))
    world.nodes[0].machine.out.append(Hangup(Peer(1)))
    # The hangup comes first, and this message finds no link.
    say(world, 0, 1, 1)
    assert world.nodes[0].machine.links[-1][2] == "DOWN"
    run(world)
    assert world.nodes[1].machine.heard == []
    world = joined(dialled_world(2))
    say(world, 0, 1, 1)
    say(world, 1, 0, 2)
    hang_up(world, 0, 1)
    run(world)
    assert [number for _, _, number in world.nodes[1].machine.heard] == [1]
    assert world.nodes[0].machine.heard == []
    assert states(world, 0) == states(world, 1) == ["UP", "DOWN"]
    assert is_empty(world)


def test_a_crash_is_noticed_and_a_lost_host_by_its_silence_or_when_it_is_back() -> None:
    world = joined(dialled_world(2))
    world.crash(world.nodes[1])
    wait(world, DETECT * 2)
    assert states(world, 0) == ["UP", "DOWN"]
    assert is_empty(world)
    world = joined(dialled_world(2))
    world.crash(world.nodes[1], silent=True)
    wait(world, SILENCE + 1)
    assert states(world, 0) == ["UP", "DOWN"]
    assert is_empty(world)
    world = joined(dialled_world(2))
    world.crash(world.nodes[1], silent=True)
    wait(world, DETECT * 10)
    say(world, 0, 1, 1)
    wait(world, DETECT * 10)
    assert states(world, 0) == ["UP"]
    world.restart(world.nodes[1])
    wait(world, DETECT * 10)
    assert states(world, 0) == ["UP"]
    # The host is back and knows nothing of this link.
    say(world, 0, 1, 2)
    run(world, world.clock.now + 10_000)
    assert states(world, 0) == ["UP", "DOWN"]
    assert is_empty(world)


def test_a_new_connection_takes_the_place_of_a_dead_one() -> None:
    for dialler in (0, 1):
        world = joined(dialled_world(2))
        world.crash(world.nodes[1], silent=True)
        world.restart(world.nodes[1])
        dial(world, dialler, 1 - dialler)
        run(world)
        assert states(world, 0) == ["UP", "DOWN", "UP"]
        assert states(world, 1) == ["UP"]


def test_a_paused_process_is_dialled_and_hears_of_it_later() -> None:
    world = dialled_world(2)
    world.pause(world.nodes[1])
    dial(world, 0, 1)
    wait(world, 50_000)
    assert states(world, 0) == ["UP"]
    say(world, 0, 1, 5)
    wait(world, 50_000)
    assert states(world, 1) == []
    world.resume(world.nodes[1])
    assert states(world, 1) == ["UP"]
    assert [number for _, _, number in world.nodes[1].machine.heard] == [5]


def test_a_loud_partition_breaks_links_for_good() -> None:
    world = joined(dialled_world(2))
    cut = Cut((0,))
    world.cut(cut)
    wait(world, DETECT * 2)
    assert states(world, 0) == states(world, 1) == ["UP", "DOWN"]
    assert is_empty(world)
    world.heal(cut)
    wait(world, DETECT * 10)
    assert states(world, 0) == ["UP", "DOWN"]
    dial(world, 1, 0)
    run(world)
    assert states(world, 0) == ["UP", "DOWN", "UP"]


def test_a_partition_that_nobody_noticed_leaves_the_link() -> None:
    world = joined(dialled_world(2))
    cut = Cut((0,))
    world.cut(cut)
    wait(world, 1_000)
    world.heal(cut)
    wait(world, DETECT * 10)
    say(world, 0, 1, 3)
    run(world)
    assert states(world, 0) == ["UP"]
    assert [number for _, _, number in world.nodes[1].machine.heard] == [3]


def test_a_silent_partition_holds_and_a_farewell_gets_through_later() -> None:
    world = joined(dialled_world(2))
    cut = Cut((0,))
    world.cut(cut, silent=True)
    say(world, 0, 1, 3)
    hang_up(world, 0, 1)
    wait(world, DETECT * 10)
    assert states(world, 1) == ["UP"]
    world.heal(cut, silent=True)
    wait(world, DETECT * 10)
    assert states(world, 1) == ["UP", "DOWN"]
    assert world.nodes[1].machine.heard == []
    assert is_empty(world)


def test_a_wiped_node_forgets_its_disk_and_its_lives() -> None:
    world = dialled_world(1)
    node = world.nodes[0]
    node.machine.keep(world, node, 1, "x")
    run(world)
    world.crash(node)
    world.restart(node)
    assert (node.machine.restored, node.remembers) == ({"1/0": b"x"}, 1)
    world.crash(node)
    world.restart(node, wipe=True)
    assert (node.machine.restored, node.remembers, node.incarnation) == ({}, 0, 2)


class Restless(Toy):
    """Dials back whoever hangs up: what a machine may do from within being told."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.index = node.index

    def link(self, peer, state, now):  # type: ignore[no-untyped-def]
        super().link(peer, state, now)
        if state.name == "DOWN" and len(self.links) < 20:
            return [Dial(f"node-{peer}")]
        return [Hangup(peer)] if state.name == "UP" and self.index == 0 else []


def test_a_machine_may_dial_and_hang_up_while_it_is_told() -> None:
    world = World(
        seed=1,
        make=Restless,
        codec=ToyCodec(),
        latency=Constant(1_000),
        probe=Probe(),
        detect=DETECT,
    )
    for index in range(2):
        world.add_node(Peer(index), f"node-{index}")
    world.start()
    dial(world, 0, 1)
    run(world)
    for index in range(2):
        told = states(world, index)
        assert told == ["UP", "DOWN"] * (len(told) // 2)
    assert is_empty(world)


NODES = 3
actions = st.tuples(
    st.sampled_from(
        [
            "crash",
            "lose",
            "restart",
            "pause",
            "resume",
            "cut",
            "silent",
            "one-way",
            "heal",
            "say",
            "dial",
            "hang",
            "wait",
        ]
    ),
    st.integers(0, NODES - 1),
    st.integers(0, 200_000),
)


@settings(max_examples=80, deadline=None)
@given(st.lists(actions, max_size=30))
def test_whatever_happens_the_ends_agree_in_the_end(steps: list[tuple[str, int, int]]) -> None:
    world = dialled_world(NODES)
    cuts: dict[int, tuple[Cut, bool]] = {}
    for verb, index, pause in steps:
        node, other = world.nodes[index], (index + 1 + pause % (NODES - 1)) % NODES
        awake = node.machine is not None and not node.paused
        if verb in ("crash", "restart", "pause", "resume"):
            getattr(world, verb)(node)
        elif verb == "lose":
            world.crash(node, silent=True)
        elif verb in ("cut", "silent", "one-way") and index not in cuts:
            cuts[index] = (Cut((index,), one_way=verb == "one-way"), verb == "silent")
            world.cut(cuts[index][0], silent=cuts[index][1])
        elif verb == "heal" and index in cuts:
            cut, silent = cuts.pop(index)
            world.heal(cut, silent=silent)
        elif verb == "say" and awake:
            say(world, index, other, 1)
        elif verb == "dial" and awake:
            dial(world, index, other)
        elif verb == "hang" and awake:
            hang_up(world, index, other)
        wait(world, pause)
    for cut, silent in cuts.values():
        world.heal(cut, silent=silent)
    for node in world.nodes:
        world.resume(node)
        world.restart(node)
    wait(world, 2_000_000)
    for one in range(NODES):
        for other in range(NODES):
            if one != other:
                node = world.nodes[one]
                # It finds links whose far end is gone.
                node.machine.say(world, node, other, message=Word(9))
    wait(world, 2_000_000)
    for node in world.nodes:
        told: dict[int, list[str]] = {}
        for _, peer, state in node.machine.links:
            if state in ("UP", "DOWN"):
                told.setdefault(peer, []).append(state)
        for peer, history in told.items():
            assert history == (["UP", "DOWN"] * len(history))[: len(history)]
            believes = Peer(peer) in world.network.links[node.index]
            assert believes == (history[-1] == "UP")
            assert believes == (node.peer in world.network.links[peer])
    assert len(world.network.pairs()) * 2 == sum(map(len, world.network.links))
    assert world.network.in_flight_events == 0


class Needed(Toy):
    """Others need it for a while after it has said goodbye."""

    may_go = False

    def leave(self, now: Micros) -> None:
        self.left_at = now


def test_a_node_that_is_needed_goes_when_it_may() -> None:
    world = World(
        seed=1, make=Needed, codec=ToyCodec(), latency=Constant(1_000), probe=Probe(), detect=DETECT
    )
    node = world.add_node(Peer(0), "node-0")
    world.start()
    world.leave(node)
    wait(world, 500_000)
    assert node.machine is not None
    node.machine.may_go = True
    wait(world, 20_000)
    assert node.machine is None
    world.restart(node)
    # This time nobody lets it go.
    world.leave(node)
    wait(world, 1_000_000)
    world.leave(node)
    # It is to be back before it is gone.
    world.restart(node)
    assert node.incarnation == 1
    wait(world, 1_100_000)
    assert node.incarnation == 2
    assert node.machine is not None
    assert world.counts["leave"] == 2
    wait(world, 10_000_000)
    assert node.incarnation == 2
