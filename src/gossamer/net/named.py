"""What users say by a name: one that is unknown is an error that lists those that are."""

from __future__ import annotations

from gossamer.net.errors import NodeError
from gossamer.node import Route, RouteError, SlowPolicy


def route_of(route: Route | str) -> Route:
    try:
        return Route(route)
    except ValueError:
        raise RouteError(f"unknown route {route!r}; known: {', '.join(Route)}") from None


def policy_of(slow: SlowPolicy | str) -> SlowPolicy:
    try:
        return SlowPolicy(slow)
    except ValueError:
        raise NodeError(f"unknown slow={slow!r}; known: {', '.join(SlowPolicy)}") from None
