"""The reading of filters that peers tell: no peer takes more CPU than its share."""

from __future__ import annotations

import msgspec
import pytest

from gossamer.filters import Schema
from gossamer.filters.packed import Packed
from gossamer.machine import SECOND, LinkState, Micros, Peer
from gossamer.overlay.batch import Batch
from gossamer.overlay.direct import plan as planning
from gossamer.overlay.direct.core import Direct
from gossamer.overlay.direct.messages import Portion, Wanted
from gossamer.overlay.direct.reading import BURST, PAUSE, RATE, SLICE, Reading

ME, GREEDY, HONEST = Peer(1), Peer(2), Peer(3)
LONG = 7000


def read(it: Reading, until: int) -> tuple[dict[Peer, int], int]:
    """The filters that are read in this time: their number for each peer, and the most at once."""
    found: dict[Peer, int] = {}
    most, now = 0, Micros(0)
    while it.deadline <= until:
        now = max(it.deadline, Micros(now + 1))
        some = list(it.due(now))
        most = max(most, len(some))
        for peer, _ in some:
            found[peer] = found.get(peer, 0) + 1
    return found, most


def test_a_peer_has_no_more_read_than_its_burst_and_its_rate() -> None:
    it, told = Reading(), 0
    seconds = 20
    for number in range(2000):
        told += it.may_read(GREEDY, (7, number), "x" * LONG, Micros(0))
    found, most = read(it, seconds * SECOND)
    read_in_all = (told + found[GREEDY]) * LONG
    assert read_in_all <= BURST + (seconds + 1) * RATE + LONG
    # The share is used.
    assert read_in_all >= BURST + (seconds - 2) * RATE
    assert most <= SLICE // LONG + 1


def test_everything_is_read_in_the_end_and_nothing_remains() -> None:
    it = Reading()
    wants = [(7, number) for number in range(300)]
    at_once = [want for want in wants if it.may_read(GREEDY, want, "x" * LONG, Micros(0))]
    it.drop(GREEDY, wants[-1])
    later: list[tuple[int, int]] = []
    now = Micros(0)
    while it.waiting:
        now = Micros(now + PAUSE)
        later += [want for _, want in it.due(now)]
    assert at_once + later == wants[:-1]
    assert it.deadline == 1 << 62 or it.deadline > now


def test_a_greedy_peer_does_not_hold_up_another_one() -> None:
    it = Reading()
    for number in range(2000):
        it.may_read(GREEDY, (7, number), "x" * LONG, Micros(0))
    assert all(it.may_read(HONEST, (7, number), "a > 1", Micros(0)) for number in range(200))
    # An honest peer that tells more than a slice has its turns with the greedy one.
    for number in range(200, 4000):
        it.may_read(HONEST, (7, number), "a > 1", Micros(0))
    found, _ = read(it, SECOND)
    assert found[HONEST] >= 2000


def test_a_peer_that_comes_and_goes_has_no_more_read() -> None:
    it, read_in_all = Reading(), 0
    for _ in range(10):
        for number in range(300):
            read_in_all += it.may_read(GREEDY, (7, number), "x" * LONG, Micros(0)) * LONG
        it.forget(GREEDY, 7)
        assert not it.waiting
    assert read_in_all <= SLICE + LONG


class View:
    version = 0

    def __init__(self) -> None:
        self.form = Packed(Schema.parse("n INT"))

    def packed(self, topic: str) -> Packed:
        return self.form

    def takers(self, topic: str) -> list[Peer]:
        return [GREEDY]

    def address(self, peer: Peer) -> str | None:
        return "node"

    def hash(self, topic: str) -> int:
        return 7


def test_a_filter_that_waits_passes_everything_and_passes_less_once_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parsed: list[str] = []
    understood = planning.understood

    def counted(text: str, schema: Schema) -> object:
        parsed.extend([text] if text else [])
        return understood(text, schema)

    monkeypatch.setattr(planning, "understood", counted)
    direct = Direct(ME, 1, View(), lambda *_: (1,), lambda *_: None, lambda *_: None, [])
    direct.link(GREEDY, LinkState.UP, Micros(0))
    direct.expect("t", Micros(0))
    direct.wake(Micros(0))
    session = direct._sources["t"].takers[GREEDY].session
    texts = [
        f"n = {10**6} AND {' AND '.join(['n <> 1'] * 600)} OR n = {number}" for number in range(40)
    ]
    changes = tuple((number + 1, text, "") for number, text in enumerate(texts))
    direct.receive(GREEDY, Wanted(7, 1, 0, 1, 1, changes, session), Micros(1))
    assert 0 < len(parsed) <= SLICE // len(texts[0]) + 1

    def sent(value: int, now: Micros) -> int:
        """The events that go to the peer of one that has this value."""
        batch = Batch("t", ME, 1, now, 1, 1, 0, 0, msgspec.msgpack.encode([(value,)]))
        direct.out.clear()
        direct.publish(batch, now)
        direct.wake(Micros(now + 1))
        return sum(type(getattr(one, "message", None)) is Portion for one in direct.out)

    assert sent(-5, Micros(2)) == 1
    now = Micros(2)
    for _ in range(200):
        now = Micros(max(direct._reading.deadline, now + 2))
        if direct._reading.waiting:
            direct.wake(now)
    assert len(parsed) == len(texts)
    assert not direct._reading.waiting
    assert sent(-5, Micros(10 * SECOND)) == 0
    assert sent(39, Micros(10 * SECOND + 2)) == 1
