"""``since=``: the moment from which on history is wanted."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from gossamer.node.retention import RetentionError, seconds_of


def start_of(since: str | datetime | timedelta | None) -> int | None:
    """The moment in Unix microseconds; 0 is the beginning. Raises a RetentionError."""
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
