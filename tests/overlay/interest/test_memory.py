"""Memory stays flat: after many changes no table has grown.

The simulator runs a million changes.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from gossamer.machine import Micros, Peer
from gossamer.overlay.interest.core import Interest
from gossamer.overlay.interest.messages import NameAsk, Probe
from gossamer.overlay.interest.record import Record
from worldnet import Net, befriend, single


def tables(machine: Interest) -> Counter[str]:
    """The size of every dictionary and list that a machine holds, however deep."""
    sizes: Counter[str] = Counter()
    seen: set[int] = set()

    def walk(name: str, value: object) -> None:
        if (
            id(value) in seen
            or isinstance(value, (str, bytes, int, type, Random, Record))
            or callable(value)
        ):
            return
        seen.add(id(value))
        if isinstance(value, (dict, list, tuple, set)):
            sizes[name] = max(sizes[name], len(value))
            for item in value.values() if isinstance(value, dict) else value:
                walk(f"{name}[]", item)
        elif hasattr(value, "__dict__"):
            for key, item in vars(value).items():
                walk(f"{name}.{key}", item)
        elif hasattr(value, "__slots__"):
            for key in value.__slots__:
                walk(f"{name}.{key}", getattr(value, key, None))

    walk("interest", machine)
    return sizes


def flip(net: Net, wanted: set[tuple[int, str]], times: int) -> None:
    for _ in range(times):
        number, topic = net.rng.randrange(len(net.places)), f"topic-{net.rng.randrange(16)}"
        (net.unsubscribe if (number, topic) in wanted else net.subscribe)(number, topic)
        wanted ^= {(number, topic)}
        net.run(0.002)


def test_the_walk_sees_the_tables() -> None:
    node = single(1)
    before = tables(node)
    befriend(node, 11)
    node.names.learn("a")
    grown = {name for name, size in tables(node).items() if size > before[name]}
    assert {"interest.view.members", "interest.names._names", "interest._links.up"} <= grown


@pytest.mark.slow
def test_twenty_thousand_changes_leave_the_tables_as_they_were() -> None:
    net = Net(3, k=2)
    net.settle()
    wanted: set[tuple[int, str]] = set()
    flip(net, wanted, 1000)
    early = [tables(machine) for machine in net.machines]
    for place in net.places:
        place.changes.clear()
    flip(net, wanted, 20_000)
    net.settle()
    net.run(3)
    for machine, before in zip(net.machines, early, strict=True):
        for name, size in tables(machine).items():
            assert size <= max(32, 2 * before[name]), (name, size)
        assert len(machine.record.topics) == 8 * sum(
            number == net.machines.index(machine) for number, _ in wanted
        )


def test_members_that_come_and_go_leave_only_their_tombs() -> None:
    net = Net(5, k=2)
    net.settle()
    early = tables(net[0])
    for _ in range(15):
        number = net.add()
        net.start(number)
        net.subscribe(number, "a")
        net.settle()
        net.crash(number)
        net.settle()
    net.run(5)
    for name, size in tables(net[0]).items():
        if "tombs" not in name:
            assert size <= max(32, early[name]), (name, size)
    assert len(net[0].view.tombs) == 15


def test_floods_of_questions_leave_bounded_tables() -> None:
    node = single(1)
    befriend(node, 11), befriend(node, 12)
    early = tables(node)
    for number in range(5000):
        node.receive(Peer(11), Probe(number), Micros(10_000_000))
        node.receive(Peer(11), Probe(12), Micros(10_000_000))
        node.receive(Peer(11), NameAsk(number.to_bytes(8, "big") * 256), Micros(10_000_000))
    assert all(size <= max(8, early[name]) for name, size in tables(node).items())
