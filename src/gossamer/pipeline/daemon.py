"""``pyspark.daemon``, less talkative: the process that starts Spark's Python workers.

A query that has enough rows closes its workers' sockets while they still write. TCP takes what they write all the same; a Unix
socket refuses it at once, and PySpark's own daemon then prints a traceback for each. Here such a worker ends without a word, as
nobody waits for it; anything else that goes wrong is told as before.
"""

from __future__ import annotations

import os
from typing import Any

from pyspark import daemon

_worker = daemon.worker


def worker(sock: Any, authenticated: bool) -> int:
    try:
        return int(_worker(sock, authenticated))
    except (BrokenPipeError, ConnectionResetError):
        os._exit(1)


if __name__ == "__main__":
    daemon.worker = worker
    daemon.manager()
