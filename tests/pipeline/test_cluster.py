"""The same commands on one machine, on local-cluster and on a standalone cluster give the same
rows, from the shipped package.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from gossamer.pipeline import shipping, stages
from gossamer.pipeline.tables import TABLES
from pipeline.cluster import Cluster
from pipeline.live import ADVERTISED, A, B, delivered, publish, subscribe, write
from pipeline.quick import FAST, INTERPRETED

SET = ("--set", "key_bits=8", "--set", "measure=3s")
GRID = (
    "pipeline",
    "grid",
    "--overlay",
    "tree",
    "--size",
    "6,9",
    "--seeds",
    "0",
    "--wave",
    "1",
    *SET,
)
MODELS = ("pipeline", "models", "--size", "300", "--events", "6", "--parts", "3")
RUN = ("pipeline", "run", "--nodes", "6", "--seeds", "0", "--filters", "30", "--events", "6")
VERIFY = ("pipeline", "verify", "--traces")
REPRODUCE = ("reproduce", "--quick", "--no-png")
OF_RUN = ("items", "filters", "events", "expected", "runs", "deliveries", "loads", "metrics")
OF_OTHERS = ("grid", "measures", "spreads", "reconfigurations", "models")
OF_SEEDS = ("grid", "measures", "spreads", "news", "reconfigurations", "models", "figures")

# One process and one session run all commands, because executors take long to start. Then it prints
# the place of the executors' gossamer.
DRIVER = """
import contextlib, json, sys
from gossamer.cli.app import app
from gossamer.pipeline import session
master, out, commands = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
def where(batches):
    import gossamer, pyarrow as pa
    for batch in batches:
        yield pa.RecordBatch.from_pylist([{"place": gossamer.__file__}])
with session.session("gossamer-tests", master, conf=json.loads(sys.argv[4])) as spark:
    @contextlib.contextmanager
    def shared(name, asked, **options):
        assert asked == master, asked
        yield spark
    session.session = shared
    for command in commands:
        try:
            to = ["--report", out + "/verdict.html"] if "verify" in command else ["--out", out]
            # The command reproduce has a grid of its own.
            to = ["--out", out + "/seeds"] if "reproduce" in command else to
            app.main([*command, *to, "--master", master, "--json"], standalone_mode=False)
        except SystemExit as left:
            assert not left.code, (command, left.code)
    # Filters over files.
    from pyspark.sql import functions as sf
    from gossamer.pipeline import oracle
    whole = spark.range(0, 3000, 1, 3).selectExpr(
        "id AS event", "concat('n', id % 7) AS name", "id % 50 AS size"
    )
    whole.write.mode("overwrite").parquet(out + "/../files")
    values = sf.struct("name", "size").alias("values")
    events = spark.read.parquet(out + "/../files").select("event", values)
    asked = [
        (n, f"name = 'n{n % 9}' AND size >= {n % 40} AND size < {n % 40 + n % 5}")
        for n in range(200)
    ]
    asked = spark.createDataFrame(asked, "filter BIGINT, text STRING")
    pairs = sorted(map(tuple, oracle.matches(events, asked).collect()))
    assert len(pairs) > 1000
    assert pairs == sorted(map(tuple, oracle.matches_by_text(events, asked).collect()))
    rows = spark.range(0, 2, 1, 2).mapInArrow(where, "place STRING").collect()
    print(json.dumps(sorted({row["place"] for row in rows})))
"""
CONF = {
    **FAST,
    **INTERPRETED,
    "spark.executor.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some rows of the sample, in one file for all masters, because its path is in the rows."""
    path = tmp_path_factory.mktemp("trace") / "t.csv.gz"
    with stages.sample() as sample:
        lines = gzip.decompress(sample.read_bytes()).splitlines(keepends=True)[:120]
    path.write_bytes(gzip.compress(b"".join(lines)))
    return path


def everything_on(
    master: str, out: Path, trace: Path, *more: tuple[str, ...]
) -> tuple[dict[str, Any], list[str]]:
    """Return the verdict, and the place from which the executors import gossamer."""
    traces = out.parent / "traces"
    write(
        traces, A, [ADVERTISED, *publish(100, 1, {"name": "lib1"}), *publish(200, 2, {"name": "x"})]
    )
    write(
        traces,
        B,
        [
            ADVERTISED,
            *subscribe(10, 1, "name LIKE 'lib%'"),
            delivered(103, 1, 1),
            delivered(203, 1, 2),
        ],
    )
    commands = (GRID, MODELS, (*RUN, "--trace", str(trace)), *more, (*VERIFY, str(traces)))
    env = {**os.environ, "PYTHONPATH": str(Path(shipping.__file__).parents[2])}
    arguments = [
        sys.executable,
        "-c",
        DRIVER,
        master,
        str(out),
        json.dumps(commands),
        json.dumps(CONF),
    ]
    done = subprocess.run(
        arguments, env=env, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    *_, verdict, places = done.stdout.splitlines()
    return json.loads(verdict), json.loads(places)


def rows(out: Path, name: str) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq

    table = pq.read_table(out / name)
    # The command names the folder that it wrote to.
    if name == "runs":
        table = table.drop_columns(["replay"])
    ordered = table.sort_by([(key, "ascending") for key in TABLES[name].key])
    return ordered.to_pylist()  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, trace: Path) -> tuple[Path, dict[str, Any]]:
    """Run the commands on this machine alone. Return the place of their tables and the verdict."""
    out = tmp_path_factory.mktemp("home") / "out"
    verdict, _ = everything_on("local[2]", out, trace, REPRODUCE)
    assert (verdict["expected"], verdict["spurious"]) == (1, 1)
    return out, verdict


def check(
    out: Path, found: tuple[dict[str, Any], list[str]], home: tuple[Path, dict[str, Any]]
) -> None:
    verdict, places = found
    assert places
    # The executors use the shipped package, and not an installed one.
    assert all(".zip/" in place for place in places)
    assert verdict == home[1]
    for name in OF_RUN + OF_OTHERS:
        there = rows(out, name)
        assert there, name
        assert there == rows(home[0], name), name
    assert (out / "report.html").stat().st_size > 10_000
    assert (out / "verdict.html").stat().st_size > 1_000


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.spark
@pytest.mark.live
def test_a_cluster_in_one_jvm(
    home: tuple[Path, dict[str, Any]], trace: Path, tmp_path: Path
) -> None:
    import pyspark

    installed = Path(pyspark.__file__).parent / "work"
    was = installed.exists()
    check(
        tmp_path / "out",
        everything_on("local-cluster[2,1,1024]", tmp_path / "out", trace, REPRODUCE),
        home,
    )
    seeds = tmp_path / "out" / "seeds"
    for name in OF_SEEDS:
        assert rows(seeds, name), name
        assert rows(seeds, name) == rows(home[0] / "seeds", name), name
    page = (seeds / "report.html").read_text("utf-8")
    assert page == (home[0] / "seeds" / "report.html").read_text("utf-8")
    # Workers do not write into the installation.
    assert installed.exists() == was


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.spark
@pytest.mark.live
def test_a_standalone_cluster(
    home: tuple[Path, dict[str, Any]], trace: Path, tmp_path: Path
) -> None:
    with Cluster(tmp_path / "cluster") as cluster:
        found = everything_on(cluster.url, tmp_path / "out", trace)
        worked = [
            worker
            for worker in range(2)
            if any((tmp_path / "cluster" / f"worker-{worker}").glob("app-*/*"))
        ]
    assert worked == [0, 1]
    check(tmp_path / "out", found, home)


# The fabric's events become a table, doubled by the executors, and go back. The same happens as a
# stream, tripled. Then the place of the executors' gossamer is printed.
THROUGH = """
import json, sys
from gossamer.pipeline.session import session
from gossamer.pipeline.source import register
def where(batches):
    import gossamer, pyarrow as pa
    for batch in batches:
        yield pa.RecordBatch.from_pylist([{"place": gossamer.__file__}])
master, join, folder = sys.argv[1], sys.argv[2], sys.argv[4]
with session("gossamer-tests", master, conf=json.loads(sys.argv[3])) as spark:
    register(spark)
    read = spark.read.format("gossamer").options(join=join, topic="numbers", filter="n < 40").load()
    made = read.selectExpr("2 * n AS n").repartition(2)
    made.write.format("gossamer").options(join=join, topic="doubled").mode("append").save()
    tap = {"join": join, "topic": "numbers", "filter": "n >= 40", "since": "beginning"}
    tap["dataDir"] = folder + "/tap"
    read = spark.readStream.format("gossamer").options(**tap).load()
    stream = read.selectExpr("3 * n AS n").repartition(2)
    sink = {"join": join, "topic": "tripled", "query": "q", "idle": "1"}
    sink |= {"dataDir": folder + "/sink", "checkpointLocation": folder + "/checkpoint"}
    to = stream.writeStream.format("gossamer").options(**sink)
    assert to.trigger(availableNow=True).start().awaitTermination(120)
    rows = spark.range(0, 2, 1, 2).mapInArrow(where, "place STRING").collect()
    print(json.dumps(sorted({row["place"] for row in rows})))
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.spark
@pytest.mark.live
def test_source_and_sink_on_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the driver's host is a member of the fabric.

    The executors have the shipped package and no way into the fabric.
    """
    from gossamer import blocking

    (tmp_path / "run").mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    env = {**os.environ, "PYTHONPATH": str(Path(shipping.__file__).parents[2])}
    with blocking.Node() as node:
        node.advertise("numbers", "n INT", retention="1h")
        node.publish_batch("numbers", [{"n": n} for n in range(50)]).wait(30)
        node.advertise("doubled", "n INT")
        node.advertise("tripled", "n INT")
        arguments = [
            sys.executable,
            "-c",
            THROUGH,
            "local-cluster[2,1,1024]",
            node.address,
            json.dumps(CONF),
            str(tmp_path),
        ]
        with node.subscribe("doubled") as doubled, node.subscribe("tripled") as tripled:
            done = subprocess.run(
                arguments, env=env, capture_output=True, text=True, timeout=240, check=False
            )
            assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
            found = [doubled.next(timeout=30)["n"] for _ in range(40)]
            streamed = [tripled.next(timeout=30)["n"] for _ in range(10)]
            assert list(doubled.within(0.3)) == list(tripled.within(0.3)) == []
    assert sorted(found) == list(range(0, 80, 2))
    assert sorted(streamed) == list(range(120, 150, 3))
    places = json.loads(done.stdout.splitlines()[-1])
    assert places
    assert all(".zip/" in place for place in places)


def test_the_package_that_is_shipped_is_whole_and_always_the_same(tmp_path: Path) -> None:
    one, other = (shipping.package(folder) for folder in (tmp_path, tmp_path))
    assert one == other
    (tmp_path / "again").mkdir()
    assert one.read_bytes() == shipping.package(tmp_path / "again").read_bytes()
    names = zipfile.ZipFile(one).namelist()
    assert "gossamer/sim/scenarios/lossy.toml" in names
    assert "gossamer/data/debian-sample.csv.gz" in names
    assert not [name for name in names if "__pycache__" in name]
    script = (
        "import gossamer, gossamer.sim.config as c, gossamer.lab.skiplist.workload as w, random; "
        "print(gossamer.__file__); "
        "assert c.load('lossy').config.loss; assert w._read(w.Path('sample'), 3, random.Random(0))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(one)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert one.name in done.stdout


def test_which_masters_need_the_package() -> None:
    assert [shipping.is_local(master) for master in ("local", "local[*]", "local[2,1]")] == [
        True
    ] * 3
    assert not any(
        shipping.is_local(master)
        for master in ("local-cluster[2,1,1024]", "spark://h:7077", "yarn", "k8s://x")
    )
