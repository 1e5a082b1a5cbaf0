"""The blocking facade: the same fabric without an event loop."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import gossamer
from gossamer import blocking
from livenet import GENEVA, SECONDS, WEATHER

pytestmark = pytest.mark.live


@pytest.fixture
def pair() -> Iterator[tuple[blocking.Node, blocking.Node]]:
    with blocking.Node() as a, blocking.Node(join=[a.address]) as b:
        a.advertise("weather", WEATHER)
        yield a, b


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("gossamer")]


def test_publish_and_take_then_nothing_is_left(pair: tuple[blocking.Node, blocking.Node]) -> None:
    a, b = pair
    with b.subscribe("weather", "temp > 30") as events:
        receipt = a.publish("weather", GENEVA)
        assert receipt.wait(SECONDS).matched == 1
        assert receipt.done
        assert dict(events.next(SECONDS)) == GENEVA
        assert [one.node for one in a.view("weather")] == [f"{b.peer:016x}"]
    assert a.publish("weather", GENEVA).wait(SECONDS).matched == 0
    # The subscription is closed, so iteration ends.
    assert list(events) == []
    a.close()
    b.close()
    assert threads() == []
    with pytest.raises(gossamer.NodeError, match="closed"):
        a.publish("weather", GENEVA)
    # Closing it once more does nothing.
    a.close()


def test_many_events_cross_together_and_in_order(pair: tuple[blocking.Node, blocking.Node]) -> None:
    a, b = pair
    with b.subscribe("weather", "temp >= 0") as events:
        receipts = a.publish_many("weather", ({**GENEVA, "temp": temp} for temp in range(5000)))
        assert len(receipts) == 5000
        taken = [event["temp"] for event in (events.next(SECONDS) for _ in range(5000))]
        assert taken == list(range(5000))
        assert sum(done.matched for done in receipts.wait(SECONDS)) == 5000
        assert a.drain() == 0


def test_a_wait_that_is_given_up_loses_no_event(pair: tuple[blocking.Node, blocking.Node]) -> None:
    a, b = pair
    with b.subscribe("weather") as events:
        with pytest.raises(TimeoutError):
            events.next(timeout=0.0)
        assert list(events.within(0.01)) == []
        a.publish_many("weather", [{**GENEVA, "temp": temp} for temp in range(3)]).wait(SECONDS)
        assert [event["temp"] for event in events.within(0.5)] == [0, 1, 2]


def test_changes_lookup_and_status(pair: tuple[blocking.Node, blocking.Node]) -> None:
    a, b = pair
    changes = a.changes("weather")
    with b.subscribe("weather", "temp > 30", route="skiplist", barrier=True):
        assert changes.next(SECONDS).kind == "joined"
        assert [hit["filter"] for hit in a.lookup("weather", GENEVA)] == ["temp > 30"]
    assert changes.next(SECONDS).kind == "left"
    assert b.status()["subscriptions"] == []


def test_batches_and_durable_subscriptions(tmp_path: Path) -> None:
    with blocking.Node() as a:
        a.advertise("numbers", "n INT", retention="1h")
        with blocking.Node(join=[a.address], data_dir=tmp_path) as b:
            with b.subscribe("numbers", name="mine") as events:
                receipt = a.publish_batch("numbers", [{"n": n} for n in range(3)])
                assert len(receipt) == 3
                assert receipt.wait(SECONDS).matched == (1, 1, 1)
                assert receipt.done
                first = events.next(SECONDS)
                events.ack(first)
            # Events that were not acknowledged come again.
            with b.subscribe("numbers", name="mine") as events:
                assert [events.next(SECONDS)["n"] for _ in range(2)] == [1, 2]
            b.forget("mine")


def test_record_batches() -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="record batches need the extra 'fast'")
    with blocking.Node() as a, blocking.Node(join=[a.address]) as b:
        a.advertise("numbers", "n INT")
        with b.subscribe("numbers", "n >= 5") as events:
            batches = events.batches()
            table = pyarrow.RecordBatch.from_pydict(
                {"n": pyarrow.array(range(10), pyarrow.int32())}
            )
            assert sum(a.publish_batch("numbers", table).wait(SECONDS).matched) == 5
            assert batches.next(SECONDS)["n"].to_pylist() == [5, 6, 7, 8, 9]


def test_errors_come_to_the_caller(pair: tuple[blocking.Node, blocking.Node]) -> None:
    a, _ = pair
    with pytest.raises(gossamer.FilterError, match="tenp"):
        a.subscribe("weather", "tenp > 3")
    with pytest.raises(gossamer.EventError):
        a.publish("weather", {"temp": "hot"})
    with pytest.raises(gossamer.NodeError, match=r"with blocking\.Node"):
        blocking.Node().publish("weather", GENEVA)
    with pytest.raises(gossamer.NodeError, match="started already"):
        a.start()
    with pytest.raises(gossamer.JoinError):
        blocking.Node(join=["127.0.0.1:1"], join_timeout=0.1).start()

    async def inside() -> None:
        with pytest.raises(gossamer.NodeError, match=r"use gossamer\.Node and await"):
            a.publish("weather", GENEVA)

    asyncio.run(inside())


def test_several_threads_publish(pair: tuple[blocking.Node, blocking.Node]) -> None:
    a, b = pair
    with b.subscribe("weather") as events:
        workers = [
            threading.Thread(target=lambda: a.publish_many("weather", [GENEVA] * 50).wait(SECONDS))
            for _ in range(4)
        ]
        for worker in workers:
            worker.start()
        assert len([events.next(SECONDS) for _ in range(200)]) == 200
        for worker in workers:
            worker.join(SECONDS)
        assert list(events.within(0.1)) == []


def test_ctrl_c_while_waiting_for_an_event_leaves_the_node_usable(
    pair: tuple[blocking.Node, blocking.Node],
) -> None:
    a, b = pair
    with b.subscribe("weather") as events:
        interrupt = threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT])
        interrupt.start()
        with pytest.raises(KeyboardInterrupt):
            events.next(SECONDS)
        a.publish("weather", GENEVA).wait(SECONDS)
        assert events.next(SECONDS)["temp"] == 31


def _use_in_child(node: blocking.Node, code: object) -> None:
    try:
        node.publish("weather", GENEVA)
    except gossamer.NodeError as error:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            node.close()
        os._exit(7 if "forked" in str(error) and "forked" in str(caught[0].message) else 8)
    os._exit(9)


def test_a_fork_is_told_and_does_not_disturb_its_parent(
    pair: tuple[blocking.Node, blocking.Node],
) -> None:
    a, b = pair
    with b.subscribe("weather") as events:
        with warnings.catch_warnings():
            # Python 3.12 itself warns of forks with threads.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = multiprocessing.get_context("fork").Process(
                target=_use_in_child, args=(a, None)
            )
            child.start()
        child.join(SECONDS)
        assert child.exitcode == 7
        assert a.publish("weather", GENEVA).wait(SECONDS).matched == 1
        assert events.next(SECONDS)["temp"] == 31


def test_a_program_that_forgets_to_close_ends_and_leaves_politely(tmp_path: Path) -> None:
    with blocking.Node() as far:
        far.advertise("weather", WEATHER)
        code = (
            f"from gossamer import blocking; node = blocking.Node(join=[{far.address!r}]); "
            "node.start(); "
            f"node.publish('weather', {GENEVA!r}); print('published')"
        )
        with far.subscribe("weather") as events:
            began = time.monotonic()
            done = subprocess.run(
                [sys.executable, "-c", code],
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
            )
            assert (done.returncode, done.stdout, done.stderr) == (0, "published\n", "")
            assert time.monotonic() - began < SECONDS
            assert events.next(SECONDS)["temp"] == 31
        deadline = time.monotonic() + SECONDS
        # It left, so no node had to declare it dead.
        while far.status()["members"] > 1:
            assert time.monotonic() < deadline
        assert far.status()["interest"].get("declared dead", 0) == 0
