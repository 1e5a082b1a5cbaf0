"""The verdict on a live fabric, from trace files made by hand."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from gossamer import trace
from gossamer.cli.pipeline_verdicts import print_verdict
from gossamer.pipeline import mapping, oracle, report, stages
from gossamer.pipeline.formats import TraceInputError
from gossamer.pipeline.verify import Counts, Verdict, VerifyError, verify
from pipeline.live import ADVERTISED, SCHEMA, A, B, Record, delivered, publish, subscribe, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MUCH = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.autoBroadcastJoinThreshold": "10MB",
    "spark.sql.join.preferSortMergeJoin": "true",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
}


@pytest.mark.spark
def test_missed_duplicate_spurious_and_allowed(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    moment = datetime(2020, 1, 1, 12, tzinfo=UTC)
    write(
        tmp_path / "t",
        A,
        [
            ADVERTISED,
            *publish(
                100,
                1,
                {
                    "name": "lib1",
                    "size": 5,
                    "ratio": float("nan"),
                    "at": moment,
                    "data": b"\x00\xff",
                },
            ),
            *publish(200, 2, {"name": "x", "size": 7, "ratio": float("-inf")}),
            *publish(300, 3, {"name": "lib3", "size": None}),
            *publish(400, 4, {"name": "lib4"}, took=0),
        ],
    )
    # For event 1, NaN is the largest number.
    # The subscription ended between publication and receipt. The event was allowed, and was not
    # handed over.
    write(
        tmp_path / "t",
        B,
        [
            ADVERTISED,
            # Events 1 and 3 are due.
            *subscribe(10, 1, "name LIKE 'lib%'"),
            delivered(103, 1, 1, hops=2),
            # This is a duplicate.
            delivered(104, 1, 1, hops=3),
            # This is spurious, because the filter does not match.
            delivered(203, 1, 2),
            # Event 3 is missed.
            # Its receipt was never complete, so this is allowed.
            delivered(4400, 1, 4),
            # The subscription overlaps event 2, so this is allowed.
            *subscribe(198, 2, "size > 6 AND ratio < 0", took=4),
            delivered(205, 2, 2),
            *subscribe(
                11, 3, "ratio > 1e300 AND at = TIMESTAMP '2020-01-01 12:00:00' AND data = X'00FF'"
            ),
            delivered(101, 3, 1),
            (310, trace.Unsubscribed(3)),
            # This is spurious, because there is no subscription 9.
            delivered(311, 9, 1),
            # Event 1 was complete before this subscription, so the hand-over is spurious.
            *subscribe(250, 4, "name = 'lib1'"),
            delivered(260, 4, 1),
            *subscribe(12, 5, "name = 'nobody'"),
            *subscribe(13, 6, "name = 'lib3'"),
            (302, trace.Unsubscribed(6)),
        ],
        tail=b'{"at":500,"node":"ff',
    )
    verdict = verify(spark, tmp_path / "t")
    counts = (
        verdict.expected,
        verdict.delivered,
        verdict.missed,
        verdict.allowed,
        verdict.duplicate,
        verdict.spurious,
    )
    assert counts == (3, 2, 1, 2, 1, 3)
    assert (verdict.nodes, verdict.subscriptions, verdict.events, verdict.incomplete) == (
        2,
        6,
        4,
        1,
    )
    assert (verdict.torn, verdict.broken) == (1, 0)
    # By default a hand-over is late after a second, and these took 4 ms.
    assert (verdict.late, verdict.late_ms) == (
        0,
        1000.0,
    )
    assert not verdict.ok
    # These are all pairs that were handed over, with any verdict.
    assert sum(count for _, count in verdict.hops) == 7
    assert verdict.latency_ms_p99 is not None
    assert verdict.latency_ms_p50 == 0.005
    (per_node,) = verdict.per_node
    assert per_node.node == "f" * 16
    assert per_node.counts == Counts(3, 2, 1, 2, 1, 3)
    each = {row.subscription: row.counts for row in verdict.per_subscription}
    assert each[1] == Counts(2, 1, 1, 1, 1, 1)
    assert each[2] == Counts(0, 0, 0, 1, 0, 0)
    assert each[3] == Counts(1, 1, 0, 0, 0, 0)
    assert each[5] == each[6] == Counts()
    assert each[9] == each[4] == Counts(0, 0, 0, 0, 0, 1)
    found = [
        (example.what, example.event.rsplit("/", 1)[1], example.subscription)
        for example in verdict.examples
    ]
    assert found == [
        ("duplicate", "1", 1),
        ("missed", "3", 1),
        ("spurious", "1", 4),
        ("spurious", "1", 9),
        ("spurious", "2", 1),
    ]
    page = report.write_demo(verdict, tmp_path / "demo.html", {"machine": "<this>"}).read_text(
        "utf-8"
    )
    assert "✗ 2 of 3 expected deliveries arrived; 1 missed, 1 duplicate, 3 spurious." in page
    assert "1 events never had a complete receipt" in page
    assert "&lt;this&gt;" in page
    # The page says which trace the sample stands in for.
    assert "eDonkey" in page
    assert "7 of them, the worst first" in page
    # There is no subscription 9, so it is listed among the subscriptions and among the examples.
    assert page.count("<td>9</td>") == 2
    print_verdict(verdict)
    printed = capsys.readouterr().out
    assert f"  node {per_node.node}: 1 missed, 1 duplicate, 3 spurious\n" in printed
    assert (
        f"  subscription 1 at {per_node.node}, filter name LIKE 'lib%': 1 missed, 1 "
        f"duplicate, 1 spurious\n" in printed
    )
    assert f"  subscription 9 at {per_node.node}, filter none: 1 spurious\n" in printed
    # That subscription has no fault.
    assert "subscription 3 at" not in printed


@pytest.mark.spark
def test_a_restart_ends_the_old_subscriptions(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, A, [ADVERTISED, *publish(100, 1, {"size": 5}), *publish(300, 2, {"size": 5})])
    write(tmp_path, B, [*subscribe(10, 1, "size = 5"), delivered(101, 1, 1)])
    again = write(
        tmp_path, B, [*subscribe(200, 1, "size = 5"), delivered(301, 1, 2)], incarnation=2
    )
    verdict = verify(spark, tmp_path)
    assert (verdict.expected, verdict.delivered, verdict.allowed, verdict.ok) == (1, 1, 1, True)
    lines = again.read_bytes().splitlines(keepends=True)
    again.write_bytes(b"".join([lines[0], b"nonsense\n", *lines[1:]]))
    verdict = verify(spark, tmp_path)
    assert (verdict.expected, verdict.missed, verdict.broken, verdict.ok) == (1, 0, 1, False)


@pytest.mark.spark
def test_the_same_by_the_settings_for_much_data(spark: SparkSession, tmp_path: Path) -> None:
    """The other tests run with the settings for little data (session.TINY): no broadcasts, no
    adaptive plans, nothing compiled.
    """
    write(
        tmp_path,
        A,
        [
            ADVERTISED,
            *publish(100, 1, {"size": 5}),
            *publish(300, 2, {"size": 6}),
            *publish(400, 3, {"size": 7}),
        ],
    )
    records = [
        *subscribe(10, 1, "size = 5"),
        delivered(101, 1, 1),
        *subscribe(11, 2, "size > 5"),
        delivered(402, 2, 3),
    ]
    write(tmp_path, B, [*records, delivered(403, 2, 3), delivered(404, 1, 3)])
    little = verify(spark, tmp_path)
    assert (little.delivered, little.missed, little.duplicate, little.spurious) == (2, 1, 1, 1)
    before = {name: spark.conf.get(name) for name in MUCH}
    try:
        for name, value in MUCH.items():
            spark.conf.set(name, value)
        assert verify(spark, tmp_path) == little
    finally:
        for name, setting in before.items():
            spark.conf.set(name, setting)


@pytest.mark.spark
def test_a_killed_node_is_owed_nothing_after_its_last_record(
    spark: SparkSession, tmp_path: Path
) -> None:
    # The receipt is complete at the time of the last record, so the subscription did not outlive
    # it.
    write(
        tmp_path,
        A,
        [
            ADVERTISED,
            *publish(100, 1, {"size": 5}),
            *publish(108, 2, {"size": 5}, took=2),
            *publish(109, 3, {"size": 5}),
            *publish(300, 4, {"size": 5}),
        ],
    )
    records = [*subscribe(10, 1, "size = 5"), delivered(110, 1, 1)]
    write(tmp_path, B, records, tail=b'{"at":400,"no')
    verdict = verify(spark, tmp_path)
    assert (verdict.expected, verdict.delivered, verdict.missed, verdict.torn, verdict.ok) == (
        1,
        1,
        0,
        1,
        True,
    )
    path = write(tmp_path, B, records)
    # The node was killed just before a line break, and nothing is lost.
    path.write_bytes(path.read_bytes()[:-1])
    verdict = verify(spark, tmp_path)
    assert (verdict.expected, verdict.missed, verdict.torn) == (1, 0, 0)


@pytest.mark.spark
def test_when_it_was_handed_over(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, A, [ADVERTISED, *publish(100, 1, {"size": 5})])
    records = [
        *subscribe(10, 1, "size = 5"),
        delivered(104, 1, 1),
        (110, trace.Unsubscribed(1)),
        # This is spurious and not a duplicate, because the subscription had ended.
        delivered(111, 1, 1),
        *subscribe(10, 2, "size = 5"),
        # It ended when the receipt was complete, so the event is allowed and not due.
        (105, trace.Unsubscribed(2)),
        *subscribe(10, 3, "size = 5"),
        (120, trace.Unsubscribed(3)),
        # This comes in the last moment of the subscription.
        delivered(120, 3, 1),
        # This comes before the subscription was asked for.
        delivered(102, 4, 1),
        *subscribe(103, 4, "size = 5"),
        # This comes in the first moment of the subscription.
        delivered(103, 5, 1),
        *subscribe(103, 5, "size = 5"),
    ]
    write(tmp_path, B, records)
    verdict = verify(spark, tmp_path)
    each = {row.subscription: row.counts for row in verdict.per_subscription}
    assert each == {
        1: Counts(1, 1, 0, 0, 0, 1),
        2: Counts(),
        3: Counts(1, 1, 0, 0, 0, 0),
        4: Counts(0, 0, 0, 0, 0, 1),
        5: Counts(0, 0, 0, 1, 0, 0),
    }


@pytest.mark.spark
def test_records_that_are_not_whole_are_broken(spark: SparkSession, tmp_path: Path) -> None:
    def line(record: str) -> str:
        return f'{{"at":7,"node":"{trace.hex_peer(A)}","record":{record}}}\n'

    lines = [
        line('{"kind":"no such kind"}'),
        line('{"kind":"completed","sequence":1,"matched":0}'),
        line('{"kind":"subscribing","subscription":8,"topic":"t","filter":null}'),
        line(
            '{"kind":"published","sequence":3,"incarnation":1,"topic":"t","values":{"size":"five"}}'
        ),
        '{"at":8,"record":{"kind":"subscribed","subscription":1}}\n',
        '{"kind":"header","version":1}\n',
        "\n",
    ]
    published = [
        *publish(100, 1, {"size": 5}),
        *publish(200, 2, {"size": 6}),
        *publish(300, 2, {"size": 7}),
    ]
    linked = (5, trace.Linked("ff", "up"))
    write(
        tmp_path,
        A,
        [ADVERTISED, *subscribe(1, 1, "size = 5"), linked, *published],
        tail="".join(lines).encode(),
    )
    (tmp_path / "only.jsonl").write_text('{"kind":"hea')
    verdict = verify(spark, tmp_path)
    assert (verdict.broken, verdict.torn, verdict.nodes, verdict.events) == (
        len(lines) + 1,
        1,
        1,
        3,
    )
    assert (verdict.expected, verdict.missed, verdict.ok) == (1, 1, False)


@pytest.mark.spark
def test_attributes_may_have_any_name_and_values_any_depth(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = (
        "__event INT, `__filter` INT, `__0` INT, __broken STRING, p STRUCT<x: DOUBLE, q: "
        "STRUCT<y: DOUBLE>>"
    )
    values = {
        "__event": 1,
        "__filter": 2,
        "__0": 3,
        "__broken": "b",
        "p": {"x": float("nan"), "q": {"y": float("-inf")}},
    }
    texts = [
        "__event = 1 AND __filter = 2 AND `__0` = 3 AND __broken = 'b'",
        "__event = 1 AND __filter = 2 AND __broken = 'b'",
        "p.x > 1e300 AND p.q.y < -1e300",
    ]
    write(
        tmp_path,
        A,
        [
            (0, trace.Advertised("t", schema)),
            *(record for number, text in enumerate(texts) for record in subscribe(1, number, text)),
            *publish(100, 1, values),
        ],
    )
    verdict = verify(spark, tmp_path)
    assert (verdict.expected, verdict.broken) == (3, 0)
    with pytest.MonkeyPatch.context() as patched:
        # Small sets also go by template then.
        patched.setattr(oracle, "SMALL_MAX", 0)
        assert verify(spark, tmp_path).expected == 3


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
    write(
        tmp_path / "refused",
        A,
        [ADVERTISED, *subscribe(1, 1, "size = = 5"), *publish(100, 1, {"size": 5})],
    )
    with pytest.raises(
        VerifyError, match=r"Spark does not read a filter: 'size = = 5': \[PARSE_SYNTAX_ERROR\]"
    ):
        verify(spark, tmp_path / "refused")
    deep = [
        *subscribe(1, 1, "size = 5"),
        *subscribe(2, 2, "NOT " * 20_000 + "size = 5"),
        *subscribe(3, 3, "size = 6"),
    ]
    write(tmp_path / "deep", A, [ADVERTISED, *deep, *publish(100, 1, {"size": 5})])
    with pytest.raises(VerifyError, match=r"'(NOT )+\.\.\.': java\.lang\.StackOverflowError"):
        verify(spark, tmp_path / "deep")
    for name in ("_x.jsonl", ".x.jsonl"):
        path = write(tmp_path / "hidden", A, [ADVERTISED])
        path = path.rename(path.with_name(name))
        with pytest.raises(VerifyError, match=f"{name}: Spark ignores files"):
            verify(spark, tmp_path / "hidden")
        path.unlink()


def test_a_verdict_is_ok_only_if_nothing_is_wrong() -> None:
    fine = dict.fromkeys(Verdict.__struct_fields__, 0)
    assert Verdict(**fine).ok
    for name in ("missed", "duplicate", "spurious", "broken", "miscounted"):
        assert not Verdict(**{**fine, name: 1}).ok


@pytest.mark.spark
def test_a_durable_subscription_is_one_over_all_lives(spark: SparkSession, tmp_path: Path) -> None:
    def durable(at: int, number: int, name: str = "x") -> list[Record]:
        return [
            (at, trace.Subscribing(number, "t", "TRUE", name)),
            (at + 2, trace.Subscribed(number)),
        ]

    events = [publish(100 * n, n, {"size": n}) for n in (1, 2, 3, 4)]
    write(tmp_path, A, [ADVERTISED, *(record for event in events for record in event)])
    again = trace.Delivered(5, trace.hex_peer(A), 1, 1, 1, True)
    write(tmp_path, B, [*durable(50, 1), delivered(110, 1, 1)], incarnation=1)
    # The second and third event were published while the subscription was away. It caught up with
    # one, and was told that the other is lost.
    back = [
        *durable(350, 5),
        (352, again),
        delivered(353, 5, 2),
        (354, trace.Gapped(5, trace.hex_peer(A), "gone")),
    ]
    write(tmp_path, B, [*back, delivered(410, 5, 4)], incarnation=2)
    verdict = verify(spark, tmp_path)
    assert (verdict.expected, verdict.delivered, verdict.missed) == (1, 1, 0)
    assert (verdict.allowed, verdict.duplicate, verdict.spurious) == (2, 0, 0)
    assert verdict.subscriptions == 1
    # Without the gap the third event is missed. Without the word about its acknowledgement a second
    # copy is a duplicate.
    write(
        tmp_path,
        B,
        [*durable(350, 5), delivered(352, 5, 1), delivered(353, 5, 2), delivered(410, 5, 4)],
        incarnation=2,
    )
    verdict = verify(spark, tmp_path)
    assert (verdict.expected, verdict.missed, verdict.duplicate) == (4, 1, 1)


@pytest.mark.spark
def test_a_topic_that_grew_is_judged_by_its_longest_schema(
    spark: SparkSession, tmp_path: Path
) -> None:
    grown = SCHEMA + ", extra STRING, p STRUCT<x: INT>"
    longest = SCHEMA + ", extra STRING, p STRUCT<x: INT, y: INT>"
    before = publish(100, 1, {"name": "lib1", "size": 5})
    after = [
        *publish(300, 2, {"name": "lib2", "size": 5, "extra": "x", "p": {"x": 1, "y": 2}}),
        *publish(400, 3, {"size": 6}),
    ]
    write(tmp_path, A, [ADVERTISED, *before, (200, trace.Advertised("t", longest)), *after])
    old = [
        *subscribe(10, 1, "name LIKE 'lib%'"),
        *subscribe(11, 2, "size = 6"),
        delivered(101, 1, 1),
        delivered(301, 1, 2),
    ]
    new = [
        *subscribe(210, 3, "extra IS NULL"),
        *subscribe(211, 4, "extra = 'x' AND p.y = 2"),
        delivered(302, 4, 2),
    ]
    write(
        tmp_path,
        B,
        [
            ADVERTISED,
            (205, trace.Advertised("t", grown)),
            *old,
            *new,
            delivered(401, 3, 3),
            delivered(402, 3, 2),
        ],
    )
    verdict = verify(spark, tmp_path)
    each = {row.subscription: row.counts for row in verdict.per_subscription}
    assert each == {
        1: Counts(expected=2, delivered=2),
        2: Counts(expected=1, missed=1),
        3: Counts(expected=1, delivered=1, spurious=1),
        4: Counts(expected=1, delivered=1),
    }
    assert verdict.broken == 0
    # The trace of items has the grown schema, too, and NULL (nothing, in JSON) in older events.
    parsed = stages.read_traces(spark, mapping.plain(sorted(tmp_path.glob("*.jsonl")))).where(
        "table = 'items'"
    )
    rows = {row["values"]: (row["schema"], row["reason"]) for row in parsed.collect()}
    assert rows == {
        '{"name":"lib1","size":5}': (longest, None),
        '{"name":"lib2","size":5,"extra":"x","p":{"x":1,"y":2}}': (longest, None),
        '{"size":6}': (longest, None),
    }


@pytest.mark.spark
@pytest.mark.parametrize(
    "other",
    [
        "size BIGINT",
        SCHEMA + ", extra STRING NOT NULL",
        SCHEMA.replace("BIGINT", "INT") + ", b INT",
    ],
)
def test_two_schemas_of_which_neither_grew_from_the_other_are_named(
    spark: SparkSession, tmp_path: Path, other: str
) -> None:
    write(
        tmp_path, A, [ADVERTISED, (1, trace.Advertised("t", other)), *publish(100, 1, {"size": 5})]
    )
    with pytest.raises(VerifyError) as refused:
        verify(spark, tmp_path)
    with pytest.raises(TraceInputError) as as_items:
        stages.read_traces(spark, mapping.plain(tmp_path.glob("*.jsonl")))
    for error in (refused, as_items):
        assert f"({SCHEMA})" in str(error.value)
        assert f"({other})" in str(error.value)


@pytest.mark.spark
def test_history_is_allowed_to_who_asked_for_it(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, A, [ADVERTISED, *publish(100, 1, {"size": 1}), *publish(200, 2, {"size": 2})])
    since = [(300, trace.Subscribing(1, "t", "TRUE", "", 150)), (302, trace.Subscribed(1))]
    write(tmp_path, B, [*since, delivered(305, 1, 2), delivered(306, 1, 1)])
    verdict = verify(spark, tmp_path)
    assert (verdict.expected, verdict.allowed, verdict.spurious) == (0, 1, 1)


@pytest.mark.spark
def test_what_is_late_is_counted_per_subscription_and_per_node(
    spark: SparkSession, tmp_path: Path
) -> None:
    write(
        tmp_path,
        A,
        [
            ADVERTISED,
            *publish(100, 1, {"size": 5}, took=9_000),
            *publish(20_000, 2, {"size": 5}, took=9_000),
        ],
    )
    both = [
        *subscribe(10, 1, "size = 5"),
        *subscribe(20, 2, "size >= 5"),
        delivered(2_200, 1, 1),
        delivered(2_200, 2, 1),
    ]
    write(tmp_path, B, [*both, delivered(20_500, 1, 2), delivered(23_000, 2, 2)])
    verdict = verify(spark, tmp_path, late_ms=2.0)
    # A late hand-over is not a fault.
    assert (verdict.expected, verdict.delivered, verdict.late, verdict.ok) == (
        4,
        4,
        3,
        True,
    )
    assert [row.counts.late for row in verdict.per_node] == [3]
    assert {row.subscription: row.counts.late for row in verdict.per_subscription} == {1: 1, 2: 2}


@pytest.mark.spark
def test_one_of_a_group_is_due_each_event(spark: SparkSession, tmp_path: Path) -> None:
    def member(at: int, number: int, text: str = "TRUE") -> list[Record]:
        return [
            (at, trace.Subscribing(number, "t", text, group="g")),
            (at + 2, trace.Subscribed(number)),
        ]

    events = [publish(100 * n, n, {"size": n}) for n in range(1, 6)]
    write(
        tmp_path,
        A,
        [ADVERTISED, *(record for event in events for record in event), *member(10, 1, "size < 9")],
    )
    write(
        tmp_path,
        B,
        [*member(10, 1), *member(11, 2, "size = 3"), delivered(101, 1, 1), delivered(201, 1, 2)],
    )
    # No member took events three, four and five.
    verdict = verify(spark, tmp_path)
    assert (verdict.expected, verdict.delivered, verdict.missed, verdict.duplicate) == (5, 2, 3, 0)
    assert verdict.subscriptions == 1
    took = [
        delivered(101, 1, 1),
        delivered(201, 1, 2),
        delivered(301, 2, 3),
        delivered(401, 2, 4),
        delivered(501, 1, 5),
    ]
    write(tmp_path, B, [*member(10, 1), *member(11, 2, "size = 3"), *took])
    write(
        tmp_path,
        0xC,
        [*member(12, 1), delivered(102, 1, 1), delivered(202, 1, 2), (203, trace.Unsubscribed(1))],
    )
    verdict = verify(spark, tmp_path)
    # The first event went to two members that stayed. The second went to a member that had gone,
    # and so to another. The fourth went to a member that did not want it.
    assert (verdict.expected, verdict.delivered, verdict.missed) == (5, 4, 1)
    assert (verdict.duplicate, verdict.spurious) == (1, 1)


@pytest.mark.spark
def test_a_receipt_that_counts_what_was_discarded_before_the_report_is_a_violation(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def gone(at: int, sequence: int, *, reported: bool) -> Record:
        return (at, trace.Discarded(1, trace.hex_peer(A), 1, sequence, reported))

    write(
        tmp_path,
        B,
        [
            *subscribe(10, 1, "TRUE"),
            *(delivered(100 * number + 1, 1, number) for number in (1, 2, 3)),
            gone(900, 1, reported=True),
            gone(900, 2, reported=False),
            gone(900, 3, reported=False),
            (900, trace.Unsubscribed(1, "slow")),
        ],
    )
    write(
        tmp_path,
        0xC,
        [*subscribe(10, 1, "TRUE"), *(delivered(100 * n + 2, 1, n) for n in (1, 2, 3))],
    )

    def told(*receipts: trace.Completed) -> Verdict:
        sent = [publish(100 * number, number, {"size": number})[0] for number in (1, 2, 3)]
        done = [(1000 + receipt.sequence, receipt) for receipt in receipts]
        write(tmp_path, A, [ADVERTISED, *sent, *done])
        return verify(spark, tmp_path)

    # The first event was reported before it was discarded, so the receipt may count it twice.
    first = trace.Completed(1, 1, 2)
    right = told(first, trace.Completed(2, 1, 1, 1), trace.Completed(3, 1, 1, 1))
    assert (right.miscounted, right.ok) == (0, True)
    wrong = told(first, trace.Completed(2, 1, 2), trace.Completed(3, 1, 1, 1))
    assert (wrong.miscounted, wrong.ok) == (1, False)
    print_verdict(wrong)
    assert "miscounted 1 events whose receipts count" in capsys.readouterr().out
