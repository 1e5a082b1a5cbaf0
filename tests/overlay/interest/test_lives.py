"""Lives of a node: restarts with and without memory, wrong verdicts, worn counters, and two
processes of one name.
"""

from __future__ import annotations

import pytest

from gossamer.machine import SECOND, Dial, Keep, Micros, Note, Peer, Store
from gossamer.overlay.interest.core import Interest, InterestError
from gossamer.overlay.interest.messages import AskRecords, Flip, Gone, News
from gossamer.overlay.interest.record import (
    COUNTER_MAX,
    INCARNATION_MAX,
    TOPICS_MAX,
    VERSION_MAX,
    Record,
    ViewChange,
    read_stamp,
    topic_hash,
)
from gossamer.trace import Conflict
from worldnet import Net, befriend, sends, single, told


def test_a_restart_without_memory_is_not_shadowed_by_its_old_life() -> None:
    """The old life is known everywhere in a greater version.

    The new process knows nothing of it.
    """
    net = Net(8, k=3)
    net.settle()
    for version in range(20):
        net.subscribe(5, f"old-{version}")
    net.settle()
    net.crash(5)
    net.start(5)
    net.subscribe(5, "new")
    net.settle()
    for machine in net.machines:
        assert list(machine.view.members[net.peer(5)].record.pairs()) == [topic_hash("new")]
        assert net.peer(5) not in machine.interested("old-3")
    assert net[5].record.incarnation == 2


@pytest.mark.parametrize("wait", [0.0, 0.15, 30.0])
def test_a_restart_shows_as_a_return_even_if_nobody_noticed_the_end(wait: float) -> None:
    """What the old process held is lost: whoever retains data for the topic must send it again."""
    net = Net(8, k=3)
    net.subscribe(5, "a")
    net.settle()
    for place in net.places:
        place.changes.clear()
    net.crash(5, silent=wait == 0.0)
    net.run(wait)
    net.start(5)
    net.subscribe(5, "a")
    net.settle()
    for place in net.places:
        if place.number != 5:
            seen = [change for change in place.changes if change.peer == net.peer(5)]
            assert {change.reason for change in seen} <= {"new life", "failed", "joined", "news"}
            assert {"new life", "joined"} & {change.reason for change in seen}
            assert any(topic_hash("a") in (*change.joined, *change.returned) for change in seen)


def test_a_restart_with_a_data_directory_begins_a_greater_life() -> None:
    net = Net(5, k=2, start=False)
    for number in range(5):
        net.start(number, disk=True)
    net.settle()
    # Addresses of others are kept now and then.
    net.run(12)
    lives = []
    for _ in range(3):
        lives.append(net[3].record.incarnation)
        net.crash(3)
        net.start(3, disk=True)
        assert net[3].record.incarnation > lives[-1]
        assert len(net[3].config.join) >= 3
        net.settle()
    assert lives == sorted(set(lives))


def test_the_kept_life_is_the_one_that_is_lived() -> None:
    node = single(1, durable=True)
    stores = [effect for effect in node.wake(Micros(0)) if isinstance(effect, Store)]
    assert stores[0].records == (Keep("interest", b"1"),)
    befriend(node, 11)
    effects = node.receive(Peer(11), News(gone=(Gone(1, node.record.life, False),)), Micros(SECOND))
    # A life of the same incarnation needs no record: a restart begins the next incarnation.
    assert not [effect for effect in effects if isinstance(effect, Store)]
    old = Record(1, node.record.life + 1, 1)
    effects = node.receive(Peer(11), News(records=(old,)), Micros(2 * SECOND))
    [store] = [effect for effect in effects if isinstance(effect, Store)]
    assert store.records == (Keep("interest", b"2"),)
    assert len({effect.token for effect in [*stores, store]}) == len(stores) + 1


@pytest.mark.parametrize("kept", [b"", b"nonsense", b"-5", b"99999999999999999999", b"\xff"])
def test_a_damaged_life_on_disk_is_survived(kept: bytes) -> None:
    node = single(1, restored={"interest": kept, "peers": b"\xff\n\nhost:1\n"})
    assert 1 <= node.record.incarnation <= INCARNATION_MAX
    assert "host:1" in node.config.join
    befriend(node, 11)


def test_who_was_at_a_remembered_address_is_remembered_with_it() -> None:
    """Ports are used again. A node that was told the fabric's address ignores older addresses.

    At an address from an earlier life it talks to no node.
    """
    node = single(1, durable=True)
    befriend(node, 11, now=8 * SECOND)
    beats = range(8 * SECOND, 12 * SECOND, SECOND // 10)
    stores = [
        effect for now in beats for effect in node.wake(Micros(now)) if isinstance(effect, Store)
    ]
    (kept,) = {
        keep.value
        for store in stores
        for keep in store.records
        if isinstance(keep, Keep) and keep.key == "peers"
    }
    assert kept == b"node-11 000000000000000b"

    def dialled(restored: bytes, *join: str) -> set[tuple[str, int | None]]:
        again = single(1, restored={"peers": restored}, config={"join": join})
        effects = [effect for now in range(20) for effect in again.wake(Micros(now * SECOND))]
        return {(effect.address, effect.expected) for effect in effects if isinstance(effect, Dial)}

    assert dialled(kept, "seed:1") == {("seed:1", None), ("node-11", 11)}
    # It was told so.
    assert dialled(kept, "node-11", "seed:1") == {
        ("seed:1", None),
        ("node-11", None),
    }
    # It has nothing else, and nodes without memory change their names.
    assert dialled(kept) == {("node-11", None)}
    assert dialled(b"old:1\nodd:1 x", "seed:1") == {
        ("seed:1", None),
        ("old:1", None),
        ("odd:1", None),
    }


def test_a_node_declared_dead_comes_back_in_a_new_life() -> None:
    net = Net(8, k=3)
    net.subscribe(2, "a")
    net.settle()
    life = net[2].record.life
    for number in (0, 1, 3, 4):
        net.inject(number, 5, News(gone=(Gone(net.peer(2), life, False),)))
    net.run(5)
    net.settle()
    assert net[2].record.life > life
    assert net[2].counters["declared dead"] >= 1
    assert all(net.peer(2) in machine.interested("a") for machine in net.machines)
    net.run(20)
    # That is the end of it.
    assert net[2].counters["new lives"] <= 2


def test_a_new_life_shows_all_its_topics_as_returned() -> None:
    """Nobody knows the events that were missed in between."""
    node = single(1)
    node.subscribe("a", Micros(0)), node.subscribe("b", Micros(0), routes=2)
    befriend(node, 11)
    before = node.record
    node.receive(Peer(11), News(gone=(Gone(1, before.life, False),)), Micros(SECOND))
    change = ViewChange(Peer(1), before, node.record, "new life")
    assert set(change.returned) == {topic_hash("a"), topic_hash("b")}
    # The route stays.
    assert read_stamp(node.record.stamp(topic_hash("b")) or b"") == (0, 2)


def test_two_processes_of_one_name_are_reported_and_do_not_shout() -> None:
    net = Net(8, k=3)
    net.settle()
    double = net.add(net.peer(4))
    net.start(double)
    net.bytes.clear()
    net.run(20)
    for number in (4, double):
        assert net[number].conflict
        notes = [note for note in net.places[number].notes if isinstance(note, Conflict)]
        assert len(notes) == 1
        assert notes[0].peer == f"{net.peer(4):016x}"
        # A tenth of a second lies between them, at least.
        assert net[number].counters["new lives"] <= 20 * 10 + 1
    assert all(not net[number].conflict for number in range(8) if number != 4)
    # Bytes for each second and node.
    assert sum(net.bytes.values()) / 9 / 20 < 20_000
    net.crash(double)
    net.run(5)
    net.settle()
    lives = net[4].counters["new lives"]
    net.run(10)
    # The other process is gone, and there is peace.
    assert net[4].counters["new lives"] == lives


def test_an_old_life_alone_is_no_conflict() -> None:
    net = Net(6, k=2)
    net.settle()
    for _ in range(3):
        net.crash(3)
        net.start(3)
        net.settle()
        assert not net[3].conflict


def test_answers_are_at_least_a_tenth_of_a_second_apart() -> None:
    node = single(1)
    befriend(node, 11)
    for millisecond in range(1000):
        node.receive(
            Peer(11),
            News(gone=(Gone(1, node.record.life, False),)),
            Micros(SECOND + millisecond * 1000),
        )
    assert 1 <= node.counters["new lives"] <= 10


@pytest.mark.parametrize("what", ["version", "leaves"])
def test_a_worn_life_is_followed_by_a_new_one(what: str) -> None:
    node = single(1)
    befriend(node, 11)
    node.subscribe("a", Micros(0)), node.subscribe("b", Micros(0))
    own = node._own
    if what == "version":
        old = own.record
        own.record = Record(old.peer, old.life, VERSION_MAX, old.address, old.topics, old.stamps)
    else:
        own.leaves = COUNTER_MAX - 1
    before = node.record
    node.unsubscribe("a", Micros(SECOND)), node.subscribe("a", Micros(SECOND))
    assert node.record.life > before.life
    change = ViewChange(Peer(1), before, node.record, "new life")
    assert topic_hash("a") in change.returned
    # The following messages can travel.
    sends(node.wake(Micros(SECOND)))


def test_more_topics_than_allowed_is_a_typed_error() -> None:
    node = single(1)
    node._own._sources = {number.to_bytes(8, "big"): {} for number in range(TOPICS_MAX)}
    with pytest.raises(InterestError, match="65536 topics already"):
        node.subscribe("one more", Micros(0))
    assert len(node._own._sources) == TOPICS_MAX


def forged(node: Interest, life: int, version: int) -> list[News | Flip]:
    return [
        News(records=(Record(1, life, version, "elsewhere"),)),
        Flip(1, life, version, 5, 0),
        News(diffs=(), records=(Record(1, life, version, "", topic_hash("x"), bytes(4)),)),
    ]


@pytest.mark.parametrize("version", [1_000, VERSION_MAX])
def test_the_owner_answers_what_others_say_of_it(version: int) -> None:
    """Another node's record comes in an absurd version.

    The owner outdoes it, and its word lasts.
    """
    for place in range(3):
        node = single(1)
        befriend(node, 11)
        node.subscribe("mine", Micros(0))
        before = node.record
        said = forged(node, before.life, version)
        effects = node.receive(Peer(11), said[place], Micros(SECOND))
        if isinstance(said[place], Flip):
            # A change says too little, so the node asks for the record.
            assert sends(effects) == [AskRecords((1).to_bytes(8, "big"))]
            effects = node.receive(Peer(11), said[0], Micros(SECOND))
        assert (node.record.life, node.record.version) > (before.life, version)
        assert node.record.topics == before.topics
        assert not [e for e in effects if isinstance(e, Note)]
        assert told(effects)[-1].after == node.record


def test_what_was_said_in_the_past_is_not_answered() -> None:
    node = single(1)
    befriend(node, 11)
    for topic in "abc":
        node.subscribe(topic, Micros(0))
    record = node.record
    for old in (record, Record(1, record.life, 2), Record(1, 5, VERSION_MAX)):
        node.receive(Peer(11), News(records=(old,)), Micros(SECOND))
    node.receive(Peer(11), Flip(1, record.life, record.version, 5, 0), Micros(SECOND))
    assert node.record == record


def test_a_twin_that_was_met_is_a_conflict_at_once_and_for_a_while() -> None:
    node = single()
    node.wake(Micros(0))
    life = node.record.life
    node.meet_twin(7, Micros(SECOND))
    [note] = [e.record for e in node.wake(Micros(SECOND)) if isinstance(e, Note)]
    assert note == Conflict("0000000000000001", 7)
    node.meet_twin(7, Micros(40 * SECOND))
    # The node knows it.
    assert not [e for e in node.wake(Micros(40 * SECOND)) if isinstance(e, Note)]
    for second in range(41, 98):
        node.wake(Micros(second * SECOND))
    assert node.conflict
    for second in range(98, 104):
        node.wake(Micros(second * SECOND))
    assert not node.conflict
    # Nobody has doubted it.
    assert node.record.life == life


def test_a_conflict_that_is_over_is_forgotten() -> None:
    node = single()
    for second in range(6):
        now = Micros(second * SECOND)
        node._state._about_me(Peer(11), Record(1, node.record.life + 256, 1), now)
        node.wake(now)
    assert node.conflict
    node.wake(Micros(30 * SECOND))
    assert node.conflict
    # A beat is among them.
    for second in range(66, 70):
        node.wake(Micros(second * SECOND))
    assert not node.conflict
