"""``gossamer view``: the nodes that want each topic, as a node of this machine knows it."""

from __future__ import annotations

from typing import Any

import click
from rich.table import Table

from gossamer.cli.common import DEFAULT_ADDRESS, INTERRUPTED, json_option, node_option
from gossamer.cli.plain import json_line, plain_all, plain_console


@click.command()
@click.argument("topic", required=False)
@node_option
@click.option(
    "--watch",
    is_flag=True,
    help="Continue until Ctrl-C: print the nodes that join, leave, or return after a leave.",
)
@json_option
def view(topic: str | None, address: str | None, watch: bool, as_json: bool) -> int:
    """Show which nodes want which topics, as a running node of yours knows it.

    \b
    Examples:
      gossamer view                      every topic, and the nodes that want it
      gossamer view weather --json       the nodes that subscribe to weather, one JSON object a line
      gossamer view weather --watch      and every change from now on
    """
    from gossamer.net import admin

    path = admin.find(address, DEFAULT_ADDRESS)
    request = {"do": "view", "topic": topic, "watch": watch}
    try:
        if as_json:
            for line in admin.lines(path, request, patient=True):
                click.echo(json_line(line))
        else:
            _show(map(plain_all, admin.lines(path, request, patient=True)), watch, topic)
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _show(lines: Any, watch: bool, topic: str | None) -> None:
    console = plain_console()
    if watch:
        for line in lines:
            kind = line.get("kind", "wants")
            colour = {"joined": "green", "left": "red", "returned": "yellow"}.get(kind, "")
            why = f"  ({line['reason']})" if line.get("reason", "news") != "news" else ""
            console.print(
                f"{kind:<9} {line['topic']}  {line['node']}  {line['address']}{why}",
                style=colour,
                soft_wrap=True,
            )
        return
    found = list(lines)
    if not found:
        console.print(f"no node wants {topic}" if topic else "no node wants any topic yet")
        return
    table = Table(box=None, pad_edge=False)
    for column in ("topic", "node", "address", "route"):
        table.add_column(column, no_wrap=column != "topic")
    table.add_column("leaves", justify="right")
    for one in found:
        mark = " (suspected)" if one["suspected"] else ""
        table.add_row(
            one["topic"], one["node"], one["address"] + mark, one["route"], str(one["leaves"])
        )
    console.print(table)
