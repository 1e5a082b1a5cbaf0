"""Rings: the three properties of section 3 on every provider, and Chord's invariants."""

from __future__ import annotations

from random import Random

import pytest

from gossamer.lab.tree.rings import RingRun, assumed, ring_setup
from gossamer.lab.tree.zave import Lists
from gossamer.machine import Micros
from gossamer.overlay.tree.arcs import Host, Keys, between, within
from gossamer.overlay.tree.ring import IdealRing, Members, ViewRing
from gossamer.sim.rules import Cut

BITS = 10


def ideal(keys: list[int]):
    members = Members(BITS, [Host(key, key + 1) for key in keys])
    return {key: IdealRing(members.hosts[key], members) for key in keys}


def view(keys: list[int]):
    hosts = [Host(key, key + 1) for key in keys]
    rings = {host.key: ViewRing(host, BITS) for host in hosts}
    for ring in rings.values():
        for host in hosts:
            assert ring.learn(host)
            assert not ring.learn(host)
    return rings


def chord(keys: list[int]):
    run = RingRun(ring_setup(len(keys), key_bits=BITS, successors=3))
    for place, key in enumerate(keys):
        run.add(key, tuple(keys[max(0, place - 3) : place]))
        run.wait(0.3)
    assert run.until_ideal(60) is not None
    # Fingers.
    run.wait(20)

    class Asked:
        def __init__(self, key: int) -> None:
            self.chord, self.arc = run.chord(key), run.chord(key).arc
            self.node = run.hosts[key]

        def lookup(self, key: int, now: Micros):
            arc = self.chord.lookup(key, run.world.clock.now)
            for _ in range(100):
                if arc is not None:
                    break
                run.world.command(self.node)
                run.wait(0.05)
                for found, answer in self.chord.found:
                    arc = answer if found == key else arc
                self.chord.found.clear()
            return arc

    return {key: Asked(key) for key in keys}


@pytest.mark.parametrize("make", [ideal, view, chord])
@pytest.mark.parametrize("count", [1, 2, 3, 5, 14])
def test_the_three_properties(make, count: int) -> None:
    rng = Random(count)
    keys = list(dict.fromkeys(int(rng.random() * 2**BITS) for _ in range(count)))
    rings = make(keys)
    # 1 and 2: the keys of each host are one arc, and the arcs tile the ring without overlap.
    arcs = {key: ring.arc for key, ring in rings.items()}
    assert all(arc is not None and arc.high == key for key, arc in arcs.items())
    assert Keys(BITS, [arc.piece for arc in arcs.values()]).full
    assert sum((arc.high - arc.low - 1) % 2**BITS + 1 for arc in arcs.values()) == 2**BITS
    # 3: each host knows its own keys, as everybody else finds them.
    for asking in keys[:4]:
        for _ in range(6):
            key = int(rng.random() * 2**BITS)
            found = rings[asking].lookup(key, Micros(0))
            assert found == next(arc for arc in arcs.values() if arc.has(key))


def test_a_view_forgets_and_settles_quarrels_over_a_key_alike_everywhere() -> None:
    one, other = Host(5, 10), Host(5, 20)
    forward, backward = ViewRing(Host(1, 1), 4, [Host(1, 1)]), ViewRing(Host(1, 1), 4, [Host(1, 1)])
    assert forward.learn(one)
    assert not forward.learn(other)
    assert backward.learn(other)
    assert backward.learn(one)
    assert forward.members.hosts == backward.members.hosts
    for ring in (forward, backward):
        assert ring.forget(one)
        assert not ring.forget(one)
        assert ring.members.hosts[5] == other, (
            "it has claimed the key as well, whoever was heard of first"
        )
        moved = Host(5, 20, "elsewhere")
        assert ring.learn(moved)
        assert ring.forget(moved)
        assert ring.arc is not None
        assert ring.arc.piece == (1, 1)
    assert forward.learn(one)
    assert not forward.learn(other)
    assert not forward.forget(other)
    assert forward.forget(one)
    assert 5 not in forward.members.hosts


def test_between_and_within_go_round() -> None:
    assert within(14, 1, 2)
    assert within(14, 15, 2)
    assert within(14, 2, 2)
    assert not within(14, 14, 2)
    assert not within(14, 7, 2)
    assert within(3, 3, 3)
    assert within(3, 9, 3)
    assert between(14, 1, 2)
    assert not between(14, 2, 2)
    assert between(3, 4, 3)
    assert not between(3, 3, 3)


def test_pieces_tile_when_they_do() -> None:
    cover = Keys(4, [(14, 2), (6, 9)])
    assert cover.pieces() == ((6, 9), (14, 2))
    assert [key for key in range(16) if cover.has(key)] == [0, 1, 2, 7, 8, 9, 15]
    assert cover.missing().pieces() == ((2, 6), (9, 14))
    assert cover.common(Keys(4, [(0, 7)])).pieces() == ((0, 2), (6, 7))
    assert cover.holds(Keys(4, [(15, 1)]))
    assert not cover.holds(Keys(4, [(15, 3)]))
    for piece in cover.missing().pieces():
        cover.add(piece)
    assert cover.full
    assert not cover.missing()
    assert cover.pieces() == ((15, 15),)


# Zave.


def test_the_invariants_see_what_is_wrong() -> None:
    good = {key: [(key + 1) % 6, (key + 2) % 6] for key in range(6)}
    assert Lists(good, 2).complaints() == []
    assert Lists(good, 2).ideal()
    assert any("OneLiveSuccessor" in text for text in Lists(good | {3: [8, 9]}, 2).complaints())
    # Everybody skips somebody: two rings.
    skipping = {key: [(key + 2) % 6, (key + 4) % 6] for key in range(6)}
    complaints = Lists(skipping, 2).complaints()
    assert any("SufficientPrincipals" in text for text in complaints)
    assert any("one ring" in text for text in complaints)
    assert any("ordered lists" in text for text in Lists(good | {1: [3, 2]}, 2).complaints())


@pytest.mark.parametrize("seed", range(4))
def test_zaves_invariants_hold_at_every_step_when_her_assumptions_do(seed: int) -> None:
    looked, complaints = assumed(seed)
    assert looked > 50
    assert complaints == []


@pytest.mark.parametrize("seed", [4, 5])
def test_with_loss_the_ring_is_right_once_faults_stop(seed: int) -> None:
    rng = Random(seed)
    run = RingRun(ring_setup(seed, key_bits=16, successors=4, loss=0.1))
    keys = sorted({int(rng.random() * 2**16) for _ in range(14)}, key=lambda _: rng.random())
    for place, key in enumerate(keys):
        run.add(key, tuple(keys[max(0, place - 3) : place]))
        run.wait(0.3)
    for key in keys[3:6]:
        run.wait(3)
        run.fail(key)
    run.world.network.rules.clear()
    assert run.until_ideal(60) is not None
    assert run.lists().complaints() == []


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_small_rings_shrink_to_one(count: int) -> None:
    run = RingRun(ring_setup(count, key_bits=8, successors=4))
    keys = [10, 200, 100, 50][:count]
    for place, key in enumerate(keys):
        run.add(key, tuple(keys[:place]))
        run.wait(1)
    assert run.until_ideal(30) is not None
    for key in keys[1:]:
        run.fail(key)
        assert run.until_ideal(30) is not None
    assert run.chord(10).arc.piece == (10, 10)


def test_two_rings_that_meet_become_one() -> None:
    rng = Random(9)
    run = RingRun(ring_setup(9, key_bits=20, successors=3))
    halves = [list(dict.fromkeys(int(rng.random() * 2**20) for _ in range(12))) for _ in range(2)]
    for keys in halves:
        for place, key in enumerate(keys):
            run.add(key, tuple(keys[max(0, place - 3) : place]))
            run.wait(0.3)
    run.wait(30)
    assert len(run.lists().rings()) == 2
    run.meet(halves[0][0], halves[1][0])
    assert run.until_ideal(20) is not None
    assert len(run.lists().rings()) == 1


def test_a_partition_leaves_two_rings_and_they_find_each_other_when_it_ends() -> None:
    rng = Random(3)
    run = RingRun(ring_setup(3, key_bits=20, successors=3))
    keys = list(dict.fromkeys(int(rng.random() * 2**20) for _ in range(20)))
    for place, key in enumerate(keys):
        run.add(key, tuple(keys[max(0, place - 3) : place]))
        run.wait(0.3)
    assert run.until_ideal(60) is not None
    # Fingers.
    run.wait(20)
    side = tuple(run.hosts[key].index for key in keys[::2])
    cut = Cut(side)
    run.world.cut(cut)
    run.wait(60)
    assert sorted(map(len, run.lists().rings())) == [10, 10]
    run.world.heal(cut)
    assert run.until_ideal(60) is not None
    assert run.lists().complaints() == []
