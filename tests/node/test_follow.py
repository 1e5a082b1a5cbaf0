"""Durable subscriptions, history, order and gaps: whole nodes in memory, with torn writes and lossy
links.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from gossamer.filters import Event
from gossamer.machine import SECOND, Deliver, Effect, LinkState, Micros, Peer, Send, Store
from gossamer.node import Gap, NodeConfig, NodeCore, Retention, Route, TapError, Ticket, Wish
from gossamer.node.history import Archive, AskPast, Past, PastPart
from gossamer.node.progress import Progress
from gossamer.node.retention import Retained
from gossamer.overlay.batch import Batch, Report
from gossamer.overlay.interest.config import InterestConfig
from gossamer.sim.world import Node
from gossamer.trace import Delivered, Rejected
from worldnet import Net

SCHEMA = "n INT"
# The microseconds that a write takes.
DISK = 500


class Fabric(Net):
    """Nodes with disks. A crash keeps a prefix of the records that were not stored yet."""

    def __init__(
        self, nodes: int, *, retention: str = "", durable: bool = True, **config: Any
    ) -> None:
        faults = {
            name: config.pop(name) for name in ("seed", "loss", "jitter", "delay") if name in config
        }
        self.node_config = NodeConfig(trace=True, **config)
        # By the number of the node.
        self.got: dict[int, list[Event | Gap]] = {}
        self.durable = durable
        self.lives: list[int] = []
        super().__init__(
            start=False, make=self._core, join=("node-0",), disk_latency=DISK, **faults
        )
        for number in range(nodes):
            self.add(number + 1)
            self.lives.append(0)
            self.up(number)
        self.run(1)
        self.retention = Retention.parse(retention) if retention else None
        self.command(0, "advertise", "t", SCHEMA, retention=self.retention)
        self.run(1)

    def _core(self, peer: Peer, *, config: InterestConfig, **options: Any) -> NodeCore:
        return NodeCore(peer, config=replace(self.node_config, interest=config), **options)

    def up(self, number: int) -> None:
        self.lives[number] += 1
        joins = tuple(f"node-{other}" for other in range(3) if other != number)
        config = InterestConfig(join=joins if len(self.lives) > 1 else ())
        self.start(number, incarnation=self.lives[number], disk=self.durable, config=config)

    def down(self, number: int, *, silent: bool = False) -> None:
        self.crash(number, silent=silent)

    def core(self, number: int) -> NodeCore:
        found = self[number]
        assert isinstance(found, NodeCore)
        return found

    def delivered(self, node: Node, effect: Deliver) -> None:
        self.got.setdefault(node.index, []).extend(effect.events)
        core = self.core(node.index)
        follow = core.subscriptions[effect.subscription].follow
        if follow is None or follow.tap is None:
            core.taken(effect.subscription, len(effect.events), Micros(self.now))

    def enter(self, number: int, filter: str = "", route: Route = Route.FLOOD, **wish: Any) -> int:
        self.until(lambda: "t" in self.core(number).topics.schemas)
        made = self.command(number, "subscribe", "t", filter, route=route, wish=Wish(**wish))
        assert isinstance(made, int)
        self.until(lambda: self.core(number).subscriptions[made].in_force)
        return made

    def publish(self, number: int, *values: int) -> list[Ticket]:
        self.until(lambda: "t" in self.core(number).topics.schemas)
        made = [self.command(number, "publish", "t", {"n": value}) for value in values]
        self.until(lambda: all(ticket.done for ticket in made))  # type: ignore[union-attr]
        return made  # type: ignore[return-value]

    def ack(
        self, number: int, subscription: int, what: Event | Gap, *, through: bool = False
    ) -> None:
        self.command(number, "ack", subscription, what.offset, through=through)
        self.run(0.01)

    def numbers(self, number: int) -> list[int]:
        return [event["n"] for event in self.got.get(number, []) if isinstance(event, Event)]

    def gaps(self, number: int) -> list[Gap]:
        return [event for event in self.got.get(number, []) if isinstance(event, Gap)]


def test_what_is_not_acknowledged_comes_again_and_what_is_never_does() -> None:
    fabric = Fabric(3, retention="1h")
    made = fabric.enter(1, "n >= 0", name="x")
    fabric.publish(0, 1, 2, 3, 4, 5, -1)
    assert fabric.numbers(1) == [1, 2, 3, 4, 5]
    assert [event.offset for event in fabric.got[1]] == [1, 2, 3, 4, 5]
    fabric.ack(1, made, fabric.got[1][1], through=True)
    fabric.ack(1, made, fabric.got[1][3])
    fabric.down(1)
    fabric.publish(0, 6, 7)
    fabric.publish(2, 8)
    fabric.got.clear()
    fabric.up(1)
    made = fabric.enter(1, "n >= 0", name="x")
    fabric.run(5)
    # They come by themselves, before any node is asked.
    assert fabric.numbers(1)[:2] == [3, 5]
    assert sorted(fabric.numbers(1)) == [3, 5, 6, 7, 8]
    assert not fabric.gaps(1)
    fabric.ack(1, made, fabric.got[1][-1], through=True)
    # Idle publishers are asked for their position, so that nothing is remembered for ever.
    fabric.run(15)
    assert not [key for key in fabric.places[1].disk if "/e/" in key]


def test_an_event_is_on_disk_before_its_publisher_hears_that_it_was_taken() -> None:
    core = NodeCore(
        Peer(1),
        incarnation=1,
        rng=Random(1),
        durable=True,
        config=NodeConfig(interest=InterestConfig(join=())),
    )
    core.wake(Micros(0))
    core.advertise("t", SCHEMA, Micros(0))
    made = core.subscribe("t", "", Micros(0), route=Route.FLOOD, wish=Wish(name="x"))
    effects = core.wake(Micros(SECOND))
    for token in [
        effect.token for effect in effects if isinstance(effect, Store) and effect.token > 0
    ]:
        core.stored(token, Micros(SECOND))
    core.link(Peer(2), LinkState.UP, Micros(SECOND))
    effects = core.receive(
        Peer(2), Batch("t", 2, 1, 1, 1, 1, 0, 1, b"\x91\x91\x05"), Micros(SECOND)
    )
    [store] = [effect for effect in effects if isinstance(effect, Store)]
    assert any("/e/" in record.key for record in store.records)
    assert not [
        effect
        for effect in effects
        if isinstance(effect, (Send, Deliver)) and not _is(effect, AskPast)
    ]
    effects = core.stored(store.token, Micros(SECOND))
    assert [e.message for e in effects if _is(e, Report)] == [Report(2, 1, 1, 0, True, (1,))]
    [deliver] = [effect for effect in effects if isinstance(effect, Deliver)]
    assert (deliver.subscription, deliver.events[0].offset) == (made, 1)


def _is(effect: Effect, kind: type) -> bool:
    return isinstance(effect, Send) and isinstance(effect.message, kind)


def test_a_gap_where_retention_was_too_small() -> None:
    fabric = Fabric(3, retention="1KB")
    made = fabric.enter(1, name="x")
    fabric.publish(0, 1)
    fabric.ack(1, made, fabric.got[1][0])
    fabric.run(10)
    fabric.down(1)
    # Each has 256 bytes of overhead, so three or four stay.
    for number in range(2, 12):
        fabric.publish(0, number)
    fabric.run(2)
    fabric.got.clear()
    fabric.up(1)
    made = fabric.enter(1, name="x")
    fabric.run(3)
    [gap] = fabric.gaps(1)
    numbers = fabric.numbers(1)
    assert numbers == list(range(numbers[0], 12))
    assert 2 < numbers[0] <= 11
    assert gap.publisher == 1
    assert gap.after == (1, 1)
    assert gap.before == (1, numbers[0])
    # It is acknowledged like an event, and comes again until it is.
    fabric.down(1)
    fabric.got.clear()
    fabric.up(1)
    made = fabric.enter(1, name="x")
    assert fabric.gaps(1) == [gap]
    fabric.ack(1, made, gap)
    fabric.down(1)
    fabric.got.clear()
    fabric.up(1)
    fabric.enter(1, name="x")
    fabric.run(1)
    assert not fabric.gaps(1)
    assert fabric.numbers(1) == numbers


def test_a_gap_without_retention_and_where_a_publisher_is_not_there() -> None:
    fabric = Fabric(4)
    fabric.enter(1, name="x")
    fabric.publish(0, 1)
    fabric.publish(3, 2)
    fabric.run(15)
    fabric.down(1)
    fabric.publish(0, 3)
    fabric.publish(3, 4)
    fabric.down(3)
    fabric.run(30)
    fabric.up(1)
    fabric.got.clear()
    fabric.enter(1, name="x")
    fabric.run(20)
    assert {(gap.publisher, gap.reason) for gap in fabric.gaps(1)} == {
        (1, "the publisher retains nothing"),
        (4, "the publisher is not there"),
    }
    # They were not acknowledged.
    assert sorted(fabric.numbers(1)) == [1, 2]


def test_a_publisher_that_left_politely_is_no_gap() -> None:
    fabric = Fabric(4)
    made = fabric.enter(1, name="x")
    fabric.publish(3, 2)
    fabric.ack(1, made, fabric.got[1][0])
    fabric.command(3, "say_goodbye")
    fabric.run(2)
    fabric.down(3)
    fabric.run(10)
    fabric.down(1)
    fabric.run(1)
    fabric.up(1)
    fabric.enter(1, name="x")
    fabric.run(20)
    assert not fabric.gaps(1)


def test_history_first_then_live_each_once_filtered_at_the_source() -> None:
    fabric = Fabric(3, retention="1h", batch_events=8, window=64)
    for first in range(0, 100, 50):
        fabric.publish(0, *range(first, first + 50))
    fabric.publish(2, *range(1000, 1010))
    fabric.sent = []
    fabric.enter(1, "n BETWEEN 40 AND 1004", start=0)
    for number in range(100, 110):
        fabric.publish(0, number)
    fabric.run(3)
    assert sorted(fabric.numbers(1)) == [*range(40, 110), *range(1000, 1005)]
    first = [n for n in fabric.numbers(1) if n < 1000]
    assert first == sorted(first)
    pasts = [message for *_, message, _ in fabric.sent if isinstance(message, Past)]
    assert sum(len(part.places) or part.count for past in pasts for part in past.parts) <= 65 + 10
    assert not fabric.gaps(1)


def test_history_from_a_time_on_and_a_gap_where_it_is_gone() -> None:
    fabric = Fabric(2, retention="5s")
    fabric.publish(0, 1)
    fabric.run(3)
    start = fabric.now
    fabric.publish(0, 2)
    fabric.run(1)
    fabric.enter(1, start=start)
    fabric.run(1)
    assert fabric.numbers(1) == [2]
    fabric.run(10)
    fabric.publish(0, 3)
    fabric.got.clear()
    fabric.enter(1, start=start)
    fabric.run(2)
    assert fabric.numbers(1)[-1] == 3
    [gap] = fabric.gaps(1)
    assert gap.reason == "the publisher retains nothing that old"


@pytest.mark.parametrize("route", list(Route))
def test_ordered_whatever_the_network_does(route: Route) -> None:
    fabric = Fabric(4, loss=0.1, jitter=30_000, batch_events=2, window=64, durable=False)
    fabric.enter(1, route=route, ordered=True)
    tickets = []
    for number in range(60):
        tickets.append(fabric.command(0, "publish", "t", {"n": number}))
        tickets.append(fabric.command(3, "publish", "t", {"n": 1000 + number}))
        fabric.run(0.003)
    fabric.until(lambda: all(ticket.done for ticket in tickets))  # type: ignore[union-attr]
    fabric.run(5)
    numbers = fabric.numbers(1)
    assert [n for n in numbers if n < 1000] == list(range(60))
    assert [n for n in numbers if n >= 1000] == list(range(1000, 1060))
    [follow] = fabric.core(1).follows.follows.values()
    assert follow.early == 0


def test_a_node_that_was_taken_for_dead_catches_up() -> None:
    fabric = Fabric(4, retention="1h")
    fabric.enter(1, name="x")
    fabric.publish(0, 1)
    cut = {1}
    fabric.sever(lambda a, b: (a.number in cut) != (b.number in cut))
    fabric.run(40)
    fabric.publish(0, 2, 3)
    fabric.sever(None)
    fabric.until(lambda: len(fabric.numbers(1)) >= 3)
    fabric.run(5)
    assert fabric.numbers(1) == [1, 2, 3]


@pytest.mark.parametrize(("route", "seed"), [(Route.DIRECT, 1), (Route.FLOOD, 2)])
def test_what_is_published_while_two_halves_find_each_other_again_is_not_lost(
    route: Route, seed: int
) -> None:
    """Each node takes the other for dead. The node that hears first that this is wrong must not
    believe that the other one knows it too.
    """
    fabric = Fabric(4, retention="1h", seed=seed, loss=0.05)
    fabric.enter(1, route=route, name="x")
    fabric.enter(2, route=Route.SKIPLIST, filter="n < 0")
    published = 0

    def publish(seconds: float) -> None:
        nonlocal published
        for _ in range(int(seconds * 20)):
            for number in (0, 2, 3):
                fabric.command(number, "publish", "t", {"n": published})
                published += 1
            fabric.run(0.05)

    publish(5)
    fabric.sever(lambda a, b: (a.number == 1) != (b.number == 1))
    publish(25)
    fabric.sever(None)
    publish(6)
    fabric.run(20)
    assert sorted(fabric.numbers(1)) == list(range(published))


def test_a_full_tap_holds_publishers_back_and_is_cut_off_but_loses_nothing() -> None:
    fabric = Fabric(2, retention="1h", durable=True, batch_events=1, window=8)
    fabric.node_config = replace(fabric.node_config)
    for place in (0, 1):
        fabric.core(place).local._durable = 4
    made = fabric.enter(1, name="x")
    tickets = [fabric.command(0, "publish", "t", {"n": number}) for number in range(8)]
    fabric.run(2)
    assert not all(ticket.done for ticket in tickets)  # type: ignore[union-attr]
    fabric.run(10)
    assert not fabric.core(1).subscriptions
    fabric.got.clear()
    fabric.core(1).local._durable = 100
    made = fabric.enter(1, name="x")
    fabric.run(2)
    assert sorted(fabric.numbers(1)) == list(range(8))
    fabric.ack(1, made, max(fabric.got[1], key=lambda event: event.offset), through=True)
    assert fabric.core(1).subscriptions[made].backlog == 0


def test_misuse_says_what_to_do() -> None:
    fabric = Fabric(2)
    made = fabric.enter(1, "n > 1", name="x")
    with pytest.raises(TapError, match="in use"):
        fabric.enter(1, "n > 1", name="x")
    with pytest.raises(TapError, match="not handed over"):
        fabric.core(1).ack(made, 99, Micros(fabric.now))
    with pytest.raises(TapError, match="in use"):
        fabric.core(1).forget("x", Micros(fabric.now))
    fabric.command(1, "unsubscribe", made)
    with pytest.raises(TapError, match=r"'t' WHERE n > 1, which is not 't' WHERE n > 2"):
        fabric.enter(1, "n > 2", name="x")
    with pytest.raises(TapError, match="letters"):
        fabric.enter(1, name="a/b")
    fabric.command(1, "forget", "x")
    fabric.run(0.1)
    assert not [key for key in fabric.places[1].disk if key.startswith("tap/x")]
    fabric.enter(1, "n > 2", name="x")
    plain = fabric.enter(1)
    with pytest.raises(TapError, match="only a durable"):
        fabric.core(1).ack(plain, 1, Micros(fabric.now))
    memory = NodeCore(
        Peer(9), incarnation=1, rng=Random(1), config=NodeConfig(interest=InterestConfig(join=()))
    )
    memory.advertise("t", SCHEMA, Micros(0))
    with pytest.raises(TapError, match="data directory"):
        memory.subscribe("t", "", Micros(0), wish=Wish(name="x"))


BAD = [
    # The numbers of places and rows differ.
    Past(
        "t",
        1,
        1,
        (PastPart(1, 1, 2, (0, 1), b"\x91\x91\x01"),),
        (1, 9),
        True,
        (0, 0),
        0,
        (1, 10),
        (1, 9),
        0,
    ),
    # It is not a row.
    Past(
        "t",
        1,
        1,
        (PastPart(1, 1, 1, (), b"\x91\xa1x"),),
        (1, 9),
        True,
        (0, 0),
        0,
        (1, 10),
        (1, 9),
        0,
    ),
    # It is beyond the last event of the answer.
    Past(
        "t",
        1,
        1,
        (PastPart(1, 50, 1, (), b"\x91\x91\x01"),),
        (1, 9),
        True,
        (0, 0),
        0,
        (1, 10),
        (1, 9),
        0,
    ),
    # The place does not exist.
    Past(
        "t",
        1,
        1,
        (PastPart(1, 1, 1, (5,), b"\x91\x91\x01"),),
        (1, 9),
        True,
        (0, 0),
        0,
        (1, 10),
        (1, 9),
        0,
    ),
]


@pytest.mark.parametrize("bad", BAD)
def test_peers_are_not_believed(bad: Past) -> None:
    fabric = Fabric(2, retention="1h")
    made = fabric.enter(1, start=0)
    fabric.run(1)
    follow = fabric.core(1).follows.follows[made]
    progress = follow.publishers[1]
    progress.asked = {77: Micros(fabric.now)}
    progress.is_level = False
    fabric.carry_out(
        1,
        fabric.core(1).receive(Peer(1), replace(bad, number=made, serial=77), Micros(fabric.now)),
    )
    assert [note for note in fabric.places[1].notes if isinstance(note, Rejected)]
    assert not fabric.numbers(1)
    asked = AskPast("t", 1, 1, (0, 0), 0, True, "no such thing")
    fabric.carry_out(0, fabric.core(0).receive(Peer(2), asked, Micros(fabric.now)))
    assert [note for note in fabric.places[0].notes if isinstance(note, Rejected)]


def test_too_much_that_waits_goes_before_its_turn_and_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gossamer.node.follow.WAITING_MAX", 10)
    monkeypatch.setattr("gossamer.node.progress.WAITING_MAX", 10)
    fabric = Fabric(3, batch_events=1, window=64)
    made = fabric.enter(1, ordered=True)
    fabric.enter(2)
    fabric.publish(0, 0)
    # So no receipt is complete.
    fabric.pause(2)
    for number in range(1, 14):
        fabric.command(0, "publish", "t", {"n": number})
        fabric.run(0.01)
    assert fabric.numbers(1) == [0, 1, 2, 3]
    about = fabric.core(1).subscriptions[made].follow
    assert about is not None
    assert (about.about()["early"], about.about()["waiting"]) == (2, 10)
    fabric.resume(2)
    fabric.run(2)
    assert fabric.numbers(1) == list(range(14))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_lost_or_acknowledged_twice_whatever_crashes(seed: int) -> None:
    """The subscriber and the publishers crash with torn writes, and links lose packets. Every
    accepted event comes, and an acknowledged event comes once.
    """
    rng = Random(seed)
    ordered = seed % 3 == 0
    fabric = Fabric(
        4,
        retention="1h",
        seed=seed + 1,
        loss=rng.choice((0.0, 0.05)),
        jitter=rng.choice((0, 20_000)),
        batch_events=4,
        window=64,
    )
    made, accepted, acked, taken = fabric.enter(1, name="x", ordered=ordered), [], [], 0
    tickets: list[tuple[int, Any]] = []
    for step in range(150):
        act = rng.random()
        if act < 0.7:
            publisher = rng.choice((0, 2, 3))
            if (
                fabric.places[publisher].machine is not None
                and "t" in fabric.core(publisher).topics.schemas
            ):
                tickets.append((step, fabric.command(publisher, "publish", "t", {"n": step})))
        elif act < 0.8 and fabric.places[1].machine is not None and made:
            events = fabric.got.get(1, [])[taken:]
            for event in events[: rng.randrange(1, 20)]:
                fabric.command(1, "ack", made, event.offset)
                fabric.run(0.002)
                if not fabric.places[1].node.disk.pending:
                    acked.append(event)
                taken += 1
        elif act < 0.86 and fabric.places[1].machine is not None:
            fabric.down(1)
            made = 0
        elif act < 0.9:
            publisher = rng.choice((2, 3))
            if fabric.places[publisher].machine is not None:
                accepted += [(n, t) for n, t in tickets if t.publication.accepted]
                fabric.down(publisher)
        fabric.run(rng.random() * 0.2)
        for number in (1, 2, 3):
            if fabric.places[number].machine is None and rng.random() < 0.5:
                fabric.up(number)
        if (
            not made
            and fabric.places[1].machine is not None
            and "t" in fabric.core(1).topics.schemas
        ):
            taken = len(fabric.got.get(1, []))
            made = fabric.command(1, "subscribe", "t", "", wish=Wish(name="x", ordered=ordered))  # type: ignore[assignment]
    fabric.loss = 0.0
    for number in (1, 2, 3):
        if fabric.places[number].machine is None:
            fabric.up(number)
    fabric.run(3)
    if not made:
        fabric.enter(1, name="x", ordered=ordered)
    fabric.run(60)
    assert not fabric.gaps(1)
    wanted = {n for n, ticket in [*tickets, *accepted] if ticket.publication.accepted}
    events = [event for event in fabric.got[1] if isinstance(event, Event)]
    assert wanted <= {event["n"] for event in events}
    offsets: dict[tuple[int, int, int], int] = {}
    # An offset is for life, so an event that came again is the same one.
    for event in events:
        assert offsets.setdefault(event.id, event.offset) == event.offset
    assert len(set(offsets.values())) == len(offsets)
    last = {event.id: place for place, event in enumerate(events)}
    when = {id(event): place for place, event in enumerate(events)}
    for event in acked:
        assert last[event.id] == when[id(event)], f"{event} was acknowledged, and came again"


def test_traces_tell_what_came_again() -> None:
    fabric = Fabric(2, retention="1h")
    fabric.enter(1, name="x")
    fabric.publish(0, 1)
    fabric.down(1)
    fabric.up(1)
    fabric.enter(1, name="x")
    fabric.run(1)
    told = [note.again for note in fabric.places[1].notes if isinstance(note, Delivered)]
    assert told == [False, True]


def test_a_position_is_never_before_the_first_event() -> None:
    """A peer that makes up its messages sends a floor of 0. Fuzzing found that the next question
    could not be encoded.
    """
    progress = Progress()
    progress.advance((1, -1))
    assert progress.position == (1, 0)


def test_a_publisher_that_came_back_and_does_not_know_the_topic_yet_says_nothing_of_its_past() -> (
    None
):
    """It would say that it retains nothing, and the node that asks would believe that it has had
    the events.
    """
    fabric = Fabric(2, retention="1h")
    fabric.publish(0, 1, 2)
    archive = fabric.core(0).follows._archive
    ask = AskPast("t", 1, 1, (0, 0), 0, True)
    answer = archive.answer(ask)
    assert answer is not None
    assert sum(part.count for part in answer.parts) == 2
    known = dict(fabric.core(0).topics.schemas)
    fabric.core(0).topics.schemas.clear()
    assert archive.answer(ask) is None
    fabric.core(0).topics.schemas.update(known)
    assert archive.answer(ask) == answer


def about(fabric: Fabric, number: int, subscription: int) -> dict[str, Any]:
    follow = fabric.core(number).subscriptions[subscription].follow
    assert follow is not None
    return follow.about()


def away(fabric: Fabric, absent: int) -> list[Gap]:
    """The gaps of a durable subscription of node 1 when another node dies while it is down."""
    fabric.down(1)
    fabric.down(absent)
    fabric.run(30)
    fabric.got.clear()
    fabric.up(1)
    fabric.enter(1, "n >= 0", name="x")
    fabric.run(20)
    return fabric.gaps(1)


def test_a_member_that_never_published_on_the_topic_is_no_gap_when_it_has_gone() -> None:
    fabric = Fabric(4, retention="1h")
    made = fabric.enter(1, "n >= 0", name="x")
    fabric.publish(0, 1, 2, 3)
    fabric.command(3, "advertise", "other", SCHEMA)
    fabric.command(3, "publish", "other", {"n": 1})
    fabric.run(15)
    fabric.ack(1, made, fabric.got[1][-1], through=True)
    assert away(fabric, 3) == []


@pytest.mark.parametrize("retention", ["", "1h"])
def test_a_publisher_whose_events_the_filter_never_wanted_is_a_gap_when_it_has_gone(
    retention: str,
) -> None:
    fabric = Fabric(4, retention=retention)
    fabric.publish(3, -1)
    fabric.enter(1, "n >= 0", name="x")
    fabric.run(15)
    assert {gap.publisher for gap in away(fabric, 3)} == {4}


def test_a_publisher_that_left_politely_came_back_and_died_is_a_gap() -> None:
    fabric = Fabric(4, retention="1h")
    fabric.enter(1, "n >= 0", name="x")
    fabric.publish(3, 1)
    fabric.run(10)
    fabric.command(3, "say_goodbye")
    fabric.run(2)
    fabric.down(3)
    fabric.run(2)
    fabric.down(1)
    fabric.up(3)
    fabric.run(2)
    fabric.up(1)
    fabric.enter(1, "n >= 0", name="x")
    fabric.publish(3, 2)
    fabric.run(10)
    assert [(gap.publisher, gap.reason) for gap in away(fabric, 3)] == [
        (4, "the publisher is not there")
    ]


def test_a_gap_says_until_when_its_events_were_published() -> None:
    fabric = Fabric(3, retention="1KB")
    fabric.enter(1, name="x")
    fabric.publish(0, 0)
    fabric.run(10)
    fabric.down(1)
    fabric.publish(0, 1)
    fabric.run(3)
    began = fabric.now
    for number in range(2, 12):
        fabric.publish(0, number)
    ended = fabric.now
    fabric.up(1)
    fabric.enter(1, name="x")
    fabric.run(3)
    [gap] = fabric.gaps(1)
    assert gap.until is not None
    assert began <= gap.until.timestamp() * SECOND <= ended


def test_what_publishers_still_hold_is_told_while_a_consumer_is_behind() -> None:
    fabric = Fabric(2, retention="1h", durable=True, window=4096)
    made = fabric.enter(1, name="x")
    fabric.down(1)
    text = "x" * 1000
    fabric.command(0, "advertise", "big", "n INT, s STRING", retention=Retention.parse("1h"))
    tickets = [fabric.command(0, "publish", "big", {"n": n, "s": text}) for n in range(2000)]
    fabric.until(lambda: all(ticket.done for ticket in tickets))  # type: ignore[union-attr]
    fabric.node_config = replace(fabric.node_config, durable=600)
    fabric.up(1)
    fabric.until(lambda: "big" in fabric.core(1).topics.schemas)
    made = fabric.command(1, "subscribe", "big", "", wish=Wish(name="y", start=0))  # type: ignore[assignment]
    fabric.run(20)
    told = about(fabric, 1, made)
    here = len(fabric.got[1])
    assert 300 < here < 900
    assert (told["parked"], told["left"], told["owing"]) == (1, 2000 - here, 1)
    while about(fabric, 1, made)["left"]:
        fabric.ack(1, made, fabric.got[1][-1], through=True)
        fabric.run(1)
    assert len(fabric.got[1]) == 2000
    told = about(fabric, 1, made)
    assert (told["parked"], told["left"], told["owing"]) == (0, 0, 0)


def test_members_that_do_not_answer_and_that_died_unasked_are_counted() -> None:
    fabric = Fabric(5, retention="1h")
    fabric.publish(3, 1)
    fabric.publish(4, 2)
    mute = {4}
    fabric.sever(lambda a, b: (a.number in mute) != (b.number in mute))
    fabric.down(3, silent=True)
    made = fabric.command(1, "subscribe", "t", "", wish=Wish(start=0))
    assert isinstance(made, int)
    fabric.until(lambda: fabric.core(1).subscriptions[made].in_force)
    fabric.run(1)
    assert about(fabric, 1, made)["unasked"] == 2
    mute.clear()
    fabric.run(30)
    told = about(fabric, 1, made)
    assert (told["unasked"], told["owing"], fabric.numbers(1)) == (1, 0, [2])


def test_a_member_that_does_not_answer_is_counted_and_told_and_what_it_has_comes_when_it_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fabric = Fabric(4, retention="1h")
    fabric.publish(3, 1)
    monkeypatch.setattr(Archive, "answer", lambda archive, ask: None)
    made = fabric.enter(1, start=0)
    fabric.run(20)
    told = about(fabric, 1, made)
    assert (told["behind"], told["unreached"], told["unasked"], told["owing"]) == (4, 4, 0, 0)
    assert [gap.reason for gap in fabric.gaps(1)] == ["the publisher does not answer"] * 4
    monkeypatch.undo()
    fabric.run(20)
    told = about(fabric, 1, made)
    assert (told["behind"], told["unreached"], fabric.numbers(1)) == (0, 0, [1])


def test_how_many_events_are_retained_after_an_id() -> None:
    retained = Retained(durable=False, total=1 << 30)
    for incarnation, first, count in [(1, 5, 3), (1, 20, 2), (2, 1, 4)]:
        retained.add(Batch("t", 9, incarnation, first, count, 1, 0, 1, b""), 1)
    ids = [(1, n) for n in (5, 6, 7, 20, 21)] + [(2, n) for n in (1, 2, 3, 4)]
    for after in [(0, 0), (1, 0), (1, 4), *ids, (1, 8), (1, 19), (1, 99), (2, 0), (3, 0)]:
        assert retained.count("t", after) == sum(id > after for id in ids)
    assert (retained.newest("t"), retained.newest("u"), retained.count("u", (0, 0))) == (
        (2, 4),
        (0, 0),
        0,
    )
    retained.trim({"t": Retention(0, 300)}, lambda id: False, 2)
    assert [retained.count("t", after) for after in ((0, 0), (2, 1))] == [4, 3]
