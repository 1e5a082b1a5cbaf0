"""``gossamer keys``: a fabric's authority, and the keys of its nodes."""

from __future__ import annotations

import datetime as dt
import time
from pathlib import Path
from typing import Any

import click
import msgspec

from gossamer.cli.common import json_option

_DIRECTORY = click.Path(path_type=Path, file_okay=False)
_passphrase = click.option(
    "--passphrase-file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Its first line opens the authority's key.",
)


@click.group()
def keys() -> None:
    """Make a fabric's authority and the keys of its nodes. A node without keys cannot join.

    \b
    A fabric with keys in five commands:
      gossamer keys init authority                      once; not on a machine that runs nodes
      gossamer keys issue authority station --publish '*' --subscribe '*'
      gossamer keys issue authority reader --subscribe 'weather.*'
      gossamer node --keys authority/nodes/station --listen 0.0.0.0:7400
      gossamer subscribe weather.ch --keys authority/nodes/reader --join HOST:7400
    """


@keys.command()
@click.argument("directory", type=_DIRECTORY)
@click.option(
    "--name", default="gossamer", show_default=True, help="The fabric's name, for people to read."
)
@click.option(
    "--days",
    default=3650,
    show_default=True,
    type=click.IntRange(1, 36_500),
    help="Days until it expires.",
)
@click.option(
    "--after",
    type=_DIRECTORY,
    help="The directory of the authority that this one follows. Nodes trust both for a while.",
)
@_passphrase
@json_option
def init(
    directory: Path,
    name: str,
    days: int,
    after: Path | None,
    passphrase_file: Path | None,
    as_json: bool,
) -> int:
    """Make an authority in DIRECTORY.

    \b
    Examples:
      gossamer keys init authority
      gossamer keys init next --after authority       docs/security.md has the other steps
    """
    from gossamer.net.authority import create

    authority = create(
        directory, name=name, days=days, passphrase=_first_line(passphrase_file), after=after
    )
    until = authority.certificate.not_valid_after_utc
    if as_json:
        _json({"authority": str(directory), "name": name, "not_after": int(until.timestamp())})
    else:
        click.echo(
            f"authority {name!r} made in {directory}, good until {until:%Y-%m-%d}; "
            "its key, authority.key, is the fabric"
        )
        click.echo(
            f"next, keys for a node: gossamer keys issue {directory} NAME "
            "--publish PATTERN --subscribe PATTERN ('*' is every topic)"
        )
    return 0


@keys.command()
@click.argument("directory", type=_DIRECTORY)
@click.argument("name")
@click.option(
    "--out", type=_DIRECTORY, help="Where the node's keys go.  [default: DIRECTORY/nodes/NAME]"
)
@click.option(
    "--publish",
    multiple=True,
    metavar="PATTERN",
    help="Topics that the node may publish to ('*': all); may be given several times, or as '' for "
    "none.  [default: none; with --renew as before]",
)
@click.option(
    "--subscribe",
    multiple=True,
    metavar="PATTERN",
    help="Topics that the node may subscribe to, in the same form.",
)
@click.option(
    "--days",
    default=365.0,
    show_default=True,
    type=click.FloatRange(0, 36_500, min_open=True),
    help="Days until it expires.",
)
@click.option(
    "--renew",
    is_flag=True,
    help="Give more time or other permissions to the present key. The node keeps its identity.",
)
@click.option(
    "--request",
    type=click.File("rb"),
    help="Sign this request (gossamer keys request) instead of making a key.",
)
@_passphrase
@json_option
def issue(
    directory: Path,
    name: str,
    out: Path | None,
    publish: tuple[str, ...],
    subscribe: tuple[str, ...],
    days: float,
    renew: bool,
    request: Any,
    passphrase_file: Path | None,
    as_json: bool,
) -> int:
    """Make keys for the node NAME, signed by the authority in DIRECTORY.

    A node may publish and subscribe to the topics that are given here, and to no others. A node
    without any permission is a member that relays the events of others.

    \b
    Examples:
      gossamer keys issue authority station --publish '*' --subscribe '*'       all topics
      gossamer keys issue authority meter7 --publish 'meters.*' --publish alarms --days 90
      gossamer keys issue authority station --renew       with its present permissions
      gossamer keys issue authority far --request far.csr --out for-far --subscribe '*'
    """
    from gossamer.net.authority import Authority
    from gossamer.net.keys import NODES
    from gossamer.trace import hex_peer

    if renew and request is not None:
        raise click.UsageError(
            "--renew is for a key that is here, --request for one that is elsewhere: "
            "give one of them"
        )
    where = out or directory / NODES / name
    identity = Authority(directory, _first_line(passphrase_file)).issue(
        name, where, publish=_patterns(publish), subscribe=_patterns(subscribe), days=days,
        renew=renew, request=request.read() if request is not None else None,
    )  # fmt: skip
    if as_json:
        _json({"keys": str(where), **_plain(identity)})
    else:
        click.echo(
            f"node {hex_peer(identity.peer)} ({name}): keys in {where}, "
            f"good until {_date(identity.not_after)}"
        )
        click.echo(
            f"may publish {_words(identity.publish)}; may subscribe {_words(identity.subscribe)}"
        )
        if not identity.publish and not identity.subscribe:
            click.echo(
                "this node may use no topic; allow topics with --publish PATTERN and "
                "--subscribe PATTERN ('*' is every topic)"
            )
        if request is not None:
            click.echo("copy authority.crt, node.crt and revoked.crl to where node.key is")
        else:
            click.echo(f"use them with: gossamer node --keys {where}")
    return 0


@keys.command()
@click.argument("name")
@click.option("--out", type=_DIRECTORY, required=True, help="Where the key and the request go.")
@json_option
def request(name: str, out: Path, as_json: bool) -> int:
    """Make a key on the machine that will use it, and a request for the authority to sign. The key
    never travels.

    \b
    Example:
      gossamer keys request far --out keys              then, where the authority is:
      gossamer keys issue authority far --request node.csr --out for-far --subscribe 'weather.*'
    """
    from gossamer.net.authority import make_request

    make_request(name, out)
    if as_json:
        _json({"request": str(out / "node.csr")})
    else:
        click.echo(
            f"send {out / 'node.csr'} to the machine that has the authority, "
            f"and put the certificates that come back into {out}"
        )
    return 0


@keys.command()
@click.argument("directory", type=_DIRECTORY)
@click.argument("who")
@click.option(
    "--to",
    multiple=True,
    type=_DIRECTORY,
    help="A node's key directory to put the new list into; may be given several times.",
)
@_passphrase
@json_option
def revoke(
    directory: Path, who: str, to: tuple[Path, ...], passphrase_file: Path | None, as_json: bool
) -> int:
    """Revoke a node's certificates. WHO is its name, its id or a serial number.

    The signed list of revoked certificates is DIRECTORY/revoked.crl. Give it to one running node
    (copy it into the node's key directory, or use --to). That node passes it on to all others, and
    every link to a revoked node ends within seconds.

    \b
    Examples:
      gossamer keys revoke authority meter7
      gossamer keys revoke authority meter7 --to authority/nodes/station
    """
    from gossamer.net.authority import Authority

    authority = Authority(directory, _first_line(passphrase_file))
    fresh = authority.revoke(who)
    authority.hand_out(to)
    assert authority.revoked is not None
    if as_json:
        _json(
            {
                "revoked": [one.serial for one in fresh],
                "number": authority.revoked.number,
                "in_all": len(authority.revoked.serials),
            }
        )
    else:
        click.echo(
            f"{len(fresh)} certificate(s) of {who} revoked"
            if fresh
            else f"{who} had no valid certificate left"
        )
        if not to:
            _say_where(directory)
    return 0


@keys.command()
@click.argument("directory", type=_DIRECTORY)
@click.option(
    "--to",
    multiple=True,
    type=_DIRECTORY,
    help="A node's key directory to put the new list into; may be given several times.",
)
@_passphrase
@json_option
def refresh(
    directory: Path, to: tuple[Path, ...], passphrase_file: Path | None, as_json: bool
) -> int:
    """Sign the list of revoked certificates anew, with the time of now.

    Nodes with --revocations-max-age need a list that is not older. Give the list to one running
    node, which passes it on to all others.

    \b
    Example:
      gossamer keys refresh authority --to authority/nodes/station
    """
    from gossamer.net.authority import Authority

    authority = Authority(directory, _first_line(passphrase_file))
    authority.sign_list(authority.listed)
    authority.hand_out(to)
    assert authority.revoked is not None
    if as_json:
        _json({"number": authority.revoked.number, "in_all": len(authority.revoked.serials)})
    else:
        click.echo(f"a list of {len(authority.revoked.serials)} revoked certificates is signed")
        if not to:
            _say_where(directory)
    return 0


@keys.command()
@click.argument("directory", type=_DIRECTORY)
@json_option
def retire(directory: Path, as_json: bool) -> int:
    """End the change of an authority: trust the one in DIRECTORY alone.

    Every node must have a certificate of this authority before. Afterwards copy authority.crt into
    the key directories of all nodes.

    \b
    Example:
      gossamer keys retire next
    """
    from gossamer.net.authority import Authority

    others = Authority(directory, sign=False).retire()
    if as_json:
        _json({"authority": str(directory), "retired": others})
    elif others:
        click.echo(
            f"the authority in {directory} is trusted alone; copy {directory / 'authority.crt'} "
            "into the key directory of every node"
        )
    else:
        click.echo(f"the authority in {directory} was trusted alone before")
    return 0


@keys.command()
@click.argument("directory", type=_DIRECTORY)
@json_option
def show(directory: Path, as_json: bool) -> int:
    """Show the certificates that an authority has issued, or describe a node's keys.

    \b
    Examples:
      gossamer keys show authority
      gossamer keys show authority/nodes/station --json
    """
    from gossamer.net.keys import ISSUED

    return (
        _show_authority(directory, as_json)
        if (directory / ISSUED).exists()
        else _show_node(directory, as_json)
    )


def _show_authority(directory: Path, as_json: bool) -> int:
    from rich.console import Console
    from rich.table import Table

    from gossamer.net.authority import Authority

    authority = Authority(directory, sign=False)
    revoked = authority.revoked.serials if authority.revoked is not None else frozenset()
    now = time.time()
    lines = [
        {
            "state": "revoked"
            if int(one.serial, 16) in revoked
            else "expired"
            if one.not_after <= now
            else "good"
        }
        | msgspec.to_builtins(one)
        for one in authority.issued
    ]
    if as_json:
        for line in lines:
            _json(line)
        return 0
    until = authority.certificate.not_valid_after_utc
    console = Console()
    console.print(
        f"authority {authority.name!r}, good until {until:%Y-%m-%d}, {len(lines)} issued",
        highlight=False,
    )
    table = Table(box=None, pad_edge=False)
    for column in ("name", "node", "state", "until", "publish", "subscribe"):
        table.add_column(column, overflow="fold")
    for line in lines:
        table.add_row(
            line["name"], line["peer"], line["state"], _date(line["not_after"]),
            _words(line["publish"]), _words(line["subscribe"]),
        )  # fmt: skip
    console.print(table)
    return 0


def _show_node(directory: Path, as_json: bool) -> int:
    from gossamer.net.keys import Keys
    from gossamer.trace import hex_peer

    found = Keys(directory, any_time=True)
    identity = found.identity
    state = found.refusal(identity) or "good"
    if as_json:
        _json(
            {
                "keys": str(directory),
                "state": state,
                **_plain(identity),
                "revoked": found.revoked,
                "revocations_signed": found.listed_at,
            }
        )
    else:
        click.echo(
            f"node {hex_peer(identity.peer)} ({identity.name}), {state}, "
            f"until {_date(identity.not_after)}"
        )
        click.echo(
            f"may publish {_words(identity.publish)}; may subscribe {_words(identity.subscribe)}"
        )
        signed = found.listed_at
        when = f", by a list of {_date(int(signed))}" if signed is not None else ""
        click.echo(f"knows of {found.revoked} revoked certificates{when}")
    return 0


def _plain(identity: Any) -> dict[str, Any]:
    from gossamer.trace import hex_peer

    return {
        "node": hex_peer(identity.peer), "name": identity.name, "serial": f"{identity.serial:x}",
        "not_after": identity.not_after, "generation": identity.generation,
        "publish": identity.publish, "subscribe": identity.subscribe,
    }  # fmt: skip


def _patterns(given: tuple[str, ...]) -> tuple[str, ...] | None:
    """The patterns of an option. '' gives none, and None means that the option was not given."""
    return tuple(one for one in given if one) if given else None


def _say_where(directory: Path) -> None:
    click.echo(
        f"copy {directory / 'revoked.crl'} into the key directory of any running node, "
        "which passes it on"
    )


def _words(patterns: Any) -> str:
    return ", ".join(patterns) or "nothing"


def _date(seconds: int) -> str:
    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%d %H:%M UTC")


def _first_line(path: Path | None) -> bytes | None:
    if path is None:
        return None
    with path.open("rb") as file:
        line = file.readline().rstrip(b"\r\n")
    if not line:
        raise click.UsageError(f"the first line of {path} is empty; it should be the passphrase")
    return line


def _json(what: dict[str, Any]) -> None:
    click.echo(msgspec.json.encode(what).decode())
