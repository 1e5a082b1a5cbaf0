"""Composition: subscriptions, publications with receipts, the outbox. Sans-IO; ``net`` and ``sim`` are its two drivers."""

from gossamer.node.core import NodeConfig, NodeCore, Route, RouteError, SlowPolicy, Ticket, WindowFullError
from gossamer.node.topics import TopicError

__all__ = ["NodeConfig", "NodeCore", "Route", "RouteError", "SlowPolicy", "Ticket", "TopicError", "WindowFullError"]
