"""Routes of one host: its messages about the filters behind it."""

from __future__ import annotations

import pytest

from gossamer.filters import Schema
from gossamer.machine import NEVER, Effect, LinkState, Micros, Peer, Send
from gossamer.overlay.tree.arcs import Arc, Host
from gossamer.overlay.tree.config import TreeConfig
from gossamer.overlay.tree.content import SchemaContent
from gossamer.overlay.tree.host import TreeHost
from gossamer.overlay.tree.links import Links
from gossamer.overlay.tree.messages import Announce, Attach, Laid
from gossamer.overlay.tree.reference import ZeroTree
from gossamer.overlay.tree.ring import IdealRing, Members
from gossamer.overlay.tree.routes import Routes

# The parent, and a child.
UP, DOWN = Peer(40), Peer(120)
CONFIG = TreeConfig(bits=4)


class One:
    """Host 8, between its parent 4 and its child 12."""

    def __init__(self) -> None:
        members = Members(4, [Host(8, 80), Host(4, 40), Host(12, 120)])
        self.content = SchemaContent()
        self.content.learn("t", Schema.parse("a INT, b STRING"))
        self.links = Links(Peer(80), CONFIG, [])
        self.routes = Routes(IdealRing(members.hosts[8], members), CONFIG, self.links, self.content)
        for peer in (UP, DOWN):
            self.links.link(peer, LinkState.UP, Micros(0))
        self.routes.edges([UP, DOWN], [], UP, Micros(0))

    def told(self, peer: Peer) -> list[Announce]:
        sent = [e.message for e in self.links.out if isinstance(e, Send) and e.to == (peer,)]
        return [body for body in sent if type(body) is Announce]


def test_what_is_covered_is_left_out_and_comes_back() -> None:
    one = One()
    one.routes.subscribe(1, ("t", "a > 30"), Micros(1))
    one.routes.subscribe(2, ("t", "a > 10"), Micros(2))
    one.routes.subscribe(3, ("t", "b = 'x'"), Micros(3))
    assert one.told(UP)[-1].wishes == (("t", "a > 10"), ("t", "b = 'x'"))
    one.routes.unsubscribe(2, Micros(100_000))
    one.routes.wake(Micros(100_000 + CONFIG.settle))
    assert one.told(UP)[-1].wishes == (("t", "a > 30"), ("t", "b = 'x'"))


def test_a_subscription_is_laid_when_everybody_has_said_so() -> None:
    one = One()
    one.routes.subscribe(1, ("t", "a > 30"), Micros(1))
    assert one.routes.laid == []
    one.routes.on_laid(UP, Laid(one.told(UP)[-1].version), Micros(2))
    assert one.routes.laid == []
    one.routes.on_laid(DOWN, Laid(one.told(DOWN)[-1].version), Micros(3))
    assert one.routes.laid == [1]


def test_what_a_child_tells_goes_to_the_parent_and_not_back() -> None:
    one = One()
    before = len(one.told(DOWN))
    one.routes.announce(
        DOWN, Announce(5, ((8, 12),), False, False, True, (("t", "a = 1"),)), Micros(50_000)
    )
    assert one.told(UP)[-1].wishes == (("t", "a = 1"),)
    assert one.told(UP)[-1].pieces == ((4, 12),)
    assert len(one.told(DOWN)) == before


def test_hosts_that_do_not_agree_who_is_above_are_not_believed_yet() -> None:
    one = One()
    one.routes.announce(
        DOWN, Announce(5, ((12, 8),), False, False, False, (("t", "a = 1"),)), Micros(50_000)
    )
    assert one.routes.tables[DOWN] is None
    assert one.routes.turning == 1
    # It is the parent now, and is asked to tell again.
    one.routes.edges([UP, DOWN], [], DOWN, Micros(60_000))
    assert one.told(DOWN)[-1].again
    assert one.told(DOWN)[-1].below
    one.routes.announce(
        DOWN, Announce(6, ((12, 8),), False, False, False, (("t", "a = 1"),)), Micros(70_000)
    )
    assert one.routes.tables[DOWN] is not None


def test_too_many_filters_on_a_topic_are_the_topic() -> None:
    one = One()
    for number in range(CONFIG.filters_max + 1):
        one.routes.own[number] = ("t", f"a = {number}")
    one.routes.subscribe(999, ("u", "x"), Micros(1))
    assert one.told(UP)[-1].wishes == (("t", ""), ("u", "x"))


@pytest.mark.parametrize(
    ("count", "length"), [(CONFIG.wishes_max + 1, 1), (6, CONFIG.wishes_length_max // 5)]
)
def test_too_many_topics_or_too_long_texts_are_everything(count: int, length: int) -> None:
    one = One()
    for number in range(count):
        one.routes.own[number] = (f"topic {number}", "x" * length)
    one.routes.update(Micros(1), at_once=True)
    told = one.told(UP)[-1]
    assert told.everything
    assert told.wishes == ()


def test_quick_changes_travel_together() -> None:
    one = One()
    count = len(one.told(UP))
    for number in range(10):
        pieces = ((8, 9 + number % 4),)
        news = Announce(
            number + 1, pieces, False, False, True, tuple(("t", f"a = {n}") for n in range(number))
        )
        one.routes.announce(DOWN, news, Micros(50_000 + number))
    assert one.routes.deadline != NEVER
    one.routes.wake(Micros(50_000 + CONFIG.pace))
    assert len(one.told(UP)) == count + 2
    assert len(one.told(UP)[-1].wishes) == 9


def test_a_link_that_fades_answers_for_no_key_and_nothing_is_confirmed_meanwhile() -> None:
    one = One()
    one.routes.announce(
        DOWN, Announce(5, ((8, 12),), False, False, True, (("t", "a = 1"),)), Micros(50_000)
    )
    assert one.routes.tables[DOWN] is not None
    one.routes.edges([UP, DOWN], [DOWN], UP, Micros(60_000))
    assert one.routes.tables[DOWN] is None
    one.routes.announce(
        DOWN, Announce(6, ((8, 12),), False, False, True, (("t", "a = 2"),)), Micros(70_000)
    )
    assert one.routes.tables[DOWN] is None
    one.routes.subscribe(1, ("t", "a > 30"), Micros(80_000))
    one.routes.on_laid(UP, Laid(one.told(UP)[-1].version), Micros(90_000))
    assert one.routes.laid == []
    assert not one.routes.quiet
    one.routes.edges([UP], [], UP, Micros(100_000))
    one.routes.on_laid(UP, Laid(one.told(UP)[-1].version), Micros(110_000))
    assert one.routes.laid == [1]


def test_a_link_that_is_to_stay_after_all_is_told_before_a_subscription_counts() -> None:
    one = One()
    one.routes.edges([UP, DOWN], [DOWN], UP, Micros(60_000))
    one.routes.subscribe(1, ("t", "a > 30"), Micros(80_000))
    one.routes.on_laid(UP, Laid(one.told(UP)[-1].version), Micros(90_000))
    one.routes.edges([UP, DOWN], [], UP, Micros(100_000))
    assert one.told(DOWN)[-1].again
    assert one.routes.laid == []
    one.routes.on_laid(DOWN, Laid(one.told(DOWN)[-1].version), Micros(110_000))
    assert one.routes.laid == [1]


class Leaf:
    """A whole host, 8, whose only neighbour is its parent, 4."""

    def __init__(self) -> None:
        members = Members(4, [Host(8, 80, "a"), Host(4, 40, "b")])
        me = members.hosts[8]
        self.out: list[Effect] = []
        self.host = TreeHost(
            me, CONFIG, ZeroTree(4), lambda _: IdealRing(me, members), SchemaContent(),
            lambda *_: (), lambda *_: None, self.out,
        )  # fmt: skip
        self.host.wake(Micros(1))
        self.host.link(UP, LinkState.UP, Micros(1))
        self.hear(Attach(Arc(8, members.hosts[4]), True, True))

    def hear(self, body: Attach | Announce) -> list[object]:
        """What the host says to its parent when it hears this from it."""
        self.out.clear()
        self.host.receive(UP, body, Micros(2))
        return [e.message for e in self.out if isinstance(e, Send)]


def test_an_announcement_is_answered_that_comes_while_the_host_has_to_reckon_anew() -> None:
    leaf = Leaf()
    assert leaf.host.hood.agreed
    assert Laid(5) in leaf.hear(Announce(5, ((8, 4),), False, False, False, ()))
    # Somebody joins or leaves: the host reckons anew when it is called next.
    leaf.host.changed(6)
    assert not leaf.host.hood.agreed
    assert Laid(6) in leaf.hear(Announce(6, ((8, 4),), False, False, False, (("t", "a = 1"),)))
    assert leaf.host.hood.agreed
