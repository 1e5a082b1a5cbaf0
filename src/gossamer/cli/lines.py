"""Lines of a file or a pipe as they come, for a program whose event loop must go on meanwhile."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import IO

CHUNK_BYTES = 64 << 10
LINE_BYTES_MAX = 8 << 20
"""A longer line is no event: that is the largest one that the admin socket takes, too."""
AHEAD = 4
"""Chunks that are read before the first of them is used."""

Numbered = list[tuple[int, bytes]]
"""Lines with their numbers, counted from 1; those that are blank are left out."""


class LineError(ValueError):
    """The input cannot be read on; says at which line."""


async def lines_of(source: IO[bytes]) -> AsyncIterator[Numbered]:
    """Lines, as many at a time as have come. A thread reads: a read from a pipe waits."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Queue[Numbered | Exception | None] = asyncio.Queue()
    room = threading.Semaphore(AHEAD)

    def tell(what: Numbered | Exception | None) -> None:
        loop.call_soon_threadsafe(ready.put_nowait, what)

    def read() -> None:
        try:
            try:
                for some in numbered(_reader(source)):
                    room.acquire()
                    tell(some)
                tell(None)
            except (OSError, LineError) as error:
                tell(error)
        except RuntimeError:
            return  # the loop is closed: nobody wants the rest

    # A daemon, because nothing can end a read that waits, and the program must not wait for it.
    threading.Thread(target=read, name="lines", daemon=True).start()
    while (some := await ready.get()) is not None:
        if isinstance(some, Exception):
            raise some
        room.release()
        yield some


def _reader(source: IO[bytes]) -> Callable[[], bytes]:
    """Reads what is there, at least one byte; nothing at the end.

    From the descriptor, past the file object: that holds a lock while it waits, on which the
    interpreter would fail when it ends.
    """
    try:
        descriptor = source.fileno()
    except OSError:  # a file object in memory
        return lambda: source.read(CHUNK_BYTES)
    return lambda: os.read(descriptor, CHUNK_BYTES)


def numbered(read: Callable[[], bytes]) -> Iterator[Numbered]:
    """The lines of what is read, however it is cut."""
    number, rest = 1, b""
    while chunk := read():
        # A long line comes in many chunks; only its last one has a line end to look for.
        if b"\n" not in chunk:
            rest += chunk
            _check(number, rest)
            continue
        *whole, rest = (rest + chunk).split(b"\n")
        found = []
        for line in whole:
            _check(number, line)
            if line.strip():
                found.append((number, line))
            number += 1
        if found:
            yield found
    if rest.strip():
        yield [(number, rest)]


def _check(number: int, line: bytes) -> None:
    if len(line) > LINE_BYTES_MAX:
        raise LineError(
            f"line {number}: it has more than {LINE_BYTES_MAX} bytes; write one event a line"
        )
