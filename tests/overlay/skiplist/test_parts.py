"""Leases, marks, lines and the tables of events, each by itself."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from gossamer.machine import SECOND, Dial, Hangup, LinkState, Micros, Peer, Send
from gossamer.overlay.skiplist.config import SkipConfig
from gossamer.overlay.skiplist.core import SkipList, SkipListError
from gossamer.overlay.skiplist.entry import Entry
from gossamer.overlay.skiplist.host import Host
from gossamer.overlay.skiplist.leases import Leases
from gossamer.overlay.skiplist.lines import IDLE, PATIENCE, Lines
from gossamer.overlay.skiplist.marks import Marks, merge_ranges
from gossamer.overlay.skiplist.messages import (
    Absent,
    Gap,
    Gossip,
    Item,
    Mark,
    Revoke,
    Revoked,
    SkiplistMessage,
)
from gossamer.overlay.skiplist.position import Position

ME, OTHER = Peer(1), Peer(2)


def place(number: int, peer: int = 1) -> Position:
    return bytes([number]), peer


def make_host(**config: int | str) -> Host:
    lines = Lines(ME, lambda peer: f"at-{peer}")
    lines.up[OTHER] = Micros(0)
    return Host(ME, 0, SkipConfig(**config), Random(1), lines, list)  # type: ignore[arg-type]


def joined(host: Host, number: int, left: int, right: int) -> Entry:
    entry = Entry(place(number), host.config, host.rng)
    entry.is_placed = entry.is_joined = True
    entry.put(0, False, place(left, 2), Micros(0)).sure = True
    entry.put(0, True, place(right, 2), Micros(0)).sure = True
    host.entries[entry.at[0]] = entry
    return entry


class TestLeases:
    def test_a_gap_is_held_until_the_lease_ends(self) -> None:
        leases = Leases(make_host(lease=10 * SECOND))
        leases.hold(Gap(place(3), place(7), place(3), 1), Micros(0), Micros(SECOND))
        assert leases.is_held(place(4, 0), place(5, 0), Micros(9 * SECOND))
        assert not leases.is_held(place(7, 0), place(8, 0), Micros(9 * SECOND))
        assert not leases.is_held(place(4, 0), place(5, 0), Micros(10 * SECOND)), (
            "counted from when the event was sent"
        )

    def test_the_gap_across_the_ends_of_the_order(self) -> None:
        leases = Leases(make_host())
        leases.hold(Gap(place(9), place(2), place(9), 1), Micros(0), Micros(1))
        assert leases.is_held(place(200, 0), place(201, 0), Micros(2))
        assert leases.is_held(place(0, 0), place(1, 0), Micros(2))
        assert not leases.is_held(place(5, 0), place(6, 0), Micros(2))

    def test_a_revocation_may_overtake_the_report(self) -> None:
        leases = Leases(make_host())
        leases.receive_revoke(2, Revoke(0, place(3, 2), 5), Micros(1))
        leases.hold(Gap(place(3, 2), place(7), place(3, 2), 5), Micros(0), Micros(2))
        assert not leases.is_held(place(4, 0), place(5, 0), Micros(3))
        leases.hold(Gap(place(3, 2), place(7), place(3, 2), 6), Micros(2), Micros(3))
        assert leases.is_held(place(4, 0), place(5, 0), Micros(4)), "a later lease stands"

    def test_clear_when_every_lessee_has_answered_or_is_outlived(self) -> None:
        host = make_host(lease=10 * SECOND)
        entry, leases = joined(host, 3, 1, 7), Leases(host)
        gap = leases.grant(entry, True, 2, Micros(0))
        assert gap == Gap(place(3), place(7, 2), place(3), 1)
        leases.void(entry, True, Micros(1))
        assert [effect.message for effect in host.out if isinstance(effect, Send)] == [
            Revoke(0, place(3), 1)
        ]
        assert not leases.is_clear(entry, True, Micros(2))
        assert leases.receive_revoked(2, Revoked(0, place(3), 0), Micros(2)) is None, (
            "the answer to an earlier one"
        )
        assert leases.receive_revoked(2, Revoked(0, place(3), 1), Micros(3)) is entry
        assert leases.is_clear(entry, True, Micros(3))
        leases.grant(entry, True, 2, Micros(4))
        leases.void(entry, True, Micros(5))
        assert not leases.is_clear(entry, True, Micros(9 * SECOND))
        assert leases.is_clear(entry, True, Micros(11 * SECOND)), "the lease has run out"

    def test_the_heir_of_a_dead_neighbour_waits_for_leases_it_does_not_know(self) -> None:
        host = make_host()
        entry, leases = joined(host, 3, 1, 7), Leases(host)
        entry.free_right_at = Micros(100)
        assert not leases.is_clear(entry, True, Micros(99))
        assert leases.is_clear(entry, False, Micros(99))
        assert leases.is_clear(entry, True, Micros(100))

    def test_a_newcomer_says_clear_only_of_what_it_has_been_told(self) -> None:
        host = make_host()
        entry, leases = joined(host, 3, 1, 7), Leases(host)
        entry.is_joined = False
        assert not leases.is_clear(entry, True, Micros(1)), (
            "somebody may rely on a gap around it that is older than it"
        )
        entry.cleared_left = True
        assert leases.is_clear(entry, True, Micros(1))
        assert not leases.is_clear(entry, False, Micros(1))

    def test_no_lease_from_an_entry_that_has_not_joined(self) -> None:
        host = make_host()
        entry = joined(host, 3, 1, 7)
        entry.is_joined = False
        assert Leases(host).grant(entry, True, 2, Micros(0)) is None


class TestMarks:
    def test_covering_and_merging(self) -> None:
        assert merge_ranges([(b"a", b"c"), (b"b", b"d"), (b"x", b"y")]) == [
            (b"a", b"d"),
            (b"x", b"y"),
        ]
        host = make_host(ranges="entries")
        entry, marks = joined(host, 50, 40, 60), Marks(host)
        wide, narrow = (
            Mark(bytes([10]), bytes([90]), place(10, 9), 1),
            Mark(bytes([20]), bytes([70]), place(20, 9), 2),
        )
        assert marks.keep(entry, (wide, narrow), Micros(0))
        assert list(entry.marks) == [place(10, 9)], (
            "of one node's ranges, the covered one is not kept"
        )
        other = Mark(bytes([20]), bytes([70]), place(20, 8), 1)
        marks.keep(entry, (other,), Micros(0))
        assert marks.owners(entry, bytes([55])) == [place(10, 9), place(20, 8)], (
            "of another node it is"
        )

    def test_a_mark_stops_at_the_first_entry_beyond(self) -> None:
        host = make_host(ranges="entries")
        entry, marks = joined(host, 50, 40, 60), Marks(host)
        inside, beyond = (
            Mark(bytes([10]), bytes([55]), place(10, 9), 1),
            Mark(bytes([10]), bytes([45]), place(10, 8), 1),
        )
        marks.keep(entry, (inside, beyond), Micros(0))
        assert len(entry.marks) == 2, "p, the smallest above v2, performs task 2"
        assert marks.to_pass_on(entry, place(60, 2), Micros(0)) == (inside,), "and not task 1"
        assert marks.to_pass_on(entry, place(2, 2), Micros(0)) == (), (
            "nothing goes from the last entry to the first"
        )

    def test_unsubscribing_removes_and_silence_too(self) -> None:
        host = make_host(ranges="entries")
        entry, marks = joined(host, 50, 40, 60), Marks(host)
        mark = Mark(bytes([10]), bytes([90]), place(10, 9), 1)
        marks.keep(entry, (mark,), Micros(0))
        marks.keep(entry, (Mark(mark.low, mark.high, mark.owner, 2, True),), Micros(1))
        assert marks.owners(entry, bytes([55])) == []
        assert not marks.keep(entry, (mark,), Micros(2)), "the older word does not bring it back"
        assert marks.owners(entry, bytes([55])) == []
        marks.keep(entry, (Mark(mark.low, mark.high, place(11, 9), 1),), Micros(3))
        marks.to_pass_on(entry, place(60, 2), Micros(10 * SECOND))
        assert not entry.marks


class TestLines:
    def test_messages_wait_for_the_line(self) -> None:
        lines = Lines(ME, lambda peer: f"at-{peer}")
        message = Absent(0, place(1))
        assert lines.send(OTHER, message, Micros(0)) == [Dial("at-2", OTHER)]
        assert lines.send(OTHER, message, Micros(1)) == []
        assert lines.opened(OTHER, Micros(2)) == [Send((OTHER,), message)] * 2
        assert lines.send(OTHER, message, Micros(3)) == [Send((OTHER,), message)]

    def test_who_cannot_be_reached_is_told_of(self) -> None:
        lines = Lines(ME, lambda peer: f"at-{peer}")
        lines.send(OTHER, Absent(0, place(1)), Micros(0))
        effects, lost = lines.wake(Micros(SECOND))
        assert (effects, lost) == ([Dial("at-2", OTHER)], [])
        assert lines.wake(Micros(PATIENCE)) == ([], [OTHER])
        assert lines.dropped == 1

    def test_idle_lines_are_closed_by_who_dialled(self) -> None:
        lines = Lines(ME, lambda peer: f"at-{peer}", hangs_up=True)
        lines.send(OTHER, Absent(0, place(1)), Micros(0))
        lines.opened(OTHER, Micros(1))
        # Dialled by the other side.
        lines.opened(Peer(3), Micros(1))
        assert lines.wake(Micros(IDLE + 2))[0] == [Hangup(OTHER)]


def lone(**config: int) -> SkipList:
    return SkipList(
        ME, incarnation=1, rng=Random(1), config=SkipConfig(**config),
        arrive=lambda *_, **__: (), complete=lambda _: None,
        address=lambda _: None,
        contacts=list,
    )  # fmt: skip


def test_misuse_raises() -> None:
    machine = lone(entries_max=2)
    machine.enter(b"a", Micros(0))
    with pytest.raises(SkipListError, match="share one entry"):
        machine.enter(b"a", Micros(0))
    machine.enter(b"b", Micros(0))
    with pytest.raises(SkipListError, match="at most 2 entries"):
        machine.enter(b"c", Micros(0))
    with pytest.raises(SkipListError, match="no such entry"):
        machine.withdraw(b"z", Micros(0))
    with pytest.raises(SkipListError, match="at most 4096"):
        lone().enter(bytes(5_000), Micros(0))


def test_messages_in_anothers_name_are_refused_and_counted() -> None:
    machine = lone()
    machine.enter(b"m", Micros(0))
    machine.wake(Micros(0))
    machine.link(OTHER, LinkState.UP, Micros(0))
    machine.receive(OTHER, Gossip(0, b"m", 0, (Item((b"a", 99), 0),)), Micros(1))
    assert machine.counters["rejected"] == 1
    assert machine.entries[b"m"].left == machine.entries[b"m"].at
    machine.receive(OTHER, Gossip(0, b"m", 0, (Item((b"a", 2), 0),)), Micros(1))
    assert machine.entries[b"m"].left == (b"a", 2)


def test_what_a_peer_may_not_send_does_not_decode() -> None:
    encode, decode = msgspec.msgpack.encode, msgspec.msgpack.Decoder(SkiplistMessage).decode
    good = Gossip(0, b"m", 0, (Item((b"a", 2), 0),))
    assert decode(encode(good)) == good
    many = Gossip(0, b"m", 0, tuple(Item((bytes([n]), 2), 0) for n in range(17)))
    for bad in (
        many, Gossip(0, b"m", 64, good.items), Gossip(0, bytes(5_000), 0, good.items),
        Gossip(0, b"m", 0, ()),
        Gossip(0, b"m", 0, (Item((b"a", 2), 16),)), Gossip(0, b"m", -1, good.items),
    ):  # fmt: skip
        with pytest.raises(msgspec.ValidationError):
            decode(encode(bad))


def test_a_verdict_is_as_good_as_a_broken_line() -> None:
    machine = lone()
    machine.enter(b"m", Micros(0))
    machine.wake(Micros(0))
    machine.link(OTHER, LinkState.UP, Micros(0))
    machine.receive(OTHER, Gossip(0, b"m", 0, (Item((b"a", 2), 0),)), Micros(1))
    assert machine.wanted == [OTHER]
    machine.dead(OTHER, Micros(2))
    assert machine.wanted == []
