"""``gossamer top``: a live view of a running node: rates, peers, queues, drops and rejections."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gossamer.cli.common import DEFAULT_ADDRESS, INTERRUPTED, SecondsFlag, json_option, node_option
from gossamer.cli.plain import json_line, plain_all, plain_console

# The most topics, and the most peers, on the screen.
ROWS_MAX = 20
INTERVAL_MIN = 0.05
_SHOWN = (
    "node", "address", "fabric", "uptime", "healthy", "ready", "problems", "members", "suspects",
    "known_topics", "subscriptions", "blocked", "outbox", "last_problem",
)  # fmt: skip
"""The parts of a sample that are shown unchanged."""


@click.command()
@node_option
@click.option(
    "--interval",
    type=SecondsFlag(),
    default=1.0,
    show_default=True,
    help="Seconds between samples.",
)
@click.option(
    "--count",
    type=click.IntRange(1),
    help="Stop after this number of samples.  [default: run until Ctrl-C]",
)
@json_option
def top(address: str | None, interval: float, count: int | None, as_json: bool) -> int:
    """Watch a running node of yours: events a second by topic, bytes by peer, queues, drops and
    rejections.

    \b
    Examples:
      gossamer top                                  a live screen until Ctrl-C
      gossamer top --interval 5 --json              a JSON object every 5 seconds
      gossamer top --count 1 --json                 one sample, for a script
    """
    from gossamer.net import admin

    seen = _rates(admin.find(address, DEFAULT_ADDRESS), max(interval, INTERVAL_MIN), count)
    try:
        if as_json:
            for one in seen:
                click.echo(json_line(one))
        elif (console := plain_console()).is_terminal:
            with Live(
                Text("waiting for the second sample ..."),
                console=console,
                screen=count is None,
                auto_refresh=False,
            ) as live:
                for one in seen:
                    live.update(screen_of(plain_all(one)), refresh=True)
        else:
            for one in seen:
                plain_console(width=120).print(screen_of(plain_all(one)))
    except KeyboardInterrupt:
        return INTERRUPTED if count is not None else 0
    return 0


def _rates(path: Path, interval: float, count: int | None) -> Iterator[dict[str, Any]]:
    """The changes in each interval.

    Times are the node's own, so a late answer does not change a rate.
    """
    from gossamer.net import admin

    before = admin.ask(path, {"do": "sample"})
    done = 0
    due = time.monotonic()
    while count is None or done < count:
        due = max(due + interval, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))
        try:
            now = admin.ask(path, {"do": "sample"})
        except OSError as error:
            raise admin.AdminError(
                f"the node at {before['address']} does not answer any more: "
                f"{error.strerror or error}"
            ) from None
        yield compare(before, now)
        before, done = now, done + 1


def compare(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """A sample with the changes since the previous one: rates for each second, and counts of drops
    and rejections.
    """
    seconds = max(now["uptime"] - before["uptime"], 1e-6)

    def rate(a: int, b: int) -> float:
        return float(round(max(0, b - a) / seconds, 1))

    none = {"published": 0, "matched": 0, "delivered": 0}
    old = {link["peer"]: link for link in before["links"]}
    quiet = {"bytes_in": 0, "bytes_out": 0}
    return {
        **{key: now[key] for key in _SHOWN},
        "seconds": round(seconds, 3),
        "bytes_in": rate(before["bytes_in"], now["bytes_in"]),
        "bytes_out": rate(before["bytes_out"], now["bytes_out"]),
        "topics": {
            topic: {key: rate(before["topics"].get(topic, none)[key], tally[key]) for key in none}
            for topic, tally in sorted(now["topics"].items())
        },
        "links": [
            {
                "peer": link["peer"],
                "address": link["address"],
                **{key: rate(old.get(link["peer"], quiet)[key], link[key]) for key in quiet},
                "queued": link["queued"],
            }
            for link in now["links"]
        ],
        "dropped": _grown(before["dropped"], now["dropped"]),
        "rejected": _grown(before["rejected"], now["rejected"]),
    }


def _grown(before: list[dict[str, Any]], now: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Counts in all, and since the previous sample."""
    known = {(one.get("what"), one["reason"]): one["count"] for one in before}
    return [
        {**one, "new": one["count"] - known.get((one.get("what"), one["reason"]), 0)} for one in now
    ]


def screen_of(one: dict[str, Any]) -> Group:
    state = "ready" if one["ready"] else "; ".join(one["problems"])
    head = Text.assemble(
        (f"node {one['node']} at {one['address']}", "bold"),
        f"  up {_duration(one['uptime'])}  ",
        (state, "green" if one["ready"] else "red"),
    )
    counts = Text(
        f"{one['members']} members  {one['suspects']} suspects  {len(one['links'])} links  "
        f"{one['known_topics']} topics  "
        f"{one['subscriptions']} subscriptions ({one['blocked']} blocked)  "
        f"outbox {one['outbox']['events']:,} events {_size(one['outbox']['bytes'])}  "
        f"in {_size(one['bytes_in'])}/s  out {_size(one['bytes_out'])}/s"
    )
    parts: list[Any] = [head, counts, Text(), _topics(one), Text(), _links(one)]
    if one["dropped"] or one["rejected"]:
        parts += [Text(), _losses(one)]
    if one["last_problem"]:
        parts += [Text(), Text(f"last problem: {one['last_problem']}", style="yellow")]
    return Group(*parts)


def _topics(one: dict[str, Any]) -> Table:
    table = _table("topic", "published/s", "matched/s", "delivered/s")
    busy = sorted(
        one["topics"].items(), key=lambda item: -item[1]["published"] - item[1]["delivered"]
    )
    for topic, rates in busy[:ROWS_MAX]:
        table.add_row(
            topic, *(f"{rates[key]:,.1f}" for key in ("published", "matched", "delivered"))
        )
    return table


def _links(one: dict[str, Any]) -> Table:
    table = _table("peer", "address", "in/s", "out/s", "queued", words=2)
    for link in sorted(one["links"], key=lambda link: -link["bytes_in"] - link["bytes_out"])[
        :ROWS_MAX
    ]:
        traffic = (_size(link["bytes_in"]), _size(link["bytes_out"]), _size(link["queued"]))
        table.add_row(link["peer"], link["address"], *traffic)
    return table


def _losses(one: dict[str, Any]) -> Table:
    table = _table("dropped or rejected", "why", "in all", "new", words=2)
    for what in (*one["dropped"], *({"what": "message", **r} for r in one["rejected"])):
        table.add_row(
            what["what"],
            what["reason"],
            f"{what['count']:,}",
            f"{what['new']:,}",
            style="red" if what["new"] else "",
        )
    return table


def _table(*columns: str, words: int = 1) -> Table:
    table = Table(box=None, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < words else "right", no_wrap=True)
    return table


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError("unreachable")


def _duration(seconds: float) -> str:
    minutes, hours = int(seconds) // 60, int(seconds) // 3600
    return (
        f"{int(seconds)} s"
        if minutes < 1
        else f"{minutes} min"
        if hours < 1
        else f"{hours} h {minutes % 60} min"
    )
