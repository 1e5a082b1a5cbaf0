from __future__ import annotations

import pytest

from gossamer.sim.clock import Clock, DurationError, duration, duration_text


@pytest.mark.parametrize(
    ("text", "micros"), [("1us", 1), ("250ms", 250_000), ("1.5s", 1_500_000), ("2m", 120_000_000), (" 3 s ", 3_000_000)]
)
def test_durations(text: str, micros: int) -> None:
    assert duration(text) == micros
    assert duration(duration_text(micros)) == micros


@pytest.mark.parametrize("text", ["", "5", "ms", "-1s", "1h", "1e3s", "٣s"])
def test_a_bad_duration_says_what_a_good_one_is(text: str) -> None:
    with pytest.raises(DurationError, match="250ms"):
        duration(text)


def test_ties_are_settled_by_who_came_first() -> None:
    clock, seen = Clock(), []
    for number in range(100):
        clock.push(5, lambda x, _y, _z: seen.append(x), number)
    clock.push(4, lambda x, _y, _z: seen.append(x), -1)
    assert not clock.run(5, 1_000)
    assert seen == [-1, *range(100)]
    assert (clock.now, clock.steps) == (5, 101)


def test_a_run_stops_at_its_time_and_at_its_steps() -> None:
    clock, seen = Clock(), []
    for at in (1, 2, 3):
        clock.push(at, lambda x, _y, _z: seen.append(x), at)
    assert clock.run(10, 2)
    assert seen == [1, 2]
    assert not clock.run(2, 10)
    assert len(clock) == 1
    assert clock.next_at == 3


def test_the_past_is_closed() -> None:
    clock = Clock()
    clock.call(5, lambda: None)
    clock.run(10, 10)
    with pytest.raises(AssertionError, match="past"):
        clock.call(4, lambda: None)
