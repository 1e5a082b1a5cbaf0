"""Links one by one: numbered, acknowledged, repeated; in order and once, whatever happens to the messages in between."""

from __future__ import annotations

from random import Random

import pytest

from gossamer.machine import NEVER, Dial, Hangup, LinkState, Micros, Note, Peer, Send
from gossamer.overlay.tree.arcs import Arc, Host
from gossamer.overlay.tree.config import TreeConfig
from gossamer.overlay.tree.links import AHEAD_MAX, QUEUE_MAX, Links
from gossamer.overlay.tree.messages import Attach, Got, Laid, Notice, Parcel

A, B = Host(1, 10, "a"), Host(2, 20, "b")
CONFIG = TreeConfig(bits=8)


def pair() -> tuple[Links, Links]:
    one, other = Links(A.to, CONFIG), Links(B.to, CONFIG)
    one.link(B.to, LinkState.UP, Micros(0))
    other.link(A.to, LinkState.UP, Micros(0))
    return one, other


def take(links: Links) -> list:
    out, links.out = links.out, []
    return [effect.message for effect in out if isinstance(effect, Send)]


def test_what_is_posted_arrives_in_order_and_once_though_half_is_lost() -> None:
    rng = Random(1)
    one, other = pair()
    now, arrived = 0, []
    for number in range(60):
        one.post(B, Laid(number), Micros(now))
    while len(arrived) < 60 or one.up[B.to].out:
        due = min(one.deadline, other.deadline)
        assert due != NEVER
        now = max(now + 1, due)
        for sender, receiver, peer in ((one, other, A), (other, one, B)):
            sender.wake(Micros(now))
            messages = [
                message for message in take(sender) for _ in range(1 + (rng.random() < 0.2))
            ]
            for message in sorted(messages, key=lambda _: rng.random()):
                if rng.random() < 0.5:
                    arrived += [
                        body.version
                        for body in receiver.receive(peer.to, message, Micros(now))
                        if receiver is other
                    ]
    assert arrived == list(range(60))
    assert one.retransmitted > 20
    assert one.rejected == other.rejected == 0


def test_nothing_is_repeated_once_it_is_acknowledged() -> None:
    one, other = pair()
    one.post(B, Notice(), Micros(0))
    (parcel,) = take(one)
    assert other.receive(A.to, parcel, Micros(1)) == [Notice()]
    other.wake(Micros(1 + CONFIG.acknowledge))
    (got,) = take(other)
    assert got == Got(1)
    one.receive(B.to, got, Micros(20_000))
    one.wake(Micros(CONFIG.resend * 8))
    assert take(one) == []
    assert one.retransmitted == 0


def test_an_acknowledgement_travels_with_what_goes_the_other_way() -> None:
    one, other = pair()
    one.post(B, Notice(), Micros(0))
    other.receive(A.to, take(one)[0], Micros(1))
    other.post(A, Laid(1), Micros(2))
    assert take(other) == [Parcel(0, 1, Laid(1))]
    other.wake(Micros(2 + CONFIG.acknowledge))
    assert take(other) == []


def test_a_host_that_cannot_be_reached_is_given_up_after_some_tries() -> None:
    links = Links(A.to, CONFIG)
    links.post(B, Notice(), Micros(0))
    now, dials = Micros(0), 0
    while not links.failed:
        dials += sum(isinstance(effect, Dial) for effect in links.out)
        links.out = []
        now = links.deadline
        links.wake(now)
    assert dials == CONFIG.dial_tries
    assert links.failed == [B.to]
    assert now == CONFIG.dial_tries * CONFIG.dial_wait


def test_what_waited_for_a_link_goes_over_it_when_it_comes_up() -> None:
    links = Links(A.to, CONFIG)
    links.post(B, Laid(1), Micros(0))
    links.post(B, Laid(2), Micros(0))
    assert [type(effect) for effect in links.out] == [Dial]
    links.link(B.to, LinkState.UP, Micros(5))
    assert take(links) == [Parcel(0, 0, Laid(1)), Parcel(1, 0, Laid(2))]


def test_who_is_no_neighbour_any_longer_is_still_told_what_others_said_or_given_up() -> None:
    links = Links(A.to, CONFIG)
    links.post(B, Attach(Arc(2, A), above=True, heard=False), Micros(0))
    links.forget(B.to)
    links.wake(Micros(CONFIG.dial_wait * CONFIG.dial_tries))
    assert links.deadline == NEVER, "nobody wants it"
    links.post(B, Attach(Arc(2, A), above=True, heard=False), Micros(0))
    links.post(B, Laid(1), Micros(0))
    links.forget(B.to)
    while not links.failed:
        assert links.deadline != NEVER, "a verdict is still to come"
        links.wake(links.deadline)
    assert links.failed == [B.to]
    links.post(B, Attach(Arc(2, A), above=True, heard=False), Micros(0))
    links.post(B, Laid(1), Micros(0))
    links.forget(B.to)
    links.link(B.to, LinkState.UP, Micros(5))
    assert take(links) == [Parcel(0, 0, Laid(1))]


def test_a_silent_link_is_closed_unless_somebody_needs_it() -> None:
    for kept in (False, True):
        links, _ = pair()
        links.kept = lambda _peer, kept=kept: kept
        links.wake(Micros(CONFIG.idle))
        assert [effect for effect in links.out if isinstance(effect, Hangup)] == (
            [] if kept else [Hangup(Peer(20))]
        )


def test_a_neighbour_that_acknowledges_nothing_is_cut_off_when_the_window_is_full() -> None:
    links, _ = pair()
    for number in range(CONFIG.unacknowledged_max + 1):
        links.post(B, Laid(number), Micros(0))
    assert Hangup(B.to) in links.out


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Got(1), "an acknowledgement of what was never sent"),
        (Parcel(0, 9, Notice()), "an acknowledgement of what was never sent"),
        (Parcel(AHEAD_MAX, 0, Notice()), "a message numbered too far ahead"),
    ],
)
def test_forged_numbers_are_rejected_and_change_nothing(message, reason: str) -> None:
    links, _ = pair()
    assert links.receive(B.to, message, Micros(1)) == []
    assert [effect.record.reason for effect in links.out] == [reason]
    assert links.rejected == 1
    assert links.receive(B.to, Parcel(0, 0, Notice()), Micros(2)) == [Notice()]


def test_a_new_link_begins_anew() -> None:
    one, other = pair()
    one.post(B, Laid(1), Micros(0))
    for links, peer in ((one, B), (other, A)):
        links.link(peer.to, LinkState.DOWN, Micros(1))
        links.link(peer.to, LinkState.UP, Micros(2))
    one.out = []
    one.post(B, Laid(2), Micros(3))
    assert take(one) == [Parcel(0, 0, Laid(2))]
    one.wake(Micros(10 * CONFIG.resend))
    assert {message.body.version for message in take(one)} == {2}


def test_what_does_not_fit_into_the_queue_is_counted() -> None:
    links = Links(A.to, CONFIG)
    for number in range(QUEUE_MAX + 3):
        links.post(B, Laid(number), Micros(0))
    assert links.dropped == 3
    assert sum(isinstance(effect, Note) for effect in links.out) == 3
    links.link(B.to, LinkState.UP, Micros(1))
    assert [message.body.version for message in take(links)] == list(range(3, QUEUE_MAX + 3))
