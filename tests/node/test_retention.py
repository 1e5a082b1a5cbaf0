"""Retention: its text, how it travels, and what a publisher keeps."""

from __future__ import annotations

from random import Random

import pytest

from gossamer.filters import Schema
from gossamer.machine import Forget, Keep, LinkState, Micros, Note, Peer, Send, Store
from gossamer.node import NodeConfig, NodeCore
from gossamer.node.retention import (
    BYTES_DEFAULT,
    OVERHEAD,
    SEQUENCE_MAX,
    Retained,
    Retention,
    RetentionError,
    seconds_of,
)
from gossamer.node.topics import Advert, Adverts, Rule, TopicError, Topics
from gossamer.overlay.batch import Batch, Report
from gossamer.trace import Rejected

NOW = Micros(1000)
SCHEMA = Schema.parse("a INT")
HOUR, DAY = Retention(3600, BYTES_DEFAULT), Retention(86_400, BYTES_DEFAULT)


@pytest.mark.parametrize(
    ("text", "seconds", "size"),
    [
        ("1h", 3600, BYTES_DEFAULT),
        ("64MB", 0, 64 << 20),
        ("1.5h, 2kb", 5400, 2048),
        ("10 GB,7d", 604_800, 10 << 30),
    ],
)
def test_retention_is_an_age_a_size_or_both(text: str, seconds: int, size: int) -> None:
    assert Retention.parse(text) == Retention(seconds, size)
    assert Retention.parse(Retention.parse(text).text) == Retention(seconds, size)


@pytest.mark.parametrize(
    "text", ["", "1", "h", "1h 2MB", "1h,2h", "1MB,2MB", "-1h", "0s", "1e9d", "99999d"]
)
def test_what_cannot_be_read_says_what_can(text: str) -> None:
    with pytest.raises(RetentionError, match="retention"):
        Retention.parse(text)


def test_durations() -> None:
    assert seconds_of("10m") == 600
    with pytest.raises(RetentionError, match="duration"):
        seconds_of("10 parsecs")


def test_two_retentions_are_an_error_that_names_both_and_none_agrees_with_any() -> None:
    topics = Topics()
    topics.advertise("t", SCHEMA, NOW, HOUR)
    topics.advertise("t", SCHEMA, NOW)
    with pytest.raises(TopicError, match=r"'1h, 256MB', which is not '1d, 256MB'"):
        topics.advertise("t", SCHEMA, NOW, DAY)
    [note] = [
        e
        for e in topics.receive(
            Peer(2), Adverts((Advert("t", "a INT", 0, 2, Rule(86_400, 1)),)), NOW
        )
        if type(e) is Note
    ]
    assert isinstance(note.record, Rejected)
    assert "'1h, 256MB' here and '1d, 1B' at the peer" in note.record.reason


def test_retention_travels_with_the_advertisement_and_may_be_added_later() -> None:
    topics, other = Topics(), Topics()
    topics.link(Peer(2), LinkState.UP, NOW)
    [sent] = [e for e in topics.advertise("t", SCHEMA, NOW, HOUR) if type(e) is Send]
    other.receive(Peer(1), sent.message, NOW)  # type: ignore[arg-type]
    assert other.retentions == {"t": HOUR}
    topics.advertise("u", SCHEMA, NOW)
    [sent] = [e for e in topics.advertise("u", SCHEMA, NOW, DAY) if type(e) is Send]
    assert sent.message == Adverts((Advert("u", "a INT", 0, 0, Rule(86_400, BYTES_DEFAULT)),))
    other.receive(Peer(1), sent.message, NOW)  # type: ignore[arg-type]
    assert other.retentions["u"] == DAY
    assert topics.unconfirmed


def batch(
    first: int, size: int = 100, count: int = 10, topic: str = "t", incarnation: int = 1
) -> Batch:
    return Batch(topic, 1, incarnation, first, count, 1, 0, 0, b"x" * size)


def test_what_is_old_or_too_much_goes_oldest_first_and_is_remembered_as_gone() -> None:
    retained = Retained(durable=True, total=1 << 30)
    for number in range(5):
        retained.add(batch(1 + 10 * number), at=number * 1_000_000)
    rules = {"t": Retention(2, 2 * (100 + OVERHEAD))}
    [records] = retained.trim(rules, nothing, at=3_500_000)
    assert records[0] == Keep("trim/t", retained_id("t", 1, 30, 2_000_000))
    assert records[1:] == [Forget(retained.key(1, first)) for first in (1, 11, 21)]
    assert [kept.batch.first for kept in retained.batches("t", (0, 0))] == [31, 41]
    assert [kept.batch.first for kept in retained.batches("t", (1, 40))] == [41]
    assert retained.trimmed_through("t") == ((1, 30), 2_000_000)
    assert retained.oldest(rules) == 3_000_000 + 2_000_001
    assert not retained.trim(rules, nothing, at=3_500_000)


def retained_id(*id: object) -> bytes:
    import msgspec

    return msgspec.msgpack.encode(id)


def nothing(id: tuple[int, int]) -> bool:
    """waits for its receipt."""
    return False


def test_what_waits_for_its_receipt_stays() -> None:
    retained = Retained(durable=False, total=1 << 30)
    for number in range(3):
        retained.add(batch(1 + 10 * number), at=0)
    retained.trim({"t": Retention(1, 1)}, lambda id: id == (1, 11), at=10_000_000)
    assert [kept.batch.first for kept in retained.batches("t", (0, 0))] == [11, 21]


def test_a_node_keeps_so_much_of_all_topics_together() -> None:
    retained = Retained(durable=False, total=2 * (100 + OVERHEAD))
    for number, topic in enumerate(("a", "b", "a", "b")):
        retained.add(batch(1 + 10 * number, topic=topic), at=0)
    retained.trim({name: Retention(0, 1 << 20) for name in "ab"}, nothing, at=1)
    assert retained.bytes <= 2 * (100 + OVERHEAD)


def test_of_all_topics_together_the_oldest_goes_first_and_what_waits_for_its_receipt_stays() -> (
    None
):
    retained = Retained(durable=True, total=2 * (100 + OVERHEAD))
    for number, topic in enumerate(("a", "b", "b", "c", "a", "c")):
        retained.add(batch(1 + 10 * number, topic=topic), at=number)
    groups = retained.trim(
        {name: Retention(0, 1 << 20) for name in "abc"}, lambda id: id == (1, 31), at=9
    )
    assert retained.bytes == 2 * (100 + OVERHEAD)
    assert [kept.batch.first for name in "abc" for kept in retained.batches(name, (0, 0))] == [
        31,
        51,
    ]
    assert {group[0].key: [record.key for record in group[1:]] for group in groups} == {
        "trim/a": [retained.key(1, 1), retained.key(1, 41)],
        "trim/b": [retained.key(1, 11), retained.key(1, 21)],
    }


class Publisher:
    """A node by itself, with an event every millisecond. Each event is a batch of its own, and the
    disk takes no time.
    """

    def __init__(self, *, durable: bool, **config: int) -> None:
        self.now = Micros(0)
        self.disk: dict[str, bytes] = {}
        self.core = NodeCore(
            Peer(1), incarnation=1, rng=Random(1), durable=durable, config=NodeConfig(**config)
        )
        # The bytes that were retained at the end, without the last batch, which is never let go at
        # once.
        self.most = 0

    def publish(self, topic: str, count: int, size: int = 1000) -> None:
        for number in range(count):
            self.core.publish(topic, {"s": f"{number:0{size}d}"}, self.now)
            self.act()
            self.most = max(self.most, self.core.retained.bytes - size - OVERHEAD)
            self.now = Micros(self.now + 1000)

    def act(self) -> None:
        effects = self.core.wake(self.now)
        for effect in effects:
            if isinstance(effect, Store):
                for record in effect.records:
                    if isinstance(record, Keep):
                        self.disk[record.key] = record.value
                    else:
                        self.disk.pop(record.key, None)
                effects += self.core.stored(effect.token, self.now)

    def idle(self, seconds: float) -> None:
        until = self.now + seconds * 1e6
        while self.core.deadline <= until:
            self.now = Micros(max(self.now, self.core.deadline))
            self.act()


@pytest.mark.parametrize("durable", [False, True])
def test_a_size_is_a_bound_however_fast_a_node_publishes(durable: bool) -> None:
    publisher = Publisher(durable=durable)
    publisher.core.advertise("t", "s STRING", publisher.now, Retention.parse("64KB"))
    # A thousand events come in a second. The timer alone once let 2,560 go at most, and none
    # without a disk.
    publisher.publish("t", 6000)
    assert publisher.most <= 64 << 10
    publisher.idle(5)
    assert publisher.core.retained.bytes <= 64 << 10
    [first, *_] = publisher.core.retained.batches("t", (0, 0))
    # A node that comes too late is told.
    assert publisher.core.retained.trimmed_through("t")[0] == (
        1,
        first.batch.first - 1,
    )
    assert len([key for key in publisher.disk if key.startswith("ret/")]) == durable * (
        64 << 10
    ) // (1000 + 5 + OVERHEAD)


@pytest.mark.parametrize("durable", [False, True])
def test_all_that_a_node_retains_is_bounded_however_fast_it_publishes(durable: bool) -> None:
    total = 256 << 10
    publisher = Publisher(durable=durable, retained=total)
    for topic in "abcd":
        publisher.core.advertise(topic, "s STRING", publisher.now, Retention.parse("1h"))
    for _ in range(10):
        for topic in "abcd":
            publisher.publish(topic, 100)
    assert publisher.most <= total + total // 16
    publisher.idle(5)
    assert publisher.core.retained.bytes <= total


@pytest.mark.parametrize("durable", [False, True])
def test_what_is_much_too_much_at_a_start_goes_without_anything_being_published(
    durable: bool,
) -> None:
    kept = Retained(durable=True, total=1 << 30)
    disk = {kept.key(1, first): kept.encode(batch(first, count=1), 7) for first in range(1, 20_001)}
    core = NodeCore(Peer(1), incarnation=2, rng=Random(1), durable=durable, restored=disk)
    publisher = Publisher(durable=durable)
    publisher.core, publisher.disk = core, disk
    core.advertise("t", "s STRING", publisher.now, Retention.parse("64KB"))
    publisher.idle(2)
    assert core.retained.bytes <= 64 << 10
    if durable:
        assert len([key for key in disk if key.startswith("ret/")]) == (64 << 10) // (
            100 + OVERHEAD
        )


def test_one_event_without_a_receipt_does_not_keep_what_has_one_on_another_topic() -> None:
    publisher = Publisher(durable=False)
    core = publisher.core
    core.link(Peer(2), LinkState.UP, publisher.now)
    for topic in "ab":
        core.advertise(topic, "s STRING", publisher.now, Retention.parse("8KB"))
    for number in range(1, 101):
        core.publish("a" if number == 1 else "b", {"s": "x" * 1000}, publisher.now)
        core.wake(publisher.now)
        # A slow subscriber of "a" holds back its own publisher.
        if number > 1:
            core.receive(Peer(2), Report(1, 1, number, 0, True), publisher.now)
    publisher.idle(2)
    about = core.retained.about()
    assert about["a"]["batches"] == 1
    assert about["b"]["bytes"] <= 8 << 10


def test_what_the_disk_kept_is_there_again() -> None:
    retained = Retained(durable=True, total=1 << 30)
    disk = {
        retained.key(1, 11): retained.encode(batch(11), 7),
        "trim/t": retained_id("t", 1, 10, 5),
        "other": b"",
    }
    retained.restore(disk)
    assert [(kept.at, kept.batch.first) for kept in retained.batches("t", (0, 0))] == [(7, 11)]
    assert retained.trimmed_through("t") == ((1, 10), 5)


def test_a_life_that_published_without_retention_is_known_to_the_next_one() -> None:
    retained = Retained(durable=True, total=1 << 30, life=3)
    [keep] = retained.tell("t", 9)
    assert isinstance(keep, Keep)
    assert retained.tell("t", 10) == []
    later = Retained(durable=True, total=1 << 30, life=4)
    later.restore({keep.key: keep.value})
    assert later.trimmed_through("t") == ((3, SEQUENCE_MAX), 9)
    assert later.trimmed_through("u") == ((0, 0), 0)
