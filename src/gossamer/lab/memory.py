"""Garbage collection in large runs."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collect garbage rarely.

    A fabric of thousands of nodes is millions of lasting objects, and looking through them finds no
    garbage.
    """
    before = gc.get_threshold()
    gc.set_threshold(1_000_000, 100, 1_000)
    try:
        yield
    finally:
        gc.set_threshold(*before)
