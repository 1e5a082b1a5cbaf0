"""Receipts say the truth: ``matched`` leaves out events that a subscription had discarded, and
``dropped`` counts them.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.node.test_routing import Fabric

from gossamer.machine import Micros
from gossamer.node import NodeCore, Route, SlowPolicy, Ticket
from gossamer.node.follow import Wish
from gossamer.overlay.batch import (
    DISCARDED,
    MATCHED_MAX,
    added,
    bounded_all,
    discarded,
    joined,
    parted,
)
from gossamer.trace import Completed, Delivered, Discarded

ROUTES = [Route.DIRECT, Route.TREE, Route.SKIPLIST, Route.FLOOD]
SLOW, QUICK, SENDER = 1, 2, 0


def together(fabric: Fabric, temps: range) -> list[Ticket]:
    """Events that are published in one turn, so that they travel together.

    They have one city, by which route "skiplist" places them, so they keep their order there, too.
    """
    sender, now = fabric.core(SENDER), Micros(fabric.now)
    parity = ("even", "odd")
    events = [{"temp": temp, "city": "b", "country": parity[temp % 2]} for temp in temps]
    tickets = [sender.publish("weather", event, now) for event in events]
    fabric.poke(SENDER)
    fabric.run(1)
    return tickets


def said(tickets: list[Ticket]) -> list[tuple[int, int]]:
    """(matched, dropped) of each receipt; all are complete."""
    assert all(ticket.done for ticket in tickets)
    return [(ticket.matched, ticket.dropped) for ticket in tickets]


def records(fabric: Fabric, number: int, kind: type) -> list[Any]:
    return [record for record in fabric.places[number].notes if isinstance(record, kind)]


@pytest.mark.parametrize("route", ROUTES)
def test_what_a_cut_off_subscription_discards_is_not_matched_but_dropped(route: Route) -> None:
    fabric = Fabric(3, buffer=4, batch_events=1)
    slow = fabric.enter(SLOW, "city = 'b'", route)
    quick = fabric.enter(QUICK, "city = 'b'", route)
    tickets = [fabric.publish(SENDER, temp, city="b") for temp in range(1, 11)]
    fabric.run(1)
    fabric.command(QUICK, "taken", quick, 10)
    fabric.run(10)
    assert not fabric.core(SLOW).subscriptions
    # Four were in its buffer when they were reported; six reports waited and learnt of the end.
    buffered = fabric.got[SLOW, slow][:4]
    expected = [(2, 0) if temp in buffered else (1, 1) for temp in range(1, 11)]
    assert said(tickets) == expected


@pytest.mark.parametrize("route", ROUTES)
def test_what_the_consumer_took_of_a_batch_before_the_end_stays_matched(route: Route) -> None:
    fabric = Fabric(3, buffer=4)
    slow = fabric.enter(SLOW, "city = 'b' AND country = 'even'", route)
    tickets = together(fabric, range(20))
    assert not any(ticket.done for ticket in tickets)
    fabric.command(SLOW, "taken", slow, 3)
    fabric.run(10)
    even = [(1, 0)] * 3 + [(0, 1)] * 7
    assert said(tickets)[::2] == even
    assert said(tickets)[1::2] == [(0, 0)] * 10


@pytest.mark.parametrize("route", ROUTES)
def test_closing_a_subscription_says_which_events_it_had_not_taken(route: Route) -> None:
    fabric = Fabric(3, buffer=4)
    slow = fabric.enter(SLOW, "city = 'b'", route)
    quick = fabric.enter(QUICK, "city = 'b' AND temp >= 5", route)
    tickets = together(fabric, range(10))
    fabric.command(QUICK, "taken", quick, 5)
    fabric.command(SLOW, "taken", slow, 6)
    assert not any(ticket.done for ticket in tickets)
    fabric.command(SLOW, "unsubscribe", slow)
    fabric.run(1)
    if route is Route.SKIPLIST:
        # Each event looks in another interval, so they come in any order.
        assert sum(matched for matched, _ in said(tickets)) == 6 + 5
        assert sum(dropped for _, dropped in said(tickets)) == 4
    else:
        assert said(tickets) == [(1, 0)] * 5 + [(2, 0)] + [(1, 1)] * 4


@pytest.mark.parametrize("route", ROUTES)
def test_an_event_that_was_reported_before_it_was_discarded_stays_matched(route: Route) -> None:
    fabric = Fabric(3, buffer=4)
    slow = fabric.enter(SLOW, "city = 'b'", route)
    tickets = together(fabric, range(4))
    assert said(tickets) == [(1, 0)] * 4
    fabric.command(SLOW, "unsubscribe", slow)
    fabric.run(1)
    assert said(tickets) == [(1, 0)] * 4


@pytest.mark.parametrize("route", ROUTES)
def test_drop_oldest_says_what_the_end_of_a_batch_pushed_out(route: Route) -> None:
    fabric = Fabric(3, buffer=4)
    fabric.enter(SLOW, "city = 'b'", route, policy=SlowPolicy.DROP_OLDEST)
    tickets = together(fabric, range(10))
    assert said(tickets) == [(0, 1)] * 6 + [(1, 0)] * 4


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("wish", [Wish(gaps=True), Wish(start=0)])
def test_one_that_asks_for_history_or_gaps_says_it_too(route: Route, wish: Wish) -> None:
    fabric = Fabric(3, buffer=4)
    slow = fabric.enter(SLOW, "city = 'b'", route, wish=wish)
    together(fabric, range(2))
    fabric.run(5)
    fabric.command(SLOW, "taken", slow, 2)
    tickets = together(fabric, range(10))
    assert not any(ticket.done for ticket in tickets)
    fabric.command(SLOW, "taken", slow, 1)
    fabric.command(SLOW, "unsubscribe", slow)
    fabric.run(1)
    assert said(tickets) == [(1, 0)] + [(0, 1)] * 9


@pytest.mark.parametrize("route", ROUTES)
def test_what_waits_for_its_turn_when_the_subscription_ends_is_dropped(route: Route) -> None:
    fabric = Fabric(3, buffer=4)
    slow = fabric.enter(SLOW, "city = 'b'", route, wish=Wish(ordered=True))
    first = together(fabric, range(10))
    assert said(first) == [(1, 0)] * 10
    # The floor of these lets all before them go, so that the buffer is full, and one of them.
    second = together(fabric, range(10, 13))
    assert not any(ticket.done for ticket in second)
    assert fabric.got[SLOW, slow] == list(range(11))
    fabric.command(SLOW, "unsubscribe", slow)
    fabric.run(1)
    assert said(second) == [(0, 1)] * 3
    assert said(first) == [(1, 0)] * 10


def test_what_a_member_of_a_group_discards_another_member_gets() -> None:
    fabric = Fabric(3, buffer=4)
    slow = fabric.enter(SLOW, "temp >= 0", Route.DIRECT, group="workers")
    quick = fabric.enter(QUICK, "temp >= 0", Route.DIRECT, group="workers")
    tickets = together(fabric, range(40))
    mine = set(fabric.got[SLOW, slow])
    assert len(mine) > 4
    fabric.command(QUICK, "taken", quick, len(fabric.got[QUICK, quick]))
    fabric.command(SLOW, "taken", slow, 3)
    kept = set(fabric.got[SLOW, slow][:3])
    fabric.command(SLOW, "unsubscribe", slow)
    fabric.run(1)
    fabric.command(QUICK, "taken", quick, fabric.core(QUICK).subscriptions[quick].backlog)
    fabric.run(1)
    assert sorted(kept | set(fabric.got[QUICK, quick])) == list(range(40))
    expected = [(1, 1) if temp in mine - kept else (1, 0) for temp in range(40)]
    assert said(tickets) == expected


@pytest.mark.parametrize("route", ROUTES)
def test_the_trace_says_what_was_discarded_and_whether_it_was_reported(route: Route) -> None:
    fabric = Fabric(3, buffer=4, trace=True, batch_events=2)
    slow = fabric.enter(SLOW, "city = 'b'", route)
    together(fabric, range(2))
    together(fabric, range(2, 4))
    together(fabric, range(4, 8))
    fabric.command(SLOW, "taken", slow, 1)
    fabric.run(10)
    peer = f"{fabric.core(SENDER).peer:016x}"
    assert [
        (record.subscription, record.publisher, record.sequence, record.reported)
        for record in sorted(records(fabric, SLOW, Discarded), key=lambda record: record.sequence)
    ] == [(slow, peer, sequence, sequence <= 4) for sequence in range(2, 9)]
    done = sorted(records(fabric, SENDER, Completed), key=lambda record: record.sequence)
    assert [(one.matched, one.dropped) for one in done] == [(1, 0)] * 4 + [(0, 1)] * 4
    assert len(records(fabric, SLOW, Delivered)) == 8


def test_counts_add_up_and_travel_as_two_numbers() -> None:
    gone = discarded((2,), [1, 2], 3)
    assert gone == (2, 1 + DISCARDED, 1 + DISCARDED)
    assert parted(added(gone, (5,))) == ((7, 6, 6), (0, 1, 1))
    assert parted((0, 3)) == ((0, 3), ())
    assert joined(*parted(gone)) == gone
    assert joined((1, 2), ()) == (1, 2)
    assert joined((1,), (1, 2)) is None
    assert joined((), (1,)) is None
    liars = joined((MATCHED_MAX,), (MATCHED_MAX,))
    assert liars is not None
    assert parted(bounded_all(added(liars, liars))) == ((MATCHED_MAX,), (MATCHED_MAX,))


def test_a_ledger_is_kept_only_where_it_is_asked_for() -> None:
    fabric = Fabric(2)
    plain = fabric.enter(1, "temp > 0", Route.DIRECT)
    ordered = fabric.enter(1, "temp > 0", Route.DIRECT, wish=Wish(ordered=True))
    core: NodeCore = fabric.core(1)
    assert core.subscriptions[plain].ledger is None
    assert core.subscriptions[ordered].ledger is not None
