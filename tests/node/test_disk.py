"""Nodes whose disks fail and work again: whole nodes in memory, on every route."""

from __future__ import annotations

from random import Random

import pytest
from tests.node.test_follow import Fabric

from gossamer.filters import Event
from gossamer.machine import Forget, LinkState, Micros, Peer, Store, Token
from gossamer.node import NodeConfig, NodeCore, Route, Ticket, Wish
from gossamer.node.core import DISK_FAILED
from gossamer.node.durable import Tap
from gossamer.overlay.batch import Batch
from gossamer.overlay.interest.config import InterestConfig
from gossamer.trace import Unsubscribed

ROUTES = [Route.DIRECT, Route.FLOOD, Route.TREE, Route.SKIPLIST]


class Failing(Fabric):
    """Disks that are full for a while refuse the writes that something waits for, and take the
    others when there is room again.
    """

    def fill(self, number: int) -> None:
        self.world.fill_disk(self.places[number].node)

    def drain(self) -> None:
        for place in self.places:
            self.world.drain_disk(place.node)

    def is_full(self, number: int) -> bool:
        return self.places[number].node.disk.full

    def turn(self, number: int) -> None:
        if self.is_full(number):
            self.world.drain_disk(self.places[number].node)
        else:
            self.fill(number)

    def why_ended(self, number: int) -> dict[int, str]:
        """The subscriptions of a node that have ended, and why."""
        notes = self.places[number].notes
        return {one.subscription: one.reason for one in notes if isinstance(one, Unsubscribed)}


@pytest.mark.parametrize("route", ROUTES)
def test_a_subscription_that_cannot_store_is_cut_off_and_nobody_waits_for_it(route: Route) -> None:
    fabric = Failing(3, retention="1h")
    durable = fabric.enter(1, name="x", route=route)
    fabric.enter(2, ordered=True, route=route)
    [first] = fabric.publish(0, 1)
    assert first.matched == 2
    fabric.fill(1)
    started = fabric.now
    tickets = fabric.publish(0, 2, 3, 4)
    assert [ticket.matched for ticket in tickets] == [1, 1, 1]
    # No node had to be given up for that.
    assert fabric.now - started < 1_000_000
    # The last event waits for the publisher's word that none is missing.
    fabric.run(1)
    assert fabric.numbers(1) == [1]
    assert fabric.numbers(2) == [1, 2, 3, 4]
    assert fabric.why_ended(1) == {durable: DISK_FAILED}
    tap = fabric.core(1).follows.taps["x"]
    assert (tap.next, tap.number, bool(tap.problem)) == (2, 0, True)


@pytest.mark.parametrize("route", ROUTES)
def test_plain_subscriptions_and_relaying_of_a_node_with_a_full_disk_go_on(route: Route) -> None:
    fabric = Failing(4, retention="1h")
    durable = fabric.enter(1, name="x", route=route)
    plain = fabric.enter(1, route=route)
    fabric.enter(3, route=route)
    fabric.fill(1)
    assert [ticket.matched for ticket in fabric.publish(0, 1, 2, 3)] == [2, 2, 2]
    assert fabric.numbers(1) == fabric.numbers(3) == [1, 2, 3]
    assert fabric.why_ended(1) == {durable: DISK_FAILED}
    assert list(fabric.core(1).subscriptions) == [plain]


@pytest.mark.parametrize("route", ROUTES)
def test_what_could_not_be_stored_is_caught_up_without_a_restart(route: Route) -> None:
    fabric = Failing(3, retention="1h")
    made = fabric.enter(1, name="x", route=route)
    fabric.publish(0, 1, 2)
    fabric.ack(1, made, fabric.got[1][0])
    fabric.fill(1)
    fabric.publish(0, 3, 4)
    fabric.drain()
    fabric.publish(0, 5)
    fabric.got.clear()
    fabric.enter(1, name="x", route=route)
    fabric.run(5)
    # It was stored before, and not acknowledged.
    assert fabric.numbers(1)[:1] == [2]
    assert sorted(fabric.numbers(1)) == [2, 3, 4, 5]
    assert sorted(event.offset for event in fabric.got[1]) == [2, 3, 4, 5]
    assert not fabric.gaps(1)


def test_what_is_not_retained_meanwhile_is_told_as_a_gap() -> None:
    fabric = Failing(3, retention="1KB")
    made = fabric.enter(1, name="x")
    fabric.publish(0, 1)
    fabric.ack(1, made, fabric.got[1][0])
    fabric.fill(1)
    for number in range(2, 12):
        fabric.publish(0, number)
    fabric.drain()
    fabric.run(2)
    fabric.got.clear()
    fabric.enter(1, name="x")
    fabric.run(5)
    [gap] = fabric.gaps(1)
    assert gap.before is not None
    assert fabric.numbers(1) == list(range(gap.before[1], 12))


@pytest.mark.parametrize("route", ROUTES)
def test_a_publisher_with_a_full_disk_is_refused_at_once_and_holds_nobody_up(route: Route) -> None:
    fabric = Failing(3)
    fabric.enter(0, route=route)
    fabric.enter(1, ordered=True, route=route)
    fabric.publish(0, 1)
    fabric.fill(0)
    ticket = fabric.command(0, "publish", "t", {"n": 2})
    assert isinstance(ticket, Ticket)
    fabric.run(0.01)
    assert ticket.publication.refused
    assert not ticket.publication.accepted
    core = fabric.core(0)
    assert (core.outbox.unsettled, core.outbox.bytes) == (0, 0)
    assert core.outbox.floor == (1, 3)
    # The node's own subscription goes on.
    assert [one.matched for one in fabric.publish(2, 3)] == [2]
    fabric.drain()
    assert [one.matched for one in fabric.publish(0, 4)] == [2]
    fabric.run(1)
    assert fabric.numbers(0) == fabric.numbers(1) == [1, 3, 4]
    assert not [key for key in fabric.places[0].disk if key.startswith("out/")]


def test_an_acknowledgement_that_is_not_stored_is_told_and_counts_for_nothing() -> None:
    fabric = Failing(2, retention="1h")
    made = fabric.enter(1, name="x")
    fabric.publish(0, 1)
    fabric.fill(1)
    token = fabric.command(1, "ack", made, 1)
    fabric.run(0.01)
    core = fabric.core(1)
    assert core.follows.lost == [token]
    assert fabric.why_ended(1) == {made: DISK_FAILED}
    fabric.down(1)
    fabric.drain()
    fabric.got.clear()
    fabric.up(1)
    fabric.enter(1, name="x")
    fabric.run(1)
    assert fabric.numbers(1) == [1]


def test_a_durable_subscription_that_never_came_to_the_disk_leaves_nothing_behind() -> None:
    fabric = Failing(2, retention="1h")
    fabric.fill(1)
    made = fabric.command(1, "subscribe", "t", "", route=Route.FLOOD, wish=Wish(name="x"))
    fabric.run(1)
    assert fabric.why_ended(1) == {made: DISK_FAILED}
    assert not fabric.core(1).follows.taps
    fabric.publish(0, 1)
    fabric.drain()
    # The filter is another one, and the name is free.
    fabric.enter(1, "n > 0", name="x")
    fabric.publish(0, 2)
    fabric.run(5)
    assert fabric.numbers(1) == [2]
    assert not fabric.gaps(1)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_lost_and_nothing_comes_again_after_its_acknowledgement_whenever_disks_fail(
    route: Route, seed: int
) -> None:
    """The disks of the subscriber and of a publisher fill and empty, and both nodes are killed, at
    any time.
    """
    rng = Random(f"{seed} {route}")
    fabric = Failing(3, retention="1h")
    reader = fabric.enter(1, name="x", route=route)
    tickets: dict[int, Ticket] = {}
    had: list[int] = []
    acked: set[int] = set()

    def look() -> None:
        """Note what came, and acknowledge some of it."""
        nonlocal reader
        core = fabric.core(1)
        got = fabric.got.pop(1, [])
        for what in got:
            assert isinstance(what, Event), what
            assert what["n"] not in acked
            had.append(what["n"])
        if reader not in core.subscriptions:
            if not fabric.is_full(1) or rng.random() < 0.2:
                wish = Wish(name="x")
                reader = fabric.command(1, "subscribe", "t", "", route=route, wish=wish)
            return
        for what in got:
            if rng.random() < 0.5 and isinstance(what, Event):
                token = fabric.command(1, "ack", reader, what.offset)
                fabric.run(0.01)
                if not token or token in core.follows.done:
                    acked.add(what["n"])
                if reader not in core.subscriptions:
                    break

    for n in range(60):
        draw = rng.random()
        if draw < 0.12 or n == 10:
            fabric.turn(rng.choice([0, 1]))
        elif draw < 0.16:
            victim = rng.choice([0, 1])
            look()
            fabric.down(victim)
            fabric.run(rng.random())
            fabric.up(victim)
            fabric.until(lambda: "t" in fabric.core(victim).topics.schemas)  # noqa: B023
            if victim == 1:
                wish = Wish(name="x")
                reader = fabric.command(1, "subscribe", "t", "", route=route, wish=wish)
        publisher = rng.choice([0, 2])
        made = fabric.command(publisher, "publish", "t", {"n": n})
        assert isinstance(made, Ticket)
        tickets[n] = made
        fabric.run(rng.choice([0.0, 0.001, 0.01, 0.5]))
        look()
    fabric.drain()
    for _ in range(10):
        fabric.run(5)
        look()
    refused = {n for n, ticket in tickets.items() if ticket.publication.refused}
    sure = {n for n, ticket in tickets.items() if ticket.publication.accepted}
    assert sure <= set(had)
    assert not refused & set(had)


def test_a_tap_goes_back_to_what_is_on_disk() -> None:
    """The tap also remembers the events that it would have forgotten in that Store. They are still
    on disk, so an event that comes again is known.
    """
    tap = Tap.create("x", "t", "TRUE", 0)
    first, second, third = Token(1), Token(2), Token(3)
    tap.store(7, 1, 1, (1, 2), b"one")
    tap.records(first)
    tap.confirm(first)
    tap.hand(1, 2)
    tap.ack(2, through=True)
    tap.place(7, (1, 2), is_gone=False)
    tap.store(7, 1, 1, (3,), b"two")
    assert Forget("tap/x/e/0000000000000001") in tap.records(second)
    tap.store(7, 1, 1, (4,), b"three")
    assert tap.undo() == [second]
    assert [one.sequences for one in tap.remembered()] == [(1, 2)]
    assert (tap.next, tap.acked, tap.positions, tap.token) == (3, 2, {}, 0)
    tap.place(7, (1, 4), is_gone=False)
    records = tap.records(third)
    assert {record.key for record in records} == {
        "tap/x",
        "tap/x/p/0000000000000007",
        "tap/x/e/0000000000000001",
    }
    assert tap.store(7, 1, 1, (5,), b"four").offset == 3


def test_the_disk_is_told_anew_of_a_topic_that_it_refused_to_hear_of() -> None:
    core = NodeCore(Peer(1), incarnation=1, rng=Random(1), durable=True)
    core.wake(Micros(0))
    core.advertise("t", "n INT", Micros(0))

    def stored_with_an_event() -> tuple[Store, set[str]]:
        core.publish("t", {"n": 1}, Micros(0))
        effects = core.wake(Micros(0))
        [store] = [one for one in effects if isinstance(one, Store) and one.is_awaited]
        return store, {record.key.partition("/")[0] for record in store.records}

    store, keys = stored_with_an_event()
    assert keys == {"trim", "out"}
    core.unstored([store.token], Micros(0))
    store, keys = stored_with_an_event()
    assert keys == {"trim", "out"}
    core.stored(store.token, Micros(0))
    assert stored_with_an_event()[1] == {"out"}


def test_a_store_that_waits_in_the_node_goes_with_those_that_failed_before_it() -> None:
    core = NodeCore(
        Peer(1),
        incarnation=1,
        rng=Random(1),
        durable=True,
        config=NodeConfig(batch_events=1, interest=InterestConfig(join=())),
    )
    core.advertise("t", "n INT", Micros(0))
    made = core.subscribe("t", "", Micros(0), route=Route.FLOOD, wish=Wish(name="x"))
    tokens = [one.token for one in core.wake(Micros(0)) if isinstance(one, Store)]
    for token in tokens:
        core.stored(token, Micros(0))
    core.link(Peer(2), LinkState.UP, Micros(0))

    def arrives(number: int) -> Store:
        batch = Batch("t", 2, 1, number, 1, 1, 0, 1, b"\x91\x91\x05")
        effects = core.receive(Peer(2), batch, Micros(0))
        [store] = [one for one in effects if isinstance(one, Store)]
        return store

    core.stored(arrives(1).token, Micros(0))
    store = arrives(2)
    core.ack(made, 1, Micros(0))
    # The acknowledgement is to be stored when the driver looks.
    core.unsubscribe(made, Micros(0))
    # The batch is full, so it is sealed.
    ticket = core.publish("t", {"n": 1}, Micros(0))
    effects = core.unstored([store.token], Micros(1))
    effects += core.wake(Micros(1))
    assert not [one for one in effects if isinstance(one, Store)]
    assert ticket.publication.refused
    position = core.follows.taps["x"].positions[2]
    assert (position.incarnation, position.sequence) == (0, 0)
