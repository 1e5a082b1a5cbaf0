"""Looking for the next message before sleeping (net/spin.py): when it is done, and when it is
not.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import gossamer
from gossamer.net import spin as spin_module
from gossamer.net.spin import ASIDE_NS, QUICK_NS, SHY, SPIN_SECONDS, STREAK, WORK_TURNS, Spin

TURN_NS = 5_000


class Loop:
    """A loop that turns when it is told to, on a clock of its own."""

    def __init__(self) -> None:
        self.now = 10**12
        self.ready: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.ready.append(callback)

    def turn(self, takes: int = TURN_NS) -> None:
        self.now += takes
        ready, self.ready = self.ready, []
        for callback in ready:
            callback()


class Spinning:
    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *, seconds: float = SPIN_SECONDS, cores: int = 2
    ) -> None:
        self.loop, self.counters = Loop(), Counter[str]()
        monkeypatch.setattr(spin_module.time, "monotonic_ns", lambda: self.loop.now)
        monkeypatch.setattr(spin_module.os, "cpu_count", lambda: cores)
        self.spin = Spin(self.loop, seconds, self.counters)  # type: ignore[arg-type]

    def arrivals(self, count: int, apart: int) -> None:
        """Lets messages arrive. In between the loop sleeps, or turns without sleeping if it is
        told to.
        """
        for _ in range(count):
            until = self.loop.now + apart
            while self.loop.ready and self.loop.now < until:
                self.loop.turn()
            self.loop.now = max(self.loop.now, until)
            self.spin.arrived()

    @property
    def is_awake(self) -> bool:
        return bool(self.loop.ready)


@pytest.fixture
def spinning(monkeypatch: pytest.MonkeyPatch) -> Spinning:
    return Spinning(monkeypatch)


def test_a_quick_succession_keeps_the_loop_awake_and_the_first_miss_lets_it_sleep(
    spinning: Spinning,
) -> None:
    spinning.arrivals(STREAK, QUICK_NS // 10)
    # The first one came after a long silence.
    assert not spinning.is_awake
    spinning.arrivals(1, QUICK_NS // 10)
    assert spinning.is_awake
    spinning.arrivals(100, QUICK_NS // 10)
    assert spinning.is_awake
    assert spinning.counters == {"spins": 1}
    began, turns = spinning.loop.now, 0
    while spinning.is_awake:
        spinning.loop.turn()
        turns += 1
    assert spinning.loop.now - began == pytest.approx(SPIN_SECONDS * 1e9, abs=2 * TURN_NS)
    assert turns > 50
    assert spinning.counters == {"spins": 1, "spins_in_vain": 1}
    spinning.arrivals(STREAK - 1, QUICK_NS // 2)
    # It has to be worth looking again.
    assert not spinning.is_awake


def test_messages_that_come_far_apart_never_keep_it_awake(spinning: Spinning) -> None:
    spinning.arrivals(1000, QUICK_NS + 1)
    assert spinning.counters == {}
    # A few come together, and then nothing.
    for _ in range(100):
        spinning.arrivals(STREAK - 1, 100_000)
        spinning.arrivals(1, QUICK_NS * 20)
    assert spinning.counters == {}


def test_it_steps_aside_where_others_want_the_core(spinning: Spinning) -> None:
    spinning.arrivals(STREAK + 1, QUICK_NS // 10)
    for _ in range(WORK_TURNS):
        # The consumers are at work, so this is no reason to sleep.
        spinning.loop.turn(takes=ASIDE_NS + 1)
    assert spinning.is_awake
    spinning.spin.arrived()
    for _ in range(WORK_TURNS + 1):
        spinning.loop.turn()
    assert spinning.is_awake
    spinning.loop.turn(takes=ASIDE_NS + 1)
    assert not spinning.is_awake
    assert spinning.counters == {"spins": 1, "spins_left_to_others": 1}
    spinning.arrivals(SHY, QUICK_NS // 10)
    # It does not look again for a while.
    assert spinning.counters["spins"] == 1
    spinning.arrivals(STREAK + 1, QUICK_NS // 10)
    assert spinning.counters["spins"] == 2


def test_slow_arrivals_do_not_make_it_forget_that_it_stepped_aside(spinning: Spinning) -> None:
    spinning.arrivals(STREAK + 1, QUICK_NS // 10)
    for _ in range(WORK_TURNS + 1):
        spinning.loop.turn()
    spinning.loop.turn(takes=ASIDE_NS + 1)
    spinning.arrivals(10, 5 * QUICK_NS)
    spinning.arrivals(SHY // 2, QUICK_NS // 10)
    assert spinning.counters["spins"] == 1


@pytest.mark.parametrize("how", [{"seconds": 0.0}, {"cores": 1}])
def test_it_is_not_done_when_told_not_to_nor_on_a_single_core(
    monkeypatch: pytest.MonkeyPatch, how: dict[str, Any]
) -> None:
    spinning = Spinning(monkeypatch, **how)
    spinning.arrivals(100, QUICK_NS // 10)
    assert not spinning.is_awake
    assert spinning.counters == {}


def test_a_spin_of_seconds_is_refused() -> None:
    for spin in (-0.001, 0.5, float("nan")):
        with pytest.raises(
            gossamer.NodeError, match=r"spin is .*; it must be a number of seconds from 0 to 0\.01"
        ):
            gossamer.Node(spin=spin)


@pytest.mark.live
@pytest.mark.parametrize("spin", [SPIN_SECONDS, 0.0])
def test_a_conversation_is_held_awake_and_a_quiet_node_sleeps(
    spin: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So it does not matter that the machine is busy.
    monkeypatch.setattr(spin_module, "QUICK_NS", 10**9)
    monkeypatch.setattr(spin_module.os, "cpu_count", lambda: 2)

    async def main() -> dict[str, int]:
        async with (
            gossamer.Node(spin=spin) as one,
            gossamer.Node(join=[one.address], spin=spin) as other,
        ):
            await one.advertise("there", "n INT")
            await other.advertise("back", "n INT")
            async with other.subscribe("there") as asked, one.subscribe("back") as answers:

                async def echo() -> None:
                    async for event in asked:
                        await other.publish("back", event.values)

                echoing = asyncio.create_task(echo())
                for number in range(300):
                    await one.publish("there", {"n": number})
                    assert (await anext(answers)).values == {"n": number}
                echoing.cancel()
                await one.drain(10)
                async with asyncio.timeout(10):
                    while one._driver.spin._looking or other._driver.spin._looking:
                        await asyncio.sleep(0.001)
                return {
                    name: count
                    for name, count in one._driver.counters.items()
                    if name.startswith("spins")
                }

    counted = asyncio.run(main())
    if spin:
        assert counted["spins"] > 0
        ended = counted.get("spins_in_vain", 0) + counted.get("spins_left_to_others", 0)
        # Each look has ended, and the loop sleeps.
        assert ended == counted["spins"]
    else:
        assert not counted


def test_a_node_that_sends_or_gets_much_at_a_time_is_in_no_conversation(spinning: Spinning) -> None:
    spinning.arrivals(2 * STREAK, QUICK_NS // 10)
    assert spinning.is_awake
    spinning.spin.bulk()
    spinning.loop.turn()
    # It stops at once, because other processes may need the core.
    assert not spinning.is_awake
    for _ in range(10 * STREAK):
        spinning.spin.bulk()
        spinning.arrivals(1, QUICK_NS // 10)
        assert not spinning.is_awake
    spinning.arrivals(STREAK + 1, QUICK_NS // 10)
    # The bulk is over.
    assert spinning.is_awake
    assert spinning.counters == {"spins": 2}
