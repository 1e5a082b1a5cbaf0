"""The state of a node as plain data, which ``gossamer status`` shows."""

from __future__ import annotations

from typing import Any

from gossamer.filters.loops import native
from gossamer.machine import Peer
from gossamer.net import memory
from gossamer.net.driver import Driver
from gossamer.node import NodeCore
from gossamer.node.local import LocalSubscription
from gossamer.node.tree import Drawn
from gossamer.overlay.skiplist.search import Found
from gossamer.trace import hex_peer


def _membership(core: NodeCore) -> dict[str, Any]:
    interest = core.interest
    if interest is None:
        return {}
    view = interest.view
    return {
        "members": len(view.members),
        "neighbours": [hex_peer(peer) for peer in interest.neighbours],
        "suspects": [
            {
                "peer": hex_peer(peer),
                "by": [hex_peer(by) for by in suspect.by],
                "mine": suspect.mine,
            }
            for peer, suspect in interest.suspects.items()
        ],
        "view": {
            "version": view.version,
            "digest": hex_peer(view.digest),
            "pairs": view.pairs,
            "remembered_deaths": len(view.tombs),
        },
        "life": interest.record.incarnation,
        "conflict": interest.conflict,
        "strain": interest.strain,
        "interest": dict(sorted(interest.counters.items())),
    }


def describe_topics(core: NodeCore) -> list[dict[str, Any]]:
    """The topics with their advertisers, by name."""
    topics = core.topics
    found: list[dict[str, Any]] = []
    for topic, schema in sorted(topics.schemas.items()):
        [(_, origin), *rivals] = topics.rivals(topic)
        told = topics.retention(topic)
        kept = topics.retentions.get(topic)
        found.append(
            {
                "topic": topic,
                "schema": schema.text,
                "advertised_by": hex_peer(origin),
                "retention": told.text if told is not None else "",
                # This node itself may retain less (retention_max).
                "retained_here": kept.text if kept is not None else "",
                "conflicts": [
                    {"schema": text, "advertised_by": hex_peer(rival)} for text, rival in rivals
                ],
            }
        )
    return found


def describe_tree(drawn: list[Drawn]) -> list[dict[str, Any]]:
    """The tree as plain data, from the root down."""
    by_peer = {one.peer: one for one in drawn}
    found: list[dict[str, Any]] = []
    level = [(one.peer, 0) for one in drawn if one.parent is None]
    while level:
        peer, depth = level.pop()
        one = by_peer[peer]
        found.append(
            {
                "node": hex_peer(peer),
                "address": one.address,
                "parent": hex_peer(one.parent) if one.parent is not None else None,
                "depth": depth,
                "children": [hex_peer(child) for child in one.children],
                "linked": one.linked,
            }
        )
        level += [(child, depth + 1) for child in reversed(one.children)]
    return found


def describe_found(core: NodeCore, found: Found) -> list[dict[str, Any]]:
    """The subscriptions that a look-up found, by node."""
    members = core.interest.view.members if core.interest is not None else {}
    return [
        {
            "node": hex_peer(Peer(peer)),
            "address": members[Peer(peer)].record.address if peer in members else "",
            "subscription": number,
            "filter": text,
            "hops": found.hops,
        }
        for peer, number, text in found.subscriptions
    ]


def _keys(driver: Driver) -> dict[str, Any] | None:
    keys, rights = driver.keys, driver.rights
    if keys is None or rights is None:
        return None
    own = keys.identity
    return {
        "name": own.name,
        "not_after": own.not_after,
        "generation": own.generation,
        "publish": own.publish,
        "subscribe": own.subscribe,
        "revoked": {
            "certificates": keys.revoked,
            "lists": [
                {
                    "authority": f"{mark:016x}",
                    "number": one.number,
                    "signed_at": int(one.signed_at),
                    "certificates": len(one.serials),
                }
                for mark, one in keys.lists.items()
            ],
        },
        "refused": rights.refused,
    }


def describe_subscription(subscription: LocalSubscription) -> dict[str, Any]:
    follow = subscription.follow
    return {
        "topic": subscription.topic.name,
        "filter": subscription.filter.text,
        "route": subscription.route.value,
        "group": subscription.group,
        "in_force": subscription.in_force,
        "state": subscription.state.value,
        "backlog": subscription.backlog,
        **(follow.about() if follow is not None else {}),
    }


def describe(core: NodeCore, driver: Driver) -> dict[str, Any]:
    return {
        "node": hex_peer(core.peer),
        "incarnation": core.incarnation,
        "compiled": native is not None,
        "fabric": driver.fabric,
        **_membership(core),
        "links": [
            {
                "peer": hex_peer(peer),
                "neighbour": core.interest is not None and peer in core.interest.neighbours,
                "address": connection.hello.address if connection.hello else "",
                "dialled": connection.dialled is not None,
                "queued": connection.queued,
                "name": connection.identity.name if connection.identity is not None else None,
                "bytes_in": connection.traffic[0],
                "bytes_out": connection.traffic[1],
                "shared_in": connection.shared[0],
                "shared_out": connection.shared[1],
            }
            for peer, connection in driver.links.items()
        ],
        "schema_conflicts": {
            topic: [
                {"schema": text, "node": hex_peer(origin)}
                for text, origin in core.topics.rivals(topic)
            ]
            for topic in core.topics.conflicts
        },
        "topics": {topic: schema.text for topic, schema in core.topics.schemas.items()},
        "subscriptions": [describe_subscription(s) for s in core.subscriptions.values()],
        "skiplist": core.skiplist.about() if core.skiplist is not None else {},
        "direct": core.direct.about() if core.direct is not None else {},
        "tree": core.tree.about() if core.tree is not None else {},
        "retention": {
            topic: {
                "keeps": rule.text,
                **core.retained.about().get(topic, {"batches": 0, "bytes": 0}),
            }
            for topic, rule in core.topics.retentions.items()
        },
        "durable": {
            tap.name: {
                "topic": tap.about.topic,
                "filter": tap.about.filter,
                "offset": tap.next - 1,
                "acked": tap.acked,
                "in_use": tap.number > 0,
                "problem": tap.problem,
            }
            for tap in core.follows.taps.values()
        },
        "outbox": {"events": core.outbox.unsettled, "bytes": core.outbox.bytes},
        "remembered_batches": core.flood.remembered,
        "bytes_in": sum(connection.traffic[0] for connection in driver.links.values())
        + driver.closed_bytes_in,
        "bytes_out": sum(connection.traffic[1] for connection in driver.links.values())
        + driver.closed_bytes_out,
        "tally": driver.tally.plain(),
        "keys": _keys(driver),
        "counters": dict(sorted((driver.counters | memory.counted()).items())),
        "last_problem": driver.last_problem,
    }
