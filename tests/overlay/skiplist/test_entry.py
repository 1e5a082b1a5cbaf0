"""One entry: Figure 2 by hand, the circle, levels that come and go, and messages that cannot be
true.
"""

from __future__ import annotations

from random import Random

import pytest

from gossamer.machine import SECOND, Micros
from gossamer.overlay.skiplist.config import SkipConfig, SkipConfigError
from gossamer.overlay.skiplist.entry import PROMPTS, Entry, insert
from gossamer.overlay.skiplist.messages import Item
from gossamer.overlay.skiplist.position import Position, between

NOW = Micros(0)


def place(number: int) -> Position:
    return bytes([number]), number


def entry(number: int, k: int = 2) -> Entry:
    return Entry(place(number), SkipConfig(k=k), Random(1))


def items(*pairs: tuple[int, int]) -> tuple[Item, ...]:
    return tuple(Item(place(number), counter) for number, counter in pairs)


def test_an_entry_is_passed_on_until_its_counter_is_k_less_one() -> None:
    three = entry(3)
    assert three.hear(0, items((2, 0), (1, 1)), (), NOW) is None
    assert three.lefts[1] is not None
    assert three.lefts[1].at == place(1), "lines 11 to 13: k hops away, at the left, level 1"
    assert three.message(0) == items((3, 0), (2, 1)), (
        "lines 18 and 19: what was received is passed on, counted, after oneself"
    )
    assert three.message(0) == items((3, 0)), "only what came during the last period is passed on"


def test_odd_levels_run_the_other_way() -> None:
    one = entry(1)
    assert one.hear(1, items((3, 0), (5, 1)), (), NOW) is None
    assert [link.at if link else None for link in one.rights] == [None, place(3), place(5)], (
        "lines 8 and 15"
    )
    assert not any(one.lefts)


def test_k_3_waits_for_the_second_pass() -> None:
    four = entry(4, k=3)
    four.hear(0, items((3, 0), (2, 1), (1, 2)), (), NOW)
    assert four.lefts[1] is not None
    assert four.lefts[1].at == place(1)
    assert four.message(0) == items((4, 0), (3, 1), (2, 2))


def test_what_has_gone_around_the_circle_is_dropped() -> None:
    """No entry is its own neighbour in a list of two, and level 2 of a list of three spans four."""
    two = entry(2)
    assert two.hear(0, items((1, 0), (2, 1)), (), NOW) is None
    assert two.levels == 0
    one = entry(1)
    assert one.hear(1, items((3, 0), (2, 1)), (), NOW) is None
    assert [link.at if link else None for link in one.rights] == [None, place(3)], (
        "2 lies before 3, seen from 1"
    )


def test_levels_vanish_when_nothing_renews_them() -> None:
    one = entry(1)
    one.put(0, True, place(2), NOW)
    one.put(1, True, place(3), NOW)
    one.start(NOW)
    # Periods of level 1.
    limit = 5 * 2
    for second in range(limit + 1):
        one.due(Micros(second * SECOND))
        assert one.rights[1] is not None
    for second in range(limit + 1, limit + 5):
        one.due(Micros(second * SECOND))
    assert len(one.rights) == 1


def test_periods_grow_with_the_level() -> None:
    one = entry(1)
    for level in range(4):
        one.put(level, True, place(2 + level), NOW)
        one.put(level, False, place(9 - level), NOW)
    one.start(NOW)
    sent = dict.fromkeys(range(4), 0)
    for second in range(120):
        now = Micros(second * SECOND)
        for level, rightward, link in one.links():
            one.put(level, rightward, link.at, now)
        for level, to, _ in one.due(now):
            sent[level] += 1
            assert to == (place(2 + level) if level % 2 == 0 else place(9 - level))
    assert sent[0] == 120
    assert all(abs(sent[level] - 120 / (level + 1)) <= 1 for level in range(4)), sent


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        (items((2, 0), (1, 1), (0, 1)), "more than k"),
        (items((2, 1)), "not its sender's"),
        (items((3, 0)), "not its sender's"),
        (items((2, 0), (1, 0)), "forged counters"),
        (items((2, 0), (1, 2)), "forged counters"),
    ],
)
def test_what_cannot_be_true_is_refused(told: tuple[Item, ...], reason: str) -> None:
    three = entry(3)
    found = three.hear(0, told, (), NOW)
    assert found is not None
    assert reason in found
    assert three.levels == 0, "and nothing of it is believed"


def test_entries_out_of_order_are_refused() -> None:
    nine = entry(9, k=3)
    assert nine.hear(0, items((5, 0), (3, 1), (4, 2)), (), NOW) == "entries out of order"
    assert nine.hear(0, items((5, 0), (4, 1), (3, 2)), (), NOW) is None


def test_a_message_never_has_more_than_k_entries() -> None:
    for k in (2, 3, 4):
        nine = entry(30, k)
        nine.hear(0, items(*((29 - n, n) for n in range(k))), (), NOW)
        assert len(nine.message(0)) == k


def test_between_on_the_circle() -> None:
    a, b, c = place(1), place(5), place(9)
    assert between(a, b, c)
    assert not between(a, c, b)
    assert between(c, a, b)
    assert between(b, a, b)
    assert not between(b, b, b)
    assert not between(a, a, c)


def test_insert_keeps_the_list_short_and_single() -> None:
    a, b, c = (place(n) for n in range(3))
    assert insert([a, b], c, 2) == [c, a]
    assert insert([a, b], b, 3) == [b, a]


class TestPrompt:
    """Levels that do not wait for their period."""

    def test_a_new_link_is_told_of_with_what_is_to_be_passed_on(self) -> None:
        three = entry(3)
        three.put(0, True, place(4), NOW)
        assert three.hear(0, items((2, 0), (1, 1)), (), NOW) is None
        three.put(0, False, place(2), NOW)
        assert three.prompts(NOW) == [
            # The right neighbour is two away from 2.
            (0, place(4), items((3, 0), (2, 1))),
            # And 1 did not know of its neighbour of level 1.
            (1, place(1), items((3, 0))),
        ]
        assert three.prompts(NOW) == [], "told of once"
        three.hear(0, items((2, 0), (1, 1)), (), NOW)
        assert three.prompts(NOW) == [], "nothing has changed"
        assert three.message(0) == items((3, 0), (2, 1)), (
            "and what goes out at the period is as ever"
        )

    def test_at_the_pace_of_the_seed_there_are_none(self) -> None:
        three = Entry(place(3), SkipConfig(pace="paper"), Random(1))
        three.put(0, True, place(4), NOW)
        three.put(0, False, place(2), NOW)
        three.hear(0, items((2, 0), (1, 1)), (), NOW)
        assert three.prompts(NOW) == []
        assert three.present(0) == items((3, 0))

    def test_with_a_greater_k_what_is_passed_on_may_be_new_without_a_link(self) -> None:
        four = entry(4, k=3)
        four.put(0, True, place(5), NOW)
        four.put(0, False, place(3), NOW)
        four.hear(0, items((3, 0)), (), NOW)
        assert four.prompts(NOW) == [(0, place(5), items((4, 0), (3, 1)))]
        four.hear(0, items((3, 0), (2, 1)), (), NOW)
        assert four.prompts(NOW) == [(0, place(5), items((4, 0), (3, 1), (2, 2)))]

    def test_a_level_sends_no_more_than_so_many_in_its_period(self) -> None:
        one = entry(1)
        one.put(1, True, place(90), NOW)
        one.fresh.clear()
        for number in range(2 * PROMPTS):
            one.drop(1, False)
            one.put(1, False, place(100 + number), NOW)
            assert len(one.prompts(NOW)) == (number < PROMPTS)
        one.drop(1, False)
        one.put(1, False, place(9), NOW)
        one.put(2, True, place(10), NOW)
        assert [level for level, _, _ in one.prompts(NOW)] == [2], "each level has its own bound"
        later = Micros(2 * SECOND)
        one.drop(1, False)
        one.put(1, False, place(99), later)
        assert len(one.prompts(later)) == 1, "its period is over"

    @pytest.mark.parametrize(("level", "share"), [(1, 1.0), (2, 1.0), (4, 0.25), (8, 0.0157)])
    def test_of_links_that_only_move_few_of_high_levels_are_told_of_at_once(
        self, level: int, share: float
    ) -> None:
        """A new entry moves 2 * k**l links of level l: so it is about as many at every level."""
        one, told, moves = entry(1), 0, 1_000
        for number in range(moves + 1):
            now = Micros(number * SECOND * 10)
            one.put(level, level % 2 == 0, place(2 + number % 2), now)
            told += len(one.prompts(now)) if number else 0
            one.fresh.clear()
        assert share * 0.6 * moves <= told <= min(1.0, share * 1.4) * moves


def test_bad_parameters_say_which() -> None:
    with pytest.raises(SkipConfigError, match="k is 1; it must be from 2 to 16"):
        SkipConfig(k=1)
    with pytest.raises(SkipConfigError, match="routing is 'fast'"):
        SkipConfig(routing="fast")
    with pytest.raises(SkipConfigError, match="pace is 'slow'"):
        SkipConfig(pace="slow")
