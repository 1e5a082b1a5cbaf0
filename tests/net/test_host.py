"""A host's effects on a node: its disk fills, its clock jumps."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import logging
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import gossamer
from gossamer.net.disk import DataDirectoryError
from gossamer.net.sample import sample, unready, unwell
from livenet import GENEVA, WEATHER, go, until

SOURCES = Path(gossamer.__file__).parent


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte, of this test only."""
    path = tmp_path / "disk"
    path.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        pytest.skip(f"a small file system needs the right to mount one: {made.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True, capture_output=True)


@pytest.mark.live
def test_a_full_disk_is_an_error_a_counter_and_a_verdict_and_nothing_accepted_is_lost(
    small_disk: Path,
) -> None:
    accepted = 0

    async def fill() -> None:
        nonlocal accepted
        async with gossamer.Node() as far:
            node = gossamer.Node(data_dir=small_disk / "data", join=[far.address])
            await node.start()
            await node.advertise("texts", "n INT, text STRING")
            await far.subscribe("texts")
            # Nothing leaves the node, so everything must be kept.
            node._driver.links.clear()
            with pytest.raises(
                gossamer.NodeError,
                match=r"not accepted: the data directory failed: .*; free some space there",
            ):
                while True:
                    await node.publish("texts", {"n": accepted, "text": "x" * 10_000})
                    accepted += 1
            assert accepted > 10
            # A restart would be no remedy.
            assert not unwell(node)
            assert unready(node)
            now = sample(node)
            assert now["counters"]["disk_failures"] == 1
            assert now["counters"]["refused_events"] == 1
            assert not now["ready"]
            assert "the data directory failed" in now["last_problem"]
            assert "free some space" in node.status()["disk"]["problem"]
            with pytest.raises(gossamer.NodeError, match="free some space"):
                # The event is refused, and not swallowed.
                await node.publish("texts", {"n": -1, "text": ""})
            # None of the refused events is there.
            assert node.status()["outbox"]["events"] == accepted
            # All of them are on disk, so closing raises no error.
            await node.close(drain=0.1)

    async def restart() -> list[int]:
        async with gossamer.Node() as far:
            await far.advertise("texts", "n INT, text STRING")
            again = gossamer.Node(data_dir=small_disk / "data", join=[far.address])
            async with far.subscribe("texts") as events, again as node:
                assert await node.drain(15.0) == 0
                return [(await anext(events))["n"] for _ in range(accepted)]

    (small_disk / "ballast").write_bytes(b"x" * (512 << 10))
    go(fill())
    # The operator frees some space.
    (small_disk / "ballast").unlink()
    assert go(restart()) == list(range(accepted))


@pytest.mark.live
@pytest.mark.parametrize("route", ["direct", "flood", "tree", "skiplist"])
def test_a_full_disk_stops_one_subscription_and_nothing_else_and_needs_no_restart(
    small_disk: Path, route: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The disk of the subscriber is full.

    Others get all events, receipts are complete, and the events that it missed come when there is
    room.
    """

    async def main() -> None:
        async with (
            gossamer.Node() as far,
            gossamer.Node(join=[far.address], data_dir=small_disk / "data") as node,
            gossamer.Node(join=[far.address]) as third,
        ):
            await far.advertise("texts", "n INT, text STRING", retention="1h")
            durable = await node.subscribe("texts", name="x", route=route)
            plain = await node.subscribe("texts", route=route)
            ordered = await third.subscribe("texts", route=route, ordered=True)
            sent, matched = 0, 3
            while matched == 3:
                receipt = await far.publish("texts", {"n": sent, "text": "x" * 10_000})
                async with asyncio.timeout(30):
                    matched = (await receipt).matched
                sent += 1
            # The receipt counts the subscriptions that took the event, and no others.
            assert matched == 2
            for n in range(sent):
                async with asyncio.timeout(30):
                    assert (await anext(plain))["n"] == n
                    assert (await anext(ordered))["n"] == n
            with pytest.raises(
                gossamer.StorageError, match=rf"'x' .* cut off: .*in {small_disk}/data\); free"
            ):
                while True:
                    await anext(durable)
            about = node.status()
            assert about["durable"]["x"]["problem"]
            assert about["durable"]["x"]["offset"] == sent - 1
            assert "free some space" in about["disk"]["problem"]
            with pytest.raises(gossamer.StorageError, match="not accepted"):
                await node.publish("texts", {"n": -1, "text": "x" * 100_000})
            (small_disk / "ballast").unlink()
            await until(lambda: not node.status()["disk"]["problem"])
            assert not unready(node)
            assert (await (await node.publish("texts", {"n": -2, "text": ""}))).matched == 2
            again = await node.subscribe("texts", name="x", route=route)
            got: list[int] = []
            while len(got) < sent + 1:
                async with asyncio.timeout(30):
                    got.append((await anext(again))["n"])
            # There is no gap.
            assert sorted(got) == [-2, *range(sent)]
            await again.ack(sent, through=True)

    (small_disk / "ballast").write_bytes(b"x" * (512 << 10))
    with caplog.at_level(logging.INFO, "gossamer"):
        go(main())
    assert caplog.messages.count("the data directory failed") == 1
    assert caplog.messages.count("the data directory works again") == 1


@pytest.mark.live
def test_a_disk_that_is_full_from_the_beginning_is_told_at_the_start(small_disk: Path) -> None:
    async def main() -> None:
        with pytest.raises(
            DataDirectoryError, match=r"cannot use data directory .*; free some space"
        ):
            await gossamer.Node(data_dir=small_disk / "data").start()

    with (small_disk / "ballast").open("wb", buffering=0) as ballast, contextlib.suppress(OSError):
        while True:
            ballast.write(b"x" * 4096)
    go(main())


@pytest.mark.live
@pytest.mark.parametrize("jump", [86_400.0, -86_400.0])
def test_a_clock_that_jumps_changes_nothing(monkeypatch: pytest.MonkeyPatch, jump: float) -> None:
    """No timer fires early or late, no node is suspected, and time in the machines goes on as
    before.
    """

    async def main() -> None:
        async with gossamer.Node() as a, gossamer.Node(join=[a.address]) as b:
            await a.advertise("weather", WEATHER)
            async with b.subscribe("weather") as events:
                before = a._driver.now()
                wall, wall_ns = time.time, time.time_ns
                monkeypatch.setattr(time, "time", lambda: wall() + jump)
                monkeypatch.setattr(time, "time_ns", lambda: wall_ns() + int(jump * 1e9))
                assert abs(time.time() - wall()) > 86_000
                began = time.monotonic()
                # It is longer than a beat of the detector.
                await until(lambda: time.monotonic() - began > 1.5)
                assert (await (await a.publish("weather", GENEVA))).matched == 1
                assert (await anext(events))["temp"] == 31
                assert 1_000_000 < a._driver.now() - before < 60_000_000
                for node in (a, b):
                    assert len(node._interest.view.members) == 2
                    assert not node._interest.suspects
                    assert not unready(node)

    go(main())


def test_nothing_that_a_node_runs_on_reads_the_wall_clock() -> None:
    """The exceptions need the time of day.

    They are the stamps of traces and of retained batches, and the validity of certificates.
    """
    allowed = {
        "net/driver.py": 1,
        "net/node.py": 1,
        "net/arguments.py": 1,
        "net/keys.py": 1,
        "net/authority.py": 1,
    }
    found: dict[str, int] = {}
    for folder in ("net", "node", "overlay", "filters"):
        for path in sorted((SOURCES / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Attribute) and ast.unparse(node).endswith(
                    ("time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "date.today")
                ):
                    name = str(path.relative_to(SOURCES))
                    found[name] = found.get(name, 0) + 1
    assert found == allowed
