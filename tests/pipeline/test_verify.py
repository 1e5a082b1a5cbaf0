"""The verdict on a live fabric, from trace files made by hand."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from gossamer import trace
from gossamer.pipeline import report
from gossamer.pipeline.verify import Counts, Verdict, VerifyError, verify
from pipeline.live import ADVERTISED, A, B, delivered, publish, subscribe, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_missed_duplicate_spurious_and_allowed(spark: SparkSession, tmp_path: Path) -> None:
    moment = datetime(2020, 1, 1, 12, tzinfo=UTC)
    write(
        tmp_path / "t",
        A,
        [
            ADVERTISED,
            *publish(100, 1, {"name": "lib1", "size": 5, "ratio": float("nan"), "at": moment, "data": b"\x00\xff"}),
            *publish(200, 2, {"name": "x", "size": 7, "ratio": float("-inf")}),
            *publish(300, 3, {"name": "lib3", "size": None}),
            *publish(400, 4, {"name": "lib4"}, took=0),
        ],
    )
    write(
        tmp_path / "t",
        B,
        [
            ADVERTISED,
            *subscribe(10, 1, "name LIKE 'lib%'"),  # events 1, 3, 4 are due
            delivered(103, 1, 1, hops=2),
            delivered(104, 1, 1, hops=3),  # duplicate
            delivered(203, 1, 2),  # spurious: no match
            # event 3 is missed
            delivered(4400, 1, 4),
            *subscribe(198, 2, "size > 6 AND ratio < 0", took=4),  # overlaps event 2: allowed
            delivered(205, 2, 2),
            *subscribe(
                11, 3, "ratio > 1e300 AND at = TIMESTAMP '2020-01-01 12:00:00' AND data = X'00FF'"
            ),  # event 1: NaN is largest
            delivered(101, 3, 1),
            (310, trace.Unsubscribed(3)),
            delivered(311, 9, 1),  # spurious: nobody subscribed as 9
            *subscribe(250, 4, "name = 'lib1'"),  # after event 1 was complete: spurious
            delivered(260, 4, 1),
            *subscribe(12, 5, "name = 'nobody'"),
            *subscribe(13, 6, "name = 'lib3'"),  # ended between publication and receipt: allowed, and not handed over
            (302, trace.Unsubscribed(6)),
        ],
        tail=b'{"at":500,"node":"ff',
    )
    verdict = verify(spark, tmp_path / "t")
    counts = (verdict.expected, verdict.delivered, verdict.missed, verdict.allowed, verdict.duplicate, verdict.spurious)
    assert counts == (4, 3, 1, 1, 1, 3)
    assert (verdict.nodes, verdict.subscriptions, verdict.events, verdict.incomplete) == (2, 6, 4, 1)
    assert (verdict.torn, verdict.broken) == (1, 0)
    assert not verdict.ok
    assert sum(count for _, count in verdict.hops) == 7  # pairs handed over, whatever became of them
    assert verdict.latency_ms_p99 is not None
    assert verdict.latency_ms_p50 == 0.005
    (per_node,) = verdict.per_node
    assert per_node.node == "f" * 16
    assert per_node.counts == Counts(4, 3, 1, 1, 1, 3)
    each = {row.subscription: row.counts for row in verdict.per_subscription}
    assert each[1] == Counts(3, 2, 1, 0, 1, 1)
    assert each[2] == Counts(0, 0, 0, 1, 0, 0)
    assert each[3] == Counts(1, 1, 0, 0, 0, 0)
    assert each[5] == each[6] == Counts()
    assert each[9] == each[4] == Counts(0, 0, 0, 0, 0, 1)
    found = [(example.what, example.event.rsplit("/", 1)[1], example.subscription) for example in verdict.examples]
    assert found == [
        ("duplicate", "1", 1),
        ("missed", "3", 1),
        ("spurious", "1", 4),
        ("spurious", "1", 9),
        ("spurious", "2", 1),
    ]
    page = report.write_demo(verdict, tmp_path / "demo.html", {"machine": "<this>"}).read_text("utf-8")
    assert "✗ 3 of 4 expected deliveries arrived; 1 missed, 1 duplicate, 3 spurious." in page
    assert "&lt;this&gt;" in page
    assert "eDonkey" in page  # what the sample stands in for


@pytest.mark.spark
def test_a_restart_ends_the_old_subscriptions(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, A, [ADVERTISED, *publish(100, 1, {"size": 5}), *publish(300, 2, {"size": 5})])
    write(tmp_path, B, [*subscribe(10, 1, "size = 5"), delivered(101, 1, 1)])
    again = write(tmp_path, B, [*subscribe(200, 1, "size = 5"), delivered(301, 1, 2)], incarnation=2)
    verdict = verify(spark, tmp_path)
    assert (verdict.expected, verdict.delivered, verdict.allowed, verdict.ok) == (1, 1, 1, True)
    lines = again.read_bytes().splitlines(keepends=True)
    again.write_bytes(b"".join([lines[0], b"nonsense\n", *lines[1:]]))
    verdict = verify(spark, tmp_path)
    assert (verdict.expected, verdict.missed, verdict.broken, verdict.ok) == (1, 0, 1, False)


@pytest.mark.spark
def test_what_cannot_be_judged_is_a_clear_error(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(VerifyError, match="no such folder"):
        verify(spark, tmp_path / "nothing")
    with pytest.raises(VerifyError, match="no trace files"):
        verify(spark, tmp_path)
    write(tmp_path / "unknown", A, publish(100, 1, {"size": 5}))
    with pytest.raises(VerifyError, match="topic 't' was published but never advertised"):
        verify(spark, tmp_path / "unknown")
    write(tmp_path / "other", A, [ADVERTISED]).write_text('{"at":1}\n')
    with pytest.raises(VerifyError, match="line 1 is not a trace header"):
        verify(spark, tmp_path / "other")
    write(tmp_path / "refused", A, [ADVERTISED, *subscribe(1, 1, "size = = 5"), *publish(100, 1, {"size": 5})])
    with pytest.raises(VerifyError, match="Spark does not read a filter"):
        verify(spark, tmp_path / "refused")


def test_a_verdict_is_ok_only_if_nothing_is_wrong() -> None:
    fine = dict.fromkeys(Verdict.__struct_fields__, 0)
    assert Verdict(**fine).ok
    for name in ("missed", "duplicate", "spurious", "broken"):
        assert not Verdict(**{**fine, name: 1}).ok
