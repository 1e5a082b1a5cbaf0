"""Options from flags, environment and file: one table, one precedence, and errors with the place
and the remedy.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from gossamer.cli.app import app
from gossamer.cli.options import OPTIONS
from gossamer.cli.settings import ConfigError, resolve
from gossamer.net.authority import create

# Every option, with the ways to write it and its value. A new option needs a line here, so every
# option is tested.
# name -> (as text, in TOML, value)
TEXTS: dict[str, tuple[str, Any, Any]] = {
    "listen": ("127.0.0.1:7401", "127.0.0.1:7401", "127.0.0.1:7401"),
    "public_address": ("seed.example:7400", "seed.example:7400", "seed.example:7400"),
    "join": ("127.0.0.1:1, [::1]:2", ["127.0.0.1:1", "[::1]:2"], ("127.0.0.1:1", "[::1]:2")),
    "join_required": ("no", False, False),
    "wait": ("2.5", 2.5, 2.5),
    "spin": ("0.001", 0.001, 0.001),
    "shared_memory": ("false", False, False),
    "fabric": ("blue", "blue", "blue"),
    "k": ("3", 3, 3),
    "data_dir": ("state", "state", Path("state")),
    "trace_dir": ("traces", "traces", Path("traces")),
    "keys": ("keys", "keys", Path("keys")),
    "insecure": ("true", True, True),
    "topics": (
        "a=n INT; b=s STRING @ 1h, 64MB",
        {"a": "n INT", "b": {"schema": "s STRING", "retention": "1h, 64MB"}},
        {"a": ("n INT", ""), "b": ("s STRING", "1h, 64MB")},
    ),
    "drain": ("30", 30, 30.0),
    "metrics_address": ("9464", ":9464", "127.0.0.1:9464"),
    "log_format": ("json", "json", "json"),
    "log_level": ("DEBUG", "debug", "debug"),
    "window": ("4096", 4096, 4096),
    "window_bytes": ("64MiB", "64 MiB", 64 << 20),
    "batch_events": ("100", 100, 100),
    "batch_bytes": ("64KiB", 65536, 65536),
    "event_bytes": ("10_000", 10_000, 10_000),
    "buffer": ("12", 12, 12),
    "block": ("1.5", 1.5, 1.5),
    "subscriptions": ("7", 7, 7),
    "retained": ("64MiB", 1 << 26, 1 << 26),
    "retention_max": ("1d, 64MB", "1d, 64MB", "1d, 64MB"),
    "connections": ("100", 100, 100),
    "address_connections": ("50", 50, 50),
    "peer_messages": ("1000", 1000, 1000),
    "revocations_max_age": ("86400", 86400, 86400.0),
    "peer_bytes": ("1MiB", 1 << 20, 1 << 20),
}


def run(*arguments: str, env: dict[str, str] | None = None, code: int = 0) -> Result:
    done = CliRunner().invoke(
        app, list(arguments), env=env, catch_exceptions=True, standalone_mode=False
    )
    if done.exception is not None and not isinstance(
        done.exception, (ConfigError, click.ClickException)
    ):
        raise done.exception
    assert (done.return_value if done.exception is None else 2) == code, (
        done.output,
        done.exception,
    )
    return done


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {toml(one)}" for name, one in value.items()) + "}"
    return json.dumps(value)


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_every_option_is_a_flag_a_variable_and_a_key(
    option: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # The node reads its keys.
    if option.name == "keys":
        create(tmp_path / "authority").issue("node", tmp_path / "keys")
    assert option.name in TEXTS, "add a line to TEXTS"
    text, in_toml, value = TEXTS[option.name]
    file = tmp_path / "gossamer.toml"
    file.write_text(f"# options\n{option.name} = {toml(in_toml)}\n")
    beside = [] if option.name != "listen" else ["--insecure"]
    if option.name == "revocations_max_age":
        create(tmp_path / "authority").issue("node", tmp_path / "keys")
        beside = ["--keys", str(tmp_path / "keys")]
    words = [text] if not isinstance(option.default, bool) else []
    flag = option.flag if value is not False else f"--no-{option.flag[2:]}"
    for arguments, env, source in (
        ([flag, *words], None, f"flag {option.flag}"),
        ([], {option.variable: text}, f"environment {option.variable}"),
        (["--config", str(file)], None, f"{file} line 2"),
        ([], None, "default"),
    ):
        done = run("config", "show", "--json", *arguments, *beside, env=env)
        shown = {one["option"]: one for one in map(json.loads, done.output.splitlines())}[
            option.name
        ]
        expected = option.default if source == "default" else value
        assert shown == {
            "option": option.name,
            "value": option.kind.show(expected),
            "source": source,
        }


def test_flag_wins_over_environment_over_file_over_default(tmp_path: Path) -> None:
    file = tmp_path / "gossamer.toml"
    file.write_text("k = 2\n")
    env = {"GOSSAMER_K": "3"}
    given: list[tuple[dict[str, Any], dict[str, str], str | None]] = [
        ({"k": 4}, env, str(file)), ({"k": None}, env, str(file)), ({}, {}, str(file)),
        ({}, {}, None),
    ]  # fmt: skip
    assert [resolve(flags, environ, path)["k"] for flags, environ, path in given] == [4, 3, 2, 6]


def test_what_is_resolved_reaches_the_node(tmp_path: Path) -> None:
    settings = resolve(
        {"k": 2, "block": 1.5, "buffer": 9, "fabric": "blue"},
        {"GOSSAMER_JOIN": "127.0.0.1:1"},
        None,
    )
    arguments = settings.node_arguments()
    assert resolve({"peer_messages": 5}, {}, None).node_arguments()["limits"].messages == 5
    assert (arguments["k"], arguments["fabric"], arguments["join"]) == (2, "blue", ("127.0.0.1:1",))
    assert (arguments["config"].block, arguments["config"].buffer) == (1.5, 9)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('lisen = "127.0.0.1:1"', "line 1: unknown option 'lisen' (did you mean 'listen'?)"),
        ('\n\ndata-dir = "x"', "line 3: unknown option 'data-dir' (did you mean 'data_dir'?)"),
        (
            "[qqqqqqqq]\nx = 1",
            "line 1: unknown option 'qqqqqqqq'; 'gossamer config example' lists them all",
        ),
        ("k = 40", "line 1: k: 40 must be from 1 to 32"),
        ('k = "six"', "line 1: k: 'six' is not a whole number"),
        ("insecure = 1", "line 1: insecure: 1 is neither true nor false"),
        ("listen = 7400", "line 1: listen: 7400 is not text; write it in quotes"),
        ('listen = "7400"', "'7400' is not an address; write host:port"),
        ('join = ["nowhere"]', "'nowhere' is not an address"),
        (
            'log_level = "loud"',
            "line 1: log_level: 'loud' must be one of debug, info, warning, error",
        ),
        ('window_bytes = "lots"', "line 1: window_bytes: 'lots' is not a size"),
        ("block = 0", "line 1: block: 0 seconds is too short, and must be at least 0.001"),
        ("block = nan", "line 1: block: nan is not a number of seconds"),
        ('block = "5"', "line 1: block: '5' is not a number of seconds"),
        ("buffer = 0", "line 1: buffer: 0 must be from 1 to"),
        ("drain = -1", "line 1: drain: -1 is not a number of seconds"),
        (
            '[topics]\nweather = "temp IN"',
            "line 1: topics: the schema of topic 'weather': type IN is not supported",
        ),
        (
            "[topics.weather]\nretention = 3",
            "topic 'weather' has 'retention'; it takes 'schema' and, if wanted, 'retention'",
        ),
        (
            '[topics.weather]\nschema = "n INT"\nretention = "long"',
            "topic 'weather': cannot read retention 'long'",
        ),
        (
            'retention = "1h"',
            (
                "line 1: unknown option 'retention'; it belongs to a topic: write it below "
                "[topics.NAME]"
            ),
        ),
        ("topics = 3", "3 is not a table; write [topics]"),
        ('listen = "0.0.0.0:7400"', "0.0.0.0:7400 is not loopback"),
        ("window = 10", "window is 10; it must be from batch_events (4096)"),
        ("k = =", "not TOML: Invalid value (at line 1, column 5)"),
    ],
)
def test_a_bad_file_is_told_with_place_and_remedy(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "gossamer.toml"
    file.write_text(text)
    done = run("config", "check", str(file), code=2)
    assert message in done.stderr
    assert str(file) in done.stderr or "loopback" in message or "window" in message
    said = json.loads(run("config", "check", str(file), "--json", code=2).stdout)
    assert not said["ok"]
    assert any(message in problem for problem in said["problems"])


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    file = tmp_path / "gossamer.toml"
    file.write_text('lisen = "x"\nk = 99\n')
    with pytest.raises(ConfigError) as caught:
        resolve({}, {"GOSSAMER_DRAIN": "soon"}, str(file))
    assert len(caught.value.problems) == 3
    assert "GOSSAMER_DRAIN: 'soon' is not a number of seconds" in caught.value.problems


def test_limits_that_do_not_go_together_are_told_once_and_where_they_are_from(
    tmp_path: Path,
) -> None:
    file = tmp_path / "gossamer.toml"
    file.write_text("window = 10\n")
    with pytest.raises(ConfigError) as failed:
        resolve({}, {}, str(file))
    assert failed.value.problems == [
        f"window is 10; it must be from batch_events (4096) to 524288 ({file} line 1)"
    ]
    with pytest.raises(ConfigError) as failed:
        resolve({"listen": "0.0.0.0:1", "window": 10}, {"GOSSAMER_BATCH_EVENTS": "20"}, None)
    limits, listen = failed.value.problems
    assert limits.endswith("(flag --window, environment GOSSAMER_BATCH_EVENTS)")
    assert listen.endswith("(flag --listen)")


def test_the_problems_of_all_topics_are_told_at_once(tmp_path: Path) -> None:
    file = tmp_path / "gossamer.toml"
    file.write_text(
        'k = 99\n[topics]\na = "n IN"\nb = "n INT"\nc = 3\n[topics.d]\nschema = "n '
        'INT"\nretention = "long"\n'
    )
    with pytest.raises(ConfigError) as caught:
        resolve({}, {}, str(file))
    assert [problem.partition("topic '")[2][:1] for problem in caught.value.problems] == [
        "",
        "a",
        "c",
        "d",
    ]


def test_bad_flags_and_missing_files(tmp_path: Path) -> None:
    assert "40 must be from 1 to 32" in str(run("node", "--k", "40", code=2).exception)
    assert "cannot read" in str(
        run("node", "--config", str(tmp_path / "no.toml"), code=2).exception
    )
    (tmp_path / "big.toml").write_bytes(b"#" * (1 << 20) + b"\n")
    assert "more than" in str(run("node", "--config", str(tmp_path / "big.toml"), code=2).exception)


def test_variables_that_look_like_options_are_a_warning_and_others_are_left_alone() -> None:
    done = run("config", "check", env={"GOSSAMER_LISTE": "x", "GOSSAMER_SERVICE_HOST": "10.0.0.1"})
    assert "GOSSAMER_LISTE is no option (did you mean GOSSAMER_LISTEN?)" in done.stderr
    assert "SERVICE" not in done.stderr


def test_the_example_is_a_file_that_changes_nothing(tmp_path: Path) -> None:
    text = run("config", "example").stdout
    live = "\n".join(
        line.removeprefix("# ") if " = " in line or line.startswith("# [") else line
        for line in text.splitlines()[1:]
    )
    assert set(tomllib.loads(live)) == {option.name for option in OPTIONS}
    file = tmp_path / "gossamer.toml"
    file.write_text(live)
    settings = resolve({}, {}, str(file))
    assert all(
        s.value == s.option.default for s in settings.by_name.values() if s.option.name != "topics"
    )
    file.write_text(text)
    assert all(s.source == "default" for s in resolve({}, {}, str(file)).by_name.values())


@pytest.mark.parametrize(
    "command", [["config"], ["config", "check"], ["config", "show"], ["config", "example"], ["top"]]
)
def test_help_has_examples(command: list[str]) -> None:
    assert "Examples:" in run(*command, "--help").output
