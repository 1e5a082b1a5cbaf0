"""What a member without any permission tries against honest nodes, by hand, with TLS.

Each test demands that the honest nodes believe nothing of it: deliveries, receipts and views stay
as they are without the attacker, which is cut off and counted.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs

import gossamer
from attacks.member import Member, member
from gossamer.machine import Message
from gossamer.net.loop import run
from gossamer.node.topics import Advert, Adverts, Rival, Rule
from gossamer.overlay.batch import Batch
from gossamer.overlay.interest.messages import (
    Diff,
    Flip,
    Flips,
    Gone,
    Lone,
    News,
    Suspicion,
    verdict,
)
from gossamer.overlay.interest.record import (
    LIFE_MAX,
    Known,
    Record,
    apply,
    find,
    make_stamp,
    topic_hash,
)
from gossamer.overlay.proof import FAREWELL
from gossamer.overlay.tree.messages import Carry as TreeCarry
from keynet import Fabric
from livenet import GENEVA, WEATHER, until

pytestmark = pytest.mark.live

LIMITS = gossamer.PeerLimits(rejected=50)
SECONDS = 20.0
ROUTES = ("flood", "direct", "skiplist", "tree")


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Fabric:
    made = Fabric(tmp_path_factory.mktemp("attacks"))
    for name in ("publisher", "subscriber"):
        made.issue(name)
    made.issue("mallory", publish=(), subscribe=())
    return made


class Scene:
    """A publisher, a subscriber, and a member with links to both."""

    def __init__(
        self,
        publisher: gossamer.Node,
        subscriber: gossamer.Node,
        events: gossamer.Subscription,
        mallory: Member,
    ) -> None:
        self.publisher, self.subscriber, self._events = publisher, subscriber, events
        self.mallory = mallory
        self.nodes = (publisher, subscriber)
        self._sent = 0

    def record(self, seen: gossamer.Node | None = None, of: gossamer.Node | None = None) -> Record:
        """A node's record, as another node has it: the subscriber's at the publisher."""
        seen, of = seen or self.publisher, of or self.subscriber
        return seen._interest.view.members[of.peer].record

    async def delivers(self, times: int = 10) -> None:
        """Checks that each event comes to the subscriber once, and that each receipt is true."""
        first = self._sent
        receipts = []
        for _ in range(times):
            receipts.append(await self.publisher.publish("weather", {**GENEVA, "temp": self._sent}))
            self._sent += 1
        for at in range(first, self._sent):
            assert (await anext(self._events))["temp"] == at
        for receipt in receipts:
            assert (await receipt).matched == 1

    def say(self, *messages: Message) -> None:
        """The member says it to both."""
        for node in self.nodes:
            if not self.mallory.is_cut_off(node):
                self.mallory.say(node, *messages)

    async def is_cut_off(self, *messages: Callable[[int], Message]) -> None:
        """The member goes on until both nodes have cut it off, and they count its messages."""
        count = 0
        while not all(map(self.mallory.is_cut_off, self.nodes)):
            for message in messages:
                self.say(message(count))
            count += 1
            await asyncio.sleep(0.001)
        for node in self.nodes:
            counters = node.status()["counters"]
            assert counters.get("closed: garbage") == 1, counters
            assert counters["rejected"] > LIMITS.rejected
            # The two cut nobody else off.
            assert len(node.status()["links"]) == 1


@contextlib.asynccontextmanager
async def scene(fabric: Fabric, route: str) -> AsyncIterator[Scene]:
    nodes = fabric.base / "nodes"
    async with (
        gossamer.Node(keys=nodes / "publisher", limits=LIMITS) as publisher,
        gossamer.Node(
            keys=nodes / "subscriber", join=[publisher.address], limits=LIMITS
        ) as subscriber,
    ):
        await publisher.advertise("weather", WEATHER)
        async with (
            subscriber.subscribe("weather", route=route) as events,
            member(nodes / "mallory", publisher, subscriber) as mallory,
        ):
            yield Scene(publisher, subscriber, events, mallory)


def attacked(fabric: Fabric, attack: Callable[[Scene], Awaitable[None]], route: str) -> None:
    async def main() -> None:
        async with scene(fabric, route) as there:
            await there.delivers()
            await attack(there)
            await there.delivers()

    run(asyncio.wait_for(main(), SECONDS))


@pytest.fixture(params=ROUTES)
def route(request: pytest.FixtureRequest) -> Iterator[str]:
    return request.param


# Records.


def with_interest(record: Record, mallory: Member, version: int) -> list[Message]:
    """Ways to say that a node wants events by flood, without its signature."""
    topic, stamp = topic_hash("weather"), make_stamp(0, 15)
    changes, number = topic + stamp, int.from_bytes(topic, "big")
    after = apply(record, version, changes)
    lone = Lone(record.peer, record.life, version, number, int.from_bytes(stamp, "big"))
    its = mallory.signed(after).signature
    return [
        Flip(*structs.astuple(lone)),
        Flips((lone,)),
        Flips((lone,), its),
        Flips((lone,), record.signature),
        News(diffs=(Diff(record.peer, record.life, version, version - 1, changes, its),)),
        News(records=(after,)),
        News(records=(mallory.signed(after),)),
        News(records=(structs.replace(after, signature=record.signature),)),
        News(records=(structs.replace(after, certificate=mallory.certificate),)),
        News(records=(mallory.signed(structs.replace(after, life=record.life + 256)),)),
    ]


def test_nobody_says_what_another_node_wants(fabric: Fabric, route: str) -> None:
    """Finding 1: with the flood bit in a subscriber's record, a publisher sends to all links."""

    async def attack(there: Scene) -> None:
        before = there.record()
        own = there.subscriber._interest.record
        heard = len(there.mallory.batches())
        there.say(*with_interest(before, there.mallory, before.version + 1))
        await there.delivers()
        if route != "flood":
            # By flood every member relays what others may read.
            assert len(there.mallory.batches()) == heard == 0
        some = with_interest(before, there.mallory, before.version + 1)
        await there.is_cut_off(lambda count: some[count % len(some)])
        assert there.record() == before
        assert there.subscriber._interest.record == own

    attacked(fabric, attack, route)


def test_nobody_ends_the_interest_of_another_node(fabric: Fabric, route: str) -> None:
    """Finding 2: a subscriber is silenced by a change that says that it has left the topic."""

    async def attack(there: Scene) -> None:
        before = there.record()
        number = int.from_bytes(topic_hash("weather"), "big")

        def left(count: int) -> Message:
            return Flip(before.peer, before.life, before.version + 1 + count % 2, number, -1)

        for count in range(40):
            there.say(left(count))
            await there.delivers(1)
        await there.is_cut_off(left)
        assert there.record() == before
        assert find(there.record().topics, topic_hash("weather")) >= 0

    attacked(fabric, attack, route)


def test_a_farewell_counts_only_from_the_node_itself(fabric: Fabric, route: str) -> None:
    """Finding 3: one message removes a node for good."""

    async def attack(there: Scene) -> None:
        before = there.record()
        known = Known(before)
        removed = there.publisher._interest.view.membership

        def gone(count: int) -> Message:
            life = (before.life, before.life + 1, LIFE_MAX)[count % 3]
            farewell = Gone(before.peer, life, True)
            some = (
                farewell,
                structs.replace(farewell, signature=before.signature),
                structs.replace(
                    farewell, signature=there.mallory.proof.sign(FAREWELL, farewell.said)
                ),
                structs.replace(verdict(known), life=LIFE_MAX),
                Gone(before.peer, LIFE_MAX, False),
            )
            return News(gone=(some[count % len(some)],))

        for count in range(15):
            there.say(gone(count))
        await there.delivers()
        await there.is_cut_off(gone)
        assert there.record().life == before.life
        assert there.subscriber._interest.record.life == before.life
        # The member itself may have gone from the view, and nobody else.
        assert there.publisher._interest.view.membership <= removed + 1

    attacked(fabric, attack, route)


def test_a_node_comes_back_after_lies_about_its_end(fabric: Fabric, tmp_path: Path) -> None:
    """Finding 3: not even with a new data directory could the node come back."""

    async def main() -> None:
        nodes = fabric.base / "nodes"
        async with gossamer.Node(keys=nodes / "publisher", limits=LIMITS) as publisher:
            await publisher.advertise("weather", WEATHER)
            async with member(nodes / "mallory", publisher) as mallory:
                for run_ in range(2):
                    async with (
                        gossamer.Node(
                            keys=nodes / "subscriber",
                            join=[publisher.address],
                            data_dir=tmp_path / str(run_),
                        ) as subscriber,
                        subscriber.subscribe("weather") as events,
                    ):
                        me = subscriber.peer
                        mallory.say(
                            publisher,
                            News(gone=(Gone(me, LIFE_MAX, True), Gone(me, LIFE_MAX, False))),
                            News(records=(mallory.signed(Record(me, LIFE_MAX, 1)),)),
                        )
                        receipt = await publisher.publish("weather", GENEVA)
                        assert (await receipt).matched == 1
                        assert (await anext(events))["city"] == "Geneva"
                        assert subscriber._interest.record.incarnation < 5
                assert publisher.status()["counters"]["rejected"] >= 4

    run(asyncio.wait_for(main(), SECONDS))


def test_a_living_node_outlives_verdicts_on_it(fabric: Fabric, route: str) -> None:
    """Finding 2, with verdicts: a node that is alive answers, and the answer wins at once."""

    async def attack(there: Scene) -> None:
        me, members = there.subscriber.peer, there.publisher._interest.view.members
        for count in range(100):
            if me in members:
                record = there.record()
                by = (there.mallory.peer, there.publisher.peer)[count % 2]
                claim = Suspicion(me, record.life, record.version, by, True)
                there.say(News(suspicions=(claim,)), News(gone=(Gone(me, record.life, False),)))
            # It is never removed, so it is never told of its death by honest nodes.
            assert me in members
            await asyncio.sleep(0.02)
        answers = there.subscriber._interest.counters["new lives"]
        assert 1 <= answers <= 1 + 10 * 60
        await until(lambda: there.record() == there.subscriber._interest.record)

    attacked(fabric, attack, route)


# Batches. On route direct the link itself proves the publisher.

RELAYED = pytest.mark.parametrize("route", ["flood", "tree"])


def forged_batch(there: Scene, route: str, **fields: Any) -> Message:
    """A batch in the publisher's name, signed by the member."""
    row = msgspec.msgpack.encode([["XX", "forged", 1]])
    batch = Batch("weather", there.publisher.peer, 1, 10_000, 1, 1, 0, 1, row)
    batch = there.mallory.batch(structs.replace(batch, **fields))
    return TreeCarry(batch, ()) if route == "tree" else batch


@RELAYED
def test_nobody_moves_the_floor_of_another_publisher(fabric: Fabric, route: str) -> None:
    """Finding 4: one batch with a floor far ahead, and later events come to nobody."""

    async def attack(there: Scene) -> None:
        for floor in (2**52, 20_000):
            there.say(forged_batch(there, route, floor=floor, first=floor))
        await there.delivers()
        await there.is_cut_off(
            lambda count: forged_batch(there, route, floor=2**52, first=2**52 + count)
        )

    attacked(fabric, attack, route)


@RELAYED
def test_nobody_makes_honest_nodes_cut_each_other_off(fabric: Fabric, route: str) -> None:
    """Finding 5: rejections were charged to the publisher that a batch names."""

    async def attack(there: Scene) -> None:
        there.say(forged_batch(there, route, first=11, round=2**53))
        await there.delivers()
        await there.is_cut_off(
            lambda count: forged_batch(there, route, first=10_000 + count, rows=b"\xc1" * 9)
        )

    attacked(fabric, attack, route)


@RELAYED
def test_nothing_of_invented_publishers_is_relayed(fabric: Fabric, route: str) -> None:
    """Finding 11: junk of publishers that nobody knows was remembered and passed on."""

    async def attack(there: Scene) -> None:
        invented = [
            forged_batch(there, route, publisher=2**63 + number, rows=bytes(4_000))
            for number in range(2_000)
        ]
        remembered = [node._core.flood.remembered for node in there.nodes]
        heard = len(there.mallory.heard)
        there.mallory.say(there.publisher, *invented)
        await there.delivers()
        for message in there.mallory.heard[heard:]:
            batch = message.batch if isinstance(message, TreeCarry) else message
            assert not isinstance(batch, Batch) or batch.publisher == there.publisher.peer
        for node, before in zip(there.nodes, remembered, strict=True):
            assert node._core.flood.remembered <= before + 20
        # A message is charged when the certificate of its publisher has not come.
        await until(lambda: there.publisher.status()["counters"].get("closed: garbage"))

    attacked(fabric, attack, route)


# Topics.


def test_nobody_advertises_without_the_permission_to_publish(fabric: Fabric, route: str) -> None:
    """Finding 6: junk topics, ten years of retention, and a schema with 256 attributes."""

    async def attack(there: Scene) -> None:
        mallory, me = there.mallory, there.mallory.peer
        theirs = there.publisher._core.topics._advert("weather")
        tables = [_tables(node) for node in there.nodes]
        grown = WEATHER + "".join(f", junk{number} INT" for number in range(250))
        forever = Rule(10 * 365 * 86_400, 1 << 40, 0, me)
        its = ((me, mallory.certificate),)

        def adverts(count: int) -> Adverts:
            some = (
                Advert(f"junk{count}", "n INT", 0, me),
                Advert("weather", grown, 0, me),
                Advert("weather", "n INT", 1, me),
                Advert("weather", grown, 0, there.publisher.peer, None, (), theirs.signature),
                structs.replace(theirs, retention=forever),
                structs.replace(theirs, epoch=5),
                structs.replace(theirs, rivals=(Rival("n INT", me),)),
            )
            return Adverts(tuple(map(mallory.advert, some)), its)

        there.say(adverts(0), adverts(1))
        await there.delivers()
        await there.is_cut_off(adverts)
        assert [_tables(node) for node in there.nodes] == tables

    attacked(fabric, attack, route)


def _tables(node: gossamer.Node) -> Any:
    topics = node._core.topics
    return dict(topics.schemas), dict(topics.retentions), dict(topics.conflicts)
