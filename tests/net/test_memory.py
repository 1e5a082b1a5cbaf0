"""Large messages between nodes of one host lie in memory that both see (net/memory.py).

They come whole, once and in order. A node that cannot see the memory gets them over the socket, and
no peer can do harm with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import gossamer
from gossamer.filters import loops
from gossamer.net import memory
from gossamer.net.memory import (
    LEFT_BYTES,
    MEMORY_BYTES,
    STEP_BYTES,
    TOKEN_AT,
    Sharing,
    Window,
    lent,
    proof,
)
from gossamer.net.sample import sample
from gossamer.node import wire
from gossamer.overlay.batch import Batch
from keynet import Fabric
from livenet import go, until

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(
        lent() is None, reason="nothing is compiled, or this system has no such memory"
    ),
]

SCHEMA = "n BIGINT, place STRING"
US = wire.Hello(wire.MAGIC, 3, 3, 1, 1, "", process=11, memory=True)
THEM = wire.Hello(wire.MAGIC, 3, 3, 77, 1, "", process=12, memory=True)


def record(first: int, rows: int = 1000) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "n": range(first, first + rows),
            "place": [f"Zürich {n}" for n in range(first, first + rows)],
        }
    )


async def numbers(batches: Any, count: int) -> list[int]:
    found: list[int] = []
    async for batch in batches:
        batch.validate(full=True)
        assert batch.column(1).to_pylist() == [f"Zürich {n}" for n in batch.column(0).to_pylist()]
        found += batch.column(0).to_pylist()
        if len(found) >= count:
            return found
    return found


def shared(node: gossamer.Node) -> tuple[int, int]:
    links = node.status()["links"]
    return sum(link["shared_in"] for link in links), sum(link["shared_out"] for link in links)


async def flood(node: gossamer.Node, count: int) -> None:
    receipts = [await node.publish_batch("numbers", record(1000 * at)) for at in range(count)]
    for receipt in receipts:
        assert set((await receipt).matched) == {1}


@pytest.mark.parametrize("keys", [False, True])
def test_published_columns_lie_in_memory(tmp_path: Path, keys: bool) -> None:
    fabric = Fabric(tmp_path) if keys else None
    where = {name: fabric.issue(name) if fabric is not None else None for name in ("a", "b")}

    async def main() -> None:
        async with (
            gossamer.Node(keys=where["a"]) as a,
            gossamer.Node(keys=where["b"], join=[a.address]) as b,
        ):
            await a.advertise("numbers", SCHEMA)
            async with b.subscribe("numbers", "n >= 0") as events:
                await until(lambda: all(link.shares for link in a._driver.links.values()))
                _, found = await asyncio.gather(flood(a, 200), numbers(events.batches(), 200_000))
                assert sorted(found) == list(range(200_000))
                (_, out), (into, _) = shared(a), shared(b)
                # It is nearly all of the numbers and the texts.
                assert out >= into > 200_000 * 16
                assert sum(link["bytes_in"] for link in b.status()["links"]) > into

    go(main())


@pytest.mark.parametrize("blind", ["publisher", "subscriber"])
def test_a_node_that_does_not_want_memory_gets_all_over_the_socket(blind: str) -> None:
    async def main() -> None:
        async with (
            gossamer.Node(shared_memory=blind != "publisher") as a,
            gossamer.Node(join=[a.address], shared_memory=blind != "subscriber") as b,
        ):
            await a.advertise("numbers", SCHEMA)
            async with b.subscribe("numbers", "n >= 0") as events:
                _, found = await asyncio.gather(flood(a, 100), numbers(events.batches(), 100_000))
                assert sorted(found) == list(range(100_000))
                assert shared(a) == shared(b) == (0, 0)

    go(main())


def test_a_node_that_cannot_open_the_memory_gets_all_over_the_socket(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The memory is of another user or another container: it is there, and cannot be opened."""

    def refused(self: Window, offer: wire.Memory) -> None:
        raise PermissionError

    monkeypatch.setattr(Window, "__init__", refused)

    async def main() -> None:
        async with gossamer.Node() as a, gossamer.Node(join=[a.address]) as b:
            await a.advertise("numbers", SCHEMA)
            async with b.subscribe("numbers", "n >= 0") as events:
                _, found = await asyncio.gather(flood(a, 50), numbers(events.batches(), 50_000))
                assert sorted(found) == list(range(50_000))
                assert shared(a) == shared(b) == (0, 0)

    go(main())


def test_processes_share_and_a_slow_one_holds_no_more_than_its_share(tmp_path: Path) -> None:
    """A subscriber in a process of its own is stopped for a moment in the middle of the flood."""
    program = tmp_path / "taker.py"
    program.write_text(
        textwrap.dedent("""
            import asyncio, sys, gossamer
            async def main():
                node = gossamer.Node(join=[sys.argv[1]])
                async with node, node.subscribe("numbers", "n >= 0") as events:
                    print("ready", flush=True)
                    found = []
                    async for batch in events.batches():
                        found += batch.column(0).to_pylist()
                        if len(found) >= 600_000:
                            break
                    assert sorted(found) == list(range(600_000))
                    links = node.status()["links"]
                    print(len(found), sum(link["shared_in"] for link in links), flush=True)
            gossamer.run(main())
        """)
    )

    async def main() -> None:
        async with gossamer.Node() as a:
            await a.advertise("numbers", SCHEMA)
            taker = await asyncio.create_subprocess_exec(
                sys.executable, program, a.address, stdout=asyncio.subprocess.PIPE
            )
            try:
                await watched(a, taker)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    taker.kill()
                await taker.wait()

    async def watched(a: gossamer.Node, taker: asyncio.subprocess.Process) -> None:
        assert taker.stdout is not None
        assert (await taker.stdout.readline()).strip() == b"ready"
        (link,) = a._driver.links.values()
        most = 0

        async def watch() -> None:
            nonlocal most
            while True:
                most = max(most, link._sharing._left_bytes if link._sharing is not None else 0)
                await asyncio.sleep(0)

        watcher = asyncio.create_task(watch())
        publishing = asyncio.create_task(flood(a, 600))
        await until(lambda: shared(a)[1] > 1 << 20)
        taker.send_signal(signal.SIGSTOP)
        # It takes nothing for that long. The test can wait for nothing but time.
        await asyncio.sleep(0.3)
        taker.send_signal(signal.SIGCONT)
        await publishing
        watcher.cancel()
        count, into = map(int, (await taker.stdout.readline()).split())
        assert count == 600_000
        assert into > 600_000 * 16
        assert 0 < most <= LEFT_BYTES
        assert await taker.wait() == 0

    go(main())


# Memory itself.


class Offers:
    """Memory of this test, as a peer may lend it."""

    def __init__(
        self, *, name: str = "gossamer", size: int = 4 << 20, seals: int = fcntl.F_SEAL_SHRINK
    ) -> None:
        self.descriptor = os.memfd_create(name, os.MFD_ALLOW_SEALING)
        os.ftruncate(self.descriptor, size)
        if seals:
            fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, seals)
        self.size = size
        self.write(TOKEN_AT, b"t" * 16)

    def offer(
        self, owner: wire.Hello = THEM, reader: wire.Hello = US, **changes: Any
    ) -> wire.Memory:
        offer = wire.Memory(
            os.getpid(), self.descriptor, self.size, proof(b"t" * 16, owner, reader)
        )
        return msgspec.structs.replace(offer, **changes)

    def write(self, at: int, data: bytes) -> None:
        os.pwrite(self.descriptor, data, at)

    def stamp(self, *stamps: int) -> None:
        self.write(0, b"".join(stamp.to_bytes(8, sys.byteorder) for stamp in stamps))


@pytest.fixture
def offers() -> AsyncIterator[Offers]:
    made = Offers()
    yield made  # type: ignore[misc]
    os.close(made.descriptor)


def test_a_copy_has_the_bytes_that_were_there_under_its_stamp(offers: Offers) -> None:
    offers.stamp(7, 7, 8)
    offers.write(STEP_BYTES + 100, b"hello")
    window = Window(offers.offer())
    assert window.token == b"t" * 16
    assert bytes(window.copy(STEP_BYTES + 100, 5, 7)) == b"hello"
    assert len(window.copy(STEP_BYTES, 2 * STEP_BYTES, 7)) == 2 * STEP_BYTES
    copied = window.copy(STEP_BYTES + 100, 5, 7)
    offers.write(STEP_BYTES + 100, b"HELLO")
    # From here on it cannot change.
    assert bytes(copied) == b"hello"
    for at, size, stamp in (
        (STEP_BYTES, 5, 6),
        (STEP_BYTES, 2 * STEP_BYTES + 1, 7),
        (3 * STEP_BYTES, 1, 7),
    ):
        # All of it, or its end, is in use by another message.
        with pytest.raises(wire.WireError, match="truncated"):
            window.copy(at, size, stamp)


@pytest.mark.parametrize(
    ("at", "size"),
    [
        (0, 8),
        (STEP_BYTES - 1, 8),
        (4 << 20, 1),
        ((4 << 20) - 1, 2),
        (STEP_BYTES, 4 << 20),
        (256 << 20, 1),
        (STEP_BYTES, 0),
    ],
)
def test_nobody_is_led_beyond_the_memory(offers: Offers, at: int, size: int) -> None:
    with pytest.raises(wire.WireError, match="wrong shape"):
        Window(offers.offer()).copy(at, size, 0)


def test_memory_that_may_shrink_or_is_none_is_not_looked_at(offers: Offers, tmp_path: Path) -> None:
    loose, other, odd = Offers(seals=0), Offers(name="other"), Offers(size=(4 << 20) + 4096)
    with (tmp_path / "file").open("wb+") as file:
        os.ftruncate(file.fileno(), 4 << 20)
        wrong = [
            loose.offer(),
            other.offer(),
            offers.offer(descriptor=file.fileno()),
            offers.offer(size=8 << 20),
            offers.offer(size=2 << 20),
            odd.offer(),
            offers.offer(descriptor=2**31 - 1),
            offers.offer(process=2**31 - 1),
        ]
        for offer in wrong:
            with pytest.raises((OSError, ValueError)):
                Window(offer)
    for made in (loose, other, odd):
        os.close(made.descriptor)


def cargo(rows: bytes = b"") -> bytes:
    """A batch without its rows, as ``InMemory`` carries it."""
    return wire.encode(Batch("numbers", 7, 1, 1, 1, 1, 0, 0, rows))[4:]


def test_only_messages_of_columns_may_lie_there(offers: Offers) -> None:
    offers.stamp(1)
    offers.write(STEP_BYTES, b"\xff\xff\xff\xff" + b"\x91" * 100)
    sharing = Sharing(US, THEM)
    with pytest.raises(wire.WireError, match="not opened"):
        sharing.receive(wire.InMemory(STEP_BYTES, 1, 8, cargo()))
    assert sharing.receive(offers.offer()) == wire.encode(wire.MemorySeen(b"t" * 16))
    found = sharing.receive(wire.InMemory(STEP_BYTES, 1, 8, cargo()))
    assert isinstance(found, Batch)
    assert bytes(found.rows) == b"\xff\xff\xff\xff\x91\x91\x91\x91"
    assert sharing.owed() == wire.encode(wire.MemoryTaken(1))
    assert sharing.owed() == b""
    nested = wire.encode(wire.InMemory(STEP_BYTES, 1, 8, cargo()))[4:]
    for lies in (
        # These are rows, and not columns.
        wire.InMemory(STEP_BYTES + 4, 1, 8, cargo()),
        # It has some rows already.
        wire.InMemory(STEP_BYTES, 1, 8, cargo(b"\x90")),
        wire.InMemory(STEP_BYTES, 1, 8, wire.encode(wire.Ping())[4:]),
        wire.InMemory(STEP_BYTES, 1, 8, nested),
        wire.InMemory(STEP_BYTES, 1, 8, b"\xc1"),
        wire.InMemory(STEP_BYTES, 1, 8, b""),
    ):
        with pytest.raises(wire.WireError):
            sharing.receive(lies)
    with pytest.raises(wire.WireError, match="second time"):
        sharing.receive(offers.offer())


def test_a_peer_cannot_lend_memory_of_others(offers: Offers) -> None:
    """A node opens memory with rights that the peer may not have.

    A peer may name the node's own memory, or that of a third process.
    """
    own = lent()
    assert own is not None
    # It is lent by a third process, or to a third.
    wrong = [
        # The node has said this itself.
        own.offer(US, THEM),
        own.offer(US, US),
        msgspec.structs.replace(own.offer(US, THEM), proof=proof(b"guessed" * 2, THEM, US)),
        offers.offer(owner=US, reader=THEM),
        offers.offer(owner=msgspec.structs.replace(THEM, peer=78)),
        offers.offer(owner=msgspec.structs.replace(THEM, process=13)),
        offers.offer(reader=msgspec.structs.replace(US, peer=2)),
        offers.offer(proof=b""),
    ]
    for offer in wrong:
        sharing = Sharing(US, THEM)
        assert sharing.receive(offer) is None
        with pytest.raises(wire.WireError, match="not opened"):
            sharing.receive(wire.InMemory(STEP_BYTES, 0, 8, cargo()))
        with pytest.raises(wire.WireError, match="second time"):
            # A link has one guess.
            sharing.receive(offers.offer())


def test_more_than_may_wait_there_is_not_copied(offers: Offers) -> None:
    offers.stamp(1, *[1] * 14)
    offers.write(STEP_BYTES, b"\xff")
    sharing = Sharing(US, THEM)
    sharing.receive(offers.offer())
    lies = wire.InMemory(STEP_BYTES, 1, 3 << 20, cargo())
    for _ in range(3):
        sharing.receive(lies)
        sharing.receive(lies)
        with pytest.raises(wire.WireError, match="flood"):
            sharing.receive(lies)
        sharing.owed()


def test_a_peer_takes_no_more_than_was_left_and_proves_that_it_sees_the_memory() -> None:
    sharing = Sharing(US, THEM)
    sharing.receive(wire.MemorySeen(b"x" * 16))
    assert not sharing.is_seen
    own = lent()
    assert own is not None
    sharing.receive(wire.MemorySeen(own.token))
    assert sharing.is_seen
    frames = [wire.Pieces(b"x" * (LEFT_BYTES // 2), in_memory=b"lies") for _ in range(3)]
    assert [sharing.instead(frame) for frame in (*frames, b"bytes", wire.Pieces(b"elsewhere"))] == [
        b"lies",
        b"lies",
        None,
        b"",
        b"",
    ]
    for count in (3, 2**64 - 1):
        with pytest.raises(wire.WireError, match="wrong shape"):
            sharing.receive(wire.MemoryTaken(count))
    sharing.receive(wire.MemoryTaken(1))
    assert sharing.instead(frames[2]) == b"lies"
    with pytest.raises(wire.WireError, match="wrong shape"):
        sharing.receive(wire.MemoryTaken(0))
    sharing.receive(wire.MemoryTaken(3))
    assert (sharing._left_bytes, len(sharing._left)) == (0, 0)


def test_slabs_of_lent_memory_are_given_back_and_have_new_stamps() -> None:
    native = loops.native
    one, two = native.Slab(300 << 10, True), native.Slab(1, True)
    first, second = loops.place(memoryview(one)), loops.place(memoryview(two))
    assert first is not None
    assert second is not None
    assert {first[0] % STEP_BYTES, second[0] % STEP_BYTES} == {0}
    assert first[0] >= STEP_BYTES
    assert loops.place(memoryview(one)[64:]) == (first[0] + 64, first[1])
    assert first[1] != second[1]
    del one
    again = loops.place(memoryview(native.Slab(300 << 10, True)))
    assert again is not None
    assert (again[0], again[1] > second[1]) == (first[0], True)
    private = native.Slab(300 << 10)
    assert loops.place(memoryview(private)) is None
    assert loops.place(b"bytes") is None
    missed = loops.missed()
    # They are more than there is, so the rest is private.
    held = [native.Slab(8 << 20, True) for _ in range(MEMORY_BYTES // (8 << 20) + 2)]
    lies = [loops.place(memoryview(slab)) for slab in held]
    assert None in lies
    assert loops.missed() - missed == lies.count(None)
    assert sum(place is not None for place in lies) >= MEMORY_BYTES // (8 << 20) - 2
    for number, slab in enumerate(held):
        memoryview(slab)[:4] = number.to_bytes(4, "little")
    assert [int.from_bytes(memoryview(slab)[:4], "little") for slab in held] == list(
        range(len(held))
    )


def test_columns_that_find_no_room_in_it_go_by_the_socket_and_are_counted() -> None:
    async def main() -> None:
        async with gossamer.Node() as a, gossamer.Node(join=[a.address]) as b:
            await a.advertise("numbers", SCHEMA)
            async with b.subscribe("numbers", "n >= 0") as events:
                await until(lambda: all(link.shares for link in a._driver.links.values()))
                held = [
                    loops.native.Slab(256 << 10, True) for _ in range(MEMORY_BYTES // (256 << 10))
                ]
                before, missed = shared(a), a.status()["counters"]["shared_memory_full"]
                _, found = await asyncio.gather(flood(a, 20), numbers(events.batches(), 20_000))
                assert sorted(found) == list(range(20_000))
                assert shared(a) == before
                assert a.status()["counters"]["shared_memory_full"] > missed
                # /metrics and gossamer top show it.
                assert sample(a)["counters"]["shared_memory_full"] > missed
                del held

    go(main())


def test_retained_batches_do_not_stay_in_lent_memory() -> None:
    async def main() -> None:
        async with gossamer.Node() as a, gossamer.Node(join=[a.address]) as b:
            await a.advertise("numbers", SCHEMA, retention="1h, 512MB")
            async with b.subscribe("numbers", "n >= 0") as events:
                await asyncio.gather(flood(a, 300), numbers(events.batches(), 300_000))
            kept = [
                kept.batch.rows
                for topic in a._core.retained._topics.values()
                for kept in topic.batches.values()
            ]
            assert sum(map(len, kept)) > 300_000 * 16
            assert [loops.place(rows) for rows in kept] == [None] * len(kept)
            # The history is whole.
            async with b.subscribe("numbers", "n >= 299000", since="1h") as events:
                assert [(await anext(events))["n"] for _ in range(1000)] == list(
                    range(299_000, 300_000)
                )

    go(main())


def test_a_forked_child_writes_to_memory_of_its_own() -> None:
    """It runs in a process of its own, because this one has threads, which a fork does not like."""
    program = """
        import os, sys
        from gossamer.filters import loops
        from gossamer.net.memory import lent
        own = lent()
        inode = os.fstat(own.descriptor).st_ino
        slab = loops.native.Slab(1 << 20, True)
        memoryview(slab)[:6] = b"parent"
        child = os.fork()
        if not child:
            assert loops.place(memoryview(slab)) is None
            new = loops.native.Slab(1 << 20, True)
            assert loops.place(memoryview(new)) is None
            other = lent()
            assert other is not own and other.token != own.token
            assert os.fstat(other.descriptor).st_ino != inode
            # The parent's descriptor was closed.
            assert other.descriptor == own.descriptor
            mine = loops.native.Slab(1 << 20, True)
            assert loops.place(memoryview(mine)) is not None
            memoryview(mine)[:6] = b"child!"
            del new, mine, slab
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert bytes(memoryview(slab)[:6]) == b"parent"
        assert loops.place(memoryview(slab)) is not None
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=60)


def test_a_subscriber_in_the_publishers_process_may_keep_its_events() -> None:
    async def main() -> None:
        async with gossamer.Node() as a:
            await a.advertise("numbers", SCHEMA)
            async with a.subscribe("numbers", "n >= 0") as events:
                kept = []
                publishing = asyncio.create_task(flood(a, 100))
                async for batch in events.batches():
                    kept.append(batch)
                    if sum(one.num_rows for one in kept) == 100_000:
                        break
                await publishing
            held = [loops.native.Slab(8 << 20, True) for _ in range(7)]
            # No other part of it is in use.
            assert None not in [loops.place(memoryview(slab)) for slab in held]
            for slab in held:
                memoryview(slab)[:] = bytes(8 << 20)
            assert sorted(n for one in kept for n in one.column(0).to_pylist()) == list(
                range(100_000)
            )

    go(main())


def test_columns_that_are_the_same_many_times_are_cut_like_others() -> None:
    """Arrow counts memory once that several columns share. On the wire each column has its own."""
    width, rows = 200, 4000

    async def main() -> None:
        async with gossamer.Node() as a, gossamer.Node(join=[a.address]) as b:
            await a.advertise("wide", ", ".join(f"c{n} BIGINT" for n in range(width)))
            one = pa.array(range(rows))
            async with b.subscribe("wide", "c0 >= 0") as events:
                receipt = await a.publish_batch(
                    "wide", pa.record_batch([one] * width, [f"c{n}" for n in range(width)])
                )
                found: list[int] = []
                async for batch in events.batches():
                    found += batch.column(width - 1).to_pylist()
                    if len(found) >= rows:
                        break
                assert sorted(found) == list(range(rows))
                assert sum((await receipt).matched) == rows

    go(main())


def test_a_forwarder_on_one_host_is_no_reason_to_part() -> None:
    """A forwarder makes one end think that the other is on its host. The other end knows better."""

    async def main() -> None:
        async with gossamer.Node() as a, gossamer.Node(join=[a.address]) as b:
            (link,) = b._driver.links.values()
            link._sharing = None
            (back,) = a._driver.links.values()
            back.send(wire.encode(wire.Memory(1, 1, 1 << 20, b"")), is_event=False)
            back.ping()
            await until(lambda: not back.unanswered)
            assert not back.closed

    go(main())


# Peers that lie.


@contextlib.asynccontextmanager
async def mallory(
    victim: gossamer.Node,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, port = victim.address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        wire.encode(wire.Hello(wire.MAGIC, wire.VERSION, wire.VERSION, 77, 1, "", memory=True))
    )
    await until(lambda: victim.status()["links"])
    yield reader, writer
    writer.close()


@pytest.mark.parametrize(
    "lie",
    [
        wire.InMemory(STEP_BYTES, 1, 8, cargo()),
        wire.InMemory(256 << 20, 2**64 - 1, 1 << 20, b""),
        wire.MemoryTaken(1),
        wire.Memory(1, 1, 1 << 20, b""),
        wire.MemorySeen(b""),
    ],
    ids=lambda lie: type(lie).__name__,
)
@pytest.mark.parametrize("agreed", [True, False])
def test_a_liar_is_cut_off_or_ignored_and_the_node_goes_on(
    lie: wire.AnyMessage, agreed: bool
) -> None:
    async def main() -> None:
        async with gossamer.Node(shared_memory=agreed) as victim:
            async with mallory(victim) as (reader, writer):
                writer.write(wire.encode(lie))
                # Nothing can be seen and nothing is proved, so everything goes over the socket.
                if agreed and isinstance(lie, wire.Memory | wire.MemorySeen):
                    writer.write(wire.encode(wire.Ping()))
                    heard = wire.Unframer()
                    while not any(
                        isinstance(one, wire.Pong) for one in heard.feed(await reader.read(65536))
                    ):
                        pass
                    (link,) = victim._driver.links.values()
                    assert not link.shares
                else:
                    await until(lambda: victim.status()["counters"].get("closed: wrong shape"))
            async with gossamer.Node(join=[victim.address]) as friend:
                await victim.advertise("numbers", SCHEMA)
                async with friend.subscribe("numbers") as events:
                    await asyncio.gather(flood(victim, 40), numbers(events.batches(), 40_000))

    go(main())


def test_memory_that_is_used_again_ends_an_old_link(offers: Offers) -> None:
    async def main() -> None:
        offers.stamp(5)
        async with gossamer.Node() as victim, mallory(victim) as (_, writer):
            (link,) = victim._driver.links.values()
            assert link.hello is not None
            offer = offers.offer(link.hello, victim._driver.hello())
            writer.write(wire.encode(offer) + wire.encode(wire.InMemory(STEP_BYTES, 4, 8, cargo())))
            await until(lambda: victim.status()["counters"].get("closed: truncated"))

    go(main())


def test_the_memory_has_no_name() -> None:
    own = lent()
    assert own is not None
    assert str(Path(f"/proc/self/fd/{own.descriptor}").readlink()).endswith("(deleted)")
    with pytest.raises(OSError):
        os.ftruncate(own.descriptor, STEP_BYTES)
    assert os.fstat(own.descriptor).st_size == memory.MEMORY_BYTES
