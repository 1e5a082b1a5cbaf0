"""The commands as a user types them, with real processes on loopback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gossamer.cli.app import app
from gossamer.cli.common import DEFAULT_ADDRESS
from gossamer.net import admin

pytestmark = pytest.mark.live

GOSSAMER = [sys.executable, "-m", "gossamer"]
SECONDS = 30


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """Admin sockets of this test only."""
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    return {**os.environ, "XDG_RUNTIME_DIR": str(runtime), "COLUMNS": "200"}


@pytest.fixture
def node(env: dict[str, str]) -> Iterator[str]:
    """Run a node, and yield its address."""
    command = [*GOSSAMER, "node", "--listen", "127.0.0.1:0", "--json"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["address"]
            process.send_signal(signal.SIGINT)
            # Ctrl-C leaves cleanly.
            assert process.wait(SECONDS) == 0
        finally:
            process.kill()


def gossamer(
    env: dict[str, str], *arguments: str, code: int = 0, given: str | None = None
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*GOSSAMER, *arguments],
        env=env,
        input=given,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == code, (done.stdout, done.stderr)
    return done


def test_advertise_subscribe_publish_status(env: dict[str, str], node: str) -> None:
    said = gossamer(
        env,
        "advertise",
        "weather",
        "country STRING, temp INT, at TIMESTAMP",
        "--join",
        node,
        "--json",
    )
    assert json.loads(said.stdout) == {
        "topic": "weather",
        "schema": "country STRING, temp INT, at TIMESTAMP",
    }
    command = [
        *GOSSAMER,
        "subscribe",
        "weather",
        "temp > 30",
        "--join",
        node,
        "--limit",
        "2",
        "--json",
    ]
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as subscriber:
        try:
            assert subscriber.stderr is not None
            assert "temp > 30" in subscriber.stderr.readline()
            one = '{"country": "CH", "temp": 31, "at": "2026-11-15T12:00:00+01:00"}'
            said = gossamer(
                env, "publish", "weather", one, '{"temp": 30}', "--join", node, "--json"
            )
            assert [json.loads(line)["matched"] for line in said.stdout.splitlines()] == [1, 0]
            said = gossamer(
                env,
                "publish",
                "weather",
                "--file",
                "-",
                "--join",
                node,
                given='{"temp": 29}\n\n{"temp": 32}\n',
            )
            assert said.stdout == "2 events published; taken by 1 subscription in all, 1 by none\n"
            out, _ = subscriber.communicate(timeout=SECONDS)
            values = [json.loads(line)["values"] for line in out.splitlines()]
            assert values == [
                {"country": "CH", "temp": 31, "at": "2026-11-15T11:00:00Z"},
                {"country": None, "temp": 32, "at": None},
            ]
        finally:
            subscriber.kill()
    [status] = [json.loads(line) for line in gossamer(env, "status", "--json").stdout.splitlines()]
    assert status["address"] == node
    assert status["topics"] == {"weather": "country STRING, temp INT, at TIMESTAMP"}
    assert node in gossamer(env, "status").stdout
    assert (
        "no node at 127.0.0.1:1 is running"
        in gossamer(env, "status", "--node", "127.0.0.1:1", code=2).stderr
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["advertise", "weather", "temp"], "gossamer: "),
        (["publish", "weather"], "gossamer: nothing to publish"),
        (
            ["publish", "nosuch", "{}", "--wait", "0.2"],
            "gossamer: topic 'nosuch' was not advertised within 0.2 s",
        ),
        (["subscribe", "weather", "tenp > 3"], "did you mean"),
        (["publish", "weather", "[1]"], "gossamer: argument 1: not a JSON object but list"),
        (["publish", "weather", "{"], "gossamer: argument 1: not JSON"),
        (
            ["publish", "weather", b'{"temp": "\xff"}'.decode("utf-8", "surrogateescape")],
            "gossamer: argument 1: not JSON",
        ),
        (["subscribe", "weather", "--timeout", "nan"], "'nan' is not a number of seconds"),
        (["subscribe", "weather", "--wait", "-1"], "'-1' is not a number of seconds"),
        (["publish", "weather", '{"temp": "x"}'], "gossamer: argument 1: temp: Expected `int"),
        (
            ["advertise", "weather", "other INT"],
            "gossamer: topic 'weather' is already advertised as (temp INT)",
        ),
        (
            ["subscribe", "weather", "--group", "g", "--route", "tree"],
            "gossamer: a group's events are shared out",
        ),
        (
            ["subscribe", "weather", "--group", "g", "--since", "10m"],
            "gossamer: a member of a group gets a part",
        ),
        (
            ["subscribe", "weather", "--no-ack"],
            "--no-ack is for a durable subscription: give it a name",
        ),
        (
            ["subscribe", "weather", "--data-dir", "x"],
            "--data-dir is for a durable subscription: give it a name",
        ),
        (
            ["subscribe", "weather", "--limit", "1", "--count", "1"],
            "See: gossamer subscribe --help",
        ),
    ],
)
def test_errors_are_clear_and_exit_with_2(
    env: dict[str, str], node: str, arguments: list[str], message: str
) -> None:
    gossamer(env, "advertise", "weather", "temp INT", "--join", node)
    done = gossamer(env, *arguments, "--join", node, code=2)
    assert message.lower() in done.stderr.lower()
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nosuch"], "No such command 'nosuch'. See: gossamer --help"),
        (["keys", "init"], "Missing argument 'DIRECTORY'. See: gossamer keys init --help"),
        (
            ["subscribe", "weather", "country", "=", "CH"],
            (
                "Got unexpected extra arguments (= CH): put quotes around text that has "
                "spaces. See: "
                "gossamer subscribe --help"
            ),
        ),
        (
            ["node", "--listen", "127.0.0.1:0", "--data-dir", "{file}"],
            (
                "cannot use data directory {file}: {file} is not a folder; remove it, or choose "
                "another one"
            ),
        ),
        (["keys", "init", "{file}/authority"], "Not a directory: {file}/authority"),
    ],
)
def test_misuse_is_one_line_that_says_where_to_read_on(
    env: dict[str, str], tmp_path: Path, arguments: list[str], message: str
) -> None:
    file = tmp_path / "file"
    file.touch()
    done = gossamer(env, *(one.format(file=file) for one in arguments), code=2)
    assert done.stderr == f"gossamer: {message.format(file=file)}\n"


def test_fewer_events_than_the_limit_in_time_are_told(env: dict[str, str], node: str) -> None:
    gossamer(env, "advertise", "weather", "temp INT", "--join", node)
    done = gossamer(
        env, "subscribe", "weather", "--limit", "2", "--timeout", "0.1", "--join", node, code=1
    )
    assert done.stderr.splitlines()[1:] == [
        "gossamer: fewer than 2 events (--limit) came within 0.1 s"
    ]


def test_a_port_that_is_taken_is_told_in_the_systems_words(env: dict[str, str], node: str) -> None:
    done = gossamer(env, "node", "--listen", node, code=2)
    remedy = "is a node running there? choose another address (port 0 picks one)"
    assert done.stderr == f"gossamer: cannot listen on {node}: Address already in use; {remedy}\n"
    done = gossamer(env, "node", "--listen", "127.0.0.1:0", "--metrics-address", node, code=2)
    remedy = "choose another --metrics-address"
    assert (
        done.stderr
        == f"gossamer: cannot serve metrics on {node}: Address already in use; {remedy}\n"
    )


@pytest.mark.parametrize("command", [["top"], ["tree"], ["view"], ["lookup", "weather"]])
def test_of_several_nodes_the_one_at_the_default_address_is_asked(
    monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    asked = []

    def find(address: str | None, usual: str) -> Path:
        asked.append((address, usual))
        raise admin.AdminError("no node")

    monkeypatch.setattr(admin, "find", find)
    for given in ([], ["--node", "127.0.0.1:1"]):
        with pytest.raises(admin.AdminError):
            app.main([*command, *given], standalone_mode=False)
    assert asked == [(None, DEFAULT_ADDRESS), ("127.0.0.1:1", DEFAULT_ADDRESS)]


def test_what_is_advertised_is_told_and_not_what_was_asked_for(
    env: dict[str, str], node: str
) -> None:
    wide = gossamer(env, "advertise", "weather", "temp INT, city STRING", "--join", node).stdout
    assert wide == "weather (temp INT, city STRING) is advertised\n"
    assert gossamer(env, "advertise", "weather", "temp INT", "--join", node).stdout == wide


def test_nobody_waits_for_a_node_that_is_stopped(env: dict[str, str]) -> None:
    command = [*GOSSAMER, "node", "--listen", "127.0.0.1:0", "--json"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = json.loads(process.stdout.readline())["address"]
            process.send_signal(signal.SIGSTOP)
            remedy = "is its process stopped, or very busy?"
            asleep = f"gossamer: the node at {address} has not answered within {{}} s; {remedy}\n"
            assert gossamer(env, "top", code=2).stderr == asleep.format(2)
            assert gossamer(env, "view", code=2).stderr == asleep.format(6)
            assert gossamer(
                env, "publish", "weather", "{}", "--via", address, code=2
            ).stderr == asleep.format(6)
            assert remedy in gossamer(env, "status", "--node", address).stdout
        finally:
            process.kill()


def test_errors_as_json(env: dict[str, str]) -> None:
    done = gossamer(env, "subscribe", "weather", "--join", "nowhere", "--json", code=2)
    assert json.loads(done.stdout) == {
        "error": "'nowhere' is not an address; write host:port, for example 127.0.0.1:7400",
        "kind": "AddressError",
    }


def test_whatever_the_library_raises_by_name_is_one_line_and_no_traceback() -> None:
    import gossamer as library
    from gossamer.cli.app import _known_errors

    public = [getattr(library, name) for name in library.__all__ if name.endswith("Error")]
    assert library.RouteError in public
    assert [error for error in public if not issubclass(error, _known_errors())] == []


def test_the_table_of_nodes_can_be_read_in_a_pipe_and_on_a_narrow_terminal(
    env: dict[str, str], node: str
) -> None:
    for width in ({"COLUMNS": "60"}, {}):
        around = {name: value for name, value in env.items() if name != "COLUMNS"} | width
        heading, row, *_ = gossamer(around, "status").stdout.splitlines()
        assert (
            " ".join(heading.split())
            == "node address members links suspects view topics subs outbox kB in kB out dups "
            "rej drop"
        )
        assert row.split()[1] == node


def test_the_help_of_advertise_names_every_type(env: dict[str, str]) -> None:
    from gossamer.filters.schema import Type

    said = gossamer(env, "advertise", "--help").stdout
    assert [kind for kind in (*Type, "STRUCT") if kind not in said] == []


def test_nobody_there(env: dict[str, str]) -> None:
    assert "no node of yours" in gossamer(env, "status", code=2).stderr


def test_subscribe_that_ran_out_of_time_exits_with_1(env: dict[str, str], node: str) -> None:
    gossamer(env, "advertise", "weather", "temp INT", "--join", node)
    gossamer(
        env, "subscribe", "weather", "--join", node, "--limit", "1", "--timeout", "0.2", code=1
    )


@pytest.mark.parametrize(
    "command",
    [
        "",
        "node",
        "advertise",
        "subscribe",
        "publish",
        "status",
        "view",
        "lookup",
        "tree",
        "simulate",
        "pipeline",
        "demo",
    ],
)
def test_help_has_examples(env: dict[str, str], command: str) -> None:
    done = gossamer(env, *([command] if command else []), "--help")
    assert "gossamer" in done.stdout
    assert "Examples:" in done.stdout or "Try it" in done.stdout


def test_what_went_out_before_a_bad_line_is_reported(env: dict[str, str], node: str) -> None:
    gossamer(env, "advertise", "weather", "temp INT", "--join", node)
    lines = '{"temp": 1}\n{"temp": 2}\n{"zzz": 3}\n{"temp": 4}\n'
    done = gossamer(env, "publish", "weather", "--file", "-", "--join", node, code=2, given=lines)
    assert (
        done.stdout
        == "before the error: 2 events published; taken by 0 subscriptions in all, 2 by none\n"
    )
    assert "gossamer: line 3: unknown attribute 'zzz'" in done.stderr
    done = gossamer(
        env, "publish", "weather", "--file", "-", "--join", node, "--json", code=2, given=lines
    )
    assert [json.loads(line).get("matched") for line in done.stdout.splitlines()] == [0, 0, None]


def test_what_is_published_through_a_node_that_stays_is_there_for_those_who_come_later(
    env: dict[str, str], node: str
) -> None:
    gossamer(
        env, "advertise", "weather", "city STRING, temp INT", "--retention", "1h", "--join", node
    )
    alone = gossamer(env, "publish", "weather", '{"temp": 1}', "--join", node)
    assert (
        "publishers of 'weather' keep 1h, 256MB for later subscribers, but this publisher is gone"
        in alone.stderr
    )
    assert "--via HOST:PORT" in alone.stderr
    through = ("publish", "weather", "--via", node)
    said = gossamer(env, *through, '{"temp": 2}', '{"city":\n"Bern",\n"temp": 3}')
    assert said.stdout == alone.stdout.replace("1 event ", "2 events ").replace(", 1 by", ", 2 by")
    assert not said.stderr
    # These are more events than the command holds at a time.
    many = "".join(f'{{"temp": {number}}}\n\n' for number in range(4, 12_004))
    said = gossamer(env, *through, "--file", "-", "--json", given=many)
    [status] = [json.loads(line) for line in gossamer(env, "status", "--json").stdout.splitlines()]
    assert [json.loads(line) for line in said.stdout.splitlines()] == [
        {"sequence": number, "matched": 0, "dropped": 0, "publisher": status["node"]}
        for number in range(3, 12_003)
    ]
    past = gossamer(
        env, "subscribe", "weather", "--since", "beginning", "--limit", "12002", "--join", node
    ).stdout
    assert [json.loads(line)["temp"] for line in past.splitlines()] == list(range(2, 12_004))


@pytest.mark.parametrize(
    ("arguments", "given", "message", "told"),
    [
        (
            [],
            '{"temp": 1}\n\n{"temp": "x"}\n{"temp": 3}\n',
            "line 3: temp: Expected `int",
            "before the error: 1 event published",
        ),
        ([], "[1]\n", "line 1: not a JSON object but list", ""),
        (['{"temp": 1}', "{"], "", "argument 2: not JSON", "before the error: 1 event published"),
        ([], '{"city": "' + "x" * (9 << 20) + '"}', "line 1: more than 8388608 bytes", ""),
        (
            [],
            '{"city": "' + "x" * (2 << 20) + '"}',
            "at most 1048576 are allowed (event_bytes)",
            "",
        ),
        (["--join", "127.0.0.1:1"], "", "in the fabric already: leave --join out", ""),
    ],
)
def test_what_cannot_be_published_through_a_node_is_told_as_without(
    env: dict[str, str], node: str, arguments: list[str], given: str, message: str, told: str
) -> None:
    gossamer(env, "advertise", "weather", "city STRING, temp INT", "--join", node)
    done = gossamer(
        env, "publish", "weather", "--via", node, "--file", "-", *arguments, given=given, code=2
    )
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout.startswith(told)
    assert bool(done.stdout) == bool(told)


def test_publishing_through_a_node_that_does_not_know_the_topic_or_is_not_there(
    env: dict[str, str], node: str
) -> None:
    done = gossamer(
        env, "publish", "nosuch", "{}", "--via", node, "--wait", "0.2", "--json", code=2
    )
    assert "topic 'nosuch' was not advertised within 0.2 s" in json.loads(done.stdout)["error"]
    done = gossamer(env, "publish", "weather", "{}", "--via", "127.0.0.1:1", code=2)
    assert "no node at 127.0.0.1:1 is running" in done.stderr


def test_ctrl_c_ends_what_waits(env: dict[str, str]) -> None:
    command = [*GOSSAMER, "publish", "weather", "{}", "--join", "127.0.0.1:1"]
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as process:
        # By then the command starts or waits for the fabric. In either case it must end at once.
        time.sleep(1.0)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) in (130, -signal.SIGINT)
        assert time.monotonic() - began < 5


def test_a_reader_that_stalls_stops_neither_the_node_nor_ctrl_c(
    env: dict[str, str], node: str
) -> None:
    gossamer(env, "advertise", "numbers", "n INT", "--join", node)
    command = [*GOSSAMER, "subscribe", "numbers", "--slow", "drop_oldest", "--join", node]
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as subscriber:
        try:
            assert subscriber.stderr is not None
            subscriber.stderr.readline()
            # These are far more lines than the pipe and the buffer hold.
            lines = "".join(f'{{"n": {n}}}\n' for n in range(60_000))
            said = gossamer(env, "publish", "numbers", "--file", "-", "--join", node, given=lines)
            assert said.stdout.startswith("60000 events published; taken by 60000 subscriptions")
            drops = [
                json.loads(line)["counters"].get("dropped", 0)
                for line in gossamer(env, "status", "--json").stdout.splitlines()
            ]
            # The drops are counted, and status shows them.
            assert max(drops) > 0
            subscriber.send_signal(signal.SIGINT)
            assert subscriber.wait(SECONDS) == 0
        finally:
            subscriber.kill()


def test_nodes_of_another_fabric_are_not_let_in(env: dict[str, str], node: str) -> None:
    done = gossamer(
        env,
        "advertise",
        "weather",
        "temp INT",
        "--join",
        node,
        "--fabric",
        "other",
        "--wait",
        "1",
        code=2,
    )
    assert "no node let this one in" in done.stderr
    assert "the peer belongs to fabric '', not 'other'" in done.stderr
    # The node runs, so there is no hint to start it.
    assert "start it with" not in done.stderr


def test_view_shows_names_and_watches(env: dict[str, str], node: str) -> None:
    assert "no node wants any topic yet" in gossamer(env, "view").stdout
    gossamer(env, "advertise", "weather", "temp INT", "--join", node)
    watch = [*GOSSAMER, "view", "weather", "--watch", "--json", "--node", node]
    subscribe = [*GOSSAMER, "subscribe", "weather", "--join", node]
    with subprocess.Popen(watch, env=env, stdout=subprocess.PIPE, text=True) as watching:
        try:
            assert watching.stdout is not None
            with subprocess.Popen(
                subscribe, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            ) as subscriber:
                try:
                    joined = json.loads(watching.stdout.readline())
                    shown = [
                        json.loads(line)
                        for line in gossamer(
                            env, "view", "--node", node, "--json"
                        ).stdout.splitlines()
                    ]
                    assert [(one["topic"], one["node"]) for one in shown] == [
                        ("weather", joined["node"])
                    ]
                    assert joined["node"] in gossamer(env, "view", "weather", "--node", node).stdout
                    subscriber.send_signal(signal.SIGINT)
                    subscriber.communicate(timeout=SECONDS)
                finally:
                    subscriber.kill()
            left = json.loads(watching.stdout.readline())
            assert (left["kind"], left["topic"], left["node"]) == (
                "left",
                "weather",
                joined["node"],
            )
            watching.send_signal(signal.SIGINT)
            assert watching.wait(SECONDS) == 130
        finally:
            watching.kill()
    assert "no node wants weather" in gossamer(env, "view", "weather").stdout
    assert "no node at 127.0.0.1:1" in gossamer(env, "view", "--node", "127.0.0.1:1", code=2).stderr


def test_look_ups_and_the_tree_from_the_shell(env: dict[str, str], node: str) -> None:
    gossamer(env, "advertise", "weather", "country STRING, temp INT", "--join", node)
    assert (
        "the list of weather is empty" in gossamer(env, "lookup", "weather", "--node", node).stdout
    )
    command = [
        *GOSSAMER,
        "subscribe",
        "weather",
        "temp > 30",
        "--join",
        node,
        "--route",
        "skiplist",
        "--limit",
        "1",
        "--json",
    ]
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as subscriber:
        try:
            assert subscriber.stderr is not None
            assert "temp > 30" in subscriber.stderr.readline()
            said = gossamer(env, "lookup", "weather", '{"temp": 31}', "--node", node, "--json")
            [hit] = [json.loads(line) for line in said.stdout.splitlines()]
            assert hit["filter"] == "temp > 30"
            assert hit["address"] in gossamer(env, "lookup", "weather", "--node", node).stdout
            nobody = gossamer(env, "lookup", "weather", '{"temp": 29}', "--node", node)
            assert "no subscription with route skiplist would take it" in nobody.stdout
            drawn = [
                json.loads(line)
                for line in gossamer(env, "tree", "--node", node, "--json").stdout.splitlines()
            ]
            assert sorted(one["address"] for one in drawn) == sorted([node, hit["address"]])
            assert [one["depth"] for one in drawn] == [0, 1]
            assert "2 nodes, depth 1" in gossamer(env, "tree", "--node", node).stdout
            gossamer(env, "publish", "weather", '{"temp": 40}', "--join", node)
            out, _ = subscriber.communicate(timeout=SECONDS)
            assert [json.loads(line)["values"]["temp"] for line in out.splitlines()] == [40]
        finally:
            subscriber.kill()
    assert (
        "temp: Expected `int"
        in gossamer(env, "lookup", "weather", '{"temp": "x"}', "--node", node, code=2).stderr
    )
    assert (
        "EVENT must be a JSON object"
        in gossamer(env, "lookup", "weather", "[1]", "--node", node, code=2).stderr
    )
