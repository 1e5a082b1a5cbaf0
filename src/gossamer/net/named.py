"""Options that users give as text. The error for an unknown one lists the known ones."""

from __future__ import annotations

from typing import Any

from gossamer.net.errors import NodeError
from gossamer.node import Route, RouteError, SlowPolicy
from gossamer.node.bounds import SECONDS_MAX, check_seconds


def check_timeout(name: str, value: Any, low: float = 0.0, high: float = SECONDS_MAX) -> None:
    """Raises a NodeError unless the value is a number of seconds within these bounds."""
    try:
        check_seconds(name, value, low, high)
    except ValueError as error:
        raise NodeError(str(error)) from None


def check_kinds(**options: tuple[Any, type]) -> None:
    """Raises a NodeError unless each value is of its type."""
    for name, (value, kind) in options.items():
        if not isinstance(value, kind):
            wanted = {bool: "True or False", str: "text"}[kind]
            raise NodeError(f"{name} is {value!r}; it must be {wanted}")


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
