"""``gossamer publish --file -`` on a pipe while another process still writes to it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_fabric_commands import GOSSAMER, SECONDS, env, gossamer, node

from gossamer import blocking

__all__ = ["env", "node"]
pytestmark = pytest.mark.live


@contextmanager
def publishing(env: dict[str, str], *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [*GOSSAMER, "publish", "numbers", "--file", "-", *arguments]
    with subprocess.Popen(
        command,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as process:
        # A read that waits for ever ends with the process.
        watch = threading.Timer(SECONDS, process.kill)
        watch.start()
        try:
            yield process
        finally:
            watch.cancel()
            process.kill()


def say(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdin is not None
    process.stdin.write(text)
    process.stdin.flush()


def receipt(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    told: dict[str, Any] = json.loads(process.stdout.readline())
    return told


def test_each_line_is_published_at_once_and_in_order(env: dict[str, str], node: str) -> None:
    gossamer(env, "advertise", "numbers", "n INT", "--join", node)
    command = [*GOSSAMER, "subscribe", "numbers", "--limit", "9", "--json", "--join", node]
    with (
        subprocess.Popen(
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as subscriber,
        publishing(env, "--join", node, "--json") as publisher,
    ):
        assert subscriber.stderr is not None
        # The subscription is in force then.
        subscriber.stderr.readline()
        # Each receipt comes before the next line is written.
        for number in range(1, 7):
            say(publisher, f'{{"n": {number}}}\n')
            told = receipt(publisher)
            assert (told["sequence"], told["matched"], told["dropped"]) == (number, 1, 0)
        # Three lines come at once, and the last one has no end.
        say(publisher, '\n{"n": 7}\n{"n": 8}\n{"n": 9}')
        out, err = publisher.communicate(timeout=SECONDS)
        assert [json.loads(line)["sequence"] for line in out.splitlines()] == [7, 8, 9]
        assert (publisher.returncode, err) == (0, "")
        out, _ = subscriber.communicate(timeout=SECONDS)
        assert [json.loads(line)["values"]["n"] for line in out.splitlines()] == list(range(1, 10))


@pytest.mark.parametrize("way", ["--join", "--via"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_the_receipts_of_what_was_sent(
    env: dict[str, str], node: str, number: signal.Signals, way: str
) -> None:
    gossamer(env, "advertise", "numbers", "n INT", "--join", node)
    command = [*GOSSAMER, "subscribe", "numbers", "--limit", "2", "--join", node]
    with (
        subprocess.Popen(
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as subscriber,
        publishing(env, way, node) as publisher,
    ):
        assert subscriber.stderr is not None
        subscriber.stderr.readline()
        say(publisher, '{"n": 1}\n{"n": 2}\n')
        # Both events have come then.
        subscriber.communicate(timeout=SECONDS)
        publisher.send_signal(number)
        assert publisher.stdout is not None
        assert publisher.stderr is not None
        assert publisher.stdout.read() == (
            "interrupted: 2 events published; taken by 2 subscriptions in all, 0 by none\n"
        )
        assert publisher.stderr.read() == ""
        assert publisher.wait(SECONDS) == 130


def test_a_bad_line_ends_it_at_once_and_is_named(env: dict[str, str], node: str) -> None:
    gossamer(env, "advertise", "numbers", "n INT", "--join", node)
    with publishing(env, "--join", node) as publisher:
        say(publisher, '{"n": 1}\n\n{"n": "x"}\n{"n": 4}\n')
        # The pipe stays open, so the command does not end by itself.
        assert publisher.stdout is not None
        assert publisher.stderr is not None
        assert publisher.stdout.read() == (
            "before the error: 1 event published; taken by 0 subscriptions in all, 1 by none\n"
        )
        assert "line 3: n: Expected `int" in publisher.stderr.read()
        assert publisher.wait(SECONDS) == 2


def test_a_named_pipe_is_read_as_it_is_written(
    env: dict[str, str], node: str, tmp_path: Path
) -> None:
    gossamer(env, "advertise", "numbers", "n INT", "--join", node)
    path = tmp_path / "numbers"
    os.mkfifo(path)
    command = [*GOSSAMER, "publish", "numbers", "--file", str(path), "--join", node, "--json"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as publisher:
        watch = threading.Timer(SECONDS, publisher.kill)
        watch.start()
        try:
            with path.open("w") as pipe:
                for number in (1, 2):
                    pipe.write(f'{{"n": {number}}}\n')
                    pipe.flush()
                    assert receipt(publisher)["sequence"] == number
            assert publisher.wait(SECONDS) == 0
        finally:
            watch.cancel()
            publisher.kill()


@pytest.mark.parametrize("way", ["--join", "--via"])
def test_events_that_were_published_before_an_error_are_reported(
    env: dict[str, str], node: str, tmp_path: Path, way: str
) -> None:
    """Another schema of the topic comes to the fabric while the command publishes."""
    gossamer(env, "advertise", "numbers", "n INT", "--join", node)
    with blocking.Node(data_dir=tmp_path / "other") as alone:
        alone.advertise("numbers", "name STRING")
    with (
        blocking.Node(join=[node]) as seer,
        seer.subscribe("numbers") as events,
        publishing(env, way, node) as process,
    ):
        say(process, '{"n": 1}\n')
        assert events.next(SECONDS)["n"] == 1
        with blocking.Node(data_dir=tmp_path / "other", join=[node]):
            while process.poll() is None:
                with suppress(BrokenPipeError):
                    say(process, '{"n": 2}\n')
                with suppress(subprocess.TimeoutExpired):
                    process.wait(0.05)
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.read().startswith("before the error: ")
            [error] = process.stderr.read().splitlines()
            assert "do not agree" in error
            assert process.returncode == 2
