"""``gossamer subscribe``: print events as they come."""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click

from gossamer.cli.common import (
    SecondsFlag,
    Stop,
    first_of,
    join_option,
    json_option,
    node_options,
    run_until_signal,
)
from gossamer.cli.plain import json_line, plain
from gossamer.filters import Event
from gossamer.node import Gap

if TYPE_CHECKING:
    from gossamer.net.subscription import Subscription

# The most lines that are written at a time.
LINES_MAX = 1000


@click.command()
@click.argument("topic")
@click.argument("filter", default="")
@join_option
@click.option("--limit", type=click.IntRange(1), help="Stop after this many events.")
@click.option(
    "--timeout",
    type=SecondsFlag(),
    help="Stop after this many seconds; exit code 1 if --limit was not reached.",
)
@click.option(
    "--slow",
    type=click.Choice(["block", "drop_oldest"]),
    default="block",
    show_default=True,
    help="What to do when output is too slow.",
)
@click.option(
    "--route",
    type=click.Choice(["auto", "direct", "skiplist", "tree", "flood"]),
    default="auto",
    show_default=True,
    help="How events come here: straight from publishers, by the filter's order, along one tree, "
    "or to every node.",
)
@click.option("--name", default="", help="A durable subscription of this name; needs --data-dir.")
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where a durable subscription keeps its events and position.",
)
@click.option(
    "--ack/--no-ack",
    default=True,
    show_default=True,
    help="With --name: acknowledge printed events; otherwise they come again next time.",
)
@click.option(
    "--since",
    help="History first: 'beginning', a duration such as 10m, or a time (2026-05-01T12:00:00).",
)
@click.option(
    "--ordered",
    is_flag=True,
    help="Each publisher's events in the order in which it published them.",
)
@click.option(
    "--group", default="", help="Share the topic: one subscription of the group gets each event."
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
    name: str,
    data_dir: Path | None,
    ack: bool,
    since: str | None,
    ordered: bool,
    group: str,
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
      gossamer subscribe weather --since 10m --ordered
      gossamer subscribe weather --name archive --data-dir ./archive >> weather.jsonl
      gossamer subscribe weather --group workers

    \b
    A subscription with --name, --since or --ordered reports lost events on standard error.
    With --json they are also a line {"gap": ...}.
    """
    if name and data_dir is None:
        raise click.UsageError(
            "a durable subscription (--name) needs --data-dir DIRECTORY "
            "to keep its events and position in"
        )
    if not name and (data_dir is not None or not ack):
        useless = "--data-dir" if data_dir is not None else "--no-ack"
        raise click.UsageError(
            f"{useless} is for a durable subscription: "
            "give it a name as well (--name NAME), or leave it out"
        )

    async def main(stop: Stop) -> int:
        import gossamer
        from gossamer.net import admin

        running = gossamer.Node(
            join=join,
            data_dir=data_dir,
            trace_dir=trace_dir,
            fabric=fabric,
            keys=keys,
            join_timeout=wait,
        )
        wish: dict[str, Any] = {"name": name, "since": since, "ordered": ordered, "group": group}
        async with (
            running as node,
            node.subscribe(topic, filter, timeout=wait, slow=slow, route=route, **wish) as events,
            admin.offered(node.address, node.answer),
        ):
            click.echo(
                f"subscribed to {topic} WHERE {node.check_filter(topic, filter)}; Ctrl-C ends",
                err=True,
            )
            finished = await first_of(
                _print(events, limit, as_json, ack and bool(name)), stop, timeout
            )
            if finished or limit is None or stop.is_set():
                return 0
            click.echo(
                f"gossamer: fewer than {limit} events (--limit) came within {timeout:g} s", err=True
            )
            return 1

    return run_until_signal(main)


async def _print(events: Subscription, limit: int | None, as_json: bool, ack: bool) -> None:
    """Print until the limit.

    A thread writes, because a reader that stalls must not stop the node.
    """
    with Output() as output:
        lines: list[bytes] = []
        count = 0
        async for event in events:
            lines += _lines(event, as_json)
            count += isinstance(event, Event)
            if not events.backlog or count == limit or len(lines) >= LINES_MAX:
                await output.write(b"".join(line + b"\n" for line in lines))
                lines.clear()
                if ack:
                    # An event is acknowledged only after it was printed.
                    await events.ack(event, through=True)
            if count == limit:
                return


def _lines(event: Event | Gap, as_json: bool) -> list[bytes]:
    head: dict[str, Any] = {"topic": event.topic, "publisher": f"{event.publisher:016x}"}
    if isinstance(event, Gap):
        when = f", published until {event.until.isoformat()}" if event.until else ""
        click.echo(
            f"gap: events of {event.publisher:016x} on {event.topic} may be lost{when}: "
            f"{plain(event.reason)}",
            err=True,
        )
        gap = {**head, "after": event.after, "before": event.before, "reason": event.reason}
        gap["until"] = event.until
        return [json_line({"gap": gap})] if as_json else []
    if not as_json:
        return [json_line(event.values)]
    head |= {"incarnation": event.incarnation, "sequence": event.sequence, "values": event.values}
    return [json_line(head | ({"offset": event.offset} if event.offset else {}))]


class Output:
    """Standard output, written by a thread that may be left behind if the reader never reads
    again.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._work: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]] | None] = (
            queue.SimpleQueue()
        )
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

        # The loop is closed, and no task waits any more.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(finish)
