"""``gossamer publish``: publish events from arguments, a file or standard input."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from typing import IO, Any, get_args

import click
import msgspec

import gossamer
from gossamer.cli.common import join_option, json_option, run_until_signal

_NON_FINITE = ("NaN", "Infinity", "-Infinity")


@click.command()
@click.argument("topic")
@click.argument("events", nargs=-1, metavar="[JSON]...")
@click.option("--file", "source", type=click.File("rb"), help="JSON lines, one event each; - is standard input.")
@join_option
@click.option("--wait", default=10.0, show_default=True, help="Seconds to wait for the topic to be advertised.")
@json_option
def publish(
    topic: str, events: tuple[str, ...], source: IO[bytes] | None, join: tuple[str, ...], wait: float, as_json: bool
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

    async def main(stop: asyncio.Event) -> int:
        async with gossamer.Node(join=join) as node:
            schema = gossamer.Schema.parse(await node.topic(topic, wait))
            receipts: list[gossamer.Receipt] = []
            published = matched = unmatched = 0

            async def settle() -> None:
                nonlocal matched, unmatched
                for receipt in receipts:
                    done = await receipt
                    matched += done.matched
                    unmatched += not done.matched
                    if as_json:
                        line = {"sequence": done.sequence, "matched": done.matched, "publisher": f"{done.publisher:016x}"}
                        sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
                receipts.clear()

            for place, text in _texts(events, source):
                if stop.is_set():
                    break
                receipts.append(await node.publish(topic, _event(schema, text, place)))
                published += 1
                if len(receipts) >= 10_000:
                    await settle()
            await settle()
        if not as_json:
            one = "event" if published == 1 else "events"
            click.echo(f"{published} {one} published; taken by {matched} subscriptions in all, {unmatched} by none")
        return 0

    return run_until_signal(main)


def _texts(events: tuple[str, ...], source: IO[bytes] | None) -> Iterator[tuple[str, bytes]]:
    for number, text in enumerate(events, 1):
        yield f"argument {number}", text.encode()
    if source is not None:
        for number, line in enumerate(source, 1):
            if line.strip():
                yield f"line {number}", line


def _event(schema: gossamer.Schema, text: bytes, place: str) -> dict[str, Any]:
    """An event from JSON, with the types that the schema asks for: JSON has no times, no bytes, no NaN."""
    try:
        values = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise gossamer.EventError(f"{place} is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise gossamer.EventError(f"{place} is not a JSON object but {type(values).__name__}")
    for name, kind in zip(schema.names, get_args(schema.row_type), strict=True):
        value = values.get(name)
        if value is None:
            continue
        if value in _NON_FINITE and kind == float | None:
            values[name] = float(value)
            continue
        try:
            values[name] = msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            raise gossamer.EventError(f"{place}: {name}: {error}") from None
    return values
