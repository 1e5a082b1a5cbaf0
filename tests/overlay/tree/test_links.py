"""Links one by one: they are dialled, used, and closed when nobody needs them.

Messages wait for a link.
"""

from __future__ import annotations

from gossamer.machine import NEVER, Dial, Hangup, LinkState, Micros, Note, Peer, Send
from gossamer.overlay.tree.arcs import Arc, Host
from gossamer.overlay.tree.config import TreeConfig
from gossamer.overlay.tree.links import QUEUE_MAX, Links
from gossamer.overlay.tree.messages import Attach, Laid, Notice

A, B = Host(1, 10, "a"), Host(2, 20, "b")
CONFIG = TreeConfig(bits=8)


def linked() -> Links:
    links = Links(A.to, CONFIG, [])
    links.link(B.to, LinkState.UP, Micros(0))
    return links


def take(links: Links) -> list:
    out = links.out.copy()
    links.out.clear()
    return [effect.message for effect in out if isinstance(effect, Send)]


def test_what_is_said_goes_over_the_link_once_and_nothing_is_said_without_one() -> None:
    links = linked()
    assert links.say(B.to, Laid(1), Micros(1))
    links.send(B, Laid(2), Micros(1))
    assert take(links) == [Laid(1), Laid(2)]
    links.wake(Micros(CONFIG.idle - 1))
    assert take(links) == []
    links.link(B.to, LinkState.DOWN, Micros(CONFIG.idle))
    assert not links.say(B.to, Laid(3), Micros(CONFIG.idle))
    assert not links.heard(B.to, Micros(CONFIG.idle))
    assert links.out == []


def test_a_host_that_cannot_be_reached_is_given_up_after_some_tries() -> None:
    links = Links(A.to, CONFIG, [])
    links.send(B, Notice(), Micros(0))
    now, dials = Micros(0), 0
    while not links.failed:
        dials += sum(isinstance(effect, Dial) for effect in links.out)
        links.out.clear()
        now = links.deadline
        links.wake(now)
    assert dials == CONFIG.dial_tries
    assert links.failed == [B.to]
    assert now == CONFIG.dial_tries * CONFIG.dial_wait


def test_what_waited_for_a_link_goes_over_it_when_it_comes_up() -> None:
    links = Links(A.to, CONFIG, [])
    links.send(B, Laid(1), Micros(0))
    links.send(B, Laid(2), Micros(0))
    assert [type(effect) for effect in links.out] == [Dial]
    links.link(B.to, LinkState.UP, Micros(5))
    assert take(links) == [Laid(1), Laid(2)]


def test_who_is_no_neighbour_any_longer_is_still_told_what_others_said_or_given_up() -> None:
    links = Links(A.to, CONFIG, [])
    links.send(B, Attach(Arc(2, A), above=True, heard=False), Micros(0))
    links.forget(B.to)
    links.wake(Micros(CONFIG.dial_wait * CONFIG.dial_tries))
    assert links.deadline == NEVER, "nobody wants it"
    links.send(B, Attach(Arc(2, A), above=True, heard=False), Micros(0))
    links.send(B, Laid(1), Micros(0))
    links.forget(B.to)
    while not links.failed:
        assert links.deadline != NEVER, "a verdict is still to come"
        links.wake(links.deadline)
    assert links.failed == [B.to]
    links.send(B, Attach(Arc(2, A), above=True, heard=False), Micros(0))
    links.send(B, Laid(1), Micros(0))
    links.forget(B.to)
    links.link(B.to, LinkState.UP, Micros(5))
    assert take(links) == [Laid(1)]


def test_a_silent_link_is_closed_unless_somebody_needs_it() -> None:
    for kept in (False, True):
        links = linked()
        links.kept = lambda _peer, kept=kept: kept
        links.wake(Micros(CONFIG.idle))
        assert [effect for effect in links.out if isinstance(effect, Hangup)] == (
            [] if kept else [Hangup(Peer(20))]
        )


def test_what_comes_over_a_link_is_use_of_it() -> None:
    links = linked()
    assert links.heard(B.to, Micros(CONFIG.idle - 1))
    links.wake(Micros(CONFIG.idle))
    assert links.out == []
    links.wake(links.deadline)
    assert links.out == [Hangup(B.to)]


def test_what_does_not_fit_into_the_queue_is_counted() -> None:
    links = Links(A.to, CONFIG, [])
    for number in range(QUEUE_MAX + 3):
        links.send(B, Laid(number), Micros(0))
    assert links.dropped == 3
    assert sum(isinstance(effect, Note) for effect in links.out) == 3
    links.link(B.to, LinkState.UP, Micros(1))
    assert [message.version for message in take(links)] == list(range(3, QUEUE_MAX + 3))
