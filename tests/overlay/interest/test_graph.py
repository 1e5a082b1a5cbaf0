"""The overlay's graph: exact connectivity, degrees, diameter and locality.

The judge of connectivity can say no.
"""

from __future__ import annotations

import math
from itertools import combinations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.lab.connectivity import degrees, diameter, is_connected_to_degree, vertex_connectivity
from gossamer.machine import Micros, Peer
from gossamer.overlay.interest.graph import SMALL, Graph, _mix, _peer, _place, _unmix, edges
from gossamer.overlay.interest.messages import Gone
from gossamer.overlay.interest.record import Record
from gossamer.overlay.interest.view import View

# All tests together take seconds.
pytestmark = pytest.mark.slow

Adjacency = dict[Peer, tuple[Peer, ...]]
PEERS = st.integers(0, 2**64 - 1).map(Peer)
ADVERSARIAL = {
    "consecutive": lambda i: i + 1,
    "multiples of 2^32": lambda i: (i + 1) << 32,
    "top bits only": lambda i: i << 50,
    "multiples of the hash's constant": lambda i: i * 0x9E3779B97F4A7C15 % 2**64,
}


def members(count: int, seed: int = 0) -> list[Peer]:
    rng = Random(f"{count} {seed}")
    return [Peer(rng.getrandbits(64)) for _ in range(count)]


def bound(count: int, k: int) -> int:
    return math.ceil(round(math.log(count) / math.log(k - 1), 9)) + 3


def pairs(adjacency: Adjacency) -> set[tuple[Peer, Peer]]:
    return {(a, b) for a, neighbours in adjacency.items() for b in neighbours if a < b}


def check(adjacency: Adjacency, k: int) -> None:
    for peer, neighbours in adjacency.items():
        assert list(neighbours) == sorted(set(neighbours))
        assert peer not in neighbours
        assert all(peer in adjacency[other] for other in neighbours)
    if len(adjacency) > k:
        assert is_connected_to_degree(adjacency, k)
        if k > 2:
            assert diameter(adjacency) <= bound(len(adjacency), k)
    else:
        assert all(len(neighbours) == len(adjacency) - 1 for neighbours in adjacency.values())


def view_of(peers: list[Peer], k: int, unreached: set[Peer]) -> View:
    view = View(k, members_max=1_000, pairs_max=1_000)
    for peer in peers:
        known = view.learn(Record(peer, 256, 1, "" if peer in unreached else f"node-{peer}"))
        assert known is not None
        view.put(known, Micros(0))
    return view


@pytest.mark.parametrize("k", [1, 2, 3, 6])
def test_members_that_nobody_can_dial_are_as_well_connected_though_no_two_of_them_are_linked(
    k: int,
) -> None:
    for count in (2, 7, 12, 40, 90):
        peers = members(count, k)
        for share in (0.1, 0.5, 0.95):
            unreached = set(peers[: min(int(share * count), count - 1)])
            view = view_of(peers, k, unreached)
            found = {peer: view.neighbours(peer) for peer in peers}
            assert not any(set(found[peer]) & unreached for peer in unreached)
            for peer, others in found.items():
                assert list(others) == sorted(set(others))
                assert all(peer in found[other] for other in others)
            assert is_connected_to_degree(found, min(k, count - len(unreached), count - 1))


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans(), st.booleans()), max_size=40))
def test_who_can_be_dialled_may_change(changes: list[tuple[int, bool, bool]]) -> None:
    peers = members(10)
    view, there, version = View(3, members_max=10, pairs_max=10), {}, 1
    for index, is_there, is_reached in changes:
        peer, version = peers[index], version + 1
        before = view.membership, peer in there, there.get(peer)
        if is_there:
            there[peer] = is_reached
            known = view.learn(
                Record(peer, version << 8, version, "somewhere" if is_reached else "")
            )
            assert known is not None
            view.put(known, Micros(0))
        elif there.pop(peer, None) is not None:
            view.remove(Gone(peer, version << 8, True), Micros(0))
        assert (view.membership > before[0]) == (before[1:] != (peer in there, there.get(peer)))
        right = view_of(list(there), 3, {peer for peer, reached in there.items() if not reached})
        assert [view.neighbours(peer) for peer in there] == [
            right.neighbours(peer) for peer in there
        ]


@pytest.mark.parametrize("k", range(1, 8))
def test_every_small_fabric_is_k_connected(k: int) -> None:
    for count in range(1, 41):
        for seed in range(2 if count > SMALL * k else 1):
            check(edges(members(count, seed), k), k)


@pytest.mark.parametrize("k", range(3, 9))
def test_both_sides_of_the_step_from_the_harary_graph(k: int) -> None:
    for count in (SMALL * k, SMALL * k + 1, SMALL * k + 2):
        for seed in range(4):
            check(edges(members(count, seed), k), k)


@pytest.mark.parametrize("k", [3, 4, 5, 6, 8])
def test_larger_fabrics_are_k_connected(k: int) -> None:
    for seed in range(3):
        check(edges(members(200, seed), k), k)


@pytest.mark.parametrize("k", [3, 6])
def test_a_thousand_members(k: int) -> None:
    adjacency = edges(members(1000), k)
    check(adjacency, k)
    least, mean, most = degrees(adjacency)
    assert least == k
    assert mean < k + (0.1 if k % 2 == 0 else 0.45)
    assert most <= k + 5


@pytest.mark.parametrize("name", ADVERSARIAL)
@pytest.mark.parametrize("k", [3, 4, 6])
def test_identifiers_need_not_be_random(name: str, k: int) -> None:
    for count in (SMALL * k + 1, 60, 200):
        adjacency = edges([Peer(ADVERSARIAL[name](i)) for i in range(count)], k)
        check(adjacency, k)
    # Those of the largest fabric, because the mean of a small one varies by itself.
    usual = edges(members(count), k)
    assert abs(degrees(adjacency)[1] - degrees(usual)[1]) < 0.25


def test_figure_2_of_the_seed() -> None:
    """N = 8, K = 3, and the six nodes left by any two that fail still reach each other."""
    adjacency = edges(members(8), 3)
    assert degrees(adjacency) == (3, 3.0, 3)
    assert vertex_connectivity(adjacency) == 3


@pytest.mark.parametrize("k", [3, 4, 5, 6, 7])
def test_up_to_five_k_members_no_graph_has_fewer_links(k: int) -> None:
    for count in range(k + 1, SMALL * k + 1):
        assert len(pairs(edges(members(count), k))) == (count * k + 1) // 2
        assert degrees(edges(members(count), k))[2] <= k + 1


def test_the_degree_is_bounded() -> None:
    for count in (31, 64, 100, 300):
        for seed in range(3):
            least, mean, most = degrees(edges(members(count, seed), 6))
            assert least >= 6
            assert mean <= 6 + 50 / count
            assert most <= 15


@pytest.mark.parametrize("k", [1, 2, 3, 6, 7])
@pytest.mark.parametrize("count", [2, 7, 20, 36, 150])
def test_what_a_node_sees_is_what_all_see(k: int, count: int) -> None:
    graph = Graph(k)
    graph.add_all(members(count))
    whole = graph.edges()
    assert {peer: graph.neighbours(peer) for peer in whole} == whole


@pytest.mark.parametrize("count", [3, 29, 30, 31, 100])
def test_a_stranger_is_told_what_it_would_be(count: int) -> None:
    *known, stranger = members(count)
    graph = Graph(6)
    graph.add_all(known)
    told = graph.neighbours(stranger)
    assert stranger not in graph
    assert len(graph) == count - 1
    assert told == edges([*known, stranger], 6)[stranger]


@given(
    st.lists(PEERS, max_size=80, unique=True), st.integers(1, 8), st.randoms(use_true_random=False)
)
@settings(max_examples=60, deadline=None)
def test_only_the_set_counts(peers: list[Peer], k: int, rng: Random) -> None:
    """The graph is the same in any order of joining, one by one or many at once."""
    keep = peers[: len(peers) * 3 // 4]
    steps = [*peers, *rng.sample(keep, len(keep) // 2)]
    rng.shuffle(steps)
    graph = Graph(k)
    for peer in steps:
        graph.add(peer)
    for peer in peers[len(keep) :]:
        graph.remove(peer)
        graph.remove(peer)
    assert len(graph) == len(keep)
    assert all((peer in graph) == (peer in keep) for peer in peers)
    bulk = Graph(k)
    bulk.add_all(keep[:5])
    bulk.add_all([*keep, *keep])
    assert graph.edges() == bulk.edges() == edges(reversed(keep), k)
    assert list(graph.edges()) == sorted(keep)


@pytest.mark.parametrize("k", [4, 5, 6])
def test_a_join_or_a_leave_changes_few_links(k: int) -> None:
    here, newcomers = members(200, 1), members(25, 2)
    graph = Graph(k)
    graph.add_all(here)
    before = pairs(graph.edges())
    changed = []
    for peer in newcomers:
        graph.add(peer)
        changed.append(len(before ^ pairs(graph.edges())))
        graph.remove(peer)
        assert pairs(graph.edges()) == before
    assert sum(changed) / len(changed) < 3 * k
    assert max(changed) < 8 * k


def test_the_step_keeps_ring_0() -> None:
    *few, last = members(SMALL * 6 + 1)
    kept = pairs(edges(few, 6)) & pairs(edges([*few, last], 6))
    assert len(kept) >= len(few) - 1


def test_connectivity_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Graph(0)


@given(st.integers(0, 2**64 - 1), st.integers(1, 5))
def test_the_hash_can_be_undone(peer: int, ring: int) -> None:
    assert _unmix(_mix(peer)) == peer == _peer(ring, _place(ring, peer))
    assert 0 <= _place(ring, peer) < 2**64


def test_plain_rings_fall_short_and_the_judge_says_so() -> None:
    """Three independent rings share links.

    Of twenty such graphs of 40 nodes, most are not 6-connected.
    """
    short = 0
    for seed in range(20):
        rng = Random(seed)
        linked: dict[int, dict[int, None]] = {node: {} for node in range(40)}
        for _ in range(3):
            ring = rng.sample(range(40), 40)
            for a, b in zip(ring, ring[1:] + ring[:1], strict=True):
                linked[a][b] = linked[b][a] = None
        adjacency = {node: tuple(others) for node, others in linked.items()}
        short += not is_connected_to_degree(adjacency, 6)
        assert is_connected_to_degree(adjacency, vertex_connectivity(adjacency))
    assert short > 10


def test_a_link_or_a_node_less_is_noticed() -> None:
    adjacency = edges(members(60), 6)
    node = next(node for node, neighbours in adjacency.items() if len(neighbours) == 6)
    other = adjacency[node][0]
    cut = {
        a: tuple(b for b in neighbours if {a, b} != {node, other})
        for a, neighbours in adjacency.items()
    }
    assert vertex_connectivity(adjacency) == 6
    assert vertex_connectivity(cut) == 5
    # Two triangles share a node.
    bridge = {
        0: (1, 2),
        1: (0, 2),
        2: (0, 1, 3, 4),
        3: (2, 4),
        4: (2, 3),
    }
    assert vertex_connectivity(bridge) == 1
    assert diameter(bridge) == 2
    assert vertex_connectivity({0: (1,), 1: (0,), 2: (3,), 3: (2,)}) == 0
    assert diameter({0: (1,), 1: (0,), 2: ()}) == -1


def by_hand(adjacency: dict[int, tuple[int, ...]]) -> int:
    """The fewest nodes whose loss leaves two parts, found by trying all.

    A complete graph ends at one node.
    """
    for count in range(len(adjacency) - 1):
        for gone in combinations(adjacency, count):
            left = [node for node in adjacency if node not in gone]
            seen = [left[0]]
            for node in seen:
                seen += [
                    other for other in adjacency[node] if other not in gone and other not in seen
                ]
            if len(seen) < len(left):
                return count
    return len(adjacency) - 1


@given(st.integers(2, 8), st.floats(0, 1), st.randoms(use_true_random=False))
@settings(max_examples=300, deadline=None)
def test_connectivity_agrees_with_trying_all(count: int, share: float, rng: Random) -> None:
    linked: dict[int, list[int]] = {node: [] for node in range(count)}
    for a, b in combinations(range(count), 2):
        if rng.random() <= share:
            linked[a].append(b)
            linked[b].append(a)
    adjacency = {node: tuple(others) for node, others in linked.items()}
    assert vertex_connectivity(adjacency) == by_hand(adjacency)
