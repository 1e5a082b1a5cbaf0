"""``gossamer keys`` as users type it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from gossamer.cli.app import app
from gossamer.net.errors import KeysError
from gossamer.net.keys import Keys

GENEVA = '{"city": "Geneva", "temp": 31}'


def run(*arguments: object, code: int = 0) -> Result:
    done = CliRunner().invoke(app, ["keys", *map(str, arguments)], standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    assert done.return_value == code
    return done


def test_the_life_of_a_fabrics_keys(tmp_path: Path) -> None:
    authority = tmp_path / "authority"
    assert "authority.key, is the fabric" in run("init", authority).output
    issued = run("issue", authority, "reader", "--subscribe", "weather.*", "--days", 30).output
    assert "may publish nothing; may subscribe weather.*" in issued
    made = json.loads(run("issue", authority, "station", "--publish", "*", "--json").output)
    assert (made["publish"], made["subscribe"]) == (["*"], [])
    keys = Path(made["keys"])
    assert made["node"] == json.loads(run("show", keys, "--json").output)["node"]
    renewed = json.loads(
        run("issue", authority, "station", "--renew", "--days", 700, "--json").output
    )
    assert renewed["node"] == made["node"]
    revoked = json.loads(run("revoke", authority, "reader", "--to", keys, "--json").output)
    assert revoked["in_all"] == 1
    shown = run("show", keys).output
    assert re.search(r"knows of 1 revoked certificates, by a list of \d{4}-\d\d-\d\d ", shown)
    states = {
        (line["name"], line["state"])
        for line in map(json.loads, run("show", authority, "--json").output.splitlines())
    }
    assert states == {("reader", "revoked"), ("station", "good")}
    assert "reader had no valid certificate left" in run("revoke", authority, "reader").output
    assert re.search(r"reader\s+\w{16}\s+revoked", run("show", authority).output)


def test_directories_that_are_none_are_told_with_the_right_one(tmp_path: Path) -> None:
    authority, nowhere = tmp_path / "authority", tmp_path / "nowhere"
    run("init", authority)
    keys = json.loads(run("issue", authority, "station", "--json").output)["keys"]
    with pytest.raises(
        KeysError,
        match=rf"is the authority's directory; the keys of its nodes are in {authority}/nodes/NAME",
    ):
        Keys(authority)
    no_file = (
        rf"{nowhere} is no authority's directory \({nowhere}/authority.crt: No such "
        rf"file or directory\); make one with"
    )
    with pytest.raises(KeysError, match=no_file):
        run("issue", nowhere, "station")
    (Path(keys) / "node.crt").write_text("junk")
    with pytest.raises(
        KeysError,
        match=rf"cannot read the certificates in {keys}: {keys}/node.crt is not a "
        rf"certificate; make them with",
    ):
        Keys(Path(keys))
    (Path(keys) / "node.crt").unlink()
    with pytest.raises(
        KeysError,
        match=rf"certificates in {keys}: {keys}/node.crt: No such file or directory; make "
        rf"them with",
    ):
        Keys(Path(keys))


def test_permissions_that_are_not_given_allow_nothing(tmp_path: Path) -> None:
    authority = tmp_path / "authority"
    run("init", authority)
    said = run("issue", authority, "relay").output
    assert "may publish nothing; may subscribe nothing" in said
    assert "--publish PATTERN and --subscribe PATTERN ('*' is every topic)" in said
    identity = Keys(authority / "nodes" / "relay").identity
    assert (identity.publish, identity.subscribe) == ((), ())
    run("issue", authority, "relay", "--renew", "--subscribe", "*")
    identity = Keys(authority / "nodes" / "relay").identity
    assert (identity.publish, identity.subscribe) == ((), ("*",))


@pytest.mark.parametrize("option", ["--publish", "--subscribe"])
def test_a_comma_in_a_pattern_is_an_error_that_says_how_to_give_two(
    tmp_path: Path, option: str
) -> None:
    authority = tmp_path / "authority"
    run("init", authority)
    remedy = re.escape(f"give each one by itself: {option} 'a.*' {option} 'b.*'")
    with pytest.raises(KeysError, match=remedy):
        run("issue", authority, "station", option, "a.*, b.*")
    assert not (authority / "nodes").exists()
    run("issue", authority, "station", option, "a.*", option, "b.*")
    identity = Keys(authority / "nodes" / "station").identity
    assert (identity.publish or identity.subscribe) == ("a.*", "b.*")


def test_more_time_is_no_more_permissions(tmp_path: Path) -> None:
    authority = tmp_path / "authority"
    run("init", authority)
    run("issue", authority, "meter", "--publish", "meters.*")

    def renewed(*how: str) -> tuple[list[str], list[str]]:
        made = json.loads(run("issue", authority, "meter", "--renew", *how, "--json").output)
        return made["publish"], made["subscribe"]

    assert renewed("--days", "700") == (["meters.*"], [])
    assert renewed("--publish", "more.*") == (["more.*"], [])
    assert renewed("--subscribe", "*") == (["more.*"], ["*"])
    assert renewed("--publish", "") == ([], ["*"])


def test_a_key_that_was_revoked_is_not_renewed(tmp_path: Path) -> None:
    authority, far = tmp_path / "authority", tmp_path / "far"
    run("init", authority)
    run("issue", authority, "meter")
    (first,) = [json.loads(line) for line in run("show", authority, "--json").output.splitlines()]
    run("issue", authority, "meter", "--renew", "--publish", "meters.*")
    # This revokes the previous certificate, which allowed more.
    run("revoke", authority, first["serial"])
    run("issue", authority, "meter", "--renew")
    run("revoke", authority, "meter")
    with pytest.raises(
        KeysError,
        match=r"'meter' was revoked; make a new one: gossamer keys issue .* meter --out DIR",
    ):
        run("issue", authority, "meter", "--renew")
    run("request", "far", "--out", far)
    run("issue", authority, "far", "--request", far / "node.csr", "--out", tmp_path / "back")
    run("revoke", authority, "far")
    with pytest.raises(KeysError, match="'far' was revoked"):
        run("issue", authority, "far", "--request", far / "node.csr", "--out", tmp_path / "again")
    run("issue", authority, "meter", "--out", tmp_path / "new")


def test_a_key_that_never_travels(tmp_path: Path) -> None:
    run("init", tmp_path / "authority")
    run("request", "far", "--out", tmp_path / "far")
    said = run(
        "issue",
        tmp_path / "authority",
        "far",
        "--request",
        tmp_path / "far" / "node.csr",
        "--out",
        tmp_path / "back",
    ).output
    assert "copy authority.crt, node.crt and revoked.crl to where node.key is" in said
    assert not (tmp_path / "back" / "node.key").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("init", "authority"), "has an authority already"),
        (("issue", "authority", "a/b"), "is not a name"),
        (("issue", "nowhere", "a"), "gossamer keys init"),
        (("issue", "authority", "a", "--renew"), "make it with: gossamer keys issue"),
        (("revoke", "authority", "nobody"), "nothing was issued here for 'nobody'"),
        (
            ("issue", "authority", "a", *[f"--publish={'x' * 200}{n}" for n in range(12)]),
            "use fewer patterns",
        ),
        (("show", "."), "gossamer keys issue"),
    ],
)
def test_misuse_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    run("init", "authority")
    with pytest.raises(KeysError, match=message):
        run(*arguments)
    assert not (tmp_path / "authority" / "nodes").exists()


def test_either_renew_or_request(tmp_path: Path) -> None:
    (tmp_path / "x.csr").write_bytes(b"")
    with pytest.raises(click.UsageError, match="give one of them"):
        run("issue", tmp_path, "a", "--renew", "--request", tmp_path / "x.csr")


@pytest.mark.live
@pytest.mark.slow
def test_the_five_commands_of_the_guide(tmp_path: Path) -> None:
    """Processes with keys deliver.

    A process without keys is refused, and its error gives the reason.
    """
    (tmp_path / "run").mkdir(mode=0o700)
    env = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path / "run")}
    env.pop("GOSSAMER_KEYS", None)

    def start(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "gossamer", *arguments, "--json"]
        return subprocess.Popen(
            command,
            env=env,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    run("init", tmp_path / "authority")
    for name in ("station", "reader", "writer"):
        run("issue", tmp_path / "authority", name, "--publish", "*", "--subscribe", "*")
    keys = {name: f"authority/nodes/{name}" for name in ("station", "reader", "writer")}
    node = start(
        "node",
        "--keys",
        keys["station"],
        "--listen",
        "127.0.0.1:0",
        "--topic",
        "weather=city STRING, temp INT",
    )
    try:
        assert node.stdout is not None
        address = json.loads(node.stdout.readline())["address"]
        reader = start(
            "subscribe",
            "weather",
            "temp > 30",
            "--keys",
            keys["reader"],
            "--join",
            address,
            "--limit",
            "1",
        )
        assert reader.stderr is not None
        assert "temp > 30" in reader.stderr.readline()
        outsider = start("publish", "weather", GENEVA, "--join", address, "--wait", "2")
        _, said = outsider.communicate(timeout=60)
        assert outsider.returncode == 2
        assert "keys" in said
        writer = start("publish", "weather", GENEVA, "--keys", keys["writer"], "--join", address)
        receipt, said = writer.communicate(timeout=60)
        assert writer.returncode == 0, said
        assert json.loads(receipt.splitlines()[0])["matched"] == 1
        event, said = reader.communicate(timeout=60)
        assert json.loads(event.splitlines()[0])["values"]["city"] == "Geneva", said
    finally:
        node.send_signal(signal.SIGTERM)
        node.communicate(timeout=60)
