"""The address at which others reach a node, and whether they can."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gossamer.net.node import Node


def bound(server: asyncio.Server) -> tuple[str, str]:
    """The address that the server listens on, as text, and its host alone."""
    host, port = server.sockets[0].getsockname()[:2]
    return (f"[{host}]:{port}" if ":" in host else f"{host}:{port}"), host


def withdraw(node: Node) -> None:
    """Withdraws the node's address.

    A link goes to another host. There an address on loopback would be that host's own, and nobody
    could dial this node by it. So the others are told that there is no address, and subscriptions
    take a route that needs none (node/reach.py).
    """
    node._announces_loopback, node.public_address, node._driver.address = False, "", ""
    node._core.routing.withdraw(node._driver.now())
    node._journal.say(
        logging.WARNING,
        "others cannot dial this node: it listens on loopback",
        listens=node.address,
    )
