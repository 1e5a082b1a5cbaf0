"""An operator's view of a node: counters that cannot be flooded, log lines that do not repeat.

The pages of the health server do not hang.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import gossamer
from gossamer import trace
from gossamer.cli import logs
from gossamer.cli.top import compare, screen_of
from gossamer.net import health, tally
from gossamer.net.health import Health
from gossamer.net.journal import QUIET_MAX, Journal
from gossamer.net.loop import run
from gossamer.net.metrics import Metrics
from gossamer.net.sample import sample, unwell
from gossamer.node import wire
from gossamer.overlay.batch import Batch
from gossamer.overlay.interest.record import Record, ViewChange
from keynet import Fabric
from livenet import GENEVA, HELLO, WEATHER, go, until


@pytest.mark.parametrize(
    ("reason", "plain"),
    [
        ("queue to peer full", "queue to peer full"),
        ("schema of 'weather': type IN is not supported", "schema of ..."),
        ("slow subscription to 'a topic'", "slow subscription to ..."),
        ("more than 4096 topics or 16777216 characters", "more than N topics or N characters"),
        ("slow: its events were not taken in time", "slow: its events were not taken in time"),
        ("x" * 500, "x" * 80),
        ("''", "..."),
    ],
)
def test_reasons_lose_their_quotes(reason: str, plain: str) -> None:
    assert tally.plain_reason(reason) == plain


def test_a_tally_is_bounded() -> None:
    counts = tally.Tally()
    for number in range(10_000):
        word = "".join(chr(97 + int(digit)) for digit in str(number))
        counts.reject(word)
        counts.drop(word, 2, word)
        counts.topic(word).delivered += 1
    assert len(counts.rejected) <= tally.REASONS_MAX + 1
    assert len(counts.dropped) <= 2 * tally.REASONS_MAX + 1
    assert len(counts.topics) <= tally.TOPICS_MAX + 1
    # Nothing goes uncounted.
    assert sum(counts.rejected.values()) == 10_000
    assert sum(counts.dropped.values()) == 20_000
    assert sum(one.delivered for one in counts.topics.values()) == 10_000


@pytest.mark.live
@pytest.mark.parametrize("traced", [False, True])
def test_members_that_come_and_go_are_logged_with_and_without_a_trace(
    traced: bool, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    def said(node: gossamer.Node) -> list[tuple[str, str]]:
        fields: list[tuple[str, Any]] = [
            (each.getMessage(), each.fields) for each in caplog.records
        ]  # type: ignore[attr-defined]
        return [
            (text, about["peer"])
            for text, about in fields
            if about["node"] == f"{node.peer:016x}" and "member" in text
        ]

    async def main() -> None:
        async with gossamer.Node(trace_dir=tmp_path if traced else None) as one:
            async with gossamer.Node(join=[one.address]) as two:
                await until(lambda: ("member joined", f"{two.peer:016x}") in said(one))
            await until(lambda: len(said(one)) >= 2)
            assert said(one) == [
                ("member joined", f"{two.peer:016x}"),
                ("member left", f"{two.peer:016x}"),
            ]
            record = Record(two.peer, 1 << 8, 1)
            one._core.routing._changed(
                (ViewChange(two.peer, record, record, "news"),), one._driver.now()
            )
            one._core.routing._changed(
                (ViewChange(two.peer, record, None, "failed"),), one._driver.now()
            )
            one._driver.wake()
            assert said(one)[2:] == [("member failed", f"{two.peer:016x}")]
            assert caplog.records[-1].levelno == logging.WARNING

    with caplog.at_level(logging.INFO, "gossamer"):
        go(main())


def test_a_log_line_that_repeats_is_said_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    journal = Journal("77", lambda: now)
    with caplog.at_level(logging.DEBUG, "gossamer"):
        for _ in range(100):
            journal.noted(trace.Rejected("01", "unexpected Ping"))
        assert [record.getMessage() for record in caplog.records] == ["message rejected"]
        now = 11.0
        journal.noted(trace.Rejected("01", "unexpected Ping"))
        fields: dict[str, Any] = caplog.records[-1].fields  # type: ignore[attr-defined]
        assert fields == {
            "node": "77",
            "reason": "unexpected Ping",
            "peer": "01",
            "cut": False,
            "not_said": 99,
        }
        for number in range(5 * QUIET_MAX):
            journal.noted(
                trace.Dropped("x", 1, "".join(chr(97 + int(digit)) for digit in str(number)))
            )
        assert len(journal._said) <= QUIET_MAX


def test_lines_of_a_log() -> None:
    record = logging.LogRecord("gossamer", logging.WARNING, "", 0, "link cut", (), None)
    record.created = 0.25
    record.fields = {"peer": "01", "why": 'a "b"\nc', "none": ""}
    assert (
        logs.Lines().format(record)
        == r'1970-01-01T00:00:00.250Z warning link cut peer=01 why="a \"b\"\nc" none=""'
    )
    assert json.loads(logs.JsonLines().format(record)) == {
        "at": "1970-01-01T00:00:00.250Z", "level": "warning", "message": "link cut", "peer": "01",
        "why": 'a "b"\nc', "none": "",
    }  # fmt: skip
    try:
        raise RuntimeError("boom")
    except RuntimeError as error:
        record.exc_info = (RuntimeError, error, error.__traceback__)
    assert "boom" in json.loads(logs.JsonLines().format(record))["traceback"]
    assert logs.Lines().format(record).endswith("RuntimeError: boom")


@pytest.mark.live
def test_drops_and_rejections_are_on_the_page_by_reason() -> None:
    pytest.importorskip("prometheus_client", reason="the extra 'metrics' is not installed")
    config = gossamer.NodeConfig(buffer=10)

    async def main() -> str:
        async with gossamer.Node(config=config) as a:
            await a.advertise("weather", WEATHER)
            page = Health()
            await page.start("127.0.0.1:0")
            page.serve(a)
            async with a.subscribe("weather", slow="drop_oldest", route="flood"):
                for _ in range(30):
                    await (await a.publish("weather", GENEVA))
                host, port = a.address.split(":")
                _, writer = await asyncio.open_connection(host, int(port))
                writer.write(HELLO + wire.encode(Batch("weather", 77, 1, 10, 1, 9, 0, 1, b"\xc1")))
                await until(lambda: a.status()["counters"].get("rejected", 0) == 1)
                writer.close()
                before = sample(a)
                shown = compare({**before, "dropped": []}, sample(a))
                assert shown["dropped"] == [
                    {"what": "event", "reason": "slow subscription to ...", "count": 20, "new": 20}
                ]
                assert screen_of(shown).renderables
                text = await get(page, "/metrics")
            await page.close()
            return text

    text = go(main())
    assert 'gossamer_dropped_total{reason="slow subscription to ...",what="event"} 20.0' in text
    assert 'gossamer_rejected_total{reason="events on ..."} 1.0' in text
    assert 'gossamer_counter_total{name="dropped"} 20.0' in text


async def get(page: Health, path: str, method: str = "GET") -> str:
    host, port = page.address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    text = (await reader.read()).decode()
    writer.close()
    return text


@pytest.mark.live
def test_pages_for_wrong_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("prometheus_client", reason="the extra 'metrics' is not installed")
    monkeypatch.setattr(health, "REQUEST_SECONDS", 60.0)

    async def main() -> None:
        page = Health()
        await page.start("127.0.0.1:0")
        assert (await get(page, "/readyz")).endswith('{"ok": false, "problems": ["starting"]}\n')
        assert (await get(page, "/healthz")).startswith("HTTP/1.1 200 OK")
        assert (await get(page, "/metrics", "POST")).startswith("HTTP/1.1 405")
        assert (await get(page, "/metrics", "HEAD")).endswith("\r\n\r\n")
        assert (await get(page, "/healthz?verbose=1")).startswith("HTTP/1.1 200 OK")
        host, port = page.address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"x" * 9_000)
        assert (await reader.read()).startswith(b"HTTP/1.1 400")
        writer.close()
        monkeypatch.setattr(health, "REQUEST_SECONDS", 0.2)
        # These clients say nothing.
        slow = [await asyncio.open_connection(host, int(port)) for _ in range(4)]
        # The server does not wait for them.
        assert [await reader.read() for reader, _ in slow] == [b""] * 4
        monkeypatch.setattr(health, "REQUEST_SECONDS", 60.0)
        for _, writer in slow:
            writer.close()
        assert (await get(page, "/healthz")).startswith("HTTP/1.1 200 OK")
        await until(lambda: not page._callers)
        await page.close()

    go(main())


@contextlib.asynccontextmanager
async def silent(page: Health, count: int, sources: int) -> AsyncIterator[None]:
    """Connections that say nothing, from this many addresses. One that is closed is opened
    again.
    """
    host, port = page.address.split(":")

    async def hold(source: str) -> None:
        while True:
            try:
                reader, writer = await asyncio.open_connection(
                    host, int(port), local_addr=(source, 0)
                )
                held.add(writer)
                await reader.read()
                held.discard(writer)
                writer.transport.abort()
            except OSError:
                pass
            await asyncio.sleep(1.0)

    held: set[asyncio.StreamWriter] = set()
    tasks = [
        asyncio.create_task(hold(f"127.0.1.{1 + number % sources}")) for number in range(count)
    ]
    try:
        await until(lambda: len(page._callers) >= min(16 * sources, 48))
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in held:
            writer.transport.abort()


async def probe(page: Health, source: str, path: str = "/healthz") -> str:
    host, port = page.address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port), local_addr=(source, 0))
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    text = (await reader.read()).decode()
    writer.close()
    return text


@pytest.mark.live
@pytest.mark.parametrize(("count", "sources"), [(200, 1), (500, 25), (500, 250)])
def test_probes_are_answered_while_others_hold_connections_and_say_nothing(
    count: int, sources: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("prometheus_client", reason="the extra 'metrics' is not installed")
    # On a busy machine, places decide and not time.
    monkeypatch.setattr(health, "REQUEST_SECONDS", 60.0)

    async def main() -> None:
        async with gossamer.Node() as node:
            page = Health()
            await page.start("127.0.0.1:0")
            page.serve(node)
            try:
                async with silent(page, count, sources):
                    for _ in range(22):
                        # One is from an address of its own, and one from an address with many.
                        for source in ("127.0.0.1", "127.0.1.1"):
                            assert (await probe(page, source)).startswith("HTTP/1.1 200 OK")
                counters = node.status()["counters"]
                assert counters["metrics connections crowded out"] >= count - 48
                assert "gossamer_counter_total" in await probe(page, "127.0.0.1", "/metrics")
            finally:
                await page.close()

    # A busy machine takes its time.
    run(asyncio.wait_for(main(), 100.0))


@pytest.mark.live
def test_a_client_that_does_not_take_its_answer_holds_no_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It holds none while its answer lasts, and none afterwards."""
    pytest.importorskip("prometheus_client", reason="the extra 'metrics' is not installed")
    monkeypatch.setattr(health, "ANSWER_SECONDS", 60.0)
    monkeypatch.setattr(Metrics, "text", lambda self: b"x" * (8 << 20))

    async def main() -> None:
        page = Health()
        await page.start("127.0.0.1:0")
        host, port = page.address.split(":")
        async with contextlib.AsyncExitStack() as greedy:
            greedy.push_async_callback(page.close)
            for _ in range(20):
                one = greedy.enter_context(socket.create_connection((host, int(port))))
                # It reads nothing.
                one.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
                await until(lambda: any(each.has_asked for each in page._callers))
                assert (await probe(page, "127.0.0.1")).startswith("HTTP/1.1 200 OK")
                # One is being closed.
                assert len(page._callers) <= health.ADDRESS_MAX + 1
            counted = page._counted
            assert counted["metrics connections crowded out"] >= 4
            assert counted["metrics connections timed out"] == 0
            monkeypatch.setattr(health, "ANSWER_SECONDS", 0.1)
            one = greedy.enter_context(socket.create_connection((host, int(port))))
            one.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            await until(lambda: counted["metrics connections timed out"] == 1)
            # Counts from before the node's start are not lost.
            async with gossamer.Node() as node:
                page.serve(node)
                assert node.status()["counters"]["metrics connections crowded out"] >= 4
            await page.close()
            await until(lambda: not page._callers)

    go(main())


@pytest.mark.live
def test_a_certificate_that_expires_shows_before_and_after(tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client", reason="the extra 'metrics' is not installed")
    # It is valid for two seconds.
    keys = Fabric(tmp_path).issue("a", days=2 / 86_400)

    async def main() -> None:
        async with gossamer.Node(keys=keys) as node:
            metrics = Metrics()
            metrics.node = node
            expires = sample(node)["certificate_expires"]
            assert abs(expires - time.time()) < 60
            [shown] = re.findall(
                r"^gossamer_certificate_expires_seconds (.*)$", metrics.text().decode(), re.M
            )
            assert float(shown) == expires
            [signed] = re.findall(
                r"^gossamer_revocations_signed_seconds (.*)$", metrics.text().decode(), re.M
            )
            assert float(signed) == sample(node)["revocations_signed"]
            assert abs(float(signed) - time.time()) < 60
            await until(lambda: not sample(node)["healthy"])
            assert unwell(node) == [
                (
                    "this node's certificate is expired; "
                    "renew it: gossamer keys issue AUTHORITY NAME "
                    "--renew"
                )
            ]
        async with gossamer.Node() as plain:
            assert sample(plain)["certificate_expires"] is None
            assert sample(plain)["revocations_signed"] is None

    go(main())
