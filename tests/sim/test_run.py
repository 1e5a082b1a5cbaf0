from __future__ import annotations

import gzip
from pathlib import Path
from random import Random

import pytest

from gossamer.filters import FilterError
from gossamer.sim import Config, Workload, simulate
from gossamer.sim.faults import Clogging, Crash, FullDisk, Leave, Partition, Pause, Swizzle
from gossamer.sim.graph import neighbours

# All tests together take seconds.
pytestmark = pytest.mark.slow

WEATHER = Workload(
    "country STRING, temp INT",
    ("country = 'CH'", "temp > 30", "country = 'CH' AND temp > 30", "country LIKE 'D%'"),
    (
        {"country": "CH", "temp": 31},
        {"country": "DE", "temp": 5},
        {"country": None, "temp": 40},
        {"temp": 3},
    ),
)


def test_a_given_workload_is_delivered_exactly() -> None:
    outcome = simulate(Config(nodes=5, degree=2, seed=3), WEATHER)
    assert outcome.violations == []
    pairs = sorted(
        (delivery.event, delivery.filter, delivery.node) for delivery in outcome.deliveries
    )
    assert pairs == [(0, 0, 0), (0, 1, 1), (0, 2, 2), (1, 3, 3), (2, 1, 1)]
    assert (outcome.expected, outcome.delivered, outcome.missed) == (5, 5, 0)
    assert outcome.receipts_complete == 4
    # 1 ms a hop, and no queues.
    assert all(delivery.at == 1_000 * delivery.hops for delivery in outcome.deliveries)


def test_filters_are_dealt_out_to_the_nodes_in_turn() -> None:
    outcome = simulate(Config(nodes=2, seed=1), WEATHER)
    assert all(delivery.node == delivery.filter % 2 for delivery in outcome.deliveries)
    assert outcome.delivered == 5


def test_one_node_alone() -> None:
    outcome = simulate(Config(nodes=1), WEATHER)
    assert (outcome.delivered, outcome.copies, outcome.messages, outcome.hops_max) == (5, 0, 0, 0)
    assert outcome.good


def test_nothing_to_do() -> None:
    for workload in (
        Workload("a INT", (), ()),
        Workload("a INT", ("a = 1",), ()),
        Workload("a INT", (), ({"a": 1},)),
    ):
        outcome = simulate(Config(nodes=3), workload)
        assert outcome.violations == []
        assert outcome.delivered == 0


def test_a_bad_filter_in_the_workload_is_the_callers_error() -> None:
    with pytest.raises(FilterError, match="sise"):
        simulate(Config(nodes=2), Workload("size INT", ("sise = 1",), ()))


def test_loads_and_copies_add_up() -> None:
    outcome = simulate(Config(nodes=20, degree=4, events=30, subscriptions=40, seed=2))
    assert sum(load.received for load in outcome.loads) == outcome.copies
    assert sum(load.delivered for load in outcome.loads) == outcome.delivered
    assert sum(load.sent_bytes for load in outcome.loads) == outcome.bytes
    assert outcome.copies_per_delivery == pytest.approx(
        outcome.copies / outcome.delivered, abs=0.001
    )
    # Flood: every node gets every event over every link except the one on which it came, give or
    # take the publisher's own.
    assert outcome.copies >= 30 * 19
    # Every node hears of every event. Events that it did not ask for are noise.
    wanted = {}
    for delivery in outcome.deliveries:
        wanted.setdefault(delivery.node, {})[delivery.event] = None
    for load in outcome.loads:
        assert load.noise <= 30
        assert load.noise + len(wanted.get(load.node, ())) in range(20, 31)


def test_progress_goes_from_nothing_to_all() -> None:
    seen: list[float] = []
    simulate(Config(nodes=30, events=50, seed=1), progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


def test_a_seed_is_a_run() -> None:
    config = Config(nodes=12, events=20, loss=0.1, breaks=0.001, latency="weibull", seed=4)
    one, other = simulate(config), simulate(config)
    assert one == other
    assert (
        one.digest
        != simulate(
            Config(nodes=12, events=20, loss=0.1, breaks=0.001, latency="weibull", seed=5)
        ).digest
    )


def test_an_rtt_matrix_drives_the_latency(tmp_path: Path) -> None:
    path = tmp_path / "rtt.gz"
    path.write_bytes(gzip.compress(b"0 100 100\n100 0 100\n100 100 0\n"))
    outcome = simulate(Config(nodes=3, latency=f"matrix:{path}", seed=1), WEATHER)
    assert outcome.violations == []
    assert all(
        0 <= d.at <= 52_500 * 2 and (d.at >= 50_000) == (d.hops > 0) for d in outcome.deliveries
    )


@pytest.mark.parametrize(
    ("fault", "fired"),
    [
        (Partition(at="50ms", lasts="1s"), ("partition", "told down")),
        (Partition(at="50ms", lasts="1s", one_way=True), ("partition", "told down")),
        (Partition(at="50ms", lasts="1s", silent=True), ("partition",)),
        (Clogging(at="50ms", lasts="1s"), ("clog", "released")),
        (Swizzle(at="50ms", lasts="1s"), ("clog", "released")),
        (Crash(at="50ms", lasts="1s"), ("crash", "restart", "told down")),
        (Crash(at="50ms", lasts="0s", nodes=(3,)), ("crash", "told down")),
        (Leave(at="50ms", lasts="1s"), ("leave", "crash", "restart", "told down")),
        (Leave(at="50ms", lasts="0s", nodes=(3,)), ("leave", "crash", "told down")),
        (Pause(at="50ms", lasts="1s"), ("pause",)),
        (FullDisk(at="50ms", lasts="1s"), ("disk full", "refused")),
    ],
)
def test_every_fault_fires_and_is_survived(fault: Partition, fired: tuple[str, ...]) -> None:
    config = Config(
        nodes=10, degree=4, events=40, subscriptions=30, durable=True, faults=(fault,), seed=6
    )
    outcome = simulate(config)
    assert outcome.violations == []
    assert all(outcome.fired[name] > 0 for name in fired), outcome.fired


def test_churn_slow_consumers_and_small_windows() -> None:
    config = Config(
        nodes=3,
        events=60,
        burst=6,
        window=8,
        churn=20,
        buffer=2,
        consumer="80ms",
        interval="5ms",
        seed=9,
    )
    outcome = simulate(config)
    assert outcome.violations == []
    assert outcome.fired["churn"] > 10
    assert outcome.fired["publish waited"] > 0


@pytest.mark.parametrize(
    ("nodes", "degree"), [(1, 3), (2, 1), (3, 6), (10, 1), (10, 2), (50, 5), (200, 6)]
)
def test_the_graph_is_connected_and_has_its_degree(nodes: int, degree: int) -> None:
    edges = neighbours(nodes, degree, Random(nodes))
    assert len(dict.fromkeys(edges)) == len(edges)
    near: dict[int, list[int]] = {node: [] for node in range(nodes)}
    for a, b in edges:
        assert a < b
        near[a].append(b)
        near[b].append(a)
    reached, todo = {0: None}, [0]
    while todo:
        for other in near[todo.pop()]:
            if other not in reached:
                reached[other] = None
                todo.append(other)
    assert len(reached) == nodes
    assert max(map(len, near.values())) <= max(2, degree)
