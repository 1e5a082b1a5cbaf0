"""``gossamer status``: the nodes of this user on this machine."""

from __future__ import annotations

from typing import Any

import click
from rich.table import Table

from gossamer.cli.common import json_option
from gossamer.cli.plain import json_line, plain_all, plain_console

WIDTH_MAX = 1000


@click.command()
@click.option("--node", "address", metavar="HOST:PORT", help="Only the node that listens there.")
@json_option
def status(address: str | None, as_json: bool) -> int:
    """Show the nodes that run on this machine: members, links, topics, subscriptions, outbox,
    traffic, problems.

    \b
    Examples:
      gossamer status
      gossamer status --node 127.0.0.1:7400 --json
    """
    from gossamer.net.admin import AdminError, statuses

    found = [one for one in statuses() if address in (None, one["address"])]
    if as_json:
        for one in found:
            click.echo(json_line(one))
    elif found:
        console = plain_console()
        found = plain_all(found)
        table = _table(found)
        # In a narrow terminal, or in the 80 columns of a pipe, headings and numbers would be cut
        # off.
        console.width = max(
            console.width,
            console.measure(table, options=console.options.update(max_width=WIDTH_MAX)).maximum,
        )
        console.print(table)
        for one in found:
            if one.get("conflict"):
                text = (
                    "another process uses this node's identity; "
                    "are its keys or its data directory used twice?"
                )
                console.print(f"{one['address']}: {text}", style="red", soft_wrap=True)
            for topic, schemas in one.get("schema_conflicts", {}).items():
                said = " and ".join(
                    f"({each['schema']}) by node {each['node']}" for each in schemas
                )
                remedy = f'say which one holds: gossamer advertise {topic} "SCHEMA" --replace'
                what = f"the schemas of topic {topic!r} do not agree: {said}"
                console.print(
                    f"{one['address']}: {what}; {remedy}",
                    style="red",
                    soft_wrap=True,
                )
            if problem := (one.get("disk") or {}).get("problem"):
                console.print(f"{one['address']}: {problem}", style="red", soft_wrap=True)
            for name, tap in one.get("durable", {}).items():
                if tap.get("problem"):
                    text = f"durable subscription {name!r} was cut off: {tap['problem']}"
                    console.print(f"{one['address']}: {text}", style="red", soft_wrap=True)
            if one.get("last_problem"):
                console.print(
                    f"last problem of {one['address']}: {one['last_problem']}",
                    style="yellow",
                    soft_wrap=True,
                )
    if not found:
        where = f"at {address}" if address else "of yours on this machine"
        raise AdminError(f"no node {where} is running; start one with: gossamer node")
    return 0


def _table(found: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("node", "address"):
        table.add_column(column, no_wrap=True)
    for column in (
        "members",
        "links",
        "suspects",
        "view",
        "topics",
        "subs",
        "outbox",
        "kB in",
        "kB out",
        "dups",
        "rej",
        "drop",
    ):
        table.add_column(column, justify="right")
    for one in found:
        counters = one.get("counters", {})
        table.add_row(
            str(one["node"]),
            str(one["address"]),
            str(one.get("members", "")),
            str(len(one.get("links", ()))),
            str(len(one.get("suspects", ()))),
            str(one.get("view", {}).get("version", "")),
            str(len(one.get("topics", ()))),
            str(len(one.get("subscriptions", ()))),
            str(one.get("outbox", {}).get("events", 0)),
            str(one.get("bytes_in", 0) // 1000),
            str(one.get("bytes_out", 0) // 1000),
            str(counters.get("duplicate_events_in", 0)),
            str(counters.get("rejected", 0)),
            str(counters.get("dropped", 0)),
        )
    return table
