"""``pyspark.daemon``, less talkative: the process that starts Spark's Python workers.

A query that has enough rows closes its workers' sockets while they still write. TCP takes what they write all the same; a Unix
socket refuses it at once, and PySpark's own daemon then prints a traceback for each. Here such a worker ends without a word, as
nobody waits for it; anything else that goes wrong is told as before.

After each task PySpark's daemon has the worker look for garbage, among all that it has imported too, and meanwhile it takes no
other task. What is there after the first task is to stay, so it is not looked at again.
"""

from __future__ import annotations

import gc
import os
from typing import Any

from pyspark import daemon

_worker = daemon.worker
_frozen = False


def worker(sock: Any, authenticated: bool) -> int:
    global _frozen
    try:
        code = int(_worker(sock, authenticated))
    except (BrokenPipeError, ConnectionResetError):
        os._exit(1)
    if not _frozen:
        gc.collect()
        gc.freeze()
        _frozen = True
    return code


if __name__ == "__main__":
    daemon.worker = worker
    daemon.manager()
