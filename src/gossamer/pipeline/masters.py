"""Checks where Spark shall run (``--master``).

The check comes before a JVM is started, because the JVM would say less, and later.
"""

from __future__ import annotations

import contextlib
import re
import socket

FORMS = (
    "local[*], local[2], local-cluster[2,1,1024], spark://host:7077, yarn, k8s://https://host:6443"
)
ANSWER_S = 5.0
"""How long a standalone cluster's master may take to accept a connection.

Spark itself would try for a minute.
"""
PORT = 7077
_KNOWN = re.compile(
    r"local(\[(\*|[1-9]\d*)(\s*,\s*[1-9]\d*)?\])?"
    r"|local-cluster\[\s*[1-9]\d*\s*,\s*[1-9]\d*\s*,\s*[1-9]\d*\s*\]"
    r"|spark://[^\s,/]+(,[^\s,/]+)*|yarn|k8s://\S+"
)


class SparkStartError(RuntimeError):
    """Spark does not start. The message gives the cause and a remedy."""


def check(master: str) -> str:
    """Return the master unchanged if Spark knows its form."""
    if not _KNOWN.fullmatch(master):
        raise SparkStartError(f"{master!r} is no master of Spark's; give one such as {FORMS}")
    return master


def reach(master: str) -> None:
    """Raise an error if no master of a standalone cluster accepts a connection."""
    if not master.startswith("spark://"):
        return
    places = master.removeprefix("spark://").split(",")
    why = ""
    for place in places:
        host, _, port = place.rpartition(":")
        try:
            with contextlib.closing(
                socket.create_connection(
                    ((host or place).strip("[]"), int(port) if host else PORT), timeout=ANSWER_S
                )
            ):
                return
        except (OSError, ValueError, OverflowError) as error:
            why = why or (
                error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            )
    raise SparkStartError(
        f"no master answers at {', '.join(places)} ({why}); is the cluster's master running there? "
        "Or try --master 'local[*]'"
    )


def reason(error: Exception) -> str:
    """The cause why Spark did not start, in one line.

    An error from Java states its cause in its innermost exception, and not in its first words.
    """
    cause = getattr(error, "java_exception", None)
    while cause is not None and cause.getCause() is not None:
        cause = cause.getCause()
    said = str(cause.getMessage() or cause.toString()) if cause is not None else str(error)
    return first_line(said, error)[:200]


def first_line(said: str, error: Exception) -> str:
    """The first line of an error's text that is not blank, or the name of its class."""
    return next((line.strip() for line in said.splitlines() if line.strip()), type(error).__name__)
