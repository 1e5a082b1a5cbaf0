"""Attacks on a node, on real sockets.

In each of them the victim stays responsive, a normal pair goes on delivering, and the attacker is
counted and cut off.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

import gossamer
from gossamer.machine import SECOND, Micros
from gossamer.net import connection
from gossamer.net.keys import Keys
from gossamer.net.loop import run
from gossamer.net.tls import Session
from gossamer.node import topics, wire
from gossamer.node.topics import Advert, Adverts
from gossamer.overlay.batch import Batch
from gossamer.overlay.flood import FloodConfig
from gossamer.overlay.interest.messages import Flip, News
from gossamer.overlay.interest.record import Known, Record
from gossamer.overlay.proof import RECORD
from gossamer.trace import hex_peer
from keynet import Fabric, client_context
from livenet import GENEVA, WEATHER, until

pytestmark = pytest.mark.live

# Nodes of one fabric have the same patience: a node that waits says so four times in that time.
IMPATIENT = gossamer.NodeConfig(flood=FloodConfig(patience=Micros(SECOND)))
# Most tests take one second. A busy machine needs many more.
LIMIT_SECONDS = 100.0
# The time for an event's way to the subscriber and its receipt during the attack. It takes
# milliseconds.
ANSWER_SECONDS = 5.0


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Fabric:
    made = Fabric(tmp_path_factory.mktemp("attacked"))
    for name in ("victim", "friend", "mallory"):
        made.issue(name)
    return made


class Scene:
    """A victim, its friend, and a subscription of the friend to the victim's events."""

    def __init__(
        self, fabric: Fabric | None, victim: gossamer.Node, events: gossamer.Subscription
    ) -> None:
        self.fabric, self.victim, self.events = fabric, victim, events
        self.host, port = victim.address.split(":")
        self.port = int(port)
        self.mallory = fabric.base / "nodes" / "mallory" if fabric is not None else None
        self.peer = Keys(self.mallory).identity.peer if self.mallory is not None else 77
        self._sent = 0

    @property
    def counters(self) -> dict[str, int]:
        counters: dict[str, int] = self.victim.status()["counters"]
        return counters

    async def goes_on(self, times: int = 20, *, receipts: bool = True) -> None:
        """Checks that the normal pair delivers in time.

        Receipts wait for a member that does not report until it is cut off.
        """
        given = []
        for _ in range(times):
            began = time.monotonic()
            given.append(await self.victim.publish("weather", {**GENEVA, "temp": self._sent}))
            assert (await anext(self.events))["temp"] == self._sent
            assert time.monotonic() - began < ANSWER_SECONDS
            self._sent += 1
        for receipt in given if receipts else ():
            assert (await receipt).matched == 1

    async def connect(
        self, context: ssl.SSLContext | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if context is None and self.mallory is not None:
            context = client_context(self.mallory)
        return await asyncio.open_connection(self.host, self.port, ssl=context)

    async def insider(self, *messages: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A member of the fabric that has said hello and now sends any messages."""
        reader, writer = await self.connect()
        writer.write(self.hello())
        await self.sees_mallory()
        writer.write(b"".join(wire.encode(message) for message in messages))
        return reader, writer

    async def by_hand(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, Session, bytes]:
        """A member that sends any bytes, and the bytes that it has sent so far."""
        reader, writer = await asyncio.open_connection(self.host, self.port)
        tls = Session(client_context(self.mallory), server=False)
        tls.start()
        sent = tls.take()
        writer.write(sent)
        while not tls.established:
            tls.receive(await reader.read(65536))
            more = tls.take()
            writer.write(more)
            sent += more
        more = tls.send(self.hello())
        writer.write(more)
        await self.sees_mallory()
        return reader, writer, tls, sent + more

    async def sees_mallory(self) -> None:
        await until(
            lambda: hex_peer(self.peer) in [link["peer"] for link in self.victim.status()["links"]]
        )

    def hello(self, peer: int | None = None) -> bytes:
        return wire.encode(
            wire.Hello(
                wire.MAGIC, wire.VERSION, wire.VERSION, self.peer if peer is None else peer, 1, ""
            )
        )

    async def closed_for(self, reason: str) -> None:
        await until(lambda: self.counters.get(f"closed: {reason}"))


@contextlib.asynccontextmanager
async def scene(
    fabric: Fabric | None, limits: gossamer.PeerLimits | None = None
) -> AsyncIterator[Scene]:
    keys = {
        name: fabric.base / "nodes" / name if fabric is not None else None
        for name in ("victim", "friend")
    }
    async with (
        gossamer.Node(keys=keys["victim"], limits=limits, config=IMPATIENT) as victim,
        gossamer.Node(keys=keys["friend"], join=[victim.address], config=IMPATIENT) as friend,
    ):
        await victim.advertise("weather", WEATHER)
        # Every member relays, and so does mallory.
        async with friend.subscribe("weather", route="flood") as events:
            yield Scene(fabric, victim, events)


def attacked(
    fabric: Fabric | None,
    attack: Callable[[Scene], Awaitable[None]],
    limits: gossamer.PeerLimits | None = None,
) -> None:
    async def main() -> None:
        async with scene(fabric, limits) as there:
            await there.goes_on()
            await attack(there)
            await there.goes_on()

    run(asyncio.wait_for(main(), LIMIT_SECONDS))


async def is_closed(reader: asyncio.StreamReader) -> None:
    """Checks that the victim hangs up, whatever it says before."""
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        while await reader.read(65536):
            pass


# Strangers.


@pytest.mark.parametrize(
    "data", [b"\x00" * 4096, b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 100_000, bytes(range(256)) * 10]
)
@pytest.mark.parametrize("keyed", [True, False])
def test_garbage(fabric: Fabric, data: bytes, keyed: bool) -> None:
    async def attack(there: Scene) -> None:
        for _ in range(10):
            reader, writer = await asyncio.open_connection(there.host, there.port)
            writer.write(data)
            await is_closed(reader)
            writer.close()
        await there.goes_on()
        assert (
            sum(count for name, count in there.counters.items() if name.startswith("closed: "))
            >= 10
        )
        assert len(there.victim.status()["links"]) == 1

    attacked(fabric if keyed else None, attack)


@pytest.mark.parametrize("keyed", [True, False])
def test_slow_loris_before_the_handshake(
    fabric: Fabric, keyed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "HELLO_SECONDS", 0.5)

    async def attack(there: Scene) -> None:
        first = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" if keyed else there.hello()
        socks = [await asyncio.open_connection(there.host, there.port) for _ in range(30)]
        for at in range(8):
            for _, writer in socks:
                if not writer.is_closing():
                    writer.write(first[at : at + 1])
            await there.goes_on(2)
            await asyncio.sleep(0.1)
        for reader, writer in socks:
            await is_closed(reader)
            writer.close()
        assert there.counters["closed: no hello"] == 30

    attacked(fabric if keyed else None, attack)


@pytest.mark.parametrize("how", ["a frame", "a TLS record"])
def test_slow_loris_after_the_handshake(
    fabric: Fabric, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member that sends one byte at a time for ever keeps nothing open."""
    monkeypatch.setattr(connection, "HELLO_SECONDS", 0.5)
    monkeypatch.setattr(connection, "PING_SECONDS", 0.2)
    monkeypatch.setattr(connection, "SILENCE_SECONDS", 0.6)

    async def attack(there: Scene) -> None:
        _, writer, tls, _ = await there.by_hand()
        frame = (1 << 20).to_bytes(4, "big") + b"\x92" * 1000
        sealed = tls.send(frame) if how == "a TLS record" else b""
        for at in range(1000):
            if there.counters.get("closed: dribbles"):
                break
            writer.write(tls.send(frame[at : at + 1]) if how == "a frame" else sealed[at : at + 1])
            await asyncio.sleep(0.02)
        assert there.counters.get("closed: dribbles")
        writer.close()

    attacked(fabric, attack)


def test_a_connection_flood_takes_no_place_from_others(fabric: Fabric) -> None:
    limits = gossamer.PeerLimits(half_open=64, address_half_open=32)

    async def attack(there: Scene) -> None:
        opened: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        for _ in range(5):
            opened += await asyncio.gather(
                *(asyncio.open_connection(there.host, there.port) for _ in range(40))
            )
            await there.goes_on(2)
        await until(lambda: there.counters.get("closed: crowded out", 0) >= 200 - 32)
        assert len(there.victim._driver.connections) <= 32 + 2
        extra = there.fabric.issue("latecomer") if there.fabric is not None else None
        # An honest node comes in all the same.
        async with gossamer.Node(keys=extra, join=[there.victim.address]):
            await there.goes_on()
        for _, writer in opened:
            writer.close()

    attacked(fabric, attack, limits)


def test_a_flood_of_handshakes_costs_nothing_beyond_the_limit(fabric: Fabric) -> None:
    limits = gossamer.PeerLimits(handshakes=3)

    async def attack(there: Scene) -> None:
        context = client_context(None)
        tries = [asyncio.open_connection(there.host, there.port, ssl=context) for _ in range(60)]
        for one in await asyncio.gather(*tries, return_exceptions=True):
            if isinstance(one, tuple):
                one[1].close()
        assert there.counters["closed: too many handshakes"] >= 10

    attacked(fabric, attack, limits)


def test_one_address_cannot_take_all_connections(fabric: Fabric) -> None:
    limits = gossamer.PeerLimits(connections=40, address_connections=20, address_half_open=15)

    async def attack(there: Scene) -> None:
        opened = await asyncio.gather(
            *(asyncio.open_connection(there.host, there.port) for _ in range(60))
        )
        await until(lambda: len(there.victim._driver.connections) >= 15)
        assert len(there.victim._driver.connections) <= 20
        for _, writer in opened:
            writer.close()

    attacked(fabric, attack, limits)


# Certificates.


@pytest.mark.parametrize(
    "who", ["no certificate", "wrong authority", "self-signed", "expired", "revoked", "TLS 1.2"]
)
def test_certificates_that_do_not_count(fabric: Fabric, tmp_path: Path, who: str) -> None:
    async def attack(there: Scene) -> None:
        version = ssl.TLSVersion.TLSv1_3
        keys: Path | None
        if who == "no certificate":
            keys = None
        elif who == "wrong authority":
            # It has the same names.
            keys = Fabric(tmp_path, "test").issue("mallory")
        elif who == "self-signed":
            other = Fabric(tmp_path, "mallory")
            keys = other.issue("x")
            (keys / "node.crt").write_bytes((other.base / "authority.crt").read_bytes())
            (keys / "node.key").write_bytes((other.base / "authority.key").read_bytes())
        elif who == "expired":
            keys = fabric.issue("old", days=1e-9)
        elif who == "revoked":
            keys = fabric.issue("bad")
            fabric.authority.revoke("bad")
            fabric.authority.hand_out([fabric.base / "nodes" / "victim"])
            await until(lambda: there.victim.status()["keys"]["revoked"]["certificates"])
        else:
            keys, version = there.mallory, ssl.TLSVersion.TLSv1_2
        before = dict(there.counters)
        try:
            reader, writer = await there.connect(client_context(keys, version=version))
        except (ssl.SSLError, ConnectionError):
            # With TLS 1.3 a client learns only afterwards whether the server accepts it.
            assert who == "TLS 1.2"
        else:
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                writer.write(there.hello())
                said = await reader.read(65536)
                # The victim does not even say hello.
                assert said == b""
            writer.close()
        reasons = {
            "no certificate": "no certificate", "revoked": "revoked", "TLS 1.2": "broken tls",
        }.get(who, "wrong certificate")  # fmt: skip
        await until(
            lambda: (
                there.counters.get(f"closed: {reasons}", 0) > before.get(f"closed: {reasons}", 0)
            )
        )
        assert [link["name"] for link in there.victim.status()["links"]] == ["friend"]

    attacked(fabric, attack)


def test_a_hello_in_the_name_of_another(fabric: Fabric) -> None:
    async def attack(there: Scene) -> None:
        friend = Keys(fabric.base / "nodes" / "friend").identity.peer
        reader, writer = await there.connect()
        writer.write(there.hello(friend))
        await there.closed_for("false identity")
        await is_closed(reader)
        writer.close()
        assert "mallory says hello as" in there.victim.status()["last_problem"]
        # Now it is not let in under its own name either.
        reader, writer = await there.connect()
        writer.write(there.hello())
        await there.closed_for("shut out")
        writer.close()

    attacked(fabric, attack)


# Members.


def test_a_recorded_conversation_is_worth_nothing(fabric: Fabric) -> None:
    """A recorded conversation opens nothing when it is played again."""

    async def attack(there: Scene) -> None:
        _, writer, _, recorded = await there.by_hand()
        writer.close()
        await until(lambda: len(there.victim.status()["links"]) == 1)
        before = there.counters.get("closed: broken tls", 0)
        for _ in range(5):
            reader, writer = await asyncio.open_connection(there.host, there.port)
            writer.write(recorded)
            await is_closed(reader)
            writer.close()
        assert there.counters["closed: broken tls"] == before + 5
        assert len(there.victim.status()["links"]) == 1

    attacked(fabric, attack)


def test_frames_that_a_member_sends_again_are_delivered_once(fabric: Fabric) -> None:
    async def attack(there: Scene) -> None:
        async with there.victim.subscribe("weather", "city = 'again'", route="flood") as mine:
            row = wire.msgspec.msgpack.encode([["CH", "again", 1]])
            keys = Keys(there.mallory)
            proof = keys.proof(keys.rights())
            batch = Batch("weather", there.peer, 1, 1, 1, 1, 0, 1, row).signed(proof)
            own = Record(there.peer, 256, 1, certificate=keys.identity.certificate)
            own = structs.replace(own, signature=proof.sign(RECORD, Known(own).said))
            _, writer = await there.insider(News(records=(own,)), *[batch] * 1000)
            assert (await anext(mine))["city"] == "again"
            # The victim has relayed it, because this member may publish.
            assert (await anext(there.events))["city"] == "again"
            await until(lambda: there.counters.get("duplicate_events_in", 0) >= 999)
            await there.goes_on()
            assert not mine.backlog
            writer.close()

    attacked(fabric, attack)


@pytest.mark.parametrize("size", [wire.FRAME_MAX + 1, 2**32 - 1])
def test_oversized_frames(fabric: Fabric, size: int) -> None:
    async def attack(there: Scene) -> None:
        reader, writer = await there.insider()
        writer.write(size.to_bytes(4, "big") + b"x" * 1000)
        await there.closed_for("oversized")
        await is_closed(reader)
        writer.close()

    attacked(fabric, attack)


def test_a_claims_flood(fabric: Fabric) -> None:
    """A member invents members, interests and topics.

    Claims that it cannot prove are rejected, and it is cut off.
    """

    async def attack(there: Scene) -> None:
        invented = [
            News(
                records=tuple(
                    Record(2**63 + 64 * part + one, 256, 1, f"127.0.0.1:{1 + part}")
                    for one in range(64)
                )
            )
            for part in range(100)
        ]
        reader, writer = await there.insider(*invented)
        # These are more than a thousand messages that it must not send.
        await there.closed_for("garbage")
        await is_closed(reader)
        writer.close()
        status = there.victim.status()
        assert status["members"] <= 3
        assert there.counters.get("bad_addresses", 0) == 0

    attacked(fabric, attack)


def test_a_claims_flood_without_keys_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "TOPICS_MAX", 256)

    async def attack(there: Scene) -> None:
        mine = Record(77, 256, 1, "")
        flips = [Flip(77, 256, 2 + n, n, 16) for n in range(12_000)]
        invented = [
            Adverts(tuple(Advert(f"invented {64 * n + m}", "n INT", 0, 77) for m in range(64)))
            for n in range(6)
        ]
        _, writer = await there.insider(News(records=(mine,)), *flips, *invented)
        await until(
            lambda: (
                len(there.victim.status()["topics"]) == 256
                and there.counters.get("dropped", 0) > 100
            )
        )
        await there.goes_on()
        status = there.victim.status()
        assert status["interest"]["claims dropped"]
        assert len(status["topics"]) == 256
        writer.close()

    attacked(None, attack)


@pytest.mark.parametrize("keyed", [True, False])
def test_a_flood_of_messages(fabric: Fabric, keyed: bool) -> None:
    limits = gossamer.PeerLimits(messages=2000, window=1.0)

    async def attack(there: Scene) -> None:
        reader, writer = await there.insider()
        pings = wire.encode(wire.Ping()) * 1000
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            for _ in range(50):
                writer.write(pings)
                await writer.drain()
                await there.goes_on(1, receipts=False)
                if there.counters.get("closed: flood"):
                    break
        await there.closed_for("flood")
        await is_closed(reader)
        writer.close()

    attacked(fabric if keyed else None, attack, limits)


def test_a_member_that_reads_nothing_is_cut_off(fabric: Fabric) -> None:
    """The replies to it pile up, or it does not report.

    The limit that comes first ends the connection.
    """
    reasons = ("closed: stalled", "closed: flood", "closed: does not report")

    async def attack(there: Scene) -> None:
        _, writer = await there.insider()
        transport: Any = writer.transport
        transport.pause_reading()
        pings = wire.encode(wire.Ping()) * 1000
        with contextlib.suppress(ConnectionError, ssl.SSLError, RuntimeError):
            while not any(there.counters.get(reason) for reason in reasons):
                writer.write(pings)
                await there.goes_on(1, receipts=False)
                await asyncio.sleep(0.05)
        assert any(there.counters.get(reason) for reason in reasons)
        transport.abort()

    attacked(fabric, attack)


def test_a_list_of_revoked_certificates_that_nobody_signed(fabric: Fabric) -> None:
    async def attack(there: Scene) -> None:
        assert there.fabric is not None
        [mark] = Keys(there.fabric.base / "nodes" / "victim").authorities
        forged = wire.Revocations(mark, 2**62, b"\x30\x03\x02\x01\x01")
        reader, writer = await there.insider(forged)
        await there.closed_for("false list")
        await is_closed(reader)
        writer.close()

    attacked(fabric, attack)
