"""The book of bare machines: its verdicts, and the traces that it leaves."""

from __future__ import annotations

from pathlib import Path

from gossamer.machine import Peer
from gossamer.sim import latency
from gossamer.sim.book import BareBook
from gossamer.sim.checkers import Receipts
from gossamer.sim.codec import WireCodec
from gossamer.sim.history import Place, Published
from gossamer.sim.traces import Traces
from gossamer.sim.world import Probe, World
from gossamer.trace import Completed, Delivered, Subscribed, Unsubscribed, read


class Fabric:
    """Two nodes that run nothing; every event passes every filter."""

    def __init__(self) -> None:
        self.world = World(
            seed=0,
            make=lambda node: (_ for _ in ()).throw(AssertionError("nothing runs here")),
            codec=WireCodec(),
            latency=latency.parse("constant:1ms", 0),
            probe=Probe(),
        )
        self.world.traces = self.traces = Traces()
        self.publisher, self.subscriber = (self.world.add_node(Peer(peer)) for peer in (7, 8))
        self.book = BareBook(self.world, "weather", "temp INT", lambda event: (0,))
        self.sequence = 0

    def subscribe(self) -> Place:
        place = self.book.subscribing(self.subscriber, 0, 1, "temp > 0")
        self.book.subscribed(place)
        return place

    def publish(self) -> Published:
        self.sequence += 1
        return self.book.publishing(self.publisher, 1, self.sequence, {"temp": 1})

    def take(self, place: Place, event: Published) -> None:
        assert event.id is not None
        self.book.took(self.subscriber, place, event.id, {"temp": 1}, 2)

    def complete(self, event: Published, matched: int) -> None:
        self.book.completed(self.publisher, event, matched)


def counts(book: BareBook) -> tuple[int, ...]:
    return book.expected, book.delivered, book.missed, book.duplicate, book.spurious


def test_a_due_event_that_comes_once_is_right() -> None:
    fabric = Fabric()
    place, event = fabric.subscribe(), fabric.publish()
    fabric.take(place, event)
    fabric.complete(event, 1)
    assert fabric.book.judge(Receipts()) == []
    assert counts(fabric.book) == (1, 1, 0, 0, 0)


def test_a_due_event_that_does_not_come_is_missed_however_often_the_book_is_asked() -> None:
    fabric = Fabric()
    fabric.subscribe()
    fabric.complete(fabric.publish(), 0)
    for _ in range(2):
        assert len(fabric.book.judge()) == 1
        assert counts(fabric.book) == (1, 0, 1, 0, 0)


def test_a_second_copy_is_a_duplicate_unless_the_subscription_is_another_one() -> None:
    fabric = Fabric()
    place, event = fabric.subscribe(), fabric.publish()
    fabric.take(place, event)
    fabric.book.ended(place)
    again = fabric.subscribe()
    fabric.take(again, event)
    assert fabric.book.judge() == []
    fabric.take(again, event)
    assert counts(fabric.book)[3:] == (1, 0)
    assert ["once" in text for text in fabric.book.judge()] == [True]


def test_what_comes_after_the_end_is_spurious() -> None:
    fabric = Fabric()
    place = fabric.subscribe()
    fabric.book.ended(place)
    fabric.take(place, fabric.publish())
    assert counts(fabric.book) == (0, 0, 0, 0, 1)


def test_nothing_that_a_lost_publisher_did_not_get_done_is_due() -> None:
    fabric = Fabric()
    fabric.subscribe()
    fabric.publish()
    fabric.book.lost(fabric.publisher)
    assert fabric.book.judge() == []


def test_a_receipt_that_counts_too_many_is_wrong() -> None:
    fabric = Fabric()
    place, event = fabric.subscribe(), fabric.publish()
    fabric.take(place, event)
    fabric.complete(event, 2)
    assert fabric.book.judge() == []
    assert len(fabric.book.judge(Receipts())) == 1


def test_the_traces_hold_everything_in_order(tmp_path: Path) -> None:
    fabric = Fabric()
    place, event = fabric.subscribe(), fabric.publish()
    fabric.take(place, event)
    fabric.complete(event, 1)
    fabric.book.ended(place)
    fabric.traces.write(tmp_path)
    stamped = sorted(
        (each for path in tmp_path.iterdir() for each in read(path)), key=lambda each: each.at
    )
    kinds = [type(each.record).__name__ for each in stamped]
    assert kinds == [
        "Advertised", "Subscribing", "Subscribed", "Published", "Delivered", "Completed",
        "Unsubscribed",
    ]  # fmt: skip
    assert len({each.at for each in stamped}) == len(stamped), "no two at one time"
    records = [each.record for each in stamped]
    assert Delivered(0, f"{7:016x}", 1, 1, 2) in records
    assert Completed(1, 1, 1) in records
    assert {type(each.record): each.node for each in stamped}[Subscribed] == f"{8:016x}"
    assert Unsubscribed(0) in records
