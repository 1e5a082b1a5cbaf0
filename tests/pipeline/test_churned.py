"""Jobs with several topics and churn are judged by the recorded actions of each run's users, and
these by the plan.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from gossamer.cli.pipeline_verdicts import print_result
from gossamer.pipeline import job, metrics, runs, stages, tables
from gossamer.pipeline.contracts import check_schema
from gossamer.pipeline.tables import TABLES
from gossamer.sim import Config, DeliveryRow, Outcome, Stay, Workload
from pipeline.pages import assert_self_contained
from pipeline.quick import Invoke

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNTS = ("expected", "delivered", "missed", "allowed", "duplicate", "spurious", "strayed")
SIZES = ("--workload", "ranges", "--width", 0.4, "--filters", 40, "--events", 60, "--topics", 3)
CHURN = ("--churn", "client", "--churn-per-minute", 40, "--period-us", 50_000)
GRID = ("--nodes", 5, "--degree", 3, "--seeds", 0, "--latency", "uniform:2ms:40ms")


@pytest.mark.spark
def test_the_whole_job_with_topics_and_churn(
    spark: SparkSession, tmp_path: Path, invoke: Invoke, capsys: pytest.CaptureFixture[str]
) -> None:
    out, trace = tmp_path / "out", tmp_path / "t.csv"
    # The workload is synthetic.
    trace.write_text("peer,name,type,size\np,n,t,1\n")
    answer = invoke(
        "run",
        "--out",
        out,
        "--trace",
        trace,
        *SIZES,
        *CHURN,
        *GRID,
        "--overlay",
        "flood",
        "--overlay",
        "fabric",
        "--json",
    )
    assert answer.exit_code == 0, answer.output
    found = json.loads(answer.stdout)
    assert (found["rows"]["topics"], found["rows"]["runs"], found["failed"], found["violated"]) == (
        3,
        2,
        0,
        0,
    )
    assert found["expected"] == found["delivered"] > 0
    # Some peer came or went just then.
    assert found["allowed"] > 0
    assert (found["missed"], found["duplicate"], found["spurious"], found["disagree"]) == (
        0,
        0,
        0,
        0,
    )
    # Many peers were away. Each run would have to deliver all matches if all peers had stayed all
    # the time.
    assert found["expected"] + found["allowed"] < 2 * found["rows"]["matches"]
    page = (out / "report.html").read_text("utf-8")
    assert_self_contained(page)
    assert "Peers came and went" in page
    ran = job.show("runs", out, 10)[0]
    judged = {row["run"]: row for row in job.show("metrics", out, 10)[0]}
    for row in ran:
        assert judged[row["run"]]["agrees"]
        assert (row["sim_expected"], row["sim_missed"]) == (judged[row["run"]]["expected"], 0)
        assert (
            row["sim_delivered"] == judged[row["run"]]["delivered"] + judged[row["run"]]["allowed"]
        )
    by_plan = {(row["event"], row["filter"]) for row in job.show("expected", out, 10**6)[0]}
    handed = {(row["event"], row["filter"]) for row in job.show("deliveries", out, 10**6)[0]}
    assert handed <= by_plan

    assert_partitions_do_not_matter(spark, out)
    assert_what_is_wrong_is_found(spark, out)

    print_result(
        stages.Result(
            out, out / "report.html", [job.Outcome("all", False, "", found["rows"], 1.0)], found
        )
    )
    printed = capsys.readouterr().out
    assert "40 filters, 60 events, 3 topics," in printed
    assert f"{found['allowed']} deliveries allowed, not due" in printed
    words = shlex.split(ran[1]["replay"])
    answer = invoke(*words[2:], "--until", "runs", "--json")
    assert answer.exit_code == 0, answer.output
    again = json.loads(answer.stdout)
    # Nothing changed, because the command has every option of the workload.
    assert again["skipped"] == [
        "traces",
        "workload",
        "oracle",
    ]
    assert again["rows"]["runs"] == 1
    assert job.show("runs", out, 10)[0][0]["digest"] == ran[1]["digest"]


def read(spark: SparkSession, out: Path, *names: str) -> list[DataFrame]:
    return [job.read(spark, TABLES[name], out) for name in names]


def assert_partitions_do_not_matter(spark: SparkSession, out: Path) -> None:
    given = [
        stages.sim_workload(
            *(
                rows.repartition(parts)
                for rows in read(spark, out, "topics", "filters", "events", "churn")
            )
        )
        for parts in (1, 2, 7)
    ]
    assert given[0] == given[1] == given[2]
    assert given[0].stays is not None
    configured = runs.configurations(spark, runs.Grid(nodes=(5,), degree=3), given[0], ["gossamer"])
    found = [
        sorted(
            runs.simulate(configured.repartition(parts), given[0], parts).collect(),
            key=lambda row: row["run"],
        )
        for parts in (1, 2, 7)
    ]
    assert found[0] == found[1] == found[2]
    assert [row["status"] for row in found[0]] == ["ok", "ok"]


def assert_what_is_wrong_is_found(spark: SparkSession, out: Path) -> None:
    """Ten simulators, each wrong in another way, and each reports that all is well."""

    def simulate(row: dict[str, Any], workload: Workload) -> Outcome:
        from msgspec.structs import replace

        from gossamer.sim import simulate

        if row["seed"] == 9:
            raise ZeroDivisionError("no luck")
        config = Config(nodes=row["nodes"], degree=3, seed=3, latency="uniform:2ms:40ms")
        deaf = replace(workload, stays=tuple(() for _ in workload.filters))
        rude = replace(
            workload,
            stays=tuple(
                tuple(Stay(stay.up) for stay in stays[:1]) for stays in workload.stays or ()
            ),
        )
        outcome = simulate(config, {7: deaf, 8: rude}.get(row["seed"], workload))
        if row["seed"] in (7, 8):
            return outcome
        handed, subscribed = outcome.deliveries, outcome.subscriptions
        published = {each.event: each for each in outcome.publications}

        def is_due(each: DeliveryRow) -> bool:
            one, told = subscribed[each.subscription], published[each.event]
            return (one.subscribed_at or 10**9) < told.published_at and (one.ended_at or 10**9) > (
                told.completed_at or 10**9
            )

        due, other = (
            next(each for each in handed if is_due(each)),
            next(each for each in handed if not is_due(each)),
        )
        gone = next((each for each in handed if subscribed[each.subscription].ended_at), None)
        # Loses an event that is due.
        # Loses an event that need not be delivered, and says so.
        # Hands an event over after the subscription has ended.
        # Hands an event over at another node, and one that no filter asked for.
        match row["seed"]:
            case 1:
                handed.remove(due)
            case 2:
                handed.remove(other)
                outcome.delivered -= 1
            case 3:
                handed.append(due)
            case 4:
                handed.append(other)
            case 5:
                assert gone is not None
                handed.remove(gone)
                handed.append(replace(gone, handed_at=10**9))
            case 6:
                handed.append(replace(due, node=(due.node + 1) % row["nodes"]))
                handed.append(replace(due, filter=-1, subscription=-1))
        return outcome

    given = stages.sim_workload(*read(spark, out, "topics", "filters", "events", "churn"))
    configured = runs.configurations(
        spark, runs.Grid(nodes=(5,), seeds=tuple(range(10)), degree=3), given, ["gossamer"]
    )
    results = runs.simulate(configured, given, 10, simulate).persist()
    ran = runs.runs(results)
    handed, loads, subscribed, published = (
        runs.rows_of(results, table)
        for table in (tables.DELIVERIES, tables.LOADS, tables.SUBSCRIPTIONS, tables.PUBLICATIONS)
    )
    for table in runs.LISTS:
        check_schema(runs.rows_of(results, table), table)
    matches, filters, stays, events, expected = read(
        spark, out, "matches", "filters", "churn", "events", "expected"
    )
    plan = filters.join(stays, on="peer").select("filter", "up_us", "down_us")
    churned = metrics.Churned(
        matches, subscribed, published, plan, events.select("event", "at_us"), 1_000_000
    )
    judged = {
        row["seed"]: row for row in metrics.metrics(ran, handed, loads, expected, churned).collect()
    }
    # The failed run is not judged.
    assert sorted(judged) == list(range(9))
    good = [judged[0][name] for name in COUNTS]
    assert good[0] == good[1] > 0
    assert good[3] > 0
    assert good[2] == good[4] == good[5] == good[6] == 0

    def difference(seed: int) -> dict[str, int]:
        found = {name: judged[seed][name] - was for name, was in zip(COUNTS, good, strict=True)}
        return {name: by for name, by in found.items() if by}

    assert difference(1) == {"delivered": -1, "missed": 1}
    assert difference(2) == {"allowed": -1}
    assert difference(3) == difference(4) == {"duplicate": 1}
    wrong = difference(5)
    assert wrong.pop("spurious") == 1
    assert wrong in ({"delivered": -1, "missed": 1}, {"allowed": -1})
    assert difference(6) == {"spurious": 2}
    # No peer subscribed, so nothing was due. The plan says otherwise.
    assert judged[7]["strayed"] > 0
    assert judged[7]["missed"] == judged[7]["expected"] == 0
    # No peer ever left.
    assert judged[8]["strayed"] > 0
    assert {seed for seed in judged if judged[seed]["agrees"]} == {0, 2}


@pytest.mark.spark
def test_a_broken_node_is_counted_alike_by_both(spark: SparkSession) -> None:
    """The node hands every event over twice, also to subscriptions that have ended.

    The simulator and Spark count the same.
    """
    stays = ((Stay(0),), (Stay(0, 1_600_000), Stay(2_600_000)), (), (Stay(600_000),))
    times = tuple(range(0, 4_000_000, 500_000))
    given = Workload("a INT", ("a >= 0",) * 4, ({"a": 1},) * 8, times=times, stays=stays)

    def simulate(row: dict[str, Any], workload: Workload) -> Outcome:
        from gossamer.machine import Deliver, Effect, Message, Micros, Peer
        from gossamer.node.core import NodeCore
        from gossamer.sim.run import Run, make_core

        class Broken(NodeCore):
            def change(self, effects: list[Effect]) -> list[Effect]:
                found: list[Effect] = []
                for effect in effects:
                    found.append(effect)
                    if type(effect) is Deliver and row["seed"] == 1:
                        found.append(effect)
                    if type(effect) is Deliver and row["seed"] == 2:
                        gone = [
                            number
                            for number in range(1, self._numbers + 1)
                            if number not in self.subscriptions
                        ]
                        found += [Deliver(number, effect.events) for number in gone]
                return found

            def receive(self, sender: Peer, message: Message, now: Micros) -> list[Effect]:
                return self.change(super().receive(sender, message, now))

            def wake(self, now: Micros) -> list[Effect]:
                return self.change(super().wake(now))

            def taken(self, number: int, count: int, now: Micros) -> None:
                pass

        return Run(
            Config(nodes=1, seed=1), workload, lambda node, config: make_core(node, config, Broken)
        ).go()

    grid = runs.Grid(nodes=(1,), seeds=(0, 1, 2))
    results = runs.simulate(
        runs.configurations(spark, grid, given, ["x"]), given, 3, simulate
    ).persist()
    handed, loads, subscribed, published = (
        runs.rows_of(results, table)
        for table in (tables.DELIVERIES, tables.LOADS, tables.SUBSCRIPTIONS, tables.PUBLICATIONS)
    )
    matches = spark.createDataFrame(
        [(event, filter) for event in range(8) for filter in range(4)], tables.MATCHES.ddl
    )
    plan = [(filter, stay.up, stay.down) for filter, stays_ in enumerate(stays) for stay in stays_]
    churned = metrics.Churned(
        matches, subscribed, published,
        spark.createDataFrame(plan, "filter BIGINT, up_us BIGINT, down_us BIGINT"),
        spark.createDataFrame(list(enumerate(times)), "event BIGINT, at_us BIGINT"), 1_000_000,
    )  # fmt: skip
    rows = (
        metrics.metrics(runs.runs(results), handed, loads, matches, churned)
        .orderBy("seed")
        .collect()
    )
    good, twice, clings = ([row[name] for name in COUNTS] for row in rows)
    assert good == [8 + 6 + 6, 20, 0, 0, 0, 0, 0]
    assert twice == [20, 20, 0, 0, 20, 0, 0]
    # Two hand-overs of events 4 and 5 are right, and three of events 6 and 7.
    assert clings == [
        20,
        20,
        0,
        0,
        0,
        2 * 2 + 2 * 3,
        0,
    ]
    assert [row["agrees"] for row in rows] == [True, True, True]
