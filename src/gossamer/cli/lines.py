"""Lines of a file or a pipe as they come, for a program whose event loop must not wait for them."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import IO

CHUNK_BYTES = 64 << 10
LINE_BYTES_MAX = 8 << 20
"""A longer line is not an event. The admin socket does not take a longer one, either."""
AHEAD = 4
"""Chunks that are read before the first of them is used."""

Numbered = list[tuple[int, bytes]]
"""Lines with their numbers, counted from 1, without the blank ones."""


class LineError(ValueError):
    """The rest of the input cannot be read. The message names the line."""


async def lines_of(source: IO[bytes]) -> AsyncIterator[Numbered]:
    """The lines that have come, in groups. A thread reads, because a read from a pipe waits."""
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
            # The loop is closed, and no task wants the rest.
            return

    # The thread is a daemon, because nothing can end a waiting read, and the program must not wait
    # for it.
    threading.Thread(target=read, name="lines", daemon=True).start()
    while (some := await ready.get()) is not None:
        if isinstance(some, Exception):
            raise some
        room.release()
        yield some


def _reader(source: IO[bytes]) -> Callable[[], bytes]:
    """Return a function that reads the available bytes, at least one, or none at the end.

    It reads from the descriptor and not from the file object. The file object holds a lock while it
    waits, and that lock would make the interpreter fail when it ends.
    """
    try:
        descriptor = source.fileno()
    # This is a file object in memory.
    except OSError:
        return lambda: source.read(CHUNK_BYTES)
    return lambda: os.read(descriptor, CHUNK_BYTES)


def numbered(read: Callable[[], bytes]) -> Iterator[Numbered]:
    """The lines of the chunks, wherever the chunks are cut."""
    number, rest = 1, b""
    while chunk := read():
        # A long line comes in many chunks, and only its last chunk has a line end.
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
