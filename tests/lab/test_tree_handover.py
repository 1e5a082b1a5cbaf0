"""While the tree changes: links before unlinks, batches asked for again, exact receipts."""

from __future__ import annotations

import pytest

from gossamer.lab.tree.checkers import at_rest, deliveries
from gossamer.lab.tree.config import Setup
from gossamer.lab.tree.run import TreeRun
from gossamer.sim.world import Node


def grown(kind: type[TreeRun], setup: Setup) -> TreeRun:
    run = kind(setup)
    for _ in range(setup.hosts):
        run.join(run.free_key())
        run.wait(0.1)
    assert run.until(run.quiet, setup.seconds_max) is not None
    return run


class Connected(TreeRun):
    """Counts the steps after which hosts that were there before do not all reach each other over
    links in use.
    """

    before: tuple[int, ...] = ()
    steps = apart = 0

    def called(self, node: Node) -> None:
        super().called(node)
        if self.before:
            edges = self.edges()
            reached, todo = {}, [self.before[0]]
            while todo:
                key = todo.pop()
                if key not in reached:
                    reached[key] = None
                    todo += [each for each in edges[key] if key in edges[each]]
            self.steps += 1
            self.apart += any(key not in reached for key in self.before)


@pytest.mark.parametrize("dht", ["ideal", "view"])
def test_link_before_unlink_a_join_never_takes_the_tree_apart(dht: str) -> None:
    run = grown(Connected, Setup(hosts=16, dht=dht, seed=3))
    for _ in range(12):
        run.before = tuple(run.up)
        run.join(run.free_key())
        run.wait(3)
        run.before = ()
    assert run.steps > 500
    assert run.apart == 0
    assert at_rest(run) == []


def test_what_a_host_takes_with_it_when_it_dies_comes_to_the_hosts_behind_it_in_another_round() -> (
    None
):
    """The publisher asks for exactly the keys behind the dead host, so few copies are made."""
    run = grown(TreeRun, Setup(hosts=24, seed=4))
    asked = 0
    for _ in range(6):
        edges = run.edges()
        middle = next(key for key, near in edges.items() if len(near) == 3)
        for _ in range(3):
            run.publish(run.up[edges[middle][0]])
        run.stop(middle)
        assert run.until(run.quiet, 30) is not None
        asked = max(asked, sum(run.machine(node).engine.asked_again for node in run.up.values()))
        run.join(run.free_key())
        assert run.until(run.quiet, 30) is not None
    assert asked > 0
    assert run.copies < 1.3 * run.handed_over
    assert deliveries(run) == []
    assert all(event.completed is not None for event in run.book.history.events)


def test_a_receipt_counts_every_subscription_once_whatever_breaks() -> None:
    """Reports tile the ring: `matched` is never more than the hosts that took the event, nor less
    than those that stayed.
    """
    run = grown(TreeRun, Setup(hosts=20, dht="view", filters="mix", loss=0.1, seed=6))
    publishers = list(run.up)[:2]
    for number in range(25):
        run.publish(run.up[publishers[number % 2]])
        run.wait(0.05)
        if number % 3 == 0:
            others = [key for key in run.up if key not in publishers]
            run.stop(others[run.below(len(others))], leave=number % 2 == 0)
            run.join(run.free_key())
    assert run.until(run.quiet, 120) is not None
    assert deliveries(run) == []
    history = run.book.history
    for event in history.events:
        took = sum(event.index in place.got for place in history.places)
        least = sum(history.is_due(event, place) for place in history.candidates(event))
        assert least <= event.matched <= took
