"""Trees in the simulator: on every ring, under joins, leaves, failures and loss."""

from __future__ import annotations

import pytest

from gossamer.lab.tree.checkers import at_rest, deliveries, ring
from gossamer.lab.tree.config import Setup
from gossamer.lab.tree.run import TreeRun
from gossamer.sim.rules import Cut

# All of it together takes seconds.
pytestmark = pytest.mark.slow

DHTS = ("ideal", "view", "chord")


def grown(setup: Setup, step: float = 0.05) -> TreeRun:
    run = TreeRun(setup)
    for _ in range(setup.hosts):
        run.join(run.free_key())
        run.wait(step)
    assert run.until(run.quiet, setup.seconds_max) is not None
    return run


def shake(run: TreeRun, rounds: int, share: float) -> None:
    """Publish while hosts are replaced; the first five stay."""
    publishers = list(run.up.values())[:5]
    safe = {key for key, node in run.up.items() if node in publishers}
    for number in range(rounds):
        run.publish(publishers[number % len(publishers)])
        for _ in range(int(len(run.up) * share + run.rng.random())):
            others = [key for key in run.up if key not in safe]
            run.stop(others[run.below(len(others))], leave=run.rng.random() < 0.5)
            run.join(run.free_key())
        run.wait(0.2)


@pytest.mark.parametrize("dht", DHTS)
@pytest.mark.parametrize("filters", ["all", "mix"])
def test_one_copy_a_host_and_exact_receipts_in_calm(dht: str, filters: str) -> None:
    run = grown(Setup(hosts=24, dht=dht, filters=filters, seed=2))
    assert at_rest(run) == []
    copies = run.copies
    for node in list(run.up.values())[:10]:
        run.publish(node)
        run.wait(0.1)
    assert run.until(run.quiet, 20) is not None
    assert deliveries(run) == []
    matched = sum(event.matched for event in run.book.history.events)
    assert run.book.expected == run.book.delivered == matched
    # Never more than one for each host.
    assert run.copies - copies <= 10 * 23
    if filters == "all":
        assert run.copies - copies == 10 * 23


@pytest.mark.parametrize("dht", DHTS)
def test_nothing_is_lost_or_repeated_while_hosts_come_go_and_fail(dht: str) -> None:
    run = grown(Setup(hosts=24, dht=dht, filters="mix", seed=5))
    shake(run, 20, 0.03)
    assert run.until(run.quiet, 60) is not None
    assert deliveries(run) == []
    assert at_rest(run) == []


@pytest.mark.slow
@pytest.mark.parametrize("dht", DHTS)
def test_nor_when_a_tenth_of_all_messages_is_lost(dht: str) -> None:
    run = grown(Setup(hosts=20 if dht == "chord" else 40, dht=dht, filters="mix", seed=6, loss=0.1))
    shake(run, 30, 0.03)
    assert run.until(run.quiet, 120) is not None
    assert deliveries(run) == []
    assert at_rest(run) == []
    assert run.world.counts["loss"] > 100


@pytest.mark.parametrize("rooting", ["zero", "seed"])
@pytest.mark.parametrize("arity", [2, 4])
def test_any_reference_tree_will_do(rooting: str, arity: int) -> None:
    run = grown(Setup(hosts=20, key_bits=8, arity=arity, rooting=rooting, seed=3))
    shake(run, 10, 0.04)
    assert run.until(run.quiet, 30) is not None
    assert at_rest(run) == []
    assert deliveries(run) == []


@pytest.mark.parametrize("hosts", [1, 2, 3])
@pytest.mark.parametrize("dht", DHTS)
def test_small_trees(dht: str, hosts: int) -> None:
    run = grown(Setup(hosts=hosts, dht=dht, seed=1))
    run.publish(next(iter(run.up.values())))
    assert run.until(run.quiet, 20) is not None
    assert deliveries(run) == []
    assert run.book.expected == run.book.delivered == hosts


def test_after_a_partition_two_rings_become_one_ring_and_one_tree() -> None:
    run = grown(Setup(hosts=16, dht="chord", filters="mix", seed=3), 0.3)
    cut = Cut(tuple(node.index for node in list(run.up.values())[::2]))
    run.world.cut(cut)
    run.wait(40)
    assert len(run.lists().rings()) == 2
    run.world.heal(cut)
    assert run.until(lambda: run.quiet() and not ring(run), 120) is not None
    for node in list(run.up.values())[:6]:
        run.publish(node)
    assert run.until(run.quiet, 60) is not None
    assert at_rest(run) == []
    assert deliveries(run) == []


def test_unsubscribing_restores_what_was_covered() -> None:
    run = grown(Setup(hosts=8, seed=4, filters="mix"))
    keys = list(run.up)
    wide, narrow = run.machine(run.up[keys[0]]), run.machine(run.up[keys[1]])
    for host in (run.machine(node) for node in run.up.values()):
        host.unsubscribe(1, run.world.clock.now)
    narrow.subscribe(2, "weather", "temp > 30", run.world.clock.now)
    wide.subscribe(2, "weather", "temp > 10", run.world.clock.now)
    for node in run.up.values():
        run.world.command(node)
    assert run.until(run.quiet, 20) is not None
    assert at_rest(run) == []
    tables = [t for key in keys[2:] for t in run.machine(run.up[key]).routes.tables.values()]
    assert any(t is not None and t.wishes == (("weather", "temp > 10"),) for t in tables)
    wide.unsubscribe(2, run.world.clock.now)
    run.world.command(run.up[keys[0]])
    assert run.until(run.quiet, 20) is not None
    run.wait(2)
    assert at_rest(run) == []
    assert any(
        t is not None and t.wishes == (("weather", "temp > 30"),)
        for t in run.machine(run.up[keys[2]]).routes.tables.values()
    )


def test_the_same_seed_gives_the_same_run() -> None:
    def digest(seed: int) -> str:
        run = grown(Setup(hosts=10, dht="chord", seed=seed, loss=0.05))
        shake(run, 5, 0.05)
        return run.world.digest.hexdigest()

    assert digest(1) == digest(1)
    assert digest(1) != digest(2)
