"""``gossamer subscribe``: print events as they come."""

from __future__ import annotations

import asyncio
import sys

import click
import msgspec

from gossamer.cli.common import first_of, join_option, json_option, run_until_signal


@click.command()
@click.argument("topic")
@click.argument("filter", default="")
@join_option
@click.option("--limit", type=click.IntRange(1), help="Stop after this many events.")
@click.option("--timeout", type=float, help="Stop after this many seconds; exit code 1 if --limit was not reached.")
@click.option("--wait", default=10.0, show_default=True, help="Seconds to wait for the topic to be advertised.")
@click.option(
    "--slow",
    type=click.Choice(["block", "drop_oldest"]),
    default="block",
    show_default=True,
    help="When output is too slow.",
)
@json_option
def subscribe(
    topic: str,
    filter: str,
    join: tuple[str, ...],
    limit: int | None,
    timeout: float | None,
    wait: float,
    slow: str,
    as_json: bool,
) -> int:
    """Print the events of TOPIC for which FILTER, the text of a SQL WHERE clause, is TRUE.

    \b
    Examples:
      gossamer subscribe weather
      gossamer subscribe weather "country = 'CH' AND temp > 30"
      gossamer subscribe weather "city LIKE 'Gen%'" --limit 1 --json
    """

    async def main(stop: asyncio.Event) -> int:
        import gossamer

        async with gossamer.Node(join=join) as node, node.subscribe(topic, filter, timeout=wait, slow=slow) as events:
            click.echo(f"subscribed to {topic} WHERE {node.check_filter(topic, filter)}; Ctrl-C ends", err=True)

            async def take() -> None:
                count = 0
                async for event in events:
                    if as_json:
                        record = {
                            "topic": event.topic,
                            "publisher": f"{event.publisher:016x}",
                            "incarnation": event.incarnation,
                        }
                        line = {**record, "sequence": event.sequence, "values": event.values}
                        sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
                    else:
                        sys.stdout.buffer.write(msgspec.json.encode(event.values) + b"\n")
                    count += 1
                    if not events.backlog or count == limit:
                        sys.stdout.buffer.flush()
                    if count == limit:
                        return

            finished = await first_of(take(), stop, timeout)
            return 0 if finished or limit is None or stop.is_set() else 1

    return run_until_signal(main)
