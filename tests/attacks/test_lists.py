"""Members that lie about lists of revoked certificates: a node believes only proved lists."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import gossamer
from gossamer.net import authority as authority_module
from gossamer.net.keys import REVOKED, Keys
from gossamer.node import wire
from keynet import Fabric, client_context
from livenet import go, until

pytestmark = pytest.mark.live

STRICT = gossamer.PeerLimits(revocations_max_age=3600.0)


def _sign_before(fabric: Fabric, patch: pytest.MonkeyPatch, days: float) -> bytes:
    """A genuine list of some days ago."""
    now = dt.datetime.now(dt.UTC).replace(microsecond=0)
    with patch.context() as clock:
        clock.setattr(authority_module, "_now", lambda: now - dt.timedelta(days=days))
        fabric.authority.revoked = None
        fabric.authority.sign_list([])
    return (fabric.base / REVOKED).read_bytes()


@contextlib.asynccontextmanager
async def _saying(
    node: gossamer.Node, keys: Path, lists: int, *messages: wire.AnyMessage
) -> AsyncIterator[None]:
    """A member that says hello, claims these lists, and sends these messages."""
    host, port = node.address.split(":")
    _, writer = await asyncio.open_connection(host, int(port), ssl=client_context(keys))
    peer = Keys(keys, any_time=True).identity.peer
    hello = wire.Hello(wire.MAGIC, wire.VERSION, wire.VERSION, peer, 1, "", "", lists)
    writer.write(b"".join(map(wire.encode, (hello, *messages))))
    try:
        yield
    finally:
        writer.transport.abort()


@pytest.mark.parametrize("claim", ["no list", "another message first", "an earlier list"])
def test_a_node_with_an_old_list_links_to_no_peer_that_brings_no_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, claim: str
) -> None:
    """A revoked member keeps a node from the news, and hopes that it goes by its old list."""
    fabric = Fabric(tmp_path)

    async def main() -> None:
        victim, mallory = fabric.issue("victim"), fabric.issue("mallory")
        oldest = _sign_before(fabric, monkeypatch, 9)
        _sign_before(fabric, monkeypatch, 2)
        fabric.authority.hand_out([victim])
        [mark] = Keys(victim).authorities
        async with gossamer.Node(keys=victim, limits=STRICT) as node:
            lists: tuple[wire.AnyMessage, ...] = ()
            if claim == "another message first":
                lists = (wire.Ping(),)
            elif claim == "an earlier list":
                lists = (wire.Revocations(mark, 2**60, oldest),)
            reason = "false list" if claim == "an earlier list" else "old list"
            async with _saying(node, mallory, 0 if claim == "no list" else 99, *lists):
                await until(lambda: node.status()["counters"].get(f"closed: {reason}"))
            assert not node.status()["links"]
            assert len(node._interest.view.members) == 1

    go(main())


def test_an_earlier_list_takes_nobody_off_the_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fabric = Fabric(tmp_path)

    async def main() -> None:
        victim, mallory, bad = (fabric.issue(name) for name in ("victim", "mallory", "bad"))
        earlier = _sign_before(fabric, monkeypatch, 2)
        fabric.authority.revoke("bad")
        fabric.authority.hand_out([victim])
        [mark] = Keys(victim).authorities
        identity = Keys(bad).identity
        async with gossamer.Node(keys=victim) as node:
            keys = node._keys
            assert keys is not None
            async with _saying(node, mallory, 99, wire.Revocations(mark, 1, earlier)):
                await until(lambda: node.status()["links"])
                assert keys.refusal(identity) == "revoked"
            # A number that is a lie ends the link.
            async with _saying(node, mallory, 99, wire.Revocations(mark, 2**60, earlier)):
                await until(lambda: node.status()["counters"].get("closed: false list"))
            assert keys.refusal(identity) == "revoked"
            assert Keys(victim).refusal(identity) == "revoked"

    go(main())


def test_a_list_of_a_strange_authority_is_counted_and_changes_nothing(tmp_path: Path) -> None:
    fabric, other = Fabric(tmp_path), Fabric(tmp_path, "other")

    async def main() -> None:
        victim, mallory = fabric.issue("victim"), fabric.issue("mallory")
        stranger = other.issue("stranger")
        [mark] = Keys(stranger).authorities
        [own] = Keys(victim).authorities
        forged = (other.base / REVOKED).read_bytes()
        before = (victim / REVOKED).read_bytes()
        counted = "revocation lists of other authorities"
        async with gossamer.Node(keys=victim) as node:
            async with _saying(node, mallory, 99, wire.Revocations(mark, 2**60, forged)):
                await until(lambda: node.status()["counters"].get(counted))
                assert node.status()["links"]
            # Under the name of the node's own authority it is a forgery.
            async with _saying(node, mallory, 99, wire.Revocations(own, 2**60, forged)):
                await until(lambda: node.status()["counters"].get("closed: false list"))
        assert (victim / REVOKED).read_bytes() == before

    go(main())
