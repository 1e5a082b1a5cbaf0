"""Records and changes: a change is right wherever it is applied, and names the exact difference."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gossamer.machine import Peer
from gossamer.overlay.interest.gossip import Gossip, flip_changes
from gossamer.overlay.interest.messages import Diff, Flip, Flips, News
from gossamer.overlay.interest.names import Names
from gossamer.overlay.interest.own import InterestError, Own
from gossamer.overlay.interest.record import (
    COUNTER_MAX,
    EXTRA_MAX,
    LEFT,
    ROUTES_ALL,
    TOPIC,
    TOPICS_MAX,
    Known,
    Pool,
    Record,
    ViewChange,
    apply,
    find,
    is_well_formed,
    make_stamp,
    read_stamp,
    topic_hash,
)

ME = Peer(7)
TOPICS = "abcdefgh"
MOVES = st.lists(st.tuples(st.sampled_from(TOPICS), st.integers(0, ROUTES_ALL)), max_size=30)


def history(moves: list[tuple[str, int]]) -> list[tuple[Record, bytes]]:
    """An owner's records, version by version, each with the changes that led to it.

    A move turns a topic's interest round.
    """
    own = Own(ME, 1, 9, "here", Names())
    wanted: dict[str, int] = {}
    made = [(own.record, b"")]
    for topic, routes in moves:
        if topic in wanted:
            changes = own.part(topic, wanted.pop(topic), "user")
        else:
            changes = own.join(topic, routes, "user")
            wanted[topic] = routes
        made.append((own.change(changes)[0], changes))
    return made


@settings(deadline=None)
@given(MOVES, st.data())
def test_a_change_applies_from_any_version_since_its_base(
    moves: list[tuple[str, int]], data: st.DataObject
) -> None:
    made = history(moves)
    base = data.draw(st.integers(0, len(made) - 1))
    stop = data.draw(st.integers(base, len(made) - 1))
    gossip = Gossip(whole=False)
    for record, changes in made[base + 1 : stop + 1]:
        gossip.changed(Known(record), record.version - 1, changes, None)
    for send in gossip.round([Peer(1)]):
        message = send.message
        if isinstance(message, Flip):
            first, version, changes = (
                message.version - 1,
                message.version,
                flip_changes(message.topic, message.stamp),
            )
        else:
            assert isinstance(message, News)
            [diff] = message.diffs
            first, version, changes = diff.base, diff.version, diff.changes
        assert (first, version) == (made[base][0].version, made[stop][0].version)
        for here, _ in made[base : stop + 1]:
            assert apply(here, version, changes) == made[stop][0]


@settings(deadline=None)
@given(MOVES)
def test_one_change_after_the_other_keeps_records_well_formed(moves: list[tuple[str, int]]) -> None:
    made = history(moves)
    for (before, _), (after, changes) in pairwise(made):
        assert is_well_formed(after)
        assert apply(before, after.version, changes) == after
        for topic in TOPICS:
            place = find(after.topics, topic_hash(topic))
            assert (place >= 0) == (topic_hash(topic) in after.pairs())
            assert after.stamp(topic_hash(topic)) == after.pairs().get(topic_hash(topic))


PAIRS = st.dictionaries(
    st.integers(0, 9).map(lambda n: n.to_bytes(8, "big")),
    st.integers(0, 5).map(make_stamp),
    max_size=8,
)


def record_of(pairs: dict[bytes, bytes], life: int, version: int) -> Record:
    ordered = sorted(pairs)
    return Record(
        7, life, version, "", b"".join(ordered), b"".join(pairs[topic] for topic in ordered)
    )


@settings(deadline=None)
@given(st.none() | PAIRS, st.none() | PAIRS, st.booleans())
def test_a_view_change_names_exactly_the_topics_that_differ(
    old: dict[bytes, bytes] | None, new: dict[bytes, bytes] | None, other_life: bool
) -> None:
    before = None if old is None else record_of(old, 256, 1)
    after = None if new is None else record_of(new, 512 if other_life else 256, 2)
    change = ViewChange(ME, before, after, "news")
    had, has = old or {}, new or {}
    assert set(change.joined) == has.keys() - had.keys()
    assert set(change.left) == had.keys() - has.keys()
    assert set(change.returned) == {
        t for t in had.keys() & has.keys() if other_life or had[t] != has[t]
    }
    for named in (change.joined, change.left, change.returned):
        assert len(set(named)) == len(named)


def test_another_route_is_no_leave() -> None:
    own = Own(ME, 1, 9, "", Names())
    own.change(own.join("a", 0, "user"))
    own.change(own.join("b", 0, "user"))
    # The counter has gone on, but not for this topic.
    before, _ = own.change(own.part("b", 0, "user"))
    after, _ = own.change(own.join("a", 2, "service"))
    assert read_stamp(after.stamp(topic_hash("a")) or b"") == (0, 2)
    change = ViewChange(ME, before, after, "news")
    assert (change.joined, change.left, change.returned) == ((), (), ())


def test_a_topic_shows_every_route_that_it_is_wanted_by() -> None:
    own = Own(ME, 1, 9, "", Names())

    def routes() -> int | None:
        stamp = own.record.stamp(topic_hash("a"))
        return None if stamp is None else read_stamp(stamp)[1]

    own.change(own.join("a", 1, "user"))
    own.change(own.join("a", 4, "user"))
    assert own.join("a", 4, "user") == b"", "nothing new to tell"
    assert routes() == 5
    assert own.part("a", 2, "user") == b"", "nobody wants it that way"
    assert own.part("a", 4, "user") == b"", "it is wanted twice that way"
    own.change(own.part("a", 1, "user"))
    assert routes() == 4
    own.change(own.part("a", 4, "user"))
    assert routes() is None
    assert own.leaves == 1


def test_what_the_owner_adds_stays_with_the_record() -> None:
    own = Own(ME, 1, 9, "", Names())
    own.add(b"classes")
    own.change(own.join("a", 1, "user"))
    own.move("elsewhere")
    own.live_again(7 << 8)
    assert (own.record.extra, own.record.address, own.record.incarnation) == (
        b"classes",
        "elsewhere",
        7,
    )
    assert Known(own.record).digest != Known(replace(own.record, extra=b"")).digest
    with pytest.raises(InterestError, match="at most 4096"):
        own.add(bytes(EXTRA_MAX + 1))


@settings(deadline=None)
@given(st.integers(0, COUNTER_MAX), st.integers(0, ROUTES_ALL))
def test_stamps_hold_the_counter_and_the_route(counter: int, route: int) -> None:
    stamp = make_stamp(counter, route)
    assert read_stamp(stamp) == (counter, route)
    assert stamp != LEFT


@pytest.mark.parametrize(
    ("topics", "stamps"),
    [
        # Twice the same.
        (b"12345678" * 2, b"1234" * 2),
        # Not ascending.
        (b"22222222" + b"11111111", b"1234" * 2),
        # Torn.
        (b"1234567", b"1234"),
        # The lengths do not agree.
        (b"12345678", b"1234" * 2),
        (b"12345678", b"123"),
    ],
)
def test_malformed_records_are_told_from_good_ones(topics: bytes, stamps: bytes) -> None:
    record = Record(7, 256, 1, "", topics, stamps)
    assert not is_well_formed(record)
    assert Pool().get(record) is None


def test_a_record_of_more_topics_than_allowed_is_malformed() -> None:
    """Applied change by change, a record could grow until others could not decode it.

    They would cut off the node that passes it on.
    """
    topics = b"".join(n.to_bytes(TOPIC, "big") for n in range(TOPICS_MAX + 1))
    fits = is_well_formed(Record(7, 256, 1, "", topics[:-TOPIC], bytes(4 * TOPICS_MAX)))
    is_long = is_well_formed(Record(7, 256, 1, "", topics, bytes(4 * (TOPICS_MAX + 1))))
    assert (fits, is_long) == (True, False)


def test_a_topic_is_found_only_at_its_place() -> None:
    """The bytes of a hash may also stand across two others."""
    topics = b"\x00" * 4 + b"\x01" * 4 + b"\x01" * 4 + b"\x02" * 4
    assert find(topics, b"\x01" * 8) == -1
    assert find(topics, topics[8:]) == 1


def test_the_pool_stays_within_its_size_and_shares_equal_records() -> None:
    pool = Pool(maximum=4)
    first = pool.get(Record(1, 256, 1))
    assert first is pool.get(Record(1, 256, 1))
    for peer in range(20):
        pool.get(Record(peer, 256, 1))
    assert len(pool._known) <= 4


def test_changes_of_one_node_between_two_rounds_become_one() -> None:
    made = history([("a", 0), ("b", 0), ("a", 0), ("a", 0)])
    gossip = Gossip(whole=False)
    for record, changes in made[1:]:
        gossip.changed(Known(record), record.version - 1, changes, None)
    [send] = gossip.round([Peer(1), Peer(2)])
    assert send.to == (1, 2)
    assert isinstance(send.message, News)
    [diff] = send.message.diffs
    assert isinstance(diff, Diff)
    assert (diff.base, diff.version) == (1, 5)
    assert len(diff.changes) == 2 * 12
    assert not gossip
    assert gossip.round([Peer(1)]) == []


def test_lone_changes_of_several_nodes_share_a_message() -> None:
    gossip = Gossip(whole=False)
    for peer in (11, 12, 13):
        gossip.changed(Known(Record(peer, 256, 5)), 4, flip_changes(1, 0), Peer(99))
    [send] = gossip.round([Peer(1), Peer(99)])
    # The node that told it is not told it.
    assert send.to == (1,)
    assert isinstance(send.message, Flips)
    assert [lone.peer for lone in send.message.flips] == [11, 12, 13]


def test_more_touched_topics_than_a_change_may_hold_go_as_the_whole_record() -> None:
    gossip = Gossip(whole=False)
    record = Record(7, 256, 1)
    for version in (2, 3):
        names = range((version - 2) * TOPICS_MAX, (version - 1) * TOPICS_MAX)
        changes = b"".join(n.to_bytes(TOPIC, "big") + LEFT for n in names)
        record = apply(record, version, changes)
        gossip.changed(Known(record), version - 1, changes, None)
    [send] = gossip.round([Peer(1)])
    assert isinstance(send.message, News)
    assert (len(send.message.diffs), send.message.records) == (0, (record,))
