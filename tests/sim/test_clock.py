from __future__ import annotations

from heapq import heappop, heappush
from random import Random

import pytest

from gossamer.sim.clock import Clock, DurationError, duration, duration_text


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1us", 1),
        ("250ms", 250_000),
        ("1.5s", 1_500_000),
        ("2m", 120_000_000),
        (" 3 s ", 3_000_000),
    ],
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


@pytest.mark.parametrize("seed", range(20))
def test_a_calendar_is_as_good_as_one_heap(seed: int) -> None:
    """Acts push further ones: for now, for the same slot, for a past time, for far away.

    Runs stop in between.
    """
    rng = Random(seed)
    draws = [int(rng.random() * 10 ** int(1 + 6 * rng.random())) - 3 for _ in range(600)]
    clock, left, seen = Clock(), list(draws), []

    def act(number: int, _y: None, _z: None) -> None:
        seen.append((clock.now, number))
        for _ in range(number % 3):
            if left:
                clock.push(clock.now + left.pop(), act, len(left))

    heap: list[tuple[int, int, int]] = []
    for _ in range(50):
        clock.push(left.pop(), act, len(left))
    for step in range(1, 400):
        clock.run(int(1.03**step), 7 if step % 2 else 1_000)
        assert clock.next_at is None or len(clock)
    clock.run(10**9, 10**6)
    assert not len(clock)
    assert clock.next_at is None

    left, number, expected = list(draws), 0, []
    for _ in range(50):
        at = left.pop()
        heappush(heap, (at, (number := number + 1), len(left)))
    while heap:
        now, _, which = heappop(heap)
        expected.append((now, which))
        for _ in range(which % 3):
            if left:
                after = left.pop()
                heappush(heap, (now + after, (number := number + 1), len(left)))
    assert seen == expected
