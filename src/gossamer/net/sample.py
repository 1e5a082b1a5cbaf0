"""The state of a node at this moment, as plain data.

/metrics, ``gossamer top`` and the health checks read it, so it is cheap. Unlike ``status`` it does
not list the subscriptions, because there may be a million of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gossamer.net import memory
from gossamer.net.errors import failed_disk
from gossamer.trace import hex_peer

if TYPE_CHECKING:
    from gossamer.net.node import Node

# The prefix of the counters of connections that ended, by reason.
CLOSED = "closed: "


def unwell(node: Node) -> list[str]:
    """Why this node should be restarted. The list is empty if all is well."""
    problems = []
    keys = node._driver.keys
    refusal = keys.refusal(keys.identity) if keys is not None else ""
    if refusal:
        problems.append(
            f"this node's certificate is {refusal}; "
            "renew it: gossamer keys issue AUTHORITY NAME --renew"
        )
    if node._interest.conflict:
        problems.append(
            "another process uses this node's identity; "
            "are its keys or its data directory used twice?"
        )
    return problems


def unready(node: Node) -> list[str]:
    """Why this node should get no work now. The list is empty if it is ready."""
    if node._refuses:
        return ["draining"]
    problems = unwell(node)
    # A restart would not help a failed disk.
    if node._disk is not None and node._disk.failed is not None:
        problems.append(failed_disk(node._data_dir, node._disk.failed))
    if node._driver.keys is not None and node._driver.guard.is_stale(node._driver.keys.identity):
        problems.append(node._driver.guard.stale())
    if not node._interest.is_synced(node._driver.now()):
        problems.append("joining: this node does not know yet all that the fabric knows")
    return problems


def sample(node: Node) -> dict[str, Any]:
    core, driver, interest = node._core, node._driver, node._interest
    counters = driver.counters
    # In Unix time.
    expires = float(driver.keys.identity.not_after) if driver.keys is not None else None
    links = [
        {
            "peer": hex_peer(peer),
            "address": connection.hello.address if connection.hello else "",
            "bytes_in": connection.traffic[0],
            "bytes_out": connection.traffic[1],
            "queued": connection.queued,
            "shared_in": connection.shared[0],
            "shared_out": connection.shared[1],
        }
        for peer, connection in driver.links.items()
    ]
    sick, waits = unwell(node), unready(node)
    return {
        "node": hex_peer(node.peer),
        "address": node.address,
        "fabric": driver.fabric,
        "incarnation": node.incarnation,
        "uptime": driver.now() / 1e6,
        "healthy": not sick,
        "ready": not waits,
        "problems": list(dict.fromkeys([*sick, *waits])),
        "certificate_expires": expires,
        "revocations_signed": driver.keys.listed_at if driver.keys is not None else None,
        "members": len(interest.view.members),
        "suspects": len(interest.suspects),
        "view_pairs": interest.view.pairs,
        "links": links,
        "known_topics": len(core.topics.schemas),
        "schema_conflicts": len(core.topics.conflicts),
        "subscriptions": len(core.subscriptions),
        "blocked": len(core.local.blocked),
        "outbox": {"events": core.outbox.unsettled, "bytes": core.outbox.bytes},
        "remembered_batches": core.flood.remembered,
        "bytes_in": sum(connection.traffic[0] for connection in driver.connections)
        + driver.closed_bytes_in,
        "bytes_out": sum(connection.traffic[1] for connection in driver.connections)
        + driver.closed_bytes_out,
        **driver.tally.plain(),
        "closed": {
            name[len(CLOSED) :]: n for name, n in counters.items() if name.startswith(CLOSED)
        },
        "counters": {name: n for name, n in counters.items() if not name.startswith(CLOSED)}
        | memory.counted(),
        "interest": dict(interest.counters),
        "last_problem": driver.last_problem,
    }
