"""The event loop to use."""

from __future__ import annotations

import asyncio
from typing import Any


def run(main: Any) -> Any:
    """``asyncio.run``, on uvloop where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    return uvloop.run(main)
