"""A member that was revoked has an accomplice inside: nothing of it is believed all the same."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

import gossamer
from gossamer.machine import Peer
from gossamer.net.keys import Keys
from gossamer.net.loop import run
from gossamer.node.rights import Rights
from gossamer.overlay.batch import Batch
from gossamer.overlay.interest.messages import News
from gossamer.overlay.proof import BATCH
from keynet import Fabric
from livenet import GENEVA, WEATHER, until

pytestmark = pytest.mark.live

LIMIT_SECONDS = 100.0


def _signed(keys: Keys, number: int) -> Batch:
    """An event of a revoked publisher, signed with its key."""
    rows = msgspec.msgpack.encode([("CH", "forged", 31)])
    batch = Batch("weather", keys.identity.peer, 1, number, 1, 1, 0, 1, rows)
    signature = keys.proof(keys.rights()).sign(BATCH, batch.said())
    return msgspec.structs.replace(batch, signature=signature)


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "fresh"])
def test_signed_events_of_a_revoked_publisher_are_not_delivered(
    tmp_path: Path, is_known: bool
) -> None:
    """An accomplice passes them on, to a node that knew the publisher and to one that did not."""
    fabric = Fabric(tmp_path)

    async def main() -> None:
        paths = {name: fabric.issue(name) for name in ("victim", "mallory", "bad")}
        bad = Keys(paths["bad"])
        async with (
            gossamer.Node(keys=paths["victim"]) as victim,
            gossamer.Node(keys=paths["mallory"], join=[victim.address]) as mallory,
        ):
            await victim.advertise("weather", WEATHER)
            await mallory.topic("weather")
            async with victim.subscribe("weather", route="flood") as events:
                if is_known:
                    async with gossamer.Node(keys=paths["bad"], join=[victim.address]) as before:
                        await before.topic("weather")
                        await before.publish("weather", GENEVA)
                        assert (await anext(events))["city"] == "Geneva"
                fabric.authority.revoke("bad")
                fabric.authority.hand_out([paths["victim"]])
                revoked = victim._keys
                assert revoked is not None
                await until(lambda: revoked.revoked)
                for number in range(2, 6):
                    mallory._driver.send_to(victim.peer, _signed(bad, number))
                    await mallory.publish("weather", {**GENEVA, "temp": number})
                    assert (await anext(events))["temp"] == number
                # They wait for a certificate that counts, and none comes.
                await until(lambda: victim.status()["counters"].get("rejected", 0) >= 4)
                assert "nobody has proved" in victim.status()["last_problem"]
                assert not events.backlog
                assert bad.identity.peer not in victim._interest.view.members

    run(asyncio.wait_for(main(), LIMIT_SECONDS))


def test_a_certificate_that_was_replaced_gives_nobody_its_rights_back(tmp_path: Path) -> None:
    """The rights of a node shrink, and a member repeats the record with the wider certificate."""
    fabric = Fabric(tmp_path)

    async def main() -> None:
        paths = {name: fabric.issue(name, days=30) for name in ("victim", "mallory", "less")}
        wide = Keys(paths["less"]).identity
        async with (
            gossamer.Node(keys=paths["victim"]) as victim,
            gossamer.Node(keys=paths["mallory"], join=[victim.address]) as mallory,
            gossamer.Node(keys=paths["less"], join=[victim.address]) as less,
        ):
            await until(lambda: less.peer in victim._interest.view.members)
            before = victim._interest.view.members[less.peer].record
            assert before.certificate == wide.certificate
            fabric.issue("less", publish=["small"], days=1, renew=True)
            rights = victim._core.rights
            assert isinstance(rights, Rights)
            await until(lambda: not rights.may_publish(less.peer, "weather"))
            mallory._driver.send_to(victim.peer, News(records=(before,)))
            later = msgspec.structs.replace(before, version=before.version + 1000)
            mallory._driver.send_to(victim.peer, News(records=(later,)))
            await victim.advertise("weather", WEATHER)
            await mallory.topic("weather")
            async with victim.subscribe("weather") as events:
                # It comes after the records, on the same link.
                await mallory.publish("weather", GENEVA)
                assert (await anext(events))["city"] == "Geneva"
            assert rights.may_publish(Peer(less.peer), "small")
            assert not rights.may_publish(Peer(less.peer), "weather")

    run(asyncio.wait_for(main(), LIMIT_SECONDS))
