"""No message of a peer does harm: any values, forged records, lies about others, floods, limits."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.machine import SECOND, Effect, LinkState, Message, Micros, Note, Peer
from gossamer.overlay.interest.messages import (
    AskRecords,
    Barrier,
    Beat,
    Buckets,
    Diff,
    Flip,
    Flips,
    Gone,
    Greet,
    Have,
    InterestMessage,
    Lone,
    NameAsk,
    NameTell,
    News,
    OfferRecords,
    Probe,
    Reached,
    Suspicion,
    Vouch,
    Want,
)
from gossamer.overlay.interest.record import (
    LIFE_MAX,
    TOPICS_MAX,
    VERSION_MAX,
    Known,
    Record,
    pack_entries,
    topic_hash,
)
from gossamer.trace import Dropped, Rejected
from worldnet import Net, befriend, sends, single, through_codec, told

# All tests together take seconds.
pytestmark = pytest.mark.slow

NOW = Micros(5 * SECOND)

# Values that are near those in use: peers that exist, this node's own life, versions around the
# known ones. There are extremes as well.
LIVES = st.sampled_from([0, 1, 255, 256, 257, 290, 511, 512, 513, LIFE_MAX])
VERSIONS = st.sampled_from([0, 1, 2, 3, 1000, VERSION_MAX - 1, VERSION_MAX])
PEERS = st.sampled_from([0, 1, 2, 11, 12, 13, 77, 2**63, 2**64 - 1])
WORDS = st.sampled_from([0, 1, 5, 2**32, 2**64 - 1])
STAMPS = st.sampled_from([-1, 0, 1, 4, 2**32 - 2])
BYTES = (
    st.binary(max_size=40)
    | st.integers(0, 4).map(lambda n: bytes(range(8 * n)))
    | st.integers(0, 3).map(lambda n: bytes(12 * n))
)
RECORDS = st.builds(
    Record, PEERS, LIVES, VERSIONS, st.sampled_from(["", "a:1", "ä" * 255]), BYTES, BYTES
)
FLIPS = st.builds(Lone, PEERS, LIVES, VERSIONS, WORDS, STAMPS)
DIFFS = st.builds(Diff, PEERS, LIVES, VERSIONS, VERSIONS, BYTES)
SUSPICIONS = st.builds(Suspicion, PEERS, LIVES, VERSIONS, PEERS, st.booleans())
GONE = st.builds(Gone, PEERS, LIVES, st.booleans())
NUMBERS = st.sampled_from([0, 1, 2, 3, 2**53])


def some(items: st.SearchStrategy, least: int = 0) -> st.SearchStrategy:
    return st.lists(items, min_size=least, max_size=3).map(tuple)


KINDS: dict[type, st.SearchStrategy] = {
    Flip: st.builds(Flip, PEERS, LIVES, VERSIONS, WORDS, STAMPS),
    Flips: st.builds(Flips, some(FLIPS, 1)),
    News: st.builds(News, some(DIFFS), some(RECORDS), some(SUSPICIONS), some(GONE)),
    Greet: st.builds(Greet, RECORDS, WORDS, NUMBERS, st.booleans()),
    Want: st.builds(Want, st.booleans()),
    Beat: st.builds(Beat, WORDS),
    Probe: st.builds(Probe, PEERS),
    Vouch: st.builds(Vouch, PEERS),
    Buckets: st.builds(Buckets, BYTES),
    Have: st.builds(
        Have,
        st.integers(1, 256),
        BYTES,
        BYTES | st.integers(0, 3).map(lambda n: bytes(range(20)) * n),
    ),
    OfferRecords: st.builds(
        OfferRecords, BYTES | st.integers(0, 3).map(lambda n: bytes(range(20)) * n)
    ),
    AskRecords: st.builds(AskRecords, BYTES),
    Barrier: st.builds(Barrier, PEERS, NUMBERS, LIVES, VERSIONS),
    Reached: st.builds(Reached, PEERS, NUMBERS, WORDS),
    NameAsk: st.builds(NameAsk, BYTES),
    NameTell: st.builds(NameTell, some(st.sampled_from(["", "a", "ä" * 255]))),
}


def test_every_message_is_tried() -> None:
    assert set(KINDS) == set(InterestMessage.__args__)


def check(effects: list[Effect]) -> None:
    """Whatever is sent can be decoded by whoever gets it."""
    for message in sends(effects):
        through_codec(message)
    told(effects)


@settings(max_examples=250, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([11, 12, 13, 99]),
            st.one_of(*KINDS.values()) | st.sampled_from(["wake", "down", "up", "do"]),
        ),
        max_size=25,
    ),
    st.sampled_from([1, 3_000, 300_000, 1_500_000]),
)
def test_any_values_in_any_order_raise_nothing_and_the_node_goes_on(
    steps: list[tuple[int, object]], pace: int
) -> None:
    node = single(1, durable=True, config={"k": 2})
    for peer in (11, 12, 13):
        befriend(node, peer)
    now = int(NOW)
    for sender, step in steps:
        now += pace
        if isinstance(step, Message):
            effects = node.receive(Peer(sender), through_codec(step)[0], Micros(now))
        elif step == "down" or step == "up":
            effects = node.link(
                Peer(sender), LinkState.UP if step == "up" else LinkState.DOWN, Micros(now)
            )
        elif step == "do":
            (
                node.subscribe("a", Micros(now)),
                node.barrier(Micros(now)),
                node.ask_names([b"x" * 8], Micros(now)),
            )
            node.unsubscribe("a", Micros(now))
            effects = node.wake(Micros(now))
        else:
            effects = node.wake(Micros(now))
            assert node.deadline > now
        check(effects)
    for _ in range(30):
        now = max(node.deadline, now + 1)
        check(node.wake(Micros(now)))
        assert node.deadline > now
    assert node.view.members[node.me].record == node.record


@pytest.mark.parametrize(
    "bad",
    [
        News(records=(Record(77, 256, 1, "", b"22222222" + b"11111111", bytes(8)),)),
        News(records=(Record(77, 256, 1, "", b"1234567", bytes(4)),)),
        News(records=(Record(77, 256, 1, "", b"12345678", bytes(8)),)),
        News(diffs=(Diff(11, 256, 2, 1, b"odd"),)),
        News(diffs=(Diff(11, 256, 2, 2, b""),)),
        News(diffs=(Diff(11, 256, 2, 7, b""),)),
        Greet(Record(12, 256, 9, ""), 0, 2, True),
        Buckets(b""),
        Buckets(bytes(7)),
        # Three parts are no power of two.
        Buckets(bytes(24)),
        Have(3, b"", b""),
        Have(4, b"\0", b"odd"),
        OfferRecords(b"odd"),
        AskRecords(b"odd"),
        NameAsk(b"odd"),
    ],
    ids=lambda bad: type(bad).__name__,
)
def test_malformed_messages_are_rejected_counted_and_harmless(bad: Message) -> None:
    node = single(1)
    befriend(node, 11), befriend(node, 12)
    digest = node.view.digest
    effects = node.receive(Peer(11), through_codec(bad)[0], NOW)
    assert [type(effect.record) for effect in effects if isinstance(effect, Note)] == [Rejected]
    assert node.counters["rejected"] == 1
    assert sends(effects) == []
    assert node.view.digest == digest


def test_changes_that_make_a_record_too_long_are_rejected() -> None:
    node = single(1)
    befriend(node, 11)
    for version in (2, 3):
        names = range((version - 2) * (TOPICS_MAX // 2 + 1), (version - 1) * (TOPICS_MAX // 2 + 1))
        changes = b"".join(struct.pack(">QI", name, 0) for name in names)
        effects = node.receive(
            Peer(11), News(diffs=(Diff(11, 256, version, version - 1, changes),)), NOW
        )
    assert [type(effect.record) for effect in effects if isinstance(effect, Note)] == [Rejected]
    assert node.view.members[Peer(11)].record.version == 2


def test_messages_over_a_link_that_is_not_up_are_ignored() -> None:
    node = single(1)
    befriend(node, 11)
    digest = node.view.digest
    for kind in (
        Beat(1),
        News(records=(Record(77, 256, 1),)),
        Greet(Record(99, 256, 1), 0, 1, True),
        Probe(1),
        Barrier(99, 1, 1, 1),
    ):
        assert node.receive(Peer(99), kind, NOW) == []
    assert node.view.digest == digest


def test_a_greeting_in_anothers_name_is_no_greeting() -> None:
    node = single(1)
    node.link(Peer(11), LinkState.UP, NOW)
    node.receive(Peer(11), Greet(Record(12, 256, 1, "a:1"), 0, 1, True), NOW)
    assert not node.links[Peer(11)].greeted
    assert Peer(12) not in node.view.members


# The counter is absurd.
FORGED: list[Callable[[Net], News | Flip]] = [
    lambda net: News(
        records=(
            Record(net.peer(3), net[3].record.life, VERSION_MAX, "false:1", b"8 bytes!", bytes(4)),
        )
    ),
    lambda net: News(records=(Record(net.peer(3), net[3].record.life + 256 * 1000, 1, "false:1"),)),
    lambda net: News(
        diffs=(Diff(net.peer(3), net[3].record.life, VERSION_MAX, 1, b"8 bytes!" + bytes(4)),)
    ),
    lambda net: News(
        diffs=(Diff(net.peer(3), net[3].record.life, 5, 1, topic_hash("mine") + b"\xff" * 4),)
    ),
    lambda net: Flip(net.peer(3), net[3].record.life, net[3].record.version + 1, 7, 2**32 - 2),
    lambda net: News(
        records=(
            Record(
                net.peer(3), net[3].record.life, net[3].record.version, "same version", b"", b""
            ),
        )
    ),
]


@pytest.mark.parametrize("forge", FORGED)
def test_a_forged_record_is_answered_by_its_owner_and_the_fabric_converges(
    forge: Callable[[Net], News | Flip],
) -> None:
    net = Net(8, k=3)
    net.subscribe(3, "mine")
    net.settle()
    net.inject(0, 1, forge(net))
    net.run(0.5)
    net.settle(20)
    for machine in net.machines:
        assert machine.view.members[net.peer(3)].record == net[3].record
        assert net.peer(3) in machine.interested("mine")
    net.sent = []
    net.run(10)
    # There is peace.
    assert {type(message) for _, _, _, message, _ in net.sent} == {Beat}


def test_a_forged_record_is_answered_at_once_however_it_reaches_its_owner() -> None:
    """Long records are offered before they are sent, and differences are listed.

    An owner that sees itself in the list asks, too.
    """
    long = b"".join(number.to_bytes(8, "big") for number in range(100))
    for told_by in (
        lambda record, order: [News(records=(record,))],
        lambda record, order: [OfferRecords(pack_entries({Peer(1): order}))],
        lambda record, order: [Have(1, b"\0", pack_entries({Peer(1): order}))],
    ):
        node = single(1)
        befriend(node, 11)
        forged = Record(1, node.record.life, 99, "", long, bytes(400))
        for message in told_by(forged, Known(forged).order):
            for answer in sends(node.receive(Peer(11), message, NOW)):
                if isinstance(answer, AskRecords):
                    node.receive(Peer(11), News(records=(forged,)), NOW)
        assert node.record.life > forged.life


@pytest.mark.parametrize("kind", ["record", "death"])
def test_a_life_that_cannot_be_outdone_harms_its_owner_only(kind: str) -> None:
    """Without keys anybody may claim it. Still nothing raises, nobody shouts, and the others agree
    as before.
    """
    net = Net(8, k=3)
    net.settle()
    if kind == "record":
        net.inject(0, 1, News(records=(Record(net.peer(3), LIFE_MAX, VERSION_MAX, "false:1"),)))
    else:
        net.inject(0, 1, News(gone=(Gone(net.peer(3), LIFE_MAX, False),)))
    net.run(5)
    net.bytes.clear()
    net.run(20)
    assert sum(net.bytes.values()) / 8 / 20 < 20_000
    net.subscribe(5, "a")
    net.until(lambda: all(net.knows(number, 5) for number in range(8) if number != 3), 5)


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("times", [1, 5])
def test_a_lie_about_a_death_does_not_last(left: bool, times: int) -> None:
    net = Net(8, k=3)
    net.subscribe(3, "mine")
    net.settle()
    for _ in range(times):
        for number in range(8):
            if number not in (0, 3):
                net.inject(0, number, News(gone=(Gone(net.peer(3), net[3].record.life, left),)))
        net.run(0.3)
    net.run(3)
    net.settle(20)
    assert all(net.peer(3) in machine.interested("mine") for machine in net.machines)
    net.run(15)
    assert net.agrees


def test_lies_that_many_suspect_a_living_node_do_not_remove_it() -> None:
    net = Net(8, k=3)
    net.settle()
    removed = []
    net.after = lambda place: removed.extend(
        change for change in place.changes if change.after is None
    )
    for second in range(20):
        record = net[3].record
        for by in range(8):
            for version in (record.version, VERSION_MAX):
                net.inject(
                    0,
                    1,
                    News(
                        suspicions=(
                            Suspicion(
                                net.peer(3), record.life, version, net.peer(by), second % 2 == 0
                            ),
                        )
                    ),
                )
        net.run(1)
    assert removed == []
    net.run(25)
    assert all(machine.suspects == {} for machine in net.machines)


def test_a_verdict_right_after_its_suspicion_does_not_remove_a_living_node() -> None:
    net = Net(8, k=3)
    net.settle()
    removed = []
    net.after = lambda place: removed.extend(
        change for change in place.changes if change.after is None
    )
    record = net[3].record
    for number in (1, 2, 4, 5, 6, 7):
        net.inject(
            0,
            number,
            News(
                (), (), (Suspicion(net.peer(3), record.life, VERSION_MAX, net.peer(0), True),), ()
            ),
        )
        net.inject(0, number, News(gone=(Gone(net.peer(3), record.life, False),)))
    net.run(5)
    net.settle(10)
    assert removed == []
    assert all(net.peer(3) in machine.view.members for machine in net.machines)


def test_more_members_than_allowed_are_dropped_and_counted() -> None:
    node = single(1, config={"members_max": 5})
    befriend(node, 11)
    effects = node.receive(
        Peer(11), News(records=tuple(Record(peer, 256, 1) for peer in range(100, 120))), NOW
    )
    notes = [effect.record for effect in effects if isinstance(effect, Note)]
    assert len(notes) == 17
    assert all(isinstance(note, Dropped) and "members_max" in note.reason for note in notes)
    assert len(node.view.members) == 5
    assert node.counters["refused"] == 17
    known = Record(100, 256, 2, "", topic_hash("a"), bytes(4))
    # Members that are in can still change.
    assert told(node.receive(Peer(11), News(records=(known,)), NOW)) != []


def test_more_pairs_than_allowed_are_dropped_and_counted() -> None:
    node = single(1, config={"pairs_max": 10})
    befriend(node, 11)
    topics = b"".join(number.to_bytes(8, "big") for number in range(8))
    node.receive(Peer(11), News(records=(Record(77, 256, 1, "", topics, bytes(32)),)), NOW)
    effects = node.receive(
        Peer(11), News(records=(Record(78, 256, 1, "", topics, bytes(32)),)), NOW
    )
    [note] = [effect.record for effect in effects if isinstance(effect, Note)]
    assert isinstance(note, Dropped)
    assert "pairs_max" in note.reason
    assert (node.view.pairs, Peer(78) in node.view.members) == (8, False)
    node.receive(Peer(11), News(records=(Record(77, 256, 2),)), NOW)
    node.receive(Peer(11), News(records=(Record(78, 256, 1, "", topics, bytes(32)),)), NOW)
    # There is room again.
    assert Peer(78) in node.view.members


def test_a_fabric_larger_than_a_node_allows_goes_on() -> None:
    net = Net(10, k=3, start=False)
    small = net.config.__class__(join=net.config.join, k=3, members_max=6)
    for number in range(9):
        net.start(number)
    net.settle()
    net.start(9, config=small)
    net.run(30)
    assert len(net[9].view.members) == 6
    assert {len(net[number].view.members) for number in range(9)} == {10}


def test_an_answer_to_what_cannot_be_had_is_nothing() -> None:
    node = single(1)
    befriend(node, 11)
    assert sends(node.receive(Peer(11), AskRecords((77).to_bytes(8, "big")), NOW)) == []
    # There is no such part.
    assert sends(node.receive(Peer(11), Have(1, b"\xff", b""), NOW)) == []
    assert sends(node.receive(Peer(11), Vouch(77), NOW)) == []
    assert sends(node.receive(Peer(11), Probe(77), NOW)) == []
