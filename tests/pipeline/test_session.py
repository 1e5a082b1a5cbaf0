"""The settings that a command gives to Spark."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
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
        # A server accepts connections there.
        masters.reach(f"spark://127.0.0.1:{free}")
        with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as other:
            gone = other.getsockname()[1]
        # One of several masters is enough.
        masters.reach(f"spark://127.0.0.1:{gone},127.0.0.1:{free}")
    said = (
        rf"no master answers at 127\.0\.0\.1:{gone} \(Connection refused\); is the cluster's "
        rf"master running there"
    )
    with (
        pytest.raises(masters.SparkStartError, match=said),
        session.session("x", f"spark://127.0.0.1:{gone}"),
    ):
        pytest.fail("started")
    with pytest.raises(masters.SparkStartError, match=r"no master answers at 127\.0\.0\.1:x"):
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
        '[[source]]\nfiles = ["named.csv"]\nschema = "name STRING"\n[source.columns]\nname = '
        '"name"\n'
    )
    job = stages.Job(tmp_path / "out", traces=(packed,), mapping=mapping, filters=None, events=None)
    assert job.size == 21_000_000
    many = stages.Job(
        tmp_path / "out", filters=10, events=100, grid=Grid(nodes=(10, 20), seeds=tuple(range(50)))
    )
    assert many.size == stages.ROW_BYTES * (10 + 100 * 101)


@pytest.mark.spark
def test_rows_go_to_python_without_waiting(spark: SparkSession) -> None:
    """Spark knows the settings. It would silently ignore an unknown name."""
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
    """The JVM outlives the first session and keeps its folder."""
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


# ------------------------------------------------------- the files that Spark's start needs

NOBODY = 65_534
PLANTED = "#!/bin/sh\ntouch stolen\n"


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """A machine's Java, a cache folder and a temporary folder, without any folder of this user's
    own.
    """
    found = {name: tmp_path / name for name in ("jdk", "cache", "temporary")}
    for name, path in found.items():
        (path / "bin" if name == "jdk" else path).mkdir(parents=True)
    java = found["jdk"] / "bin" / "java"
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    monkeypatch.setenv("PATH", str(java.parent))
    monkeypatch.setenv("XDG_CACHE_HOME", str(found["cache"]))
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setattr(tempfile, "tempdir", str(found["temporary"]))
    monkeypatch.setattr(session, "_folder", functools.cache(session._folder.__wrapped__))
    return found


def java() -> Path:
    """The Java that Spark would start."""
    assert session.ensure_java() is not None
    return Path(os.environ["JAVA_HOME"]) / "bin" / "java"


def is_private(path: Path, base: Path) -> bool:
    """Whether no other user can put anything into a folder between these two, or change the
    file.
    """
    info = path.lstat()
    others = info.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    is_ours = info.st_uid == os.geteuid() and not others and not stat.S_ISLNK(info.st_mode)
    return is_ours and (path == base or is_private(path.parent, base))


@pytest.mark.parametrize("umask", [0, 0o022])
def test_the_java_that_spark_starts_is_in_the_cache_folder_and_nobody_elses(
    places: dict[str, Path], umask: int
) -> None:
    before = os.umask(umask)
    try:
        first = java()
        options = session._quiet_logging("ERROR")
    finally:
        os.umask(before)
    assert first.is_relative_to(places["cache"] / "gossamer")
    assert is_private(first, places["cache"] / "gossamer")
    assert str(places["cache"] / "gossamer") in options
    written = first.stat().st_mtime_ns
    os.environ["JAVA_HOME"] = ""
    assert java() == first
    assert first.stat().st_mtime_ns == written


@pytest.mark.parametrize("cache", ["a file", "a link", "of another user"])
def test_without_a_cache_folder_nothing_that_another_user_has_planted_is_run(
    places: dict[str, Path], cache: str
) -> None:
    mine = places["cache"] / "gossamer"
    elsewhere = places["cache"] / "elsewhere"
    elsewhere.mkdir()
    if cache == "a file":
        mine.touch()
    elif cache == "a link":
        mine.symlink_to(elsewhere)
    else:
        mine.mkdir(mode=0o777)
        if os.geteuid():
            pytest.skip("only root can give a folder away")
        os.chown(mine, NOBODY, NOBODY)
    name = "jre-" + hashlib.sha256(str(places["jdk"]).encode()).hexdigest()[:12]
    shim = places["temporary"] / f"gossamer-cache-{os.getuid()}" / name / "bin" / "java"
    shim.parent.mkdir(parents=True)
    shim.write_text(PLANTED)
    for folder in (*shim.parents[:3], shim):
        folder.chmod(0o777)
    found = java()
    options = session._quiet_logging("ERROR")
    assert shim.parents[2] not in found.parents
    assert places["temporary"] in found.parents
    own = found.parents[2]
    assert is_private(found, own)
    assert stat.S_IMODE(own.stat().st_mode) == 0o700
    assert str(own) in options
    assert PLANTED not in found.read_text()
    assert list(elsewhere.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("planted", ["a file", "a folder", "a link"])
def test_in_a_cache_folder_that_was_open_nothing_that_another_user_has_put_there_is_run(
    places: dict[str, Path], planted: str
) -> None:
    """The text of the file is right, but its owner could change it after the check."""
    real = java()
    base, text = places["cache"] / "gossamer", real.read_text()
    base.chmod(0o777)
    if planted == "a file":
        os.chown(real, NOBODY, NOBODY)
    elif planted == "a folder":
        os.chown(real.parent, NOBODY, NOBODY)
    else:
        target = places["temporary"] / "java"
        real.rename(target)
        os.chown(target, NOBODY, NOBODY)
        real.symlink_to(target)
    os.environ["JAVA_HOME"] = ""
    found = java()
    assert found.read_text() == text
    assert is_private(found, found.parents[2])
