"""A node's metrics for Prometheus. They need the extra ``metrics``.

They contain everything that is dropped or rejected, by reason. docs/operations.md lists the names
with their meanings.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import gossamer
from gossamer.net.errors import NodeError
from gossamer.net.sample import sample

if TYPE_CHECKING:
    from gossamer.net.node import Node

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# The name of a gauge, the key of the sample, and the help text.
GAUGES = {
    "gossamer_uptime_seconds": ("uptime", "Since the node started, by the monotonic clock"),
    "gossamer_healthy": ("healthy", "1 if /healthz says so"),
    "gossamer_ready": ("ready", "1 if /readyz says so"),
    "gossamer_members": ("members", "Nodes in this node's view, itself included"),
    "gossamer_suspects": ("suspects", "Members that do not answer"),
    "gossamer_view_pairs": ("view_pairs", "Pairs of node and topic in the view"),
    "gossamer_topics": ("known_topics", "Topics that this node knows"),
    "gossamer_schema_conflicts": (
        "schema_conflicts",
        "Topics with schemas that do not agree, on which nobody can publish",
    ),
    "gossamer_subscriptions": ("subscriptions", "Subscriptions of this node"),
    "gossamer_blocked_subscriptions": (
        "blocked",
        "Subscriptions that hold publishers back, because they take nothing",
    ),
    "gossamer_remembered_batches": (
        "remembered_batches",
        "Batches that are remembered, to know them again",
    ),
}
TOPIC_COUNTERS = {
    "gossamer_events_published": ("published", "Events of this node whose receipts are complete"),
    "gossamer_events_matched": ("matched", "Subscriptions that took them, by their receipts"),
    "gossamer_events_discarded": (
        "dropped",
        "Subscriptions that had discarded them when they reported, by their receipts",
    ),
    "gossamer_events_delivered": ("delivered", "Events handed to subscriptions of this node"),
}


class MissingMetricsError(NodeError):
    """The extra is not installed."""


class Metrics:
    """A registry of one node. Raises a MissingMetricsError without the extra."""

    def __init__(self) -> None:
        try:
            from prometheus_client import CollectorRegistry, ProcessCollector
        except ImportError:
            raise MissingMetricsError(
                "metrics need the extra 'metrics' (prometheus-client): "
                "pip install 'gossamer[metrics]'"
            ) from None
        self._registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self._registry)
        self._registry.register(self)
        # It is None until the node has started.
        self.node: Node | None = None

    def text(self) -> bytes:
        from prometheus_client import generate_latest

        return generate_latest(self._registry)

    def collect(self) -> Iterator[Any]:
        """The registry calls this."""
        if self.node is not None:
            yield from _families(sample(self.node))


def _families(now: dict[str, Any]) -> Iterator[Any]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    info = GaugeMetricFamily(
        "gossamer_info", "Which node this is", labels=["version", "node", "address", "fabric"]
    )
    info.add_metric([gossamer.__version__, now["node"], now["address"], now["fabric"]], 1)
    yield info
    for name, (key, about) in GAUGES.items():
        yield GaugeMetricFamily(name, about, value=float(now[key]))
    expires = GaugeMetricFamily(
        "gossamer_certificate_expires_seconds", "When this node's certificate expires, Unix time"
    )
    if now["certificate_expires"] is not None:
        expires.add_metric([], now["certificate_expires"])
    yield expires
    signed = GaugeMetricFamily(
        "gossamer_revocations_signed_seconds",
        "When this node's list of revoked certificates was signed, Unix time",
    )
    if now["revocations_signed"] is not None:
        signed.add_metric([], now["revocations_signed"])
    yield signed
    yield GaugeMetricFamily("gossamer_links", "Open links to other nodes", value=len(now["links"]))
    queued = sum(link["queued"] for link in now["links"])
    yield GaugeMetricFamily("gossamer_queued_bytes", "Bytes that wait for sockets", value=queued)
    yield GaugeMetricFamily(
        "gossamer_outbox_events", "Accepted events without a receipt", value=now["outbox"]["events"]
    )
    yield GaugeMetricFamily(
        "gossamer_outbox_bytes", "The same in bytes", value=now["outbox"]["bytes"]
    )
    for name, (key, about) in TOPIC_COUNTERS.items():
        family = CounterMetricFamily(name, about, labels=["topic"])
        for topic, tally in now["topics"].items():
            family.add_metric([topic], tally[key])
        yield family
    traffic = CounterMetricFamily("gossamer_bytes", "Bytes on links", labels=["direction"])
    traffic.add_metric(["in"], now["bytes_in"])
    traffic.add_metric(["out"], now["bytes_out"])
    yield traffic
    dropped = CounterMetricFamily(
        "gossamer_dropped", "Things that were dropped, and why", labels=["what", "reason"]
    )
    for one in now["dropped"]:
        dropped.add_metric([one["what"], one["reason"]], one["count"])
    yield dropped
    rejected = CounterMetricFamily(
        "gossamer_rejected", "Messages of peers that were rejected, and why", labels=["reason"]
    )
    for one in now["rejected"]:
        rejected.add_metric([one["reason"]], one["count"])
    yield rejected
    for name, key, about in (
        ("gossamer_connections_closed", "closed", "Connections that ended, by reason"),
        ("gossamer_counter", "counters", "Everything else that the node counts"),
        ("gossamer_interest", "interest", "What the interest plane counts"),
    ):
        family = CounterMetricFamily(name, about, labels=["reason" if key == "closed" else "name"])
        for label, count in now[key].items():
            family.add_metric([label.replace(" ", "_") if key != "closed" else label], count)
        yield family
