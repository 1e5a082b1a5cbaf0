"""The delivery engine over a made-up overlay with broken links, refusals and restarts."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from tests.overlay.delivery.made_up import MILLI, Net

from gossamer.machine import Message, Micros, Note, Peer, Send
from gossamer.overlay.batch import Batch, Group
from gossamer.overlay.delivery.engine import Branch, Engine, Wave
from gossamer.overlay.delivery.outstanding import Part

SECONDS = 1_000 * MILLI


def batch(publisher: int, first: int, count: int, floor: int, life: int = 1) -> Batch:
    return Batch("t", publisher, life, first, count, floor, 0, 0, b"rows")


def live(net: Net, *, publishers: int, batches: int, cuts: int, crashes: int) -> list[Batch]:
    """Publish, and break things meanwhile. Returns the batches."""
    rng = Random(net.rng.random())
    published: list[Batch] = []
    firsts = [1] * publishers
    for _ in range(batches):
        node = int(rng.random() * publishers)

        def publish(node: int = node) -> None:
            floors = [
                one.first
                for one in published
                if one.publisher == node and (node, 1, one.first) not in net.receipts
            ]
            count = 1 + int(rng.random() * 4)
            one = batch(node, firsts[node], count, min(floors, default=firsts[node]))
            firsts[node] += count
            published.append(one)
            net.publish(node, one)

        net.at(int(rng.random() * 5 * SECONDS), publish)
    for _ in range(cuts):
        a, b = sorted(net.edges)[int(rng.random() * len(net.edges))]
        net.at(int(rng.random() * 6 * SECONDS), lambda a=a, b=b: net.cut(a, b))
    for _ in range(crashes):
        node = publishers + int(rng.random() * (net.nodes - publishers))
        net.at(
            int(rng.random() * 6 * SECONDS), lambda node=node: net.alive[node] and net.crash(node)
        )
    net.run(120 * SECONDS)
    return published


def check(net: Net, published: list[Batch]) -> None:
    assert net.rejected == []
    assert net.repeats == []
    for one in published:
        id = (one.publisher, one.incarnation, one.first)
        assert net.receipts.get(id) == net.due(one), (id, "a receipt is exact and complete")
        for node in range(net.nodes):
            if net.life[node] == 1 and any(
                net.wants(node, one.first + place) for place in range(one.count)
            ):
                assert id in net.handed[node], "every due event arrives"
    for engine in net.engines:
        outstanding = engine.outstanding
        assert engine.under_way() == []
        assert not outstanding.owed
        assert not outstanding._waiting
        assert not any(link.parts or link.kept for link in outstanding.links.values())
        assert not any(engine.bytes_by.values())
        assert sum(engine.batches_by.values()) == engine.remembered
        for life in engine.lives._lives.values():
            assert life.under_way == 0
            assert all(key[0] >= life.floor for key in life.batches)
            assert sorted(life.keys) == sorted(life.batches)


@pytest.mark.parametrize("seed", range(40))
def test_every_event_arrives_once_and_every_receipt_is_exact(seed: int) -> None:
    net = Net(seed, nodes=3 + seed % 8)
    check(net, live(net, publishers=2, batches=20, cuts=0, crashes=0))
    assert net.lost == 0


@pytest.mark.parametrize("seed", range(100, 160))
def test_links_that_break_lose_nothing(seed: int) -> None:
    net = Net(seed, nodes=3 + seed % 8, strays=(seed % 3) * 0.1)
    check(net, live(net, publishers=2, batches=20, cuts=1 + seed % 20, crashes=0))


@pytest.mark.parametrize("seed", range(200, 260))
def test_nodes_that_restart_are_counted_once(seed: int) -> None:
    net = Net(seed, nodes=4 + seed % 8, strays=(seed % 3) * 0.1)
    check(net, live(net, publishers=2, batches=20, cuts=seed % 10, crashes=1 + seed % 5))


@pytest.mark.parametrize("seed", range(260, 300))
def test_a_publisher_may_ask_nodes_that_it_has_no_link_to(seed: int) -> None:
    net = Net(seed, nodes=4 + seed % 8, strays=(seed % 3) * 0.1, calls=0.5)
    check(net, live(net, publishers=2, batches=20, cuts=10, crashes=seed % 3))


@pytest.mark.parametrize("seed", range(500, 540))
def test_a_publisher_may_have_to_find_out_first_whom_to_ask(seed: int) -> None:
    net = Net(seed, nodes=4 + seed % 8, strays=(seed % 3) * 0.1, calls=0.3, slow=0.5)
    check(net, live(net, publishers=2, batches=20, cuts=10, crashes=seed % 3))


def test_what_is_missing_is_asked_for_as_soon_as_the_way_is_known() -> None:
    net = Net(1, nodes=2)
    net.silent = 0
    # The ends notice it within 300 ms. The link is back later than that.
    net.cut(0, 1)
    net.publish(0, batch(0, 1, 1, 1))
    net.run(300 * MILLI - 1)
    engine = net.engines[0]
    assert (net.receipts, engine.asked_again) == ({}, 0)
    due = engine.deadline
    engine.again(Micros(net.now))
    net.flush(0)
    assert engine.asked_again == 1
    assert net.now < due
    net.run(60 * SECONDS)
    assert list(net.receipts) == [(0, 1, 1)]


@pytest.mark.parametrize("seed", range(20))
def test_a_receipt_is_complete_without_a_node_that_is_silent_and_it_is_to_be_told(
    seed: int,
) -> None:
    """Behind the silent node there is another one, which has another link as well."""
    mute = 2 + seed % 3
    net = Net(seed, nodes=6, mute=mute, calls=0.5)
    net.silent &= ~(1 << mute)
    for first in (1, 2, 3):
        net.publish(0, batch(0, first, 1, 1))
    net.run(120 * SECONDS)
    for first in (1, 2, 3):
        id = (0, 1, first)
        others = sum(net.wants(node, first) for node in range(net.nodes) if node != mute)
        assert net.receipts[id] == (others,)
        assert (mute, id) in net.left_out
    assert [node for node in range(6) if mute in net.cut_off[node]]
    assert not any(engine.under_way() for engine in net.engines if engine.me != mute)


def groups(rng: Random, round: int) -> list[Group]:
    """The events 1 to 12 of node 0, each at random in one of four groups."""
    placed: dict[int, list[int]] = {}
    for number in range(1, 13):
        placed.setdefault(int(rng.random() * 4), []).append(number)
    return [
        Group("t", 0, 1, some[0], len(some), 1, round, 0, b"rows", b"", tuple(some))
        for some in placed.values()
    ]


def check_groups(net: Net, published: list[Group]) -> None:
    assert net.rejected == []
    assert net.repeats == []
    for one in published:
        assert net.receipts.get((0, 1, one.first)) == net.due(one)
    for engine in net.engines:
        assert engine.under_way() == []
        assert not any(engine.bytes_by.values())
        assert sum(engine.batches_by.values()) == engine.remembered
        for life in engine.lives._lives.values():
            assert life.under_way == 0
            assert sorted(life.keys) == sorted(life.batches)


def split_twice(seed: int, cuts: int, kind: type[Engine] = Engine) -> tuple[Net, list[Group]]:
    """A publisher splits a batch, starts again, and splits the same batch in another way."""
    rng = Random(seed)
    net = Net(seed, nodes=3 + seed % 6, strays=(seed % 3) * 0.1, splits=True, kind=kind)
    # Each of them goes to some nodes only.
    regions = [int(rng.random() * (net.everybody + 1)) | 1 << 2 for _ in range(4)]
    for one, region in zip(groups(rng, 0), regions, strict=False):
        net.engines[0].publish(one, Micros(net.now), region)
    net.flush(0)
    net.run(int(rng.random() * 200 * MILLI))
    net.crash(0)
    net.receipts.clear()
    net.run(net.now + 2 * SECONDS)
    net.handed[0].clear()
    again = groups(rng, 1 << 20)
    for one in again:
        net.publish(0, one)
    for _ in range(cuts):
        a, b = sorted(net.edges)[int(rng.random() * len(net.edges))]
        net.at(net.now + int(rng.random() * SECONDS), lambda a=a, b=b: net.cut(a, b))
    net.run(net.now + 120 * SECONDS)
    return net, again


@pytest.mark.parametrize("seed", range(500, 560))
def test_a_batch_that_is_split_in_another_way_later_is_taken_and_counted_once(seed: int) -> None:
    check_groups(*split_twice(seed, cuts=seed % 6))


class ForgetsTheCompany(Engine):
    """Hands over events that were taken in other company before."""

    def _in_other_company(self, life: Any, batch: Batch) -> Any:
        return None, None


class AddsNothingOfThePast(Engine):
    def _in_other_company(self, life: Any, batch: Batch) -> Any:
        answer, past = super()._in_other_company(life, batch)
        return answer, dict.fromkeys(past, 0) if past else None


@pytest.mark.parametrize("kind", [ForgetsTheCompany, AddsNothingOfThePast])
def test_an_engine_that_knows_groups_only_is_caught(kind: type[Engine]) -> None:
    caught = 0
    for seed in range(500, 510):
        try:
            check_groups(*split_twice(seed, cuts=0, kind=kind))
        except AssertionError:
            caught += 1
    assert caught


def test_a_node_that_only_relays_is_handed_nothing() -> None:
    net = Net(7, nodes=4, splits=True)
    net.silent = 0
    net.edges = {(0, 1), (1, 2), (2, 3)}
    for a, b in list(net.wires):
        if a < b and (a, b) not in net.edges:
            net.cut(a, b)
    one = Group("t", 0, 1, 1, 2, 1, 0, 0, b"rows", b"", (1, 4))
    net.engines[0].publish(one, Micros(net.now), 1 << 3)
    net.flush(0)
    net.run(20 * SECONDS)
    assert net.receipts[0, 1, 1] == (net.wants(3, 1), net.wants(3, 4))
    assert [bool(handed) for handed in net.handed] == [False, False, False, True]


def test_the_faults_happen() -> None:
    refusals = lost = restarts = 0
    for seed in range(300, 310):
        net = Net(seed, nodes=8, room=1)
        check(net, live(net, publishers=2, batches=60, cuts=10, crashes=2))
        refusals, lost = refusals + net.refusals, lost + net.lost
        restarts += sum(net.life) - net.nodes
    assert refusals > 20
    assert lost > 20
    assert restarts > 5
    dialled = failures = 0
    for seed in range(260, 270):
        net = Net(seed, nodes=8, calls=0.5)
        check(net, live(net, publishers=2, batches=20, cuts=10, crashes=2))
        dialled, failures = dialled + net.dialled, failures + net.failures
    assert dialled > 5
    assert failures > 5
    lookups = 0
    for seed in range(500, 510):
        net = Net(seed, nodes=8, slow=0.5)
        check(net, live(net, publishers=2, batches=20, cuts=10, crashes=2))
        lookups += net.lookups
    assert lookups > 5


class CountsWithoutTiles(Engine):
    """Adds what a round has counted, whether its tile was missing or not."""

    def _collect(self, wave: Wave, branch: Branch, tile: Any, now: Micros) -> None:
        if tile and branch.counts:
            wave.total = tuple(2 * count for count in branch.counts)
        super()._collect(wave, branch, tile, now)


class ForgetsTheRound(Engine):
    """Answers again for a region for which it has answered."""

    def carry(self, sender: Peer, batch: Batch, region: Any, now: Micros) -> None:
        life = self.lives.get(batch.publisher, batch.incarnation)
        wave = life.batches.get((batch.first,)) if life is not None else None
        if wave is not None:
            wave.answered = None
        super().carry(sender, batch, region, now)


class IgnoresRefusals(Engine):
    def refused(self, peer: Peer, message: Message) -> None: ...


class IgnoresBreaks(Engine):
    def _lose(self, parts: list[Part], *, for_cause: bool, now: Micros) -> None: ...


class WaitsForEver(Engine):
    def failed(self, peer: Peer, now: Micros) -> None: ...


class HandsOverTwice(Engine):
    def _begin(self, wave: Wave, batch: Batch, *args: Any, **kwargs: Any) -> Branch:
        branch = super()._begin(wave, batch, *args, **kwargs)
        if batch.round and batch.publisher != self.me:
            self._arrive(batch, Micros(0))
        return branch


@pytest.mark.parametrize(
    "kind",
    [
        CountsWithoutTiles,
        ForgetsTheRound,
        IgnoresRefusals,
        IgnoresBreaks,
        WaitsForEver,
        HandsOverTwice,
    ],
)
def test_a_broken_engine_is_caught(kind: type[Engine]) -> None:
    caught = 0
    for seed in range(400, 410):
        net = Net(seed, nodes=8, strays=0.2, calls=0.3, room=1, kind=kind)
        try:
            check(net, live(net, publishers=2, batches=30, cuts=20, crashes=2))
        except (AssertionError, KeyError):
            caught += 1
    assert caught


def test_nothing_below_the_floor_is_remembered() -> None:
    net = Net(5, nodes=5)
    for first in range(1, 201, 2):
        net.publish(0, batch(0, first, 2, max(1, first - 10)))
        net.run(net.now + 4 * SECONDS)
    assert len(net.receipts) == 100
    assert [engine.remembered for engine in net.engines] == [6] * 5
    late = batch(0, 1, 2, 1)
    net.engines[1].carry(Peer(0), late, 0b10, Micros(net.now))
    assert [type(effect) for effect in net.outs[1]] == [Note, Send]
    assert len(net.handed[1]) == 100, "a batch below the floor is answered and not handed over"
