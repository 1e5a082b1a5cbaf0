"""Routes side by side at one node: hard cases, in a small fabric of whole nodes in memory."""

from __future__ import annotations

import contextlib
from collections import deque
from random import Random
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from gossamer.machine import Deliver, LinkState, Micros, Peer, Send
from gossamer.node import NodeConfig, NodeCore, Route, Ticket
from gossamer.node.topics import Adverts, AdvertsTaken
from gossamer.node.wire import Unframer, WireError
from gossamer.overlay.batch import Batch, Busy, Group, Leave, Report
from gossamer.overlay.direct.messages import DirectMessage
from gossamer.overlay.interest.config import InterestConfig
from gossamer.overlay.interest.messages import InterestMessage
from gossamer.overlay.skiplist.config import SkipConfig
from gossamer.overlay.skiplist.core import SkipList
from gossamer.overlay.skiplist.messages import Carry, Gossip, Item, Join, Part, SkiplistMessage
from gossamer.overlay.skiplist.search import Hits
from gossamer.overlay.tree.messages import TreeMessage
from gossamer.sim.world import Node
from gossamer.trace import Rejected
from worldnet import Net

WEATHER = "country STRING, city STRING, temp INT"
OTHER = [Route.SKIPLIST, Route.TREE, Route.DIRECT]


class Fabric(Net):
    """Nodes in memory; every message passes the codec, and every call keeps the rules that drivers
    assert.
    """

    def __init__(
        self, nodes: int, *, peers: list[int] | None = None, advertise: bool = True, **config: Any
    ) -> None:
        self.node_config = NodeConfig(**config)
        # The numbers of the events, by node and subscription.
        self.got: dict[tuple[int, int], list[int]] = {}
        super().__init__(start=False, make=self._core, join=("node-0",))  # type: ignore[arg-type]
        for number in range(nodes):
            self.add(peers[number] if peers is not None else number + 1)
            self.start(number, config=InterestConfig(join=("node-0",) if number else ()))
        self.run(1)
        if advertise:
            self.core(0).advertise("weather", WEATHER, Micros(self.now))
            self.poke(0)
            self.run(1)

    def _core(self, peer: Peer, *, config: InterestConfig, **options: Any) -> NodeCore:
        return NodeCore(peer, config=replace(self.node_config, interest=config), **options)

    def core(self, number: int) -> NodeCore:
        return self[number]  # type: ignore[return-value]

    def delivered(self, node: Node, effect: Deliver) -> None:
        got = self.got.setdefault((node.index, effect.subscription), [])
        got += [event["temp"] for event in effect.events]

    def enter(self, number: int, filter: str, route: Route, **options: Any) -> int:
        """Subscribe, and wait until it is in force."""
        made = self.command(number, "subscribe", "weather", filter, route=route, **options)
        assert isinstance(made, int)
        self.until(lambda: self.core(number).subscriptions[made].in_force)
        return made

    def publish(self, number: int, temp: int, **values: Any) -> Ticket:
        ticket = self.command(number, "publish", "weather", {"temp": temp, **values})
        assert isinstance(ticket, Ticket)
        return ticket

    def matched(self, ticket: Ticket) -> int:
        self.until(lambda: ticket.done)
        return ticket.matched

    def rejections(self, number: int) -> list[Any]:
        return [record for record in self.places[number].notes if isinstance(record, Rejected)]


@pytest.mark.parametrize("route", OTHER)
def test_the_same_filter_twice_at_one_node(route: Route) -> None:
    fabric = Fabric(3)
    one = fabric.enter(1, "temp > 30", route)
    other = fabric.enter(1, "temp > 30", route)
    assert fabric.matched(fabric.publish(2, 31)) == 2
    assert fabric.got == {(1, one): [31], (1, other): [31]}
    fabric.command(1, "unsubscribe", one)
    assert fabric.matched(fabric.publish(2, 32)) == 1


@pytest.mark.parametrize("route", OTHER)
def test_a_filter_that_nothing_passes_is_in_force_and_in_nobodys_way(route: Route) -> None:
    fabric = Fabric(3)
    # The least peer: others wait for it to begin a list.
    fabric.enter(0, "temp > 30 AND temp < 20", route)
    mine = fabric.enter(1, "temp > 30", route)
    assert fabric.matched(fabric.publish(2, 31)) == 1
    assert fabric.got == {(1, mine): [31]}


@pytest.mark.parametrize("route", OTHER)
def test_a_flood_subscription_beside_a_route_in_use_misses_nothing(route: Route) -> None:
    fabric = Fabric(3)
    fabric.enter(1, "temp > 30", route)
    for temp in range(31, 41):
        fabric.matched(fabric.publish(0, temp))
        fabric.run(1)
    flood = fabric.enter(2, "temp > 30", Route.FLOOD)
    assert fabric.matched(fabric.publish(0, 50)) == 2
    assert fabric.got[2, flood] == [50]


@pytest.mark.parametrize("route", list(Route))
def test_a_slow_subscription_is_cut_off_and_what_it_held_is_reported(route: Route) -> None:
    fabric = Fabric(3, buffer=1, window=8, batch_events=1)
    fabric.enter(1, "temp > 30", route)
    sent = [fabric.publish(0, temp) for temp in range(31, 36)]
    fabric.run(2)
    assert not all(ticket.done for ticket in sent)
    fabric.run(10)
    assert not fabric.core(1).subscriptions
    assert [ticket.done for ticket in sent] == [True] * 5


@pytest.mark.parametrize("route", OTHER)
def test_every_event_of_a_batch_has_its_own_count(route: Route) -> None:
    fabric = Fabric(5)
    wanted = {
        (1, "temp BETWEEN 0 AND 19"): range(20),
        (2, "temp BETWEEN 10 AND 29"): range(10, 30),
        (3, "city = 'b'"): range(0),
    }
    made = {
        (number, fabric.enter(number, text, route)): temps
        for (number, text), temps in wanted.items()
    }
    sent = [(temp % 40, "ab"[temp % 2]) for temp in range(120)]
    tickets = [
        fabric.core(0).publish("weather", {"temp": temp, "city": city}, Micros(fabric.now))
        for temp, city in sent
    ]
    fabric.poke(0)
    fabric.until(lambda: all(ticket.done for ticket in tickets))
    expected = [
        (temp in range(20)) + (temp in range(10, 30)) + (city == "b") for temp, city in sent
    ]
    assert [ticket.matched for ticket in tickets] == expected
    for (number, subscription), temps in made.items():
        takes = [temp for temp, city in sent if temp in temps or (number == 3 and city == "b")]
        assert sorted(fabric.got[number, subscription]) == sorted(takes)
    assert not any(fabric.rejections(number) for number in range(5))


@pytest.mark.parametrize("route", OTHER)
def test_a_consumer_that_is_behind_holds_back_what_walks_together(route: Route) -> None:
    fabric = Fabric(3, buffer=4)
    slow = fabric.enter(1, "city = 'b'", route)
    other = fabric.enter(2, "city = 'b' AND temp >= 0", route)
    events = [{"temp": 5 * (number % 2) - 1, "city": "b"} for number in range(10)]
    tickets = [fabric.core(0).publish("weather", event, Micros(fabric.now)) for event in events]
    fabric.poke(0)
    fabric.run(1)
    # On the skip list events that look in the same intervals come together.
    mixed = [-1] * 5 + [4] * 5 if route is Route.SKIPLIST else [-1, 4] * 5
    assert fabric.got == {(1, slow): mixed, (2, other): [4] * 5}
    assert not any(ticket.done for ticket in tickets)
    fabric.command(1, "taken", slow, 10)
    fabric.command(2, "taken", other, 5)
    fabric.until(lambda: all(ticket.done for ticket in tickets))
    assert [ticket.matched for ticket in tickets] == [1, 2] * 5


@pytest.mark.parametrize("route", OTHER)
def test_long_values_fit_the_keys_of_a_list(route: Route) -> None:
    fabric = Fabric(3)
    long = "x" * 5000
    exact = fabric.enter(1, f"city = '{long}'", route)
    start = fabric.enter(1, f"city LIKE '{long}%'", route)
    short = fabric.enter(2, "city = 'x'", route)
    above = fabric.enter(2, "city > 'w'", route)
    assert fabric.matched(fabric.publish(0, 1, city=long)) == 3
    assert fabric.matched(fabric.publish(0, 2, city=long + "y")) == 2
    assert fabric.matched(fabric.publish(0, 3, city="x")) == 2
    assert fabric.got == {
        (1, exact): [1],
        (1, start): [1, 2],
        (2, short): [3],
        (2, above): [1, 2, 3],
    }
    fabric.command(1, "unsubscribe", exact)
    fabric.command(1, "unsubscribe", start)
    assert not any(fabric.rejections(number) for number in range(3))


def test_one_id_on_two_topics_is_refused_while_the_first_is_held() -> None:
    fabric = Fabric(2, buffer=1)
    fabric.command(0, "advertise", "climate", WEATHER)
    fabric.run(1)
    weather = [fabric.enter(0, text, Route.SKIPLIST) for text in ("temp > 30", "temp > 20")]
    climate = fabric.command(0, "subscribe", "climate", "temp > 30", route=Route.SKIPLIST)
    fabric.until(lambda: fabric.core(0).subscriptions[climate].in_force)
    # The buffers are full, and the next event is held.
    assert fabric.matched(fabric.publish(1, 31)) == 2
    for topic in ("weather", "climate"):
        rows = msgspec.msgpack.encode([("CH", "Bern", 31)])
        group = Group(topic, 9, 1, 1, 1, 1, 0, 0, rows)
        fabric.inject(1, 0, Carry(group, (Part((b"", 0), (b"\xff" * 64, 0)),)))
    assert [record.reason for record in fabric.rejections(0)] == [
        "events on 'climate' with the ids of others"
    ]
    for subscription in (climate, *weather):
        fabric.command(0, "unsubscribe", subscription)
    fabric.run(1)


@pytest.mark.parametrize("route", list(Route))
def test_a_subscription_that_was_put_off_and_finds_no_room_is_ended(
    route: Route, monkeypatch: pytest.MonkeyPatch
) -> None:
    fabric = Fabric(2)
    fabric.add(9)
    fabric.start(2, config=InterestConfig(join=("nobody",)))
    fabric.command(2, "advertise", "weather", WEATHER)
    fabric.run(0.1)
    number = fabric.command(2, "subscribe", "weather", "temp > 30", route=route)
    assert not fabric.core(2).subscriptions[number].in_force
    monkeypatch.setattr("gossamer.overlay.interest.own.TOPICS_MAX", 0)
    # The node is alone, so it is the fabric.
    fabric.run(12)
    assert not fabric.core(2).subscriptions
    # Its owner will do so in the end.
    fabric.command(2, "unsubscribe", number)
    fabric.run(1)
    assert fabric.core(2).routing.entered == []


@pytest.mark.parametrize("schema", ["country STRING, city STRING, temp INT", "temp INT, wind INT"])
def test_what_an_earlier_life_left_waits_for_the_topics_schema_and_need_not_fit_it(
    schema: str,
) -> None:
    fabric = Fabric(3, advertise=False)
    fabric.command(0, "advertise", "weather", schema)
    fabric.run(1)
    mine = fabric.enter(1, "temp > 30", Route.SKIPLIST)
    rows = msgspec.msgpack.encode([("CH", "Bern", 31), ("CH", "Bern", 20)])
    batch = Batch("weather", Peer(9), 1, 5, 2, 5, 0, 0, rows)
    fabric.add(9)
    place = fabric.places[3]
    place.disk["out/0000000000000001/0000000000000005"] = msgspec.msgpack.encode(batch)
    machine = fabric.start(3, incarnation=2, disk=True, config=InterestConfig(join=("node-0",)))
    # Advertisements are on their way for a while.
    late: list[Any] = []
    machine.topics.receive = lambda *said: late.append(said) or []  # type: ignore[attr-defined]
    fabric.run(5)
    assert fabric.core(3).outbox.events == 2
    del machine.topics.receive  # type: ignore[attr-defined]
    for sender, message, _ in late:
        machine.receive(sender, message, Micros(fabric.now))
    fabric.until(lambda: not fabric.core(3).outbox.events)
    assert fabric.got == ({(1, mine): [31]} if "city" in schema else {})
    fabric.run(1)
    assert not [key for key in place.disk if key.startswith("out/")]


@pytest.mark.parametrize("route", list(Route))
def test_nothing_is_left_of_many_subscriptions_that_came_and_went(route: Route) -> None:
    fabric = Fabric(3)

    def cycles(count: int) -> int:
        for cycle in range(count):
            number = fabric.enter(cycle % 2, f"temp > {cycle % 5}", route)
            early = fabric.command(cycle % 2, "subscribe", "weather", "temp > 90", route=route)
            assert fabric.matched(fabric.publish(2, 31)) >= 1
            # Perhaps it is not in force yet.
            fabric.command(cycle % 2, "unsubscribe", early)
            fabric.command(cycle % 2, "unsubscribe", number)
            fabric.core(cycle % 2).entered.clear()
            fabric.core(cycle % 2).changed.clear()
            fabric.core(2).changed.clear()
            for number in range(3):
                fabric.core(number).view_changes.clear()
            fabric.got.clear()
        fabric.run(20)
        return sum(_held(fabric.core(number)) for number in range(3))

    before = cycles(10)
    assert cycles(30) <= before + 3


def _held(core: NodeCore) -> int:
    """The number of things of any kind in the tables of a node, without those in the memory of the
    fabric.
    """
    seen: dict[int, None] = {}
    found = 0
    queue: list[Any] = [core.routing, core.local, core.outbox, core.skiplist, core.tree]
    while queue:
        one = queue.pop()
        if (
            id(one) in seen
            or isinstance(one, (str, bytes, int, float, type, Random))
            or callable(one)
        ):
            continue
        seen[id(one)] = None
        if isinstance(one, dict):
            found += len(one)
            queue += [*one.keys(), *one.values()]
        elif isinstance(one, (list, tuple, deque)):
            found += len(one)
            queue += one
        elif type(one).__module__.startswith("gossamer") and "interest" not in type(one).__module__:
            slots = [name for kind in type(one).__mro__ for name in getattr(kind, "__slots__", ())]
            queue += [getattr(one, name) for name in slots if hasattr(one, name)]
            queue += vars(one).values() if hasattr(one, "__dict__") else []
    return found


@pytest.mark.parametrize("route", OTHER)
def test_a_node_that_leaves_while_its_events_are_on_their_way_gets_their_receipts(
    route: Route,
) -> None:
    fabric = Fabric(5)
    fabric.enter(1, "temp > 30", route)
    fabric.enter(2, "temp > 20", route)
    fabric.enter(3, "temp > 10", route)
    sent = [fabric.publish(2, temp) for temp in range(31, 41)]
    fabric.run(0.0015)
    fabric.command(2, "say_goodbye")
    sent += [fabric.publish(2, temp) for temp in range(41, 51)]
    assert all(fabric.matched(ticket) >= 2 for ticket in sent)
    for number in (1, 3):
        assert sorted(fabric.got[number, 1]) == list(range(31, 51))


@pytest.mark.parametrize("route", list(Route))
def test_a_publisher_that_starts_again_sends_what_has_no_receipt_and_nobody_gets_it_twice(
    route: Route,
) -> None:
    fabric = Fabric(4)
    fabric.crash(3)
    fabric.run(15)
    fabric.start(3, disk=True, config=InterestConfig(join=("node-0",)))
    fabric.run(2)
    fabric.enter(1, "temp > 30", route)
    fabric.enter(2, "temp > 20", route)
    for incarnation in (2, 3, 4):
        fabric.until(lambda: "weather" in fabric.core(3).topics.schemas)
        for temp in range(40, 50):
            fabric.publish(3, 10 * incarnation + temp)
        # The events are stored, and some of them are sent.
        fabric.run(0.003)
        fabric.crash(3)
        fabric.run(incarnation * 3)
        fabric.start(3, disk=True, incarnation=incarnation, config=InterestConfig(join=("node-0",)))
    fabric.until(lambda: not fabric.core(3).outbox.unsettled and not fabric.core(3)._again)
    wanted = sorted(10 * incarnation + temp for incarnation in (2, 3, 4) for temp in range(40, 50))
    assert sorted(fabric.got[1, 1]) == sorted(fabric.got[2, 1]) == wanted
    fabric.run(2)
    assert not [key for key in fabric.places[3].disk if key.startswith("out/")]


@pytest.mark.parametrize("route", list(Route))
def test_subscriptions_of_a_node_that_was_taken_for_dead_come_back(route: Route) -> None:
    fabric = Fabric(5)
    fabric.enter(1, "temp > 30", Route.SKIPLIST)
    mine = fabric.enter(4, "temp > 30", route)
    fabric.partition((0, 1, 2, 3), (4,))
    fabric.run(20)
    waiting = fabric.command(4, "subscribe", "weather", "temp > 40", route=route)
    fabric.run(0.01)
    assert fabric.matched(fabric.publish(0, 35)) == 1
    fabric.run(10)
    fabric.partition()
    fabric.until(lambda: len(fabric.core(0).interest.view.members) == 5)  # type: ignore[union-attr]
    # Both sides have taken the other for dead.
    fabric.run(1)
    fabric.until(
        lambda: all(
            one.in_force for number in (1, 4) for one in fabric.core(number).subscriptions.values()
        )
    )
    assert fabric.matched(fabric.publish(0, 45)) == 3
    assert fabric.got[4, mine] == fabric.got[4, waiting] == [45]


def test_look_ups_see_every_place_and_those_without_an_answer_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fabric = Fabric(3, advertise=False)
    fabric.command(0, "advertise", "weather", "temp INT, big BIGINT, raw BINARY")
    fabric.run(1)
    fabric.enter(1, f"big BETWEEN {2**63 - 100} AND {2**63 - 2}", Route.SKIPLIST)
    fabric.enter(2, "raw BETWEEN X'FF01' AND X'FF02'", Route.SKIPLIST)
    plane = fabric.core(0).skiplist
    assert plane is not None
    number = fabric.command(0, "lookup", "weather", None)
    fabric.until(lambda: number in plane.found)
    assert sorted({hit.at[1] for hit in plane.found.pop(number).hits}) == [2, 3]
    monkeypatch.setattr("gossamer.node.skiplist.QUESTIONS_MAX", 4)
    for _ in range(8):
        last = fabric.command(0, "lookup", "weather", None)
    fabric.run(2)
    assert len(plane.found) == 4
    assert last in plane.found
    assert not plane._questions


def test_an_entry_that_lost_its_place_comes_back_by_whoever_still_has_it_as_a_neighbour() -> None:
    machine = SkipList(
        Peer(5), incarnation=1, rng=Random(1), config=SkipConfig(),
        arrive=lambda *_, **__: (), complete=lambda _: None,
        address=lambda peer: f"node-{peer}", contacts=lambda: [Peer(9)],
    )  # fmt: skip
    machine.link(Peer(9), LinkState.UP, Micros(0))
    machine.enter(b"m", Micros(0))
    machine.wake(Micros(0))
    claim = Gossip(0, b"m", 0, (Item((b"c", 9), 0),))
    [sent] = machine.receive(Peer(9), claim, Micros(1))
    assert sent == Send((Peer(9),), Join(0, (b"m", 5), 0, b"c", None, machine.entries[b"m"].born))
    assert (
        machine.receive(Peer(9), Gossip(0, b"m", 0, (Item((b"c", 9), 0),), claims=False), Micros(2))
        == []
    )


def test_a_liar_cannot_make_honest_answers_unreadable() -> None:
    most = 2**53
    hits = Hits()
    hits.extend((), most)
    hits.extend((), most)
    hits.tell((b"a", 0), [(number, "") for number in range(1000)])
    assert hits.left_off <= most


def test_who_has_said_goodbye_does_not_come_back_into_a_list() -> None:
    fabric = Fabric(3)
    fabric.enter(0, "temp > 10", Route.SKIPLIST)
    mine = [fabric.enter(1, f"temp > {temp}", Route.SKIPLIST) for temp in (20, 30, 40)]
    fabric.command(1, "say_goodbye")
    fabric.command(1, "unsubscribe", mine[0])
    fabric.run(0.5)
    assert all(not one.machine.entries for one in fabric.core(1).skiplist._lists.values())  # type: ignore[union-attr]
    assert fabric.matched(fabric.publish(0, 50)) == 1


PLANES = (
    SkiplistMessage,
    TreeMessage,
    InterestMessage,
    Adverts | AdvertsTaken | Batch | Report | Busy | Leave,
    DirectMessage,
)


@pytest.mark.parametrize("plane", range(len(PLANES)))
def test_no_message_of_a_peer_raises_whatever_is_in_it(plane: int) -> None:
    """What nodes send each other, with parts of it exchanged, from whoever has a link: refused or
    taken, never an exception.
    """
    rng = Random(plane)
    fabric = Fabric(4, buffer=4)
    fabric.sent = []
    for number, (text, route) in enumerate(
        zip(("temp > 3", "country = 'CH'", "temp < 9", ""), [Route.FLOOD, *OTHER], strict=True)
    ):
        fabric.enter(number, text, route)
    for step in range(600):
        if step % 20 == 0:
            number = rng.randrange(4)
            if fabric.core(number).window_is_open:
                fabric.publish(number, rng.randrange(12), country="CH")
            if step % 60 == 0:
                fabric.command(
                    number,
                    "subscribe",
                    "weather",
                    f"temp > {step % 11}",
                    route=rng.choice(list(Route)),
                )
            fabric.run(rng.choice([0.001, 0.05, 0.5]))
            heard = [
                message for _, _, _, message, _ in fabric.sent if isinstance(message, PLANES[plane])
            ][-200:]
            spare = [_plain(message) for message in rng.sample(heard, min(len(heard), 20))]
        data = msgspec.msgpack.encode(_altered(_plain(rng.choice(heard)), spare, rng))
        place = fabric.places[rng.randrange(4)]
        if place.links:
            sender = rng.choice(list(place.links))
            with contextlib.suppress(WireError):
                [message] = Unframer().feed(len(data).to_bytes(4, "big") + data)
                fabric.carry_out(
                    place.number,
                    fabric[place.number].receive(sender, message, Micros(fabric.now)),
                )
    fabric.run(5)


def _plain(message: Any) -> Any:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(message))


def _altered(value: Any, spare: list[Any], rng: Random, *, top: bool = True) -> Any:
    """The message with some parts exchanged for others of their kind, from other messages or from
    the edges.
    """
    if isinstance(value, list):
        rest = [_altered(part, spare, rng, top=False) for part in value[top:]]
        if rest and not top and rng.random() < 0.1:
            rest.append(rng.choice(rest))
        return [*value[:top], *rest]
    if rng.random() < 0.8:
        return value
    found = [part for part in _leaves(rng.choice(spare)) if type(part) is type(value)]
    edges = {
        int: [0, 1, 2**53, 2**64 - 1],
        bytes: [b"", b"\xff" * 8],
        str: ["", "temp >"],
        bool: [True, False],
    }
    return rng.choice([*found, *edges.get(type(value), [None])])


def _leaves(value: Any) -> list[Any]:
    return (
        [leaf for part in value for leaf in _leaves(part)] if isinstance(value, list) else [value]
    )
