"""``gossamer publish``: publish events from arguments, a file or standard input."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import click
import msgspec

import gossamer
from gossamer.cli.common import INTERRUPTED, Stop, join_option, json_option, node_options, run_until_signal
from gossamer.filters import from_plain

RECEIPTS_MAX = 10_000  # held at a time


@click.command()
@click.argument("topic")
@click.argument("events", nargs=-1, metavar="[JSON]...")
@click.option("--file", "source", type=click.File("rb"), help="JSON lines, one event each; - is standard input.")
@join_option
@node_options
@json_option
def publish(
    topic: str,
    events: tuple[str, ...],
    source: IO[bytes] | None,
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
      cat events.jsonl | gossamer publish weather --file -
    \b
    TIMESTAMP and DATE values are ISO 8601 strings, BINARY values are base64.
    """
    if not events and source is None:
        raise click.UsageError("nothing to publish: give events as JSON objects, or --file")

    async def main(stop: Stop) -> int:
        sent = Sent(as_json)
        try:
            async with gossamer.Node(join=join, trace_dir=trace_dir, fabric=fabric, keys=keys, join_timeout=wait) as node:
                schema = gossamer.Schema.parse(await node.topic(topic, wait))
                try:
                    for place, text in _texts(events, source):
                        try:
                            sent.receipts.append(await node.publish(topic, _event(schema, text)))
                        except gossamer.EventError as error:
                            raise gossamer.EventError(f"{place}: {error}") from None
                        if len(sent.receipts) >= RECEIPTS_MAX:
                            await sent.settle()
                finally:
                    await sent.settle()  # what has gone out is reported, whatever stops the rest
        except asyncio.CancelledError:
            sent.summary("interrupted: ")
            return INTERRUPTED
        except gossamer.EventError:
            sent.summary("before the error: ")
            raise
        sent.summary()
        return 0

    return run_until_signal(main)


class Sent:
    """What was published, and what its receipts said."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self.receipts: list[gossamer.Receipt] = []
        self.published = self.matched = self.unmatched = 0

    async def settle(self) -> None:
        while self.receipts:
            done = await self.receipts[0]
            self.receipts.pop(0)
            self.published += 1
            self.matched += done.matched
            self.unmatched += not done.matched
            if self.as_json:
                line = {"sequence": done.sequence, "matched": done.matched, "publisher": f"{done.publisher:016x}"}
                sys.stdout.write(msgspec.json.encode(line).decode() + "\n")

    def summary(self, why: str = "") -> None:
        if self.as_json or (why and not self.published):
            return
        events = "event" if self.published == 1 else "events"
        subscriptions = "subscription" if self.matched == 1 else "subscriptions"
        taken = f"taken by {self.matched} {subscriptions} in all, {self.unmatched} by none"
        click.echo(f"{why}{self.published} {events} published; {taken}")


def _texts(events: tuple[str, ...], source: IO[bytes] | None) -> Iterator[tuple[str, bytes]]:
    for number, text in enumerate(events, 1):
        yield f"argument {number}", os.fsencode(text)  # as it was typed, even if that is no text
    if source is not None:
        for number, line in enumerate(source, 1):
            if line.strip():
                yield f"line {number}", line


def _event(schema: gossamer.Schema, text: bytes) -> dict[str, Any]:
    """An event from JSON, with the types that the schema asks for: JSON has no times, no bytes, no NaN."""
    try:
        values = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise gossamer.EventError(f"not JSON: {error}") from None
    if not isinstance(values, dict):
        raise gossamer.EventError(f"not a JSON object but {type(values).__name__}")
    return from_plain(schema, values)
