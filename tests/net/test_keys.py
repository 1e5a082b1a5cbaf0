"""Nodes with keys: members get in, others get nowhere, and former members are cut off."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import stat
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

import gossamer
from gossamer.machine import Peer
from gossamer.net.authority import Authority, create, make_request
from gossamer.net.disk import DataDirectoryError
from gossamer.net.errors import KeysError
from gossamer.net.keys import AUTHORITY_CERTIFICATE, CERTIFICATE, KEY, REVOKED, Keys
from gossamer.node import wire
from gossamer.node.rights import allows
from gossamer.overlay.interest.messages import News
from gossamer.overlay.interest.record import Known, Record
from gossamer.overlay.proof import RECORD
from keynet import Fabric, client_context
from livenet import GENEVA, WEATHER, go, take, until

DAY = 86_400


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Fabric:
    return Fabric(tmp_path_factory.mktemp("keys"))


# Files.


def test_everything_written_is_for_its_owner_only(tmp_path: Path) -> None:
    os.umask(before := os.umask(0))
    # This is the worst case: the umask takes no permission away.
    os.umask(0)
    try:
        fabric = Fabric(tmp_path)
        fabric.issue("a")
        fabric.authority.revoke("a")
    finally:
        os.umask(before)
    files = [path for path in fabric.base.rglob("*") if path.is_file()]
    assert {path.name for path in files} == {
        "authority.key", "authority.crt", "issued.jsonl", "revoked.crl", "node.key", "node.crt",
    }  # fmt: skip
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


def test_a_key_that_others_can_read_is_refused(fabric: Fabric) -> None:
    keys = fabric.issue("open")
    (keys / KEY).chmod(0o640)
    with pytest.raises(KeysError, match=r"can be read by others.*chmod 600"):
        Keys(keys)


@pytest.mark.parametrize("name", [".", AUTHORITY_CERTIFICATE, CERTIFICATE, REVOKED])
def test_keys_that_another_user_could_change_are_refused(tmp_path: Path, name: str) -> None:
    """A user who can write the list of authorities could add an authority of its own."""
    keys = Fabric(tmp_path).issue("open")
    mode = (keys / name).stat().st_mode
    for bits in (0o020, 0o002):
        (keys / name).chmod(mode | bits)
        with pytest.raises(KeysError, match=r"others can write .*chmod go-w"):
            Keys(keys)
    (keys / name).chmod(mode)
    assert Keys(keys).identity.name == "open"
    if os.geteuid() == 0:
        os.chown(keys / name, 12345, -1)
        with pytest.raises(KeysError, match=r"belongs to another user \(uid 12345\)"):
            Keys(keys)


@pytest.mark.live
def test_an_authority_that_another_user_could_have_added_is_not_trusted(tmp_path: Path) -> None:
    """The file becomes writable, and has another authority, while the node runs."""
    fabric, other = Fabric(tmp_path), Fabric(tmp_path, "other")

    async def main() -> None:
        keys, stranger = fabric.issue("a"), other.issue("stranger")
        async with gossamer.Node(keys=keys) as node:
            trusted = (keys / AUTHORITY_CERTIFICATE).read_bytes()
            (keys / AUTHORITY_CERTIFICATE).chmod(0o666)
            both = trusted + (stranger / AUTHORITY_CERTIFICATE).read_bytes()
            (keys / AUTHORITY_CERTIFICATE).write_bytes(both)
            await until(lambda: "others can write" in node.status()["last_problem"])
            with pytest.raises(gossamer.JoinError):
                await gossamer.Node(keys=stranger, join=[node.address], join_timeout=1).start()
            assert not node.status()["links"]

    go(main())


def test_the_identity_is_the_key_and_survives_renewal(fabric: Fabric) -> None:
    keys = fabric.issue("renewed", publish=["a.*", "b"], subscribe=[], days=1)
    first = Keys(keys).identity
    assert (first.name, first.publish, first.subscribe) == ("renewed", ("a.*", "b"), ())
    fabric.issue("renewed", days=30, renew=True)
    second = Keys(keys).identity
    assert second.peer == first.peer
    assert second.serial != first.serial
    assert (second.publish, second.subscribe) == (first.publish, first.subscribe)
    assert second.not_after - first.not_after == pytest.approx(29 * DAY, abs=60)


def test_each_certificate_of_a_key_has_a_greater_generation(tmp_path: Path) -> None:
    fabric = Fabric(tmp_path)
    keys = fabric.issue("a", days=30)
    numbers = [Keys(keys).identity.generation]
    assert numbers[0] > 0
    for days in (20, 1, 10):
        fabric.issue("a", days=days, renew=True)
        numbers.append(Keys(keys).identity.generation)
    assert numbers == sorted(set(numbers))
    fabric.authority = Authority(fabric.base)
    assert [one.generation for one in fabric.authority.issued] == numbers


def test_an_authority_from_an_old_copy_does_not_issue_a_smaller_generation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datetime as dt

    from gossamer.net import authority

    fabric = Fabric(tmp_path)
    keys = fabric.issue("a", days=30)
    copy = (fabric.base / authority.ISSUED).read_bytes()
    fabric.issue("a", days=30, renew=True)
    lost = Keys(keys).identity.generation
    (fabric.base / authority.ISSUED).write_bytes(copy)
    fabric.authority = Authority(fabric.base)
    now = dt.datetime.now(dt.UTC).replace(microsecond=0)
    monkeypatch.setattr(authority, "_now", lambda: now + dt.timedelta(minutes=1))
    fabric.issue("a", days=30, renew=True)
    assert Keys(keys).identity.generation > lost


def test_a_book_and_a_certificate_from_before_generations_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gossamer.net import authority

    fabric = Fabric(tmp_path)
    monkeypatch.setattr(authority, "generation_uri", lambda generation: "gossamer:other:x")
    keys = fabric.issue("a")
    assert Keys(keys).identity.generation == 0
    monkeypatch.undo()
    book = fabric.base / authority.ISSUED
    lines = [json.loads(line) for line in book.read_text().splitlines()]
    for line in lines:
        del line["generation"]
    book.write_text("".join(json.dumps(line) + "\n" for line in lines))
    fabric.authority = Authority(fabric.base)
    assert fabric.authority.issued[0].generation == 0
    fabric.issue("a", renew=True)
    assert Keys(keys).identity.generation > 0


def test_a_request_keeps_the_key_where_it_was_made(fabric: Fabric, tmp_path: Path) -> None:
    make_request("far", tmp_path / "far")
    fabric.authority.issue(
        "far", tmp_path / "signed", request=(tmp_path / "far" / "node.csr").read_bytes()
    )
    assert not (tmp_path / "signed" / KEY).exists()
    for path in (tmp_path / "signed").iterdir():
        path.rename(tmp_path / "far" / path.name)
    assert Keys(tmp_path / "far").identity.name == "far"


@pytest.mark.parametrize("is_request", [False, True])
def test_the_authority_refuses_an_id_that_another_key_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_request: bool
) -> None:
    """Ids are hashes. The holder of a colliding key would inherit another node's permissions."""
    from gossamer.net import authority, keys

    fabric = Fabric(tmp_path)
    first = Keys(fabric.issue("victim", publish=["secret"])).identity
    for module in (authority, keys):
        monkeypatch.setattr(module, "peer_of", lambda key: first.peer)
    make_request("thief", tmp_path / "thief")
    asked = (tmp_path / "thief" / "node.csr").read_bytes() if is_request else None
    # The authority has read its book again.
    for book in (fabric.authority, Authority(fabric.base)):
        with pytest.raises(KeysError, match=r"belongs to another key, that of 'victim'.*another"):
            book.issue("thief", tmp_path / "out", request=asked)
    assert not (tmp_path / "out").exists()
    # The owner of the id gets its next certificate.
    fabric.issue("victim", renew=True)
    assert Keys(fabric.base / "nodes" / "victim").identity.publish == ("secret",)


def test_an_authority_with_a_passphrase(tmp_path: Path) -> None:
    create(tmp_path / "a", passphrase=b"open sesame")
    Authority(tmp_path / "a", b"open sesame").issue("n", tmp_path / "n")
    for wrong, message in ((None, "encrypted"), (b"nonsense", "passphrase")):
        with pytest.raises(KeysError, match=message):
            Authority(tmp_path / "a", wrong)


def test_expired_foreign_and_broken_keys_name_the_remedy(fabric: Fabric, tmp_path: Path) -> None:
    expired = fabric.issue("expired", days=1e-9)
    with pytest.raises(
        KeysError, match=r"is expired; get another one.*issue AUTHORITY expired --renew"
    ):
        Keys(expired)
    mixed = fabric.issue("mixed")
    (mixed / CERTIFICATE).write_bytes(
        (Fabric(tmp_path, "test").issue("x") / CERTIFICATE).read_bytes()
    )
    with pytest.raises(KeysError, match=r"was not issued by the authority"):
        Keys(mixed)
    with pytest.raises(KeysError, match=r"gossamer keys issue"):
        Keys(tmp_path / "nowhere")


def test_only_the_latest_list_counts_and_only_the_authority_makes_it(
    fabric: Fabric, tmp_path: Path
) -> None:
    keys = Keys(fabric.issue("lister"))
    victim = Keys(fabric.issue("victim")).identity
    old = (fabric.base / REVOKED).read_bytes()
    fabric.authority.revoke("victim")
    assert keys.valid(victim)
    assert keys.adopt((fabric.base / REVOKED).read_bytes())
    assert keys.refusal(victim) == "revoked"
    assert not keys.adopt(old)
    assert keys.refusal(victim) == "revoked"
    stranger = Fabric(tmp_path, "test")
    stranger.issue("y")
    stranger.authority.revoke("y")
    for data in (
        (stranger.base / REVOKED).read_bytes(),
        b"",
        b"\x30\x03abc",
        b"-----BEGIN X509 CRL-----\n",
    ):
        with pytest.raises(KeysError):
            keys.adopt(data)
    assert keys.refusal(victim) == "revoked"


def test_an_expired_certificate_leaves_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datetime as dt

    from gossamer.net import authority

    fabric = Fabric(tmp_path)
    fabric.issue("short", days=1)
    fabric.issue("long", days=10)
    assert len(fabric.authority.revoke("short")) == 1
    now = dt.datetime.now(dt.UTC).replace(microsecond=0)
    monkeypatch.setattr(authority, "_now", lambda: now + dt.timedelta(days=2))
    assert len(fabric.authority.revoke("long")) == 1
    assert fabric.authority.revoked is not None
    assert len(fabric.authority.revoked.serials) == 1
    assert fabric.authority.revoke("long") == []


@pytest.mark.parametrize(
    ("patterns", "topic", "allowed"),
    [
        (("*",), "anything at all", True),
        (("weather.*",), "weather.ch", True),
        (("weather.*",), "weather", False),
        (("weather.*",), "Weather.ch", False),
        (("a", "b?"), "bc", True),
        (("a", "b?"), "b", False),
        (("line",), "line\n", False),
        ((), "x", False),
    ],
)
def test_patterns(patterns: tuple[str, ...], topic: str, allowed: bool) -> None:
    assert allows(patterns, topic) is allowed


def test_patterns_of_any_characters_survive_the_certificate(fabric: Fabric) -> None:
    odd = ("größe.*", "a b/c%20", "日本?", "x:y#z")
    assert Keys(fabric.issue("odd", publish=odd)).identity.publish == odd


# Links.


@pytest.mark.live
def test_nodes_with_keys_deliver(fabric: Fabric, tmp_path: Path) -> None:
    async def main() -> None:
        a, b = fabric.issue("alice"), fabric.issue("bob")
        async with (
            gossamer.Node(keys=a, data_dir=tmp_path / "a") as one,
            gossamer.Node(keys=b, join=[one.address]) as two,
        ):
            assert one.peer == Keys(a).identity.peer
            await one.advertise("weather", WEATHER)
            for route in ("flood", "direct", "skiplist", "tree"):
                async with two.subscribe("weather", "temp > 30", route=route) as events:
                    receipts = [
                        await one.publish("weather", {**GENEVA, "temp": temp})
                        for temp in range(200)
                    ]
                    assert sum([(await receipt).matched for receipt in receipts]) == 169
                    assert [event["temp"] for event in await take(events, 169)] == list(
                        range(31, 200)
                    )
            status = one.status()
            assert [link["name"] for link in status["links"]] == ["bob"]
            assert status["keys"]["name"] == "alice"
        with pytest.raises(DataDirectoryError, match=r"belongs to node"):
            await gossamer.Node(keys=b, data_dir=tmp_path / "a").start()

    go(main())


@pytest.mark.live
def test_on_the_standard_loop_too(fabric: Fabric) -> None:
    async def main() -> None:
        async with (
            gossamer.Node(keys=fabric.issue("s1")) as a,
            gossamer.Node(keys=fabric.issue("s2"), join=[a.address]) as b,
        ):
            await b.advertise("weather", WEATHER)
            async with a.subscribe("weather") as events:
                await b.publish("weather", GENEVA)
                assert (await anext(events))["city"] == "Geneva"

    asyncio.run(asyncio.wait_for(main(), 20))


@pytest.mark.live
@pytest.mark.parametrize("who", ["plain", "wrong authority", "expired later", "tls to plain"])
def test_a_node_that_does_not_belong_is_told_why(fabric: Fabric, tmp_path: Path, who: str) -> None:
    async def main() -> None:
        async with (
            gossamer.Node(keys=fabric.issue(f"gate {who}".replace(" ", "-"))) as gate,
            gossamer.Node() as plain,
        ):
            if who == "plain":
                with pytest.raises(
                    gossamer.JoinError,
                    match=r": garbage \(the peer speaks TLS: it has keys, and this",
                ):
                    await gossamer.Node(join=[gate.address], join_timeout=1).start()
            elif who == "tls to plain":
                with pytest.raises(
                    gossamer.JoinError,
                    match=r"has no keys, or is no gossamer|has it keys, and this node none",
                ):
                    await gossamer.Node(
                        join=[plain.address], join_timeout=1, keys=fabric.issue("lone")
                    ).start()
            elif who == "wrong authority":
                keys = Fabric(tmp_path, "test").issue("stranger")
                with pytest.raises(
                    gossamer.JoinError, match=r"wrong certificate .*: it is of another authority\)"
                ):
                    await gossamer.Node(join=[gate.address], join_timeout=1, keys=keys).start()
                assert not gate.status()["links"]
            else:
                # It is long enough for a busy machine to start a node.
                keys = fabric.issue("brief", days=4 / DAY)
                node = gossamer.Node(join=[gate.address], keys=keys)
                await node.start()
                assert gate.status()["links"]
                await until(lambda: gate.status()["counters"].get("closed: expired"))
                assert time.time() >= Keys(keys, any_time=True).identity.not_after
                await until(lambda: not gate.status()["links"])
                await until(lambda: "own certificate is expired" in node.status()["last_problem"])
                await node.close(drain=0.0)

    go(main())


@pytest.mark.live
def test_a_revoked_node_is_cut_off_by_everybody_once_one_of_them_is_told(tmp_path: Path) -> None:
    fabric = Fabric(tmp_path)

    async def main() -> None:
        a, b, c = (fabric.issue(name) for name in "abc")
        bad = fabric.issue("bad")
        async with (
            gossamer.Node(keys=a) as one,
            gossamer.Node(keys=b, join=[one.address]) as two,
            gossamer.Node(keys=c, join=[two.address]) as three,
        ):
            traitor = gossamer.Node(keys=bad, join=[three.address])
            await traitor.start()
            await until(lambda: len(traitor.status()["links"]) == 3)
            fabric.authority.revoke("bad")
            # The others hear of it from their neighbours.
            fabric.authority.hand_out([a])
            good = (one, two, three)
            await until(
                lambda: all(
                    "bad" not in [link["name"] for link in node.status()["links"]] for node in good
                )
            )
            assert all(node.status()["keys"]["revoked"]["certificates"] == 1 for node in good)
            # It is kept on disk.
            assert Keys(c).revoked == 1
            assert sum(node.status()["counters"].get("closed: revoked", 0) for node in good) >= 3
            await one.advertise("weather", WEATHER)
            async with three.subscribe("weather") as events:
                assert (await (await two.publish("weather", GENEVA))).matched == 1
                assert (await anext(events))["city"] == "Geneva"
            await traitor.close(drain=0.0)
            with pytest.raises(gossamer.JoinError):
                await gossamer.Node(
                    keys=bad, join=[node.address for node in good], join_timeout=1
                ).start()
            late = fabric.issue("late")
            (late / REVOKED).unlink()
            async with gossamer.Node(keys=late, join=[two.address]) as newcomer:
                await until(lambda: newcomer.status()["keys"]["revoked"]["certificates"] == 1)

    go(main())


@pytest.mark.live
def test_a_renewed_certificate_is_taken_up_while_running(tmp_path: Path) -> None:
    fabric = Fabric(tmp_path)

    async def main() -> None:
        a, b = fabric.issue("a", publish=["old.*"]), fabric.issue("b")
        async with gossamer.Node(keys=a) as one, gossamer.Node(keys=b, join=[one.address]) as two:
            await two.advertise("new.topic", WEATHER)
            await one.topic("new.topic")
            with pytest.raises(
                gossamer.NotPermittedError,
                match=r"\(a\) may not publish to 'new.topic'.*--renew --publish",
            ):
                await one.publish("new.topic", GENEVA)
            fabric.issue("a", publish=["new.*"], days=2, renew=True)
            await until(lambda: one.status()["keys"]["publish"] == ("new.*",))
            async with two.subscribe("new.topic") as events:
                rights: Any = two._core.rights
                await until(lambda: rights.may_publish(one.peer, "new.topic"))
                await one.publish("new.topic", GENEVA)
                assert (await anext(events))["city"] == "Geneva"

    go(main())


@pytest.mark.live
@pytest.mark.parametrize("first", ["the certificate", "the list"])
def test_a_node_whose_rights_shrink_and_whose_old_certificate_is_revoked_goes_on(
    tmp_path: Path, first: str
) -> None:
    """docs/security.md advises it: renew with fewer rights, then revoke the certificate before."""
    fabric = Fabric(tmp_path)

    async def main() -> None:
        a, b, c = (fabric.issue(name, days=30) for name in "abc")
        old = Keys(a).identity
        async with (
            gossamer.Node(keys=a) as one,
            gossamer.Node(keys=b, join=[one.address]) as two,
            gossamer.Node(keys=c, join=[two.address]) as three,
        ):
            for topic in ("keep", "drop"):
                await two.advertise(topic, WEATHER)
                await one.topic(topic)
            kept = fabric.base / "before"
            shutil.copytree(a, kept)
            fabric.issue("a", publish=["keep"], days=2, renew=True)
            new = Keys(a).identity
            assert new.not_after < old.not_after
            if first == "the certificate":
                await until(lambda: one.status()["keys"]["publish"] == ("keep",))
            fabric.authority.revoke(f"{old.serial:x}")
            fabric.authority.hand_out([c])
            others = (two, three)
            await until(lambda: all(_judges(node, one.peer, "keep") for node in others))
            await until(lambda: not any(_judges(node, one.peer, "drop") for node in others))
            async with gossamer.Node(keys=fabric.issue("late"), join=[three.address]) as late:
                for node in (*others, late):
                    async with node.subscribe("keep") as events:
                        await one.publish("keep", GENEVA)
                        assert (await anext(events))["city"] == "Geneva"
            for node in others:
                assert "closed: shut out" not in node.status()["counters"]
            # The revoked certificate opens nothing.
            with pytest.raises(gossamer.JoinError):
                await gossamer.Node(keys=kept, join=[two.address], join_timeout=1).start()

    go(main())


def _judges(node: gossamer.Node, peer: Peer, topic: str) -> bool:
    rights = node._core.rights
    assert rights is not None
    return rights.may_publish(peer, topic)


@pytest.mark.live
def test_a_link_outlives_the_certificate_that_it_was_opened_with(tmp_path: Path) -> None:
    fabric = Fabric(tmp_path)

    async def main() -> None:
        a, b = fabric.issue("a", days=30), fabric.issue("b")
        old = Keys(a).identity
        async with gossamer.Node(keys=a) as one, gossamer.Node(keys=b, join=[one.address]) as two:
            fabric.issue("a", publish=["x"], days=2, renew=True)
            await until(lambda: _judges(two, one.peer, "x") and not _judges(two, one.peer, "y"))
            [link] = two._driver.links.values()
            fabric.authority.revoke(f"{old.serial:x}")
            fabric.authority.hand_out([b])
            await until(lambda: one.status()["keys"]["revoked"]["certificates"] == 1)
            await until(lambda: link.identity is not None and link.identity.serial != old.serial)
            assert list(two._driver.links.values()) == [link]
            assert "closed: revoked" not in two.status()["counters"]

    go(main())


@pytest.mark.live
@pytest.mark.parametrize("told", ["before", "after"])
def test_a_revoked_certificate_that_is_played_again_changes_nothing_at_a_fresh_node(
    tmp_path: Path, told: str
) -> None:
    """A member repeats the record that it once heard of another node, to a node that knows
    neither.
    """
    fabric = Fabric(tmp_path)

    async def main() -> None:
        a, b, m = fabric.issue("a", days=30), fabric.issue("b"), fabric.issue("mallory")
        old, mallory = Keys(a).identity, Keys(m).identity.peer
        # Node a itself has signed this record, with its earlier certificate.
        replayed = Record(old.peer, 1, 1, "", certificate=old.certificate)
        signature = Keys(a).proof(Keys(a).rights()).sign(RECORD, Known(replayed).said)
        replayed = structs.replace(replayed, signature=signature)
        fabric.issue("a", publish=["keep"], days=2, renew=True)
        fabric.authority.revoke(f"{old.serial:x}")
        fabric.authority.hand_out([a, b] if told == "before" else [a])
        async with gossamer.Node(keys=b) as fresh:
            host, port = fresh.address.split(":")
            _, writer = await asyncio.open_connection(host, int(port), ssl=client_context(m))
            writer.write(
                wire.encode(wire.Hello(wire.MAGIC, wire.VERSION, wire.VERSION, mallory, 1, ""))
            )
            writer.write(wire.encode(News(records=(replayed,))))
            await until(lambda: old.peer in fresh._interest.view.members)
            assert _judges(fresh, old.peer, "drop") == (told == "after")
            async with gossamer.Node(keys=a, join=[fresh.address]) as one:
                await fresh.advertise("keep", WEATHER)
                await one.topic("keep")
                await until(lambda: _judges(fresh, one.peer, "keep"))
                await until(lambda: not _judges(fresh, one.peer, "drop"))
                writer.write(wire.encode(News(records=(replayed,))))
                async with fresh.subscribe("keep") as events:
                    await one.publish("keep", GENEVA)
                    assert (await anext(events))["city"] == "Geneva"
                assert _judges(fresh, one.peer, "keep")
            writer.close()

    go(main())


# A lost identity.


@pytest.mark.live
def test_a_program_whose_certificate_is_revoked_gets_an_error_and_not_silence(
    tmp_path: Path,
) -> None:
    fabric = Fabric(tmp_path)

    async def main() -> None:
        a, b = fabric.issue("a"), fabric.issue("b")
        async with gossamer.Node(keys=a) as one:
            node = gossamer.Node(keys=b, join=[one.address])
            await node.start()
            await one.advertise("weather", WEATHER)
            events = await node.subscribe("weather")
            await one.publish("weather", GENEVA)
            assert (await anext(events))["city"] == "Geneva"
            fabric.authority.revoke("b")
            fabric.authority.hand_out([b])
            with pytest.raises(gossamer.IdentityError, match=r"is revoked, so no other node.*keys"):
                await anext(events)
            with pytest.raises(gossamer.IdentityError):
                await node.subscribe("weather")
            with pytest.raises(gossamer.IdentityError):
                await node.advertise("other", WEATHER)
            with pytest.raises((gossamer.IdentityError, gossamer.NotPermittedError)):
                await node.publish("weather", GENEVA)
            assert not node.status()["subscriptions"]
            await node.close(drain=0.0)

    go(main())


@pytest.mark.live
def test_a_program_whose_keys_another_process_uses_gets_an_error_until_that_is_gone(
    tmp_path: Path,
) -> None:
    fabric = Fabric(tmp_path)

    async def main() -> None:
        a, b = fabric.issue("a"), fabric.issue("b")
        async with gossamer.Node(keys=a) as one, gossamer.Node(keys=b, join=[one.address]) as node:
            await one.advertise("weather", WEATHER)
            events = await node.subscribe("weather")
            with pytest.raises(gossamer.JoinError, match="identity used twice"):
                await gossamer.Node(keys=b, join=[node.address], join_timeout=1).start()
            with pytest.raises(gossamer.IdentityError, match=r"another process.*stop one"):
                await anext(events)
            with pytest.raises(gossamer.IdentityError):
                await node.subscribe("weather")
            # The conflict is forgotten after a while.
            node._interest._state.conflict = False
            async with node.subscribe("weather") as events:
                await one.publish("weather", GENEVA)
                assert (await anext(events))["city"] == "Geneva"

    go(main())


# The age of lists.


def _refreshed(fabric: Fabric, *directories: Path) -> None:
    fabric.authority.sign_list(fabric.authority.listed)
    fabric.authority.hand_out(directories)


def _aged(fabric: Fabric, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives a key directory a list that was signed two days ago."""
    import datetime as dt

    from gossamer.net import authority

    before = dt.datetime.now(dt.UTC).replace(microsecond=0) - dt.timedelta(days=2)
    with monkeypatch.context() as patch:
        patch.setattr(authority, "_now", lambda: before)
        fabric.authority.revoked = None
        _refreshed(fabric, directory)


@pytest.mark.live
def test_a_node_whose_list_is_too_old_talks_to_nobody_until_it_has_a_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fabric = Fabric(tmp_path)
    strict = gossamer.PeerLimits(revocations_max_age=86_400.0)

    async def main() -> None:
        a, b = fabric.issue("a"), fabric.issue("b")
        _aged(fabric, a, monkeypatch)
        _aged(fabric, b, monkeypatch)
        async with gossamer.Node(keys=b) as other:
            with pytest.raises(gossamer.JoinError, match=r"old list.*gossamer keys refresh"):
                await gossamer.Node(
                    keys=a, join=[other.address], limits=strict, join_timeout=1
                ).start()
            # Somebody has the later list: it is told before everything else.
            _refreshed(fabric, b)
            await until(lambda: _signed(other) > time.time() - DAY)
            async with gossamer.Node(keys=a, join=[other.address], limits=strict) as node:
                assert _signed(node) == _signed(other)
                assert len(node.status()["links"]) == 1

    go(main())


def _signed(node: gossamer.Node) -> int:
    [listed] = node.status()["keys"]["revoked"]["lists"]
    signed_at: int = listed["signed_at"]
    return signed_at


@pytest.mark.live
def test_links_end_when_the_list_gets_too_old_and_come_back_with_a_later_one(
    tmp_path: Path,
) -> None:
    fabric = Fabric(tmp_path)
    strict = gossamer.PeerLimits(revocations_max_age=3.0)

    async def main() -> None:
        a, b = fabric.issue("a"), fabric.issue("b")
        _refreshed(fabric, a, b)
        async with (
            gossamer.Node(keys=b) as other,
            gossamer.Node(keys=a, join=[other.address], limits=strict) as node,
        ):
            await until(lambda: node.status()["counters"].get("closed: old list"))
            await until(lambda: "refresh AUTHORITY" in node.status()["last_problem"])
            assert not node.status()["links"]
            # One of them is told, whichever it is.
            while not node.status()["links"]:
                _refreshed(fabric, b)
                await asyncio.sleep(0.5)

    go(main())


def test_an_age_of_lists_needs_keys() -> None:
    with pytest.raises(gossamer.NodeError, match="only a node with keys"):
        gossamer.Node(limits=gossamer.PeerLimits(revocations_max_age=60.0))


# Rotation.


def _next(fabric: Fabric, name: str) -> Fabric:
    """An authority of the same name that follows this one."""
    made = Fabric.__new__(Fabric)
    made.base = fabric.base.parent / name
    made.authority = create(made.base, name=fabric.authority.name, after=fabric.base)
    return made


def _trust(authority: Path, *directories: Path) -> None:
    """Copies the authority's certificates, as docs/security.md says."""
    for directory in directories:
        shutil.copy(authority / AUTHORITY_CERTIFICATE, directory / AUTHORITY_CERTIFICATE)


@pytest.mark.live
def test_the_authority_is_replaced_while_the_nodes_run(tmp_path: Path) -> None:
    """The steps of docs/security.md, with the same name for both authorities."""
    fabric = Fabric(tmp_path, "old")

    async def delivers(source: gossamer.Node, events: gossamer.Subscription) -> None:
        await source.publish("weather", GENEVA)
        assert (await anext(events))["city"] == "Geneva"

    async def main() -> None:
        a = fabric.issue("a", publish=["weather"], subscribe=[])
        b, bad = fabric.issue("b"), fabric.issue("bad")
        fabric.authority.revoke("bad")
        fabric.authority.hand_out([a, b])
        async with gossamer.Node(keys=a) as one, gossamer.Node(keys=b, join=[one.address]) as two:
            await one.advertise("weather", WEATHER)
            await two.topic("weather")
            async with two.subscribe("weather", route="flood") as events:
                await delivers(one, events)
                # 1. The authority that follows. Nothing that was revoked counts there.
                new = _next(fabric, "next")
                assert new.authority.revoked is not None
                assert len(new.authority.revoked.serials) == 1
                # 2. All nodes trust both.
                _trust(new.base, a, b)
                await until(lambda: all(len(n._driver.keys.authorities) == 2 for n in (one, two)))  # type: ignore[union-attr]
                # 3. Certificates of the new authority, with the permissions from before.
                for name, directory in (("a", a), ("b", b)):
                    new.authority.issue(name, directory, renew=True)
                assert Keys(a).identity.publish == ("weather",)
                marks = {Keys(a).identity.authority, Keys(b).identity.authority}
                assert len(marks) == 1
                await until(lambda: _authority_of(two, one.peer) in marks)
                await until(lambda: _authority_of(one, two.peer) in marks)
                await delivers(one, events)
                # 4. The previous authority counts no longer.
                assert new.authority.retire() == 1
                _trust(new.base, a, b)
                await until(lambda: all(len(n._driver.keys.authorities) == 1 for n in (one, two)))  # type: ignore[union-attr]
                await delivers(one, events)
                # The links of the beginning carried everything.
                assert all("closed: revoked" not in n.status()["counters"] for n in (one, two))
            late = fabric.issue("late")
            for stranger in (bad, late):
                with pytest.raises(gossamer.JoinError):
                    await gossamer.Node(keys=stranger, join=[one.address], join_timeout=1).start()
            new.authority.issue("late", late, renew=True, publish=[], subscribe=["*"])
            async with gossamer.Node(keys=late, join=[one.address]) as three:
                await three.topic("weather")

    go(main())


def _authority_of(node: gossamer.Node, peer: Peer) -> int:
    identity = node._core.rights.identity(peer) if node._core.rights is not None else None
    return identity.authority if identity is not None else 0


@pytest.mark.live
def test_a_node_with_a_certificate_of_a_retired_authority_is_cut_off(tmp_path: Path) -> None:
    fabric = Fabric(tmp_path, "old")

    async def main() -> None:
        a, b = fabric.issue("a"), fabric.issue("b")
        async with gossamer.Node(keys=a) as one, gossamer.Node(keys=b, join=[one.address]) as two:
            new = _next(fabric, "next")
            _trust(new.base, a, b)
            await until(lambda: all(len(n._driver.keys.authorities) == 2 for n in (one, two)))  # type: ignore[union-attr]
            new.authority.issue("a", a, renew=True)
            new.authority.retire()
            _trust(new.base, a)
            await until(lambda: one.status()["counters"].get("closed: of another authority"))
            assert not one.status()["links"]
            await two.close(drain=0.0)

    go(main())


def test_an_authority_that_follows_knows_keys_permissions_and_what_was_revoked(
    tmp_path: Path,
) -> None:
    fabric = Fabric(tmp_path, "old")
    kept = fabric.issue("kept", publish=["a", "b"])
    fabric.issue("bad")
    fabric.authority.revoke("bad")
    before = Keys(kept).identity
    new = _next(fabric, "next")
    with pytest.raises(KeysError, match="'bad' was revoked"):
        new.authority.issue("bad", fabric.base / "nodes" / "bad", renew=True)
    renewed = new.authority.issue("kept", kept, renew=True)
    assert renewed.publish == ("a", "b")
    assert renewed.generation > before.generation
    # Either authority's list takes away the certificates of both.
    new.authority.revoke("kept")
    new.authority.hand_out([kept])
    keys = Keys(kept, any_time=True)
    assert {keys.refusal(keys.identity), keys.refusal(before)} == {"revoked"}


@pytest.mark.live
def test_a_node_gets_another_key_as_docs_security_says(tmp_path: Path) -> None:
    """A key is an identity, so the node leaves and comes back as another one."""
    fabric = Fabric(tmp_path)

    async def main() -> None:
        a, b = fabric.issue("a", publish=["weather"]), fabric.issue("b")
        async with gossamer.Node(keys=b) as other:
            async with gossamer.Node(keys=a, join=[other.address], data_dir=tmp_path / "a") as one:
                await one.advertise("weather", WEATHER)
                await other.topic("weather")
                await (await one.publish("weather", GENEVA))
                gone = one.peer
            fresh = fabric.base / "nodes" / "a2"
            fabric.authority.issue("a2", fresh, publish=["weather"])
            fabric.authority.revoke("a")
            fabric.authority.hand_out([b])
            await until(lambda: other.status()["keys"]["revoked"]["certificates"] == 1)
            async with (
                other.subscribe("weather") as events,
                gossamer.Node(keys=fresh, join=[other.address], data_dir=tmp_path / "a2") as one,
            ):
                assert one.peer != gone
                await one.topic("weather")
                await one.publish("weather", GENEVA)
                assert (await anext(events))["city"] == "Geneva"
            with pytest.raises(gossamer.JoinError):
                await gossamer.Node(keys=a, join=[other.address], join_timeout=1).start()

    go(main())


# Permissions.


@pytest.mark.live
def test_a_node_that_may_not_is_told_so_at_once(fabric: Fabric) -> None:
    async def main() -> None:
        keys = fabric.issue("limited", publish=["pub.*"], subscribe=["sub.*"])
        async with (
            gossamer.Node(keys=fabric.issue("full")) as full,
            gossamer.Node(keys=keys, join=[full.address]) as limited,
        ):
            for topic in ("pub.a", "sub.a"):
                await full.advertise(topic, WEATHER)
                await limited.topic(topic)
            with pytest.raises(gossamer.NotPermittedError, match=r"may not subscribe to 'pub.a'"):
                await limited.subscribe("pub.a")
            with pytest.raises(gossamer.NotPermittedError, match=r"may not publish to 'sub.a'"):
                await limited.publish("sub.a", GENEVA)
            with pytest.raises(gossamer.NotPermittedError, match=r"may not advertise 'sub.b'"):
                await limited.advertise("sub.b", WEATHER)
            async with limited.subscribe("sub.a") as events:
                await full.publish("sub.a", GENEVA)
                await anext(events)
            assert (await (await limited.publish("pub.a", GENEVA))).matched == 0

    go(main())


class _Lax:
    """A holder that ignores its own permissions."""

    def __enter__(self) -> _Lax:
        from gossamer.node.rights import Rights

        self._check = Rights.check
        Rights.check = lambda self, what, topic: None  # type: ignore[method-assign, assignment]
        return self

    def __exit__(self, *args: object) -> None:
        from gossamer.node.rights import Rights

        Rights.check = self._check  # type: ignore[method-assign]


@pytest.mark.live
@pytest.mark.parametrize("route", ["flood", "direct", "skiplist", "tree"])
def test_events_that_a_publisher_may_not_publish_are_not_delivered(
    tmp_path: Path, route: str
) -> None:
    fabric = Fabric(tmp_path)

    async def main() -> None:
        bad = fabric.issue("bad", publish=["other"])
        async with (
            gossamer.Node(keys=fabric.issue("a"), k=1) as one,
            gossamer.Node(keys=fabric.issue("b"), join=[one.address], k=1) as two,
            gossamer.Node(keys=bad, join=[one.address], k=1) as liar,
        ):
            await one.advertise("secret", WEATHER)
            await liar.topic("secret")
            async with two.subscribe("secret", "temp > 0", route=route) as events:
                with _Lax():
                    await liar.publish("secret", {**GENEVA, "city": "forged"})
                    await until(
                        lambda: sum(node.status()["keys"]["refused"] for node in (one, two))
                    )
                await until(
                    lambda: sum(node.status()["counters"].get("rejected", 0) for node in (one, two))
                )
                assert (await (await one.publish("secret", GENEVA))).matched == 1
                assert (await anext(events))["city"] == "Geneva"
            await liar.close(drain=0.0)

    go(main())


@pytest.mark.live
def test_a_node_that_may_not_subscribe_gets_no_place_in_a_list(tmp_path: Path) -> None:
    fabric = Fabric(tmp_path)

    async def main() -> None:
        bad = fabric.issue("bad", subscribe=["other"])
        async with (
            gossamer.Node(keys=fabric.issue("a")) as one,
            gossamer.Node(keys=fabric.issue("b"), join=[one.address]) as two,
            gossamer.Node(keys=bad, join=[one.address]) as spy,
        ):
            await one.advertise("secret", WEATHER)
            await spy.topic("secret")
            async with two.subscribe("secret", "temp = 31", route="skiplist") as events:
                with _Lax():
                    looking = asyncio.ensure_future(_entered(spy))
                    await until(
                        lambda: sum(node.status()["keys"]["refused"] for node in (one, two))
                    )
                    for _ in range(20):
                        assert (await (await one.publish("secret", GENEVA))).matched == 1
                    assert len(await take(events, 20)) == 20
                    assert (
                        spy.status()["skiplist"]["topics"]["secret"]["counters"].get("delivered", 0)
                        == 0
                    )
                looking.cancel()
                await asyncio.gather(looking, return_exceptions=True)
            await spy.close(drain=0.0)

    async def _entered(spy: gossamer.Node) -> None:
        await spy.subscribe("secret", "temp = 31", route="skiplist")

    go(main())


@pytest.mark.live
def test_a_node_that_may_not_subscribe_is_not_sent_the_past(tmp_path: Path) -> None:
    fabric = Fabric(tmp_path)

    async def main() -> None:
        bad = fabric.issue("bad", subscribe=["other"])
        async with (
            gossamer.Node(keys=fabric.issue("a")) as one,
            gossamer.Node(keys=fabric.issue("b"), join=[one.address]) as two,
            gossamer.Node(keys=bad, join=[one.address]) as spy,
        ):
            await one.advertise("secret", WEATHER)
            await spy.topic("secret")
            with _Lax():
                asked = spy.subscribe("secret", "temp > 0", route="direct")
                looking = asyncio.ensure_future(_begin(asked))
                async with two.subscribe("secret", "temp > 0", route="direct") as events:
                    interest: Any = one._core.interest
                    await until(lambda: spy.peer in interest.interested("secret"))
                    for _ in range(20):
                        assert (await (await one.publish("secret", GENEVA))).matched == 1
                    assert len(await take(events, 20)) == 20
                    assert not asked.backlog
                looking.cancel()
                await asyncio.gather(looking, return_exceptions=True)
            await spy.close(drain=0.0)

    async def _begin(asked: gossamer.Subscription) -> None:
        await asked

    go(main())
