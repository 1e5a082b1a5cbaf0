"""``gossamer tree``: the dispatch tree, drawn from a running node."""

from __future__ import annotations

from typing import Any

import click
from rich.text import Text
from rich.tree import Tree

from gossamer.cli.common import DEFAULT_ADDRESS, INTERRUPTED, json_option, node_option
from gossamer.cli.plain import json_line, plain_all, plain_console


@click.command()
@node_option
@json_option
def tree(address: str | None, as_json: bool) -> int:
    """Draw the tree over all nodes that serves subscriptions with route "tree", as a running node
    of yours knows it.

    Every node knows the whole tree, because the members imply it. It knows only of its own links
    whether they are up.

    \b
    Examples:
      gossamer tree
      gossamer tree --node 127.0.0.1:7400 --json      one JSON object for each node, parents first
    """
    from gossamer.net import admin

    path = admin.find(address, DEFAULT_ADDRESS)
    try:
        found = list(admin.lines(path, {"do": "tree"}, patient=True))
    except KeyboardInterrupt:
        return INTERRUPTED
    if as_json:
        for one in found:
            click.echo(json_line(one))
    else:
        _draw(plain_all(found))
    return 0


def _draw(found: list[dict[str, Any]]) -> None:
    branches: dict[str, Tree] = {}
    console = plain_console()
    for one in found:
        label = Text.assemble(one["address"] or "(no address)", "  ", (one["node"], "dim"))
        if one["linked"] is False:
            label.append("  (not linked yet)", "yellow")
        above = branches.get(one["parent"] or "")
        branches[one["node"]] = above.add(label) if above is not None else Tree(label)
    for one in found:
        if one["parent"] is None:
            console.print(branches[one["node"]])
    depth = max((one["depth"] for one in found), default=0)
    degree = max((len(one["children"]) + (one["parent"] is not None) for one in found), default=0)
    console.print(
        f"{len(found)} nodes, depth {depth}, degree at most {degree}", style="dim", highlight=False
    )
