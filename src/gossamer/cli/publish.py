"""``gossamer publish``: publish events from arguments, a file or standard input."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import click
import msgspec
from click.core import ParameterSource

import gossamer
from gossamer.cli.common import (
    INTERRUPTED,
    Stop,
    join_option,
    json_option,
    node_options,
    run_until_signal,
)
from gossamer.cli.lines import LineError, lines_of
from gossamer.filters import event_of

# The most receipts that are held at a time.
RECEIPTS_MAX = 10_000
# How long an interrupted command waits for receipts.
INTERRUPTED_SECONDS = 10.0


@click.command()
@click.argument("topic")
@click.argument("events", nargs=-1, metavar="[JSON]...")
@click.option(
    "--file",
    "source",
    type=click.File("rb"),
    help="JSON lines, one event each; - is standard input.",
)
@click.option(
    "--via",
    metavar="HOST:PORT",
    help="Publish through this running node of yours (gossamer status). It stays, so it retains "
    "events as the topic says.",
)
@join_option
@node_options
@json_option
@click.pass_context
def publish(
    context: click.Context,
    topic: str,
    events: tuple[str, ...],
    source: IO[bytes] | None,
    via: str | None,
    join: tuple[str, ...],
    trace_dir: Path | None,
    fabric: str,
    keys: Path | None,
    wait: float,
    as_json: bool,
) -> int:
    """Publish events, given as JSON objects, and wait for their receipts.

    \b
    Examples:
      gossamer publish weather '{"country": "CH", "city": "Geneva", "temp": 31}'
      gossamer publish weather --file events.jsonl
      tail -f events.jsonl | gossamer publish weather --file -
      gossamer publish weather --file events.jsonl --via 127.0.0.1:7400

    \b
    TIMESTAMP and DATE values are ISO 8601 strings, BINARY values are base64.
    Lines of a pipe are published as they come.
    Ctrl-C and SIGTERM end the command after the outstanding receipts.
    """
    if not events and source is None:
        raise click.UsageError("nothing to publish: give events as JSON objects, or --file")
    if via is not None:
        for name in ("join", "trace_dir", "fabric", "keys"):
            if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                flag = "--" + name.replace("_", "-")
                raise click.UsageError(
                    "--via publishes through a node that is in the fabric already: "
                    f"leave {flag} out"
                )
        return _through(via, topic, _texts(events, source), wait, as_json)

    async def main(stop: Stop) -> int:
        sent = Sent(as_json)
        try:
            async with gossamer.Node(
                join=join, trace_dir=trace_dir, fabric=fabric, keys=keys, join_timeout=wait
            ) as node:
                schema = gossamer.Schema.parse(await node.topic(topic, wait))
                _warn(topic, node.status()["retention"].get(topic))

                async def accept(place: str, text: bytes) -> None:
                    try:
                        sent.receipts.append(await node.publish(topic, event_of(schema, text)))
                    except gossamer.EventError as error:
                        raise gossamer.EventError(f"{place}: {error}") from None
                    if len(sent.receipts) >= RECEIPTS_MAX:
                        await sent.settle()

                settling: asyncio.Task[None] | None = None
                try:
                    for place, text in _texts(events, None):
                        await accept(place, text)
                    if source is not None:
                        async for some in lines_of(source):
                            for number, text in some:
                                await accept(f"line {number}", text)
                            # Receipts are reported as they come, while the command waits for the
                            # next line.
                            if settling is None or settling.done():
                                settling = asyncio.create_task(sent.settle())
                except asyncio.CancelledError:
                    await sent.settle(INTERRUPTED_SECONDS)
                    raise
                except (gossamer.EventError, LineError, gossamer.NodeError, gossamer.TopicError):
                    # The events that were published are reported first.
                    await sent.settle()
                    raise
                else:
                    await sent.settle()
                finally:
                    if settling is not None:
                        settling.cancel()
                        await asyncio.gather(settling, return_exceptions=True)
        except asyncio.CancelledError:
            sent.summary("interrupted: ")
            return INTERRUPTED
        except (gossamer.EventError, LineError) as error:
            sent.summary("before the error: ")
            raise gossamer.EventError(str(error)) from None
        except (gossamer.NodeError, gossamer.TopicError):
            sent.summary("before the error: ")
            raise
        sent.summary()
        return 0

    return run_until_signal(main)


def _warn(topic: str, retained: dict[str, Any] | None) -> None:
    if retained is not None:
        click.echo(
            f"gossamer: publishers of {topic!r} keep {retained['keeps']} for later subscribers, "
            "but this publisher is gone when the command ends; "
            "publish through a node that stays: --via HOST:PORT",
            err=True,
        )


def _through(
    via: str, topic: str, texts: Iterator[tuple[str, bytes]], wait: float, as_json: bool
) -> int:
    """Publish through a node that runs here, by its admin socket."""
    from gossamer.net import admin

    # The places are those of events that were sent and not answered.
    sent, places = Sent(as_json), deque[str]()
    refused: list[str] = []

    def lines() -> Iterator[bytes]:
        for place, text in texts:
            places.append(place)
            # A line break can only stand between values, because a JSON string has none.
            yield (text.strip().replace(b"\r", b" ").replace(b"\n", b" "))

    def heard(reply: dict[str, Any]) -> None:
        if "refused" in reply:
            refused.append(f"{places[0]}: {reply['why']}")
        else:
            places.popleft()
            sent.count(reply)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    # SIGTERM acts like Ctrl-C.
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        admin.send(admin.find(via), {"do": "publish", "topic": topic, "wait": wait}, lines(), heard)
    except KeyboardInterrupt:
        sent.summary("interrupted: ")
        return INTERRUPTED
    except admin.AdminError:
        sent.summary("before the error: ")
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
    if refused:
        sent.summary("before the error: ")
        raise gossamer.EventError(refused[0])
    if places:
        sent.summary("before the error: ")
        raise admin.AdminError(
            f"the node at {via} ended before it had all receipts; "
            "is it still there? gossamer status"
        )
    sent.summary()
    return 0


class Sent:
    """The published events, and the sums of their receipts."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self.receipts: deque[gossamer.Receipt] = deque()
        self.published = self.matched = self.dropped = self.unmatched = 0
        # One task at a time reports receipts, in their order.
        self._turn = asyncio.Lock()

    async def settle(self, seconds: float | None = None) -> None:
        """Report the receipts of published events as they come, for at most ``seconds``."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds), self._turn:
                while self.receipts:
                    done = await self.receipts[0]
                    self.receipts.popleft()
                    self.count(
                        {
                            "sequence": done.sequence,
                            "matched": done.matched,
                            "dropped": done.dropped,
                            "publisher": f"{done.publisher:016x}",
                        }
                    )
                # The reader of a pipe sees them at once.
                sys.stdout.flush()

    def count(self, done: dict[str, Any]) -> None:
        self.published += 1
        self.matched += done["matched"]
        self.dropped += done["dropped"]
        self.unmatched += not done["matched"]
        if self.as_json:
            sys.stdout.write(msgspec.json.encode(done).decode() + "\n")

    def summary(self, why: str = "") -> None:
        waiting = len(self.receipts)
        if waiting:
            events = "1 event has" if waiting == 1 else f"{waiting} events have"
            click.echo(f"gossamer: {events} no receipt yet, and may not have arrived", err=True)
        if self.as_json or (why and not self.published):
            return
        events = "event" if self.published == 1 else "events"
        subscriptions = "subscription" if self.matched == 1 else "subscriptions"
        taken = f"taken by {self.matched} {subscriptions} in all, {self.unmatched} by none"
        if self.dropped:
            taken += f"; {self.dropped} times a subscription had dropped one before it was taken"
        click.echo(f"{why}{self.published} {events} published; {taken}")


def _texts(events: tuple[str, ...], source: IO[bytes] | None) -> Iterator[tuple[str, bytes]]:
    for number, text in enumerate(events, 1):
        # The bytes that the user typed, even if they are not text.
        yield f"argument {number}", os.fsencode(text)
    if source is not None:
        for number, line in enumerate(source, 1):
            if line.strip():
                yield f"line {number}", line
