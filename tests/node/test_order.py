"""The events that an ordered subscription is handed, their order, and the events that an
acknowledgement covers.
"""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace
from tests.node.test_follow import Fabric

from gossamer.filters import Event
from gossamer.machine import MILLISECOND, Micros
from gossamer.node import Route, TapError, Ticket, Wish
from gossamer.node.history import AskPast


def test_through_an_event_covers_what_was_handed_over_before_it_and_nothing_that_waits() -> None:
    fabric = Fabric(4, retention="1h")
    made = fabric.enter(1, name="x", ordered=True)
    fabric.enter(2)
    # Node 2 does not report, so the receipt of the first event stays open, and those after it wait.
    fabric.pause(2)
    for number in (1, 2, 3):
        fabric.command(0, "publish", "t", {"n": number})
        fabric.run(0.1)
    fabric.command(3, "publish", "t", {"n": 100})
    fabric.run(0.1)
    assert [(event["n"], event.offset) for event in fabric.got[1]] == [(1, 1), (100, 4)]
    with pytest.raises(TapError, match="not handed over"):
        fabric.core(1).ack(made, 2, Micros(fabric.now))
    fabric.ack(1, made, fabric.got[1][1], through=True)
    fabric.down(1)
    fabric.resume(2)
    fabric.got.clear()
    fabric.up(1)
    made = fabric.enter(1, name="x", ordered=True)
    fabric.run(5)
    assert [(event["n"], event.offset) for event in fabric.got[1]] == [(2, 2), (3, 3)]
    # An event that was acknowledged by itself has its place in the order, too.
    fabric.publish(3, 101, 102)
    fabric.run(1)
    handed = fabric.got[1]
    assert [event["n"] for event in handed] == [2, 3, 101, 102]
    fabric.ack(1, made, handed[2])
    fabric.ack(1, made, handed[2], through=True)
    fabric.down(1)
    fabric.got.clear()
    fabric.up(1)
    made = fabric.enter(1, name="x", ordered=True)
    fabric.run(5)
    assert fabric.numbers(1) == [102]
    with pytest.raises(TapError, match="not handed over"):
        fabric.core(1).ack(made, fabric.got[1][0].offset + 1, Micros(fabric.now))


WISHES = {
    "named": Wish(name="x", ordered=True),
    "since": Wish(start=0, ordered=True),
    "plain": Wish(ordered=True),
}


@pytest.mark.parametrize("kind", list(WISHES))
@pytest.mark.parametrize("round_trip", [2, 60, 300, 700])
@pytest.mark.parametrize("route", list(Route))
def test_an_ordered_subscription_is_in_order_over_all_its_lives_at_any_round_trip(
    route: Route, round_trip: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing fails here but the subscriber, which is killed, and events never stop."""
    # A disk that is slow beside the network: history waits for it while live events come.
    monkeypatch.setattr("tests.node.test_follow.DISK", 20 * MILLISECOND)
    rng, wanted = Random(f"{route} {round_trip} {kind}"), WISHES[kind]
    latency = round_trip * MILLISECOND // 2
    fabric = Fabric(4, retention="1h", delay=latency, batch_events=4, window=4096)
    tickets: list[Ticket] = []
    # The last event of each publisher, over all lives.
    handed: dict[int, tuple[int, int]] = {}
    came: dict[tuple[int, int, int], int] = {}

    def publish(seconds: float) -> None:
        for _ in range(int(seconds * 100)):
            for number in (0, 3):
                if rng.random() < 0.4:
                    row = {"n": len(tickets)}
                    tickets.append(fabric.command(number, "publish", "t", row))
            fabric.run(0.01)

    def judge() -> None:
        """The events are in order in this life, and new events come after all earlier ones."""
        last: dict[int, tuple[int, int]] = {}
        for event in fabric.got.pop(1, []):
            assert isinstance(event, Event), event
            id = (event.incarnation, event.sequence)
            assert last.get(event.publisher, (0, 0)) < id
            last[event.publisher] = id
            if event.id not in came:
                assert handed.get(event.publisher, (0, 0)) < id
                handed[event.publisher] = id
                came[event.id] = event["n"]

    def enter() -> int:
        made = fabric.command(1, "subscribe", "t", "", route=route, wish=wanted)
        fabric.until(lambda: fabric.core(1).subscriptions[made].in_force)
        assert isinstance(made, int)
        return made

    for _ in range(3):
        made = enter()
        publish(rng.random() + round_trip / 500)
        got = [event for event in fabric.got.get(1, []) if isinstance(event, Event)]
        if wanted.name and got:
            fabric.ack(1, made, rng.choice(got), through=rng.random() < 0.7)
        fabric.down(1)
        judge()
        publish(rng.random() / 2)
        fabric.up(1)
        fabric.until(lambda: "t" in fabric.core(1).topics.schemas)
        # Each life is one by itself.
        if not wanted.name:
            handed.clear()
            came.clear()
    made = enter()
    due = range(0 if kind != "plain" else len(tickets), len(tickets) + 50)
    while len(tickets) < due.stop:
        publish(0.01)
    # Receipts may wait until everybody knows that the lives before have ended.
    fabric.until(lambda: all(ticket.done for ticket in tickets))
    fabric.run(5 + round_trip / 50)
    judge()
    assert set(due) <= set(came.values())
    follow = fabric.core(1).subscriptions[made].follow
    assert follow is not None
    assert follow.about()["early"] == 0


def _small(fabric: Fabric, limit: int) -> None:
    """Node 1 starts again, with durable subscriptions of few events."""
    fabric.node_config = replace(fabric.node_config, durable=limit)
    fabric.down(1)
    fabric.up(1)


def test_a_long_history_and_a_busy_publisher_do_not_stop_a_durable_ordered_subscription(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Events that are published meanwhile wait for the history, and must not keep it from being
    read.
    """
    monkeypatch.setattr("gossamer.node.history.ANSWER_BYTES", 100)
    fabric = Fabric(3, retention="1h", batch_events=8, window=64)
    for first in range(0, 2000, 50):
        fabric.publish(0, *range(first, first + 50))
    _small(fabric, 40)
    made = fabric.enter(1, name="x", start=0, ordered=True)
    tickets: list[Ticket] = []
    published = 2000
    most = 0

    def turn() -> None:
        nonlocal most
        fabric.run(0.02)
        follow = fabric.core(1).subscriptions[made].follow
        assert follow is not None
        about = follow.about()
        most = max(most, about["waiting"])
        assert about["early"] == 0
        if fabric.got.get(1):
            fabric.ack(1, made, fabric.got[1][-1], through=True)

    for _ in range(400):
        if sum(not ticket.done for ticket in tickets) < 60:
            tickets.append(fabric.command(0, "publish", "t", {"n": published}))
            published += 1
        turn()
    while not all(ticket.done for ticket in tickets):
        turn()
    for _ in range(100):
        turn()
    assert fabric.numbers(1) == list(range(published))
    # The publisher was held back: no more waited than the limit and its window.
    assert 40 < most <= 40 + 64


def test_a_durable_subscription_is_not_cut_off_for_what_its_consumer_was_not_handed() -> None:
    fabric = Fabric(4, retention="1h", batch_events=1, window=64)
    _small(fabric, 4)
    made = fabric.enter(1, name="x", ordered=True)
    fabric.enter(2)
    fabric.pause(2)
    for number in range(30):
        fabric.command(0, "publish", "t", {"n": number})
        fabric.run(0.01)
    assert fabric.numbers(1) == [0]
    fabric.ack(1, made, fabric.got[1][0])
    fabric.run(6.5)
    assert fabric.numbers(1) == [0]
    assert made in fabric.core(1).subscriptions
    fabric.resume(2)
    fabric.run(1)
    assert fabric.numbers(1) == list(range(30))
    # From here on it is the consumer that acknowledges nothing.
    for number in range(30, 60):
        fabric.command(0, "publish", "t", {"n": number})
        fabric.run(0.01)
    fabric.run(6.5)
    assert made not in fabric.core(1).subscriptions


def test_acknowledged_events_go_from_the_disk_before_one_that_is_not_acknowledged() -> None:
    fabric = Fabric(2, retention="1h", batch_events=2)
    made = fabric.enter(1, name="x")
    fabric.publish(0, *range(20))
    for event in fabric.got[1][1:]:
        fabric.ack(1, made, event)
    fabric.run(15)
    assert [key for key in fabric.places[1].disk if "/e/" in key] == ["tap/x/e/0000000000000001"]
    # Offsets are not used again, and nothing comes twice.
    fabric.down(1)
    fabric.got.clear()
    fabric.up(1)
    fabric.enter(1, name="x")
    fabric.publish(0, 20)
    fabric.run(5)
    assert [(event["n"], event.offset) for event in fabric.got[1]] == [(0, 1), (20, 21)]


def test_a_question_is_repeated_only_after_twice_the_time_that_the_last_answer_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gossamer.node.history.ANSWER_BYTES", 100)
    fabric = Fabric(2, retention="1h", batch_events=8, window=512, delay=1500 * MILLISECOND)
    fabric.publish(0, *range(400))
    fabric.sent = []
    fabric.enter(1, start=0, ordered=True)
    fabric.until(lambda: len(fabric.numbers(1)) == 400, 300)
    assert fabric.numbers(1) == list(range(400))
    asked = [message for *_, message, _ in fabric.sent if isinstance(message, AskPast)]
    places = {message.after for message in asked}
    assert len(places) > 10
    # Only the first question is repeated: nothing is known yet of how long an answer takes.
    assert len(asked) <= len(places) + 3


@pytest.mark.parametrize("route", list(Route))
def test_an_event_that_was_on_its_way_when_an_ordered_subscription_began_never_comes_late(
    route: Route, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The subscriber stops soon after its first events, and asks for those that it missed."""
    fabric = Fabric(3, retention="1h", buffer=4)
    # A slow consumer holds the receipts of the first events back.
    slow = fabric.enter(2)
    monkeypatch.setattr(fabric.core(2), "taken", lambda *_: None)
    first = [fabric.command(0, "publish", "t", {"n": n}) for n in range(20)]
    fabric.run(0.5)
    assert not first[-1].done
    fabric.enter(1, route=route, name="x", ordered=True)
    fabric.run(0.5)
    assert not first[-1].done
    monkeypatch.undo()
    fabric.command(2, "taken", slow, 20)
    fabric.publish(0, *range(20, 40))
    fabric.run(0.5)
    first_life = fabric.numbers(1)
    assert first_life[-20:] == list(range(20, 40))
    fabric.down(1)
    fabric.got.clear()
    fabric.up(1)
    fabric.enter(1, route=route, name="x", ordered=True)
    fabric.publish(0, *range(40, 50))
    fabric.until(lambda: 49 in fabric.numbers(1))
    handed = [*first_life, *(number for number in fabric.numbers(1) if number not in first_life)]
    assert handed == list(range(handed[0], 50))
