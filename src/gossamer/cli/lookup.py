"""``gossamer lookup``: the subscriptions that would take an event, asked of the topic's skip
list.
"""

from __future__ import annotations

import click
import msgspec
from rich.table import Table

from gossamer.cli.common import DEFAULT_ADDRESS, INTERRUPTED, json_option, node_option
from gossamer.cli.plain import json_line, plain_all, plain_console


@click.command()
@click.argument("topic")
@click.argument("event", required=False)
@node_option
@json_option
def lookup(topic: str, event: str | None, address: str | None, as_json: bool) -> int:
    """Show which subscriptions to TOPIC with route "skiplist" would take EVENT, a JSON object.
    Without EVENT, show all of them.

    Nothing is published. The question walks the list as an event would, in O(log N) hops.

    \b
    Examples:
      gossamer lookup weather '{"country": "CH", "temp": 31}'
      gossamer lookup weather --json
    """
    from gossamer.net import admin

    asked = None
    if event is not None:
        try:
            asked = msgspec.json.decode(event, type=dict)
        except msgspec.DecodeError as error:
            raise click.UsageError(
                f"EVENT must be a JSON object, like '{{\"temp\": 31}}': {error}"
            ) from None
    path = admin.find(address, DEFAULT_ADDRESS)
    try:
        found = list(
            admin.lines(path, {"do": "lookup", "topic": topic, "event": asked}, patient=True)
        )
    except KeyboardInterrupt:
        return INTERRUPTED
    if as_json:
        for one in found:
            click.echo(json_line(one))
        return 0
    console = plain_console()
    if not found:
        console.print(
            "no subscription with route skiplist would take it"
            if asked
            else f"the list of {topic} is empty"
        )
        return 0
    table = Table(box=None, pad_edge=False)
    for column in ("node", "address", "filter"):
        table.add_column(column, no_wrap=column != "filter")
    table.add_column("hops", justify="right")
    for one in plain_all(found):
        table.add_row(one["node"], one["address"], one["filter"], str(one["hops"]))
    console.print(table)
    return 0
