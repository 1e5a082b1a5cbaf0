"""``gossamer subscribe``: print events as they come."""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Self

import click
import msgspec

from gossamer.cli.common import Seconds, Stop, first_of, join_option, json_option, node_options, run_until_signal

if TYPE_CHECKING:
    from gossamer.net.subscription import Subscription

LINES_MAX = 1000  # written at a time


@click.command()
@click.argument("topic")
@click.argument("filter", default="")
@join_option
@click.option("--limit", type=click.IntRange(1), help="Stop after this many events.")
@click.option("--timeout", type=Seconds(), help="Stop after this many seconds; exit code 1 if --limit was not reached.")
@click.option(
    "--slow",
    type=click.Choice(["block", "drop_oldest"]),
    default="block",
    show_default=True,
    help="When output is too slow.",
)
@click.option(
    "--route",
    type=click.Choice(["flood", "skiplist", "tree"]),
    default="flood",
    show_default=True,
    help="How events come here: to every node, by the filter's order, or along one tree.",
)
@node_options
@json_option
def subscribe(
    topic: str,
    filter: str,
    join: tuple[str, ...],
    limit: int | None,
    timeout: float | None,
    slow: str,
    route: str,
    trace_dir: Path | None,
    fabric: str,
    keys: Path | None,
    wait: float,
    as_json: bool,
) -> int:
    """Print the events of TOPIC for which FILTER, the text of a SQL WHERE clause, is TRUE.

    \b
    Examples:
      gossamer subscribe weather
      gossamer subscribe weather "country = 'CH' AND temp > 30"
      gossamer subscribe weather "city LIKE 'Gen%'" --limit 1 --json
      gossamer subscribe weather "temp > 30" --route tree
    """

    async def main(stop: Stop) -> int:
        import gossamer
        from gossamer.net import admin

        running = gossamer.Node(join=join, trace_dir=trace_dir, fabric=fabric, keys=keys, join_timeout=wait)
        async with running as node, node.subscribe(topic, filter, timeout=wait, slow=slow, route=route) as events:
            server, path = await admin.serve(node.address, node.answer)
            click.echo(f"subscribed to {topic} WHERE {node.check_filter(topic, filter)}; Ctrl-C ends", err=True)
            try:
                finished = await first_of(_print(events, limit, as_json), stop, timeout)
            finally:
                server.close()
                path.unlink(missing_ok=True)
            return 0 if finished or limit is None or stop.is_set() else 1

    return run_until_signal(main)


async def _print(events: Subscription, limit: int | None, as_json: bool) -> None:
    """Print until the limit. Writing happens in a thread: a reader that stalls must not stop the node."""
    with Output() as output:
        lines: list[bytes] = []
        count = 0
        async for event in events:
            if as_json:
                head = {"topic": event.topic, "publisher": f"{event.publisher:016x}", "incarnation": event.incarnation}
                lines.append(msgspec.json.encode({**head, "sequence": event.sequence, "values": event.values}))
            else:
                lines.append(msgspec.json.encode(event.values))
            count += 1
            if not events.backlog or count == limit or len(lines) >= LINES_MAX:
                await output.write(b"\n".join(lines) + b"\n")
                lines.clear()
            if count == limit:
                return


class Output:
    """Standard output, written by a thread that may be left behind if the reader never reads again."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._work: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="output", daemon=True)

    def __enter__(self) -> Self:
        sys.stdout.flush()
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._work.put(None)

    async def write(self, data: bytes) -> None:
        done = self._loop.create_future()
        self._work.put((data, done))
        await done

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            data, done = work
            try:
                while data:
                    data = data[os.write(1, data) :]
                self._tell(done, None)
            except OSError as error:
                self._tell(done, error)

    def _tell(self, done: asyncio.Future[None], error: OSError | None) -> None:
        def finish() -> None:
            if not done.done():
                done.set_result(None) if error is None else done.set_exception(error)

        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(finish)
