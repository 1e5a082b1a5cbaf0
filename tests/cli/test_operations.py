"""A node as a service: real processes, signals, scrapes, log lines."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.live

GOSSAMER = [sys.executable, "-m", "gossamer"]
SECONDS = 30
CONFIG = """
listen = "127.0.0.1:0"
metrics_address = "127.0.0.1:0"
log_format = "json"
drain = 5

[topics]
weather = "country STRING, temp INT"
"""


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "run").mkdir(mode=0o700)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GOSSAMER_")}
    return {**clean, "XDG_RUNTIME_DIR": str(tmp_path / "run"), "COLUMNS": "200"}


class Service:
    """A node process and its output at the start."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        self.about: dict[str, Any] = json.loads(process.stdout.readline())
        self.address: str = self.about["address"]

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(
                f"http://{self.about['metrics']}{path}", timeout=SECONDS
            ) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def end(self, number: int = signal.SIGTERM) -> tuple[int, list[dict[str, Any]]]:
        """The exit code and the log."""
        self.process.send_signal(number)
        _, logged = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, [json.loads(line) for line in logged.splitlines()]


@contextlib.contextmanager
def service(env: dict[str, str], *arguments: str) -> Iterator[Service]:
    command = [*GOSSAMER, "node", "--json", *arguments]
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Service(process)
        finally:
            process.kill()


def gossamer(
    env: dict[str, str], *arguments: str, code: int = 0
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*GOSSAMER, *arguments],
        env=env,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == code, (done.stdout, done.stderr)
    return done


def test_a_service_from_a_file_with_topics_metrics_health_logs_and_drain(
    env: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "gossamer.toml"
    file.write_text(CONFIG)
    with service(env, "--config", str(file)) as one:
        # Commas are allowed here, too.
        around = {**env, "GOSSAMER_JOIN": f"127.0.0.1:1, {one.address}"}
        # The file advertised the topic.
        said = gossamer(around, "publish", "weather", '{"country": "CH", "temp": 3}')
        assert said.stdout.startswith("1 event published")
        assert one.get("/healthz") == (200, '{"ok": true, "problems": []}\n')
        assert one.get("/readyz") == (200, '{"ok": true, "problems": []}\n')
        assert one.get("/nothing")[0] == 404
        status, text = one.get("/metrics")
        assert status == 200
        values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        assert float(values["gossamer_members"]) >= 1
        assert float(values["gossamer_topics"]) == 1
        assert float(values["gossamer_ready"]) == float(values["gossamer_healthy"]) == 1
        assert float(values['gossamer_bytes_total{direction="in"}']) > 0
        assert "process_resident_memory_bytes" in text
        # Messages that a peer should not send are counted by reason.
        host, port = one.address.split(":")
        with socket.create_connection((host, int(port)), SECONDS) as sock:
            sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
            while sock.recv(1 << 16):
                pass
        assert 'gossamer_connections_closed_total{reason="oversized"} 1.0' in one.get("/metrics")[1]
        code, logged = one.end()
        assert code == 0
        messages = [line["message"] for line in logged]
        assert messages[0] == "started"
        assert messages[-2:] == ["draining", "stopped"]
        assert logged[0]["address"] == one.address
        assert {"link up", "link down"} <= set(messages)
        assert all(line["level"] in ("info", "warning") for line in logged)


def test_text_logs_and_levels(env: dict[str, str]) -> None:
    with service(env, "--listen", "127.0.0.1:0", "--log-level", "info") as one:
        one.process.send_signal(signal.SIGTERM)
        _, logged = one.process.communicate(timeout=SECONDS)
        assert (
            f" info    started node={one.about['node']} incarnation=1 address={one.address}"
            in logged
        )
    with service(env, "--listen", "127.0.0.1:0", "--log-level", "warning") as one:
        one.process.send_signal(signal.SIGTERM)
        assert one.process.communicate(timeout=SECONDS)[1] == ""


def test_sigterm_waits_for_receipts_and_a_second_one_does_not(
    env: dict[str, str], tmp_path: Path
) -> None:
    """The outbox is restored from a data directory, and no node of the fabric has answered yet.

    So no receipt can be complete.
    """
    data = tmp_path / "data"
    leave_one_event_behind(data)
    with service(
        env, "--listen", "127.0.0.1:0", "--join", "127.0.0.1:1", "--no-join-required",
        "--data-dir", str(data),
        "--drain", "20", "--log-format", "json", "--metrics-address", "0",
    ) as one:  # fmt: skip
        one.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + SECONDS
        while one.get("/readyz")[1] != '{"ok": false, "problems": ["draining"]}\n':
            assert time.monotonic() < deadline
        assert one.get("/healthz")[0] == 200
        began = time.monotonic()
        code, logged = one.end()
        # The command does not wait for the 20 s of the drain.
        assert time.monotonic() - began < 5
        assert code == 130
        assert [line["message"] for line in logged][-2:] == ["draining", "stopped at once"]
        assert logged[-1]["unsettled"] == 1


def leave_one_event_behind(data: Path) -> None:
    import asyncio

    import gossamer as library

    async def main() -> None:
        async with library.Node() as far:
            node = library.Node(data_dir=data, join=[far.address])
            await node.start()
            await node.advertise("weather", "country STRING, temp INT")
            await far.subscribe("weather")
            # From here on nothing leaves the node.
            node._driver.links.clear()
            await node.publish("weather", {"country": "CH", "temp": 3})
            await node.close(0.0)

    asyncio.run(main())


def test_systemd_hears_of_it(env: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(path))
        listener.settimeout(SECONDS)
        with service(
            {**env, "NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "200000"},
            "--listen",
            "127.0.0.1:0",
        ) as one:
            first = dict(line.split("=", 1) for line in listener.recv(4096).decode().splitlines())
            assert first == {"READY": "1", "STATUS": f"node {one.about['node']} on {one.address}"}
            assert [listener.recv(4096) for _ in range(3)] == [b"WATCHDOG=1"] * 3
            one.process.send_signal(signal.SIGTERM)
            while (said := listener.recv(4096).decode()) == "WATCHDOG=1":
                pass
            assert said.startswith(
                "STOPPING=1\nSTATUS=draining: 0 events without a "
                "receipt\nEXTEND_TIMEOUT_USEC=15000000"
            )
            assert one.process.wait(SECONDS) == 0


def test_top(env: dict[str, str]) -> None:
    with service(
        env,
        "--listen",
        "127.0.0.1:0",
        "--topic",
        "weather=country STRING, temp INT",
        "--log-format",
        "json",
    ) as one:
        command = [*GOSSAMER, "top", "--json", "--interval", "0.2", "--node", one.address]
        subscribe = [*GOSSAMER, "subscribe", "weather", "temp > 30", "--join", one.address]
        with (
            subprocess.Popen(
                subscribe, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            ) as subscriber,
            subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as watching,
        ):
            try:
                assert watching.stdout is not None
                assert subscriber.stderr is not None
                assert "temp > 30" in subscriber.stderr.readline()
                gossamer(env, "publish", "weather", '{"temp": 31}', "--join", one.address)
                # Wait until traffic of the publisher shows. The test's own limit ends the loop.
                while True:
                    sample = json.loads(watching.stdout.readline())
                    assert 0.1 < sample["seconds"] < SECONDS
                    if sample["bytes_in"] > 0 and any(
                        link["bytes_out"] > 0 for link in sample["links"]
                    ):
                        break
                assert sample["node"] == one.about["node"]
                assert sample["dropped"] == sample["rejected"] == []
                watching.send_signal(signal.SIGINT)
                assert watching.wait(SECONDS) == 0
            finally:
                watching.kill()
                subscriber.kill()
        lines = gossamer(
            env, "top", "--json", "--interval", "0.1", "--count", "2", "--node", one.address
        ).stdout.splitlines()
        assert len(lines) == 2
        shown = gossamer(
            env, "top", "--interval", "0.1", "--count", "1", "--node", one.address
        ).stdout
        assert f"node {one.about['node']} at {one.address}" in shown
        assert "published/s" in shown
        assert one.end()[0] == 0


def test_without_the_extra_metrics_are_refused_with_a_remedy(env: dict[str, str]) -> None:
    code = (
        "import sys; sys.modules['prometheus_client'] = None; from gossamer.cli import "
        "main; main(sys.argv[1:])"
    )
    arguments = ["node", "--listen", "127.0.0.1:0", "--metrics-address", "0"]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=env,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 2
    assert "pip install 'gossamer[metrics]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_taken_metrics_port_is_told(env: dict[str, str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = gossamer(
            env, "node", "--listen", "127.0.0.1:0", "--metrics-address", address, code=2
        )
        assert "choose another --metrics-address" in done.stderr
