"""The data directory when its disk fails and works again.

The tests check the errors that come at once, the records that are owed, and the node's reaction.
"""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

import gossamer
from gossamer.machine import Forget, Keep, Store, Token
from gossamer.net import disk as disk_module
from gossamer.net.disk import Disk
from livenet import GENEVA, WEATHER, go, until


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_module, "AGAIN_SECONDS", 0.02)


class Patient:
    """A disk that refuses every transaction while ``full``, and counts them."""

    def __init__(self, directory: Path) -> None:
        self.told: list[str] = []
        self.stored: list[int] = []
        self.lost: list[int] = []
        self.full = False
        self.asked = 0
        self.disk = Disk(
            directory,
            lambda error: self.told.append(f"failed: {error}"),
            lambda: self.told.append("works"),
        )
        self.disk.lost = self.lost.extend
        commit = self.disk._commit

        def maybe(stores: list[Store]) -> None:
            self.asked += 1
            if self.full:
                raise sqlite3.OperationalError("database or disk is full")
            commit(stores)

        self.disk._commit = maybe  # type: ignore[method-assign]

    def ask(self, token: int, *records: Keep | Forget, awaited: bool = False) -> None:
        store = Store(Token(token), records, is_awaited=awaited)
        self.disk.store(store, self.stored.append)


def test_awaited_stores_are_reported_as_lost_and_the_rest_is_written_when_there_is_room(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        one = Patient(tmp_path)
        one.ask(1, Keep("a", b"1"), Keep("b", b"1"), awaited=True)
        await until(lambda: one.stored == [1])
        one.full = True
        one.ask(2, Keep("a", b"2"))
        one.ask(3, Keep("c", b"3"), awaited=True)
        one.ask(4, Forget("b"))
        await until(lambda: one.lost == [3])
        one.ask(5, Keep("a", b"5"))
        one.ask(6, Keep("d", b"6"), awaited=True)
        await until(lambda: one.lost == [3, 6])
        assert one.disk.owed >= 2
        assert one.told == ["failed: database or disk is full"]
        one.full = False
        await until(lambda: one.disk.failed is None)
        await until(lambda: "probe" not in one.disk.kept())
        assert one.disk.kept() == {"a": b"5"}
        assert one.disk.owed == 0
        assert one.told == ["failed: database or disk is full", "works"]
        one.ask(7, Keep("e", b"7"), awaited=True)
        await until(lambda: 7 in one.stored)
        assert one.lost == [3, 6]
        await one.disk.close()

    go(main())


def test_a_disk_that_fails_is_asked_again_once_in_a_while_however_often_it_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        monkeypatch.setattr(disk_module, "AGAIN_SECONDS", 0.5)
        one = Patient(tmp_path)
        one.full = True
        for token in range(1, 51):
            one.ask(token, Keep("a", b"1"), awaited=True)
            await until(lambda: token in one.lost)  # noqa: B023
        asked, loop = one.asked, asyncio.get_running_loop()
        begun = loop.time()
        await until(lambda: one.asked >= asked + 4)
        # There is one timer, and not fifty.
        assert loop.time() - begun > 1.0
        await one.disk.close()

    go(main())


def test_owed_records_are_written_at_the_end_if_there_is_room_by_then(tmp_path: Path) -> None:
    async def main() -> None:
        one = Patient(tmp_path)
        one.full = True
        one.ask(1, Keep("a", b"1"))
        await until(lambda: one.told)
        one.full = False
        one.disk._try_again = lambda: None  # type: ignore[method-assign]
        await one.disk.close()
        again = Disk(tmp_path)
        assert again.kept()["a"] == b"1"
        await again.close()

    go(main())


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Databases have at most the number of pages in the list. SQLite itself refuses the next
    one.
    """
    pages = [40]
    commit = Disk._commit

    def bounded(self: Disk, stores: list[Store]) -> None:
        self._db.execute(f"PRAGMA max_page_count = {pages[0]}")
        commit(self, stores)

    monkeypatch.setattr(Disk, "_commit", bounded)
    return pages


@pytest.mark.live
def test_a_publisher_whose_database_is_full_is_told_at_once_and_goes_on_when_there_is_room(
    tmp_path: Path, small: list[int]
) -> None:
    async def main() -> None:
        async with (
            gossamer.Node() as far,
            gossamer.Node(join=[far.address], data_dir=tmp_path) as node,
        ):
            await node.advertise("t", "n INT, text STRING", retention="1h")
            ordered = await far.subscribe("t", ordered=True)
            mine = await node.subscribe("t")
            accepted = 0
            with pytest.raises(
                gossamer.StorageError, match=rf"not accepted: .*full \(in {tmp_path}\); free"
            ):
                while True:
                    await node.publish("t", {"n": accepted, "text": "x" * 5_000})
                    accepted += 1
            assert accepted > 3
            # Nothing waits for the refused events.
            assert await node.drain() == 0
            assert (await (await far.publish("t", {"n": -1, "text": ""}))).matched == 2
            small[0] = 1 << 20
            receipt = await node.publish("t", {"n": -2, "text": "x" * 5_000})
            assert (await receipt).matched == 2
            assert not node.status()["disk"]["problem"]
            expected = {-2, -1, *range(accepted)}
            for subscription in (ordered, mine):
                async with asyncio.timeout(30):
                    got = [(await anext(subscription))["n"] for _ in expected]
                assert len(got) == len(set(got))
                assert set(got) == expected

    go(main())


@pytest.mark.live
def test_events_that_were_refused_are_not_counted_when_a_node_closes(
    tmp_path: Path, small: list[int]
) -> None:
    async def main() -> None:
        small[0] = 1
        async with gossamer.Node() as far:
            node = gossamer.Node(join=[far.address], data_dir=tmp_path)
            await node.start()
            await node.advertise("weather", WEATHER)
            await far.subscribe("weather")
            refused = 0
            for _ in range(2):
                with pytest.raises(gossamer.StorageError):
                    await node.publish("weather", {**GENEVA, "city": "x" * 9_000})
                refused += 1
            assert node.status()["counters"]["refused_events"] == refused
            assert node.status()["outbox"] == {"events": 0, "bytes": 0}
            # It would raise an error if it took them for accepted.
            await node.close()

    go(main())
