"""``pyspark.daemon``, which starts Spark's Python workers, with less output and less garbage
collection.

A query that has enough rows closes its workers' sockets while the workers still write. TCP accepts
their bytes anyway. A Unix socket refuses them at once, and PySpark's own daemon then prints a
traceback for each worker. Here such a worker ends silently, because no process waits for it. Other
errors are printed as before.

After each task PySpark's daemon lets the worker collect garbage, also among all imported objects,
and meanwhile the worker takes no other task. Objects that exist after the first task will stay, so
here they are not examined again.
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
