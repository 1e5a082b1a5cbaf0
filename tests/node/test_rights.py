"""Permissions in the core, without sockets or real certificates: a certificate is its own text
here.
"""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from gossamer.machine import SECOND, Deliver, Effect, LinkState, Micros, Note, Peer, Send
from gossamer.node import NodeConfig, NodeCore
from gossamer.node.history import AskPast, Past
from gossamer.node.planes import Route
from gossamer.node.rights import Identity, NotPermittedError, Rights
from gossamer.node.topics import Advert, Adverts
from gossamer.overlay.batch import Batch, Group, Report
from gossamer.overlay.interest.config import InterestConfig
from gossamer.overlay.interest.messages import Greet, News
from gossamer.overlay.interest.record import Record
from gossamer.overlay.skiplist.messages import Carry, Part
from gossamer.overlay.skiplist.messages import Report as WalkReport
from gossamer.trace import Rejected

ME, NEXT, FAR = Peer(1), Peer(2), Peer(3)


def certificate(peer: int, publish: str = "*", subscribe: str = "*") -> bytes:
    return f"{peer} {publish} {subscribe}".encode()


def prove(data: bytes) -> Identity | None:
    try:
        peer, publish, subscribe = data.decode().split(" ")
        return Identity(
            Peer(int(peer)), f"n{peer}", int(peer), 0, 1, (publish,), (subscribe,), data
        )
    except ValueError:
        return None


def node(publish: str = "*", subscribe: str = "*", address: str = "") -> NodeCore:
    me = prove(certificate(ME, publish, subscribe))
    assert me is not None
    core = NodeCore(
        ME, incarnation=1, rng=Random(1), config=NodeConfig(interest=InterestConfig()),
        rights=Rights(me, prove, lambda identity: True), address=address,
    )  # fmt: skip
    core.wake(Micros(0))
    core.link(NEXT, LinkState.UP, Micros(1))
    return core


def record(peer: int, proof: bytes) -> Record:
    return Record(peer, 256, 1, "", certificate=proof)


def batch(publisher: int) -> Batch:
    return Batch("secret", publisher, 1, 1, 1, 1, 0, 1, msgspec.msgpack.encode([[7]]))


def delivered(effects: list[Effect]) -> list[Any]:
    return [event["n"] for effect in effects if type(effect) is Deliver for event in effect.events]


def rejected(effects: list[Effect]) -> list[str]:
    return [
        effect.record.reason
        for effect in effects
        if type(effect) is Note and type(effect.record) is Rejected
    ]


def subscribed(core: NodeCore) -> NodeCore:
    core.advertise("secret", "n INT", Micros(2))
    core.subscribe("secret", "", Micros(3), route=Route.FLOOD)
    core.wake(Micros(3))
    return core


def test_events_wait_for_their_publishers_certificate() -> None:
    core = subscribed(node())
    assert delivered(core.receive(NEXT, batch(FAR), Micros(10))) == []
    assert core.deadline < 1_000_000
    core.receive(NEXT, Greet(record(NEXT, certificate(NEXT)), 0, 2, True), Micros(20))
    effects = core.receive(NEXT, News(records=(record(FAR, certificate(FAR)),)), Micros(30))
    effects += core.wake(Micros(40_000))
    assert delivered(effects) == [7]
    reports = [
        effect.message
        for effect in effects
        if type(effect) is Send and type(effect.message) is Report
    ]
    assert [report.matched for report in reports] == [(1,)]
    assert delivered(core.receive(NEXT, batch(FAR), Micros(50_000))) == []


def test_events_of_a_publisher_that_nobody_proves_are_delivered_to_nobody_and_answered() -> None:
    core = subscribed(node())
    core.receive(NEXT, batch(FAR), Micros(10))
    seen: list[Effect] = []
    now = 10
    while now < 6 * SECOND:
        now = max(now + 1, min(core.deadline, 6 * SECOND))
        seen += core.wake(Micros(now))
    assert delivered(seen) == []
    assert any("nobody has proved" in reason for reason in rejected(seen))
    reports = [e.message for e in seen if type(e) is Send and type(e.message) is Report]
    assert [(report.matched, report.whole) for report in reports] == [((), False)]
    assert core.flood.remembered == 0


@pytest.mark.parametrize("is_proved", [True, False])
def test_a_walk_waits_for_the_proof_of_its_publisher_and_is_declined_without_it(
    is_proved: bool,
) -> None:
    core = node(address="here")
    now = 3
    core.advertise("secret", "n INT", Micros(2))
    core.subscribe("secret", "n = 7", Micros(now), route=Route.SKIPLIST)
    # Alone, the node need not wait for the word of another.
    core.link(NEXT, LinkState.DOWN, Micros(now))
    while core.deadline <= 2 * SECOND:
        now = core.deadline
        core.wake(Micros(now))
    assert core.skiplist is not None
    [key] = core.skiplist._by_name("secret", Micros(now)).machine.entries
    rows = msgspec.msgpack.encode([[7]] * 3)
    group = Group("secret", FAR, 1, 1, 3, 1, 0, 1, rows, b"", (1, 2, 4))
    core.link(NEXT, LinkState.UP, Micros(now))
    effects = core.receive(NEXT, Carry(group, (Part((key, 0), (key + b"x", 0), key),)), Micros(now))
    assert rejected(effects) == delivered(effects) == []
    assert core.skiplist.remembered == 0
    if is_proved:
        core.receive(NEXT, Greet(record(NEXT, certificate(NEXT)), 0, 2, True), Micros(now))
        news = News(records=(record(FAR, certificate(FAR)),))
        effects = core.receive(NEXT, news, Micros(now))
        effects += core.wake(Micros(now + 40_000))
    else:
        effects = []
        until = now + 6 * SECOND
        while core.deadline < until:
            now = max(now, core.deadline)
            effects += core.wake(Micros(now))
    assert delivered(effects) == [7, 7, 7] * is_proved
    reports = [e.message for e in effects if type(e) is Send and type(e.message) is WalkReport]
    assert [report.matched for report in reports] == ([(1,)] if is_proved else [()])
    assert [bool(report.covered) for report in reports] == [is_proved]
    assert core.skiplist.remembered == 3 * is_proved


def test_what_waits_for_proof_is_bounded() -> None:
    core = subscribed(node())
    rows = msgspec.msgpack.encode([[7]]) + bytes(1 << 20)
    declined = 0
    for first in range(1, 41):
        effects = core.receive(NEXT, Batch("secret", FAR, 1, first, 1, 1, 0, 1, rows), Micros(10))
        declined += sum(type(e) is Send and type(e.message) is Report for e in effects)
    assert declined == 39
    assert core.gate is not None
    assert core.gate._bytes <= 2 << 20
    assert core.flood.remembered == 0


def test_a_publisher_without_permission_is_refused_by_its_neighbour_and_ignored_by_all() -> None:
    core = subscribed(node())
    core.receive(NEXT, Greet(record(NEXT, certificate(NEXT, "other")), 0, 2, True), Micros(5))
    core.receive(NEXT, News(records=(record(FAR, certificate(FAR, "other")),)), Micros(6))
    direct = core.receive(NEXT, batch(NEXT), Micros(10))
    assert rejected(direct) == ["events on 'secret', to which it may not publish"]
    assert [effect for effect in direct if type(effect) is Send] == []
    relayed = core.receive(NEXT, batch(FAR), Micros(11))
    assert delivered(relayed) == []
    # No node waits for us.
    assert [
        e.message.matched for e in relayed if type(e) is Send and type(e.message) is Report
    ] == [()]
    assert core.rights is not None
    assert core.rights.refused == 2


def test_the_past_is_for_those_who_may_subscribe_and_of_those_who_may_publish() -> None:
    core = subscribed(node())
    core.receive(
        NEXT, Greet(record(NEXT, certificate(NEXT, "other", "other")), 0, 2, True), Micros(5)
    )
    asked = core.receive(NEXT, AskPast("secret", 1, 1, (0, 0), 0, True), Micros(10))
    assert rejected(asked) == ["asks for the past of 'secret', to which it may not subscribe"]
    assert not [effect for effect in asked if type(effect) is Send]
    told = core.receive(
        NEXT, Past("secret", 1, 1, (), (0, 0), True, (0, 0), 0, (1, 1), (0, 0), 0), Micros(11)
    )
    assert rejected(told) == ["events on 'secret', to which it may not publish"]


@pytest.mark.parametrize("proof", [b"", b"nonsense", certificate(FAR)])
def test_a_record_without_its_own_certificate_is_no_record(proof: bytes) -> None:
    core = node()
    effects = core.receive(NEXT, Greet(record(NEXT, proof), 0, 2, True), Micros(5))
    assert rejected(effects) == ["a record that its node has not signed"]
    assert core.interest is not None
    assert list(core.interest.view.members) == [ME]


def test_a_certificate_of_more_bytes_than_a_record_holds_is_none() -> None:
    rights = Rights(prove(certificate(ME)), prove, lambda identity: True)  # type: ignore[arg-type]
    assert not rights.learn(FAR, certificate(FAR, "x" * 4096))
    assert rights.learn(FAR, certificate(FAR))


def test_time_passes_and_verdicts_with_it() -> None:
    good = {FAR: True}
    rights = Rights(prove(certificate(ME)), prove, lambda identity: good.get(identity.peer, True))  # type: ignore[arg-type]
    rights.learn(FAR, certificate(FAR))
    assert rights.may_publish(FAR, "x")
    good[FAR] = False
    rights.changed()
    assert not rights.may_publish(FAR, "x")
    assert not rights.may_subscribe(FAR, "x")


def test_interests_without_permission_are_no_reason_to_take_a_route() -> None:
    core = subscribed(node())
    core.receive(NEXT, Greet(record(NEXT, certificate(NEXT)), 0, 2, True), Micros(5))
    names = core.interest.names  # type: ignore[union-attr]
    hash = names.hash("secret")
    # This one comes by the tree.
    wants = Record(FAR, 256, 1, "", hash, b"\0\0\0\4", b"", certificate(FAR, "*", "other"))
    core.receive(NEXT, News(records=(wants,)), Micros(6))
    assert Route.TREE not in core.routing._routes("secret")
    allowed = Record(FAR, 256, 2, "", hash, b"\0\0\0\4", b"", certificate(FAR, "*", "sec*"))
    core.receive(NEXT, News(records=(allowed,)), Micros(7))
    core.wake(Micros(8))
    assert Route.TREE in core.routing._routes("secret")


def test_the_holder_is_told_first() -> None:
    core = node("a.*", "b.*")
    core.advertise("a.x", "n INT", Micros(2))
    for call in (
        lambda: core.advertise("c", "n INT", Micros(3)),
        lambda: core.publish("b.x", {"n": 1}, Micros(3)),
        lambda: core.subscribe("a.x", "", Micros(3)),
    ):
        with pytest.raises(NotPermittedError, match=r"its certificate does not allow it"):
            call()


def test_a_schema_is_replaced_or_disputed_only_by_who_may_publish_to_the_topic() -> None:
    core = node()
    core.advertise("secret", "n INT", Micros(2))
    core.receive(NEXT, Greet(record(NEXT, certificate(NEXT, "public")), 0, 2, True), Micros(3))

    def told(epoch: int, origin: Peer, proof: bytes = b"") -> Adverts:
        certificates = ((origin, proof),) if proof else ()
        return Adverts((Advert("secret", "x STRING", epoch, origin),), certificates)

    for epoch in (1, 0):
        # The advertiser may not publish there, is unknown, or shows the certificate of another.
        for word in (
            told(epoch, NEXT),
            told(epoch, NEXT, certificate(NEXT, "public")),
            told(epoch, FAR),
            told(epoch, FAR, certificate(NEXT)),
        ):
            effects = core.receive(NEXT, word, Micros(10))
            assert any("with the permission to publish" in reason for reason in rejected(effects))
            assert not core.topics.conflicts
            assert core.topics.schemas["secret"].text == "n INT"
    # The certificate comes with the advertisement, because its advertiser may be gone.
    assert not rejected(core.receive(NEXT, told(0, FAR, certificate(FAR)), Micros(20)))
    assert list(core.topics.conflicts) == ["secret"]
    core.receive(NEXT, told(1, FAR, certificate(FAR)), Micros(40))
    assert not core.topics.conflicts
    assert core.topics.schemas["secret"].text == "x STRING"


# ------------------------------------------------------ several certificates of one node


class Book:
    """Certificates of FAR with any numbers, and which of them are revoked or expired."""

    def __init__(self) -> None:
        self.made: dict[bytes, Identity] = {}
        self.revoked: set[int] = set()
        self.expired: set[int] = set()
        me = prove(certificate(ME))
        assert me is not None
        self.rights = Rights(me, self.made.get, lambda one: not self.over(one), self.over)

    def over(self, identity: Identity) -> bool:
        return identity.serial in self.revoked or identity.not_after in self.expired

    def issue(
        self, serial: int, topic: str, *, generation: int = 0, issued: int = 0, until: int = 1000
    ) -> bytes:
        data = f"{serial} {topic} {generation} {issued} {until}".encode()
        self.made[data] = Identity(
            FAR, "far", serial, issued, until, (topic,), (), data, generation
        )
        return data

    def learn(self, *certificates: bytes) -> str:
        """Which topic FAR may publish to after a node has heard of these, in this order."""
        for one in certificates:
            assert self.rights.learn(FAR, one)
        self.rights.changed()
        allowed = [one for one in ("wide", "narrow") if self.rights.may_publish(FAR, one)]
        return "+".join(allowed) or "nothing"


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"generation": 1, "issued": 9, "until": 900}, {"generation": 2, "issued": 5, "until": 90}),
        ({"generation": 0, "issued": 9, "until": 900}, {"generation": 1, "issued": 5, "until": 90}),
        ({"issued": 5, "until": 900}, {"issued": 9, "until": 90}),
        ({"serial": 7}, {"serial": 8}),
    ],
    ids=["generations", "none and the first", "neither has one", "the serial decides"],
)
def test_of_two_certificates_the_one_issued_later_counts_whatever_their_expiry(
    first: dict[str, int], second: dict[str, int], order: tuple[int, int]
) -> None:
    book = Book()
    made = [
        book.issue(topic="wide", **{"serial": 70, **first}),
        book.issue(topic="narrow", **{"serial": 60, **second}),
    ]
    assert book.learn(*(made[place] for place in order)) == "narrow"


def test_a_revoked_certificate_never_replaces_and_gives_way_to_any_that_counts() -> None:
    book = Book()
    old = book.issue(3, "wide", generation=1)
    new = book.issue(2, "narrow", generation=2)
    assert book.learn(old) == "wide"
    book.revoked.add(3)
    assert book.learn() == "nothing"
    assert book.learn(new) == "narrow"
    assert book.learn(old) == "narrow"
    # The authority takes the renewal back, and the certificate before it was not revoked.
    other = book.issue(1, "wide", generation=0)
    book.revoked.add(2)
    assert book.learn(other) == "wide"
    assert book.learn(new, old) == "wide"


def test_a_revoked_certificate_leaves_no_trace_in_a_node_that_knew_nothing() -> None:
    book = Book()
    old, new = book.issue(3, "wide", generation=9), book.issue(2, "narrow", generation=1)
    book.revoked.add(3)
    version = book.rights.version
    # It is the peer's all the same, because views must agree on that.
    assert book.rights.learn(FAR, old)
    assert book.rights.identity(FAR) is None
    assert book.rights.takes(FAR, "wide") is None
    assert book.rights.version == version
    assert book.learn(new) == "narrow"


def test_an_expired_certificate_gives_way_to_one_that_is_good() -> None:
    book = Book()
    short = book.issue(1, "narrow", generation=2, until=10)
    long = book.issue(2, "wide", generation=1, until=100)
    assert book.learn(long, short) == "narrow"
    book.expired.add(10)
    assert book.learn() == "nothing"
    assert book.learn(long, short) == "wide"


def test_a_certificate_that_is_not_valid_yet_is_remembered_until_it_is() -> None:
    early = [True]
    me = prove(certificate(ME))
    assert me is not None
    rights = Rights(me, prove, lambda one: not early[0], lambda one: False)
    assert rights.learn(FAR, certificate(FAR))
    assert not rights.may_publish(FAR, "x")
    early[0] = False
    rights.changed()
    assert rights.may_publish(FAR, "x")


def test_events_wait_for_the_certificate_that_replaces_a_revoked_one() -> None:
    """The list of revoked certificates may be faster than the certificate that replaces one."""
    revoked: list[bytes] = []
    me = prove(certificate(ME))
    assert me is not None
    core = NodeCore(
        ME, incarnation=1, rng=Random(1), config=NodeConfig(interest=InterestConfig()),
        rights=Rights(me, prove, lambda identity: identity.certificate not in revoked),
    )  # fmt: skip
    core.wake(Micros(0))
    core.link(NEXT, LinkState.UP, Micros(1))
    subscribed(core)
    old, new = certificate(FAR), certificate(FAR, "sec*")
    core.receive(NEXT, Greet(record(NEXT, certificate(NEXT)), 0, 2, True), Micros(5))
    core.receive(NEXT, News(records=(record(FAR, old),)), Micros(6))
    revoked.append(old)
    assert core.rights is not None
    core.rights.changed()
    assert delivered(core.receive(NEXT, batch(FAR), Micros(10))) == []
    renewed = Record(FAR, 256, 2, "", certificate=new)
    assert delivered(core.receive(NEXT, News(records=(renewed,)), Micros(30))) == [7]
