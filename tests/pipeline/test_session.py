"""Which settings a command asks Spark for."""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark")

from gossamer.cli.app import app
from gossamer.pipeline import daemon, masters, quiet, session, stages
from gossamer.pipeline.runs import Grid
from gossamer.pipeline.session import SMALL, SMALL_BYTES, TINY, TINY_BYTES, conf_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_less_data_the_less_is_prepared() -> None:
    assert conf_for(0) == conf_for(TINY_BYTES - 1) == TINY
    assert conf_for(TINY_BYTES) == conf_for(SMALL_BYTES - 1) == SMALL
    assert conf_for(SMALL_BYTES) == {}
    assert conf_for(0, "spark://host:7077") == conf_for(0, "local-cluster[2,1,1024]") == SMALL
    assert SMALL.items() <= TINY.items()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    found: list[dict[str, str]] = []

    @contextlib.contextmanager
    def refused(*_: Any, conf: dict[str, str]) -> Iterator[None]:
        found.append(conf)
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr("gossamer.pipeline.session.session", refused)
    return found


@pytest.mark.parametrize(("size", "conf"), [(10, TINY), (TINY_BYTES, SMALL), (SMALL_BYTES, {})])
def test_a_verdict_by_the_size_of_the_traces(
    size: int, conf: dict[str, str], asked: list[dict[str, str]], tmp_path: Path
) -> None:
    with (tmp_path / "a.jsonl").open("wb") as file:
        file.truncate(size)
    CliRunner().invoke(app, ["pipeline", "verify", "--traces", str(tmp_path)])
    assert asked == [conf]


@pytest.mark.parametrize(("events", "conf"), [("100", TINY), ("5000", SMALL), ("50000", {})])
def test_a_job_by_the_size_of_its_workload(
    events: str, conf: dict[str, str], asked: list[dict[str, str]], tmp_path: Path
) -> None:
    CliRunner().invoke(app, ["pipeline", "run", "--out", str(tmp_path / "out"), "--events", events])
    assert asked == [conf]


@pytest.mark.parametrize(
    "master",
    ["foo", "local[x]", "local[0]", "local-cluster[2,1]", "spark:/h:7077", "", "yarn-client"],
)
@pytest.mark.parametrize(
    "command",
    [
        ["pipeline", "run", "--out"],
        ["reproduce", "--out"],
        ["pipeline", "verify", "--traces"],
        ["demo", "--out"],
    ],
)
def test_a_master_that_is_none_is_refused_before_anything_else(
    master: str, command: list[str], asked: list[dict[str, str]], tmp_path: Path
) -> None:
    done = CliRunner().invoke(app, [*command, str(tmp_path / "out"), "--master", master])
    assert done.exit_code == 2
    assert f"{master!r} is no master of Spark's; give one such as local[*]" in done.output
    assert not asked
    assert not (tmp_path / "out").exists()


def test_masters_that_are_some() -> None:
    forms = masters.FORMS.split(", ")
    for master in (
        *forms,
        "local",
        "local[2, 3]",
        "local-cluster[2, 1, 1024]",
        "spark://a:7077,b:7077",
        "k8s://host",
    ):
        assert masters.check(master) == master


def test_a_cluster_that_is_not_there_is_told_at_once_and_without_a_jvm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gossamer.pipeline.session._session", lambda *_: pytest.fail("started"))
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
        free = taken.getsockname()[1]
        masters.reach(f"spark://127.0.0.1:{free}")  # somebody is there
        with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as other:
            gone = other.getsockname()[1]
        masters.reach(f"spark://127.0.0.1:{gone},127.0.0.1:{free}")  # one of several is enough
    said = rf"nobody answers at 127\.0\.0\.1:{gone} \(Connection refused\); is the cluster's master running there"
    with (
        pytest.raises(masters.SparkStartError, match=said),
        session.session("x", f"spark://127.0.0.1:{gone}"),
    ):
        pytest.fail("started")
    with pytest.raises(masters.SparkStartError, match=r"nobody answers at 127\.0\.0\.1:x"):
        masters.reach("spark://127.0.0.1:x")


def test_why_spark_did_not_start_is_the_innermost_cause() -> None:
    class Java:
        def __init__(self, said: str, cause: Java | None = None) -> None:
            self.getMessage, self.getCause, self.toString = (
                (lambda: said),
                (lambda: cause),
                (lambda: "Java"),
            )

    error = RuntimeError(
        "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext."
    )
    error.java_exception = Java("outer", Java("no room\n\tat x"))  # type: ignore[attr-defined]
    assert masters.reason(error) == "no room"
    assert masters.reason(RuntimeError("\n first\nsecond")) == "first"


def test_what_comes_of_an_interrupt_is_one() -> None:
    try:
        try:
            raise KeyboardInterrupt
        finally:
            raise OSError("the JVM does not answer any more")
    except OSError as error:
        assert quiet.is_interrupt(error)
    assert quiet.is_interrupt(KeyboardInterrupt())
    assert not quiet.is_interrupt(OSError("alone"))


@pytest.mark.spark
def test_ctrl_c_is_as_it_was_before_there_was_spark(spark: SparkSession) -> None:
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    root = logging.getLogger()
    records = [
        logging.LogRecord(
            "root", logging.ERROR, path, 1, "sending", None, (type(error), error, None)
        )
        for error in (KeyboardInterrupt(), ValueError())
        for path in ("py4j/java_gateway.py", "other.py")
    ]
    assert [bool(root.filter(record)) for record in records] == [False, True, True, True]


def test_a_job_by_its_inputs_and_its_runs(tmp_path: Path) -> None:
    named = tmp_path / "named.csv"
    named.write_bytes(b"x" * 1_000_000)
    packed = tmp_path / "files.csv.gz"
    packed.write_bytes(b"x" * 2_000_000)
    mapping = tmp_path / "mapping.toml"
    mapping.write_text(
        '[[source]]\nfiles = ["named.csv"]\nschema = "name STRING"\n[source.columns]\nname = "name"\n'
    )
    job = stages.Job(tmp_path / "out", traces=(packed,), mapping=mapping, filters=None, events=None)
    assert job.size == 21_000_000
    many = stages.Job(
        tmp_path / "out", filters=10, events=100, grid=Grid(nodes=(10, 20), seeds=tuple(range(50)))
    )
    assert many.size == stages.ROW_BYTES * (10 + 100 * 101)


@pytest.mark.spark
def test_rows_go_to_python_without_waiting(spark: SparkSession) -> None:
    """Spark takes what we ask for: a name that it does not know would be ignored without a word."""
    conf = spark._jsparkSession.sessionState().conf()
    assert conf.arrowMaxBytesPerBatch() == 2**31 - 1
    assert conf.filesOpenCostInBytes() == 2**20
    assert spark.range(3).mapInArrow(lambda batches: batches, "id LONG").count() == 3
    assert spark.conf.get("spark.python.daemon.module") == daemon.__name__
    folder = Path(spark.conf.get("spark.python.unix.domain.socket.dir"))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700, "the sockets have no secret"


def test_sessions_one_after_the_other_have_one_folder_for_their_sockets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The JVM outlives the first session and keeps to its folder."""
    found: list[str] = []

    def started(app: str, master: str, log_level: str, conf: dict[str, str]) -> Iterator[None]:
        found.append(conf["spark.python.unix.domain.socket.dir"])
        yield

    monkeypatch.setattr(session, "_session", started)
    for _ in range(2):
        with session.session("a"):
            assert Path(found[-1]).is_dir()
    assert found[0] == found[1]
    assert Path(found[0]).is_dir()


@pytest.mark.parametrize(
    ("error", "told"),
    [("BrokenPipeError", False), ("ConnectionResetError", False), ("ValueError", True)],
)
def test_a_worker_to_which_nobody_listens_ends_without_a_word(error: str, told: bool) -> None:
    pytest.importorskip("pyspark")
    code = f"""
from gossamer.pipeline import daemon

def refused(sock, authenticated):
    raise {error}

daemon._worker = refused
daemon.worker(None, True)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert bool(done.stderr) == told


def test_sockets_without_a_secret_are_for_this_machine_and_this_user(tmp_path: Path) -> None:
    assert session._sockets("local[2]", "/tmp/x")["spark.python.unix.domain.socket.dir"] == "/tmp/x"
    assert (
        session._sockets("local-cluster[2,1,1024]", "/tmp/x")
        == session._sockets("spark://127.0.0.1:7077", "/tmp/x")
        == {}
    )
    assert session._sockets("local[2]", f"/tmp/{'x' * 90}") == {}, (
        "no path of a socket is that long"
    )
