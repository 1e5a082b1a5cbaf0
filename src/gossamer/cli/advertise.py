"""``gossamer advertise``: make a topic known."""

from __future__ import annotations

import contextlib
from pathlib import Path

import click
import msgspec

from gossamer.cli.common import Stop, join_option, json_option, node_options, run_until_signal
from gossamer.cli.plain import plain


@click.command()
@click.argument("topic")
@click.argument("schema")
@click.option(
    "--retention",
    default="",
    help="How long or how much each publisher keeps: '1h', '64MB' or '1h, 64MB'.",
)
@click.option(
    "--replace",
    is_flag=True,
    help="This schema holds from now on, whatever was advertised before: ends a conflict.",
)
@join_option
@node_options
@json_option
def advertise(
    topic: str,
    schema: str,
    retention: str,
    replace: bool,
    join: tuple[str, ...],
    trace_dir: Path | None,
    fabric: str,
    keys: Path | None,
    wait: float,
    as_json: bool,
) -> int:
    """Make TOPIC known to the fabric, with its SCHEMA as Spark DDL text.

    \b
    Examples:
      gossamer advertise weather "country STRING, city STRING, temp INT, at TIMESTAMP"
      gossamer advertise weather "country STRING, temp INT" --retention "7d, 1GB"
      gossamer advertise weather "country STRING, temp DOUBLE" --replace

    \b
    Types: STRING, BINARY, BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE,
    TIMESTAMP, DATE, STRUCT<name: TYPE, ...>.
    """

    async def main(stop: Stop) -> int:
        import gossamer
        from gossamer.node import Retention

        kept = Retention.parse(retention).text if retention else ""
        # A bad schema is found without a fabric.
        text = gossamer.Schema.parse(schema).text
        async with gossamer.Node(
            join=join, trace_dir=trace_dir, fabric=fabric, keys=keys, join_timeout=wait
        ) as node:
            # The schema that is replaced must be known here first.
            if replace:
                with contextlib.suppress(gossamer.SchemaConflictError):
                    await node.topic(topic, wait)
            await node.advertise(topic, text, retention=kept, replace=replace)
            # The topic may have had more attributes before.
            text = await node.topic(topic, wait)
        if as_json:
            click.echo(
                msgspec.json.encode(
                    {"topic": topic, "schema": text} | ({"retention": kept} if kept else {})
                ).decode()
            )
        else:
            click.echo(
                f"{topic} ({plain(text)}) is advertised"
                + (f", each publisher keeps {kept}" if kept else "")
            )
        return 0

    return run_until_signal(main)
