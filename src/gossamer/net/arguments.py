"""The arguments of a node's methods: checks, and texts that name an option or a moment."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

from gossamer.net.errors import NodeError
from gossamer.node import Route, RouteError, SlowPolicy
from gossamer.node.bounds import SECONDS_MAX, check_seconds
from gossamer.node.retention import RetentionError, seconds_of


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


def start_of(since: str | datetime | timedelta | None) -> int | None:
    """The moment from which on history is wanted, in Unix microseconds; 0 is the beginning.

    Raises a RetentionError.
    """
    if since is None:
        return None
    if isinstance(since, datetime):
        # As in filters, a time without a zone is in UTC.
        moment = since if since.tzinfo is not None else since.replace(tzinfo=UTC)
        return max(1, int(moment.timestamp() * 1_000_000))
    if isinstance(since, timedelta) and since >= timedelta(0):
        return _ago(since // timedelta(microseconds=1))
    if not isinstance(since, str):
        raise _unreadable(since)
    if since.strip().lower() == "beginning":
        return 0
    try:
        return _ago(int(seconds_of(since) * 1_000_000))
    except RetentionError:
        pass
    try:
        return start_of(datetime.fromisoformat(since.strip()))
    except ValueError:
        raise _unreadable(since) from None


def _ago(micros: int) -> int:
    return max(1, time.time_ns() // 1000 - micros)


def _unreadable(since: object) -> RetentionError:
    return RetentionError(
        f"cannot read since={since!r}; "
        "write 'beginning', a duration (30s, 10m, 1h, 7d, or a timedelta) "
        "or a time (2026-05-01T12:00:00, or a datetime)"
    )
