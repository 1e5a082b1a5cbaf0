"""A node as a service: it is started, advertised, watched and drained. ``gossamer node`` runs it.

It starts with the health endpoints. Then come the node, its topics and the admin socket, and then
systemd hears READY=1. When it stops, the node takes no new work, waits for receipts as long as it
was told, and leaves politely. Cancelling it while it drains ends it at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping

from gossamer.net import admin
from gossamer.net.dialler import is_loopback, parse_address
from gossamer.net.errors import UndeliveredError
from gossamer.net.health import Health
from gossamer.net.journal import say
from gossamer.net.node import Node
from gossamer.net.notify import notify, watchdog
from gossamer.node import SchemaConflictError

DRAINED, UNDELIVERED = 0, 1
# More than leaving takes beside the drain.
LEAVE_SECONDS = 5.0


async def serve(
    node: Node,
    stop: asyncio.Event,
    *,
    # By name: the schema and the retention.
    topics: Mapping[str, tuple[str, str]],
    drain: float,
    metrics_address: str = "",
    started: Callable[[str], None] = lambda metrics: None,
) -> int:
    """Runs the node until ``stop``.

    Returns DRAINED, or UNDELIVERED if accepted events are lost with it.
    """
    async with contextlib.AsyncExitStack() as stack:
        health = None
        if metrics_address:
            health = Health()
            await health.start(metrics_address)
            stack.push_async_callback(health.close)
        if node._join:
            say(logging.INFO, "joining", join=", ".join(node._join), wait=node._join_timeout)
        await node.start()
        stack.push_async_callback(_let_go, node)
        for topic, (schema, retention) in topics.items():
            # The other topics are served all the same. The status and the log report this one.
            with contextlib.suppress(SchemaConflictError):
                await node.advertise(topic, schema, retention=retention)
        await stack.enter_async_context(admin.offered(node.address, node.answer))
        if health is not None:
            health.serve(node)
        about = {
            "address": node.address,
            "public_address": node.public_address,
            "metrics": health.address if health else "",
        }
        say(
            logging.INFO, "started", node=f"{node.peer:016x}", incarnation=node.incarnation, **about
        )
        # For a node that listens on loopback it is said when the first link is up.
        if not node.public_address and not is_loopback(node._listen[0]):
            say(
                logging.WARNING,
                "others cannot dial this node: it listens everywhere; give it a public address",
            )
        _warn_of_open_doors(node, health.address if health else "")
        notify(READY=1, STATUS=f"node {node.peer:016x} on {node.address}")
        alive = asyncio.get_running_loop().create_task(watchdog())
        stack.callback(alive.cancel)
        started(health.address if health else "")
        await stop.wait()
        return await _drained(node, drain)
    raise AssertionError("unreachable: the stack swallows nothing")


def _warn_of_open_doors(node: Node, metrics: str) -> None:
    """Warns in the log of everything that is open to everybody, because it may have been meant
    for a try only.
    """
    if node._keys is None and not is_loopback(node._listen[0]):
        say(
            logging.WARNING,
            "this node has no keys and listens beyond loopback: "
            "everybody who reaches it takes part",
            address=node.address,
        )
    if metrics and not is_loopback(parse_address(metrics)[0]):
        say(
            logging.WARNING,
            "metrics are served beyond loopback: "
            "everybody who reaches them reads names of topics and nodes",
            address=metrics,
        )


async def _let_go(node: Node) -> None:
    """Closes the node after a failure. Once it has been closed this does nothing."""
    # It was reported already.
    with contextlib.suppress(UndeliveredError):
        await node.close(0.0)


async def _drained(node: Node, drain: float) -> int:
    unsettled = node._core.outbox.unsettled
    say(logging.INFO, "draining", unsettled=unsettled, seconds=drain)
    notify(
        STOPPING=1,
        STATUS=f"draining: {unsettled} events without a receipt",
        EXTEND_TIMEOUT_USEC=round((drain + LEAVE_SECONDS) * 1e6),
    )
    try:
        await node.close(drain)
    except UndeliveredError as error:
        say(logging.ERROR, "stopped", problem=str(error))
        return UNDELIVERED
    except asyncio.CancelledError:
        say(logging.WARNING, "stopped at once", unsettled=node._core.outbox.unsettled)
        await node.close(0.0)
        raise
    kept = node._core.outbox.unsettled
    # Kept events are in the data directory, and are published again at the next start.
    say(logging.INFO, "stopped", kept=kept)
    return DRAINED
