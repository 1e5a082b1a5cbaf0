"""What a node says of itself, as plain data: ``gossamer status`` shows it."""

from __future__ import annotations

from typing import Any

from gossamer.net.driver import Driver
from gossamer.node import NodeCore
from gossamer.trace import hex_peer


def describe(core: NodeCore, driver: Driver) -> dict[str, Any]:
    return {
        "node": hex_peer(core.peer),
        "incarnation": core.incarnation,
        "fabric": driver.fabric,
        "route": "flood",
        "links": [
            {
                "peer": hex_peer(peer),
                "address": connection.hello.address if connection.hello else "",
                "dialled": connection.dialled is not None,
                "bytes_in": connection.bytes_in,
                "bytes_out": connection.bytes_out,
            }
            for peer, connection in driver.links.items()
        ],
        "topics": {topic: schema.text for topic, schema in core.topics.schemas.items()},
        "subscriptions": [
            {"topic": s.topic.name, "filter": s.filter.text, "backlog": s.backlog} for s in core.subscriptions.values()
        ],
        "outbox": {"events": core.outbox.unsettled, "bytes": core.outbox.bytes},
        "remembered_batches": core.flood.remembered,
        "counters": dict(sorted(driver.counters.items())),
        "last_problem": driver.last_problem,
    }
