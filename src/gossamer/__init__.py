"""Gossamer: brokerless publish/subscribe with SQL filters, and a Spark pipeline that agrees.

``gossamer.Node`` is the fabric for Python programs. ``gossamer.filters`` has schemas and filters by
themselves. Names are loaded when first used, so that importing a part does not load the rest.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "Node": "gossamer.net.node",
    "NodeError": "gossamer.net.node",
    "JoinError": "gossamer.net.node",
    "SlowSubscriberError": "gossamer.net.node",
    "UndeliveredError": "gossamer.net.node",
    "BarrierError": "gossamer.net.errors",
    "IdentityError": "gossamer.net.errors",
    "KeysError": "gossamer.net.errors",
    "StorageError": "gossamer.net.errors",
    "NotPermittedError": "gossamer.node.rights",
    "PeerLimits": "gossamer.net.limits",
    "ViewLagError": "gossamer.net.view",
    "Change": "gossamer.net.view",
    "Interested": "gossamer.net.view",
    "BatchDone": "gossamer.net.publishing",
    "BatchReceipt": "gossamer.net.publishing",
    "Done": "gossamer.net.node",
    "Receipt": "gossamer.net.node",
    "Subscription": "gossamer.net.node",
    "run": "gossamer.net.loop",
    "NodeConfig": "gossamer.node",
    "TopicError": "gossamer.node",
    "SchemaConflictError": "gossamer.node",
    "Gap": "gossamer.node",
    "TapError": "gossamer.node",
    "RetentionError": "gossamer.node",
    "RouteError": "gossamer.node",
    "Event": "gossamer.filters",
    "Filter": "gossamer.filters",
    "Schema": "gossamer.filters",
    "FilterError": "gossamer.filters",
    "SchemaError": "gossamer.filters",
    "EventError": "gossamer.filters",
}

if TYPE_CHECKING:
    from gossamer.filters import Event, EventError, Filter, FilterError, Schema, SchemaError
    from gossamer.net.errors import BarrierError, IdentityError, KeysError, StorageError
    from gossamer.net.limits import PeerLimits
    from gossamer.net.loop import run
    from gossamer.net.node import (
        Done,
        JoinError,
        Node,
        NodeError,
        Receipt,
        SlowSubscriberError,
        Subscription,
        UndeliveredError,
    )
    from gossamer.net.publishing import BatchDone, BatchReceipt
    from gossamer.net.view import Change, Interested, ViewLagError
    from gossamer.node import (
        Gap,
        NodeConfig,
        RetentionError,
        RouteError,
        SchemaConflictError,
        TapError,
        TopicError,
    )
    from gossamer.node.rights import NotPermittedError

__all__ = [
    "BarrierError",
    "BatchDone",
    "BatchReceipt",
    "Change",
    "Done",
    "Event",
    "EventError",
    "Filter",
    "FilterError",
    "Gap",
    "IdentityError",
    "Interested",
    "JoinError",
    "KeysError",
    "Node",
    "NodeConfig",
    "NodeError",
    "NotPermittedError",
    "PeerLimits",
    "Receipt",
    "RetentionError",
    "RouteError",
    "Schema",
    "SchemaConflictError",
    "SchemaError",
    "SlowSubscriberError",
    "StorageError",
    "Subscription",
    "TapError",
    "TopicError",
    "UndeliveredError",
    "ViewLagError",
    "__version__",
    "run",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'gossamer' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value
