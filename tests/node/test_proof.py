"""Signatures: a statement counts only if the node that it names has made it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gossamer.machine import Peer
from gossamer.net.keys import Keys
from gossamer.overlay.proof import ADVERT, BATCH, RECORD, SIGNATURE_MAX, UNSIGNED, Proof
from gossamer.sim.keys import SimulatedKeys
from keynet import Fabric

# The proofs of two nodes, their peers, and how the first one learns the second one's key.
Pair = tuple[Proof, Proof, Peer, Peer, Callable[[], bool]]


@pytest.fixture(params=["real", "simulated"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Pair:
    if request.param == "real":
        fabric = Fabric(tmp_path)
        one, two = Keys(fabric.issue("one")), Keys(fabric.issue("two"))
        mine, other = one.rights(), two.identity
        return (
            one.proof(mine),
            two.proof(two.rights()),
            one.identity.peer,
            other.peer,
            lambda: mine.learn(other.peer, other.certificate),
        )
    keys = SimulatedKeys(7)
    mine, theirs = keys.rights(keys.identity(Peer(1))), keys.rights(keys.identity(Peer(2)))
    return (
        keys.proof(mine),
        keys.proof(theirs),
        Peer(1),
        Peer(2),
        lambda: mine.learn(Peer(2), theirs.me.certificate),
    )


def test_only_the_owner_signs(pair: Pair) -> None:
    one, two, me, other, learn = pair
    signature = two.sign(RECORD, b"content")
    assert len(signature) == SIGNATURE_MAX
    assert one.is_on
    assert one.proves(other, RECORD, b"content", signature) is None
    assert learn()
    assert one.proves(other, RECORD, b"content", signature) is True
    assert two.proves(other, RECORD, b"content", signature) is True
    for false in (
        one.proves(me, RECORD, b"content", signature),
        one.proves(other, RECORD, b"contents", signature),
        one.proves(other, BATCH, b"content", signature),
        one.proves(other, RECORD, b"content", b""),
        one.proves(other, RECORD, b"content", signature[:-1]),
        one.proves(other, RECORD, b"content", signature + b"x"),
        one.proves(other, RECORD, b"content", one.sign(RECORD, b"content")),
    ):
        assert false is False


def test_one_statement_has_one_signature(pair: Pair) -> None:
    one, two, _, _, _ = pair
    assert one.sign(ADVERT, b"a") == one.sign(ADVERT, b"a")
    assert len({one.sign(ADVERT, b"a"), one.sign(ADVERT, b"b"), two.sign(ADVERT, b"a")}) == 3


def test_a_signature_counts_in_one_fabric_only(tmp_path: Path) -> None:
    keys = Keys(Fabric(tmp_path).issue("one"))
    rights, me = keys.rights(), keys.identity.peer
    here, there = keys.proof(rights, "plant"), keys.proof(rights, "office")
    assert here.proves(me, RECORD, b"x", here.sign(RECORD, b"x"))
    assert not here.proves(me, RECORD, b"x", there.sign(RECORD, b"x"))


def test_without_keys_nothing_is_signed() -> None:
    assert not UNSIGNED.is_on
    assert UNSIGNED.sign(RECORD, b"content") == b""
    assert UNSIGNED.proves(Peer(1), RECORD, b"content", b"")


def test_an_expired_certificate_still_tells_the_key(tmp_path: Path) -> None:
    """Views must agree, so a record counts whether its certificate is in time or not."""
    keys = SimulatedKeys(1)
    old = keys.identity(Peer(2))
    rights = keys.rights(keys.identity(Peer(1)))
    rights._over = lambda identity: identity.peer == 2
    assert rights.learn(Peer(2), old.certificate)
    assert rights.identity(Peer(2)) is None
    assert rights.key(Peer(2)) == keys.key(Peer(2))


def test_a_second_key_for_one_id_is_refused_and_shown() -> None:
    keys = SimulatedKeys(1)
    rights = keys.rights(keys.identity(Peer(1)))
    first = keys.identity(Peer(2))
    assert rights.learn(Peer(2), first.certificate)
    keys.key = lambda peer: b"another key of that id".ljust(32)  # type: ignore[method-assign]
    assert not rights.learn(Peer(2), keys.identity(Peer(2), generation=9).certificate)
    assert rights.doubled == 1
    assert rights.key(Peer(2)) == first.key
    assert rights.identity(Peer(2)) == first
