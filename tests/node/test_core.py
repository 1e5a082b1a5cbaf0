"""The node core by hand: commands in, effects out."""

from __future__ import annotations

import re
from random import Random

import pytest

from gossamer.filters import EventError, FilterError, Schema, SchemaError
from gossamer.machine import (
    NEVER,
    SECOND,
    Deliver,
    Forget,
    Keep,
    LinkState,
    Micros,
    Note,
    Peer,
    Send,
    Store,
    Token,
)
from gossamer.node import NodeConfig, NodeCore, SlowPolicy, TopicError, WindowFullError
from gossamer.node.bounds import SECONDS, WHOLE
from gossamer.node.core import INCARNATION_KEY
from gossamer.node.topics import TOPICS_MAX, Advert, Adverts, AdvertsTaken
from gossamer.node.wire import Ping
from gossamer.overlay.batch import Batch, Report
from gossamer.trace import (
    Completed,
    Delivered,
    Dropped,
    Published,
    Rejected,
    Restored,
    SchemaConflict,
    Subscribed,
    Unsubscribed,
)

NOW = Micros(1000)
WEATHER = "country STRING, temp INT"


def core(**kwargs: object) -> NodeCore:
    config = kwargs.pop("config", NodeConfig())
    return NodeCore(
        Peer(1), incarnation=kwargs.pop("incarnation", 1), rng=Random(1), config=config, **kwargs
    )  # type: ignore[arg-type]


def sends(effects: list, kind: type) -> list:
    return [e.message for e in effects if isinstance(e, Send) and isinstance(e.message, kind)]


def notes(effects: list, kind: type) -> list:
    return [e.record for e in effects if isinstance(e, Note) and isinstance(e.record, kind)]


def delivered(effects: list) -> list:
    return [event for e in effects if isinstance(e, Deliver) for event in e.events]


def test_events_published_together_travel_together_and_match_here_too() -> None:
    node = core()
    node.link(Peer(2), LinkState.UP, NOW)
    node.advertise("weather", WEATHER, NOW)
    node.wake(NOW)
    number = node.subscribe("weather", "temp > 30", NOW)
    tickets = [
        node.publish("weather", {"country": "CH", "temp": temp}, NOW) for temp in (29, 30, 31)
    ]
    assert node.deadline <= NOW
    effects = node.wake(NOW)
    assert node.deadline > NOW
    [batch] = sends(effects, Batch)
    assert (batch.first, batch.count, batch.floor) == (1, 3, 1)
    [event] = delivered(effects)
    assert event["temp"] == 31
    assert event.id == (1, 1, 3)
    assert [ticket.id for ticket in tickets] == [(1, 1), (1, 2), (1, 3)]
    assert not tickets[0].done
    node.receive(Peer(2), Report(1, 1, 1, 0, True, (1, 1, 0)), NOW)
    assert [ticket.matched for ticket in tickets] == [1, 1, 1]
    assert node.changed == [tickets[0].publication]
    assert node.outbox.events == node.outbox.bytes == 0
    assert number == 1


def test_the_floor_follows_the_receipts() -> None:
    node = core()
    node.link(Peer(2), LinkState.UP, NOW)
    node.advertise("weather", WEATHER, NOW)
    floors = []
    for index in range(4):
        node.publish("weather", {"temp": index}, NOW)
        floors += [batch.floor for batch in sends(node.wake(NOW), Batch)]
        # The second receipt never comes.
        if index != 1:
            node.receive(Peer(2), Report(1, 1, index + 1, 0, True), NOW)
    assert floors == [1, 2, 2, 2]


def test_a_full_window_is_a_typed_error_and_receipts_open_it() -> None:
    node = core(config=NodeConfig(window=4, batch_events=2))
    node.link(Peer(2), LinkState.UP, NOW)
    node.advertise("weather", WEATHER, NOW)
    for temp in range(4):
        node.publish("weather", {"temp": temp}, NOW)
    with pytest.raises(WindowFullError, match="4 events without a receipt"):
        node.publish("weather", {"temp": 5}, NOW)
    assert not node.window_is_open
    node.wake(NOW)
    node.receive(Peer(2), Report(1, 1, 1, 0, True), NOW)
    assert node.window_is_open
    node.publish("weather", {"temp": 5}, NOW)


def test_misuse_raises_and_leaves_nothing_behind() -> None:
    node = core(config=NodeConfig(event_bytes=100))
    with pytest.raises(TopicError, match="'weather' is not advertised"):
        node.publish("weather", {}, NOW)
    with pytest.raises(TopicError, match="'weather' is not advertised"):
        node.subscribe("weather", "", NOW)
    with pytest.raises(SchemaError):
        node.advertise("weather", "country", NOW)
    with pytest.raises(TopicError, match="1 to 255 characters"):
        node.advertise("", WEATHER, NOW)
    node.advertise("weather", WEATHER, NOW)
    # The same advertisement again is fine.
    node.advertise("weather", WEATHER, NOW)
    with pytest.raises(
        TopicError,
        match=r"already advertised as \(country STRING, temp INT\), which is not \(temp INT\)",
    ):
        node.advertise("weather", "temp INT", NOW)
    with pytest.raises(FilterError):
        node.subscribe("weather", "temp > ", NOW)
    with pytest.raises(EventError, match="at most 100 are allowed"):
        node.publish("weather", {"country": "x" * 200}, NOW)
    with pytest.raises(EventError):
        node.publish("weather", {"wind": 3}, NOW)
    assert not node.outbox.open
    assert not node.subscriptions
    assert not sends(node.wake(NOW), Batch)
    for number in range(TOPICS_MAX - 1):
        node.advertise(f"topic {number}", WEATHER, NOW)
    with pytest.raises(TopicError, match="no room for another topic: a node keeps 4096"):
        node.advertise("one more", WEATHER, NOW)


def test_rows_that_do_not_fit_the_schema_are_rejected_and_still_reported() -> None:
    node = core()
    node.link(Peer(2), LinkState.UP, NOW)
    node.advertise("weather", WEATHER, NOW)
    node.wake(NOW)
    node.subscribe("weather", "", NOW)
    for first, rows in enumerate(
        (b"\xc1", b"\x91\x92\xa1x\xa1y", b"\x92\x92\xc0\xc0\x92\xc0\xc0"), 1
    ):
        effects = node.receive(Peer(2), Batch("weather", 7, 1, first, 1, 1, 0, 1, rows), NOW)
        assert len(notes(effects, Rejected)) == 1
        assert not delivered(effects)
        assert sends(effects, Report) == [Report(7, 1, first, 0, True)]
    assert notes(node.receive(Peer(2), Ping(), NOW), Rejected)


def test_a_slow_consumer_holds_reports_back_and_is_then_cut_off() -> None:
    node = core(config=NodeConfig(buffer=4, block=1))
    node.link(Peer(2), LinkState.UP, NOW)
    node.advertise("weather", WEATHER, NOW)
    node.wake(NOW)
    slow, fast = (node.subscribe("weather", "", NOW) for _ in range(2))
    node.subscribe("weather", "", NOW, SlowPolicy.DROP_OLDEST)
    row = b"\x92\xc0\xc0"

    def arrive(first: int) -> list:
        effects = node.receive(
            Peer(2), Batch("weather", 7, 1, first, 3, 1, 0, 1, b"\x93" + row * 3), NOW
        )
        node.taken(fast, 3, NOW)
        return effects

    assert len(sends(arrive(1), Report)) == 1
    # Six events wait for the slow subscription, and four are allowed.
    assert not sends(arrive(4), Report)
    node.taken(slow, 4, NOW)
    assert sends(node.wake(NOW), Report) == [Report(7, 1, 4, 0, True, (3, 3, 3))]
    assert not sends(arrive(7), Report)
    late = Micros(NOW + SECOND)
    assert node.deadline <= late
    effects = node.wake(late)
    assert sends(effects, Report) == [Report(7, 1, 7, 0, True, (2, 2, 2), (1, 1, 1))]
    assert [(n.what, n.count) for n in notes(effects, Dropped)] == [("subscription", 5)]
    assert notes(effects, Unsubscribed) == [Unsubscribed(slow, "slow")]
    assert sorted(node.subscriptions) == [fast, 3]


def test_durable_events_are_sent_once_stored_and_forgotten_once_complete() -> None:
    node = core(durable=True, restored={})
    [first] = [e for e in node.wake(NOW) if isinstance(e, Store)]
    assert first.records == (Keep(INCARNATION_KEY, b"1"),)
    node.link(Peer(2), LinkState.UP, NOW)
    node.advertise("weather", WEATHER, NOW)
    ticket = node.publish("weather", {"temp": 1}, NOW)
    effects = node.wake(NOW)
    topic, store = [e for e in effects if isinstance(e, Store)]
    assert [record.key for record in topic.records] == ["topic/weather"]
    assert not sends(effects, Batch)
    assert not ticket.publication.accepted
    assert sends(node.stored(store.token, NOW), Batch)
    assert ticket.publication.accepted
    assert node.stored(Token(99), NOW) == []
    effects = node.receive(Peer(2), Report(1, 1, 1, 0, True), NOW)
    [forget] = [e for e in effects if isinstance(e, Store)]
    assert forget.records == (Forget(store.records[-1].key),)


def test_a_restart_publishes_again_under_the_first_ids() -> None:
    disk: dict[str, bytes] = {}
    node = core(durable=True, restored={})
    node.advertise("weather", WEATHER, NOW)
    for temp in (1, 2):
        node.publish("weather", {"temp": temp}, NOW)
        for effect in node.wake(NOW):
            if isinstance(effect, Store):
                disk |= {
                    record.key: record.value
                    for record in effect.records
                    if isinstance(record, Keep)
                }
    again = core(durable=True, restored=disk, incarnation=2)
    assert notes(again.link(Peer(2), LinkState.UP, NOW), Restored) == [Restored(2, 2)]
    effects = again.wake(NOW)
    batches = sends(effects, Batch)
    assert [(b.incarnation, b.first, b.floor) for b in batches] == [(1, 1, 1), (1, 2, 1)]
    # These rounds are later than any round that others may remember.
    assert all(b.round > 0 for b in batches)
    again.advertise("weather", WEATHER, NOW)
    again.publish("weather", {"temp": 3}, NOW)
    fresh = [e for e in again.wake(NOW) if isinstance(e, Store)][-1]
    assert fresh.records[0].key != next(iter(k for k in disk if k.startswith("out/")))


def test_adverts_reach_new_links_and_are_unconfirmed_until_they_are_answered() -> None:
    node = core()
    node.advertise("weather", WEATHER, NOW)
    node.wake(NOW)
    effects = node.link(Peer(2), LinkState.UP, NOW)
    text = Schema.parse(WEATHER).text
    assert sends(effects, Adverts) == [Adverts((Advert("weather", text, 0, node.peer),))]
    assert node.topics.unconfirmed
    assert node.deadline == NEVER
    node.receive(Peer(2), AdvertsTaken(), NOW)
    assert not node.topics.unconfirmed


def test_adverts_are_passed_on_but_not_back_and_conflicts_are_told() -> None:
    node = core()
    for peer in (2, 3):
        node.link(Peer(peer), LinkState.UP, NOW)
    effects = node.receive(Peer(2), Adverts((Advert("weather", WEATHER, 0, 2),)), NOW)
    passed = [e.to for e in effects if isinstance(e, Send) and isinstance(e.message, Adverts)]
    assert passed == [(3,)]
    effects = node.receive(
        Peer(3),
        Adverts(
            (
                Advert("weather", "temp INT", 0, 3),
                Advert("bad", "no such schema at all", 0, 3),
            )
        ),
        NOW,
    )
    assert len(notes(effects, Rejected)) == 1
    assert notes(effects, SchemaConflict) == [
        SchemaConflict("weather", "temp INT", "0000000000000003", Schema.parse(WEATHER).text)
    ]
    assert node.topics.schemas["weather"] == Schema.parse(WEATHER)
    assert "bad" not in node.topics.schemas


def test_the_trace_says_what_happened() -> None:
    node = core(config=NodeConfig(trace=True))
    node.advertise("weather", "temp DOUBLE", NOW)
    node.subscribe("weather", "temp > 1", NOW)
    node.publish("weather", {"temp": float("nan")}, NOW)
    effects = node.wake(NOW)
    assert notes(effects, Subscribed) == [Subscribed(1)]
    assert notes(effects, Published) == [Published("weather", 1, 1, {"temp": "NaN"})]
    # NaN is greater than any number, as in Spark.
    assert notes(effects, Delivered) == [Delivered(1, "0000000000000001", 1, 1, 0)]
    assert notes(effects, Completed) == [Completed(1, 1, 1)]


def test_config_says_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="window is 10"):
        NodeConfig(window=10)
    with pytest.raises(ValueError, match="batch_events is 0"):
        NodeConfig(batch_events=0)
    with pytest.raises(ValueError, match="4 x batch_bytes"):
        NodeConfig(event_bytes=4 << 20)


def test_every_limit_refuses_what_it_cannot_be_by_name_and_says_what_it_may_be() -> None:
    for name, (low, high) in WHOLE.items():
        for value in (low - 1, high + 1, -1, 1.5, float("nan"), True, "7", None):
            with pytest.raises(
                ValueError,
                match=f"^{name} is {re.escape(repr(value))}; it must be .* from {low} to",
            ):
                NodeConfig(**{name: value})
    for name, (least, most) in SECONDS.items():
        for value in (0, -1, least / 2, most + 1, float("nan"), float("inf"), True, "7", None):
            with pytest.raises(
                ValueError, match=f"^{name} is {re.escape(repr(value))}; it must be .* seconds from"
            ):
                NodeConfig(**{name: value})
    with pytest.raises(ValueError, match="cannot read retention 'long'"):
        NodeConfig(retention_max="long")
    for name in ("trace", "retention_max", "flood", "interest", "skiplist", "tree"):
        with pytest.raises(ValueError, match=f"^{name} is 7; it must be of type"):
            NodeConfig(**{name: 7})
    numbers = {name for name in NodeConfig.__struct_fields__ if name not in WHOLE | SECONDS}
    # No option goes unchecked.
    assert numbers == {"trace", "retention_max", "flood", "interest", "skiplist", "tree"}


def test_block_is_in_seconds_whole_or_broken() -> None:
    for block in (2, 2.0, 0.5):
        node = core(config=NodeConfig(buffer=1, block=block))
        node.link(Peer(2), LinkState.UP, NOW)
        node.advertise("weather", WEATHER, NOW)
        node.wake(NOW)
        node.subscribe("weather", "", NOW)
        node.receive(
            Peer(2), Batch("weather", 7, 1, 1, 2, 1, 0, 1, b"\x92\x92\xc0\xc0\x92\xc0\xc0"), NOW
        )
        end = Micros(NOW + round(block * SECOND))
        node.wake(Micros(end - 1))
        assert node.subscriptions
        node.wake(end)
        assert not node.subscriptions
