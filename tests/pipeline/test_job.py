"""The whole job on a small trace, and its command line."""

from __future__ import annotations

import ast
import gzip
import json
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark")

from gossamer.cli.pipeline import pipeline
from gossamer.cli.pipeline_verdicts import plain_result, print_result
from gossamer.pipeline import job, stages
from gossamer.pipeline.runs import Grid
from gossamer.pipeline.tables import TABLES
from pipeline.live import ADVERTISED, A, B, delivered, publish, subscribe, write
from pipeline.pages import assert_self_contained
from pipeline.quick import Invoke

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Tables of other commands.
OTHERS = (
    "grid",
    "measures",
    "spreads",
    "news",
    "reconfigurations",
    "models",
    "figures",
)
MADE = [name for name in TABLES if name not in OTHERS]
assert set(OTHERS) == set(job.MAKERS)


def small_trace(path: Path) -> Path:
    with stages.sample() as sample:
        lines = gzip.decompress(sample.read_bytes()).decode().splitlines()[:120]
    path.write_text("\n".join([*lines, "broken,row", "p1,x,dsc,-5"]) + "\n")
    return path


def no_spark() -> SparkSession:
    raise AssertionError("nothing to do")


@pytest.mark.spark
def test_the_whole_job(spark: SparkSession, tmp_path: Path, invoke: Invoke) -> None:
    trace, out = small_trace(tmp_path / "t.csv"), tmp_path / "out"
    seen: list[tuple[str, bool]] = []
    wanted = stages.Job(
        out, (trace,), filters=30, events=20, grid=Grid(nodes=(4,), seeds=(0, 1), degree=3)
    )
    result = stages.run(lambda: spark, wanted, lambda stage, skipped: seen.append((stage, skipped)))
    assert seen == [(stage.name, False) for stage in stages.plan(wanted)]
    assert result.ok
    assert (
        result.rows["holdings"],
        result.rows["quarantine"],
        result.rows["events"],
        result.rows["runs"],
    ) == (
        119,
        2,
        20,
        2,
    )
    assert result.totals["expected"] == 2 * result.rows["expected"] > 0
    assert sorted(path.name for path in out.iterdir()) == sorted(
        [*MADE, "report.html", "_stages", ".staging"]
    )
    # Nothing is left over.
    assert list((out / ".staging").iterdir()) == []
    page = result.report.read_text("utf-8")
    assert_self_contained(page)
    assert (
        f"{result.totals['delivered']:,} of {result.totals['expected']:,} expected deliveries "
        "arrived" in page
    )
    assert "not 4 columns" in page
    assert "t.csv, line 121" in page
    assert "This report is about another trace: t.csv." in page

    runs, count = job.show("runs", out, 10)
    assert count == 2
    assert len({run["digest"] for run in runs}) == 2
    states = [
        json.loads(line) for line in invoke("status", "--out", out, "--json").output.splitlines()
    ]
    assert [(row["stage"], row["state"]) for row in states] == [
        (name, "done") for name in stages.STAGES
    ]
    assert states[1]["rows"]["filters"] == 30
    last = stages.last_job(out)
    # Nothing changed, so not even a JVM is needed.
    again = stages.run(no_spark, last)
    assert [outcome.skipped for outcome in again.stages] == [True] * 6
    assert again.ok
    before = {name: job.show(name, out, 10_000) for name in MADE}
    # The replay command repeats this one run.
    words = (
        *runs[1]["replay"].split()[2:],
        "--until",
        "runs",
        "--json",
    )
    answer = invoke(*words)
    assert answer.exit_code == 0, answer.output
    assert json.loads(answer.stdout)["rows"]["runs"] == 1
    assert json.loads(answer.stdout)["skipped"] == ["traces", "workload", "oracle"]
    after = {name: job.show(name, out, 10_000) for name in MADE}
    assert after["runs"][0][0]["digest"] == runs[1]["digest"]
    for name in ("holdings", "quarantine", "filters", "events", "expected"):
        # The rows are the same again.
        assert after[name] == before[name]
    # Its metrics are of two runs.
    assert job.status(out, stages.plan(last))[4].state == "waits"

    assert (
        invoke("clean", "runs", "--out", out).output
        == "removed runs, subscriptions, publications, deliveries, loads\n"
    )
    assert "missing" in invoke("status", "--out", out).output

    shown = invoke("show", "quarantine", "--out", out, "--json")
    assert [json.loads(line)["reason"] for line in shown.output.splitlines()] == [
        "not 4 columns",
        "size is negative",
    ]
    assert "2 of 2 rows" in invoke("show", "quarantine", "--out", out).output


@pytest.mark.spark
def test_a_job_is_the_same_from_any_folder_and_its_status_outlives_its_inputs(
    tmp_path: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace, out = tmp_path / "here" / "t.csv", tmp_path / "out"
    trace.parent.mkdir()
    trace.write_text("peer,name,type,size\np,n,t,1\n")
    monkeypatch.chdir(trace.parent)
    assert invoke("run", "--out", out, "--trace", "t.csv", "--until", "traces").exit_code == 0
    monkeypatch.chdir(tmp_path)

    def states() -> list[tuple[str, str]]:
        told = invoke("status", "--out", out, "--json")
        assert told.exit_code == 0, told.output
        return [(row["state"], row["why"]) for row in map(json.loads, told.stdout.splitlines())]

    assert states() == [("done", "")]
    again = invoke("run", "--out", out, "--trace", "here/t.csv", "--until", "traces", "--json")
    assert json.loads(again.stdout)["skipped"] == ["traces"]
    trace.unlink()
    assert states() == [("stale", f"{trace}: no such file")]


def test_a_folder_that_cannot_be_written_to_is_told(tmp_path: Path) -> None:
    (tmp_path / job.MANIFESTS / ".lock").mkdir(parents=True)
    with (
        pytest.raises(
            job.JobError, match=r"no folder that can be written to \(Is a directory\); choose"
        ),
        job.writing(tmp_path),
    ):
        pytest.fail("written")


@pytest.mark.spark
def test_misuse_is_one_line_and_exit_code_2(tmp_path: Path, invoke: Invoke) -> None:
    only_broken = tmp_path / "b.csv"
    only_broken.write_text("peer,name,type,size\nx\n")
    traces = tmp_path / "traces"
    traces.mkdir()
    (traces / "a.jsonl").touch()
    hidden = tmp_path / "_h.csv"
    hidden.write_text("peer,name,type,size\np,n,t,1\n")
    for words, said in (
        (("run", "--out", tmp_path / "o", "--trace", tmp_path / "no.csv"), "no such file"),
        (("run", "--out", tmp_path / "o", "--trace", tmp_path), "a folder; give its files"),
        (
            ("run", "--out", tmp_path / "o", "--trace", only_broken),
            "no usable row in the trace: all 1 are broken",
        ),
        (("run", "--out", tmp_path / "o", "--trace", hidden), "_h.csv: Spark ignores files"),
        (("run", "--out", only_broken), "no folder that can be written to"),
        (("show", "metrics", "--out", tmp_path / "o"), "no table metrics in"),
        (("show", "nothing", "--out", tmp_path / "o"), "no table 'nothing'; there are peers"),
        (
            ("show", "spreads", "--out", tmp_path / "o"),
            "make it with: gossamer pipeline grid --out",
        ),
        (("verify", "--traces", tmp_path / "o" / "none"), "none: no such folder"),
        (("verify", "--traces", tmp_path), "no trace files (*.jsonl) here"),
        (
            ("verify", "--traces", traces, "--report", tmp_path / "no" / "v.html"),
            "v.html: no file that can be written",
        ),
        (("verify", "--traces", traces, "--report", tmp_path), "no file that can be written"),
        (("run", "--out", tmp_path / "o", "--nodes", "ten"), "not a list of numbers"),
        (
            ("run", "--out", tmp_path / "o", "--mapping", tmp_path / "no.toml"),
            "no.toml: no such file",
        ),
        (
            ("run", "--out", tmp_path / "o", "--churn", "sessions"),
            "--churn sessions needs a trace of sessions",
        ),
        (
            ("run", "--out", tmp_path / "o", "--topics", 3),
            "leave --topics out, or add --workload mixed",
        ),
        (("run", "--out", tmp_path / "o", "--latency", "rtts"), "takes the matrix of --rtts"),
        (("status", "--out", tmp_path / "empty"), "no job has run here"),
        (
            ("clean", "runs", "--out", tmp_path / "empty"),
            "no stage 'runs' to clean; nothing is committed",
        ),
        (("run", "--out", tmp_path / "o", "--events", "0"), "neither a positive number nor 'all'"),
    ):
        answer = invoke(*words)
        assert answer.exit_code == 2, (words, answer.output)
        [line] = told(answer.output)
        assert said in line


def told(output: str) -> list[str]:
    """The output of a command without its progress lines and its usage."""
    return [
        line
        for line in output.splitlines()
        if not re.match(r"\d\d:\d\d:\d\d |Usage: |Try |\s*$", line)
    ]


TWICE = """
import sys
from gossamer.cli.app import app
for words in sys.argv[1:]:
    try:
        app.main(["pipeline", *words.split()])
    except SystemExit as left:
        print("left with", left.code, flush=True)
"""


@pytest.mark.spark
@pytest.mark.slow
def test_a_mistake_is_one_line_of_all_that_is_printed(tmp_path: Path) -> None:
    """The command runs in a process of its own, because the JVM prints to the output of its
    process.

    Each command has a session, one after the other.
    """
    packed = gzip.compress(
        "".join(
            ["peer,name,type,size\n", *(f"p{n},n{n * n},t,{n}\n" for n in range(9000))]
        ).encode()
    )
    (tmp_path / "torn.csv.gz").write_bytes(packed[: len(packed) // 2])
    (tmp_path / "f.csv").write_text("a\n1\n")
    (tmp_path / "m.toml").write_text(
        "[[source]]\nfiles = ['f.csv']\nschema = 'a INT'\nrefuse = { r = 'nope < 0' }\n"
    )
    (tmp_path / "good.csv").write_text("peer,name,type,size\np,n,t,1\n")
    commands = [
        f"run --until traces --out {tmp_path}/o {given}"
        for given in (
            f"--trace {tmp_path}/torn.csv.gz",
            f"--mapping {tmp_path}/m.toml",
            f"--trace {tmp_path}/good.csv --json",
        )
    ]
    done = subprocess.run(
        [sys.executable, "-c", TWICE, *commands],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    torn, refused = told(done.stderr)
    assert re.search(
        r"torn\.csv\.gz: cannot be read to the end: EOFException: .*; is the file whole\?$", torn
    ), torn
    assert re.search(
        r"refuse 'nope < 0': .*`nope` cannot be resolved.*; the attributes are a$", refused
    ), refused
    assert "gossamer.rest" not in refused
    first, second, good, third = done.stdout.splitlines()
    assert (first, second, third) == ("left with 2", "left with 2", "left with 0")
    assert json.loads(good)["rows"]["holdings"] == 1


@pytest.mark.spark
def test_verify_prints_the_verdict(tmp_path: Path, invoke: Invoke) -> None:
    write(
        tmp_path,
        A,
        [ADVERTISED, *publish(100, 1, {"size": 5}), *publish(200, 2, {"size": 5}, took=0)],
    )
    path = write(tmp_path, B, [*subscribe(10, 1, "size = 5"), delivered(101, 1, 1)])
    answer = invoke("verify", "--traces", tmp_path, "--report", tmp_path / "v.html")
    assert answer.exit_code == 0, answer.output
    assert "missed     0" in answer.output
    assert "incomplete 1 events without a complete receipt" in answer.output
    assert_self_contained((tmp_path / "v.html").read_text("utf-8"))
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    answer = invoke("verify", "--traces", tmp_path, "--json")
    assert answer.exit_code == 1
    verdict = json.loads(answer.stdout)
    assert (verdict["ok"], verdict["expected"], verdict["missed"], verdict["incomplete"]) == (
        False,
        1,
        1,
        1,
    )


def test_the_summary_shows_the_first_error_and_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = [
        {
            "status": status,
            "error": error,
            "replay": f"gossamer pipeline run --seeds {seed}",
            "violations": [],
        }
        for seed, (status, error) in enumerate(
            [("ok", None), ("failed", "SchemaError: no"), ("failed", "KeyError: x")]
        )
    ]
    monkeypatch.setattr(
        job, "run", lambda *_, **__: [job.Outcome("all", False, "", dict.fromkeys(MADE, 3), 1.0)]
    )
    monkeypatch.setattr(job, "show", lambda name, *_: (ran if name == "runs" else [], 3))
    result = stages.run(no_spark, stages.Job(tmp_path))
    assert not result.ok
    print_result(result)
    printed = capsys.readouterr().out
    assert (
        "runs       3, 2 failed\n  the first: SchemaError: no\n  again:     gossamer pipeline "
        "run --seeds 1\n" in printed
    )
    assert plain_result(result)["failure"] == {
        "error": "SchemaError: no",
        "replay": "gossamer pipeline run --seeds 1",
    }
    del ran[1:]
    assert stages.run(no_spark, stages.Job(tmp_path)).failure is None


def test_churn_by_sessions_that_nobody_gave_is_refused_before_spark_starts(tmp_path: Path) -> None:
    with pytest.raises(job.JobError, match="--churn sessions needs a trace of sessions"):
        stages.plan(stages.Job(tmp_path, churn="sessions"))
    stays = tmp_path / "s.csv"
    stays.write_text("node_id,up_s,down_s\n")
    assert stages.plan(stages.Job(tmp_path, churn="sessions", sessions=(stays,)))
    # Each life of a node is a session.
    live = write(tmp_path, A, [ADVERTISED])
    assert stages.plan(stages.Job(tmp_path, churn="sessions", traces=(live,)))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"zipf": 1.0},
            "--zipf would do nothing here; it is for several topics of a synthetic workload",
        ),
        ({"zipf": 1.0, "workload": "mixed"}, "--zipf would do nothing here"),
        ({"width": 0.5, "workload": "uniform"}, "--width would do nothing here; it is for ranges"),
        ({"wildcards": 0.5}, "--wildcards would do nothing here"),
        (
            {"churn_per_minute": 5.0},
            "--churn-per-minute would do nothing here; it is for churn that is fitted",
        ),
        ({"filters": None, "workload": "mixed"}, "a synthetic workload has no end of its own"),
        ({"events": None, "workload": "ranges"}, "a synthetic workload has no end of its own"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused_before_spark_starts(
    tmp_path: Path, given: dict[str, Any], said: str
) -> None:
    with pytest.raises(job.JobError, match=said):
        stages.plan(stages.Job(tmp_path, **given))


def test_options_where_they_do_something(tmp_path: Path) -> None:
    for given in (
        {"workload": "mixed", "topics": 3, "zipf": 1.0, "width": 0.5},
        {"workload": "wildcards", "wildcards": 0.5},
        {"churn": "client", "churn_per_minute": 5.0},
        {"filters": None, "events": None},
    ):
        assert stages.plan(stages.Job(tmp_path, **given))  # type: ignore[arg-type]


def test_sessions_alone_say_nothing_of_what_there_is(tmp_path: Path) -> None:
    """The sample is used beside sessions, unless the workload needs no trace.

    The report names its trace.
    """
    stays, own = tmp_path / "s.csv", tmp_path / "own.csv"
    stays.write_text("node_id,up_s,down_s\n")
    own.write_text("name\nx\n")
    mapped = tmp_path / "m.toml"
    mapped.write_text("[[source]]\nfiles = ['own.csv']\nschema = 'name STRING'\n")

    def files(**given: Any) -> list[str]:
        return [
            Path(name).name for one in stages.Job(tmp_path, **given).sources() for name in one.files
        ]

    assert files(sessions=(stays,)) == files(rtts=(stays,)) == ["debian-sample.csv.gz", "s.csv"]
    assert files(sessions=(stays,), workload="mixed") == ["s.csv"]
    assert files(mapping=mapped, sessions=(stays,)) == ["own.csv", "s.csv"]
    assert files() == []
    assert stages._own(stages.Job(tmp_path, sessions=(stays,)).sources()) == []
    assert stages._own(stages.Job(tmp_path, mapping=mapped, sessions=(stays,)).sources()) == [own]


@pytest.mark.spark
def test_a_trace_without_one_item_is_a_clear_error(spark: SparkSession, tmp_path: Path) -> None:
    empty = cast(
        "job.Step", SimpleNamespace(read=lambda table: spark.createDataFrame([], table.ddl))
    )
    with pytest.raises(job.JobError, match=r"no items.*pipeline show quarantine --out \S+out$"):
        stages._workload(empty, stages.Job(tmp_path / "out"))


def test_what_decides_a_stages_rows_is_stated(tmp_path: Path) -> None:
    """Otherwise a stage would be skipped although its inputs changed."""
    matrix = tmp_path / "m.txt"
    matrix.write_text("0 1\n1 0\n")
    planned = {
        stage.name: stage
        for stage in stages.plan(stages.Job(tmp_path, grid=Grid(latency=f"matrix:{matrix}")))
    }
    assert planned["runs"].files == (matrix,)
    todo, seen = ["oracle"], set[str]()
    while todo:
        seen.add(name := todo.pop())
        tree = ast.parse((Path(stages.__file__).parent / f"{name}.py").read_text("utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
                "gossamer.pipeline"
            ):
                whole = node.module == "gossamer.pipeline"
                named = (
                    [one.name for one in node.names]
                    if whole
                    else [str(node.module).rsplit(".", 1)[1]]
                )
                todo += [one for one in named if one not in seen]
    assert {"simple", "spans", "prefixes"} <= seen
    assert {f"gossamer.pipeline.{name}" for name in seen} <= set(planned["oracle"].code)


def test_items_that_nobody_holds_are_rows_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counted = {"items": 7, "holdings": 0, "quarantine": 2}
    print_result(
        stages.Result(tmp_path, None, [job.Outcome("traces", False, "", counted, 1.0)], {})
    )
    assert capsys.readouterr().out.startswith("trace      7 rows, 2 in quarantine\n")


def test_tables_need_no_spark() -> None:
    answer = CliRunner().invoke(pipeline, ["tables"])
    assert answer.exit_code == 0
    for table in TABLES.values():
        assert f"{table.name}: {table.meaning}" in answer.output
    lines = CliRunner().invoke(pipeline, ["tables", "--json"]).output.splitlines()
    assert [json.loads(line)["table"] for line in lines] == list(TABLES)


def test_a_missing_extra_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyspark", None)
    answer = CliRunner().invoke(pipeline, ["run", "--out", str(tmp_path / "o")])
    assert answer.exit_code == 2
    assert "pip install 'gossamer[spark]'" in answer.output


@pytest.mark.spark
def test_churn_and_topics_up_to_the_oracle(
    spark: SparkSession, tmp_path: Path, invoke: Invoke
) -> None:
    out, stays = tmp_path / "out", tmp_path / "s.csv"
    stays.write_text(
        "node_id,up_s,down_s,left_censored,right_censored\na,0,50,1,0\na,60,100,0,1\nb,20,100,0,1\n"
    )
    # These are more filters than go text by text.
    sizes = (
        "--workload",
        "mixed",
        "--filters",
        150,
        "--events",
        200,
    )
    words = ("--sessions", stays, *sizes, "--topics", 4, "--zipf", 1, "--until", "oracle", "--json")
    answer = invoke("run", "--out", out, *words)
    assert answer.exit_code == 0, answer.output
    assert json.loads(answer.stdout)["rows"]["sessions"] == 3
    every = pairs(job.show("expected", out, 10**6)[0])
    answer = invoke("run", "--out", out, *words, "--churn", "sessions", "--period-us", 100_000)
    assert answer.exit_code == 0, answer.output
    assert json.loads(answer.stdout)["skipped"] == ["traces"]
    assert pairs(job.show("matches", out, 10**6)[0]) == every
    rows = job.show("expected", out, 10**6)[0]
    due, allowed = (pairs(row for row in rows if row["due"] == is_due) for is_due in (True, False))
    # Some peers were away.
    assert due | allowed < every
    assert due
    assert allowed


def pairs(rows: Iterable[dict[str, Any]]) -> set[tuple[int, int]]:
    return {(row["event"], row["filter"]) for row in rows}
