"""Every checker of the skip list can fail, and is silent where nothing is wrong."""

from __future__ import annotations

from gossamer.lab.skiplist import checkers as check
from gossamer.lab.skiplist.model import perfect_entry
from gossamer.machine import Micros
from gossamer.overlay.skiplist.entry import Entry
from gossamer.overlay.skiplist.messages import Gap
from gossamer.overlay.skiplist.position import Position


def perfect(count: int, k: int) -> list[Entry]:
    return [perfect_entry(count, k, number) for number in range(count)]


def place(number: int) -> Position:
    return number.to_bytes(8, "big"), 0


def test_perfect_lists_pass() -> None:
    for k in (2, 3, 4):
        for count in (1, 2, 3, 4, 9, 16, 17, 64, 65):
            entries = perfect(count, k)
            circle, perfection, links = check.Circle(), check.Perfection(), check.Links()
            circle.look(entries)
            perfection.look(entries, k)
            assert links.look(entries, k) <= check.link_bound(count, k)
            assert circle.told() == perfection.told() == links.told() == []


def test_levels_and_link_bound() -> None:
    assert [check.levels_of(count, 2) for count in (1, 2, 3, 4, 5, 1000, 1024, 1025)] == [
        0,
        1,
        2,
        2,
        3,
        10,
        10,
        11,
    ]
    assert [check.levels_of(count, 3) for count in (1, 2, 3, 4, 9, 10)] == [0, 1, 1, 2, 2, 3]
    assert check.link_bound(1000, 2) == 20


def test_circle_fails_on_a_wrong_or_missing_neighbour() -> None:
    entries = perfect(5, 2)
    entries[2].put(0, True, place(4), Micros(0))
    circle = check.Circle()
    circle.look(entries)
    assert circle.count == 1
    entries[3].drop(0, False)
    circle = check.Circle()
    circle.look(entries)
    assert circle.count == 2


def test_perfection_fails_on_one_link_that_is_off_by_one_and_on_a_level_too_many() -> None:
    for change in (
        lambda entries: entries[7].put(3, False, place(0), Micros(0)),
        lambda entries: entries[7].put(5, True, place(3), Micros(0)),
        lambda entries: entries[7].drop(2, True),
    ):
        entries = perfect(20, 2)
        change(entries)
        perfection = check.Perfection()
        perfection.look(entries, 2)
        assert perfection.count == 1, change


def test_links_fails_above_the_bound() -> None:
    entries = perfect(4, 2)
    for level in range(2, 4):
        entries[0].put(level, True, place(1), Micros(0))
    links = check.Links()
    assert links.look(entries, 2) == 6
    assert links.count == 1


def test_leases() -> None:
    leases = check.LeaseValidity()
    leases.look([Gap(place(1), place(5), place(1), 1)], [place(1), place(5), place(7)])
    assert not leases.count
    leases.look([Gap(place(1), place(5), place(1), 1)], [place(3)])
    assert leases.count == 1
    leases.look([Gap(place(5), place(1), place(5), 1)], [place(3)])
    assert leases.count == 1, "the gap across the ends"
    leases.look([Gap(place(5), place(1), place(5), 1)], [place(0)])
    assert leases.count == 2


def test_link_errors() -> None:
    entries = perfect(32, 2)
    assert set(check.link_errors(entries, 2).values()) == {0.0}
    entries[0].put(2, True, place(6), Micros(0))
    assert check.link_errors(entries, 2)[2] == 0.5 / 64
