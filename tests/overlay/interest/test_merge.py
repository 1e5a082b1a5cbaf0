"""Views merge: only the news counts, and not its order, its number of copies or its bringer."""

from __future__ import annotations

from itertools import permutations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.machine import LinkState, Micros, Peer
from gossamer.overlay.interest.core import Interest
from gossamer.overlay.interest.gossip import flip_changes, pack
from gossamer.overlay.interest.messages import AskRecords, Diff, Flip, News
from gossamer.overlay.interest.names import Names
from gossamer.overlay.interest.own import Own
from gossamer.overlay.interest.record import Known, Record, make_stamp
from worldnet import sends, single

# All tests together take seconds.
pytestmark = pytest.mark.slow

FRIEND = Peer(50)
ME = 60


def observer() -> Interest:
    machine = single(ME)
    machine.link(FRIEND, LinkState.UP, Micros(0))
    return machine


def hear(machine: Interest, *messages: object) -> None:
    for message in messages:
        machine.receive(FRIEND, message, Micros(0))


def state(machine: Interest) -> dict[Peer, Record]:
    """All that is known of others. The sums that are kept along the way are those of the view."""
    members = machine.view.members
    digest = total = pairs = 0
    for known in members.values():
        assert known.digest == Known(known.record).digest
        digest, total, pairs = (
            digest ^ known.digest,
            (total + known.spread) % 2**64,
            pairs + known.record.count,
        )
    assert (machine.view.digest, machine.view.total, machine.view.pairs) == (digest, total, pairs)
    parts = 0
    for part in machine.view.bucket_digests(256):
        parts ^= part
    assert parts == digest
    return {peer: known.record for peer, known in members.items() if peer != ME}


@st.composite
def any_record(draw: st.DrawFn) -> Record:
    """Few peers, lives and versions.

    Records of the same version that differ come up as well, as two processes make them.
    """
    topics = sorted(draw(st.sets(st.integers(0, 3), max_size=3)))
    packed = b"".join(topic.to_bytes(8, "big") for topic in topics)
    stamps = b"".join(make_stamp(draw(st.integers(0, 2))) for _ in topics)
    peer, life, version = (
        draw(st.integers(1, 3)),
        draw(st.integers(256, 258)),
        draw(st.integers(1, 3)),
    )
    return Record(peer, life, version, "", packed, stamps)


@settings(deadline=None)
@given(st.lists(any_record(), min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_records_in_any_order_and_number_make_equal_views(
    records: list[Record], rng: Random
) -> None:
    one, two = observer(), observer()
    hear(one, *[News(records=(record,)) for record in records])
    again = records + rng.choices(records, k=len(records))
    rng.shuffle(again)
    hear(two, News(records=tuple(again)))
    assert state(one) == state(two)
    best = {
        record.peer: max(Known(r).order for r in records if r.peer == record.peer)
        for record in records
    }
    assert {peer: known.order for peer, known in one.view.members.items() if peer != ME} == best


def merge(*parts: list[Record]) -> dict[Peer, Record]:
    """A view that has been sent some views, one after the other."""
    machine = observer()
    for part in parts:
        hear(machine, *pack(part))
    return state(machine)


@settings(deadline=None)
@given(*[st.lists(any_record(), max_size=5)] * 3)
def test_merging_is_commutative_associative_and_idempotent(
    a: list[Record], b: list[Record], c: list[Record]
) -> None:
    first, second, third = (list(merge(part).values()) for part in (a, b, c))
    whole = merge(first, second, third)
    for turned in permutations((first, second, third)):
        assert merge(*turned) == whole
    left, right = list(merge(first, second).values()), list(merge(second, third).values())
    assert merge(left, third) == merge(first, right) == whole
    assert merge(list(whole.values()), list(whole.values()), first) == whole


@st.composite
def stories(draw: st.DrawFn) -> tuple[list[Record], list[object]]:
    """The last records of some owners, and messages about the way there.

    These are whole records, changes over any stretch, and lone changes.
    """
    finals, messages = [], []
    for peer in (1, 2):
        own = Own(Peer(peer), 1, 0, "", Names())
        made = [own.record]
        touched: list[bytes] = [b""]
        wanted: set[str] = set()
        for topic in draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=8)):
            changes = own.part(topic, 0, "user") if topic in wanted else own.join(topic, 0, "user")
            wanted ^= {topic}
            made.append(own.change(changes)[0])
            touched.append(changes)
        for base in range(len(made) - 1):
            for stop in range(base + 1, len(made)):
                changes = b"".join({c[:8]: c for c in touched[base + 1 : stop + 1]}.values())
                messages.append(
                    News(diffs=(Diff(peer, 256, made[stop].version, made[base].version, changes),))
                )
            topic, stamp = (
                int.from_bytes(touched[base + 1][:8], "big"),
                int.from_bytes(touched[base + 1][8:], "big"),
            )
            messages.append(
                Flip(peer, 256, made[base + 1].version, topic, -1 if stamp == 2**32 - 1 else stamp)
            )
        messages += [News(records=(record,)) for record in made]
        finals.append(own.record)
    return finals, messages


@settings(max_examples=150, deadline=None)
@given(stories(), st.data())
def test_changes_and_records_in_any_order_never_make_a_state_that_was_not(
    story: tuple[list[Record], list[object]], data: st.DataObject
) -> None:
    """A node that misses the base of a change asks for the whole. Once answered, all are equal."""
    finals, messages = story
    order = data.draw(st.lists(st.sampled_from(messages), max_size=20))
    true = {(r.peer, r.version): r for m in messages if isinstance(m, News) for r in m.records}
    machine = observer()
    for message in order:
        asked = [
            m
            for m in sends(machine.receive(FRIEND, message, Micros(0)))
            if isinstance(m, AskRecords)
        ]
        for record in state(machine).values():
            assert record == true[record.peer, record.version]
        for ask in asked:
            wanted = int.from_bytes(ask.peers, "big")
            hear(machine, News(records=tuple(r for r in finals if r.peer == wanted)))
    hear(machine, News(records=tuple(finals)))
    assert state(machine) == {Peer(record.peer): record for record in finals}


def test_a_lone_change_is_the_same_as_that_change_among_others() -> None:
    base = Record(1, 256, 4)
    one, two = observer(), observer()
    hear(one, News(records=(base,)), Flip(1, 256, 5, 77, 3))
    hear(two, News(records=(base,)), News(diffs=(Diff(1, 256, 5, 4, flip_changes(77, 3)),)))
    assert state(one) == state(two)
    assert state(one)[Peer(1)].version == 5
