"""Walks: groups of events, regions of positions, and how a node with several entries counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from gossamer.machine import SECOND, Effect, LinkState, Micros, Peer, Send
from gossamer.node.wire import FRAME_MAX, encode
from gossamer.overlay.batch import MATCHED_MAX, WINDOW_MAX, Batch, Group
from gossamer.overlay.proof import BATCH
from gossamer.overlay.skiplist.config import SkipConfig
from gossamer.overlay.skiplist.core import SkipList
from gossamer.overlay.skiplist.messages import (
    COVERED_MAX,
    Absent,
    Busy,
    Carry,
    Covered,
    Part,
    Report,
    SkiplistMessage,
)
from gossamer.overlay.skiplist.position import KEY_MAX, Position
from gossamer.overlay.skiplist.walks import (
    PIECES_MAX,
    REPORT_BYTES,
    Reached,
    Region,
    Walked,
    is_ordered,
    merged,
    minus,
    plus,
)

ME, OTHER, THIRD = Peer(1), Peer(2), Peer(3)


def at(number: int) -> Position:
    return bytes([number]), 0


class Owner:
    """A machine and its owner. Each event is taken as often as ``takes`` says; None: later."""

    def __init__(self, *keys: bytes, takes: Mapping[int, int] | None = None, **config: str) -> None:
        self.takes: Mapping[int, int] | None = takes if takes is not None else {}
        self.arrived: list[tuple[int, ...]] = []
        self.receipts: list[Walked] = []
        self.machine = SkipList(
            ME, incarnation=1, rng=Random(1), config=SkipConfig(**config), arrive=self.arrive,  # type: ignore[arg-type]
            complete=self.receipts.append, address=lambda _: None, contacts=lambda: [OTHER],
        )  # fmt: skip
        if keys:
            self.machine._host.contacts = list
            for key in keys:
                self.machine.enter(key, Micros(0))
        self.machine.link(OTHER, LinkState.UP, Micros(0))
        self.machine.wake(Micros(0))

    def arrive(
        self,
        batch: Batch,
        now: Micros,
        numbers: Sequence[int] | None = None,
        *,
        done: Mapping[int, int] | None = None,
    ) -> tuple[int, ...] | None:
        fresh = [number for number in batch.events if number not in (done or ())]
        self.arrived.append(tuple(fresh))
        if self.takes is None:
            return None
        return tuple(self.takes.get(n, 0) if n in fresh else 0 for n in batch.events)

    def publish(self, *looks: Sequence[bytes], first: int = 1, now: int = 1) -> list[Effect]:
        """Each event looks at these keys."""
        batch = Batch("t", ME, 1, first, len(looks), first, 0, 0, b"rows")
        intervals = [[(key, key + b"\0") for key in look] for look in looks]
        self.machine.publish(batch, intervals, lambda places: b"some", Micros(now))
        return self.machine.effects(Micros(now))

    def receive(self, message: Carry | Report | Busy, now: int = 1) -> list[object]:
        effects = self.machine.receive(OTHER, message, Micros(now))
        return [effect.message for effect in effects if isinstance(effect, Send)]


def carry(
    *numbers: int, parts: tuple[Part, ...] = (Part((b"m", 0), (b"n", 0)),), round: int = 0
) -> Carry:
    first, count = numbers[0], len(numbers)
    return Carry(Group("t", OTHER, 1, first, count, 1, round, 1, b"r", b"", numbers), parts, False)


def carried(effects: Sequence[Effect]) -> list[Carry]:
    return [
        effect.message
        for effect in effects
        if isinstance(effect, Send) and isinstance(effect.message, Carry)
    ]


# ------------------------------------------------------------------------ the algebra


@st.composite
def spans(draw: st.DrawFn) -> list[Part]:
    edges = sorted(draw(st.sets(st.integers(0, 24), max_size=10)))
    return [Part(at(a), at(b)) for a, b in zip(edges[::2], edges[1::2], strict=False)]


def inside(parts: Sequence[Part | Covered]) -> set[int]:
    return {n for n in range(25) if any(part.low <= at(n) < part.high for part in parts)}


@given(spans(), spans())
def test_regions_are_sets_of_positions(one: list[Part], other: list[Part]) -> None:
    a, b = Region(one, lease=True), Region(other, lease=False)
    left, union = minus(a, b), plus(a, b)
    assert inside(left.parts) == inside(one) - inside(other)
    assert inside(union.parts) == inside(one) | inside(other)
    assert is_ordered(left.parts)
    assert is_ordered(union.parts)
    assert bool(left) == bool(inside(one) - inside(other))
    if inside(one).isdisjoint(inside(other)):
        assert left is a, "the engine sees that nothing was reached"
    tile = Reached([Covered(part.low, part.high, 1) for part in other])
    assert inside(minus(a, tile).parts) == inside(one) - inside(other)


def test_what_is_left_of_a_part_goes_on_at_the_same_entry() -> None:
    part = Part(at(1), at(9), b"entry", at(20))
    left = minus(Region([part], lease=True), Reached([Covered(at(3), at(5), 1)]))
    assert left.parts == [
        Part(at(1), at(3), b"entry", at(20)),
        Part(at(5), at(9), b"entry", at(20)),
    ]
    assert left.lease


def test_tiles_that_touch_become_one_with_the_most_hops() -> None:
    a, b, c, d = (at(number) for number in range(4))
    assert merged([Covered(c, d, 2), Covered(a, b, 5)]) == [Covered(a, b, 5), Covered(c, d, 2)]
    assert merged([Covered(c, d, 2), Covered(a, b, 5), Covered(b, c, 3)]) == [Covered(a, d, 5)]


# ------------------------------------------------------------------------- publishing


def test_events_that_look_in_the_same_intervals_walk_together() -> None:
    owner = Owner()
    looks = [(b"a", b"x"), (b"b",), (b"x", b"a"), (b"a", b"x")]
    groups = [one.batch for one in carried(owner.publish(*looks))]
    assert [(group.first, group.numbers) for group in groups] == [(1, (1, 4)), (2, ()), (3, ())]
    assert [group.rows for group in groups] == [b"some"] * 3
    [lone] = carried(owner.publish((b"a",), first=5))
    assert lone.batch.rows == b"rows", "a batch that stays whole is not packed again"


def test_the_receipt_has_the_counts_of_all_groups() -> None:
    owner = Owner(b"a", b"b", takes={1: 1, 2: 5, 3: 2})
    owner.publish((b"a",), (b"b",), (b"a",))
    [receipt] = owner.receipts
    assert (receipt.first, receipt.counts) == (1, (1, 5, 2))
    assert [walk.numbers for walk in receipt.walks] == [(1, 3), (2,)]
    assert owner.arrived == [(1, 3), (2,)]
    assert not owner.machine.is_busy


def test_a_batch_that_looks_nowhere_is_complete_at_once() -> None:
    owner = Owner()
    assert owner.publish((), ()) == []
    [receipt] = owner.receipts
    assert receipt.counts == (0, 0)
    assert [walk.rounds for walk in receipt.walks] == [0]


def test_each_group_is_signed_by_itself() -> None:
    class Key:
        is_on = True

        def sign(self, kind: bytes, content: bytes) -> bytes:
            assert kind == BATCH
            return content[-8:]

        def proves(self, peer: Peer, kind: bytes, content: bytes, signature: bytes) -> bool:
            return content[-8:] == signature

    owner = Owner()
    owner.machine.engine.proof = Key()
    for one in carried(owner.publish((b"a",), (b"b",), (b"a",))):
        group = one.batch
        assert group.signature == group.said()[-8:]
        forged = structs.replace(group, numbers=(group.first, 77), count=2)
        assert forged.said() != group.said(), "the numbers are signed"


# -------------------------------------------------------------------------- receiving


def test_a_node_takes_events_once_whichever_of_its_entries_they_come_to_first() -> None:
    owner = Owner(b"a", b"m", takes={1: 2, 4: 1})
    first = (Part((b"a", 0), (b"b", 0)),)
    [report] = owner.receive(carry(1, 4, parts=first))
    assert isinstance(report, Report)
    assert report.matched == (2, 1)
    [report] = owner.receive(carry(1, 4))
    assert isinstance(report, Report)
    assert report.covered
    assert report.matched == (), "it is counted at the other entry"
    assert owner.arrived == [(1, 4)]
    [report] = owner.receive(carry(1, 4, parts=first, round=1))
    assert isinstance(report, Report)
    assert report.matched == (2, 1), "the tile of that entry was lost, and its counts with it"
    assert owner.arrived == [(1, 4)]


def test_several_entries_are_one_message_and_one_report() -> None:
    owner = Owner(b"b", b"d", b"f", takes={1: 1})
    [report] = owner.receive(carry(1, parts=(Part((b"a", 0), (b"z", 0)),)))
    assert isinstance(report, Report)
    assert report.covered == (Covered((b"a", 0), (b"z", 0), 1),)
    assert report.matched == (1,)


def test_a_report_waits_for_the_owner() -> None:
    owner = Owner(b"m")
    owner.takes = None
    assert owner.receive(carry(1, 3)) == []
    assert owner.machine.is_busy
    later = Micros(1 + SkipConfig().patience // 2)
    [busy] = [e.message for e in owner.machine.wake(later) if isinstance(e, Send)]
    assert busy == Busy(0, OTHER, 1, 1, 0, (b"m", 0)), "it asks for patience"
    [sent] = owner.machine.took((OTHER, 1, 1), (3, 0), later)
    assert isinstance(sent, Send)
    assert isinstance(sent.message, Report)
    assert sent.message.matched == (3, 0)
    assert not owner.machine.is_busy
    assert owner.machine.noise == 1, "nobody took the other event"


def test_a_node_that_only_relays_is_handed_nothing() -> None:
    owner = Owner(b"m", takes={1: 1})
    [report] = owner.receive(carry(1, parts=(Part((b"x", 0), (b"y", 0)),)))
    assert isinstance(report, Report)
    assert report.covered == (Covered((b"x", 0), (b"y", 0), 1),), "there is nobody else"
    assert owner.arrived == []
    assert owner.machine.noise == 1


def test_events_in_other_company_are_not_taken_again_and_counted() -> None:
    owner = Owner(b"m", takes={1: 2, 3: 1, 4: 7})
    owner.receive(carry(1, 3))
    [report] = owner.receive(carry(1, 4, round=1 << 20))
    assert isinstance(report, Report)
    assert report.matched == (2, 7)
    assert owner.arrived == [(1, 3), (4,)]


def test_an_entry_that_is_not_here_is_said_and_its_part_is_not_reached() -> None:
    owner = Owner(b"m")
    absent, report = owner.receive(carry(1, parts=(Part((b"m", 0), (b"n", 0), b"gone"),)))
    assert isinstance(absent, Absent)
    assert report == Report(0, OTHER, 1, 1, 0, (b"m", 0))


@pytest.mark.parametrize(
    "message",
    [
        carry(2, 1),
        carry(1, 1),
        carry(1, 1 + WINDOW_MAX),
        carry(1, parts=(Part((b"n", 0), (b"m", 0)),)),
        carry(1, parts=(Part((b"m", 0), (b"m", 0)),)),
        carry(1, parts=(Part((b"m", 0), (b"o", 0)), Part((b"n", 0), (b"p", 0)))),
        Carry(Group("t", OTHER, 1, 1, 3, 1, 0, 1, b"r", b"", (1, 2)), carry(1).parts),
    ],
)
def test_what_cannot_be_is_refused(message: Carry) -> None:
    owner = Owner(b"m")
    assert owner.receive(message) == []
    assert owner.machine.counters["rejected"] == 1
    assert owner.arrived == []
    assert owner.machine.remembered == 0


def test_what_does_not_decode() -> None:
    decode = msgspec.msgpack.Decoder(SkiplistMessage).decode
    good = carry(1, 3)
    assert decode(msgspec.msgpack.encode(good)) == good
    tile = Covered((b"a", 0), (b"b", 0), 1)
    for bad in (
        structs.replace(good, parts=()),
        structs.replace(good, parts=good.parts * (PIECES_MAX * 17)),
        Report(0, 1, 1, 1, 0, (b"a", 0), (tile,) * (COVERED_MAX + 1)),
        Report(0, 1, 1, 1, 0, (b"a", 0), (tile,), (MATCHED_MAX + 1,)),
    ):
        with pytest.raises(msgspec.ValidationError):
            decode(msgspec.msgpack.encode(bad))


# -------------------------------------------------------------------------- reporting


def report(one: Carry, *covered: Covered, matched: tuple[int, ...] = ()) -> Report:
    batch = one.batch
    return Report(0, ME, 1, batch.first, batch.round, one.parts[0].low, covered, matched)


def test_only_what_is_missing_is_asked_for_again() -> None:
    owner = Owner()
    [asked] = carried(owner.publish((b"a", b"c")))
    low, high = asked.parts
    owner.receive(report(asked, Covered(low.low, low.high, 2), matched=(3,)))
    assert owner.receipts == []
    [again] = carried(owner.machine.wake(Micros(SECOND)))
    assert [(part.low, part.high) for part in again.parts] == [(high.low, high.high)]
    assert again.batch.round == 1
    owner.receive(report(again, Covered(high.low, high.high, 1), matched=(1,)), now=SECOND + 1)
    [receipt] = owner.receipts
    assert receipt.counts == (4,)
    [walk] = receipt.walks
    assert (walk.rounds, walk.hops) == (2, 2)
    assert list(walk.by_interval.values()) == [2, 1]


@pytest.mark.parametrize(
    "lie",
    [
        (Covered((b"a", 0), (b"z", 0), 1),),
        (Covered((b"a", 0), (b"a", 5), 1), Covered((b"a", 2), (b"a", 9), 1)),
        tuple(Covered((b"a", 2 * n), (b"a", 2 * n + 1), 1) for n in range(PIECES_MAX + 2)),
    ],
)
def test_a_report_that_does_not_fit_counts_as_none(lie: tuple[Covered, ...]) -> None:
    owner = Owner()
    [asked] = carried(owner.publish((b"a",)))
    owner.receive(report(asked, *lie, matched=(5,)))
    assert owner.machine.counters["rejected"] == 1
    [again] = carried(owner.machine.wake(Micros(SECOND)))
    assert [(part.low, part.high) for part in again.parts] == [((b"a", 0), (b"a\0", 0))]
    part = again.parts[0]
    owner.receive(report(again, Covered(part.low, part.high, 1), matched=(2,)), now=SECOND + 1)
    assert [receipt.counts for receipt in owner.receipts] == [(2,)]


def test_one_number_says_that_of_each_event() -> None:
    owner = Owner()
    [asked] = carried(owner.publish((b"a",), (b"a",), (b"a",)))
    part = asked.parts[0]
    owner.receive(report(asked, Covered(part.low, part.high, 1), matched=(2,)))
    assert [receipt.counts for receipt in owner.receipts] == [(2, 2, 2)]
    relay = Owner(b"m", takes=dict.fromkeys(range(9), 4))
    [told] = relay.receive(carry(1, 2, 3))
    assert isinstance(told, Report)
    assert told.matched == (4,)


def test_a_report_fits_a_frame_or_says_nothing() -> None:
    owner = Owner()
    key = b"k" * KEY_MAX
    large = [Covered((key, n), (key, n + 1), 1) for n in range(0, 2 * COVERED_MAX, 2)]
    region = Region([Part((b"a", 0), (b"z", 0))], lease=False)
    router = owner.machine._walks
    for count in (200, COVERED_MAX, COVERED_MAX + 1):
        message = router.report((1, 1, 1), 0, region, Reached(large[:count]), (MATCHED_MAX, 1))
        assert isinstance(message, Report)
        assert len(encode(message)) < REPORT_BYTES < FRAME_MAX
        assert bool(message.covered) == bool(message.matched) == (count == 200)


def test_nothing_is_kept_of_a_walk_to_a_peer_that_has_gone() -> None:
    owner = Owner()
    owner.publish((b"a",))
    assert owner.machine.engine.outstanding.waits_for(OTHER)
    owner.machine.link(OTHER, LinkState.DOWN, Micros(2))
    assert not owner.machine.engine.outstanding.waits_for(OTHER)
    assert owner.machine.is_busy
    owner.machine.link(OTHER, LinkState.UP, Micros(3))
    [again] = carried([Send((OTHER,), part.message) for part in _parts(owner)])
    assert again.batch.round == 1, "a link that comes up is a reason to ask again"


def _parts(owner: Owner) -> list[object]:
    return list(owner.machine.engine.outstanding.links[OTHER].parts.values())


def test_a_peer_that_cannot_be_dialled_is_not_waited_for() -> None:
    owner = Owner()
    owner.machine._host.contacts = lambda: [THIRD]
    assert carried(owner.publish((b"a",))) == []
    assert not owner.machine.engine.outstanding.waits_for(THIRD)
    owner.machine._host.contacts = lambda: [OTHER]
    assert len(carried(owner.machine.wake(Micros(SECOND)))) == 1
