"""One node without input or output: subscriptions, publications with receipts, the outbox. ``net``
and ``sim`` have its two drivers.
"""

from gossamer.node.core import (
    NodeConfig,
    NodeCore,
    Route,
    RouteError,
    SlowPolicy,
    Ticket,
    WindowFullError,
)
from gossamer.node.durable import Gap, TapError
from gossamer.node.follow import Wish
from gossamer.node.retention import Retention, RetentionError
from gossamer.node.topics import SchemaConflictError, TopicError

__all__ = [
    "Gap",
    "NodeConfig",
    "NodeCore",
    "Retention",
    "RetentionError",
    "Route",
    "RouteError",
    "SchemaConflictError",
    "SlowPolicy",
    "TapError",
    "Ticket",
    "TopicError",
    "WindowFullError",
    "Wish",
]
