"""Text of peers on a terminal: it is shown, and it does nothing."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from click.testing import CliRunner

from gossamer.cli import app as entry
from gossamer.cli.app import app
from gossamer.cli.logs import Lines
from gossamer.cli.plain import json_line, plain, plain_all, plain_lines
from gossamer.cli.subscribe import _lines
from gossamer.filters import Event
from gossamer.net import admin
from gossamer.node import Gap

# A peer clears the screen, starts a line of its own, sets a colour for Rich, breaks its markup,
# runs text from right to left, and uses a control character of eight bits.
EVIL = "x\x1b[2J\r\nforged [red]y[/red] [/] :bug: \u202e \x9b31m \x7f z"
SHOWN = r"x\x1b[2J\r\nforged [red]y[/red] [/] :bug: \u202e \x9b31m \x7f z"


def is_harmless(output: str) -> bool:
    return all(one.isprintable() or one == "\n" for one in output)


def test_every_character_that_is_not_printable_is_written_out() -> None:
    assert plain(EVIL) == SHOWN
    assert plain("größe 日本 \U0001f41b") == "größe 日本 \U0001f41b"
    assert plain_lines("a\n  ^\x1b") == "a\n  ^\\x1b"
    assert plain_all({EVIL: [EVIL, 1, None, (True, EVIL)]}) == {
        SHOWN: [SHOWN, 1, None, [True, SHOWN]]
    }


def test_json_keeps_the_text_and_escapes_all_controls() -> None:
    line = json_line({"a": EVIL, "b": "\xa9 \xc2 é"})
    assert json.loads(line) == {"a": EVIL, "b": "\xa9 \xc2 é"}
    assert not set(line.decode()) & {chr(code) for code in (*range(32), *range(0x7F, 0xA0))}


ANSWERS: dict[str, list[dict[str, Any]]] = {
    "view": [
        {
            "topic": EVIL, "node": "0" * 16, "address": EVIL, "route": EVIL, "suspected": True,
            "leaves": 1,
        }
    ],
    "tree": [
        {
            "node": "0" * 16, "address": EVIL, "parent": None, "depth": 0, "children": [],
            "linked": False,
        }
    ],
    "lookup": [{"node": "0" * 16, "address": EVIL, "subscription": 1, "filter": EVIL, "hops": 2}],
    "status": [
        {
            "node": "0" * 16, "address": "here", "last_problem": EVIL, "topics": {EVIL: EVIL},
            "schema_conflicts": {EVIL: [{"schema": EVIL, "node": EVIL}]}, "disk": {"problem": EVIL},
            "durable": {EVIL: {"problem": EVIL}},
        }
    ],
}  # fmt: skip


@pytest.mark.parametrize("command", ANSWERS)
@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
def test_a_command_shows_text_of_peers_and_does_nothing_of_it(
    command: str, as_json: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "find", lambda *_: "socket")
    monkeypatch.setattr(admin, "lines", lambda *_, **__: iter(ANSWERS[command]))
    monkeypatch.setattr(admin, "statuses", lambda: ANSWERS[command])
    arguments = [command, *(["weather"] if command == "lookup" else []), *["--json"][:as_json]]
    done = CliRunner().invoke(app, arguments, standalone_mode=False, env={"COLUMNS": "400"})
    assert done.exception is None
    if as_json:
        assert [json.loads(line) for line in done.output.splitlines()] == ANSWERS[command]
    else:
        assert SHOWN in done.output
    assert is_harmless(done.output.replace("\u202e", ""))


def test_view_watch_and_top_too(monkeypatch: pytest.MonkeyPatch) -> None:
    change = {"kind": "joined", "topic": EVIL, "node": EVIL, "address": EVIL, "reason": EVIL}
    monkeypatch.setattr(admin, "find", lambda *_: "socket")
    monkeypatch.setattr(admin, "lines", lambda *_, **__: iter([change]))
    done = CliRunner().invoke(app, ["view", "--watch"], standalone_mode=False)
    assert done.exception is None
    assert is_harmless(done.output)
    assert SHOWN in done.output
    sample = {
        "node": "0", "address": EVIL, "fabric": EVIL, "uptime": 1.0, "healthy": False,
        "ready": False, "problems": [EVIL], "members": 1, "suspects": 0, "known_topics": 1,
        "subscriptions": 0,
        "blocked": 0, "outbox": {"events": 0, "bytes": 0}, "last_problem": EVIL, "bytes_in": 0,
        "bytes_out": 0, "topics": {EVIL: {"published": 0, "matched": 0, "delivered": 0}},
        "links": [{"peer": EVIL, "address": EVIL, "bytes_in": 0, "bytes_out": 0, "queued": 0}],
        "dropped": [{"what": EVIL, "reason": EVIL, "count": 1}],
        "rejected": [{"reason": EVIL, "count": 1}],
    }  # fmt: skip
    monkeypatch.setattr(admin, "ask", lambda *_: sample)
    arguments = ["top", "--count", "1", "--interval", "0.05"]
    done = CliRunner().invoke(app, arguments, standalone_mode=False)
    assert done.exception is None
    assert is_harmless(done.output)
    assert r"\x1b[2J" in done.output


def test_events_gaps_errors_and_log_lines_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    event = Event("t", 7, 1, 1, {"a": EVIL})
    for as_json in (False, True):
        [line] = _lines(event, as_json)
        assert not set(line.decode()) & {chr(code) for code in (*range(32), *range(0x7F, 0xA0))}
    _lines(Gap("t", 7, (1, 1), (1, 5), EVIL), False)
    told = capsys.readouterr().err
    assert SHOWN in told
    assert is_harmless(told)

    def fails(*_: Any, **__: Any) -> None:
        raise admin.AdminError(EVIL)

    monkeypatch.setattr(admin, "find", fails)
    with pytest.raises(SystemExit):
        entry.main(["view"])
    told = capsys.readouterr().err
    assert is_harmless(told)
    assert r"\x1b[2J" in told
    record = logging.LogRecord("gossamer", logging.WARNING, "", 0, EVIL, (), None)
    record.fields = {"peer": EVIL}
    assert is_harmless(Lines().format(record))


def test_verdicts_and_tables_of_the_pipeline_too(capsys: pytest.CaptureFixture[str]) -> None:
    from types import SimpleNamespace as Some

    from gossamer.cli import pipeline, pipeline_verdicts

    fault = Some(expected=1, delivered=0, missed=1, duplicate=0, spurious=0, late=0)
    pipeline_verdicts._print_worst(
        Some(
            per_node=[Some(node=EVIL, counts=fault)],
            per_subscription=[Some(subscription=1, node=EVIL, filter=EVIL, counts=fault)],
        )  # type: ignore[arg-type]
    )
    pipeline._print_rows([{"topic": "[/] :bug:"}])
    told = capsys.readouterr().out
    assert is_harmless(told)
    assert SHOWN in told
    assert "[/] :bug:" in told
