"""A standalone Spark cluster on loopback: a master and workers as child processes of the test."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from gossamer.pipeline.session import ensure_java


class Cluster:
    """Use it as ``with Cluster(folder) as cluster: ... --master cluster.url``."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self.folder, self.workers = folder, workers
        self.port, self.page = _free_port(), _free_port()
        self.url = f"spark://127.0.0.1:{self.port}"
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Cluster:
        self.folder.mkdir(parents=True, exist_ok=True)
        ensure_java()
        try:
            self._spawn(
                "master.Master",
                "--host",
                "127.0.0.1",
                "--port",
                str(self.port),
                "--webui-port",
                str(self.page),
            )
            for number in range(self.workers):
                work = str(self.folder / f"worker-{number}")
                options = (
                    "--host",
                    "127.0.0.1",
                    "--cores",
                    "1",
                    "--memory",
                    "1g",
                    "--work-dir",
                    work,
                    "--webui-port",
                    "0",
                )
                self._spawn("worker.Worker", *options, self.url)
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            process.wait(30)

    def _spawn(self, kind: str, *options: str) -> None:
        import pyspark

        home = str(Path(pyspark.__file__).parent)
        # PYTHONPATH is left out, because the executors must not find this checkout unless the
        # session ships it to them.
        env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        env |= {
            "SPARK_HOME": home,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_NO_DAEMONIZE": "1",
            "PYSPARK_PYTHON": sys.executable,
        }
        env |= {
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
        with (self.folder / f"log-{len(self._processes)}").open("wb") as log:
            command = [f"{home}/bin/spark-class", f"org.apache.spark.deploy.{kind}", *options]
            self._processes.append(subprocess.Popen(command, env=env, stdout=log, stderr=log))

    def _wait(self) -> None:
        until = time.monotonic() + 300
        while time.monotonic() < until:
            if self._alive() >= self.workers:
                return
            assert all(process.poll() is None for process in self._processes), (
                "a daemon has died; see its log"
            )
            time.sleep(0.1)
        raise AssertionError(f"the cluster did not start; its logs are in {self.folder}")

    def _alive(self) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.page}/json/", timeout=5) as answer:
                state: dict[str, Any] = json.load(answer)
        except (
            OSError,
            ValueError,
            # The page exists before its /json. Until then /json answers with HTML.
        ):
            return 0
        return int(state["aliveworkers"])


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
