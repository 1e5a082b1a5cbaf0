"""The driver and its faults, seen through a toy machine. Every test also counts its fault."""

from __future__ import annotations

from random import Random

import pytest

from gossamer.machine import Effect, Message, Micros, Peer, Send
from gossamer.sim.latency import Uniform
from gossamer.sim.network import Link, Packet
from gossamer.sim.rules import RESEND, SILENCE, Breaks, Clog, Cut, Delay, Loss, Refusals
from gossamer.sim.world import BreachError, Node
from sim.toy import Sign, Toy, Word, heard, run, say, states, toy_world


def test_calm() -> None:
    world = toy_world(3)
    say(world, 0, 2, 1, 2, 3)
    run(world)
    assert world.nodes[2].machine.heard == [(1_000, 0, 1), (1_000, 0, 2), (1_000, 0, 3)]
    assert heard(world, 1) == []
    assert states(world, 0) == ["UP", "UP"]
    assert world.messages == 3
    assert world.bytes == world.nodes[0].sent_bytes == 9
    assert world.nodes[2].received == 3


def test_links_keep_order_even_when_latency_varies() -> None:
    world = toy_world(2, latency=Uniform(1_000, 50_000))
    say(world, 0, 1, *range(50))
    run(world)
    assert heard(world, 1) == list(range(50))


def test_control_messages_overtake_event_messages_and_nothing_overtakes_them() -> None:
    world = toy_world(2, latency=Uniform(1_000, 50_000))
    node = world.nodes[0]
    for number in range(100):
        node.machine.say(world, node, 1, message=(Sign if number % 2 else Word)(number))
    run(world)
    got = heard(world, 1)
    assert [number for number in got if number % 2] == list(range(1, 100, 2))
    assert [number for number in got if not number % 2] == list(range(0, 100, 2))
    assert got != list(range(100))
    for word in range(0, 100, 2):
        assert not word or got.index(word) > got.index(word - 1)


def test_lost_packets_make_a_message_late_and_all_behind_it() -> None:
    class Second(Loss):
        def judge(self, link: Link, packet: Packet) -> int:
            return super().judge(link, packet) if packet.message.number == 2 else 0

    class Once(Random):
        draws = 0

        def random(self) -> float:
            Once.draws += 1
            return 0.0 if Once.draws <= 2 else 1.0

    rule = Second(0.5, Once())
    world = toy_world(2, rule)
    say(world, 0, 1, 1, 2, 3)
    run(world)
    late = 1_000 + RESEND + 2 * RESEND
    assert world.nodes[1].machine.heard == [(1_000, 0, 1), (late, 0, 2), (late, 0, 3)]
    assert rule.fired == world.counts["loss"] == 1


def test_a_link_that_gets_nothing_through_breaks_and_both_ends_are_told() -> None:
    world = toy_world(2, Loss(1.0, Random(1)))
    say(world, 0, 1, 1)
    world.network.rules.clear()
    run(world)
    assert heard(world, 1) == []
    assert states(world, 0) == states(world, 1) == ["UP", "DOWN", "UP"]
    assert world.counts["severed"] == 1
    say(world, 0, 1, 2)
    run(world)
    assert heard(world, 1) == [2]


def test_loss_loses_nothing_of_a_link_that_stays_up() -> None:
    rule = Loss(0.3, Random(1))
    world = toy_world(2, rule)
    say(world, 0, 1, *range(1_000))
    run(world, 100_000_000)
    assert rule.fired > 250
    assert "severed" in world.counts or heard(world, 1) == list(range(1_000))
    world = toy_world(2, Delay(0.3, 5_000, Random(1)))
    say(world, 0, 1, *range(1_000))
    run(world)
    assert heard(world, 1) == list(range(1_000))
    assert 250 < world.counts["delay"] < 350


def test_a_break_leaves_a_prefix_at_each_end() -> None:
    prefixes = set()
    for seed in range(40):
        world = toy_world(2, seed=seed, latency=Uniform(1_000, 50_000), queue_mark=99)
        say(world, 0, 1, *range(20))
        say(world, 1, 0, *range(20))
        world.network.sever(world.network.pairs()[0])
        say(world, 0, 1, 20)
        run(world)
        for index in range(2):
            got = heard(world, index)
            assert got == list(range(len(got)))
            assert states(world, index) == ["UP", "DOWN", "UP"]
            prefixes.add(len(got))
    assert len(prefixes) > 8
    assert max(prefixes) < 21


def test_breaks_and_refusals_by_rule() -> None:
    world = toy_world(2, Breaks(0.02, Random(1)))
    for number in range(200):
        say(world, 0, 1, number)
        run(world, (number + 1) * 10_000)
    run(world)
    assert world.counts["breaks"] == world.counts["severed"] >= 2
    assert heard(world, 1) == sorted(heard(world, 1))
    world = toy_world(2, Refusals(0.1, Random(1)))
    for number in range(200):
        say(world, 0, 1, number)
        run(world, (number + 1) * 10_000)
    run(world)
    refused = [number for _, number in world.nodes[0].machine.refusals]
    assert len(refused) >= world.counts["refuse"] > 5
    assert sorted(heard(world, 1) + refused) == list(range(200))
    told = states(world, 0)
    assert told == ["UP"] + ["FULL", "READY"] * world.counts["refuse"]


def test_a_partition_loses_messages_breaks_links_and_heals() -> None:
    world = toy_world(4)
    cut = Cut((0, 1))
    world.cut(cut)
    # This message is lost.
    say(world, 0, 2, 1)
    # Both ends are on the same side.
    say(world, 0, 1, 2)
    run(world, 400_000)
    assert (heard(world, 2), heard(world, 1)) == ([], [2])
    assert cut.fired == world.counts["partition"] == 1
    assert states(world, 0) == ["UP", "UP", "UP", "DOWN", "DOWN"]
    assert world.counts["told down"] == 8
    say(world, 0, 2, 3)
    assert world.counts["unlinked"] == 1
    # Nodes that can talk know it.
    assert world.network.settled()
    world.heal(cut)
    assert not world.network.settled()
    run(world)
    say(world, 0, 2, 4)
    run(world)
    assert heard(world, 2) == [4]
    assert states(world, 2)[-2:] == ["UP", "UP"]
    assert world.network.settled()


def test_ends_notice_a_break_each_in_its_own_time() -> None:
    world = toy_world(2)
    world.cut(Cut((0,)))
    run(world)
    (first,), (second,) = (
        [at for at, _, state in node.machine.links if state == "DOWN"] for node in world.nodes
    )
    assert first != second
    assert all(50_000 <= at <= 150_001 for at in (first, second))


def test_a_partition_that_heals_before_anyone_noticed_keeps_the_connection() -> None:
    world = toy_world(2)
    cut = Cut((0,))
    world.cut(cut)
    say(world, 0, 1, 1)
    world.clock.call(10_000, lambda: world.heal(cut))
    run(world)
    assert states(world, 0) == states(world, 1) == ["UP"]
    # The message was late.
    assert heard(world, 1) == [1]
    say(world, 0, 1, 2)
    run(world)
    assert heard(world, 1) == [1, 2]


def test_a_one_way_partition_lets_the_other_way_through() -> None:
    world = toy_world(2)
    cut = Cut((0,), one_way=True)
    world.cut(cut, silent=True)
    say(world, 0, 1, 1)
    say(world, 1, 0, 2)
    run(world)
    assert (heard(world, 0), heard(world, 1)) == ([2], [])
    assert cut.fired == 1
    # The cut was silent, and nobody was told.
    assert states(world, 0) == ["UP"]
    world.heal(cut, silent=True)
    say(world, 0, 1, 3)
    run(world)
    assert heard(world, 1) == [1, 3]


def test_a_half_open_link_is_found_by_its_silence() -> None:
    world = toy_world(2)
    cut = Cut((0,), one_way=True)
    world.cut(cut, silent=True)
    say(world, 0, 1, 1)
    run(world, SILENCE - 1)
    assert states(world, 0) == states(world, 1) == ["UP"]
    run(world, SILENCE + 300_000)
    assert states(world, 0)[:2] == states(world, 1)[:2] == ["UP", "DOWN"]
    world.heal(cut, silent=True)
    run(world, 2 * SILENCE)
    assert heard(world, 1) == []


def test_a_clog_holds_then_releases_in_one_burst_in_order() -> None:
    world = toy_world(3)
    clog = Clog((1,))
    world.clog(clog)
    say(world, 0, 1, 1, 2, 3)
    say(world, 0, 2, 9)
    run(world, 500_000)
    assert (heard(world, 1), heard(world, 2)) == ([], [9])
    world.clock.call(600_000, lambda: world.unclog(clog))
    run(world)
    assert world.nodes[1].machine.heard == [(601_000, 0, 1), (601_000, 0, 2), (601_000, 0, 3)]
    assert clog.fired == world.counts["clog"] == world.counts["released"] == 3


def test_two_clogs_hold_until_the_second_is_gone() -> None:
    world = toy_world(2)
    one, other = Clog((0,)), Clog((1,))
    world.clog(one)
    world.clog(other)
    say(world, 0, 1, 1)
    world.unclog(one)
    run(world)
    assert heard(world, 1) == []
    world.unclog(other)
    run(world)
    assert heard(world, 1) == [1]


def test_a_full_queue_hands_back_events_only_and_is_ready_again() -> None:
    world = toy_world(2, queue_mark=4)
    clog = Clog((1,))
    world.clog(clog)
    say(world, 0, 1, *range(5))
    run(world, 10_000)
    say(world, 0, 1, *range(5, 9))
    world.nodes[0].machine.say(world, world.nodes[0], 1, message=Sign(99))
    assert states(world, 0) == ["UP", "FULL"]
    assert (world.counts["told full"], world.counts["full"]) == (1, 4)
    assert world.nodes[0].machine.refusals == [(1, 5), (1, 6), (1, 7), (1, 8)]
    world.unclog(clog)
    run(world)
    assert states(world, 0) == ["UP", "FULL", "READY"]
    assert heard(world, 1) == [0, 1, 2, 3, 4, 99]


def test_a_pause_queues_messages_and_time_passes() -> None:
    world = toy_world(2, queue_mark=2)
    sleeper = world.nodes[1]
    sleeper.machine.deadline = Micros(3_000)
    # This arms the timer.
    sleeper.machine.say(world, sleeper, 0, message=Sign(5))
    world.pause(sleeper)
    say(world, 0, 1, 1, 2, 3, 4)
    run(world, 20_000)
    assert heard(world, 1) == []
    assert states(world, 0) == ["UP", "FULL"]
    assert sleeper.machine.woken == [0]
    world.clock.call(30_000, lambda: world.resume(sleeper))
    run(world)
    assert sleeper.machine.heard == [(30_000, 0, 1), (30_000, 0, 2), (30_000, 0, 3), (30_000, 0, 4)]
    assert sleeper.machine.woken == [0, 30_000]
    assert states(world, 0) == ["UP", "FULL", "READY"]
    assert world.counts["pause"] == 1


def test_a_crash_loses_what_is_on_the_way_and_a_restart_has_the_disk() -> None:
    world = toy_world(3)
    victim = world.nodes[1]
    victim.machine.keep(world, victim, 1, "safe")
    run(world, 5_000)
    assert victim.machine.stored_tokens == [(1_000, 1)]
    victim.machine.keep(world, victim, 2, "a", "b", "c")
    say(world, 0, 1, 1)
    world.crash(victim)
    assert victim.machine is None
    run(world, 500_000)
    assert states(world, 0) == ["UP", "UP", "DOWN"]
    assert world.counts["closed"] == 1
    world.restart(victim)
    run(world)
    assert victim.machine.incarnation == 1
    assert next(iter(victim.machine.restored.items())) == ("1/0", b"safe")
    assert (
        list(victim.machine.restored)[1:]
        == ["2/0", "2/1", "2/2"][: len(victim.machine.restored) - 1]
    )
    assert world.counts["torn"] == 4 - len(victim.machine.restored)
    # Answers to an earlier life are not told to the next one.
    assert victim.machine.stored_tokens == []
    assert states(world, 1) == ["UP", "UP"]
    say(world, 0, 1, 2)
    run(world)
    assert heard(world, 1) == [2]
    assert (world.counts["crash"], world.counts["restart"]) == (1, 1)


def test_a_quick_restart_resets_the_connection_even_if_nobody_noticed() -> None:
    world = toy_world(2)
    world.crash(world.nodes[1])
    world.restart(world.nodes[1])
    run(world)
    assert states(world, 0) == ["UP", "DOWN", "UP"]
    assert states(world, 1) == ["UP"]


def test_what_a_dead_node_sent_still_arrives_until_the_break_is_noticed() -> None:
    world = toy_world(2)
    say(world, 0, 1, 1)
    world.crash(world.nodes[0])
    run(world)
    assert heard(world, 1) == [1]


def test_a_crash_within_a_partition_needs_both_to_end() -> None:
    world = toy_world(2)
    cut = Cut((0,))
    world.cut(cut)
    world.crash(world.nodes[1])
    run(world, 400_000)
    world.restart(world.nodes[1])
    run(world, 800_000)
    assert states(world, 1) == []
    world.heal(cut)
    run(world)
    assert states(world, 1) == ["UP"]
    assert states(world, 0) == ["UP", "DOWN", "UP"]


def test_a_full_disk_stores_nothing_until_there_is_room() -> None:
    world = toy_world(1)
    node = world.nodes[0]
    world.fill_disk(node)
    node.machine.keep(world, node, 1, "a")
    node.machine.keep(world, node, 2, "b")
    run(world, 100_000)
    assert node.machine.stored_tokens == []
    world.drain_disk(node)
    run(world)
    assert [token for _, token in node.machine.stored_tokens] == [1, 2]
    assert node.disk.contents == {"1/0": b"a", "2/0": b"b"}
    assert world.counts["disk full"] == 1


def test_a_timer_of_an_earlier_life_wakes_nobody() -> None:
    world = toy_world(2)
    node = world.nodes[0]
    node.machine.deadline = Micros(50_000)
    say(world, 0, 1, 1)
    world.crash(node)
    world.restart(node)
    run(world)
    assert node.machine.woken == []


# ----------------------------------------------------------------- the contract


def test_a_deadline_that_stands_still_is_a_breach() -> None:
    class Spinner(Toy):
        def wake(self, now: Micros) -> list[Effect]:
            self.deadline = now
            return []

    world = toy_world(1, make=Spinner)
    with pytest.raises(BreachError, match="spin"):
        world.command(world.nodes[0])


def test_raising_on_a_message_is_a_breach() -> None:
    class Fragile(Toy):
        def receive(self, sender: Peer, message: Word | Sign, now: Micros) -> list[Effect]:
            raise KeyError(message.number)

    world = toy_world(2, make=Fragile)
    say(world, 0, 1, 42)
    with pytest.raises(
        BreachError, match=r"node 1 raised on a Word: KeyError\(42\) \(receive, test_world.py:\d+\)"
    ):
        run(world)


def test_a_message_that_the_codec_changes_is_a_breach() -> None:
    class Wide(Message, frozen=True, array_like=True, tag=1):
        number: int
        more: int

    world = toy_world(2)
    with pytest.raises(BreachError, match="the codec turns into"):
        world.nodes[0].machine.say(world, world.nodes[0], 1, message=Wide(1, 2))


def test_a_message_that_the_codec_refuses_is_a_breach() -> None:
    class Broken(Message, frozen=True, array_like=True, tag=1):
        number: str

    world = toy_world(2)
    with pytest.raises(BreachError, match="cannot travel"):
        world.nodes[0].machine.say(world, world.nodes[0], 1, message=Broken("one"))


def test_what_is_no_effect_is_a_breach() -> None:
    world = toy_world(1)
    world.nodes[0].machine.out.append("hello")
    with pytest.raises(BreachError, match="no effect"):
        world.command(world.nodes[0])


def test_same_seed_same_digest() -> None:
    def digest(seed: int) -> str:
        world = toy_world(
            4, Loss(0.2, Random(seed)), seed=seed, latency=Uniform(1_000, 9_000), make=Chatter
        )
        run(world, 200_000)
        return world.digest.hexdigest()

    assert digest(1) == digest(1) != digest(2)


class Chatter(Toy):
    """Answers everything with the next number."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.deadline = Micros(1_000 * (1 + node.index))

    def wake(self, now: Micros) -> list[Effect]:
        super().wake(now)
        return [Send((Peer(peer),), Word(0)) for peer in range(4)]

    def receive(self, sender: Peer, message: Word | Sign, now: Micros) -> list[Effect]:
        return [Send((sender,), Word(message.number + 1))]
