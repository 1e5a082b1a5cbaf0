"""Topics across restarts, and topics with two schemas.

Whole nodes in memory, with disks that tear and links that break.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.node.test_follow import SCHEMA, Fabric

from gossamer.filters import Event, Schema
from gossamer.machine import Effect, Keep, LinkState, Micros, Note, Peer, Send, Store
from gossamer.node import (
    NodeCore,
    Retention,
    Route,
    SchemaConflictError,
    TopicError,
    Wish,
)
from gossamer.node.history import AskPast
from gossamer.node.rights import Rights
from gossamer.node.topics import (
    CHARACTERS_ON_THE_WAY,
    RIVALS_MAX,
    TOPICS_AN_ORIGIN,
    Advert,
    Adverts,
    AdvertsTaken,
    Rival,
    Rule,
    Topics,
)
from gossamer.sim.keys import SimulatedKeys
from gossamer.trace import Dropped, Rejected, SchemaConflict, hex_peer

NOW = Micros(1000)
# It has the same type as SCHEMA, so that its rows could be misread.
OTHER = "x INT"
HOUR = Retention.parse("1h")


def text(fabric: Fabric, number: int, topic: str = "t") -> str:
    return fabric.core(number).topics.schemas[topic].text


def advertise(fabric: Fabric, number: int, schema: str, **options: Any) -> None:
    fabric.command(number, "advertise", "t", schema, **options)


def apart(nodes: int = 3, **options: Any) -> Fabric:
    """Two halves of a fabric that cannot reach each other.

    Node 0 has advertised SCHEMA, and the last node has heard of no topic.
    """
    fabric = Fabric(1, **options)
    for number in range(1, nodes):
        fabric.add(number + 1)
        fabric.lives.append(0)
    fabric.partition(range(nodes - 1), [nodes - 1])
    for number in range(1, nodes):
        fabric.up(number)
    fabric.run(10)
    assert "t" not in fabric.core(nodes - 1).topics.schemas
    return fabric


def in_conflict(fabric: Fabric) -> bool:
    return all("t" in core.topics.conflicts for core in cores(fabric))


def cores(fabric: Fabric) -> list[NodeCore]:
    return [fabric.core(place.number) for place in fabric.places if place.machine is not None]


def met(fabric: Fabric, schema: str = OTHER) -> Fabric:
    """The last node advertises another schema, and then the halves meet."""
    last = len(fabric.places) - 1
    advertise(fabric, last, schema)
    fabric.run(1)
    fabric.partition()
    fabric.until(lambda: in_conflict(fabric), 60)
    return fabric


def notes(fabric: Fabric, number: int, kind: type[Any]) -> list[Any]:
    return [record for record in fabric.places[number].notes if isinstance(record, kind)]


# ------------------------------------------------------------------ what survives a restart


def test_a_node_that_restarts_alone_knows_its_topics_with_schema_and_retention() -> None:
    fabric = Fabric(1, retention="1h")
    fabric.publish(0, 1, 2, 3)
    fabric.run(1)
    fabric.down(0)
    fabric.up(0)
    assert text(fabric, 0) == SCHEMA
    assert fabric.core(0).topics.retentions == {"t": HOUR}
    fabric.enter(0, start=0, gaps=True)
    fabric.until(lambda: fabric.numbers(0) == [1, 2, 3])
    fabric.publish(0, 4)
    assert fabric.numbers(0) == [1, 2, 3, 4]
    assert fabric.core(0).retained.about()["t"]["batches"] == 2


def test_a_node_that_learned_a_topic_from_others_knows_it_when_it_restarts_alone() -> None:
    fabric = Fabric(3, retention="1h")
    fabric.publish(2, 7)
    fabric.run(1)
    for number in range(3):
        fabric.down(number)
    fabric.run(30)
    fabric.up(2)
    assert text(fabric, 2) == SCHEMA
    assert fabric.core(2).topics.retentions == {"t": HOUR}
    fabric.enter(2, start=0)
    fabric.until(lambda: fabric.numbers(2) == [7])


def test_a_durable_subscriber_that_restarts_alone_gets_what_it_has_not_acknowledged() -> None:
    fabric = Fabric(2, retention="1h")
    made = fabric.enter(1, "n > 0", name="x")
    fabric.publish(0, 1, 2, 3)
    fabric.ack(1, made, fabric.got[1][0])
    fabric.run(1)
    for number in range(2):
        fabric.down(number)
    fabric.run(30)
    fabric.got.clear()
    fabric.up(1)
    fabric.command(1, "subscribe", "t", "n > 0", wish=Wish(name="x"))
    fabric.until(lambda: fabric.numbers(1) == [2, 3])


def test_a_topic_that_grew_is_restored_as_it_was_last_and_an_older_one_grows_on_rejoining() -> None:
    fabric = Fabric(2)
    fabric.down(1)
    advertise(fabric, 0, "n INT, m INT")
    fabric.command(0, "publish", "t", {"n": 1, "m": 2})
    fabric.run(1)
    fabric.down(0)
    fabric.run(30)
    fabric.up(1)
    assert text(fabric, 1) == "n INT"
    fabric.up(0)
    assert text(fabric, 0) == "n INT, m INT"
    fabric.until(lambda: text(fabric, 1) == "n INT, m INT")
    assert not fabric.core(0).topics.conflicts
    assert not fabric.core(1).topics.conflicts


def test_a_retention_that_is_added_later_survives_too() -> None:
    fabric = Fabric(2)
    advertise(fabric, 0, SCHEMA, retention=HOUR)
    fabric.run(1)
    for number in range(2):
        fabric.down(number)
        fabric.up(number)
        assert fabric.core(number).topics.retentions == {"t": HOUR}


def test_events_of_an_older_data_directory_are_answered_though_nobody_says_a_retention() -> None:
    """Directories of before have events and no topics; the retention may not be said again."""
    fabric = Fabric(2, retention="1h")
    fabric.publish(0, 1, 2, 3)
    fabric.run(1)
    for number in range(2):
        fabric.down(number)
        disk = fabric.places[number].disk
        for key in [key for key in disk if key.startswith("topic/")]:
            del disk[key]
    fabric.run(30)
    fabric.up(0)
    fabric.up(1)
    assert not fabric.core(0).topics.schemas
    advertise(fabric, 0, SCHEMA)
    fabric.until(lambda: "t" in fabric.core(1).topics.schemas)
    assert not fabric.core(0).topics.retentions
    fabric.publish(0, 4)
    fabric.enter(1, start=0, gaps=True)
    fabric.run(15)
    # The fourth event was published without retention.
    assert fabric.numbers(1) == [1, 2, 3]


def test_whatever_part_of_its_writes_a_crash_keeps_a_node_can_read_its_events() -> None:
    """A topic is on disk before the events that need it."""
    node = NodeCore(Peer(1), incarnation=1, rng=Random(1), durable=True, restored={})
    records: list[Any] = []

    def run(effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Store):
                records.extend(effect.records)
                run(node.stored(effect.token, NOW))

    for number in range(6):
        topic = f"t{number % 2}"
        schema = SCHEMA if number < 2 else "n INT, m INT"
        node.advertise(topic, schema, NOW, HOUR)
        node.publish(topic, {"n": number}, NOW)
        run(node.wake(NOW))
    for cut in range(len(records) + 1):
        disk: dict[str, bytes] = {}
        for record in records[:cut]:
            if isinstance(record, Keep):
                disk[record.key] = record.value
            else:
                disk.pop(record.key, None)
        again = NodeCore(Peer(1), incarnation=2, rng=Random(1), durable=True, restored=disk)
        for topic, about in again.retained.about().items():
            assert about["batches"]
            assert again.topics.retentions[topic] == HOUR
            packed = again.local.topic(topic).packed
            for kept in again.retained.batches(topic, (0, 0)):
                assert packed.decode(kept.batch.rows)[0][0] >= 0


def test_a_record_of_a_topic_that_cannot_be_read_is_told_and_the_others_are_restored() -> None:
    topics = Topics(Peer(1))
    topics.advertise("good", Schema.parse(SCHEMA), NOW)
    [kept] = topics.records()
    disk = {"topic/bad": b"\xff", "topic/worse": msgspec.msgpack.encode(("no schema at all", 0, 1))}
    node = NodeCore(Peer(1), incarnation=2, rng=Random(1), restored=disk | {kept.key: kept.value})
    assert list(node.topics.schemas) == ["good"]
    told = [
        effect.record
        for effect in node.wake(NOW)
        if isinstance(effect, Note) and isinstance(effect.record, Dropped)
    ]
    assert ["bad" in one.reason or "worse" in one.reason for one in told] == [True, True]


def test_a_name_that_no_disk_can_hold_is_refused() -> None:
    """A data directory that fails at a record takes the node with it."""
    node = NodeCore(Peer(1), incarnation=1, rng=Random(1), durable=True, restored={})
    with pytest.raises(TopicError, match="half a character"):
        node.advertise("t\udc80", SCHEMA, NOW)
    assert not node.topics.schemas
    node.advertise("t\N{SNOWMAN}\0", SCHEMA, NOW)


def test_an_advertisement_is_confirmed_when_it_is_on_this_nodes_own_disk() -> None:
    node = NodeCore(Peer(1), incarnation=1, rng=Random(1), durable=True, restored={})
    node.wake(NOW)
    node.advertise("t", SCHEMA, NOW)
    [store] = [effect for effect in node.wake(NOW) if isinstance(effect, Store)]
    assert node.topics.unconfirmed
    node.stored(store.token, NOW)
    assert not node.topics.unconfirmed


# ------------------------------------------------------------------ two schemas


def refuses(fabric: Fabric, number: int, *schemas: tuple[str, int]) -> None:
    """Publishing and subscribing raise, with the schemas and their advertisers."""
    commands: tuple[Callable[[], object], ...] = (
        lambda: fabric.command(number, "publish", "t", {"n": 1}),
        lambda: fabric.command(number, "subscribe", "t", "n > 0"),
    )
    for command in commands:
        with pytest.raises(SchemaConflictError) as raised:
            command()
        expected = {(schema, hex_peer(fabric.peer(origin))) for schema, origin in schemas}
        assert set(raised.value.schemas) == expected
        assert raised.value.topic == "t"
        for schema, origin in expected:
            assert f"({schema}) by node {origin}" in str(raised.value)
        assert "--replace" in str(raised.value)
        assert "\n" not in str(raised.value)


def test_two_schemas_that_meet_after_a_partition_are_told_to_every_node() -> None:
    fabric = met(apart(4))
    for number in range(4):
        refuses(fabric, number, (SCHEMA, 0), (OTHER, 3))
        [record] = notes(fabric, number, SchemaConflict)
        assert record.topic == "t"
        # No node is cut off for it.
        assert not notes(fabric, number, Rejected)
    fabric.add(9)
    fabric.lives.append(0)
    # A node that joins later hears of it, too.
    fabric.up(4)
    fabric.until(lambda: "t" in fabric.core(4).topics.conflicts)
    refuses(fabric, 4, (SCHEMA, 0), (OTHER, 3))


def test_two_schemas_that_are_advertised_at_the_same_time_are_told_to_every_node() -> None:
    fabric = Fabric(4)
    fabric.command(1, "advertise", "u", "a INT")
    fabric.command(3, "advertise", "u", "b STRING")
    fabric.until(lambda: all("u" in core.topics.conflicts for core in cores(fabric)))
    for number in range(4):
        with pytest.raises(SchemaConflictError, match="a INT") as raised:
            fabric.command(number, "publish", "u", {"a": 1})
        assert "b STRING" in str(raised.value)
    # Other topics are not concerned.
    fabric.publish(0, 1)


def test_a_schema_that_grows_in_both_halves_in_the_same_way_is_no_conflict() -> None:
    fabric = apart()
    advertise(fabric, 2, "n INT, m INT")
    fabric.run(1)
    fabric.partition()
    fabric.until(
        lambda: all(core.topics.schemas["t"].text == "n INT, m INT" for core in cores(fabric)), 60
    )
    assert not any(core.topics.conflicts for core in cores(fabric))


def test_a_schema_that_grows_in_two_ways_is_a_conflict() -> None:
    fabric = apart()
    advertise(fabric, 0, "n INT, a INT")
    advertise(fabric, 2, "n INT, b INT")
    fabric.partition()
    fabric.until(lambda: in_conflict(fabric), 60)
    for number in range(3):
        refuses(fabric, number, ("n INT, a INT", 0), ("n INT, b INT", 2))


@pytest.mark.parametrize("route", [Route.DIRECT, Route.FLOOD, Route.SKIPLIST, Route.TREE])
def test_no_receipt_counts_a_node_that_knows_of_a_conflict_and_its_subscriber_gets_a_gap(
    route: Route,
) -> None:
    """The event is accepted by a publisher that has not heard of the conflict yet."""
    fabric = Fabric(3)
    fabric.enter(1, route=route, gaps=True)
    fabric.publish(0, 1)
    fabric.until(lambda: fabric.numbers(1) == [1])
    fabric.run(5)
    fabric.inject(2, 1, Adverts((Advert("t", OTHER, 0, fabric.peer(2)),)))
    ticket = fabric.command(0, "publish", "t", {"n": 2})
    fabric.until(lambda: ticket.done)
    assert ticket.publication.total == 0
    assert fabric.numbers(1) == [1]
    fabric.until(lambda: fabric.gaps(1))
    assert "in conflict" in fabric.gaps(1)[0].reason
    assert any("in conflict" in one.reason for one in notes(fabric, 1, Dropped))
    fabric.until(lambda: in_conflict(fabric))
    with pytest.raises(SchemaConflictError):
        fabric.command(0, "publish", "t", {"n": 3})


def test_a_past_that_may_be_of_another_schema_is_not_read() -> None:
    """Both schemas have one INT: what one half retains could be taken for events of the other."""
    fabric = apart(2, retention="1h")
    advertise(fabric, 1, OTHER, retention=HOUR)
    fabric.command(1, "publish", "t", {"x": 99})
    fabric.enter(0, start=0, gaps=True)
    fabric.partition()
    fabric.until(lambda: in_conflict(fabric), 60)
    fabric.run(20)
    assert fabric.numbers(0) == []
    assert [gap.reason for gap in fabric.gaps(0)] == ["the topic's schema is in conflict"]


def test_in_a_conflict_a_publisher_does_not_answer_with_its_past_and_no_answer_is_read() -> None:
    """One of them may know of the conflict before the other one does."""
    fabric = Fabric(2, retention="1h")
    fabric.publish(0, 1)
    archive = fabric.core(0).follows._archive
    ask = AskPast("t", 1, 1, (0, 0), 0, True)
    answer = archive.answer(ask)
    assert answer is not None
    assert answer.parts
    made = fabric.enter(1, start=0)
    fabric.until(lambda: fabric.numbers(1) == [1])
    [follow] = fabric.core(1).follows.follows.values()
    progress = follow.publishers[fabric.peer(0)]
    # The subscription wants the past once more.
    follow._begin(fabric.peer(0), progress, Micros(fabric.now))
    progress.position, progress._had = (0, 0), {}
    follow.wake(Micros(fabric.now))
    assert progress.attempts, "it has asked"
    for number in range(2):
        rival = Adverts((Advert("t", OTHER, 0, 9),))
        fabric.core(number).topics.receive(Peer(9), rival, Micros(fabric.now))
    assert archive.answer(ask) is None
    late = replace(answer, number=made, serial=progress.serial)
    fabric.inject(0, 1, late)
    fabric.run(1)
    assert fabric.numbers(1) == [1]


def test_events_on_disk_that_the_schema_cannot_read_are_a_gap_and_not_an_error() -> None:
    """The data directory is older than the storing of topics, and the topic has another schema."""
    fabric = Fabric(2, retention="1h")
    fabric.enter(1, name="x")
    fabric.publish(0, 1, 2)
    fabric.publish(0, 3)
    fabric.run(1)
    for number in range(2):
        fabric.down(number)
        disk = fabric.places[number].disk
        for key in [key for key in disk if key.startswith("topic/")]:
            del disk[key]
    fabric.run(30)
    fabric.got.clear()
    fabric.up(1)
    fabric.command(1, "advertise", "t", "s STRING")
    made = fabric.enter(1, name="x")
    fabric.until(lambda: len(fabric.gaps(1)) == 2)
    assert [(gap.after, gap.before) for gap in fabric.gaps(1)] == [
        ((1, 0), (1, 3)),
        ((1, 2), (1, 4)),
    ]
    assert {gap.reason for gap in fabric.gaps(1)} == {
        "they were stored under another schema of the topic"
    }
    for gap in fabric.gaps(1):
        fabric.ack(1, made, gap)
    assert fabric.core(1).follows.taps["x"].unacked == 0


def test_many_schemas_of_one_topic_are_bounded_and_the_nodes_become_quiet() -> None:
    fabric = apart(3)
    kinds = [f"{name} INT" for name in "hgfedcba"]
    cuts = [([number] for number in range(3))]
    fabric.partition(*cuts[0])
    for number, schema in enumerate(kinds):
        fabric.core(number % 3).topics.receive(
            Peer(1000 + number),
            Adverts((Advert("t", schema, 0, 1000 + number),)),
            Micros(fabric.now),
        )
    advertise_all = [core.topics for core in cores(fabric)]
    assert all(len(topics.conflicts["t"]) <= RIVALS_MAX for topics in advertise_all)
    fabric.partition()
    fabric.run(30)
    first = list(fabric.core(0).topics.conflicts["t"])
    assert first == [f"{name} INT" for name in "abcd"]
    assert all(list(core.topics.conflicts["t"]) == first for core in cores(fabric))
    fabric.sent = []
    fabric.run(10)
    assert not [m for _, _, _, m, _ in fabric.sent if isinstance(m, Adverts | AdvertsTaken)]


# ------------------------------------------------------------------ the end of a conflict


def test_a_replacement_ends_a_conflict_everywhere_and_is_remembered() -> None:
    fabric = met(apart(3))
    advertise(fabric, 1, SCHEMA, replace=True)
    fabric.until(lambda: not any(core.topics.conflicts for core in cores(fabric)))
    fabric.run(1)
    assert [text(fabric, number) for number in range(3)] == [SCHEMA] * 3
    fabric.enter(0)
    fabric.publish(2, 5)
    fabric.until(lambda: fabric.numbers(0) == [5])
    for number in range(3):
        fabric.down(number)
    fabric.run(30)
    for number in range(3):
        fabric.up(number)
        assert text(fabric, number) == SCHEMA
    fabric.run(10)
    assert not any(core.topics.conflicts for core in cores(fabric))


def test_a_node_that_was_away_with_the_losing_schema_on_its_disk_takes_the_replacement() -> None:
    fabric = met(apart(3))
    fabric.down(2)
    fabric.run(10)
    advertise(fabric, 0, SCHEMA, replace=True)
    fabric.run(10)
    fabric.up(2)
    assert text(fabric, 2) == OTHER
    fabric.until(lambda: text(fabric, 2) == SCHEMA)
    assert not any(core.topics.conflicts for core in cores(fabric))
    with pytest.raises(TopicError, match="already advertised"):
        advertise(fabric, 2, OTHER)
    fabric.publish(2, 1)


def test_the_advertiser_of_the_losing_schema_ends_the_conflict_by_advertising_the_other_one() -> (
    None
):
    """It does so after a restart, with its own schema on its disk: no command is needed."""
    fabric = met(apart(3))
    fabric.down(2)
    fabric.run(10)
    fabric.up(2)
    assert text(fabric, 2) == OTHER
    fabric.until(lambda: in_conflict(fabric), 60)
    advertise(fabric, 2, SCHEMA)
    fabric.until(lambda: not any(core.topics.conflicts for core in cores(fabric)))
    fabric.run(1)
    assert [text(fabric, number) for number in range(3)] == [SCHEMA] * 3


def test_a_third_node_that_advertises_one_of_two_schemas_does_not_decide() -> None:
    fabric = met(apart(3))
    advertise(fabric, 1, OTHER)
    fabric.run(5)
    assert in_conflict(fabric)
    with pytest.raises(SchemaConflictError):
        advertise(fabric, 1, "z STRING")


def test_events_of_the_losing_schema_are_never_read_as_events_of_the_other() -> None:
    """The node's disk has retained events, events that a durable subscriber has not acknowledged,
    and events without a receipt. Each of them ends in a gap or in a counted drop.
    """
    fabric = apart(2, retention="1h")
    fabric.enter(0, start=0, gaps=True)
    fabric.enter(0, "n > 0", Route.DIRECT)
    advertise(fabric, 1, OTHER, retention=HOUR)
    made = fabric.command(1, "subscribe", "t", "", wish=Wish(name="x"))
    fabric.until(lambda: fabric.core(1).subscriptions[made].in_force)
    for value in (7, 8):
        fabric.command(1, "publish", "t", {"x": value})
        fabric.run(0.1)
    fabric.run(1)
    fabric.partition()
    fabric.until(lambda: in_conflict(fabric), 60)
    fabric.down(1)
    # An event that was accepted and has no receipt.
    disk = fabric.places[1].disk
    [first, *_] = sorted(key for key in disk if key.startswith("ret/"))
    disk[first.replace("ret/", "out/")] = b""
    advertise(fabric, 0, SCHEMA, replace=True)
    fabric.run(10)
    fabric.got.clear()
    fabric.up(1)
    fabric.until(lambda: text(fabric, 1) == SCHEMA)
    made = fabric.enter(1, name="x")
    fabric.run(30)
    assert fabric.numbers(1) == []
    first, *more = [gap.reason for gap in fabric.gaps(1)]
    assert first == "the schema of topic 't' was replaced"
    # The publisher says it as well.
    assert more in ([], ["the publisher retains nothing"])
    assert fabric.numbers(0) == []
    assert not [key for key in fabric.places[1].disk if key.startswith(("ret/", "out/"))]
    assert any("replaced" in one.reason for one in notes(fabric, 1, Dropped))
    fabric.ack(1, made, fabric.gaps(1)[-1], through=True)
    fabric.publish(0, 5)
    fabric.until(lambda: fabric.numbers(1) == [5])
    late = fabric.command(0, "subscribe", "t", "", wish=Wish(start=1, gaps=True))
    fabric.until(lambda: fabric.core(0).subscriptions[late].in_force)
    fabric.run(15)
    assert [event["n"] for event in fabric.got[0] if isinstance(event, Event)] == [5, 5, 5]


@pytest.mark.parametrize("replacement", [OTHER, SCHEMA])
def test_events_that_an_earlier_life_accepted_wait_for_the_end_of_a_conflict(
    replacement: str,
) -> None:
    fabric = apart(3, retention="1h")
    fabric.publish(0, 5)
    fabric.run(1)
    fabric.enter(1, route=Route.DIRECT)
    fabric.down(0)
    disk = fabric.places[0].disk
    [kept] = [key for key in disk if key.startswith("ret/")]
    # On disk it looks as if it had no receipt yet.
    disk[kept.replace("ret/", "out/")] = b""
    met(fabric)
    fabric.up(0)
    fabric.until(lambda: in_conflict(fabric), 60)
    fabric.run(10)
    assert fabric.core(0).outbox.events == 1
    assert fabric.numbers(1) == []
    advertise(fabric, 1, replacement, replace=True)
    fabric.until(lambda: not fabric.core(0).outbox.events)
    fabric.run(1)
    assert fabric.numbers(1) == ([5] if replacement == SCHEMA else [])


@pytest.mark.parametrize("route", [Route.DIRECT, Route.FLOOD, Route.SKIPLIST, Route.TREE])
def test_a_subscription_ends_with_a_word_when_its_schema_is_replaced(route: Route) -> None:
    fabric = Fabric(2)
    made = fabric.enter(1, "n > 0", route)
    advertise(fabric, 0, "s STRING", replace=True)
    fabric.until(lambda: made not in fabric.core(1).subscriptions)
    assert any(getattr(record, "reason", "") == "replaced" for record in fabric.places[1].notes)
    again = fabric.command(1, "subscribe", "t", "s = 'a'", route=route)
    fabric.until(lambda: fabric.core(1).subscriptions[again].in_force)
    ticket = fabric.command(0, "publish", "t", {"s": "a"})
    fabric.until(lambda: ticket.done)
    assert ticket.publication.total == 1


def test_a_replacement_by_the_same_schema_changes_nothing_and_one_of_the_retention_does() -> None:
    fabric = Fabric(2, retention="1h")
    made = fabric.enter(1)
    advertise(fabric, 0, SCHEMA, replace=True)
    fabric.run(1)
    assert fabric.core(0).topics._heads["t"].epoch == 0
    with pytest.raises(TopicError, match="replace it everywhere"):
        advertise(fabric, 0, SCHEMA, retention=Retention.parse("2h"))
    advertise(fabric, 0, SCHEMA, retention=Retention.parse("2h"), replace=True)
    fabric.until(lambda: fabric.core(1).topics.retentions["t"] == Retention.parse("2h"))
    fabric.publish(0, 1)
    assert made in fabric.core(1).subscriptions
    assert fabric.numbers(1) == [1]


# ------------------------------------------------------------------ links, older nodes, keys


def test_a_conflict_reaches_everybody_over_links_that_lose_and_repeat() -> None:
    for seed in range(5):
        fabric = apart(4, seed=seed, loss=0.2)
        met(fabric)
        advertise(fabric, 1, OTHER, replace=True)
        fabric.until(
            lambda fabric=fabric: not any(core.topics.conflicts for core in cores(fabric)), 60
        )  # type: ignore[misc]
        assert {text(fabric, number) for number in range(4)} == {OTHER}


class Line:
    """Nodes in a line that only advertise. Links break with a lost tail, and nodes restart."""

    def __init__(self, seed: int, nodes: int = 4) -> None:
        self.rng = Random(seed)
        self.now = NOW
        self.disks: list[dict[str, bytes]] = [{} for _ in range(nodes)]
        self.nodes = [Topics(Peer(number)) for number in range(nodes)]
        # By link, in their order.
        self.under_way: dict[tuple[int, int], list[Any]] = {}
        self.refused = 0
        for number in range(nodes):
            self.link(number, LinkState.UP)

    def link(self, number: int, state: LinkState) -> None:
        for other in (number - 1, number + 1):
            if 0 <= other < len(self.nodes):
                self.do(number, self.nodes[number].link(Peer(other), state, self.now))

    def do(self, number: int, effects: list[Effect]) -> None:
        self.disks[number].update(
            {record.key: record.value for record in self.nodes[number].records()}
        )
        for effect in effects:
            if isinstance(effect, Send):
                for to in effect.to:
                    self.under_way.setdefault((number, to), []).append(effect.message)

    def step(self) -> None:
        busy = [link for link, messages in self.under_way.items() if messages]
        if busy:
            sender, to = busy[int(self.rng.random() * len(busy))]
            message = self.under_way[sender, to].pop(0)
            self.do(to, self.nodes[to].receive(Peer(sender), message, self.now))

    def cut(self) -> None:
        """A link breaks, the messages on their way are lost, and it comes up again."""
        one = int(self.rng.random() * (len(self.nodes) - 1))
        self.renew(one, one + 1)

    def renew(self, one: int, other: int) -> None:
        for here, there in ((one, other), (other, one)):
            self.under_way[here, there] = []
        for state in (LinkState.DOWN, LinkState.UP):
            for here, there in ((one, other), (other, one)):
                self.do(here, self.nodes[here].link(Peer(there), state, self.now))

    def user(self) -> None:
        number = int(self.rng.random() * len(self.nodes))
        schema = self.rng.choice(SCHEMAS)
        try:
            replace = self.rng.random() < 0.2
            topics = self.nodes[number]
            self.do(number, topics.advertise("t", Schema.parse(schema), self.now, replace=replace))
        except TopicError:
            self.refused += 1

    def restart(self) -> None:
        number = int(self.rng.random() * len(self.nodes))
        self.nodes[number] = Topics(Peer(number))
        self.nodes[number].restore(self.disks[number])
        for other in (number - 1, number + 1):
            if 0 <= other < len(self.nodes):
                self.renew(number, other)


SCHEMAS = (
    "a INT",
    "a INT, b INT",
    "a INT, c INT",
    "b INT",
    "c INT",
    "d INT",
    "e INT",
    "e INT, f INT",
)


def test_whatever_is_advertised_lost_and_restarted_all_nodes_end_with_the_same_schemas() -> None:
    conflicts = refused = 0
    for seed in range(300):
        line = Line(seed)
        for _ in range(60):
            turn = line.rng.random()
            if turn < 0.1:
                line.user()
            elif turn < 0.13:
                line.restart()
            elif turn < 0.25:
                line.cut()
            else:
                line.step()
        line.user()
        steps = 0
        while any(topics.unconfirmed for topics in line.nodes):
            line.step()
            steps += 1
            assert steps < 2000, f"seed {seed}: they never become quiet"
        known = {
            (
                topics._heads["t"].epoch,
                tuple(topics.conflicts.get("t") or (topics.schemas["t"].text,)),
            )
            for topics in line.nodes
        }
        assert len(known) == 1, f"seed {seed}"
        conflicts += bool(line.nodes[0].conflicts)
        refused += line.refused
    assert conflicts > 20
    assert refused > 20


def test_an_answer_to_an_older_word_does_not_confirm_a_newer_one() -> None:
    topics, other = Topics(Peer(1)), Topics(Peer(2))
    [empty] = sent(topics.link(Peer(2), LinkState.UP, NOW))
    [first] = sent(topics.advertise("t", Schema.parse(SCHEMA), NOW))
    [again, _] = sent(topics.receive(Peer(3), Adverts((Advert("t", OTHER, 0, 3),)), NOW))
    assert again.topics[0].rivals == (Rival(OTHER, 3),)
    for word in (empty, first, again):
        assert topics.unconfirmed
        taken = sent(other.receive(Peer(1), word, NOW))[-1]
        topics.receive(Peer(2), taken, NOW)
    assert not topics.unconfirmed
    assert set(other.conflicts["t"]) == {SCHEMA, OTHER}
    [note] = topics.receive(Peer(2), taken, NOW)
    assert isinstance(note, Note)
    assert note.record == Rejected("0000000000000002", "an answer to no advertisement")


def test_a_neighbour_that_does_not_answer_is_told_a_bounded_part() -> None:
    wide = Schema.parse(", ".join(f"a{number} INT" for number in range(250)))
    topics = Topics(Peer(1))
    for number in range(3_000):
        topics.advertise(f"t{number}", wide, NOW)
    told = sent(topics.link(Peer(2), LinkState.UP, NOW))
    size = sum(len(advert.schema) for word in told for advert in word.topics)
    assert size < 2 * CHARACTERS_ON_THE_WAY
    heard = {advert.topic for word in told for advert in word.topics}
    while told:
        told = [word for _ in told for word in sent(topics.receive(Peer(2), AdvertsTaken(), NOW))]
        heard |= {advert.topic for word in told for advert in word.topics}
    assert len(heard) == 3_000
    assert not topics.unconfirmed


def test_a_neighbour_that_tells_of_an_older_schema_is_told_of_the_replacement() -> None:
    topics = Topics(Peer(1))
    topics.link(Peer(2), LinkState.UP, NOW)
    topics.advertise("t", Schema.parse(SCHEMA), NOW)
    topics.advertise("t", Schema.parse(OTHER), NOW, replace=True)
    told, taken = sent(topics.receive(Peer(2), Adverts((Advert("t", SCHEMA, 0, 2),)), NOW))
    assert told == Adverts((Advert("t", OTHER, 1, 1),))
    assert isinstance(taken, AdvertsTaken)
    assert topics.schemas["t"].text == OTHER


def sent(effects: list[Effect]) -> list[Any]:
    return [effect.message for effect in effects if isinstance(effect, Send)]


KEYS = SimulatedKeys(3)
HERE, MAY, MAY_NOT, LINK = Peer(1), Peer(2), Peer(3), Peer(4)


class Keyed:
    """Topics at a node with keys, and the words of other nodes."""

    def __init__(self, peer: Peer = HERE, publish: tuple[str, ...] = ("*",)) -> None:
        self.identity = KEYS.identity(peer, publish=publish)
        # Nodes whose certificates were revoked, as far as this node knows.
        self.revoked: set[Peer] = set()
        rights = Rights(
            self.identity,
            KEYS.prove,
            lambda identity: identity.peer not in self.revoked,
            revoked=lambda identity: identity.peer in self.revoked,
        )
        self.topics = Topics(peer)
        self.topics.permits, self.topics.proof = rights.may_advertise, KEYS.proof(rights)
        self.topics.certificate_of = rights.certificate

    def says(self, schema: str, topic: str = "t", **options: Any) -> Adverts:
        """The node advertises, and this is the message to a neighbour."""
        self.topics.link(LINK, LinkState.UP, NOW)
        word = sent(self.topics.advertise(topic, Schema.parse(schema), NOW, **options))[-1]
        assert isinstance(word, Adverts)
        self.topics.link(LINK, LinkState.DOWN, NOW)
        return word

    def hears(self, message: Adverts) -> int:
        """Returns how often the link is charged."""
        effects = self.topics.receive(LINK, message, NOW)
        records = [effect.record for effect in effects if isinstance(effect, Note)]
        charged = [record for record in records if isinstance(record, Rejected)]
        assert all(record.peer == hex_peer(LINK) for record in charged)
        return len(charged)


def test_an_advertisement_counts_with_the_signature_of_a_node_that_may_publish() -> None:
    here, there = Keyed(), Keyed(MAY, ("t*",))
    word = there.says(SCHEMA, retention=HOUR)
    # It says it to a node that has never heard of it, through another node.
    assert here.hears(word) == 0
    assert here.topics.schemas["t"].text == SCHEMA
    assert here.topics.retentions == {"t": HOUR}
    # The proof is still there after a restart, and when the node passes the topic on.
    kept = {record.key: record.value for record in here.topics.records()}
    again = Keyed(Peer(9))
    again.topics.restore(kept)
    [passed_on] = sent(again.topics.link(LINK, LinkState.UP, NOW))
    assert Keyed(Peer(10)).hears(passed_on) == 0
    assert passed_on == word


@pytest.mark.parametrize("known", [False, True])
def test_an_advertisement_without_it_changes_nothing_and_is_charged(known: bool) -> None:
    here = Keyed()
    grown = SCHEMA + ", more INT"
    honest = Keyed(MAY).says(SCHEMA)
    if known:
        here.hears(honest)
    before = dict(here.topics.schemas)
    liar = Keyed(MAY_NOT, ("other",))
    # It does not hold itself to its own permissions.
    liar.topics.permits = None
    bad = liar.says(grown)
    [advert], [(_, certificate)] = bad.topics, bad.certificates
    [own], [(_, its)] = honest.topics, honest.certificates
    forged = [
        bad,
        # In the name of a node that may.
        replace(bad, topics=(replace(advert, origin=MAY),), certificates=((MAY, its),)),
        replace(bad, topics=(replace(advert, origin=MAY),), certificates=((MAY, certificate),)),
        replace(honest, topics=(replace(own, schema=grown),)),
        replace(honest, topics=(replace(own, epoch=1),)),
        replace(honest, topics=(replace(own, topic="u"),)),
        replace(honest, topics=(replace(own, schema=grown, signature=b""),)),
    ]
    for message in forged:
        assert here.hears(message) == 1
        assert here.topics.schemas == before
        assert not here.topics.conflicts


def test_a_topic_outlives_a_revoked_advertiser_when_another_node_may_stand_for_it() -> None:
    here, reader, newcomer = Keyed(), Keyed(Peer(5), ("other",)), Keyed(Peer(6))
    word = Keyed(MAY).says(SCHEMA, retention=HOUR)
    for node in (here, reader):
        assert node.hears(word) == 0
        node.revoked.add(MAY)
    newcomer.revoked.add(MAY)
    assert newcomer.hears(word) > 0
    # A node that may not publish there tells nothing that a newcomer would refuse.
    assert sent(reader.topics.vouch()) == []
    [first] = sent(reader.topics.link(LINK, LinkState.UP, NOW))
    assert first == Adverts(())
    # A node that may publish there stands for the schema and for the retention.
    assert sent(here.topics.vouch()) == []
    [renewed] = sent(here.topics.link(LINK, LinkState.UP, NOW))
    assert renewed.topics[0].origin == renewed.topics[0].retention.origin == HERE
    for node in (reader, newcomer):
        assert node.hears(renewed) == 0
        assert node.topics.schemas["t"].text == SCHEMA
        assert node.topics.retentions == {"t": HOUR}
        # It is also passed on, and it is stored.
        assert node.topics.records()
    assert sent(reader.topics.link(Peer(7), LinkState.UP, NOW)) == [renewed]


def test_a_retention_without_a_signature_changes_nothing_and_is_charged() -> None:
    here, there = Keyed(), Keyed(MAY)
    honest = there.says(SCHEMA)
    [advert] = honest.topics
    for rule in (
        Rule(1, 1 << 40, 0, MAY),
        Rule(1, 1 << 40, 0, MAY, advert.signature),
        Rule(1, 1 << 40, 0, MAY_NOT, KEYS.signed(MAY_NOT, b"advert", b"")),
    ):
        assert here.hears(replace(honest, topics=(replace(advert, retention=rule),))) == 1
        assert here.topics.retentions == {}
    assert here.topics.schemas["t"].text == SCHEMA


def test_one_advertiser_cannot_take_all_places_for_topics() -> None:
    topics = Topics(Peer(1))
    dropped = 0
    for number in range(TOPICS_AN_ORIGIN + 10):
        effects = topics.receive(Peer(2), Adverts((Advert(f"t{number}", OTHER, 0, 7),)), NOW)
        dropped += sum(isinstance(e, Note) and isinstance(e.record, Dropped) for e in effects)
    assert dropped == 10
    topics.receive(Peer(2), Adverts((Advert("mine", OTHER, 0, 8),)), NOW)
    assert "mine" in topics.schemas


def test_a_node_retains_no_more_for_others_than_it_wants_and_passes_their_word_on() -> None:
    limit = Retention.parse("10m, 1MB")
    topics = Topics(Peer(1), limit)
    long = Rule(HOUR.seconds, 1 << 40, 0, 2)
    topics.receive(Peer(2), Adverts((Advert("t", SCHEMA, 0, 2, long),)), NOW)
    assert topics.retentions == {"t": limit}
    [word] = sent(topics.link(Peer(3), LinkState.UP, NOW))
    assert word.topics[0].retention == long
    topics.receive(Peer(2), Adverts((Advert("u", SCHEMA, 0, 2, Rule(0, 5, 0, 2)),)), NOW)
    assert topics.retentions["u"] == Retention(600, 5)
    # Its own word holds for itself.
    topics.advertise("mine", Schema.parse(SCHEMA), NOW, HOUR)
    assert topics.retentions["mine"] == HOUR
