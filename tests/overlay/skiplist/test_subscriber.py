"""A subscription is ready when its entries have joined and every publisher knows its classes;
places move without a gap.
"""

from __future__ import annotations

from random import Random

import pytest

from gossamer.filters import Filter, Schema
from gossamer.filters.place import ALL, Class
from gossamer.machine import Micros, Peer
from gossamer.overlay.skiplist.config import SkipConfig
from gossamer.overlay.skiplist.core import SkipList
from gossamer.overlay.skiplist.joining import Joined
from gossamer.overlay.skiplist.places import CLASSES_MAX, HEARD_MAX, Classes, Places
from gossamer.overlay.skiplist.subscriber import Subscriber

SCHEMA = Schema.parse("a INT, b INT, c INT")
NOW = Micros(0)


def parse(text: str) -> Filter:
    return Filter.parse(text, SCHEMA)


def make(most: int = 256, entries_max: int = 512) -> Subscriber:
    machine = SkipList(
        Peer(1), incarnation=1, rng=Random(1), config=SkipConfig(entries_max=entries_max),
        arrive=lambda *_, **__: (), complete=lambda _: None,
        address=lambda _: None, contacts=list,
    )  # fmt: skip
    return Subscriber(machine, Places(Classes(), most))


def step(subscriber: Subscriber, now: int = 0) -> None:
    """Let a lone node's entries join each other."""
    for effect in subscriber.machine.wake(Micros(now)):
        if any(isinstance(what, Joined) for what in getattr(effect, "events", ())):
            subscriber.joined(Micros(now))


def test_ready_needs_the_join_and_the_barrier() -> None:
    subscriber = make()
    subscriber.subscribe(7, parse("a = 1"), NOW)
    assert subscriber.announced == (Class((0,)),)
    step(subscriber)
    assert all(entry.is_joined for entry in subscriber.machine.entries.values())
    assert subscriber.ready() == [], "a publisher may not know the class yet"
    subscriber.confirmed(subscriber.announced, NOW)
    assert subscriber.ready() == [7]
    assert subscriber.ready() == []
    subscriber.subscribe(8, parse("a = 2"), NOW)
    assert subscriber.ready() == [], "known, but not joined"
    step(subscriber, 1)
    step(subscriber, 2)
    assert subscriber.ready() == [8], "of a class that everybody knows: no barrier"


def test_identical_filters_are_ready_at_once() -> None:
    subscriber = make()
    subscriber.subscribe(1, parse("a = 1"), NOW)
    step(subscriber)
    subscriber.confirmed(subscriber.announced, NOW)
    subscriber.subscribe(2, parse("a = 1"), NOW)
    assert subscriber.ready() == [1, 2]
    subscriber.unsubscribe(1, NOW)
    assert len(subscriber.machine.entries) == 1
    subscriber.unsubscribe(2, NOW)
    assert not subscriber.machine.entries
    assert subscriber.announced == (), "nor is the class announced any longer"
    with pytest.raises(KeyError):
        subscriber.unsubscribe(2, NOW)


def test_a_filter_that_cannot_match_needs_no_place() -> None:
    subscriber = make()
    subscriber.subscribe(1, parse("a = 1 AND a = 2"), NOW)
    assert not subscriber.machine.entries
    assert subscriber.ready() == [1]


def test_old_places_stay_until_the_new_ones_are_ready() -> None:
    subscriber = make(most=4)
    for number in range(4):
        subscriber.subscribe(number, parse(f"a = 1 AND b = {number}"), NOW)
    for now in range(6):
        step(subscriber, now)
    subscriber.confirmed(subscriber.announced, NOW)
    assert subscriber.ready() == [0, 1, 2, 3]
    old = set(subscriber.machine.entries)
    subscriber.subscribe(4, parse("a = 1 AND b = 4"), NOW)
    assert len(subscriber.places.keys) == 1, "one place over a, which covers all five"
    assert old < set(subscriber.machine.entries)
    for now in range(10, 16):
        step(subscriber, now)
    assert old < set(subscriber.machine.entries), "joined, but not yet known to every publisher"
    assert Class((0, 1)) in subscriber.announced
    subscriber.confirmed([Class((0,))], NOW)
    assert set(subscriber.machine.entries) == set(subscriber.places.keys)
    assert subscriber.announced == (Class((0,)),)
    assert subscriber.ready() == [4], "the others were ready all the while"


def test_thousands_of_filters_are_256_places_and_other_classes_are_left_alone() -> None:
    subscriber = make()
    for number in range(3_000):
        subscriber.subscribe(number, parse(f"a = {number % 50} AND b = {number}"), NOW)
        assert len(subscriber.places.keys) <= 256
        assert len(subscriber.machine.entries) <= 512
    subscriber.subscribe(9_999, parse("c = 5"), NOW)
    assert len(subscriber.places.keys) == 51
    assert ALL not in subscriber.announced, "not every event of the topic comes here"
    assert subscriber.matching((7, 57, 5)) == [57, 9_999]


def test_what_there_is_no_room_for_enters_later() -> None:
    subscriber = make(most=3, entries_max=3)
    for number in range(3):
        subscriber.subscribe(number, parse(f"a = 1 AND b = {number}"), NOW)
    subscriber.subscribe(3, parse("a = 1 AND b = 3"), NOW)
    assert len(subscriber.machine.entries) == 3
    subscriber.unsubscribe(0, NOW)
    assert set(subscriber.places.keys) <= set(subscriber.machine.entries), (
        "nobody relied on the old ones yet"
    )


def test_answers_to_look_ups() -> None:
    subscriber = make()
    subscriber.subscribe(1, parse("a = 1 AND c > 5"), NOW)
    subscriber.subscribe(2, parse("a = 1 AND c > 7"), NOW)
    found = {key: subscriber.answer(key, (1, 0, 6)) for key in subscriber.machine.entries}
    assert [told for several in found.values() for told in several] == [
        (1, parse("a = 1 AND c > 5").text)
    ]
    assert sum(len(subscriber.answer(key, None)) for key in subscriber.machine.entries) == 2


def test_what_others_announce() -> None:
    classes = Classes()
    one, two = Class((0,)), Class((1,))
    classes.hear(5, (one, two))
    classes.hear(6, (one,))
    assert list(classes) == [one, two]
    classes.hear(5, ())
    assert list(classes) == [one], "as long as anybody uses it"
    assert classes.announce(one)
    assert not classes.is_settled(one), (
        "that others use it does not say that publishers will go on looking for us"
    )
    classes.confirm((one, two))
    assert classes.is_settled(one)
    assert not classes.is_settled(two)
    classes.hear(6, ())
    assert list(classes) == [one]
    classes.retire(one)
    assert not len(classes)
    assert classes.own == ()


def test_announced_classes_are_bounded() -> None:
    classes = Classes()
    classes.hear(5, [Class((), "between", 0, bits) for bits in range(HEARD_MAX + 44)])
    assert (len(classes), classes.left_out) == (HEARD_MAX, 44)
    assert not classes.announce(Class((1,))), f"beyond {CLASSES_MAX} nobody begins a new one"
    assert classes.announce(ALL)
    assert classes.announce(Class((), "between", 0, 3)), "one that is in use anyway costs nothing"
