"""Events that walk together: one message, and a count for each of them."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from msgspec import structs

from gossamer.machine import SECOND, Deliver, Effect, LinkState, Micros, Peer, Send
from gossamer.node.lists import _joined
from gossamer.node.wire import FRAME_MAX, encode
from gossamer.overlay.skiplist.config import SkipConfig
from gossamer.overlay.skiplist.core import SkipList
from gossamer.overlay.skiplist.events import WAITING_MAX
from gossamer.overlay.skiplist.messages import (
    FIND,
    MATCHED_MAX,
    PAYLOAD_MAX,
    TILES_MAX,
    TOGETHER_MAX,
    Carry,
    Report,
    SkiplistMessage,
    Tile,
)
from gossamer.overlay.skiplist.position import KEY_MAX, Position
from gossamer.overlay.skiplist.receipts import PIECES_MAX, Arrival, Publication, Receipt
from gossamer.overlay.skiplist.tiles import (
    TILES_BYTES,
    TOGETHER_BYTES,
    count_at,
    merge_tiles,
    reportable,
    suits,
    tile_of,
    together,
)

ME, OTHER = Peer(1), Peer(2)
INTERVAL = [(b"m", b"n")]


def place(number: int) -> Position:
    return bytes([number]), 0


def carry(
    sequence: int,
    *others: int,
    payloads: tuple[bytes, ...] | None = None,
    kind: int = 0,
    round: int = 1,
) -> Carry:
    beside = payloads if payloads is not None else tuple(b"%d" % number for number in others)
    return Carry(
        0, OTHER, 1, sequence, 1, round, (b"m", 0), (b"n", 0), b"m", 1, 8 * SECOND, kind, False, b"first", None, others, beside
    )  # fmt: skip


class Owner:
    """A lone machine, and what its owner is handed: of each event as many take it as ``takes`` says, or it says so later."""

    def __init__(self, takes: dict[int, int] | None = None, ranges: str = "cells") -> None:
        self.takes: dict[int, int] | None = takes or {}
        self.arrived: list[Arrival] = []
        self.machine = SkipList(
            ME, incarnation=1, rng=Random(1), config=SkipConfig(ranges=ranges), match=self.match, address=lambda _: None,
            contacts=list,
        )  # fmt: skip
        self.machine.enter(b"m", Micros(0))
        self.machine.link(OTHER, LinkState.UP, Micros(0))
        self.machine.wake(Micros(0))

    def match(self, arrival: Arrival) -> list[int] | None:
        self.arrived.append(arrival)
        return (
            [self.takes.get(number, 0) for number in arrival.numbers]
            if self.takes is not None
            else None
        )

    def publish(self, *numbers: int, now: int = 1, again: int = 0) -> dict[int, int]:
        events = [(number, INTERVAL, b"%d" % number) for number in numbers]
        self.machine.publish_all(events, Micros(now), again=again, floor=1)
        return receipts(self.machine.wake(Micros(now)))

    def receive(self, message: Carry, now: int = 1) -> list[Report]:
        effects = self.machine.receive(OTHER, message, Micros(now))
        return [
            effect.message
            for effect in effects
            if isinstance(effect, Send) and isinstance(effect.message, Report)
        ]


def receipts(effects: list[Effect]) -> dict[int, int]:
    found = [what for effect in effects if isinstance(effect, Deliver) for what in effect.events]
    return {one.sequence: one.matched for one in found if isinstance(one, Receipt)}


class TestTiles:
    def test_counts_of_each_and_one_for_all(self) -> None:
        tile = tile_of(carry(1, 2, 3), place(1), place(2), [4, 5, 6])
        assert tile.others == (5, 6)
        assert [count_at(tile, number) for number in range(3)] == [4, 5, 6]
        tile = tile_of(carry(1, 2, 3), place(1), place(2), [4, 0, 0])
        assert tile.others == (0,)
        assert [count_at(tile, number) for number in range(3)] == [4, 0, 0]
        alone = tile_of(carry(1), place(1), place(2), [4])
        assert alone.others is None
        assert count_at(alone, 0) == 4

    def test_those_that_touch_become_one(self) -> None:
        a, b, c = (place(number) for number in range(3))
        assert merge_tiles([Tile(a, b, 1, 1, 0, (1, 2)), Tile(b, c, 1, 2, 0, (3,))], 0) == (
            Tile(a, c, 2, 2, 0, (4, 5)),
        )
        assert merge_tiles([Tile(a, b, 1, 1, 0, (1, 2)), Tile(b, c, 0, 1, 0, (1, 0))], 3) == (
            Tile(a, c, 1, 1, 3, (2,)),
        )
        most = merge_tiles(
            [Tile(a, b, 1, 1, 0, (MATCHED_MAX, 1)), Tile(b, c, 1, 1, 0, (MATCHED_MAX,))], 0
        )
        assert most == (Tile(a, c, 2, 1, 0, (MATCHED_MAX,)),), (
            "sums stop where they can still be read"
        )

    def test_what_it_costs_is_what_a_peer_has_sent(self) -> None:
        class Zero(int):
            sums = 0

            def __radd__(self, other: int) -> int:
                Zero.sums += 1
                return other

        tiles = [
            Tile(place(number), place(number + 1), 0, 1, 0, (Zero(),)) for number in range(1, 100)
        ]
        each = Tile(place(0), place(1), 0, 1, 0, tuple(range(TOGETHER_MAX - 1)))
        [merged] = merge_tiles([each, *tiles], 0)
        assert merged.others == each.others
        assert Zero.sums <= len(tiles)

    def test_a_tile_has_as_many_counts_as_the_walk_has_events(self) -> None:
        a, b = place(0), place(1)
        walks = [carry(1), carry(1, 2), carry(1, 2, 3)]
        for others, suit in [(None, 1), ((7,), 2), ((7, 8), 1), ((7, 8, 9), 0)]:
            tile = Tile(a, b, 1, 1, 0, others)
            assert sum(suits(tile, walk) for walk in walks) == suit

    def test_a_report_has_room_for_so_many(self) -> None:
        tiles = [Tile(place(0), place(1), 0, 0, 0)] * (2 * TILES_MAX)
        assert len(reportable(tiles)) == TILES_MAX
        key = b"k" * KEY_MAX
        large = Tile(
            (key, 2**64 - 1),
            (key, 2**64 - 1),
            MATCHED_MAX,
            1,
            0,
            (MATCHED_MAX,) * (TOGETHER_MAX - 1),
        )
        for tile in (large, structs.replace(large, others=None)):
            report = Report(0, ME, 1, 1, 1, tile.low, tile.high, 0, reportable([tile] * TILES_MAX))
            assert TILES_BYTES // 2 < len(encode(report)) < FRAME_MAX // 2, (
                "there is room for gaps and what was found"
            )

    def test_walks_are_not_too_large(self) -> None:
        def publications(count: int, size: int) -> list[Publication]:
            return [Publication(number, 1, 1, [], bytes(size), 0) for number in range(count, 0, -1)]

        assert [len(part) for part in together(publications(TOGETHER_MAX + 2, 1))] == [
            TOGETHER_MAX,
            2,
        ]
        parts = list(together(publications(5, TOGETHER_BYTES // 2)))
        assert [[one.sequence for one in part] for part in parts] == [[1, 2], [3, 4], [5]]
        assert [len(part) for part in together(publications(2, 2 * TOGETHER_BYTES))] == [1, 1], (
            "the first always goes"
        )


def test_one_arrival_and_a_receipt_for_each() -> None:
    owner = Owner({4: 1, 6: 2})
    assert owner.publish(4, 5, 6) == {4: 1, 5: 0, 6: 2}
    [arrival] = owner.arrived
    assert (arrival.numbers, arrival.payloads) == ((4, 5, 6), (b"4", b"5", b"6"))
    assert not owner.machine.is_busy
    assert owner.publish(4, 5, 6, 7, again=1) == {4: 1, 5: 0, 6: 2, 7: 0}, (
        "published again: counted as before"
    )
    assert [one.numbers for one in owner.arrived] == [(4, 5, 6), (7,)], (
        "and only what is new is handed over"
    )


def test_they_are_reported_when_the_owner_has_taken_them_all() -> None:
    owner = Owner()
    owner.takes = None
    assert owner.publish(4, 6) == {}
    assert owner.publish(4, 5, 6, again=1) == {}, "some of them wait already"
    assert [one.numbers for one in owner.arrived] == [(4, 6), (5,)]
    assert owner.machine.is_busy
    assert receipts(owner.machine.took(owner.arrived[1].key, (3,), Micros(2))) == {}
    assert receipts(owner.machine.took(owner.arrived[0].key, (1, 2), Micros(3))) == {
        4: 1,
        5: 3,
        6: 2,
    }
    assert not owner.machine.is_busy
    assert owner.machine._events._under_way == 0


def test_the_owners_word_is_for_the_walk_that_waits_for_it() -> None:
    owner = Owner()
    owner.takes = None
    owner.receive(structs.replace(carry(1), patience=0))
    owner.machine.wake(Micros(2))
    assert owner.receive(carry(1, 2), now=3) == [], (
        "as if it were the same walk, with another event"
    )
    assert [one.numbers for one in owner.arrived] == [(1,), (2,)]
    assert owner.machine.took(owner.arrived[0].key, (1,), Micros(4)) == []
    [sent] = owner.machine.took(owner.arrived[1].key, (2,), Micros(5))
    assert isinstance(sent, Send)
    assert isinstance(sent.message, Report)
    assert [(tile.matched, tile.others) for tile in sent.message.tiles] == [(1, (2,))]
    assert not owner.machine.is_busy


def test_few_walks_wait_for_the_owners_word() -> None:
    owner = Owner()
    owner.takes = None
    events = owner.machine._events
    for round in range(1, 100):  # over at once, one after the other
        owner.receive(structs.replace(carry(1, 2, round=round), patience=0), now=2 * round)
        owner.machine.wake(Micros(2 * round + 1))
    assert [len(waiting) for waiting in events._deferred.values()] == [1, 1]
    refused = [
        report
        for round in range(200, 300)
        for report in owner.receive(carry(1, 2, round=round), now=300)
    ]
    assert [len(waiting) for waiting in events._deferred.values()] == [WAITING_MAX] * 2
    assert len(refused) == 100 - WAITING_MAX
    assert all(tile.high <= (b"m", ME) for report in refused for tile in report.tiles), (
        "nothing of the entry itself"
    )
    assert len(owner.machine.took(owner.arrived[0].key, (1, 0), Micros(301))) == WAITING_MAX
    assert not owner.machine.is_busy


def test_a_relay_reports_counts_of_each() -> None:
    owner = Owner({1: 1, 2: 0, 4: 1})
    [report] = owner.receive(carry(1, 2, 4))
    [tile] = report.tiles
    assert (tile.matched, tile.others) == (1, (0, 1))
    [report] = owner.receive(carry(2, 3, round=2))
    assert [(tile.matched, tile.others) for tile in report.tiles] == [(0, (0,))]
    assert [one.numbers for one in owner.arrived] == [(1, 2, 4), (3,)]


@pytest.mark.parametrize(
    "message",
    [
        carry(5, 6, payloads=(bytes(PAYLOAD_MAX),)),
        carry(5, 4),
        carry(5, 5),
        carry(5, 6, 6),
        carry(5, 6, payloads=()),
        carry(5, payloads=(b"x",)),
    ],
)
def test_what_cannot_be_is_refused(message: Carry) -> None:
    owner = Owner()
    assert owner.receive(message) == []
    assert owner.machine.counters["rejected"] == 1
    assert owner.arrived == []


def test_what_does_not_decode() -> None:
    encode, decode = msgspec.msgpack.encode, msgspec.msgpack.Decoder(SkiplistMessage).decode
    good = carry(1, 2)
    assert decode(encode(good)) == good
    many = carry(1, *range(2, TOGETHER_MAX + 2))
    tile = Tile(place(0), place(1), 0, 0, 0, (1,) * TOGETHER_MAX)
    empty = Tile(place(0), place(1), 0, 0, 0, ())
    for bad in (
        many,
        *(Report(0, 1, 1, 1, 1, place(0), place(1), 0, (one,)) for one in (tile, empty)),
    ):
        with pytest.raises(msgspec.ValidationError):
            decode(encode(bad))


@pytest.mark.parametrize(("kind", "ranges"), [(FIND, "cells"), (0, "entries")])
def test_what_is_not_meant_for_several_is_for_the_first(kind: int, ranges: str) -> None:
    owner = Owner({1: 1, 2: 1}, ranges)
    [report] = owner.receive(carry(1, 2, kind=kind))
    assert [tile.others for tile in report.tiles] == [None]
    assert owner.machine.counters["rejected"] == 0


def test_a_node_carries_only_so_many_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossamer.overlay.skiplist.events.UNDER_WAY_MAX", 3)
    owner = Owner()
    owner.takes = None
    assert owner.receive(carry(1, 2)) == []
    assert [report.tiles for report in owner.receive(carry(3, 4))] == [()], (
        "no room: the publisher asks again"
    )
    assert owner.receive(carry(5)) == []
    owner.machine.took(owner.arrived[0].key, (), Micros(2))
    owner.machine.took(owner.arrived[1].key, (1,), Micros(2))
    assert owner.machine._events._under_way == 0


def test_a_report_with_counts_of_other_events_is_refused() -> None:
    one = SkipList(
        ME, incarnation=1, rng=Random(1), config=SkipConfig(), match=lambda _: (), address=lambda _: None,
        contacts=lambda: [OTHER],
    )  # fmt: skip
    one.link(OTHER, LinkState.UP, Micros(0))
    one.publish_all([(number, INTERVAL, b"x") for number in (1, 2, 3)], Micros(1), floor=1)
    [sent] = [effect.message for effect in one.wake(Micros(1)) if isinstance(effect, Send)]
    assert isinstance(sent, Carry)
    assert sent.others == (2, 3)

    def report(*others: int) -> Report:
        tile = Tile(sent.low, sent.high, 1, 1, 0, others)
        return Report(0, ME, 1, 1, 1, sent.low, sent.high, 0, (tile,))

    assert receipts(one.receive(OTHER, report(1, 2, 3), Micros(2))) == {}
    assert one.counters["rejected"] == 1
    again = [effect.message for effect in one.wake(Micros(SECOND)) if isinstance(effect, Send)]
    assert [
        (message.sequence, message.others, message.round)
        for message in again
        if isinstance(message, Carry)
    ] == [(1, (2, 3), 2)], "together, because nobody said that it cannot be"


def test_many_small_tiles_leave_few_pieces() -> None:
    one = SkipList(
        ME, incarnation=1, rng=Random(1), config=SkipConfig(), match=lambda _: (), address=lambda _: None,
        contacts=lambda: [OTHER],
    )  # fmt: skip
    one.link(OTHER, LinkState.UP, Micros(0))
    one.publish_all([(number, INTERVAL, b"x") for number in (1, 2, 3)], Micros(1), floor=1)
    now, counted, found = 1, 0, {}
    while not found:
        walks = [effect.message for effect in one.wake(Micros(now)) if isinstance(effect, Send)]
        assert 0 < len(walks) <= 1 + PIECES_MAX
        for walk in walks:
            assert isinstance(walk, Carry)
            assert walk.others == (2, 3)
            steps = (
                [(walk.low[0] + b"%05d" % number, 0) for number in range(1, 2_001)]
                if now == 1
                else [walk.low, walk.high]
            )
            tiles = tuple(
                [
                    Tile(low, high, 1, 1, 0, (2, 3))
                    for low, high in zip(steps[::2], steps[1::2], strict=True)
                ]
            )
            counted += min(len(tiles), PIECES_MAX)
            report = Report(0, ME, 1, 1, walk.round, walk.low, walk.high, 0, tiles)
            found |= receipts(one.receive(OTHER, report, Micros(now)))
        now += SECOND
    assert found == {1: counted, 2: 2 * counted, 3: 3 * counted}
    assert not one.is_busy


def test_nothing_is_kept_of_a_walk_to_one_that_has_gone() -> None:
    one = SkipList(
        ME, incarnation=1, rng=Random(1), config=SkipConfig(), match=lambda _: (), address=lambda _: None,
        contacts=lambda: [OTHER],
    )  # fmt: skip
    one.link(OTHER, LinkState.UP, Micros(0))
    one.publish_all([(number, INTERVAL, b"x") for number in (1, 2)], Micros(1), floor=1)
    one.wake(Micros(1))
    assert len(one._events._by_child) == 1
    one.link(OTHER, LinkState.DOWN, Micros(2))
    assert one._events._by_child == {}
    assert one._events._branches == {}


@pytest.mark.parametrize("count", [1, 2, 15, 16, 300])
def test_rows_that_come_one_by_one_are_one_list(count: int) -> None:
    rows = [[number, "x" * (number % 40)] for number in range(count)]
    assert (
        msgspec.msgpack.decode(_joined(tuple(msgspec.msgpack.encode([row]) for row in rows)))
        == rows
    )
