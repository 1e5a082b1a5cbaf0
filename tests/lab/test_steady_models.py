"""The vectorised models agree with the graph link by link, with the tree host by host, and with
full simulations.
"""

from __future__ import annotations

import pytest

pytest.importorskip("numpy")

import numpy as np

from gossamer.lab.interest import model as interest
from gossamer.lab.interest.config import Setup as InterestSetup
from gossamer.lab.interest.measure import cold_start, settle
from gossamer.lab.interest.run import InterestRun, Trail
from gossamer.lab.tree import model as tree
from gossamer.lab.tree.config import Setup as TreeSetup
from gossamer.lab.tree.measure import grow
from gossamer.lab.tree.steady import Rest
from gossamer.machine import Peer
from gossamer.overlay.interest import graph
from gossamer.overlay.tree.arcs import Host
from gossamer.overlay.tree.config import TreeConfig
from gossamer.overlay.tree.reference import make_tree
from gossamer.overlay.tree.ring import Members


@pytest.mark.parametrize(
    ("nodes", "k"),
    [
        (2, 6),
        (5, 3),
        (15, 3),
        (16, 3),
        (40, 3),
        (90, 4),
        (120, 5),
        (31, 6),
        (200, 6),
        (150, 7),
        (60, 1),
    ],
)
def test_the_same_graph_link_by_link(nodes: int, k: int) -> None:
    peers = interest.draw_peers(nodes, seed=nodes)
    place = {int(peer): at for at, peer in enumerate(peers)}
    real = graph.edges([Peer(int(peer)) for peer in peers], k)
    wanted = sorted((place[one], place[other]) for one, others in real.items() for other in others)
    assert sorted(map(tuple, interest.Overlay(peers, k).links().tolist())) == wanted


def test_the_reach_of_a_pick_is_the_graphs() -> None:
    for size, k in ((16, 3), (100, 4), (1_000, 6), (300, 8)):
        real = graph.Graph(k)
        real.add_all(Peer(number) for number in range(1, size + 1))
        assert interest.reach(size, k) == real._reach()


@pytest.mark.slow
def test_rounds_and_copies_of_a_change_are_the_simulations() -> None:
    """With equal links and no waiting for company, news comes by the shortest way.

    This holds for every node, every hop and every copy.
    """
    run = InterestRun(
        InterestSetup(nodes=40, k=3, topics=40, subscriptions=3, coalesce="0s", seed=5)
    )
    assert cold_start(run) is not None
    assert settle(run)
    peers = np.array(sorted(node.peer for node in run.world.nodes), dtype=np.uint64)
    overlay = interest.Overlay(peers, 3)
    place = {int(peer): at for at, peer in enumerate(peers)}
    for _ in range(4):
        node = run.random_node()
        assert node is not None
        before = run.received()[0]
        record = node.machine.record  # type: ignore[union-attr]
        trail = run.trail = Trail(
            node.peer, record.life, record.version + 1, node.index, run.world.clock.now
        )
        run.change(node)
        run.wait(1.0)
        run.trail = None
        rounds = overlay.rounds(place[node.peer])
        found = {place[run.world.nodes[index].peer]: hops for index, hops in trail.hops.items()}
        assert [found[at] for at in range(40)] == rounds.tolist()
        assert run.received()[0] - before == overlay.copies(rounds).sum()


def test_when_nodes_fail_only_those_who_are_left_hear() -> None:
    ring = interest.Overlay(interest.draw_peers(10, 1), 2)
    alive = np.ones(10, dtype=bool)
    alive[[2, 7]] = False
    heard = ring.rounds(4, alive)
    # Two failures cut a ring.
    assert np.flatnonzero(heard >= 0).tolist() == [3, 4, 5, 6]
    assert (interest.Overlay(interest.draw_peers(50, 1), 4).rounds(0, None) >= 0).all()


@pytest.mark.parametrize(
    ("hosts", "bits"),
    [(1, 8), (2, 8), (3, 4), (16, 4), (40, 6), (64, 6), (120, 8), (256, 8), (300, 64)],
)
def test_the_same_tree_host_by_host(hosts: int, bits: int) -> None:
    keys = tree.draw_keys(hosts, seed=hosts, bits=bits)
    assert len(keys) == hosts
    members = Members(bits)
    for place, key in enumerate(keys.tolist()):
        members.add(Host(key, place))
    rest = Rest(make_tree(TreeConfig(bits=bits)), members)
    model = tree.Tree(keys, bits)
    place = {key: at for at, key in enumerate(keys.tolist())}
    real = [place.get(rest.links[key][0], -1) for key in keys.tolist()]  # type: ignore[arg-type]
    assert model.parent.tolist() == real
    assert sorted(model.depth.tolist()) == sorted(rest.depths())
    assert rest.degrees() == {
        at: int(count) for at, count in enumerate(np.bincount(model.degree)) if count
    }
    everybody = np.ones(hosts, dtype=bool)
    assert model.carries(hosts // 2, everybody)[1] == rest.flood(int(keys[hosts // 2]))[0]


def test_distances_and_relays_of_a_tree_against_a_walk() -> None:
    keys = tree.draw_keys(90, seed=3)
    model = tree.Tree(keys)
    near: dict[int, list[int]] = {at: [] for at in range(90)}
    for child, parent in enumerate(model.parent.tolist()):
        if parent >= 0:
            near[child].append(parent)
            near[parent].append(child)
    rng = np.random.Generator(np.random.PCG64(1))
    for _ in range(5):
        source, wants = tree.draw_event(rng, 90, 0.1)
        came, todo = {source: source}, [source]
        for at in todo:
            for other in near[at]:
                if other not in came:
                    came[other] = at
                    todo.append(other)
        far = dict.fromkeys(came, 0)
        for at in todo[1:]:
            far[at] = far[came[at]] + 1
        assert model.distances(source).tolist() == [far[at] for at in range(90)]
        touched = {source}
        for at in np.flatnonzero(wants).tolist():
            while at not in touched:
                touched.add(at)
                at = came[at]
        found, copies = model.carries(source, wants)
        assert set(np.flatnonzero(found).tolist()) == touched
        assert copies == len(touched) - 1


def test_the_tree_of_a_full_simulation_is_the_models() -> None:
    run = grow(TreeSetup(hosts=60, key_bits=16, seed=4))
    keys = np.array(sorted(run.up), dtype=np.uint64)
    model = tree.Tree(keys, 16)
    found = run.neighbours()
    assert [found[key][0] for key in keys.tolist()] == [
        None if parent < 0 else int(keys[parent]) for parent in model.parent.tolist()
    ]
