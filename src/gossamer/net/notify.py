"""Tells systemd the state of a service (``Type=notify``).

It sends a datagram to the socket that systemd names. Without one, nothing happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket


def notify(**state: object) -> bool:
    """For example ``notify(READY=1, STATUS="12 members")``. It says whether systemd was there."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path:
        return False
    text = "\n".join(f"{name}={value}" for name, value in state.items())
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.connect("\0" + path[1:] if path.startswith("@") else path)
        sock.send(text.encode())
        return True
    return False


async def watchdog() -> None:
    """Tells systemd that the event loop turns, twice as often as it asks for (``WatchdogSec=``)."""
    try:
        period = int(os.environ.get("WATCHDOG_USEC", "0")) / 2e6
    except ValueError:
        return
    while period > 0 and notify(WATCHDOG=1):
        await asyncio.sleep(period)
