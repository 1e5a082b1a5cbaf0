"""Route "direct": the publisher knows the filters, and each node gets its own part.

Also groups, moves between routes, and schemas that grow.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import msgspec
import pytest
from tests.node.test_routing import Fabric

from gossamer.filters import Schema
from gossamer.filters.packed import Packed
from gossamer.machine import Micros, Peer, Send
from gossamer.node import Route, RouteError
from gossamer.node.topics import TopicError
from gossamer.overlay.batch import Batch
from gossamer.overlay.direct.messages import Portion, Wanted, Watch
from gossamer.overlay.direct.plan import Payload, Plan, understood

MOVING = (Route.DIRECT, Route.FLOOD, Route.SKIPLIST, Route.TREE)


def portions(fabric: Fabric) -> list[Portion]:
    return [message for _, _, _, message, _ in fabric.sent if isinstance(message, Portion)]


def test_a_node_gets_what_it_wants_and_nothing_else_travels() -> None:
    fabric = Fabric(4)
    high, low = (
        fabric.enter(1, "temp > 30", Route.DIRECT),
        fabric.enter(2, "temp < 10", Route.DIRECT),
    )
    fabric.sent = []
    tickets = [fabric.publish(0, temp) for temp in (5, 20, 40, 50)]
    assert [fabric.matched(ticket) for ticket in tickets] == [1, 0, 1, 1]
    assert fabric.got == {(1, high): [40, 50], (2, low): [5]}
    assert sorted((len(one.offsets), one.offsets) for one in portions(fabric)) == [
        (1, (0,)),
        (2, (2, 3)),
    ]
    assert not [m for _, _, _, m, _ in fabric.sent if isinstance(m, Batch)], "nobody floods"


def test_where_nobody_wants_a_topic_nothing_is_sent_and_the_receipt_says_so() -> None:
    fabric = Fabric(3)
    fabric.run(6)
    fabric.sent = []
    assert fabric.matched(fabric.publish(0, 1)) == 0
    assert not [m for _, _, _, m, _ in fabric.sent if type(m).is_event]


def test_many_filters_go_through_the_index_and_columns_too() -> None:
    fabric = Fabric(3)
    for number in (1, 2):
        for low in range(40):
            fabric.command(
                number,
                "subscribe",
                "weather",
                f"temp > {low} AND country = 'C{number}'",
                route=Route.DIRECT,
            )
    fabric.until(
        lambda: all(s.in_force for n in (1, 2) for s in fabric.core(n).subscriptions.values())
    )
    for temp, country, right in ((10, "C1", 10), (100, "C2", 40), (5, "C3", 0)):
        assert fabric.matched(fabric.publish(0, temp, country=country)) == right


def test_publishers_learn_changes_before_the_subscriber_is_told_that_it_counts() -> None:
    fabric = Fabric(3)
    fabric.enter(1, "temp > 30", Route.DIRECT)
    # Node 0 watches from now on.
    assert fabric.matched(fabric.publish(0, 40)) == 1
    for low in range(5):
        fabric.enter(1, f"temp < {-low}", Route.DIRECT)
        assert fabric.matched(fabric.publish(0, -low - 1)) == low + 1
    numbers = list(fabric.core(1).subscriptions)
    for number in numbers[1:]:
        fabric.command(1, "unsubscribe", number)
    fabric.run(1)
    fabric.sent = []
    assert fabric.matched(fabric.publish(0, -100)) == 0
    assert not portions(fabric)


def test_who_publishes_nothing_for_long_need_not_be_told_any_more() -> None:
    fabric = Fabric(3)
    fabric.enter(1, "temp > 30", Route.DIRECT)
    assert fabric.matched(fabric.publish(0, 40)) == 1
    told = fabric.core(1).direct.told  # type: ignore[union-attr]
    assert [len(topic.watchers) for topic in told.topics.values()] == [1]
    fabric.run(130)
    assert [len(topic.watchers) for topic in told.topics.values()] == [0]
    assert fabric.core(0).direct.watched == 0  # type: ignore[union-attr]
    assert fabric.matched(fabric.publish(0, 50)) == 1


@pytest.mark.parametrize("old", MOVING)
@pytest.mark.parametrize("new", MOVING)
def test_a_subscription_moves_under_load_and_gets_each_event_once(old: Route, new: Route) -> None:
    fabric = Fabric(5)
    mine = fabric.enter(3, "temp >= 0", old)
    # Because of this subscription, publishers use the new route already.
    fabric.enter(2, "temp >= 0", new)
    tickets: list[Any] = []
    moved = fabric.command(3, "move", mine, new)
    assert moved is (old is not new)
    for step in range(60):
        tickets.append(fabric.publish(step % 5, step))
        fabric.run(0.02)
    fabric.until(lambda: all(ticket.done for ticket in tickets))
    assert [ticket.matched for ticket in tickets] == [2] * 60
    assert sorted(fabric.got[3, mine]) == list(range(60))
    subscription = fabric.core(3).subscriptions[mine]
    fabric.until(lambda: subscription.handed is None)
    assert subscription.route is new
    assert list(subscription.topic.subscriptions[new]) == [mine]
    assert not subscription.topic.subscriptions.get(old) or old is new


def test_a_subscription_that_ends_on_its_way_leaves_nothing_behind() -> None:
    fabric = Fabric(4)
    for wait in (0.0, 0.01, 0.03, 0.1, 0.3, 1.0):
        mine = fabric.enter(1, "temp > 30", Route.DIRECT)
        fabric.command(1, "move", mine, Route.TREE)
        fabric.run(wait)
        fabric.command(1, "unsubscribe", mine)
        fabric.run(2)
        assert not fabric.core(0).interest.interested("weather")  # type: ignore[union-attr]
        assert fabric.matched(fabric.publish(0, 40)) == 0


def test_auto_is_direct_for_few_nodes_and_goes_on_as_it_suits_the_filter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gossamer.node.routing.DIRECT_MAX", 3)
    monkeypatch.setattr("gossamer.node.routing.DIRECT_AGAIN", 2)
    fabric = Fabric(6)
    first = fabric.enter(1, "temp > 30", Route.AUTO)
    second = fabric.enter(2, "city LIKE '%x' OR temp > 30", Route.AUTO)
    routes = lambda: [fabric.core(n).subscriptions[s].route for n, s in ((1, first), (2, second))]  # noqa: E731
    assert routes() == [Route.DIRECT, Route.DIRECT]
    others = [fabric.enter(number, "temp > 90", Route.AUTO) for number in (3, 4, 5)]
    fabric.until(lambda: routes() == [Route.SKIPLIST, Route.TREE], 60)
    assert fabric.matched(fabric.publish(0, 40)) == 2
    for number, subscription in zip((3, 4, 5), others, strict=True):
        fabric.command(number, "unsubscribe", subscription)
    fabric.until(lambda: routes() == [Route.DIRECT, Route.DIRECT], 60)
    assert fabric.matched(fabric.publish(0, 50)) == 2


def test_one_of_a_group_gets_each_event_and_others_take_over_from_the_dead() -> None:
    fabric = Fabric(5)
    made = {
        number: fabric.enter(number, "temp >= 0", Route.AUTO, group="workers")
        for number in (1, 2, 3)
    }
    every = fabric.enter(4, "", Route.DIRECT)
    tickets = [fabric.publish(0, temp) for temp in range(300)]
    fabric.until(lambda: all(ticket.done for ticket in tickets))
    assert {ticket.matched for ticket in tickets} == {2}
    shared = Counter(temp for number in (1, 2, 3) for temp in fabric.got[number, made[number]])
    assert shared == Counter(range(300))
    assert min(len(fabric.got[number, made[number]]) for number in (1, 2, 3)) > 60
    assert fabric.got[4, every] == list(range(300))
    fabric.crash(2)
    more = [fabric.publish(0, temp) for temp in range(300, 330)]
    fabric.until(lambda: all(ticket.done for ticket in more), 60)
    assert {ticket.matched for ticket in more} == {2}
    late = Counter(
        temp for number in (1, 3) for temp in fabric.got[number, made[number]] if temp >= 300
    )
    assert late == Counter(range(300, 330))


def test_members_of_a_group_with_other_filters_get_what_they_want() -> None:
    fabric = Fabric(4)
    fabric.enter(1, "temp < 5", Route.DIRECT, group="g")
    # The publisher cannot check this, so a node that refuses passes it on.
    fabric.enter(2, "city RLIKE '^G'", Route.DIRECT, group="g")
    fabric.enter(3, "temp > 50", Route.DIRECT, group="g")
    assert fabric.matched(fabric.publish(0, 1, city="Bern")) == 1
    assert fabric.matched(fabric.publish(0, 20, city="Geneva")) == 1
    assert fabric.matched(fabric.publish(0, 20, city="Bern")) == 0
    assert fabric.matched(fabric.publish(0, 99, city="Bern")) == 1


@pytest.mark.parametrize("route", [Route.FLOOD, Route.SKIPLIST, Route.TREE])
def test_a_group_needs_publishers_that_share_out(route: Route) -> None:
    fabric = Fabric(1)
    with pytest.raises(RouteError, match="use route 'direct'"):
        fabric.core(0).subscribe("weather", "", Micros(fabric.now), route=route, group="g")


@pytest.mark.parametrize("seed", range(6))
def test_a_plan_that_changes_says_what_one_that_is_made_anew_says(seed: int) -> None:
    """With and without the index, by rows and by columns, with groups, the plan says the same as
    the filters one by one.
    """
    rng = Random(seed)
    schema = Schema.parse("temp INT, city STRING")
    packed = Packed(schema)
    plan = Plan(packed)
    wanted: dict[tuple[int, int], tuple[str, str]] = {}
    texts = [
        "",
        "temp > 3",
        "temp < 5",
        "city = 'x'",
        "temp BETWEEN 2 AND 6 AND city <> 'y'",
        "city RLIKE '^x'",
        "no filter",
    ]
    for step in range(200):
        peer, number = rng.randrange(4), rng.randrange(20 if seed % 2 else 4)
        if rng.random() < 0.6:
            text, group = rng.choice(texts), rng.choice(["", "", "", "g"])
            plan.want(Peer(peer), number, text, group)
            wanted[peer, number] = (text, group)
        elif rng.random() < 0.9:
            plan.drop(Peer(peer), number)
            wanted.pop((peer, number), None)
        else:
            plan.forget(Peer(peer))
            wanted = {key: want for key, want in wanted.items() if key[0] != peer}
        if step % 5:
            continue
        events = [
            {"temp": rng.randrange(9), "city": rng.choice(["x", "y", None])}
            for _ in range(rng.choice([1, 3, 40]))
        ]
        rows = [schema.row(event) for event in events]
        data = (
            packed.pack(packed.from_values(events))
            if rng.random() < 0.5
            else msgspec.msgpack.encode(rows)
        )
        batch = Batch("weather", 9, 1, 1, len(rows), 1, 0, 0, data)
        shares = plan.shares(Payload(batch, packed), 1)
        passes = {key: understood(text, schema) for key, (text, _) in wanted.items()}
        for peer in range(4):
            own = [f for key, f in passes.items() if key[0] == peer and not wanted[key][1]]
            right = [
                at
                for at, row in enumerate(rows)
                if any(f is None or f.matches_row(row) for f in own)
            ]
            found = [places for who, group, places in shares if who == peer and not group]
            assert [list(range(len(rows))) if places is None else places for places in found] == (
                [right] if right else []
            )
        shared = sorted(
            at for _, group, places in shares if group for at in places or range(len(rows))
        )
        some = [f for key, f in passes.items() if wanted[key][1]]
        assert shared == [
            at for at, row in enumerate(rows) if any(f is None or f.matches_row(row) for f in some)
        ]


def test_lies_about_wants_and_portions_are_refused_or_harmless() -> None:
    fabric = Fabric(3)
    mine = fabric.enter(1, "temp > 30", Route.DIRECT)
    assert fabric.matched(fabric.publish(0, 40)) == 1
    victim, now = fabric.core(1), Micros(fabric.now)
    portion = Portion("weather", 3, 1, 10, 0, 9, (0,), "", b"\x91\x93\xc0\xc0\x32")
    # Node 0 says that it is an event of node 2.
    effects = victim.receive(Peer(1), portion, now)
    assert not [e for e in effects if isinstance(e, Send)]
    assert fabric.got == {(1, mine): [40]}
    publisher = fabric.core(0)
    for lie in (
        Wanted(2**64 - 1, 1, 0, 1, 1, ()),
        Wanted(1, 1, 5, 3, 4, ()),
        Watch(7, 2**53, 2**53),
    ):
        fabric.carry_out(0, publisher.receive(Peer(2), lie, now))
    assert fabric.matched(fabric.publish(0, 50)) == 1


def test_a_topic_may_grow_by_nullable_attributes_and_old_and_new_events_are_read_alike() -> None:
    fabric = Fabric(3)
    mine = fabric.enter(1, "temp > 30", Route.DIRECT)
    fabric.publish(0, 40)
    longer = "country STRING, city STRING, temp INT, wind INT"
    fabric.command(2, "advertise", "weather", longer)
    fabric.until(
        lambda: all(fabric.core(n).topics.schemas["weather"].text == longer for n in range(3))
    )
    windy = fabric.enter(2, "wind > 5", Route.AUTO)
    assert fabric.matched(fabric.publish(0, 50, wind=9)) == 2
    assert fabric.matched(fabric.publish(1, 60)) == 1
    assert fabric.got == {(1, mine): [40, 50, 60], (2, windy): [50]}
    # An older program advertises its schema, and there is no conflict.
    fabric.command(0, "advertise", "weather", "country STRING, city STRING, temp INT")
    for other in (
        "country STRING, city STRING, temp INT, wind INT, rain INT NOT NULL",
        "country STRING, temp INT",
    ):
        with pytest.raises(TopicError, match="already advertised as"):
            fabric.core(0).advertise("weather", other, Micros(fabric.now))
