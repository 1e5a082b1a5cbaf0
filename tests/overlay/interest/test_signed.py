"""With keys, a statement about a node counts only if that node has signed it."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from gossamer.machine import SECOND, Effect, LinkState, Message, Micros, Note, Peer
from gossamer.overlay.interest.core import Interest
from gossamer.overlay.interest.messages import AskRecords, Diff, Flips, Gone, Greet, Lone, News
from gossamer.overlay.interest.record import (
    INCARNATION_MAX,
    LIFE_MAX,
    TOPIC,
    Known,
    Record,
    apply,
    topic_hash,
)
from gossamer.overlay.proof import FAREWELL, RECORD, SIGNATURE_MAX
from gossamer.sim.keys import SimulatedKeys
from gossamer.trace import Rejected, hex_peer
from worldnet import sends, single, told

KEYS = SimulatedKeys(7)
ME, FRIEND, LINK = Peer(1), Peer(11), Peer(12)
CHANGE = topic_hash("a") + bytes(4)


def signed(record: Record, by: int | None = None) -> Record:
    """The record with the signature of its owner, or of another node."""
    by = record.peer if by is None else by
    return replace(record, signature=KEYS.signed(Peer(by), RECORD, Known(record).said))


def record(peer: int, life: int = 256, version: int = 1) -> Record:
    certificate = KEYS.identity(Peer(peer)).certificate
    return signed(Record(peer, life, version, f"node-{peer}", certificate=certificate))


def keyed() -> Interest:
    """A node with keys and a link, which knows a friend that it has no link to."""
    rights = KEYS.rights(KEYS.identity(ME))
    node = single(ME, proof=KEYS.proof(rights))
    node.view.proves = rights.learn
    node.certify(rights.me.certificate, Micros(0))
    node.link(LINK, LinkState.UP, Micros(0))
    node.receive(LINK, Greet(record(LINK), 0, 2, True), Micros(0))
    node.receive(LINK, News(records=(record(FRIEND),)), Micros(0))
    node.wake(Micros(0))
    assert FRIEND in node.view.members
    return node


def hear(node: Interest, message: Message, at: int = SECOND) -> list[Effect]:
    return node.receive(LINK, message, Micros(at))


def charged(effects: Iterable[Effect]) -> list[str]:
    return [e.record.peer for e in effects if type(e) is Note and type(e.record) is Rejected]


def flips(signature: bytes, version: int = 2) -> Flips:
    topic = int.from_bytes(CHANGE[:TOPIC], "big")
    return Flips((Lone(FRIEND, 256, version, topic, 0),), signature)


def test_a_change_that_its_owner_has_signed_is_taken_and_passed_on_with_the_signature() -> None:
    node = keyed()
    after = signed(apply(record(FRIEND), 2, CHANGE))
    assert told(hear(node, flips(after.signature)))[0].after == after
    node.link(Peer(13), LinkState.UP, Micros(SECOND))
    greeting = Greet(record(13), 0, 2, True)
    hear(node, News(records=(record(13),)))
    node.receive(Peer(13), greeting, Micros(SECOND))
    later = signed(apply(after, 3, topic_hash("b") + bytes(4)))
    hear(node, News(diffs=(Diff(FRIEND, 256, 3, 2, topic_hash("b") + bytes(4), later.signature),)))
    on = [one for one in sends(node.wake(Micros(2 * SECOND))) if isinstance(one, News | Flips)]
    assert any(
        later.signature in getattr(one, "signatures", b"")
        or later.signature in [diff.signature for diff in getattr(one, "diffs", ())]
        for one in on
    )


@pytest.mark.parametrize(
    "signature", [b"", bytes(SIGNATURE_MAX), signed(record(FRIEND), LINK).signature]
)
def test_a_change_without_it_changes_nothing_and_is_charged_to_the_link(signature: bytes) -> None:
    node = keyed()
    before = node.view.members[FRIEND].record
    # The first one may be honest, because the friend may have signed two records.
    effects = hear(node, flips(signature))
    assert sends(effects) == [AskRecords(FRIEND.to_bytes(8, "big"))]
    assert charged(effects) == []
    assert charged(hear(node, flips(signature))) == [hex_peer(LINK)]
    assert node.view.members[FRIEND].record == before


def test_a_relay_is_not_charged_for_an_owner_that_signs_two_records_of_one_version() -> None:
    node = keyed()
    other = signed(replace(apply(record(FRIEND), 2, topic_hash("b") + bytes(4)), signature=b""))
    hear(node, News(records=(other,)))
    here = signed(apply(record(FRIEND), 2, CHANGE))
    following = signed(apply(here, 3, topic_hash("c") + bytes(4)))
    change = Diff(FRIEND, 256, 3, 2, topic_hash("c") + bytes(4), following.signature)
    assert charged(hear(node, News(diffs=(change,)))) == []
    assert charged(hear(node, News(records=(following,)))) == []
    assert node.view.members[FRIEND].record == following


@pytest.mark.parametrize("peer", [FRIEND, 99, ME])
def test_a_record_in_the_name_of_another_is_refused(peer: int) -> None:
    node = keyed()
    before = dict(node.view.members)
    for life in (512, 1024, LIFE_MAX):
        claimed = replace(record(peer, life, 9), address="false:1")
        for forged in (
            claimed,
            signed(claimed, LINK),
            replace(claimed, signature=b""),
            signed(replace(claimed, certificate=KEYS.identity(LINK).certificate)),
        ):
            assert charged(hear(node, News(records=(forged,)))) == [hex_peer(LINK)]
    assert node.view.members == before


def test_fields_cannot_be_moved_inside_of_a_signed_record() -> None:
    """The bytes of one field are never taken for those of another."""
    whole = signed(replace(record(FRIEND), topics=bytes(8), stamps=bytes(4), extra=b"12345678"))
    moved = replace(whole, topics=b"", stamps=b"", extra=bytes(12) + b"12345678")
    assert Known(moved).said != Known(whole).said


@pytest.mark.parametrize("life", [256, 257, LIFE_MAX])
def test_a_farewell_that_the_node_has_not_signed_is_charged(life: int) -> None:
    node = keyed()
    gone = Gone(FRIEND, life, True)
    for signature in (b"", record(FRIEND).signature, KEYS.signed(LINK, FAREWELL, gone.said)):
        forged = News(gone=(replace(gone, signature=signature),))
        assert charged(hear(node, forged)) == [hex_peer(LINK)]
    assert FRIEND in node.view.members
    honest = News(gone=(replace(gone, signature=KEYS.signed(FRIEND, FAREWELL, gone.said)),))
    assert charged(hear(node, honest)) == []
    assert FRIEND not in node.view.members
    # It is passed on as it came, so others can check it.
    assert node.view.tombs[FRIEND].gone == honest.gone[0]


def test_a_verdict_speaks_only_of_a_life_that_the_node_has_had() -> None:
    node = keyed()
    assert charged(hear(node, News(gone=(Gone(FRIEND, LIFE_MAX, False),)))) == [hex_peer(LINK)]
    last = Known(record(FRIEND)).said[12:]
    bent = Gone(FRIEND, LIFE_MAX, False, record(FRIEND).signature, last)
    assert charged(hear(node, News(gone=(bent,)))) == [hex_peer(LINK)]
    # Of a node that nobody here has heard of, nothing is believed, and nothing is remembered.
    assert charged(hear(node, News(gone=(Gone(99, LIFE_MAX, True), Gone(99, 5, False))))) == []
    assert node.view.tombs == {}
    hear(node, News(gone=(Gone(FRIEND, 256, False, b"false", b"false"),)))
    for tick in range(5, 20):
        node.wake(Micros(tick * SECOND // 4))
    gone = node.view.tombs[FRIEND].gone
    assert (gone.life, gone.signature, gone.last) == (256, record(FRIEND).signature, last)


def test_lies_about_this_node_move_its_life_by_one_at_most() -> None:
    node = keyed()
    life = node.record.life
    for at, gone in enumerate(
        (Gone(ME, LIFE_MAX, False), Gone(ME, LIFE_MAX, True), Gone(ME, life, True))
    ):
        assert charged(hear(node, News(gone=(gone,)), (1 + at) * SECOND)) == [hex_peer(LINK)]
    assert node.record.life == life
    # A verdict on this life may have been carried out somewhere.
    hear(node, News(gone=(Gone(ME, life, False),)), 5 * SECOND)
    assert node.record.life == life + 1
    hear(node, News(records=(record(ME, LIFE_MAX - 300, 1),)), 6 * SECOND)
    # This node has signed that, in a life of which it has forgotten everything.
    assert LIFE_MAX - 300 < node.record.life <= LIFE_MAX
    hear(node, News(records=(record(ME, LIFE_MAX, 1),)), 7 * SECOND)
    assert node.record.life <= LIFE_MAX


def test_verdicts_on_this_node_are_answered_a_tenth_of_a_second_apart_and_none_is_left_out() -> (
    None
):
    node = keyed()
    hear(node, News(gone=(Gone(ME, node.record.life, False),)))
    life = node.record.life
    hear(node, News(gone=(Gone(ME, life, False),)), SECOND + 1000)
    assert node.record.life == life
    assert node.deadline <= SECOND + SECOND // 10
    node.wake(Micros(SECOND + SECOND // 10))
    assert node.record.life == life + 1
    assert not node.conflict


@pytest.mark.parametrize("kept", [b"%d" % INCARNATION_MAX, b"%d" % (INCARNATION_MAX - 1)])
def test_a_life_on_disk_that_nobody_can_have_lived_is_taken_for_damage(kept: bytes) -> None:
    assert single(1, restored={"interest": kept}).record.incarnation == 1
