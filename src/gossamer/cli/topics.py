"""``gossamer topics``: the topics of the fabric, as a node of this machine knows them."""

from __future__ import annotations

import click
from rich.table import Table

from gossamer.cli.common import DEFAULT_ADDRESS, json_option, node_option
from gossamer.cli.plain import json_line, plain_all, plain_console


@click.command()
@node_option
@json_option
def topics(address: str | None, as_json: bool) -> int:
    """List the topics with schema, retention and advertiser, as a running node of yours knows them.

    \b
    Examples:
      gossamer topics
      gossamer topics --json      one JSON object a line
    """
    from gossamer.net import admin

    lines = admin.lines(admin.find(address, DEFAULT_ADDRESS), {"do": "topics"}, patient=True)
    if as_json:
        for line in lines:
            click.echo(json_line(line))
        return 0
    console = plain_console()
    found = [plain_all(line) for line in lines]
    if not found:
        console.print("no topic is advertised yet")
        return 0
    table = Table(box=None, pad_edge=False)
    for column in ("topic", "schema", "retention", "advertised by"):
        table.add_column(column, no_wrap=column == "advertised by")
    for one in found:
        table.add_row(one["topic"], one["schema"], one["retention"], one["advertised_by"])
        for rival in one["conflicts"]:
            table.add_row("  in conflict with", rival["schema"], "", rival["advertised_by"])
    console.print(table)
    return 0
